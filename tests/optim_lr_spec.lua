-- optim_lr_spec.lua -- flow.optim.lr_scheduler: PyTorch's rates step by step, state, captured steps, wrong input.
local flow = require "flow"
local support = require "tests.support"
local values = require "tests.lr_values"
local nn, optim = flow.nn, flow.optim
local S = optim.lr_scheduler

local function optimizer_of(kind, o)
    local groups = {}
    for i, lr in ipairs {0.5, 0.05} do groups[i] = {params = {nn.Parameter(flow.ones(2))}, lr = lr} end
    return optim[kind or "SGD"](groups, o or {momentum = 0.9})
end

local metrics = {1.0, 0.9, 0.91, 0.92, 0.93, 0.8, 0.8, 0.79999, 0.85, 0.9, 0.95, 1.0, 0.7, 0.72}

local makers = {
    StepLR = function(o) return S.StepLR(o, 3, 0.3) end,
    MultiStepLR = function(o) return S.MultiStepLR(o, {2, 5, 5, 9}, {gamma = 0.7}) end,
    ConstantLR = function(o) return S.ConstantLR(o) end,
    LinearLR = function(o) return S.LinearLR(o, {start_factor = 0.2, end_factor = 0.9, total_iters = 7}) end,
    ExponentialLR = function(o) return S.ExponentialLR(o, 0.9) end,
    PolynomialLR = function(o) return S.PolynomialLR(o, 8, 1.7) end,
    CosineAnnealingLR = function(o) return S.CosineAnnealingLR(o, 5, 0.01) end,
    CosineAnnealingWarmRestarts = function(o) return S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01) end,
    CyclicLR = function(o) return S.CyclicLR(o, 0.01, 0.3, 4, {step_size_down = 3}) end,
    ["CyclicLR triangular2"] = function(o)
        return S.CyclicLR(o, {0.01, 0.02}, {0.3, 0.4}, 4, {mode = "triangular2", cycle_momentum = false})
    end,
    ["CyclicLR exp_range"] = function(o) return S.CyclicLR(o, 0.01, 0.3, 3, {mode = "exp_range", gamma = 0.9}) end,
    SWALR = function(o) return S.SWALR(o, 0.02, 6) end,
    ["SWALR linear"] = function(o) return S.SWALR(o, {0.1, 0.01}, 4, "linear") end,
    OneCycleLR = function(o) return S.OneCycleLR(o, 0.4, 14) end,
    ["OneCycleLR linear"] = function(o)
        return S.OneCycleLR(o, {0.4, 0.2}, {
            epochs = 7, steps_per_epoch = 2, anneal_strategy = "linear", three_phase = true, pct_start = 0.4,
        })
    end,
    LambdaLR = function(o) return S.LambdaLR(o, {function(n) return 0.95 ^ n end, function(n) return 1 / (1 + n) end}) end,
    MultiplicativeLR = function(o) return S.MultiplicativeLR(o, function(n) return n % 2 == 1 and 0.95 or 0.9 end) end,
    SequentialLR = function(o)
        return S.SequentialLR(o, {S.LinearLR(o, 0.1, 1, 3), S.CosineAnnealingLR(o, 4), S.ExponentialLR(o, 0.8)}, {3, 8})
    end,
    ["SequentialLR again"] = function(o)
        return S.SequentialLR(o,
            {S.ConstantLR(o, 0.1, 3), S.CosineAnnealingWarmRestarts(o, 3, 2), S.StepLR(o, 2, 0.5)}, {3, 9})
    end,
    ChainedScheduler = function(o)
        return S.ChainedScheduler({S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9), S.StepLR(o, 4, 0.5)})
    end,
    ReduceLROnPlateau = function(o)
        return S.ReduceLROnPlateau(o, "min", {factor = 0.5, patience = 1, cooldown = 1, min_lr = {0.01, 0.02}})
    end,
    ["ReduceLROnPlateau max"] = function(o)
        return S.ReduceLROnPlateau(o, {
            mode = "max", factor = 0.3, patience = 0, threshold = 0.1, threshold_mode = "abs",
        })
    end,
}

-- Checks the rates before step t.
local function check_rates(name, o, t)
    local want = values[name]
    local got = {o.groups[1].lr, o.groups[2].lr, o.groups[1].momentum}
    for k = 1, 3 do
        local value = want[k][t] or want[k][1]
        assert.is_true(math.abs(got[k] - value) < 1e-12,
            ("step %d, number %d: %.17g, in PyTorch %.17g"):format(t, k, got[k], value))
    end
end

local function step(name, scheduler, t)
    if name:find "Plateau" then scheduler:step(metrics[t]) else scheduler:step() end
end

