-- torch_names.lua -- second names that PyTorch has for functions and methods of flow, and functions that few lines of
-- others make. They are loaded at the first use of one (bind/flow.c, bind/later.c).

local flow = require "flow"
local check = require "flow.check"

local ops, methods = flow._op, flow._methods

local M = {}

-- ---- second names ----

local SAME = {
    absolute = "abs", arccos = "acos", arccosh = "acosh", arcsin = "asin", arcsinh = "asinh", arctan = "atan",
    arctan2 = "atan2", arctanh = "atanh", fix = "trunc", sgn = "sign", trapz = "trapezoid", constant_pad_nd = "pad",
}
for name, ours in pairs(SAME) do
    M[name] = flow[ours]
    M[name .. "_"] = methods[ours .. "_"]
end

M.mvlgamma = flow.special.multigammaln
M.pinverse = flow.linalg.pinv
M.split_with_sizes = methods.split
M.ndimension = methods.dim
M.tolist = methods.totable

---x itself: there are no complex tensors.
function M.conj_physical(x) return x end
---True everywhere: there are no complex tensors.
function M.isreal(x) return ops.ones_like(x):to "bool" end

---The product of matrices, in the order of the fewest multiplications.
function M.chain_matmul(...) return flow.linalg.multi_dot {...} end

-- ---- in place ----

-- f writes what it makes of x into x. Its gradient needs what x was.
local function into_itself(f)
    return function(x, ...)
        local before = x.requires_grad and flow.is_grad_enabled() and x:clone() or x
        return x:copy_(f(before, ...))
    end
end

-- Of ops that have no form of their own that writes into x.
for name in ([[addbmm addmm addmv addr baddbmm cumprod cumsum float_power ldexp mvlgamma polygamma tril
    triu]]):gmatch "%S+" do
    M[name .. "_"] = into_itself(M[name] or methods[name])
    check.takes(M, {name .. "_(x: tensor, ...: any)"})
end

-- Positions along an axis, with an axis of size 1 for each other one.
local function positions_along(x, axis)
    local shape = {}
    for i = 1, x.ndim do shape[i] = i == axis + 1 and -1 or 1 end
    return flow.arange(x:size(axis), flow.nn.like(x)):reshape(shape)
end

-- Those along axis 0, that begin anew one row after the last column.
local function first_positions(x, axis, wrap)
    local rows = positions_along(x, 0)
    return wrap and x.ndim == 2 and rows:remainder(x:size(axis) + 1) or rows
end

---Writes a value on the diagonal of x, in place; wrap: of a tall matrix it begins anew below.
---@param x table tensor
---@param value number|boolean
---@param wrap boolean?
function M.fill_diagonal_(x, value, wrap)
    if x.ndim < 2 then check.fail("fill_diagonal_: x must have at least 2 axes, got %s", check.shape(x)) end
    local at
    for axis = 1, x.ndim - 1 do
        if x.ndim > 2 and x:size(axis) ~= x:size(0) then
            check.fail("fill_diagonal_: all axes must have one size, got %s", check.shape(x))
        end
        local equal = first_positions(x, axis, wrap):eq(positions_along(x, axis))
        at = at and at:logical_and(equal) or equal
    end
    if x.dtype == "bool" and type(value) == "number" then value = value ~= 0 end
    return x:masked_fill_(at, value)
end

-- ---- bounds ----

---x, where it is not smaller than `min`, a number or a tensor; elsewhere that.
function M.clamp_min(x, min) return ops.clamp(x, min) end

---x, where it is not larger than `max`, a number or a tensor; elsewhere that.
function M.clamp_max(x, max) return ops.clamp(x, {max = max}) end

M.clamp_min_, M.clamp_max_ = into_itself(M.clamp_min), into_itself(M.clamp_max)

-- ---- numbers ----

---The m and e of x = m 2^e with 0.5 <= |m| < 1; e as int32.
function M.frexp(x) return ops.frexp_mantissa(x), ops.frexp_exponent(x):to "int32" end

