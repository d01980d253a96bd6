-- fuzz_files.lua SEED FIRST LAST [-v] -- reads files that were damaged or made to do harm, with every reader.
-- File i depends on the seed and i alone, so that `fuzz_files.lua SEED i i -v` shows the one that failed. Each file is read, or
-- is an error that begins with a position, names the reader and is short text without control characters; "BAD i: what"
-- otherwise. The last lines are the coverage, one line a reader, and "end".
--
-- On several ranks (flowlua --ranks N tests/fuzz_files.lua ...) all of them read the same file, also together as global tensors,
-- and must come to the same end. Scratch files lie in a folder of this run's own in the current folder, which its end removes.
--
-- A file takes too long by the time that its process computes, so that a busy machine gives no findings; what waits for ever
-- is over a generous limit of the clock, or over the collectives' own (FLOW_TIMEOUT).
local flow = require "flow"
local json = require "flow.json"
local nn, optim, data = flow.nn, flow.optim, flow.data

local seed, first, last, verbose = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1, tonumber(arg[3]) or 1000, arg[4] == "-v"
local world, rank = flow.world_size(), flow.rank()
local everywhere = flow.placement.all "cpu"
local random = math.random
local seconds_computed, seconds_passed = 20, 300
package.path = (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/../?.lua;" .. package.path
local pictures, record_bytes, fuzz_values = require "tests.pictures", require "tests.record_bytes", require "tests.fuzz_values"
local train_script = (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/../scripts/train.lua"
local place = -1
while arg[place - 1] do place = place - 1 end     -- options stand between the program and the script
local flowlua = arg[place]

local function pick(list) return list[random(#list)] end
local function chance(percent) return random(100) <= percent end

local folder = fuzz_values.scratch_folder(("fuzz_files.%d.%d"):format(seed, first))
local name = folder .. "/file"

-- Rank 0 writes, then all go on.
local function write(path, bytes)
    if rank == 0 then
        local file = assert(io.open(path, "wb"))
        file:write(bytes)
        file:close()
    end
    flow.barrier()
end

local function read(path)
    local file = assert(io.open(path, "rb"))
    local bytes = file:read "a"
    file:close()
    return bytes
end

---- the damage ----

local extremes = {0, 1, -1, 2, 7, 8, 9, 127, 128, 255, 256, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 53) - 1, 1 << 53, 1 << 59, 1 << 60, 1 << 62,
    math.maxinteger, math.mininteger}
local odd_numbers = {"0.5", "-0.0", "1e0", "1e300", "-1e300", "1e999", "9007199254740993", "18446744073709551615", "18446744073709551616", "0x10", "1.", "01",
    "+1", "nan", "Infinity", "1e-400", "2.0"}
local odd_values = {"null", "true", "[]", "{}", '""', '"x"', "[[1]]", '{"a":1}', ("["):rep(300) .. ("]"):rep(300), ("["):rep(5000), '{"a":{"b":[1,2,{}]}}'}
local odd_texts = {"", "\27[31m", "\\u001b]0;x\\u0007", "\\u0000", "\\ud800", "\\udc00\\ud800", "\\ud83d\\ude00",
    "\255", "\192\128", "\237\160\128", "\244\144\128\128", "é",
    "\\n", "\\\"", "\\", "\\x", "a.b", "..", "__metadata__", ("n"):rep(300), ("é"):rep(20000), "\127", "\194\155", "%s%n", "$tensor", "$map"}

local function odd() return chance(50) and ("%d"):format(pick(extremes)) or chance(60) and pick(odd_numbers) or pick(odd_values) end

-- One change of a list of bytes at position i.
local changes = {
    function(b, i) b[i] = random(0, 255) end,
    function(b, i) b[i] = b[i] ~ (1 << random(0, 7)) end,
    function(b, i) for j = #b, i, -1 do b[j] = nil end end,
    function(b, i) table.insert(b, i, random(0, 255)) end,
    function(b, i) table.remove(b, i) end,
    function(b, i) for n = 0, random(0, 12) do if b[i + n] then b[i + n] = b[random(#b)] end end end,
    function(b, i) for n = 0, 7 do if b[i + n] then b[i + n] = 255 end end end,
    function(b) local bytes = {("<i8"):pack(pick(extremes)):byte(1, -1)} for n = 1, 8 do if b[n] then b[n] = bytes[n] end end end,
    function(b, i) local bytes = {(">i8"):pack(pick(extremes)):byte(1, -1)} for n = 1, 8 do if b[i + n] then b[i + n] = bytes[n] end end end,
    function(b) for _ = 1, random(64) do b[#b + 1] = random(0, 255) end end,
}

local function damaged(bytes)
    local list, text = {bytes:byte(1, -1)}, {}
    for _ = 1, random(4) do
        if #list > 0 then pick(changes)(list, random(#list)) end
    end
    for i, byte in ipairs(list) do text[i] = string.char(byte) end
    return table.concat(text)
end

-- JSON with some of its numbers, strings and marks exchanged: still much like it.
local function odd_json(text)
    local rate = pick {1, 3, 10}
    text = text:gsub('%-?%d+%.?%d*e?%-?%d*', function(n) return chance(rate) and odd() or n end)
    text = text:gsub('"[%w_.$]+"', function(s) return chance(rate) and (chance(70) and '"' .. pick(odd_texts) .. '"' or odd()) or s end)
    if chance(10) then text = text:gsub("[%[%]{},:]", function(c) return chance(2) and pick {"[", "]", "{", "}", ",", ":", ""} or c end) end
    if chance(5) then text = text .. pick {" ", "\n", "x", "{}", "\0"} end
    return text
end

---- files as they should be ----

local net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
local optimizer = optim.AdamW(net:parameters(), {lr = 0.1})
net(flow.ones(2, 3)):sum():backward()
optimizer:step()
local loader = data.loader(data.tensors(flow.arange(10)), {batch_size = 3, shuffle = true})

local function saved(values)
    flow.save(name, values)
    local bytes = read(name)
    flow.barrier()
    return bytes
end

local plain = saved {a = flow.arange(12):view(3, 4) + 0.5, b = {c = flow.arange(5), d = flow.tensor {true, false}, s = "text", n = 3, l = {1, 2, {x = 1.5}}},
    e = flow.zeros(0, 3):to "bfloat16", nan = 0 / 0, bytes = "\0\255", sparse = {[3] = 1}}
local state = saved {model = net:state_dict(), optimizer = optimizer:state_dict(), train = loader:state(), random = flow.generator(3):state(), step = 7}
local function program_of()
    local p = flow.trace(function(x, y) return net(x):cross_entropy(y) + x:reshape(-1, 2):max(0):sum() * math.huge end,
        {flow.spec {2, 3}, flow.spec({2}, "int64")})
    p:backward():save(name)
    local bytes = read(name)
    flow.barrier()
    return bytes
end
local program = program_of()
local images = "\0\0\8\3" .. (">I4I4I4"):pack(3, 4, 5) .. ("x"):rep(60)
local labels = "\0\0\12\1" .. (">I4"):pack(7) .. ("\0\0\0\5"):rep(7)

-- Header and bytes of a file whose entries are drawn: dtypes, shapes and offsets that fit now and then.
local sizes = {BOOL = 1, U8 = 1, I8 = 1, I32 = 4, I64 = 8, F16 = 2, BF16 = 2, F32 = 4, F64 = 8}
local dtypes = {"BOOL", "U8", "I8", "I32", "I64", "F16", "BF16", "F32", "F64", "F8", "f32", "C64", ""}
local function drawn_file()
    local entries, at = {}, 0
    for i = 1, random(0, 4) do
        local dtype, shape, count = pick(dtypes), {}, 1
        for k = 1, random(0, chance(5) and 10 or 3) do
            shape[k] = chance(4) and odd() or ("%d"):format(random(0, 4))
            count = count * (math.tointeger(tonumber(shape[k])) or 1)
        end
        local bytes = count * (sizes[dtype] or 1)
        local from, to = at + (chance(5) and random(-9, 9) or 0), at + bytes
        if bytes >= 0 and bytes < 4096 then at = to end
        entries[i] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}'):format(chance(8) and pick(odd_texts) or "t" .. random(6), dtype,
            table.concat(shape, ","), chance(3) and odd() or ("%d"):format(from), chance(3) and odd() or ("%d"):format(to))
    end
    if chance(30) then table.insert(entries, 1, ('"__metadata__":{"%s":"%s"}'):format(chance(50) and "flow" or pick(odd_texts), pick(odd_texts))) end
    local header = "{" .. table.concat(entries, ",") .. "}"
    local length = chance(3) and pick(extremes) or #header
    return ("<i8"):pack(length) .. header .. ("\1"):rep(at + (chance(4) and random(-3, 3) or 0))
end

-- A saved file whose header, or the table in it, is odd JSON; the length fits.
local function odd_header(bytes)
    local header, at = ("<s8"):unpack(bytes)
    if chance(50) then header = odd_json(header)
    else
        local key = header:find('"flow.program"', 1, true) and '"flow%.program"' or '"flow"'
        local inner = header:match(key .. ':(".-[^\\]")')
        local ok, text = pcall(json.decode, inner)
        if ok then
            header = header:gsub("(" .. key .. ':)".-[^\\]"', function(before)
                return before .. '"' .. odd_json(text):gsub('["\\]', "\\%0"):gsub("%c", " ") .. '"'
            end)
        end
    end
    return ("<s8"):pack(header) .. bytes:sub(at)
end

local function odd_idx(bytes)
    if chance(50) then return damaged(bytes) end
    local head = ("\0\0%s%s"):format(string.char(pick {8, 9, 11, 12, 13, 14, 7, 0}), string.char(pick {0, 1, 2, 3, 8, 9, 255}))
    for _ = 1, random(0, 4) do head = head .. (">I4"):pack(pick(extremes) & 0xffffffff) end
    return head .. bytes:sub(-random(0, 64))
end

-- gzip's own frame around stored blocks: no tool is needed, and the sizes may lie.
local function crc32(text)
    local crc = 0xffffffff
    for i = 1, #text do
        crc = crc ~ text:byte(i)
        for _ = 1, 8 do crc = crc >> 1 ~ (0xedb88320 & -(crc & 1)) end
    end
    return crc ~ 0xffffffff
end

-- Stored, in blocks of 65,535 bytes at most.
local function gzip(bytes)
    local blocks = {}
    for at = 1, math.max(#bytes, 1), 65535 do
        local block = bytes:sub(at, at + 65534)
        blocks[#blocks + 1] = ("<I1I2I2"):pack(at + 65535 > #bytes and 1 or 0, #block, ~#block & 0xffff) .. block
    end
    return "\31\139\8\0\0\0\0\0\0\3" .. table.concat(blocks) .. ("<I4I4"):pack(crc32(bytes), #bytes)
end

-- Images of every kind, and sizes that a PNG file cannot hold.
local jpegs, pngs = {}, {}
for _, one in ipairs {"color", "progressive", "gray", "cmyk"} do jpegs[#jpegs + 1] = pictures.files[one] end
for _, one in ipairs {"rgb", "rgba", "palette", "bits", "wide"} do pngs[#pngs + 1] = pictures.files[one] end

local function odd_png()
    local sides = {0, 1, 7, 300, 65535, 65536, 1 << 24, (1 << 31) - 1, 1 << 31}
    return pictures.png(pick(sides), pick(sides), pick {1, 2, 3, 4, 8, 16}, pick {0, 1, 2, 3, 4, 6}, ("\120\1"):rep(random(0, 9)))
end

local picture_steps = {data.resize(9), data.crop(2, 3, 5, 8), data.random_crop(4), data.center_crop(40), data.rotate(20)}

local function picture_options()
    return {mode = pick {"unchanged", "L", "RGB", "RGBA"}, damaged = chance(50), exif = chance(50), layout = pick {"CHW", "HWC"}}
end

local npy_dtypes = {"|b1", "|u1", "|i1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8", "<u8", "<f2", ">f4", "<f4", "<f8", "<c8", "|O", "<U3", "<M8[s]",
    "", "f4"}

-- A .npy file whose header is drawn; the number of bytes fits now and then.
local function drawn_npy()
    local descr, shape, count = pick(npy_dtypes), {}, 1
    for i = 1, random(0, chance(5) and 10 or 3) do
        shape[i] = chance(4) and odd() or tostring(random(0, 4))
        count = count * (math.tointeger(tonumber(shape[i])) or 1)
    end
    local header = ("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }"):format(descr, chance(4) and odd() or pick {"True", "False"},
        table.concat(shape, ", ") .. (#shape == 1 and "," or ""))
    if chance(10) then header = header:gsub("[%p]", function(c) return chance(5) and pick {"", "'", "(", ")", "{", "}", ","} or c end) end
    if chance(5) then header = header:gsub("'", '"') end
    local bytes = count * (tonumber(descr:match "%d+") or 1)
    local version = chance(5) and random(0, 255) or random(3)
    return "\x93NUMPY" .. string.char(version, 0) .. (version == 1 and "<s2" or "<s4"):pack(header)
        .. ("\1"):rep((bytes >= 0 and bytes < 4096 and bytes or 9) + (chance(4) and random(-3, 3) or 0))
end

local function archive(compress)
    data.save_npz(name, {x = flow.arange(12):view(3, 4), y = flow.zeros(300), z = flow.tensor(true)}, {compress = compress})
    local bytes = read(name)
    flow.barrier()
    return bytes
end
local archives = {archive(false), archive(true)}

-- Records of a zip archive with some of their numbers exchanged.
local function odd_zip(bytes)
    return (bytes:gsub("PK[\1-\6][\2-\7]" .. ("."):rep(18), function(record)
        if chance(70) then return record end
        local at, size = random(5, 20), pick {2, 4}
        local value = pick(extremes) & (1 << 8 * size) - 1
        return record:sub(1, at - 1) .. ("<I" .. size):pack(value):sub(1, #record - at + 1) .. record:sub(at + size)
    end))
end

local function packed_records()
    local items = {}
    for i = 1, 5 do items[i] = {x = flow.full({2, 3}, i), b = i > 2, n = i, f = i / 2, s = ("s"):rep(i)} end
    data.pack(items, name, {metadata = {classes = {"a", "b"}}})
    local bytes = read(name)
    flow.barrier()
    return bytes
end
local records = packed_records()

local record_kinds = {"tensor", "tensor", "integer", "number", "string", "boolean"}
local function drawn_field(number)
    local kind = pick(record_kinds)
    local f = {kind = chance(3) and random(0, 9) or kind, name = chance(8) and pick(odd_texts):sub(1, 255) or "f" .. number, shape = {}, dtype = 0, value = "12345678"}
    if kind == "tensor" then
        local count = 1
        f.dtype = chance(5) and random(0, 12) or random(0, 8)
        for k = 1, random(0, chance(5) and 9 or 3) do
            f.shape[k] = chance(5) and pick(extremes) or random(0, 4)
            count = count * f.shape[k]
        end
        local bytes = count * (({1, 1, 1, 4, 8, 2, 2, 4, 8})[f.dtype + 1] or 1)
        f.value = ("\1"):rep(bytes >= 0 and bytes < 4096 and bytes or 8)
    elseif kind == "boolean" then f.value = chance(5) and "\2" or "\1"
    elseif kind == "string" then f.value = ("t"):rep(random(0, 20)) end
    if chance(4) then f.bytes = pick(extremes) end
    if chance(3) then f.name_bytes = random(0, 255) end
    return f
end

-- A record file whose checksums are right, and what they cover lies now and then.
local function drawn_records()
    local items, schema = {}, {}
    for i = 1, random(1, 4) do schema[i] = drawn_field(i) end
    for i = 1, random(1, 4) do
        items[i] = {lies = {}}
        for k = 1, #schema do items[i][k] = chance(5) and drawn_field(k) or schema[k] end
        for _, key in ipairs {"bytes", "number", "fields", "list", "magic", "crc"} do
            if chance(2) then items[i].lies[key] = pick(extremes) & (key ~= "bytes" and key ~= "number" and 0xffffffff or -1) end
        end
    end
    local o = {schema = schema, fixed = chance(5) and random(0, 3) or 1}
    for _, key in ipairs {"tail", "schema_bytes", "count", "metadata_bytes"} do
        if chance(3) then o[key] = pick(extremes) end
    end
    if chance(3) then o.schema_count = pick(extremes) & 0xffffffff end
    if chance(8) then
        o.places = {}
        for i = 1, random(0, 5) do o.places[i] = chance(60) and 192 + 8 * random(0, 40) or pick(extremes) end
    end
    if chance(10) then o.metadata = odd_json '{"classes": ["a", "b"], "n": 3}' end
    return (record_bytes.file(items, o))
end

local function odd_records()
    if chance(40) then return drawn_records() end
    return damaged(chance(30) and drawn_records() or records)
end

-- Small tokenizers with the steps of LLaMA 3, LLaMA 2, and words.
local tokenizers = {
    [[{"added_tokens":[{"id":12,"content":"<|a|>","special":true,"lstrip":true,"rstrip":true},{"id":13,"content":"b","single_word":true,
"normalized":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":
"(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s"},"behavior":"Isolated","invert":false},{"type":"ByteLevel",
"add_prefix_space":false,"use_regex":false}]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|a|>"}},
{"Sequence":{"id":"A"}}],"special_tokens":{"<|a|>":{"ids":[12]}}},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,
"vocab":{"a":0,"b":1,"n":2,"Ġ":3,"Ã":4,"©":5,"ab":6,"aba":7,"Ã©":8,"Ċ":9,"aa":10,"aaaa":11},"merges":["a b","ab a",["Ã","©"],"a a","aa aa"]}}]],
    [[{"added_tokens":[{"id":1,"content":"<s>","special":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":
"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"post_processor":{"type":"BertProcessing","cls":["<s>",1],"sep":["<s>",1]},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
"vocab":{"<unk>":0,"<s>":1,"<0xC3>":2,"<0xA9>":3,"▁":4,"a":5,"b":6,"▁a":7,"▁▁":8,"ab":9},"merges":["▁ a","▁ ▁","a b"]}}]],
    [[{"normalizer":{"type":"Sequence","normalizers":[{"type":"Lowercase"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":
"Replace","pattern":{"Regex":"\\s+"},"content":" "}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":
"Digits","individual_digits":true},{"type":"Split","pattern":{"String":"b"},"behavior":"MergedWithNext","invert":true},{"type":"Metaspace",
"replacement":"▁","prepend_scheme":"first","split":true}]},"decoder":{"type":"BPEDecoder","suffix":"</w>"},"model":{"type":"BPE","unk_token":
"?","continuing_subword_prefix":"##","end_of_word_suffix":"</w>","vocab":{"?":0,"a":1,"##b":2,"a</w>":3,"##b</w>":4,"ab":5,"ab</w>":6},
"merges":["a ##b","a ##b</w>"]}}]],
}
write(folder .. "/vocab.json", '{"a":0,"b":1,"ab":2,"Ġ":3,"Ġa":4,"<|endoftext|>":5}')

local cells = {"1", "-2.5", "1e5", "NA", "", "true", "x", '"a ""b"" c"', '"x\n,y"', '"', "2024-01-31", "9223372036854775807", "0x1", ".", "-", "1.5e",
    " 7 ", "#", "é\255", "inf"}

-- A table whose rows have as many cells, but for some; quotes open and close now and then.
local function drawn_csv()
    local mark, lines, width = pick {",", ",", ",", ";", "\t", " ", "|"}, {}, random(5)
    for i = 1, random(0, 30) do
        local line = {}
        for k = 1, random(300) == 1 and random(0, 7) or width do
            line[k] = random(200) == 1 and odd() or random(200) == 1 and pick(odd_texts) or chance(90) and cells[(k * 3 + width) % 6 + 1] or pick(cells)
        end
        lines[i] = table.concat(line, mark)
    end
    return (chance(5) and "\xef\xbb\xbf" or "") .. table.concat(lines, pick {"\n", "\n", "\r\n"}) .. pick {"", "\n"}
end

local function csv_options()
    local options = {}
    if chance(20) then options.header = chance(50) end
    if chance(3) then options.delimiter = pick {",", ";", "\t", " ", "-"} end
    if chance(10) then options.quote = pick {"", "'"} end
    if chance(20) then options.comment = "#" end
    if chance(10) then options.skip = random(0, 3) end
    if chance(10) then options.limit = random(0, 9) end
    if chance(20) then options.fill = pick {0, -1.5} end
    if chance(2) then options.names = {"a", "b", "c"} end
    return options
end

local function random_text()
    local parts = {}
    for i = 1, random(0, 60) do
        parts[i] = chance(60) and pick {"a", "b", "é", "漢", "😀", "\n", "\0"} or chance(30) and pick(odd_texts) or string.char(random(0, 255))
    end
    return table.concat(parts)
end

---- readers ----

-- Touches all values of what was read.
local function use(value)
    if flow.is_tensor(value) then return value:numel() > 0 and value:totable() end -- an empty tensor may have an axis too long for a table
    if type(value) ~= "table" then return end
    if type(value.read) == "function" then return use(value:read()) end
    for _, v in pairs(value) do use(v) end
end

local function use_records(path, opts)
    local dataset = data.records(path, opts)
    tostring(dataset)
    for i = 0, #dataset - 1 do use(dataset:get(i)) end
    local ok, message = pcall(function()
        use(dataset:batch(flow.arange(#dataset)))
        flow.sync() -- an empty tensor has an error, too
    end)
    if not ok and not message:find "batch: " then error(message, 0) end
end

local function resume(path)
    local all = flow.load(path, {lazy = true})
    local steps = {
        function() net:load_state_dict(all.model) end, function() optimizer:load_state_dict(all.optimizer) end,
        function() loader:load_state(all.train) loader:next() end, function() flow.generator(1):load_state(all.random) end,
    }
    local message
    for _, step in ipairs(steps) do
        local ok, text = pcall(step)
        if not ok and not message then message = text end
    end
    if message then error(message, 0) end
end

-- {name, what an error begins with, bytes of file i, read}
local kinds = {
    {"load, bytes", "load", function() return damaged(plain) end, function(path) use(flow.load(path)) end},
    {"load, header", "load", function() return odd_header(plain) end, function(path) use(flow.load(path)) end},
    {"load, drawn", "load", drawn_file, function(path) use(flow.load(path)) end},
    {"load, global", "load", function() return pick {damaged, odd_header}(plain) end, function(path)
        local seen = flow.load(path, {placement = everywhere, sbp = "B"})
        for _, t in pairs(seen) do if flow.is_tensor(t) then t:to_local():totable() end end
    end},
    {"load, lazy", "load", function() return pick {damaged, odd_header}(plain) end, function(path) use(flow.load(path, {lazy = true})) end},
    {"program", "program", function() return pick {damaged, odd_header, odd_header, odd_header}(program) end, function(path)
        pcall(flow.program(path), flow.ones(2, 3), flow.tensor {0, 1})     -- the inputs may be others by now
    end},
    {"resume", "[%w_]+:? ?[%w_:]*", function() return pick {damaged, odd_header, odd_header}(state) end, resume},
    {"idx", "idx", function() return odd_idx(pick {images, labels}) end, function(path) use(data.idx(path)) end},
    {"idx, gzip", "idx", function()
        local bytes = pick {images, labels}
        if chance(50) then return damaged(gzip(bytes)) end
        return gzip(odd_idx(bytes))
    end, function(path) use(data.idx(path)) end},
    {"text", "[%w]+", random_text, function(path)
        local text = data.text(data.read(path))
        use(text:encode(text:decode(text.tokens)))
        local windows = data.windows(text.tokens, random(1, 9))
        use(windows:batch(flow.arange(#windows)))
    end},
    {"records", "records", odd_records, use_records},
    {"records, skip", "records", odd_records, function(path) use_records(path, {corrupt = "skip", checksum = chance(50)}) end},
    {"tokenizer", "%a+", function() return chance(30) and damaged(pick(tokenizers)) or odd_json(pick(tokenizers)) end, function(path)
        local tokenizer = data.tokenizer(path)
        local tokens = tokenizer:encode(random_text())
        tokenizer:decode(tokens, {skip_special_tokens = chance(50)})
        if not flow.equal(tokens, tokenizer:encode(tokenizer:decode(tokens))) then tokenizer:encode_file(path) end
    end},
    {"merges", "%a+", function() return damaged "#version: 0.2\na b\nĠ a\n" end, function(path)
        local tokenizer = data.tokenizer {vocab = folder .. "/vocab.json", merges = path}
        local text = random_text()
        assert(tokenizer:decode(tokenizer:encode(text)):len() <= #text)
    end},
    {"npy", "npy", function() return chance(80) and drawn_npy() or gzip(drawn_npy()) end, function(path) use(data.npy(path)) end},
    {"npy, mapped", "npy", drawn_npy, function(path) use(data.npy(path, {map = true})) end},
    {"npz", "npz", function() return pick {damaged, odd_zip, odd_zip}(pick(archives)) end, function(path)
        for _, t in data.npz(path) do use(t) end
    end},
    {"jsonl", "jsonl", function()
        local lines = {}
        for i = 1, random(0, 6) do lines[i] = chance(60) and '{"a": [1, 2.5], "b": "text", "c": null}' or odd_json '{"a": [1, -2.5e3], "b": true, "c": {"d": "x"}}' end
        local text = table.concat(lines, pick {"\n", "\r\n", "\n \n"})
        return chance(80) and text or pick {damaged, gzip}(text)
    end, function(path)
        for _, item in data.jsonl(path, {fields = chance(50) and {"a", "b"} or nil}):items() do use(item) end
    end},
    {"csv", "csv", function()
        local text = chance(80) and drawn_csv() or damaged(drawn_csv())
        return chance(90) and text or gzip(text)
    end, function(path)
        local columns = data.csv(path, csv_options())
        for _, column in columns do use(column) end
        local types = {}
        for column in columns do types[column] = pick {"text", "category", "bool", "int64", "float32", "time"} end
        if next(types) and chance(30) then data.csv(path, {types = types, fill = chance(50) and 1 or nil}) end
    end},
    {"jpeg", "jpeg", function() return damaged(pick(jpegs)) end, function(path) use(data.jpeg(path, picture_options())) end},
    {"png", "png", function() return chance(30) and odd_png() or damaged(pick(pngs)) end, function(path)
        local options = picture_options()
        options.dtype = pick {"uint8", "int32", "uint8"}
        use(data.png(path, options))
    end},
    {"images", "images", function() return damaged(pick(chance(50) and jpegs or pngs)) end, function(path)
        os.execute("mkdir -p " .. folder .. "/pictures")
        write(folder .. "/pictures/a.jpg", read(path))
        local set = data.images(folder .. "/pictures", {augment = {pick(picture_steps), data.random_resized_crop(random(1, 30))},
            damaged = chance(50), exif = chance(50), mode = pick {"L", "RGB", "RGBA"}, workers = 2})
        use(set:batch(flow.tensor {0}, {seed = random(1, 100)})[1])
    end},
    {"json", "json", function() return chance(50) and odd_json('{"a": [1, -2.5e3, true, null], "b": {"c": "text\\n", "d": {}}, "e": 9223372036854775807}')
        or damaged '{"a": [1, -2.5e3, true, null], "b": {"c": "text\\n"}}' end,
        function(path) json.encode(json.decode(data.read(path))) end},
}

---- oracle ----

local function is_clean(text) return utf8.len(text) and not text:find "[\0-\8\11-\31\127]" and #text < 1400 end

-- The complaint about the end of a file's reading, or nil.
local function wrong(kind, ok, result, computed, passed)
    if computed > seconds_computed or passed > seconds_passed then
        return ("%.0f seconds of the processor, %.0f of the clock"):format(computed, passed)
    end
    if ok then return nil end
    if type(result) ~= "string" then return "the error is no text: " .. tostring(result) end
    if not is_clean(result) then return ("not clean: %q"):format(result:sub(1, 400)) end
    if world > 1 then result = result:gsub("^([^:\n]+:%d+: )rank %d+: ", "%1") end        -- the ranks' common error
    if not result:find("^[^:\n]+:%d+: " .. kind[2]) or result:find("flow%.[%w_]+:%d+:", 1) then return result end
    return nil
end

local counts = {}
local function tally(kind, ok, result)
    local c = counts[kind[1]] or {read = 0, refused = 0, different = 0, seen = {}}
    counts[kind[1]] = c
    if ok then c.read = c.read + 1 else
        c.refused = c.refused + 1
        local shape = tostring(result):gsub("^[^:\n]+:%d+: ", ""):gsub('".*"', "Q"):gsub("'.*'", "Q"):gsub("%d+", "N")
        if not c.seen[shape] then c.seen[shape], c.different = true, c.different + 1 end
    end
end

-- Every rank must have come to the same end.
local function check_alike(i, ok, result)
    if world == 1 then return end
    local text, hash = tostring(ok) .. (ok and "" or tostring(result)), 5381
    for k = 1, #text do hash = (hash * 33 + text:byte(k)) % 2147483647 end
    local all = flow.tensor({hash}):to_global({placement = everywhere, sbp = "S(0)", check = true}):to_global({sbp = "B"}):to_local():totable()
    for r = 2, world do
        if all[r] ~= all[1] then
            print(("BAD %d: rank %d ends as %s"):format(i, rank, text:sub(1, 300)))
            return
        end
    end
end

---- train.lua on a damaged checkpoint: a process of its own, so only now and then ----

local trained, text_file = nil, folder .. "/text"
local function check_train(i)
    if not trained then
        write(text_file, ("some text to learn from, again and again.\n"):rep(20))
        assert(os.execute(("%s %s --layers 1 --width 4 --heads 1 --context 4 --batch 2 --data %s --steps 1 --sample 0 --checkpoint %s >/dev/null 2>&1")
            :format(flowlua, train_script, text_file, name)))
        trained = read(name)
    end
    write(name, pick {damaged, odd_header, odd_header, odd_header}(trained))
    local pipe = io.popen(("(ulimit -t %d; exec timeout %d %s %s --resume %s --steps 2 --sample 0) 2>&1; echo rc=$?")
        :format(3 * seconds_computed, seconds_passed, flowlua, train_script, name))
    local output = pipe:read "a"
    pipe:close()
    local said, code = output:match "^(.-)rc=(%d+)\n$"
    local ok = code == "0"
    local one_message = said and said:gsub("\n +[^\n]+", ""):find "^train%.lua: [^\n]+\n$" -- a mismatch is a table below it
    if not ok and not (code == "1" and one_message and is_clean(said)) then
        print(("BAD %d: train.lua ends with %s: %s"):format(i, code, said:sub(1, 600)))
    end
    tally({"train.lua"}, ok, said)
end

---- all files ----

for i = first, last do
    math.randomseed(seed, i)
    if world == 1 and i % 250 == 0 then check_train(i)
    else
        local kind = kinds[i % #kinds + 1]
        local bytes = kind[3](i)
        write(name, bytes)
        if verbose then io.stderr:write(("%d %s: %d bytes in %s\n"):format(i, kind[1], #bytes, name)) end
        local computed, began = os.clock(), flow._io.clock()
        local ok, result = pcall(kind[4], name)
        local bad = wrong(kind, ok, result, os.clock() - computed, flow._io.clock() - began)
        if bad then print(("BAD %d: %s: %s"):format(i, kind[1], bad)) end
        tally(kind, ok, result)
        check_alike(i, ok, result)
    end
    flow.barrier()
    if verbose and first == last then return end      -- the file stays
end
if rank == 0 then
    os.execute("rm -r " .. folder)
    for _, kind in ipairs {"load, bytes", "load, header", "load, drawn", "load, global", "load, lazy", "program",
        "resume", "idx", "idx, gzip", "text", "tokenizer", "merges", "records", "records, skip", "npy", "npy, mapped", "npz", "csv", "jsonl",
        "jpeg", "png", "images", "json", "train.lua"} do
        local c = counts[kind]
        if c then print(("%-12s %6d read, %6d refused in %d ways"):format(kind, c.read, c.refused, c.different)) end
    end
    print "end"
end
