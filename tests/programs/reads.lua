-- reads.lua -- kinds of lines that make tensors of those there are: samples of any op, elementwise ops of what there is, views,
-- reductions, indexing, boxing, casts, joins and products. Each draws one line and returns the names of its results, or nil.
local flow = require "flow"
local parts = require "tests.programs.parts"
local catalog = require "tests.programs.catalog"
local views = require "tests.programs.views"
local writes = require "tests.programs.writes"

local random = math.random
local pick, chance, text_of, plain, random_sbp, floats = parts.pick, parts.chance, parts.text_of, parts.plain, parts.random_sbp, parts.floats
local float_names, all_dtypes, sample_arguments = parts.float_names, parts.all_dtypes, parts.sample_arguments

local kinds = {}

-- The positions of a value that none of x exceeds.
function kinds.arg_find(d, place, x, args)
    local axis, keepdim, largest = args[3], args[4] or false, args[5] ~= false
    local along = axis and ("%d, %s"):format(axis, keepdim) or ""
    local value = d:emit(("%s:%s(%s)"):format(x, largest and "amax" or "amin", along), place, {op = largest and "amax" or "amin"})
    if not value or not d.env[value[1]] then return end
    return d:emit(("op.arg_find(%s, %s, %s, %s, %s)"):format(x, value[1], axis or "nil", keepdim, largest), place, {op = "arg_find"})
end

-- Ops with slopes that are rounding alone, or not unique, on other numbers than those of their samples: of what is no
-- probability; of a matrix whose rows repeat.
local steep = {}
for name in ("bce_backward svd qr linalg.svd linalg.svdvals linalg.qr linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh linalg.pinv " ..
    "linalg_pseudoinverse linalg.lstsq linalg_least_squares"):gmatch "%S+" do
    steep[name] = true
end

-- A sample of any op, changed.
function kinds.sample(d)
    local op = pick(catalog.usable)
    if op.mutates then return writes.write(d) end
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
        if d.gradients and steep[op.name] then existing = nil end
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
    return d:emit(("%s(%s)"):format(catalog.callee(op), text), place, {op = op.name})
end

function kinds.elementwise(d)
    local op = pick(catalog.elementwise)
    local first = d:any()
    local place, t = d.place[first], d.env[first]
    local list = {first}
    for i = 2, catalog.elementwise_arity[op.name] do
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
    return d:emit(("%s(%s)"):format(catalog.callee(op), table.concat(list, ", ")), place, {op = op.name})
end

function kinds.view(d)
    local name = d:any()
    local op = pick(views.names)
    local arguments = views.views[op](d.env[name])
    if not arguments then return end
    return d:emit(("%s:%s(%s)"):format(name, op, arguments), d.place[name], {op = op})
end

-- True if std has a slope everywhere along an axis, or over all of t: none where elements are equal, and rounding decides.
local function differs(t, axis)
    if not t:is_floating_point() then return true end
    local v = (axis and t:var(axis) or t:var()):detach()
    return v:numel() == 0 or v:gt(1e-6):all():item()
end

local along = {"sum", "mean", "prod", "any", "all", "amax", "amin", "max", "min", "argmax", "argmin", "sort", "argsort", "cumsum", "softmax", "log_softmax",
    "logsumexp", "norm", "var", "std", "topk", "nonzero"}

function kinds.reduce(d)
    local name = d:any()
    local t, op = d.env[name], pick(along)
    local place = d.place[name]
    if op == "nonzero" then return d:emit(name .. ":nonzero()", place, {op = op}) end
    if t.ndim == 0 or (chance(20) and op ~= "softmax" and op ~= "log_softmax" and op ~= "cumsum" and op ~= "topk") then
        if op == "std" and not differs(t) then op = "var" end
        return d:emit(("%s:%s()"):format(name, op), place, {op = op})
    end
    local axis = views.axis_of(t)
    if op == "std" and not differs(t, axis) then op = "var" end
    if op == "topk" then return d:emit(("%s:topk(%d, %d)"):format(name, random(0, t:size(axis)), axis), place, {op = op}) end
    if op == "sort" or op == "argsort" then return d:emit(("%s:%s(%d, %s)"):format(name, op, axis, chance(50)), place, {op = op}) end
    if op == "norm" then return d:emit(("%s:norm(%s, %d)"):format(name, pick {"1", "2", "3", "math.huge"}, axis), place, {op = op}) end
    if (op == "sum" or op == "mean" or op == "amax" or op == "amin") and t.ndim > 1 and chance(30) then
        local axes = views.permutation(t.ndim)
        return d:emit(("%s:%s({%d, %d}, %s)"):format(name, op, axes[1], axes[2], chance(50)), place, {op = op})
    end
    local keep = not op:find "soft" and op ~= "cumsum" and chance(40) and ", true" or ""
    return d:emit(("%s:%s(%d%s)"):format(name, op, axis, keep), place, {op = op})
end

local function has_axis(t) return t.ndim > 0 end

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

return kinds
