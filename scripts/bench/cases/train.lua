-- train.lua -- whole training steps. (The GPT's are those of scripts/train.lua itself; see compare.lua.)

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

-- Steps of a classifier of 10 classes on one batch. made: the function that wraps a step (flow.capture), or nil.
local function steps(made, net, x)
    local optimizer = optim.SGD(net:parameters(), {lr = 0.01})
    local y = flow.randint(0, 10, {x:size(0)})
    local function step(input, labels)
        local loss = flow.cross_entropy(net(input), labels)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
    end
    step = made and made(step) or step
    return function(count)
        for _ = 1, count do step(x, y) end
    end
end

function M.tiny(made)
    return steps(made, nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)), flow.randn(8, 16))
end

function M.mlp(made)
    return steps(made, nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), flow.randn(64, 784))
end

function M.cnn(made)
    local net = nn.Sequential(
        nn.Conv2d(1, 16, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    return steps(made, net, flow.randn(64, 1, 28, 28))
end

return M
