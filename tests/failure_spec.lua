-- failure_spec.lua -- one of several ranks fails, in every way there is: the job ends soon, with one report that names the rank
-- and the line, with the script's exit code, and leaves no process behind.
local process = require "tests.process"

local SOON = 5     -- seconds in which a job ends
local with_ranks = process.it_with_ranks
local folder, write, flowlua

-- Line 9 is the collective that all ranks enter.
local script = [[
local flow = require "flow"
local kind, who = arg[1], tonumber(arg[2] or 1)
local me = flow.rank() == who
local all = flow.placement.all "cpu"
local x = flow.ones({4, 4}, {placement = all, sbp = "S(0)"})
local function signal(name) os.execute(("kill -%s $PPID"):format(name)) end
local function work(seconds) local limit = os.clock() + seconds repeat until os.clock() > limit end
local function step()
    return (x * 2):sum(0):to_global{sbp = "B"}
end
local ways = {}
function ways.error() error "boom" end
function ways.object() error(setmetatable({}, {__tostring = function() return "an object" end})) end
function ways.long() error(("long "):rep(1000) .. "end") end
function ways.method() x.foo() end
function ways.exit() os.exit(3) end
function ways.exit_false() os.exit(false) end
function ways.exit_close() os.exit(4, true) end
function ways.exit_byte() os.exit(-1) end
function ways.exit_well() os.exit(0) end
function ways.exit_well_close() os.exit(true, true) end
function ways.coroutine() coroutine.wrap(function() os.exit(6) end)() end
function ways.kill() signal "KILL" end
function ways.term() signal "TERM" work(5) end -- it may run on for a while
function ways.stop() signal "STOP" end
function ways.late() work(1.5) end
function ways.loop() while true do end end
function ways.work() while true do x:add_(0) work(0.05) end end
function ways.barrier() flow.barrier() end
function ways.gc() setmetatable({}, {__gc = function() error "late" end}) end
step()
io.stderr:write ""
if me or who < 0 then ways[kind]() end
if me and arg[3] == "end" then return end
if arg[3] == "busy" then work(20) end
if arg[3] == "catch" then
    local _, message = pcall(step)
    local _, again = pcall(step)
    io.stderr:write(message .. "\n" .. again .. "\n")
    os.exit(0)
end
for _ = 1, 10 do step() end
]]

local collective = "all-reduce of float32[4], P -> B (train.lua:9)"
local at_collective = "train.lua:9: " .. collective .. ": "
local past = ", past " .. collective .. "; its last op is sum"
local in_step = "stack traceback:\n\t[C]: in method 'to_global'\n\ttrain.lua:9: in local 'step'\n\ttrain.lua:42: in main chunk\n\t[C]: in ?\n"

local function traceback(first, line)
    return ("stack traceback:\n\t[C]: in %s\n\ttrain.lua:%d: in field '?'\n\ttrain.lua:33: in main chunk\n\t[C]: in ?\n"):format(first, line)
end

-- The job's standard error, its exit code, and its seconds. `launch` may be "mpirun": without --ranks.
local function run(arguments, environment, ranks, launch)
    ranks = ranks or 3
    local starter = launch and ("%s -n %d %s"):format(process.mpirun, ranks, flowlua)
        or ("%s --ranks %d"):format(flowlua, ranks)
    local text = process.output(("cd %s; began=$(date +%%s%%N); %s FLOW_TIMEOUT=1 %s timeout -k 1 60 %s %s/train.lua %s 2>&1 >/dev/null </dev/null; " ..
        "echo \"rc=$? $(($(date +%%s%%N) - began))\""):format(folder, process.no_leaks, environment or "", starter, folder, arguments))
    local output, code, took = text:match "^(.-)rc=(%d+) (%d+)\n$"
    output = output:gsub(flowlua:gsub("%p", "%%%0"), "flowlua"):gsub((folder .. "/"):gsub("%p", "%%%0"), "")
    return output, tonumber(code), took / 1e9
end

-- Processes of the job that are there two seconds after it: mpirun may end some milliseconds before its ranks do.
local function left_behind()
    local command = "for try in $(seq 20); do left=$(pgrep -f '[ ]%s/train.lua') || break; sleep 0.1; done; [ -z \"$left\" ] || echo \"$left\""
    return (process.output(command:format(folder)))
