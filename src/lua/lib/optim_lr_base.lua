-- optim_lr_base.lua -- what all schedulers of flow.optim.lr_scheduler share: their step, and their state.
--
-- A group keeps the rate that it had when its first scheduler was made as `initial_lr`.

local flow = require "flow"
local check = require "flow.check"

local M = {}

---@class flow.optim.LRScheduler
---@field optimizer flow.optim.Optimizer
---@field last_epoch integer steps done
---@field base_lrs number[] the groups' first rates
---@field last_lr number[]
local LRScheduler = {__name = "LRScheduler"}
LRScheduler.__index = LRScheduler
M.LRScheduler = LRScheduler

-- The number that a function has given for a step.
function M.number_of(self, value, epoch)
    if type(value) ~= "number" or value ~= value then
        check.fail("%s: the function must return a number, got %s for step %d", self._name, check.got(value), epoch)
    end
    return value
end

function M.rates_of(optimizer)
    local list = {}
    for i, group in ipairs(optimizer.groups) do list[i] = group.lr end
    return list
end

local function set_rates(self, epoch, rates)
    local groups = self.optimizer.groups
    self.last_epoch = epoch
    for i, rate in ipairs(rates) do groups[i].lr = rate end
    if self._after then self:_after(epoch) end
    self.last_lr = M.rates_of(self.optimizer)
end

-- One step on; where it fails nothing has changed. initial: the first, of a scheduler that is made.
function LRScheduler:_advance(initial)
    local epoch, rates = self.last_epoch + 1, {}
    if self._before then self:_before(epoch) end
    for i, first in ipairs(self.base_lrs) do
        rates[i] = self:_rate(epoch, self.optimizer.groups[i].lr, first, i, initial)
    end
    set_rates(self, epoch, rates)
end

-- Begins anew in the middle of a sequence of schedulers.
function LRScheduler:_restart()
    local rates = {}
    if self._before then self:_before(0) end
    for i, first in ipairs(self.base_lrs) do
        rates[i] = self:_restart_rate(self.optimizer.groups[i].lr, first, i)
    end
    set_rates(self, 0, rates)
end

function LRScheduler._restart_rate(_, _, first)
    return first
end

-- Back to before the first step.
function LRScheduler:_undo()
    self.last_epoch = -1
end

---Call it after the optimizer's step: sets the rates of the next one.
function LRScheduler:step()
    self:_advance()
    flow._program.again(function() self:_advance() end)
end

