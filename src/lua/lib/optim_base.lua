-- optim_base.lua -- what all optimizers share: groups of parameters, steps and their state.
--
-- A step is one op per group over all its parameters at once (parameters that differ in placement or number of steps
-- go in separate ones). State has its parameter's SBP, so no step moves it, and belongs to parameters by position, so a
-- state dict means the same in another process. Parameters without a gradient are left alone.

local flow = require "flow"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"
local groups = require "flow.optim_groups"
local hooks = require "flow.hooks"

local program = flow._program

---@class flow.optim.Optimizer
---@field groups table[] each with `params` and its options (lr, weight_decay, ...); also as param_groups
local Optimizer = {}
Optimizer.__index = Optimizer

-- The state of a parameter in an optimizer: its steps, and tensors by name, made when the rule first asks for them.
local function new_state(param, step)
    return {step = step, place = groups.place_of(param), tensors = {}}
end

-- A tensor that the rule keeps of a parameter. It begins as zeros, or as `make` and `initial` of the rule say.
local function kept_tensor(self, group, param, state, name)
    local t = state.tensors[name]
    if t then return t end
    t = self._make and self._make(param:detach(), name) or flow.zeros_like(param:detach())
    local first = self._initial and self._initial(group, name) or 0
    if first ~= 0 then t:fill_(first) end
    state.tensors[name] = t
    program.made_state()
    return t
end

-- State of one parameter, made at its first step.
local function state_of(self, param)
    local state = self.state[param]
    if not state then
        state = new_state(param, 0)
        self.state[param] = state
    end
    return state
end

-- ---- batches: the parameters that one op can update ----

-- A batch has parameters that have a gradient, lie in one place and have counted alike: their states, and the lists of
-- the op: parameters, their gradients (the word stands for those there are when the op runs), first kept tensors, ...
local function add(batch, param, state)
    local n = #batch.states + 1
    batch.states[n], batch.lists[1][n] = state, param
end

-- The lists of the tensors that the rule keeps with the group's options as they are.
local function list_kept(self, group, batch)
    local lists = batch.lists
    for i = #lists, 3, -1 do lists[i] = nil end
    for n, param in ipairs(lists[1]) do
        for i, name in ipairs(self._kept(group, param)) do        -- a rule may keep more of some parameters
            lists[i + 2] = lists[i + 2] or {}
            lists[i + 2][n] = kept_tensor(self, group, param, batch.states[n], name)
        end
    end
end

