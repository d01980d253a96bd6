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

-- Sums are rounded, so their order counts: along the last hierarchy axis first, and there in the order of the placement.
describe("the parts of a sum are added up in one order,", function()
    local shape, dtypes = {5, 3}, {"float64", "float32", "bfloat16"}
    local parts = {}

    local function window(t, place, nd_sbp, position, from)
        local coords = ranks.coords(place, position)
        for k = from or 1, #nd_sbp do
            local axis = math.tointeger(nd_sbp[k]:match "%d+")
            if axis then
                local start, size = ranks.split(t:size(axis), place.hierarchy[k], coords[k])
                t = t:narrow(axis, start, size)
            end
        end
        return t
    end

    -- The contribution of the rank at a position: of all of the tensor, numbers of its own along every partial axis.
    local function part(place, nd_sbp, position, dtype)
        local coords, id = ranks.coords(place, position), 0
        for k, sbp in ipairs(nd_sbp) do id = id * 8 + (sbp == "P" and coords[k] or 0) end
        local key = dtype .. id
        if not parts[key] then
            flow.manual_seed(id + 1)
            parts[key] = (flow.randn(shape, {dtype = "float64"}) * 3):exp():to(dtype)
        end
        return parts[key]
    end

    local function sum(place, nd_sbp, dtype, k, position)
        if k > #nd_sbp then return part(place, nd_sbp, position, dtype) end
        local stride, total, n = 1, nil, nd_sbp[k] == "P" and place.hierarchy[k] or 1
        for later = k + 1, #nd_sbp do stride = stride * place.hierarchy[later] end
        for c = 0, n - 1 do -- halves are added up in single precision and rounded once along an axis
            local term = sum(place, nd_sbp, dtype, k + 1, position + c * stride)
            if dtype == "bfloat16" then term = term:to "float32" end
            total = total and total + term or term
        end
        return total:to(dtype)
    end

    local function sums(place)
        local list = {}
        for _, nd_sbp in ipairs(ranks.nd_sbps(place, #shape)) do
            local text = table.concat(nd_sbp, " ")
            if text:find "P" and not text:find "P%(" then list[#list + 1] = nd_sbp end
        end
        return list
    end

    local function wholes(place)
        local list = {}
        for _, nd_sbp in ipairs(ranks.nd_sbps(place, #shape)) do
            if not ranks.has_partial(nd_sbp) then list[#list + 1] = nd_sbp end
        end
        return list
    end

    local function bits(t) return ranks.values(t) end

    for i, place in ipairs(places) do
        it("on " .. tostring(place.value), function()
            local random, wrong, total = ranks.random(500 + i), ranks.complaints(), 0
            for _, nd_sbp in ipairs(sums(place)) do
                local dtype = random.pick(dtypes)
                local position = place.position[ranks.rank]
                local mine = position and window(part(place, nd_sbp, position, dtype), place, nd_sbp, position) or flow.zeros(0, {dtype = dtype})
                local x = flow._testing.from_part(mine, shape, place.value, nd_sbp)
                local want = sum(place, nd_sbp, dtype, 1, 0)
                local function compare(got, expected, what)
                    total = total + 1
                    if ranks.same_numbers(bits(expected), bits(got)) then return end
                    wrong.add("%s as (%s) on %s, %s: rank %d has %s, expected %s", dtype, table.concat(nd_sbp, ", "), tostring(place.value), what,
                        ranks.rank, ranks.list_text(bits(got)), ranks.list_text(bits(expected)))
                end
                for trial = 1, 6 do
                    local to = trial <= 3 and place or random.pick(places)
                    local to_sbp = random.pick(wholes(to))
                    local at = to.position[ranks.rank]
                    local y = x:to_global {placement = to.value, sbp = to_sbp}
                    if at then compare(y, window(want, to, to_sbp, at), ("to (%s) on %s"):format(table.concat(to_sbp, ", "), tostring(to.value))) end
                end
                compare(flow.tensor(x:totable(), {dtype = "float64"}), want, "totable")
            end
            wrong.check(total)
        end)
    end

    it("saved, too", function()
        local folder = os.getenv "RANKS_FOLDER"
        for i, place in ipairs(places) do
            local list = sums(place)
            local nd_sbp = list[#list]
            local position = place.position[ranks.rank]
            local mine = position and window(part(place, nd_sbp, position, "float32"), place, nd_sbp, position) or flow.zeros(0)
            local path = ("%s/sum.%d"):format(folder, i)
            flow.save(path, {x = flow._testing.from_part(mine, shape, place.value, nd_sbp)})
            assert.are.same(bits(sum(place, nd_sbp, "float32", 1, 0)), bits(flow.load(path).x), tostring(place.value))
        end
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
