-- support.lua -- what the specs share: comparing tensors, finite differences, cutting tensors into parts.
local assert = require "luassert"
local flow = require "flow"
local testing = flow._testing

local M = {}

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

local function describe_shape(t) return "[" .. table.concat(t.shape, ", ") .. "]" end

-- Equal shapes and nearly equal values.
function M.close(want, got, eps, what)
  if not flow.is_tensor(want) then
    assert.are.equal(want, got, what)
    return
  end
  assert.are.equal(describe_shape(want), describe_shape(got), what .. ": shape")
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

-- Sum over the float results, each weighted by fixed numbers, so that every element counts differently.
local function scalar_of(results)
  local total = nil
  for j = 1, results.n do
    local y = results[j]
    if flow.is_tensor(y) and (y.dtype == "float64") then
      local weight = ((flow.arange(y:numel(), {dtype = "float64"}) * 0.37 + 0.5 + j):cos()):reshape(y.shape)
      local s = (y * weight):sum()
      total = total and total + s or s
    end
  end
  return total
end

-- First and second derivatives of f(args) against central differences in float64.
function M.gradcheck(f, args, what)
  local inputs = float_tensors(args)
  local leaves, map = {}, {}
  for i, t in ipairs(inputs) do
    if not map[t] then
      leaves[#leaves + 1] = t:clone():detach()
      leaves[#leaves].requires_grad = true
      map[t] = leaves[#leaves]
    end
    inputs[i] = nil
  end
  if #leaves == 0 then return end
  local live = replace(args, map)
  live.n = args.n
  local function value() return scalar_of(f(live)) end
  local y = value()
  if not y or not y.requires_grad then return end
  local grads = flow.grad(y, leaves, {create_graph = true, allow_unused = true})
  local eps = 1e-5
  local function probe(scalar, analytic, order)
    for i, leaf in ipairs(leaves) do
      local n = leaf:numel()
      for step = 0, math.min(n, 6) - 1 do
        local at = n <= 6 and step or (step * 7919 + 3) % n
        local flat = leaf:detach():view(-1)
        local old = flat[at]:item()
        local function shifted(d)
          flow.no_grad(function() flat[at] = old + d end)
          return scalar():item()
        end
        local numeric = (shifted(eps) - shifted(-eps)) / (2 * eps)
        flow.no_grad(function() flat[at] = old end)
        local g = analytic[i] and analytic[i]:reshape(-1)[at]:item() or 0
        if not near(numeric, g, order == 1 and 2e-5 or 2e-4) then
          error(("%s: derivative %d of input %d at %d is %.9g, differences give %.9g"):format(what, order, i, at, g, numeric), 0)
        end
      end
    end
  end
  probe(value, grads, 1)
  -- second order: differentiate a weighted sum of the first derivatives
  local function slope()
    local again = flow.grad(value(), leaves, {create_graph = true, allow_unused = true})
    local list = {n = 0}
    for i = 1, #leaves do if again[i] then list.n = list.n + 1; list[list.n] = again[i] end end
    return scalar_of(list)
  end
  local s = slope()
  if s and s.requires_grad then
    probe(slope, flow.grad(s, leaves, {allow_unused = true}), 2)
  end
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

-- The parts of x under one SBP; partials differ in sign and size, so that |x| does not pass as linear.
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
  local float = x.dtype:find("float") ~= nil
  if sbp == "P" then
    local rest = x:clone()
    for r = 1, parts - 1 do
      list[r] = float and (flow.randn(x.shape):to(x.dtype) * 3) or (flow.randint(-5, 5, x.shape):to(x.dtype))
      rest = rest - list[r]
    end
    list[parts] = rest
    return list
  end
  local holder = flow.randint(0, parts, x.shape)
  local sign = sbp == "P(max)" and -1 or 1
  for r = 0, parts - 1 do
    local other
    if x.dtype == "bool" then other = sbp == "P(max)" and flow.zeros_like(x) or flow.ones_like(x)
    else other = x + ((flow.rand(x.shape) * 5 + 1) * sign):to(x.dtype) end
    list[r + 1] = flow.where(holder:eq(r), x, other)
  end
  return list
end

-- The whole from its parts.
function M.join(list, sbp)
  local axis = sbp:match("^S%((%d+)%)$")
  if axis then return flow.cat(list, tonumber(axis)) end
  if sbp == "B" then
    for r = 2, #list do M.same(list[1], list[r], "broadcast parts differ", 1e-12) end
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

-- Signatures of a call: {inputs = {"S(0)", "B"}, outputs = {"S(0)"}, body = false}.
function M.signatures(op, parts, args)
  local list = {}
  for line in testing.signatures(op.name, parts, table.unpack(args, 1, args.n)):gmatch("[^\n]+") do
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

-- Proves every signature of op for these arguments: cut the inputs, run the op on every rank's part in a dry world, put
-- the results together, compare with the op on whole tensors.
function M.check_signatures(op, args, parts, map_tensors)
  -- float64, so that sums over parts may be compared tightly
  local whole = map_tensors(args, function(t) return t.dtype == "float32" and t:to("float64") or t end)
  whole.n = args.n
  local function run(list)
    flow.manual_seed(7)
    return table.pack(op.call(table.unpack(list, 1, list.n)))
  end
  local reference = map_tensors(whole, function(t) return t:clone() end)
  reference.n = whole.n
  local want = run(reference)
  local ranks = {}
  for r = 0, parts - 1 do ranks[r + 1] = r end
  local cases, whole_bytes = M.signatures(op, parts, whole), 0
  map_tensors(whole, function(t) whole_bytes = whole_bytes + t:numel() return t end)
  for _, case in ipairs(cases) do
    if not case.body then
      local label = op.name .. " (" .. table.concat(case.inputs, ", ") .. ")"
      local pieces, shapes = {}, {}
      local at = 0
      map_tensors(whole, function(t)
        at = at + 1
        flow.manual_seed(11 + at)
        pieces[at] = M.cut(t, case.inputs[at], parts)
        shapes[at] = t.shape
        return t
      end)
      local results, sbps = {}, {}
      for r = 0, parts - 1 do
        testing.set_world(parts, r)
        local p = flow.placement("cpu", ranks)
        local i = 0
        local mine = map_tensors(whole, function()
          i = i + 1
          return testing.from_part(pieces[i][r + 1], shapes[i], p, case.inputs[i])
        end)
        mine.n = whole.n
        local ok, got = pcall(run, mine)
        assert(ok, label .. ": " .. tostring(got))
        for j = 1, got.n do
          results[j] = results[j] or {}
          sbps[j] = tostring(got[j].sbp)
          results[j][r + 1] = got[j]:to_local()
        end
      end
      testing.set_world(1, 0)
      for j, list in ipairs(results) do
        if whole_bytes > 0 then -- every box of an empty tensor is free, so any signature may win
          local promised = {B = not table.concat(case.inputs):find("[SP]")} -- all-B wins where parts would be empty
          for _, other in ipairs(cases) do
            if table.concat(other.inputs, " ") == table.concat(case.inputs, " ") then promised[other.outputs[j]] = true end
          end
          assert(promised[sbps[j]], label .. ": result " .. j .. " is " .. sbps[j] .. ", promised " .. case.outputs[j])
        end
        M.close(want[j], M.join(list, sbps[j]), 1e-9, label .. " -> " .. sbps[j] .. " over " .. parts)
      end
    end
  end
end

return M
