-- fuzz.lua SEED FIRST LAST [-v] -- random calls of every op, function and method with junk for arguments.
-- Call i depends on the seed and i alone, so that `fuzz.lua SEED i i -v` shows the one that failed. The number of the call
-- is written before it runs: the last number tells where a process died. A call may succeed or raise an error; what an error
-- says must be text that begins with a position and names what was called. Written as "BAD i: what" otherwise.
local flow = require "flow"
local testing = flow._testing

local seed, first, last = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1, tonumber(arg[3]) or 1000
local verbose = arg[4] == "-v"
local random = math.random

local here = arg[0]:match("^.*/") or ""
local values = dofile(here .. "fuzz_values.lua")
local pick, chance, tensor, junk, show, complain = values.pick, values.chance, values.tensor, values.junk, values.show, values.complain
local random_args = values.arguments

---- the calls ----

local function sorted_names(t)
    local list = {}
    for name, value in pairs(t) do if type(value) == "function" then list[#list + 1] = name end end
    table.sort(list)
    return list
end

-- Some change what comes after them or what the test prints to; a few take any values and do not look at them.
local skipped = {print = true, manual_seed = true, set_num_threads = true, on_rank = true, with_generator = true, with_device = true, no_grad = true,
    inference_mode = true, set_detect_anomaly = true, enable_grad = true, save = true, load = true}
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

-- Names in messages that differ from those of the functions.
local spoken = {["repeat"] = "rep", _windows = "show", nelement = "numel", max_axis = "max", min_axis = "min", index_put_ = "index",
    expand_as = "expand", view_as = "view", reshape_as = "reshape", swapdims = "transpose", swapaxes = "transpose",
    from_dlpack = "dlpack", ["#"] = "",
    -- written in another op, whose name is in the message
    var_mean = "var", std_mean = "std", narrow_copy = "narrow", diagonal_scatter = "diagonal", index_fill_ = "index", flatten = "ravel",
    index_fill = "index", linear_quantized = "linear", split_with_sizes = "split", take_along_axis = "take", take_along_dim = "take",
    scatter_reduce = "scatter", scatter_reduce_ = "scatter",
    ["linalg.matrix_rank"] = "linalg.svdvals", linear_cross_entropy = "linear"}
for axes = 1, 3 do spoken[("max_pool%dd_with_indices"):format(axes)] = ("max_pool%dd"):format(axes) end
for _, name in ipairs {"float", "double", "half", "bfloat16", "long", "int", "char", "byte", "bool", "cpu", "cuda"} do spoken[name] = "to" end

-- The function of a name with dots, "linalg.eig".
local function function_of(name)
    local f = flow
    for word in name:gmatch "[^.]+" do f = f[word] end
    return f
end

-- True if the text has the name, or that of the op of which the name is an alias.
local function is_named(text, name)
    local f = flow._methods[name] or flow.has(name) and function_of(name)
    local described = type(f) == "function" and flow._describe(f)
    for _, word in pairs {(name:gsub("_$", "")), spoken[name] or name, described and described.sig:match "^[%w_.]+" or name} do
        if type(word) == "string" and text:find(word, 1, true) then return true end
    end
    return false
end

-- Places in messages: "tests/fuzz.lua:12: ".
local function check_message(i, name, message)
    if type(message) ~= "string" then return complain(i, name .. " raised a " .. type(message)) end
    local text = message:match("^[^:\n]+:%d+: (.*)")
    if message == "not enough memory" then return end
    if text and text:find "^flow%.[%w_.]+ is a function: write " then return end  -- called without a name: any of its names
    if not text then return complain(i, name .. " has no position: " .. message) end
    local lua = text:find "^attempt to " or text:find "^[%w_]+ %b(): " -- an operator without a tensor; an op queued before
    if not lua and not is_named(text, name) then complain(i, name .. " is not named: " .. message) end
    if text:find("[%z\1-\9\11-\31]") then complain(i, name .. " has control characters: " .. message) end
end

-- Results must be whole: they can be printed, read and differentiated, or give an error that is named.
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
    if verbose then print(("%s(%s)"):format(what.name, values.show_arguments(args))) end
    local results = table.pack(pcall(what.call, table.unpack(args, 1, args.n)))
    if not results[1] then check_message(i, what.name, results[2]) end
    values.check_ranks(i, what.name, results[1], results[2])
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
