-- dcgan.lua -- DCGAN: transposed convolutions make pictures, convolutions judge them; each has an optimizer.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local function generator(code, width)
    return nn.Sequential(
        nn.ConvTranspose2d(code, 2 * width, 4, {stride = 1, padding = 0, bias = false}),
        nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, {stride = 2, padding = 1, bias = false}),
        nn.BatchNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, {stride = 2, padding = 1, bias = false}), nn.Tanh())
end

local function discriminator(width)
    return nn.Sequential(
        nn.Conv2d(1, width, 4, {stride = 2, padding = 1, bias = false}), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, {stride = 2, padding = 1, bias = false}),
        nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 4, {bias = false}), nn.Sigmoid(), nn.Flatten())
end

return function(capture)
    local G, D = fill.module(generator(5, 6)), fill.module(discriminator(6))
    local optimizerG = optim.Adam(G:parameters(), {lr = 2e-3, betas = {0.5, 0.999}})
    local optimizerD = optim.Adam(D:parameters(), {lr = 2e-3, betas = {0.5, 0.999}})
    local criterion = nn.BCELoss()
    local step = capture(function(real, noise)
        local ones = flow.ones(real:size(0), 1, {dtype = real.dtype})
        optimizerD:zero_grad()
        local lossD = criterion(D(real), ones)
        lossD:backward()
        local fake = G(noise)
        local lossF = criterion(D(fake:detach()), flow.zeros_like(ones))
        lossF:backward()
        optimizerD:step()

        optimizerG:zero_grad()
        local lossG = criterion(D(fake), ones)
        lossG:backward()
        optimizerG:step()
        return lossD + lossF, lossG
    end)
    local losses_d, losses_g = {}, {}
    for i = 1, 4 do
        local d, g = step(fill.values({6, 1, 16, 16}, i, 2), fill.values({6, 5, 1, 1}, 10 + i, 3))
        losses_d[i], losses_g[i] = d:item(), g:item()
    end
    G:eval()
    local picture = G(fill.values({1, 5, 1, 1}, 20, 3))
    return {discriminator = losses_d, generator = losses_g, picture = picture[{0, 0, 7}]}
end
