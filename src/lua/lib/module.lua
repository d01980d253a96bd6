-- module.lua -- Module, the class of all parts of a network that own parameters: its parameters and buffers, where they
-- are stored, their state, and its text.

local flow = require "flow"
local check = require "flow.check"
local class = require "flow.module_class"
local ordered = require "flow.ordered"

local Module, is_tensor = class.Module, check.is_tensor
local FIELDS, ORDER, KINDS, GATHERED = class.FIELDS, class.ORDER, class.KINDS, class.GATHERED
local TRANSIENT = class.TRANSIENT
local class_name, is_number_in_text = class.class_name, class.is_number_in_text
local own_children, join, walk, collect = class.own_children, class.join, class.walk, class.collect

local M = {
    Module = Module, FIELDS = FIELDS, is_module = class.is_module, is_class = class.is_class, fields = class.fields,
    class_hint = class.class_hint, run = class.run, is_hooked = class.is_hooked,
}

-- ---- parts by name ----

local function values(map)
    local list = {}
    for _, value in map do list[#list + 1] = value end
    return list
end

-- The parameters there are.
local function present(self)
    local list = {}
    class.walk_tensors(self, {parameter = true}, function(_, _, p) list[#list + 1] = p end)
    return list
end

---Names and tensors in order: `for name, p in net:named_parameters() do`. An error where a lazy layer has none yet.
function Module:named_parameters()
    if class.lazy then class.lazy.refuse(self, "named_parameters") end
    return collect(self, {parameter = true})
end

---The same without names, for an optimizer. A lazy layer (LazyLinear) has none before its first call: an error, since
---an optimizer would not train it.
---@return any[]
function Module:parameters()
    if class.lazy then class.lazy.refuse(self, "parameters") end
    return present(self)
end

---Number of elements of all parameters.
---@return integer
function Module:count_parameters()
    local count = 0
    for _, p in self:named_parameters() do count = count + p:numel() end
    return count
end

function Module:named_buffers() return collect(self, {buffer = true}) end

---@return any[]
function Module:buffers() return values(self:named_buffers()) end

function Module:named_children() return own_children(self) end

---@return flow.nn.Module[]
function Module:children() return values(own_children(self)) end

---The module itself (named "") and all below it.
function Module:named_modules()
    local result = ordered.new()
    walk(self, function(name, module) result[name] = module end)
    return result
end

---@return flow.nn.Module[]
function Module:modules() return values(self:named_modules()) end

---Calls f with every module below this one and then with this one.
function Module:apply(f)
    for _, child in ipairs(self:children()) do child:apply(f) end
    f(self)
    return self
end

-- ---- parameters and buffers ----

---A tensor as a parameter: a leaf that requires grad.
---@param t any
---@param requires_grad boolean? default true
function M.Parameter(t, requires_grad)
    local parameter = t:detach()
    parameter.requires_grad = requires_grad
    return parameter
end

---A tensor as a buffer: a field of a module that it is assigned to is moved with the module and not trained, and is in
---its states unless `persistent` is false.
---@param t any
---@param opts {persistent: boolean}?
function M.Buffer(t, opts)
    local buffer = t:detach()
    class.buffers[buffer] = opts.persistent
    return buffer
end

-- Names of tensors are joined by dots.
-- Makes the field `name` a parameter or a buffer. A field of that name and of another kind is not replaced.
local function register(self, who, kind, name, t)
    if name == "" or name:find("[.%c]") then
        check.fail("%s: a name must not be empty or contain a dot, got %s", who, check.quote(name))
    elseif is_number_in_text(self, name) then
        check.fail("%s: a name must not be a number, got %s; assign by the number: module[%d] = ...", who,
            check.quote(name), tonumber(name))
    elseif type(rawget(Module, name)) == "function" then
        check.fail("%s: '%s' is a method of modules; a field needs another name", who, name)
    end
    class.check_free(self, who, kind, name)
    self[name] = nil
    self[KINDS][name] = kind
    self[name] = t
end

---A tensor that is moved with the module, but not trained. Unless it is persistent no state has it.
function Module:register_buffer(name, t, persistent)
    register(self, "register_buffer", "buffer", name, t)
    class.set_persistent(self, name, persistent)
end

---A parameter that may be frozen (requires_grad = false) and remains a parameter.
function Module:register_parameter(name, t)
    register(self, "register_parameter", "parameter", name, t)
end

---A child by name.
function Module:register_module(name, module)
    register(self, "register_module", "module", name, module)
end

function Module:add_module(name, module)
    register(self, "add_module", "module", name, module)
end

-- visit(part, key, t, name, kind) for every place that holds a parameter or buffer.
local function each_tensor(module, visit)
    walk(module, function(prefix, part)
        for _, key in ipairs(part[ORDER]) do
            local kind, t = part[KINDS][key], part[FIELDS][key]
            if t ~= nil and (kind == "parameter" or kind == "buffer") then
                visit(part, key, t, join(prefix, tostring(key)), kind)
            end
        end
    end)
end

-- An nd-SBP as a list of names; "B" alone stands for every hierarchy axis.
local function entries_of(sbp, placement)
    local list = {}
    if type(sbp) == "string" then sbp = {sbp} end
    for k = 1, #sbp do list[k] = tostring(sbp[k]) end
    if #list == 1 and list[1] == "B" then
        for k = 2, #placement.hierarchy do list[k] = "B" end
    end
    return list
end

-- Replaces every parameter and buffer by what f makes of it; a tensor used twice is still used twice. When f fails for
-- one of them, all stay.
local function convert(module, f)
    local made = {}
    local _ <close> = flow.no_grad()
    each_tensor(module, function(_, _, tensor)
        if made[tensor] ~= nil then return end
        local new = f(tensor)
        if not rawequal(new, tensor) then
            new = new:detach()
            new.requires_grad = tensor.requires_grad
        end
        made[tensor] = new
    end)
    each_tensor(module, function(part, key, t) part[FIELDS][key] = made[t] or t end)
    flow._program.changed()
    return module
end

-- True of a tensor on the meta device, which has no values; not where a script is planned, which needs none.
local function is_meta(tensor)
    return (tensor.is_global and tensor.placement.type or tensor.device) == "meta" and not flow._plan.on
end

---Moves to a device ("cpu", "cuda:1", "meta") or a dtype (float tensors only). Creates new parameters, so call it
---before creating an optimizer. On "meta" parameters take no memory and have no values: to_empty leads back.
---@param where string
function Module:to(where)
    flow.empty(0):to(where)     -- an error about `where` comes first, whatever the module holds
    local is_device = where:match("^cpu") or where:match("^cuda") or where == "meta"
    for name, p in (is_device or where:match("float")) and ordered.new() or collect(self, {parameter = true}) do
        if p.requires_grad then check.fail("to: '%s' requires grad and cannot become %s", name, where) end
    end
    each_tensor(self, function(_, _, t, name)
        if not is_device or where == "meta" or not is_meta(t) then return end
        check.fail("to: '%s' is on the meta device and has no values; write module:to_empty(%q), then initialise or " ..
            "load the parameters", name, where)
    end)
    return convert(self, function(t)
        if where == t.device or where == t.dtype or not (is_device or t.dtype:match("float")) then return t end
        return t:to(where)
    end)
end

---Makes all parameters and buffers anew on a device, with undefined values: to be initialised, or loaded by
---load_state_dict. Global ones stay on their ranks. A large model is made so: flow.with_device("meta", make), then
---to_global{...}, and this brings about only what each rank keeps.
---@param where string
function Module:to_empty(where)
    local usable, reason = pcall(flow.empty, 0, {device = where})
    if not usable then check.fail("to_empty: %s", (tostring(reason):gsub("^[^\n]-:%d+: ", ""):gsub("^empty: ", ""))) end
    return convert(self, function(tensor)
        if not tensor.is_global then return flow.empty(tensor.shape, {dtype = tensor.dtype, device = where}) end
        local placement = flow.placement(where, tensor.placement.ranks)
        return flow.empty(tensor.shape, {dtype = tensor.dtype, placement = placement, sbp = tensor.sbp})
    end)
end

-- The SBP of a tensor of which each rank of hierarchy axis `zero` keeps a part: split along the first axis that no
-- hierarchy axis splits yet. nil when there is none, or when the tensor is split over those ranks anyway.
local function stored_in_parts(tensor, sbp, zero)
    local stored, taken = {}, {}
    for k, entry in ipairs(sbp) do stored[k], taken[entry] = entry, true end
    for axis = 0, stored[zero + 1] == "B" and tensor:dim() - 1 or -1 do
        local split = ("S(%d)"):format(axis)
        if not taken[split] then
            stored[zero + 1] = split
            return stored
        end
    end
    return nil
end

-- The SBP that the first rule whose pattern is in a name gives it; nil: no rule.
local function sbp_of_rule(rules, name)
    for _, rule in ipairs(rules) do
        if name:find(rule[1]) then return rule[2] end
    end
end

-- A rule that no name has is a slip.
local function check_used(rules, names)
    for i, rule in ipairs(rules) do
        local used = false
        for _, name in ipairs(names) do used = used or name:find(rule[1]) end
        if not used then
            check.fail("to_global: rule %d: no name matches '%s'%s", i, rule[1], check.suggest(rule[1], names))
        end
    end
end

local function check_placing(o)
    if not o.placement then
        check.fail('to_global: a module needs a placement: net:to_global{placement = p, sbp = "B"}')
    end
    for i, rule in ipairs(o.rules) do
        local pattern = type(rule) == "table" and rule[1]
        if type(pattern) ~= "string" or not pcall(string.find, "", pattern) or not check.is("sbp", rule[2]) then
            check.fail('to_global: rule %d must be {pattern, sbp}, as {"up%%.weight", "S(0)"}', i)
        end
    end
    local last = #o.placement.hierarchy - 1
    if o.zero and not (math.type(o.zero) == "integer" and o.zero >= 0 and o.zero <= last) then
        check.fail("to_global: zero must be a hierarchy axis (0 to %d), got %s", last, check.got(o.zero))
    end
end

-- The SBP in which each parameter and buffer is stored, and its name; notes what forward gathers.
local function stored_sbps(module, opts)
    local stored, name_of, names = {}, {}, {}
    for _, part in module:named_modules() do class.set_gathered(part, false) end
    each_tensor(module, function(part, key, t, name, kind)
        local sbp = entries_of(sbp_of_rule(opts.rules, name) or opts.sbp, opts.placement)
        local in_parts = opts.zero and kind == "parameter" and stored_in_parts(t, sbp, opts.zero)
        names[#names + 1] = name
        name_of[t], stored[t] = name_of[t] or name, stored[t] or in_parts or sbp
        if in_parts then
            if not part[GATHERED] then class.set_gathered(part, ordered.new()) end
            part[GATHERED][key] = sbp
        end
    end)
    check_used(opts.rules, names)
    return stored, name_of
end

-- t, which is the same on every rank when it is local.
local function globally(t, placement, sbp, name)
    local ok, result = pcall(function()
        local whole = t
        if not t.is_global then whole = t:to_global{placement = placement, sbp = entries_of("B", placement)} end
        return whole:to_global{placement = placement, sbp = sbp}
    end)
    if ok then return result end
    local reason = tostring(result):gsub("^[^\n]-:%d+: ", ""):gsub("^to_global: ", "")
    check.fail("to_global: %s: %s", name, reason)
end

---Makes parameters and buffers global; before the split they are made equal on all ranks: net:to_global{placement = p,
---sbp = "B"}. `rules`, a list of {pattern, sbp}, overrides the sbp of those whose dotted name matches the pattern; the
---first match counts: {{"up", {"B", "S(0)"}}, {"down%.weight", {"B", "S(1)"}}}.
---
---`zero` is a hierarchy axis over whose ranks parameters, their gradients and the state of the optimizer are stored in
---parts. A module gathers its own parameters when its forward begins; backward reduce-scatters their gradients.
---Gathered parameters that backward needs are kept until then: this is ZeRO's second stage, with parameters that are
---whole only from their use in forward to that in backward.
---
---Creates new parameters, so call it before creating an optimizer.
---@param opts {placement: any, sbp: any, rules: table[], zero: integer} sbp: of those that no rule names, default "B"
function Module:to_global(opts)
    local o = opts
    o.rules = o.rules or {}
    check_placing(o)
    local stored, name_of = stored_sbps(self, o)
    return convert(self, function(t) return globally(t, o.placement, stored[t], name_of[t]) end)
end

---Switches dropout and the like on or off, in this module and all below.
function Module:train(on)
    walk(self, function(_, module) module[FIELDS].training = on end)
    flow._program.changed()
    return self
end

function Module:eval() return self:train(false) end

---Freezes or unfreezes all parameters.
function Module:requires_grad_(on)
    for _, p in ipairs(self:parameters()) do p.requires_grad = on end
    return self
end

---Gradients are dropped, or else become zeros.
function Module:zero_grad(set_to_none)
    for _, p in ipairs(present(self)) do
        if set_to_none then p.grad = nil elseif p.grad then p.grad = flow.zeros_like(p.grad) end
    end
end

for name, where in pairs {
    half = "float16", bfloat16 = "bfloat16", float = "float32", double = "float64", cpu = "cpu",
} do Module[name] = function(self) return self:to(where) end end

---Moves to a GPU, the one of that number if there are several.
---@param index integer?
function Module:cuda(index) return self:to(index and "cuda:" .. index or "cuda") end

-- ---- rarely called: module_more.lua ----

---A deep copy: parameters and buffers with memory of their own, modules and hooks; no gradients.
function Module:clone() return require("flow.module_more").clone(self) end

---The module at a dotted path as named_modules gives it: net:get_submodule "blocks.2.mlp".
function Module:get_submodule(path) return require("flow.module_more").get_submodule(self, path) end

---Puts a module at a dotted path, in the place of the one that is there, or as a new part.
---@param path string
---@param module flow.nn.Module
function Module:set_submodule(path, module) require("flow.module_more").set_submodule(self, path, module) end

---The parameter at a dotted path.
function Module:get_parameter(path) return require("flow.module_more").get_tensor(self, path, "parameter") end

---The buffer at a dotted path.
function Module:get_buffer(path) return require("flow.module_more").get_tensor(self, path, "buffer") end

---A table of the modules in order of their calls with these inputs: shapes of the results, parameters, bytes.
---@return string
function Module:summary(...) return require("flow.module_more").summary(self, ...) end

-- ---- state ----

---The state of the module beside its tensors: a class that overrides this and set_extra_state has numbers,
---strings, booleans, tensors, or tables of these in its states, as "_extra_state".
function Module:get_extra_state()
    check.fail("get_extra_state: %s has no state beside its tensors", class_name(self))
end

---Takes what get_extra_state has given, after the tensors of a state were loaded.
function Module:set_extra_state()
    check.fail("set_extra_state: %s takes no state beside its tensors", class_name(self))
end

-- The entries of a state, by dotted name and in order: parameters, buffers, and each module that overrides `method`,
-- get_extra_state or set_extra_state.
local function stateful(self, method)
    local result = ordered.new()
    walk(self, function(prefix, part)
        for _, key in ipairs(part[ORDER]) do
            local kind = part[KINDS][key]
            if (kind == "parameter" or kind == "buffer") and not (part[TRANSIENT] and part[TRANSIENT][key]) then
                result[join(prefix, tostring(key))] = part[FIELDS][key]
            end
        end
        if part[method] ~= Module[method] then result[join(prefix, "_extra_state")] = part end
    end, true)
    return result
end

local function extra_state_of(part)
    local extra = part:get_extra_state()
    if extra == nil then check.fail("get_extra_state: %s must return a value, got nil", class_name(part)) end
    return extra
end

-- The module and those below it that have hooks of a kind, as {module, prefix of its names}.
local function hooked(self, when)
    local list = {}
    walk(self, function(name, part)
        if class.has_hooks(part, when) then list[#list + 1] = {part, name == "" and "" or name .. "."} end
    end)
    return list
end

---Parameters and buffers by dotted name, in order, detached from the tape; they share memory with the module. Beside
---them is what get_extra_state returns.
function Module:state_dict()
    for _, entry in ipairs(hooked(self, "state_before")) do class.call_hooks(entry[1], "state_before", entry[2]) end
    local state, after = stateful(self, "get_extra_state"), hooked(self, "state_after")
    for name, part in state do state[name] = is_tensor(part) and part:detach() or extra_state_of(part) end
    for i = #after, 1, -1 do class.call_hooks(after[i][1], "state_after", state, after[i][2]) end
    return state
end

---Calls f(module, prefix) before state_dict reads the module; prefix is that of its names. Returns a handle.
---@param f function
---@return table handle
function Module:register_state_dict_pre_hook(f) return class.add_hook(self, "state_before", f) end

---Calls f(module, state, prefix) after state_dict has put the module and those below it into the state, which f may
---change. Returns a handle.
---@param f function
---@return table handle
function Module:register_state_dict_post_hook(f) return class.add_hook(self, "state_after", f) end

---Calls f(module, state, prefix) before load_state_dict reads the state, a copy that f may change. Returns a handle.
---@param f function
---@return table handle
function Module:register_load_state_dict_pre_hook(f) return class.add_hook(self, "load_before", f) end

---Calls f(module, {missing_keys = ..., unexpected_keys = ...}) after load_state_dict. Returns a handle.
---@param f function
---@return table handle
function Module:register_load_state_dict_post_hook(f) return class.add_hook(self, "load_after", f) end

-- Names of the module's own that the state dict lacks, and names in it that the module does not have.
local function compare_names(own, state)
    local lacking, unexpected = {}, {}
    for name in own do
        if state[name] == nil then lacking[#lacking + 1] = name end
    end
    for _, name in ipairs(check.sorted_keys(state)) do
        if type(name) ~= "string" or own[name] == nil then unexpected[#unexpected + 1] = name end
    end
    return lacking, unexpected
end

---PyTorch's name of a tensor, which counts parts from 0: "0.weight" for "1.weight".
---@param name string
---@return string
function M.counted_from_0(name)
    return (("." .. name):gsub("%f[%w_]%d+%f[.\0]", function(n) return ("%d"):format(n - 1) end):sub(2))
end

-- A state that has PyTorch's names of all tensors, and not flow's own, is read by them.
local function counted_from_1(own, state)
    local names, complete = {}, true
    for name in own do
        complete = complete and state[name] ~= nil
        names[name] = M.counted_from_0(name)
        if state[names[name]] == nil then return state end
    end
    if complete then return state end
    local result = {}
    for name, value in pairs(state) do result[name] = value end
    for _, theirs in pairs(names) do result[theirs] = nil end
    for name, theirs in pairs(names) do result[name] = state[theirs] end
    return result
end

local function is_stored(value)
    return require("flow.checkpoint").is_stored(value)
end

-- The reason why `tensor` cannot take the value `given`, or nil.
local function misfit(tensor, given)
    if not (is_tensor(given) or is_stored(given)) then return ("is a %s, not a tensor"):format(type(given)) end
    if check.shape(given) ~= check.shape(tensor) then
        return ("is %s, the module's is %s"):format(check.shape(given), check.shape(tensor))
    elseif is_tensor(given) and given.is_global and not tensor.is_global then
        return "is global, the module's is local"
    elseif is_meta(tensor) and not (is_tensor(given) and is_meta(given)) then
        return 'is on the meta device in the module, which keeps no values; write module:to_empty("cpu") first'
    elseif is_tensor(given) and is_meta(given) and not is_meta(tensor) then
        return "is on the meta device and has no values"
    end
end

local SHOWN = 8             -- problems that a message lists

-- The reasons why `state` cannot be loaded into `own`, as a list of sentences.
local function state_problems(own, state, lacking, unexpected)
    local problems = {}
    for _, name in ipairs(lacking) do
        problems[#problems + 1] = ("'%s' is missing%s"):format(name, check.suggest(name, unexpected))
    end
    for _, name in ipairs(unexpected) do
        problems[#problems + 1] = ("%s is unexpected%s"):format(
            type(name) == "string" and check.quote(name) or check.got(name), check.suggest(name, lacking))
    end
    for name, t in own do
        local problem = is_tensor(t) and state[name] ~= nil and misfit(t, state[name])
        if problem then problems[#problems + 1] = ("'%s' %s"):format(name, problem) end
    end
    return problems
end

-- One problem in the line of the message, several below it.
local function list_problems(problems)
    if #problems == 1 then return problems[1] end
    local lines = table.move(problems, 1, math.min(#problems, SHOWN), 2, {("%d problems"):format(#problems)})
    if #problems > SHOWN then lines[#lines] = ("and %d more"):format(#problems - SHOWN + 1) end
    return table.concat(lines, "\n    ")
end

-- A value of a state without tensors that still lie in a file.
local function read_value(value)
    if is_stored(value) then return value:read{} end
    if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
    local result = {}
    for key, part in pairs(value) do result[key] = read_value(part) end
    return result
end

local function copy_tensors(own, state)
    local checkpoint = require "flow.checkpoint"
    local _ <close> = flow.no_grad()
    for name, t in own do
        if is_tensor(t) and state[name] ~= nil then checkpoint.copy(t, state[name]) end
    end
end

---Copies the tensors of a state dict into the parameters and buffers, and calls set_extra_state of the modules that
---have one. Names and shapes must agree, else nothing is changed. With {strict = false} names in only one of the two
---are skipped and returned. Of lazy tensors (flow.load) each rank reads only its own part. Lazy layers (LazyLinear)
---become the layers of which the state has the weights.
---@param state table<string, any>
---@param opts {strict: boolean}?
---@return string[] missing names that the state dict lacks
---@return string[] unexpected names that the module does not have
function Module:load_state_dict(state, opts)
    local before, after = hooked(self, "load_before"), hooked(self, "load_after")
    if #before > 0 then
        local copy = {}
        for name, value in pairs(state) do copy[name] = value end
        state = copy
    end
    for _, entry in ipairs(before) do class.call_hooks(entry[1], "load_before", state, entry[2]) end
    if class.lazy then class.lazy.make(self, state) end
    local own = stateful(self, "set_extra_state")
    state = counted_from_1(own, state)
    local lacking, unexpected = compare_names(own, state)
    local problems = state_problems(own, state, opts.strict and lacking or {}, opts.strict and unexpected or {})
    if #problems > 0 then check.fail("load_state_dict: %s: %s", class_name(self), list_problems(problems)) end
    copy_tensors(own, state)
    for name, part in own do
        if not is_tensor(part) and state[name] ~= nil then part:set_extra_state(read_value(state[name])) end
    end
    local keys = {missing_keys = lacking, unexpected_keys = unexpected}
    for i = #after, 1, -1 do class.call_hooks(after[i][1], "load_after", keys) end
    return lacking, unexpected
end

-- ---- printing ----

---The text between the parentheses of a module's line; modules may override it, or extra_repr, PyTorch's name.
---@return string
function Module:extra() return self:extra_repr() end

---The same by PyTorch's name.
---@return string
function Module:extra_repr() return "" end  -- luacheck: ignore self

---The tree as text, as PyTorch prints it.
---@return string
function Module:describe()
    local lines, extra = {}, self:extra()
    if type(extra) ~= "string" then
        check.fail("%s: extra must return a string, got %s", class_name(self), check.got(extra))
    end
    for name, child in own_children(self) do
        lines[#lines + 1] = "  (" .. name .. "): " .. child:describe():gsub("\n", "\n  ")
    end
    local head = class_name(self) .. "(" .. extra
    return #lines == 0 and head .. ")" or head .. "\n" .. table.concat(lines, "\n") .. "\n)"
end

-- ---- signatures ----

check.define_type("module", "a module", M.is_module, M.class_hint)
check.define_type("state", "what state_dict gave", function(value)
    return type(value) == "table" and (getmetatable(value) == nil or ordered.is(value))
end)

check.takes(M, {
    "Parameter(t: weight, requires_grad: boolean = true)", "Buffer(t: tensor, {persistent: boolean = true})",
    "is_module(value: any)",
})

check.methods(Module, "net", {
    "forward(...: any)", "named_parameters()", "parameters()", "count_parameters()", "named_buffers()", "buffers()",
    "named_children()", "children()", "named_modules()", "modules()", "apply(f: function)",
    "register_buffer(name: string, t: tensor?, persistent: boolean = true)",
    "register_parameter(name: string, t: tensor?)", "register_module(name: string, module: module?)",
    "add_module(name: string, module: module?)", "to(where: string)",
    "register_state_dict_pre_hook(f: function)", "register_state_dict_post_hook(f: function)",
    "register_load_state_dict_pre_hook(f: function)", "register_load_state_dict_post_hook(f: function)",
    "set_submodule(path: string, module: module)",
    "half()", "bfloat16()", "float()", "double()", "cpu()",
    "cuda(index: integer >= 0?)", "clone()", "get_submodule(path: string)",
    "get_parameter(path: string)", "get_buffer(path: string)", "summary(...: any)",
    "to_empty(where: string)",
    "to_global({placement: placement?, sbp: sbp = B, rules: table?, zero: any?})",
    "train(on: boolean = true)", "eval()", "requires_grad_(on: boolean = true)",
    "zero_grad(set_to_none: boolean = true)",
    "state_dict()", "get_extra_state()", "set_extra_state(extra: any)",
    "load_state_dict(state: state, {strict: boolean = true})", "extra()", "extra_repr()", "describe()",
    "is(class: table)",
    "register_forward_hook(f: function, {prepend: boolean = false})",
    "register_forward_pre_hook(f: function, {prepend: boolean = false})",
    "register_full_backward_hook(f: function, {prepend: boolean = false})",
    "register_full_backward_pre_hook(f: function, {prepend: boolean = false})",
}, class.is_module)
check.constructor(Module, "init()", class.is_module)
check.methods(Module, "nn.Module", {"extend(name: string)"}, function(value)
    return type(value) == "table" and type(rawget(value, "__name")) == "string" and rawget(value, FIELDS) == nil
end)

---Signatures of a layer's init and forward, by which their arguments are checked.
---@param layer table
---@param constructor string?
---@param forward string?
function M.signatures(layer, constructor, forward)
    if constructor then check.constructor(layer, constructor, class.is_module) end
    if forward then check.methods(layer, "layer", {forward}, class.is_module) end
end

return M
