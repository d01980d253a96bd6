-- boxing_spec.lua -- to_global from every (placement, nd-SBP) to every other: what each rank then holds is compared, window
-- by window, with an oracle in plain Lua (support.lua). A sample of fixed seeds; FLOW_TEST_ALL=1 walks all of it.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local boxing = require "tests.ranks.boxing_cases"
local check, sample, shapes = boxing.check, boxing.sample, boxing.shapes

local places = ranks.placements()

describe("boxing on one placement", function()
    for i, place in ipairs(places) do
        it("moves between any two SBPs of " .. tostring(place.value), function()
            check(sample(150, i, {from = {place}, same = true}))
        end)
    end
end)

describe("boxing between placements", function()
    for i, place in ipairs(places) do
        it("moves from " .. tostring(place.value) .. " to the others", function()
            check(sample(120, 100 + i, {from = {place}, to = places}))
        end)
    end
end)

describe("boxing of every dtype", function()
    for i, dtype in ipairs(ranks.dtypes) do
        it("moves " .. dtype, function() check(sample(80, 200 + i, {from = places, to = places, dtypes = {dtype}})) end)
    end
end)

describe("boxing of large tensors", function()
    local place = places[1]
    local last = places[#places]

    -- The whole, and this rank's part of it, as tensors.
    local function made(shape, dtype, sbp, on)
        local n = shape[1] * shape[2]
        local function pattern(multiplier, period) return (flow.arange(n) * multiplier):remainder(period):to(dtype):reshape(shape) end
        local whole = pattern(7919, 113)
        local position = on.position[ranks.rank]
        if not position then return whole, flow.zeros(0, {dtype = dtype}) end
        local count = #on.order
        local axis = sbp:match "^S%((%d)%)$"
        if axis then
            local size = shape[axis + 1]
            local start = size // count * position + math.min(position, size % count)
            local length = size // count + (position < size % count and 1 or 0)
            return whole, whole:narrow(math.tointeger(axis), start, length)
        end
        if sbp == "B" then return whole, whole end
        if sbp == "P" then
            if position < count - 1 then return whole, pattern(position + 3, 17) end
            local rest = whole
            for c = 0, count - 2 do rest = rest - pattern(c + 3, 17) end
            return whole, rest
        end
        local held = flow.arange(n):remainder(count):eq(position):reshape(shape)
        return whole, flow.where(held, whole, whole - (sbp == "P(max)" and 5 or -5))
    end

    local function moves(shape, dtype, from_sbp, from, to_sbp, to)
        local whole, mine = made(shape, dtype, from_sbp, from)
        local x = flow._testing.from_part(mine, shape, from.value, from_sbp)
        local y = x:to_global {placement = to.value, sbp = to_sbp}
        if to_sbp:find "^P" then y = y:to_global {sbp = "B"} end
        if not to.position[ranks.rank] then return true end
        local _, want = made(shape, dtype, to_sbp:find "^P" and "B" or to_sbp, to)
        assert.are.same(want.shape, y:to_local().shape)
        return want:numel() == 0 or want:eq(y:to_local()):all():item(), whole
    end

    local kinds = {"S(0)", "S(1)", "B", "P", "P(max)", "P(min)"}
    for _, case in ipairs {{{1000, 37}, "float32"}, {{3, 70001}, "int32"}, {{700, 701}, "float64"}, {{2048, 3}, "int64"}, {{9000, 5}, "bfloat16"}} do
        it(("moves %s%s"):format(case[2], ranks.shape_text(case[1])), function()
            local wrong = ranks.complaints()
            local total = 0
            for _, from in ipairs(kinds) do
                for _, to in ipairs(kinds) do
                    for _, target in ipairs {place, last} do
                        if #target.hierarchy == 1 or target == place then
                            total = total + 1
                            -- bfloat16 holds whole numbers up to 256 exactly
                            if not moves(case[1], case[2], from, place, to, target) then
                                wrong.add("%s on %s -> %s on %s", from, tostring(place.value), to, tostring(target.value))
                            end
                        end
                    end
                end
            end
            wrong.check(total)
        end)
    end

    it("moves what goes past the caches", function()
        local shape = {1501, 1601}
        for _, to in ipairs {{"P", "B"}, {"P", "S(0)"}, {"P", "S(1)"}, {"S(0)", "B"}, {"S(1)", "B"}, {"S(0)", "S(1)"}} do
            assert.is_true(moves(shape, "float64", to[1], place, to[2], place), to[1] .. " -> " .. to[2])
        end
    end)

    it("moves through a strided part and back", function()
        local x = flow.randn(300, 200, {placement = place.value, sbp = "S(0)"})
        local y = x:t():to_global {sbp = "S(0)"}:t():to_global {sbp = "S(0)"}
        assert.is_true(x:to_local():eq(y:to_local()):all():item())
    end)
end)

describe("all of boxing (FLOW_TEST_ALL=1)", function()
    if not ranks.all then return pending "takes half an hour on 2 ranks, hours on 4: RANKS_LIMIT=100000" end
    for _, from in ipairs(places) do
        for _, to in ipairs(places) do
            for s, shape in ipairs(shapes) do
                it(("%s -> %s of %s"):format(tostring(from.value), tostring(to.value), ranks.shape_text(shape)), function()
                    local cases = {}
                    local dtypes = {"float32", "int8", "int64", "bfloat16"}
                    for _, from_sbp in ipairs(ranks.nd_sbps(from, #shape)) do
                        for _, to_sbp in ipairs(ranks.nd_sbps(to, #shape)) do
                            cases[#cases + 1] = {from = from, to = to, from_sbp = from_sbp, to_sbp = to_sbp, shape = shape,
                                dtype = dtypes[#cases % #dtypes + 1], seed = #cases * 31 + s, strided = #cases % 5 == 0}
                        end
                        if #cases > 4000 then
                            check(cases)
                            cases = {}
                        end
                    end
                    check(cases)
                end)
            end
        end
    end
end)
