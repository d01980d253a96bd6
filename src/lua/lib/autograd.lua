-- autograd.lua -- flow.autograd: the names of torch.autograd, and of torch.autograd.functional, by flow.func.

local flow = require "flow"
local check = require "flow.check"
local func = require "flow.func"

local M = {
    grad = flow.grad, no_grad = flow.no_grad, enable_grad = flow.enable_grad, detect_anomaly = flow.detect_anomaly,
    set_grad_enabled = flow.set_grad_enabled, inference_mode = flow.inference_mode, gradcheck = flow.gradcheck,
    set_detect_anomaly = flow.set_detect_anomaly,
}

---gradcheck, and the gradients of the gradients as well.
---@param f function
---@param inputs any a tensor or a list
---@param opts {eps: number, tolerance: number, most: integer}
---@return boolean
function M.gradgradcheck(f, inputs, opts)
    return flow.gradcheck(f, inputs, {
        eps = opts.eps, tolerance = opts.tolerance, most = opts.most, order = 2, what = "gradgradcheck",
    })
end

---backward of several tensors, with the gradient of each where it has more than one element.
---@param tensors any a tensor or a list
---@param grad_tensors any
---@param opts {retain_graph: boolean, create_graph: boolean}
function M.backward(tensors, grad_tensors, opts)
    local ys = check.is_tensor(tensors) and {tensors} or tensors
    local gs = check.is_tensor(grad_tensors) and {grad_tensors} or grad_tensors or {}
    local sum
    for i, y in ipairs(ys) do
        check.tensor("autograd.backward", "entry " .. i, y)
        local g = gs[i]
        if not g and y:numel() ~= 1 then
            check.fail("autograd.backward: tensor %d is %s; grad_tensors must have its gradient", i, check.shape(y))
        end
        local part = g and (y * g):sum() or y:reshape {}
        sum = sum and sum + part or part
    end
    if not sum then check.fail "autograd.backward: takes at least one tensor" end
    sum:backward(nil, {retain_graph = opts.retain_graph or opts.create_graph, create_graph = opts.create_graph})
end

-- ---- functional ----

local F = {}

-- f as a function whose arguments are the inputs, as a list; and what makes of results for a list of inputs those for
-- `inputs`.
local function arguments(who, inputs, create_graph)
    local single = check.is_tensor(inputs)
    local list = {}
    for i, x in ipairs(single and {inputs} or inputs) do
        check.tensor("autograd.functional." .. who, "input " .. i, x)
        list[i] = create_graph and x or x:detach()
    end
    if #list == 0 then check.fail("autograd.functional.%s: inputs must be a tensor or a list of them", who) end
    return list, single
end

local function positions(list)
    local at = {}
    for i = 1, #list do at[i] = i - 1 end
    return at
end

-- Calls g, whose results are differentiable only if asked for.
local function finish(create_graph, g, ...)
    if create_graph then return g(...) end
    local results = table.pack(g(...))
    local function detached(value)
        if check.is_tensor(value) then return value:detach() end
        local out = {}
        for key, entry in pairs(value) do out[key] = detached(entry) end
        return out
    end
    for i = 1, results.n do results[i] = detached(results[i]) end
    return table.unpack(results, 1, results.n)
end

---The Jacobian of f, whose result is a tensor, by its argument, or a list of those by each of a list of arguments.
---@param f function
---@param inputs any a tensor or a list
---@param opts {create_graph: boolean, strict: boolean, vectorize: boolean}
function F.jacobian(f, inputs, opts)
    local list, single = arguments("jacobian", inputs, opts.create_graph)
    local g = func.jacrev(f, {argnums = single and 0 or positions(list)})
    return finish(opts.create_graph, g, table.unpack(list))
end

-- f, which must return a tensor with one element.
local function of_one_element(who, f)
    return function(...)
        local y = f(...)
        if not check.is_tensor(y) or y:numel() ~= 1 then
            check.fail("autograd.functional.%s: the function must return a tensor with one element, got %s", who,
                check.is_tensor(y) and check.shape(y) or check.got(y))
        end
        return y
    end
end

