-- own_op.lua -- an op of one's own: RMS norm of rows, with its gradient, its signatures and its tests.

local flow = require "flow"

flow.op{
    name = "root_norm",
    sig = "root_norm(x, weight, eps: float = 1e-6)",
    doc = "x / sqrt(mean(x^2) + eps) * weight, along the last axis.",
    infer = function(x, weight)
        if x.ndim == 0 or weight.ndim ~= 1 or weight.shape[1] ~= x.shape[x.ndim] then
            error("weight must have as many elements as the last axis of x", 0)
        end
        return x
    end,
    -- Rows may lie on several ranks; a split of the last axis is gathered first.
    sbp = function(x)
        local rows = {}
        for axis = 0, x.ndim - 2 do rows[#rows + 1] = ("S(%d), B -> S(%d)"):format(axis, axis) end
        return rows
    end,
    forward = function(x, weight, eps)
        return x * (x:square():mean(-1, true) + eps):rsqrt() * weight
    end,
    backward = function(ctx, g)
        local x, n = ctx.x, ctx.x:size(-1)
        local r = (x:square():mean(-1, true) + ctx.eps):rsqrt()
        local h = g * ctx.weight
        return r * (h - x * r:square() * (h * x):sum(-1, true) / n), g * x * r
    end,
    saves = {"x", "weight"},
    samples = {"flow.randn(4, 6), flow.randn(6)", "flow.randn(2, 3, 5), flow.randn(5), 0.1"},
}

print(flow.testing.check_op "root_norm")
--> true

local x = flow.tensor({{3.0, 4.0}, {1.0, 7.0}}, {requires_grad = true})
print(x:root_norm(flow.ones(2), {eps = 0}))
--> [[0.8485, 1.1314],
-->  [0.2000, 1.4000]]
--> float32[2, 2] on cpu, gradient through root_norm
print(pcall(function() return x:root_norm(flow.ones(3)) end))
--> false	examples/lua/own_op.lua:42: root_norm: weight must have as many elements as the last axis of x
print(select(2, pcall(function() return x:root_norn() end)))
--> examples/lua/own_op.lua:44: tensor has no method or field 'root_norn'; did you mean 'root_norm'?

-- On several ranks it takes and gives global tensors.
local p = flow.placement.all "cpu"
local rows = flow.randn(4, 2, {placement = p, sbp = "S(0)"})
print(rows:root_norm(flow.ones(2, {placement = p, sbp = "B"})).sbp)
--> S(0)
