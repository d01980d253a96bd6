-- nn_functional.lua -- flow.nn.functional: torch.nn.functional by its own names. A name that is here nothing but the
-- function of flow is that function, found when it is first read; the others are below.

local flow = require "flow"
local check = require "flow.check"

-- All functions of torch.nn.functional; those that flow lacks are no fields of the module.
local NAMES = [[
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid
alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout dropout1d
dropout2d dropout3d elu elu_ embedding embedding_bag feature_alpha_dropout fold fractional_max_pool2d
fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices gaussian_nll_loss gelu
glu grid_sample group_norm grouped_mm gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_
hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear
linear_cross_entropy local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss
max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d
max_unpool2d max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss nll_loss normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle
poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu rrelu_ scaled_dot_product_attention selu selu_ sigmoid silu
smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold threshold_
triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear upsample_nearest
]]

local F = {}

-- ---- in place ----

-- The functions that take `inplace`, and where: after the arguments that they take in flow.
local IN_PLACE = {
    relu = 2, relu6 = 2, selu = 2, silu = 2, mish = 2, hardsigmoid = 2, hardswish = 2, elu = 3, celu = 3,
    leaky_relu = 3, hardtanh = 4, threshold = 4, rrelu = 5, dropout = 4, alpha_dropout = 4, dropout1d = 4,
    dropout2d = 4, dropout3d = 4, feature_alpha_dropout = 4,
}

-- The arguments without `inplace`, and its value.
local function without_flag(name, at, ...)
    local args = table.pack(...)
    local last, flag = args[args.n], false
    if type(last) == "table" and getmetatable(last) == nil and last.inplace ~= nil then
        local rest = {}
        for key, value in pairs(last) do rest[key] = value end
        rest.inplace, flag = nil, last.inplace
        args[args.n] = rest
    elseif args.n >= at then
        flag, args[at], args.n = args[at], nil, at - 1
    end
    if type(flag) ~= "boolean" then check.fail("%s: inplace must be true or false, got %s", name, check.got(flag)) end
    return flag, args
end

local function with_flag(name, f, at)
    return function(...)
        local n = select("#", ...)
        if n == 0 or n < at and type((select(n, ...))) ~= "table" then return f(...) end
        local flag, args = without_flag(name, at, ...)
        if not flag then return f(table.unpack(args, 1, args.n)) end
        local x = args[1]
        check.tensor(name, "x", x)
        local method = flow._methods[name .. "_"]
        if method then return method(table.unpack(args, 1, args.n)) end
        return x:copy_(f(table.unpack(args, 1, args.n)))
    end
end

-- ---- softmax and its kin, of x in another dtype ----

-- The op, with PyTorch's option dtype, to which x is cast before.
local function with_dtype(name, op)
    local function cast(x, axis, opts) return op(x:to(opts.dtype), axis) end
    local holder = {[name] = cast}
    check.takes(holder, {name .. "(x: tensor, axis: integer, {dtype: string})"})
    local checked = holder[name]
    return check.stands_for(function(...)
        local n = select("#", ...)
        local last = n > 1 and select(n, ...)
        if type(last) == "table" and last.dtype ~= nil then return checked(...) end
        return op(...)
    end, op)
end

-- ---- functions that are written here ----

-- Rows of weight that are read and longer than max_norm are shortened, in place.
local function shorten(indices, weight, max_norm, norm_type)
    local _ <close> = flow.no_grad()
    local flat = indices:flatten()
    local rows = flow.embedding(flat, weight)
    local norms = rows:norm(norm_type, -1, true)
    weight[flat] = rows * flow.where(norms:gt(max_norm), max_norm / (norms + 1e-7), 1)
end

-- padding_idx may count from the end.
local function row_of(who, padding_idx, weight)
    local rows = weight:size(0)
    if padding_idx and (padding_idx >= rows or padding_idx < -rows) then
        check.fail("%s: padding_idx must be a row of weight %s, got %d", who, check.shape(weight), padding_idx)
    end
    return padding_idx and padding_idx % rows
end

