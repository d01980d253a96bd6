-- loss_spec.lua -- losses, softmax and layer_norm against formulas written out; labels and options that are wrong.
local flow = require "flow"
local support = require "tests.support"

local function near(want, got, eps)
    if flow.is_tensor(got) then got = got:item() end
    assert.is_true(math.abs(want - got) <= (eps or 1e-6), ("expected %.9g, got %.9g"):format(want, got))
end

local fails = support.fails

-- Per row: loss and the weight that counts in the mean. x: scores of the classes, label from 0.
local function row_loss(x, label, weight, ignore, smoothing)
    if label == ignore then return 0, 0 end
    local classes, top, sum = #x, -math.huge, 0
    for _, v in ipairs(x) do top = math.max(top, v) end
    for _, v in ipairs(x) do sum = sum + math.exp(v - top) end
    local lse, loss = top + math.log(sum), 0
    for c, v in ipairs(x) do
        local w = weight and weight[c] or 1
        loss = loss + (smoothing / classes + (c == label + 1 and 1 - smoothing or 0)) * w * (lse - v)
    end
    return loss, weight and weight[label + 1] or 1
end

describe("cross_entropy", function()
    it("agrees with the formula for weights, ignored labels, smoothing and reductions", function()
        flow.manual_seed(1)
        local x = flow.randn(7, 5):to("float64") * 3
        local labels = {0, 4, -1, 2, 2, 1, -1}
        local weight = {0.5, 2, 1, 0.25, 3}
        for _, w in ipairs {false, weight} do
            for _, smoothing in ipairs {0, 0.3} do
                local total, count, rows = 0, 0, {}
                for i, row in ipairs(x:totable()) do
                    local loss, counts = row_loss(row, labels[i], w or nil, -1, smoothing)
                    rows[i], total, count = loss, total + loss, count + counts
                end
                local options = {weight = w and flow.tensor(w):to("float64") or nil, ignore_index = -1, label_smoothing = smoothing}
                near(total / count, flow.cross_entropy(x, flow.tensor(labels), options), 1e-12)
                options.reduction = "sum"
                near(total, flow.cross_entropy(x, flow.tensor(labels), options), 1e-11)
                options.reduction = "none"
                for i, loss in ipairs(flow.cross_entropy(x, flow.tensor(labels), options):totable()) do near(rows[i], loss, 1e-12) end
            end
        end
    end)

    it("takes labels of every position of an image, int32 labels, one row and strided scores", function()
        flow.manual_seed(2)
        local x, t = flow.randn(2, 4, 3, 5), flow.randint(0, 4, {2, 3, 5})
        local flat = flow.cross_entropy(x:permute(0, 2, 3, 1):reshape(-1, 4), t:reshape(-1))
        near(flat:item(), flow.cross_entropy(x, t), 1e-6)
        near(flat:item(), flow.cross_entropy(x:permute(0, 2, 3, 1):reshape(-1, 4), t:reshape(-1):to("int32")), 1e-6)
        near(flow.cross_entropy(x[{{0, 1}, {}, 0, 0}], t[{{0, 1}, 0, 0}]):item(), flow.cross_entropy(x[{0, {}, 0, 0}], t[{0, 0, 0}]), 1e-6)
    end)

    it("is exact for scores that would overflow", function()
        near(0, flow.cross_entropy(flow.tensor{{1000.0, 0.0}}, flow.tensor{0}))
        near(1000, flow.cross_entropy(flow.tensor{{1000.0, 0.0}}, flow.tensor{1}))
    end)

    it("has the gradient softmax minus targets, over the mean", function()
        flow.manual_seed(3)
        local x, t = flow.randn(6, 4, {requires_grad = true}), flow.tensor{0, 3, -100, 1, 2, 2}
        flow.cross_entropy(x, t):backward()
        local want = x:detach():softmax(1)
        for i = 0, 5 do
            local label = t[i]:item()
            if label == -100 then want[i] = 0 else want[{i, label}] = want[{i, label}] - 1 end
        end
        assert.is_true((x.grad - want / 5):abs():amax():item() < 1e-6)
    end)

    it("works where logits lie on a split class axis", function()
        local p = flow.placement("cpu", {0})
        local x = flow.randn(3, 4)
        local g = x:to_global{placement = p, sbp = "S(1)"}
        local t = flow.tensor{0, 3, 2}:to_global{placement = p, sbp = "B"}
        near(flow.cross_entropy(x, flow.tensor{0, 3, 2}):item(), flow.cross_entropy(g, t), 1e-6)
    end)

    it("names the row and the label that is out of range", function()
        local x, t = flow.zeros(20, 65), flow.zeros(20):to("int64")
        t[17] = 65
        fails("cross_entropy: target[17] is 65, but input has 65 classes (0 to 64)", flow.cross_entropy, x, t)
        t[17] = -1
        fails("cross_entropy: target[17] is -1, but input has 65 classes (0 to 64)", flow.cross_entropy, x, t)
        fails("nll_loss: target[17] is -1, but input has 65 classes (0 to 64)", flow.nll_loss, x, t)
        fails("cross_entropy: target[1, 2] is 3, but input has 3 classes (0 to 2)", flow.cross_entropy, flow.zeros(2, 3, 4), flow.tensor{{0, 0, 0, 0}, {0, 0, 3, 0}})
    end)

    it("says which shapes, dtypes and options do not fit", function()
        local x, t = flow.zeros(4, 5), flow.zeros(4):to("int64")
        fails("cross_entropy: input [4, 5] and target [5] do not fit; target must be [4]", flow.cross_entropy, x, flow.zeros(5):to("int64"))
        fails("cross_entropy: target must be integers (class labels), got float32[4]", flow.cross_entropy, x, flow.zeros(4))
        fails("cross_entropy: takes a float tensor", flow.cross_entropy, x:to("int64"), t)
        fails("cross_entropy: weight must have one number for each class of input [4, 5], got [4]", flow.cross_entropy, x, t, {weight = flow.ones(4)})
        fails("cross_entropy: label_smoothing must be between 0 and 1, got 2", flow.cross_entropy, x, t, {label_smoothing = 2})
        fails("has no gradient with respect to weight", function()
            flow.cross_entropy(x:clone(), t, {weight = flow.ones(5, {requires_grad = true})}):backward()
        end)
    end)
end)

