-- mnist_cnn.lua -- PyTorch's example for MNIST, smaller and without dropout's noise, in float32.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local Net = nn.Module:extend("Net")

function Net:init()
    self.conv1 = nn.Conv2d(1, 4, 3, {stride = 1})
    self.conv2 = nn.Conv2d(4, 8, 3, {stride = 1})
    self.dropout = nn.Dropout(0.25)
    self.fc1 = nn.Linear(8 * 4 * 4, 16)
    self.fc2 = nn.Linear(16, 10)
end

function Net:forward(x)
    x = self.conv2(self.conv1(x):relu()):relu()
    x = flow.max_pool2d(x, 2)
    x = self.dropout(x):flatten(1)
    x = self.fc2(self.fc1(x):relu())
    return x:log_softmax(1)
end

return function(capture)
    local model = fill.module(Net(), "float32")
    model.dropout:eval()
    local optimizer = optim.Adadelta(model:parameters(), {lr = 1.0})
    local scheduler = optim.lr_scheduler.StepLR(optimizer, {step_size = 2, gamma = 0.7})
    local step = capture(function(x, y)
        optimizer:zero_grad()
        local loss = flow.nll_loss(model(x), y)
        loss:backward()
        optimizer:step()
        return loss
    end)
    local x, y = fill.values({24, 1, 12, 12}, 5, 2):to("float32"), fill.integers({24}, 6, 10)
    local losses = {}
    for _ = 1, 4 do
        for from = 0, 12, 12 do
            losses[#losses + 1] = step(x[{{from, from + 12}}], y[{{from, from + 12}}]):item()
        end
        scheduler:step()
    end
    model:eval()
    return flow.no_grad(function()
        local scores = model(x)
        local test = flow.nll_loss(scores, y, {reduction = "sum"})
        return {losses = losses, test = test, right = scores:argmax(1):eq(y):sum()}
    end)
end
