-- compress_spec.lua -- 2-bit codes on the GPU: those of the CPU, with what they leave, in parts and layouts of all sorts.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"
local op = flow._op

describe("2-bit codes on the GPU", function()
    cuda.it("are those of the CPU, and mean the same", function()
        for _, shape in ipairs {{}, {1}, {17}, {0, 3}, {300, 33}, {5, 2, 3}} do
            for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
                local x = flow.randn(shape, {dtype = dtype})
                if x:numel() > 20 then x[2] = 0 / 0 end
                for parts = 1, #shape > 0 and 3 or 1 do
                    local what = ("%s [%s] in %d parts"):format(dtype, table.concat(shape, ", "), parts)
                    local codes = flow.ones({parts, x:numel() // 16 + 1}, {dtype = "int32"})
                    local left, there, codes_there = support.strided(x), cuda.to_gpu(support.strided(x)), cuda.to_gpu(codes)
                    op.compress_2bit_(left, codes, 0.5)
                    op.compress_2bit_(there, codes_there, 0.5)
                    support.same(left, there:to "cpu", what, 0)
                    support.same(codes, codes_there:to "cpu", what, 0)
                    local count = x:numel()
                    local sum = op.expand_2bit(codes_there:t():contiguous():t(), count, 0.5, {dtype = dtype})
                    support.same(op.expand_2bit(codes, count, 0.5, {dtype = dtype}), sum:to "cpu", what, 0)
                end
            end
        end
    end)
end)