describe("linear_cross_entropy", function()
    local function leaf(...) return flow.randn({...}, {dtype = "float64", requires_grad = true}) end
    local function linear(...) return flow.nn.functional.linear(...) end

    it("by chunks is cross_entropy of linear, with its gradients of two orders", function()
        flow.manual_seed(3)
        local x, matrix, bias, t = leaf(37, 6), leaf(11, 6), leaf(11), flow.randint(0, 11, {37})
        local weight = flow.rand({11}, {dtype = "float64"})
        t[3], t[36] = -100, -100
        for _, reduction in ipairs {"mean", "sum", "none"} do
            for _, b in ipairs {false, bias} do
                for _, w in ipairs {false, weight} do
                    local options = {weight = w or nil, reduction = reduction, label_smoothing = 0.1}
                    local want = flow.cross_entropy(linear(x, matrix, b or nil), t, options)
                    local leaves = b and {x, matrix, b} or {x, matrix}
                    local function second(loss)
                        local first = flow.grad(loss:sum() * 1.5, leaves, {create_graph = true})
                        local total = 0
                        for _, g in ipairs(first) do total = total + (g * g):sum() end
                        return first, flow.grad(total, leaves)
                    end
                    local of_want, of_want_again = second(want)
                    options.linear_bias = b or nil
                    for _, rows in ipairs {1, 8, 37, 100} do
                        options.batch_chunk_size = rows
                        local loss = flow.linear_cross_entropy(x, matrix, t, options)
                        flow.testing.assert_close(loss, want, {rtol = 1e-12, atol = 1e-12})
                        local grads = flow.grad(loss:sum() * 1.5, leaves, {retain_graph = true})
                        local again, twice = second(loss)
                        for i in ipairs(leaves) do
                            for have, expected in pairs {[grads[i]] = of_want[i], [again[i]] = of_want[i], [twice[i]] = of_want_again[i]} do
                                flow.testing.assert_close(have, expected, {rtol = 1e-10, atol = 1e-12})
                            end
                        end
                    end
                end
            end
        end
    end)

    it("of several axes of classes, of one row and of probabilities", function()
        local x, matrix = leaf(3, 4), leaf(5, 2, 4)
        local shares = flow.randn({3, 5, 2}, {dtype = "float64"}):softmax(1)
        local scores = linear(x, matrix:view(10, 4)):view(3, 5, 2)
        flow.testing.assert_close(flow.linear_cross_entropy(x, matrix, shares), flow.cross_entropy(scores, shares))
        local t = flow.randint(0, 5, {3, 2})
        flow.testing.assert_close(flow.linear_cross_entropy(x, matrix, t, nil, nil, "none"), flow.cross_entropy(scores, t, nil, "none"))
        local one = flow.linear_cross_entropy(x[0], matrix:select(1, 0), flow.tensor(2))
        flow.testing.assert_close(one, flow.cross_entropy(linear(x[0], matrix:select(1, 0)), flow.tensor(2)))
        local none = flow.linear_cross_entropy(flow.zeros(0, 4), flow.ones(5, 4), flow.zeros(0):long(), {reduction = "sum", batch_chunk_size = 2})
        assert.are.equal(0, none:item())
    end)

    it("keeps few scores", function()
        local n, classes = 4096, 8192
        local x, matrix, t = flow.randn(n, 4):requires_grad_(), flow.randn(classes, 4):requires_grad_(), flow.randint(0, classes, {n})
        flow.sync()
        flow.memory {reset_peak = true}
        local before = flow.memory().live_bytes
        for _, reduction in ipairs {"mean", "none"} do
            flow.linear_cross_entropy(x, matrix, t, {reduction = reduction}):sum():backward()
            flow.sync()
            local peak = flow.memory().peak_bytes - before
            assert.is_true(peak < n * classes * 4, peak)
        end
    end)

    it("is a module with its projection", function()
        local net = flow.nn.LinearCrossEntropyLoss(4, 5, {bias = true, label_smoothing = 0.2, batch_chunk_size = 2})
        local x, t = flow.randn(7, 4), flow.randint(0, 5, {7})
        flow.testing.assert_close(net(x, t), flow.cross_entropy(net.linear(x), t, {label_smoothing = 0.2}))
        local deep = flow.nn.LinearCrossEntropyLoss(4, 5, {out_features = {2, 3}, bias = true})
        assert.are.equal(30, deep.linear.weight:size(0))
        assert.is_true(rawequal(flow.nn.functional.linear_cross_entropy, flow.linear_cross_entropy))
        assert.are.equal(0, deep(x, flow.randint(0, 5, {7, 2, 3})).ndim)
        assert.are.equal("LinearCrossEntropyLoss(4, 5\n  (linear): Linear(in=4, out=30, bias=true)\n)", tostring(deep))
    end)

    it("says what does not fit", function()
        local x, matrix, t = flow.zeros(4, 3), flow.zeros(5, 3), flow.tensor {0, 1, 2, 9}
        local f = flow.linear_cross_entropy
        fails("linear_cross_entropy: input must be [n, in] or [in], got float32[1, 4, 3]", f, x:unsqueeze(0), matrix, t)
        fails("linear_cross_entropy: linear_weight must be [classes, ..., in] for input float32[4, 3], got float32[3, 5]", f, x, matrix:t(), t)
        fails("linear_cross_entropy: linear_bias must have the axes of linear_weight float32[5, 3] but the last, got float32[3]", f, x, matrix, t, flow.ones(3))
        fails("linear_cross_entropy: linear_weight float32[5, 2, 3] of several axes needs an input [n, in], got float32[3]", f, x[0], flow.ones(5, 2, 3), t)
        fails("linear_cross_entropy: batch_chunk_size must be at least 1, got 0", f, x, matrix, t, {batch_chunk_size = 0})
        local rows = support.on_device and "" or "counted from row 2: "
        fails(rows .. "cross_entropy: target[1] is 9, but input has 5 classes (0 to 4)", f, x, matrix, t, {batch_chunk_size = 2})
        fails("linear_cross_entropy: has no gradient with respect to weight; detach() it", function()
            f(x, matrix:clone():requires_grad_(), t:clamp(0, 4), {weight = flow.ones(5):requires_grad_(), batch_chunk_size = 2}):backward()
        end)
    end)
end)

