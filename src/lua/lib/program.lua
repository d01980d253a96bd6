-- program.lua -- flow.trace(f, specs): the ops that f calls, as a value that is printed, saved, inferred and run.
--
-- A program is a list of steps over values: inputs, weights (tensors that f reached from outside), and results of steps
-- before. f runs once, on the meta device (program_trace.lua). All that is made of a program is made by calling its ops
-- again, by name: running it (execute, captured, so that the second run is a replay), inferring it for other shapes and
-- differentiating it (execute inside of another trace).

local flow = require "flow"
local check = require "flow.check"
local tracing = require "flow.program_trace"

local trace, capture = flow._trace, flow._program

local M = {}

---A tensor of a program, known by its number.
---@class flow.program.Value
---@field name string "x" of an input, "fc.weight" of a weight, else "%3"
---@field shape integer[]
---@field dtype string
---@field sbp any of a global one
---@field placement any of a global one
---@field bytes integer of this rank's part
---@field storage integer values with the same number share memory

---@class flow.program.Step
---@field op string
---@field in_place boolean
---@field operands {value: integer?, number: any}[] neither: absent
---@field n integer how many operands
---@field attrs table by name
---@field options table dtype, device, placement, sbp, requires_grad
---@field outputs integer[] values
---@field draws integer[] numbers of the random draws that it makes
---@field redraws integer? the draw that it repeats
---@field undraws boolean? what it draws does not count
---@field no_grad boolean
---@field line string of the script

---@class flow.Program
---@field inputs {name: string, value: integer, requires_grad: boolean}[]
---@field outputs {name: string, value: integer}[]
---@field weights {name: string, value: integer, tensor: any}[]
---@field values flow.program.Value[]
---@field steps flow.program.Step[]
local Program = {}
M.Program = Program

local spec_like, is_module = tracing.spec_like, tracing.is_module

---The program of f(...) on the specs. names: of the inputs and outputs; flat: f asks for gradients.
---@return flow.Program
local function trace_inputs(f, specs, names, output_names, flat)
    return setmetatable(tracing.record(f, specs, names, output_names, flat), Program)
end
M.trace_inputs = trace_inputs

-- ---- the arguments of flow.trace ----

