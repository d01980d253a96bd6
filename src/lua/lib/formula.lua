-- formula.lua -- formulas of elementwise ops: text to a graph of rows, its derivative, the list that the core runs.
--
-- A graph is a pool of nodes in which equal ones are one, numbered so that operands come before what uses them:
--   {kind = "operand", name =}  {kind = "attr", name =}  {kind = "number", value =}
--   {kind = "row", row =, nodes..., attrs = {nodes or false}}
-- Derivatives are put together from the gradients of the rows, which the descriptors of the built-in ops have as text.

local flow = require "flow"
local check = require "flow.check"

local own = flow._own

local M = {}

local KINDS = {operand = 0, attr = 1, number = 2, row = 3}
local MOST_NODES, MOST_ROWS, MOST_LEVELS = 64, 40, 100
local MOST_READ = 1000      -- nodes while a formula is read: those that no kernel runs by far

-- ---- rows ----

local rows = {}     -- by name; false: there is none

-- {id =, name =, vjp =, tensors = names, attrs = {{name =, absent = where it is left out}}} of a row that formulas may
-- use.
local function row_of(name)
    if rows[name] == nil then
        local row = own.row(name) or false
        rows[name] = row
        if row then
            row.name, row.tensors, row.attrs = name, {}, {}
            for _, p in ipairs(own.parameters(row.sig)) do
                if p.is_tensor then row.tensors[#row.tensors + 1] = p.name
                else
                    local i = #row.attrs + 1
                    row.attrs[i] = {name = p.name, absent = row.absent[i], is_number = p.is_number}
                end
            end
        end
    end
    return rows[name]
end

-- ---- nodes ----

local function new_pool() return {nodes = {}, by_key = {}} end

local function intern(pool, key, node)
    local found = pool.by_key[key]
    if found then return found end
    node.id = #pool.nodes + 1
    pool.nodes[node.id], pool.by_key[key] = node, node
    return node
end

local function number(pool, value)
    return intern(pool, math.type(value) .. (" %a"):format(value), {kind = "number", value = value})
end

local function value_of(node) return node and node.kind == "number" and node.value or nil end

-- Functions of numbers that are folded here; nil: the core computes it.
local folds = {
    add = function(x, y) return x + y end, sub = function(x, y) return x - y end,
    mul = function(x, y) return x * y end, div = function(x, y) return x / y end,
    pow = function(x, y) return x ^ y end, log = math.log, exp = math.exp, sqrt = math.sqrt,
    neg = function(x) return -x end, square = function(x) return x * x end,
}

local call

-- True where the number leaves the dtype of an integer as it is; in a derivative all is float.
local function is(pool, node, wanted)
    local value = value_of(node)
    return value == wanted and (pool.derives or math.type(value) == "integer")
end

-- True if x * a * b is x * (a * b) but for the last bits: neither overflows nor underflows where the other does not.
local function may_join(a, b)
    local x, y = math.abs(a), math.abs(b)
    return (x >= 1 and y >= 1 and x * y < 1e30) or (x <= 1 and y <= 1 and x * y > 1e-30)
end

-- The simpler form of a call, or nil: with the same bits, and in a derivative the same but for the last ones and the
-- sign of 0. A factor 0 stays, as 0 * inf is nan.
local simpler = {
    add = function(pool, x, y)
        if pool.derives and value_of(x) == 0 then return y elseif pool.derives and value_of(y) == 0 then return x end
        if y.kind == "row" and y.row.name == "neg" then return call(pool, "sub", {x, y[1]}) end
    end,
    sub = function(pool, x, y)
        if is(pool, y, 0) then return x end -- but x + 0 is not x where that is -0
        if pool.derives and value_of(x) == 0 then return call(pool, "neg", {y}) end
    end,
    mul = function(pool, x, y)
        if is(pool, x, 1) then return y elseif is(pool, y, 1) then return x end
        if is(pool, x, -1) then return call(pool, "neg", {y}) end
        if is(pool, y, -1) then return call(pool, "neg", {x}) end
        local factor = pool.derives and x.kind == "row" and x.row.name == "mul" and value_of(x[2])
        if factor and value_of(y) and may_join(factor, value_of(y)) then
            return call(pool, "mul", {x[1], number(pool, factor * value_of(y))})
        end
    end,
    div = function(pool, x, y)
        if pool.derives and value_of(y) == 1 then return x end
    end,
    neg = function(_, x)
        if x.kind == "row" and x.row.name == "neg" then return x[1] end
    end,
    pow = function(pool, x, y)
        if is(pool, y, 1) then return x end
        if is(pool, y, 2) then return call(pool, "square", {x}) end
    end,
    pow_backward = function(pool, g, x, y)      -- g y x^(y - 1)
        local exponent = value_of(y)
        if not exponent then return nil end
        if exponent == 0 then return number(pool, 0) end
        local power = call(pool, "pow", {x, number(pool, exponent - 1)})
        return call(pool, "mul", {call(pool, "mul", {g, power}), y})
    end,
}

local function all_values(nodes)
    local list = {}
    for i, node in ipairs(nodes) do
        if node.kind ~= "number" then return nil end
        list[i] = node.value
    end
    return list
end

-- A row of nodes; attrs: nodes of numbers in the order of the row's attributes, false: left out.
function call(pool, name, nodes, attrs)
    local row = row_of(name)
    local numbers = all_values(nodes)
    if numbers and folds[name] then return number(pool, folds[name](table.unpack(numbers))) end
    local simple = simpler[name] and simpler[name](pool, nodes[1], nodes[2], nodes[3])
    if simple then return simple end
    local node, key = {kind = "row", row = row, attrs = attrs or {}}, name
    for i, arg in ipairs(nodes) do
        node[i] = arg
        key = key .. "," .. arg.id
    end
    for i = 1, #row.attrs do
        node.attrs[i] = node.attrs[i] or false
        key = key .. ";" .. (node.attrs[i] and node.attrs[i].id or "")
    end
    return intern(pool, key, node)
end

-- ---- reading ----

-- As messages show it.
local function shown(text) return #text > 200 and text:sub(1, 200) .. "..." or text end

local function fail(reader, at, format, ...)
    check.fail("%s: formula '%s', character %d: %s", reader.who, shown(reader.text), at, format:format(...))
end

local operators = {
    ["+"] = "add", ["-"] = "sub", ["*"] = "mul", ["/"] = "div", ["<"] = "lt", [">"] = "gt", ["<="] = "le",
    [">="] = "ge", ["=="] = "eq", ["~="] = "ne", ["^"] = "pow",
}

-- Replacements in formulas for other functions and signs.
local instead = {
    max = "maximum(x, y)", min = "minimum(x, y)", ["%"] = "remainder(x, y)", ["="] = "==", ["!"] = "~=",
    ["and"] = "logical_and(x, y)", ["or"] = "logical_or(x, y)", ["not"] = "logical_not(x)",
}

local function advice(word) return instead[word] and "; write " .. instead[word] or "" end

-- The next token: its kind ("name", "number", "end" or the sign itself), its text, where it begins.
local function peek(reader)
    if reader.token then return reader.token, reader.word, reader.start end
    local text = reader.text
    local at = text:find("%S", reader.at) or #text + 1
    local kind, word
    if at > #text then kind, word = "end", "the end"
    elseif text:find("^[%a_]", at) then kind, word = "name", text:match("^[%w_]+", at)
    elseif text:find("^%.?%d", at) then
        word = text:match("^%d*%.?%d*[eE][+-]?%d+", at) or text:match("^%d*%.?%d*", at)
        kind = "number"
    else
        word = text:match("^[<>=~]=", at) or text:sub(at, at)
        kind = word
    end
    reader.token, reader.word, reader.start, reader.at = kind, word, at, at + #word
    if kind == "end" then reader.at = at end
    return kind, word, at
end

local function take(reader)
    local kind, word, at = peek(reader)
    reader.token = nil
    return kind, word, at
end

local function expect(reader, sign)
    local kind, word, at = take(reader)
    if kind ~= sign then fail(reader, at, "%s is expected, got %s%s", sign, check.quote(word), advice(word)) end
end

local sum, comparison, signed

local function names_of_rows()
    local names = {}
    for name in pairs(flow._op) do if not name:find "_backward" and row_of(name) then names[#names + 1] = name end end
    return names
end

local function unknown_function(reader, name, at)
    if not instead[name] and type(flow._op[name]) == "function" and not name:find "_backward" then
        fail(reader, at, "%s is not elementwise; an op with forward may call it", check.quote(name))
    end
    local other = instead[name] and advice(name) or check.suggest(name, names_of_rows())
    fail(reader, at, "unknown function %s%s", check.quote(name), other)
end

local function read_call(reader, name, at)
    local row, args = row_of(name), {}
    if name == "zeros_like" and reader.inner then row = row_of "neg" end
    if not row or row.hidden and not reader.inner then unknown_function(reader, name, at) end
    if peek(reader) ~= ")" then
        repeat
            args[#args + 1] = comparison(reader)
            local more = peek(reader) == ","
            if more then take(reader) end
        until not more
    end
    expect(reader, ")")
    if name == "zeros_like" and reader.inner then return number(reader.pool, 0) end
    local count = #row.tensors
    if #args < count or #args > count + #row.attrs then
        local most = count + #row.attrs
        fail(reader, at, "%s takes %s%d argument%s, got %d", row.sig:gsub("|n%f[%W]", ""):gsub("~", ""),
            most > count and count .. " to " or "", most, most == 1 and "" or "s", #args)
    end
    local attrs = {table.unpack(args, count + 1)}
    for i, attr in ipairs(attrs) do
        if not row.attrs[i].is_number or attr.kind == "operand" or attr.kind == "row" then
            fail(reader, at, "%s of %s must be a number or an attribute", row.attrs[i].name, name)
        end
    end
    return call(reader.pool, name, {table.unpack(args, 1, count)}, attrs)
end

local function primary(reader)
    local kind, word, at = take(reader)
    if kind == "number" then
        local value = tonumber(word)
        if not value or reader.text:find("^[%w_.]", reader.at) then
            fail(reader, at, "%s is no number", check.quote(reader.text:match("^[%w_.]+", at)))
        end
        return number(reader.pool, value)
    elseif kind == "(" then
        local node = comparison(reader)
        expect(reader, ")")
        return node
    elseif kind ~= "name" then
        fail(reader, at, "a name, a number or ( is expected, got %s", check.quote(word))
    elseif peek(reader) == "(" then
        take(reader)
        return read_call(reader, word, at)
    end
    local node = reader.lookup(word)
    if node then return node end
    if word == "true" or word == "false" then return number(reader.pool, word == "true" and 1 or 0) end
    if word == "pi" then return number(reader.pool, math.pi) end
    fail(reader, at, "unknown name %s%s", check.quote(word), check.suggest(word, reader.names))
end

-- One level deeper; each text has an end.
local function unary(reader)
    local _, _, at = peek(reader)
    reader.depth = reader.depth + 1
    if reader.depth > MOST_LEVELS then fail(reader, at, "more than %d levels of parentheses and signs", MOST_LEVELS) end
    local node = signed(reader)
    reader.depth = reader.depth - 1
    return node
end

function signed(reader)
    if peek(reader) == "-" then
        take(reader)
        return call(reader.pool, "neg", {unary(reader)})
    end
    local node = primary(reader)
    if peek(reader) ~= "^" then return node end
    take(reader)
    return call(reader.pool, "pow", {node, unary(reader)})
end

-- Operands joined by some signs, from the left.
local function joined(reader, operand, signs)
    local node = operand(reader)
    while signs[peek(reader)] do
        local sign = take(reader)
        node = call(reader.pool, operators[sign], {node, operand(reader)})
        if not reader.inner and #reader.pool.nodes > MOST_READ then
            fail(reader, reader.at, "more than %d steps, one kernel runs %d", MOST_READ, MOST_ROWS)
        end
    end
    return node
end

local function product(reader) return joined(reader, unary, {["*"] = true, ["/"] = true}) end
function sum(reader) return joined(reader, product, {["+"] = true, ["-"] = true}) end

function comparison(reader)
    local left = sum(reader)
    local sign = peek(reader)
    if not operators[sign] then return left end
    take(reader)
    return call(reader.pool, operators[sign], {left, sum(reader)})
end

-- lookup(name): the node that a name stands for, or nil. inner: a gradient of ours, which may use hidden rows.
local function read(pool, who, text, lookup, names, inner)
    local reader = {pool = pool, who = who, text = text, at = 1, lookup = lookup, names = names or {}, inner = inner,
        depth = 0}
    local node = comparison(reader)
    local kind, word, at = take(reader)
    if kind ~= "end" then
        fail(reader, at, "an operator is expected, got %s%s", check.quote(word), advice(word))
    end
    return node
end

-- ---- derivatives ----

-- The gradients of the operands of a row, as nodes or false.
local function row_gradients(pool, node, g)
    local row, list, names = node.row, {}, {g = g, out = node}
    for i, name in ipairs(row.tensors) do names[name] = node[i] end
    for i, attr in ipairs(row.attrs) do
        names[attr.name] = node.attrs[i] or number(pool, attr.absent)
    end
    for i, text in ipairs(row.vjp) do
        list[i] = text and read(pool, row.name, text, function(name) return names[name] end, nil, true)
    end
    return list
end

-- The nodes that depend on operands.
local function dependent(node, seen)
    if seen[node] ~= nil then return seen[node] end
    local depends = node.kind == "operand"
    for _, arg in ipairs(node) do depends = dependent(arg, seen) or depends end
    seen[node] = depends
    return depends
end

-- Gradients of the graph with respect to its operands, by name: nodes of the same pool, in terms of an operand `g`.
local function derive(pool, result, g)
    local seen, adjoints = {}, {[result] = g}
    dependent(result, seen)
    pool.derives = true
    for id = result.id, 1, -1 do
        local node = pool.nodes[id]
        local adjoint = seen[node] and adjoints[node]
        if adjoint and node.kind == "row" then
            for i, gradient in pairs(row_gradients(pool, node, adjoint)) do
                local arg = node[i]
                if gradient and arg and seen[arg] then
                    local before = adjoints[arg]
                    adjoints[arg] = before and call(pool, "add", {before, gradient}) or gradient
                end
            end
        end
    end
    pool.derives = false
    local gradients = {}
    for node, adjoint in pairs(adjoints) do
        if node.kind == "operand" then gradients[node.name] = adjoint end
    end
    return gradients
end

-- ---- lists for the core ----

-- The nodes that `result` needs, itself last, and how many are rows. kept: {[node] = name} of rows that are operands.
local function needed(result, kept)
    local list, marked, count = {}, {}, 0
    local function mark(node)
        if marked[node] then return end
        marked[node] = true
        if kept and kept[node] then
            list[#list + 1] = node
            return
        end
        for _, arg in ipairs(node) do mark(arg) end
        for _, attr in ipairs(node.attrs or {}) do if attr then mark(attr) end end
        list[#list + 1] = node
        count = count + (node.kind == "row" and 1 or 0)
    end
    mark(result)
    return list, count
end

---@class flow.formula
---@field pool table
---@field result table
---@field operands string[]
---@field attrs string[]
---@field kept table<table, string>? rows that are operands of these names

local function fits(list, count) return #list <= MOST_NODES and count <= MOST_ROWS end

-- The arguments of own.define: positions of operands and attributes are those in the lists of names.
local function encode(formula)
    local list, at, places = {}, {}, {}
    for i, name in ipairs(formula.operands) do places[name] = i - 1 end
    for i, name in ipairs(formula.attrs) do places[name] = i - 1 end
    for i, node in ipairs((needed(formula.result, formula.kept))) do
        at[node] = i
        local name = formula.kept and formula.kept[node]
        local entry = {kind = name and KINDS.operand or KINDS[node.kind], index = places[name or node.name],
            number = node.value}
        if node.kind == "row" and not name then
            entry.index, entry.row = node.row.id, node.row.name
            for k, arg in ipairs(node) do entry["in" .. k] = at[arg] end
            for k in ipairs(node.row.attrs) do entry["attr" .. k] = node.attrs[k] and at[node.attrs[k]] or 0 end
        end
        list[i] = entry
    end
    return list
end

local comparisons = {}
for name in ("eq ne lt le gt ge isnan isinf isfinite"):gmatch "%a+" do comparisons[name] = true end
for name in ("and or xor not"):gmatch "%a+" do comparisons["logical_" .. name] = true end

---True if the rows, dispatched one by one, compute the same: conditions are what comparisons give, other rows get none.
---@param formula flow.formula
---@return boolean
function M.as_ops(formula)
    for _, node in ipairs((needed(formula.result, formula.kept))) do
        for i, arg in ipairs(formula.kept and formula.kept[node] and {} or node) do
            local name = node.row.name
            local wanted = name == "where" and i == 1 or name == "masked_fill" and i == 2 or name:find "^logical" ~= nil
            local given = arg.kind == "row" and comparisons[arg.row.name] or false
            if wanted ~= given then return false end
        end
    end
    return formula.result.kind == "row"
end

-- The names of operands and attributes that occur, in the order of the lists.
local function used_names(result, formula)
    local seen, operands, attrs = {}, {}, {}
    for _, node in ipairs((needed(result))) do if node.name then seen[node.name] = true end end
    for _, name in ipairs(formula.operands) do if seen[name] then operands[#operands + 1] = name end end
    for _, name in ipairs(formula.attrs) do if seen[name] then attrs[#attrs + 1] = name end end
    return operands, attrs
end

---Reads a formula. who: for messages; operands, attrs: names; operands nil: the names that are no attributes, and each
---attribute must occur, or its name may be misspelt.
---@return flow.formula
function M.read(who, text, operands, attrs)
    local pool, nodes, names, mentioned = new_pool(), {}, {}, {}
    local found = operands or {}
    local function add(kind, name)
        nodes[name] = intern(pool, kind .. " " .. name, {kind = kind, name = name})
        names[#names + 1] = name
    end
    for _, name in ipairs(found) do add("operand", name) end
    for _, name in ipairs(attrs) do add("attr", name) end
    local result = read(pool, who, text, function(name)
        if not nodes[name] and not operands and name ~= "pi" and name ~= "true" and name ~= "false" then
            add("operand", name)
            found[#found + 1] = name
        end
        mentioned[name] = true
        return nodes[name]
    end, names)
    for _, name in ipairs(attrs) do
        if not operands and not mentioned[name] then
            check.fail("%s: formula '%s': does not use the attribute '%s'%s", who, shown(text), name,
                check.suggest(name, found))
        end
    end
    local list, count = needed(result)
    if not fits(list, count) then
        check.fail("%s: formula '%s': has %d steps, one kernel runs %d", who, shown(text), count, MOST_ROWS)
    end
    if #found == 0 then check.fail("%s: formula '%s': has no operand", who, shown(text)) end
    return {pool = pool, result = result, operands = found, attrs = attrs}
end

---The formulas of the gradients with respect to the operands, by name, each with the gradient of the result as operand
---`g`; nil for an operand without one. Those too long for one kernel are marked `long`.
---@param formula flow.formula
---@return table<string, flow.formula>, string g
function M.gradients(formula)
    local pool, g = formula.pool, "grad"
    for _, name in ipairs(formula.operands) do if name:find("^grad%d*$") then g = g .. #g end end
    for _, name in ipairs(formula.attrs) do if name == g then g = g .. "_" end end
    local node, list = intern(pool, "operand " .. g, {kind = "operand", name = g}), {}
    local gradients = derive(pool, formula.result, node)
    for _, name in ipairs(formula.operands) do
        local result = gradients[name]
        if result then
            local operands, attrs = used_names(result, formula)
            table.insert(operands, 1, g)
            local long = not fits(needed(result))
            list[name] = {pool = pool, result = result, operands = operands, attrs = attrs, long = long}
        end
    end
    return list, g
end

local MOST_KEPT, HEAVY = 2, 0.5      -- values; nanoseconds of a row

-- True if the node depends on an operand that is always a tensor.
local function is_tensor(node, tensors)
    if node.kind == "operand" then return tensors[node.name] or false end
    for _, arg in ipairs(node) do if is_tensor(arg, tensors) then return true end end
    return false
end

---Values of the formula that its gradients would compute again, at some cost: their nodes by position in what M.encode
---gives, and names by node; nil: there are none. tensors: names of operands that are never numbers.
---@param formula flow.formula
---@param gradients table<string, flow.formula>
---@param tensors table<string, boolean>
---@return {nodes: integer[], names: string[], kept: table<table, string>}?
function M.kept(formula, gradients, tensors)
    local again, list = {}, {nodes = {}, names = {}, kept = {}}
    for _, gradient in pairs(gradients) do
        for _, node in ipairs((needed(gradient.result))) do again[node] = true end
    end
    local name = "kept"
    for _, taken in ipairs(formula.operands) do if taken:find("^kept") then name = name .. "_" .. taken end end
    for _, taken in ipairs(formula.attrs) do if taken:find("^kept") then name = name .. "_" .. taken end end
    local nodes = needed(formula.result)
    for i = #nodes - 1, 1, -1 do
        local node = nodes[i]
        if again[node] and node.kind == "row" and node.row.cost > HEAVY and #list.nodes < MOST_KEPT
            and is_tensor(node, tensors) then
            list.nodes[#list.nodes + 1], list.names[#list.names + 1] = i - 1, name .. #list.nodes + 1
            list.kept[node] = list.names[#list.names]
        end
    end
    return list.nodes[1] and list or nil
end

---The gradient with what is kept as operands.
---@return flow.formula
function M.from_kept(gradient, list, formula)
    local operands, attrs, seen = {gradient.operands[1]}, {}, {}
    for _, node in ipairs((needed(gradient.result, list.kept))) do
        local name = list.kept[node] or node.name
        if name then seen[name] = true end
    end
    for _, name in ipairs(formula.operands) do if seen[name] then operands[#operands + 1] = name end end
    for _, name in ipairs(list.names) do if seen[name] then operands[#operands + 1] = name end end
    for _, name in ipairs(formula.attrs) do if seen[name] then attrs[#attrs + 1] = name end end
    return {pool = gradient.pool, result = gradient.result, operands = operands, attrs = attrs, kept = list.kept}
end

-- A row of numbers: in Lua, or as the op computes it.
local function number_of(name, args)
    if folds[name] then return folds[name](table.unpack(args)) end
    args[1] = flow.tensor(args[1], {dtype = "float64", device = "cpu"})
    return flow.no_grad(flow._op[name], table.unpack(args)):item()
end

---The value of a formula, op by op. values: by name.
function M.evaluate(formula, values)
    local known = {}
    for _, node in ipairs((needed(formula.result))) do
        if node.kind == "number" then known[node] = node.value
        elseif node.kind ~= "row" then known[node] = values[node.name]
        else
            local args = {}
            for i, arg in ipairs(node) do args[i] = known[arg] end
            for i, attr in ipairs(node.attrs) do args[#node + i] = attr and known[attr] or nil end
            local any = false
            for i = 1, #node do any = any or flow.is_tensor(args[i]) end
            if any then known[node] = flow._op[node.row.name](table.unpack(args, 1, #node + #node.attrs))
            else known[node] = number_of(node.row.name, args) end
        end
    end
    local result = known[formula.result] -- a number: the gradient of floor(x) is 0
    return flow.is_tensor(result) and result or flow._op.full_like(values[formula.operands[1]], result)
end

M.encode = encode

return M
