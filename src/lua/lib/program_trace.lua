-- program_trace.lua -- f runs on the meta device, and what it calls becomes the lists of a program.
--
-- Dispatch reports each op as f called it (flow._trace, src/lua/bind/trace.c): its operands, attributes and results.
-- Tensors are known by what they are in memory: the object, or else its place, since the tape keeps copies of objects.

local flow = require "flow"
local check = require "flow.check"

local trace, capture = flow._trace, flow._program

local M = {}

-- ---- the events of a trace ----

local function plain_list(list)
    local copy = {}
    for i = 1, #list do copy[i] = list[i] end
    return copy
end

-- A new value for a tensor on the meta device.
local function new_value(job, tensor)
    local id, place, storage = trace.identity(tensor)
    local storages = job.storages
    if not storages[storage] then
        storages.n = storages.n + 1
        storages[storage] = storages.n
    end
    local index = #job.values + 1
    job.values[index] = {
        shape = plain_list(tensor.shape), dtype = tensor.dtype, bytes = trace.bytes(tensor),
        storage = storages[storage],
        placement = tensor.is_global and tensor.placement or nil, sbp = tensor.is_global and tensor.sbp or nil,
    }
    job.by_id[id], job.by_place[place], job.held[index] = index, index, tensor
    return index
end

-- The value that a tensor is: that object, or one with the same elements (what the tape keeps is a copy of the object).
local function find(job, tensor)
    local id, place = trace.identity(tensor)
    return job.by_id[id] or job.by_place[place]
end

