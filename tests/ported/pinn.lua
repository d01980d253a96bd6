-- pinn.lua -- a net that solves a differential equation: u'' = -u + sin(3t) with u(0) = 1, u'(0) = 0; Adam, then LBFGS.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

return function(capture)
    local net = fill.module(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    local t = flow.linspace(0, 2, 21, {dtype = "float64"}):unsqueeze(1):requires_grad_()

    local function derivative(y, x)
        return flow.grad(y, x, {grad_outputs = flow.ones_like(y), create_graph = true})
    end

    local function loss_of()
        local u = net(t)
        local velocity = derivative(u, t)
        local residual = derivative(velocity, t) + u - (3 * t):sin()
        return residual:square():mean() + (u[{0, 0}] - 1):square() + velocity[{0, 0}]:square()
    end

    local adam = optim.Adam(net:parameters(), {lr = 1e-2})
    local step = capture(function()
        adam:zero_grad()
        local loss = loss_of()
        loss:backward()
        adam:step()
        return loss
    end)
    local losses = {}
    for i = 1, 8 do losses[i] = step():item() end

    local lbfgs = optim.LBFGS(net:parameters(), {lr = 0.5, max_iter = 5})
    local refined = {}
    for i = 1, 2 do
        refined[i] = lbfgs:step(function()
            lbfgs:zero_grad()
            local loss = loss_of()
            loss:backward()
            return loss
        end):item()
    end
    return {losses = losses, refined = refined, u = net(t):squeeze(1)}
end
