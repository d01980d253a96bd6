-- clip.lua -- CLIP: pictures and captions that belong together are near; their similarity has a temperature, which is
-- learned.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local CLIP = nn.Module:extend("CLIP")

function CLIP:init()
    self.picture = nn.Sequential(
        nn.Conv2d(3, 8, 3, {stride = 2, padding = 1, groups = 1}), nn.GELU(),
        nn.Conv2d(8, 8, 3, {padding = 1, groups = 8}), nn.Conv2d(8, 12, 1), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 8))
    self.words = nn.EmbeddingBag(20, 12, {mode = "mean"})
    self.caption = nn.Linear(12, 8)
    self.temperature = nn.Parameter(flow.tensor {2.6})
end

function CLIP:forward(pictures, captions)
    local p = nn.functional.normalize(self.picture(pictures), 2, -1)
    local c = nn.functional.normalize(self.caption(self.words(captions)), 2, -1)
    return self.temperature:exp() * p:matmul(c:t())
end

return function(capture)
    local model = fill.module(CLIP())
    flow.no_grad(function() model.temperature:fill_(2.6) end)
    local optimizer = optim.NAdam(model:parameters(), {lr = 1e-2})
    local step = capture(function(pictures, captions)
        local scores = model(pictures, captions)
        local own = flow.arange(scores:size(0))
        local loss = (flow.cross_entropy(scores, own) + flow.cross_entropy(scores:t(), own)) / 2
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        flow.no_grad(function() model.temperature:clamp_(0, math.log(100)) end)
        return loss
    end)
    local pictures, captions = fill.values({6, 3, 8, 8}, 1, 3), fill.integers({6, 4}, 2, 20)
    local losses = {}
    for i = 1, 8 do losses[i] = step(pictures, captions):item() end
    return {losses = losses, scores = model(pictures, captions)[0], temperature = model.temperature}
end
