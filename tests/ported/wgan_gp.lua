-- wgan_gp.lua -- Wasserstein's GAN with a gradient penalty: the critic's loss has the norm of its own gradient in it.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

return function(capture)
    local G = fill.module(nn.Sequential(
        nn.Linear(4, 32), nn.ReLU(), nn.Unflatten(1, {2, 4, 4}), nn.Upsample {scale_factor = 2},
        nn.Conv2d(2, 1, 3, {padding = 1}), nn.Tanh()))
    local D = fill.module(nn.Sequential(
        nn.Conv2d(1, 6, 3, {stride = 2, padding = 1}), nn.LeakyReLU(0.2),
        nn.Conv2d(6, 8, 3, {stride = 2, padding = 1}), nn.InstanceNorm2d(8, {affine = true}), nn.SiLU(),
        nn.Flatten(), nn.Linear(32, 1)))
    local optimizerG = optim.Adam(G:parameters(), {lr = 1e-3, betas = {0, 0.9}})
    local optimizerD = optim.Adam(D:parameters(), {lr = 1e-3, betas = {0, 0.9}})

    local function penalty(real, fake, weight)
        local mixed = weight * real + (1 - weight) * fake
        mixed:requires_grad_()
        local scores = D(mixed)
        local gradient = flow.grad(scores, mixed, {grad_outputs = flow.ones_like(scores), create_graph = true})
        return (gradient:flatten(1):norm(2, 1) - 1):square():mean()
    end
    local function judge(real, noise, weight)
        local fake = G(noise):detach()
        local loss = D(fake):mean() - D(real):mean() + 10 * penalty(real, fake, weight)
        optimizerD:zero_grad()
        loss:backward()
        optimizerD:step()
        return loss
    end
    local make = capture(function(noise)
        local loss = -D(G(noise)):mean()
        optimizerG:zero_grad()
        loss:backward()
        optimizerG:step()
        return loss
    end)
    local critic, generator = {}, {}
    for i = 1, 6 do
        local real, noise = fill.values({5, 1, 8, 8}, i, 2), fill.values({5, 4}, 20 + i, 3)
        critic[i] = judge(real, noise, fill.values({5, 1, 1, 1}, 40 + i) + 0.5):item()
        if i % 2 == 0 then generator[#generator + 1] = make(noise):item() end
    end
    return {critic = critic, generator = generator, picture = G(fill.values({1, 4}, 50, 3))[{0, 0, 3}]}
end
