-- torch_names_spec.lua -- special functions, second names and functions of few lines: values and messages. tests/peer
-- has them beside PyTorch.
local flow = require "flow"
local support = require "tests.support"

local message = support.message_of
local special = flow.special

local function near(want, x) flow.testing.assert_close(x:to "float64", flow.tensor(want, {dtype = "float64"}), {rtol = 1e-6, atol = 1e-9}) end
local function doubles(list) return flow.tensor(list, {dtype = "float64"}) end

describe("special functions", function()
    for name, row in pairs {
        i0 = {{0, 1, -2}, {1, 1.2660658777520082, 2.279585302336067}}, i1 = {{0, 1, -2}, {0, 0.5651591039924851, -1.5906368546373291}},
        i0e = {{0, 40}, {1, 0.0632782798752}}, i1e = {{0, -40}, {0, -0.0624822290744}},
        modified_bessel_k0 = {{1, 0.1}, {0.42102443824070834, 2.4270690247020164}},
        modified_bessel_k1 = {{1, 0.1}, {0.6019072301972346, 9.853844780870606}},
        erfcx = {{0, 1, 50}, {1, 0.427583576155807, 0.011281536265323762}}, ndtr = {{0, 1}, {0.5, 0.8413447460685429}},
        ndtri = {{0.5, 0.975}, {0, 1.959963984540054}}, log_ndtr = {{0, -20}, {-0.6931471805599453, -203.91715537109727}},
        entr = {{0, 1, 0.5}, {0, 0, 0.34657359027997264}},
    } do
        it(name, function() near(row[2], special[name](doubles(row[1]))) end)
    end

    it("modified Bessel functions of float32 are those of float64, rounded", function()
        local x = flow.linspace(-60, 60, 4801)
        for _, name in ipairs {"i0", "i0e", "i1", "i1e"} do
            local wide, narrow = special[name](x:to "float64"), special[name](x)
            flow.testing.assert_close(narrow:to "float64", wide, {rtol = 6.1e-8, atol = 1e-30})
        end
        local edges = flow.tensor {math.huge, -math.huge, 1000, -1000}
        assert.are.same({math.huge, math.huge, math.huge, math.huge}, special.i0(edges):totable())
        assert.are.same({math.huge, -math.huge, math.huge, -math.huge}, special.i1(edges):totable())
        assert.are.same({0, 0}, special.i0e(edges):narrow(0, 0, 2):totable())
        assert.is_true(special.i0(flow.tensor(0 / 0)):isnan():item() and special.i1e(flow.tensor(0 / 0)):isnan():item())
    end)

    it("have the incomplete gamma functions add up to 1", function()
        local a, x = doubles {0.5, 3, 40, 2e5}, doubles {1.5, 2, 45, 2.001e5}
        flow.testing.assert_close(flow.igamma(a, x) + flow.igammac(a, x), flow.ones_like(a), {rtol = 1e-12, atol = 0})
        near({0.9167354833364496, 0.3233235838169365}, flow.igamma(doubles {0.5, 3}, doubles {1.5, 2}))
    end)

    it("Airy's function and its derivatives", function()
        local x = doubles {-50, -10.3, -8, -0.4, 0, 2, 8.3, 10.4, 50}:requires_grad_()
        local y = special.airy_ai(x)
        local slope = flow.autograd.grad(y:sum(), x, {create_graph = true})
        local second = flow.autograd.grad(slope:sum(), x)
        local exact = {rtol = 3e-14, atol = 0}
        flow.testing.assert_close(y:detach(), doubles {
            -0.16188142361232092, -0.23210801885482975, -0.052705050356386203, 0.4542256138886674, 0.35502805388781724, 0.034924130423274379,
            1.9748617496676891e-8, 3.0498881865939978e-11, 4.5849417240748285e-104}, exact)
        flow.testing.assert_close(slope:detach(), doubles {
            0.96898983727674909, 0.67749282954091108, 0.93556093819830655, -0.22503140930241503, -0.2588194037928068, -0.053090384433653632,
            -5.7475397363379974e-8, -9.9075995195010691e-11, -3.2443318198287993e-103}, exact)
        flow.testing.assert_close(second, (x * y):detach(), exact)
        assert.are.same({0, 0}, special.airy_ai(doubles {math.huge, -math.huge}):totable())
    end)

    it("refuse the gradient that nobody has", function()
        local a = doubles {2, 3}:requires_grad_()
        assert.are.equal("igamma: there is no gradient in x; write x:detach()",
            message(function() flow.igamma(a, 1.5):sum():backward() end))
    end)

    it("multigammaln has values outside of its domain, as PyTorch", function()
        near({math.huge, math.huge, 5.0088342241844339}, special.multigammaln(doubles {0.5, 0, -1.2}, 3))
    end)
end)

