-- compare.lua -- asks flowlua and its peers for the figures in turn and prints them side by side.
--
-- Each side is a process that answers one question at a time, so that both see the same machine: round by round, first
-- one, then the other. A figure is the median of the rounds. Started by run.sh, which finds the peers.

local json = require "flow.json"
local clock = require("flow").progress.clock

local folder = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = folder .. "/?.lua;" .. package.path

local timing = require "timing"
local groups = require "figures"

local sides = require "side"
local quote, ask_shell = sides.quote, sides.ask

local out = arg[1]
local flowlua = out .. "/flowlua"
local rounds = tonumber(os.getenv("ROUNDS") or 5)
local seconds_each = tonumber(os.getenv("SECONDS_EACH") or 0.3)
local case_limit = tonumber(os.getenv("CASE_LIMIT") or 300)             -- seconds for one answer
sides.deadline = clock() + tonumber(os.getenv("BENCH_LIMIT") or math.huge)
local dry = os.getenv("GPU_DRY") == "1"
local python = os.getenv("BENCH_PYTHON")

-- ---- the sides ----

-- The launcher of a command with several ranks, each of which reads a file of its own. A single rank needs none.
local launcher = ("mpirun -n %%d --oversubscribe %s"):format(ask_shell("id -u") == "0" and "--allow-run-as-root" or "")
local can_launch = ask_shell("command -v mpirun") ~= nil

local function launch(command, ranks, options)
    if ranks == 1 then return command end
    return ("%s %s %s"):format(launcher:format(ranks), options or "", command)
end

-- Seconds more for the first answer: PyTorch may have to be read from a slow disk.
local function start_limit(command) return command:find("peer", 1, true) and 120 or 15 end

-- settings: environment of the command; options: of mpirun; fresh: see side.lua.
local function new_side(name, command, ranks, settings, options, fresh)
    return sides.new(name, command, {
        ranks = ranks, settings = settings, limit = case_limit, start_limit = start_limit(command), fresh = fresh,
        launch = function(reading) return launch(reading, ranks, options) end,
    })
end

local libraries = os.getenv("BENCH_PEER_LIBRARIES")
local settings_of_torch = libraries and "LD_LIBRARY_PATH=" .. quote(libraries) or ""
local worker = ("%s %s/worker.lua"):format(quote(flowlua), quote(folder))
local torch_peer = python and ("%s %s/peer.py"):format(quote(python), quote(folder))
local mpi_peer = os.getenv("BENCH_MPI_PEER")

-- PyTorch without the libraries that were packed for flowlua, where they were.
local unpacked = os.getenv("FLOW_PACK") and ("env LD_LIBRARY_PATH=%s "):format(quote(os.getenv("FLOW_PACK_LIBRARIES") or "")) or ""
local torch_on_gpu = python and ("%s%s %s/peer_gpu.py"):format(unpacked, quote(python), quote(folder))

-- Open MPI at its best on one host: it does not look for networks.
local MPI_OPTIONS = "--mca pml ob1 --mca btl self,vader"

