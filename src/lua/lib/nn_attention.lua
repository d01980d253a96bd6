-- nn_attention.lua -- attention of flow.nn: MultiheadAttention, rotary and sinusoidal positions, ALiBi, and a cache of
-- keys and values.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"

local Module, signatures, op = module.Module, module.signatures, flow._op
local MINUS_INFINITY = -math.huge

-- ---- multi-head attention ----

---Attention of several heads over projections of query, key and value; weights and masks are PyTorch's: in a bool mask
---true means that a key takes no part.
---@class flow.nn.MultiheadAttention: flow.nn.Module
local MultiheadAttention = Module:extend("MultiheadAttention")

---@param embed_dim integer
---@param num_heads integer
---@param opts {dropout: number, bias: boolean, add_bias_kv: boolean, add_zero_attn: boolean, kdim: integer,
---vdim: integer, batch_first: boolean}?
function MultiheadAttention:init(embed_dim, num_heads, opts)
    local o, kdim, vdim = opts, opts.kdim or embed_dim, opts.vdim or embed_dim
    if embed_dim % num_heads ~= 0 then
        check.fail("MultiheadAttention: embed_dim %d is not a multiple of %d heads", embed_dim, num_heads)
    end
    self.embed_dim, self.num_heads, self.kdim, self.vdim = embed_dim, num_heads, kdim, vdim
    self.dropout, self.add_zero_attn, self.batch_first = o.dropout, o.add_zero_attn, o.batch_first
    local function weight(wanted, rows, columns)
        return wanted and module.Parameter(init.xavier_uniform(flow.empty(rows, columns))) or nil
    end
    local apart = kdim ~= embed_dim or vdim ~= embed_dim
    self.in_proj_weight = weight(not apart, 3 * embed_dim, embed_dim)
    self.q_proj_weight = weight(apart, embed_dim, embed_dim)
    self.k_proj_weight = weight(apart, embed_dim, kdim)
    self.v_proj_weight = weight(apart, embed_dim, vdim)
    self.in_proj_bias = o.bias and module.Parameter(flow.zeros(3 * embed_dim)) or nil
    self.bias_k = o.add_bias_kv and module.Parameter(init.xavier_normal(flow.empty(1, 1, embed_dim))) or nil
    self.bias_v = o.add_bias_kv and module.Parameter(init.xavier_normal(flow.empty(1, 1, embed_dim))) or nil
    self.out_proj = flow.nn.Linear(embed_dim, embed_dim, {bias = o.bias})
    if o.bias then init.zeros(self.out_proj.bias) end
end

-- The rows of the joint projection from part `first` on, `count` of them: weight and bias.
local function joint(self, first, count)
    local width, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
    if count == 3 then return weight, bias end
    return weight:narrow(0, first * width, count * width), bias and bias:narrow(0, first * width, count * width)
end

-- q, k and v [batch, steps, embed_dim]: one product for those that are the same tensor.
local function project(self, query, key, value)
    if self.q_proj_weight then
        local function bias(i)
            return self.in_proj_bias and self.in_proj_bias:narrow(0, i * self.embed_dim, self.embed_dim)
        end
        return op.linear(query, self.q_proj_weight, bias(0)), op.linear(key, self.k_proj_weight, bias(1)),
            op.linear(value, self.v_proj_weight, bias(2))
    elseif rawequal(key, value) and rawequal(query, key) then
        return op.linear(query, joint(self, 0, 3)):chunk(3, -1)
    elseif rawequal(key, value) then
        return op.linear(query, joint(self, 0, 1)), op.linear(key, joint(self, 1, 2)):chunk(2, -1)
    end
    return op.linear(query, joint(self, 0, 1)), op.linear(key, joint(self, 1, 1)), op.linear(value, joint(self, 2, 1))
end

-- A mask as what is added to the scores.
local function additive(mask, dtype)
    if mask.dtype ~= "bool" then return mask:to(dtype) end
    return flow.zeros_like(mask, {dtype = dtype}):masked_fill(mask, MINUS_INFINITY)
end

-- A column more, of keys that take part.
local function widened(mask)
    return mask and flow.cat({mask, flow.zeros_like(mask:narrow(-1, 0, 1))}, -1)
end

-- A mask is bool or float, and has one of the given shapes.
local function check_mask(name, mask, ...)
    if mask == nil then return end
    check.tensor("MultiheadAttention", name, mask)
    if mask.dtype ~= "bool" and not mask.dtype:find "float" then
        check.fail("MultiheadAttention: %s must be bool (true takes no part) or float (added to the scores), got %s",
            name, mask.dtype)
    end
    local got, wanted = check.shape(mask), {...}
    for i, shape in ipairs(wanted) do
        wanted[i] = "[" .. table.concat(shape, ", ") .. "]"
        if wanted[i] == got then return end
    end
    check.fail("MultiheadAttention: %s must be %s, got %s", name, table.concat(wanted, " or "), got)
