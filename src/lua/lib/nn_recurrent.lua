-- nn_recurrent.lua -- recurrent layers of flow.nn: LSTM, GRU and RNN over sequences, and their cells for single steps.
--
-- The products of all inputs of a layer are one product; the op `recurrent` takes the steps.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"
local module = require "flow.module"

local Module, signatures, op = module.Module, module.signatures, flow._op
local class_name = require "flow.module_class".class_name
local GATES = {lstm = 4, gru = 3, rnn_tanh = 1, rnn_relu = 1}

-- nn.utils.rnn, where packed sequences are used.
local function packing() return require "flow.nn_rnn_utils" end

-- A parameter of these sizes, uniform within 1 / sqrt(hidden_size).
local function uniform(hidden, ...)
    local bound = hidden > 0 and 1 / math.sqrt(hidden) or 0
    return module.Parameter(init.uniform(flow.empty(...), -bound, bound))
end

-- The biases of inputs and states add up; in a GRU that of the new gate's state is inside the gate. Gives the bias of
-- the inputs' product, and what is left.
local function joined_bias(kind, inputs, states)
    if not inputs then return nil, nil end
    if kind ~= "gru" then return inputs + states, nil end
    local width = inputs:size(0) // 3
    local both = inputs:narrow(0, 0, 2 * width) + states:narrow(0, 0, 2 * width)
    return flow.cat({both, inputs:narrow(0, 2 * width, width)}, 0), states:narrow(0, 2 * width, width)
end

-- ---- a layer in one direction ----

-- Steps of an LSTM whose state is projected before it is used again; x: the inputs' products.
local function projected(x, layer, h, c, lengths, reverse)
    local steps, outputs = x:size(0), {}
    for count = 1, steps do
        local step = reverse and steps - count or count - 1
        local gates = x:select(0, step)
        if h then gates = gates + op.linear(h, layer.w_hh) end
        local i, f, g, o = gates:chunk(4, 1)
        local new_c = i:sigmoid() * g:tanh()
        if c then new_c = new_c + f:sigmoid() * c end
        local new_h = op.linear(o:sigmoid() * new_c:tanh(), layer.w_hr)
        if lengths then
            local runs = lengths:gt(step):unsqueeze(1)
            new_c = flow.where(runs, new_c, c or 0)
            new_h = flow.where(runs, new_h, h or 0)
        end
        h, c, outputs[step + 1] = new_h, new_c, new_h
    end
    return flow.stack(outputs, 0), h, c
end

-- y [steps, batch, ...], and the last h and c.
local function run_direction(kind, x, layer, h, c, lengths, reverse)
    local bias, inner = joined_bias(kind, layer.b_ih, layer.b_hh)
    local products = op.linear(x, layer.w_ih, bias)
    if layer.w_hr then return projected(products, layer, h, c, lengths, reverse) end
    local y, cells = op.recurrent(products, layer.w_hh, inner, h, c, lengths, kind, reverse)
    local last = reverse and 0 or x:size(0) - 1
    return y, y:select(0, last), kind == "lstm" and cells:select(0, last) or nil
end

-- ---- sequences ----

---The base of LSTM, GRU and RNN: their weights, named as in PyTorch, and the walk over layers and directions.
---@class flow.nn.RNNBase: flow.nn.Module
local RNNBase = Module:extend("RNNBase")

local OPTIONS = "bias: boolean = true, batch_first: boolean = false, dropout: number 0..1 = 0, " ..
    "bidirectional: boolean = false"

-- Parameters of all layers and directions, under the names of PyTorch: weight_ih_l0, weight_hh_l0_reverse. A layer
-- above the first has the outputs of all directions as its inputs.
local function set_up(self, kind, input_size, hidden_size, num_layers, opts)
    local proj = opts.proj_size or 0
    if proj >= hidden_size then
        check.fail("%s: proj_size must be smaller than hidden_size %d, got %d", class_name(self), hidden_size, proj)
    end
    self.kind, self.input_size, self.hidden_size, self.num_layers = kind, input_size, hidden_size, num_layers
    self.bias, self.batch_first, self.dropout = opts.bias, opts.batch_first, opts.dropout
    self.bidirectional, self.proj_size = opts.bidirectional, proj
    local directions, rows = opts.bidirectional and 2 or 1, GATES[kind] * hidden_size
    local out = proj > 0 and proj or hidden_size
    for layer = 0, num_layers - 1 do
        for direction = 1, directions do
            local suffix = ("_l%d%s"):format(layer, direction == 2 and "_reverse" or "")
            self["weight_ih" .. suffix] = uniform(hidden_size, rows, layer == 0 and input_size or out * directions)
            self["weight_hh" .. suffix] = uniform(hidden_size, rows, out)
            if opts.bias then
                self["bias_ih" .. suffix] = uniform(hidden_size, rows)
                self["bias_hh" .. suffix] = uniform(hidden_size, rows)
            end
            if proj > 0 then self["weight_hr" .. suffix] = uniform(hidden_size, proj, hidden_size) end
        end
    end
