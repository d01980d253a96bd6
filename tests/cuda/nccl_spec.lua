-- nccl_spec.lua -- when NCCL moves tensors and when the CPUs do, and what is said when it fails: jobs of several ranks on emulated
-- GPUs with a stand-in for NCCL (fake_nccl.cc).
local process = require "tests.process"

local folder, write, flowlua, out

-- Line 5 is the collective. Prints what each rank made of it: its sum, or the error.
local script = [[
local flow = require "flow"
local all = flow.placement.all "cuda"
local function step(n)
    local x = flow.ones({n, 4}, {placement = all, sbp = "S(0)"})
    return x:sum(0):to_global {sbp = "B"}
end
local y
local ok, message = pcall(function()
    for n = 1, arg[1] == "large" and 1 or 3 do
        y = step(n)
        if arg[1] == "kill" and n == 2 and flow.rank() == 1 then os.execute "kill -KILL $PPID" end
    end
    if arg[1] == "large" then y:to_local():view(4, 1):expand(4, 5 << 20):to("cpu") end      -- 80 MiB
    return y:to_local():sum():item()
end)
local stats = flow.engine.stats()
local again = not ok and select(2, pcall(step, 1))
local text = ("%d %s %d %d%s\n"):format(flow.rank(), message, stats.device_collectives, stats.staged_collectives, again and "\n" .. again or "")
io.stdout:write(text)
io.stdout:flush()
if not ok then
    os.execute "sleep 0.5"      -- another rank began to wait later, and is ended when this one has gone
    os.exit(0)
end
]]

-- Sorted lines of all ranks, without the report of a job that fails.
local function run(ranks, environment, argument)
    local command = ("cd %s; %s FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=4 FLOW_NCCL=%s/emulated/fake_nccl.so FLOW_TIMEOUT=1 %s timeout 60 " ..
        "%s --ranks %d train.lua %s 2>&1 </dev/null"):format(folder, process.no_leaks, out, environment, flowlua, ranks, argument or "")
    local lines = {}
    for line in process.output(command):gmatch "([^\n]*)\n" do
        if not line:find("^%S*flowlua: rank %d: ") then lines[#lines + 1] = (line:gsub(folder .. "/", "")) end
    end
    table.sort(lines)
    return lines
end

-- The output of the ranks when all goes well: so many collectives of either kind.
local function well(ranks, direct, staged)
    local lines = {}
    for r = 0, ranks - 1 do lines[r + 1] = ("%d 12.0 %d %d"):format(r, direct, staged) end
    return lines
end

describe("NCCL", function()
    local why = process.obstacle()
    if not process.exists(process.build .. "/emulated/fake_nccl.so") then why = why or "the emulation was not built (make emulated)" end

    local function with_ranks(name, body) process.it_unless(why, name, body) end

    setup(function()
        folder, write = process.folder()
        write("train.lua", script)
        flowlua = process.absolute()
        out = flowlua:match "^(.*)/"
    end)
    teardown(function() os.execute("rm -r " .. folder) end)

    with_ranks("moves tensors of ranks that have a GPU each", function()
        for _, ranks in ipairs {2, 4} do assert.are.same(well(ranks, 3, 0), run(ranks, "")) end
        assert.are.same(well(2, 3, 0), run(2, "FLOW_CUDA_EMULATED=deferred"))
        assert.are.same(well(2, 3, 0), run(2, "FLOW_ENGINE=naive"))
        assert.are.same(well(2, 3, 0), run(2, "FLOW_SHARED=0"))
    end)

    with_ranks("is left out, by all ranks, where it cannot or may not be used", function()
        assert.are.same(well(2, 0, 3), run(2, "FLOW_NCCL=0"))
        assert.are.same(well(2, 0, 3), run(2, "FLOW_NCCL=/nowhere/libnccl.so"))
        assert.are.same(well(3, 0, 3), run(3, "FLOW_CUDA_EMULATED_DEVICES=2"))
        write("one.sh", [=[[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export FLOW_NCCL=0; exec "$@"]=])
        local environment = ("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=2 FLOW_NCCL=%s/emulated/fake_nccl.so"):format(out)
        assert.are.equal("0 12.0 0 3\n1 12.0 0 3\n", (process.output(("cd %s; %s %s %s -n 2 sh one.sh %s train.lua | sort")
            :format(folder, process.no_leaks, environment, process.mpirun, flowlua))))
    end)

    with_ranks("is left out, and that is said, where one rank cannot join", function()
        local lines = run(2, "FLOW_FAKE_NCCL=fail:1:0")
        local said = "flowlua: NCCL cannot be used, tensors travel through host memory: rank 1: joining of devices: NCCL: " ..
            "remote process exited or there was a network error"
        assert.are.same({"0 12.0 0 3", "1 12.0 0 3", said}, lines)
    end)

    local doing = "all-reduce of float32[4], P -> B (train.lua:5)"
    local later = "train.lua:5: " .. doing .. ": an earlier collective of these ranks failed before its end; they can no longer communicate"

    with_ranks("that does not come to an end within the time-out is reported on all ranks", function()
        for _, mode in ipairs {"1", "deferred"} do
            local lines = run(2, "FLOW_FAKE_NCCL=hang:1:2 FLOW_CUDA_EMULATED=" .. mode)
            local function report(me, other)
                return ("^%d train.lua:14: item: %s: after 1 s the devices have not moved their data; this one waits for rank %d.*%s 3 0$")
                    :format(me, doing:gsub("%p", "%%%0"), other, "%(FLOW_TIMEOUT sets the seconds%)")
            end
            assert.are.equal(4, #lines, table.concat(lines, "\n"))
            assert.matches(report(0, 1), lines[1])
            assert.matches(report(1, 0), lines[2])
            assert.are.same({later, later}, {lines[3], lines[4]})
        end
    end)

    with_ranks("that does not come to an end does not hold up copies of more than goes through pinned memory at once", function()
        local lines = run(2, "FLOW_FAKE_NCCL=hang:1:1", "large")
        for rank = 0, 1 do assert.matches(("^%d train.lua:%%d+: .*after 1 s the devices have not moved their data"):format(rank), lines[rank + 1]) end
    end)

    with_ranks("reports an error of its own", function()
        local lines = run(2, "FLOW_FAKE_NCCL=fail:0:2")
        local message = "0 train.lua:5: all-reduce of float32[4], P -> B (train.lua:5): NCCL: remote process exited or there was a network error"
        assert.are.equal(message, lines[1]:sub(1, #message))
        assert.truthy(lines[2]:find("1 train.lua:", 1, true), lines[2])
    end)

    with_ranks("with a rank that was killed ends the job", function()
        local lines = run(2, "FLOW_FAKE_NCCL=hang:1:2", "kill")
        assert.truthy(table.concat(lines, "\n"):find(": rank 1 was killed (SIGKILL? out of memory?)", 1, true), table.concat(lines, "\n"))
    end)
end)
