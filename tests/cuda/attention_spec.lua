-- attention_spec.lua -- attention and its gradients on the GPU against the CPU: sizes around the tiles, rows wider than a tile,
-- masks, the same dropout, heads that lie anywhere; queries that see nothing, no keys, no queries.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"
local process = require "tests.process"

local FLOATS = {"float32", "float64", "float16", "bfloat16"}

local rows, backward = flow._op.attention_rows, flow._op.attention_backward
local masked, factors = flow._op.attention_mask, flow._op.attention_dropout

-- Attention of args q, k, v, dy and a mask, with log-sum-exp and key, and gradients made from these.
local function attention(options)
    return function(args)
        flow.manual_seed(5)
        local q, k, v, dy, mask, dlse = table.unpack(args, 1, 6)
        local causal, dropout, scale = options.is_causal or false, options.dropout or 0, options.scale
        local out, lse, key = rows(q, k, v, mask, causal, dropout, scale)
        local dq, dk, dv = backward(dy, q, k, v, mask, out, lse, key, dlse, causal, dropout, scale)
        return out, lse, key, dq, dk, dv
    end
end

local function operands(dtype, t, s, d, e, batch)
    local function some(n, width)
        local shape = {table.unpack(batch or {2, 2})}
        shape[#shape + 1], shape[#shape + 2] = n, width
        return flow.randn(shape):to(dtype)
    end
    return {some(t, d), some(s, d), some(s, e), some(t, e)}
end

describe("attention on the GPU", function()
    before_each(function() flow.manual_seed(12) end)

    for _, dtype in ipairs(FLOATS) do
        cuda.it("agrees with the CPU in " .. dtype, function()
            for _, size in ipairs {
                {1, 1, 1, 1}, {3, 5, 4, 4}, {16, 33, 8, 3}, {70, 65, 32, 17}, {130, 66, 64, 64}, {20, 33, 40, 128}, {17, 40, 130, 200},
            } do
                local t, s, d, e = table.unpack(size)
                local text = ("%d x %d, %d and %d wide"):format(t, s, d, e)
                local seen, added = flow.rand(2, 1, t, s):gt(0.3), flow.randn(t, s)
                for _, options in ipairs {{}, {is_causal = true}, {dropout = 0.3, is_causal = true}, {scale = 0.3, mask = seen}, {mask = added}} do
                    local args = operands(dtype, t, s, d, e)
                    args[5] = options.mask
                    if not options.mask then args[6] = flow.randn(2, 2, t) end
                    args.n = 6
                    cuda.agree(text, attention(options), args)
                end
            end
        end)
    end

    -- Around the tiles of 128 rows and 64 columns and the chunks of 16 that float16 and bfloat16 have without masks and dropout.
    for _, dtype in ipairs {"float16", "bfloat16"} do
        cuda.it("has gradients at every edge in " .. dtype, function()
            for _, size in ipairs {
                {1, 1, 64, 64}, {1, 129, 32, 32}, {129, 1, 96, 96}, {15, 17, 128, 64}, {63, 64, 64, 128}, {64, 63, 32, 40}, {65, 127, 64, 64}, {127, 65, 96, 96},
                {128, 128, 64, 64}, {129, 257, 128, 128}, {200, 128, 64, 64},
            } do
                local t, s, d, e = table.unpack(size)
                for _, options in ipairs {{}, {is_causal = true}, {is_causal = true, scale = -0.3}} do
                    local args = operands(dtype, t, s, d, e, {1, 2})
                    args[6], args.n = flow.randn(1, 2, t), 6
                    cuda.agree(("%d x %d, %d and %d wide"):format(t, s, d, e), attention(options), args)
                end
            end
            local many = cuda.emulated and 300 or 1000
            for _, options in ipairs {{is_causal = true}, {}} do
                for _, size in ipairs {{many, many, 32}, {70, many, 64}, {many, 70, 64}} do
                    local t, s, width = table.unpack(size)
                    cuda.agree(("%d x %d"):format(t, s), attention(options), operands(dtype, t, s, width, width, {1}))
                end
            end
        end)
    end

    cuda.it("has the same gradients every time", function()
        local rows_each = cuda.emulated and 130 or 200
        for _, width in ipairs {32, 64, 128} do
            local args = support.map_tensors(operands("bfloat16", rows_each, rows_each, width, width, cuda.emulated and {1}), cuda.to_gpu)
            local first, second = {attention {is_causal = true} (args)}, {attention {is_causal = true} (args)}
            for i = 4, 6 do support.same(first[i], second[i], ("result %d, %d wide"):format(i, width), 0) end
        end
    end)

    -- Results and log-sum-exp of q, k, v alone.
    local function forward(causal)
        return function(args)
            local out, lse = rows(args[1], args[2], args[3], nil, causal)
            return out, lse
        end
    end

    -- The sizes around those of the kernel without masks and dropout: tiles of 64 keys, blocks of 64 or 128 queries,
    -- widths padded to 32, 64, 96 and 128.
    for _, dtype in ipairs {"float16", "bfloat16"} do
        cuda.it("agrees with the CPU at the edges of tiles in " .. dtype, function()
            for _, size in ipairs {
                {1, 1, 64, 64}, {63, 63, 64, 64}, {64, 64, 64, 64}, {65, 65, 64, 64}, {127, 127, 64, 64}, {128, 128, 64, 64}, {129, 129, 64, 64},
                {1, 200, 64, 64}, {200, 1, 64, 64}, {65, 130, 128, 128}, {130, 65, 128, 128}, {70, 129, 96, 96}, {129, 70, 96, 96},
                {66, 65, 32, 32}, {65, 130, 8, 16}, {70, 70, 64, 128}, {70, 70, 128, 32}, {70, 70, 104, 72},
            } do
                local t, s, d, e = table.unpack(size)
                for _, options in ipairs {{}, {is_causal = true}} do
                    local args = operands(dtype, t, s, d, e, {1, 1})
                    args.n = 4
                    cuda.agree(("%d x %d, %d and %d wide"):format(t, s, d, e), attention(options), args)
                    local many = operands(dtype, t, s, d, e, {cuda.emulated and 4 or 150})
                    cuda.agree(("%d x %d, %d and %d wide, many heads"):format(t, s, d, e), forward(options.is_causal or false), {many[1], many[2], many[3]})
                end
            end
        end)
    end

    -- Few heads have blocks of 64 queries, many have 128.
    cuda.it("agrees with the CPU for few and many heads", function()
        local many, one, three = {{100, 2}, 70, 70, 32}, {{1}, 1000, 1000, 64}, {{3}, 300, 700, 64}
        if cuda.emulated then many, one, three = {{140}, 70, 70, 32}, {{1}, 260, 260, 64}, {{3}, 130, 200, 64} end
        for _, case in ipairs {one, three, many, {{70, 2}, 65, 40, 64}, {{140}, 20, 65, 96}, {{150}, 17, 33, 128}} do
            local batch, t, s, width = table.unpack(case)
            for _, causal in ipairs {false, true} do
                local args = operands("bfloat16", t, s, width, width, batch)
                cuda.agree(("%d x %d, %d wide"):format(t, s, width), forward(causal), {args[1], args[2], args[3]})
            end
        end
    end)

    cuda.it_real("agrees with the CPU for more heads than the L2 holds", function()
        local args = operands("bfloat16", 128, 128, 128, 128, {601})
        cuda.agree("causal", forward(true), {args[1], args[2], args[3]})
    end)

    cuda.it("takes any scale, and scores of any size", function()
        for _, dtype in ipairs {"float16", "bfloat16"} do
            for _, scale in ipairs {-0.1, 0, 1e-40, 0.01, 0.3} do
                local args = operands(dtype, 70, 66, 64, 64)
                args.n = 4
                cuda.agree(dtype .. " scale " .. scale, attention {is_causal = true, scale = scale}, args)
            end
            for _, factor in ipairs {30, 300, 3000} do   -- scores up to 1e3, 1e5, 1e7: one key has all the weight, the products are exact
                local args = operands(dtype, 70, 130, 64, 64)
                for i = 1, 2 do args[i] = (args[i]:to("float32") * 4):round():mul(factor):to(dtype) end
                cuda.agree(("%s %g times larger"):format(dtype, factor), forward(true), {args[1], args[2], args[3]})
            end
        end
    end)

    cuda.it("keeps what is no number to the rows that see it", function()
        for _, value in ipairs {0 / 0, 1 / 0, -1 / 0} do
            for place = 1, 3 do
                local args = operands("bfloat16", 70, 70, 64, 64)
                args[place][{0, 1, 66, 3}] = value
                cuda.agree(("operand %d is %f"):format(place, value), forward(true), {args[1], args[2], args[3]})
            end
        end
    end)

    cuda.it("takes masks of every dtype and layout", function()
        for _, dtype in ipairs(FLOATS) do
            for _, other in ipairs {"bool", "float32", "float64", "float16"} do
                local function make(...) return other == "bool" and flow.rand(...):gt(0.4) or flow.randn(...):to(other) end
                for _, mask in ipairs {
                    make(20, 35), make(35), make(2, 1, 1, 35), make(2, 2, 20, 1), make(35, 20):transpose(0, 1), make(1, 2, 20, 70):narrow(3, 35, 35),
                } do
                    local args = operands(dtype, 20, 35, 16, 16)
                    args[5], args.n = mask, 5
                    cuda.agree(dtype .. " with " .. other, attention {dropout = 0.1}, args)
                end
            end
        end
    end)

    cuda.it("reads heads where they lie", function()
        for _, dtype in ipairs(FLOATS) do
            local qkv, dy = flow.randn(2, 37, 3 * 24):to(dtype), flow.randn(2, 3, 37, 8):to(dtype)
            cuda.agree(dtype, function(args)
                local function part(i) return args[1]:narrow(2, i * 24, 24):view(2, 37, 3, 8):transpose(1, 2) end
                return attention {is_causal = true} {part(0), part(1), part(2), args[2]}
            end, {qkv, dy})
            local rows_of_64 = flow.randn(1, 140, 3 * 128):to(dtype)
            cuda.agree(dtype .. " 64 wide", function(args)
                local function part(i) return args[1]:narrow(2, i * 128, 128):view(1, 140, 2, 64):transpose(1, 2) end
                return attention {is_causal = true} {part(0), part(1), part(2), args[2]:transpose(1, 2)}
            end, {rows_of_64, flow.randn(1, 140, 2, 64):to(dtype)})
            for _, layout in ipairs(cuda.layouts) do
                local args = support.map_tensors(operands(dtype, 9, 9, 9, 9, {9, 2}), layout[2])
                args.n = 4
                if args[1].ndim >= 2 then cuda.agree(dtype .. " " .. layout[1], attention {}, args) end
            end
        end
    end)

    cuda.it("takes any number of axes before the rows", function()
        for _, batch in ipairs {{}, {1}, {5}, {2, 1, 3}, {2, 1, 2, 1, 2, 1}, {0, 2}} do
            local args = operands("float32", 5, 6, 4, 4, batch)
            args.n = 4
            cuda.agree(#batch .. " axes", attention {dropout = 0.5}, args)
        end
    end)

    cuda.it("gives zeros where nothing is seen", function()
        for _, dtype in ipairs(FLOATS) do
            local args = operands(dtype, 70, 66, 8, 8)
            args[5], args.n = flow.zeros(70, 66, {dtype = "bool"}), 5
            local _, there = cuda.agree(dtype .. " no key", attention {}, args)
            assert.are.equal(0, there[1]:to("cpu"):to("float32"):abs():amax():item())
            args[5] = flow.arange(70):gt(3):unsqueeze(1)
            cuda.agree(dtype .. " some queries", attention {}, args)
            cuda.agree(dtype .. " no keys", attention {}, operands(dtype, 4, 0, 8, 8))
            cuda.agree(dtype .. " no queries", attention {}, operands(dtype, 0, 4, 8, 8))
            cuda.agree(dtype .. " no width", attention {}, operands(dtype, 4, 5, 0, 8))
            cuda.agree(dtype .. " no values", attention {}, operands(dtype, 4, 5, 8, 0))
            cuda.agree(dtype .. " all dropped", attention {dropout = 1}, operands(dtype, 4, 5, 8, 8))
        end
    end)

    -- Sums of all results on the CPU and on a GPU of another compute capability, whose blocks have less or more shared memory.
    cuda.it("fits into the shared memory of every GPU", function()
        if not cuda.emulated then pending "a GPU is as it is" end
        local script = [[
      local flow = require "flow"
      local function sums(device, dtype, width)
        flow.manual_seed(3)
        local t = {}
        for i = 1, 4 do t[i] = flow.randn(1, 2, 40, width):to(dtype):to(device) end
        for i = 1, 3 do t[i]:requires_grad_() end
        local out = flow.scaled_dot_product_attention(t[1], t[2], t[3], {is_causal = true})
        out:backward(t[4])
        return flow.stack({out:detach(), t[1].grad, t[2].grad, t[3].grad}):to("cpu"):to("float64"):sum({1, 2, 3, 4})
      end
      for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
        for _, width in ipairs {32, 128} do
          local apart = (sums("cpu", dtype, width) - sums("cuda", dtype, width)):abs():amax():item()
          if not (apart < (dtype:find "16" and 10 or 0.01)) then print(dtype, width, apart) end
        end
      end
      print "done"
    ]]
        for _, compute in ipairs {75, 86, 90} do
            assert.are.equal("done\n", (process.run("FLOW_CUDA_EMULATED_COMPUTE=" .. compute, script)), "compute " .. compute)
        end
    end)

    cuda.it("hands on what is no number", function()
        for _, place in ipairs {1, 2, 3} do
            for _, value in ipairs {0 / 0, 1 / 0} do
                local args = operands("float32", 5, 6, 4, 4)
                args[place][{0, 1, 2, 3}] = value
                args.n = 4
                cuda.agree(("operand %d is %f"):format(place, value), attention {}, args)
            end
        end
    end)

    cuda.it("masks scores and makes factors as ops of their own", function()
        for _, dtype in ipairs(FLOATS) do
            local scores = flow.randn(2, 3, 7, 9):to(dtype)
            for _, mask in ipairs {flow.randn(7, 9), flow.rand(2, 1, 1, 9):gt(0.5)} do
                cuda.agree(dtype .. " mask", function(args) return masked(args[1], args[2], true) end, {scores:transpose(0, 1):contiguous():transpose(0, 1), mask})
            end
            cuda.agree(dtype .. " no mask", function(args) return masked(args[1], nil, true) end, {scores})
            cuda.agree(dtype .. " factors", function(args) return factors(args[1], args[2], false, 0.4) end, {scores, flow.tensor {5, 9}})
        end
    end)
end)
