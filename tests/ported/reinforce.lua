-- reinforce.lua -- REINFORCE on a corridor of seven cells: the right end pays 1, every step costs 0.05.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim
local Categorical = flow.distributions.Categorical

local cells <const>, gamma <const> = 7, 0.95

local Policy = nn.Module:extend("Policy")

function Policy:init()
    self.affine1 = nn.Linear(cells, 16)
    self.affine2 = nn.Linear(16, 2)
end

function Policy:forward(x) return self.affine2(self.affine1(x):relu()):softmax(-1) end

local function walk(at, action)
    at = math.max(at + (action == 1 and 1 or -1), 0)
    return at, at == cells - 1 and 1 or -0.05, at == cells - 1
end

return function()
    local policy = fill.module(Policy())
    local optimizer = optim.Adam(policy:parameters(), {lr = 3e-2})
    local states = flow.eye(cells, {dtype = "float64"})
    local chance = (fill.values({400}, 3) + 0.5):totable() -- in place of choice:sample()
    local drawn, losses, lengths = 0, {}, {}
    for episode = 1, 6 do
        local at, done, saved, rewards = 2, false, {}, {}
        while not done and #rewards < 30 do
            local choice = Categorical {probs = policy(states[at])}
            drawn = drawn + 1
            local action = chance[drawn] < choice.probs[1]:item() and 1 or 0
            saved[#saved + 1] = choice:log_prob(flow.tensor(action)) + 0.01 * choice:entropy()
            at, rewards[#rewards + 1], done = walk(at, action)
        end
        local returns, R = {}, 0
        for i = #rewards, 1, -1 do
            R = rewards[i] + gamma * R
            returns[i] = R
        end
        returns = flow.tensor(returns, {dtype = "float64"})
        returns = (returns - returns:mean()) / (returns:std() + 1e-8)
        local loss = -(flow.stack(saved) * returns):sum()
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        losses[episode], lengths[episode] = loss:item(), #rewards
    end
    return {losses = losses, lengths = lengths, policy = policy(states)[{{}, 1}]}
end
