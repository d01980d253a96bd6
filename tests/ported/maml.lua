-- maml.lua -- MAML: weights from which one step of gradient descent fits any sine wave; the gradient goes through that
-- step.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local function forward(x, w)
    x = flow.linear(x, w[1], w[2]):tanh()
    x = flow.linear(x, w[3], w[4]):tanh()
    return flow.linear(x, w[5], w[6])
end

-- The weights after some steps on the examples of a task.
local function adapt(w, x, y, steps, create_graph)
    for _ = 1, steps do
        local gradients = flow.grad(flow.mse_loss(forward(x, w), y), w, {create_graph = create_graph})
        local after = {}
        for i, p in ipairs(w) do after[i] = p - 0.05 * gradients[i] end
        w = after
    end
    return w
end

return function(capture)
    local net = fill.module(nn.Sequential(
        nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    local parameters = net:parameters()
    local optimizer = optim.Adam(parameters, {lr = 1e-2})
    local function wave(x, task) return (1 + 0.5 * task) * (x + task):sin() end
    local function step(x, at, first, second)
        local loss = 0
        for _, task in ipairs {first, second} do
            local w = adapt(parameters, x, wave(x, task), 1, true)
            loss = loss + flow.mse_loss(forward(at, w), wave(at, task))
        end
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end
    step = capture(step)
    local losses = {}
    for i = 1, 6 do
        losses[i] = step(fill.values({10, 1}, i, 6), fill.values({10, 1}, 20 + i, 6), i % 3, -i % 4):item()
    end
    local x = fill.values({10, 1}, 40, 6)
    local fitted = adapt(parameters, x, wave(x, 2), 3, false)
    return {losses = losses, fitted = forward(x, fitted):squeeze(1)}
end
