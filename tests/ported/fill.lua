-- fill.lua -- numbers for the programs of this folder. tests/peer/ported.py makes the same ones, bit for bit:
-- positions are squared and multiplied in whole numbers, modulo a prime.
local flow = require "flow"

local M = {}

local PRIME <const> = 10007

-- Numbers from -0.5 to 0.5, times scale: a float64 tensor of these sizes.
function M.values(sizes, seed, scale)
    local count = 1
    for _, n in ipairs(sizes) do count = count * n end
    local i = flow.arange(count) + seed * 131
    local value = (i * i * 23 % PRIME):to("float64") / PRIME - 0.5
    return (value * (scale or 1)):view(sizes)
end

-- Whole numbers from 0 to below - 1.
function M.integers(sizes, seed, below)
    return ((M.values(sizes, seed) + 0.5) * below):to("int64")
end

-- Gives the k-th parameter of a module the numbers of the seed k; matrices are scaled by their rows, other weights are
-- around 1.
function M.module(net, dtype)
    net:to(dtype or "float64")
    local k = 0
    flow.no_grad(function()
        for name, p in net:named_parameters() do
            k = k + 1
            local rows = p.ndim > 1 and p:numel() / p:size(0)
            local value = M.values(p.shape, k, rows and 3 / math.sqrt(rows) or 0.2)
            if not rows and name:find "weight$" then value = value + 1 end
            p:copy_(value)
        end
    end)
    return net
end

return M
