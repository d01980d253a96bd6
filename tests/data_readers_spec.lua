-- data_readers_spec.lua -- NumPy's files.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local data = flow.data

local folder, write
setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local message_of = support.message_of

-- A .npy file: its dtype, shape and order as NumPy writes them, and the bytes of its elements.
local function npy(descr, shape, bytes, order, version)
    local header = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }"):format(descr, order or "False", shape)
    local length = (version or 1) == 1 and "<s2" or "<s4"
    header = header .. (" "):rep(-(8 + length:pack(""):len() + #header + 1) % 16) .. "\n"
    return "\x93NUMPY" .. string.char(version or 1, 0) .. length:pack(header) .. bytes
end

local function packed(format, values)
    local parts = {}
    for i, value in ipairs(values) do parts[i] = format:pack(value) end
    return table.concat(parts)
end

describe("data.npy", function()
    for _, case in ipairs {
        {"|b1", "<B", {0, 1, 7}, "bool", {false, true, true}}, {"|u1", "<B", {0, 255}, "uint8"}, {"|i1", "<b", {-128, 127}, "int8"},
        {"<i2", "<i2", {-32768, 5}, "int32"}, {">i2", ">i2", {-32768, 5}, "int32"}, {"<u2", "<I2", {65535}, "int32"},
        {"<i4", "<i4", {-70000, 3}, "int32"}, {">i4", ">i4", {-70000, 3}, "int32"}, {"<u4", "<I4", {4294967295, 1}, "int64"},
        {">u4", ">I4", {4294967295, 1}, "int64"}, {"<i8", "<i8", {math.mininteger, 1}, "int64"}, {">i8", ">i8", {math.mininteger, 1}, "int64"},
        {"<u8", "<I8", {math.maxinteger}, "int64"}, {"<f2", "<I2", {0x3c00, 0xc000}, "float16", {1, -2}},
        {">f2", ">I2", {0x3c00, 0xc000}, "float16", {1, -2}}, {"<f4", "<f", {1.5, -0.25}, "float32"}, {">f4", ">f", {1.5, -0.25}, "float32"},
        {"<f8", "<d", {0.1, math.huge}, "float64"}, {">f8", ">d", {0.1, math.huge}, "float64"}, {"=f4", "=f", {1.5}, "float32"},
    } do
        it("reads " .. case[1], function()
            local t = data.npy(write("a.npy", npy("'" .. case[1] .. "'", ("(%d,)"):format(#case[3]), packed(case[2], case[3]))))
            assert.are.equal(case[4], t.dtype)
            assert.are.same(case[5] or case[3], t:totable())
        end)
    end

    it("reads the versions of the format", function()
        for version = 1, 3 do
            assert.are.same({1, 2}, data.npy(write("v.npy", npy("'<i4'", "(2,)", ("<i4i4"):pack(1, 2), "False", version))):totable())
        end
    end)

    it("reads arrays in Fortran's order, without axes, without elements, and of Python 2", function()
        local bytes = packed("<i4", {1, 4, 2, 5, 3, 6})
        for _, map in ipairs {false, true} do
            local path = write("f.npy", npy("'<i4'", "(2, 3)", bytes, "True"))
            assert.are.same({{1, 2, 3}, {4, 5, 6}}, data.npy(path, {map = map}):totable())
            path = write("s.npy", npy("'<f4'", "()", ("<f"):pack(2.5)))
            assert.are.equal(2.5, data.npy(path, {map = map}):item())
            local empty = data.npy(write("e.npy", npy("'<f4'", "(0, 3)", "")), {map = map})
            assert.are.same({0, 3}, {table.unpack(empty.shape)})
        end
        assert.are.same({{1, 4, 2}, {5, 3, 6}}, data.npy(write("p.npy", npy('"<i4"', "(2L, 3L)", bytes))):totable())
        assert.is_true(data.npy(folder .. "/f.npy"):is_contiguous())
    end)

    it("reads files that gzip has compressed, also in several parts", function()
        local path = write("z.npy", npy("'<i4'", "(2,)", ("<i4i4"):pack(1, 2)))
        assert(os.execute(("gzip -kf %s"):format(path)))
        assert.are.same({1, 2}, data.npy(path .. ".gz"):totable())
        local bytes = process.read(path)
        local parts = {}
        for i, part in ipairs {bytes:sub(1, 20), bytes:sub(21)} do
            assert(os.execute("gzip -f " .. write("part" .. i, part)))
            parts[i] = process.read(folder .. "/part" .. i .. ".gz")
        end
        assert.are.same({1, 2}, data.npy(write("two.gz", parts[1] .. parts[2])):totable())
        assert.are.equal(("npy: %s: bytes after the compressed data"):format(write("two.gz", parts[1] .. parts[2] .. "x")),
            message_of(data.npy, folder .. "/two.gz"))
        for length = 1, #parts[1] + #parts[2] - 1 do
            assert.is_false(pcall(data.npy, write("cut.gz", (parts[1] .. parts[2]):sub(1, length))))
        end
    end)

    for _, case in ipairs {
        {"an empty file", "", "not a .npy file"}, {"another format", "PK\3\4xxxxxxxxx", "not a .npy file"},
        {"a short head", "\x93NUMPY\1", "the file ends early"}, {"an unknown version", "\x93NUMPY\4\0\1\0 ", "version 4.0 of the format is unknown"},
        {"a header that is longer than the file", "\x93NUMPY\1\0\255\0{", "the file ends early"},
        {"a header that claims 4 GiB", "\x93NUMPY\2\0\255\255\255\255{", "its header is longer than 1 MiB"},
        {"no dictionary", "\x93NUMPY\1\0" .. ("<s2"):pack("[1, 2]"), "its header is damaged near '[1, 2]'"},
        {"a key twice", "\x93NUMPY\1\0" .. ("<s2"):pack("{'shape': (), 'shape': ()}"), "its header is damaged near '()}'"},
        {"an unknown key", "\x93NUMPY\1\0" .. ("<s2"):pack("{'shapes': ()}"), "its header is damaged near '()}'"},
        {"keys that are missing", "\x93NUMPY\1\0" .. ("<s2"):pack("{'shape': (), }"), "its header lacks one of 'descr', 'fortran_order' and 'shape'"},
        {"a negative size", npy("'<f4'", "(-1,)", ""), "its header is damaged near '-1,), }'", true},
        {"sizes beyond 64 bits", npy("'<f4'", "(99999999999999999999,)", ""), "its header is damaged near '99,), }'", true},
        {"sizes that overflow", npy("'<f4'", "(4294967296, 4294967296)", ""), nil},
        {"a number for a tuple", npy("'<f4'", "(3)", ""), "its header is damaged near '), }'", true},
        {"nine axes", npy("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", "1234"), "more than 8 axes"},
        {"missing elements", npy("'<f4'", "(3,)", "12345678901"), "the file ends early"},
        {"elements that claim terabytes", npy("'<f4'", "(1000000000000,)", "1234"), "the file ends early"},
        {"more bytes than elements", npy("'<f4'", "(1,)", "12345"), "bytes after the last element"},
        {"complex numbers", npy("'<c8'", "()", "12345678"),
            "holds complex numbers (<c8), not elements of a tensor; in Python: save both parts: numpy.save(path, numpy.stack([a.real, a.imag], -1))"},
        {"Python objects", npy("'|O'", "(1,)", ""),
            'holds Python objects (|O), not elements of a tensor; in Python: save numbers: numpy.save(path, numpy.array(a.tolist(), dtype="float32"))'},
        {"records", npy("[('a', '<f4')]", "(1,)", ""),
            'holds records of several fields, not elements of a tensor; in Python: save each field: numpy.save(path, a["field"])'},
        {"dates", npy("'<M8[D]'", "(1,)", ""), 'holds dates (<M8[D]), not elements of a tensor; in Python: save numbers: numpy.save(path, a.astype("int64"))'},
        {"wide floats", npy("'<f16'", "(1,)", ""), 'holds floats of another width (<f16), not elements of a tensor; in Python: numpy.save(path, a.astype("float64"))'},
        {"an unknown dtype", npy("'<q9'", "(1,)", ""), "its dtype '<q9' is unknown"}, {"no dtype", npy("''", "(1,)", ""), "its dtype '' is unknown"},
        {"numbers beyond int64", npy("'<u8'", "(2,)", ("<I8I8"):pack(1, -1)), "element 1 is 18446744073709551615, more than an int64 holds"},
    } do
        it("refuses " .. case[1], function()
            local path = write("bad.npy", case[2])
            local message = message_of(data.npy, path)
                if case[4] then message = message:gsub(" +'$", "'") end
            if case[3] then assert.are.equal(("npy: %s: %s"):format(path, case[3]), message) end
            assert.is_false(pcall(data.npy, path, {map = true}))
        end)
    end

    it("maps what lies in the file as it is, and nothing else", function()
        local path = write("m.npy", npy("'<f4'", "(2,)", ("<ff"):pack(1, 2)))
        local t = data.npy(path, {map = true})
        t:add_(1)
        assert.are.same({2, 3}, t:totable())
        assert.are.same({1, 2}, data.npy(path):totable())
        for _, case in ipairs {
            {npy("'>f4'", "(1,)", "1234"), "its elements have the other byte order"},
            {npy("'<i2'", "(1,)", "12"), "its elements are of a dtype that tensors do not have"},
            {"\x93NUMPY\1\0" .. ("<s2"):pack("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}") .. "12345678", "its elements are not aligned"},
        } do
            write("m2.npy", case[1])
            assert.are.equal(("npy: %s/m2.npy: cannot be mapped: %s; leave map out"):format(folder, case[2]),
                message_of(data.npy, folder .. "/m2.npy", {map = true}))
        end
    end)

    it("maps a file that another process cuts: an error, not a signal", function()
        local elements = ("<f"):pack(3):rep(50000)
        local uses = {function(t) return t:totable() end, function(t) return t:tobytes() end, function(t) return t[-1]:item() end,
            function(t) return t:sum():item() end, function(t) t:add_(1) return t:totable() end,
            function(t) local _ = t + 1 flow.sync() end, function(t) flow.save(folder .. "/cut.safetensors", {x = t}) end}
        for i, use in ipairs(uses) do
            local path = write("cut.npy", npy("'<f4'", "(50000,)", elements))
            local t = data.npy(path, {map = true})
            assert.are.equal(3, t[0]:item())
            assert(os.execute("truncate -s 8192 " .. path))
            local message = message_of(use, t)
            assert.is_truthy(message:find("cut", 1, true), i .. ": " .. message)
            if i < #uses then
                assert.is_truthy(message:find(path .. ": the file has become shorter, or cannot be read any more", 1, true), message)
                assert.is_truthy(message_of(t.totable, t):find "the file has become shorter", i)
            end
        end
        collectgarbage()
        pcall(flow.sync)
        assert.are.equal(3, flow.tensor {3}:item())
    end)

    it("gives no result that was computed while a file was cut", function()
        local path = folder .. "/lost.npy"
        local function cut_during(use)              -- the result of use, and the first error
            local kept = {}
            write("lost.npy", npy("'<f4'", "(250000,)", ("<f"):pack(3):rep(250000)))
            local t = data.npy(path, {map = true})
            assert.are.equal(3, t[0]:item())
            assert(os.execute("truncate -s 8192 " .. path))
            local ok, message = pcall(function() use(t, kept) flow.sync() end)
            assert.is_false(ok)
            assert.is_truthy(message:find("the file has become shorter, or cannot be read any more", 1, true), message)
            return kept
        end
        local uses = {
            function(t, kept) kept.x = t + 1 flow.sync() end,
            function(t, kept) kept.x = t:reshape(500, 500):t():contiguous() end,
            function(t, kept) kept.x = (t * 2 + 1):exp() kept.y = kept.x:tanh() flow.sync() end,
            function(t, kept) kept.x = (t * 2):sum() end,
            function(t, kept) kept.x = flow.ones(250000) kept.x:add_(t) end,
            function(t, kept) kept.x = t:cumsum(0) end,
            function(t, kept) kept.x = flow.ones(1, 250000):matmul(t) end,
            function(t, kept)
                local twice = flow.capture(function(x) return x * 2 end)
                twice(flow.ones(250000)) twice(flow.ones(250000))
                kept.x = twice(t)
            end,
        }
        for i, use in ipairs(uses) do
            for _, x in pairs(cut_during(use)) do
                for _ = 1, 2 do
                    local ok, message = pcall(x.totable, x)
                    assert.is_false(ok, "use " .. i)
                    assert.is_truthy(message:find("the file has become shorter", 1, true), message)
                end
            end
        end
        assert.are.equal(3, flow.tensor {3}:item())
        assert.are.same({2, 3}, (flow.tensor {1, 2} + 1):totable())
    end)

    it("of a file that was cut has values again when all of it is overwritten, captured or not", function()
        local path, lost = folder .. "/healed.npy", "the file has become shorter"
        local function mapped()
            data.save_npy(path, flow.full({250000}, 3.0))
            return data.npy(path, {map = true})
        end
        local uses = {     -- a use, and the values after it; nil: they stay missing
            {function(x, y) x:copy_(y) end, 2},
            {function(x) x:fill_(2) x:add_(1) end, 3},
            {function(x, y) x:zero_() x:add_(y) return x + 1 end, 2},
            {function(x, y) x:copy_((y * 2):square():sqrt()) x:mul_(y) end, 8},
            {function(x, y) local z = x + 1 x:copy_(y) return z end},
            {function(x, y) x:narrow(0, 0, 10):copy_(y:narrow(0, 0, 10)) end},
            {function(x) x:copy_(x * 2) end},
            {function(x, y) x:add_(y) x:fill_(0) end},
        }
        for i, use in ipairs(uses) do
            for _, captured in ipairs {false, true} do
                local f, y = captured and flow.capture(use[1]) or use[1], flow.full({250000}, 2.0)
                local x = mapped()
                for _ = 1, 2 do f(x, y) end
                assert(os.execute("truncate -s 8192 " .. path))
                assert.is_truthy(message_of(function() return x:sum():item() end):find(lost, 1, true))
                local ok, message = pcall(f, x, y)
                assert.are.equal(use[2] ~= nil, ok, message)
                ok, message = pcall(function() return {x:min():item(), x:max():item()} end)
                assert.are.equal(use[2] ~= nil, ok, i)
                if ok then assert.are.same({use[2], use[2]}, message) else assert.is_truthy(message:find(lost, 1, true)) end
            end
        end
        local f = flow.capture(function(x, y) x:copy_(y) end)
        local x, y = mapped(), flow.full({250000}, 2.0)
        for _ = 1, 2 do f(x, y) end
        assert(os.execute("truncate -s 8192 " .. path))
        assert.is_false(pcall(function() return x:sum():item() end))
        data.save_npy(path, y)
        y = data.npy(path, {map = true})
        assert(os.execute("truncate -s 8192 " .. path))
        assert.is_truthy(message_of(f, x, y):find(lost, 1, true))   -- it is lost while the step reads it
        assert.is_truthy(message_of(x.sum, x):find(lost, 1, true))
        f(x, flow.ones(250000))
        assert.are.equal(250000, x:sum():item())
    end)

    it("of a file that was cut is not written to another one", function()
        local path = write("unread.npy", npy("'<f4'", "(250000,)", ("<f"):pack(3):rep(250000)))
        local t = data.npy(path, {map = true})
        assert(os.execute("truncate -s 8192 " .. path))
        for name, save in pairs {save = function(to) flow.save(to, {t = t}) end, save_npy = function(to) data.save_npy(to, t) end} do
            local to = folder .. "/not_written"
            assert.are.equal(("%s: %s: a value cannot be read: the file that it is mapped from has become shorter"):format(name, to),
                message_of(save, to))
            assert.is_nil(io.open(to))
        end
    end)

    it("changes nothing by a file that was cut, captured or not", function()
        local path = folder .. "/lost.npy"
        local lost = "the file has become shorter, or cannot be read any more, while it was mapped"
        -- f(p, q, x), in which p becomes missing or not; q stays as it was.
        local function check(missing, f)
            for _, captured in ipairs {false, true} do
                local p, q, x = flow.ones(250000), flow.ones(250000), flow.full({250000}, 3.0)
                local function step(t) return f(p, q, t) end
                local call = captured and flow.capture(step) or step
                for _ = 1, 2 do call(x) end
                p:fill_(1)
                q:fill_(1)
                data.save_npy(path, x)
                local t = data.npy(path, {map = true})
                assert(os.execute("truncate -s 8192 " .. path))
                local ok, message = pcall(function() call(t) flow.sync() end)
                assert.is_false(ok)
                assert.is_truthy(message:find(lost, 1, true), message)
                ok, message = pcall(function() return p:sub(1):abs():max():item() end)
                assert.are.equal(not missing, ok)
                if missing then assert.is_truthy(message:find(lost, 1, true), message) else assert.are.equal(0, message) end
                assert.are.equal(0, q:sub(1):abs():max():item())
            end
        end
        check(true, function(p, q, x) p:add_(x) q:add_(1) end)
        check(true, function(p, q, x) p:copy_(x) q:mul_(x) end)
        check(false, function(p, q, x) p:sub_((x * 2):exp()) q:sub_(1) end)
        check(false, function(p, q, x) p:sub_((x * 2):sum()) q:sub_(p) end)

        local net = flow.nn.Sequential(flow.nn.Linear(50, 8), flow.nn.Tanh(), flow.nn.Linear(8, 1))
        local optimizer = flow.optim.AdamW(net:parameters(), {lr = 0.1})
        local step = flow.capture(function(x)
            optimizer:zero_grad()
            net(x):square():mean():backward()
            optimizer:step()
        end)
        local x = flow.randn(5000, 50)
        for _ = 1, 3 do step(x) end
        local before = {}
        for i, p in ipairs(net:parameters()) do before[i] = p:clone() end
        data.save_npy(path, x)
        local t = data.npy(path, {map = true})
        assert(os.execute("truncate -s 8192 " .. path))
        assert.is_truthy(message_of(step, t):find(lost, 1, true))
        for i, p in ipairs(net:parameters()) do assert.is_true(p:eq(before[i]):all():item()) end
        step(x)
        assert.is_false(net:parameters()[1]:eq(before[1]):all():item())
    end)

    it("checks its arguments", function()
        assert.are.equal("npy: missing argument 'path'", message_of(data.npy))
        assert.are.equal("npy: map must be true or false, got 1", message_of(data.npy, "x", {map = 1}))
        assert.matches("npy: .*/none: No such file or directory$", message_of(data.npy, folder .. "/none"))
        assert.matches("not a regular file$", message_of(data.npy, folder, {map = true}))
    end)
end)

describe("data.save_npy and data.save_npz", function()
    local tensors = {
        a = flow.arange(6):view(2, 3):t(), b = flow.tensor {true, false}, c = flow.zeros(0, 2), d = flow.tensor(1.5), e = flow.ones(3):to "float16",
        f = flow.tensor({-1, 2}, {dtype = "int8"}), g = flow.tensor({255}, {dtype = "uint8"}), h = flow.tensor({0.1}, {dtype = "float64"}),
        i = flow.tensor({-7}, {dtype = "int32"}), ["a/b.c é"] = flow.ones(300, 300),
    }

    local function assert_same(want, got)
        assert.are.equal(want.dtype, got.dtype)
        assert.are.same({table.unpack(want.shape)}, {table.unpack(got.shape)})
        if want:numel() > 0 then assert.are.same(want:totable(), got:totable()) end
    end

    it("write what npy and npz read", function()
        for _, t in pairs(tensors) do
            data.save_npy(folder .. "/t.npy", t)
            assert_same(t, data.npy(folder .. "/t.npy"))
        end
        for _, compress in ipairs {false, true} do
            data.save_npz(folder .. "/t.npz", tensors, {compress = compress})
            local read, count = data.npz(folder .. "/t.npz"), 0
            for name, t in read do
                assert_same(tensors[name], t)
                count = count + 1
            end
            assert.are.equal(10, count)
        end
        data.save_npz(folder .. "/none.npz", {})
        assert.are.equal(0, #data.npz(folder .. "/none.npz"))
        assert.are.equal("", process.output(("ls %s | grep tmp"):format(folder)))
    end)

    it("begin the elements at a multiple of 64 bytes", function()
        data.save_npy(folder .. "/t.npy", flow.zeros(2, 2, 2))
        assert.are.equal(128 + 32, #process.read(folder .. "/t.npy"))
        assert.matches("^\x93NUMPY\1%z\x76%z{'descr': '<f4', 'fortran_order': False, 'shape': %(2, 2, 2%), } +\n", process.read(folder .. "/t.npy"))
    end)

    it("refuse what they cannot write", function()
        assert.are.equal('save_npy: NumPy has no bfloat16; write x:to("float32")', message_of(data.save_npy, folder .. "/x", flow.zeros(1):to "bfloat16"))
        assert.is_false(process.exists(folder .. "/x"))
        assert.are.equal("save_npy: x must be a tensor, got 1", message_of(data.save_npy, folder .. "/x", 1))
        assert.are.equal("save_npz: 'a' must be a tensor, got 1", message_of(data.save_npz, folder .. "/x", {a = 1}))
        assert.are.equal("save_npz: takes a table of tensors by name, {x = x}, got the key 1", message_of(data.save_npz, folder .. "/x", {flow.zeros(1)}))
        assert.matches("save_npy: .* exists and is not a regular file$", message_of(data.save_npy, folder, flow.zeros(1)))
        assert.matches("save_npy: .*: No such file or directory$", message_of(data.save_npy, folder .. "/no/x", flow.zeros(1)))
        local x = flow.zeros(2, {placement = flow.placement.all "cpu", sbp = "B"})
        assert.are.equal('save_npy: x is global; write its parts, x:to_local(), or the whole on one rank: x:to_global{sbp = "B"}:to_local()',
            message_of(data.save_npy, folder .. "/x", x))
    end)
end)

describe("data.npz", function()
    local function saved(compress)
        data.save_npz(folder .. "/s.npz", {x = flow.arange(40), y = flow.zeros(3)}, {compress = compress})
        return process.read(folder .. "/s.npz")
    end

    it("reads the arrays that are named", function()
        saved()
        local read = data.npz(folder .. "/s.npz", {names = {"y"}})
        assert.are.equal(1, #read)
        assert.are.same({0, 0, 0}, read.y:totable())
        assert.are.equal(("npz: %s/s.npz has no array 'z'"):format(folder), message_of(data.npz, folder .. "/s.npz", {names = {"z"}}))
    end)

    it("refuses other files", function()
        for _, case in ipairs {
            {"", "not a zip archive"}, {"text", "not a zip archive"},
            {"PK\3\4" .. ("x"):rep(30), "the file ends early: the directory of the archive is missing"},
            {"PK\5\6" .. ("\255"):rep(16) .. "\0\0", "its directory is damaged"},
        } do
            local path = write("bad.npz", case[1])
            assert.are.equal(("npz: %s: %s"):format(path, case[2]), message_of(data.npz, path))
        end
    end)

    it("refuses archives cut off anywhere", function()
        for _, compress in ipairs {false, true} do
            local bytes = saved(compress)
            for length = 0, #bytes - 1 do assert.is_false(pcall(data.npz, write("cut.npz", bytes:sub(1, length)))) end
        end
    end)

    it("compares the checksums", function()
        local bytes = saved()
        local at = bytes:find("NUMPY", 1, true) + 140
        local path = write("sum.npz", bytes:sub(1, at) .. "\7" .. bytes:sub(at + 2))
        assert.are.equal(("npz: %s: 'x.npy': damaged: its checksum is another one"):format(path), message_of(data.npz, path))
    end)

    -- Changes the directory's entry of the first member.
    local function with_entry(bytes, offset, format, value)
        local at = bytes:find("PK\1\2", 1, true) + offset
        if type(value) == "string" then value = format:unpack(bytes, at) + tonumber(value) end
        return bytes:sub(1, at - 1) .. format:pack(value) .. bytes:sub(at + format:packsize())
    end

    for _, case in ipairs {
        {"claims more than deflate holds", 24, "<I4", 4000000000, "'x.npy' promises 4000000000 bytes; %d+ compressed bytes hold at most 1032 times as many$"},
        {"is encrypted", 8, "<I2", 1, "'x.npy': encrypted; unpack the archive first$"},
        {"is packed by another method", 10, "<I2", 14, "'x.npy': compressed by another method than deflate; unpack the archive first$"},
        {"lies behind the file", 42, "<I4", 1 << 30, "'x.npy': its entry in the directory is damaged$"},
        {"has no header", 42, "<I4", 3, "'x.npy': its header is damaged$"},
        {"lies in another one", 20, "<I4", "+6", "'y.npy': it shares bytes with another member$"},
        {"is shorter than it says", 24, "<I4", 500, "'x.npy': the compressed data is damaged$"},
        {"has a NUL in its name", 46, "<B", 0, "a member's name has a NUL$"},
        {"is no array", 50, "<B", 65, "x.npA"},
    } do
        it("refuses a member that " .. case[1], function()
            local path = write("entry.npz", with_entry(saved(true), case[2], case[3], case[4]))
            if case[5] == "x.npA" then return assert.is_nil(data.npz(path).x) end
            assert.matches("npz: .*entry.npz: " .. case[5], message_of(data.npz, path))
        end)
    end

    it("reads zip64", function()
        local bytes = saved()
        local at = bytes:find("PK\5\6", 1, true)
        local count, size, offset = ("<I2I4I4"):unpack(bytes, at + 10)
        local record = ("<c4i8i2i2i4i4i8i8i8i8"):pack("PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
        local locator = ("<c4i4i8i4"):pack("PK\6\7", 0, at - 1, 1)
        local ending = "PK\5\6\0\0\0\0\255\255\255\255\255\255\255\255\255\255\255\255\0\0"
        local path = write("z64.npz", bytes:sub(1, at - 1) .. record .. locator .. ending)
        assert.are.equal(39, data.npz(path).x[-1]:item())
        write("z64.npz", bytes:sub(1, at - 1) .. record .. ("<c4i4i8i4"):pack("PK\6\7", 0, at + 40, 1) .. ending)
        assert.matches("z64.npz: its directory is damaged$", message_of(data.npz, path))
        -- Sizes of 64 bits in the entry of a member.
        local entry = bytes:find("PK\1\2", 1, true)
        local packed_size, whole, name = ("<I4I4I2"):unpack(bytes, entry + 20)
        local extra = ("<I2I2i8i8"):pack(1, 16, whole, packed_size)
        local changed = bytes:sub(1, entry + 19) .. "\255\255\255\255\255\255\255\255" .. bytes:sub(entry + 28, entry + 29) .. ("<I2"):pack(#extra)
            .. bytes:sub(entry + 32, entry + 45 + name) .. extra .. bytes:sub(entry + 46 + name, at - 1)
        write("z64.npz", changed .. ("<c4i4I2I2I4I4I2"):pack("PK\5\6", 0, count, count, size + #extra, offset, 0))
        assert.are.equal(39, data.npz(path).x[-1]:item())
    end)
end)
