-- scan_spec.lua -- running sums on the GPU in sizes that take every way of the kernels: lines and columns, one chunk and several.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

-- Whole numbers, so that every order of adding gives the same.
local function counting(dtype, shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return flow.arange(n):remainder(7):sub(dtype == "bool" and 0 or 3):reshape(shape):to(dtype)
end

describe("running sums on the GPU", function()
    local cases = {{{31}, 0}, {{33}, 0}, {{4096}, 0}, {{4097}, 0}, {{20000}, 0}, {{20003}, 0}, {{5, 1030}, 1}, {{7, 4104}, 1},
        {{3, 9000}, 1}, {{50, 40}, 1}, {{256, 3}, 0}, {{257, 3}, 0},
        {{2, 700, 5}, 1}, {{1000, 2}, -2}, {{3, 70000}, 0}}

    cuda.it("are those of the CPU, from either end", function()
        for _, case in ipairs(cases) do
            local shape, axis = case[1], case[2]
            for _, dtype in ipairs {"float32", "float64", "bfloat16", "int8", "int64", "bool"} do
                local x = counting(dtype, shape)
                local there = cuda.to_gpu(x)
                local what = ("%s [%s]"):format(dtype, table.concat(shape, ", "))
                support.same(x:cumsum(axis), there:cumsum(axis):to("cpu"), what, 0)
                support.same(x:flip(axis):cumsum(axis), there:flip(axis):cumsum(axis):to("cpu"), what .. " flipped", 0)
                local leaf = flow.zeros(shape, {device = "cuda", requires_grad = true})
                if dtype == "float32" then
                    local slope = flow.grad((leaf:cumsum(axis) * there):sum(), {leaf})[1]
                    support.same(x:flip(axis):cumsum(axis):flip(axis), slope:to("cpu"), what .. " backwards", 0)
                end
            end
        end
    end)

    cuda.it("take lines of so many chunks that a block adds up the totals", function()
        for _, n in ipairs {128 * 4096, 129 * 4096, 130 * 4096 - 5} do
            local x = counting("int8", {n})
            for _, dtype in ipairs {"int8", "float32"} do
                local there = cuda.to_gpu(x:to(dtype))
                support.same(x:to(dtype):cumsum(0), there:cumsum(0):to("cpu"), ("%s, %d"):format(dtype, n), 0)
            end
        end
        if not cuda.emulated then
            local x = counting("float64", {8200 * 4096})    -- a block goes through its totals more than once
            support.same(x:cumsum(0), x:to("cuda"):cumsum(0):to("cpu"), "more totals", 0)
        end
    end)

    cuda.it("are the same each time", function()
        flow.manual_seed(1)
        for _, case in ipairs(cases) do
            local x = flow.randn(case[1]):to("cuda")
            local first = x:cumsum(case[2])
            support.same(first, x:cumsum(case[2]), "again", 0)
            support.close(x:to("cpu"):to("float64"):cumsum(case[2]), first:to("cpu"), 1.2e-7, "noise, rounded once")
        end
    end)
end)

describe("flip and roll on the GPU", function()
    cuda.it("turn and move along any axes of any layout", function()
        for _, dtype in ipairs {"bool", "bfloat16", "float32", "int64"} do
            for _, shape in ipairs {{70}, {33, 65}, {5, 40, 9}, {2, 3, 4, 64}} do
                local x = counting(dtype, shape)
                for axis = 0, #shape - 1 do
                    for _, t in ipairs {x, x:transpose(0, -1), support.strided(x)} do
                        local there = cuda.to_gpu(t)
                        local what = ("%s [%s] along %d"):format(dtype, table.concat(shape, ", "), axis)
                        local axes = axis > 0 and {0, axis} or {axis}
                        support.same(t:flip(axis), there:flip(axis):to("cpu"), "flip " .. what, 0)
                        support.same(t:flip(axes), there:flip(axes):to("cpu"), "flip both " .. what, 0)
                        support.same(t:roll({5, -1}, {axis, 0}), there:roll({5, -1}, {axis, 0}):to("cpu"), "roll " .. what, 0)
                        support.same(t:roll(13), there:roll(13):to("cpu"), "roll " .. what, 0)
                    end
                end
            end
        end
    end)
end)
