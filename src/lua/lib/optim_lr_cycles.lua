-- optim_lr_cycles.lua -- schedulers that rise and fall: CyclicLR, OneCycleLR, CosineAnnealingWarmRestarts.

local check = require "flow.check"
local base = require "flow.optim_lr_base"

local M = {}

local define, new, per_group = base.define, base.new, base.per_group

-- ---- momentum that moves against the rate ----

-- Sets momentum, or the first beta, of the groups.
local function set_momentums(self, epoch)
    if not self.cycle_momentum then return end
    for i in ipairs(self.base_momentums) do
        local group, momentum = self.optimizer.groups[i], self:_momentum(epoch, i)
        if group.betas then group.betas = {momentum, group.betas[2]} else group.momentum = momentum end
    end
end

-- The fields of a scheduler that moves momentum.
local function momentum_fields(who, optimizer, cycles, low, high)
    local defaults = optimizer.defaults
    if cycles and not defaults.betas and defaults.momentum == nil then
        check.fail("%s: %s has neither momentum nor betas; pass {cycle_momentum = false}", who, optimizer.name)
    end
    return {
        cycle_momentum = cycles, base_momentums = per_group(who, "base_momentum", optimizer, low),
        max_momentums = per_group(who, "max_momentum", optimizer, high),
    }
end

-- ---- CyclicLR ----

local CyclicLR = define("CyclicLR", {
    max_lrs = "rates", total_size = "number", step_ratio = "number", mode = "string", gamma = "number",
    scale_mode = "string", cycle_momentum = "boolean", base_momentums = "rates", max_momentums = "rates",
})
CyclicLR._after = set_momentums

local scales = {
    triangular = function() return 1 end,
    triangular2 = function(_, cycle) return 1 / 2.0 ^ (cycle - 1) end,
    exp_range = function(self, steps) return self.gamma ^ steps end,
}

-- The height in a cycle, from 0 to 1, and its scale.
local function height_of(self, epoch)
    local cycle = math.floor(1 + epoch / self.total_size)
    local x = 1 + epoch / self.total_size - cycle
    local height = x <= self.step_ratio and x / self.step_ratio or (x - 1) / (self.step_ratio - 1)
    local at = self.scale_mode == "cycle" and cycle or epoch
    if self._scale_fn then return height, base.number_of(self, self._scale_fn(at), epoch) end
    return height, scales[self.mode](self, at)
end

function CyclicLR:_rate(epoch, _, _, i)
    local height, scale = height_of(self, epoch)
    return self.base_lrs[i] + (self.max_lrs[i] - self.base_lrs[i]) * height * scale
end

function CyclicLR:_momentum(epoch, i)
    local height, scale = height_of(self, epoch)
    return self.max_momentums[i] - (self.max_momentums[i] - self.base_momentums[i]) * height * scale
end

function CyclicLR:_restart_rate(lr, first, i)
    return self:_rate(0, lr, first, i)
end

---Leads the rates from base_lr to max_lr in step_size_up steps, back in step_size_down, and so on; momentum the other
---way. mode triangular2 halves every cycle's height, exp_range has gamma ^ steps; scale_fn(cycle or step) replaces it.
---@param opts table
function M.CyclicLR(optimizer, base_lr, max_lr, step_size_up, opts)
    local who = "lr_scheduler.CyclicLR"
    local self = momentum_fields(who, optimizer, opts.cycle_momentum, opts.base_momentum, opts.max_momentum)
    self.base_lrs = per_group(who, "base_lr", optimizer, base_lr)
    self.max_lrs = per_group(who, "max_lr", optimizer, max_lr)
    self.total_size = step_size_up + (opts.step_size_down or step_size_up)
    self.step_ratio = step_size_up / self.total_size
    self.mode, self.gamma, self._scale_fn = opts.mode, opts.gamma, opts.scale_fn
    self.scale_mode = opts.scale_fn and opts.scale_mode or opts.mode == "exp_range" and "iterations" or "cycle"
    for i, group in ipairs(optimizer.groups) do group.lr = self.base_lrs[i] end
    return new(CyclicLR, optimizer, self)
end

-- ---- OneCycleLR ----

local OneCycleLR = define("OneCycleLR", {
    max_lrs = "rates", min_lrs = "rates", total_steps = "integer", pct_start = "number", anneal_strategy = "string",
    three_phase = "boolean", cycle_momentum = "boolean", base_momentums = "rates", max_momentums = "rates",
})
OneCycleLR._after = set_momentums

local anneal = {
    cos = function(from, to, part) return to + (from - to) / 2 * (math.cos(math.pi * part) + 1) end,
    linear = function(from, to, part) return (to - from) * part + from end,
}

-- The phases up to the last: their last steps, and what the rate and the momentum go from and to.
local function phases_of(self)
    local low, high, least = "base_lrs", "max_lrs", "min_lrs"
    local slow, fast = "base_momentums", "max_momentums"
    local rise, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
    if not self.three_phase then return {{rise, low, high, fast, slow}, {last, high, least, slow, fast}} end
    local fall = 2 * self.pct_start * self.total_steps - 2
    return {{rise, low, high, fast, slow}, {fall, high, low, slow, fast}, {last, low, least, fast, fast}}
end

-- The phase of a step, and which part of it is done.
local function phase_at(self, epoch)
    local begin, phases = 0.0, phases_of(self)
    for i, phase in ipairs(phases) do
        if epoch <= phase[1] or i == #phases then
            return phase, phase[1] == begin and 1 or (epoch - begin) / (phase[1] - begin)
        end
        begin = phase[1]
    end
end

