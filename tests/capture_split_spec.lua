-- capture_split_spec.lua -- captured functions that read values: pieces between the reads, with the bits of eager code.
local flow = require "flow"
local nn, optim = flow.nn, flow.optim
local support = require "tests.support"
local same_bits = support.same_bits

-- Calls make() twice, for f as it is and captured, with the same seeds and arguments; all that is returned must agree.
-- Returns the captured one.
local function check(make, calls, arguments)
    local plain, captured = make(), flow.capture(make(), {strict = false})
    for i = 1, calls do
        local want_in, got_in = table.pack(arguments(i)), table.pack(arguments(i))
        flow.manual_seed(i)
        local want = table.pack(plain(table.unpack(want_in, 1, want_in.n)))
        local after = flow.rand(1):item()
        flow.manual_seed(i)
        local got = table.pack(captured(table.unpack(got_in, 1, got_in.n)))
        assert.are.equal(after, flow.rand(1):item(), "draws of call " .. i)
        assert.are.equal(want.n, got.n)
        for k = 1, want.n do
            if flow.is_tensor(want[k]) then same_bits(want[k], got[k], ("result %d of call %d"):format(k, i))
            else assert.are.same(want[k], got[k], ("result %d of call %d"):format(k, i)) end
        end
        for k = 1, want_in.n do
            if flow.is_tensor(want_in[k]) then same_bits(want_in[k], got_in[k], "argument " .. k) end
        end
    end
    return captured
end

local function pieces(f) return tonumber(tostring(f):match "(%d+) program") end

local function numbers(i)
    flow.manual_seed(100 + i)
    return flow.randn(4, 5)
end