end

function RNNBase:init(mode, input_size, hidden_size, num_layers, opts)
    set_up(self, mode:lower(), input_size, hidden_size, num_layers, opts)
end

local function weights_of(self, layer, direction)
    local suffix = ("_l%d%s"):format(layer, direction == 2 and "_reverse" or "")
    return {
        w_ih = self["weight_ih" .. suffix], w_hh = self["weight_hh" .. suffix],
        b_ih = self.bias and self["bias_ih" .. suffix] or nil, b_hh = self.bias and self["bias_hh" .. suffix] or nil,
        w_hr = self.proj_size > 0 and self["weight_hr" .. suffix] or nil,
    }
end

-- x [steps, batch, features]; h, c: initial states [layers * directions, batch, ...], or nil.
local function run_layers(self, x, h, c, lengths)
    local directions, last_h, last_c = self.bidirectional and 2 or 1, {}, {}
    for layer = 0, self.num_layers - 1 do
        local outputs = {}
        for direction = 1, directions do
            local at = layer * directions + direction - 1
            local weights = weights_of(self, layer, direction)
            outputs[direction], last_h[at + 1], last_c[at + 1] = run_direction(self.kind, x, weights,
                h and h:select(0, at), c and c:select(0, at), lengths, direction == 2)
        end
        x = directions == 2 and flow.cat(outputs, 2) or outputs[1]
        if self.dropout > 0 and self.training and layer < self.num_layers - 1 then x = flow.dropout(x, self.dropout) end
    end
    return x, flow.stack(last_h, 0), #last_c > 0 and flow.stack(last_c, 0) or nil
end

-- The initial states of a call, with a batch axis: h and c, or nil.
local function initial(self, hx, batch, unbatched)
    local name, lstm = class_name(self), self.kind == "lstm"
    local h, c = hx, nil
    if hx == nil then return nil, nil end
    if lstm then
        if type(hx) ~= "table" or #hx ~= 2 then check.fail("%s: hx must be {h0, c0}, got %s", name, check.got(hx)) end
        h, c = hx[1], hx[2]
    end
    local rows = self.num_layers * (self.bidirectional and 2 or 1)
    local function prepared(state, what, width)
        check.tensor(name, what, state)
        if unbatched and state.ndim == 2 then state = state:unsqueeze(1) end
        if state.ndim ~= 3 or state:size(0) ~= rows or state:size(1) ~= batch or state:size(2) ~= width then
            check.fail("%s: %s must be [%d, %s%d], got %s", name, what, rows, unbatched and "" or batch .. ", ", width,
                check.shape(state))
        end
        return state
    end
    h = prepared(h, "h0", self.proj_size > 0 and self.proj_size or self.hidden_size)
    return h, c and prepared(c, "c0", self.hidden_size)
end

-- States as a call gives them.
local function states(self, h, c, unbatched, unsorted)
    if unsorted then
        h, c = h:index_select(1, unsorted), c and c:index_select(1, unsorted)
    elseif unbatched then
        h, c = h:squeeze(1), c and c:squeeze(1)
    end
    if self.kind == "lstm" then return {h, c} end
    return h
end

-- Of a packed sequence: its rows are sorted by length, its states come and go in the order of the caller.
local function forward_packed(self, packed, hx)
    local x, lengths = packing()._unpacked(packed)
    local h, c = initial(self, hx, x:size(1), false)
    local order = packed.sorted_indices
    if order then h, c = h and h:index_select(1, order), c and c:index_select(1, order) end
    local y
    y, h, c = run_layers(self, x, h, c, lengths)
    return packing()._packed_like(packed, y), states(self, h, c, false, packed.unsorted_indices)
