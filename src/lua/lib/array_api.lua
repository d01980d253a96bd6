-- array_api.lua -- functions that the array API standard has and PyTorch has not.

local flow = require "flow"
local check = require "flow.check"

local M = {}

---x itself.
function M.positive(x) return x end
---x itself: there are no complex tensors.
function M.conj(x) return x end
---x itself: there are no complex tensors.
function M.real(x) return x end

-- Sums or products up to each position of an axis; `initial` comes first with include_initial.
local function cumulative(who, x, opts, op, initial)
    local axis = opts.axis
    if axis == nil then
        if x.ndim ~= 1 then check.fail("%s: write axis =, x has %d axes", who, x.ndim) end
        axis = 0
    end
    if opts.dtype then x = x:to(opts.dtype) end
    local result = flow._op[op](x, axis)
    if not opts.include_initial then return result end
    return flow.cat({flow._op.full_like(result:narrow(axis, 0, 1), initial), result}, axis)
end

---Sums up to each position of an axis; include_initial: with a 0 before them.
function M.cumulative_sum(x, opts) return cumulative("cumulative_sum", x, opts, "cumsum", 0) end
---Products up to each position of an axis; include_initial: with a 1 before them.
function M.cumulative_prod(x, opts) return cumulative("cumulative_prod", x, opts, "cumprod", 1) end

---The values of x without repetition, in order.
function M.unique_values(x) return (flow.unique(x)) end
---The values of x without repetition, and for each element of x the number of its value.
function M.unique_inverse(x) return flow.unique(x, {return_inverse = true}) end
---The values of x without repetition, and how often each occurs.
function M.unique_counts(x) return flow.unique(x, {return_counts = true}) end

---The values of x without repetition, the first position of each in x, the number of its value for each element of x,
---and how often each occurs.
function M.unique_all(x)
    local values, inverse, counts = flow.unique(x, {return_inverse = true, return_counts = true})
    local at = flow._op.cumsum(flow._op.ones_like(inverse:reshape(-1)), 0) - 1
    local first = flow._op.zeros_like(counts):scatter_reduce(0, inverse:reshape(-1), at, "amin", false)
    return values, first, inverse, counts
end

check.takes(M, {
    "positive(x: tensor)", "conj(x: tensor)", "real(x: tensor)",
    "cumulative_sum(x: tensor, {axis: integer?, dtype: string?, include_initial: boolean = false})",
    "cumulative_prod(x: tensor, {axis: integer?, dtype: string?, include_initial: boolean = false})",
    "unique_values(x: tensor)", "unique_inverse(x: tensor)", "unique_counts(x: tensor)", "unique_all(x: tensor)",
})

return M
