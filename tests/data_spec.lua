-- data_spec.lua -- readers, datasets, and what data and progress refuse.
local flow = require "flow"
local process = require "tests.process"
local data, progress = flow.data, flow.progress

local folder, write

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("IDX files", function()
    for _, case in ipairs {
        {"uint8", "\0\0\8\2\0\0\0\2\0\0\0\3\1\2\3\4\5\255", {{1, 2, 3}, {4, 5, 255}}, "uint8"},
        {"int8", "\0\0\9\1\0\0\0\2\255\1", {-1, 1}, "int8"},
        {"int16", "\0\0\11\1\0\0\0\2\255\254\1\0", {-2, 256}, "int32"},
        {"int32", "\0\0\12\1\0\0\0\1" .. (">i4"):pack(-70000), {-70000}, "int32"},
        {"float32", "\0\0\13\1\0\0\0\1" .. (">f"):pack(1.5), {1.5}, "float32"},
        {"float64", "\0\0\14\1\0\0\0\1" .. (">d"):pack(0.1), {0.1}, "float64"},
        {"no elements", "\0\0\8\1\0\0\0\0", {}, "uint8"},
    } do
        it("of " .. case[1] .. " are read, plain and compressed", function()
            local name = write("a.idx", case[2])
            local t = data.idx(name)
            assert.are.equal(case[4], t.dtype)
            assert.are.same(case[3], t:totable())
            assert(os.execute("gzip -kf " .. name))
            assert.are.same(case[3], data.idx(name .. ".gz"):totable())
        end)
    end

    for _, case in ipairs {
        {"an empty file", "", "the file ends early"},
        {"a short head", "\0\0\8", "the file ends early"},
        {"another format", "PNG\13\0\0\0\0", "not an IDX file"},
        {"an unknown type", "\0\0\7\1\0\0\0\1\1", "not an IDX file"},
        {"nine axes", "\0\0\8\9" .. ("\0\0\0\1"):rep(9) .. "\1", "9 axes are more than 8"},
        {"missing sizes", "\0\0\8\3\0\0\0\1", "the file ends early"},
        {"missing elements", "\0\0\8\1\0\0\0\9\1\2\3", "the file ends early"},
        {"sizes that promise 4 GB", "\0\0\8\1\255\255\255\255\1", "the file ends early"},
        {"sizes whose product overflows", "\0\0\14\3" .. ("\255"):rep(12), nil},
        {"more bytes than elements", "\0\0\8\1\0\0\0\1\1\2", "bytes after the last element"},
    } do
        it("with " .. case[1] .. " are refused", function()
            local name = write("bad.idx", case[2])
            local ok, message = pcall(data.idx, name)
            assert.is_false(ok)
            if case[3] then assert.are.equal(("idx: %s: %s"):format(name, case[3]), (message:gsub("^.-:%d+: ", "", 1))) end
        end)
    end

    it("cut off or damaged in their compressed form are refused", function()
        local name = write("z.idx", "\0\0\8\1\0\0\3\232" .. ("0123456789"):rep(100))
        assert(os.execute("gzip -kf " .. name))
        local bytes = process.read(name .. ".gz")
        for length = 1, #bytes - 1 do assert.is_false(pcall(data.idx, write("cut.gz", bytes:sub(1, length)))) end
        assert.is_false(pcall(data.idx, write("cut.gz", bytes:sub(1, -6) .. "\0" .. bytes:sub(-4))))
    end)

    it("that promise more than deflate can hold are refused from the header", function()
        local name = write("claim.idx", "\0\0\8\2\0\16\0\0\0\0\4\0" .. ("\0"):rep(1000))        -- 1 GiB
        assert(os.execute("gzip -9 -nf " .. name))
        local size = #process.read(name .. ".gz")
        local ok, message = pcall(data.idx, name .. ".gz")
        assert.is_false(ok)
        assert.are.equal(("idx: %s.gz: the header promises 1073741824 bytes of elements; %d compressed bytes hold at most 1032 times as many")
            :format(name, size), (message:gsub("^.-:%d+: ", "", 1)))
        -- The ratio of deflated zeros comes near that, and is read.
        name = write("zeros.idx", "\0\0\8\1\0\64\0\0" .. ("\0"):rep(1 << 22))
        assert(os.execute("gzip -9 -nf " .. name))
        assert.are.equal(0, data.idx(name .. ".gz"):max():item())
    end)

    it("that are not there or no files are errors", function()
        assert.matches("No such file", select(2, pcall(data.idx, folder .. "/none")))
        assert.matches("not a regular file", select(2, pcall(data.idx, folder)))
        assert.is_false(pcall(data.idx))
    end)
end)

