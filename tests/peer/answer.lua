-- answer.lua -- flow's side of make test-peer: computes the cases that peer.py has written down.
--
-- flowlua answer.lua FOLDER reads cases.json and inputs.safetensors there and writes answers.json and answers.safetensors:
-- results "id.y1", gradients "id.g1" of their weighted sum by each float input, and "id.h1" of the gradients' weighted sum.
local flow = require "flow"

local folder = arg[1]

local function read(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read "a"
    file:close()
    return text
end

local inputs = flow.load(folder .. "/inputs.safetensors")
local cases = flow.json.decode(read(folder .. "/cases.json"))

local function is_float(x) return flow.is_tensor(x) and x.dtype:find "float" ~= nil end

-- As peer.py's: each element has a weight of its own.
local function weighted(list)
    local total
    for j = 1, list.n do
        local y = list[j]
        if is_float(y) and y.requires_grad then
            local weight = (flow.arange(y:numel(), {dtype = "float64"}) * 0.37 + 0.5 + j):cos():reshape(y.shape):to(y.dtype)
            local s = (y * weight):sum()
            total = total and total + s or s
        end
    end
    return total
end

local function packed(list, count)
    local result = {n = count}
    for i = 1, count do result[i] = list[i] end
    return result
end

local function compute(case, put)
    local args, leaves = {}, {}
    for i, name in ipairs(case.inputs) do
        local x = inputs[name]
        if case.strided and x.ndim >= 2 then x = x:transpose(-1, -2):contiguous():transpose(-1, -2) end
        if case.order > 0 and is_float(x) then
            x = x:detach():requires_grad_()
            leaves[#leaves + 1] = x
        end
        args[i] = x
    end
    local f = assert(load("local flow, a, b, c = ... " .. case.lua, "=" .. case.name))
    local results = table.pack(f(flow, table.unpack(args)))
    for j = 1, results.n do put("y" .. j, results[j]) end
    local slopes = results
    for order = 1, case.order do
        local total = weighted(slopes)
        if not total then return end
        local found = flow.grad(total, leaves, {allow_unused = true, create_graph = order < case.order})
        slopes = packed(found, #leaves)
        for i = 1, #leaves do if slopes[i] then put((order == 1 and "g" or "h") .. i, slopes[i]) end end
    end
end

local answers, tensors = {}, {}
for i, case in ipairs(cases) do
    local ok, message = pcall(function()
        compute(case, function(key, value)
            if not flow.is_tensor(value) then value = flow.tensor(value) end
            tensors[case.id .. "." .. key] = value:detach():contiguous():clone()
        end)
        flow.sync()
    end)
    answers[i] = {id = case.id, ok = ok, message = ok and "" or tostring(message)}
end

flow.save(folder .. "/answers.safetensors", tensors)
local file = assert(io.open(folder .. "/answers.json", "wb"))
file:write(flow.json.encode(answers))
file:close()