end

-- Both masks as one that broadcasts to [batch, heads, queries, keys], or nil. While all are bool so is the result.
local function joined_mask(attn_mask, key_padding_mask, batch, heads, dtype)
    if attn_mask and attn_mask.ndim == 3 then
        attn_mask = attn_mask:view(batch, heads, attn_mask:size(1), attn_mask:size(2))
    end
    local padding = key_padding_mask and key_padding_mask:unsqueeze(1):unsqueeze(1)
    if not (attn_mask and padding) then return attn_mask or padding end
    if attn_mask.dtype == "bool" and padding.dtype == "bool" then return attn_mask:logical_or(padding) end
    return additive(attn_mask, dtype) + additive(padding, dtype)
end

-- [batch, steps, embed_dim] -> [batch, heads, steps, embed_dim / heads]
local function split_heads(x, heads)
    return x:reshape(x:size(0), x:size(1), heads, x:size(2) // heads):transpose(1, 2)
end

-- The weights [batch, heads, queries, keys], and with dropout what values are multiplied with.
local function attention_weights(self, q, k, mask)
    local scores = (q * (1 / math.sqrt(q:size(-1)))):matmul(k:transpose(-1, -2))
    if mask then scores = scores + additive(mask, scores.dtype) end
    local weights = scores:softmax(-1)
    return self.training and self.dropout > 0 and flow.dropout(weights, self.dropout) or weights
end

-- [batch, heads, steps, width] of each: the result, and the weights where they are wanted, which the fused op has not.
local function attend(self, q, k, v, mask, causal, need_weights)
    if need_weights then
        local weights = attention_weights(self, q, k, mask)
        return weights:matmul(v), weights
    end
    if mask and mask.dtype == "bool" then mask = mask:logical_not() end
    return flow.scaled_dot_product_attention(q, k, v, {
        mask = mask, is_causal = causal, dropout = self.training and self.dropout or 0,
    })
end

-- An input without a batch, or with steps first, as [batch, steps, width].
local function batched(x, unbatched, batch_first)
    if unbatched then return x:unsqueeze(0) end
    return batch_first and x or x:transpose(0, 1)
end

-- All three have a batch or none, and the widths of the layer.
local function check_inputs(self, query, key, value)
    local n = query.ndim
    for name, x in pairs {query = query, key = key, value = value} do
        local width = name == "query" and self.embed_dim or name == "key" and self.kdim or self.vdim
        if n ~= 2 and n ~= 3 or x.ndim ~= n or x:size(-1) ~= width then
            check.fail("MultiheadAttention: %s must have %s axes and the width %d, got %s", name,
                name == "query" and "2 or 3" or n, width, check.shape(x))
        end
    end
end

---The attention of query to key and value, and its weights [batch, queries, keys] (nil without need_weights).
function MultiheadAttention:forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
    is_causal)
    check_inputs(self, query, key, value)
    if is_causal and not attn_mask then
        check.fail("MultiheadAttention: is_causal is a hint about attn_mask, which must be given too")
    end
    local unbatched, same_kv, same = query.ndim == 2, rawequal(key, value), rawequal(query, key)
    query = batched(query, unbatched, self.batch_first)
    key = same and query or batched(key, unbatched, self.batch_first)
    value = same_kv and key or batched(value, unbatched, self.batch_first)
    local batch, queries, keys, heads = query:size(0), query:size(1), key:size(1), self.num_heads
    if key:size(0) ~= batch or value:size(0) ~= batch or value:size(1) ~= keys then
        check.fail("MultiheadAttention: batches of %d, %d and %d and %d keys for %d values do not fit", batch,
            key:size(0), value:size(0), keys, value:size(1))
    end
    check_mask("attn_mask", attn_mask, {queries, keys}, {batch * heads, queries, keys})
    if unbatched then
        check_mask("key_padding_mask", key_padding_mask, {keys})
        key_padding_mask = key_padding_mask and key_padding_mask:unsqueeze(0)
    else
        check_mask("key_padding_mask", key_padding_mask, {batch, keys})
    end
    local causal = is_causal and not key_padding_mask and not need_weights
    if causal then attn_mask = nil end
    local q, k, v = project(self, query, key, value)
    if self.bias_k then
        k = flow.cat({k, self.bias_k:expand(batch, 1, self.embed_dim)}, 1)
        v = flow.cat({v, self.bias_v:expand(batch, 1, self.embed_dim)}, 1)
        attn_mask, key_padding_mask = widened(attn_mask), widened(key_padding_mask)
    end
    q, k, v = split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)
    if self.add_zero_attn then
        k = flow.cat({k, flow.zeros_like(k:narrow(2, 0, 1))}, 2)
        v = flow.cat({v, flow.zeros_like(v:narrow(2, 0, 1))}, 2)
        attn_mask, key_padding_mask = widened(attn_mask), widened(key_padding_mask)
    end
    local mask = joined_mask(attn_mask, key_padding_mask, batch, heads, q.dtype)
    local y, weights = attend(self, q, k, v, mask, causal or false, need_weights)
    y = self.out_proj(y:transpose(1, 2):reshape(batch, queries, self.embed_dim))
    if weights and average_attn_weights then weights = weights:mean(1) end
    if unbatched then
        y, weights = y:squeeze(0), weights and weights:squeeze(0)
    elseif not self.batch_first then
        y = y:transpose(0, 1)
    end
    if weights then return y, weights end
    return y