local makers = {
    flowlua = function(ranks) return new_side("flowlua", worker, ranks) end,
    queued = function(ranks) return new_side("flowlua, queued", worker, ranks, "FLOW_ENGINE=queued") end,
    ["on the caller"] = function(ranks) return new_side("flowlua", worker, ranks, "FLOW_ENGINE=naive") end,
    eager = function(ranks) return new_side("flowlua, eager", worker, ranks, "BENCH_EAGER=1") end,
    ["one thread"] = function(ranks) return new_side("flowlua", worker, ranks, "FLOW_THREADS=1", "", true) end,
    working = function(ranks) return new_side("flowlua", worker, ranks, "FLOW_THREADS=1 FLOW_FUSE=0 BENCH_CLOCK=cpu") end,
    ["one batch"] = function(ranks) return new_side("flowlua, one batch", worker, ranks, "FLOW_THREADS=1 BENCH_FIXED=1", "", true) end,
    apart = function(ranks) return new_side("flowlua, apart", worker, ranks, "FLOW_SHARED=0") end,
    cuda = function(ranks) return new_side("flowlua", worker, ranks, "", "", true) end,
    ["one by one"] = function(ranks) return new_side("flowlua", worker, ranks, "FLOW_FUSE=0", "", true) end,
    tf32 = function(ranks) return new_side("flowlua", worker, ranks, "BENCH_TF32=1", "", true) end,
    ["shared GPU"] = function(ranks) return new_side("flowlua", worker, ranks, "BENCH_DEVICE=cuda", "", true) end,
    ["PyTorch, working"] = function(ranks)
        return torch_peer and new_side("PyTorch", torch_peer, ranks, settings_of_torch .. " BENCH_THREADS=1 BENCH_CLOCK=cpu")
    end,
    PyTorch = function(ranks) return torch_peer and new_side("PyTorch", torch_peer, ranks, settings_of_torch) end,
    ["PyTorch, cuda"] = function(ranks) return torch_on_gpu and new_side("PyTorch", torch_on_gpu, ranks, "", "", true) end,
    ["PyTorch, tf32"] = function(ranks) return torch_on_gpu and new_side("PyTorch", torch_on_gpu, ranks, "BENCH_TF32=1", "", true) end,
    ["gloo, cuda"] = function(ranks)
        return torch_peer and new_side("PyTorch", unpacked .. torch_peer, ranks, "BENCH_DEVICE=cuda GLOO_SOCKET_IFNAME=lo", "", true)
    end,
    ["Open MPI"] = function(ranks) return mpi_peer and new_side("Open MPI", mpi_peer, ranks, "", MPI_OPTIONS) end,
}

local made = {}

-- The side of that kind with so many ranks, or nil where it is not installed.
local function side_of(kind, ranks)
    local key = kind .. " " .. ranks
    if made[key] == nil then made[key] = makers[kind](ranks) or false end
    return made[key] or nil
end

-- ---- figures that are not asked for but watched from outside ----

-- Seconds from starting a command to its end.
local function start_time(command, times)
    local began = clock()
    os.execute(("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done"):format(times, command))
    return (clock() - began) / times
end

-- Seconds from starting a command until it has done what it then prints the time of.
local function first_time(command)
    local began = clock()
    local line = ask_shell(command)
    if not line then return nil, "it does not start" end
    return tonumber(line) - began
end

-- Seconds per step of scripts/train.lua on so many ranks, from its log; the first steps warm up.
local function train_script(settings, ranks, options, steps, first)
    local log = os.getenv("BENCH_FOLDER") .. "/train.csv"
    steps, first = steps or 80, first or 20
    local command = ("%s/../train.lua --steps %d --log %s %s"):format(quote(folder), steps, quote(log), options or "")
    command = launch(("%s %s"):format(quote(flowlua), command), ranks or 1)
    if not os.execute(("%s timeout %g %s >/dev/null"):format(settings, case_limit, command)) then return nil, "scripts/train.lua failed" end
    local at = {}
    for line in io.lines(log) do
        local step, seconds = line:match("^(%d+),.*,([^,]*)$")
        if step then at[tonumber(step)] = tonumber(seconds) end
    end
    return (at[steps] - at[first]) / (steps - first)
end

local function train_here() return train_script("") end
local function train_captured() return train_script("", 1, "--capture") end

local function train_on_gpu()
    local small = dry and " --layers 1 --width 8 --heads 2 --context 8 --batch 2" or ""
    return train_script("", 1, "--device cuda --sample 1" .. small, dry and 8 or 240, dry and 4 or 40)
end

-- group: "captured" asks for the faster of eager and compiled.
local function train_torch(ranks, group)
    local side = side_of("PyTorch", ranks)
    return side and function() return side:measure(group or "train", "gpt", seconds_each) end
end

-- flowlua's time until all ranks have the result of their first op.
local FIRST = [[local p = flow.placement.all("cpu")
    local x = flow.ones({2}, {placement = p, sbp = "S(0)"}) + 1
    x = x:to_global{sbp = "B"}
    flow.sync()
    if flow.rank() == 0 then print(("%.9f"):format(flow.progress.clock())) end]]

