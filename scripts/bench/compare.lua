-- compare.lua -- asks flowlua and its peers for the figures in turn and prints them side by side.
--
-- Each side is a process that answers one question at a time, so that both see the same machine: round by round, first
-- one, then the other. A figure is the median of the rounds. Started by run.sh, which says where the peers are.

local json = require "flow.json"
local clock = require("flow").progress.clock

local folder = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = folder .. "/?.lua;" .. package.path

local timing = require "timing"
local groups = require "figures"

local out = arg[1]
local flowlua = out .. "/flowlua"
local rounds = tonumber(os.getenv("ROUNDS") or 5)
local seconds_each = tonumber(os.getenv("SECONDS_EACH") or 0.3)
local python = os.getenv("BENCH_PYTHON")

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- First line that a command prints, or nil.
local function ask_shell(command)
    local pipe = io.popen(command .. " 2>/dev/null")
    local line = pipe:read()
    pipe:close()
    return line
end

-- ---- the sides: processes that answer requests ----

local Side = {}
Side.__index = Side

local sides = {}

-- What starts a command with several ranks, each of which reads a file of its own; with one, the command.
local launcher = ("mpirun -n %%d --oversubscribe %s"):format(ask_shell("id -u") == "0" and "--allow-run-as-root" or "")
local can_launch = ask_shell("command -v mpirun") ~= nil

local function launch(command, ranks, options)
    if ranks == 1 then return command end
    return ("%s %s %s"):format(launcher:format(ranks), options or "", command)
end

