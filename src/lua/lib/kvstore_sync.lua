-- kvstore_sync.lua -- a store of all ranks, over global tensors.
--
-- A value lies in parts, S(0), one on each rank. A push is a reduce-scatter (P -> S(0)), each rank updates its part,
-- and a pull is an all-gather (S(0) -> B). A value of fewer rows than there are ranks is whole on each of them (B). So
-- the updater's tensors are global ones. All ranks make the same calls in the same order.

local flow = require "flow"
local check = require "flow.check"
local compress = require "flow.kvstore_compress"
local values = require "flow.kvstore_values"
local Store = require "flow.kvstore_store"

local sum_of = Store._sum_of

---@class flow.kvstore.Sync: flow.kvstore.Store
local Sync = setmetatable({}, {__index = Store})
Sync.__index, Sync.__tostring = Sync, Store.__tostring

local function everywhere(entry)
    return flow.placement.all(entry.device:match "^%a+")
end

-- The sum of what the ranks have, in the entry's SBP: nothing is waited for.
local function add_up(entry, mine)
    return mine:to_global{placement = everywhere(entry), sbp = "P", check = false}:to_global{sbp = entry.sbp}
end

function Sync._keep(self, value, entry)
    entry.rows = value:dim() > 0 and value:size(0) or 0
    entry.sbp = entry.rows >= self.num_workers and "S(0)" or "B"
    local mine = self.rank == 0 and value:detach() or flow.zeros_like(value:detach())
    return add_up(entry, mine):clone()
end

-- Fails unless all ranks make the same keys: each sends a description of its own.
function Sync._begin(_, list)
    if flow._plan.on then return end -- there are no others
    local size, own = values.DESCRIPTION, values.describe(list)
    local mine = flow.frombytes(own .. (" "):rep(size - #own), "uint8", {1, size})
    local placement = flow.placement.all "cpu"
    local all = mine:to_global{placement = placement, sbp = "S(0)"}:to_global{sbp = "B"}:to_local():tobytes()
    local first = all:sub(1, size)
    for i = 1, #all // size - 1 do
        local other = all:sub(i * size + 1, (i + 1) * size)
        if other ~= first then
            check.fail("init: rank 0 makes %s, rank %d makes %s", first:match "^(.-) *$", i, other:match "^(.-) *$")
        end
    end
end

-- The codes of every part go to its owner (S(0) -> S(1) is an all-to-all), who adds up what they stand for.
local function add_up_codes(self, entry, mine)
    local split = entry.sbp == "S(0)"
    local codes = compress.compress(entry, 1, mine, split and self.num_workers or 1, self.threshold)
    local all = flow.empty({self.num_workers, codes:numel()},
        {dtype = "int32", placement = everywhere(entry), sbp = "S(0)"})
    all:to_local():copy_(codes:view(1, -1))
    local here = all:to_global{sbp = split and "S(1)" or "B"}:to_local()
    local sum = flow.empty(entry.shape, {dtype = entry.dtype, placement = everywhere(entry), sbp = entry.sbp})
    local part = sum:to_local()
    part:copy_(compress.expand(entry, here, part.shape, self.threshold))
    return sum
end

function Sync:_reduce(entry, tensors)
    local mine = sum_of(entry, tensors)
    if self.threshold then return add_up_codes(self, entry, mine) end
    return add_up(entry, mine)
end

function Sync._whole(_, entry)
    return entry.stored:to_global{sbp = "B"}:to_local()
end

-- Each rank asks for rows of its own: those of all ranks are looked up together where they are fewer than the value's.
function Sync:_rows(entry, index)
    local counts = flow.full({1}, index:numel(), {dtype = "int64"})
    local counted = counts:to_global{placement = flow.placement.all "cpu", sbp = "S(0)"}:totable()
    local before, total = 0, 0
    for i, count in ipairs(counted) do
        if i <= self.rank then before = before + count end
        total = total + count
    end
    if total >= entry.rows then return self:_whole(entry):index_select(0, index) end
    local asked = index:to_global{placement = everywhere(entry), sbp = "S(0)"}:to_global{sbp = "B"}
    local found = entry.stored:index_select(0, asked)
    return found:to_global{sbp = "B"}:to_local():narrow(0, before, index:numel())
end

function Sync._meet()
    flow.barrier()
end

return Sync