end

-- The same with all that every job must keep to.
local function check(want, code, ...)
    local output, status, took = run(...)
    local name = table.concat({...}, " ", 1, 1)
    assert.are.equal(want, output, name)
    assert.are.equal(code, status, name)
    assert.is_true(took < process.limit(SOON), ("%s took %g s"):format(name, took))
    assert.are.equal("", left_behind(), name)
end

describe("a rank that fails", function()
    setup(function()
        folder, write = process.folder()
        write("train.lua", script)
        flowlua = process.absolute()
    end)
    teardown(function() os.execute("rm -r " .. folder) end)

    with_ranks("by an error reports it once, with its traceback", function()
        local boom = "flowlua: rank 1: train.lua:12: boom\n" .. traceback("function 'error'", 12)
        check(boom, 1, "error")
        check(boom, 1, "error 1 busy")
        check(boom, 1, "error", "FLOW_SHARED=0")
        check(boom, 1, "error", nil, 3, "mpirun")
        check("flowlua: rank 2: an object\n", 1, "object 2")
        check("flowlua: rank 0: train.lua:14: " .. ("long "):rep(1000) .. "end\n" .. traceback("function 'error'", 14), 1, "long 0")
    end)

    with_ranks("like all others is reported once", function()
        local missing = "train.lua:15: tensor has no method or field 'foo'\n" .. traceback("metamethod 'index'", 15)
        check("flowlua: all ranks: " .. missing, 1, "method -1")
        check("flowlua: rank 0: " .. missing, 1, "method -1", "FLOW_SHARED=0")
        local output, code = run("error -1", "FLOW_FAULT=nonsense")
        assert.truthy(output:find("^flowlua: all ranks: train.lua:1: FLOW_FAULT=nonsense: must be [^\n]+\nstack traceback:"), output)
        local _, reports = output:gsub("flowlua: ", "")
        assert.are.same({1, 1}, {reports, code})
    end)

    with_ranks("by os.exit ends the job with its code", function()
        for _, case in ipairs {{"exit", 3, 16}, {"exit_false", 1, 17}, {"exit_close", 4, 18}, {"exit_byte", 255, 19}, {"coroutine", 6, 22}} do
            local name, code, line = table.unpack(case)
            local report = ("flowlua: rank 1 called os.exit(%d) at train.lua:%d\n"):format(code, line)
            check(report, code, name)
            check("", code, name .. " -1")
        end
        check("flowlua: rank 1 called os.exit(3) at train.lua:16\n", 3, "exit", "FLOW_SHARED=0")
        check("flowlua: rank 0 called os.exit(3) at train.lua:16\n", 3, "exit -1", "FLOW_SHARED=0")
        check("flowlua: rank 1 called os.exit(3) at train.lua:16\n", 3, "exit", nil, 3, "mpirun")
    end)

    with_ranks("to wait for the others, or for none, is no failure", function()
        check("", 0, "gc -1")
        check("", 0, "exit_well -1")
        check("", 0, "exit_well_close -1")
        check("", 0, "exit_well -1", "FLOW_SHARED=0")
        check("", 0, "exit_well_close -1", "FLOW_ENGINE=queued")
    end)

    with_ranks("by coming to its end too early is named by those who wait", function()
        local report = "flowlua: ranks 0, 2: " .. at_collective .. "rank 1 has ended" .. past .. "; all ranks must call it\n" .. in_step
        check(report, 1, "gc 1 end")
        check(report, 1, "exit_well")
        check(report, 1, "exit_well_close")
    end)

    with_ranks("by a crash reports the signal, the line and the last op", function()
        check("flowlua: rank 1 crashed (SIGSEGV) at train.lua:9" .. past .. "\n", 139, "gc -1", "FLOW_FAULT=1:7:segv")
        local output, code = run("gc -1", "FLOW_SHARED=0 FLOW_FAULT=2:7:segv")
        assert.are.equal("flowlua: rank 2 crashed (SIGSEGV) at train.lua:9" .. past .. "\n", output:match "^.-\n")
        assert.are.equal(139, code)
        check("flowlua: rank 1 crashed (SIGSEGV) at train.lua:5, its last op is ones\n", 139, "gc -1", "FLOW_FAULT=1:1:segv", 2)
    end)

    with_ranks("by kill -9 is reported by another one", function()
        local report = "flowlua: rank 1 was killed (SIGKILL? out of memory?)" .. past .. "\n"
        check(report, 137, "kill")
        check(report, 137, "kill 1 busy")
        check(report, 137, "gc -1", "FLOW_FAULT=1:7:kill")
        local output, code = run("kill", "FLOW_SHARED=0")
        assert.truthy(output:find("rank 1 ", 1, true) and output:find("signal 9", 1, true), output)
        assert.are.equal(137, code)
    end)

    with_ranks("by SIGTERM is reported, unless it is the whole job", function()
        check("flowlua: rank 1 was ended by SIGTERM" .. past .. "\n", 143, "term")
        write("stop.sh", ("%s FLOW_TIMEOUT=60 %s --ranks 3 %s/train.lua loop 0 & sleep %g; kill -TERM $!; wait $!"):format(process.no_leaks, flowlua, folder,
            process.limit(1)))
        assert.are.equal("", (process.output(("sh %s/stop.sh 2>&1"):format(folder))))
        assert.are.equal("", left_behind())
    end)

    with_ranks("by exit of some library is reported", function()
        check("flowlua: rank 1 called exit at train.lua:9\n", 1, "gc -1", "FLOW_FAULT=1:7:exit")
    end)

    with_ranks("to come ends the job after the time-out, though it never answers", function()
        local hint = ". All ranks must call it: is it inside `if rank == 0`? (FLOW_TIMEOUT sets the seconds)\n" .. in_step
        check("flowlua: ranks 0, 2: " .. at_collective .. "after 1 s still missing: rank 1, at train.lua:27" .. past .. hint, 1, "loop")
        check("flowlua: ranks 0, 2: " .. at_collective .. "after 1 s still missing: rank 1" .. past .. hint, 1, "stop")
        check("flowlua: rank 0: " .. at_collective .. "after 1 s still missing: rank 1" .. past .. hint, 1, "gc -1", "FLOW_FAULT=1:7:sleep", 2)
        check("flowlua: rank 0: " .. at_collective .. "after 1 s still missing: rank 1" .. hint, 1, "loop", "FLOW_SHARED=0")
    end)

    with_ranks("to come in time is an error that all catch in the same words, the late one too; nothing hangs after it", function()
        local hint = ". All ranks must call it: is it inside `if rank == 0`? (FLOW_TIMEOUT sets the seconds)\n"
        for shared, place in pairs {["FLOW_SHARED=1"] = ", at train.lua:7" .. past, ["FLOW_SHARED=0"] = ""} do
            local once = at_collective .. "after 1 s still missing: rank 1" .. place .. hint .. at_collective ..
                "an earlier collective of these ranks failed before its end; they can no longer communicate\n"
            check(once:rep(3), 0, "late 1 catch", shared)
        end
    end)

    with_ranks("but gets on with ops is waited for", function()
        local output, _, took = run("work", "timeout 3")
        assert.are.equal("", output)
        assert.is_true(took > 2.9)
    end)

    with_ranks("by running something else is reported with both lines", function()
        local output, code, took = run("barrier")
        local both = "the ranks run different programs: rank 0 train.lua:9 all-reduce of float32[4], P -> B, rank 1 train.lua:29 barrier; " ..
            "is one of them inside `if rank == 0`?\n"
        local where = output:match "^flowlua: rank[s 0-9,]+: train.lua:%d+: (.-\n)stack traceback:"
        assert.are.equal(both, where, output)
        assert.are.equal(1, code)
        assert.is_true(took < process.limit(SOON))
    end)

    with_ranks("by leaving out a collective is reported at the next one", function()
        local both = "train.lua:9: the ranks run different programs: rank 0 nothing more, rank 1 train.lua:9 mul of float32[4, 4] S(0) " ..
            "(before the all-reduce of float32[4], P -> B, train.lua:9); is one of them inside `if rank == 0`?\n"
        check("flowlua: all ranks: " .. both .. in_step, 1, "gc -1", "FLOW_FAULT=1:7:skip")
    end)

    with_ranks("with an option that does not exist says so once", function()
        local output = process.output(("%s %s -n 3 %s --nonsense 2>&1"):format(process.no_leaks, process.mpirun, flowlua))
        assert.truthy(output:find(flowlua .. ": all ranks: unrecognized option '--nonsense'\nusage: flowlua [options]", 1, true), output)
        local _, count = output:gsub("usage:", "")
        assert.are.equal(1, count)
    end)
end)

