-- hmm.lua -- a hidden Markov model by gradients of the forward algorithm, its best path (Viterbi), and the likelihood of
-- a Kalman filter with a gradient.
local flow = require "flow"
local fill = require "tests.ported.fill"
local optim = flow.optim

local states <const>, symbols <const> = 3, 4

local function kalman()
    local like = {dtype = "float64"}
    local step, look = flow.tensor({{1.0, 0.1}, {0.0, 1.0}}, like), flow.tensor({{1.0, 0.0}}, like)
    local eye = flow.eye(2, like)
    local Q, R = 0.01 * eye, flow.tensor({{0.2}}, {dtype = "float64", requires_grad = true})
    local mean, P, total = flow.zeros(2, like), eye, 0.0
    for y in fill.values({10, 1}, 5, 2):iter() do
        mean, P = step:matmul(mean), step:matmul(P):matmul(step.T) + Q
        local S = look:matmul(P):matmul(look.T) + R
        local gain = flow.linalg.solve(S, look:matmul(P)).T
        local seen = look:matmul(mean)
        total = total + flow.distributions.MultivariateNormal(seen, S):log_prob(y)
        mean, P = mean + gain:matmul(y - seen), (eye - gain:matmul(look)):matmul(P)
    end
    total:backward()
    return mean, total, R.grad
end

return function(capture)
    local start = fill.values({states}, 1):requires_grad_()
    local move = fill.values({states, states}, 2, 2):requires_grad_()
    local emit = fill.values({states, symbols}, 3, 2):requires_grad_()
    local seen = fill.integers({5, 12}, 4, symbols)
    local lengths = flow.tensor {12, 9, 12, 5, 7}

    local function log_likelihood()
        local A, B = move:log_softmax(-1), emit:log_softmax(-1)
        local alpha = start:log_softmax(-1) + B:t()[seen[{{}, 0}]]
        for t = 1, seen:size(1) - 1 do
            local after = flow.logsumexp(alpha:unsqueeze(2) + A, 1) + B:t()[seen[{{}, t}]]
            alpha = flow.where(lengths:gt(t):unsqueeze(1), after, alpha)
        end
        return alpha:logsumexp(-1)
    end

    local optimizer = optim.Adam({start, move, emit}, {lr = 0.1})
    local step = capture(function()
        optimizer:zero_grad()
        local loss = -(log_likelihood() / lengths):mean()
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 8 do losses[i] = step():item() end

    local path
    flow.no_grad(function()
        local A, B = move:log_softmax(-1), emit:log_softmax(-1)
        local best, back = start:log_softmax(-1) + B[{{}, seen[{0, 0}]:item()}], {}
        for t = 1, 11 do
            local scores, at = (best:unsqueeze(1) + A):max(0)
            best = scores + B[{{}, seen[{0, t}]:item()}]
            back[t] = at
        end
        path = {best:argmax():item()}
        for t = 11, 1, -1 do table.insert(path, 1, back[t][path[1]]:item()) end
    end)
    local mean, total, slope = kalman()
    return {losses = losses, path = path, likelihood = log_likelihood(), mean = mean, total = total, R = slope}
end
