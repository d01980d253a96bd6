-- optim_composed.lua -- optimizers whose step is made of in-place ops, parameter by parameter: not fused as SGD's is.
--
-- The numbers of a step (rates, decays, corrections) are 0-d tensors beside the parameters, set before each use by an
-- op whose options a replay takes anew; so a captured step sees what the options are, and has an eager one's bits.
-- A rule changes the parameter p by its gradient g, its kept tensors and the numbers c.

local flow = require "flow"
local check = require "flow.check"

local op, program = flow._op, flow._program

local M = {}

-- ---- numbers ----

-- A 0-d tensor on the device or ranks of p, whole on each.
local function scalar(p, value)
    local o = {dtype = p.dtype == "float64" and "float64" or "float32", device = not p.is_global and p.device or nil}
    if p.is_global then
        o.placement, o.sbp = p.placement, {}
        for i = 1, #p.placement.hierarchy do o.sbp[i] = "B" end
    end
    return flow.full({}, value, o)
end

-- One number: its tensor is the momentum buffer of a first step from 1 with gradient 0, whose decay is the number.
local function setting(value)
    return {lr = 0, momentum = 0, weight_decay = value, first = true}
end

---The scalars of an object for tensors like p: those of the names in `numbers`, made at their first use.
function M.scalars_of(self, p, place, numbers)
    local key = place .. (p.dtype == "float64" and " float64" or " float32")
    local all = rawget(self, "_scalars") or {}
    rawset(self, "_scalars", all)
    local c = all[key] or {_one = scalar(p, 1), _zero = scalar(p, 0)}
    all[key] = c
    for name in pairs(numbers) do c[name] = c[name] or scalar(p, 0) end
    return c
end

---Makes a number c[name] of scalars the value; in a replay, what again() gives.
function M.set_number(c, name, value, again)
    local list = {c._one, c._zero, c[name]}
    if not program.recording then return op.sgd_step(list, setting(value)) end
    program.live(op.sgd_step, list, setting(value), function() return setting(again()) end)
end

local function set_numbers(self, group, states, c, numbers)
    for _, name in ipairs(check.sorted_keys(numbers)) do
        M.set_number(c, name, numbers[name], function()
            return select(2, self._options(group, states[1].step))[name]
        end)
    end
end

-- The gradient where the parameter lies, with what all rules add to it.
local function gradient_of(group, c, p, g)
    if p.is_global and (g.placement ~= p.placement or tostring(g.sbp) ~= tostring(p.sbp)) then
        g = g:to_global{placement = p.placement, sbp = p.sbp}
    end
    if group.maximize then g = -g end
    if c.weight_decay and group.weight_decay ~= 0 then g = g + p * c.weight_decay end
    return g
end

---Updates the parameters of a batch, lists of parameters, gradients and kept tensors.
function M.update(self, group, batch)
    local states, lists = batch.states, batch.lists
    local _, numbers = self._options(group, states[1].step)
    local dtypes = {}
    program.again(function()
        for _, state in ipairs(states) do state.step = state.step + 1 end
    end)
    for i, p in ipairs(lists[1]) do
        local wide = p.dtype == "float64"
        local c = dtypes[wide]
        if not c then
            c = M.scalars_of(self, p, states[1].place, numbers)
            set_numbers(self, group, states, c, numbers)
            dtypes[wide] = c
        end
        local kept = {}
        for k = 3, #lists do kept[k - 2] = lists[k][i] end
        self._rule(group, c, p:detach(), gradient_of(group, c, p:detach(), lists[2][i]), table.unpack(kept))
    end
end

-- What must stay for the same ops to be right: flags, words, and which numbers are 0.
local function variant(defaults, group)
    local parts = {}
    for i, key in ipairs(check.sorted_keys(defaults)) do
        local value = group[key]
        if type(value) == "number" then value = key == "lr" or value ~= 0 end
        parts[i] = type(value) == "table" and "" or tostring(value)
    end
    return table.concat(parts, " ")
end

-- average = average * keep + x * rest
local function blend(average, keep, x, rest)
    return average:mul_(keep):add_(x * rest)
end

-- ---- the optimizers: name -> {defaults =, kept =, numbers =, rule =, initial = of kept tensors} ----

local function moments() return {"exp_avg", "exp_avg_sq"} end

-- The numbers of two betas.
local function betas_of(group)
    if type(group.betas) ~= "table" then
        check.fail("step: betas must be two numbers, got %s", check.got(group.betas))
    end
    local b1, b2 = group.betas[1], group.betas[2]
    return b1, b2, {
        beta1 = b1, rest1 = 1 - b1, beta2 = b2, rest2 = 1 - b2, eps = group.eps,
        weight_decay = group.weight_decay, shrink = 1 - group.lr * (group.weight_decay or 0),
    }
