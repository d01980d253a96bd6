-- optim_clip.lua -- flow.optim.clip_grad_norm: one norm over the gradients of all parameters, wherever they lie.

local flow = require "flow"
local check = require "flow.check"
local groups = require "flow.optim_groups"

local op = flow._op

-- The gradients there are, in lists by what key(gradient) is, in order.
local function gradients_by(params, key)
    local lists, by_key = {}, {}
    for _, p in ipairs(params) do
        local grad = p.grad
        if grad then
            local k = key(grad)
            if not by_key[k] then
                by_key[k] = {}
                lists[#lists + 1] = by_key[k]
            end
            table.insert(by_key[k], grad)
        end
    end
    return lists
end

local function layout_of(t)
    return t.is_global and ("%s %s"):format(t.placement, t.sbp) or t.device
end

local function on_ranks_of(norm, t)
    if not t.is_global or norm.placement == t.placement then return norm end
    local whole = {}
    for i = 1, #t.placement.hierarchy do whole[i] = "B" end
    return norm:to_global{placement = t.placement, sbp = whole}
end

-- The sum of the squares of all gradients. Squares of parts add up to P, so each placement costs one small all-reduce
-- (none when its gradients are whole on every rank); several placements meet on all ranks of the world.
local function sum_of_squares(lists)
    local sums, by_place = {}, {}
    for _, grads in ipairs(lists) do
        local squares, place = op.grad_norm_squares(grads), groups.place_of(grads[1])
        if by_place[place] then
            sums[by_place[place]] = sums[by_place[place]] + squares
        else
            sums[#sums + 1] = squares
            by_place[place] = #sums
        end
    end
    if #sums == 1 then return sums[1] end
    local everywhere, total = sums[1].is_global and flow.placement.all(sums[1].placement.type), nil
    for _, squares in ipairs(sums) do
        if everywhere then squares = squares:to_global{placement = everywhere, sbp = "B"} end
        total = total and total + squares or squares
    end
    return total
end

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
    local lists = gradients_by(list, layout_of)
    if #lists == 0 then return flow.zeros({}) end
    local norm = sum_of_squares(lists):sqrt()
    for _, grads in ipairs(gradients_by(list, groups.place_of)) do
        local count, here = #grads, on_ranks_of(norm, grads[1])
        for i = 1, count do grads[count + i] = here end
        op.clip_scale_(grads, {max_norm = max_norm})
    end
    return norm
end