local function first_of_flowlua() return first_time(launch(("%s -e %s"):format(quote(flowlua), quote(FIRST)), 2)) end

local watched = {
    start = {
        empty = {
            function() return start_time(quote(flowlua) .. " -e ''", 40) end,
            python and function() return start_time(quote(python) .. " -c 'import torch'", 1) end,
        },
        lua = {
            function() return start_time(quote(flowlua) .. " -e ''", 40) end,
            ask_shell("command -v lua5.4") and function() return start_time("lua5.4 -e ''", 40) end,
        },
        nn = {function() return start_time(quote(flowlua) .. " -e 'local _ = flow.nn, flow.optim, flow.data'", 20) end},
    },
    train = {gpt = {train_here, train_torch(1)}},
    captured = {gpt = {train_captured, train_torch(1, "captured")}},
    capture = {gpt = {train_captured, train_here}},
    gpu_train = {script = {train_on_gpu}},
    engine = {gpt = {train_here, function() return train_script("FLOW_ENGINE=queued") end}},
    ranks2 = {first = {first_of_flowlua, mpi_peer and function() return first_time(launch(mpi_peer .. " first", 2, MPI_OPTIONS)) end}},
    gloo = {
        first = {first_of_flowlua, torch_peer and function() return first_time(launch(torch_peer .. " first", 2)) end},
        gpt = {function() return train_script("", 2, "--dp 2") end, can_launch and train_torch(2)},
    },
    cores = {
        dp = {function() return train_script("", 2, "--dp 2") end, train_here},
        tp = {function() return train_script("", 2, "--tp 2") end, train_here},
    },
}

-- The two functions that measure a figure: flowlua's and the peer's, nil where there is none.
local function measures(group, spec)
    local case, cases, ranks = spec[1], group.cases or group.name, group.ranks or 1
    local pair = watched[group.name] and watched[group.name][case]
    if pair and not spec.peer_case then return pair[1], pair[2] end
    local own, peer = side_of(group.side or group.gpu and "cuda" or "flowlua", ranks), side_of(group.peer or "PyTorch", ranks)
    return pair and pair[1] or function() return own:measure(cases, case, seconds_each) end,
        peer and function() return peer:measure(cases, spec.peer_case or case, seconds_each) end
end

-- ---- numbers ----

local per_second = {["TF/s"] = 1e12, ["GF/s"] = 1e9, ["GB/s"] = 1e9, ["steps/s"] = 1, ["kop/s"] = 1e3}
local per_unit = {us = 1e6, ms = 1e3, MiB = 2.0 ^ -20}

-- Seconds, or bytes, in the unit of a figure.
local function convert(seconds, unit, work)
    if not seconds then return nil end
    if per_second[unit] then return (work or 1) / seconds / per_second[unit] end
    return seconds * per_unit[unit]
end

local function show(value, unit)
    if not value then return "-" end
    local digits = value < 0.995 and 3 or value < 99.5 and 2 or value < 995 and 1 or 0
    return ("%." .. digits .. "f %s"):format(value, unit)
end

