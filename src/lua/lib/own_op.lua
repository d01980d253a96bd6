-- own_op.lua -- flow.op: a function and a method like the built-in ones, from a table of Lua functions.

local flow = require "flow"
local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

local formula_of = require "flow.formula"

local own, is_tensor = flow._own, flow.is_tensor

local M = {}

local ALL = 0xffffffff
local defined = {}      -- names of ops of this state
local loaded = {}       -- names of ops from shared objects, of this state

-- The bits of what backward reads: {"x", "out"} names what is saved; nil: all operands and results.
local function saved_bits(def, parameters)
    if def.saves == nil then return ALL, ALL end
    local ins, outs, position, names = 0, 0, 0, {"out"}
    local bits = {}
    for _, p in ipairs(parameters) do
        if p.is_tensor then
            names[#names + 1] = p.name
            bits[p.name] = p.is_list and ALL & ~((1 << position) - 1) or 1 << position
            position = position + 1
        end
    end
    for i, name in ipairs(def.saves) do
        if name == "out" then outs = ALL
        elseif bits[name] then ins = ins | bits[name]
        else
            check.fail("op: saves[%d] must be a tensor of the signature or \"out\", got %s%s", i, check.got(name),
                check.suggest(name, names))
        end
    end
    return ins, outs
end

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until
    while]]):gmatch "%a+" do
    keywords[word] = true
end

local function check_word(name)
    if not name:find("^%l[%w_]*$") or #name > 40 then
        check.fail("op: a name is lower-case letters, digits and _, at most 40, got %s", check.quote(name))
    elseif keywords[name] then
        check.fail("op: '%s' is a word of Lua; an op needs another name", name)
    elseif name:sub(-1) == "_" then
        check.fail("op: '%s': a name with _ at its end is for what changes its operand", name)
    end
end

local function check_name(def)
    local name = def.name
    local word = def.sig:match("^%s*([%w_]*)")
    if word ~= name then
        check.fail("op: the signature must begin with the name '%s', got %s", name, check.quote(word))
    end
    if loaded[name] then
        check.fail("op: '%s' is an op of a shared object, which stays; an op of your own needs another name", name)
    end
    if defined[name] and def.replace then return end
    if defined[name] then
        check.fail("op: '%s' is defined already; another name, or replace = true for the new one in its place", name)
    elseif flow.has(name) or flow.has("x:" .. name) or flow._op[name] then
        check.fail("op: flow has '%s' already; an op of your own needs another name", name)
    end
end

local function check_samples(def)
    for i, sample in ipairs(def.samples) do
        if type(sample) ~= "string" then
            check.fail("op: samples are Lua expressions for arguments, as \"flow.randn(3), 2\", sample %d is %s", i,
                check.got(sample))
        end
        local chunk, message = load("return " .. sample, "=sample " .. i, "t", {})
        if not chunk then check.fail("op: %s", message) end
    end
end

-- ---- gradients as text ----

