-- shaping.lua -- functions of shapes that take or give several tensors: joined, cut and broadcast ones, grids and their
-- positions, rows one after the other.

local flow = require "flow"
local check = require "flow.check"

local ops = flow._op

local M = {}

-- The tensors of a call f(x, y) or f{x, y}.
local function tensors_of(who, ...)
    local list, count = {...}, select("#", ...)
    if count == 1 and check.is("list", list[1]) then list, count = list[1], #list[1] end
    local out = {}
    for i = 1, count do
        if not flow.is_tensor(list[i]) then
            check.fail("%s: entry %d must be a tensor, got %s", who, i, check.got(list[i]))
        end
        out[i] = list[i]
    end
    if #out == 0 then check.fail("%s: needs at least one tensor", who) end
    return out
end

local function map(list, f)
    local out = {}
    for i, x in ipairs(list) do out[i] = f(x) end
    return out
end

-- An axis counted from the front.
local function axis_of(who, x, axis)
    if axis < -x.ndim or axis >= x.ndim then
        check.fail("%s: axis %d is out of range for %s", who, axis, check.shape(x))
    end
    return axis % x.ndim
end

-- ---- more axes ----

local function at_least_1d(x) return x.ndim == 0 and x:reshape(1) or x end
local function at_least_2d(x) return x.ndim < 2 and at_least_1d(x):unsqueeze(0) or x end
local function at_least_3d(x) return x.ndim < 3 and at_least_2d(x):unsqueeze(-1) or x end

-- One result for each of the tensors.
local function each(who, f)
    return function(...) return table.unpack(map(tensors_of(who, ...), f)) end
end

---Each tensor with at least one axis.
M.atleast_1d = each("atleast_1d", at_least_1d)
---Each tensor with at least two axes: [n] becomes [1, n].
M.atleast_2d = each("atleast_2d", at_least_2d)
---Each tensor with at least three axes: [n] becomes [1, n, 1], [m, n] becomes [m, n, 1].
M.atleast_3d = each("atleast_3d", at_least_3d)

-- ---- joining ----

---Tensors joined along axis 1, vectors and numbers along axis 0.
function M.hstack(tensors)
    local list = map(tensors_of("hstack", tensors), at_least_1d)
    return flow.cat(list, list[1].ndim == 1 and 0 or 1)
end

---Tensors joined along axis 0; a vector counts as a row.
function M.vstack(tensors) return flow.cat(map(tensors_of("vstack", tensors), at_least_2d), 0) end

---Tensors joined along axis 2, as at least three axes.
function M.dstack(tensors) return flow.cat(map(tensors_of("dstack", tensors), at_least_3d), 2) end

---Tensors joined along axis 1; a vector counts as a column.
function M.column_stack(tensors)
    return flow.cat(map(tensors_of("column_stack", tensors), function(x)
        return x.ndim < 2 and x:reshape(x:numel(), 1) or x
    end), 1)
end

---A matrix with these matrices one after the other along its diagonal, zeros elsewhere; vectors count as rows.
function M.block_diag(...)
    local list, columns, start, rows = tensors_of("block_diag", ...), 0, 0, {}
    for i, x in ipairs(list) do
        if x.ndim > 2 then check.fail("block_diag: entry %d must have two axes at most, got %s", i, check.shape(x)) end
        list[i] = at_least_2d(x)
        columns = columns + list[i]:size(1)
    end
    for i, x in ipairs(list) do
        rows[i] = ops.narrow_backward(x, 1, start, columns, 1)
        start = start + x:size(1)
    end
    return flow.cat(rows, 0)
end

-- ---- cutting ----

---The parts of x along an axis without that axis, as so many results.
function M.unbind(x, axis)
    local list = {}
    axis = axis_of("unbind", x, axis)
    for i = 0, x:size(axis) - 1 do list[i + 1] = x:select(axis, i) end
    return table.unpack(list)
end

-- Pieces that end where the next one of `stops` begins; positions as those of slices.
local function cut_at(x, axis, stops)
    local list, size, start = {}, x:size(axis), 0
    for i = 1, #stops + 1 do
        local stop = stops[i] or size
        if stop < 0 then stop = stop + size end
        stop = math.max(0, math.min(stop, size))
        list[i] = x:narrow(axis, math.min(start, size), math.max(stop - start, 0))
        start = stop
    end
    return table.unpack(list)
end

-- The positions of a list, nil when one is no whole number.
local function positions_of(list)
    if #list == 0 and next(list) ~= nil then return nil end
    local stops = {}
    for i = 1, #list do
        stops[i] = math.type(list[i]) and math.tointeger(list[i])
        if not stops[i] then return nil end
    end
    return stops
end

