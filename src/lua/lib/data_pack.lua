-- data_pack.lua -- items packed into a record file: of a folder of images, a dataset, a list or an iterator.
--
-- A record file holds the items of one dataset: data.records reads it. All items have the same fields; the first one
-- says which.

local flow = require "flow"
local check = require "flow.check"
local folders = require "flow.data_folder"
local json = require "flow.json"

local io_ = flow._io

local pack = {}

local LONGEST_NAME = 255    -- bytes, as in file/record.h

-- ---- items ----

local function check_name(name)
    if type(name) ~= "string" then
        check.fail("pack: item 0: fields must have names, got a key of type %s", type(name))
    end
    if name == "" then check.fail("pack: item 0: a field has an empty name") end
    if name:find("\0", 1, true) then check.fail("pack: item 0: the name %s contains a NUL", check.quote(name)) end
    if #name > LONGEST_NAME then
        check.fail("pack: item 0: the name %s has %d bytes, more than %d", check.quote(name), #name, LONGEST_NAME)
    end
end

-- The form of items, taken from the first one: {count =, names = the sorted names, nil for lists}.
local function form_of(item)
    local form = {count = 0, names = #item == 0 and {} or nil}
    for key in next, item do
        form.count = form.count + 1
        if form.names then
            check_name(key)
            form.names[form.count] = key
        end
    end
    if form.count == 0 then check.fail("pack: item 0 has no fields") end
    if form.names then table.sort(form.names) end
    return form
end

-- An error unless the item has the fields of the first one and no others.
local function check_item(form, item, number)
    for i = 1, form.count do
        local key = form.names and form.names[i] or i
        if item[key] == nil then
            check.fail("pack: item %d has no field %s, which item 0 has", number, check.got(key))
        end
    end
    local count = 0
    for _ in next, item do count = count + 1 end
    if count == form.count then return end
    local known = {}
    for i = 1, form.count do known[form.names and form.names[i] or i] = true end
    for key in next, item do
        if not known[key] then
            check.fail("pack: item %d has the field %s, which item 0 has not", number,
                type(key) == "string" and check.quote(key) or tostring(key))
        end
    end
end

---@class flow.data.Packer what appends items to a writer
local Packer = {}
Packer.__index = Packer

function Packer:add(item)
    local number = self.count
    if type(item) ~= "table" then
        check.fail("pack: item %d must be a table of tensors, numbers, strings and booleans, got %s", number,
            check.got(item))
    end
    self.form = self.form or form_of(item)
    check_item(self.form, item, number)
    self.count = io_.record_append(self.writer, item, self.form.names)
    if self.bar then self.bar:update(self.count) end
end

-- ---- sources ----

local function has(value, name)
    local ok, method = pcall(function() return value[name] end)
    return ok and type(method) == "function"
end

local TOGETHER = 64     -- items of a dataset that gives batches

-- Row i of the fields of a batch.
local function row_of(batch, i)
    local item = {}
    for key, value in next, batch do
        if check.is_tensor(value) then item[key] = value[i - 1] else item[key] = value[i] end
    end
    return item
end

local function add_dataset(packer, dataset)
    local count = #dataset
    if has(dataset, "get") then
        for i = 0, count - 1 do packer:add(dataset:get(i)) end
        return
    end
    for first = 0, count - 1, TOGETHER do
        local last = math.min(first + TOGETHER, count)
        local batch = dataset:batch(flow.arange(first, last))
        for i = 1, last - first do packer:add(row_of(batch, i)) end
    end
end

local function add_iterator(packer, next_item)
    for item in next_item do packer:add(item) end
end

local function add_list(packer, list)
    for _, item in ipairs(list) do packer:add(item) end
end

-- ---- folders ----

-- {paths =, labels =, classes =, left_out =}; a folder without folders of images in it has no classes and no labels.
local function search(root, extensions)
    local here, problem = io_.entries("pack", root)
    if not here then check.fail("pack: %s", problem) end
    local by_class, classes, plain, left_out = folders.sort("pack", root, extensions)
    local found = {paths = plain, left_out = left_out}
    if #classes > 0 then
        found.paths, found.labels, found.classes, found.left_out = {}, {}, classes, left_out + #plain
        for i, class in ipairs(classes) do
            for _, path in ipairs(by_class[class]) do
                found.paths[#found.paths + 1], found.labels[#found.labels + 1] = path, i - 1
            end
        end
    end
    if #found.paths == 0 then
        check.fail("pack: no file in %s or below it ends in .%s", root, table.concat(extensions, ", ."))
    end
    return found
end

local FILES_TOGETHER = 128

local function add_files(packer, root, found, workers)
    for first = 1, #found.paths, FILES_TOGETHER do
        local last = math.min(first + FILES_TOGETHER - 1, #found.paths)
        local paths = table.move(found.paths, first, last, 1, {})
        local labels = found.labels and table.move(found.labels, first, last, 1, {})
        io_.record_files(packer.writer, root, paths, labels, workers)
        packer.count = last
        if packer.bar then packer.bar:update(last) end
    end
end

-- ---- pack ----

-- The plan of a source: {add = function(packer), total = items or nil, found = of a folder}.
local function plan_of(source, o)
    if type(source) == "string" then
        local found = search(source, o.extensions)
        local function add(packer) add_files(packer, source, found, o.workers) end
        return {add = add, total = #found.paths, found = found}
    elseif type(source) == "function" then
        return {add = function(packer) add_iterator(packer, source) end, total = o.total}
    elseif has(source, "get") or has(source, "batch") then
        return {add = function(packer) add_dataset(packer, source) end, total = #source}
    elseif type(source) == "table" and getmetatable(source) == nil then
        return {add = function(packer) add_list(packer, source) end, total = #source}
    end
    check.fail("pack: source must be a folder, a dataset, a list of items or a function that gives them, got %s",
        check.got(source))
end

local function metadata_text(metadata, found)
    local all = {}
    for key, value in next, metadata do all[key] = value end
    if found and found.classes then
        if all.classes ~= nil then
            check.fail("pack: the classes of a folder are its folders; leave out metadata.classes")
        end
        all.classes = found.classes
    end
    return json.encode(all)
end

local function bar_of(total, wanted)
    local shown = wanted
    if shown == nil then shown = io_.terminal_width() ~= nil end
    return total and shown and require("flow.progress").bar(total, {unit = "item"}) or nil
end

local EXTENSIONS = {"jpg", "jpeg", "png"}

---Packs items into a record file. The source is a folder of images with a folder for each class (items are {image = the
---file's bytes, label = the number of its class, name = its path}; the names of the classes go into the metadata), a
---dataset, a list of items, or a function that gives the next item and nil at the end. An item is a table of tensors,
---numbers, strings and booleans, with names or as a list; all have the same fields. The file takes its name when it is
---complete: an error leaves what was there before. workers: threads that read the files of a folder, default one per
---core; metadata: read back by records(path).metadata; extensions: of the files of a folder that are packed; total: how
---many items a function gives, for the progress bar; progress: show one, by default on a terminal.
---@param source any
---@param path string
---@param opts {workers: integer, metadata: table, extensions: string[], total: integer, progress: boolean}?
---@return {items: integer, bytes: integer, left_out: integer} left_out: files of a folder with other extensions
function pack.pack(source, path, opts)
    local o = {workers = opts.workers, total = opts.total, extensions = opts.extensions or EXTENSIONS}
    local plan = plan_of(source, o)
    local writer <close> = io_.record_writer(path, metadata_text(opts.metadata or {}, plan.found))
    local bar = bar_of(plan.total, opts.progress)
    plan.add(setmetatable({writer = writer, count = 0, bar = bar}, Packer))
    if bar then bar:clear() end
    local items, bytes = io_.record_finish(writer)
    return {items = items, bytes = bytes, left_out = plan.found and plan.found.left_out or 0}
end

check.takes(pack, {
    [[pack(source: any, path: string, {workers: integer 1..256?, metadata: list?, extensions: list?,
        total: integer >= 0?, progress: boolean?})]],
})
return pack
