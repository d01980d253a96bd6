-- module_spec.lua -- require "flow" in the lua5.4 of the system, which opens flow.so.
local process = require "tests.process"

local library = process.build .. "/flow.so"
local folder, write

local obstacle = not process.has "lua5.4" and "lua5.4 is missing (apt install lua5.4)"
    or not process.exists(library) and library .. " was not built"
    or process.build:find "asan" and "lua5.4 was built without the sanitizer"

local function it_with_lua(name, body) process.it_unless(obstacle, name, body) end
local function it_with_lua_and_ranks(name, body) process.it_unless(obstacle or process.obstacle(), name, body) end

-- The output of lua5.4, with errors, and its exit status. `before` stands before it: variables, mpirun.
local function lua(code, before)
    local path = write("script.lua", code)
    local text, status = process.output(("cd %s && { LUA_CPATH='%s/?.so;;' %s timeout 60 lua5.4 %s; } 2>&1"):format(
        folder, process.output("realpath " .. process.build):match "[^\n]*", before or "", path))
    return text:gsub(path:gsub("%p", "%%%0"), "script.lua"), status
end

local function lines(text)
    local list = process.lines(text)
    table.sort(list)
    return list
end

describe("require \"flow\" in lua5.4", function()
    setup(function() folder, write = process.folder() end)
    teardown(function() os.execute("rm -r " .. folder) end)

    it_with_lua("gives the module, and nothing else changes", function()
        assert.are.same({"6.0\nnil\ttrue\n", 0}, {lua [[
            local before = {}
            for name in pairs(_G) do before[name] = true end
            local flow = require "flow"
            print((flow.ones(2) * 3):sum():item())
            local new
            for name in pairs(_G) do new = new or not before[name] and name or nil end
            print(new, require "flow" == flow)]]})
    end)

    it_with_lua("finds the modules in it, before and after flow", function()
        assert.are.same({"Linear(in=2, out=3, bias=true)\ntrue\n", 0}, {lua [[
            local nn = require "flow.nn"
            print(nn.Linear(2, 3))
            print(require "flow".nn == nn)]]})
        for _, name in ipairs {"optim", "data", "json", "cli", "progress"} do
            assert.are.same({"table\n", 0}, {lua(("print(type(require 'flow.%s'))"):format(name))})
        end
        local text, status = lua "require 'flow.nosuch'"
        assert.are.equal(1, status)
        assert.is_truthy(text:find("module 'flow.nosuch' not found", 1, true), text)
    end)

    it_with_lua("names the line of an error, and leaves the end of the process to the program", function()
        local text, status = lua "local flow = require 'flow'\nlocal x = flow.ones(2) + flow.ones(3)"
        assert.are.equal("lua5.4: script.lua:2: add: shapes [2] and [3] do not broadcast", text:match "[^\n]*")
        assert.are.equal(1, status)
        assert.are.same({"", 3}, {lua "require 'flow'.ones(1 << 20):add_(1) os.exit(3)"})
        assert.are.same({"", 3}, {lua("local x = require 'flow'.ones(1 << 20) + 1 os.exit(3, true)", "FLOW_ENGINE=queued")})
        assert.are.equal(128 + 15, select(2, lua "require 'flow'.ones(2) os.execute('kill -TERM $PPID') io.read(0)"))
    end)

    it_with_lua("works with coroutines, files and everything queued", function()
        assert.are.same({"false\ttrue\n3.0\n", 0}, {lua([[
            local flow = require "flow"
            local inside = coroutine.wrap(function()
                local _ <close> = flow.no_grad()
                coroutine.yield(flow.is_grad_enabled())
            end)()
            print(inside, flow.is_grad_enabled())
            flow.save("x.safetensors", {x = flow.ones(2) + 2})
            print(flow.load("x.safetensors").x[0]:item())]], "FLOW_ENGINE=queued")})
    end)

    it_with_lua("reports errors that nobody has met", function()
        assert.are.same({"flowlua: an error that nobody has met: push (script.lua:2): push:1: boom\n", 0}, {lua [[
            local flow = require "flow"
            local job = flow.engine.push{run = "error 'boom'"}
            while not job:done() do end]]})
    end)

    it_with_lua("passes specs of modules, optimizers and the engine", function()
        local text, status = process.output(("LUA_CPATH='%s/?.so;;' FLOWLUA=%s timeout 60 busted --lua=lua5.4 -o plainTerminal --pattern=_spec %s 2>&1"):format(
            process.build, process.flowlua, "tests/nn_spec.lua tests/optim_spec.lua tests/push_spec.lua"))
        assert.are.equal(0, status, text)
    end)

    it_with_lua_and_ranks("joins the ranks that mpirun started", function()
        local text, status = lua([[
            local flow = require "flow"
            local x = flow.arange(6, {placement = flow.placement.all "cpu", sbp = "S(0)"})
            print(flow.rank(), flow.world_size(), x:sum():item())]], process.mpirun .. " -n 3")
        assert.are.same({"0\t3\t15", "1\t3\t15", "2\t3\t15"}, lines(text))
        assert.are.equal(0, status)
        text, status = lua([[
            local flow = require "flow"
            if flow.rank() == 1 then error "boom" end
            flow.barrier()]], process.mpirun .. " -n 2")
        assert.is_truthy(text:find("script.lua:2: boom", 1, true), text)
        assert.are.equal(1, status)
    end)

    it_with_lua("says that it cannot join", function()
        local text, status = lua("local flow = require 'flow' print(flow.world_size())",
            "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 SLURM_JOB_ID=7")
        assert.are.same({"1", "flowlua: SLURM_STEP_NUM_TASKS is 4, but these processes cannot join each other and each " ..
            "runs alone as rank 0 of 1; start them by mpirun, or by srun --mpi=pmix where Open MPI has PMIx"}, lines(text))
        assert.are.equal(0, status)
    end)
end)