-- The batches of `params`, those of a group that have a gradient.
local function make_batches(self, group, params)
    local made, by_key = {params = params}, {}
    for _, p in ipairs(params) do
        local state = state_of(self, p)
        local key = state.place .. state.step
        if not by_key[key] then
            by_key[key] = {states = {}, lists = {{}, "grad"}}
            made[#made + 1] = by_key[key]
        end
        add(by_key[key], p, state)
    end
    for _, batch in ipairs(made) do list_kept(self, group, batch) end
    return made
end

-- True while the states of the batches are those of their parameters, and have counted alike.
local function are_current(self, batches)
    local state_by = self.state
    for n = 1, #batches do
        local params, states = batches[n].lists[1], batches[n].states
        local step = states[1].step
        for i = 1, #states do
            local state = states[i]
            if state_by[params[i]] ~= state or state.step ~= step then return false end
        end
    end
    return true
end

-- The batches of the group's last step where they still are what they would be if they were made now.
local function batches_of(self, group)
    local batches = self._batches[group]
    local params = flow._with_grad(group.params, batches and batches.params)
    if not batches or params ~= batches.params or not are_current(self, batches) then
        batches = make_batches(self, group, params)
        self._batches[group] = batches
    end
    return batches
end

local function count_steps(batches)
    for n = 1, #batches do
        local states = batches[n].states
        for i = 1, #states do
            local state = states[i]
            state.step = state.step + 1
        end
    end
end

-- ---- steps ----

-- Watches a group's options, those in lists (betas) too; no list has more than three.
local function fields_of(self, group)
    local fields = {}
    local function add_field(holder, key) fields[#fields + 1], fields[#fields + 2] = holder, key end
    for key in pairs(self.defaults) do
        local value = group[key]
        add_field(group, key)
        for i = 1, type(value) == "table" and 3 or 0 do add_field(value, i) end
    end
    return program.fields(table.unpack(fields))
end

-- look() returns how often the group's options were found changed, `changes` what it returned last. batches: those of
-- the step that is recorded.
local function watch_options(self, group, batches)
    local watch, are_same = {changes = 0, batches = batches, counts = false}, fields_of(self, group)
    function watch.look()
        if not are_same() then are_same, watch.changes = fields_of(self, group), watch.changes + 1 end
        return watch.changes
    end
    return watch
end

-- Reads the options of the rule anew at a replay; `options` are those of now: all if the group's have changed, else the
-- number of the step, if that, and true: the others stay. The first step alone may differ in more.
local function reader(self, group, states, options, watch)
    local counted = options.step and {}
    local seen, is_later = watch.changes, states[1].step > 1
    return function(complete, first)
        local step, changes = states[1].step, first and watch.changes or watch.look()
        if complete and is_later and step > 1 and changes == seen then
            if not counted then return nil end
            counted.step = step
            return counted, true
        end
        seen, is_later = changes, step > 1
        return (select(2, self._options(group, step)))
    end
end

-- The function that runs the ops of a batch's step: run(op, lists) with the options of its rule, or of
-- options_of(group, step). Replays of a captured step read the options anew; the group's first op counts the steps.
local function runner(self, group, states, watch)
    return function(op, lists, options_of)
        local step = states[1].step
        local options = options_of and options_of(group, step) or select(2, self._options(group, step))
        if not program.recording then return op(lists, options) end
        local read = options_of and function() return options_of(group, states[1].step) end
            or reader(self, group, states, options, watch)
        if watch.counts then return program.live(op, lists, options, read) end
        watch.counts = true
        return program.live(op, lists, options, function(complete, first)
            count_steps(watch.batches)
            return read(complete, first)
        end)
    end
end

-- The lists of a batch with the gradients themselves, for a rule that is composed of ops.
local function with_gradients(lists)
    local result, grads = table.move(lists, 1, #lists, 1, {}), {}
    for i, p in ipairs(lists[1]) do grads[i] = p.grad end
    result[2] = grads
    return result
end

-- Updates the parameters of a batch. watch: of the group's options, if the step is recorded.
local function update(self, group, batch, watch)
    if self._compose then
        return self._compose(group, runner(self, group, batch.states, watch), with_gradients(batch.lists))
    end
    local op, options = self._options(group, batch.states[1].step)
    if op ~= (batch.op or op) then list_kept(self, group, batch) end        -- momentum was 0 so far, say
    batch.op = op
    if watch then runner(self, group, batch.states, watch)(op, batch.lists) else op(batch.lists, options) end
end

-- The values that decide which ops a step of the group runs: the rule's op, and options that are no attributes.
local function ways_of(self, group)
    local list = self._ways and table.pack(self._ways(group)) or {n = 0}
    list[0] = self._options(group, 1)
    return list
end

local function are_equal(a, b)
    for i = 0, a.n do
        if a[i] ~= b[i] then return false end
    end
    return true
end

-- A function that returns true while the group is updated by the ops and in the batches that it has now. Options with
-- which no step is possible do not tell: the step says why.
local function group_guard(self, group, batches, watch)
    local is_possible, ways = pcall(ways_of, self, group)
    if not is_possible then return function() return false end end
    local params = group.params
    local are_same = program.entries(params)
    local seen, fits = watch.changes, true
    return function()
        local changes = watch.look()
        if changes ~= seen then
            local possible, now = pcall(ways_of, self, group)
            fits, seen = possible and are_equal(ways, now), changes
        end
        return fits and group.params == params and are_same() and are_current(self, batches)
    end
end

local no_hooks = {}

local function hooks_at(self, when) return self._hooks and self._hooks[when] or no_hooks end

-- A replay is right while the optimizer has these groups and hooks, and the guard of each group gives true.
local function guard_groups(self, guards)
    local groups_now, before, after = self.groups, hooks_at(self, "before"), hooks_at(self, "after")
    local lists = {program.entries(groups_now), program.entries(before), program.entries(after)}
    program.guard(function()
        if self.groups ~= groups_now or hooks_at(self, "before") ~= before or hooks_at(self, "after") ~= after then
            return false
        end
        for i = 1, #lists do
            if not lists[i]() then return false end
        end
        for i = 1, #guards do
            if not guards[i]() then return false end
        end
        return true
    end)
end

-- A function that returns true while the group has the parameters and the options that it has now.
local function options_guard(group)
    local now, entries = {}, {program.entries(group.params)}
    for key, value in pairs(group) do
        now[key] = value
        if key ~= "params" and type(value) == "table" then entries[#entries + 1] = program.entries(value) end
    end
    return function()
        for key, value in pairs(group) do if now[key] ~= value then return false end end
        for key in pairs(now) do if group[key] == nil then return false end end
        for i = 1, #entries do if not entries[i]() then return false end end
        return true
    end
end

-- Calls hooks; a result of one replaces `value`.
local function call_hooks(self, when, value)
    for _, hook in ipairs(hooks.each(hooks_at(self, when))) do
        local instead = hook.call(self, value)
        if value ~= nil and instead ~= nil then value = instead end
    end
    return value
end

local function step_groups(self)
    local _ <close> = flow.no_grad()
    local guards = {}
    if program.recording then guard_groups(self, guards) end
    for i = 1, #self.groups do
        local group = self.groups[i]
        local batches = batches_of(self, group)
        local watch = program.recording and watch_options(self, group, batches)
        if watch then guards[i] = group_guard(self, group, batches, watch) end
        count_steps(batches)
        for _, batch in ipairs(batches) do update(self, group, batch, watch) end
    end
end

local watchers = {} -- of all optimizers

-- ends a step: its hooks, then those of all optimizers
local function end_step(self)
    call_hooks(self, "after")
    for _, watcher in ipairs(watchers) do watcher(self) end
end

---One step with the current gradients; with a function, with those that it computes. It returns the loss, and so does
---the step.
---@param closure function?
function Optimizer:step(closure)
    call_hooks(self, "before")
    local loss
    if closure then
        local _ <close> = flow.enable_grad()
        loss = closure()
    end
    step_groups(self)
    end_step(self)
    return loss
end

local function register(self, when, hook)
    local lists = self._hooks or {}
    rawset(self, "_hooks", lists)
    lists[when] = lists[when] or {}
    return hooks.add(lists[when], hook)
end

---hook(optimizer) runs before each step. Returns a handle: handle:remove() ends it.
---@param hook function
---@return table handle
function Optimizer:register_step_pre_hook(hook) return register(self, "before", hook) end

---hook(optimizer) runs after each step. Returns a handle.
---@param hook function
---@return table handle
function Optimizer:register_step_post_hook(hook) return register(self, "after", hook) end

---hook(optimizer) runs before state_dict. Returns a handle.
---@param hook function
---@return table handle
function Optimizer:register_state_dict_pre_hook(hook) return register(self, "state_before", hook) end

---hook(optimizer, state) runs after state_dict with what it gives; what it returns takes the place of that. Returns a
---handle.
---@param hook function
---@return table handle
function Optimizer:register_state_dict_post_hook(hook) return register(self, "state_after", hook) end

---hook(optimizer, state) runs before load_state_dict with a copy of the table it was given; what it returns takes the
---place of that. Returns a handle.
---@param hook function
---@return table handle
function Optimizer:register_load_state_dict_pre_hook(hook) return register(self, "load_before", hook) end

---hook(optimizer) runs after load_state_dict. Returns a handle.
---@param hook function
---@return table handle
function Optimizer:register_load_state_dict_post_hook(hook) return register(self, "load_after", hook) end

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

---Drops all gradients, or sets those there are to 0.
---@param set_to_none boolean? true if absent
function Optimizer:zero_grad(set_to_none)
    for i = 1, #self.groups do
        local params = self.groups[i].params
        for j = 1, #params do
            local p = params[j]
            if set_to_none ~= false then p.grad = nil
            elseif p.grad then p.grad:detach():zero_() end
        end
    end
end

---Sets the learning rate of all groups.
---@param lr number
function Optimizer:set_lr(lr)
    for _, group in ipairs(self.groups) do group.lr = lr end
end

-- Groups with their options, and the state of each parameter by its position.
function Optimizer:_saved()
    local result, count = {groups = {}, state = {}}, 0
    for i, group in ipairs(self.groups) do
        local saved = {params = {}}
        for key in pairs(self.defaults) do saved[key] = group[key] end
        for j, p in ipairs(group.params) do
            count = count + 1
            saved.params[j] = count
            local state = self.state[p]
            local entry = {step = state and state.step or 0}
            for _, name in ipairs(self._kept(group, p)) do
                entry[name] = state and kept_tensor(self, group, p, state, name)
            end
            result.state[count] = entry
        end
        result.groups[i] = saved
    end
    return result
end

---A table for flow.save: groups with their options, and the state of each parameter by its position.
function Optimizer:state_dict()
    call_hooks(self, "state_before")
    return call_hooks(self, "state_after", self:_saved())
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
local function check_entry(self, who, group, param, entry, count)
    if type(entry) ~= "table" or math.type(entry.step) ~= "integer" or entry.step < 0 then
        check.fail("%s: the state of parameter %d is missing", who, count)
    end
    local known = {step = true}
    for _, name in ipairs(self._kept(group, param)) do known[name] = true end
    check_names(self, who, entry, known, "a tensor")
    for _, name in ipairs(self._kept(group, param)) do
        local t = entry[name]
        if t == nil and entry.step > 0 then check.fail("%s: %s of parameter %d is missing", who, name, count) end
        if t ~= nil and not checkpoint.is_stored(t) then check.tensor(who, name, t) end
        local like = self._make and t ~= nil and self._make(param:detach(), name) or param
        if t ~= nil and check.shape(t) ~= check.shape(like) then
            check.fail("%s: %s of parameter %d has shape %s, %s %s", who, name, count, check.shape(t),
                like == param and "the parameter" or "it must be", check.shape(like))
        elseif check.is_tensor(t) and t.is_global and not param.is_global then
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
        if type(value) ~= type(self.defaults[key]) and self.defaults[key] ~= check.none then
            check.fail("%s: %s must be a %s, got %s", who, key, type(self.defaults[key]), check.got(value))
        end
        result[key] = value
    end
    groups.check_group(who, result)
    return result
end

-- Refuses a state dict whose groups do not fit those of the optimizer.
local function check_groups(self, who, state)
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
    end
end

-- The options of each group of a state dict that fits.
local function check_state(self, state)
    local who, options, count = self.name .. ":load_state_dict", {}, 0
    check_groups(self, who, state)
    for i, group in ipairs(self.groups) do
        local saved = state.groups[i]
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

-- Puts the state, with tensors of these names, in the place of the one that p has; its tensors stay, for captured steps
-- hold them.
local function adopt(states, param, mine, names)
    local old = states[param]
    if not old then
        states[param] = mine
        return
    end
    old.step = mine.step
    for _, name in ipairs(names) do
        local t = old.tensors[name]
        if t then t:copy_(mine.tensors[name]) else old.tensors[name] = mine.tensors[name] end
    end
end

-- Takes a state dict that fits.
function Optimizer:_restore(state)
    local options = check_state(self, state)
    local _ <close> = flow.no_grad()
    local made, count = {}, 0
    for i, group in ipairs(self.groups) do
        for _, p in ipairs(group.params) do
            count = count + 1
            local entry = state.state[count]
            if entry.step > 0 or self.state[p] then
                local mine, names = new_state(p, entry.step), self._kept(options[i], p)
                for _, name in ipairs(names) do
                    local t = kept_tensor(self, options[i], p, mine, name)
                    if entry.step > 0 then checkpoint.copy(t, entry[name]) end
                end
                made[#made + 1] = {p, mine, names}
            end
        end
    end
    for _, m in ipairs(made) do adopt(self.state, table.unpack(m)) end
    for i, group in ipairs(self.groups) do
        for key, value in pairs(options[i]) do group[key] = value end
    end
end

---Takes the state (copied) and the options of a state dict; if it does not fit, nothing is changed. Of lazy tensors
---(flow.load) each rank reads only its own part.
---@param state table
function Optimizer:load_state_dict(state)
    if self._hooks and self._hooks.load_before then
        local copy = {}
        for key, value in pairs(state) do copy[key] = value end
        state = call_hooks(self, "load_before", copy)
    end
    self:_restore(state)
    call_hooks(self, "load_after")
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

-- ---- kinds of optimizers ----

local M = {}

local function new(class, params, opts, ...)
    check.refuse_colon(class.name, params, "class")
    if select("#", ...) > 0 then check.fail("%s: too many arguments: %s(params, options)", class.name, class.name) end
    local self = setmetatable({state = {}, _batches = setmetatable({}, {__mode = "k"})}, class)
    if type(opts) == "number" then opts = {lr = opts} end
    groups.make(self, params, opts)
    rawset(self, "param_groups", self.groups)
    return self
end

---f(optimizer) runs after each step of every optimizer.
---@param f function
function M.watch(f) watchers[#watchers + 1] = f end

---Begins a step that is none of Optimizer's: its hooks, and the functions that watch all optimizers.
function M.begin_step(optimizer) call_hooks(optimizer, "before") end
M.end_step = end_step
M.check_groups = check_groups

---A captured step of an optimizer whose ops a script calls is right while groups, hooks and options are as they are.
function M.guard_step(optimizer)
    if not program.recording then return end
    local guards = {}
    for i, group in ipairs(optimizer.groups) do guards[i] = options_guard(group) end
    guard_groups(optimizer, guards)
end

local usages = {
    "step(closure: function?)", "zero_grad(set_to_none: boolean?)", "add_param_group(group: any)",
    "register_step_pre_hook(hook: function)", "register_step_post_hook(hook: function)",
    "register_state_dict_pre_hook(hook: function)", "register_state_dict_post_hook(hook: function)",
    "register_load_state_dict_pre_hook(hook: function)", "register_load_state_dict_post_hook(hook: function)",
    "set_lr(lr: number >= 0)", "state_dict()", "load_state_dict(state: state)",
}
local is_optimizer = check.methods(Optimizer, "optimizer", usages)

---A kind of optimizer, by a rule: see optim_rules.lua. check(group) raises where options or parameters do not fit,
---make(p, name) gives a kept tensor that is not like p, methods are added to those of all. ways(group), of a step that
---is composed of ops: options that are no attributes of an op, or decide which run.
---@param name string
---@param rule table
---@return table class
function M.define(name, rule)
    local class = {
        name = name, defaults = rule.defaults, _kept = rule.kept, _options = rule.options,
        _initial = rule.initial or false, _compose = rule.compose or false, _make = rule.make or false,
        _ways = rule.ways or false,
        _check = rule.check or false, _hooks = false,
    }
    for key, f in pairs(rule.methods or {}) do class[key] = f end
    for _, usage in ipairs(usages) do
        if rawget(class, usage:match "^[%w_]+") then check.methods(class, "optimizer", {usage}, is_optimizer) end
    end
    class.__index, class.__newindex, class.__tostring = class, Optimizer.__newindex, Optimizer.__tostring
    return setmetatable(class, {__index = Optimizer, __call = new})
end

check.define_type("optimizer", "an optimizer", is_optimizer)
check.strict("Optimizer", Optimizer)

return M
