-- boxing_cases.lua -- cases of to_global for the multi-rank specs, and what each rank must hold afterwards.
local assert = require "luassert"
local ranks = require "tests.ranks.support"

local M = {}

M.shapes = {{8, 6}, {5, 3}, {1, 7}, {7}, {2}, {}, {3, 2, 5}, {4, 4, 4}, {0, 4}, {3, 0}, {1, 1}, {13, 9}}

local function case_text(case)
    return ("%s%s%s on %s as (%s) -> %s as (%s), seed %d"):format(case.dtype, ranks.shape_text(case.shape),
        case.strided and " strided" or "", tostring(case.from.value), table.concat(case.from_sbp, ", "), tostring(case.to.value),
        table.concat(case.to_sbp, ", "), case.seed)
end

-- Boxes every case, then compares: S and B with what this rank must hold, P with all ranks' parts put together.
function M.check(cases)
    local wrong = ranks.complaints()
    local wholes, held = {}, {}
    for i, case in ipairs(cases) do
        wholes[i] = ranks.whole(case.shape, case.dtype, case.seed)
        local x = ranks.global(wholes[i], case.from, case.from_sbp, case.strided)
        local ok, y = pcall(x.to_global, x, {placement = case.to.value, sbp = case.to_sbp})
        if not ok then error(case_text(case) .. ": " .. y, 0) end
        assert.are.same(case.shape, y.shape)
        assert.are.equal(case.dtype, y.dtype)
        held[i] = ranks.values(y)
        local position = case.to.position[ranks.rank]
        local want = position and ranks.part(wholes[i], case.to, case.to_sbp, position) or {size = {}, values = {}}
        if position then assert.are.same(want.size, y:to_local().shape, case_text(case)) end
        if #held[i] ~= #want.values or (not ranks.has_partial(case.to_sbp) and not ranks.same_numbers(want.values, held[i])) then
            wrong.add("%s: rank %d has %s, expected %s", case_text(case), ranks.rank, ranks.list_text(held[i]), ranks.list_text(want.values))
        end
    end
    local shared = ranks.share(held)
    for i, case in ipairs(cases) do
        if ranks.has_partial(case.to_sbp) and i % ranks.world == ranks.rank then
            local parts = {}
            for p, rank in ipairs(case.to.order) do parts[p] = shared[rank + 1][i] end
            local values, trouble = ranks.join(wholes[i], case.to, case.to_sbp, parts)
            if trouble or not ranks.same_numbers(wholes[i].values, values) then
                wrong.add("%s: %s, expected %s", case_text(case), trouble or "the parts give " .. ranks.list_text(values),
                    ranks.list_text(wholes[i].values))
            end
        end
    end
    wrong.check(#cases)
end

-- Cases drawn at random: every choice is equally likely, half of them stay on one placement.
function M.sample(count, seed, choice)
    local random = ranks.random(seed)
    local cases = {}
    for i = 1, count do
        local from = random.pick(choice.from)
        local to = choice.same and from or random.pick(choice.to)
        local shape, dtype = random.pick(M.shapes), random.pick(choice.dtypes or ranks.dtypes)
        cases[i] = {
            from = from, to = to, shape = shape, dtype = dtype, seed = seed * 100000 + i, strided = random.below(4) == 0,
            from_sbp = random.pick(ranks.nd_sbps(from, #shape, dtype)), to_sbp = random.pick(ranks.nd_sbps(to, #shape, dtype)),
        }
    end
    return cases
end

return M
