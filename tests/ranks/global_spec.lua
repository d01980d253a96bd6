-- global_spec.lua -- local tensors put together and taken apart, creation with placement and SBP, item and totable, what
-- one rank does alone, gradients of the casts. Reference: the same with local tensors, which every rank has in whole.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local support = require "tests.support"

local me, world = ranks.rank, ranks.world
local places = ranks.placements()
local all = places[1]

local message_of = support.error_of

-- This rank's part of a whole local tensor under an nd-SBP of splits and broadcasts; no elements outside the placement.
local function part_of(whole, place, nd_sbp)
    local position = place.position[me]
    if not position then return flow.zeros(0, {dtype = whole.dtype}) end
    local coords = ranks.coords(place, position)
    for k, sbp in ipairs(nd_sbp) do
        local axis = math.tointeger(sbp:match "^S%((%d)%)$")
        if axis then whole = whole:narrow(axis, support.split(whole:size(axis), place.hierarchy[k], coords[k])) end
    end
    return whole
end

local function full(place, sbp)
    local list = {}
    for k = 1, #place.hierarchy do list[k] = sbp end
    return list
end

-- The same tensor on all ranks of the world: rank r gives its rows as lists.
local function same_everywhere(t, what)
    local shared = ranks.share {support.values(t)}
    for r = 1, world do assert.are.same(shared[1][1], shared[r][1], ("%s: ranks 0 and %d"):format(what, r - 1)) end
end

-- the first of all, before a seed is set
describe("random numbers without a seed", function()
    it("are the same on all ranks", function() same_everywhere(flow.rand(4), "rand") end)
end)

