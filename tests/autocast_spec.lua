-- autocast_spec.lua -- flow.autocast: which dtype each op computes in, its gradients, captures; and flow.GradScaler.
local flow = require "flow"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim

local function near(a, b, limit)
    local far = (a:to("float64") - b:to("float64")):abs():max():item()
    assert.is_true(far <= limit, ("off by %g"):format(far))
end

describe("autocast", function()
    local x, y = flow.randn(3, 3), flow.randn(3, 3)

    it("is off with {enabled = false}", function()
        local function inside(...) return flow.autocast("bfloat16", ...) end
        assert.are.equal("float32", inside({enabled = false}, flow.matmul, x, y).dtype)
        assert.are.equal("bfloat16", inside({enabled = true}, flow.matmul, x, y).dtype)
        do
            local _ <close> = inside {enabled = false}
            assert.are.equal("float32", flow.matmul(x, y).dtype)
        end
        assert.are.equal("float32", flow.autocast(false, {enabled = true}, flow.matmul, x, y).dtype)
    end)

    local low = x:to("bfloat16")

    for _, case in ipairs {
        {"matmul", "bfloat16", function() return flow.matmul(x, y) end},
        {"bmm", "bfloat16", function() return flow.bmm(x:reshape(1, 3, 3), y:reshape(1, 3, 3)) end},
        {"linear", "bfloat16", function() return flow.linear(x, y) end},
        {"addmm", "bfloat16", function() return flow.addmm(x, y, y) end},
        {"baddbmm", "bfloat16", function()
            local one = x:reshape(1, 3, 3)
            return flow.baddbmm(one, one, one)
        end},
        {"conv_transpose2d", "bfloat16", function()
            return flow.conv_transpose2d(x:reshape(1, 1, 3, 3), y:reshape(1, 1, 3, 3))
        end},
        {"einsum", "bfloat16", function() return flow.einsum("ij,jk->ik", x, y) end},
        {"conv2d", "bfloat16", function() return flow.conv2d(x:reshape(1, 1, 3, 3), y:reshape(1, 1, 3, 3)) end},
        {"attention", "bfloat16", function()
            local q = x:reshape(1, 1, 3, 3)
            return flow.scaled_dot_product_attention(q, q, q)
        end},
        {"linear in float16 of bfloat16 and float32", "bfloat16", function() return flow.linear(low, y) end},
        {"softmax", "float32", function() return low:softmax(-1) end},
        {"log_softmax", "float32", function() return low:log_softmax(-1) end},
        {"layer_norm", "float32", function() return flow.layer_norm(low, {3}) end},
        {"sum", "float32", function() return low:sum() end},
        {"prod", "float32", function() return low:prod() end},
        {"cumsum", "float32", function() return low:cumsum(0) end},
        {"norm", "float32", function() return low:norm() end},
        {"exp", "float32", function() return low:exp() end},
        {"log", "float32", function() return low:abs():log() end},
        {"pow", "float32", function() return low:pow(2) end},
        {"rsqrt", "float32", function() return low:abs():rsqrt() end},
        {"cross_entropy", "float32", function() return flow.cross_entropy(low, flow.tensor {0, 1, 2}) end},
        {"relu", "bfloat16", function() return low:relu() end},
        {"add of both", "float32", function() return low + x end},
        {"mean", "bfloat16", function() return low:mean() end},
        {"a product of float64", "float64", function() return flow.matmul(x:to("float64"), y:to("float64")) end},
        {"an integer product", "int64", function() return flow.matmul(flow.tensor {{1}}, flow.tensor {{2}}) end},
    } do
        it("computes " .. case[1] .. " in " .. case[2], function()
            assert.are.equal(case[2], flow.autocast("bfloat16", case[3]).dtype)
            assert.is_nil(flow.autocast_dtype())
        end)
    end

    it("casts in its region alone, and nests", function()
        local function dtype() return flow.matmul(x, y).dtype end
        do
            local _ <close> = flow.autocast("float16")
            assert.are.equal("float16", dtype())
            assert.are.equal("float16", flow.autocast_dtype())
            assert.are.equal("float32", flow.autocast(false, dtype))
            assert.are.equal("bfloat16", flow.autocast("bfloat16", dtype))
            assert.are.equal("float16", dtype())
            local other = coroutine.create(function()
                local _ <close> = flow.autocast("bfloat16")
                coroutine.yield(dtype())
            end)
            assert.are.equal("bfloat16", select(2, coroutine.resume(other)))
            assert.are.equal("float16", dtype())
        end
        assert.are.equal("float32", dtype())
        pcall(flow.autocast, "float16", error, "x")
        assert.are.equal("float32", dtype())
    end)

    it("gives parameters gradients in float32, as those of casts by hand", function()
        flow.manual_seed(3)
        local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        local input, labels = flow.randn(5, 4), flow.tensor {0, 1, 2, 1, 0}
        flow.autocast("bfloat16", function() return flow.cross_entropy(net(input), labels) end):backward()
        local function cast(t) return t:to("bfloat16") end
        local by_hand = {}
        for i, p in ipairs(net:parameters()) do by_hand[i] = p:detach():clone():requires_grad_() end
        local h = flow.linear(cast(input), cast(by_hand[1]), cast(by_hand[2])):relu()
        h = flow.linear(h, cast(by_hand[3]), cast(by_hand[4]))
        flow.cross_entropy(h:to("float32"), labels):backward()
        for i, p in ipairs(net:parameters()) do
            assert.are.equal("float32", p.grad.dtype)
            support.same_bits(by_hand[i].grad, p.grad, "gradient " .. i)
        end
    end)

    it("casts a parameter once, and again when it has changed", function()
        local w = nn.Parameter(flow.randn(3, 3))
        local function casts(f)
            local count = 0
            for _, entry in ipairs(flow.explain(f)) do count = count + (entry.op == "cast" and 1 or 0) end
            return count
        end
        assert.are.equal(2, casts(function()
            flow.autocast("bfloat16", function() return flow.matmul(flow.matmul(low, w), w) end)
            flow.autocast("bfloat16", function() return flow.matmul(low, w) end)
        end))
        local _ <close> = flow.autocast("bfloat16")
        local before = flow.matmul(low, w):detach():clone()
        flow.no_grad(function() w:mul_(2) end)
        near(flow.matmul(low, w):detach(), before * 2, 0)
        for _ = 1, 2 do flow.matmul(low, w):sum():backward() end
        assert.are.equal("float32", w.grad.dtype)
    end)

    it("is what a captured function was recorded with", function()
        local w = nn.Parameter(flow.randn(3, 3))
        local f = flow.capture(function(a) return flow.matmul(a, w) end)
        for _ = 1, 3 do
            assert.are.equal("float32", f(x).dtype)
            assert.are.equal("bfloat16", flow.autocast("bfloat16", f, x).dtype)
        end
        flow.no_grad(function() w:fill_(1) end)
        near(flow.autocast("bfloat16", f, flow.ones(3, 3)), flow.full({3, 3}, 3.0), 0)
        local g = flow.capture(function(a) return flow.autocast("float16", flow.matmul, a, w) end)
        for _ = 1, 3 do assert.are.equal("float16", g(x).dtype) end
        flow.no_grad(function() w:fill_(2) end)
        near(g(flow.ones(3, 3)), flow.full({3, 3}, 6.0), 0)
    end)

    it("trains in a captured step with the bits of an eager one", function()
        local function train(captures)
            flow.manual_seed(4)
            local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
            local opt = optim.AdamW(net:parameters(), {lr = 0.1})
            local function f(a)
                opt:zero_grad()
                local loss = flow.autocast("bfloat16", function() return net(a):square():mean() end)
                loss:backward()
                opt:step()
                return loss
            end
            if captures then f = flow.capture(f) end
            for _ = 1, 6 do f(flow.randn(5, 3)) end
            return net:parameters()
        end
        local want, got = train(false), train(true)
        for i, p in ipairs(want) do support.same_bits(p, got[i], "parameter " .. i) end
    end)

    it("is that of the first run when flow.checkpoint computes again", function()
        local w = nn.Parameter(flow.randn(3, 3))
        local function f(a) return flow.matmul(a, w):tanh() end
        local function gradient(g)
            w.grad = nil
            flow.autocast("bfloat16", g, x):to("float32"):sum():backward()
            return w.grad
        end
        support.same_bits(gradient(f), gradient(function(a) return flow.checkpoint(f, a) end), "gradient")
    end)

    for _, case in ipairs {
        {"float32", function() flow.autocast("float32") end,
            "autocast: takes 'bfloat16', 'float16', or false for a region without casts; got float32"},
        {"no function", function() flow.autocast("float16", 3) end,
            "autocast: takes a function, or nothing: local _ <close> = flow.autocast()"},
    } do
        it("refuses " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end
end)

describe("GradScaler", function()
    local function setup(opts)
        local p = nn.Parameter(flow.tensor {1.0, 2.0})
        return p, optim.SGD({p}, {lr = 0.5}), flow.GradScaler(opts)
    end

    it("divides what it has multiplied", function()
        local p, opt, scaler = setup {init_scale = 1024.0, growth_interval = 2}
        scaler:scale((p * p):sum()):backward()
        assert.are.same({2048, 4096}, p.grad:totable())
        scaler:unscale_(opt)
        assert.are.same({2, 4}, p.grad:totable())
        scaler:step(opt)
        scaler:update()
        assert.are.same({0, 0}, p:totable())
        assert.are.equal(1024, scaler:get_scale())
        scaler:scale((p * p):sum()):backward()
        scaler:step(opt)
        scaler:update()
        assert.are.equal(2048, scaler:get_scale())
    end)

    it("leaves out a step with an infinite gradient and backs off", function()
        local p, opt, scaler = setup {init_scale = 8.0}
        for i, bad in ipairs {1 / 0, 0 / 0} do
            p.grad = flow.tensor {1.0, bad}
            scaler:step(opt)
            scaler:update()
            assert.are.same({1, 2}, p:totable())
            assert.are.equal(8 / 2 ^ i, scaler:get_scale())
        end
        local other = flow.GradScaler {}
        other:load_state_dict(scaler:state_dict())
        assert.are.equal(2, other:get_scale())
    end)

    it("does nothing when it is not enabled", function()
        local p, opt, scaler = setup {enabled = false}
        scaler:scale((p * p):sum()):backward()
        scaler:unscale_(opt)
        scaler:step(opt)
        scaler:update()
        assert.are.same({0, 0}, p:totable())
        assert.are.equal(1, scaler:get_scale())
    end)

    it("brings a training in float16 through an overflow", function()
        for _, captures in ipairs {false, true} do
            flow.manual_seed(5)
            local net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
            local opt = optim.AdamW(net:parameters(), {lr = 0.02})
            local scaler = flow.GradScaler {init_scale = 2.0 ^ 24, growth_interval = 10}
            local input = flow.randn(64, 4)
            local target = input:sum(1, true):tanh()
            local function step()
                opt:zero_grad()
                local loss = flow.autocast("float16", function() return nn.functional.mse_loss(net(input), target) end)
                scaler:scale(loss:to("float32")):backward()
                scaler:step(opt)
                scaler:update()
                return loss
            end
            if captures then step = flow.capture(step, {strict = false}) end
            local first, last, least = step():item(), nil, scaler:get_scale()
            for _ = 1, 150 do
                last = step():item()
                least = math.min(least, scaler:get_scale())
            end
            assert.is_true(least < 2.0 ^ 24, "no step overflowed")
            assert.is_true(last < first / 10, ("%g after %g"):format(last, first))
        end
    end)

    for _, case in ipairs {
        {"update before a step", function() flow.GradScaler():update() end,
            "update: no gradients were looked at since the last one; call step before"},
        {"a step without gradients", function()
            local _, opt, scaler = setup()
            scaler:step(opt)
        end, "step: unscale_: no parameter of the optimizer has a gradient; call backward before"},
        {"a second division", function()
            local p, opt, scaler = setup()
            p.grad = flow.ones(2)
            scaler:unscale_(opt)
            scaler:unscale_(opt)
        end, "unscale_: the gradients of this optimizer have been divided since update()"},
        {"what is no optimizer", function() flow.GradScaler():step(3) end,
            "step: optimizer must be an optimizer, got 3"},
    } do
        it("refuses " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end
end)
