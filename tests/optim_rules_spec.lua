-- optim_rules_spec.lua -- optimizers beside SGD and Adam: PyTorch's values, formulas, state, captured steps.
local flow = require "flow"
local support = require "tests.support"
local values = require "tests.optim_values"
local nn, optim = flow.nn, flow.optim

local start = {0.5, -1.25, 2.0}

-- The gradient of step t.
local function gradient(t, dtype)
    local g = {}
    for i = 1, 3 do g[i] = math.sin(t * 1.7 + i) end
    return flow.tensor(g, {dtype = dtype or "float64"})
end

-- Muon's parameters are matrices.
local function shaped(name, t) return name == "Muon" and t:reshape(1, 3) or t end

local function make(name, o, dtype)
    local p = nn.Parameter(shaped(name, flow.tensor(start, {dtype = dtype or "float64"})))
    return p, optim[name]({p}, o)
end

local function step(p, opt, t)
    p.grad = gradient(t, p.dtype):reshape(p.shape)
    opt:step()
end

local function near(want, got, limit)
    for i, value in ipairs(want) do
        assert.is_true(math.abs(value - got[i]) <= limit * math.max(1, math.abs(value)),
            ("%d: %.17g is not %.17g"):format(i, got[i], value))
    end
end

local names = {
    "ASGD", "Adafactor", "Muon", "Adadelta", "Adagrad", "Adamax", "LAMB", "LARS", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop",
}

-- Options that each rule is tried with beside its defaults.
local options = {
    Muon = {lr = 0.1}, Adafactor = {weight_decay = 0.1},
    RMSprop = {lr = 0.05, momentum = 0.9, centered = true}, LARS = {lr = 1, weight_decay = 0.1}, Lion = {lr = 0.1},
}

describe("optimizers", function()
    for n, case in ipairs(values) do
        it(("have PyTorch's values: %s, %d"):format(case[1], n), function()
            for _, kind in ipairs {{"float64", 1e-12}, {"float32", 2e-5}} do
                local p, opt = make(case[1], case[2], kind[1])
                local got = {}
                for t = 1, 12 do
                    step(p, opt, t)
                    if t == 3 or t == 7 or t == 12 then table.move(p:totable(), 1, 3, #got + 1, got) end
                end
                near(case[3], got, kind[2])
            end
        end)
    end

    it("have the values of their formulas: Lion, LAMB, LARS", function()
        local function total(x) return math.sqrt(x[1] ^ 2 + x[2] ^ 2 + x[3] ^ 2) end
        local formulas = {}
        function formulas.Lion(w, g, m)
            for i = 1, 3 do
                local u = 0.9 * m[i] + 0.1 * g[i]
                w[i] = w[i] * (1 - 0.1 * 0.2) - 0.1 * (u > 0 and 1 or -1)
                m[i] = 0.99 * m[i] + 0.01 * g[i]
            end
        end
        function formulas.LAMB(w, g, m, v, t)
            local r = {}
            for i = 1, 3 do
                m[i], v[i] = 0.9 * m[i] + 0.1 * g[i], 0.999 * v[i] + 0.001 * g[i] ^ 2
                r[i] = m[i] / (1 - 0.9 ^ t) / (math.sqrt(v[i] / (1 - 0.999 ^ t)) + 1e-6) + 0.2 * w[i]
            end
            local trust = total(w) / total(r)
            for i = 1, 3 do w[i] = w[i] - 0.1 * trust * r[i] end
        end
        function formulas.LARS(w, g, m)
            local trust = 1e-3 * total(w) / (total(g) + 0.2 * total(w) + 1e-8)
            for i = 1, 3 do
                m[i] = 0.9 * m[i] + (g[i] + 0.2 * w[i]) * trust
                w[i] = w[i] - 0.1 * m[i]
            end
        end
        for name, formula in pairs(formulas) do
            local p, opt = make(name, {lr = 0.1, weight_decay = 0.2})
            local w, m, v = {table.unpack(start)}, {0, 0, 0}, {0, 0, 0}
            for t = 1, 6 do
                step(p, opt, t)
                formula(w, gradient(t):totable(), m, v, t)
            end
            near(w, p:totable(), 1e-12)
        end
    end)

    for _, name in ipairs(names) do
        it("go on from a state dict as if nothing had happened: " .. name, function()
            local path = os.tmpname()
            local p, opt = make(name, options[name])
            for t = 1, 7 do step(p, opt, t) end
            flow.save(path, opt:state_dict())
            local q = nn.Parameter(p:detach():clone())
            local other = optim[name]({q}, options[name])
            other:load_state_dict(flow.load(path))
            os.remove(path)
            for t = 8, 10 do
                step(p, opt, t)
                step(q, other, t)
            end
            assert.are.same(p:totable(), q:totable())
        end)

        it("give the bits of eager training in a captured step: " .. name, function()
            local function train(captures)
                flow.manual_seed(2)
                local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
                local params = name == "Muon" and {net[1].weight, net[3].weight} or net:parameters()
                local opt = optim[name](params, options[name])
                local scheduler = optim.lr_scheduler.ExponentialLR(opt, 0.8)
                local function f(x)
                    opt:zero_grad()
                    local loss = net(x):square():mean()
                    loss:backward()
                    opt:step()
                    scheduler:step()
                    return loss
                end
                if captures then f = flow.capture(f) end
                for _ = 1, 9 do f(flow.randn(5, 3)) end
                return params, opt
            end
            local want = train(false)
            local got, opt = train(true)
            for i, p in ipairs(want) do
                support.same_bits(p, got[i], "parameter " .. i)
                assert.are.equal(9, opt:state_dict().state[i].step)
            end
        end)
    end

    it("do without parameters that have no gradient, and mix dtypes", function()
        for _, name in ipairs(names) do
            local shape = name == "Muon" and {1, 2} or {2}
            local a, b = nn.Parameter(flow.ones(shape)), nn.Parameter(flow.ones(shape, {dtype = "float64"}))
            local c = nn.Parameter(flow.ones(shape))
            local opt = optim[name]({a, b, c}, options[name])
            a.grad, b.grad = flow.ones(shape), flow.ones(shape, {dtype = "float64"})
            opt:step()
            opt:step()
            assert.are.same({1, 1}, c:reshape(-1):totable())
            assert.is_true(a:reshape(-1):totable()[1] < 1)
            near(b:reshape(-1):totable(), a:reshape(-1):totable(), 1e-5)
        end
    end)

    for _, case in ipairs {
        {"one eta", function() make("Rprop", {etas = {0.5}}) end, "Rprop: etas must be two numbers, got 1"},
        {"an eta that grows", function() make("Rprop", {etas = {1.5, 1.2}}) end,
            "Rprop: etas must be a number in [0, 1], got 1.5"},
        {"a rho above 1", function() make("Adadelta", {rho = 2}) end, "Adadelta: rho must be a number in [0, 1], got 2"},
        {"an unknown option", function() make("RMSprop", {alhpa = 1}) end,
            "RMSprop: unknown option 'alhpa'; did you mean 'alpha'?"},
        {"the state of another", function()
            local _, opt = make("NAdam")
            opt:load_state_dict(select(2, make("Rprop")):state_dict())
        end, "NAdam:load_state_dict: the state has an option 'etas', which NAdam does not have; was it saved by another optimizer?"},
    } do
        it("refuse " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end
end)