describe("other losses", function()
    it("nll_loss of log_softmax is cross_entropy", function()
        flow.manual_seed(4)
        local x, t, w = flow.randn(6, 5), flow.tensor{0, 4, -100, 2, 2, 1}, flow.rand(5)
        for _, reduction in ipairs {"mean", "sum"} do
            near(flow.cross_entropy(x, t, {weight = w, reduction = reduction}):item(), flow.nll_loss(x:log_softmax(1), t, {weight = w, reduction = reduction}), 1e-5)
        end
    end)

    it("mse_loss", function()
        near((1 + 4 + 9) / 3, flow.mse_loss(flow.tensor{1.0, 2.0, 3.0}, flow.zeros(3)))
        near(14, flow.mse_loss(flow.tensor{1.0, 2.0, 3.0}, flow.zeros(3), "sum"))
        fails("mse_loss: input float32[3] and target float32[2] differ in shape", flow.mse_loss, flow.zeros(3), flow.zeros(2))
    end)

    it("binary_cross_entropy_with_logits, also at 0 and far out", function()
        local x = flow.tensor{0.0, 2.0, -200.0, 200.0}
        local y = flow.tensor{1.0, 0.25, 0.0, 0.0}
        local want = {math.log(2), math.log(1 + math.exp(2)) - 0.5, 0, 200}
        for i, loss in ipairs(flow.binary_cross_entropy_with_logits(x, y, nil, "none"):totable()) do near(want[i], loss, 1e-5) end
        x.requires_grad = true
        flow.binary_cross_entropy_with_logits(x, y, nil, "sum"):backward()
        near(-0.5, x.grad[0], 1e-6)
    end)

    -- As that of clamp at its bounds; PyTorch 2.15 has these numbers.
    it("have no gradient where a margin is met exactly", function()
        local function slopes(f, ...)
            local inputs = {...}
            for i, input in ipairs(inputs) do inputs[i] = flow.tensor(input, {requires_grad = true}) end
            return flow.grad(f(table.unpack(inputs)):sum(), inputs)
        end
        local function same(want, f, ...)
            for i, got in ipairs(slopes(f, ...)) do assert.are.same(want[i], got:totable()) end
        end
        local F = flow.nn.functional
        local function distance(a, b) return (a - b):abs():sum(-1) end
        same({{0.0, 0.0, -1.0}, {0.0, 0.0, 1.0}}, function(a, b) return flow.margin_ranking_loss(a, b, flow.ones(3), 1, "none") end, {1.0, 2.0, 0.0}, {0.0, 0.0, 0.0})
        same({{0.0, 0.0, -1.0}}, function(a) return flow.hinge_embedding_loss(a, -flow.ones(3), 1, "none") end, {1.0, 2.0, 0.0})
        same({{{0.0, 0.0}}, {{0.0, 0.0}}}, function(a, b) return flow.cosine_embedding_loss(a, b, flow.tensor {-1}) end, {{1.0, 0.0}}, {{0.0, 1.0}})
        same({{{-1.0, 0.0, 1.0}}}, function(a) return flow.multi_margin_loss(a, flow.tensor {0}) * 3 end, {{1.0, 0.0, 0.5}})
        same({{{-1.0, 0.0, 1.0}}}, function(a) return flow.multilabel_margin_loss(a, flow.tensor {{0, -1, 0}}) * 3 end, {{1.0, 0.0, 0.5}})
        for _, loss in ipairs {
            function(a, p, n) return flow.triplet_margin_loss(a, p, n, {eps = 0}) end,
            function(a, p, n) return F.triplet_margin_with_distance_loss(a, p, n, {distance_function = distance}) end,
        } do same({{{0.0, 0.0}}, {{0.0, 0.0}}, {{0.0, 0.0}}}, loss, {{1.0, 0.0}}, {{1.0, 1.0}}, {{1.0, 2.0}}) end
    end)
end)

