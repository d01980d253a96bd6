-- checkpoint.lua -- flow.save and flow.load: tables of tensors and plain values in one safetensors file.
--
-- Tensors lie in the file by dotted names, so any reader of the format finds them. The table itself, with a mark where
-- each tensor was, lies in the file's metadata as JSON; load builds it again. Plain values come back exactly: integers
-- to 64 bits, floats to the last bit, any bytes, booleans, nested tables. Objects with one key that begins with $ stand
-- for what JSON cannot say:
--
--     {"$tensor": "model.weight"}  {"$bytes": "00ff"}  {"$float": "nan"}  {"$map": [[key, value], ...]}
--
-- Under several ranks every rank calls save with the same tables, keys and plain values; each writes its parts of
-- the global tensors, and rank 0 its local ones. A file saved on some ranks can be read on others in any SBP, each
-- rank reading its own part alone.

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
        if job.taken[path] then check.fail("save: two tensors would have the name '%s'", path) end
        if path == "__metadata__" or path:find("\0", 1, true) or not utf8.len(path) then
            check.fail("save: a tensor cannot have the name %q", path)
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
    local module = package.loaded["flow.module"] or rawget(flow, "nn")      -- one of them when there are modules
    if module and module.is_module(t) then
        check.fail("save: %s is a module; save what it holds: %s:state_dict()", path == "" and "values" or
            "'" .. path .. "'", path == "" and "net" or path)
    end
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

-- The widest elements first, so that all lie aligned in the file.
local function arrange(list)
    table.sort(list, function(a, b)
        local x, y = sizes[a.tensor.dtype] or 1, sizes[b.tensor.dtype] or 1
        if x ~= y then return x > y end
        return a.place < b.place
    end)
end

-- The arguments of io_.save for a table: names, tensors, metadata.
local function prepare(path, values, ...)
    if select("#", ...) > 0 then check.fail("save: too many arguments: save(path, values)") end
    if type(path) ~= "string" then
        check.fail("save: takes a path and a table, flow.save(\"x.safetensors\", {x = x}), got %s", check.type(path))
    end
    if path == "" then check.fail("save: the path is empty") end
    if path:find("\0", 1, true) then
        check.fail("save: the path '%s' continues after a NUL; a path cannot contain one", path:match("^%Z*"))
    end
    if type(values) ~= "table" then
        check.fail("save: takes a table, got %s; write flow.save(path, {x = x})", check.type(values))
    end
    local job = {names = {}, taken = {}, list = {}}
    local text = json.encode(pack(job, values, "", 1))
    arrange(job.list)
    local names, tensors = {}, {}
    for i, item in ipairs(job.list) do names[i], tensors[i] = item.name, item.tensor end
    return {names = names, tensors = tensors, metadata = {"flow", text}}
end

local function words_of(value)
    if check.is_tensor(value) then return "a tensor" end
    if type(value) == "table" then return "a table" end
    if type(value) == "string" then return ("%q"):format(value) end
    if math.type(value) ~= "float" then return tostring(value) end
    local digits = check.digits("%.17g", value)
    return digits:find "^-?%d+$" and digits .. ".0" or digits
end

