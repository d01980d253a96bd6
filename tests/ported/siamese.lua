-- siamese.lua -- two views of pictures in one net: a contrastive loss, triplets and SimCLR's NT-Xent; a target net that
-- follows slowly; nearest neighbours.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim, F = flow.nn, flow.optim, flow.nn.functional

local Encoder = nn.Module:extend("Encoder")

function Encoder:init()
    self.features = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU {inplace = true}, nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d {1, 1})
    self.fc = nn.Linear(8, 4)
end

function Encoder:forward(x)
    return F.normalize(self.fc(flow.flatten(self.features(x), 1)), {p = 2, axis = 1})
end

local ContrastiveLoss = nn.Module:extend("ContrastiveLoss")

function ContrastiveLoss:init(margin) self.margin = margin end

function ContrastiveLoss:forward(a, b, same)
    local distance = F.pairwise_distance(a, b)
    return (same * distance:pow(2) + (1 - same) * flow.clamp(self.margin - distance, {min = 0}):pow(2)):mean()
end

-- SimCLR's loss of two views.
local function nt_xent(a, b, temperature)
    local n = a:size(0)
    local z = flow.cat {a, b}
    local similarity = z:matmul(z.T) / temperature
    similarity:fill_diagonal_(-math.huge)
    local partner = flow.cat {flow.arange(n) + n, flow.arange(n)}
    return F.cross_entropy(similarity, partner)
end

return function(capture)
    local net, target = fill.module(Encoder()), fill.module(Encoder())
    target:load_state_dict(net:state_dict())
    for _, p in ipairs(target:parameters()) do p:requires_grad_(false) end
    local optimizer = optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9, nesterov = true})
    local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 6})
    local a, b = fill.values({6, 1, 10, 10}, 1, 3), fill.values({6, 1, 10, 10}, 2, 3)
    local same = flow.tensor({1, 0, 1, 0, 1, 0}, {dtype = "float64"})
    local contrastive, triplet = ContrastiveLoss(1.0), nn.TripletMarginLoss {margin = 0.5}
    local step = capture(function()
        local x, y = net(a), net(b)
        local loss = contrastive(x, y, same) + triplet(x, y, y:roll(1, 0)) + 0.5 * nt_xent(x, y, 0.5)
        optimizer:zero_grad()
        loss:backward()
        local norm = nn.utils.clip_grad_norm_(net:parameters(), 1.0)
        optimizer:step()
        scheduler:step()
        local _ <close> = flow.no_grad()
        local parameters = net:parameters()
        for i, q in ipairs(target:parameters()) do q:mul_(0.9):add_(parameters[i], {alpha = 0.1}) end
        return loss, norm
    end)
    local losses, norm = {}, nil
    for i = 1, 6 do
        local loss
        loss, norm = step()
        losses[i] = loss:item()
    end
    net:eval()
    local _ <close> = flow.no_grad()
    local near = flow.cdist(net(a), target(b)):argmin(1)
    return {losses = losses, norm = norm, near = near, mean = net.features[2].running_mean, target = target.fc.bias}
end
