-- images.lua -- batches of 32 photographs of 500 x 375 pixels, about 90 KB each: JPEG files decoded, a random resized crop
-- of 224 x 224, a flip, normalised, all on one thread. The files are made first, in BENCH_FOLDER; the peer reads the same.

local flow = require "flow"
local data = flow.data

local M = {}

local COUNT, BATCH = 64, 32

-- Waves of many colours under noise: as hard to decode as a photograph.
local function photograph(seed)
    return flow.with_generator(flow.generator(seed), function()
        local x, y = flow.arange(500):to("float32"):view(1, 1, 500), flow.arange(375):to("float32"):view(1, 375, 1)
        local c = flow.arange(3):to("float32"):view(3, 1, 1)
        local waves = (x / (c * 3 + 7) + c):sin() * (y / (c * 2 + 11)):cos() * 100 + 128
        return (waves + flow.randn(3, 375, 500) * 12):clamp(0, 255):to("uint8")
    end)
end

local function folder()
    local path = os.getenv "BENCH_FOLDER" .. "/images"
    local made = io.open(path .. "/class/made")
    if made then made:close() return path end
    os.execute(("mkdir -p '%s/class'"):format(path))
    for i = 1, COUNT do data.save_jpeg(("%s/class/%03d.jpg"):format(path, i), photograph(i), {quality = 92}) end
    assert(io.open(path .. "/class/made", "w")):close()
    return path
end

-- A batch a call.
local function batches()
    local set = data.images(folder(), {workers = 1, augment = {
        data.random_resized_crop(224), data.random_horizontal_flip(), data.normalize(data.imagenet),
    }})
    local loader = data.loader(set, {batch_size = BATCH, shuffle = true, seed = 1, prefetch = 0})
    return function(count)
        for _ = 1, count do loader:next()[1]:select(0, 0):sum():item() end
    end
end

M.batch, M.pillow = batches, batches

return M