function OneCycleLR:_rate(epoch, _, _, i)
    if epoch > self.total_steps then
        check.fail("OneCycleLR: step %d is beyond its total_steps, %d", epoch, self.total_steps)
    end
    local phase, part = phase_at(self, epoch)
    return anneal[self.anneal_strategy](self[phase[2]][i], self[phase[3]][i], part)
end

function OneCycleLR:_momentum(epoch, i)
    local phase, part = phase_at(self, epoch)
    return anneal[self.anneal_strategy](self[phase[4]][i], self[phase[5]][i], part)
end

function OneCycleLR:_restart_rate(lr, first, i)
    return self:_rate(0, lr, first, i)
end

---Leads the rates from max_lr / div_factor up to max_lr, then far below, once in total_steps (or epochs and
---steps_per_epoch); momentum the other way.
---@param opts table
function M.OneCycleLR(optimizer, max_lr, total_steps, opts)
    local who = "lr_scheduler.OneCycleLR"
    if not total_steps and not (opts.epochs and opts.steps_per_epoch) then
        check.fail("%s: takes total_steps, or epochs and steps_per_epoch", who)
    end
    local self = momentum_fields(who, optimizer, opts.cycle_momentum, opts.base_momentum, opts.max_momentum)
    self.total_steps = total_steps or opts.epochs * opts.steps_per_epoch
    self.pct_start, self.three_phase = opts.pct_start, opts.three_phase
    self.anneal_strategy = opts.anneal_strategy
    self.max_lrs, self.base_lrs, self.min_lrs = per_group(who, "max_lr", optimizer, max_lr), {}, {}
    for i, group in ipairs(optimizer.groups) do
        self.base_lrs[i] = self.max_lrs[i] / opts.div_factor
        self.min_lrs[i] = self.base_lrs[i] / opts.final_div_factor
        group.initial_lr = self.base_lrs[i]
    end
    return new(OneCycleLR, optimizer, self)
end

-- ---- CosineAnnealingWarmRestarts ----

local WarmRestarts = define("CosineAnnealingWarmRestarts", {
    T_0 = "integer", T_mult = "integer", T_i = "integer", T_cur = "integer", eta_min = "number",
})

function WarmRestarts:_before(epoch)
    if epoch == 0 then self.T_cur, self.T_i = 0, self.T_0 return end
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult end
end

function WarmRestarts:_rate(_, _, first)
    return self.eta_min + (first - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
end

function WarmRestarts:_restart_rate(lr, first)
    return self:_rate(0, lr, first)
end

---Leads the rates to eta_min along half a cosine of T_0 steps, begins again, and so on, each time T_mult times as long.
function M.CosineAnnealingWarmRestarts(optimizer, T_0, T_mult, eta_min)
    return new(WarmRestarts, optimizer, {T_0 = T_0, T_mult = T_mult, T_i = T_0, T_cur = 0, eta_min = eta_min})
end

-- ---- SWALR ----

local SWALR = define("SWALR", {anneal_epochs = "integer", anneal_strategy = "string", swa_lrs = "rates"})

local shares = {
    cos = function(part) return (1 - math.cos(math.pi * part)) / 2 end,
    linear = function(part) return part end,
}

-- The share of the last rate at a step; the rest is the first rate.
function SWALR:_share(step)
    return shares[self.anneal_strategy](math.max(0, math.min(1, step / math.max(1, self.anneal_epochs))))
end

function SWALR:_rate(epoch, lr, _, i)
    local step, last = self.anneal_epochs == 0 and math.max(1, epoch) or epoch, self.swa_lrs[i]
    local before, now = self:_share(step - 1), self:_share(step)
    local first = before == 1 and last or (lr - before * last) / (1 - before)
    return last * now + first * (1 - now)
end

function SWALR:_restart_rate(lr, _, i) return self:_rate(0, lr, nil, i) end

---Leads the rates to swa_lr over anneal_epochs steps, where they stay: for the averaging of weights.
function M.SWALR(optimizer, swa_lr, anneal_epochs, anneal_strategy)
    return new(SWALR, optimizer, {
        swa_lrs = per_group("lr_scheduler.SWALR", "swa_lr", optimizer, swa_lr), anneal_epochs = anneal_epochs,
        anneal_strategy = anneal_strategy,
    })
end

check.takes(M, {
    [[lr_scheduler.SWALR(optimizer: optimizer, swa_lr: number >= 0 or numbers, anneal_epochs: integer >= 0 = 10,
        anneal_strategy: cos|linear = cos)]],
    [[lr_scheduler.CyclicLR(optimizer: optimizer, base_lr: number >= 0 or numbers, max_lr: number >= 0 or numbers,
        step_size_up: number >= 1 = 2000, {step_size_down: number >= 1?,
        mode: triangular|triangular2|exp_range = triangular, gamma: number >= 0 = 1, scale_fn: function?,
        scale_mode: cycle|iterations = cycle, cycle_momentum: boolean = true,
        base_momentum: number 0..1 or numbers = 0.8, max_momentum: number 0..1 or numbers = 0.9})]],
    [[lr_scheduler.OneCycleLR(optimizer: optimizer, max_lr: number >= 0 or numbers, total_steps: integer >= 1?,
        {epochs: integer >= 1?, steps_per_epoch: integer >= 1?, pct_start: number 0..1 = 0.3,
        anneal_strategy: cos|linear = cos, cycle_momentum: boolean = true, base_momentum: number 0..1 or numbers = 0.85,
        max_momentum: number 0..1 or numbers = 0.95, div_factor: number >= 1e-30 = 25,
        final_div_factor: number >= 1e-30 = 10000, three_phase: boolean = false})]],
    [[lr_scheduler.CosineAnnealingWarmRestarts(optimizer: optimizer, T_0: integer >= 1, T_mult: integer >= 1 = 1,
        eta_min: number >= 0 = 0)]],
})
return M
