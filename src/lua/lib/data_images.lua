-- data_images.lua -- JPEG and PNG files: one as a tensor, folders of them as a dataset.
--
-- A batch is one task of the engine: threads of the pool read, decode and augment its images, each into its place of
-- the batch's tensor. The script goes on meanwhile; an error arrives where the tensor is used.

local flow = require "flow"
local check = require "flow.check"
local folders = require "flow.data_folder"
local augment = require "flow.data_augment"

local io_ = flow._io

local images = {}

-- ---- one image ----

-- A text that is the content of a file, not its name.
local function is_content(source)
    return source:find("^\xff\xd8\xff") or source:find("^\x89PNG\r\n\x1a\n") or source:find("\0", 1, true)
end

-- The name of the source in messages, and its bytes.
local function content_of(who, source)
    if check.is_tensor(source) then
        if source.dtype ~= "uint8" or source.ndim ~= 1 then
            check.fail("%s: takes a path, a string with the bytes of a file, or these as a 1-D uint8 tensor, got %s %s",
                who, source.dtype, check.shape(source))
        end
        return "the bytes", source:tobytes()
    end
    if is_content(source) then return "the bytes", source end
    local file <close> = io_.reader(who, source)
    local text, message = file:read("a")
    if not text then check.fail("%s: %s: %s", who, source, message) end
    return source, text
end

local function read_image(who, source, opts)
    local name, bytes = content_of(who, source)
    local set = io_.image_set {
        mode = opts.mode, as_stored = not opts.exif, damaged = opts.damaged, wide = opts.dtype == "int32",
        channels_last = opts.layout == "HWC",
    }
    return io_.image(who, name, bytes, set, opts.dtype ~= nil)
end

---The image in a JPEG file, a path or the file's bytes: uint8 [channels, height, width], or [height, width, channels]
---with layout = "HWC". mode "unchanged" gives 1 channel for gray and 3 for colours (also of CMYK), "L", "RGB" and
---"RGBA" convert. An image that EXIF data says was taken with a turned camera is turned upright, but with exif = false.
---A truncated or damaged file is an error; with `damaged` what can be decoded is taken. Values are those of Pillow and
---torchvision.
---@param source string|any
---@param opts {mode: string, layout: string, exif: boolean, damaged: boolean}?
function images.jpeg(source, opts)
    return read_image("jpeg", source, opts)
end

---The image in a PNG file, a path or the file's bytes: uint8 [channels, height, width], or [height, width, channels]
---with layout = "HWC". mode "unchanged" gives 1 (gray), 2 (gray and alpha), 3 (RGB) or 4 channels (RGBA), of a palette
---its colours; "L", "RGB" and "RGBA" convert, alpha is dropped or 255. 16 bits per channel need a dtype: "int32" keeps
---them, "uint8" rounds them to 8. EXIF's orientation is followed, but with exif = false. A truncated or damaged file is
---an error; with `damaged` what can be decoded is taken.
---@param source string|any
---@param opts {mode: string, layout: string, dtype: string, exif: boolean, damaged: boolean}?
function images.png(source, opts)
    return read_image("png", source, opts)
end

-- The image as [height, width, channels], contiguous, on this host.
local function check_image(who, x, layout, side)
    if x.dtype ~= "uint8" or x.ndim ~= 2 and x.ndim ~= 3 or x:numel() == 0 then
        check.fail("%s: takes a uint8 image [channels, height, width], got %s %s; of numbers from 0 to 1 write " ..
            "(x * 255):round():to(\"uint8\")", who, x.dtype, check.shape(x))
    end
    if x.is_global then check.fail("%s: takes a local tensor; write x:to_local()", who) end
    if x.ndim == 2 then
        x = x:unsqueeze(2)
    elseif layout == "CHW" then
        x = x:permute(1, 2, 0)
    end
    if math.max(x:size(0), x:size(1)) > side then
        check.fail("%s: takes sides of at most %d pixels, got %d x %d", who, side, x:size(0), x:size(1))
    end
    return x:to("cpu"):contiguous()
end

---Writes uint8 [channels, height, width] (or [height, width], gray), or [height, width, channels] with layout = "HWC",
---as a PNG file: 1 channel is gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha. A file that is there is replaced when all
---is written.
---@param path string
---@param x any
---@param opts {layout: string}?
function images.save_png(path, x, opts)
    x = check_image("save_png", x, opts.layout, 1000000)
    if x:size(2) > 4 then check.fail("save_png: takes 1 to 4 channels, got %d", x:size(2)) end
    io_.save_image("save_png", path, x)
end

---Writes uint8 [channels, height, width] (or [height, width], gray), or [height, width, channels] with layout = "HWC",
---as a JPEG file, of 1 (gray) or 3 channels (RGB). A file that is there is replaced when all is written.
---@param path string
---@param x any
---@param opts {quality: integer, layout: string}? quality: 1 to 100
function images.save_jpeg(path, x, opts)
    x = check_image("save_jpeg", x, opts.layout, 65500)
    if x:size(2) ~= 1 and x:size(2) ~= 3 then check.fail("save_jpeg: takes 1 or 3 channels, got %d", x:size(2)) end
    io_.save_image("save_jpeg", path, x, opts.quality)
