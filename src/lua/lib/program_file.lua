-- program_file.lua -- p:save(path) and flow.program(path): a program with its weights in one safetensors file.
--
-- The weights are the file's tensors, by name; the list is JSON in its metadata, under "flow.program":
--
--     {"version": 1, "values": [{"name", "shape", "dtype", "placement", "sbp"}, ...],
--      "inputs": [{"name", "value", "requires_grad"}], "weights": [the same], "outputs": [{"name", "value"}],
--      "steps": [{"op", "in_place", "in": [{"value": 3}, 0.5, null], "attrs", "options", "out": [7], "draws": [1],
--                 "redraws": 1, "undraws", "no_grad", "line"}],
--      "backward": [["fc.weight"], ...]}
--
-- A value is known by its place in the list. A float that JSON lacks is {"float": "inf"}. A program of gradients is
-- kept as the program that it is made of, and what p:backward(wrt) was asked for, once or several times. A file is not
-- trusted: its list is checked, and then every step is called on the meta device, which checks operands and attributes
-- by the signature of the op and infers the shapes anew; these have to be the ones that are written. Ops that have no
-- name in Lua trust their callers, so a file cannot call them, but for a few that calls from Lua become.

local flow = require "flow"
local check = require "flow.check"
local json = require "flow.json"
local program = require "flow.program"

local io_ = flow._io
local Program = program.Program

local M = {}

local VERSION = 1
local MOST = 1000000        -- values, steps

-- Ops without a name in Lua that x:max(), x[key], x:to(...), nn.Linear and the like become. They check what they get.
local known = {}
for name in ("to_global to_local to_device from_local max_all min_all max_axis min_axis linear_relu linear_gelu " ..
    "wrap_index recurrent"):gmatch "%S+" do
    known[name] = true
end

local function is_internal(op)
    local _, hidden = flow._trace.signature(op)
    return hidden and not known[op]
end

-- ---- writing ----

