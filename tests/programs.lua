-- programs.lua -- random programs on tensors, run on local tensors by every rank and on global tensors by all of them.
--
-- Program i of a seed depends on these two and the number of ranks. It is drawn by running it on local tensors, so that
-- most of its lines fit the tensors there are; a line is Lua text, called with an environment that holds the tensors by
-- name. Lines come from the registry: the samples of every op, with other sizes, dtypes, layouts and tensors of the program
-- in place of the sample's own, and elementwise ops of what there is; views, indexing, writing and boxing are drawn here.
--
-- Then every line is run on local and on global tensors. Whatever it gives is compared: the whole tensor, gathered on every
-- rank, and the part that this rank holds. Where rounding differs within the tolerance the local tensor takes the value of
-- the global one, so that errors do not grow from line to line and what picks or sorts sees the same numbers. Programs
-- with gradients keep both values apart and compare the gradients of the inputs at the end.
local flow = require "flow"
local count = require("tests.reference").count
local testing = flow._testing

local M = {}

local random = math.random
local rank, world = flow.rank(), flow.world_size()
local queued = os.getenv "FLOW_ENGINE" == "queued"

-- Errors of global tensors that local ones do not give, or of local ones alone. One more difference: what an element is
-- wrong with (M.of_an_element) is an error on the ranks whose part holds it, and the others learn of it when the job ends
-- or at a collective; so nothing comes after such a line.
M.differences = {
    {"is a copy", "a view of a split axis that had to move data is a copy, writing to it is an error"},
    {"cannot be viewed as", "what can be viewed depends on the strides, and parts have strides of their own"},
    {"cannot be updated in that sbp; convert it with to_global first", "the same"},
    {"cannot hold the result in place; assign it instead", "a tensor is written in its SBP, so a partial one by linear ops only"},
}

