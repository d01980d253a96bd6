-- optim_rules.lua -- optimizers whose step is one op over all parameters of a group: their options and kept tensors.
--
-- Each is {defaults =, kept =, options =}: kept(group) names the tensors beside a parameter, options(group, step) gives
-- the op of a step with its options; initial(group, name) is what a kept tensor starts with, 0 if there is none.
-- compose(group, run, lists): a step of several ops, run(op, lists) each.

local flow = require "flow"
local check = require "flow.check"

local op = flow._op

local M = {}

-- ---- descent ----

M.SGD = {
    defaults = {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false, maximize = false},
    kept = function(group) return group.momentum ~= 0 and {"momentum_buffer"} or {} end,
    options = function(group, step)
        if group.momentum == 0 then
            return op.sgd_plain_step, {lr = group.lr, weight_decay = group.weight_decay, maximize = group.maximize}
        end
        return op.sgd_step, {
            lr = group.lr, momentum = group.momentum, dampening = group.dampening, weight_decay = group.weight_decay,
            nesterov = group.nesterov, first = step == 1, maximize = group.maximize,
        }
    end,
}

M.ASGD = {
    defaults = {lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0, maximize = false},
    kept = function() return {"ax"} end,
    options = function(group, step)
        return op.asgd_step, {
            lr = group.lr, lambd = group.lambd, alpha = group.alpha, t0 = group.t0, weight_decay = group.weight_decay,
            step = step, maximize = group.maximize,
        }
    end,
}

M.Rprop = {
    defaults = {lr = 1e-2, etas = {0.5, 1.2}, step_sizes = {1e-6, 50}, maximize = false},
    kept = function() return {"prev", "step_size"} end,
    initial = function(group, name) return name == "step_size" and group.lr or 0 end,
    options = function(group)
        return op.rprop_step, {
            shrink = group.etas[1], grow = group.etas[2], least = group.step_sizes[1], most = group.step_sizes[2],
            maximize = group.maximize,
        }
    end,
}

-- ---- averages of squares ----

local rmsprop_steps = {
    [false] = {[false] = op.rmsprop_step, [true] = op.rmsprop_momentum_step},
    [true] = {[false] = op.rmsprop_centered_step, [true] = op.rmsprop_both_step},
}