-- All ranks catch the error and end well.
local waits = [[
local flow = require "flow"
local me, way = flow.rank(), arg[1]
local function x(...) return flow.ones({4, 4}, {placement = flow.placement("cpu", {...}), sbp = "S(0)"}) end
local function gather(...) x(...):to_global{sbp = "B"} end
local function reduce(...) x(...):sum(0):to_global{sbp = "B"} end
local ways = {}
function ways.order()
    if me == 0 then gather(0, 1)
    else reduce(1, 0) end
end
function ways.subset()
    if me == 0 then gather(0, 1)
    else gather(0, 1, 2) end
end
function ways.ring()
    gather(me, (me + 1) % 3)
end
function ways.crossed()
    gather(0, 1) gather(1, 0)
    if me == 0 then gather(0, 1) end
    reduce(1, 0)
    if me == 1 then gather(0, 1) end
end
function ways.late()
    local limit = os.clock() + 0.3
    if me == 2 then repeat until os.clock() > limit end
    if me < 2 then gather(0, 1) end
    if me > 0 then gather(1, 2) end
    for i = 1, 300 do
        if (i * 7 + me) % 11 == 0 then for _ = 1, 200 do flow.ones(100) end end
        if me ~= i % 3 then reduce((i + 1) % 3, (i + 2) % 3) end
        if i % 5 == 0 then reduce(2, 0, 1) end
    end
end
local ok, message = pcall(function() ways[way]() flow.sync() end)
io.stderr:write(("%d: %s\n"):format(me, ok and "no error" or message))
]]

