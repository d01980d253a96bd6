-- train.lua -- whole training steps. (The GPT's are those of scripts/train.lua itself; see compare.lua.)

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

function M.mlp()
    local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    local optimizer = optim.SGD(net:parameters(), {lr = 0.01})
    local x, y = flow.randn(64, 784), flow.randint(0, 10, {64})
    return function(count)
        for _ = 1, count do
            local loss = flow.cross_entropy(net(x), y)
            optimizer:zero_grad()
            loss:backward()
            optimizer:step()
        end
    end
end

return M
