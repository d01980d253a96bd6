-- vae.lua -- a variational autoencoder: the loss of reconstruction and the divergence of the code from a normal
-- distribution.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local VAE = nn.Module:extend("VAE")

function VAE:init(pixels, hidden, code)
    self.fc1 = nn.Linear(pixels, hidden)
    self.mu = nn.Linear(hidden, code)
    self.logvar = nn.Linear(hidden, code)
    self.fc3 = nn.Linear(code, hidden)
    self.fc4 = nn.Linear(hidden, pixels)
end

function VAE:decode(z) return self.fc4(self.fc3(z):relu()):sigmoid() end

-- noise: standard normal numbers, flow.randn_like(mu) but for comparisons.
function VAE:forward(x, noise)
    local h = self.fc1(x):relu()
    local mu, logvar = self.mu(h), self.logvar(h)
    return self:decode(mu + noise * (0.5 * logvar):exp()), mu, logvar
end

return function(capture)
    local model = fill.module(VAE(36, 20, 4))
    local optimizer = optim.Adam(model:parameters(), {lr = 1e-2})
    local step = capture(function(x, noise)
        local again, mu, logvar = model(x, noise)
        local bce = flow.binary_cross_entropy(again, x, {reduction = "sum"})
        local kld = -0.5 * (1 + logvar - mu:square() - logvar:exp()):sum()
        optimizer:zero_grad();
        (bce + kld):backward()
        optimizer:step()
        return bce, kld
    end)
    local x = fill.values({16, 36}, 20) + 0.5
    local reconstruction, divergence = {}, {}
    for i = 1, 6 do
        local bce, kld = step(x, fill.values({16, 4}, 20 + i, 3))
        reconstruction[i], divergence[i] = bce:item(), kld:item()
    end
    local sample = model:decode(fill.values({2, 4}, 40, 3)):mean(1)
    return {reconstruction = reconstruction, divergence = divergence, sample = sample}
end
