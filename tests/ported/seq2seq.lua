-- seq2seq.lua -- translation by two GRUs with Bahdanau's attention: here a sequence of digits is turned around.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local width <const>, vocab <const>, pad <const>, start <const> = 12, 12, 0, 1

local Encoder = nn.Module:extend("Encoder")

function Encoder:init()
    self.embedding = nn.Embedding(vocab, width, {padding_idx = pad})
    self.gru = nn.GRU(width, width, {batch_first = true, bidirectional = true})
    self.bridge = nn.Linear(2 * width, width)
end

function Encoder:forward(source)
    local outputs, state = self.gru(self.embedding(source))
    return self.bridge(outputs), flow.cat({state[0], state[1]}, 1):matmul(self.bridge.weight:t()):tanh()
end

local Decoder = nn.Module:extend("Decoder")

function Decoder:init()
    self.embedding = nn.Embedding(vocab, width, {padding_idx = pad})
    self.Wa = nn.Linear(width, width)
    self.Ua = nn.Linear(width, width)
    self.Va = nn.Linear(width, 1)
    self.cell = nn.GRUCell(2 * width, width)
    self.out = nn.Linear(width, vocab)
end

-- One step: the word before, the state, what the encoder saw, and where that is padding.
function Decoder:forward(word, state, memory, padding)
    local scores = self.Va((self.Wa(state):unsqueeze(1) + self.Ua(memory)):tanh()):squeeze(2)
    local attention = scores:masked_fill(padding, -math.huge):softmax(1)
    local context = attention:unsqueeze(1):bmm(memory):squeeze(1)
    state = self.cell(flow.cat({self.embedding(word), context}, 1), state)
    return self.out(state), state, attention
end

return function(capture)
    local encoder, decoder = fill.module(Encoder()), fill.module(Decoder())
    local parameters = encoder:parameters()
    table.move(decoder:parameters(), 1, #decoder:parameters(), #parameters + 1, parameters)
    local optimizer = optim.Adam(parameters, {lr = 1e-2})
    local step = capture(function(source, target)
        local memory, state = encoder(source)
        local word = flow.full_like(target[{{}, 0}], start)
        local scores = {}
        for t = 0, target:size(1) - 1 do
            scores[t + 1], state = decoder(word, state, memory, source:eq(pad))
            word = target[{{}, t}]                          -- the teacher's
        end
        local loss = flow.cross_entropy(flow.stack(scores, 1):flatten(0, 1), target:flatten(), {ignore_index = pad})
        optimizer:zero_grad()
        loss:backward()
        optim.clip_grad_norm(parameters, 1.0)
        optimizer:step()
        return loss
    end)
    local source = fill.integers({8, 5}, 3, 10) + 2
    local target = source:flip(1):clone()
    source[{{0, 4}, 4}], target[{{0, 4}, 0}] = pad, 2
    local losses = {}
    for i = 1, 6 do losses[i] = step(source, target):item() end

    local memory, state = encoder(source[{{0, 1}}])
    local word, written, attention = flow.tensor {start}, {}, nil
    for t = 1, 5 do
        local scores
        scores, state, attention = decoder(word, state, memory, source[{{0, 1}}]:eq(pad))
        word = scores:argmax(1)
        written[t] = word:item()
    end
    return {losses = losses, written = written, attention = attention[0]}
end
