-- programs.lua -- random programs on tensors, run on local tensors by every rank and on global tensors by all of them.
--
-- Program i of a seed depends on these two and the number of ranks: see programs/draw.lua. A line is Lua text, called with
-- an environment that holds the tensors by name.
--
-- Every line is run on local and on global tensors. Its results are compared: the whole tensor, gathered on every
-- rank, and this rank's part. If rounding differs within the tolerance the local tensor takes the value of
-- the global one, so that errors do not grow from line to line and ops that pick or sort see the same numbers. Programs
-- with gradients keep both values apart and compare the gradients of the inputs at the end.
local flow = require "flow"
local draw_program = require "tests.programs.draw"
local captured = require "tests.programs.captured"
local parts = require "tests.programs.parts"
local testing = flow._testing

local world = flow.world_size()
local hash, plain, layout, whole_value, global_value, spec_text = parts.hash, parts.plain, parts.layout, parts.whole_value, parts.global_value, parts.spec_text
local local_environment, global_environment, names_in, call_line = parts.local_environment, parts.global_environment, parts.names_in, parts.call_line
local floats = parts.floats

local M = {ops = parts.ops, draw = draw_program, captured = captured}

-- Errors of global tensors that local ones do not give, or of local ones alone. One more difference: what an element is
-- wrong with (of_an_element in draw.lua) is an error on the ranks whose part holds it, and the others learn of it when the job ends
-- or at a collective; so nothing comes after such a line.
M.differences = {
    {"is a copy", "a view of a split axis that had to move data is a copy, writing to it is an error"},
    {"cannot be viewed as", "what can be viewed depends on the strides, and parts have strides of their own"},
    {"cannot be updated in that sbp; convert it with to_global first", "the same"},
    {"cannot hold the result in place; assign it instead", "a tensor is written in its SBP, so a partial one by linear ops only"},
}

---- text ----

local function line_text(line)
    if #line.results == 0 or line.statement then return line.text end
    return table.concat(line.results, ", ") .. " = " .. line.text
end

