-- loader.lua -- batches of 64 rows of 784 floats out of 10,000, shuffled, as a data loader gives them: of tensors, through
-- a function per item, and under a training step. BENCH_FIXED=1: the step on one batch.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

local ROWS, BATCH = 10000, 64

-- The loader's next batch a call; options over those of all cases.
local function loader(options)
    local set = flow.data.tensors(flow.randn(ROWS, 1, 28, 28), flow.randint(0, 10, {ROWS}))
    local o = {batch_size = BATCH, shuffle = true, seed = 1, drop_last = true}
    for key, value in pairs(options or {}) do o[key] = value end
    return flow.data.loader(set, o)
end

local function batches(options)
    return function()
        local source = loader(options)
        return function(count)
            for _ = 1, count do source:next() end
        end
    end
end

-- Mirrors half of the images, and scales them.
local function augment(item, random)
    if random() < 0.5 then item[1] = item[1]:flip(2) end
    item[1]:mul(random:uniform(0.8, 1.2))
    return item
end

M.rows = batches()
M.augment = batches {transform = augment}
M.workers = batches {transform = augment, workers = 2}

-- A step of a CNN on one thread, on the batches that one worker makes beside it.
function M.hidden()
    local net = nn.Sequential(
        nn.Conv2d(1, 16, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    local optimizer = optim.SGD(net:parameters(), {lr = 0.01})
    local source = loader {transform = augment, workers = 1}
    local fixed = os.getenv "BENCH_FIXED" == "1" and source:next()
    source = not fixed and source
    return function(count)
        for _ = 1, count do
            local batch = fixed or source:next()
            local loss = flow.cross_entropy(net(batch[1]), batch[2])
            optimizer:zero_grad()
            loss:backward()
            optimizer:step()
        end
    end
end

return M
