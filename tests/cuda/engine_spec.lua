-- engine_spec.lua -- ops of the CPU and of the GPU in one program: whatever the order, the results are those of the CPU
-- alone; the script waits only for what it asks for; an error is raised where the value is needed.
local flow = require "flow"
local support = require "tests.support"
local cuda = require "tests.cuda.support"
local process = require "tests.process"
local testing = flow._testing

local STEPS = tonumber(os.getenv "FLOW_TEST_STEPS") or (cuda.emulated and 3000 or 10000)
local SIZE = 37

-- Every number is a multiple of 2^-20 below 2^20 and stays so for a while; means and sums of two are exact in float64.
local function beginning(seed)
    flow.manual_seed(seed)
    return flow.randint(-1000, 1000, {SIZE}):to("float64")
end

-- Slots on both sides, each with a shadow on the CPU that nothing asynchronous touches.
local function machine(seed)
    local m = {here = {}, there = {}}
    for i = 1, 6 do
        local x = beginning(100 * seed + i)
        m.here[i] = {real = x:clone(), shadow = x:clone()}
        m.there[i] = {real = x:to(cuda.device), shadow = x:clone()}
    end
    return m
end

local function both(slot, f, other)
    slot.real = f(slot.real, other and other.real) or slot.real
    slot.shadow = f(slot.shadow, other and other.shadow) or slot.shadow
end

local function halve(x, y) return (x + y) * 0.5 end

local function check(slot, what)
    assert.are.same(slot.shadow:totable(), slot.real:totable(), what)
end

local actions = {
    -- between the sides: into memory that is there, or into new memory
    function(a, _, b) both(b, function(x, y) x:copy_(y) end, a) end,
    function(a, _, b) both(a, function(x, y) x:copy_(y) end, b) end,
    function(a, _, b)
        b.real, b.shadow = a.real:to(cuda.device), a.shadow:clone()
    end,
    function(a, _, b)
        a.real, a.shadow = b.real:to("cpu"), b.shadow:clone()
    end,
    -- part of it
    function(a, _, b, random)
        local at, n = random(0, SIZE - 1), random(1, 9)
        n = math.min(n, SIZE - at)
        both(b, function(x, y) x:narrow(0, at, n):copy_(y:narrow(0, SIZE - at - n, n)) end, a)
    end,
    -- on one side
    function(a, other) both(a, halve, other) end,
    function(a, other) both(a, function(x, y) x:mul_(0.5):add_(y * 0.5) end, other) end,
    function(_, _, b, _, other) both(b, halve, other) end,
    function(_, _, b, _, other) both(b, function(x, y) x:mul_(0.5):add_(y * 0.5) end, other) end,
    function(_, _, b, random)
        local at = random(0, SIZE - 2)
        both(b, function(x) x:narrow(0, at, 2):neg_() end)
    end,
    function(_, _, b) both(b, function(x) return flow.cat {x:narrow(0, 9, SIZE - 9), x:narrow(0, 0, 9)} end) end,
    -- tensors that die while they are used
    function(_, _, b, random)
        for _ = 1, random(1, 4) do local _ = b.real * 2 + 1 end
    end,
    -- asking
    function(_, _, b, random)
        local at = random(0, SIZE - 1)
        assert.are.equal(b.shadow[at]:item(), b.real[at]:item())
    end,
}