M.RMSprop = {
    defaults = {
        lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false, maximize = false,
    },
    kept = function(group)
        local names = {"square_avg"}
        if group.momentum > 0 then names[#names + 1] = "momentum_buffer" end
        if group.centered then names[#names + 1] = "grad_avg" end
        return names
    end,
    options = function(group)
        return rmsprop_steps[group.centered][group.momentum > 0], {
            lr = group.lr, alpha = group.alpha, eps = group.eps, weight_decay = group.weight_decay,
            momentum = group.momentum, maximize = group.maximize,
        }
    end,
}

M.Adagrad = {
    defaults = {
        lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10, maximize = false,
    },
    kept = function() return {"sum"} end,
    initial = function(group) return group.initial_accumulator_value end,
    options = function(group, step)
        return op.adagrad_step, {
            lr = group.lr, lr_decay = group.lr_decay, weight_decay = group.weight_decay, eps = group.eps, step = step,
            maximize = group.maximize,
        }
    end,
}

M.Adadelta = {
    defaults = {lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false},
    kept = function() return {"square_avg", "acc_delta"} end,
    options = function(group)
        return op.adadelta_step, {
            lr = group.lr, rho = group.rho, eps = group.eps, weight_decay = group.weight_decay,
            maximize = group.maximize,
        }
    end,
}

-- ---- moments ----

local function two_moments() return {"exp_avg", "exp_avg_sq"} end

-- The options of steps with two betas.
local function moments(group, step, decoupled)
    if type(group.betas) ~= "table" then
        check.fail("step: betas must be two numbers, got %s", check.got(group.betas))
    end
    return {
        lr = group.lr, beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps or 0,
        weight_decay = group.weight_decay, step = step, decoupled = decoupled, maximize = group.maximize,
    }
end

local function adam_kept(group)
    return group.amsgrad and {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} or two_moments()
end

local function adam_step(group) return group.amsgrad and op.amsgrad_step or op.adamw_step end

M.Adam = {
    defaults = {
        lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, amsgrad = false,
        decoupled_weight_decay = false, maximize = false,
    },
    kept = adam_kept,
    options = function(group, step) return adam_step(group), moments(group, step, group.decoupled_weight_decay) end,
}

M.AdamW = {
    defaults = {
        lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01, amsgrad = false, maximize = false,
    },
    kept = adam_kept,
    options = function(group, step) return adam_step(group), moments(group, step, true) end,
}

M.Adamax = {
    defaults = {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, maximize = false},
    kept = function() return {"exp_avg", "exp_inf"} end,
    options = function(group, step) return op.adamax_step, moments(group, step, false) end,
}

M.NAdam = {
    defaults = {
        lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3,
        decoupled_weight_decay = false, maximize = false,
    },
    kept = two_moments,
    options = function(group, step)
        local result = moments(group, step, group.decoupled_weight_decay)
        result.momentum_decay = group.momentum_decay
        return op.nadam_step, result
    end,
}

M.RAdam = {
    defaults = {
        lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, decoupled_weight_decay = false,
        maximize = false,
    },
    kept = two_moments,
    options = function(group, step) return op.radam_step, moments(group, step, group.decoupled_weight_decay) end,
}

M.Lion = {
    defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, maximize = false},
    kept = function() return {"exp_avg"} end,
    options = function(group, step) return op.lion_step, moments(group, step, true) end,
}

-- ---- rates by the norms of each parameter and its update ----

-- The place of a tensor and its SBP: sums over parts of equal layout are added up together.
local function layout_of(t) return t.is_global and ("%s %s"):format(t.placement, t.sbp) or t.device end

local function whole(t)
    if not t.is_global then return t end
    local sbp = {}
    for i = 1, #t.placement.hierarchy do sbp[i] = "B" end
    return t:to_global{sbp = sbp}
end

-- `lists` with one more: both sums of squares of each parameter, by an op over the first `count` lists.
local function with_norms(run, norms, lists, count)
    local by_layout, sums = {}, {}
    for i, p in ipairs(lists[1]) do
        local key = layout_of(p)
        by_layout[key] = by_layout[key] or {}
        table.insert(by_layout[key], i)
    end
    for _, key in ipairs(check.sorted_keys(by_layout)) do
        local members, part = by_layout[key], {}
        for k = 1, count do
            part[k] = {}
            for n, i in ipairs(members) do part[k][n] = lists[k][i] end
        end
        local rows = whole(run(norms, part))
        for n, i in ipairs(members) do sums[i] = rows:select(0, n - 1) end
    end
    local result = table.move(lists, 1, #lists, 1, {})
    result[#result + 1] = sums
    return result
end

M.LAMB = {
    defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-6, weight_decay = 0, maximize = false},
    kept = two_moments,
    options = function(group, step) return op.lamb_step, moments(group, step, false) end,
    compose = function(_, run, lists)
        run(op.lamb_moments_step, lists)
        run(op.lamb_step, with_norms(run, op.lamb_norms, lists, 4))
    end,
}

M.LARS = {
    defaults = {
        lr = 1e-2, momentum = 0.9, weight_decay = 0, trust_coefficient = 1e-3, eps = 1e-8, maximize = false,
    },
    kept = function() return {"momentum_buffer"} end,
    options = function(group)
        return op.lars_step, {
            lr = group.lr, momentum = group.momentum, weight_decay = group.weight_decay,
            trust_coefficient = group.trust_coefficient, eps = group.eps, maximize = group.maximize,
        }
    end,
    compose = function(_, run, lists) run(op.lars_step, with_norms(run, op.lars_norms, lists, 2)) end,
}

return M
