-- checkpoint.lua -- flow.save and flow.load: tables of tensors and plain values in one safetensors file.
--
-- Tensors lie in the file by dotted names, so any reader of the format finds them. The table itself, with a mark where
-- each tensor was, lies in the file's metadata as JSON; load builds it again. Plain values come back exactly: integers
-- to 64 bits, floats to the last bit, any bytes, booleans, nested tables. Objects with one key that begins with $ stand
-- for what JSON cannot say:
--
--     {"$tensor": "model.weight"}  {"$bytes": "00ff"}  {"$float": "nan"}  {"$map": [[key, value], ...]}

local flow = require "flow"
local check = require "flow.check"
local json = require "flow.json"
local ordered = require "flow.ordered"

local io_ = flow._io

local M = {}

local DEPTH = 60        -- of nested tables
local sizes = {float64 = 8, int64 = 8, float32 = 4, int32 = 4, float16 = 2, bfloat16 = 2}

-- ---- saving ----

local pack

-- Keys in a fixed order: an ordered table's own; else numbers, then strings, sorted.
local function keys_of(t)
    local keys = {}
    if ordered.is(t) then
        for key in t do keys[#keys + 1] = key end
        return keys
    end
    for key in pairs(t) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b)
        if math.type(a) ~= math.type(b) then return math.type(a) ~= nil end
        return a < b
    end)
    return keys
end

local function pack_float(x)
    if x == x and x ~= math.huge and x ~= -math.huge then return x end
    return {["$float"] = x ~= x and "nan" or x > 0 and "inf" or "-inf"}
end

local function pack_string(s)
    if utf8.len(s) and not s:find("\0", 1, true) then return s end
    return {["$bytes"] = s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)}
end

local function pack_tensor(job, t, path)
    local known = job.names[t]
    if not known then
        if job.taken[path] then check.fail("save: two tensors would be called '%s'", path) end
        if path == "__metadata__" or path:find("\0", 1, true) or not utf8.len(path) then
            check.fail("save: a tensor cannot be called %q", path)
        end
        job.taken[path], job.names[t], known = true, path, path
        job.list[#job.list + 1] = {name = path, tensor = t, place = #job.list}
    end
    return {["$tensor"] = known}
end

-- {"$map": ...}: tables with keys that JSON does not have.
local function pack_map(job, t, keys, path, depth)
    local pairs_list = {}
    for i, key in ipairs(keys) do
        local name = path .. (path == "" and "" or ".") .. tostring(key)
        pairs_list[i] = {type(key) == "string" and pack_string(key) or key, pack(job, t[key], name, depth)}
    end
    return {["$map"] = pairs_list}
end

local function pack_table(job, t, path, depth)
    if depth > DEPTH then check.fail("save: '%s' is nested deeper than %d tables (or contains itself)", path, DEPTH) end
    local is_list, plain = json.is_list(t), true
    local result = is_list and {} or ordered.new()
    for key in pairs(t) do
        if type(key) ~= "string" and math.type(key) ~= "integer" then
            check.fail("save: a key in '%s' is a %s, not a string or a whole number", path, math.type(key) or type(key))
        end
        plain = plain and type(key) == "string" and key:sub(1, 1) ~= "$" and type(pack_string(key)) == "string"
    end
    local keys = keys_of(t)
    if not is_list and not plain then return pack_map(job, t, keys, path, depth + 1) end
    for _, key in ipairs(keys) do
        result[key] = pack(job, t[key], path .. (path == "" and "" or ".") .. key, depth + 1)
    end
    return result
end

function pack(job, value, path, depth)
    if check.is_tensor(value) then return pack_tensor(job, value, path) end
    local kind = math.type(value) or type(value)
    if kind == "integer" or kind == "boolean" then return value end
    if kind == "float" then return pack_float(value) end
    if kind == "string" then return pack_string(value) end
    if kind == "table" then return pack_table(job, value, path, depth) end
    check.fail("save: '%s' is a %s; tensors, numbers, strings, booleans and tables can be saved", path, kind)
end

-- Whole tensors, the widest elements first, so that all lie aligned in the file.
local function arrange(list)
    for _, item in ipairs(list) do
        local t = item.tensor:detach()
        if t.is_global then
            local whole = {}
            for i = 1, #t.placement.hierarchy do whole[i] = "B" end
            t = t:to_global{sbp = whole}:to_local()
        end
        item.tensor = t:contiguous()
    end
    table.sort(list, function(a, b)
        local x, y = sizes[a.tensor.dtype] or 1, sizes[b.tensor.dtype] or 1
        if x ~= y then return x > y end
        return a.place < b.place
    end)
end

---Writes a table to a file; what was there is replaced only when all is on the disk.
---@param path string
---@param values table
function M.save(path, values)
    if type(path) ~= "string" or path == "" or path:find("\0", 1, true) then check.fail("save: takes a path") end
    if type(values) ~= "table" then check.fail("save: takes a table, got %s", check.type(values)) end
    local job = {names = {}, taken = {}, list = {}}
    local text = json.encode(pack(job, values, "", 1))
    local names, tensors = {}, {}
    local _ <close> = flow.no_grad()
    arrange(job.list)
    for i, item in ipairs(job.list) do names[i], tensors[i] = item.name, item.tensor end
    if flow.rank() == 0 then io_.save(path, names, tensors, {"flow", text}) end
    flow.barrier()
end

-- ---- loading ----

local floats = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

local unpack_value

local special = {
    ["$tensor"] = function(name, tensors) return tensors[name] end,
    ["$float"] = function(word) return floats[word] end,
    ["$bytes"] = function(digits)
        if type(digits) ~= "string" or #digits % 2 ~= 0 or digits:find("%X") then return nil end
        return (digits:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end))
    end,
    ["$map"] = function(entries, tensors, path)
        if type(entries) ~= "table" then return nil end
        local result = {}
        for _, entry in ipairs(entries) do
            local key = type(entry) == "table" and unpack_value(entry[1], tensors, path)
            if type(key) ~= "string" and math.type(key) ~= "integer" then return nil end
            result[key] = unpack_value(entry[2], tensors, path)
        end
        return result
    end,
}

