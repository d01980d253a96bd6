-- optim_spec.lua -- optimizers against their formulas in plain Lua, schedules, clipping, state.
local flow = require "flow"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim

local start = {0.5, -1.25, 2.0}

-- Gradient of step t at parameter i.
local function gradient(t, i) return math.sin(t * 1.7 + i) end

local function run(make, steps)
    local p = nn.Parameter(flow.tensor(start, {dtype = "float64"}))
    local opt = make({p})
    for t = 1, steps do
        local g = {}
        for i = 1, 3 do g[i] = gradient(t, i) end
        opt:zero_grad()
        p.grad = flow.tensor(g, {dtype = "float64"})
        opt:step()
    end
    return p:totable(), opt
end

-- The same step by step, as PyTorch's documentation writes the algorithms.
local reference = {}

function reference.SGD(o, steps)
    local w, buffer = {table.unpack(start)}, {}
    for t = 1, steps do
        for i = 1, 3 do
            local g = (o.maximize and -1 or 1) * gradient(t, i) + (o.weight_decay or 0) * w[i]
            if (o.momentum or 0) ~= 0 then
                buffer[i] = t == 1 and g or o.momentum * buffer[i] + (1 - (o.dampening or 0)) * g
                g = o.nesterov and g + o.momentum * buffer[i] or buffer[i]
            end
            w[i] = w[i] - o.lr * g
        end
    end
    return w
end

local function adam(o, steps, decoupled)
    local w, m, v = {table.unpack(start)}, {0, 0, 0}, {0, 0, 0}
    local b1, b2 = table.unpack(o.betas or {0.9, 0.999})
    for t = 1, steps do
        for i = 1, 3 do
            local g = gradient(t, i)
            if decoupled then w[i] = w[i] * (1 - o.lr * (o.weight_decay or 0.01)) else g = g + (o.weight_decay or 0) * w[i] end
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            local mean, square = m[i] / (1 - b1 ^ t), v[i] / (1 - b2 ^ t)
            w[i] = w[i] - o.lr * mean / (math.sqrt(square) + (o.eps or 1e-8))
        end
    end
    return w
end
function reference.Adam(o, steps) return adam(o, steps, false) end
function reference.AdamW(o, steps) return adam(o, steps, true) end