-- settings: environment of the command; options: of mpirun.
local function new_side(name, command, ranks, settings, options)
    local fifo = ("%s/%d."):format(os.getenv("BENCH_FOLDER"), #sides + 1)
    local reading = ("sh -c %s"):format(quote(("exec %s < %s${OMPI_COMM_WORLD_RANK:-0}"):format(command, quote(fifo))))
    sides[#sides + 1] = setmetatable({
        name = name, ranks = ranks, fifo = fifo, command = (settings or "") .. " " .. launch(reading, ranks, options),
    }, Side)
    return sides[#sides]
end

-- The process is started when it is first needed, and again after it has died. Opened for reading too, a fifo does not
-- wait for its reader, which may have failed to start.
function Side:start()
    self.requests = {}
    for i = 1, self.ranks do
        local path = self.fifo .. i - 1
        os.remove(path)
        assert(os.execute("mkfifo " .. quote(path)))
        self.requests[i] = assert(io.open(path, "r+"))
    end
    self.answers = assert(io.popen(self.command .. " < /dev/null"))
end

function Side:request(line)
    for _, file in ipairs(self.requests) do
        file:write(line, "\n")
        file:flush()
    end
end

-- Told to end: the end of its input would not do, since sides started later hold that open too.
function Side:stop()
    if not self.answers then return end
    self:request("end")
    self:close()
end

function Side:close()
    self.answers:close()
    for _, file in ipairs(self.requests) do file:close() end
    self.answers = nil
end

---Seconds of one call, or nil and why not.
function Side:measure(group, case)
    if not self.answers then self:start() end
    self:request(("%s %s %g"):format(group, case, seconds_each))
    local line = self.answers:read()
    if not line then
        self:close()
        return nil, self.name .. " crashed"
    end
    return tonumber(line), line
end

-- ---- who they are ----

local libraries = os.getenv("BENCH_PEER_LIBRARIES")
local settings_of_torch = libraries and "LD_LIBRARY_PATH=" .. quote(libraries) or ""
local worker = ("%s %s/worker.lua"):format(quote(flowlua), quote(folder))
local torch_on_gpu = python and ("%s %s/peer_gpu.py"):format(quote(python), quote(folder))
local torch_peer = python and ("%s %s/peer.py"):format(quote(python), quote(folder))
local mpi_peer = os.getenv("BENCH_MPI_PEER")

-- Open MPI at its best on one host: it does not look for networks.
local MPI_OPTIONS = "--mca pml ob1 --mca btl self,vader"

local makers = {
    flowlua = function(ranks) return new_side("flowlua", worker, ranks) end,
    queued = function(ranks) return new_side("flowlua, queued", worker, ranks, "FLOW_ENGINE=queued") end,
    apart = function(ranks) return new_side("flowlua, apart", worker, ranks, "FLOW_SHARED=0") end,
    PyTorch = function(ranks) return torch_peer and new_side("PyTorch", torch_peer, ranks, settings_of_torch) end,
    ["PyTorch, cuda"] = function(ranks) return torch_on_gpu and new_side("PyTorch, cuda", torch_on_gpu, ranks) end,
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
    return line and tonumber(line) - began, "it does not start"
end

-- Seconds per step of scripts/train.lua on so many ranks, from its log; the first steps warm up.
local function train_script(settings, ranks, options)
    local log = os.getenv("BENCH_FOLDER") .. "/train.csv"
    local steps, first = 80, 20
    local command = ("%s/../train.lua --steps %d --log %s %s"):format(quote(folder), steps, quote(log), options or "")
    command = launch(("%s %s"):format(quote(flowlua), command), ranks or 1)
    if not os.execute(("%s %s >/dev/null"):format(settings, command)) then return nil, "scripts/train.lua failed" end
    local at = {}
    for line in io.lines(log) do
        local step, seconds = line:match("^(%d+),.*,([^,]*)$")
        if step then at[tonumber(step)] = tonumber(seconds) end
    end
    return (at[steps] - at[first]) / (steps - first)
end

local function train_here() return train_script("") end

local function train_torch(ranks)
    local side = side_of("PyTorch", ranks)
    return side and function() return side:measure("train", "gpt") end
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

-- The two functions that measure a figure: flowlua's and the peer's.
local function measures(group, case)
    local pair = watched[group.name] and watched[group.name][case]
    if pair then return pair[1], pair[2] end
    local cases, ranks = group.cases or group.name, group.ranks or 1
    local own, peer = side_of(group.side or "flowlua", ranks), side_of(group.peer or "PyTorch", ranks)
    return function() return own:measure(cases, case) end, peer and function() return peer:measure(cases, case) end
end

-- ---- numbers ----

local per_second = {["TF/s"] = 1e12, ["GF/s"] = 1e9, ["GB/s"] = 1e9, ["steps/s"] = 1}
local per_unit = {us = 1e6, ms = 1e3}

-- Seconds in the unit of a figure.
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

-- The rounds of one figure: lists of seconds of both sides, and what went wrong.
local function measure(group, case)
    local lists, problem = {{}, {}}, nil
    local functions = {measures(group, case)}
    for _ = 1, rounds do
        for i = 1, 2 do
            if functions[i] then
                local seconds, why = functions[i]()
                lists[i][#lists[i] + 1] = seconds
                if not seconds and i == 1 then problem = why end
            end
        end
        if problem then break end
    end
    return lists[1], lists[2], problem
end

local standards = {}    -- by unit: the rate that others are a share of

local function figure_of(group, spec)
    local case, what, unit, goal, work = table.unpack(spec, 1, 5)
    local mine, peers, problem = measure(group, case)
    local median, peer = timing.median(mine), timing.median(peers)      -- sorts: the best comes first
    local result = {
        group = group.name, case = case, what = what, unit = unit, goal = goal, problem = problem,
        value = convert(median, unit, work), best = convert(mine[1], unit, work),
        peer = convert(peer, unit, work), peer_best = convert(peers[1], unit, work),
        ratio = median and peer and peer / median,
    }
    if goal and median then
        local least = per_second[unit] ~= nil
        result.met = least and result.value >= goal or not least and result.value <= goal
    end
    if spec.standard and median then standards[unit] = math.max(result.value, result.peer or 0) end
    if median and standards[unit] then result.share = result.value / standards[unit] end
    if spec.share and result.share then
        result.goal_share = spec.share
        result.met = result.met ~= false and result.share >= spec.share
    end
    if spec.ratio and result.ratio then
        result.goal_ratio = spec.ratio
        result.met = result.met ~= false and result.ratio >= spec.ratio
    end
    return result
end

-- ---- the table and the file ----

local row = "  %-38s %14s %14s %8s  %-19s %s"

local function print_figure(f)
    if f.problem then return print(("  %-38s %s"):format(f.what, f.problem)) end
    local goal = f.goal and ("%s %g %s"):format(per_second[f.unit] and ">=" or "<=", f.goal, f.unit) or ""
    if f.goal_ratio then goal = goal .. (" >= %.2fx"):format(f.goal_ratio) end
    if f.goal_share then goal = goal .. (" >= %.0f %%"):format(100 * f.goal_share) end
    local met = ""
    if f.met ~= nil then met = f.met and "yes" or "NO" end
    if f.share then met = ("%-4s %.0f %%"):format(met, 100 * f.share) end
    print(row:format(f.what, show(f.value, f.unit), show(f.peer, f.unit),
        f.ratio and ("%.2fx"):format(f.ratio) or "-", goal, met))
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

-- What every line of the file says.
local function describe()
    return {
        date = os.date("!%Y-%m-%dT%H:%M:%SZ"), machine = machine(), cores = tonumber(ask_shell("nproc") or 1),
        flowlua = ask_shell(quote(flowlua) .. " --version") or "flowlua",
        torch = python and ask_shell(quote(python) .. " -c 'import torch; print(torch.__version__)'"),
    }
end

-- Measures and prints a group; returns how many goals it has and how many of them are met.
local function run_group(group, about, file)
    local goals, met = 0, 0
    print(("\n%s (load %.1f)"):format(group.title, load_average()))
    print(row:format("", "flowlua", group.peer or "PyTorch", "ratio", "goal", "met"))
    if (group.ranks or 1) > 1 and not can_launch then
        print("  skipped: mpirun is missing (apt install openmpi-bin)")
        return goals, met
    end
    for _, spec in ipairs(group.figures) do
        local figure = figure_of(group, spec)
        print_figure(figure)
        if figure.goal or figure.goal_ratio or figure.goal_share then goals, met = goals + 1, met + (figure.met and 1 or 0) end
        for key, value in pairs(about) do figure[key] = value end
        figure.load = load_average()
        file:write(json.encode(figure), "\n")
        file:flush()
    end
    return goals, met
end

-- The groups that the command line names, or all that need no GPU.
local function chosen_groups()
    if #arg < 2 then
        local usual = {}
        for _, group in ipairs(groups) do if not group.gpu then usual[#usual + 1] = group end end
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
local file = assert(io.open(out .. "/bench.jsonl", "a"))
local goals, met = 0, 0
for _, group in ipairs(chosen) do
    local of_group, met_of_group = run_group(group, about, file)
    goals, met = goals + of_group, met + met_of_group
end
file:close()
for _, side in ipairs(sides) do side:stop() end
print(("\n%d of %d goals are met"):format(met, goals))
