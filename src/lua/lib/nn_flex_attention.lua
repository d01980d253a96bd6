-- nn_flex_attention.lua -- flow.nn.attention: attention whose scores and masks are functions of a script, by the names
-- of torch.nn.attention.flex_attention.
--
-- A function gets positions as int64 tensors that broadcast to the scores: [batch, 1, 1, 1], [1, heads, 1, 1],
-- [1, 1, queries, 1] and [1, 1, 1, keys]; it may look them up in tensors. It is called once, for all scores. Without a
-- score_mod the fused scaled_dot_product_attention computes, with the mask.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- 0, 1, ... along one axis of four.
local function positions(count, axis, options)
    local shape = {1, 1, 1, 1}
    shape[axis] = count
    return flow.arange(count, options):reshape(shape)
end

local function all_positions(sizes, options)
    return positions(sizes[1], 1, options), positions(sizes[2], 2, options), positions(sizes[3], 3, options),
        positions(sizes[4], 4, options)
end

-- ---- masks ----

---True everywhere.
function M.noop_mask(b) return flow.ones_like(b):to "bool" end

local function joined(who, op, ...)
    local mods = {...}
    for i = 1, select("#", ...) do
        if not check.is("function", mods[i]) then
            check.fail("%s: argument %d must be a function, got %s", who, i, check.got(mods[i]))
        end
    end
    if #mods == 0 then check.fail("%s: needs at least one function", who) end
    return function(...)
        local result = mods[1](...)
        for i = 2, #mods do result = op(result, mods[i](...)) end
        return result
    end
end

---A mask function that is true where all of these are.
function M.and_masks(...) return joined("and_masks", flow.logical_and, ...) end
---A mask function that is true where one of these is.
function M.or_masks(...) return joined("or_masks", flow.logical_or, ...) end

---The mask [B, H, Q_LEN, KV_LEN] that mask_mod(b, h, q_idx, kv_idx) gives; nil for B or H: it is the same for all.
---@param mask_mod function
---@param B integer?
---@param H integer?
---@param Q_LEN integer
---@param KV_LEN integer
---@param opts {device: string}
---@return table bool tensor
function M.create_mask(mask_mod, B, H, Q_LEN, KV_LEN, opts)
    local sizes = {B or 1, H or 1, Q_LEN, KV_LEN}
    local mask = mask_mod(all_positions(sizes, {device = opts.device}))
    if not check.is_tensor(mask) or mask.dtype ~= "bool" then
        check.fail("create_mask: mask_mod must give a bool tensor, got %s", check.got(mask))
    end
    return mask:expand(sizes)
end

---@class flow.nn.BlockMask
---@field mask table bool tensor [B, H, Q_LEN, KV_LEN]
---@field mask_mod function
---@field shape integer[]
local BlockMask = {}
local block_meta = {__name = "block mask", __index = BlockMask}

---The share of blocks, in percent, in which nothing is attended to.
---@return number
function BlockMask:sparsity()
    local size, sizes = self.BLOCK_SIZE, self.shape
    local padded = flow.nn.functional.pad(self.mask:to "float32", {0, -sizes[4] % size, 0, -sizes[3] % size})
    local blocks = padded:unflatten(3, {-1, size}):unflatten(2, {-1, size}):amax({3, 5})
    return 100 - blocks:mean():item() * 100
end

function block_meta:__tostring()
    return ("BlockMask(shape=(%s), sparsity=%.2f%%)"):format(table.concat(self.shape, ", "), self:sparsity())
end

local function is_block_mask(value) return getmetatable(value) == block_meta end
check.methods(BlockMask, "block mask", {"sparsity()"}, is_block_mask)
check.define_type("block_mask", "what create_block_mask gave", is_block_mask)

---The mask of create_mask, for flex_attention.
---@param mask_mod function
---@param B integer?
---@param H integer?
---@param Q_LEN integer
---@param KV_LEN integer
---@param opts {device: string, BLOCK_SIZE: integer} BLOCK_SIZE: of the blocks that sparsity() counts
---@return flow.nn.BlockMask
function M.create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, opts)
    return setmetatable({
        mask = M.create_mask(mask_mod, B, H, Q_LEN, KV_LEN, {device = opts.device}), mask_mod = mask_mod,
        shape = {B or 1, H or 1, Q_LEN, KV_LEN}, BLOCK_SIZE = opts.BLOCK_SIZE,
    }, block_meta)
end

