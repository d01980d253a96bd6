-- data_images.lua -- a folder of pictures, augmented while a network learns from them: stripes that lie, or stand.
--
-- The pictures are made first. Threads read, decode, cut and mirror them beside the training; what is drawn at random
-- depends on the seed, the epoch and the picture's number alone.

local flow = require "flow"
local nn, optim, data = flow.nn, flow.optim, flow.data

local folder = os.tmpname()
os.remove(folder)

-- Stripes along an axis, with noise, as uint8 [3, 40, 40].
local function stripes(axis, phase)
    local wave = ((flow.arange(40):to("float32") / 2 + phase):sin() * 60 + 128):view(axis == 0 and {40, 1} or {1, 40})
    return (wave + flow.randn(3, 40, 40) * 20):clamp(0, 255):to("uint8")
end

flow.manual_seed(1)
for axis, class in ipairs {"lying", "standing"} do
    os.execute("mkdir -p " .. folder .. "/" .. class)
    for i = 1, 40 do data.save_png(("%s/%s/%02d.png"):format(folder, class, i), stripes(axis - 1, i)) end
end

local pictures = data.images(folder, {augment = {
    data.random_resized_crop(24, {scale = {0.3, 1}}),
    data.random_horizontal_flip(),
    data.color_jitter {brightness = 0.3, contrast = 0.3},
    data.normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}),
}})
print(#pictures, table.concat(pictures.classes, ", "))
--> 80	lying, standing

local net = nn.Sequential(
    nn.Conv2d(3, 8, 5, {stride = 2}), nn.ReLU(), nn.Conv2d(8, 8, 3, {stride = 2}), nn.ReLU(), nn.Flatten(),
    nn.Linear(8 * 4 * 4, 2))
local opt = optim.AdamW(net:parameters(), {lr = 0.005})
local train = data.loader(pictures, {batch_size = 16, shuffle = true, seed = 1})
for _ = 1, 8 do
    for batch in train do
        local loss = flow.cross_entropy(net(batch[1]), batch[2])
        opt:zero_grad()
        loss:backward()
        opt:step()
    end
end

local test = data.images(folder, {size = 24, augment = {data.normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25})}})
local all = test:batch(flow.arange(#test))
local right = net(all[1]):argmax(1):eq(all[2]):to("float32"):mean():item()
print(right > 0.9 and "told apart" or "not told apart")
--> told apart
os.execute("rm -r " .. folder)
