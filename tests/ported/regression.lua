-- regression.lua -- linear regression in closed form and by gradients; logistic regression by LBFGS.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

return function(capture)
    local x = fill.values({40, 3}, 1, 2)
    local truth = flow.tensor({{1.5}, {-2.0}, {0.5}}, {dtype = "float64"})
    local y = x:matmul(truth) + 0.3 + fill.values({40, 1}, 2, 0.1)

    local design = flow.cat({x, flow.ones_like(x[{{}, {0, 1}}])}, 1)
    local closed = flow.linalg.lstsq(design, y) -- also residuals, rank, singular values
    local normal = flow.linalg.solve(design:t():matmul(design), design:t():matmul(y))

    local model = fill.module(nn.Linear(3, 1))
    local optimizer = optim.SGD(model:parameters(), {lr = 0.3, momentum = 0.5})
    local step = capture(function(input, target)
        optimizer:zero_grad()
        local loss = flow.mse_loss(model(input), target)
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 20 do losses[i] = step(x, y):item() end

    local labels = y:gt(0.2):to("float64")
    local classifier = fill.module(nn.Linear(3, 1))
    local lbfgs = optim.LBFGS(classifier:parameters(), {lr = 1, max_iter = 6, line_search_fn = "strong_wolfe"})
    local function loss_of()
        local penalty = 0.01 * classifier.weight:square():sum()
        return flow.binary_cross_entropy_with_logits(classifier(x), labels) + penalty
    end
    local logistic = {}
    for i = 1, 3 do
        logistic[i] = lbfgs:step(function()
            lbfgs:zero_grad()
            local loss = loss_of()
            loss:backward()
            return loss
        end):item()
    end
    local right = classifier(x):gt(0):to("float64"):eq(labels):to("float64"):mean()
    return {
        closed = closed:flatten(), normal = normal:flatten(), losses = losses, learned = model.weight,
        logistic = logistic, boundary = classifier.weight, accuracy = right,
    }
end
