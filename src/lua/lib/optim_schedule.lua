-- optim_schedule.lua -- schedules of the learning rate, and what sets an optimizer's rates by them.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- A schedule is a function from the number of steps done to a factor of the learning rate.
local schedule = {}
M.schedule = schedule

-- f as a schedule: it is given the number of steps done.
local function of_steps(f)
    return function(step, ...)
        if type(step) ~= "number" or step ~= step or step < 0 or select("#", ...) > 0 then
            check.fail("schedule: takes the number of steps done, a number >= 0, got %s", check.got(step))
        end
        return f(step)
    end
end

---Always 1.
function schedule.constant()
    return of_steps(function() return 1 end)
end

---Rises evenly to 1 over the first `steps` steps.
---@param steps integer
function schedule.warmup(steps)
    return of_steps(function(step) return step < steps and (step + 1) / steps or 1 end)
end

---Falls from 1 to `least` along half a cosine over `steps` steps and stays there.
---@param steps integer
---@param opts {least: number}?
function schedule.cosine(steps, opts)
    local least = opts.least
    return of_steps(function(step)
        local x = math.min(step / steps, 1)
        return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * x))
    end)
end

---Multiplied by `gamma` every `size` steps.
---@param size integer
---@param gamma number
function schedule.step(size, gamma)
    return of_steps(function(step) return gamma ^ (step // size) end)
end

---Schedules in sequence: chain({warmup, 100}, {cosine, 900}) runs each for its number of steps, the last without end.
function schedule.chain(...)
    local parts, count = {...}, select("#", ...)
    if count == 0 then check.fail("schedule.chain: takes one part or more, as {schedule, steps}") end
    for i, part in ipairs(parts) do
        if type(part[1]) ~= "function" then check.fail("schedule.chain: part %d must be {schedule, steps}", i) end
        if i < count then check.integer("schedule.chain", "the steps of a part", part[2], 0) end
    end
    return of_steps(function(step)
        local i = 1
        while i < #parts and step >= parts[i][2] do
            step = step - parts[i][2]
            i = i + 1
        end
        return parts[i][1](step)
    end)
end

---Warm-up, then a cosine down to `least`: `steps` in all.
---@param steps integer
---@param opts {warmup: integer, least: number}?
function schedule.warmup_cosine(steps, opts)
    local warmup = math.min(opts.warmup, steps - 1)
    return schedule.chain({schedule.warmup(warmup), warmup}, {schedule.cosine(steps - warmup, {least = opts.least})})
end

---Sets the rates of an optimizer's groups to their first value times the schedule's factor.
---@class flow.optim.Scheduler
local Scheduler = {__name = "Scheduler"}
Scheduler.__index = Scheduler

-- Sets the rates for so many steps done; an error of the schedule changes nothing.
local function set_rates(self, steps, rates)
    local factor = self.schedule(steps)
    if type(factor) ~= "number" or factor ~= factor then
        check.fail("Scheduler: the schedule must return a number, got %s for step %d", check.got(factor), steps)
    end
    self.steps, self.rates = steps, rates
    for i, group in ipairs(self.optimizer.groups) do group.lr = rates[i] * factor end
end

---@param optimizer flow.optim.Optimizer
---@param f fun(step: integer): number
function M.Scheduler(optimizer, f)
    local self, rates = setmetatable({optimizer = optimizer, schedule = f, steps = 0, rates = {}}, Scheduler), {}
    for i, group in ipairs(optimizer.groups) do rates[i] = group.lr end
    set_rates(self, 0, rates)
    return self
end

---Call it after the optimizer's step: sets the rate of the next one.
function Scheduler:step()
    local function advance() set_rates(self, self.steps + 1, self.rates) end
    advance()
    flow._program.again(advance)
end

---@return table
function Scheduler:state_dict()
    return {steps = self.steps, rates = table.move(self.rates, 1, #self.rates, 1, {})}
end

---@param state table
function Scheduler:load_state_dict(state)
    local rates = {}
    if math.type(state.steps) ~= "integer" or state.steps < 0 or type(state.rates) ~= "table"
        or #state.rates ~= #self.rates then
        check.fail("Scheduler:load_state_dict: takes a table from state_dict, of %d groups", #self.rates)
    end
    for i, rate in ipairs(state.rates) do
        rates[i] = check.number("Scheduler:load_state_dict", "a rate", rate, 0, math.huge)
    end
    set_rates(self, state.steps, rates)
end

check.methods(Scheduler, "scheduler", {"step()", "state_dict()", "load_state_dict(state: state)"})
check.takes(schedule, {
    "schedule.constant()", "schedule.warmup(steps: integer >= 0)",
    "schedule.cosine(steps: integer >= 1, {least: number = 0})",
    "schedule.step(size: integer >= 1, gamma: number >= 0)", "schedule.chain(...: list)",
    "schedule.warmup_cosine(steps: integer >= 1, {warmup: integer >= 0 = 0, least: number = 0})",
})
check.strict("Scheduler", Scheduler)
check.strict("optim.schedule", schedule)

return M
