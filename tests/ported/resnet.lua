-- resnet.lua -- a small ResNet: basic blocks, a shortcut of 1 x 1 convolutions where the size changes, momentum and
-- a schedule.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local BasicBlock = nn.Module:extend("BasicBlock")

function BasicBlock:init(inputs, planes, stride)
    self.conv1 = nn.Conv2d(inputs, planes, 3, {stride = stride, padding = 1, bias = false})
    self.bn1 = nn.BatchNorm2d(planes)
    self.conv2 = nn.Conv2d(planes, planes, 3, {padding = 1, bias = false})
    self.bn2 = nn.BatchNorm2d(planes)
    self.shortcut = nn.Sequential()
    if stride ~= 1 or inputs ~= planes then
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, planes, 1, {stride = stride, bias = false}), nn.BatchNorm2d(planes))
    end
end

function BasicBlock:forward(x)
    local y = self.bn1(self.conv1(x)):relu()
    return (self.bn2(self.conv2(y)) + self.shortcut(x)):relu()
end

local ResNet = nn.Module:extend("ResNet")

function ResNet:init(classes)
    self.conv1 = nn.Conv2d(3, 8, 3, {padding = 1, bias = false})
    self.bn1 = nn.BatchNorm2d(8)
    self.layers = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
    self.pool = nn.AdaptiveAvgPool2d(1)
    self.fc = nn.Linear(16, classes)
end

function ResNet:forward(x)
    x = self.layers(self.bn1(self.conv1(x)):relu())
    return self.fc(self.pool(x):flatten(1))
end

return function(capture)
    local model = fill.module(ResNet(5))
    local optimizer = optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9, weight_decay = 5e-4, nesterov = true})
    local scheduler = optim.lr_scheduler.OneCycleLR(optimizer, {max_lr = 0.1, total_steps = 8})
    local criterion = nn.CrossEntropyLoss {label_smoothing = 0.1}
    local step = capture(function(x, y)
        optimizer:zero_grad()
        local loss = criterion(model(x), y)
        loss:backward()
        optimizer:step()
        scheduler:step()
        return loss
    end)
    local x, y = fill.values({12, 3, 8, 8}, 1, 3), fill.integers({12}, 2, 5)
    local losses = {}
    for i = 1, 6 do losses[i] = step(x, y):item() end
    model:eval()
    local scores = model(x)
    return {losses = losses, scores = scores[0], best = scores:argmax(1), mean = model.layers[2].bn2.running_mean}
end
