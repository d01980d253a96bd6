-- attention_spec.lua -- attention against softmax(q k^T) v: sizes around the blocks, masks, dropout, layouts; embedding and
-- the ops that pick by index.
local flow = require "flow"
local support = require "tests.support"
local ref = require "tests.reference"

local function composed(q, k, v, options)
    local t, s = q:size(-2), k:size(-2)
    local scores = q:matmul(k:transpose(-1, -2)) * (options.scale or 1 / math.sqrt(q:size(-1)))
    local hidden = -1e30
    if options.is_causal then scores = scores:masked_fill(flow.ones(t, s):triu(1):gt(0), hidden) end
    if options.mask and options.mask.dtype == "bool" then scores = scores:masked_fill(options.mask:logical_not(), hidden)
    elseif options.mask then scores = scores + options.mask end
    return scores:softmax(-1):matmul(v)
end

local function largest(x, y) return (x - y):abs():amax():item() end

local fails = support.fails

describe("scaled_dot_product_attention", function()
    it("agrees with the composed form, forward and backward", function()
        flow.manual_seed(1)
        for _, size in ipairs {{1, 1, 1, 1}, {3, 5, 4, 4}, {33, 65, 16, 17}, {70, 130, 8, 3}, {64, 64, 32, 32}} do
            local t, s, d, e = table.unpack(size)
            local seen = flow.rand(2, 1, t, s):gt(0.3)
            seen[{{}, {}, {}, 0}] = true
            for _, options in ipairs {{is_causal = false}, {is_causal = true}, {scale = 0.3}, {mask = flow.randn(t, s)}, {mask = seen, is_causal = true}} do
                local grads = {}
                for _, f in ipairs {flow.scaled_dot_product_attention, composed} do
                    flow.manual_seed(2)
                    local q = flow.randn(2, 3, t, d, {requires_grad = true})
                    local k = flow.randn(2, 3, s, d, {requires_grad = true})
                    local v = flow.randn(2, 3, s, e, {requires_grad = true})
                    local y = f(q, k, v, options)
                    y:backward(flow.randn(2, 3, t, e))
                    grads[#grads + 1] = {y:detach(), q.grad, k.grad, v.grad}
                end
                for i = 1, 4 do assert.is_true(largest(grads[1][i], grads[2][i]) < 2e-4) end
            end
        end
    end)

    it("reads heads where they lie in one projection", function()
        flow.manual_seed(3)
        local qkv = flow.randn(2, 10, 3 * 12)
        local part = function(i) return qkv:narrow(2, i * 12, 12):view(2, 10, 3, 4):transpose(1, 2) end
        local y = flow.scaled_dot_product_attention(part(0), part(1), part(2), {is_causal = true})
        local z = flow.scaled_dot_product_attention(part(0):contiguous(), part(1):contiguous(), part(2):contiguous(), {is_causal = true})
        assert.are.equal(0, largest(y, z))
    end)

    it("gives zeros, and zero gradients, where nothing may be seen", function()
        local q = flow.randn(1, 2, 4, {requires_grad = true})
        local mask = flow.tensor{{true, true, true}, {false, false, false}}
        local y = flow.scaled_dot_product_attention(q, flow.randn(1, 3, 4), flow.ones(1, 3, 2), {mask = mask})
        assert.is_true(largest(y[{0, 0}], flow.ones(2)) < 1e-6)
        assert.are.same({0, 0}, y[{0, 1}]:totable())
        y:sum():backward()
        assert.are.same({0, 0, 0, 0}, q.grad[{0, 1}]:totable())
    end)

    it("drops weights at the asked rate, the same ones in backward and for the same seed", function()
        local v = flow.eye(200):unsqueeze(0):clone()
        v.requires_grad = true
        local q = flow.zeros(1, 200, 8)
        local function run() flow.manual_seed(4); return flow.scaled_dot_product_attention(q, q, v, {dropout = 0.25}) end
        local y = run()
        local kept = y:gt(0):to("float32"):mean():item()
        assert.is_true(math.abs(kept - 0.75) < 0.02, kept)
        assert.is_true(largest(y, run()) == 0)
        assert.is_true(largest(y:detach() * y:gt(0):to("float32"), y:gt(0):to("float32") / 150) < 1e-6)
        y:backward(flow.ones(1, 200, 200))
        assert.is_true(largest(v.grad[{0, {}, 0}], y:detach():sum(1)[0]) < 1e-4)
        assert.are.same({0, 0}, flow.scaled_dot_product_attention(q, q, v, {dropout = 1})[{0, 0, {0, 2}}]:totable())
    end)

    it("draws nothing without dropout", function()
        local q = flow.randn(1, 3, 4)
        flow.manual_seed(7)
        local want = flow.rand(3):totable()
        flow.manual_seed(7)
        flow.scaled_dot_product_attention(q, q, q)
        assert.are.same(want, flow.rand(3):totable())
    end)

    it("does not advance with the number of heads a rank holds", function()
        flow.manual_seed(5)
        local q = flow.randn(4, 6, 8)
        local function run(x) flow.manual_seed(6); return flow.scaled_dot_product_attention(x, x, x, {dropout = 0.5}) end
        local whole, testing = run(q), flow._testing
        for r = 0, 1 do
            testing.set_world(2, r)
            local p = flow.placement("cpu", {0, 1})
            local part = run(testing.from_part(q:narrow(0, 2 * r, 2):clone(), q.shape, p, "S(0)")):to_local()
            testing.set_world(1, 0)
            assert.are.equal(0, largest(whole:narrow(0, 2 * r, 2), part))
        end
    end)

    it("has gradients where there is nothing to look at, or nothing that looks", function()
        for _, size in ipairs {{4, 0, 8, 8}, {0, 4, 8, 8}, {4, 5, 0, 8}, {4, 5, 8, 0}} do
            local t, s, d, e = table.unpack(size)
            local leaves = {flow.randn(2, t, d), flow.randn(2, s, d), flow.randn(2, s, e)}
            for _, x in ipairs(leaves) do x.requires_grad = true end
            flow.scaled_dot_product_attention(leaves[1], leaves[2], leaves[3]):sum():backward()
            for i, x in ipairs(leaves) do
                if i < 3 or t == 0 then assert.is_true(x:numel() == 0 or largest(x.grad, flow.zeros_like(x)) < 1e-6) end
            end
        end
    end)

    it("says what does not fit", function()
        local x = flow.zeros(2, 3, 4)
        fails("scaled_dot_product_attention: q [..., t, d], k [..., s, d] and v [..., s, e] do not fit: [2, 3, 4], [2, 5, 3] and [2, 5, 3]",
            flow.scaled_dot_product_attention, x, flow.zeros(2, 5, 3), flow.zeros(2, 5, 3))
        fails("scaled_dot_product_attention: mask [4, 4] does not broadcast to the scores [2, 3, 3]",
            flow.scaled_dot_product_attention, x, x, x, {mask = flow.zeros(4, 4)})
        fails("scaled_dot_product_attention: mask must be bool (true takes part) or float (added to the scores), got int64",
            flow.scaled_dot_product_attention, x, x, x, {mask = flow.zeros(3, 3):to("int64")})
        fails("scaled_dot_product_attention: dropout must be between 0 and 1, got 1.5", flow.scaled_dot_product_attention, x, x, x, {dropout = 1.5})
        fails("did you mean", flow.scaled_dot_product_attention, x, x, x, {is_casual = true})
    end)
end)

describe("picking by index:", function()
    local w = flow.arange(12):reshape(4, 3)

    it("embedding", function()
        assert.are.same({{{6, 7, 8}, {0, 1, 2}}}, flow.embedding(flow.tensor{{2, 0}}, w):totable())
        assert.are.same({{1, 4, 7, 10}}, flow.embedding(flow.tensor{1}, w:t()):totable())
        local weight = flow.zeros(5, 40, {requires_grad = true})
        flow.embedding(flow.tensor{1, 3, 1, 1}, weight):backward(flow.ones(4, 40))
        assert.are.same({0, 3, 0, 1, 0}, weight.grad[{{}, 39}]:totable())
    end)

    it("index_select and gather", function()
        assert.are.same({{2, 0}, {5, 3}, {8, 6}, {11, 9}}, w:index_select(1, flow.tensor{2, 0}):totable())
        assert.are.same({{0, 3}, {1, 4}}, w:t():index_select(1, flow.tensor{0, 1}):narrow(0, 0, 2):totable())
        assert.are.same({{2, 0}, {4, 4}}, w:gather(1, flow.tensor{{2, 0}, {1, 1}}):totable())
        assert.are.same({{9, 1, 5}}, w:gather(0, flow.tensor{{3, 0, 1}}):totable())
        assert.are.same({0, 3}, {table.unpack(w:index_select(0, flow.zeros(0):to("int64")).shape)})
    end)

    it("positions that are not there are errors that name them", function()
        fails("embedding: indices[0, 1] is 4, but weight has 4 rows (0 to 3)", flow.embedding, flow.tensor{{0, 4}}, w)
        fails("embedding: indices[0] is 0, but weight has no rows", flow.embedding, flow.tensor{0}, flow.zeros(0, 3))
        fails("embedding: indices must be integers, got float32[1]", flow.embedding, flow.tensor{0.5}, w)
        fails("index_select: index[1] is 3, but this axis of x has 3 positions (0 to 2)", flow.index_select, w, 1, flow.tensor{0, 3})
        fails("gather: index[0, 0] is -1, but this axis of x has 4 positions (0 to 3)", flow.gather, w, 0, flow.tensor{{-1}})
        fails("gather: index [1, 4] must have as many axes as x [4, 3] and, except along axis 0, at most the sizes of x", flow.gather, w, 0, flow.tensor{{0, 0, 0, 0}})
    end)
end)

-- Attention of one head in plain Lua; seen(i, j) says whether query i may look at key j, add(i, j) what is added to the score.
local function attend(q, k, v, scale, seen, add)
    local t, d, s, e = q.shape[1], q.shape[2], k.shape[1], v.shape[2]
    return ref.array({t, e}, function(index)
        local i, column = index // e, index % e
        local scores, rows = {}, {}
        for j = 0, s - 1 do
            if seen(i, j) then
                local dot = 0.0
                for c = 1, d do dot = dot + q[i * d + c] * k[j * d + c] end
                scores[#scores + 1], rows[#rows + 1] = dot * scale + add(i, j), j
            end
        end
        local sum = 0.0
        for n, p in ipairs(ref.softmax(scores)) do sum = sum + p * v[rows[n] * e + column + 1] end
        return sum
    end)
end

describe("attention against plain Lua", function()
    local function pseudo(dtype, shape, seed)
        local random = ref.generator(seed)
        return ref.array(shape, function() return ref.round(dtype, random() * 2) end)
    end
    local function always() return true end
    local function nothing() return 0 end

    for _, size in ipairs {{1, 1, 1, 1}, {2, 3, 4, 5}, {7, 7, 16, 16}, {17, 33, 8, 3}, {33, 17, 5, 16}, {65, 64, 7, 9}, {1, 100, 16, 4}} do
        it(("%d queries, %d keys, widths %d and %d"):format(table.unpack(size)), function()
            local t, s, d, e = table.unpack(size)
            for _, dtype in ipairs(ref.floats) do
                local q, k, v = pseudo(dtype, {t, d}, 1), pseudo(dtype, {s, d}, 2), pseudo(dtype, {s, e}, 3)
                local bias = pseudo(dtype, {t, s}, 4)
                local hidden = ref.array({t, s}, function(i) return i % 3 == 0 and i % s ~= 0 and 0 or 1 end)
                local scale = 1 / math.sqrt(d)
                local cases = {
                    {{}, always, nothing},
                    {{is_causal = true}, function(i, j) return j <= i end, nothing},
                    {{scale = 0.25}, always, nothing, 0.25},
                    {{mask = ref.tensor(hidden, "bool")}, function(i, j) return hidden[i * s + j + 1] == 1 end, nothing},
                    {{mask = ref.tensor(bias, dtype)}, always, function(i, j) return bias[i * s + j + 1] end},
                    {{mask = ref.tensor(hidden, "bool"), is_causal = true}, function(i, j) return j <= i and hidden[i * s + j + 1] == 1 end, nothing},
                }
                for _, case in ipairs(cases) do
                    local want = attend(q, k, v, case[4] or scale, case[2], case[3])
                    local slack = dtype == "float64" and 1e-13 or dtype == "float32" and 4e-6 or ref.epsilon(dtype) * 2
                    local function check(a, b, c, what)
                        local got = flow.scaled_dot_product_attention(a, b, c, case[1])
                        ref.check(got:reshape(t, e), want, dtype, dtype == "float32" and 8 or 4, dtype .. " " .. what, slack)
                    end
                    local layouts = {ref.layouts(ref.tensor(q, dtype)), ref.layouts(ref.tensor(k, dtype)), ref.layouts(ref.tensor(v, dtype))}
                    for n = 1, #layouts[1] do check(layouts[1][n][2], layouts[2][n][2], layouts[3][n][2], layouts[1][n][1]) end
                    local function heads(x, dims) return ref.tensor(x, dtype):reshape(1, 1, dims[1], dims[2]) end
                    check(heads(q, {t, d}), heads(k, {s, d}), heads(v, {s, e}), "with batch and head")
                end
            end
        end)
    end

    it("of large scores and of no keys or queries", function()
        local q = flow.full({1, 2}, 1000.0)
        assert.are.same({{3, 4}}, flow.scaled_dot_product_attention(q, flow.tensor({{-1000.0, 0.0}, {1000.0, 0.0}}), flow.tensor({{1.0, 2.0}, {3.0, 4.0}})):totable())
        assert.are.same({{0, 0, 0}, {0, 0, 0}}, flow.scaled_dot_product_attention(flow.zeros(2, 4), flow.zeros(0, 4), flow.zeros(0, 3)):totable())
        assert.are.same({0, 3}, flow.scaled_dot_product_attention(flow.zeros(0, 4), flow.zeros(5, 4), flow.zeros(5, 3)).shape)
        assert.are.same({2, 0, 5, 3}, flow.scaled_dot_product_attention(flow.zeros(2, 0, 5, 4), flow.zeros(2, 0, 5, 4), flow.zeros(2, 0, 5, 3)).shape)
    end)

    it("a mask is broadcast over batch and heads", function()
        local q, v = flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4)
        local mask = flow.rand(2, 1, 1, 5):gt(0.4)
        mask[{{}, 0, 0, 0}] = true
        local y = flow.scaled_dot_product_attention(q, q, v, {mask = mask})
        for b = 0, 1 do
            for h = 0, 2 do
                local alone = flow.scaled_dot_product_attention(q[{b, h}], q[{b, h}], v[{b, h}], {mask = mask[{b, 0}]:expand(5, 5)})
                assert.is_true((y[{b, h}] - alone):abs():amax():item() < 1e-6)
            end
        end
    end)
end)

describe("flex_attention", function()
    local A = flow.nn.attention
    local function causal(_, _, i, j) return i:ge(j) end

    it("is attention with the scores and the mask of a script", function()
        flow.manual_seed(5)
        local q, k, v = flow.randn(2, 4, 6, 8), flow.randn(2, 4, 5, 8), flow.randn(2, 4, 5, 3)
        local mask = A.create_block_mask(causal, nil, nil, 6, 5, {BLOCK_SIZE = 2})
        assert.are.equal("BlockMask(shape=(1, 1, 6, 5), sparsity=33.33%)", tostring(mask))
        local slopes = flow.tensor {0.5, 0.25, 0.125, 0}
        local want = (q:matmul(k.mT) / 8 ^ 0.5 + slopes:reshape(4, 1, 1) * (flow.arange(5) - flow.arange(6):unsqueeze(1)))
            :masked_fill(mask.mask:logical_not(), -math.huge):softmax(-1):matmul(v)
        local function alibi(score, _, h, i, j) return score + slopes[h] * (j - i) end
        support.close(want, A.flex_attention(q, k, v, {score_mod = alibi, block_mask = mask}), 1e-5, "scores")
        local plain, lse = A.flex_attention(q, k, v, {block_mask = mask, return_lse = true})
        support.close(A.flex_attention(q, k, v, {block_mask = mask}), plain, 1e-5, "a mask")
        assert.are.same({2, 4, 6}, lse.shape)
    end)

    it("has gradients of two orders, and zeros where nothing is attended to", function()
        local x = flow.randn({1, 1, 4, 4}, {dtype = "float64"}):requires_grad_()
        local late = A.create_block_mask(function(_, _, i, j) return i:gt(1):logical_and(j:ge(0)) end, nil, nil, 4, 4)
        for _, options in ipairs {{block_mask = late, score_mod = function(s) return s * s end}, {block_mask = late}} do
            local y = A.flex_attention(x, x, x, options)
            assert.are.equal(0, y:narrow(2, 0, 2):abs():max():item())
            assert.is_true(flow.gradcheck(function(t) return A.flex_attention(t, t, t, options) end, {x}, {order = 2}))
        end
    end)

    it("says what does not fit", function()
        local x, few = flow.ones(1, 4, 6, 8), flow.ones(1, 2, 6, 8)
        for want, f in pairs {
            ["flex_attention: query has 4 heads and key 2; enable_gqa = true shares those of key"] = function() A.flex_attention(x, few, few) end,
            ["flex_attention: the mask is [1, 1, 4, 4], the scores are [1, 4, 6, 6]"] = function()
                A.flex_attention(x, x, x, {block_mask = A.create_block_mask(causal, nil, nil, 4, 4)})
            end,
            ["flex_attention: query, key and value must be [batch, heads, length, width], got [6, 8], [6, 8] and [6, 8]"] = function()
                A.flex_attention(x[0][0], x[0][0], x[0][0])
            end,
            ["flex_attention: score_mod must give scores, got nil"] = function() A.flex_attention(x, x, x, {score_mod = function() end}) end,
            ["flex_attention: block_mask must be what create_block_mask gave, got bool tensor"] = function()
                A.flex_attention(x, x, x, {block_mask = flow.ones(6, 6):to "bool"})
            end,
            ["create_mask: mask_mod must give a bool tensor, got nil"] = function() A.create_mask(function() end, nil, nil, 2, 2) end,
            ["and_masks: argument 2 must be a function, got 3"] = function() A.and_masks(causal, 3) end,
        } do assert.are.equal(want, support.message_of(f)) end
    end)
end)
