-- parts.lua -- what random programs are made of: values and their text, placements, inputs, ops, and the call of a line.
local flow = require "flow"
local reference = require "tests.reference"
local testing = flow._testing

local count, hash = reference.count, reference.hash
local random = math.random
local rank, world = flow.rank(), flow.world_size()
local queued = os.getenv "FLOW_ENGINE" == "queued"

local function pick(list) return list[random(#list)] end
local function chance(percent) return random(100) <= percent end

local floats = {float16 = 2.0 ^ -10, bfloat16 = 2.0 ^ -7, float32 = 2.0 ^ -23, float64 = 2.0 ^ -52}
local float_names = {"float32", "float32", "float64", "float16", "bfloat16"}
local all_dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

---- Lua text of values ----

local function number_text(v)
    if v ~= v then return "0/0" end
    if v == math.huge then return "math.huge" end
    if v == -math.huge then return "-math.huge" end
    if math.type(v) == "integer" then return tostring(v) end
    return ("%.17g"):format(v):gsub("^(-?%d+)$", "%1.0")
end

-- `name_of` gives the text of a tensor; one that it does not know makes the whole nil.
local function text_of(value, name_of)
    if flow.is_tensor(value) then return name_of(value) end
    if type(value) == "string" then return ("%q"):format(value) end
    if type(value) == "number" then return (number_text(value)) end
    if type(value) ~= "table" then return tostring(value) end
    local items = {}
    for i = 1, #value do
        items[i] = text_of(value[i], name_of)
        if not items[i] then return nil end
    end
    local keys = {}
    for k in pairs(value) do if type(k) == "string" then keys[#keys + 1] = k end end
    table.sort(keys)
    for _, k in ipairs(keys) do
        local text = text_of(value[k], name_of)
        if not text then return nil end
        items[#items + 1] = k .. " = " .. text
    end
    return "{" .. table.concat(items, ", ") .. "}"
end

local function plain(value) return text_of(value, tostring) end

---- placements ----

local function nested(order, hierarchy, k, at)
    local list = {}
    local below = count(table.move(hierarchy, k + 1, #hierarchy, 1, {}))
    for c = 0, hierarchy[k] - 1 do
        if k == #hierarchy then list[c + 1] = order[at + c + 1]
        else list[c + 1] = nested(order, hierarchy, k + 1, at + c * below) end
    end
    return list
end

-- One axis, or the number of ranks as a product.
local function random_hierarchy(n)
    if chance(40) then return {n} end
    local list = {}
    for _ = 1, random(1, 2) do
        local divisors = {}
        for d = 1, n do if n % d == 0 and (d > 1 or chance(30)) then divisors[#divisors + 1] = d end end
        local d = #divisors > 0 and pick(divisors) or 1
        list[#list + 1], n = d, n // d
    end
    list[#list + 1] = n
    for i = #list, 2, -1 do
        local j = random(i)
        list[i], list[j] = list[j], list[i]
    end
    return list
end

local function make_place(order, hierarchy)
    local ranks = nested(order, hierarchy, 1, 0)
    local place = {value = flow.placement("cpu", ranks), hierarchy = hierarchy, order = order}
    for i, r in ipairs(order) do
        if r == rank then place.position = i - 1 end
    end
    place.coords = {}
    local position = place.position or 0
    for k = #hierarchy, 1, -1 do place.coords[k], position = position % hierarchy[k], position // hierarchy[k] end
    return place
end

-- The placements of a seed: all ranks, and some of them in any order. A few only: each group of ranks costs a communicator.
local places_of = {}
local function places(seed)
    if places_of[seed] then return places_of[seed] end
    math.randomseed(seed, world)
    local all = {}
    for r = 0, world - 1 do all[r + 1] = r end
    local list = {make_place(all, {world})}
    for _ = 2, 12 do
        local order = table.move(all, 1, world, 1, {})
        for i = world, 2, -1 do
            local j = random(i)
            order[i], order[j] = order[j], order[i]
        end
        local n = chance(60) and world or random(world)
        order = table.move(order, 1, n, 1, {})
        list[#list + 1] = make_place(order, random_hierarchy(n))
    end
    places_of[seed] = list
    return list
end

local function random_sbp(place, ndim, dtype, partial)
    local list = {}
    for k = 1, #place.hierarchy do
        local kind = random(10)
        if kind <= 4 and ndim > 0 then list[k] = ("S(%d)"):format(random(0, ndim - 1))
        elseif kind <= 7 or not partial then list[k] = "B"
        elseif kind <= 8 and dtype ~= "bool" then list[k] = "P"
        else list[k] = pick {"P", "P(max)", "P(min)"} end
        if dtype == "bool" and list[k] == "P" then list[k] = "P(max)" end
    end
    return list
end

---- the registry ----

local ops, by_name = testing.ops(), {}
table.sort(ops, function(a, b) return a.name < b.name end)
for _, op in ipairs(ops) do
    op.mutates = op.mutates or op.name:sub(-1) == "_"
    by_name[op.name] = op
end

local samples_of = {}
local function sample_arguments(name, sample)
    local key = name .. sample
    if samples_of[key] then return samples_of[key] end
    flow.manual_seed(hash(sample, #name, name:byte(1, -1)))
    local chunk = assert(load("local flow = ... return " .. by_name[name].samples[sample]))
    local args = table.pack(chunk(flow))
    args.tensors, args.at = {}, {}
    local function walk(value)
        if flow.is_tensor(value) then
            args.tensors[#args.tensors + 1] = value
            args.at[value] = #args.tensors
        elseif type(value) == "table" then
            for i = 1, value.n or #value do walk(value[i]) end
            local keys = {}
            for k in pairs(value) do if type(k) == "string" and k ~= "n" then keys[#keys + 1] = k end end
            table.sort(keys)
            for _, k in ipairs(keys) do walk(value[k]) end
        end
    end
    walk(args)
    samples_of[key] = args
    return args
end

---- inputs ----

local function layout(t, kind)
    if kind == "transposed" and t.ndim > 1 then return t:transpose(0, -1):contiguous():transpose(0, -1) end
    if kind == "strided" and t.ndim > 0 and t.ndim < 8 then return flow.stack({t, t}, t.ndim):select(-1, 1) end
    if kind == "offset" and t.ndim > 0 then return flow.cat({t, t}, 0):narrow(0, t:size(0), t:size(0)) end
    return t
end

-- Small numbers that every dtype holds exactly, sums of them too.
local function grid(shape, dtype, span)
    local t = flow.randint(-span, span + 1, shape)
    if floats[dtype] then return (t:to "float64" / 8):to(dtype) end
    if dtype == "bool" then return t:gt(0) end
    return t:to(dtype)
end

local oddities = {0 / 0, 1 / 0, -1 / 0, 0.0, -0.0, 1.0, 1e-30, 3.0}

-- The tensor of sample n of an op at `at`, in a shape and dtype: its elements again and again; of floats the later ones a little
-- smaller, each in its own way, or rows of matrices would be equal.
local function sample_value(spec)
    local t = sample_arguments(spec.op, spec.sample).tensors[spec.at]
    local n = count(spec.shape)
    if n == 0 or t:numel() == 0 then return flow.zeros(spec.shape, {dtype = spec.dtype}) end
    local flat = t:reshape(-1)
    if n ~= flat:numel() then
        local at = flow.arange(n)
        local first = flat:numel()
        flat = flat:index_select(0, at:remainder(first))
        if floats[t.dtype] then flat = flat * flow.where(at:ge(first), 1 - at:remainder(7):to(t.dtype) / 64, 1) end
    end
    return flat:reshape(spec.shape):to(spec.dtype)
end

local function whole_value(spec)
    flow.manual_seed(spec.seed)
    local t
    if spec.kind == "index" then t = flow.randint(spec.low, math.max(spec.high, spec.low + 1), spec.shape):to(spec.dtype)
    elseif spec.kind == "sample" then t = sample_value(spec)
    elseif spec.kind == "normal" then t = flow.randn(spec.shape, {dtype = spec.dtype})
    else t = grid(spec.shape, spec.dtype, 36) end
    if spec.kind == "odd" and floats[spec.dtype] and t:numel() > 0 then
        local odd = flow.tensor(oddities):index_select(0, flow.randint(0, #oddities, {t:numel()})):reshape(spec.shape)
        t = flow.where(flow.rand(spec.shape):lt(0.2), odd, t)
        if t.dtype ~= spec.dtype then t = t:to(spec.dtype) end
    end
    return t
end

-- The smaller (or larger) of both, of bools too.
local function extreme(kind, a, b)
    if a.dtype == "bool" then return kind == "P(max)" and a:logical_and(b) or kind == "P(min)" and a:logical_or(b) end
    return kind == "P(max)" and flow.minimum(a, b) or flow.maximum(a, b)
end

-- The part of t on the rank at these coordinates, along hierarchy axis k and the ones after it.
local function part_of(spec, place, t, k, path)
    if k > #place.hierarchy then return t end
    local sbp, n, c = spec.sbp[k], place.hierarchy[k], place.coords[k]
    local axis = sbp:match "^S%((%d+)%)$"
    if axis then
        axis = tonumber(axis)
        local size = t:size(axis)
        local base, extra = size // n, size % n
        t = t:narrow(axis, base * c + math.min(c, extra), base + (c < extra and 1 or 0))
    elseif sbp == "P" and n > 1 then
        local rest, mine = t, nil
        for other = 0, n - 2 do
            flow.manual_seed(hash(path, k, other))
            local noise = grid(t.shape, t.dtype, 8)
            if other == c then mine = noise end
            rest = rest - noise
        end
        t = mine or rest
        path = hash(path, c, 3)
    elseif sbp ~= "B" and n > 1 then
        flow.manual_seed(hash(path, k, 77))
        local winner = flow.randint(0, n, t.shape)
        flow.manual_seed(hash(path, k, 78, c))
        t = flow.where(winner:eq(c), t, extreme(sbp, t, grid(t.shape, t.dtype, 30)))
        path = hash(path, c, 4)
    end
    return part_of(spec, place, t, k + 1, path)
end

-- Each rank makes its own part.
local function global_value(spec, place, t)
    local part = place.position and part_of(spec, place, t, 1, spec.seed) or flow.zeros(0, {dtype = spec.dtype})
    part = layout(part, spec.layout)
    if spec.exchanged then return part:to_global {placement = place.value, sbp = spec.sbp} end
    return testing.from_part(part, spec.shape, place.value, spec.sbp)
end

local function spec_text(name, spec)
    local fields = {("dtype = %q, shape = %s, kind = %q"):format(spec.dtype, plain(spec.shape), spec.kind)}
    if spec.kind == "index" then fields[#fields + 1] = ("low = %d, high = %d"):format(spec.low, spec.high) end
    if spec.kind == "sample" then fields[#fields + 1] = ("of = %q"):format(("%s %d.%d"):format(spec.op, spec.sample, spec.at)) end
    if spec.layout then fields[#fields + 1] = ("layout = %q"):format(spec.layout) end
    if spec.exchanged then fields[#fields + 1] = "exchanged = true" end
    if spec.grad then fields[#fields + 1] = "requires_grad = true" end
    fields[#fields + 1] = ("place = %d, sbp = {%q}"):format(spec.place, table.concat(spec.sbp, '", "')):gsub('\\"', '"')
    return ("%s = input {%s}"):format(name, table.concat(fields, ", "))
end

---- lines ----

local hidden = setmetatable({}, {__index = function(_, name) return by_name[name] and by_name[name].call end})

local function local_environment()
    return {
        flow = flow, op = hidden, math = math,
        move = function(t) return t:clone() end,
        here = function(options) return options end,
    }
end

local function global_environment(list)
    return {
        flow = flow, op = hidden, math = math,
        move = function(t, place, sbp) return t:to_global {placement = list[place].value, sbp = sbp} end,
        here = function(options, place, sbp)
            options.placement, options.sbp = list[place].value, sbp
            return options
        end,
    }
end

local function names_in(text)
    local list = {}
    for name in text:gmatch "%f[%w_]t%d+%f[^%w_]" do list[#list + 1] = name end
    return list
end

local function flatten(value, list)
    if flow.is_tensor(value) or type(value) == "number" or type(value) == "boolean" then list[#list + 1] = value
    elseif type(value) == "table" then
        for i = 1, value.n or #value do flatten(value[i], list) end
    end
    return list
end

-- Calls a line. Returns ok and its results in one list, or false and the message. drawn: also what is queued has to succeed.
local function call_line(line, env, drawn)
    line.chunk = line.chunk or assert(load("local _ENV = ... " .. (line.statement and "" or "return ") .. line.text, "=line"))
    flow.manual_seed(line.seed)
    local results = table.pack(pcall(line.chunk, env))
    if not results[1] then return false, tostring(results[2]) end
    local list = flatten({n = results.n - 1, table.unpack(results, 2, results.n)}, {})
    if not drawn or not queued then return true, list end
    local read, message = pcall(function()
        for _, t in ipairs(list) do if flow.is_tensor(t) then t:totable() end end
        flow.sync()
    end)
    return read, read and list or message
end

return {
    pick = pick, chance = chance, hash = hash, text_of = text_of, plain = plain, places = places,
    random_sbp = random_sbp, layout = layout, whole_value = whole_value, global_value = global_value,
    spec_text = spec_text, local_environment = local_environment, global_environment = global_environment,
    names_in = names_in, call_line = call_line, floats = floats, float_names = float_names,
    all_dtypes = all_dtypes, ops = ops, sample_arguments = sample_arguments,
}
