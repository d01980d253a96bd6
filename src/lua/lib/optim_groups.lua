-- optim_groups.lua -- lists of parameters, and an optimizer's groups of them with their options.

local check = require "flow.check"
local ordered = require "flow.ordered"
local nn_module = require "flow.module"

local M = {}

-- Says which key a list of `count` entries should not have.
local function check_keys(who, params, count)
    for _, key in ipairs(check.sorted_keys(params)) do
        if math.type(key) ~= "integer" or key < 1 then
            check.fail("%s: the parameters must be a list, got the key %s", who, check.got(key))
        elseif key > count then
            check.fail("%s: parameter %d is nil, parameter %d is not", who, count + 1, key)
        end
    end
end

-- The entries of a list without gaps: a plain table, or what named_parameters gives.
local function entries_of(who, params)
    if nn_module.is_module(params) then
        check.fail("%s: takes a list of parameters, got %s; write net:parameters()", who, check.got(params))
    elseif type(params) ~= "table" then
        check.fail("%s: takes a list of parameters, got %s", who, check.got(params))
    end
    local list = {}
    if ordered.is(params) then
        for _, p in params do list[#list + 1] = p end
        return list
    end
    local count, keys = 0, 0
    while rawget(params, count + 1) ~= nil do
        count = count + 1
        list[count] = rawget(params, count)
    end
    for _ in pairs(params) do keys = keys + 1 end
    if keys ~= count then check_keys(who, params, count) end
    return list
end

---Tensors in a list without gaps.
---@param who string
---@return any[] list
function M.tensor_list(who, params)
    local list = entries_of(who, params)
    for i, p in ipairs(list) do
        if not check.is_tensor(p) then check.fail("%s: parameter %d must be a tensor, got %s", who, i, check.got(p)) end
    end
    return list
end

---Lists of parameters. Frozen ones may be among them: one without a gradient is left alone.
function M.parameter_list(who, params)
    local list = M.tensor_list(who, params)
    for i, p in ipairs(list) do
        if not p.dtype:find("float") then
            check.fail("%s: parameter %d is of dtype %s; only floating-point tensors have gradients", who, i, p.dtype)
        elseif not p.is_leaf then
            check.fail("%s: parameter %d is not a leaf: it was computed, from tensors that require grad", who, i)
        end
    end
    if #list == 0 then check.fail("%s: the list of parameters is empty", who) end
    return list
end

function M.is_group(item)
    if type(item) ~= "table" or ordered.is(item) or nn_module.is_module(item) then return false end
    return rawget(item, "params") ~= nil
end

-- Bounds of the options that are numbers.
local bounds = {
    lr = {0, math.huge}, momentum = {0, 1}, weight_decay = {0, math.huge}, eps = {0, math.huge},
    dampening = {-math.huge, math.huge}, alpha = {0, math.huge}, rho = {0, 1}, lr_decay = {0, math.huge},
    initial_accumulator_value = {0, math.huge}, momentum_decay = {0, math.huge}, lambd = {0, math.huge},
    t0 = {0, math.huge}, trust_coefficient = {0, math.huge},
}

-- Options of Rprop that are two numbers: the factors of a step, and its bounds.
local pairs_of = {etas = {0, 1, 1, math.huge}, step_sizes = {0, math.huge, 0, math.huge}}

local function check_pairs(who, group)
    for name, bound in pairs(pairs_of) do
        local two = group[name]
        if two then
            if #two ~= 2 then check.fail("%s: %s must be two numbers, got %d", who, name, #two) end
            for i = 1, 2 do check.number(who, name, two[i], bound[2 * i - 1], bound[2 * i]) end
        end
    end
end

---Raises unless the options of a group are in their bounds.
function M.check_group(who, group)
    for name, bound in pairs(bounds) do
        local value = group[name]
        if value ~= nil and type(value) ~= "table" then check.number(who, name, value, bound[1], bound[2]) end
    end
    if group.betas then
        if #group.betas ~= 2 then check.fail("%s: betas must be two numbers, got %d", who, #group.betas) end
        for i = 1, 2 do
            local beta = check.number(who, "a beta", group.betas[i], 0, 1)
            if beta == 1 then check.fail("%s: a beta must be less than 1", who) end
        end
    end
    check_pairs(who, group)
    if group.nesterov and group.dampening and (group.momentum == 0 or group.dampening ~= 0) then
        check.fail("%s: nesterov needs momentum and no dampening", who)
    end
end

-- PyTorch's ways to run a step, which are one here: a step is always fused, and may be captured.
local ways = {foreach = true, fused = true, capturable = true}

-- The options without them; unsupported ones are refused.
local function without_ways(who, options)
    local result = {}
    for key, value in pairs(options or {}) do
        if key == "differentiable" and value then
            check.fail("%s: a step cannot be differentiated; write it as ops on tensors that require grad", who)
        elseif not ways[key] and key ~= "differentiable" then result[key] = value
        elseif value ~= true and value ~= false then
            check.fail("%s: %s must be a boolean, got %s", who, key, check.got(value))
        end
    end
    return result
end

-- Takes the keys that are no options out of a group's own: what a script notes there. One that resembles an option
-- stays, to be refused.
local function take_notes(self, own)
    local notes, names = {}, check.sorted_keys(self.defaults)
    for key, value in pairs(own) do
        if type(key) == "string" and self.defaults[key] == nil and check.suggest(key, names) == "" then
            notes[key], own[key] = value, nil
        end
    end
    return notes
end

---Appends the group that a table {params = ..., lr = ...} describes; missing options are the optimizer's, and other
---keys (name = "encoder") are kept.
function M.append(self, item)
    local own, seen = {}, {}
    for key, value in pairs(item) do
        if key ~= "params" then own[key] = value end
    end
    own = without_ways(self.name, own)
    local notes = take_notes(self, own)
    own = check.options(self.name, own, self.defaults)
    local group = {params = M.parameter_list(self.name, item.params)}
    for key in pairs(self.defaults) do
        local value = own[key]
        if item[key] == nil then value = self._common[key] end
        group[key] = type(value) == "table" and table.move(value, 1, #value, 1, {}) or value    -- betas of its own
    end
    for key, value in pairs(notes) do group[key] = value end
    M.check_group(self.name, group)
    if self._check then self._check(group, self.groups) end
    for _, one in ipairs(self.groups) do
        for _, p in ipairs(one.params) do seen[p] = true end
    end
    for _, p in ipairs(group.params) do
        if seen[p] then check.fail("%s: a parameter occurs twice", self.name) end
        seen[p] = true
    end
    self.groups[#self.groups + 1] = group
end

-- An optimizer's list of groups: options are those of a group, and position 0 is a mistake.
local Groups = {__is_list = true}

function Groups:__index(key)
    if math.type(key) == "integer" and key > 0 then return nil end
    check.fail("optimizer.groups is a list of %d: its first is optimizer.groups[1], got %s", #self, check.got(key))
end

function Groups:__newindex(key, value)
    if math.type(key) ~= "integer" or key < 1 then
        check.fail("optimizer.groups is a list of %d: its first is optimizer.groups[1], got %s", #self, check.got(key))
    end
    rawset(self, key, value)
end

---The groups of a new optimizer, of a list of parameters or of groups.
function M.make(self, params, opts)
    local grouped = type(params) == "table" and not nn_module.is_module(params) and M.is_group(rawget(params, 1))
    local given = grouped and entries_of(self.name, params) or {{params = params}}
    self.groups = setmetatable({}, Groups)
    if type(opts) == "table" then opts = without_ways(self.name, opts) end
    rawset(self, "_common", check.options(self.name, opts, self.defaults))
    for i, item in ipairs(given) do
        if not M.is_group(item) and grouped then
            check.fail("%s: group %d must be {params = ...}, got %s", self.name, i, check.got(item))
        end
        M.append(self, item)
    end
end

---The place of a tensor: tensors of one device or placement can share an op over lists, whatever their SBPs.
function M.place_of(tensor)
    return tensor.is_global and tostring(tensor.placement) or tensor.device
end

return M