---The norm of x - y.
---@param x table tensor
---@param y table tensor
---@param p number?
function M.dist(x, y, p) return (x - y):norm(p) end

---`steps` numbers from base^start to base^stop, whose exponents are equally far apart.
---@param start number
---@param stop number
---@param steps integer
---@param base number?
---@param opts table options of a new tensor
function M.logspace(start, stop, steps, base, opts)
    local where = {dtype = "float64", device = opts.device, placement = opts.placement, sbp = opts.sbp}
    local result = ops.pow(base, flow.linspace(start, stop, steps, where)):to(opts.dtype or flow.get_default_dtype())
    return opts.requires_grad and result:requires_grad_() or result
end

---The powers of the elements of a vector, a row each: x^(N-1), ..., x, 1; `increasing`: the other way round.
---@param x table tensor
---@param N integer? default: the number of elements
---@param increasing boolean?
function M.vander(x, N, increasing)
    if x.ndim ~= 1 then check.fail("vander: x must be a vector, got %s", check.shape(x)) end
    N = N or x:size(0)
    if N == 0 then return x:unsqueeze(1):narrow(1, 0, 0) end
    local one = ops.ones_like(x):unsqueeze(1)
    if N == 1 then return one end
    local powers = flow.cat({one, flow.cumprod(x:unsqueeze(1):expand(x:size(0), N - 1), 1)}, 1)
    return increasing and powers or powers:flip(1)
end

---The distances of the rows of a matrix from those after them: of 0 from 1, 2, ..., of 1 from 2, 3, ...
---@param x table tensor
---@param p number?
function M.pdist(x, p)
    if x.ndim ~= 2 then check.fail("pdist: x must be a matrix, got %s", check.shape(x)) end
    local n = x:size(0)
    local order = flow.arange(n, flow.nn.like(x))
    local pairs_ = order:unsqueeze(1):lt(order):nonzero()
    local first, second = pairs_:select(1, 0), pairs_:select(1, 1)
    return (x:index_select(0, first) - x:index_select(0, second)):norm(p, 1)
end

---The coordinates of positions in a tensor of a shape that is numbered row by row: one tensor for each axis.
---@param indices table tensor
---@param shape integer|integer[]
function M.unravel_index(indices, shape)
    local list = type(shape) == "number" and {shape} or shape
    if not indices.dtype:find "int" then
        check.fail("unravel_index: indices must be integers, got %s", indices.dtype)
    end
    local out, rest = {}, indices
    for axis = #list, 1, -1 do
        out[axis] = rest:remainder(check.integer("unravel_index", "a size", list[axis], 1))
        rest = rest:floor_divide(list[axis])
    end
    return table.unpack(out)
end

-- ---- histograms ----

-- The edges of `bins` bins of equal width, where x is: over its values, or from low to high.
local function edges_of(who, x, bins, low, high)
    if low == nil then
        low, high = 0.0, 1.0
        if x:numel() > 0 then low, high = x:min():item(), x:max():item() end
    elseif type(low) ~= "number" or type(high) ~= "number" or low > high or low ~= low or high ~= high then
        check.fail("%s: range must be {low, high}, got {%s, %s}", who, tostring(low), tostring(high))
    end
    if low == high then low, high = low - 0.5, high + 0.5 end
    return flow.linspace(low, high, bins + 1, flow.nn.like(x, {dtype = x.dtype}))
end

local function check_edges(who, x, edges)
    if edges.ndim ~= 1 or edges:size(0) < 2 or edges.dtype ~= x.dtype then
        check.fail("%s: bins must be the edges, a vector of %s, got %s", who, x.dtype, check.got(edges))
    end
    return edges
end

-- The bin of each element of a vector, and whether there is one; the last bin contains its upper edge.
local function bins_at(x, edges)
    local count = edges:size(0) - 1
    local at = flow.searchsorted(edges, x:contiguous(), {right = true}) - 1
    at = flow.where(x:eq(edges:select(0, count)), count - 1, at)
    return at:clamp(0, count - 1), at:ge(0):logical_and(at:lt(count))