---The rows of weight at the indices. The row padding_idx gets no gradient; rows longer than max_norm are shortened.
---@param input any indices
---@param weight any [rows, width]
---@param padding_idx integer?
---@param max_norm number?
---@param norm_type number? default 2
function F.embedding(input, weight, padding_idx, max_norm, norm_type)
    padding_idx = row_of("embedding", padding_idx, weight)
    if max_norm then shorten(input, weight, max_norm, norm_type) end
    local rows = flow.embedding(input, weight)
    if not padding_idx then return rows end
    return flow.where(input:eq(padding_idx):unsqueeze(-1), rows:detach(), rows)
end

-- The bag of every index: the number of offsets that are not behind it, less one.
local function bags_of(input, offsets, count)
    local first = offsets:narrow(0, 0, count):to("int64")
    local starts = flow.zeros({#input + 1}, flow.nn.like(input, {dtype = "int64"}))     -- a last bag may be empty
    return starts:scatter_add(0, first, flow.ones_like(first)):cumsum(0):narrow(0, 0, #input) - 1
end

-- The sum of the numbers in each bag.
local function totals(numbers, bags, count)
    local like = flow.nn.like(numbers, {dtype = "int64"})
    return flow.zeros({count}, like):scatter_add(0, bags, numbers)
end

-- A matrix [bags, longest] of positions among the indices; those beyond the end of a bag are their number.
local function positions_of(bags, count)
    local n = #bags
    local like = flow.nn.like(bags, {dtype = "int64"})
    local order = flow.arange(n, like)
    local sizes = totals(flow.ones_like(bags), bags, count)
    local first = sizes:cumsum(0) - sizes
    local longest = math.max(math.tointeger(sizes:max():item()), 1)
    local places = flow.full({count * longest}, n, like)
    local at = bags * longest + (order - first:index_select(0, bags))
    return places:scatter(0, at, order):reshape(count, longest)
end

-- Rows [n, width] and which of them count [n] -> [bags, width]
local reduce = {}

function reduce.sum(rows, counts, bags, count)
    if counts then rows = rows * counts:to(rows.dtype):unsqueeze(-1) end
    local sums = flow.zeros({count, rows:size(1)}, flow.nn.like(rows, {dtype = rows.dtype}))
    return sums:scatter_add(0, bags:unsqueeze(1):expand(rows.shape), rows)
end

function reduce.mean(rows, counts, bags, count)
    local sizes = totals(counts and counts:to("int64") or flow.ones_like(bags), bags, count)
    return reduce.sum(rows, counts, bags, count) / sizes:clamp(1):to(rows.dtype):unsqueeze(-1)
end

function reduce.max(rows, counts, bags, count)
    if counts then rows = rows:masked_fill(counts:logical_not():unsqueeze(-1), -math.huge) end
    local none = flow.full_like(rows:narrow(0, 0, 1), -math.huge)
    local places = positions_of(bags, count)
    local picked = flow.cat({rows, none}, 0):index_select(0, places:flatten())
    local best = picked:reshape(count, places:size(1), rows:size(1)):max(1)
    return best:masked_fill(best:eq(-math.huge), 0)
end

-- The flat indices, their bags and the number of these.
local function open_bags(input, offsets, include_last_offset)
    if input.ndim == 2 then
        if offsets then check.fail("embedding_bag: an input of two axes has no offsets, got some") end
        local bags = flow.arange(input:size(0), flow.nn.like(input)):unsqueeze(1):expand(input.shape):flatten()
        return input:flatten(), bags, input:size(0)
    elseif input.ndim ~= 1 then
        check.fail("embedding_bag: input must have 1 or 2 axes, got %s", check.shape(input))
    elseif not offsets or offsets.ndim ~= 1 then
        check.fail("embedding_bag: an input of one axis needs offsets, the positions at which bags begin")
    end
    local count = #offsets - (include_last_offset and 1 or 0)
    if count < 0 then check.fail("embedding_bag: with include_last_offset there must be an offset") end
    return input, #input > 0 and bags_of(input, offsets, count), count
end

---Sums, means or maxima of bags of rows of weight: input [bags, size], or [n] with the offsets at which bags begin.
---@param input any indices
---@param weight any [rows, width]
---@param offsets any?
---@param max_norm number?
---@param norm_type number? default 2
---@param mode "mean"|"sum"|"max"|nil
---@param per_sample_weights any? factors of the rows, of a sum
---@param include_last_offset boolean? the last offset is the end of the last bag
---@param padding_idx integer? indices that count for nothing
function F.embedding_bag(input, weight, offsets, max_norm, norm_type, mode, per_sample_weights, include_last_offset,
                         padding_idx)
    padding_idx = row_of("embedding_bag", padding_idx, weight)
    local flat, bags, count = open_bags(input, offsets, include_last_offset)
    if not bags or #flat == 0 then return flow.embedding(flat, weight):sum(0, true):expand(count, weight:size(1)) end
    if max_norm then shorten(flat, weight, max_norm, norm_type) end
    local rows = flow.embedding(flat, weight)
    if per_sample_weights then
        if mode ~= "sum" then check.fail("embedding_bag: per_sample_weights need mode \"sum\", got \"%s\"", mode) end
        if check.shape(per_sample_weights) ~= check.shape(input) then
            check.fail("embedding_bag: per_sample_weights must be %s as input, got %s", check.shape(input),
                check.shape(per_sample_weights))
        end
        rows = rows * per_sample_weights:flatten():unsqueeze(-1)
    end
    return reduce[mode](rows, padding_idx and flat:ne(padding_idx), bags, count)
end

---triplet_margin_loss with a distance of the script's own, a function of two tensors.
---@param anchor any
---@param positive any
---@param negative any
---@param opts {distance_function: function, margin: number, swap: boolean, reduction: string}?
function F.triplet_margin_with_distance_loss(anchor, positive, negative, opts)
    local distance = opts.distance_function or flow.pairwise_distance
    local near, away = distance(anchor, positive), distance(anchor, negative)
    if opts.swap then away = flow.minimum(away, distance(positive, negative)) end
    return flow.margin_ranking_loss(away, near, flow.ones_like(near), opts.margin, opts.reduction)
end

F.unfold, F.fold = flow.im2col, flow.col2im

check.takes(F, {
    "embedding(input: tensor, weight: weight, padding_idx: integer?, max_norm: number?, norm_type: number = 2)",
    "embedding_bag(input: tensor, weight: weight, offsets: tensor?, max_norm: number?, norm_type: number = 2, " ..
        "mode: mean|sum|max = mean, per_sample_weights: tensor?, include_last_offset: boolean = false, " ..
        "padding_idx: integer?)",
    "triplet_margin_with_distance_loss(anchor: tensor, positive: tensor, negative: tensor, " ..
        "{distance_function: function?, margin: number = 1, swap: boolean = false, reduction: mean|sum|none = mean})",
})

-- ---- functions of flow ----

local LATER = {}        -- in files of their own
for name in ([[fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices grouped_mm]]):gmatch "%S+" do LATER[name] = "flow.nn_functional_more" end

local CASTING = {softmax = true, log_softmax = true, softmin = true}

-- The function of a name, or nil.
local function find(name)
    if LATER[name] then return require(LATER[name])[name] end
    local f = flow.has(name) and flow[name] or name:sub(-1) == "_" and flow._methods[name] or nil
    if CASTING[name] then return with_dtype(name, f) end
    if f == nil or not IN_PLACE[name] then return f end
    return check.stands_for(with_flag(name, f, IN_PLACE[name]), f)
end

local list = {}
for name in NAMES:gmatch "%S+" do
    if rawget(F, name) == nil and (LATER[name] or find(name)) then list[#list + 1] = name end
end

local home = {}
for _, name in ipairs(list) do home[name] = true end
setmetatable(F, {__names = list, __index = setmetatable({}, {__index = function(_, name)
    if not home[name] then return nil end
    F[name] = find(name)
    return F[name]
end})})

return check.strict("nn.functional", F)
