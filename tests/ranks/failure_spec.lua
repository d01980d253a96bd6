-- failure_spec.lua -- collectives that the ranks do not enter alike: an error on all of them, in the same words, that a script
-- may catch; what comes after it works.
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
