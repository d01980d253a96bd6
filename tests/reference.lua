-- reference.lua -- the ops again, in plain Lua and doubles, as slow and as obvious as they can be: what the specs of
-- values compare with. An array is {shape = {2, 3}, ...} with its elements in row-major order, booleans as 0 and 1.
local flow = require "flow"

local M = {}

M.floats = {"float16", "bfloat16", "float32", "float64"}
M.integers = {"uint8", "int8", "int32", "int64"}
M.dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

M.lowest = {uint8 = 0, int8 = -128, int32 = -2147483648, int64 = math.mininteger}
M.highest = {uint8 = 255, int8 = 127, int32 = 2147483647, int64 = math.maxinteger}

-- Bits of the significand, exponent of the smallest normal number, largest number.
local formats = {
    float16 = {11, -14, 65504.0},
    bfloat16 = {8, -126, (2 - 2.0 ^ -7) * 2.0 ^ 127},
    float32 = {24, -126, (2 - 2.0 ^ -23) * 2.0 ^ 127},
    float64 = {53, -1022, (2 - 2.0 ^ -52) * 2.0 ^ 1023},
}

function M.is_float(dtype) return formats[dtype] ~= nil end
function M.largest(dtype) return formats[dtype][3] end
function M.epsilon(dtype) return 2.0 ^ (1 - formats[dtype][1]) end

-- A number >= 0 that depends on its arguments alone, all of them integers.
function M.hash(...)
    local h = 0x9e3779b97f4a7c15
    for i = 1, select("#", ...) do
        h = (h ~ select(i, ...)) * 0xbf58476d1ce4e5b9
        h = h ~ (h >> 29)
    end
    return h >> 2
end

local function is_finite(v) return v == v and v ~= math.huge and v ~= -math.huge end

-- Distance of neighbouring numbers of a float dtype around v.
function M.spacing(dtype, v)
    local bits, lowest = formats[dtype][1], formats[dtype][2]
    v = math.abs(v)
    local e = lowest
    if v >= 2.0 ^ lowest then
        e = math.floor(math.log(v, 2))
        if 2.0 ^ e > v then e = e - 1 elseif 2.0 ^ (e + 1) <= v then e = e + 1 end
    end
    return 2.0 ^ (e - bits + 1)
end

function M.round_even(v)
    local low = math.floor(v + 0.0)
    if not is_finite(v) or math.abs(v) >= 2.0 ^ 52 then return v end
    local rest = v - low
    if rest > 0.5 or (rest == 0.5 and low % 2 == 1) then low = low + 1 end
    return low + 0.0
end

-- v as an element of that dtype holds it: floats rounded to nearest even, integers wrapped.
function M.round(dtype, v)
    if dtype == "bool" then return v ~= 0 and 1 or 0 end
    if dtype == "int64" then return v end
    if M.lowest[dtype] then
        local low, high = M.lowest[dtype], M.highest[dtype]
        return (v - low) % (high - low + 1) + low
    end
    if not is_finite(v) or v == 0 or dtype == "float64" then return v * 1.0 end
    local unit = M.spacing(dtype, v)
    local rounded = M.round_even(v / unit) * unit
    if math.abs(rounded) > formats[dtype][3] then return rounded > 0 and math.huge or -math.huge end
    return rounded
end

---- arrays ----

