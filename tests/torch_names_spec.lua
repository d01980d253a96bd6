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

    it("have the incomplete gamma functions add up to 1", function()
        local a, x = doubles {0.5, 3, 40, 2e5}, doubles {1.5, 2, 45, 2.001e5}
        flow.testing.assert_close(flow.igamma(a, x) + flow.igammac(a, x), flow.ones_like(a), {rtol = 1e-12, atol = 0})
        near({0.9167354833364496, 0.3233235838169365}, flow.igamma(doubles {0.5, 3}, doubles {1.5, 2}))
    end)

    it("refuse the gradient that nobody has", function()
        local a = doubles {2, 3}:requires_grad_()
        assert.are.equal("igamma: there is no gradient in x; write x:detach()",
            message(function() flow.igamma(a, 1.5):sum():backward() end))
        assert.are.equal("multigammaln: x must be larger than (p - 1) / 2 = 1 everywhere",
            message(function() special.multigammaln(doubles {0.5}, 3) end))
    end)
end)

describe("other names", function()
    it("are those of flow", function()
        assert.is_true(rawequal(flow.absolute, flow.abs))
        assert.are.same({1, 2}, flow.tensor {-1, 2}:absolute():totable())
        assert.are.same({1, 2}, flow.tensor {-1, 2}:absolute_():totable())
        assert.are.same({{1, 0}, {1, 1}}, flow.ones(2, 2):tril_():totable())
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
