-- chains.lua -- chains of elementwise ops as users write them: alone, in losses and optimizers, in training steps.
--
-- Every call has its result computed: it is read, or it is what the optimizer steps on.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

local KI = 1024
local MI = 1024 * 1024

-- ---- chains of three operands ----

local function norm7(a, b) return (a * a + b * b):clamp(1e-6):sqrt() / (1 + (a - b):abs()) end
local function muladd(a, b, c) return a * b + c end
local function sum(a, b, c) return ((a * b + c):tanh() * b:sigmoid() + (-c * c):exp()):sum() end

-- A case that calls f with three tensors of that size and reads one element of its result.
local function over(size, f)
    return function()
        local a, b, c = flow.randn(size), flow.randn(size), flow.randn(size)
        return flow.no_grad(function()
            return function(count)
                for _ = 1, count do f(a, b, c):view(-1)[0]:item() end
            end
        end)
    end
end

for name, size in pairs {["64k"] = 64 * KI, ["1m"] = MI, ["16m"] = 16 * MI} do
    M["norm7_" .. name], M["muladd_" .. name], M["sum_" .. name] = over(size, norm7), over(size, muladd), over(size, sum)
end

-- One iteration a call; the value is computed at the end of the calls at the latest.
function M.loop()
    local y = flow.randn(MI)
    return function(count)
        for _ = 1, count do y = y * 1.01 + 1 end
    end
end

M.dropout = over(MI, function(x, y) return x + flow.dropout(y, 0.1) end)

-- ---- written from ops ----

local function leaf(...)
    return flow.randn({...}, {requires_grad = true})
end

function M.layer_norm()
    local x, weight, bias, g = leaf(256, 1024), leaf(1024), leaf(1024), flow.randn(256, 1024)
    return function(count)
        for _ = 1, count do
            local centred = x - x:mean(-1, true)
            local variance = (centred * centred):mean(-1, true)
            local y = centred / (variance + 1e-5):sqrt() * weight + bias
            y:backward(g)
            flow.sync()
            x.grad, weight.grad, bias.grad = nil, nil, nil
        end
    end
end

function M.cross_entropy()
    local x, labels = leaf(256, 1024), flow.randint(0, 1024, {256, 1})
    return function(count)
        for _ = 1, count do
            local shifted = x - x:amax(-1, true)
            local logs = shifted - shifted:exp():sum(-1, true):log()
            local loss = -logs:gather(1, labels):mean()
            loss:backward()
            flow.sync()
            x.grad = nil
        end
    end
end

-- Adam as its paper writes it, on a million parameters: update(state, correction1, correction2) is a step.
local function adam(update)
    return function()
        local state = {p = flow.randn(MI), g = flow.randn(MI), m = flow.zeros(MI), v = flow.zeros(MI)}
        local step = 0
        return function(count)
            for _ = 1, count do
                step = step + 1
                update(state, 1 - 0.9 ^ step, 1 - 0.999 ^ step)
                flow.sync()
            end
        end
    end
end

-- The state in new tensors.
M.adam = adam(function(s, correction1, correction2)
    s.m = s.m * 0.9 + s.g * (1 - 0.9)
    s.v = s.v * 0.999 + s.g * s.g * (1 - 0.999)
    s.p = s.p - (s.m / correction1) / ((s.v / correction2):sqrt() + 1e-8) * 1e-3
end)

-- The state written in place.
M.adam_ = adam(function(s, correction1, correction2)
    s.m:mul_(0.9):add_(s.g * (1 - 0.9))
    s.v:mul_(0.999):add_(s.g * s.g * (1 - 0.999))
    s.p:sub_((s.m / correction1) / ((s.v / correction2):sqrt() + 1e-8) * 1e-3)
end)

-- ---- training ----

-- Steps of Adam on what loss_of() gives.
local function steps(parameters, loss_of)
    local optimizer = optim.Adam(parameters, {lr = 1e-3})
    return function(count)
        for _ = 1, count do
            local loss = loss_of()
            optimizer:zero_grad()
            loss:backward()
            optimizer:step()
            loss:item()
        end
    end
end

-- A variational autoencoder 784-400-20-400-784 on a batch of 128.
function M.vae()
    local encoder, mean, log_variance = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
    local decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))
    local parameters = nn.ModuleList({encoder, mean, log_variance, decoder}):parameters()
    local x = flow.rand(128, 784)
    return steps(parameters, function()
        local h = encoder(x):relu()
        local mu, logs = mean(h), log_variance(h)
        local logits = decoder(mu + (logs * 0.5):exp() * flow.randn(128, 20))
        local reconstruction = (logits:clamp(0) - logits * x + (1 + (-logits:abs()):exp()):log()):sum()
        local divergence = (1 + logs - mu * mu - logs:exp()):sum() * -0.5
        return (reconstruction + divergence) / 128
    end)
end

-- A denoising network of points in the plane: 3 hidden layers of 256 with SiLU, 64 features of the time, a batch of 512.
function M.diffusion()
    local net = nn.Sequential(
        nn.Linear(2 + 64, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 2))
    local x = flow.randn(512, 2)
    local frequencies = (flow.arange(32) * (-math.log(10000) / 32)):exp()
    return steps(net:parameters(), function()
        local t, noise = flow.rand(512, 1), flow.randn(512, 2)
        local angle = t * 1000 * frequencies
        local kept = (t * (math.pi / 2)):cos()
        local noisy = x * kept + noise * (1 - kept * kept):sqrt()
        local difference = net(flow.cat({noisy, angle:sin(), angle:cos()}, 1)) - noise
        return (difference * difference):mean()
    end)
end

return M
