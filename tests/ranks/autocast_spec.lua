-- autocast_spec.lua -- flow.autocast over global tensors, and flow.GradScaler, whose ranks agree on what is left out.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn, optim = flow.nn, flow.optim

local place = flow.placement.all "cpu"

local function numbers(seed, shape)
    flow.manual_seed(seed)
    return flow.randn(shape)
end

local function global(t, sbp) return flow._testing.from_part(t, t.shape, place, {"B"}):to_global{sbp = sbp} end
local function whole(t) return t:detach():to_global{sbp = "B"}:to_local():to("float32"):clone() end
local function far(a, b) return (a - b):abs():max():item() end

describe("autocast over several ranks", function()
    for _, case in ipairs {{"S(0)", "B"}, {"B", "S(1)"}, {"S(1)", "S(0)"}, {"B", "B"}} do
        it(("has one rank's values and gradients: %s times %s"):format(case[1], case[2]), function()
            local a, b = numbers(1, {6, 4}), numbers(2, {4, 6})
            local function run(x, w)
                local y = flow.autocast("bfloat16", function() return flow.matmul(x, w):softmax(-1) end)
                assert.are.equal("float32", y.dtype)
                y:square():sum():backward()
                return y, w.grad
            end
            local want, slope = run(a, nn.Parameter(b:clone()))
            local got, grad = run(global(a, case[1]), nn.Parameter(global(b, case[2])))
            assert.are.equal("float32", grad.dtype)
            assert.is_true(far(want:detach(), whole(got)) < 0.02)
            assert.is_true(far(slope, whole(grad)) < 0.02)
        end)
    end
end)

describe("GradScaler over several ranks", function()
    for _, sbp in ipairs {"S(0)", "B"} do
        it("leaves out the step on all when one part of a gradient is infinite: " .. sbp, function()
            local p = nn.Parameter(global(numbers(3, {6, 2}), sbp))
            local q = nn.Parameter(global(numbers(4, {5}), "B"))
            local opt, scaler = optim.SGD({p, q}, {lr = 1}), flow.GradScaler {init_scale = 4.0}
            local before = whole(p)
            local bad = flow.zeros(6, 2)
            bad[{5, 1}] = 1 / 0
            p.grad, q.grad = global(bad, sbp), global(flow.ones(5), "B")
            scaler:step(opt)
            scaler:update()
            assert.are.equal(0, far(before, whole(p)))
            assert.are.equal(2, scaler:get_scale())
            p.grad, q.grad = global(flow.full({6, 2}, 2.0), sbp), global(flow.ones(5), "B")
            scaler:step(opt)
            scaler:update()
            assert.is_true(far(before - 1, whole(p)) < 1e-6)
            local all = ranks.share({{scaler:get_scale()}})
            for r = 1, ranks.world do assert.are.equal(2, all[r][1][1]) end
        end)
    end

    it("asks the ranks once, however the gradients are split", function()
        local params = {}
        for i, sbp in ipairs {"S(0)", "B", "S(1)", "S(0)"} do
            params[i] = nn.Parameter(global(numbers(i, {6, 4}), sbp))
            params[i].grad = global(flow.ones(6, 4), sbp)
        end
        local opt, scaler = optim.SGD(params, {lr = 1}), flow.GradScaler {init_scale = 4.0}
        local report = flow.explain(function() scaler:unscale_(opt) end)
        assert.are.equal(ranks.world == 1 and 0 or 1, #report.collectives, tostring(report))
        for _, p in ipairs(params) do assert.are.equal(0, far(whole(p.grad), flow.full({6, 4}, 0.25))) end
    end)

    it("looks at gradients on several placements", function()
        local last = flow.placement("cpu", {ranks.world - 1})
        local function make(value)
            local p, q = nn.Parameter(global(flow.ones(6), "S(0)")), nn.Parameter(flow.ones({2}, {placement = last, sbp = "B"}))
            p.grad, q.grad = global(flow.ones(6), "S(0)"), flow.full({2}, value, {dtype = "float32", placement = last, sbp = "B"})
            return optim.SGD({p, q}, {lr = 1}), p
        end
        for _, case in ipairs {{1, 0.5}, {1 / 0, 1}} do
            local opt, p = make(case[1])
            local scaler = flow.GradScaler {init_scale = 2.0}
            scaler:step(opt)
            assert.are.equal(0, far(whole(p), flow.full({6}, case[2])))
        end
    end)

    it("divides partial sums", function()
        local parts = flow._testing.from_part(flow.full({3}, 8.0), {3}, place, {"P"})
        flow._op.scale_step({parts}, 0.25)
        assert.are.same({2.0 * ranks.world, 2.0 * ranks.world, 2.0 * ranks.world}, whole(parts):totable())
    end)
end)
