-- fft.lua -- flow.fft: Fourier transforms under the names of torch.fft.
--
-- A complex tensor has a trailing axis of size 2, real and imaginary parts, which no function counts among its axes: of
-- a spectrum [batch, n, 2], axis -1 has size n. Every transform is a chain of three ops along one axis each.

local flow = require "flow"
local check = require "flow.check"

local ops = flow._op

local M = {}

-- ---- arguments ----

-- x in a float dtype.
local function floats(x)
    return x.dtype:find "float" and x or x:to(flow.get_default_dtype())
end

-- The number of signal axes of x, which holds complex numbers or not.
local function axes_in(who, x, complex)
    local ndim = x.ndim - (complex and 1 or 0)
    if complex and (x.ndim < 2 or x:size(-1) ~= 2) then
        check.fail("fft.%s: takes complex numbers [..., n, 2], got %s; for a real signal write flow.fft.rfft(x), or "
            .. "flow.fft.complex(x)", who, check.shape(x))
    end
    if ndim < 1 then check.fail("fft.%s: takes a tensor with at least one axis, got %s", who, check.shape(x)) end
    return ndim
end

local function positive_axis(who, axis, ndim)
    if math.type(axis) ~= "integer" or axis < -ndim or axis >= ndim then
        check.fail("fft.%s: axis must be a whole number in [%d, %d], got %s", who, -ndim, ndim - 1, check.got(axis))
    end
    return axis < 0 and axis + ndim or axis
end

local function check_length(who, n)
    if math.type(n) ~= "integer" or n < 1 then
        check.fail("fft.%s: the length of a transform must be at least 1, got %s", who, check.got(n))
    end
    return n
end

-- The factor of a transform of length n; `inverse`: of an inverse transform, which "backward" divides.
local function scale_of(norm, n, inverse)
    if norm == "ortho" then return 1 / math.sqrt(n) end
    return (norm == "forward") ~= inverse and 1 / n or 1
end

