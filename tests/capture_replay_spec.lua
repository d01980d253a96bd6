-- capture_replay_spec.lua -- captured functions when they are called again: their results, their lists, their passes.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"
local process = require "tests.process"

local capture, same_bits = flow.capture, support.same_bits

describe("captured functions", function()
    it("become part of one another", function()
        local inner = capture(function(x) return x * 2 end)
        local outer = capture(function(x) return inner(x) + inner(x + 1) end)
        for _ = 1, 3 do
            local x = flow.randn(3)
            same_bits(x * 2 + (x + 1) * 2, outer(x), "outer")
            same_bits(x * 2, inner(x), "inner")
        end
    end)

    it("may be called again by what they call", function()
        local f
        f = capture(function(x, deep)
            if deep then return f(x, false) + 1 end
            return x * 2
        end)
        for _ = 1, 3 do same_bits(flow.ones(2) * 2 + 1, f(flow.ones(2), true), "f") end
    end)

    it("warn when they are captured for ever new arguments", function()
        local text = process.run("", [[
            local flow = require "flow"
            local f = flow.capture(function(x) return x + 1 end)
            for n = 1, 20 do assert(f(flow.ones(n)) == flow.ones(n) + 1) end
            print(f)]])
        assert.are.equal("flowlua: script.lua:3: captured 8 times, for other kinds of arguments or because what it reaches changed; each "
            .. "further time drops an older one\n"
            .. "captured function, 8 programs\n", text)
    end)

    it("take what modules do in training and evaluation apart", function()
        local net = nn.Dropout(0.5)
        local runs = 0
        local f = capture(function(x) runs = runs + 1 return net(x) end)
        local x = flow.ones(64)
        for _ = 1, 3 do
            net:train()
            assert.is_true(f(x):eq(0):any():item())
            net:eval()
            same_bits(x, f(x), "evaluation")
        end
        assert.are.equal(2, runs)
    end)

    it("are called by what calls functions", function()
        local f, x = capture(function(t) return t + 1 end), flow.ones(2)
        for _ = 1, 2 do
            same_bits(x + 1, flow.no_grad(f, x), "no_grad")
            same_bits(x + 1, flow.with_generator(flow.generator(1), f, x), "with_generator")
            same_bits(x + 1, flow.on_rank(0, f, x) or x + 1, "on_rank")
            same_bits(x + 1, capture(f)(x), "capture")
        end
    end)

    it("see that fields of modules were changed", function()
        local net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        local runs = 0
        local f = capture(function(x)
            runs = runs + 1
            return net(x:to(net[1].weight.dtype))
        end)
        local x = flow.ones(40, 3)
        local function check(what)
            for _ = 1, 2 do same_bits(net(x:to(net[1].weight.dtype)):detach(), f(x), what) end
        end
        net:eval()
        check "at first"
        net[1].weight = nn.Parameter(flow.zeros(3, 3))
        check "another parameter"
        net[1] = nn.Linear(3, 3)
        check "another module"
        net:to "float64"
        check "another dtype"
        assert.are.equal(4, runs)
        net[2].training = true
        assert.is_true(f(x):eq(0):any():item())
        net[2].training = false
        check "evaluation again"
        assert.are.equal(5, runs)
    end)

    it("see which leaves require grad", function()
        local a, b, runs = nn.Parameter(flow.ones(3)), flow.ones(3), 0
        local f = capture(function(x)
            runs = runs + 1
            a.grad, b.grad = nil, nil
            local loss = (a * x * b):sum()
            if loss.requires_grad then loss:backward() end
            return loss
        end)
        for _ = 1, 3 do
            for kind = 0, 3 do
                a.requires_grad, b.requires_grad = kind % 2 == 1, kind > 1
                f(flow.randn(3))
                assert.are.equal(kind % 2 == 1, a.grad ~= nil)
                assert.are.equal(kind > 1, b.grad ~= nil)
            end
        end
        assert.are.equal(4, runs)
    end)

    it("draw what the function would have drawn", function()
        local function f(x) return flow.dropout(x, 0.5) + flow.randn(3), flow.rand_like(x), flow.randint(0, 9, {4}) end
        local g = capture(f)
        for seed = 1, 4 do
            flow.manual_seed(seed)
            local want = {f(flow.ones(3))}
            local after = flow.rand(1):item()
            flow.manual_seed(seed)
            local got = {g(flow.ones(3))}
            for i = 1, 3 do same_bits(want[i], got[i], "draw " .. i) end
            assert.are.equal(after, flow.rand(1):item())
            local own = flow.generator(seed)
            flow.with_generator(own, function() got = {g(flow.ones(3))} end)
            flow.with_generator(flow.generator(seed), function() want = {f(flow.ones(3))} end)
            for i = 1, 3 do same_bits(want[i], got[i], "generator " .. i) end
        end
    end)

    it("draw alike after attention, which draws for nothing", function()
        local function f(x) return flow.scaled_dot_product_attention(x, x, x), flow.rand(3) end
        local g, x = capture(f), flow.randn(2, 4, 4)
        for seed = 1, 3 do
            flow.manual_seed(seed)
            local _, want = f(x)
            local after = flow.rand(1):item()
            flow.manual_seed(seed)
            local _, got = g(x)
            same_bits(want, got, "rand")
            assert.are.equal(after, flow.rand(1):item())
        end
    end)

    it("may give one tensor twice that no step has made", function()
        local f = capture(function(x)
            local empty = flow.zeros(0, 3)
            return empty, empty:t(), x + 1
        end)
        for _ = 1, 3 do
            local a, b = f(flow.ones(2))
            assert.are.same({0, 3}, {a:size(0), a:size(1)})
            assert.are.same({3, 0}, {b:size(0), b:size(1)})
        end
    end)

    it("go through dropout that was drawn outside of them", function()
        local x = flow.ones(40000):requires_grad_()
        local loss = (flow.dropout(x, 0.5) * 2):sum()
        local f = capture(function(scale)
            x.grad = nil
            loss:backward(scale, {retain_graph = true})
            return x.grad * 1
        end)
        loss:backward(flow.tensor(3.0), {retain_graph = true})
        local want = x.grad
        for _ = 1, 3 do same_bits(want, f(flow.tensor(3.0)), "gradient") end
    end)

    it("add what lies in steps to what was just computed", function()
        local function f(x, y) return (x * 2 + 1) + y:select(1, 0) end
        local g = capture(f)
        for _ = 1, 4 do
            local x, y = flow.randn(40000), flow.randn(40000, 2)
            same_bits(f(x, y), g(x, y), "sum")
        end
    end)

    it("show what they ran, with the lines of the function", function()
        local line = debug.getinfo(1, "l").currentline
        local f = capture(function(x)
            return (x:matmul(x) * 2 + 1):exp():sum(0)
        end)
        local x = flow.randn(200, 200)
        for _ = 1, 2 do f(x) end
        local words, lines = {}, 0
        for _, pass in ipairs(flow.explain(function() return f(x) end).passes) do
            for _, step in ipairs(pass.steps) do
                words[#words + 1] = step.op
                lines = lines + (step.line:find("capture_replay_spec.lua:" .. line + 2, 1, true) and 1 or 0)
            end
        end
        local is_host = x.device == "cpu" -- the sum takes its operand while that is computed
        assert.are.equal(is_host and "mul add exp sum" or "mul add exp", table.concat(words, " "))
        assert.are.equal(#words, lines)
    end)

    it("are explained and counted like the function itself", function()
        local function f(x)
            local y = (x:matmul(x) * 2 + 1):exp()
            y:add_(0.5)
            return y:sum(0), y:softmax(1)
        end
        local g = capture(f)
        local function inline_ops() return flow.engine.stats().inline_ops end
        for _, n in ipairs {4, 200} do
            local x = flow.randn(n, n)
            for _ = 1, 3 do g(x) end
            local start = inline_ops()
            f(x)
            local eager = inline_ops() - start
            g(x)
            if x.device == "cpu" then assert.are.equal(eager, inline_ops() - start - eager) end
            local function ops(call)
                local list = {}
                for i, entry in ipairs(flow.explain(function() call(x) end)) do
                    local inputs = {}
                    for k, input in ipairs(entry.inputs) do inputs[k] = input.text end
                    list[i] = ("%s %s(%s)"):format(entry.line:match ":%d+$", entry.op:gsub("_$", ""), table.concat(inputs, ", "))
                end
                table.sort(list)
                return list
            end
            assert.are.same(ops(f), ops(g))
        end
    end)

    it("are met by FLOW_FAULT", function()
        local script = [[
            local flow = require "flow"
            local x = flow.ones(3)
            local f = flow.capture(function() return (x:exp() + 1):sum() end)
            for i = 1, 4 do print(pcall(f)) end]]
        -- ones, three ops recorded, three in each replay
        assert.are.equal("captured at script.lua:3: exp: made to fail by FLOW_FAULT",
            process.run("FLOW_FAULT=0:5:error", script):match "captured at [^\n]*")
        local text = process.run("FLOW_FAULT=0:9:error", script)
        local trues = select(2, text:gsub("true", ""))
        assert.are.equal("3 captured at script.lua:3: add: made to fail by FLOW_FAULT", trues .. " " .. text:match "captured at [^\n]*")
    end)

    it("share memory by lifetime", function()
        local f = capture(function(x)
            for _ = 1, 20 do x = x:matmul(x):cumsum(0):softmax(0) end
            return x:sum()
        end)
        for _ = 1, 2 do f(flow.randn(32, 32)) end
        local m = f:memory()
        assert.is_true(m.shared <= 3 * 4096, m.shared)
        assert.is_true(m.none >= 50 * 4096, m.none)
        assert.is_true(m.in_place <= m.none and m.shared <= m.in_place)
    end)

    it("hold no memory once they are gone", function()
        local before = support.settled_memory()
        local f = capture(function(x) return (x * flow.ones(1000)):sum() end)
        for _ = 1, 3 do f(flow.randn(1000)) end
        f = nil -- luacheck: ignore
        local after = support.settled_memory()
        assert.are.equal(before.tensors, after.tensors)
        assert.are.equal(before.live_bytes, after.live_bytes)
    end)
end)

describe("a pass", function()
    local script = [[
        local flow = require "flow"
        flow.manual_seed(1)
        local w = flow.randn(200, 200)
        local f = flow.capture(function(x)
            local dead = x:matmul(w:t()):exp()
            local a, b = x:matmul(w), x:matmul(w)                   -- the same twice
            w:mul_(0.5)
            local c = x:matmul(w)                                   -- not the same
            local h, k = flow.linear(x, w):relu():matmul(w), flow.linear(x, w:t())
            local y = ((a * 2 + b):tanh() - c):abs()
            return y:softmax(-1) * h, y:sum() + (k:gelu():matmul(w) * k):sum(), a:t():contiguous()
        end)
        local x, y, s, t = flow.randn(200, 200)
        for _ = 1, 3 do y, s, t = f(x) end
        local m = f:memory()
        print(m.steps, m.in_place, m.shared, (y * flow.arange(200)):sum():item(), s:item(), t:sum():item())
    ]]

    local function run(passes)
        local text = process.run("FLOW_PASSES=" .. passes, script)
        local steps, in_place, shared, values = text:match "^(%d+)\t(%d+)\t(%d+)\t(.*)$"
        assert.is_truthy(values, text)
        return values, tonumber(steps), tonumber(in_place), tonumber(shared)
    end

    it("changes no value, and saves steps or memory", function()
        local all = "activation,-common,-dead,-fusion,-graphs,-place"
        local values, steps, in_place = run ""
        for _, name in ipairs {"activation", "common", "dead", "fusion", "place", all} do
            local same, without, bytes = run("-" .. name)
            assert.are.equal(values, same, name)
            if name == "place" then assert.is_true(bytes > in_place, name) else assert.is_true(without > steps, name) end
        end
    end)

    -- Steps of a net of blocks, eagerly and captured: parameters and gradients, all bits of them, and what is in use.
    local blocks = [[
        local flow = require "flow"
        local nn, optim = flow.nn, flow.optim
        local function train(made)
            flow.manual_seed(5)
            local layers = {}
            for i = 1, 6 do
                layers[i] = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 512), nn.GELU({approximate = APPROXIMATE}),
                    nn.Linear(512, 128), nn.Dropout(0.1))
            end
            local net = nn.ModuleList(layers)
            local optimizer = optim.SGD(net:parameters(), {lr = 0.01})
            local step = made(function(x)
                local y = x
                for _, layer in ipairs(layers) do y = y + layer(y:transpose(0, 1):contiguous():t()) end
                optimizer:zero_grad()
                y:square():mean():backward()
                optimizer:step()
                return y
            end)
            local y
            for _ = 1, 4 do y = step(flow.randn(256, 128)) end
            local bytes = {y:tobytes()}
            for _, p in ipairs(net:parameters()) do
                bytes[#bytes + 1], bytes[#bytes + 2] = p:detach():tobytes(), p.grad:tobytes()
            end
            return flow.data.hash(table.concat(bytes)), step
        end
        local want = train(function(f) return f end)
        local got, step = train(flow.capture)
        local m = step:memory()
        print(want == got, m.steps, m.least, m.shared)
    ]]

    it("computes again what is cheap, where the most memory is in use", function()
        for _, form in ipairs {"'none'", "'tanh'"} do
            local found = {}
            for i, passes in ipairs {"", "-recompute", "-fusion", "-activation,-fusion,-common,-dead"} do
                local text = process.run("FLOW_PASSES=" .. passes, (blocks:gsub("APPROXIMATE", form)))
                local same, steps, least, shared = text:match "^(%w+)\t(%d+)\t(%d+)\t(%d+)"
                assert.are.equal("true", same, passes .. ": " .. text)
                found[i] = {steps = tonumber(steps), least = tonumber(least), shared = tonumber(shared)}
            end
            local with, without = found[1], found[2]
            -- Each block keeps its product of 512 KB and its sum of 128 KB; the gelu and the norm are made again.
            assert.is_true(with.steps > without.steps, with.steps)
            assert.is_true(without.least > 7 << 20, without.least)
            assert.is_true(with.least < 6 << 20, with.least)
            assert.is_true(with.shared < 1.1 * with.least, with.shared)
        end
    end)

    it("writes gradients of what was split part by part", function()
        -- Gradients of a tensor that is cut in several ways; 0 * -1 makes them -0 here and there.
        local split = [[
            local flow = require "flow"
            flow.manual_seed(9)
            local x, g = flow.randn(6, 10, 4, {requires_grad = true}), flow.randn(2, 10, 4)
            local ways = {
                function(t) local a, b, c = t:chunk(3, 0) return a * g + b:tanh() * 0 * c end,
                function(t) local a, b = t:narrow(1, 0, 3), t:narrow(1, 3, 7) return a:sum() * 2 - (b * b):sum() * 0 end,
                function(t) return t:select(0, 0) * t[1] + t[2] / t[3] - t[4] * -0.0 + t[5] end,
                function(t) return t:narrow(2, 0, 2):exp():sum() + t:narrow(2, 1, 3):sum() end,         -- they overlap
                function(t) return t:narrow(0, 0, 2):exp():sum() + t:narrow(0, 3, 3):sum() end,         -- with a gap
                function(t) local a, b = t:narrow(2, 0, 1), t:narrow(2, 1, 3) return (a * b):sum() + t:sum() end,
                function(t)
                    local h = t:view(6, 10, 2, 2):permute(2, 1, 0, 3)
                    return h:select(0, 0):matmul(h:select(0, 1):transpose(1, 2)):softmax(-1):square():sum()
                end,
            }
            local same, steps = true, 0
            for _, way in ipairs(ways) do
                local function run()
                    x.grad = nil
                    local y = way(x * 3)
                    y:sum():backward()
                    return y
                end
                local f = flow.capture(run)
                run()
                local want = x.grad:tobytes()
                for _ = 1, 3 do
                    f()
                    same = same and x.grad:tobytes() == want
                end
                steps = steps + f:memory().steps
            end
            print(same, steps)
        ]]
        local counts = {}
        for i, passes in ipairs {"", "-parts", "-fusion", "-fusion,-parts"} do
            local same, steps = process.run("FLOW_PASSES=" .. passes, split):match "^(%w+)\t(%d+)"
            assert.are.equal("true", same, passes)
            counts[i] = tonumber(steps)
        end
        assert.is_true(counts[1] < counts[2], counts[1])
        assert.is_true(counts[3] <= counts[4] - 8, counts[3])   -- the additions of parts: 2, 1, 5 and more
    end)
end)
