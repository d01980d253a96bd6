-- sort_spec.lua -- sort, topk and elements by rank on the GPU: as on the CPU, to the position, in sizes that take every way of the kernels.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local DTYPES = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

local function same(what, f, x)
    local want, got = table.pack(f(x)), table.pack(f(cuda.to_gpu(x)))
    for i = 1, want.n do
        assert.are.equal("cuda", got[i].device, what)
        support.same(want[i], got[i]:to("cpu"), what .. ", result " .. i, 0)
    end
end

-- Numbers with ties among them, and what is not a number.
local function values(dtype, ...)
    local x = (flow.randn(...) * 6):round()
    if dtype == "uint8" then x = x:abs() end
    return cuda.special(dtype == "bool" and x:gt(2) or x:to(dtype))
end

local function both(what, x, axis, ks)
    for _, down in ipairs {false, true} do
        same(("sort %s %s"):format(what, down), function(t) return t:sort(axis, down) end, x)
        for _, k in ipairs(ks) do
            same(("topk %d %s %s"):format(k, what, down), function(t) return t:topk(k, axis, down) end, x)
        end
    end
end

describe("on the GPU sorting", function()
    cuda.it("takes short rows of every dtype and layout, along every axis", function()
        flow.manual_seed(1)
        for _, dtype in ipairs(DTYPES) do
            for _, n in ipairs {1, 2, 3, 33, 300} do
                for _, layout in ipairs(cuda.layouts) do
                    if layout.values then both(("%s %d %s"):format(dtype, n, layout[1]), layout[2](values(dtype, 5, n)), 1, {0, 1, (n + 1) // 2}) end
                end
            end
            both(dtype .. " first axis", values(dtype, 70, 3), 0, {7})
            both(dtype .. " in the middle", values(dtype, 2, 600, 3), 1, {600})
        end
    end)

    -- At these lengths the way changes, to a larger block or to a sort of all rows, on a GPU or in the emulation.
    cuda.it("takes rows at the borders between the ways", function()
        flow.manual_seed(5)
        for _, dtype in ipairs(cuda.emulated and {"uint8", "float32"} or DTYPES) do
            for _, n in ipairs {256, 257, 1024, 1025, 2048, 2049} do both(("%s %d"):format(dtype, n), values(dtype, 2, n), 1, {n // 2 + 1}) end
            for _, n in ipairs {4096, 4097} do
                local x = values(dtype, 2, n)
                both(("%s %d"):format(dtype, n), x, 1, {1025})
                both(("%s %d, one row"):format(dtype, n), x[0], 0, {n - 1})
            end
        end
        for _, n in ipairs {1000, 3000, 5000} do
            local zeros = flow.where(flow.rand(n):gt(0.5), flow.zeros(n), flow.full({n}, -0.0))
            same("zeros of both signs", function(t)
                local sorted, positions = t:sort(0)
                return 1 / sorted, positions
            end, zeros)
            both("all equal", flow.full({2, n}, 127):to("int8"), 1, {n})
            both("no numbers", flow.full({2, n}, 0 / 0), 1, {n})
        end
    end)

    cuda.it("takes rows that no block sorts at once", function()
        flow.manual_seed(2)
        for _, dtype in ipairs(cuda.emulated and {"bfloat16", "int64"} or {"uint8", "bfloat16", "float32", "float64"}) do
            both(dtype .. " one row", values(dtype, 2049), 0, {1, 17, 1024, 1025})
            both(dtype .. " rows", values(dtype, 3, 2500), 1, {5, 2000})
            both(dtype .. " columns", values(dtype, 2500, 2), 0, {9})
        end
        both("all equal", flow.zeros(4000), 0, {1, 30, 1000})
        both("all different", flow.randperm(5000), 0, {1, 30, 1000})
    end)

    cuda.it("takes rows that are cut into parts", function()
        flow.manual_seed(3)
        both("one row", values("float32", 40000), 0, {1, 100})
        both("of one number", flow.full({1, 33000}, -0.0), 1, {3})
        both("rows", values("int64", 2, 40000), 1, {20})
    end)

    cuda.it("finds elements by rank", function()
        flow.manual_seed(4)
        for _, dtype in ipairs {"int8", "int64", "float16", "float32", "float64"} do
            for _, case in ipairs {{values(dtype, 30, 7), 1}, {values(dtype, 2500, 3), 0}} do
                local x, axis = table.unpack(case)
                local what = dtype .. " axis " .. axis
                same("kthvalue " .. what, function(t) return t:kthvalue(5, axis) end, x)
                same("median " .. what, function(t) return t:median(axis) end, x)
                same("nanmedian " .. what, function(t) return t:nanmedian(axis) end, x)
                if dtype:find "float" then
                    same("quantile " .. what, function(t) return t:nanquantile(0.3, axis, false, "lower") end, x)
                end
            end
        end
    end)

    cuda.it("reports ranks along an axis without elements", function()
        local ranked
        for _, op in ipairs(flow._testing.ops()) do ranked = op.name == "ranked" and op.call or ranked end
        local x, ranks = flow.zeros(0, 3), flow.tensor {{0, 0, 0}}
        local message = support.message_of(ranked, cuda.to_gpu(x), cuda.to_gpu(ranks), 0)
        assert.are.equal(support.message_of(ranked, x, ranks, 0), message)
        assert.is_truthy(message:find("this axis of x has no positions", 1, true), message)
    end)

    cuda.it("gives gradients", function()
        local x = cuda.to_gpu(flow.tensor {{3.0, 1.0, 2.0}, {5.0, 6.0, 4.0}})
        x.requires_grad = true
        ;(x:sort(1) * flow.tensor({1, 10, 100}, {device = "cuda"})):sum():backward()
        assert.are.same({{100, 1, 10}, {10, 100, 1}}, x.grad:totable())
    end)
end)
