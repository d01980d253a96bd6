-- data_records.lua -- a dataset in one file: items packed with checksums and read in parts; a damaged one is found out.

local flow = require "flow"
local data = flow.data

local path = os.tmpname()

-- An item is a table of tensors, numbers, strings and booleans. The function gives one at a time: together they may be
-- larger than memory.
local n = 0
local function next_item()
    if n == 100 then return nil end
    n = n + 1
    local image = flow.full({8, 8}, n - 1, {dtype = "uint8"})
    return {image = image, label = (n - 1) % 10, name = ("digit %d"):format(n - 1)}
end
local info = data.pack(next_item, path, {metadata = {classes = {"zero", "one", "two"}}})
print(info.items)
--> 100

local digits = data.records(path)
print(#digits, digits.classes[2], digits.fields[1].dtype, digits.fields[1].shape)
--> 100	one	uint8	[8, 8]
local item = digits:get(42)
print(item.name, item.label, item.image[0][0]:item())
--> digit 42	2	42

-- Batches: without the strings they are made in the background.
local numbers = data.records(path, {fields = {"image", "label"}, part_index = 0, num_parts = 2})
for batch in data.loader(numbers, {batch_size = 20, shuffle = true, seed = 1}) do
    print(batch.image.shape, batch.label:narrow(0, 0, 6))
end
--> [20, 8, 8]	[3, 5, 2, 4, 3, 9]  int64[6] on cpu
--> [20, 8, 8]	[1, 4, 6, 5, 4, 2]  int64[6] on cpu
--> [10, 8, 8]	[9, 1, 3, 1, 6, 5]  int64[6] on cpu

-- One byte changes: the record is an error, or left out.
local file = assert(io.open(path, "r+b"))
file:seek("set", 1050)
file:write("?")
file:close()
local ok, message = pcall(function()
    for i = 0, #digits - 1 do digits:get(i) end
end)
print(ok, (message:gsub("^.*: record", "record")))
--> false	record 4 at byte 992: its checksum is wrong, the file is damaged
local rest = data.records(path, {corrupt = "skip"})
print(#rest, rest.skipped)
--> 99	1
os.remove(path)
