-- fuzz_objects.lua SEED FIRST LAST [-v] -- random calls of every function that walking `flow` finds, and of every method, field and
-- metamethod of the objects that scripts make: modules, optimizers, schedulers, loaders, datasets, generators, placements, sbps, ...
-- (ops and methods of tensors are fuzz.lua's).
--
-- Call i depends on the seed and i alone. It may succeed or raise an error, which must be text that begins with the position of this
-- script, names what was called, and is no error of Lua inside flow ("attempt to index a nil value"); an object must be after an
-- error what it was before and still work. Arguments are junk, or ones that fit with something changed, left out or added: one too
-- many and an unknown option must be errors. On several ranks all raise or none. "BAD i: what" otherwise. A result of a
-- call with a metatable that no maker knows is BAD too, so that new kinds of objects are added here.
local flow = require "flow"
local lazy_names = require "flow.lazy_names"
local nn, optim, data = flow.nn, flow.optim, flow.data

local seed, first, last = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1, tonumber(arg[3]) or 1000
local verbose = arg[4] == "-v"
local random = math.random

local here = arg[0]:match("^.*/") or ""
local values = dofile(here .. "fuzz_values.lua")
local pick, chance, junk = values.pick, values.chance, values.junk

---- objects ----

local Pair = nn.Module:extend("Pair")
function Pair:init()
    self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 1, {bias = false})
    self.absent = nil
    self:register_buffer("mean", flow.zeros(1))
end
function Pair:forward(x) return self.second(self.first(x)) - self.mean end

-- The constructor of each class of nn, and an input of its forward, a matrix where there is none.
local layers = dofile(here .. "layers.lua")

local function copied(value)
    if type(value) ~= "table" or getmetatable(value) then return value end
    local copy = {}
    for key, v in pairs(value) do copy[key] = copied(v) end
    return copy
end
local function layer_arguments(name) return table.unpack(copied(layers[name] and layers[name][1] or {})) end
local function layer_input(name)
    local make = layers[name] and layers[name][2]
    if make then return make() end
    return flow.ones(2, 3)
end

local function parameters() return {nn.Parameter(flow.ones(2, 3)), nn.Parameter(flow.zeros(3))} end

local function optimizer(name)
    local params = parameters()
    for _, p in ipairs(params) do p.grad = flow.ones(p.shape) end
    local opt = optim[name](params, name == "SGD" and {lr = 0.1, momentum = 0.9} or {lr = 0.1})
    opt:step()
    return opt
end

local function dataset() return data.tensors(flow.arange(12):view(6, 2), flow.arange(6)) end

