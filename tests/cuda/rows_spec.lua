-- rows_spec.lua -- softmax, losses of labels and layer_norm on the GPU against the CPU: rows that fit into a few lanes, a warp,
-- a block, and longer ones; dtypes, axes, layouts, weights, labels that do not count and labels out of range.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local FLOATS = {"float32", "float64", "float16", "bfloat16"}
local LENGTHS = {1, 7, 32, 65, 256, 1000, 1024, 5000}

local hidden = flow._op

local function randn(shape, dtype) return flow.randn(shape):to(dtype) end

-- The op of this name, called with tensors and then with the values given here.
local function agree(name, tensors, ...)
    local after = table.pack(...)
    local what = name .. " of " .. tensors[1].dtype .. "[" .. table.concat(tensors[1].shape, ", ") .. "]"
    return cuda.agree(what, function(args)
        local list = table.move(args, 1, args.n, 1, {})
        table.move(after, 1, after.n, args.n + 1, list)
        return hidden[name](table.unpack(list, 1, args.n + after.n))
    end, tensors)
end

---- softmax ----

local function agree_softmax(x, axis)
    for _, name in ipairs {"softmax", "log_softmax"} do
        local y = agree(name, {x, n = 1}, axis)[1]
        agree(name .. "_backward", {randn(x.shape, x.dtype), y, n = 2}, axis)
    end
end

describe("softmax on the GPU:", function()
    cuda.it("rows of all lengths", function()
        flow.manual_seed(1)
        for _, n in ipairs(LENGTHS) do
            for _, dtype in ipairs(FLOATS) do agree_softmax(randn({3, n}, dtype), 1) end
        end
        for _, n in ipairs {9000, 40000, 70000} do
            for _, dtype in ipairs {"float32", "float16"} do agree_softmax(randn({2, n}, dtype) * 3, 1) end
        end
    end)

    cuda.it("many rows", function()
        flow.manual_seed(2)
        for _, n in ipairs {3, 65, 130, 600} do agree_softmax(randn({n > 100 and 2100 or 300, n}, "float32"), 1) end
        agree_softmax(randn({2100, 250}, "float16"), 1)
    end)

    cuda.it("every axis", function()
        flow.manual_seed(3)
        for _, dtype in ipairs(FLOATS) do
            for axis = -1, 2 do agree_softmax(randn({5, 6, 7}, dtype), axis) end
            agree_softmax(randn({2, 300, 33}, dtype), 1)
            agree_softmax(randn({70, 1, 1}, dtype), 0)
            agree_softmax(randn({}, dtype), 0)
            agree_softmax(randn({3, 0}, dtype), 1)
        end
    end)

    cuda.it("layouts", function()
        for _, layout in ipairs(cuda.layouts) do
            flow.manual_seed(4)
            local x = layout[2](randn({6, 5, 40}, "float32"))
            for axis = 0, x.ndim - 1 do
                agree_softmax(x, axis)
                local y = x:contiguous():softmax(axis)
                agree("softmax_backward", {randn(x.shape, "float32"), layout[2](y):expand(x.shape), n = 2}, axis)
                agree("softmax_backward", {flow.ones(1):expand(x.shape), y, n = 2}, axis)
            end
        end
    end)

    cuda.it("NaN and infinities", function()
        for _, n in ipairs {5, 300, 40000} do
            for _, v in ipairs {nan, inf, -inf} do
                local x = randn({3, n}, "float32")
                x[0][n - 2] = v
                x[1] = v
                for _, name in ipairs {"softmax", "log_softmax"} do agree(name, {x, n = 1}, 1) end
                agree("softmax", {x:t():contiguous(), n = 1}, 0)
            end
        end
    end)
end)

---- losses of labels ----

local function labels(shape, classes)
    local t = flow.randint(0, classes, shape)
    if t.ndim == 0 then return t end
    local flat = t:reshape(-1)
    if flat:numel() > 2 then flat[1] = -100 end
    return flat:view(shape)
end

-- input [n, classes, ...] or [classes]: both losses, forward and backward, with and without weights and smoothing.
local function agree_losses(input, target, weight)
    for _, smoothing in ipairs {0, 0.2} do
        local results = agree("cross_entropy_rows", {input, target, weight, n = 3}, -100, smoothing)
        local dy = randn(target.shape, input.dtype)
        for _, targets in ipairs {true, false} do
            agree("cross_entropy_backward", {dy, input, target, results[2], weight, n = 5}, -100, smoothing, targets)
        end
        agree("nll_rows", {input, target, weight, n = 3}, -100, smoothing)
        agree("nll_backward", {dy, target, weight, n = 3}, -100, smoothing, input.shape)
    end
end

