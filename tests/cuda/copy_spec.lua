-- copy_spec.lua -- copies on the GPU against the CPU: every order of axes with sizes around those of tiles and units, elements of
-- 1 to 8 bytes, slices and steps, conversions between all dtypes, joining, repeating, filling.
local flow = require "flow"
local cuda = require "tests.cuda.support"

local WIDTHS = {"uint8", "float16", "float32", "float64"}
local ALL = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

local function numbers(dtype, shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return (flow.arange(n) * 7919 % 251):view(shape):to(dtype)
end

local function permutations(n)
    local list, current, used = {}, {}, {}
    local function extend()
        if #current == n then list[#list + 1] = table.move(current, 1, n, 1, {}) end
        for axis = 0, n - 1 do
            if not used[axis] then
                used[axis] = true
                current[#current + 1] = axis
                extend()
                current[#current] = nil
                used[axis] = nil
            end
        end
    end
    extend()
    return list
end

-- Both give a result, and the same.
local function agree(what, f, ...)
    local want = cuda.agree(what, function(args) return f(table.unpack(args, 1, args.n)) end, table.pack(...))
    assert.is_truthy(want, what .. " failed on both")
end

local function permuted(dtype, shape, order)
    agree(("%s [%s] permuted by (%s)"):format(dtype, table.concat(shape, ", "), table.concat(order, ", ")),
          function(t) return t:permute(order):contiguous() end, numbers(dtype, shape))
end

describe("copies on the GPU", function()
    for _, dtype in ipairs(WIDTHS) do
        cuda.it("put the axes in any order: " .. dtype, function()
            for _, shape in ipairs {{2, 3, 5}, {33, 4, 17}, {3, 40, 36}, {7, 1, 66}, {8, 16, 32}} do
                for _, order in ipairs(permutations(3)) do permuted(dtype, shape, order) end
            end
            for _, order in ipairs(permutations(4)) do
                permuted(dtype, {3, 5, 7, 9}, order)
                permuted(dtype, {4, 8, 2, 16}, order)
            end
            permuted(dtype, {2, 3, 2, 3, 2, 3, 2, 2}, {7, 6, 5, 4, 3, 2, 1, 0})
            permuted(dtype, {2, 3, 2, 3, 2, 3, 2, 2}, {1, 3, 5, 7, 0, 2, 4, 6})
        end)

        cuda.it("transpose matrices of any size: " .. dtype, function()
            for _, rows in ipairs {1, 31, 32, 64, 66, 100, 128, 130} do
                for _, columns in ipairs {1, 33, 48, 64, 96, 128, 132} do permuted(dtype, {rows, columns}, {1, 0}) end
            end
            permuted(dtype, {3, 64, 64}, {0, 2, 1})
            permuted(dtype, {2, 64, 3, 128}, {0, 3, 2, 1})
            for inner = 1, 9 do permuted(dtype, {40, 36, inner}, {1, 0, 2}) end     -- short runs that stay together
        end)

        cuda.it("take what is cut out, from any address: " .. dtype, function()
            local x = numbers(dtype, {9, 72, 72})
            for _, cut in ipairs {{0, 64}, {1, 64}, {3, 17}, {4, 32}, {8, 64}} do
                agree("narrow " .. dtype, function(t) return t:narrow(2, cut[1], cut[2]):contiguous() end, x)
                agree("narrow, turned " .. dtype, function(t) return t:narrow(2, cut[1], cut[2]):transpose(1, 2):contiguous() end, x)
                agree("narrow, all turned " .. dtype, function(t) return t:narrow(1, cut[1], cut[2]):permute(2, 1, 0):contiguous() end, x)
            end
            agree("steps " .. dtype, function(t) return t[{{}, {0, 71, 3}, {1, 71, 2}}]:contiguous() end, x)
            agree("expanded " .. dtype, function(t)
                return t:narrow(2, 0, 1):expand(9, 72, 5):contiguous(), t:narrow(0, 0, 1):expand(4, 72, 72):transpose(0, 2):contiguous()
            end, x)
            for _, size in ipairs {{16, 33}, {17, 128}, {40, 600}, {70, 1100}} do
                agree(("row of %d, %d times, %s"):format(size[2], size[1], dtype), function(t)
                    local row, wide = t:narrow(0, 0, size[2]):expand(size), flow.zeros(size[1], size[2] + 3, {dtype = dtype, device = t.device})
                    wide:narrow(1, 2, size[2]):copy_(row)
                    return row:contiguous(), t:narrow(0, 1, size[2]):expand(size):contiguous(), wide
                end, numbers(dtype, {1101}))
            end
        end)

        cuda.it("write into views: " .. dtype, function()
            local x, y = numbers(dtype, {20, 36}), numbers(dtype, {36, 20})
            for name, view in pairs {
                whole = function(t) return t:t() end,
                part = function(t) return t:narrow(0, 3, 10):narrow(1, 5, 20) end,
            } do
                agree("copy_ " .. name .. dtype, function(a, b)
                    local t = a:clone()
                    local v = view(t)
                    v:copy_(b:narrow(0, 0, v:size(0)):narrow(1, 0, v:size(1)))
                    view(t):narrow(0, 0, 2):fill_(3)
                    view(t):narrow(1, 1, 1):zero_()
                    view(t):narrow(0, 4, 3):copy_(b:narrow(0, 0, 1):narrow(1, 0, 1))
                    return t
                end, x, y)
            end
        end)
    end

    cuda.it("convert any dtype into any other", function()
        for _, from in ipairs(ALL) do
            local x = numbers(from, {6, 33})
            if from:find "int" then x = x * 37 - 19 end
            if from:find "float" then
                x = flow.cat({flow.tensor({0 / 0, 1 / 0, -1 / 0, -0.0, 1e9, -3e9, 0.4, -1.7, 65504, 70000, 1e-7}):to(from), x:view(-1) * 1.25 - 30})
            end
            for _, to in ipairs(ALL) do
                agree(from .. " to " .. to, function(t) return t:to(to) end, x)
                agree(from .. " to " .. to .. ", a part", function(t) return t:narrow(0, 1, t:size(0) - 1):to(to) end, x)
                agree(from .. " to " .. to .. ", turned", function(t) return t:reshape(-1):narrow(0, 0, 198):view(6, 33):t():to(to) end, x)
            end
        end
    end)

    cuda.it("convert in any order of axes", function()
        for _, pair in ipairs {{"float32", "bfloat16"}, {"bfloat16", "float32"}, {"uint8", "float32"}, {"float64", "uint8"}, {"bool", "int64"}} do
            local from, to = table.unpack(pair)
            for _, shape in ipairs {{33, 4, 17}, {70, 130, 1}, {3, 66, 65}} do
                local x = numbers(from, shape)
                for _, order in ipairs(permutations(3)) do
                    agree(("%s to %s by (%s)"):format(from, to, table.concat(order, ", ")), function(t)
                        local target = flow.zeros(t:permute(order).shape, {dtype = to, device = t.device})
                        return t:permute(order):narrow(2, 0, 1):to(to), target:copy_(t:permute(order))
                    end, x)
                end
            end
        end
    end)

    cuda.it("join and repeat", function()
        for _, dtype in ipairs {"uint8", "float16", "float64"} do
            local x, y = numbers(dtype, {3, 5, 8}), numbers(dtype, {3, 2, 8})
            agree("cat", function(a, b) return flow.cat({a, b, a}, 1), flow.cat({a:narrow(1, 3, 2), b}, 2) end, x, y)
            agree("stack", function(a) return flow.stack({a, a * 2}, 1), flow.stack({a, a}, -1) end, x)
            agree("rep", function(a) return a:rep({2, 3, 2}), a:rep({2, 1, 1, 3}), a:transpose(0, 2):rep({1, 2, 3}) end, x)
        end
        agree("cat of two dtypes", function(a, b) return flow.cat({a, b}) end, numbers("int32", {7}), numbers("float16", {9}))
    end)

    cuda.it("fill", function()
        for _, dtype in ipairs(ALL) do
            for _, n in ipairs {0, 1, 3, 64, 1001} do
                agree("fills " .. dtype, function(t)
                    return flow.full_like(t, 1), flow.zeros_like(t), flow.ones_like(t), t:clone():fill_(1), t:clone():zero_()
                end, numbers(dtype, {n}))
            end
        end
    end)

    cuda.it("copy and fill many bytes from any address", function()
        for _, dtype in ipairs(WIDTHS) do
            local x = numbers(dtype, {140001})
            for _, cut in ipairs {{0, 140001}, {0, 140000}, {1, 139999}, {3, 131072}, {7, 139994}} do
                local text = ("%s %d + %d"):format(dtype, cut[1], cut[2])
                agree(text, function(t)
                    local filled = t:clone()
                    filled:narrow(0, cut[1], cut[2]):fill_(7)
                    return t:narrow(0, cut[1], cut[2]):clone(), filled, t:clone():narrow(0, 140001 - cut[2], cut[2]):copy_(t:narrow(0, cut[1], cut[2]))
                end, x)
            end
        end
    end)
end)
