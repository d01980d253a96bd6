-- optim_average.lua -- flow.optim.AveragedModel: averages of a net's parameters over the steps of its training.
--
-- Averages are tensors beside the parameters, in their SBP. swap() exchanges their values, so the net itself is tried
-- with its averages; its buffers stay its own.

local flow = require "flow"
local check = require "flow.check"
local checkpoint = require "flow.checkpoint"
local composed = require "flow.optim_composed"
local groups = require "flow.optim_groups"
local nn_module = require "flow.module"

local program = flow._program

---@class flow.optim.AveragedModel
---@field module flow.nn.Module
---@field n_averaged integer updates so far
local Averaged = {__name = "AveragedModel"}
Averaged.__index = Averaged

-- What is kept of the averages in the next update.
local function keep(self)
    if self.n_averaged == 0 then return 0 end
    return self.decay or self.n_averaged / (self.n_averaged + 1)
end

---Call it after the optimizer's step. The first takes the parameters as they are.
function Averaged:update_parameters()
    local _ <close> = flow.no_grad()
    if self.swapped then check.fail("update_parameters: the net has its averages; call swap() before training on") end
    local set = {}
    for name, p in pairs(self.params) do
        local c = composed.scalars_of(self, p, groups.place_of(p), {keep = 0, rest = 0})
        if not set[c] then
            composed.set_number(c, "keep", keep(self), function() return keep(self) end)
            composed.set_number(c, "rest", 1 - keep(self), function() return 1 - keep(self) end)
            set[c] = true
        end
        self.averages[name]:mul_(c.keep):add_(p:detach() * c.rest)
    end
    local function count() self.n_averaged = self.n_averaged + 1 end
    count()
    program.again(count)
end

---Exchanges the net's parameters with their averages; called again, it brings them back.
function Averaged:swap()
    local _ <close> = flow.no_grad()
    if self.n_averaged == 0 then check.fail("swap: there are no averages before update_parameters()") end
    for name, p in pairs(self.params) do
        local mine = p:detach():clone()
        p:detach():copy_(self.averages[name])
        self.averages[name]:copy_(mine)
    end
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
    "update_parameters()", "swap()", "state_dict()", "load_state_dict(state: state)",
})
check.strict("AveragedModel", Averaged)

local M = {}

---Averages of a net's parameters: all updates alike (SWA), or with `decay` an exponential average (EMA).
---@param net flow.nn.Module
---@param opts {decay: number}?
function M.AveragedModel(net, opts)
    if not nn_module.is_module(net) then check.fail("AveragedModel: takes a module, got %s", check.got(net)) end
    local self = setmetatable({
        module = net, n_averaged = 0, decay = opts.decay or false, swapped = false, params = {}, averages = {},
    }, Averaged)
    local _ <close> = flow.no_grad()
    for name, p in net:named_parameters() do
        self.params[name], self.averages[name] = p, flow.zeros_like(p:detach())
    end
    return self
end

check.takes(M, {"AveragedModel(net: any, {decay: number 0..1?})"})
return M.AveragedModel