local function add_weight(job, event)
    local index = new_value(job, event.stand_in)
    job.weights[#job.weights + 1] = {value = index, tensor = event.weight}
end

local function add_step(job, step)
    step.line = job.line or step.line
    job.steps[#job.steps + 1] = step
end

-- The tensor that a step fills was made without an op.
local function add_empty(job, tensor)
    local options = {dtype = tensor.dtype, device = not tensor.is_global and "meta" or nil}
    if tensor.is_global then options.placement, options.sbp = tensor.placement, tensor.sbp end
    local index = new_value(job, tensor)
    add_step(job, {
        op = "empty", in_place = false, operands = {}, n = 0, attrs = {size = plain_list(tensor.shape)},
        options = options, outputs = {index}, draws = {}, no_grad = true, line = "",
    })
    return index
end

local function operand_of(job, event, i)
    local given = event.operands[i]
    if not flow.is_tensor(given) then return {number = given} end
    local value = find(job, given)
    if not value and event.overwrites and i == 1 then value = add_empty(job, given) end
    if not value then           -- a weight of a model without values: name_all finds its name or fails
        value = new_value(job, given)
        job.weights[#job.weights + 1] = {value = value, tensor = given, op = event.op, line = event.line}
    end
    return {value = value}
end

local function add_event(job, event)
    if event.weight then return add_weight(job, event) end
    if event.undraws then
        job.steps[#job.steps].undraws = true
        return
    end
    local step = {
        op = event.op, f = flow._op[event.op], in_place = event.in_place or false, elementwise = event.elementwise,
        n = event.n, attrs = event.attrs, options = event.options, redraws = event.redraws, no_grad = event.no_grad,
        line = event.line, draws = event.draws, flops = event.flops, operands = {}, outputs = {},
    }
    for i = 1, event.n do step.operands[i] = operand_of(job, event, i) end
    for i, tensor in ipairs(event.outputs) do
        step.outputs[i] = event.writes and find(job, tensor) or new_value(job, tensor)
    end
    add_step(job, step)
end

-- ---- names ----

---@return boolean
function M.is_module(value)
    return type(value) == "table" and require("flow.module").is_module(value)
end

-- The modules that f is or has as a variable come first, then those that were called.
local function roots_of(job, f)
    local roots = {}
    if M.is_module(f) then roots[1] = {module = f, name = ""} end
    local i = 1
    while type(f) == "function" do
        local name, value = debug.getupvalue(f, i)
        if not name then break end
        if M.is_module(value) then roots[#roots + 1] = {module = value, name = name} end
        i = i + 1
    end
    for _, module in ipairs(job.modules) do roots[#roots + 1] = {module = module, name = ""} end
    return roots
end

-- Names by tensor: those of parameters and buffers, with the variable's name before where two modules are called.
local function known_names(job, f)
    local names, roots = job.names, roots_of(job, f)
    local variables = 0
    for _, root in ipairs(roots) do variables = variables + (root.name ~= "" and 1 or 0) end
    local function add(root, name, tensor)
        local id = trace.identity(tensor)
        if root.name ~= "" and variables > 1 then name = root.name .. "." .. name end
        names[id] = names[id] or name
    end
    for _, root in ipairs(roots) do
        for name, tensor in root.module:named_parameters() do add(root, name, tensor) end
        for name, tensor in root.module:named_buffers() do add(root, name, tensor) end
    end
    return names
end

local function name_all(job, f, inputs)
    local names, taken, count, w = known_names(job, f), {}, 0, 0
    for _, input in ipairs(inputs) do
        taken[input.name] = true
        job.values[input.value].name = input.name
    end
    for _, weight in ipairs(job.weights) do
        local name = names[trace.identity(weight.tensor)]
        if weight.op and not name then
            check.fail("trace: %s%s reads a tensor on the meta device that is neither an input of the program nor a " ..
                "weight of a module that f calls", weight.op, weight.line ~= "" and " (" .. weight.line .. ")" or "")
        end
        weight.op, weight.line = nil, nil
        while not name or taken[name] do
            w = w + 1
            name = "w" .. w
        end
        taken[name], weight.name, job.values[weight.value].name = true, name, name
    end
    for _, value in ipairs(job.values) do
        if not value.name then
            count = count + 1
            value.name = "%" .. count
        end
    end
end

-- ---- tracing ----

local job_now -- of the trace that is on

local function new_job()
    return {
        values = {}, steps = {}, weights = {}, by_id = {}, by_place = {}, held = {}, storages = {n = 0}, modules = {},
        names = {},
    }
end

-- Calls f(...) while `job` records it; its results in a table, or an error. nil: it has to be done again, flat.
local function listen(job, flat, f, ...)
    if capture.recording then
        check.fail("trace: a function that flow.capture records cannot trace; trace before it")
    end
    local function stand_ins(...)
        local results = table.pack(...)
        for i = 1, results.n do
            if not flow.is_tensor(results[i]) then
                check.fail("trace: f must return tensors, result %d is %s", i, check.got(results[i]))
            end
            results[i] = trace.stand_in(results[i])
        end
        return results
    end
    job_now = job
    local again, ok, results = trace.listen(function(event) add_event(job, event) end,
        function(module) job.modules[#job.modules + 1] = module end, flat,
        function(...) return stand_ins(f(...)) end, ...)
    job_now = nil
    if again and not flat then return nil end
    if not ok then error(results, 0) end
    return results
end

---A new spec like another one, or like a value.
function M.spec_like(tensor, requires_grad)
    local options = {dtype = tensor.dtype, requires_grad = requires_grad or tensor.requires_grad or nil}
    if tensor.placement then options.placement, options.sbp = tensor.placement, tensor.sbp end
    return flow.spec(tensor.shape, options)
end

---The lists of the program of f(...) on the specs. names: of the inputs and outputs; flat: f asks for gradients.
---@return table
function M.record(f, specs, names, output_names, flat)
    local job, inputs, tensors = new_job(), {}, {}
    for i, given in ipairs(specs) do
        local spec = M.spec_like(given)
        tensors[i] = spec
        inputs[i] = {name = names[i], value = new_value(job, spec), requires_grad = spec.requires_grad or nil}
    end
    local results, outputs = listen(job, flat, f, table.unpack(tensors, 1, #specs)), {}
    if not results then return M.record(f, specs, names, output_names, true) end
    for i = 1, results.n do
        local value = find(job, results[i])
        if not value then check.fail("trace: result %d is a tensor on the meta device that f did not make", i) end
        outputs[i] = {value = value}
    end
    name_all(job, f, inputs)
    for i, output in ipairs(outputs) do
        output.name = output_names and output_names[i] or job.values[output.value].name
    end
    return {inputs = inputs, outputs = outputs, weights = job.weights, values = job.values, steps = job.steps}
end

---Suggests a name in the current trace for a weight of a program that is called in it.
function M.suggest_name(tensor, name)
    local id = job_now and trace.identity(tensor)
    if id then job_now.names[id] = job_now.names[id] or name end
end

---Steps have this line from now on; nil: that of the script.
function M.set_line(line) job_now.line = line end

return check.strict("program_trace", M)
