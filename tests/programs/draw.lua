-- draw.lua -- draws a random program by running it on local tensors, so that most of its lines fit the tensors there are.
--
-- Lines come from the registry: the samples of every op, with other sizes, dtypes, layouts and tensors of the program in
-- place of the sample's own, and elementwise ops of what there is; views, indexing, writing and boxing are drawn here.
local flow = require "flow"
local count = require("tests.reference").count
local parts = require "tests.programs.parts"

local random = math.random
local queued = os.getenv "FLOW_ENGINE" == "queued"
local pick, chance, text_of, plain, places, random_sbp = parts.pick, parts.chance, parts.text_of, parts.plain, parts.places, parts.random_sbp
local whole_value, local_environment, names_in, call_line = parts.whole_value, parts.local_environment, parts.names_in, parts.call_line
local floats, float_names, all_dtypes, ops = parts.floats, parts.float_names, parts.all_dtypes, parts.ops
local sample_arguments = parts.sample_arguments

---- the registry ----

-- kinds.empty and kinds.step draw the others.
local function is_usable(op) return not op.name:find "^empty" and not op.name:find "_step$" and #op.samples > 0 end

local usable, elementwise = {}, {}
local elementwise_arity = {}

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
    if op.name:find(".", 1, true) then return "flow." .. op.name end
    if not op.hidden and flow.has(op.name) and type(flow[op.name]) == "function" then return "flow." .. op.name end
    return "op." .. op.name
end

---- drawing ----

-- While a program is drawn: its local tensors by name, and the names that lines may take.
local Draw = {}
Draw.__index = Draw

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
    spec.layout = pick {false, false, "transposed", "strided", "offset"} or nil
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

-- Errors of some elements alone.
local function of_an_element(message)
    for _, text in ipairs {"division by zero", "negative integer powers", " is %-?%d+, but ", "probability %S+ is not between",
        "^[^:]*:%d+: binomial: a count must", "^[^:]*:%d+: poisson: a rate must", "^[^:]*:%d+: standard_gamma: ", "^[^:]*:%d+: multinomial: ",
        "matrix %d+ of the batch ", ": the matrix [dhi]%l+ ",
        "%(element %d+ of the index%) is out of range", ": position %-?%d+ is out of range for axis %d of size "} do
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
        if of_an_element(results) then return self:fail(line) end
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
    local text = table.concat(list, ", ")
    if d.gradients and text:find "use_mm" then return end       -- the slope of a distance of about 0 is any
    return d:emit(("%s(%s)"):format(callee(op), text), place, {op = op.name})
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

local writers = {"add_", "mul_", "sub_", "div_", "copy_", "fill_", "zero_", "relu_", "neg_", "clamp_", "masked_fill_", "tanh_", "scatter_add_",
    "scatter_", "assign", "assign", "assign", "bernoulli", "index_put_", "index_write_", "scatter_write_", "index_add_", "index_copy_", "index_fill_",
    "put_", "masked_scatter_", "scatter_reduce_", "filled"}

-- What fills a tensor with random numbers.
local fills = {"uniform_()", "normal_()", "cauchy_()", "exponential_()", "log_normal_()", "geometric_(0.3)", "bernoulli_()", "random_(-5, 5)", "random_(100)"}

-- The arguments of an op in place that is given positions, after x; nil where there are none.
local function positions(d, op, t, place, other)
    if t.ndim == 0 or t:numel() == 0 then return end
    if op == "put_" then
        local adds = chance(50)
        local n = random(0, adds and 4 or 1) -- without adding each place once
        return ("%s, %s, %s"):format(d:indices({n}, t:numel(), place, true), other({n}, t.dtype), adds)
    end
    local axis, shape = random(0, t.ndim - 1), t.shape
    if op == "scatter_reduce_" then
        for i in ipairs(shape) do shape[i] = random(0, shape[i]) end
        local index = d:indices(shape, t:size(axis), place)
        return ("%d, %s, %s, %q, %s"):format(axis, index, other(shape, t.dtype), pick {"sum", "prod", "mean", "amax", "amin"}, chance(60))
    end
    shape[axis + 1] = random(0, op == "index_copy_" and 1 or 4)
    local index = d:indices({shape[axis + 1]}, t:size(axis), place, op == "index_fill_")
    return ("%d, %s, %s"):format(axis, index, op == "index_fill_" and "2" or other(shape, t.dtype))
end
local by_positions = {put_ = true, scatter_reduce_ = true, index_add_ = true, index_copy_ = true, index_fill_ = true}

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
    elseif by_positions[op] then
        local arguments = positions(d, op, t, place, other)
        if not arguments then return end
        text = ("%s:%s(%s)"):format(target, op, arguments)
    elseif op == "masked_scatter_" then
        local mask = d:input {shape = t.shape, dtype = "bool", kind = "grid", place = place}
        text = ("%s:masked_scatter_(%s, %s)"):format(target, mask, other({t:numel()}, t.dtype))
    elseif op == "filled" then
        local fill = pick(fills)
        op, text = fill:match "^[^(]+", target .. ":" .. fill
    elseif op == "fill_" then text = target .. ":fill_(3)"
    elseif op == "clamp_" then text = target .. ":clamp_(-1, 1)"
    elseif op == "bernoulli" then text = ("%s:copy_(%s)"):format(target, partner())
    elseif op == "masked_fill_" then text = ("%s:masked_fill_(%s, 2)"):format(target, d:input {shape = t.shape, dtype = "bool", kind = "grid", place = place})
    elseif op == "zero_" or op == "relu_" or op == "neg_" or op == "tanh_" then text = ("%s:%s()"):format(target, op)
    else text = ("%s:%s(%s)"):format(target, op, partner()) end
    local writes = target ~= base and {base, target} or {base}
    local touched = d:sharing(base)
    if d:emit(text, place, {op = op, statement = true, writes = writes, touched = touched}) then d:forget(touched, base) end
