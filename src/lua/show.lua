-- show.lua -- flow.show(x): a picture of who holds what.
--
--     > flow.show(x)
--     float32[8, 6] on placement("cpu", {{0, 1}, {2, 3}}) as (S(0), S(1))
--         axis 0 | axis 1   0:3      3:6
--         0:4               rank 0   rank 1
--         4:8               rank 2   rank 3

local flow = require "flow"
local check = require "flow.check"

local M = {}

local function interval(holder, axis)
    local start, size = holder.start[axis], holder.size[axis]
    return size == 0 and "nothing" or ("%d:%d"):format(start, start + size)
end

-- The axes of which not every rank holds the same, from 1.
local function split_axes(x, holders)
    local axes = {}
    for axis = 1, x.ndim do
        for _, holder in ipairs(holders) do
            if holder.size[axis] ~= x.shape[axis] then
                axes[#axes + 1] = axis
                break
            end
        end
    end
    return axes
end

-- What ranks hold along the given axes, each once, in the order of the ranks; and the ranks of each.
local function group(holders, text_of)
    local texts, ranks = {}, {}
    for _, holder in ipairs(holders) do
        local text = text_of(holder)
        if not ranks[text] then
            texts[#texts + 1] = text
            ranks[text] = {}
        end
        table.insert(ranks[text], holder)
    end
    return texts, ranks
end

local function names(holders)
    if not holders then return "" end
    local ranks = {}
    for i, holder in ipairs(holders) do ranks[i] = holder.rank end
    return (#ranks == 1 and "rank " or "ranks ") .. table.concat(ranks, ", ")
end

-- Rows of cells as lines whose columns stand below each other.
local function align(rows)
    local widths, lines = {}, {}
    for _, row in ipairs(rows) do
        for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
    end
    for _, row in ipairs(rows) do
        local line = "   "
        for i, cell in ipairs(row) do line = line .. " " .. cell .. (" "):rep(widths[i] - #cell + 2) end
        lines[#lines + 1] = (line:gsub("%s+$", ""))
    end
    return lines
end

local function grid(holders, down, across)
    local rows_texts, by_row = group(holders, function(h) return interval(h, down) end)
    local column_texts = group(holders, function(h) return interval(h, across) end)
    local rows = {{("axis %d | axis %d"):format(down - 1, across - 1), table.unpack(column_texts)}}
    for _, text in ipairs(rows_texts) do
        local _, by_column = group(by_row[text], function(h) return interval(h, across) end)
        local row = {text}
        for i, column in ipairs(column_texts) do row[i + 1] = names(by_column[column]) end
        rows[#rows + 1] = row
    end
    return rows
end

local function list(holders, axes)
    local function text_of(holder)
        local parts = {}
        for i, axis in ipairs(axes) do parts[i] = interval(holder, axis) end
        return table.concat(parts, ", ")
    end
    local titles = {}
    for i, axis in ipairs(axes) do titles[i] = ("axis %d"):format(axis - 1) end
    local texts, ranks = group(holders, text_of)
    local rows = {{table.concat(titles, ", "), ""}}
    for _, text in ipairs(texts) do rows[#rows + 1] = {text, names(ranks[text])} end
    return rows
end

local partial = {
    P = "the value is the sum of the parts", ["P(max)"] = "the value is the greatest of the parts",
    ["P(min)"] = "the value is the least of the parts",
}

-- "float32[8, 6] on ...": a tensor's kind, without its values.
local function title(x)
    local text = x.dtype .. check.shape(x) .. " on "
    if x.is_global then return ("%s%s as %s"):format(text, tostring(x.placement), tostring(x.sbp)) end
    return text .. x.device
end

---Prints a picture of which rank holds which part of a tensor.
---@param x any
function M.show(x)
    check.tensor("show", "x", x)
    local holders = flow._windows(x)
    local axes = split_axes(x, holders)
    local rows
    if #axes == 0 then rows = {{"everything", names(holders)}}
    elseif #axes == 2 then rows = grid(holders, axes[1], axes[2])
    else rows = list(holders, axes) end
    local lines = align(rows)
    table.insert(lines, 1, title(x))
    for i = 1, x.is_global and #x.sbp or 0 do
        local note = partial[tostring(x.sbp[i])]
        if note then lines[#lines + 1] = ("    %s: %s"):format(tostring(x.sbp[i]), note) end
    end
    flow.print(table.concat(lines, "\n"))
end

return M
