-- nn_quantize.lua -- nn.quantize: Linear layers with weights of 8 or 4 bits, for networks that are only run.

local flow = require "flow"
local check = require "flow.check"
local class = require "flow.module_class"
local module = require "flow.module"

-- int8 numbers, or bytes of two numbers each, and the scales of groups.
local function pack(weight, bits, group)
    local rows, columns = weight:size(0), weight:size(1)
    local most = bits == 8 and 127 or 7
    local cut = weight:to("float32"):reshape(rows, columns // group, group)
    local scales = cut:abs():amax(2) / most
    local steps = flow.where(scales:eq(0), 1, scales):unsqueeze(2)
    local numbers = (cut / steps):round():clamp(-most - 1, most)
    if bits == 8 then return numbers:reshape(rows, columns):to("int8"), scales end
    local half = group // 2
    local bytes = numbers:narrow(2, 0, half) + 8 + (numbers:narrow(2, half, half) + 8) * 16
    return bytes:reshape(rows, columns // 2):to("uint8"), scales
end

---A Linear whose weight has 8 or 4 bits per number; it is not trained.
---@class flow.nn.QuantizedLinear: flow.nn.Module
local QuantizedLinear = module.Module:extend("QuantizedLinear")

---@param linear flow.nn.Linear
---@param bits integer? 8 or 4
---@param group integer? columns that have one scale; default all for 8 bits, 32 for 4
function QuantizedLinear:init(linear, bits, group)
    if not linear:is(flow.nn.Linear) then
        check.fail("QuantizedLinear: linear must be a Linear, got %s", check.got(linear))
    end
    local weight = linear.weight:detach()
    local columns = weight:size(1)
    group = group or (bits == 4 and columns % 32 == 0) and 32 or columns
    if bits ~= 8 and bits ~= 4 then check.fail("QuantizedLinear: bits must be 8 or 4, got %d", bits) end
    if columns % group ~= 0 or bits == 4 and group % 2 ~= 0 then
        check.fail("QuantizedLinear: %d columns cannot be divided into groups of %d%s", columns, group,
            bits == 4 and "; of 4 bits a group is even" or "")
    end
    self.inputs, self.outputs, self.bits, self.group = columns, weight:size(0), bits, group
    self.activation = linear.activation
    local numbers, scales = pack(weight, bits, group)
    self:register_buffer("weight", numbers)
    self:register_buffer("scales", scales)
    self:register_buffer("bias", linear.bias and linear.bias:detach():clone())
end

local activations = {
    relu = flow.relu, gelu = flow.gelu, gelu_tanh = function(y) return flow.gelu(y, "tanh") end,
}

function QuantizedLinear:forward(x)
    local y = flow.linear_quantized(x, self.weight, self.scales, self.bias, self.bits)
    return self.activation and activations[self.activation](y) or y
end

function QuantizedLinear:extra()
    return ("in=%d, out=%d, bits=%d, group=%d"):format(self.inputs, self.outputs, self.bits, self.group)
end

module.signatures(QuantizedLinear, "QuantizedLinear(linear: module, bits: integer = 8, group: integer >= 1?)",
    "forward(x: tensor)")

---Makes every Linear in the network a QuantizedLinear, in place; returns the network. Groups are shortened to all
---columns where a layer's do not divide.
---@param net flow.nn.Module
---@param bits integer? 8 or 4
---@param group integer?
local function quantize(net, bits, group)
    local Linear = flow.nn.Linear
    for _, part in ipairs(net:modules()) do
        if getmetatable(part) == Linear then
            local fits = group and part.weight:size(1) % group == 0
            class.become(part, QuantizedLinear(part, bits, fits and group or nil))
        end
    end
    return net
end

local M = {QuantizedLinear = QuantizedLinear, quantize = quantize}
check.takes(M, {"quantize(net: module, bits: integer = 8, group: integer >= 1?)"})
return M
