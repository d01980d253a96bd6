-- optim.lua -- optimizers: their steps and their state. Groups, clipping, schedules and more are in optim_*.lua.
--
-- A step is one op per group over all its parameters at once (parameters that differ in placement or number of steps
-- go in separate ones). State has its parameter's SBP, so no step moves it, and belongs to parameters by position, so a
-- state dict means the same in another process. Parameters without a gradient are left alone.

local flow = require "flow"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"
local composed = require "flow.optim_composed"
local groups = require "flow.optim_groups"
local schedule = require "flow.optim_schedule"

local op, program = flow._op, flow._program

-- What is loaded at its first use.
local later = setmetatable({}, {__index = function(_, key)
    if key == "AveragedModel" then return (require "flow.optim_average") end
    return key == "lr_scheduler" and require "flow.optim_lr_scheduler" or nil
end})
local optim = setmetatable({
    schedule = schedule.schedule, Scheduler = schedule.Scheduler, clip_grad_norm = require "flow.optim_clip",
}, {__index = later, __names = {"AveragedModel", "lr_scheduler"}})

-- ---- what all optimizers share ----

---@class flow.optim.Optimizer
---@field groups table[] each with `params` and its options (lr, weight_decay, ...)
local Optimizer = {}
Optimizer.__index = Optimizer

local function new(class, params, opts, ...)
    check.refuse_colon(class.name, params, "class")
    if select("#", ...) > 0 then check.fail("%s: too many arguments: %s(params, options)", class.name, class.name) end
    local self = setmetatable({state = {}}, class)
    groups.make(self, params, opts)
    return self
end

-- A kind of optimizer: its options, the tensors it keeps per parameter, and the op of a step with its options.
local function define(name, defaults, class)
    class.name, class.defaults = name, defaults
    class.__index, class.__newindex, class.__tostring = class, Optimizer.__newindex, Optimizer.__tostring
    optim[name] = setmetatable(class, {__index = Optimizer, __call = new})
end

local function new_state(self, group, p)
    local state = {step = 0, place = groups.place_of(p), tensors = {}}
    for i, name in ipairs(self._kept(group)) do
        state.tensors[i] = flow.zeros_like(p:detach())
        local first = self._initial and self._initial(group, name) or 0
        if first ~= 0 then state.tensors[i]:fill_(first) end
    end
    return state
end

-- State of one parameter, made at its first step.
local function state_of(self, group, p)
    local state = self.state[p]
    if not state then
        state = new_state(self, group, p)
        self.state[p] = state
    end
    return state
end