describe("losses of labels on the GPU:", function()
    cuda.it("classes of all numbers", function()
        flow.manual_seed(5)
        for _, n in ipairs(LENGTHS) do
            for _, dtype in ipairs(n > 1000 and {"float32", "bfloat16"} or FLOATS) do
                agree_losses(randn({4, n}, dtype), labels({4}, n))
                agree_losses(randn({4, n}, dtype), labels({4}, n), flow.rand(n):to(dtype) + 0.5)
            end
        end
        agree_losses(randn({2, 70000}, "float32"), labels({2}, 70000))
        agree_losses(randn({600, 33}, "float32"), labels({600}, 33))
    end)

    cuda.it("shapes and layouts", function()
        flow.manual_seed(6)
        agree_losses(randn({3, 5, 4, 2}, "float32"), labels({3, 4, 2}, 5))
        agree_losses(randn({2, 300, 70}, "float16"), labels({2, 70}, 300))
        agree_losses(randn({9}, "float32"), flow.tensor(4))
        agree_losses(randn({0, 9}, "float32"), labels({0}, 9))
        agree_losses(support.strided(randn({6, 70}, "float32")), support.strided(labels({6}, 70)), support.strided(flow.rand(70)))
        agree_losses(randn({70, 6}, "float32"):t(), labels({6}, 70):to("int32"))
        agree_losses(randn({6, 70}, "float16"), labels({6}, 70):to("int8"), flow.rand(70))
    end)

    cuda.it("a gradient that is one number for all rows", function()
        local input, target = randn({6, 70}, "float32"), labels({6}, 70)
        local lse = input:logsumexp({1})
        agree("cross_entropy_backward", {flow.full({}, 0.5):expand({6}), input, target, lse, n = 4}, nil, -100, 0, true)
    end)

    cuda.it("infinite scores", function()
        local input, target = randn({4, 70}, "float32"), flow.tensor {1, 2, 3, 4}
        input[0] = -inf
        input[1][5], input[2][3], input[3][9] = inf, -inf, nan
        agree("cross_entropy_rows", {input, target, n = 2}, nil, -100, 0)
        agree("cross_entropy_rows", {input, target, n = 2}, nil, -100, 0.1)
    end)

    cuda.it("whole losses and their gradients", function()
        flow.manual_seed(7)
        local input, target = randn({40, 65}, "float32"), labels({40}, 65)
        for _, reduction in ipairs {"mean", "sum"} do
            cuda.agree("cross_entropy " .. reduction, function(args)
                local x = args[1]:clone()
                x.requires_grad = true
                local loss = flow.cross_entropy(x, args[2], nil, reduction, -100, 0.1)
                loss:backward()
                return loss:detach(), x.grad
            end, {input, target, n = 2})
        end
    end)

    cuda.it("labels out of range are named as on the CPU", function()
        local input = randn({6, 65}, "float32")
        local function loss(args) return flow.cross_entropy(args[1], args[2]) end
        cuda.agree("too large", loss, {input, flow.tensor {1, 2, 65, 3, 4, 5}, n = 2})
        cuda.agree("negative", loss, {input, flow.tensor {1, 2, 3, 3, 4, -1}, n = 2})
        cuda.agree("of two axes", loss, {randn({2, 5, 3}, "float32"), flow.tensor {{1, 2, 3}, {4, 9, 0}}, n = 2})
        cuda.agree("0-d", loss, {randn({5}, "float32"), flow.tensor(5), n = 2})
        cuda.agree("nll_loss", function(args) return flow.nll_loss(args[1], args[2]) end, {input, flow.tensor {1, 2, 3, 3, 70, 1}, n = 2})
        cuda.agree("no classes", loss, {randn({2, 0}, "float32"), flow.tensor {-100, 0}, n = 2})
        cuda.agree("backward", function(args) return hidden.nll_backward(args[1], args[2], nil, -100, 0, {3, 4}) end,
            {flow.ones(3), flow.tensor {0, 4, 1}, n = 2})
    end)
end)

---- layer_norm ----