-- The end of a comment or a string that begins at `at`; nil: none begins there.
local function skip_text(text, at)
    local level = text:match("^%-%-%[(=*)%[", at) or text:match("^%[(=*)%[", at)
    if level then return select(2, text:find("]" .. level .. "]", at, true)) end
    if text:find("^%-%-", at) then return (text:find("\n", at, true) or #text + 1) - 1 end
    local mark = text:match("^[\"']", at)
    if not mark then return nil end
    at = at + 1
    while text:sub(at, at) ~= mark do at = at + (text:sub(at, at) == "\\" and 2 or 1) end
    return at
end

-- The variables in an expression of Lua that compiles: no members, methods, keys of tables, strings, numbers, keywords.
local function variables(text)
    local list, at, before = {}, 1, ""
    while at <= #text do
        local stop = skip_text(text, at)
        local token = not stop and (text:match("^%d[%w.]*", at) or text:match("^%.%d[%w.]*", at)
            or text:match("^[%a_][%w_]*", at) or text:match("^%.+", at) or text:match("^=+", at) or text:sub(at, at))
        if not token then token = "" elseif token:find "^[%a_]" and not keywords[token] then
            local is_key = text:find("^%s*=[^=]", at + #token)
            if before ~= "." and before ~= ":" and not is_key then list[#list + 1] = token end
        end
        at = stop and stop + 1 or at + #token
        if not token:find "^%s*$" then before = token end
    end
    return list
end

local function compile_expression(def, i, text)
    local title = ("=gradient %d of %s"):format(i, def.name)
    local head = "local ctx, g1, g2, g3, g4 = ...; local g = g1; local _ENV = ctx; return "
    local chunk, message = load(head .. text, title, "t")
    if not chunk then check.fail("op: %s", message) end
    chunk = load(head .. "(" .. text .. "\n)", title, "t")
    if not chunk then check.fail("op: gradient %d of %s ('%s') must be one expression", i, def.name, text) end
    return chunk
end

-- "g * y": an expression in the operands, attributes and results by name, g (or g1, g2) and functions of flow. The
-- names that it mentions go into `mentioned`.
local function compile_gradient(def, parameters, i, text, mentioned)
    local names, tensors = {out = true, needs = true, g = true}, {out = true}
    for k = 1, def.results do names["g" .. k] = true end
    for _, p in ipairs(parameters) do names[p.name], tensors[p.name] = true, p.is_tensor end
    local chunk = compile_expression(def, i, text)
    for _, word in ipairs(variables(text)) do
        if tensors[word] then mentioned[#mentioned + 1] = word end
        if not names[word] and word ~= "flow" and lazy_names.get(flow, word) == nil then
            check.fail("op: gradient %d of %s ('%s') names '%s', which is no parameter, result or function%s", i,
                def.name, text, word, check.suggest(word, check.sorted_keys(names)))
        end
    end
    return chunk
end

-- backward as a list of expressions, one for each tensor of the signature (false: no gradient), as a function, and the
-- names that they mention.
local function backward_of(def, parameters)
    if type(def.backward) ~= "table" then return def.backward end
    local chunks, count, mentioned = {}, 0, {}
    for _, p in ipairs(parameters) do
        if p.is_list then check.fail("op: a list of tensors ('%s') needs backward as a function", p.name) end
        if p.is_tensor then count = count + 1 end
    end
    if #def.backward ~= count then
        check.fail("op: backward must hold %d expression%s, one for each tensor, got %d", count,
            count == 1 and "" or "s", #def.backward)
    end
    local needs = {}
    for _, p in ipairs(parameters) do if p.is_tensor then needs[#needs + 1] = p.name end end
    for i = 1, count do
        local text = def.backward[i]
        if type(text) ~= "string" and text ~= false then
            check.fail("op: expression %d of backward must be text or false, got %s", i, check.got(text))
        end
        chunks[i] = text and compile_gradient(def, parameters, i, text, mentioned)
    end
    return function(ctx, ...)
        local visible, gradients = setmetatable({}, {__index = function(_, key)
            local value = ctx[key]
            if value ~= nil then return value end
            return key == "flow" and flow or lazy_names.get(flow, key)
        end}), {}
        for i = 1, count do gradients[i] = chunks[i] and ctx.needs[needs[i]] and chunks[i](visible, ...) or nil end
        return table.unpack(gradients, 1, count)
    end, mentioned
end

-- ---- defining ----

local function publish(name, f, is_method, in_place)
    flow._op[name], defined[name] = f, true
    rawset(flow, name, f)
    if is_method then rawset(flow._methods, name, f) end
    if in_place then rawset(flow._methods, name .. "_", in_place) end
    return f
end

-- ---- formulas ----

-- "swish(x, ~beta: float = 1)", as help shows it: the operands take numbers, too.
local function signature_of(name, operands, attrs)
    local list = {}
    for i, operand in ipairs(operands) do list[i] = operand .. (i > 1 and "|n" or "") end
    for attr in (attrs and attrs ~= "" and attrs .. "," or ""):gmatch("%s*(.-)%s*,") do
        list[#list + 1] = attr:sub(1, 1) == "~" and attr or "~" .. attr
    end
    return ("%s(%s)"):format(name, table.concat(list, ", "))
end

-- The parameters of a formula's operands, as own.parameters gives them.
local function tensors_of(operands)
    local list = {}
    for i, name in ipairs(operands) do list[i] = {name = name, is_tensor = true, takes_number = i > 1} end
    return list
end

local define_formula

-- The op of a gradient. kept: it takes values of the forward pass, and has no gradient itself.
local function define_gradient(name, operand, gradient, kept)
    local attrs = {}
    for i, attr in ipairs(gradient.attrs) do attrs[i] = ("~%s: float"):format(attr) end
    local own_name = ("%s_grad_%s%s"):format(name, operand, kept and "_kept" or "")
    local def = {
        name = own_name, doc = ("Gradient of %s for %s."):format(name, operand), samples = {},
        sig = signature_of(own_name, gradient.operands, table.concat(attrs, ", ")),
    }
    if kept then def.backward = false end
    flow._op[def.name] = define_formula(def, gradient, tensors_of(gradient.operands), true)
    return flow._op[def.name]
end

-- Positions among all, from 0; -1: of the gradient. kept: names of further results, result 1 is -3.
local function positions(names, all, kept)
    local list = {}
    for i, name in ipairs(names) do
        list[i] = -1
        for k, other in ipairs(all) do if other == name then list[i] = k - 1 end end
        for k, other in ipairs(kept or {}) do if other == name then list[i] = -2 - k end end
    end
    return list
end

-- The list from which the core computes the gradients of a formula; nil if one is too long for it. kept: see
-- formula_of.kept.
local function gradient_list(def, formula, gradients, g, kept)
    local list = {}
    for i, operand in ipairs(formula.operands) do
        local gradient = gradients[operand]
        if gradient and gradient.long then return nil end
        if gradient and kept then gradient = formula_of.from_kept(gradient, kept, formula) end
        local given = gradient and gradient.result.kind == "operand" and gradient.result.name == g
        list[i] = {given = given or false}
        if gradient and not given then
            list[i].op = define_gradient(def.name, operand, gradient, kept)
            list[i].operands = positions(gradient.operands, formula.operands, kept and kept.names)
            list[i].attrs = positions(gradient.attrs, formula.attrs)
        end
    end
    return list
end

-- backward of a formula, from the formulas of its gradients, which are ops of the core where they are short enough.
-- They are derived now, or when `later` at their first use. The second function is to be called with the op's.
local function formula_backward(def, formula, parameters, later)
    local gradients, g, self, ops
    local tensors = {}
    for _, p in ipairs(parameters) do tensors[p.name] = p.is_tensor and not p.takes_number end
    local function prepare()
        gradients, g = formula_of.gradients(formula)
        ops = gradient_list(def, formula, gradients, g)
        if not ops then return end
        local kept = not later and formula_of.kept(formula, gradients, tensors)
        if kept then
            kept.list = gradient_list(def, formula, gradients, g, kept)
            kept.saves_out = (1 << #kept.nodes + 1) - 2
        end
        own.set_gradients(self, ops, kept or nil)
    end
    local function compute(i, gradient, values)
        local f = ops and ops[i].op
        if not f then return formula_of.evaluate(gradient, values) end
        local arguments = {}
        for k, name in ipairs(gradient.operands) do arguments[k] = values[name] end
        for k, name in ipairs(gradient.attrs) do arguments[#gradient.operands + k] = values[name] end
        return f(table.unpack(arguments))
    end
    local function backward(ctx, grad)
        if not gradients then prepare() end
        local values, list = setmetatable({[g] = grad}, {__index = ctx}), {}
        for i, operand in ipairs(formula.operands) do
            local gradient = ctx.needs[operand] and gradients[operand]
            list[i] = gradient and compute(i, gradient, values) or nil
        end
        return table.unpack(list, 1, #formula.operands)
    end
    return backward, function(f)
        self = f
        if not later then prepare() end
    end
end

-- Names of the operands that the gradients read.
local function read_by(formula, gradients)
    local names, seen = {}, {}
    for _, gradient in pairs(gradients) do
        for _, name in ipairs(gradient.operands) do seen[name] = true end
    end
    for _, name in ipairs(formula.operands) do if seen[name] then names[#names + 1] = name end end
    return names
end

function define_formula(def, formula, parameters, is_gradient)
    local backward, mentioned = backward_of(def, parameters)
    local publish_gradients
    if def.backward == nil then
        backward, publish_gradients = formula_backward(def, formula, parameters, is_gradient)
        mentioned = not is_gradient and read_by(formula, (formula_of.gradients(formula))) or nil
    end
    def.saves = def.saves or mentioned
    local saves_in, saves_out = saved_bits(def, parameters)
    local f, is_method, in_place = own.define{
        name = def.name, sig = def.sig, doc = def.doc, samples = def.samples, results = 1, saves_in = saves_in,
        saves_out = saves_out, differentiable = def.backward ~= false, formula = formula_of.encode(formula),
        linear = is_gradient, as_ops = formula_of.as_ops(formula), backward = backward,
        derived = def.backward == nil,
    }
    if publish_gradients then publish_gradients(f) end
    return f, is_method, in_place
end

-- A sample for each formula: all its operands, and small ones that broadcast.
local function formula_samples(formula)
    local one, other = {}, {}
    for i in ipairs(formula.operands) do
        one[i], other[i] = "flow.rand(3, 4) + 0.5", i == 1 and "flow.rand(2, 1, 4) + 0.5" or "flow.rand(3, 1) + 0.5"
    end
    return {table.concat(one, ", "), table.concat(other, ", ")}
end

local function split_names(parameters, who)
    local operands, attrs, defaults = {}, {}, true
    for _, p in ipairs(parameters) do
        if p.is_list then check.fail("op: a formula has no lists of tensors ('%s' of %s)", p.name, who) end
        if p.is_tensor then operands[#operands + 1] = p.name
        elseif not p.is_number then check.fail("op: attribute '%s' of a formula must be a number", p.name)
        else
            attrs[#attrs + 1] = p.name
            defaults = defaults and p.default ~= nil
        end
    end
    return operands, attrs, defaults
end

local function from_formula(def)
    for _, key in ipairs{"forward", "infer", "sbp"} do
        if def[key] then check.fail("op: a formula needs no %s", key) end
    end
    if def.results ~= 1 then check.fail("op: a formula has one result, got results = %d", def.results) end
    if def.sig and def.attrs then check.fail("op: attrs are part of sig; write one of them") end
    local parameters = own.parameters(def.sig or ("%s(%s)"):format(def.name, def.attrs or ""))
    local operands, attrs, defaults = split_names(parameters, def.name)
    if not def.sig and operands[1] then
        check.fail("op: attrs: '%s' has no type; write %s: float", operands[1], operands[1])
    end
    local formula = formula_of.read("op", def.formula, def.sig and operands, attrs)
    if not def.sig then
        parameters = table.move(parameters, 1, #parameters, #formula.operands + 1, tensors_of(formula.operands))
        def.sig = signature_of(def.name, formula.operands, def.attrs)
    end
    check_name(def)
    def.doc = def.doc or "Elementwise: " .. def.formula
    def.samples = def.samples or defaults and formula_samples(formula) or {}
    check_samples(def)
    return publish(def.name, define_formula(def, formula, parameters))
end

local function from_functions(def)
    if not def.forward then check.fail("op: '%s' needs forward or formula", def.name) end
    if def.attrs then check.fail("op: attrs belong to a formula; write them into sig") end
    def.sig = def.sig or def.name .. "(x)"
    check_name(def)
    local parameters = own.parameters(def.sig)
    local backward, mentioned = backward_of(def, parameters)
    def.saves, def.samples = def.saves or mentioned, def.samples or {}
    local saves_in, saves_out = saved_bits(def, parameters)
    check_samples(def)
    if type(def.sbp) == "table" and #def.sbp == 0 and next(def.sbp) then
        check.fail("op: sbp is a list of rows, as {\"S(0), B -> S(0)\"}")
    end
    return publish(def.name, own.define{
        name = def.name, sig = def.sig, doc = def.doc or "An op of the script.", samples = def.samples,
        results = def.results, saves_in = saves_in, saves_out = saves_out,
        differentiable = def.backward ~= false, infer = def.infer, sbp = def.sbp,
        forward = def.forward, backward = backward,
    })
end

-- ---- shared objects ----

---Opens a shared object with ops in C (see examples/ops) and makes functions and methods of them; the list of their
---names. The object stays open. A path without a slash is one of the current folder.
---@param path string
---@return string[]
function M.load_ops(path)
    local names = {}
    local ops = own.load(path, function(name)
        if not loaded[name] and (flow.has(name) or flow.has("x:" .. name) or flow._op[name]) then
            check.fail("load_ops: flow has '%s' already", name)
        end
    end)
    for i, op in ipairs(ops) do
        local name = op[1]
        if not loaded[name] then publish(name, op[2], op[3], op[4]) end
        loaded[name], names[i] = true, name
    end
    return names
end

check.define_type("backward", "a function, a list of expressions, or false", function(value)
    return type(value) == "function" or value == false or type(value) == "table" and not is_tensor(value)
end)

---Defines flow.NAME and x:NAME. sig: "name(x, y|n, ~beta: float = 1)", as help shows it; ~ marks a value that shapes do
---not depend on. forward(x, y, beta) gets the arguments in this order, of a global tensor this rank's part, and returns
---`results` tensors; it changes none of its operands, and returns keep:clone() of what it makes and keeps. infer gets
---{shape =, dtype =} for each tensor and returns the same for each result (left out: the
---operands broadcast). sbp: rows as "S(0), B -> S(0)", or a function like infer that returns them (left out: B only).
---backward(ctx, g) gets ctx.x, ctx.beta, ctx.out, ctx.needs.x and returns the gradients of the tensors; or expressions,
---{"g * y", "g * x"}; left out: that of forward's ops; false: none. samples: argument lists as text, which
---flow.testing.check_op(name) tests the op with.
---
---Or an elementwise op of one line, one kernel with its gradient: formula = "x * sigmoid(beta * x)" with attrs =
---"beta: float = 1" (or with sig), of + - * / ^, comparisons and elementwise functions. Its dtype is that of these ops;
---a condition among floats counts as 0 or 1, and conditions among themselves are bools: (x > 0) + (y > 0) is "or".
---@param opts {name: string, sig: string, infer: function, sbp: string[]|function, forward: function,
---backward: function|string[]|false, saves: string[], samples: string[], doc: string, results: integer,
---replace: boolean, formula: string, attrs: string}
---@return function
function M.op(opts)
    check_word(opts.name)
    if opts.formula then return from_formula(opts) end
    return from_functions(opts)
end

check.takes(M, {
    "load_ops(path: string)",
    "op({name: string, sig: string?, infer: function?, sbp: list or function?, forward: function?, " ..
        "backward: backward?, saves: list?, samples: list?, doc: string?, results: integer 1..4 = 1, " ..
        "replace: boolean = false, formula: string?, attrs: string?})",
})

return M
