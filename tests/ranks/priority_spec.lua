-- priority_spec.lua -- to_global's priority: in a captured step a boxing overtakes those of a lower one, in one order on all
-- ranks, and every value stays what it is in eager code.
local flow = require "flow"

local ranks, rank = flow.world_size(), flow.rank()
local all = flow.placement.all "cpu"

-- Two axes: 2 x n/2 ranks, or n x 1.
local function grid()
    local rows, width = {}, ranks % 2 == 0 and ranks // 2 or 1
    for r = 0, ranks - 1 do
        local row = r // width + 1
        rows[row] = rows[row] or {}
        table.insert(rows[row], r)
    end
    return flow.placement("cpu", rows)
end

local function same(want, got, what)
    assert.are.equal(tostring(want.sbp), tostring(got.sbp), what)
    assert.is_true(want == got, what)
end

-- The first sizes of the tensors that are moved, in the order of a replay: "3 1 2".
local function moved(f, ...)
    local args, found = table.pack(...), {}
    local report = flow.explain(function() f(table.unpack(args, 1, args.n)) end)
    for _, c in ipairs(report.collectives) do found[#found + 1] = c.tensor:match "%[(%d+)" end
    return table.concat(found, " ")
end

-- The same with all that a report says of them.
local function listed(f, x)
    local found = {}
    for _, c in ipairs(flow.explain(function() f(x) end).collectives) do
        found[#found + 1] = table.concat({c.kind, c.tensor, c.from, c.to}, " ")
    end
    return table.concat(found, "\n")
end

-- f and its captured self give the same bits at several calls; returns that one.
local function check(f, make, options)
    local g = flow.capture(f, options)
    for call = 1, 4 do
        flow.manual_seed(call)
        local x = make()
        local want, got = {f(x)}, {g(x)}
        for i = 1, #want do same(want[i], got[i], "result " .. i .. " of call " .. call) end
    end
    return g
end

local function parts(placement, sbp)
    return function() return flow.randn(8, 6, {placement = placement, sbp = sbp}) end
end

-- Values of different sizes, made first and then moved in turn: number i has i rows.
local function moves(priorities, sbp)
    return function(x)
        local made, whole = {}, {}
        for i = 1, #priorities do made[i] = x[{{}, {0, i}}]:t():contiguous() * i end
        for i, priority in ipairs(priorities) do whole[i] = made[i]:to_global {sbp = sbp, priority = priority} end
        return table.unpack(whole)
    end
end

describe("boxings with priorities, in a captured step on " .. ranks .. " ranks,", function()
    local cases = {
        {"keep their order without", {0, 0, 0}, "1 2 3"},
        {"keep it where all are equal", {1, 1, 1}, "1 2 3"},
        {"go ahead of lower ones", {0, 0, 1}, "3 1 2"},
        {"keep their order among themselves", {0, 1, 0, 1}, "2 4 1 3"},
        {"are overtaken with -1", {-1, 0, -1, 0}, "2 4 1 3"},
        {"have three classes", {-1, 0, 1, -1, 0, 1}, "3 6 2 5 1 4"},
    }
    for _, case in ipairs(cases) do
        it(case[1], function()
            if ranks < 2 then return end
            local g = check(moves(case[2], "B"), parts(all, "S(0)"))
            assert.are.equal(case[3], moved(g, parts(all, "S(0)")()))
            local make = parts(grid(), {"S(0)", "B"})
            assert.are.equal(case[3], moved(check(moves(case[2], {"B", "B"}), make), make()))
        end)
    end

    it("do not overtake one whose result they need, nor what writes their operand", function()
        if ranks < 2 then return end
        local g = check(function(x)
            local a = x[{{}, {0, 1}}]:t():to_global {sbp = "B"}
            local b = (a + x[{{}, {0, 1}}]:t() * 2):to_global {sbp = "S(1)"}:mul(2):to_global {sbp = "B", priority = 1}
            return a, b
        end, parts(all, "S(0)"))
        assert.are.equal("1 1", moved(g, parts(all, "S(0)")()))
        local function f(x)
            local y = x[{{}, {0, 2}}]:t() * 3
            local a = x[{{}, {0, 1}}]:t():to_global {sbp = "B"}
            y:add_(1)
            local b = x[{{}, {0, 3}}]:t():to_global {sbp = "B"}
            return a, b, y:to_global {sbp = "B", priority = 1}
        end
        assert.are.equal("1 2 3", moved(check(f, parts(all, "S(0)")), parts(all, "S(0)")()))
    end)

    it("read what a later step writes, before that", function()
        local w = flow.randn(4, 6, {placement = all, sbp = "S(0)"})
        local start = w:clone()
        local function f(x)
            w:copy_(start)
            local low = x:to_global {sbp = "B", priority = -1}
            local high = w:to_global {sbp = "B", priority = 1}
            w:add_(low:sum(0))
            return low, high, w:to_global {sbp = "B", priority = 1}
        end
        check(f, parts(all, "S(0)"))
    end)

    it("hold no more memory than boxing may", function()
        if ranks < 2 then return end
        local weights = {}
        for i = 1, 6 do weights[i] = flow.randn(8, 8, {placement = all, sbp = "S(0)"}) end
        local last = flow.randn(16, 4, {placement = all, sbp = "S(0)"})
        local function f(x)
            for i = 1, 6 do x = x:matmul(weights[i]:to_global {sbp = "B"}) end
            return x, last:to_global {sbp = "B", priority = 1}
        end
        local make = function() return flow.randn(4, 8, {placement = all, sbp = "S(0)"}) end
        assert.are.equal("8 8 8 8 8 16 8", moved(check(f, make), make()))
    end)

    it("give it to the boxing of the gradient", function()
        if ranks < 2 then return end
        local function f(x)
            local a, b = x[{{}, {0, 1}}]:t():detach(), x[{{}, {0, 2}}]:t():detach()
            a:requires_grad_()
            b:requires_grad_()
            local loss = (a:to_global {sbp = "B"}:square():sum() + b:to_global {sbp = "B", priority = 1}:square():sum())
            local da, db = table.unpack(flow.grad(loss, {a, b}))
            return da, db
        end
        check(f, parts(all, "S(0)"))
        local p = flow.trace(function(x) return x:to_global {sbp = "B", priority = -1}:square():sum() end,
            {flow.spec({4, 3}, {placement = all, sbp = "S(0)"})})
        local _, count = tostring(p:backward {"x"}):gsub("priority = %-1", "")
        assert.are.equal(2, count)
    end)

    it("agree with ranks that are outside of some of them", function()
        if ranks < 3 then return end
        local left, right = flow.placement("cpu", {0, 1}), flow.placement("cpu", {1, 2})
        local function f(x)
            local l = x:to_global {placement = left, sbp = "S(0)"} * 2
            local r = x:to_global {placement = right, sbp = "S(1)", priority = -1} + 1
            local a = l:to_global {sbp = "B"}
            local b = r:to_global {sbp = "B"}
            local c = (l + 1):to_global {sbp = "S(1)", priority = 1}
            local d = (r * 3):to_global {sbp = "S(0)", priority = 1}
            local e = c:to_global {placement = all, sbp = "B", priority = 1}
            return e, d:to_global {placement = all, sbp = "B"}, a:to_global {placement = all, sbp = "B"},
                b:to_global {placement = all, sbp = "B"}
        end
        check(f, parts(all, "S(0)"))
    end)
end)

-- A step of moves that are drawn from a seed, alike on all ranks.
local function drawn(seed)
    local state = seed * 7919
    local function below(n)
        state = state * 6364136223846793005 + 1442695040888963407
        return (state >> 33) % n
    end
    local two = grid()
    local places = {
        {all, {"S(0)", "S(1)", "B", "P"}}, {two, {{"S(0)", "B"}, {"B", "S(1)"}, {"P", "S(0)"}, {"B", "B"}}},
    }
    if ranks > 2 then places[3] = {flow.placement("cpu", {ranks - 1, 0}), {"S(1)", "B", "S(0)"}} end
    local plan = {}
    for i = 1, 14 do
        local place = places[below(#places) + 1]
        plan[i] = {below(6), below(i) + 1, below(i) + 1, place[1], place[2][below(#place[2]) + 1], below(3) - 1, i}
    end
    return function(x)
        local values = {x}
        for _, p in ipairs(plan) do
            local kind, a, b = p[1], values[p[2]], values[p[3]]
            local y
            if kind == 0 then y = (a * 0.5):tanh()
            elseif kind == 1 and a.placement == b.placement then y = a + b
            elseif kind == 2 then y = (a * 1):mul_(p[7])
            else y = a:to_global {placement = p[4], sbp = p[5], priority = p[6]} end
            values[#values + 1] = y
        end
        local results = {}
        for i = 2, #values do results[#results + 1] = values[i]:to_global {placement = all, sbp = "B", priority = i % 3 - 1} end
        return table.unpack(results)
    end
end

describe("steps of boxings with priorities that were drawn, on " .. ranks .. " ranks,", function()
    it("give the bits of eager ones", function()
        local reordered = 0
        for seed = 1, 30 do
            local f, make = drawn(seed), parts(all, seed % 2 == 0 and "S(0)" or "B")
            local g = check(f, make)
            if listed(f, make()) ~= listed(g, make()) then reordered = reordered + 1 end
            check(f, make, {strict = false})
        end
        assert.is_true(ranks == 1 or reordered > 10, "only " .. reordered .. " have another order")
    end)
end)

describe("a rank that carries out boxings in another order", function()
    it("is an error at each of them, also where shapes are equal", function()
        if ranks < 2 then return end
        local function f(x)
            local a, b = x * 2, x + 1
            return a:to_global {sbp = "B"}, b:to_global {sbp = "B", priority = 1}
        end
        local g, x = flow.capture(f), parts(all, "S(0)")()
        g(x)
        local results = {pcall(rank == 0 and f or g, x)}
        for i = 2, results[1] and 3 or 2 do -- both are read if they wait in a queue
            local ok, message = pcall(function() return results[1] and results[i]:sum():item() or error(results[2], 0) end)
            assert.is_false(ok)
            assert.is_truthy(tostring(message):find("different programs", 1, true), message)
        end
    end)
end)

describe("to_global's priority", function()
    local x = flow.ones(4, 3, {placement = all, sbp = "B"})

    it("is 1, 0 or -1", function()
        for given, shown in pairs {[2] = "2", [-2] = "-2", [1.5] = "1.5", high = '"high"', ["1"] = '"1"', [true] = "true"} do
            local ok, message = pcall(x.to_global, x, {sbp = "S(0)", priority = given})
            assert.is_false(ok)
            assert.are.equal("to_global: priority must be 1, 0 or -1, got " .. shown, (tostring(message):gsub("^.-:%d+: ", "")))
        end
        for _, given in ipairs {1, 0, -1, 1.0} do same(x, x:to_global {sbp = "B", priority = given}, "the same") end
    end)

    it("has no effect where Lua runs at every call", function()
        if ranks < 2 then return end
        local g = check(moves({0, 0, 1}, "B"), parts(all, "S(0)"), {strict = false})
        assert.are.equal("1 2 3", moved(g, parts(all, "S(0)")()))
    end)

    it("is for global tensors", function()
        local ok, message = pcall(function() flow.ones(2):to_global {placement = all, sbp = "B", priority = 1} end)
        assert.is_false(ok)
        assert.is_truthy(tostring(message):find("to_global: priority is for global tensors", 1, true), message)
    end)

    it("has no effect on eager code", function()
        local f = moves({0, -1, 1, 0}, "B")
        if ranks > 1 then assert.are.equal("1 2 3 4", moved(f, parts(all, "S(0)")())) end
    end)

    it("is kept by a program and its file", function()
        local path = ("/tmp/priority_spec.%d.safetensors"):format(
            flow.randint(0, 1 << 40, {1}, {placement = all, sbp = "B"}):item())
        local f = moves({0, 1}, "B")
        local p = flow.trace(f, {flow.spec({8, 6}, {placement = all, sbp = "S(0)"})})
        assert.is_truthy(tostring(p):find("priority = 1", 1, true), tostring(p))
        p:save(path)
        local q = flow.program(path)
        flow.barrier()
        if rank == 0 then os.remove(path) end
        assert.are.equal(tostring(p), tostring(q))
        local g = flow.capture(function(a) return q(a) end)
        for _ = 1, 3 do
            local a = parts(all, "S(0)")()
            local want, got = {f(a)}, {g(a)}
            for i = 1, 2 do same(want[i], got[i], "result " .. i) end
        end
        if ranks > 1 then assert.are.equal("2 1", moved(g, parts(all, "S(0)")())) end
    end)

    it("follows one order where a rank has no elements", function()
        local rows = flow.randn({2, 1000}, {placement = all, sbp = "B"})
        local function f(y, w)
            local part, h, low = w:to_global {sbp = "S(0)"}, y * 3, {}
            for i = 1, 5 do low[i] = (y + i):to_global {sbp = "B"} * 2 end
            h:mul_(2)
            low[6] = (y - 1):to_global {sbp = "B"}
            return h:to_global {sbp = "B", priority = 1}, low[5], part:to_global {sbp = "B"}
        end
        local g = flow.capture(f)
        for _ = 1, 4 do
            local y = flow.randn({2, 40}, {placement = all, sbp = "S(0)"})
            local want, got = {f(y, rows)}, {g(y, rows)}
            for i = 1, 3 do same(want[i], got[i], "result " .. i) end
        end
    end)

    it("follows one order where one rank has the parameters", function()
        local w = flow.ones({3}, {placement = flow.placement("cpu", {0}), sbp = "B"}):requires_grad_()
        local opt = flow.optim.AdamW({w}, {lr = 0.1})
        local function f(y)
            local h, a = y * 3, y:to_global {sbp = "B"}
            opt:zero_grad()
            w:square():sum():backward()
            opt:step()
            return a, h:to_global {sbp = "B", priority = 1}
        end
        local g = flow.capture(f)
        for _ = 1, 4 do
            local y = flow.randn({6, 10}, {placement = all, sbp = "S(0)"})
            local a, b = g(y)
            same(y:to_global {sbp = "B"}, a, "the first")
            same((y * 3):to_global {sbp = "B"}, b, "the second")
        end
    end)
end)
