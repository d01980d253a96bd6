-- plan.lua -- flowlua --plan N script.lua: the cost of a step of the script on N ranks.
--
-- The program starts itself for rank 0, and once more for each other kind of rank: ranks of one kind have parts of the
-- same sizes of all tensors. In such a process the script runs on tensors without memory (src/core/dispatch/planned.h),
-- ops, moves and memory are counted (src/core/program/tally.h), and the counts are sent to the process that was started
-- first, which makes the report (plan_report.lua).
--
-- A step is what runs between the first and the second step() of the optimizer that steps first; the script ends there.
-- If no optimizer steps twice it is the script as a whole.

local flow = require "flow"
local json = require "flow.json"

local plan = flow._plan

local M = {}

local MOST_KINDS = 4 -- of ranks that are planned: each takes as long as the first

-- ---- in a process that plans a rank ----

local deliver -- sends a text to the process that makes the report

-- Tags the tensors of an optimizer that exist already.
local function tag_all(optimizer)
    for _, group in ipairs(optimizer.groups) do
        for _, p in ipairs(group.params) do
            local state = optimizer.state[p]
            plan.tag(p, "parameter")
            plan.tag_gradient(p)
            for _, t in pairs(state and state.tensors or {}) do plan.tag(t, "optimizer") end
        end
    end
end

---Sends the report; the second call does nothing. what: "step" or "script".
function M.finish(what)
    if not deliver then return end
    local send, report = deliver, plan.report()
    deliver, report.what = nil, what
    send(json.encode(report))
end

---Counts from here on, and ends the script after a step.
---@param send function
function M.watch(send)
    local first, steps, exit = nil, 0, os.exit
    deliver = send
    require("flow.optim_base").watch(function(optimizer)
        tag_all(optimizer)
        first = first or optimizer
        if optimizer ~= first then return end
        steps = steps + 1
        if steps == 1 then return plan.begin() end
        M.finish("step")
        exit(true)
    end)
    rawset(os, "exit", function(code, ...)
        if code == nil or code == true or code == 0 then M.finish("script") end
        exit(code, ...)
    end)
    plan.begin()
end

-- ---- in the process that makes the report ----

-- Kinds of ranks in the order in which they are planned: that of rank 0, then those with the largest parts.
local function in_order(kinds)
    local order = table.move(kinds, 1, #kinds, 1, {})
    table.sort(order, function(a, b)
        if (a.ranks[1] == 0) ~= (b.ranks[1] == 0) then return a.ranks[1] == 0 end
        if a.elements ~= b.elements then return a.elements > b.elements end
        return a.ranks[1] < b.ranks[1]
    end)
    return order
end

---Plans the script and prints the report; gives the status with which the program ends.
---@param ranks integer
---@param path string? of the machine's description
---@param script string
---@param start fun(rank: integer, ranks_per_host: integer, memory: integer): string, integer
---@return integer
function M.main(ranks, path, script, start)
    local machine = require("flow.plan_machine").read(path)
    local reports, kinds = {}, nil
    for i = 1, MOST_KINDS do
        local rank = kinds and (kinds[i] and kinds[i].ranks[1]) or i == 1 and 0
        if not rank then break end
        local text, status = start(rank, machine.ranks_per_host, math.min(machine.memory_per_rank, 1e18) // 1 | 0)
        if status ~= 0 then return status end
        if text == "" then error("--plan: the script ended before anything was counted", 0) end
        reports[i] = json.decode(text)
        kinds = kinds or in_order(reports[1].kinds)
        reports[i].ranks = kinds[i].ranks
    end
    print(require("flow.plan_report").text(script, ranks, reports, kinds, machine))
    return 0
end

return M
