-- show.lua -- flow.show(x): a picture of who holds what; flow.show(model): its parameters and what they weigh.
--
--     > flow.show(x)
--     float32[8, 6] on placement("cpu", {{0, 1}, {2, 3}}) as (S(0), S(1))
--                axis 1
--         axis 0   0:3      3:6
--                ┌────────┬────────┐
--         0:4    │ rank 0 │ rank 1 │
--                ├────────┼────────┤
--         4:8    │ rank 2 │ rank 3 │
--                └────────┴────────┘
--         at most 12 elements, 48 bytes on a rank
--
-- Nothing is communicated: the part of any rank follows from shape, placement and SBP.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"

local M = {}

local MOST_ROWS, MOST_LINES = 12, 16            -- parts that are drawn; more are summarised

local ITEM = {
    bool = 1, uint8 = 1, int8 = 1, int32 = 4, int64 = 8, float16 = 2, bfloat16 = 2, float32 = 4, float64 = 8,
}

---12 -> "12 bytes", 48000 -> "48.0 KB".
---@param n integer
---@return string
function M.bytes(n)
    if n < 10000 then return n .. (n == 1 and " byte" or " bytes") end
    if n < 10000000 then return ("%.1f KB"):format(n / 1e3) end
    if n < 10000000000 then return ("%.1f MB"):format(n / 1e6) end
    return ("%.1f GB"):format(n / 1e9)
end

-- 1 -> "1 element"
local function count_text(n, noun)
    local text = tostring(n):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", "")
    return ("%s %s%s"):format(text, noun, n == 1 and "" or "s")
end

