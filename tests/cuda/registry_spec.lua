-- registry_spec.lua -- every registered op on the GPU against the CPU, by the op's own samples: layouts, sizes, dtypes, numbers
-- that are none, gradients of first and second order. A call that the CPU refuses the GPU refuses with the same words.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local ops = support.ops()

local LARGE, MOST = cuda.emulated and 3000 or 60000, 1 << 23
local DTYPES = {"float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"}

-- Of a list so many, another choice for each sample; all of it on a GPU, or with FLOW_TEST_ALL=1: an emulator is slow.
local function some(list, count, name)
    if support.all or not cuda.emulated then return list end
    return support.some(list, count, name)
end

local arguments, map_tensors = support.arguments, support.map_tensors

-- The op as a function of its arguments; it writes copies.
local function caller(op)
    local writes = op.mutates or op.name:sub(-1) == "_"
    return function(args)
        flow.manual_seed(7)
        return op.call(table.unpack(args, 1, args.n))
    end, writes
end

local function fresh(args, writes)
    return writes and map_tensors(args, function(t) return t:clone() end) or args
end

-- Arguments of an op without tensors, for a device; nil: they name one already.
local function placed(args, device)
    local options, n = support.options_of(args)
    if not options then return end
    local list = table.pack(table.unpack(args, 1, n))
    options.device = device
    list[n + 1], list.n = options, n + 1
    return list
end

local function check_source(op, args, what)
    local f = caller(op)
    local here, there = placed(args, "cpu"), placed(args, cuda.device)
    if not here then return end
    local want, got = f(here), f(there)
    assert.are.equal(cuda.device, got.device, what)
    if op.name:find "^empty" then return end
    support.same(want, got, what, op.random and 1e-6 or 0)
end

-- Of bool tensors made of floats the interesting ones are not all true.
local function in_dtype(dtype)
    return function(t)
        if t.dtype ~= "float32" then return t end
        return dtype == "bool" and t:gt(0) or (dtype:find "int" and t * 3 or t):to(dtype)
    end
end

-- Some ops that write an operand have no kernel on a GPU. Ops of cuSOLVER are in linalg_spec, on matrices that are good
-- for them; with a negative power so is linalg.matrix_power.
local function only_on_host(op, sample)
    return op.host_only and op.mutates or support.solved[op.name] or op.name == "linalg.matrix_power" and sample:find(", -", 1, true)
end

-- Not compared with special numbers: products of NaN and 0 on one side are left out on the other, and rows without any
-- spread are divided by rounding.
-- Thousands of numbers are added up for one element of what is larger, in an order of its own: compared in float64.
local adds_many = {put = true, put_ = true}
local adds_many_back = {index = true, quantile = true, nanquantile = true}
-- On a GPU positions of its index are not checked.
local unchecked = {index_add = true, index_add_ = true}
local takes_pairs = {lamb_step = true, lars_step = true}    -- sums of norms, which only norms make, contiguous
local without_special = {fft_complex = true, fft_to_half = true, fft_from_half = true,
    interpolate = true, multinomial = true, conv1d_input_grad = true, conv2d_input_grad = true, conv3d_input_grad = true, corrcoef = true}
-- The products of padding and a number that is none depend on cuDNN.
local pads = {}
if not cuda.emulated or os.getenv "FLOW_CUDNN" then
    for axes = 1, 3 do
        for _, name in ipairs {"conv%dd", "conv%dd_weight_grad", "conv_transpose%dd"} do pads[name:format(axes)] = true end
    end
end

-- True if results of larger arguments are not too large: an outer product's are the square of them.
local function fits(op, args)
    local inferred = map_tensors(args, function(t) return t:to "meta" end)
    local ok, results = pcall(function() return table.pack(op.call(table.unpack(inferred, 1, args.n))) end)
    for i = 1, ok and results.n or 0 do
        if flow.is_tensor(results[i]) and results[i]:numel() > MOST then return false end
    end
    return true
end

local function each_sample(f)
    for _, op in ipairs(ops) do
        for i, sample in ipairs(op.samples) do if not only_on_host(op, sample) then f(op, sample, ("%s sample %d"):format(op.name, i)) end end
    end
end

describe("without a kernel on the GPU,", function()
    for _, op in ipairs(ops) do
        if op.host_only and op.mutates and #op.samples > 0 then
            cuda.it(op.name .. " says to compute on the CPU", function()
                local args = map_tensors(arguments(op, op.samples[1]), cuda.to_gpu)
                local message = support.message_of(op.call, table.unpack(args, 1, args.n))
                assert.is_truthy(message:find("it has no cuda kernel; move the operands to the CPU: x:to(\"cpu\")", 1, true), message)
            end)
        end
    end
end)

