-- vit.lua -- a vision transformer: patches by a convolution, a class token, positions, encoder layers that normalise
-- first.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local ViT = nn.Module:extend("ViT")

function ViT:init(size, patch, width, classes)
    self.patches = nn.Conv2d(3, width, patch, {stride = patch})
    self.class_token = nn.Parameter(flow.zeros(1, 1, width))
    self.positions = nn.Parameter(flow.zeros(1, (size // patch) ^ 2 // 1 + 1, width))
    self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, {
        dim_feedforward = 2 * width, dropout = 0, activation = "gelu", batch_first = true, norm_first = true,
    }), 2, nn.LayerNorm(width))
    self.head = nn.Linear(width, classes)
end

function ViT:forward(x)
    x = self.patches(x):flatten(2):transpose(1, 2)
    x = flow.cat({self.class_token:expand(x:size(0), -1, -1), x}, 1) + self.positions
    return self.head(self.encoder(x)[{{}, 0}])
end

return function(capture)
    local model = fill.module(ViT(12, 4, 16, 6))
    local optimizer = optim.AdamW(model:parameters(), {lr = 3e-3, weight_decay = 0.05})
    local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 6})
    local step = capture(function(x, y)
        local loss = flow.cross_entropy(model(x), y, {label_smoothing = 0.1})
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        scheduler:step()
        return loss
    end)
    local x, y = fill.values({6, 3, 12, 12}, 60, 3), fill.integers({6}, 61, 6)
    local losses = {}
    for i = 1, 6 do losses[i] = step(x, y):item() end
    model:eval()
    return {losses = losses, scores = model(x)[0], token = model.class_token[{0, 0}]}
end
