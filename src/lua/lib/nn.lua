-- nn.lua -- layers, losses and initialisers; modules are defined in module.lua. Classes in files of their own are
-- listed at the end: such a file is loaded at the first use of one of its classes.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local lazy_names = require "flow.lazy_names"
local module = require "flow.module"

local op = flow._op

local Module, signatures, FIELDS = module.Module, module.signatures, module.FIELDS

local nn = {
    Module = Module, Parameter = module.Parameter, Buffer = module.Buffer, is_module = module.is_module, init = init,
}

-- ---- models over several ranks ----

---x with another SBP, at the borders between parts of a model; a local tensor is returned unchanged. With `axis` only
---that hierarchy axis changes. The gradient comes back in the SBP of x (B where x was partial): a pin
---to "B" after a product over a split axis is an all-reduce in forward, one to "B" before a product by a split weight
---is an all-reduce in backward.
---@param x any
---@param sbp any
---@param axis integer?
function nn.pin(x, sbp, axis)
    if not x.is_global then return x end
    if not axis then return x:to_global{sbp = sbp} end
    local all = {}
    for k = 1, #x.sbp do all[k] = x.sbp[k] end
    if not all[axis + 1] then check.fail("pin: x has hierarchy axes 0 to %d, got %d", #all - 1, axis) end
    all[axis + 1] = sbp
    return x:to_global{sbp = all}
end

---Options that create a tensor where x is; for a global x, with sbp B: flow.arange(n, nn.like(x)).
---@param x any
---@param opts table? more options
function nn.like(x, opts)
    local o = {}
    for key, value in pairs(opts or {}) do o[key] = value end
    if not x.is_global then
        o.device = x.device
        return o
    end
    o.placement, o.sbp = x.placement, {}
    for k = 1, #x.sbp do o.sbp[k] = "B" end
    return o
end

-- ---- layers ----

local is_float = {float16 = true, bfloat16 = true, float32 = true, float64 = true}

-- linear and an activation as one op.
local activated = {
    relu = op.linear_relu,
    gelu = op.linear_gelu,
    gelu_tanh = function(x, weight, bias) return op.linear_gelu(x, weight, bias, "tanh") end,
}

---y = x W^T + b
---@class flow.nn.Linear: flow.nn.Module
local Linear = Module:extend("Linear")
nn.Linear = Linear

---@param inputs integer
---@param outputs integer
---@param opts {bias: boolean, activation: "relu"|"gelu"|"gelu_tanh"}? the activation of y
function Linear:init(inputs, outputs, opts)
    self.inputs, self.outputs = inputs, outputs
    local bound = 1 / math.sqrt(inputs)
    self.weight = nn.Parameter(init.uniform(flow.empty(outputs, inputs), -bound, bound))
    self.bias = nil
    if opts.bias then self.bias = nn.Parameter(init.uniform(flow.empty(outputs), -bound, bound)) end
    self.activation = opts.activation
end

---@param x any
---@param activation string? of a Linear that has none: that of the module after it
function Linear:forward(x, activation)
    activation = activation or self.activation
    if activation then return activated[activation](x, self.weight, self.bias) end
    return op.linear(x, self.weight, self.bias)
end

signatures(Linear, "Linear(inputs: integer >= 1, outputs: integer >= 1, " ..
    "{bias: boolean = true, activation: relu|gelu|gelu_tanh?})", "forward(x: tensor, activation: relu|gelu|gelu_tanh?)")

function Linear:extra()
    local text = ("in=%d, out=%d, bias=%s"):format(self.inputs, self.outputs, self.bias ~= nil)
    return self.activation and text .. ", activation=" .. self.activation or text
end

---A row of a table for every integer.
---@class flow.nn.Embedding: flow.nn.Module
local Embedding = Module:extend("Embedding")
nn.Embedding = Embedding

---@param count integer
---@param width integer
---@param opts {padding_idx: integer, max_norm: number, norm_type: number}? the row padding_idx is 0 and stays so; rows
---longer than max_norm are shortened when they are read
function Embedding:init(count, width, opts)
    local weight, pad = opts.weight or flow.randn(count, width), opts.padding_idx
    if pad and (pad >= count or pad < -count) then
        check.fail("Embedding: padding_idx must be a row of %d, got %d", count, pad)
    elseif opts.weight and (weight.ndim ~= 2 or weight:size(0) ~= count or weight:size(1) ~= width) then
        check.fail("Embedding: weight must be [%d, %d], got %s", count, width, check.shape(weight))
    end
    if pad and not opts.weight then weight[pad] = 0 end
    self.weight = nn.Parameter(weight)
    self.padding_idx, self.max_norm, self.norm_type = pad, opts.max_norm, opts.norm_type
end

function Embedding:forward(x)
    if not (self.padding_idx or self.max_norm) then return flow.embedding(x, self.weight) end
    return nn.functional.embedding(x, self.weight, self.padding_idx, self.max_norm, self.norm_type)
end

signatures(Embedding, "Embedding(count: integer >= 1, width: integer >= 1, " ..
    "{padding_idx: integer?, max_norm: number?, norm_type: number = 2, weight: weight?})", "forward(x: tensor)")

---A layer whose table is a tensor [count, width], with its memory; its values stay unless freeze is false.
---@param embeddings any
---@param freeze boolean? default true
---@param opts {padding_idx: integer, max_norm: number, norm_type: number}?
---@return flow.nn.Embedding
function Embedding.from_pretrained(embeddings, freeze, opts)
    if embeddings.ndim ~= 2 then
        check.fail("Embedding.from_pretrained: embeddings must be [count, width], got %s", check.shape(embeddings))
    end
    opts.weight = embeddings
    local layer = Embedding(embeddings:size(0), embeddings:size(1), opts)
    layer.weight.requires_grad = not freeze
    return layer
end

check.takes(Embedding, {"Embedding.from_pretrained(embeddings: weight, freeze: boolean = true, " ..
    "{padding_idx: integer?, max_norm: number?, norm_type: number = 2})"})

function Embedding:extra()
    local text = ("%d, %d"):format(self.weight:size(0), self.weight:size(1))
    if self.padding_idx then text = text .. ", padding_idx=" .. self.padding_idx end
    return self.max_norm and ("%s, max_norm=%g"):format(text, self.max_norm) or text
end

-- The last sizes of an input: one number or a list of them.
local function size_list(who, sizes)
    if type(sizes) ~= "table" then return {sizes} end
    if #sizes == 0 then check.fail("%s: sizes must be the last sizes of its input, got an empty list", who) end
    local list = {}
    for i = 1, #sizes do list[i] = check.integer(who, "size " .. i, sizes[i], 1) end
    return list
end

---@class flow.nn.LayerNorm: flow.nn.Module
local LayerNorm = Module:extend("LayerNorm")
nn.LayerNorm = LayerNorm

---@param sizes integer|integer[] the last sizes of the input
---@param opts {eps: number, affine: boolean, bias: boolean}?
function LayerNorm:init(sizes, opts)
    self.sizes = size_list("LayerNorm", sizes)
    self.eps = opts.eps
    self.weight = nil
    self.bias = nil
    if opts.affine then self.weight = nn.Parameter(flow.ones(self.sizes)) end
    if opts.affine and opts.bias then self.bias = nn.Parameter(flow.zeros(self.sizes)) end
end

function LayerNorm:forward(x)
    return flow.layer_norm(x, self.sizes, self.weight, self.bias, self.eps)
end

signatures(LayerNorm, "LayerNorm(sizes: integer >= 1 or list, " ..
    "{eps: number >= 0 = 1e-5, affine: boolean = true, bias: boolean = true})", "forward(x: tensor)")

function LayerNorm:extra()
    return ("[%s], eps=%g"):format(table.concat(self.sizes, ", "), self.eps)
end

---In training, zeroes each element with probability p and scales the others by 1 / (1 - p).
---@class flow.nn.Dropout: flow.nn.Module
local Dropout = Module:extend("Dropout")
nn.Dropout = Dropout

---@param p number? default 0.5
---@param inplace boolean? x takes the result
function Dropout:init(p, inplace)
    self.p, self.inplace = p, inplace
end

function Dropout:forward(x)
    if not self.training or self.p == 0 then return x end
    local y = flow.dropout(x, self.p)
    return self.inplace and x:copy_(y) or y
end

signatures(Dropout, "Dropout(p: number 0..1 = 0.5, inplace: boolean = false)", "forward(x: tensor)")

function Dropout:extra()
    return ("p=%g"):format(self.p)
end

-- Modules that are one op.
local function activation(name, forward)
    local class = Module:extend(name)
    function class:init() end  -- luacheck: ignore self
    function class:forward(x) return forward(x) end  -- luacheck: ignore self
    signatures(class, name .. "()", "forward(x: tensor)")
    nn[name] = class
end

-- One op, which may write into its input.
local function activation_in_place(name, forward, method)
    local class = Module:extend(name)
    nn[name] = class
    function class:init(inplace) self.inplace = inplace end
    -- The option is read where it is kept: through __index it would cost a third of a call on few elements.
    function class:forward(x) return self[FIELDS].inplace and x[method](x) or forward(x) end
    function class:extra() return self.inplace and "inplace=true" or "" end
    signatures(class, name .. "(inplace: boolean = false)", "forward(x: tensor)")
end
activation_in_place("ReLU", flow.relu, "relu_")
activation_in_place("SiLU", flow.silu, "silu_")
activation("Tanh", flow.tanh)
activation("Sigmoid", flow.sigmoid)

---Gives its input. Takes any arguments, so that it may stand in the place of another module.
local Identity = Module:extend("Identity")
nn.Identity = Identity
function Identity:init() end  -- luacheck: ignore self
function Identity:forward(x) return x end  -- luacheck: ignore self
signatures(Identity, "Identity(...: any)", "forward(x: tensor)")

---@class flow.nn.GELU: flow.nn.Module
local GELU = Module:extend("GELU")
nn.GELU = GELU

---@param opts {approximate: "none"|"tanh"}?
function GELU:init(opts)
    self.approximate = opts.approximate
end

function GELU:forward(x)
    return flow.gelu(x, self.approximate)
end

signatures(GELU, "GELU({approximate: none|tanh = none})", "forward(x: tensor)")

function GELU:extra()
    return self.approximate == "none" and "" or "approximate=" .. self.approximate
end

---@class flow.nn.Softmax: flow.nn.Module
local Softmax = Module:extend("Softmax")
nn.Softmax = Softmax

---@param axis integer? default -1
function Softmax:init(axis)
    self.axis = axis
end

function Softmax:forward(x)
    return flow.softmax(x, self.axis)
end

signatures(Softmax, "Softmax(axis: integer = -1)", "forward(x: tensor)")

function Softmax:extra()
    return "axis=" .. self.axis
end

---Joins the axes from start_axis to end_axis into one: all but the first, unless others are given.
---@class flow.nn.Flatten: flow.nn.Module
local Flatten = Module:extend("Flatten")
nn.Flatten = Flatten

---@param start_axis integer? default 1
---@param end_axis integer? default -1
function Flatten:init(start_axis, end_axis)
    self.start_axis, self.end_axis = start_axis, end_axis
end

function Flatten:forward(x)
    local fields = self[FIELDS]
    return x:flatten(fields.start_axis, fields.end_axis)
end

function Flatten:extra()
    if self.start_axis == 1 and self.end_axis == -1 then return "" end
    return ("start_axis=%d, end_axis=%d"):format(self.start_axis, self.end_axis)
end

signatures(Flatten, "Flatten(start_axis: integer = 1, end_axis: integer = -1)", "forward(x: tensor)")

-- ---- containers ----

---A list of modules, list[1] .. list[#list]: nn.ModuleList(a, b) or nn.ModuleList {a, b}.
---@class flow.nn.ModuleList: flow.nn.Module
local ModuleList = Module:extend("ModuleList")
nn.ModuleList = ModuleList
ModuleList.is_list = true

-- The table that a list of modules is made of has no keys but the positions 1 to count.
local function check_list(self, list, count)
    for key in pairs(list) do
        local name = getmetatable(self).__name
        if type(key) == "string" then
            check.fail("%s: takes a list of modules without names, got %s; write nn.%s {a, b}", name, check.quote(key),
                name)
        elseif math.type(key) ~= "integer" or key < 1 or key > count then
            check.fail("%s: takes a list of modules without gaps, got the key %s", name, check.got(key))
        end
    end
end

---@param ... flow.nn.Module|flow.nn.Module[] the modules, or a list of them
function ModuleList:init(...)
    local modules, count = {...}, select("#", ...)
    local first = modules[1]
    if count == 1 and type(first) == "table" and not nn.is_module(first) and not module.is_class(first) then
        modules, count = first, #first
        check_list(self, first, count)
    end
    for i = 1, count do self[i] = self.item_of(modules[i]) end
end

function ModuleList.item_of(value) return value end

function ModuleList:append(item)
    self[#self + 1] = item
    return self
end

---Appends all modules of a list.
function ModuleList:extend_by(list)
    local items, name = {}, getmetatable(self).__name
    for i = 1, #list do
        items[i] = self.item_of(list[i])
        if not nn.is_module(items[i]) then
            check.fail("%s:extend_by: entry %d must be a module, got %s", name, i, check.got(items[i]))
        end
    end
    for _, item in ipairs(items) do self[#self + 1] = item end
    return self
end

---Puts a module at a position, before the one that is there.
function ModuleList:insert(position, item)
    local count = #self
    if position > count + 1 then
        check.fail("%s:insert: position must be 1 to %d, got %d", getmetatable(self).__name, count + 1, position)
    end
    for i = count, position, -1 do self[i + 1] = self[i] end
    self[position] = item
    return self
end

---Takes the module at a position out, or the last one; returns it.
function ModuleList:pop(position)
    local count = #self
    position = position or count
    if position > count or count == 0 then
        check.fail("%s:pop: position must be 1 to %d, got %d", getmetatable(self).__name, count, position)
    end
    local item = self[position]
    for i = position, count - 1 do self[i] = self[i + 1] end
    self[count] = nil
    return item
end

check.constructor(ModuleList, "ModuleList(...: any)", nn.is_module)
check.methods(ModuleList, "module", {"append(item: module)", "extend_by(list: table)",
    "insert(position: integer >= 1, item: module)", "pop(position: integer >= 1?)"}, nn.is_module)

---Modules applied in turn: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)). A Linear and a ReLU or
---GELU after it are computed as one op. Parts may have names: nn.Sequential {{"conv", a}, {"act", b}}.
---@class flow.nn.Sequential: flow.nn.ModuleList
local Sequential = ModuleList:extend("Sequential")
nn.Sequential = Sequential

-- A function in a Sequential: nn.Sequential(nn.Linear(4, 2), flow.tanh).
local Function = Module:extend("Function")

function Function:init(f) self.f = f end

function Function:forward(...) return self.f(...) end

signatures(Function, "Function(f: function)", "forward(...: any)")

function Sequential.item_of(value) return type(value) == "function" and Function(value) or value end

-- True for {{"conv", m}, {"act", m}}: parts with names, in order.
local function has_names(list)
    local first = type(list) == "table" and getmetatable(list) == nil and list[1]
    return type(first) == "table" and getmetatable(first) == nil and type(first[1]) == "string"
end

-- Registers parts by name; part_names has their order.
local function take_names(self, list)
    local names, who = {}, getmetatable(self).__name
    for i, pair in ipairs(list) do
        local plain = type(pair) == "table" and getmetatable(pair) == nil
        local name = plain and pair[1]
        if type(name) ~= "string" or pair[2] == nil then check.fail("%s: entry %d must be {name, module}", who, i) end
        if getmetatable(self)[name] ~= nil then
            check.fail("%s: '%s' is a method of %s; a part needs another name", who, name, who)
        elseif self[FIELDS][name] ~= nil then
            check.fail("%s: '%s' is the name of two parts", who, name)
        end
        local part = self.item_of(pair[2])
        if not nn.is_module(part) then
            check.fail("%s: '%s' must be a module, got %s%s", who, name, check.got(part), module.class_hint(part))
        end
        self:register_module(name, part)
        names[i] = name
    end
    self.part_names = names
end

---@param ... any the modules and functions, a list of them, or a list of {name, module}
function Sequential:init(...)
    if select("#", ...) == 1 and has_names((...)) then return take_names(self, (...)) end
    ModuleList.init(self, ...)
end

function Sequential:__len()
    local fields = self[FIELDS]
    return fields.part_names and #fields.part_names or #fields
end

local plain_linear = check.original(Linear.forward)
local GELU_NAMES = {none = "gelu", tanh = "gelu_tanh"}

-- The activation that `after` is, where a Linear before it computes the same in one op; nil: it does not.
local function joined(layer, after)
    if layer.forward ~= Linear.forward or layer.activation or not is_float[layer.weight.dtype] then return nil end
    local name = after.forward == nn.ReLU.forward and "relu"
        or after.forward == GELU.forward and GELU_NAMES[after.approximate]
    return name and not (module.is_hooked(layer) or module.is_hooked(after)) and name or nil
end

function Sequential:forward(x)
    local i, list = 1, self[FIELDS].part_names and self:children() or self[FIELDS]
    local count = #list
    while i <= count do
        local layer = list[i]
        local name = i < count and joined(layer, list[i + 1])
        if name then x = module.run(layer, plain_linear, x, name) else x = layer(x) end
        i = i + (name and 2 or 1)
    end
    return x
end

signatures(Sequential, "Sequential(...: any)", "forward(x: any)")

-- ---- attention ----

---Causal self-attention: each position attends to itself and to those before it. The rows of the joint projection are
---ordered by head first, so a split of them over ranks splits heads.
---@class flow.nn.CausalSelfAttention: flow.nn.Module
local CausalSelfAttention = Module:extend("CausalSelfAttention")
nn.CausalSelfAttention = CausalSelfAttention

---@param width integer
---@param heads integer
---@param opts {dropout: number, bias: boolean}?
function CausalSelfAttention:init(width, heads, opts)
    self.heads, self.dropout = heads, opts.dropout
    if width % heads ~= 0 then
        check.fail("CausalSelfAttention: width %d is not a multiple of %d heads", width, heads)
    elseif width > math.maxinteger // 3 then
        check.fail("CausalSelfAttention: width %d is too large", width)
    end
    self.qkv = Linear(width, 3 * width, {bias = opts.bias})
    self.projection = Linear(width, width, {bias = opts.bias})
end

-- Ranks share whole heads; otherwise inference would have to gather the joint projection, without a word.
local function check_heads(heads, qkv)
    for k, parts in ipairs(qkv.placement.hierarchy) do
        if tostring(qkv.sbp[k]) == "S(2)" and heads % parts ~= 0 then
            check.fail("CausalSelfAttention: %d heads cannot be split over the %d ranks of hierarchy axis %d", heads,
                parts, k - 1)
        end
    end
end

function CausalSelfAttention:forward(x)     -- x [batch, time, width]
    if x.ndim ~= 3 then
        check.fail("CausalSelfAttention: x must be [batch, time, width], got %s", check.shape(x))
    end
    local batch, time, width = x:size(0), x:size(1), x:size(2)
    local qkv = self.qkv(x)
    if qkv.is_global then check_heads(self.heads, qkv) end
    qkv = qkv:view(batch, time, self.heads, 3, width // self.heads):permute(3, 0, 2, 1, 4)
    local y = flow.scaled_dot_product_attention(qkv:select(0, 0), qkv:select(0, 1), qkv:select(0, 2), {
        is_causal = true, dropout = self.training and self.dropout or 0,
    })                                      -- y [batch, heads, time, width / heads]
    return self.projection(y:transpose(1, 2):reshape(batch, time, width))
end

signatures(CausalSelfAttention, "CausalSelfAttention(width: integer >= 1, heads: integer >= 1, " ..
    "{dropout: number 0..1 = 0, bias: boolean = true})", "forward(x: tensor)")

function CausalSelfAttention:extra()
    return ("heads=%d, dropout=%g"):format(self.heads, self.dropout)
end

-- ---- losses ----

---@class flow.nn.CrossEntropyLoss: flow.nn.Module
local CrossEntropyLoss = Module:extend("CrossEntropyLoss")
nn.CrossEntropyLoss = CrossEntropyLoss

---@param opts {weight: any, reduction: string, ignore_index: integer, label_smoothing: number}?
function CrossEntropyLoss:init(opts)
    self:register_buffer("weight", opts.weight)
    opts.weight = nil
    self.options = opts
end

function CrossEntropyLoss:forward(input, target)
    local fields = self[FIELDS]
    if not fields.weight then return flow.cross_entropy(input, target, fields.options) end
    return flow.cross_entropy(input, target, fields.weight, fields.options)
end

signatures(CrossEntropyLoss, "CrossEntropyLoss({weight: tensor?, reduction: mean|sum|none = mean, " ..
    "ignore_index: integer = -100, label_smoothing: number 0..1 = 0})", "forward(input: tensor, target: tensor)")

---@class flow.nn.MSELoss: flow.nn.Module
local MSELoss = Module:extend("MSELoss")
nn.MSELoss = MSELoss

---@param opts {reduction: string}?
function MSELoss:init(opts)
    self.options = opts
end

function MSELoss:forward(input, target)
    return flow.mse_loss(input, target, self.options)
end

signatures(MSELoss, "MSELoss({reduction: mean|sum|none = mean})", "forward(input: tensor, target: tensor)")

-- ---- classes in files of their own ----

local files = {
    nn_conv = "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    nn_norm = "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d " ..
        "GroupNorm RMSNorm LocalResponseNorm",
    nn_pool = "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d " ..
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d " ..
        "AdaptiveMaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d",
    nn_resample = "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d " ..
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d " ..
        "CircularPad2d CircularPad3d Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle " ..
        "PixelUnshuffle ChannelShuffle Unfold Fold",
    nn_adaptive = "FractionalMaxPool2d FractionalMaxPool3d AdaptiveLogSoftmaxWithLoss " ..
        "LinearCrossEntropyLoss",
    nn_activation = "ELU CELU SELU LeakyReLU Hardtanh ReLU6 Hardsigmoid Hardswish Mish Threshold Hardshrink " ..
        "Softshrink Tanhshrink Softplus Softsign LogSigmoid GLU Softmin LogSoftmax Softmax2d Dropout1d Dropout2d " ..
        "Dropout3d AlphaDropout FeatureAlphaDropout RReLU PReLU",
    nn_loss = "L1Loss SmoothL1Loss HuberLoss NLLLoss BCELoss BCEWithLogitsLoss KLDivLoss GaussianNLLLoss " ..
        "PoissonNLLLoss HingeEmbeddingLoss SoftMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss " ..
        "MultiMarginLoss MarginRankingLoss CosineEmbeddingLoss TripletMarginLoss TripletMarginWithDistanceLoss " ..
        "CTCLoss CosineSimilarity PairwiseDistance",
    nn_containers = "ModuleDict ParameterDict ParameterList",
    nn_embedding = "EmbeddingBag Bilinear Unflatten",
    nn_functional = "functional",
    nn_lazy = "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d " ..
        "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d " ..
        "LazyInstanceNorm2d LazyInstanceNorm3d",
    nn_attention = "MultiheadAttention RotaryEmbedding SinusoidalPositions ALiBi KVCache",
    nn_transformer = "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer " ..
        "TransformerDecoderLayer",
    nn_quantize = "QuantizedLinear quantize",
    nn_recurrent = "RNNBase LSTM GRU RNN LSTMCell GRUCell RNNCell",
    nn_flex_attention = "attention",
    nn_utils = "utils",
}

local function adopt(class)
    local own = type(class) == "table" and class ~= Module and rawget(class, "extra")
    if own then check.methods(class, "layer", {"extra()"}) end
end

for _, class in pairs(nn) do adopt(class) end
lazy_names.add(nn, files, adopt)

check.takes(nn, {"pin(x: tensor, sbp: sbp, axis: integer >= 0?)", "like(x: tensor, opts: table?)"})
return check.strict("nn", nn)
