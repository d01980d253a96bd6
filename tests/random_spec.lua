-- random_spec.lua -- random ops: known words, ranges, moments, dtypes, dropout's mask in the gradient; generators.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"

describe("randint", function()
    it("begins at 0 where there is one bound", function()
        flow.manual_seed(4)
        local both = flow.randint(0, 7, {3, 2})
        flow.manual_seed(4)
        assert.is_true(flow.equal(both, flow.randint(7, {3, 2})))
        assert.are.equal("int32 3 2", flow.randint(7, {3, 2}, {dtype = "int32"}).dtype .. " " ..
            table.concat(flow.randint(7, {3, 2}).shape, " "))
        assert.are.equal(0, flow.randint(7, {}).ndim)
        assert.are.equal(2, flow.randint(5, {high = 7, size = {2}}):numel())
        assert.are.equal(0, flow.randint_like(flow.ones(2, 3), 1):sum():item())
        assert.are.equal(8, flow.randint_like(flow.ones(2), 4, 5):sum():item())
        assert.are.equal("float64", flow.randint_like(flow.ones(2), 4, {dtype = "float64"}).dtype)
        assert.is_false(flow.has "x:randint")
        assert.are.equal("randint_like: too many arguments: randint_like(x, low: int, high: int, options)",
            support.placed_message_of(function() flow.randint_like(flow.ones(2), 4, flow.nn.Linear(2, 2)) end))
    end)
end)

describe("uniforms", function()
    it("are the words of Philox4x32-10", function()
        flow.manual_seed(0)
        local words = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8} -- Random123's answer for key 0, counter 0
        local got = flow.rand(4):totable()
        for i = 1, 4 do assert.are.equal((words[i] >> 8) * 2.0 ^ -24, got[i]) end
    end)

    it("stay below 1 in every dtype", function()
        for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
            local x = flow.rand(20000, {dtype = dtype}):to("float64")
            assert.is_true(x:lt(1):all():item())
            assert.is_true(x:ge(0):all():item())
            assert.is_true(math.abs(x:mean():item() - 0.5) < 0.02)
        end
    end)

    it("fill views in place", function()
        local x = flow.zeros(3, 4)
        x:t():narrow(0, 1, 2):uniform_(2, 3)
        assert.is_true(x:narrow(1, 1, 2):ge(2):all():item())
        assert.are.equal(0, x:select(1, 0):sum():item())
    end)
end)

describe("normals", function()
    it("have the moments of a normal distribution", function()
        flow.manual_seed(11)
        local x = flow.randn(200000):to("float64")
        assert.is_true(math.abs(x:mean():item()) < 0.01)
        assert.is_true(math.abs((x * x):mean():item() - 1) < 0.02)
        assert.is_true(math.abs((x * x * x * x):mean():item() - 3) < 0.1)
    end)

    it("do not depend on the shape", function()
        flow.manual_seed(3)
        local flat = flow.randn(100)
        flow.manual_seed(3)
        assert.is_true(flow.randn(10, 10):reshape(100):eq(flat):all():item())
    end)
end)

describe("integers", function()
    it("lie in the range", function()
        local x = flow.randint(3, 7, {4000})
        for v = 3, 6 do assert.is_true(math.abs(x:eq(v):to("float32"):mean():item() - 0.25) < 0.05) end
        assert.is_true(flow.randint(-4000000000, -3999999999, {5}):eq(-4000000000):all():item())
    end)

    it("refuse empty ranges and ranges the dtype lacks", function()
        assert.has_error(function() flow.randint(5, 5, {2}) end)
        assert.has_error(function() flow.randint(0, 300, {2}, {dtype = "uint8"}) end)
    end)

    it("permute", function()
        local list = flow.randperm(500):totable()
        table.sort(list)
        for i = 1, 500 do assert.are.equal(i - 1, list[i]) end
    end)
end)

describe("dropout", function()
    it("has the same mask in its gradient", function()
        local x = flow.randn(50, 40, {requires_grad = true})
        local y = x:dropout(0.4)
        y:sum():backward()
        assert.is_true((x.grad * x):sub(y):abs():max():item() < 1e-5)
        assert.is_true(math.abs(y:ne(0):to("float32"):mean():item() - 0.6) < 0.05)
    end)

    it("does nothing when not training and everything at 1", function()
        local x = flow.randn(5)
        assert.is_true(x:dropout(0.5, false):eq(x):all():item())
        assert.are.equal(0, x:dropout(1):abs():sum():item())
        assert.has_error(function() x:dropout(1.5) end)
    end)
end)

it("bernoulli follows its probabilities", function()
    assert.are.same({0, 1, 0, 1}, flow.bernoulli(flow.tensor {0.0, 1.0, 0.0, 1.0}):totable())
    assert.has_error(function() flow.bernoulli(flow.tensor {2.0}):item() end)
end)

