-- data_augment_spec.lua -- steps that change images, beside torchvision's results, and their draws.
local flow = require "flow"
local pictures = require "tests.pictures"
local support = require "tests.support"
local data = flow.data

local message_of = support.message_of
local want, distance = pictures.want, pictures.distance

local x = data.png(pictures.files.rgb)          -- [3, 18, 26]
local height, width = 18, 26

-- The images of a batch that differ from the first.
local function different(batch)
    local count = 0
    for i = 1, batch:size(0) - 1 do count = count + (flow.equal(batch:select(0, 0), batch:select(0, i)) and 0 or 1) end
    return count
end

describe("steps on a tensor", function()
    for name, case in pairs {
        resize_7_9 = {function(y) return data.resize(y, {7, 9}) end, 1},
        resize_20_40 = {function(y) return data.resize(y, {20, 40}) end, 1},
        brightness = {function(y) return data.adjust_brightness(y, 1.4) end, 0},
        contrast = {function(y) return data.adjust_contrast(y, 0.6) end, 1},
        saturation = {function(y) return data.adjust_saturation(y, 1.7) end, 1},
        hue = {function(y) return data.adjust_hue(y, 0.2) end, 1},
        rotate = {function(y) return data.rotate(y, 30) end, 1},
    } do
        it("do what torchvision does: " .. name, function()
            local got = distance(want(name), case[1](x))
            assert.is_true(got == case[2] or got == 0, got)
        end)
    end

    it("cut, pad, flip and turn", function()
        assert.is_true(flow.equal(x:flip(2), data.horizontal_flip(x)))
        assert.is_true(flow.equal(x:flip(1), data.vertical_flip(x)))
        assert.is_true(flow.equal(x:narrow(1, 4, 10):narrow(2, 7, 12), data.center_crop(x, {10, 12})))
        assert.is_true(flow.equal(x:narrow(1, 2, 3):narrow(2, 5, 4), data.crop(x, 2, 5, 3, 4)))
        local padded = data.pad(x, {1, 2, 3, 4}, {fill = {7, 8, 9}})
        assert.are.same({3, height + 6, width + 4}, {table.unpack(padded.shape)})
        assert.is_true(flow.equal(x, padded:narrow(1, 2, height):narrow(2, 1, width)))
        assert.are.same({7, 8, 9}, padded:select(1, 0):select(1, 0):totable())
        assert.is_true(flow.equal(padded, data.pad(data.pad(x, {1, 2, 3, 4}, {fill = {7, 8, 9}}), 0)))
        local big = data.center_crop(x, {30, 10})
        assert.is_true(flow.equal(x:narrow(2, 8, 10), big:narrow(1, 6, height)))
        assert.are.equal(0, big:narrow(1, 0, 6):to("int32"):sum():item())
        local square = x:narrow(2, 0, height):contiguous()
        assert.is_true(flow.equal(square:transpose(1, 2):flip(1), data.rotate(square, 90)))
        assert.is_true(flow.equal(square:flip(1, 2), data.rotate(square, 180, {interpolation = "nearest"})))
        assert.are.same({200, 200, 200}, data.rotate(square, 45, {fill = 200}):select(1, 0):select(1, 0):totable())
    end)

    it("scale to the shorter side, and leave an image alone that has the size", function()
        assert.are.same({3, 9, 13}, {table.unpack(data.resize(x, 9).shape)})
        assert.are.same({3, 13, 9}, {table.unpack(data.resize(x:transpose(1, 2):contiguous(), 9).shape)})
        assert.is_true(flow.equal(x, data.resize(x, {height, width})))
        assert.is_true(flow.equal(x, data.resize(x, 18)))
        assert.are.equal(77, data.resize(flow.full({1, 5, 9}, 77, {dtype = "uint8"}), {200, 3}):to("int32"):max():item())
        assert.are.same({3, 1, 1}, {table.unpack(data.resize(x, 1):narrow(2, 0, 1).shape)})
    end)

    it("take 1, 2 and 4 channels, and batches", function()
        for _, channels in ipairs {1, 2, 4} do
            local y = flow.cat({x, x:flip(2)}, 0):narrow(0, 0, channels):contiguous()
            local scaled = data.resize(y, {7, 9})
            assert.is_true(flow.equal(want "resize_7_9":narrow(0, 0, 1):to("int32"):sub(scaled:narrow(0, 0, 1):to("int32"))
                :abs():le(1), flow.ones({1, 7, 9}, {dtype = "bool"})))
        end
        local batch = flow.stack({x, x:flip(2), x:flip(1)}, 0)
        local scaled = data.resize(batch, {7, 9})
        for i = 0, 2 do assert.is_true(flow.equal(scaled:select(0, i), data.resize(batch:select(0, i), {7, 9}))) end
        local gray = data.grayscale(x)
        assert.is_true(flow.equal(want "gray_of":expand(3, height, width), gray))
        assert.is_true(flow.equal(x:narrow(0, 0, 1), data.adjust_hue(x:narrow(0, 0, 1), 0.3)))
        assert.are.equal("color_jitter: takes images of 1 or 3 channels, got 2",
            message_of(data.adjust_hue, flow.zeros({2, 4, 4}, {dtype = "uint8"}), 0.3))
    end)

    it("normalise to floats", function()
        local y = data.normalize(x, data.imagenet)
        assert.are.equal("float32", y.dtype)
        local mean, std = flow.tensor(data.imagenet.mean):view(3, 1, 1), flow.tensor(data.imagenet.std):view(3, 1, 1)
        assert.is_true(flow.allclose((x:to("float32") / 255 - mean) / std, y, {atol = 1e-5}))
        assert.are.equal(-1, data.normalize(flow.zeros({1, 1, 1}, {dtype = "uint8"}), 0.5, 0.5):item())
    end)
end)

