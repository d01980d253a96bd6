-- records.lua -- rows of bytes from a record file of 128 MiB in the page cache, with their checksums checked and without,
-- in random order and in that of the file: batches of 2 MiB, each waited for, by one thread. The rate counts the bytes
-- of the rows.

local flow = require "flow"

local M = {}

local MI = 1024 * 1024

-- Batches of rows of `size` bytes; a call reads the whole file.
local function reading(size, checksum, order_of)
    return function()
        local path = os.getenv "BENCH_FOLDER" .. "/bench.records"
        local rows, taken, at = 122 * MI // size, 2 * MI // size, 0
        local row = flow.randint(0, 256, {size}, {dtype = "uint8"})
        flow.data.pack(function()
            at = at + 1
            return at <= rows and {row = row} or nil
        end, path)
        local dataset = flow.data.records(path, {checksum = checksum, workers = 1})
        os.remove(path)         -- the mapping keeps it
        local order = order_of(rows)
        return function(count)
            for _ = 1, count do
                for first = 0, rows - taken, taken do
                    dataset:batch(order:narrow(0, first, taken))
                    flow.sync()
                end
            end
        end
    end
end

for name, size in pairs {["4k"] = 4096, ["16k"] = 16384, ["128k"] = 131072, ["1m"] = MI} do
    M["checked_" .. name] = reading(size, true, flow.randperm)
    M["plain_" .. name] = reading(size, false, flow.randperm)
    M["ordered_" .. name] = reading(size, true, flow.arange)
end

return M
