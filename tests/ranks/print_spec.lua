-- print_spec.lua -- global tensors as text: the same on every rank as a local tensor's, and only rank 0 prints. Reference: the
-- text of the same values as a local tensor.
local flow = require "flow"
local ranks = require "tests.ranks.support"

-- The output of f on this rank.
local function printed(f)
    local lines, real = {}, print
    _G.print = function(...)
        local words = table.pack(...)
        for i = 1, words.n do words[i] = tostring(words[i]) end
        lines[#lines + 1] = table.concat(words, "\t")
    end
    local ok, message = pcall(f)
    _G.print = real
    assert(ok, message)
    return lines
end

local shapes = {{8, 6}, {5, 3}, {1, 7}, {7}, {}, {0, 4}, {3, 2, 5}, {1200}, {40, 30}, {1001, 2}, {2, 1001}, {13, 11, 9}, {7, 7, 7, 7}}

describe("a global tensor", function()
    it("prints as a local one, whole, on every rank", function()
        local random, wrong, count = ranks.random(41), ranks.complaints(), 0
        local places = ranks.placements()
        for i = 1, ranks.all and 2000 or 250 do
            local place, shape, dtype = random.pick(places), random.pick(shapes), random.pick(ranks.dtypes)
            local nd_sbp = random.pick(ranks.nd_sbps(place, #shape, dtype))
            local whole = ranks.whole(shape, dtype, i)
            local want = #whole.values == 0 and "[]" or
                tostring(ranks.local_tensor({values = whole.values, size = shape}, dtype)):gsub("[ \n]+%w+%[[%d, ]*%] on cpu$", "")
            local text = tostring(ranks.global(whole, place, nd_sbp, random.below(4) == 0))
            local values, about = text:match("^(.-)[ \n]+(%w+%[[%d, ]*%] on placement.*)$")
            if values ~= want then
                wrong.add("%s of %s as %s: rank %d prints\n%s\nexpected\n%s", dtype, ranks.shape_text(shape), table.concat(nd_sbp, " "),
                    ranks.rank, text, want)
            end
            local sbp = #nd_sbp == 1 and nd_sbp[1] or "(" .. table.concat(nd_sbp, ", ") .. ")"
            assert.are.equal(("%s%s on %s as %s"):format(dtype, ranks.shape_text(shape), tostring(place.value), sbp), about)
            count = count + 1
        end
        wrong.check(count)
    end)

    it("keeps nan, inf and the sign of zero when it is summarised", function()
        local all = flow.placement.all("cpu")
        local x = flow.arange(0, 2000, 1, {dtype = "float32"}) * -0.0
        flow.no_grad(function() x[1], x[2], x[1999] = 0 / 0, math.huge, -math.huge end)
        local text = tostring(x:to_global{placement = all, sbp = "B"}:to_global{sbp = "S(0)"})
        assert.are.equal("[-0.0,  nan,  inf, ..., -0.0, -0.0, -inf]", (text:match("^%b[]")))
    end)

    it("moves what is shown and no more", function()
        local x = flow.zeros({1000, 1000}, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
        local report = flow.explain(function() return tostring(x) end)
        assert.is_nil(report.error)
        assert.is_true(report.bytes <= 2 * 36 * 4)
        assert.are.equal(ranks.world > 1 and 1 or 0, #report.collectives)
    end)

    it("is this rank's part where only one rank runs", function()
        local p = flow.placement.all("cpu")
        local x = flow.arange(0, 8, 1, {placement = p, sbp = "S(0)"})
        for r = 0, ranks.world - 1 do
            local text = flow.on_rank(r, function() return tostring(x) end)
            if r == ranks.rank and ranks.world > 1 then
                local part = x:to_local()
                local first = part[0]:item()
                assert.are.equal(("[%s]  int64[8] on %s as S(0)\nshown is the part of rank %d: [%d:%d] (nothing is communicated in " ..
                    "flow.on_rank)"):format(table.concat(part:totable(), ", "), tostring(p), r, first, first + #part), text)
            end
        end
    end)
end)

describe("rank 0 alone", function()
    it("prints with flow.print, for which all put tensors together", function()
        local x = flow.arange(0, 3, 1, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
        local lines = printed(function() flow.print("x", x, nil) end)
        assert.are.same(ranks.rank == 0 and {"x\t" .. tostring(x) .. "\tnil"} or (tostring(x) and {}), lines)
    end)

    it("shows values of the session, in the same order everywhere", function()
        local inspect = require "flow.inspect"
        local p = flow.placement.all("cpu")
        local function x(value) return flow.full({2}, value, {dtype = "int64", placement = p, sbp = "S(0)"}) end
        local values = {b = x(2), a = x(1), [x(3)] = x(3), [function() end] = x(4), [true] = 5}
        local text = inspect.texts(values, 7)
        local function about(n) return ("[%d, %d]  int64[2] on %s as S(0)"):format(n, n, tostring(p)) end
        assert.are.equal(("{\n    a = %s,\n    b = %s,\n    [function] = int64[2],\n    [int64[2]] = int64[2],\n    [true] = 5\n}\n7"):format(
            about(1), about(2)), text)
        local lines = printed(function() inspect.show(false, x(1)) end)
        assert.are.same(ranks.rank == 0 and {about(1)} or {}, lines)
    end)

    it("draws progress, with texts that all make at the same steps", function()
        local x = flow.ones({4}, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
        local bar, made = flow.progress.bar(1000, {lines = 4, width = 40}), 0
        local real = io.stdout
        rawset(io, "stdout", {write = function() end, flush = function() end})
        for step = 1, 1000 do
            bar:update(step, function()
                made = made + 1
                return ("sum %d"):format(x:sum():item())
            end)
        end
        bar:clear()
        rawset(io, "stdout", real)
        if ranks.world > 1 then assert.are.equal(200, made) end
        local lines = printed(function() bar:print("x is", x) end)
        local text = "x is\t" .. tostring(x)
        assert.are.same(ranks.rank == 0 and {text} or {}, lines)
    end)

    it("goes on where the bar's function gives no text", function()
        local bar, real = flow.progress.bar(2, {lines = 0, width = 0}), io.stdout
        rawset(io, "stdout", {write = function() end, flush = function() end, setvbuf = function() end})
        local ok, message = pcall(function() for step = 1, 2 do bar:update(step, function() end) end end)
        rawset(io, "stdout", real)
        assert.is_true(ok, message)
    end)

    it("shows pictures and models", function()
        local x = flow.zeros({4}, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
        assert.are.equal(ranks.rank == 0 and 1 or 0, #printed(function() flow.show(x) end))
        assert.are.equal(ranks.rank == 0 and 1 or 0, #printed(function() flow.show(flow.nn.Linear(2, 2)) end))
    end)
end)

describe("explain", function()
    it("is the same on every rank", function()
        local p = flow.placement.all("cpu")
        local x = flow.ones({8, 4}, {placement = p, sbp = "S(0)"})
        local w = flow.ones({4}, {placement = p, sbp = "B", requires_grad = true})
        local text = tostring(flow.explain(function() (x * w):sum():backward() end))
        for _, other in ipairs(ranks.share{{text:byte(1, -1)}}) do assert.are.equal(text, string.char(table.unpack(other[1]))) end
        if ranks.world > 1 then assert.truthy(text:find(", by backward\n    all-reduce P -> B over ranks 0 1", 1, true)) end
    end)
end)
