-- accumulate_spec.lua -- products that are added to the sum of a global leaf's gradients: in .grad where they lie as the
-- leaf does, partial sums to partial sums within a pass and under flow.no_sync. All ranks run the same ops.
--
-- Numbers are small and whole: sums of products are exact in any order, so the gradients have the bits of the path that
-- computes every product apart (flow.grad) and adds the results.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local support = require "tests.support"

local everywhere = flow.placement.all "cpu"
local op = flow._op

local function whole(shape, dtype, seed)
    flow.manual_seed(seed)
    return flow.randint(-3, 4, shape):to(dtype):to_global{placement = everywhere, sbp = "B"}
end

local function numbers(shape, dtype, seed, sbp) return whole(shape, dtype, seed):to_global{sbp = sbp}:clone() end

local function linear(x, w) return op.linear(x, w) end

-- Name, shapes of x and w, the function, {SBP of x, of w, the product is added to .grad, to the sum of a pass}.
local cases = {
    {"linear", {13, 12}, {20, 12}, linear, {
        {"B", "B", true, true}, {"B", "S(0)", true, true}, {"S(1)", "S(1)", true, true}, {"S(0)", "B", false, true},
    }},
    {"linear of batches", {3, 9, 12}, {20, 12}, linear, {
        {"B", "S(0)", true, true}, {"S(1)", "B", false, true}, {"S(0)", "B", false, true},
    }},
    {"matmul", {13, 12}, {12, 20}, function(x, w) return x:matmul(w) end, {
        {"B", "B", true, true}, {"B", "S(1)", true, true}, {"S(1)", "S(0)", true, true}, {"S(0)", "B", false, true},
    }},
    {"matmul of batches", {3, 9, 12}, {12, 20}, function(x, w) return x:matmul(w) end, {
        {"B", "S(1)", true, true}, {"S(1)", "B", false, true},
    }},
    {"matmul, transposed", {13, 12}, {20, 12}, function(x, w) return x:matmul(w:t()) end, {{"B", "S(0)", false, false}}},
}

local function adds(report) return tostring(report):find("gemm_add(", 1, true) or tostring(report):find("contract_rows_add(", 1, true) end

-- A sum of y whose gradient lies as y does, and differs from element to element.
local function weighted(y, seed)
    local sbp = tostring(y.sbp)
    return (y * numbers(y.shape, y.dtype, seed, sbp == "P" and "B" or sbp)):sum()
end

local function total(f, w, x, passes)
    local sum
    for i = 1, passes do
        local g = flow.grad(weighted(f(x, w), i), w)
        sum = sum and sum + g or g
    end
    return sum
end

local function same_bits(want, got, what)
    assert.are.equal(tostring(want.sbp), tostring(got.sbp), what)
    assert.is_true(ranks.same_numbers(ranks.values(want), ranks.values(got)), what)
end

local function collectives(report)
    local count = 0
    for _, record in ipairs(report.collectives or {}) do count = count + (record.bytes > 64 and 1 or 0) end
    return count
end

describe("a product is added to the gradients of a global leaf:", function()
    for _, case in ipairs(cases) do
        local name, x_shape, w_shape, f, list = table.unpack(case)
        for _, sbps in ipairs(list) do
            for _, dtype in ipairs {"float32", "float64"} do
                it(("%s, x %s, w %s, %s"):format(name, sbps[1], sbps[2], dtype), function()
                    local x = numbers(x_shape, dtype, 1, sbps[1])
                    local w = numbers(w_shape, dtype, 2, sbps[2]):requires_grad_()
                    local want = total(f, w, x, 3)
                    weighted(f(x, w), 1):backward()
                    local reports = {}
                    for i = 2, 3 do
                        local loss = weighted(f(x, w), i)
                        reports[i] = flow.explain(function() loss:backward() end)
                    end
                    same_bits(want, w.grad, "the sum")
                    if sbps[3] then
                        assert.is_truthy(adds(reports[2]), tostring(reports[2]))
                    elseif ranks.world > 1 then
                        assert.is_nil(adds(reports[2]))
                    end
                end)

                it(("%s, x %s, w %s, %s, used three times"):format(name, sbps[1], sbps[2], dtype), function()
                    local x = numbers(x_shape, dtype, 1, sbps[1])
                    local w = numbers(w_shape, dtype, 2, sbps[2]):requires_grad_()
                    local want = total(f, w, x, 3)
                    local loss = weighted(f(x, w), 1) + weighted(f(x, w), 2) + weighted(f(x, w), 3)
                    local report = flow.explain(function() loss:backward() end)
                    same_bits(want, w.grad, "the sum")
                    assert.are.equal(sbps[4], adds(report) ~= nil, tostring(report))
                end)

                it(("%s, x %s, w %s, %s, under no_sync"):format(name, sbps[1], sbps[2], dtype), function()
                    local x = numbers(x_shape, dtype, 1, sbps[1])
                    local w = numbers(w_shape, dtype, 2, sbps[2]):requires_grad_()
                    local want = total(f, w, x, 4)
                    local reports = {}
                    for i = 1, 4 do
                        local loss = weighted(f(x, w), i)
                        local function pass() loss:backward() end
                        reports[i] = flow.explain(function() if i < 4 then flow.no_sync(pass) else pass() end end)
                    end
                    same_bits(want, w.grad, "the sum")
                    for i = 2, 4 do assert.are.equal(sbps[4], adds(reports[i]) ~= nil, tostring(reports[i])) end
                    for i = 1, 3 do assert.are.equal(0, collectives(reports[i]), tostring(reports[i])) end
                end)
            end
        end
    end

    it("over two hierarchy axes", function()
        local grid = ranks.world == 4 and {{0, 1}, {2, 3}} or {{}}
        for r = 0, ranks.world == 4 and -1 or ranks.world - 1 do grid[1][r + 1] = r end
        local place = flow.placement("cpu", grid)
        local function put(t, sbp) return t:to_global{placement = place, sbp = sbp}:clone() end
        local x = put(whole({16, 12}, "float64", 1):to_local(), {"S(0)", "B"})
        local w = put(whole({20, 12}, "float64", 2):to_local(), {"B", "S(0)"}):requires_grad_()
        local function loss(i) return (linear(x, w) * put(whole({16, 20}, "float64", i):to_local(), {"S(0)", "S(1)"})):sum() end
        local want = flow.grad(loss(1), w) + flow.grad(loss(2), w) + flow.grad(loss(3), w)
        flow.no_sync(function() loss(1):backward() end)
        local report = flow.explain(function() flow.no_sync(function() loss(2):backward() end) end)
        assert.is_truthy(adds(report), tostring(report))
        loss(3):backward()
        same_bits(want, w.grad, "the sum")
    end)

    it("without memory for the product", function()
        local size = 512
        for _, case in ipairs {{"B", "S(0)"}, {"S(0)", "B", true}} do
            local x, w = numbers({16, size}, "float32", 1, case[1]), numbers({size, size}, "float32", 2, case[2]):requires_grad_()
            local function pass() weighted(linear(x, w), 1):backward() end
            local function run() if case[3] then flow.no_sync(pass) else pass() end end
            for _ = 1, 2 do run() end
            support.settled_memory "cpu"
            local before = flow.memory {device = "cpu"}.live_bytes
            flow.memory {device = "cpu", reset_peak = true}
            run()
            local part = w:to_local():numel() * 4
            assert.is_true(flow.memory {device = "cpu"}.peak_bytes - before < part, case[2])
        end
    end)
end)

