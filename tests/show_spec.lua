-- flow.show: the holders of elements, in a dry world of four ranks (and of 256).
local flow = require "flow"

-- The output of flow.show on a terminal of that width in that locale.
local function shown(x, width, locale)
    local lines, real, getenv, terminal = {}, print, os.getenv, flow._io.terminal_width
    _G.print = function(text) lines[#lines + 1] = text end
    rawset(os, "getenv", function(name) return name == "LC_ALL" and (locale or "C.UTF-8") or getenv(name) end)
    flow._io.terminal_width = function() return width end
    local ok, message = pcall(flow.show, x)
    _G.print, flow._io.terminal_width = real, terminal
    rawset(os, "getenv", getenv)
    assert(ok, message)
    return table.concat(lines, "\n")
end

-- A global tensor whose values do not matter, partial ones too.
local function tensor(shape, ranks, sbp)
    local p = flow.placement("cpu", ranks)
    local whole = {}
    for i = 1, #p.hierarchy do whole[i] = "B" end
    return flow.zeros(shape, {placement = p, sbp = whole}):to_global{sbp = sbp}
end

local function line_of(count)
    local ranks = {}
    for i = 1, count do ranks[i] = i - 1 end
    return ranks
end

local function grid_of(rows, columns)
    local grid = {}
    for i = 1, rows do
        grid[i] = {}
        for j = 1, columns do grid[i][j] = (i - 1) * columns + j - 1 end
    end
    return grid
end

local function body(text) return text:gsub("^[^\n]*\n", "") end

local copies, sum = "side by side: each of these ranks holds a copy", "+: the value is the sum of what these ranks hold"
local greatest = "max: the value is the greatest of what these ranks hold"

-- {shape, ranks, sbp, lines below the title, each without its indent of four}
local pictures = {
    {{8, 6}, {{0, 1}, {2, 3}}, {"S(0)", "S(1)"}, {
        "       axis 1",
        "axis 0   0:3      3:6",
        "       ┌────────┬────────┐",
        "0:4    │ rank 0 │ rank 1 │",
        "       ├────────┼────────┤",
        "4:8    │ rank 2 │ rank 3 │",
        "       └────────┴────────┘",
        "at most 12 elements, 48 bytes on a rank"}},
    {{8, 6}, {{0, 1}, {2, 3}}, {"B", "S(0)"}, {
        "axis 0",
        "       ┌───────────┐",
        "0:4    │ ranks 0 2 │",
        "       ├───────────┤",
        "4:8    │ ranks 1 3 │",
        "       └───────────┘",
        copies, "at most 24 elements, 96 bytes on a rank"}},
    {{8, 7}, {0, 1, 2, 3}, "S(1)", {
        "axis 1",
        "  0:2      2:4      4:6      6:7",
        "┌────────┬────────┬────────┬────────┐",
        "│ rank 0 │ rank 1 │ rank 2 │ rank 3 │",
        "└────────┴────────┴────────┴────────┘",
        "at most 16 elements, 64 bytes on a rank"}},
    {{10}, {2, 0}, "S(0)", {
        "axis 0",
        "  0:5      5:10",
        "┌────────┬────────┐",
        "│ rank 2 │ rank 0 │",
        "└────────┴────────┘",
        "ranks 1 3 are not in the placement", "at most 5 elements, 20 bytes on a rank"}},
    {{4, 5, 6}, {{0, 1}, {2, 3}}, {"S(2)", "S(0)"}, {
        "       axis 2",
        "axis 0   0:3      3:6",
        "       ┌────────┬────────┐",
        "0:2    │ rank 0 │ rank 2 │",
        "       ├────────┼────────┤",
        "2:4    │ rank 1 │ rank 3 │",
        "       └────────┴────────┘",
        "at most 30 elements, 120 bytes on a rank"}},
    {{8, 6}, {{0, 1}, {2, 3}}, {"S(0)", "S(0)"}, {
        "axis 0",
        "       ┌────────┐",
        "0:2    │ rank 0 │",
        "       ├────────┤",
        "2:4    │ rank 1 │",
        "       ├────────┤",
        "4:6    │ rank 2 │",
        "       ├────────┤",
        "6:8    │ rank 3 │",
        "       └────────┘",
        "at most 12 elements, 48 bytes on a rank"}},
    {{8, 6}, {{0, 1}, {2, 3}}, {"P", "S(1)"}, {
        "axis 1",
        "  0:3         3:6",
        "┌───────────┬───────────┐",
        "│ ranks 0+2 │ ranks 1+3 │",
        "└───────────┴───────────┘",
        sum, "at most 24 elements, 96 bytes on a rank"}},
    {{8}, {{0, 1}, {2, 3}}, {"P", "B"}, {
        "┌───────────────┐", "│ ranks 0+2 1+3 │", "└───────────────┘", sum, copies, "at most 8 elements, 32 bytes on a rank"}},
    {{8}, {{0, 1}, {2, 3}}, {"P(max)", "P"}, {
        "┌────────────────────┐", "│ ranks max(0+1,2+3) │", "└────────────────────┘", greatest, sum,
        "at most 8 elements, 32 bytes on a rank"}},
    {{1, 3}, {{0, 1}, {2, 3}}, {"S(0)", "S(1)"}, {
        "       axis 1",
        "axis 0   0:2      2:3",
        "       ┌────────┬────────┐",
        "0:1    │ rank 0 │ rank 1 │",
        "       └────────┴────────┘",
        "ranks 2 3 have an empty part: there are more ranks than elements to split",
        "at most 2 elements, 8 bytes on a rank"}},
    {{}, {3}, "B", {
        "┌────────┐", "│ rank 3 │", "└────────┘", "ranks 0..2 are not in the placement", "at most 1 element, 4 bytes on a rank"}},
    {{0, 6}, {0, 1, 2, 3}, "S(0)", {"at most 0 elements, 0 bytes on a rank"}},
    {{2, 2, 2}, {{{0}, {1}}, {{2}, {3}}}, {"S(0)", "S(1)", "S(2)"}, {
        "       axis 1",
        "axis 0   0:1      1:2",
        "       ┌────────┬────────┐",
        "0:1    │ rank 0 │ rank 1 │",
        "       ├────────┼────────┤",
        "1:2    │ rank 2 │ rank 3 │",
        "       └────────┴────────┘",
        "at most 2 elements, 8 bytes on a rank"}},
}

describe("show", function()
    setup(function() flow._testing.set_world(4, 1) end)
    teardown(function() flow._testing.set_world(1, 0) end)

    -- Pictures are printed by rank 0 alone, and any rank could draw them.
    local function in_world(size, f)
        flow._testing.set_world(size, 0)
        local ok, message = pcall(f)
        flow._testing.set_world(4, 1)
        assert(ok, message)
    end

    it("draws the parts and their ranks", function()
        in_world(4, function()
            for _, case in ipairs(pictures) do
                local x = tensor(case[1], case[2], case[3])
                local title = ("float32[%s] on %s as %s\n    "):format(table.concat(case[1], ", "), tostring(x.placement), tostring(x.sbp))
                assert.are.equal(title .. table.concat(case[4], "\n    "), shown(x))
            end
        end)
    end)

    it("prints on rank 0 alone", function()
        assert.are.equal("", shown(tensor({4}, {0, 1}, "S(0)")))
    end)

    it("draws with letters where the locale has no others", function()
        in_world(4, function()
            local x = tensor({2, 2}, {{0, 1}, {2, 3}}, {"S(0)", "S(1)"})
            local text = "           axis 1\n    axis 0   0:1      1:2\n           +--------+--------+\n    0:1    | rank 0 | rank 1 |\n" ..
                "           +--------+--------+\n    1:2    | rank 2 | rank 3 |\n           +--------+--------+\n" ..
                "    at most 1 element, 4 bytes on a rank"
            assert.are.equal(text, (body(shown(x, nil, "C"))))
            assert.are.equal(text, (body(shown(x, nil, "en_US.ISO-8859-1"))))
            assert.truthy(shown(x, nil, "de_DE.utf8"):find("┌", 1, true))
        end)
    end)

    it("makes it narrower on a narrow terminal", function()
        in_world(4, function()
            local x = tensor({8, 6}, {{0, 1}, {2, 3}}, {"S(0)", "S(1)"})
            assert.truthy(shown(x, 31):find("│ rank 0 │ rank 1 │", 1, true))
            assert.truthy(shown(x, 29):find("    0:4    │ 0   │ 1   │\n", 1, true))
            assert.are.equal("    held by   axis 0   axis 1\n    rank 0    0:4      0:3\n    rank 1    0:4      3:6\n" ..
                "    rank 2    4:8      0:3\n    rank 3    4:8      3:6\n    at most 12 elements, 48 bytes on a rank", (body(shown(x, 20))))
        end)
    end)

    it("lists what has more than two split axes", function()
        in_world(8, function()
            local x = tensor({4, 4, 5}, {{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}, {"S(0)", "S(1)", "S(2)"})
            assert.truthy(shown(x):find("    held by   axis 0   axis 1   axis 2\n    rank 0    0:2      0:2      0:3\n" ..
                "    rank 1    0:2      0:2      3:5\n", 1, true))
        end)
    end)

    it("summarises many ranks", function()
        in_world(256, function()
            local function has(x, ...)
                local text = shown(x)
                for _, part in ipairs{...} do assert.truthy(text:find(part, 1, true), text .. "\nlacks " .. part) end
                local _, count = text:gsub("\n", "")
                assert.is_true(count < 32)
                for row in text:gmatch("\n([^\n]+)") do assert.is_true(utf8.len(row) <= 80, row) end
            end
            local ranks = line_of(256)
            has(tensor({512, 2}, ranks, "S(0)"), "0:2     │ rank 0   │", "16:18   │ rank 8   │", "...     │ ...", "510:512 │ rank 255 │")
            has(tensor({512}, ranks, "S(0)"), "rank 13    26:28", "...        ...", "rank 255   510:512")
            has(tensor({5}, ranks, "B"), "│ ranks 0..255 │")
            has(tensor({5}, ranks, "P"), "│ ranks 0+1+...+255 │")
            has(tensor({32, 32}, grid_of(16, 16), {"S(0)", "S(1)"}), "│ 0   │ 1   │", "│ ... │ 15    │", "│ ... │ 255   │")
            has(tensor({5}, grid_of(16, 16), {"B", "P"}), "0+1+...+15 16+17+...+31 ")
        end)
    end)

    it("says what a local tensor weighs, and takes nothing else", function()
        in_world(4, function()
            assert.are.equal("int64[2] on cpu\n    local, every rank has its own: 2 elements, 16 bytes", shown(flow.arange(2)))
        end)
        in_world(1, function() assert.are.equal("float64[] on cpu\n    1 element, 8 bytes", shown(flow.tensor(1, {dtype = "float64"}))) end)
        assert.has_error(function() flow.show(5) end, "show: x must be a tensor or a module, got number")
    end)

    it("lists a model's parameters, where they are and what they weigh", function()
        in_world(4, function()
            local nn, p = flow.nn, flow.placement("cpu", {0, 1})
            local net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))
            assert.are.equal("Sequential: 4 parameters, 61 elements, 244 bytes in all, on cpu\n" ..
                "    name       shape    dtype     sbp     on a rank\n" ..
                "    1.weight   [6, 8]   float32   local   192 bytes\n" ..
                "    1.bias     [6]      float32   local    24 bytes\n" ..
                "    3.weight   [1, 6]   float32   local    24 bytes\n" ..
                "    3.bias     [1]      float32   local     4 bytes\n" ..
                "    ranks 0..3: 244 bytes each", shown(net))
            net:to_global{placement = p, sbp = "S(0)"}
            net[1].bias.requires_grad = false
            assert.are.equal('Sequential: 4 parameters, 61 elements, 244 bytes in all, on placement("cpu", {0, 1})\n' ..
                "    name              shape    dtype     sbp    on a rank\n" ..
                "    1.weight          [6, 8]   float32   S(0)    96 bytes\n" ..
                "    1.bias (frozen)   [6]      float32   S(0)    12 bytes\n" ..
                "    3.weight          [1, 6]   float32   S(0)    24 bytes\n" ..
                "    3.bias            [1]      float32   S(0)     4 bytes\n" ..
                "    rank 0: 136 bytes; rank 1: 108 bytes; ranks 2 3: nothing", shown(net))
        end)
    end)

    it("tells placements of a model apart, and counts a shared parameter once", function()
        in_world(4, function()
            local nn = flow.nn
            local net = nn.Sequential(nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false}))
            net[1]:to_global{placement = flow.placement("cpu", {0, 1}), sbp = "B"}
            net[2]:to_global{placement = flow.placement("cpu", {{2}, {3}}), sbp = {"S(1)", "B"}}
            net[3].weight = net[1].weight
            net[1]:register_buffer("count", flow.zeros(3, {dtype = "int64", placement = flow.placement("cpu", {0, 1}), sbp = "B"}))
            assert.are.equal("Sequential: 2 parameters, 8 elements, 56 bytes in all\n" ..
                "    name               shape    dtype     placement                      sbp         on a rank\n" ..
                '    1.weight           [2, 2]   float32   placement("cpu", {0, 1})       B            16 bytes\n' ..
                '    2.weight           [2, 2]   float32   placement("cpu", {{2}, {3}})   (S(1), B)     8 bytes\n' ..
                '    1.count (buffer)   [3]      int64     placement("cpu", {0, 1})       B            24 bytes\n' ..
                "    ranks 0 1: 40 bytes each; ranks 2 3: 8 bytes each", shown(net))
        end)
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