end

signatures(MultiheadAttention, "MultiheadAttention(embed_dim: integer >= 1, num_heads: integer >= 1, " ..
    "{dropout: number 0..1 = 0, bias: boolean = true, add_bias_kv: boolean = false, add_zero_attn: boolean = false, " ..
    "kdim: integer >= 1?, vdim: integer >= 1?, batch_first: boolean = false})",
    "forward(query: tensor, key: tensor, value: tensor, key_padding_mask: tensor?, need_weights: boolean = true, " ..
    "attn_mask: tensor?, average_attn_weights: boolean = true, is_causal: boolean = false)")

function MultiheadAttention:extra()
    local text = ("%d, num_heads=%d"):format(self.embed_dim, self.num_heads)
    if self.dropout ~= 0 then text = text .. (", dropout=%g"):format(self.dropout) end
    return self.batch_first and text .. ", batch_first=true" or text
end

-- ---- positions ----

-- Options of what is computed for x: float64 where x is, else float32, in which large positions are whole.
local function exactly_like(x)
    return flow.nn.like(x, {dtype = x.dtype == "float64" and "float64" or "float32"})
end

-- Angles [steps, width / 2] of positions first, first + 1, ...: position / base^(2 i / width).
local function angles(x, steps, width, base, first)
    local like = exactly_like(x)
    local frequency = (flow.arange(0, width, 2, like) * (-math.log(base) / width)):exp()
    return flow.arange(first, first + steps, 1, like):unsqueeze(1) * frequency
end

---Rotary positions of queries and keys (RoPE): pairs of elements are turned by angles that grow with the position.
---@class flow.nn.RotaryEmbedding: flow.nn.Module
local RotaryEmbedding = Module:extend("RotaryEmbedding")

---@param width integer of a head
---@param opts {base: number, interleaved: boolean}? interleaved: pairs are neighbours, else an element of each half
function RotaryEmbedding:init(width, opts)
    if width % 2 ~= 0 then check.fail("RotaryEmbedding: width must be even, got %d", width) end
    self.width, self.base, self.interleaved = width, opts.base, opts.interleaved
end

