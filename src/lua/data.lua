-- data.lua -- readers, datasets and the loader.
--
-- A dataset has a size (`#dataset`) and gives a list of tensors for a tensor of positions (`dataset:batch(positions)`).
-- The loader's order depends on its seed and the epoch alone: where it stands is (epoch, batch), whatever else draws
-- random numbers and however many ranks there are, and can be saved and taken up again. With a placement a batch is
-- global, and each rank asks the dataset for its own rows alone; nothing is communicated.

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

---The bytes of one or several regular files, put together.
---@param paths string|string[]
---@return string
function data.read(paths)
    if type(paths) == "string" then return read_file(paths) end
    if type(paths) ~= "table" then check.fail("read: takes a path or a list of them, got %s", type(paths)) end
    local parts = {}
    for i, path in ipairs(paths) do parts[i] = read_file(path) end
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

---A number, as text, that differs when the text does.
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
        check.fail("mnist: the %s images and labels in %s do not belong together: %s and %s", name, folder,
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

---A text as numbers: every distinct character (byte, when the text is not UTF-8) has one, from 0, in order of its code.
---@class flow.data.Text
---@field characters string[]
---@field tokens any tensor of uint8 or int32
local Text = {}
Text.__index = Text

---@param text string
---@return flow.data.Text
function data.text(text)
    if type(text) ~= "string" then check.fail("text: takes a string, got %s", type(text)) end
    local characters, tokens = io_.characters(text)
    local numbers = {}
    for i, character in ipairs(characters) do numbers[character] = i - 1 end
    return setmetatable({characters = characters, tokens = tokens, numbers = numbers}, Text)
end

---Tensor (int64) of the numbers of a string; a character that the text does not have is an error.
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

---The string of a tensor or list of numbers.
---@return string
function Text:decode(numbers)
    local list = check.is_tensor(numbers) and numbers:totable() or numbers
    local parts = {}
    for i, number in ipairs(list) do
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
        check.tensor("tensors", ("argument %d"):format(i), t)
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

---All pieces of `length` numbers of a 1-d tensor, each with the piece one further on: batches are
---{inputs [batch, length], targets [batch, length]}, int64.
---@param tokens any
---@param length integer
---@param opts {stride: integer}? distance between the beginnings of pieces, default 1
function data.windows(tokens, length, opts)
    check.tensor("windows", "tokens", tokens)
    check.integer("windows", "the length", length, 1)
    local stride = check.integer("windows", "stride", check.options("windows", opts, {stride = 1}).stride, 1)
    if tokens:dim() ~= 1 or tokens:size(0) <= length then
        check.fail("windows: tokens of shape %s hold no window of %d and what follows it", check.shape(tokens), length)
    end
    local offsets = flow.arange(length + 1, {device = tokens.device})
    return setmetatable({tokens = tokens, length = length, stride = stride, offsets = offsets}, Windows)
end

function Windows:__len() return (self.tokens:size(0) - self.length - 1) // self.stride + 1 end

function Windows:batch(positions)
    local places = (positions:to(self.tokens.device) * self.stride):unsqueeze(1) + self.offsets
    local pieces = self.tokens:index_select(0, places:flatten()):to("int64"):view(-1, self.length + 1)
    return {pieces:narrow(1, 0, self.length), pieces:narrow(1, 1, self.length)}
end

-- ---- the loader ----

---@class flow.data.Loader
---@field dataset any
---@field batch_size integer
---@field epoch integer epochs begun, from 0
---@field position integer batches given in this epoch
local Loader = {}
Loader.__index = Loader

-- The rows of a batch of `count` that this rank holds.
local function own_rows(count, placement, sbp)
    return flow.arange(count, {placement = placement, sbp = sbp}):to_local():to("cpu")
end

local function check_places(o)
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("loader: placement and sbp come together") end
    if o.placement and not pcall(own_rows, 1, o.placement, o.sbp) then
        check.fail("loader: sbp must be S(0), rows, or B for each of the %d axes of the placement's hierarchy",
            #o.placement.hierarchy)
    end
end

---Batches of a dataset. `for batch in loader do` walks one epoch; loader:next() goes on for ever. batch_size counts the
---rows of all ranks together. With placement and sbp ("S(0)", "B") the tensors of a batch are global.
---@param dataset any
---@param opts {batch_size: integer, shuffle: boolean, seed: integer, drop_last: boolean, placement: any, sbp: any}?
function data.loader(dataset, opts)
    local o = check.options("loader", opts, {
        batch_size = 1, shuffle = false, seed = 0, drop_last = false, placement = check.none, sbp = check.none,
    })
    check_places(o)
    if not (type(dataset) == "table" and dataset.batch) then
        local form = "as data.tensors(x, y) gives (#dataset and dataset:batch(positions))"
        check.fail("loader: takes a dataset, %s, got %s", form, check.type(dataset))
    end
    local self = setmetatable({
        dataset = dataset, batch_size = check.integer("loader", "batch_size", o.batch_size, 1),
        shuffle = o.shuffle, seed = check.integer("loader", "seed", o.seed, math.mininteger), drop_last = o.drop_last,
        placement = o.placement or false, sbp = o.sbp or false, epoch = 0, position = 0, resumed = false,
    }, Loader)
    if #self == 0 then check.fail("loader: %d items give no batch of %d", #dataset, o.batch_size) end
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

-- The next batch of this epoch, nil at its end; then the next epoch begins.
local function advance(self)
    if self.position >= #self then
        self.epoch, self.position = self.epoch + 1, 0
        return nil
    end
    local first = self.position * self.batch_size
    local count = math.min(self.batch_size, #self.dataset - first)
    local positions = self.shuffle and io_.shuffled(#self.dataset, self.seed, self.epoch, first, count)
        or flow.arange(first, first + count)
    local batch = self.placement and global_batch(self, positions) or self.dataset:batch(positions)
    self.position = self.position + 1
    return batch
end

---The next batch, through all epochs.
function Loader:next()
    self.resumed = false
    return advance(self) or advance(self)
end

-- Called by a generic `for`. A loop that was left early is not taken up again by the next loop, unless its state was
-- loaded.
function Loader:__call(_, last)
    if last == nil and self.position > 0 and not self.resumed then self.epoch, self.position = self.epoch + 1, 0 end
    self.resumed = false
    return advance(self)
end

---Where the loader stands.
---@return {epoch: integer, position: integer, seed: integer}
function Loader:state()
    return {epoch = self.epoch, position = self.position, seed = self.seed}
end

---Goes on where `state` was taken, with a dataset and options like those of then.
function Loader:load_state(state)
    if type(state) ~= "table" then check.fail("load_state: takes a table, got %s", type(state)) end
    self.epoch = check.integer("load_state", "epoch", state.epoch, 0)
    self.position = check.integer("load_state", "position", state.position, 0)
    self.seed = check.integer("load_state", "seed", state.seed, math.mininteger)
    self.resumed = true
end

check.strict("Text", Text)
check.strict("Tensors", Tensors)
check.strict("Windows", Windows)
check.strict("Loader", Loader)
return check.strict("data", data)
