-- gpt2_weights.lua -- GPT-2 from a checkpoint with the names and layouts of Hugging Face's: matrices of its Conv1D
-- are [in, out]. In float32, as the checkpoint is.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn = flow.nn

local vocab <const>, context <const>, layers <const>, heads <const>, width <const> = 40, 16, 2, 2, 12

-- A small model.safetensors.
local function write_checkpoint(path)
    local tensors, seed = {}, 0
    local function add(name, sizes, scale, around)
        seed = seed + 1
        tensors[name] = (fill.values(sizes, seed, scale) + (around or 0)):to("float32")
    end
    local function affine(name, n)
        add(name .. ".weight", {n}, 0.2, 1)
        add(name .. ".bias", {n}, 0.2)
    end
    local function conv1d(name, inputs, outputs)
        add(name .. ".weight", {inputs, outputs}, 1)
        add(name .. ".bias", {outputs}, 0.2)
    end
    add("wte.weight", {vocab, width}, 1)
    add("wpe.weight", {context, width}, 0.3)
    for i = 0, layers - 1 do
        local h = "h." .. i
        affine(h .. ".ln_1", width)
        conv1d(h .. ".attn.c_attn", width, 3 * width)
        conv1d(h .. ".attn.c_proj", width, width)
        affine(h .. ".ln_2", width)
        conv1d(h .. ".mlp.c_fc", width, 4 * width)
        conv1d(h .. ".mlp.c_proj", 4 * width, width)
    end
    affine("ln_f", width)
    flow.save(path, tensors)
end

local Block = nn.Module:extend("Block")

function Block:init()
    self.ln_1 = nn.LayerNorm(width)
    self.attn = nn.ModuleDict {c_attn = nn.Linear(width, 3 * width), c_proj = nn.Linear(width, width)}
    self.ln_2 = nn.LayerNorm(width)
    self.mlp = nn.ModuleDict {c_fc = nn.Linear(width, 4 * width), c_proj = nn.Linear(4 * width, width)}
end

function Block:forward(x)
    local q, k, v = self.attn.c_attn(self.ln_1(x)):split(width, -1)
    local function by_heads(t) return t:unflatten(-1, {heads, -1}):transpose(1, 2) end
    local y = flow.scaled_dot_product_attention(by_heads(q), by_heads(k), by_heads(v), {is_causal = true})
    x = x + self.attn.c_proj(y:transpose(1, 2):flatten(2))
    return x + self.mlp.c_proj(flow.gelu(self.mlp.c_fc(self.ln_2(x)), "tanh"))
end

local GPT2 = nn.Module:extend("GPT2")

function GPT2:init()
    self.wte = nn.Embedding(vocab, width)
    self.wpe = nn.Embedding(context, width)
    self.h = nn.ModuleList()
    for _ = 1, layers do self.h:append(Block()) end
    self.ln_f = nn.LayerNorm(width)
end

function GPT2:forward(ids)
    local x = self.wte(ids) + self.wpe(flow.arange(ids:size(-1)))
    for _, block in ipairs(self.h) do x = block(x) end
    return flow.linear(self.ln_f(x), self.wte.weight)
end

-- Conv1D's matrices are turned; blocks, which count from 0 there, count from 1 here.
local function from_pretrained(path)
    local state = {}
    for name, tensor in pairs(flow.load(path)) do
        local turned = name:find "attn%.c_.*weight$" or name:find "mlp%.c_.*weight$"
        name = name:gsub("^h%.(%d+)", function(i) return "h." .. math.tointeger(i) + 1 end)
        state[name] = turned and tensor:t() or tensor
    end
    local model = GPT2()
    model:load_state_dict(state)
    return model:eval()
end

return function(capture)
    local path = os.tmpname()
    write_checkpoint(path)
    local model = from_pretrained(path)
    os.remove(path)

    local _ <close> = flow.no_grad()
    local logits = capture(function(ids) return model(ids) end)
    local ids = fill.integers({2, 6}, 50, vocab)
    local loss = flow.cross_entropy(logits(ids)[{{}, {0, -1}}]:flatten(0, 1), ids[{{}, {1, 6}}]:flatten())
    local row = logits(ids)[{0, -1}]
    for _ = 1, 8 do ids = flow.cat({ids, logits(ids)[{{}, -1}]:argmax(-1, true)}, 1) end
    return {loss = loss, logits = row, written = ids}
end
