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

    for _, gradients in ipairs {false, true} do
        it("but for the signs of zeros, which sums of parts lose" .. (gradients and ", with gradients" or ""), function()
            local b, p = {}, {}
            local program = programs.draw(seed, 1)
            for k = 1, #program.list[1].hierarchy do b[k], p[k] = "B", "P" end
            local input = {shape = {3}, dtype = "float64", kind = "normal", seed = 1, place = 1, sbp = b, grad = gradients or nil}
            program.inputs, program.gradients, program.lines = {{name = "t1", spec = input}}, gradients, {}
            for i, text in ipairs {"flow.mul(t1, 0)", "flow.neg(flow.abs(t2))", ('move(t3, 1, {"%s"})'):format(table.concat(p, '", "')), "flow.sub(t4, 1)",
                "flow.atan2(t4, t5)", "flow.add(t6, 1)"} do
                program.lines[i] = {text = text, op = text:match "%.(%w+)" or "to_global", results = {"t" .. i + 1}, place = 1, seed = i}
            end
            assert.is_nil(programs.run(program))
        end)
    end

    it("most ops are called", function()
        local reached = 0
        for _ in pairs(programs.coverage.ops) do reached = reached + 1 end
        assert.is_true(reached > #programs.ops // 3, ("%d of %d"):format(reached, #programs.ops))
    end)
end)
