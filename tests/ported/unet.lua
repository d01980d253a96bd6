-- unet.lua -- U-Net: down, up, and what was seen on the way down; the loss is cross entropy and Dice's coefficient.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local function double_conv(inputs, outputs)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, {padding = 1, bias = false}), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, {padding = 1, bias = false}), nn.BatchNorm2d(outputs), nn.ReLU())
end

local UNet = nn.Module:extend("UNet")

function UNet:init()
    self.first = double_conv(2, 4)
    self.down = double_conv(4, 8)
    self.bottom = double_conv(8, 8)
    self.up1 = nn.ConvTranspose2d(8, 8, 2, {stride = 2})
    self.conv1 = double_conv(16, 4)
    self.up2 = nn.Upsample {scale_factor = 2, mode = "bilinear", align_corners = true}
    self.conv2 = double_conv(8, 4)
    self.out = nn.Conv2d(4, 1, 1)
    self.pool = nn.MaxPool2d(2)
end

function UNet:forward(x)
    local a = self.first(x)
    local b = self.down(self.pool(a))
    local y = self.bottom(self.pool(b))
    y = self.conv1(flow.cat({b, self.up1(y)}, 1))
    y = self.conv2(flow.cat({a, self.up2(y)}, 1))
    return self.out(y)
end

local function dice_loss(scores, mask)
    local p = scores:sigmoid()
    local both = (p * mask):sum({1, 2, 3})
    return 1 - ((2 * both + 1) / (p:sum({1, 2, 3}) + mask:sum({1, 2, 3}) + 1)):mean()
end

return function(capture)
    local model = fill.module(UNet())
    local optimizer = optim.RMSprop(model:parameters(), {lr = 1e-3, weight_decay = 1e-8, momentum = 0.9})
    local criterion = nn.BCEWithLogitsLoss()
    local step = capture(function(x, mask)
        local scores = model(x)
        local loss = criterion(scores, mask) + dice_loss(scores, mask)
        optimizer:zero_grad()
        loss:backward()
        optim.clip_grad_norm(model:parameters(), 1.0)
        optimizer:step()
        return loss
    end)
    local x = fill.values({2, 2, 12, 12}, 1, 2)
    local mask = x:sum(1, {keepdim = true}):gt(0.2):to("float64")
    local losses = {}
    for i = 1, 4 do losses[i] = step(x, mask):item() end
    model:eval()
    return {losses = losses, scores = model(x)[{1, 0, 5}]}
end