describe("ranks that wait for each other in different groups", function()
    setup(function()
        folder, write = process.folder()
        write("train.lua", waits)
        flowlua = process.absolute()
    end)
    teardown(function() os.execute("rm -r " .. folder) end)

    local advice = "; their placements must list the same ranks in the same order, and their collectives must come in the same order"
    local gathers, reduces = " train.lua:4 all-gather of float32[4, 4], S(0) -> B among ", " train.lua:5 all-reduce of float32[4], P -> B among "
    -- {way, ranks, what they wait in, environment}
    local cases = {
        {"order", 2, "rank 0" .. gathers .. "{0, 1}, rank 1" .. reduces .. "{1, 0}"},
        {"order", 2, "rank 0" .. gathers .. "{0, 1}, rank 1" .. reduces .. "{1, 0}", "FLOW_ENGINE=queued"},
        {"subset", 3, "rank 0" .. gathers .. "{0, 1}, rank 1" .. gathers .. "{0, 1, 2}"},
        {"ring", 3, "rank 0" .. gathers .. "{0, 1}, rank 1" .. gathers .. "{1, 2}, rank 2" .. gathers .. "{2, 0}"},
        {"crossed", 2, "rank 0" .. gathers .. "{0, 1}, rank 1" .. reduces .. "{1, 0}"},
    }

    -- The report of each rank, in their order, and the seconds.
    local function say(way, environment, ranks)
        local output, code, took = run(way, "FLOW_TIMEOUT=100 " .. environment, ranks)
        local lines = {}
        for line in output:gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("^(%d: ).*(ranks wait for)", "%1%2") end
        table.sort(lines)
        assert.are.equal(0, code, output)
        return lines, took
    end

    with_ranks("get the same error at once", function()
        for _, case in ipairs(cases) do
            local way, ranks, who, environment = table.unpack(case)
            local lines, took = say(way, environment or "", ranks)
            local want = {}
            for rank = 0, ranks - 1 do want[rank + 1] = ("%d: ranks wait for each other: %s%s"):format(rank, who, advice) end
            assert.are.same(want, lines, way)
            assert.is_true(took < process.limit(SOON), ("%s took %g s"):format(way, took))
        end
    end)

    with_ranks("get no error where a rank is late", function()
        assert.are.same({"0: no error", "1: no error", "2: no error"}, (say("late", "", 3)))
    end)
end)
