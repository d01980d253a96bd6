-- conv_spec.lua -- convolution and pooling against loops over every window, their gradients, what does not fit.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"

local fails = support.fails

local function pair(v)
    if type(v) == "table" then return v[1], v[2] end
    return v, v
end

local function largest(x, y) return x:numel() == 0 and 0 or (x - y):abs():amax():item() end

-- f(row, column, tap) for every tap of the window at (y, x) that lies in an image of that height and width; tap counts from 0.
local function each_tap(f, y, x, height, width, o)
    local kh, kw = pair(o.kernel)
    local sh, sw = pair(o.stride or 1)
    local ph, pw = pair(o.padding or 0)
    local dh, dw = pair(o.dilation or 1)
    for i = 0, kh - 1 do
        for j = 0, kw - 1 do
            local row, column = y * sh - ph + i * dh, x * sw - pw + j * dw
            if row >= 0 and row < height and column >= 0 and column < width then f(row, column, i * kw + j) end
        end
    end
end

---- convolution ----

-- The size of the result of a window of that size.
local function count(n, kernel, stride, padding, dilation) return (n + padding - dilation * (kernel - 1) - 1) // stride + 1 end

-- The padding that a word stands for: before and after an image.
local function paddings(case) return case.before or case.padding or 0, case.after or case.padding or 0 end

