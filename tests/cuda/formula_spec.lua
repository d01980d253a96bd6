-- formula_spec.lua -- formulas on the GPU: the values and gradients of the CPU, small and large.
local flow = require "flow"
local cuda = require "tests.cuda.support"

flow.op {name = "cuda_swish", formula = "x * sigmoid(beta * x) + where(x > y, y, 0)", attrs = "beta: float = 1"}

describe("a formula on the GPU", function()
    for _, size in ipairs {{3}, {7, 5}, {300, 200}} do
        cuda.it("gives what the CPU gives: " .. table.concat(size, " x "), function()
            for _, dtype in ipairs {"float32", "float64", "float16"} do
                local x, y = flow.randn(size):to(dtype), flow.randn(size[#size]):to(dtype)
                local results = {}
                for i, device in ipairs {"cpu", "cuda"} do
                    local a, b = x:detach():to(device), y:detach():to(device)
                    a.requires_grad, b.requires_grad = true, true
                    local z = flow.cuda_swish(a, b, 1.5)
                    z:sum():backward()
                    results[i] = {z:detach():to "cpu", a.grad:to "cpu", b.grad:to "cpu"}
                end
                for k = 1, 3 do
                    local eps = dtype == "float16" and 2e-2 or 1e-4
                    flow.testing.assert_close(results[2][k], results[1][k], {rtol = eps, atol = eps})
                end
            end
        end)
    end

    cuda.it("takes strided operands and works in place", function()
        local x = flow.randn(40, 30):to "cuda"
        assert.is_true(flow.allclose(flow.cuda_swish(x:t(), 0):to "cpu", flow.cuda_swish(x:to "cpu":t(), 0), {atol = 1e-6}))
        local y = x:clone()
        y:cuda_swish_(0)
        assert.is_true(flow.allclose(y:to "cpu", flow.cuda_swish(x:to "cpu", 0), {atol = 1e-6}))
    end)
end)
