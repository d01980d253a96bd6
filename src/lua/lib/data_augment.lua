-- data_augment.lua -- steps that change images: made for a list, or used on a tensor.
--
-- Each function makes a step, which data.augment and data.images take in a list: data.resize(224). With a tensor as its
-- first argument it runs the step at once: data.resize(x, 224). A step is a table: its name in the core,
-- its values, and with `random` what it draws.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io

local steps = {}

---@class flow.data.Step
local Step = {}
Step.__index = Step
Step.__name = "step"

local function step(name, values, random)
    table.insert(values, 1, name)
    values.random = random or false
    return setmetatable(values, Step)
end

function Step:__tostring()
    local values = {}
    for i = 2, #self do values[i - 1] = ("%.4g"):format(self[i]) end
    return ("step %s(%s)"):format(self[1], table.concat(values, ", "))
end

-- ---- arguments ----

local function is_list(value, sizes, test)
    if type(value) ~= "table" or getmetatable(value) ~= nil or not sizes[#value] then return false end
    for i = 1, #value do
        if not test(value[i]) then return false end
    end
    return true
end

local LARGEST = 65500       -- pixels of a side, as in a JPEG file

local function is_size(value) return math.type(value) and math.tointeger(value) and value >= 1 and value <= LARGEST end
local function is_number(value) return type(value) == "number" and value == value and math.abs(value) < 1e9 end

check.define_type("sizes", "a whole number >= 1, or {height, width}", function(value)
    return is_size(value) or is_list(value, {[2] = true}, is_size)
end)
check.define_type("fill", "a number from 0 to 255, or a list with one for each channel", function(value)
    local function is_byte(x) return is_number(x) and x >= 0 and x <= 255 end
    return is_byte(value) or is_list(value, {true, true, true, true}, is_byte)
end)
check.define_type("padding", "a whole number >= 0, or {left and right, top and bottom}, or {left, top, right, bottom}",
    function(value)
        local function is_width(x) return x == 0 or is_size(x) end
        return is_width(value) or is_list(value, {[2] = true, [4] = true}, is_width)
    end)
check.define_type("range", "a number, or {least, most}", function(value)
    return is_number(value) or is_list(value, {[2] = true}, is_number) and value[1] <= value[2]
end)
check.define_type("interval", "a list {least, most} of numbers above 0", function(value)
    return is_list(value, {[2] = true}, function(x) return is_number(x) and x > 0 end) and value[1] <= value[2]
end)
check.define_type("channels", "a number, or a list with one for each channel", function(value)
    return is_number(value) or is_list(value, {true, true, true, true}, is_number)
end)

-- height, width
local function size_of(size)
    if type(size) == "table" then return size[1], size[2] end
    return size, size
end

-- Adds four values, of a number or a list whose last one stands for those that are missing.
local function add_channels(values, given)
    local list = type(given) == "table" and given or {given}
    for i = 1, 4 do values[#values + 1] = list[i] or list[#list] end
    return values
end

-- left, top, right, bottom
local function padding_of(padding)
    if type(padding) ~= "table" then return padding, padding, padding, padding end
    return padding[1], padding[2], padding[3] or padding[1], padding[4] or padding[2]
end

-- ---- geometry ----

---Scales images: to {height, width}, or so that the shorter side becomes `size`. Bilinear, with a filter as wide as the
---image shrinks (antialiased), as torchvision. resize(224) is a step, resize(x, 224) scales a uint8 tensor [channels,
---height, width] or a batch of them; so all of these functions.
---@param size integer|integer[]
function steps.resize(size)
    if type(size) == "table" then return step("resize", {size[1], size[2]}) end
    return step("resize", {size, 0})
end

---The middle of images; a smaller one gets zeros around it.
---@param size integer|integer[]
function steps.center_crop(size)
    return step("center_crop", {size_of(size)})
end

---A part of images; beyond their edges are zeros.
function steps.crop(top, left, height, width)
    return step("crop", {top, left, height, width})
end

---Pixels around images.
---@param padding integer|integer[] for all sides, {left and right, top and bottom}, {left, top, right, bottom}
---@param opts {fill: number|number[]}?
function steps.pad(padding, opts)
    return step("pad", add_channels({padding_of(padding)}, opts.fill))
end

---A part of this size, at random.
---@param size integer|integer[]
---@param opts {padding: integer|integer[], fill: number|number[]}? padding is put around the image before
function steps.random_crop(size, opts)
    local values = {size_of(size)}
    for _, width in ipairs {padding_of(opts.padding or 0)} do values[#values + 1] = width end
    return step("random_crop", add_channels(values, opts.fill), true)
end

---A part of random area and shape, scaled to this size.
---@param size integer|integer[]
---@param opts {scale: number[], ratio: number[]}? shares of the area, {0.08, 1}; width : height, {3 / 4, 4 / 3}
function steps.random_resized_crop(size, opts)
    local height, width = size_of(size)
    local scale, ratio = opts.scale or {0.08, 1}, opts.ratio or {3 / 4, 4 / 3}
    return step("random_resized_crop", {height, width, scale[1], scale[2], ratio[1], ratio[2]}, true)
end

---Left and right exchanged.
function steps.horizontal_flip()
    return step("horizontal_flip", {1})
end

---Top and bottom exchanged.
function steps.vertical_flip()
    return step("vertical_flip", {1})
end

---Left and right exchanged, with probability p.
---@param p number
function steps.random_horizontal_flip(p)
    return step("horizontal_flip", {p}, true)
end

---Top and bottom exchanged, with probability p.
---@param p number
function steps.random_vertical_flip(p)
    return step("vertical_flip", {p}, true)
end

local function rotation(low, high, opts, random)
    return step("rotate", add_channels({low, high, opts.interpolation == "nearest" and 1 or 0}, opts.fill), random)
end

---Turned around the middle, against the clock; the size stays.
---@param degrees number
---@param opts {interpolation: string, fill: number|number[]}?
function steps.rotate(degrees, opts)
    return rotation(degrees, degrees, opts)
end

---Turned by a random angle from -degrees to degrees, or between two.
---@param degrees number|number[]
---@param opts {interpolation: string, fill: number|number[]}?
function steps.random_rotation(degrees, opts)
    if type(degrees) == "table" then return rotation(degrees[1], degrees[2], opts, true) end
    return rotation(-degrees, degrees, opts, true)
end

-- ---- colours ----

local changes = {"brightness", "contrast", "saturation", "hue"}

local function jitter(given, random)
    local values = {}
    for _, name in ipairs(changes) do
        local range, middle = given[name], name == "hue" and 0 or 1
        local low, high = middle, middle
        if type(range) == "table" then
            low, high = range[1], range[2]
        elseif range then
            if range < 0 then check.fail("color_jitter: %s must be >= 0, got %s", name, range) end
            low, high = name == "hue" and -range or math.max(0, 1 - range), middle + range
        end
        local least, most = name == "hue" and -0.5 or 0, name == "hue" and 0.5 or math.huge
        if low < least or high > most then
            check.fail("color_jitter: %s must be in [%s, %s], got %s to %s", name, least, most, low, high)
        end
        values[#values + 1], values[#values + 2] = low, high
    end
    return step("color_jitter", values, random)
end

---Brightness, contrast, saturation and hue changed at random, in random order. A number b means a factor from
---max(0, 1 - b) to 1 + b, for the hue -b to b; {least, most} says it.
---@param opts {brightness: number|number[], contrast: number|number[], saturation: number|number[],
---hue: number|number[]}?
function steps.color_jitter(opts)
    return jitter(opts, true)
end

---Every value times `factor`.
---@param factor number
function steps.adjust_brightness(factor)
    return jitter {brightness = {factor, factor}}
end

---Every difference from the mean gray times `factor`.
---@param factor number
function steps.adjust_contrast(factor)
    return jitter {contrast = {factor, factor}}
end

---Every difference from the pixel's gray times `factor`.
---@param factor number
function steps.adjust_saturation(factor)
    return jitter {saturation = {factor, factor}}
end

---Hues turned; 1 is the whole circle.
---@param turn number
function steps.adjust_hue(turn)
    return jitter {hue = {turn, turn}}
end

---Grays, in as many channels.
function steps.grayscale()
    return step("grayscale", {1})
end

---Grays, with probability p.
---@param p number
function steps.random_grayscale(p)
    return step("grayscale", {p}, true)
end

---A rectangle is filled, with probability p (cutout). Without `fill` it becomes 0 after the step `normalize`, where
---there is one.
---@param opts {p: number, scale: number[], ratio: number[], fill: number|number[]}? shares of the area, {0.02, 0.33};
---height : width, {0.3, 3.3}
function steps.random_erasing(opts)
    local scale, ratio = opts.scale or {0.02, 0.33}, opts.ratio or {0.3, 3.3}
    local result = step("random_erasing", {opts.p, scale[1], scale[2], ratio[1], ratio[2]}, true)
    result.open = opts.fill == nil
    return add_channels(result, opts.fill or 0)
end

---Numbers (x / 255 - mean) / std of each channel, float32. The last step of a list. data.imagenet is {mean =, std =} of
---ImageNet.
---@param mean number|number[]
---@param std number|number[]
function steps.normalize(mean, std)
    local values = add_channels(add_channels({}, mean), std)
    for i = 5, 8 do
        if values[i] <= 0 then check.fail("normalize: std must be above 0, got %s", values[i]) end
    end
    return step("normalize", values)
end

-- ---- lists of steps ----

---@class flow.data.Augment
local Augment = {}
Augment.__index = Augment

local is_augment

local MOST = 16     -- steps of a list

-- The steps that the core runs, and the one that normalises, if there is one.
local function sort_steps(who, list)
    local result, last = {}, nil
    for i, one in ipairs(list) do
        if getmetatable(one) ~= Step then
            check.fail("%s: entry %d of the steps must be a step, as data.resize(224) gives, got %s", who, i,
                check.got(one))
        end
        if last then check.fail("%s: normalize must be the last step, entry %d follows it", who, i) end
        if one[1] == "normalize" then last = one else result[#result + 1] = one end
    end
    if #result > MOST then check.fail("%s: at most %d steps, got %d", who, MOST, #result) end
    return result, last
end

-- Sets the fill of erased parts: the mean, which becomes 0.
local function fill_erased(list, last)
    for i, one in ipairs(list) do
        if one[1] == "random_erasing" and one.open and last then
            local copy = step("random_erasing", {table.unpack(one, 2)}, true)
            for c = 1, 4 do copy[#copy - 4 + c] = math.min(255, math.max(0, last[1 + c] * 255)) end
            list[i] = copy
        end
    end
    return list
end

---The table that _io.image_set takes, of a list of steps: its fields `steps`, `scale`, `shift` and `normal`, true where
---a step normalises; `random` where one draws.
---@param who string
---@param list table
function steps._compile(who, list)
    if is_augment(list) then list = list.list end
    local run, last = sort_steps(who, list)
    local result = {steps = fill_erased(run, last), scale = {}, shift = {}, normal = last ~= nil, random = false}
    for _, one in ipairs(run) do result.random = result.random or one.random end
    for c = 1, 4 do
        local mean, std = last and last[1 + c] or 0, last and last[5 + c] or 1
        result.scale[c], result.shift[c] = 1 / (255 * std), -mean / std
    end
    return result
end

---Images changed by a list of steps: data.augment{data.random_resized_crop(224), data.random_horizontal_flip()}. Called
---with a uint8 tensor [channels, height, width], or a batch of them, it gives the changed one; data.images takes it as
---its option `augment`. At random it draws from the generator of flow.manual_seed, or with {seed =, epoch =, position
---=} as an item of a dataset does.
---@param list table
function steps.augment(list)
    local compiled = steps._compile("augment", list)
    if not compiled.normal then compiled.scale, compiled.shift = nil, nil end
    compiled.dtype = compiled.normal and "float32" or "uint8"
    local self = {list = list, compiled = compiled, set = io_.image_set(compiled)}
    return setmetatable(self, Augment)
end

local function check_images(who, x)
    if not check.is_tensor(x) then check.fail("%s: takes a tensor, got %s", who, check.got(x)) end
    local channels = x.ndim >= 3 and x:size(-3)
    if x.dtype ~= "uint8" or x.ndim ~= 3 and x.ndim ~= 4 or channels < 1 or channels > 4 or x:numel() == 0 then
        check.fail("%s: takes uint8 images [channels, height, width] or a batch of them, with 1 to 4 channels, " ..
            "got %s %s", who, x.dtype, check.shape(x))
    end
    if x.is_global or x.device ~= "cpu" then check.fail("%s: takes a local tensor on the CPU", who) end
    return x:detach():contiguous()
end

local function run(who, self, x, draw)
    x = check_images(who, x)
    local o = check.options(who, draw or {}, {seed = check.none, epoch = 0, position = 0})
    local seed = o.seed
    if seed == nil then
        seed = self.compiled.random and flow.randint(0, math.maxinteger, 1, {device = "cpu"}):item() or 0
    end
    return io_.augment(self.set, x, check.integer(who, "seed", seed, math.mininteger),
        check.integer(who, "epoch", o.epoch, 0), check.integer(who, "position", o.position, 0))
end

function Augment:__call(x, draw)
    return run("augment", self, x, draw)
end

function Augment:__tostring()
    local names = {}
    for i, one in ipairs(self.list) do names[i] = one[1] end
    return ("augment{%s}"):format(table.concat(names, ", "))
end

-- ---- batches ----

-- A number from the gamma distribution of this shape (Marsaglia and Tsang, "A simple method for generating gamma
-- variables", 2000), drawn with uniform numbers.
local function draw_gamma(shape, uniform)
    if shape < 1 then return draw_gamma(shape + 1, uniform) * (1 - uniform()) ^ (1 / shape) end
    local d = shape - 1 / 3
    local c = 1 / math.sqrt(9 * d)
    while true do
        local normal = math.sqrt(-2 * math.log(1 - uniform())) * math.cos(2 * math.pi * uniform())
        local v = (1 + c * normal) ^ 3
        if v > 0 and math.log(1 - uniform()) < 0.5 * normal ^ 2 + d - d * v + d * math.log(v) then return d * v end
    end
end

-- Uniform numbers in [0, 1) of a generator, the current one without a seed.
local function uniform_of(seed)
    local function draw() return flow._plan.real(flow.rand, 64, {dtype = "float64", device = "cpu"}):totable() end
    local numbers = seed and flow.with_generator(flow.generator(seed), draw) or draw()
    local at = 0
    return function()
        at = at % #numbers + 1
        return numbers[at]
    end
end

-- Those on a device are not looked at, as that would wait for it.
local function check_labels(labels, classes)
    if labels.device ~= "cpu" or labels:numel() == 0 then return end
    local least, most = labels:min():item(), labels:max():item()
    if least >= 0 and most < classes then return end
    check.fail("mixup: labels count from 0 to classes - 1, %d; got %d", classes - 1, least < 0 and least or most)
end

---Every image of a batch mixed with the one before it, and the labels alike (mixup, arXiv:1710.09412): gives images
---lambda * x + (1 - lambda) * other and float32 targets [n, classes], for flow.cross_entropy. lambda is drawn from
---Beta(alpha, alpha), once per batch; `seed` fixes it.
---@param images any floats [n, ...]
---@param labels any int64 [n], or floats [n, classes]
---@param opts {alpha: number, classes: integer?, seed: integer?}
function steps.mixup(images, labels, opts)
    local targets = labels
    if labels.dtype:find("int") then
        if not opts.classes then
            check.fail("mixup: labels are numbers; say how many classes there are, classes = 10")
        end
        check_labels(labels, opts.classes)
        targets = labels:unsqueeze(-1):eq(flow.arange(opts.classes):to(labels.device)):to("float32")
    end
    if images.ndim == 0 or labels.ndim == 0 or images:size(0) ~= labels:size(0) then
        check.fail("mixup: images and labels must be of one batch, got %s and %s", check.shape(images),
            check.shape(labels))
    end
    local uniform = uniform_of(opts.seed)
    local a, b = draw_gamma(opts.alpha, uniform), draw_gamma(opts.alpha, uniform)
    local part = a + b > 0 and a / (a + b) or 0.5
    return images * part + images:roll(1, 0) * (1 - part), targets * part + targets:roll(1, 0) * (1 - part)
end

-- ---- signatures ----

local signatures = {
    "resize(size: sizes)", "center_crop(size: sizes)",
    "crop(top: integer, left: integer, height: integer 1..65500, width: integer 1..65500)",
    "pad(padding: padding, {fill: fill = 0})",
    "random_crop(size: sizes, {padding: padding?, fill: fill = 0})",
    "random_resized_crop(size: sizes, {scale: interval?, ratio: interval?})",
    "horizontal_flip()", "vertical_flip()",
    "random_horizontal_flip(p: number 0..1 = 0.5)", "random_vertical_flip(p: number 0..1 = 0.5)",
    "rotate(degrees: number, {interpolation: nearest|bilinear = bilinear, fill: fill = 0})",
    "random_rotation(degrees: range, {interpolation: nearest|bilinear = bilinear, fill: fill = 0})",
    "color_jitter({brightness: range?, contrast: range?, saturation: range?, hue: range?})",
    "adjust_brightness(factor: number >= 0)", "adjust_contrast(factor: number >= 0)",
    "adjust_saturation(factor: number >= 0)", "adjust_hue(turn: number -0.5..0.5)",
    "grayscale()", "random_grayscale(p: number 0..1 = 0.1)",
    "random_erasing({p: number 0..1 = 0.5, scale: interval?, ratio: interval?, fill: fill?})",
    "normalize(mean: channels, std: channels)",
}

-- Called with a tensor, a step is run on it at once.
local function with_tensor(name, make)
    return check.stands_for(function(...)
        if not check.is_tensor((...)) then return make(...) end
        return run(name, steps.augment {make(select(2, ...))}, (...))
    end, make)
end

check.takes(steps, signatures)
for _, usage in ipairs(signatures) do
    local name = usage:match("^[%w_]+")
    steps[name] = with_tensor(name, steps[name])
end
check.takes(steps, {
    "augment(list: list)",
    "mixup(images: tensor, labels: tensor, {alpha: number >= 0.001 = 0.2, classes: integer >= 1?, seed: integer?})",
})
is_augment = function(value) return getmetatable(value) == Augment end
check.define_type("augment", "a list of steps, or what data.augment gives", function(value)
    return is_augment(value) or check.is("list", value)
end)
check.strict("Augment", Augment, "; write augment(x)")

---Mean and standard deviation of ImageNet's channels, for normalize.
steps.imagenet = {mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225}}

return steps
