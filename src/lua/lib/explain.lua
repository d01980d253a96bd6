-- explain.lua -- flow.explain(f): which ops f ran, the SBP that was chosen for each, what had to move, and what else
-- was possible. It records the real dispatch while f runs; nothing is guessed.
--
-- Every rank runs f and gets the same report. In a dry world nothing can move: what would is listed all the same, zeros
-- stand in for its values, and reading them (item, totable) is an error.

local flow = require "flow"
local check = require "flow.check"
local bytes_text = require("flow.show").bytes

local M = {}

---One step of a boxing. Kinds: "all-reduce", "reduce-scatter", "all-gather", "all-to-all" and "exchange" communicate,
---"slice", "zero fill" and "relabelling" do not.
---@class flow.explain.Step
---@field kind string
---@field text string the kind, "all-reduce along axis 1" where the hierarchy has several
---@field communicates boolean
---@field axis integer? of the hierarchy; nil: the placement as a whole
---@field from string SBP of that axis before
---@field to string and after
---@field bytes integer the most any one rank moves
---@field tensor string "float32[8, 6]"
---@field groups integer[][] ranks that work together
---@field op string? of the entry, when it communicates
---@field by string?
---@field line string?

---@class flow.explain.Boxing
---@field input integer? of the op; nil: outside any op
---@field from string SBP before
---@field to string SBP after
---@field bytes integer
---@field steps flow.explain.Step[]

---An op, or a boxing outside an op (to_global, the gradient of a leaf): then op is "to_global".
---@class flow.explain.Entry
---@field op string
---@field by string? of a boxing outside any op: the function that the script called ("to_global", "backward")
---@field line string of the script
---@field inputs {text: string, boxed_to: string?, bytes: integer, steps: string?}[]
---@field outputs string[]
---@field bytes integer the most any one rank moves
---@field ways {chosen: boolean, bytes: integer, inputs: string, outputs: string}[]
---@field boxing flow.explain.Boxing[]
---@field collectives flow.explain.Step[] of all its boxing

---Ops that were computed in one pass over memory.
---@class flow.explain.Pass
---@field steps {op: string, line: string}[] in order; the last one may be a reduction
---@field stored integer results that went to memory
---@field elements integer of each step, on this rank

---@class flow.explain.Report: flow.explain.Entry[]
---@field passes flow.explain.Pass[] what was fused, in order; an op that is in none ran alone
---@field collectives flow.explain.Step[] of all entries, in order
---@field bytes integer
---@field error string? what stopped f

-- Adds the sums of what was recorded: bytes, and the collectives with the entry they belong to.
local function complete(report)
    report.collectives, report.bytes = {}, 0
    for _, entry in ipairs(report) do
        entry.collectives, entry.bytes = {}, 0
        for _, boxing in ipairs(entry.boxing) do
            local words = {}
            for i, step in ipairs(boxing.steps) do
                words[i] = step.text
                if step.communicates then
                    step.op, step.by, step.line = entry.op, entry.by, entry.line
                    table.insert(entry.collectives, step)
                    table.insert(report.collectives, step)
                end
            end
            entry.inputs[boxing.input].steps = table.concat(words, ", ")
            if entry.by then boxing.input = nil end -- a boxing outside any op
            entry.bytes = entry.bytes + boxing.bytes
        end
        report.bytes = report.bytes + entry.bytes
    end
    return report
end

-- ---- as text ----

local MOST_INPUTS, MOST_GROUPS, MOST_RANKS, MOST_WAYS = 8, 4, 8, 4

