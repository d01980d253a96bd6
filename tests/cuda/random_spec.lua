-- random_spec.lua -- random numbers on the GPU: the CPU's bit for bit, whatever the dtype, the size and the window.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local LONG = cuda.emulated and 5003 or 1000003
local FLOATS = {"float32", "float64", "float16", "bfloat16"}

-- f(device) with the same generator on both.
local function equal(what, f)
    local function run(device)
        flow.manual_seed(11)
        return f(device)
    end
    local got = run "cuda"
    assert.are.equal("cuda", got.device, what)
    support.same(run "cpu", got:to("cpu"), what, 0)
end

describe("on the GPU", function()
    cuda.it("floats are those of the CPU", function()
        for _, dtype in ipairs(FLOATS) do
            for _, size in ipairs {1, 2, 3, 5, 130, LONG} do
                local function options(device) return {dtype = dtype, device = device} end
                equal("rand " .. dtype, function(device) return flow.rand(size, options(device)) end)
                equal("randn " .. dtype, function(device) return flow.randn(size, options(device)) end)
                equal("uniform_ " .. dtype, function(device) return flow.zeros(size, options(device)):uniform_(-2, 3.5) end)
                equal("normal_ " .. dtype, function(device) return flow.zeros(size, options(device)):normal_(0.3, 1.7) end)
            end
            equal("strided " .. dtype, function(device) return flow.zeros(9, 14, {dtype = dtype, device = device}):t():narrow(0, 1, 7):normal_() end)
        end
    end)

    cuda.it("integers and permutations are those of the CPU", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "float32", "bfloat16"} do
            equal("randint " .. dtype, function(device) return flow.randint(0, 100, {LONG}, {dtype = dtype, device = device}) end)
        end
        equal("bool", function(device) return flow.randint(0, 2, {70}, {dtype = "bool", device = device}) end)
        equal("wide", function(device) return flow.randint(-4000000000, 4000000000, {1001}, {device = device}) end)
        equal("all", function(device) return flow.randint(math.mininteger, math.maxinteger, {77}, {device = device}) end)
        for _, n in ipairs {0, 1, 2, 255, 2048, 2049, LONG} do
            equal("randperm " .. n, function(device) return flow.randperm(n, {device = device}) end)
        end
        equal("randperm int32", function(device) return flow.randperm(300, {dtype = "int32", device = device}) end)
    end)

    cuda.it("dropout and its gradient are those of the CPU", function()
        for _, dtype in ipairs(FLOATS) do
            for _, p in ipairs {0.1, 0.5, 1} do
                equal(("dropout %s %g"):format(dtype, p), function(device)
                    local x = flow.randn(37, 9):to(dtype):to(device):requires_grad_(true)
                    local y = flow.dropout(x, p)
                    return flow.cat{y, flow.grad((y * 3):sum(), {x})[1]}:detach()
                end)
            end
            equal("bernoulli " .. dtype, function(device) return flow.bernoulli(flow.rand(LONG):to(dtype):to(device)) end)
            equal("bernoulli of a view " .. dtype, function(device) return flow.bernoulli(flow.rand(30, 7):to(dtype):to(device):t()) end)
        end
        assert.are.equal("bernoulli: probability 1.5 is not between 0 and 1", support.message_of(function()
            flow.bernoulli(flow.tensor({0.5, 1.5}, {device = "cuda"}))
        end))
    end)
end)

describe("parts of global tensors on the GPU", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    cuda.it("draw what the whole tensor has there", function()
        for rank = 0, 2 do
            flow._testing.set_world(3, rank)
            for _, sbp in ipairs {"S(0)", "S(1)", "S(2)", "B"} do
                for _, case in ipairs {
                    {"rand", function(o) return flow.rand(7, 10, 5, o) end},
                    {"randn float16", function(o) o.dtype = "float16" return flow.randn(7, 10, 5, o) end},
                    {"randint", function(o) return flow.randint(0, 1 << 40, {7, 10, 5}, o) end},
                    {"randint int8", function(o) o.dtype = "int8" return flow.randint(0, 100, {7, 10, 5}, o) end},
                    {"uniform_", function(o) return flow.ones(7, 10, 5, o):uniform_(1, 2) end},
                    {"dropout", function(o) return flow.dropout(flow.randn(7, 10, 5, o), 0.3) end},
                    {"bernoulli", function(o) return flow.bernoulli(flow.rand(7, 10, 5, o)) end},
                } do
                    equal(("%s %s, rank %d"):format(case[1], sbp, rank), function(device)
                        return case[2]{placement = flow.placement(device, {0, 1, 2}), sbp = sbp}:to_local()
                    end)
                end
            end
            equal("randperm, rank " .. rank, function(device)
                return flow.randperm(1000, {placement = flow.placement(device, {0, 1, 2}), sbp = "S(0)"}):to_local()
            end)
        end
    end)
end)
