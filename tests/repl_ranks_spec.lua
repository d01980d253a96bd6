-- repl_ranks_spec.lua -- the interactive session over several ranks: on a terminal (keys on a pseudo terminal that `script`
-- makes), from a pipe, and without shared memory.
local process = require "tests.process"

local flowlua, on_ranks = process.flowlua, process.it_with_ranks

local LIMIT = 20        -- seconds that anything may take
local END = "\4"        -- Ctrl-D
local STOP = "\3"       -- Ctrl-C

local folder, write

-- The contents of a file so far: "" if it is not there yet.
local function read(path) return process.exists(path) and process.read(path) or "" end

local function mpirun(n)
    return ("mpirun -q -n %d --oversubscribe $([ $(id -u) -ne 0 ] || echo --allow-run-as-root) %s"):format(n, flowlua)
end

-- ---- a terminal ----

local Terminal = {}
Terminal.__index = Terminal

-- Starts a command on a terminal of its own; rc=N is printed when it ends, and "modes kept" if the terminal is as before.
local function terminal(command, environment)
    local fifo, log = folder .. "/keys", folder .. "/screen"
    os.execute(("rm -f %s %s && mkfifo %s"):format(fifo, log, fifo))
    local program = write("program.sh", ([[
stty cols 250
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # Open MPI keeps memory until the end
before=$(stty -a)
%s %s
echo rc=$?
[ "$(stty -a)" = "$before" ] && echo modes kept
echo over]]):format(environment or "", command))
    os.execute(("HOME=%s TERM=xterm NO_COLOR= timeout %d script -qfec 'sh %s' %s <%s >/dev/null 2>&1 &"):format(folder, 4 * LIMIT, program, log, fifo))
    return setmetatable({keys = assert(io.open(fifo, "w")), log = log, at = 1}, Terminal)
end

-- The text on it, without control sequences, and without the seconds of inputs.
function Terminal:screen()
    return (read(self.log):gsub("\r", ""):gsub("\27%[2m[%d.]+ s\27%[0m\n", ""):gsub("\27%[[%d;?]*%a", ""))
end

-- Waits until the text appears after what was seen before; returns what stands in between.
function Terminal:see(text)
    for _ = 1, LIMIT * 50 do
        local screen = self:screen()
        local first, last = screen:find(text, self.at, true)
        if first then
            local between = screen:sub(self.at, first - 1)
            self.at = last + 1
            return between
        end
        os.execute "sleep 0.02"
    end
    error(("%q does not appear after:\n%s"):format(text, self:screen():sub(self.at)), 2)
end

function Terminal:send(keys)
    self.keys:write(keys)
    self.keys:flush()
end

-- The output of a line until the prompt comes back.
function Terminal:ask(line)
    self:send(line .. "\n")
    self:see(line .. "\n")
    return self:see(self.prompt)
end

-- Ctrl-C after a while, in a line that does not end by itself.
function Terminal:stop(line)
    self:send(line .. "\n")
    self:see(line .. "\n")
    os.execute "sleep 0.3"
    self:send(STOP)
    return self:see(self.prompt)
end

function Terminal:finish(keys)
    if keys then self:send(keys) end
    local rest = self:see("over\n")
    self.keys:close()
    return rest
end

local function session(n, environment, command)
    local t = terminal(command or ("%s --ranks %d"):format(flowlua, n), environment)
    t.prompt = n == 1 and "\n> " or ("flow[%d ranks]> "):format(n)
    t:see(t.prompt)
    return t
end

local function lines(text)
    local list = process.lines(text)
    table.sort(list)
    return list
end

