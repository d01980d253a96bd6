-- nn_transformer.lua -- the transformer of flow.nn: layers of encoder and decoder, stacks of them, and both together.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"

local Module, signatures = module.Module, module.signatures
local nn = flow.nn

local FIRST = "dim_feedforward: integer >= 1 = 2048, dropout: number 0..1 = 0.1, " ..
    "activation: relu|gelu or function = relu"
local OTHERS = "layer_norm_eps: number >= 0 = 1e-5, batch_first: boolean = false, norm_first: boolean = false, " ..
    "bias: boolean = true"
local LAYER = "d_model: integer >= 1, nhead: integer >= 1, {" .. FIRST .. ", " .. OTHERS .. "}"

-- ---- layers ----

-- The parts that both layers have behind their attentions.
local function add_feedforward(self, width, opts)
    self.linear1 = nn.Linear(width, opts.dim_feedforward, {bias = opts.bias})
    self.dropout = nn.Dropout(opts.dropout)
    self.linear2 = nn.Linear(opts.dim_feedforward, width, {bias = opts.bias})
end

-- A normalisation and a dropout for each of the `count` parts with a residual.
local function add_norms(self, width, count, opts)
    for i = 1, count do self["norm" .. i] = nn.LayerNorm(width, {eps = opts.layer_norm_eps, bias = opts.bias}) end
    for i = 1, count do self["dropout" .. i] = nn.Dropout(opts.dropout) end
end

local function attention(width, heads, opts)
    return nn.MultiheadAttention(width, heads,
        {dropout = opts.dropout, bias = opts.bias, batch_first = opts.batch_first})
end

local function feedforward(self, x, last)
    local f = self.activation
    local y = type(f) == "string" and self.linear1(x, f) or f(self.linear1(x))
    return last(self.linear2(self.dropout(y)))
end

-- x plus f of it, normalised before f or behind the sum.
local function residual(self, x, norm, f)
    if self.norm_first then return x + f(norm(x)) end
    return norm(x + f(x))
end

-- Attention of x to memory. is_causal is only a hint that the mask is the causal one, so it needs the mask.
local function attended(layer, dropout, x, memory, mask, padding, causal)
    return dropout((layer(x, memory, memory, padding, false, mask, true, causal and mask ~= nil)))
end

---Self-attention and a feed-forward network, each with a residual and a normalisation.
---@class flow.nn.TransformerEncoderLayer: flow.nn.Module
local TransformerEncoderLayer = Module:extend("TransformerEncoderLayer")

---@param d_model integer
---@param nhead integer
---@param opts {dim_feedforward: integer, dropout: number, activation: string|function, layer_norm_eps: number,
---batch_first: boolean, norm_first: boolean, bias: boolean}?
function TransformerEncoderLayer:init(d_model, nhead, opts)
    self.norm_first, self.activation = opts.norm_first, opts.activation
    self.self_attn = attention(d_model, nhead, opts)
    add_feedforward(self, d_model, opts)
    add_norms(self, d_model, 2, opts)
end

---@param src any [steps, batch, d_model], with batch_first [batch, steps, d_model]; or without a batch
---@param is_causal boolean? a hint: src_mask is causal
function TransformerEncoderLayer:forward(src, src_mask, src_key_padding_mask, is_causal)
    local x = residual(self, src, self.norm1, function(y)
        return attended(self.self_attn, self.dropout1, y, y, src_mask, src_key_padding_mask, is_causal)
    end)
    return residual(self, x, self.norm2, function(y) return feedforward(self, y, self.dropout2) end)
end

signatures(TransformerEncoderLayer, "TransformerEncoderLayer(" .. LAYER .. ")",
    "forward(src: tensor, src_mask: tensor?, src_key_padding_mask: tensor?, is_causal: boolean = false)")

function TransformerEncoderLayer:extra()
    return self.norm_first and "norm_first=true" or ""
end

---Self-attention, attention to the memory of an encoder, and a feed-forward network.
---@class flow.nn.TransformerDecoderLayer: flow.nn.Module
local TransformerDecoderLayer = Module:extend("TransformerDecoderLayer")

---@param d_model integer
---@param nhead integer
---@param opts {dim_feedforward: integer, dropout: number, activation: string|function, layer_norm_eps: number,
---batch_first: boolean, norm_first: boolean, bias: boolean}?
function TransformerDecoderLayer:init(d_model, nhead, opts)
    self.norm_first, self.activation = opts.norm_first, opts.activation
    self.self_attn = attention(d_model, nhead, opts)
    self.multihead_attn = attention(d_model, nhead, opts)
    add_feedforward(self, d_model, opts)
    add_norms(self, d_model, 3, opts)
end

