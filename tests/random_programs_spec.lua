-- random_programs_spec.lua -- a few of the random programs of fuzz_programs.lua on one rank; tests/ranks/programs_spec.lua
-- runs them on several.
local programs = require "tests.programs"
local support = require "tests.support"

describe("random programs on global tensors of one rank give what they give on local ones:", function()
    for first = 1, 600, 100 do
        it(("%d to %d"):format(first, first + 99), function()
            for number = first, first + 99 do
                local finding, text = programs.check(11, number, true)
                if finding then error(("program %d:\n%s\n%s"):format(number, text, tostring(finding)), 0) end
            end
        end)
    end

    it("and as captured functions the bits of the functions themselves", function()
        for number = 1, 100 do
            local finding, text = programs.check_captured(11, number)
            if finding then error(("program %d:\n%s\n%s"):format(number, text, tostring(finding)), 0) end
        end
        assert.is_true(programs.captured.captured > 150)
    end)

    it("most ops are called", function()
        local missing = {}
        for _, op in ipairs(programs.ops) do
            if not op.host_only and not support.solved[op.name] and not programs.coverage.ops[op.name] then missing[#missing + 1] = op.name end
        end
        assert.is_true(#missing < #programs.ops * 0.3, table.concat(missing, " "))
    end)
end)
