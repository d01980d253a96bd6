-- module_class.lua -- modules as objects: their fields, their classes, their calls, and the walk over those below one.
-- Their parameters and buffers are in module.lua.
--
-- A module keeps what is assigned to it in the order of assignment, so that parameters, buffers and children have the
-- same order in every process. All its fields lie behind __index and __newindex; the object itself holds hidden
-- tables. A tensor that requires grad becomes a parameter by being assigned, a module a child. Reading a field that was
-- never assigned is an error, so that a slip of the pen is found; a part that some objects of a class do not have is
-- assigned nil in init. Parts by number (self[1], a ModuleList's) count from 1; a number that has none is an error too,
-- except the one after the last for ipairs.

local flow = require "flow"
local check = require "flow.check"
local hook_lists = require "flow.hooks"
local ordered = require "flow.ordered"

local is_tensor, is_one_tensor, takes_tensor = check.is_tensor, flow._is_one_tensor, check.takes_tensor
local math_type = math.type
local program, io_ = flow._program, flow._io

local M = {}

-- Keys of the hidden tables: values; keys in order; kind of each key; SBP of the parameters that forward gathers; names
-- of the buffers that no state has; hooks of forward. AROUND: what a call runs in place of forward where there are such
-- parameters or hooks, else false.
local FIELDS, ORDER, KINDS, GATHERED, TRANSIENT, HOOKS, AROUND = {}, {}, {}, {}, {}, {}, {}
M.FIELDS, M.ORDER, M.KINDS, M.GATHERED, M.TRANSIENT = FIELDS, ORDER, KINDS, GATHERED, TRANSIENT

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
M.class_name = class_name

-- "1" for 1: no index of a list of modules.
local function is_number_in_text(self, key)
    return self.is_list and type(key) == "string" and key:find("^[+-]?%d+$") ~= nil
end
M.is_number_in_text = is_number_in_text

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
    check.fail("%s has no field or method %s%s", check.read_by(class_name(self)), check.quote(key), hint)
end

local function missing_number(self, key)
    local count, name = #(self[FIELDS].part_names or self[FIELDS]), class_name(self)
    if count == 0 and not self.is_list then
        check.fail("%s is not a list of modules, got [%s]; its parts are in %s:children()", check.read_by(name),
            check.got(key), name:lower())
    end
    check.fail("%s has %s; Lua lists count from 1, got [%s]%s", check.read_by(name), count == 0 and "no modules" or
        ("modules 1 to %d"):format(count), check.got(key), key == -1 and count > 0 and "; the last is l[#l]" or "")
end

-- ipairs and table.unpack read a list to its end; a script that reads beyond it has made a mistake.
local function read_by_c()
    return debug.getinfo(4, "S").what == "C"
end

local function missing(self, key)
    if type(key) == "string" then return missing_name(self, key) end
    local names = self[FIELDS].part_names
    if names and names[key] then return self[FIELDS][names[key]] end
    if math.type(key) == "integer" and read_by_c() and (#self[FIELDS] > 0 or self.is_list) then return nil end
    return missing_number(self, key)
end

-- Reads a field of a module of that class, or a method.
local function getter(class)
    return function(self, key)
        local value = self[FIELDS][key]
        if value ~= nil then return value end
        value = class[key]
        if value == nil and (not self[KINDS][key] or math_type(key) == "integer") then
            value = missing(self, key)
        end
        return value
    end
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
    local bare = not usage or usage:find("%([{)]") or usage:find("^[^(]+%([^,)]* = ")      -- nothing must be given
    return ("; write %s%s(%s)"):format(ours and "nn." or "", name, bare and "" or "...")
end

-- A list of modules holds modules, and no module has numbered parts with gaps.
local function check_item(self, key, value)
    local count, names = #self[FIELDS], self[FIELDS].part_names
    if names then
        check.fail("%s: [%d] cannot be assigned; its parts have names: module.%s = ...", class_name(self), key,
            names[key] or names[1])
    end
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

-- The values that a field with a part of the network accepts: a tensor, or a module. nil drops the part first.
local expected = {parameter = "a tensor", buffer = "a tensor", module = "a module"}

local function check_kind(self, key, value)
    local kind = self[KINDS][key]
    local wanted = expected[kind]
    if not wanted or value == nil or self[FIELDS][key] == nil then return end
    if M.is_module(value) == (kind == "module") and (kind == "module" or is_tensor(value)) then return end
    check.fail("%s: '%s' is a %s: it takes %s (or nil, to drop it), got %s%s", class_name(self), key, kind, wanted,
        check.got(value), M.class_hint(value))
end

-- Refuses a name whose field is of another kind than the one it is to become.
local function check_free(self, who, kind, key)
    local before = self[FIELDS][key] ~= nil and self[KINDS][key]
    if not before or before == kind then return end
    check.fail("%s: '%s' is already %s of %s; drop it first: module.%s = nil", who, key,
        before == "value" and "a field" or "a " .. before, class_name(self), key)
end
M.check_free = check_free

---Sets whether states have the buffer of that name.
local function set_persistent(self, key, persistent)
    if persistent and not self[TRANSIENT] then return end
    self[TRANSIENT] = self[TRANSIENT] or {}
    self[TRANSIENT][key] = not persistent or nil
end
M.set_persistent = set_persistent

---The functions of nn_lazy.lua for modules among which may be lazy ones: refuse(net, who), make(net, state). false: no
---lazy module was made.
M.lazy = false

---The tensors that nn.Buffer gave, with their `persistent`: the fields that they are assigned to become buffers.
M.buffers = setmetatable({}, {__mode = "k"})
local buffers = M.buffers

local function become_buffer(self, key, persistent)
    check_free(self, class_name(self), "buffer", key)
    self[KINDS][key] = "buffer"
    set_persistent(self, key, persistent)
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
    local kinds, order, persistent = self[KINDS], self[ORDER], buffers[value]
    if not kinds[key] then order[#order + 1] = key end
    if persistent ~= nil then become_buffer(self, key, persistent) end
    kinds[key] = kind_of(value, kinds[key])
    if not rawequal(self[FIELDS][key], value) then program.changed() end
    self[FIELDS][key] = value
end

local running       -- the innermost module whose forward runs, nil outside

local function leave(outer, ...)
    running = outer
    return ...
end

-- "train.lua:7: linear: ..." -> "train.lua:7: in Net.blocks[2].mlp: linear: ..."; where a function of ours called the
-- module, its name comes first: "train.lua:7: func.vjp: in Net: ..."
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
    local called = io_.called()
    if called ~= "" then called = called .. ": " end
    return ("%s%sin %s: %s"):format(place or "", called, path, text or message)
end

local function finish(self, ok, ...)
    local inner = running
    running = nil
    if ok then return ... end
    error(describe(self, inner, (...)), 0)
end

-- The own tensors of fields in which forward_gathered has put gathered ones; closing puts them back.
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

-- ---- hooks ----

-- The results of a hook in place of its arguments; if there are none, the arguments.
local function replaced(given, ...)
    if select("#", ...) == 0 or select("#", ...) == 1 and (...) == nil then return given end
    return table.pack(...)
end

-- forward between the hooks that are called before it, with the arguments, and those after it, with the results.
local function forward_hooked(self, ...)
    local hooks, args = self[HOOKS], table.pack(...)
    for _, hook in ipairs(hook_lists.each(hooks.before)) do
        args = replaced(args, hook.call(self, table.unpack(args, 1, args.n)))
    end
    local forward = self[GATHERED] and forward_gathered or self.forward
    local results
    if #hooks.backward + #hooks.backward_pre > 0 and flow.is_grad_enabled() then
        results = require("flow.module_backward").around(self, hooks, args, function(...) return forward(self, ...) end)
    else
        results = table.pack(forward(self, table.unpack(args, 1, args.n)))
    end
    for _, hook in ipairs(hook_lists.each(hooks.after)) do
        results = replaced(results, hook.call(self, args, table.unpack(results, 1, results.n)))
    end
    return table.unpack(results, 1, results.n)
end

-- Chooses what calls of the module run.
local function set_around(self)
    local hooks = self[HOOKS]
    local hooked = hooks and #hooks.before + #hooks.after + #hooks.backward + #hooks.backward_pre > 0
    self[AROUND] = hooked and forward_hooked or self[GATHERED] and forward_gathered or false
    program.changed()
end

---The SBPs in which forward gathers parameters of the module that are stored in parts, or false.
function M.set_gathered(self, sbps)
    self[GATHERED] = sbps
    set_around(self)
end

---@return boolean
function M.is_hooked(self) return self[AROUND] == forward_hooked end

local function hooks_changed(self)
    self[HOOKS].changes = self[HOOKS].changes + 1
    set_around(self)
end

local function add_hook(self, when, f, first)
    local hooks = self[HOOKS]
    if not hooks then
        hooks = {before = {}, after = {}, backward = {}, backward_pre = {}, changes = 0}
        self[HOOKS] = hooks
    end
    hooks[when] = hooks[when] or {}
    local handle = hook_lists.add(hooks[when], f, function() hooks_changed(self) end, first)
    hooks_changed(self)
    return handle
end

M.add_hook = add_hook

---Calls the hooks of one kind of a module: hook(module, ...).
function M.call_hooks(self, when, ...)
    for _, hook in ipairs(hook_lists.each(self[HOOKS] and self[HOOKS][when])) do hook.call(self, ...) end
end

---@return boolean
function M.has_hooks(self, when) return self[HOOKS] and self[HOOKS][when] and #self[HOOKS][when] > 0 or false end

---Calls f(module, arguments, results...) after each forward of the module; arguments is a list with its length in n.
---The results of f replace those of the module. Returns a handle: handle:remove() ends it.
---@param f function
---@param opts {prepend: boolean}? it is called before the hooks there are
---@return table handle
function Module:register_forward_hook(f, opts) return add_hook(self, "after", f, opts.prepend) end

---Calls f(module, arguments...) before each forward of the module. The results of f replace the arguments.
---Returns a handle: handle:remove() ends it.
---@param f function
---@param opts {prepend: boolean}? it is called before the hooks there are
---@return table handle
function Module:register_forward_pre_hook(f, opts) return add_hook(self, "before", f, opts.prepend) end

---Calls f(module, gradients of the arguments, gradients of the results) in backward of each call of the module; both
---are lists of those of float tensors (four at most). The results of f replace the first. Returns a handle.
---@param f function
---@param opts {prepend: boolean}? it is called before the hooks there are
---@return table handle
function Module:register_full_backward_hook(f, opts) return add_hook(self, "backward", f, opts.prepend) end

---Calls f(module, gradients of the results) before the backward of each call. The results of f replace them.
---@param f function
---@param opts {prepend: boolean}? it is called before the hooks there are
---@return table handle
function Module:register_full_backward_pre_hook(f, opts) return add_hook(self, "backward_pre", f, opts.prepend) end

-- ---- calls ----

-- Calls a module of that class. Only the outermost call is protected: its error names the module that was running, and
-- calls inside cost nothing.
local function caller(class)
    return function(self, ...)
        local outer = running
        running = self
        if program.recording then program.called(self) end
        local forward = self[AROUND] or self[FIELDS].forward or class.forward
        local unchecked = takes_tensor[forward]
        if unchecked and is_one_tensor(...) then forward = unchecked end
        if outer then return leave(outer, forward(self, ...)) end
        return finish(self, pcall(forward, self, ...))
    end
end

---Calls f(module, ...) as forward of a module inside another one; f is what the module's forward checks arguments for.
function M.run(module, f, ...)
    local outer = running
    if not outer or module[AROUND] then return module(...) end
    running = module
    if program.recording then program.called(module) end
    return leave(outer, f(module, ...))
end

local walk

local function construct(class, ...)
    check.refuse_colon(class.__name, (...), "class")
    local self = {
        [FIELDS] = {training = true}, [ORDER] = {}, [KINDS] = {training = "value"}, [GATHERED] = false,
        [TRANSIENT] = false, [HOOKS] = false, [AROUND] = false,
    }
    setmetatable(self, class)
    self:init(...)
    return self
end

---A module with the class, the order of fields and the hooks of this one; value_of(value, kind) gives what it has in
---place of each field.
---@param self flow.nn.Module
---@param value_of fun(value: any, kind: string): any
---@param note fun(copy: table) called before the fields are made
---@return flow.nn.Module
function M.copy(self, value_of, note)
    local copy = {
        [FIELDS] = {}, [ORDER] = table.move(self[ORDER], 1, #self[ORDER], 1, {}), [KINDS] = {},
        [GATHERED] = self[GATHERED], [TRANSIENT] = false, [HOOKS] = false, [AROUND] = false,
    }
    setmetatable(copy, getmetatable(self))
    note(copy)
    for name in pairs(self[TRANSIENT] or {}) do
        copy[TRANSIENT] = copy[TRANSIENT] or {}
        copy[TRANSIENT][name] = true
    end
    for key, kind in pairs(self[KINDS]) do copy[KINDS][key] = kind end
    for key, value in pairs(self[FIELDS]) do copy[FIELDS][key] = value_of(value, self[KINDS][key]) end
    for when, list in pairs(self[HOOKS] or {}) do
        if type(list) == "table" then
            for _, handle in ipairs(list) do M.add_hook(copy, when, handle.call) end
        end
    end
    if self[GATHERED] then M.set_gathered(copy, self[GATHERED]) end
    return copy
end

---Makes `self` what `other`, a new module, is; its hooks stay.
function M.become(self, other)
    for _, key in ipairs {FIELDS, ORDER, KINDS, TRANSIENT} do self[key] = other[key] end
    setmetatable(self, getmetatable(other))
    program.changed()
end

local function length(self)
    return #self[FIELDS]
end

---A class of modules; give it `init` and `forward`.
---@param name string
function Module:extend(name)
    local class = {
        __name = name, __newindex = set, __len = rawget(self, "__len") or length, __pairs = rawget(self, "__pairs"),
        __tostring = function(module)
            walk(module, function() end, true)      -- one that contains itself has no end
            return module:describe()
        end,
    }
    class.__index, class.__call = getter(class), caller(class)
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

-- Modules that `module` holds itself: children, and modules in plain lists that were assigned to it; nil: it has none.
local function children_of(module)
    local result
    local fields, kinds = module[FIELDS], module[KINDS]
    for _, key in ipairs(module[ORDER]) do
        local value = fields[key]
        if kinds[key] == "module" and value ~= nil then
            result = result or ordered.new()
            result[tostring(key)] = value
        elseif type(value) == "table" and getmetatable(value) == nil then
            for i, item in ipairs(value) do
                if M.is_module(item) then
                    result = result or ordered.new()
                    result[tostring(key) .. "." .. i] = item
                end
            end
        end
    end
    return result
end

local function own_children(module) return children_of(module) or ordered.new() end

local none = ordered.new()

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
    for name, child in children_of(module) or none do walk(child, visit, again, join(prefix, name), seen, above) end
    above[module] = nil
end

-- A function that returns true while the modules among the keys, and those in them, have the fields and hooks they have
-- now; and a list of the functions that are their fields, and of their forwards.
function program.watch(modules)
    local list, kept, seen, hooks, functions = {}, {}, {}, {}, {}
    local function note(f)
        if seen[f] then return end
        seen[f], functions[#functions + 1] = true, f
    end
    local function keep(_, part)
        if seen[part] then return end
        seen[part] = true
        list[#list + 1], hooks[part] = part[FIELDS], part[HOOKS] and part[HOOKS].changes or 0
        local copy = {}
        for key, value in next, part[FIELDS] do
            copy[key] = value
            if type(value) == "function" then note(value) end
        end
        note(getmetatable(part).forward)
        kept[#list] = copy
    end
    for module in next, modules do if M.is_module(module) then walk(module, keep) end end
    return function()
        for part, changes in pairs(hooks) do
            if (part[HOOKS] and part[HOOKS].changes or 0) ~= changes then return false end
        end
        for i, fields in ipairs(list) do
            for key, value in next, fields do if not rawequal(kept[i][key], value) then return false end end
            for key in next, kept[i] do if fields[key] == nil then return false end end
        end
        return true
    end, functions
end

-- visit(prefix, key, tensor) for the tensors of one kind; one that is used twice comes once unless `again`.
local function walk_tensors(module, wanted, visit, again)
    local seen = {}
    walk(module, function(prefix, part)
        local fields, kinds = part[FIELDS], part[KINDS]
        for _, key in ipairs(part[ORDER]) do
            local value = fields[key]
            if value ~= nil and wanted[kinds[key]] and (again or not seen[value]) then
                seen[value] = true
                visit(prefix, key, value)
            end
        end
    end, again)
end

-- The same by dotted name.
local function collect(module, wanted, again)
    local result = ordered.new()
    walk_tensors(module, wanted, function(prefix, key, value) result[join(prefix, tostring(key))] = value end, again)
    return result
end

M.own_children, M.join, M.walk, M.walk_tensors, M.collect = own_children, join, walk, walk_tensors, collect

return M
