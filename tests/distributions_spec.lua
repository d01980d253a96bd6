-- distributions_spec.lua -- every line of distributions.lua: samples, moments, gradients, shapes. tests/peer has the values.
local flow = require "flow"
local support = require "tests.support"
local D = flow.distributions
local lines = require "tests.distributions"

local function tensors(line)
    local list = {}
    for i, values in ipairs(line[2]) do list[i] = flow.tensor(values, {dtype = "float64"}) end
    return list
end

local function make(line, parameters)
    if line[3] then return line[3](D, table.unpack(parameters)) end
    return D[line[1]](table.unpack(parameters))
end

local function close(got, want, tolerance, what)
    local scale = want:abs():max():item() + 1
    assert.is_true((got - want):abs():max():item() < tolerance * scale,
        what .. ": " .. tostring(got) .. " instead of " .. tostring(want))
end

describe("flow.distributions:", function()
    it("every class has a line", function()
        local known, missing = {Distribution = true, transforms = true, biject_to = true, transform_to = true}, {}
        for name in pairs(D.transforms) do known[name] = true end
        for _, line in ipairs(lines) do known[line[1]] = true end
        for _, name in ipairs(getmetatable(D).__names) do
            if not known[name] then missing[#missing + 1] = name end
        end
        assert.are.same({}, missing)
    end)

    for number, line in ipairs(lines) do
        describe(line[1] .. " (line " .. number .. ")", function()
            it("samples its mean and variance", function()
                if line.moments == false then return end
                flow.manual_seed(number)
                local d = make(line, tensors(line))
                local x = d:sample {100000}:to "float64"
                close(x:mean(0), d.mean, 0.03, "mean")
                close(x:var(0), d.variance, 0.06, "variance")
                assert.is_true((d.stddev * d.stddev - d.variance):abs():max():item() < 1e-9)
            end)

            it("has samples in its support, and a finite log_prob there", function()
                local d = make(line, tensors(line))
                local x = d:sample {7, 3}
                assert.are.same(table.concat(x.shape, " "), table.concat(d:_extended {7, 3}, " "))
                local log_prob = d:log_prob(x)
                assert.is_true(log_prob:isfinite():all():item())
                assert.are.equal(2 + #d.batch_shape, log_prob.ndim)
                assert.are.equal(#d.batch_shape + #d.event_shape, d:sample().ndim)
            end)

            it("has the entropy of its samples, and a mode that is likely", function()
                flow.manual_seed(number)
                local d = make(line, tensors(line))
                local has, entropy = pcall(d.entropy, d)
                if has then
                    local expected = -d:log_prob(d:sample {50000}):mean(0)
                    close(entropy, expected, 0.03, "entropy")
                    close(d:perplexity(), entropy:exp(), 1e-9, "perplexity")
                else assert.is_truthy(entropy:find("has no entropy", 1, true) or entropy:find("entropy: ", 1, true), entropy) end
                local known, mode = pcall(function() return d.mode end)
                if known and mode:isnan():all():item() then return assert.are.equal("Uniform", d.name) end
                if not known then return assert.is_truthy(mode:find("has no mode", 1, true), mode) end
                local log_prob = d:log_prob(d:sample {2000}):max(0)
                assert.is_true((d:log_prob(mode) - log_prob):ge(-1e-6):all():item(), tostring(mode))
            end)

            it("has gradients of two orders", function()
                local value = flow.tensor(line[4], {dtype = "float64"})
                support.gradcheck(function(parameters)
                    D.set_default_validate_args(false) -- a symmetric matrix is moved in one element
                    local result = make(line, parameters):log_prob(value)
                    D.set_default_validate_args(true)
                    return {result, n = 1}
                end, tensors(line), line[1])
            end)

            it("gives samples gradients where it has rsample", function()
                local d = make(line, tensors(line))
                if not d.has_rsample then
                    assert.has_error(function() d:rsample() end)
                    return
                end
                local parameters = tensors(line)
                for _, p in ipairs(parameters) do p:requires_grad_() end
                make(line, parameters):rsample {5}:sum():backward()
                for i, p in ipairs(parameters) do
                    local grad = p.grad
                    assert.is_true(grad ~= nil and grad:isfinite():all():item(), line[1] .. " parameter " .. i)
                end
            end)

            it("expands", function()
                if line[1] == "TransformedDistribution" and #line[4] == 0 then return end
                local d = make(line, tensors(line))
                local shape = table.move(d.batch_shape, 1, #d.batch_shape, 2, {4})
                local e = d:expand(shape)
                local value = flow.tensor(line[4], {dtype = "float64"})
                assert.are.same(shape, e.batch_shape)
                local want = d:log_prob(value)
                close(e:log_prob(value), want:expand(shape), 1e-12, "log_prob")
            end)
        end)
    end
end)

describe("the slopes of samples", function()
    -- d/da E[x] of what is drawn
    for name, case in pairs {
        Gamma = {function(a) return D.Gamma(a, 2) end, function(a) return a / 2 end},
        Beta = {function(a) return D.Beta(a, 2) end, function(a) return a / (a + 2) end},
        Dirichlet = {function(a) return D.Dirichlet(flow.stack({a, a * 0 + 2, a * 0 + 1}, -1)) end, nil},
    } do
        it("of " .. name .. " have the slope of the mean as theirs", function()
            flow.manual_seed(3)
            local a = flow.tensor({0.4, 1.5, 6.0}, {dtype = "float64", requires_grad = true})
            local d = case[1](a)
            local mean = d:rsample {200000}:mean(0)
            local want = d.mean
            if mean.ndim == 2 then mean, want = mean:select(1, 0), want:select(1, 0) end
            local got = flow.grad(mean:sum(), a, {retain_graph = true})
            close(got, flow.grad(want:sum(), a), 0.01, name)
        end)
    end
end)

describe("distributions", function()
    it("enumerate their supports", function()
        assert.are.same({0, 1}, D.Bernoulli(0.5):enumerate_support():totable())
        local c = D.Categorical(flow.rand(2, 4))
        assert.are.same({{0, 0}, {1, 1}, {2, 2}, {3, 3}}, c:enumerate_support():totable())
        assert.is_true((c:log_prob(c:enumerate_support()):exp():sum(0) - 1):abs():max():item() < 1e-5)
        local b = D.Binomial(6, 0.3)
        assert.is_true(math.abs(b:log_prob(b:enumerate_support()):exp():sum():item() - 1) < 1e-5)
        local o = D.OneHotCategorical(flow.rand(3))
        assert.is_true(math.abs(o:log_prob(o:enumerate_support()):exp():sum():item() - 1) < 1e-5)
    end)

    it("draw the same for a seed", function()
        local function draw()
            flow.manual_seed(11)
            return D.Gamma(0.5, 1):sample {50}, D.Poisson(30):sample {50}, D.VonMises(0, 3):sample {50}
        end
        local a, b, c = draw()
        local x, y, z = draw()
        assert.is_true(a == x and b == y and c == z)
    end)

    it("check parameters and values", function()
        for message, f in pairs {
            ["Normal: scale must be positive"] = function() D.Normal(0, -1) end,
            ["Normal: parameters of shapes [2] and [3] do not broadcast"] = function()
                D.Normal(flow.zeros(2), flow.ones(3))
            end,
            ["Bernoulli: a value must be 0 or 1"] = function() D.Bernoulli(0.5):log_prob(flow.tensor {0.5}) end,
            ["Bernoulli: takes probs or logits, one of them, got none"] = function() D.Bernoulli() end,
            ["Poisson: has no rsample; sample has no gradients"] = function() D.Poisson(3):rsample() end,
            ["Beta: has no cdf"] = function() D.Beta(3, 1):cdf(flow.ones(1)) end,
            ["Gamma has no 'men'"] = function() return D.Gamma(3, 1).men end,
            ["kl_divergence: there is no rule for distributions.Normal and distributions.Poisson; write "
                .. "flow.distributions.register_kl(P, Q, f)"] = function() D.kl_divergence(D.Normal(0, 1), D.Poisson(1)) end,
        } do
            assert.are.equal(message, support.error_of(f))
        end
        assert.is_true(D.Normal(0, -1, {validate_args = false}).scale:item() == -1)
    end)

    it("have constraints that say of any values whether they are allowed", function()
        local c = D.constraints
        local function allowed(name, x) return tostring(c[name].check(x):to("uint8"):totable() == 1) end
        for _, dtype in ipairs {"float64", "bfloat16", "int32", "bool"} do
            for _, name in ipairs {"positive_definite", "positive_semidefinite", "symmetric", "square"} do
                assert.are.equal("true", allowed(name, flow.eye(2):to(dtype)), name .. dtype)
            end
        end
        assert.are.equal("false", allowed("positive_definite", flow.tensor {{1, 2}, {2, 1}}))
        assert.are.equal("false", allowed("positive_definite", flow.tensor {{1.0, 0.5}, {0.0, 1.0}}))
        assert.are.equal("false", allowed("positive_definite", flow.ones(2, 3)))
        for _, number in ipairs {0 / 0, math.huge} do
            local psd = c.positive_semidefinite.check(flow.stack {flow.full({2, 2}, number), flow.eye(2)})
            assert.are.same({0, 1}, psd:to("uint8"):totable())
        end
        assert.are.equal("true", allowed("positive_definite", flow.zeros(0, 0)))
        assert.are.same({1, 0}, c.positive_integer.check(flow.tensor {true, false}):to("uint8"):totable())
        for name, need in pairs {positive_definite = "2 axes", lower_cholesky = "2 axes", simplex = "1 axis", one_hot = "1 axis", real_vector = "1 axis"} do
            local ok, text = pcall(c[name].check, flow.tensor(1))
            assert.is_false(ok)
            assert.matches(": constraints.check: value must have at least " .. need .. ", got %[%]$", text)
        end
        assert.matches("register_kl: p must be a table, got nil$", select(2, pcall(D.register_kl, nil, D.Poisson, tostring)))
    end)

    it("check their objects and arguments", function()
        local normal, T, x = D.Normal(0, 1), D.transforms, flow.ones(2)
        for want, f in pairs {
            ["log_prob: a method is called with a colon, distribution:log_prob(); got float32 tensor as the distribution"] =
                function() normal.log_prob(x) end,
            ["get_mean: a method is called with a colon, distribution:get_mean(); got distributions.Uniform as the distribution"] =
                function() normal.get_mean(D.Uniform(0, 1)) end,
            ["log_prob: value must be a tensor, got 0.5"] = function() normal:log_prob(0.5) end,
            ["sample: shape must be a table or a whole number, got 'x'"] = function() normal:sample "x" end,
            ["entropy: too many arguments: entropy()"] = function() normal:entropy(1) end,
            ["MixtureSameFamily: component_distribution must be a distribution, got 3"] = function() D.MixtureSameFamily(normal, 3) end,
            ["MixtureSameFamily: mixture_distribution must be Categorical, got Normal"] =
                function() D.MixtureSameFamily(normal, D.Normal(x, x)) end,
            ["Independent: base_distribution must be a distribution, got float32 tensor"] = function() D.Independent(x, 1) end,
            ["InverseTransform: base must be a transform, got 3"] = function() T.InverseTransform(3) end,
            ["ExpTransform: takes one tensor, got 3"] = function() T.ExpTransform()(3) end,
            ["forward_shape: a method is called with a colon, transform:forward_shape(); got nil as the transform"] =
                function() T.ExpTransform().forward_shape() end,
        } do assert.are.equal(want, support.placed_message_of(f)) end
    end)

    it("expand to a shape of one number", function()
        local d = D.TransformedDistribution(D.Normal(flow.zeros(1), flow.ones(1)), {D.transforms.ExpTransform()})
        assert.are.same({3}, d:expand(3).batch_shape)
        assert.are.same({3}, D.Independent(D.Normal(flow.zeros(1, 2), flow.ones(1, 2)), 1):expand(3).batch_shape)
    end)

    it("name the sizes and the dtypes that they cannot take", function()
        for want, f in pairs {
            ["Multinomial: the sizes of a shape must be whole numbers >= 0, size 1 is table"] =
                function() D.Multinomial(3, flow.ones(4)):sample {{1}} end,
            ["Categorical: the sizes of a shape must be whole numbers >= 0, size 2 is -1"] =
                function() D.Categorical(flow.ones(4)):sample {2, -1} end,
            ["Normal: the sizes of a shape must be whole numbers >= 0, size 1 is 2.5"] =
                function() D.Normal(0, 1):sample {2.5} end,
            ["ContinuousBernoulli: probs must be a floating tensor, got int64 tensor"] =
                function() D.ContinuousBernoulli(flow.tensor({0, 1}, {dtype = "int64"})) end,
            ["normal: std must be a tensor of numbers, got bool tensor"] =
                function() flow.normal(0, flow.tensor {true}) end,
            ["pack_padded_sequence: length 1 must be a whole number, got 1.5"] =
                function() flow.nn.utils.rnn.pack_padded_sequence(flow.ones(3, 2, 1), {1.5, 1}) end,
        } do assert.are.equal(want, support.placed_message_of(f)) end
        assert.are.same({2, 4}, D.Multinomial(3, flow.ones(4)):sample(2).shape)
    end)

    it("are captured, where nothing is checked", function()
        local x = flow.randn(3, 4)
        local function score(t)
            local normal, categorical = D.Normal(t, t:exp()), D.Categorical {logits = t}
            return normal:log_prob(normal:rsample()):sum(-1) + categorical:log_prob(categorical:sample())
        end
        local f = flow.capture(score)
        f(x)
        flow.manual_seed(2)
        local want = score(x)
        flow.manual_seed(2)
        support.same_bits(want, f(x), "log_prob")
        assert.are.same({-1}, flow.capture(function(t) return D.Normal(0, t).scale end)(flow.tensor {-1}):totable())
    end)

    -- {p, q, their divergence in PyTorch 2.15}
    local function t(...) return flow.tensor({...}, {dtype = "float64"}) end
    local pairs_of = {
        Beta = D.Beta(t(0.5, 3), t(2, 1.5)), ContinuousBernoulli = D.ContinuousBernoulli(t(0.2, 0.7)), Exponential = D.Exponential(t(1, 3)),
        Gamma = D.Gamma(t(0.5, 3), t(1, 2)), Gumbel = D.Gumbel(t(0, 1), t(1, 2)), Pareto = D.Pareto(t(0.5, 1), t(1.5, 3)),
        Low = D.Pareto(t(0.2, 0.6), t(1.5, 3)), Uniform = D.Uniform(t(0.25, 0.5), t(0.75, 0.875)), Wide = D.Uniform(t(-1, 0.5), t(2, 2)),
        Normal = D.Normal(t(0.5, 1), t(1, 2)), LowRankMultivariateNormal = D.LowRankMultivariateNormal(t(0, 1), t(2, 0.5):reshape(2, 1), t(1, 0.5)),
        MultivariateNormal = D.MultivariateNormal(t(0.5, 1), t(2, 0.5, 0.5, 1):reshape(2, 2)),
    }
    for _, case in ipairs {
        {"Beta", "ContinuousBernoulli", {0.42822149512869223, 0.16152778239248433}},
        {"Beta", "Exponential", {0.965278955334776, 1.174395680537033}},
        {"Beta", "Gamma", {0.20431056492614302, 1.152220123940709}},
        {"Beta", "Normal", {1.7520746313965916, 1.904033076909155}},
        {"Beta", "Wide", {1.8638912440028859, math.huge}},
        {"ContinuousBernoulli", "Exponential", {0.4644286399145073, 0.6401064101325329}},
        {"ContinuousBernoulli", "Normal", {1.039572297555699, 1.6746614850838277}},
        {"ContinuousBernoulli", "Wide", {1.1750267414714688, math.huge}},
        {"ContinuousBernoulli", "Pareto", {math.huge, math.huge}},
        {"Exponential", "Gumbel", {0.5, 1.8716157964948317}},
        {"Exponential", "Normal", {0.5439385332046727, 1.780142446877172}},
        {"Exponential", "ContinuousBernoulli", {math.huge, math.huge}},
        {"Gamma", "Gumbel", {1.1164968512725588, 0.6328611413553451}},
        {"Gamma", "Normal", {1.078328603290684, 0.5826543839615521}},
        {"Gamma", "ContinuousBernoulli", {math.huge, math.huge}},
        {"Gumbel", "Normal", {0.16717103118034604, 0.3307788636311124}},
        {"Gumbel", "ContinuousBernoulli", {math.huge, math.huge}},
        {"Pareto", "Exponential", {0.931945622001443, 3.166666666666667}},
        {"Pareto", "Gamma", {1.4910703079795038, 0.7123179275482197}},
        {"Pareto", "Normal", {math.huge, 1.5023646690993941}},
        {"Pareto", "ContinuousBernoulli", {math.huge, math.huge}},
        {"Uniform", "Beta", {1.3500172170705893, 0.4897361726085593}},
        {"Uniform", "ContinuousBernoulli", {0.7719780286898286, 0.851697027441001}},
        {"Uniform", "Exponential", {1.1931471805599454, 1.9447169643436166}},
        {"Uniform", "Gamma", {1.3963241594257823, 1.744288909313087}},
        {"Uniform", "Gumbel", {1.8060156412207258, 2.688558208344376}},
        {"Uniform", "Low", {0.855899120808616, math.huge}},
        {"Wide", "Beta", {math.huge, math.huge}},
        {"Wide", "ContinuousBernoulli", {math.huge, math.huge}},
        {"Wide", "Exponential", {math.huge, 2.245922603223726}},
        {"Wide", "Gamma", {math.huge, 0.3977499289054611}},
        {"LowRankMultivariateNormal", "LowRankMultivariateNormal", {0}},
        {"LowRankMultivariateNormal", "MultivariateNormal", {0.41686458098561396}},
        {"MultivariateNormal", "LowRankMultivariateNormal", {0.2600834709624378}},
        {"Normal", "ContinuousBernoulli", {math.huge, math.huge}},
    } do
        it("diverge: " .. case[1] .. " from " .. case[2], function()
            local got = D.kl_divergence(pairs_of[case[1]], pairs_of[case[2]]):reshape(-1)
            flow.testing.assert_close(got, t(table.unpack(case[3])), {rtol = 1e-9, atol = 1e-12})
        end)
    end

    it("have cumulative distributions, those of PyTorch 2.15", function()
        close(pairs_of.Gamma:cdf(t(0.3, 2)), t(0.5614219739190003, 0.7618966944464556), 1e-9, "Gamma")
        close(D.Chi2(t(3)):cdf(t(2)), t(0.4275932955291202), 1e-9, "Chi2")
        close(D.InverseGamma(t(0.5, 3), t(1, 2)):cdf(t(0.3, 2)), t(0.0098232745075192, 0.9196986029286058), 1e-9, "InverseGamma")
    end)

    it("take a rule for another pair", function()
        D.register_kl(D.Normal, D.Poisson, function(p) return p.loc * 0 + 7 end)
        assert.are.equal(7, D.kl_divergence(D.Normal(0, 1), D.Poisson(1)):item())
    end)
end)

describe("transforms", function()
    it("are names of flow.distributions too", function()
        for name, value in pairs(D.transforms) do
            if name:find "Transform$" then assert.is_true(rawequal(value, D[name]), name) end
        end
    end)
end)