---@param tgt any [steps, batch, d_model], with batch_first [batch, steps, d_model]; or without a batch
---@param memory any what the encoder gives
function TransformerDecoderLayer:forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
    memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    local x = residual(self, tgt, self.norm1, function(y)
        return attended(self.self_attn, self.dropout1, y, y, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
    end)
    x = residual(self, x, self.norm2, function(y)
        return attended(self.multihead_attn, self.dropout2, y, memory, memory_mask, memory_key_padding_mask,
            memory_is_causal)
    end)
    return residual(self, x, self.norm3, function(y) return feedforward(self, y, self.dropout3) end)
end

local DECODED = "tgt: tensor, memory: tensor, tgt_mask: tensor?, memory_mask: tensor?, " ..
    "tgt_key_padding_mask: tensor?, memory_key_padding_mask: tensor?, tgt_is_causal: boolean = false, " ..
    "memory_is_causal: boolean = false"
signatures(TransformerDecoderLayer, "TransformerDecoderLayer(" .. LAYER .. ")", "forward(" .. DECODED .. ")")

function TransformerDecoderLayer:extra()
    return self.norm_first and "norm_first=true" or ""
end

-- ---- stacks ----

-- `count` copies of a layer, which begin with its weights.
local function copies(layer, count)
    local list = {}
    for i = 1, count do list[i] = layer:clone() end
    return nn.ModuleList(list)
end

---Encoder layers one after the other, each a copy of encoder_layer.
---@class flow.nn.TransformerEncoder: flow.nn.Module
local TransformerEncoder = Module:extend("TransformerEncoder")

---@param encoder_layer flow.nn.Module
---@param num_layers integer
---@param norm flow.nn.Module? applied to the last result
function TransformerEncoder:init(encoder_layer, num_layers, norm)
    self.layers = copies(encoder_layer, num_layers)
    self.norm = norm
end

function TransformerEncoder:forward(src, mask, src_key_padding_mask, is_causal)
    for _, layer in ipairs(self.layers) do src = layer(src, mask, src_key_padding_mask, is_causal) end
    return self.norm and self.norm(src) or src
end

signatures(TransformerEncoder, "TransformerEncoder(encoder_layer: module, num_layers: integer 1..4096, norm: module?)",
    "forward(src: tensor, mask: tensor?, src_key_padding_mask: tensor?, is_causal: boolean = false)")

---Decoder layers one after the other, each a copy of decoder_layer.
---@class flow.nn.TransformerDecoder: flow.nn.Module
local TransformerDecoder = Module:extend("TransformerDecoder")

---@param decoder_layer flow.nn.Module
---@param num_layers integer
---@param norm flow.nn.Module? applied to the last result
function TransformerDecoder:init(decoder_layer, num_layers, norm)
    self.layers = copies(decoder_layer, num_layers)
    self.norm = norm
end

function TransformerDecoder:forward(tgt, memory, ...)
    for _, layer in ipairs(self.layers) do tgt = layer(tgt, memory, ...) end
    return self.norm and self.norm(tgt) or tgt
end

signatures(TransformerDecoder, "TransformerDecoder(decoder_layer: module, num_layers: integer 1..4096, norm: module?)",
    "forward(" .. DECODED .. ")")

-- ---- both ----

---Encoder and decoder.
---@class flow.nn.Transformer: flow.nn.Module
local Transformer = Module:extend("Transformer")

---@param d_model integer? default 512
---@param nhead integer? default 8
---@param num_encoder_layers integer? default 6
---@param num_decoder_layers integer? default 6
---@param opts table? options of the layers; custom_encoder, custom_decoder: modules in their place
function Transformer:init(d_model, nhead, num_encoder_layers, num_decoder_layers, opts)
    local o = opts
    local options = {
        dim_feedforward = o.dim_feedforward, dropout = o.dropout, activation = o.activation, bias = o.bias,
        layer_norm_eps = o.layer_norm_eps, batch_first = o.batch_first, norm_first = o.norm_first,
    }
    local function norm() return nn.LayerNorm(d_model, {eps = o.layer_norm_eps, bias = o.bias}) end
    self.batch_first = o.batch_first
    self.encoder = o.custom_encoder
        or TransformerEncoder(TransformerEncoderLayer(d_model, nhead, options), num_encoder_layers, norm())
    self.decoder = o.custom_decoder
        or TransformerDecoder(TransformerDecoderLayer(d_model, nhead, options), num_decoder_layers, norm())
    for _, p in ipairs(self:parameters()) do
        if p.ndim > 1 then init.xavier_uniform(p) end
    end
end

function Transformer:forward(src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask,
    memory_key_padding_mask, src_is_causal, tgt_is_causal, memory_is_causal)
    local memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
    return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
        tgt_is_causal, memory_is_causal)
end

---A float mask [size, size] that takes out the keys behind each query.
---@param size integer
---@param opts table? dtype, device, placement and sbp of the mask
function Transformer.generate_square_subsequent_mask(size, opts)
    return flow.full({size, size}, -math.huge, opts or {}):triu(1)
end

check.takes(Transformer, {"generate_square_subsequent_mask(size: integer >= 0, opts: table?)"})

signatures(Transformer, "Transformer(d_model: integer >= 1 = 512, nhead: integer >= 1 = 8, " ..
    "num_encoder_layers: integer 1..4096 = 6, num_decoder_layers: integer 1..4096 = 6, " ..
    "{" .. FIRST .. ", custom_encoder: module?, custom_decoder: module?, " .. OTHERS .. "})",
    "forward(src: tensor, tgt: tensor, src_mask: tensor?, tgt_mask: tensor?, memory_mask: tensor?, " ..
    "src_key_padding_mask: tensor?, tgt_key_padding_mask: tensor?, memory_key_padding_mask: tensor?, " ..
    "src_is_causal: boolean = false, tgt_is_causal: boolean = false, memory_is_causal: boolean = false)")

return {
    TransformerEncoderLayer = TransformerEncoderLayer, TransformerDecoderLayer = TransformerDecoderLayer,
    TransformerEncoder = TransformerEncoder, TransformerDecoder = TransformerDecoder, Transformer = Transformer,
}
