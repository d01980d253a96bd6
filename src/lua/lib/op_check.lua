-- op_check.lua -- an op against itself: its samples in other dtypes and layouts, its gradient against differences, and
-- each of its SBP signatures on dry worlds against the result on whole tensors. The specs of built-in ops use it, too.

local flow = require "flow"
local check = require "flow.check"
local gradcheck = require "flow.gradcheck"

local testing = flow._testing

local M = {}

local lowest = {uint8 = 0, int8 = -128, int32 = -2147483648, int64 = math.mininteger}
local highest = {uint8 = 255, int8 = 127, int32 = 2147483647, int64 = math.maxinteger}

local function expect(want, got, what)
    if want ~= got then check.fail("%s: got %s, expected %s", what, tostring(got), tostring(want)) end
end

-- ---- samples and their values ----

-- A number that depends on the text alone.
function M.seed(text)
    local h = 5381
    for i = 1, #text do h = (h * 33 + text:byte(i)) % 2147483647 end
    return h
end

-- The values that a sample expression of an op gives, packed.
function M.arguments(op, sample)
    flow.manual_seed(M.seed(op.name .. sample))
    local chunk = assert(load("local flow = ... return " .. sample, "=sample of " .. op.name))
    return table.pack(chunk(flow))
end

-- The same values in a layout with gaps.
function M.strided(t)
    if t.ndim == 0 or t.requires_grad then return t end
    local wide = flow.stack({t, t}, t.ndim)
    return wide:select(-1, 0)
end

-- Flat list of numbers; booleans as 0 and 1.
function M.values(tensor)
    local list = tensor:to("float64"):contiguous():view(-1):totable()
    return list
end

function M.near(a, b, eps)
    if a ~= a or b ~= b then return a ~= a and b ~= b end
    if a == b then return true end
    return math.abs(a - b) <= eps * math.max(1, math.abs(a), math.abs(b))
end

-- A shape as it is printed: "[2, 3]".
function M.shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- Equal shapes and nearly equal values.
function M.close(want, got, eps, what)
    if not flow.is_tensor(want) then
        expect(want, got, what)
        return
    end
    expect(M.shape_text(want.shape), M.shape_text(got.shape), what .. ": shape")
    local a, b = M.values(want), M.values(got)
    for i = 1, #a do
        if not M.near(a[i], b[i], eps) then
            check.fail("%s: element %d is %.9g, expected %.9g", what, i - 1, b[i], a[i])
        end
    end
end

-- Equal dtypes as well.
function M.same(want, got, what, eps)
    if flow.is_tensor(want) then expect(want.dtype, got.dtype, what .. ": dtype") end
    M.close(want, got, eps or 0, what)
end

-- A deep copy of an argument list with f applied to every tensor.
function M.map_tensors(value, f)
    if flow.is_tensor(value) then return f(value) end
    if type(value) ~= "table" then return value end
    local copy = {}
    for k, v in pairs(value) do copy[k] = M.map_tensors(v, f) end
    return copy
end

-- ---- SBP ----

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

-- A value that another rank may hold beside that of a P(max) or P(min): an equal one, or one that loses.
local function loser(x, sbp)
    if x.dtype == "bool" then
        local mask = flow.randint(0, 2, x.shape):to "bool"
        return sbp == "P(max)" and x:logical_and(mask) or x:logical_or(mask)
    end
    local step = flow.randint(0, 4, x.shape) * (sbp == "P(max)" and -1 or 1) -- 0: a tie
    if not x.dtype:find "float" then
        return (x:to "int64" + step):clamp(lowest[x.dtype], highest[x.dtype]):to(x.dtype)
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

