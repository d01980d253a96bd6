-- capture_changes_spec.lua -- what a script changes between two calls of a captured function: the next call has it, or says
-- what eager code says.
local flow = require "flow"
local support = require "tests.support"
local steps = require "tests.programs.steps"

local nn, optim, capture = flow.nn, flow.optim, flow.capture
local same_bits = support.same_bits

describe("random steps of training, between whose calls anything may change,", function()
    it("give the bits, and the errors, of eager ones", function()
        for number = 1, 120 do
            local finding = steps.check(5, number)
            if finding then error(finding, 0) end
        end
        assert.is_true(steps.replays > 400, "replays: " .. steps.replays)
        assert.is_true(steps.errors > 50, "errors: " .. steps.errors)
    end)
end)

describe("options of an optimizer", function()
    -- Values of a parameter, or the error, after each of some steps; before step 4 and 7 the options are changed.
    local function run(captures, name, options, key, value, later)
        flow.manual_seed(3)
        local w = nn.Parameter(flow.randn(4, 6))
        local optimizer = optim[name]({w}, options)
        local function f(x)
            optimizer:zero_grad()
            (w * x):sum():backward()
            optimizer:step()
        end
        if captures then f = capture(f) end
        local seen = {}
        for i = 1, 9 do
            if i == 4 then optimizer.groups[1][key] = value end
            if i == 7 then optimizer.groups[1][key] = later end
            local ok, message = pcall(f, flow.randn(4, 6))
            seen[i] = ok and w:totable() or tostring(message):match "[%w_]+: [^:]*$"
        end
        return seen
    end

    local cases = {
        {"SGD", {lr = 0.1, weight_decay = 0.5}, "weight_decay", nil, 0.25},
        {"SGD", {lr = 0.1, maximize = true}, "maximize", nil, true},
        {"SGD", {lr = 0.1}, "lr", nil, 0.2},
        {"SGD", {lr = 0.1}, "lr", true, 0.2},
        {"SGD", {lr = 0.1, momentum = 0.9, dampening = 0.5}, "dampening", nil, 0.1},
        {"AdamW", {lr = 0.1, weight_decay = 0.5}, "weight_decay", nil, 0.25},
        {"AdamW", {lr = 0.1, eps = 0.5}, "eps", nil, 0.25},
        {"RMSprop", {lr = 0.1, alpha = 0.5}, "alpha", "none", 0.25},
        {"Adafactor", {lr = 0.1}, "d", 0.25, 2.0}, {"Adafactor", {lr = 0.1}, "weight_decay", 0.5, 0},
        {"Adafactor", {lr = 0.1}, "eps", {0.5, 0.25}, {0, 1e-3}},
        {"Muon", {lr = 0.1}, "ns_steps", 2, 3}, {"Muon", {lr = 0.1}, "nesterov", false, true},
        {"Muon", {lr = 0.1}, "adjust_lr_fn", "match_rms_adamw", "original"},
    }
    for _, case in ipairs(cases) do
        it(("that become nil, or of another type, or decide what runs: %s of %s"):format(case[3], case[1]), function()
            assert.are.same(run(false, table.unpack(case, 1, 5)), run(true, table.unpack(case, 1, 5)))
        end)
    end
end)

