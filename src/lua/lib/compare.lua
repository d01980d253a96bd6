-- compare.lua -- are two tensors equal, or nearly so: flow.equal, flow.allclose, flow.testing.assert_close.

local flow = require "flow"
local check = require "flow.check"

local is_tensor = flow.is_tensor

local M = {}

-- The tolerances of a dtype, as PyTorch's torch.testing: {relative, absolute}.
local tolerances = {
    float64 = {1e-7, 1e-7}, float32 = {1.3e-6, 1e-5}, float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5},
}

local function same_shape(x, y)
    if x.ndim ~= y.ndim then return false end
    for i = 1, x.ndim do
        if x.shape[i] ~= y.shape[i] then return false end
    end
    return true
end

---True if x and y have the same shape and equal elements; the dtype may differ. NaN equals nothing.
---@param x any
---@param y any
---@return boolean
function M.equal(x, y)
    return same_shape(x, y) and x:eq(y):all():item()
end

-- A bool for each element: it is within atol + rtol * |y|. Infinities are near to themselves alone.
local function near(x, y, opts)
    x, y = x:to "float64", y:to "float64"
    local good = (x - y):abs():le(y:abs() * opts.rtol + opts.atol)
    good = good:logical_and(y:isinf():logical_not()):logical_or(x:eq(y))
    if opts.equal_nan then good = good:logical_or(x:isnan():logical_and(y:isnan())) end
    return good
end

---For each element: true if |x - y| is at most atol + rtol |y|. x and y are broadcast. equal_nan: NaN is near to NaN.
---@param x any
---@param y any
---@param opts {rtol: number, atol: number, equal_nan: boolean}?
---@return any
function M.isclose(x, y, opts)
    return flow.no_grad(function() return near(x, y, opts) end)
end

---True if every |x - y| is at most atol + rtol |y|; x and y are broadcast. equal_nan: NaN is near to NaN.
---@param x any
---@param y any
---@param opts {rtol: number, atol: number, equal_nan: boolean}?
---@return boolean
function M.allclose(x, y, opts)
    return flow.no_grad(function() return near(x, y, opts):all():item() end)
end

-- Coordinates of the element at a row-major position: "[1, 0]".
local function coordinates(shape, at)
    local list = {}
    for i = #shape, 1, -1 do list[i], at = at % shape[i], at // shape[i] end
    return "[" .. table.concat(list, ", ") .. "]"
end

local function kind(x)
    return x.is_global and ("global (%s)"):format(tostring(x.sbp)) or "local"
end

-- Describes the number of elements that differ, and the first of them; nil: none.
local function differences(actual, expected, opts)
    local bad = near(actual, expected, opts):logical_not()
    local count = bad:to("int64"):sum():item()
    if count == 0 then return nil end
    local at = bad:to("int64"):reshape(-1):argmax(0):item()
    local got, want = actual:reshape(-1)[at]:item(), expected:reshape(-1)[at]:item()
    return ("%d of %d elements differ; at %s it is %.9g, expected %.9g (rtol %g, atol %g)"):format(count,
        actual:numel(), coordinates(actual.shape, at), got, want, opts.rtol, opts.atol)
end

-- The reason why `actual` does not equal `expected`, or nil.
local function objection(actual, expected, opts)
    if check.shape(actual) ~= check.shape(expected) then
        return ("its shape is %s, expected %s"):format(check.shape(actual), check.shape(expected))
    elseif actual.dtype ~= expected.dtype then
        return ("its dtype is %s, expected %s"):format(actual.dtype, expected.dtype)
    elseif actual.is_global ~= expected.is_global then
        return ("it is %s, expected a %s one"):format(kind(actual), kind(expected))
    end
    return differences(actual, expected, opts)
end

local function as_tensor(value)
    return is_tensor(value) and value or flow.tensor(value, {dtype = "float64"})
end

---An error unless `actual` has the shape and dtype of `expected` and every element is within atol + rtol |expected|.
---Without tolerances those of the dtype. equal_nan: NaN is as expected where NaN is. what: its name in messages.
---@param actual any a tensor or a number
---@param expected any
---@param opts {rtol: number, atol: number, equal_nan: boolean, what: string}?
function M.assert_close(actual, expected, opts)
    local x, y = as_tensor(actual), as_tensor(expected)
    local tolerance = tolerances[y.dtype] or {0, 0}
    local o = {
        rtol = opts.rtol or not opts.atol and tolerance[1] or 0,
        atol = opts.atol or not opts.rtol and tolerance[2] or 0, equal_nan = opts.equal_nan,
    }
    local problem = flow.no_grad(objection, x, y, o)
    if problem then check.fail("%s: %s", opts.what, problem) end
end

check.takes(M, {
    "equal(x: tensor, y: tensor)",
    "allclose(x: tensor, y: tensor, {rtol: number >= 0 = 1e-5, atol: number >= 0 = 1e-8, equal_nan: boolean = false})",
    "isclose(x: tensor, y: tensor, {rtol: number >= 0 = 1e-5, atol: number >= 0 = 1e-8, equal_nan: boolean = false})",
    "assert_close(actual: tensor or number, expected: tensor or number, " ..
        "{rtol: number >= 0?, atol: number >= 0?, equal_nan: boolean = true, what: string = assert_close})",
})

return M
