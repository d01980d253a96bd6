-- data_loader.lua -- a dataset that a function computes, in workers beside the training: two spirals to be told apart.
--
-- Every epoch adds other noise to the points. The random numbers depend on the seed, the epoch and the index of the
-- point, so the run is the same with any number of workers.

local flow = require "flow"
local nn, optim, data = flow.nn, flow.optim, flow.data

local COUNT = 600

-- Point i of the spirals: runs in the workers, and uses nothing from outside.
local function point(i, _, count)
    local array = require "flow.array"
    local label, along = i % 2, i / count
    local angle = along * 3 * math.pi + label * math.pi
    return {
        x = array.new({math.cos(angle) * along, math.sin(angle) * along}, "float32"),
        label = label,
    }
end

local function shake(item, random, noise)
    item.x[0] = item.x[0] + random:normal(0, noise)
    item.x[1] = item.x[1] + random:normal(0, noise)
    return item
end

local points = data.generate(COUNT, point, {args = {COUNT}})
local train = data.loader(points,
    {batch_size = 50, shuffle = true, seed = 1, transform = shake, args = {0.01}, workers = 2})

flow.manual_seed(1)
local net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
local opt = optim.AdamW(net:parameters(), {lr = 0.01})
for _ = 1, 60 do
    for batch in train do
        local loss = flow.cross_entropy(net(batch.x), batch.label)
        opt:zero_grad()
        loss:backward()
        opt:step()
    end
end

local all = data.loader(points, {batch_size = COUNT}):next()
local right = net(all.x):argmax(1):eq(all.label):to("float32"):mean():item()
print(right > 0.95 and "the spirals are told apart" or "they are not")
--> the spirals are told apart
print(points:get(3).x)
--> [-0.0050, -0.0002]  float32[2] on cpu
print(train:state().epoch, train:state().items)
--> 60	0
