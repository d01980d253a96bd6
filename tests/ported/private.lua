-- private.lua -- gradients of each sample by vmap, clipped one by one (DP-SGD); an ensemble by stacked parameters; the
-- Laplacian of a net.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, func, F = flow.nn, flow.func, flow.nn.functional

return function()
    local net = fill.module(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    local parameters = {}
    for name, p in net:named_parameters() do parameters[name] = p:detach():clone() end
    local x, y = fill.values({8, 4}, 1, 4), fill.integers({8}, 2, 3)

    local function loss_of(given, one, label)
        return F.cross_entropy(func.functional_call(net, given, one:unsqueeze(0)), label:unsqueeze(0))
    end

    local losses, norms = {}, {}
    for i = 1, 4 do
        local each = flow.vmap(func.grad(loss_of), {in_dims = {false, 0, 0}})(parameters, x, y)
        local squares = 0
        for _, g in pairs(each) do squares = squares + g:flatten(1):square():sum(1) end
        local norm = squares:sqrt()
        local factor = (0.5 / (norm + 1e-6)):clamp {max = 1.0}
        for name, g in pairs(each) do
            parameters[name] = parameters[name] - 0.5 * flow.einsum("b,b...->...", factor, g) / 8
        end
        losses[i] = flow.vmap(loss_of, {in_dims = {false, 0, 0}})(parameters, x, y):mean()
        norms[i] = norm:mean()
    end

    local nets = {}
    for i = 1, 3 do
        nets[i] = fill.module(nn.Linear(4, 2))
        flow.no_grad(function() nets[i].weight:mul_(i) end)
    end
    local stacked = func.stack_module_state(nets)
    local outputs = flow.vmap(function(p, inputs) return func.functional_call(nets[1], p, inputs) end,
        {in_dims = {0, false}})(stacked, x)
    outputs:square():mean():backward()

    local function field(p) return func.functional_call(net, parameters, p):sum() end
    local laplacian = flow.vmap(function(p) return func.hessian(field)(p):trace() end)(x)
    return {losses = losses, norms = norms, outputs = outputs[{1, 0}], slope = stacked.weight.grad[{2, 0}],
        laplacian = laplacian}
end
