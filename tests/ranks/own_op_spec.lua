-- own_op_spec.lua -- ops and gradients from Lua on several ranks: parts of global tensors, boxing, gradients.
local flow = require "flow"

local ranks = flow.world_size()
local p = flow.placement.all "cpu"

flow.op {
    name = "own_row_sum", sig = "own_row_sum(x, scale: float = 1)", doc = "Sums of rows.",
    infer = function(x) return {shape = {x.shape[1]}, dtype = x.dtype} end,
    sbp = {"S(0) -> S(0)", "S(1) -> P", "P -> P"},
    forward = function(x, scale)
        assert(not x.is_global)
        return x:sum(1) * scale
    end,
    backward = function(ctx, g) return (g * ctx.scale):unsqueeze(1):expand(ctx.x.shape) end,
}
local square = flow.autograd_function {
    forward = function(ctx, x) ctx:save(x); return x * x end,
    backward = function(ctx, g) return g * ctx.saved[1] * 2 end,
}

describe("on several ranks", function()
    local whole = (flow.arange(0, 24):reshape(4, 6) * 0.5):to "float32"

    for _, sbp in ipairs {"S(0)", "S(1)", "B", "P"} do
        it("an own op takes parts in " .. sbp .. " and gives the whole result and gradient", function()
            local x = whole:to_global {placement = p, sbp = "B"}:to_global {sbp = sbp}
            x.requires_grad = true
            local y = x:own_row_sum(2)
            assert.are.same((whole:sum(1) * 2):totable(), y:totable());
            (y * y):sum():backward()
            local plain = whole:clone()
            plain.requires_grad = true
            local z = plain:sum(1) * 2;
            (z * z):sum():backward()
            assert.is_true(flow.allclose(plain.grad, x.grad:to_global {sbp = "B"}:to_local()))
        end)

        it("a backward in Lua computes with global gradients in " .. sbp, function()
            local x = whole:to_global {placement = p, sbp = "B"}:to_global {sbp = sbp}
            x.requires_grad = true
            square(x):sum():backward()
            assert.is_true(flow.allclose(whole * 2, x.grad:to_global {sbp = "B"}:to_local()))
        end)
    end

    it("the first NaN of a backward is found on all of them alike", function()
        local x = flow.tensor({0.0, 1.0, 2.0, 3.0}):to_global {placement = p, sbp = "S(0)"}
        x.requires_grad = true
        local ok, message = pcall(flow.detect_anomaly, function() (x:sqrt() * 0):sum():backward() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("the gradient of sqrt", 1, true), message)
        assert.is_true(ranks >= 1)
    end)

    it("flow.gradcheck takes global tensors", function()
        local x = flow.tensor({1, 2, 3, 4}, {dtype = "float64"}):to_global {placement = p, sbp = "S(0)"}
        assert.is_true(flow.gradcheck(function(t) return t:sin() * t end, x))
    end)

    it("keep values for their gradients", function()
        local f = flow.op {name = "kept_swish", formula = "x * sigmoid(beta * x)", attrs = "beta: float = 1"}
        for _, sbp in ipairs {"B", "S(0)", "S(1)"} do
            flow.manual_seed(3)
            local x = flow.randn({6, 8}, {placement = flow.placement.all "cpu", sbp = sbp}):requires_grad_()
            local z = x:detach():clone():requires_grad_()
            f(x, 1.5):square():sum():backward()
            flow.mul(z, flow.sigmoid(z * 1.5)):square():sum():backward()
            assert.is_true(flow.allclose(x.grad, z.grad, {atol = 1e-5}), sbp)
        end
    end)
end)
