-- reduce_spec.lua -- reductions on the GPU against the CPU: dtypes, axes, sizes around those of warps, blocks and segments,
-- layouts, empty tensors, NaN, ties, positions in parts of a tensor, and the same bits every time.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local FLOATS = {"float32", "float64", "float16", "bfloat16"}
local ALL = {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"}

local hidden = flow._op

-- Numbers of which many are equal, some 0; sums stay small beside the dtype's precision.
local function numbers(dtype, shape)
    flow.manual_seed(#shape + 5)
    if dtype == "bool" then return flow.rand(shape):gt(0.3) end
    if dtype == "uint8" then return flow.randint(0, 5, shape):to(dtype) end
    return flow.randint(-8, 9, shape):to(dtype) * (dtype:find "float" and 0.125 or 1)
end

---- ops: name, call(x, axes, keepdim), dtypes, whether the axes may be empty ----

local method = support.reduction

local OPS = {
    {"sum", method "sum", ALL},
    {"mean", method "mean", FLOATS},
    {"prod", method "prod", ALL},
    {"any", method "any", ALL},
    {"all", method "all", ALL},
    {"amax", method "amax", ALL},
    {"amin", method "amin", ALL},
    {"var", method("var"), FLOATS, after = 1},
    {"std", method("std"), FLOATS, after = 0},
    {"norm", method("norm", 2), FLOATS},
    {"norm 1", method("norm", 1), FLOATS},
    {"norm 0", method("norm", 0), FLOATS},
    {"norm 3", method("norm", 3), FLOATS},
    {"norm inf", method("norm", inf), FLOATS},
    {"norm -inf", method("norm", -inf), FLOATS},
    {"logsumexp", method "logsumexp", FLOATS},
}
for _, op in ipairs(OPS) do
    if op.after then
        local name = op[1]
        op[2] = function(x, axes, keepdim) return x[name](x, axes, op.after, keepdim) end
    end
end

local function text(list) return list and "{" .. table.concat(list, ", ") .. "}" or "all" end

local function agree(op, x, axes, keepdim, what)
    cuda.agree(("%s %s over %s of %s%s"):format(op[1], x.dtype, text(axes or nil), text(x.shape), what or ""),
        function(args) return op[2](args[1], axes or nil, keepdim) end, {x, n = 1})
end

describe("reductions on the GPU:", function()
    for _, op in ipairs(OPS) do
        cuda.it(op[1] .. " over dtypes and axes", function()
            for _, dtype in ipairs(op[3]) do
                local x = numbers(dtype, {3, 4, 5})
                for _, axes in ipairs {false, {0}, {1}, {2}, {-1}, {0, 2}, {2, 0}, {0, 1, 2}} do agree(op, x, axes, #(axes or {}) == 1) end
                agree(op, numbers(dtype, {}), false, false)
                agree(op, numbers(dtype, {2, 0, 3}), {0}, false)
                agree(op, numbers(dtype, {2, 0, 3}), {1}, false)
                agree(op, numbers(dtype, {0}), false, true)
            end
        end)

        cuda.it(op[1] .. " over rows of all lengths", function()
            for _, n in ipairs {1, 7, 32, 65, 1000, 1024, 5000, 70000} do
                for _, dtype in ipairs(n <= 1024 and op[3] or {op[3][1], op[3][3]}) do
                    agree(op, numbers(dtype, {2, n}), {1}, false)
                    agree(op, numbers(dtype, {2, n}), false, false)
                    agree(op, numbers(dtype, {n, 3}), {0}, false)
                end
            end
        end)

        cuda.it(op[1] .. " over layouts", function()
            for _, shape in ipairs {{6, 5, 8}, {3, 64, 48}, {40, 33}} do
                for _, layout in ipairs(cuda.layouts) do
                    for _, dtype in ipairs {op[3][1], op[3][3]} do
                        for _, axes in ipairs {false, {0}, {1}, {0, 1}} do
                            local x = layout[2](numbers(dtype, shape))
                            if x.ndim == 0 then axes = false end
                            agree(op, x, axes, true, ", " .. layout[1])
                        end
                    end
                end
            end
        end)

        cuda.it(op[1] .. " of NaN, infinities and zeros", function()
            for _, dtype in ipairs(op[3]) do
                if dtype:find "float" then
                    for _, v in ipairs {nan, inf, -inf, 0} do
                        for at = 0, 299, 37 do
                            local x = numbers(dtype, {2, 300})
                            x[0][at] = v
                            agree(op, x, {1}, false, " with " .. v)
                        end
                        agree(op, flow.full({2, 70}, v, {dtype = dtype}), {1}, false, " of " .. v)
                    end
                    local mixed = numbers(dtype, {2, 300})
                    mixed[0][3], mixed[0][200] = inf, -inf
                    agree(op, mixed, {1}, false, " with both infinities")
                end
            end
        end)
    end

    cuda.it("extremes without axes", function()
        for _, dtype in ipairs(ALL) do
            local x = numbers(dtype, {7, 300})
            cuda.agree("max_all", function(args) return hidden.max_all(args[1]) end, {x, n = 1})
            cuda.agree("min_all", function(args) return hidden.min_all(args[1]) end, {x, n = 1})
        end
    end)

    cuda.it("integers wrap in int64", function()
        local x = flow.full({3000}, math.maxinteger, {dtype = "int64"})
        for _, name in ipairs {"sum", "prod"} do cuda.agree(name, function(args) return args[1][name](args[1]) end, {x, n = 1}) end
        local bytes = flow.full({70000}, 127, {dtype = "int8"})
        cuda.agree("sum of int8", function(args) return args[1]:sum() end, {bytes, n = 1})
    end)

    cuda.it("the variance of numbers far from 0", function()
        for _, dtype in ipairs {"float32", "float64"} do
            flow.manual_seed(3)
            local x = flow.randn(3, 5000, {dtype = dtype}) + 1000
            x[1] = 12345.678
            cuda.agree("var " .. dtype, function(args) return args[1]:var({1}) end, {x, n = 1})
            assert.are.equal(0, x[1]:to(cuda.device):var():item())
        end
    end)

    cuda.it("products whose parts overflow", function()
        local x = flow.full({4000}, 1, {dtype = "float32"})
        x:narrow(0, 0, 20):fill_(100)
        x:narrow(0, 3000, 20):fill_(0.01)
        cuda.agree("prod", function(args) return args[1]:prod() end, {x, n = 1})
    end)

    cuda.it("of many results and of many axes", function()
        flow.manual_seed(9)
        local sum = OPS[1]
        agree(sum, flow.randn(5000, 3), {1}, false)
        agree(sum, flow.randn(3000, 2, 5), {1}, false)
        agree(sum, flow.randn(3, 2, 4, 3, 2, 5), {0, 2, 4}, false)
        agree(sum, flow.randn(3, 2, 4, 3, 2, 5), {1, 3, 5}, true)
        agree(sum, flow.randn(4, 6, 100):transpose(0, 2), {0, 2}, false)
        agree(sum, flow.randn(1, 7):expand(300, 7), {0}, false)
        agree(sum, flow.randn(40000, 3), {0}, false)
    end)

    cuda.it("of so many segments that a block joins them", function()
        local x = numbers("float32", {2300003})
        for _, name in ipairs {"sum", "var", "amax", "logsumexp", "norm 2"} do
            for _, op in ipairs(OPS) do
                if op[1] == name then agree(op, x, false, false) end
            end
        end
    end)

    cuda.it("of small elements in columns of odd number", function()
        for _, dtype in ipairs {"float16", "bfloat16", "int8", "bool"} do
            for _, n in ipairs {15, 16, 17, 1000} do agree(OPS[1], numbers(dtype, {n, 77}), {0}, false) end
        end
    end)

    cuda.it("of no results, however long their rows are", function()
        for _, name in ipairs {"sum", "amax", "logsumexp"} do
            local rows = flow.zeros(0, 10000, {device = "cuda"})
            assert.are.same({0}, rows[name](rows, 1).shape, name)
            local columns = rows:transpose(0, 1)
            assert.are.same({0}, columns[name](columns, 0).shape, name)
        end
        flow.sync()
    end)

    cuda.it("the same bits every time", function()
        flow.manual_seed(1)
        for _, shape in ipairs {{300000}, {3, 70000}, {70000, 3}} do
            local x = flow.randn(shape):to(cuda.device)
            for _, name in ipairs {"sum", "var", "logsumexp"} do
                local axis = {#shape == 1 and 0 or shape[1] == 3 and 1 or 0}
                local once, again = x[name](x, axis), x[name](x, axis)
                assert.are.same(once:totable(), again:totable(), name)
            end
        end
    end)
end)

---- positions ----

local POSITIONS = {
    {"argmax", function(x, axis, keepdim) return x:argmax(axis, keepdim) end},
    {"argmin", function(x, axis, keepdim) return x:argmin(axis, keepdim) end},
    {"max_axis", function(x, axis, keepdim) return hidden.max_axis(x, axis, keepdim) end, needs_axis = true},
    {"min_axis", function(x, axis, keepdim) return hidden.min_axis(x, axis, keepdim) end, needs_axis = true},
}

local function agree_position(op, x, axis, what)
    if op.needs_axis and not axis then return end
    cuda.agree(("%s %s over %s of %s%s"):format(op[1], x.dtype, axis or "all", text(x.shape), what or ""),
        function(args) return op[2](args[1], axis or nil, x.ndim % 2 == 0) end, {x, n = 1})
end

describe("positions of extremes on the GPU:", function()
    for _, op in ipairs(POSITIONS) do
        cuda.it(op[1] .. " over dtypes, sizes and layouts: the lowest of equal ones", function()
            for _, dtype in ipairs(ALL) do
                for _, shape in ipairs {{}, {1}, {3, 4, 5}, {2, 1000}, {65, 7}, {0, 3}, {3, 0}} do
                    local x = numbers(dtype, shape)
                    for axis = 0, #shape - 1 do agree_position(op, x, axis) end
                    agree_position(op, x, false)
                end
            end
            for _, n in ipairs {5000, 70000} do
                agree_position(op, numbers("float32", {2, n}), 1)
                agree_position(op, numbers("float16", {2, n}), false)
                agree_position(op, numbers("int8", {n, 2}), 0)
            end
            for _, layout in ipairs(cuda.layouts) do
                for axis = -1, 1 do
                    local x = layout[2](numbers("float32", {6, 40, 8}))
                    agree_position(op, x, x.ndim > 0 and axis >= 0 and axis, ", " .. layout[1])
                end
            end
        end)

        cuda.it(op[1] .. " of NaN and of rows of one value", function()
            for _, dtype in ipairs(FLOATS) do
                for _, v in ipairs {nan, inf, -inf} do
                    local x = numbers(dtype, {2, 300})
                    x[0][77], x[0][201] = v, v
                    agree_position(op, x, 1, " with " .. v)
                    agree_position(op, x, false, " with " .. v)
                    agree_position(op, flow.full({3, 70}, v, {dtype = dtype}), 1, " of " .. v)
                end
            end
        end)
    end

    cuda.it("arg_find: where the extreme is the value", function()
        local x = numbers("float32", {40, 30}):clamp(-0.5, 0.5)
        x[3] = -0.25
        x[5][7] = nan
        for _, axis in ipairs {0, 1} do
            for _, largest in ipairs {true, false} do
                local value = flow.full({x:size(1 - axis)}, largest and 0.5 or -0.5)
                cuda.agree("arg_find", function(args) return hidden.arg_find(args[1], args[2], axis, false, largest) end, {x, value, n = 2})
            end
        end
        cuda.agree("arg_find", function(args) return hidden.arg_find(args[1], args[2]) end, {x, flow.full({}, nan), n = 2})
    end)

    cuda.it("axis_gather and axis_scatter", function()
        for _, dtype in ipairs(ALL) do
            local x = numbers(dtype, {5, 6, 7})
            for axis = 0, 2 do
                for _, keepdim in ipairs {true, false} do
                    for _, layout in ipairs(cuda.layouts) do
                        local there = layout[2](x)
                        if there.ndim == 3 and there:numel() > 0 then
                            local lines = there:sum({axis}, keepdim)
                            local index = flow.randint(0, there:size(axis), lines.shape)
                            cuda.agree("axis_gather", function(args) return hidden.axis_gather(args[1], args[2], axis, keepdim) end,
                                {there, index, n = 2})
                            cuda.agree("axis_scatter", function(args)
                                return hidden.axis_scatter(args[1], args[2], axis, keepdim, there.shape)
                            end, {lines, index, n = 2})
                        end
                    end
                end
            end
        end
    end)
end)

-- Threads of one warp fold several results each, some of them more elements than others.
describe("results whose threads share a warp", function()
    for _, name in ipairs {"sum", "var", "logsumexp", "softmax", "log_softmax", "amax", "argmax", "prod"} do
        cuda.it(name, function()
            for _, dtype in ipairs(FLOATS) do
                for n = 1, 33 do
                    for _, inner in ipairs {2, 4, 8} do
                        flow.manual_seed(n)
                        local x = flow.randn(2, n, inner):to(dtype)
                        local what = ("%s %s [2, %d, %d]"):format(name, dtype, n, inner)
                        local want, got = x[name](x, 1), x:to(cuda.device)[name](x:to(cuda.device), 1)
                        if n > 1 or name ~= "var" then
                            support.same(want, got:to "cpu", what, ({float32 = 1e-5, float64 = 1e-12, float16 = 4e-3, bfloat16 = 3e-2})[dtype])
                        end
                    end
                end
            end
        end)
    end
end)
