-- data_jsonl.lua -- files with an object or list of JSON on each line, as a dataset.

local flow = require "flow"
local check = require "flow.check"
local json = require "flow.json"

local io_ = flow._io

local M = {}

---The lines of a file; positions count from 0, and empty lines do not count.
---@class flow.data.Jsonl
---@field path string
---@field fields string[]|false
local Jsonl = {}
Jsonl.__index = Jsonl

---The lines of a file of JSON (jsonl, ndjson) as a dataset: `#dataset`, dataset:get(position) and dataset:items(). Only
---an index is in memory; a line is read when it is asked for. Files that gzip has compressed are kept in memory.
---
---With `fields` an item has these fields alone, each of which must be there, and lists of numbers are tensors: what
---flow.data.loader puts together to batches.
---@param path string
---@param opts {fields: string[]}?
function M.jsonl(path, opts)
    for _, name in ipairs(opts.fields or {}) do
        if type(name) ~= "string" then check.fail("jsonl: fields must be strings, got %s", check.got(name)) end
    end
    local lines, count = io_.lines("jsonl", path)
    return setmetatable({path = path, fields = opts.fields or false, lines = lines, count = count}, Jsonl)
end

function Jsonl:__len() return self.count end

local function fail(self, position, format, ...)
    check.fail("jsonl: %s:%d: %s", self.path, io_.line_number(self.lines, position), format:format(...))
end

local function decode(self, position)
    local ok, value = pcall(io_.json, io_.line(self.lines, position), json.null)
    if not ok then
        local what = tostring(value):gsub("^.-json: ", "", 1):gsub(" %(line %d+%)$", "")
        fail(self, position, "%s", what)
    end
    if type(value) ~= "table" or value == json.null then
        local got = value == json.null and "null" or check.got(value)
        fail(self, position, "an item is an object or a list, not %s", got)
    end
    return value
end

-- A field as an item has it.
local function field(self, position, item, name)
    local value = item[name]
    if value == nil then
        fail(self, position, "there is no field %s%s", check.quote(name), check.suggest(name, check.sorted_keys(item)))
    end
    if value == json.null then fail(self, position, "field %s is null", check.quote(name)) end
    if type(value) ~= "table" then return value end
    local ok, t = pcall(flow.tensor, value)
    if not ok then
        fail(self, position, "field %s is no tensor: %s", check.quote(name), (tostring(t):gsub("^.-:%d+: ", "", 1)))
    end
    return t
end

---The item at a position: the table of its line, or of the fields that were asked for.
---@param position integer from 0
---@return table
function Jsonl:get(position)
    if position >= self.count then
        check.fail("get: position %d is beyond the last of %d items, %d", position, self.count, self.count - 1)
    end
    local item = decode(self, position)
    if not self.fields then return item end
    local result = {}
    for _, name in ipairs(self.fields) do result[name] = field(self, position, item, name) end
    return result
end

local function step(self, position)
    if position + 1 < self.count then return position + 1, self:get(position + 1) end
end

---All items in order: for position, item in dataset:items() do
function Jsonl:items()
    return step, self, -1
end

function Jsonl:__tostring()
    return ("dataset of %d items in %s"):format(self.count, io_.clean(self.path))
end

check.takes(M, {"jsonl(path: string, {fields: list?})"})
check.methods(Jsonl, "dataset", {"get(position: integer >= 0, pass: table?)", "items()"})
check.strict("Jsonl", Jsonl, "; write dataset:get(position)")
return M