end

-- ---- datasets ----

local EXTENSIONS = {"jpg", "jpeg", "png"}

local function check_classes(folder, wanted, by_class, names)
    local seen = {}
    for i, name in ipairs(wanted) do
        if type(name) ~= "string" then
            check.fail("images: entry %d of classes must be a name, got %s", i, check.got(name))
        end
        if seen[name] then check.fail("images: classes has %s twice", check.quote(name)) end
        if not by_class[name] then
            check.fail("images: no image is in %s/%s%s", folder, name, check.suggest(name, names))
        end
        seen[name] = true
    end
end

-- The paths, their labels (nil: there are no classes), the classes.
local function read_folder(folder, wanted)
    local by_class, names, plain = folders.sort("images", folder, EXTENSIONS)
    if wanted then
        check_classes(folder, wanted, by_class, names)
        names = wanted
    end
    if #names == 0 then
        if #plain == 0 then check.fail("images: no .jpg, .jpeg or .png file is in %s or below it", folder) end
        return plain, nil, {}
    end
    local paths, labels, classes = {}, {}, {}
    for label, name in ipairs(names) do
        classes[label] = name
        for _, path in ipairs(by_class[name]) do
            paths[#paths + 1], labels[#labels + 1] = path, label - 1
        end
    end
    return paths, labels, classes
end

---@class flow.data.Images
---@field classes string[] names of the labels, which count from 0
---@field files string[]|false of a folder: the file of each item, below it
local Images = {}
Images.__index = Images

-- Of images that have sizes of their own: single items only.
local Items = {}
Items.__index = Items

-- The size that a batch has, of steps that may not say it; adds those that `size` asks for.
local function add_size(list, size)
    if not size then return list end
    local result = {}
    for i, one in ipairs(list) do result[i] = one end
    local at = #result + 1
    if result[at - 1] and result[at - 1][1] == "normalize" then at = at - 1 end
    table.insert(result, at, augment.resize(size))
    if type(size) == "number" then table.insert(result, at + 1, augment.center_crop(size)) end
    return result
end

local function list_of(given)
    if not given then return {} end
    return given.list or given
end

-- The steps and options of an item, for _io.image_set.
local function compile(opts)
    local list = list_of(opts.augment)
    if opts.size and io_.image_size(io_.image_set(augment._compile("images", list))) then
        check.fail("images: a step of augment makes the size already; leave out size")
    end
    local compiled = augment._compile("images", add_size(list, opts.size))
    if compiled.normal and opts.dtype == "uint8" then
        check.fail("images: normalize gives floats; leave out it or dtype = \"uint8\"")
    end
    compiled.mode, compiled.dtype, compiled.as_stored = opts.mode, opts.dtype, not opts.exif
    compiled.channels_last, compiled.damaged, compiled.exact = opts.layout == "HWC", opts.damaged, opts.exact
    compiled.workers = opts.workers
    return compiled
end

-- Of a dataset of records: the source of its images, and the field of labels, if there is one.
local function open_records(set)
    local names = {}
    for _, field in ipairs(set.fields) do names[field.name] = field.type end
    if names.image ~= "string" then
        check.fail("images: the records have no field 'image' with the bytes of a file; " ..
            "data.pack(folder, path) makes it")
    end
    local label = names.label and "label" or nil
    return io_.record_source(set.set, "image", label), label
end

-- The result of f; its errors name `who`, too.
local function opened(who, f, source)
    local ok, result = pcall(f, source)
    if not ok then check.fail("%s: %s", who, (tostring(result):gsub("^[^:\n]+:%d+: ", "", 1))) end
    return result
end

local function is_records(source)
    local ok, fields = pcall(function() return source.set and source.fields end)
    return type(source) == "table" and ok and type(fields) == "table"
end

-- The source of items, their labels' names, the files of a folder, and whether there are labels.
local function open(source, opts)
    if type(source) == "string" and not io_.entries("images", source) and io_.exists("images", source) then
        source = opened("images", require "flow.data_records".records, source)
    end
    if is_records(source) then
        local items, label = open_records(source)
        if opts.classes then check.fail("images: records say their classes; leave out classes") end
        return items, source.classes or {}, false, opts.labels and label ~= nil
    end
    if type(source) ~= "string" then
        check.fail("images: takes a folder, a file of records, or a dataset of records, got %s", check.got(source))
    end
    local paths, labels, classes = read_folder(source, opts.classes)
    return io_.file_source("images", source, paths, labels), classes, paths, opts.labels and labels ~= nil
end

local channels = {L = 1, RGB = 3, RGBA = 4}

---A dataset of the JPEG and PNG images of a folder: those of each subfolder are a class, in the order of their names;
---without subfolders there are no labels. Or of the images of a file of records, as data.pack(folder, path) makes it,
---or of a dataset of records. A batch is {images, labels}: images [n, channels, height, width] in 0 to 1, or as the
---step normalize says; labels int64, left out with labels = false.
---
---`augment` is a list of steps (help(flow.data.augment)). Batches need one size: that of a step, or `size`: {height,
---width}, or a number that the shorter side gets, the middle being cut out. Without either there are single items only,
---dataset:get(position). Random steps depend on the seed and the epoch of the pass and on the position alone.
---
---JPEG files that become much smaller are decoded at a half, a quarter or an eighth of their size, but with `exact`.
---`workers` threads, default one per core, share a batch. Other options: as in data.jpeg.
---@param source string|any
---@param opts {size: integer|integer[], augment: table, classes: string[], labels: boolean, mode: string, layout:
---string, dtype: string, exif: boolean, damaged: boolean, exact: boolean, workers: integer}?
function images.images(source, opts)
    local compiled = compile(opts)
    local set = io_.image_set(compiled)
    local items, classes, paths, labelled = open(source, opts)
    local height, width = io_.image_size(set)
    return setmetatable({
        classes = classes, files = paths, _source = items, _set = set, _labelled = labelled, _height = height or false,
        _width = width or false, _channels = channels[opts.mode], _last = opts.layout == "HWC", _dtype = opts.dtype,
    }, height and Images or Items)
end

local function seed_of(pass)
    if not pass then return 0, 0 end
    return pass.seed or 0, pass.epoch or 0
end

local function get(self, position, pass)
    local seed, epoch = seed_of(pass)
    local image, label = io_.image_item(self._source, self._set, seed, epoch, position)
    if not self._labelled then return {image} end
    if not label then check.fail("images: item %d has no label; say labels = false", position) end
    return {image, label}
end

local function count(self) return io_.source_count(self._source) end

Images.__len, Items.__len = count, count

---The image of a position (negative ones count from the end) and its label, {image, label}.
---@param position integer
---@param pass {seed: integer, epoch: integer}?
function Images:get(position, pass) return get(self, position, pass) end

---The image of a position (negative ones count from the end) and its label, {image, label}.
---@param position integer
---@param pass {seed: integer, epoch: integer}?
function Items:get(position, pass) return get(self, position, pass) end

---The images of these positions and their labels, {images, labels}. It returns at once; the pool makes the values.
---@param positions any
---@param pass {seed: integer, epoch: integer}?
function Images:batch(positions, pass)
    local n, seed, epoch = positions:size(0), seed_of(pass)
    local shape = {n, self._channels, self._height, self._width}
    if self._last then shape = {n, self._height, self._width, self._channels} end
    local batch = {flow._plan.real(flow.empty, shape, {dtype = self._dtype, device = "cpu"})}
    if self._labelled then batch[2] = flow.empty(n, {dtype = "int64", device = "cpu"}) end
    io_.image_batch(self._source, self._set, positions:to("cpu"):to("int64"):contiguous(), batch[1], batch[2], seed,
        epoch)
    return batch
end

local function tostring_images(self)
    local classes = #self.classes > 0 and (" of %d classes"):format(#self.classes) or ""
    local size = self._height and ("%d x %d"):format(self._height, self._width) or "sizes of their own"
    return ("images: %d%s, %s, %s"):format(#self, classes, size, self._dtype)
end
Images.__tostring, Items.__tostring = tostring_images, tostring_images

check.takes(images, {
    [[jpeg(source: string or tensor, {mode: unchanged|L|RGB|RGBA = unchanged, layout: CHW|HWC = CHW,
        exif: boolean = true, damaged: boolean = false})]],
    [[png(source: string or tensor, {mode: unchanged|L|RGB|RGBA = unchanged, layout: CHW|HWC = CHW,
        dtype: uint8|int32?, exif: boolean = true, damaged: boolean = false})]],
    "save_png(path: string, x: tensor, {layout: CHW|HWC = CHW})",
    "save_jpeg(path: string, x: tensor, {quality: integer 1..100 = 75, layout: CHW|HWC = CHW})",
    [[images(source: any, {size: sizes?, augment: augment?, classes: list?, labels: boolean = true,
        mode: L|RGB|RGBA = RGB, layout: CHW|HWC = CHW, dtype: uint8|float16|bfloat16|float32 = float32,
        exif: boolean = true, damaged: boolean = false, exact: boolean = false, workers: integer 1..256?})]],
})
check.methods(Images, "dataset", {"get(position: integer, pass: table?)",
    "batch(positions: positions, pass: table?)"})
check.methods(Items, "dataset", {"get(position: integer, pass: table?)"})
check.strict("Images", Images, "; write dataset:batch(positions)")
check.strict("Images without a size", Items, "; write dataset:get(position)")
return images