end

---The outputs of the last layer, and the last states of all layers (of an LSTM {h, c}).
---@param x any [steps, batch, features], with batch_first [batch, steps, features]; [steps, features]; or packed
---@param hx any? initial states [layers * directions, batch, hidden], of an LSTM {h0, c0}
function RNNBase:forward(x, hx)
    local name = class_name(self)
    if not check.is_tensor(x) then
        if packing().is_packed(x) then return forward_packed(self, x, hx) end
        check.fail("%s: x must be a tensor or a packed sequence, got %s", name, check.got(x))
    end
    local unbatched = x.ndim == 2
    if x.ndim ~= 2 and x.ndim ~= 3 or x:size(-1) ~= self.input_size then
        local order = self.batch_first and "batch, steps" or "steps, batch"
        check.fail("%s: x must be [%s, %d] or [steps, %d], got %s", name, order, self.input_size, self.input_size,
            check.shape(x))
    end
    if unbatched then
        x = x:unsqueeze(1)
    elseif self.batch_first then
        x = x:transpose(0, 1)
    end
    if x:size(0) == 0 then check.fail("%s: takes sequences of at least one step, got %s", name, check.shape(x)) end
    local h, c = initial(self, hx, x:size(1), unbatched)
    local y
    y, h, c = run_layers(self, x, h, c)
    if unbatched then
        y = y:squeeze(1)
    elseif self.batch_first then
        y = y:transpose(0, 1)
    end
    return y, states(self, h, c, unbatched)
end

function RNNBase:extra()
    local text = ("%d, %d"):format(self.input_size, self.hidden_size)
    if self.proj_size > 0 then text = text .. ", proj_size=" .. self.proj_size end
    if self.num_layers ~= 1 then text = text .. ", num_layers=" .. self.num_layers end
    if not self.bias then text = text .. ", bias=false" end
    if self.batch_first then text = text .. ", batch_first=true" end
    if self.dropout ~= 0 then text = text .. (", dropout=%g"):format(self.dropout) end
    return self.bidirectional and text .. ", bidirectional=true" or text
end

signatures(RNNBase, "RNNBase(mode: LSTM|GRU|RNN_TANH|RNN_RELU, input_size: integer >= 1, hidden_size: integer >= 1, " ..
    "num_layers: integer 1..4096 = 1, {" .. OPTIONS .. ", proj_size: integer >= 0 = 0})", "forward(x: any, hx: any?)")

---Long short-term memory.
---@class flow.nn.LSTM: flow.nn.RNNBase
local LSTM = RNNBase:extend("LSTM")

---@param input_size integer
---@param hidden_size integer
---@param num_layers integer? default 1
---@param opts {bias: boolean, batch_first: boolean, dropout: number, bidirectional: boolean, proj_size: integer}?
function LSTM:init(input_size, hidden_size, num_layers, opts)
    set_up(self, "lstm", input_size, hidden_size, num_layers, opts)
end

local SIZES = "input_size: integer >= 1, hidden_size: integer >= 1, num_layers: integer 1..4096 = 1, "
signatures(LSTM, "LSTM(" .. SIZES .. "{" .. OPTIONS .. ", proj_size: integer >= 0 = 0})")

---Gated recurrent units.
---@class flow.nn.GRU: flow.nn.RNNBase
local GRU = RNNBase:extend("GRU")

---@param input_size integer
---@param hidden_size integer
---@param num_layers integer? default 1
---@param opts {bias: boolean, batch_first: boolean, dropout: number, bidirectional: boolean}?
function GRU:init(input_size, hidden_size, num_layers, opts)
    set_up(self, "gru", input_size, hidden_size, num_layers, opts)
end

signatures(GRU, "GRU(" .. SIZES .. "{" .. OPTIONS .. "})")

---Elman's recurrent network: tanh or relu of the products of the input and the state before.
---@class flow.nn.RNN: flow.nn.RNNBase
local RNN = RNNBase:extend("RNN")

---@param input_size integer
---@param hidden_size integer
---@param num_layers integer? default 1
---@param nonlinearity "tanh"|"relu"|nil
---@param opts {bias: boolean, batch_first: boolean, dropout: number, bidirectional: boolean}?
function RNN:init(input_size, hidden_size, num_layers, nonlinearity, opts)
    set_up(self, "rnn_" .. nonlinearity, input_size, hidden_size, num_layers, opts)
