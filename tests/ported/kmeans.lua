-- kmeans.lua -- k-means: centres that are spread at first (farthest points), then Lloyd's iterations.
local flow = require "flow"
local fill = require "tests.ported.fill"

local k <const> = 4

return function(capture)
    local x = fill.values({60, 2}, 1) + fill.integers({60, 2}, 2, 2) * 3

    local chosen = {0}
    for i = 2, k do
        local nearest = flow.cdist(x, x[flow.tensor(chosen)]):min(1)
        chosen[i] = nearest:argmax():item()
    end
    local centers = x[flow.tensor(chosen)]:clone()

    local step = capture(function(centres)
        local nearest, labels = flow.cdist(x, centres):min(1)
        local counts = flow.zeros(k, {dtype = "float64"}):index_add(0, labels, flow.ones(60, {dtype = "float64"}))
        local sums = flow.zeros(k, 2, {dtype = "float64"}):index_add(0, labels, x)
        return sums / counts:clamp(1):unsqueeze(1), nearest:square():sum(), labels
    end)
    local inertia, labels = {}, nil
    for i = 1, 6 do
        local sum
        centers, sum, labels = step(centers)
        inertia[i] = sum:item()
    end
    return {chosen = chosen, inertia = inertia, centers = centers, labels = labels}
end
