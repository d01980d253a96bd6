-- optim_adafactor.lua -- flow.optim.Adafactor: averages of squares by rows and columns, so that little is kept.
--
-- Numbers of a step come in by ops of gradient descent, whose options a replay takes anew.

local flow = require "flow"
local base = require "flow.optim_base"
local check = require "flow.check"

local op = flow._op

local epsilons = {float64 = 2.0 ^ -52, float32 = 2.0 ^ -23, float16 = 2.0 ^ -10, bfloat16 = 2.0 ^ -7}

-- The share of the squares of this step, and the rate.
local function share(group, step) return {lr = step ^ group.beta2_decay} end
local function rate_of(group, step) return math.min(group.lr, 1 / math.sqrt(step)) end
local function rate(group, step) return {lr = rate_of(group, step), maximize = group.maximize} end

local function wide(x) return x.dtype:find "16" and x:to("float32") or x end
local function root_mean_square(x) return (x:square():sum() / math.max(x:numel(), 1)):sqrt() end

-- Moves the averages towards the new values.
local function blend(run, averages, values)
    local far = {}
    for i, average in ipairs(averages) do far[i] = average - values[i]:to(average.dtype) end
    run(op.sgd_plain_step, {averages, far}, share)
end

-- The average of squares: of a vector itself, of matrices the product of the averages of rows and of columns over the
-- mean of all (N. Shazeer and M. Stern, 2018).
local function variance_of(run, g, kept, eps)
    local square = g:square()
    if #g.shape < 2 then
        blend(run, {kept[1]}, {square})
        return kept[1]
    end
    local rows, columns = kept[1], kept[2]
    blend(run, {rows, columns}, {square:mean(-1, true), square:mean(-2, true)})
    return flow.matmul(wide(rows), wide(columns)) / wide(rows):mean(-2, true):clamp(eps)
end

local function compose(group, run, lists)
    for i, p in ipairs(lists[1]) do
        local g, eps = wide(lists[2][i]), (group.eps[1] or 0) > 0 and group.eps[1] or epsilons[p.dtype]
        local weight = p:detach()
        local size = root_mean_square(wide(weight)):clamp(group.eps[2])
        local variance = wide(variance_of(run, g, {lists[3][i], lists[4] and lists[4][i]}, eps))
        local update = g / variance:clamp(eps * eps):sqrt()
        update = update * (size / (root_mean_square(update) / group.d):clamp(1))
        if group.weight_decay ~= 0 then
            run(op.sgd_plain_step, {{p}, {flow.zeros_like(weight)}}, function(now)
                return {lr = now.lr, weight_decay = now.weight_decay}
            end)
        end
        run(op.sgd_plain_step, {{p}, {update:to(p.dtype)}}, rate)
    end
end

-- The SBP of a tensor whose partial sums have been added up.
local function summed(t)
    local sbp = {}
    for i = 1, #t.sbp do
        local word = tostring(t.sbp[i])
        sbp[i] = word:find "^P" and "B" or word
    end
    return sbp
end

return {Adafactor = base.define("Adafactor", {
    defaults = {
        lr = 1e-2, beta2_decay = -0.8, eps = {0, 1e-3}, d = 1.0, weight_decay = 0, maximize = false,
    },
    kept = function(_, p) return #p.shape > 1 and {"row_var", "col_var"} or {"variance"} end,
    make = function(p, name)
        if name == "variance" then return flow.zeros_like(p) end
        local mean = p:mean(name == "row_var" and -1 or -2, true)
        return flow.zeros_like(mean.is_global and mean:to_global{sbp = summed(mean)} or mean)
    end,
    options = function(group, step) return op.sgd_plain_step, rate(group, step) end,
    compose = compose,
    ways = function(group) return group.eps[1], group.eps[2], group.d, group.weight_decay ~= 0 end,
    check = function(group)
        check.number("Adafactor", "eps", group.eps[1] or 0, 0, math.huge)
        check.number("Adafactor", "eps", group.eps[2], 0, math.huge)
        check.number("Adafactor", "d", group.d, 1, math.huge)
        check.number("Adafactor", "beta2_decay", group.beta2_decay, -math.huge, 0)
    end,
})}
