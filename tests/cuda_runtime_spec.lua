-- cuda_runtime_spec.lua -- devices, queues, memory and copies of the CUDA plug-in, on the emulated GPU: in order, and with
-- what was issued done at random moments that respect only streams and events.
local process = require "tests.process"
local sanitized = process.build:find "asan" ~= nil
local emulated = process.exists(process.build .. "/emulated/flowlua-cuda.so")

local function with_emulation(name, body)
    process.it_unless(not emulated and "the emulated GPU is not built: there is no CUDA toolkit here", name, body)
end

-- Output and exit code of a script in an environment; in messages the script is script.lua.
local function run(environment, code) return process.run(environment, "local flow = require 'flow'\n" .. code) end

-- A random program on tensors that move between the CPU and two GPUs, each with a copy that stays on the CPU.
local program = [[
local steps, seed = %d, %d
math.randomseed(seed)
local devices, sizes = {"cpu", "cuda:0", "cuda:1"}, {1, 7, 1000, 300001}
local pairs_ = {}
local function fresh()
    local n = sizes[math.random(#sizes)]
    local x = flow.arange(n, {dtype = "int32"}) + math.random(100)
    return {on_cpu = x + 0, there = x:to(devices[math.random(3)]), n = n}
end
local function check(p)
    local wrong = (p.there:to("cpu") - p.on_cpu):abs():max():item()
    if wrong ~= 0 then error(("step of seed %%d: %%d is wrong on %%s"):format(seed, p.n, p.there.device)) end
end
for i = 1, 12 do pairs_[i] = fresh() end
for _ = 1, steps do
    local i, what, k = math.random(#pairs_), math.random(10), math.random(9)
    local p = pairs_[i]
    if what <= 3 then p.there = p.there:to(devices[math.random(3)])
    elseif what <= 5 then p.there, p.on_cpu = p.there + k, p.on_cpu + k
    elseif what == 6 then p.there:add_(k) p.on_cpu:add_(k)
    elseif what == 7 then p.there, p.on_cpu = p.there:to("cpu") * 2 + k, p.on_cpu * 2 + k
    elseif what == 8 then
        local q = pairs_[math.random(#pairs_)]
        if q.n == p.n then p.there, p.on_cpu = p.there + q.there:to(p.there.device), p.on_cpu + q.on_cpu end
    elseif what == 9 then pairs_[i] = fresh()
    else check(p) end
end
for _, p in ipairs(pairs_) do check(p) end
flow.sync()
print "right"
]]

describe("the emulation of CUDA", function()
    with_emulation("obeys and checks its rules when work is deferred too", function()
        local output = process.output("FLOW_CUDA_EMULATED=deferred " .. process.build .. "/tests/emulate 2>&1")
        local without_keys = output:find("skipped test_host_touches_device_memory: this CPU has no protection keys", 1, true)
        assert.matches(("%%d+ passed, 0 failed, %d skipped\n$"):format(without_keys and 1 or 0), output)
    end)
end)

describe("the CUDA runtime", function()
    local steps = sanitized and 300 or 1500
    for _, mode in ipairs {"FLOW_CUDA_EMULATED=1", "FLOW_CUDA_EMULATED=deferred", "FLOW_CUDA_EMULATED=deferred FLOW_ENGINE=queued",
        "FLOW_CUDA_EMULATED=1 FLOW_ENGINE=naive"} do
        with_emulation("moves tensors between devices while the script runs ahead, " .. mode, function()
            for seed = 1, 3 do
                assert.are.equal("right\n", run(("%s FLOW_CUDA_EMULATED_SEED=%d"):format(mode, seed), program:format(steps, seed)))
            end
        end)
    end

    with_emulation("copies more than its pinned chunks hold", function()
        local output = run("FLOW_CUDA_EMULATED=deferred", [[
            local x = flow.arange(20 * 2^20 + 1, {dtype = "int32"})
            local y = x:to("cuda"):to("cpu"):to("cuda:1"):to("cpu")
            print((y - x):abs():max():item())]])
        assert.are.equal("0\n", output)
    end)

    with_emulation("says which GPUs there are, and that there is none", function()
        assert.matches("script.lua:2: cuda:5: this process sees 2 GPUs, cuda:0 to cuda:1\n", run("FLOW_CUDA_EMULATED=1", "flow.ones(2):to('cuda:5')"))
        assert.matches("script.lua:2: cuda:1: this process sees one GPU, cuda:0\n",
            run("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=1", "flow.ones(2):to('cuda:1')"))
        assert.matches("script.lua:2: to: cuda: no GPU: the NVIDIA driver finds none on this machine; use device \"cpu\"\n",
            run("env -u CUDA_VISIBLE_DEVICES FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=0", "flow.ones(2):to('cuda')"))
        assert.matches("cuda: no GPU: CUDA_VISIBLE_DEVICES= hides them, or there is none; use device \"cpu\"\n",
            run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=0", "flow.ones(2):to('cuda')"))
    end)

    with_emulation("uses the GPU of the local rank", function()
        local code = "local x = flow.ones(1000):to('cuda') print(flow.memory{device = 'cuda:0'}.live_bytes, flow.memory{device = 'cuda:1'}.live_bytes)"
        assert.are.equal("4000\t0\n", run("FLOW_CUDA_EMULATED=1 OMPI_COMM_WORLD_LOCAL_RANK=2", code))
        assert.are.equal("0\t4000\n", run("FLOW_CUDA_EMULATED=1 OMPI_COMM_WORLD_LOCAL_RANK=3", code))
    end)

    with_emulation("answers what scripts ask torch.cuda for", function()
        local code = [[
            local cuda = flow.cuda
            local before = cuda.memory_allocated()
            local x = flow.ones(1000):cuda(0)
            do local _ = x + x:exp() cuda.synchronize() end
            print(cuda.is_available(), cuda.device_count(), cuda.memory_allocated(0) - before >= 4000)
            print(cuda.max_memory_allocated "cuda:0" >= cuda.memory_allocated(), cuda.memory_reserved() >= cuda.memory_allocated())
            cuda.manual_seed_all(3)
            local first = flow.randn({4}, {device = "cuda"})
            cuda.manual_seed(3)
            print(flow.equal(first, flow.randn({4}, {device = "cuda"})))
            cuda.reset_peak_memory_stats()
            print(pcall(cuda.memory_allocated, 5))]]
        assert.matches("^true\t1\ttrue\ntrue\ttrue\ntrue\nfalse\t[^\n]*there is no cuda:5\n",
            run("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=1", code))
    end)

    with_emulation("counts its memory and uses it again", function()
        local output = run("FLOW_CUDA_EMULATED=1", [[
            local function now() return flow.memory{device = "cuda"} end
            local x = flow.ones(1000):to("cuda")
            local y = x + 1
            flow.sync()
            print(now().live_bytes, now().live_blocks, now().peak_bytes)
            y = nil
            collectgarbage() collectgarbage()
            flow.memory{device = "cuda", reset_peak = true}
            local m = now()
            print(m.live_bytes, m.live_blocks, m.peak_bytes)
            for _ = 1, 10 do y = x * 2 flow.sync() y = nil collectgarbage() end
            print(now().system_allocations - m.system_allocations, now().allocations - m.allocations)]])
        local lines = {}
        for line in output:gmatch "[^\n]+" do lines[#lines + 1] = line end
        assert.are.equal("8000\t2\t8000", lines[1])
        assert.are.equal("4000\t1\t4000", lines[2])
        if not sanitized then assert.are.equal("0\t10", lines[3]) end
    end)

    with_emulation("gives what is kept to an op that needs memory for its work", function()
        assert.are.equal("7.1546\n", run("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_BYTES=67108864", [[
            local kept, scores = {}, flow.zeros(1280, 4096, {device = "cuda"})
            for i = 1, 30 do kept[i] = flow.zeros(262144, {device = "cuda"}) end
            local labels = flow.zeros(4096, {dtype = "int64", device = "cuda"})
            kept = nil
            collectgarbage() collectgarbage()
            print(("%.4f"):format(flow.cross_entropy(scores:t(), labels):item()))]]))
    end)

    with_emulation("says how much memory there is when it is too little, and goes on", function()
        local output = run("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_BYTES=100000000", [[
            local list, x = {}, flow.ones(10 * 2^20)
            print(pcall(function() for i = 1, 5 do list[i] = x:to("cuda") end end))
            print(#list)
            list = nil
            print((x:to("cuda") + 1):sum():item())
            for _ = 1, 20 do local y = x:to("cuda") end]])
        assert.are.equal("false\tscript.lua:3: cuda:0: out of memory: 40.0 MiB asked for; this process has 80.0 MiB (at most 80.0 MiB so far); " ..
            "15.4 MiB of 95.4 MiB are free; most by script.lua:3 (80.0 MiB)\n2\n20971520.0\n", output)
    end)

    with_emulation("reports at the next wait what a kernel found wrong, once", function()
        local output = run("FLOW_CUDA_EMULATED=deferred", [[
            local x = flow.arange(3):to("cuda")
            local y = x:index_select(0, flow.tensor({0, 7}):to("cuda"))
            print(pcall(flow.sync))
            print(pcall(flow.sync))
            for _ = 1, 3000 do y = x:index_select(0, flow.tensor({2, 1}):to("cuda")) end
            print(y:to("cpu")[0]:item())]])
        assert.are.equal("false\tscript.lua:4: index_select (script.lua:3): index[1] is 7, but this axis of x has 3 positions (0 to 2)\ntrue\n2\n", output)
    end)

    it("says which plug-in is missing", function()
        if emulated then pending "the emulated GPU is built" end
        assert.matches("cuda: FLOW_CUDA_EMULATED=1: the emulated GPU is not built; run make emulated",
            run("FLOW_CUDA_EMULATED=1", "flow.ones(2):to('cuda')"), 1, true)
    end)
end)
