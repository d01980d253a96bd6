-- ddpm.lua -- denoising diffusion: a net learns the noise at every time, and then takes it away step by step.
-- Averages of the weights (EMA) make the samples.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local T <const> = 20

local Denoiser = nn.Module:extend("Denoiser")

function Denoiser:init(width)
    self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
    self.enter = nn.Conv2d(1, width, 3, {padding = 1})
    self.norm = nn.GroupNorm(2, width)
    self.middle = nn.Conv2d(width, width, 3, {padding = 1})
    self.leave = nn.Conv2d(width, 1, 3, {padding = 1})
end

-- Sines and cosines of the time, at four frequencies.
local function embed(t)
    local frequencies = (-math.log(1000) / 4 * flow.arange(4, {dtype = "float64"})):exp()
    local angles = t:to("float64"):unsqueeze(1) * frequencies
    return flow.cat({angles:sin(), angles:cos()}, 1)
end

function Denoiser:forward(x, t)
    local h = self.enter(x) + self.time(embed(t)):view(x:size(0), -1, 1, 1)
    return self.leave(flow.silu(self.middle(flow.silu(self.norm(h)))))
end

return function(capture)
    local beta = flow.linspace(1e-3, 0.2, T, {dtype = "float64"})
    local alpha = 1 - beta
    local alpha_bar = alpha:cumprod(0)
    local model = fill.module(Denoiser(8))
    local optimizer = optim.AdamW(model:parameters(), {lr = 2e-3})
    local ema = optim.AveragedModel(model, {decay = 0.8})
    local step = capture(function(x, t, noise)
        local a = alpha_bar[t]:view(-1, 1, 1, 1)
        local loss = flow.mse_loss(model(a:sqrt() * x + (1 - a):sqrt() * noise, t), noise)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        ema:update_parameters()
        return loss
    end)
    local losses = {}
    for i = 1, 6 do
        local x, noise = fill.values({6, 1, 6, 6}, 1, 2), fill.values({6, 1, 6, 6}, 20 + i, 3.4)
        losses[i] = step(x, fill.integers({6}, 30 + i, T), noise):item()
    end
    ema:swap()
    local x = fill.values({2, 1, 6, 6}, 50, 3.4)
    local _ <close> = flow.no_grad()
    for t = T - 1, 0, -1 do
        local noise = model(x, flow.full({2}, t))
        x = (x - beta[t] / (1 - alpha_bar[t]):sqrt() * noise) / alpha[t]:sqrt()
        if t > 0 then x = x + beta[t]:sqrt() * fill.values({2, 1, 6, 6}, 60 + t, 3.4) end
    end
    return {losses = losses, sample = x[{0, 0, 2}], alpha_bar = alpha_bar}
end