describe("softmax", function()
    it("of nn.functional takes a dtype, to which x is cast before", function()
        local F, x = flow.nn.functional, flow.tensor {{1, 2, 4}, {0, 0, 0}}
        for _, name in ipairs {"softmax", "log_softmax", "softmin"} do
            local want = flow[name](x:to "float64", -1)
            assert.are.same(want:totable(), F[name](x, {axis = -1, dtype = "float64"}):totable())
            assert.are.equal("float64", F[name](x, -1, {dtype = "float64"}).dtype)
            assert.are.same(flow[name](x:to "float32", 0):totable(), F[name](x:to "float32", 0):totable())
            assert.is_true(rawequal(flow[name], (require("flow.check").original(F[name]))))
        end
    end)

    it("adds up to 1 along any axis, whatever the length of a row", function()
        flow.manual_seed(5)
        for _, shape in ipairs {{3, 1}, {2, 15}, {2, 16}, {1, 17}, {2, 100}, {3, 4, 33}, {2, 70, 3}} do
            for axis = 0, #shape - 1 do
                local x = flow.randn(shape) * 5
                local y = x:softmax(axis)
                assert.is_true((y:sum(axis) - 1):abs():amax():item() < 1e-5)
                assert.is_true((y:log() - x:log_softmax(axis)):abs():amax():item() < 1e-4)
            end
        end
    end)

    it("gives columns what it gives rows, and so does its gradient", function()
        for _, shape in ipairs {{1, 8}, {5, 9}, {64, 16}, {65, 31}, {200, 64}, {3, 100}, {130, 150}} do
            for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
                local eps = dtype == "bfloat16" and 0.02 or 1e-5
                local x = (flow.randn({2, shape[1], shape[2]}) * 4):to(dtype)
                local g = flow.randn({2, shape[1], shape[2]}):to(dtype)
                if shape[1] > 1 then x[0][0] = -math.huge end
                for _, name in ipairs {"softmax", "log_softmax"} do
                    local down, across = x:clone():requires_grad_(), x:transpose(1, 2):contiguous():requires_grad_()
                    local y, z = down[name](down, 1), across[name](across, 2)
                    y:backward(g)
                    z:backward(g:transpose(1, 2):contiguous())
                    local what = ("%s of %d rows, %d columns, %s"):format(name, shape[1], shape[2], dtype)
                    assert(flow.allclose(z:transpose(1, 2):float(), y:float(), {rtol = eps, atol = eps}), what)
                    assert(flow.allclose(across.grad:transpose(1, 2):float(), down.grad:float(), {rtol = eps, atol = 4 * eps}), what .. ": gradient")
                end
            end
        end
    end)

    it("knows infinities and NaN", function()
        local down = flow.zeros(3, 20)
        down[1][4], down[1][5], down[2][19] = math.huge, -math.huge, 0 / 0
        local whole = down:softmax(0):t():totable()
        for i, column in ipairs(whole) do
            local is_nan = i == 5 or i == 20
            for k, v in ipairs(column) do
                if is_nan then assert.is_true(v ~= v)
                elseif i == 6 then assert.are.equal(k == 2 and 0 or 0.5, v)
                else near(1 / 3, v, 1e-6) end
            end
        end
        assert.are.same({0.5, 0, 0.5}, flow.tensor{1.0, -math.huge, 1.0}:softmax(0):totable())
        assert.are.same({1, 0}, flow.tensor{1e30, -1e30}:softmax(0):totable())
        local y = flow.tensor{0 / 0, 1.0}:softmax(0):totable()
        assert.is_true(y[1] ~= y[1] and y[2] ~= y[2])
    end)

    it("refuses integers and axes that are not there", function()
        fails("softmax: takes a float tensor, x is int64[2]; write x:to(\"float32\")", flow.softmax, flow.tensor{1, 2}, 0)
        fails("softmax", flow.softmax, flow.zeros(2, 3), 2)
        assert.are.same({0, 3}, {table.unpack(flow.zeros(0, 3):softmax(1).shape)})
        assert.are.same({0, 3}, {table.unpack(flow.zeros(0, 3):softmax(0).shape)})
    end)
end)

