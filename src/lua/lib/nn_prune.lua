-- nn_prune.lua -- flow.nn.utils.prune: parameters with a mask, of which a share is 0.
--
-- name_orig is the parameter, the buffer name_mask has 1 where it counts; the product is computed before each forward.
-- A second pruning takes its share of what the first has left.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"

local M = {}

local handles = setmetatable({}, {__mode = "k"})        -- by module: name -> the hook's

local function fields_of(net) return module.fields(net) end

local function original_of(who, net, name)
    local t = fields_of(net)[name .. "_orig"] or fields_of(net)[name]
    if not check.is_tensor(t) then check.fail("%s: the module has no parameter %s", who, check.quote(name)) end
    return t
end

local function mask_of(net, name, t) return fields_of(net)[name .. "_mask"] or flow.ones_like(t:detach()) end

local function compute(net, name)
    local fields = fields_of(net)
    fields[name] = fields[name .. "_orig"] * fields[name .. "_mask"]
end

-- Gives the parameter this mask.
local function apply(net, name, mask)
    local fields = fields_of(net)
    if fields[name .. "_mask"] then
        fields[name .. "_mask"]:copy_(mask)
    else
        local t = fields[name]
        net[name] = nil
        net:register_parameter(name .. "_orig", t)
        net:register_buffer(name .. "_mask", mask:to(t.dtype))
        handles[net] = handles[net] or {}
        handles[net][name] = net:register_forward_pre_hook(function(self) compute(self, name) end)
    end
    compute(net, name)
    return net
end

-- How many of `count` an amount is: a whole number of them, or a share.
local function number_of(who, amount, count)
    if amount < 0 then check.fail("%s: amount must not be negative, got %g", who, amount) end
    if math.type(amount) == "integer" then
        if amount > count then check.fail("%s: amount %d is more than the %d there are", who, amount, count) end
        return amount
    end
    if amount > 1 then check.fail("%s: amount must be a share from 0 to 1 or a whole number, got %g", who, amount) end
    local exact = amount * count
    local whole = math.floor(exact)
    local rest = exact - whole
    return whole + ((rest > 0.5 or rest == 0.5 and whole % 2 == 1) and 1 or 0)
end

-- The mask with the elements of the least scores out, so many of those that are in.
local function without_least(who, mask, scores, amount)
    local flat, left = mask:reshape(-1), math.tointeger(mask:ne(0):sum():item())
    local count = number_of(who, amount, left)
    if count == 0 then return mask end
    local masked = scores:detach():reshape(-1):masked_fill(flat:eq(0), math.huge)
    local _, at = masked:topk(count, 0, false)
    return flat:index_fill(0, at, 0):reshape(mask.shape)
end