-- A line for every key, in the order of the file: 'options.lr' = 0.1
local function outline(values, path, lines)
    for _, key in ipairs(keys_of(values)) do
        local value, name = values[key], path .. (path == "" and "" or ".") .. tostring(key)
        lines[#lines + 1] = ("'%s' = %s"):format(#name > 100 and "..." .. name:sub(-100) or name, words_of(value))
        if type(value) == "table" and not check.is_tensor(value) then outline(value, name, lines) end
    end
    return lines
end

---Writes a table to a file. An existing file is replaced only when all data are on the disk. Every rank calls it, with
---the same keys and plain values; local tensors are written by rank 0.
---@param path string
---@param values table
function M.save(path, values, ...)
    check.refuse_colon("save", path)
    if flow._plan.on then return end -- a planned script has no values to write
    local ok, job = pcall(prepare, path, values, ...)
    local _ <close> = flow.no_grad()
    if ok then
        local differs = io_.save(path, job.names, job.tensors, job.metadata)
        if differs then io_.same("save", "every rank must save the same keys and values", outline(values, "", {})) end
        assert(not differs, "save: the ranks' tables differ")
        return
    end
    if flow.world_size() == 1 then error(job, 0) end
    io_.save("", {}, {}, {}, (tostring(job):gsub("^[^\n]-:%d+: ", "")))
end

-- ---- the table of a file ----

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
    if #value > 0 then
        for i, item in ipairs(value) do result[i] = unpack_value(item, tensors, path) end
        return result
    end
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names)           -- so that every rank reports the same mistake first
    for _, name in ipairs(names) do result[name] = unpack_value(value[name], tensors, path) end
    return result
end

-- ---- tensors that lie in a file ----

---A tensor of a file that was loaded with {lazy = true}: name, dtype and shape are known; read{} reads the values.
---@class flow.Stored
---@field name string
---@field dtype string
---@field shape integer[]
local Stored = {}
Stored.__index = Stored

---@return boolean
function M.is_stored(value)
    return getmetatable(value) == Stored
end

local function all_broadcast(placement)
    local sbp = {}
    for i = 1, #placement.hierarchy do sbp[i] = "B" end
    return sbp
end

local function read(stored, opts)
    if opts.device == "meta" then return flow.spec(stored.shape, stored.dtype) end
    if opts.placement and opts.placement.type == "meta" then
        return flow.spec(stored.shape, {dtype = stored.dtype, placement = opts.placement, sbp = opts.sbp})
    end
    local t = io_.read(stored.file, stored.index, opts.placement, opts.sbp)
    return opts.device and t:to(opts.device) or t
end

---Reads the tensor: local, on a device, or global. Of a global one each rank reads its own part; no rank waits.
---@param o {device: string, placement: any, sbp: any}?
function Stored:read(o)
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("read: placement and sbp must be given together") end
    if o.placement and o.device then check.fail("read: device applies to local tensors; a placement has its own") end
    return read(self, o)
end

check.methods(Stored, "t", {"read({device: string?, placement: placement?, sbp: sbp?})"})

function Stored:__tostring()
    return ("stored tensor '%s', %s%s"):format(io_.clean(self.name), self.dtype, check.shape(self))
end

---Copies a tensor (local, global or in a file) into another one, local or global. A local tensor copied into a global
---one must be the same on every rank.
function M.copy(into, given)
    if M.is_stored(given) then
        given = given:read(into.is_global and {placement = into.placement, sbp = into.sbp} or {device = into.device})
    elseif into.is_global then
        if not given.is_global then
            given = given:to_global{placement = into.placement, sbp = all_broadcast(into.placement)}
        end
        given = given:to_global{placement = into.placement, sbp = into.sbp}
    elseif given.device ~= into.device then
        given = given:to(into.device)
    end
    into:copy_(given)
end

-- ---- loading ----

-- The option sbp for each entry: one sbp for all, a table by name (others are B), or a function.
local function sbp_rule(opts, entries)
    local sbp = opts.sbp
    if type(sbp) == "function" then
        return function(entry) return sbp(entry.name, entry.shape, entry.dtype) or all_broadcast(opts.placement) end
    end
    if type(sbp) ~= "table" or type(next(sbp)) ~= "string" then return function() return sbp end end
    local names = {}
    for _, entry in ipairs(entries) do names[entry.name] = true end
    for _, name in ipairs(check.sorted_keys(sbp)) do
        if not names[name] then
            local hint = check.suggest(name, check.sorted_keys(names))
            check.fail("load: sbp names '%s', which is not in the file%s", name, hint)
        end
    end
    return function(entry) return sbp[entry.name] or all_broadcast(opts.placement) end
