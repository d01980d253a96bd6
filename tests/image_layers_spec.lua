-- image_layers_spec.lua -- what layers of convolutions, norms, pooling and resizing keep between calls, how they begin, and what
-- they refuse; that they compute what PyTorch does is in tests/peer.
local flow = require "flow"
local nn = flow.nn

local function close(a, b) assert.is_true(flow.allclose(a, b, {atol = 1e-5})) end
local function message(f)
    local ok, text = pcall(f)
    assert.is_false(ok)
    return (text:gsub("^[^:]+:%d+: ", ""))
end

describe("BatchNorm", function()
    local x = flow.randn(8, 3, 4, 4) * 2 + 1

    it("moves its running statistics in training, and uses them in eval", function()
        local norm = nn.BatchNorm2d(3, {momentum = 0.25})
        norm(x)
        local mean, var = x:mean({0, 2, 3}), x:var({0, 2, 3})
        close(norm.running_mean, mean * 0.25)
        close(norm.running_var, var * 0.25 + 0.75)
        assert.are.equal(1, norm.num_batches_tracked:item())
        norm:eval()
        local scale = (norm.running_var + 1e-5):rsqrt():view(1, 3, 1, 1)
        close(norm(x), (x - norm.running_mean:view(1, 3, 1, 1)) * scale)
        assert.are.equal(1, norm.num_batches_tracked:item())
    end)

    it("takes the mean of all batches without a momentum", function()
        local norm = nn.BatchNorm2d(3, {momentum = false})
        local y = flow.randn(8, 3, 4, 4)
        norm(x)
        norm(y)
        close(norm.running_mean, (x:mean({0, 2, 3}) + y:mean({0, 2, 3})) / 2)
    end)

    it("has no statistics of its own without track_running_stats", function()
        local norm = nn.BatchNorm1d(4, {track_running_stats = false, affine = false}):eval()
        local rows = flow.randn(6, 4)
        close(norm(rows):mean(0), flow.zeros(4))
        assert.are.equal(0, #norm:parameters())
        assert.is_nil(norm.running_mean)
    end)

    it("refuses a batch of one value per channel, and another number of channels", function()
        assert.are.equal("in BatchNorm1d: batch_norm: in training each channel of x needs more than one value, x is [1, 3]",
            message(function() nn.BatchNorm1d(3)(flow.randn(1, 3)) end))
        local norm = nn.BatchNorm2d(3)
        message(function() norm(flow.ones(2, 3, 3, 7):to "uint8") end)
        assert.are.equal(0, norm.num_batches_tracked:item())
        assert.are.equal("in BatchNorm2d: BatchNorm2d: x must have 3 channels, got [2, 4, 5, 5]",
            message(function() nn.BatchNorm2d(3)(flow.randn(2, 4, 5, 5)) end))
    end)
end)

describe("convolutions", function()
    it("begin uniform within 1 / sqrt of what an output sums", function()
        for _, case in ipairs {{nn.Conv1d(8, 4, 9), 72}, {nn.Conv3d(4, 8, 3, {groups = 2}), 54},
            {nn.ConvTranspose2d(6, 4, 3), 36}} do
            local layer, fan = table.unpack(case)
            local bound = 1 / math.sqrt(fan)
            for _, p in ipairs(layer:parameters()) do assert.is_true(p:abs():max():item() <= bound) end
            assert.is_true(layer.weight:abs():max():item() > 0.8 * bound)
        end
    end)

    it("pad by elements of x", function()
        local x = flow.randn(2, 3, 6, 5)
        for _, mode in ipairs {"reflect", "replicate", "circular"} do
            local conv = nn.Conv2d(3, 4, 3, {padding = {1, 2}, padding_mode = mode})
            close(conv(x), flow.conv2d(flow.pad(x, {2, 2, 1, 1}, mode), conv.weight, conv.bias))
            local same = nn.Conv2d(3, 4, {2, 4}, {padding = "same", padding_mode = mode})
            assert.are.same({2, 4, 6, 5}, {same(x):size(0), same(x):size(1), same(x):size(2), same(x):size(3)})
        end
    end)

    it("transposed, take the size of the result", function()
        local back = nn.ConvTranspose2d(3, 2, 3, {stride = 2, padding = 1})
        assert.are.equal(8, back(flow.randn(1, 3, 4, 4), {8, 7}):size(2))
        assert.are.equal("in ConvTranspose2d: ConvTranspose2d: output_size of axis 2 must be between 7 and 8, got 9",
            message(function() back(flow.randn(1, 3, 4, 4), {9, 7}) end))
    end)
end)

describe("pooling", function()
    it("gives positions, which unpooling takes", function()
        local x = flow.rand(2, 3, 4, 4) + 1
        local y, at = nn.MaxPool2d(2, {return_indices = true})(x)
        local back = nn.MaxUnpool2d(2)(y, at)
        close(back:amax({2, 3}), x:amax({2, 3}))
        assert.are.equal(2 * 3 * 4, back:ne(0):sum():item())
    end)

    it("gives the first of equal maxima in a volume", function()
        local _, at = flow.max_pool3d_with_indices(flow.ones(1, 1, 2, 2, 2), 2)
        assert.are.equal(0, at:item())
    end)
end)

-- The definition: the first of the largest elements between floor(k n / m) and ceil((k + 1) n / m).
local function adaptive_max(x, size, parts)
    local values, places = {}, {}
    local function range(k, axis) return k * size[axis] // parts[axis], ((k + 1) * size[axis] + parts[axis] - 1) // parts[axis] - 1 end
    for i = 0, parts[1] - 1 do
        local top, bottom = range(i, 1)
        for j = 0, parts[2] - 1 do
            local left, right = range(j, 2)
            local best, place = -math.huge, nil
            for row = top, bottom do
                for column = left, right do
                    local at = row * size[2] + column
                    if x[at + 1] > best then best, place = x[at + 1], at end
                end
            end
            values[#values + 1], places[#places + 1] = best, place
        end
    end
    return values, places
end

describe("adaptive pools", function()
    it("leave an axis of -1 as it is", function()
        local x = flow.randn(2, 3, 5, 6)
        for _, kind in ipairs {"avg", "max"} do
            local op, layer = flow["adaptive_" .. kind .. "_pool2d"], nn[kind == "avg" and "AdaptiveAvgPool2d" or "AdaptiveMaxPool2d"]
            assert.is_true(op(x, {-1, 2}):eq(op(x, {5, 2})):all():item())
            assert.is_true(op(x, -1):eq(x):all():item())
            assert.is_true(layer({3, -1})(x):eq(op(x, {3, 6})):all():item())
            assert.are.equal("Adaptive" .. (kind == "avg" and "Avg" or "Max") .. "Pool2d: size must be a whole number >= 1, got 0",
                message(function() layer(0) end))
        end
        assert.are.equal("[2, 3, 5, 1, 2]", tostring(flow.adaptive_avg_pool3d(x:unsqueeze(3), {-1, 1, 2}).shape))
        assert.are.equal("[2, 3, 4]", tostring(flow.adaptive_max_pool1d(flow.randn(2, 3, 4), -1).shape))
        assert.are.equal("adaptive_max_pool2d: output_size must be 1 or more, or -1 for the size of x, got 0",
            message(function() flow.adaptive_max_pool2d(x, {2, 0}) end))
    end)
end)

describe("adaptive_max_pool2d", function()
    for _, case in ipairs {
        {{24, 36}, {1, 1}}, {{24, 36}, {2, 3}}, {{24, 36}, {4, 9}}, {{24, 36}, {8, 2}}, {{25, 36}, {2, 3}}, {{24, 37}, {3, 5}},
    } do
        local size, parts = case[1], case[2]
        it(("finds the first of equal elements, %dx%d to %dx%d"):format(size[1], size[2], parts[1], parts[2]), function()
            local x = flow.randint(0, 50, {2, 3, size[1], size[2]}):to "float32"
            local y, at = flow.adaptive_max_pool2d_with_indices(x, parts)
            local planes, maxima, positions = x:reshape(6, -1):totable(), y:reshape(6, -1):totable(), at:reshape(6, -1):totable()
            for i = 1, 6 do
                local values, places = adaptive_max(planes[i], size, parts)
                assert.are.same(values, maxima[i])
                assert.are.same(places, positions[i])
            end
            assert.is_true(flow.adaptive_max_pool2d(x, parts):eq(y):all():item())
        end)
    end
end)

describe("Upsample", function()
    it("needs either size or scale_factor", function()
        assert.are.equal("Upsample: takes either size or scale_factor", message(function() nn.Upsample() end))
    end)
end)
