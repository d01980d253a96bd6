-- nn_conv.lua -- convolutions of flow.nn, and transposed ones, of one axis to three.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"
local sizes = require "flow.nn_sizes"

local Module, signatures = module.Module, module.signatures
local classes = {}

-- The padding of a convolution: sizes, or a word.
local function padding_of(who, value, stride, axes)
    if type(value) ~= "string" then return sizes.read(who, "padding", value, 0, axes) end
    if value ~= "same" and value ~= "valid" then
        local hint = check.suggest(value, {"same", "valid"})
        check.fail("%s: padding must be numbers, \"same\" or \"valid\", got '%s'%s", who, value, hint)
    end
    for i = 1, axes do
        if value == "same" and stride[i] ~= 1 then
            check.fail("%s: padding \"same\" needs stride 1, got stride %s", who, sizes.text(stride))
        end
    end
    return value
end

-- The argument of flow.pad for the padding of the convolution: two numbers for each axis, the last axis first.
local function sides_of(layer, axes)
    local sides = {}
    for i = axes, 1, -1 do
        local before, after = layer.padding[i], layer.padding[i]
        if layer.padding == "same" then
            local total = layer.dilation[i] * (layer.kernel[i] - 1)
            before, after = total // 2, total - total // 2
        elseif layer.padding == "valid" then
            before, after = 0, 0
        end
        sides[#sides + 1], sides[#sides + 2] = before, after
    end
    return sides
end

-- Fields that both sorts have. fan: inputs of an output, apart from the window.
local function set_up(self, who, axes, inputs, outputs, kernel, opts)
    self.inputs, self.outputs, self.groups = inputs, outputs, opts.groups
    if inputs % opts.groups ~= 0 or outputs % opts.groups ~= 0 then
        check.fail("%s: %d inputs and %d outputs cannot be divided into %d groups", who, inputs, outputs, opts.groups)
    end
    self.kernel = sizes.read(who, "kernel", kernel, 1, axes)
    self.stride = sizes.read(who, "stride", opts.stride, 1, axes)
    self.dilation = sizes.read(who, "dilation", opts.dilation, 1, axes)
end

-- PyTorch's start: uniform within 1 / sqrt of the elements that one output is a sum of.
local function set_weight(self, rows, columns, bias)
    local fan = columns
    for _, n in ipairs(self.kernel) do fan = fan * n end
    local bound = 1 / math.sqrt(fan)
    local weight = flow.empty({rows, columns, table.unpack(self.kernel)})
    self.weight = module.Parameter(init.uniform(weight, -bound, bound))
    self.bias = nil
    if bias then self.bias = module.Parameter(init.uniform(flow.empty(self.outputs), -bound, bound)) end
end

local function extra(self)
    local text = ("in=%d, out=%d, kernel=%s, stride=%s, padding=%s"):format(self.inputs, self.outputs,
        sizes.text(self.kernel), sizes.text(self.stride), sizes.text(self.padding))
    local more = self.output_padding and sizes.text(self.output_padding)
    if more and more ~= "0" then text = text .. ", output_padding=" .. more end
    if sizes.text(self.dilation) ~= "1" then text = text .. ", dilation=" .. sizes.text(self.dilation) end
    if self.groups ~= 1 then text = text .. ", groups=" .. self.groups end
    if self.padding_mode and self.padding_mode ~= "zeros" then text = text .. ", padding_mode=" .. self.padding_mode end
    return text .. ", bias=" .. tostring(self.bias ~= nil)
end

---@alias flow.nn.sizes integer|integer[] of all axes, or of each

-- The class of convolutions over `axes` axes.
local function convolution(axes)
    local name, op = "Conv" .. axes .. "d", flow["conv" .. axes .. "d"]
    local class = Module:extend(name)

    function class:init(inputs, outputs, kernel, opts)
        set_up(self, name, axes, inputs, outputs, kernel, opts)
        self.padding = padding_of(name, opts.padding, self.stride, axes)
        self.padding_mode, self.output_padding = opts.padding_mode, nil
        set_weight(self, outputs, inputs // opts.groups, opts.bias)
    end

    function class:forward(x)
        local padding = self.padding
        if self.padding_mode ~= "zeros" then
            x, padding = flow.pad(x, sides_of(self, axes), self.padding_mode), 0
        end
        return op(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
    end

    class.extra = extra
    signatures(class, ("%s(inputs: integer >= 1, outputs: integer >= 1, kernel: SIZE, {stride: SIZE = 1, " ..
        "padding: SIZE or string = 0, dilation: SIZE = 1, groups: integer >= 1 = 1, bias: boolean = true, " ..
        "padding_mode: zeros|reflect|replicate|circular = zeros})"):format(name):gsub("SIZE", sizes.types[axes]) .. "",
        "forward(x: tensor)")
    classes[name] = class
end

-- The padding after the result by which it gets `size`.
local function output_padding(self, name, x, size, axes)
    local first, more = x.ndim - axes, {}
    if #size ~= axes then
        check.fail("%s: output_size must have %d numbers, got %d", name, axes, #size)
    end
    for i = 1, axes do
        local least = (x:size(first + i - 1) - 1) * self.stride[i] - 2 * self.padding[i]
            + self.dilation[i] * (self.kernel[i] - 1) + 1
        more[i] = check.integer(name, "output_size", size[i], 1) - least
        if more[i] < 0 or more[i] >= self.stride[i] then
            check.fail("%s: output_size of axis %d must be between %d and %d, got %d", name, first + i - 1, least,
                least + self.stride[i] - 1, size[i])
        end
    end
    return more
end

-- The class of their transposes: it makes larger what a convolution makes smaller.
local function transposed(axes)
    local name, op = "ConvTranspose" .. axes .. "d", flow["conv_transpose" .. axes .. "d"]
    local class = Module:extend(name)

    function class:init(inputs, outputs, kernel, opts)
        set_up(self, name, axes, inputs, outputs, kernel, opts)
        self.padding = sizes.read(name, "padding", opts.padding, 0, axes)
        self.output_padding = sizes.read(name, "output_padding", opts.output_padding, 0, axes)
        self.padding_mode = nil
        set_weight(self, inputs, outputs // opts.groups, opts.bias)
    end

    function class:forward(x, output_size)
        local more = output_size and output_padding(self, name, x, output_size, axes) or self.output_padding
        return op(x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)
    end

    class.extra = extra
    signatures(class, ("%s(inputs: integer >= 1, outputs: integer >= 1, kernel: SIZE, {stride: SIZE = 1, " ..
        "padding: SIZE = 0, output_padding: SIZE = 0, groups: integer >= 1 = 1, bias: boolean = true, " ..
        "dilation: SIZE = 1})"):format(name):gsub("SIZE", sizes.types[axes]) .. "",
        "forward(x: tensor, output_size: list?)")
    classes[name] = class
end

for axes = 1, 3 do
    convolution(axes)
    transposed(axes)
end

return classes
