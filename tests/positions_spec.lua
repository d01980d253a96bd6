-- positions_spec.lua -- layers that tell attention where a step is, against their formulas in plain Lua: rotary ones, sines, ALiBi.
-- Also the cache of keys and values.
local flow = require "flow"
local nn = flow.nn

local function near(want, got, eps, what)
    assert.is_true(math.abs(want - got) <= eps, ("%s: %.17g, expected %.17g"):format(what, got, want))
end

describe("positions", function()
    for dtype, eps in pairs {float64 = 1e-12, float32 = 1e-4} do
        it("RotaryEmbedding turns pairs, from any first position, in " .. dtype, function()
            for _, interleaved in ipairs {false, true} do
                local x = flow.randn({2, 3, 6}, {dtype = dtype})
                local y = nn.RotaryEmbedding(6, {interleaved = interleaved})(x, 100)
                assert.are.equal(dtype, y.dtype)
                for step = 0, 2 do
                    for i = 0, 2 do
                        local at, other = interleaved and 2 * i or i, interleaved and 2 * i + 1 or i + 3
                        local angle = (100 + step) * 10000 ^ (-2 * i / 6)
                        local a, b = x[{1, step, at}]:item(), x[{1, step, other}]:item()
                        near(a * math.cos(angle) - b * math.sin(angle), y[{1, step, at}]:item(), eps, "first")
                        near(b * math.cos(angle) + a * math.sin(angle), y[{1, step, other}]:item(), eps, "second")
                    end
                end
            end
        end)

        it("SinusoidalPositions adds sines and cosines in turn, in " .. dtype, function()
            local y = nn.SinusoidalPositions(4)(flow.zeros({1, 3, 4}, {dtype = dtype}), 50)
            assert.are.equal(dtype, y.dtype)
            for step = 0, 2 do
                for i = 0, 1 do
                    local angle = (50 + step) * 10000 ^ (-2 * i / 4)
                    near(math.sin(angle), y[{0, step, 2 * i}]:item(), eps, "sine")
                    near(math.cos(angle), y[{0, step, 2 * i + 1}]:item(), eps, "cosine")
                end
            end
        end)

        it("ALiBi's slopes are those of the heads, in " .. dtype, function()
            local mask = nn.ALiBi(3, {causal = false})(flow.zeros({1}, {dtype = dtype}), 2, 4)
            assert.are.equal(dtype, mask.dtype)
            for head, slope in ipairs {2 ^ -4, 2 ^ -8, 2 ^ -2} do
                for key = 0, 3 do near(-slope * math.abs(key - 3), mask[{head - 1, 1, key}]:item(), eps, "mask") end
            end
        end)
    end

    it("KVCache gives all steps so far", function()
        local cache, k, v = nn.KVCache(), flow.randn(2, 20, 4), flow.randn(2, 20, 4)
        cache(k:narrow(1, 0, 3), v:narrow(1, 0, 3))
        local keys, values
        for step = 3, 19 do keys, values = cache(k:narrow(1, step, 1), v:narrow(1, step, 1)) end
        assert.are.equal(20, cache.length)
        assert.is_true(flow.equal(k, keys) and flow.equal(v, values))
        cache:reset()
        assert.are.equal(0, cache.length)
        assert.is_true(flow.equal(k, (cache(k, v))))
    end)
end)
