-- optim_lr_combined.lua -- schedulers made of others (SequentialLR, ChainedScheduler), and ReduceLROnPlateau.

local flow = require "flow"
local check = require "flow.check"
local base = require "flow.optim_lr_base"

local M = {}

local Plateau = base.define("ReduceLROnPlateau", {
    mode = "string", factor = "number", patience = "integer", threshold = "number", threshold_mode = "string",
    cooldown = "integer", min_lrs = "rates", eps = "number", best = "number", num_bad_epochs = "integer",
    cooldown_counter = "integer",
})

-- ---- several schedulers of one optimizer ----

local function check_parts(who, optimizer, parts)
    for i, part in ipairs(parts) do
        if getmetatable(part) == Plateau then
            check.fail("%s: scheduler %d is a ReduceLROnPlateau, whose step takes a value", who, i)
        elseif part.optimizer ~= optimizer then
            check.fail("%s: scheduler %d is of another optimizer", who, i)
        end
    end
end

-- The common base of both: a scheduler of schedulers.
local function define(name, fields)
    local class = base.define(name, fields)

    function class:_undo()
        self.last_epoch = -1
        for _, part in ipairs(self._parts) do part:_undo() end
    end

    -- All parts from the groups' first rates on.
    function class:_restart()
        for i, group in ipairs(self.optimizer.groups) do group.lr = self.base_lrs[i] or group.lr end
        self:_undo()
        self:_advance(true)
    end

    function class:state_dict()
        if type(self) ~= "table" or not rawget(self, "_parts") then
            check.fail("%s:state_dict: got %s as the scheduler", name, tostring(self))
        end
        local result = base.LRScheduler.state_dict(self)
        result.schedulers = {}
        for i, part in ipairs(self._parts) do result.schedulers[i] = part:state_dict() end
        return result
    end

    function class:_check_state(state)
        base.LRScheduler._check_state(self, state)
        local list = state.schedulers
        if type(list) ~= "table" or #list ~= #self._parts then
            check.fail("%s:load_state_dict: the state does not have %d schedulers", name, #self._parts)
        end
        for i, part in ipairs(self._parts) do
            if type(list[i]) ~= "table" then check.fail("%s:load_state_dict: scheduler %d has no state", name, i) end
            part:_check_state(list[i])
        end
    end

    function class:_take_state(state)
        for i, part in ipairs(self._parts) do part:_take_state(state.schedulers[i]) end
        base.LRScheduler._take_state(self, state)
    end

    return class
end

-- The fields of both, before the first step.
local function combined(class, optimizer, parts, milestones)
    local firsts = {}
    for i, group in ipairs(optimizer.groups) do firsts[i] = group.initial_lr or group.lr end
    return setmetatable({
        optimizer = optimizer, _parts = table.move(parts, 1, #parts, 1, {}), milestones = milestones, base_lrs = firsts,
        last_epoch = 0, last_lr = base.rates_of(optimizer),
    }, class)
end

local SequentialLR = define("SequentialLR", {milestones = "list"})

-- The scheduler at work in a step, and whether it begins there.
local function part_at(self, epoch)
    local i = 1
    while i <= #self.milestones and self.milestones[i] <= epoch do i = i + 1 end
    return self._parts[i], i > 1 and self.milestones[i - 1] == epoch
end

function SequentialLR:_advance(initial)
    local epoch = self.last_epoch + 1
    local part, begins = part_at(self, epoch)
    if begins and not initial then part:_restart() else part:_advance(initial) end
    self.last_epoch, self.last_lr = epoch, base.rates_of(self.optimizer)
end

---Schedulers one after another: at milestone i (a number of steps) scheduler i + 1 begins.
function M.SequentialLR(optimizer, schedulers, milestones)
    local who = "lr_scheduler.SequentialLR"
    check_parts(who, optimizer, schedulers)
    if #milestones ~= #schedulers - 1 then
        check.fail("%s: %d schedulers have %d milestones between them, got %d", who, #schedulers, #schedulers - 1,
            #milestones)
    end
    for i, milestone in ipairs(milestones) do
        check.integer(who, "a milestone", milestone, 0)
        if i > 1 and milestone <= milestones[i - 1] then check.fail("%s: the milestones must rise", who) end
    end
    local self = combined(SequentialLR, optimizer, schedulers, table.move(milestones, 1, #milestones, 1, {}))
    for i, group in ipairs(optimizer.groups) do group.lr = self.base_lrs[i] end
    self:_undo()
    self:_advance(true)
    return self
end

local ChainedScheduler = define("ChainedScheduler", {})

function ChainedScheduler:_advance(initial)
    for _, part in ipairs(self._parts) do part:_advance(initial) end
    self.last_epoch, self.last_lr = self.last_epoch + 1, base.rates_of(self.optimizer)
end

---Schedulers of one optimizer that all make a step at every step.
function M.ChainedScheduler(schedulers)
    local optimizer = schedulers[1].optimizer
    check_parts("lr_scheduler.ChainedScheduler", optimizer, schedulers)
    return combined(ChainedScheduler, optimizer, schedulers)
end

-- ---- ReduceLROnPlateau ----

local function is_better(self, value)
    local by, best = self.threshold, self.best
    if self.mode == "min" then return value < (self.threshold_mode == "rel" and best * (1 - by) or best - by) end
    return value > (self.threshold_mode == "rel" and best * (1 + by) or best + by)
end

local function reduce(self)
    for i, group in ipairs(self.optimizer.groups) do
        local rate = math.max(group.lr * self.factor, self.min_lrs[i] or 0)
        if group.lr - rate > self.eps then group.lr = rate end
    end
end

local function note(self, value)
    self.last_epoch = self.last_epoch + 1
    if is_better(self, value) then
        self.best, self.num_bad_epochs = value, 0
    else
        self.num_bad_epochs = self.num_bad_epochs + 1
    end
    if self.cooldown_counter > 0 then
        self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
    end
    if self.num_bad_epochs > self.patience then
        reduce(self)
        self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
    end
    self.last_lr = base.rates_of(self.optimizer)
end

---Call it with the value that is watched (a number, or a tensor of one element), say the loss of validation.
function Plateau:step(metrics)
    local value = check.is_tensor(metrics) and metrics:item() or metrics
    note(self, value)
    flow._program.again(function() note(self, value) end)
end

---Multiplies the rates by factor when the value given to step has not become better for more than patience steps.
---@param opts table
function M.ReduceLROnPlateau(optimizer, mode, opts)
    local who = "lr_scheduler.ReduceLROnPlateau"
    if opts.factor >= 1 then check.fail("%s: factor must be less than 1, got %s", who, opts.factor) end
    local self = {mode = mode, best = mode == "min" and math.huge or -math.huge}
    for _, key in ipairs {"factor", "patience", "threshold", "threshold_mode", "cooldown", "eps"} do
        self[key] = opts[key]
    end
    self.min_lrs = base.per_group(who, "min_lr", optimizer, opts.min_lr)
    self.num_bad_epochs, self.cooldown_counter, self.last_epoch, self.optimizer = 0, 0, 0, optimizer
    self.base_lrs, self.last_lr = base.rates_of(optimizer), base.rates_of(optimizer)
    return setmetatable(self, Plateau)
end

check.methods(Plateau, "scheduler", {"step(metrics: number or tensor)"})
check.takes(M, {
    "lr_scheduler.SequentialLR(optimizer: optimizer, schedulers: schedulers, milestones: list)",
    "lr_scheduler.ChainedScheduler(schedulers: schedulers)",
    [[lr_scheduler.ReduceLROnPlateau(optimizer: optimizer, mode: min|max = min, {factor: number >= 0 = 0.1,
        patience: integer >= 0 = 10, threshold: number >= 0 = 1e-4, threshold_mode: rel|abs = rel,
        cooldown: integer >= 0 = 0, min_lr: number >= 0 or numbers = 0, eps: number >= 0 = 1e-8})]],
})
return M
