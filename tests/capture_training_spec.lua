-- capture_training_spec.lua -- steps of training that are captured: losses, parameters and gradients are those of eager code.
local flow = require "flow"
local nn, optim = flow.nn, flow.optim
local support = require "tests.support"

local capture, same_bits = flow.capture, support.same_bits

describe("a captured step of training", function()
    -- Trains a small net for some steps; returns its losses, its parameters and the step.
    local function train(captures, o)
        flow.manual_seed(3)
        local net = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(),
            o.dropout and nn.Dropout(0.3) or nn.Identity(), nn.Linear(16, 5))
        local optimizer = optim[o.optimizer or "SGD"](net:parameters(), o.options or {lr = 0.1})
        local scheduler = o.schedule and optim.Scheduler(optimizer, optim.schedule.warmup_cosine(100, {warmup = 7}))
        local function step(x, y)
            if o.clears ~= "end" and o.clears ~= "never" then optimizer:zero_grad() end
            local loss = flow.cross_entropy(o.checkpoint and flow.checkpoint(net, x) or net(x), y)
            loss:backward()
            if o.clip then optim.clip_grad_norm(net:parameters(), 0.5) end
            optimizer:step()
            if scheduler then scheduler:step() end
            if o.clears == "end" then optimizer:zero_grad() end
            return loss
        end
        if captures then step = capture(step) end
        local losses = {}
        for i = 1, o.steps or 60 do
            if o.rate then optimizer:set_lr(0.01 * (i % 5)) end
            if o.evaluates and i % 7 == 0 then
                net:eval()
                flow.no_grad(function() losses[#losses + 1] = net(flow.ones(2, 12)):sum():item() end)
                net:train()
            end
            losses[#losses + 1] = step(flow.randn(8, 12), flow.randint(0, 5, {8})):item()
        end
        return losses, net:parameters(), step, optimizer
    end

    local cases = {
        ["SGD"] = {}, ["SGD with momentum"] = {options = {lr = 0.1, momentum = 0.9}},
        ["Adam"] = {optimizer = "Adam", options = {lr = 0.01}}, ["AdamW"] = {optimizer = "AdamW", options = {lr = 0.01}},
        ["dropout"] = {dropout = true}, ["a schedule inside"] = {schedule = true}, ["rates set outside"] = {rate = true},
        ["clipping"] = {clip = true}, ["gradients cleared at the end"] = {clears = "end"},
        ["gradients that are never cleared"] = {clears = "never", options = {lr = 0.001}},
        ["evaluation in between"] = {evaluates = true, dropout = true},
        ["layers that are computed again"] = {checkpoint = true, dropout = true},
        ["all of it for 1,000 steps"] = {
            optimizer = "AdamW", options = {lr = 0.01}, dropout = true, schedule = true, clip = true, steps = 1000,
        },
    }
    for name, o in pairs(cases) do
        it("gives the bits of eager training: " .. name, function()
            local want, parameters = train(false, o)
            local got, mine = train(true, o)
            assert.are.same(want, got)
            for i, p in ipairs(parameters) do same_bits(p, mine[i], "parameter " .. i) end
        end)
    end

    -- Losses of a net that solves a differential equation at points drawn anew, which the step makes, and the last slope.
    local function solve(captures, make)
        flow.manual_seed(5)
        local net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        local optimizer = optim.Adam(net:parameters(), {lr = 0.01})
        local step = captures(function()
            optimizer:zero_grad()
            local x = make()
            local u = net(x)
            local slope = flow.grad(u, x, {grad_outputs = flow.ones_like(u), create_graph = true})
            local bend = flow.grad(slope, x, {grad_outputs = flow.ones_like(u), create_graph = true})
            local loss = (bend + u):square():mean() + (net(flow.zeros(1, 1)) - 1):square():sum()
            loss:backward()
            optimizer:step()
            return loss, x.grad
        end)
        local losses, grad = {}
        for i = 1, 30 do
            local loss
            loss, grad = step()
            losses[i] = loss:item()
        end
        return losses, grad
    end

    for name, make in pairs {
        ["requires_grad ="] = function() return flow.rand(16, 1, {requires_grad = true}) end,
        ["requires_grad_"] = function() return (flow.rand(16, 1) * 2):requires_grad_() end,
        ["a parameter"] = function() return nn.Parameter(flow.linspace(0, 1, 16):unsqueeze(1)) end,
    } do
        it("reaches leaves that the step itself makes: " .. name, function()
            local want, slope = solve(function(f) return f end, make)
            local got, mine = solve(capture, make)
            assert.are.same(want, got)
            same_bits(slope, mine, "gradient of the leaf")
        end)
    end

    it("counts steps of each parameter, and sees new ones", function()
        local function run(captures)
            flow.manual_seed(1)
            local a, b, c = nn.Parameter(flow.randn(3)), nn.Parameter(flow.randn(3)), nn.Parameter(flow.randn(3))
            local optimizer = optim.Adam({a, b}, {lr = 0.1})
            local function f(x, both)
                optimizer:zero_grad()
                c.grad = nil
                local loss = (a * x):square():sum() + (c * x):square():sum()
                if both then loss = loss + (b * x):square():sum() end
                loss:backward()
                optimizer:step()
                return loss
            end
            if captures then f = capture(f) end
            local losses = {}
            for i, both in ipairs {true, true, true, false, false, true, true, true, false, true, true, false} do
                losses[i] = f(flow.full({3}, 1.0 + i), both):item()
                if i == 8 then table.insert(optimizer.groups[1].params, c) end
            end
            return losses
        end
        assert.are.same(run(false), run(true))
    end)

    -- The change of the group before each step, by the step's number.
    local changes = {
        SGD = {
            [4] = {"lr", 0.05}, [6] = {"weight_decay", 0.1}, [8] = {"maximize", true}, [9] = {"lr", "fast"},
            [10] = {"lr", 0.05}, [12] = {"momentum", 0.9}, [14] = {"nesterov", true}, [16] = {"momentum", 0},
            [17] = {"nesterov", false},
        },
        AdamW = {
            [4] = {"lr", 0.05}, [6] = {"beta", 0.5}, [8] = {"betas", {0.8, 0.9}}, [11] = {"beta", 0.6},
            [13] = {"amsgrad", true},
        },
        RMSprop = {[4] = {"alpha", 0.5}, [6] = {"centered", true}, [8] = {"alpha", "none"}, [9] = {"alpha", 0.6}},
    }
    for name, by_step in pairs(changes) do
        it("takes the options that were changed: " .. name, function()
            local function run(captures, rate)
                local w = nn.Parameter(flow.arange(5):to("float32"))
                local optimizer = optim[name]({w}, {lr = 0.1, betas = name == "AdamW" and {0.9, 0.999} or nil})
                local group, given = optimizer.groups[1], rate
                local scheduler = rate and optim.Scheduler(optimizer, function() return given end)
                local function f(x)
                    optimizer:zero_grad()
                    w.grad = x * 2
                    if scheduler then scheduler:step() end
                    optimizer:step()
                end
                if captures then f = capture(f) end
                local seen = {}
                for i = 1, 20 do
                    local key, value = table.unpack(by_step[i] or {})
                    if key == "beta" then group.betas[1] = value
                    elseif key then group[key] = type(value) == "table" and {table.unpack(value)} or value end
                    if rate then given = rate / (i // 4 + 1) end
                    seen[i] = {(pcall(f, flow.ones(5))), w:totable()}
                end
                return seen
            end
            for _, rate in ipairs {false, 0.2} do
                local want, got = run(false, rate), run(true, rate)
                for i = 1, 20 do assert.are.same(want[i], got[i], ("step %d, rate %s"):format(i, rate)) end
            end
        end)
    end

    it("goes on from a checkpoint as if nothing had happened", function()
        local path = os.tmpname()
        local function run(captures, resumes)
            flow.manual_seed(5)
            local net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))
            local optimizer = optim.Adam(net:parameters(), {lr = 0.01})
            local function step(x, y)
                optimizer:zero_grad()
                local loss = flow.cross_entropy(net(x), y)
                loss:backward()
                optimizer:step()
                return loss
            end
            if captures then step = capture(step) end
            local loss
            local function go(from, to)
                for i = from, to do
                    flow.manual_seed(i)
                    loss = step(flow.randn(6, 4), flow.randint(0, 3, {6}))
                end
            end
            go(1, 20)
            if resumes then
                local saved = flow.load(path)
                net:load_state_dict(saved.net)
                optimizer:load_state_dict(saved.optimizer)
                go(11, 20)
            else
                go(1, 10)
                flow.save(path, {net = net:state_dict(), optimizer = optimizer:state_dict()})
                go(11, 20)
            end
            return loss:item()
        end
        local want = run(false, false)
        assert.are.equal(want, run(false, true))
        assert.are.equal(want, run(true, true))
        os.remove(path)
    end)

    it("knows a gradient that it reaches in two ways", function()
        local function run(captures)
            local w = nn.Parameter(flow.ones(3))
            ;(w * w):sum():backward()
            local g = w.grad
            local function f(x)
                local y = g * x
                w.grad:add_(1)
                return y + w.grad
            end
            if captures then f = capture(f) end
            local sum = flow.zeros(3)
            for _ = 1, 4 do sum = sum * 2 + f(flow.ones(3)) end
            w.grad = flow.full({3}, 5.0)
            return sum + f(flow.ones(3))
        end
        same_bits(run(false), run(true), "sum")
    end)

    it("makes the optimizer's state of what it trains only later", function()
        local a, b = nn.Parameter(flow.ones(3)), nn.Parameter(flow.ones(3))
        local optimizer = optim.Adam({a, b}, {lr = 0.1})
        local f = capture(function(x, both)
            optimizer:zero_grad()
            local loss = (a * x):sum()
            if both then loss = loss + (b * x):sum() end
            loss:backward()
            optimizer:step()
        end)
        for _, both in ipairs {false, true} do
            for _ = 1, 3 do f(flow.ones(3), both) end
        end
        same_bits(flow.full({3}, 0.7), b:detach(), "b")
    end)

    it("may call itself from a schedule, for any number of kinds of arguments", function()
        local w = nn.Parameter(flow.ones(3))
        local optimizer = optim.SGD({w}, {lr = 0.1})
        local f, calls, inside = nil, 0, false
        local scheduler = optim.Scheduler(optimizer, function()
            calls = calls + 1
            if not inside and calls > 3 then
                inside = true
                for n = 1, 12 do f(flow.ones(n), true) end
                inside = false
            end
            return 0.1
        end)
        f = capture(function(x, plain)
            if plain then return x * 2 end
            optimizer:zero_grad()
            local loss = (w * x):sum()
            loss:backward()
            optimizer:step()
            scheduler:step()
            return loss
        end)
        for _ = 1, 12 do f(flow.ones(3)) end
    end)

    it("gives an error of a schedule, whatever it is", function()
        local w, fails = nn.Parameter(flow.ones(3)), false
        local optimizer = optim.SGD({w}, {lr = 0.1})
        local wordless = setmetatable({}, {__tostring = function() error "no text" end})
        local scheduler = optim.Scheduler(optimizer, function()
            if fails then error(wordless) end
            return 0.1
        end)
        local f = capture(function(x)
            scheduler:step()
            return x + w:detach()
        end)
        for _ = 1, 3 do f(flow.ones(3)) end
        fails = true
        local ok, raised = pcall(f, flow.ones(3))
        assert.is_true(not ok and rawequal(raised, wordless))
        fails = false
        same_bits(flow.full({3}, 2.0), f(flow.ones(3)), "after it")
    end)

    it("leaves gradients that a later step does not change", function()
        local w = nn.Parameter(flow.randn(4))
        local step = capture(function(x)
            w.grad = nil
            local loss = (w * x):sum()
            loss:backward()
            return loss
        end)
        local x = flow.randn(4)
        for _ = 1, 3 do step(x) end
        local kept = w.grad
        local want = kept:clone()
        step(flow.randn(4))
        same_bits(want, kept, "the gradient that was kept")
        assert.is_false(rawequal(kept, w.grad))
    end)
end)
