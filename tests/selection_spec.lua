-- selection_spec.lua -- medians, quantiles and the k-th value against what sort has at their ranks: every dtype, lengths of lines around
-- the steps of the selection, ties, NaN, threads, gradients.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

local function in_dtype(x, dtype)
    if dtype == "bool" then return x:gt(0) end
    if dtype == "uint8" then return x:abs():clamp(0, 200):to(dtype) end
    return ref.is_float(dtype) and x:to(dtype) or x:clamp(-100, 100):to(dtype)
end

-- Lines that are easy and hard to select from.
local kinds = {
    {"spread", function(rows, n) return flow.randn(rows, n) * 50 end},
    {"tied", function(rows, n) return flow.randint(-3, 4, {rows, n}):to "float32" end},
    {"sorted", function(rows, n) return ((flow.randn(rows, n) * 50):sort(1)) end},
    {"equal", function(rows, n) return flow.full({rows, n}, 3) end},
    {"far apart", function(rows, n) return flow.where(flow.rand(rows, n):lt(0.5), flow.randn(rows, n), 90 + flow.rand(rows, n)) end},
    {"with NaN", function(rows, n) return flow.where(flow.rand(rows, n):lt(0.3), nan, flow.randn(rows, n)) end, true},
}

local function same(a, b) return a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item() end

-- All of `ks`, counted from 1, along both axes.
local function check_kth(x, ks, what)
    local values, positions = x:sort(1)
    local columns = x:t():contiguous()
    for _, k in ipairs(ks) do
        local name = ("%s, %d of %d"):format(what, k, x:size(1))
        local value, at = x:kthvalue(k)
        assert.is_true(same(value, values:select(1, k - 1)), name)
        assert.is_true(same(at, positions:select(1, k - 1)), name .. ": position")
        value, at = columns:kthvalue(k, 0)
        assert.is_true(same(value, values:select(1, k - 1)), name .. ", axis 0")
        assert.is_true(same(at, positions:select(1, k - 1)), name .. ", axis 0: position")
    end
end

describe("selection", function()
    it("finds what sort has at a rank, in every dtype, of short and long lines", function()
        flow.manual_seed(1)
        for _, dtype in ipairs(ref.dtypes) do
            for _, size in ipairs {{1, 1}, {3, 2}, {2, 63}, {2, 64}, {2, 65}, {3, 300}, {2, 5000}, {2, 66000}} do
                local rows, n = table.unpack(size)
                local ks = {1, (n + 1) // 3, (n + 1) // 2, n}
                if ks[2] == 0 then table.remove(ks, 2) end
                for _, kind in ipairs(kinds) do
                    if not kind[3] or ref.is_float(dtype) then
                        check_kth(in_dtype(kind[2](rows, n), dtype), ks, ("%s %s"):format(dtype, kind[1]))
                    end
                end
            end
        end
    end)

    it("takes the extremes of integers, infinities, and zeros by their position", function()
        for _, dtype in ipairs(ref.integers) do
            local low, high = ref.lowest[dtype], ref.highest[dtype]
            local x = flow.tensor({{high, 0, low, 1, high, low, high - 1, low + 1}}, {dtype = dtype}):rep(1, 20)
            check_kth(x, {1, 40, 41, 60, 61, 80, 120, 121, 140, 160}, dtype)
        end
        check_kth(flow.tensor {{inf, 1, -inf, nan, inf, -nan, 2}}:rep(1, 30), {1, 30, 31, 60, 90, 91, 150, 151, 210}, "infinities")
        local zero, at = flow.kthvalue(flow.tensor {1, 0.0, -0.0, -1}, 3)
        assert.are.same({-inf, 2}, {1 / zero:item(), at:item()})
    end)

    it("does not depend on the number of threads", function()
        local threads = flow.get_num_threads()
        for _, x in ipairs {flow.randint(0, 5000, {1, 400000}), flow.randn(40, 3000)} do
            flow.set_num_threads(1)
            local value, at = x:kthvalue(x:size(1) // 3)
            flow.set_num_threads(3)
            local same_value, same_at = x:kthvalue(x:size(1) // 3)
            flow.set_num_threads(threads)
            assert.is_true(same(value, same_value) and same(at, same_at))
        end
    end)

    it("gives medians with and without NaN", function()
        local x = flow.tensor {{5, nan, 1, 4}, {2, 8, 6, 4}, {nan, nan, nan, nan}}
        local v, at = x:median(1)
        assert.are.same({true, false, true}, v:isnan():totable())
        assert.are.equal(4, v[1]:item())
        assert.are.same({1, 3, 0}, at:totable())
        v, at = x:nanmedian(1)
        assert.are.same({4, 4}, v:narrow(0, 0, 2):totable())
        assert.are.same({3, 3, 0}, at:totable())
        assert.are.equal(4, x:nanmedian():item())
        assert.are.equal(3, flow.tensor {9, 3, 5, 1}:median():item())
    end)

    it("gives quantiles, one, several and so many that the lines are sorted", function()
        flow.manual_seed(3)
        for _, dtype in ipairs {"float32", "float64"} do
            local x = flow.randn(3, 1001):to(dtype)
            local sorted = x:sort(1)
            for _, count in ipairs {2, 5, 101} do
                local q = flow.linspace(0, 1, count):to(dtype)
                local got = x:quantile(q, 1)
                for i = 0, count - 1 do
                    local rank = q[i]:item() * 1000
                    local low = math.floor(rank)
                    local below, above = sorted:select(1, low), sorted:select(1, math.min(low + 1, 1000))
                    local want = below + (above - below) * (rank - low)
                    assert.is_true(flow.allclose(got[i], want, {atol = 1e-5}), ("%s %d of %d"):format(dtype, i, count))
                    assert.is_true(flow.allclose(x:quantile(q[i]:item(), 1), want, {atol = 1e-5}), dtype .. " " .. i)
                end
            end
        end
    end)

    it("sends gradients to the elements that were taken", function()
        local x = flow.tensor({{3, 1, 2}, {5, 6, 4}}, {dtype = "float32", requires_grad = true})
        ;(x:median(1) * flow.tensor {2, 3}):sum():backward()
        assert.are.same({{0, 0, 2}, {3, 0, 0}}, x.grad:totable())
        x.grad = nil
        x:quantile(0.25, 1):sum():backward()
        assert.are.same({{0, 0.5, 0.5}, {0.5, 0, 0.5}}, x.grad:totable())
    end)

    it("says what is wrong", function()
        local x = flow.randn(2, 5)
        for _, case in ipairs {
            {"kthvalue: k is 6, but the axis has 5 elements, from 1 on", function() x:kthvalue(6) end},
            {"kthvalue: k is 0, but the axis has 5 elements, from 1 on", function() x:kthvalue(0) end},
            {"median: axis 1 of [2, 0] is empty, so there is no result", function() flow.zeros(2, 0):median(1) end},
            {"quantile: q must be from 0 to 1, got 1.5", function() x:quantile(1.5) end},
            {"quantile: index[0, 0] is 8, but this axis of x has 5 positions (0 to 4)", function() x:quantile(flow.tensor {2.0}, 1) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)
