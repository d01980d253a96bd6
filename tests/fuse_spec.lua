-- fuse_spec.lua -- elementwise results that are computed when somebody needs their memory (dispatch/chain.h): values, what
-- forces them, what they cost. Results of at least 32 K elements, on a GPU 4 K, are deferred; smaller pieces of the same operands
-- are not.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim

local N, PIECE = 40000, 2500
local bytes = 4 * N

-- The same elementwise function piece by piece: nothing is deferred.
local function by_pieces(f, ...)
    local operands, parts = {...}, {}
    for first = 0, N - 1, PIECE do
        local some = {}
        for i, x in ipairs(operands) do some[i] = x:narrow(0, first, PIECE):clone() end
        parts[#parts + 1] = f(table.unpack(some)):reshape(PIECE)
    end
    return flow.cat(parts, 0)
end

local function same(want, got)
    assert.are.same(want.dtype, got.dtype)
    assert.is_true(want:eq(got):logical_or(want:ne(want):logical_and(got:ne(got))):all():item())
end

local a, b, c = flow.randn(N), flow.randn(N), flow.rand(N) + 0.5

-- Live bytes that f's results add, while they are held.
local function held(f)
    local before = support.settled_memory().live_bytes
    local results = {f()}
    collectgarbage()
    return flow.memory().live_bytes - before, results
end

describe("deferred results", function()
    local chains = {
        norm = function(x, y) return (x * x + y * y):clamp(1e-6):sqrt() / (1 + (x - y):abs()) end,
        gate = function(x, y, z) return (x * y + z):tanh() * y:sigmoid() + (-z * z):exp() end,
        choice = function(x, y, z) return flow.where(x:gt(y), x * 2, z - y):maximum(z:neg()) end,
        halves = function(x, y) return (x:to "float16" * y:to "float16" + 1):to "float32" * x end,
        wide = function(x, y) return (x:to "float64" * y + 0.1):sqrt():to "float32" end,
        masks = function(x, y, z) return (x:gt(0) * y:lt(z)):to "int32" * 3 - 1 end,
        powers = function(x, y, z) return z ^ 2 + z:pow(y) + x ^ 3 end,
        curved = function(x, y, z) return flow.gelu(x) * flow.silu(y) - flow.softplus(z) + x:sin() * 1e3 end,
    }
    for name, f in pairs(chains) do
        it("have the bits of ops that run one by one: " .. name, function() same(by_pieces(f, a, b, c), f(a, b, c)) end)
    end

    -- The root alone is a loop over the processor's instruction; in a chain it may be computed in another way.
    it("have the bits of roots that are computed alone", function()
        local function check(x)
            flow.sync()
            local alone = x:sqrt()
            flow.sync()
            same(alone, (x * 1):sqrt())
        end
        local mantissas = flow.arange(2 ^ 23) / 2 ^ 23 + 1
        check(mantissas)
        check(mantissas * 2)
        local edges = {0.0, -0.0, -1.0, -0x1p-140, math.huge, -math.huge, 0 / 0, 0x1.fffffep127}
        for exponent = -149, 127 do edges[#edges + 1] = 2.0 ^ exponent end
        for i, edge in ipairs(edges) do -- in each place of a block
            mantissas[i * 131] = edge
        end
        check(mantissas)
        check(flow.tensor(edges):unsqueeze(1):expand(#edges, 2048):reshape(-1) * 1.5)
        check(a:to "float64":abs())
    end)

    -- The results of some steps are kept in registers until another one takes them; of several at a time, some go to memory.
    for _, dtype in ipairs {"float32", "float64"} do
        it("have the bits of any tree of sums and products, " .. dtype, function()
            -- The tree that a seed gives.
            local function tree(random, leaves, depth)
                local pick = math.floor((random() + 1) * 4) % 8
                if depth == 0 then return leaves[pick % 3 + 1] end
                local x, y = tree(random, leaves, depth - 1), tree(random, leaves, pick < 2 and 0 or depth - 1)
                if pick == 0 then return x:abs():sqrt() end
                return pick < 3 and x + y or pick < 5 and x - y or pick < 7 and x * y or x / y
            end
            for seed = 1, 12 do
                local function f(...) return tree(ref.generator(seed), {...}, 4) * 1.5 end
                same(by_pieces(f, a:to(dtype), b:to(dtype), c:to(dtype)), f(a:to(dtype), b:to(dtype), c:to(dtype)))
            end
        end)
    end

    it("take operands that are broadcast, along rows and columns, and numbers", function()
        local x, row, column = a:view(200, 200), b:narrow(0, 0, 200), c:narrow(0, 0, 200):view(200, 1)
        local got = (x + row) * column - (row * 2 + column) / 3
        for i = 0, 199, 37 do
            same(((x[i + 1] + row) * column[i + 1]) - (row * 2 + column[i + 1]) / 3, got[i + 1])
        end
    end)

    it("are stored past the caches, rows of any length", function()
        local x, column = flow.ones(4096, 1031), flow.arange(4096):to "float32":view(4096, 1)
        local y = x + column
        assert.are.equal(1031.0 * 4095 * 2048 + 4096 * 1031, y:to "float64":sum():item())
        for _, i in ipairs {0, 1, 77, 4095} do same(x[i] + i, y[i]) end
    end)

    -- There long steps ask for what the next tile reads.
    it("have the bits of ops that run one by one where operands are larger than the caches", function()
        local function f(x, y, z) return (x * y):tanh() * y:sigmoid() + z:exp() / (x:exp() + 1) end
        local x, y, column = flow.randn(4200, 1031), flow.randn(4200, 1031), flow.randn(4200, 1)
        local got = f(x, y, column)
        for i = 0, 4199, 323 do same(f(x[i]:clone(), y[i]:clone(), column[i]), got[i]) end
        local flat = f(x, y, x)
        for i = 0, 4199, 323 do same(f(x[i]:clone(), y[i]:clone(), x[i]:clone()), flat[i]) end
    end)

    it("are computed by what reads them", function()
        local want = by_pieces(function(x) return x * 2 + 1 end, a)
        local function fresh() return a * 2 + 1 end
        same(want, fresh())
        assert.are.equal(want[7]:item(), fresh()[7]:item())
        assert.are.same(want:totable(), fresh():totable())
        assert.are.equal(tostring(want), tostring(fresh()))
        same(want, fresh():clone())
        same(want:view(200, 200):t():contiguous():view(N), fresh():view(200, 200):t():contiguous():view(N))
        same(want:narrow(0, 5, 99), fresh():narrow(0, 5, 99))
        same(want:sort(), fresh():sort())
        same(want:view(200, 200):matmul(a:view(200, 200)), fresh():view(200, 200):matmul(a:view(200, 200)))
        same(want:to "float64", fresh():to "float64")
        local path = os.tmpname()
        flow.save(path, {x = fresh()})
        same(want, flow.load(path).x)
        os.remove(path)
    end)

    it("keep the values of their operands when these are written", function()
        local writes = {
            function(x) x:add_(1) end,
            function(x) x:narrow(0, 100, 50):mul_(3) end,
            function(x) x:view(200, 200):t():fill_(7) end,
            function(x) x:copy_(b) end,
            function(x) x[{{11, 20}}] = 0 end,
            function(x) x:zero_() end,
            function(x) x:normal_() end,
        }
        for _, write in ipairs(writes) do
            local x = a:clone()
            local y = x * 2
            local z = y + x
            write(x)
            same(by_pieces(function(p) return p * 2 end, a), y)
            same(by_pieces(function(p) return p * 2 + p end, a), z)
        end
    end)

    it("may be written themselves", function()
        local y = a * 2
        local z = y + 1
        y:add_(5)
        same(by_pieces(function(x) return x * 2 + 5 end, a), y)
        same(by_pieces(function(x) return x * 2 + 1 end, a), z)
        local u = a * 2
        u:narrow(0, 0, 10):zero_()
        assert.are.equal(0, u:narrow(0, 0, 10):abs():sum():item())
        same((a * 2):narrow(0, 10, 99), u:narrow(0, 10, 99))
    end)

    it("are right in any order of reading", function()
        for _, order in ipairs {{1, 30, 1}, {30, 1, -1}} do
            local list, want = {}, a:clone()
            local y = a
            for i = 1, 30 do
                y = y * 0.5 + i
                list[i] = y
            end
            local wants = {}
            for i = 1, 30 do
                want = by_pieces(function(x) return x * 0.5 + i end, want)
                wants[i] = want
            end
            for i = order[1], order[2], order[3] do same(wants[i], list[i]) end
        end
    end)

    it("cost nothing while nobody needs them", function()
        local added = held(function()
            local y = a * b
            return y, (y + c):exp(), y:sqrt()
        end)
        assert.are.equal(0, added)
        added = held(function()
            local y = (a * b + c):exp() * 2
            flow.sync()
            return y
        end)
        assert.are.equal(bytes, added)
    end)

    it("are not computed in loops that throw them away", function()
        local report = flow.explain(function()
            for _ = 1, 200 do local _ = (a * b + c):tanh() * 2 - c:abs() end
        end)
        assert.is_true(#report.passes <= 1, #report.passes .. " passes")
    end)

    it("keep their values when a chain makes room", function()
        local kept, sum = {}, flow.zeros(N)
        for i = 1, 300 do
            local y = (a * i + b):abs() - c
            if i % 20 == 0 then kept[#kept + 1] = y end
            if i % 50 == 0 then sum = sum + y end
        end
        for i, got in ipairs(kept) do same(by_pieces(function(x, y, z) return (x * (20 * i) + y):abs() - z end, a, b, c), got) end
        same(by_pieces(function(x, y, z)
            local total = flow.zeros(PIECE)
            for i = 50, 300, 50 do total = total + ((x * i + y):abs() - z) end
            return total
        end, a, b, c), sum)
    end)

    local dtypes = {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"}
    for _, from in ipairs(dtypes) do
        it("may be casts, from " .. from, function()
            local x = (a * 100):to(from)
            flow.sync()
            for _, to in ipairs(dtypes) do
                local want = by_pieces(function(y) return y:to(to) end, x)
                same(want, x:to(to))
                same(want:view(200, 200):t(), x:view(200, 200):t():to(to))
                same(want:to("float64") * 2, x:to(to):to("float64") * 2)
            end
        end)
    end

    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
        it("may be random, " .. dtype, function()
            local function draw(wait)
                flow.manual_seed(5)
                local u, z = flow.rand({N}, {dtype = dtype}), flow.randn({N}, {dtype = dtype})
                wait()
                local _ = flow.rand_like(z) -- is never read, and counts all the same
                local like = flow.randn_like(u)
                wait()
                local dropped = flow.dropout(z, 0.3)
                wait()
                return u + z * like - dropped
            end
            same(draw(flow.sync), draw(function() end))
        end)
    end

    it("drop out what they drop in memory, and so do their gradients", function()
        local function run(wait)
            flow.manual_seed(9)
            local x = a:clone():requires_grad_()
            local y = flow.dropout(x * 2, 0.4)
            wait()
            y = y + x
            wait();
            (y * b):sum():backward()
            return y:detach(), x.grad
        end
        local y, g = run(flow.sync)
        local fused_y, fused_g = run(function() end)
        same(y, fused_y)
        same(g, fused_g)
    end)

    it("give gradients their bits", function()
        local function gradients(from, length)
            local x = a:narrow(0, from, length):clone():requires_grad_()
            local w = b:narrow(0, from, length):clone():requires_grad_()
            local function loss()
                local y = (x * w + w):tanh() * x:sigmoid()
                return y * y - flow.gelu(x)
            end
            loss():backward(flow.ones(length))
            return x.grad, w.grad
        end
        local gx, gw = gradients(0, N)
        for from = 0, N - 1, PIECE do
            local px, pw = gradients(from, PIECE)
            same(px, gx:narrow(0, from, PIECE))
            same(pw, gw:narrow(0, from, PIECE))
        end
    end)

    it("are there before an optimizer writes their operands", function()
        local w = nn.Parameter(a:clone())
        local opt = optim.SGD({w}, {lr = 0.5})
        local before = w:detach() * 3
        (w * b):sum():backward()
        opt:step()
        same(by_pieces(function(x) return x * 3 end, a), before)
        same(by_pieces(function(x, y) return x - y * 0.5 end, a, b), w:detach())
    end)
end)

describe("ops in place", function()
    local function adam(p, g, m, v)
        m:mul_(0.9):add_(g * (1 - 0.9))
        v:mul_(0.999):add_(g * g * (1 - 0.999))
        p:sub_((m / 0.19) / ((v / 0.002):sqrt() + 1e-8) * 1e-3)
    end
    local function adam_of_scaled(p, g, m, v)
        m:mul_(0.9):add_(g, {alpha = 1 - 0.9})
        v:mul_(0.999):addcmul_(g, g, {value = 1 - 0.999})
        p:addcdiv_(m, (v / 0.002):sqrt() + 1e-8, {value = -1e-3 / 0.19})
    end

    -- A state and its gradient, part of one of N elements, or all of it.
    local function state(first, length)
        local t = {a, b, c * 0.1, c}
        for i, x in ipairs(t) do t[i] = x:narrow(0, first or 0, length or N):clone() end
        flow.sync()
        return t
    end

    local writes = {
        ["mul_ add_"] = function(x, y, z) return x:mul_(y):add_(z) end,
        ["mul_ by itself"] = function(x) return x:mul_(x):mul_(x) end,
        ["add_ of a multiple"] = function(x, y) return x:add_(y, {alpha = 0.3}):sub_(y * x, {alpha = 2}) end,
        ["add_ of a multiple of itself"] = function(x) return x:add_(x, {alpha = 2}) end,
        ["addcmul_ addcdiv_"] = function(x, y, z) return x:addcmul_(y, z, {value = 2}):addcdiv_(y, z) end,
        ["functions"] = function(x, y) return x:exp_():sqrt_():clamp_(0.1, 2):lerp_(y, 0.3):neg_():tanh_() end,
        ["rounding"] = function(x, y) return x:mul_(3):floor_():add_(y) end,
        ["half, from float"] = function(x, y) return x:to "float16":mul_(y):add_(y * y) end,
        ["integers"] = function(x, y) return (x * 100):to "int32":mul_(3):add_((y * 50):to "int32"):add_(7) end,
        ["results"] = function(x, y) return (x * y):mul_(2):add_(x):relu_() end,
    }
    for name, f in pairs(writes) do
        it("have the bits of those that run one by one: " .. name, function()
            local x = a:clone()
            flow.sync()
            same(by_pieces(function(p, q, r) return f(p:clone(), q, r) end, a, b, c), f(x, b, c))
        end)
    end

    for name, step in pairs {["written out"] = adam, ["of scaled sums"] = adam_of_scaled} do
        it("are steps of one pass that stores what they write: Adam " .. name, function()
            local whole = state()
            local report = flow.explain(function() step(table.unpack(whole)) end)
            if a.device == "cpu" then
                assert.are.equal(1, #report.passes)
                assert.matches("one pass of 40000 elements, 3 of %d+ results stored: mul", tostring(report))
            end
            for _ = 1, 3 do step(table.unpack(whole)) end
            for first = 0, N - 1, PIECE do
                local part = state(first, PIECE)
                for _ = 1, 4 do step(table.unpack(part)) end
                for i, x in ipairs(part) do same(x, whole[i]:narrow(0, first, PIECE)) end
            end
        end)
    end

    it("change all views and copies of the tensor", function()
        local x = a:clone()
        local v, d, square = x:narrow(0, 100, 50), x:detach(), x:view(200, 200)
        flow.sync()
        x:mul_(2)
        same(a:narrow(0, 100, 50) * 2, v)
        d:add_(b)
        same(by_pieces(function(p, q) return p * 2 + q end, a, b), x)
        square:t():mul_(3)
        v:zero_()
        x:add_(1)
        local want = by_pieces(function(p, q) return (p * 2 + q) * 3 + 1 end, a, b)
        want:narrow(0, 100, 50):fill_(1)
        same(want, d)
        same(want:view(200, 200):t():contiguous(), square:t():contiguous())
    end)

    it("leave what was computed from the old value as it was", function()
        local x, m, v = a:clone(), a:clone(), b:clone()
        flow.sync()
        local t = x * 2
        x:add_(t)
        local u = t + x
        x:mul_(0.5)
        same(by_pieces(function(p) return p * 2 + (p + p * 2) end, a), u)
        same(by_pieces(function(p) return p * 2 end, a), t)
        same(by_pieces(function(p) return (p + p * 2) * 0.5 end, a), x)
        local old = m * 1
        m:add_(v)
        v:add_(old)
        same(by_pieces(function(p, q) return q + p end, a, b), v)
        same(by_pieces(function(p, q) return p + q end, a, b), m)
        local r = x * 2
        r:add_(1)
        local s = r * 3
        r:mul_(2)
        same(by_pieces(function(p) return ((p + p * 2) * 0.5 * 2 + 1) * 3 end, a), s)
        same(by_pieces(function(p) return ((p + p * 2) * 0.5 * 2 + 1) * 2 end, a), r)
    end)

    it("take operands that lie across what they write", function()
        local x = a:clone():view(200, 200)
        flow.sync()
        local want = x:clone() + x:t():clone()
        same(want, x:add_(x:t()))
        want = want:clone() - want:narrow(0, 3, 1):clone()
        same(want, x:sub_(x:narrow(0, 3, 1)))
        want = want:clone() + want:t():clone() * 2
        same(want, x:add_(x:t(), {alpha = 2}))
        x:mul_(2)
        local row = x:narrow(0, 7, 1) + 0
        x:add_(row)
        same(want * 2 + want:narrow(0, 7, 1) * 2, x)
        same(want:narrow(0, 7, 1) * 2, row)
    end)

    it("are computed by what reads the tensor", function()
        local want = by_pieces(function(x) return x * 2 + 1 end, a)
        local function fresh()
            local x = a:clone()
            flow.sync()
            return x:mul_(2):add_(1)
        end
        assert.are.equal(want[7]:item(), fresh()[7]:item())
        assert.are.same(want:totable(), fresh():totable())
        assert.are.equal(tostring(want), tostring(fresh()))
        same(want:sort(), fresh():sort())
        same(want:view(200, 200):matmul(a:view(200, 200)), fresh():view(200, 200):matmul(a:view(200, 200)))
        local x = fresh()
        assert.are.equal(want:sum():item(), x:sum():item())
        same(want, x)
        local path = os.tmpname()
        flow.save(path, {x = fresh()})
        same(want, flow.load(path).x)
        os.remove(path)
        local bound = fresh()
        local run = flow.capture(function(y) return y + bound end)
        for i = 1, 3 do
            same(by_pieces(function(y, p) return y + p end, b, want), run(b))
            bound:mul_(i)
            want = by_pieces(function(p) return p * i end, want)
        end
    end)

    it("give back the memory of tensors that nobody reads", function()
        local added = held(function()
            local x = flow.zeros(N)
            flow.sync()
            x:add_(a):mul_(2)
        end)
        assert.are.equal(0, added)
        added = held(function()
            local x = flow.zeros(N)
            flow.sync()
            for _ = 1, 100 do x:add_(a):mul_(0.5) end
            return x
        end)
        assert.are.equal(bytes, added)
    end)

    it("hold few of the operands that they wait to read", function()
        local size, count = 8 << 20, 8
        local total = flow.zeros(size)
        local live = support.settled_memory().live_bytes
        local function add_ones()
            local x = flow.ones(size)
            total:add_(x):mul_(1)
        end
        for i = 1, count do
            add_ones()
            collectgarbage()
            assert.is_true(flow.memory().live_bytes - live <= 4 * 4 * size, i)
        end
        assert.are.equal(count, total[size - 1]:item())
    end)

    it("count as writes on the tape", function()
        local w = b:clone():requires_grad_()
        local x = a:clone()
        flow.sync()
        local y = (w * x):sum()
        x:add_(1)
        local message = support.message_of(function() y:backward() end)
        assert.matches("mul", message)
        assert.matches("in place", message)
        local function gradients(first, length)
            local p = a:narrow(0, first, length):clone():requires_grad_()
            local q = (p * 2):mul_(3):add_(p, {alpha = 0.5}):mul_(b:narrow(0, first, length)):exp_()
            q:sum():backward()
            return p.grad
        end
        local g = gradients(0, N)
        for first = 0, N - 1, PIECE do same(gradients(first, PIECE), g:narrow(0, first, PIECE)) end
    end)

    it("write the parts of global tensors", function()
        local place = flow.placement("cpu", {0})
        local x = a:to "cpu":clone():to_global{placement = place, sbp = "B"}
        local y = b:to "cpu":clone():to_global{placement = place, sbp = "S(0)"}
        flow.sync()
        x:mul_(0.5):add_(y)
        y:mul_(x)
        same(by_pieces(function(p, q) return q * (p * 0.5 + q) end, a:to "cpu", b:to "cpu"), y:to_local():to "cpu")
    end)
end)

describe("folds of deferred results", function()
    for _, size in ipairs {32768, 32769, 65537, 131071, 131072, 131073, 300000} do
        it("give the bits of folds in memory, " .. size .. " elements", function()
            local x = flow.randn(size)
            for name, f in pairs {
                sum = function(y) return y:sum() end, mean = function(y) return y:mean() end, amax = function(y) return y:amax() end,
                norm = function(y) return y:norm() end, any = function(y) return y:gt(3):any() end,
            } do
                local stored = x * 2 + 1
                flow.sync()
                assert.are.equal(f(stored):item(), f(x * 2 + 1):item(), name)
            end
        end)
    end
    for _, width in ipairs {1, 3, 15, 16, 100, 2047, 2048, 2049, 5000} do
        it("along the last axis, " .. width .. " elements", function()
            local x = flow.randn((40000 + width - 1) // width, width)
            local row = flow.randn(width)
            local stored = x * 2 + row
            flow.sync()
            same(stored:sum(-1), (x * 2 + row):sum(-1))
            same(stored:amin(1, true), (x * 2 + row):amin(1, true))
            same(stored:sum(0), (x * 2 + row):sum(0))
        end)
    end
end)

describe("what was computed in one pass", function()
    local function ops_of(pass)
        local words = {}
        for i, step in ipairs(pass.steps) do words[i] = step.op end
        return table.concat(words, " ")
    end

    it("is in the report of flow.explain, with the lines of the script", function()
        local line = debug.getinfo(1, "l").currentline
        local report = flow.explain(function()
            local y = a * b
            return (y + c):tanh():sum(), y
        end)
        assert.are.equal(4, #report)
        local is_host = a.device == "cpu" -- the sum takes its operand while that is computed
        assert.are.equal(is_host and "mul add tanh sum" or "mul add tanh", ops_of(report.passes[1]))
        assert.are.equal(N, report.passes[1].elements)
        for i, step in ipairs(report.passes[1].steps) do
            assert.truthy(step.line:find("fuse_spec.lua:" .. line + (i == 1 and 2 or 3), 1, true), step.line)
        end
        local text = ("one pass of 40000 elements, %%d of %d results stored: mul "):format(is_host and 4 or 3)
        assert.matches(text, tostring(report))
    end)

    it("holds all variables of a loop, when a chain is full", function()
        local report = flow.explain(function()
            local x, y = a, b
            for _ = 1, 40 do x, y = x * 0.8 - y * 0.6, x * 0.6 + y * 0.8 end
            return x, y
        end)
        local steps = 0
        for _, pass in ipairs(report.passes) do steps = steps + #pass.steps end
        assert.are.equal(240, #report)
        assert.is_true(steps < 2 * 240, steps)
    end)

    it("is not computed twice once that was seen to cost much", function()
        local function softmax()
            local x = a:view(200, 200)
            local e = (x - x:amax(-1, true)):exp()
            local y = e / e:sum(-1, true)
            flow.sync()
            return y
        end
        local runs, count = 18, 0
        for _ = 1, runs do
            for _, pass in ipairs(flow.explain(softmax).passes) do
                for _, step in ipairs(pass.steps) do count = count + (step.op == "exp" and 1 or 0) end
            end
        end
        assert.is_true(count >= runs and count <= runs + 4, count) -- twice in a run only where a lesson is learned
    end)

    it("holds nothing that was deferred before, and what is still wanted at the end", function()
        local early = a * b
        local report = flow.explain(function() return a + b + c end)
        assert.are.equal(1, #report.passes)
        assert.are.equal("add add", ops_of(report.passes[1]))
        same(by_pieces(function(x, y) return x * y end, a, b), early)
    end)

    it("is empty where nothing is fused", function()
        assert.are.same({}, flow.explain(function() return flow.cat({a, b}, 0):cumsum(0) end).passes)
    end)
end)