end

-- Sums of the weights (1 without them) of the points at each of `count` places.
local function weights_at(who, x, count, places, inside, weight, shape)
    weight = weight and weight:flatten():to(x.dtype) or flow.ones({places:numel()}, flow.nn.like(x, {dtype = x.dtype}))
    if weight:numel() ~= places:numel() then
        check.fail("%s: weight must have the shape %s, got %s", who, shape, check.shape(weight))
    end
    local zeros = flow.zeros({count}, flow.nn.like(x, {dtype = x.dtype}))
    return zeros:scatter_add(0, places, flow.where(inside, weight, 0))
end

---The number of elements in each bin, and the edges of the bins; the last one contains its upper edge.
---@param x table tensor
---@param bins any their number, or their edges in order
---@param opts {range: number[], weight: any, density: boolean} weight: of each element; density: as shares by width
function M.histogram(x, bins, opts)
    if not x.dtype:find "float" then check.fail("histogram: x must be of floats, got %s", x.dtype) end
    local edges
    if check.is_tensor(bins) then
        edges = check_edges("histogram", x, bins)
        if opts.range then check.fail("histogram: a range is for a number of bins") end
    else
        local low, high
        if opts.range then low, high = opts.range[1] or false, opts.range[2] end
        edges = edges_of("histogram", x, check.integer("histogram", "bins", bins, 1), low, high)
    end
    local places, inside = bins_at(x:flatten(), edges)
    local hist = weights_at("histogram", x, edges:size(0) - 1, places, inside, opts.weight, "of x, " .. check.shape(x))
    if opts.density then hist = hist / (edges:diff() * hist:sum()) end
    return hist, edges
end

