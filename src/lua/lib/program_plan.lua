-- program_plan.lua -- what a program costs: p:memory() by the lives of its values, p:profile(n) by running it.
--
-- The plan counts what print(p) lists. Memory that ops need inside of themselves, as those written in other ops do, is
-- not in it; a captured function's memory() has that too.

local flow = require "flow"
local check = require "flow.check"
local program = require "flow.program"
local text = require "flow.program_print"

local Program = program.Program
local io_ = flow._io

local M = {}

local ALIGNMENT = 64

local function aligned(bytes) return (bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT end

-- ---- lives ----

---A piece of memory: of one value, or of several that are views of it.
---@class flow.program.Block
---@field bytes integer
---@field first integer step that makes it
---@field last integer step that uses it last
---@field step flow.program.Step

-- Blocks that steps make, in that order, and those of them that are results.
local function blocks_of(p)
    local outside, by_storage, blocks = {}, {}, {}
    for _, list in ipairs {p.inputs, p.weights} do
        for _, entry in ipairs(list) do outside[p.values[entry.value].storage] = true end
    end
    for i, step in ipairs(p.steps) do
        for k = 1, step.n do
            local operand = step.operands[k].value
            local block = operand and by_storage[p.values[operand].storage]
            if block then block.last = i end
        end
        for _, index in ipairs(step.outputs) do
            local value = p.values[index]
            local block = by_storage[value.storage]
            if block then block.last, block.bytes = i, math.max(block.bytes, value.bytes)
            elseif not outside[value.storage] then
                block = {bytes = value.bytes, first = i, last = i, step = step}
                by_storage[value.storage], blocks[#blocks + 1] = block, block
            end
        end
    end
    for _, output in ipairs(p.outputs) do
        local block = by_storage[p.values[output.value].storage]
        if block then block.last, block.own = #p.steps + 1, true end
    end
    return blocks, by_storage
end

-- The result of an elementwise op takes the block of an operand that dies there: a chain of blocks becomes one.
local function join_in_place(p, blocks, by_storage)
    local joined = {}
    for _, block in ipairs(blocks) do
        local step, from = block.step, nil
        for k = 1, step.elementwise and not block.own and step.n or 0 do
            local operand = step.operands[k].value
            local dying = operand and by_storage[p.values[operand].storage]
            while dying and dying.into do dying = dying.into end
            if not from and dying and dying.last == block.first and dying.bytes == block.bytes and not dying.own
                and dying.first < block.first then
                from = dying
            end
        end
        if from then from.last, block.into = block.last, from else joined[#joined + 1] = block end
    end
    return joined
end

-- Bytes of one piece of memory that holds the blocks: the largest first, each at the lowest place that is free.
local function pack(blocks)
    local order, placed, most = {}, {}, 0
    for i, block in ipairs(blocks) do order[i] = block end
    table.sort(order, function(a, b)
        if a.bytes ~= b.bytes then return a.bytes > b.bytes end
        return a.first < b.first
    end)
    for _, block in ipairs(order) do
        local taken, at = {}, 0
        for _, other in ipairs(placed) do
            if other.first <= block.last and block.first <= other.last then taken[#taken + 1] = other end
        end
        table.sort(taken, function(a, b) return a.at < b.at end)
        for _, other in ipairs(taken) do
            if at + aligned(block.bytes) <= other.at then break end
            at = math.max(at, other.at + aligned(other.bytes))
        end
        block.at, placed[#placed + 1] = at, block
        most = math.max(most, at + aligned(block.bytes))
    end
    return most
end

local function sum(blocks)
    local bytes = 0
    for _, block in ipairs(blocks) do bytes = bytes + aligned(block.bytes) end
    return bytes
end

local function without_own(blocks)
    local list, own = {}, 0
    for _, block in ipairs(blocks) do
        if block.own then own = own + aligned(block.bytes) else list[#list + 1] = block end
    end
    return list, own
end

---Bytes of the values in between on this rank, by the plan alone: each in memory of its own (none), where an
---elementwise result takes the memory of an operand that is not used any more (in_place), and where all share one piece
---by their lives (shared); own: the results, which lie outside.
---@return {steps: integer, none: integer, in_place: integer, shared: integer, own: integer, weights: integer}
function Program:memory()
    local blocks, by_storage = blocks_of(self)
    local inner, own = without_own(blocks)
    local none, weights = sum(inner), 0
    local joined = join_in_place(self, inner, by_storage)
    for _, weight in ipairs(self.weights) do weights = weights + self.values[weight.value].bytes end
    return {
        steps = #self.steps, none = none, in_place = sum(joined), shared = pack(joined), own = own, weights = weights,
    }
end

-- ---- time ----

-- Bytes that a step reads and writes at least, and its flops, 0 where not known; a view moves none.
local function work_of(p, step)
    local bytes, out = 0, p.values[step.outputs[1]]
    local x = step.operands[1] and p.values[step.operands[1].value]
    if x and out and x.storage == out.storage and not step.in_place then return 0, 0 end
    for k = 1, step.n do
        local operand = step.operands[k].value
        if operand then bytes = bytes + p.values[operand].bytes end
    end
    for _, index in ipairs(step.outputs) do bytes = bytes + p.values[index].bytes end
    return bytes, step.flops or 0
end

local limits

local function seconds(f)
    local best = math.huge
    for _ = 1, 3 do
        flow.sync()
        local start = io_.clock()
        f()
        flow.sync()
        best = math.min(best, io_.clock() - start)
    end
    return best
end

-- Bytes and flops a second that a copy and a product reach here, measured once.
local function limits_here()
    if limits then return limits end
    local x, y, a = flow.zeros(1 << 23), flow.zeros(1 << 23), flow.ones(768, 768)
    local copy = seconds(function() y:copy_(x) end)
    local product = seconds(function() return a:matmul(a) end)
    limits = {bytes = 2 * 4 * (1 << 23) / copy, flops = 2 * 768 ^ 3 / product}
    return limits
end

-- Values to run on, where none are given: class labels and positions are 0.
local function made_up(p)
    local given = {}
    for i, input in ipairs(p.inputs) do
        local value = p.values[input.value]
        local options = {dtype = value.dtype}
        if value.sbp then
            options.placement, options.sbp = flow.placement("cpu", value.placement.ranks), value.sbp
        end
        local float = value.dtype:find("float", 1, true)
        given[i] = (float and flow.rand or flow.zeros)(value.shape, options)
    end
    return given
end

---@class flow.program.Profile
---@field seconds number of one run
---@field steps {op: string, line: string, seconds: number, bytes: integer, flops: integer, share: number}[]
local Profile = {}
Profile.__index = Profile
Profile.__name = "flow.program.profile"

-- Time of each step, summed over n runs, each step waited for.
local function measure(p, given, n)
    local times = {}
    local function each(i, _, call)
        flow.sync()
        local start = io_.clock()
        call()
        flow.sync()
        times[i] = (times[i] or 0) + io_.clock() - start
    end
    program.execute(p, given)
    for _ = 1, n do program.execute(p, given, each) end
    return times
end

---Runs the ops one by one, n times, and waits for each: seconds of each step, the bytes it reads and writes at least,
---its flops where it is a product or a convolution, and which share of this machine's limit, that of a copy or of a
---product, it reaches. Random numbers and zeros are the inputs, unless they are given.
---@param n integer? runs, default 10
---@param given any[]? inputs
---@return flow.program.Profile
function Program:profile(n, given)
    n = n or 10
    check.integer("profile", "n", n, 1)
    local _ <close> = flow.no_grad()
    if given then program.check_given(self, given, #given, "profile: ") end
    given = given or made_up(self)
    local times = measure(self, given, n)
    local limit = limits_here()
    local profile = setmetatable({seconds = 0, steps = {}}, Profile)
    for i, step in ipairs(self.steps) do
        local bytes, flops = work_of(self, step)
        local time = times[i] / n
        profile.seconds = profile.seconds + time
        profile.steps[i] = {
            op = step.op, value = self.values[step.outputs[1]] and self.values[step.outputs[1]].name or "",
            line = step.line, seconds = time, bytes = bytes, flops = flops,
            share = math.max(bytes / limit.bytes, flops / limit.flops) / time,
        }
    end
    return profile
end

function Profile:__tostring()
    local rows, order = {{"value", "op", "us", "time", "GB/s", "GFLOP/s", "of limit", "line"}}, {}
    for i, step in ipairs(self.steps) do order[i] = step end
    table.sort(order, function(a, b) return a.seconds > b.seconds end)
    for _, step in ipairs(order) do
        local time = math.max(step.seconds, 1e-9)
        rows[#rows + 1] = {
            step.value, step.op, ("%.1f"):format(step.seconds * 1e6),
            ("%.1f%%"):format(100 * step.seconds / self.seconds),
            step.bytes > 0 and ("%.1f"):format(step.bytes / time / 1e9) or "",
            step.flops > 0 and ("%.1f"):format(step.flops / time / 1e9) or "",
            step.share > 0 and ("%.0f%%"):format(100 * step.share) or "", step.line,
        }
    end
    local right = {false, false, true, true, true, true, true}
    return table.concat(text.columns(rows, right), "\n") .. ("\n%.1f us a run"):format(self.seconds * 1e6)
end

check.methods(Program, "p", {"memory()", "profile(n: integer?, given: list?)"}, program.is_program)

return check.strict("program_plan", M)
