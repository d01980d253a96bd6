-- grad.lua -- what recording and walking the tape costs, on 16 floats.

local flow = require "flow"

local M = {}

local LENGTH = 10

-- Seconds are per multiplication: `count` of them in chains of LENGTH.
local function chain(w_wants)
    local x = flow.randn({16}, {requires_grad = true})
    local w = flow.full({16}, 0.999, {requires_grad = w_wants})
    local ones = flow.ones(16)
    return function(count)
        for _ = 1, math.max(1, count // LENGTH) do
            local y = x
            for _ = 1, LENGTH do y = y * w end
            y:backward(ones)
            x.grad = nil
            if w_wants then w.grad = nil end
        end
    end
end

function M.chain() return chain(false) end

function M.chain_leaves() return chain(true) end

local function adds(record)
    local a, b = flow.randn({16}, {requires_grad = true}), flow.randn(16)
    return function(count)
        local _ <close> = not record and flow.no_grad() or nil
        for _ = 1, count do local _ = a + b end
    end
end

function M.forward() return adds(true) end

function M.no_grad() return adds(false) end

return M
