-- optim_lbfgs.lua -- flow.optim.LBFGS: the limited-memory BFGS method, and line search by the strong Wolfe conditions.
--
-- All parameters are one vector. Each step calls its closure several times, and reads losses and slopes as numbers.

local flow = require "flow"
local base = require "flow.optim_base"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"

local function dot(a, b) return (a * b):sum():item() end
local function largest(x) return x:abs():max():item() end

-- ---- line search ----

-- The minimum of a cubic with these values and slopes at two points, within bounds.
local function interpolate(a, b, lowest, highest)
    lowest, highest = lowest or math.min(a.t, b.t), highest or math.max(a.t, b.t)
    local d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    local square = d1 * d1 - a.slope * b.slope
    if square < 0 or square ~= square then return (lowest + highest) / 2 end
    local d2 = math.sqrt(square)
    local least
    if a.t <= b.t then least = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    else least = a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2)) end
    return math.min(math.max(least, lowest), highest)
end

local ENOUGH, FLAT = 1e-4, 0.9    -- the constants of the two conditions

-- Two points between which a step that fulfils the conditions lies, or one that does.
local function bracket_of(try, first, t, count)
    local before, now, tries = first, try(t), 0
    while tries < count do
        if now.loss > first.loss + ENOUGH * now.t * first.slope or tries > 1 and now.loss >= before.loss then
            return {before, now}, tries
        elseif math.abs(now.slope) <= -FLAT * first.slope then return {now}, tries
        elseif now.slope >= 0 then return {before, now}, tries end
        local next_t = interpolate(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10)
        before, now, tries = now, try(next_t), tries + 1
    end
    return {first, now}, tries
end

-- A point within the bracket, away from its ends when the last one was close to them too.
local function point_within(bracket, close)
    local low, high = math.min(bracket[1].t, bracket[2].t), math.max(bracket[1].t, bracket[2].t)
    local t, margin = interpolate(bracket[1], bracket[2]), 0.1 * (high - low)
    if math.min(high - t, t - low) >= margin then return t, false end
    if not close and t < high and t > low then return t, true end
    return math.abs(t - high) < math.abs(t - low) and high - margin or low + margin, false
end

-- The best point that was found. try(t) gives {t, loss, gradient, slope}.
local function search(try, first, t, length, tolerance, count)
    local bracket, tries = bracket_of(try, first, t, count)
    local done, close = #bracket == 1, false
    local low, high = 1, 2
    if #bracket == 2 and bracket[1].loss > bracket[2].loss then low, high = 2, 1 end
    while not done and tries < count and math.abs(bracket[2].t - bracket[1].t) * length >= tolerance do
        t, close = point_within(bracket, close)
        local now = try(t)
        tries = tries + 1
        if now.loss > first.loss + ENOUGH * t * first.slope or now.loss >= bracket[low].loss then
            bracket[high] = now
            low, high = 1, 2
            if bracket[1].loss > bracket[2].loss then low, high = 2, 1 end
        else
            if math.abs(now.slope) <= -FLAT * first.slope then done = true
            elseif now.slope * (bracket[high].t - bracket[low].t) >= 0 then bracket[high] = bracket[low] end
            bracket[low] = now
        end
    end
    return bracket[low]
end

-- ---- the vector of all parameters ----

-- The gradients of all parameters in one line, 0 where there is none; to be descended.
local function gradient_of(group)
    local parts = {}
    for i, p in ipairs(group.params) do
        parts[i] = (p.grad and p.grad:detach() or flow.zeros_like(p:detach())):reshape(-1)
    end
    local flat = flow.cat(parts, 0)
    return group.maximize and -flat or flat
end

-- Moves the parameters t times along a direction.
local function add(group, t, direction)
    local at = 0
    for _, p in ipairs(group.params) do
        local count = p:numel()
        p:detach():add_(direction:narrow(0, at, count):reshape(p.shape) * t)
        at = at + count
    end
end

