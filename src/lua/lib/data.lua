-- data.lua -- readers, datasets and the loader.
--
-- A dataset has a size (`#dataset`) and gives a list of tensors for a tensor of positions (`dataset:batch(positions)`).
-- The loader's order depends on its seed and the epoch alone: where a pass stands is (epoch, batch), whatever else
-- draws random numbers and however many ranks there are, and can be saved and taken up again. With a placement a batch
-- is global, and each rank asks the dataset for its own rows alone; nothing is communicated.
--
-- A generic `for` calls the loader itself, with the batch that it got last: so the loader can tell the loops
-- apart, and each makes a pass of its own.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io

local data = {}

-- ---- files ----

---@param path string
---@return string
local function read_file(path)
    local file <close> = io_.reader("read", path)
    local text, message = file:read("a")
    if not text then check.fail("read: %s: %s", path, message) end
    return text
end

---The bytes of one or several regular files, concatenated.
---@param paths string|string[]
---@return string
function data.read(paths)
    if type(paths) == "string" then return read_file(paths) end
    local parts = {}
    for i, path in ipairs(paths) do
        if type(path) ~= "string" then check.fail("read: path %d must be a string, got %s", i, check.got(path)) end
        parts[i] = read_file(path)
    end
    if #parts == 0 then check.fail("read: takes a path or a list of them, got a table without a list") end
    return table.concat(parts)
end