local function module_digest(net)
    local list = {tostring(net), tostring(net.training)}
    for name, t in net:state_dict() do
        list[#list + 1] = ("%s %s %s %.17g"):format(name, t.dtype, t.shape, t:to("float64"):sum():item())
    end
    return table.concat(list, "\n")
end

local function optimizer_digest(opt)
    local list = {tostring(opt)}
    for i, entry in ipairs(opt:state_dict().state) do list[#list + 1] = ("%d: %d"):format(i, entry.step) end
    return table.concat(list, "\n")
end

local function table_digest(t)
    local list = {}
    for key, value in pairs(t) do list[#list + 1] = tostring(key) .. "=" .. tostring(value) end
    table.sort(list)
    return table.concat(list, " ")
end

-- Kinds of objects: {name, make, digest = what must stay the same, works = what must go on working}
local kinds = {}
local function kind(name, make, digest, works)
    kinds[#kinds + 1] = {name = name, make = make, digest = digest or tostring, works = works or tostring}
end

local function is_class(x) return type(x) == "table" and type(rawget(x, "__name")) == "string" and rawget(x, "__call") ~= nil end

-- A class that optim.Optimizer:extend made.
local function is_optimizer_class(x)
    return type(x) == "table" and type(rawget(x, "name")) == "string" and type(rawget(x, "defaults")) == "table"
end

local function sorted_keys(t)
    local list = {}
    for key in next, t do if type(key) == "string" then list[#list + 1] = key end end
    table.sort(list)
    return list
end

for _, name in ipairs(sorted_keys(nn)) do
    if is_class(nn[name]) and layers[name] and layers[name][1] then
        kind(name, function() return nn[name](layer_arguments(name)) end, module_digest, function(net)
            if layers[name] and layers[name][2] then net(layer_input(name)) end
        end)
    end
end
kind("Sequential", function() return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) end, module_digest, function(net) net(flow.ones(2, 3)) end)
kind("ModuleList", function() return nn.ModuleList {nn.ReLU(), Pair()} end, module_digest)
kind("Pair", Pair, module_digest, function(net) net(flow.ones(2, 3)) end)
-- These two are not made and stepped as the others are.
kind("LBFGS", function() return optim.LBFGS(parameters()) end)
kind("Muon", function() return optim.Muon({nn.Parameter(flow.ones(2, 3))}) end, optimizer_digest)
local _ = optim.Adafactor -- loaded at its first use, as those two are
for _, name in ipairs(sorted_keys(optim)) do
    local is_optimizer = type(optim[name]) == "table" and rawget(optim[name], "defaults")
    if is_optimizer then kind(name, function() return optimizer(name) end, optimizer_digest, function(opt) opt:step() end) end
end
kind("PackedSequence", function() return nn.utils.rnn.pack_sequence {flow.ones(3, 2), flow.ones(1, 2)} end, function(p) return tostring(p.data) end,
    function(p) nn.utils.rnn.pad_packed_sequence(p) end)
kind("GradScaler", function() return flow.GradScaler() end)
kind("Scheduler", function() return optim.Scheduler(optimizer("SGD"), optim.schedule.step(2, 0.5)) end,
    function(s) return table_digest(s:state_dict().rates) .. s:state_dict().steps .. optimizer_digest(s.optimizer) end, function(s) s:step() end)
for _, make in ipairs {
    function() return optim.schedule.constant() end, function() return optim.schedule.warmup(3) end, function() return optim.schedule.cosine(9) end,
    function() return optim.schedule.warmup_cosine(9, {warmup = 2}) end,
    function() return optim.schedule.chain({optim.schedule.constant(), 1}, {optim.schedule.cosine(3)}) end,
} do kind("schedule", make, type, function(f) f(1) end) end
kind("loader", function() return data.loader(dataset(), {batch_size = 2, shuffle = true, seed = 1}) end, function(l) return table_digest(l:state()) end,
    function(l) l:next() end)
kind("tensors", dataset, function(d) return tostring(#d) end, function(d) d:batch(flow.tensor({0, 5})) end)
kind("windows", function() return data.windows(flow.arange(20), 4) end, function(d) return tostring(#d) end, function(d) d:batch(flow.tensor({0, 3})) end)
kind("generated", function() return data.generate(4, function(position, draw) return {position, draw()} end) end, function(d) return tostring(#d) end,
    function(d) d:get(1) end)
local folder = values.scratch_folder(("fuzz_objects.%d.%d"):format(seed, first))
local record_file, stored_file = ("%s/records.%d"):format(folder, flow.rank()), folder .. "/stored.safetensors"
kind("records", function()
    data.pack(dataset(), record_file, {workers = 1, progress = false})
    return data.records(record_file)
end, tostring, function(d) d:batch(flow.tensor({0, 5})) end)
kind("step", function() return data.horizontal_flip() end, type)
kind("augment", function() return data.augment {data.horizontal_flip()} end, type, function(f) f(flow.zeros(2, 3, 4, 4):to "uint8") end)
kind("text", function() return data.text("hello") end, function(t) return table.concat(t.characters) end, function(t) return t:decode(t:encode("hole")) end)
kind("store", function()
    local kv = flow.kvstore.create "local"
    kv:init({"w", 3}, {flow.ones(3, 2), flow.ones(2)})
    kv:set_optimizer("SGD", {lr = 0.1})
    return kv
end, function(kv) return ("%s %d"):format(kv, #kv.order) end, function(kv) kv:pull("w", flow.zeros(3, 2)) end)
kind("generator", function() return flow.generator(3) end)
kind("default_generator", flow.default_generator, type)
kind("placement", function() return pick {values.placement, values.square} end)
kind("sbp", function() return pick {flow.sbp.split(0), flow.sbp.broadcast, flow.sbp.partial_max} end)
kind("nd_sbp", function() return flow.zeros({2, 2}, {placement = values.square, sbp = {"S(0)", "B"}}).sbp end)
kind("shape", function() return flow.ones(2, 3).shape end)
kind("hook", function()
    local x = flow.ones(2)
    x.requires_grad = true
    return x:register_hook(function() end)
end, type)
kind("forward_hook", function() return nn.ReLU():register_forward_hook(function() end) end, type)
kind("block mask", function()
    return nn.attention.create_block_mask(function(_, _, i, j) return i:ge(j) end, nil, nil, 4, 4)
end)
local prune = nn.utils.prune
for _, method in ipairs { -- in an order that all ranks have
    {"L1Unstructured", 1}, {"RandomUnstructured", 1}, {"LnStructured", 1, 2, 0}, {"RandomStructured", 1, 0}, {"Identity"}, {"PruningContainer"},
    {"CustomFromMask", flow.ones(2)},
} do kind(method[1], function() return prune[method[1]](table.unpack(method, 2)) end, type) end
kind("no_grad", function()
    local guard = flow.no_grad()
    getmetatable(guard).__close(guard)
    return guard
end, type)
kind("job", function() return flow.engine.push{run = "return 1"} end, type, function(job) job:wait() end)
kind("capsule", function() return flow.ones(2):__dlpack() end, type)
kind("bar", function() return flow.progress.bar(3, {lines = 0, width = 0}) end, type, function(bar) bar:clear() end)
for _, line in ipairs(dofile(here .. "distributions.lua")) do
    kind(line[1], function()
        local given = {}
        for i, value in ipairs(line[2]) do given[i] = flow.tensor(value, {dtype = "float64"}) end
        return (line[3] or function(D, ...) return D[line[1]](...) end)(flow.distributions, table.unpack(given))
    end)
end
local schedulers = {
    StepLR = {step_size = 2}, MultiStepLR = {milestones = {1, 3}}, ConstantLR = {}, LinearLR = {}, ExponentialLR = {gamma = 0.9},
    PolynomialLR = {}, CosineAnnealingLR = {T_max = 4}, CosineAnnealingWarmRestarts = {T_0 = 2}, ReduceLROnPlateau = {},
    LambdaLR = {lr_lambda = function() return 0.5 end}, MultiplicativeLR = {lr_lambda = function() return 0.5 end},
    CyclicLR = {base_lr = 0.1, max_lr = 0.2}, OneCycleLR = {max_lr = 0.2, total_steps = 9}, SWALR = {swa_lr = 0.1},
}
for _, name in ipairs(sorted_keys(schedulers)) do
    kind(name, function() return optim.lr_scheduler[name](optimizer("SGD"), copied(schedulers[name])) end)
end
kind("ChainedScheduler", function() return optim.lr_scheduler.ChainedScheduler({optim.lr_scheduler.ConstantLR(optimizer("SGD"))}) end)
kind("SequentialLR", function()
    local opt, lr = optimizer("SGD"), optim.lr_scheduler
    return lr.SequentialLR(opt, {lr.ConstantLR(opt), lr.ExponentialLR(opt, 0.9)}, {2})
end)
kind("Transform", function() return flow.distributions.transforms.AffineTransform(1, 2) end, tostring, function(t) t(flow.ones(2)) end)
kind("averaged", function() return optim.AveragedModel(nn.Linear(1, 1)) end)
local function two_lines(x) return ((flow.is_tensor(x) and x or flow.ones(2)) * 2):abs() end
kind("program", function() return flow.trace(two_lines, {flow.spec {2, 3}}) end, tostring, function(p) p(flow.ones(2, 3)) end)
kind("captured", function() return flow.capture(two_lines) end, type, function(f) f(flow.ones(2, 3)) end)
kind("own function", function()
    return flow.autograd_function(function(ctx, x) ctx:save(x) return x * 2 end, function(_, g) return g * 2 end)
end, type, function(f) f(flow.ones(2)) end)
kind("state_dict", function() return Pair():state_dict() end, table_digest)
kind("stored", function()
    flow.save(stored_file, {x = flow.ones(2, 3)})
    return flow.load(stored_file, {lazy = true}).x
end, nil, function(t) t:read() end)

---- functions ----

-- Called in other specs, or with an effect on what comes after.
local skipped = {["flow.print"] = true, ["flow.manual_seed"] = true, ["flow.set_num_threads"] = true, ["flow.on_rank"] = flow.world_size() > 1,
    ["flow.set_float32_matmul_precision"] = true}
for _, ends in ipairs {"parse", "stop", "open"} do skipped["flow.cli." .. ends] = true end       -- the process
skipped["program:profile"] = true       -- runs as often as it is told
-- Parts of flow that are none of a script's.
local internal = {}
for name in ("attention builtins check complete help indexing inspect module ordered"):gmatch "%a+" do internal[name] = true end

local entries, seen, total = {}, {}, 0

local function add(name, f, object, path)
    entries[#entries + 1] = {name = name, call = f, object = object, path = path, index = #entries + 1}
    total = total + 1
end

-- Functions in a table and in the tables in it.
local function walk(t, path)
    if seen[t] then return end
    seen[t] = true
    for _, name in ipairs(lazy_names.of(t)) do
        if not (t == flow and internal[name]) then local _ = t[name] end -- loaded at first use
    end
    for _, key in ipairs(sorted_keys(t)) do
        local value, at = rawget(t, key), path .. "." .. key
        if key:sub(1, 1) ~= "_" and not (path == "flow" and internal[key]) then
            if type(value) == "function" then
                if not skipped[at] and not flow._describe(value) then add(key, value, nil, at) end
            elseif is_class(value) or type(value) == "table" and getmetatable(value) and getmetatable(value).__call then
                add(key, value, nil, at)
                if not is_class(value) then walk(value, at) end
            elseif type(value) == "table" then
                walk(value, at)
            end
        end
    end
end

walk(flow, "flow")

-- The methods that an object finds: functions in its metatable's __index and in what that inherits from.
local function methods_of(object)
    local found = {}
    local function collect(t, depth)
        if type(t) ~= "table" or depth > 8 then return end
        for _, key in ipairs(sorted_keys(t)) do
            if type(rawget(t, key)) == "function" and key:sub(1, 1) ~= "_" then found[key] = found[key] or rawget(t, key) end
        end
        local meta = getmetatable(t)
        if type(meta) == "table" and type(rawget(meta, "__index")) == "table" then collect(rawget(meta, "__index"), depth + 1) end
    end
    local meta = debug.getmetatable(object)
    if type(meta) ~= "table" then return found end
    collect(meta, 0)                      -- a class of modules
    if type(rawget(meta, "__index")) == "table" then collect(rawget(meta, "__index"), 0) end
    return found
end

local function assign(x, key, value) x[key] = value end
local known = {[debug.getmetatable(flow.ones(1))] = true}
math.randomseed(seed)
for _, k in ipairs(kinds) do
    local object = k.make()
    local meta = debug.getmetatable(object)
    if type(meta) == "table" then known[meta] = true end
    local found = type(object) ~= "function" and type(meta) == "table" and methods_of(object) or {}
    for _, name in ipairs(k.make == Pair and {} or sorted_keys(found)) do
        if not skipped[k.name .. ":" .. name] then add(name, found[name], k, k.name .. ":" .. name) end
    end
    if type(object) == "function" or rawget(meta, "__call") then add("", function(x, ...) return x(...) end, k, k.name .. "()") end
    if type(object) ~= "function" then
        add("", function(x, key) return x[key] end, k, k.name .. "[]")
        add("", function(x) return tostring(x) end, k, k.name .. " tostring")
        if k.digest == module_digest or k.digest == optimizer_digest then add("", assign, k, k.name .. "[]=") end
        if rawget(meta, "__len") then add("", function(x) return #x end, k, k.name .. "#") end
        if rawget(meta, "__pairs") then add("", function(x) for _ in pairs(x) do end end, k, k.name .. " pairs") end
        if rawget(meta, "__eq") then add("", function(x, y) return x == y end, k, k.name .. "==") end
    end
end

---- arguments ----

-- Arguments that fit, by the path of a function or the name of a method. `more`: one more is no error.
local good = {
    ["flow.nn.pin"] = function() return flow.zeros({2, 2}, {placement = values.placement, sbp = "B"}), "S(0)" end,
    ["flow.nn.like"] = function() return flow.ones(2), {dtype = "int64"} end, ["flow.nn.Parameter"] = function() return flow.ones(2), true end,
    ["flow.nn.is_module"] = function() return Pair() end, ["flow.nn.Module"] = false,
    ["flow.nn.init.constant"] = function() return flow.ones(2), 3 end, ["flow.nn.init.gain"] = function() return "relu", 0.1 end,
    ["flow.nn.init.uniform"] = function() return flow.ones(2), 0, 1 end, ["flow.nn.init.normal"] = function() return flow.ones(2), 0, 1 end,
    ["flow.nn.init.zeros"] = function() return flow.ones(2) end, ["flow.nn.init.ones"] = function() return flow.ones(2) end,
    ["flow.nn.ModuleList"] = function() return nn.ReLU(), nn.ReLU() end, ["flow.nn.Sequential"] = function() return nn.ReLU(), nn.ReLU() end,
    ["flow.kvstore.create"] = function() return "local" end,
    push = function() return "w", flow.ones(3, 2) end, pull = function() return 3, flow.ones(2) end,
    pushpull = function() return {"w", 3}, {flow.ones(3, 2), flow.ones(2)}, {flow.ones(3, 2), {flow.ones(2)}} end,
    row_sparse_pull = function() return "w", flow.tensor {0, 2}, flow.ones(3, 2) end, set_updater = function() return function() end end,
    set_optimizer = function() return "AdamW", {lr = 0.1} end, set_compression = function() return {type = "2bit", threshold = 0.5} end,
    ["flow.optim.Adam"] = function() return parameters(), {betas = {0.5, 0.9}} end,
    ["flow.optim.AdamW"] = function() return {{params = parameters(), lr = 1}}, {lr = 0.1} end,
    ["flow.optim.clip_grad_norm"] = function() return parameters(), 1 end,
    ["flow.optim.Scheduler"] = function() return optimizer("SGD"), optim.schedule.constant() end,
    ["flow.optim.schedule.constant"] = function() end, ["flow.optim.schedule.warmup"] = function() return 3 end,
    ["flow.optim.schedule.cosine"] = function() return 10, {least = 0.1} end, ["flow.optim.schedule.step"] = function() return 3, 0.5 end,
    ["flow.optim.schedule.warmup_cosine"] = function() return 9, {warmup = 3} end,
    ["flow.optim.schedule.chain"] = function() return {optim.schedule.constant(), 2}, {optim.schedule.constant()} end,
    ["flow.data.loader"] = function() return dataset(), {batch_size = 2, shuffle = true} end,
    ["flow.data.tensors"] = function() return flow.ones(3, 2), flow.ones(3) end, ["flow.data.windows"] = function() return flow.arange(9), 3, {stride = 2} end,
    ["flow.data.text"] = function() return "abc" end, ["flow.data.hash"] = function() return "abc" end,
    ["flow.generator"] = function() return 3 end, ["flow.placement"] = function() return "cpu", {0} end, ["flow.placement.all"] = function() return "cpu" end,
    ["flow.sbp.split"] = function() return 1 end, ["flow.rank"] = function() end, ["flow.world_size"] = function() end, ["flow.barrier"] = function() end,
    ["flow.sync"] = function() end, ["flow.memory"] = function() return {reset_peak = true} end, ["flow.device_count"] = function() return "cpu" end,
    ["flow.get_num_threads"] = function() end, ["flow.is_tensor"] = function() return 1 end, ["flow.is_grad_enabled"] = function() end,
    ["flow.default_generator"] = function() end, ["flow.engine.stats"] = function() end, ["flow.infer_cache.stats"] = function() end,
    ["flow.infer_cache.clear"] = function() end, ["flow.save"] = function() return folder .. "/good.safetensors", {x = flow.ones(2), n = 3} end,
    ["flow.load"] = function() return stored_file, {lazy = true} end, ["flow.explain"] = function() return function() return flow.ones(2) + 1 end end,
    ["flow.show"] = function() return flow.ones(2, 3) end, ["flow.get_float32_matmul_precision"] = function() end,
    ["flow.chunk"] = function() return flow.ones(4), 2, 0 end, ["flow.split"] = function() return flow.ones(4), 2, 0 end,
    ["flow.max"] = function() return flow.ones(4), 0, true end, ["flow.min"] = function() return flow.ones(4), 0, true end,
    apply = function() return function() end end, append = function() return nn.ReLU() end, to = function() return "float64" end,
    to_global = function() return {placement = values.placement, sbp = "B"} end, train = function() return true end,
    requires_grad_ = function() return false end, register_buffer = function() return "running", flow.ones(2) end,
    register_parameter = function() return "scale", nn.Parameter(flow.ones(2)) end, is = function() return nn.Linear end,
    set_lr = function() return 0.5 end, manual_seed = function() return 3 end, encode = function() return "hello" end, decode = function() return {0, 1} end,
    batch = function() return flow.tensor({0, 1}) end, read = function() return {device = "cpu"} end, extend = false, init = false,
    load_state_dict = function(x) return x:state_dict() end, load_state = function(x) return x:state() end,
}
for name in pairs(layers) do good["flow.nn." .. name] = function() return layer_arguments(name) end end
for _, name in ipairs(sorted_keys(optim)) do
    local at = "flow.optim." .. name
    good[at] = good[at] or function() return parameters(), {lr = 0.1} end
end
for _, name in ipairs {"Flatten", "Identity", "ReLU", "SiLU", "Sigmoid", "Tanh"} do good["flow.nn." .. name] = function() end end
for _, name in ipairs {"kaiming_normal", "kaiming_uniform", "xavier_normal", "xavier_uniform"} do
    good["flow.nn.init." .. name] = function() return flow.ones(2, 3) end
end
-- Functions that take a function to call, and those that make and compare tensors.
local function call_of(...)
    local args = table.pack(...)
    return function() return table.unpack(args, 1, args.n) end
end
local function same(x) return x end
for name, how in pairs {
    no_grad = call_of(same, 1), enable_grad = call_of(same, 1), no_sync = call_of(same, 1), detect_anomaly = call_of(same, 1), on_rank = call_of(0, same, 1),
    with_device = call_of("cpu", same, 1), with_generator = function() return flow.generator(1), same, 1 end, checkpoint = call_of(two_lines, flow.ones(2, 3)),
    capture = call_of(two_lines, {strict = true}), trace = function() return two_lines, {flow.spec {2, 3}} end, has = call_of "nn.Linear",
    autograd_function = call_of(same, same, {name = "own"}), gradcheck = function() return two_lines, flow.ones(2, {dtype = "float64"}), {order = 1} end,
    allclose = function() return flow.ones(2), flow.ones(2), {rtol = 1} end, equal = function() return flow.ones(2), flow.ones(2) end,
    from_dlpack = function() return flow.ones(2) end, frombytes = call_of("abcd", "uint8", {4}), tensor = call_of({1, 2}, {dtype = "float32"}),
    spec = call_of({2}, "int64"), grad = function()
        local x = flow.ones(2, {requires_grad = true})
        return (x * 2):sum(), x, {allow_unused = true}
    end, ["testing.assert_close"] = function() return flow.ones(2), flow.ones(2), {rtol = 1, atol = 1} end,
    ["engine.push"] = function() return {run = "return 1", reads = {flow.ones(2)}} end,
    ["data.generate"] = call_of(4, function(position) return {position} end, {args = {}}),
    ["data.random"] = call_of({seed = 1, epoch = 0}, 3), ["data.records"] = function() return record_file, {checksum = false} end,
    ["data.pack"] = function() return dataset(), record_file, {workers = 1, progress = false} end,
    ["data.read"] = call_of(arg[0]), ["data.files"] = call_of ".",
    ["json.encode"] = call_of {a = {1, true}}, ["json.decode"] = call_of '{"a": [1, true]}', ["progress.bar"] = call_of(3, {lines = 0}),
    ["progress.duration"] = call_of(3), ["cli.read"] = function() return {"--n", "3"}, {{"--n N", 4, "a number"}} end,
    ["cli.help"] = function() return "about", {{"--n N", 4, "a number"}} end,
} do good["flow." .. name] = how end
good.forward = function(_, entry) return layer_input(entry.object and entry.object.name) end
good.register_forward_hook, good.register_forward_pre_hook = call_of(same), call_of(same)
good.to_empty, good.infer, good.save, good.load = call_of "cpu", call_of {{4, 3}}, call_of(folder .. "/store.safetensors"), call_of(folder .. "/store.safetensors")
good.get = call_of(1)
good.update, good.svg = call_of(1, "text"), call_of(folder .. "/program.svg")
for _, name in ipairs {"parameters", "named_parameters", "buffers", "named_buffers", "children", "named_children", "modules", "named_modules", "count_parameters",
    "state_dict", "eval", "zero_grad", "describe", "extra", "step", "next", "state", "wait", "done", "barrier", "close", "remove", "dot", "memory",
    "backward", "take", "clear", "rate", "seconds"} do good[name] = function() end end
local more = {
    ["flow.nn.Identity"] = true, ["flow.nn.ModuleList"] = true, ["flow.nn.Sequential"] = true, ["flow.optim.schedule.chain"] = true, ["flow.data.tensors"] = true,
    ["flow.explain"] = true, ["flow.sbp.split"] = false}

local function random_object() return pick(kinds).make() end

local function any() return chance(15) and random_object() or junk() end

-- Arguments after the object, and true when they must be refused.
local function choose_arguments(entry, object)
    local fitting = good[entry.path]
    local of_class = not entry.object and entry.path:find "^flow%.nn%.Module%." ~= nil
    if fitting == nil and (object ~= nil or of_class) then fitting = good[entry.name] end
    if entry.object and entry.name == "" then fitting = nil end
    if not fitting or chance(40) then
        local args = values.arguments(false)
        for i = 1, args.n do if chance(20) then args[i] = random_object() end end
        return args, false
    end
    local args, how = table.pack(fitting(object or of_class and Pair(), entry)), random(6)
    if of_class then args = table.pack(Pair(), table.unpack(args, 1, args.n)) end
    local variadic = more[entry.path]
    if how == 1 and not variadic then
        local count = random(3)
        for i = args.n + 1, args.n + 8 do args[i] = i < args.n + 8 - count and 1 or any() end
        args.n = args.n + 8
        return args, args.n > 11 or entry.path:find("^flow%.nn") ~= nil
    elseif how == 2 and args.n > 0 and type(args[args.n]) == "table" and not getmetatable(args[args.n]) and #args[args.n] == 0 and args.n > 1 then
        args[args.n].no_such_option = any()
        return args, args[args.n].no_such_option ~= nil and entry.path ~= "flow.save" and entry.path ~= "flow.nn.like"
    elseif how == 3 and args.n > 0 then
        args.n = args.n - 1
    elseif how >= 4 and args.n > 0 then
        args[random(args.n)] = any()
    end
    return args, false
end

-- Files are written in the scratch folder alone.
local writes_file = {save = true, save_optimizer_states = true, svg = true, pack = true, writer = true, write_image = true}
local function arguments_of(entry, object)
    local args, refused = choose_arguments(entry, object)
    for i = 1, writes_file[entry.name] and args.n or 0 do
        if type(args[i]) == "string" and args[i] ~= "" and not args[i]:find("/", 1, true) then args[i] = folder .. "/" .. args[i] end
    end
    return args, refused
end

---- a call ----

local complain = values.complain

-- Names in messages that differ from those of the functions, and functions whose errors may be of what they were given to call.
local spoken = {
    adjust_brightness = "color_jitter", adjust_contrast = "color_jitter", adjust_saturation = "color_jitter", adjust_hue = "color_jitter",
    pin = "to_global", ones = "fill_", zeros = "fill_", constant = "fill_", xavier_normal = "normal_", kaiming_normal = "normal_", xavier_uniform = "uniform_",
    kaiming_uniform = "uniform_", unstack = "unbind", row_stack = "vstack", broadcast_arrays = "broadcast_tensors",
    split_with_sizes = "split", mvlgamma = "multigammaln", pinverse = "pinv",
    fractional_max_pool2d_with_indices = "fractional_max_pool2d", fractional_max_pool3d_with_indices = "fractional_max_pool3d",
    ndimension = "dim", tolist = "totable", UpsamplingNearest2d = "Upsample", mel_spectrogram = "stft",
    UpsamplingBilinear2d = "Upsample", batch = "index_select", encode = "json", decode = "json", vhp = "hvp",
}
local passes_on = {
    init = true, forward = true, apply = true, no_grad = true, enable_grad = true, inference_mode = true, set_grad_enabled = true, no_sync = true, with_generator = true,
    with_device = true, explain = true, Scheduler = true, on_rank = true, trace = true, detect_anomaly = true, set_detect_anomaly = true, gradcheck = true,
    checkpoint = true, capture = true, update = true, summary = true, step = true, register_buffer = true,
    cached = true, vjp = true, jvp = true, vhp = true, hvp = true, jacrev = true, jacfwd = true, jacobian = true, hessian = true, linearize = true, vmap = true,
    register_parameter = true, register_module = true, set_submodule = true, Transformer = true, autocast = true, pack = true, generate = true, [""] = true,
}

local function check_message(i, entry, message)
    if type(message) ~= "string" then return complain(i, entry.path .. " raised a " .. type(message)) end
    if message == "not enough memory" then return end
    local text = message:match("^[^:\n]*fuzz_objects%.lua:%d+: (.*)")
    if not text then return complain(i, entry.path .. " has not the script's position: " .. message) end
    local word = spoken[entry.name] or (entry.name:gsub("_$", ""))
    if entry.name == "" and text:find "^attempt to index a flow%.[%w_]+ value" then return end -- by this script, of what has no fields
    if text:find("has too many elements", 1, true) or text:find("out of memory", 1, true) then return end -- by the op that makes a weight
    local named = lazy_names.get(flow.distributions, text:match "^[%w_]+") -- have their own names in messages
        or passes_on[entry.name] or text:find(entry.name, 1, true) or text:find(word, 1, true) or text:find("^[%w_]+ %b(): ")
        or text:find "^a program of " or text:find "^the input '"  -- of a program that was given as a function
        or text:find "^loader: not a function" or text:find "^augment: takes a tensor" -- as which it was given
    if not named then complain(i, entry.path .. " is not named: " .. message) end
    for _, what in ipairs {"index", "call", "compare", "perform arithmetic", "concatenate", "get length"} do
        if text:find("attempt to " .. what, 1, true) then complain(i, entry.path .. ": " .. message) end
    end
    if text:find("bad argument", 1, true) then complain(i, entry.path .. ": " .. message) end
    if text:find("[%z\1-\9\11-\31]") then complain(i, entry.path .. " has control characters: " .. message) end
    if #text > 2000 then complain(i, entry.path .. " says too much: " .. message) end
end

-- The object after an error: as before, and it works.
local function check_object(i, entry, object, before)
    local ok, after = pcall(entry.object.digest, object)
    local grows = entry.object.name:find "^Lazy"     -- it makes its weights before anything can fail
    if not ok or after ~= before and not grows then return complain(i, ("%s changed its object: %s, before %s"):format(entry.path, tostring(after), before)) end
    local works, message = pcall(entry.object.works, object)
    if not works then complain(i, ("%s left an object that does not work: %s"):format(entry.path, tostring(message))) end
end

local function check_result(i, entry, value)
    if type(value) ~= "table" and type(value) ~= "userdata" or io.type(value) then return end
    local meta = debug.getmetatable(value)
    if type(meta) ~= "table" or known[meta] or not (rawget(meta, "__index") or rawget(meta, "__call")) then return end
    for i_class = 1, #kinds do
        if debug.getmetatable(kinds[i_class].make()) == meta then return end
    end
    if is_class(meta) or is_class(value) or is_optimizer_class(value) then return end
    complain(i, entry.path .. " made an object of a kind that nothing here makes: " .. tostring(value))
end

-- A setting that holds until it is closed would hold in the calls that follow.
local function close_scope(value)
    local meta = debug.getmetatable(value)
    if type(meta) == "table" and rawget(meta, "__name") == "flow.scope" then meta.__close(value) end
end

-- An empty Sequential gives what it got.
local function is_argument(value, args)
    for i = 1, args.n do
        if rawequal(value, args[i]) then return true end
    end
    return false
end

local reached, count = {}, 0

local function one(i)
    math.randomseed(seed, i)
    flow.manual_seed(i)
    local entry = pick(entries)
    if not reached[entry] then reached[entry], count = true, count + 1 end
    local object = entry.object and entry.object.make()
    local args, refused = arguments_of(entry, object)
    if verbose then print(("%s(%s)%s"):format(entry.path, values.show_arguments(args), refused and " must be refused" or "")) end
    local before, results = entry.object and entry.object.digest(object)
    if object ~= nil and not chance(4) then
        results = table.pack(pcall(entry.call, object, table.unpack(args, 1, args.n)))
    else
        results, refused, object = table.pack(pcall(entry.call, table.unpack(args, 1, args.n))), refused and object == nil, nil
    end
    local ok, message = results[1], results[2]
    if verbose then print(ok, values.show(message)) end
    if not ok and not (entry.name == "" and object == nil) then check_message(i, entry, message) end
    if refused and ok then complain(i, entry.path .. " takes arguments that it does not have: " .. values.show_arguments(args)) end
    values.check_ranks(i, entry.path, ok, message)
    if not ok and object ~= nil and entry.name ~= "init" then check_object(i, entry, object, before) end
    if ok and entry.path == "capsule:take" then flow.from_dlpack(message) end -- the memory is the caller's now
    for j = 2, ok and math.min(results.n, 4) or 0 do
        if not is_argument(results[j], args) then check_result(i, entry, results[j]) end
        close_scope(results[j])
    end
end

io.stdout:setvbuf("no")
for i = first, last do
    if flow.rank() == 0 then io.write(i, "\n") end     -- mpirun mixes the lines of several ranks
    one(i)
end
local ok, message = pcall(flow.sync)
if not ok then complain(last, tostring(message)) end
flow.barrier()
if flow.rank() == 0 then os.execute("rm -r " .. folder) end
local missed = {}
for _, entry in ipairs(entries) do if not reached[entry] then missed[#missed + 1] = entry.path end end
if flow.rank() > 0 then return end
if #missed > 0 and #missed < 100 then print("not reached: " .. table.concat(missed, " ")) end
print(("%d of %d functions and methods reached"):format(count, total))
print("end")
