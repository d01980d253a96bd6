-- launch_spec.lua -- flowlua --ranks N: the environment of every rank, the results for mpirun's caller, errors.
local process = require "tests.process"

local flowlua, with_ranks = process.flowlua, process.it_with_ranks
local folder, write

-- Output (with errors) and exit code of a shell command; the word @ stands for the program, % for the folder.
local function run(command, stdin)
    command = (command .. " "):gsub("@ ", function() return flowlua .. " " end):gsub("%%", function() return folder end)
    local input = stdin and write("stdin", stdin) or "/dev/null"
    return process.output(("{ %s timeout 60 sh -c '%s'; } <%s 2>&1"):format(process.no_leaks, command:gsub("'", "'\\''"), input))
end

-- The lines of all ranks, in an order that does not depend on who was first.
local function lines(output)
    local list = process.lines(output)
    table.sort(list)
    return list
end

describe("--ranks", function()
    setup(function() folder, write = process.folder() end)
    teardown(function() os.execute("rm -r " .. folder) end)

    it("takes one rank without mpirun", function()
        assert.are.same({"1\n", 0}, {run("PATH= @ --ranks 1 -e 'print(flow.world_size())'")})
        assert.are.same({"1\n", 0}, {run("@ --ranks=1 -e 'print(flow.world_size())'")})
    end)

    -- One that has not run for seconds, on a busy machine, learns of a rank's end before its MPI_Finalize.
    with_ranks("does not fail where mpirun is late", function()
        write("mpirun", "#!/bin/sh\nenv | grep without_sync\n")
        assert(os.execute(("chmod +x %s/mpirun"):format(folder)))
        assert.are.same({"OMPI_MCA_orte_allowed_exit_without_sync=1\n", 0}, {run('PATH="%:$PATH" @ --ranks 2 -e ""')})
        os.remove(folder .. "/mpirun")
    end)

    with_ranks("says what is missing", function()
        local output, code = run("PATH= @ --ranks 2 -e ''")
        assert.are.equal(flowlua .. ": --ranks needs mpirun, which was not found: install the package openmpi-bin\n", output)
        assert.are.equal(1, code)
        assert(os.execute(("cp %s %s/alone"):format(flowlua, folder)))
        output, code = run("%/alone --ranks 2 -e ''")
        assert.are.equal(folder .. "/alone: --ranks needs flowlua-mpi.so, which was not built: install the package libopenmpi-dev and run make\n", output)
        assert.are.equal(1, code)
        output, code = run("OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 %/alone -e ''")
        assert.are.equal(folder .. "/alone: the ranks of this job cannot work together: flowlua-mpi.so is neither beside the program " ..
            "nor in ../lib/flowlua; install the package libopenmpi-dev and run make, or name its folder in FLOW_PLUGINS\n", output)
        assert.are.equal(1, code)
    end)

    with_ranks("says what FLOW_SHARED may be", function()
        local output, code = run("FLOW_SHARED=maybe @ --ranks 2 -e \"print(require([[flow]]).world_size())\"")
        assert.are.same({"2", "2", "flowlua: FLOW_SHARED=maybe is neither 0 nor 1; using 1"}, lines(output))
        assert.are.equal(0, code)
    end)

    with_ranks("takes standard streams that are closed", function()
        assert.are.same({"nil\nnil\n", 0}, {run("@ --ranks 2 -e 'print(io.read())' <&-")})
        assert.are.same({"", 0}, {run("@ --ranks 2 -e 'print(1)' >&-")})
        assert.are.same({"1\n1\n", 0}, {run("@ --ranks 2 -e 'print(1) io.stderr:write(2)' 2>&-")})
        assert.are.same({"", 3}, {run("@ --ranks 2 -e 'print(io.read()) os.exit(3)' <&- >&- 2>&-")})
    end)

    with_ranks("needs no ssh", function()
        assert(os.execute(("mkdir %s/bin && ln -s $(command -v mpirun) %s/bin"):format(folder, folder)))
        assert.are.same({"0", "1"}, lines((run("PATH=%/bin @ --ranks 2 -e 'print(flow.rank())'"))))
    end)

    with_ranks("finds the plug-in of an installed program", function()
        assert(os.execute(("mkdir -p %s/usr/bin %s/usr/lib/flowlua && cp %s %s/usr/bin && cp %s/flowlua-mpi.so %s/usr/lib/flowlua"):format(
            folder, folder, flowlua, folder, process.build, folder)))
        local output = run("%/usr/bin/flowlua --ranks 2 -e 'print(flow.world_size())'")
        assert.are.equal("2\n2\n", output)
    end)

    with_ranks("starts N ranks with the same script", function()
        local script = write("script.lua", [[
            local flow = require "flow"
            flow.barrier()
            print(flow.rank(), flow.world_size(), ...)]])
        local cases = {
            {"@ --ranks 2 -e 'print(flow.rank(), flow.world_size())'", nil, {"0\t2", "1\t2"}},
            {"@ --ranks=3 -e 'print(flow.rank())'", nil, {"0", "1", "2"}},
            {"@ --ranks 2 " .. script .. " a --ranks 3", nil, {"0\t2\ta\t--ranks\t3", "1\t2\ta\t--ranks\t3"}},
            {"@ -e 'x = 1' --ranks 2 -e 'print(x, flow.rank())'", nil, {"1\t0", "1\t1"}},
            {"@ --ranks 2 -", "print(require('flow').rank(), ...)", {"0", "1"}},
            {"@ --ranks 2 - a", "print(require('flow').rank(), ...)", {"0\ta", "1\ta"}},
            {"@ --ranks 2", "#!/usr/bin/flowlua\nprint(require('flow').rank()) error('line 3', 0) -- " .. ("x"):rep(100000), nil},
            {"@ --ranks 2", "", {}},
            {"FLOW_SHARED=0 @ --ranks 2 " .. script, nil, {"0\t2", "1\t2"}},
            {"FLOW_SHARED=0 @ --ranks 3 -", "print(require('flow').rank())", {"0", "1", "2"}},
            {"mpirun -n 1 --allow-run-as-root @ -e 'print(flow.world_size(), flow.rank())'", nil, {"1\t0"}},
            {"FLOW_WORLD=4 FLOW_RANK=3 @ --ranks 2 -e 'print(flow.world_size(), flow.rank())'", nil, {"4\t3", "4\t3"}},
        }
        for _, case in ipairs(cases) do
            local output, code = run(case[1], case[2])
            if case[3] then
                assert.are.same(case[3], lines(output), case[1])
                assert.are.equal(0, code, case[1])
            else
                assert.truthy(output:find("line 3", 1, true), output)
                assert.are.equal(1, code)
            end
        end
    end)

    with_ranks("lets every rank draw the same random numbers", function()
        local list = lines((run("@ --ranks 2 -e 'print(flow.rand(1):item(), math.random())'")))
        assert.are.equal(2, #list)
        assert.are.equal(list[1], list[2])
        assert.are_not.equal(list[1], lines((run("@ --ranks 2 -e 'print(flow.rand(1):item(), math.random())'")))[1])
    end)

    with_ranks("gives every rank its share of the cores and equally many threads", function()
        local cores = tonumber((process.output "nproc --all"))
        local ranks = cores >= 4 and 2 or cores
        local output = run(("@ --ranks %d -e 'print(flow.get_num_threads())'"):format(ranks))
        for _, line in ipairs(lines(output)) do assert.are.equal(tostring(cores // ranks), line) end
        output = run(("@ --ranks %d -e 'print(flow.get_num_threads())'"):format(cores + 1))
        for _, line in ipairs(lines(output)) do assert.are.equal("1", line) end
        output = run("FLOW_THREADS=3 @ --ranks 2 -e 'print(flow.get_num_threads())'")
        assert.are.same({"3", "3"}, lines(output))
        output = run(("mpirun --allow-run-as-root --oversubscribe -n 1 @ -e 'print(flow.get_num_threads())'"))
        assert.are.equal(cores .. "\n", output)
    end)

    with_ranks("uses the lowest level of the ranks' kernels and the fewest threads", function()
        local script = write("level.sh", [[
            [ "$OMPI_COMM_WORLD_RANK" = 1 ] && export FLOW_CPU=base FLOW_THREADS=1 || export FLOW_THREADS=2
            exec "$@"]])
        local output = run("mpirun --allow-run-as-root --oversubscribe -n 2 sh " .. script ..
            " @ --doctor")
        assert.truthy(output:find("base kernels, 1 threads", 1, true), output)
    end)

    with_ranks("ends with the failing rank's exit code, and says which rank it was", function()
        local output, code = run("@ --ranks 3 -e 'if flow.rank() == 1 then error(\"boom\") end flow.barrier()'")
        assert.are.equal(1, code)
        assert.truthy(output:find(": rank 1: (command line):1: boom\n", 1, true), output)
        code = select(2, run("@ --ranks 2 -e 'if flow.rank() == 1 then os.exit(7) end os.execute(\"sleep 5\")'"))
        assert.are.equal(7, code)
        output, code = run("@ --ranks 2 %/nothing.lua")
        assert.are.equal(1, code)
        assert.truthy(output:find("cannot open " .. folder .. "/nothing.lua", 1, true), output)
    end)

    with_ranks("lets a program that a rank starts run alone", function()
        local script = write("child.lua", ([[
            local flow = require "flow"
            local function output(command) return io.popen("%s " .. command .. " 2>&1"):read "a" end
            if flow.rank() == 1 then
                io.write(output "-e 'print(flow.world_size(), flow.rank(), flow.ones(2):sum():item())'")
                io.write(output "-e 'os.execute(\"%s -e \\\"print(flow.world_size())\\\"\")'")
                io.write(output "--ranks 2 -e ''")
            end
            flow.barrier()]]):format(flowlua, flowlua))
        local output, code = run("@ --ranks 2 " .. script)
        assert.are.equal("1\t0\t2.0\n1\n" .. flowlua .. ": --ranks 2: this process already runs under mpirun; leave out --ranks or mpirun\n", output)
        assert.are.equal(0, code)
    end)

    with_ranks("moves every dtype through MPI, in shared memory, and in pieces when MPI cannot count so far", function()
        for _, case in ipairs {
            "@ --ranks 3 tests/ranks/transport.lua 1 7 300 9000",
            "FLOW_SHARED=0 @ --ranks 3 tests/ranks/transport.lua 1 7 300",
            "FLOW_SHARED=0 FLOW_MPI_LIMIT=5 @ --ranks 3 tests/ranks/transport.lua 1 7 300",
            "FLOW_SHARED=0 @ --ranks 2 tests/ranks/transport.lua 200000", -- more than one piece
        } do
            assert.are.same({"", 0}, {run(case)}, case)
        end
    end)

    with_ranks("moves what lies outside of the shared memory of one rank", function()
        local script = write("private.lua", [[
            local flow = require "flow"
            local all, n, kept = flow.placement.all "cpu", 1 << 20, {}
            if flow.rank() == 1 then
                for i = 1, 40 do kept[i] = flow.zeros(3 << 18) end
            end
            local want = flow.arange(n, {dtype = "float32"}) * 3 + 3
            local function check(x) assert((x:to_global{sbp = "B"}:to_local():view(-1) - want):abs():max():item() == 0) end
            for _ = 1, 2 do
                local x = flow._testing.from_part(flow.arange(n, {dtype = "float32"}) + flow.rank(), {n}, all, "P")
                check(x)
                local split = x:to_global{sbp = "S(0)"}
                check(split)
                check(split:view(1024, 1024):to_global{sbp = "S(1)"})
            end]])
        -- a limit on files leaves 48 MiB for large blocks
        assert.are.same({"", 0}, {run("ulimit -f $((2 * (1024 * 1024 + 65536))); @ --ranks 3 " .. script)})
    end)

    local ways = {"@ --ranks 3", "mpirun --allow-run-as-root --oversubscribe -n 3 @", "mpirun --allow-run-as-root --oversubscribe -n 3 env A=1 @"}

    with_ranks("passes on whole lines, however long, of output and of errors", function()
        local script = write("long.lua", [[
            local rank = require "flow".rank()
            local line = ("%d"):format(rank):rep(50000)
            for i = 1, 20 do
                print(line)
                io.write(line:sub(1, 30000)) io.stdout:write(line:sub(30001), "\n")
                io.stderr:write(line, "\n") io.stderr:write(rank, " says\t", i, "\n")
                print(line:sub(1, 45000), line:sub(1, 4999)) print(rank, i)
            end]])
        for _, way in ipairs(ways) do
            for _, ending in ipairs {" >%/out 2>%/err", " 2>%/err | cat >%/out"} do
                assert.are.same({"", 0}, {run(way .. " " .. script .. ending)})
                local counts = {}
                for _, name in ipairs {"out", "err"} do
                    for line in io.lines(folder .. "/" .. name) do
                        local digits = line:match "^%d%d%d%d+" or line
                        local kind = ("%s %d %s"):format(name, #line, digits == digits:sub(1, 1):rep(#digits) and "one" or "mixed")
                        if #line < 100 then kind = name .. " " .. (line:find "^%d says\t%d+$" and "says" or line:find "^%d\t%d+$" and "short" or "?") end
                        counts[kind] = (counts[kind] or 0) + 1
                    end
                end
                assert.are.same({["out 50000 one"] = 180, ["out short"] = 60, ["err 50000 one"] = 60, ["err says"] = 60}, counts, way .. ending)
            end
        end
    end)

    with_ranks("leaves the ranks' output apart where mpirun or a shell takes it apart", function()
        local mpirun = "mpirun --allow-run-as-root --oversubscribe -n 3 "
        local program = "-e 'print(\"rank\", flow.rank())'"
        local cases = {
            {mpirun .. "--tag-output @ " .. program, {"[1,0]<stdout>:rank\t0", "[1,1]<stdout>:rank\t1", "[1,2]<stdout>:rank\t2"}},
            {"OMPI_MCA_orte_tag_output=1 @ --ranks 2 " .. program, {"[1,0]<stdout>:rank\t0", "[1,1]<stdout>:rank\t1"}},
            {mpirun .. "sh -c \"@ -e \\\"print(flow.rank())\\\" | sed s/^/\\$OMPI_COMM_WORLD_RANK:/\"", {"0:0", "1:1", "2:2"}},
            {mpirun .. "sh -c \"@ -e \\\"print(flow.rank())\\\" >%/own.\\$OMPI_COMM_WORLD_RANK\"; cat %/own.*", {"0", "1", "2"}},
            {mpirun .. "--output-filename %/apart @ " .. program .. " >/dev/null; cat %/apart/1/rank.2/stdout", {"rank\t2"}},
        }
        for _, case in ipairs(cases) do
            local output, code = run(case[1])
            assert.are.same({case[2], 0}, {lines(output), code}, case[1])
        end
    end)

    with_ranks("ends soon when a rank is killed while it prints, with whole lines before that", function()
        local script = write("killed.lua", [[
            local rank = require "flow".rank()
            local line, pid = ("%d"):format(rank):rep(50000), io.open "/proc/self/stat":read "n"
            if rank == tonumber(arg[1]) then os.execute(("(sleep 0.2; kill -9 %d) </dev/null >/dev/null 2>&1 &"):format(pid)) end
            while true do                                                   -- slowly: a disk that lags behind holds up the ends
                print(line) io.stderr:write(line, "\n")
                local start = os.clock()
                while os.clock() - start < 0.001 do end
            end]])
        for rank = 0, 2 do
            local told = ("rank %d was killed (SIGKILL? out of memory?)"):format(rank)
            for _ = 1, 3 do     -- on a busy machine mpirun may end before it has passed on what is said last
                local start = os.time()
                local _, code = run(("@ --ranks 3 %s %d >%%/out 2>%%/err"):format(script, rank))
                assert.are.equal(137, code)
                assert.is_true(os.time() - start < process.limit(20))
                if process.read(folder .. "/err"):find(told, 1, true) then break end
            end
            local broken, count = 0, 0
            for line in io.lines(folder .. "/out") do
                count = count + 1
                if #line ~= 50000 or line ~= line:sub(1, 1):rep(50000) then broken = broken + 1 end
            end
            assert.is_true(count > 3 and broken <= 3, ("%d of %d lines are broken"):format(broken, count)) -- the ends of the ranks
            assert.truthy(process.read(folder .. "/err"):find(told, 1, true))
        end
    end)

    with_ranks("says on every rank who has not come, without shared memory too", function()
        local script = write("late.lua", [[
            local flow = require "flow"
            flow.barrier()
            if flow.rank() == 2 then os.execute "sleep 6" end
            local ok, message = pcall(flow.barrier)
            if flow.rank() < 2 then print(ok, message) end]])
        local where = script .. ":4: barrier (" .. script .. ":4): after 3 s still missing: rank 2"
        local rest = ". All ranks must call it: is it inside `if rank == 0`? (FLOW_TIMEOUT sets the seconds)"
        local output = run("FLOW_TIMEOUT=3 @ --ranks 3 " .. script)
        local want = "false\t" .. where .. ", past barrier (" .. script .. ":2)" .. rest
        assert.are.same({want, want}, lines(output))
        output = run("FLOW_SHARED=0 FLOW_TIMEOUT=3 @ --ranks 3 " .. script)
        want = "false\t" .. where .. rest
        assert.are.same({want, want}, lines(output))
    end)

    with_ranks("reports an op that fails when the script has ended", function()
        local output, code = run("FLOW_ENGINE=queued @ --ranks 2 -e 'x = flow.ones(3):index_select(0, flow.tensor({7}))'")
        assert.are.equal(1, code)
        assert.truthy(output:find(": all ranks: index_select", 1, true), output)
    end)

    with_ranks("traces all ranks into one file", function()
        write("trace.json", "the trace of an earlier run")
        write("sum.lua", "local flow = require 'flow'\nlocal x = flow.ones({4, 4}, {placement = flow.placement.all 'cpu', sbp = 'S(0)'})\n" ..
            "for _ = 1, 100 do x:sum(0):to_global{sbp = 'B'} end")
        assert.are.same({"", 0}, {run("@ --ranks 3 --trace %/trace.json %/sum.lua")})
        local trace = require "flow.json".decode(process.read(folder .. "/trace.json"))
        local processes, seen, started, ended = {}, {0, 0, 0}, {}, {}
        for _, event in ipairs(trace.traceEvents) do
            local rank = math.tointeger(event.pid)
            if event.name == "process_name" then processes[rank + 1] = event.args.name end
            if event.name == "all-reduce" then
                local n = seen[rank + 1] + 1
                seen[rank + 1] = n
                started[n] = math.max(started[n] or 0, event.ts)
                ended[n] = math.min(ended[n] or math.huge, event.ts + event.dur)
            end
        end
        assert.are.same({"rank 0", "rank 1", "rank 2"}, processes)
        assert.are.same({100, 100, 100}, seen)
        for n = 1, 100 do assert.is_true(started[n] <= ended[n], "a rank ended all-reduce " .. n .. " before another began it") end
    end)
end)

describe("a launcher that Open MPI does not know", function()
    local warning = "flowlua: %s is 4, but these processes cannot join each other and each runs alone as rank 0 of 1; start them by %s\n"
    local slurm = warning:format("SLURM_STEP_NUM_TASKS", "mpirun, or by srun --mpi=pmix where Open MPI has PMIx")
    -- {environment, what is said}
    local cases = {
        {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0", slurm},
        {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3", ""},
        {"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", ""},
        {"SLURM_NTASKS=4 SLURM_PROCID=0", ""}, -- a batch script
        {"PMI_SIZE=4 PMI_RANK=0", warning:format("PMI_SIZE", "the mpirun of Open MPI")},
        {"PMI_SIZE=4 PMI_RANK=1", ""},
        {"PALS_NRANKS=4 PALS_RANKID=0", warning:format("PALS_NRANKS", "the mpirun of Open MPI")},
        {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 FLOW_WORLD=2", ""},
        {"PMI_SIZE=1 PMI_RANK=0", ""},
        {"PMI_SIZE=4", warning:format("PMI_SIZE", "the mpirun of Open MPI")},
        {"MPI_LOCALNRANKS=4 MPI_LOCALRANKID=0", warning:format("MPI_LOCALNRANKS", "the mpirun of Open MPI")},
        {"MPI_LOCALNRANKS=4 MPI_LOCALRANKID=2", ""},
        {"MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0", ""},
        {"MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 PMI_SIZE=4 PMI_RANK=0", warning:format("PMI_SIZE", "the mpirun of Open MPI")},
        {"MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 PMI_SIZE=4 PMI_RANK=2", ""},
        {"MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_RANK=0", warning:format("MV2_COMM_WORLD_SIZE", "the mpirun of Open MPI")},
        {"JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_RANK=0", warning:format("JSM_NAMESPACE_SIZE", "the mpirun of Open MPI")},
    }
    -- The same of launchers that Open MPI asks for the other processes, and does not reach.
    local own = warning:format("OMPI_COMM_WORLD_SIZE", "the mpirun of the Open MPI that flowlua runs with, or by flowlua --ranks N")
    local unreached = {
        {"OMPI_COMM_WORLD_SIZE=4", own},
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0", own},
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 PMIX_RANK=2", ""},
        {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", ""},
        {"PMIX_RANK=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0", slurm},
        {"PMIX_RANK=0", ""},
        {"PMIX_RANK=2", ""},
        {"PMIX_RANK=1 PMIX_NAMESPACE=a", warning:gsub("is 4", "is 1"):format("PMIX_RANK",
            "the mpirun of Open MPI, or by srun --mpi=pmix where Open MPI has PMIx")},
    }

    it("leaves each process alone, as the first of them says once", function()
        folder, write = process.folder()
        for _, case in ipairs(cases) do
            assert.are.same({case[2] .. "1\n", 0}, {run(case[1] .. " @ -e 'print(1)'")}, case[1])
        end
        local child = ("os.execute(\"%s -e 'print(2)'\")"):format(flowlua)
        write("parent.lua", child)
        assert.are.same({slurm .. "2\n", 0}, {run("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 SLURM_JOB_ID=7 @ %/parent.lua")})
        os.execute("rm -r " .. folder)
    end)

    with_ranks("leaves each process alone where Open MPI does not reach it", function()
        folder, write = process.folder()
        for _, case in ipairs(unreached) do
            assert.are.same({case[2] .. "1\n", 0}, {run(case[1] .. " @ -e 'print(1)'")}, case[1])
        end
        os.execute("rm -r " .. folder)
    end)

    with_ranks("does not matter to mpirun's ranks", function()
        folder, write = process.folder()
        assert.are.same({"2\n2\n", 0}, {run("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 @ --ranks 2 -e 'print(flow.world_size())'")})
        os.execute("rm -r " .. folder)
    end)
end)
