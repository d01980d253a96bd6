-- data_records_spec.lua -- data.pack and data.records: exact round trips, parts, files that are damaged, cut or made to do harm.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local bytes_of = require "tests.record_bytes"
local data = flow.data
local message_of = support.message_of

local folder, write

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local function path(name) return folder .. "/" .. name end

-- Packs items and reads them back as a dataset.
local function packed(items, opts)
    data.pack(items, path "t.records", opts)
    return data.records(path "t.records")
end

-- n items of a tensor, an integer, a number, a string and a boolean.
local function sample(n)
    local items = {}
    for i = 0, n - 1 do
        items[i + 1] = {x = flow.full({2, 3}, i, {dtype = "float32"}), n = i, f = i / 4, s = ("s"):rep(i), b = i % 2 == 1}
    end
    return items
end

describe("a record file", function()
    it("brings items back exactly", function()
        local values = {
            int = math.mininteger, zero = 0, tiny = 5e-324, third = 1 / 3, infinite = -math.huge, yes = true, no = false,
            empty = "", bytes = "\0\255\r\n\137" .. ("x"):rep(1000), ["ümläut \n key"] = "漢",
        }
        local item = packed({values}):get(0)
        assert.are.same(values, item)
        for key, value in pairs(values) do assert.are.equal(math.type(value), math.type(item[key]), key) end
        local nan = packed({{x = 0 / 0}}):get(0).x
        assert.is_true(nan ~= nan)
    end)

    for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
        it("brings back " .. dtype .. " tensors, of any shape and layout", function()
            local base = flow.tensor({{1, 0, 1}, {0, 0, 1}}):to(dtype)
            local dataset = packed {{t = base, turned = base:t(), row = base[1], scalar = base[0][0], none = base:narrow(1, 0, 0)}}
            local item = dataset:get(0)
            assert.are.equal(dtype, item.t.dtype)
            assert.are.same(base:totable(), item.t:totable())
            assert.are.same(base:t():totable(), item.turned:totable())
            assert.are.same(base[1]:totable(), item.row:totable())
            assert.are.equal(base[0][0]:item(), item.scalar:item())
            assert.are.same({2, 0}, item.none.shape)
            local batch = dataset:batch(flow.tensor {0, 0})
            assert.are.same(flow.stack({base, base}):totable(), batch.t:totable())
            assert.are.same({2}, batch.scalar.shape)
            assert.are.same({2, 2, 0}, batch.none.shape)
        end)
    end

    it("gives batches of tensors, numbers, booleans and strings", function()
        local batch = packed(sample(10)):batch(flow.tensor({9, 0, 5, -1}))
        assert.are.same({4, 2, 3}, batch.x.shape)
        assert.are.same({9, 0, 5, 9}, batch.x:narrow(1, 1, 1):narrow(2, 0, 1):flatten():totable())
        assert.are.equal("int64", batch.n.dtype)
        assert.are.same({9, 0, 5, 9}, batch.n:totable())
        assert.are.equal("float32", batch.f.dtype)
        assert.are.same({2.25, 0, 1.25, 2.25}, batch.f:totable())
        assert.are.same({true, false, true, true}, batch.b:totable())
        assert.are.same({("s"):rep(9), "", "sssss", ("s"):rep(9)}, batch.s)
    end)

    it("gives batches without strings from a lane of the engine", function()
        packed(sample(100))
        for _, workers in ipairs {1, 3} do
            local dataset = data.records(path "t.records", {fields = {"n", "x"}, workers = workers})
            local batch = dataset:batch(flow.arange(100):flip(0))
            assert.are.same(flow.arange(100):flip(0):totable(), batch.n:totable())
            assert.are.equal(6 * 4950, batch.x:sum():item())
            local empty = dataset:batch(flow.zeros(0, {dtype = "int64"}))
            assert.are.same({0, 2, 3}, empty.x.shape)
        end
        local held = data.records(path "t.records", {fields = {"x"}}):batch(flow.arange(100):to "int32")
        collectgarbage()
        collectgarbage()
        assert.are.equal(6 * 4950, held.x:sum():item()) -- the dataset may be gone, its files are not
    end)

    it("gives batches in any order of records of any length, whose values are copied in parts", function()
        for _, n in ipairs {1, 200, 511, 512, 4096, 16384, 16385, 17000, 40001} do
            local rows, items = flow.randint(0, 256, {7, n}, {dtype = "uint8"}), {}
            for i = 0, 6 do items[i + 1] = {before = i, row = rows[i], small = rows[i]:narrow(0, 0, 1):to "float64", z = 2 * i} end
            data.pack(items, path "t.records")
            local wanted = {6, 1, 1, 5, 0, 4, 2, 3, 6, 0}
            for _, checksum in ipairs {true, false} do
                local batch = data.records(path "t.records", {checksum = checksum}):batch(flow.tensor(wanted))
                assert.is_true(batch.row:eq(rows:index_select(0, flow.tensor(wanted))):all():item(), n)
                assert.are.same(wanted, batch.before:totable())
                assert.are.same(rows:narrow(1, 0, 1):to "float64":index_select(0, flow.tensor(wanted)):totable(), batch.small:totable())
                assert.are.equal(12, batch.z[0]:item())
            end
        end
    end)

    it("holds lists", function()
        local dataset = packed {{flow.tensor {1, 2}, 3, "a"}, {flow.tensor {4, 5}, 6.5, "b"}}
        local item = dataset:get(1)
        assert.are.same({4, 5}, item[1]:totable())
        assert.are.equal(6.5, item[2])
        assert.are.equal("b", item[3])
        local batch = dataset:batch(flow.tensor {1, 0})
        assert.are.same({{4, 5}, {1, 2}}, batch[1]:totable())
        assert.are.same({6.5, 3}, batch[2]:totable())
        assert.are.same({"b", "a"}, batch[3])
        local first = data.records(path "t.records", {fields = {3, 1}}):get(0)
        assert.are.equal("a", first[1])
        assert.are.same({1, 2}, first[2]:totable())
    end)

    it("says what it is", function()
        local dataset = packed(sample(3), {metadata = {classes = {"a", "b"}, scale = 0.5, none = {}}})
        assert.are.equal(("records: 3 items of {b: boolean, f: number, n: integer, s: string, x: float32 [2, 3]} in %s, 1.0 KB")
            :format(path "t.records"), (tostring(dataset):gsub("%d.%d KB", "1.0 KB")))
        assert.are.same({classes = {"a", "b"}, scale = 0.5, none = {}}, dataset.metadata)
        assert.are.same({"a", "b"}, dataset.classes)
        assert.are.same({name = "x", type = "tensor", dtype = "float32", shape = {2, 3}}, dataset.fields[5])
        assert.are.equal("Records has no 'lenght'",
            message_of(function() return dataset.lenght end))
    end)

    it("has no items, or more than a chunk", function()
        local none = packed {}
        assert.are.equal(0, #none)
        assert.are.equal("get: position 0 is outside 0 to -1", message_of(none.get, none, 0))
        local items = {}
        for i = 1, 40 do items[i] = {x = flow.full({100000}, i, {dtype = "uint8"}), big = i == 20 and ("y"):rep(3000000) or ""} end
        local dataset = packed(items)
        for i = 0, 39 do
            local item = dataset:get(i)
            assert.are.equal(100000 * (i + 1), item.x:to("int64"):sum():item())
            assert.are.equal(i == 19 and 3000000 or 0, #item.big)
        end
    end)

    it("has tensors of one dtype and many shapes, which make no batch", function()
        local dataset = packed {{t = flow.arange(2)}, {t = flow.arange(5)}}
        assert.are.same({5}, dataset:get(1).t.shape)
        assert.is_nil(dataset.fields[1].shape)
        assert.are.equal("batch: the tensors of field 't' have different shapes; read them with get, one at a time",
            message_of(dataset.batch, dataset, flow.tensor {0}))
        packed {{t = flow.zeros(1, 1, 1, 1, 1, 1, 1, 1)}}
        local deep = data.records(path "t.records")
        assert.are.equal("batch: the tensors of field 't' have 8 axes, and a batch of them one too many",
            message_of(deep.batch, deep, flow.tensor {0}))
    end)
end)

describe("data.pack", function()
    it("takes a dataset of items, one of batches, a function, and a loader's batches", function()
        local source = data.tensors(flow.arange(150), flow.arange(300):view(150, 2))
        local info = data.pack(source, path "b.records")
        assert.are.equal(150, info.items)
        local batch = data.records(path "b.records"):batch(flow.tensor {149, 64})
        assert.are.same({149, 64}, batch[1]:totable())
        assert.are.same({{298, 299}, {128, 129}}, batch[2]:totable())
        data.pack(data.records(path "b.records"), path "c.records")
        assert.are.equal(process.read(path "b.records"), process.read(path "c.records"))
        local n = 0
        local info2 = data.pack(function()
            n = n + 1
            return n <= 5 and {n = n} or nil
        end, path "f.records")
        assert.are.equal(5, info2.items)
        assert.are.equal(#process.read(path "f.records"), info2.bytes)
        assert.are.same({1, 2, 3, 4, 5}, data.records(path "f.records"):batch(flow.arange(5)).n:totable())
    end)

    it("packs a folder of images, a class for each folder in it", function()
        local root = path "photos"
        assert(os.execute(("mkdir -p %s/dog/old %s/dog-like %s/cat %s/ant"):format(root, root, root, root)))
        local files = {["cat/1.jpg"] = "meow", ["cat/2.PNG"] = "", ["dog/old/b.jpeg"] = "wau", ["dog/a.png"] = ("w"):rep(100000),
            ["dog-like/c.png"] = "fox", ["top.png"] = "no",
            ["cat/notes.txt"] = "no", ["dog/.hidden.jpg"] = "no"}
        for name, bytes in pairs(files) do process.write(root .. "/" .. name, bytes) end
        for _, workers in ipairs {1, 4} do
            local info = data.pack(root, path "p.records", {workers = workers, metadata = {origin = "here"}})
            assert.are.equal(5, info.items)
            assert.are.equal(2, info.left_out)
            local dataset = data.records(path "p.records")
            assert.are.same({"cat", "dog", "dog-like"}, dataset.classes)
            assert.are.same(dataset.classes, data.images(root).classes)
            assert.are.same(dataset.classes, data.images(path "p.records").classes)
            assert.are.equal("here", dataset.metadata.origin)
            local seen = {}
            for i = 0, #dataset - 1 do
                local item = dataset:get(i)
                seen[i + 1] = item.label .. " " .. item.name
                assert.are.equal(files[item.name], item.image)
            end
            assert.are.same({"0 cat/1.jpg", "0 cat/2.PNG", "1 dog/a.png", "1 dog/old/b.jpeg", "2 dog-like/c.png"}, seen)
        end
        data.pack(root .. "/cat", path "p.records", {extensions = {".txt"}})
        assert.are.same({image = "no", name = "notes.txt"}, data.records(path "p.records"):get(0))
    end)

    it("shows a bar when it is asked to", function()
        local script = write("bar.lua", ([[
            local items = {}
            for i = 1, 40 do items[i] = {n = i} end
            require "flow".data.pack(items, %q, {progress = true})]]):format(path "bar.records"))
        assert.is_truthy(process.output(process.flowlua .. " " .. script):find("item 40/40 .* items/s"))
    end)

    for _, case in ipairs {
        {"no source", {3}, "pack: source must be a folder, a dataset, a list of items or a function that gives them, got 3"},
        {"a folder that is not there", {"/nowhere/x"}, "pack: /nowhere/x: No such file or directory"},
        {"a folder without images", {"src/lua"}, "pack: no file in src/lua or below it ends in .jpg, .jpeg, .png"},
        {"an item that is no table", {{flow.ones(2)}}, "pack: item 0 must be a table of tensors, numbers, strings and booleans, got float32 tensor"},
        {"an item without fields", {{{}}}, "pack: item 0 has no fields"},
        {"a nested table", {{{x = {1}}}}, "pack: item 0: field 'x' must be a tensor, a number, a string or a boolean, got table"},
        {"a nested table in a list", {{{1, {}}}}, "pack: item 0: field 2 must be a tensor, a number, a string or a boolean, got table"},
        {"a key that is no name", {{{[2.5] = 1}}}, "pack: item 0: fields must have names, got a key of type number"},
        {"an empty name", {{{[""] = 1}}}, "pack: item 0: a field has an empty name"},
        {"a NUL in a name", {{{["a\0b"] = 1}}}, "pack: item 0: the name 'a?b' contains a NUL"},
        {"a long name", {{{[("n"):rep(256)] = 1}}}, "pack: item 0: the name '" .. ("n"):rep(40) .. "...' has 256 bytes, more than 255"},
        {"a missing field", {{{a = 1, b = 2}, {a = 1}}}, "pack: item 1 has no field 'b', which item 0 has"},
        {"a field too many", {{{a = 1}, {a = 1, b = 2}}}, "pack: item 1 has the field 'b', which item 0 has not"},
        {"a shorter list", {{{1, 2}, {1}}}, "pack: item 1 has no field 2, which item 0 has"},
        {"a longer list", {{{1}, {1, 2}}}, "pack: item 1 has the field 2, which item 0 has not"},
        {"another kind", {{{a = 1}, {a = "1"}}}, "pack: item 1: field 'a' is a string, not an integer as before"},
        {"another dtype", {{{flow.ones(1)}, {flow.tensor {1}}}}, "pack: item 1: field 1 is an int64 tensor, not a float32 tensor as before"},
        {"metadata that is no JSON", {{{1}}, {metadata = {f = print}}}, nil},
        {"an unknown option", {{{1}}, {worker = 3}}, "pack: unknown option 'worker'; did you mean 'workers'?"},
    } do
        it("refuses " .. case[1] .. ", and leaves the old file", function()
            write("old.records", "old")
            local message = message_of(data.pack, case[2][1], path "old.records", case[2][2])
            if case[3] then assert.are.equal(case[3], message) end
            assert.are.equal("old", process.read(path "old.records"))
            assert.are.equal("", process.output(("ls %s | grep tmp"):format(folder)))
        end)
    end

    it("passes on what an iterator fails with", function()
        assert.is_truthy(message_of(data.pack, function() error "broken pipe" end, path "old.records"):find "broken pipe")
        assert.are.equal("", process.output(("ls %s | grep tmp"):format(folder)))
    end)
end)

describe("parts and several files", function()
    local function numbers(dataset)
        return #dataset == 0 and {} or dataset:batch(flow.arange(#dataset)).n:totable()
    end

    it("share all items out, in their order", function()
        local paths = {}
        local at = 0
        for k, count in ipairs {4, 0, 1, 6} do
            local items = {}
            for i = 1, count do items[i], at = {n = at}, at + 1 end
            paths[k] = path(k .. ".records")
            data.pack(items, paths[k])
        end
        assert.are.same(flow.arange(11):totable(), numbers(data.records(paths)))
        for parts = 1, 13 do
            local all, least, most = {}, 100, 0
            for index = 0, parts - 1 do
                local part = numbers(data.records(paths, {part_index = index, num_parts = parts}))
                least, most = math.min(least, #part), math.max(most, #part)
                table.move(part, 1, #part, #all + 1, all)
            end
            assert.are.same(flow.arange(11):totable(), all)
            assert.is_true(most - least <= 1)
        end
        assert.is_truthy(tostring(data.records(paths, {part_index = 1, num_parts = 3})):find "in 4 files, .*, part 1 of 3$")
    end)

    it("must have the same fields and classes", function()
        data.pack({{a = 1}}, path "1.records", {metadata = {classes = {"x", "y"}, other = 1}})
        data.pack({{a = "1"}}, path "2.records")
        data.pack({{a = 1.5}}, path "3.records", {metadata = {classes = {"x", "z"}}})
        data.pack({{a = 1.5}}, path "4.records", {metadata = {classes = {"x", "y"}, other = 2}})
        assert.are.equal(("records: %s does not fit %s: field 'a' is a string, not an integer as before")
            :format(path "2.records", path "1.records"), message_of(data.records, {path "1.records", path "2.records"}))
        assert.are.equal(("records: %s has other classes than %s"):format(path "3.records", path "1.records"),
            message_of(data.records, {path "1.records", path "3.records"}))
        local dataset = data.records {path "1.records", path "4.records"}
        assert.are.equal("number", dataset.fields[1].type)
        assert.are.same({1, 1.5}, dataset:batch(flow.arange(2)).a:totable())
        assert.are.equal("integer", math.type(dataset:get(0).a))
    end)

    for _, case in ipairs {
        {{path = {}}, "records: takes a path or a list of them, got a table without a list"},
        {{path = {1}}, "records: path 1 must be a string, got 1"},
        {{path = {nil, "a.rec"}}, "records: path 1 must be a string, got nil"},
        {{path = ""}, "records: path 1 is empty"},
        {{path = "/nowhere"}, "records: /nowhere: No such file or directory"},
        {{path = "/tmp"}, "records: /tmp: not a regular file"},
        {{opts = {part_index = 2, num_parts = 2}}, "records: part_index counts from 0 to num_parts - 1, 1; got 2"},
        {{opts = {part_index = 1}}, "records: part_index counts from 0 to num_parts - 1, 0; got 1"},
        {{opts = {corrupt = "skipp"}}, "records: corrupt must be one of error|skip, got 'skipp'; did you mean 'skip'?"},
        {{opts = {fields = {"numbr"}}}, "records: there is no field 'numbr'; did you mean 'number'?"},
        {{opts = {fields = {"n", "n"}}}, "records: field 'n' is given twice"},
        {{opts = {fields = {}}}, "records: fields must be a list of names, got a table without a list"},
    } do
        it("are refused: " .. case[2], function()
            packed {{n = 1, number = 2}}
            assert.are.equal(case[2], message_of(data.records, case[1].path or path "t.records", case[1].opts))
        end)
    end

    it("refuse positions outside", function()
        local dataset = packed(sample(3))
        assert.are.equal("get: position 3 is outside 0 to 2", message_of(dataset.get, dataset, 3))
        assert.are.equal("get: position -4 is outside 0 to 2", message_of(dataset.get, dataset, -4))
        assert.are.equal("batch: position 3 is outside 0 to 2", message_of(dataset.batch, dataset, flow.tensor {0, 3}))
        assert.are.equal("batch: positions must be a 1-D local tensor of whole numbers, got float32 tensor",
            message_of(dataset.batch, dataset, flow.ones(2)))
        assert.are.equal("get: position must be a whole number, got 0.5", message_of(dataset.get, dataset, 0.5))
    end)

    it("are walked by a loader, in the order of its seed", function()
        local plain = {}
        for i = 0, 99 do plain[i + 1] = {n = i, x = flow.full({3}, i)} end
        local dataset, tensors = packed(plain), data.tensors(flow.arange(100))
        local opts = {batch_size = 8, shuffle = true, seed = 3}
        local expected = {}
        for batch in data.loader(tensors, opts) do expected[#expected + 1] = batch[1]:totable() end
        local k = 0
        for batch in data.loader(dataset, opts) do
            k = k + 1
            assert.are.same(expected[k], batch.n:totable())
            assert.are.same(expected[k], batch.x:select(1, 2):totable())
        end
        assert.are.equal(#expected, k)
    end)
end)

-- Writes the file and returns how the records fail, without the file's name.
local function failure(bytes, opts, use)
    local name = write("bad.records", bytes)
    local message = message_of(function()
        local dataset = data.records(name, opts)
        if use then use(dataset) else for i = 0, #dataset - 1 do dataset:get(i) end end
    end)
    local before = "records: " .. name .. ": "
    local at = message:find(before, 1, true)
    assert.are.equal(1, at, message)
    return message:sub(#before + 1)
end

describe("damage", function()
    local whole, places

    setup(function()
        packed(sample(10))
        whole = process.read(path "t.records")
        places = {}
        for at in whole:gmatch "()RECD" do places[#places + 1] = at - 1 end
        assert.are.equal(10, #places)
    end)

    local function flipped(at) return whole:sub(1, at) .. string.char(whole:byte(at + 1) ~ 4) .. whole:sub(at + 2) end

    it("of a record is an error that names record and byte, or left out and counted", function()
        local bad = flipped(places[6] + 100)
        local wanted = ("record 5 at byte %d: its checksum is wrong, the file is damaged"):format(places[6])
        assert.are.equal(wanted, failure(bad))
        assert.are.equal(wanted, failure(bad, nil, function(d) return d:batch(flow.arange(10)) end))
        assert.are.equal(wanted, failure(bad, {fields = {"n"}}, function(d) return d:batch(flow.arange(10)).n:sum():item() end))
        for _, workers in ipairs {1, 4} do
            local dataset = data.records(path "bad.records", {corrupt = "skip", workers = workers})
            assert.are.equal(9, #dataset)
            assert.are.equal(1, dataset.skipped)
            assert.are.same({0, 1, 2, 3, 4, 6, 7, 8, 9}, dataset:batch(flow.arange(9)).n:totable())
            assert.is_truthy(tostring(dataset):find "records: 9 items .*, 1 corrupt left out$")
        end
        local halves = {}
        for index = 0, 1 do
            local part = data.records(path "bad.records", {corrupt = "skip", part_index = index, num_parts = 2})
            halves[index + 1] = part:batch(flow.arange(#part)).n:totable()
        end
        assert.are.same({{0, 1, 2, 3, 4}, {6, 7, 8, 9}}, halves)
    end)

    it("anywhere never passes unseen", function()
        local good = {}
        local dataset = data.records(write("bad.records", whole))
        for i = 0, 9 do good[i] = dataset:get(i).s .. dataset:get(i).n end
        for at = 0, #whole - 1, 7 do
            local ok, other = pcall(data.records, write("bad.records", flipped(at)))
            for i = 0, ok and #other - 1 or -1 do
                local fine, item = pcall(other.get, other, i)
                assert.is_true(not fine or item.s .. item.n == good[i], at)
            end
        end
    end)

    it("is not looked for in records without checksums, but structure is", function()
        local dataset = data.records(write("bad.records", flipped(places[1] + 200)), {checksum = false})
        for i = 0, 9 do dataset:get(i) end
        assert.are.equal(("record 2 at byte %d: no record begins there"):format(places[3]), failure(flipped(places[3]), {checksum = false}))
    end)

    it("of the end: an error that says what can still be read", function()
        local said = "; corrupt = \"skip\" reads the 10 records of its whole chunks"
        assert.are.equal("the file has no index at its end: its writer has not finished, or it was cut" .. said, failure(whole:sub(1, -2)))
        assert.are.equal("the end of the file is damaged" .. said, failure(flipped(#whole - 30)))
        assert.are.equal("the index is damaged" .. said, failure(flipped(#whole - 100)))
        for _, bad in ipairs {whole:sub(1, -2), flipped(#whole - 100), whole .. "more"} do
            local dataset = data.records(write("bad.records", bad), {corrupt = "skip"})
            assert.are.equal(10, #dataset)
            assert.are.equal(0, dataset.skipped)
            assert.are.same(flow.arange(10):totable(), dataset:batch(flow.arange(10)).n:totable())
            assert.are.same({2, 3}, dataset.fields[5].shape)
        end
    end)

    it("of a record in a file without an index leaves out what cannot be found", function()
        local cut = flipped(places[4] + 9):sub(1, -100)         -- the length of record 3 lies
        local dataset = data.records(write("bad.records", cut), {corrupt = "skip"})
        assert.are.equal(3, #dataset)
        assert.are.equal(7, dataset.skipped)
        dataset = data.records(write("bad.records", flipped(places[4] + 100):sub(1, -100)), {corrupt = "skip"})
        assert.are.equal(9, #dataset)
        assert.are.equal(1, dataset.skipped)
    end)

    it("at any length is an error or whole records", function()
        for length = 0, #whole - 1, 11 do
            local ok, result = pcall(data.records, write("bad.records", whole:sub(1, length)), {corrupt = "skip"})
            if ok then
                for i = 0, #result - 1 do assert.are.equal(i, result:get(i).n) end
            else
                assert.is_truthy(result:find("records: " .. path "bad.records", 1, true))
            end
            assert.is_false(pcall(data.records, path "bad.records"))
        end
    end)

    it("of a writer that was killed leaves whole chunks", function()
        local script = write("die.lua", ([[
            local flow = require "flow"
            local n = 0
            flow.data.pack(function()
                n = n + 1
                if n == 100 then os.execute("kill -9 $PPID") end
                return {n = n - 1, x = ("x"):rep(50000)}
            end, %q)]]):format(path "dead.records"))
        process.output(process.flowlua .. " " .. script .. " 2>/dev/null")
        local left = process.output(("ls %s/dead.records*tmp"):format(folder)):match "[^\n]+"
        assert.is_false(pcall(data.records, left))
        local dataset = data.records(left, {corrupt = "skip"})
        assert.is_true(#dataset >= 60 and #dataset < 100, #dataset)
        assert.are.equal(#dataset - 1, dataset:get(-1).n)
        data.pack({{1}}, path "dead.records")                   -- removes it
        assert.is_false(process.exists(left))
    end)

    it("by another process that cuts the file is an error, not a signal", function()
        local big = {}
        for i = 1, 30 do big[i] = {x = flow.full({50000}, i, {dtype = "uint8"})} end
        for _, checksum in ipairs {true, false} do
            local dataset = packed(big)
            dataset = data.records(path "t.records", {checksum = checksum})
            assert.is_true(dataset:batch(flow.tensor {0}).x:numel() > 0)
            assert(os.execute(("truncate -s 70000 %s"):format(path "t.records")))
            assert.is_truthy(message_of(function() dataset:batch(flow.arange(30)).x:sum():item() end)
                :find "record %d+: the file has become shorter, or cannot be read there any more")
            assert.is_truthy(message_of(dataset.get, dataset, 20):find "the file has become shorter")
        end
    end)

    it("by another format is named", function()
        assert.are.equal("this is a RecordIO file of MXNet; flow.data.pack makes record files",
            failure("\x0a\x23\xd7\xce" .. ("\0"):rep(100)))
        for _, text in ipairs {"", "x", "\137PNG\r\n\26\n", ("{}"):rep(100)} do
            assert.are.equal("not a record file, as flow.data.pack makes them", failure(text))
        end
    end)
end)

describe("a file made to do harm", function()
    local x = {kind = "tensor", dtype = 1, shape = {4}, name = "x", value = "abcd"}
    local s = {kind = "string", name = "s", value = "text"}

    local function with(field, changes)
        local copy = {}
        for key, value in pairs(field) do copy[key] = value end
        for key, value in pairs(changes) do copy[key] = value end
        return copy
    end

    it("is told from a good one", function()
        local dataset = data.records(write("bad.records", (bytes_of.file {{x, s}, {x, s}})))
        assert.are.equal(2, #dataset)
        assert.are.same({97, 98, 99, 100}, dataset:get(1).x:totable())
        assert.are.equal("text", dataset:get(0).s)
    end)

    for _, case in ipairs {
        {"a tensor larger than its bytes", {with(x, {shape = {5}})}, nil, "the bytes of a tensor do not fit its shape"},
        {"a shape whose product overflows", {with(x, {shape = {1 << 40, 1 << 40}})}, {x}, "the shape of a field has impossible sizes"},
        {"a negative size", {with(x, {shape = {-4}})}, {x}, "the shape of a field has impossible sizes"},
        {"nine axes", {with(x, {ndim = 9})}, {x}, "a field has too many axes"},
        {"an unknown dtype", {with(x, {dtype = 9})}, {x}, "a field has an unknown dtype"},
        {"an unknown kind", {with(x, {kind = 6})}, {x}, "a field is of an unknown kind"},
        {"a value longer than the record", {with(s, {bytes = 1 << 40})}, nil, "its values are cut off"},
        {"a value longer than a file", {with(s, {bytes = math.mininteger})}, nil, "a field is longer than a file can be"},
        {"a name that ends later", {with(s, {name_bytes = 200})}, nil, "the descriptions of its fields are cut off"},
        {"a NUL in a name", {with(s, {name = "s\0s"})}, {s}, "the name of a field contains a NUL"},
        {"another name", {with(s, {name = "t"})}, {s}, "its fields are not those of the file"},
        {"another kind", {with(x, {name = "s"})}, {s}, "its fields are not those of the file"},
        {"another shape", {with(x, {shape = {2, 2}})}, {x}, "its fields are not those of the file"},
        {"a number of two bytes", {{kind = "integer", name = "n", value = "ab"}}, nil, "a number does not have 8 bytes"},
        {"a boolean that is 2", {{kind = "boolean", name = "n", value = "\2"}}, nil, "a boolean is neither 0 nor 1"},
        {"a bool tensor with a 7", {with(x, {dtype = 0, value = "\1\7\0\1"})}, nil, "an element of a bool tensor is neither 0 nor 1"},
        {"bytes that are no value", {x, lies = {more = ("\0"):rep(8)}}, nil, "its length is not that of its values"},
        {"a length beyond the file", {x, lies = {bytes = 1 << 40}}, nil, "its length is impossible"},
        {"a length below the head", {x, lies = {bytes = 8}}, nil, "its length is impossible"},
        {"an odd length", {x, lies = {bytes = 33}}, nil, "its length is impossible"},
        {"fields that are not there", {x, lies = {fields = 200}}, nil, "its fields are not those of the file"},
        {"the number of another", {x, lies = {number = 1}}, nil, "another record is in its place"},
        {"another magic", {x, lies = {magic = 1}}, nil, "no record begins there"},
    } do
        it("by " .. case[1] .. " is refused", function()
            local bytes, places = bytes_of.file({case[2]}, {schema = case[3]})
            assert.are.equal(("record 0 at byte %d: %s"):format(places[1], case[4]), failure(bytes))
            assert.are.equal(0, #data.records(path "bad.records", {corrupt = "skip"}))
        end)
    end

    for _, case in ipairs {
        {"places outside", {places = {1 << 40}}, "the index gives an impossible place for record 0"},
        {"negative places", {places = {-8}}, "the index gives an impossible place for record 0"},
        {"places in the head", {places = {0}}, "the index gives an impossible place for record 0"},
        {"odd places", {places = {193}}, "the index gives an impossible place for record 0"},
        {"places twice", {places = {192, 192}}, "the index gives an impossible place for record 1"},
        {"places that overlap", {places = {192, 200}}, "the index gives an impossible place for record 1"},
        {"a count that overflows", {count = (1 << 61) + 1}, "the end of the file gives an impossible place for the index"},
        {"a negative count", {count = -1}, "the end of the file gives an impossible place for the index"},
        {"a tail beyond the file", {tail = 1 << 50}, "the end of the file gives an impossible place for the index"},
        {"a tail before the data", {tail = 0}, "the end of the file gives an impossible place for the index"},
        {"a schema beyond the file", {schema_bytes = 1 << 62}, "the end of the file gives an impossible place for the index"},
        {"a schema that ends early", {schema_bytes = 0}, nil},
        {"a schema of many fields", {schema_count = 300}, "the schema is damaged"},
        {"a schema with names twice", {schema = {x, x}}, "the schema: field 'x' is there twice"},
        {"a schema without names", {schema = {with(x, {name = ""})}}, "the schema: a field has an empty name"},
        {"a schema without fields", {schema = {}}, "the schema has no fields"},
        {"a schema with a wrong flag", {fixed = 2}, "the schema: it is damaged"},
        {"a version of the future", {version = 2}, "version 2 of the format is not known, only 1"},
        {"metadata beyond the file", {metadata_bytes = 1 << 26}, "the metadata is cut off"},
        {"metadata longer than memory", {metadata_bytes = -1}, "the metadata is cut off"},
        {"metadata that is no JSON", {metadata = "{"}, nil},
    } do
        it("by " .. case[1] .. " is refused", function()
            local said = failure((bytes_of.file({{x}, {x}}, case[2])))
            if case[3] then assert.are.equal(case[3], (said:gsub("; corrupt = .*", ""))) end
        end)
    end

    it("by an index to records in another order is refused", function()
        local bytes, places = bytes_of.file {{x, lies = {number = 1}}, {x, lies = {number = 0}}}
        assert.are.equal(("record 0 at byte %d: another record is in its place"):format(places[1]), failure(bytes))
    end)

    it("by chunks that lie ends where they begin to", function()
        local head, good = bytes_of.head "{}", bytes_of.record({x}, 0)
        local function found(chunk) return #data.records(write("bad.records", head .. chunk), {corrupt = "skip"}) end
        assert.are.equal(1, found(bytes_of.chunk({good}, 0)))
        assert.are.equal(0, found(bytes_of.chunk({good}, 0, {bytes = 1 << 40})))
        assert.are.equal(0, found(bytes_of.chunk({good}, 0, {bytes = 32})))
        assert.are.equal(0, found(bytes_of.chunk({good}, 0, {first = 1})))
        assert.are.equal(0, found(bytes_of.chunk({good}, 0, {count = 0xffffffff})))
        assert.are.equal(1, found(bytes_of.chunk({good}, 0, {count = 2})))
        assert.are.equal(2, found(bytes_of.chunk({good}, 0) .. bytes_of.chunk({bytes_of.record({x}, 1)}, 1)))
        assert.are.equal(0, found(bytes_of.chunk({bytes_of.record({}, 0)}, 0)))
    end)
end)