end

local function read_entries(file, entries, opts)
    local tensors = {}
    local rule = opts.placement and sbp_rule(opts, entries)
    for i, entry in ipairs(entries) do
        local stored = setmetatable(entry, Stored)
        stored.file, stored.index = file, i
        if opts.lazy then tensors[entry.name] = stored
        elseif rule then tensors[entry.name] = stored:read{placement = opts.placement, sbp = rule(entry)}
        else tensors[entry.name] = read(stored, opts) end
    end
    return tensors
end

local function check_places(o)
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("load: placement and sbp must be given together") end
    if o.placement and o.device then check.fail("load: device applies to local tensors; a placement has its own") end
    if o.lazy and (o.placement or o.device) then
        check.fail("load: with lazy, each tensor gets its place when it is read: t:read{placement = p, sbp = \"S(0)\"}")
    end
end

local function sbp_text(sbp)
    return type(sbp) == "table" and "(" .. table.concat(sbp, ", ") .. ")" or tostring(sbp)
end

-- When one rank fails to read its part, all fail; so they do when one reads it in another SBP.
local function read_together(file, entries, opts)
    local ok, tensors = pcall(read_entries, file, entries, opts)
    io_.agree("load", not ok and tostring(tensors):gsub("^[^\n]-:%d+: ", "") or nil)
    local places = {}
    for i, entry in ipairs(entries) do
        places[i] = ("'%s' as %s"):format(entry.name, sbp_text(tensors[entry.name].sbp))
    end
    io_.same("load", "every rank must read a tensor in the same sbp", places)
    return tensors
end

local function in_python(text)
    return function(path)
        return text:gsub("PATH", ("%q"):format(path)) .. (", %q)"):format(path:gsub("%.%w+$", "") .. ".safetensors")
    end
end

-- Advice for a file that Python reads as an array: pixels, sound and the like.
local function array_in_python(call)
    return in_python(('in Python: safetensors.numpy.save_file({"x": %s}'):format(call))
end

local function nothing() return nil end

-- Advice for a file that a function of flow.data reads.
local function reader(name)
    return function(path) return ("flow.data.%s(%q)"):format(name, path) end
end

local from_pytorch = in_python "in Python: safetensors.torch.save_file(torch.load(PATH)"
local from_image = array_in_python "numpy.array(PIL.Image.open(PATH))"