-- x of these sizes, the last `axes` of which are normalised; weight and bias of a dtype, or absent.
local function agree_norm(x, axes, weight_dtype, layout)
    local tail = table.move(x.shape, #x.shape - axes + 1, #x.shape, 1, {})
    local weight = weight_dtype and randn(tail, weight_dtype) or nil
    local bias = weight_dtype and randn(tail, weight_dtype) or nil
    if layout then x = layout(x) end
    local results = agree("layer_norm_rows", {x, weight, bias, n = 3}, axes, 1e-5)
    local dy = randn(x.shape, x.dtype)
    if layout then dy = layout(dy) end
    agree("layer_norm_backward", {dy, x, results[2], results[3], weight, n = 5}, axes)
end

describe("layer_norm on the GPU:", function()
    cuda.it("rows of all lengths", function()
        flow.manual_seed(8)
        for _, n in ipairs(LENGTHS) do
            for _, dtype in ipairs(FLOATS) do
                agree_norm(randn({5, n}, dtype), 1, dtype)
                agree_norm(randn({5, n}, dtype) + 2, 1)
            end
        end
        for _, n in ipairs {9000, 40000} do
            for _, dtype in ipairs {"float32", "float16"} do agree_norm(randn({3, n}, dtype), 1, dtype) end
        end
    end)

    cuda.it("many rows", function()
        flow.manual_seed(9)
        for _, n in ipairs {3, 64, 130} do agree_norm(randn({n > 100 and 2100 or 700, n}, "float32"), 1, "float32") end
        agree_norm(randn({60, 8200}, "float16"), 1, "float16")
    end)

    cuda.it("several axes, layouts, other dtypes of weight and bias", function()
        flow.manual_seed(10)
        agree_norm(randn({3, 4, 5}, "float32"), 2, "float32")
        agree_norm(randn({3, 4, 5}, "float64"), 3, "float64")
        agree_norm(randn({30}, "float32"), 1, "float32")
        agree_norm(randn({0, 30}, "float32"), 1, "float32")
        for _, dtype in ipairs {"float16", "bfloat16"} do
            agree_norm(randn({7, 48}, dtype), 1, "float32")
            agree_norm(randn({2, 9000}, dtype), 1, "float32")
        end
        for _, layout in ipairs(cuda.layouts) do
            if layout.values then agree_norm(randn({6, 5, 40}, "float32"), 1, "float32", layout[2]) end
        end
    end)

    cuda.it("rows far from 0, constant rows, NaN", function()
        flow.manual_seed(11)
        for _, n in ipairs {65, 40000} do
            local x = randn({4, n}, "float32") + 30
            x[1] = 7
            x[2][3] = nan
            agree("layer_norm_rows", {x, n = 1}, nil, nil, 1, 1e-5)
        end
    end)

    cuda.it("the whole op and its gradients", function()
        flow.manual_seed(12)
        local x, w, b = randn({20, 48}, "float32"), randn({48}, "float32"), randn({48}, "float32")
        cuda.agree("layer_norm", function(args)
            local leaves = {}
            for i = 1, 3 do
                leaves[i] = args[i]:clone()
                leaves[i].requires_grad = true
            end
            local y = flow.layer_norm(leaves[1], 48, leaves[2], leaves[3])
            flow.sum(y * y:sin()):backward()
            return y:detach(), leaves[1].grad, leaves[2].grad, leaves[3].grad
        end, {x, w, b, n = 3})
    end)
end)

describe("operands that do not fit each other:", function()
    local x, row = flow.randn(3, 5), flow.randn(3)
    local function refused(name, tensors, message, ...)
        local after = table.pack(...)
        assert.are.equal(message, support.message_of(function()
            hidden[name](table.unpack(table.move(after, 1, after.n, tensors.n + 1, table.move(tensors, 1, tensors.n, 1, {})), 1, tensors.n + after.n))
        end))
    end

    it("layer_norm", function()
        refused("layer_norm_rows", {x, row, n = 3}, "layer_norm_rows: operand 1 must be [5], got [3]", 1, 1e-5)
        refused("layer_norm_rows", {x, n = 3}, "layer_norm_rows: x [3, 5] has no 3 last axes", 3, 1e-5)
        refused("layer_norm_rows", {x, n = 3}, "layer_norm_rows: x [3, 5] has no 0 last axes", 0, 1e-5)
        refused("layer_norm_backward", {x, x, row, flow.randn(4), n = 5}, "layer_norm_backward: operand 3 must be [3], got [4]", 1)
        refused("layer_norm_backward", {row, x, row, row, n = 5}, "layer_norm_backward: operand 0 must be [3, 5], got [3]", 1)
    end)

    it("losses of labels", function()
        local target = flow.tensor {0, 1, 2}
        refused("cross_entropy_backward", {flow.randn(4), x, target, row, n = 5}, "cross_entropy: operand 0 must be [3] as target, got [4]",
            -100, 0, true)
        refused("nll_backward", {row, target, flow.randn(3), n = 3},
            "nll_loss: weight must have one number for each class of input [3, 5], got [3]", -100, 0, {3, 5})
    end)

    it("one element of each line", function()
        refused("axis_gather", {x, flow.tensor {0, 1}, n = 2}, "axis_gather: index must be int64[3], got int64[2]", 1)
        refused("axis_scatter", {flow.randn(2), flow.tensor {0, 1, 2}, n = 2}, "axis_scatter: line must be [3], got [2]", 1, false, {3, 5})
        local picked = hidden.axis_gather(x, flow.tensor {0, 9, -1}, 1)
        assert.are.same({x[0][0]:item(), 0, 0}, picked:totable())
    end)
end)
