-- record_bytes.lua -- record files byte by byte, as file/record_layout.h lays them out: for files that lie.
local M = {}

local table_of = {}
for i = 0, 255 do
    local state = i
    for _ = 1, 8 do state = state >> 1 ~ (0x82f63b78 & -(state & 1)) end
    table_of[i] = state
end

-- CRC-32C of a string.
function M.crc(bytes)
    local state = 0xffffffff
    for i = 1, #bytes do state = state >> 8 ~ table_of[(state ~ bytes:byte(i)) & 0xff] end
    return state ~ 0xffffffff
end

local function padded(bytes, unit) return bytes .. ("\0"):rep(-#bytes % unit) end

M.kinds = {tensor = 1, integer = 2, number = 3, string = 4, boolean = 5}

-- {kind =, dtype =, shape =, name =, bytes = of the value} as a description.
function M.description(f)
    local shape = f.shape or {}
    local text = ("<BBBBI4i8"):pack(M.kinds[f.kind] or f.kind, f.dtype or 0, f.ndim or #shape, f.name_bytes or #f.name, 0,
        f.bytes or #f.value)
    for _, size in ipairs(shape) do text = text .. ("<i8"):pack(size) end
    return text .. padded(f.name, 8)
end

-- o: wrong values: magic, crc, bytes, number, fields, list, more (bytes at the end).
function M.record(fields, number, o)
    o = o or {}
    local descriptions, values = {}, {}
    for i, f in ipairs(fields) do descriptions[i], values[i] = M.description(f), padded(f.value or "", 8) end
    local body = table.concat(descriptions) .. table.concat(values) .. (o.more or "")
    local rest = ("<i8i8I4I4"):pack(o.bytes or 32 + #body, o.number or number, o.fields or #fields, o.list or 0) .. body
    return ("<I4I4"):pack(o.magic or 0x44434552, o.crc or M.crc(rest)) .. rest
end

-- 64 bytes whose checksum, at `at` (from 1), is right.
local function sealed(head, at)
    return head:sub(1, at - 1) .. ("<I4"):pack(M.crc(head)) .. head:sub(at + 4)
end

function M.head(metadata, o)
    o = o or {}
    local head = "\137flrec\r\n" .. ("<I4I4i8I4"):pack(o.version or 1, 0, o.metadata_bytes or #metadata, M.crc(metadata))
    return sealed(padded(head, 64), 13) .. padded(metadata, 64)
end

function M.chunk(records, first, o)
    o = o or {}
    local body = padded(table.concat(records), 64)
    local head = ("<I4I4i8i8I4"):pack(0x4b4e4843, 0, o.bytes or 64 + #body, o.first or first, o.count or #records)
    return sealed(padded(head, 64), 5) .. body
end

-- A whole file of items (lists of fields). o: metadata, schema (fields), fixed, places (index), schema_bytes, count, tail.
function M.file(items, o)
    o = o or {}
    local head = M.head(o.metadata or "{}", o)
    local records, places, at = {}, {}, #head + 64
    for i, fields in ipairs(items) do
        records[i] = fields.raw or M.record(fields, i - 1, fields.lies)
        places[i] = at
        at = at + #records[i]
    end
    local chunk = M.chunk(records, 0)
    local schema = {}
    for i, f in ipairs(o.schema or items[1]) do
        schema[i] = M.description {kind = f.kind, dtype = f.dtype, shape = f.shape, name = f.name, bytes = o.fixed or 1}
    end
    local tail = ("<I4I4"):pack(o.schema_count or #schema, 0) .. table.concat(schema)
    local schema_bytes = #tail
    for _, place in ipairs(o.places or places) do tail = tail .. ("<i8"):pack(place) end
    local foot = "\137flend\r\n" .. ("<I4I4i8i8i8I4"):pack(o.foot_version or 1, 0, o.tail or #head + #chunk,
        o.schema_bytes or schema_bytes, o.count or #(o.places or places), o.tail_crc or M.crc(tail))
    return head .. chunk .. padded(tail, 64) .. sealed(padded(foot, 64), 13), places
end

return M