-- The edges of each of n axes: numbers of bins, or the edges themselves.
local function edges_of_axes(who, columns, bins, range)
    local n, edges = #columns, {}
    if math.type(bins) == "integer" then
        local same = {}
        for i = 1, n do same[i] = bins end
        bins = same
    elseif not check.is("list", bins) then
        check.fail("%s: bins must be a number, or a list of numbers or edges, got %s", who, check.got(bins))
    end
    if #bins ~= n then check.fail("%s: bins must have an entry for each of %d axes, got %d", who, n, #bins) end
    if range and #range ~= 2 * n then
        check.fail("%s: range must have two numbers for each of %d axes, got %d", who, n, #range)
    end
    for i, x in ipairs(columns) do
        if check.is_tensor(bins[i]) then
            if range then check.fail("%s: a range is for numbers of bins", who) end
            edges[i] = check_edges(who, x, bins[i])
        else
            local count = check.integer(who, "an entry of bins", bins[i], 1)
            if range then edges[i] = edges_of(who, x, count, range[2 * i - 1] or false, range[2 * i])
            else edges[i] = edges_of(who, x, count) end
        end
    end
    return edges
end

---The number of points x [..., n] in each bin of n axes, and a list of the edges of each axis; the last bin of an
---axis contains its upper edge.
---@param x table tensor
---@param bins any their number, a list of one number for each axis, or a list of the edges of each
---@param opts {range: number[], weight: any, density: boolean} range: low and high of each axis, in one list; weight:
---of each point; density: as shares by volume
function M.histogramdd(x, bins, opts)
    local who = "histogramdd"
    if not x.dtype:find "float" then check.fail("%s: x must be of floats, got %s", who, x.dtype) end
    if x.ndim < 2 then check.fail("%s: x must be points [..., n], got %s", who, check.shape(x)) end
    local columns, shape, points = {}, {}, x:reshape(-1, x:size(-1))
    for i = 1, x:size(-1) do columns[i] = points:select(1, i - 1) end
    if #columns == 0 then check.fail("%s: points must have a coordinate, x is %s", who, check.shape(x)) end
    local edges = edges_of_axes(who, columns, bins, opts.range)
    local places, inside, count = nil, nil, 1
    for i, column in ipairs(columns) do
        local at, there = bins_at(column, edges[i])
        shape[i] = edges[i]:size(0) - 1
        places = places and places * shape[i] + at or at
        inside = inside and inside:logical_and(there) or there
        count = count * shape[i]
    end
    local of_points = "[" .. table.concat(x.shape, ", ", 1, x.ndim - 1) .. "]"
    local hist = weights_at(who, x, count, places, inside, opts.weight, of_points):reshape(shape)
    if not opts.density then return hist, edges end
    hist = hist / hist:sum()
    for i, list in ipairs(edges) do
        local beside = {}
        for k = 1, #edges do beside[k] = k == i and -1 or 1 end
        hist = hist / list:diff():reshape(beside)
    end
    return hist, edges
end

-- ---- numerical gradients ----

-- a f[i - 1] + b f[i] + c f[i + 1], with factors that are numbers or columns along the axis.
local function three_points(x, axis, n, a, b, c)
    return x:narrow(axis, 0, n) * a + x:narrow(axis, 1, n) * b + x:narrow(axis, 2, n) * c
end

-- Steps between neighbours along the axis: a number, or a tensor that broadcasts along it.
local function steps_of(x, axis, spacing)
    if not check.is_tensor(spacing) or spacing.ndim == 0 then
        return function() return spacing end
    end
    if spacing.ndim ~= 1 or spacing:size(0) ~= x:size(axis) then
        check.fail("gradient: coordinates of axis %d must be a vector of %d, got %s", axis, x:size(axis),
            check.shape(spacing))
    end
    local shape = {}
    for i = 1, x.ndim do shape[i] = i == axis + 1 and -1 or 1 end
    local steps = spacing:diff()
    return function(start, length) return steps:narrow(0, start, length):reshape(shape) end
end

-- The slope at one end: from = 0 or n - 1, of two points or three.
local function slope_at_end(x, axis, step, at_start, edge_order)
    local n = x:size(axis)
    local function f(i) return x:narrow(axis, at_start and i or n - 1 - i, 1) end
    local function h(i) return step(at_start and i or n - 2 - i, 1) end
    local sign = at_start and 1 or -1
    if edge_order == 1 then return (f(1) - f(0)) / h(0) * sign end
    local one, two = h(0), h(1)
    local both = one + two
    return (f(0) * (-(one + both) / (one * both)) + f(1) * (both / (one * two)) - f(2) * (one / (two * both))) * sign
end

local function gradient_along(x, axis, spacing, edge_order)
    local n = x:size(axis)
    if n < edge_order + 1 then
        check.fail("gradient: axis %d must have at least %d elements, x is %s", axis, edge_order + 1, check.shape(x))
    end
    local step = steps_of(x, axis, spacing)
    local parts = {slope_at_end(x, axis, step, true, edge_order)}
    if n > 2 and type(spacing) == "number" then     -- the middle one has no part in it
        parts[2] = (x:narrow(axis, 2, n - 2) - x:narrow(axis, 0, n - 2)) / (2 * spacing)
    elseif n > 2 then
        local one, two = step(0, n - 2), step(1, n - 2)
        local both = one + two
        parts[2] = three_points(x, axis, n - 2, -two / (one * both), (two - one) / (one * two), one / (two * both))
    end
    parts[#parts + 1] = slope_at_end(x, axis, step, false, edge_order)
    return flow.cat(parts, axis)
end

---Derivatives of values on a grid along axes, by differences of neighbours: one result for each axis.
---@param x table tensor
---@param opts {spacing: any, axis: any, edge_order: integer} spacing: a step, or a list of steps or coordinates of
---the axes; edge_order: 2 takes three points at the ends
function M.gradient(x, opts)
    local axes, spacing = opts.axis, opts.spacing
    if axes == nil then
        axes = {}
        for i = 1, x.ndim do axes[i] = i - 1 end
    elseif type(axes) ~= "table" then axes = {axes} end
    local is_list = check.is("list", spacing)
    if is_list and #spacing ~= #axes then
        check.fail("gradient: spacing has %d entries for %d axes", #spacing, #axes)
    end
    if not x.dtype:find "float" then x = x:to(flow.get_default_dtype()) end
    local out = {}
    for i, axis in ipairs(axes) do
        if math.type(axis) ~= "integer" or axis < -x.ndim or axis >= x.ndim then
            check.fail("gradient: axis %s is out of range for %s", tostring(axis), check.shape(x))
        end
        out[i] = gradient_along(x, axis % x.ndim, is_list and spacing[i] or not is_list and spacing or 1,
            opts.edge_order)
    end
    return table.unpack(out)
end

-- ---- tensors and their bytes ----

local SIZES = {float64 = 8, int64 = 8, float32 = 4, int32 = 4, float16 = 2, bfloat16 = 2}

---The bytes of one element.
function M.element_size(x) return SIZES[x.dtype] or 1 end
---True of dtypes with negative numbers.
function M.is_signed(x) return x.dtype ~= "uint8" and x.dtype ~= "bool" end
---True of the same shape.
function M.is_same_size(x, y) return tostring(x.shape) == tostring(y.shape) end

---The only element as true or false: true if it is not 0.
function M.is_nonzero(x)
    if x:numel() ~= 1 then check.fail("is_nonzero: x must have one element, got %s", check.shape(x)) end
    return x:ne(0):item()
end

---x summed over the axes along which a tensor of this shape would be broadcast to it.
---@param x table tensor
---@param size integer[]
function M.sum_to_size(x, size)
    for _, n in ipairs(size) do
        if math.type(n) ~= "integer" then
            check.fail("sum_to_size: a size must be a whole number, got %s", check.got(n))
        end
    end
    local extra, axes = x.ndim - #size, {}
    for i = 1, x.ndim do
        local want = size[i - extra]
        if i <= extra or want == 1 and x.shape[i] ~= 1 then axes[#axes + 1] = i - 1
        elseif want ~= x.shape[i] then axes = nil break end
    end
    if not axes or extra < 0 then
        check.fail("sum_to_size: [%s] cannot be broadcast to %s", table.concat(size, ", "), check.shape(x))
    end
    if #axes == 0 then return x end
    return x:sum(axes, true):reshape(size)
end

-- ---- the default generator ----

---The state of the default generator of random numbers.
function M.get_rng_state() return flow.default_generator():state() end
---Gives the default generator a state that get_rng_state returned.
function M.set_rng_state(state) flow.default_generator():load_state(state) end

check.takes(M, {
    "conj_physical(x: tensor)", "isreal(x: tensor)", "frexp(x: tensor)", "chain_matmul(...: tensor)",
    "fill_diagonal_(x: tensor, value: number or boolean, wrap: boolean = false)",
    "clamp_min(x: tensor, min: tensor or number)", "clamp_max(x: tensor, max: tensor or number)",
    "clamp_min_(x: tensor, min: tensor or number)", "clamp_max_(x: tensor, max: tensor or number)",
    "dist(x: tensor, y: tensor, p: number = 2)",
    [[logspace(start: number, stop: number, steps: integer >= 0, base: number = 10,
        {dtype: string?, device: string?, placement: placement?, sbp: sbp?, requires_grad: boolean?})]],
    "vander(x: tensor, N: integer >= 0?, increasing: boolean = false)",
    "pdist(x: weight, p: number >= 0 = 2)", "unravel_index(indices: tensor, shape: integer or list)",
    "histogram(x: tensor, bins: value, {range: list?, weight: tensor?, density: boolean = false})",
    "histogramdd(x: tensor, bins: value, {range: list?, weight: tensor?, density: boolean = false})",
    "gradient(x: tensor, {spacing: any, axis: integer or list?, edge_order: integer 1..2 = 1})",
    "element_size(x: tensor)", "is_signed(x: tensor)", "is_same_size(x: tensor, y: tensor)", "is_nonzero(x: tensor)",
    "sum_to_size(x: tensor, size: list)", "get_rng_state()", "set_rng_state(state: any)",
})

return M
