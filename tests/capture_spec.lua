-- capture_spec.lua -- flow.capture: replays give the bits of the function, whatever it is; what cannot be captured says so.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"
local process = require "tests.process"
local testing = flow._testing

local capture, error_of, same_bits = flow.capture, support.error_of, support.same_bits

describe("every op", function()
    local tensors_of, fill, copies = support.tensors_of, support.fill, support.copies

    -- Those whose results depend on values in a way that no list of kernels can: what they are called with.
    local refused = {}
    for name in ("nonzero index index_put masked_select unique"):gmatch "%S+" do refused[name] = true end

    local function of_list(op, args)
        return function(...)
            local filled = fill(args, {...})
            return op.call(table.unpack(filled, 1, args.n))
        end
    end

    -- Other values of the same kind: those of positions and truth values stay within range by being moved round.
    local function others(list)
        local result = {}
        for i, t in ipairs(list) do
            result[i] = t.dtype:find "float" and t * 0.5 + 0.125 or t:numel() > 1 and t:flip {0}:contiguous() or t:clone()
            if t:dim() == 0 then result[i] = t:clone() end
        end
        return result
    end

    for _, op in ipairs(testing.ops()) do
        for number, sample in ipairs(op.samples) do
            it(op.name .. " sample " .. number .. " gives the same bits in a replay", function()
                local args = support.arguments(op, sample)
                local list = tensors_of(args)
                if #list > 32 then return end
                local step = capture(of_list(op, args))
                flow.manual_seed(11)
                local before = copies(list)
                local ok, first = pcall(function() return table.pack(step(table.unpack(before))) end)
                if not ok then
                    assert.is_truthy(refused[op.name:gsub("_$", "")], tostring(first))
                    assert.is_truthy(tostring(first):find("capture:", 1, true), tostring(first))
                    return
                end
                for _, values in ipairs {list, others(list)} do
                    local want_in, got_in = copies(values), copies(values)
                    flow.manual_seed(12)
                    local works, want = pcall(function() return table.pack(of_list(op, args)(table.unpack(want_in))) end)
                    flow.manual_seed(12)
                    local worked, got = pcall(function() return table.pack(step(table.unpack(got_in))) end)
                    assert.are.equal(works, worked, tostring(works and got or want))
                    if works then
                        assert.are.equal(want.n, got.n)
                        for i = 1, want.n do
                            if not op.name:find "^empty" then same_bits(want[i], got[i], op.name) end
                        end
                        for i, t in ipairs(want_in) do same_bits(t, got_in[i], op.name .. ", operand " .. i) end
                    end
                end
                assert.is_truthy(first.n)
            end)
        end
    end
end)

