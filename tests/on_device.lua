-- on_device.lua -- before the specs (busted --helper): tensors that are made without a device or placement are made on
-- FLOW_TEST_DEVICE, and placements of "cpu" are placements of its type. Scripts that choose their device themselves run without
-- that (tests/training.lua).
local flow = require "flow"

local M, replaced = {}, {}

local function replace(name, value)
    replaced[name] = flow[name]
    flow[name] = value
end

local device = assert(os.getenv "FLOW_TEST_DEVICE", "FLOW_TEST_DEVICE says where tensors are made")
local type_of_device = device:match "^%a+"

-- Options are a table whose keys are words; sizes are a list.
local function is_options(value) return type(value) == "table" and type(next(value)) == "string" end

local chosen = 0 -- number of with_device that are open

local function placed(options)
    local copy = {}
    for key, v in pairs(options or {}) do copy[key] = v end
    if not copy.device and not copy.placement and chosen == 0 then copy.device = device end
    return copy
end

local function wrap(f, least)
    return function(...)
        local args = table.pack(...)
        local n = args.n
        if n < least then return f(...) end     -- an error: its words are the function's own
        if is_options(args[n]) and n > least then args[n] = placed(args[n])
        elseif args[n] == nil and n > least then args[n] = placed()
        else args[n + 1], n = placed(), n + 1 end
        return f(table.unpack(args, 1, n))
    end
end

-- Functions that make tensors of nothing, and how many arguments they need besides options.
for name, least in pairs {
    zeros = 1, ones = 1, empty = 1, full = 2, eye = 1, arange = 1, linspace = 3, rand = 1, randn = 1, randperm = 1,
} do
    replace(name, wrap(flow[name], least))
end

local between, below = wrap(flow.randint, 3), wrap(flow.randint, 2)
replace("randint", function(...)
    local second = select(2, ...)
    return (type(second) == "table" and not is_options(second) and below or between)(...)
end)

local tensor = flow.tensor
replace("tensor", function(...)
    local data, options = ...
    if select("#", ...) == 0 then return tensor() end
    if flow.is_tensor(data) or (options ~= nil and not is_options(options) and next(options) ~= nil) then return tensor(data, options) end
    return tensor(data, placed(options))
end)

-- Functions that read values from files: on the device too, unless the call names one.
local load = flow.load
replace("load", function(path, options)
    if options and (options.lazy or options.device or options.placement) then return load(path, options) end
    return load(path, placed(options))
end)

local program = flow.program
replace("program", function(path, options)
    if options and options.device then return program(path, options) end
    return program(path, placed(options))
end)

-- With a function the device that it names counts.
local with_device = flow.with_device
replace("with_device", function(name, f, ...)
    if not f then return with_device(name) end
    chosen = chosen + 1
    local result = table.pack(pcall(with_device, name, f, ...))
    chosen = chosen - 1
    if not result[1] then error(result[2], 0) end
    return table.unpack(result, 2, result.n)
end)

local placement = flow.placement
replace("placement", setmetatable({
    all = function(kind) return placement.all(kind == "cpu" and type_of_device or kind) end,
}, {
    __index = placement,
    __call = function(_, kind, ...) return placement(kind == "cpu" and type_of_device or kind, ...) end,
}))

-- f() with the original functions.
function M.without(f)
    local here = {}
    for name, value in pairs(replaced) do here[name], flow[name] = flow[name], value end
    local result = table.pack(pcall(f))
    for name, value in pairs(here) do flow[name] = value end
    if not result[1] then error(result[2], 0) end
    return table.unpack(result, 2, result.n)
end

return M
