-- own_op.lua -- flow.op: a function and a method like the built-in ones, from a table of Lua functions.

local flow = require "flow"
local check = require "flow.check"

local own, is_tensor = flow._own, flow.is_tensor

local M = {}

local ALL = 0xffffffff
local defined = {}      -- names of ops of this state

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

local function check_name(def)
    local name = def.name
    if not name:find("^%l[%w_]*$") or #name > 40 then
        check.fail("op: a name is lower-case letters, digits and _, at most 40, got %s", check.quote(name))
    elseif name:sub(-1) == "_" then
        check.fail("op: '%s': a name with _ at its end is for what changes its operand", name)
    end
    local word = def.sig:match("^%s*([%w_]*)")
    if word ~= name then
        check.fail("op: the signature must begin with the name '%s', got %s", name, check.quote(word))
    end
    if defined[name] and def.replace then return end
    if defined[name] then
        check.fail("op: '%s' is defined already; another name, or replace = true for the new one in its place", name)
    elseif flow.has(name) or flow.has("x:" .. name) then
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

-- "g * y": an expression in the operands, attributes and results by name, g (or g1, g2) and functions of flow. What it
-- mentions goes into `mentioned`.
local function compile_gradient(def, parameters, i, text, mentioned)
    local names, tensors = {out = true, needs = true}, {out = true}
    for _, p in ipairs(parameters) do names[p.name], tensors[p.name] = true, p.is_tensor end
    local chunk, message = load("local ctx, g1, g2, g3, g4 = ...; local g = g1; local _ENV = ctx; return " .. text,
        ("=gradient %d of %s"):format(i, def.name), "t")
    if not chunk then check.fail("op: %s", message) end
    for word in text:gsub("%d[%w.]*", ""):gmatch("%f[%a_][%a_][%w_]*") do
        local known = names[word] or word:find("^g[1-4]?$") or rawget(flow, word) ~= nil or word == "flow"
            or word == "not" or word == "and" or word == "or" or word == "true" or word == "false" or word == "nil"
        local method = text:find("[:.]%s*" .. word)
        if tensors[word] then mentioned[#mentioned + 1] = word end
        if not known and not method then
            local all = check.sorted_keys(names)
            check.fail("op: gradient %d of %s ('%s') names '%s', which is no parameter, result or function%s", i,
                def.name, text, word, check.suggest(word, all))
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
        check.fail("op: backward must hold %d expressions, one for each tensor, got %d", count, #def.backward)
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
            if value == nil then value = rawget(flow, key) end
            return value
        end}), {}
        for i = 1, count do gradients[i] = chunks[i] and ctx.needs[needs[i]] and chunks[i](visible, ...) or nil end
        return table.unpack(gradients, 1, count)
    end, mentioned
end

-- ---- defining ----

local function publish(name, f, is_method)
    flow._op[name], defined[name] = f, true
    rawset(flow, name, f)
    if is_method then rawset(flow._methods, name, f) end
    return f
end

local function define(def)
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
    local f, is_method = own.define{
        name = def.name, sig = def.sig, doc = def.doc or "An op of the script.", samples = def.samples,
        results = def.results, saves_in = saves_in, saves_out = saves_out,
        differentiable = def.backward ~= false, infer = def.infer, sbp = def.sbp,
        forward = def.forward, backward = backward,
    }
    return publish(def.name, f, is_method)
end

check.define_type("backward", "a function, a list of expressions, or false", function(value)
    return type(value) == "function" or value == false or type(value) == "table" and not is_tensor(value)
end)

---Defines flow.NAME and x:NAME. sig: "name(x, y|n, ~beta: float = 1)", as help shows it; ~ marks a value that shapes do
---not depend on. forward(x, y, beta) gets the arguments in this order, of a global tensor this rank's part, and returns
---`results` tensors. infer gets {shape =, dtype =} for each tensor and returns the same for each result (left out: the
---operands broadcast). sbp: rows as "S(0), B -> S(0)", or a function like infer that returns them (left out: B only).
---backward(ctx, g) gets ctx.x, ctx.beta, ctx.out, ctx.needs.x and returns the gradients of the tensors; or expressions,
---{"g * y", "g * x"}; left out: that of forward's ops; false: none. samples: argument lists as text, which
---flow.testing.check_op(name) tests the op with.
---@param opts {name: string, sig: string, infer: function, sbp: string[]|function, forward: function,
---backward: function|string[]|false, saves: string[], samples: string[], doc: string, results: integer,
---replace: boolean}
---@return function
function M.op(opts)
    return define(opts)
end

check.takes(M, {
    "op({name: string, sig: string?, infer: function?, sbp: list or function?, forward: function, " ..
        "backward: backward?, saves: list?, samples: list?, doc: string?, results: integer 1..4 = 1, " ..
        "replace: boolean = false})",
})

return M