---- Philox in plain Lua ----

-- Four words: key is the seed, the counter is (block, op counter), as Random123 counts.
local function philox(seed, counter, block)
    local k0, k1 = seed & 0xffffffff, seed >> 32
    local c0, c1, c2, c3 = block & 0xffffffff, block >> 32, counter & 0xffffffff, counter >> 32
    for _ = 1, 10 do
        local a, b = 0xd2511f53 * c0, 0xcd9e8d57 * c2
        c0, c1, c2, c3 = (b >> 32) ~ c1 ~ k0, b & 0xffffffff, (a >> 32) ~ c3 ~ k1, a & 0xffffffff
        k0, k1 = (k0 + 0x9e3779b9) & 0xffffffff, (k1 + 0xbb67ae85) & 0xffffffff
    end
    return {c0, c1, c2, c3}
end

local function word(seed, counter, index) return philox(seed, counter, index // 4)[index % 4 + 1] end

describe("Philox", function()
    it("gives Random123's words", function()
        assert.are.same({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, philox(0, 0, 0))
        assert.are.same({0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, philox(-1, -1, -1))
        assert.are.same({0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88))
    end)

    it("is what uniforms and integers are made of", function()
        for _, seed in ipairs {0, 1, -1, 12345, 0x299f31d0a4093822, math.mininteger} do
            flow.manual_seed(seed)
            local uniform = flow.rand(1001):totable()                               -- op 0
            local half = flow.rand({7}, {dtype = "float16"}):to("float64"):totable() -- op 1
            local bytes = flow.randint(-3, 250, {33}):totable()                      -- op 2
            local wide = flow.randint(-1 << 50, 1 << 50, {9}):totable()              -- op 3
            local double = flow.rand({5}, {dtype = "float64"}):totable()             -- op 4
            for _, i in ipairs {0, 1, 2, 3, 4, 15, 16, 63, 64, 255, 999, 1000} do
                assert.are.equal((word(seed, 0, i) >> 8) * 2.0 ^ -24, uniform[i + 1])
            end
            for i = 0, 6 do assert.are.equal((word(seed, 1, i) >> 21) * 2.0 ^ -11, half[i + 1]) end
            for i = 0, 32 do assert.are.equal(-3 + (word(seed, 2, i) * 253 >> 32), bytes[i + 1]) end
            for i = 0, 8 do
                local bits = word(seed, 3, 2 * i + 1) << 32 | word(seed, 3, 2 * i)
                assert.are.equal((-1 << 50) + (bits >> 13), wide[i + 1])
            end
            for i = 0, 4 do assert.are.equal((word(seed, 4, i) >> 8) * 2.0 ^ -24, double[i + 1]) end
        end
    end)

    it("is counted by ops, not by elements", function()
        for _, first in ipairs {function() flow.rand(3) end, function() flow.randn(1000, 7) end, function() flow.randperm(5) end, function() flow.zeros(4):normal_() end,
            function() flow.ones(4):dropout(0.5) end, function() flow.bernoulli(flow.zeros(3)) end, function() flow.rand(0) end} do
            flow.manual_seed(77)
            first()
            assert.are.equal((word(77, 1, 0) >> 8) * 2.0 ^ -24, flow.rand(1):item())
        end
        flow.manual_seed(77)
        flow.ones(4):dropout(0)
        flow.ones(4):dropout(0.5, false)
        assert.are.equal((word(77, 0, 0) >> 8) * 2.0 ^ -24, flow.rand(1):item()) -- these draw nothing
    end)
end)

describe("distributions:", function()
    local n = 400000
    local function mean(t) return t:to("float64"):mean():item() end
    local function near(want, got, eps) assert.is_true(math.abs(want - got) < eps, ("%g, expected %g"):format(got, want)) end

    before_each(function() flow.manual_seed(2024) end)

    it("uniform", function()
        local x = flow.rand(n)
        near(1 / 2, mean(x), 0.003)
        near(1 / 12, x:var():item(), 0.001)
        for i = 0, 9 do near(0.1, mean(x:ge(i / 10):logical_and(x:lt((i + 1) / 10))), 0.003) end
        near(0, mean((x:narrow(0, 1, n - 1) - 0.5) * (x:narrow(0, 0, n - 1) - 0.5)), 0.001) -- neighbours
        near(0, mean((x:narrow(0, 4, n - 4) - 0.5) * (x:narrow(0, 0, n - 4) - 0.5)), 0.001) -- blocks
        local y = flow.zeros(n):uniform_(-3, 5)
        assert.is_true(y:ge(-3):all():item() and y:le(5):all():item())
        near(1, mean(y), 0.02)
        near(64 / 12, y:var():item(), 0.05)
    end)

    it("normal", function()
        for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
            local x = flow.randn({n}, {dtype = dtype}):to("float64")
            near(0, mean(x), 0.006)
            near(1, x:var():item(), 0.012)
            near(0, mean(x * x * x), 0.03)
            near(3, mean(x ^ 4), 0.08)
            for sigma, within in pairs {[1] = 0.6827, [2] = 0.9545, [3] = 0.9973} do near(within, mean(x:abs():lt(sigma)), 0.003) end
            assert.is_true(x:isfinite():all():item())
            near(0, mean(x:narrow(0, 1, n - 1) * x:narrow(0, 0, n - 1)), 0.01)
        end
        local y = flow.zeros(n):normal_(-2, 3)
        near(-2, mean(y), 0.02)
        near(9, y:var():item(), 0.12)
        assert.are.same({4, 4}, flow.zeros(2):normal_(4, 0):totable())
    end)

    it("integers", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "float32"} do
            local x = flow.randint(-0, 7, {n}, {dtype = dtype})
            assert.are.equal(dtype, x.dtype)
            for v = 0, 6 do near(1 / 7, mean(x:eq(v)), 0.003) end
        end
        assert.are.same({5, 5, 5}, flow.randint(5, 6, {3}):totable())
        local whole = flow.randint(math.mininteger, math.maxinteger, {n})
        near(0.5, mean(whole:lt(0)), 0.004)
        near(0.5, mean(whole:bitwise_and(1)), 0.004)
        local all = flow.randint(0, 256, {n}, {dtype = "uint8"})
        assert.are.equal(255, all:amax():item())
        assert.are.equal(0, all:amin():item())
    end)

    it("permutations", function()
        for _, size in ipairs {0, 1, 2, 17, 1000, 150001} do
            local p = flow.randperm(size)
            assert.are.equal("int64", p.dtype)
            local seen = flow.zeros({size}, {dtype = "int64"})
            if size > 0 then seen[p] = 1 end
            assert.are.equal(size, seen:sum():item())
        end
        local first = flow.zeros(5)
        for _ = 1, 2000 do
            local at = flow.randperm(5)[0]
            first[at] = first[at] + 1
        end
        for _, count in ipairs(first:totable()) do near(400, count, 80) end
        assert.are.equal("int32", flow.randperm(4, {dtype = "int32"}).dtype)
    end)

    it("dropout", function()
        for _, p in ipairs {0.1, 0.5, 0.9} do
            for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
                local y = flow.ones({n}, {dtype = dtype}):dropout(p)
                near(1 - p, mean(y:ne(0)), 0.004)
                near(1, mean(y), 0.03)
                local kept = y:amax():item()
                near(1 / (1 - p), kept, kept * 0.005)
                assert.is_true(y:eq(0):logical_or(y:eq(kept)):all():item())
            end
        end
        local strided = flow.ones(300, 200):t():dropout(0.5)
        near(0.5, mean(strided:ne(0)), 0.01)
        local same = flow.tensor {1.0, 2.0}
        assert.are.same({1, 2}, same:dropout(0):totable())
        assert.are.same({0, 0}, same:dropout(1):totable())
    end)

    it("bernoulli", function()
        local p = flow.tensor {0.0, 0.25, 0.5, 1.0}
        local x = flow.bernoulli(p:expand(50000, 4))
        for i, rate in ipairs {0, 0.25, 0.5, 1} do near(rate, mean(x[{{}, i - 1}]), 0.01) end
    end)
end)

describe("a seed", function()
    it("repeats everything, another one nothing", function()
        local function draw(seed)
            flow.manual_seed(seed)
            return flow.cat({flow.randn(50), flow.rand(50), flow.randint(0, 1000000, {50}):to("float32"), flow.randperm(500):to("float32")})
        end
        assert.is_true(draw(3):eq(draw(3)):all():item())
        assert.is_true(draw(3):eq(draw(4)):sum():item() < 10)
        assert.is_true(draw(3):eq(draw(3 + (1 << 32))):sum():item() < 10)
    end)

    it("without manual_seed differs from run to run", function()
        local function run()
            return (process.output(process.flowlua .. " -e 'print(flow.randint(0, 1 << 60, {2}):sum():item())'"))
        end
        assert.are_not.equal(run(), run())
    end)
end)

-- Runs tests/deterministic.lua as other processes and compares what they save.
describe("results are the same", function()
    local ref = require "tests.reference"

    local function run(settings)
        local path = os.tmpname()
        assert.is_true((os.execute(("%s %s tests/deterministic.lua %s"):format(settings, process.flowlua, path))))
        local results = flow.load(path)
        os.remove(path)
        local flat = {}
        local function walk(t, name)
            for key, value in pairs(t) do
                if flow.is_tensor(value) then flat[name .. key] = value else walk(value, name .. key .. ".") end
            end
        end
        walk(results, "")
        return flat
    end

    local function different(a, b, prefixes)
        local names, count = {}, 0
        for name, t in pairs(a) do
            local wanted = not prefixes
            for _, prefix in ipairs(prefixes or {}) do wanted = wanted or name:sub(1, #prefix) == prefix end
            if wanted then
                count = count + 1
                if not ref.same_bits(t, b[name]) then names[#names + 1] = name end
            end
        end
        assert.is_true(count > 10)
        table.sort(names)
        return names
    end

    local whole = nil
    local function reference()
        whole = whole or run "FLOW_THREADS=1"
        return whole
    end

    for _, threads in ipairs {2, 3} do
        it("on " .. threads .. " threads", function()
            assert.are.same({}, different(reference(), run("FLOW_THREADS=" .. threads)))
        end)
    end

    for _, level in ipairs {"base", "avx2"} do
        it("on the level " .. level .. ": random numbers and sums in every bit, the rest up to rounding", function()
            local other = run("FLOW_CPU=" .. level)
            assert.are.same({}, different(reference(), other, {"random", "sum", level == "avx2" and "vectors" or nil}))
            for name, t in pairs(reference()) do
                local a, b = t:to("float64"), other[name]:to("float64")
                local eps = t.dtype == "bfloat16" and 1e-2 or 2e-5
                assert.is_true((a - b):abs():le(eps * a:abs():clamp(1)):logical_or(a:eq(b)):all():item(), name)
            end
        end)
    end

    it("when queued and when run at once", function()
        assert.are.same({}, different(reference(), run("FLOW_ENGINE=naive")))
    end)
end)

describe("messages", function()
    for _, case in ipairs {
        {"randint: high 5 must be greater than low 5", function() flow.randint(5, 5, {2}) end},
        {"randint: 0 to 299 does not fit uint8", function() flow.randint(0, 300, {2}, {dtype = "uint8"}) end},
        {"randint: missing argument 'size': randint(low: int, high: int, size: sizes, options)", function() flow.randint(0, 5) end},
        {"randperm: n -1 is negative", function() flow.randperm(-1) end},
        {"rand: takes a float dtype, not int32", function() flow.rand({2}, {dtype = "int32"}) end},
        {"randn: takes a float dtype, not bool", function() flow.randn({2}, {dtype = "bool"}) end},
        {"normal_: std -1 must not be negative", function() flow.zeros(2):normal_(0, -1) end},
        {"uniform_: low 2 must not be greater than high 1", function() flow.zeros(2):uniform_(2, 1) end},
        {"dropout: p 1.5 is not between 0 and 1", function() flow.zeros(2):dropout(1.5) end},
        {"dropout: p nan is not between 0 and 1", function() flow.zeros(2):dropout(0 / 0) end},
        {"bernoulli: probability 2 is not between 0 and 1", function() flow.bernoulli(flow.tensor {2.0}):item() end},
        {"dropout: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):dropout(0.5) end},
        {"normal_: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):normal_() end},
        {"manual_seed: seed must be a whole number, got 1.5", function() flow.manual_seed(1.5) end},
    } do
        it(case[1], function()
            assert.are.equal(case[1], support.message_of(case[2]))
        end)
    end
end)

describe("generators", function()
    it("are streams of their own", function()
        flow.manual_seed(1)
        local want = flow.rand(4):totable()
        flow.manual_seed(1)
        local g = flow.generator(1)
        local inside = flow.with_generator(g, function(n) return flow.rand(n):totable() end, 4)
        assert.are.same(want, inside)
        assert.are.same(want, flow.rand(4):totable())
        do
            local _ <close> = flow.with_generator(g)
            assert.are_not.same(want, flow.rand(4):totable())
        end
    end)

    it("can be saved and restored", function()
        local g = flow.generator(5)
        local _ <close> = flow.with_generator(g)
        flow.randn(3)
        local state = g:state()
        local want = flow.randn(3):totable()
        g:load_state(state)
        assert.are.same(want, flow.randn(3):totable())
        g:manual_seed(5)
        assert.are.same({seed = 5, counter = 0}, g:state())
    end)

    it("come off again after an error", function()
        flow.manual_seed(2)
        local before = flow.default_generator():state()
        assert.is_false(pcall(flow.with_generator, flow.generator(9), function()
            flow.rand(1)
            error("stop")
        end))
        assert.are.same(before, flow.default_generator():state())
        flow.rand(1)
        assert.are_not.same(before, flow.default_generator():state())
        assert.matches("with_generator: takes a generator, got number", select(2, pcall(flow.with_generator, 3)))
    end)
end)