function unpack_value(value, tensors, path)
    if type(value) ~= "table" or value == json.null then return value end
    local key, inner = next(value)
    if special[key] and next(value, key) == nil then
        local result = special[key](inner, tensors, path)
        if result == nil then check.fail("load: %s: its metadata holds a bad %s", path, key) end
        return result
    end
    local result = {}
    for name, item in pairs(value) do result[name] = unpack_value(item, tensors, path) end
    return result
end

local function place(t, o)
    if o.placement then
        local whole = {}
        for i = 1, #o.placement.hierarchy do whole[i] = "B" end
        return t:to_global{placement = o.placement, sbp = whole}:to_global{sbp = o.sbp}
    end
    return o.device and t:to(o.device) or t
end

---Reads a file: the table that was saved, or, of a file that another program wrote, tensors by name and its metadata.
---@param path string
---@param opts {device: string, placement: any, sbp: any}? where the tensors go
---@return table values
---@return table? metadata of a file that flow.save did not write
function M.load(path, opts)
    if type(path) ~= "string" then check.fail("load: takes a path, got %s", type(path)) end
    local o = check.options("load", opts, {device = check.none, placement = check.none, sbp = check.none})
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("load: placement and sbp come together") end
    local names, list, metadata_list = io_.load(path)
    local tensors, metadata = {}, {}
    for i, name in ipairs(names) do tensors[name] = place(list[i], o) end
    for i = 1, #metadata_list, 2 do metadata[metadata_list[i]] = metadata_list[i + 1] end
    if not metadata.flow then return tensors, metadata end
    local ok, tree = pcall(json.decode, metadata.flow)
    if not ok or type(tree) ~= "table" then check.fail("load: %s: its metadata is damaged", path) end
    return unpack_value(tree, tensors, path)
end

return M