-- The names of f's parameters, without a module's self.
local function parameter_names(f)
    local skip = 0
    if is_module(f) then f, skip = check.original(f.forward), 1 end
    local names, i = {}, 1
    while type(f) == "function" do
        local name = debug.getlocal(f, i)
        if not name then break end
        if i > skip then names[#names + 1] = name end
        i = i + 1
    end
    return names
end

local function check_spec(who, name, tensor)
    if not flow.is_tensor(tensor) then
        check.fail("%s: the spec of %s must be flow.spec(shape, dtype), got %s", who, name, check.got(tensor))
    end
    if (tensor.is_global and tensor.placement.type or tensor.device) ~= "meta" then
        check.fail("%s: the spec of %s must be flow.spec(shape, dtype), got a tensor with values; a tensor " ..
            "that f reaches from outside is a weight of the program", who, name)
    end
    return spec_like(tensor)
end

local function named_specs(specs, parameters)
    local list, names, left = {}, {}, {}
    for name in pairs(specs) do
        if type(name) ~= "string" then check.fail("trace: specs must be a list, or named by the parameters of f") end
        left[name] = true
    end
    for _, name in ipairs(parameters) do
        if not left[name] then break end
        left[name] = nil
        list[#list + 1], names[#names + 1] = check_spec("trace", name, specs[name]), name
    end
    local stray = check.sorted_keys(left)[1]
    if stray then
        check.fail("trace: the spec '%s' is none of the first parameters of f (%s)%s", stray,
            table.concat(parameters, ", "), check.suggest(stray, parameters))
    end
    return list, names
end

local function listed_specs(specs, parameters)
    local list, names, taken = {}, {}, {}
    for i, t in ipairs(specs) do
        local name = parameters[i]
        if not name or taken[name] or name:find("^%(") then name = "x" .. i end
        taken[name] = true
        list[i], names[i] = check_spec("trace", name, t), name
    end
    return list, names
end

---Runs f once on tensors without values, and gives the list of the ops that it called.
---@param f function or a module
---@param specs table a list of flow.spec(...), or the same by the names of f's parameters
---@return flow.Program
function M.trace(f, specs, ...)
    check.refuse_colon("trace", f)
    local callable = type(f) == "function" or is_module(f) or (getmetatable(f) or {}).__call
    if not callable or flow.is_tensor(f) or select("#", ...) > 0 or not check.is("list", specs) then
        check.fail("trace: takes a function and its specs: flow.trace(f, {flow.spec({64, 784})})%s",
            flow.is_tensor(f) and "; the sum of a diagonal is x:trace()" or "")
    end
    if trace.active() then
        check.fail("trace: inside of flow.trace; a program that is called there becomes part of it")
    end
    local named = #specs == 0 and next(specs) ~= nil
    local list, names = (named and named_specs or listed_specs)(specs, parameter_names(f))
    local of_module = is_module(f) and function(...) return f(...) end
    local program = trace_inputs(of_module or f, list, names)
    return program
end

-- ---- running ----

local MOST_INPUTS = 32  -- of a captured function

-- The last step that reads or makes each value.
local function last_uses(program)
    local last = {}
    for i, step in ipairs(program.steps) do
        for k = 1, step.n do
            if step.operands[k].value then last[step.operands[k].value] = i end
        end
        for _, value in ipairs(step.outputs) do last[value] = i end
    end
    for _, output in ipairs(program.outputs) do last[output.value] = nil end
    for _, list in ipairs {program.inputs, program.weights} do
        for _, entry in ipairs(list) do last[entry.value] = nil end
    end
    local dying = {}
    for value, i in pairs(last) do
        dying[i] = dying[i] or {}
        table.insert(dying[i], value)
    end
    return dying
end

local function device_type(tensor) return tensor.is_global and tensor.placement.type or tensor.device:match("^%a+") end

-- The options of a step: a tensor traced on the meta device is made where the program runs.
local function options_of(step, place)
    local options = {}
    for name, value in pairs(step.options) do options[name] = value end
    if options.device == "meta" then options.device = place end
    local p = options.placement
    if p and p.type == "meta" and place ~= "meta" then options.placement = flow.placement(place, p.ranks) end
    return options
end

local function run_step(step, slots, drawn, place)
    local operands = {}
    for k = 1, step.n do
        local operand = step.operands[k]
        if operand.value then operands[k] = slots[operand.value] else operands[k] = operand.number end
    end
    if step.op == "detach" then
        slots[step.outputs[1]] = operands[1]:detach()
        return
    end
    local again = step.redraws and drawn[step.redraws]
    local outputs, draws = trace.call(step, operands, options_of(step, place), again and again[1], again and again[2])
    for i, number in ipairs(step.draws) do drawn[number] = {draws[2 * i - 1], draws[2 * i]} end
    for i, value in ipairs(step.outputs) do slots[value] = outputs[i] end
end

---Calls the ops of a program. each(i, step, call, slots): runs step i by call(); default: nothing but the call.
---@return any[] results
function M.execute(program, given, each)
    local slots, drawn, place = {}, {}, nil
    for i, input in ipairs(program.inputs) do
        slots[input.value] = given[i]
        place = place or device_type(given[i])
    end
    for _, weight in ipairs(program.weights) do
        slots[weight.value] = weight.tensor
        if not place or place == "meta" then place = device_type(weight.tensor) end
        tracing.suggest_name(weight.tensor, weight.name)
    end
    place = place or "cpu"
    program.dying = rawget(program, "dying") or last_uses(program)
    for i, step in ipairs(program.steps) do
        if each then each(i, step, function() run_step(step, slots, drawn, place) end, slots)
        else run_step(step, slots, drawn, place) end
        for _, value in ipairs(program.dying[i] or {}) do slots[value] = nil end
    end
    local results = {}
    for i, output in ipairs(program.outputs) do results[i] = slots[output.value] end
    return results
end

---"float32[64, 784]", of a global tensor " as S(0)".
function M.type_text(tensor)
    local text = tensor.dtype .. "[" .. table.concat(tensor.shape, ", ") .. "]"
    return tensor.sbp and text .. " as " .. tostring(tensor.sbp) or text
end

local function described(tensor)
    return M.type_text {dtype = tensor.dtype, shape = tensor.shape, sbp = tensor.is_global and tensor.sbp or nil}
end

---An error unless these are inputs for the program. who: the beginning of messages, "profile: " or "".
function M.check_given(program, given, count, who)
    if count ~= #program.inputs then
        check.fail("%sa program of %d input%s was called with %d argument%s", who, #program.inputs,
            #program.inputs == 1 and "" or "s", count, count == 1 and "" or "s")
    end
    for i, input in ipairs(program.inputs) do
        local t, value = given[i], program.values[input.value]
        if not flow.is_tensor(t) then
            check.fail("%sthe input '%s' must be a tensor, got %s", who, input.name, check.got(t))
        end
        local wanted, is = M.type_text(value), described(t)
        if wanted ~= is then
            check.fail("%sthe input '%s' is %s, the program was made for %s; p:infer{...} gives it for other shapes",
                who, input.name, is, wanted)
        end
    end
end

---The results of f, without gradients: those come from p:backward(), or if the program is called in a function that is
---captured or traced, whose part it then is.
function Program:__call(...)
    local given, count = {...}, select("#", ...)
    M.check_given(self, given, count, "")
    if trace.active() or capture.recording then return table.unpack(M.execute(self, given), 1, #self.outputs) end
    if not rawget(self, "replay") then
        self.replay = flow.capture(function(...) return M.execute(self, {...}) end, {strict = false})
    end
    local _ <close> = flow.no_grad()
    for i, t in ipairs(given) do given[i] = t.requires_grad and t:detach() or t end
    if count > MOST_INPUTS then return table.unpack(M.execute(self, given), 1, #self.outputs) end
    return table.unpack(self.replay(table.unpack(given, 1, count)), 1, #self.outputs)
end

-- ---- programs of programs ----

local function input_names(program)
    local names = {}
    for i, input in ipairs(program.inputs) do names[i] = input.name end
    return names
end

-- The error of a step that fails, with the step and its line.
local function step_error(who, i, step, message)
    local text = tostring(message):gsub("^[^\n]-:%d+: ", "")
    local line = step.line ~= "" and " (" .. step.line .. ")" or ""
    check.fail("%s: step %d, %s%s: %s", who, i, step.op, line, text)
end

---A program's ops once more, as part of the trace that is on, each with its own line. each(i, step, slots): called
---after step i with the tensors by value.
function M.retrace(who, program, each)
    return function(...)
        local results = M.execute(program, {...}, function(i, step, call, slots)
            tracing.set_line(step.line)
            local ok, message = pcall(call)
            tracing.set_line(nil)
            if not ok then step_error(who, i, step, message) end
            if each then each(i, step, slots) end
        end)
        return table.unpack(results, 1, #program.outputs)
    end
end

local function input_position(program, key)
    if math.type(key) == "integer" and program.inputs[key] then return key end
    for i, input in ipairs(program.inputs) do
        if input.name == key then return i end
    end
    check.fail("infer: the program has no input %s%s", check.got(key), check.suggest(key, input_names(program)))
end

local function names_of(list)
    local names = {}
    for i, entry in ipairs(list) do names[i] = entry.name end
    return names
end

---The same program for inputs of other shapes: each step is inferred anew. Sizes that are attributes of a step, as
---those of a reshape without -1, stay as they are: where they do not fit, the error names the step.
---@param shapes table by name or position: a shape, or a flow.spec
---@return flow.Program
function Program:infer(shapes)
    local specs = {}
    for i, input in ipairs(self.inputs) do
        local value = self.values[input.value]
        specs[i] = {shape = value.shape, dtype = value.dtype, sbp = value.sbp, placement = value.placement,
            requires_grad = input.requires_grad}
    end
    for key, shape in pairs(shapes) do
        local i = input_position(self, key)
        if flow.is_tensor(shape) then specs[i] = check_spec("infer", self.inputs[i].name, shape)
        elseif type(shape) == "table" then specs[i].shape = shape
        else check.fail("infer: the shape of '%s' must be a list, got %s", self.inputs[i].name, check.got(shape)) end
    end
    for i, spec in ipairs(specs) do specs[i] = spec_like(spec) end
    return trace_inputs(M.retrace("infer", self), specs, names_of(self.inputs), names_of(self.outputs))
end

local function is_float(tensor) return tensor.dtype:find("float", 1, true) ~= nil end

-- The names that backward gives gradients of, as two sets: those that are asked for, or all that require grad, or else
-- the inputs that could.
local function wanted_names(program, asked)
    local known, wanted, any = {}, {}, false
    for _, list in ipairs {program.inputs, program.weights} do
        for _, entry in ipairs(list) do
            local requires = entry.requires_grad or entry.tensor and entry.tensor.requires_grad
            known[entry.name] = true
            if not asked and requires then wanted[entry.name], any = true, true end
        end
    end
    for _, name in ipairs(asked or {}) do
        if not known[name] then
            check.fail("backward: the program has no input or weight %s%s", check.got(name),
                check.suggest(name, check.sorted_keys(known)))
        end
        wanted[name], any = true, true
    end
    for _, input in ipairs(any and {} or program.inputs) do
        wanted[input.name] = is_float(program.values[input.value]) or nil
    end
    return wanted
end

-- The outputs that have gradients, and the inputs that bring these: none for a single number.
local function seeds_of(program, specs, names)
    local single = #program.outputs == 1 and #program.values[program.outputs[1].value].shape == 0
    if single then return end
    for i, output in ipairs(program.outputs) do
        local value = program.values[output.value]
        if is_float(value) then
            specs[#specs + 1] = spec_like(value)
            names[#names + 1] = #program.outputs == 1 and "grad" or "grad" .. i
        end
    end
end

---The program of the gradients: of the weights and inputs that require grad (else of all float inputs), or of those
---named in wrt. It has the inputs of this one and, unless this one gives a single number, the gradient of each float
---result. Nothing is differentiated as formulas: the ops run on the meta device, and so does backward.
---@param wrt string[]? names of inputs and weights
---@return flow.Program
function Program:backward(wrt)
    local wanted, specs, names = wanted_names(self, wrt), {}, names_of(self.inputs)
    for i, input in ipairs(self.inputs) do
        specs[i] = spec_like(self.values[input.value], wanted[input.name])
    end
    seeds_of(self, specs, names)
    local count, found, missing = #self.inputs, {}, {}
    local forward = M.retrace("backward", self)
    local function gradients(...)
        local given, ys, xs, from = {...}, {}, {}, {}
        local results = {forward(table.unpack(given, 1, count))}
        local seeds = #given > count and table.pack(table.unpack(given, count + 1)) or nil
        local kept = {}
        for _, y in ipairs(results) do
            if is_float(y) then
                local seed = seeds and seeds[#kept + 1]
                kept[#kept + 1] = y
                if y.requires_grad then ys[#ys + 1], from[#ys + 1] = y, seed end
            end
        end
        if #ys == 0 then check.fail("backward: no result of the program depends on %s by ops with gradients",
            table.concat(check.sorted_keys(wanted), ", ")) end
        local list = {}
        for i, input in ipairs(self.inputs) do
            if wanted[input.name] then list[#list + 1] = {name = input.name, tensor = given[i]} end
        end
        for _, weight in ipairs(self.weights) do
            if wanted[weight.name] then list[#list + 1] = {name = weight.name, tensor = weight.tensor} end
        end
        for i, entry in ipairs(list) do xs[i] = entry.tensor end
        local got = flow.grad(ys, xs, {grad_outputs = seeds and from or nil, allow_unused = true})
        local out = {}
        for i, entry in ipairs(list) do
            if got[i] then
                out[#out + 1] = got[i]
                found[#found + 1] = entry.name
            else
                missing[#missing + 1] = entry.name
            end
        end
        if wrt and missing[1] then check.fail("backward: no result depends on '%s'", missing[1]) end
        return table.unpack(out)
    end
    local program = trace_inputs(gradients, specs, names, nil, true)
    for i, output in ipairs(program.outputs) do output.name = found[i] end
    program.origin = {program = self, wrt = wrt}
    return program
end

M.is_program = check.methods(Program, "p", {
    "infer(shapes: list)",
    "backward(wrt: list?)",
})

-- Other modules have the rest of the methods.
local homes = {
    dot = "program_draw", svg = "program_draw", memory = "program_plan", profile = "program_plan",
    save = "program_file",
}

function Program.__index(_, name)
    local method = rawget(Program, name)
    if method ~= nil or type(name) ~= "string" then return method end
    if homes[name] then
        require("flow." .. homes[name])
        return rawget(Program, name)
    end
    if name == "replay" or name == "dying" or name == "origin" then return nil end
    check.fail("a program has no '%s'%s", name, check.suggest(name, {"inputs", "outputs", "weights", "values", "steps",
        "infer", "backward", "dot", "svg", "memory", "profile", "save"}))
end

function Program:__tostring() return require("flow.program_print").text(self) end
Program.__name = "flow.program"

return check.strict("program", M)
