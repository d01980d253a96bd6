-- files.lua -- tables of text and arrays, read from the page cache. The peer is pandas, and NumPy for arrays; both sides
-- write the same files.

local flow = require "flow"

local M = {}

local folder = os.getenv "BENCH_FOLDER" or "."

local formats = {
    integers = function(i) return ("%d,%d,%d,%d\n"):format(i, i * 7919 % 100003, -i, i % 10) end,
    floats = function(i) return ("%.6f,%.6f,%.6f,%.6f\n"):format(i / 7, i / 11, i / 13, -i / 17) end,
    digits = function(i) return ("%.17g,%.17g,%.17g\n"):format(i / 7, i / 11, -i / 13) end,
    mixed = function(i)
        return ('%d,%.2f,"a, ""b"" and %d",city%d,%s\n'):format(i, i / 7, i, i % 100, i % 3 == 0 and "true" or "false")
    end,
}

local headers = {integers = "a,b,c,d\n", floats = "a,b,c,d\n", digits = "a,b,c\n", mixed = "a,b,c,d,e\n"}

local ROWS = 200000

local function case(name, options)
    return function()
        local path = ("%s/own-%s.csv"):format(folder, name)
        local file = assert(io.open(path, "w"))
        file:write(headers[name])
        for i = 1, ROWS do file:write(formats[name](i)) end
        file:close()
        return function(count)
            for _ = 1, count do flow.data.csv(path, options) end
        end
    end
end

M.integers, M.floats, M.digits = case "integers", case "floats", case "digits"
M.mixed = case("mixed", {types = {d = "category"}})

function M.npy()
    local path = folder .. "/own.npy"
    flow.data.save_npy(path, flow.zeros(4096, 4096))
    return function(count)
        for _ = 1, count do flow.data.npy(path) end
    end
end

return M