---The second derivatives of f, whose result has one element: of several arguments a list of lists.
---@param f function
---@param inputs any a tensor or a list
---@param opts {create_graph: boolean, strict: boolean, vectorize: boolean}
function F.hessian(f, inputs, opts)
    local list, single = arguments("hessian", inputs, opts.create_graph)
    f = of_one_element("hessian", f)
    if single then return finish(opts.create_graph, func.hessian(f), list[1]) end
    local rows = {}
    for i = 1, #list do
        local by_one = func.grad(f, {argnums = i - 1})
        rows[i] = finish(opts.create_graph, func.jacrev(by_one, {argnums = positions(list)}), table.unpack(list))
    end
    return rows
end

-- The gradients of several inputs as they were given.
local function as_given(single, first, ...)
    if single then return first end
    return {first, ...}
end

-- v, or 1 for a result or an input (`what`) with one element.
local function vector(who, what, y, v)
    if v ~= nil then return v end
    if not check.is_tensor(y) or y:numel() ~= 1 then
        check.fail("autograd.functional.%s: v may be left out where the %s has one element only", who, what)
    end
    return flow.ones_like(y)
end

---The result of f, and v times its Jacobian.
---@param f function
---@param inputs any
---@param v any in the structure of the result
---@param opts {create_graph: boolean, strict: boolean}
function F.vjp(f, inputs, v, opts)
    local list, single = arguments("vjp", inputs, opts.create_graph)
    return finish(opts.create_graph, function(...)
        local y, pull = func.vjp(f, ...)
        return y, as_given(single, pull(vector("vjp", "result", y, v)))
    end, table.unpack(list))
end

---The result of f, and its Jacobian times v.
---@param f function
---@param inputs any
---@param v any in the structure of the inputs
---@param opts {create_graph: boolean, strict: boolean}
function F.jvp(f, inputs, v, opts)
    local list, single = arguments("jvp", inputs, opts.create_graph)
    v = vector("jvp", "input", single and list[1], v)
    return finish(opts.create_graph, function(...)
        return func.jvp(f, {...}, single and check.is_tensor(v) and {v} or v)
    end, table.unpack(list))
end

local function hessian_product(who, f, inputs, v, opts)
    local list, single = arguments(who, inputs, opts.create_graph)
    f, v = of_one_element(who, f), vector(who, "input", single and list[1], v)
    return finish(opts.create_graph, function(...)
        if single then return func.hvp(f, (...), v) end
        return func.hvp(f, {...}, v)
    end, table.unpack(list))
end

---The result of f, which has one element, and its Hessian times v.
---@param f function
---@param inputs any
---@param v any in the structure of the inputs
---@param opts {create_graph: boolean, strict: boolean}
function F.hvp(f, inputs, v, opts) return hessian_product("hvp", f, inputs, v, opts) end

---hvp by its other name: v times the Hessian, which is symmetric.
---@param f function
---@param inputs any
---@param v any in the structure of the inputs
---@param opts {create_graph: boolean, strict: boolean}
function F.vhp(f, inputs, v, opts) return hessian_product("vhp", f, inputs, v, opts) end

local INPUTS = "(f: function, inputs: tensor or list, "
local V = INPUTS .. "v: tensor or list?, {create_graph: boolean = false, strict: boolean = false})"
check.takes(F, {
    "jacobian" .. INPUTS .. "{create_graph: boolean = false, strict: boolean = false, vectorize: boolean = false})",
    "hessian" .. INPUTS .. "{create_graph: boolean = false, strict: boolean = false, vectorize: boolean = false})",
    "vjp" .. V, "jvp" .. V, "hvp" .. V, "vhp" .. V,
})
check.takes(M, {
    [[autograd.backward(tensors: tensor or list, grad_tensors: tensor or list?,
        {retain_graph: boolean = false, create_graph: boolean = false})]],
    "autograd.gradgradcheck(f: function, inputs: tensor or list, {eps: number >= 1e-12 = 1e-5, "
        .. "tolerance: number >= 0 = 2e-5, most: integer >= 1 = 16})",
})

M.functional = check.strict("autograd.functional", F)

return check.strict("autograd", M)
