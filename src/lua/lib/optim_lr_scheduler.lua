-- optim_lr_scheduler.lua -- flow.optim.lr_scheduler: PyTorch's schedulers by their names, with its values step by step.
--
-- A scheduler computes a rate from the one that its group has, as PyTorch does, so several may work on one optimizer
-- and rates may be set in between. A captured step runs its schedulers in every replay. This file has the schedulers of
-- one formula; optim_lr_cycles.lua has cycles, optim_lr_combined.lua those made of others or led by a value.

local check = require "flow.check"
local base = require "flow.optim_lr_base"

local M = {}

local define, new = base.define, base.new

-- Every _rate(epoch, lr, first, i, initial) gives the rate of group i: lr is the one it has, first the one it had when
-- its first scheduler was made, initial is true where the scheduler is being made. _restart_rate(lr, first, i) is the
-- rate where a sequence of schedulers comes to this one.

local StepLR = define("StepLR", {step_size = "integer", gamma = "number"})

function StepLR:_rate(epoch, lr)
    return epoch > 0 and epoch % self.step_size == 0 and lr * self.gamma or lr
end

---Multiplies the rates by gamma every step_size steps.
function M.StepLR(optimizer, step_size, gamma)
    return new(StepLR, optimizer, {step_size = step_size, gamma = gamma})
end

local MultiStepLR = define("MultiStepLR", {milestones = "list", gamma = "number"})

local function count_of(list, value)
    local count = 0
    for _, entry in ipairs(list) do count = count + (entry == value and 1 or 0) end
    return count
end

function MultiStepLR:_rate(epoch, lr)
    local count = count_of(self.milestones, epoch)
    return count > 0 and lr * self.gamma ^ count or lr
end

function MultiStepLR:_restart_rate(_, first)
    return first * self.gamma ^ count_of(self.milestones, 0)
end

---Multiplies the rates by gamma at each of the milestones, numbers of steps.
function M.MultiStepLR(optimizer, milestones, gamma)
    return new(MultiStepLR, optimizer, {milestones = milestones, gamma = gamma})
end

local ConstantLR = define("ConstantLR", {factor = "number", total_iters = "integer"})

function ConstantLR:_rate(epoch, lr)
    if epoch == 0 then return lr * self.factor end
    return epoch == self.total_iters and lr * (1 / self.factor) or lr
end

function ConstantLR:_restart_rate(_, first)
    return self.total_iters > 0 and first * self.factor or first
end

---Multiplies the rates by factor for the first total_iters steps.
function M.ConstantLR(optimizer, factor, total_iters)
    if factor == 0 then check.fail("lr_scheduler.ConstantLR: factor must be above 0: no rate comes back from 0") end
    return new(ConstantLR, optimizer, {factor = factor, total_iters = total_iters})
end

local LinearLR = define("LinearLR", {start_factor = "number", end_factor = "number", total_iters = "integer"})

function LinearLR:_rate(epoch, lr, _, _, initial)
    if epoch == 0 then return lr * self.start_factor end
    if initial or epoch > self.total_iters then return lr end
    local rise = self.end_factor - self.start_factor
    return lr * (1 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise))
end

function LinearLR:_restart_rate(_, first)
    return first * self.start_factor
end

---Leads the factor of the rates from start_factor to end_factor evenly over total_iters steps.
function M.LinearLR(optimizer, start_factor, end_factor, total_iters)
    if start_factor == 0 then check.fail("lr_scheduler.LinearLR: start_factor must be above 0") end
    return new(LinearLR, optimizer,
        {start_factor = start_factor, end_factor = end_factor, total_iters = total_iters})
end

local ExponentialLR = define("ExponentialLR", {gamma = "number"})

function ExponentialLR:_rate(_, lr, _, _, initial)
    return initial and lr or lr * self.gamma
end

---Multiplies the rates by gamma at every step.
function M.ExponentialLR(optimizer, gamma)
    return new(ExponentialLR, optimizer, {gamma = gamma})
end

local PolynomialLR = define("PolynomialLR", {total_iters = "integer", power = "number"})

function PolynomialLR:_rate(epoch, lr, _, _, initial)
    if initial or epoch > self.total_iters then return lr end
    return lr * ((1 - epoch / self.total_iters) / (1 - (epoch - 1) / self.total_iters)) ^ self.power
