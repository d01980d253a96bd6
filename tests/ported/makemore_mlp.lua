-- makemore_mlp.lua -- makemore's MLP: three letters give the next one, by embeddings, batch normalisation and a tanh
-- layer.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local words = {"emma", "olivia", "ava", "isabella", "sophia", "charlotte", "mia", "amelia", "harper", "evelyn"}
local block_size <const> = 3

local function dataset(list)
    local xs, ys = {}, {}
    for _, word in ipairs(list) do
        local context = {0, 0, 0}
        for letter in (word .. "."):gmatch "." do
            local code = letter == "." and 0 or letter:byte() - 96
            xs[#xs + 1], ys[#ys + 1] = context, code
            context = {context[2], context[3], code}
        end
    end
    return flow.tensor(xs), flow.tensor(ys)
end

return function(capture)
    local x, y = dataset(words)
    local model = fill.module(nn.Sequential(
        nn.Embedding(27, 6), nn.Flatten(),
        nn.Linear(block_size * 6, 20, {bias = false}), nn.BatchNorm1d(20), nn.Tanh(),
        nn.Linear(20, 27)))
    local optimizer = optim.SGD(model:parameters(), {lr = 0.5})
    local step = capture(function(input, target)
        local loss = flow.cross_entropy(model(input), target)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 0, 7 do
        local from = i % 2 * 32
        losses[#losses + 1] = step(x[{{from, from + 32}}], y[{{from, from + 32}}]):item()
    end
    model:eval()
    local loss = flow.cross_entropy(model(x), y)
    return {losses = losses, evaluated = loss, mean = model[4].running_mean, var = model[4].running_var}
end
