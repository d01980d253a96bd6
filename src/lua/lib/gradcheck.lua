-- gradcheck.lua -- gradients of a function against central differences in float64.

local flow = require "flow"
local check = require "flow.check"

local is_tensor = flow.is_tensor

local M = {}

local function near(a, b, tolerance)
    if a ~= a or b ~= b then return a ~= a and b ~= b end
    return a == b or math.abs(a - b) <= tolerance * math.max(1, math.abs(a), math.abs(b))
end

-- Sum over the float64 results, each element weighted by a fixed number, so that all count differently.
local function scalar_of(results)
    local total
    for j = 1, results.n do
        local y = results[j]
        if is_tensor(y) and y.dtype == "float64" then
            local weight = (flow.arange(y:numel(), {dtype = "float64"}) * 0.37 + 0.5 + j):cos():reshape(y.shape)
            if y.is_global then weight = weight:to_global{placement = y.placement, sbp = "B"} end
            local s = (y * weight):sum()
            total = total and total + s or s
        end
    end
    return total
end

-- ---- inputs that can be moved ----

-- Sets one element of a leaf: place(at, value); value_at(at) reads it.
local function handle(leaf)
    if not leaf.is_global then
        local flat = leaf:detach():view(-1)
        return {
            get = function(at) return flat[at]:item() end,
            set = function(at, value) flow.no_grad(function() flat[at] = value end) end,
        }
    end
    local whole = leaf:detach():to_global{sbp = "B"}:to_local():clone()
    local flat = whole:view(-1)
    return {
        get = function(at) return flat[at]:item() end,
        set = function(at, value)
            flow.no_grad(function()
                flat[at] = value
                local moved = whole:to_global{placement = leaf.placement, sbp = "B", check = false}
                leaf:copy_(moved:to_global{sbp = leaf.sbp})
            end)
        end,
    }
end

local function leaves_of(inputs, count)
    local leaves, arguments, positions = {}, {n = count}, {}
    for i = 1, count do
        local x = inputs[i]
        arguments[i] = x
        if is_tensor(x) and x.dtype == "float64" then
            local leaf = x:detach():clone()
            leaf.requires_grad = true
            arguments[i], leaves[#leaves + 1], positions[#positions + 1] = leaf, leaf, i
        elseif is_tensor(x) and x.dtype:find "float" then
            check.fail("gradcheck: input %d is %s, too coarse for differences; write x:to \"float64\"", i, x.dtype)
        end
    end
    if #leaves == 0 then check.fail("gradcheck: no input is a float64 tensor") end
    return leaves, arguments, positions
end

-- Positions of a leaf that are probed: all of a small one.
local function each_position(n, most)
    local step = -1
    return function()
        step = step + 1
        if step >= math.min(n, most) then return nil end
        return n <= most and step or (step * 7919 + 3) % n
    end
end

-- Compares analytic derivatives of scalar() with differences.
local function probe(scalar, leaves, positions, analytic, order, o)
    local tolerance = order == 1 and o.tolerance or 10 * o.tolerance
    for i, leaf in ipairs(leaves) do
        local element = handle(leaf)
        local gradient = analytic[i] and analytic[i]:detach():reshape(-1)
        for at in each_position(leaf:numel(), o.most) do
            local old = element.get(at)
            local function shifted(d)
                element.set(at, old + d)
                return scalar():item()
            end
            local numeric = (shifted(o.eps) - shifted(-o.eps)) / (2 * o.eps)
            element.set(at, old)
            local g = gradient and gradient[at]:item() or 0
            if not near(numeric, g, tolerance) then
                check.fail("%s: derivative %d of input %d at %d is %.9g, differences give %.9g", o.what, order,
                    positions[i], at, g, numeric)
            end
        end
    end
end

---An error unless the gradients of f(inputs...) are what central differences give; true. Inputs are float64; integers
---and numbers among them are handed over as they are. order 2: gradients of the gradients as well. most: so many
---elements of an input are moved. what: the name of f in messages.
---@param f function
---@param inputs any a tensor or a list
---@param opts {eps: number, tolerance: number, order: integer, most: integer, what: string}?
---@return boolean
function M.gradcheck(f, inputs, opts)
    if is_tensor(inputs) then inputs = {inputs} end
    local leaves, arguments, positions = leaves_of(inputs, inputs.n or #inputs)
    local function value() return scalar_of(table.pack(f(table.unpack(arguments, 1, arguments.n)))) end
    local y = value()
    if not y then check.fail("%s: f must return a float64 tensor", opts.what) end
    if not y.requires_grad then
        check.fail("%s: no result of f requires grad: it is cut off from the inputs", opts.what)
    end
    local grad_options = {create_graph = opts.order > 1, allow_unused = true}
    probe(value, leaves, positions, flow.grad(y, leaves, grad_options), 1, opts)
    if opts.order == 1 then return true end
    local function slope()
        local list = {n = 0}
        for _, g in ipairs(flow.grad(value(), leaves, grad_options)) do
            if g then
                list.n = list.n + 1
                list[list.n] = g
            end
        end
        return scalar_of(list)
    end
    local s = slope()
    if not s then return true end
    local second = s.requires_grad and flow.grad(s, leaves, {allow_unused = true}) or {}     -- none: they are zero
    probe(slope, leaves, positions, second, 2, opts)
    return true
end

check.takes(M, {
    "gradcheck(f: function, inputs: tensor or list, {eps: number >= 1e-12 = 1e-5, tolerance: number >= 0 = 2e-5, " ..
        "order: integer 1..2 = 1, most: integer >= 1 = 16, what: string = gradcheck})",
})

return M
