-- nn_functional_more.lua -- functions of flow.nn.functional that are seldom used: loaded at the first use of one.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- ---- fractional pooling ----

local function sizes_of(who, what, value, axes)
    local list = {}
    for i = 1, axes do
        list[i] = check.integer(who, what, type(value) == "table" and value[i] or value, 1)
    end
    return list
end

-- The starts of windows along an axis of `size`, for samples u [n, c]: [n, c, out]. Their distance is irregular; the
-- last one ends with the axis.
local function starts(u, size, kernel, out)
    local last = flow.full_like(u, size - kernel):unsqueeze(-1)
    if out == 1 then return last:to "int64" end
    local alpha = (size - kernel) / (out - 1)
    local step = flow.arange(out - 1, flow.nn.like(u, {dtype = u.dtype}))
    local first = u:unsqueeze(-1)
    return flow.cat({((step + first) * alpha):floor() - (first * alpha):floor(), last}, -1):to "int64"
end

-- The positions in a flattened image that each window covers: [n, c, windows, taps].
local function window_positions(x, samples, kernel, out, axes, order)
    local all
    for k = 1, axes do
        local size = x:size(k + 1)
        local begin = starts(samples:select(2, order[k]), size, kernel[k], out[k])
        local taps = flow.arange(kernel[k], flow.nn.like(begin))
        local here = begin:unsqueeze(-1) + taps                                     -- [n, c, out, kernel]
        if not all then all = here else
            local n, c, windows, count = all:size(0), all:size(1), all:size(2), all:size(3)
            all = (all * size):reshape(n, c, windows, 1, count, 1) + here:reshape(n, c, 1, out[k], 1, kernel[k])
            all = all:reshape(n, c, windows * out[k], count * kernel[k])
        end
    end
    return all
end

local function output_sizes(who, x, kernel, opts, axes)
    if (opts.output_size == nil) == (opts.output_ratio == nil) then
        check.fail("%s: takes either output_size or output_ratio", who)
    end
    local out = opts.output_size and sizes_of(who, "output_size", opts.output_size, axes) or {}
    for k = 1, axes do
        local size = x:size(k + 1)
        local ratio = type(opts.output_ratio) == "table" and opts.output_ratio[k] or opts.output_ratio
        if ratio and not (type(ratio) == "number" and ratio > 0 and ratio < 1) then
            check.fail("%s: output_ratio must be between 0 and 1, got %s", who, tostring(ratio))
        end
        out[k] = out[k] or math.floor(size * ratio)
        if out[k] < 1 or out[k] + kernel[k] - 1 > size then
            check.fail("%s: %d windows of %d do not fit into axis %d of %s", who, out[k], kernel[k], k + 1,
                check.shape(x))
        end
    end
    return out
end

-- samples [n, c, axes] from 0 to 1; `order`: which of them belongs to each axis.
local function fractional(axes, order)
    local who = "fractional_max_pool" .. axes .. "d"
    local function pool(input, kernel, opts)
        if input.ndim ~= axes + 1 and input.ndim ~= axes + 2 then
            check.fail("%s: input must have %d or %d axes, got %s", who, axes + 1, axes + 2, check.shape(input))
        end
        local x = input.ndim == axes + 1 and input:unsqueeze(0) or input
        local k = sizes_of(who, "kernel_size", kernel, axes)
        local out = output_sizes(who, x, k, opts, axes)
        local n, c = x:size(0), x:size(1)
        local samples = opts._random_samples or flow.rand({n, c, axes}, flow.nn.like(x, {dtype = x.dtype}))
        local at = window_positions(x, samples, k, out, axes, order)
        local taken = x:flatten(2):gather(2, at:flatten(2)):reshape(at.shape)
        local values, which = taken:max(-1)
        local positions = at:gather(3, which:unsqueeze(-1)):squeeze(-1)
        local shape = {n, c, table.unpack(out)}
        values, positions = values:reshape(shape), positions:reshape(shape)
        if input.ndim == axes + 1 then values, positions = values:squeeze(0), positions:squeeze(0) end
        if opts.return_indices then return values, positions end
        return values
    end
    local function with_indices(input, kernel, o)
        local all = table.move(o, 1, 0, 1, {return_indices = true})
        for key, value in pairs(o) do all[key] = value end
        return pool(input, kernel, all)
    end
    return pool, with_indices
