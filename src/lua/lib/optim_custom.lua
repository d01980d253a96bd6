-- optim_custom.lua -- flow.optim.Optimizer: classes of a script's own optimizers, with groups, hooks, schedulers and
-- state dicts like the others.
--
--     local Signs = optim.Optimizer:extend("Signs", {lr = 0.01})
--     function Signs:update(group)
--         for _, p in ipairs(group.params) do if p.grad then p:sub_(p.grad:sign() * group.lr) end end
--     end

local flow = require "flow"
local base = require "flow.optim_base"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"

-- The state of a parameter is a table that is there when it is first asked for.
local states_meta = {__index = function(states, p)
    if not check.is_tensor(p) then return nil end
    local state = {}
    rawset(states, p, state)
    return state
end}

local methods = {}

---Changes the parameters of a group by their gradients; called in each step, without recording gradients.
---self.state[p] is a table for what is kept of p: tensors, numbers and words go into state dicts.
---@param group table
function methods:update(group) -- luacheck: ignore group
    check.fail("%s has no update(group)", self.name)
end

function methods:step(closure)
    local loss
    base.begin_step(self)
    base.guard_step(self)
    if closure then
        local _ <close> = flow.enable_grad()
        loss = closure()
    end
    do
        local _ <close> = flow.no_grad()
        for i = 1, #self.groups do self:update(self.groups[i]) end
    end
    base.end_step(self)
    return loss
end

local function copy_of(t)
    local copy = {}
    for key, value in pairs(t) do copy[key] = value end
    return copy
end

function methods:_saved()
    local result, count = {groups = {}, state = {}}, 0
    for i, group in ipairs(self.groups) do
        local saved = {params = {}}
        for key in pairs(self.defaults) do saved[key] = group[key] end
        for j, p in ipairs(group.params) do
            count = count + 1
            saved.params[j] = count
            result.state[count] = copy_of(rawget(self.state, p) or {})
        end
        result.groups[i] = saved
    end
    return result
end

-- A saved value for p, in the tensor that there is if it has that shape.
local function restored(p, value, old)
    if not check.is_tensor(value) and not checkpoint.is_stored(value) then
        return type(value) == "table" and copy_of(value) or value
    end
    if not check.is_tensor(old) or check.shape(old) ~= check.shape(value) or old.dtype ~= value.dtype then
        old = check.shape(value) == check.shape(p) and flow.zeros_like(p:detach()):to(value.dtype)
            or flow.zeros(value.shape, flow.nn.like(p, {dtype = value.dtype}))
    end
    checkpoint.copy(old, value)
    return old
end

local function check_state(self, state)
    local who, options = self.name .. ":load_state_dict", {}
    base.check_groups(self, who, state)
    for i = 1, #self.groups do
        local given = copy_of(state.groups[i])
        given.params = nil
        options[i] = check.options(who, given, self.defaults)
    end
    return options
end

function methods:_restore(state)
    local options, count = check_state(self, state), 0
    local _ <close> = flow.no_grad()
    for i, group in ipairs(self.groups) do
        for key, value in pairs(options[i]) do group[key] = value end
        for _, p in ipairs(group.params) do
            count = count + 1
            local old, new = self.state[p], {}
            for key, value in pairs(state.state[count] or {}) do new[key] = restored(p, value, old[key]) end
            self.state[p] = new
        end
    end
end

local Optimizer = {}

---A class of optimizers; give it update(group). Its objects are made of parameters or groups, and of options, whose
---names and values are those of `defaults`.
---@param name string
---@param defaults table
---@return table class
function Optimizer.extend(_, name, defaults)
    if type(name) ~= "string" or type(defaults) ~= "table" then
        check.fail("Optimizer:extend: takes a name and the defaults of the options: "
            .. "Optimizer:extend(\"Lion\", {lr = 1e-4})")
    end
    local class = base.define(name, {
        defaults = copy_of(defaults), kept = function() return {} end, methods = methods,
    })
    local meta = getmetatable(class)
    local new = meta.__call
    function meta.__call(...)
        local self = new(...)
        setmetatable(self.state, states_meta)
        return self
    end
    return class
end

return {Optimizer = check.strict("optim.Optimizer", Optimizer)}
