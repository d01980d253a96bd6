-- captured.lua -- replays of captured functions, alone and as whole training steps; BENCH_EAGER=1: without capturing.

local flow = require "flow"
local train = require "cases.train"

local M = {}

local function captured(f)
    return os.getenv "BENCH_EAGER" == "1" and f or flow.capture(f)
end

local function calls(f, ...)
    local args = table.pack(...)
    return function(count)
        for _ = 1, count do f(table.unpack(args, 1, args.n)) end
    end
end

function M.empty()
    return calls(captured(function() end))
end

-- A hundred additions of 16 floats.
function M.ops()
    return calls(captured(function(x)
        for _ = 1, 100 do x = x + x end
        return x
    end), flow.zeros(16))
end

for _, name in ipairs {"tiny", "mlp", "cnn"} do
    M[name] = function() return train[name](captured) end
end

return M
