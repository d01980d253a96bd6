-- optim.lua -- flow.optim: optimizers, schedules, clipping and averages. The common base is optim_base.lua, the
-- rules of most in optim_rules.lua; files of their own have the others.

local check = require "flow.check"
local base = require "flow.optim_base"
local lazy_names = require "flow.lazy_names"
local rules = require "flow.optim_rules"
local schedule = require "flow.optim_schedule"

local optim = lazy_names.add({
    schedule = schedule.schedule, Scheduler = schedule.Scheduler, clip_grad_norm = require "flow.optim_clip",
}, {
    optim_average = "AveragedModel", optim_lr_scheduler = "lr_scheduler", optim_lbfgs = "LBFGS", optim_muon = "Muon",
    optim_adafactor = "Adafactor", optim_custom = "Optimizer", optim_swa = "swa_utils",
})
for name, rule in pairs(rules) do optim[name] = base.define(name, rule) end

check.takes(optim, {
    "clip_grad_norm(params: any, max_norm: number >= 0)", "Scheduler(optimizer: optimizer, f: function)",
})
return check.strict("optim", optim)
