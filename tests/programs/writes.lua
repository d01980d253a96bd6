-- writes.lua -- kinds of lines that write: to a copy, in a step of an optimizer, to what was empty.
local parts = require "tests.programs.parts"
local views = require("tests.programs.views").views

local random = math.random
local pick, chance, plain, random_sbp, float_names, all_dtypes = parts.pick, parts.chance, parts.plain, parts.random_sbp, parts.float_names, parts.all_dtypes

local kinds = {}

local writers = {"add_", "mul_", "sub_", "div_", "copy_", "fill_", "zero_", "relu_", "neg_", "clamp_", "masked_fill_", "tanh_", "scatter_add_",
    "scatter_", "assign", "assign", "assign", "bernoulli", "index_put_", "index_write_", "scatter_write_", "index_add_", "index_copy_", "index_fill_",
    "put_", "masked_scatter_", "scatter_reduce_", "filled"}

-- Methods that fill a tensor with random numbers.
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
            if sharing == name then return name .. ":clone()" end -- the parts would decide if it is read first
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

-- The values of an empty tensor are undefined until it is written.
function kinds.empty(d)
    if chance(50) then
        local name = d:any()
        return d:emit(("flow.empty_like(%s):fill_(1)"):format(name), d.place[name], {op = "empty_like"})
    end
    local place, shape, dtype = random(#d.list), d:random_shape(), d.gradients and "float64" or pick(all_dtypes)
    local sbp = random_sbp(d.list[place], #shape, dtype, false)
    return d:emit(("flow.empty(%s, here({dtype = %q}, %d, %s)):fill_(1)"):format(plain(shape), dtype, place, plain(sbp)), place, {op = "empty"})
end

return kinds
