-- gcn.lua -- a graph convolutional network (Kipf and Welling): two communities are told apart from four labelled nodes.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local nodes <const> = 20

-- Edges of a ring in each half and a few more; both directions and a loop at every node.
local function edges()
    local from, to = {}, {}
    local function edge(a, b)
        from[#from + 1], to[#to + 1] = a, b
        if a ~= b then from[#from + 1], to[#to + 1] = b, a end
    end
    for i = 0, nodes - 1 do
        local first = i // 10 * 10
        edge(i, i)
        edge(i, first + (i + 1) % 10)
        edge(i, first + (i + 3) % 10)
    end
    edge(2, 12)
    edge(7, 15)
    return flow.tensor(from), flow.tensor(to)
end

local GCN = nn.Module:extend("GCN")

function GCN:init(features, hidden, classes)
    self.gc1 = nn.Linear(features, hidden, {bias = false})
    self.gc2 = nn.Linear(hidden, classes, {bias = false})
end

-- Messages along the edges, weighted by the roots of both degrees and summed at their ends.
local function propagate(x, from, to, weight)
    return flow.zeros_like(x):index_add(0, to, x[from] * weight:unsqueeze(1))
end

function GCN:forward(x, from, to, weight)
    x = propagate(self.gc1(x), from, to, weight):relu()
    return propagate(self.gc2(x), from, to, weight):log_softmax(1)
end

return function(capture)
    local from, to = edges()
    local ones = flow.ones(from:size(0), {dtype = "float64"})
    local degree = flow.zeros(nodes, {dtype = "float64"}):scatter_add(0, to, ones)
    local weight = (degree[from] * degree[to]):rsqrt()
    local x, labels = fill.values({nodes, 6}, 3, 2), flow.arange(nodes) // 10
    local known = flow.tensor {1, 6, 11, 16}

    local model = fill.module(GCN(6, 8, 2))
    local optimizer = optim.Adam(model:parameters(), {lr = 0.05, weight_decay = 5e-4})
    local step = capture(function()
        optimizer:zero_grad()
        local loss = flow.nll_loss(model(x, from, to, weight)[known], labels[known])
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 20 do losses[i] = step():item() end
    local scores = model(x, from, to, weight)
    return {losses = losses, degree = degree, scores = scores[{{0, 3}}], right = scores:argmax(1):eq(labels):sum()}
end
