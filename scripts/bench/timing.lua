-- timing.lua -- what is measured of a case: seconds per call, the caller's own seconds, memory.
--
-- A case is a function of a count that does its work that many times. It is warmed up, the count is raised until a run
-- is long enough for the clock, and the median of a few such runs is taken. With several ranks a run takes as long as
-- the slowest of them needs.

local flow = require "flow"

local M = {}

-- BENCH_CLOCK=cpu: the CPU time of this process, whatever else runs on the machine.
local clock = os.getenv "BENCH_CLOCK" == "cpu" and os.clock or flow.progress.clock

---Median of a list of numbers, which is sorted; nil of an empty one.
---@param list number[]
---@return number?
function M.median(list)
    table.sort(list)
    local n = #list
    if n == 0 then return nil end
    return n % 2 == 1 and list[(n + 1) // 2] or (list[n // 2] + list[n // 2 + 1]) / 2
end

local everybody = flow.world_size() > 1 and flow.placement.all("cpu")

-- The most seconds of any rank: with them all ranks decide alike.
local function slowest(seconds)
    if not everybody then return seconds end
    return flow.tensor(seconds, {dtype = "float64"}):to_global{placement = everybody, sbp = "P(max)"}:item()
end

local function run(body, count)
    if everybody then flow.barrier() end
    local began = clock()
    body(count)
    flow.sync()
    return slowest(clock() - began)
end

-- The kinds of measurement, by name. Each is called with the body and the seconds that it should run, approximately.
M.measures = {}

local BURST = 200       -- calls that fit into every queue on the way to a GPU

---Seconds of this thread for one call of body, what it queued being waited for outside of the clock.
function M.measures.host(body, seconds)
    local results, ends = {}, clock() + seconds
    body(BURST)
    flow.sync()
    repeat
        local began = clock()
        body(BURST)
        results[#results + 1] = (clock() - began) / BURST
        flow.sync()
    until clock() > ends
    return M.median(results)
end

---Most bytes of the GPU that were in use at once, body having run before.
function M.measures.peak(body)
    body(2)
    flow.sync()
    collectgarbage()
    flow.memory({device = "cuda", reset_peak = true})
    body(2)
    flow.sync()
    return flow.memory({device = "cuda"}).peak_bytes
end

---Seconds of one call of body, from about `seconds` of running it.
---@param body fun(count: integer)
---@param seconds number
---@return number
function M.measures.time(body, seconds)
    local runs, count = 4, 1
    collectgarbage()
    run(body, 1)
    local took = run(body, 1)
    while took < seconds / runs / 2 do
        count = count * math.max(2, math.min(100, math.floor(seconds / runs / math.max(took, 1e-7))))
        took = run(body, count)
    end
    local results = {took / count}
    for i = 2, runs - 1 do results[i] = run(body, count) / count end
    return M.median(results)
end

return M
