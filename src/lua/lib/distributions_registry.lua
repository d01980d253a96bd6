-- distributions_registry.lua -- flow.distributions.biject_to and transform_to: from free real numbers to a constraint.

local check = require "flow.check"
local D = require "flow.distributions"

local C, T = D.constraints, D.transforms

local function identity() return T.ComposeTransform {} end

-- The transform to numbers between bounds.
local function between(c)
    local low, high = c.low, c.high
    if low and high then
        if low == 0 and high == 1 then return T.SigmoidTransform() end
        return T.ComposeTransform {T.SigmoidTransform(), T.AffineTransform(low, high - low)}
    end
    if low then return T.ComposeTransform {T.ExpTransform(), T.AffineTransform(low, 1)} end
    return T.ComposeTransform {T.ExpTransform(), T.AffineTransform(high, -1)}
end

-- Transforms of single constraints; those of simplices differ, since the more stable one cannot be inverted.
local known = {
    [C.real] = identity, [C.real_vector] = identity, [C.positive] = T.ExpTransform, [C.nonnegative] = T.ExpTransform,
    [C.unit_interval] = T.SigmoidTransform, [C.lower_cholesky] = T.LowerCholeskyTransform,
    [C.positive_definite] = T.PositiveDefiniteTransform, [C.positive_semidefinite] = T.PositiveDefiniteTransform,
    [C.corr_cholesky] = T.CorrCholeskyTransform,
}
local simplex = {biject_to = T.StickBreakingTransform, transform_to = T.SoftmaxTransform}

local function transform(who, c)
    if c == C.simplex then return simplex[who]() end
    local make = known[c]
    if make then return make() end
    if c.base then return T.IndependentTransform(transform(who, c.base), c.count) end
    if (c.low or c.high) and not c.is_discrete then return between(c) end
    check.fail("%s: there is no transform to values that must be %s", who, c.text)
end

local M = {}

---An invertible transform from real numbers to values that a constraint allows.
---@param constraint table of flow.distributions.constraints, or d.support
function M.biject_to(constraint) return transform("biject_to", constraint) end

---biject_to, with a transform that need not be invertible: of shares softmax.
---@param constraint table of flow.distributions.constraints, or d.support
function M.transform_to(constraint) return transform("transform_to", constraint) end

check.takes(M, {"biject_to(constraint: constraint)", "transform_to(constraint: constraint)"})

return M
