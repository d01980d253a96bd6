-- word2vec.lua -- skip-grams with negative samples: words are near those that stand beside them.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local text = "the king rules the land the queen rules the land the dog chases the cat the cat chases the mouse"

-- Words by their first occurrence, and pairs of words at most two places apart.
local function skip_grams()
    local vocabulary, count, ids = {}, 0, {}
    for word in text:gmatch "%a+" do
        if not vocabulary[word] then
            vocabulary[word] = count
            count = count + 1
        end
        ids[#ids + 1] = vocabulary[word]
    end
    local centers, contexts = {}, {}
    for i = 1, #ids do
        for j = math.max(1, i - 2), math.min(#ids, i + 2) do
            if i ~= j then centers[#centers + 1], contexts[#contexts + 1] = ids[i], ids[j] end
        end
    end
    return flow.tensor(centers), flow.tensor(contexts), count, vocabulary
end

local SkipGram = nn.Module:extend("SkipGram")

function SkipGram:init(vocabulary, width)
    self.center = nn.Embedding(vocabulary, width)
    self.context = nn.Embedding(vocabulary, width)
end

function SkipGram:forward(centers, contexts, negatives)
    local v, u = self.center(centers), self.context(contexts)
    local positive = flow.logsigmoid((v * u):sum(1))
    local scores = self.context(negatives):bmm(v:unsqueeze(2)):squeeze(2)
    return -(positive + flow.logsigmoid(-scores):sum(1)):mean()
end

return function(capture)
    local centers, contexts, count, vocabulary = skip_grams()
    local model = fill.module(SkipGram(count, 8))
    local optimizer = optim.Adagrad(model:parameters(), {lr = 0.3})
    local step = capture(function(negatives)
        optimizer:zero_grad()
        local loss = model(centers, contexts, negatives)
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 8 do losses[i] = step(fill.integers({centers:size(0), 4}, 10 + i, count)):item() end
    local vectors = model.center.weight
    local king = flow.cosine_similarity(vectors[vocabulary.king]:unsqueeze(0), vectors, 1)
    local _, nearest = king:topk(3)
    return {losses = losses, king = king, nearest = nearest}
end