-- The whole from its parts; eps: the largest difference of replicas.
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
    for i = 1, hierarchy[1] do
        pieces[i] = M.join_over({table.unpack(list, (i - 1) * each + 1, i * each)}, inner, rest, eps)
    end
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
        local mine = map_tensors(whole, function(tensor)
            at = at + 1
            return testing.from_part(pieces[at][r + 1], tensor.shape, placement, M.sbp_list(inputs[at]))
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

-- Proves signatures of op for these arguments, those that `select` takes of a list: cut the inputs, run the op on every
-- rank's part in a dry world, put the results together, compare with the op on whole tensors.
function M.check_signatures(op, whole, hierarchy, map_tensors, eps, select)
    local function run(list)
        flow.manual_seed(7)
        return table.pack(op.call(table.unpack(list, 1, list.n)))
    end
    local copies = map_tensors(whole, function(tensor) return tensor:clone() end)
    copies.n = whole.n
    local want = run(copies)
    local cases, promised, elements = {}, {}, 0
    for _, case in ipairs(M.signatures(op, hierarchy, whole)) do
        local key = table.concat(case.inputs, " ")
        if not promised[key] then cases[#cases + 1], promised[key] = case, {} end
        for j, sbp in ipairs(case.outputs) do promised[key][j .. sbp] = true end
    end
    map_tensors(whole, function(tensor) elements = elements + tensor:numel() return tensor end)
    for _, case in ipairs(select(cases)) do
        if not case.body then
            local label = ("%s (%s) over %s"):format(op.name, table.concat(case.inputs, "; "),
                table.concat(hierarchy, " x "))
            local pieces, at = {}, 0
            map_tensors(whole, function(t)
                at = at + 1
                flow.manual_seed(11 + at)
                pieces[at] = M.cut_over(t, case.inputs[at], hierarchy)
                return t
            end)
            local ok, results, sbps = pcall(run_on_ranks, run, whole, pieces, case.inputs, hierarchy, map_tensors)
            testing.set_world(1, 0)
            if not ok then check.fail("%s: %s", label, tostring(results)) end
            for j, list in ipairs(results) do
                -- every box of an empty tensor is free, and on a grid another signature may leave fewer parts empty
                if elements > 0 and #hierarchy == 1 then
                    local kept = promised[table.concat(case.inputs, " ")][j .. sbps[j]]
                    if not kept then
                        check.fail("%s: result %d is %s, promised %s", label, j, sbps[j], case.outputs[j])
                    end
                end
                M.close(want[j], M.join_over(list, sbps[j], hierarchy, eps), eps, label .. " -> " .. sbps[j])
            end
        end
    end
end

-- ---- all of it ----

local function call(op, list)
    flow.manual_seed(7)
    return table.pack(op.call(table.unpack(list, 1, list.n)))
end

-- The arguments of a sample with f applied to their tensors.
local function mapped(list, f)
    local copy = M.map_tensors(list, f)
    copy.n = list.n
    return copy
end

local function as(dtype)
    return function(t) return t.dtype == "float32" and t:to(dtype) or t end
end

local function check_layout(op, list)
    local want, got = call(op, list), call(op, mapped(list, M.strided))
    for j = 1, want.n do M.same(want[j], got[j], op.name .. " with strided inputs", 1e-5) end
end

local function check_dtypes(op, list)
    local rounded = mapped(list, function(t) return t.dtype == "float32" and t:to "bfloat16":to "float16" or t end)
    local function in_dtype(dtype)
        return mapped(rounded, function(t) return t.dtype == "float16" and t:to(dtype) or t end)
    end
    local want = call(op, in_dtype "float64")
    for dtype, eps in pairs{float16 = 2e-2, bfloat16 = 1e-1, float32 = 1e-4} do
        local got = call(op, in_dtype(dtype))
        for j = 1, want.n do M.close(want[j], got[j], eps, op.name .. " in " .. dtype) end
    end
end

-- Tensors anywhere in an argument list, each once.
local function float64_tensors(list)
    local found, at = {}, {}
    M.map_tensors(list, function(t)
        if t.dtype == "float64" and not at[t] then
            found[#found + 1] = t
            at[t] = #found
        end
        return t
    end)
    return found, at
end

-- The results that have gradients: a comparison's have none.
local function float64_results(results)
    local out = {}
    for i = 1, results.n do
        local result = results[i]
        if not (flow.is_tensor(result) and not result.dtype:find "float") then out[#out + 1] = result end
    end
    return out
end

local function check_gradient(op, list)
    local whole = mapped(list, as "float64")
    local tensors, at = float64_tensors(whole)
    if #tensors == 0 or #float64_results(call(op, whole)) == 0 then return end
    gradcheck.gradcheck(function(...)
        local leaves = {...}
        local results = call(op, mapped(whole, function(t) return at[t] and leaves[at[t]] or t end))
        return table.unpack(float64_results(results))
    end, tensors, {order = 2, most = 6, what = op.name})
end

local GRIDS = {{2}, {3}, {2, 2}}

local function check_sbp(op, list)
    local whole = mapped(list, as "float64")
    for _, grid in ipairs(GRIDS) do
        M.check_signatures(op, whole, grid, M.map_tensors, 1e-9, function(cases) return cases end)
    end
end

local function check_sample(op, sample)
    local list = M.arguments(op, sample)
    check_layout(op, list)
    check_dtypes(op, list)
    if op.differentiable then check_gradient(op, list) end
    check_sbp(op, list)
end

---Tests an op (its function, or its name) by its samples: documentation; layouts with gaps; float dtypes; gradients of
---the first and second order; each SBP signature over 2, 3 and 2 x 2 ranks, which this process pretends to be. An error
---says what fails; else true.
---@param op function|string
---@return boolean
function M.check_op(op)
    local f = type(op) == "string" and flow._op[op] or op
    local described = type(f) == "function" and testing.op(f)
    if not described then check.fail("check_op: there is no op %s", check.got(op)) end
    if flow.world_size() > 1 then check.fail("check_op: works on one rank; it pretends to be several") end
    if #described.doc <= 4 or described.doc == "An op of the script." then
        check.fail("check_op: %s has no documentation: doc says in a sentence what it computes", described.name)
    elseif #described.samples == 0 then
        check.fail("check_op: %s has no samples: samples = {\"flow.randn(2, 3)\"}", described.name)
    elseif described.mutates or described.source or described.random then
        check.fail("check_op: %s changes operands, draws, or takes no tensor", described.name)
    end
    local generator <close> = flow.with_generator(flow.generator(1))  -- luacheck: ignore generator
    testing.unmet_row(f)
    for _, sample in ipairs(described.samples) do check_sample(described, sample) end
    local row = testing.unmet_row(f)
    if row then check.fail("check_op: %s: row %d of sbp splits an axis that no sample has", described.name, row) end
    return true
end

return M
