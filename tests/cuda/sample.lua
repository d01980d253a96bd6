-- sample.lua [FIRST LAST] -- for compute-sanitizer: the samples of every op, forward and backward, on the GPU, once; contiguous
-- and strided. FIRST and LAST: only ops of these numbers. Says which op it is at, and how many calls it made. An op without a kernel
-- for GPUs, or without the library that has it, says so: that is no failure.
local flow = require "flow"
local ops = flow._testing.ops()
table.sort(ops, function(a, b) return a.name < b.name end)

local function map(value, f)
    if flow.is_tensor(value) then return f(value) end
    if type(value) ~= "table" then return value end
    local copy = {}
    for key, v in pairs(value) do copy[key] = map(v, f) end
    return copy
end

local layouts = {
    function(t) return t:to("cuda") end,
    function(t) return t.ndim == 0 and t:to("cuda") or flow.stack({t, t}, t.ndim):to("cuda"):select(-1, 0) end,
}

-- One call and, of float results of operands with `gradients`, one backward.
local function call(op, args, layout, gradients)
    local leaves = {}
    local live = map(args, function(t)
        t = layout(t)
        if not t.dtype:find "float" or not gradients then return t end
        t = t:detach()
        t.requires_grad = true
        leaves[#leaves + 1] = t
        return t
    end)
    local y = op.call(table.unpack(live, 1, args.n))
    if #leaves == 0 or not flow.is_tensor(y) or not y.requires_grad then return end
    flow.grad(y:sum(), leaves, {allow_unused = true})
end

local function is_missing(message)
    return message:find("it has no cuda kernel", 1, true) or message:find(" was not found; ", 1, true)
end

io.stdout:setvbuf "line"
local calls, refused = 0, {}
for i = tonumber(arg[1]) or 1, math.min(tonumber(arg[2]) or #ops, #ops) do
    local op = ops[i]
    print(op.name)
    for _, sample in ipairs(op.source and {} or op.samples) do
        for _, layout in ipairs(layouts) do
            local args = table.pack(assert(load("local flow = ... return " .. sample))(flow))
            local ok, message = pcall(call, op, args, layout, op.differentiable and not op.mutates)
            if not ok and tostring(message):find "no gradient" then ok, message = pcall(call, op, args, layout, false) end
            if ok then ok, message = pcall(flow.sync) end
            calls = calls + 1
            if not ok and not is_missing(tostring(message)) then refused[#refused + 1] = op.name .. ": " .. tostring(message) end
        end
    end
end
for _, line in ipairs(refused) do io.stderr:write(line, "\n") end
print(("%d calls, %d failed"):format(calls, #refused))
os.exit(#refused == 0)