-- The same for whole slices along an axis; scores has one for each.
local function without_slices(who, mask, scores, amount, axis)
    local shape, others = {}, {}
    for i = 1, mask.ndim do
        shape[i] = i == axis + 1 and -1 or 1
        if i ~= axis + 1 then others[#others + 1] = i - 1 end
    end
    local present = #others > 0 and mask:ne(0):any(others) or mask:ne(0)
    local kept = without_least(who, present:to(mask.dtype), scores, amount)
    return mask * kept:reshape(shape)
end

-- Scores for an axis: norms of its slices.
local function slice_norms(t, n, axis)
    local others = {}
    for i = 0, t.ndim - 1 do
        if i ~= axis then others[#others + 1] = i end
    end
    return #others > 0 and t:norm(n, others) or t:abs()
end

local function random_like(t) return flow.rand_like(t:detach()) end

local function axis_of(who, t, axis)
    if axis < -t.ndim or axis >= t.ndim then
        check.fail("%s: axis %d is out of range for %s", who, axis, check.shape(t))
    end
    return axis % t.ndim
end

---The elements of the least absolute value become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number a whole number of elements, or a share of them (a float)
function M.l1_unstructured(net, name, amount)
    local t = original_of("l1_unstructured", net, name)
    return apply(net, name, without_least("l1_unstructured", mask_of(net, name, t), t:detach():abs(), amount))
end

---Elements drawn at random become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number
function M.random_unstructured(net, name, amount)
    local t = original_of("random_unstructured", net, name)
    return apply(net, name, without_least("random_unstructured", mask_of(net, name, t), random_like(t), amount))
end

---The slices along an axis of the least norm become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number of slices
---@param n number of the norm
---@param axis integer
function M.ln_structured(net, name, amount, n, axis)
    local t = original_of("ln_structured", net, name)
    axis = axis_of("ln_structured", t, axis)
    local scores = slice_norms(t:detach(), n, axis)
    return apply(net, name, without_slices("ln_structured", mask_of(net, name, t), scores, amount, axis))
end

---Slices along an axis drawn at random become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number of slices
---@param axis integer
function M.random_structured(net, name, amount, axis)
    local t = original_of("random_structured", net, name)
    axis = axis_of("random_structured", t, axis)
    local scores = random_like(slice_norms(t:detach(), 1, axis))
    return apply(net, name, without_slices("random_structured", mask_of(net, name, t), scores, amount, axis))
end

---A mask of the script's own; a second one is multiplied with the first.
---@param net flow.nn.Module
---@param name string
---@param mask any
function M.custom_from_mask(net, name, mask)
    local t = original_of("custom_from_mask", net, name)
    if check.shape(mask) ~= check.shape(t) then
        check.fail("custom_from_mask: '%s' is %s, the mask %s", name, check.shape(t), check.shape(mask))
    end
    return apply(net, name, mask_of(net, name, t) * mask:to(t.dtype))
end

---A mask of ones.
function M.identity(net, name)
    return apply(net, name, mask_of(net, name, original_of("identity", net, name)))
end

---Prunes the parameters of a list of {module, name} together: the least of all of them become 0.
---@param parameters table[]
---@param amount number of all elements
---@param opts {method: string} l1_unstructured or random_unstructured
function M.global_unstructured(parameters, amount, opts)
    local masks, scores, sizes = {}, {}, {}
    for i, entry in ipairs(parameters) do
        if not check.is("list", entry) or not module.is_module(entry[1]) or type(entry[2]) ~= "string" then
            check.fail("global_unstructured: entry %d must be {module, name}", i)
        end
        local t = original_of("global_unstructured", entry[1], entry[2])
        masks[i] = mask_of(entry[1], entry[2], t):reshape(-1)
        scores[i] = (opts.method == "l1_unstructured" and t:detach():abs() or random_like(t)):reshape(-1)
        sizes[i] = t:numel()
    end
    if #masks == 0 then check.fail("global_unstructured: the list of parameters is empty") end
    local all = without_least("global_unstructured", flow.cat(masks, 0), flow.cat(scores, 0), amount)
    local at = 0
    for i, entry in ipairs(parameters) do
        local t = original_of("global_unstructured", entry[1], entry[2])
        apply(entry[1], entry[2], all:narrow(0, at, sizes[i]):reshape(t.shape))
        at = at + sizes[i]
    end
end

---The product with the mask becomes the parameter.
---@param net flow.nn.Module
---@param name string
function M.remove(net, name)
    local handle = handles[net] and handles[net][name]
    local fields = fields_of(net)
    if not fields[name .. "_mask"] then check.fail("remove: '%s' is not pruned", name) end
    if handle then handle:remove() end
    if handles[net] then handles[net][name] = nil end
    local t = fields[name .. "_orig"]
    flow.no_grad(function() t:mul_(fields[name .. "_mask"]) end)
    for _, part in ipairs {name .. "_orig", name .. "_mask"} do net[part] = nil end
    net[name] = nil
    net:register_parameter(name, t)
    return net
end

---True if a parameter of the module, or of one below it, is pruned.
---@param net flow.nn.Module
---@return boolean
function M.is_pruned(net)
    for name in net:named_buffers() do
        if name:find "_mask$" then
            local path, own = name:match "^(.-)([^.]+)_mask$"
            local part = path == "" and net or net:get_submodule(path:sub(1, -2))
            if fields_of(part)[own .. "_orig"] then return true end
        end
    end
    return false
end

local AMOUNT = "(net: module, name: string, amount: number"
check.takes(M, {
    "l1_unstructured" .. AMOUNT .. ")", "random_unstructured" .. AMOUNT .. ")",
    "ln_structured" .. AMOUNT .. ", n: number, axis: integer)", "random_structured" .. AMOUNT .. ", axis: integer)",
    "custom_from_mask(net: module, name: string, mask: tensor)", "identity(net: module, name: string)",
    "global_unstructured(parameters: list, amount: number, "
        .. "{method: l1_unstructured|random_unstructured = l1_unstructured})",
    "remove(net: module, name: string)", "is_pruned(net: module)",
})

return {prune = check.strict("nn.utils.prune", M)}
