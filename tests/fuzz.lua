-- fuzz.lua SEED FIRST LAST [-v] -- random calls of every op, function and method with junk for arguments.
-- Call i depends on the seed and i alone, so that `fuzz.lua SEED i i -v` shows the one that failed. The number of the call
-- is written before it runs: the last number tells where a process died. A call may succeed or raise an error; what an error
-- says must be text that begins with a position and names what was called. Written as "BAD i: what" otherwise.
local flow = require "flow"
local testing = flow._testing

local seed, first, last = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1, tonumber(arg[3]) or 1000
local verbose = arg[4] == "-v"
local random = math.random

local function pick(list) return list[random(#list)] end
local function chance(percent) return random(100) <= percent end

---- values ----

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
local placement = flow.placement("cpu", {0})
local square = flow.placement("cpu", {{0}})

local function sizes(limit)
  local list = {}
  for i = 1, random(0, limit or 4) do list[i] = pick {0, 1, 1, 2, 2, 3, 4, 5, 7} end
  return list
end

-- The same elements in a layout of its own.
local function relayout(t)
  local kind = random(6)
  if kind == 1 and t.ndim > 1 then return t:transpose(0, -1) end
  if kind == 2 and t.ndim > 0 and t.ndim < 8 then return flow.stack({t, t}, t.ndim):select(-1, 1) end
  if kind == 3 and t.ndim > 0 and t:size(0) > 1 then return t:narrow(0, 1, t:size(0) - 1) end
  if kind == 4 and t.ndim < 8 then return t:unsqueeze(0):expand(3, table.unpack(t.shape)) end
  return t
end

local function globalize(t)
  local sbps = {"B", "P"}
  for axis = 0, t.ndim - 1 do sbps[#sbps + 1] = ("S(%d)"):format(axis) end
  if chance(20) then return t:to_global {placement = square, sbp = {pick(sbps), pick(sbps)}} end
  return t:to_global {placement = placement, sbp = pick(sbps)}
end

local function tensor(shape, dtype)
  shape, dtype = shape or sizes(chance(5) and 8 or 4), dtype or pick(dtypes)
  local t
  local kind = random(5)
  if kind == 1 then t = flow.zeros(shape)
  elseif kind == 2 then t = flow.randint(-9, 9, shape)
  elseif kind == 3 then t = flow.full(shape, pick {0 / 0, 1 / 0, -1 / 0, 1e38, -3e300, 1e-310, 0.5})
  elseif kind == 4 then t = flow.full(shape, pick {math.maxinteger, math.mininteger, -1, 255, 3}, {dtype = "int64"})
  else t = flow.randn(shape) end
  t = t:to(dtype)
  if chance(40) then t = relayout(t) end
  if chance(10) then t = select(2, pcall(globalize, t)) end
  if not flow.is_tensor(t) then return flow.ones(2) end
  if dtype:find "float" and chance(25) then t:requires_grad_() end
  return t
end

local cycle = {}
cycle[1], cycle.x = cycle, cycle

local numbers = {
  0, 1, -1, 2, 3, 4, 5, 7, 8, 9, -2, -3, -9, 16, 100, 1000, 65536, 2 ^ 31, -2 ^ 31, 2 ^ 31 - 1, 2 ^ 32, 2 ^ 53, 2 ^ 62, 2 ^ 63, 2 ^ 64, 1e300, -1e300,
  1 << 31, 1 << 32, (1 << 31) - 1, 1 << 40, 1 << 61, 1 << 62, math.maxinteger, math.mininteger, math.maxinteger - 1, math.mininteger + 1,
  0 / 0, 1 / 0, -1 / 0, -0.0, 0.5, -0.5, 1.5, 1e-310, 1e-8, 0.1, 0.999999999, 1.0, 2.0, 3.0,
}
if os.getenv "ASAN_OPTIONS" then -- which does not go with a limit: what would fit into memory is left out
  for i = #numbers, 1, -1 do
    if math.abs(numbers[i]) >= 1 << 28 and math.abs(numbers[i]) <= 1 << 36 then table.remove(numbers, i) end
  end
end
local words = {
  "", "x", "mean", "sum", "none", "float32", "int64", "bool", "float31", "cpu", "cuda", "cuda:1", "cuda:99999999999", "S(0)", "S(-1)", "S(99)",
  "S(99999999999999999999)", "B", "P", "P(max)", "P(", "0, 1:2", "...", ":", ":::", "-1", "1:0:-1", "0:99999999999999999999", "tanh",
  ("long"):rep(1000), "\0\255", "%s%n%d", "is_causal", "1e5", "nan", "0x10",
}
local keys = {"dtype", "device", "placement", "sbp", "requires_grad", "keepdim", "axis", "reduction", "weight", "ignore_index",
  "label_smoothing", "is_causal", "mask", "dropout", "value", "eps", "bias", "x", "y", "input", "p", "scale", "approximate", "correction",
  "ord", "bogus", "create_graph", "retain_graph", "grad_outputs", "allow_unused", "", "n", "training", "seed", "axes", "sizes", "size"}

local junk

local function junk_list(depth)
  local list = {}
  local kind = random(6)
  for i = 1, random(0, chance(5) and 40 or 4) do
    if kind == 1 then list[i] = tensor()
    elseif kind == 2 then list[i] = pick(numbers)
    elseif kind == 3 then list[i] = random(-3, 4)
    elseif kind == 4 then list[i] = pick {{0, 1}, {1, 2}, {}, "...", 0, -1, {0, 4, 2}}
    else list[i] = junk(depth + 1) end
  end
  return list
end

function junk(depth)
  depth = depth or 0
  local kind = random(100)
  if kind <= 35 then return tensor() end
  if kind <= 50 then return random(-4, 8) end
  if kind <= 62 then return pick(numbers) end
  if kind <= 67 then return chance(50) end
  if kind <= 72 then return nil end
  if kind <= 79 then return pick(words) end
  if kind <= 90 and depth < 3 then return junk_list(depth) end
  if kind <= 95 and depth < 3 then
    local options = {}
    for _ = 1, random(3) do options[pick(keys)] = junk(depth + 1) end
    return options
  end
  return pick {cycle, print, coroutine.create(print), io.stdout, placement, square, flow.sbp.split(0), flow.sbp.broadcast, flow, {}, setmetatable({}, {})}
end

---- what is called ----

local function sorted_names(t)
  local list = {}
  for name, value in pairs(t) do if type(value) == "function" then list[#list + 1] = name end end
  table.sort(list)
  return list
end

-- Some change what comes after them or what the test prints to; a few take any values and do not look at them.
local skipped = {print = true, manual_seed = true, set_num_threads = true, on_rank = true, with_generator = true, no_grad = true,
  enable_grad = true, save = true, load = true}
local functions, methods = {}, {}
for _, name in ipairs(sorted_names(flow)) do
  if not skipped[name] and name:sub(1, 1) ~= "_" then functions[#functions + 1] = {name = name, call = flow[name]} end
end
for _, name in ipairs(sorted_names(flow._methods)) do methods[#methods + 1] = {name = name, call = flow._methods[name]} end
-- Gradients and parts of other ops get what those have checked; of the hidden ones only the optimizers' come from Lua.
local ops = {}
for _, op in ipairs(testing.ops()) do
  if not op.hidden or op.name:find "_step$" or op.name == "clip_scale_" or op.name == "grad_norm_squares" or arg[4] == "hidden" then ops[#ops + 1] = op end
end
table.sort(ops, function(a, b) return a.name < b.name end)

local operators = {
  {name = "add", call = function(x, y) return x + y end}, {name = "sub", call = function(x, y) return x - y end},
  {name = "mul", call = function(x, y) return x * y end}, {name = "div", call = function(x, y) return x / y end},
  {name = "remainder", call = function(x, y) return x % y end}, {name = "pow", call = function(x, y) return x ^ y end},
  {name = "floor_divide", call = function(x, y) return x // y end}, {name = "neg", call = function(x) return -x end},
  {name = "#", call = function(x) return #x end}, {name = "", call = function(x, y) return x .. y end},
  {name = "compared", call = function(x, y) return x < y end}, {name = "", call = function(x, y) return x == y end},
  {name = "", call = function(x, y) return x[y] end}, {name = "", call = function(x, y) return x[y] end},
  {name = "", call = function(x, y) return x[y] end}, {name = "", call = function(x, y, z) x[y] = z end},
  {name = "", call = function(x, y, z) x[y] = z end}, {name = "", call = function(x, _, z) x.grad = z end},
  {name = "", call = function(x, _, z) x.requires_grad = z end}, {name = "", call = function(x) return tostring(x) end},
}

local function random_args(with_tensor)
  local args = {n = chance(3) and random(0, 20) or random(0, 4)}
  for i = 1, args.n do args[i] = junk() end
  if with_tensor and chance(90) then
    args[1] = tensor()
    args.n = math.max(args.n, 1)
  end
  return args
end

-- A sample of the op's own with something changed.
local function sample_args(op)
  flow.manual_seed(random(1 << 30))
  local args = table.pack(load("local flow = ... return " .. pick(op.samples))(flow))
  for _ = 1, random(0, 3) do
    local i, kind = random(math.max(args.n, 1)), random(8)
    if kind == 1 then args.n = math.max(0, args.n - 1)
    elseif kind == 2 and args.n < 16 then
      args.n = args.n + 1
      args[args.n] = junk()
    elseif kind <= 5 and flow.is_tensor(args[i]) then
      local shape = args[i].shape
      if kind == 3 and #shape > 0 then shape[random(#shape)] = pick {0, 1, 2, 3, 6} end
      if kind == 4 then shape[#shape + 1] = 1 shape[9] = nil end
      args[i] = tensor(shape, chance(70) and args[i].dtype or nil)
    elseif kind == 6 then
      local j = random(math.max(args.n, 1))
      args[i], args[j] = args[j], args[i]
    else
      args[i] = junk()
      args.n = math.max(args.n, i)
    end
  end
  return args
end

local function choose()
  local kind = random(100)
  if kind <= 55 then
    local op = pick(ops)
    if #op.samples > 0 and chance(90) then return op, sample_args(op) end
    return op, random_args(true)
  end
  if kind <= 70 then return pick(functions), random_args(false) end
  if kind <= 90 then return pick(methods), random_args(true) end
  return pick(operators), random_args(true)
end

---- a call ----

local function show(value, depth)
  if flow.is_tensor(value) then
    return ("%s[%s]%s%s{%s}"):format(value.dtype, table.concat(value.shape, ","), value.is_global and tostring(value.sbp) or "", value.requires_grad and "g" or "",
      table.concat(value:stride(), ","))
  end
  if type(value) == "string" then return ("%q"):format(value:sub(1, 40)) end
  if type(value) ~= "table" or value == flow or value == cycle or getmetatable(value) or (depth or 0) > 2 then return tostring(value) end
  local list = {}
  for k, v in pairs(value) do list[#list + 1] = (type(k) == "string" and k .. "=" or "") .. show(v, (depth or 0) + 1) end
  return "{" .. table.concat(list, ", ") .. "}"
end

local function complain(i, what) print(("BAD %d: %s"):format(i, what)) end

-- What some are called in messages.
local spoken = {["repeat"] = "rep", _windows = "show", nelement = "numel", max_axis = "max", min_axis = "min", index_put_ = "index", ["#"] = ""}

-- Places in messages: "tests/fuzz.lua:12: ".
local function check_message(i, name, message)
  if type(message) ~= "string" then return complain(i, name .. " raised a " .. type(message)) end
  local text = message:match("^[^:\n]+:%d+: (.*)")
  if message == "not enough memory" then return end
  if not text then return complain(i, name .. " has no position: " .. message) end
  local lua = text:find "^attempt to " or text:find "^[%w_]+ %b(): " -- an operator without a tensor; an op queued before
  if not lua and not text:find(spoken[name] or (name:gsub("_$", "")), 1, true) then complain(i, name .. " is not named: " .. message) end
  if text:find("[%z\1-\9\11-\31]") then complain(i, name .. " has control characters: " .. message) end
end

-- What comes back must be whole: it can be printed, read and differentiated, or say why not.
local function use(i, result)
  if not flow.is_tensor(result) or result:numel() > 1 << 16 then return end
  local ok, message = pcall(tostring, result)
  if not ok then check_message(i, "", message) end
  ok, message = pcall(result.totable, result)
  if not ok then check_message(i, "", message) end
  if not (result.requires_grad and result.dtype:find "float") then return end
  ok, message = pcall(function() result:sum():backward() end)
  if not ok then check_message(i, "", message) end
end

local function one(i)
  math.randomseed(seed, i)
  flow.manual_seed(i)
  local what, args = choose()
  if verbose then
    local list = {}
    for j = 1, args.n do list[j] = show(args[j]) end
    print(("%s(%s)"):format(what.name, table.concat(list, ", ")))
  end
  local results = table.pack(pcall(what.call, table.unpack(args, 1, args.n)))
  if not results[1] then check_message(i, what.name, results[2]) end
  if verbose then print(results[1], show(results[2])) end
  for j = 2, math.min(results.n, 4) do use(i, results[j]) end
end

io.stdout:setvbuf("no")
for i = first, last do
  io.write(i, "\n")
  one(i)
end
local ok, message = pcall(flow.sync)
if not ok then check_message(last, "", message) end
print("end")