local function collect_files(result, folder, relative)
    local files, folders = io_.entries(folder .. "/" .. relative)
    if not files then check.fail("files: %s", folders) end
    local names = {}
    for _, name in ipairs(files) do names[#names + 1] = name end
    for _, name in ipairs(folders) do names[#names + 1] = name .. "/" end
    table.sort(names)
    for _, name in ipairs(names) do
        if name:sub(-1) == "/" then
            collect_files(result, folder, relative .. name)
        else
            result[#result + 1] = relative .. name
        end
    end
end

---Paths, relative to the folder and sorted, of the files in it and below it; hidden ones and links are left out.
---@param folder string
---@return string[]
function data.files(folder)
    local result = {}
    collect_files(result, folder, "")
    return result
end

---A hash of a text, as text.
---@param text string
---@return string
function data.hash(text)
    return io_.hash(text)
end

---A tensor from an IDX file (MNIST's format), plain or compressed with gzip.
---@param path string
function data.idx(path)
    return io_.idx(path)
end

local function find_idx(folder, name)
    for _, path in ipairs {name, name .. ".gz", (name:gsub("%-idx", ".idx")), (name:gsub("%-idx", ".idx")) .. ".gz"} do
        if io_.exists("mnist", folder .. "/" .. path) then return folder .. "/" .. path end
    end
    check.fail("mnist: neither %s nor %s.gz is in %s", name, name, folder)
end

local function read_split(folder, name)
    local images = data.idx(find_idx(folder, name .. "-images-idx3-ubyte"))
    local labels = data.idx(find_idx(folder, name .. "-labels-idx1-ubyte"))
    if images:dim() ~= 3 or labels:dim() ~= 1 or images:size(0) ~= labels:size(0) then
        check.fail("mnist: the %s images and labels in %s do not match: %s and %s", name, folder,
            check.shape(images), check.shape(labels))
    end
    return {images = images, labels = labels:to("int64")}
end

---The four files of MNIST: {train = {images =, labels =}, test = ...}; images uint8 [n, rows, columns].
---@param folder string
function data.mnist(folder)
    return {train = read_split(folder, "train"), test = read_split(folder, "t10k")}
end

-- ---- text ----

---Numbers of the distinct characters of a text (bytes if it is not UTF-8), from 0 in the order of their codes.
---@class flow.data.Text
---@field characters string[]
---@field tokens any tensor of uint8 or int32
local Text = {}
Text.__index = Text

---@param text string
---@return flow.data.Text
function data.text(text)
    local characters, tokens = io_.characters(text)
    local numbers = {}
    for i, character in ipairs(characters) do numbers[character] = i - 1 end
    return setmetatable({characters = characters, tokens = tokens, numbers = numbers}, Text)
end

---The numbers of a string, int64; a character that is not in the text is an error.
---@param s string
function Text:encode(s)
    local list = {}
    local pattern = utf8.len(s) and utf8.charpattern or "."
    for character in s:gmatch(pattern) do
        local number = self.numbers[character]
        if not number then check.fail("encode: the text has no character %q", character) end
        list[#list + 1] = number
    end
    return #list > 0 and flow.tensor(list, {dtype = "int64"}) or flow.zeros(0, {dtype = "int64"})
end

---The string for a tensor or list of numbers.
---@return string
function Text:decode(numbers)
    if check.is_tensor(numbers) and numbers:dim() ~= 1 then
        check.fail("decode: numbers must have one axis, got shape %s", check.shape(numbers))
    end
    local list = check.is_tensor(numbers) and numbers:totable() or numbers
    local parts = {}
    for i, number in ipairs(list) do
        if type(number) ~= "number" then
            check.fail("decode: entry %d of numbers must be a number, got %s", i, check.got(number))
        end
        parts[i] = self.characters[number + 1] or check.fail("decode: there is no character %s", tostring(number))
    end
    return table.concat(parts)
end

-- ---- datasets ----

---@class flow.data.Tensors
local Tensors = {}
Tensors.__index = Tensors

---Rows of tensors of equal length: data.tensors(images, labels).
function data.tensors(...)
    local self = setmetatable({tensors = {...}}, Tensors)
    if #self.tensors == 0 then check.fail("tensors: takes one tensor or more") end
    for i, t in ipairs(self.tensors) do
        if t:dim() == 0 or t:size(0) ~= self.tensors[1]:size(0) then
            check.fail("tensors: argument %d has shape %s, the first one %s", i, check.shape(t),
                check.shape(self.tensors[1]))
        end
    end
    return self
end

function Tensors:__len() return self.tensors[1]:size(0) end

function Tensors:batch(positions)
    local result = {}
    for i, t in ipairs(self.tensors) do result[i] = t:index_select(0, positions:to(t.device)) end
    return result
end

---@class flow.data.Windows
local Windows = {}
Windows.__index = Windows

---All pieces of `length` numbers of a 1-d tensor, each with the piece shifted by one: batches are
---{inputs [batch, length], targets [batch, length]}, int64.
---@param tokens any
---@param length integer
---@param opts {stride: integer}? distance between the beginnings of pieces, default 1
function data.windows(tokens, length, opts)
    if tokens:dim() ~= 1 or tokens:size(0) <= length then
        check.fail("windows: tokens of shape %s are too few for a window of %d and the number after it",
            check.shape(tokens), length)
    end
    local offsets = flow.arange(length + 1, {device = tokens.device})
    return setmetatable({tokens = tokens, length = length, stride = opts.stride, offsets = offsets}, Windows)
end

function Windows:__len() return (self.tokens:size(0) - self.length - 1) // self.stride + 1 end

function Windows:batch(positions)
    local places = (positions:to(self.tokens.device) * self.stride):unsqueeze(1) + self.offsets
    local pieces = self.tokens:index_select(0, places:flatten()):to("int64"):view(-1, self.length + 1)
    return {pieces:narrow(1, 0, self.length), pieces:narrow(1, 1, self.length)}
end

-- ---- the loader ----

---Where it stands is where the pass does that gave a batch last.
---@class flow.data.Loader
---@field dataset any
---@field batch_size integer
---@field epoch integer of that pass, from 0; at its end that of the next one
---@field position integer batches given in this epoch
---@field begun integer passes begun
local Loader = {}
Loader.__index = Loader

-- The rows of a batch of `count` that this rank holds.
local function own_rows(count, placement, sbp)
    return flow.arange(count, {placement = placement, sbp = sbp}):to_local():to("cpu")
end

local function check_places(o)
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("loader: placement and sbp must be given together") end
    if o.placement and not pcall(own_rows, 1, o.placement, o.sbp) then
        check.fail("loader: sbp must be S(0), rows, or B for each of the %d axes of the placement's hierarchy",
            #o.placement.hierarchy)
    end
end

local function is_dataset(value)
    local ok, batch = pcall(function() return value.batch end)
    return ok and type(value) == "table" and type(batch) == "function"
end

---Batches of a dataset. `for batch in loader do` walks one epoch, also inside a loop over the same loader;
---loader:next() continues through all epochs. batch_size counts the rows of all ranks together. With placement and sbp
---("S(0)", "B") the tensors of a batch are global. With `shuffle` every epoch has its own order, which depends on
---`seed`; the default seed is that of flow.manual_seed when the first pass begins.
---@param dataset any
---@param opts {batch_size: integer, shuffle: boolean, seed: integer, drop_last: boolean, placement: any, sbp: any}?
function data.loader(dataset, opts)
    check_places(opts)
    if not is_dataset(dataset) then
        local form = "as data.tensors(x, y) gives (#dataset and dataset:batch(positions))"
        check.fail("loader: takes a dataset, %s, got %s", form, check.got(dataset))
    end
    local self = setmetatable({
        dataset = dataset, batch_size = opts.batch_size, shuffle = opts.shuffle, seed = opts.seed or false,
        drop_last = opts.drop_last, placement = opts.placement or false, sbp = opts.sbp or false,
        epoch = 0, position = 0, begun = 0,
        pass = false,                                   -- {epoch =, position =}: the one that gave a batch last
        resumed = false,                                -- is `pass` for the next loop to go on with?
        passes = setmetatable({}, {__mode = "k"}),      -- batch -> the pass that gave it
    }, Loader)
    if #self == 0 then check.fail("loader: %d items are too few for a batch of %d", #dataset, opts.batch_size) end
    return self
end

---Batches of one epoch.
function Loader:__len()
    local count = #self.dataset
    return self.drop_last and count // self.batch_size or (count + self.batch_size - 1) // self.batch_size
end

-- A batch as global tensors, of which this rank has made its own rows.
local function global_batch(self, positions)
    local count = positions:size(0)
    local places = {placement = self.placement, sbp = self.sbp}
    local rows = own_rows(count, self.placement, self.sbp)
    local batch = self.dataset:batch(positions:index_select(0, rows))
    for i, t in ipairs(batch) do
        local shape = t.shape
        shape[1], places.dtype = count, t.dtype
        local whole = flow.empty(shape, places)
        local own = whole:to_local()
        if rows:size(0) > 0 then own:copy_(t:to(own.device)) end
        batch[i] = whole
    end
    return batch
end

local function begin(self)
    self.begun = self.begun + 1
    return {epoch = self.begun - 1, position = 0}
end

-- The seed of the order, for good once it is known.
local function seed_of(self)
    if not self.seed then self.seed = self.shuffle and flow.default_generator():state().seed or 0 end
    return self.seed
end

-- Notes that the pass gave this batch. A dataset may give the same table again: other loops need one of their own.
local function note(self, pass, batch)
    if type(batch) ~= "table" then check.fail("loader: a dataset's batch must be a table, got %s", check.got(batch)) end
    local other = self.passes[batch]
    if other and other ~= pass then
        local copy = setmetatable({}, getmetatable(batch))
        for key, value in next, batch do rawset(copy, key, value) end
        batch = copy
    end
    self.passes[batch] = pass
    return batch
end

-- The next batch of a pass, nil at its end.
local function advance(self, pass)
    self.resumed = false
    if pass.position >= #self then
        self.pass, self.epoch, self.position = false, self.begun, 0
        return nil
    end
    local first = pass.position * self.batch_size
    local count = math.min(self.batch_size, #self.dataset - first)
    local positions = self.shuffle and io_.shuffled(#self.dataset, seed_of(self), pass.epoch, first, count)
        or flow.arange(first, first + count)
    local batch = self.placement and global_batch(self, positions) or self.dataset:batch(positions)
    batch = note(self, pass, batch)
    pass.position = pass.position + 1
    self.pass, self.epoch, self.position = pass, pass.epoch, pass.position
    return batch
end

---The next batch: of the pass that gave the last one, or of a new pass after its end.
function Loader:next()
    return advance(self, self.pass or begin(self)) or advance(self, begin(self))
end

-- Called by a generic `for`. A loop that was left early is not taken up again by the next loop, unless its state was
-- loaded.
function Loader:__call(...)
    local _, last = ...
    if select("#", ...) ~= 2 or _ ~= nil or last ~= nil and not self.passes[last] then
        check.fail("loader: not a function; write for batch in loader do, or loader:next()")
    end
    if last ~= nil then return advance(self, self.passes[last]) end
    return advance(self, self.resumed and self.pass or begin(self))
end

---The position of the pass that gave the last batch, in whatever loop. To resume an outer loop, take the state before
---an inner loop over the same loader begins.
---@return {epoch: integer, position: integer, seed: integer, begun: integer}
function Loader:state()
    return {epoch = self.epoch, position = self.position, seed = seed_of(self), begun = self.begun}
end

---Continues where `state` was taken; dataset and options must be the same. The next loop, or next(), continues that
---pass; later ones begin the epochs after it. The order is the saved one, whatever flow.manual_seed was called with.
---@param state {epoch: integer, position: integer, seed: integer, begun: integer?}
function Loader:load_state(state)
    local o = check.options("load_state", state,
        {epoch = check.none, position = check.none, seed = check.none, begun = check.none})
    local epoch = check.integer("load_state", "epoch", o.epoch, 0)
    local position = check.integer("load_state", "position", o.position, 0)
    local seed = check.integer("load_state", "seed", o.seed, math.mininteger)
    local begun = o.begun == nil and epoch + 1 or o.begun
    begun = check.integer("load_state", "begun", begun, position > 0 and epoch + 1 or epoch)
    self.pass = begun > epoch and {epoch = epoch, position = position}
    self.epoch, self.position, self.seed, self.begun, self.resumed = epoch, position, seed, begun, true
end

check.takes(data, {
    "read(paths: string or list)", "files(folder: string)", "hash(text: string)", "idx(path: string)",
    "mnist(folder: string)", "text(text: string)", "tensors(...: tensor)",
    "windows(tokens: tensor, length: integer >= 1, {stride: integer >= 1 = 1})",
    [[loader(dataset: any, {batch_size: integer >= 1 = 1, shuffle: boolean = false, seed: integer?,
        drop_last: boolean = false, placement: placement?, sbp: any?})]],
})
check.define_type("positions", "a 1-D local tensor of whole numbers", function(value)
    return check.is_tensor(value) and value.ndim == 1 and not value.is_global and value.dtype:find("int") ~= nil
end)
check.methods(Text, "text", {"encode(s: string)", "decode(numbers: tensor or list)"})
check.methods(Tensors, "dataset", {"batch(positions: positions)"})
check.methods(Windows, "dataset", {"batch(positions: positions)"})
check.methods(Loader, "loader", {"next()", "state()", "load_state(state: list)"})
check.strict("Text", Text)
check.strict("Tensors", Tensors, "; write dataset:batch(positions)")
check.strict("Windows", Windows, "; write dataset:batch(positions)")
check.strict("Loader", Loader, "; write for batch in loader do, or loader:next()")
return check.strict("data", data)
