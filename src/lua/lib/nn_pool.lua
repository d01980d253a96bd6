-- nn_pool.lua -- pooling layers of flow.nn, of one axis to three.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"
local sizes = require "flow.nn_sizes"

local Module, signatures = module.Module, module.signatures
local classes = {}

-- A class of so many axes; `usage` with SIZE for the type of its sizes.
local function pool(name, axes, usage, methods, forward)
    local class = Module:extend(name)
    for key, method in pairs(methods) do class[key] = method end
    local text = name .. usage:gsub("SIZE", sizes.types[axes])
    signatures(class, text, (forward or "forward(x: tensor)"))
    classes[name] = class
end

-- Windows lie side by side where no stride is given.
local function read_window(self, name, axes, kernel, opts)
    self.kernel = sizes.read(name, "kernel", kernel, 1, axes)
    self.stride = sizes.read(name, "stride", opts.stride or self.kernel, 1, axes)
end

local function window_text(self)
    local text = ("kernel=%s, stride=%s"):format(sizes.text(self.kernel), sizes.text(self.stride))
    if self.padding then text = text .. ", padding=" .. sizes.text(self.padding) end
    return text .. (self.ceil_mode and ", ceil_mode=true" or "")
end

local function max_pool(axes)
    local name, op = "MaxPool" .. axes .. "d", "max_pool" .. axes .. "d"
    pool(name, axes, "(kernel: SIZE, {stride: SIZE?, padding: SIZE = 0, dilation: SIZE = 1, " ..
        "return_indices: boolean = false, ceil_mode: boolean = false})", {
        init = function(self, kernel, opts)
            read_window(self, name, axes, kernel, opts)
            self.padding = sizes.read(name, "padding", opts.padding, 0, axes)
            self.dilation = sizes.read(name, "dilation", opts.dilation, 1, axes)
            self.ceil_mode, self.return_indices = opts.ceil_mode, opts.return_indices
        end,
        forward = function(self, x)
            local f = flow[self.return_indices and op .. "_with_indices" or op]
            return f(x, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        end,
        extra = function(self)
            local text = window_text(self)
            return sizes.text(self.dilation) == "1" and text or text .. ", dilation=" .. sizes.text(self.dilation)
        end,
    })
end

local function avg_pool(axes)
    local name, op = "AvgPool" .. axes .. "d", flow["avg_pool" .. axes .. "d"]
    local more = axes > 1 and ", divisor_override: integer?" or ""
    pool(name, axes, "(kernel: SIZE, {stride: SIZE?, padding: SIZE = 0, ceil_mode: boolean = false, " ..
        "count_include_pad: boolean = true" .. more .. "})", {
        init = function(self, kernel, opts)
            read_window(self, name, axes, kernel, opts)
            self.padding = sizes.read(name, "padding", opts.padding, 0, axes)
            self.ceil_mode, self.count_include_pad = opts.ceil_mode, opts.count_include_pad
            self.divisor_override = opts.divisor_override
        end,
        forward = function(self, x)
            return op(x, self.kernel, self.stride, self.padding, {ceil_mode = self.ceil_mode,
                count_include_pad = self.count_include_pad, divisor_override = self.divisor_override})
        end,
        extra = function(self)
            return window_text(self) .. (self.count_include_pad and "" or ", count_include_pad=false")
        end,
    })
end

local function lp_pool(axes)
    local name, op = "LPPool" .. axes .. "d", flow["lp_pool" .. axes .. "d"]
    pool(name, axes, "(norm: number, kernel: SIZE, {stride: SIZE?, ceil_mode: boolean = false})", {
        init = function(self, norm, kernel, opts)
            read_window(self, name, axes, kernel, opts)
            self.norm, self.padding, self.ceil_mode = norm, nil, opts.ceil_mode
        end,
        forward = function(self, x) return op(x, self.norm, self.kernel, self.stride, self.ceil_mode) end,
        extra = function(self) return ("norm=%g, "):format(self.norm) .. window_text(self) end,
    })
end

-- Numbers of windows; -1: as many as the input has.
local function read_adaptive(name, size, axes)
    local list = sizes.read(name, "size", size, -1, axes)
    for _, n in ipairs(list) do
        if n == 0 then check.integer(name, "size", n, 1) end
    end
    return list
end

local function adaptive_avg_pool(axes)
    local name, op = "AdaptiveAvgPool" .. axes .. "d", flow["adaptive_avg_pool" .. axes .. "d"]
    pool(name, axes, "(size: SIZE)", {
        init = function(self, size) self.size = read_adaptive(name, size, axes) end,
        forward = function(self, x) return op(x, self.size) end,
        extra = function(self) return "size=" .. sizes.text(self.size) end,
    })
end

local function adaptive_max_pool(axes)
    local name, op = "AdaptiveMaxPool" .. axes .. "d", "adaptive_max_pool" .. axes .. "d"
    pool(name, axes, "(size: SIZE, {return_indices: boolean = false})", {
        init = function(self, size, opts)
            self.size, self.return_indices = read_adaptive(name, size, axes), opts.return_indices
        end,
        forward = function(self, x)
            return flow[self.return_indices and op .. "_with_indices" or op](x, self.size)
        end,
        extra = function(self) return "size=" .. sizes.text(self.size) end,
    })
end

local function max_unpool(axes)
    local name, op = "MaxUnpool" .. axes .. "d", flow["max_unpool" .. axes .. "d"]
    pool(name, axes, "(kernel: SIZE, {stride: SIZE?, padding: SIZE = 0})", {
        init = function(self, kernel, opts)
            read_window(self, name, axes, kernel, opts)
            self.padding, self.ceil_mode = sizes.read(name, "padding", opts.padding, 0, axes), nil
        end,
        forward = function(self, x, indices, output_size)
            return op(x, indices, self.kernel, self.stride, self.padding, {output_size = output_size})
        end,
        extra = window_text,
    }, "forward(x: tensor, indices: tensor, output_size: list?)")
end

for axes = 1, 3 do
    max_pool(axes)
    avg_pool(axes)
    lp_pool(axes)
    adaptive_avg_pool(axes)
    adaptive_max_pool(axes)
    max_unpool(axes)
end

return classes