describe("the rockspec", function()
    local version = process.read "src/core/base/version.h":match 'FL_VERSION "(.-)"'

    it("has what LuaRocks asks for", function()
        local text = process.read "scripts/flowlua.rockspec":gsub("@VERSION@", version):gsub("@URL@", "https://x.org/f.tar.gz")
        local rock = {}
        assert(load(text, "=rockspec", "t", rock))()
        assert.are.equal("flowlua", rock.package)
        assert.is_truthy(rock.version:find "^%d+%.%d+%.%d+%-%d+$", rock.version)
        assert.are.equal("https://x.org/f.tar.gz", rock.source.url)
        assert.are.same({"lua >= 5.4, < 5.5"}, rock.dependencies)
        assert.are.equal("make", rock.build.type)
        local known = {rockspec_format = 1, package = 1, version = 1, source = 1, description = 1, supported_platforms = 1,
            dependencies = 1, external_dependencies = 1, build = 1}
        for name in pairs(rock) do assert.is_truthy(known[name], name) end
        local makefile = "\n" .. process.read "Makefile"
        for _, target in ipairs {rock.build.build_target, rock.build.install_target} do
            assert.is_truthy(makefile:find("\n" .. target:gsub("%-", "%%-") .. ":"), target)
        end
    end)

    local no_release = not process.has "git" and "git is missing" or not process.exists ".git/HEAD" and "this is no clone"
    process.it_unless(no_release, "is for a release that has all that the build reads", function()
        local place = process.output "mktemp -d":match "[^\n]*"
        local _, status = process.output(("git archive --prefix=release/ HEAD | tar -xf - -C %s && cd %s/release " ..
            "&& make -n module install-module LUA_LIBDIR=%s/lib >%s/log 2>&1"):format(place, place, place, place))
        local log = process.read(place .. "/log")
        os.execute("rm -r " .. place)
        assert.are.equal(0, status, log)
        assert.is_truthy(log:find("/lib/flow.so", 1, true), log:sub(-2000))
    end)
end)

describe("examples/lua/sensor.lua", function()
    it_with_lua("runs in lua5.4 as in flowlua", function()
        local path = " examples/lua/sensor.lua"
        assert.are.equal(process.output(process.flowlua .. path),
            (process.output(("LUA_CPATH='%s/?.so;;' lua5.4"):format(process.build) .. path)))
    end)
end)
