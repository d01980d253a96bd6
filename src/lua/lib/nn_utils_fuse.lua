-- nn_utils_fuse.lua -- of flow.nn.utils: a layer and the normalisation behind it as one layer, for networks that are
-- only run.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"

local M = {}

-- The scale of each channel that a normalisation applies, and what it subtracts and adds.
local function factors(mean, var, eps, weight, bias)
    local scale = (var + eps):rsqrt()
    if weight then scale = scale * weight end
    return scale, (bias or flow.zeros_like(mean)) - mean * scale
end

-- Weight and bias, scaled along the axis that counts the outputs.
local function scaled(weight, bias, scale, shift, axis)
    local shape = {}
    for i = 1, weight.ndim do shape[i] = i == axis + 1 and -1 or 1 end
    local made = bias and bias * scale + shift or shift
    return module.Parameter((weight * scale:reshape(shape)):detach(), weight.requires_grad),
        module.Parameter(made:detach():clone(), bias == nil or bias.requires_grad)
end

---The weight and the bias of a convolution with those of a normalisation in them. transpose: its weight has the outputs
---on axis 1.
function M.fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose)
    local scale, shift = factors(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return scaled(conv_w, conv_b, scale, shift, transpose and 1 or 0)
end

---fuse_conv_bn_weights of a Linear.
function M.fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    local scale, shift = factors(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return scaled(linear_w, linear_b, scale, shift, 0)
end

-- A copy of the layer with the normalisation in it.
local function fused(who, layer, bn, fuse)
    if layer.training or bn.training then check.fail("%s: both modules must be in eval mode; write net:eval()", who) end
    if not bn.running_mean then check.fail("%s: the normalisation has no running statistics", who) end
    local copy = layer:clone()
    copy.weight, copy.bias = nil, nil
    local weight, bias = fuse(layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    copy.weight = weight
    copy.bias = bias
    return copy
end

---A convolution that computes bn(conv(x)), of modules in eval mode.
---@param conv flow.nn.Module
---@param bn flow.nn.Module
---@param transpose boolean? conv is transposed
function M.fuse_conv_bn_eval(conv, bn, transpose)
    return fused("fuse_conv_bn_eval", conv, bn, function(w, b, mean, var, eps, scale, shift)
        return M.fuse_conv_bn_weights(w, b, mean, var, eps, scale, shift, transpose)
    end)
end

---A Linear that computes bn(linear(x)), of modules in eval mode.
---@param linear flow.nn.Module
---@param bn flow.nn.Module
function M.fuse_linear_bn_eval(linear, bn)
    return fused("fuse_linear_bn_eval", linear, bn, M.fuse_linear_bn_weights)
end

local STATISTICS = "bn_rm: tensor, bn_rv: tensor, bn_eps: number, bn_w: tensor?, bn_b: tensor?"
check.takes(M, {
    "fuse_conv_bn_weights(conv_w: tensor, conv_b: tensor?, " .. STATISTICS .. ", transpose: boolean = false)",
    "fuse_linear_bn_weights(linear_w: tensor, linear_b: tensor?, " .. STATISTICS .. ")",
    "fuse_conv_bn_eval(conv: module, bn: module, transpose: boolean = false)",
    "fuse_linear_bn_eval(linear: module, bn: module)",
})

return M
