-- llama.lua -- LLaMA: RMSNorm, rotary positions, heads that share keys and values (GQA), SwiGLU, and a cache for
-- writing.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local width <const>, heads <const>, kv_heads <const>, vocab <const> = 16, 4, 2, 30
local size <const> = width // heads

local Attention = nn.Module:extend("Attention")

function Attention:init()
    self.q_proj = nn.Linear(width, heads * size, {bias = false})
    self.k_proj = nn.Linear(width, kv_heads * size, {bias = false})
    self.v_proj = nn.Linear(width, kv_heads * size, {bias = false})
    self.o_proj = nn.Linear(heads * size, width, {bias = false})
    self.rope = nn.RotaryEmbedding(size)
end

-- cache: keys and values of the positions before x.
function Attention:forward(x, cache)
    local function by_heads(y) return y:unflatten(-1, {-1, size}):transpose(1, 2) end
    local first = cache and cache.length or 0
    local q = self.rope(by_heads(self.q_proj(x)), first)
    local k = self.rope(by_heads(self.k_proj(x)), first)
    local v = by_heads(self.v_proj(x))
    if cache then k, v = cache(k, v) end
    local y = flow.scaled_dot_product_attention(q, k, v, {is_causal = first == 0, enable_gqa = true})
    return self.o_proj(y:transpose(1, 2):flatten(2))
end

local Block = nn.Module:extend("Block")

function Block:init()
    self.input_norm = nn.RMSNorm(width, {eps = 1e-5})
    self.attention = Attention()
    self.post_norm = nn.RMSNorm(width, {eps = 1e-5})
    self.gate_proj = nn.Linear(width, 40, {bias = false})
    self.up_proj = nn.Linear(width, 40, {bias = false})
    self.down_proj = nn.Linear(40, width, {bias = false})
end

function Block:forward(x, cache)
    x = x + self.attention(self.input_norm(x), cache)
    local h = self.post_norm(x)
    return x + self.down_proj(flow.silu(self.gate_proj(h)) * self.up_proj(h))
end

local Llama = nn.Module:extend("Llama")

function Llama:init()
    self.embed = nn.Embedding(vocab, width)
    self.layers = nn.ModuleList(Block(), Block())
    self.norm = nn.RMSNorm(width, {eps = 1e-5})
    self.lm_head = nn.Linear(width, vocab, {bias = false})
end

function Llama:forward(ids, caches)
    local x = self.embed(ids)
    for i, layer in ipairs(self.layers) do x = layer(x, caches and caches[i]) end
    return self.lm_head(self.norm(x))
end

return function(capture)
    local model = fill.module(Llama())
    local optimizer = optim.AdamW(model:parameters(), {lr = 5e-3, betas = {0.9, 0.95}, weight_decay = 0.1})
    local step = capture(function(x, y)
        local loss = flow.cross_entropy(model(x):flatten(0, 1), y:flatten())
        optimizer:zero_grad()
        loss:backward()
        optim.clip_grad_norm(model:parameters(), 1.0)
        optimizer:step()
        return loss
    end)
    local tokens = fill.integers({4, 11}, 40, vocab)
    local losses = {}
    for i = 1, 5 do losses[i] = step(tokens[{{}, {0, 10}}], tokens[{{}, {1, 11}}]):item() end

    local _ <close> = flow.no_grad()
    local caches, written = {nn.KVCache(), nn.KVCache()}, {}
    local ids = tokens[{{0, 1}, {0, 5}}]
    for i = 1, 6 do
        ids = model(ids, caches)[{{}, -1}]:argmax(-1, true)
        written[i] = ids:item()
    end
    return {losses = losses, written = written, scores = model(tokens)[{1, 10}]}
end
