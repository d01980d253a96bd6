-- data_images_spec.lua -- JPEG and PNG files, and folders of them as a dataset.
local flow = require "flow"
local pictures = require "tests.pictures"
local process = require "tests.process"
local support = require "tests.support"
local data = flow.data

local message_of = support.message_of
local files, want, distance = pictures.files, pictures.want, pictures.distance

local folder, write
setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local function picture(opts) return data.png(files.rgb, opts) end

describe("data.jpeg", function()
    for _, name in ipairs {"color", "progressive", "gray", "cmyk"} do
        it("gives the bytes that Pillow gives: " .. name, function()
            local x = data.jpeg(files[name])
            assert.are.equal("uint8", x.dtype)
            assert.are.equal(0, distance(want(name), x))
        end)
    end

    it("reads paths, bytes and tensors of bytes, in both layouts", function()
        local path = write("a.jpg", files.color)
        local x = data.jpeg(path)
        assert.are.same({3, 26, 18}, {table.unpack(x.shape)})
        assert.is_true(flow.equal(x, data.jpeg(flow.frombytes(files.color, "uint8"))))
        assert.is_true(flow.equal(x:permute(1, 2, 0), data.jpeg(path, {layout = "HWC"})))
    end)

    it("turns by EXIF's orientation, unless told not to", function()
        local turned, stored = data.jpeg(files.color), data.jpeg(files.color, {exif = false})
        assert.are.same({3, 18, 26}, {table.unpack(stored.shape)})
        assert.is_true(flow.equal(turned, stored:transpose(1, 2):flip(2)))
    end)

    it("converts to gray, RGB and RGBA", function()
        local rgb, rgba = data.jpeg(files.progressive), data.jpeg(files.progressive, {mode = "RGBA"})
        assert.is_true(flow.equal(rgb, rgba:narrow(0, 0, 3)))
        assert.are.equal(255, rgba:select(0, 3):to("int32"):min():item())
        assert.are.same({1, 18, 26}, {table.unpack(data.jpeg(files.progressive, {mode = "L"}).shape)})
        local gray = data.jpeg(files.gray)
        assert.is_true(flow.equal(gray:expand(3, 18, 26), data.jpeg(files.gray, {mode = "RGB"})))
        assert.are.equal(1, data.jpeg(files.cmyk, {mode = "L"}):size(0))
    end)

    it("refuses what is no JPEG file, or is not whole", function()
        local path = write("cut.jpg", files.color:sub(1, -100))
        assert.are.equal("jpeg: " .. path .. ": the JPEG data ends early", message_of(data.jpeg, path))
        path = write("short.jpg", files.color:sub(1, 200))
        assert.are.equal("jpeg: " .. path .. ": the JPEG data ends early", message_of(data.jpeg, path))
        path = write("other.jpg", files.rgb)
        assert.are.equal("jpeg: " .. path .. ": a PNG file; data.png reads it", message_of(data.jpeg, path))
        path = write("text.jpg", "hello, world")
        assert.are.equal("jpeg: " .. path .. ": not a JPEG file: it begins with \"hello, w\"", message_of(data.jpeg, path))
        path = write("empty.jpg", "")
        assert.are.equal("jpeg: " .. path .. ": the file is empty", message_of(data.jpeg, path))
        assert.are.equal("jpeg: " .. folder .. "/none: No such file or directory", message_of(data.jpeg, folder .. "/none"))
        assert.are.equal("jpeg: the bytes: not a JPEG file: it begins with \"\\x00\"", message_of(data.jpeg, "\0"))
        assert.are.equal("jpeg: takes a path, a string with the bytes of a file, or these as a 1-D uint8 tensor, got " ..
            "float32 [2]", message_of(data.jpeg, flow.zeros(2)))
        assert.are.equal("jpeg: mode must be one of unchanged|L|RGB|RGBA, got 'RGBB'; did you mean 'RGB'?",
            message_of(data.jpeg, path, {mode = "RGBB"}))
    end)

    it("refuses damaged data and sizes that the file cannot hold, unless it may be damaged", function()
        local at = assert(files.gray:find("\xff\xda", 1, true)) + 20
        local damaged = files.gray:sub(1, at) .. ("\xff\xd0"):rep(4) .. files.gray:sub(at + 9)
        assert.is_truthy(message_of(data.jpeg, damaged):find("^jpeg: the bytes: the JPEG data is damaged: "))
        assert.are.same({1, 18, 26}, {table.unpack(data.jpeg(damaged, {damaged = true}).shape)})
        local cut = data.jpeg(files.gray:sub(1, -30), {damaged = true})
        assert.are.same({1, 18, 26}, {table.unpack(cut.shape)})
        assert.is_true(flow.equal(want("gray"):narrow(1, 0, 8), cut:narrow(1, 0, 8)))
        local sizes = assert(files.gray:find("\xff\xc0", 1, true))
        local huge = files.gray:sub(1, sizes + 4) .. "\xff\x00\xff\x00" .. files.gray:sub(sizes + 9)
        assert.are.equal("jpeg: the bytes: 65280 x 65280 pixels are more than 268435456", message_of(data.jpeg, huge))
        huge = files.gray:sub(1, sizes + 4) .. "\x08\x00\x08\x00" .. files.gray:sub(sizes + 9)
        assert.are.equal(("jpeg: the bytes: the header claims 2048 x 2048 pixels; %d bytes cannot hold so many"):format(#huge),
            message_of(data.jpeg, huge))
        assert.are.equal(("jpeg: the bytes: the header claims 2048 x 2048 pixels; %d bytes cannot hold so many"):format(#huge),
            message_of(data.jpeg, huge, {damaged = true}))
        local deep = files.gray:sub(1, sizes + 3) .. "\12" .. files.gray:sub(sizes + 5)
        assert.is_truthy(message_of(data.jpeg, deep):find("precision 12", 1, true))
    end)
end)

describe("data.png", function()
    it("reads colours, palettes, bits and transparency", function()
        assert.are.same({3, 18, 26}, {table.unpack(picture().shape)})
        assert.are.same({4, 18, 26}, {table.unpack(data.png(files.rgba).shape)})
        assert.is_true(flow.equal(picture(), data.png(files.rgba, {mode = "RGB"})))
        assert.are.equal(0, distance(want("palette"), data.png(files.palette)))
        local bits = data.png(files.bits)
        assert.are.same({1, 18, 26}, {table.unpack(bits.shape)})
        assert.are.same({true, true}, {bits:eq(0):any():item(), bits:eq(255):any():item()})
        assert.are.equal(bits:numel(), bits:eq(0):logical_or(bits:eq(255)):to("int32"):sum():item())
        assert.are.equal(255, data.png(files.bits, {mode = "RGBA"}):select(0, 3):to("int32"):min():item())
        assert.are.equal(0, distance(want("gray_of"), picture {mode = "L"}) // 2) -- Pillow rounds, torchvision cuts
        assert.is_true(flow.equal(picture():permute(1, 2, 0), picture {layout = "HWC"}))
    end)

    it("keeps 16 bits or rounds them, when it is told which", function()
        assert.are.equal("png: the bytes: has 16 bits per channel; say dtype = \"int32\" to keep them, " ..
            "dtype = \"uint8\" for 8", message_of(data.png, files.wide))
        local wide = data.png(files.wide, {dtype = "int32"})
        local x = flow.arange(26):view(1, 1, 26) * 2000 + flow.arange(18):view(1, 18, 1) * 300
        assert.is_true(flow.equal(x:to("int32"), wide))
        local narrow = data.png(files.wide, {dtype = "uint8"})
        assert.is_true(flow.equal((x:to("float64") / 257 + 0.5):floor():to("uint8"), narrow))
        assert.is_true(flow.equal(picture():to("int32"), picture {dtype = "int32"}))
        assert.are.same({18, 26, 3}, {table.unpack(data.png(files.wide, {dtype = "int32", mode = "RGB", layout = "HWC"}).shape)})
    end)

    it("refuses what is no PNG file, or is not whole", function()
        local path = write("cut.png", files.rgb:sub(1, 300))
        assert.are.equal("png: " .. path .. ": the PNG data ends early", message_of(data.png, path))
        local some = data.png(path, {damaged = true})
        assert.are.same({3, 18, 26}, {table.unpack(some.shape)})
        assert.is_true(flow.equal(picture():narrow(1, 0, 1), some:narrow(1, 0, 1)))
        assert.are.equal("png: the bytes: a JPEG file; data.jpeg reads it", message_of(data.png, files.gray))
        local wrong = files.rgb:gsub("IDAT.", "IDAT\1", 1)
        assert.is_truthy(message_of(data.png, wrong):find("^png: the bytes: the PNG data is damaged: "))
        assert.are.equal("png: the bytes: 65536 x 65536 pixels are more than 268435456",
            message_of(data.png, pictures.png(65536, 65536, 8, 2)))
        assert.is_truthy(message_of(data.png, pictures.png(16000, 16000, 8, 2)):find(
            "^png: the bytes: the header claims 16000 x 16000 pixels; %d+ bytes cannot hold so many$"))
        assert.are.equal("png: the bytes: the PNG data is damaged: Invalid IHDR data",
            message_of(data.png, pictures.png(0, 5, 8, 2)))
    end)

    it("takes no memory for what a header claims, or for text that is packed", function()
        for _, size in ipairs {{16000, 16000}, {65535, 300}, {7, 1 << 24}} do
            local bytes = pictures.png(size[1], size[2], 8, 6)
            assert.are.equal(57, #bytes)
            assert.are.equal(("png: the bytes: the header claims %d x %d pixels; 57 bytes cannot hold so many"):format(size[1], size[2]),
                message_of(data.png, bytes, {damaged = true}))
        end
        local some = data.png(pictures.png(1000, 1000, 1, 0), {damaged = true})     -- a short file may be the beginning of one
        assert.are.equal(0, some:to("int32"):sum():item())
        -- 6 MB of "a" in deflate's fixed code: a literal, and matches of 258 bytes
        local bits = "110" .. "10010001" .. ("1100010100000"):rep(23256) .. ("0"):rep(7)
        local packed = (bits .. ("0"):rep(-#bits % 8)):gsub("........", function(byte) return string.char(tonumber(byte:reverse(), 2)) end)
        local n = 1 + 258 * 23256
        local sum = (n + 97 * n * (n + 1) // 2) % 65521 << 16 | (1 + 97 * n) % 65521
        local text = "Comment\0\0\x78\x9c" .. packed .. (">I4"):pack(sum)
        local chunk = (">I4"):pack(#text) .. "zTXt" .. text .. (">I4"):pack(pictures.crc32("zTXt" .. text))
        local path = write("text.png", files.rgb:sub(1, 33) .. chunk:rep(60) .. files.rgb:sub(34))
        local script = write("peak.lua", [[
            print(require("flow").data.png(arg[1]).shape, (io.open "/proc/self/status":read "a":match "VmHWM:%s*(%d+)"))]])
        local peak = process.output(("%s %s %s"):format(process.flowlua, script, path))
        local shape, kb = peak:match "^(%S.*%S)\t(%d+)\n"
        assert.are.equal("[3, 18, 26]", shape, peak)
        assert.is_true(os.getenv "ASAN_OPTIONS" ~= nil or tonumber(kb) < 200 * 1024, kb)
    end)
end)

describe("data.save_png", function()
    it("writes what data.png reads", function()
        local path = folder .. "/saved.png"
        for channels = 1, 4 do
            local x = flow.randint(0, 256, {channels, 7, 5}, {dtype = "uint8"})
            data.save_png(path, x)
            assert.is_true(flow.equal(x, data.png(path)))
            data.save_png(path, x:permute(1, 2, 0), {layout = "HWC"})
            assert.is_true(flow.equal(x, data.png(path)))
        end
        data.save_png(path, picture():select(0, 1))
        assert.is_true(flow.equal(picture():narrow(0, 1, 1), data.png(path)))
    end)

    it("refuses what is no image, and paths that cannot be written", function()
        local function fails(message, ...) assert.are.equal(message, message_of(data.save_png, ...)) end
        fails("save_png: takes a uint8 image [channels, height, width], got float32 [3, 4, 4]; of numbers from 0 to 1 " ..
            "write (x * 255):round():to(\"uint8\")", "a.png", flow.zeros(3, 4, 4))
        fails("save_png: takes 1 to 4 channels, got 5", "a.png", flow.zeros({5, 4, 4}, {dtype = "uint8"}))
        fails("save_png: " .. folder .. "/none/a.png: No such file or directory", folder .. "/none/a.png", picture())
    end)
end)

describe("data.save_jpeg", function()
    it("writes what data.jpeg reads, better with a higher quality", function()
        local path, before = folder .. "/saved.jpg", 256
        for _, quality in ipairs {5, 60, 100} do
            data.save_jpeg(path, data.resize(picture(), {180, 260}), {quality = quality})
            local error = (data.resize(picture(), {180, 260}):to("float32") - data.jpeg(path):to("float32")):abs():mean():item()
            assert.is_true(error < before)
            before = error
        end
        assert.is_true(before < 1, before)
        data.save_jpeg(path, picture():select(0, 0))
        assert.are.same({1, 18, 26}, {table.unpack(data.jpeg(path).shape)})
        data.save_jpeg(path, picture():permute(1, 2, 0), {layout = "HWC"})
        assert.are.same({3, 18, 26}, {table.unpack(data.jpeg(path).shape)})
    end)

    it("refuses what is no image, and paths that cannot be written", function()
        local function fails(message, ...) assert.are.equal(message, message_of(data.save_jpeg, ...)) end
        fails("save_jpeg: takes 1 or 3 channels, got 4", "a.jpg", flow.zeros({4, 4, 4}, {dtype = "uint8"}))
        fails("save_jpeg: quality must be a whole number in [1, 100], got 0", "a.jpg", picture(), {quality = 0})
        fails("save_jpeg: takes sides of at most 65500 pixels, got 1 x 65501", "a.jpg",
            flow.zeros({1, 65501}, {dtype = "uint8"}))
        fails("save_jpeg: " .. folder .. "/none/a.jpg: No such file or directory", folder .. "/none/a.jpg", picture())
    end)
end)

-- A folder with classes: two cats and a dog; and what their pixels are.
local function make_folder(name)
    os.execute(("mkdir -p %s/%s/cat %s/%s/dog"):format(folder, name, folder, name))
    for path, bytes in pairs {["cat/1.png"] = files.rgb, ["cat/2.jpeg"] = files.progressive, ["dog/1.JPG"] = files.color,
        ["cat/notes.txt"] = "x"} do
        write(name .. "/" .. path, bytes)
    end
    return folder .. "/" .. name
end

describe("data.images", function()
    local path
    setup(function() path = make_folder("pets") end)

    it("is a dataset of a folder, with its subfolders as classes", function()
        local dataset = data.images(path, {size = {18, 26}, dtype = "uint8"})
        assert.are.equal(3, #dataset)
        assert.are.same({"cat", "dog"}, dataset.classes)
        assert.are.same({"cat/1.png", "cat/2.jpeg", "dog/1.JPG"}, dataset.files)
        local batch = dataset:batch(flow.tensor {2, 0})
        assert.are.same({1, 0}, batch[2]:totable())
        assert.is_true(flow.equal(picture(), batch[1]:select(0, 1)))
        local item = dataset:get(1)
        assert.are.equal(0, distance(want("progressive"), item[1]))
        assert.are.equal(0, item[2])
        assert.are.equal(1, dataset:get(-1)[2])
        assert.is_true(flow.equal(dataset:get(-1)[1], dataset:batch(flow.tensor {0, -1})[1]:select(0, 1)))
        assert.are.equal("images: 3 of 2 classes, 18 x 26, uint8", tostring(dataset))
        assert.are.equal("images: 2, sizes of their own, float32", tostring(data.images(path .. "/cat")))
        assert.are.same({0, 3, 18, 26}, {table.unpack(dataset:batch(flow.zeros(0, {dtype = "int64"}))[1].shape)})
    end)

    it("takes chosen classes in their order, or none", function()
        local dataset = data.images(path, {classes = {"dog", "cat"}, size = 8})
        assert.are.same({0, 1, 1}, dataset:batch(flow.arange(3))[2]:totable())
        assert.are.equal(1, #data.images(path, {classes = {"dog"}, size = 8}))
        assert.are.equal(1, #data.images(path, {labels = false, size = 8}):batch(flow.arange(2)))
        local plain = data.images(path .. "/cat", {size = 8})
        assert.are.same({}, plain.classes)
        assert.are.equal(1, #plain:batch(flow.arange(2)))
        assert.are.equal(1, #plain:get(0))
    end)

    it("gives numbers of every dtype and layout, normalised or from 0 to 1", function()
        local x = picture():to("float64")
        local plain = data.images(path, {size = {18, 26}}):get(0)[1]
        assert.is_true(flow.allclose(plain:to("float64"), x / 255, {rtol = 1e-6}))
        local mean, std = flow.tensor {0.5, 0.4, 0.3}, flow.tensor {0.2, 0.3, 0.4}
        local normal = (x / 255 - mean:view(3, 1, 1)) / std:view(3, 1, 1)
        for dtype, bound in pairs {float32 = 1e-6, float16 = 2e-3, bfloat16 = 2e-2} do
            for _, layout in ipairs {"CHW", "HWC"} do
                local set = data.images(path, {size = {18, 26}, dtype = dtype, layout = layout,
                    augment = {data.normalize({0.5, 0.4, 0.3}, {0.2, 0.3, 0.4})}})
                local got = set:batch(flow.tensor {0})[1]:select(0, 0)
                assert.are.equal(dtype, got.dtype)
                if layout == "HWC" then got = got:permute(2, 0, 1) end
                assert.is_true((got:to("float64") - normal):abs():max():item() < bound)
            end
        end
        assert.are.same({2, 1, 8, 8}, {table.unpack(data.images(path, {size = 8, mode = "L"}):batch(flow.arange(2))[1].shape)})
        assert.are.same({2, 8, 8, 4}, {table.unpack(data.images(path, {size = 8, mode = "RGBA", layout = "HWC"})
            :batch(flow.arange(2))[1].shape)})
    end)

    it("decodes of a JPEG file what a crop needs, to the same bytes", function()
        for _, name in ipairs {"color", "progressive", "cmyk", "rgb"} do
            os.execute("mkdir -p " .. folder .. "/" .. name)
            write(name .. "/a.jpg", files[name])
            local whole = (name == "rgb" and data.png or data.jpeg)(files[name])
            local height, width = whole:size(1), whole:size(2)
            for _, box in ipairs {{0, 0, 5, 5}, {7, 9, 3, 8}, {height - 4, width - 6, 4, 6}, {1, 2, height - 2, width - 3}} do
                local set = data.images(folder .. "/" .. name, {dtype = "uint8", augment = {data.crop(table.unpack(box))}})
                assert.is_true(flow.equal(whole:narrow(1, box[1], box[3]):narrow(2, box[2], box[4]), set:get(0)[1]))
            end
            local set = data.images(folder .. "/" .. name, {dtype = "uint8", size = 7, exact = true})
            assert.is_true(flow.equal(data.center_crop(data.resize(whole, 7), 7), set:get(0)[1]))
        end
    end)

    it("decodes what becomes much smaller at a part of its size, close to the whole", function()
        local set = data.images(path, {size = {2, 3}, dtype = "uint8"})
        local exact = data.images(path, {size = {2, 3}, dtype = "uint8", exact = true})
        local difference = distance(set:get(1)[1], exact:get(1)[1])
        assert.is_true(difference > 0 and difference < 16, difference)
    end)

    local steps = {data.random_resized_crop(8), data.random_horizontal_flip(), data.color_jitter {hue = 0.2, contrast = 0.4}}

    it("draws by seed, epoch and position alone", function()
        local one = data.images(path, {augment = steps, workers = 1})
        local many = data.images(path, {augment = data.augment(steps), workers = 4})
        local pass = {seed = 5, epoch = 2}
        local all = one:batch(flow.tensor {0, 1, 2}, pass)[1]
        assert.is_true(flow.equal(all:index_select(0, flow.tensor {2, 0}), many:batch(flow.tensor {2, 0}, pass)[1]))
        assert.is_true(flow.equal(all:select(0, 1), many:get(1, pass)[1]))
        assert.is_false(flow.equal(all, one:batch(flow.tensor {0, 1, 2}, {seed = 5, epoch = 3})[1]))
        assert.is_false(flow.equal(all, one:batch(flow.tensor {0, 1, 2}, {seed = 6, epoch = 2})[1]))
        assert.is_true(flow.equal(one:get(0)[1], one:get(0, {seed = 0, epoch = 0})[1]))
    end)

    it("is walked by the loader", function()
        local seen = {}
        for batch in data.loader(data.images(path, {augment = steps}), {batch_size = 2, shuffle = true, seed = 1}) do
            seen[#seen + 1] = table.concat(batch[1].shape, " ")
        end
        assert.are.same({"2 3 8 8", "1 3 8 8"}, seen)
        local sizes = 0
        local own = data.images(path, {dtype = "uint8"})
        assert.is_false(pcall(function() return own.batch end))
        for batch in data.loader(own, {batch_size = 3, collate = function(items) return items end}) do
            for _, item in ipairs(batch) do sizes = sizes + item[1]:size(1) end
        end
        assert.are.equal(18 + 18 + 26, sizes)
    end)

    it("is made of records as well, with the same images", function()
        local packed = folder .. "/pets.rec"
        data.pack(path, packed)
        local from_files = data.images(path, {augment = steps})
        local all = from_files:batch(flow.arange(3), {seed = 4})
        for _, source in ipairs {packed, data.records(packed)} do
            local dataset = data.images(source, {augment = steps})
            assert.are.same({"cat", "dog"}, dataset.classes)
            assert.are.equal(3, #dataset)
            local batch = dataset:batch(flow.arange(3), {seed = 4})
            assert.is_true(flow.equal(all[1], batch[1]))
            assert.are.same({0, 0, 1}, batch[2]:totable())
        end
        data.pack({{image = files.gray:sub(1, 300)}, {image = "no image"}}, packed)
        local bad = data.images(packed, {size = 8})
        assert.are.equal("images: " .. packed .. ": record 0: the JPEG data ends early", message_of(bad.get, bad, 0))
        assert.are.equal("images: " .. packed .. ": record 1: not a JPEG or PNG file: it begins with \"no image\"",
            message_of(function() return bad:batch(flow.tensor {1})[1]:sum():item() end))
        data.pack({{label = 1}}, packed)
        assert.are.equal("images: the records have no field 'image' with the bytes of a file; data.pack(folder, path) " ..
            "makes it", message_of(data.images, packed))
    end)

    it("brings an error of a file to where the batch is used, with the file's name", function()
        local bad = make_folder("bad")
        write("bad/dog/0.jpg", files.gray:sub(1, 100))
        local dataset = data.images(bad, {size = 8})
        local message = "images: " .. bad .. "/dog/0.jpg: the JPEG data ends early"
        assert.are.equal(message, message_of(function() return dataset:batch(flow.arange(4))[1]:sum():item() end))
        assert.are.equal(message, message_of(function() dataset:get(2) end))
        assert.are.equal(0, dataset:batch(flow.tensor {0})[2]:item())
        os.remove(bad .. "/cat/1.png")
        assert.are.equal("images: " .. bad .. "/cat/1.png: No such file or directory",
            message_of(function() dataset:get(0) end))
    end)

    it("may be dropped while a batch of it is made", function()
        local batch
        do
            local dataset = data.images(path, {size = 64})
            batch = dataset:batch(flow.tensor {0, 1, 2, 0, 1, 2})
        end
        collectgarbage()
        collectgarbage()
        assert.are.equal(6, batch[1]:size(0))
        assert.is_true(batch[1]:mean():item() > 0)
    end)

    it("has errors for those alone who use the batch: none of a batch made ahead in a loop that was left", function()
        local root = make_folder("damaged")
        write("damaged/dog/2.png", "xx")
        local loader = data.loader(data.images(root, {size = 8}), {prefetch = 4})
        loader:next()
        flow.sync()
        local message = message_of(function()
            for batch in loader do batch[1]:sum():item() end
        end)
        assert.is_truthy(message:find("damaged/dog/2.png: not a JPEG or PNG file", 1, true), message)
        assert.are.equal(4, loader.position)
        local x = flow.zeros(1, 3, 8, 8)
        assert.is_false(pcall(function()            -- an update that is left out for such a batch is told of
            for batch in loader do x:add_(batch[1]) end
            flow.sync()
        end))
    end)

    it("has errors that flow.sync reports, of batches that were given and never read", function()
        make_folder("unread")
        write("unread/dog/2.png", "xx")
        local set = data.images(folder .. "/unread", {size = 8})
        for prefetch = 0, 4, 2 do
            local ok, message = pcall(function()
                for _ in data.loader(set, {prefetch = prefetch}) do end
                flow.sync()
            end)
            assert.is_false(ok)
            assert.is_truthy(message:find("unread/dog/2.png: not a JPEG or PNG file", 1, true), message)
            flow.sync()
            pcall(function()
                for batch in data.loader(set, {prefetch = prefetch}) do pcall(batch[1].totable, batch[1]) end
            end)
            flow.sync()                             -- the script has met it
        end
    end)

    it("refuses wrong folders, options and positions", function()
        local function fails(message, ...) assert.are.equal(message, message_of(data.images, ...)) end
        os.execute("mkdir -p " .. folder .. "/empty")
        fails("images: no .jpg, .jpeg or .png file is in " .. folder .. "/empty or below it", folder .. "/empty")
        fails("images: " .. folder .. "/none: No such file or directory", folder .. "/none")
        fails("images: takes a folder, a file of records, or a dataset of records, got 3", 3)
        fails("images: no image is in " .. path .. "/cats; did you mean 'cat'?", path, {classes = {"cats"}})
        fails("images: classes has 'cat' twice", path, {classes = {"cat", "cat"}})
        fails("images: a step of augment makes the size already; leave out size", path, {size = 8, augment = steps})
        fails("images: normalize gives floats; leave out it or dtype = \"uint8\"", path,
            {dtype = "uint8", augment = {data.normalize(0, 1)}})
        fails("images: size must be a whole number >= 1, or {height, width}, got 0", path, {size = 0})
        fails("images: entry 1 of the steps must be a step, as data.resize(224) gives, got 3", path, {augment = {3}})
        fails("images: unknown option 'lables'; did you mean 'labels'?", path, {lables = 8})
        local dataset = data.images(path, {size = 8})
        assert.are.equal("batch: position 3 is outside 0 to 2", message_of(dataset.batch, dataset, flow.tensor {0, 3}))
        assert.are.equal("get: position -4 is outside 0 to 2", message_of(dataset.get, dataset, -4))
        assert.are.equal("Images has no 'size'",
            message_of(function() return dataset.size end))
        assert.are.equal("Images without a size has no 'batch'",
            message_of(function() return data.images(path).batch end))
    end)
end)

describe("a function that is captured", function()
    it("takes no images, whose later calls would have those of the first", function()
        local root = process.folder()
        data.save_png(root .. "/a.png", flow.zeros(3, 4, 4):to("uint8"))
        local set, x = data.images(root, {size = 4}), flow.zeros(3, 4, 4):to("uint8")
        for what, f in pairs {
            ["images are read"] = function() return set:batch(flow.arange(1))[1] end,
            ["an image is read"] = function() return set:get(0)[1] end,
            ["an image is decoded"] = function() return data.png(root .. "/a.png") end,
            ["an image is changed"] = function(y) return data.resize(y, 2) end,
            ["an image is written"] = function(y) data.save_png(root .. "/b.png", y) return y end,
        } do
            local message = message_of(flow.capture(f), x)
            assert.is_truthy(message:find(what .. " in a function that is captured", 1, true), message)
        end
        os.execute("rm -rf " .. root)
    end)
end)
