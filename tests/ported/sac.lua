-- sac.lua -- soft actor critic on recorded steps: a tanh of normal numbers, two critics, targets that follow, a
-- temperature that is learned.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim, F = flow.nn, flow.optim, flow.nn.functional

local Actor = nn.Module:extend("Actor")

function Actor:init()
    self.body = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
    self.mean = nn.Linear(12, 2)
    self.log_std = nn.Linear(12, 2)
end

function Actor:forward(x, noise)
    local h = self.body(x)
    local d = flow.distributions.Normal(self.mean(h), self.log_std(h):clamp(-5, 2):exp())
    local u = d.mean + d.stddev * noise
    local action = flow.tanh(u)
    local log_prob = (d:log_prob(u) - flow.log(1 - action:pow(2) + 1e-6)):sum(-1, {keepdim = true})
    return action, log_prob
end

local function critic() return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)) end

return function(capture)
    local actor = fill.module(Actor())
    local critics = fill.module(nn.ModuleList(critic(), critic()))
    local targets = critics:clone():requires_grad_(false)
    local log_alpha = flow.zeros(1, {dtype = "float64", requires_grad = true})
    local of_actor = optim.Adam(actor:parameters(), {lr = 3e-3})
    local of_critics = optim.Adam(critics:parameters(), {lr = 3e-3})
    local of_alpha = optim.Adam({log_alpha}, {lr = 3e-3})

    local step = capture(function(state, after, action, noise, other_noise)
        local reward = state:sum(1, {keepdim = true})
        local done = state[{{}, {0, 1}}]:gt(0.8):double()
        local alpha = log_alpha:exp():detach()
        local goal = flow.no_grad(function()
            local a, log_prob = actor(after, noise)
            local both = {}
            for i, t in ipairs(targets) do both[i] = t(flow.cat({after, a}, 1)) end
            local least = flow.cat(both, 1):min(1, {keepdim = true})
            return reward + 0.9 * (1 - done) * (least - alpha * log_prob)
        end)
        local pair, loss = flow.cat({state, action}, 1), 0
        for _, c in ipairs(critics) do loss = loss + F.smooth_l1_loss(c(pair), goal) end
        of_critics:zero_grad {set_to_none = true}
        loss:backward()
        of_critics:step()
        local a, log_prob = actor(state, other_noise)
        critics:requires_grad_(false)
        local best = flow.min(critics[1](flow.cat({state, a}, 1)), critics[2](flow.cat({state, a}, 1)))
        local policy = (alpha * log_prob - best):mean()
        of_actor:zero_grad()
        policy:backward()
        of_actor:step()
        critics:requires_grad_(true)
        of_alpha:zero_grad();
        (-(log_alpha * (log_prob:detach() - 2)):mean()):backward()
        of_alpha:step()
        local _ <close> = flow.no_grad()
        local parameters = critics:parameters()
        for i, q in ipairs(targets:parameters()) do q:lerp_(parameters[i], 0.05) end
        return loss, policy
    end)

    local critic_losses, actor_losses, alphas = {}, {}, {}
    for i = 0, 5 do
        local loss, policy = step(fill.values({16, 3}, 3 * i + 1, 2), fill.values({16, 3}, 3 * i + 2, 2),
            fill.values({16, 2}, 3 * i + 3, 2), fill.values({16, 2}, i + 40, 3), fill.values({16, 2}, i + 50, 3))
        critic_losses[i + 1], actor_losses[i + 1], alphas[i + 1] = loss:item(), policy:item(), log_alpha:item()
    end
    local state = fill.values({16, 3}, 16, 2)
    local action = actor(state, flow.zeros(16, 2))
    return {critics = critic_losses, actor = actor_losses, alphas = alphas, action = action[0],
        target = targets[1][3].weight[0]}
end
