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

local sides_made = 0

local function new_side(name, command)
    sides_made = sides_made + 1
    return setmetatable({
        name = name, command = command, fifo = ("%s/%d"):format(os.getenv("BENCH_FOLDER"), sides_made),
    }, Side)
end

-- The process is started when it is first needed, and again after it has died.
function Side:start()
    os.remove(self.fifo)
    assert(os.execute("mkfifo " .. quote(self.fifo)))
    self.answers = assert(io.popen(self.command .. " < " .. quote(self.fifo)))
    self.requests = assert(io.open(self.fifo, "w"))
end

-- Told to end: the end of its input would not do, since sides started later hold that open too.
function Side:stop()
    if not self.answers then return end
    self.requests:write("end\n")
    self:close()
end

function Side:close()
    self.requests:close()
    self.answers:close()
    self.answers = nil
end

---Seconds of one call, or nil and why not.
function Side:measure(group, case)
    if not self.answers then self:start() end
    self.requests:write(("%s %s %g\n"):format(group, case, seconds_each))
    self.requests:flush()
    local line = self.answers:read()
    if not line then
        self:close()
        return nil, self.name .. " crashed"
    end
    return tonumber(line), line
end

local libraries = os.getenv("BENCH_PEER_LIBRARIES")
local settings_of_peer = libraries and "LD_LIBRARY_PATH=" .. quote(libraries) or ""
local own = new_side("flowlua", ("%s %s/worker.lua"):format(quote(flowlua), quote(folder)))
local queued = new_side("flowlua, queued", "FLOW_ENGINE=queued " .. own.command)
local torch = python and new_side("PyTorch",
    ("%s %s %s/peer.py"):format(settings_of_peer, quote(python), quote(folder)))

-- ---- figures that are not asked for but watched from outside ----

-- Seconds from starting a command to its end.
local function start_time(command, times)
    local began = clock()
    os.execute(("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done"):format(times, command))
    return (clock() - began) / times
end

-- Seconds per step of scripts/train.lua, from its log; the first steps warm up.
local function train_script(settings)
    local log = os.getenv("BENCH_FOLDER") .. "/train.csv"
    local steps, first = 80, 20
    local command = ("%s %s %s/../train.lua --steps %d --log %s >/dev/null"):format(settings, quote(flowlua),
        quote(folder), steps, quote(log))
    if not os.execute(command) then return nil, "scripts/train.lua failed" end
    local at = {}
    for line in io.lines(log) do
        local step, seconds = line:match("^(%d+),.*,([^,]*)$")
        if step then at[tonumber(step)] = tonumber(seconds) end
    end
    return (at[steps] - at[first]) / (steps - first)
end

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
    train = {gpt = {
        function() return train_script("") end,
        torch and function() return torch:measure("train", "gpt") end,
    }},
    engine = {gpt = {
        function() return train_script("") end,
        function() return train_script("FLOW_ENGINE=queued") end,
    }},
}

-- The two functions that measure a figure: flowlua's and the peer's.
local function measures(group, case)
    local pair = watched[group.name] and watched[group.name][case]
    if pair then return pair[1], pair[2] end
    local peer = group.queued and queued or torch
    return function() return own:measure(group.name, case) end,
        peer and function() return peer:measure(group.name, case) end
end

-- ---- numbers ----

local per_second = {["GF/s"] = 1e9, ["GB/s"] = 1e9, ["steps/s"] = 1}
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
    return result
end

-- ---- the table and the file ----

local row = "  %-38s %14s %14s %8s  %-16s %s"

local function print_figure(f)
    if f.problem then return print(("  %-38s %s"):format(f.what, f.problem)) end
    local goal = f.goal and ("%s %g %s"):format(per_second[f.unit] and ">=" or "<=", f.goal, f.unit) or ""
    local met = ""
    if f.goal then met = f.met and "yes" or "NO" end
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
        load = load_average(),
        date = os.date("!%Y-%m-%dT%H:%M:%SZ"), machine = machine(), cores = tonumber(ask_shell("nproc") or 1),
        flowlua = ask_shell(quote(flowlua) .. " --version") or "flowlua",
        torch = python and ask_shell(quote(python) .. " -c 'import torch; print(torch.__version__)'"),
    }
end

-- Measures and prints a group; returns how many goals it has and how many of them are met.
local function run_group(group, about, file)
    local peer = group.queued and "queued" or "PyTorch"
    print("\n" .. group.title .. "\n" .. row:format("", "flowlua", peer, "ratio", "goal", "met"))
    local goals, met = 0, 0
    for _, spec in ipairs(group.figures) do
        local figure = figure_of(group, spec)
        print_figure(figure)
        if figure.goal then goals, met = goals + 1, met + (figure.met and 1 or 0) end
        for key, value in pairs(about) do figure[key] = value end
        file:write(json.encode(figure), "\n")
        file:flush()
    end
    return goals, met
end

-- The groups that the command line names, or all.
local function chosen_groups()
    if #arg < 2 then return groups end
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
if about.load > 0.5 then print(("other programs are running (load %.1f): figures are rough"):format(about.load)) end
local file = assert(io.open(out .. "/bench.jsonl", "a"))
local goals, met = 0, 0
for _, group in ipairs(chosen) do
    local of_group, met_of_group = run_group(group, about, file)
    goals, met = goals + of_group, met + met_of_group
end
file:close()
for _, side in ipairs {own, queued, torch} do side:stop() end
print(("\n%d of %d goals are met"):format(met, goals))
