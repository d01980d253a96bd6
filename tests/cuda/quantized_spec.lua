-- quantized_spec.lua -- products by weights of 8 and 4 bits on the GPU: those of the CPU, for few rows of x and for many.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local nn = flow.nn

-- rows, columns and columns in a group of a matrix: those that are loaded 16 bytes at a time, and others
local MATRICES = {{24, 64, 32}, {9, 256, 256}, {5, 96, 16}, {7, 30, 6}, {3, 14, 14}, {1, 2, 2}, {33, 1088, 64}}
local COUNTS = {1, 2, 8, 9, 31, 32, 33, 70}     -- rows of x

local function matrix(bits, rows, columns, group)
    local weight = bits == 8 and flow.randint(-128, 128, {rows, columns}):to("int8") or flow.randint(0, 256, {rows, columns // 2}):to("uint8")
    return weight, (flow.rand(rows, columns // group) + 0.5) / (bits == 8 and 128 or 8) / math.sqrt(columns)
end

-- Both succeed, and equally.
local function agree(what, args, layout)
    local bits = args[5]
    args = {n = 4, table.unpack(args, 1, 4)}
    local function f(list) return flow.linear_quantized(list[1], list[2], list[3], list[4], bits) end
    assert.is_not_nil(cuda.agree(what, f, args, false, layout), what)
end

describe("linear_quantized on the GPU", function()
    for _, bits in ipairs {8, 4} do
        for _, size in ipairs(MATRICES) do
            local rows, columns, group = table.unpack(size)
            cuda.it(("multiplies by [%d, %d] of %d bits in groups of %d"):format(rows, columns, bits, group), function()
                local weight, scales = matrix(bits, rows, columns, group)
                for _, count in ipairs(COUNTS) do
                    for _, dtype in ipairs {"float32", "float16", "bfloat16", "float64"} do
                        local x, bias = flow.randn(count, columns, {dtype = dtype}), flow.randn(rows, {dtype = dtype})
                        local what = ("%d rows in %s"):format(count, dtype)
                        agree(what, {x, weight, scales, bias, bits})
                        agree(what .. ", no bias", {x, weight, scales, nil, bits})
                    end
                end
            end)
        end

        cuda.it(("takes every layout, with %d bits"):format(bits), function()
            local weight, scales = matrix(bits, 12, 64, 32)
            for _, layout in ipairs(cuda.layouts) do
                if layout.values then
                    for _, count in ipairs {3, 40} do
                        agree(("%s, %d rows"):format(layout[1], count), {flow.randn(count, 64), weight, scales, flow.randn(12), bits}, layout[2])
                        agree(layout[1] .. " of 3 axes", {flow.randn(2, count, 64, {dtype = "float16"}), weight, scales, flow.randn(12), bits}, layout[2])
                    end
                end
            end
            for _, count in ipairs {3, 40} do
                agree("a shifted matrix alone", {flow.randn(count, 64), weight, scales, nil, bits}, function(t)
                    if not t.dtype:find "int8" then return t end
                    local long = flow.cat({t:reshape(-1), t:reshape(-1)})
                    return long:narrow(0, t:numel() - 1, t:numel()):view(t.shape)
                end)
            end
            agree("a vector", {flow.randn(64), weight, scales, nil, bits})
            agree("no rows", {flow.zeros(0, 64), weight, scales, nil, bits})
            agree("no columns", {flow.zeros(3, 0), weight:narrow(1, 0, 0), scales, flow.randn(12), bits})
            agree("no columns, many rows", {flow.zeros(50, 0), weight:narrow(1, 0, 0), scales, flow.randn(12), bits})
            agree("no rows of the matrix", {flow.zeros(3, 64), weight:narrow(0, 0, 0), scales:narrow(0, 0, 0), nil, bits})
            agree("scales of 16 bits", {flow.randn(3, 64), weight, scales:to "float16", nil, bits})
        end)

        cuda.it(("refuses what the CPU refuses, with %d bits"):format(bits), function()
            local weight, scales = matrix(bits, 12, 64, 32)
            for _, args in ipairs {{flow.randn(3, 60), weight, scales}, {flow.randn(3, 64), weight:to "int32", scales},
                {flow.randn(3, 64), weight, scales:narrow(0, 0, 4)}, {flow.randn(3, 64), weight, scales, flow.randn(3)}} do
                local there = support.map_tensors(args, cuda.to_gpu)
                assert.are.equal(support.message_of(flow.linear_quantized, args[1], args[2], args[3], args[4], bits),
                    support.message_of(flow.linear_quantized, there[1], there[2], there[3], there[4], bits))
            end
        end)

        cuda.it(("has the gradient of a network, with %d bits"):format(bits), function()
            local net = nn.quantize(nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 6)), bits, 16)
            local there = net:clone():to(cuda.device)
            for _, count in ipairs {1, 5, 40} do
                local function gradient(module, x)
                    x:requires_grad_()
                    local y = module(x)
                    return y:detach(), flow.grad((y * y):sum(), {x})[1]
                end
                local x = flow.randn(count, 64)
                local y, g = gradient(net, x:clone())
                local z, h = gradient(there, x:to(cuda.device))
                support.same(y, z, count .. " rows", 2e-5)
                support.same(g, h, count .. " rows, gradient", 2e-5)
            end
        end)
    end
end)
