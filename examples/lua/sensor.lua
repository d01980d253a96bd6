-- sensor.lua -- a plain Lua program that learns: bytes that arrive become tensors, what is learned leaves as bytes.
--
--   LUA_CPATH="build/?.so;;" lua5.4 examples/lua/sensor.lua
--
-- The records stand for what a program gets from a socket, a file or a device: two voltages and a temperature, as
-- 32-bit floats. The temperature is a function of the voltages, which a small network finds.
local flow = require "flow"
local nn, optim = require "flow.nn", require "flow.optim"

local function record(i)
    local a, b = math.sin(i * 0.7), math.cos(i * 1.3)
    return string.pack("<fff", a, b, 20 + 3 * a - 2 * b + a * b)
end

local received = {}
for i = 1, 256 do received[i] = record(i) end
local records = flow.frombytes(table.concat(received), "float32", {#received, 3})
local voltages, temperatures = records[{{}, {0, 2}}], records[{{}, {2, 3}}]

flow.manual_seed(1)
local net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
local optimizer = optim.Adam(net:parameters(), {lr = 0.02})
for _ = 1, 300 do
    optimizer:zero_grad()
    local loss = flow.mse_loss(net(voltages), temperatures - 20)
    loss:backward()
    optimizer:step()
end

local weights = {}
for i, p in ipairs(net:parameters()) do weights[i] = p:tobytes() end
print(("%d records of %d bytes, %d bytes of weights"):format(#received, #received[1], #table.concat(weights)))
--> 256 records of 12 bytes, 260 bytes of weights

flow.no_grad(function()
    local error = (net(voltages) + 20 - temperatures):abs():max():item()
    print(error < 0.5 and "every temperature is within half a degree" or "off by " .. error)
--> every temperature is within half a degree
end)
