-- ranks.lua -- global tensors on several ranks: an op that needs no boxing, and the collectives that boxing does.
--
-- A collective's size is the bytes of its larger side on one rank, as in peer.c. All of them are x:to_global with a
-- fresh result. BENCH_DEVICE: the device of the tensors.

local flow = require "flow"

local M = {}

local COLUMNS = 8
local everybody = flow.placement.all(os.getenv "BENCH_DEVICE" or "cpu")
local ranks = flow.world_size()

local function new(shape, sbp) return flow.ones(shape, {placement = everybody, sbp = sbp}) end

-- Adds tensors of which every rank has 16 floats.
local function add(shape, sbp)
    local a, b = new(shape, sbp), new(shape, sbp)
    return function(count)
        for _ = 1, count do local _ = a + b end
    end
end

function M.add_split() return add({16 * ranks}, "S(0)") end

function M.add_broadcast() return add({16}, "B") end

-- x and what it becomes, of n floats on the larger side of a rank.
local collectives = {
    all_reduce = function(n) return new({n}, "B"):to_global{sbp = "P"}, "B" end,
    all_gather = function(n) return new({n}, "S(0)"), "B" end,
    reduce_scatter = function(n) return new({n}, "B"):to_global{sbp = "P"}, "S(0)" end,
    all_to_all = function(n) return new({ranks, n}, "S(0)"), "S(1)" end,
    gather_columns = function(n) return new({n // COLUMNS, COLUMNS}, "S(1)"), "B" end,
    rows_to_columns = function(n) return new({ranks * n // COLUMNS, COLUMNS}, "S(0)"), "S(1)" end,
}

local sizes = {["4k"] = 4 << 10, ["64k"] = 64 << 10, ["1m"] = 1 << 20, ["64m"] = 64 << 20}

for name, make in pairs(collectives) do
    for size, bytes in pairs(sizes) do
        M[name .. "_" .. size] = function()
            local x, sbp = make(bytes // 4)
            local to = {sbp = sbp}
            return function(count)
                for _ = 1, count do local _ = x:to_global(to) end
            end
        end
    end
end

return M
