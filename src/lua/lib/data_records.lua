-- data_records.lua -- datasets of record files, as data.pack writes them.

local flow = require "flow"
local check = require "flow.check"
local json = require "flow.json"

local io_ = flow._io

local records = {}

---@class flow.data.Records
---@field fields {name: string|integer, type: string, dtype: string?, shape: integer[]?}[] of every item; shape: where
---all items have the same
---@field metadata table what was given to pack, of the first file
---@field classes string[]|false names of the labels, metadata.classes
---@field paths string[]
---@field bytes integer of the files together
---@field skipped integer corrupt records of this part that are left out
---@field part_index integer
---@field num_parts integer
local Records = {}
Records.__index = Records

local function check_paths(path)
    local paths = type(path) == "string" and {path} or path
    if #paths == 0 then check.fail("records: takes a path or a list of them, got a table without a list") end
    for i = 1, #paths do
        local one = paths[i]
        if type(one) ~= "string" then check.fail("records: path %d must be a string, got %s", i, check.got(one)) end
        if one == "" then check.fail("records: path %d is empty", i) end
        if one:find("\0", 1, true) then
            check.fail("records: path %d, %s, contains a NUL; a path cannot contain one", i, check.quote(one))
        end
    end
    return table.move(paths, 1, #paths, 1, {})
end

local function decode(path, text)
    local ok, value = pcall(json.decode, text)
    if not ok then check.fail("records: %s: the metadata is not JSON: %s", path, (value:gsub("^.-json: ", "", 1))) end
    return type(value) == "table" and value or {value = value}
end

-- The metadata of the first file; the labels of all must mean the same.
local function read_metadata(paths, texts)
    local first = decode(paths[1], texts[1])
    for i = 2, #texts do
        if texts[i] ~= texts[1] then
            local other = decode(paths[i], texts[i])
            if json.encode(other.classes or json.null) ~= json.encode(first.classes or json.null) then
                check.fail("records: %s has other classes than %s", paths[i], paths[1])
            end
        end
    end
    return first
end

-- The columns of these names, and their descriptions; all of them without a list.
local function choose(fields, names)
    if not names then return nil, fields end
    local columns, chosen, known, taken = {}, {}, {}, {}
    for i, field in ipairs(fields) do known[i] = tostring(field.name) end
    for k, name in ipairs(names) do
        for i, field in ipairs(fields) do
            if field.name == name then columns[k], chosen[k] = i, field end
        end
        if not columns[k] then
            check.fail("records: there is no field %s%s", check.got(name), check.suggest(name, known))
        end
        if taken[name] then check.fail("records: field %s is given twice", check.got(name)) end
        taken[name] = true
    end
    if #columns == 0 then check.fail("records: fields must be a list of names, got a table without a list") end
    return columns, chosen
end

---A dataset of the items of one or several record files. With part_index (from 0) and num_parts it has a part of them:
---stretches that differ in length by one item at most, so that each rank reads its own with part_index = flow.rank(),
---num_parts = flow.world_size(). A corrupt record is an error that names the file, the record and the byte where it
---begins; with corrupt = "skip" all records are checked when the files are opened and the bad ones left out, counted in
---dataset.skipped, and a file whose writer did not finish is read up to its last whole chunk. checksum = false: records
---are not checked by theirs when they are read. fields: the names of those that items have, default all. workers:
---threads that check, and that copy a batch, default one per core. The files are mapped, so they may be larger than
---memory.
---@param path string|string[]
---@param opts {part_index: integer, num_parts: integer, corrupt: string, checksum: boolean, fields: string[],
---workers: integer}?
---@return flow.data.Records
function records.records(path, opts)
    local paths = check_paths(path)
    local index, parts = opts.part_index or 0, opts.num_parts
    if index >= parts then
        check.fail("records: part_index counts from 0 to num_parts - 1, %d; got %d", parts - 1, index)
    end
    local set, count, skipped, facts =
        io_.records(paths, index, parts, opts.corrupt == "skip", opts.checksum, opts.workers)
    local columns, fields = choose(facts.fields, opts.fields)
    local metadata = read_metadata(paths, facts.metadata)
    return setmetatable({
        set = set, count = count, columns = columns or false, fields = fields, metadata = metadata,
        classes = metadata.classes or false, paths = paths, bytes = facts.bytes, skipped = skipped,
        part_index = index, num_parts = parts,
    }, Records)
end

function Records:__len() return self.count end

---The item at a position (from 0; negative ones count from the end): a table of tensors, numbers, strings and booleans.
---@param position integer
---@return table
function Records:get(position)
    return io_.record_get(self.set, position, self.columns or nil)
end

---The items at positions: a tensor of each field, whose first axis is the batch (integers become int64, other numbers
---float32), of strings a list. Without strings it returns before the values are there.
---@param positions any
---@return table
function Records:batch(positions)
    if positions.dtype ~= "int64" then positions = positions:to("int64") end
    return io_.record_batch(self.set, positions, self.columns or nil)
end

local function field_text(field)
    local shape = field.shape and tostring(field.shape) or "[?]"
    return ("%s: %s"):format(field.name, field.dtype and field.dtype .. " " .. shape or field.type)
end

local function size_text(bytes)
    local units, i = {"bytes", "KB", "MB", "GB", "TB"}, 1
    while bytes >= 1000 and i < #units do bytes, i = bytes / 1000, i + 1 end
    return (i == 1 and "%d %s" or "%.1f %s"):format(bytes, units[i])
end

function Records:__tostring()
    local parts = {}
    for i, field in ipairs(self.fields) do parts[i] = field_text(field) end
    local where = #self.paths == 1 and self.paths[1] or #self.paths .. " files"
    local text = ("records: %d items of {%s} in %s, %s"):format(self.count, table.concat(parts, ", "), where,
        size_text(self.bytes))
    if self.num_parts > 1 then text = ("%s, part %d of %d"):format(text, self.part_index, self.num_parts) end
    if self.skipped > 0 then text = ("%s, %d corrupt left out"):format(text, self.skipped) end
    return text
end

check.takes(records, {
    [[records(path: string or list, {part_index: integer >= 0?, num_parts: integer >= 1 = 1,
        corrupt: error|skip = error, checksum: boolean = true, fields: list?, workers: integer 1..256?})]],
})
check.methods(Records, "dataset", {"get(position: integer, pass: any?)", "batch(positions: positions, pass: any?)"})
check.strict("Records", Records, "; write dataset:get(position), dataset:batch(positions) or #dataset")
return records
