-- fuzz_values.lua -- what the programs that make random calls share: values that fit and values that don't, and what an error
-- must say. All of it depends on math.randomseed alone. On several ranks every rank makes the same values.
local flow = require "flow"

local M = {}

local random = math.random

local function pick(list) return list[random(#list)] end
local function chance(percent) return random(100) <= percent end
M.pick, M.chance = pick, chance

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
local device = os.getenv "FUZZ_DEVICE" or "cpu" -- of the tensors: "meta" tries what only infers
local placement = flow.placement.all(device)
local square = flow.placement(device, {placement.ranks})

local function sizes(limit)
    local list = {}
    for i = 1, random(0, limit or 4) do list[i] = pick {0, 1, 1, 2, 2, 3, 4, 5, 7} end
    return list
end

-- The same elements in a layout of its own.
local function relayout(t)
    local kind = random(6)
    if kind == 1 and t.ndim > 1 then return t:transpose(0, -1) end
    if kind == 2 and t.ndim > 0 and t.ndim < 8 then return flow.stack({t, t}, t.ndim):select(-1, 1) end
    if kind == 3 and t.ndim > 0 and t:size(0) > 1 then return t:narrow(0, 1, t:size(0) - 1) end
    if kind == 4 and t.ndim < 8 then return t:unsqueeze(0):expand(3, table.unpack(t.shape)) end
    return t
end

local function globalize(t)
    local sbps = {"B", "P"}
    for axis = 0, t.ndim - 1 do sbps[#sbps + 1] = ("S(%d)"):format(axis) end
    if chance(20) then return t:to_global {placement = square, sbp = {pick(sbps), pick(sbps)}} end
    return t:to_global {placement = placement, sbp = pick(sbps)}
end

local function tensor(shape, dtype)
    shape, dtype = shape or sizes(chance(5) and 8 or 4), dtype or pick(dtypes)
    local t
    local kind = random(5)
    if kind == 1 then t = flow.zeros(shape)
    elseif kind == 2 then t = flow.randint(-9, 9, shape)
    elseif kind == 3 then t = flow.full(shape, pick {0 / 0, 1 / 0, -1 / 0, 1e38, -3e300, 1e-310, 0.5})
    elseif kind == 4 then t = flow.full(shape, pick {math.maxinteger, math.mininteger, -1, 255, 3}, {dtype = "int64"})
    else t = flow.randn(shape) end
    t = t:to(dtype):to(device)
    if chance(40) then t = relayout(t) end
    if chance(10) then t = select(2, pcall(globalize, t)) end
    if not flow.is_tensor(t) then return flow.ones(2, {device = device}) end
    if dtype:find "float" and chance(25) then t:requires_grad_() end
    return t
end

local cycle = {}
cycle[1], cycle.x = cycle, cycle

local numbers = {
    0, 1, -1, 2, 3, 4, 5, 7, 8, 9, -2, -3, -9, 16, 100, 1000, 65536, 2 ^ 31, -2 ^ 31, 2 ^ 31 - 1, 2 ^ 32, 2 ^ 53, 2 ^ 62, 2 ^ 63, 2 ^ 64, 1e300, -1e300,
    1 << 31, 1 << 32, (1 << 31) - 1, 1 << 40, 1 << 61, 1 << 62, math.maxinteger, math.mininteger, math.maxinteger - 1, math.mininteger + 1,
    0 / 0, 1 / 0, -1 / 0, -0.0, 0.5, -0.5, 1.5, 1e-310, 1e-8, 0.1, 0.999999999, 1.0, 2.0, 3.0,
}
-- Sizes that fit into the memory of one process are left out if several share it, and for ASan, which knows no limit.
if os.getenv "ASAN_OPTIONS" or flow.world_size() > 1 then
    for i = #numbers, 1, -1 do
        if math.abs(numbers[i]) >= 1 << 28 and math.abs(numbers[i]) <= 1 << 36 then table.remove(numbers, i) end
    end
end
local words = {
    "", "x", "mean", "sum", "none", "float32", "int64", "bool", "float31", "cpu", "meta", "cuda", "cuda:1", "cuda:99999999999", "S(0)", "S(-1)", "S(99)",
    "S(99999999999999999999)", "B", "P", "P(max)", "P(", "0, 1:2", "...", ":", ":::", "-1", "1:0:-1", "0:99999999999999999999", "tanh",
    ("long"):rep(1000), "\0\255", "%s%n%d", "is_causal", "1e5", "nan", "0x10",
}
local keys = {"dtype", "device", "placement", "sbp", "requires_grad", "keepdim", "axis", "reduction", "weight", "ignore_index",
    "label_smoothing", "is_causal", "mask", "dropout", "value", "eps", "bias", "x", "y", "input", "p", "scale", "approximate", "correction",
    "ord", "bogus", "create_graph", "retain_graph", "grad_outputs", "allow_unused", "", "n", "training", "seed", "axes", "sizes", "size"}

local junk

local function junk_list(depth)
    local list = {}
    local kind = random(6)
    for i = 1, random(0, chance(5) and 40 or 4) do
        if kind == 1 then list[i] = tensor()
        elseif kind == 2 then list[i] = pick(numbers)
        elseif kind == 3 then list[i] = random(-3, 4)
        elseif kind == 4 then list[i] = pick {{0, 1}, {1, 2}, {}, "...", 0, -1, {0, 4, 2}}
        else list[i] = junk(depth + 1) end
    end
    return list
end

function junk(depth)
    depth = depth or 0
    local kind = random(100)
    if kind <= 35 then return tensor() end
    if kind <= 50 then return random(-4, 8) end
    if kind <= 62 then return pick(numbers) end
    if kind <= 67 then return chance(50) end
    if kind <= 72 then return nil end
    if kind <= 79 then return pick(words) end
    if kind <= 90 and depth < 3 then return junk_list(depth) end
    if kind <= 95 and depth < 3 then
        local options = {}
        for _ = 1, random(3) do options[pick(keys)] = junk(depth + 1) end
        return options
    end
    return pick {cycle, function() end, coroutine.create(print), io.stdout, placement, square, flow.sbp.split(0), flow.sbp.broadcast, flow, {}, setmetatable({}, {})}
end

M.tensor, M.junk, M.cycle, M.placement, M.square = tensor, junk, cycle, placement, square

-- Random arguments; the first one is mostly a tensor when the function wants one.
function M.arguments(with_tensor)
    local args = {n = chance(3) and random(0, 20) or random(0, 4)}
    for i = 1, args.n do args[i] = junk() end
    if with_tensor and chance(90) then
        args[1] = tensor()
        args.n = math.max(args.n, 1)
    end
    return args
end

function M.show(value, depth)
    if flow.is_tensor(value) then
        return ("%s[%s]%s%s{%s}"):format(value.dtype, table.concat(value.shape, ","), value.is_global and tostring(value.sbp) or "", value.requires_grad and "g" or "",
            table.concat(value:stride(), ","))
    end
    if type(value) == "string" then return ("%q"):format(value:sub(1, 40)) end
    if type(value) ~= "table" or value == flow or value == cycle or getmetatable(value) or (depth or 0) > 2 then return tostring(value) end
    local list = {}
    for k, v in pairs(value) do list[#list + 1] = (type(k) == "string" and k .. "=" or "") .. M.show(v, (depth or 0) + 1) end
    return "{" .. table.concat(list, ", ") .. "}"
end

function M.show_arguments(args)
    local list = {}
    for j = 1, args.n do list[j] = M.show(args[j]) end
    return table.concat(list, ", ")
end

function M.complain(i, what) print(("BAD %d: %s"):format(i, what)) end

-- Fails unless the call ended alike on all ranks. When one raised and another did not, each reports which it was.
function M.check_ranks(i, name, ok, message)
    if flow.world_size() == 1 then return end
    local flag = flow.no_grad(function()
        local mine = flow.tensor({ok and 1 or 0}, {device = "cpu"})         -- whatever the call set
        return mine:to_global {placement = flow.placement.all "cpu", sbp = "P", check = false}:item()
    end)
    if flag == 0 or flag == flow.world_size() then return end
    M.complain(i, ("%s ends with an error on %d of %d ranks; rank %d: %s"):format(name, flow.world_size() - flag, flow.world_size(), flow.rank(),
        ok and "no error" or tostring(message)))
end

-- The name of a new folder that no other run uses, beginning with `name`. Rank 0 makes it and tells the others.
function M.scratch_folder(name)
    local bytes = flow.zeros(64):to "uint8"
    if flow.rank() == 0 then
        local path = os.tmpname()
        os.remove(path)
        local folder = ("%s.%s"):format(name, path:match "[^/_]*$")
        assert(os.execute("mkdir " .. folder))
        bytes = flow.frombytes(folder .. (" "):rep(64 - #folder), "uint8")
    end
    if flow.world_size() > 1 then
        local all = bytes:to("int64"):to_global {placement = flow.placement.all "cpu", sbp = "P", check = false}
        bytes = all:to_global({sbp = "B"}):to_local():to("uint8")
    end
    return bytes:tobytes():match "%S+"
end

return M
