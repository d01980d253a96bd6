-- ctc_speech.lua -- speech recognition in small: spectra of different lengths, convolutions over time, a GRU in both
-- directions over packed sequences, CTC; the letters are read off greedily.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim
local rnn = nn.utils.rnn

local Speech = nn.Module:extend("Speech")

function Speech:init(bands, letters)
    self.conv = nn.Conv1d(bands, 8, 3, {stride = 2, padding = 1})
    self.norm = nn.LayerNorm(8)
    self.gru = nn.GRU(8, 10, {bidirectional = true})
    self.head = nn.Linear(20, letters)
end

-- x [batch, bands, time]; gives log probabilities [time / 2, batch, letters].
function Speech:forward(x, lengths)
    local h = self.norm(self.conv(x):permute(2, 0, 1)):relu()
    local packed = rnn.pack_padded_sequence(h, lengths, {enforce_sorted = false})
    local y = rnn.pad_packed_sequence((self.gru(packed)))
    return self.head(y):log_softmax(-1)
end

-- Letters of a row of positions: repeated ones are one, blanks (0) none.
local function greedy(row, length)
    local best, letters, last = row:argmax(-1):totable(), {}, 0
    for t = 1, length do
        if best[t] ~= last and best[t] ~= 0 then letters[#letters + 1] = best[t] end
        last = best[t]
    end
    return letters
end

return function(capture)
    local model = fill.module(Speech(6, 5))
    local optimizer = optim.AdamW(model:parameters(), {lr = 2e-2})
    local criterion = nn.CTCLoss()
    local x, targets = fill.values({4, 6, 20}, 1, 3), fill.integers({4, 3}, 2, 4) + 1
    local lengths, target_lengths = flow.tensor {10, 8, 10, 6}, flow.tensor {3, 2, 3, 1}
    local step = capture(function()                     -- not strict: lengths are read
        local loss = criterion(model(x, lengths), targets, lengths, target_lengths)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end, {strict = false})
    local losses = {}
    for i = 1, 12 do losses[i] = step():item() end
    local scores = model(x, lengths)
    local first, last = greedy(scores[{{}, 0}], 10), greedy(scores[{{}, 3}], 6)
    return {losses = losses, first = first, last = last, scores = scores[{5, 3}]}
end
