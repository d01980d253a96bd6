-- mnist.lua -- trains a network on images of digits.
--
--     flowlua scripts/mnist.lua FOLDER
--     flowlua scripts/mnist.lua FOLDER --net cnn          convolutions in place of a multilayer perceptron
--     flowlua --ranks 4 scripts/mnist.lua FOLDER          every rank learns from its part of a batch
--
-- FOLDER holds MNIST's four files (or others in their format), plain or compressed with gzip:
-- train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte.

local flow = require "flow"
local nn, optim, data, cli = flow.nn, flow.optim, flow.data, flow.cli

local options, _, words = cli.parse(arg, "mnist.lua FOLDER: trains a network on the IDX files in FOLDER", {
    {"--net KIND", "mlp", "mlp or cnn"},
    {"--epochs N", 5, "times through the training images"},
    {"--hidden N", 128, "hidden units of the mlp"},
    {"--batch N", 64, "images in a step"},
    {"--lr X", 1e-3, "learning rate"},
    {"--seed I", 1, "of the weights and the order of the images"},
    {"--checkpoint P", nil, "file to save the weights to at the end"},
    {"--device D", "cpu", "cpu, cuda or cuda:1"},
}, 1)
if not words[1] then cli.stop(arg, "needs the folder of the IDX files (see --help)") end

-- Several ranks share every batch; on one rank all tensors are local.
local ranks = flow.world_size() > 1 and flow.placement.all(options.device) or nil
local rows = ranks and "S(0)"

local function dataset(split)
    local images = split.images:to("float32"):unsqueeze(1) / 255   -- [count, 1, rows, columns]
    return data.tensors(images:to(options.device), split.labels:to(options.device))
end

local mnist = data.mnist(words[1])
local train, test = dataset(mnist.train), dataset(mnist.test)
local height, width = train.tensors[1]:size(2), train.tensors[1]:size(3)
local classes = mnist.train.labels:max():item() + 1

local nets = {}

function nets.mlp()
    return nn.Sequential(nn.Flatten(),
        nn.Linear(height * width, options.hidden), nn.ReLU(), nn.Linear(options.hidden, classes))
end

function nets.cnn()
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), classes))
end

local net = nets[options.net] or cli.stop(arg, ("--net is mlp or cnn, not '%s'"):format(options.net))
flow.manual_seed(options.seed)
local model = net()
if ranks then model:to_global{placement = ranks, sbp = "B"} else model:to(options.device) end
local optimizer = optim.AdamW(model:parameters(), {lr = options.lr})
flow.print(model)

local function accuracy(set)
    local _ <close> = flow.no_grad()
    local right = 0
    for batch in data.loader(set, {batch_size = 1000, placement = ranks, sbp = rows}) do
        right = right + model(batch[1]):argmax(1):eq(batch[2]):sum():item()
    end
    return right / #set
end

local loader = data.loader(train,
    {batch_size = options.batch, shuffle = true, seed = options.seed, placement = ranks, sbp = rows})
local bar = flow.progress.bar(options.epochs * #loader, {lines = options.epochs})
for epoch = 1, options.epochs do
    for batch in loader do
        local loss = flow.cross_entropy(model(batch[1]), batch[2])
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        bar:update((epoch - 1) * #loader + loader.position, function() return ("loss %.3f"):format(loss:item()) end)
    end
    bar:print(("epoch %d: test accuracy %.2f %%"):format(epoch, 100 * accuracy(test)))
end
bar:clear()

if options.checkpoint then flow.save(options.checkpoint, model:state_dict()) end
flow.print(("test accuracy %.2f %%, %.1f steps/s, %s"):format(100 * accuracy(test), bar:rate(),
    flow.progress.duration(bar:seconds())))