describe("arguments", function()
    it("of another shape or dtype are captured anew, and what was captured stays", function()
        local runs = 0
        local f = capture(function(x) runs = runs + 1 return x * 2 + 1 end)
        for _ = 1, 2 do
            for _, x in ipairs {flow.randn(3), flow.randn(2, 2), flow.arange(4)} do same_bits(x * 2 + 1, f(x), "f") end
        end
        assert.are.equal(3, runs)
    end)

    it("that are numbers are values, not constants", function()
        local runs = 0
        local f = capture(function(x, rate) runs = runs + 1 return x * rate + rate * 2 end)
        local x = flow.randn(5)
        for _, rate in ipairs {0.5, 0.25, -3.0} do support.same(x * rate + rate * 2, f(x, rate), "a float") end
        assert.are.equal(1, runs)
        for _, n in ipairs {1, 300, -7} do support.same(x * n + n * 2, f(x, n), "a whole number") end
        assert.are.equal(2, runs)
    end)

    it("that are other values are part of the key", function()
        local f = capture(function(x, how, twice) return how == "sum" and x:sum() * (twice and 2 or 1) or x:mean() end)
        local x = flow.randn(4)
        for _ = 1, 2 do
            same_bits(x:sum(), f(x, "sum"), "sum")
            same_bits(x:sum() * 2, f(x, "sum", true), "twice")
            same_bits(x:mean(), f(x, "mean", false), "mean")
        end
    end)

    it("may be views at other places of a larger tensor, with gaps, and twice the same", function()
        local data = flow.randn(40, 6)
        local f = capture(function(x, y) return (x - y * 2):exp() end)
        for from = 0, 30, 10 do
            local x = data:narrow(0, from, 4)
            same_bits((x - x * 2):exp(), f(x, x), "twice")
            local y = data:narrow(1, 2, 4):narrow(0, from, 6):t()
            same_bits((x:t():clone():view(4, 6) - y * 2):exp(), f(x:t():clone():view(4, 6), y), "gaps")
        end
    end)

    it("are written in place", function()
        local f = capture(function(x, y)
            x:add_(y)
            x[1] = 7
            return x:sum()
        end)
        for _ = 1, 3 do
            local x, y = flow.randn(3), flow.randn(3)
            local want = x + y
            want[1] = 7
            same_bits(want:sum(), f(x, y), "sum")
            same_bits(want, x, "x")
        end
        f(flow.randn(3), flow.randn(3))
        support.fails("the function writes into argument 1, so it must be contiguous", f, flow.randn(3, 2):select(1, 0),
            flow.randn(3))
    end)

    it("are written in place by a first call that is not captured", function()
        local state
        local keeps = capture(function(x)
            state = state or flow.zeros(3)
            return x:add_(1) + state
        end)
        local reads = capture(function(x) return x:add_(1), x:sum():item() end, {strict = false})
        for _, f in ipairs {keeps, reads} do
            for _ = 1, 3 do
                local x = flow.ones(3)
                local y = f(x)
                same_bits(flow.full({3}, 2.0), x, "x")
                same_bits(x, y, "y")
            end
        end
    end)

    it("are refused once they require grad", function()
        local f = capture(function(x) return x * 2 end)
        f(flow.ones(3))
        support.fails("capture: argument 1 requires grad", f, nn.Parameter(flow.ones(3)))
    end)

    it("that are numbers keep their digits beside float64", function()
        local f = capture(function(x, rate) return x * rate end)
        for _, rate in ipairs {0.1, 1 / 3} do
            local x = flow.randn(5, {dtype = "float64"})
            same_bits(x * rate, f(x, rate), "product")
        end
    end)

    it("that cannot be recorded are errors", function()
        local f = capture(function(x) return x end)
        support.fails("capture: argument 1 must be a tensor, a number, a boolean, a string or nil, got table", f, {})
        support.fails("capture: argument 2 requires grad", f, flow.ones(2), nn.Parameter(flow.ones(2)))
        support.fails("capture: takes a function, got nothing", capture)
        support.fails("capture: takes a function, got number", capture, 3)
        support.fails("capture: unknown option 'stric'", capture, print, {stric = true})
    end)
end)

describe("results", function()
    it("that are kept never change", function()
        local f = capture(function(x) return x + 1, x * 2 end)
        local kept, want = {}, {}
        for i = 1, 10 do
            local x = flow.randn(50)
            kept[i], want[i] = {f(x)}, {x + 1, x * 2}
        end
        for i = 1, 10 do for k = 1, 2 do same_bits(want[i][k], kept[i][k], "result") end end
    end)

    it("may be arguments, views of them, bound tensors, one tensor twice, tables and other values", function()
        local bound = flow.randn(4)
        local f = capture(function(x)
            local y = x * 2
            return x, x:narrow(0, 1, 2), bound, y, y, {sum = y:sum(), list = {y:view(2, 2)}}, 7, nil, "text"
        end)
        for _ = 1, 3 do
            local x = flow.randn(4)
            local r = table.pack(f(x))
            assert.are.equal(9, r.n)
            same_bits(x, r[1], "x")
            same_bits(x:narrow(0, 1, 2), r[2], "a view")
            same_bits(bound, r[3], "bound")
            same_bits(x * 2, r[5], "y")
            same_bits((x * 2):sum(), r[6].sum, "sum")
            same_bits((x * 2):view(2, 2), r[6].list[1], "a view of y")
            assert.are.same({7, nil, "text"}, {r[7], r[8], r[9]})
            r[2]:zero_()
            assert.are.equal(0, x[1]:item())
        end
    end)

    it("have no graph", function()
        local w = nn.Parameter(flow.randn(3))
        local f = capture(function(x) return (w * x):sum() end)
        for _ = 1, 3 do assert.is_false(f(flow.ones(3)).requires_grad) end
    end)
end)

describe("bound tensors", function()
    it("are read as they are at each call, and written", function()
        local w, count = flow.randn(3), flow.zeros(1)
        local f = capture(function(x)
            count:add_(1)
            return x * w
        end)
        for i = 1, 4 do
            local x = flow.randn(3)
            same_bits(x * w, f(x), "product")
            w:mul_(2)
            assert.are.equal(i, count:item())
        end
    end)

    it("may be an argument's memory", function()
        local data = flow.randn(8)
        local f = capture(function(x) return x + data:sum() end)
        for from = 0, 4, 2 do
            local x = data:narrow(0, from, 2)
            same_bits(x + data:sum(), f(x), "sum")
            x:fill_(from)
        end
    end)

    it("that wait to be computed are computed", function()
        local a, b = flow.randn(70000), flow.randn(70000)
        local waiting = a * b + 1
        local f = capture(function(x) return (waiting * x):sum() end)
        for _ = 1, 3 do
            local later, want = a * 3, a[5]:item()
            same_bits((waiting * b):sum(), f(b), "sum")
            a:add_(1)
            same_bits(flow.tensor(want) * 3, later[5], "what was computed from the old value")
        end
    end)
end)