end

local function moments(most)
    return function()
        return ("0.1, 0.9, 0.99, 1e-8, %g, %d, %s, %s"):format(pick {0, 0.1}, random(most or 5), chance(50), chance(30))
    end
end
local function rmsprop() return ("0.1, 0.9, 1e-4, %g, 0.9, %s"):format(pick {0, 0.1}, chance(30)) end

-- lists: all of them; written: those that a step writes; squares: those that cannot be negative; small: those whose squares
-- are below them; norm: each member's total norm is the last list; sums: its squares, summed twice, are.
local steps = {
    sgd_plain_step = {lists = 2, written = {1}, options = function() return ("%g, %g, %s"):format(pick {0.1, 0.5}, pick {0, 0.01}, chance(30)) end},
    sgd_step = {lists = 3, written = {1, 3}, options = function()
        return ("%g, 0.9, %g, %g, %s, %s, %s"):format(pick {0.1, 0.5}, pick {0, 0.1}, pick {0, 0.01}, chance(50), chance(30), chance(30))
    end},
    adamw_step = {lists = 4, written = {1, 3, 4}, squares = {[4] = true}, options = moments()},
    amsgrad_step = {lists = 5, written = {1, 3, 4, 5}, squares = {[4] = true, [5] = true}, options = moments()},
    adamax_step = {lists = 4, written = {1, 3, 4}, squares = {[4] = true}, options = moments()},
    nadam_step = {lists = 4, written = {1, 3, 4}, squares = {[4] = true}, options = moments()},
    radam_step = {lists = 4, written = {1, 3, 4}, squares = {[4] = true}, options = moments(12)},
    rmsprop_step = {lists = 3, written = {1, 3}, squares = {[3] = true}, options = rmsprop},
    rmsprop_momentum_step = {lists = 4, written = {1, 3, 4}, squares = {[3] = true}, options = rmsprop},
    adagrad_step = {lists = 3, written = {1, 3}, squares = {[3] = true}, options = function()
        return ("0.1, 0.1, %g, 1e-8, %d, %s"):format(pick {0, 0.1}, random(5), chance(30))
    end},
    adadelta_step = {lists = 4, written = {1, 3, 4}, squares = {[3] = true, [4] = true}, options = function()
        return ("0.5, 0.9, 1e-6, %g, %s"):format(pick {0, 0.1}, chance(30))
    end},
    asgd_step = {lists = 3, written = {1, 3}, options = function()
        return ("0.1, 0.01, 0.75, 2, %g, %d, %s"):format(pick {0, 0.1}, random(5), chance(30))
    end},
    rmsprop_centered_step = {lists = 4, written = {1, 3, 4}, squares = {[3] = true}, small = {[4] = true}, options = rmsprop},
    rmsprop_both_step = {lists = 5, written = {1, 3, 4, 5}, squares = {[3] = true}, small = {[5] = true}, options = rmsprop},
    rprop_step = {lists = 4, written = {1, 3, 4}, squares = {[4] = true}, options = function() return ("0.5, 1.2, 1e-6, 50, %s"):format(chance(30)) end},
    lion_step = {lists = 3, written = {1, 3}, options = moments()},
    lamb_moments_step = {lists = 4, written = {3, 4}, squares = {[4] = true}, options = moments()},
    lamb_step = {lists = 4, written = {1}, squares = {[4] = true}, sums = true, options = moments()},
    lars_step = {lists = 3, written = {1, 3}, sums = true, options = function()
        return ("0.1, 0.9, %g, 0.001, 1e-8, %s"):format(pick {0, 0.1}, chance(30))
    end},
    scale_step = {lists = 1, written = {1}, options = function() return tostring(pick {0.5, -2, 0}) end},
    clip_scale_ = {lists = 1, written = {1}, norm = true, options = function() return tostring(pick {0.5, 2, 100}) end},
}
local step_names = {}
for name in pairs(steps) do step_names[#step_names + 1] = name end
table.sort(step_names)

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
            local copy = step.squares and step.squares[k] and ":square()" or step.small and step.small[k] and ":mul(0.015625)" or ":clone()"
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
    for _ = 1, step.sums and members or 0 do
        local sums = d:emit(("flow.abs(%s)"):format(d:fresh_input({2}, "float32", place)), place, {op = "abs"})
        if not sums then return end
        all[#all + 1] = sums[1]
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
local function draw_program(seed, number)
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

return draw_program
