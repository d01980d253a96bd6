-- matmul_spec.lua -- matrix products on the GPU against the CPU: sizes around the tiles, layouts, broadcast batches, dtypes, and
-- bias; once with the kernel that serves everywhere, once through cuBLASLt (in the emulation: a stand-in, fake_cublaslt.cc).
local flow = require "flow"
local cuda = require "tests.cuda.support"
local process = require "tests.process"

local FLOATS = {"float32", "float64", "float16", "bfloat16"}
local DTYPES = {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8"}

local function numbers(dtype, ...)
    if dtype:find "int" then return flow.randint(0, 90, {...}):to(dtype) end
    return flow.randn(...):to(dtype)
end

-- Every way in which a matrix may lie in memory, with its values.
local function layouts_of(t)
    local list = {}
    for _, layout in ipairs(cuda.layouts) do
        if layout.values then list[#list + 1] = {layout[1], layout[2](t)} end
    end
    if t.ndim >= 2 then list[#list + 1] = {"columns", t:transpose(-1, -2):contiguous():transpose(-1, -2)} end
    return list
end

local function product(args) return args[1]:matmul(args[2]) end

describe("matmul on the GPU", function()
    before_each(function() flow.manual_seed(11) end)

    for _, dtype in ipairs(DTYPES) do
        cuda.it("multiplies " .. dtype .. " matrices of sizes around its tiles", function()
            for _, size in ipairs {{1, 1, 1}, {1, 7, 3}, {5, 1, 2}, {3, 4, 1}, {16, 16, 16}, {63, 15, 65}, {64, 32, 64}, {65, 33, 130}} do
                local m, k, n = table.unpack(size)
                cuda.agree(("%d x %d x %d"):format(m, k, n), product, {numbers(dtype, m, k), numbers(dtype, k, n)})
            end
        end)
    end

    cuda.it("reads operands of any layout", function()
        for _, x in ipairs(layouts_of(flow.randn(2, 3, 5, 8))) do
            for _, y in ipairs(layouts_of(flow.randn(2, 3, 8, 6))) do
                cuda.agree(x[1] .. ", " .. y[1], product, {x[2], y[2]})
            end
        end
    end)

    cuda.it("takes vectors, and batches that broadcast", function()
        for _, shapes in ipairs {
            {{4}, {4}}, {{4}, {4, 3}}, {{3, 4}, {4}}, {{4}, {2, 4, 3}}, {{2, 3, 4}, {4}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}},
            {{2, 1, 3, 4}, {5, 4, 2}}, {{2, 5, 3, 4}, {2, 1, 4, 2}}, {{7, 1, 2, 4}, {1, 9, 4, 2}}, {{1, 3, 1, 2, 4}, {4, 1, 5, 4, 3}},
            {{0, 4}, {4, 3}}, {{3, 0}, {0, 2}}, {{2, 3, 4}, {2, 4, 0}}, {{0, 3, 4}, {4, 5}},
        } do
            local x, y = flow.randn(shapes[1]), flow.randn(shapes[2])
            cuda.agree(("[%s] [%s]"):format(table.concat(shapes[1], ", "), table.concat(shapes[2], ", ")), product, {x, y})
        end
    end)

    cuda.it("multiplies matrices that repeat", function()
        local row, column = flow.randn(1, 6):expand({4, 6}), flow.randn(6, 1):expand({6, 5})
        cuda.agree("rows", product, {row, flow.randn(6, 5)})
        cuda.agree("columns", product, {flow.randn(4, 6), column})
        cuda.agree("batch", product, {flow.randn(1, 4, 6):expand({40, 4, 6}), flow.randn(40, 6, 5)})
    end)

    cuda.it("reads heads where they lie in one projection", function()
        local qkv = flow.randn(3, 5, 3 * 8)
        local part = function(x, i) return x:narrow(2, i * 8, 8):view(3, 5, 2, 4):transpose(1, 2) end
        cuda.agree("scores", function(args) return part(args[1], 0):matmul(part(args[1], 1):transpose(-1, -2)) end, {qkv})
        local long = flow.randn(18, 5, 3 * 8)  -- more batches than calls are worth
        local many = function(x, i) return x:narrow(2, i * 8, 8):view(18, 5, 2, 4):transpose(1, 2) end
        cuda.agree("many scores", function(args) return many(args[1], 0):matmul(many(args[1], 1):transpose(-1, -2)) end, {long})
    end)

    cuda.it("promotes operands of two dtypes", function()
        for _, x in ipairs(FLOATS) do
            for _, y in ipairs(FLOATS) do cuda.agree(x .. " " .. y, product, {numbers(x, 4, 6), numbers(y, 6, 3)}) end
        end
        cuda.agree("integers", product, {numbers("int8", 4, 6), numbers("uint8", 6, 3)})
    end)

    cuda.it("adds the bias of linear", function()
        local linear = function(args) return flow.linear(args[1], args[2], args[3]) end
        for _, dtype in ipairs(FLOATS) do
            for _, shape in ipairs {{6}, {1, 6}, {70, 6}, {2, 3, 6}, {0, 6}} do
                cuda.agree(dtype, linear, {numbers(dtype, table.unpack(shape)), numbers(dtype, 5, 6), numbers(dtype, 5)})
            end
            cuda.agree("strided bias", linear, {numbers(dtype, 3, 6), numbers(dtype, 5, 6), numbers(dtype, 5, 2):select(1, 1)})
            cuda.agree("no columns", linear, {numbers(dtype, 3, 0), numbers(dtype, 5, 0), numbers(dtype, 5)})
            cuda.agree("shifted bias", linear, {numbers(dtype, 3, 6), numbers(dtype, 5, 6), numbers(dtype, 6):narrow(0, 1, 5)})
        end
        cuda.agree("integers", linear, {numbers("int32", 3, 6), numbers("int32", 5, 6), numbers("int32", 5)})
    end)

    -- Rows that cuBLASLt takes what it keeps in (a multiple of 8 elements), and rows it does not.
    local ACTIVATIONS = {
        {"relu", function(args) return flow._op.linear_relu(args[1], args[2], args[3]) end},
        {"gelu", function(args) return flow._op.linear_gelu_kept(args[1], args[2], args[3]) end},
        {"gelu (tanh)", function(args) return flow._op.linear_gelu_kept(args[1], args[2], args[3], "tanh") end},
        {"gelu (tanh), nothing kept", function(args) return (flow._op.linear_gelu_kept(args[1], args[2], args[3], "tanh", false)) end},
    }

    cuda.it("applies the activation of linear, and keeps what it is applied to", function()
        for _, case in ipairs(ACTIVATIONS) do
            for _, dtype in ipairs(FLOATS) do
                for _, shape in ipairs {{6}, {70, 6}, {2, 3, 6}, {0, 6}, {3, 0}} do
                    for _, columns in ipairs {5, 16} do
                        local x, w, b = numbers(dtype, table.unpack(shape)), numbers(dtype, columns, shape[#shape]), numbers(dtype, columns)
                        local what = ("%s in %s, [%s] to %d"):format(case[1], dtype, table.concat(shape, ", "), columns)
                        cuda.agree(what, case[2], {x, w, b})
                        cuda.agree(what .. ", no bias", case[2], {x, w})
                    end
                end
                local apart = numbers(dtype, 3, 2, 6):transpose(0, 1)
                cuda.agree(case[1] .. ", matrices apart", case[2], {apart, numbers(dtype, 8, 6), numbers(dtype, 9):narrow(0, 1, 8)})
            end
        end
    end)

    cuda.it("has the gradients of an activation", function()
        for _, case in ipairs(ACTIVATIONS) do
            cuda.agree(case[1], function(args)
                local leaves = {}
                for i = 1, 3 do leaves[i] = args[i]:detach():requires_grad_() end
                case[2](leaves):backward(args[4])
                return leaves[1].grad, leaves[2].grad, leaves[3].grad
            end, {flow.randn(2, 9, 6), flow.randn(8, 6), flow.randn(8), flow.randn(2, 9, 8)})
        end
    end)

    local stands_in = cuda.emulated and (os.getenv "FLOW_CUBLASLT" or "") ~= ""
    cuda.it("rounds operands of float32 to TF32 where it is allowed to", function()
        local _ <close> = setmetatable({}, {__close = function() flow.set_float32_matmul_precision("highest") end})
        local fine = 1 + 2 ^ -12  -- in TF32: 1
        local x, y = flow.full({64, 64}, fine, {device = cuda.device}), flow.ones(64, 64, {device = cuda.device})
        local before = x:matmul(y)  -- perhaps not yet computed when the setting changes
        flow.set_float32_matmul_precision("high")
        local rounded = x:matmul(y)
        assert.are.equal(64 * fine, before:amax():item())
        assert.is_true(rounded:amin():item() >= 64 and rounded:amax():item() <= 64 * fine)
        if stands_in then assert.are.equal(64, rounded:amax():item()) end
        assert.are.equal(64 * fine, x:to("float64"):matmul(y:to("float64")):amax():item())
        local w, b = flow.randn(16, 6), flow.randn(16)
        local want, got = flow._op.linear_gelu(flow.ones(3, 6), w, b, "tanh"),
            flow._op.linear_gelu(flow.ones(3, 6, {device = cuda.device}), w:to(cuda.device), b:to(cuda.device), "tanh")
        assert.is_true((want - got:to("cpu")):abs():amax():item() < 2e-2)
        flow.set_float32_matmul_precision("highest")
        assert.are.equal(64 * fine, x:matmul(y):amax():item())
    end)

    if stands_in then it("asks a GPU before compute 8.0 for no TF32", function()
        local script = [[
      local flow = require "flow"
      flow.set_float32_matmul_precision "high"
      local x = flow.full({64, 64}, 1 + 2 ^ -12, {device = "cuda"})
      print(x:matmul(flow.ones(64, 64, {device = "cuda"})):amax():item())]]
        assert.are.equal("64.015625\n", (process.output(("FLOW_CUDA_EMULATED_COMPUTE=75 %s -e '%s'"):format(process.flowlua, script))))
    end) end

    cuda.it("sums outer products of rows", function()
        local contract = flow._op.contract_rows
        local f = function(args) return contract(args[1], args[2]) end
        for _, dtype in ipairs(DTYPES) do cuda.agree(dtype, f, {numbers(dtype, 3, 17, 6), numbers(dtype, 3, 17, 5)}) end
        for _, x in ipairs(layouts_of(flow.randn(3, 4, 6))) do cuda.agree(x[1], f, {x[2], flow.randn(3, 4, 5)}) end
        cuda.agree("no rows", f, {flow.randn(0, 6), flow.randn(0, 5)})
    end)

    cuda.it("takes matrices that begin anywhere", function()
        for _, dtype in ipairs(FLOATS) do
            local long = numbers(dtype, 200)
            for shift = 0, 8 do
                cuda.agree(dtype .. " from " .. shift, product,
                    {long:narrow(0, shift, 48):view(6, 8), long:narrow(0, 100 - shift, 64):view(8, 8)})
            end
        end
    end)

    cuda.it("has gradients", function()
        local gradients = function(args)
            local x, w, b = args[1]:detach():requires_grad_(), args[2]:detach():requires_grad_(), args[3]:detach():requires_grad_()
            flow.linear(x, w, b):backward(args[4])
            return x.grad, w.grad, b.grad
        end
        cuda.agree("linear", gradients, {flow.randn(2, 9, 6), flow.randn(5, 6), flow.randn(5), flow.randn(2, 9, 5)})
    end)
end)