-- ---- attention ----

local function check_operands(q, k, v, sizes, block_mask, enable_gqa)
    if q.ndim ~= 4 or k.ndim ~= 4 or v.ndim ~= 4 then
        check.fail("flex_attention: query, key and value must be [batch, heads, length, width], got %s, %s and %s",
            check.shape(q), check.shape(k), check.shape(v))
    end
    local heads = k:size(1)
    if sizes[2] ~= heads and not (enable_gqa and sizes[2] % heads == 0) then
        check.fail("flex_attention: query has %d heads and key %d; enable_gqa = true shares those of key", sizes[2],
            heads)
    end
    local shape = block_mask and block_mask.shape
    for i = 1, shape and 4 or 0 do
        if shape[i] ~= sizes[i] and not (i <= 2 and shape[i] == 1) then
            check.fail("flex_attention: the mask is [%s], the scores are [%s]", table.concat(shape, ", "),
                table.concat(sizes, ", "))
        end
    end
end

-- The mask where the operands are.
local function mask_beside(q, mask)
    if not mask or not q.is_global or mask.is_global then return mask end
    local where = flow.nn.like(q)
    return mask:to_global {placement = where.placement, sbp = where.sbp}
end

-- softmax(scores) v and the logarithms of the sums of exponentials; a row in which nothing is attended to gives 0.
local function attended(scores, v, dtype)
    local lse = scores:logsumexp(-1)
    local nothing = lse:eq(-math.huge)
    local weights = (scores - lse:masked_fill(nothing, 0):unsqueeze(-1)):exp()
    return weights:matmul(v:to(scores.dtype)):to(dtype), lse
end

---softmax(score_mod(query key^T scale)) value over [batch, heads, length, width]. score_mod(score, b, h, q_idx, kv_idx)
---gives new scores; pairs that block_mask leaves out do not count.
---@param query table tensor
---@param key table tensor
---@param value table tensor
---@param opts {score_mod: function, block_mask: flow.nn.BlockMask, scale: number, enable_gqa: boolean,
---return_lse: boolean} scale: default 1 / sqrt(width); enable_gqa: heads of key and value serve several of query;
---return_lse: the logarithms of the sums of exponentials as a second result
function M.flex_attention(query, key, value, opts)
    local sizes = {query:size(0), query.ndim > 1 and query:size(1), query:size(-2), key:size(-2)}
    check_operands(query, key, value, sizes, opts.block_mask, opts.enable_gqa)
    local mask = mask_beside(query, opts.block_mask and opts.block_mask.mask)
    if not opts.score_mod and not opts.return_lse then
        return flow.scaled_dot_product_attention(query, key, value, {
            mask = mask, scale = opts.scale, enable_gqa = opts.enable_gqa,
        })
    end
    local dtype, share = query.dtype, sizes[2] // key:size(1)
    if share > 1 then key, value = key:repeat_interleave(share, 1), value:repeat_interleave(share, 1) end
    local wide = dtype:find "16" and "float32" or dtype
    local scores = query:to(wide):matmul(key:to(wide).mT) * (opts.scale or 1 / math.sqrt(query:size(-1)))
    if opts.score_mod then
        scores = opts.score_mod(scores, all_positions(sizes, flow.nn.like(query, {dtype = "int64"})))
        if not check.is_tensor(scores) or not scores.dtype:find "float" then
            check.fail("flex_attention: score_mod must give scores, got %s", check.got(scores))
        end
        scores = scores:expand(sizes)
    end
    if mask then scores = scores:masked_fill(mask:logical_not(), -math.huge) end
    local result, lse = attended(scores, value, dtype)
    if opts.return_lse then return result, lse end
    return result
end

local LENGTHS = "B: integer >= 1?, H: integer >= 1?, Q_LEN: integer >= 0, KV_LEN: integer >= 0"
check.takes(M, {
    "noop_mask(b: tensor, h: any?, q_idx: any?, kv_idx: any?)",
    "create_mask(mask_mod: function, " .. LENGTHS .. ", {device: string?})",
    "create_block_mask(mask_mod: function, " .. LENGTHS .. ", {device: string?, BLOCK_SIZE: integer >= 1 = 128})",
    [[flex_attention(query: weight, key: weight, value: weight, {score_mod: function?, block_mask: block_mask?,
        scale: number?, enable_gqa: boolean = false, return_lse: boolean = false})]],
})

return {attention = check.strict("nn.attention", M)}
