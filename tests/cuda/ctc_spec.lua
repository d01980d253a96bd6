-- ctc_spec.lua -- ctc_loss on the GPU: losses, gradients of two orders and errors are those of the CPU.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local G = cuda.device

-- name, times, classes, targets, input lengths, target lengths, blank
local CASES = {
    {"a row of labels for each", 6, 4, {{1, 2, 3}, {2, 2, 1}, {3, 1, 1}}, {6, 5, 4}, {3, 3, 2}, 0},
    {"labels one behind the other", 7, 5, {1, 2, 2, 4, 3, 3, 1}, {7, 6, 7}, {2, 0, 5}, 0},
    {"another blank", 5, 4, {{0, 1}, {2, 0}}, {5, 4}, {2, 1}, 3},
    {"labels that are the blank", 6, 3, {{1, 0, 2}, {0, 0, 0}}, {6, 6}, {3, 2}, 0},
    {"no labels and no times", 3, 3, {{1}, {2}, {2}}, {0, 3, 0}, {0, 0, 1}, 0},
    {"targets that are impossible", 3, 3, {{1, 1, 1}, {1, 2, 1}}, {3, 2}, {3, 2}, 0},
    {"one sequence", 4, 3, {{1, 2}}, {4}, {2}, 0},
    {"one class", 3, 1, {{0}, {0}}, {3, 2}, {0, 0}, 0},
}

-- Losses and gradients of sequences, the second of them along the first.
local function derivatives(blank, reduction, zero_infinity, order)
    return function(args)
        local x, targets, times, counts = table.unpack(args, 1, 4)
        x = x:detach():requires_grad_()
        local loss = flow.ctc_loss(x:log_softmax(-1), targets, times, counts, blank, reduction, zero_infinity)
        local weight = flow.arange(loss:numel(), {dtype = x.dtype, device = x.device}):reshape(loss.shape) + 1
        local g = flow.grad((loss * weight):sum(), {x}, {create_graph = order == 2})[1]
        if order == 1 then return loss, g end
        local slope = flow.arange(g:numel(), {dtype = x.dtype, device = x.device}):reshape(g.shape):sin()
        return loss, g, flow.grad((g * slope):sum(), {x})[1]
    end
end

local function operands(case, dtype)
    return {n = 4, flow.randn(case[2], #case[5], case[3], {dtype = dtype}), flow.tensor(case[4]), flow.tensor(case[5]), flow.tensor(case[6])}
end

-- Both succeed, and equally.
local function agree(...) assert.is_not_nil(cuda.agree(...), (...)) end

describe("ctc_loss on the GPU", function()
    for _, case in ipairs(CASES) do
        cuda.it("takes " .. case[1], function()
            for _, reduction in ipairs {"mean", "sum", "none"} do
                for _, zero in ipairs {false, true} do
                    local what = ("%s, %s%s"):format(case[1], reduction, zero and ", zero_infinity" or "")
                    for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16"} do
                        agree(what .. " in " .. dtype, derivatives(case[7], reduction, zero, 1), operands(case, dtype))
                    end
                    agree(what .. ", second order", derivatives(case[7], reduction, zero, 2), operands(case, "float64"))
                    agree(what .. ", second order", derivatives(case[7], reduction, zero, 2), operands(case, "float32"))
                end
            end
        end)
    end

    cuda.it("takes long sequences", function()
        local times, batch, classes, most = 330, 3, 40, 150
        if cuda.emulated then times, most = 290, 140 end
        for _, labels in ipairs {2, classes} do
            local targets = flow.randint(1, labels, {batch, most})
            local args = {n = 4, flow.randn(times, batch, classes, {dtype = "float64"}), targets, flow.tensor{times, times - 7, times},
                flow.tensor{most, most - 1, 3}}
            agree(labels .. " labels", derivatives(0, "none", false, 1), args)
            -- logarithms of about -500 have 5 digits behind the point in float32
            local loss, gradient = derivatives(0, "none", false, 1)(args)
            args[1] = args[1]:to "float32"
            local coarse, slope = derivatives(0, "none", false, 1)(support.map_tensors(args, cuda.to_gpu))
            support.same(loss:to "float32", coarse, labels .. " labels", 2e-5)
            support.same(gradient:to "float32", slope, labels .. " labels", 2e-3)
        end
    end)

    cuda.it("takes every layout, lengths of every type, and numbers that are none", function()
        local case = CASES[1]
        for _, layout in ipairs(cuda.layouts) do
            if layout.values then
                agree(layout[1], derivatives(0, "none", false, 2), operands(case, "float64"), false, layout[2])
            end
        end
        for _, dtype in ipairs {"int32", "int8", "uint8"} do
            local args = operands(case, "float32")
            for i = 2, 4 do args[i] = args[i]:to(dtype) end
            agree(dtype, derivatives(0, "mean", false, 1), args)
        end
        local args = operands(case, "float32")
        args[1] = cuda.special(args[1])
        agree("special", derivatives(0, "none", false, 1), args)
        agree("no sequences", derivatives(0, "none", false, 1),
            {n = 4, flow.zeros(4, 0, 3), flow.zeros(0, 2, {dtype = "int64"}), flow.zeros(0, {dtype = "int64"}), flow.zeros(0, {dtype = "int64"})})
    end)

    cuda.it("gives the same bits every time", function()
        local args = support.map_tensors(operands(CASES[2], "float32"), cuda.to_gpu)
        local loss, gradient = derivatives(0, "none", false, 1)(args)
        for _ = 1, 3 do
            local again, gradient_again = derivatives(0, "none", false, 1)(args)
            assert.is_true((again == loss) and (gradient_again == gradient))
        end
    end)

    cuda.it("says which sequence is wrong, the first of them", function()
        local x = flow.zeros(3, 2, 4):log_softmax(-1):to(G)
        local function message(targets, times, counts)
            return support.message_of(function()
                flow.ctc_loss(x, flow.tensor(targets, {device = G}), flow.tensor(times, {device = G}), flow.tensor(counts, {device = G})):item()
            end)
        end
        for _, case in ipairs {
            {"input_lengths[1] is 4, but log_probs has 3 times", {{1, 2}, {1, 2}}, {3, 4}, {2, 2}},
            {"input_lengths[0] is -1, but log_probs has 3 times", {{1, 9}, {1, 2}}, {-1, 4}, {7, 2}},
            {"target_lengths[0] is 3, but targets has 2 labels for it", {{1, 9}, {1, 2}}, {3, 4}, {3, 2}},
            {"target_lengths[1] is -2, but targets has 2 labels for it", {{1, 2}, {1, 2}}, {3, 3}, {2, -2}},
            {"target_lengths[1] is 3, but targets has 1 labels for it", {1, 2, 3}, {3, 3}, {2, 3}},
            {"target_lengths[0] is -1, but targets has 3 labels for it", {1, 2, 3}, {3, 3}, {-1, 3}},
            {"label 1 of sequence 0 is 4, but there are 4 classes", {{1, 4}, {7, 2}}, {3, 3}, {2, 2}},
            {"label 0 of sequence 1 is -1, but there are 4 classes", {1, 2, -1, 5}, {3, 3}, {2, 2}},
        } do
            local got = message(table.unpack(case, 2))
            assert.is_truthy(got:find("ctc_loss: " .. case[1], 1, true), got)
        end
        -- labels behind a target's end are not looked at
        assert.is_true(flow.ctc_loss(x, flow.tensor({{1, 9}, {2, 2}}, {device = G}), flow.tensor({3, 3}, {device = G}),
            flow.tensor({1, 1}, {device = G})):item() > 0)
    end)
end)
