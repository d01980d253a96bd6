-- grad_scaler.lua -- flow.GradScaler: a factor on the loss that keeps gradients of float16 in its range.
--
-- Gradients are divided by the factor before the step. A step whose gradients are infinite or NaN anywhere, on any
-- rank, is left out and the factor backs off; after enough steps without one it grows. The factor is also a tensor
-- beside the loss, so a captured function multiplies by what it is now.

local flow = require "flow"
local check = require "flow.check"
local nested = require "flow.nested"
local groups = require "flow.optim_groups"
local totals = require "flow.optim_totals"
require "flow.optim_base"    -- the type of optimizers

local op = flow._op

---@class flow.GradScaler
local GradScaler = {__name = "GradScaler"}
GradScaler.__index = GradScaler

-- The factor as a tensor like the loss.
local function factor_like(self, loss)
    local key = groups.place_of(loss)
    local t = self._tensors[key]
    if not t then
        local o = {dtype = "float32", device = not loss.is_global and loss.device or nil}
        if loss.is_global then
            o.placement, o.sbp = loss.placement, {}
            for i = 1, #loss.placement.hierarchy do o.sbp[i] = "B" end
        end
        local _ <close> = flow.no_grad()
        t = flow.full({}, self._scale, o)
        self._tensors[key] = t
    end
    return t
end

local function scaled(self, loss, level)
    if check.is_tensor(loss) then return loss * factor_like(self, loss) end
    if not check.is("list", loss) then
        check.fail("scale: loss must be a tensor or a list of tensors, the list has a %s", check.type(loss))
    end
    local result, next_level = {}, nested.deeper(level)
    for i, one in ipairs(loss) do result[i] = scaled(self, one, next_level) end
    return result
end

---The loss (a tensor, or a list of them) times the factor.
---@param loss any
function GradScaler:scale(loss)
    return self._enabled and scaled(self, loss, 0) or loss
end

-- Gradients of an optimizer's parameters.
local function gradients_of(opt)
    local list = {}
    for _, group in ipairs(opt.groups) do
        for _, p in ipairs(group.params) do list[#list + 1] = p.grad and p.grad:detach() end
    end
    return list
end

---Divides the gradients of an optimizer's parameters by the factor: before they are clipped, for example.
---@param opt flow.optim.Optimizer
function GradScaler:unscale_(opt)
    if not self._enabled then return end
    if self._done[opt] then check.fail("unscale_: the gradients of this optimizer have been divided since update()") end
    local _ <close> = flow.no_grad()
    local grads = gradients_of(opt)
    if #grads == 0 then
        check.fail("unscale_: no parameter of the optimizer has a gradient; call backward before")
    end
    local lists = totals.alike(grads)
    local total = totals.sum(lists, op.grad_nonfinite)
    if total.is_global then total = totals.whole(total, flow.placement.all(total.placement.type)) end
    for _, list in ipairs(lists) do op.scale_step(list, {factor = 1 / self._scale}) end
    self._done[opt] = {found = total:item() > 0}
end

---The optimizer's step, unless gradients are infinite or NaN. Returns what it returns, or nil.
---@param opt flow.optim.Optimizer
function GradScaler:step(opt)
    if not self._enabled then return opt:step() end
    if self._done[opt] and self._done[opt].stepped then check.fail("step: call update() after each step") end
    if not self._done[opt] then self:unscale_(opt) end
    local done = self._done[opt]
    done.stepped = true
    if not done.found then return opt:step() end
end

---Sets the factor for the next step: lower if a step was left out, higher after growth_interval steps without one.
---@param new_scale number? the factor, in place of that
function GradScaler:update(new_scale)
    if not self._enabled then return end
    local found, any = false, new_scale ~= nil
    for _, done in pairs(self._done) do found, any = found or done.found, true end
    if not any then check.fail("update: no gradients were looked at since the last one; call step before") end
    if new_scale then self._scale = new_scale
    elseif found then self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
    else
        self._growth_tracker = self._growth_tracker + 1
        if self._growth_tracker == self._growth_interval then
            local grown = self._scale * self._growth_factor
            if grown < 3.4e38 then self._scale = grown end
            self._growth_tracker = 0
        end
    end
    self._done = setmetatable({}, {__mode = "k"})
    local _ <close> = flow.no_grad()
    for _, t in pairs(self._tensors) do t:fill_(self._scale) end
end

---@return number
function GradScaler:get_scale() return self._enabled and self._scale or 1.0 end

---@return boolean
function GradScaler:is_enabled() return self._enabled end

local saved = {
    scale = "_scale", growth_factor = "_growth_factor", backoff_factor = "_backoff_factor",
    growth_interval = "_growth_interval", growth_tracker = "_growth_tracker",
}

---A table for flow.save.
function GradScaler:state_dict()
    local result = {}
    for key, field in pairs(self._enabled and saved or {}) do result[key] = self[field] end
    return result
end

---@param state table
function GradScaler:load_state_dict(state)
    if not self._enabled then return end
    for _, key in ipairs(check.sorted_keys(saved)) do
        if type(state[key]) ~= "number" then
            check.fail("GradScaler:load_state_dict: %s must be a number, got %s", key, check.got(state[key]))
        end
    end
    for key, field in pairs(saved) do self[field] = state[key] end
    local _ <close> = flow.no_grad()
    for _, t in pairs(self._tensors) do t:fill_(self._scale) end
end

function GradScaler:__tostring()
    return ("GradScaler(scale=%g, enabled=%s)"):format(self:get_scale(), self._enabled)
end

check.methods(GradScaler, "scaler", {
    "scale(loss: tensor or list)", "unscale_(optimizer: optimizer)", "step(optimizer: optimizer)",
    "update(new_scale: number >= 0?)", "get_scale()", "is_enabled()", "state_dict()", "load_state_dict(state: state)",
})
check.strict("GradScaler", GradScaler)

local M = {}

---Scales losses so that gradients of float16 neither vanish nor overflow: scaler:scale(loss):backward(),
---scaler:step(opt), scaler:update().
---@param opts table?
function M.GradScaler(opts)
    return setmetatable({
        _scale = opts.init_scale, _growth_factor = opts.growth_factor, _backoff_factor = opts.backoff_factor,
        _growth_interval = opts.growth_interval, _enabled = opts.enabled, _growth_tracker = 0, _tensors = {},
        _done = setmetatable({}, {__mode = "k"}),
    }, GradScaler)
end

check.takes(M, {
    [[GradScaler({init_scale: number >= 0 = 65536.0, growth_factor: number >= 1 = 2.0,
        backoff_factor: number 0..1 = 0.5, growth_interval: integer >= 1 = 2000, enabled: boolean = true})]],
})
return M
