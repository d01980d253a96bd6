-- support.lua -- what the specs share: comparing tensors, finite differences, cutting tensors into parts.
local assert = require "luassert"
local flow = require "flow"
local op_check = require "flow.op_check"
local testing = flow._testing

local M = {}

-- Functions shared with flow.testing.check_op.
for name, f in pairs(op_check) do M[name] = f end

M.all = os.getenv "FLOW_TEST_ALL" == "1"

-- True if the tensors of the specs are on a GPU or its emulation; on a GPU libraries choose kernels by sizes, and round as they do.
M.on_device = (os.getenv "FLOW_TEST_DEVICE" or ""):find "^cuda" ~= nil
M.on_gpu = M.on_device and (os.getenv "FLOW_CUDA_EMULATED" or "0") == "0"

-- The registered ops, by name; FLOW_TEST_OPS="erfc,take": these alone, while they are being written; "2/8": every eighth from the second.
function M.ops()
    local chosen, list = os.getenv "FLOW_TEST_OPS", testing.ops()
    if chosen then
        local by_name, part, parts = {}, chosen:match "^(%d+)/(%d+)$"
        for _, op in ipairs(list) do by_name[op.name] = op end
        local all = list
        list = {}
        if part then
            for i = part, #all, parts do list[#list + 1] = all[math.tointeger(i)] end
            chosen = ""
        end
        for name in chosen:gmatch "[^,%s]+" do list[#list + 1] = by_name[name] or error("FLOW_TEST_OPS: there is no op " .. name) end
    end
    table.sort(list, function(a, b) return a.name < b.name end)
    return list
end

-- Ops that LAPACK computes, on a GPU cuSOLVER, which need not be there; or that are written in them.
M.solved = {}
for name in ([[
    cholesky_inverse cholesky_solve linalg.cholesky linalg.cholesky_ex linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.inv_ex
    linalg.lstsq linalg.matrix_rank linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.solve_triangular linalg.svd linalg.svdvals
    linalg_cofactor linalg_geqrf linalg_least_squares linalg_lu linalg_pseudoinverse linalg_solve_square linalg_triangles logdet qr svd triangular_solve
]]):gmatch "%S+" do M.solved[name] = true end

if flow.world_size() == 1 then flow.manual_seed(1) end -- a file of specs draws the same numbers at every run

-- The message of the error of f(...), or of an op that it queued (FLOW_ENGINE=queued).
local function raised(f, ...)
    pcall(flow.sync)
    local ok, message = pcall(function(...)
        f(...)
        flow.sync()
    end, ...)
    assert.is_false(ok, "no error")
    assert.is_string(message)
    return message
end

-- f(...) and all that it queued, waited for: as pcall. Nothing of it fails later.
function M.settled(f, ...)
    local results = table.pack(pcall(function(...)
        local list = table.pack(f(...))
        flow.sync()
        return table.unpack(list, 1, list.n)
    end, ...))
    if not results[1] then pcall(flow.sync) end
    return table.unpack(results, 1, results.n)
end

-- An op that was queued fails later, and its message names its own line.
local function without_op_line(message) return (message:gsub("^([%w_]+) %([^()]+:%d+%): ", "%1: ")) end

-- The message of f(...), without the positions.
function M.message_of(f, ...) return without_op_line((raised(f, ...):gsub("^.-:%d+: ", ""))) end

-- The message of f(...), without its position, which must be there.
function M.placed_message_of(f, ...)
    local message = raised(f, ...)
    local text = message:match("^[^:\n]+:%d+: (.*)$")
    assert.is_truthy(text, "no position: " .. message)
    return without_op_line(text)
end

-- f(...) fails with a message that has this in it.
function M.fails(message, f, ...)
    local got = M.message_of(f, ...)
    assert.is_truthy(got:find(message, 1, true), got)
end

-- The error of f(...) itself, without the position: ops that it queued are not waited for, and positions of ops are left.
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

-- The method of that name with these arguments first, as a function of x, axes and keepdim.
function M.reduction(name, ...)
    local before = table.pack(...)
    return function(x, axes, keepdim)
        local args = table.move(before, 1, before.n, 1, {})
        args[before.n + 1], args[before.n + 2] = axes, keepdim
        return x[name](x, table.unpack(args, 1, before.n + 2))
    end
end

-- The tensors of an argument list that are differentiated, in order.
local function float_tensors(args)
    local list = {}
    for _, t in ipairs(M.tensors_of(args)) do
        if t.dtype == "float64" then list[#list + 1] = t end
    end
    return list
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
        local live = M.map_tensors(args, function(t) return map[t] or t end)
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

-- True if the op is left out where specs make their tensors on a device: it has no kernel there, or tests/cuda/linalg_spec.lua has it.
function M.left_out(op)
    return os.getenv "FLOW_TEST_DEVICE" ~= nil and (op.host_only and op.mutates or M.solved[op.name] ~= nil)
end

-- True if the op has no kernel on the device where the specs make their tensors.
function M.has_no_kernel(op, sample)
    if not os.getenv "FLOW_TEST_DEVICE" then return false end
    local args = M.arguments(op, sample)
    local ok, message = pcall(function() return op.call(table.unpack(args, 1, args.n)) end)
    if ok then return false end
    return tostring(message):find("it has no cuda kernel", 1, true) ~= nil or tostring(message):find(" was not found; ", 1, true) ~= nil
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
        if not M.near(v, got[i], eps) then
            error(("%s in %s at %g: gradient %.9g, expected %.9g"):format(expression, dtype, values[i], got[i], v), 2)
        end
    end
end

---- SBP ----

-- The options of a call that makes a tensor, a copy, and how many arguments come before them; nil: they have a placement.
function M.options_of(args)
    local options, n = {}, args.n
    if type(args[n]) == "table" and #args[n] == 0 and next(args[n]) then
        for name, value in pairs(args[n]) do options[name] = value end
        n = n - 1
    end
    if not options.placement then return options, n end
end

-- Tensors made of sizes: every rank's part of a split equals the part of the whole.
function M.check_source(op, args, parts)
    flow.manual_seed(7)
    local want = op.call(table.unpack(args, 1, args.n))
    local options, n = M.options_of(args)
    if not options then return end
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

-- ---- argument lists ----

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
