-- failure_spec.lua -- collectives that the ranks do not enter alike: an error on all of them, in the same words, that a script
-- may catch; later calls work.
local flow = require "flow"
local ranks = require "tests.ranks.support"

local me, world = ranks.rank, ranks.world
local all = flow.placement.all "cpu"

local here = debug.getinfo(1, "Sl")
local function gather(x) x:to_global {sbp = "B"} end        -- one line below
local function reduce(x) x:sum(0):to_global {sbp = "B"} end -- two lines below

local gathers = ("%s:%d all-gather of float32[%%d, 4], S(0) -> B"):format(here.short_src, here.currentline + 1)
local reduces = ("%s:%d all-reduce of float32[4], P -> B"):format(here.short_src, here.currentline + 2)

-- f fails, now or at the next sync, because ranks a and b differ so.
local function assert_differ(a, at_a, b, at_b, f)
    local ok, message = pcall(f)
    if ok then ok, message = pcall(flow.sync) end
    assert.is_false(ok, "no error")
    local want = ("the ranks run different programs: rank %d %s, rank %d %s; is one of them inside `if rank == 0`?"):format(a, at_a, b, at_b)
    assert.are.equal(want, message:match "the ranks run .*")
end

local function split(placement, rows) return flow.ones({rows, 4}, {placement = placement, sbp = "S(0)"}) end

local function assert_works()
    assert.are.equal(20, split(all, 5):sum(0):to_global({sbp = "B"}):to_local():sum():item())
end

describe("ranks that enter different collectives", function()
    if world == 1 then
        it("are none when there is one rank", assert_works)
        return
    end

    it("hear both lines, and go on", function()
        for odd = 0, 1 do
            local ways = {[odd] = gathers:format(5), [1 - odd] = reduces}
            assert_differ(0, ways[0], 1, ways[1], function() (me % 2 == odd and gather or reduce)(split(all, 5)) end)
            assert_works()
        end
    end)

    it("hear of another shape", function()
        local last = world - 1
        assert_differ(0, gathers:format(6), last, gathers:format(8), function() gather(split(all, me == last and 8 or 6)) end)
        assert_works()
    end)

    it("leave other groups alone", function()
        local pair = flow.placement("cpu", {1, 0})
        if me < 2 then
            assert_differ(1, gathers:format(5), 0, reduces, function() (me == 0 and reduce or gather)(split(pair, 5)) end)
        end
        assert_works()
    end)
end)

describe("ranks that carry out different ops between two collectives", function()
    if world == 1 then return end
    local last = world - 1

    -- {the different call of the last rank, of x: float32[5, 4] S(0); the first rank's op, the last one's}
    local cases = {
        {function(x, odd) return odd and x:mean(0) or x:sum(0) end, "sum of float32[5, 4] S(0)", "mean of float32[5, 4] S(0)"},
        {function(x, odd) return (x * (odd and 3 or 2)):sum(0) end, "mul of float32[5, 4] S(0)", "mul of float32[5, 4] S(0) with other arguments"},
        {function(x, odd) x:add_(odd and 0.5 or 0.25) return x:sum(0) end, "add of float32[5, 4] S(0)", "add of float32[5, 4] S(0) with other arguments"},
        {function(x, odd) x:clamp(0, odd and 2 or 1) return x:sum(0) end, "clamp of float32[5, 4] S(0)", "clamp of float32[5, 4] S(0) with other arguments"},
        {function(x, odd) flow.tensor({odd and 1 or 2}, {placement = all, sbp = "B"}) return x:sum(0) end,
            "tensor of int64[1] B", "tensor of int64[1] B with other arguments"},
        {function(x, odd) x:sum(odd and 1 or 0) return x:sum(0) end, "sum of float32[5, 4] S(0)", "sum of float32[5, 4] S(0) with other arguments"},
        {function(x, odd) flow.ones_like(flow.ones(8, odd and 5 or 4), {placement = all, sbp = "B"}) return x:sum(0) end,
            "ones_like of float32[8, 4] B", "ones_like of float32[8, 5] B"},
        {function(x, odd) if not odd then x:exp() end return x:sum(0) end, "exp of float32[5, 4] S(0)", "sum of float32[5, 4] S(0)"},
        {function(x, odd) local y = x:sum(0) if odd then y = y * 1 end return y end, nil, "mul of float32[4] P"},
    }

    local function before(f, op_a, op_b, line)
        local function at(rank, op) return ("rank %d %s"):format(rank, op and ("%s:%d %s"):format(here.short_src, line, op) or "nothing more") end
        return ("the ranks run different programs: %s, %s (before the all-reduce of float32[4], P -> B, %s:%d); is one of them inside `if rank == 0`?")
            :format(at(0, op_a), at(last, op_b), here.short_src, debug.getinfo(f, "S").linedefined)
    end

    local function message_of(f)
        local ok, message = pcall(f)
        if ok then ok, message = pcall(flow.sync) end
        return ok and "no error" or message:match "the ranks run .*"
    end

    it("hear which op is the first, and go on", function()
        for _, case in ipairs(cases) do
            local change, op_a, op_b = table.unpack(case, 1, 3)
            local y = change(split(all, 5), me == last)
            local function meet() y:to_global {sbp = "B"} end
            local line = debug.getinfo(change, "S").linedefined
            local message = message_of(meet):gsub("%S+on_device%.lua:%d+", ("%s:%d"):format(here.short_src, line)) -- makes tensors there
            assert.are.equal(before(meet, op_a, op_b, line), message)
            assert_works()
        end
    end)

    it("hear of it at a barrier too, and of ops long ago", function()
        local x = split(all, 5) * (me == last and 3 or 2)
        assert.matches("different programs: rank 0 [^,]* mul of float32%[5, 4%] S%(0%), rank %d [^,]* mul .* %(before the barrier, ", message_of(flow.barrier))
        x = x * (me == last and 3 or 2)
        for _ = 1, 300 do x = x * 1 end
        local line = here.short_src .. ":%d+"
        assert.matches(("different programs: different ops led rank 0 to %s and rank %d to %s %%(barrier%%)"):format(line, last, line),
            message_of(flow.barrier))
        assert_works()
    end)

    it("may differ in what is their own", function()
        local x, w = split(all, 5), flow.ones({4}, {placement = all, sbp = "B"})
        local own = x:to_local() * (me + 2)
        if me == 0 then own = own:sum():sqrt() + w:to_local():sum():item() end
        if me == last then x:clone() end
        flow.on_rank(0, function() assert.are.equal(8, (w * 2):sum():to_local():item()) end)
        assert_works()
        local pair = flow.placement("cpu", {0, last})
        if me == 0 or me == last then assert.are.equal(10, (split(pair, 5) * 0.5):sum():to_global({sbp = "B"}):to_local():item()) end
        local alone = flow.placement("cpu", {last})
        if me == last then split(alone, 3):exp():sum():to_local():item() end
        assert_works()
        assert.truthy(own)
    end)

    it("may be outside of the placement", function()
        local pair = flow.placement("cpu", {0, 1})
        if me < 2 then assert.are.equal(20, split(pair, 5):sum():to_global({sbp = "B"}):to_local():item()) end
        local y = split(all, 6):to_global {placement = pair, sbp = "S(0)"}
        y = y * 2
        assert.are.equal(48, y:to_global {placement = all, sbp = "B"}:to_local():sum():item())
        assert_works()
    end)
end)
