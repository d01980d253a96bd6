-- poison_spec.lua -- what is missing on one rank: every rank hears of it, from whom and which line; no model is harmed, and
-- the ranks go on together. Ranks that no longer draw the same random numbers fail with an error.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn = flow.nn

local everywhere = flow.placement.all "cpu"
local last = ranks.world - 1

-- Runs f with every op queued, as an op is that waits for another one: then its error is met later.
local function queued(f)
    local before = flow._testing.engine "queued"
    local ok, message = pcall(f)
    flow._testing.engine(before)
    if not ok then error(message, 0) end
end

-- A part of n numbers, missing on the last rank.
local function missing(n)
    return flow.ones(10):index_select(0, flow.zeros(n, {dtype = "int64"}) + (ranks.rank == last and 99 or 0))
end

local origin = ("rank %d: index_select %%(tests/ranks/poison_spec%%.lua:%%d+%%): [^:]*$"):format(last)

local function check_missing(x, what)
    local ok, message = pcall(function() return x:to_local():totable() end)
    assert.is_false(ok, what)
    assert.matches(origin, message, 1, false, what)
end

describe("a part that is missing on one rank", function()
    if ranks.world == 1 then return end

    after_each(function() pcall(flow.sync) end)

    -- shown in the meeting, read in shared memory, in pieces: by size
    for _, n in ipairs {4, 5000, 600000} do
        it(("of %d numbers is missing on all after every collective"):format(n), function()
            queued(function()
                local m = n // 4 * ranks.world * 4
                local split = flow._testing.from_part(missing(m // ranks.world):view(-1, 4), {m // 4, 4}, everywhere, "S(0)")
                local partial = flow._testing.from_part(missing(m):view(-1, 4), {m // 4, 4}, everywhere, "P")
                check_missing(split:to_global{sbp = "B"}, "all-gather")
                check_missing(split:to_global{sbp = "S(1)"}, "all-to-all")
                check_missing(partial:to_global{sbp = "B"}, "all-reduce")
                check_missing(partial:to_global{sbp = "S(0)"}, "reduce-scatter")
                check_missing(partial:to_global{sbp = "S(0)"}:to_global{sbp = "S(1)"}:to_global{sbp = "B"}, "one after another")
            end)
            flow.sync()     -- an error that was raised is not reported again
        end)

        it(("of %d numbers is reported by flow.sync where no other call raises it"):format(n), function()
            queued(function()
                local m = n // 4 * ranks.world * 4
                local _ = flow._testing.from_part(missing(m):view(-1, 4), {m // 4, 4}, everywhere, "P"):to_global{sbp = "B"}
                local ok, message = pcall(flow.sync)
                assert.is_false(ok)
                assert.matches(ranks.rank == last and "index_select" or origin, message)
            end)
        end)
    end

    it("is known on all where it was met before, contiguous or not", function()
        local x
        queued(function()
            x = missing(16):view(4, 4)
            pcall(flow.sync)
        end)
        for _, part in ipairs {x, x:t()} do
            local ok, message = pcall(function()
                return flow._testing.from_part(part, {4 * ranks.world, 4}, everywhere, "S(0)"):to_global{sbp = "B"}:to_local():totable()
            end)
            assert.is_false(ok)
            assert.matches(origin, message)
        end
    end)

    it("is missing on all in a tensor that it is copied into, where that had no values", function()
        queued(function()
            local split = flow._testing.from_part(missing(8):view(-1, 4), {2 * ranks.world, 4}, everywhere, "S(0)")
            for _, sbp in ipairs {"B", "S(1)"} do
                local x = flow.empty(2 * ranks.world, 4, {placement = everywhere, sbp = sbp})
                pcall(x.copy_, x, split)
                check_missing(x, sbp)
            end
        end)
    end)

    -- shown in the meeting, packed, in pieces: by size
    for _, n in ipairs {2000, 60000, 600000} do
        it(("of %d numbers is missing on all where its file is cut before a collective reads it"):format(n), function()
            local path = ("%s/lost.%d.npy"):format(os.getenv "RANKS_FOLDER", ranks.rank)
            local rows = n // ranks.world // 4 * ranks.world
            local function mapped()
                flow.data.save_npy(path, flow.ones(rows, 4))
                local t = flow.data.npy(path, {map = true})
                assert.are.equal(1, t[0][0]:item())
                if ranks.rank == last then assert(os.execute("truncate -s 4096 " .. path)) end
                return t
            end
            local function check(from, to)
                local shape = {from == "S(0)" and rows * ranks.world or rows, 4}
                local x = flow._testing.from_part(mapped(), shape, everywhere, from)
                local ok, message = pcall(function() return x:to_global{sbp = to}:to_local():sum():item() end)
                assert.is_false(ok, from .. " -> " .. to)
                assert.matches(("rank %d: npy %%(.*%%): .*lost%%.%d%%.npy: the file has become shorter"):format(last, last), message)
            end
            check("S(0)", "B")
            check("S(0)", "S(1)")
            check("P", "B")
            check("P", "S(0)")
            os.remove(path)
        end)
    end

    it("is reported where copies are compared", function()
        queued(function()
            local ok, message = pcall(function() return missing(3):to_global{placement = everywhere, sbp = "B", check = true} end)
            assert.is_false(ok)
            assert.matches(origin, message)
        end)
    end)

    it("leaves the model as it was", function()
        flow.manual_seed(1)
        local net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)):to_global{placement = everywhere, sbp = "B"}
        local optimizer = flow.optim.AdamW(net:parameters(), {lr = 0.1})
        local x = flow.randn({4 * ranks.world, 6}, {placement = everywhere, sbp = "S(0)"})
        local good, bad = flow.zeros(4, {dtype = "int64"}), flow.zeros(4, {dtype = "int64"})
        if ranks.rank == last then bad[2] = 7 end

        local function step(labels)
            optimizer:zero_grad()
            local loss = flow.cross_entropy(net(x), flow._testing.from_part(labels, {4 * ranks.world}, everywhere, "S(0)"))
            loss:backward()
            optimizer:step()
            return loss:item()
        end

        local function weights()
            local list = {}
            for i, p in ipairs(net:parameters()) do list[i] = p:clone() end
            return list
        end

        queued(function()
            local first = step(good)
            local before = weights()
            local ok, message = pcall(step, bad)
            assert.is_false(ok)
            assert.matches(("rank %d: cross_entropy %%([^)]*%%): target%%[%d%%] is 7, but input has 5 classes"):format(last, 4 * last + 2), message)
            pcall(flow.sync)
            for i, w in ipairs(weights()) do assert.is_true(w:eq(before[i]):all():item(), "parameter " .. i) end
            assert.is_true(step(good) < first)
        end)
    end)
end)

describe("random numbers", function()
    local function meet() return flow.ones({3}, {placement = everywhere, sbp = "B"}):to_global{sbp = "P"}:to_global{sbp = "B"}:sum():item() end

    it("that only one rank has drawn for a global tensor are an error of the next collective", function()
        if ranks.rank == 0 then flow.randn({3}, {placement = everywhere, sbp = "B"}) end
        local ok, message = pcall(meet)
        flow.manual_seed(5)
        assert.are.equal(ranks.world == 1, ok)
        if not ok then
            local line = message:match "^[^:]*:%d+"
            local doing = line .. " all-reduce of float32[3], P -> B"
            local want = "the ranks have drawn different random numbers for global tensors: rank 0 " .. doing .. ", rank 1 " .. doing ..
                "; one of them may have drawn or seeded alone, or continued after an error (flow.manual_seed on all ranks makes them agree again)"
            assert.are.equal(want, message:sub(-#want))
        end
        assert.are.equal(3, meet())
    end)

    it("of local tensors are each rank's own", function()
        if ranks.rank == 0 then flow.randn(3) end
        assert.are.equal(3, meet())
        flow.manual_seed(5)
    end)

    it("on one rank alone do not move the others' sequence", function()
        flow.manual_seed(5)
        flow.on_rank(0, function()
            flow.randn(3)
            flow.randn({3}, {placement = everywhere, sbp = "B"})
        end)
        local x = flow.rand({4}, {placement = everywhere, sbp = "B"})
        assert.are.equal(3, meet())
        assert.is_true(ranks.same_numbers(ranks.values(x), ranks.share{ranks.values(x)}[1][1]))
    end)
end)