-- Parameters with a gradient, in batches that one op can update; lists: params, grads, first kept tensors, ...
local function batches(self, group)
    local result, by_key = {}, {}
    for _, p in ipairs(group.params) do
        local grad = p.grad
        if grad then
            local state = state_of(self, group, p)
            state.step = state.step + 1
            local key = state.place .. state.step
            local batch = by_key[key]
            if not batch then
                batch = {states = {}, lists = {{}, {}}}
                by_key[key] = batch
                result[#result + 1] = batch
            end
            local lists = batch.lists
            local n = #lists[1] + 1
            batch.states[n] = state
            lists[1][n], lists[2][n] = p, grad
            for i, t in ipairs(state.tensors) do
                lists[i + 2] = lists[i + 2] or {}
                lists[i + 2][n] = t
            end
        end
    end
    return result
end

local function flatten(lists)
    local all = lists[1]
    for i = 2, #lists do table.move(lists[i], 1, #lists[i], #all + 1, all) end
    return all
end

-- Updates the parameters of a batch. When a step is captured, its replays count and read the options anew.
local function update(self, group, batch)
    if self._rule then return composed.update(self, group, batch) end
    local states = batch.states
    local step, options = self._options(group, states[1].step)
    if not program.recording then return step(flatten(batch.lists), options) end
    program.live(step, flatten(batch.lists), options, function()
        for _, state in ipairs(states) do state.step = state.step + 1 end
        return (select(2, self._options(group, states[1].step)))
    end)
end

-- A function that tells whether the group is updated by the op and in the batches (taken before their lists are used)
-- that it has now: with as many parameters, whose states have counted alike.
local function guard(self, group, list)
    local count, step, parts = #group.params, self._options(group, 1), {}
    for i, batch in ipairs(list) do
        parts[i] = {params = table.move(batch.lists[1], 1, #batch.states, 1, {}), states = batch.states}
    end
    return function()
        if #group.params ~= count or self._options(group, 1) ~= step then return false end
        for _, part in ipairs(parts) do
            local params, states = part.params, part.states
            for i = 1, #states do
                if self.state[params[i]] ~= states[i] or states[i].step ~= states[1].step then return false end
            end
        end
        return true
    end
end

---One step with the current gradients.
function Optimizer:step()
    local _ <close> = flow.no_grad()
    if program.recording then
        local count = #self.groups
        program.guard(function() return #self.groups == count end)
    end
    for _, group in ipairs(self.groups) do
        local list = batches(self, group)
        if program.recording then program.guard(guard(self, group, list)) end
        for _, batch in ipairs(list) do update(self, group, batch) end
    end
end

---Adds a group of parameters, as in a list of groups: {params = ..., lr = ...}; one tensor stands for a list of it.
---A captured step is recorded again with it.
---@param group table
function Optimizer:add_param_group(group)
    if not groups.is_group(group) then
        check.fail("%s:add_param_group: takes {params = ...}, got %s", self.name, check.got(group))
    end
    local item = {}
    for key, value in pairs(group) do item[key] = value end
    if check.is_tensor(item.params) then item.params = {item.params} end
    groups.append(self, item)
end

---Drops all gradients.
function Optimizer:zero_grad()
    for _, group in ipairs(self.groups) do
        for _, p in ipairs(group.params) do p.grad = nil end
    end
end

---Sets the learning rate of all groups.
---@param lr number
function Optimizer:set_lr(lr)
    for _, group in ipairs(self.groups) do group.lr = lr end
end

---A table for flow.save: groups with their options, and the state of each parameter by its position.
function Optimizer:state_dict()
    local result, count = {groups = {}, state = {}}, 0
    for i, group in ipairs(self.groups) do
        local saved = {params = {}}
        for key in pairs(self.defaults) do saved[key] = group[key] end
        for j, p in ipairs(group.params) do
            count = count + 1
            saved.params[j] = count
            local state = self.state[p]
            local entry = {step = state and state.step or 0}
            for k, name in ipairs(self._kept(group)) do entry[name] = state and state.tensors[k] end
            result.state[count] = entry
        end
        result.groups[i] = saved
    end
    return result
end

-- A state dict of another kind of optimizer has options or tensors that this one lacks.
local function check_names(self, who, saved, known, what)
    for _, key in ipairs(check.sorted_keys(saved)) do
        if known[key] == nil then
            check.fail("%s: the state has %s %s, which %s does not have; was it saved by another optimizer?", who, what,
                check.quote(tostring(key)), self.name)
        end
    end
end

-- Checks that the saved state `entry` fits parameter number `count`.
local function check_entry(self, who, group, p, entry, count)
    if type(entry) ~= "table" or math.type(entry.step) ~= "integer" or entry.step < 0 then
        check.fail("%s: the state of parameter %d is missing", who, count)
    end
    local known = {step = true}
    for _, name in ipairs(self._kept(group)) do known[name] = true end
    check_names(self, who, entry, known, "a tensor")
    for _, name in ipairs(self._kept(group)) do
        local t = entry[name]
        if t == nil and entry.step > 0 then check.fail("%s: %s of parameter %d is missing", who, name, count) end
        if t ~= nil and not checkpoint.is_stored(t) then check.tensor(who, name, t) end
        if t ~= nil and check.shape(t) ~= check.shape(p) then
            check.fail("%s: %s of parameter %d has shape %s, the parameter %s", who, name, count, check.shape(t),
                check.shape(p))
        elseif check.is_tensor(t) and t.is_global and not p.is_global then
            check.fail("%s: %s of parameter %d is global, the parameter is local", who, name, count)
        end
    end
end

-- The options of a group with those that were saved.
local function saved_options(self, who, group, saved)
    local result = {}
    for _, key in ipairs(check.sorted_keys(self.defaults)) do
        local value = saved[key]
        if value == nil then value = group[key] end
        if type(value) ~= type(self.defaults[key]) then
            check.fail("%s: %s must be a %s, got %s", who, key, type(self.defaults[key]), check.got(value))
        end
        result[key] = value
    end
    groups.check_group(who, result)
    return result
end

-- The options of each group of a state dict that fits.
local function check_state(self, state)
    local who, options, count = self.name .. ":load_state_dict", {}, 0
    if type(state.groups) ~= "table" or type(state.state) ~= "table" then
        check.fail("%s: takes a table from state_dict", who)
    end
    if #state.groups ~= #self.groups then
        check.fail("%s: the state has %d groups, the optimizer %d", who, #state.groups, #self.groups)
    end
    for i, group in ipairs(self.groups) do
        local saved = state.groups[i]
        if type(saved) ~= "table" or type(saved.params) ~= "table" or #saved.params ~= #group.params then
            check.fail("%s: group %d of the state does not have the optimizer's %d parameters", who, i, #group.params)
        end
        local known = {params = true}
        for key in pairs(self.defaults) do known[key] = true end
        check_names(self, who, saved, known, "an option")
        options[i] = saved_options(self, who, group, saved)
        for _, p in ipairs(group.params) do
            count = count + 1
            check_entry(self, who, options[i], p, state.state[count], count)
        end
    end
    return options
end

-- Puts the state in the place of the one that p has; its tensors stay, for captured steps hold them.
local function adopt(states, p, mine)
    local old = states[p]
    if not old or #old.tensors ~= #mine.tensors then
        states[p] = mine
        return
    end
    old.step = mine.step
    for k, t in ipairs(old.tensors) do t:copy_(mine.tensors[k]) end
end

---Takes the state (copied) and the options of a state dict; if it does not fit, nothing is changed. Of lazy tensors
---(flow.load) each rank reads only its own part.
---@param state table
function Optimizer:load_state_dict(state)
    local options = check_state(self, state)
    local _ <close> = flow.no_grad()
    local made, count = {}, 0
    for i, group in ipairs(self.groups) do
        for _, p in ipairs(group.params) do
            count = count + 1
            local entry = state.state[count]
            if entry.step > 0 or self.state[p] then
                local mine = new_state(self, options[i], p)
                mine.step = entry.step
                for k, name in ipairs(entry.step > 0 and self._kept(options[i]) or {}) do
                    checkpoint.copy(mine.tensors[k], entry[name])
                end
                made[p] = mine
            end
        end
    end
    for p, mine in pairs(made) do adopt(self.state, p, mine) end
    for i, group in ipairs(self.groups) do
        for key, value in pairs(options[i]) do group[key] = value end
    end
end

-- opt.lr = 0.1 would change nothing.
function Optimizer:__newindex(key, value)
    if key == nil or key ~= key then check.fail("%s: a field cannot have the key %s", self.name, check.got(key)) end
    if self.defaults[key] ~= nil then
        check.fail("%s: '%s' is an option of its groups: optimizer.groups[1].%s = value%s", self.name, key, key,
            key == "lr" and ", or optimizer:set_lr(value) for all" or "")
    end
    rawset(self, key, value)
end

function Optimizer:__tostring()
    local lines = {}
    for i, group in ipairs(self.groups) do
        local parts = {}
        for _, key in ipairs(check.sorted_keys(self.defaults)) do
            local value = group[key]
            if type(value) == "table" then value = ("%s/%s"):format(value[1], value[2]) end
            parts[#parts + 1] = ("%s=%s"):format(key, value)
        end
        lines[i] = ("  group %d: %d parameters, %s"):format(i, #group.params, table.concat(parts, ", "))
    end
    return self.name .. "(\n" .. table.concat(lines, "\n") .. "\n)"
end

-- ---- optimizers ----

local SGD = {}
define("SGD", {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false, maximize = false}, SGD)

function SGD._kept(group)
    return group.momentum ~= 0 and {"momentum_buffer"} or {}
end

function SGD._options(group, step)
    if group.momentum == 0 then
        return op.sgd_plain_step, {lr = group.lr, weight_decay = group.weight_decay, maximize = group.maximize}
    end
    return op.sgd_step, {
        lr = group.lr, momentum = group.momentum, dampening = group.dampening, weight_decay = group.weight_decay,
        nesterov = group.nesterov, first = step == 1, maximize = group.maximize,
    }
end

local function adam_kept()
    return {"exp_avg", "exp_avg_sq"}
end

local function adam_options(decoupled)
    return function(group, step)
        if type(group.betas) ~= "table" then
            check.fail("step: betas must be two numbers, got %s", check.got(group.betas))
        end
        return op.adamw_step, {
            lr = group.lr, beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps,
            weight_decay = group.weight_decay, step = step, decoupled = decoupled, maximize = group.maximize,
        }
    end
end

define("Adam", {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, maximize = false},
    {_kept = adam_kept, _options = adam_options(false)})
define("AdamW", {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01, maximize = false},
    {_kept = adam_kept, _options = adam_options(true)})

composed.define_all(define)

local is_optimizer = check.methods(Optimizer, "optimizer", {
    "step()", "zero_grad()", "add_param_group(group: any)",
    "set_lr(lr: number >= 0)", "state_dict()", "load_state_dict(state: state)",
})
check.define_type("optimizer", "an optimizer", is_optimizer)
check.takes(optim, {
    "clip_grad_norm(params: any, max_norm: number >= 0)", "Scheduler(optimizer: optimizer, f: function)",
})
check.strict("Optimizer", Optimizer)
return check.strict("optim", optim)
