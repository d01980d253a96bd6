-- optim_muon.lua -- flow.optim.Muon: momentum whose matrix is made orthogonal, for the weights of hidden layers.
--
-- Numbers of a step come in by ops of gradient descent, whose options a replay takes anew.

local flow = require "flow"
local base = require "flow.optim_base"
local check = require "flow.check"

local op = flow._op

-- The nearest orthogonal matrix, roughly: a polynomial of odd powers pushes all singular values towards 1. In bfloat16.
local function orthogonal(x, coefficients, steps, eps)
    local a, b, c = table.unpack(coefficients)
    local tall = x:size(0) > x:size(1)
    x = x:to("bfloat16")
    if tall then x = x:t() end
    x = x / x:to("float32"):square():sum():sqrt():to("bfloat16"):clamp(eps)
    for _ = 1, steps do
        local wide = x:to("float32")
        local gram = flow.matmul(wide, wide:t()):to("bfloat16"):to("float32")
        local update = (gram * b + flow.matmul(gram, gram) * c):to("bfloat16"):to("float32")
        x = (wide * a + flow.matmul(update, wide)):to("bfloat16")
    end
    return tall and x:t() or x
end

-- The factor of the rate for a matrix of this shape.
local ratios = {
    original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
    match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
    spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}

local function ratio_of(group, p) return ratios[group.adjust_lr_fn](p:size(0), p:size(1)) end

-- Options of descents: buffer = momentum * buffer + (1 - momentum) * g; x = x - momentum * g.
local function average(group)
    return {lr = 0, momentum = group.momentum, dampening = group.momentum}
end
local function ahead(group) return {lr = group.momentum} end

local function descent(group) return {lr = group.lr, weight_decay = group.weight_decay} end

-- The direction of a step: the average of gradients, or with Nesterov what it will be if this gradient comes again.
local function update_of(group, run, grad, buffer)
    if not group.nesterov then return buffer end
    local x = grad:clone()
    run(op.sgd_plain_step, {{x}, {grad - buffer}}, ahead)
    return x
end

local function compose(group, run, lists)
    local params, grads, buffers = table.unpack(lists)
    run(op.sgd_step, {params, grads, buffers}, average)
    for i, p in ipairs(params) do
        local x = update_of(group, run, grads[i], buffers[i])
        x = orthogonal(x, group.ns_coefficients, group.ns_steps, group.eps):to(p.dtype)
        run(op.sgd_plain_step, {{p}, {x * ratio_of(group, p)}}, descent)
    end
end

return {Muon = base.define("Muon", {
    defaults = {
        lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true, ns_coefficients = {3.4445, -4.7750, 2.0315},
        eps = 1e-7, ns_steps = 5, adjust_lr_fn = "original",
    },
    kept = function() return {"momentum_buffer"} end,
    options = function(group) return op.sgd_plain_step, {lr = group.lr} end,
    compose = compose,
    ways = function(group)
        local a, b, c = table.unpack(group.ns_coefficients)
        return a, b, c, group.nesterov, group.ns_steps, group.eps, group.adjust_lr_fn
    end,
    check = function(group)
        check.integer("Muon", "ns_steps", group.ns_steps, 0)
        if group.ns_steps >= 100 then check.fail("Muon: ns_steps must be less than 100, got %d", group.ns_steps) end
        if #group.ns_coefficients ~= 3 then
            check.fail("Muon: ns_coefficients must be three numbers, got %d", #group.ns_coefficients)
        end
        for i = 1, 3 do check.number("Muon", "a coefficient", group.ns_coefficients[i], -math.huge, math.huge) end
        if not ratios[group.adjust_lr_fn] then
            check.fail("Muon: adjust_lr_fn must be 'original', 'match_rms_adamw' or 'spectral_unclamped', got %s",
                check.got(group.adjust_lr_fn))
        end
        for i, p in ipairs(group.params) do
            if #p.shape ~= 2 then
                check.fail("Muon: parameter %d is %s; only matrices can be made orthogonal: give the others to AdamW",
                    i, check.shape(p))
            end
        end
    end,
})}
