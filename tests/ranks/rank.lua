-- rank.lua FOLDER SPEC -- runs one spec file on this rank; every rank of the job does the same. The events are written
-- to FOLDER/rank.R, line by line, and read by tally.lua when the job has ended, however it ended:
--
--     start <name>            an `it` begins
--     end <status> <message>  it is over on this rank
--     outside <message>       an error outside of any `it` (loading, setup)
--     stopped <message>       this rank ends the job: the others cannot be brought together again
--     done                    the file is through
--
-- After each `it` the ranks meet, so a rank that failed cannot carry the others away; when they cannot be brought together
-- again (one hangs, or waits for some of the others), the job ends after FLOW_TIMEOUT.
local folder, spec = arg[1], arg[2]
local flow = require "flow"

local plain_placement = flow.placement
if os.getenv "FLOW_TEST_DEVICE" then require "tests.on_device" end

local me, count = flow.rank(), flow.world_size()
local GRACE = 0.5   -- seconds that a rank that failed gives the others to finish
local ATTEMPTS = 20
local journal = assert(io.open(("%s/rank.%d"):format(folder, me), "w"))

local function note(word, ...)
    local fields = {word, ...}
    for i, text in ipairs(fields) do
        fields[i] = text:gsub("[\\\t\n]", {["\\"] = "\\\\", ["\t"] = "\\t", ["\n"] = "\\n"})
    end
    journal:write(table.concat(fields, "\t"), "\n")
    journal:flush()
end

local function stop(message)
    note("stopped", message)
    os.exit(1)
end

-- The number of `it`s that rank r has finished.
local function finished(r)
    local file = io.open(("%s/rank.%d"):format(folder, r))
    local n = 0
    if not file then return n end
    for line in file:lines() do
        if line:find "^end\t" then n = n + 1 end
    end
    file:close()
    return n
end

-- Waits until all ranks have finished n `it`s, for a while.
local function wait_for_others(n, busted)
    local limit = busted.monotime() + GRACE
    for r = 0, count - 1 do
        while finished(r) < n and busted.monotime() < limit do busted.sleep(0.02) end
    end
end

-- A collective of all ranks that no spec does.
local function meeting()
    local shape = {1, 1, 1, 1, 1, 1, 1, 1}
    local x = flow._testing.from_part(flow.zeros(shape, {dtype = "int8", device = "cpu"}), shape, plain_placement.all "cpu", "P(max)")
    x:to_global {sbp = "B"}:to_local():item()
end

-- A message as the error was raised, without busted's tables around it.
local function text_of(message)
    if type(message) == "table" then message = message.message or message.actual or message end
    return tostring(message)
end

local function report(options)
    local busted = require "busted"
    local handler = require "busted.outputHandlers.base" ()
    local ended, problem = 0, nil

    local function begun(element)
        problem = nil
        note("start", handler.getFullName(element))
        return nil, true
    end

    -- All ranks have finished the same `it` when this returns. A rank that failed may come here while others sit in a
    -- collective that it never entered: then the meeting does not match theirs, both fail at once, and all meet again.
    local function meet(failed)
        local message
        for _ = 1, ATTEMPTS do
            if failed then wait_for_others(ended, busted) end
            local ok
            ok, message = pcall(meeting)
            if ok then return end
            pcall(flow.sync)
            if not tostring(message):find("different programs", 1, true) then break end
            failed = true
        end
        stop("the ranks could not meet after it: " .. tostring(message))
    end

    local function over(_, _, status)
        local ok, message = pcall(flow.sync)
        if not ok and status == "success" then
            status, problem = "error", "left an error behind: " .. tostring(message)
        end
        ended = ended + 1
        note("end", status, problem or "")
        flow.manual_seed(ended)     -- numbers that a failed rank has not drawn
        if count > 1 then meet(status == "failure" or status == "error") end
        return nil, true
    end

    local function failed(element, _, message, debug)
        if element.descriptor == "it" then
            local where = debug and debug.short_src and ("%s:%d: "):format(debug.short_src, debug.currentline) or ""
            message = text_of(message)
            problem = problem or (message:find(where, 1, true) and message or where .. message)
        else note("outside", ("%s %s: %s"):format(element.descriptor, element.name or "", text_of(message))) end
        return nil, true
    end

    local function skipped(_, _, message)
        problem = message and text_of(message)
        return nil, true
    end

    function handler.subscribe()
        handler.options = options
        busted.subscribe({"test", "start"}, begun)
        busted.subscribe({"test", "end"}, over)
        busted.subscribe({"failure"}, failed)
        busted.subscribe({"error"}, failed)
        busted.subscribe({"pending"}, skipped)
    end

    return handler
end

-- the runner ends the process by the number of failures; here a rank that failed has said so, and the job goes on
require "busted.compatibility".exit = function() end
package.loaded["tests.ranks.report"] = report
rawset(_G, "arg", {[0] = "rank.lua", "--output=tests.ranks.report", "--pattern=%.lua$", spec})
require "busted.runner" {standalone = false}
note("done")
