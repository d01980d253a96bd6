-- bigram.lua -- makemore's bigrams: the frequency of a letter after another, counted and then learned by one layer.
local flow = require "flow"
local fill = require "tests.ported.fill"

local words = {"emma", "olivia", "ava", "isabella", "sophia", "charlotte", "mia", "amelia", "harper", "evelyn"}

-- Pairs of letters of all words: "." is 0, "a" is 1.
local function pairs_of(list)
    local xs, ys = {}, {}
    for _, word in ipairs(list) do
        local last = 0
        for letter in (word .. "."):gmatch "." do
            local code = letter == "." and 0 or letter:byte() - 96
            xs[#xs + 1], ys[#ys + 1], last = last, code, code
        end
    end
    return flow.tensor(xs), flow.tensor(ys)
end

return function(capture)
    local xs, ys = pairs_of(words)

    local counts = flow.zeros(27 * 27, {dtype = "float64"})
    counts:index_add_(0, xs * 27 + ys, flow.ones_like(xs):to("float64"))
    counts = counts:view(27, 27)
    local P = counts + 1
    P = P / P:sum(1, {keepdim = true})
    local counted = -P[{xs, ys}]:log():mean()

    local W = fill.values({27, 27}, 1, 2):requires_grad_()
    local xenc = flow.one_hot(xs, 27):to("float64")
    local step = capture(function()
        local exps = xenc:matmul(W):exp()
        local probs = exps / exps:sum(1, {keepdim = true})
        local loss = -probs:gather(1, ys:unsqueeze(1)):log():mean() + 0.01 * W:square():mean()
        W.grad = nil
        loss:backward()
        flow.no_grad(function() W:sub_(50 * W.grad) end)
        return loss
    end)
    local losses = {}
    for i = 1, 5 do losses[i] = step():item() end

    local name, at = {}, 0
    repeat                                              -- the likeliest letter that did not follow here before
        local after = counts[at]:argmax():item()
        counts[{at, after}] = 0
        at = after
        name[#name + 1] = at
    until at == 0
    return {counted = counted, losses = losses, name = name}
end
