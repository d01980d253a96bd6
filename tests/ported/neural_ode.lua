-- neural_ode.lua -- a neural ODE: a net is the velocity, Runge and Kutta's fourth order the solver; a spiral is
-- learned by gradients through all steps, which flow.checkpoint computes again.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local function rk4(f, y, h)
    local k1 = f(y)
    local k2 = f(y + h / 2 * k1)
    local k3 = f(y + h / 2 * k2)
    local k4 = f(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
end

local function solve(f, y, steps, h)
    local path = {y}
    for i = 1, steps do path[i + 1] = rk4(f, path[i], h) end
    return flow.stack(path)
end

return function(capture)
    local y0 = flow.tensor({{2.0, 0.0}}, {dtype = "float64"})
    local A = flow.tensor({{-0.1, 2.0}, {-2.0, -0.1}}, {dtype = "float64"})
    local truth = solve(function(y) return (y ^ 3):matmul(A) end, y0, 20, 0.025)

    local func = fill.module(nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2)))
    local function velocity(y) return func(y ^ 3) end
    local optimizer = optim.RMSprop(func:parameters(), {lr = 5e-3})
    local function train(path_of)
        return function()
            local loss = flow.l1_loss(path_of(), truth)
            optimizer:zero_grad()
            loss:backward()
            optimizer:step()
            return loss
        end
    end
    local losses = {}
    local step = capture(train(function() return solve(velocity, y0, 20, 0.025) end))
    for i = 1, 6 do losses[i] = step():item() end

    -- The memory of one step: each is computed again in backward.
    local lean = train(function()
        local path = {y0}
        for i = 1, 20 do
            path[i + 1] = flow.checkpoint(function(y) return rk4(velocity, y, 0.025) end, path[i])
        end
        return flow.stack(path)
    end)
    for i = 7, 9 do losses[i] = lean():item() end
    return {losses = losses, truth = truth[{-1, 0}], learned = solve(velocity, y0, 20, 0.025)[{-1, 0}]}
end