-- The first line of an error, without its traceback.
local function errors(text)
    local list = {}
    for line in text:gmatch("[^\n]+") do
        if not line:find "^\t" and line ~= "stack traceback:" then list[#list + 1] = line end
    end
    return list
end

describe("a session over ranks", function()
    local open
    setup(function() folder, write = process.folder() end)
    teardown(function() os.execute("rm -rf " .. folder) end)
    after_each(function()
        if open then pcall(open.keys.close, open.keys) end
        open = nil
    end)

    local function on_terminal(name, body)
        local obstacle = process.obstacle() or not process.has "script" and "script is missing (util-linux)"
        process.it_unless(obstacle, name, function()
            body(function(...)
                open = session(...)
                return open
            end)
        end)
    end

    on_terminal("evaluates lines on every rank", function(start)
        local t = start(4)
        assert.truthy(t:screen():find('All 4 ranks evaluate a line; "@1 x" asks rank 1 alone, "@* x" shows every rank\'s answer.\n', 1, true))
        assert.are.equal("2\n", t:ask "1 + 1")
        assert.are.equal("", t:ask "x = flow.ones(6, {placement = flow.placement.all 'cpu', sbp = 'S(0)'})")
        assert.are.equal("6.0\n", t:ask "x:sum():item()")
        assert.are.equal("[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]  float32[6] on placement(\"cpu\", {0, 1, 2, 3}) as S(0)\n", t:ask "x")
        assert.are.same({"0", "[1] 1", "[2] 2", "[3] 3"}, lines(t:ask "print(flow.rank())"))
        assert.are.same({"[1] a", "[1] b", "[2] a", "[2] b", "[3] a", "[3] b", "a", "b"}, lines(t:ask "print 'a' io.write 'b\\n'"))
        local halves = {}           -- text without an end of line may come together with that of others
        for half in t:ask("if flow.rank() > 0 then io.write 'half' end"):gmatch "%[%d%] half" do halves[#halves + 1] = half end
        table.sort(halves)
        assert.are.same({"[1] half", "[2] half", "[3] half"}, halves)
        t:send "for i = 1, 2 do\n"
        t:see ">> "
        t:send "flow.print(i)\n"
        t:see ">> "
        t:send "end\n"
        t:see "end\n"
        assert.are.equal("1\n2\n", t:see(t.prompt))
        t:send "flow.ones_\t(x).shape\n"
        t:see "flow.ones_like(x).shape\n"
        assert.are.equal("[6]\n", t:see(t.prompt))
        assert.are.equal("exp(x)\n    e to the power x.\n    has a gradient; in place: x:exp_()\n", t:ask "help(flow.exp)")
        t:send("garbage that is cancelled" .. STOP)
        t:see(t.prompt)
        assert.are.equal("\nrc=0\nmodes kept\n", t:finish(END))
        assert.truthy(read(folder .. "/.flowlua_history"):find("x:sum():item()", 1, true))
    end)

    on_terminal("takes a pasted block of any length, evaluated by every rank", function(start)
        local t = start(2)
        t:send("\27[200~local list = {\r" .. ("\t1, -- a line of some length that is a part of the block\r"):rep(3000) .. "}\r#list, flow.rank()\27[201~")
        t:see "flow.rank()"
        t:send "\n"
        assert.are.equal("\n3000\t0\n", t:see(t.prompt))
        assert.are.equal("ranks 0-1: 4\n", t:ask "@* 2 + 2")
        t:send "\27[A\27[A\27[A"     -- "@* 2 + 2", the block's last line, the line above it
        t:see "#list, flow.rank()"
        t:send "\n"
        assert.truthy(t:see(t.prompt):find "3000\t0\n$")
        assert.are.equal("\nrc=0\nmodes kept\n", t:finish(END))
    end)

    on_terminal("asks one rank, or each of them", function(start)
        local t = start(4)
        assert.are.equal("2\n", t:ask "@2 flow.rank()")
        assert.are.equal("ranks 0-3: 6\n", t:ask "@* 2 * 3")
        assert.are.equal("ranks 0-1: 0\nranks 2-3: 1\n", t:ask "@* flow.rank() // 2")
        assert.are.equal("ranks 0, 2-3: false\nrank 1: true\n", t:ask "@* flow.rank() == 1")
        assert.are.equal("ranks 0-3:\na\nb\n", t:ask "@* 'a\\nb'")
        assert.are.equal("", t:ask "@1 y = 7")
        assert.are.equal("ranks 0, 2-3: nil\nrank 1: 7\n", t:ask "@* y")
        t:ask "x = flow.ones(8, {placement = flow.placement.all 'cpu', sbp = 'S(0)'})"
        assert.are.equal("rank 2: stdin:1: item: all-reduce of float32[], P -> B: only one rank runs inside @2, so ranks cannot communicate there",
            errors(t:ask "@2 x:sum():item()")[1])
        assert.are.equal("ranks 0-3: 8.0\n", t:ask "@* x:sum():item()")
        assert.are.equal("[2] here\n", t:ask "@2 flow.print 'here'")
        assert.are.equal("@9: there is no rank 9, the world has 4\n", t:ask "@9 1")
        assert.truthy(t:ask "@ 1":find "^@ takes a rank or %*:")
        -- numbers that one rank draws are not missing among those that all draw
        t:ask "@1 flow.randn(3)"
        assert.truthy(t:ask "@* flow.randn(1):item()":find "^ranks 0%-3: %S+\n$")
        assert.are.equal("\nrc=0\nmodes kept\n", t:finish(END))
    end)

    on_terminal("shows an error with its rank and goes on", function(start)
        local t = start(4)
        assert.are.same({"stdin:1: all"}, errors(t:ask "error 'all'"))
        assert.are.same({"rank 2: stdin:1: boom"}, errors(t:ask "if flow.rank() == 2 then error 'boom' end"))
        assert.are.same({"ranks 1-3: stdin:1: boom"}, errors(t:ask "if flow.rank() > 0 then error 'boom' end"))
        -- the others wait for it in a collective
        assert.are.same({"rank 2: stdin:1: boom"}, errors(t:ask "if flow.rank() == 2 then error 'boom' end flow.barrier()"))
        assert.are.same({}, errors(t:ask "flow.barrier()"))
        -- also when a rank comes after the others have stopped waiting
        assert.are.same({"rank 2: stdin:1: boom"},
            errors(t:ask "if flow.rank() == 2 then error 'boom' end if flow.rank() == 1 then io.popen('sleep 0.5'):close() end flow.barrier()"))
        assert.are.same({"rank 3: stdin:1: barrier (stdin:1): rank 0 has finished this line; all ranks must call it"},
            errors(t:ask "if flow.rank() == 3 then flow.barrier() end"))
        assert.are.equal("4.0\n", t:ask "flow.ones(4, {placement = flow.placement.all 'cpu', sbp = 'S(0)'}):sum():item()")
        -- in a group that only some have used, and after one that had to be met for the first time
        t:ask "pair = flow.placement('cpu', {1, 3})"
        t:ask "half = flow.ones(2, {placement = pair, sbp = 'S(0)'})"
        assert.are.same({"rank 1: stdin:1: boom"}, errors(t:ask "if flow.rank() == 1 then error 'boom' end half:sum():item()"))
        assert.are.equal("2.0\n", t:ask "half:sum():item()")
        assert.are.equal("2.0\n", t:ask "flow.ones(2, {placement = pair, sbp = 'S(0)'}):sum():item()")
        assert.are.same({"stdin:1: attempt to perform arithmetic on a nil value (global 'nothing')"}, errors(t:ask "nothing + 1"))
        assert.are.same({"stdin:1: unexpected symbol near '1'"}, errors(t:ask "1 +* 2"))
        assert.are.equal("\nrc=0\nmodes kept\n", t:finish(END))
    end)

    on_terminal("stops all ranks at Ctrl-C and goes on", function(start)
        local t = start(4)
        local function alive()
            assert.are.equal("ranks 0-3: 8.0\n", t:ask "@* x:sum():item()")
            assert.truthy(t:ask "@* flow.randn(1):item()":find "^ranks 0%-3: %S+\n$")
        end
        t:ask "x, n = flow.ones(8, {placement = flow.placement.all 'cpu', sbp = 'S(0)'}), 0"
        assert.are.same({"interrupted!"}, errors(t:stop "while true do end"))
        alive()
        assert.truthy(errors(t:stop "while true do pcall(function() while true do flow.randn(1) end end) end")[1]:find "^interrupted!")
        alive()
        -- all stop in the same collective
        assert.truthy(errors(t:stop "while true do n = n + 1; x:sum():item() end")[1]:find "interrupted$")
        assert.truthy(t:ask "@* n":find "^ranks 0%-3: %d+\n$")
        alive()
        assert.truthy(t:stop "if flow.rank() == 1 then while true do end end flow.barrier()":find "interrupted")
        alive()
        assert.truthy(t:stop "@3 while true do end":find "interrupted!")
        alive()
        -- a slow call stops the line after it, and not many later
        t:stop "n = 0 while true do n = n + 1 io.popen('sleep 0.2'):close() end"
        assert.is_true(tonumber(t:ask "n") <= 6)
        assert.are.equal("\nrc=0\nmodes kept\n", t:finish(END))
    end)

    on_terminal("sleeps at the prompt", function(start)
        local t = start(4)
        local pids = {}
        for r = 0, 3 do pids[#pids + 1] = t:ask(("@%d io.open('/proc/self/stat'):read 'n'"):format(r)):match "%d+" end
        local function ticks()
            local sum = 0
            for _, pid in ipairs(pids) do
                local user, system = read(("/proc/%s/stat"):format(pid)):match "%) %a %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
                sum = sum + tonumber(user) + tonumber(system)
            end
            return sum
        end
        os.execute "sleep 0.5"
        local before = ticks()
        os.execute "sleep 2"
        assert.is_true(ticks() - before <= 40, "four ranks used " .. ticks() - before .. " of 800 ticks")
        t:finish(END)
    end)

    on_terminal("ends when a rank dies, and gives the terminal back", function(start)
        for _, rank in ipairs {1, 0} do
            local t = start(2)
            local pid = t:ask(("@%d io.open('/proc/self/stat'):read 'n'"):format(rank)):match "%d+"
            os.execute("kill -9 " .. pid)
            local rest = t:finish()
            assert.truthy(rest:find(("rank %d was killed"):format(rank), 1, true), rest)
            assert.truthy(rest:find("rc=137\nmodes kept\n", 1, true), rest)
        end
    end)

    on_terminal("ends at a second Ctrl-C when a call does not return", function(start)
        local t = start(2)
        t:send "io.popen('sleep 30'):close()\n"
        t:see "close()\n"
        os.execute "sleep 0.3"
        t:send(STOP)
        os.execute "sleep 3.2"
        local rest = t:finish(STOP)
        assert.truthy(rest:find("flowlua: ranks? [01, ]+ was ended by a second Ctrl%-C"), rest)
        assert.truthy(rest:find("\nmodes kept\n", 1, true), rest)
    end)

    on_terminal("ends by os.exit and quit on all ranks", function(start)
        for line, status in pairs {["os.exit(3)"] = 3, ["quit"] = 0, ["if true then quit(4) end"] = 4} do
            local t = start(2)
            assert.truthy(t:finish(line .. "\n"):find(("\nrc=%d\nmodes kept\n"):format(status)), line)
        end
    end)

    on_terminal("works under mpirun with any number of ranks", function(start)
        for _, n in ipairs {1, 2, 3} do
            local t = start(n, nil, mpirun(n))
            -- Ctrl-C reaches ranks that have not run anything yet
            assert.are.equal("interrupted!", errors(t:stop(("@%d while true do end"):format(n - 1)))[1])
            assert.are.equal(n .. (n == 1 and "" or "\n"), t:ask "flow.world_size()")
            assert.are.equal("interrupted!", errors(t:stop "while true do end")[1])
            assert.truthy(t:ask "flow.ones(4, {placement = flow.placement.all 'cpu', sbp = 'S(0)'}):sum():item()":find "^4.0")
            assert.truthy(t:finish(END):find "rc=0\nmodes kept\n")
        end
    end)

    -- ---- without a terminal ----

    local function piped(command, text)
        return (process.output(("export %s; timeout 60 %s <%s 2>&1"):format(process.no_leaks, command, write("lines", text))))
    end

    on_ranks("evaluates a script from a pipe", function()
        assert.are.same({"0", "1"}, lines(piped(mpirun(2), "print(flow.rank())")))
    end)

    on_ranks("reads lines from a pipe", function()
        local output = piped(mpirun(2) .. " -i", "@* flow.rank()\nfor i = 1, 2 do\nflow.print(i)\nend\n" ..
            "if flow.rank() == 1 then error 'boom' end flow.barrier()\nflow.barrier()\n'done'\n")
        output = output:gsub("flow%[2 ranks%]> ", ""):gsub(">> ", "")
        assert.truthy(output:find("^flowlua [^\n]*\n@%* flow.rank%(%)\nrank 0: 0\nrank 1: 1\nfor i = 1, 2 do\nflow.print%(i%)\nend\n1\n2\n"), output)
        assert.truthy(output:find("rank 1: stdin:1: boom\n", 1, true), output)
        assert.falsy(output:find("rank 0:.-rank 0:"), output)
        assert.truthy(output:find("\n'done'\ndone\n", 1, true), output)
    end)

    on_ranks("takes long lines and gives long answers", function()
        local output = piped(mpirun(3) .. " -i", ("@* '%s', flow.rank() == 2\n"):format(("y"):rep(30000)))
        local y = ("y"):rep(30000)
        assert.truthy(output:find(("ranks 0-1: %s\tfalse\nrank 2: %s\ttrue\n"):format(y, y), 1, true))
    end)

    on_ranks("goes on after a script", function()
        local script = write("script.lua", "z = 10 + require('flow').rank()\n")
        local output = piped(("%s --ranks 2 -i %s"):format(flowlua, script), "@* z\n")
        assert.truthy(output:find("rank 0: 10\nrank 1: 11\n", 1, true), output)
    end)

    on_ranks("carries lines without shared memory", function()
        local output = piped("env FLOW_SHARED=0 FLOW_TIMEOUT=2 " .. mpirun(3) .. " -i",
            "x = flow.ones(6, {placement = flow.placement.all 'cpu', sbp = 'S(0)'})\nx:sum():item()\n" ..
            "if flow.rank() == 1 then error 'boom' end x:sum():item()\n@* x:sum():item()\nflow.barrier()\n@* flow.rank()\n")
        output = output:gsub("flow%[3 ranks%]> ", "")
        assert.truthy(output:find("rank 1: stdin:1: boom\n", 1, true), output)
        output = output:gsub("\n@%* [^\n]*", ""):gsub("\nif [^\n]*", ""):gsub("\nx:[^\n]*", ""):gsub("\nflow.barrier%(%)", "")
        assert.truthy(output:find("\n6.0\nranks 0, 2: ", 1, true), output)
        assert.truthy(output:find("\nranks 0-2: 6.0\nrank 0: 0\nrank 1: 1\nrank 2: 2\n", 1, true), output)
    end)
end)
