-- registry_spec.lua -- every registered op on the GPU against the CPU, by the op's own samples: layouts, sizes, dtypes, numbers
-- that are none, gradients of first and second order. What the CPU refuses the GPU refuses with the same words.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local ops = flow._testing.ops()
table.sort(ops, function(a, b) return a.name < b.name end)

local LARGE = cuda.emulated and 3000 or 300000
local DTYPES = {"float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"}

local arguments = support.arguments

local function mapped(args, f)
    local list = cuda.map(args, f)
    list.n = args.n
    return list
end

-- The op as a function of its arguments; what it writes is a copy.
local function caller(op)
    local writes = op.mutates or op.name:sub(-1) == "_"
    return function(args)
        flow.manual_seed(7)
        return op.call(table.unpack(args, 1, args.n))
    end, writes
end

local function fresh(args, writes)
    return writes and mapped(args, function(t) return t:clone() end) or args
end

-- Arguments of an op without tensors, for a device.
local function placed(args, device)
    local list, options = table.pack(table.unpack(args, 1, args.n)), {}
    local n = args.n
    if type(args[n]) == "table" and #args[n] == 0 and next(args[n]) then
        for key, v in pairs(args[n]) do options[key] = v end
        n = n - 1
    end
    if options.placement then return end
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

-- Ops of LAPACK have no kernel on a GPU; nor has this one with a negative power.
local function only_on_host(op, sample) return op.host_only or op.name == "linalg.matrix_power" and sample:find(", -", 1, true) end

local function each_sample(f)
    for _, op in ipairs(ops) do
        for i, sample in ipairs(op.samples) do if not only_on_host(op, sample) then f(op, sample, ("%s sample %d"):format(op.name, i)) end end
    end
end

describe("without a kernel on the GPU,", function()
    for _, op in ipairs(ops) do
        if op.host_only then
            cuda.it(op.name .. " says to compute on the CPU", function()
                local args = mapped(arguments(op, op.samples[1]), cuda.to_gpu)
                local message = support.message_of(op.call, table.unpack(args, 1, args.n))
                assert.is_truthy(message:find("it has no cuda kernel; move the operands to the CPU: x:to(\"cpu\")", 1, true), message)
            end)
        end
    end
end)

describe("on the GPU,", function()
    each_sample(function(op, sample, name)
        cuda.it(name .. " gives what it gives on the CPU", function()
            local args = arguments(op, sample)
            if op.source then return check_source(op, args, name) end
            local f, writes = caller(op)
            for _, layout in ipairs(cuda.layouts) do
                -- a tensor that is written may not overlap itself
                if not (writes and layout[1] == "expanded") then
                    cuda.agree(name .. ", " .. layout[1], f, fresh(args, writes), writes, layout[2])
                end
            end
            cuda.agree(name .. ", larger", f, fresh(mapped(args, cuda.larger(LARGE)), writes), writes)
            cuda.agree(name .. ", special", f, fresh(mapped(args, cuda.special), writes), writes)
        end)
    end)
end)

describe("on the GPU in every dtype,", function()
    each_sample(function(op, sample, name)
        if op.source then return end
        cuda.it(name, function()
            local f, writes = caller(op)
            for _, dtype in ipairs(DTYPES) do
                local args = mapped(arguments(op, sample), in_dtype(dtype))
                cuda.agree(("%s in %s"):format(name, dtype), f, fresh(args, writes), writes)
                cuda.agree(("%s in %s, strided"):format(name, dtype), f, fresh(args, writes), writes, support.strided)
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
    local live = mapped(args, function(t)
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
        cuda.it(name, function()
            for _, case in ipairs {{"float64", 2}, {"float32", 1}, {"bfloat16", 1}} do
                local dtype, order = case[1], case[2]
                local args = mapped(arguments(op, sample), in_dtype(dtype))
                local function f(list) return derivatives(op, list, order) end
                cuda.agree(("%s in %s"):format(name, dtype), f, args)
                cuda.agree(("%s in %s, strided"):format(name, dtype), f, args, false, support.strided)
            end
            local args = mapped(arguments(op, sample), cuda.larger(LARGE // 3))
            cuda.agree(name .. ", larger", function(list) return derivatives(op, list, 1) end, args)
        end)
    end)
end)
