-- conv_spec.lua -- convolutions on the GPU, and both their gradients, against the CPU: axes, groups, strides, padding, dilation, dtypes,
-- layouts. Through cuDNN where it is there, else as products of columns; in the emulation by those, or through a stand-in
-- (FLOW_CUDNN, fake_cudnn.cc).
local flow = require "flow"
local cuda = require "tests.cuda.support"
local process = require "tests.process"
local support = require "tests.support"
local nn, optim = require "flow.nn", require "flow.optim"

local DTYPES = {"float32", "float64", "float16", "bfloat16"}

-- op, x, weight, options
local CASES = {
    {"conv1d", {2, 4, 30}, {6, 4, 5}, {padding = 2, stride = 2}},
    {"conv1d", {3, 6, 17}, {6, 1, 3}, {groups = 6, dilation = 3, padding = 1}},
    {"conv1d", {4, 20}, {3, 4, 4}, {}},                                         -- one series, without a batch
    {"conv2d", {2, 3, 8, 9}, {4, 3, 3, 3}, {padding = 1}},
    {"conv2d", {2, 3, 8, 9}, {4, 3, 3, 2}, {stride = {2, 3}, padding = {1, 2}}},
    {"conv2d", {1, 2, 9, 9}, {2, 2, 2, 2}, {stride = 3, padding = 1, dilation = {2, 3}}},
    {"conv2d", {3, 6, 5, 7}, {6, 1, 3, 3}, {padding = 1, groups = 6}},
    {"conv2d", {3, 4, 6, 7}, {12, 1, 3, 3}, {stride = 2, groups = 4}},
    {"conv2d", {2, 4, 5, 6}, {6, 2, 2, 3}, {dilation = 2, groups = 2}},
    {"conv2d", {3, 16, 4, 6}, {8, 16, 1, 1}, {}},                               -- the columns are the image
    {"conv2d", {2, 3, 7, 7}, {3, 3, 1, 1}, {stride = 2}},
    {"conv2d", {2, 2, 3, 3}, {3, 2, 5, 5}, {padding = 3}},                      -- more padding than image
    {"conv2d", {2, 3, 7, 8}, {4, 3, 3, 5}, {padding = "same"}},
    {"conv2d", {2, 3, 7, 8}, {4, 3, 2, 4}, {padding = "same"}},                 -- one more below and right
    {"conv2d", {3, 8, 9}, {4, 3, 3, 3}, {padding = 1}},                         -- one image
    {"conv2d", {2, 4, 5, 6}, {6, 2, 3, 2}, {stride = {(1 << 31) - 1, 1}, padding = 1, groups = 2}},   -- counted in 64 bits
    {"conv2d", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {"conv3d", {2, 3, 4, 5, 6}, {4, 3, 2, 3, 3}, {padding = {1, 0, 2}, stride = {1, 2, 1}}},
    {"conv3d", {1, 2, 5, 5, 5}, {2, 2, 2, 2, 2}, {dilation = {2, 1, 3}}},
    {"conv3d", {2, 4, 3, 4, 4}, {4, 2, 2, 2, 2}, {groups = 2}},
    {"conv3d", {2, 3, 1, 8, 9}, {4, 3, 1, 3, 3}, {padding = {0, 1, 1}}},        -- no depth: images
    {"conv_transpose1d", {2, 4, 9}, {4, 3, 4}, {stride = 3, padding = 1, output_padding = 2}},
    {"conv_transpose2d", {2, 4, 5, 6}, {4, 3, 3, 2}, {stride = {2, 1}, padding = 1, output_padding = {1, 0}}},
    {"conv_transpose2d", {2, 4, 5, 6}, {4, 2, 3, 3}, {groups = 2, dilation = 2}},
    {"conv_transpose3d", {1, 2, 3, 4, 4}, {2, 3, 2, 2, 2}, {stride = 2}},
    {"conv2d", {3, 16, 5, 5}, {8, 16, 1, 1}, {}},                               -- rows that are not aligned
    {"conv2d", {2, 32, 6, 7}, {40, 32, 3, 3}, {padding = 1}},                   -- 16 bits: channels last; float32: small
    {"conv2d", {2, 32, 5, 7}, {32, 32, 1, 1}, {stride = 2}},                    -- the weight is the same both ways
    {"conv1d", {2, 32, 9}, {32, 32, 3}, {padding = 1, dilation = 2}},
}

local function name_of(case)
    local options = {}
    for _, key in ipairs(support.names_of(case[4])) do
        local v = case[4][key]
        options[#options + 1] = ("%s %s"):format(key, type(v) == "table" and table.concat(v, "x") or v)
    end
    return ("%s of %s by %s, %s"):format(case[1], support.shape_text(case[2]), support.shape_text(case[3]), table.concat(options, ", "))
end

local function channels_of(case)
    return case[1]:find "transpose" and case[3][2] * (case[4].groups or 1) or case[3][1]
end

local function convolve(case, x, w, b)
    return flow[case[1]](x, w, b, next(case[4]) and case[4] or nil)
end

-- y and the gradients of all three: args are x, weight, bias and the gradient of y.
local function both_ways(case)
    return function(args)
        local leaves = {}
        for i = 1, 3 do leaves[i] = args[i]:detach():requires_grad_() end
        local y = convolve(case, table.unpack(leaves))
        y:backward(args[4])
        return y:detach(), leaves[1].grad, leaves[2].grad, leaves[3].grad
    end
end

-- Weights as a layer has them at its beginning: sums are about as large as their terms.
local function arguments_of(case, dtype)
    local x, w, b = flow.randn(case[2]), flow.randn(case[3]), flow.randn(channels_of(case))
    w = w / math.sqrt(w:numel() / w:size(0))
    local args = {x, w, b, flow.randn(convolve(case, x, w, b).shape)}
    for i, t in ipairs(args) do args[i] = t:to(dtype) end
    return args
end

describe("convolutions on the GPU", function()
    before_each(function() flow.manual_seed(5) end)

    for _, case in ipairs(CASES) do
        cuda.it("agree with the CPU: " .. name_of(case), function()
            for _, dtype in ipairs(DTYPES) do
                local args = arguments_of(case, dtype)
                cuda.agree(dtype, both_ways(case), args)
                cuda.agree(dtype .. ", no bias", function(given) return convolve(case, given[1], given[2]) end, args)
            end
        end)
    end

    cuda.it("read operands of any layout", function()
        for _, case in ipairs {CASES[1], CASES[4], CASES[9], CASES[18], CASES[23]} do
            for _, layout in ipairs(cuda.layouts) do
                if layout.values then
                    for _, dtype in ipairs {"float32", "float16"} do
                        cuda.agree(("%s, %s, %s"):format(name_of(case), layout[1], dtype), both_ways(case), arguments_of(case, dtype), false,
                            layout[2])
                    end
                end
            end
        end
    end)

    cuda.it("write where they are told", function()
        local case = CASES[4]
        local args = arguments_of(case, "float32")
        local far = support.map_tensors(args, cuda.to_gpu)
        local want, room = convolve(case, args[1], args[2], args[3]), flow.zeros(args[4]:numel() + 1, {device = cuda.device})
        local shifted = room:narrow(0, 1, args[4]:numel()):view(args[4].shape)
        shifted:copy_(convolve(case, far[1], far[2], far[3]))
        support.same(want, shifted:to "cpu", "behind one element", cuda.tolerance.float32)
    end)

    cuda.it("promote operands of two dtypes", function()
        local case = CASES[4]
        for _, other in ipairs(DTYPES) do
            local args = arguments_of(case, "float32")
            args[1] = args[1]:to(other)
            cuda.agree(other, function(given) return convolve(case, given[1], given[2], given[3]) end, args)
        end
    end)

    cuda.it("take no images, and have gradients of none", function()
        local case = {"conv2d", {0, 3, 8, 9}, {4, 3, 3, 3}, {padding = 1}}
        for _, dtype in ipairs(DTYPES) do cuda.agree(dtype, both_ways(case), arguments_of(case, dtype)) end
        cuda.agree("an image without rows", both_ways {"conv2d", {}, {}, {padding = 2}},
            {flow.randn(2, 3, 0, 5), flow.randn(4, 3, 3, 3), flow.randn(4), flow.randn(2, 4, 2, 7)})
    end)

    cuda.it("pass on numbers that are none to the windows that see them, and no others", function()
        for _, special in ipairs {0 / 0, 1 / 0} do
            local x, w = flow.randn(1, 3, 12, 13), flow.randn(4, 3, 3, 3)
            x[{0, 1, 5, 6}] = special
            local y = flow.conv2d(x:to(cuda.device), w:to(cuda.device), nil, {padding = 1}):to "cpu"
            local finite = y:sub(y):eq(0):to "float32":sum():item()
            assert.are.equal(4 * (12 * 13 - 9), finite)
        end
    end)

    cuda.it("have gradients of second order", function()
        for _, case in ipairs {CASES[2], CASES[5], CASES[18]} do
            cuda.agree(name_of(case), function(args)
                local leaves = {}
                for i = 1, 3 do leaves[i] = args[i]:detach():requires_grad_() end
                local y = convolve(case, table.unpack(leaves))
                local grads = flow.grad((y * y):sum(), {leaves[1], leaves[2]}, {create_graph = true})
                ;(grads[1]:square():sum() + grads[2]:square():sum()):backward()
                return leaves[1].grad, leaves[2].grad
            end, {flow.randn(case[2]):double() / 4, flow.randn(case[3]):double() / 4, flow.randn(channels_of(case)):double()})
        end
    end)

    cuda.it("give the same bits every time", function()
        for _, case in ipairs {CASES[4], CASES[7], CASES[18], {"conv2d", {16, 8, 28, 28}, {16, 8, 3, 3}, {padding = 1}}} do
            for _, dtype in ipairs {"float32", "bfloat16"} do
                local args = support.map_tensors(arguments_of(case, dtype), cuda.to_gpu)
                local first = {both_ways(case)(args)}
                for _ = 1, 3 do
                    for i, t in ipairs {both_ways(case)(args)} do support.same(first[i]:to "cpu", t:to "cpu", name_of(case), 0) end
                end
            end
        end
    end)

    local stands_in = cuda.emulated and (os.getenv "FLOW_CUDNN" or ""):find "fake_cudnn"
    cuda.it("round operands of float32 to TF32 where they are allowed to", function()
        local _ <close> = setmetatable({}, {__close = function() flow.set_float32_matmul_precision("highest") end})
        local fine = 1 + 2 ^ -12    -- in TF32: 1
        local x = flow.full({2, 8, 6, 6}, fine, {device = cuda.device}):requires_grad_()
        local w = flow.full({8, 8, 2, 2}, fine, {device = cuda.device}):requires_grad_()
        -- y and the gradients of x (at an element that four windows see) and of w; each has one factor that is not 1
        local function results()
            local y = flow.conv2d(x, w:detach() * 0 + 1)
            local dx, dw = flow.grad(flow.conv2d(x, w), {x, w}, {grad_outputs = flow.ones(2, 8, 5, 5, {device = cuda.device})})
            if not dw then dx, dw = dx[1], dx[2] end
            return {y[{0, 0, 1, 1}]:item(), dx[{0, 0, 1, 1}]:item(), dw[{0, 0, 0, 0}]:item()}
        end
        local counts = {8 * 4, 8 * 4, 2 * 25}
        for i, value in ipairs(results()) do assert.are.equal(counts[i] * fine, value) end
        flow.set_float32_matmul_precision("high")
        for i, value in ipairs(results()) do
            assert.is_true(value >= counts[i] and value <= counts[i] * fine, ("result %d: %.9g"):format(i, value))
            if stands_in then assert.are.equal(counts[i], value) end
        end
        flow.set_float32_matmul_precision("highest")
        for i, value in ipairs(results()) do assert.are.equal(counts[i] * fine, value) end
    end)

    if stands_in then it("are products of columns where the library is none", function()
        local script = [[
      local flow = require "flow"
      flow.set_float32_matmul_precision "high"
      local x = flow.full({1, 1, 3, 3}, 1 + 2 ^ -12, {device = "cuda"})
      print(flow.conv2d(x, flow.ones(1, 1, 2, 2, {device = "cuda"})):amax():item())]]
        assert.are.equal("4.0\n", (process.output(("%s -e '%s'"):format(process.flowlua, script))))
        assert.are.equal("4.0009765625\n", (process.output(("FLOW_CUDNN=none %s -e '%s'"):format(process.flowlua, script))))
        assert.are.equal("4.0009765625\n",
            (process.output(("FLOW_CUDNN=%s %s -e '%s'"):format("libm.so.6", process.flowlua, script))))
    end) end

    cuda.it("are part of graphs", function()
        local function train(captures)
            flow.manual_seed(3)
            local net = nn.Sequential(nn.Conv2d(3, 6, 3, {padding = 1}), nn.ReLU(), nn.Conv2d(6, 4, 3, {stride = 2}), nn.ReLU(),
                nn.Flatten(), nn.Linear(4 * 3 * 3, 5)):to(cuda.device)
            local optimizer = optim.SGD(net:parameters(), {lr = 0.05})
            local function step(x, y)
                optimizer:zero_grad()
                local loss = flow.cross_entropy(net(x), y)
                loss:backward()
                optimizer:step()
                return loss
            end
            if captures then step = flow.capture(step) end
            local losses = {}
            local before = flow.engine.stats().graphs
            for i = 1, 12 do
                losses[i] = step(flow.randn(4, 3, 8, 8):to(cuda.device), flow.randint(0, 5, {4}):to(cuda.device)):item()
            end
            return losses, flow.engine.stats().graphs - before
        end
        local want = train(false)
        local got, graphs = train(true)
        assert.are.same(want, got)
        assert.is_true(graphs > 0)
    end)
end)