function M.count(shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return n
end

function M.array(shape, f)
    local a = {shape = shape}
    for i = 1, M.count(shape) do a[i] = f(i - 1) end
    return a
end

-- The array of a tensor.
function M.of(t)
    local a = t:contiguous():reshape(-1):totable()
    if t.dtype == "bool" then for i = 1, #a do a[i] = a[i] and 1 or 0 end end
    a.shape = t.shape
    return a
end

-- The tensor of an array.
function M.tensor(a, dtype)
    local list = table.move(a, 1, #a, 1, {})
    if #list == 0 then return flow.zeros(a.shape, {dtype = dtype}) end
    if dtype == "bool" then for i = 1, #list do list[i] = list[i] ~= 0 end end
    return flow.tensor(list, {dtype = dtype}):reshape(a.shape)
end

-- Position of element `index` (from 0) of a row-major array, one number per axis, from 0.
function M.unravel(shape, index)
    local at = {}
    for i = #shape, 1, -1 do
        at[i] = index % shape[i]
        index = index // shape[i]
    end
    return at
end

function M.ravel(shape, at)
    local index = 0
    for i = 1, #shape do index = index * shape[i] + at[i] end
    return index
end

-- The element at a position, counted from 0.
function M.at(a, at) return a[M.ravel(a.shape, at) + 1] end

-- Shape that shapes broadcast to.
function M.broadcast_shape(...)
    local shape = {}
    for _, other in ipairs {...} do
        for back = 0, #other - 1 do
            local size = other[#other - back]
            shape[back + 1] = (shape[back + 1] or 1) ~= 1 and shape[back + 1] or size
        end
    end
    local turned = {}
    for i = 1, #shape do turned[i] = shape[#shape + 1 - i] end
    return turned
end

function M.broadcast(a, shape)
    local skipped = #shape - #a.shape
    return M.array(shape, function(index)
        local at, own = M.unravel(shape, index), {}
        for i = 1, #a.shape do own[i] = a.shape[i] == 1 and 0 or at[skipped + i] end
        return M.at(a, own)
    end)
end

function M.map(f, ...)
    local arrays, shapes = {...}, {}
    for i, a in ipairs(arrays) do shapes[i] = a.shape end
    local shape = M.broadcast_shape(table.unpack(shapes))
    for i, a in ipairs(arrays) do arrays[i] = M.broadcast(a, shape) end
    local x, y, z = arrays[1], arrays[2], arrays[3]
    return M.array(shape, function(i) return f(x[i + 1], y and y[i + 1], z and z[i + 1]) end)
end

function M.permute(a, axes)
    local shape = {}
    for i, axis in ipairs(axes) do shape[i] = a.shape[axis + 1] end
    return M.array(shape, function(index)
        local at, own = M.unravel(shape, index), {}
        for i, axis in ipairs(axes) do own[axis + 1] = at[i] end
        return M.at(a, own)
    end)
end

-- The element that comes to each position is the one at f(axis, position, size) along every named axis.
local function rearranged(a, axes, f)
    return M.array(a.shape, function(index)
        local at = M.unravel(a.shape, index)
        for i, axis in ipairs(axes) do
            axis = axis % #a.shape + 1
            at[axis] = f(i, at[axis], a.shape[axis])
        end
        return M.at(a, at)
    end)
end

function M.flip(a, axes) return rearranged(a, axes, function(_, at, size) return size - 1 - at end) end
function M.roll(a, shifts, axes) return rearranged(a, axes, function(i, at, size) return (at - shifts[i]) % size end) end

-- The elements of src, an array or a number, written into a, or added, along the axis at the places of an array of positions.
function M.scatter(a, axis, index, src, adds)
    local out = table.move(a, 1, #a, 1, {shape = a.shape})
    for i = 1, #index do
        local at = M.unravel(index.shape, i - 1)
        local value = type(src) == "table" and M.at(src, at) or src
        at[axis % math.max(#a.shape, 1) + 1] = index[i]
        local place = M.ravel(a.shape, at) + 1
        out[place] = adds and out[place] + value or value
    end
    return out
end

-- f(list of the elements along the axes) for every position of the other axes. axes: from 0, none: all.
function M.reduce(a, axes, keepdim, f)
    local reduced, shape, full = {}, {}, {}
    local ndim = #a.shape
    for _, axis in ipairs(axes or {}) do reduced[axis % math.max(ndim, 1) + 1] = true end
    for i = 1, ndim do
        if not axes then reduced[i] = true end
        if not reduced[i] then shape[#shape + 1] = a.shape[i] elseif keepdim then shape[#shape + 1] = 1 end
        full[i] = reduced[i] and 1 or a.shape[i]
    end
    local lists = {}
    for i = 1, M.count(full) do lists[i] = {} end
    for index = 0, M.count(a.shape) - 1 do
        local at = M.unravel(a.shape, index)
        for i = 1, ndim do if reduced[i] then at[i] = 0 end end
        local list = lists[M.ravel(full, at) + 1]
        list[#list + 1] = a[index + 1]
    end
    return M.array(shape, function(i) return f(lists[i + 1]) end)
end

-- f(list) -> list for every line along an axis.
function M.lines(a, axis, f)
    axis = axis % math.max(#a.shape, 1)
    local out = {shape = a.shape}
    local inner = 1
    for i = axis + 2, #a.shape do inner = inner * a.shape[i] end
    local n = a.shape[axis + 1] or 1
    local outer = n * inner == 0 and 0 or M.count(a.shape) // (n * inner)
    for o = 0, outer - 1 do
        for j = 0, inner - 1 do
            local list, first = {}, o * n * inner + j + 1
            for i = 0, n - 1 do list[i + 1] = a[first + i * inner] end
            list = f(list)
            for i = 0, n - 1 do out[first + i * inner] = list[i + 1] end
        end
    end
    return out
end

---- the comparison of arrays ----

local function describe(v) return math.type(v) == "integer" and tostring(v) or ("%.17g"):format(v) end

local function agree(got, want, allowed)
    if want ~= want then return got ~= got end
    if got == want then return got ~= 0 or allowed > 0 or math.type(got) == "integer" or 1 / got == 1 / want end
    return allowed > 0 and is_finite(got) and is_finite(want) and math.abs(got - want) <= allowed
end

-- Fails unless `got` is the tensor of that dtype with these elements. ulps: how many numbers of the dtype an element may be away
-- (0: the same bits, up to NaN); slack: a further tolerance, a number or a function of the element's position.
function M.check(got, want, dtype, ulps, what, slack)
    if got.dtype ~= dtype then error(("%s: dtype is %s, expected %s"):format(what, got.dtype, dtype), 2) end
    local shape, expected = table.concat(got.shape, ", "), table.concat(want.shape, ", ")
    if shape ~= expected then error(("%s: shape is [%s], expected [%s]"):format(what, shape, expected), 2) end
    local a = M.of(got)
    for i = 1, #want do
        local v = M.round(dtype, want[i])
        local allowed = formats[dtype] and (ulps or 0) > 0 and is_finite(v) and ulps * M.spacing(dtype, v) or 0
        if slack then allowed = allowed + (type(slack) == "function" and slack(i) or slack) end
        if not agree(a[i], v, allowed) then
            error(("%s: element %d of [%s] is %s, expected %s"):format(what, i - 1, shape, describe(a[i]), describe(v)), 2)
        end
    end
end

-- True if two tensors have the same bits, up to the payload of NaN.
function M.same_bits(a, b)
    if a.dtype ~= b.dtype or table.concat(a.shape, ",") ~= table.concat(b.shape, ",") then return false end
    if not formats[a.dtype] then return a:eq(b):all():item() end
    if not (a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))):all():item() then return false end
    local zero = a:eq(0)
    return flow.where(zero, a:reciprocal(), 0):eq(flow.where(zero, b:reciprocal(), 0)):all():item()
end

---- layouts ----

-- The same elements in other layouts: {name, tensor}.
function M.layouts(t)
    local list = {{"contiguous", t:contiguous()}}
    if t.ndim == 0 then return list end
    list[#list + 1] = {"with gaps", flow.stack({t, t}, -1):select(-1, 1)}
    list[#list + 1] = {"at an offset", flow.cat({flow.zeros_like(t):narrow(-1, 0, math.min(1, t:size(-1))), t}, -1):narrow(-1, math.min(1, t:size(-1)), t:size(-1))}
    if t.ndim > 1 then
        list[#list + 1] = {"transposed", t:transpose(0, -1):contiguous():transpose(0, -1)}
        list[#list + 1] = {"with rows turned", t:transpose(-1, -2):contiguous():transpose(-1, -2)}
    end
    return list
end

---- numbers ----

-- Repeatable pseudo-random numbers in [-1, 1), not ours.
function M.generator(seed)
    local state = seed * 2654435761 + 12345
    return function()
        state = (state * 6364136223846793005 + 1442695040888963407)
        return ((state >> 40) & 0xffffff) / 2 ^ 23 - 1
    end
end

local function erf_series(x)
    local term, sum, n = x, x, 0
    repeat
        n = n + 1
        term = -term * x * x / n
        sum = sum + term / (2 * n + 1)
    until math.abs(term) < 1e-18 * math.abs(sum) + 1e-300
    return sum * 1.1283791670955126
end

-- Continued fraction of erfc for x >= 2 (Abramowitz and Stegun 7.1.14).
local function erfc_fraction(x)
    local f = 0.0
    for k = 120, 1, -1 do f = k / 2 / (x + f) end
    return math.exp(-x * x) / (x + f) * 0.56418958354775629
end

function M.erf(x)
    if x ~= x or x == 0 then return x end
    local a = math.abs(x)
    local y = a > 30 and 1.0 or a < 2 and erf_series(a) or 1 - erfc_fraction(a)
    return x < 0 and -y or y
end

function M.erfc(x)
    if x ~= x then return x end
    if x < 2 then return 1 - M.erf(x) end
    return x > 30 and 0.0 or erfc_fraction(x)
end

function M.expm1(x)
    if math.abs(x) < 1e-5 then return x + x * x / 2 + x * x * x / 6 end
    if math.abs(x) > 0.5 then return math.exp(x) - 1 end
    local u = math.exp(x)
    return (u - 1) * x / math.log(u) -- Kahan
end

function M.log1p(x)
    local u = 1 + x
    if u == 1 then return x end
    if u == 0 then return -math.huge end
    if not is_finite(u) then return u end
    return math.log(u) - ((u - 1) - x) / u
end

function M.tanh(x)
    if x == 0 or x ~= x then return x end
    if math.abs(x) > 20 then return x > 0 and 1.0 or -1.0 end
    local e = M.expm1(2 * math.abs(x))
    local y = e / (e + 2)
    return x < 0 and -y or y
end

function M.sinh(x)
    if x == 0 or not is_finite(x) then return x end
    if math.abs(x) > 20 then return (x > 0 and 0.5 or -0.5) * math.exp(math.abs(x) / 2) * math.exp(math.abs(x) / 2) end
    local e = M.expm1(math.abs(x))
    return (e + e / (e + 1)) * (x > 0 and 0.5 or -0.5)
end

function M.cosh(x)
    if math.abs(x) > 20 then return 0.5 * math.exp(math.abs(x) / 2) * math.exp(math.abs(x) / 2) end
    return (math.exp(x) + math.exp(-x)) / 2
end

function M.sigmoid(x) return 1 / (1 + math.exp(-x)) end

function M.is_finite(v) return is_finite(v) end

-- The sum, with Neumaier's correction.
function M.sum(list)
    local total, lost = 0, 0.0
    for _, x in ipairs(list) do
        local t = total + x
        if math.type(t) == "float" and is_finite(t) then
            if math.abs(total) >= math.abs(x) then lost = lost + ((total - t) + x) else lost = lost + ((x - t) + total) end
        end
        total = t
    end
    return math.type(total) == "integer" and total or total + lost
end

-- The larger by `better`, NaN before all, the first of equals: value, position from 0.
function M.extreme(list, better)
    local best, at = list[1], 0
    for i = 2, #list do
        if best ~= best then break end
        if list[i] ~= list[i] or better(list[i], best) then best, at = list[i], i - 1 end
    end
    return best, at
end

function M.cumsum(list)
    local out, total = {}, 0
    for i, x in ipairs(list) do
        total = total + x
        out[i] = total
    end
    return out
end

function M.logsumexp(list)
    local top = M.extreme(list, function(a, b) return a > b end)
    if #list == 0 then return -math.huge end
    if not is_finite(top) then return top end
    local sum = 0.0
    for _, x in ipairs(list) do sum = sum + math.exp(x - top) end
    return math.log(sum) + top
end

function M.log_softmax(list)
    local lse, out = M.logsumexp(list), {}
    for i, x in ipairs(list) do out[i] = x - lse end
    return out
end

function M.softmax(list)
    local out = M.log_softmax(list)
    for i, x in ipairs(out) do out[i] = math.exp(x) end
    return out
end

-- [..., m, k] x [..., k, n], batch axes broadcast, axes added to lines and taken away again.
function M.matmul(a, b)
    local line_a, line_b = #a.shape == 1, #b.shape == 1
    if line_a then a = table.move(a, 1, #a, 1, {shape = {1, a.shape[1]}}) end
    if line_b then b = table.move(b, 1, #b, 1, {shape = {b.shape[1], 1}}) end
    local function batch(s) return table.move(s, 1, #s - 2, 1, {}) end
    local m, k, n = a.shape[#a.shape - 1], a.shape[#a.shape], b.shape[#b.shape]
    local outer = M.broadcast_shape(batch(a.shape), batch(b.shape))
    local function whole(x, rows, columns)
        local shape = table.move(outer, 1, #outer, 1, {})
        shape[#shape + 1], shape[#shape + 2] = rows, columns
        return M.broadcast(x, shape)
    end
    a, b = whole(a, m, k), whole(b, k, n)
    local shape = table.move(outer, 1, #outer, 1, {})
    if not line_a then shape[#shape + 1] = m end
    if not line_b then shape[#shape + 1] = n end
    return M.array(shape, function(index)
        local j, i, o = index % n, index // n % m, index // (n * m)
        local sum = 0
        for l = 0, k - 1 do sum = sum + a[(o * m + i) * k + l + 1] * b[(o * k + l) * n + j + 1] end
        return sum
    end)
end

return M