-- Functions whose control flow depends on values, in every way there is. `n`: the most pieces that one is split into.
local cases = {
    {"a read at the end", n = 1, function() return function(x) return (x * 2 + 1):sum():item() end end},
    {"a read, and more after it", n = 2, function()
        return function(x)
            local y = (x * 2):exp()
            local s = y:sum():item()
            return y:mean(0) - 1, s
        end
    end},
    {"a branch", n = 3, function()
        return function(x)
            local y = x * 3
            if y:sum():item() > 0 then return (y + 1):tanh() end
            return y:abs() - 2, y
        end
    end},
    {"a loop until a value is reached", function()
        return function(x)
            local n = 0
            while x:abs():sum():item() > 1 do
                x = x * 0.5
                n = n + 1
            end
            return x, n
        end
    end},
    {"printing", n = 2, function()
        return function(x)
            local y = x:matmul(x:t())
            return tostring(y), (y + 1):sum()
        end
    end},
    {"random numbers", n = 3, function()
        return function(x)
            local a = flow.dropout(x, 0.5) + flow.randn(4, 5)
            local s = a:sum():item()
            local b = flow.rand_like(a)
            return b:sum():item() + s, a * b, flow.default_generator():state().counter
        end
    end},
    {"writes in place", function()
        local total, count = flow.zeros(4, 5), flow.zeros(1)
        return function(x)
            total:add_(x)
            count:add_(1)
            x:mul_(2)
            local n = count:item()
            x[1] = n
            return total * 1, total:sum():item(), n
        end
    end},
    {"views of what was computed before a read", function()
        return function(x)
            local y = x * 2
            local v = y:narrow(0, 1, 2)
            local s = v:sum()
            v:add_(s:item() > 0 and 1 or 2)
            return y, v:t(), y:view(20):narrow(0, 3, 4)
        end
    end},
    {"writes with a gradient into views of what was computed before a read", function()
        flow.manual_seed(1)
        local w = flow.randn(5):requires_grad_()
        return function(x)
            w.grad = nil
            local y = x * 2
            local v = y:view(20):narrow(0, 5, 5)
            if y:sum():item() > 0 then y:add_(1) end
            v:copy_(w)
            y:square():sum():backward()
            return w.grad, y:detach()
        end
    end},
    {"detached tensors", n = 2, function()
        flow.manual_seed(1)
        local w = flow.randn(4, 5):requires_grad_()
        return function(x)
            local y = (w * x):detach()
            local s = y:sum():item()
            return s, (y * 2):detach()
        end
    end},
    {"lists and other values", n = 2, function()
        return function(x) return x:sum(1):totable(), "text", nil, x:argmax():item() end
    end},
    {"a shape that depends on values", function()
        return function(x)
            local y = x * 2
            return y[y:gt(0)]:sum(), y:sum():item()
        end
    end},
    {"tensors made of Lua values", function()
        return function(x)
            local y = x + flow.tensor {1, 2, 3, 4, 5}
            return y:sum():item(), y * 2
        end
    end},
    {"several results, and the same twice", n = 1, function()
        return function(x)
            local v, i = x:max(1)
            return v, i, v, v:sum():item()
        end
    end},
    {"what the function keeps", function()
        local state
        return function(x)
            state = (state and state * 0.5 or 0) + x
            return state:sum():item(), state
        end
    end},
    {"what an earlier call has left", function()
        local before = {}
        return function(x)
            before[#before + 1] = x * 2
            local s = before[#before]:sum():item()
            return before[math.max(1, #before - 2)] + s
        end
    end},
    {"another seed", function()
        return function(x)
            local y = x * flow.rand(1)
            flow.manual_seed(4)
            return (y + flow.rand(1)):sum():item()
        end
    end},
    {"another generator", function()
        return function(x)
            local g = flow.generator(3)
            local y = flow.rand_like(x)
            local z = flow.with_generator(g, function() return flow.rand_like(x) end)
            return y + z + flow.rand_like(x), (y * z):sum():item()
        end
    end},
    {"einsum, whose attribute is a text", n = 2, function()
        return function(x)
            local y = flow.einsum("ij,kj->ik", x, x)
            local s = y:sum():item()
            return flow.einsum("ij,kj->ki", x, x), s
        end
    end},
}

local function train(o)
    return function()
        flow.manual_seed(5)
        local net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3))
        local opt = (o.optimizer or optim.AdamW)(net:parameters(), {lr = 0.05})
        local rates = o.schedule and optim.Scheduler(opt, optim.schedule.warmup_cosine(20, {warmup = 2}))
        local losses = {}
        return function(x)
            opt:zero_grad()
            local loss
            for _ = 1, o.accumulate or 1 do
                loss = (net(x) - 1):square():mean()
                if o.early then losses[#losses + 1] = loss:item() end
                loss:backward()
            end
            local norm = optim.clip_grad_norm(net:parameters(), 0.5)
            if o.skips and norm:item() > o.skips then return norm end
            opt:step()
            if rates then rates:step() end
            losses[#losses + 1] = loss:item()
            return losses[#losses], net:parameters()[1] * 1, loss.is_leaf, loss.requires_grad, net:parameters()[1].grad
        end
    end
end

describe("a captured function that reads values", function()
    for _, case in ipairs(cases) do
        it("gives the bits of eager code: " .. case[1], function()
            local f = check(case[2], 8, numbers)
            if case.n then
                assert.is_true(pieces(f) >= 1 and pieces(f) <= case.n, tostring(f))
            end
        end)
    end

    for what, o in pairs {
        ["AdamW"] = {}, ["SGD"] = {optimizer = optim.SGD}, ["two batches"] = {accumulate = 2}, ["a schedule"] = {schedule = true},
        ["steps that are left out"] = {skips = 1.2}, ["a read before backward"] = {early = true},
    } do
        it("trains like eager code: " .. what, function()
            local f = check(train(o), 12, numbers)
            assert.is_true(o.early and pieces(f) == 0 or pieces(f) >= 1, tostring(f))
        end)
    end

    it("takes arguments of other shapes, with gaps, twice the same, and one that is bound", function()
        local w = flow.randn(4, 5)
        local data = flow.randn(40, 10)
        local lists = {
            {w, w}, {flow.ones(4, 5), w}, {w, flow.ones(4, 5)}, {flow.ones(2, 5), flow.ones(2, 5)}, {data:narrow(0, 4, 4):narrow(1, 0, 5), w},
            {data:view(80, 5):narrow(0, 8, 4), data:view(80, 5):narrow(0, 3, 4)}, {flow.ones(4, 5), flow.zeros(4, 5)},
        }
        check(function()
            local bound = w:clone()
            lists.bound = bound
            return function(x, y)
                local z = x * 2 + y
                local s = z:sum():item()
                return z - bound:narrow(0, 0, x:size(0)), s
            end
        end, 21, function(i)
            local list = lists[(i - 1) % #lists + 1]
            return list[1], list[2]
        end)
    end)

    it("may get what it has bound, and write to it", function()
        local w = flow.ones(3)
        local f = flow.capture(function(x)
            local a = w * 2
            x:add_(1)
            return (w * 2 + a):sum():item()
        end, {strict = false})
        assert.are.equal(12, f(flow.ones(3)))
        for _ = 1, 4 do assert.are.equal(12, f(flow.ones(3))) end
        assert.are.equal(18, f(w))
        assert.are.equal(24, f(flow.ones(3)))
    end)

    it("sees numbers and other values as they are", function()
        check(function()
            return function(x, rate, name, n)
                local y = x * rate
                if n % 3 == 0 then return ("%s %d %.3f"):format(name, n, y:sum():item()) end
                return y
            end
        end, 9, function(i)
            if i == 1 then return numbers(1), 1.0, "a", flow.is_tensor(1) and 1 or 1 end
            return numbers(i), 0.5, "b", i
        end)
    end)

    it("does what it did before an error, and works after it", function()
        check(function()
            local state = flow.zeros(4, 5)
            return function(x)
                state:add_(x)
                local ok = pcall(function()
                    local y = state * 2
                    if y:sum():item() > 3 then error "too large" end
                    return y:matmul(y)
                end)
                return ok, state * 1, state:sum():item()
            end
        end, 8, numbers)
        local state = flow.zeros(3)
        local f = flow.capture(function(fails)
            state:add_(1)
            if state:sum():item() < 0 then return end
            state:add_(1)
            if fails then error "of the function" end
            return state:sum():item()
        end, {strict = false})
        for i = 1, 4 do assert.are.equal(6 * i, f(false)) end
        assert.is_truthy(support.error_of(f, true):find "of the function")
        assert.are.equal(30, state:sum():item())
        for i = 6, 8 do assert.are.equal(6 * i, f(false)) end
    end)

    it("is captured after errors, wherever they came from", function()
        local f = flow.capture(function(x, fails)
            local y = x * 2
            if fails == 1 then error "of the function" end
            if fails == 2 then return y:matmul(y) end
            return y:sum():item()
        end, {strict = false})
        for i = 1, 8 do assert.is_truthy(support.error_of(f, flow.ones(3, 2), 1 + i % 2)) end
        for _ = 1, 3 do assert.are.equal(12, f(flow.ones(3, 2), 0)) end
        assert.are.equal(1, pieces(f))
    end)

    it("has hooks, retained gradients, flow.grad and flow.checkpoint", function()
        check(function()
            flow.manual_seed(1)
            local w, seen = flow.randn(4, 5):requires_grad_(), 0
            w:register_hook(function() seen = seen + 1 end)
            return function(x)
                w.grad = nil
                local y = flow.checkpoint(function(t) return (t * w):tanh() end, x)
                local loss = y:sum()
                loss:backward()
                return seen, loss:item(), w.grad
            end
        end, 6, numbers)
        check(function()
            flow.manual_seed(1)
            local w = flow.randn(4, 5):requires_grad_()
            return function(x)
                local y = (x * w):exp()
                y:retain_grad()
                w.grad = nil
                local g = flow.grad((w * w):sum(), {w})
                y:sum():backward()
                return y.grad, g[1], g[1]:sum():item(), w.grad
            end
        end, 6, numbers)
    end)

    it("is part of another captured function, and may have one", function()
        local inner = flow.capture(function(x) return x * 2 + 1 end)
        check(function()
            return function(x)
                local y = inner(x)
                local s = y:sum():item()
                return inner(y) + s
            end
        end, 6, numbers)
    end)

    it("keeps results that are as they were", function()
        local f = flow.capture(function(x)
            local y = x * 2
            return y:sum():item(), y + 1
        end, {strict = false})
        local kept = {}
        for i = 1, 10 do kept[i] = {select(2, f(flow.full({50}, i + 0.0)))} end
        for i = 1, 10 do same_bits(flow.full({50}, 2.0 * i + 1), kept[i][1], "result") end
    end)

    it("holds no memory once it is gone", function()
        local before = support.settled_memory()
        local f = flow.capture(function(x)
            local y = x * flow.ones(1000)
            return y:sum():item(), y:exp()
        end, {strict = false})
        for _ = 1, 6 do f(flow.randn(1000)) end
        f = nil -- luacheck: ignore
        local after = support.settled_memory()
        assert.are.equal(before.tensors, after.tensors)
        assert.are.equal(before.live_bytes, after.live_bytes)
    end)
end)