describe("schedulers", function()
    for name, make in pairs(makers) do
        it("have PyTorch's rates, and go on from their state: " .. name, function()
            local path = os.tmpname()
            local o = optimizer_of()
            local scheduler = make(o)
            for t = 1, 14 do
                check_rates(name, o, t)
                if t == 5 or t == 10 then
                    flow.save(path, {scheduler = scheduler:state_dict(), optimizer = o:state_dict()})
                    local saved = flow.load(path)
                    o = optimizer_of()
                    o:load_state_dict(saved.optimizer)
                    scheduler = make(o)
                    scheduler:load_state_dict(saved.scheduler)
                    check_rates(name, o, t)
                end
                step(name, scheduler, t)
                assert.are.same({o.groups[1].lr, o.groups[2].lr}, scheduler:get_last_lr())
            end
            os.remove(path)
        end)
    end

    it("are all there", function()
        local seen = {}
        for name in pairs(makers) do seen[name:match "%w+"] = true end
        for _, name in ipairs(require "flow.check".sorted_keys(S)) do assert.is_true(seen[name], name) end
    end)

    it("are run by every replay of a captured step", function()
        local function train(captures, make)
            flow.manual_seed(1)
            local w = nn.Parameter(flow.randn(3))
            local o = optim.Adam({w}, {lr = 0.1})
            local scheduler = make(o)
            local function f(x)
                o:zero_grad()
                local loss = (w * x):square():sum()
                loss:backward()
                o:step()
                scheduler:step()
                return loss
            end
            if captures then f = flow.capture(f) end
            for i = 1, 12 do f(flow.full({3}, 1.0 + i)) end
            return w:detach(), o.groups[1].lr
        end
        for _, name in ipairs {"OneCycleLR", "CyclicLR", "SequentialLR", "ChainedScheduler", "CosineAnnealingWarmRestarts"} do
            local want, rate = train(false, makers[name])
            local got, mine = train(true, makers[name])
            support.same_bits(want, got, name)
            assert.are.equal(rate, mine)
        end
    end)

    it("move the first beta of Adam, and no other group's", function()
        local o = optimizer_of("Adam", {})
        local scheduler = S.OneCycleLR(o, 0.4, 14)
        assert.are.same({0.95, 0.999}, o.groups[2].betas)
        scheduler:step()
        assert.is_true(o.groups[1].betas[1] < 0.95 and o.groups[1].betas[2] == 0.999)
        assert.are.same({0.9, 0.999}, optim.Adam.defaults.betas)
    end)

    it("take a scale of one's own, the value as a tensor, and a sequence in a sequence", function()
        local o = optimizer_of()
        local scheduler = S.CyclicLR(o, 0.1, 0.5, 2, {scale_fn = function(cycle) return 1 / cycle end})
        scheduler:step()
        scheduler:step()
        assert.is_true(math.abs(o.groups[1].lr - 0.5) < 1e-12)
        local plateau = S.ReduceLROnPlateau(o, {patience = 0})
        plateau:step(flow.tensor(1.0))
        plateau:step(flow.tensor({2.0}))
        assert.is_true(math.abs(o.groups[1].lr - 0.05) < 1e-12)
        o = optimizer_of()
        local inner = S.SequentialLR(o, {S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.1)}, {2})
        local outer = S.SequentialLR(o, {S.ConstantLR(o, 0.1, 9), inner}, {2})
        local rates = {}
        for t = 1, 6 do
            rates[t] = ("%.4g"):format(o.groups[1].lr)
            outer:step()
        end
        assert.are.same({"0.05", "0.05", "0.25", "0.25", "0.5", "0.05"}, rates)
    end)

    it("print", function()
        assert.are.equal("StepLR(gamma=0.1, step_size=5)", tostring(S.StepLR(optimizer_of(), 5)))
    end)

    local function failing(f) return function() return S.LambdaLR(optimizer_of(), f) end end

    for _, case in ipairs {
        {"no optimizer", function() S.StepLR({}, 3) end,
            "lr_scheduler.StepLR: optimizer must be an optimizer, got table"},
        {"no size", function() S.StepLR(optimizer_of()) end, "lr_scheduler.StepLR: missing argument 'step_size'"},
        {"a size of 0", function() S.StepLR(optimizer_of(), 0) end,
            "lr_scheduler.StepLR: step_size must be a whole number >= 1, got 0"},
        {"an unknown option", function() S.StepLR(optimizer_of(), 3, {gama = 1}) end,
            "lr_scheduler.StepLR: unknown option 'gama'; did you mean 'gamma'?"},
        {"a milestone that is no number", function() S.MultiStepLR(optimizer_of(), {3, "x"}) end,
            "lr_scheduler.MultiStepLR: milestones must be a list of whole numbers >= 0, got table"},
        {"a factor above 1", function() S.ConstantLR(optimizer_of(), 2) end,
            "lr_scheduler.ConstantLR: factor must be a number in [0, 1], got 2"},
        {"a factor of 0", function() S.LinearLR(optimizer_of(), 0) end,
            "lr_scheduler.LinearLR: start_factor must be above 0"},
        {"a mode", function() S.CyclicLR(optimizer_of(), 0.1, 1, 2, {mode = "triangle"}) end, nil},
        {"rates of other groups", function() S.CyclicLR(optimizer_of(), {0.1, 0.1, 0.1}, 1) end,
            "lr_scheduler.CyclicLR: base_lr must be a number or a list of 2, one for each group, got 3"},
        {"no steps", function() S.OneCycleLR(optimizer_of(), 0.1, {epochs = 3}) end,
            "lr_scheduler.OneCycleLR: takes total_steps, or epochs and steps_per_epoch"},
        {"steps beyond the cycle", function()
            local scheduler = S.OneCycleLR(optimizer_of(), 0.1, 2)
            for _ = 1, 3 do scheduler:step() end
        end, "OneCycleLR: step 3 is beyond its total_steps, 2"},
        {"too many functions", failing {print, print, print},
            "lr_scheduler.LambdaLR: lr_lambda must be a function or 2, one for each group, got 3"},
        {"a function that gives nothing", failing(function() end),
            "LambdaLR: the function must return a number, got nil for step 0"},
        {"no scheduler", function() S.ChainedScheduler({}) end,
            "lr_scheduler.ChainedScheduler: missing argument 'schedulers'"},
        {"the method of a chain for another one", function()
            local one = S.ConstantLR(optimizer_of())
            S.ChainedScheduler({one}).state_dict(S.ConstantLR(optimizer_of(), 0.5))
        end, "ChainedScheduler:state_dict: got ConstantLR(factor=0.5, total_iters=5) as the scheduler"},
        {"the method of a chain for a module", function()
            S.ChainedScheduler({S.ConstantLR(optimizer_of())}).state_dict(flow.nn.ReLU())
        end, "ChainedScheduler:state_dict: got ReLU() as the scheduler"},
        {"a plateau in a sequence", function()
            local o = optimizer_of()
            S.SequentialLR(o, {S.StepLR(o, 1), S.ReduceLROnPlateau(o)}, {2})
        end, "lr_scheduler.SequentialLR: scheduler 2 is a ReduceLROnPlateau, whose step takes a value"},
        {"another optimizer", function()
            S.SequentialLR(optimizer_of(), {S.StepLR(optimizer_of(), 1)}, {})
        end, "lr_scheduler.SequentialLR: scheduler 1 is of another optimizer"},
        {"milestones too few", function()
            local o = optimizer_of()
            S.SequentialLR(o, {S.StepLR(o, 1), S.StepLR(o, 1)}, {})
        end, "lr_scheduler.SequentialLR: 2 schedulers have 1 milestones between them, got 0"},
        {"a plateau's step without a value", function() S.ReduceLROnPlateau(optimizer_of()):step() end,
            "step: missing argument 'metrics'"},
        {"a state of another scheduler", function()
            S.StepLR(optimizer_of(), 2):load_state_dict(S.ExponentialLR(optimizer_of(), 0.5):state_dict())
        end, "StepLR:load_state_dict: the state is of another scheduler, 'ExponentialLR'"},
        {"a state without a field", function()
            local scheduler = S.StepLR(optimizer_of(), 2)
            local state = scheduler:state_dict()
            state.gamma = nil
            scheduler:load_state_dict(state)
        end, "StepLR:load_state_dict: gamma must be a number, got nil"},
        {"a state of other groups", function()
            S.StepLR(optimizer_of(), 2):load_state_dict(S.StepLR(optim.SGD({nn.Parameter(flow.ones(1))}), 2):state_dict())
        end, "StepLR:load_state_dict: base_lrs must be a list of one number for each group, got table"},
        {"a state that is none", function() S.StepLR(optimizer_of(), 2):load_state_dict({}) end,
            "StepLR:load_state_dict: takes a table from state_dict"},
        {"step with a dot", function() S.StepLR(optimizer_of(), 2).step() end,
            "step: a method is called with a colon, scheduler:step(); got nil as the scheduler"},
    } do
        it("refuse " .. case[1], function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
        end)
    end

    it("change nothing where the function fails", function()
        local fails, o = false, optimizer_of()
        local scheduler = S.LambdaLR(o, function(n) return fails and error "no rate" or 0.5 ^ n end)
        scheduler:step()
        fails = true
        assert.is_false(pcall(scheduler.step, scheduler))
        fails = false
        assert.are.equal(0.25, o.groups[1].lr)
        scheduler:step()
        assert.are.equal(0.125, o.groups[1].lr)
    end)
end)
