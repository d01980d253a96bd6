-- How tensors are written.
local flow = require "flow"

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

    it("its part alone in a larger world", function()
        local command = [[FLOW_WORLD=2 FLOW_RANK=1 %s -e '
            local p = flow.placement("cpu", {0, 1})
            print(flow.arange(0, 5, 1, {placement = p, sbp = "S(0)"}))
            print(flow.ones(1, {placement = flow.placement("cpu", {0}), sbp = "B"}))']]
        local pipe = io.popen(command:format(os.getenv("FLOWLUA") or "build/flowlua"))
        local text = pipe:read("a")
        pipe:close()
        assert.are.equal('[3, 4]  int64[5] on placement("cpu", {0, 1}) as S(0)\nshown is the part of rank 1: [3:5]\n' ..
            '[]  float32[1] on placement("cpu", {0}) as B\nrank 1 holds no part of it\n', text)
    end)

    it("its shape as a list", function()
        local x = flow.zeros(2, 3)
        assert.are.equal("[2, 3]", tostring(x.shape))
        assert.are.equal("[]", tostring(flow.zeros({}).shape))
        assert.are.same({2, 3}, x.shape)
        assert.is_true(x.shape == flow.ones(2, 3).shape)
    end)
end)
