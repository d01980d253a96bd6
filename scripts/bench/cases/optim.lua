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

-- name -> {optimizer, options}: over the GPT's parameters.
local cases = {
    adamw = {"AdamW", {lr = 1e-4}}, amsgrad = {"AdamW", {lr = 1e-4, amsgrad = true}}, sgd = {"SGD", {lr = 1e-4}},
    momentum = {"SGD", {lr = 1e-4, momentum = 0.9}}, rmsprop = {"RMSprop", {lr = 1e-4}},
    rmsprop_all = {"RMSprop", {lr = 1e-4, momentum = 0.9, centered = true}}, adagrad = {"Adagrad", {lr = 1e-4}},
    adadelta = {"Adadelta", {}}, adamax = {"Adamax", {lr = 1e-4}}, nadam = {"NAdam", {lr = 1e-4}},
    radam = {"RAdam", {lr = 1e-4}}, rprop = {"Rprop", {lr = 1e-4}}, asgd = {"ASGD", {lr = 1e-4}},
    lion = {"Lion", {lr = 1e-4}}, lamb = {"LAMB", {lr = 1e-4}}, lars = {"LARS", {lr = 1e-4}},
}
for name, case in pairs(cases) do
    M[name] = function() return steps(flow.optim[case[1]](parameters(gpt_shapes()), case[2])) end
end

function M.adamw_16m() return steps(flow.optim.AdamW(parameters {{16 * 1024 * 1024}}, {lr = 1e-4})) end

-- 20 tensors of 256 x 256.
function M.momentum_20()
    local shapes = {}
    for i = 1, 20 do shapes[i] = {256, 256} end
    return steps(flow.optim.SGD(parameters(shapes), {lr = 1e-4, momentum = 0.9}))
end

return M
