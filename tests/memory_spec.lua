-- memory_spec.lua -- bytes: the peak of a process, the memory it gives back, its statistics, the effects when there is
-- no more. Everything that measures a process runs in one of its own.
local flow = require "flow"
local support = require "tests.support"
local process = require "tests.process"

local sanitized = os.getenv("ASAN_OPTIONS") ~= nil -- its shadow memory is counted too, and cannot be limited

-- Runs a script after a shell command and returns what it prints, line by line. `peak()` and `now()` are MiB of the process.
local function run(text, before)
    local output = process.run(("export FLOW_ENGINE=auto; %s exec"):format(before or ""), [[
        local flow = require "flow"
        local function status(field)
            for line in io.lines("/proc/self/status") do
                local kb = line:match("^" .. field .. ":%s*(%d+)")
                if kb then return kb // 1024 end
            end
        end
        local function peak() return status "VmHWM" end
        local function now() return status "VmRSS" end
    ]] .. text)
    return process.lines(output)
end

local function numbers(text)
    local output = run(text)
    local list = {}
    for i, word in ipairs(output) do list[i] = assert(tonumber(word), table.concat(output, "\n")) end
    return table.unpack(list)
end

local function unless_sanitized(name, f) (sanitized and pending or it)(name, f) end

describe("a process", function()
    unless_sanitized("with 1,000 temporary 16 MiB tensors beside 200,000 objects stays under 256 MiB", function()
        local peak = numbers [[
            local heap = {}
            for i = 1, 200000 do heap[i] = {i, tostring(i)} end
            for i = 1, 1000 do
                local x = flow.empty(4 * 1024 * 1024)
                x:fill_(i)
            end
            print(peak())]]
        assert.is_true(peak < 256, ("peak %d MiB"):format(peak))
    end)

    unless_sanitized("the same with results of ops, and when they are made in coroutines", function()
        local peak = numbers [[
            local heap = {}
            for i = 1, 200000 do heap[i] = {i, tostring(i)} end
            local x = flow.ones(1024, 1024)
            for i = 1, 500 do
                local y = x * i + 1
                coroutine.wrap(function() local z = y:exp() coroutine.yield(z) end)()
            end
            print(peak())]]
        assert.is_true(peak < 256, ("peak %d MiB"):format(peak))
    end)

    it("does not grow over 10^6 small temporaries", function()
        local before, after = numbers(([[
            local x = flow.ones(16)
            local function work(n) for i = 1, n do local y = x + i x = x:detach() end end
            work(%d) collectgarbage() print(now())
            work(%d) collectgarbage() print(now())]]):format(sanitized and 20000 or 200000, sanitized and 50000 or 1000000))
        assert.is_true(after - before <= (sanitized and 64 or 2), ("%d MiB, then %d MiB"):format(before, after))
    end)

    it("does not grow over graphs that are made and dropped, walked or not", function()
        local before, after, tensors = numbers(([[
            local w = flow.randn(32, 32, {requires_grad = true})
            local x = flow.randn(8, 32)
            local function work(n)
                for i = 1, n do
                    local y = x
                    for _ = 1, 5 do y = y:matmul(w):tanh() end
                    local loss = y:sum()
                    if i %% 2 == 0 then loss:backward() w.grad = nil end
                    if i %% 3 == 0 then local g = flow.grad((w * w * w):sum(), {w}, {create_graph = true}) g[1]:sum():backward() w.grad = nil end
                end
                collectgarbage() collectgarbage()
            end
            work(%d) local t = flow.memory().tensors print(now())
            work(%d) print(now()) print(flow.memory().tensors - t)]]):format(sanitized and 200 or 2000, sanitized and 500 or 10000))
        assert.is_true(after - before <= (sanitized and 64 or 2), ("%d MiB, then %d MiB"):format(before, after))
        assert.are.equal(0, tensors)
    end)

    it("does not grow over 10^5 different shapes", function()
        local before, after = numbers(([[
            local function work(from, to)
                for i = from, to do local y = flow.zeros(i, 0) + 1 local z = flow.empty(2, i %% 1000, i // 1000 + 1, 0):sum(1) end
                collectgarbage()
            end
            work(1, %d) print(now())
            work(%d, %d) print(now())]]):format(sanitized and 5000 or 20000, sanitized and 5001 or 20001, sanitized and 10000 or 100000))
        assert.is_true(after - before <= (sanitized and 64 or 8), ("%d MiB, then %d MiB"):format(before, after))
    end)

    it("does not grow when ops fail", function()
        local before, after, tensors = numbers(([[
            local x, w = flow.ones(64, 64), flow.ones(8, 8, {requires_grad = true})
            local function work(n)
                for i = 1, n do
                    pcall(function() return x + flow.ones(3) end)
                    pcall(function() return flow.cross_entropy((x * 2), flow.full({64}, 99)) end)
                    pcall(function() return flow.tensor {{1, 2}, {3}} end)
                    pcall(function() return flow.embedding(flow.tensor {99}, w):sum():backward() end)
                    pcall(function() local y = w * 2 y:register_hook(function() error "no" end) y:sum():backward() end)
                    pcall(flow.load, "/nowhere")
                    pcall(function() return flow.zeros(1 << 50) end)
                end
                collectgarbage() collectgarbage()
            end
            work(%d) local t = flow.memory().tensors print(now())
            work(%d) print(now()) print(flow.memory().tensors - t)]]):format(sanitized and 50 or 1000, sanitized and 200 or 5000))
        assert.is_true(after - before <= (sanitized and 64 or 2), ("%d MiB, then %d MiB"):format(before, after))
        assert.are.equal(0, tensors)
    end)

    it("says how much of it waits to be used again, and uses that", function()
        local live, cached, made = numbers [[
            local x = {}
            for i = 1, 8 do x[i] = flow.ones(1024 * 1024) end
            x = nil
            collectgarbage() collectgarbage()
            local m = flow.memory()
            print(m.live_bytes // 2^20) print(m.cached_bytes // 2^20)
            for i = 1, 8 do x = flow.ones(1024 * 1024) end
            print(flow.memory().system_allocations - m.system_allocations)]]
        assert.are.equal(0, live)
        assert.are.equal(32, cached)
        assert.are.equal(0, made)
    end)

    it("queues without bound neither ops nor memory", function()
        local output = run([[
            local x = flow.ones(256, 256)
            for i = 1, 3000 do local y = x * i end
            flow.sync()
            collectgarbage()
            print(peak())]], "export FLOW_ENGINE=queued;")
        assert.is_true(tonumber(output[1]) < (sanitized and 4000 or 500), output[1] .. " MiB")
    end)
end)

describe("results that are computed when they are needed", function()
    -- Tensors of `size` floats that live at most in a loop over y.
    local function most_in_loop(size, expression)
        local output = run(([[
            local size = %d
            local y = flow.randn(size)
            collectgarbage()
            flow.memory {reset_peak = true}
            local before = flow.memory().live_bytes
            for _ = 1, (1 << 27) // size do y = %s end
            flow.sync()
            print((flow.memory().peak_bytes - before) // (4 * size) + 1)]]):format(size, expression))
        return assert(tonumber(output[1]), table.concat(output, "\n"))
    end

    for _, size in ipairs {1 << 18, 1 << 20, 1 << 22} do
        it(("need few tensors in a loop, of %d floats"):format(size), function()
            local most = most_in_loop(size, "y * 1.01 + 1")
            assert.is_true(most <= 6, ("%d tensors"):format(most))     -- when the first collection comes depends on Lua's heap
        end)
    end

    it("are few in a loop of ops that are computed at once", function()
        local most = most_in_loop(1 << 20, "y:cumsum(0):flip(0) * 1e-3")
        assert.is_true(most <= 16, ("%d tensors"):format(most))
    end)

    it("are not computed for what is garbage, however old", function()
        local output = run([[
            local x = flow.empty(1 << 22)
            for _, need in ipairs {flow.sync, function() x:zero_() end} do
                local before = flow.memory().live_bytes
                do
                    local list = {}
                    for i = 1, 8 do list[i] = x * i end
                    for _ = 1, 3 do collectgarbage "step" end
                end
                need()
                print(flow.memory().live_bytes <= before)
            end]])
        assert.are.same({"true", "true"}, output)
    end)
end)

describe("without memory", function()
    -- 1 GB of address space: libraries and threads take some.
    local limit = "ulimit -v 1000000;"

    unless_sanitized("a script gets an error that says how much and goes on", function()
        local output = run([[
            local keep = flow.ones(1024, 1024)
            print(pcall(function() return flow.ones(1 << 30) end))
            print(keep:sum():item(), flow.ones(100):sum():item())
            local list = {}
            local ok, message = pcall(function() for i = 1, 1000 do list[i] = flow.ones(4 * 1024 * 1024) end end)
            print(ok, message)
            print(#list > 10)
            print(pcall(function() return (list[1] + list[2])[0]:item() end))
            list = nil
            print(flow.ones(64 * 1024 * 1024):numel())
            print(keep:sum():item())]], limit)
        local place = "false\tscript.lua:%d+: "
        assert.matches("^" .. place .. "ones: out of memory: 4.0 GiB asked for, 4.0 MiB live in %d+ blocks; most by script.lua:%d+ %(4.0 MiB%)$", output[1])
        assert.are.equal("1048576.0\t100.0", output[2])
        assert.matches("^" .. place .. "ones: out of memory: 16.0 MiB asked for, %d+.0 MiB live in %d+ blocks; most by ", output[3])
        assert.are.equal("true", output[4])
        assert.matches("^" .. place .. "add %(script.lua:%d+%): out of memory: 16.0 MiB asked for", output[5])
        assert.are.equal("67108864", output[6])
        assert.are.equal("1048576.0", output[7])
    end)

    unless_sanitized("garbage is collected first", function()
        local output = run([[
            collectgarbage "stop"
            for i = 1, 200 do local x = flow.ones(4 * 1024 * 1024) end
            print "enough"]], limit)
        assert.are.same({"enough"}, output)
    end)

    unless_sanitized("a training step fails and the next, smaller one does not", function()
        local output = run([[
            local nn, optim = flow.nn, flow.optim
            local net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
            local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
            local function step(batch)
                opt:zero_grad()
                local loss = flow.cross_entropy(net(flow.randn(batch, 256)), flow.zeros(batch, {dtype = "int64"}))
                loss:backward()
                opt:step()
                return loss:item()
            end
            step(32)
            local ok, message = pcall(step, 1000000)
            print(ok, message:match("out of memory"))
            print(step(32) < 10)]], limit)
        assert.are.same({"false\tout of memory", "true"}, output)
    end)

    unless_sanitized("queued ops fail as others do", function()
        local output = run([[
            local x = flow.ones(4 * 1024 * 1024)
            local list = {}
            local ok, message = pcall(function() for i = 1, 1000 do list[i] = x * i end end)
            print(ok, message:match("mul: out of memory"))
            list = nil
            print((x * 2):sum():item() == 8 * 1024 * 1024)]], limit .. "export FLOW_ENGINE=queued;")
        assert.are.same({"false\tmul: out of memory", "true"}, output)
    end)

    unless_sanitized("Lua's own objects fail as in lua", function()
        local output = run([[
            local ok, message = pcall(function() local t = {} for i = 1, 1e9 do t[i] = {i} end end)
            collectgarbage()
            print(ok, message)
            print(flow.ones(3):sum():item())]], limit)
        assert.are.same({"false\tnot enough memory", "3.0"}, output)
    end)
end)

describe("flow.memory", function()
    it("counts what is there", function()
        local before = support.settled_memory()
        local x = flow.zeros(1000, 1000)
        local view, copy = x:t(), x:clone()
        local now = flow.memory()
        assert.are.equal(before.live_bytes + 8000000, now.live_bytes)
        assert.are.equal(before.live_blocks + 2, now.live_blocks)
        assert.are.equal(before.tensors + 3, now.tensors)
        assert.is_true(now.peak_bytes >= now.live_bytes)
        assert.is_true(now.allocations >= before.allocations + 2)
        assert.are.equal(1000, view:size(0) * copy:size(0) // 1000)
        x, view, copy = nil, nil, nil -- luacheck: ignore
        local after = support.settled_memory()
        assert.are.equal(before.live_bytes, after.live_bytes)
        assert.are.equal(before.live_blocks, after.live_blocks)
        assert.are.equal(before.tensors, after.tensors)
    end)

    it("keeps the peak until it is reset", function()
        flow.memory {reset_peak = true}
        do local _ = flow.zeros(1000, 1000) end
        collectgarbage() collectgarbage()
        local m = flow.memory {reset_peak = true}
        assert.is_true(m.peak_bytes >= m.live_bytes + 4000000)
        m = flow.memory()
        assert.are.equal(m.live_bytes, m.peak_bytes)
    end)

    it("refuses unknown options", function()
        assert.matches("memory: unknown option 'reset'", select(2, pcall(flow.memory, {reset = true})))
    end)
end)

describe("tensors are dropped", function()
    local function settled()
        for _ = 1, 3 do collectgarbage() end
        flow.zeros(1)
        for _ = 1, 3 do collectgarbage() end
        return flow.memory().tensors
    end

    for _, case in ipairs {
        {"with the graphs they are part of", function()
            local w = flow.ones(3, {requires_grad = true})
            local y = (w * 2):exp()
            y:sum():backward({}, nil) -- luacheck: ignore
        end},
        {"with their gradients", function()
            local w = flow.ones(3, {requires_grad = true});
            (w * w):sum():backward()
        end},
        {"with higher gradients", function()
            local w = flow.ones(3, {requires_grad = true})
            local g = flow.grad((w * w * w):sum(), {w}, {create_graph = true})
            flow.grad(g[1]:sum(), {w})
        end},
        {"with hooks that hold them", function()
            local w = flow.ones(3, {requires_grad = true})
            local y = w * 2
            y:register_hook(function(g) return g + y:detach() * 0 end)
            y:sum():backward()
        end},
        {"after in-place ops", function()
            local w = flow.ones(3, {requires_grad = true})
            local y = w * 1
            y[1] = 5
            y:narrow(0, 0, 2):mul_(3)
            y:add_(w)
            y:sum():backward()
        end},
        {"with modules and optimizers", function()
            local net = flow.nn.Sequential(flow.nn.Linear(4, 4), flow.nn.Dropout(0.5), flow.nn.LayerNorm(4))
            local opt = flow.optim.AdamW(net:parameters(), {lr = 0.1})
            net(flow.randn(2, 4)):sum():backward()
            opt:step()
        end},
        {"with global ones", function()
            local p = flow.placement("cpu", {0})
            local x = flow.randn(4, 4, {placement = p, sbp = "S(0)", requires_grad = true})
            x:to_global {sbp = "B"}:to_local():sum():backward()
            local y = x:detach():clone()
            y[1] = 3
        end},
        {"with coroutines that never end", function()
            local co = coroutine.wrap(function() local x = flow.ones(10) coroutine.yield(x) coroutine.yield(x + 1) end)
            co()
        end},
        {"with errors on their way", function()
            local w = flow.ones(3, {requires_grad = true})
            pcall(function() return (w * 2):sum() + flow.ones(2):view(3) end)
            pcall(function() return flow.stack({w * 1, w * 2, flow.ones(2)}) end)
            pcall(function() return w:exp():split({1, 5}) end)
            pcall(function() return flow.tensor({1, 2, flow.ones(2)}) end)
            pcall(function() return (w * 2)[{flow.tensor {0, 9}, 0}] end)
            pcall(function() local y = w * 2 y[flow.tensor {9}] = w:sum() end)
            pcall(function() (w * 2):register_hook(function() return flow.ones(7) end):sum():backward() end)
        end},
        {"with what is saved and loaded", function()
            local name = os.tmpname()
            flow.save(name, {a = flow.ones(3), b = {c = flow.ones(2)}})
            flow.load(name)
            os.remove(name)
        end},
        {"with lists of many results", function()
            for _, part in ipairs {flow.arange(100):split(1)} do local _ = part + 1 end
            local values, positions = flow.randn(5, 5):max(1)
            local _ = values + positions
        end},
    } do
        it(case[1], function()
            pcall(case[2])
            local before = settled()
            for _ = 1, 10 do pcall(case[2]) end
            assert.are.equal(before, settled())
        end)
    end
end)

describe("flow.checkpoint", function()
    -- MiB of tensors at most in training steps of eight blocks whose input is 1 MiB, and whose other values are 10.
    local function most(call)
        local output = run(([[
            local nn = flow.nn
            local function plain(f, x) return f(x) end
            local call, x = %s, flow.randn(4096, 64)
            local block = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64), nn.Tanh())
            for step = 1, 4 do
                if step == 3 then flow.memory {reset_peak = true} end
                local h = x
                for _ = 1, 8 do h = call(block, h) end
                block:zero_grad()
                h:square():mean():backward()
            end
            print((flow.memory().peak_bytes >> 20) + 1)]]):format(call))
        return assert(tonumber(output[1]), table.concat(output, "\n"))
    end

    it("needs the inputs of the blocks and the values of one", function()
        local with, without = most "flow.checkpoint", most "plain"
        assert.is_true(with <= 48 and 2 * with <= without, ("%d MiB, %d without"):format(with, without))
    end)
end)