describe("random steps", function()
    local many = flow.stack({x, x, x, x, x, x, x, x}, 0)

    it("draw for each image of a batch, and again the same for a seed", function()
        for name, step in pairs {
            random_crop = data.random_crop(10), random_resized_crop = data.random_resized_crop({9, 11}),
            random_rotation = data.random_rotation(40), random_erasing = data.random_erasing {p = 1},
            color_jitter = data.color_jitter {brightness = 0.5, contrast = 0.5, saturation = 0.5, hue = 0.5},
        } do
            local augment = data.augment {step}
            local got = augment(many, {seed = 3, position = 10})
            assert.is_true(different(got) == 7, name)
            assert.is_true(flow.equal(got, augment(many, {seed = 3, position = 10})), name)
            assert.is_true(flow.equal(got:select(0, 5), augment(x, {seed = 3, position = 15})), name)
            assert.is_false(flow.equal(got, augment(many, {seed = 4, position = 10})), name)
            assert.is_false(flow.equal(got, augment(many, {seed = 3, position = 10, epoch = 1})), name)
        end
    end)

    it("draw from the generator of manual_seed without a seed", function()
        flow.manual_seed(4)
        local first, second = data.random_crop(many, 5), data.random_crop(many, 5)
        flow.manual_seed(4)
        assert.is_true(flow.equal(first, data.random_crop(many, 5)))
        assert.is_false(flow.equal(first, second))
        local before = flow.default_generator():state()
        data.resize(x, 5)
        assert.are.same(before, flow.default_generator():state())
    end)

    it("flip with their probability", function()
        local rows = x:unsqueeze(0):expand(400, 3, height, width):contiguous()
        for p, bounds in pairs {[0] = {0, 0}, [0.5] = {150, 250}, [1] = {400, 400}} do
            local flipped = 0
            local got = data.augment {data.random_horizontal_flip(p)}(rows, {seed = 2})
            for i = 0, 399 do flipped = flipped + (flow.equal(x, got:select(0, i)) and 0 or 1) end
            assert.is_true(flipped >= bounds[1] and flipped <= bounds[2], p .. ": " .. flipped)
        end
        assert.is_true(flow.equal(x:flip(1), data.random_vertical_flip(x, 1)))
        assert.is_true(flow.equal(data.grayscale(x), data.random_grayscale(x, 1)))
        assert.is_true(flow.equal(x, data.random_grayscale(x, 0)))
    end)

    it("crop inside the padded image", function()
        local y = flow.full({1, 6, 6}, 255, {dtype = "uint8"})
        local rows = y:unsqueeze(0):expand(64, 1, 6, 6):contiguous()
        local got = data.augment {data.random_crop(6, {padding = 2, fill = 9})}(rows, {seed = 1}):to("int32")
        assert.are.same({9, 255}, {got:min():item(), got:max():item()})
        assert.is_true(different(got) > 40)
        local inside = got:eq(255):to("int32"):sum({1, 2, 3})
        assert.is_true(inside:min():item() >= 16 and inside:max():item() == 36)
        assert.are.equal("random_crop: 9 x 9 do not fit into 8 x 8, with the padding (height x width)",
            message_of(data.random_crop, y, 9, {padding = 1}))
    end)

    it("keep areas and shapes of crops in their bounds", function()
        local ramp = flow.arange(100):view(1, 1, 100):expand(1, 100, 100):to("uint8"):contiguous()
        local rows = ramp:unsqueeze(0):expand(200, 1, 100, 100):contiguous()
        local got = data.augment {data.random_resized_crop(50, {scale = {0.25, 0.25}, ratio = {1, 1}})}(rows, {seed = 5})
        local widths = (got:select(2, 25):select(2, 49):to("int32") - got:select(2, 25):select(2, 0):to("int32")):flatten()
        assert.is_true(widths:min():item() >= 48 and widths:max():item() <= 50)
        local lefts = got:select(2, 25):select(2, 0):to("int32")
        assert.is_true(lefts:min():item() <= 3 and lefts:max():item() >= 46)
        local narrow = data.random_resized_crop(x, 4, {scale = {1, 1}, ratio = {5, 6}})
        assert.are.same({3, 4, 4}, {table.unpack(narrow.shape)})
    end)

    it("erase what becomes 0 when normalised", function()
        local steps = {data.random_erasing {p = 1, scale = {0.2, 0.3}}, data.normalize(data.imagenet)}
        local got = data.augment(steps)(x, {seed = 1})
        local zeros = got:abs():lt(0.01):all(0):to("int32"):sum():item()
        assert.is_true(zeros > 0.15 * height * width and zeros < 0.35 * height * width, zeros)
        local filled = data.random_erasing(x, {p = 1, scale = {0.2, 0.3}, fill = {1, 2, 3}})
        assert.are.equal(0, distance(flow.where(filled:eq(x), x, filled), filled))
    end)

    it("run in their order, whatever their number", function()
        local list = {}
        for i = 1, 16 do list[i] = data.horizontal_flip() end
        assert.is_true(flow.equal(x, data.augment(list)(x)))
        list[17] = data.normalize(0, 1)
        assert.are.equal("float32", data.augment(list)(x).dtype)
        table.insert(list, 1, data.horizontal_flip())
        assert.are.equal("augment: at most 16 steps, got 17", message_of(data.augment, list))
        local later = data.augment {data.random_crop(9), data.random_horizontal_flip(1)}(x, {seed = 7})
        assert.is_true(flow.equal(later:flip(2), data.augment {data.random_crop(9)}(x, {seed = 7})))
    end)
end)

