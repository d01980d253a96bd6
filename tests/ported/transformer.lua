-- transformer.lua -- translation as in "Attention Is All You Need": nn.Transformer with masks for padding and for
-- what comes later.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local width <const>, vocab <const>, pad <const>, start <const> = 16, 14, 0, 1

local Translator = nn.Module:extend("Translator")

function Translator:init()
    self.source = nn.Embedding(vocab, width)
    self.target = nn.Embedding(vocab, width)
    self.positions = nn.SinusoidalPositions(width)
    self.transformer = nn.Transformer(width, 4, 2, 2, {dim_feedforward = 32, dropout = 0, batch_first = true})
    self.generator = nn.Linear(width, vocab)
end

function Translator:forward(source, target)
    local scale = math.sqrt(width)
    local later = flow.ones(target:size(1), target:size(1), {dtype = "bool"}):triu(1)
    local x, y = self.positions(self.source(source) * scale), self.positions(self.target(target) * scale)
    return self.generator(self.transformer(x, y, {
        tgt_mask = later, tgt_is_causal = true,
        src_key_padding_mask = source:eq(pad), tgt_key_padding_mask = target:eq(pad),
        memory_key_padding_mask = source:eq(pad),
    }))
end

return function(capture)
    local model = fill.module(Translator())
    local criterion = nn.CrossEntropyLoss {ignore_index = pad, label_smoothing = 0.1}
    local optimizer = optim.Adam(model:parameters(), {lr = 1, betas = {0.9, 0.98}, eps = 1e-9})
    local noam = optim.lr_scheduler.LambdaLR(optimizer, function(n)
        return 0.05 * width ^ -0.5 * math.min((n + 1) ^ -0.5, (n + 1) * 4 ^ -1.5)
    end)
    local step = capture(function(source, target)
        local scores = model(source, target[{{}, {0, -1}}])
        local loss = criterion(scores:flatten(0, 1), target[{{}, {1, target:size(1)}}]:flatten())
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        noam:step()
        return loss
    end)
    local source = fill.integers({6, 5}, 70, vocab - 2) + 2
    local target = flow.cat({flow.full({6, 1}, start), source:flip(1)}, 1)
    source[{{0, 3}, {3, 5}}], target[{{0, 3}, {4, 6}}] = pad, pad
    local losses = {}
    for i = 1, 6 do losses[i] = step(source, target):item() end

    local _ <close> = flow.no_grad()
    model:eval()
    local written = flow.full({2, 1}, start)
    for _ = 1, 5 do
        written = flow.cat({written, model(source[{{2, 4}}], written)[{{}, -1}]:argmax(-1, true)}, 1)
    end
    return {losses = losses, written = written, scores = model(source, target)[{0, 1}]}
end