local function run(seed, steps)
    local m, state = machine(seed), seed
    local function random(low, high)
        state = (state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
        return low + (state >> 33) % (high - low + 1)
    end
    for step = 1, steps do
        local a, other = m.here[random(1, 6)], m.here[random(1, 6)]
        local b, another = m.there[random(1, 6)], m.there[random(1, 6)]
        actions[random(1, #actions)](a, other, b, random, another)
        if step % 500 == 0 then
            collectgarbage()
            for i = 1, 6 do
                for _, slot in ipairs {m.here[i], m.there[i]} do -- the numbers begin anew, exact again
                    check(slot, ("seed %d, step %d, slot %d"):format(seed, step, i))
                    both(slot, function(x) return (x * 16):round():fmod(1000) end)
                end
            end
        end
    end
    for i = 1, 6 do
        check(m.here[i], "at the end, on the CPU")
        check(m.there[i], "at the end, on the GPU")
    end
end

describe("copies in, kernels and copies out", function()
    for seed = 1, 4 do
        cuda.it("in random order, " .. seed, function() run(seed, STEPS // 4) end)
    end

    for _, mode in ipairs {"naive", "queued"} do
        cuda.it("in random order, engine " .. mode, function()
            local before = testing.engine(mode)
            local ok, message = pcall(run, 9, 500)
            testing.engine(before)
            assert(ok, message)
        end)
    end

    cuda.it("that share memory: a tensor is written again right after it was copied", function()
        local x, list = flow.zeros(1000), {}
        for i = 1, 50 do
            x:fill_(i)
            list[i] = x:to(cuda.device)
        end
        local y = flow.zeros(1000, {device = cuda.device})
        local back = {}
        for i = 1, 50 do
            y:fill_(-i)
            back[i] = y:to("cpu")
        end
        for i = 1, 50 do
            assert.are.equal(i * 1000, list[i]:sum():item())
            assert.are.equal(-i * 1000, back[i]:sum():item())
        end
    end)
end)

describe("the queues", function()
    local function follows() return flow.engine.stats().follows end
    local mode = testing.engine("auto")
    testing.engine(mode)

    cuda.it("copy in while others compute, and compute with what was copied", function()
        local x, y = flow.ones(1000), flow.ones(1000, {device = cuda.device})
        y:mul_(2)
        local before = follows()
        local there = x:to(cuda.device)
        assert.are.equal(before, follows())
        local sum = there + y
        flow.sync()
        assert.are.equal(mode == "naive" and before or before + 1, follows())
        assert.are.equal(3000, sum:sum():item())
    end)

    cuda.it("take back the memory of copies that nothing was computed with", function()
        local y = flow.zeros(1000, {device = cuda.device})
        for i = 1, 20 do
            do
                local x = flow.full({1000}, i):to(cuda.device)
                if i % 3 == 0 then y:add_(x) end
            end
            collectgarbage()
        end
        assert.are.equal(1000 * (3 + 6 + 9 + 12 + 15 + 18), y:sum():item())
    end)

    cuda.it("copy in no further ahead than memory allows", function()
        local x, y = flow.ones(5 << 20), flow.zeros(1, {device = cuda.device})
        for _ = 1, 12 do y:add_(x:to(cuda.device):narrow(0, 0, 1)) end
        assert.are.equal(12, y:item())
    end)
end)

describe("the script", function()
    cuda.it("does not wait where it launches, copies in or drops", function()
        local x = flow.ones(64, {device = cuda.device})
        local y, host = x + 1, flow.ones(64)
        flow.sync()
        local before = flow.engine.stats().waits
        for _ = 1, 100 do
            y = (y * 0.5 + x):to("float32")
            y:add_(host:to(cuda.device))
        end
        assert.are.equal(before, flow.engine.stats().waits)
        local z = y:to("cpu")
        assert.are.equal(before, flow.engine.stats().waits)
        assert.is_true(math.abs(z[0]:item() - 4) < 1e-3)
    end)

    cuda.it("learns of a failure where it asks for the value, and of no other's", function()
        local table_ = flow.randn(4, 3, {device = cuda.device})
        local good = table_ * 2
        local bad = flow.embedding(flow.tensor({0, 9}, {device = cuda.device}), table_)
        local after = bad + 1
        assert.are.equal(2, #good:totable() // 2)
        local ok, message = pcall(after.totable, after)
        assert.is_false(ok)
        assert.is_truthy(message:find("embedding", 1, true), message)
        pcall(flow.sync)
        assert.are.equal(4, #good:totable())
        pcall(flow.sync)
    end)

    local complaint = "embedding %(tests/cuda/engine_spec.lua:%d+%): indices%[1%] is 9, but weight has 4 rows %(0 to 3%)$"
    local function rows(w, second) return flow.embedding(flow.tensor({0, second}, {device = cuda.device}), w) end

    cuda.it("keeps what a bad batch would update", function()
        local w = flow.ones(4, 3, {device = cuda.device})
        local good, bad = rows(w, 1), rows(w, 9)
        local sum = (bad + good):sum()
        local ok, message = pcall(w.add_, w, sum)
        assert.is_false(ok)
        assert.is_truthy(message:find(complaint), message)
        assert.are.equal(12, w:sum():item())
        assert.are.equal(6, good:sum():item())
        assert.is_false(pcall(sum.item, sum))
        flow.sync() -- all of them have been raised
    end)

    cuda.it("passes on what is known to be missing, whatever may be missing besides", function()
        local w = flow.ones(4, 3, {device = cuda.device})
        local bad = rows(w, 9)
        assert.is_false(pcall(bad.totable, bad))
        local all = (bad + rows(w, 1)):sum()
        for _ = 1, 12 do all = all + rows(w, 1):sum() end
        local ok, message = pcall(all.item, all)
        assert.is_false(ok)
        assert.is_truthy(message:find(complaint), message)
    end)

    cuda.it("can write in place what may be missing, and overwrite it", function()
        local w = flow.ones(4, 3, {device = cuda.device})
        local bad, gone = rows(w, 9), rows(w, 9)
        local waits = flow.engine.stats().waits
        bad:add_(1):mul_(2)
        assert.are.equal(waits, flow.engine.stats().waits)
        gone:fill_(3)
        assert.are.equal(18, gone:sum():item())
        local ok, message = pcall(bad.totable, bad)
        assert.is_false(ok)
        assert.is_truthy(message:find(complaint), message)
        assert.is_false(pcall(flow.sync)) -- of `gone`, which was not read
        flow.sync()
    end)

    cuda.it("finds one bad op among more than can have a pending check", function()
        local w = flow.ones(4, 3, {device = cuda.device})
        for _, at in ipairs {3, 700, 1199} do
            local bad, sums = nil, {}
            for i = 1, 1200 do
                local x = rows(w, i == at and 9 or 1)
                if i == at then bad = x + 1 else sums[i % 10] = x:sum() + (sums[i % 10] and sums[i % 10] * 0 or 0) end
            end
            for i = 0, 9 do assert.are.equal(6, sums[i]:item()) end
            local ok, message = pcall(bad.totable, bad)
            assert.is_false(ok)
            assert.is_truthy(message:find(complaint), message)
        end
        flow.sync()
    end)

    cuda.it("reaches what the host computes from it", function()
        local w = flow.ones(4, 3, {device = cuda.device})
        local here = flow.ones(2, 3)
        local ok, message = pcall(function() return (rows(w, 9):to("cpu") + here):sum():item() end)
        assert.is_false(ok)
        assert.is_truthy(message:find(complaint), message)
        assert.are.equal(6, here:sum():item())
    end)

    cuda.it("is reported at once when the engine is naive", function()
        local before = testing.engine "naive"
        local x = flow.randn(4, 3, {device = cuda.device})
        local ok, message = pcall(flow.embedding, flow.tensor({0, 9}, {device = cuda.device}), x)
        testing.engine(before)
        pcall(flow.sync)
        assert.is_false(ok)
        assert.is_truthy(tostring(message):find("embedding", 1, true), message)
    end)

    cuda.it("gets its memory back", function()
        local before = support.settled_memory(cuda.device).live_bytes
        local x = flow.zeros(256, 1024, {device = cuda.device})
        assert.are.equal(before + 1024 * 1024, flow.memory{device = cuda.device}.live_bytes)
        for _ = 1, 50 do x = x + 1 end
        assert.are.equal(50, x[0][0]:item())
        x = nil -- luacheck: ignore
        assert.are.equal(before, support.settled_memory(cuda.device).live_bytes)
    end)

    cuda.it("hears how much there is when it asks for too much", function()
        local ok, message = pcall(flow.zeros, 1 << 42, {device = cuda.device})
        assert.is_false(ok)
        assert.is_truthy(message:find("out of memory", 1, true), message)
        assert.are.equal(3, flow.ones(3, {device = cuda.device}):sum():item())
    end)

    cuda.it_real("runs ahead of the GPU", function()
        local x = flow.randn(8192, 8192, {device = cuda.device})
        local y = x:matmul(x)
        flow.sync()
        local clock = flow.progress.clock
        local began = clock()
        for _ = 1, 10 do y = x:matmul(y) * 1e-4 end
        local launched = clock() - began
        flow.sync()
        local done = clock() - began
        assert.is_true(launched < 0.2 * done, ("launching took %.1f of %.1f ms"):format(launched * 1e3, done * 1e3))
    end)
end)

describe("the environment", function()
    local script = [[
        local flow = require "flow"
        local x = flow.arange(1000, {dtype = "float32", device = "cuda"})
        for _ = 1, 20 do x = (x * 0.5 + 1):clone() end
        print(x:sum():item())
    ]]
    local function output(environment) return (process.run(environment, script)) end

    cuda.it("FLOW_ENGINE=naive changes nothing", function()
        local want = output ""
        assert.is_truthy(tonumber(want), want)
        assert.are.equal(want, output "FLOW_ENGINE=naive")
        assert.are.equal(want, output "FLOW_ENGINE=queued")
    end)

    cuda.it("--trace has what ran on the GPU", function()
        local path = os.tmpname()
        local text, status = process.output(("%s --trace %s -e 'local x = flow.ones(100, {device = \"cuda\"}) print((x:exp() + x):sum():item())' 2>&1")
            :format(process.flowlua, path))
        assert.are.equal(0, status, text)
        local trace = flow.json and flow.json or require "flow.json"
        local events = trace.decode(process.read(path))
        os.remove(path)
        local seen, lanes = {}, {}
        for _, event in ipairs(events.traceEvents or events) do
            if event.ph == "M" and event.name == "thread_name" then lanes[event.tid] = event.args.name end
            seen[event.name] = event
        end
        assert.is_table(seen.exp, "the trace has no exp")
        assert.are.equal("cuda:0 compute", lanes[seen.exp.tid])
        -- the times are the GPU's: it ran one after the other, after they were issued
        for _, name in ipairs {"exp", "add", "sum"} do
            assert.is_true(seen[name].dur > 0 and seen[name].args.waited >= 0, name)
        end
        assert.is_true(seen.exp.ts + seen.exp.dur <= seen.add.ts + 1)
        assert.is_true(seen.add.ts + seen.add.dur <= seen.sum.ts + 1)
    end)
end)