---The rates that were set last, one for each group.
---@return number[]
function LRScheduler:get_last_lr()
    return table.move(self.last_lr, 1, #self.last_lr, 1, {})
end

-- ---- state ----

-- Fields that all schedulers save, by name, and their kinds.
local common = {last_epoch = "integer", base_lrs = "rates", last_lr = "rates"}

local function copy_of(value)
    return type(value) == "table" and table.move(value, 1, #value, 1, {}) or value
end

---A table for flow.save: the steps done, the rates and the options (but no functions).
---@return table
function LRScheduler:state_dict()
    local result = {name = self._name}
    for key in pairs(self._fields) do result[key] = copy_of(self[key]) end
    return result
end

local function is_number(value) return type(value) == "number" and value == value end

local function is_list(value, count)
    if type(value) ~= "table" or count and #value ~= count then return false end
    for _, entry in ipairs(value) do
        if not is_number(entry) then return false end
    end
    return true
end

-- Tests of what a state has in its fields.
local kinds = {
    integer = {"a whole number", function(value) return math.type(value) == "integer" end},
    number = {"a number", is_number},
    string = {"a string", function(value) return type(value) == "string" end},
    boolean = {"true or false", function(value) return type(value) == "boolean" end},
    list = {"a list of numbers", function(value) return is_list(value) end},
    rates = {"a list of one number for each group", function(value, count) return is_list(value, count) end},
}

-- Raises unless the state fits; then load_state_dict cannot fail.
function LRScheduler:_check_state(state)
    local who = self._name .. ":load_state_dict"
    if state.name == nil then check.fail("%s: takes a table from state_dict", who) end
    if state.name ~= self._name then
        check.fail("%s: the state is of another scheduler, %s", who, check.got(state.name))
    end
    for _, key in ipairs(check.sorted_keys(self._fields)) do
        local kind, count = kinds[self._fields[key]], type(self[key]) == "table" and #self[key]
        if not kind[2](state[key], count) then
            check.fail("%s: %s must be %s, got %s", who, key, kind[1], check.got(state[key]))
        end
    end
end

function LRScheduler:_take_state(state)
    for key in pairs(self._fields) do rawset(self, key, copy_of(state[key])) end
    for i, group in ipairs(self.optimizer.groups) do
        group.initial_lr, group.lr = self.base_lrs[i] or group.initial_lr, self.last_lr[i] or group.lr
    end
    if self._after then self:_after(self.last_epoch) end
end

---Goes on where the state was saved, rates and options included; a state that does not fit changes nothing.
---@param state table
function LRScheduler:load_state_dict(state)
    self:_check_state(state)
    self:_take_state(state)
end

function LRScheduler:__tostring()
    local parts = {}
    for _, key in ipairs(check.sorted_keys(self._fields)) do
        local value = self[key]
        if not common[key] then
            if type(value) == "table" then value = "{" .. table.concat(value, ", ") .. "}" end
            parts[#parts + 1] = ("%s=%s"):format(key, value)
        end
    end
    return ("%s(%s)"):format(self._name, table.concat(parts, ", "))
end

-- ---- making them ----

---A class of schedulers. fields: the own fields of its state, name -> kind.
function M.define(name, fields)
    local class = {_name = name, _fields = fields, __tostring = LRScheduler.__tostring}
    for key, kind in pairs(common) do fields[key] = kind end
    class.__index = class
    return setmetatable(class, {__index = LRScheduler})
end

---A scheduler with its first step done; self: its own fields.
function M.new(class, optimizer, self)
    self.optimizer, self.last_epoch = optimizer, -1
    local firsts = {}
    for i, group in ipairs(optimizer.groups) do
        group.initial_lr = group.initial_lr or group.lr
        firsts[i] = group.initial_lr
    end
    self.base_lrs, self.last_lr = self.base_lrs or firsts, M.rates_of(optimizer)
    setmetatable(self, class)
    self:_advance(true)
    return self
end

---One number for each group of an optimizer, of a number or a list of them.
function M.per_group(who, name, optimizer, value)
    local list, count = {}, #optimizer.groups
    if type(value) == "table" and #value ~= count then
        check.fail("%s: %s must be a number or a list of %d, one for each group, got %d", who, name, count, #value)
    end
    for i = 1, count do list[i] = type(value) == "table" and value[i] or value end
    return list
end

-- ---- types of arguments ----

local function all_are(test)
    return function(value)
        if type(value) ~= "table" or getmetatable(value) ~= nil or next(value, #value > 0 and #value or nil) ~= nil then
            return false
        end
        for _, entry in ipairs(value) do
            if not test(entry) then return false end
        end
        return #value > 0
    end
end

local function is_whole(value) return math.type(value) == "integer" and value >= 0 end
local function is_rate(value) return is_number(value) and value >= 0 end

check.define_type("integers", "a list of whole numbers >= 0", all_are(is_whole))
check.define_type("numbers", "a list of numbers >= 0", all_are(is_rate))
check.define_type("functions", "a list of functions", all_are(function(f) return check.is("function", f) end))

M.is_scheduler = check.methods(LRScheduler, "scheduler", {
    "step()", "get_last_lr()", "state_dict()", "load_state_dict(state: state)",
})
check.define_type("schedulers", "a list of schedulers", all_are(M.is_scheduler))
check.strict("LRScheduler", LRScheduler)

return M