end

M.fractional_max_pool2d, M.fractional_max_pool2d_with_indices = fractional(2, {1, 0})
M.fractional_max_pool3d, M.fractional_max_pool3d_with_indices = fractional(3, {0, 1, 2})

-- ---- products of groups ----

-- The start and the length of each group, from the ends.
local function groups_of(offs, size)
    if offs.ndim ~= 1 or offs.dtype:find "float" or offs.dtype == "bool" then
        check.fail("grouped_mm: offs must be a vector of whole numbers, got %s%s", offs.dtype, check.shape(offs))
    end
    local groups, start = {}, 0
    for i, stop in ipairs(offs:totable()) do
        if stop < start or stop > size then
            check.fail("grouped_mm: offs must rise to %d at most, entry %d is %d after %d", size, i, stop, start)
        end
        groups[i] = {start = start, length = stop - start}
        start = stop
    end
    return groups, start
end

---Products of groups of matrices, as experts have them: rows of mat_a [m, k] with mat_b [groups, k, n], mat_a
---[groups, m, k] with columns of mat_b [k, n], or, of two matrices, parts of the axis that is summed over: [groups, m,
---n]. offs has the end of each group; rows behind the last count as 0. Without offs both have a group axis.
---@param mat_a table tensor
---@param mat_b table tensor
---@param o {offs: any, out_dtype: string}
---@return table
function M.grouped_mm(mat_a, mat_b, o)
    local rows, columns = mat_a.ndim == 2, mat_b.ndim == 2
    if not (rows or mat_a.ndim == 3) or not (columns or mat_b.ndim == 3) or mat_a:size(-1) ~= mat_b:size(-2) then
        check.fail("grouped_mm: %s and %s are no groups of matrices that fit", check.shape(mat_a), check.shape(mat_b))
    end
    if (rows or columns) ~= (o.offs ~= nil) then
        check.fail("grouped_mm: offs %s", o.offs and "are of a matrix, and both operands have groups" or "are missing")
    end
    if o.out_dtype then mat_a, mat_b = mat_a:to(o.out_dtype), mat_b:to(o.out_dtype) end
    if not o.offs then return mat_a:bmm(mat_b) end
    local both = rows and columns
    local size = both and mat_b:size(0) or rows and mat_a:size(0) or mat_b:size(1)
    local groups, stop = groups_of(o.offs, size)
    local count = not both and (rows and mat_b or mat_a):size(0) or #groups
    if count ~= #groups or count == 0 then
        check.fail("grouped_mm: offs have %d entries for %d groups", #groups, count)
    end
    local parts = {}
    for g, group in ipairs(groups) do
        local a, b
        if both then
            a, b = mat_a:narrow(1, group.start, group.length), mat_b:narrow(0, group.start, group.length)
        elseif rows then a, b = mat_a:narrow(0, group.start, group.length), mat_b:select(0, g - 1)
        else a, b = mat_a:select(0, g - 1), mat_b:narrow(1, group.start, group.length) end
        if both or group.length > 0 then parts[#parts + 1] = a:matmul(b) end
    end
    if both then return flow.stack(parts) end
    local rest = rows and {size - stop, mat_b:size(2)} or {mat_a:size(1), size - stop}
    if size > stop or #parts == 0 then
        parts[#parts + 1] = flow.zeros(rest, flow.nn.like(mat_a, {dtype = mat_a.dtype}))
    end
    return flow.cat(parts, rows and 0 or 1)
end

local RATIO = "output_ratio: number or list?, _random_samples: tensor?"
local SIZE = "(input: weight, kernel_size: integer or list, {output_size: integer or list?, "
check.takes(M, {
    "fractional_max_pool2d" .. SIZE .. "return_indices: boolean = false, " .. RATIO .. "})",
    "fractional_max_pool3d" .. SIZE .. "return_indices: boolean = false, " .. RATIO .. "})",
    "fractional_max_pool2d_with_indices" .. SIZE .. RATIO .. "})",
    "fractional_max_pool3d_with_indices" .. SIZE .. RATIO .. "})",
    "grouped_mm(mat_a: weight, mat_b: weight, {offs: tensor?, out_dtype: string?})",
})

return M