-- {function, what its messages begin with, call}: everything that opens a path for reading or writing.
describe("a path", function()
    local openers = {
        {"data.read", "read", data.read}, {"data.read of a list", "read", function(path) return data.read {path} end},
        {"data.idx", "idx", data.idx}, {"data.mnist", "mnist", data.mnist}, {"data.files", "files", data.files}, {"flow.load", "load", flow.load},
        {"flow.load, lazy", "load", function(path) return flow.load(path, {lazy = true}) end},
        {"flow.save", "save", function(path) flow.save(path, {x = 1}) end}, {"data.images", "images", data.images},
        {"data.tokenizer", "tokenizer", data.tokenizer},
        {"data.pack", "pack", function(path) data.pack(path, folder .. "/none.records") end},
    }
    for _, case in ipairs(openers) do
        it(("with a NUL is refused by %s"):format(case[1]), function()
            local name = write("good", "text")
            local ok, message = pcall(case[3], name .. "\0.txt")
            assert.is_false(ok)
            assert.matches(("^.-data_spec.lua:%%d+: %s: the path '[^%%z]*' continues after a NUL; a path cannot contain one$"):format(case[2]), message)
        end)
    end

    for _, case in ipairs(openers) do
        it(("that is empty is refused by %s"):format(case[1]), function()
            assert.matches(case[2] .. ": the path is empty$", select(2, pcall(case[3], "")))
        end)
    end

    it("of a pipe, a device or a folder neither blocks nor is read for ever", function()
        local pipe = folder .. "/pipe"
        assert(os.execute("mkfifo " .. pipe))
        for _, case in ipairs {openers[1], openers[2], openers[3], openers[6], openers[7]} do
            for _, path in ipairs {pipe, "/dev/zero", "/dev/tty", "/dev/random", folder} do
                local ok, message = pcall(case[3], path)
                assert.is_false(ok)
                if path ~= "/dev/tty" then assert.matches(("%s: %s: not a regular file$"):format(case[2], path:gsub("%p", "%%%0")), message) end
            end
        end
    end)

    it("of a folder without MNIST's files says what is missing", function()
        local mnist = folder .. "/nothing"
        assert(os.execute("mkdir " .. mnist))
        local missing = "mnist: neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz is in " .. mnist
        assert.are.equal(missing, select(2, pcall(data.mnist, mnist)):gsub("^.-:%d+: ", ""))
        assert.matches("mnist: /etc/passwd: Not a directory$", select(2, pcall(data.mnist, "/etc/passwd")))
    end)

    it("of a pipe among MNIST's files does not block", function()
        local mnist = folder .. "/pipes"
        assert(os.execute(("mkdir %s && mkfifo %s/train-images-idx3-ubyte"):format(mnist, mnist)))
        assert.matches("idx: .*/train%-images%-idx3%-ubyte: not a regular file$", select(2, pcall(data.mnist, mnist)))
    end)

    it("in a message cannot change the terminal", function()
        assert.matches("read: \\x1b%[31mnone: No such file", select(2, pcall(data.read, "\27[31mnone")))
    end)
end)