describe("local tensors put together", function()
    it("in parts of a balanced split", function()
        for _, dtype in ipairs {"float32", "int64", "bool", "float16"} do
            for _, axis in ipairs {0, 1} do
                local whole = flow.arange(7 * 5):remainder(3):to(dtype):reshape(7, 5)
                local sbp = ("S(%d)"):format(axis)
                local x = part_of(whole, all, {sbp}):clone():to_global {placement = all.value, sbp = sbp}
                assert.are.same({7, 5}, x.shape)
                assert.are.equal(sbp, tostring(x.sbp))
                support.same(whole, x:to_global {sbp = "B"}:to_local(), dtype .. " " .. sbp)
            end
        end
    end)

    it("in parts of any size, moved into a balanced split", function()
        local sizes = {
            function(r) return r + 1 end, function(r) return r == 0 and 5 or 0 end, function(r) return r == world - 1 and 4 or 0 end,
            function(r) return (world - r) * 2 end, function(r) return r % 2 end, function() return 0 end,
        }
        for s, size in ipairs(sizes) do
            for axis = 0, 1 do
                local total, before = 0, 0
                for r = 0, world - 1 do
                    if r == me then before = total end
                    total = total + size(r)
                end
                local shape = axis == 0 and {total, 3} or {3, total}
                local whole = flow.arange(total * 3):to "float32":reshape(shape)
                local sbp = ("S(%d)"):format(axis)
                local x = whole:narrow(axis, before, size(me)):to_global {placement = all.value, sbp = sbp}
                assert.are.same(shape, x.shape)
                support.same(part_of(whole, all, {sbp}), x:to_local(), "sizes " .. s)
                support.same(whole, x:to_global {sbp = "B"}:to_local(), "whole of sizes " .. s)
            end
        end
    end)

    it("as replicas and as partials", function()
        local whole = flow.arange(12):to "float32":reshape(3, 4)
        local b = whole:to_global {placement = all.value, sbp = "B", check = true}
        support.same(whole, b:to_local(), "B")
        local p = (whole * (me + 1)):to_global {placement = all.value, sbp = "P"}
        support.same(whole * (world * (world + 1) // 2), p:to_global {sbp = "B"}:to_local(), "P")
        local m = (whole * (me + 1)):to_global {placement = all.value, sbp = "P(max)"}
        support.same(whole * world, m:to_global {sbp = "B"}:to_local(), "P(max)")
        m = (whole * (me + 1)):to_global {placement = all.value, sbp = "P(min)"}
        support.same(whole, m:to_global {sbp = "B"}:to_local(), "P(min)")
    end)

    it("on every placement, also by ranks that are outside of it", function()
        local whole = flow.randn(6, 7)
        whole:copy_(flow.arange(42):to "float32":reshape(6, 7))
        for _, place in ipairs(places) do
            for _, nd_sbp in ipairs(ranks.nd_sbps(place, 2)) do
                if not ranks.has_partial(nd_sbp) then
                    local x = part_of(whole, place, nd_sbp):to_global {placement = place.value, sbp = nd_sbp}
                    local what = ("%s as (%s)"):format(tostring(place.value), table.concat(nd_sbp, ", "))
                    assert.are.same({6, 7}, x.shape, what)
                    if place.position[me] then support.same(part_of(whole, place, nd_sbp), x:to_local(), what)
                    else assert.are.equal(0, x:to_local():numel(), what) end
                    assert.are.same(whole:totable(), x:totable(), what)
                end
            end
        end
    end)

    it("of no axes and of no elements", function()
        local x = flow.tensor(3.5):to_global {placement = all.value, sbp = "B"}
        assert.are.equal(3.5, x:item())
        x = flow.tensor(1.0):to_global {placement = all.value, sbp = "P"}
        assert.are.equal(world, x:item())
        x = flow.zeros(0, 3):to_global {placement = all.value, sbp = "S(0)"}
        assert.are.same({0, 3}, x.shape)
        x = flow.zeros(2, 0):to_global {placement = all.value, sbp = "S(0)"}
        assert.are.same({2 * world, 0}, x.shape)
    end)

    if world > 1 then
        local last = world - 1
        local function with_last(text) return (text:gsub("LAST", last)) end
        for _, case in ipairs {
            {"dtypes that differ", "to_global: rank 0 has float32, rank LAST has int64; all parts must have one dtype", function()
                flow.zeros(2, {dtype = me == last and "int64" or "float32"}):to_global {placement = all.value, sbp = "S(0)"}
            end},
            {"numbers of axes that differ", "to_global: rank 0 has [2], rank LAST has [2, 2]; all parts must have the same number of axes", function()
                (me == last and flow.zeros(2, 2) or flow.zeros(2)):to_global {placement = all.value, sbp = "S(0)"}
            end},
            {"other axes that differ", "to_global: with S(0) the parts of ranks 0 and LAST must have equal sizes along axis 1; they have 3 and 4", function()
                flow.zeros(2, me == last and 4 or 3):to_global {placement = all.value, sbp = "S(0)"}
            end},
            {"partials of different shapes", "to_global: with P the parts of ranks 0 and LAST must have equal sizes along axis 0; they have 2 and 3", function()
                flow.zeros(me == last and 3 or 2):to_global {placement = all.value, sbp = "P"}
            end},
            {"replicas of different shapes", "to_global: with B the parts of ranks 0 and LAST must have equal sizes along axis 0; they have 2 and 3", function()
                flow.zeros(me == last and 3 or 2):to_global {placement = all.value, sbp = "B"}
            end},
            {"replicas that differ", "to_global: ranks 0 and LAST hold different data, but B requires equal data; " ..
                "use another sbp (S, P), or {check = false} to accept the difference", function()
                flow.full(100, me == last and 3 or 2):to_global {placement = all.value, sbp = "B"}
            end},
        } do
            it("refuse " .. case[1] .. ", on every rank", function()
                assert.are.equal(with_last(case[2]), message_of(case[3]))
                -- the ranks are still together
                assert.are.equal(world, flow.ones(1):to_global {placement = all.value, sbp = "P"}:item())
            end)
        end

        it("take replicas that differ where that is meant", function()
            local x = flow.full(3, me):to_global {placement = all.value, sbp = "B", check = false}
            assert.are.same({me, me, me}, x:to_local():totable())
        end)
    end
end)

describe("item and totable", function()
    it("give every rank of the world the same", function()
        for _, place in ipairs(places) do
            for i, nd_sbp in ipairs(ranks.nd_sbps(place, 2)) do
                local whole = ranks.whole({3, 5}, "float32", 50 + i)
                local x = ranks.global(whole, place, nd_sbp)
                local what = ("%s as (%s)"):format(tostring(place.value), table.concat(nd_sbp, ", "))
                local rows, sum = x:totable(), 0
                for r = 1, 3 do
                    for c = 1, 5 do
                        assert.are.equal(whole.values[(r - 1) * 5 + c], rows[r][c], what)
                        sum = sum + whole.values[(r - 1) * 5 + c]
                    end
                end
                assert.are.equal(sum, x:sum():item(), what)
                assert.are.equal(whole.values[7], x["1, 1"]:item(), what)
            end
        end
    end)

    it("print alike", function()
        local x = flow.arange(10, {placement = all.value, sbp = "S(0)"})
        local text = tostring(x)
        assert.is_truthy(text:find("9", 1, true), text)
    end)
end)

describe("creation", function()
    local makers = {
        {"zeros", function(o) return flow.zeros({5, 3}, o) end}, {"ones", function(o) return flow.ones(5, 3, o) end},
        {"full", function(o) return flow.full({5, 3}, 2.5, o) end}, {"rand", function(o) return flow.rand({5, 3}, o) end},
        {"randn", function(o) return flow.randn({5, 3}, o) end}, {"randint", function(o) return flow.randint(0, 99, {5, 3}, o) end},
        {"eye", function(o) return flow.eye(5, 3, o) end}, {"tensor", function(o) return flow.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, o) end},
        {"arange", function(o) return flow.arange(5, o) end}, {"linspace", function(o) return flow.linspace(0, 1, 5, o) end},
        {"randperm", function(o) return flow.randperm(7, o) end}, {"large randn", function(o) return flow.randn({67, 131}, o) end},
        {"large rand", function(o) return flow.rand({131, 67}, o) end}, {"float64 randn", function(o)
            local options = {dtype = "float64"}
            for k, v in pairs(o) do options[k] = v end
            return flow.randn({9, 5}, options)
        end},
    }
    for i, maker in ipairs(makers) do
        it("gives one rank's values on any placement as any SBP: " .. maker[1], function()
            flow.manual_seed(90 + i)
            local whole, after = maker[2] {}, flow.rand(3)
            for _, place in ipairs(places) do
                for _, nd_sbp in ipairs(ranks.nd_sbps(place, whole.ndim)) do
                    if not ranks.has_partial(nd_sbp) then
                        local what = ("%s on %s as (%s)"):format(maker[1], tostring(place.value), table.concat(nd_sbp, ", "))
                        flow.manual_seed(90 + i)
                        local x = maker[2] {placement = place.value, sbp = nd_sbp}
                        assert.are.same(whole.shape, x.shape, what)
                        assert.are.equal(whole.dtype, x.dtype, what)
                        if place.position[me] then support.same(part_of(whole, place, nd_sbp), x:to_local(), what) end
                        support.same(after, flow.rand(3), what .. ": the next random numbers")
                    end
                end
            end
        end)
    end

    it("like a global tensor takes its placement and SBP", function()
        for _, place in ipairs(places) do
            local x = flow.ones(6, 4, {placement = place.value, sbp = full(place, "S(0)")})
            for _, name in ipairs {"zeros_like", "ones_like", "rand_like", "randn_like"} do
                flow.manual_seed(3)
                local whole = flow[name](flow.ones(6, 4))
                flow.manual_seed(3)
                local y = flow[name](x)
                assert.is_true(y.placement == place.value, name)
                assert.is_true(y.sbp == x.sbp, name)
                if place.position[me] then support.same(part_of(whole, place, full(place, "S(0)")), y:to_local(), name) end
            end
        end
    end)

    it("draws the dropout of one rank", function()
        flow.manual_seed(8)
        local whole = flow.ones(6, 5):dropout(0.5)
        for _, place in ipairs(places) do
            for _, nd_sbp in ipairs(ranks.nd_sbps(place, 2)) do
                if not ranks.has_partial(nd_sbp) then
                    flow.manual_seed(8)
                    local y = flow.ones(6, 5, {placement = place.value, sbp = nd_sbp}):dropout(0.5)
                    if place.position[me] then support.same(part_of(whole, place, nd_sbp), y:to_local(), tostring(place.value)) end
                end
            end
        end
    end)
end)

describe("a mask", function()
    it("picks and overwrites the same everywhere, also for ranks that hold no part", function()
        local whole = flow.arange(12):remainder(5)
        local picked, written = whole[whole:gt(2)], whole:clone()
        written[written:gt(2)] = -1
        for _, place in ipairs(places) do
            for _, sbp in ipairs {"S(0)", "B"} do
                local x = whole:clone():to_global {placement = all.value, sbp = "B"}:to_global {placement = place.value, sbp = full(place, sbp)}
                support.same(picked, flow.tensor(x[x:gt(2)]:totable()), sbp)
                x[x:gt(2)] = -1
                support.same(written, flow.tensor(x:totable()), sbp)
            end
        end
    end)
end)

describe("one rank alone", function()
    it("runs on_rank's function and has its results", function()
        for r = 0, world - 1 do
            local results = table.pack(flow.on_rank(r, function(a) return flow.rank(), a, flow.ones(2):sum():item() end, "x"))
            if r == me then assert.are.same({r, "x", 2.0, n = 3}, results) else assert.are.equal(0, results.n) end
        end
    end)

    if world > 1 then
        it("may not communicate there", function()
            local x = flow.ones(4, {placement = all.value, sbp = "S(0)"})
            local rule = ": only one rank runs inside flow.on_rank, so ranks cannot communicate there"
            for _, case in ipairs {
                {"barrier", flow.barrier}, {"all-gather of float32[4], S(0) -> B", function() return x:to_global {sbp = "B"} end},
                {"item: all-reduce of float32[], P -> B", function() return x:sum():item() end},
            } do
                local message
                flow.on_rank(world - 1, function() message = message_of(case[2]) end)
                if me == world - 1 then assert.are.equal(case[1] .. rule, message) end
            end
            flow.barrier()
            assert.are.equal(4.0, x:sum():item())
        end)

        it("may fail there without the others", function()
            local ok, message = pcall(flow.on_rank, 1, function() error("only here", 0) end)
            if me == 1 then assert.are.same({false, "only here"}, {ok, message}) else assert.is_true(ok) end
            flow.barrier()
            assert.are.equal(world * 1.0, flow.ones(1):to_global {placement = all.value, sbp = "P"}:item())
        end)
    end
end)

describe("gradients of the casts:", function()
    local weights = flow.arange(35):remainder(11):to "float32":reshape(7, 5) - 4

    -- The weights as a constant of a placement.
    local function constant(place, sbp) return weights:to_global {placement = place.value, sbp = full(place, "B")}:to_global {sbp = sbp} end

    it("to_global boxes the gradient to the source's SBP", function()
        for _, from in ipairs(places) do
            for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
                for _, to in ipairs {all, places[#places]} do
                    for _, target in ipairs {"S(0)", "S(1)", "B", "P"} do
                        local x = flow.ones(7, 5, {placement = from.value, sbp = full(from, sbp), requires_grad = true})
                        local y = x:to_global {placement = to.value, sbp = full(to, target)}
                        local loss = (y * constant(to, full(to, "B"))):sum()
                        loss:backward()
                        local what = ("%s %s -> %s %s"):format(tostring(from.value), sbp, tostring(to.value), target)
                        assert.is_true(x.grad.placement == from.value, what)
                        assert.is_true(x.grad.sbp == x.sbp, what .. ": " .. tostring(x.grad.sbp))
                        if from.position[me] then
                            support.same(part_of(weights, from, full(from, sbp)), x.grad:to_local(), what)
                        end
                    end
                end
            end
        end
    end)

    it("to_global's grad_sbp is where the gradient passes", function()
        local x = flow.ones(7, 5, {placement = all.value, sbp = "S(0)", requires_grad = true})
        local y = x * 1
        local z = y:to_global {sbp = "B", grad_sbp = "S(1)"}
        local seen
        y:register_hook(function(g) seen = tostring(g.sbp) end);
        (z * constant(all, {"B"})):sum():backward()
        assert.are.equal("S(1)", seen)
        support.same(part_of(weights, all, {"S(0)"}), x.grad:to_local(), "gradient")
    end)

    it("to_local takes a gradient that is a part, equal, or the whole", function()
        for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
            local x = flow.ones(7, 5, {placement = all.value, sbp = sbp, requires_grad = true})
            local mine = x:to_local()
            assert.is_false(mine.is_global);
            (mine * part_of(weights, all, {sbp})):sum():backward()
            assert.are.equal(sbp, tostring(x.grad.sbp))
            support.same(part_of(weights, all, {sbp}), x.grad:to_local(), sbp)
        end
        local x = flow.ones(7, 5, {placement = all.value, sbp = "B", requires_grad = true})
        local p = (x * 1):to_global {sbp = "P"};
        (p:to_local() * weights):sum():backward()
        support.same(weights, x.grad:to_local(), "through P")
        x = flow.ones(7, 5, {placement = all.value, sbp = "B", requires_grad = true});
        (x:to_local {grad_sbp = "P"} * weights):sum():backward()
        support.same(weights * world, x.grad:to_global {sbp = "B"}:to_local(), "grad_sbp P: the ranks' gradients are added up")
    end)

    it("local:to_global gives each rank its part back", function()
        for _, axis in ipairs {0, 1} do
            local sbp = ("S(%d)"):format(axis)
            -- rank r brings r + 1 rows (or columns): moved into a balanced split, and the gradient back
            local total, before = world * (world + 1) // 2, me * (me + 1) // 2
            local whole = flow.arange(total * 3):to "float32":reshape(axis == 0 and {total, 3} or {3, total})
            local l = flow.ones(axis == 0 and {me + 1, 3} or {3, me + 1}, {requires_grad = true})
            local g = l:to_global {placement = all.value, sbp = sbp}
            local w = whole:to_global {placement = all.value, sbp = "B"};
            (g * w):sum():backward()
            assert.is_false(l.grad.is_global)
            support.same(whole:narrow(axis, before, me + 1), l.grad, sbp)
        end
        for _, sbp in ipairs {"B", "P"} do
            local l = flow.ones(7, 5, {requires_grad = true});
            (l:to_global {placement = all.value, sbp = sbp} * constant(all, {"B"})):sum():backward()
            support.same(weights, l.grad, sbp)
        end
    end)

    it("a mean over parts is the mean", function()
        local whole = flow.arange(35):to "float32":reshape(7, 5)
        local x = whole:clone():to_global {placement = all.value, sbp = "B"}:to_global {sbp = "S(0)"}:requires_grad_()
        local y = x:square():mean()
        y:backward()
        support.close(part_of(whole * 2 / 35, all, {"S(0)"}), x.grad:to_local(), 1e-6, "gradient")
        assert.is_true(math.abs(y:item() - whole:square():mean():item()) < 1e-3)
    end)
end)

describe("operands", function()
    it("on other placements are an error that says what to write, on every rank", function()
        if world == 1 then return end
        local p, q = all.value, flow.placement("cpu", {world - 1})
        local x, y = flow.ones(3, {placement = p, sbp = "B"}), flow.ones(3, {placement = q, sbp = "B"})
        local message = message_of(function() return x + y end)
        assert.is_truthy(message:find("write y:to_global{placement = x.placement}", 1, true), message)
        assert.are.same({2.0, 2.0, 2.0}, (x + y:to_global {placement = p}):totable())
    end)

    it("made contiguous are copies on every rank, where a part of one column is contiguous already too", function()
        if world == 1 then return end       -- alone it may be x itself
        for columns = 1, 2 * world do
            local x = flow.ones({columns, 4}, {placement = all.value, sbp = "S(0)", requires_grad = true})
            local y = x:t():detach():contiguous()
            y:add_(1)
            assert.are.equal(4 * columns, x:sum():item())
            local z = x:t():contiguous();
            (z:sum() + x:clamp(0, 3):sum()):backward()
            assert.are.equal(8 * columns, x.grad:sum():item())
        end
    end)

    it("reshaped are views where one rank's would be, also in parts of one column", function()
        if world == 1 then return end
        for columns = world, 2 * world, world do
            local x = flow.ones({3, columns}, {placement = all.value, sbp = "S(1)"})
            x:t():reshape(-1):add_(1)                           -- a copy
            assert.are.equal(3 * columns, x:sum():item())
            assert.is_false((pcall(function() return x:t():view(-1) end)))
            x:unsqueeze(0):view(1, 3, columns, 1):add_(1)       -- a view
            assert.are.equal(6 * columns, x:sum():item())
        end
    end)

    it("written in place keep their SBP", function()
        local x = flow.zeros(6, 4, {placement = all.value, sbp = "S(0)"})
        local whole = flow.arange(24):to "float32":reshape(6, 4)
        x:add_(whole:to_global {placement = all.value, sbp = "B"}:to_global {sbp = "S(1)"})
        assert.are.equal("S(0)", tostring(x.sbp))
        assert.are.same(whole:totable(), x:totable())
        x[3] = 7
        x[{{1, 5, 2}, 0}] = -1
        whole[3] = 7
        whole[{{1, 5, 2}, 0}] = -1
        assert.are.same(whole:totable(), x:totable())
    end)
end)