---@param x any [..., steps, width]
---@param first integer? position of the first step, default 0
function RotaryEmbedding:forward(x, first)
    if x.ndim < 2 or x:size(-1) ~= self.width then
        check.fail("RotaryEmbedding: x must be [..., steps, %d], got %s", self.width, check.shape(x))
    end
    local turn = angles(x, x:size(-2), self.width, self.base, first)
    local cos, sin = turn:cos():to(x.dtype), turn:sin():to(x.dtype)
    if self.interleaved then
        local sizes = {table.unpack(x.shape)}
        sizes[#sizes] = self.width // 2
        sizes[#sizes + 1] = 2
        local pairs_ = x:reshape(sizes)
        local a, b = pairs_:select(-1, 0), pairs_:select(-1, 1)
        return flow.stack({a * cos - b * sin, b * cos + a * sin}, -1):reshape(x.shape)
    end
    local a, b = x:chunk(2, -1)
    return flow.cat({a * cos - b * sin, b * cos + a * sin}, -1)
end

signatures(RotaryEmbedding, "RotaryEmbedding(width: integer >= 2, {base: number >= 1 = 10000, " ..
    "interleaved: boolean = false})", "forward(x: tensor, first: integer >= 0 = 0)")

function RotaryEmbedding:extra()
    return ("%d, base=%g%s"):format(self.width, self.base, self.interleaved and ", interleaved=true" or "")
end

---Adds sines and cosines of the position: those of "Attention Is All You Need".
---@class flow.nn.SinusoidalPositions: flow.nn.Module
local SinusoidalPositions = Module:extend("SinusoidalPositions")

---@param width integer
---@param opts {base: number}?
function SinusoidalPositions:init(width, opts)
    if width % 2 ~= 0 then check.fail("SinusoidalPositions: width must be even, got %d", width) end
    self.width, self.base = width, opts.base
end

---@param x any [..., steps, width]
---@param first integer? position of the first step, default 0
function SinusoidalPositions:forward(x, first)
    if x.ndim < 2 or x:size(-1) ~= self.width then
        check.fail("SinusoidalPositions: x must be [..., steps, %d], got %s", self.width, check.shape(x))
    end
    local at = angles(x, x:size(-2), self.width, self.base, first)
    return x + flow.stack({at:sin(), at:cos()}, -1):reshape(x:size(-2), self.width):to(x.dtype)
end

signatures(SinusoidalPositions, "SinusoidalPositions(width: integer >= 2, {base: number >= 1 = 10000})",
    "forward(x: tensor, first: integer >= 0 = 0)")

function SinusoidalPositions:extra()
    return ("%d, base=%g"):format(self.width, self.base)
end

---The mask of attention with linear biases, [heads, queries, keys]: scores fall with the distance of a key, at a slope
---of the head's own; queries are the last of the keys.
---@class flow.nn.ALiBi: flow.nn.Module
local ALiBi = Module:extend("ALiBi")

---@param num_heads integer
---@param opts {causal: boolean}? causal: keys behind the query take no part
function ALiBi:init(num_heads, opts)
    self.num_heads, self.causal = num_heads, opts.causal
end

-- 2^(-8 i / n) for powers of two n; the others take every other slope of the next one.
local function slopes(count)
    local whole = 1 << math.floor(math.log(count, 2))
    local list = {}
    for i = 1, whole do list[i] = 2 ^ (-8 * i / whole) end
    for i = 1, count - whole do list[whole + i] = 2 ^ (-4 * (2 * i - 1) / whole) end
    return list
end

---@param x any a tensor where the mask shall be, of its dtype
---@param queries integer
---@param keys integer? default: as many
function ALiBi:forward(x, queries, keys)
    keys = keys or queries
    local like = exactly_like(x)
    local at = flow.arange(keys - queries, keys, 1, like):unsqueeze(1)
    local distance = flow.arange(0, keys, 1, like) - at
    local mask = flow.tensor(slopes(self.num_heads), like):view(self.num_heads, 1, 1) * -distance:abs()
    if self.causal then mask = mask:masked_fill(distance:gt(0), MINUS_INFINITY) end
    return mask:to(x.dtype)
end

signatures(ALiBi, "ALiBi(num_heads: integer >= 1, {causal: boolean = true})",
    "forward(x: tensor, queries: integer >= 0, keys: integer >= 0?)")

function ALiBi:extra()
    return ("num_heads=%d%s"):format(self.num_heads, self.causal and "" or ", causal=false")
end

-- ---- decoding ----

---Keys and values of the steps so far, for decoding step by step. Memory grows by doubling; no gradients.
---@class flow.nn.KVCache: flow.nn.Module
local KVCache = Module:extend("KVCache")

function KVCache:init()
    self.length = 0
    self._kept = {}
end

-- x behind what is kept under `name`; all of it, a view.
local function append(self, name, x)
    local count, kept = self.length + x:size(-2), self._kept
    if not kept[name] or kept[name]:size(-2) < count then
        local sizes = {table.unpack(x.shape)}
        sizes[#sizes - 1] = math.max(16, 2 * count)
        local grown = x.is_global and flow.zeros(sizes, {placement = x.placement, sbp = x.sbp, dtype = x.dtype})
            or flow.zeros(sizes, {dtype = x.dtype, device = x.device})
        if self.length > 0 then grown:narrow(-2, 0, self.length):copy_(kept[name]:narrow(-2, 0, self.length)) end
        kept[name] = grown
    end
    kept[name]:narrow(-2, self.length, x:size(-2)):copy_(x)
    return kept[name]:narrow(-2, 0, count)
end

---Appends keys and values [..., steps, width] and gives all of them.
function KVCache:forward(k, v)
    return flow.no_grad(function()
        local keys, values = append(self, "k", k:detach()), append(self, "v", v:detach())
        self.length = self.length + k:size(-2)
        return keys, values
    end)
end

---Forgets everything.
function KVCache:reset()
    self:init()
end

signatures(KVCache, "KVCache()", "forward(k: tensor, v: tensor)", "reset()")

function KVCache:extra()
    return "length=" .. self.length
end

check.methods(KVCache, "cache", {"reset()"}, module.is_module)

return {
    MultiheadAttention = MultiheadAttention, RotaryEmbedding = RotaryEmbedding,
    SinusoidalPositions = SinusoidalPositions, ALiBi = ALiBi, KVCache = KVCache,
}
