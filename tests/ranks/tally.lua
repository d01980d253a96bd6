-- tally.lua FOLDER RANKS TITLE STATUS LIMIT -- what the ranks of one job wrote (rank.lua), put together: an `it` passes when
-- it passed on every rank. Prints what failed and why, and last "P F S": passed, failed, skipped. STATUS is the job's
-- exit status, LIMIT the seconds it had.
local folder, ranks, title, status, limit = arg[1], tonumber(arg[2]), arg[3], tonumber(arg[4]), arg[5]

local unescape = {["\\\\"] = "\\", ["\\t"] = "\t", ["\\n"] = "\n"}

local function read(r)
    local run = {its = {}, outside = {}}
    local file = io.open(("%s/rank.%d"):format(folder, r))
    if not file then return run end
    for line in file:lines() do
        local fields = {}
        for field in (line .. "\t"):gmatch "(.-)\t" do fields[#fields + 1] = field:gsub("\\.", unescape) end
        local word, last = fields[1], run.its[#run.its]
        if word == "start" then run.its[#run.its + 1] = {name = fields[2]}
        elseif word == "end" and last then last.status, last.message = fields[2], fields[3]
        elseif word == "outside" then run.outside[#run.outside + 1] = fields[2]
        elseif word == "stopped" then run.stopped = fields[2]
        elseif word == "done" then run.done = true end
    end
    file:close()
    return run
end

local runs, most = {}, 0
for r = 0, ranks - 1 do
    runs[r] = read(r)
    most = math.max(most, #runs[r].its)
end

-- Ranks with the same message are listed together: "ranks 0, 2: message".
local function gather()
    local order, by_text = {}, {}
    return function(r, text)
        if not by_text[text] then
            by_text[text] = {}
            order[#order + 1] = text
        end
        table.insert(by_text[text], r)
    end, function()
        local lines = {}
        for i, text in ipairs(order) do
            local list = by_text[text]
            local who = #list == ranks and ranks > 1 and "all ranks" or (#list > 1 and "ranks " or "rank ") .. table.concat(list, ", ")
            lines[i] = ("    %s: %s"):format(who, (text:gsub("\n", "\n    ")))
        end
        return table.concat(lines, "\n")
    end
end

local passed, failed, skipped = 0, 0, 0

local function fail(name, text)
    failed = failed + 1
    print(("failed: %s: %s\n%s"):format(title, name, text))
end

-- Why the i-th `it` failed on rank r; nil: it passed.
local function complaint(r, i, name)
    local it = runs[r].its[i]
    if not it then return runs[r].stopped and "ended the job before it" or "did not come to it" end
    if it.name ~= name then return "was in another: " .. it.name end
    if not it.status then return status == 124 and "did not finish it within " .. limit .. " s" or "did not finish it" end
    if it.status ~= "success" then return it.message ~= "" and it.message or it.status end
end

for i = 1, most do
    local name
    for r = 0, ranks - 1 do name = name or runs[r].its[i] and runs[r].its[i].name end
    local add, text = gather()
    local bad, pending = false, true
    for r = 0, ranks - 1 do
        local said, it = complaint(r, i, name), runs[r].its[i]
        if said then add(r, said) end
        bad = bad or said ~= nil
        pending = pending and it ~= nil and it.status == "pending"
    end
    if pending then
        skipped = skipped + 1
        print(("skipped: %s: %s\n%s"):format(title, name, text()))
    elseif bad then fail(name, text()) else passed = passed + 1 end
end

local add, text = gather()
local incomplete = false
for r = 0, ranks - 1 do
    for _, message in ipairs(runs[r].outside) do add(r, message) end
    if runs[r].stopped then add(r, runs[r].stopped) end
    incomplete = incomplete or not runs[r].done or #runs[r].outside > 0
end
if incomplete and failed == 0 then
    for r = 0, ranks - 1 do
        if not runs[r].done and not runs[r].stopped then add(r, "ended before the file was through") end
    end
    fail("the whole file", text())
elseif text() ~= "" then print(text()) end
if status ~= 0 and failed == 0 then fail("the whole file", ("    exit status %d"):format(status)) end

print(("%d %d %d"):format(passed, failed, skipped))
