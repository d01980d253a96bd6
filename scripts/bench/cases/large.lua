-- large.lua -- ops whose elements are what costs: memory bandwidth and vector code.

local flow = require "flow"

local M = {}

local MI = 1024 * 1024

-- A case that calls f, with tensors of `size` floats as its arguments.
local function over(size, inputs, f)
    return function()
        local x = {}
        for i = 1, inputs do x[i] = flow.randn(size) end
        local a, b, c = x[1], x[2], x[3]
        return function(count)
            for _ = 1, count do
                local y = f(a, b, c)
                if y.ndim == 1 then y[0]:item() end -- a result that is never read is not computed
            end
        end
    end
end

M.copy = over(16 * MI, 2, function(a, b) return a:copy_(b) end)
M.add = over(16 * MI, 2, function(a, b) return a + b end)
M.tanh = over(MI, 1, function(a) return a:tanh() end)
M.gelu = over(MI, 1, function(a) return flow.gelu(a, "tanh") end)
M.exp = over(MI, 1, function(a) return a:exp() end)
M.muladd_1m = over(MI, 3, function(a, b, c) return a * b + c end)
M.muladd_16m = over(16 * MI, 3, function(a, b, c) return a * b + c end)
M.sum = over(16 * MI, 1, function(a) return a:sum() end)
M.sort = over(MI, 1, function(a) return a:sort() end)
M.topk = over(MI, 1, function(a) return a:topk(10) end)
M.sort_rows = function()
    local x = flow.randn(4096, 1024)
    return function(count)
        for _ = 1, count do x:sort() end
    end
end
M.cumsum = over(16 * MI, 1, function(a) return a:cumsum(0) end)
M.flip = over(16 * MI, 1, function(a) return a:flip(0) end)
M.roll = over(16 * MI, 1, function(a) return a:roll(1, 0) end)
M.scatter = function()
    local x, index, src = flow.randn(1024, 1024), flow.randint(0, 1024, {1024, 1024}), flow.randn(1024, 1024)
    return function(count)
        for _ = 1, count do x:scatter_(1, index, src) end
    end
end
M.scatter_add = function()
    local x, index, src = flow.randn(1024, 1024), flow.randint(0, 1024, {1024, 1024}), flow.randn(1024, 1024)
    return function(count)
        for _ = 1, count do x:scatter_add_(1, index, src) end
    end
end
M.randn = over(16 * MI, 0, function() return flow.randn(16 * MI) end)
M.uniform = over(16 * MI, 0, function() return flow.rand(16 * MI) end)

return M
