-- nanogpt.lua -- nanoGPT: blocks of attention and MLP, weights that are tied, groups of weight decay, warmup and
-- cosine, clipping.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local Attention = nn.Module:extend("CausalSelfAttention")

function Attention:init(width, heads)
    self.c_attn = nn.Linear(width, 3 * width)
    self.c_proj = nn.Linear(width, width)
    self.heads = heads
end

function Attention:forward(x)
    local B, T, C = x:size(0), x:size(1), x:size(2)
    local function split_heads(t) return t:view(B, T, self.heads, C // self.heads):transpose(1, 2) end
    local q, k, v = self.c_attn(x):split(C, 2)
    local y = flow.scaled_dot_product_attention(split_heads(q), split_heads(k), split_heads(v), {is_causal = true})
    return self.c_proj(y:transpose(1, 2):contiguous():view(B, T, C))
end

local Block = nn.Module:extend("Block")

function Block:init(width, heads)
    self.ln_1 = nn.LayerNorm(width)
    self.attn = Attention(width, heads)
    self.ln_2 = nn.LayerNorm(width)
    self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
end

function Block:forward(x)
    x = x + self.attn(self.ln_1(x))
    return x + self.mlp(self.ln_2(x))
end

local GPT = nn.Module:extend("GPT")

function GPT:init(vocab, block_size, layers, heads, width)
    self.wte = nn.Embedding(vocab, width)
    self.wpe = nn.Embedding(block_size, width)
    self.h = nn.ModuleList()
    for _ = 1, layers do self.h:append(Block(width, heads)) end
    self.ln_f = nn.LayerNorm(width)
    self.lm_head = nn.Linear(width, vocab, {bias = false})
    self.lm_head.weight = self.wte.weight
end

function GPT:forward(ids, targets)
    local x = self.wte(ids) + self.wpe(flow.arange(ids:size(1)))
    for _, block in ipairs(self.h) do x = block(x) end
    local scores = self.lm_head(self.ln_f(x))
    return scores, targets and flow.cross_entropy(scores:view(-1, scores:size(-1)), targets:reshape(-1))
end

return function(capture)
    local model = fill.module(GPT(30, 12, 2, 4, 16))
    local decay, rest = {}, {}
    for _, p in model:named_parameters() do table.insert(p.ndim >= 2 and decay or rest, p) end
    local optimizer = optim.AdamW({{params = decay, weight_decay = 0.1}, {params = rest, weight_decay = 0}},
        {lr = 1e-2, betas = {0.9, 0.95}})
    local scheduler = optim.lr_scheduler.LambdaLR(optimizer, function(it)
        if it < 2 then return (it + 1) / 3 end
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (it - 2) / 6))
    end)
    local step = capture(function(x, y)
        local _, loss = model(x, y)
        optimizer:zero_grad()
        loss:backward()
        local norm = optim.clip_grad_norm(model:parameters(), 1.0)
        optimizer:step()
        scheduler:step()
        return loss, norm
    end)
    local tokens = fill.integers({8, 13}, 9, 30)
    local losses, norms = {}, {}
    for i = 0, 5 do
        local batch = tokens[{{i % 2 * 4, i % 2 * 4 + 4}}]
        local loss, norm = step(batch[{{}, {0, 12}}], batch[{{}, {1, 13}}])
        losses[#losses + 1], norms[#norms + 1] = loss:item(), norm:item()
    end
    local ids = tokens[{{0, 1}, {0, 4}}]
    flow.no_grad(function()
        for _ = 1, 6 do ids = flow.cat({ids, (model(ids))[{{}, -1}]:argmax(-1, true)}, 1) end
    end)
    return {losses = losses, norms = norms, written = ids, lr = scheduler:get_last_lr()}
end
