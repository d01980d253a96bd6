-- The command line of the program: everything lua takes, and its own long options.
local process = require "tests.process"

local flowlua = process.flowlua
local folder, write

local function path(name) return folder .. "/" .. name end

-- Output (with errors) and exit code of a shell command; the word @ stands for the program, % for the folder.
local function run(command, stdin)
    command = (command .. " "):gsub("@ ", function() return flowlua .. " " end):gsub("%%", function() return folder end)
    local input = stdin and write("stdin", stdin) or "/dev/null"
    return process.output(("{ %s; } <%s 2>&1"):format(command, input))
end

describe("the interpreter", function()
    setup(function() folder, write = process.folder() end)
    teardown(function() os.execute("rm -r " .. folder) end)

    -- {command, standard input or nil, output, exit code}
    local cases = {
        {"@ -e 'print(1)' -e 'print(2)'", nil, "1\n2\n", 0},
        {"@ -e'print(1)'", nil, "1\n", 0},
        {"@ %/args.lua a b", nil, "a\tb\n2\ttrue\tb\n", 0},
        {"@ -e 'x = 7' %/global.lua", nil, "7\n", 0},
        {"@ -l math -e 'print(math.pi > 3)'", nil, "true\n", 0},
        {"@ -l m=math -e 'print(m.pi > 3)'", nil, "true\n", 0},
        {"@ -", "print(...)", "\n", 0},
        {"@ - a b", "print(...)", "a\tb\n", 0},
        {"@", "print(arg[1])", "nil\n", 0},
        {"@ -- %/args.lua q", nil, "q\n1\ttrue\tnil\n", 0},
        {"@ -W -e 'warn(\"careful\")'", nil, "Lua warning: careful\n", 0},
        {"@ -e 'warn(\"@on\") warn(\"a\", \"b\")'", nil, "Lua warning: ab\n", 0},
        {"@ -e 'warn(\"unseen\")'", nil, "", 0},
        {"@ -e 'os.exit(3)'", nil, "", 3},
        {"@ -e 'print(io.read())' <&-", nil, "nil\tBad file descriptor\t9\n", 0},
        {"@ -e 'io.write(1) io.stderr:write(tostring(io.stdout:flush()))' >&-", nil, "nil", 0},
        {"@ -e 'print(1) error(2)' 2>&-", nil, "1\n", 1},
        {"@ <&-", nil, "@: cannot read stdin: Bad file descriptor\n", 1},
        {"@ -e 'local f = io.open(\"%/mine\", \"w+\") print(1) io.stderr:write(2) f:seek(\"set\") assert(f:read() == nil and not io.read())' <&- >&- 2>&-", nil, "", 0},
        {"@ -e 'os.exit(true, true)'", nil, "", 0},
        {"LUA_INIT='print(\"init\")' @ -e 'print(1)'", nil, "init\n1\n", 0},
        {"LUA_INIT=@%/global.lua @ -e 'print(1)'", nil, "nil\n1\n", 0},
        {"LUA_INIT='print(5)' LUA_INIT_5_4='print(54)' @ -e ''", nil, "54\n", 0},
        {"LUA_INIT='print(\"init\")' @ -E -e 'print(1)'", nil, "1\n", 0},
        {"LUA_PATH='%/?.lua' @ -e 'print(require(\"module\"))'", nil, "a module\t" .. "@MODULE" .. "\n", 0},
        {"@ %/shebang.lua", nil, "ran\n", 0},
        {"@ -e 'print(flow ~= nil, require(\"flow\") == flow)'", nil, "true\ttrue\n", 0},
        {"@ %/no_global.lua", nil, "nil\ttable\n", 0},
        {"@ -e 'error()'", nil, "@: (error object is a nil value)\n", 1},
        {"@ %/object.lua", nil, "@: an object\n", 1},
        {"@ %/table.lua", nil, "@: (error object is a table value)\n", 1},
        {"@ %/nothing.lua", nil, "@: cannot open %/nothing.lua: No such file or directory\n", 1},
        -- advice for a script that uses our names without require
        {"@ - 2>&1 | head -1", "x = flow.ones(2)", "@: stdin:1: attempt to index a nil value (global 'flow'); write first: local flow = require \"flow\"\n", 0},
        {"@ - 2>&1 | head -1", "x = 1\ny = nn.Linear(2, 3)", "@: stdin:2: attempt to index a nil value (global 'nn'); write first: local nn = require \"flow.nn\"\n", 0},
        {"@ - 2>&1 | head -1", "x = flower.ones(2)", "@: stdin:1: attempt to index a nil value (global 'flower')\n", 0},
        -- the script's arguments are what `arg` holds when it starts
        {"@ -e 'arg[1] = 100' -", "print(...)", "100\n", 0},
        {"@ -e 'arg[2], arg[3] = 8, 9' - 7", "print(...)", "7\t8\t9\n", 0},
        {"@ -e 'arg = {}' %/args.lua a b 2>&1 | head -1", nil, "\n", 0},
        {"LUA_INIT='arg[1] = arg[1] .. 1' @ %/first.lua q", nil, "q1\n", 0},
        {"@ -e 'arg = 1' -", "", "@: 'arg' is not a table\n", 1},
        {"@ -e 'arg = nil' %/first.lua", nil, "@: 'arg' is not a table\n", 1},
        {"@ -e 'print = nil' -i | tail -2", "10\n", "error calling 'print' (attempt to call a nil value)\n> 10\n> \n", 0},
        -- input that is not typed is echoed, as lua with readline does
        {"@ -e '_PROMPT = setmetatable({}, {__tostring = function() n = (n or 0) + 1 return n end})' -i | tail -3",
            " --\na = 2\n", "1 --\n2a = 2\n3\n", 0},
        {"@ --version | cut -d' ' -f1", nil, "flowlua\n", 0},
    }
    it("takes what lua takes", function()
        write("args.lua", "print(...) print(#arg, arg[0]:find('args.lua') ~= nil, arg[2])")
        write("global.lua", "print(x)")
        write("first.lua", "print((...))")
        write("no_global.lua", "print(flow, type(require 'flow'))")
        write("module.lua", "return 'a module'")
        write("shebang.lua", "#!/usr/bin/env flowlua\nprint('ran')")
        write("object.lua", "error(setmetatable({}, {__tostring = function() return 'an object' end}))")
        write("table.lua", "error({})")
        for _, case in ipairs(cases) do
            local output, code = run(case[1], case[2])
            local want = case[3]:gsub("@MODULE", function() return path("module.lua") end)
            want = want:gsub("^@", function() return flowlua end):gsub("%%", function() return folder end)
            output = output:gsub("\nstack traceback:.*", "\n")
            assert.are.equal(want, output, case[1])
            assert.are.equal(case[4], code, case[1])
        end
    end)

    it("reports an uncaught error with a traceback on standard error", function()
        local script = write("boom.lua", "local function f() error('boom') end\nf()")
        local output, code = run("@ " .. script .. " 2>&1 >/dev/null")
        assert.are.equal(1, code)
        local want = ("%s: %s:1: boom\nstack traceback:\n"):format(flowlua, script)
        assert.are.equal(want, output:match("^.-traceback:\n"))
        assert.truthy(output:find("in upvalue 'f'", 1, true) or output:find("in local 'f'", 1, true))
    end)

    it("says what is wrong with an option, and shows the usage", function()
        for option, message in pairs {
            ["-x"] = "unrecognized option '-x'",
            ["-e"] = "'-e' needs argument",
            ["-l"] = "'-l' needs argument",
            ["--trase"] = "unrecognized option '--trase'; did you mean '--trace'?",
            ["--trace"] = "'--trace' needs argument",
            ["--ranks"] = "'--ranks' needs argument",
            ["--ranks 0"] = "--ranks takes a whole number from 1 to 1024, got '0'",
            ["--ranks 100000"] = "--ranks takes a whole number from 1 to 1024, got '100000'",
            ["--ranks=two"] = "--ranks takes a whole number from 1 to 1024, got 'two'",
            ["--ranks 2.5"] = "--ranks takes a whole number from 1 to 1024, got '2.5'",
            ["--ranks 2 --ranks 2"] = "--ranks is given twice",
            ["--doktor"] = "unrecognized option '--doktor'; did you mean '--doctor'?",
        } do
            local output, code = run("@ " .. option)
            assert.are.equal(1, code)
            assert.are.equal(flowlua .. ": " .. message, output:match("^[^\n]*"))
            assert.truthy(output:find("\nusage: flowlua [options] [script [args]]\n", 1, true))
        end
        local output, code = run("@ --help")
        assert.are.equal(0, code)
        assert.are.equal("usage: flowlua [options] [script [args]]", output:match("^[^\n]*"))
    end)

    -- The effect of each variable on the script without -E; with it, nothing.
    it("ignores FLOW_* with -E, in the program and in the ranks that it starts", function()
        local names = {}
        for _, name in ipairs(process.lines(process.output "grep -rhoE 'FLOW_[A-Z_]+' src | sort -u")) do
            if name ~= "FLOW_JOINED" then names[#names + 1] = name end -- no setting: a rank sets it for what it starts
        end
        assert.is_true(#names > 8)
        local all = "env " .. table.concat(names, "=? ") .. "=? "
        local script = write("env.lua", [[
            local flow = require "flow"
            local list = {}
            for _, name in ipairs {...} do list[#list + 1] = os.getenv(name) end
            flow.print(flow.ones(2):sum():item(), flow.world_size(), #list)]])
        local words = " " .. script .. " " .. table.concat(names, " ")
        local output, code = run(all .. flowlua .. words .. " 2>&1")
        assert.are.equal(1, code, output)
        assert.are.same({"2.0\t1\t0\n", 0}, {run(all .. flowlua .. " -E" .. words .. " 2>&1")})
        assert.are.same({"2.0\t1\t0\n", 0}, {run(all .. flowlua .. " -W -E" .. words .. " 2>&1")})
        if process.has "mpirun" and process.exists(flowlua .. "-mpi.so") then
            assert.are.same({"2.0\t2\t0\n", 0}, {run(all .. flowlua .. " --ranks 2 -E" .. words .. " 2>&1")})
        end
    end)

    it("writes a trace of every op", function()
        local output, code = run("FLOW_FUSE=0 @ --trace %/trace.json -e 'local x = flow.ones(4) for i = 1, 3 do x = x + 1 end'")
        assert.are.equal("", output)
        assert.are.equal(0, code)
        local text = process.read(path("trace.json"))
        local _, count = text:gsub('"name":"add"', "")
        assert.are.equal(3, count)
        assert.truthy(text:find('"line":"(command line):1"', 1, true))
    end)

    it("writes the trace when the script ends with os.exit", function()
        local _, code = run("@ --trace=%/exit.json -e 'local x = flow.ones(4) os.exit(5)'")
        assert.are.equal(5, code)
        assert.truthy(process.read(path("exit.json")):find('"name":"ones"', 1, true))
    end)

    it("stops a script at Ctrl-C with interrupted!", function()
        local script = write("forever.lua", "print('started') io.stdout:flush() while true do end")
        local output = run(("@ %s & pid=$!; sleep 0.3; kill -INT $pid; wait $pid; echo code $?"):format(script))
        -- a background job of sh ignores SIGINT unless it installs a handler, as the program does
        local want = ("started\n%s: interrupted!\nstack traceback:\n"):format(flowlua)
        assert.are.equal(want, output:match("^.-traceback:\n"))
        assert.truthy(output:find("code 1\n", 1, true))
    end)

    it("lets a script catch the first Ctrl-C, and only that", function()
        local script = write("catch.lua", [[
            print(pcall(function() while true do end end))
            io.stdout:flush()
            while true do pcall(function() while true do end end) end]])
        local output = run(("@ %s & pid=$!; sleep 0.4; kill -INT $pid; sleep 0.4; kill -INT $pid; sleep 0.6; kill -9 $pid; " ..
            "wait $pid; echo code $?"):format(script)):gsub("[^\n]*No such process\n", "")
        assert.truthy(output:find("^false\tinterrupted!\n[^\n]*: interrupted!\nstack traceback:\n"), output)
        assert.truthy(output:find("code 1\n$"), output)
    end)

    it("closes what a script has opened at Ctrl-C, and ends what it recorded", function()
        local interrupts = [[
            local flow = require "flow"
            local pid = io.open("/proc/self/stat"):read "n"
            local first = true
            local function press() if first then first = false io.popen("kill -INT " .. pid):close() end end
            local function check(f)
                local ok, message = pcall(f)
                print(ok, (tostring(message):gsub("^.*: ", "")), flow.is_grad_enabled(), flow._program.recording)
                local x = flow.randn(5)
                local double = flow.capture(function(t) return (t * 2):sum() end)
                for _ = 1, 3 do assert(double(x) == (x * 2):sum()) end
                assert(flow.trace(function(t) return t * 2 end, {flow.spec {5}})(x) == x * 2)
            end
        ]]
        local functions = {
            "function() local _ <close> = (function() local s = flow.no_grad() press() return s end)()\n return 1 end",
            "function() flow.capture(function(t) local y = t + 1\n press()\n return y * 2 end)(flow.ones(3)) end",
            "function() flow.trace(function(t) local y = t + 1\n press()\n return y * 2 end, {flow.spec {3}}) end",
            [[function()
                local state, calls = flow.zeros(3), 0
                local f = flow.capture(function(t)
                    state:add_(t)
                    calls = calls + 1
                    if calls == 5 then press() end
                    return state:sum():item()
                end, {strict = false})
                local ok, message = pcall(function() for i = 1, 9 do assert(f(flow.ones(3)) == 3 * i) end end)
                assert(not ok and state:sum():item() == 15 and f(flow.ones(3)) == 18)
                error(message, 0)
            end]],
        }
        for i, case in ipairs(functions) do
            local script = write("interrupted" .. i .. ".lua", interrupts .. "check(" .. case .. ")")
            assert.are.equal("false\tinterrupted!\ttrue\tfalse\n", (run(("@ %s"):format(script))), case)
        end
    end)

    it("survives Ctrl-C in the middle of products", function()
        local script = write("products.lua", [[
            local flow = require "flow"
            local a = flow.ones(700, 700)
            print(pcall(function() while true do local _ = a:matmul(a) end end))
            for _ = 1, 20 do assert(a:matmul(a):eq(700):all():item()) end]])
        local output = run(("@ %s & pid=$!; sleep 0.7; kill -INT $pid; wait $pid; echo code $?"):format(script))
        assert.are.equal("false\tinterrupted!\ncode 0\n", output)
    end)

    it("keeps a debug hook that a library sets", function()
        write("hooked.lua", "lines = 0 debug.sethook(function() lines = lines + 1 end, 'l')")
        local script = write("counted.lua", "local x = 1\nx = x + 1\nprint(lines > 1)")
        local output = run(("LUA_PATH='%%/?.lua' @ -l hooked %s"):format(script))
        assert.are.equal("true\n", output)
    end)

    it("requires modules from beside the script", function()
        for name, text in pairs {
            ["beside/main.lua"] = "print(require 'near', require 'pack', (select(2, pcall(require, 'far'))):match \"^module 'far' not found\")",
            ["beside/near.lua"] = "return 'near'", ["beside/pack/init.lua"] = "return 'pack'",
            ["beside/path.lua"] = "print(package.path) print(package.cpath)", ["beside/linked.lua"] = "print(require 'near')",
            ["elsewhere/near.lua"] = "return 'elsewhere'", ["a;b/main.lua"] = "print(package.path:find('a;b', 1, true))",
        } do
            assert(os.execute(("mkdir -p '%s'"):format(path(name:match "^(.*)/"))))
            write(name, text)
        end
        os.execute(("ln -s ../beside/linked.lua %s"):format(path "elsewhere/link.lua"))
        local default = run("@ -e 'print(package.path)'"):gsub("\n", "")
        local c_default = run("@ -e 'print(package.cpath)'"):gsub("\n", "")
        local near = "%/beside/?.lua;%/beside/?/init.lua;" .. default
        local c_near = "%/beside/?.so;" .. c_default
        -- {command, output}
        for _, case in ipairs {
            {"@ %/beside/main.lua", "near\tpack\tmodule 'far' not found\n"},
            {"p=$(realpath @ ); cd %/beside; $p main.lua", "near\tpack\tmodule 'far' not found\n"},
            {"@ -E %/beside/main.lua", "near\tpack\tmodule 'far' not found\n"},
            {"@ -l near %/beside/first.lua", "nil\n"},
            {"@ -- %/beside/main.lua", "near\tpack\tmodule 'far' not found\n"},
            -- of a link, the folder of the script itself
            {"@ %/elsewhere/link.lua", "near\t%/beside/near.lua\n"},
            -- its place is that of the default path
            {"@ %/beside/path.lua", near .. "\n" .. c_near .. "\n"},
            {"LUA_PATH=x LUA_CPATH=y @ %/beside/path.lua", "x\ny\n"},
            {"LUA_PATH='x;;y' LUA_CPATH=';;' @ %/beside/path.lua", "x;" .. near .. ";y\n" .. c_near .. "\n"},
            {"LUA_PATH=x LUA_PATH_5_4='z;;' @ %/beside/path.lua", "z;" .. near .. "\n" .. c_near .. "\n"},
            {"LUA_PATH=x LUA_CPATH=y @ -E %/beside/path.lua", near .. "\n" .. c_near .. "\n"},
            -- nowhere but beside a script
            {"p=$(realpath @ ); cd %/beside; $p -e 'print(package.path)'", default .. "\n"},
            {"p=$(realpath @ ); cd %/beside; $p - <path.lua", default .. "\n" .. c_default .. "\n"},
            {"@ '%/a;b/main.lua'", "nil\n"},
        } do
            write("beside/first.lua", "print((...))")
            local output = run(case[1])
            assert.are.equal((case[2]:gsub("%%", function() return folder end)), output, case[1])
        end
    end)

    it("loads C modules made for Lua 5.4", function()
        local script = write("c.lua", "local ok, m = pcall(require, 'lfs') print(ok and type(m.dir) or 'none')")
        local output = run("@ " .. script)
        assert.truthy(output == "function\n" or output == "none\n")
    end)

    it("probes the machine with --doctor", function()
        local output, code = run("@ --doctor")
        assert.are.equal(0, code)
        assert.truthy(output:find("cpu        ok    %a+%d* kernels, %d+ threads"))
        assert.truthy(output:find("ops        ok    product, sum and gradient of a 2 x 2 matrix are right", 1, true))
        assert.truthy(output:find("product    ok    1024 x 1024 float32: %d+ GFLOP/s"))
        assert.truthy(output:find("memory     ok    copy of 64 MiB: %d+%.%d GB/s"))
    end)

    it("rejects a world that does not exist", function()
        local output, code = run("FLOW_WORLD=2 FLOW_RANK=5 @ -e 'print(1)'")
        assert.are.equal(1, code)
        assert.truthy(output:find("rank 5 does not exist in a world of 2 (0 to 1)", 1, true))
    end)
end)

describe("garbage", function()
    -- Runs a script in a process of its own and returns the numbers it prints.
    local function numbers(code)
        local name = process.temporary(code)
        local text, list = process.output(flowlua .. " " .. name), {}
        os.remove(name)
        for word in text:gmatch("%S+") do list[#list + 1] = tonumber(word) end
        return table.unpack(list)
    end

    it("of 1,000 written 16 MiB tensors beside a large Lua heap stays under 256 MiB", function()
        local peak = numbers [[
            local flow = require "flow"
            local heap = {}
            for i = 1, 200000 do heap[i] = {i} end
            for i = 1, 1000 do flow.empty(4 * 1024 * 1024):fill_(i) end
            for line in io.lines("/proc/self/status") do
                local kb = line:match("VmHWM:%s*(%d+)")
                if kb then print(kb // 1024) end
            end]]
        assert.is_true(peak < 256, ("peak %d MiB"):format(peak))
    end)

    it("that outlives young collections is found too", function()
        local live, peak = numbers [[
            local flow = require "flow"
            local ring = {}
            for i = 1, 1000 do ring[i % 10] = flow.empty(4 * 1024 * 1024) end
            local m = flow.memory()
            print(m.live_bytes // 2^20, m.peak_bytes // 2^20)]]
        assert.is_true(live >= 160 and peak <= 512, ("live %d, peak %d MiB"):format(live, peak))
    end)

    it("of 10^6 small tensors leaves the process small", function()
        local peak = numbers [[
            local flow = require "flow"
            for i = 1, 1000000 do local x = flow.empty(16) end
            for line in io.lines("/proc/self/status") do
                local kb = line:match("VmHWM:%s*(%d+)")
                if kb then print(kb // 1024) end
            end]]
        assert.is_true(peak < 256, ("peak %d MiB"):format(peak))
    end)

    it("is dropped with its tensors, whoever held them", function()
        local flow = require "flow"
        collectgarbage()
        collectgarbage()
        local before = flow.memory().tensors
        do
            local x = flow.ones(3, {requires_grad = true})
            local y = (x * 2):exp()
            local copy = y:detach()
            y:register_hook(function(g) return g + copy end)
            local co = coroutine.wrap(function() local z = y + 1 coroutine.yield(z) end)
            co()
        end
        collectgarbage()
        collectgarbage()
        flow.zeros(1)
        collectgarbage()
        collectgarbage()
        assert.are.equal(before, flow.memory().tensors)
    end)
end)