describe("rows of 16-bit floats", function()
    -- They are converted a few at a time; those that are not contiguous, all at once. A GPU divides a row among threads by its dtype,
    -- so there the last bit of a result may differ.
    local function agrees(want, got, what)
        if support.on_device then return support.same(want, got, what, want.dtype == "float16" and 2e-3 or 1.6e-2) end
        assert(got:equal(want), what)
    end

    it("have the results of float32, rounded", function()
        flow.manual_seed(12)
        for _, dtype in ipairs {"bfloat16", "float16"} do
            for _, sizes in ipairs {{0, 3}, {1, 1}, {70, 3}, {5, 33}, {40, 1024}, {2, 2049}, {3, 5000}} do
                local rows, n = sizes[1], sizes[2]
                local x, g, w, b = flow.randn(rows, n):to(dtype), flow.randn(rows, n):to(dtype), flow.randn(n):to(dtype), flow.randn(n):to(dtype)
                for name, f in pairs {
                    softmax = function(t) return t:softmax(-1) end,
                    log_softmax = function(t) return t:log_softmax(-1) end,
                    layer_norm = function(t, p, q) return flow.layer_norm(t, n, p, q) end,
                } do
                    local what = ("%s of %s[%d, %d]"):format(name, dtype, rows, n)
                    local want = f(x:to("float32"), w:to("float32"), b:to("float32")):to(dtype)
                    agrees(want, f(x, w, b), what)
                    local strided = x:t():contiguous():t()
                    agrees(want, f(strided, w, b), what .. ", strided")
                    local function slope(t)
                        local leaf = t:detach():requires_grad_()
                        return flow.grad(f(leaf, w, b), leaf, {grad_outputs = {g}})
                    end
                    agrees(slope(x), slope(strided), "gradient of " .. what)
                end
            end
        end
    end)
end)

