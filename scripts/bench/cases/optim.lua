-- optim.lua -- one step of an optimizer, gradients given.

local flow = require "flow"

local M = {}

-- Shapes of a GPT's parameters: 4 blocks, 128 wide, context 64, 65 characters, head tied: 52 tensors, 0.8 M elements.
local function gpt_shapes()
    local d = 128
    local shapes = {{65, d}, {64, d}, {d}, {d}}
    local block = {{d}, {d}, {3 * d, d}, {3 * d}, {d, d}, {d}, {d}, {d}, {4 * d, d}, {4 * d}, {d, 4 * d}, {d}}
    for _ = 1, 4 do table.move(block, 1, #block, #shapes + 1, shapes) end
    return shapes
end

local function parameters(shapes)
    local list = {}
    for i, shape in ipairs(shapes) do
        list[i] = flow.randn(shape, {requires_grad = true})
        list[i].grad = flow.randn(shape)
    end
    return list
end

local function steps(optimizer)
    return function(count)
        for _ = 1, count do optimizer:step() end
    end
end

function M.adamw() return steps(flow.optim.AdamW(parameters(gpt_shapes()), {lr = 1e-4})) end

function M.adamw_16m() return steps(flow.optim.AdamW(parameters {{16 * 1024 * 1024}}, {lr = 1e-4})) end

function M.sgd() return steps(flow.optim.SGD(parameters(gpt_shapes()), {lr = 1e-4})) end

return M
