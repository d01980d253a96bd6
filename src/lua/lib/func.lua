-- func.lua -- flow.func: functions of functions. Gradients, products with Jacobians from both sides, Jacobians and
-- Hessians of functions of tensors, by backward; names and results are those of torch.func.
--
-- A function's arguments are copies without history, or, where they have one (a gradient inside a function that is
-- differentiated, parameters), views of what was given, so that transforms nest. Results keep their history where the
-- function has used something else that requires grad. Jacobians are found row by row; vmap is in func_map.lua.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"
local nested = require "flow.nested"

local tape = flow._function
local leaves, replaced = nested.leaves, nested.replaced

local M = {}

local depth = 0         -- of transforms whose function runs now
local Level = {__close = function() depth = depth - 1 end}

-- One level more, until what this returns is closed.
local function deeper()
    depth = depth + 1
    return setmetatable({}, Level)
end

local function same_structure(value, list)
    local i = 0
    return replaced(value, function()
        i = i + 1
        return list[i]
    end)
end

-- A tensor to differentiate by in place of x; nothing that f does with it reaches x.grad.
local function variable(x)
    if x.requires_grad then return x:view(x.shape) end
    return x:detach():requires_grad_()
end

-- Positions of arguments, from 0, as a list.
local function positions_of(who, argnums, count)
    local list = type(argnums) == "table" and argnums or {argnums}
    for _, at in ipairs(list) do
        if math.type(at) ~= "integer" or at < 0 or at >= count then
            check.fail("%s: argnums must be positions of arguments from 0 to %d, got %s", who, count - 1, tostring(at))
        end
    end
    return list
end

-- Calls f with variables in place of the tensors in some arguments. Returns a table of them, and the results of f.
local function call(who, f, args, argnums)
    local chosen, outer = {}, false
    args = table.move(args, 1, args.n, 1, {n = args.n})
    for i, at in ipairs(argnums) do
        chosen[i] = replaced(args[at + 1], variable)
        for _, x in ipairs(leaves(args[at + 1])) do outer = outer or x.requires_grad end
        if #leaves(chosen[i]) == 0 then check.fail("%s: argument %d has no tensor", who, at) end
        args[at + 1] = chosen[i]
    end
    local results
    do
        local _ <close> = deeper()
        results = table.pack(flow.enable_grad(f, table.unpack(args, 1, args.n)))
    end
    local xs = leaves(chosen)
    local keeps = flow.is_grad_enabled() and (outer or depth > 0 or tape.reaches_others(leaves(results), xs))
    return {values = chosen, leaves = xs, keeps = keeps}, table.unpack(results, 1, results.n)
end

-- The gradients of y by a list of tensors, zeros where there is none; they have a history if `keeps` says so.
local function gradients(y, xs, seed, keeps, again)
    if not y.requires_grad then
        local zeros = {}
        for i, x in ipairs(xs) do zeros[i] = flow.zeros_like(x) end
        return zeros
    end
    local found = flow.grad(y, xs, {grad_outputs = seed, create_graph = keeps, retain_graph = keeps or again,
        allow_unused = true})
    for i, x in ipairs(xs) do found[i] = found[i] or flow.zeros_like(x) end
    return found
end

local function settled(y, keeps) return keeps and y or replaced(y, function(x) return x:detach() end) end

-- The gradients in the structure of the arguments: one, or a list for a list of positions.
local function as_arguments(vars, list, argnums)
    local all = same_structure(vars.values, list)
    if type(argnums) == "table" then return all end
    return all[1]
end

local function grad_and_value(who, f, opts)
    return function(...)
        local args = table.pack(...)
        local vars, y, aux = call(who, f, args, positions_of(who, opts.argnums, args.n))
        if not check.is_tensor(y) or y:numel() ~= 1 then
            check.fail("%s: the function must return a tensor with one element, got %s", who,
                check.is_tensor(y) and check.shape(y) or check.got(y))
        end
        local found = gradients(y:reshape({}), vars.leaves, nil, vars.keeps)
        return as_arguments(vars, found, opts.argnums), settled(y, vars.keeps), settled(aux, vars.keeps)
    end
end

---A function that returns the gradient of f, whose result has one element, by an argument or several.
---@param f function
---@param opts {argnums: any, has_aux: boolean} argnums: positions from 0, a list for a list of gradients; has_aux: the
---second result of f comes after the gradient
---@return function
function M.grad(f, opts)
    local both = grad_and_value("grad", f, opts)
    return function(...)
        local g, _, aux = both(...)
        if opts.has_aux then return g, aux end
        return g
    end
end

---A function that returns the gradient of f and its result (with has_aux: {result, second result}).
---@param f function
---@param opts {argnums: any, has_aux: boolean} see grad
---@return function
function M.grad_and_value(f, opts)
    local both = grad_and_value("grad_and_value", f, opts)
    return function(...)
        local g, y, aux = both(...)
        if opts.has_aux then return g, {y, aux} end
        return g, y
    end