-- Nested lists: x [n][c][h][w], weight [o][c / groups][kh][kw].
local function convolve(x, weight, bias, o)
    local groups, out = o.groups or 1, {}
    local height, width, kw = #x[1][1], #x[1][1][1], #weight[1][1][1]
    local before, after = paddings(o)
    o = setmetatable({kernel = {#weight[1][1], kw}, padding = before}, {__index = o})
    local size = {}
    for d, n in ipairs {height, width} do
        size[d] = count(n, o.kernel[d], select(d, pair(o.stride or 1)),
            (select(d, pair(before))) + (select(d, pair(after))), (select(d, pair(o.dilation or 1))))
    end
    for n = 1, #x do
        out[n] = {}
        for c = 1, #weight do
            out[n][c] = {}
            local first = (c - 1) // (#weight // groups) * #weight[1]
            for i = 0, size[1] - 1 do
                out[n][c][i + 1] = {}
                for j = 0, size[2] - 1 do
                    local sum = bias and bias[c] or 0
                    each_tap(function(row, column, tap)
                        for k = 1, #weight[1] do
                            sum = sum + x[n][first + k][row + 1][column + 1] * weight[c][k][tap // kw + 1][tap % kw + 1]
                        end
                    end, i, j, height, width, o)
                    out[n][c][i + 1][j + 1] = sum
                end
            end
        end
    end
    return flow.tensor(out, {dtype = "float64"})
end

local convolutions = {
    {x = {2, 3, 8, 9}, w = {4, 3, 3, 3}},
    {x = {2, 3, 8, 9}, w = {4, 3, 3, 2}, stride = {2, 3}, padding = {1, 2}},
    {x = {1, 2, 9, 9}, w = {2, 2, 2, 2}, stride = 3, padding = 1, dilation = {2, 3}},
    {x = {3, 6, 5, 7}, w = {6, 1, 3, 3}, padding = 1, groups = 6},
    {x = {2, 4, 5, 6}, w = {6, 2, 2, 3}, dilation = 2, groups = 2},
    {x = {3, 5, 4, 6}, w = {7, 5, 1, 1}},                    -- the columns are the image
    {x = {2, 3, 7, 7}, w = {3, 3, 1, 1}, stride = 2},
    {x = {2, 2, 3, 3}, w = {3, 2, 5, 5}, padding = 3},       -- windows with more padding than image
    {x = {1, 8, 40, 40}, w = {4, 8, 3, 3}, padding = 1},     -- more columns than one piece has
    {x = {20, 1, 6, 6}, w = {3, 1, 3, 3}},                   -- more images than parts of a sum
    {x = {1, 1, 1, 1}, w = {1, 1, 1, 1}},
    {x = {2, 3, 7, 8}, w = {4, 3, 3, 5}, padding = "same", before = {1, 2}, after = {1, 2}},
    {x = {2, 3, 7, 8}, w = {4, 3, 2, 4}, padding = "same", before = {0, 1}, after = {1, 2}},    -- one more below and right
    {x = {2, 4, 5, 6}, w = {6, 2, 4, 2}, padding = "same", dilation = {2, 3}, groups = 2, before = {3, 1}, after = {3, 2}},
    {x = {2, 3, 2, 2}, w = {3, 3, 6, 1}, padding = "same", before = {2, 0}, after = {3, 0}},    -- more padding than image
    {x = {2, 3, 5, 6}, w = {4, 3, 3, 2}, padding = "valid", stride = 2, before = {0, 0}, after = {0, 0}},
}

local function name_of(case)
    local function text(v) return type(v) == "table" and table.concat(v, "x") or tostring(v or "-") end
    return ("x %s, weight %s, stride %s, padding %s, dilation %s, groups %s"):format(text(case.x), text(case.w), text(case.stride),
        text(case.padding), text(case.dilation), text(case.groups))
end

describe("conv2d", function()
    for _, case in ipairs(convolutions) do
        local options = {stride = case.stride, padding = case.padding, dilation = case.dilation, groups = case.groups}
        if not next(options) then options = nil end     -- an empty table is an empty list

        it("agrees with plain loops: " .. name_of(case), function()
            flow.manual_seed(1)
            local x, w, b = flow.randn(case.x), flow.randn(case.w), flow.randn(case.w[1])
            local want = convolve(x:totable(), w:totable(), b:totable(), case)
            for dtype, eps in pairs {float32 = 1e-5, float64 = 1e-12} do
                local got = flow.conv2d(x:to(dtype), w:to(dtype), b:to(dtype), options)
                assert.are.equal(dtype, got.dtype)
                assert.are.same(want.shape, got.shape)
                assert.is_true(largest(want, got:to("float64")) < eps * w:numel() / case.w[1])
                local bare = flow.conv2d(x:to(dtype), w:to(dtype), nil, options) + b:to(dtype):view(-1, 1, 1)
                assert.is_true(largest(bare, got) < eps * w:numel() / case.w[1])
            end
        end)

        -- <g, conv(x, w)> = <dx, x> = <dw, w>, as it is linear in both
        it("has gradients that are its adjoints: " .. name_of(case), function()
            flow.manual_seed(2)
            for dtype, eps in pairs {float32 = 1e-4, float64 = 1e-11} do
                local x, w = flow.randn(case.x):to(dtype), flow.randn(case.w):to(dtype)
                local v, u = flow.randn(case.x):to(dtype), flow.randn(case.w):to(dtype)
                x.requires_grad, w.requires_grad = true, true
                local y = flow.conv2d(x, w, nil, options)
                local g = flow.randn(y.shape):to(dtype)
                y:backward(g)
                local scale = math.sqrt(y:numel() * w:numel() / case.w[1]) + 1
                local by_x = (g * flow.conv2d(v, w:detach(), nil, options)):to("float64"):sum():item()
                local by_w = (g * flow.conv2d(x:detach(), u, nil, options)):to("float64"):sum():item()
                assert.is_true(math.abs(by_x - (x.grad * v):to("float64"):sum():item()) < eps * scale)
                assert.is_true(math.abs(by_w - (w.grad * u):to("float64"):sum():item()) < eps * scale)
            end
        end)
    end

    it("gives the same bits for any number of threads", function()
        local text = [[
            local flow = require "flow"
            flow.manual_seed(3)
            local x, w, b = flow.randn(37, 5, 12, 13), flow.randn(9, 5, 3, 3), flow.randn(9)
            for _, t in ipairs {x, w, b} do t.requires_grad = true end
            local y = flow.max_pool2d(flow.conv2d(x, w, b, 1, 1), 3, 2, 1)
            local loss = (y * y):sum()
            loss:backward()
            for _, t in ipairs {y, x.grad, w.grad, b.grad} do io.write(("%a "):format(t:abs():to("float64"):sum():item())) end]]
        local function run(threads) return (process.run("FLOW_THREADS=" .. threads, text)) end
        local want = run(1)
        assert.is_truthy(want:find "^0x")
        assert.are.equal(want, run(2))
        assert.are.equal(want, run(5))
    end)

    it("takes no images, and has gradients of none", function()
        local x, w, b = flow.zeros(0, 2, 5, 5), flow.randn(3, 2, 3, 3), flow.randn(3)
        for _, t in ipairs {x, w, b} do t.requires_grad = true end
        local y = flow.conv2d(x, w, b)
        assert.are.same({0, 3, 3, 3}, y.shape)
        y:sum():backward()
        assert.are.same({0, 2, 5, 5}, x.grad.shape)
        assert.are.equal(0, w.grad:abs():amax():item())
        assert.are.same({0, 0, 0}, b.grad:totable())
    end)

    it("promotes floats", function()
        local y = flow.conv2d(flow.ones(1, 1, 2, 2):to("bfloat16"), flow.ones(1, 1, 2, 2))
        assert.are.equal("float32", y.dtype)
        assert.are.equal(4, y:item())
    end)

    it("says what does not fit", function()
        local x, w = flow.zeros(2, 4, 5, 6), flow.zeros(6, 4, 3, 3)
        fails("conv2d: takes x [n, in, height, width] or [in, height, width] and weight [out, in / groups, height, width], " ..
            "got [5, 6] and [6, 4, 3, 3]", flow.conv2d, x[0][0], w)
        fails("conv2d: x [3, 5, 6] has 3 channels, weight [6, 4, 3, 3] takes 4 in each of 1 groups", flow.conv2d, flow.zeros(3, 5, 6), w)
        fails("conv2d: the window of weight [6, 4, 3, 3], spread by dilation 3, is larger than axis 1 of x [4, 5, 6] with padding 0",
            flow.conv2d, x[0], w, {dilation = 3})
        fails("conv2d: x [2, 4, 5, 6] has 4 channels, weight [6, 3, 3, 3] takes 3 in each of 1 groups", flow.conv2d, x, flow.zeros(6, 3, 3, 3))
        fails("conv2d: x [2, 4, 5, 6] has 4 channels, weight [6, 4, 3, 3] takes 4 in each of 2 groups", flow.conv2d, x, w, nil, {groups = 2})
        fails("conv2d: weight [5, 2, 3, 3] has 5 output channels, which is not a multiple of 2 groups", flow.conv2d, x, flow.zeros(5, 2, 3, 3), {groups = 2})
        fails("conv2d: weight [0, 4, 3, 3] has an axis of size 0", flow.conv2d, x, flow.zeros(0, 4, 3, 3))
        fails("conv2d: the window of weight [6, 4, 3, 3], spread by dilation 3, is larger than axis 2 of x [2, 4, 5, 6] with padding 0",
            flow.conv2d, x, w, {dilation = 3})
        fails("conv2d: bias must be [6] for weight [6, 4, 3, 3], got [4]", flow.conv2d, x, w, flow.zeros(4))
        fails("conv2d: stride must be between 1 and 2147483647, got 0", flow.conv2d, x, w, {stride = {1, 0}})
        fails("conv2d: stride must be one number or two (rows, columns), got 3", flow.conv2d, x, w, {stride = {1, 1, 1}})
        fails("conv2d: padding must be between 0 and 2147483647, got -1", flow.conv2d, x, w, {padding = -1})
        fails("conv2d: padding \"same\" needs stride 1, got stride 2", flow.conv2d, x, w, {padding = "same", stride = {1, 2}})
        fails("conv2d: padding must be one of same|valid, got 'sama'; did you mean 'same'?", flow.conv2d, x, w, {padding = "sama"})
        fails("conv2d: padding must be a whole number or a list of them, got boolean", flow.conv2d, x, w, {padding = true})
        fails("conv2d: stride must be a whole number or a list of them, got string", flow.conv2d, x, w, {stride = "same"})
        fails("conv2d: dilation must be between 1 and 2147483647, got 0", flow.conv2d, x, w, {dilation = 0})
        fails("conv2d: groups must be between 1 and 2147483647, got 0", flow.conv2d, x, w, {groups = 0})
        fails("conv2d: takes a float tensor, x is int64[2, 4, 5, 6]; write x:to(\"float32\")", flow.conv2d, x:to("int64"), w)
        fails("conv2d: unknown option 'strides'; did you mean 'stride'?", flow.conv2d, x, w, {strides = 2})
    end)
end)

---- one image ----

-- f(x) for an image without the first axis is f of a batch of one; so are its gradients.
local one_image = {
    {"conv2d", {3, 7, 6}, function(x, w, b) return flow.conv2d(x, w, b, {stride = {2, 1}, padding = 1}) end, {4, 3, 3, 2}, {4}},
    {"conv2d without a bias", {3, 7, 6}, function(x, w) return flow.conv2d(x, w) end, {4, 3, 1, 1}},
    {"conv2d in groups", {4, 5, 6}, function(x, w) return flow.conv2d(x, w, {groups = 2, dilation = 2}) end, {6, 2, 2, 3}},
    {"max_pool2d", {3, 7, 6}, function(x) return flow.max_pool2d(x, 3, {stride = 2, padding = 1, ceil_mode = true}) end},
    {"avg_pool2d", {3, 7, 6}, function(x) return flow.avg_pool2d(x, 2, 2, 1) end},
}

describe("one image without a batch axis:", function()
    for _, case in ipairs(one_image) do
        local name, shape, f = case[1], case[2], case[3]

        -- The result and the gradients of f, given x [channels, height, width] as it is or as a batch.
        local function run(as_batch, place)
            flow.manual_seed(4)
            local leaves = {flow.randn(shape)}
            for i = 4, #case do leaves[#leaves + 1] = flow.randn(case[i]) end
            for i, t in ipairs(leaves) do
                leaves[i] = place(t)
                leaves[i].requires_grad = true
            end
            local x = leaves[1]
            local y = f(as_batch and x:unsqueeze(0) or x, table.unpack(leaves, 2))
            if as_batch then y = y:squeeze(0) end
            (y * y):sum():backward()
            local got = {y:detach()}
            for i, t in ipairs(leaves) do got[i + 1] = t.grad end
            return got
        end

        local places = {
            ["a local tensor"] = function(t) return t end,
            ["a global tensor"] = function(t) return t:to_global {placement = flow.placement("cpu", {0}), sbp = "S(0)"} end,
        }
        for where, place in pairs(places) do
            it(name .. " of " .. where, function()
                local want, got = run(true, place), run(false, place)
                assert.are.equal(3, got[1]:dim())
                for i, t in ipairs(want) do
                    assert.are.same(t.shape, got[i].shape)
                    assert.are.same(t:reshape(-1):totable(), got[i]:reshape(-1):totable())
                end
            end)
        end
    end
end)

---- pooling ----

-- Positions of a window, with ceil_mode or without.
local function pooled(n, o, d)
    local k, s = select(d, pair(o.kernel)), (select(d, pair(o.stride or o.kernel)))
    local p, dilation = (select(d, pair(o.padding or 0))), (select(d, pair(o.dilation or 1)))
    local room = n + 2 * p - dilation * (k - 1) - 1
    local positions = (o.ceil_mode and (room + s - 1) // s or room // s) + 1
    if o.ceil_mode and (positions - 1) * s >= n + p then positions = positions - 1 end
    return positions, s, p, k
end

-- pick(elements of the window in order, its position): for every window of x [n, c, h, w], in order.
local function each_window(x, o, pick)
    local list, height, width, out = x:reshape(-1):totable(), x:size(2), x:size(3), {}
    local rows, columns = pooled(height, o, 1), pooled(width, o, 2)
    for plane = 0, x:size(0) * x:size(1) - 1 do
        for i = 0, rows - 1 do
            for j = 0, columns - 1 do
                local seen = {}
                each_tap(function(row, column)
                    local at = (plane * height + row) * width + column + 1
                    seen[#seen + 1] = {list[at], at}
                end, i, j, height, width, setmetatable({stride = o.stride or o.kernel}, {__index = o}))
                out[#out + 1] = pick(seen, i, j)
            end
        end
    end
    return out, {x:size(0), x:size(1), rows, columns}
end

local function same(want, got)
    assert.are.equal(#want, #got)
    for i, v in ipairs(want) do
        local close = v == got[i] or v ~= v and got[i] ~= got[i] or math.abs(v - got[i]) < 1e-5 * (1 + math.abs(v))
        assert.is_true(close, ("element %d is %s, not %s"):format(i, got[i], v))
    end
end

local poolings = {
    {x = {2, 3, 6, 8}, kernel = 2},
    {x = {2, 3, 7, 9}, kernel = 2},
    {x = {2, 3, 7, 9}, kernel = 2, ceil_mode = true},
    {x = {1, 2, 9, 40}, kernel = 3, stride = 1, padding = 1},
    {x = {3, 1, 8, 37}, kernel = {3, 2}, stride = {2, 3}, padding = {1, 0}},
    {x = {1, 2, 11, 23}, kernel = 3, stride = 2, padding = 1, ceil_mode = true},
    {x = {2, 2, 5, 5}, kernel = 5},
    {x = {1, 3, 4, 6}, kernel = 1, stride = 2},
    {x = {1, 1, 1, 1}, kernel = 2, padding = 1, stride = 1},
    {x = {1, 1, 3, 300}, kernel = 2}, -- rows of more windows than are taken at once
    {x = {1, 1, 3, 257}, kernel = 3, stride = 2, padding = 1},
    {x = {1, 1, 3, 275}, kernel = 3, stride = 1, padding = 1},
    {x = {1, 1, 2, 1300}, kernel = {2, 3}, stride = 1, padding = 1},
    {x = {1, 1, 2, 400}, kernel = 2, stride = 3},
    {x = {2, 1, 4, 256}, kernel = {2, 3}, stride = {1, 3}}, -- windows three apart, whose elements are dealt out
    {x = {1, 1, 3, 385}, kernel = 3},
    {x = {1, 1, 2, 130}, kernel = {2, 5}, stride = 3, padding = {0, 2}, ceil_mode = true},
    {x = {1, 1, 2, 130}, kernel = 2, stride = 4, padding = 1},
    {x = {1, 1, 3, 200}, kernel = 3, stride = 1, padding = 1}, -- a line that is taken at once
    {x = {1, 1, 2, 367}, kernel = {1, 17}, stride = 1, padding = {0, 8}},
}
local dilated = {
    {x = {2, 2, 9, 12}, kernel = 2, dilation = 3},
    {x = {2, 2, 9, 12}, kernel = {3, 2}, stride = 2, padding = 1, dilation = {2, 4}, ceil_mode = true},
    {x = {1, 1, 3, 140}, kernel = {1, 4}, stride = {1, 3}, padding = {0, 2}, dilation = {1, 5}},
}

local function options_of(case, more)
    local o = {stride = case.stride, padding = case.padding, dilation = case.dilation, ceil_mode = case.ceil_mode}
    for key, v in pairs(more or {}) do o[key] = v end
    return next(o) and o or nil
end

-- Small whole numbers, so that there are ties.
local function image(case, dtype)
    flow.manual_seed(5)
    local x = flow.randint(-3, 4, case.x):to(dtype)
    x.requires_grad = true
    return x
end

-- The gradient that x gets when window i of y passes g[i] to the elements at share(i) = {position, factor}, ...
local function check_gradient(x, y, share)
    local g = (flow.arange(y:numel()) % 7 + 1):to(y.dtype)
    y:backward(g:view(y.shape))
    local want = {}
    for i = 1, x:numel() do want[i] = 0 end
    for i, weight in ipairs(g:totable()) do
        for _, to in ipairs(share[i]) do want[to[1]] = want[to[1]] + weight * to[2] end
    end
    same(want, x.grad:reshape(-1):totable())
end

-- The first largest, but the last NaN.
local function largest_of(seen)
    local best, at = -math.huge, seen[1][2]
    for _, element in ipairs(seen) do
        if element[1] > best or element[1] ~= element[1] then best, at = element[1], element[2] end
    end
    return best, at
end

describe("max_pool2d", function()
    local all = table.move(dilated, 1, #dilated, #poolings + 1, {table.unpack(poolings)})
    for i, case in ipairs(all) do
        it("agrees with plain loops, case " .. i, function()
            for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
                local x, share = image(case, dtype), {}
                local want, shape = each_window(x:detach(), case, function(seen)
                    local best, at = largest_of(seen)
                    share[#share + 1] = {{at, 1}}
                    return best
                end)
                local y = flow.max_pool2d(x, case.kernel, options_of(case))
                assert.are.equal(dtype, y.dtype)
                assert.are.same(shape, y.shape)
                same(want, y:detach():reshape(-1):totable())
                same(want, flow.max_pool2d(x:detach(), case.kernel, options_of(case)):reshape(-1):totable())
                check_gradient(x, y, share)
            end
        end)
    end

    it("gives the same values with and without a gradient, whatever numbers are in the windows", function()
        flow.manual_seed(6)
        for _, dtype in ipairs {"float32", "float64"} do
            for _, special in ipairs {0 / 0, math.huge, -math.huge} do
                local x = flow.randn(2, 2, 5, 1300):to(dtype)
                for _, other in ipairs {special, -special} do x = flow.where(flow.rand(x.shape):lt(0.05), other, x) end
                local wanted = x:clone()
                wanted.requires_grad = true
                for _, o in ipairs {{stride = 1}, {stride = 1, padding = 1}, {stride = 2, padding = 1}, {stride = 3}, {stride = 1, dilation = 2}} do
                    local y, z = flow.max_pool2d(x, 3, o), flow.max_pool2d(wanted, 3, o):detach()
                    assert.is_true(y:eq(z):logical_or(y:ne(y):logical_and(z:ne(z))):all():item())
                end
            end
        end
    end)

    it("lets NaN win, takes the first of equals, and -inf where there is nothing else", function()
        local nan, inf = 0 / 0, math.huge
        local x = flow.tensor {{{{1, 1, nan, 9, -inf, -inf}, {1, 1, 8, 7, -inf, -inf}}}}
        x.requires_grad = true
        local y = flow.max_pool2d(x, 2)
        same({1, nan, -inf}, y:detach():reshape(-1):totable())
        y:backward(flow.tensor {{{{2, 3, 4}}}})
        same({2, 0, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0}, x.grad:reshape(-1):totable())
    end)

    it("takes no images", function()
        assert.are.same({0, 3, 2, 2}, flow.max_pool2d(flow.zeros(0, 3, 4, 4), 2).shape)
        assert.are.same({2, 0, 2, 2}, flow.avg_pool2d(flow.zeros(2, 0, 4, 4), 2).shape)
    end)

    it("says what does not fit", function()
        local x = flow.zeros(2, 3, 4, 5)
        fails("max_pool2d: takes x [n, channels, height, width] or [channels, height, width], got [4, 5]", flow.max_pool2d, x[0][0], 2)
        fails("max_pool2d: a window of 5, spread by dilation 1, is larger than axis 1 of x [3, 4, 5] with padding 0", flow.max_pool2d, x[0], 5)
        fails("max_pool2d: a window of 3, spread by dilation 2, is larger than axis 2 of x [2, 3, 4, 5] with padding 0", flow.max_pool2d, x, 3,
            {dilation = 2})
        fails("max_pool2d: padding must be at most half of the kernel size, got padding 2 and kernel size 3", flow.max_pool2d, x, 3, {padding = 2})
        fails("max_pool2d: kernel_size must be between 1 and 2147483647, got 0", flow.max_pool2d, x, 0)
        fails("max_pool2d: kernel_size 1073741824 x 4 holds more than 2147483647 elements", flow.max_pool2d, x, {1 << 30, 4})
        fails("max_pool2d: stride must be one number or two (rows, columns), got 3", flow.max_pool2d, x, 2, {stride = {1, 1, 1}})
        fails("max_pool2d: takes a float tensor, x is int64[2, 3, 4, 5]; write x:to(\"float32\")", flow.max_pool2d, x:to("int64"), 2)
    end)
end)

describe("avg_pool2d", function()
    for i, case in ipairs(poolings) do
        for _, more in ipairs {{}, {count_include_pad = false}, {divisor_override = 3}} do
            it(("agrees with plain loops, case %d, %s"):format(i, next(more) or "as it is"), function()
                local x, share = image(case, "float64"), {}
                local function length(position, d)
                    local _, s, p, k = pooled(case.x[d + 2], case, d)
                    return math.min(position * s - p + k, case.x[d + 2] + p) - (position * s - p)
                end
                local want, shape = each_window(x:detach(), case, function(seen, row, column)
                    local divisor = more.divisor_override or more.count_include_pad == false and #seen or length(row, 1) * length(column, 2)
                    local sum, to = 0, {}
                    for j, element in ipairs(seen) do
                        sum = sum + element[1]
                        to[j] = {element[2], 1 / divisor}
                    end
                    share[#share + 1] = to
                    return sum / divisor
                end)
                local y = flow.avg_pool2d(x, case.kernel, options_of(case, more))
                assert.are.same(shape, y.shape)
                same(want, y:detach():reshape(-1):totable())
                check_gradient(x, y, share)
            end)
        end
    end

    it("says what does not fit", function()
        local x = flow.zeros(2, 3, 4, 5)
        fails("avg_pool2d: divisor_override must not be 0", flow.avg_pool2d, x, 2, {divisor_override = 0})
        fails("avg_pool2d: a window of 5, spread by dilation 1, is larger than axis 2 of x [2, 3, 4, 5] with padding 0", flow.avg_pool2d, x, 5)
        fails("avg_pool2d: unknown option 'dilation'", flow.avg_pool2d, x, 2, {dilation = 2})
    end)
end)