describe("a captured function is captured anew where", function()
    local x = flow.randn(4)

    -- f(x) is want(x) before and after `change`, and its replays are replays.
    local function check(make, change)
        local runs = 0
        local f, want = make(function() runs = runs + 1 end)
        f = capture(f)
        for _ = 1, 3 do same_bits(want(x), f(x), "before") end
        assert.are.equal(1, runs)
        change()
        for _ = 1, 3 do same_bits(want(x), f(x), "after") end
        assert.are.equal(2, runs)
    end

    it("a variable that it reads has another value", function()
        for _, pair in ipairs {{2, 3}, {2, 2.5}, {0.5, false}, {false, 0.5}, {0.0, -0.0}} do
            local rate = pair[1]
            check(function(count)
                local function want(t) return rate and flow.full({4}, 1.0) / (t * rate) or t end
                return function(t) count() return rate and flow.full({4}, 1.0) / (t * rate) or t end, want
            end, function() rate = pair[2] end)
        end
    end)

    it("a variable has another tensor, or the value of one has another type", function()
        local w = flow.randn(4)
        check(function(count) return function(t) count() return t * w end, function(t) return t * w end end,
            function() w = flow.randn(4) end)
        local n = 2
        check(function(count) return function() count() return flow.full({2}, n) end, function() return flow.full({2}, n) end end,
            function() n = 2.0 end)
    end)

    it("a function that it calls is another one, or reaches another value", function()
        local k = 2
        local function double(t) return t * k end
        local helper = double
        check(function(count) return function(t) count() return helper(t) end, function(t) return helper(t) end end,
            function() k = 3 end)
        check(function(count) return function(t) count() return helper(t) end, function(t) return helper(t) end end,
            function() helper = function(t) return t - 1 end end)
    end)

    it("the forward of a module that it calls reaches another value", function()
        local scale, Net = 2, nn.Module:extend("Net")
        function Net:forward(t) return t * scale end -- luacheck: ignore self
        local net = Net()
        check(function(count) return function(t) count() return net(t) end, function(t) return net(t) end end,
            function() scale = 3 end)
    end)

    it("a module that it only looks at was changed", function()
        local net = nn.Dropout(0.5)
        local function f(t) return net.training and t * 2 or t end
        check(function(count) return function(t) count() return f(t) end, f end, function() net.training = false end)
    end)

    it("new tensors are made on another device by default", function()
        local f = capture(function() return flow.zeros(3) end)
        local device = flow.zeros(3).device
        for _ = 1, 2 do assert.are.equal(device, f().device) end
        for _ = 1, 2 do assert.are.equal("meta", flow.with_device("meta", f).device) end
        assert.are.equal(device, f().device)
    end)

    it("but not where it assigns the variable itself", function()
        local calls, last = 0, nil
        local f = capture(function(t)
            calls, last = calls + 1, "text"
            return t + 1
        end)
        for i = 1, 4 do
            same_bits(x + 1, f(x), "sum")
            last = i
        end
        assert.are.equal(1, calls)
        assert.are.equal(4, last)
    end)
end)

describe("an optimizer in a captured step", function()
    -- The same steps, eagerly and captured; change(optimizer, w, v) comes before the fourth.
    local function check(change)
        local function run(captures)
            flow.manual_seed(3)
            local w, v = nn.Parameter(flow.randn(4)), nn.Parameter(flow.randn(4))
            local optimizer = optim.Adam({w}, {lr = 0.1})
            local function f(x)
                optimizer:zero_grad()
                v.grad = nil
                local loss = (w * x * v):sum()
                loss:backward()
                optimizer:step()
                return loss
            end
            if captures then f = capture(f) end
            local seen = {}
            for i = 1, 8 do
                if i == 4 then change(optimizer, w, v) end
                seen[i] = {f(flow.randn(4)):item(), w:totable(), v:totable()}
            end
            return seen
        end
        assert.are.same(run(false), run(true))
    end

    it("has other parameters, as many", function() check(function(o, _, v) o.groups[1].params[1] = v end) end)
    it("has another list of parameters", function() check(function(o, w, v) o.groups[1].params = {v, w} end) end)

    it("has another group in the place of one", function()
        check(function(o, w)
            local group = {params = {w}}
            for key, value in pairs(o.groups[1]) do group[key] = group[key] or value end
            group.lr = 0.5
            o.groups[1] = group
        end)
    end)

    it("gets a hook", function()
        for _, name in ipairs {"register_step_pre_hook", "register_step_post_hook"} do
            check(function(o, w) o[name](o, function() flow.no_grad(function() w:mul_(0.5) end) end) end)
        end
    end)

    it("loses the state of a parameter, again and again", function()
        check(function(o, w) o.state[w] = nil end)
        local w = nn.Parameter(flow.ones(2))
        local optimizer = optim.Adam({w}, {lr = 0.5})
        local f = capture(function()
            w.grad = flow.ones(2)
            optimizer:step()
        end)
        for i = 1, 4 do
            optimizer.state[w] = nil
            f()
            support.same(flow.full({2}, 1 - 0.5 * i), w:detach(), "w")
        end
    end)
end)

describe("averages in a captured step", function()
    it("are not mixed with themselves while the net has them", function()
        local net = nn.Linear(2, 2)
        local average = optim.AveragedModel(net)
        local f = capture(function() average:update_parameters() end)
        for _ = 1, 3 do f() end
        average:swap()
        support.fails("update_parameters: the net has its averages; call swap() before training on", f)
        average:swap()
        f()
        assert.are.equal(4, average.n_averaged)
    end)
end)