local function pick(list) return list[random(#list)] end
local function chance(percent) return random(100) <= percent end

local function hash(...)
    local h = 0x9e3779b97f4a7c15
    for i = 1, select("#", ...) do
        h = (h ~ select(i, ...)) * 0xbf58476d1ce4e5b9
        h = h ~ (h >> 29)
    end
    return h >> 12
end

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

-- `name_of` gives the text of a tensor; what it does not know makes the whole nil.
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

local sample_arguments

-- The tensor of sample n of an op at `at`, in a shape and dtype: its elements again and again.
local function sample_value(spec)
    local t = sample_arguments(spec.op, spec.sample).tensors[spec.at]
    local n = count(spec.shape)
    if n == 0 or t:numel() == 0 then return flow.zeros(spec.shape, {dtype = spec.dtype}) end
    local flat = t:reshape(-1)
    if n ~= flat:numel() then flat = flat:index_select(0, flow.arange(n):remainder(flat:numel())) end
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

-- What the rank at these coordinates holds of t along hierarchy axis k and the ones after it.
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

---- the registry ----

local ops, by_name = testing.ops(), {}
table.sort(ops, function(a, b) return a.name < b.name end)
for _, op in ipairs(ops) do
    op.mutates = op.mutates or op.name:sub(-1) == "_"
    by_name[op.name] = op
end
M.ops = ops

-- kinds.empty and kinds.step draw the others.
local function is_usable(op) return not op.name:find "^empty" and not op.name:find "_step$" and #op.samples > 0 end

local usable, elementwise = {}, {}
local elementwise_arity = {}

local samples_of = {}
function sample_arguments(name, sample)
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
        end
    end
    walk(args)
    samples_of[key] = args
    return args
end

for _, op in ipairs(ops) do
    if is_usable(op) then
        usable[#usable + 1] = op
        if op.elementwise and not op.hidden and not op.mutates then
            elementwise[#elementwise + 1] = op
            elementwise_arity[op.name] = #sample_arguments(op.name, 1).tensors
        end
    end
end

local function callee(op)
    if not op.hidden and type(rawget(flow, op.name)) == "function" then return "flow." .. op.name end
    return "op." .. op.name
end

local hidden = setmetatable({}, {__index = function(_, name) return by_name[name] and by_name[name].call end})

---- drawing ----

-- While a program is drawn: its local tensors by name, and the names that lines may take.
local Draw = {}
Draw.__index = Draw

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

function Draw:new_name()
    self.names = self.names + 1
    return "t" .. self.names
end

function Draw:add_node(name, place, roots)
    self.pool[#self.pool + 1] = name
    self.place[name], self.roots[name] = place, roots
end

function Draw:tensor(name) return self.env[name] end

function Draw:input(spec)
    local name = self:new_name()
    spec.seed = random(1 << 40)
    spec.layout = pick {nil, nil, "transposed", "strided", "offset"}
    spec.layout = ({false, false, "transposed", "strided", "offset"})[random(5)] or nil
    spec.place = spec.place or random(#self.list)
    spec.sbp = random_sbp(self.list[spec.place], #spec.shape, spec.dtype, spec.kind ~= "odd")
    spec.exchanged = chance(15) or nil
    spec.grad = self.gradients and floats[spec.dtype] and chance(85) or nil
    local t = whole_value(spec)
    if spec.grad then t = t:clone():requires_grad_() end
    self.env[name] = t
    self.program.inputs[#self.program.inputs + 1] = {name = name, spec = spec}
    self:add_node(name, spec.place, {[name] = true})
    return name
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

-- Errors of some elements alone.
function M.of_an_element(message)
    for _, text in ipairs {"division by zero", "negative integer powers", " is %-?%d+, but ", "probability %S+ is not between",
        "%(element %d+ of the index%) is out of range"} do
        if message:find(text) then return true end
    end
    return false
end

-- Ends the program with a line that an element makes fail. An op that goes on after that, as a loss does, leaves the other
-- ranks in a collective: it is given whole tensors, that all ranks of its placement fail together.
function Draw:fail(line)
    if self.broken or not chance(25) then return end
    line.results[1] = self:new_name()
    if not elementwise_arity[line.op] then
        for _, name in ipairs(names_in(line.text)) do
            local all = {}
            for k = 1, #self.list[line.place].hierarchy do all[k] = "B" end
            local moved = self:emit(("move(%s, %d, %s)"):format(name, line.place, plain(all)), line.place, {op = "to_global"})
            if not moved then return end
            line.text = line.text:gsub("%f[%w_]" .. name .. "%f[^%w_]", moved[1])
        end
        line.chunk = nil
    end
    self.broken, line.of_an_element = true, true
    self.program.lines[#self.program.lines + 1] = line
end

-- Adds a line if it runs, sometimes if it does not. Returns the names of its results.
-- `known`: op = name for the coverage, statement, writes = names that it changes and that are compared after it, touched =
-- names that it may change, fresh = its results share no memory.
function Draw:emit(text, place, known)
    if self.broken or #self.program.lines >= 28 then return end
    local line = {text = text, op = known.op, statement = known.statement, writes = known.writes, touched = known.touched,
        seed = random(1 << 40), results = {}, place = place}
    local ok, results = call_line(line, self.env, true)
    if not ok then
        if known.statement or queued then return end
        if M.of_an_element(results) then return self:fail(line) end
        if not chance(12) then return end
        line.results[1] = self:new_name()
        self.program.lines[#self.program.lines + 1] = line
        return
    end
    for _, t in ipairs(results) do
        if flow.is_tensor(t) and (t:numel() > 3000 or t.ndim > 6) then return end
        if self.gradients and flow.is_tensor(t) and floats[t.dtype] and t:numel() > 0 then
            local largest = t:detach():abs():max():item()
            if largest ~= largest or largest >= 200 then return end
        end
    end
    local roots = {}
    if not known.fresh then
        for _, name in ipairs(names_in(text)) do
            for root in pairs(self.roots[name] or {}) do roots[root] = true end
        end
    end
    if not known.statement then
        for i, t in ipairs(results) do
            local name = self:new_name()
            line.results[i] = name
            if flow.is_tensor(t) then
                self.env[name] = t
                if known.fresh then roots = {[name] = true} end
                self:add_node(name, place, roots)
            end
        end
    end
    self.program.lines[#self.program.lines + 1] = line
    return line.results
end

-- One of the tensors there are that fits, as a name.
function Draw:any(fits)
    for _ = 1, 6 do
        -- recent ones more often
        local i = chance(50) and #self.pool or random(#self.pool)
        local name = self.pool[i]
        if not fits or fits(self.env[name]) then return name end
    end
end

-- The same tensor on another placement.
function Draw:on(name, place)
    if not name or self.place[name] == place then return name end
    local t = self.env[name]
    local results = self:emit(("move(%s, %d, %s)"):format(name, place, plain(random_sbp(self.list[place], t.ndim, t.dtype, true))), place, {op = "to_global"})
    return results and results[1]
end

-- A tensor of the program in this shape and dtype, or nil.
function Draw:shaped(shape, dtype, place)
    local n = count(shape)
    local name = self:any(function(t) return t:numel() >= n and (floats[t.dtype] ~= nil) == (floats[dtype] ~= nil) and t.dtype ~= "bool" end)
    if not name or n == 0 then return end
    name = self:on(name, place)
    local t = name and self.env[name]
    if not t then return end
    if table.concat(t.shape, ",") ~= table.concat(shape, ",") then
        local text = name
        if t:numel() > n then text = ("%s:reshape(-1):narrow(0, %d, %d)"):format(name, random(0, t:numel() - n), n) end
        local results = self:emit(("%s:reshape(%s)"):format(text, plain(shape)), place, {op = "reshape"})
        if not results then return end
        name = results[1]
    end
    if self.env[name].dtype ~= dtype then
        local results = self:emit(("%s:to(%q)"):format(name, dtype), place, {op = "cast"})
        name = results and results[1]
    end
    return name
end

local small_sizes = {0, 1, 1, 2, 2, 3, 4, 5, 6, 7}

function Draw:random_shape(limit)
    local shape = {}
    for i = 1, random(0, limit or 3) do shape[i] = chance(8) and 0 or pick(small_sizes) end
    if self.gradients then for i, size in ipairs(shape) do shape[i] = math.max(size, 1) end end
    return shape
end

function Draw:fresh_input(shape, dtype, place)
    if not dtype then dtype = self.gradients and pick {"float64", "float64", "float64", "float32", "int64"} or pick(all_dtypes) end
    local kind = self.gradients and floats[dtype] and "normal" or chance(10) and "odd" or "grid"
    return self:input {shape = shape or self:random_shape(), dtype = dtype, kind = kind, place = place}
end

-- Indices into an axis of so many positions; a few are counted from the end where `negative`.
function Draw:indices(shape, size, place, negative)
    local low = negative and chance(30) and -size or 0
    return self:input {shape = shape, dtype = negative and "int64" or pick {"int64", "int64", "int32"}, kind = "index", low = low, high = size, place = place}
end

---- kinds of lines ----

local kinds = {}

-- The positions of a value that none of x exceeds.
function kinds.arg_find(d, place, x, args)
    local axis, keepdim, largest = args[3], args[4] or false, args[5] ~= false
    local along = axis and ("%d, %s"):format(axis, keepdim) or ""
    local value = d:emit(("%s:%s(%s)"):format(x, largest and "amax" or "amin", along), place, {op = largest and "amax" or "amin"})
    if not value or not d.env[value[1]] then return end
    return d:emit(("op.arg_find(%s, %s, %s, %s, %s)"):format(x, value[1], axis or "nil", keepdim, largest), place, {op = "arg_find"})
end

-- A sample of any op, changed.
function kinds.sample(d)
    local op = pick(usable)
    if op.mutates then return kinds.write(d) end
    local n = random(#op.samples)
    local args = sample_arguments(op.name, n)
    local place = chance(60) and d.place[d:any()] or random(#d.list)
    local sizes, change = {}, not op.hidden and chance(40)
    local function resized(size)
        if not change then return size end
        if not sizes[size] then sizes[size] = chance(50) and size or chance(10) and 0 or pick {1, 2, 3, 4, 5, 6, 7, 8, 9} end
        return sizes[size]
    end
    local cast = chance(35) and pick(float_names) or nil
    if d.gradients then cast = "float64" end
    if chance(15) and op.elementwise and not d.gradients then cast = pick(all_dtypes) end
    local function name_of(t)
        local shape = {}
        for i, size in ipairs(t.shape) do shape[i] = resized(size) end
        local dtype = floats[t.dtype] and cast or t.dtype
        local existing = floats[t.dtype] and chance(50) and d:shaped(shape, dtype, place)
        return existing or d:input {shape = shape, dtype = dtype, kind = "sample", op = op.name, sample = n, at = args.at[t], place = place}
    end
    if op.name == "arg_find" then return kinds.arg_find(d, place, name_of(args[1]), args) end
    local list = {}
    for i = 1, args.n do
        local value = args[i]
        if type(value) == "table" and not flow.is_tensor(value) and type(value[1]) == "number" and change and chance(60) then
            local mapped = {}
            for j, v in ipairs(value) do mapped[j] = math.type(v) == "integer" and v > 1 and resized(v) or v end
            value = mapped
        end
        list[i] = text_of(value, name_of)
        if not list[i] then return end
    end
    if op.source then
        local options = type(args[args.n]) == "table" and next(args[args.n]) and type(next(args[args.n])) == "string" and table.remove(list) or "{}"
        local ndim = (op.name == "arange" or op.name == "linspace" or op.name == "randperm") and 1 or op.name == "eye" and 2
            or type(args[1]) == "table" and #args[1] or (op.name == "randint" and #args[3]) or args.n
        local sbp = random_sbp(d.list[place], ndim, "float32", false)
        list[#list + 1] = ("here(%s, %d, %s)"):format(options, place, plain(sbp))
    end
    return d:emit(("%s(%s)"):format(callee(op), table.concat(list, ", ")), place, {op = op.name})
end

function kinds.elementwise(d)
    local op = pick(elementwise)
    local first = d:any()
    local place, t = d.place[first], d.env[first]
    local list = {first}
    for i = 2, elementwise_arity[op.name] do
        local other
        if chance(20) and i == 2 then other = tostring(pick {2, -1, 0.5, 3, 1.5})
        elseif chance(50) then
            other = d:any(function(y)
                for k = 1, math.min(y.ndim, t.ndim) do
                    local a, b = t.shape[t.ndim - k + 1], y.shape[y.ndim - k + 1]
                    if a ~= b and a ~= 1 and b ~= 1 then return false end
                end
                return true
            end)
            other = other and d:on(other, place)
        end
        if not other then
            local shape = {}
            for k = random(1, t.ndim + 1), t.ndim do shape[#shape + 1] = chance(20) and 1 or t.shape[k] end
            other = d:fresh_input(shape, chance(60) and t.dtype or nil, place)
        end
        list[i] = other
    end
    if op.name == "where" or op.name == "masked_fill" then
        local at = op.name == "where" and 1 or 2
        if not d.env[list[at]] then return end
        local mask = d:emit(("flow.gt(%s, 0)"):format(list[at]), place, {op = "gt"})
        if not mask then return end
        list[at] = mask[1]
        if op.name == "masked_fill" then list[3] = "-1" end
    end
    return d:emit(("%s(%s)"):format(callee(op), table.concat(list, ", ")), place, {op = op.name})
end

local function axis_of(t) return random(-t.ndim, t.ndim - 1) end
local function has_axis(t) return t.ndim > 0 end
local function has_elements(t) return t.ndim > 0 and t:numel() > 0 end

-- Sizes with the same product.
local function refactored(t)
    local n, list = t:numel(), {}
    if n == 0 then return {0, random(3)} end
    while n > 1 and #list < 3 do
        local d = random(n)
        while n % d ~= 0 do d = d - 1 end
        list[#list + 1], n = d, n // d
    end
    if n > 1 or #list == 0 then list[#list + 1] = n end
    return list
end

local function permutation(n)
    local list = {}
    for i = 1, n do
        local j = random(i)
        list[i], list[j] = list[j], i - 1
    end
    for i = 1, n do list[i] = list[i] or i - 1 end
    return list
end

local views = {
    reshape = function(t) return plain(refactored(t)) end,
    view = function(t) return plain(refactored(t)) end,
    permute = function(t) return t.ndim > 0 and plain(permutation(t.ndim)) or "{}" end,
    transpose = function(t) return t.ndim > 0 and ("%d, %d"):format(axis_of(t), axis_of(t)) end,
    flatten = function(t) return t.ndim > 1 and tostring(random(0, t.ndim - 1)) or "" end,
    unsqueeze = function(t) return t.ndim < 5 and tostring(random(0, t.ndim)) end,
    squeeze = function() return "" end,
    expand = function(t)
        local shape = {}
        for i, size in ipairs(t.shape) do shape[i] = size == 1 and random(0, 4) or -1 end
        if chance(40) then table.insert(shape, 1, random(3)) end
        return plain(shape)
    end,
    narrow = function(t)
        if t.ndim == 0 then return end
        local axis = axis_of(t)
        local size = t:size(axis)
        local start = random(0, size)
        return ("%d, %d, %d"):format(axis, start, random(0, size - start))
    end,
    select = function(t)
        if not has_elements(t) then return end
        local axis = axis_of(t)
        return ("%d, %d"):format(axis, random(-t:size(axis), t:size(axis) - 1))
    end,
    slice = function(t)
        if t.ndim == 0 then return end
        return ("%d, %d, %d, %d"):format(axis_of(t), random(0, 3), random(0, 7), random(3))
    end,
    chunk = function(t) return t.ndim > 0 and ("%d, %d"):format(random(4), axis_of(t)) end,
    split = function(t) return t.ndim > 0 and ("%d, %d"):format(random(3), axis_of(t)) end,
    diagonal = function(t)
        if t.ndim < 2 then return end
        local axes = permutation(t.ndim)
        return ("%d, %d, %d"):format(random(-2, 2), axes[1], axes[2])
    end,
    flip = function(t) return t.ndim > 0 and tostring(axis_of(t)) end,
    roll = function(t) return t.ndim > 0 and ("%d, %d"):format(random(-4, 9), axis_of(t)) end,
    tile = function() return plain(({{2}, {1, 2}, {3, 1}, {2, 1, 2}})[random(4)]) end,
    rep = function(t)
        local list = {}
        for i = 1, t.ndim do list[i] = random(0, 2) end
        return t.ndim > 0 and plain(list)
    end,
    contiguous = function() return "" end,
    clone = function() return "" end,
    tril = function(t) return t.ndim > 1 and tostring(random(-2, 2)) end,
    triu = function(t) return t.ndim > 1 and tostring(random(-2, 2)) end,
}
local view_names = {}
for name in pairs(views) do view_names[#view_names + 1] = name end
table.sort(view_names)

function kinds.view(d)
    local name = d:any()
    local op = pick(view_names)
    local arguments = views[op](d.env[name])
    if not arguments then return end
    return d:emit(("%s:%s(%s)"):format(name, op, arguments), d.place[name], {op = op})
end

local along = {"sum", "mean", "prod", "any", "all", "amax", "amin", "max", "min", "argmax", "argmin", "sort", "argsort", "cumsum", "softmax", "log_softmax",
    "logsumexp", "norm", "var", "std", "topk", "nonzero"}

function kinds.reduce(d)
    local name = d:any()
    local t, op = d.env[name], pick(along)
    local place = d.place[name]
    if op == "nonzero" then return d:emit(name .. ":nonzero()", place, {op = op}) end
    if t.ndim == 0 or (chance(20) and op ~= "softmax" and op ~= "log_softmax" and op ~= "cumsum" and op ~= "topk") then
        return d:emit(("%s:%s()"):format(name, op), place, {op = op})
    end
    local axis = axis_of(t)
    if op == "topk" then return d:emit(("%s:topk(%d, %d)"):format(name, random(0, t:size(axis)), axis), place, {op = op}) end
    if op == "sort" or op == "argsort" then return d:emit(("%s:%s(%d, %s)"):format(name, op, axis, chance(50)), place, {op = op}) end
    if op == "norm" then return d:emit(("%s:norm(%s, %d)"):format(name, pick {"1", "2", "3", "math.huge"}, axis), place, {op = op}) end
    if (op == "sum" or op == "mean" or op == "amax" or op == "amin") and t.ndim > 1 and chance(30) then
        local axes = permutation(t.ndim)
        return d:emit(("%s:%s({%d, %d}, %s)"):format(name, op, axes[1], axes[2], chance(50)), place, {op = op})
    end
    local keep = not op:find "soft" and op ~= "cumsum" and chance(40) and ", true" or ""
    return d:emit(("%s:%s(%d%s)"):format(name, op, axis, keep), place, {op = op})
end

-- A key for x[key]: numbers, ranges, tensors of indices or a mask.
function Draw:key(name)
    local t, place, list = self.env[name], self.place[name], {}
    for axis = 0, random(t.ndim) - 1 do
        local size, kind = t:size(axis), random(6)
        if kind == 1 and size > 0 then list[#list + 1] = tostring(random(-size, size - 1))
        elseif kind <= 3 then
            local from = random(0, size)
            list[#list + 1] = ("{%d, %d}"):format(from, random(from, size))
        elseif kind == 4 then list[#list + 1] = ("{%d, %d, %d}"):format(0, size, random(3))
        elseif kind == 5 and size > 0 then list[#list + 1] = self:indices(chance(70) and {random(0, 4)} or {2, random(3)}, size, place, true)
        else list[#list + 1] = "{}" end
    end
    return "{" .. table.concat(list, ", ") .. "}"
end

function kinds.index(d)
    local name = d:any(has_axis)
    if not name then return end
    local t, place = d.env[name], d.place[name]
    local kind = random(7)
    if kind <= 2 then return d:emit(("%s[%s]"):format(name, d:key(name)), place, {op = "index"}) end
    if kind == 3 then
        local mask = d:input {shape = chance(50) and t.shape or {t:size(0)}, dtype = "bool", kind = "grid", place = place}
        return d:emit(("%s[%s]"):format(name, mask), place, {op = "index"})
    end
    local axis = random(0, t.ndim - 1)
    local size = t:size(axis)
    if size == 0 then return end
    local shape = t.shape
    for i in ipairs(shape) do if i == axis + 1 then shape[i] = random(0, 5) else shape[i] = random(0, shape[i]) end end
    if kind == 4 then return d:emit(("%s:gather(%d, %s)"):format(name, axis, d:indices(shape, size, place)), place, {op = "gather"}) end
    if kind == 5 then return d:emit(("%s:index_select(%d, %s)"):format(name, axis, d:indices({random(0, 6)}, size, place)), place, {op = "index_select"}) end
    if kind == 6 and t.ndim == 2 then
        return d:emit(("flow.embedding(%s, %s)"):format(d:indices(d:random_shape(2), t:size(0), place), name), place, {op = "embedding"})
    end
    local index
    local op = chance(65) and "scatter_add" or "scatter"
    if op == "scatter" then -- each place once
        shape[axis + 1] = math.min(shape[axis + 1], 1)
    end
    index = d:indices(shape, size, place)
    local source = d:fresh_input(shape, t.dtype, place)
    return d:emit(("%s:%s(%d, %s, %s)"):format(name, op, axis, index, source), place, {op = op})
end

-- The names of tensors that may share memory with this one.
function Draw:sharing(written)
    local list = {}
    for name, roots in pairs(self.roots) do
        for root in pairs(roots) do
            if self.roots[written][root] then
                list[#list + 1] = name
                break
            end
        end
    end
    table.sort(list)
    return list
end

-- Takes those away from the lines to come.
function Draw:forget(names, kept)
    local gone, pool = {}, {}
    for _, name in ipairs(names) do gone[name] = name ~= kept end
    for _, name in ipairs(self.pool) do
        if not gone[name] then pool[#pool + 1] = name end
    end
    self.pool = pool
end

local writers = {"add_", "mul_", "sub_", "div_", "copy_", "fill_", "zero_", "relu_", "neg_", "clamp_", "masked_fill_", "tanh_", "uniform_", "normal_", "scatter_add_",
    "scatter_", "assign", "assign", "assign", "bernoulli", "index_put_", "index_write_", "scatter_write_"}

-- Writes to a copy, through a view of it as often as not.
function kinds.write(d)
    local source = d:any()
    if not source then return end
    local place = d.place[source]
    local sbp = random_sbp(d.list[place], d.env[source].ndim, d.env[source].dtype, chance(25))
    local results = d:emit(("move(%s:clone(), %d, %s)"):format(source, place, plain(sbp)), place, {op = "clone", fresh = true})
    if not results then return end
    local base = results[1]
    if not d.env[base] then return end
    local target = base
    if chance(40) then
        local op = pick {"narrow", "select", "transpose", "permute", "diagonal", "slice", "view", "unsqueeze"}
        local arguments = views[op](d.env[base])
        results = arguments and d:emit(("%s:%s(%s)"):format(base, op, arguments), place, {op = op})
        target = results and results[1] or base
        if not d.env[target] then target = base end
    end
    local t, op = d.env[target], pick(writers)
    local function other(shape, dtype)
        local name = chance(40) and d:shaped(shape, dtype, place)
        if not name then return d:fresh_input(shape, dtype, place) end
        for _, sharing in ipairs(d:sharing(base)) do
            if sharing == name then return name .. ":clone()" end -- what is written would be read or not, as the parts lie
        end
        return name
    end
    local function partner()
        if chance(30) then return "2" end
        local shape = {}
        for k = random(1, t.ndim + 1), t.ndim do shape[#shape + 1] = t.shape[k] end
        return other(shape, t.dtype)
    end
    local text
    if op == "assign" then
        if t.ndim == 0 then return end
        local key
        if chance(25) then key = d:input {shape = t.shape, dtype = "bool", kind = "grid", place = place}
        else key = d:key(target) end
        local read = d:emit(("%s[%s]"):format(target, key), place, {op = "index"})
        local got = read and d.env[read[1]]
        if not got then return end
        local value = chance(40) and "3" or not key:find "^t" and other(got.shape, t.dtype) or "-1"
        if d.program.duplicates_checked == nil and key:find "t%d" and value ~= "3" and value ~= "-1" then value = "3" end
        text, op = ("%s[%s] = %s"):format(target, key, value), "index_put_"
    elseif op == "scatter_" or op == "scatter_add_" then
        if t.ndim == 0 or t:numel() == 0 then return end
        local axis, shape = random(0, t.ndim - 1), t.shape
        for i in ipairs(shape) do shape[i] = random(0, shape[i]) end
        if op == "scatter_" then shape[axis + 1] = math.min(shape[axis + 1], 1) end
        text = ("%s:%s(%d, %s, %s)"):format(target, op, axis, d:indices(shape, t:size(axis), place), d:fresh_input(shape, t.dtype, place))
    elseif op == "index_write_" then
        if t.ndim == 0 or t:numel() == 0 then return end
        local axis, shape = random(0, t.ndim - 1), t.shape
        shape[axis + 1] = random(0, 4)
        local index = d:indices({shape[axis + 1]}, t:size(axis), place)
        text = ("op.index_write_(%s, %s, %s, %d)"):format(target, index, d.gradients and "2" or other(shape, t.dtype), axis)
    elseif op == "scatter_write_" then
        if t.ndim == 0 or t:numel() == 0 then return end
        local axis, shape = random(0, t.ndim - 1), t.shape
        for i in ipairs(shape) do shape[i] = random(0, shape[i]) end
        text = ("op.scatter_write_(%s, %d, %s, %s)"):format(target, axis, d:indices(shape, t:size(axis), place), d.gradients and "2" or other(shape, t.dtype))
    elseif op == "index_put_" then
        if t.ndim == 0 or t:size(0) == 0 then return end
        text = ("%s:index_put_(%s, 2)"):format(target, d:indices({random(0, 4)}, t:size(0), place))
    elseif op == "fill_" then text = target .. ":fill_(3)"
    elseif op == "clamp_" then text = target .. ":clamp_(-1, 1)"
    elseif op == "uniform_" or op == "normal_" then text = ("%s:%s()"):format(target, op)
    elseif op == "bernoulli" then text = ("%s:copy_(%s)"):format(target, partner())
    elseif op == "masked_fill_" then text = ("%s:masked_fill_(%s, 2)"):format(target, d:input {shape = t.shape, dtype = "bool", kind = "grid", place = place})
    elseif op == "zero_" or op == "relu_" or op == "neg_" or op == "tanh_" then text = ("%s:%s()"):format(target, op)
    else text = ("%s:%s(%s)"):format(target, op, partner()) end
    local writes = target ~= base and {base, target} or {base}
    local touched = d:sharing(base)
    if d:emit(text, place, {op = op, statement = true, writes = writes, touched = touched}) then d:forget(touched, base) end
end

local steps = {
    sgd_plain_step = {lists = 2, written = {1}, options = function() return ("%g, %g, %s"):format(pick {0.1, 0.5}, pick {0, 0.01}, chance(30)) end},
    sgd_step = {lists = 3, written = {1, 3}, options = function()
        return ("%g, 0.9, %g, %g, %s, %s, %s"):format(pick {0.1, 0.5}, pick {0, 0.1}, pick {0, 0.01}, chance(50), chance(30), chance(30))
    end},
    adamw_step = {lists = 4, written = {1, 3, 4}, squares = 4, options = function()
        return ("0.1, 0.9, 0.99, 1e-8, %g, %d, %s, %s"):format(pick {0, 0.1}, random(5), chance(50), chance(30))
    end},
    clip_scale_ = {lists = 1, written = {1}, norm = true, options = function() return tostring(pick {0.5, 2, 100}) end},
}
local step_names = {"adamw_step", "clip_scale_", "sgd_plain_step", "sgd_step"}

-- A step of an optimizer over a few parameters, each with what belongs to it in the same SBP.
function kinds.step(d)
    if d.gradients then return end
    local op, place = pick(step_names), random(#d.list)
    local step, members, lists, writes = steps[op], random(3), {}, {}
    for _ = 1, members do
        local shape, dtype = d:random_shape(), pick(float_names)
        local sbp = random_sbp(d.list[place], #shape, dtype, false)
        for k = 1, step.lists do
            local source = d:fresh_input(shape, k > 1 and chance(20) and pick(float_names) or dtype, place)
            local copy = k == step.squares and ":square()" or ":clone()"
            local own = d:emit(("move(%s%s, %d, %s)"):format(source, copy, place, plain(sbp)), place, {op = "clone", fresh = true})
            if not own then return end
            lists[k] = lists[k] or {}
            table.insert(lists[k], own[1])
        end
    end
    for _, k in ipairs(step.written) do table.move(lists[k], 1, members, #writes + 1, writes) end
    local all = {}
    for _, list in ipairs(lists) do table.move(list, 1, #list, #all + 1, all) end
    if step.norm then
        local norm = d:emit(("flow.abs(%s)"):format(d:fresh_input({}, pick {"float32", "float64"}, place)), place, {op = "abs"})
        if not norm then return end
        for _ = 1, members do all[#all + 1] = norm[1] end
    end
    local text = ("op.%s({%s}, %s)"):format(op, table.concat(all, ", "), step.options())
    d:emit(text, place, {op = op, statement = true, writes = writes, touched = writes})
end

-- What an empty tensor holds is undefined until it is written.
function kinds.empty(d)
    if chance(50) then
        local name = d:any()
        return d:emit(("flow.empty_like(%s):fill_(1)"):format(name), d.place[name], {op = "empty_like"})
    end
    local place, shape, dtype = random(#d.list), d:random_shape(), d.gradients and "float64" or pick(all_dtypes)
    local sbp = random_sbp(d.list[place], #shape, dtype, false)
    return d:emit(("flow.empty(%s, here({dtype = %q}, %d, %s)):fill_(1)"):format(plain(shape), dtype, place, plain(sbp)), place, {op = "empty"})
end

function kinds.move(d)
    local name = d:any()
    local t = d.env[name]
    local place = chance(60) and d.place[name] or random(#d.list)
    return d:emit(("move(%s, %d, %s)"):format(name, place, plain(random_sbp(d.list[place], t.ndim, t.dtype, true))), place, {op = "to_global"})
end

function kinds.cast(d)
    local name = d:any()
    return d:emit(("%s:to(%q)"):format(name, d.gradients and "float64" or pick(all_dtypes)), d.place[name], {op = "cast"})
end

function kinds.join(d)
    local first = d:any()
    local t, place = d.env[first], d.place[first]
    if t.ndim == 0 and chance(70) then return end
    local list = {first}
    local stacked = t.ndim == 0 or chance(40)
    local axis = random(0, t.ndim - (stacked and 0 or 1))
    for i = 2, random(3) do
        local shape = t.shape
        if not stacked then shape[axis + 1] = random(0, 4) end
        list[i] = chance(40) and d:shaped(shape, t.dtype, place) or d:fresh_input(shape, chance(80) and t.dtype or nil, place)
    end
    local op = stacked and "stack" or "cat"
    return d:emit(("flow.%s({%s}, %d)"):format(op, table.concat(list, ", "), axis), place, {op = op})
end

function kinds.product(d)
    local name = d:any(function(t) return t.ndim >= 1 and t.dtype ~= "bool" end)
    if not name then return end
    local t, place = d.env[name], d.place[name]
    local shape = {}
    for i = 1, t.ndim - 2 do shape[i] = chance(30) and 1 or t.shape[i] end
    if chance(40) then shape = {} end
    shape[#shape + 1] = t.shape[t.ndim]
    if chance(85) then shape[#shape + 1] = random(0, 5) end
    local other = chance(30) and d:shaped(shape, t.dtype, place) or d:fresh_input(shape, t.dtype, place)
    return d:emit(("%s:matmul(%s)"):format(name, other), place, {op = "matmul"})
end

local weights = {sample = 30, elementwise = 15, view = 16, reduce = 12, index = 12, write = 10, move = 14, cast = 4, join = 5, product = 5, step = 4, empty = 2}
local wheel = {}
for _, name in ipairs {"sample", "elementwise", "view", "reduce", "index", "write", "move", "cast", "join", "product", "step", "empty"} do
    for _ = 1, weights[name] do wheel[#wheel + 1] = kinds[name] end
end

-- Program `number` of a seed.
function M.draw(seed, number)
    local list = places(seed)
    math.randomseed(seed, number)
    local program = {seed = seed, number = number, inputs = {}, lines = {}, list = list}
    local d = setmetatable({program = program, list = list, env = local_environment(), pool = {}, place = {}, roots = {}, names = 0}, Draw)
    d.gradients = chance(35)
    program.gradients = d.gradients
    program.twice = d.gradients and chance(25)
    for _ = 1, random(2) do d:fresh_input() end
    for _ = 1, random(10) do pick(wheel)(d) end
    return program
end

---- text ----

local function line_text(line)
    if #line.results == 0 or line.statement then return line.text end
    return table.concat(line.results, ", ") .. " = " .. line.text
end

function M.text(program)
    local used, lines = {}, {}
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(names_in(line.text)) do used[name] = true end
    end
    for _, input in ipairs(program.inputs) do
        if used[input.name] then used[input.spec.place .. ""] = true end
    end
    for _, line in ipairs(program.lines) do used[line.place .. ""] = true end
    for i, place in ipairs(program.list) do
        if used[i .. ""] then lines[#lines + 1] = ("-- place %d: %s"):format(i, tostring(place.value)) end
    end
    for _, input in ipairs(program.inputs) do
        if used[input.name] then lines[#lines + 1] = spec_text(input.name, input.spec) end
    end
    for _, line in ipairs(program.lines) do lines[#lines + 1] = line_text(line) end
    if program.gradients then lines[#lines + 1] = program.twice and "-- gradients of gradients" or "-- gradients" end
    return table.concat(lines, "\n")
end

---- comparing ----

local function whole(t, list)
    t = t:detach()
    return t:to_global {placement = list[1].value, sbp = "B"}:to_local()
end

-- This rank's part of a whole.
local function window(t, place, sbp)
    for k, kind in ipairs(sbp) do
        local axis = tostring(kind):match "^S%((%d+)%)$"
        if axis then
            axis = tonumber(axis)
            local size, n, c = t:size(axis), place.hierarchy[k], place.coords[k]
            local base, extra = size // n, size % n
            t = t:narrow(axis, base * c + math.min(c, extra), base + (c < extra and 1 or 0))
        end
    end
    return t
end

local function numbers_of(t) return t:reshape(-1):totable() end

-- The same numbers; NaN is equal to NaN.
local function same(a, b)
    a, b = numbers_of(a), numbers_of(b)
    for i = 1, #a do
        if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then return false end
    end
    return #a == #b
end

local function same_sizes(a, b) return table.concat(a.shape, ",") == table.concat(b.shape, ",") end

local function magnitude(t)
    if t:numel() == 0 then return 0 end
    local a = t:detach():to("float64"):abs()
    return flow.where(a:isfinite(), a, 0.0):max():item()
end

-- The largest difference relative to the tolerance; huge where only one is NaN or infinite.
local function distance(want, got, tolerance)
    local a, b = want:detach():to("float64"):reshape(-1):totable(), got:to("float64"):reshape(-1):totable()
    local worst = 0
    for i = 1, #a do
        local x, y = a[i], b[i]
        if x ~= y and (x == x or y == y) then
            local off = math.abs(x - y)
            worst = math.max(worst, off == off and off / tolerance or math.huge)
        end
    end
    return worst
end

-- Whether it is so on any rank, agreed by all.
local function agree(found)
    if world == 1 then return found end
    local mine = flow.full({1}, found and 1 or 0, {dtype = "int8"})
    local all = testing.from_part(mine, {1}, M.everyone, "P(max)")
    return all:to_global {sbp = "B"}:to_local():item() == 1
end

local function show(t)
    local text = tostring(t:detach())
    return #text > 900 and text:sub(1, 900) .. "..." or text
end

local Run = {}
Run.__index = Run

function Run:complain(...)
    if not self.finding then self.finding = ("%s: %s"):format(self.at, string.format(...)) end
end

-- The place of a global tensor among those of the program.
function Run:place_of(t)
    for _, place in ipairs(self.list) do
        if place.value == t.placement then return place end
    end
end

function Run:compare(name, want, got, scale, coarse)
    if not flow.is_tensor(want) or not flow.is_tensor(got) then
        if want ~= got and (want == want or got == got) then self:complain("%s is %s, locally %s", name, tostring(got), tostring(want)) end
        return
    end
    if not got.is_global then return self:complain("%s is not global", name) end
    if want.dtype ~= got.dtype or not same_sizes(want, got) then
        return self:complain("%s is %s%s, locally %s%s", name, got.dtype, plain(got.shape), want.dtype, plain(want.shape))
    end
    local sbp, place = got.sbp, self:place_of(got)
    self.coverage(sbp)
    self.compared = self.compared + 1
    local partial = tostring(sbp):find "P" ~= nil
    if not partial and not self.lenient and (self.program.gradients or not floats[got.dtype]) and hash(self.program.number, self.compared) % 6 > 0 then
        return self:compare_part(name, want, got, place, scale, coarse)
    end
    local gathered = whole(got, self.list)
    if not partial then self:compare_part(name, gathered, got, place, 0) end
    if self:compare_values(name, want, gathered, tostring(sbp), scale, coarse) or self.program.gradients then return end
    local kept = pcall(want.copy_, want, gathered)
    if not kept then self.here[name] = gathered:clone() end
end

-- What this rank holds of a tensor that is not partial.
function Run:compare_part(name, want, got, place, scale, coarse)
    if not place or not place.position then return end
    local part, expected = got:detach():to_local(), window(want:detach(), place, got.sbp)
    local text = "the part of " .. name
    if not same_sizes(part, expected) then return self:complain("%s as %s is %s, not %s", text, tostring(got.sbp), plain(part.shape), plain(expected.shape)) end
    self:compare_values(text, expected, part, tostring(got.sbp), scale, coarse)
end

-- Whether the numbers are the same; a complaint where they differ by more than the tolerance.
function Run:compare_values(name, want, got, sbp, scale, coarse)
    if same(want:detach(), got) then return true end
    local eps = floats[want.dtype]
    local tolerance = eps and scale > 0 and math.max(eps, coarse or 0) * scale or 1e-300
    local off = distance(want, got, tolerance)
    if off > 1 and not (self.lenient and off == math.huge) then
        self:complain("%s as %s is off by %.3g times the tolerance %.3g:\n%s\nexpected\n%s", name, sbp, off, tolerance, show(got), show(want))
    end
end

-- What an error says, without numbers and the words for global tensors.
local function gist(message)
    message = message:gsub("^[^:]+:%d+: ", ""):gsub("\n.*", "")
    return message:match "^([%w_%[%]]+):" or message:match "^(%S+ %S+)" or message
end

local function expected_difference(message)
    for _, known in ipairs(M.differences) do
        if message:find(known[1], 1, true) then return true end
    end
end

-- Magnitude of what a line reads, and the rounding of the coarsest of it: parts of a sum are rounded one by one. Without
-- gradients the operands of a line are the same numbers, so no rounding but their own counts.
function Run:operands(line)
    local largest, eps = 0, 0
    for _, name in ipairs(names_in(line.text)) do
        local t = self.here[name]
        if flow.is_tensor(t) then
            largest = math.max(largest, magnitude(t))
            eps = math.max(eps, floats[t.dtype] or 0, self.program.gradients and self.eps[name] or 0)
        end
    end
    return largest, eps
end

local function is_finite(t) return not flow.is_tensor(t) or not floats[t.dtype] or t:detach():isfinite():all():item() end

-- Whether a line reads a sum of parts, and reads or gives what is not finite: times infinity, or divided by 0, the parts are
-- NaN, or infinite with other signs, and the whole is not.
function Run:splits_infinity(line, results)
    local parts, finite = false, true
    for _, t in ipairs(results) do finite = finite and is_finite(t) end
    for _, name in ipairs(names_in(line.text)) do
        local t = self.there[name]
        if flow.is_tensor(t) then
            for _, sbp in ipairs(t.sbp) do parts = parts or tostring(sbp) == "P" end
            finite = finite and is_finite(self.here[name])
        end
    end
    return parts and not finite
end

-- What a line writes to, all of its names but those, is not looked at any more.
function Run:forget(line, but)
    local kept = {}
    for _, name in ipairs(but) do kept[name] = true end
    for _, name in ipairs(line.touched or {}) do
        if not kept[name] then self.here[name], self.there[name] = nil, nil end
    end
end

-- A line that an element makes fail: an error where that element lies, the same as on local tensors.
function Run:failing(line)
    local ok, want = call_line(line, self.here)
    local global_ok, got = call_line(line, self.there)
    self.calls(line.op)
    if ok then self:complain("no error on local tensors") end
    if not global_ok and gist(want) ~= gist(got) then self:complain("the message is\n%s\nlocally\n%s", got, want) end
    if not agree(not global_ok) then self:complain("no error on any rank; locally\n%s", want) end
end

-- Whether a line reads what is not looked at any more: in a list it would only be missing.
function Run:reads_forgotten(line)
    for _, name in ipairs(names_in(line.text)) do
        if self.here[name] == nil or self.there[name] == nil then return true end
    end
end

-- Whether a float that a line reads differs by a rounding: where both values are kept apart. What is no float, a position or
-- a comparison, may then be another.
function Run:reads_rounded(line)
    for _, name in ipairs(self.program.gradients and names_in(line.text) or {}) do
        local t = self.here[name]
        if flow.is_tensor(t) and floats[t.dtype] and not same(t:detach(), whole(self.there[name], self.list):detach()) then
            return true
        end
    end
    return false
end

-- Results that a rounding may have made others are not looked at.
function Run:forget_rounded(line, results)
    local names = {}
    for i, t in ipairs(results) do
        if flow.is_tensor(t) and not floats[t.dtype] then names[#names + 1] = line.results[i] end
    end
    if #names > 0 and self:reads_rounded(line) then self:forget({touched = names}, {}) end
end

function Run:line(line)
    self.at = line_text(line)
    if self:reads_forgotten(line) then return self:forget({touched = line.results}, {}) end
    if line.of_an_element then return self:failing(line) end
    local largest, eps = self:operands(line)
    local ok, want = call_line(line, self.here)
    local global_ok, got = call_line(line, self.there)
    self.calls(line.op)
    if not ok and not global_ok then
        if gist(want) ~= gist(got) and not got:find "nil value" then self:complain("the message is\n%s\nlocally\n%s", got, want) end
        return
    end
    if ok ~= global_ok then
        if not ok and not expected_difference(want) then self:complain("no error; locally\n%s", want)
        elseif not global_ok and not expected_difference(got) then self:complain("an error:\n%s", got) end
        self:forget(line, {}) -- locally it may have changed
        return
    end
    if line.statement then
        want, got = {}, {}
        for i, name in ipairs(line.writes) do want[i], got[i] = self.here[name], self.there[name] end
        self:forget(line, line.writes) -- views there may be copies here
    elseif #want ~= #got then return self:complain("%d results, locally %d", #got, #want) end
    local names = line.statement and line.writes or line.results
    for i, t in ipairs(want) do
        if not line.statement then self.here[names[i]], self.there[names[i]] = t, got[i] end
        if flow.is_tensor(t) then
            largest = math.max(largest, magnitude(t))
            self.eps[names[i]] = math.max(eps, floats[t.dtype] or 0)
            self.coarsest = math.max(self.coarsest, self.eps[names[i]])
        end
    end
    self.lenient = self:splits_infinity(line, want)
    local scale = 64 * (1 + largest) * (1 + largest)
    if self.program.gradients then scale = scale * 100 end
    if not line.statement then self:forget_rounded(line, want) end
    for i, t in ipairs(want) do
        if self.here[names[i]] ~= nil then self:compare(names[i], t, got[i], scale, self.eps[names[i]]) end
    end
end

-- The loss of all that has a gradient, on one placement.
local function loss_of(program, env, move)
    local loss
    local function add(name)
        local t = env[name]
        if flow.is_tensor(t) and t.requires_grad then
            local term = move((t:to "float64" * 0.3):tanh():sum())
            loss = loss and loss + term or term
        end
    end
    for _, input in ipairs(program.inputs) do add(input.name) end
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(line.results) do add(name) end
    end
    return loss
end

function Run:gradients()
    self.at, self.lenient = "gradients", false
    local leaves = {}
    for _, input in ipairs(self.program.inputs) do
        if input.spec.grad then leaves[#leaves + 1] = input end
    end
    if #leaves == 0 then return end
    local function backward(env, move)
        return pcall(function()
            local loss = loss_of(self.program, env, move)
            if not loss then return end
            if not self.program.twice then return loss:backward() end
            local list = {}
            for i, leaf in ipairs(leaves) do list[i] = env[leaf.name] end
            local grads = flow.grad(loss, list, {create_graph = true, allow_unused = true})
            local sum
            for i = 1, #leaves do
                if flow.is_tensor(grads[i]) then
                    local term = move(grads[i]:to "float64":tanh():square():sum())
                    sum = sum and sum + term or term
                end
            end
            if sum and sum.requires_grad then sum:backward() end
        end)
    end
    local ok, message = backward(self.here, function(t) return t:clone() end)
    local global_ok, global_message = backward(self.there, function(t) return t:to_global {placement = self.list[1].value, sbp = "B"} end)
    if ok ~= global_ok then return self:complain("backward: %s; locally %s", tostring(global_message), tostring(message)) end
    if not ok then return end
    for _, leaf in ipairs(leaves) do
        local want, got = self.here[leaf.name].grad, self.there[leaf.name].grad
        if (want == nil) ~= (got == nil) then self:complain("%s.grad is %s, locally %s", leaf.name, tostring(got), tostring(want))
        elseif want then
            local largest = magnitude(want)
            local loose = self.coarsest < 1e-10 and 1e6 or 2e3
            if largest < 1e4 and want:isfinite():all():item() then self:compare(leaf.name .. ".grad", want, got, loose * (1 + largest), self.coarsest) end
        end
    end
end

---- running ----

M.coverage = {programs = 0, lines = 0, ops = {}, sbps = {}, sbp_count = 0}

local function count_sbp(sbp)
    local text = tostring(sbp)
    if not M.coverage.sbps[text] then
        M.coverage.sbps[text] = true
        M.coverage.sbp_count = M.coverage.sbp_count + 1
    end
end

local function count_call(op)
    M.coverage.lines = M.coverage.lines + 1
    M.coverage.ops[op] = (M.coverage.ops[op] or 0) + 1
end

-- Runs a program; the finding of this rank or nil.
function M.run(program)
    local run = setmetatable({program = program, list = program.list, compared = 0, eps = {}, coarsest = 0, coverage = count_sbp, calls = count_call}, Run)
    run.here, run.there = local_environment(), global_environment(program.list)
    M.everyone = program.list[1].value
    for _, input in ipairs(program.inputs) do
        local spec = input.spec
        run.at = input.name
        local value = whole_value(spec)
        local t = global_value(spec, program.list[spec.place], value)
        if table.concat(spec.sbp):find "P" and floats[spec.dtype] then value = whole(t, program.list):clone() end
        value = layout(value, spec.layout)
        if spec.grad then value, t = value:detach():requires_grad_(), t:detach():requires_grad_() end
        run.here[input.name], run.there[input.name] = value, t
        run:compare(input.name, value, t, 0)
    end
    for _, line in ipairs(program.lines) do run:line(line) end
    if program.gradients then run:gradients() end
    M.coverage.programs = M.coverage.programs + 1
    return run.finding
end

-- The program without lines from..to and without what needs their results.
local function without(program, at)
    local gone, lines = {}, {}
    for i, line in ipairs(program.lines) do
        local dropped = i == at
        for _, name in ipairs(names_in(line.text)) do dropped = dropped or gone[name] end
        if dropped then
            for _, name in ipairs(line.results) do gone[name] = true end
        else lines[#lines + 1] = line end
    end
    local copy = {inputs = program.inputs, lines = lines}
    return setmetatable(copy, {__index = program})
end

local function without_inputs(program)
    local used, inputs = {}, {}
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(names_in(line.text)) do used[name] = true end
    end
    for _, input in ipairs(program.inputs) do if used[input.name] then inputs[#inputs + 1] = input end end
    return setmetatable({inputs = inputs}, {__index = program})
end

-- A shorter program with a finding.
local function shrink(program, finding)
    local at = #program.lines
    while at >= 1 do
        local shorter = without(program, at)
        local found = M.run(shorter)
        if agree(found ~= nil) then program, finding = shorter, found end
        at = math.min(at - 1, #program.lines)
    end
    local shorter = without_inputs(program)
    local found = M.run(shorter)
    if agree(found ~= nil) then return shorter, found end
    return program, finding
end

-- Program `number` of a seed. On all ranks together: nil, or what is wrong (on a rank that saw nothing: true), and its text.
function M.check(seed, number, shrinks)
    local program = M.draw(seed, number)
    local finding = M.run(program)
    if not agree(finding ~= nil) then return end
    if shrinks then program, finding = shrink(program, finding) end
    return finding or true, M.text(program)
end

return M