function M.text(program)
    local used, lines = {}, {}
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(names_in(line.text)) do used[name] = true end
    end
    for _, input in ipairs(program.inputs) do
        if used[input.name] then used[input.spec.place .. ""] = true end
    end
    for _, line in ipairs(program.lines) do used[line.place .. ""] = true end
    for i, place in ipairs(program.list) do
        if used[i .. ""] then lines[#lines + 1] = ("-- place %d: %s"):format(i, tostring(place.value)) end
    end
    for _, input in ipairs(program.inputs) do
        if used[input.name] then lines[#lines + 1] = spec_text(input.name, input.spec) end
    end
    for _, line in ipairs(program.lines) do lines[#lines + 1] = line_text(line) end
    if program.gradients then lines[#lines + 1] = program.twice and "-- gradients of gradients" or "-- gradients" end
    return table.concat(lines, "\n")
end

---- comparing ----

local function whole(t, list)
    t = t:detach()
    return t:to_global {placement = list[1].value, sbp = "B"}:to_local()
end

-- This rank's part of a whole.
local function window(t, place, sbp)
    for k, kind in ipairs(sbp) do
        local axis = tostring(kind):match "^S%((%d+)%)$"
        if axis then
            axis = tonumber(axis)
            local size, n, c = t:size(axis), place.hierarchy[k], place.coords[k]
            local base, extra = size // n, size % n
            t = t:narrow(axis, base * c + math.min(c, extra), base + (c < extra and 1 or 0))
        end
    end
    return t
end

local function numbers_of(t) return t:reshape(-1):totable() end

-- The same numbers; NaN is equal to NaN.
local function same(a, b)
    a, b = numbers_of(a), numbers_of(b)
    for i = 1, #a do
        if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then return false end
    end
    return #a == #b
end

-- True if all zeros have the same signs: a sum of parts gives 0.0 where the whole has -0.0, which is the same number,
-- but atan2 or a division by it is another.
local function same_zeros(a, b)
    if not floats[a.dtype] then return true end
    a, b = numbers_of(a), numbers_of(b)
    for i = 1, #a do
        if a[i] == 0 and 1 / a[i] ~= 1 / b[i] then return false end
    end
    return true
end

local function same_sizes(a, b) return table.concat(a.shape, ",") == table.concat(b.shape, ",") end

local function magnitude(t)
    if t:numel() == 0 then return 0 end
    local a = t:detach():to("float64"):abs()
    return flow.where(a:isfinite(), a, 0.0):max():item()
end

-- The largest difference relative to the tolerance; huge where only one is NaN or infinite.
local function distance(want, got, tolerance)
    local a, b = want:detach():to("float64"):reshape(-1):totable(), got:to("float64"):reshape(-1):totable()
    local worst = 0
    for i = 1, #a do
        local x, y = a[i], b[i]
        if x ~= y and (x == x or y == y) then
            local off = math.abs(x - y)
            worst = math.max(worst, off == off and off / tolerance or math.huge)
        end
    end
    return worst
end

-- True if it is so on any rank, agreed by all.
local function agree(found)
    if world == 1 then return found end
    local mine = flow.full({1}, found and 1 or 0, {dtype = "int8"})
    local all = testing.from_part(mine, {1}, M.everyone, "P(max)")
    return all:to_global {sbp = "B"}:to_local():item() == 1
end

local function show(t)
    local text = tostring(t:detach())
    return #text > 900 and text:sub(1, 900) .. "..." or text
end

local Run = {}
Run.__index = Run

function Run:complain(...)
    if not self.finding then self.finding = ("%s: %s"):format(self.at, string.format(...)) end
end

-- The place of a global tensor among those of the program.
function Run:place_of(t)
    for _, place in ipairs(self.list) do
        if place.value == t.placement then return place end
    end
end

function Run:compare(name, want, got, scale, coarse)
    if not flow.is_tensor(want) or not flow.is_tensor(got) then
        if want ~= got and (want == want or got == got) then self:complain("%s is %s, locally %s", name, tostring(got), tostring(want)) end
        return
    end
    if not got.is_global then return self:complain("%s is not global", name) end
    if want.dtype ~= got.dtype or not same_sizes(want, got) then
        return self:complain("%s is %s%s, locally %s%s", name, got.dtype, plain(got.shape), want.dtype, plain(want.shape))
    end
    local sbp, place = got.sbp, self:place_of(got)
    self.coverage(sbp)
    self.compared = self.compared + 1
    local partial = tostring(sbp):find "P" ~= nil
    if not partial and not self.lenient and (self.program.gradients or not floats[got.dtype]) and hash(self.program.number, self.compared) % 6 > 0 then
        return self:compare_part(name, want, got, place, scale, coarse)
    end
    local gathered = whole(got, self.list)
    if not partial then self:compare_part(name, gathered, got, place, 0) end
    if self:compare_values(name, want, gathered, tostring(sbp), scale, coarse) or self.program.gradients then return end
    local kept = pcall(want.copy_, want, gathered)
    if not kept then self.here[name] = gathered:clone() end
end

-- Compares this rank's part of a tensor that is not partial.
function Run:compare_part(name, want, got, place, scale, coarse)
    if not place or not place.position then return end
    local part, expected = got:detach():to_local(), window(want:detach(), place, got.sbp)
    local text = "the part of " .. name
    if not same_sizes(part, expected) then return self:complain("%s as %s is %s, not %s", text, tostring(got.sbp), plain(part.shape), plain(expected.shape)) end
    self:compare_values(text, expected, part, tostring(got.sbp), scale, coarse)
end

-- True if the numbers are the same; complains if they differ by more than the tolerance.
function Run:compare_values(name, want, got, sbp, scale, coarse)
    if same(want:detach(), got) then return same_zeros(want:detach(), got) end
    local eps = floats[want.dtype]
    local tolerance = eps and scale > 0 and math.max(eps, coarse or 0) * scale or 1e-300
    local off = distance(want, got, tolerance)
    if off > 1 and not (self.lenient and off == math.huge) then
        self:complain("%s as %s is off by %.3g times the tolerance %.3g:\n%s\nexpected\n%s", name, sbp, off, tolerance, show(got), show(want))
    end
end

-- The gist of an error, without numbers and the words for global tensors.
local function gist(message)
    message = message:gsub("^[^:]+:%d+: ", ""):gsub("\n.*", "")
    return message:match "^([%w_%[%]]+):" or message:match "^(%S+ %S+)" or message
end

local function expected_difference(message)
    for _, known in ipairs(M.differences) do
        if message:find(known[1], 1, true) then return true end
    end
end

-- Magnitude of what a line reads, and the rounding of the coarsest of it: parts of a sum are rounded one by one. Without
-- gradients the operands of a line are the same numbers, so no rounding but their own counts.
function Run:operands(line)
    local largest, eps = 0, 0
    for _, name in ipairs(names_in(line.text)) do
        local t = self.here[name]
        if flow.is_tensor(t) then
            largest = math.max(largest, magnitude(t))
            eps = math.max(eps, floats[t.dtype] or 0, self.program.gradients and self.eps[name] or 0)
        end
    end
    return largest, eps
end

local function is_finite(t) return not flow.is_tensor(t) or not floats[t.dtype] or t:detach():isfinite():all():item() end

local function is_sum_of_parts(t)
    for _, sbp in ipairs(flow.is_tensor(t) and t.is_global and t.sbp or {}) do
        if tostring(sbp) == "P" then return true end
    end
    return false
end

-- True if a line reads a sum of parts or gives one (cov divides the one that it makes), and reads or gives numbers that
-- are not finite: times infinity, or divided by 0, the parts are NaN, or infinite with other signs, and the whole is not.
function Run:splits_infinity(line, want, got)
    local partial, finite = false, true
    for i, t in ipairs(want) do finite, partial = finite and is_finite(t), partial or is_sum_of_parts(got[i]) end
    for _, name in ipairs(names_in(line.text)) do
        partial = partial or is_sum_of_parts(self.there[name])
        finite = finite and is_finite(self.here[name])
    end
    return partial and not finite
end

-- Forgets the tensors that a line writes to, all of its names but those: they are not compared any more.
function Run:forget(line, but)
    local kept = {}
    for _, name in ipairs(but) do kept[name] = true end
    for _, name in ipairs(line.touched or {}) do
        if not kept[name] then self.here[name], self.there[name] = nil, nil end
    end
end

-- A line that an element makes fail: an error where that element lies, the same as on local tensors.
function Run:failing(line)
    local ok, want = call_line(line, self.here)
    local global_ok, got = call_line(line, self.there)
    self.calls(line.op)
    if ok then self:complain("no error on local tensors") end
    if not global_ok and gist(want) ~= gist(got) then self:complain("the message is\n%s\nlocally\n%s", got, want) end
    if not agree(not global_ok) then self:complain("no error on any rank; locally\n%s", want) end
end

-- True if a line reads a forgotten tensor: in a list it would only be missing.
function Run:reads_forgotten(line)
    for _, name in ipairs(names_in(line.text)) do
        if self.here[name] == nil or self.there[name] == nil then return true end
    end
end

-- True if a float that a line reads differs by a rounding, or by the sign of a zero, if both values are kept apart.
-- Results that are no floats, positions or comparisons, may then be others, and so may those of a function that jumps.
function Run:reads_rounded(line)
    for _, name in ipairs(self.program.gradients and names_in(line.text) or {}) do
        local t = self.here[name]
        if flow.is_tensor(t) and floats[t.dtype] then
            local here, there = t:detach(), whole(self.there[name], self.list):detach()
            if not same(here, there) or not same_zeros(here, there) then return true end
        end
    end
    return false
end

local jumps = {}
for op in ("atan2 ceil floor floor_divide fmod remainder round sign trunc"):gmatch "%S+" do jumps[op] = true end

-- Results that a rounding may have made others are not looked at.
function Run:forget_rounded(line, results)
    local names = {}
    for i, t in ipairs(results) do
        if flow.is_tensor(t) and (not floats[t.dtype] or jumps[line.op]) then names[#names + 1] = line.results[i] end
    end
    if #names > 0 and self:reads_rounded(line) then self:forget({touched = names}, {}) end
end

-- True if a line takes roots of a difference, half of whose digits are right.
local function takes_roots(line) return line.text:find("use_mm_for_euclid_dist", 1, true) ~= nil end

function Run:line(line)
    self.at = line_text(line)
    if self:reads_forgotten(line) then return self:forget({touched = line.results}, {}) end
    if line.of_an_element then return self:failing(line) end
    local largest, eps = self:operands(line)
    local ok, want = call_line(line, self.here)
    local global_ok, got = call_line(line, self.there)
    self.calls(line.op)
    if not ok and not global_ok then
        if gist(want) ~= gist(got) and not got:find "nil value" then self:complain("the message is\n%s\nlocally\n%s", got, want) end
        return
    end
    if ok ~= global_ok then
        if not ok and not expected_difference(want) then self:complain("no error; locally\n%s", want)
        elseif not global_ok and not expected_difference(got) then self:complain("an error:\n%s", got) end
        self:forget(line, {}) -- locally it may have changed
        return
    end
    if line.statement then
        want, got = {}, {}
        for i, name in ipairs(line.writes) do want[i], got[i] = self.here[name], self.there[name] end
        self:forget(line, line.writes) -- views there may be copies here
    elseif #want ~= #got then return self:complain("%d results, locally %d", #got, #want) end
    local names = line.statement and line.writes or line.results
    for i, t in ipairs(want) do
        if not line.statement then self.here[names[i]], self.there[names[i]] = t, got[i] end
        if flow.is_tensor(t) then
            largest = math.max(largest, magnitude(t))
            self.eps[names[i]] = math.max(eps, floats[t.dtype] or 0)
            if takes_roots(line) then self.eps[names[i]] = self.eps[names[i]] ^ 0.5 end
            self.coarsest = math.max(self.coarsest, self.eps[names[i]])
        end
    end
    self.lenient = self:splits_infinity(line, want, got)
    local scale = 64 * (1 + largest) * (1 + largest)
    if self.program.gradients then scale = scale * 100 end
    if not line.statement then self:forget_rounded(line, want) end
    for i, t in ipairs(want) do
        if self.here[names[i]] ~= nil then self:compare(names[i], t, got[i], scale, self.eps[names[i]]) end
    end
end

-- The loss of all that has a gradient, on one placement.
local function loss_of(program, env, move)
    local loss
    local function add(name)
        local t = env[name]
        if flow.is_tensor(t) and t.requires_grad then
            local term = move((t:to "float64" * 0.3):tanh():sum())
            loss = loss and loss + term or term
        end
    end
    for _, input in ipairs(program.inputs) do add(input.name) end
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(line.results) do add(name) end
    end
    return loss
end

function Run:gradients()
    self.at, self.lenient = "gradients", false
    local leaves = {}
    for _, input in ipairs(self.program.inputs) do
        if input.spec.grad then leaves[#leaves + 1] = input end
    end
    if #leaves == 0 then return end
    local function backward(env, move)
        return pcall(function()
            local loss = loss_of(self.program, env, move)
            if not loss then return end
            if not self.program.twice then return loss:backward() end
            local list = {}
            for i, leaf in ipairs(leaves) do list[i] = env[leaf.name] end
            local grads = flow.grad(loss, list, {create_graph = true, allow_unused = true})
            local sum
            for i = 1, #leaves do
                if flow.is_tensor(grads[i]) then
                    local term = move(grads[i]:to "float64":tanh():square():sum())
                    sum = sum and sum + term or term
                end
            end
            if sum and sum.requires_grad then sum:backward() end
        end)
    end
    local ok, message = backward(self.here, function(t) return t:clone() end)
    local global_ok, global_message = backward(self.there, function(t) return t:to_global {placement = self.list[1].value, sbp = "B"} end)
    if ok ~= global_ok then return self:complain("backward: %s; locally %s", tostring(global_message), tostring(message)) end
    if not ok then return end
    for _, leaf in ipairs(leaves) do
        local want, got = self.here[leaf.name].grad, self.there[leaf.name].grad
        if (want == nil) ~= (got == nil) then self:complain("%s.grad is %s, locally %s", leaf.name, tostring(got), tostring(want))
        elseif want then
            local largest = magnitude(want)
            local loose = self.coarsest < 1e-10 and 1e6 or self.program.twice and 1e4 or 2e3 -- terms that cancel each other
            if largest < 1e4 and want:isfinite():all():item() then self:compare(leaf.name .. ".grad", want, got, loose * (1 + largest), self.coarsest) end
        end
    end
end

---- running ----

M.coverage = {programs = 0, lines = 0, ops = {}, sbps = {}, sbp_count = 0}

local function count_sbp(sbp)
    local text = tostring(sbp)
    if not M.coverage.sbps[text] then
        M.coverage.sbps[text] = true
        M.coverage.sbp_count = M.coverage.sbp_count + 1
    end
end

local function count_call(op)
    M.coverage.lines = M.coverage.lines + 1
    M.coverage.ops[op] = (M.coverage.ops[op] or 0) + 1
end

-- Runs a program; the finding of this rank or nil.
function M.run(program)
    local run = setmetatable({program = program, list = program.list, compared = 0, eps = {}, coarsest = 0, coverage = count_sbp, calls = count_call}, Run)
    run.here, run.there = local_environment(), global_environment(program.list)
    M.everyone = program.list[1].value
    for _, input in ipairs(program.inputs) do
        local spec = input.spec
        run.at = input.name
        local value = whole_value(spec)
        local t = global_value(spec, program.list[spec.place], value)
        if table.concat(spec.sbp):find "P" and floats[spec.dtype] then value = whole(t, program.list):clone() end
        value = layout(value, spec.layout)
        if spec.grad then value, t = value:detach():requires_grad_(), t:detach():requires_grad_() end
        run.here[input.name], run.there[input.name] = value, t
        run:compare(input.name, value, t, 0)
    end
    for _, line in ipairs(program.lines) do run:line(line) end
    if program.gradients then run:gradients() end
    M.coverage.programs = M.coverage.programs + 1
    return run.finding
end

-- The program without lines from..to and without what needs their results.
local function without(program, at)
    local gone, lines = {}, {}
    for i, line in ipairs(program.lines) do
        local dropped = i == at
        for _, name in ipairs(names_in(line.text)) do dropped = dropped or gone[name] end
        if dropped then
            for _, name in ipairs(line.results) do gone[name] = true end
        else lines[#lines + 1] = line end
    end
    local copy = {inputs = program.inputs, lines = lines}
    return setmetatable(copy, {__index = program})
end

local function find_line(program, line)
    for i, l in ipairs(program.lines) do if l == line then return i end end
    return 0
end

local function without_inputs(program)
    local used, inputs = {}, {}
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(names_in(line.text)) do used[name] = true end
    end
    for _, input in ipairs(program.inputs) do if used[input.name] then inputs[#inputs + 1] = input end end
    return setmetatable({inputs = inputs}, {__index = program})
end

-- A shorter program with a finding.
local function shrink(program, finding)
    local at = #program.lines
    while at >= 1 do
        local shorter = without(program, at)
        local found = M.run(shorter)
        if agree(found ~= nil) then program, finding = shorter, found end
        at = math.min(at - 1, #program.lines)
    end
    local shorter = without_inputs(program)
    local found = M.run(shorter)
    if agree(found ~= nil) then return shorter, found end
    return program, finding
end

-- The program without lines that fail where a part has a wrong element.
local function without_failing(program)
    for _, line in ipairs(program.lines) do
        if line.of_an_element then program = without(program, find_line(program, line)) end
    end
    return program
end

-- Program `number` of a seed as a captured function, of local tensors on every rank and of global ones; as check.
function M.check_captured(seed, number)
    local program = without_failing(M.draw(seed, number))
    M.everyone = program.list[1].value
    local finding, ran, calls = captured.run(program, false, 4, function(found) return found end)
    if calls and not agree(finding ~= nil) then finding, ran = captured.run(ran, true, calls, agree) end
    if agree(finding ~= nil) then return finding or true, M.text(ran) end
end

-- Program `number` of a seed. On all ranks together: nil, or what is wrong (on a rank that saw nothing: true), and its text.
function M.check(seed, number, shrinks)
    local program = M.draw(seed, number)
    local finding = M.run(program)
    if not agree(finding ~= nil) then return end
    if shrinks then program, finding = shrink(program, finding) end
    return finding or true, M.text(program)
end

return M