-- Lengths and axes of a transform of several axes: {{axis =, n = or nil}, ...}.
local function axes_of(who, ndim, s, axes)
    if s and axes and #s ~= #axes then
        check.fail("fft.%s: s has %d lengths for %d axes", who, #s, #axes)
    end
    local list, seen = {}, {}
    local count = axes and #axes or s and #s or ndim
    if count > ndim then check.fail("fft.%s: %d axes are transformed of a signal that has %d", who, count, ndim) end
    for i = 1, count do
        local axis = positive_axis(who, axes and axes[i] or ndim - count + i - 1, ndim)
        if seen[axis] then check.fail("fft.%s: axis %d is given twice", who, axis) end
        seen[axis] = true
        local n = s and s[i] or nil
        if n == -1 then n = nil end
        list[i] = {axis = axis, n = n and check_length(who, n)}
    end
    return list
end

-- ---- one axis ----

local function along(who, x, n, axis, norm, inverse)
    x = floats(x)
    local ndim = axes_in(who, x, true)
    axis = positive_axis(who, axis, ndim)
    n = check_length(who, n or x:size(axis))
    return ops.fft_complex(x, axis, n, n, inverse, scale_of(norm, n, inverse))
end

-- Real to half a spectrum; `sign`: the exponent's sign is plus.
local function to_half(who, x, n, axis, norm, sign)
    x = floats(x)
    axis = positive_axis(who, axis, axes_in(who, x, false))
    n = check_length(who, n or x:size(axis))
    return ops.fft_to_half(x, axis, n, n // 2 + 1, sign, scale_of(norm, n, sign), 1)
end

local function from_half(who, x, n, axis, norm, sign)
    x = floats(x)
    axis = positive_axis(who, axis, axes_in(who, x, true))
    n = check_length(who, n or 2 * (x:size(axis) - 1))
    return ops.fft_from_half(x, axis, n, n, sign, scale_of(norm, n, sign), 1)
end

---The discrete Fourier transform of complex numbers [..., n, 2] along an axis, cut or filled up with zeros to length n.
---@param x table tensor
---@param n integer?
---@param axis integer?
---@param norm string? "backward": no factor; "forward": 1/n; "ortho": 1/sqrt(n)
---@return table
function M.fft(x, n, axis, norm) return along("fft", x, n, axis, norm, false) end

---The inverse of fft.
---@param x table tensor
---@param n integer?
---@param axis integer?
---@param norm string? "backward": 1/n; "forward": no factor; "ortho": 1/sqrt(n)
---@return table
function M.ifft(x, n, axis, norm) return along("ifft", x, n, axis, norm, true) end

---The first half of the spectrum of a real signal: n/2 + 1 complex numbers [..., n/2 + 1, 2] for n reals.
---@param x table tensor
---@param n integer?
---@param axis integer?
---@param norm string?
---@return table
function M.rfft(x, n, axis, norm) return to_half("rfft", x, n, axis, norm, false) end

---The inverse of rfft: n reals, 2 (m - 1) of them if n is left out.
---@param x table tensor [..., m, 2]
---@param n integer?
---@param axis integer?
---@param norm string?
---@return table
function M.irfft(x, n, axis, norm) return from_half("irfft", x, n, axis, norm, true) end

---The real spectrum of a signal that is Hermitian, of which the first half is given.
---@param x table tensor [..., m, 2]
---@param n integer?
---@param axis integer?
---@param norm string?
---@return table
function M.hfft(x, n, axis, norm) return from_half("hfft", x, n, axis, norm, false) end

---The inverse of hfft: the first half of a Hermitian signal.
---@param x table tensor
---@param n integer?
---@param axis integer?
---@param norm string?
---@return table
function M.ihfft(x, n, axis, norm) return to_half("ihfft", x, n, axis, norm, true) end

-- ---- several axes ----

local function along_all(who, x, list, count, norm, inverse)
    for i = 1, count do
        local n = list[i].n or check_length(who, x:size(list[i].axis))
        x = ops.fft_complex(x, list[i].axis, n, n, inverse, scale_of(norm, n, inverse))
    end
    return x
end

local function complex_axes(who, x, s, axes, norm, inverse)
    x = floats(x)
    local list = axes_of(who, axes_in(who, x, true), s, axes)
    return along_all(who, x, list, #list, norm, inverse)
end

-- The last axis is transformed by `to_half` or `from_half`, the others by complex transforms.
local function real_axes(who, x, s, axes, norm, half, sign)
    x = floats(x)
    local back = half == from_half
    local list = axes_of(who, axes_in(who, x, back), s, axes)
    local last = list[#list]
    if not last then check.fail("fft.%s: at least one axis must be transformed", who) end
    if back then x = along_all(who, x, list, #list - 1, norm, sign) end
    x = half(who, x, last.n, last.axis, norm, sign)
    return back and x or along_all(who, x, list, #list - 1, norm, sign)
end

---fft along the axes of a list, all if it is left out; s: their lengths.
---@param x table tensor
---@param s table?
---@param axes table?
---@param norm string?
---@return table
function M.fftn(x, s, axes, norm) return complex_axes("fftn", x, s, axes, norm, false) end

---The inverse of fftn.
---@param x table tensor
---@param s table?
---@param axes table?
---@param norm string?
---@return table
function M.ifftn(x, s, axes, norm) return complex_axes("ifftn", x, s, axes, norm, true) end

---The spectrum of a real signal along several axes, of the last one its first half.
---@param x table tensor
---@param s table?
---@param axes table?
---@param norm string?
---@return table
function M.rfftn(x, s, axes, norm) return real_axes("rfftn", x, s, axes, norm, to_half, false) end

---The inverse of rfftn.
---@param x table tensor
---@param s table? lengths of the result
---@param axes table?
---@param norm string?
---@return table
function M.irfftn(x, s, axes, norm) return real_axes("irfftn", x, s, axes, norm, from_half, true) end

---The real spectrum of a signal that is Hermitian along the last axis, of which the first half is given.
---@param x table tensor
---@param s table?
---@param axes table?
---@param norm string?
---@return table
function M.hfftn(x, s, axes, norm) return real_axes("hfftn", x, s, axes, norm, from_half, false) end

---The inverse of hfftn.
---@param x table tensor
---@param s table?
---@param axes table?
---@param norm string?
---@return table
function M.ihfftn(x, s, axes, norm) return real_axes("ihfftn", x, s, axes, norm, to_half, true) end

-- The same along two axes, the last ones if they are left out.
for name, kind in pairs {
    fft = {complex_axes, false}, ifft = {complex_axes, true}, rfft = {real_axes, to_half, false},
    irfft = {real_axes, from_half, true}, hfft = {real_axes, from_half, false}, ihfft = {real_axes, to_half, true},
} do
    M[name .. "2"] = function(x, s, axes, norm)
        return kind[1](name .. "2", x, s, axes or {-2, -1}, norm, table.unpack(kind, 2))
    end
end

-- ---- frequencies ----

---The frequencies of fft's n numbers in cycles per unit, for samples that are d apart: 0, 1/(nd), ..., negative ones
---last.
---@param n integer
---@param d number?
---@param opts table options of a new tensor
---@return table
function M.fftfreq(n, d, opts)
    local positive = flow.arange(0, (n - 1) // 2 + 1, opts)
    return flow.cat({positive, flow.arange(-(n // 2), 0, opts)}, 0) / (n * d)
end

---The frequencies of rfft's n/2 + 1 numbers.
---@param n integer
---@param d number?
---@param opts table options of a new tensor
---@return table
function M.rfftfreq(n, d, opts)
    return flow.arange(0, n // 2 + 1, opts) / (n * d)
end

local function shifted(who, x, axes, complex, sign)
    local ndim = complex and axes_in(who, x, true) or x.ndim
    local list, shifts, places = axes_of(who, ndim, nil, math.type(axes) and {axes} or axes), {}, {}
    for i, entry in ipairs(list) do
        local half = x:size(entry.axis) // 2
        places[i], shifts[i] = entry.axis, sign > 0 and half or x:size(entry.axis) - half
    end
    return #list == 0 and x or x:roll(shifts, places)
end

---Moves the zero frequency to the middle of the axes (a number or a list, all if left out).
---@param x table tensor
---@param axes any
---@param complex boolean? x is a spectrum [..., 2]
---@return table
function M.fftshift(x, axes, complex) return shifted("fftshift", x, axes, complex, 1) end

---Undoes fftshift.
---@param x table tensor
---@param axes any
---@param complex boolean? x is a spectrum [..., 2]
---@return table
function M.ifftshift(x, axes, complex) return shifted("ifftshift", x, axes, complex, -1) end

-- ---- complex numbers ----

---Complex numbers [..., 2] from real parts and imaginary parts, zeros if left out.
---@param re table tensor
---@param im table? tensor
---@return table
function M.complex(re, im)
    re = floats(re)
    return flow.stack({re, im or flow.zeros_like(re)}, -1)
end

local function parts(who, x)
    axes_in(who, x:unsqueeze(0), true)
    return x:select(-1, 0), x:select(-1, 1)
end

---The real parts of complex numbers.
---@param x table tensor [..., 2]
---@return table
function M.real(x) return (parts("real", x)) end

---The imaginary parts of complex numbers.
---@param x table tensor [..., 2]
---@return table
function M.imag(x) return select(2, parts("imag", x)) end

---The absolute values of complex numbers; the gradient at 0 is 0.
---@param x table tensor [..., 2]
---@return table
function M.abs(x)
    parts("abs", x)
    return x:norm(2, -1)
end

---The angles of complex numbers.
---@param x table tensor [..., 2]
---@return table
function M.angle(x)
    local re, im = parts("angle", x)
    return im:atan2(re)
end

---The conjugates of complex numbers.
---@param x table tensor [..., 2]
---@return table
function M.conj(x)
    local re, im = parts("conj", x)
    return flow.stack({re, -im}, -1)
end

---The products of complex numbers.
---@param x table tensor [..., 2]
---@param y table tensor [..., 2]
---@return table
function M.mul(x, y)
    local a, b = parts("mul", x)
    local c, d = parts("mul", y)
    return flow.stack({a * c - b * d, a * d + b * c}, -1)
end

local NEW = "{dtype: string?, device: string?, placement: placement?, sbp: sbp?, requires_grad: boolean = false})"
local signatures = {
    "fft.fftfreq(n: integer >= 1, d: number = 1, " .. NEW,
    "fft.rfftfreq(n: integer >= 1, d: number = 1, " .. NEW,
    "fft.fftshift(x: tensor, axes: integer or list?, complex: boolean = false)",
    "fft.ifftshift(x: tensor, axes: integer or list?, complex: boolean = false)",
    "fft.complex(re: tensor, im: tensor?)", "fft.real(x: tensor)", "fft.imag(x: tensor)", "fft.abs(x: tensor)",
    "fft.angle(x: tensor)", "fft.conj(x: tensor)", "fft.mul(x: tensor, y: tensor)",
}
for _, name in ipairs {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"} do
    for form, rest in pairs {
        [""] = "n: integer?, axis: integer = -1", n = "s: list?, axes: list?", ["2"] = "s: list?, axes: list?",
    } do
        signatures[#signatures + 1] = ("fft.%s(x: tensor, %s, norm: backward|forward|ortho = backward)"):format(
            name .. form, rest)
    end
end
check.takes(M, signatures)

return check.strict("fft", M)
