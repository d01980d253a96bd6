-- nn_image.lua -- layers of flow.nn for images: convolution and pooling.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"

local Module, signatures = module.Module, module.signatures

check.define_type("pair", "a whole number or {rows, columns}", function(value)
    return math.type(value) and math.tointeger(value) ~= nil or type(value) == "table" and not module.is_module(value)
end)

-- One number for both, or {rows, columns}: always as the latter.
local function pair(who, name, value, least)
    local list = type(value) == "table" and value or {value, value}
    if #list ~= 2 then check.fail("%s: %s must be one number or {rows, columns}, got %d numbers", who, name, #list) end
    return {check.integer(who, name, list[1], least), check.integer(who, name, list[2], least)}
end

local function pair_text(p)
    if type(p) == "string" then return p end
    return p[1] == p[2] and tostring(p[1]) or ("%dx%d"):format(p[1], p[2])
end

-- The padding of a convolution: a pair, or a word.
local function padding_of(value, stride)
    if type(value) ~= "string" then return pair("Conv2d", "padding", value, 0) end
    if value ~= "same" and value ~= "valid" then
        local hint = check.suggest(value, {"same", "valid"})
        check.fail("Conv2d: padding must be numbers, \"same\" or \"valid\", got '%s'%s", value, hint)
    elseif value == "same" and (stride[1] ~= 1 or stride[2] ~= 1) then
        check.fail("Conv2d: padding \"same\" needs stride 1, got stride %s", pair_text(stride))
    end
    return value
end

---Convolution of images [n, inputs, height, width], or of one image without n.
---@class flow.nn.Conv2d: flow.nn.Module
local Conv2d = Module:extend("Conv2d")

---@alias flow.nn.pair integer|integer[] both, or {rows, columns}

---@param inputs integer channels of the input
---@param outputs integer channels of the result
---@param kernel flow.nn.pair size of the window
---@param opts {stride: flow.nn.pair, padding: flow.nn.pair|"same"|"valid", dilation: flow.nn.pair, groups: integer,
---bias: boolean}? "same": the result has the size of the images
function Conv2d:init(inputs, outputs, kernel, opts)
    local o = opts
    self.inputs, self.outputs, self.groups = inputs, outputs, o.groups
    if inputs % o.groups ~= 0 or outputs % o.groups ~= 0 then
        check.fail("Conv2d: %d inputs and %d outputs cannot be divided into %d groups", inputs, outputs, o.groups)
    end
    self.kernel = pair("Conv2d", "kernel", kernel, 1)
    self.stride = pair("Conv2d", "stride", o.stride, 1)
    self.padding = padding_of(o.padding, self.stride)
    self.dilation = pair("Conv2d", "dilation", o.dilation, 1)
    local depth = inputs // o.groups
    local bound = 1 / math.sqrt(depth * self.kernel[1] * self.kernel[2])
    local weight = flow.empty(outputs, depth, self.kernel[1], self.kernel[2])
    self.weight = module.Parameter(init.uniform(weight, -bound, bound))
    self.bias = nil
    if o.bias then self.bias = module.Parameter(init.uniform(flow.empty(outputs), -bound, bound)) end
end

function Conv2d:forward(x)
    return flow.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
end

signatures(Conv2d, "Conv2d(inputs: integer >= 1, outputs: integer >= 1, kernel: pair, {stride: pair = 1, " ..
    "padding: pair or string = 0, dilation: pair = 1, groups: integer >= 1 = 1, bias: boolean = true})",
    "forward(x: tensor)")

function Conv2d:extra()
    local text = ("in=%d, out=%d, kernel=%s, stride=%s, padding=%s"):format(self.inputs, self.outputs,
        pair_text(self.kernel), pair_text(self.stride), pair_text(self.padding))
    if pair_text(self.dilation) ~= "1" then text = text .. ", dilation=" .. pair_text(self.dilation) end
    if self.groups ~= 1 then text = text .. ", groups=" .. self.groups end
    return text .. ", bias=" .. tostring(self.bias ~= nil)
end

---The largest element of every window of images [n, channels, height, width], or of one image without n.
---@class flow.nn.MaxPool2d: flow.nn.Module
local MaxPool2d = Module:extend("MaxPool2d")

---@param kernel flow.nn.pair size of the window
---@param opts {stride: flow.nn.pair, padding: flow.nn.pair, dilation: flow.nn.pair, ceil_mode: boolean}? without a
---stride windows lie side by side
function MaxPool2d:init(kernel, opts)
    self.kernel = pair("MaxPool2d", "kernel", kernel, 1)
    self.stride = pair("MaxPool2d", "stride", opts.stride or self.kernel, 1)
    self.padding = pair("MaxPool2d", "padding", opts.padding, 0)
    self.dilation = pair("MaxPool2d", "dilation", opts.dilation, 1)
    self.ceil_mode = opts.ceil_mode
end

function MaxPool2d:forward(x)
    return flow.max_pool2d(x, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
end

signatures(MaxPool2d, "MaxPool2d(kernel: pair, {stride: pair?, padding: pair = 0, dilation: pair = 1, " ..
    "ceil_mode: boolean = false})", "forward(x: tensor)")

-- Of all that pool.
local function pool_text(pool)
    return ("kernel=%s, stride=%s, padding=%s"):format(pair_text(pool.kernel), pair_text(pool.stride),
        pair_text(pool.padding)) .. (pool.ceil_mode and ", ceil_mode=true" or "")
end

function MaxPool2d:extra()
    local text = pool_text(self)
    return pair_text(self.dilation) == "1" and text or text .. ", dilation=" .. pair_text(self.dilation)
end

---The mean of every window of images [n, channels, height, width], or of one image without n.
---@class flow.nn.AvgPool2d: flow.nn.Module
local AvgPool2d = Module:extend("AvgPool2d")

---@param kernel flow.nn.pair size of the window
---@param opts {stride: flow.nn.pair, padding: flow.nn.pair, ceil_mode: boolean, count_include_pad: boolean}?
function AvgPool2d:init(kernel, opts)
    self.kernel = pair("AvgPool2d", "kernel", kernel, 1)
    self.stride = pair("AvgPool2d", "stride", opts.stride or self.kernel, 1)
    self.padding = pair("AvgPool2d", "padding", opts.padding, 0)
    self.ceil_mode, self.count_include_pad = opts.ceil_mode, opts.count_include_pad
end

function AvgPool2d:forward(x)
    return flow.avg_pool2d(x, self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
end

signatures(AvgPool2d, "AvgPool2d(kernel: pair, {stride: pair?, padding: pair = 0, ceil_mode: boolean = false, " ..
    "count_include_pad: boolean = true})", "forward(x: tensor)")

function AvgPool2d:extra()
    return pool_text(self) .. (self.count_include_pad and "" or ", count_include_pad=false")
end

return {Conv2d = Conv2d, MaxPool2d = MaxPool2d, AvgPool2d = AvgPool2d}
