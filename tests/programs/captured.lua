-- captured.lua -- random programs as captured functions: replays give the bits of the function itself.
--
-- A program's inputs are arguments; those with a gradient, and some others, are tensors that it reaches by itself. Lines
-- that fail, or that cannot be captured, are left out. Then the function is called with other values in the same shapes,
-- captured and as it is, with equal seeds: results, gradients, what was written, and the generator after it are equal.
-- Every third program reads values in between, and does what depends on them.
local flow = require "flow"
local parts = require "tests.programs.parts"

local hash, whole_value, global_value, layout = parts.hash, parts.whole_value, parts.global_value, parts.layout

local M = {captured = 0, refused = 0, lines = 0}

-- Values of all inputs at a call.
local function inputs_at(program, call, is_global)
    local values = {}
    for i, input in ipairs(program.inputs) do
        local spec = setmetatable({seed = hash(input.spec.seed, call)}, {__index = input.spec})
        local value = whole_value(spec)
        local t = is_global and global_value(spec, program.list[spec.place], value) or layout(value, spec.layout)
        values[i] = t:detach()
    end
    return values
end

-- True for inputs that the function reaches by itself: copies of the values that each call has are put there.
local function is_bound(program, i)
    return program.inputs[i].spec.grad or hash(program.number, i, 5) % 4 == 0
end

local function bind(program, values, bound)
    for i, t in ipairs(values) do
        if is_bound(program, i) then
            bound[i] = t:clone()
            if program.inputs[i].spec.grad then bound[i].requires_grad = true end
        end
    end
    return bound
end

local function environment(program, is_global)
    return is_global and parts.global_environment(program.list) or parts.local_environment()
end

-- One number of all that has a gradient.
local function loss_of(program, env, is_global)
    local loss
    local function add(name)
        local t = env[name]
        if not flow.is_tensor(t) or not t.requires_grad then return end
        local term = (t:to "float64" * 0.3):tanh():sum()
        if is_global then term = term:to_global {placement = program.list[1].value, sbp = "B"} end
        loss = loss and loss + term or term
    end
    for _, input in ipairs(program.inputs) do add(input.name) end
    for _, line in ipairs(program.lines) do
        for _, name in ipairs(line.results) do add(name) end
    end
    return loss
end

