-- special.lua -- flow.special: torch.special by its own names. Most are ops that flow has, some of them under this name
-- alone; orthogonal polynomials are recurrences of ops.

local flow = require "flow"
local check = require "flow.check"

local ops = flow._op

local MOST = 10000      -- steps of a recurrence or terms of a sum: each is an op
local function refuse_many(who, name, n)
    if n > MOST then check.fail("%s: %s must be at most %d, got %d", who, name, MOST, n) end
end

local M = {
    bessel_j0 = ops.j0, bessel_j1 = ops.j1, bessel_y0 = ops.y0, bessel_y1 = ops.y1,
    modified_bessel_i0 = ops.i0, modified_bessel_i1 = ops.i1, modified_bessel_k0 = ops.k0, modified_bessel_k1 = ops.k1,
    scaled_modified_bessel_k0 = ops.k0e, scaled_modified_bessel_k1 = ops.k1e, spherical_bessel_j0 = ops.spherical_j0,
    expit = ops.sigmoid, gammainc = ops.igamma, gammaincc = ops.igammac, gammaln = ops.lgamma, psi = ops.digamma,
    polygamma = flow.polygamma, round = flow.round,
}
for name in ([[airy_ai digamma entr erf erfc erfcx erfinv exp2 expm1 i0 i0e i1 i1e log1p log_ndtr log_softmax logit
    logsumexp ndtr ndtri sinc softmax xlog1py xlogy zeta]]):gmatch "%S+" do M[name] = ops[name] end

---Logarithm of the multivariate gamma function of p dimensions, which is defined for x > (p - 1) / 2;
---elsewhere the sum of logarithms that the formula has there.
---@param x table tensor
---@param p integer
function M.multigammaln(x, p)
    refuse_many("multigammaln", "p", p)
    local sum = ops.lgamma(x) + p * (p - 1) / 4 * math.log(math.pi)
    for j = 1, p - 1 do sum = sum + ops.lgamma(x - j / 2) end
    return sum
end

-- ---- orthogonal polynomials ----

-- The polynomial of degree n from the first two and a rule for the next one.
local function recurrence(first, rule)
    return function(x, n)
        if not x.dtype:find "float" then x = x:to(flow.get_default_dtype()) end
        local before, this = ops.ones_like(x), first(x)
        if n < 0 then return ops.zeros_like(x) end
        if n == 0 then return before end
        for k = 1, n - 1 do before, this = this, rule(x, k, this, before) end
        return this
    end
end

local function chebyshev(x, _, this, before) return x * 2 * this - before end

---Chebyshev's polynomial of the first kind, of degree n.
M.chebyshev_polynomial_t = recurrence(function(x) return x end, chebyshev)
---Chebyshev's polynomial of the second kind, of degree n.
M.chebyshev_polynomial_u = recurrence(function(x) return x * 2 end, chebyshev)
---Chebyshev's polynomial of the third kind, of degree n.
M.chebyshev_polynomial_v = recurrence(function(x) return x * 2 - 1 end, chebyshev)
---Chebyshev's polynomial of the fourth kind, of degree n.
M.chebyshev_polynomial_w = recurrence(function(x) return x * 2 + 1 end, chebyshev)
---Hermite's polynomial of physicists, of degree n.
M.hermite_polynomial_h = recurrence(function(x) return x * 2 end,
    function(x, k, this, before) return (x * this - before * k) * 2 end)
---Hermite's polynomial of probability theory, of degree n.
M.hermite_polynomial_he = recurrence(function(x) return x end,
    function(x, k, this, before) return x * this - before * k end)
---Laguerre's polynomial of degree n.
M.laguerre_polynomial_l = recurrence(function(x) return 1 - x end,
    function(x, k, this, before) return ((2 * k + 1 - x) * this - before * k) / (k + 1) end)
---Legendre's polynomial of degree n.
M.legendre_polynomial_p = recurrence(function(x) return x end,
    function(x, k, this, before) return (x * (2 * k + 1) * this - before * k) / (k + 1) end)

for kind in ("tuvw"):gmatch "." do
    local plain = M["chebyshev_polynomial_" .. kind]
    M["shifted_chebyshev_polynomial_" .. kind] = function(x, n) return plain(x * 2 - 1, n) end
end

local signatures = {"multigammaln(x: tensor, p: integer >= 1)"}
for name, polynomial in pairs(M) do
    if name:find "_polynomial_" then
        signatures[#signatures + 1] = name .. "(x: tensor, n: integer)"
        M[name] = function(x, n)
            refuse_many(name, "n", n)
            return polynomial(x, n)
        end
    end
end
check.takes(M, signatures)

return check.strict("special", M)