local function cut(who, x, into, axis)
    axis = axis_of(who, x, axis)
    local given = into
    if flow.is_tensor(into) and into.ndim < 2 then into = into:totable() end
    local positions = check.is("list", into) and positions_of(into)
    if positions then return cut_at(x, axis, positions) end
    if math.type(into) ~= "integer" or into < 1 then
        check.fail("%s: takes a number of pieces from 1 on or a list of positions, got %s", who, check.got(given))
    end
    local size, stops, at = x:size(axis), {}, 0
    for i = 1, into - 1 do
        at = at + size // into + (i <= size % into and 1 or 0)
        stops[i] = at
    end
    return cut_at(x, axis, stops)
end

---x cut along an axis into so many pieces of about equal size, or before these positions; a result for each piece.
function M.tensor_split(x, into, axis) return cut("tensor_split", x, into, axis) end

-- hsplit and its kin, whose pieces are equal.
local function split_evenly(who, x, into, axis, least)
    if x.ndim < least then check.fail("%s: needs at least %d axes, x is %s", who, least, check.shape(x)) end
    if math.type(into) == "integer" and into > 0 and x:size(axis) % into ~= 0 then
        check.fail("%s: axis %d of %s cannot be cut into %d equal pieces", who, axis, check.shape(x), into)
    end
    return cut(who, x, into, axis)
end

---x cut along axis 1 (a vector along axis 0) into so many equal pieces, or before these positions.
function M.hsplit(x, into) return split_evenly("hsplit", x, into, x.ndim == 1 and 0 or 1, 1) end
---x cut along axis 0 into so many equal pieces, or before these positions.
function M.vsplit(x, into) return split_evenly("vsplit", x, into, 0, 2) end
---x cut along axis 2 into so many equal pieces, or before these positions.
function M.dsplit(x, into) return split_evenly("dsplit", x, into, 2, 3) end

---An iterator over the parts of x along axis 0: `for row in x:iter() do`.
function M.iter(x)
    local i, n = -1, #x
    return function()
        i = i + 1
        if i < n then return x[i] end
    end
end

---`for i, row in pairs(x) do`: positions from 0 and the parts of x along axis 0.
function M.pairs(x)
    local n = #x
    return function(_, i)
        i = i + 1
        if i < n then return i, x[i] end
    end, x, -1
end

---The positions of true elements, one tensor for each axis: as where(condition).
function M.positions(condition)
    return M.unbind((condition.ndim == 0 and condition:reshape(1) or condition):nonzero(), 1)
end

-- nonzero with as_tuple.
function M.nonzero(x, as_tuple)
    if as_tuple then return M.positions(x) end
    return ops.nonzero(x)
end

-- ---- broadcasting ----