end

local kinds = {}

kinds.RMSprop = {
    defaults = {
        lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false, maximize = false,
    },
    kept = function(group)
        local names = {"square_avg"}
        if group.momentum > 0 then names[#names + 1] = "momentum_buffer" end
        if group.centered then names[#names + 1] = "grad_avg" end
        return names
    end,
    numbers = function(o)
        return {
            lr = o.lr, alpha = o.alpha, rest = 1 - o.alpha, eps = o.eps, momentum = o.momentum,
            weight_decay = o.weight_decay,
        }
    end,
    rule = function(o, c, p, g, square, second, third)
        blend(square, c.alpha, g * g, c.rest)
        local spread, mean = square, o.momentum > 0 and third or second
        if o.centered then
            blend(mean, c.alpha, g, c.rest)
            spread = square - mean * mean
        end
        local update = g / (spread:sqrt() + c.eps)
        if o.momentum > 0 then update = second:mul_(c.momentum):add_(update) end
        p:sub_(update * c.lr)
    end,
}

kinds.Adagrad = {
    defaults = {
        lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10, maximize = false,
    },
    kept = function() return {"sum"} end,
    initial = function(o) return o.initial_accumulator_value end,
    numbers = function(o, step)
        return {lr = o.lr / (1 + (step - 1) * o.lr_decay), eps = o.eps, weight_decay = o.weight_decay}
    end,
    rule = function(_, c, p, g, sum)
        sum:add_(g * g)
        p:sub_(g / (sum:sqrt() + c.eps) * c.lr)
    end,
}

kinds.Adadelta = {
    defaults = {lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false},
    kept = function() return {"square_avg", "acc_delta"} end,
    numbers = function(o)
        return {lr = o.lr, rho = o.rho, rest = 1 - o.rho, eps = o.eps, weight_decay = o.weight_decay}
    end,
    rule = function(_, c, p, g, square, moved)
        blend(square, c.rho, g * g, c.rest)
        local delta = (moved + c.eps):sqrt() / (square + c.eps):sqrt() * g
        blend(moved, c.rho, delta * delta, c.rest)
        p:sub_(delta * c.lr)
    end,
}

kinds.Adamax = {
    defaults = {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, maximize = false},
    kept = function() return {"exp_avg", "exp_inf"} end,
    numbers = function(o, step)
        local b1, _, c = betas_of(o)
        c.lr = o.lr / (1 - b1 ^ step)
        return c
    end,
    rule = function(_, c, p, g, mean, most)
        blend(mean, c.beta1, g, c.rest1)
        most:copy_((most * c.beta2):maximum(g:abs() + c.eps))
        p:sub_(mean / most * c.lr)
    end,
}

-- The product of NAdam's momenta up to a step.
local function momenta(o, step)
    local function momentum(t) return o.betas[1] * (1 - 0.5 * 0.96 ^ (t * o.momentum_decay)) end
    local product = 1
    for t = 1, step do product = product * momentum(t) end
    return momentum(step), momentum(step + 1), product
end

-- Gradient and parameter with either kind of weight decay, for rules that have both.
local function decayed(o, c, p, g)
    if o.weight_decay == 0 then return g end
    if not o.decoupled_weight_decay then return g + p * c.decay end
    p:mul_(c.shrink)
    return g
end

-- c without what gradient_of adds, as `decay`.
local function own_decay(c)
    c.decay, c.weight_decay = c.weight_decay, nil
    return c
end

kinds.NAdam = {
    defaults = {
        lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3,
        decoupled_weight_decay = false, maximize = false,
    },
    kept = moments,
    numbers = function(o, step)
        local _, b2, c = betas_of(o)
        local now, next_, product = momenta(o, step)
        c.now, c.next = o.lr * (1 - now) / (1 - product), o.lr * next_ / (1 - product * next_)
        c.correction = 1 - b2 ^ step
        return own_decay(c)
    end,
    rule = function(o, c, p, g, mean, square)
        g = decayed(o, c, p, g)
        blend(mean, c.beta1, g, c.rest1)
        blend(square, c.beta2, g * g, c.rest2)
        local spread = (square / c.correction):sqrt() + c.eps
        p:sub_(g / spread * c.now):sub_(mean / spread * c.next)
    end,
}

kinds.RAdam = {
    defaults = {
        lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, decoupled_weight_decay = false,
        maximize = false,
    },
    kept = moments,
    numbers = function(o, step)
        local b1, b2, c = betas_of(o)
        local rate, correction, limit = o.lr / (1 - b1 ^ step), 1 - b2 ^ step, 2 / (1 - b2) - 1
        local length = limit - 2 * step * b2 ^ step / correction
        local rectified = length > 5
        local factor = rectified
            and ((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)) ^ 0.5 or 0
        c.adaptive, c.plain = rate * factor * correction ^ 0.5, rectified and 0 or rate
        return own_decay(c)
    end,
    rule = function(o, c, p, g, mean, square)
        g = decayed(o, c, p, g)
        blend(mean, c.beta1, g, c.rest1)
        blend(square, c.beta2, g * g, c.rest2)
        p:sub_(mean * (c.adaptive / (square:sqrt() + c.eps) + c.plain))
    end,
}

kinds.Rprop = {
    defaults = {lr = 1e-2, etas = {0.5, 1.2}, step_sizes = {1e-6, 50}, maximize = false},
    kept = function() return {"prev", "step_size"} end,
    initial = function(o, name) return name == "step_size" and o.lr or 0 end,
    numbers = function(o)
        return {
            shrink = o.etas[1], grow = o.etas[2], least = o.step_sizes[1], most = o.step_sizes[2], none = 0, same = 1,
        }
    end,
    rule = function(_, c, p, g, before, size)
        local sign = g * before
        local turned = sign:lt(0)
        local factor = flow.where(turned, c.shrink, flow.where(sign:gt(0), c.grow, c.same))
        size:copy_((size * factor):maximum(c.least):minimum(c.most))
        g = flow.where(turned, c.none, g)
        p:sub_(g:sign() * size)
        before:copy_(g)
    end,
}

kinds.ASGD = {
    defaults = {lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0, maximize = false},
    kept = function() return {"ax"} end,
    numbers = function(o, step)
        local eta = o.lr / (1 + o.lambd * o.lr * (step - 1)) ^ o.alpha
        local part = 1 / math.max(1, step - 1 - o.t0)
        return {eta = eta, shrink = 1 - o.lambd * eta, part = part, rest = 1 - part, weight_decay = o.weight_decay}
    end,
    rule = function(_, c, p, g, average)
        p:mul_(c.shrink):sub_(g * c.eta)
        blend(average, c.rest, p, c.part)
    end,
}

kinds.Lion = {
    defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, maximize = false},
    kept = function() return {"exp_avg"} end,
    numbers = function(o)
        local _, _, c = betas_of(o)
        c.lr = o.lr
        return own_decay(c)
    end,
    rule = function(_, c, p, g, mean)
        p:mul_(c.shrink):sub_((mean * c.beta1 + g * c.rest1):sign() * c.lr)
        blend(mean, c.beta2, g, c.rest2)
    end,
}

-- ---- rates by the norms of each parameter and its update ----

local function norm_of(x) return x:square():sum():sqrt() end

-- a / b, and 1 where either is 0.
local function ratio(c, a, b)
    return flow.where((a * b):gt(0), a / b, c._one)
end

kinds.LAMB = {
    defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-6, weight_decay = 0, maximize = false},
    kept = moments,
    numbers = function(o, step)
        local b1, b2, c = betas_of(o)
        c.lr, c.correction1, c.correction2 = o.lr, 1 - b1 ^ step, 1 - b2 ^ step
        return own_decay(c)
    end,
    rule = function(_, c, p, g, mean, square)
        blend(mean, c.beta1, g, c.rest1)
        blend(square, c.beta2, g * g, c.rest2)
        local update = mean / c.correction1 / ((square / c.correction2):sqrt() + c.eps) + p * c.decay
        p:sub_(update * (ratio(c, norm_of(p), norm_of(update)) * c.lr))
    end,
}

kinds.LARS = {
    defaults = {
        lr = 1e-2, momentum = 0.9, weight_decay = 0, trust_coefficient = 1e-3, eps = 1e-8, maximize = false,
    },
    kept = function() return {"momentum_buffer"} end,
    numbers = function(o)
        return {
            lr = o.lr, momentum = o.momentum, trust = o.trust_coefficient, eps = o.eps, decay = o.weight_decay,
        }
    end,
    rule = function(_, c, p, g, buffer)
        local size, slope = norm_of(p), norm_of(g)
        local trust = flow.where((size * slope):gt(0), size * c.trust / (slope + size * c.decay + c.eps), c._one)
        p:sub_(buffer:mul_(c.momentum):add_((g + p * c.decay) * trust) * c.lr)
    end,
}

---Defines them all: define(name, defaults, class).
function M.define_all(define)
    for _, name in ipairs(check.sorted_keys(kinds)) do
        local kind = kinds[name]
        define(name, kind.defaults, {
            _kept = kind.kept, _initial = kind.initial, _rule = kind.rule,
            _options = function(group, step) return variant(kind.defaults, group), kind.numbers(group, step) end,
        })
    end
end

return M
