-- real_nvp.lua -- a normalising flow: affine couplings turn a normal distribution into that of the data, and back.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local Coupling = nn.Module:extend("Coupling")

-- mask: 1 at the numbers that stay and decide how the others change.
function Coupling:init(mask)
    self:register_buffer("mask", flow.tensor(mask))
    self.scale = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
    self.shift = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))
end

-- To the normal distribution; with the logarithm of the determinant.
function Coupling:forward(x)
    local kept = x * self.mask
    local s, t = self.scale(kept) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
    return kept + (1 - self.mask) * (x - t) * (-s):exp(), -s:sum(1)
end

function Coupling:inverse(z)
    local kept = z * self.mask
    local s, t = self.scale(kept) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
    return kept + (1 - self.mask) * (z * s:exp() + t)
end

return function(capture)
    local layers = nn.ModuleList()
    for i = 1, 4 do layers:append(Coupling(i % 2 == 0 and {0.0, 1.0} or {1.0, 0.0})) end
    fill.module(layers)
    local optimizer = optim.Adamax(layers:parameters(), {lr = 5e-3})
    local function log_prob(x)
        local log_det = 0
        for i = #layers, 1, -1 do
            local more
            x, more = layers[i](x)
            log_det = log_det + more
        end
        return (-0.5 * (x:square() + math.log(2 * math.pi))):sum(1) + log_det
    end
    local step = capture(function(x)
        local loss = -log_prob(x):mean()
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end)
    local angle = (fill.values({64}, 2) + 0.5) * math.pi
    local data = flow.stack({angle:cos(), angle:sin()}, 1) + fill.values({64, 2}, 3, 0.2)
    local losses = {}
    for i = 1, 10 do losses[i] = step(data):item() end

    local sample = fill.values({5, 2}, 4, 3)
    for _, layer in ipairs(layers) do sample = layer:inverse(sample) end
    return {losses = losses, sample = sample, density = log_prob(sample)}
end
