-- jobs.lua -- what specs share that start several ranks themselves.
local M = {}

M.flowlua = os.getenv "FLOWLUA" or "build/flowlua"

-- Why several ranks cannot be started here; nil when they can.
function M.obstacle()
    if not os.execute "command -v mpirun >/dev/null 2>&1" then return "mpirun is missing (apt install openmpi-bin)" end
    local plugin = io.open((M.flowlua:match "^(.*)/" or ".") .. "/flowlua-mpi.so")
    if not plugin then return "flowlua-mpi.so is missing: this build has no transport" end
    plugin:close()
    if os.getenv "OMPI_COMM_WORLD_SIZE" then return "this is a job of mpirun itself" end
end

-- What an address sanitizer that checks for leaks is told: Open MPI keeps memory until the end.
M.no_leaks = ("ASAN_OPTIONS=%s:detect_leaks=0"):format(os.getenv "ASAN_OPTIONS" or "")

-- A folder of its own, and a function that writes a file there and returns its path.
function M.folder()
    local path = os.tmpname()
    os.remove(path)
    assert(os.execute("mkdir " .. path))
    return path, function(name, text)
        local file = assert(io.open(path .. "/" .. name, "wb"))
        file:write(text)
        file:close()
        return path .. "/" .. name
    end
end

return M