describe("layer_norm", function()
    it("of long rows far from 0 keeps its digits", function()
        flow.manual_seed(13)
        for _, n in ipairs {2047, 2049, 10000} do
            local x = flow.randn({3, n}, {dtype = "float64"}) + 1000
            local z = (x - x:mean(1, true)) / (x:var(1, 0, true) + 1e-5):sqrt()
            assert.is_true((flow.layer_norm(x, n) - z):abs():amax():item() < 1e-11)
            assert.is_true((flow.layer_norm(x:float(), n) - z):abs():amax():item() < 5e-4)
        end
    end)

    it("agrees with mean and variance written out, weight and bias given or not", function()
        flow.manual_seed(6)
        for _, shape in ipairs {{3, 7}, {2, 3, 64}, {70, 65}, {1, 130}} do
            local n = shape[#shape]
            local x, w, b = flow.randn(shape) * 3 + 1, flow.randn(n), flow.randn(n)
            local mean = x:mean(-1, true)
            local z = (x - mean) / ((x - mean):square():mean(-1, true) + 1e-5):sqrt()
            assert.is_true((flow.layer_norm(x, n) - z):abs():amax():item() < 1e-4)
            assert.is_true((flow.layer_norm(x, n, w, b) - (z * w + b)):abs():amax():item() < 1e-4)
            assert.is_true((flow.layer_norm(x, {n}, nil, b) - (z + b)):abs():amax():item() < 1e-4)
        end
    end)

    it("sums the gradients of weight and bias over many rows", function()
        flow.manual_seed(7)
        local x, g = flow.randn(3000, 20), flow.randn(3000, 20)
        local w, b = flow.ones(20, {requires_grad = true}), flow.zeros(20, {requires_grad = true})
        flow.layer_norm(x, 20, w, b):backward(g)
        assert.is_true((b.grad - g:sum(0)):abs():amax():item() < 1e-3)
        assert.is_true((w.grad - (g * flow.layer_norm(x, 20)):sum(0)):abs():amax():item() < 1e-3)
    end)

    it("says what does not fit", function()
        fails("layer_norm: the last sizes of x must be [4], x is float32[2, 3]", flow.layer_norm, flow.zeros(2, 3), 4)
        fails("layer_norm: weight must be [3], got float32[2]", flow.layer_norm, flow.zeros(2, 3), 3, flow.zeros(2))
        fails("layer_norm: takes a float tensor, x is int64[2]; write x:to(\"float32\")", flow.layer_norm, flow.tensor{1, 2}, 2)
    end)
end)
