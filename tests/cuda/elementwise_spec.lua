-- elementwise_spec.lua -- elementwise ops on the GPU against the CPU where a kernel has ways of its own: lengths around groups of
-- 16 bytes, rows and columns that are broadcast, addresses that are not aligned, mixtures of dtypes, numbers, results in
-- place, what cannot be computed. Every row by its samples is in registry_spec.lua.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local FLOATS = {"float32", "float64", "float16", "bfloat16"}
local ALL = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

-- Numbers of both signs; never 0 unless `zeros`.
local function numbers(dtype, shape, zeros)
    flow.manual_seed(#shape + 11)
    if dtype == "bool" then return flow.rand(shape):gt(0.4) end
    if dtype == "uint8" then return flow.randint(zeros and 0 or 1, 200, shape):to(dtype) end
    local x = flow.randint(zeros and -9 or 1, 10, shape)
    if not zeros then x = x * (flow.randint(0, 2, shape) * 2 - 1) end
    return x:to(dtype) * (dtype:find "float" and 0.375 or 1)
end

local function try(what, f, ...)
    return cuda.agree(what, function(args) return f(table.unpack(args, 1, args.n)) end, table.pack(...))
end

-- Both give a result, and the same.
local function agree(what, ...) assert.is_truthy(try(what, ...), what .. " failed on both") end

-- Both fail, with the same words.
local function refuse(what, ...) assert.is_nil(try(what, ...), what) end

local BINARY = {
    add = function(x, y) return x + y end,
    mul = function(x, y) return x * y end,
    maximum = function(x, y) return flow.maximum(x, y) end,
    lt = function(x, y) return x:lt(y) end,
}

describe("elementwise on the GPU", function()
    for _, dtype in ipairs(ALL) do
        cuda.it("takes every length: " .. dtype, function()
            for _, n in ipairs {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 2047, 2048, 2049, 8195} do
                local x, y = numbers(dtype, {n}, true), numbers(dtype, {n + 1}, true):narrow(0, 0, n)
                for name, f in pairs(BINARY) do agree(("%s %d %s"):format(name, n, dtype), f, x, y) end
                agree(("isnan %d %s"):format(n, dtype), function(a) return a:isnan() end, x)
                agree(("where %d %s"):format(n, dtype), function(a, b) return flow.where(a:gt(b), a, b) end, x, y)
                agree(("masked_fill %d %s"):format(n, dtype), function(a, b) return a:masked_fill(a:lt(b), dtype == "bool" or 1) end, x, y)
            end
        end)

        cuda.it("broadcasts rows, columns and single elements: " .. dtype, function()
            local x = numbers(dtype, {6, 5, 32}, true)
            for _, shape in ipairs {{32}, {5, 1}, {6, 1, 1}, {6, 1, 32}, {1}, {1, 5, 32}, {6, 5, 1}, {}} do
                local y = #shape == 0 and numbers(dtype, {1}, true):view({}) or numbers(dtype, shape, true)
                for name, f in pairs(BINARY) do
                    agree(("%s %s of %s"):format(name, dtype, support.shape_text(y.shape)), f, x, y)
                    agree(("%s %s of %s, first"):format(name, dtype, support.shape_text(y.shape)), f, y, x)
                end
            end
            local odd = numbers(dtype, {4, 3, 7}, true)
            for _, shape in ipairs {{7}, {3, 1}, {4, 1, 1}, {4, 1, 7}} do
                for name, f in pairs(BINARY) do agree(name .. " odd " .. dtype, f, odd, numbers(dtype, shape, true)) end
            end
        end)

        cuda.it("takes any layout: " .. dtype, function()
            local x, y = numbers(dtype, {5, 6, 16}, true), numbers(dtype, {5, 6, 17}, true):narrow(2, 1, 16)
            local z = numbers(dtype, {16, 6, 5}, true):transpose(0, 2)
            for name, f in pairs(BINARY) do
                agree(name .. " sliced " .. dtype, f, x, y)
                agree(name .. " transposed " .. dtype, f, z, x)
                agree(name .. " both " .. dtype, f, z, y)
                agree(name .. " every other " .. dtype, f, x[{{0, 4, 2}}], x[{{0, 4, 2}}])
            end
        end)
    end

    cuda.it("takes any two dtypes", function()
        for _, a in ipairs(ALL) do
            for _, b in ipairs(ALL) do
                local x, y = numbers(a, {3, 40}, true), numbers(b, {3, 40}, true)
                for name, f in pairs(BINARY) do agree(("%s of %s and %s"):format(name, a, b), f, x, y) end
                agree(("div of %s and %s"):format(a, b), function(p, q) return p / q end, x, numbers(b, {40}))
                agree(("logical_xor of %s and %s"):format(a, b), function(p, q) return p:logical_xor(q) end, x, y)
            end
        end
    end)

    cuda.it("takes numbers on either side", function()
        for _, dtype in ipairs(ALL) do
            for _, n in ipairs {5, 64} do
                local x = numbers(dtype, {n}, true)
                for _, number in ipairs {2, -3, 0.1, 300, 1e10} do
                    for name, f in pairs(BINARY) do
                        agree(("%s %s %g"):format(name, dtype, number), function(a) return f(a, number) end, x)
                    end
                    agree(("%g - %s"):format(number, dtype), function(a) return number - a end, x)
                end
            end
        end
    end)

    cuda.it("writes in place, into views too", function()
        for _, dtype in ipairs(FLOATS) do
            for _, view in ipairs {
                function(t) return t end,
                function(t) return t:t() end,
                function(t) return t:narrow(1, 3, 16) end,
                function(t) return t:narrow(0, 1, 3):select(1, 2) end,
            } do
                local x = numbers(dtype, {8, 24}, true)
                cuda.agree("in place " .. dtype, function(args)
                    local t = args[1]:clone()
                    local v = view(t)
                    v:mul_(3):add_(v):clamp_(-5, 6)
                    v:sub_(flow.ones_like(v))
                    return t
                end, {x})
            end
        end
    end)

    cuda.it("brings integers and floats into bounds", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "float16", "float32", "float64"} do
            local x = numbers(dtype, {70}, true)
            for _, bounds in ipairs {{-2, 3}, {nil, 4}, {1, nil}, {-1000, 1000}, {5, 2}} do
                agree("clamp " .. dtype, function(a) return a:clamp(bounds[1], bounds[2]) end, x)
            end
        end
    end)

    cuda.it("treats what is not a number as the CPU does", function()
        local odd = {0 / 0, 1 / 0, -1 / 0, 0.0, -0.0, 1, -1, 2, 0.5, -2.5, 3.5, 1e-40, 3e38, -3e38}
        for _, dtype in ipairs(FLOATS) do
            local x = flow.tensor(odd):to(dtype):unsqueeze(1):expand(#odd, #odd):contiguous()
            local y = x:t():contiguous()
            for _, name in ipairs {"add", "sub", "mul", "div", "fmod", "remainder", "floor_divide", "pow", "maximum", "minimum", "atan2",
                                   "eq", "ne", "lt", "le", "gt", "ge"} do
                agree(name .. " " .. dtype, function(a, b) return a[name](a, b) end, x, y)
            end
            for _, name in ipairs {"abs", "sign", "relu", "sqrt", "exp", "log", "sigmoid", "tanh", "floor", "ceil", "round", "trunc",
                                   "isnan", "isinf", "isfinite", "log1p", "expm1", "erf", "silu", "reciprocal"} do
                agree(name .. " " .. dtype, function(a) return a[name](a) end, x)
            end
        end
    end)

    cuda.it("divides integers as Lua does, and says when it cannot", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64"} do
            local x, y = numbers(dtype, {300}, true), numbers(dtype, {300})
            for _, name in ipairs {"fmod", "remainder", "floor_divide"} do
                agree(name .. " " .. dtype, function(a, b) return a[name](a, b) end, x, y)
                refuse(name .. " by 0 " .. dtype, function(a, b) return a[name](a, b * 0) end, x, y)
            end
            agree("pow " .. dtype, function(a) return a ^ 3 end, x)
            agree("pow to tensors " .. dtype, function(a, b) return a:pow(b:abs()) end, x, y)
        end
        refuse("a negative power", function(a) return a ^ -2 end, flow.tensor({1, 2, 3}))
        agree("the lowest by -1", function(a, b) return a:floor_divide(b), a:remainder(b) end,
              flow.full({5}, math.mininteger), flow.full({5}, -1))
    end)
end)