-- "0 2 | 1 3", "8 groups of 4 ranks"
local function groups_text(groups)
    if #groups > MOST_GROUPS or #groups[1] > MOST_RANKS then
        return ("%d group%s of %d ranks"):format(#groups, #groups == 1 and "" or "s", #groups[1])
    end
    local words = {}
    for i, ranks in ipairs(groups) do words[i] = table.concat(ranks, " ") end
    return "ranks " .. table.concat(words, " | ")
end

local function step_text(step)
    local text = ("%s %s -> %s"):format(step.text, step.from, step.to)
    if not step.communicates then return text end
    return ("%s over %s, %s"):format(text, groups_text(step.groups), bytes_text(step.bytes))
end

local function add_steps(lines, boxing, prefix)
    local words = {}
    for i, step in ipairs(boxing.steps) do words[i] = step_text(step) end
    lines[#lines + 1] = "    " .. prefix .. (#words == 0 and "nothing moves" or table.concat(words, "; "))
end

-- The chosen way first, then the cheapest of the others.
local function add_ways(lines, ways)
    local sorted = table.move(ways, 1, #ways, 1, {})
    local place = {}
    for i, way in ipairs(ways) do place[way] = i end
    table.sort(sorted, function(a, b)
        if a.chosen ~= b.chosen then return a.chosen end
        if a.bytes ~= b.bytes then return a.bytes < b.bytes end
        return place[a] < place[b]
    end)
    for i = 1, math.min(#sorted, MOST_WAYS) do
        local way = sorted[i]
        lines[#lines + 1] = ("    %s %s -> %s  %s"):format(way.chosen and "*" or " ", way.inputs, way.outputs,
            bytes_text(way.bytes))
    end
    if #sorted > MOST_WAYS then lines[#lines + 1] = ("      ... %d more"):format(#sorted - MOST_WAYS) end
end

-- The placement of all tensors of an entry, nil when there are several or none.
local function placement_of(entry)
    local found, several
    local function look(text)
        local place = text:match(" on (placement%(.+%)) as ")
        several = several or place and found and place ~= found
        found = found or place
    end
    for _, input in ipairs(entry.inputs) do look(input.text) end
    for _, text in ipairs(entry.outputs) do look(text) end
    return not several and found or nil
end

-- "float32[8, 6] S(0)"
local function without_placement(text)
    return (text:gsub(" on placement%(.+%) as ", " "))
end

local function title(entry, text_of)
    local inputs, outputs = {}, {}
    for i, input in ipairs(entry.inputs) do
        inputs[i] = text_of(input.text)
        if i == MOST_INPUTS and #entry.inputs > i then
            inputs[i] = ("... %d more"):format(#entry.inputs - i + 1)
            break
        end
    end
    for i, text in ipairs(entry.outputs) do outputs[i] = text_of(text) end
    local by = entry.by and entry.by ~= entry.op and ", by " .. entry.by or ""
    return ("%s  %s(%s) -> %s%s"):format(entry.line, entry.op, table.concat(inputs, ", "), table.concat(outputs, ", "),
        by)
end

-- Adds an entry's lines; a placement is printed where it changes. Returns the one that holds from here on.
local function describe(entry, lines, current)
    local place = placement_of(entry)
    if place and place ~= current then lines[#lines + 1] = "on " .. place end
    lines[#lines + 1] = title(entry, place and without_placement or tostring)
    for _, boxing in ipairs(entry.boxing) do
        add_steps(lines, boxing, boxing.input and ("input %d boxed to %s: "):format(boxing.input, boxing.to) or "")
    end
    add_ways(lines, entry.ways)
    return place or current
end

-- "3 collectives (2 all-reduce, 1 all-gather), 1.2 KB moved"
local function summary(report)
    if #report.collectives == 0 then return "no communication" end
    local kinds, counts = {}, {}
    for _, step in ipairs(report.collectives) do
        if not counts[step.kind] then kinds[#kinds + 1] = step.kind end
        counts[step.kind] = (counts[step.kind] or 0) + 1
    end
    for i, kind in ipairs(kinds) do kinds[i] = ("%d %s"):format(counts[kind], kind) end
    local total = #report.collectives
    return ("%d collective%s (%s), %s moved"):format(total, total == 1 and "" or "s", table.concat(kinds, ", "),
        bytes_text(report.bytes))
end

-- "one pass of 65536 elements, 1 of 3 results stored: mul a.lua:3, add a.lua:3, sum a.lua:4"
local function pass_text(pass)
    local words = {}
    for i, step in ipairs(pass.steps) do words[i] = step.op .. " " .. step.line end
    return ("one pass of %d elements, %d of %d results stored: %s"):format(pass.elements, pass.stored, #words,
        table.concat(words, ", "))
end

local meta = {}

function meta.__tostring(report)
    local lines, ops, place = {}, 0, nil
    for _, entry in ipairs(report) do
        place = describe(entry, lines, place)
        if not entry.by then ops = ops + 1 end
    end
    for _, pass in ipairs(report.passes) do lines[#lines + 1] = pass_text(pass) end
    lines[#lines + 1] = ("%d op%s, %s"):format(ops, ops == 1 and "" or "s", summary(report))
    if report.error then lines[#lines + 1] = "stopped by an error: " .. report.error end
    return table.concat(lines, "\n")
end

---Runs f and returns a list of its ops and boxings, which prints as a report. The results of f are dropped.
---@param f function
---@param ... any arguments of f
---@return flow.explain.Report
function M.explain(f, ...)
    check.refuse_colon("explain", f)
    if type(f) ~= "function" then check.fail("explain: takes a function, got %s", type(f)) end
    flow._explain(true)
    local results = table.pack(flow._pcall(f, ...)) -- held, so that what is deferred is computed and reported
    local report = complete(flow._explain(false))
    if not results[1] then report.error = tostring(results[2]) end
    return setmetatable(report, meta)
end

return M
