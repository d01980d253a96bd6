-- optim_totals.lua -- numbers over gradients on any places: their norm, the number of elements that are not finite.
--
-- The parts of a split tensor give partial sums. These are added up before the ranks meet, so a total costs
-- one small all-reduce per placement, however many tensors there are and however they are split; none if all are
-- whole.

local flow = require "flow"
local groups = require "flow.optim_groups"

local op = flow._op

local M = {}

---The tensors in lists by what key(tensor) is, in order.
function M.lists_by(tensors, key)
    local lists, by_key = {}, {}
    for _, t in ipairs(tensors) do
        local k = key(t)
        if not by_key[k] then
            by_key[k] = {}
            lists[#lists + 1] = by_key[k]
        end
        table.insert(by_key[k], t)
    end
    return lists
end

local function layout_of(tensor)
    return tensor.is_global and ("%s %s"):format(tensor.placement, tensor.sbp) or tensor.device
end

---The tensors in lists of those that lie alike, which an op may take together.
function M.alike(tensors) return M.lists_by(tensors, layout_of) end

---A tensor whole on every rank of a placement; a local one as it is.
function M.whole(tensor, placement)
    if not tensor.is_global then return tensor end
    local sbp = {}
    for i = 1, #placement.hierarchy do sbp[i] = "B" end
    return tensor:to_global{placement = placement, sbp = sbp}
end

---The sum of what f gives of each list. Several placements meet on all ranks of the world; on one it may still be
---partial.
function M.sum(lists, f)
    local sums, by_place, total = {}, {}, nil
    for _, list in ipairs(lists) do
        local one, place = f(list), groups.place_of(list[1])
        if by_place[place] then sums[by_place[place]] = sums[by_place[place]] + one
        else
            sums[#sums + 1] = one
            by_place[place] = #sums
        end
    end
    if #sums == 1 then return sums[1] end
    for _, one in ipairs(sums) do
        if one.is_global then one = M.whole(one, flow.placement.all(one.placement.type)) end
        total = total and total + one or one
    end
    return total
end

---The p-norm of all tensors together, a 0-d tensor.
function M.norm(tensors, p)
    if p == 2 then return M.sum(M.alike(tensors), op.grad_norm_squares):sqrt() end
    local parts, is_root = {}, p ~= 0 and p ~= 1 and math.abs(p) ~= math.huge
    for i, t in ipairs(tensors) do
        if t.is_global and is_root then -- the root of a sum over all ranks
            parts[i] = (t.dtype:find "16" and t:to "float32" or t):abs():pow(p):sum()
        else
            parts[i] = t:norm(p)
        end
    end
    local all = flow.stack(parts)
    if not all.is_global then return all:norm(p) end
    all = M.whole(all, all.placement)
    return is_root and all:sum() ^ (1 / p) or all:norm(p)
end

return M