end

---grad_and_value with the result first.
---@param f function
---@param opts {argnums: any, has_aux: boolean} see grad
---@return function
function M.value_and_grad(f, opts)
    local both = M.grad_and_value(f, opts)
    return function(...)
        local g, y = both(...)
        return y, g
    end
end

-- All positions.
local function every(count)
    local list = {}
    for i = 1, count do list[i] = i - 1 end
    return list
end

-- One tensor of the sums of products of tensors with their cotangents, to differentiate in place of them.
local function weighted(who, ys, vs)
    local sum
    if #ys ~= #vs then check.fail("%s: there are %d results and %d cotangents", who, #ys, #vs) end
    for i, y in ipairs(ys) do
        if check.shape(y) ~= check.shape(vs[i]) then
            check.fail("%s: result %d is %s, its cotangent %s", who, i, check.shape(y), check.shape(vs[i]))
        end
        local part = (y * vs[i]):sum()
        sum = sum and sum + part or part
    end
    return sum
end

---The result of f, and a function that multiplies a cotangent of it (of the structure of the result) by the Jacobians
---from the left: a gradient for each argument.
---@param f function
---@param ... any
---@return any, function
function M.vjp(f, ...)
    local args = table.pack(...)
    local vars, y = call("vjp", f, args, every(args.n))
    local ys = leaves(y)
    return settled(y, vars.keeps), function(cotangent)
        local sum = flow.enable_grad(weighted, "vjp", ys, leaves(cotangent))
        local found = gradients(sum, vars.leaves, nil, vars.keeps, true)
        return table.unpack(same_structure(vars.values, found))
    end
end

-- The product of the Jacobian of ys with tangents: the gradient of a vjp, which is linear in its cotangents.
local function pushed(ys, xs, vs, keeps)
    local cotangents, found = {}, {}
    for i, y in ipairs(ys) do cotangents[i] = flow.zeros_like(y):detach():requires_grad_() end
    local linear = flow.enable_grad(weighted, "jvp", ys, cotangents)
    local pulled = gradients(linear, xs, nil, true)
    local sum = flow.enable_grad(weighted, "jvp", pulled, vs)
    for i, g in ipairs(gradients(sum, cotangents, nil, keeps, true)) do found[i] = g end
    return found
end

