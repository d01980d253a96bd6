-- gaussian_process.lua -- regression by a Gaussian process: its kernel is fitted by gradients of the marginal
-- likelihood.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local float64 = {dtype = "float64"}

local function kernel(a, b, length, scale)
    return scale:square() * (-0.5 * (flow.cdist(a, b) / length):square()):exp()
end

return function(capture)
    local x = flow.linspace(-3, 3, 15, float64):unsqueeze(1) + fill.values({15, 1}, 1, 0.1)
    local y = x:sin():squeeze(1) + fill.values({15}, 2, 0.2)
    local logs = nn.Parameter(flow.tensor({0.3, 0.0, -1.5}, float64)) -- of length, scale and noise

    local function factor()
        local length, scale, noise = logs[0]:exp(), logs[1]:exp(), logs[2]:exp()
        local K = kernel(x, x, length, scale) + noise:square() * flow.eye(15, float64)
        return flow.linalg.cholesky(K), length, scale
    end

    local optimizer = optim.Adam({logs}, {lr = 0.1})
    local step = capture(function()
        local L = factor()
        local alpha = flow.cholesky_solve(y:unsqueeze(1), L):squeeze(1)
        local loss = 0.5 * y:dot(alpha) + L:diagonal():log():sum() + 0.5 * 15 * math.log(2 * math.pi)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 15 do losses[i] = step():item() end

    local _ <close> = flow.no_grad()
    local at = flow.linspace(-4, 4, 7, float64):unsqueeze(1)
    local L, length, scale = factor()
    local across = kernel(x, at, length, scale)
    local mean = across:t():matmul(flow.cholesky_solve(y:unsqueeze(1), L)):squeeze(1)
    local v = flow.linalg.solve_triangular(L, across, {upper = false})
    local variance = scale:square() - v:square():sum(0)
    return {losses = losses, logs = logs, mean = mean, variance = variance}
end