-- The first and the last of a list that is too long, with `gap` between.
local function shorten(list, most, gap)
    if #list <= most then return list end
    local result = table.move(list, 1, most - 2, 1, {})
    result[#result + 1] = gap
    result[#result + 1] = list[#list]
    return result
end

-- {0, 1, 2, 3, 8} -> "0..3 8"; entries that are no numbers stay as they are.
local function ranks_text(list)
    local words, i = {}, 1
    while i <= #list do
        local last = i
        while math.type(list[i]) and list[last + 1] == list[last] + 1 do last = last + 1 end
        if last > i + 1 then words[#words + 1] = list[i] .. ".." .. list[last] else last = i end
        if last == i then words[#words + 1] = tostring(list[i]) end
        i = last + 1
    end
    return table.concat(shorten(words, 6, "..."), " ")
end

local function ranks_named(list)
    return (#list == 1 and math.type(list[1]) and "rank " or "ranks ") .. ranks_text(list)
end

-- ---- regions: the holders of elements ----

local function numel(holder)
    local n = 1
    for _, size in ipairs(holder.size) do n = n * size end
    return n
end

local function interval(holder, axis)
    local start = holder.start[axis]
    return ("%d:%d"):format(start, start + holder.size[axis])
end

-- Axes of which not every rank holds the same, from 1.
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

local function key_of(holder, axes)
    local starts = {}
    for i, axis in ipairs(axes) do starts[i] = holder.start[axis] end
    return table.concat(starts, " ")
end

-- The regions that ranks hold, in the order of the ranks, each with the positions that hold it; positions without any.
local function regions_of(holders, axes)
    local list, by_key, idle = {}, {}, {}
    for position, holder in ipairs(holders) do
        if numel(holder) == 0 then
            idle[#idle + 1] = holder.rank
        else
            local key = key_of(holder, axes)
            if not by_key[key] then
                by_key[key] = {holder = holder, positions = {}}
                list[#list + 1] = by_key[key]
            end
            by_key[key].positions[position] = true
        end
    end
    return list, by_key, idle
end

local combine = {
    P = function(parts) return table.concat(shorten(parts, 4, "..."), "+") end,
    ["P(max)"] = function(parts) return "max(" .. table.concat(shorten(parts, 4, "..."), ",") .. ")" end,
    ["P(min)"] = function(parts) return "min(" .. table.concat(shorten(parts, 4, "..."), ",") .. ")" end,
}

-- Copies of a region, one of each made from the copies of its parts.
local function combine_copies(sbp, parts)
    local copies = {}
    for i = 1, #parts[1] do
        local words = {}
        for j, part in ipairs(parts) do words[j] = part[i] end
        copies[i] = #words == 1 and words[1] or combine[sbp](words)
    end
    return copies
end

-- The holders of a region: a list of copies, each a rank, or "0+1" if the value is the combination of these ranks'.
local function copies_of(x, region, holders)
    if not x.is_global then return {holders[1].rank} end
    local hierarchy, sbp = x.placement.hierarchy, x.sbp
    local function walk(axis, first, count)
        if axis > #hierarchy then return region.positions[first] and {holders[first].rank} or {} end
        local parts, copies = {}, {}
        count = count // hierarchy[axis]
        for i = 0, hierarchy[axis] - 1 do
            local part = walk(axis + 1, first + i * count, count)
            if #part > 0 then parts[#parts + 1] = part end
        end
        local entry = tostring(sbp[axis])
        if #parts > 0 and combine[entry] then return combine_copies(entry, parts) end
        for _, part in ipairs(parts) do table.move(part, 1, #part, #copies + 1, copies) end
        return copies
    end
    return walk(1, 1, #holders)
end

-- The intervals of one axis that some rank holds, in order, as holders of them.
local function parts_of(regions, axis)
    local list, seen = {}, {}
    for _, region in ipairs(regions) do
        local start = region.holder.start[axis]
        if not seen[start] then
            seen[start] = true
            list[#list + 1] = region.holder
        end
    end
    table.sort(list, function(a, b) return a.start[axis] < b.start[axis] end)
    return list
end

-- ---- drawing ----

-- Boxes in Unicode, unless the locale has another encoding.
local function is_unicode()
    for _, name in ipairs{"LC_ALL", "LC_CTYPE", "LANG"} do
        local value = os.getenv(name) or ""
        if value ~= "" then return value:lower():find("utf%-?8") ~= nil end
    end
    return true
end

local unicode = {line = "─", bar = "│", top = {"┌", "┬", "┐"}, middle = {"├", "┼", "┤"}, bottom = {"└", "┴", "┘"}}
local ascii = {line = "-", bar = "|", top = {"+", "+", "+"}, middle = {"+", "+", "+"}, bottom = {"+", "+", "+"}}

local function pad(text, width) return text .. (" "):rep(width - #text) end

local function rule(set, corners, widths)
    local pieces = {}
    for i, width in ipairs(widths) do pieces[i] = set.line:rep(width + 2) end
    return corners[1] .. table.concat(pieces, corners[2]) .. corners[3]
end

local function widths_of(grid)
    local widths = {}
    for _, row in ipairs(grid.cells) do
        for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell, #(grid.above[i] or "")) end
    end
    return widths
end

-- grid: cells (rows of texts), left and above (labels of rows and columns), title_left and title_above ("" without).
local function draw(grid)
    local set, widths, left = is_unicode() and unicode or ascii, widths_of(grid), #grid.title_left
    for _, label in ipairs(grid.left) do left = math.max(left, #label) end
    local margin = left == 0 and "    " or "    " .. (" "):rep(left + 1)
    local lines = {}
    if grid.title_above ~= "" then
        local labels = {}
        for i, width in ipairs(widths) do labels[i] = pad(grid.above[i], width) end
        lines[1] = margin .. grid.title_above
        lines[2] = "    " .. pad(grid.title_left, #margin - 4) .. "  " .. table.concat(labels, "   ")
    elseif grid.title_left ~= "" then lines[1] = "    " .. grid.title_left end
    lines[#lines + 1] = margin .. rule(set, set.top, widths)
    for r, row in ipairs(grid.cells) do
        local cells = {}
        for i, width in ipairs(widths) do cells[i] = pad(row[i], width) end
        if r > 1 then lines[#lines + 1] = margin .. rule(set, set.middle, widths) end
        lines[#lines + 1] = "    " .. pad(grid.left[r] or "", #margin - 4) .. set.bar .. " " ..
            table.concat(cells, " " .. set.bar .. " ") .. " " .. set.bar
    end
    lines[#lines + 1] = margin .. rule(set, set.bottom, widths)
    for i, line in ipairs(lines) do lines[i] = line:gsub("%s+$", "") end
    local total = #margin + 1
    for _, width in ipairs(widths) do total = total + width + 3 end
    return lines, total
end

local GAP = {}      -- stands for the parts that are left out

-- At most two axes are split: rows along `down`, columns along `across` (either may be nil).
local function grid_of(regions, by_key, axes, down, across, most_columns, text_of)
    local grid = {cells = {}, left = {}, above = {}}
    local rows = down and shorten(parts_of(regions, down), MOST_ROWS, GAP) or {false}
    local columns = across and shorten(parts_of(regions, across), most_columns, GAP) or {false}
    for c, column in ipairs(columns) do
        grid.above[c] = column == GAP and "..." or column and interval(column, across)
    end
    for r, row in ipairs(rows) do
        grid.left[r] = row == GAP and "..." or row and interval(row, down) or ""
        grid.cells[r] = {}
        for c, column in ipairs(columns) do
            local starts = {}
            for i, axis in ipairs(axes) do starts[i] = axis == down and row.start and row.start[axis] or
                axis == across and column.start and column.start[axis] end
            local hidden = row == GAP or column == GAP
            grid.cells[r][c] = hidden and "..." or text_of(by_key[table.concat(starts, " ")])
        end
    end
    grid.title_left = down and ("axis %d"):format(down - 1) or ""
    grid.title_above = across and ("axis %d"):format(across - 1) or ""
    return grid
end

-- Rows of cells as lines whose columns stand below each other; `right`: columns of numbers.
local function align(rows, right)
    local widths, lines = {}, {}
    for _, row in ipairs(rows) do
        for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
    end
    for r, row in ipairs(rows) do
        local cells = {}
        for i, cell in ipairs(row) do
            cells[i] = right and right[i] and (" "):rep(widths[i] - #cell) .. cell or pad(cell, widths[i])
        end
        lines[r] = ("    " .. table.concat(cells, "   ")):gsub("%s+$", "")
    end
    return lines
end

-- Any number of split axes: a line per region.
local function table_of(regions, axes, text_of)
    local rows = {{"held by"}}
    for i, axis in ipairs(axes) do rows[1][i + 1] = ("axis %d"):format(axis - 1) end
    for _, region in ipairs(shorten(regions, MOST_LINES, GAP)) do
        local row = {region == GAP and "..." or text_of(region)}
        for i, axis in ipairs(axes) do row[i + 1] = region == GAP and "..." or interval(region.holder, axis) end
        rows[#rows + 1] = row
    end
    return align(rows)
end

local function terminal_width() return flow._io.terminal_width() or 80 end

-- With "rank" in every box if that fits, without it or with fewer columns if that does; else as a table.
local function picture(x, holders, regions, by_key, axes)
    local function name(region) return ranks_named(copies_of(x, region, holders)) end
    local function short(region) return ranks_text(copies_of(x, region, holders)) end
    if #axes > 2 then return table_of(regions, axes, name) end
    local down, across = axes[1], axes[2]
    if #axes == 1 and down == x.ndim then down, across = nil, down end
    for _, try in ipairs{{12, name}, {12, short}, {8, short}, {5, short}} do
        if try[1] < 12 and #axes == 1 then break end
        local lines, width = draw(grid_of(regions, by_key, axes, down, across, table.unpack(try)))
        if width <= terminal_width() then return lines end
    end
    return table_of(regions, axes, name)
end

-- ---- words below ----

local meaning = {
    B = "side by side: each of these ranks holds a copy",
    P = "+: the value is the sum of what these ranks hold",
    ["P(max)"] = "max: the value is the greatest of what these ranks hold",
    ["P(min)"] = "min: the value is the least of what these ranks hold",
}

-- Ranks of the world that are not among the holders.
local function outside(holders)
    local inside, list = {}, {}
    for _, holder in ipairs(holders) do inside[holder.rank] = true end
    for rank = 0, flow.world_size() - 1 do
        if not inside[rank] then list[#list + 1] = rank end
    end
    return list
end

local function verb(list, one, several) return #list == 1 and one or several end

local function notes(x, holders, idle)
    local lines, seen = {}, {}
    for i = 1, #x.sbp do
        local entry = tostring(x.sbp[i])
        if meaning[entry] and not seen[entry] and x.placement.hierarchy[i] > 1 then
            lines[#lines + 1] = meaning[entry]
            seen[entry] = true
        end
    end
    local away = outside(holders)
    if #idle > 0 and x:numel() > 0 then
        lines[#lines + 1] = ("%s %s an empty part: there are more ranks than elements to split"):format(
            ranks_named(idle), verb(idle, "has", "have"))
    end
    if #away > 0 then
        lines[#lines + 1] = ("%s %s not in the placement"):format(ranks_named(away), verb(away, "is", "are"))
    end
    return lines
end

local function weight(x, holders)
    local most = 0
    for _, holder in ipairs(holders) do most = math.max(most, numel(holder)) end
    return ("%s, %s"):format(count_text(most, "element"), M.bytes(most * ITEM[x.dtype]))
end

-- "float32[8, 6] on ...": a tensor's kind, without its values.
local function title(x)
    local text = x.dtype .. check.shape(x) .. " on "
    if x.is_global then return ("%s%s as %s"):format(text, tostring(x.placement), tostring(x.sbp)) end
    return text .. x.device
end

local function tensor_lines(x)
    local holders = flow._windows(x)
    if not x.is_global then
        local where = flow.world_size() == 1 and "" or "local, every rank has its own: "
        return {title(x), "    " .. where .. weight(x, holders)}
    end
    local axes = split_axes(x, holders)
    local regions, by_key, idle = regions_of(holders, axes)
    local lines = {}
    if x:numel() > 0 then lines = picture(x, holders, regions, by_key, axes) end
    table.insert(lines, 1, title(x))
    for _, note in ipairs(notes(x, holders, idle)) do lines[#lines + 1] = "    " .. note end
    lines[#lines + 1] = ("    at most %s on a rank"):format(weight(x, holders))
    return lines
end

-- ---- models ----

local function where_text(x) return x.is_global and tostring(x.placement) or x.device end

-- Adds to `loads` what every rank holds of x; returns the most that one holds. Of a local one every rank has its own.
local function add_load(loads, x)
    local most, item, holders = 0, ITEM[x.dtype], flow._windows(x)
    for rank = 0, x.is_global and -1 or flow.world_size() - 1 do
        holders[rank + 1] = {rank = rank, size = holders[1].size}
    end
    for _, holder in ipairs(holders) do
        local bytes = numel(holder) * item
        loads[holder.rank] = (loads[holder.rank] or 0) + bytes
        most = math.max(most, bytes)
    end
    return most
end

-- "rank 0: 24 bytes; ranks 1..3: 12 bytes each"
local function loads_text(loads)
    local order, groups = {}, {}
    for rank = 0, flow.world_size() - 1 do
        local bytes = loads[rank] or 0
        if not groups[bytes] then
            groups[bytes] = {}
            order[#order + 1] = bytes
        end
        table.insert(groups[bytes], rank)
    end
    local words = {}
    for i, bytes in ipairs(order) do
        local ranks = groups[bytes]
        words[i] = ("%s: %s%s"):format(ranks_named(ranks), bytes == 0 and "nothing" or M.bytes(bytes),
            bytes > 0 and #ranks > 1 and " each" or "")
    end
    return table.concat(shorten(words, 8, "..."), "; ")
end

-- One line per parameter and buffer; placements only when there are several.
local function model_rows(model)
    local rows, places, loads, all = {}, {}, {}, {elements = 0, bytes = 0, count = 0}
    local function add(name, x, note)
        local place = where_text(x)
        if not places[place] then
            places[place] = true
            places[#places + 1] = place
        end
        local sbp = x.is_global and tostring(x.sbp) or "local"
        rows[#rows + 1] = {name .. note, check.shape(x), x.dtype, place, sbp, M.bytes(add_load(loads, x))}
        all.bytes = all.bytes + x:numel() * ITEM[x.dtype]
    end
    for name, x in require("flow.module_class").collect(model, {parameter = true}) do
        add(name, x, x.requires_grad and "" or " (frozen)")
        all.count, all.elements = all.count + 1, all.elements + x:numel()
    end
    for name, x in model:named_buffers() do add(name, x, " (buffer)") end
    return rows, places, loads, all
end

local function model_lines(model)
    local rows, places, loads, all = model_rows(model)
    local head = ("%s: %s, %s, %s in all"):format(getmetatable(model).__name, count_text(all.count, "parameter"),
        count_text(all.elements, "element"), M.bytes(all.bytes))
    if #rows == 0 then return {head} end
    table.insert(rows, 1, {"name", "shape", "dtype", "placement", "sbp", "on a rank"})
    for _, row in ipairs(rows) do
        if #places == 1 then table.remove(row, 4) end
    end
    local lines = align(rows, {[#rows[1]] = true})
    table.insert(lines, 1, #places == 1 and head .. ", on " .. places[1] or head)
    if flow.world_size() > 1 then lines[#lines + 1] = "    " .. loads_text(loads) end
    return lines
end

---Prints a picture of which rank holds which part of a tensor, or a line per parameter of a model. Only rank 0 prints,
---and nothing is communicated.
---@param x any
function M.show(x)
    check.refuse_colon("show", x)
    local lines
    if check.is_tensor(x) then lines = tensor_lines(x)
    elseif module.is_module(x) then lines = model_lines(x)
    else check.fail("show: x must be a tensor or a module, got %s", type(x)) end
    flow.print(table.concat(lines, "\n"))
end

return M