describe("mixup", function()
    local images, labels = flow.arange(8):view(4, 2):to("float32"), flow.tensor {0, 1, 2, 1}

    it("mixes each image with the one before it, and the labels alike", function()
        local mixed, targets = data.mixup(images, labels, {alpha = 0.4, classes = 3, seed = 2})
        local part = targets[{0, 0}]:item()
        assert.is_true(part > 0 and part < 1)
        assert.is_true(flow.allclose(images * part + images:roll(1, 0) * (1 - part), mixed))
        assert.are.same({4, 3}, {table.unpack(targets.shape)})
        assert.is_true(flow.allclose(targets:sum(1), flow.ones(4)))
        local again = data.mixup(images, targets, {alpha = 0.4, seed = 2})
        assert.is_true(flow.equal(mixed, again))
    end)

    it("draws from Beta(alpha, alpha)", function()
        for _, alpha in ipairs {0.2, 1, 4} do
            local sum, squares, n = 0, 0, 300
            for i = 1, n do
                local _, targets = data.mixup(images, labels, {alpha = alpha, classes = 3, seed = i})
                local part = targets[{0, 0}]:item()
                sum, squares = sum + part, squares + (part - 0.5) ^ 2
            end
            local variance = 1 / (4 * (2 * alpha + 1))
            assert.is_true(math.abs(sum / n - 0.5) < 4 * math.sqrt(variance / n), sum / n)
            assert.is_true(math.abs(squares / n / variance - 1) < 0.35, squares / n / variance)
        end
    end)

    it("refuses labels without classes and other batches", function()
        assert.are.equal("mixup: labels are numbers; say how many classes there are, classes = 10",
            message_of(data.mixup, images, labels))
        assert.are.equal("mixup: images and labels must be of one batch, got [4, 2] and [3, 3]",
            message_of(data.mixup, images, flow.zeros(3, 3)))
        assert.are.equal("mixup: labels count from 0 to classes - 1, 1; got 2",
            message_of(data.mixup, images, labels, {classes = 2}))
        assert.are.equal("mixup: labels count from 0 to classes - 1, 2; got -1",
            message_of(data.mixup, images, labels - 1, {classes = 3}))
    end)
end)

