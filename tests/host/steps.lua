-- steps.lua -- what optimizer.c prints, by flow.optim: M.of(kind, options, sbps), and the cases that both are run with.
local flow = require "flow"

local M = {}

-- Kind, options in C and in Lua.
M.cases = {
    {"SGD", "lr=0.01, weight_decay=0.1", {lr = 0.01, weight_decay = 0.1}},
    {"SGD", "lr=0.01, momentum=0.9, nesterov=true", {lr = 0.01, momentum = 0.9, nesterov = true}},
    {"Adam", "lr=0.1, beta1=0.8", {lr = 0.1, betas = {0.8, 0.999}}},
    {"Adam", "amsgrad=true, maximize=true", {amsgrad = true, maximize = true}},
    {"AdamW", "lr=0.1", {lr = 0.1}},
    {"RMSprop", "", {}},
    {"RMSprop", "centered=true, momentum=0.9", {centered = true, momentum = 0.9}},
    {"Adagrad", "initial_accumulator_value=0.5, lr_decay=0.1", {initial_accumulator_value = 0.5, lr_decay = 0.1}},
    {"Adadelta", "rho=0.8", {rho = 0.8}},
    {"Adamax", "", {}},
    {"NAdam", "momentum_decay=0.01", {momentum_decay = 0.01}},
    {"RAdam", "lr=0.1", {lr = 0.1}},
    {"Rprop", "eta_minus=0.3, step_size_max=10", {etas = {0.3, 1.2}, step_sizes = {1e-6, 10}}},
    {"ASGD", "lr=0.1, t0=1", {lr = 0.1, t0 = 1}},
    {"Lion", "weight_decay=0.1", {weight_decay = 0.1}},
    {"LAMB", "lr=0.1, beta2=0.9, weight_decay=0.1", {lr = 0.1, betas = {0.9, 0.9}, weight_decay = 0.1}},
    {"LAMB", "", {}},
    {"LARS", "trust_coefficient=0.1, momentum=0.5", {trust_coefficient = 0.1, momentum = 0.5}},
    {"LARS", "", {}},
}

local shapes = {{2, 3}, {4}, {5}}

-- The parameters. sbps: nil, or of each.
local function make(sbps)
    local params = {}
    for k, shape in ipairs(shapes) do
        local count = shape[1] * (shape[2] or 1)
        local p = (flow.arange(1, count + 1):to("float32") / (k + 1)):view(shape)
        if sbps then p = p:to_global{placement = flow.placement.all "cpu", sbp = "B"}:to_global{sbp = sbps[k]} end
        p.requires_grad = k < 3
        params[k] = p
    end
    return params
end

local function loss(p, k, global)
    local cube = p * p * p
    if global then
        cube = flow.ones({5, table.unpack(shapes[k])}, {placement = flow.placement.all "cpu", sbp = "S(0)"}) * cube
    end
    return cube:sum()
end

function M.of(kind, options, sbps)
    local params, lines = make(sbps), {}
    local optimizer = flow.optim[kind](params, options)
    for step = 1, 4 do
        optimizer:zero_grad()
        for k = 1, step == 2 and 1 or 2 do loss(params[k], k, sbps ~= nil):backward() end
        optimizer:step()
        local values = {}
        for _, p in ipairs(params) do
            if sbps then p = p:to_global{sbp = "B"} end
            for _, x in ipairs(p:detach():view(-1):totable()) do values[#values + 1] = ("%a "):format(x) end
        end
        lines[step] = table.concat(values) .. "\n"
    end
    return table.concat(lines)
end

return M