describe("on the GPU,", function()
    each_sample(function(op, sample, name)
        cuda.it_with(cuda.libraries[op.name], name .. " gives what it gives on the CPU", function()
            local args = arguments(op, sample)
            if op.source then return check_source(op, args, name) end
            local f, writes = caller(op)
            for _, layout in ipairs(cuda.layouts) do
                -- a tensor that is written may not overlap itself
                local plain = layout[1] == "contiguous"
                if not (writes and layout[1] == "expanded") and (plain or not takes_pairs[op.name])
                    and not (layout[1] == "expanded" and without_special[op.name])
                    and not ((layout[1] == "without axes" or layout[1] == "one element") and unchecked[op.name]) then
                    cuda.agree(name .. ", " .. layout[1], f, fresh(args, writes), writes, layout[2], op.composite)
                end
            end
            local large = map_tensors(adds_many[op.name] and map_tensors(args, in_dtype "float64") or args, cuda.larger(LARGE))
            large.n = args.n
            if not unchecked[op.name] and fits(op, large) then
                cuda.agree(name .. ", larger", f, fresh(large, writes), writes, nil, op.composite)
            end
            if without_special[op.name] or pads[op.name] then return end
            cuda.agree(name .. ", special", f, fresh(map_tensors(args, cuda.special), writes), writes, nil, op.composite)
        end)
    end)
end)

describe("on the GPU in every dtype,", function()
    each_sample(function(op, sample, name)
        if op.source then return end
        cuda.it_with(cuda.libraries[op.name], name, function()
            local f, writes = caller(op)
            for _, dtype in ipairs(some(DTYPES, 3, name)) do
                local args = map_tensors(arguments(op, sample), in_dtype(dtype))
                cuda.agree(("%s in %s"):format(name, dtype), f, fresh(args, writes), writes, nil, op.composite)
                if not takes_pairs[op.name] then
                    cuda.agree(("%s in %s, strided"):format(name, dtype), f, fresh(args, writes), writes, support.strided, op.composite)
                end
            end
        end)
    end)
end)

---- gradients ----

-- Sum over the float results, each element weighted by a number of its own.
local function scalar_of(results)
    local total
    for j = 1, results.n do
        local y = results[j]
        if flow.is_tensor(y) and y.dtype:find "float" and y.requires_grad then
            local weight = (flow.arange(y:numel(), {dtype = "float64"}) * 0.37 + 0.5 + j):cos():to(y.dtype):to(y.device)
            local s = (y * weight:reshape(y.shape)):sum()
            total = total and total + s or s
        end
    end
    return total
end

-- First derivatives, and those of their weighted sum, of the op by its float operands.
local function derivatives(op, args, order)
    local leaves = {}
    local live = map_tensors(args, function(t)
        if not t.dtype:find "float" then return t end
        local leaf = t:detach()
        leaf.requires_grad = true
        leaves[#leaves + 1] = leaf
        return op.mutates and leaf:clone() or leaf  -- a leaf must not be written
    end)
    flow.manual_seed(7)
    local y = scalar_of(table.pack(op.call(table.unpack(live, 1, live.n))))
    if not y then return end
    local list = flow.grad(y, leaves, {allow_unused = true, create_graph = order == 2})
    local found = table.move(list, 1, #leaves, 1, {n = #leaves})
    local slope = order == 2 and scalar_of(found)
    if slope then
        table.move(flow.grad(slope, leaves, {allow_unused = true}), 1, #leaves, #leaves + 1, found)
        found.n = 2 * #leaves
    end
    return table.unpack(found, 1, found.n)
end

describe("gradients on the GPU:", function()
    each_sample(function(op, sample, name)
        if not op.differentiable then return end
        cuda.it_with(cuda.libraries[op.name], name, function()
            local cases = {{"float32", 1}, {"float32", 1, support.strided}, {"bfloat16", 1}, {"bfloat16", 1, support.strided}}
            cases = {{"float64", 2}, {"float64", 2, support.strided}, table.unpack(some(cases, 1, name))}
            for _, case in ipairs(cases) do
                local dtype, order, layout = table.unpack(case)
                local args = map_tensors(arguments(op, sample), in_dtype(dtype))
                local function f(list) return derivatives(op, list, order) end
                cuda.agree(("%s in %s%s"):format(name, dtype, layout and ", strided" or ""), f, args, false, layout, op.composite)
            end
            local args = map_tensors(arguments(op, sample), in_dtype(adds_many_back[op.name] and "float64" or "float32"))
            args = map_tensors(args, cuda.larger(LARGE // 3))
            if fits(op, args) then
                cuda.agree(name .. ", larger", function(list) return derivatives(op, list, 1) end, args, false, nil, op.composite)
            end
        end)
    end)
end)
