-- nn.lua -- modules: parts of a network that own parameters.
--
-- A module keeps what is assigned to it in the order of assignment, so that parameters, buffers and children have the
-- same order in every process. All its fields lie behind __index and __newindex; the object itself holds three hidden
-- tables. A tensor that requires grad becomes a parameter by being assigned, a module a child. Reading a field that was
-- never assigned is an error (assigning nil counts).

local flow = require "flow"
local check = require "flow.check"
local ordered = require "flow.ordered"

local op = flow._op
local is_tensor = check.is_tensor

local nn = {}

local FIELDS, ORDER, KINDS = {}, {}, {}     -- keys of the hidden tables: values; keys in order; kind of each key

---@class flow.nn.Module
local Module = {__name = "Module"}
nn.Module = Module

---@return boolean
function nn.is_module(value)
    return type(value) == "table" and rawget(value, FIELDS) ~= nil
end

-- ---- objects and classes ----

local function missing(self, key)
    local names = {}
    for name in pairs(self[KINDS]) do names[#names + 1] = tostring(name) end
    local class = getmetatable(self)
    while class do
        for name in pairs(class) do names[#names + 1] = tostring(name) end
        local meta = getmetatable(class)
        class = meta and meta.__index
    end
    table.sort(names)
    check.fail("%s has no field or method '%s'%s", getmetatable(self).__name, tostring(key), check.suggest(key, names))
end

local function get(self, key)
    local value = self[FIELDS][key]
    if value ~= nil then return value end
    value = getmetatable(self)[key]
    if value == nil and type(key) == "string" and not self[KINDS][key] then missing(self, key) end
    return value
end

local function kind_of(value, before)
    if nn.is_module(value) then return "module" end
    if not is_tensor(value) then return before == "buffer" and value == nil and before or "value" end
    if before == "parameter" or before == "buffer" then return before end
    return value.requires_grad and value.is_leaf and "parameter" or "value"
end

local function set(self, key, value)
    local kinds, order = self[KINDS], self[ORDER]
    if not kinds[key] then order[#order + 1] = key end
    kinds[key] = kind_of(value, kinds[key])
    self[FIELDS][key] = value
end

local running       -- the innermost module whose forward runs, nil outside

local function leave(outer, ...)
    running = outer
    return ...
end

-- "train.lua:7: linear: ..." -> "train.lua:7: in Net.blocks[2].mlp: linear: ..."
local function describe(root, inner, message)
    if type(message) ~= "string" then return message end
    local path = getmetatable(root).__name
    for name, module in root:named_modules() do
        if rawequal(module, inner) then
            path = path .. ("." .. name):gsub("%.(%d+)", "[%1]"):gsub("%.$", "")
            break
        end
    end
    local place, text = message:match("^([^\n:]+:%d+: )(.*)$")
    return ("%sin %s: %s"):format(place or "", path, text or message)
end

local function finish(self, ok, ...)
    local inner = running
    running = nil
    if ok then return ... end
    error(describe(self, inner, (...)), 0)
end

-- Only the outermost call is protected: an error then knows which module was running, and calls inside cost nothing.
local function call(self, ...)
    local outer = running
    running = self
    if outer then return leave(outer, self:forward(...)) end
    return finish(self, pcall(self.forward, self, ...))
end

local function construct(class, ...)
    local self = {[FIELDS] = {training = true}, [ORDER] = {}, [KINDS] = {training = "value"}}
    setmetatable(self, class)
    self:init(...)
    return self
end

local function length(self)
    return #self[FIELDS]
end

---A class of modules; give it `init` and `forward`.
---@param name string
function Module:extend(name)
    if type(name) ~= "string" then check.fail("extend: takes the name of the class, got %s", type(name)) end
    local class = {
        __name = name, __index = get, __newindex = set, __call = call, __len = length,
        __tostring = function(module) return module:describe() end,
    }
    return setmetatable(class, {__index = self, __call = construct, __name = "class " .. name})
end

---Called with the arguments of the constructor.
function Module:init() end  -- luacheck: ignore self

---Called by net(x).
function Module:forward()
    check.fail("%s has no forward", getmetatable(self).__name)
end

---Is this module of that class, or of one that extends it?
---@return boolean
function Module:is(class)
    local mine = getmetatable(self)
    while mine and mine ~= class do
        local meta = getmetatable(mine)
        mine = meta and meta.__index
    end
    return mine == class
end

-- ---- walking ----

-- Modules that `module` holds itself: children, and modules in plain lists that were assigned to it.
local function own_children(module)
    local result = ordered.new()
    local fields, kinds = module[FIELDS], module[KINDS]
    for _, key in ipairs(module[ORDER]) do
        local value = fields[key]
        if kinds[key] == "module" and value ~= nil then
            result[tostring(key)] = value
        elseif type(value) == "table" and getmetatable(value) == nil then
            for i, item in ipairs(value) do
                if nn.is_module(item) then result[key .. "." .. i] = item end
            end
        end
    end
    return result
end

local function join(prefix, name)
    return prefix == "" and name or prefix .. "." .. name
end

-- visit(name, module) for the module and all below it, depth first; each once unless `again`.
local function walk(module, visit, again, prefix, seen)
    prefix, seen = prefix or "", seen or {}
    if seen[module] and not again then return end
    seen[module] = true
    visit(prefix, module)
    for name, child in own_children(module) do walk(child, visit, again, join(prefix, name), seen) end
end

-- Tensors of one kind by dotted name; a tensor that is used twice comes once unless `again`.
local function collect(module, wanted, again)
    local result, seen = ordered.new(), {}
    walk(module, function(prefix, part)
        for _, key in ipairs(part[ORDER]) do
            local value, kind = part[FIELDS][key], part[KINDS][key]
            if wanted[kind] and value ~= nil and (again or not seen[value]) then
                seen[value] = true
                result[join(prefix, tostring(key))] = value
            end
        end
    end, again)
    return result
end

local function values(map)
    local list = {}
    for _, value in map do list[#list + 1] = value end
    return list
end

---Names and tensors in order: `for name, p in net:named_parameters() do`.
function Module:named_parameters() return collect(self, {parameter = true}) end

---@return any[]
function Module:parameters() return values(self:named_parameters()) end

---Number of elements of all parameters.
---@return integer
function Module:count_parameters()
    local count = 0
    for _, p in self:named_parameters() do count = count + p:numel() end
    return count
end

function Module:named_buffers() return collect(self, {buffer = true}) end

---@return any[]
function Module:buffers() return values(self:named_buffers()) end

function Module:named_children() return own_children(self) end

---@return flow.nn.Module[]
function Module:children() return values(own_children(self)) end

---The module itself (named "") and all below it.
function Module:named_modules()
    local result = ordered.new()
    walk(self, function(name, module) result[name] = module end)
    return result
end

---@return flow.nn.Module[]
function Module:modules() return values(self:named_modules()) end

---Calls f with every module below this one and then with this one.
function Module:apply(f)
    for _, child in ipairs(self:children()) do child:apply(f) end
    f(self)
    return self
end

-- ---- parameters and buffers ----

---A tensor as a parameter: a leaf that requires grad.
---@param t any
---@param requires_grad boolean? default true
function nn.Parameter(t, requires_grad)
    check.tensor("Parameter", "the value", t)
    local parameter = t:detach()
    parameter.requires_grad = requires_grad == nil or requires_grad
    return parameter
end

---A tensor that is saved and moved with the module but not trained.
function Module:register_buffer(name, t)
    if t ~= nil then check.tensor("register_buffer", name, t) end
    self[name] = nil
    self[KINDS][name] = "buffer"
    self[name] = t
end

---A parameter that may be frozen (requires_grad = false) and is a parameter all the same.
function Module:register_parameter(name, t)
    if t ~= nil then check.tensor("register_parameter", name, t) end
    self[name] = nil
    self[KINDS][name] = "parameter"
    self[name] = t
end

-- Replaces every parameter and buffer by what f makes of it; a tensor used twice is still used twice.
local function convert(module, f)
    local made = {}
    local _ <close> = flow.no_grad()
    walk(module, function(_, part)
        for _, key in ipairs(part[ORDER]) do
            local kind, t = part[KINDS][key], part[FIELDS][key]
            if t ~= nil and (kind == "parameter" or kind == "buffer") then
                if made[t] == nil then
                    local new = f(t)
                    if not rawequal(new, t) then
                        new = new:detach()
                        new.requires_grad = t.requires_grad
                    end
                    made[t] = new
                end
                part[FIELDS][key] = made[t]
            end
        end
    end)
    return module
end

---To a device ("cpu", "cuda:1") or a dtype (float tensors only). Makes new parameters: call it before making an
---optimizer.
---@param where string
function Module:to(where)
    local is_device = where == "cpu" or tostring(where):match("^cuda")
    return convert(self, function(t)
        if where == t.device or where == t.dtype or not (is_device or t.dtype:match("float")) then return t end
        return t:to(where)
    end)
end

---Makes global parameters and buffers, the same on every rank before they are split: net:to_global{placement = p,
---sbp = "B"}. Makes new parameters: call it before making an optimizer.
---@param opts {placement: any, sbp: any}
function Module:to_global(opts)
    local o = check.options("to_global", opts, {placement = check.none, sbp = check.none})
    return convert(self, function(t)
        if not t.is_global then
            local whole = {}
            for i = 1, #o.placement.hierarchy do whole[i] = "B" end
            t = t:to_global{placement = o.placement, sbp = whole}
        end
        return t:to_global{placement = o.placement, sbp = o.sbp}
    end)
end

---Sets whether dropout and the like are active, here and below.
function Module:train(on)
    walk(self, function(_, module) module[FIELDS].training = on == nil or on end)
    return self
end

function Module:eval() return self:train(false) end

---Freezes or unfreezes all parameters.
function Module:requires_grad_(on)
    for _, p in ipairs(self:parameters()) do p.requires_grad = on == nil or on end
    return self
end

function Module:zero_grad()
    for _, p in ipairs(self:parameters()) do p.grad = nil end
end

-- ---- state ----

---Parameters and buffers by dotted name, in order, not connected to the tape. They share memory with the module.
function Module:state_dict()
    local state = collect(self, {parameter = true, buffer = true}, true)
    for name, t in state do state[name] = t:detach() end
    return state
end

local function shape_text(t)
    return "[" .. table.concat(t.shape, ", ") .. "]"
end

-- What keeps `state` from being loaded into `own`, as a list of sentences.
local function state_problems(own, state)
    local problems, unknown = {}, {}
    for _, name in ipairs(check.sorted_keys(state)) do
        if own[name] == nil then unknown[#unknown + 1] = name end
    end
    for name, t in own do
        local given = state[name]
        if given == nil then
            problems[#problems + 1] = ("'%s' is missing%s"):format(name, check.suggest(name, unknown))
        elseif not is_tensor(given) then
            problems[#problems + 1] = ("'%s' is a %s, not a tensor"):format(name, type(given))
        elseif shape_text(given) ~= shape_text(t) then
            problems[#problems + 1] = ("'%s' is %s, the module's is %s"):format(name, shape_text(given), shape_text(t))
        end
    end
    local names = check.sorted_keys(own)
    for _, name in ipairs(unknown) do
        problems[#problems + 1] = ("'%s' is unexpected%s"):format(name, check.suggest(name, names))
    end
    return problems
end

---Copies the tensors of a state dict into the parameters and buffers. Names and shapes must agree; nothing is changed
---when they don't.
---@param state table<string, any>
function Module:load_state_dict(state)
    if type(state) ~= "table" then check.fail("load_state_dict: takes a table, got %s", type(state)) end
    local own = collect(self, {parameter = true, buffer = true}, true)
    local problems = state_problems(own, state)
    if #problems > 0 then
        check.fail("load_state_dict: %s: %s", getmetatable(self).__name, table.concat(problems, "; "))
    end
    local _ <close> = flow.no_grad()
    for name, t in own do
        local given = state[name]
        if given.device ~= t.device and not t.is_global then given = given:to(t.device) end
        if t.is_global and not given.is_global then
            local whole = {}
            for i = 1, #t.placement.hierarchy do whole[i] = "B" end
            given = given:to_global{placement = t.placement, sbp = whole}
        end
        t:copy_(given)
    end
    return self
end

-- ---- printing ----

---What a module says of itself between the parentheses of its line; own modules may overwrite it.
---@return string
function Module:extra() return "" end  -- luacheck: ignore self

---The tree as text, as PyTorch prints it.
---@return string
function Module:describe()
    local lines = {}
    for name, child in own_children(self) do
        lines[#lines + 1] = "  (" .. name .. "): " .. child:describe():gsub("\n", "\n  ")
    end
    local head = getmetatable(self).__name .. "(" .. self:extra()
    return #lines == 0 and head .. ")" or head .. "\n" .. table.concat(lines, "\n") .. "\n)"
end

-- ---- initialisers ----

local init = {}
nn.init = init

-- Fans of a weight: inputs and outputs of one unit.
local function fans(t)
    if t:dim() < 2 then check.fail("init: fans need a weight of two axes or more, got %s", shape_text(t)) end
    local field = t:numel() // (t:size(0) * t:size(1))
    return t:size(1) * field, t:size(0) * field
end

function init.constant(t, value)
    local _ <close> = flow.no_grad()
    return t:fill_(value)
end

function init.zeros(t) return init.constant(t, 0) end
function init.ones(t) return init.constant(t, 1) end

---Evenly from [low, high).
function init.uniform(t, low, high)
    local _ <close> = flow.no_grad()
    return t:uniform_(low or 0, high or 1)
end

function init.normal(t, mean, std)
    local _ <close> = flow.no_grad()
    return t:normal_(mean or 0, std or 1)
end

---Gain of the layer before a nonlinearity, as PyTorch's calculate_gain.
function init.gain(nonlinearity, slope)
    if nonlinearity == "relu" then return math.sqrt(2) end
    if nonlinearity == "tanh" then return 5 / 3 end
    if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (slope or 0.01) ^ 2)) end
    return 1
end

function init.kaiming_uniform(t, gain)
    local bound = (gain or math.sqrt(2)) * math.sqrt(3 / fans(t))
    return init.uniform(t, -bound, bound)
end

function init.kaiming_normal(t, gain)
    return init.normal(t, 0, (gain or math.sqrt(2)) / math.sqrt((fans(t))))
end

function init.xavier_uniform(t, gain)
    local fan_in, fan_out = fans(t)
    local bound = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
    return init.uniform(t, -bound, bound)
end

function init.xavier_normal(t, gain)
    local fan_in, fan_out = fans(t)
    return init.normal(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)))
end

-- ---- layers ----

---y = x W^T + b
---@class flow.nn.Linear: flow.nn.Module
local Linear = Module:extend("Linear")
nn.Linear = Linear

---@param inputs integer
---@param outputs integer
---@param opts {bias: boolean}?
function Linear:init(inputs, outputs, opts)
    self.inputs = check.integer("Linear", "the number of inputs", inputs, 1)
    self.outputs = check.integer("Linear", "the number of outputs", outputs, 1)
    local bound = 1 / math.sqrt(inputs)
    self.weight = nn.Parameter(init.uniform(flow.empty(outputs, inputs), -bound, bound))
    self.bias = nil
    if check.options("Linear", opts, {bias = true}).bias then
        self.bias = nn.Parameter(init.uniform(flow.empty(outputs), -bound, bound))
    end
end

function Linear:forward(x)
    return op.linear(x, self.weight, self.bias)
end

function Linear:extra()
    return ("in=%d, out=%d, bias=%s"):format(self.inputs, self.outputs, self.bias ~= nil)
end

---Row x of a table for every whole number x.
---@class flow.nn.Embedding: flow.nn.Module
local Embedding = Module:extend("Embedding")
nn.Embedding = Embedding

---@param count integer
---@param width integer
function Embedding:init(count, width)
    check.integer("Embedding", "the number of rows", count, 1)
    check.integer("Embedding", "the width", width, 1)
    self.weight = nn.Parameter(flow.randn(count, width))
end

function Embedding:forward(x)
    return flow.embedding(x, self.weight)
end

function Embedding:extra()
    return ("%d, %d"):format(self.weight:size(0), self.weight:size(1))
end

---@class flow.nn.LayerNorm: flow.nn.Module
local LayerNorm = Module:extend("LayerNorm")
nn.LayerNorm = LayerNorm

---@param sizes integer|integer[] the last sizes of the input
---@param opts {eps: number, affine: boolean, bias: boolean}?
function LayerNorm:init(sizes, opts)
    local o = check.options("LayerNorm", opts, {eps = 1e-5, affine = true, bias = true})
    self.sizes = type(sizes) == "table" and sizes or {sizes}
    if #self.sizes == 0 then check.fail("LayerNorm: needs the last sizes of its input") end
    for _, size in ipairs(self.sizes) do check.integer("LayerNorm", "a size", size, 1) end
    self.eps = check.number("LayerNorm", "eps", o.eps, 0, math.huge)
    self.weight = nil
    self.bias = nil
    if o.affine then self.weight = nn.Parameter(flow.ones(self.sizes)) end
    if o.affine and o.bias then self.bias = nn.Parameter(flow.zeros(self.sizes)) end
end

function LayerNorm:forward(x)
    return flow.layer_norm(x, self.sizes, self.weight, self.bias, self.eps)
end

function LayerNorm:extra()
    return ("[%s], eps=%g"):format(table.concat(self.sizes, ", "), self.eps)
end

---Zeroes each element with probability p while training and scales the others.
---@class flow.nn.Dropout: flow.nn.Module
local Dropout = Module:extend("Dropout")
nn.Dropout = Dropout

---@param p number? default 0.5
function Dropout:init(p)
    self.p = check.number("Dropout", "p", p or 0.5, 0, 1)
end

function Dropout:forward(x)
    if not self.training or self.p == 0 then return x end
    return flow.dropout(x, self.p)
end

function Dropout:extra()
    return ("p=%g"):format(self.p)
end

-- Modules that are one op.
local function activation(name, forward)
    local class = Module:extend(name)
    function class:forward(x) return forward(x) end  -- luacheck: ignore self
    nn[name] = class
end
activation("ReLU", flow.relu)
activation("SiLU", flow.silu)
activation("Tanh", flow.tanh)
activation("Sigmoid", flow.sigmoid)
activation("Identity", function(x) return x end)

---@class flow.nn.GELU: flow.nn.Module
local GELU = Module:extend("GELU")
nn.GELU = GELU

---@param opts {approximate: "none"|"tanh"}?
function GELU:init(opts)
    self.approximate = check.options("GELU", opts, {approximate = "none"}).approximate
end

function GELU:forward(x)
    return flow.gelu(x, self.approximate)
end

function GELU:extra()
    return self.approximate == "none" and "" or "approximate=" .. self.approximate
end

---@class flow.nn.Softmax: flow.nn.Module
local Softmax = Module:extend("Softmax")
nn.Softmax = Softmax

---@param axis integer? default -1
function Softmax:init(axis)
    self.axis = axis or -1
end

function Softmax:forward(x)
    return flow.softmax(x, self.axis)
end

function Softmax:extra()
    return "axis=" .. self.axis
end

---Merges all axes from the second one on.
---@class flow.nn.Flatten: flow.nn.Module
local Flatten = Module:extend("Flatten")
nn.Flatten = Flatten

function Flatten:forward(x)  -- luacheck: ignore self
    return x:flatten(1)
end

-- ---- containers ----

---A list of modules: list[1] .. list[#list].
---@class flow.nn.ModuleList: flow.nn.Module
local ModuleList = Module:extend("ModuleList")
nn.ModuleList = ModuleList

---@param modules flow.nn.Module[]?
function ModuleList:init(modules)
    for _, module in ipairs(modules or {}) do self:append(module) end
end

function ModuleList:append(module)
    if not nn.is_module(module) then
        check.fail("%s: item %d must be a module, got %s", getmetatable(self).__name, #self + 1, type(module))
    end
    self[#self + 1] = module
    return self
end

---Modules one after the other: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).
---@class flow.nn.Sequential: flow.nn.ModuleList
local Sequential = ModuleList:extend("Sequential")
nn.Sequential = Sequential

function Sequential:init(...)
    for i = 1, select("#", ...) do self:append((select(i, ...))) end
end

function Sequential:forward(x)
    local modules = self[FIELDS]
    for i = 1, #modules do x = modules[i](x) end
    return x
end

-- ---- attention ----

---Self-attention in which each position sees itself and those before it. The rows of the joint projection are ordered
---by head first, so that splitting them over ranks splits heads.
---@class flow.nn.CausalSelfAttention: flow.nn.Module
local CausalSelfAttention = Module:extend("CausalSelfAttention")
nn.CausalSelfAttention = CausalSelfAttention

---@param width integer
---@param heads integer
---@param opts {dropout: number, bias: boolean}?
function CausalSelfAttention:init(width, heads, opts)
    local o = check.options("CausalSelfAttention", opts, {dropout = 0, bias = true})
    check.integer("CausalSelfAttention", "the width", width, 1)
    self.heads = check.integer("CausalSelfAttention", "the number of heads", heads, 1)
    if width % heads ~= 0 then check.fail("CausalSelfAttention: width %d is no multiple of %d heads", width, heads) end
    self.dropout = check.number("CausalSelfAttention", "dropout", o.dropout, 0, 1)
    self.qkv = Linear(width, 3 * width, {bias = o.bias})
    self.projection = Linear(width, width, {bias = o.bias})
end

function CausalSelfAttention:forward(x)     -- x [batch, time, width]
    local batch, time, width = x:size(0), x:size(1), x:size(2)
    local qkv = self.qkv(x):view(batch, time, self.heads, 3, width // self.heads):permute(3, 0, 2, 1, 4)
    local y = flow.scaled_dot_product_attention(qkv:select(0, 0), qkv:select(0, 1), qkv:select(0, 2), {
        is_causal = true, dropout = self.training and self.dropout or 0,
    })                                      -- y [batch, heads, time, width / heads]
    return self.projection(y:transpose(1, 2):reshape(batch, time, width))
end

function CausalSelfAttention:extra()
    return ("heads=%d, dropout=%g"):format(self.heads, self.dropout)
end

-- ---- losses ----

---@class flow.nn.CrossEntropyLoss: flow.nn.Module
local CrossEntropyLoss = Module:extend("CrossEntropyLoss")
nn.CrossEntropyLoss = CrossEntropyLoss

---@param opts {weight: any, reduction: string, ignore_index: integer, label_smoothing: number}?
function CrossEntropyLoss:init(opts)
    self.options = check.options("CrossEntropyLoss", opts, {
        weight = check.none, reduction = "mean", ignore_index = -100, label_smoothing = 0,
    })
end

function CrossEntropyLoss:forward(input, target)
    return flow.cross_entropy(input, target, self.options)
end

---@class flow.nn.MSELoss: flow.nn.Module
local MSELoss = Module:extend("MSELoss")
nn.MSELoss = MSELoss

---@param opts {reduction: string}?
function MSELoss:init(opts)
    self.options = check.options("MSELoss", opts, {reduction = "mean"})
end

function MSELoss:forward(input, target)
    return flow.mse_loss(input, target, self.options)
end

return nn
