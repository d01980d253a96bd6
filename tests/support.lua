-- support.lua -- what the specs share: comparing tensors, finite differences, cutting tensors into parts.
local assert = require "luassert"
local flow = require "flow"
local reference = require "tests.reference"
local testing = flow._testing

local M = {}

M.all = os.getenv "FLOW_TEST_ALL" == "1"

if flow.world_size() == 1 then flow.manual_seed(1) end -- a file of specs draws the same numbers at every run

-- A number that depends on the text alone.
function M.seed(text)
    local h = 5381
    for i = 1, #text do h = (h * 33 + text:byte(i)) % 2147483647 end
    return h
end

-- What f(...) fails with, without the positions. An op that was queued (FLOW_ENGINE=queued) fails later and names its own line.
function M.message_of(f, ...)
    pcall(flow.sync)
    local ok, message = pcall(function(...)
        f(...)
        flow.sync()
    end, ...)
    assert.is_false(ok, "no error")
    assert.is_string(message)
    return (message:gsub("^.-:%d+: ", ""):gsub("^([%w_]+) %([^()]+:%d+%): ", "%1: "))
end

-- f(...) fails with a message that has this in it.
function M.fails(message, f, ...)
    local got = M.message_of(f, ...)
    assert.is_truthy(got:find(message, 1, true), got)
end

-- What f(...) itself fails with, without the position: what it queued is not waited for, and positions of ops are left.
function M.error_of(f, ...)
    local ok, message = pcall(f, ...)
    assert.is_false(ok, "no error")
    return (tostring(message):gsub("^[^:\n]+:%d+: ", ""))
end

-- The memory of a device once everything that earlier specs left behind is gone: finalizers may free tensors one collection later,
-- and what a queued op or a deferred list holds goes when the engine gets there.
function M.settled_memory(device)
    local now, before
    repeat
        before = now
        pcall(flow.sync)
        collectgarbage()
        flow.zeros(1)
        collectgarbage()
        now = flow.memory {device = device}
    until before and now.live_bytes == before.live_bytes and now.tensors == before.tensors
    return now
end

-- The values that a sample expression of an op gives, packed.
function M.arguments(op, sample)
    flow.manual_seed(M.seed(op.name .. sample))
    local chunk = assert(load("local flow = ... return " .. sample, "=sample of " .. op.name))
    return table.pack(chunk(flow))
end

-- The method of that name with these arguments first, as a function of x, axes and keepdim.
function M.reduction(name, ...)
    local before = table.pack(...)
    return function(x, axes, keepdim)
        local args = table.move(before, 1, before.n, 1, {})
        args[before.n + 1], args[before.n + 2] = axes, keepdim
        return x[name](x, table.unpack(args, 1, before.n + 2))
    end
end

-- The same values in a layout with gaps.
function M.strided(t)
    if t.ndim == 0 or t.requires_grad then return t end
    local wide = flow.stack({t, t}, t.ndim)
    return wide:select(-1, 0)
end

-- Flat list of numbers; booleans as 0 and 1.
function M.values(t)
    local list = t:to("float64"):contiguous():view(-1):totable()
    return list
end

local function near(a, b, eps)
    if a ~= a or b ~= b then return a ~= a and b ~= b end
    if a == b then return true end
    return math.abs(a - b) <= eps * math.max(1, math.abs(a), math.abs(b))
end

-- A shape as it is printed: "[2, 3]".
function M.shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- Equal shapes and nearly equal values.
function M.close(want, got, eps, what)
    if not flow.is_tensor(want) then
        assert.are.equal(want, got, what)
        return
    end
    assert.are.equal(M.shape_text(want.shape), M.shape_text(got.shape), what .. ": shape")
    local a, b = M.values(want), M.values(got)
    for i = 1, #a do
        if not near(a[i], b[i], eps) then
            error(("%s: element %d is %.9g, expected %.9g"):format(what, i - 1, b[i], a[i]), 2)
        end
    end