---The result of f, and the product of its Jacobian with tangents, one for each argument: by backward twice.
---@param f function
---@param primals table the arguments of f
---@param tangents table in the shapes of the arguments
---@return any, any
function M.jvp(f, primals, tangents)
    local args = table.move(primals, 1, #primals, 1, {n = #primals})
    local vars, y = call("jvp", f, args, every(args.n))
    local vs, ys = leaves(tangents), leaves(y)
    if #vs ~= #vars.leaves then
        check.fail("jvp: there are %d tensors in primals and %d in tangents", #vars.leaves, #vs)
    end
    local found = same_structure(y, pushed(ys, vars.leaves, vs, vars.keeps))
    return settled(y, vars.keeps), settled(found, vars.keeps)
end

-- d y / d x for each x: [shape of y, shape of x].
local function jacobians(y, vars)
    local rows, flat = {}, flow.enable_grad(function() return y:reshape(-1) end)
    for i = 1, #vars.leaves do rows[i] = {} end
    for k = 0, flat:numel() - 1 do
        local one = flow.enable_grad(function() return flat:select(0, k) end)
        for i, g in ipairs(gradients(one, vars.leaves, nil, vars.keeps, true)) do rows[i][k + 1] = g end
    end
    local out = {}
    for i, x in ipairs(vars.leaves) do
        local shape = table.move(x.shape, 1, x.ndim, y.ndim + 1, table.move(y.shape, 1, y.ndim, 1, {}))
        out[i] = #rows[i] == 0 and flow.zeros(shape, flow.nn.like(x, {dtype = x.dtype}))
            or flow.stack(rows[i], 0):reshape(shape)
    end
    return out
end

local function jacobian_function(who, f, opts)
    return function(...)
        local args = table.pack(...)
        local vars, y = call(who, f, args, positions_of(who, opts.argnums, args.n))
        if not check.is_tensor(y) then
            check.fail("%s: the function must return a tensor, got %s", who, check.got(y))
        end
        return as_arguments(vars, jacobians(y, vars), opts.argnums)
    end
end

---A function that returns the Jacobian of f, whose result is a tensor: [shape of the result, shape of the argument]. A
---backward for each element of the result.
---@param f function
---@param opts {argnums: any} see grad
---@return function
function M.jacrev(f, opts) return jacobian_function("jacrev", f, opts) end

---jacrev by products with unit vectors from the right: one for each element of the argument, which is one tensor.
---@param f function
---@param opts {argnums: integer} see grad
---@return function
function M.jacfwd(f, opts)
    return function(...)
        local args = table.pack(...)
        local vars, y = call("jacfwd", f, args, positions_of("jacfwd", opts.argnums, args.n))
        local x, columns = vars.leaves[1], {}
        if #vars.leaves ~= 1 or not check.is_tensor(y) then check.fail("jacfwd: takes one tensor, gives one") end
        for k = 0, x:numel() - 1 do
            local unit = flow.zeros_like(x):reshape(-1)
            unit[k] = 1
            columns[k + 1] = pushed({y}, {x}, {unit:reshape(x.shape)}, vars.keeps)[1]
        end
        local shape = table.move(x.shape, 1, x.ndim, y.ndim + 1, table.move(y.shape, 1, y.ndim, 1, {}))
        if #columns == 0 then return flow.zeros(shape, flow.nn.like(x, {dtype = x.dtype})) end
        return settled(flow.stack(columns, -1):reshape(shape), vars.keeps)
    end
end

---The result of f, and a function that multiplies its Jacobian by tangents, one for each argument: jvp at these
---arguments as often as wanted.
---@param f function
---@param ... any
---@return any, function
function M.linearize(f, ...)
    local args = table.pack(...)
    local vars, y = call("linearize", f, args, every(args.n))
    local ys = leaves(y)
    return settled(y, vars.keeps), function(...)
        local vs = leaves({...})
        if #vs ~= #vars.leaves then
            check.fail("linearize: there are %d tensors in the arguments and %d tangents", #vars.leaves, #vs)
        end
        return settled(same_structure(y, pushed(ys, vars.leaves, vs, vars.keeps)), vars.keeps)
    end
end

---A function that returns the second derivatives of f: the Jacobian of its Jacobian.
---@param f function
---@param opts {argnums: integer} see grad
---@return function
function M.hessian(f, opts) return M.jacrev(M.jacrev(f, opts), opts) end

---The result of f, which has one element, and the product of its Hessian with v: of one argument, or of a list of them.
---@param f function
---@param inputs any
---@param v any in the structure of inputs
---@return any, any
function M.hvp(f, inputs, v)
    local is_list = not check.is_tensor(inputs)
    local args = is_list and table.move(inputs, 1, #inputs, 1, {n = #inputs}) or {inputs, n = 1}
    local vars, y = call("hvp", f, args, every(args.n))
    if not check.is_tensor(y) or y:numel() ~= 1 then check.fail("hvp: the function must return one number") end
    local first = gradients(y:reshape({}), vars.leaves, nil, true)
    local sum = flow.enable_grad(weighted, "hvp", first, leaves(v))
    local found = same_structure(vars.values, gradients(sum, vars.leaves, nil, vars.keeps))
    if is_list then return settled(y, vars.keeps), found end
    return settled(y, vars.keeps), found[1]
end

-- The own tensors of fields of modules that hold other tensors while a call runs; closing puts them back.
local Kept = {__close = function(kept)
    for _, entry in ipairs(kept) do entry.fields[entry.key] = entry.value end
    flow._program.changed()
end}

---Calls a module with tensors in the place of its parameters and buffers, by dotted name; the others are its own.
---@param net flow.nn.Module
---@param tensors table<string, any>
---@param ... any the arguments of the call
---@return any
function M.functional_call(net, tensors, ...)
    local places, names, kept = {}, {}, setmetatable({}, Kept)
    for path, part in net:named_modules() do places[path] = module.fields(part) end
    for name in net:named_parameters() do names[#names + 1] = name end
    for name in net:named_buffers() do names[#names + 1] = name end
    local known = {}
    for _, name in ipairs(names) do known[name] = true end
    local _ <close> = kept
    for name, t in pairs(tensors) do
        if not known[name] then
            local text = tostring(name)
            check.fail("functional_call: the module has no %s%s", check.quote(text), check.suggest(text, names))
        end
        local path, key = name:match "^(.-)%.?([^.]+)$"
        local fields = places[path]
        kept[#kept + 1] = {fields = fields, key = key, value = fields[key]}
        fields[key] = check.tensor("functional_call", name, t)
    end
    flow._program.changed()
    return net(...)
end

local GRAD = "(f: function, {argnums: integer or list = 0, has_aux: boolean = false})"
check.takes(M, {
    "func.grad" .. GRAD, "func.grad_and_value" .. GRAD, "func.value_and_grad" .. GRAD,
    "func.vjp(f: function, ...: any)", "func.jvp(f: function, primals: list, tangents: list)",
    "func.linearize(f: function, ...: any)",
    "func.jacrev(f: function, {argnums: integer or list = 0})", "func.jacfwd(f: function, {argnums: integer = 0})",
    "func.hessian(f: function, {argnums: integer = 0})",
    "func.hvp(f: function, inputs: tensor or list, v: tensor or list)",
    "func.functional_call(net: module, tensors: table, ...: any)",
})

for name, f in pairs(require "flow.func_map") do M[name] = f end

return check.strict("func", M)