describe("wrong arguments of steps", function()
    for _, case in ipairs {
        {"resize: size must be a whole number >= 1, or {height, width}, got 0", data.resize, 0},
        {"resize: size must be a whole number >= 1, or {height, width}, got table", data.resize, {1, 2, 3}},
        {"resize: missing argument 'size'", data.resize, x},
        {"resize: takes uint8 images [channels, height, width] or a batch of them, with 1 to 4 channels, got float32 [3, 4, 4]",
            data.resize, flow.zeros(3, 4, 4), 2},
        {"resize: takes uint8 images [channels, height, width] or a batch of them, with 1 to 4 channels, got uint8 [18, 26, 5]",
            data.resize, flow.zeros({5, 18, 26}, {dtype = "uint8"}):permute(1, 2, 0), 2, like = "channels"},
        {"random_horizontal_flip: p must be a number in [0, 1], got 2", data.random_horizontal_flip, 2},
        {"pad: padding must be a whole number >= 0, or {left and right, top and bottom}, or {left, top, right, bottom}, got -1",
            data.pad, -1},
        {"random_resized_crop: scale must be a list {least, most} of numbers above 0, got table", data.random_resized_crop, 8,
            {scale = {2, 1}}},
        {"color_jitter: hue must be in [-0.5, 0.5], got -0.6 to 0.6", data.color_jitter, {hue = 0.6}},
        {"color_jitter: brightness must be >= 0, got -1", data.color_jitter, {brightness = -1}},
        {"color_jitter: unknown option 'brightnes'; did you mean 'brightness'?", data.color_jitter, {brightnes = 1}},
        {"adjust_hue: turn must be a number in [-0.5, 0.5], got 3", data.adjust_hue, x, 3},
        {"normalize: std must be above 0, got 0", data.normalize, 0, 0},
        {"normalize: std must be above 0, got 0", data.normalize, x, {mean = 0, std = {1, 0, 1}}},
        {"augment: entry 2 of the steps must be a step, as data.resize(224) gives, got function", data.augment,
            {data.resize(3), data.random_crop}},
        {"augment: normalize must be the last step, entry 2 follows it", data.augment, {data.normalize(0, 1), data.resize(3)}},
    } do
        it(case[1], function()
            local got = message_of(table.unpack(case, 2))
            assert.is_truthy(case.like and got:find(case.like, 1, true) or got == case[1], got)
        end)
    end

    it("of a list that is called", function()
        local augment = data.augment {data.resize(3)}
        assert.are.equal("augment{resize}", tostring(augment))
        assert.are.equal("step random_erasing(0.5, 0.02, 0.33, 0.3, 3.3, 7, 7, 7, 7)", tostring(data.random_erasing {fill = 7}))
        assert.are.equal("augment: takes a tensor, got nil", message_of(augment))
        assert.are.equal("augment: unknown option 'sede'; did you mean 'seed'?", message_of(augment, x, {sede = 1}))
        assert.are.equal("augment: position must be a whole number >= 0, got -1", message_of(augment, x, {position = -1}))
    end)
end)
