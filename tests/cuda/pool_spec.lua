-- pool_spec.lua -- pooling on the GPU against the CPU, both ways: strides, padding, dilation, dtypes; sizes that fit in 32 bits and a
-- stride that does not.
local flow = require "flow"
local cuda = require "tests.cuda.support"

local DTYPES = {"float32", "float64", "float16", "bfloat16"}

-- x, kernel, options
local CASES = {
    {{2, 3, 6, 8}, 2},
    {{2, 3, 7, 9}, 2, {ceil_mode = true}},
    {{1, 2, 9, 40}, 3, {stride = 1, padding = 1}},
    {{3, 1, 8, 37}, {3, 2}, {stride = {2, 3}, padding = {1, 0}}},
    {{1, 2, 11, 23}, 3, {stride = 2, padding = 1, ceil_mode = true}},
    {{2, 9, 12}, {3, 2}, {stride = 2, padding = 1}},
    {{1, 1, 1, 1}, 2, {stride = 1, padding = 1}},
    {{2, 2, 5, 6}, 3, {stride = {(1 << 31) - 1, 1}}},  -- counted in 64 bits
    {{2, 2, 5, 6}, 3, {stride = (1 << 31) - 1, padding = 1}},
    {{2, 0, 5, 6}, 2},
}

local function both_ways(pool, kernel, options)
    return function(args)
        local x = args[1]:detach():requires_grad_()
        local y = pool(x, kernel, options)
        y:backward(args[2]:narrow(0, 0, y:numel()):view(y.shape))
        return y:detach(), x.grad
    end
end

local function options_of(case, more)
    local o = {}
    for key, v in pairs(case[3] or {}) do o[key] = v end
    for key, v in pairs(more) do o[key] = v end
    return next(o) and o or nil
end

describe("pooling on the GPU", function()
    before_each(function() flow.manual_seed(7) end)

    for i, case in ipairs(CASES) do
        cuda.it("agrees with the CPU, case " .. i, function()
            for _, dtype in ipairs(DTYPES) do
                local x, g = flow.randint(-9, 10, case[1]):to(dtype), flow.randn(2000):to(dtype)
                cuda.agree("max, " .. dtype, both_ways(flow.max_pool2d, case[2], options_of(case, {})), {x, g})
                for _, more in ipairs {{}, {count_include_pad = false}, {divisor_override = 3}} do
                    cuda.agree("average, " .. dtype, both_ways(flow.avg_pool2d, case[2], options_of(case, more)), {x, g})
                end
            end
        end)
    end

    cuda.it("takes dilated windows", function()
        for _, options in ipairs {{dilation = 3}, {stride = 2, padding = 1, dilation = {2, 4}, ceil_mode = true}} do
            local x = flow.randint(-9, 10, {2, 2, 9, 12}):to "float32"
            cuda.agree("max", both_ways(flow.max_pool2d, {3, 2}, options), {x, flow.randn(2000)})
        end
    end)
end)
