-- nn_embedding.lua -- layers of flow.nn with small composites: EmbeddingBag, Bilinear, Unflatten.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"

local Module, signatures = module.Module, module.signatures

---Sums, means or maxima of bags of rows of a table.
---@class flow.nn.EmbeddingBag: flow.nn.Module
local EmbeddingBag = Module:extend("EmbeddingBag")

---@param count integer
---@param width integer
---@param opts {max_norm: number, norm_type: number, mode: string, include_last_offset: boolean, padding_idx: integer}?
function EmbeddingBag:init(count, width, opts)
    local weight = opts.weight or flow.randn(count, width)
    if opts.weight and (weight.ndim ~= 2 or weight:size(0) ~= count or weight:size(1) ~= width) then
        check.fail("EmbeddingBag: weight must be [%d, %d], got %s", count, width, check.shape(weight))
    end
    if opts.padding_idx and not opts.weight then weight[opts.padding_idx] = 0 end
    self.weight = module.Parameter(weight)
    self.mode, self.max_norm, self.norm_type = opts.mode, opts.max_norm, opts.norm_type
    self.include_last_offset, self.padding_idx = opts.include_last_offset, opts.padding_idx
end

---@param input any indices [bags, size], or [n] with offsets
---@param offsets any? the position at which each bag begins
---@param per_sample_weights any? factors of the rows, of a sum
function EmbeddingBag:forward(input, offsets, per_sample_weights)
    return flow.nn.functional.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.mode,
        per_sample_weights, self.include_last_offset, self.padding_idx)
end

signatures(EmbeddingBag, "EmbeddingBag(count: integer >= 1, width: integer >= 1, {max_norm: number?, " ..
    "norm_type: number = 2, mode: mean|sum|max = mean, include_last_offset: boolean = false, padding_idx: integer?, " ..
    "weight: weight?})", "forward(input: tensor, offsets: tensor?, per_sample_weights: tensor?)")

---A layer whose table is a tensor [count, width], with its memory; its values stay unless freeze is false.
---@param embeddings any
---@param freeze boolean? default true
---@param opts table? those of EmbeddingBag
---@return flow.nn.EmbeddingBag
function EmbeddingBag.from_pretrained(embeddings, freeze, opts)
    if embeddings.ndim ~= 2 then
        check.fail("EmbeddingBag.from_pretrained: embeddings must be [count, width], got %s", check.shape(embeddings))
    end
    opts.weight = embeddings
    local layer = EmbeddingBag(embeddings:size(0), embeddings:size(1), opts)
    layer.weight.requires_grad = not freeze
    return layer
end

check.takes(EmbeddingBag, {"EmbeddingBag.from_pretrained(embeddings: weight, freeze: boolean = true, " ..
    "{max_norm: number?, norm_type: number = 2, mode: mean|sum|max = mean, include_last_offset: boolean = false, " ..
    "padding_idx: integer?})"})

function EmbeddingBag:extra()
    return ("%d, %d, mode=%s"):format(self.weight:size(0), self.weight:size(1), self.mode)
end

---y = x1^T W x2 + b, for each output a matrix W.
---@class flow.nn.Bilinear: flow.nn.Module
local Bilinear = Module:extend("Bilinear")

---@param inputs1 integer
---@param inputs2 integer
---@param outputs integer
---@param bias boolean? default true
function Bilinear:init(inputs1, inputs2, outputs, bias)
    local bound = 1 / math.sqrt(inputs1)
    self.weight = module.Parameter(init.uniform(flow.empty(outputs, inputs1, inputs2), -bound, bound))
    self.bias = nil
    if bias then self.bias = module.Parameter(init.uniform(flow.empty(outputs), -bound, bound)) end
end

function Bilinear:forward(x1, x2) return flow.bilinear(x1, x2, self.weight, self.bias) end

signatures(Bilinear, "Bilinear(inputs1: integer >= 1, inputs2: integer >= 1, outputs: integer >= 1, " ..
    "bias: boolean = true)", "forward(x1: tensor, x2: tensor)")

function Bilinear:extra()
    local weight = self.weight
    return ("in1=%d, in2=%d, out=%d, bias=%s"):format(weight:size(1), weight:size(2), weight:size(0), self.bias ~= nil)
end

---Replaces one axis by several.
---@class flow.nn.Unflatten: flow.nn.Module
local Unflatten = Module:extend("Unflatten")

---@param axis integer
---@param sizes integer[] one of them may be -1
function Unflatten:init(axis, sizes)
    self.axis, self.sizes = axis, sizes
end

function Unflatten:forward(x)
    local axis, shape = self.axis < 0 and self.axis + x.ndim or self.axis, {}
    if axis < 0 or axis >= x.ndim then
        check.fail("Unflatten: axis %d is out of range for %s", self.axis, check.shape(x))
    end
    for i, size in ipairs(x.shape) do
        if i ~= axis + 1 then
            shape[#shape + 1] = size
        else
            table.move(self.sizes, 1, #self.sizes, #shape + 1, shape)
        end
    end
    return x:reshape(shape)
end

signatures(Unflatten, "Unflatten(axis: integer, sizes: list)", "forward(x: tensor)")

function Unflatten:extra() return ("axis=%d, sizes=[%s]"):format(self.axis, table.concat(self.sizes, ", ")) end

return {EmbeddingBag = EmbeddingBag, Bilinear = Bilinear, Unflatten = Unflatten}