describe("optimizers", function()
    for _, case in ipairs {
        {"SGD", {lr = 0.1}}, {"SGD", {lr = 0.1, weight_decay = 0.3}}, {"SGD", {lr = 0.1, maximize = true}}, {"SGD", {lr = 0.1, momentum = 0.9}},
        {"SGD", {lr = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.1}},
        {"SGD", {lr = 0.1, momentum = 0.8, nesterov = true}},
        {"Adam", {lr = 0.01}}, {"Adam", {lr = 0.01, weight_decay = 0.2}}, {"Adam", {lr = 0.1, betas = {0.5, 0.8}, eps = 1e-3}},
        {"AdamW", {lr = 0.01}}, {"AdamW", {lr = 0.01, weight_decay = 0.5, betas = {0.8, 0.95}}},
    } do
        local name, options = case[1], case[2]
        local text = {}
        for key, value in pairs(options) do text[#text + 1] = key .. "=" .. tostring(type(value) == "table" or value) end
        table.sort(text)
        it(name .. " with " .. table.concat(text, " ") .. " is its formula", function()
            local got = run(function(params) return optim[name](params, options) end, 7)
            local want = reference[name](options, 7)
            for i = 1, 3 do assert.is_true(math.abs(got[i] - want[i]) < 1e-12, got[i] .. " is not " .. want[i]) end
        end)
    end

    it("update float32 and many parameters of several sizes", function()
        local params = {}
        for i = 1, 40 do
            params[i] = nn.Parameter(flow.ones(i, 7))
            params[i].grad = flow.ones(i, 7) * i
        end
        optim.SGD(params, {lr = 0.5}):step()
        for i = 1, 40 do assert.are.equal(1 - 0.5 * i, params[i]:mean():item()) end
    end)

    it("leave parameters without a gradient alone, and count their steps on their own", function()
        local a, b = nn.Parameter(flow.zeros(2)), nn.Parameter(flow.zeros(2))
        local opt = optim.Adam({a, b}, {lr = 0.1})
        a.grad = flow.ones(2)
        opt:step()
        assert.are.same({0, 0}, b:totable())
        b.grad = flow.ones(2)
        opt:step()
        assert.is_true(math.abs(b:totable()[1] + 0.1) < 1e-6)      -- a first step of Adam has the length of lr
        assert.are.same({2, 1}, {opt:state_dict().state[1].step, opt:state_dict().state[2].step})
    end)

    it("update whichever parameters have a gradient as optimizers of one parameter do", function()
        local sizes = {{2}, {3, 2}, {1}, {4}}
        local function make(kind, options)
            local params, single = {}, {}
            for i, n in ipairs(sizes) do
                params[i] = nn.Parameter(flow.full(n, i, {dtype = "float64"}))
                single[i] = optim[kind]({nn.Parameter(params[i]:detach():clone())}, options)
            end
            return optim[kind]({{params = {params[1], params[2], params[3]}}, {params = {params[4]}}}, options), params, single
        end
        for kind, options in pairs {SGD = {momentum = 0.9}, AdamW = {}, LAMB = {}, Adafactor = {}} do
            local whole, params, single = make(kind, options)
            local function step(which)
                for i, p in ipairs(params) do
                    local g = which:find(i) and flow.full(sizes[i], #which + i, {dtype = "float64"}) or nil
                    p.grad, single[i].groups[1].params[1].grad = g, g
                    single[i]:step()
                end
                whole:step()
                for i, p in ipairs(params) do
                    assert.are.same(single[i].groups[1].params[1]:totable(), p:totable(), kind .. " " .. which)
                end
            end
            for _, which in ipairs {"1234", "1234", "134", "234", "", "1234", "1234"} do step(which) end
            whole.state[params[2]], single[2].state = nil, {}       -- begins anew
            step "1234"
            local saved = single[1]:state_dict()                    -- a state that has counted otherwise
            saved.state[1].step = 40
            single[1]:load_state_dict(saved)
            local dict = whole:state_dict()
            dict.state[1].step = 40
            whole:load_state_dict(dict)
            for _, which in ipairs {"1234", "12", "1234"} do step(which) end
            table.insert(whole.groups[2].params, table.remove(whole.groups[1].params, 2))
            for _ = 1, 2 do step "1234" end
        end
    end)

    it("do not keep the gradients of the last step", function()
        local p = nn.Parameter(flow.ones(2 ^ 18))
        local opt = optim.Adam({p}, {lr = 0.1})
        for _ = 1, 2 do
            p.grad = flow.ones(2 ^ 18)
            opt:step()
        end
        local function live()
            collectgarbage()
            return flow.memory({device = "cpu"}).live_bytes
        end
        local before = live()
        p.grad = nil
        assert.is_true(live() <= before - 4 * 2 ^ 18)
    end)

    it("name the tensor that has no gradient, and what a list may hold", function()
        local p, step = nn.Parameter(flow.ones(2)), flow._op.sgd_plain_step
        for expected, lists in pairs {
            ["sgd_plain_step: tensor 1 has no gradient"] = {{p}, "grad"},
            ["sgd_plain_step: entry 2 of xs must be a tensor, got string"] = {{p}, "gard"},
            ["sgd_plain_step: entry 1 of xs must be a tensor, got table"] = {{{p}}, {p}},
        } do assert.are.equal(expected, support.error_of(function() step(lists, {lr = 1}) end)) end
        assert.are.equal("sgd_plain_step: 'xs' is given twice",
            support.error_of(function() step({p, p}, {lr = 1, xs = {p, p}}) end))
    end)

    it("take frozen parameters and leave them alone", function()
        local a, b = nn.Parameter(flow.ones(2)), nn.Parameter(flow.ones(2), false)
        for _, name in ipairs {"SGD", "Adam", "AdamW"} do
            local opt = optim[name]({a, b, flow.ones(1)}, {lr = 0.1, weight_decay = 0.5})
            a.grad = flow.ones(2)
            opt:step()
            assert.are.same({1, 1}, b:totable())
            b:requires_grad_()
            b.grad = flow.ones(2)
            opt:step()
            assert.are_not.same({1, 1}, b:totable())
            b = nn.Parameter(flow.ones(2), false)
        end
        assert.is_true(a:totable()[1] < 1)
    end)

    it("are as before after a bad call", function()
        local a = nn.Parameter(flow.zeros(1))
        local opt = optim.Adam({a}, {lr = 0.25})
        a.grad = flow.ones(1)
        opt:step()
        local before, state = tostring(opt), opt:state_dict()
        state.groups[1].lr = -1
        for _, bad in ipairs {state, {groups = state.groups, state = {}}, {groups = {}, state = {}}, 3} do
            assert.is_false(pcall(opt.load_state_dict, opt, bad))
        end
        assert.is_false(pcall(opt.set_lr, opt, "x"))
        assert.are.equal(before, tostring(opt))
        assert.are.equal(1, opt:state_dict().state[1].step)
        local scheduler = optim.Scheduler(opt, function(step) return step < 2 and 1 or nil end)
        scheduler:step()
        assert.is_false(pcall(scheduler.step, scheduler))
        assert.are.same({1, 0.25}, {scheduler:state_dict().steps, opt.groups[1].lr})
        opt:step()
    end)

    it("keep other keys of groups, and refuse misspelt options", function()
        local p, q = nn.Parameter(flow.ones(1)), nn.Parameter(flow.ones(1))
        local opt = optim.AdamW({{params = {p}, name = "encoder", lr_scale = 0.5, layer = 3}}, {lr = 0.1})
        opt:add_param_group {params = {q}, name = "head", decays = false}
        local one, two = opt.groups[1], opt.groups[2]
        assert.are.same({"encoder", 0.5, 3, 0.1}, {one.name, one.lr_scale, one.layer, one.lr})
        assert.are.same({"head", false}, {two.name, two.decays})
        p.grad, q.grad = flow.ones(1), flow.ones(1)
        opt:step()
        opt:load_state_dict(opt:state_dict())
        assert.are.equal("encoder", opt.groups[1].name)
        assert.are.equal("AdamW: unknown option 'weight_deca'; did you mean 'weight_decay'?",
            support.message_of(function() optim.AdamW {{params = {p}, weight_deca = 0.1}} end))
        assert.are.equal("AdamW: unknown option 'learning_rate'; it is called 'lr' here",
            support.message_of(function() optim.AdamW {{params = {p}, learning_rate = 0.1}} end))
    end)

    it("take groups with options of their own", function()
        local a, b = nn.Parameter(flow.zeros(1)), nn.Parameter(flow.zeros(1))
        local opt = optim.SGD({{params = {a}}, {params = {b}, lr = 0.01}}, {lr = 1})
        a.grad, b.grad = flow.ones(1), flow.ones(1)
        opt:step()
        assert.are.same({-1, -0.01}, {a:item(), math.floor(b:item() * 1e6 + 0.5) / 1e6})
        opt:set_lr(0.5)
        assert.are.same({0.5, 0.5}, {opt.groups[1].lr, opt.groups[2].lr})
        opt:zero_grad()
        assert.is_nil(a.grad)
    end)

    it("share no list of options, neither with each other nor with the caller's table", function()
        local given, w = {0.8, 0.9}, nn.Parameter(flow.ones(2))
        local one, other = optim.AdamW({w}), optim.AdamW({{params = {w}}, {params = {nn.Parameter(flow.ones(2))}}},
            {betas = given})
        one.groups[1].betas[1] = 0.5
        other.groups[1].betas[1] = 0.6
        assert.are.same({0.9, 0.999}, optim.AdamW({w}).groups[1].betas)
        assert.are.same({0.8, 0.9}, other.groups[2].betas)
        assert.are.same({0.8, 0.9}, given)
    end)

    it("keep a new tensor where an option asks for it later", function()
        local p = nn.Parameter(flow.ones(3))
        local opt = optim.SGD({p}, {lr = 0.1})
        local function step()
            p.grad = flow.ones(3)
            opt:step()
            return p[0]:item()
        end
        local function is_near(want, got) assert.is_true(math.abs(want - got) < 1e-6, ("%g, %g"):format(want, got)) end
        is_near(0.9, step())
        opt.groups[1].momentum = 0.9                        -- torch.optim.SGD has the same values
        assert.are.same({0, 0, 0}, opt:state_dict().state[1].momentum_buffer:totable())
        is_near(0.8, step())
        is_near(0.61, step())
        local saved = opt:state_dict()
        opt.groups[1].momentum = 0
        is_near(0.51, step())
        opt:load_state_dict(saved)
        assert.are.equal(0.9, opt.groups[1].momentum)
        is_near(0.51 - 0.1 * (0.9 * 1.9 + 1), step())
    end)

    it("take named parameters", function()
        local net = nn.Linear(2, 2)
        assert.are.equal(2, #optim.AdamW(net:named_parameters()).groups[1].params)
    end)

    it("learn a line", function()
        flow.manual_seed(0)
        local net = nn.Linear(2, 1)
        local x = flow.randn(64, 2)
        local y = x:matmul(flow.tensor({{2.0}, {-3}})) + 0.5
        local opt = optim.Adam(net:parameters(), {lr = 0.1})
        for _ = 1, 200 do
            opt:zero_grad()
            flow.mse_loss(net(x), y):backward()
            opt:step()
        end
        local w = net.weight:totable()[1]
        assert.is_true(math.abs(w[1] - 2) < 0.01 and math.abs(w[2] + 3) < 0.01 and math.abs(net.bias:item() - 0.5) < 0.01)
    end)

    it("go on from a state dict as if nothing had happened", function()
        for _, name in ipairs {"SGD", "Adam", "AdamW"} do
            local options = name == "SGD" and {lr = 0.1, momentum = 0.9} or {lr = 0.1}
            local p = nn.Parameter(flow.tensor(start))
            local opt = optim[name]({p}, options)
            local function step(parameter, optimizer, t)
                parameter.grad = flow.tensor({gradient(t, 1), gradient(t, 2), gradient(t, 3)})
                optimizer:step()
            end
            for t = 1, 3 do step(p, opt, t) end
            local q = nn.Parameter(p:detach():clone())
            local other = optim[name]({q}, {lr = 5})
            other:load_state_dict(opt:state_dict())
            for t = 4, 6 do
                step(p, opt, t)
                step(q, other, t)
            end
            assert.are.same(p:totable(), q:totable())
        end
    end)

    it("update global parameters, split or not, as local ones", function()
        local function train(global)
            flow.manual_seed(3)
            local net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
            local x = flow.randn(5, 4)
            if global then
                local p = flow.placement.all("cpu")
                net[1]:to_global {placement = p, sbp = "S(0)"}
                net[3]:to_global {placement = p, sbp = "B"}
                x = x:to_global {placement = p, sbp = "B"}
            end
            local opt = optim.AdamW(net:parameters(), {lr = 0.1})
            for _ = 1, 5 do
                opt:zero_grad()
                net(x):square():mean():backward()
                optim.clip_grad_norm(net:parameters(), 0.1)
                opt:step()
            end
            return global and net[1].weight:to_local():totable() or net[1].weight:totable()
        end
        local a, b = train(false), train(true)
        for i, row in ipairs(a) do
            for j, value in ipairs(row) do assert.is_true(math.abs(value - b[i][j]) < 1e-6) end
        end
    end)

    it("print", function()
        assert.are.equal([[
SGD(
  group 1: 1 parameters, dampening=0, lr=0.5, maximize=false, momentum=0, nesterov=false, weight_decay=0
)]], tostring(optim.SGD({nn.Parameter(flow.zeros(1))}, {lr = 0.5})))
    end)

    local p = nn.Parameter(flow.zeros(2))
    for _, case in ipairs {
        {"an unknown option", function() optim.SGD({p}, {momentun = 0.9}) end,
            "SGD: unknown option 'momentun'; did you mean 'momentum'?"},
        {"an unknown option of a group", function() optim.SGD({{params = {p}, weight_deca = 1}}) end,
            "SGD: unknown option 'weight_deca'; did you mean 'weight_decay'?"},
        {"a negative rate", function() optim.SGD({p}, {lr = -1}) end, "SGD: lr must be a number >= 0, got -1"},
        {"a rate of NaN", function() optim.SGD({p}, {lr = 0 / 0}) end, nil},
        {"no parameters", function() optim.AdamW({}) end, "AdamW: the list of parameters is empty"},
        {"a module of flow as a parameter", function() optim.Adam({flow}) end, "Adam: parameter 1 must be a tensor, got table"},
        {"whole numbers", function() optim.Adam({flow.zeros(2, {dtype = "int64"})}) end,
            "Adam: parameter 1 is of dtype int64; only floating-point tensors have gradients"},
        {"the state of another optimizer", function()
            optim.AdamW({p}):load_state_dict(optim.SGD({p}, {momentum = 0.9}):state_dict())
        end, "AdamW:load_state_dict: the state has an option 'dampening', which AdamW does not have; was it saved by another optimizer?"},
        {"nil", function() optim.AdamW() end, "AdamW: takes a list of parameters, got nil"},
        {"what is no tensor", function() optim.Adam({p, 3}) end, "Adam: parameter 2 must be a tensor, got 3"},
        {"what was computed", function() optim.Adam({p * 2}) end,
            "Adam: parameter 1 is not a leaf: it was computed, from tensors that require grad"},
        {"a module", function() optim.Adam(nn.Linear(1, 1)) end,
            "Adam: takes a list of parameters, got Linear; write net:parameters()"},
        {"a tensor", function() optim.Adam(p) end, "Adam: takes a list of parameters, got float32 tensor"},
        {"a list with a gap", function() optim.Adam({p, nil, nn.Parameter(flow.zeros(1))}) end,
            "Adam: parameter 2 is nil, parameter 3 is not"},
        {"parameters by name", function() optim.Adam({weight = p}) end,
            "Adam: the parameters must be a list, got the key 'weight'"},
        {"a group among parameters", function() optim.SGD({{params = {p}}, p}) end,
            "SGD: group 2 must be {params = ...}, got float32 tensor"},
        {"an argument too many", function() optim.SGD({p}, {}, 0.1) end, "SGD: too many arguments: SGD(params, options)"},
        {"a word for options", function() optim.SGD({p}, "lr") end, "SGD: options are a table, got string"},
        {"one beta", function() optim.Adam({p}, {betas = {0.9}}) end, "Adam: betas must be two numbers, got 1"},
        {"a dampening of NaN", function() optim.SGD({p}, {dampening = 0 / 0}) end, nil},
        {"a rate that no group has", function() optim.SGD({p}).lr = 0.1 end,
            "SGD: 'lr' is an option of its groups: optimizer.groups[1].lr = value, or optimizer:set_lr(value) for all"},
        {"step with a dot", function() optim.SGD({p}).step() end,
            "step: a method is called with a colon, optimizer:step(); got nil as the optimizer"},
        {"a closure that is none", function() optim.SGD({p}):step(3) end, "step: closure must be a function, got 3"},
        {"a state that is none", function() optim.SGD({p}):load_state_dict({}) end,
            "SGD:load_state_dict: takes a table from state_dict"},
        {"no state", function() optim.SGD({p}):load_state_dict() end, "load_state_dict: missing argument 'state'"},
        {"a parameter twice", function() optim.Adam({p, p}) end, "Adam: a parameter occurs twice"},
        {"a beta of 1", function() optim.Adam({p}, {betas = {0.9, 1}}) end, "Adam: a beta must be less than 1"},
        {"nesterov without momentum", function() optim.SGD({p}, {nesterov = true}) end,
            "SGD: nesterov needs momentum and no dampening"},
        {"the state of other groups", function()
            optim.SGD({p}):load_state_dict(optim.SGD({{params = {p}}, {params = {nn.Parameter(flow.ones(1))}}}):state_dict())
        end, "SGD:load_state_dict: the state has 2 groups, the optimizer 1"},
    } do
        it("refuse " .. case[1], function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            assert.matches("optim_spec.lua:%d+: ", message)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
        end)
    end
end)

describe("clip_grad_norm", function()
    local function parameters(...)
        local list = {}
        for i, g in ipairs {...} do
            list[i] = nn.Parameter(flow.zeros(#g))
            list[i].grad = flow.tensor(g, {dtype = "float32"})
        end
        return list
    end

    it("scales all gradients by one factor and returns the norm", function()
        local params = parameters({3, 0}, {0, 4})
        local norm = optim.clip_grad_norm(params, 1)
        assert.is_true(math.abs(norm:item() - 5) < 1e-6)
        assert.is_true(math.abs(params[1].grad:totable()[1] - 0.6) < 1e-6)
        assert.is_true(math.abs(params[2].grad:totable()[2] - 0.8) < 1e-6)
    end)

    it("leaves small gradients as they are", function()
        local params = parameters({0.25, -0.5})
        optim.clip_grad_norm(params, 1)
        assert.are.same({0.25, -0.5}, params[1].grad:totable())
    end)

    it("takes one tensor, and frozen parameters", function()
        local params = parameters({3, 4})
        assert.is_true(math.abs(optim.clip_grad_norm(params[1], 10):item() - 5) < 1e-6)
        params[2] = nn.Parameter(flow.ones(3), false)
        assert.is_true(math.abs(optim.clip_grad_norm(params, 10):item() - 5) < 1e-6)
    end)

    for _, case in ipairs {
        {"a norm that there is not", function() optim.clip_grad_norm(parameters({1}), 1, 2) end,
            "clip_grad_norm: too many arguments: clip_grad_norm(params: any, max_norm: number >= 0)"},
        {"no maximum", function() optim.clip_grad_norm(parameters({1})) end, "clip_grad_norm: missing argument 'max_norm'"},
        {"a module", function() optim.clip_grad_norm(nn.Linear(1, 1), 1) end,
            "clip_grad_norm: takes a list of parameters, got Linear; write net:parameters()"},
    } do
        it("refuses " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end

    it("skips parameters without a gradient", function()
        local params = parameters({3, 4})
        params[2] = nn.Parameter(flow.zeros(1))
        assert.is_true(math.abs(optim.clip_grad_norm(params, 10):item() - 5) < 1e-6)
        assert.are.equal(0, optim.clip_grad_norm({params[2]}, 10):item())
    end)
end)

describe("schedules", function()
    local schedule = optim.schedule
    local function near(a, b) assert.is_true(math.abs(a - b) < 1e-12, a .. " is not " .. b) end

    it("have the values of their formulas", function()
        near(schedule.constant()(5), 1)
        for step, want in pairs({[0] = 0.25, [1] = 0.5, [3] = 1, [10] = 1}) do near(schedule.warmup(4)(step), want) end
        for step, want in pairs({[0] = 1, [5] = 0.5, [10] = 0, [20] = 0}) do near(schedule.cosine(10)(step), want) end
        near(schedule.cosine(10, {least = 0.2})(10), 0.2)
        for step, want in pairs({[0] = 1, [2] = 1, [3] = 0.1, [6] = 0.01}) do near(schedule.step(3, 0.1)(step), want) end
        local both = schedule.warmup_cosine(110, {warmup = 10, least = 0.1})
        for step, want in pairs({[0] = 0.1, [9] = 1, [10] = 1, [60] = 0.55, [110] = 0.1, [500] = 0.1}) do
            near(both(step), want)
        end
        local chain = schedule.chain({schedule.constant(), 2}, {schedule.step(1, 0.5)})
        for step, want in pairs({[0] = 1, [1] = 1, [2] = 1, [3] = 0.5, [5] = 0.125}) do near(chain(step), want) end
    end)

    it("drive an optimizer through a scheduler", function()
        local p = nn.Parameter(flow.zeros(1))
        local function make() return optim.SGD({p}, {lr = 2}) end
        local opt = make()
        local scheduler = optim.Scheduler(opt, schedule.step(1, 0.5))
        near(opt.groups[1].lr, 2)
        scheduler:step()
        scheduler:step()
        near(opt.groups[1].lr, 0.5)
        local again = make()
        local other = optim.Scheduler(again, schedule.step(1, 0.5))
        other:load_state_dict(scheduler:state_dict())
        near(again.groups[1].lr, 0.5)
        other:step()
        near(again.groups[1].lr, 0.25)
    end)

    for _, case in ipairs {
        {"a fraction of steps", function() schedule.cosine(1.5) end,
            "schedule.cosine: steps must be a whole number >= 1, got 1.5"},
        {"an unknown option", function() schedule.cosine(10, {lowest = 1}) end, nil},
        {"a part without steps", function() schedule.chain({schedule.constant()}, {schedule.constant()}) end,
            "schedule.chain: the steps of a part must be a whole number >= 0, got nil"},
        {"no part", function() schedule.chain() end, "schedule.chain: takes one part or more, as {schedule, steps}"},
        {"a schedule of a word", function() schedule.constant()("x") end,
            "schedule: takes the number of steps done, a number >= 0, got 'x'"},
        {"no optimizer", function() optim.Scheduler({}, schedule.constant()) end,
            "Scheduler: optimizer must be an optimizer, got table"},
        {"a schedule that returns nothing", function() optim.Scheduler(optim.SGD({nn.Parameter(flow.zeros(1))}), function() end) end,
            "Scheduler: the schedule must return a number, got nil for step 0"},
        {"no function", function() optim.Scheduler(optim.SGD({nn.Parameter(flow.zeros(1))}), 3) end,
            "Scheduler: f must be a function, got 3"},
    } do
        it("refuse " .. case[1], function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
        end)
    end
end)

describe("hooks of optimizers", function()
    local function made(kind, options)
        local w = nn.Parameter(flow.tensor {1.0, 2.0})
        local opt = optim[kind]({w}, options)
        w.grad = flow.ones(2)
        return opt, w
    end

    for kind, options in pairs {SGD = {lr = 0.5, momentum = 0.5}, LBFGS = {lr = 0.5, max_iter = 1}} do
        it("surround steps and state dicts of " .. kind, function()
            local opt, w = made(kind, options)
            local seen = {}
            for _, name in ipairs {"step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"} do
                opt["register_" .. name .. "_hook"](opt, function(optimizer, state)
                    assert.is_true(rawequal(opt, optimizer))
                    assert.are.equal(name:find "state_dict_post$" and not name:find "load" and "table" or name == "load_state_dict_pre" and "table" or "nil",
                        type(state))
                    seen[#seen + 1] = name
                end)
            end
            opt:step(function()
                w.grad = flow.ones(2)
                return w:detach():sum()
            end)
            opt:load_state_dict(opt:state_dict())
            assert.are.equal("step_pre step_post state_dict_pre state_dict_post load_state_dict_pre load_state_dict_post", table.concat(seen, " "))
        end)
    end

    it("replace states by what they return, and leave the one that is loaded alone", function()
        local opt = made("SGD", {lr = 0.5})
        opt:register_state_dict_post_hook(function(_, state) state.note = "mine" end)
        local handle = opt:register_state_dict_post_hook(function(_, state) return {inner = state} end)
        local state = opt:state_dict()
        assert.are.equal("mine", state.inner.note)
        assert.are.equal("SGD:load_state_dict: takes a table from state_dict", support.message_of(function() opt:load_state_dict(state) end))
        opt:register_load_state_dict_pre_hook(function(_, given)
            local inner = given.inner
            given.inner = nil
            inner.groups[1].lr = 0.25
            return inner
        end)
        opt:load_state_dict(state)
        assert.are.equal(0.25, opt.groups[1].lr)
        assert.is_not_nil(state.inner)
        handle:remove()
        handle:remove()
        assert.are.equal("mine", opt:state_dict().note)
    end)

    it("end with their handles, also while they are called", function()
        local opt = made("SGD", {lr = 0.5})
        local count, handle = 0, nil
        handle = opt:register_step_post_hook(function()
            count = count + 1
            handle:remove()
        end)
        opt:register_step_post_hook(function() count = count + 10 end)
        do
            local _ <close> = opt:register_step_pre_hook(function() count = count + 100 end)
            opt:step()
        end
        opt:step()
        assert.are.equal(121, count)
        assert.are.equal("remove: a method is called with a colon, handle:remove(); got nil as the handle", support.message_of(function() handle.remove() end))
        assert.are.equal("register_step_pre_hook: hook must be a function, got 3", support.message_of(function() opt:register_step_pre_hook(3) end))
    end)
end)

describe("an optimizer of a script", function()
    local Heavy = optim.Optimizer:extend("Heavy", {lr = 0.1, momentum = 0.5})
    function Heavy:update(group)
        for _, p in ipairs(group.params) do
            if p.grad then
                local state = self.state[p]
                state.step = (state.step or 0) + 1
                state.buffer = state.step == 1 and p.grad:clone() or state.buffer * group.momentum + p.grad
                p:sub_(state.buffer * group.lr)
            end
        end
    end

    it("is captured again where an option of a group was changed", function()
        local Signs = optim.Optimizer:extend("Signs", {lr = 0.1, scales = {1, 1}})
        function Signs.update(_, group)
            for _, p in ipairs(group.params) do p:sub_(p.grad:sign() * (group.lr * group.scales[1])) end
        end
        local function train(wrap)
            local w = nn.Parameter(flow.tensor {1.5, -2.5, 3.5})
            local opt = Signs {w}
            local schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
            local step = wrap(function()
                opt:zero_grad()
                w:square():sum():backward()
                opt:step()
            end)
            for i = 1, 8 do
                if i == 4 then opt.groups[1].scales[1] = 0.25 end
                if i == 6 then schedule:step() end
                step()
            end
            return w:detach()
        end
        assert.is_true(train(function(f) return f end) == train(flow.capture))
    end)

    local function trained(class, steps, before)
        local w, frozen = nn.Parameter(flow.tensor(start, {dtype = "float64"})), nn.Parameter(flow.ones(2))
        local opt = class({{params = {w}, lr = 0.2}, {params = {frozen}}}, {momentum = 0.9})
        if before then before(opt, w) end
        for t = 1, steps do
            opt:step(function()
                opt:zero_grad()
                local loss = (w * w * t):sum()
                loss:backward()
                return loss
            end)
        end
        return w:detach(), opt
    end

    it("does what its update says, by groups, under schedulers and with hooks", function()
        assert.are.same(trained(optim.SGD, 4):totable(), trained(Heavy, 4):totable())
        local count = 0
        local _, opt = trained(Heavy, 3, function(o) o:register_step_post_hook(function() count = count + 1 end) end)
        assert.are.equal(3, count)
        local scheduler = optim.lr_scheduler.StepLR(opt, 1, 0.5)
        opt:step()
        scheduler:step()
        assert.are.same({0.1, 0.05}, {opt.param_groups[1].lr, opt.param_groups[2].lr})
        assert.are.equal("Heavy(\n  group 1: 1 parameters, lr=0.1, momentum=0.9\n  group 2: 1 parameters, lr=0.05, momentum=0.9\n)",
            tostring(opt))
    end)

    it("goes on from its state dict, through a file too", function()
        local want = trained(Heavy, 6)
        local file = os.tmpname()
        local w, opt = trained(Heavy, 3)
        flow.save(file, {opt = opt:state_dict(), w = w})
        local again = nn.Parameter(w:clone())
        local other = Heavy({{params = {again}}, {params = {nn.Parameter(flow.ones(2))}}})
        other:load_state_dict(flow.load(file, {lazy = true}).opt)
        os.remove(file)
        assert.are.equal(0.2, other.groups[1].lr)
        assert.are.equal(3, other.state[again].step)
        for t = 4, 6 do
            again.grad = again:detach() * (2 * t)
            other:step()
        end
        support.close(want, again:detach(), 1e-12, "training that goes on")
    end)

    it("says what is missing", function()
        local w = nn.Parameter(flow.ones(2))
        for expected, f in pairs {
            ["X has no update(group)"] = function() optim.Optimizer:extend("X", {lr = 1})({w}):step() end,
            ["Optimizer:extend: takes a name and the defaults of the options: Optimizer:extend(\"Lion\", {lr = 1e-4})"] = function()
                optim.Optimizer:extend("X")
            end,
            ["Heavy: unknown option 'momemtum'; did you mean 'momentum'?"] = function() Heavy({w}, {momemtum = 1}) end,
            ["Heavy:load_state_dict: takes a table from state_dict"] = function() Heavy({w}):load_state_dict({}) end,
            ["Heavy:load_state_dict: the state has 2 groups, the optimizer 1"] = function()
                Heavy({w}):load_state_dict(select(2, trained(Heavy, 1)):state_dict())
            end,
        } do assert.are.equal(expected, support.message_of(f)) end
    end)
end)
