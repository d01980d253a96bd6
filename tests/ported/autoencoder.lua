-- autoencoder.lua -- a denoising autoencoder of convolutions, in float32: masked pixels are restored.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

return function(capture)
    local model = fill.module(nn.Sequential(
        nn.Conv2d(1, 4, 3, {stride = 2, padding = 1}), nn.ReLU(),
        nn.Conv2d(4, 8, 3, {stride = 2, padding = 1}), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, {stride = 2, padding = 1, output_padding = 1}), nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 3, {stride = 2, padding = 1, output_padding = 1}), nn.Sigmoid()), "float32")
    local optimizer = optim.RMSprop(model:parameters(), {lr = 1e-3, momentum = 0.5})
    local step = capture(function(x, noisy)
        local loss = flow.mse_loss(model(noisy), x)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end)
    local x = fill.values({8, 1, 12, 12}, 3):to("float32") + 0.5
    local losses = {}
    for i = 1, 6 do
        local mask = fill.values(x.shape, 10 + i):lt(-0.3)
        losses[i] = step(x, x:masked_fill(mask, 0)):item()
    end
    local code = x
    for i = 1, 4 do code = model[i](code) end
    return {losses = losses, code = code:mean({0, 2, 3})}
end
