-- process.lua -- what the specs share that run programs: the program under test, shell commands and their output, scripts,
-- files and folders, jobs of several ranks. It does not load flow, so that it serves specs of the program alone.
local busted = require "busted"

local M = {}

-- The program under test, and the folder of the build, where its plug-ins are.
M.flowlua = os.getenv "FLOWLUA" or "build/flowlua"
M.build = M.flowlua:match "^(.*)/" or "."

-- The program's path from everywhere.
function M.absolute()
    return (M.output("realpath " .. M.flowlua):match "[^\n]*")
end

---- files ----

-- The bytes of a file.
function M.read(path)
    local file = assert(io.open(path, "rb"))
    local bytes = file:read "a"
    file:close()
    return bytes
end

-- Writes a file and returns its path.
function M.write(path, bytes)
    local file = assert(io.open(path, "wb"))
    file:write(bytes)
    file:close()
    return path
end

-- The path of a new temporary file with this text.
function M.temporary(text) return M.write(os.tmpname(), text) end

-- True if the file can be read.
function M.exists(path)
    local file = io.open(path)
    if file then file:close() end
    return file ~= nil
end

-- A folder of its own, and a function that writes a file there and returns its path.
function M.folder()
    local path = os.tmpname()
    os.remove(path)
    assert(os.execute("mkdir " .. path))
    return path, function(name, bytes) return M.write(path .. "/" .. name, bytes) end
end

---- programs ----

-- True if there is a command of this name.
function M.has(command) return os.execute(("command -v %s >/dev/null 2>&1"):format(command)) == true end

-- The output of a shell command, and its exit status: 128 and the signal if one ended it. Standard error is not part of it.
function M.output(command)
    local pipe = assert(io.popen(command))
    local text = pipe:read "a"
    local _, how, code = pipe:close()
    return text, how == "signal" and 128 + code or code
end

-- The output of a script (both streams), and its exit status. It is script.lua in messages. `before` stands before the
-- program in the shell command: variables, limits; `options` are the program's.
function M.run(before, code, options)
    local path = M.temporary(code)
    local text, status = M.output(("%s %s %s %s 2>&1"):format(before, M.flowlua, options or "", path))
    os.remove(path)
    return text:gsub(path:gsub("%p", "%%%0"), "script.lua"), status
end

-- A limit in seconds for a test that takes that long at most on a machine with nothing else to do: more on a busy one,
-- and in a build for a sanitizer.
function M.limit(seconds)
    local file = io.open "/proc/loadavg"
    local load = file and file:read "n" or 0
    if file then file:close() end
    return seconds * math.max(1, load / 2) * (M.build:find "san" and 3 or 1)
end

-- The lines of a text that are not empty.
function M.lines(text)
    local list = {}
    for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
    return list
end

---- jobs of several ranks ----

-- mpirun for more ranks than there are cores, by root too.
M.mpirun = "mpirun --oversubscribe $([ $(id -u) -ne 0 ] || echo --allow-run-as-root)"

-- Settings of an address sanitizer that checks for leaks: Open MPI keeps memory until the end.
M.no_leaks = ("ASAN_OPTIONS=%s:detect_leaks=0"):format(os.getenv "ASAN_OPTIONS" or "")

-- Why several ranks cannot be started here; nil when they can.
function M.obstacle()
    if not M.has "mpirun" then return "mpirun is missing (apt install openmpi-bin)" end
    if not M.exists(M.build .. "/flowlua-mpi.so") then return "flowlua-mpi.so is missing: this build has no transport" end
    if os.getenv "OMPI_COMM_WORLD_SIZE" then return "this is a job of mpirun itself" end
end

-- it(), or pending where there is an obstacle.
function M.it_unless(obstacle, name, body)
    if obstacle then busted.pending(name .. ": " .. obstacle) else busted.it(name, body) end
end

-- it(), where several ranks can be started.
function M.it_with_ranks(name, body) M.it_unless(M.obstacle(), name, body) end

return M