end

---Leads the rates to 0 over total_iters steps, as a power of what is left.
function M.PolynomialLR(optimizer, total_iters, power)
    return new(PolynomialLR, optimizer, {total_iters = total_iters, power = power})
end

local CosineAnnealingLR = define("CosineAnnealingLR", {T_max = "integer", eta_min = "number"})

function CosineAnnealingLR:_rate(epoch, lr, first, _, initial)
    local most, least, pi = self.T_max, self.eta_min, math.pi
    if initial then return lr end
    if (epoch - 1 - most) % (2 * most) == 0 then
        return lr + (first - least) * (1 - math.cos(pi / most)) / 2
    end
    return (1 + math.cos(pi * epoch / most)) / (1 + math.cos(pi * (epoch - 1) / most)) * (lr - least) + least
end

---Leads the rates to eta_min along half a cosine of T_max steps, and back in the next T_max.
function M.CosineAnnealingLR(optimizer, T_max, eta_min)
    return new(CosineAnnealingLR, optimizer, {T_max = T_max, eta_min = eta_min})
end

-- ---- rates by functions ----

local function functions_of(who, optimizer, f)
    local list, count = {}, #optimizer.groups
    local many = type(f) == "table" and getmetatable(f) == nil
    if many and #f ~= count then
        check.fail("lr_scheduler.%s: lr_lambda must be a function or %d, one for each group, got %d", who, count, #f)
    end
    for i = 1, count do list[i] = many and f[i] or f end
    return list
end

local LambdaLR = define("LambdaLR", {})

function LambdaLR:_rate(epoch, _, first, i)
    return first * base.number_of(self, self.lr_lambdas[i](epoch), epoch)
end

function LambdaLR:_restart_rate(lr, first, i)
    return self:_rate(0, lr, first, i)
end

---Sets the rates to their first value times lr_lambda(number of steps done); one function, or one for each group.
function M.LambdaLR(optimizer, lr_lambda)
    return new(LambdaLR, optimizer, {lr_lambdas = functions_of("LambdaLR", optimizer, lr_lambda)})
end

local MultiplicativeLR = define("MultiplicativeLR", {})

function MultiplicativeLR:_rate(epoch, lr, _, i, initial)
    return initial and lr or lr * base.number_of(self, self.lr_lambdas[i](epoch), epoch)
end

function MultiplicativeLR:_restart_rate(lr, first, i)
    return self:_rate(0, lr, first, i)
end

---Multiplies the rates by lr_lambda(number of steps done) at every step; one function, or one for each group.
function M.MultiplicativeLR(optimizer, lr_lambda)
    return new(MultiplicativeLR, optimizer, {lr_lambdas = functions_of("MultiplicativeLR", optimizer, lr_lambda)})
end

for _, name in ipairs {"cycles", "combined"} do
    for key, make in next, (require("flow.optim_lr_" .. name)) do M[key] = make end
end

local third = check.digits("%.17g", 1 / 3)
check.takes(M, {
    "lr_scheduler.StepLR(optimizer: optimizer, step_size: integer >= 1, gamma: number >= 0 = 0.1)",
    "lr_scheduler.MultiStepLR(optimizer: optimizer, milestones: integers, gamma: number >= 0 = 0.1)",
    ("lr_scheduler.ConstantLR(optimizer: optimizer, factor: number 0..1 = %s, total_iters: integer >= 0 = 5)")
        :format(third),
    ([[lr_scheduler.LinearLR(optimizer: optimizer, start_factor: number 0..1 = %s, end_factor: number 0..1 = 1,
        total_iters: integer >= 1 = 5)]]):format(third),
    "lr_scheduler.ExponentialLR(optimizer: optimizer, gamma: number >= 0)",
    "lr_scheduler.PolynomialLR(optimizer: optimizer, total_iters: integer >= 1 = 5, power: number = 1)",
    "lr_scheduler.CosineAnnealingLR(optimizer: optimizer, T_max: integer >= 1, eta_min: number >= 0 = 0)",
    "lr_scheduler.LambdaLR(optimizer: optimizer, lr_lambda: function or functions)",
    "lr_scheduler.MultiplicativeLR(optimizer: optimizer, lr_lambda: function or functions)",
})
return check.strict("optim.lr_scheduler", M)
