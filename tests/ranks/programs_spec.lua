-- programs_spec.lua -- a few of the random programs of fuzz_programs.lua: on local and on global tensors they give the same.
-- FLOW_TEST_SEED=n chooses others, FLOW_TEST_ALL=1 runs many.
local programs = require "tests.programs"
local ranks = require "tests.ranks.support"

local seed = math.tointeger(tonumber(os.getenv "FLOW_TEST_SEED" or "")) or 11
local together, count = 25, ranks.all and 5000 or 150

describe("random programs on global tensors give what they give on local ones:", function()
    for first = 1, count, together do
        it(("seed %d, %d to %d"):format(seed, first, first + together - 1), function()
            for number = first, first + together - 1 do
                local finding, text = programs.check(seed, number)
                if finding then error(("program %d:\n%s\n%s"):format(number, text, tostring(finding)), 0) end
            end
        end)
    end

    it("and as captured functions the bits of the functions themselves", function()
        for number = 1, ranks.all and 1000 or 60 do
            local finding, text = programs.check_captured(seed, number)
            if finding then error(("program %d:\n%s\n%s"):format(number, text, tostring(finding)), 0) end
        end
    end)

    it("most ops are called", function()
        local reached = 0
        for _ in pairs(programs.coverage.ops) do reached = reached + 1 end
        assert.is_true(reached > #programs.ops // 2, ("%d of %d"):format(reached, #programs.ops))
    end)
end)