describe("all ranks add alike", function()
    local rows = ranks.world + 1 -- the first rank has two, the others one each

    -- A collective fails unless the ranks ran the same ops.
    local function meet(x) return x:to_global{sbp = "B"}:sum():item() end

    local function check_added(loss, w, want)
        local report = flow.explain(function() loss:backward() end)
        assert.is_truthy(adds(report), tostring(report))
        same_bits(want, w.grad, "the sum")
        meet(w.grad)
    end

    it("where only some parts of .grad are contiguous", function()
        local x, w = numbers({9, 16}, "float32", 1, "B"), numbers({rows, 16}, "float32", 2, "S(0)"):requires_grad_()
        w.grad = numbers({16, rows}, "float32", 3, "S(1)"):t()
        local want = w.grad + total(linear, w, x, 1)
        check_added(weighted(linear(x, w), 1), w, want)
    end)

    it("where only the first has a part", function()
        local x, w = numbers({9, 16}, "float32", 1, "B"), numbers({1, 16}, "float32", 2, "S(0)"):requires_grad_()
        local want = total(linear, w, x, 3)
        for i = 1, 2 do weighted(linear(x, w), i):backward() end
        check_added(weighted(linear(x, w), 3), w, want)
    end)

    it("where .grad is a view on some of them", function()
        local x, w = numbers({9, 16}, "float32", 1, "B"), numbers({rows, 16}, "float32", 2, "S(0)"):requires_grad_()
        local base = numbers({16, rows}, "float32", 3, "S(1)"):t()
        w.grad = base:contiguous()
        local want = w.grad + total(linear, w, x, 2)
        for i = 1, 2 do weighted(linear(x, w), i):backward() end
        same_bits(want, w.grad, "the sum")
        meet(w.grad)
    end)

    it("where a hook keeps the first gradient on one of them", function()
        local x, w = numbers({9, 16}, "float32", 1, "B"), numbers({rows, 16}, "float32", 2, "S(0)"):requires_grad_()
        local kept
        local function loss()
            local y = linear(x, w):sum()
            local v = w + 1
            v:register_hook(function(g) if ranks.rank == 0 then kept = g end end)
            return y + (v * 3):sum()
        end
        local want = flow.grad(loss(), w)
        kept = nil
        loss():backward()
        same_bits(want, w.grad, "the sum")
        if kept then assert.is_true(kept:to_local():eq(3):all():item()) end
        meet(w.grad)
    end)

    it("where the first gradient waits to be computed on some of them", function()
        local x, w = numbers({9, 1 << 14}, "float32", 1, "B"), numbers({rows, 1 << 14}, "float32", 2, "S(0)"):requires_grad_()
        local function loss() return linear(x, w):sum() + w:square():sum() end
        local want = flow.grad(linear(x, w):sum(), w) + w:detach() * 2
        loss():backward()
        same_bits(want, w.grad, "the sum")
        meet(w.grad)
    end)

    it("in a captured function as in the function itself", function()
        local x, w = numbers({9, 12}, "float32", 1, "S(0)"), numbers({12, 12}, "float32", 2, "B"):requires_grad_()
        local v = numbers({20, 12}, "float32", 3, "S(0)"):requires_grad_()
        local whole_x = x:to_global{sbp = "B"}
        local function pass(factor)
            ((linear(x, w) + linear(x * factor, w)):sum() + linear(whole_x * factor, v):sum()):backward()
        end
        local function run(f)
            w.grad, v.grad = nil, nil
            for i = 1, 4 do f(numbers({1}, "float32", i, "B")) end
            return w.grad, v.grad
        end
        local want_w, want_v = run(pass)
        local got_w, got_v = run(flow.capture(pass))
        same_bits(want_w, got_w, "w")
        same_bits(want_v, got_v, "v")
    end)
end)
