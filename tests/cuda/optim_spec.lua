-- optim_spec.lua -- optimizer steps on the GPU: the CPU's bit for bit, over more tensors than fit one launch, in every dtype,
-- layout and mixture of dtypes.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local hidden = flow._op

-- `groups` lists of tensors of these sizes one after the other; `dtypes` of the groups.
local function tensors(sizes, groups, dtypes)
    local list = {}
    for g = 1, groups do
        for _, size in ipairs(sizes) do
            local t = flow.randn(size)
            list[#list + 1] = (g >= 3 and t * t or t):to(dtypes[g] or dtypes[1])
        end
    end
    return list
end

-- Runs step(list) on both sides and compares all that it wrote.
local function equal(what, step, list)
    local there = support.map_tensors(list, cuda.to_gpu)
    step(list)
    step(there)
    for i, t in ipairs(list) do support.same(t, there[i]:to("cpu"), ("%s, tensor %d"):format(what, i), 0) end
end

local MANY = {}
for i = 1, 70 do MANY[i] = i * 7 % 40 + (i == 30 and 9000 or 0) end

local steps = {
    {"adamw_step", 4, function(list) hidden.adamw_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 3) end},
    {"adam", 4, function(list) hidden.adamw_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 3, false, true) end},
    {"amsgrad_step", 5, function(list) hidden.amsgrad_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 3) end},
    {"adamax_step", 4, function(list) hidden.adamax_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 3, false) end},
    {"nadam_step", 4, function(list) hidden.nadam_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 3, false, true) end},
    {"radam_step", 4, function(list) hidden.radam_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 9) end},
    {"the first radam_step", 4, function(list) hidden.radam_step(list, 0.1, 0.9, 0.99, 1e-8, 0.1, 1) end},
    {"lion_step", 3, function(list) hidden.lion_step(list, 0.1, 0.9, 0.99, 0, 0.1, 1) end},
    {"rmsprop_step", 3, function(list) hidden.rmsprop_step(list, 0.1, 0.9, 1e-8, 0.1, 0) end},
    {"rmsprop_momentum_step", 4, function(list) hidden.rmsprop_momentum_step(list, 0.1, 0.9, 1e-8, 0.1, 0.9, true) end},
    {"rmsprop_centered_step", 4, function(list) hidden.rmsprop_centered_step(list, 0.1, 0.9, 1e-8, 0.1, 0) end},
    {"rmsprop_both_step", 5, function(list) hidden.rmsprop_both_step(list, 0.1, 0.9, 1e-8, 0.1, 0.9) end},
    {"adagrad_step", 3, function(list) hidden.adagrad_step(list, 0.1, 0.1, 0.1, 1e-10, 3) end},
    {"adadelta_step", 4, function(list) hidden.adadelta_step(list, 0.5, 0.9, 1e-6, 0.1) end},
    {"rprop_step", 4, function(list) hidden.rprop_step(list, 0.5, 1.2, 0.1, 2) end},
    {"asgd_step", 3, function(list) hidden.asgd_step(list, 0.1, 0.01, 0.75, 1, 0.1, 4) end},
    {"lamb_moments_step", 4, function(list) hidden.lamb_moments_step(list, 0.1, 0.9, 0.99, 1e-6, 0.1, 2, false) end},
    {"sgd_plain_step", 2, function(list) hidden.sgd_plain_step(list, 0.1, 0.01, true) end},
    {"sgd_step", 3, function(list) hidden.sgd_step(list, 0.1, 0.9, 0.2, 0.01, true) end},
    {"the first sgd_step", 3, function(list) hidden.sgd_step(list, 0.1, 0.9, 0.2, 0.01, false, true, true) end},
}

describe("on the GPU", function()
    for _, case in ipairs(steps) do
        cuda.it(case[1] .. " equals the CPU's bit for bit", function()
            flow.manual_seed(5)
            for _, dtypes in ipairs {{"float32"}, {"float64"}, {"float16"}, {"bfloat16"}, {"bfloat16", "bfloat16", "float32", "float32"},
                {"float32", "bfloat16"}, {"bfloat16", "float32", "float32", "bfloat16"}} do
                equal(case[1] .. " " .. table.concat(dtypes, " "), case[3], tensors(MANY, case[2], dtypes))
            end
        end)

        cuda.it(case[1] .. " takes tensors of any layout", function()
            flow.manual_seed(6)
            local list = tensors({300, 0, 65}, case[2], {"float32"})
            for i, t in ipairs(list) do list[i] = i % 2 == 0 and support.strided(t) or t:numel() > 100 and t:narrow(0, 1, 299) or t end
            for i = 1, #list do list[i] = list[i]:numel() == 299 and list[i] or list[i]:numel() == 300 and list[i]:narrow(0, 0, 299) or list[i] end
            equal(case[1], case[3], list)
        end)
    end

    cuda.it("the norm of gradients is theirs, and what clipping leaves", function()
        flow.manual_seed(7)
        for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
            local list = tensors(MANY, 1, {dtype})
            local there = support.map_tensors(list, cuda.to_gpu)
            local squares, got = hidden.grad_norm_squares(list), hidden.grad_norm_squares(there)
            support.same(squares, got:to("cpu"), dtype, dtype == "float64" and 1e-14 or 1e-7)
            for _, most in ipairs {0.5, 1e6} do
                local function clip(gradients)
                    local all = table.move(gradients, 1, #gradients, 1, {})
                    local norm = squares:sqrt():to(gradients[1].device)
                    for _ = 1, #gradients do all[#all + 1] = norm end
                    hidden.clip_scale_(all, most)
                end
                equal("clip " .. dtype, clip, list)
            end
        end
        assert.are.equal(0, hidden.grad_norm_squares{flow.zeros(0, {device = "cuda"})}:item())
    end)

    cuda.it("optimizers go the same way as on the CPU", function()
        for _, name in ipairs {"SGD", "Adam", "AdamW", "Adagrad", "LAMB", "LARS", "Lion", "RMSprop"} do
            local function run(device)
                flow.manual_seed(8)
                local parameters = {flow.nn.Parameter(flow.randn(5, 3):to(device)), flow.nn.Parameter(flow.randn(70):to(device))}
                local optimizer = flow.optim[name](parameters, {lr = 0.1})
                for _ = 1, 3 do
                    optimizer:zero_grad()
                    local loss = (parameters[1] * parameters[1]):sum() + (parameters[2] * parameters[2]):sum()
                    loss:backward()
                    optimizer:step()
                end
                return flow.cat{parameters[1]:reshape(-1), parameters[2]}:detach():to("cpu")
            end
            support.same(run "cpu", run "cuda", name, name:find "^LA" and 1e-6 or 0)
        end
    end)
end)
