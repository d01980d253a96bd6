-- module_more.lua -- what modules are seldom asked for: copies, parts by path, summaries.

local flow = require "flow"
local check = require "flow.check"
local class = require "flow.module_class"

local is_module = class.is_module
local M = {}

-- ---- copies ----

-- A tensor with memory of its own; a leaf that requires grad as that one does.
local function copy_tensor(tensor)
    local _ <close> = flow.no_grad()
    local copy = tensor:detach():clone()
    copy.requires_grad = tensor.requires_grad
    return copy
end

-- The copy of a value; parts used twice are used twice by the copy.
local function copy_value(value, seen)
    if seen[value] ~= nil then return seen[value] end
    if check.is_tensor(value) then
        seen[value] = copy_tensor(value)
    elseif is_module(value) then
        return class.copy(value, function(part)
            if type(part) == "table" or check.is_tensor(part) then return copy_value(part, seen) end
            return part
        end, function(copy) seen[value] = copy end)
    elseif type(value) == "table" and getmetatable(value) == nil then
        local copy = {}
        seen[value] = copy
        for key, part in pairs(value) do
            if type(part) == "table" or check.is_tensor(part) then part = copy_value(part, seen) end
            copy[key] = part
        end
    else
        return value
    end
    return seen[value]
end

function M.clone(module) return copy_value(module, {}) end

-- ---- parts by path ----

function M.get_submodule(module, path)
    local names = {}
    for name, part in module:named_modules() do
        if name == path then return part end
        names[#names + 1] = name
    end
    check.fail("get_submodule: %s has no module %s%s", class.class_name(module), check.quote(path),
        check.suggest(path, names))
end

function M.set_submodule(module, path, part)
    local above, name = path:match "^(.-)%.?([^.]+)$"
    if not name then check.fail("set_submodule: path must not be empty") end
    local holder = above == "" and module or M.get_submodule(module, above)
    holder[math.tointeger(tonumber(name)) or name] = part
end

function M.get_tensor(module, path, kind)
    local names = {}
    for name, t in class.collect(module, {[kind] = true}, true) do
        if name == path then return t end
        names[#names + 1] = name
    end
    check.fail("get_%s: %s has no %s %s%s", kind, class.class_name(module), kind, check.quote(path),
        check.suggest(path, names))
end

-- ---- summaries ----

local SIZES = {float64 = 8, int64 = 8, float32 = 4, int32 = 4, float16 = 2, bfloat16 = 2, int16 = 2}

-- The number of elements and of bytes of a module's own tensors, each counted once.
local function own_size(module, seen)
    local count, bytes = 0, 0
    for key, kind in pairs(module[class.KINDS]) do
        local t = (kind == "parameter" or kind == "buffer") and module[class.FIELDS][key]
        if t and not seen[t] then
            seen[t] = true
            if kind == "parameter" then count = count + t:numel() end
            bytes = bytes + t:numel() * (SIZES[t.dtype] or 1)
        end
    end
    return count, bytes
end

local function shape_of(...)
    local shapes = {}
    for _, value in ipairs {...} do
        if check.is_tensor(value) then shapes[#shapes + 1] = check.shape(value) end
    end
    return table.concat(shapes, " ")
end

-- "1,234,567"
local function grouped(n)
    local text = tostring(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
    return (text:gsub("^,", ""))
end

-- Lines of cells as columns; the last two are numbers.
local function columns(rows)
    local widths, lines = {}, {}
    for _, row in ipairs(rows) do
        for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
    end
    for _, row in ipairs(rows) do
        local line = ("%-" .. widths[1] .. "s  %-" .. widths[2] .. "s  %" .. widths[3] .. "s  %" .. widths[4] .. "s")
        lines[#lines + 1] = line:format(table.unpack(row))
    end
    return lines
end

function M.summary(module, ...)
    local shapes, handles = {}, {}
    for _, part in module:named_modules() do
        handles[#handles + 1] = part:register_forward_hook(function(self, _, ...) shapes[self] = shape_of(...) end)
    end
    local args, training = table.pack(...), module.training
    local ok, message = true, nil
    if args.n > 0 then
        local _ <close> = flow.no_grad()
        module:eval()
        ok, message = pcall(module, table.unpack(args, 1, args.n))
        module:train(training)
    end
    for _, handle in ipairs(handles) do handle:remove() end
    if not ok then error(message, 0) end
    local rows, seen, total, total_bytes = {{"module", "result", "parameters", "bytes"}}, {}, 0, 0
    for name, part in module:named_modules() do
        local count, bytes = own_size(part, seen)
        local depth = select(2, name:gsub("%.", "")) + (name == "" and 0 or 1)
        local title = (name == "" and "" or name:match "[^.]+$" .. ": ") .. class.class_name(part)
        rows[#rows + 1] = {("  "):rep(depth) .. title, shapes[part] or "", grouped(count), grouped(bytes)}
        total, total_bytes = total + count, total_bytes + bytes
    end
    rows[#rows + 1] = {"total", "", grouped(total), grouped(total_bytes)}
    return table.concat(columns(rows), "\n")
end

return M
