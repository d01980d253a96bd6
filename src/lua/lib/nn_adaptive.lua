-- nn_adaptive.lua -- layers of flow.nn: fractional pooling, and losses over many classes with their projections.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"
local sizes = require "flow.nn_sizes"

local Module, signatures = module.Module, module.signatures
local classes = {}

-- ---- fractional pooling ----

local function fractional(axes)
    local name = "FractionalMaxPool" .. axes .. "d"
    local class = Module:extend(name)

    function class:init(kernel, opts)
        self.kernel = sizes.read(name, "kernel", kernel, 1, axes)
        self.output_size, self.output_ratio = opts.output_size, opts.output_ratio
        self.return_indices = opts.return_indices
        if (self.output_size == nil) == (self.output_ratio == nil) then
            check.fail("%s: takes either output_size or output_ratio", name)
        end
    end

    function class:forward(x)
        return flow.nn.functional["fractional_max_pool" .. axes .. "d"](x, self.kernel, {
            output_size = self.output_size, output_ratio = self.output_ratio, return_indices = self.return_indices,
        })
    end

    function class:extra() return "kernel=" .. sizes.text(self.kernel) end

    signatures(class, name .. "(kernel: " .. sizes.types[axes] .. ", {output_size: integer or list?, " ..
        "output_ratio: number or list?, return_indices: boolean = false})", "forward(x: tensor)")
    classes[name] = class
end

fractional(2)
fractional(3)

-- ---- adaptive softmax ----

---A softmax over classes in the order of their frequency: those below the first cutoff have outputs of their own, the
---others are reached by clusters, whose projections become smaller by div_value from one to the next.
---@class flow.nn.AdaptiveLogSoftmaxWithLoss: flow.nn.Module
local Adaptive = Module:extend("AdaptiveLogSoftmaxWithLoss")
classes.AdaptiveLogSoftmaxWithLoss = Adaptive

local function check_cutoffs(cutoffs, classes_)
    local before = 0
    for i, cutoff in ipairs(cutoffs) do
        if math.type(cutoff) ~= "integer" or cutoff <= before or cutoff >= classes_ then
            check.fail("AdaptiveLogSoftmaxWithLoss: cutoffs must be increasing whole numbers from 1 to %d, entry %d " ..
                "is %s", classes_ - 1, i, tostring(cutoff))
        end
        before = cutoff
    end
    if #cutoffs == 0 then check.fail("AdaptiveLogSoftmaxWithLoss: cutoffs must not be empty") end
end