describe("other names", function()
    it("fill_diagonal_ fills masks, gradient reads the neighbours alone", function()
        local mask = flow.zeros({2, 2}, {dtype = "bool"})
        assert.same({{true, false}, {false, true}}, mask:clone():fill_diagonal_(true):totable())
        assert.same({{true, false}, {false, true}}, mask:clone():fill_diagonal_(1):totable())
        local slopes = flow.gradient(flow.tensor {0, math.huge, 4, 5, 6}):totable()
        assert.same({math.huge, 2, -math.huge, 1, 1}, slopes)
    end)

    it("isin finds numbers beside NaN, and no NaN", function()
        local nan, inf = 0 / 0, math.huge
        for _, case in ipairs {
            {{3.0}, {3, nan}, {true}}, {{1, 2, 5.0}, {nan, 5}, {false, false, true}}, {{1, nan, -inf}, {nan, nan}, {false, false, false}},
            {{inf, -inf, nan, 2}, {nan, inf, -inf, nan}, {true, true, false, false}},
        } do
            local x, test, want = flow.tensor(case[1]), flow.tensor(case[2], {dtype = "float32"}), flow.tensor(case[3])
            assert.equal(want, flow.isin(x, test))
            assert.equal(want:logical_not(), flow.isin(x, test, {invert = true}))
        end
        local t = flow.tensor {{1, 3}, {5, 3}}
        for value, row in pairs {[3] = {true, {{false, true}, {false, true}}}, [4] = {false, {{false, false}, {false, false}}}} do
            assert.equal(row[1], flow.isin(value, t):item())
            assert.equal(not row[1], flow.isin(value, t, {invert = true}):item())
            assert.same({}, flow.isin(value, t).shape)
            assert.same(row[2], flow.isin(t, value):totable())
        end
        assert.is_true(flow.isin(2.5, flow.tensor(2.5)):item())
        assert.is_false(flow.isin(2.5, t):item() or flow.isin(1, flow.zeros(0)):item())
        local numbers = flow.arange(50000):to "float32"
        numbers[7] = nan
        assert.equal(49999, flow.isin(flow.arange(100000):to "float32", numbers):sum():item())
    end)

    it("methods that work in place are functions too", function()
        for _, name in ipairs {"abs_", "relu_", "clamp_", "absolute_", "requires_grad_"} do
            assert.is_true(rawequal(flow[name], flow.ones(1)[name]), name)
        end
        local x = flow.tensor {-1.5, 2}
        assert.equal(x, flow.abs_(x))
        assert.same({1.5, 2}, x:totable())
        assert.equal("abs_: x must be a tensor, got number; write x:abs_(...)", message(flow.abs_, 3))
        assert.equal("flow has no 'bbs_'", message(function() return flow.bbs_ end))
    end)

    it("are those of flow", function()
        assert.is_true(rawequal(flow.absolute, flow.abs))
        assert.are.same({1, 2}, flow.tensor {-1, 2}:absolute():totable())
        assert.are.same({1, 2}, flow.tensor {-1, 2}:absolute_():totable())
        assert.are.same({{1, 0}, {1, 1}}, flow.ones(2, 2):tril_():totable())
    end)

    it("are methods, too", function()
        local A, b = doubles {{4, 1}, {2, 3}}, doubles {{1}, {2}}
        local LU, pivots = A:lu()
        near({{0.1}, {0.6}}, b:lu_solve(LU, pivots))
        assert.is_true(rawequal(A, A:positive()) and rawequal(A, A:conj()))
        local w = flow.ones(1):requires_grad_()
        assert.is_false(flow.inference_mode(function() return (w * 2).requires_grad end))
    end)

    it("keep gradients in place", function()
        local x = doubles {2, 3}:requires_grad_()
        x:clone():cumprod_(0):sum():backward()
        assert.are.same({4, 2}, x.grad:totable())
    end)

    it("nonzero gives rows or one result per axis", function()
        local x = flow.tensor {{0, 3}, {4, 0}}
        assert.are.same({{0, 1}, {1, 0}}, x:nonzero():totable())
        local rows, columns = flow.nonzero(x, {as_tuple = true})
        assert.are.same({{0, 1}, {1, 0}}, {rows:totable(), columns:totable()})
        assert.are.equal("nonzero: unknown option 'as_tupel'; did you mean 'as_tuple'?",
            message(function() x:nonzero {as_tupel = true} end))
    end)

    it("histogram counts, weighs and makes shares", function()
        local x = flow.tensor {0.0, 1, 1, 2.5, 9}
        local counts, edges = flow.histogram(x, 3, {range = {0, 3}})
        assert.are.same({1, 2, 1}, counts:totable())
        assert.are.same({0, 1, 2, 3}, edges:totable())
        assert.are.same({0.25, 0.5, 0.25}, (flow.histogram(x, 3, {range = {0, 3}, density = true})):totable())
        assert.are.equal("histogram: weight must have the shape of x, [5], got [2]",
            message(function() flow.histogram(x, 3, {weight = flow.ones(2)}) end))
        assert.are.equal("histogram: range must be {low, high}, got {3, 0}",
            message(function() flow.histogram(x, 3, {range = {3, 0}}) end))
    end)

    it("histogramdd counts points", function()
        local x = flow.tensor {{0.0, 1}, {1, 0}, {2, 2}}
        local counts, edges = flow.histogramdd(x, {2, 3}, {range = {0, 2, 0, 3}, weight = flow.tensor {1.0, 2, 3}})
        assert.are.same({{0, 1, 0}, {2, 0, 3}}, counts:totable())
        assert.are.same({{0, 1, 2}, {0, 1, 2, 3}}, {edges[1]:totable(), edges[2]:totable()})
        for want, f in pairs {
            ["histogramdd: x must be points [..., n], got [2]"] = function() flow.histogramdd(flow.ones(2), 2) end,
            ["histogramdd: bins must have an entry for each of 2 axes, got 3"] = function() flow.histogramdd(x, {1, 2, 3}) end,
            ["histogramdd: range must have two numbers for each of 2 axes, got 2"] = function() flow.histogramdd(x, 2, {range = {0, 1}}) end,
            ["histogramdd: range must be {low, high}, got {1, 0}"] = function() flow.histogramdd(x, 2, {range = {0, 1, 1, 0}}) end,
            ["histogramdd: weight must have the shape [3], got [2]"] = function() flow.histogramdd(x, 2, {weight = flow.ones(2)}) end,
            ["histogramdd: bins must be the edges, a vector of float32, got float64 tensor"] = function()
                flow.histogramdd(x, {doubles {0, 1}, doubles {0, 1}})
            end,
        } do assert.are.equal(want, message(f)) end
    end)

    it("nonzero_static gives so many rows", function()
        local x = flow.tensor {{0, 3}, {4, 0}}
        assert.are.same({{0, 1}, {1, 0}, {-1, -1}}, x:nonzero_static({size = 3}):totable())
        assert.are.same({{0, 1}}, x:nonzero_static({size = 1, fill_value = 9}):totable())
        assert.are.same({2, 0}, flow.nonzero_static(flow.tensor(1), {size = 2}).shape)
        local positions = flow.capture(function(y) return y:nonzero_static {size = 2} end)
        for _ = 1, 3 do assert.are.same({{0, 1}, {1, 0}}, positions(x):totable()) end
        assert.are.same({{0, 0}, {-1, -1}}, positions(flow.tensor {{1, 0}, {0, 0}}):totable())
        assert.are.equal("nonzero_static: size must be 0 or more, got -1", message(function() x:nonzero_static {size = -1} end))
    end)

    it("segment_reduce reduces what lies together", function()
        local x = flow.tensor {1.0, 2, 3, 4, 5}
        local function reduced(how, options) return flow.segment_reduce(x, how, options):totable() end
        local lengths, offsets = flow.tensor {2, 0, 3}, flow.tensor {1, 2, 4}
        assert.are.same({3, 0, 12}, reduced("sum", {lengths = lengths}))
        assert.are.same({6.5, 10, 22 / 3}, flow.segment_reduce(x:double(), "mean", {lengths = lengths, initial = 10}):totable())
        assert.are.same({2, -math.huge, 5}, reduced("max", {lengths = lengths}))
        assert.are.same({2, 7}, reduced("sum", {offsets = offsets}))
        assert.are.same({3, 3}, reduced("sum", {lengths = flow.tensor {2, 1}, unsafe = true}))
        local captured = flow.capture(function(y, n) return flow.segment_reduce(y, "prod", {lengths = n, unsafe = true}) end)
        for _ = 1, 2 do assert.are.same({2, 1, 60}, captured(x, lengths):totable()) end
        assert.are.same({6, 1, 20}, captured(x, flow.tensor {3, 0, 2}):totable())
        for want, options in pairs {
            ["segment_reduce: takes lengths or offsets, got neither"] = {},
            ["segment_reduce: takes lengths or offsets, got both"] = {lengths = lengths, offsets = offsets},
            ["segment_reduce: lengths must be integers, they are float32"] = {lengths = x},
            ["segment_reduce: lengths must not be negative, one is -1"] = {lengths = flow.tensor {6, -1}},
            ["segment_reduce: lengths must add up to the 5 positions of the axis, they make 4; with unsafe = true the rest is left out"] = {
                lengths = flow.tensor {1, 3},
            },
            ["segment_reduce: lengths must have the axes of data before axis 0, and one of segments: they are [1, 2], data is [5]"] = {
                lengths = flow.tensor {{2, 3}},
            },
            ["segment_reduce: offsets must have one more entry than there are segments"] = {offsets = flow.zeros(0, {dtype = "int64"})},
        } do assert.are.equal(want, message(function() flow.segment_reduce(x, "sum", options) end)) end
    end)

    it("fake quantization rounds, and its gradient passes where it was in range", function()
        local inf, nan = math.huge, 0 / 0
        local x = flow.tensor {-10, -0.26, -0.25, 0.05, 0.15, 0.25, 1, 25, 26, nan, inf}
        x.requires_grad = true
        local function check(values, passes, f, ...)
            x.grad = nil
            local y = f(x, ...)
            flow.testing.assert_close(y:detach(), flow.tensor(values), {rtol = 1e-6, atol = 0})
            y:sum():backward()
            assert.are.same(passes, x.grad:totable())
        end
        local per_tensor, per_channel = flow.fake_quantize_per_tensor_affine, flow.fake_quantize_per_channel_affine
        local whole = flow.tensor {100}
        for _, zero in ipairs {100, whole, whole:int()} do
            for _, scale in ipairs {0.1, flow.tensor(0.1)} do
                check({-10, -0.3, -0.2, 0, 0.2, 0.2, 1, 15.5, 15.5, -10, 15.5}, {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, per_tensor, scale, zero, 0, 255)
            end
        end
        check({-0.4, -0.25, -0.25, 0, 0.15, 0.25, 0.2, 25, 13, -0.4, 0.4}, {0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0}, per_channel,
            flow.tensor {0.1, 0.25, 0.25, 0.1, 0.05, 0.25, 0.05, 6.25, 3.25, 0.1, 0.1}, flow.zeros(11):int(), 0, -4, 4)
        -- a zero point of floats is added before rounding
        local half = flow.fake_quantize_per_channel_affine(flow.tensor {{-0.05}, {0.6}}, flow.tensor {0.05}, flow.tensor {0.5}, -1, -8, 7)
        flow.testing.assert_close(half, flow.tensor {{-0.025}, {0.325}})
        assert.are.equal("bfloat16", per_tensor(flow.ones(2, {dtype = "bfloat16"}), flow.tensor(0.5), 0, 0, 3).dtype)
        local w = x:detach()
        for want, f in pairs {
            ["fake_quantize_per_tensor_affine: scale must have one element, got float32[2]"] = function() per_tensor(w, flow.ones(2), 0, 0, 3) end,
            ["fake_quantize_per_tensor_affine: quant_min must be at most quant_max, got 3 and 0"] = function() per_tensor(w, 1, 0, 3, 0) end,
            ["fake_quantize_per_tensor_affine: zero_point must be in [quant_min, quant_max] = [0, 3], got 4"] = function() per_tensor(w, 1, 4, 0, 3) end,
            ["fake_quantize_per_tensor_affine: zero_point must be a whole number or a tensor"] = function() per_tensor(w, 1, 0.5, 0, 3) end,
            ["fake_quantize_per_tensor_affine: takes a float tensor, x is int64[1]; write x:to(\"float32\")"] = function() per_tensor(whole, 1, 0, 0, 3) end,
            ["fake_quantize_per_tensor_affine: there is no gradient in scale; write scale:detach()"] = function()
                per_tensor(x, flow.ones(1):requires_grad_(), 0, 0, 3)
            end,
            ["fake_quantize_per_channel_affine: axis 1 is out of range for x float32[11]"] = function() per_channel(w, w, w, 1, 0, 3) end,
            ["fake_quantize_per_channel_affine: zero_point must be a vector with an element for each position of axis 0 of x float32[11], got int64[1]"] =
                function() per_channel(w, w, whole, 0, 0, 3) end,
        } do assert.are.equal(want, message(f)) end
    end)

    it("check what they are given", function()
        assert.are.equal("vander: x must be a vector, got [2, 2]", message(function() flow.vander(flow.ones(2, 2)) end))
        assert.are.equal("chebyshev_polynomial_t: n must be at most 10000, got 2147483648",
            message(function() flow.special.chebyshev_polynomial_t(flow.ones(2), 1 << 31) end))
        assert.are.equal("multigammaln: p must be at most 10000, got 10001",
            message(function() flow.special.multigammaln(flow.ones(2) * 1e9, 10001) end))
        assert.are.equal("pdist: x must be a matrix, got [2]", message(function() flow.pdist(flow.ones(2)) end))
        assert.are.equal("gradient: axis 0 must have at least 3 elements, x is [2]",
            message(function() flow.gradient(flow.ones(2), {edge_order = 2}) end))
        assert.are.equal("fill_diagonal_: all axes must have one size, got [2, 2, 3]",
            message(function() flow.ones(2, 2, 3):fill_diagonal_(1) end))
        assert.are.equal("sum_to_size: [3] cannot be broadcast to [2, 2]",
            message(function() flow.ones(2, 2):sum_to_size {3} end))
        assert.are.equal("index_reduce: source must be [2, 3], as many slices of x as the index names, got [2, 2]",
            message(function() flow.ones(4, 3):index_reduce(0, flow.tensor {0, 1}, flow.ones(2, 2), "prod") end))
    end)

    it("the state of the default generator can be kept", function()
        local state = flow.get_rng_state()
        local first = flow.rand(3)
        flow.set_rng_state(state)
        assert.is_true(flow.equal(first, flow.rand(3)))
    end)
end)