local function copies_of(group)
    local list = {}
    for i, p in ipairs(group.params) do list[i] = p:detach():clone() end
    return list
end

local function put_back(group, copies)
    for i, p in ipairs(group.params) do p:detach():copy_(copies[i]) end
end

-- ---- directions ----

-- Takes the change of the gradient along the last step into the history, if it curves upwards.
local function remember(past, gradient, history_size)
    local y, s = gradient - past.prev_flat_grad, past.d * past.t
    local curve = dot(y, s)
    if curve <= 1e-10 then return end
    if #past.old_dirs == history_size then
        for _, list in ipairs {past.old_dirs, past.old_stps, past.ro} do table.remove(list, 1) end
    end
    table.insert(past.old_dirs, y)
    table.insert(past.old_stps, s)
    table.insert(past.ro, 1 / curve)
    past.H_diag = curve / dot(y, y)
end

-- The product of the inverse Hessian, as the last steps show it, and -gradient: the two-loop recursion of J. Nocedal
-- (1980).
local function direction_of(past, gradient)
    local q, alpha = -gradient, {}
    for i = #past.old_dirs, 1, -1 do
        alpha[i] = dot(past.old_stps[i], q) * past.ro[i]
        q = q - past.old_dirs[i] * alpha[i]
    end
    q = q * past.H_diag
    for i = 1, #past.old_dirs do
        q = q + past.old_stps[i] * (alpha[i] - dot(past.old_dirs[i], q) * past.ro[i])
    end
    return q
end

-- ---- steps ----

local function new_past()
    return {func_evals = 0, n_iter = 0, old_dirs = {}, old_stps = {}, ro = {}, H_diag = 1}
end

-- A call of the closure: the loss as it is, and as a number that is minimized.
local function evaluate(group, closure)
    local _ <close> = flow.enable_grad()
    local loss = closure()
    local value = flow.is_tensor(loss) and loss:item() or loss
    if type(value) ~= "number" then check.fail("LBFGS: the closure must return the loss, got %s", check.got(loss)) end
    return loss, group.maximize and -value or value
end

-- One iteration's move along past.d: the loss and the gradient there, and how often the closure was called.
local function move(group, past, closure, loss, gradient, slope, left, last)
    if not group.line_search_fn then
        add(group, past.t, past.d)
        if last then return loss, gradient, 0 end
        local _, value = evaluate(group, closure)
        return value, gradient_of(group), 1
    end
    local calls, copies = 0, copies_of(group)
    local found = search(function(t)
        add(group, t, past.d)
        local _, value = evaluate(group, closure)
        local there = gradient_of(group)
        put_back(group, copies)
        calls = calls + 1
        return {t = t, loss = value, gradient = there, slope = dot(there, past.d)}
    end, {t = 0, loss = loss, gradient = gradient, slope = slope}, past.t, largest(past.d), group.tolerance_change,
        left)
    past.t = found.t
    add(group, past.t, past.d)
    return found.loss, found.gradient, calls
end

-- Iterations until one of the limits is met.
local function iterate(group, past, closure, loss, gradient)
    local calls, most = 1, group.max_eval or group.max_iter * 5 // 4
    for i = 1, group.max_iter do
        past.n_iter = past.n_iter + 1
        if past.n_iter > 1 then remember(past, gradient, group.history_size) end
        past.d = direction_of(past, gradient)
        past.prev_flat_grad = gradient
        local before = loss
        past.t = past.n_iter == 1 and math.min(1, 1 / gradient:abs():sum():item()) * group.lr or group.lr
        local slope = dot(gradient, past.d)
        if slope > -group.tolerance_change then return end
        local more
        loss, gradient, more = move(group, past, closure, loss, gradient, slope, most - calls, i == group.max_iter)
        calls, past.func_evals = calls + more, past.func_evals + more
        if calls >= most or largest(gradient) <= group.tolerance_grad
            or largest(past.d) * math.abs(past.t) <= group.tolerance_change
            or math.abs(loss - before) < group.tolerance_change then return end
    end