describe("text", function()
    it("is numbered by the order of its characters", function()
        local text = data.text("hello")
        assert.are.same({"e", "h", "l", "o"}, text.characters)
        assert.are.same({1, 0, 2, 2, 3}, text.tokens:totable())
        assert.are.equal("uint8", text.tokens.dtype)
        assert.are.same({1, 3}, text:encode("ho"):totable())
        assert.are.equal("int64", text:encode("").dtype)
        assert.are.equal("hole", text:decode({1, 3, 2, 0}))
        assert.are.equal("hello", text:decode(text.tokens))
    end)

    it("may have any characters, or be bytes", function()
        local text = data.text("aé漢😀a")
        assert.are.same({"a", "é", "漢", "😀"}, text.characters)
        assert.are.same({0, 1, 2, 3, 0}, text.tokens:totable())
        local bytes = data.text("a\255\0a")
        assert.are.same({"\0", "a", "\255"}, bytes.characters)
        assert.are.same({1, 2, 0, 1}, bytes.tokens:totable())
        for _, bad in ipairs {"\192\128", "\237\160\128", "\244\144\128\128", "\226\130", "\128"} do
            assert.are.equal(#bad, data.text(bad).tokens:numel())       -- not UTF-8: one number per byte
        end
        local many = {}
        for i = 1, 300 do many[i] = utf8.char(0x4e00 + i) end
        assert.are.equal("int32", data.text(table.concat(many)).tokens.dtype)
        assert.are.equal(0, data.text("").tokens:numel())
    end)

    it("has no other characters", function()
        local text = data.text("abc")
        assert.matches("encode: the text has no character \"x\"", select(2, pcall(text.encode, text, "x")))
        assert.matches("decode: there is no character 3", select(2, pcall(text.decode, text, {3})))
        assert.is_false(pcall(data.text, nil))
    end)

    it("comes from files, one after the other", function()
        local a, b = write("a.txt", "one\n"), write("b.txt", "two\n")
        assert.are.equal("one\ntwo\n", data.read({a, b}))
        assert.are.equal("one\n", data.read(a))
        assert.matches("No such file", select(2, pcall(data.read, folder .. "/none")))
        assert.is_false(pcall(data.read, folder))
        assert.are.equal(16, #data.hash("x"))
        assert.are_not.equal(data.hash("x"), data.hash("y"))
    end)

    it("files of a folder come sorted, hidden ones and links left out", function()
        local command = "cd %s && mkdir -p tree/b tree/.git && touch tree/b/z tree/b/a tree/c tree/.x tree/.git/y"
        assert(os.execute((command .. " && ln -s c tree/l"):format(folder)))
        assert.are.same({"b/a", "b/z", "c"}, data.files(folder .. "/tree"))
        assert.is_false(pcall(data.files, folder .. "/none"))
    end)
end)

describe("datasets", function()
    it("of tensors give rows", function()
        local set = data.tensors(flow.arange(10):view(5, 2), flow.arange(5))
        assert.are.equal(5, #set)
        local batch = set:batch(flow.tensor({3, 0}))
        assert.are.same({{6, 7}, {0, 1}}, batch[1]:totable())
        assert.are.same({3, 0}, batch[2]:totable())
        assert.matches("tensors: argument 2 has shape %[4%], the first one %[5%]",
            select(2, pcall(data.tensors, flow.ones(5), flow.ones(4))))
        assert.matches("tensors: argument 1 has no axis of rows, its shape is %[%]",
            select(2, pcall(data.tensors, flow.tensor(3))))
    end)

    it("of windows give pieces and what follows", function()
        local set = data.windows(flow.arange(10):to("uint8"), 3)
        assert.are.equal(7, #set)
        local batch = set:batch(flow.tensor({0, 6}))
        assert.are.same({{0, 1, 2}, {6, 7, 8}}, batch[1]:totable())
        assert.are.same({{1, 2, 3}, {7, 8, 9}}, batch[2]:totable())
        assert.are.equal("int64", batch[1].dtype)
        local wide = data.windows(flow.arange(10), 3, {stride = 3})
        assert.are.equal(3, #wide)
        assert.are.same({{3, 4, 5}}, wide:batch(flow.tensor({1}))[1]:totable())
        assert.are.equal(1, #data.windows(flow.arange(4), 3))
        assert.is_false(pcall(data.windows, flow.arange(3), 3))
        assert.is_false(pcall(data.windows, flow.arange(3), 0))
    end)
end)

describe("arguments of data and progress", function()
    local set, text, bar = data.tensors(flow.arange(3)), data.text "abc", progress.bar(3, {width = 0})
    local windows, loader = data.windows(flow.arange(9), 3), data.loader(data.tensors(flow.arange(3)))
    for _, case in ipairs {
        {function() data.read() end, "read: missing argument 'paths'"},
        {function() data.read(3) end, "read: paths must be a string or a table, got 3"},
        {function() data.read({"README.md", 3}) end, "read: path 2 must be a string, got 3"},
        {function() data.read({name = "a"}) end, "read: takes a path or a list of them, got a table without a list"},
        {function() data.read({}) end, "read: takes a path or a list of them, got a table without a list"},
        {function() data.files(true) end, "files: folder must be a string, got true"},
        {function() data.hash(flow.ones(1)) end, "hash: text must be a string, got float32 tensor"},
        {function() data.idx() end, "idx: missing argument 'path'"},
        {function() data.idx({"a"}) end, "idx: path must be a string, got table"},
        {function() data.mnist(nil) end, "mnist: folder must be a string, got nil"},
        {function() data.text(3) end, "text: text must be a string, got 3"},
        {function() data.text("a", "b") end, "text: too many arguments: text(text: string)"},
        {function() data.tensors() end, "tensors: takes one tensor or more"},
        {function() data.tensors(flow.ones(2), 3) end, "tensors: argument 2 must be a tensor, got 3"},
        {function() data.windows(3, 3) end, "windows: tokens must be a tensor, got 3"},
        {function() data.windows(flow.arange(9), 1.5) end, "windows: length must be a whole number >= 1, got 1.5"},
        {function() data.windows(flow.arange(9), 3, {strid = 2}) end,
            "windows: unknown option 'strid'; did you mean 'stride'?"},
        {function() data.windows(flow.arange(9), 3, {stride = 0}) end,
            "windows: stride must be a whole number >= 1, got 0"},
        {function() data.windows(flow.arange(9), 3, 2) end, "windows: options must be a table with names, got 2"},
        {function() data.loader() end, "loader: missing argument 'dataset'"},
        {function() data.loader(set, {shuffle = 1}) end, "loader: shuffle must be true or false, got 1"},
        {function() data.loader(set, {seed = "x"}) end, "loader: seed must be a whole number, got 'x'"},
        {function() data.loader(set, {placement = 3, sbp = "B"}) end,
            "loader: placement must be a placement, as flow.placement gives, got 3"},
        {function() data.loader(set, {}, 3) end, "loader: too many arguments"},
        {function() loader.next() end, "next: a method is called with a colon, loader:next(); got nil as the loader"},
        {function() loader:next(1) end, "next: too many arguments: next()"},
        {function() loader:load_state() end, "load_state: missing argument 'state'"},
        {function() text.encode("a") end,
            "encode: a method is called with a colon, text:encode(); got 'a' as the text"},
        {function() text:encode(3) end, "encode: s must be a string, got 3"},
        {function() text:decode("ab") end, "decode: numbers must be a tensor or a table, got 'ab'"},
        {function() text:decode({0, "1"}) end, "decode: entry 2 of numbers must be a number, got '1'"},
        {function() text:decode({0, 1.5}) end, "decode: there is no character 1.5"},
        {function() text:decode(flow.zeros(2, 2)) end, "decode: numbers must have one axis, got shape [2, 2]"},
        {function() set:batch(3) end, "batch: positions must be a 1-D local tensor of whole numbers, got 3"},
        {function() windows:batch() end, "batch: missing argument 'positions'"},
        {function() progress.bar() end, "bar: missing argument 'total'"},
        {function() progress.bar(-1) end, "bar: total must be a whole number >= 0, got -1"},
        {function() progress.bar(3, {strat = 1}) end, "bar: unknown option 'strat'; did you mean 'start'?"},
        {function() progress.duration("x") end, "duration: seconds must be a number, got 'x'"},
        {function() bar:update() end, "update: missing argument 'step'"},
        {function() bar:update(1, 2) end, "update: text must be a string or a function, got 2"},
        {function() bar:update(1, print, 2) end,
            "update: too many arguments: update(step: integer >= 0, text: string or function?)"},
        {function() bar.update(1) end, "update: a method is called with a colon, bar:update(); got 1 as the bar"},
        {function() bar:rate(1) end, "rate: too many arguments: rate()"},
    } do
        it("are checked: " .. case[2], function()
            local ok, message = pcall(case[1])
            assert.is_false(ok)
            assert.matches("^tests/data_spec.lua:%d+: ", message)
            message = message:gsub("^.-:%d+: ", "")
            assert.are.equal(case[2], message:sub(1, case[2]:find("loader: too many", 1, true) and #case[2] or -1))
        end)
    end
end)

describe("misspelt names", function()
    local loader = data.loader(data.tensors(flow.arange(3)))
    local opt = flow.optim.SGD({flow.ones(1, {requires_grad = true})})
    for _, case in ipairs {
        {function() return flow.nn.Linaer end, "nn has no 'Linaer'; did you mean 'Linear'?"},
        {function() return flow.nn.init.norml end, "nn.init has no 'norml'; did you mean 'normal'?"},
        {function() return flow.optim.AdmW end, "optim has no 'AdmW'; did you mean 'AdamW'?"},
        {function() return flow.optim.schedule.cosin end, "optim.schedule has no 'cosin'; did you mean 'cosine'?"},
        {function() return data.loadr end, "data has no 'loadr'; did you mean 'loader'?"},
        {function() return loader:sate() end, "Loader has no 'sate'; did you mean 'state'?"},
        {function() return opt:zero_gard() end, "Optimizer has no 'zero_gard'; did you mean 'zero_grad'?"},
        {function() return progress.bar(3):updaet() end, "Bar has no 'updaet'; did you mean 'update'?"},
    } do
        it("say: " .. case[2], function()
            local ok, message = pcall(case[1])
            assert.is_false(ok)
            assert.are.equal(case[2], (message:gsub("^.-data_spec.lua:%d+: ", "")))
        end)
    end
end)