-- The shape that two shapes broadcast to, or nil.
local function broadcast_two(a, b)
    local out, n = {}, math.max(#a, #b)
    for i = 1, n do
        local x, y = a[#a - n + i] or 1, b[#b - n + i] or 1
        if x ~= y and x ~= 1 and y ~= 1 then return nil end
        out[i] = x == 1 and y or x
    end
    return out
end

local function sizes_of(shape)
    if math.type(shape) == "integer" then return {shape} end
    if not check.is("list", shape) then
        check.fail("broadcast_shapes: takes lists of sizes, got %s", check.got(shape))
    end
    local sizes = {}
    for i = 1, #shape do sizes[i] = check.integer("broadcast_shapes", "a size", shape[i], 0) end
    return sizes
end

---The shape that tensors of these shapes broadcast to: broadcast_shapes({2, 1}, {3}) is {2, 3}.
function M.broadcast_shapes(...)
    local out = {}
    for _, shape in ipairs {...} do
        local sizes = sizes_of(shape)
        local both = broadcast_two(out, sizes)
        if not both then
            check.fail("broadcast_shapes: shapes [%s] and [%s] do not broadcast", table.concat(out, ", "),
                table.concat(sizes, ", "))
        end
        out = both
    end
    return out
end

---Each tensor expanded to the shape that all of them broadcast to.
function M.broadcast_tensors(...)
    local list, shapes = tensors_of("broadcast_tensors", ...), {}
    for i, x in ipairs(list) do shapes[i] = x.shape end
    local shape = M.broadcast_shapes(table.unpack(shapes))
    return table.unpack(map(list, function(x) return x:expand(shape) end))
end

-- ---- grids ----

local function grid(who, list, swap)
    local shape, n = {}, #list
    for i, x in ipairs(list) do
        if x.ndim > 1 then check.fail("%s: entry %d must be a vector, got %s", who, i, check.shape(x)) end
        shape[i] = x:numel()
    end
    if swap and n > 1 then shape[1], shape[2] = shape[2], shape[1] end
    local out = {}
    for i, x in ipairs(list) do
        local own, place = {}, swap and i <= 2 and n > 1 and 3 - i or i
        for k = 1, n do own[k] = k == place and x:numel() or 1 end
        out[i] = x:reshape(own):expand(shape)
    end
    return out
end

---For vectors x, y, ... the tensors of their elements over the grid of all combinations: indexing "ij" (axis 0 runs
---over x) or "xy" (axis 1 does).
function M.meshgrid(...)
    local args, indexing = table.pack(...), "ij"
    local last = args[args.n]
    if check.is("list", last) and last.indexing ~= nil then
        indexing, args.n = last.indexing, #last > 0 and args.n or args.n - 1
    elseif type(last) == "string" then indexing, args.n = last, args.n - 1 end
    if indexing ~= "ij" and indexing ~= "xy" then
        check.fail('meshgrid: indexing must be "ij" or "xy", got %s', check.got(indexing))
    end
    return table.unpack(grid("meshgrid", tensors_of("meshgrid", table.unpack(args, 1, args.n)), indexing == "xy"))
end

---All combinations of one element of each vector, as rows; of one vector the vector.
function M.cartesian_prod(...)
    local list = tensors_of("cartesian_prod", ...)
    for i, x in ipairs(list) do
        if x.ndim ~= 1 then check.fail("cartesian_prod: entry %d must be a vector, got %s", i, check.shape(x)) end
    end
    if #list == 1 then return list[1] end
    return flow.stack(map(grid("cartesian_prod", list), function(x) return x:reshape(-1) end), 1)
end

local function like(x)
    if not x.is_global then return {dtype = "int64", device = x.device} end
    local sbp = {}
    for i = 1, #x.placement.hierarchy do sbp[i] = "B" end
    return {dtype = "int64", placement = x.placement, sbp = sbp}
end

---All combinations of r elements of a vector, in the order of their positions, as rows.
function M.combinations(x, r, with_replacement)
    if x.ndim ~= 1 then check.fail("combinations: x must be a vector, got %s", check.shape(x)) end
    if r == 0 then return x:narrow(0, 0, 0) end
    local positions = {}
    for i = 1, r do positions[i] = flow.arange(x:numel(), like(x)) end
    positions = grid("combinations", positions)
    local keep
    for i = 2, r do
        local before, this = positions[i - 1], positions[i]
        local fits = with_replacement and before:le(this) or not with_replacement and before:lt(this)
        keep = keep and keep:logical_and(fits) or fits
    end
    return flow.stack(map(positions, function(at)
        return x:index_select(0, keep and at:masked_select(keep) or at:reshape(-1))
    end), r == 1 and 1 or -1)
end

local function triangle_positions(rows, columns, offset, opts, keep)
    local ones = flow.ones(rows, columns, {device = opts.device})
    return ones[keep](ones, offset):nonzero():t():contiguous():to(opts.dtype)
end

---Rows and columns of the lower triangle of a matrix, row by row: [2, n].
function M.tril_indices(rows, columns, offset, opts)
    return triangle_positions(rows, columns, offset, opts, "tril")
end

---Rows and columns of the upper triangle of a matrix, row by row: [2, n].
function M.triu_indices(rows, columns, offset, opts)
    return triangle_positions(rows, columns, offset, opts, "triu")
end


---For class numbers [...] the tensor [..., classes] with 1 at each number and 0 elsewhere; -1: as many as are needed.
function M.one_hot(x, classes)
    if x.dtype == "bool" or x.dtype:find "float" then
        check.fail("one_hot: x must have an integer dtype, got %s", check.got(x))
    end
    if classes == -1 then
        if x:numel() == 0 then check.fail("one_hot: write the number of classes, x is empty") end
        classes = x:max():item() + 1
    end
    local sizes = {table.unpack(x.shape)}
    sizes[#sizes + 1] = classes
    local options = like(x)
    return flow.zeros(sizes, options):scatter(-1, x:unsqueeze(-1):to "int64", 1)
end

check.takes(M, {
    "atleast_1d(...: any)", "atleast_2d(...: any)", "atleast_3d(...: any)", "block_diag(...: any)",
    "broadcast_shapes(...: any)", "broadcast_tensors(...: any)", "meshgrid(...: any)", "cartesian_prod(...: any)",
    "hstack(tensors: list)", "vstack(tensors: list)", "dstack(tensors: list)", "column_stack(tensors: list)",
    "unbind(x: tensor, axis: integer = 0)", "tensor_split(x: tensor, into: value, axis: integer = 0)",
    "hsplit(x: tensor, into: value)", "vsplit(x: tensor, into: value)", "dsplit(x: tensor, into: value)",
    "iter(x: tensor)",
    "combinations(x: tensor, r: integer >= 0 = 2, with_replacement: boolean = false)",
    "tril_indices(rows: integer >= 0, columns: integer >= 0, offset: integer = 0, {dtype: string = int64, "
        .. "device: string = cpu})",
    "triu_indices(rows: integer >= 0, columns: integer >= 0, offset: integer = 0, {dtype: string = int64, "
        .. "device: string = cpu})",
    "nonzero(x: tensor, as_tuple: boolean = false)",
    "one_hot(x: tensor, classes: integer >= -1 = -1)",
})

-- Other names of PyTorch and of the array API.
M.row_stack, M.unstack, M.broadcast_arrays = M.vstack, M.unbind, M.broadcast_tensors

return M