-- The rounds of one figure: of both sides a list of seconds, what was said about them, and what went wrong. A side that
-- failed is not asked again; that a peer has no such case is no failure.
local function measure(group, spec)
    local functions = {measures(group, spec)}
    local results = {{list = {}}, {list = {}}}
    for _ = 1, rounds do
        for i, result in ipairs(results) do
            if functions[i] and not result.problem then
                local seconds, words = functions[i]()
                result.list[#result.list + 1] = seconds
                if seconds then result.note = words ~= "" and words or nil else result.problem = words end
            end
        end
        if results[2].problem and results[2].problem:find("PyTorch has no ", 1, true) then functions[2], results[2].problem = nil, nil end
        if results[1].problem and results[2].problem or clock() > sides.deadline then break end
    end
    return results[1], results[2]
end

local standards = {}    -- by name: the rate that others are a share of

-- The fraction of the rate `of` that was reached: value by that rate, or spec.flops per second by it.
local function share_of(spec, value, seconds)
    local standard = standards[spec.of or spec.standard]
    if not standard or not seconds then return nil end
    return (spec.flops and spec.flops / seconds / 1e12 or value) / standard
end

local function figure_of(group, spec)
    local case, what, unit, goal, work = table.unpack(spec, 1, 5)
    local mine, peers = measure(group, spec)
    local median, peer = timing.median(mine.list), timing.median(peers.list)    -- sorts: the best comes first
    local result = {
        group = group.name, case = case, what = what, unit = unit, goal = goal, problem = mine.problem,
        value = convert(median, unit, work), best = convert(mine.list[1], unit, work),
        peer = convert(peer, unit, work), peer_best = convert(peers.list[1], unit, work),
        peer_problem = peers.problem, peer_note = peers.note, ratio = median and peer and peer / median,
    }
    if spec.standard and (median or peer) then standards[spec.standard] = math.max(result.value or 0, result.peer or 0) end
    result.share = share_of(spec, result.value, median)
    result.goal_share, result.goal_ratio = spec.share, spec.ratio
    local checks = {}
    if goal and median then checks[1] = per_second[unit] and result.value >= goal or not per_second[unit] and result.value <= goal end
    if spec.share and result.share then checks[#checks + 1] = result.share >= spec.share end
    if spec.ratio and result.ratio then checks[#checks + 1] = result.ratio >= spec.ratio end
    for _, fine in ipairs(checks) do result.met = result.met ~= false and fine end
    if mine.problem and (goal or spec.share or spec.ratio) then result.met = false end
    return result
end

-- ---- the table and the file ----

local row = "  %-40s %12s %12s %7s %-18s %s"

-- "a >= 210 GF/s >= 1x >= 90 %", as far as there are goals.
local function goal_text(f)
    local words = {}
    if f.goal then words[1] = ("%s%g %s"):format(per_second[f.unit] and ">=" or "<=", f.goal, f.unit) end
    if f.goal_ratio then words[#words + 1] = (">=%gx"):format(f.goal_ratio) end
    if f.goal_share then words[#words + 1] = (">=%.0f%%"):format(100 * f.goal_share) end
    return table.concat(words, " ")
end

local function brief(text, most) return #text > most and text:sub(1, most - 3) .. "..." or text end

local function print_figure(f)
    local words = {}
    if f.met ~= nil then words[1] = f.met and "yes" or "NO" end
    if f.share then words[#words + 1] = ("%.0f%%"):format(100 * f.share) end
    if f.peer_note then words[#words + 1] = ("(peer: %s)"):format(f.peer_note) end
    if f.problem then words[#words + 1] = "FAILED: " .. brief(f.problem, 110) end
    if f.peer_problem then words[#words + 1] = "peer failed: " .. brief(f.peer_problem, 110) end
    print((row:format(f.what, show(f.value, f.unit), show(f.peer, f.unit),
        f.ratio and ("%.2fx"):format(f.ratio) or "-", goal_text(f), table.concat(words, " ")):gsub(" +$", "")))
end

local function machine()
    for line in io.lines("/proc/cpuinfo") do
        local model = line:match("^model name%s*:%s*(.*)")
        if model then return model end
    end
    return "unknown processor"
end

-- Processes that wanted to run in the last minute, on average.
local function load_average()
    local file = io.open("/proc/loadavg")
    if not file then return 0 end
    local load = file:read("n")
    file:close()
    return load
end

-- The fields that every line of the file repeats.
local function describe()
    return {
        date = os.date("!%Y-%m-%dT%H:%M:%SZ"), machine = machine(), cores = tonumber(ask_shell("nproc") or 1),
        flowlua = ask_shell(quote(flowlua) .. " --version") or "flowlua",
        torch = os.getenv("BENCH_TORCH"),
    }
end

-- Adds a figure to the count of its group.
local function count(tally, f)
    tally.figures = tally.figures + 1
    if f.problem or f.peer_problem then tally.failed = tally.failed + 1 end
    if f.goal or f.goal_ratio or f.goal_share then
        tally.goals = tally.goals + 1
        if f.met then tally.met = tally.met + 1 else tally.missed[#tally.missed + 1] = f.what end
    end
end

-- Measures and prints a group; returns how many figures and goals it has, what failed and what was missed.
local function run_group(group, about, file)
    local began = clock()
    local tally = {title = group.title, figures = 0, goals = 0, met = 0, failed = 0, left = 0, missed = {}}
    print(("\n%s (load %.1f)"):format(group.title, load_average()))
    print(row:format("", "flowlua", group.peer or "PyTorch", "ratio", "goal", "met"))
    if (group.ranks or 1) > 1 and not can_launch then
        print("  skipped: mpirun is missing (apt install openmpi-bin)")
        tally.left = #group.figures
        return tally
    end
    local figures = group.apart and group.figures() or group.figures
    for i, spec in ipairs(figures) do
        if clock() > sides.deadline then
            tally.left = #figures - i + 1
            print(("  %d figures not measured: the time is up"):format(tally.left))
            break
        end
        local figure = figure_of(group, spec)
        if not group.slower or (figure.ratio or 1) < 1 / group.slower then print_figure(figure) end
        count(tally, figure)
        for key, value in pairs(about) do figure[key] = value end
        figure.load = load_average()
        file:write(json.encode(figure), "\n")
        file:flush()
    end
    tally.seconds = clock() - began
    return tally
end

-- Prints the totals of the groups, and the figures that missed their goals.
local function print_summary(tallies)
    local line = "  %-46s %7s %5s %5s %6s %6s %8s"
    local sum = {title = "all", figures = 0, goals = 0, met = 0, failed = 0, left = 0, seconds = 0}
    local function print_tally(t)
        print(line:format(t.title, t.figures, t.goals, t.met, t.failed, t.left, ("%.1f s"):format(t.seconds or 0)))
    end
    print()
    for _, tally in ipairs(tallies) do
        if #tally.missed > 0 then print(brief(("missed, %s: %s"):format(tally.title, table.concat(tally.missed, "; ")), 400)) end
    end
    print("\n" .. line:format("", "figures", "goals", "met", "failed", "left", "time"))
    for _, tally in ipairs(tallies) do
        print_tally(tally)
        for key, value in pairs(sum) do
            if key ~= "title" then sum[key] = value + (tally[key] or 0) end
        end
    end
    print_tally(sum)
    print(("%d of %d goals are met"):format(sum.met, sum.goals))
end

-- The groups that the command line names, or all that need no GPU.
local function chosen_groups()
    if #arg < 2 then
        local usual = {}
        for _, group in ipairs(groups) do if not group.gpu and not group.apart then usual[#usual + 1] = group end end
        return usual
    end
    local by_name, names, list = {}, {}, {}
    for i, group in ipairs(groups) do by_name[group.name], names[i] = group, group.name end
    for i = 2, #arg do
        if not by_name[arg[i]] then
            io.stderr:write(("there is no group '%s', only %s\n"):format(arg[i], table.concat(names, " ")))
            os.exit(1)
        end
        list[#list + 1] = by_name[arg[i]]
    end
    return list
end

io.stdout:setvbuf("line")
local chosen, about = chosen_groups(), describe()
print(("%s, %d cores; %s; PyTorch %s"):format(about.machine, about.cores, about.flowlua, about.torch or "is missing"))
print(("median of %d rounds; a ratio above 1: flowlua is faster"):format(rounds))
if load_average() > 0.5 then print(("other programs are running (load %.1f): figures are rough"):format(load_average())) end
local file = assert(io.open(out .. (dry and "/bench-gpu-dry.jsonl" or "/bench.jsonl"), dry and "w" or "a"))
local tallies = {}
for i, group in ipairs(chosen) do tallies[i] = run_group(group, about, file) end
file:close()
sides.stop()
print_summary(tallies)
