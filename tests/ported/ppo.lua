-- ppo.lua -- proximal policy optimisation with a value function and generalised advantages; a Gaussian policy moves a
-- point to where it should be.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim
local Normal = flow.distributions.Normal

local gamma <const>, lambda <const>, horizon <const> = 0.99, 0.95, 16

local ActorCritic = nn.Module:extend("ActorCritic")

function ActorCritic:init()
    self.actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    self.log_std = nn.Parameter(flow.zeros(2))
end

function ActorCritic:forward(state)
    local policy = Normal(self.actor(state), self.log_std:exp(), false) -- unchecked: a captured step reads no values
    return policy, self.critic(state):squeeze(-1)
end

-- Eight points at once, `horizon` moves.
local function collect(model, seed)
    local _ <close> = flow.no_grad()
    local state = fill.values({8, 2}, seed, 4)
    local states, actions, logs, rewards, values = {}, {}, {}, {}, {}
    for t = 1, horizon do
        local policy, value = model(state)
        local action = policy.loc + policy.scale * fill.values({8, 2}, seed + t, 3) -- policy:sample()
        states[t], actions[t], values[t] = state, action, value
        logs[t] = policy:log_prob(action):sum(-1)
        state = state + 0.2 * action:clamp(-1, 1)
        rewards[t] = -state:square():sum(-1)
    end
    local _, after = model(state)
    local advantages, advantage = {}, 0
    for t = horizon, 1, -1 do
        advantage = rewards[t] + gamma * after - values[t] + gamma * lambda * advantage
        advantages[t], after = advantage, values[t]
    end
    advantages, values = flow.stack(advantages), flow.stack(values)
    local returns = (advantages + values):flatten()
    advantages = ((advantages - advantages:mean()) / (advantages:std() + 1e-8)):flatten()
    return flow.stack(states):flatten(0, 1), flow.stack(actions):flatten(0, 1), flow.stack(logs):flatten(), advantages,
        returns, flow.stack(rewards):mean()
end

return function(capture)
    local model = fill.module(ActorCritic())
    local optimizer = optim.Adam(model:parameters(), {lr = 1e-2, eps = 1e-5})
    local step = capture(function(states, actions, before, advantages, returns)
        local policy, value = model(states)
        local ratio = (policy:log_prob(actions):sum(-1) - before):exp()
        local surrogate = flow.minimum(ratio * advantages, ratio:clamp(0.8, 1.2) * advantages):mean()
        local loss = -surrogate + 0.5 * flow.mse_loss(value, returns) - 0.01 * policy:entropy():sum(-1):mean()
        optimizer:zero_grad()
        loss:backward()
        optim.clip_grad_norm(model:parameters(), 0.5)
        optimizer:step()
        return loss
    end)
    local losses, rewards = {}, {}
    for round = 1, 3 do
        local states, actions, logs, advantages, returns, reward = collect(model, 100 * round)
        rewards[round] = reward
        for _ = 1, 3 do losses[#losses + 1] = step(states, actions, logs, advantages, returns):item() end
    end
    return {losses = losses, rewards = rewards, log_std = model.log_std}
end
