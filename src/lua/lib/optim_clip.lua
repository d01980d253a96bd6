-- optim_clip.lua -- flow.optim.clip_grad_norm: one norm over the gradients of all parameters, wherever they lie.

local flow = require "flow"
local check = require "flow.check"
local groups = require "flow.optim_groups"
local totals = require "flow.optim_totals"

local op = flow._op

---Scales the gradients so that the norm of all of them together is at most max_norm. Returns the norm before scaling, a
---0-d tensor, without waiting for it. Gradients may be split and on several placements: all ranks use one norm.
---@param params any[] a list of parameters, or one tensor
---@param max_norm number
return function(params, max_norm)
    local _ <close> = flow.no_grad()
    local list = groups.parameter_list("clip_grad_norm", check.is_tensor(params) and {params} or params)
    for i, p in ipairs(list) do
        if p.is_global ~= list[1].is_global then
            check.fail("clip_grad_norm: parameter 1 is %s and parameter %d is %s; all must be global or all local",
                p.is_global and "local" or "global", i, p.is_global and "global" or "local")
        end
    end
    local grads = {}
    for _, p in ipairs(list) do grads[#grads + 1] = p.grad end
    if #grads == 0 then return flow.zeros({}) end
    local norm = totals.norm(grads, 2)
    for _, scaled in ipairs(totals.lists_by(grads, groups.place_of)) do
        local count, here = #scaled, norm
        if norm.is_global and norm.placement ~= scaled[1].placement then
            here = totals.whole(norm, scaled[1].placement)
        end
        for i = 1, count do scaled[count + i] = here end
        op.clip_scale_(scaled, {max_norm = max_norm})
    end
    return norm
end
