-- plan_report.lua -- the text of a plan: counts of ops, moves and memory, and the time that a machine needs for them.
--
-- The time of an op is what its flops or its bytes take, whichever is more; that of a move what its bytes take on the
-- slowest link that it crosses, and a latency for each doubling of the ranks that work together, once for gradients
-- that travel together. Nothing overlaps.

local columns = require("flow.program_print").columns

local M = {}

local MOST_OPS, MOST_MOVES = 10, 8

-- 1234567 -> "1,234,567"
local function count_text(n)
    return (("%d"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local function bytes_text(n)
    for _, unit in ipairs {{1e15, "PB"}, {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}} do
        if n >= unit[1] then return ("%.1f %s"):format(n / unit[1], unit[2]) end
    end
    return n .. (n == 1 and " byte" or " bytes")
end

local function seconds_text(s)
    for _, unit in ipairs {{1, "s"}, {1e-3, "ms"}} do
        if s >= unit[1] then return ("%.2f %s"):format(s / unit[1], unit[2]) end
    end
    return ("%.2f us"):format(s * 1e6)
end

-- {0, 1, 2, 5} -> "ranks 0 to 2, 5"
local function ranks_text(ranks)
    local words, i = {}, 1
    while i <= #ranks do
        local last = i
        while ranks[last + 1] == ranks[last] + 1 do last = last + 1 end
        words[#words + 1] = last > i and ("%d to %d"):format(ranks[i], ranks[last]) or tostring(ranks[i])
        i = last + 1
    end
    if #words > 6 then words = {words[1], words[2], words[3], ("... (%d in all)"):format(#ranks)} end
    return (#ranks == 1 and "rank " or "ranks ") .. table.concat(words, ", ")
end

-- ---- time ----

---Seconds of one call: for its computation, and for its reads and writes.
function M.op_seconds(op, machine)
    return op.flops / (machine.flops[op.dtype] or machine.flops.float32), op.bytes / machine.memory
end

---Seconds of one step of a boxing plan.
function M.move_seconds(move, machine)
    local link = move.network and machine.links.network or machine.links.host
    if move.joined then return move.bytes / link.bandwidth end
    local rounds = math.ceil(math.log(math.max(move.ranks, 2), 2))
    if move.kind == "all-reduce" then rounds = 2 * rounds end
    return move.bytes / link.bandwidth + rounds * link.latency
end

-- Adds what one kind of rank needs: seconds of ops that computing bounds, of those that memory bounds, of moves.
local function add_times(report, machine)
    local time = {compute = 0, memory = 0, communication = 0}
    for _, op in ipairs(report.ops) do
        local compute, memory = M.op_seconds(op, machine)
        op.seconds = math.max(compute, memory) * op.count
        local bound = compute > memory and "compute" or "memory"
        time[bound] = time[bound] + op.seconds
    end
    for _, move in ipairs(report.moves) do
        move.seconds = M.move_seconds(move, machine) * move.count
        time.communication = time.communication + move.seconds
    end
    report.time, report.seconds = time, time.compute + time.memory + time.communication
end

-- ---- sums ----

-- Sums over entries with the same key, those with the most seconds first.
local function grouped(list, key_of)
    local groups, by_key = {}, {}
    for _, entry in ipairs(list) do
        local key = key_of(entry)
        local group = by_key[key]
        if not group then
            group = {entry = entry, count = 0, flops = 0, bytes = 0, seconds = 0}
            by_key[key], groups[#groups + 1] = group, group
        end
        group.count, group.bytes = group.count + entry.count, group.bytes + entry.count * entry.bytes
        group.flops, group.seconds = group.flops + entry.count * (entry.flops or 0), group.seconds + entry.seconds
    end
    local place = {}
    for i, group in ipairs(groups) do place[group] = i end
    table.sort(groups, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds > b.seconds end
        return place[a] < place[b]
    end)
    return groups
end

local function total(list, field)
    local sum = 0
    for _, entry in ipairs(list) do sum = sum + entry.count * (entry[field] or 0) end
    return sum
end

-- ---- text ----

local function add_table(lines, rows, right)
    for _, row in ipairs(columns(rows, right)) do lines[#lines + 1] = "    " .. row end
end

local function add_ops(lines, report)
    local rows = {{"op", "dtype", "calls", "flops", "bytes", "time"}}
    local rest = {count = 0, flops = 0, bytes = 0, seconds = 0}
    for i, group in ipairs(grouped(report.ops, function(op) return op.op .. " " .. op.dtype end)) do
        if i <= MOST_OPS then
            rows[#rows + 1] = {group.entry.op, group.entry.dtype, count_text(group.count), count_text(group.flops),
                count_text(group.bytes), seconds_text(group.seconds)}
        else
            for key, value in pairs(rest) do rest[key] = value + group[key] end
        end
    end
    if rest.count > 0 then
        rows[#rows + 1] = {"others", "", count_text(rest.count), count_text(rest.flops), count_text(rest.bytes),
            seconds_text(rest.seconds)}
    end
    local calls, seconds = 0, report.time.compute + report.time.memory
    for _, op in ipairs(report.ops) do calls = calls + op.count end
    rows[#rows + 1] = {"all", "", count_text(calls), count_text(total(report.ops, "flops")),
        count_text(total(report.ops, "bytes")), seconds_text(seconds)}
    add_table(lines, rows, {false, false, true, true, true, true})
end

local function axis_text(move) return move.axis >= 0 and tostring(move.axis) or "all" end

local function add_moves(lines, report)
    if #report.moves == 0 then
        lines[#lines + 1] = "    no communication"
        return
    end
    local rows, calls = {{"collective", "axis", "ranks", "link", "calls", "bytes", "time"}}, 0
    local function key(m) return ("%s %d %d %s"):format(m.kind, m.axis, m.ranks, m.network) end
    for _, group in ipairs(grouped(report.moves, key)) do
        local m = group.entry
        calls = calls + group.count
        rows[#rows + 1] = {m.kind, axis_text(m), tostring(m.ranks), m.network and "network" or "host",
            count_text(group.count), count_text(group.bytes), seconds_text(group.seconds)}
    end
    rows[#rows + 1] = {"all", "", "", "", count_text(calls), count_text(total(report.moves, "bytes")),
        seconds_text(report.time.communication)}
    add_table(lines, rows, {false, true, true, false, true, true, true})
end

local TAGS = {
    {"parameter", "parameters"}, {"gradient", "gradients"}, {"optimizer", "optimizer state"},
    {"kept", "from before the step"}, {"boxed", "moved tensors"}, {"temporary", "activations and temporaries"},
}

local function add_memory(lines, report, machine)
    local memory, rows = report.memory, {{"memory at the peak", "bytes", ""}}
    for _, tag in ipairs(TAGS) do
        local bytes = memory[tag[1]]
        if bytes > 0 then
            rows[#rows + 1] = {tag[2], count_text(bytes), ("%.0f%%"):format(100 * bytes / memory.peak)}
        end
    end
    rows[#rows + 1] = {"all", count_text(memory.peak), ""}
    add_table(lines, rows, {false, true, true})
    local limit = machine.memory_per_rank
    lines[#lines + 1] = memory.peak > limit
        and ("    does not fit: a rank has %s, the peak is %s"):format(bytes_text(limit), bytes_text(memory.peak))
        or ("    fits: %.1f%% of the %s of a rank"):format(100 * memory.peak / limit, bytes_text(limit))
end

local function add_time(lines, report)
    local time, most = report.time, "compute"
    for _, key in ipairs {"memory", "communication"} do
        if time[key] > time[most] then most = key end
    end
    lines[#lines + 1] = ("    time %s: compute %s, memory %s, communication %s; %s"):format(
        seconds_text(report.seconds), seconds_text(time.compute), seconds_text(time.memory),
        seconds_text(time.communication), report.seconds == 0 and "nothing is done" or most .. " dominates")
end

local function add_sites(lines, report)
    if #report.moves == 0 then return end
    local rows = {{"most expensive moves", "by", "axis", "calls", "bytes", "time", "line"}}
    local function key(m) return table.concat({m.line, m.tensor, m.kind, m.axis}, "\n") end
    for i, group in ipairs(grouped(report.moves, key)) do
        if i > MOST_MOVES then break end
        local m = group.entry
        rows[#rows + 1] = {m.tensor, m.kind, axis_text(m), count_text(group.count), count_text(group.bytes),
            seconds_text(group.seconds), m.line}
    end
    add_table(lines, rows, {false, false, true, true, true, true})
end

---@param script string
---@param ranks integer
---@param reports table[] of one rank of each kind that was planned, with the ranks of that kind
---@param kinds table[] all
---@param machine flow.plan.Machine
---@return string
function M.text(script, ranks, reports, kinds, machine)
    local lines = {("%s on %d rank%s: %s"):format(script, ranks, ranks == 1 and "" or "s", reports[1].what == "step"
        and "a step, from one step() of the optimizer to the next" or "the whole script (no optimizer steps twice)")}
    lines[2] = "machine: " .. machine.name
    for _, report in ipairs(reports) do
        add_times(report, machine)
        lines[#lines + 1] = ranks_text(report.ranks) .. (#report.ranks > 1 and ", each:" or ":")
        add_ops(lines, report)
        add_moves(lines, report)
        add_memory(lines, report, machine)
        add_time(lines, report)
    end
    if #kinds > #reports then
        lines[#lines + 1] = ("%d more kinds of ranks, with smaller parts"):format(#kinds - #reports)
    end
    add_sites(lines, reports[1])
    return table.concat(lines, "\n")
end

return M