local function backward(program, env, bound, is_global)
    local loss = loss_of(program, env, is_global)
    if not loss then return end
    local leaves, sum = {}, nil
    for i, input in ipairs(program.inputs) do if input.spec.grad then leaves[#leaves + 1] = bound[i] end end
    if not program.twice then return loss:backward() end
    for _, g in pairs(flow.grad(loss, leaves, {create_graph = true, allow_unused = true})) do
        if flow.is_tensor(g) and g.requires_grad then
            local term = g:to "float64":tanh():square():sum()
            if is_global then term = term:to_global {placement = program.list[1].value, sbp = "B"} end
            sum = sum and sum + term or term
        end
    end
    if sum and sum.requires_grad then sum:backward() end
end

local function reads(program) return hash(program.number, 13) % 3 == 0 end

-- After some lines: a value is read, and decides whether an op is called.
local function read_after(program, n, env, line, is_global, results)
    local t = env[line.results[#line.results] or ""]
    if hash(program.number, n, 7) % 3 > 0 or not flow.is_tensor(t) then return end
    local sum = (t:detach():to "float64":sigmoid() * 5):sum()
    if is_global then sum = sum:to_global {placement = program.list[1].value, sbp = "B"} end
    local value = sum:item()
    results[#results + 1] = value
    if value == value and value // 1 % 2 == 0 then results[#results + 1] = t + 1 end
end

-- The program as a function of the inputs that are not bound. note: called with a line that fails and its message.
local function function_of(program, bound, is_global, note)
    return function(...)
        local env, given, n, results = environment(program, is_global), {...}, 0, {}
        for i, input in ipairs(program.inputs) do
            if not is_bound(program, i) then n = n + 1 end
            env[input.name] = is_bound(program, i) and bound[i] or given[n]
        end
        for position, line in ipairs(program.lines) do
            line.chunk = line.chunk or assert(load("local _ENV = ... " .. (line.statement and "" or "return ") .. line.text, "=line"))
            local given_back = table.pack(pcall(line.chunk, env))
            if not given_back[1] then note(line, tostring(given_back[2])) end
            local list = {}
            local function flatten(value)
                if type(value) == "table" then for i = 1, value.n or #value do flatten(value[i]) end
                else list[#list + 1] = value end
            end
            for i = 2, given_back.n do flatten(given_back[i]) end
            for i, name in ipairs(line.results) do
                if not line.statement then env[name] = list[i] end
            end
            if reads(program) then read_after(program, position, env, line, is_global, results) end
        end
        if program.gradients then
            if hash(program.number, 9) % 2 == 0 then
                for i, input in ipairs(program.inputs) do if input.spec.grad then bound[i].grad = nil end end
            end
            local ok, message = pcall(backward, program, env, bound, is_global)
            if not ok then note(nil, tostring(message)) end
        end
        for _, line in ipairs(program.lines) do
            for _, name in ipairs(line.results) do
                if flow.is_tensor(env[name]) and #results < 60 then results[#results + 1] = env[name] end
            end
        end
        return results
    end
end

-- Bits of a tensor, this rank's part of it, as text; a NaN has one text.
local function bits(t)
    if not flow.is_tensor(t) then return tostring(t) end
    local text = {t.dtype, table.concat(t.shape, ","), t.is_global and tostring(t.sbp) or ""}
    t = t:detach()
    if t.is_global then t = t:to_local() end
    for _, v in ipairs(t:reshape(-1):totable()) do
        text[#text + 1] = type(v) == "number" and (v ~= v and "nan" or ("%a"):format(v)) or tostring(v)
    end
    return table.concat(text, " ")
end

-- The results of a call, and the values that it leaves, as a list of texts.
local function outcome(program, f, bound, values, seed)
    local given, list = {}, {}
    for i, t in ipairs(values) do
        if is_bound(program, i) then flow.no_grad(function() bound[i]:copy_(t) end)
        else given[#given + 1] = t end
    end
    flow.manual_seed(seed)
    local ok, results = pcall(f, table.unpack(given))
    local read, message = ok, results
    if ok then
        read, message = pcall(function() -- queued errors are raised here
            for _, t in ipairs(results) do list[#list + 1] = bits(t) end
            for i, t in ipairs(given) do list[#list + 1] = "argument " .. i .. " " .. bits(t) end
            for i, t in pairs(bound) do
                list[#list + 1] = "bound " .. i .. " " .. bits(t)
                if t.requires_grad then list[#list + 1] = "gradient " .. i .. " " .. bits(t.grad) end
            end
            list[#list + 1] = "next " .. bits(flow.rand(1))
        end)
    end
    if not read then return {"error: " .. tostring(message):gsub("\n.*", "")}, false end
    return list, true
end

-- Arguments that are written must be contiguous.
local function contiguous(values)
    for i, t in ipairs(values) do values[i] = t:contiguous() end
end

local function without(program, line)
    local gone, lines = {}, {}
    for _, l in ipairs(program.lines) do
        local drop = l == line
        for _, name in ipairs(parts.names_in(l.text)) do drop = drop or gone[name] end
        if drop then
            for _, name in ipairs(l.results) do gone[name] = true end
        else lines[#lines + 1] = l end
    end
    return setmetatable({lines = lines}, {__index = program})
end

-- Runs it as it is and captured, `calls` times; agree: true if something is so on any rank. Returns nil or a complaint; the
-- program that was captured; the number of calls that went well.
function M.run(program, is_global, calls, agree)
    for _ = 1, #program.lines + 2 do
        local first = inputs_at(program, 1, is_global)
        contiguous(first)
        local failing, why
        local function note(line, message)
            failing, why = failing or line or false, why or message
            error(message, 0)
        end
        local mine = bind(program, first, {})
        local eager = function_of(program, mine, is_global, note)
        local want, fine = outcome(program, eager, mine, first, 100)
        if not fine or agree(not fine) then
            if agree(failing == nil) then return nil, program end
            if failing == false then program = setmetatable({gradients = false, lines = program.lines}, {__index = program})
            else program = without(program, failing) end
            if #program.lines == 0 then return nil, program end
            goto next
        end
        local theirs = bind(program, first, {})
        failing, why = nil, nil
        local step = flow.capture(function_of(program, theirs, is_global, note), {strict = not reads(program)})
        local got, captured = outcome(program, step, theirs, first, 100)
        if agree(not captured) then
            if agree(not why and not captured and not got[1]:find "capture:") then return got[1], program end
            if not agree(failing ~= nil) then M.refused = M.refused + 1 return nil, program end
            if why and not why:find("capture", 1, true) then return "recorded: " .. why, program end
            M.refused = M.refused + 1
            if failing == false then return nil, program end
            program = without(program, failing)
            if #program.lines == 0 then return nil, program end
            goto next
        end
        M.captured, M.lines = M.captured + 1, M.lines + #program.lines
        for call = 1, calls do
            local finding
            if call > 1 then
                local values = inputs_at(program, call, is_global)
                local others = inputs_at(program, call, is_global)
                contiguous(values)
                contiguous(others)
                want, fine = outcome(program, eager, mine, values, 100 + call)
                got, captured = outcome(program, step, theirs, others, 100 + call)
            end
            if fine ~= captured then finding = ("call %d: %s; as it is: %s"):format(call, got[1], want[1])
            elseif fine then
                for i = 1, math.max(#want, #got) do
                    if want[i] ~= got[i] then
                        finding = finding or ("call %d, %d:\n%s\nas it is\n%s"):format(call, i, tostring(got[i]), tostring(want[i]))
                    end
                end
            end
            if agree(finding ~= nil) then return finding or true, program end
            if agree(not fine) then return nil, program, call - 1 end
        end
        do return nil, program, calls end
        ::next::
    end
    return nil, program
end

return M
