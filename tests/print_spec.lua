-- The text of tensors.
local flow = require "flow"
local process = require "tests.process"
local message = require("tests.support").message_of

describe("a tensor prints", function()
    local inf, nan = math.huge, 0 / 0
    -- {data, options, text}
    local cases = {
        {3, {}, "3  int64[] on cpu"},
        {2.5, {}, "2.5000  float32[] on cpu"},
        {2.0, {}, "2.0  float32[] on cpu"},
        {true, {}, "true  bool[] on cpu"},
        {{}, {}, "[]  float32[0] on cpu"},
        {{{}, {}}, {}, "[]  float32[2, 0] on cpu"},
        {{1, 2, 3}, {}, "[1, 2, 3]  int64[3] on cpu"},
        {{1, -20, 300}, {}, "[  1, -20, 300]  int64[3] on cpu"},
        {{1, 2}, {dtype = "float64"}, "[1.0, 2.0]  float64[2] on cpu"},
        {{true, false}, {}, "[ true, false]  bool[2] on cpu"},
        {{0.5, -1.25}, {}, "[ 0.5000, -1.2500]  float32[2] on cpu"},
        {{nan, inf, -inf}, {}, "[ nan,  inf, -inf]  float32[3] on cpu"},
        {{nan, 1.5}, {}, "[   nan, 1.5000]  float32[2] on cpu"},
        {{1e10, 1}, {}, "[1.0000e+10, 1.0000e+00]  float32[2] on cpu"},
        {{1e-7, 0}, {}, "[1.0000e-07, 0.0000e+00]  float32[2] on cpu"},
        {{255, 0}, {dtype = "uint8"}, "[255,   0]  uint8[2] on cpu"},
        {{1.5}, {dtype = "bfloat16"}, "[1.5000]  bfloat16[1] on cpu"},
        {{1.5}, {dtype = "float16"}, "[1.5000]  float16[1] on cpu"},
        {{{1, 2}, {3, 4}}, {}, "[[1, 2],\n [3, 4]]\nint64[2, 2] on cpu"},
        {{{{1}, {2}}, {{3}, {4}}}, {}, "[[[1],\n  [2]],\n\n [[3],\n  [4]]]\nint64[2, 2, 1] on cpu"},
        {{1.5}, {requires_grad = true}, "[1.5000]  float32[1] on cpu, requires_grad"},
    }
    it("with aligned values, dtype, shape and device", function()
        for _, case in ipairs(cases) do assert.are.equal(case[3], tostring(flow.tensor(case[1], case[2]))) end
    end)

    it("with what its gradient goes through", function()
        local x = flow.tensor({1.5}, {requires_grad = true})
        assert.are.equal("[3.0]  float32[1] on cpu, gradient through mul", tostring(x * 2))
    end)

    it("at once, when a long shape holds nothing", function()
        assert.are.equal("[]  float32[10000000000, 0] on cpu", tostring(flow.zeros(10000000000, 0)))
    end)

    it("summarised beyond 1000 elements", function()
        assert.are.equal("[   0,    1,    2, ..., 1998, 1999, 2000]  int64[2001] on cpu", tostring(flow.arange(2001)))
        local text = tostring(flow.zeros(100, 100))
        assert.are.equal("[[0.0, 0.0, 0.0, ..., 0.0, 0.0, 0.0],\n", text:match("^[^\n]*\n"))
        local _, lines = text:gsub("\n", "")
        assert.are.equal(7, lines)
        assert.truthy(text:find(",\n ...,\n [", 1, true))
        assert.are.equal(1000, select(2, tostring(flow.arange(1000)):gsub("%d+[,%]]", "")) - 1)
    end)

    it("wrapped at the width of a line", function()
        for line in tostring(flow.arange(100)):gmatch("[^\n]+") do
            assert.is_true(#line <= 80 or line:find("int64") ~= nil)
        end
        assert.truthy(tostring(flow.arange(100)):find(",\n ", 1, true))
    end)

    it("as it is, when it is a view", function()
        local x = flow.arange(6):view(2, 3)
        assert.are.equal("[[0, 3],\n [1, 4],\n [2, 5]]\nint64[3, 2] on cpu", tostring(x:t()))
        assert.are.equal("[1, 4]  int64[2] on cpu", tostring(x[{{}, 1}]))
    end)

    it("with placement and SBP when it is global", function()
        local x = flow.ones({2, 2}, {placement = flow.placement("cpu", {0}), sbp = "S(0)"})
        assert.are.equal('[[1.0, 1.0],\n [1.0, 1.0]]\nfloat32[2, 2] on placement("cpu", {0}) as S(0)', tostring(x))
    end)

    -- The output of a script as rank 1 of a dry world of four.
    local function printed(script)
        return (process.output(("FLOW_WORLD=4 FLOW_RANK=1 %s -e '%s'"):format(process.flowlua, script)))
    end

    -- {tensor, text}
    local parts = {
        {[[flow.arange(0, 6, 1, {placement = all, sbp = "S(0)"})]],
            '[2, 3]  int64[6] on placement("cpu", {0, 1, 2, 3}) as S(0)\n' ..
            'shown is the part of rank 1: [2:4] (nothing is communicated in a dry world)'},
        {[[flow.ones({2, 4}, {placement = grid, sbp = {"S(0)", "S(1)"}})]],
            '[[1.0, 1.0]]\nfloat32[2, 4] on placement("cpu", {{0, 1}, {2, 3}}) as (S(0), S(1))\n' ..
            'shown is the part of rank 1: [0:1, 2:4] (nothing is communicated in a dry world)'},
        {[[flow.ones(1, {placement = flow.placement("cpu", {0}), sbp = "B"})]],
            '[]  float32[1] on placement("cpu", {0}) as B\nrank 1 holds no part of it (nothing is communicated in a dry world)'},
        {[[flow.ones(1, {placement = all, sbp = "S(0)"})]],
            '[]  float32[1] on placement("cpu", {0, 1, 2, 3}) as S(0)\n' ..
            'shown is the part of rank 1: [1:1] (nothing is communicated in a dry world)'},
        {[[flow.ones(2, {placement = all, sbp = "B"}):to_global{sbp = "P"}]],
            '[0.0, 0.0]  float32[2] on placement("cpu", {0, 1, 2, 3}) as P\n' ..
            'shown is the part of rank 1, and the value combines what every rank holds (nothing is communicated in a dry world)'},
        {[[flow.ones(2, {placement = all, sbp = "B"})]], '[1.0, 1.0]  float32[2] on placement("cpu", {0, 1, 2, 3}) as B'},
        {[[flow.ones(2, {placement = flow.placement("cpu", {1}), sbp = "S(0)"})]],
            '[1.0, 1.0]  float32[2] on placement("cpu", {1}) as S(0)'},
    }
    it("as this rank's part in a dry world", function()
        local script, want = {'all, grid = flow.placement.all("cpu"), flow.placement("cpu", {{0, 1}, {2, 3}})'}, ""
        for i, case in ipairs(parts) do
            script[i + 1] = ("print(%s)"):format(case[1])
            want = want .. case[2] .. "\n"
        end
        assert.are.equal(want, printed(table.concat(script, "\n")))
    end)

    it("as a local one does, when its values are gathered and packed", function()
        local p = flow.placement("cpu", {{0}})
        local function compare(x)
            for _, sbp in ipairs{{"S(0)", "B"}, {"B", "S(-1)"}, {"P(max)", "S(0)"}, {"B", "P(min)"}} do
                local text = tostring(x:to_global{placement = p, sbp = {"B", "B"}}:to_global{sbp = sbp})
                assert.are.equal((tostring(x):gsub(" on cpu$", "")), (text:gsub(" on placement.*$", "")))
            end
        end
        for _, dtype in ipairs{"bool", "uint8", "int64", "float16", "float32", "float64"} do
            compare((flow.arange(2001) % 3):to(dtype))
            compare(flow.arange(5000):view(4, 50, 25):to(dtype):transpose(0, 2))
        end
        compare(flow.full({1001}, -0.0))
        compare(flow.full({2, 1000}, 0 / 0))
    end)

    it("on all ranks as missing, with the reason, when one rank's part is", function()
        if not process.has "mpirun" or not process.exists(process.build .. "/flowlua-mpi.so") then pending("needs mpirun and the transport") return end
        local text = process.run("FLOW_ENGINE=queued FLOW_TIMEOUT=20", [[
            local flow = require "flow"
            local p = flow.placement.all("cpu")
            local index = flow.zeros({600}, {dtype = "int64", placement = p, sbp = "B"})
            index[599] = 99
            local rows = flow.embedding(index:to_global{sbp = "S(0)"}, flow.ones({10, 4}, {placement = p, sbp = "B"}))
            local ok, message = pcall(tostring, rows)
            local fine = tostring(flow.ones({4}, {placement = p, sbp = "S(0)"}))
            io.write(flow.rank(), " ", tostring(ok), " ", message, "; ", fine, "\n")]], "--ranks 2")
        for rank = 0, 1 do
            assert.matches(rank .. " false [^\n]*: rank 1: [^\n]*embedding %([^\n]*:5%): indices%[599%] is 99, but weight has 10 rows " ..
                "%(0 to 9%); %[1.0, 1.0, 1.0, 1.0%]  float32%[4%] on ", text)
        end
    end)

    it("as set_printoptions says", function()
        local function check(x, want, options)
            flow.set_printoptions(options)
            local text = tostring(x)
            flow.set_printoptions {profile = "default"}
            assert.are.equal(want, (text:gsub("%s+%w+%[[%d, ]*%] on cpu$", "")))
        end
        local x = flow.tensor({1 / 3, -20.5, 300.0}, {dtype = "float64"})
        check(x, "[  0.3333, -20.5000, 300.0000]", {})
        check(x, "[  0.33, -20.50, 300.00]", {precision = 2})
        check(x, "[  0, -20, 300]", {precision = 0})
        check(x, "[  0.3333333333333333, -20.5000000000000000, 300.0000000000000000]", {precision = 16})
        check(x, "[ 3.3333e-01, -2.0500e+01,  3.0000e+02]", {sci_mode = true})
        check(flow.ones(2), "[1.00e+00, 1.00e+00]", {sci_mode = true, profile = "short"})
        check(flow.tensor {1e-9, 2}, "[0.0000, 2.0000]", {sci_mode = false})
        check(flow.tensor({1e300}, {dtype = "float64"}), ("[%.1f]"):format(1e300), {sci_mode = false})
        check(flow.arange(12), "[ 0, ..., 11]", {threshold = 11, edgeitems = 1})
        check(flow.arange(12), "[ 0,  1, ..., 10, 11]", {profile = "short", threshold = 11})
        check(flow.arange(12), "[ 0,  1,  2,  3,\n  4,  5,  6,  7,\n  8,  9, 10, 11]", {linewidth = 18})
        flow.set_printoptions {profile = "full"}
        assert.is_nil(tostring(flow.zeros(2000)):find("...", 1, true))
        assert.are.equal(math.huge, flow.get_printoptions().threshold)
        flow.set_printoptions {profile = "default"}
        assert.are.same({precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80}, flow.get_printoptions())
        flow.set_printoptions {precision = 6, sci_mode = false}
        assert.are.same({precision = 6, threshold = 1000, edgeitems = 3, linewidth = 80, sci_mode = false}, flow.get_printoptions())
        flow.set_printoptions {linewidth = 100}
        assert.are.same({precision = 6, threshold = 1000, edgeitems = 3, linewidth = 100}, flow.get_printoptions())
        flow.set_printoptions {profile = "default"}
        for want, options in pairs {
            ["set_printoptions: precision must be a whole number in [0, 64], got 65"] = {precision = 65},
            ["set_printoptions: edgeitems must be a whole number in [1, 1000000000], got 0"] = {edgeitems = 0},
            ["set_printoptions: profile must be one of default|short|full, got 'ful'; did you mean 'full'?"] = {profile = "ful"},
        } do assert.are.equal(want, message(function() flow.set_printoptions(options) end)) end
    end)

    it("its shape as a list", function()
        local x = flow.zeros(2, 3)
        assert.are.equal("[2, 3]", tostring(x.shape))
        assert.are.equal("[]", tostring(flow.zeros({}).shape))
        assert.are.same({2, 3}, x.shape)
        assert.is_true(x.shape == flow.ones(2, 3).shape)
    end)
end)
