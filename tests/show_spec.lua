-- flow.show: who holds what, in a dry world of four ranks.
local flow = require "flow"

local function shown(x)
    local lines, real = {}, print
    _G.print = function(text) lines[#lines + 1] = text end
    local ok, message = pcall(flow.show, x)
    _G.print = real
    assert(ok, message)
    return table.concat(lines, "\n")
end

describe("show", function()
    setup(function() flow._testing.set_world(4, 0) end)
    teardown(function() flow._testing.set_world(1, 0) end)

    -- {shape, ranks, sbp, lines below the title}
    local cases = {
        {{8, 6}, {0, 1, 2, 3}, "S(0)", "axis 0\n0:2      rank 0\n2:4      rank 1\n4:6      rank 2\n6:8      rank 3"},
        {{8, 6}, {0, 1}, "B", "everything   ranks 0, 1"},
        {{8, 6}, {2, 1}, "P", "everything   ranks 2, 1\nP: the value is the sum of the parts"},
        {{1, 6}, {0, 1}, "S(0)", "axis 0\n0:1       rank 0\nnothing   rank 1"},
        {{0, 6}, {0, 1}, "S(0)", "everything   ranks 0, 1"},
        {{}, {3}, "B", "everything   rank 3"},
        {{8, 6}, {{0, 1}, {2, 3}}, {"S(0)", "B"}, "axis 0\n0:4      ranks 0, 1\n4:8      ranks 2, 3"},
        {{8, 6}, {{0, 1}, {2, 3}}, {"S(0)", "S(1)"},
            "axis 0 | axis 1   0:3      3:6\n0:4               rank 0   rank 1\n4:8               rank 2   rank 3"},
    }
    it("draws the parts and their ranks", function()
        for _, case in ipairs(cases) do
            local x = flow.zeros(case[1], {placement = flow.placement("cpu", case[2]), sbp = case[3]})
            local title = ("float32[%s] on %s as %s\n    "):format(table.concat(case[1], ", "), tostring(x.placement), tostring(x.sbp))
            assert.are.equal(title .. case[4]:gsub("\n", "\n    "), shown(x))
        end
    end)

    it("shows a local tensor, and takes nothing else", function()
        assert.are.equal("int64[2] on cpu\n    everything   rank 0", shown(flow.arange(2)))
        assert.has_error(function() flow.show(5) end, "show: x must be a tensor, got number")
    end)
end)

describe("placements and sbps", function()
    it("say what a misspelt field may be", function()
        local ok, message = pcall(function() return flow.sbp.splt end)
        assert.is_false(ok)
        assert.truthy(message:find("sbp has no 'splt'; did you mean 'split'?", 1, true))
        ok, message = pcall(function() return flow.placement.al end)
        assert.is_false(ok)
        assert.truthy(message:find("placement has no 'al'; did you mean 'all'?", 1, true))
    end)
end)