local function sbp_list(sbp)
    local list = {}
    for word in tostring(sbp):gmatch("[SBP]%(?[%w]*%)?") do list[#list + 1] = word end
    return list
end

local function encode_number(x)
    if math.type(x) ~= "float" or (x == x and x ~= math.huge and x ~= -math.huge) then return x end
    return {float = x ~= x and "nan" or x > 0 and "inf" or "-inf"}
end

local function encode_placement(placement) return {type = placement.type, ranks = placement.ranks} end

local function plain(list)
    local copy = {}
    for i = 1, #list do copy[i] = type(list[i]) == "table" and plain(list[i]) or list[i] end
    return copy
end

local function encode_options(options)
    local copy = {}
    for name, value in pairs(options) do
        if name == "placement" then
            copy[name] = encode_placement(value)
            copy[name].ranks = plain(value.ranks)
        elseif name == "sbp" or name == "grad_sbp" then copy[name] = sbp_list(value)
        else copy[name] = value end
    end
    return next(copy) and copy or nil
end

local function encode_step(step)
    local operands, attrs = {}, {}
    for k = 1, step.n do
        local operand = step.operands[k]
        if operand.value then operands[k] = {value = operand.value}
        elseif operand.number ~= nil then operands[k] = encode_number(operand.number)
        else operands[k] = json.null end
    end
    for name, value in pairs(step.attrs) do
        attrs[name] = type(value) == "number" and encode_number(value) or value
    end
    return {
        op = step.op, in_place = step.in_place or nil, ["in"] = operands, attrs = next(attrs) and attrs or nil,
        options = encode_options(step.options), out = step.outputs, draws = step.draws[1] and step.draws or nil,
        redraws = step.redraws, undraws = step.undraws, no_grad = step.no_grad or nil, line = step.line,
    }
end

local function encode(p)
    local tree = {version = VERSION, values = {}, inputs = {}, weights = {}, outputs = {}, steps = {}}
    for i, value in ipairs(p.values) do
        tree.values[i] = {name = value.name, shape = value.shape, dtype = value.dtype}
        if value.sbp then
            tree.values[i].sbp, tree.values[i].placement = sbp_list(value.sbp), encode_placement(value.placement)
            tree.values[i].placement.ranks = plain(value.placement.ranks)
        end
    end
    for _, kind in ipairs {"inputs", "weights"} do
        for i, entry in ipairs(p[kind]) do
            local requires = entry.requires_grad or entry.tensor and entry.tensor.requires_grad or nil
            tree[kind][i] = {name = entry.name, value = entry.value, requires_grad = requires}
        end
    end
    for i, output in ipairs(p.outputs) do tree.outputs[i] = {name = output.name, value = output.value} end
    for i, step in ipairs(p.steps) do
        if is_internal(step.op) then
            check.fail("save: step %d, %s, is an op that only gradients and optimizers call; save the program of " ..
                "the loss, and take p:backward() of it when it is read", i, step.op)
        end
        tree.steps[i] = encode_step(step)
    end
    return tree
end

-- The program that has to be kept, and what backward was asked for since.
local function origin_of(p)
    local asked = {}
    while p.origin do
        table.insert(asked, 1, p.origin.wrt or json.null)
        p = p.origin.program
    end
    return p, asked[1] and asked or nil
end

---Writes the program and its weights into a safetensors file, which flow.program reads. Every rank calls it.
---@param path string
function Program:save(path)
    local names, tensors = {}, {}
    local p, asked = origin_of(self)
    local tree = encode(p)
    tree.backward = asked
    local text = json.encode(tree)
    for i, weight in ipairs(p.weights) do names[i], tensors[i] = weight.name, weight.tensor end
    local _ <close> = flow.no_grad()
    if io_.save(path, names, tensors, {"flow.program", text}) then
        io_.same("save", "every rank must save the same program", {text})
    end
end

-- ---- reading: the list ----

-- Raises an error about the file; where: "step 3 (matmul)".
local function wrong(job, where, format, ...)
    local text = format:format(...)
    check.fail("program: %s: %s%s%s", job.path, where or "", where and ": " or "", text)
end

local function is_whole(x) return math.type(x) == "integer" end

local function list_of(job, stored, name, where)
    if type(stored) ~= "table" or stored == json.null or not json.is_list(stored) then
        wrong(job, where, "'%s' is not a list", name)
    end
    if #stored > MOST then wrong(job, where, "'%s' has %d entries", name, #stored) end
    return stored
end

local function text_of(job, s, name, where)
    if type(s) ~= "string" or s == "" or #s > 1000 or s:find("%c") or not utf8.len(s) then
        wrong(job, where, "'%s' is not a name", name)
    end
    return s
end

local function known_keys(job, stored, keys, where)
    if type(stored) ~= "table" or stored == json.null then wrong(job, where, "is not an object") end
    for _, key in ipairs(check.sorted_keys(stored)) do
        if not keys[key] then wrong(job, where, "has a key %s that is not known", check.quote(tostring(key))) end
    end
end

local function set(words)
    local keys = {}
    for word in words:gmatch("%S+") do keys[word] = true end
    return keys
end

local function integers(job, stored, name, where, least)
    for _, x in ipairs(list_of(job, stored, name, where)) do
        if not is_whole(x) or x < least then wrong(job, where, "'%s' is not a list of whole numbers", name) end
    end
    return stored
end

local value_keys = set "name shape dtype placement sbp"
local step_keys = set "op in_place in attrs options out draws redraws undraws no_grad line"

local placement_of

local function decode_place(job, stored, where)
    if (stored.placement == nil) ~= (stored.sbp == nil) then wrong(job, where, "placement and sbp go together") end
    if not stored.placement then return nil, nil end
    for _, word in ipairs(list_of(job, stored.sbp, "sbp", where)) do
        if type(word) ~= "string" then wrong(job, where, "'sbp' is not a list of words") end
    end
    return placement_of(job, stored.placement, where), stored.sbp
end

local function nested_ranks(ranks, depth)
    if type(ranks) ~= "table" or depth > 8 then return is_whole(ranks) end
    if ranks == json.null or not json.is_list(ranks) then return false end
    for _, inner in ipairs(ranks) do
        if not nested_ranks(inner, depth + 1) then return false end
    end
    return true
end

function placement_of(job, stored, where)
    known_keys(job, stored, set "type ranks", where)
    if type(stored.type) ~= "string" or type(stored.ranks) ~= "table" or not nested_ranks(stored.ranks, 1) then
        wrong(job, where, "'placement' is not a type and ranks")
    end
    local ok, p = pcall(flow.placement, stored.type, stored.ranks)
    if not ok then wrong(job, where, "%s", (tostring(p):gsub("^[^\n]-:%d+: ", ""))) end
    return p
end

local function decode_value(job, stored, i)
    local where = "value " .. i
    known_keys(job, stored, value_keys, where)
    local placement, sbp = decode_place(job, stored, where)
    return {
        name = text_of(job, stored.name, "name", where), shape = integers(job, stored.shape, "shape", where, 0),
        dtype = text_of(job, stored.dtype, "dtype", where), placement = placement, sbp = sbp,
    }
end

local function value_index(job, k, where, defined)
    if not is_whole(k) or not job.values[k] then wrong(job, where, "there is no value %s", check.got(k)) end
    if defined and not job.defined[k] then wrong(job, where, "value %d is used before it is made", k) end
    return k
end

-- Inputs or weights.
local function decode_entries(job, list, kind, where)
    local entries, names = {}, {}
    for i, stored in ipairs(list_of(job, list, kind)) do
        local at = ("%s %d"):format(where, i)
        known_keys(job, stored, set "name value requires_grad", at)
        local name = text_of(job, stored.name, "name", at)
        if names[name] then wrong(job, at, "has the name of another one, %s", check.quote(name)) end
        if stored.requires_grad ~= nil and type(stored.requires_grad) ~= "boolean" then
            wrong(job, at, "'requires_grad' is neither true nor false")
        end
        local k = value_index(job, stored.value, at)
        if job.defined[k] then wrong(job, at, "value %d is made twice", k) end
        names[name], job.defined[k] = true, true
        entries[i] = {name = name, value = k, requires_grad = stored.requires_grad or nil}
    end
    return entries
end

local floats = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

local function decode_number(job, x, name, where)
    if type(x) == "number" or type(x) == "boolean" then return x end
    if type(x) == "table" and x ~= json.null and next(x) == "float" and next(x, "float") == nil and floats[x.float] then
        return floats[x.float]
    end
    wrong(job, where, "%s is not a number", name)
end

local function decode_operand(job, stored, where)
    if stored == json.null then return {} end
    if type(stored) == "table" and is_whole(stored.value) then
        known_keys(job, stored, set "value", where)
        return {value = value_index(job, stored.value, where, true)}
    end
    return {number = decode_number(job, stored, "an operand", where)}
end

local function decode_attrs(job, stored, where)
    local attrs = {}
    if stored == nil then return attrs end
    if type(stored) ~= "table" or stored == json.null then wrong(job, where, "'attrs' is not an object") end
    for _, name in ipairs(check.sorted_keys(stored)) do
        local value = stored[name]
        if type(name) ~= "string" then wrong(job, where, "'attrs' is not an object") end
        if type(value) == "table" and value ~= json.null and value.float == nil then
            attrs[name] = integers(job, value, name, where, math.mininteger)
        elseif type(value) == "string" then
            attrs[name] = value
        else
            attrs[name] = decode_number(job, value, "'" .. name .. "'", where)
        end
    end
    return attrs
end

local option_kinds = {{"dtype", "string"}, {"device", "string"}, {"requires_grad", "boolean"}}

local function decode_options(job, stored, where)
    local options = {}
    if stored == nil then return options end
    known_keys(job, stored, set "dtype device requires_grad placement sbp grad_sbp", where)
    for _, option in ipairs(option_kinds) do
        local name, kind = option[1], option[2]
        if stored[name] ~= nil and type(stored[name]) ~= kind then wrong(job, where, "'%s' is not a %s", name, kind) end
        options[name] = stored[name]
    end
    options.placement, options.sbp = decode_place(job, stored, where)
    if stored.grad_sbp ~= nil then options.grad_sbp = list_of(job, stored.grad_sbp, "grad_sbp", where) end
    return options
end

local function flag(job, stored, name, where)
    local value = stored[name]
    if value ~= nil and type(value) ~= "boolean" then wrong(job, where, "'%s' is neither true nor false", name) end
    return value or false
end

local function decode_draws(job, stored, step, where)
    for _, number in ipairs(integers(job, stored.draws or {}, "draws", where, 1)) do
        if job.drawn[number] then wrong(job, where, "draw %d is made twice", number) end
        job.drawn[number] = true
    end
    step.draws, step.redraws = stored.draws or {}, stored.redraws
    if stored.redraws ~= nil and not (is_whole(stored.redraws) and job.drawn[stored.redraws]) then
        wrong(job, where, "no step before it makes the draw that it repeats")
    end
end

local function decode_step(job, stored, i)
    local where = "step " .. i
    known_keys(job, stored, step_keys, where)
    local op = text_of(job, stored.op, "op", where)
    where = ("step %d (%s)"):format(i, op)
    if op ~= "detach" and not flow._op[op] then wrong(job, where, "there is no such op") end
    if is_internal(op) then wrong(job, where, "is an op that only gradients and optimizers call") end
    local step = {
        op = op, f = flow._op[op], in_place = flag(job, stored, "in_place", where),
        no_grad = flag(job, stored, "no_grad", where), operands = {},
        undraws = flag(job, stored, "undraws", where), attrs = decode_attrs(job, stored.attrs, where),
        options = decode_options(job, stored.options, where), outputs = {},
        line = type(stored.line) == "string" and io_.clean(stored.line:sub(1, 200)) or "",
    }
    for k, operand in ipairs(list_of(job, stored["in"], "in", where)) do
        step.operands[k] = decode_operand(job, operand, where)
        step.n = k
    end
    step.n = step.n or 0
    if op == "detach" and (step.n ~= 1 or not step.operands[1].value) then wrong(job, where, "takes one value") end
    for k, value in ipairs(list_of(job, stored.out, "out", where)) do
        step.outputs[k] = value_index(job, value, where)
        job.defined[value] = true
    end
    decode_draws(job, stored, step, where)
    return step
end

local function decode(job, text)
    local ok, tree = pcall(json.decode, text)
    if not ok or type(tree) ~= "table" then wrong(job, nil, "its list of steps is not JSON") end
    if tree.version ~= VERSION then
        wrong(job, nil, "its version is %s, this flowlua reads %d", check.got(tree.version), VERSION)
    end
    known_keys(job, tree, set "version values inputs weights outputs steps backward", "the list")
    for i, stored in ipairs(list_of(job, tree.values, "values")) do job.values[i] = decode_value(job, stored, i) end
    local p = {values = job.values, steps = {}, outputs = {}}
    p.inputs = decode_entries(job, tree.inputs, "inputs", "input")
    p.weights = decode_entries(job, tree.weights, "weights", "weight")
    for i, stored in ipairs(list_of(job, tree.steps, "steps")) do p.steps[i] = decode_step(job, stored, i) end
    for i, stored in ipairs(list_of(job, tree.outputs, "outputs")) do
        local where = "output " .. i
        known_keys(job, stored, set "name value", where)
        p.outputs[i] = {
            name = text_of(job, stored.name, "name", where), value = value_index(job, stored.value, where, true),
        }
    end
    p.backward = tree.backward ~= nil and list_of(job, tree.backward, "backward") or {}
    if #p.backward > 8 then wrong(job, nil, "'backward' has %d entries", #p.backward) end
    for i, names in ipairs(p.backward) do
        local where = "backward " .. i
        for _, name in ipairs(names == json.null and {} or list_of(job, names, "names", where)) do
            text_of(job, name, "name", where)
        end
    end
    return p
end

-- ---- reading: weights, and inference ----

local function shape_text(tensor) return ("%s%s"):format(tensor.dtype, check.shape(tensor)) end

local function written_text(value) return ("%s[%s]"):format(value.dtype, table.concat(value.shape, ", ")) end

local function read_weights(job, p, stored, device)
    for i, weight in ipairs(p.weights) do
        local where, value = ("weight %d (%s)"):format(i, weight.name), p.values[weight.value]
        local t = stored[weight.name]
        if not t then wrong(job, where, "is not in the file") end
        if shape_text(t) ~= written_text(value) then
            wrong(job, where, "is %s in the file, and %s in the list", shape_text(t), written_text(value))
        end
    end
    for _, weight in ipairs(p.weights) do
        local value, place = p.values[weight.value], {device = device}
        if value.sbp then
            place = {placement = flow.placement(device or "cpu", value.placement.ranks), sbp = value.sbp}
        end
        local ok, t = pcall(stored[weight.name].read, stored[weight.name], place)
        if not ok then wrong(job, "weight " .. weight.name, "%s", (tostring(t):gsub("^[^\n]-:%d+: ", ""))) end
        weight.tensor = t
        local float = value.dtype:find("float", 1, true)
        if weight.requires_grad and float then weight.tensor.requires_grad = true end
    end
end

local function spec_of(job, value, requires_grad, where)
    local ok, spec = pcall(flow.spec, value.shape, {dtype = value.dtype, placement = value.placement, sbp = value.sbp,
        requires_grad = requires_grad})
    if not ok then wrong(job, where, "%s", (tostring(spec):gsub("^[^\n]-:%d+: ", ""))) end
    return spec
end

-- A result has to be what the list says of it.
local function compare(job, where, tensor, value)
    if not flow.is_tensor(tensor) then wrong(job, where, "has fewer results than are written") end
    local sbp = tensor.is_global and table.concat(sbp_list(tensor.sbp), ", ") or ""
    local written = value.sbp and table.concat(value.sbp, ", ") or ""
    if shape_text(tensor) == written_text(value) and sbp == written then return end
    wrong(job, where, "makes %s%s, and %s%s is written", shape_text(tensor), sbp ~= "" and " as " .. sbp or "",
        written_text(value), written ~= "" and " as " .. written or "")
end

-- The program by calling each step of what was read: on the meta device, in a trace.
local function build(job, p)
    local specs, names, output_names = {}, {}, {}
    for i, input in ipairs(p.inputs) do
        names[i] = input.name
        specs[i] = spec_of(job, p.values[input.value], input.requires_grad, ("input %d (%s)"):format(i, input.name))
    end
    for i, output in ipairs(p.outputs) do output_names[i] = output.name end
    local function check_step(i, step, slots)
        local where = ("step %d (%s)"):format(i, step.op)
        for _, value in ipairs(step.outputs) do compare(job, where, slots[value], p.values[value]) end
    end
    return program.trace_inputs(program.retrace("program: " .. job.path, p, check_step), specs, names, output_names)
end

---Reads a program that p:save wrote, with its weights. device: of the weights, default the CPU. Every rank calls it.
---@param path string
---@param o {device: string?}?
---@return flow.Program
function M.program(path, o)
    local ok, stored, metadata = pcall(flow.load, path, {lazy = true})
    if not ok then check.fail("program: %s", (tostring(stored):gsub("^[^\n]-:%d+: ", ""):gsub("^load: ", ""))) end
    local text = type(metadata) == "table" and metadata["flow.program"]
    local job = {path = path, values = {}, defined = {}, drawn = {}}
    if type(text) ~= "string" then
        check.fail("program: %s holds no program: p:save(path) writes one; flow.load reads tensors", path)
    end
    local p = decode(job, text)
    read_weights(job, p, stored, o.device)
    local built = build(job, p)
    for i, names in ipairs(p.backward) do
        local made, result = pcall(built.backward, built, names ~= json.null and names or nil)
        if not made then wrong(job, "backward " .. i, "%s", (tostring(result):gsub("^[^\n]-:%d+: backward: ", ""))) end
        built = result
    end
    return built
end

check.methods(Program, "p", {"save(path: string)"}, program.is_program)
check.takes(M, {"program(path: string, {device: string?})"})

return check.strict("program_file", M)
