-- losses_spec.lua -- losses and layer_norm against plain Lua over dtypes, layouts, sizes and the corners of their options.
-- loss_spec.lua has the formulas one by one, gradients and messages.
local flow = require "flow"
local support = require "tests.support"
local ref = require "tests.reference"

local inf, nan = math.huge, 0 / 0

-- Loss of every row of [n, classes, rest...] and what it counts in the mean: arrays in the shape of the labels.
local function row_losses(x, labels, options)
    local shape, classes = x.shape, x.shape[math.min(#x.shape, 2)]
    local rest = 1
    for i = 3, #shape do rest = rest * shape[i] end
    local losses, counts = {shape = labels.shape}, {}
    for row = 0, #labels - 1 do
        local outer, inner = row // rest, row % rest
        local line = {}
        for c = 0, classes - 1 do line[c + 1] = x[(outer * classes + c) * rest + inner + 1] end
        local log_p = options.logs and line or ref.log_softmax(line)
        local label, smoothing = labels[row + 1], options.label_smoothing or 0
        if label == (options.ignore_index or -100) then losses[row + 1], counts[row + 1] = 0.0, 0.0
        else
            local function weight(c) return options.weight and options.weight[c + 1] or 1.0 end
            local smooth = 0.0
            for c = 0, classes - 1 do smooth = smooth - weight(c) * log_p[c + 1] end
            losses[row + 1] = (smoothing < 1 and -(1 - smoothing) * weight(label) * log_p[label + 1] or 0) + (smoothing > 0 and smoothing / classes * smooth or 0)
            counts[row + 1] = weight(label)
        end
    end
    return losses, counts
end

local function reduced(losses, counts, reduction)
    if reduction == "none" then return losses end
    local sum = ref.sum(losses) + 0.0
    return {shape = {}, reduction == "sum" and sum or sum / ref.sum(counts)}
end

local function pseudo(dtype, shape, scale, seed)
    local random = ref.generator(seed)
    return ref.array(shape, function() return ref.round(dtype, random() * scale) end)
end

local function labels_of(shape, classes, ignored)
    return ref.array(shape, function(i) return i % 5 == 3 and ignored or i * 7 % classes end)
end

local tolerance = {float16 = 2, bfloat16 = 2, float32 = 32, float64 = 64}

describe("cross_entropy and nll_loss", function()
    for _, case in ipairs {
        {}, {reduction = "sum"}, {reduction = "none"}, {ignore_index = 2}, {ignore_index = -1, reduction = "none"}, {weight = true}, {weight = true, reduction = "none"},
        {label_smoothing = 0.1}, {label_smoothing = 1},
        {weight = true, label_smoothing = 0.25, ignore_index = 1}, {weight = true, label_smoothing = 0.5, reduction = "sum"},
    } do
        local words = {}
        for _, key in ipairs {"reduction", "weight", "label_smoothing", "ignore_index"} do
            if case[key] then words[#words + 1] = key .. " = " .. tostring(case[key]) end
        end
        it("with " .. (#words > 0 and table.concat(words, ", ") or "no options"), function()
            for _, shape in ipairs {{6, 5}, {1, 1}, {3, 17}, {40, 16}, {5, 65}, {7}, {2, 4, 3}, {2, 3, 2, 5}, {3, 1000}, {0, 4}} do
                local classes = shape[math.min(#shape, 2)]
                local label_shape = table.move(shape, 1, #shape, 1, {})
                table.remove(label_shape, math.min(#shape, 2))
                local labels = labels_of(label_shape, classes, case.ignore_index or -100)
                for _, dtype in ipairs(ref.floats) do
                    local x = pseudo(dtype, shape, 6, 3)
                    local weight = case.weight and pseudo(dtype, {classes}, 1, 5)
                    for i = 1, weight and classes or 0 do weight[i] = math.abs(weight[i]) + 0.5 end
                    if weight then weight = ref.map(function(v) return ref.round(dtype, v) end, weight) end
                    local options = {reduction = case.reduction, ignore_index = case.ignore_index, label_smoothing = case.label_smoothing,
                        weight = weight and ref.tensor(weight, dtype) or nil}
                    local plain = {weight = weight or nil, ignore_index = case.ignore_index, label_smoothing = case.label_smoothing}
                    local losses, counts = row_losses(x, labels, plain)
                    local want = reduced(losses, counts, case.reduction)
                    local slack = ref.epsilon(dtype) * (case.reduction == "sum" and #labels or 1) * 8
                    for _, layout in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                        local what = ("[%s] %s, %s"):format(table.concat(shape, ", "), dtype, layout[1])
                        for _, kind in ipairs(dtype == "float32" and {"int64", "int32"} or {"int64"}) do
                            ref.check(flow.cross_entropy(layout[2], ref.tensor(labels, kind), options), want, dtype, tolerance[dtype], what, slack)
                        end
                        if not case.label_smoothing and #shape < 4 then
                            plain.logs = true
                            local logs, log_counts = row_losses(x, labels, plain)
                            plain.logs = nil
                            local got = flow.nll_loss(layout[2], ref.tensor(labels, "int64"),
                                {weight = options.weight, reduction = case.reduction, ignore_index = case.ignore_index})
                            ref.check(got, reduced(logs, log_counts, case.reduction), dtype, tolerance[dtype], "nll_loss " .. what, slack)
                        end
                    end
                end
            end
        end)
    end

    it("at the edges", function()
        local x = flow.tensor({{1.0, 2.0}, {3.0, 0.0}})
        local ignored = flow.tensor({-100, -100})
        assert.are.equal(flow.cross_entropy(x, flow.tensor({0, 1})):item(), flow.cross_entropy(x, flow.tensor({0, 1}), {}):item()) -- no option set
        assert.is_true(flow.cross_entropy(x, ignored):isnan():item()) -- a mean of nothing
        assert.are.equal(0, flow.cross_entropy(x, ignored, {reduction = "sum"}):item())
        assert.are.same({0, 0}, flow.cross_entropy(x, ignored, {reduction = "none"}):totable())
        assert.is_true(flow.cross_entropy(flow.zeros(0, 3), flow.zeros({0}, {dtype = "int64"})):isnan():item())
        assert.are.equal(0, flow.cross_entropy(flow.tensor({{-inf, 5.0}}), flow.tensor({1})):item())
        assert.are.equal(inf, flow.cross_entropy(flow.tensor({{-inf, 5.0}}), flow.tensor({0})):item())
        assert.is_true(flow.cross_entropy(flow.tensor({{nan, 5.0}}), flow.tensor({1})):isnan():item())
        assert.is_true(flow.cross_entropy(flow.tensor({{-inf, -inf}}), flow.tensor({1})):isnan():item())
        assert.are.equal(0, flow.cross_entropy(flow.tensor({{7.0}}), flow.tensor({0})):item())
        assert.are.equal(1e30, flow.cross_entropy(flow.tensor({{1e30, 0.0}}, {dtype = "float64"}), flow.tensor({1})):item())
    end)

    it("of many rows, on all threads", function()
        local x = pseudo("float32", {50, 33}, 5, 9)
        local labels = labels_of({50}, 33, -100)
        local losses, counts = row_losses(x, labels, {})
        local t, target = ref.tensor(x, "float32"), ref.tensor(labels, "int64")
        local whole = flow.cross_entropy(t:rep(200, 1), target:rep(200), {reduction = "none"})
        ref.check(whole:narrow(0, 0, 50), losses, "float32", 32, "many rows", 1e-6)
        -- a GPU fetches rows of odd lengths in aligned vectors: where a row begins in one may move the last bit
        local moved = (whole:reshape(200, 50) - whole:narrow(0, 0, 50)):abs():amax():item()
        assert.is_true(moved <= (t.device == "cpu" and 0 or 1e-6), moved)
        ref.check(flow.cross_entropy(t:rep(200, 1), target:rep(200)), reduced(losses, counts), "float32", 32, "mean of many rows")
        local wide = pseudo("float32", {2, 50000}, 5, 9)
        ref.check(flow.cross_entropy(ref.tensor(wide, "float32"), flow.tensor({7, 49999}), {reduction = "none"}),
            (row_losses(wide, {7, 49999, shape = {2}}, {})), "float32", 32, "wide rows")
    end)
end)

describe("mse_loss and binary_cross_entropy_with_logits", function()
    for _, reduction in ipairs {"mean", "sum", "none"} do
        it(reduction, function()
            for _, shape in ipairs {{}, {1}, {17}, {3, 5}, {2, 3, 33}, {0}} do
                for _, dtype in ipairs(ref.floats) do
                    local x, y = pseudo(dtype, shape, 4, 1), pseudo(dtype, shape, 1, 2)
                    y = ref.map(function(v) return ref.round(dtype, math.abs(v)) end, y)
                    local ones = ref.map(function() return 1 end, x)
                    local squares = ref.map(function(a, b) return (a - b) ^ 2 end, x, y)
                    local entropies = ref.map(function(a, b) return math.max(a, 0) - a * b + ref.log1p(math.exp(-math.abs(a))) end, x, y)
                    for _, layout in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                        local target = ref.tensor(y, dtype)
                        local what = ("%s [%s] %s"):format(dtype, table.concat(shape, ", "), layout[1])
                        local slack = ref.epsilon(dtype) * (reduction == "sum" and math.max(#x, 1) or 1) * 16
                        ref.check(flow.mse_loss(layout[2], target, reduction), reduced(squares, ones, reduction), dtype, tolerance[dtype], "mse_loss " .. what, slack)
                        local got = flow.binary_cross_entropy_with_logits(layout[2], target, {reduction = reduction})
                        ref.check(got, reduced(entropies, ones, reduction), dtype, tolerance[dtype], "binary_cross_entropy " .. what, slack)
                    end
                end
            end
        end)
    end
end)

describe("layer_norm", function()
    it("over dtypes, layouts and sizes", function()
        for _, case in ipairs {
            {{3, 7}, 1}, {{2, 16}, 1}, {{5, 17}, 1}, {{2, 3, 33}, 1}, {{2, 3, 4}, 2}, {{4, 5}, 2}, {{1, 1}, 1}, {{65}, 1},
            {{2, 1000}, 1}, {{0, 3}, 1},
        } do
            local shape, axes = case[1], case[2]
            local sizes = table.move(shape, #shape - axes + 1, #shape, 1, {})
            local n = ref.count(sizes)
            for _, dtype in ipairs(ref.floats) do
                local x, w, b = pseudo(dtype, shape, 3, 1), pseudo(dtype, sizes, 2, 2), pseudo(dtype, sizes, 1, 3)
                for _, eps in ipairs {1e-5, 0.5} do
                    local plain = {shape = shape}
                    for row = 0, #x // n - 1 do
                        local line = table.move(x, row * n + 1, row * n + n, 1, {})
                        local mean, squares = ref.sum(line) / n, {}
                        for i, v in ipairs(line) do squares[i] = (v - mean) ^ 2 end
                        local scale = 1 / math.sqrt(ref.sum(squares) / n + eps)
                        for i, v in ipairs(line) do plain[row * n + i] = (v - mean) * scale end
                    end
                    local full = ref.map(function(v, p, q) return v * p + q end, plain, w, b)
                    local slack = ref.epsilon(dtype) * 16 * (n == 1 and 100 or 1)
                    for _, layout in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                        local what = ("layer_norm [%s] %s %s"):format(table.concat(shape, ", "), dtype, layout[1])
                        local weight, bias = ref.tensor(w, dtype), ref.tensor(b, dtype)
                        ref.check(flow.layer_norm(layout[2], sizes, nil, nil, eps), plain, dtype, 8, what, slack)
                        ref.check(flow.layer_norm(layout[2], sizes, weight, bias, {eps = eps}), full, dtype, 8, what, slack)
                        ref.check(flow.layer_norm(layout[2], sizes, weight, nil, eps), ref.map(function(v, p) return v * p end, plain, w), dtype, 8, what, slack)
                    end
                end
            end
        end
    end)

    it("keeps small differences of large numbers", function()
        local x = flow.tensor({{10001, 10002, 10003, 10004}}, {dtype = "float32"})
        local want = {-1.3416407, -0.4472136, 0.4472136, 1.3416407}
        for i, v in ipairs(flow.layer_norm(x, 4, nil, nil, 0):totable()[1]) do assert.is_true(math.abs(v - want[i]) < 1e-5) end
        assert.are.same({0, 0, 0}, flow.layer_norm(flow.full({3}, 7.5), 3):totable())
    end)
end)

describe("messages", function()
    local x, labels = flow.zeros(4, 5), flow.tensor({0, 1, 2, 3})
    for _, case in ipairs {
        {"cross_entropy: missing argument 'target'", function() flow.cross_entropy(x) end},
        {"cross_entropy: reduction must be one of mean|sum|none, got 'avg'", function() flow.cross_entropy(x, labels, {reduction = "avg"}) end},
        {"cross_entropy: unknown option 'ignore_indx'; did you mean 'ignore_index'?", function() flow.cross_entropy(x, labels, {ignore_indx = 3}) end},
        {"cross_entropy: weight must be a tensor, got table; flow.tensor makes one of a list", function() flow.cross_entropy(x, labels, {weight = {1, 1, 1, 1, 1}}) end},
        {"cross_entropy: target must be a tensor, got table; flow.tensor makes one of a list", function() flow.cross_entropy(x, {0, 1, 2, 3}) end},
        {"cross_entropy: label_smoothing must be between 0 and 1, got nan", function() flow.cross_entropy(x, labels, {label_smoothing = nan}) end},
        {"cross_entropy: input [4] and target [1] do not fit; target must be []", function() flow.cross_entropy(flow.zeros(4), flow.tensor({0})) end},
        {"cross_entropy: input has no axis of classes", function() flow.cross_entropy(flow.tensor(1.0), flow.tensor(0)) end},
        {"cross_entropy: target[0] is 0, but input has no classes", function() flow.cross_entropy(flow.zeros(2, 0), flow.tensor({0, 0})) end},
        {"nll_loss: target must be integers (class labels), got float32[4]", function() flow.nll_loss(x, flow.zeros(4)) end},
        {"mse_loss: input float32[4, 5] and target float32[4, 6] differ in shape", function() flow.mse_loss(x, flow.zeros(4, 6)) end},
        {"mse_loss: takes a float tensor, input is int64[1]; write input:to(\"float32\")", function() flow.mse_loss(flow.tensor({1}), flow.tensor({1})) end},
        {"binary_cross_entropy_with_logits: input float32[4, 5] and target int64[4] differ in shape", function() flow.binary_cross_entropy_with_logits(x, labels) end},
        {"layer_norm: the last sizes of x must be [4], x is float32[4, 5]", function() flow.layer_norm(x, 4) end},
        {"layer_norm: missing argument 'sizes': layer_norm(x, sizes: sizes, weight?, bias?, eps: float = 1e-5)", function() flow.layer_norm(x) end},
        {"layer_norm: weight must be a tensor, got table; flow.tensor makes one of a list", function() flow.layer_norm(x, 5, {1, 2}) end},
        {"layer_norm: the last sizes of x must be [], x is float32[4, 5]", function() flow.layer_norm(x, {}) end},
        {"layer_norm: bias must be [5], got float32[4]", function() flow.layer_norm(x, 5, nil, flow.zeros(4)) end},
    } do
        it(case[1], function()
            assert.are.equal(case[1], support.message_of(case[2]))
        end)
    end
end)
