-- train.lua -- whole training steps. (The GPT's are those of scripts/train.lua itself; see compare.lua.)

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

-- Steps of a classifier of 10 classes on one batch.
local function steps(net, x)
    local optimizer = optim.SGD(net:parameters(), {lr = 0.01})
    local y = flow.randint(0, 10, {x:size(0)})
    return function(count)
        for _ = 1, count do
            local loss = flow.cross_entropy(net(x), y)
            optimizer:zero_grad()
            loss:backward()
            optimizer:step()
        end
    end
end

function M.mlp()
    return steps(nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), flow.randn(64, 784))
end

function M.cnn()
    local net = nn.Sequential(
        nn.Conv2d(1, 16, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    return steps(net, flow.randn(64, 1, 28, 28))
end

return M
