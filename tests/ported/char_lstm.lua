-- char_lstm.lua -- an LSTM of two layers over the letters of a text; its state goes on from batch to batch.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local text = "the quick brown fox jumps over the lazy dog while the cat sleeps in the warm sun and dreams of mice. "

local CharLSTM = nn.Module:extend("CharLSTM")

function CharLSTM:init(vocab, width)
    self.embed = nn.Embedding(vocab, width)
    self.lstm = nn.LSTM(width, 16, 2, {batch_first = true})
    self.head = nn.Linear(16, vocab)
end

function CharLSTM:forward(x, state)
    local y, last = self.lstm(self.embed(x), state)
    return self.head(y), last
end

return function()
    local ids = flow.tensor({text:byte(1, 97)}) - 32
    local model = fill.module(CharLSTM(96, 8))
    local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
    local x, y = ids[{{0, 96}}]:view(4, 24), ids[{{1, 97}}]:view(4, 24)
    local losses, norms, state = {}, {}, nil
    for i = 0, 5 do
        local from = i % 3 * 8
        if from == 0 then state = nil end
        local scores, last = model(x[{{}, {from, from + 8}}], state)
        local loss = flow.cross_entropy(scores:flatten(0, 1), y[{{}, {from, from + 8}}]:flatten())
        optimizer:zero_grad()
        loss:backward()
        norms[#norms + 1] = optim.clip_grad_norm(model:parameters(), 0.5):item()
        optimizer:step()
        state = {last[1]:detach(), last[2]:detach()}
        losses[#losses + 1] = loss:item()
    end
    local written, at = {}, flow.tensor {{116 - 32}}
    state = nil
    flow.no_grad(function()
        for i = 1, 5 do
            local scores
            scores, state = model(at, state)
            at = scores[{{}, -1}]:argmax(-1, true)
            written[i] = at:item()
        end
    end)
    return {losses = losses, norms = norms, written = written}
end
