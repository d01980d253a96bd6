-- conv_large_spec.lua -- convolutions of float32 that are large enough for oneDNN (conv_onednn.c), beside float64's own
-- kernels: every way to cut images into chunks and channels into sections, and layouts with channels to spare.
local flow = require "flow"
local process = require "tests.process"

-- x, weight, options; `bias` unless it says false.
local cases = {
    {"2d", {61, 16, 8, 8}, {16, 16, 3, 3}, {padding = 1}}, -- a last chunk that is smaller
    {"2d", {64, 64, 2, 2}, {64, 64, 3, 3}, {padding = 1, bias = false}},
    {"2d", {1, 64, 40, 40}, {128, 64, 3, 3}, {padding = 1}}, -- one image: sections
    {"2d", {2, 128, 24, 24}, {64, 128, 3, 3}, {stride = 2}},
    {"2d", {5, 3, 32, 32}, {20, 3, 5, 5}, {padding = 2}}, -- channels that fill no vector
    {"2d", {7, 20, 15, 13}, {33, 20, 3, 2}, {padding = {2, 0}, stride = {2, 1}, dilation = {1, 3}}},
    {"2d", {6, 16, 12, 12}, {16, 16, 4, 4}, {padding = "same"}}, -- one column more after than before
    {"2d", {9, 32, 14, 14}, {64, 16, 3, 3}, {groups = 2, padding = 1}},
    {"2d", {9, 20, 28, 28}, {20, 1, 3, 3}, {groups = 20, padding = 1}},
    {"2d", {16, 32, 28, 28}, {32, 1, 3, 3}, {groups = 32, padding = 1, stride = 2}},
    {"2d", {16, 64, 14, 14}, {32, 64, 1, 1}, {stride = 2}},
    {"1d", {17, 24, 100}, {32, 24, 5}, {padding = 2, stride = 2}},
    {"1d", {24, 300}, {40, 24, 9}, {dilation = 2}}, -- one series, without a batch
    {"3d", {3, 16, 6, 9, 8}, {24, 16, 3, 3, 2}, {padding = {1, 1, 0}}},
    {"3d", {4, 8, 5, 1, 30}, {16, 8, 3, 1, 5}, {stride = {2, 1, 1}}},
}

local function name_of(case)
    return ("conv%s of %s by %s"):format(case[1], table.concat(case[2], "x"), table.concat(case[3], "x"))
end

-- y and the gradients of x, weight and bias.
local function both_ways(case, x, weight, bias, g)
    local o = case[4]
    local leaves = {x:clone():requires_grad_(), weight:clone():requires_grad_()}
    if o.bias ~= false then leaves[3] = bias:clone():requires_grad_() end
    local y = flow["conv" .. case[1]](leaves[1], leaves[2], leaves[3], o.stride or 1, o.padding or 0, o.dilation or 1, o.groups or 1)
    y:backward(g or flow.ones_like(y))
    local out = {y:detach()}
    for i, leaf in ipairs(leaves) do out[i + 1] = leaf.grad end
    return out
end

describe("large convolutions", function()
    for _, case in ipairs(cases) do
        it("agree with float64: " .. name_of(case), function()
            flow.manual_seed(7)
            local x, weight = flow.randn(case[2]), flow.randn(case[3])
            local bias = flow.randn(case[3][1])
            local g = flow.randn(both_ways(case, x, weight, bias)[1].shape)
            local got = both_ways(case, x, weight, bias, g)
            local want = both_ways(case, x:double(), weight:double(), bias:double(), g:double())
            for i, tensor in ipairs(got) do
                assert.are.same(want[i].shape, tensor.shape)
                local scale = want[i]:abs():amax():item()
                assert.is_true((tensor:double() - want[i]):abs():amax():item() <= 1e-5 * scale, "result " .. i)
            end
        end)
    end

    it("give the same bits for any number of threads", function()
        local text = [[
            local flow = require "flow"
            flow.manual_seed(1)
            for _, s in ipairs{{{1, 64, 40, 40}, {128, 64, 3, 3}, 1}, {{61, 16, 8, 8}, {16, 16, 3, 3}, 1},
                               {{9, 20, 28, 28}, {20, 1, 3, 3}, 20}} do
                local x, w = flow.randn(s[1]):requires_grad_(), flow.randn(s[2]):requires_grad_()
                local y = flow.conv2d(x, w, nil, 1, 1, 1, s[3])
                y:backward(y:detach())
                for _, t in ipairs{y:detach(), x.grad, w.grad} do
                    print(string.format("%a %a", t:double():sum():item(), t:view(-1):double():cumsum(0):sum():item()))
                end
            end]]
        local function run(threads) return (process.run("FLOW_THREADS=" .. threads, text)) end
        local one = run(1)
        assert.is_truthy(one:find("0x", 1, true))
        assert.are.equal(one, run(2))
        assert.are.equal(one, run(5))
    end)
end)