-- The first bytes of files that are no safetensors (Lua patterns), their format, and the call that reads them, if one
-- is known.
local foreign = {
    {"^\x93NUMPY", "a NumPy array", reader "npy"},
    {"^PK\3\4", "a zip archive, as PyTorch (.pt) and NumPy (.npz) write", function(path)
        return (path:find("%.npz$") and reader "npz" or from_pytorch)(path)
    end},
    {"^\x80[\2-\5]", "a Python pickle", from_pytorch},
    {"^\x89PNG\r\n", "a PNG image", from_image}, {"^\xff\xd8\xff", "a JPEG image", from_image},
    {"^GIF8[79]a", "a GIF image", from_image}, {"^BM....\0\0\0\0", "a BMP image", from_image},
    {"^RIFF....WEBP", "a WebP image", from_image}, {"^II%*\0", "a TIFF image", from_image},
    {"^MM\0%*", "a TIFF image", from_image},
    {"^RIFF....WAVE", "a WAV sound", array_in_python "scipy.io.wavfile.read(PATH)[1]"},
    {"^MATLAB 5%.0 MAT%-file", "a MATLAB file",
        in_python "in Python: safetensors.numpy.save_file(scipy.io.loadmat(PATH)"},
    {"^GGUF", "a GGUF file", nothing}, {"^PAR1", "a Parquet file", nothing},
    {"^SQLite format 3\0", "a SQLite database", nothing},
    {"^%%PDF%-", "a PDF document", nothing}, {"^\x7fELF", "an ELF file, a program or library", nothing},
    {"^BZh[1-9]1AY&SY", "compressed with bzip2", nothing}, {"^\xfd7zXZ\0", "compressed with xz", nothing},
    {"^%(\xb5\x2f\xfd", "compressed with zstd", nothing}, {"^7z\xbc\xaf\x27\x1c", "a 7z archive", nothing},
    {"^" .. ("."):rep(257) .. "ustar", "a tar archive", nothing},
    {"^\x89HDF", "an HDF5 file", function() return "in Python: h5py and safetensors.numpy.save_file" end},
    {"^\31\139", "compressed with gzip", function(path)
        for _, name in ipairs {"npy", "csv", "jsonl"} do
            if path:find("%." .. name .. "%.gz$") then return reader(name)(path) end
        end
        return ("flow.data.idx(%q) for an IDX file"):format(path)
    end},
    {"^\0\0[\8-\14][\1-\8]", "an IDX file", function(path) return ("flow.data.idx(%q)"):format(path) end},
    {"^%s*[{%[][^\0\1-\8\14-\31]*$", "JSON", function(path)
        local by_lines = path:find("%.jsonl$") or path:find("%.ndjson$")
        return by_lines and reader "jsonl"(path) or ("flow.json.decode(flow.data.read(%q))"):format(path)
    end},
    {"^[^\0\1-\8\14-\31\127]*\n[^\0\1-\8\14-\31\127]*$", "text", function(path)
        if path:find("%.[ct]sv$") then return reader "csv"(path) end
        return ("flow.data.csv(%q) for a table, flow.data.read(%q) for its text"):format(path, path)
    end},
}

-- The error for a file that could not be opened: `message`, or what the file is when that says it is no safetensors.
local function describe_foreign(path, message)
    local readable = tostring(message):find("header", 1, true) or tostring(message):find("too few", 1, true)
    local file = readable and io.open(path, "rb")
    local head = file and file:read(512) or ""
    if file then file:close() end
    for _, kind in ipairs(foreign) do
        if head:find(kind[1]) then
            local instead = kind[3](path)
            instead = instead and "; write " .. instead or ""
            check.fail("load: %s is %s, not a safetensors file%s", path, kind[2], instead)
        end
    end
    error(message, 0)
end

---Reads a file: the saved table; of a file from another program, its tensors by name and its metadata. Without a
---placement the tensors are local, and any rank may call it. With a placement or {lazy = true} every rank calls it and
---reads only its own part. sbp is one for all tensors, a table by name (the others are B), or f(name, shape, dtype);
---lazy tensors stay in the file until t:read{...} or load_state_dict.
---@param path string
---@param o {device: string, placement: any, sbp: any, lazy: boolean}? where the tensors go
---@return table values
---@return table? metadata of a file that flow.save did not write
function M.load(path, o)
    check_places(o)
    local ok, file, entries, metadata_list = pcall(io_.open, path, o.lazy or o.placement ~= nil)
    if not ok then describe_foreign(path, file) end
    if o.lazy or o.placement then
        local option = o.lazy and "lazy = true" or "placement = " .. tostring(o.placement)
        io_.same("load", "every rank must give the same options", {option})
    end
    local tensors = (o.placement and read_together or read_entries)(file, entries, o)
    local metadata = {}
    for i = 1, #metadata_list, 2 do metadata[metadata_list[i]] = metadata_list[i + 1] end
    if not metadata.flow then return tensors, metadata end
    local decoded, tree = pcall(json.decode, metadata.flow)
    local values = decoded and type(tree) == "table" and unpack_value(tree, tensors, path)
    if type(values) ~= "table" or values == json.null or M.is_stored(values) then
        check.fail("load: %s: its metadata is damaged", path)
    end
    return values
end

check.takes(M, {
    "load(path: string, {device: string?, placement: placement?, sbp: any?, lazy: boolean = false})",
})

return M
