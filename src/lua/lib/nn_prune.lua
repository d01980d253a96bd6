-- nn_prune.lua -- flow.nn.utils.prune: parameters with a mask, of which a share is 0.
--
-- name_orig is the parameter, the buffer name_mask has 1 where it counts; the product is computed before each forward.
-- A pruning method is a class with compute_mask, as in PyTorch; the functions make one and apply it. A second
-- pruning applies to the elements that the first has left: those of each row, or its slices.

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

local function mask_of(net, name, tensor) return fields_of(net)[name .. "_mask"] or flow.ones_like(tensor:detach()) end

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

-- The number of `count` elements that an amount means: a whole number of them, or a share.
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

local function axes_but(axis, ndim)
    local others = {}
    for i = 0, ndim - 1 do
        if i ~= axis then others[#others + 1] = i end
    end
    return others
end

-- The slices along an axis of which something counts.
local function slices_left(mask, axis)
    local others = axes_but(axis, mask.ndim)
    return #others > 0 and mask:ne(0):any(others) or mask:ne(0)
end

-- The same for whole slices along an axis; scores has one for each.
local function without_slices(who, mask, scores, amount, axis)
    local shape = {}
    for i = 1, mask.ndim do shape[i] = i == axis + 1 and -1 or 1 end
    local kept = without_least(who, slices_left(mask, axis):to(mask.dtype), scores, amount)
    return mask * kept:reshape(shape)
end

-- Scores for an axis: norms of its slices.
local function slice_norms(tensor, n, axis)
    local others = axes_but(axis, tensor.ndim)
    return #others > 0 and tensor:norm(n, others) or tensor:abs()
end

local function random_like(tensor) return flow.rand_like(tensor:detach()) end

local function axis_of(who, t, axis)
    if axis < -t.ndim or axis >= t.ndim then
        check.fail("%s: axis %d is out of range for %s", who, axis, check.shape(t))
    end
    return axis % t.ndim
end

-- ---- methods ----

---@class flow.nn.PruningMethod
---@field PRUNING_TYPE string "unstructured", "structured" (with the field axis) or "global"
local Method = {PRUNING_TYPE = "unstructured", name = "BasePruningMethod"}
Method.__index = Method

-- Classes and their objects.
local classes = setmetatable({[Method] = true}, {__mode = "k"})
local function is_object(value)
    return type(value) == "table" and classes[getmetatable(value) or false] or false
end
local function is_method(value) return type(value) == "table" and classes[value] or is_object(value) end

local function construct(class, ...)
    local self = setmetatable({}, class)
    self:init(...)
    return self
end

---A class of pruning methods; give it compute_mask, and init(...) for what its objects are made of.
---@param name string
---@return table class
function Method:extend(name)
    local class = {name = name}
    class.__index = class
    classes[class] = true
    return setmetatable(class, {__index = self, __call = construct, __name = "class " .. name})
end

---Called with the arguments of the constructor.
function Method:init() end  -- luacheck: ignore self

---The mask for t, whose elements with 0 in default_mask are out already: 1 for what counts, 0 for the rest.
---@param t table tensor
---@param default_mask table tensor
---@return table
function Method:compute_mask(t, default_mask) -- luacheck: ignore t default_mask
    check.fail("%s has no compute_mask(t, default_mask)", self.name)
end

-- The beginning of messages: the method, after the function of ours that a script called, if that has another name.
local function who_of(method)
    local caller = check.read_by ""
    return (caller == "" or caller == method.name .. ": ") and method.name or caller .. method.name
end

-- The mask that a method makes for what another one has left.
local function combined(method, scores, mask)
    local kind, who = method.PRUNING_TYPE, who_of(method)
    local function ask(t, default)
        local result = method:compute_mask(t, default)
        if not check.is_tensor(result) or check.shape(result) ~= check.shape(default) then
            check.fail("%s: compute_mask must give a mask of shape %s, got %s", who, check.shape(default),
                check.is_tensor(result) and check.shape(result) or check.got(result))
        end
        return result:to(mask.dtype)
    end
    if kind == "global" then return ask(scores, mask) end
    if kind == "unstructured" then
        local left = mask:ne(0)
        if left:all():item() then return ask(scores, mask) end
        return mask:masked_scatter(left, ask(scores:masked_select(left), mask:masked_select(left)))
    end
    if kind ~= "structured" or math.type(method.axis) ~= "integer" then
        check.fail('%s: PRUNING_TYPE must be "unstructured", "global", or "structured" with the field axis, got %s',
            who, check.got(kind))
    end
    local axis = axis_of(who, mask, method.axis)
    local left = slices_left(mask, axis):nonzero():squeeze(1)
    return mask:index_copy(axis, left, ask(scores:index_select(axis, left), mask:index_select(axis, left)))
end

---Prunes a parameter: by an object, or by one of the class that is made with the further arguments.
---@param net flow.nn.Module
---@param name string
function Method:apply(net, name, ...)
    local method = classes[self] and self(...) or self
    local t = original_of(method.name, net, name)
    local scores = method.importance_scores or t:detach()
    if check.shape(scores) ~= check.shape(t) then
        check.fail("%s: '%s' is %s, the importance scores %s", method.name, name, check.shape(t), check.shape(scores))
    end
    return apply(net, name, combined(method, scores, mask_of(net, name, t)))
end

---t with 0 in the place of what the method prunes.
---@param t table tensor
---@param default_mask any a mask of what is out already
---@param importance_scores any a tensor that decides in the place of t
---@return table
function Method:prune(t, default_mask, importance_scores)
    local mask = default_mask or flow.ones_like(t:detach())
    return t * combined(self, (importance_scores or self.importance_scores or t):detach(), mask)
end

M.BasePruningMethod = Method

M.L1Unstructured = Method:extend "l1_unstructured"
function M.L1Unstructured:init(amount, importance_scores)
    self.amount, self.importance_scores = amount, importance_scores
end
function M.L1Unstructured:compute_mask(tensor, default_mask)
    return without_least(who_of(self), default_mask, tensor:abs(), self.amount)
end

M.RandomUnstructured = Method:extend "random_unstructured"
function M.RandomUnstructured:init(amount) self.amount = amount end
function M.RandomUnstructured:compute_mask(t, default_mask)
    return without_least(who_of(self), default_mask, random_like(t), self.amount)
end

M.LnStructured = Method:extend "ln_structured"
M.LnStructured.PRUNING_TYPE = "structured"
function M.LnStructured:init(amount, n, axis, importance_scores)
    self.amount, self.n, self.axis, self.importance_scores = amount, n, axis, importance_scores
end
function M.LnStructured:compute_mask(t, default_mask)
    local axis = axis_of(who_of(self), t, self.axis)
    return without_slices(who_of(self), default_mask, slice_norms(t, self.n, axis), self.amount, axis)
end

M.RandomStructured = Method:extend "random_structured"
M.RandomStructured.PRUNING_TYPE = "structured"
function M.RandomStructured:init(amount, axis) self.amount, self.axis = amount, axis end
function M.RandomStructured:compute_mask(t, default_mask)
    local axis = axis_of(who_of(self), t, self.axis)
    return without_slices(who_of(self), default_mask, random_like(slice_norms(t, 1, axis)), self.amount, axis)
end

M.CustomFromMask = Method:extend "custom_from_mask"
M.CustomFromMask.PRUNING_TYPE = "global"
function M.CustomFromMask:init(mask) self.mask = mask end
function M.CustomFromMask:compute_mask(_, default_mask) return default_mask * self.mask:to(default_mask.dtype) end

M.Identity = Method:extend "identity"
function M.Identity:init() end -- luacheck: ignore self
function M.Identity:compute_mask(_, default_mask) return default_mask end -- luacheck: ignore self

M.PruningContainer = Method:extend "PruningContainer"
M.PruningContainer.PRUNING_TYPE = "global"
function M.PruningContainer:init(...)
    for _, method in ipairs {...} do self:add_pruning_method(method) end
end

---One more method, asked about what those before it leave.
---@param method flow.nn.PruningMethod
function M.PruningContainer:add_pruning_method(method)
    self[#self + 1] = method
end

function M.PruningContainer:compute_mask(t, default_mask)
    for _, method in ipairs(self) do default_mask = combined(method, t, default_mask) end
    return default_mask
end

local MASKS = "compute_mask(t: tensor, default_mask: tensor)"
local checked = {
    [Method] = {MASKS, "prune(t: weight, default_mask: tensor?, importance_scores: tensor?)"},
    [M.L1Unstructured] = {MASKS}, [M.RandomUnstructured] = {MASKS}, [M.LnStructured] = {MASKS},
    [M.RandomStructured] = {MASKS}, [M.CustomFromMask] = {MASKS}, [M.Identity] = {MASKS},
    [M.PruningContainer] = {"add_pruning_method(method: pruning_method)", MASKS},
}
check.define_type("pruning_method", "an object of a pruning method", is_object)
for class, usages in pairs(checked) do check.methods(class, "method", usages, is_object) end
for _, usage in ipairs {
    "L1Unstructured(amount: number, importance_scores: tensor?)", "RandomUnstructured(amount: number)",
    "LnStructured(amount: number, n: number, axis: integer, importance_scores: tensor?)", "Identity()",
    "RandomStructured(amount: number, axis: integer)", "CustomFromMask(mask: tensor)",
    "PruningContainer(...: pruning_method)",
} do check.constructor(M[usage:match "^%w+"], usage) end
check.methods(Method, "method", {"extend(name: string)", "apply(net: module, name: string, ...: any)"}, is_method)

-- ---- functions ----

---The elements of the least absolute value become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number a whole number of elements, or a share of them (a float)
---@param opts {importance_scores: any} a tensor whose absolute values decide in the place of the parameter's
function M.l1_unstructured(net, name, amount, opts)
    return M.L1Unstructured:apply(net, name, amount, opts.importance_scores)
end

---Elements drawn at random become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number
function M.random_unstructured(net, name, amount) return M.RandomUnstructured:apply(net, name, amount) end

---The slices along an axis of the least norm become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number of slices
---@param n number of the norm
---@param axis integer
---@param opts {importance_scores: any} a tensor whose norms decide in the place of the parameter's
function M.ln_structured(net, name, amount, n, axis, opts)
    return M.LnStructured:apply(net, name, amount, n, axis, opts.importance_scores)
end

---Slices along an axis drawn at random become 0.
---@param net flow.nn.Module
---@param name string
---@param amount number of slices
---@param axis integer
function M.random_structured(net, name, amount, axis) return M.RandomStructured:apply(net, name, amount, axis) end

---A mask of the script's own; a second one is multiplied with the first.
---@param net flow.nn.Module
---@param name string
---@param mask any
function M.custom_from_mask(net, name, mask)
    local t = original_of("custom_from_mask", net, name)
    if check.shape(mask) ~= check.shape(t) then
        check.fail("custom_from_mask: '%s' is %s, the mask %s", name, check.shape(t), check.shape(mask))
    end
    return M.CustomFromMask:apply(net, name, mask)
end

---A mask of ones.
function M.identity(net, name) return M.Identity:apply(net, name) end

-- A class of methods that decide about single elements.
local function unstructured(method)
    if method == "l1_unstructured" then return M.L1Unstructured end
    if method == "random_unstructured" then return M.RandomUnstructured end
    if not classes[method] or method.PRUNING_TYPE ~= "unstructured" then
        check.fail("global_unstructured: method must be a class of unstructured methods, got %s", check.got(method))
    end
    return method
end

---Prunes the parameters of a list of {module, name} together: the least of all of them become 0.
---@param parameters table[]
---@param pruning_method any a class, or the name of its function; a number stands for the amount
---@param opts {method: any, amount: number, importance_scores: table} amount: of all elements; method: as
---pruning_method; importance_scores: tensors in the order of the parameters, false for the parameter itself
function M.global_unstructured(parameters, pruning_method, opts)
    local class, amount = opts.method, opts.amount
    if type(pruning_method) == "number" then amount = pruning_method
    elseif pruning_method ~= nil then class = pruning_method end
    class = unstructured(class)
    if not amount then check.fail("global_unstructured: the amount is missing") end
    local given, masks, scores, sizes = opts.importance_scores or {}, {}, {}, {}
    for i, entry in ipairs(parameters) do
        if not check.is("list", entry) or not module.is_module(entry[1]) or type(entry[2]) ~= "string" then
            check.fail("global_unstructured: entry %d must be {module, name}", i)
        end
        local t = original_of("global_unstructured", entry[1], entry[2])
        masks[i] = mask_of(entry[1], entry[2], t):reshape(-1)
        scores[i] = (given[i] or t:detach()):reshape(-1)
        sizes[i] = t:numel()
        if scores[i]:numel() ~= sizes[i] then
            check.fail("global_unstructured: importance score %d must have the shape of its parameter, %s", i,
                check.shape(t))
        end
    end
    if #masks == 0 then check.fail("global_unstructured: the list of parameters is empty") end
    local all = combined(class(amount), flow.cat(scores, 0), flow.cat(masks, 0))
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
local SCORES = "{importance_scores: tensor?})"
check.takes(M, {
    "l1_unstructured" .. AMOUNT .. ", " .. SCORES, "random_unstructured" .. AMOUNT .. ")",
    "ln_structured" .. AMOUNT .. ", n: number, axis: integer, " .. SCORES,
    "random_structured" .. AMOUNT .. ", axis: integer)",
    "custom_from_mask(net: module, name: string, mask: tensor)", "identity(net: module, name: string)",
    "global_unstructured(parameters: list, pruning_method: any?, "
        .. "{method: any = l1_unstructured, amount: number?, importance_scores: list?})",
    "remove(net: module, name: string)", "is_pruned(net: module)",
})

return {prune = check.strict("nn.utils.prune", M)}
