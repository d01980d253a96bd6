-- autograd_function.lua -- a backward of one's own: weights rounded to a grid are trained as if they were not.
--
-- Rounding has the gradient 0 everywhere. The straight-through estimator hands the gradient on where the weight lies
-- inside the grid, and none where it was cut off at the grid's ends.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local quantize = flow.autograd_function{
    name = "quantize",
    forward = function(ctx, w, step)
        ctx:save(w:abs():le(7 * step))
        return (w / step):round():clamp(-7, 7) * step
    end,
    backward = function(ctx, g)             -- a gradient for w, none for step
        return g * ctx.saved[1]
    end,
}

-- A linear layer whose weights take 15 values.
local Quantized = nn.Module:extend("Quantized")

function Quantized:init(inputs, outputs, step)
    self.step = step
    self.weight = nn.Parameter(nn.init.normal(flow.empty(outputs, inputs), 0, 0.3))
end

function Quantized:forward(x)
    return x:matmul(quantize(self.weight, self.step):t())
end

flow.manual_seed(1)
local truth = flow.tensor{{0.5, -0.25, 0.75}}
local x = flow.randn(64, 3)
local y = x:matmul(truth:t())
local net = Quantized(3, 1, 0.25)
local opt = optim.SGD(net:parameters(), {lr = 0.1})

-- A hook sees what forward gives; here it counts.
local calls = 0
local handle = net:register_forward_hook(function() calls = calls + 1 end)
for _ = 1, 60 do
    opt:zero_grad()
    flow.mse_loss(net(x), y):backward()
    opt:step()
end
handle:remove()

print(calls, quantize(net.weight, net.step):detach())
--> 60	[[ 0.5000, -0.2500,  0.7500]]
--> float32[1, 3] on cpu
