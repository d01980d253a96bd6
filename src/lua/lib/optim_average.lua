-- optim_average.lua -- flow.optim.AveragedModel: averages of a net's parameters over the steps of its training.
--
-- Averages are tensors beside the parameters, in their SBP. swap() exchanges their values, so the net itself is tried
-- with its averages; its buffers stay its own, unless use_buffers has them averaged too. An update is one op: a descent
-- of the averages along their distance from the parameters, by a rate that a replay takes anew.

local flow = require "flow"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"
local groups = require "flow.optim_groups"
local nn_module = require "flow.module"

local op, program = flow._op, flow._program

---@class flow.optim.AveragedModel
---@field module flow.nn.Module
---@field n_averaged integer updates so far
local Averaged = {__name = "AveragedModel"}
Averaged.__index = Averaged

-- The step of the averages towards the parameters in the next update, from 0 to 1.
local function share(self)
    if self.n_averaged == 0 then return 1 end
    return self.decay and 1 - self.decay or 1 / (self.n_averaged + 1)
end

-- Averages and parameters as pairs of lists, one for each place.
local function lists_of(self)
    local lists, by_place = {}, {}
    for _, name in ipairs(self._order) do
        local p = self.params[name]
        local place = groups.place_of(p)
        if not by_place[place] then
            by_place[place] = {{}, {}}
            lists[#lists + 1] = by_place[place]
        end
        table.insert(by_place[place][1], self.averages[name])
        table.insert(by_place[place][2], p:detach())
    end
    return lists
end

-- By the function that the user has given.
local function update_by_function(self)
    if program.recording then
        check.fail("update_parameters: a captured function cannot call avg_fn with each count; use decay")
    end
    for _, pair in ipairs(lists_of(self)) do
        if self.n_averaged == 0 then
            for i, average in ipairs(pair[1]) do average:copy_(pair[2][i]) end
        elseif self.multi_avg_fn then self.multi_avg_fn(pair[1], pair[2], self.n_averaged)
        else
            for i, average in ipairs(pair[1]) do
                average:copy_(self.avg_fn(average, pair[2][i], self.n_averaged))
            end
        end
    end
end

---Call it after the optimizer's step. The first takes the parameters as they are.
---@param net flow.nn.Module? the one that is averaged, and no other
function Averaged:update_parameters(net)
    if net and not rawequal(net, self.module) then
        check.fail("update_parameters: net must be the module that was given to AveragedModel, got another %s",
            check.got(net))
    end
    local _ <close> = flow.no_grad()
    local function check_net()
        if self.swapped then
            check.fail("update_parameters: the net has its averages; call swap() before training on")
        end
    end
    check_net()
    program.again(check_net)
    if self.avg_fn or self.multi_avg_fn then update_by_function(self)
    else
        for _, pair in ipairs(lists_of(self)) do
            local all, count = pair[1], #pair[1]
            for i = 1, count do all[count + i] = all[i] - pair[2][i] end
            if program.recording then
                program.live(op.sgd_plain_step, all, {lr = share(self)}, function() return {lr = share(self)} end)
            else op.sgd_plain_step(all, {lr = share(self)}) end
        end
    end
    for name, t in pairs(self._copied) do self.averages[name]:copy_(t) end
    local function count() self.n_averaged = self.n_averaged + 1 end
    count()
    program.again(count)
end

-- ema(x), PyTorch's way to try the averages.
function Averaged.__call()
    check.fail("AveragedModel: it has no forward; swap() puts the averages into the net for net(x), and back again")
end

local function exchange(mine, theirs)
    local before = mine:clone()
    mine:copy_(theirs)
    theirs:copy_(before)
end

---Exchanges the net's parameters with their averages; called again, it brings them back.
function Averaged:swap()
    local _ <close> = flow.no_grad()
    if self.n_averaged == 0 then check.fail("swap: there are no averages before update_parameters()") end
    for name, p in pairs(self.params) do exchange(p:detach(), self.averages[name]) end
    for name, t in pairs(self._copied) do exchange(t, self.averages[name]) end
    local function turn() self.swapped = not self.swapped end
    turn()
    program.again(turn)
end

---A table for flow.save: the averages by the parameters' names, and their count.
---@return table
function Averaged:state_dict()
    if self.swapped then check.fail("state_dict: the net has its averages; call swap() before") end
    local averages = {}
    for name, t in pairs(self.averages) do averages[name] = t end
    return {n_averaged = self.n_averaged, averages = averages}
end

---@param state table
function Averaged:load_state_dict(state)
    local who, averages = "AveragedModel:load_state_dict", state.averages
    if type(averages) ~= "table" or math.type(state.n_averaged) ~= "integer" or state.n_averaged < 0 then
        check.fail("%s: takes a table from state_dict", who)
    end
    for _, name in ipairs(check.sorted_keys(self.averages)) do
        local t, mine = averages[name], self.averages[name]
        if t ~= nil and not checkpoint.is_stored(t) then check.tensor(who, name, t) end
        if t == nil or check.shape(t) ~= check.shape(mine) then
            check.fail("%s: %s must have shape %s, got %s", who, name, check.shape(mine),
                t == nil and "nil" or check.shape(t))
        end
    end
    local _ <close> = flow.no_grad()
    for name, mine in pairs(self.averages) do checkpoint.copy(mine, averages[name]) end
    self.n_averaged, self.swapped = state.n_averaged, false
end

check.methods(Averaged, "averaged", {
    "update_parameters(net: module?)", "swap()", "state_dict()", "load_state_dict(state: state)",
})
check.strict("AveragedModel", Averaged)

local M = {}

local function adopt(self, name, tensor)
    if tensor.dtype:find "float" then
        self.params[name] = tensor
        table.insert(self._order, name)
    else self._copied[name] = tensor end
    self.averages[name] = flow.zeros_like(tensor:detach())
end

---Averages of a net's parameters: all updates alike (SWA), with `decay` an exponential average (EMA), or by a function:
---avg_fn(average, parameter, count) gives the new average, multi_avg_fn(averages, parameters, count) writes them.
---@param net flow.nn.Module
---@param opts {decay: number, use_buffers: boolean, avg_fn: function, multi_avg_fn: function}?
function M.AveragedModel(net, opts)
    if not nn_module.is_module(net) then check.fail("AveragedModel: takes a module, got %s", check.got(net)) end
    if opts.avg_fn and opts.multi_avg_fn then check.fail("AveragedModel: give avg_fn or multi_avg_fn, not both") end
    local self = setmetatable({
        module = net, n_averaged = 0, decay = opts.decay or false, swapped = false, params = {}, averages = {},
        avg_fn = opts.avg_fn or false, multi_avg_fn = opts.multi_avg_fn or false, _copied = {}, _order = {},
    }, Averaged)
    local _ <close> = flow.no_grad()
    for name, p in net:named_parameters() do adopt(self, name, p) end
    if opts.use_buffers then
        for name, t in net:named_buffers() do adopt(self, name, t) end
    end
    return self
end

check.takes(M, {
    "AveragedModel(net: any, {decay: number 0..1?, use_buffers: boolean?, avg_fn: function?, multi_avg_fn: function?})",
})
return M.AveragedModel
