-- worker.lua -- flowlua's side of the benchmarks: measures the cases it is asked for.
--
-- A request is a line "group case seconds"; the answer a line "seconds-per-call" or "error: why"; the line "end" ends
-- it. Several ranks all read the requests, and the first one answers. "host/CASE", "peak/CASE": another measure (timing.lua).

local folder = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = folder .. "/?.lua;" .. package.path

local flow = require "flow"
local timing = require "timing"

-- The case is set up for each request, so that only one holds memory at a time.
local function answer(group, case, seconds)
    local measure, name = case:match("^(%a+)/(.*)$")
    local setup = require("cases." .. group)[name or case]
    if not setup then error("there is no case " .. case, 0) end
    return timing.measures[measure or "time"](setup(), seconds)
end

for line in io.lines() do
    if line == "end" then break end
    local group, case, seconds = line:match("^(%S+) (%S+) (%S+)$")
    local ok, result = pcall(answer, group, case, tonumber(seconds))
    collectgarbage()
    if flow.rank() == 0 then
        print(ok and ("%.9g"):format(result) or "error: " .. tostring(result):gsub("\n", " "))
        io.stdout:flush()
    end
end
