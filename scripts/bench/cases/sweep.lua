-- sweep.lua -- elementwise ops, reductions and scans of the registry, by their own samples, at three sizes.
--
-- A case is named "op:dtype:size:way:arguments", with the text of the arguments, in which R and C are rows and columns;
-- peer_sweep.py reads the same names. way: forward, or backward: the op with the gradient of its sum.
-- It runs with FLOW_FUSE=0, since results that nobody reads would not be computed.
-- SWEEP_OPS, SWEEP_DTYPES, SWEEP_SIZES, SWEEP_WAYS: lists with commas, of what is measured alone.

local flow = require "flow"

local SIZES = {["1k"] = {32, 32}, ["1m"] = {1024, 1024}, ["16m"] = {4096, 4096}}
local ORDER = {dtypes = {"float32", "float64", "bfloat16", "int64"}, sizes = {"1k", "1m", "16m"}, ways = {"forward", "backward"}}

-- ---- the list ----

-- The arguments of a sample at any size, nil where its shapes are of another kind: (3, 4), (3, 1), (4), { } for ( ).
local function resized(sample)
    local text = sample:gsub("%s+", "")
    text = text:gsub("([({])3,[45]([)}])", "%1R,C%2"):gsub("([({])3,1([)}])", "%1R,1%2"):gsub("(flow%.%l+[(])4[)]", "%1C)")
    text = text:gsub("{4}", "{C}")
    local shaped = text:gsub("[({]R,C[)}]", ""):gsub("[({]R,1[)}]", ""):gsub("[({]C[)}]", ""):gsub("{C}", "")
    if not text:find("R,C", 1, true) or shaped:find "randn?[({]" or text:find "[\"']" or text:find("tensor", 1, true) then return nil end
    return text
end

-- Elementwise ops; those along axes, of one tensor.
local function is_swept(op)
    if op.hidden or op.mutates or op.random or op.source or op.name:find("%.") then return false end
    return op.elementwise or op.sig:find("^[%l_%d]+%(x, .*axis: ax[ei]s") ~= nil
end

local function wanted(kind)
    local chosen = os.getenv("SWEEP_" .. kind:upper())
    if not chosen then return ORDER[kind] end
    local list = {}
    for word in chosen:gmatch "[^,]+" do list[#list + 1] = word end
    return list
end

-- All cases, as figures.
local function figures()
    local ops, list = {}, {}
    for _, op in ipairs(flow._testing.ops()) do if is_swept(op) then ops[#ops + 1] = op end end
    table.sort(ops, function(a, b) return a.name < b.name end)
    local chosen = os.getenv "SWEEP_OPS"
    for _, op in ipairs(ops) do
        if not chosen or ("," .. chosen .. ","):find("," .. op.name .. ",", 1, true) then
            for i, sample in ipairs(op.samples) do
                local arguments = (i == 1 or not op.elementwise) and resized(sample)
                for _, dtype in ipairs(arguments and wanted "dtypes" or {}) do
                    for _, size in ipairs(wanted "sizes") do
                        for _, way in ipairs(op.differentiable and dtype ~= "int64" and wanted "ways" or {"forward"}) do
                            local words = {op.name, dtype, size, way, arguments}
                            list[#list + 1] = {table.concat(words, ":"), table.concat(words, " "):gsub("flow%.", ""), "us"}
                        end
                    end
                end
            end
        end
    end
    return list
end

-- ---- one case ----

-- Of dtype; integers: 1 .. 9. Masks and indices stay what they are.
local function converted(x, dtype)
    if not flow.is_tensor(x) then return x end
    if dtype == "int64" then return x.dtype == "float32" and flow.randint(1, 10, x.shape) or x end
    return x.dtype == "float32" and x:to(dtype) or x
end

local function prepare(case)
    local name, dtype, size, way, text = case:match("^([%w_]+):(%w+):(%w+):(%w+):(.+)$")
    assert(name, "there is no case " .. case)
    local f, shape = flow[name], SIZES[size]
    local args = table.pack(assert(load("local flow, R, C = ... return " .. text))(flow, shape[1], shape[2]))
    for i = 1, args.n do args[i] = converted(args[i], dtype) end
    if way == "forward" then
        return function(count)
            for _ = 1, count do f(table.unpack(args, 1, args.n)) end
        end
    end
    local leaves = {}
    for i = 1, args.n do
        if flow.is_tensor(args[i]) and args[i].dtype == dtype then leaves[#leaves + 1] = args[i]:requires_grad_() end
    end
    return function(count)
        for _ = 1, count do flow.grad((f(table.unpack(args, 1, args.n))):sum(), leaves, {allow_unused = true}) end
    end
end

return setmetatable({}, {__index = function(_, case)
    if case == "figures" then return figures() end
    return function() return prepare(case) end
end})