end

signatures(RNN, "RNN(" .. SIZES .. "nonlinearity: tanh|relu = tanh, {" .. OPTIONS .. "})")

function RNN:extra()
    local text = RNNBase.extra(self)
    return self.kind == "rnn_relu" and text .. ", nonlinearity=relu" or text
end

-- ---- single steps ----

-- A state of the cell `name` as one of the batch, [batch, hidden]. x: [1, batch, input].
local function batch_state(name, value, what, x, hidden_size)
    if value == nil then return nil end
    check.tensor(name, what, value)
    if value.ndim ~= 2 or value:size(0) ~= x:size(1) or value:size(1) ~= hidden_size then
        check.fail("%s: %s must be [%d, %d], got %s", name, what, x:size(1), hidden_size, check.shape(value))
    end
    return value
end

-- h and c of what forward gets as hx: {h, c} of an LSTM, h of others; nil: none.
local function states_of(name, kind, hx)
    if kind ~= "lstm" or hx == nil then return hx end
    if type(hx) ~= "table" or #hx ~= 2 then check.fail("%s: hx must be {h, c}, got %s", name, check.got(hx)) end
    return hx[1], hx[2]
end

-- forward of the cell `name`: one step of a batch x [batch, input], or of a single x [input].
local function step(self, name, kind, x, hx)
    if x.ndim ~= 1 and x.ndim ~= 2 or x:size(-1) ~= self.input_size then
        check.fail("%s: x must be [batch, %d] or [%d], got %s", name, self.input_size, self.input_size, check.shape(x))
    end
    local single = x.ndim == 1
    local h, c = states_of(name, kind, hx)
    x = single and x:view(1, 1, self.input_size) or x:unsqueeze(0)
    if single then h, c = h and h:unsqueeze(0), c and c:unsqueeze(0) end
    h, c = batch_state(name, h, "h", x, self.hidden_size), batch_state(name, c, "c", x, self.hidden_size)
    local weights = {w_ih = self.weight_ih, w_hh = self.weight_hh, b_ih = self.bias_ih, b_hh = self.bias_hh}
    local _
    _, h, c = run_direction(kind, x, weights, h, c)
    if single then h, c = h:squeeze(0), c and c:squeeze(0) end
    if kind == "lstm" then return h, c end
    return h
end

-- A class of cells; kind_of(cell) names the kind for the op. usage: parameters of init beside those all have;
-- extra(cell, text): the addition to their printed form.
local function cell_class(name, kind_of, usage, extra)
    local class = Module:extend(name)

    function class:init(input_size, hidden_size, bias, nonlinearity)
        self.input_size, self.hidden_size, self.bias, self.nonlinearity = input_size, hidden_size, bias, nonlinearity
        local rows = GATES[kind_of(self)] * hidden_size
        self.weight_ih = uniform(hidden_size, rows, input_size)
        self.weight_hh = uniform(hidden_size, rows, hidden_size)
        self.bias_ih = bias and uniform(hidden_size, rows) or nil
        self.bias_hh = bias and uniform(hidden_size, rows) or nil
    end

    function class:forward(x, hx) return step(self, name, kind_of(self), x, hx) end

    function class:extra()
        local text = ("%d, %d"):format(self.input_size, self.hidden_size)
        if not self.bias then text = text .. ", bias=false" end
        return extra and extra(self, text) or text
    end

    signatures(class, name .. "(input_size: integer >= 1, hidden_size: integer >= 1, bias: boolean = true" .. usage ..
        ")", "forward(x: tensor, hx: any?)")
    return class
end

return {
    RNNBase = RNNBase, LSTM = LSTM, GRU = GRU, RNN = RNN,
    LSTMCell = cell_class("LSTMCell", function() return "lstm" end, ""),
    GRUCell = cell_class("GRUCell", function() return "gru" end, ""),
    RNNCell = cell_class("RNNCell", function(cell) return "rnn_" .. cell.nonlinearity end,
        ", nonlinearity: tanh|relu = tanh", function(cell, text)
            return cell.nonlinearity == "relu" and text .. ", nonlinearity=relu" or text
        end),
}
