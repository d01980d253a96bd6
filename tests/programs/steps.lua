-- steps.lua -- random steps of training, captured and as they are: whatever a script changes between two calls, both give the
-- same bits, or the same error.
--
-- A program is a net, an optimizer and a list of what happens before each call; all of it follows from two numbers, so the
-- eager and the captured run are the same script.
local flow = require "flow"
local parts = require "tests.programs.parts"

local nn, optim, hash = flow.nn, flow.optim, parts.hash

local M = {calls = 0, errors = 0, replays = 0, changes = {}}

local LENGTH = 14

-- A source of numbers: draw(n) is one of 1..n, draw(list) one of its entries; a list with `n` may have nils.
local function source(seed, number)
    local count = 0
    return function(of)
        count = count + 1
        local n = hash(seed, number, count)
        if type(of) == "number" then return n % of + 1 end
        return of[n % (rawget(of, "n") or #of) + 1]
    end
end

local optimizers = {
    {"SGD", {lr = 0.1}}, {"SGD", {lr = 0.1, momentum = 0.9}}, {"AdamW", {lr = 0.02}}, {"Adam", {lr = 0.02, amsgrad = true}},
    {"RMSprop", {lr = 0.01}}, {"Adagrad", {lr = 0.05}}, {"NAdam", {lr = 0.01}}, {"Lion", {lr = 0.01}},
    {"LAMB", {lr = 0.02}}, {"LARS", {lr = 0.05}}, {"Adafactor", {lr = 0.05}}, {"Rprop", {lr = 0.01}}, {"ASGD", {lr = 0.05}},
    {"Adadelta", {lr = 0.5}}, {"RAdam", {lr = 0.02}}, {"Adamax", {lr = 0.02}}, {"Muon", {lr = 0.02}},
}

-- Values that options are given; `nothing` stands for nil.
local nothing = {}
local values = {
    lr = {0.05, 0.01, 0.2, nothing, "fast"}, weight_decay = {0, 0.1, 0.01, nothing, true}, momentum = {0, 0.5, 0.9, nothing},
    nesterov = {true, false, nothing, 1}, dampening = {0, 0.1, nothing}, eps = {1e-6, 1e-3, nothing, "small"},
    maximize = {true, false, nothing, "yes"}, amsgrad = {true, false, nothing}, betas = {{0.8, 0.95}, {0.5, 0.9}, {0.9}, nothing, 0.9},
    alpha = {0.5, 0.9, nothing}, centered = {true, false}, rho = {0.5, 0.9, nothing}, lr_decay = {0, 0.1, nothing},
    momentum_decay = {1e-3, 1e-2, nothing}, decoupled_weight_decay = {true, false, nothing}, d = {1.0, 2.0, 0.25},
    beta2_decay = {-0.8, -0.5}, lambd = {1e-4, 1e-2, nothing}, t0 = {1, 1e6, nothing}, trust_coefficient = {1e-3, 1e-2, nothing},
    ns_steps = {3, 5}, adjust_lr_fn = {"original", "match_rms_adamw"}, ns_coefficients = {{3.4445, -4.7750, 2.0315}, {3, -4, 2}},
    etas = {{0.5, 1.2}, {0.4, 1.5}}, step_sizes = {{1e-6, 50}, {1e-3, 1}}, initial_accumulator_value = {0, 1},
}

local function copy_of(value) return type(value) == "table" and {table.unpack(value)} or value end

-- ---- the script: its state, and its step ----

local function new_optimizer(draw, params)
    local name, options = table.unpack(draw(optimizers))
    local own = {}
    for key, value in pairs(options) do own[key] = value end
    local list = {}
    for _, p in ipairs(params) do if name ~= "Muon" or p:dim() == 2 then list[#list + 1] = p end end
    return optim[name](list, own)
end

local function new_net()
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
end

-- The state of the script, and step(x, y), which reaches all of it by itself. reads: it reads the loss, which decides its control flow.
local function new_script(draw, reads)
    local net = new_net()
    local optimizer = new_optimizer(draw, net:parameters())
    local average = draw(3) == 1 and optim.AveragedModel(net, {decay = 0.9})
    local scheduler, clip, smoothing, to_none, factor, helper = nil, false, 0, true, nil, function(loss) return loss end
    local function step(x, y)
        optimizer:zero_grad(to_none)
        local loss = flow.cross_entropy(net(x), y, {label_smoothing = smoothing})
        if factor then loss = loss * factor end
        helper(loss):backward()
        if reads and loss:item() > 1.4 then flow.no_grad(function() net[7].bias:mul_(0.5) end) end
        if clip then optim.clip_grad_norm(net:parameters(), clip) end
        optimizer:step()
        if scheduler then scheduler:step() end
        if average then average:update_parameters() end
        return loss
    end
    local s = {net = net, optimizer = optimizer, average = average, step = step, batch = 5, hooks = {}}
    -- assignments to what the step reaches
    function s.set(name, value)
        if name == "scheduler" then scheduler = value
        elseif name == "optimizer" then optimizer, s.optimizer = value, value
        elseif name == "net" then net, s.net = value, value
        elseif name == "clip" then clip = value
        elseif name == "smoothing" then smoothing = value
        elseif name == "to_none" then to_none = value
        elseif name == "factor" then factor = value
        elseif name == "helper" then helper = value end
    end
    return s
end

-- ---- changes between two calls ----

local changes = {}

local function parameter(s, draw) return draw(s.net:parameters()) end

function changes.option(s, draw)
    local group = draw(s.optimizer.groups)
    local keys = {}
    for key in pairs(s.optimizer.defaults) do if values[key] then keys[#keys + 1] = key end end
    table.sort(keys)
    local key = draw(keys)
    local value = draw(values[key])
    if value == nothing then value = nil end
    group[key] = copy_of(value)
    s.repair[#s.repair + 1] = function() group[key] = copy_of(s.optimizer.defaults[key]) end
end

function changes.entry_of_betas(s, draw)
    local group = s.optimizer.groups[1]
    if type(group.betas) ~= "table" then return end
    local i, before = draw(2), group.betas
    local old = before[i]
    before[i] = draw {0.7, 0.6, 0.99}
    if draw(4) == 1 then
        before[i] = nil
        s.repair[#s.repair + 1] = function() before[i] = old end
    end
end

function changes.rate(s, draw) s.optimizer:set_lr(draw {0.02, 0.03, 0.1}) end
function changes.clip(s, draw) s.set("clip", draw {0.5, 0.1, 1.0, false}) end
function changes.smoothing(s, draw) s.set("smoothing", draw {0, 0.1, 0.2}) end
function changes.to_none(s, draw) s.set("to_none", draw(2) == 1) end
function changes.factor(s, draw) s.set("factor", draw {0.5, 2, 3, n = 4}) end
function changes.factor_tensor(s, draw) s.set("factor", flow.full({}, draw {0.5, 2.0})) end
function changes.batch(s, draw) s.batch = draw {5, 5, 7} end
function changes.seed(_, draw) flow.manual_seed(draw(100)) end

function changes.helper(s, draw)
    local k = draw {1, 2, 3}
    s.set("helper", function(loss) return loss * k end)
    s.raise = function() k = k + 1 end
end

function changes.inner_upvalue(s) if s.raise then s.raise() end end

function changes.probability(s, draw)
    if s.net[4].p then s.net[4].p = draw {0.1, 0.5, 0, 0.9} end
end

function changes.layer(s, draw) s.net[6] = draw(2) == 1 and nn.Tanh() or nn.GELU() end
function changes.train(s, draw) s.net:train(draw(3) > 1) end
function changes.train_one(s, draw) s.net[draw {2, 4}].training = draw(2) == 1 end
function changes.norm(s, draw) s.net[2].momentum = draw {0.1, 0.5} end
function changes.norm_eps(s, draw) s.net[2].eps = draw {1e-5, 1e-2} end
function changes.buffer(s) s.net[2].running_mean = flow.randn(8) end

function changes.grad(s, draw)
    local p = parameter(s, draw)
    local what = draw(4)
    if what == 1 then p.grad = nil
    elseif what == 2 then p.grad = flow.randn(p.shape)
    elseif what == 3 and p.grad then p.grad:zero_()
    else s.optimizer:zero_grad(false) end
end

function changes.freeze(s, draw)
    local p = parameter(s, draw)
    p.requires_grad = not p.requires_grad
end

function changes.values(s, draw) flow.no_grad(function() parameter(s, draw):mul_(0.5) end) end

function changes.replaced_parameter(s, draw)
    local layer = s.net[draw {1, 5, 7}]
    local old = layer.weight
    layer.weight = nn.Parameter(flow.randn(old.shape))
    if draw(2) == 1 then return end
    for _, group in ipairs(s.optimizer.groups) do
        for i, p in ipairs(group.params) do if rawequal(p, old) then group.params[i] = layer.weight end end
    end
end

function changes.fewer_parameters(s)
    local params = s.optimizer.groups[1].params
    if #params > 3 then table.remove(params, 2) end
end

function changes.other_parameters(s)
    local params = s.optimizer.groups[1].params
    if #params > 2 then params[1], params[2] = params[2], params[1] end
end

function changes.group(s)
    local extra = nn.Parameter(flow.randn(3))
    extra.grad = flow.ones(3)
    s.optimizer:add_param_group({params = {extra}})
end

function changes.other_group(s)
    local copy = {}
    for key, value in pairs(s.optimizer.groups[1]) do copy[key] = value end
    copy.lr = 0.03
    s.optimizer.groups[1] = copy
end

function changes.optimizer(s, draw) s.set("optimizer", new_optimizer(draw, s.net:parameters())) end
function changes.net(s) s.set("net", new_net()) end
function changes.forgotten_state(s, draw) s.optimizer.state[parameter(s, draw)] = nil end

function changes.scheduler(s, draw)
    local what = draw(3)
    if what == 1 then s.set("scheduler", nil)
    elseif what == 2 then
        s.scheduler = optim.Scheduler(s.optimizer, optim.schedule.warmup_cosine(20, {warmup = 4}))
        s.set("scheduler", s.scheduler)
    else s.set("scheduler", optim.lr_scheduler.StepLR(s.optimizer, 2, {gamma = 0.5})) end
end

function changes.steps_of_scheduler(s) if s.scheduler then s.scheduler.steps = 9 end end

function changes.save(s) s.saved = {s.optimizer, s.optimizer:state_dict(), s.net, s.net:state_dict()} end
function changes.load(s)
    if not s.saved or s.saved[1] ~= s.optimizer or s.saved[3] ~= s.net then return end
    if pcall(s.optimizer.load_state_dict, s.optimizer, s.saved[2]) then pcall(s.net.load_state_dict, s.net, s.saved[4]) end
end

function changes.hook(s)
    if s.hook then
        s.hook:remove()
        s.hook = nil
    else s.hook = s.net[1]:register_forward_hook(function(_, _, y) return y * 2 end) end
end

function changes.step_hook(s, draw)
    if s.step_hook then
        s.step_hook:remove()
        s.step_hook = nil
        return
    end
    local w = s.net[7].bias
    local name = draw {"register_step_pre_hook", "register_step_post_hook"}
    s.step_hook = s.optimizer[name](s.optimizer, function() flow.no_grad(function() w:mul_(0.5) end) end)
end

function changes.autocast(s, draw)
    local on = s.autocast
    s.autocast = not on and draw {"float16", "bfloat16"} or nil
end

function changes.decay(s, draw) if s.average then s.average.decay = draw {0.5, 0.99, false} end end
function changes.swap(s) if s.average and s.average.n_averaged > 0 then s.average:swap() end end

local names = {}
for name in pairs(changes) do names[#names + 1] = name end
table.sort(names)

-- ---- a run ----

local function bits(t)
    local text = {}
    if not t then return "none" end
    for _, v in ipairs(t:detach():reshape(-1):totable()) do text[#text + 1] = v ~= v and "nan" or ("%a"):format(v) end
    return table.concat(text, " ")
end

local function look(list, s, failed)
    for i, p in ipairs(s.net:parameters()) do
        list[#list + 1] = "parameter " .. i .. " " .. bits(p)
        if not failed then list[#list + 1] = "gradient " .. i .. " " .. bits(p.grad) end
        local state = s.optimizer.state[p]
        list[#list + 1] = "count " .. i .. " " .. tostring(state and state.step)
        for name, t in pairs(state and not failed and state.tensors or {}) do list[#list + 1] = name .. i .. " " .. bits(t) end
    end
    for i, b in ipairs(s.net:buffers()) do list[#list + 1] = "buffer " .. i .. " " .. bits(b) end
    if s.average then
        for name, t in pairs(s.average.averages) do list[#list + 1] = "average " .. name .. " " .. bits(t) end
        list[#list + 1] = "averaged " .. s.average.n_averaged
    end
    table.sort(list)
end

-- Without the position, and what a replay or the optimizer puts before it.
local function message_of(err)
    local text = tostring(err):gsub("\n.*", "")
    for _ = 1, 3 do text = text:gsub("^captured at [^ ]+: ", ""):gsub("^[^ :]+:%d+: ", "") end
    return (text:gsub("^step: ", ""))
end

-- The results of each call and the state after it; the changes before it.
local function run(seed, number, captures)
    local draw, reads = source(seed, number), number % 4 == 0
    flow.manual_seed(hash(seed, number) % 1000)
    local s, calls = new_script(draw, reads), {}
    local runs, step = 0, s.step
    if captures then
        local plain = step
        step = flow.capture(function(...)
            runs = runs + 1
            return plain(...)
        end, {strict = not reads})
    end
    for i = 1, LENGTH do
        local done = {}
        s.repair = {}
        for _ = 1, i > 2 and draw {0, 0, 1, 1, 2} or 0 do
            local name = draw(names)
            local ok, message = pcall(changes[name], s, draw)
            done[#done + 1] = name .. (ok and "" or " (" .. tostring(message) .. ")")
            M.changes[name] = (M.changes[name] or 0) + 1
        end
        local x, y = flow.randn(s.batch, 6), flow.randint(0, 4, {s.batch})
        local ok, loss
        local before = runs
        if s.autocast then ok, loss = pcall(flow.autocast, s.autocast, step, x, y) else ok, loss = pcall(step, x, y) end
        local list = {ok and "loss " .. bits(loss) or "error " .. message_of(loss)}
        look(list, s, not ok)
        if not ok then
            M.errors = M.errors + 1
            for _, f in ipairs(s.repair) do f() end
            s.optimizer:zero_grad()
            s.net:zero_grad()
            flow.manual_seed(i)
        end
        list[#list + 1] = "next " .. bits(flow.rand(1))
        calls[i] = {list = list, changed = table.concat(done, ", ")}
        M.calls = M.calls + 1
        if captures and runs == before and not reads then M.replays = M.replays + 1 end
    end
    return calls
end

-- The first call that differs, as a text; nil: none does.
function M.check(seed, number)
    local want, got = run(seed, number, false), run(seed, number, true)
    for i, call in ipairs(want) do
        for k = 1, math.max(#call.list, #got[i].list) do
            if call.list[k] ~= got[i].list[k] then
                local before = {}
                for n = 1, i do if want[n].changed ~= "" then before[#before + 1] = n .. ": " .. want[n].changed end end
                return ("program %d, call %d, after %s\ncaptured: %s\nas it is: %s"):format(number, i, table.concat(before, "; "),
                    tostring(got[i].list[k]), tostring(call.list[k]))
            end
        end
    end
end

return M