end

-- Equal dtypes as well.
function M.same(want, got, what, eps)
    if flow.is_tensor(want) then assert.are.equal(want.dtype, got.dtype, what .. ": dtype") end
    M.close(want, got, eps or 0, what)
end

-- Float tensors of an argument list, in order, with a way to rebuild the list from replacements.
local function float_tensors(args)
    local list = {}
    local function walk(value)
        if flow.is_tensor(value) then
            if value.dtype == "float64" then list[#list + 1] = value end
        elseif type(value) == "table" then
            for i = 1, value.n or #value do walk(value[i]) end
            local keys = {}
            for k in pairs(value) do if type(k) == "string" and k ~= "n" then keys[#keys + 1] = k end end
            table.sort(keys)
            for _, k in ipairs(keys) do walk(value[k]) end
        end
    end
    walk(args)
    return list
end

local function replace(value, map)
    if flow.is_tensor(value) then return map[value] or value end
    if type(value) ~= "table" then return value end
    local copy = {}
    for k, v in pairs(value) do copy[k] = replace(v, map) end
    return copy
end

-- First and second derivatives of f(args) against central differences in float64.
function M.gradcheck(f, args, what)
    local inputs, unique = float_tensors(args), {n = 0}
    for _, t in ipairs(inputs) do
        if not unique[t] then
            unique.n = unique.n + 1
            unique[unique.n], unique[t] = t, unique.n
        end
    end
    if unique.n == 0 then return end
    local function call(...)
        local map, leaves = {}, {...}
        for t, i in pairs(unique) do if flow.is_tensor(t) then map[t] = leaves[i] end end
        local live = replace(args, map)
        live.n = args.n
        local results = f(live)
        return table.unpack(results, 1, results.n)
    end
    local leaves = {table.unpack(unique, 1, unique.n)}
    local differentiable = false
    for _, y in ipairs {call(table.unpack(M.leaves(leaves)))} do
        differentiable = differentiable or flow.is_tensor(y) and y.dtype == "float64" and y.requires_grad
    end
    if differentiable then flow.gradcheck(call, leaves, {order = 2, most = 6, what = what}) end
end

-- Copies that require grad.
function M.leaves(list)
    local copies = {}
    for i, t in ipairs(list) do copies[i] = t:detach():clone():requires_grad_() end
    return copies
end

-- Gradient of the sum of an expression in x, written as Lua, at a list of values.
function M.check_gradient(expression, dtype, values, want, eps)
    local x = flow.tensor(values, {dtype = dtype, requires_grad = true})
    local y = assert(load("local flow, x = ... return " .. expression))(flow, x)
    y:sum():backward()
    local got = M.values(x.grad)
    for i, v in ipairs(want) do
        if not near(v, got[i], eps) then
            error(("%s in %s at %g: gradient %.9g, expected %.9g"):format(expression, dtype, values[i], got[i], v), 2)
        end
    end
end

---- SBP ----

-- Start and size of part `index` of n cut into `parts`.
function M.split(n, parts, index)
    local base, extra = n // parts, n % parts
    return base * index + math.min(index, extra), base + (index < extra and 1 or 0)
end

-- A term of a sum: zeros, positive and negative numbers, so that |x| does not pass as linear.
local function term(x)
    if x.dtype ~= "float64" then return flow.randint(-4, 5, x.shape):to(x.dtype) end
    return flow.where(flow.rand(x.shape):lt(0.2), 0, flow.randn(x.shape):to "float64" * 3)
end

-- What another rank may hold beside a value of a P(max) or P(min): as much, or something that loses.
local function loser(x, sbp)
    if x.dtype == "bool" then
        local mask = flow.randint(0, 2, x.shape):to "bool"
        return sbp == "P(max)" and x:logical_and(mask) or x:logical_or(mask)
    end
    local step = flow.randint(0, 4, x.shape) * (sbp == "P(max)" and -1 or 1) -- 0: a tie
    if not reference.is_float(x.dtype) then
        return (x:to "int64" + step):clamp(reference.lowest[x.dtype], reference.highest[x.dtype]):to(x.dtype)
    end
    return flow.where(x:isnan(), term(x), x + (step * flow.rand(x.shape)):to(x.dtype)) -- NaN wins over any number
end

-- The parts of x under one SBP.
function M.cut(x, sbp, parts)
    local axis = sbp:match("^S%((%d+)%)$")
    local list = {}
    for r = 0, parts - 1 do
        if axis then
            local start, size = M.split(x:size(tonumber(axis)), parts, r)
            list[r + 1] = x:narrow(tonumber(axis), start, size):clone()
        elseif sbp == "B" then
            list[r + 1] = x:clone()
        end
    end
    if #list > 0 then return list end
    if sbp == "P" then
        local rest = x:clone()
        for r = 1, parts - 1 do
            list[r] = term(x)
            rest = rest - list[r]
        end
        list[parts] = rest
        return list
    end
    local holder = flow.randint(0, parts, x.shape)
    for r = 0, parts - 1 do list[r + 1] = flow.where(holder:eq(r), x, loser(x, sbp)) end
    return list
end

-- The parts under an nd-SBP ("S(0),P") over a hierarchy, in the order of the ranks; replicas are alike.
function M.cut_over(x, nd_sbp, hierarchy)
    local sbp, inner = nd_sbp:match "^([^,]+),?(.*)$"
    local pieces = M.cut(x, sbp, hierarchy[1])
    if inner == "" then return pieces end
    local rest, list, parts = {table.unpack(hierarchy, 2)}, {}, nil
    for _, piece in ipairs(pieces) do
        if sbp == "B" and parts then for i, part in ipairs(parts) do parts[i] = part:clone() end
        else parts = M.cut_over(piece, inner, rest) end
        for _, part in ipairs(parts) do list[#list + 1] = part end
    end
    return list
end

-- The whole from its parts; eps: how far replicas may differ.
function M.join(list, sbp, eps)
    local axis = sbp:match("^S%((%d+)%)$")
    if axis then return flow.cat(list, tonumber(axis)) end
    if sbp == "B" then
        for r = 2, #list do M.same(list[1], list[r], "broadcast parts differ", eps or 1e-12) end
        return list[1]
    end
    local whole = list[1]
    for r = 2, #list do
        if sbp == "P" then whole = whole + list[r]
        elseif whole.dtype == "bool" then
            whole = sbp == "P(max)" and whole:logical_or(list[r]) or whole:logical_and(list[r])
        elseif sbp == "P(max)" then whole = flow.maximum(whole, list[r])
        else whole = flow.minimum(whole, list[r]) end
    end
    return whole
end

-- The whole from the parts under an nd-SBP over a hierarchy.
function M.join_over(list, nd_sbp, hierarchy, eps)
    local sbp, inner = nd_sbp:match "^([^,]+),?(.*)$"
    if inner == "" then return M.join(list, sbp, eps) end
    local rest, pieces, each = {table.unpack(hierarchy, 2)}, {}, #list // hierarchy[1]
    for i = 1, hierarchy[1] do pieces[i] = M.join_over({table.unpack(list, (i - 1) * each + 1, i * each)}, inner, rest, eps) end
    return M.join(pieces, sbp, eps)
end

-- "S(0),P" as {"S(0)", "P"}
function M.sbp_list(nd_sbp)
    local list = {}
    for sbp in nd_sbp:gmatch "[^,]+" do list[#list + 1] = sbp end
    return list
end

-- Signatures of a call over a hierarchy: {inputs = {"S(0),B", "B,B"}, outputs = {"S(0),B"}, body = false}.
function M.signatures(op, hierarchy, args)
    local list = {}
    for line in testing.signatures(op.name, hierarchy, table.unpack(args, 1, args.n)):gmatch("[^\n]+") do
        local kind, inputs, outputs = line:match("^(%a+)([^>]*)>?(.*)$")
        local case = {body = kind == "body", inputs = {}, outputs = {}}
        for sbp in inputs:gmatch("%S+") do case.inputs[#case.inputs + 1] = sbp end
        for sbp in outputs:gmatch("%S+") do case.outputs[#case.outputs + 1] = sbp end
        list[#list + 1] = case
    end
    return list
end

-- Tensors made of sizes: every rank's part of a split equals the part of the whole.
function M.check_source(op, args, parts)
    flow.manual_seed(7)
    local want = op.call(table.unpack(args, 1, args.n))
    local options = {}
    local n = args.n
    if type(args[n]) == "table" and #args[n] == 0 and next(args[n]) then
        for k, v in pairs(args[n]) do options[k] = v end
        n = n - 1
    end
    if options.placement then return end
    options.device = nil
    local ranks, sbps = {}, {"B"}
    for r = 0, parts - 1 do ranks[r + 1] = r end
    for axis = 0, want.ndim - 1 do sbps[#sbps + 1] = ("S(%d)"):format(axis) end
    for _, sbp in ipairs(sbps) do
        local list = {}
        for r = 0, parts - 1 do
            testing.set_world(parts, r)
            flow.manual_seed(7)
            options.placement, options.sbp = flow.placement("cpu", ranks), sbp
            local all = table.pack(table.unpack(args, 1, n))
            all[n + 1] = options
            list[r + 1] = op.call(table.unpack(all, 1, n + 1)):to_local()
        end
        testing.set_world(1, 0)
        if op.name ~= "empty" then M.close(want, M.join(list, sbp), 0, op.name .. " as " .. sbp) end
    end
end

-- `count` of a list, drawn with a text as the seed.
function M.some(list, count, text)
    local state, drawn = M.seed(text), {table.unpack(list)}
    count = math.min(count, #list)
    for i = 1, count do
        state = (state * 48271 + 11) % 2147483647
        local j = i + state % (#drawn - i + 1)
        drawn[i], drawn[j] = drawn[j], drawn[i]
    end
    return {table.unpack(drawn, 1, count)}
end

-- Placement of all ranks of a world as a hierarchy.
function M.grid(hierarchy, first)
    local each, list = 1, {}
    for k = 2, #hierarchy do each = each * hierarchy[k] end
    for i = 0, hierarchy[1] - 1 do
        local rank = (first or 0) + i * each
        list[i + 1] = #hierarchy == 1 and rank or M.grid({table.unpack(hierarchy, 2)}, rank)
    end
    return first and list or flow.placement("cpu", list)
end

-- One result of each rank, in a dry world: the ranks' parts of the operands are pieces[operand][rank].
local function run_on_ranks(run, whole, pieces, inputs, hierarchy, map_tensors)
    local results, sbps, ranks = {}, {}, 1
    for _, n in ipairs(hierarchy) do ranks = ranks * n end
    for r = 0, ranks - 1 do
        testing.set_world(ranks, r)
        local placement, at = M.grid(hierarchy), 0
        local mine = map_tensors(whole, function(t)
            at = at + 1
            return testing.from_part(pieces[at][r + 1], t.shape, placement, M.sbp_list(inputs[at]))
        end)
        mine.n = whole.n
        local got = run(mine)
        for j = 1, got.n do
            results[j] = results[j] or {}
            sbps[j] = tostring(got[j].sbp):gsub("[ ]", ""):gsub("^%((.*)%)$", "%1")
            results[j][r + 1] = got[j]:to_local()
        end
    end
    testing.set_world(1, 0)
    return results, sbps
end

-- Proves signatures of op for these arguments, those that `select` takes of a list: cut the inputs, run the op on every rank's
-- part in a dry world, put the results together, compare with the op on whole tensors.
function M.check_signatures(op, whole, hierarchy, map_tensors, eps, select)
    local function run(list)
        flow.manual_seed(7)
        return table.pack(op.call(table.unpack(list, 1, list.n)))
    end
    local copies = map_tensors(whole, function(t) return t:clone() end)
    copies.n = whole.n
    local want = run(copies)
    local cases, promised, elements = {}, {}, 0
    for _, case in ipairs(M.signatures(op, hierarchy, whole)) do
        local key = table.concat(case.inputs, " ")
        if not promised[key] then cases[#cases + 1], promised[key] = case, {} end
        for j, sbp in ipairs(case.outputs) do promised[key][j .. sbp] = true end
    end
    map_tensors(whole, function(t) elements = elements + t:numel() return t end)
    for _, case in ipairs(select(cases)) do
        if not case.body then
            local label = ("%s (%s) over %s"):format(op.name, table.concat(case.inputs, "; "), table.concat(hierarchy, " x "))
            local pieces, at = {}, 0
            map_tensors(whole, function(t)
                at = at + 1
                flow.manual_seed(11 + at)
                pieces[at] = M.cut_over(t, case.inputs[at], hierarchy)
                return t
            end)
            local ok, results, sbps = pcall(run_on_ranks, run, whole, pieces, case.inputs, hierarchy, map_tensors)
            testing.set_world(1, 0)
            assert(ok, label .. ": " .. tostring(results))
            for j, list in ipairs(results) do
                -- every box of an empty tensor is free, and on a grid another signature may leave fewer parts empty
                if elements > 0 and #hierarchy == 1 then
                    assert(promised[table.concat(case.inputs, " ")][j .. sbps[j]], label .. ": result " .. j .. " is " .. sbps[j] .. ", promised " .. case.outputs[j])
                end
                M.close(want[j], M.join_over(list, sbps[j], hierarchy, eps), eps, label .. " -> " .. sbps[j])
            end
        end
    end
end

-- ---- argument lists ----

-- A deep copy of an argument list with f applied to every tensor.
function M.map_tensors(value, f)
    if flow.is_tensor(value) then return f(value) end
    if type(value) ~= "table" then return value end
    local copy = {}
    for k, v in pairs(value) do copy[k] = M.map_tensors(v, f) end
    return copy
end

-- The tensors of an argument list: those by position, then those with names, in the order of the names.
function M.tensors_of(value, list)
    list = list or {}
    if flow.is_tensor(value) then list[#list + 1] = value end
    if flow.is_tensor(value) or type(value) ~= "table" then return list end
    for i = 1, value.n or #value do M.tensors_of(value[i], list) end
    for _, name in ipairs(M.names_of(value)) do M.tensors_of(value[name], list) end
    return list
end

-- The keys of a table that are text, sorted.
function M.names_of(value)
    local names = {}
    for k in pairs(value) do if type(k) == "string" then names[#names + 1] = k end end
    table.sort(names)
    return names
end

-- A copy of an argument list with the tensors of `list` in place of its own, in the order of tensors_of. Empties `list`.
function M.fill(value, list)
    if flow.is_tensor(value) then return table.remove(list, 1) end
    if type(value) ~= "table" then return value end
    local copy = {}
    for k, v in pairs(value) do copy[k] = v end
    for i = 1, value.n or #value do copy[i] = M.fill(value[i], list) end
    for _, name in ipairs(M.names_of(value)) do copy[name] = M.fill(value[name], list) end
    return copy
end

function M.copies(list)
    local result = {}
    for i, t in ipairs(list) do result[i] = t:contiguous():clone() end
    return result
end

-- Equal values, dtypes and shapes; NaN equals NaN.
function M.same_bits(want, got, what)
    if not flow.is_tensor(want) then return assert.are.equal(want, got, what) end
    assert.are.equal(want.dtype, got.dtype, what)
    assert.are.same(M.shape_text(want.shape), M.shape_text(got.shape), what)
    local a, b = M.values(want), M.values(got)
    for i = 1, #a do
        if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then
            assert.are.equal(a[i], b[i], ("%s: element %d"):format(what, i))
        end
    end
end

return M