end

local methods = {}

---Minimizes for up to max_iter iterations; the closure computes loss and gradients, and returns the loss. Returns the
---loss before them.
---@param closure function
function methods:step(closure)
    if type(closure) ~= "function" then
        check.fail("LBFGS:step: takes a function that computes the loss and the gradients, got %s", check.got(closure))
    end
    base.begin_step(self)
    local _ <close> = flow.no_grad()
    local group = self.groups[1]
    local past = rawget(self, "_past") or new_past()
    rawset(self, "_past", past)
    local loss, value = evaluate(group, closure)
    past.func_evals = past.func_evals + 1
    local gradient = gradient_of(group)
    if largest(gradient) > group.tolerance_grad then iterate(group, past, closure, value, gradient) end
    base.end_step(self)
    return loss
end

-- Fields of the past that are saved: tensors, lists, numbers.
local kept = {"d", "t", "H_diag", "prev_flat_grad", "old_dirs", "old_stps", "ro", "func_evals", "n_iter"}

-- The options, and the history of the iterations.
function methods:_saved()
    local saved, past = {params = {}}, rawget(self, "_past") or new_past()
    for key in pairs(self.defaults) do saved[key] = self.groups[1][key] end
    for i in ipairs(self.groups[1].params) do saved.params[i] = i end
    local state = {}
    for _, key in ipairs(kept) do
        local value = past[key]
        state[key] = type(value) == "table" and not flow.is_tensor(value) and {table.unpack(value)} or value
    end
    return {groups = {saved}, state = {state}}
end

local function copy_of(value, like)
    if type(value) == "number" then return value end
    local result = flow.zeros_like(like)
    checkpoint.copy(result, value)
    return result
end

function methods:_restore(state)
    local who, group = "LBFGS:load_state_dict", self.groups[1]
    local entry = type(state.state) == "table" and state.state[1]
    if type(state.groups) ~= "table" or type(entry) ~= "table" or math.type(entry.n_iter) ~= "integer" then
        check.fail("%s: takes a table from state_dict", who)
    end
    local saved = state.groups[1]
    if type(saved) ~= "table" or type(saved.params) ~= "table" or #saved.params ~= #group.params then
        check.fail("%s: the state does not have the optimizer's %d parameters", who, #group.params)
    end
    local _ <close> = flow.no_grad()
    local parts = {}
    for i, p in ipairs(group.params) do parts[i] = p:detach():reshape(-1) end
    local like, past = flow.cat(parts, 0), new_past()
    for _, key in ipairs(kept) do
        local value = entry[key]
        if type(value) == "table" and not flow.is_tensor(value) and not checkpoint.is_stored(value) then
            for i, item in ipairs(value) do past[key][i] = copy_of(item, like) end
        elseif value ~= nil then past[key] = copy_of(value, like) end
    end
    rawset(self, "_past", past)
    for key in pairs(self.defaults) do group[key] = saved[key] end
end

function methods.add_param_group()
    check.fail("add_param_group: LBFGS has one group of parameters, which are one vector")
end

return {LBFGS = base.define("LBFGS", {
    defaults = {
        lr = 1, max_iter = 20, max_eval = check.none, tolerance_grad = 1e-7, tolerance_change = 1e-9,
        history_size = 100, line_search_fn = check.none, maximize = false,
    },
    kept = function() return {} end,
    check = function(group, groups)
        if #groups > 0 then check.fail("LBFGS: it has one group of parameters, which are one vector") end
        check.integer("LBFGS", "max_iter", group.max_iter, 1)
        check.integer("LBFGS", "history_size", group.history_size, 1)
        if group.max_eval then check.integer("LBFGS", "max_eval", group.max_eval, 1) end
        if group.line_search_fn and group.line_search_fn ~= "strong_wolfe" then
            check.fail("LBFGS: line_search_fn must be 'strong_wolfe' or nil, got %s", check.got(group.line_search_fn))
        end
    end,
    methods = methods,
})}
