-- dqn.lua -- deep Q-learning: a memory of transitions, a target net that follows slowly, Huber's loss, clipped
-- gradients.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local gamma <const>, tau <const> = 0.99, 0.05

local function net()
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
end

-- A cart on a line is pushed left, not at all or right and should stay near 0.
local function push(state, action)
    local place, speed = state[1], state[2]
    speed = 0.9 * speed + 0.2 * (action - 1)
    place = place + speed
    return {place, speed}, -place * place, math.abs(place) > 2
end

return function(capture)
    local policy, target = fill.module(net()), net():to("float64")
    target:load_state_dict(policy:state_dict())
    local optimizer = optim.AdamW(policy:parameters(), {lr = 1e-2, amsgrad = true})
    local criterion = nn.SmoothL1Loss()
    local learn = capture(function(states, actions, rewards, nexts, alive)
        local values = policy(states):gather(1, actions:unsqueeze(1)):squeeze(1)
        local best = flow.no_grad(function() return (target(nexts):max(1)) end)
        local loss = criterion(values, rewards + gamma * alive * best)
        optimizer:zero_grad()
        loss:backward()
        for _, p in ipairs(policy:parameters()) do p.grad:clamp_(-1, 1) end
        optimizer:step()
        flow.no_grad(function()
            for i, p in ipairs(policy:parameters()) do target:parameters()[i]:lerp_(p, tau) end
        end)
        return loss
    end)

    local memory, state = {}, {1.0, 0.0}
    local draw = fill.integers({80}, 4, 3):totable()
    local losses = {}
    local float64 = {dtype = "float64"}
    for t = 1, 80 do
        local action = draw[t]
        if t % 2 == 0 then action = policy(flow.tensor(state, float64)):argmax():item() end
        local after, reward, over = push(state, action)
        memory[t] = {state, action, reward, after, over and 0.0 or 1.0}
        state = over and {1.0, 0.0} or after
        if t % 8 == 0 and t >= 16 then
            local states, actions, rewards, nexts, alive = {}, {}, {}, {}, {}
            for i = 1, 16 do
                states[i], actions[i], rewards[i], nexts[i], alive[i] = table.unpack(memory[i * 7 % t + 1])
            end
            losses[#losses + 1] = learn(flow.tensor(states, float64), flow.tensor(actions),
                flow.tensor(rewards, float64), flow.tensor(nexts, float64), flow.tensor(alive, float64)):item()
        end
    end
    return {losses = losses, q = policy(flow.tensor({{0.5, 0}, {-0.5, 0}}, float64)), target = target[5].bias}
end