---@param in_features integer
---@param n_classes integer
---@param cutoffs integer[]
---@param opts {div_value: number, head_bias: boolean}?
function Adaptive:init(in_features, n_classes, cutoffs, opts)
    check_cutoffs(cutoffs, n_classes)
    self.in_features, self.n_classes, self.div_value = in_features, n_classes, opts.div_value
    self.cutoffs = table.move(cutoffs, 1, #cutoffs, 1, {})
    self.cutoffs[#cutoffs + 1] = n_classes
    self.head = flow.nn.Linear(in_features, cutoffs[1] + #cutoffs, {bias = opts.head_bias})
    local tail = {}
    for i = 1, #cutoffs do
        local width = math.tointeger(in_features // opts.div_value ^ i)
        if width < 1 then
            check.fail("AdaptiveLogSoftmaxWithLoss: cluster %d has no width, div_value is too large", i)
        end
        tail[i] = flow.nn.Sequential(flow.nn.Linear(in_features, width, {bias = false}),
            flow.nn.Linear(width, self.cutoffs[i + 1] - self.cutoffs[i], {bias = false}))
    end
    self.tail = flow.nn.ModuleList(tail)
end

-- Logarithms of the probabilities of the targets [rows]: only the clusters that occur are computed, of their rows.
local function of_targets(self, input, target)
    local head = flow.log_softmax(self.head(input), 1)
    local first = self.cutoffs[1]
    local column = target:clamp(0, first - 1)
    local rows, parts = {}, {}
    for i = 1, #self.tail do
        local low, high = self.cutoffs[i], self.cutoffs[i + 1]
        local inside = target:ge(low):logical_and(target:lt(high))
        column = flow.where(inside, first + i - 1, column)
        local at = inside:nonzero():squeeze(1)
        if at:numel() > 0 then
            local scores = flow.log_softmax(self.tail[i](input:index_select(0, at)), 1)
            rows[#rows + 1] = at
            parts[#parts + 1] = scores:gather(1, (target:index_select(0, at) - low):unsqueeze(1)):squeeze(1)
        end
    end
    local output = head:gather(1, column:unsqueeze(1)):squeeze(1)
    if #rows > 0 then output = output:index_add(0, flow.cat(rows, 0), flow.cat(parts, 0)) end
    return output
end

---The logarithm of the probability of each target, and the loss: minus their mean.
---@param input any [rows, in_features] or [in_features]
---@param target any [rows] or a number of a class
function Adaptive:forward(input, target)
    local x = input.ndim == 1 and input:unsqueeze(0) or input
    local y = target.ndim == 0 and target:unsqueeze(0) or target
    if x.ndim ~= 2 or y.ndim ~= 1 or x:size(0) ~= y:size(0) then
        check.fail("input must be [rows, %d] and target [rows], got %s and %s",
            self.in_features, check.shape(input), check.shape(target))
    end
    y = y:to "int64"
    if y.device ~= "meta" and y:numel() > 0 and (y:min():item() < 0 or y:max():item() >= self.n_classes) then
        check.fail("target must be from 0 to %d", self.n_classes - 1)
    end
    local output = of_targets(self, x, y)
    local loss = output:mean():neg()
    return input.ndim == 1 and output:squeeze(0) or output, loss
end

---Logarithms of the probabilities of all classes.
---@param input any [rows, in_features]
function Adaptive:log_prob(input)
    local head, first = flow.log_softmax(self.head(input), 1), self.cutoffs[1]
    local parts = {head:narrow(1, 0, first)}
    for i = 1, #self.tail do
        parts[i + 1] = flow.log_softmax(self.tail[i](input), 1) + head:narrow(1, first + i - 1, 1)
    end
    return flow.cat(parts, 1)
end

---The most probable class of each row.
---@param input any [rows, in_features]
function Adaptive:predict(input) return self:log_prob(input):argmax(1) end

function Adaptive:extra() return ("%d, %d"):format(self.in_features, self.n_classes) end

signatures(Adaptive, "AdaptiveLogSoftmaxWithLoss(in_features: integer >= 1, n_classes: integer >= 2, cutoffs: list, " ..
    "{div_value: number >= 1 = 4, head_bias: boolean = false})", "forward(input: tensor, target: tensor)")
check.methods(Adaptive, "layer", {"log_prob(input: tensor)", "predict(input: tensor)"})

-- ---- projection and cross-entropy ----

---A linear layer and the cross-entropy of its results, without all of them in memory: flow.linear_cross_entropy.
---@class flow.nn.LinearCrossEntropyLoss: flow.nn.Module
local LinearLoss = Module:extend("LinearCrossEntropyLoss")
classes.LinearCrossEntropyLoss = LinearLoss

-- Sizes of the parameters as the function takes them: the axes of classes, then those of the result, then `last`.
local function axes_of(self, last)
    local list = {self.num_classes, table.unpack(self.out_features)}
    list[#list + 1] = last
    return list
end

---@param in_features integer
---@param num_classes integer
---@param opts table
function LinearLoss:init(in_features, num_classes, opts)
    self.num_classes, self.out_features = num_classes, {table.unpack(opts.out_features or {})}
    local outputs = num_classes
    for _, n in ipairs(self.out_features) do
        outputs = outputs * check.integer("LinearCrossEntropyLoss", "a size of out_features", n, 1)
    end
    self.linear = flow.nn.Linear(in_features, outputs, {bias = opts.bias})
    self:register_buffer("weight", opts.weight)
    self.reduction, self.ignore_index, self.label_smoothing = opts.reduction, opts.ignore_index, opts.label_smoothing
    self.batch_chunk_size = opts.batch_chunk_size
end

---@param input any [n, in_features] or [in_features]
---@param target any labels [n, out_features...], or probabilities [n, num_classes, out_features...]
function LinearLoss:forward(input, target)
    local matrix, bias = self.linear.weight, self.linear.bias
    if #self.out_features > 0 then
        matrix = matrix:view(axes_of(self, matrix:size(1)))
        bias = bias and bias:view(axes_of(self))
    end
    return flow.linear_cross_entropy(input, matrix, target, bias, self.weight, {
        reduction = self.reduction, ignore_index = self.ignore_index, label_smoothing = self.label_smoothing,
        batch_chunk_size = self.batch_chunk_size,
    })
end

function LinearLoss:extra() return ("%d, %d"):format(self.linear.weight:size(1), self.num_classes) end

signatures(LinearLoss, "LinearCrossEntropyLoss(in_features: integer >= 1, num_classes: integer >= 1, " ..
    "{out_features: list?, bias: boolean = false, weight: tensor?, reduction: mean|sum|none = mean, " ..
    "ignore_index: integer = -100, label_smoothing: number = 0, batch_chunk_size: integer >= 1?})",
    "forward(input: tensor, target: tensor)")

return classes
