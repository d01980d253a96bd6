-- samplers_spec.lua -- random numbers of distributions: moments, extreme parameters, errors.
local flow = require "flow"
local support = require "tests.support"

local N = 100000
local function zeros() return flow.zeros(N, {dtype = "float64"}) end
local function filled(value) return flow.full({N}, value + 0.0, {dtype = "float64"}) end

local function moments(x, mean, variance)
    x = x:to "float64"
    local spread = math.sqrt(variance / N)
    assert.is_true(math.abs(x:mean():item() - mean) < 6 * spread + 1e-9, "mean " .. x:mean():item())
    assert.is_true(math.abs(x:var():item() / variance - 1) < 0.06, "variance " .. x:var():item())
end

describe("samplers:", function()
    before_each(function() flow.manual_seed(5) end)

    it("fills in place", function()
        moments(zeros():exponential_(2), 0.5, 0.25)
        moments(zeros():geometric_(0.3), 1 / 0.3, 0.7 / 0.09)
        moments(zeros():log_normal_(0, 0.25), math.exp(1 / 32), (math.exp(1 / 16) - 1) * math.exp(1 / 16))
        moments(zeros():random_(-3, 4), 0, 4)
        moments(zeros():bernoulli_(0.2), 0.2, 0.16)
        local sorted = zeros():cauchy_(2, 3):sort()
        assert.is_true(math.abs(sorted[N // 2]:item() - 2) < 0.1)
        assert.is_true(math.abs(sorted[3 * N // 4]:item() - 5) < 0.2)
    end)

    it("draws by parameters", function()
        for _, rate in ipairs {0.1, 3, 12, 300} do moments(filled(rate):poisson(), rate, rate) end
        for _, shape in ipairs {0.1, 0.7, 2, 50} do moments(filled(shape):standard_gamma(), shape, shape) end
        for _, case in ipairs {{5, 0.3}, {5, 0.9}, {100, 0.4}, {1000, 0.7}} do
            local n, p = case[1], case[2]
            moments(flow.binomial(filled(n), filled(p)), n * p, n * p * (1 - p))
        end
    end)

    it("chooses by weights", function()
        local w = flow.tensor {1.0, 2, 0, 5}
        local x = w:multinomial(N, true)
        for i, share in ipairs {0.125, 0.25, 0, 0.625} do
            assert.is_true(math.abs(x:eq(i - 1):to("float32"):mean():item() - share) < 0.01)
        end
        local pairs_ = w:expand(N, 4):multinomial(2)
        assert.is_false(pairs_:select(1, 0):eq(pairs_:select(1, 1)):any():item())
        assert.is_false(pairs_:eq(2):any():item())
        for i, share in ipairs {0.125, 0.25, 0, 0.625} do
            assert.is_true(math.abs(pairs_:select(1, 0):eq(i - 1):to("float32"):mean():item() - share) < 0.01)
        end
    end)

    it("ends for extreme parameters", function()
        for _, value in ipairs {0, 1e-300, 1e-30, 1e15, 1e29, 1e200, math.huge} do
            local x = flow.full({3}, value + 0.0, {dtype = "float64"})
            assert.is_false(x:poisson():isnan():any():item())
            assert.is_false(x:standard_gamma():isnan():any():item())
            local p = flow.tensor({0.0, 0.3, 1.0}, {dtype = "float64"})
            if value < math.huge then assert.is_false(flow.binomial(x, p):isnan():any():item()) end
        end
    end)

    it("does not depend on how a tensor is cut", function()
        local shape = flow.rand(50, 40) + 0.1
        flow.manual_seed(9)
        local whole = shape:standard_gamma()
        flow.set_num_threads(1)
        flow.manual_seed(9)
        assert.is_true(shape:standard_gamma() == whole)
        flow.set_num_threads(2)
    end)

    it("words its errors", function()
        for message, f in pairs {
            ["exponential_: lambd 0 must be positive"] = function() flow.zeros(2):exponential_(0) end,
            ["geometric_: p 1.5 is not between 0 and 1"] = function() flow.zeros(2):geometric_(1.5) end,
            ["poisson: a rate must not be negative, got -2"] = function() flow.tensor({-2.0}):poisson():item() end,
            ["multinomial: num_samples 4 is more than the 3 categories; write {replacement = true}"] = function()
                flow.ones(3):multinomial(4)
            end,
            ["multinomial: weights must be finite and not negative"] = function()
                flow.tensor({-2.0, 1}):multinomial(1):item()
            end,
            ["normal: std must not be negative, got -1"] = function() flow.normal(flow.zeros(2), -1) end,
            ["bernoulli: p 2 is not between 0 and 1"] = function() flow.zeros(2):bernoulli(2) end,
            ["random_: high 3 must be greater than low 5"] = function() flow.zeros(2):random_(5, 3) end,
        } do
            assert.are.equal(message, support.error_of(f))
        end
    end)
end)
