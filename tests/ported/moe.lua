-- moe.lua -- a mixture of experts: a router sends each token to two of four, and a loss keeps their loads even.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local MoE = nn.Module:extend("MoE")

function MoE:init(width, experts, k)
    self.k = k
    self.router = nn.Linear(width, experts, {bias = false})
    self.experts = nn.ModuleList()
    for _ = 1, experts do
        self.experts:append(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)))
    end
end

-- x [tokens, width]; gives the result and the loss of balance.
function MoE:forward(x)
    local probs = self.router(x):softmax(-1)
    local weights, chosen = probs:topk(self.k, -1)
    weights = weights / weights:sum(-1, {keepdim = true})
    local y = flow.zeros_like(x)
    for i, expert in ipairs(self.experts) do
        local tokens, places = flow.nonzero(chosen:eq(i - 1)):unbind(1)
        y = y:index_add(0, tokens, expert(x[tokens]) * weights[{tokens, places}]:unsqueeze(1))
    end
    local load = flow.one_hot(chosen, #self.experts):to(x.dtype):mean({0, 1})
    return y, #self.experts * (load * probs:mean(0)):sum()
end

return function(capture)
    local model = fill.module(MoE(8, 4, 2))
    local optimizer = optim.Adam(model:parameters(), {lr = 1e-2})
    local x, y = fill.values({24, 8}, 1, 4), fill.values({24, 8}, 2, 2)
    local losses, balances = {}, {}
    local step = capture(function()                     -- not strict: the number of an expert's tokens is read
        local out, balance = model(x)
        local loss = flow.mse_loss(out, y) + 0.1 * balance
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss, balance
    end, {strict = false})
    for i = 1, 6 do
        local loss, balance = step()
        losses[i], balances[i] = loss:item(), balance:item()
    end
    return {losses = losses, balances = balances, router = model.router.weight[0]}
end
