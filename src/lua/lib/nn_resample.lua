-- nn_resample.lua -- layers of flow.nn that put elements around images, or give them another size or order.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"
local sizes = require "flow.nn_sizes"

local Module, signatures = module.Module, module.signatures
local classes = {}

-- ---- padding ----

-- One number for all sides, or two for each axis, the last axis first.
local function sides_of(name, padding, axes)
    local list = {}
    if type(padding) ~= "table" then
        for i = 1, 2 * axes do list[i] = padding end
    elseif #padding == 2 * axes then
        for i = 1, 2 * axes do list[i] = check.integer(name, "padding", padding[i], -math.maxinteger) end
    else
        check.fail("%s: padding must be one number or %d, got %d", name, 2 * axes, #padding)
    end
    return list
end

-- A class that pads `axes` axes of x, with a batch or without.
local function pad(prefix, mode, axes, usage)
    local name = prefix .. axes .. "d"
    local class = Module:extend(name)

    function class:init(padding, value)
        self.padding, self.value = sides_of(name, padding, axes), value or 0
    end

    function class:forward(x)
        if x.ndim ~= axes + 1 and x.ndim ~= axes + 2 then
            check.fail("%s: x must have %d or %d axes, got %s", name, axes + 1, axes + 2, check.shape(x))
        end
        return flow.pad(x, self.padding, mode, self.value)
    end

    function class:extra()
        local text = table.concat(self.padding, ", ")
        return usage and text .. (", value=%g"):format(self.value) or text
    end

    signatures(class, name .. "(padding: sides" .. (usage or "") .. ")", "forward(x: tensor)")
    classes[name] = class
end

for axes = 1, 3 do
    pad("ConstantPad", "constant", axes, ", value: number")
    pad("ZeroPad", "constant", axes)
    pad("ReflectionPad", "reflect", axes)
    pad("ReplicationPad", "replicate", axes)
    pad("CircularPad", "circular", axes)
end

-- ---- other sizes ----

---Images in another size, or scaled by a factor.
---@class flow.nn.Upsample: flow.nn.Module
local Upsample = Module:extend("Upsample")
classes.Upsample = Upsample

---@param opts {size: integer|integer[], scale_factor: number, mode: string, align_corners: boolean}?
function Upsample:init(opts)
    self.size, self.scale_factor, self.mode, self.align_corners = opts.size, opts.scale_factor, opts.mode,
        opts.align_corners
    if (self.size == nil) == (self.scale_factor == nil) then
        check.fail("Upsample: takes either size or scale_factor")
    end
end

function Upsample:forward(x)
    return flow.interpolate(x, self.size, self.scale_factor, self.mode, {align_corners = self.align_corners})
end

signatures(Upsample, "Upsample({size: integer >= 1 or list?, scale_factor: number?, " ..
    "mode: nearest|linear|bilinear|bicubic|trilinear = nearest, align_corners: boolean?})", "forward(x: tensor)")

function Upsample:extra()
    local size = self.size
    local text = size and "size=" .. sizes.text(type(size) == "table" and size or {size})
        or ("scale_factor=%g"):format(self.scale_factor)
    return text .. ", mode=" .. self.mode
end

local function upsampling(name, mode, align_corners)
    local class = Upsample:extend(name)

    function class:init(opts)
        Upsample.init(self, {size = opts.size, scale_factor = opts.scale_factor, mode = mode,
            align_corners = align_corners})
    end

    signatures(class, name .. "({size: integer >= 1 or list?, scale_factor: number?})")
    classes[name] = class
end
upsampling("UpsamplingNearest2d", "nearest")
upsampling("UpsamplingBilinear2d", "bilinear", true)

-- ---- channels as pixels ----

local function shuffle(name, op, parameter)
    local class = Module:extend(name)
    function class:init(factor) self[parameter] = factor end
    function class:forward(x) return op(x, self[parameter]) end
    function class:extra() return ("%s=%d"):format(parameter, self[parameter]) end
    signatures(class, ("%s(%s: integer >= 1)"):format(name, parameter), "forward(x: tensor)")
    classes[name] = class
end
shuffle("PixelShuffle", flow.pixel_shuffle, "upscale_factor")
shuffle("PixelUnshuffle", flow.pixel_unshuffle, "downscale_factor")
shuffle("ChannelShuffle", flow.channel_shuffle, "groups")

-- ---- windows as columns ----

---The elements under every window of images [n, channels, height, width] as columns [n, channels * taps, windows].
---@class flow.nn.Unfold: flow.nn.Module
local Unfold = Module:extend("Unfold")
classes.Unfold = Unfold

local function set_window(self, name, kernel, opts)
    self.kernel = sizes.read(name, "kernel", kernel, 1, 2)
    self.dilation = sizes.read(name, "dilation", opts.dilation, 1, 2)
    self.padding = sizes.read(name, "padding", opts.padding, 0, 2)
    self.stride = sizes.read(name, "stride", opts.stride, 1, 2)
end

local function window_text(self)
    return ("kernel=%s, dilation=%s, padding=%s, stride=%s"):format(sizes.text(self.kernel), sizes.text(self.dilation),
        sizes.text(self.padding), sizes.text(self.stride))
end

---@param kernel flow.nn.sizes
---@param opts {dilation: flow.nn.sizes, padding: flow.nn.sizes, stride: flow.nn.sizes}?
function Unfold:init(kernel, opts) set_window(self, "Unfold", kernel, opts) end

function Unfold:forward(x)
    return flow.im2col(x, self.kernel, self.dilation, self.padding, self.stride)
end

Unfold.extra = window_text
signatures(Unfold, "Unfold(kernel: pair, {dilation: pair = 1, padding: pair = 0, stride: pair = 1})",
    "forward(x: tensor)")

---Columns added to the elements of images that Unfold takes them from.
---@class flow.nn.Fold: flow.nn.Module
local Fold = Module:extend("Fold")
classes.Fold = Fold

---@param size flow.nn.sizes of the images
---@param kernel flow.nn.sizes
---@param opts {dilation: flow.nn.sizes, padding: flow.nn.sizes, stride: flow.nn.sizes}?
function Fold:init(size, kernel, opts)
    self.size = sizes.read("Fold", "size", size, 1, 2)
    set_window(self, "Fold", kernel, opts)
end

function Fold:forward(x)
    return flow.col2im(x, self.size, self.kernel, self.dilation, self.padding, self.stride)
end

function Fold:extra() return ("size=%s, "):format(sizes.text(self.size)) .. window_text(self) end

signatures(Fold, "Fold(size: pair, kernel: pair, {dilation: pair = 1, padding: pair = 0, stride: pair = 1})",
    "forward(x: tensor)")

return classes
