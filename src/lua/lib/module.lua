-- module.lua -- Module, the class of all parts of a network that own parameters.
--
-- A module keeps what is assigned to it in the order of assignment, so that parameters, buffers and children have the
-- same order in every process. All its fields lie behind __index and __newindex; the object itself holds three hidden
-- tables. A tensor that requires grad becomes a parameter by being assigned, a module a child. Reading a field that was
-- never assigned is an error, so that a slip of the pen is found; a part that some objects of a class do not have is
-- assigned nil in init. Parts by number (self[1], a ModuleList's) count from 1; a number that has none is an error too,
-- except the one after the last for ipairs.

local flow = require "flow"
local check = require "flow.check"
local ordered = require "flow.ordered"

local is_tensor, is_one_tensor, takes_tensor = check.is_tensor, flow._is_one_tensor, check.takes_tensor
local math_type = math.type

local M = {}

-- Keys of the hidden tables: values; keys in order; kind of each key; SBP of the parameters that forward gathers.
local FIELDS, ORDER, KINDS, GATHERED = {}, {}, {}, {}

---@class flow.nn.Module
local Module = {__name = "Module", is_list = false}
M.Module = Module

---@return boolean
function M.is_module(value)
    return type(value) == "table" and rawget(value, FIELDS) ~= nil
end

---True for Module and the classes that extend it.
---@return boolean
function M.is_class(value)
    while type(value) == "table" and not rawequal(value, Module) do
        local meta = getmetatable(value)
        value = type(meta) == "table" and rawget(meta, "__index") or nil
    end
    return rawequal(value, Module)
end

---The table of a module's own fields, read-only.
---@return table
function M.fields(module)
    return module[FIELDS]
end

-- ---- objects and classes ----

local function class_name(self)
    return getmetatable(self).__name
end

-- "1" for 1: what a list of modules is not indexed by.
local function is_number_in_text(self, key)
    return self.is_list and type(key) == "string" and key:find("^[+-]?%d+$") ~= nil
end

local function missing_name(self, key)
    if is_number_in_text(self, key) then
        check.fail("%s has no field or method %s; index it by the number: [%d]", class_name(self), check.quote(key),
            tonumber(key))
    end
    local names = {}
    for name in pairs(self[KINDS]) do
        if type(name) == "string" then names[#names + 1] = name end
    end
    local class = getmetatable(self)
    while class do
        for name in pairs(class) do names[#names + 1] = tostring(name) end
        local meta = getmetatable(class)
        class = meta and meta.__index
    end
    table.sort(names)
    local hint = check.suggest(key, names)
    if hint == "" and #key <= 40 and key:find("^[%a_][%w_]*$") and not key:find("^__") then
        hint = ("; a field that may be absent is assigned in init: self.%s = nil"):format(key)
    end
    check.fail("%s has no field or method %s%s", class_name(self), check.quote(key), hint)
end

local function missing_number(self, key)
    local count = #self[FIELDS]
    if count == 0 and not self.is_list then
        check.fail("%s is not a list of modules, got [%s]; its parts are in %s:children()", class_name(self),
            check.got(key), class_name(self):lower())
    end
    check.fail("%s has %s; Lua lists count from 1, got [%s]", class_name(self), count == 0 and "no modules" or
        ("modules 1 to %d"):format(count), check.got(key))
end

-- ipairs and table.unpack read a list to its end; a script that reads beyond it has made a mistake.
local function read_by_c()
    return debug.getinfo(4, "S").what == "C"
end

local function missing(self, key)
    if type(key) == "string" then return missing_name(self, key) end
    if math.type(key) == "integer" and read_by_c() and (#self[FIELDS] > 0 or self.is_list) then return nil end
    return missing_number(self, key)
end

local function get(self, key)
    local value = self[FIELDS][key]
    if value ~= nil then return value end
    value = getmetatable(self)[key]
    if value == nil and (not self[KINDS][key] or math_type(key) == "integer") then missing(self, key) end
    return value
end

local function kind_of(value, before)
    if M.is_module(value) then return "module" end
    if not is_tensor(value) then return before == "buffer" and value == nil and before or "value" end
    if before == "parameter" or before == "buffer" then return before end
    return value.requires_grad and value.is_leaf and "parameter" or "value"
end

-- "; write nn.ReLU()" where a class stands for the module that is made of it, else "".
function M.class_hint(value)
    if not M.is_class(value) then return "" end
    local name = rawget(value, "__name")
    local ours = rawequal(rawget(flow.nn, name), value)
    local _, usage = check.original(value.init)
    local bare = not usage or usage:find("%([{)]")
    return ("; write %s%s(%s)"):format(ours and "nn." or "", name, bare and "" or "...")
end

-- A list of modules holds modules, and no module has numbered parts with gaps.
local function check_item(self, key, value)
    local count = #self[FIELDS]
    if key < 1 or key > count + 1 then
        check.fail("%s: [%d] cannot be assigned; it has %d modules, the next one is [%d]", class_name(self), key, count,
            count + 1)
    elseif self.is_list and not M.is_module(value) and not (value == nil and key == count) then
        check.fail("%s: item %d must be a module, got %s%s", class_name(self), key, check.got(value),
            M.class_hint(value))
    end
end

-- A field called like a method would hide it, and net:parameters() would call a table.
local function check_name(self, key, value)
    if type(key) ~= "string" then
        check.fail("%s: a field's key must be a name or a whole number, got %s", class_name(self), check.got(key))
    elseif is_number_in_text(self, key) then
        check.fail("%s: %s cannot be assigned; index it by the number: [%d]", class_name(self), check.quote(key),
            tonumber(key))
    elseif value ~= nil and type(value) ~= "function" and type(rawget(Module, key)) == "function" then
        check.fail("%s: '%s' is a method of modules; a field needs another name", class_name(self), key)
    end
end

-- What a field that holds a part of the network takes in its place: a tensor, or a module. nil drops the part first.
local expected = {parameter = "a tensor", buffer = "a tensor", module = "a module"}

local function check_kind(self, key, value)
    local kind = self[KINDS][key]
    local wanted = expected[kind]
    if not wanted or value == nil or self[FIELDS][key] == nil then return end
    if M.is_module(value) == (kind == "module") and (kind == "module" or is_tensor(value)) then return end
    check.fail("%s: '%s' is a %s: it takes %s (or nil, to drop it), got %s%s", class_name(self), key, kind, wanted,
        check.got(value), M.class_hint(value))
end

local function set(self, key, value)
    local number = math.type(key) and math.tointeger(key)
    if number then
        key = number
        check_item(self, key, value)
    else
        check_name(self, key, value)
        check_kind(self, key, value)
    end
    local kinds, order = self[KINDS], self[ORDER]
    if not kinds[key] then order[#order + 1] = key end
    kinds[key] = kind_of(value, kinds[key])
    self[FIELDS][key] = value
end

local running       -- the innermost module whose forward runs, nil outside

local function leave(outer, ...)
    running = outer
    return ...
end

-- "train.lua:7: linear: ..." -> "train.lua:7: in Net.blocks[2].mlp: linear: ..."
local function describe(root, inner, message)
    if type(message) ~= "string" then return message end
    local path = getmetatable(root).__name
    for name, module in root:named_modules() do
        if rawequal(module, inner) then
            path = path .. ("." .. name):gsub("%.(%d+)", "[%1]"):gsub("%.$", "")
            break
        end
    end
    local place, text = message:match("^([^\n:]+:%d+: )(.*)$")
    return ("%sin %s: %s"):format(place or "", path, text or message)
end

local function finish(self, ok, ...)
    local inner = running
    running = nil
    if ok then return ... end
    error(describe(self, inner, (...)), 0)
end

-- What belongs into the fields in which forward_gathered has put gathered tensors; closing puts it back.
local Parts = {}

function Parts.__close(parts)
    for key, t in pairs(parts.kept) do parts.fields[key] = t end
end

local function give(ok, ...)
    if ok then return ... end
    error((...), 0)
end

-- forward with the parameters whole that are stored in parts (see Module.to_global, `zero`). It may not yield: others
-- would find the whole ones in the module.
local function forward_gathered(self, ...)
    local fields, kept = self[FIELDS], {}
    local _ <close> = setmetatable({fields = fields, kept = kept}, Parts)
    for key, sbp in self[GATHERED] do
        local t = fields[key]
        fields[key], kept[key] = t:to_global{sbp = sbp}, t
    end
    return give(flow._pcall(self.forward, self, ...))
end

-- Only the outermost call is protected: its error names the module that was running, and calls inside cost nothing.
local function call(self, ...)
    local outer = running
    running = self
    local forward = self[GATHERED] and forward_gathered or self.forward
    local unchecked = takes_tensor[forward]
    if unchecked and is_one_tensor(...) then forward = unchecked end
    if outer then return leave(outer, forward(self, ...)) end
    return finish(self, pcall(forward, self, ...))
end

---Calls f(module, ...) as forward of a module inside another one; f is what the module's forward checks arguments for.
function M.run(module, f, ...)
    local outer = running
    if not outer or module[GATHERED] then return module(...) end
    running = module
    return leave(outer, f(module, ...))
end

local walk

local function construct(class, ...)
    check.refuse_colon(class.__name, (...), "class")
    local self = {[FIELDS] = {training = true}, [ORDER] = {}, [KINDS] = {training = "value"}, [GATHERED] = false}
    setmetatable(self, class)
    self:init(...)
    return self
end

local function length(self)
    return #self[FIELDS]
end

---A class of modules; give it `init` and `forward`.
---@param name string
function Module:extend(name)
    local class = {
        __name = name, __index = get, __newindex = set, __call = call, __len = length,
        __tostring = function(module)
            walk(module, function() end, true)      -- one that contains itself has no end
            return module:describe()
        end,
    }
    return setmetatable(class, {__index = self, __call = construct, __name = "class " .. name})
end

---Called with the arguments of the constructor.
function Module:init() end  -- luacheck: ignore self

---Called by net(x).
function Module:forward()
    check.fail("%s has no forward", class_name(self))
end

---True if the module is of that class or of one that extends it.
---@return boolean
function Module:is(class)
    local mine = getmetatable(self)
    while mine and mine ~= class do
        local meta = getmetatable(mine)
        mine = meta and meta.__index
    end
    return mine == class
end

-- ---- walking ----

-- Modules that `module` holds itself: children, and modules in plain lists that were assigned to it.
local function own_children(module)
    local result = ordered.new()
    local fields, kinds = module[FIELDS], module[KINDS]
    for _, key in ipairs(module[ORDER]) do
        local value = fields[key]
        if kinds[key] == "module" and value ~= nil then
            result[tostring(key)] = value
        elseif type(value) == "table" and getmetatable(value) == nil then
            for i, item in ipairs(value) do
                if M.is_module(item) then result[tostring(key) .. "." .. i] = item end
            end
        end
    end
    return result
end

local function join(prefix, name)
    return prefix == "" and name or prefix .. "." .. name
end

-- visit(name, module) for the module and all below it, depth first; each once unless `again`. `above` are the modules
-- that hold this one.
function walk(module, visit, again, prefix, seen, above)
    prefix, seen, above = prefix or "", seen or {}, above or {}
    if above[module] then check.fail("%s contains itself, as '%s'", class_name(module), prefix) end
    if seen[module] and not again then return end
    seen[module], above[module] = true, true
    visit(prefix, module)
    for name, child in own_children(module) do walk(child, visit, again, join(prefix, name), seen, above) end
    above[module] = nil
end

-- Tensors of one kind by dotted name; a tensor that is used twice comes once unless `again`.
local function collect(module, wanted, again)
    local result, seen = ordered.new(), {}
    walk(module, function(prefix, part)
        for _, key in ipairs(part[ORDER]) do
            local value, kind = part[FIELDS][key], part[KINDS][key]
            if wanted[kind] and value ~= nil and (again or not seen[value]) then
                seen[value] = true
                result[join(prefix, tostring(key))] = value
            end
        end
    end, again)
    return result
end

local function values(map)
    local list = {}
    for _, value in map do list[#list + 1] = value end
    return list
end

---Names and tensors in order: `for name, p in net:named_parameters() do`.
function Module:named_parameters() return collect(self, {parameter = true}) end

---@return any[]
function Module:parameters() return values(self:named_parameters()) end

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

-- Names of tensors are joined by dots.
-- Makes the field `name` a parameter or a buffer. What has the name and is of another kind is not replaced.
local function register(self, who, kind, name, t)
    if name == "" or name:find("[.%c]") then
        check.fail("%s: a name must not be empty or contain a dot, got %s", who, check.quote(name))
    elseif is_number_in_text(self, name) then
        check.fail("%s: a name must not be a number, got %s; assign by the number: module[%d] = ...", who,
            check.quote(name), tonumber(name))
    end
    local before = self[FIELDS][name] ~= nil and self[KINDS][name]
    if before and before ~= kind then
        check.fail("%s: '%s' is already %s of %s; drop it first: module.%s = nil", who, name,
            before == "value" and "a field" or "a " .. before, class_name(self), name)
    end
    self[name] = nil
    self[KINDS][name] = kind
    self[name] = t
end

---A tensor that is saved and moved with the module, but not trained.
function Module:register_buffer(name, t)
    register(self, "register_buffer", "buffer", name, t)
end

---A parameter that may be frozen (requires_grad = false) and remains a parameter.
function Module:register_parameter(name, t)
    register(self, "register_parameter", "parameter", name, t)
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
    each_tensor(module, function(_, _, t)
        if made[t] ~= nil then return end
        local new = f(t)
        if not rawequal(new, t) then
            new = new:detach()
            new.requires_grad = t.requires_grad
        end
        made[t] = new
    end)
    each_tensor(module, function(part, key, t) part[FIELDS][key] = made[t] or t end)
    return module
end

---Moves to a device ("cpu", "cuda:1") or a dtype (float tensors only). Creates new parameters, so call it before
---creating an optimizer.
---@param where string
function Module:to(where)
    flow.empty(0):to(where)     -- an error about `where` comes first, whatever the module holds
    local is_device = where:match("^cpu") or where:match("^cuda")
    for name, p in (is_device or where:match("float")) and ordered.new() or self:named_parameters() do
        if p.requires_grad then check.fail("to: '%s' requires grad and cannot become %s", name, where) end
    end
    return convert(self, function(t)
        if where == t.device or where == t.dtype or not (is_device or t.dtype:match("float")) then return t end
        return t:to(where)
    end)
end

-- How a tensor is stored of which each rank of hierarchy axis `zero` keeps a part: split along the first axis that no
-- hierarchy axis splits yet. nil when there is none, or when the tensor is split over those ranks anyway.
local function stored_in_parts(t, sbp, zero)
    local stored, taken = {}, {}
    for k, entry in ipairs(sbp) do stored[k], taken[entry] = entry, true end
    for axis = 0, stored[zero + 1] == "B" and t:dim() - 1 or -1 do
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
        check.fail("to_global: zero must be a hierarchy axis (0 to %d), got %s", last, tostring(o.zero))
    end
end

-- The SBP in which each parameter and buffer is stored, and its name; notes what forward gathers.
local function stored_sbps(module, o)
    local stored, name_of, names = {}, {}, {}
    for _, part in module:named_modules() do part[GATHERED] = false end
    each_tensor(module, function(part, key, t, name, kind)
        local sbp = entries_of(sbp_of_rule(o.rules, name) or o.sbp, o.placement)
        local in_parts = o.zero and kind == "parameter" and stored_in_parts(t, sbp, o.zero)
        names[#names + 1] = name
        name_of[t], stored[t] = name_of[t] or name, stored[t] or in_parts or sbp
        if in_parts then
            part[GATHERED] = part[GATHERED] or ordered.new()
            part[GATHERED][key] = sbp
        end
    end)
    check_used(o.rules, names)
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
    return self
end

function Module:eval() return self:train(false) end

---Freezes or unfreezes all parameters.
function Module:requires_grad_(on)
    for _, p in ipairs(self:parameters()) do p.requires_grad = on end
    return self
end

function Module:zero_grad()
    for _, p in ipairs(self:parameters()) do p.grad = nil end
end

-- ---- state ----

---Parameters and buffers by dotted name, in order, detached from the tape. They share memory with the module.
function Module:state_dict()
    local state = collect(self, {parameter = true, buffer = true}, true)
    for name, t in state do state[name] = t:detach() end
    return state
end

-- Names of the module's tensors that the state dict lacks, and names in it that the module does not have.
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

local function is_stored(value)
    return require("flow.checkpoint").is_stored(value)
end

-- What keeps `t` from taking the value `given`, or nil.
local function misfit(t, given)
    if not (is_tensor(given) or is_stored(given)) then return ("is a %s, not a tensor"):format(type(given)) end
    if check.shape(given) ~= check.shape(t) then
        return ("is %s, the module's is %s"):format(check.shape(given), check.shape(t))
    elseif is_tensor(given) and given.is_global and not t.is_global then
        return "is global, the module's is local"
    end
end

local SHOWN = 8             -- problems that a message lists

-- What keeps `state` from being loaded into `own`, as a list of sentences.
local function state_problems(own, state, lacking, unexpected)
    local problems, names = {}, check.sorted_keys(own)
    for _, name in ipairs(lacking) do
        problems[#problems + 1] = ("'%s' is missing%s"):format(name, check.suggest(name, unexpected))
    end
    for _, name in ipairs(unexpected) do
        problems[#problems + 1] = ("%s is unexpected%s"):format(
            type(name) == "string" and check.quote(name) or check.got(name), check.suggest(name, names))
    end
    for name, t in own do
        local problem = state[name] ~= nil and misfit(t, state[name])
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

---Copies the tensors of a state dict into the parameters and buffers. Names and shapes must agree, else nothing is
---changed. With {strict = false} names in only one of the two are skipped and returned. Of lazy tensors (flow.load)
---each rank reads only its own part.
---@param state table<string, any>
---@param opts {strict: boolean}?
---@return string[] missing names that the state dict lacks
---@return string[] unexpected names that the module does not have
function Module:load_state_dict(state, opts)
    local own = collect(self, {parameter = true, buffer = true}, true)
    local lacking, unexpected = compare_names(own, state)
    local problems = state_problems(own, state, opts.strict and lacking or {}, opts.strict and unexpected or {})
    if #problems > 0 then check.fail("load_state_dict: %s: %s", class_name(self), list_problems(problems)) end
    local checkpoint = require "flow.checkpoint"
    local _ <close> = flow.no_grad()
    for name, t in own do
        if state[name] ~= nil then checkpoint.copy(t, state[name]) end
    end
    return lacking, unexpected
end

-- ---- printing ----

---The text between the parentheses of a module's line; modules may override it.
---@return string
function Module:extra() return "" end  -- luacheck: ignore self

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

check.takes(M, {"Parameter(t: weight, requires_grad: boolean = true)", "is_module(value: any)"})

check.methods(Module, "net", {
    "forward(...: any)", "named_parameters()", "parameters()", "count_parameters()", "named_buffers()", "buffers()",
    "named_children()", "children()", "named_modules()", "modules()", "apply(f: function)",
    "register_buffer(name: string, t: tensor?)", "register_parameter(name: string, t: tensor?)", "to(where: string)",
    "to_global({placement: placement?, sbp: sbp = B, rules: table?, zero: any?})",
    "train(on: boolean = true)", "eval()", "requires_grad_(on: boolean = true)", "zero_grad()", "state_dict()",
    "load_state_dict(state: state, {strict: boolean = true})", "extra()", "describe()", "is(class: table)",
}, M.is_module)
check.constructor(Module, "init()", M.is_module)
check.methods(Module, "nn.Module", {"extend(name: string)"}, function(value)
    return type(value) == "table" and type(rawget(value, "__name")) == "string" and rawget(value, FIELDS) == nil
end)

return M
