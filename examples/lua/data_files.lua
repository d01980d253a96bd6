-- data_files.lua -- a table of text and lines of JSON as datasets, and an archive for NumPy.
local flow = require "flow"
local data, nn, optim = flow.data, flow.nn, flow.optim

local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir " .. folder)
local function write(name, text)
    local file <close> = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
    return folder .. "/" .. name
end

-- Rooms, area and city of flats; one area is missing.
local path = write("flats.csv", [[
rooms, area, city,   rent
1,     30,   Berlin, 650
2,     55,   Essen,  600
3,     NA,   Berlin, 1450
4,     100,  Essen,  1050
]])
local flats = data.csv(path, {types = {city = "category"}, fill = {area = 70}})
print(table.concat(flats.city.names, ", "), flats.area.dtype, flats.area:sum():item())
--> Berlin, Essen	int64	255

-- A linear model of the rent, from columns put side by side.
flow.manual_seed(1)
local x, y = data.matrix(flats, {"rooms", "area", "city"}), data.matrix(flats, {"rent"}) / 1000
x = (x - x:mean(0)) / x:std(0)
local net = nn.Linear(3, 1)
local optimizer = optim.Adam(net:parameters(), {lr = 0.05})
for _ = 1, 300 do
    for batch in data.loader(data.tensors(x, y), {batch_size = 2, shuffle = true}) do
        optimizer:zero_grad()
        net(batch[1]):mse_loss(batch[2]):backward()
        optimizer:step()
    end
end
print(net(x):mse_loss(y):item() < 0.02)
--> true

-- Sentences with labels, a line each.
path = write("reviews.jsonl", '{"text": "good", "stars": 5}\n{"text": "poor", "stars": 1}\n')
for batch in data.loader(data.jsonl(path, {fields = {"text", "stars"}}), {batch_size = 2}) do
    print(table.concat(batch.text, " "), batch.stars)
end
--> good poor	[5, 1]  int64[2] on cpu

-- Write files for numpy.load, and read one back.
data.save_npz(folder .. "/flats.npz", {x = x, y = y})
print(data.npz(folder .. "/flats.npz").x.shape)
--> [4, 3]
os.execute("rm -r " .. folder)
