-- nn_utils_grad.lua -- flow.nn.utils: gradients that are limited, parameters as one vector, weights that are computed.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"
local groups = require "flow.optim_groups"
local totals = require "flow.optim_totals"

local M = {}

local function list_of(who, tensors)
    return check.is_tensor(tensors) and {tensors} or groups.tensor_list(who, tensors)
end

---Scales the gradients so that the norm of all of them together is at most max_norm; returns the norm before.
---@param parameters any a list of them, or one
---@param max_norm number
---@param norm_type number? default 2
function M.clip_grad_norm_(parameters, max_norm, norm_type)
    parameters = list_of("clip_grad_norm_", parameters)
    if norm_type == 2 then return flow.optim.clip_grad_norm(parameters, max_norm) end
    local _ <close> = flow.no_grad()
    local grads = {}
    for _, p in ipairs(parameters) do grads[#grads + 1] = p.grad end
    if #grads == 0 then return flow.tensor(0.0) end
    local total = totals.norm(grads, norm_type)
    local scale = (max_norm / (total + 1e-6)):clamp(nil, 1)
    for _, p in ipairs(parameters) do
        if p.grad then p.grad:mul_(scale) end
    end
    return total
end

---The norm of all tensors together.
---@param tensors any a list of them, or one
---@param norm_type number? default 2
function M.get_total_norm(tensors, norm_type)
    local _ <close> = flow.no_grad()
    tensors = list_of("get_total_norm", tensors)
    return #tensors > 0 and totals.norm(tensors, norm_type) or flow.tensor(0.0)
end

---Scales the gradients so that a norm of total_norm becomes max_norm at most.
---@param parameters any a list of them, or one
---@param max_norm number
---@param total_norm any tensor
function M.clip_grads_with_norm_(parameters, max_norm, total_norm)
    local _ <close> = flow.no_grad()
    local scale = (max_norm / (total_norm + 1e-6)):clamp(nil, 1)
    for _, p in ipairs(list_of("clip_grads_with_norm_", parameters)) do
        if p.grad then p.grad:mul_(scale) end
    end
end

---Limits every element of the gradients to [-limit, limit].
---@param parameters any a list of them, or one
---@param limit number
function M.clip_grad_value_(parameters, limit)
    local _ <close> = flow.no_grad()
    for _, p in ipairs(list_of("clip_grad_value_", parameters)) do
        if p.grad then p.grad:clamp_(-limit, limit) end
    end
end

---All elements of the parameters in one tensor of one axis.
---@param parameters any[]
function M.parameters_to_vector(parameters)
    local flat = {}
    for i, p in ipairs(list_of("parameters_to_vector", parameters)) do flat[i] = p:flatten() end
    return flow.cat(flat, 0)
end

---Writes the elements of a vector into the parameters.
---@param vector any
---@param parameters any[]
function M.vector_to_parameters(vector, parameters)
    local _ <close> = flow.no_grad()
    local at, count = 0, 0
    parameters = list_of("vector_to_parameters", parameters)
    for _, p in ipairs(parameters) do count = count + p:numel() end
    if count ~= vector:numel() then
        check.fail("vector_to_parameters: vector must have %d elements, got %s", count, check.shape(vector))
    end
    for _, p in ipairs(parameters) do
        p:copy_(vector:narrow(0, at, p:numel()):reshape(p.shape))
        at = at + p:numel()
    end
end

-- ---- weights that are computed before each forward ----

-- Computed weights by module: name -> {handle of the hook, what removes it}
local computed = setmetatable({}, {__mode = "k"})

local function note(net, who, name, entry)
    computed[net] = computed[net] or {}
    if computed[net][name] then check.fail("%s: '%s' is computed already", who, name) end
    computed[net][name] = entry
end

local function forget(net, who, name)
    local entry = computed[net] and computed[net][name]
    if not entry or entry.who ~= who then check.fail("remove_%s: '%s' has none", who, name) end
    computed[net][name] = nil
    entry.handle:remove()
    return entry
end

-- Makes the weight, as it was computed last, a parameter again in the place of its parts.
local function restore(net, name, entry)
    local weight = module.fields(net)[name]:detach():clone()
    for _, part in ipairs(entry.parts) do net[part] = nil end
    net[name] = nil
    net:register_parameter(name, module.Parameter(weight))
    return net
end

local function weight_of(net, who, name)
    local t = module.fields(net)[name]
    if not check.is_tensor(t) then check.fail("%s: the module has no parameter %s", who, check.quote(name)) end
    return t
end

-- The norm over all axes but one; of everything for axis nil.
local function norm_except(tensor, axis)
    if not axis then return tensor:norm() end
    local axes = {}
    for i = 0, tensor:dim() - 1 do
        if i ~= axis % tensor:dim() then axes[#axes + 1] = i end
    end
    return #axes == 0 and tensor:abs() or tensor:norm(2, axes, true)
end

---The weight as a length and a direction: name_g and name_v are the parameters, g v / |v| is the weight.
---@param net flow.nn.Module
---@param name string? default "weight"
---@param axis integer? that keeps its lengths, default 0; -1: one length for all
function M.weight_norm(net, name, axis)
    local v, along = weight_of(net, "weight_norm", name), axis ~= -1 and axis or nil
    local length = norm_except(v:detach(), along)
    net[name] = nil
    net:register_parameter(name .. "_g", module.Parameter(length:clone()))
    net:register_parameter(name .. "_v", module.Parameter(v:detach():clone()))
    local function compute(self)
        local w = self[name .. "_v"]
        module.fields(self)[name] = self[name .. "_g"] * (w / norm_except(w, along))
    end
    note(net, "weight_norm", name, {
        who = "weight_norm", handle = net:register_forward_pre_hook(function(self) compute(self) end),
        compute = compute, parts = {name .. "_g", name .. "_v"},
    })
    compute(net)
    return net
end

---The parameter again that weight_norm has taken apart.
function M.remove_weight_norm(net, name)
    local entry = forget(net, "weight_norm", name)
    entry.compute(net)
    return restore(net, name, entry)
end

---The weight divided by its largest singular value, which steps of the power iteration follow during training.
---@param net flow.nn.Module
---@param name string? default "weight"
---@param steps integer? of each forward
---@param eps number?
---@param axis integer? that counts the outputs, default 0
function M.spectral_norm(net, name, steps, eps, axis)
    local original = weight_of(net, "spectral_norm", name)
    local function matrix(w)
        if axis ~= 0 then w = w:transpose(0, axis) end
        return w:reshape(w:size(0), -1)
    end
    local rows = matrix(original:detach())
    net[name] = nil
    net:register_parameter(name .. "_orig", module.Parameter(original:detach():clone()))
    net:register_buffer(name .. "_u", flow.normalize(flow.randn(rows:size(0)):to(rows.dtype), 2, 0, eps))
    net:register_buffer(name .. "_v", flow.normalize(flow.randn(rows:size(1)):to(rows.dtype), 2, 0, eps))
    local function compute(self, count)
        local w = matrix(self[name .. "_orig"])
        do
            local _ <close> = flow.no_grad()
            local u, v = self[name .. "_u"], self[name .. "_v"]
            for _ = 1, count do
                v:copy_(flow.normalize(w:t():matmul(u), 2, 0, eps))
                u:copy_(flow.normalize(w:matmul(v), 2, 0, eps))
            end
        end
        local u, v = self[name .. "_u"]:clone(), self[name .. "_v"]:clone()
        module.fields(self)[name] = self[name .. "_orig"] / (u * w:matmul(v)):sum()
    end
    note(net, "spectral_norm", name, {
        who = "spectral_norm", compute = compute, parts = {name .. "_orig", name .. "_u", name .. "_v"},
        handle = net:register_forward_pre_hook(function(self) compute(self, self.training and steps or 0) end),
    })
    compute(net, 15)
    return net
end

---The parameter again, with the value that spectral_norm gave it.
function M.remove_spectral_norm(net, name)
    local entry = forget(net, "spectral_norm", name)
    entry.compute(net, 0)
    return restore(net, name, entry)
end

check.takes(M, {
    "clip_grad_norm_(parameters: any, max_norm: number >= 0, norm_type: number = 2)",
    "get_total_norm(tensors: any, norm_type: number = 2)",
    "clip_grads_with_norm_(parameters: any, max_norm: number, total_norm: tensor)",
    "clip_grad_value_(parameters: any, limit: number)", "parameters_to_vector(parameters: table)",
    "vector_to_parameters(vector: tensor, parameters: table)",
    "weight_norm(net: module, name: string = weight, axis: integer = 0)",
    "remove_weight_norm(net: module, name: string = weight)",
    "spectral_norm(net: module, name: string = weight, steps: integer >= 1 = 1, eps: number = 1e-12, " ..
        "axis: integer >= 0 = 0)",
    "remove_spectral_norm(net: module, name: string = weight)",
})

return M