describe("what cannot be captured", function()
    local x = flow.randn(4)
    local cases = {
        ["reading a value"] = function(t) return t:sum():item() end,
        ["a list of values"] = function(t) return t:totable()[1] end,
        ["printing"] = function(t) return tostring(t) end,
        ["a branch"] = function(t) if t:sum():item() > 0 then return t end return -t end,
        ["a shape that depends on values"] = function(t) return t[t:gt(0)] end,
        ["a tensor of Lua values"] = function(t) return t + flow.tensor {1, 2, 3, 4} end,
        ["another seed"] = function(t)
            flow.manual_seed(1)
            return flow.rand_like(t)
        end,
        ["another generator"] = function(t)
            return flow.with_generator(flow.generator(3), function() return flow.rand_like(t) end)
        end,
        ["a new leaf"] = function(t)
            local w = nn.Parameter(flow.ones(4))
            ;(w * t):sum():backward()
            return w.grad
        end,
    }
    for name, f in pairs(cases) do
        it("is an error that names the line: " .. name, function()
            local ok, message = pcall(capture(f), x)
            assert.is_false(ok)
            assert.matches("^[^:]*%.lua:%d+: ", message)
            assert.is_truthy(message:find("capture", 1, true), message)
            assert.is_false(flow._program.recording)
        end)

        it("runs as it is where that is allowed: " .. name, function()
            local g = capture(f, {strict = false})
            for _ = 1, 3 do
                local t = flow.randn(4)
                local want, got = f(t), g(t)
                if flow.is_tensor(want) then same_bits(want, got, name) else assert.are.equal(want, got) end
            end
        end)
    end

    it("includes what the function keeps elsewhere, from the second call on", function()
        local state = flow.zeros(4)
        local f = capture(function(t)
            state = state * 0.5 + t
            return state
        end)
        f(x)
        local message = error_of(f, x)
        assert.is_truthy(message:find("a tensor that the function made (float32[4] by add, ", 1, true), message)
        assert.is_truthy(message:find("capture_spec.lua:", 1, true), message)
    end)

    it("does not include what the first call makes for later ones", function()
        local table_of_sines
        local f = capture(function(t)
            table_of_sines = table_of_sines or flow.arange(4):sin()
            return t * table_of_sines
        end)
        for _ = 1, 4 do same_bits(x * flow.arange(4):sin(), f(x), "product") end
    end)

    it("includes more than 1024 results and tables that are nested too deep", function()
        local deep = {}
        for _ = 1, 20 do deep = {deep} end
        support.fails("capture: the tables that are returned are nested too deep", capture(function() return deep end))
        local many = capture(function(t)
            local list = {}
            for i = 1, 1025 do list[i] = t + i end
            return list
        end)
        support.fails("capture: at most 1024 tensors can be returned", many, x)
        assert.is_false(flow._program.recording)
        same_bits(x + 1, capture(function(t) return t + 1 end)(x), "after it")
    end)

    it("leaves everything as it was after an error of the function itself", function()
        local f = capture(function(t, fails)
            if fails then error "of the function" end
            return t + 1
        end)
        assert.is_truthy(error_of(f, x, true):find "of the function")
        assert.is_false(flow._program.recording)
        for _ = 1, 3 do same_bits(x + 1, f(x), "after it") end
    end)

    it("is told of in a replay with the line of the op", function()
        local rows = flow.randn(5, 2)
        local f = capture(function(i) return flow.embedding(i, rows) end)
        f(flow.tensor {1, 2})
        f(flow.tensor {3, 4})
        local message = error_of(function()
            f(flow.tensor {1, 9})
            flow.sync()
        end)
        assert.matches("capture_spec.lua:%d+", message)
        assert.is_truthy(message:find("embedding", 1, true), message)
        same_bits(flow.embedding(flow.tensor {0, 1}, rows), f(flow.tensor {0, 1}), "after it")
    end)
end)

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
        assert.are.equal("flowlua: script.lua:3: captured for 8 kinds of arguments; each further one drops an older one\n"
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
                lines = lines + (step.line:find("capture_spec.lua:" .. line + 2, 1, true) and 1 or 0)
            end
        end
        local is_host = x.device == "cpu" -- where the sum takes its operand while that is computed
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
end)
