-- save_spec.lua -- flow.save and flow.load: exact round trips, files that lie, disks that are full. JSON.
local flow = require "flow"
local nn = flow.nn
local json = require "flow.json"
local process = require "tests.process"
local support = require "tests.support"

local flowlua = process.flowlua
local folder, write

local function path(name) return folder .. "/" .. name end

local function read(name) return process.read(path(name)) end

-- A safetensors file from its parts.
local function file_of(header, data) return ("<s8"):pack(header) .. (data or "") end

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("a saved table", function()
    local function round_trip(values)
        flow.save(path("t.st"), values)
        return flow.load(path("t.st"))
    end

    it("brings plain values back exactly", function()
        local values = {
            int = 42, negative = -1, largest = math.maxinteger, smallest = math.mininteger, beyond = (1 << 53) + 1,
            float = 0.1, whole = 1.0, minus_zero = -0.0, tiny = 5e-324, huge = 1.7976931348623157e308, third = 1 / 3,
            infinite = math.huge, minus_infinite = -math.huge, yes = true, no = false,
            text = 'line\n"quoted" \\ \t \127 ümläut 漢', empty = "", bytes = "\0\255\128binary\0",
            list = {1, 2.0, "three", {4, {5}}}, map = {a = 1, ["b.c"] = 2, [""] = 3},
            ["$float"] = "nan", ["key with \0 and \255"] = 1, sparse = {[3] = "c", [10] = "j", x = "y"}, nothing = {},
        }
        local loaded = round_trip(values)
        assert.are.same(values, loaded)
        for key, value in pairs(values) do assert.are.equal(math.type(value), math.type(loaded[key]), key) end
        assert.are.equal(-math.huge, 1 / loaded.minus_zero)
        local nan = round_trip({x = 0 / 0}).x
        assert.is_true(nan ~= nan)
    end)

    for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
        it("brings back " .. dtype .. " tensors", function()
            local t = flow.tensor({{1, 0, 1}, {0, 0, 1}}):to(dtype)
            local loaded = round_trip({t = t, other = flow.ones(3)})
            assert.are.equal(dtype, loaded.t.dtype)
            assert.are.same(t:totable(), loaded.t:totable())
            assert.are.same({1, 1, 1}, loaded.other:totable())
        end)
    end

    it("brings back tensors of no elements and no axes, views and parameters", function()
        local base = flow.arange(12):view(3, 4)
        local p = nn.Parameter(flow.ones(2))
        local loaded = round_trip({
            scalar = flow.tensor(2.5), empty = flow.zeros(0, 3), turned = base:t(), row = base[1], grad = p, list = {p, 1},
        })
        assert.are.equal(2.5, loaded.scalar:item())
        assert.are.same({0, 3}, loaded.empty.shape)
        assert.are.same(base:t():totable(), loaded.turned:totable())
        assert.are.same({4, 5, 6, 7}, loaded.row:totable())
        assert.is_false(loaded.grad.requires_grad)
        assert.is_true(rawequal(loaded.grad, loaded.list[1]))
        assert.are.equal(1, loaded.list[2])
    end)

    it("saves a row and not what it is a row of", function()
        flow.save(path("row.st"), {row = flow.zeros(1000, 1000)[3]})
        assert.is_true(#read("row.st") < 5000)
    end)

    it("holds a module's state", function()
        local net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        local other = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        other:load_state_dict(round_trip({model = net:state_dict()}).model)
        local x = flow.randn(2, 3)
        assert.are.same(net(x):totable(), other(x):totable())
    end)

    it("is the same file in every process", function()
        local script = ([[flow = require 'flow' flow.manual_seed(1)
            flow.save('%s', {b = flow.randn(3), a = {z = 1, y = {x = flow.ones(2), w = 2}}, c = 'd', e = {f = 0.5}})]])
        for i = 1, 2 do
            local name = write("s.lua", script:format(path("same" .. i)))
            assert(os.execute(flowlua .. " " .. name))
        end
        assert.are.equal(read("same1"), read("same2"))
    end)

    it("is a file that others can read", function()
        flow.save(path("t.st"), {model = {weight = flow.tensor({1.0, 2}), small = flow.tensor({1}):to("uint8")}, step = 3})
        local bytes = read("t.st")
        local header, at = ("<s8"):unpack(bytes)
        local tree = json.decode(header)
        assert.are.same({dtype = "F32", shape = {2}, data_offsets = {0, 8}}, tree["model.weight"])
        assert.are.same({dtype = "U8", shape = {1}, data_offsets = {8, 9}}, tree["model.small"])
        assert.are.equal(0, (at - 1) % 8)
        assert.are.equal(at - 1 + 9, #bytes)
        assert.are.same({1, 2, at + 8}, {("<ff"):unpack(bytes, at)})
    end)

    it("can be loaded into global tensors", function()
        flow.save(path("t.st"), {t = flow.arange(6), n = 1})
        local p = flow.placement.all("cpu")
        local t = flow.load(path("t.st"), {placement = p, sbp = "S(0)"}).t
        assert.is_true(t.is_global)
        assert.are.equal("S(0)", tostring(t.sbp))
        flow.save(path("g.st"), {t = t})
        assert.are.same({0, 1, 2, 3, 4, 5}, flow.load(path("g.st")).t:totable())
    end)

    it("is read by every rank for its own part alone, whatever the SBP", function()
        local values = {}
        for i, dtype in ipairs {"bool", "uint8", "int64", "bfloat16", "float64"} do
            values["t" .. i] = (flow.arange(5 * 3 * 4):view(5, 3, 4) % 7):to(dtype)
        end
        flow.save(path("t.st"), values)
        local grid = {{0, 1, 2}, {3, 4, 5}}
        for rank = 0, 5 do
            flow._testing.set_world(6, rank)
            for _, case in ipairs {{grid, {"S(0)", "S(2)"}}, {grid, {"S(1)", "S(1)"}}, {grid, {"B", "S(0)"}}, {grid, {"S(2)", "B"}},
                {{5, 3, 1}, "S(0)"}, {{0, 1, 2, 3, 4, 5}, "S(1)"}, {{2}, "B"}} do
                local p = flow.placement("cpu", case[1])
                local loaded = flow.load(path("t.st"), {placement = p, sbp = case[2]})
                for name, want in pairs(values) do
                    local got, window = loaded[name], nil
                    for _, w in ipairs(flow._windows(got)) do if w.rank == rank then window = w end end
                    if window then
                        for axis = 0, 2 do want = want:narrow(axis, window.start[axis + 1], window.size[axis + 1]) end
                        assert.are.equal(want.dtype, got.dtype)
                        assert.are.same(want:totable(), got:to_local():totable())
                    else
                        assert.are.equal(0, got:to_local():numel())
                    end
                end
            end
        end
        flow._testing.set_world(1, 0)
    end)

    it("can be left in the file until a tensor is asked for", function()
        flow.save(path("t.st"), {model = {w = flow.arange(6):view(2, 3)}, b = flow.ones(2), n = 7})
        local loaded = flow.load(path("t.st"), {lazy = true})
        local w = loaded.model.w
        flow.save(path("t.st"), {other = 1})        -- the old file stays readable
        assert.are.same({"model.w", "int64", {2, 3}, 7}, {w.name, w.dtype, w.shape, loaded.n})
        assert.are.equal("stored tensor 'model.w', int64[2, 3]", tostring(w))
        assert.is_false(flow.is_tensor(w))
        assert.are.same({{0, 1, 2}, {3, 4, 5}}, w:read():totable())
        assert.are.equal("S(1)", tostring(w:read({placement = flow.placement.all("cpu"), sbp = "S(-1)"}).sbp))
        assert.are.same({1, 1}, loaded.b:read({device = "cpu"}):totable())
    end)

    it("left in the file fills a module and an optimizer", function()
        local net = nn.Linear(3, 2)
        local opt = flow.optim.Adam(net:parameters())
        net(flow.ones(1, 3)):sum():backward()
        opt:step()
        flow.save(path("t.st"), {net = net:state_dict(), opt = opt:state_dict()})
        local other = nn.Linear(3, 2)
        local its = flow.optim.Adam(other:parameters())
        local loaded = flow.load(path("t.st"), {lazy = true})
        other:load_state_dict(loaded.net)
        its:load_state_dict(loaded.opt)
        assert.are.same(net.weight:totable(), other.weight:totable())
        assert.are.same(opt:state_dict().state[1].exp_avg_sq:totable(), its:state_dict().state[1].exp_avg_sq:totable())
        local ok, message = pcall(other.load_state_dict, other, {weight = loaded.net.bias, bias = loaded.net.bias})
        assert.is_false(ok)
        assert.matches("'weight' is %[2%], the module's is %[2, 3%]", message)
    end)

    it("of another program gives tensors and metadata", function()
        local header = '{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
        local tensors, metadata = flow.load(write("pt.st", file_of(header, ("<f"):pack(1.5))))
        assert.are.equal(1.5, tensors.b:item())
        assert.are.same({format = "pt"}, metadata)
    end)
end)

describe("saving", function()
    local cycle = {}
    cycle.a = {b = cycle}
    for _, case in ipairs {
        {"a function", {f = print}, "save: 'f' is a function; tensors, numbers, strings, booleans and tables can be saved"},
        {"a key that is a table", {x = {[{}] = 1}}, "save: a key in 'x' is a table, not a string or a whole number"},
        {"a key that is a fraction", {[0.5] = 1}, "save: a key in '' is a float, not a string or a whole number"},
        {"two tensors of one name", {a = {b = flow.ones(1)}, ["a.b"] = flow.zeros(1)},
            "save: two tensors would have the name 'a.b'"},
        {"a cycle", cycle, nil},
        {"a tensor called __metadata__", {__metadata__ = flow.ones(1)}, nil},
        {"no table", 3, "save: takes a table, got number; write flow.save(path, {x = x})"},
        {"a tensor", flow.ones(2), "save: takes a table, got tensor; write flow.save(path, {x = x})"},
    } do
        it("refuses " .. case[1], function()
            local ok, message = pcall(flow.save, path("bad.st"), case[2])
            assert.is_false(ok)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
            assert.is_nil(io.open(path("bad.st")))
        end)
    end

    it("refuses paths that are no regular files", function()
        assert(os.execute("mkfifo " .. path("pipe") .. " && ln -s t.st " .. path("link")))
        for _, target in ipairs {"/dev/null", "/dev/full", folder, path("pipe"), path("link"), path("missing/file"), ""} do
            local ok, message = pcall(flow.save, target, {x = 1})
            assert.is_false(ok, target)
            assert.matches("save: ", message)
        end
        assert.matches("/dev/full exists and is not a regular file", select(2, pcall(flow.save, "/dev/full", {x = 1})))
    end)

    it("replaces a file, keeps its mode and leaves nothing else behind", function()
        flow.save(path("only.st"), {x = 1})
        assert(os.execute("chmod 640 " .. path("only.st")))
        flow.save(path("only.st"), {x = 2})
        assert.are.equal(2, flow.load(path("only.st")).x)
        assert.are.equal("640\n0\n", (process.output("stat -c %a " .. path("only.st") .. "; ls " .. folder .. " | grep -c tmp")))
    end)

    -- Temporary names of a target as the writer makes them, by a save that is killed between two writes.
    local function leave_temporary(target)
        local script = write("killed.lua", ([[
            local flow = require "flow"
            local big = flow.zeros(1 << 24)
            io.stdout:write("ready\n"):flush()
            while true do flow.save("%s", {big = big}) end]]):format(target))
        assert(os.execute(([[
            %s %s > %s & pid=$!
            for i in $(seq 2000); do
                kill -STOP $pid
                if ls %s | grep -q '[.]tmp$'; then kill -KILL $pid; break; fi
                kill -CONT $pid; sleep 0.003
            done
            kill -KILL $pid 2>/dev/null; wait $pid 2>/dev/null; true]]):format(flowlua, script, path("killed.out"), folder)))
    end

    local function temporaries()
        local list = process.lines(process.output("ls " .. folder .. " | grep '[.]tmp$'"))
        table.sort(list)
        return list
    end

    it("removes what killed processes have left in the folder, and nothing else", function()
        leave_temporary(path("gone.st"))
        local left = temporaries()
        assert.are.equal(1, #left)
        local host, pid = left[1]:match("^gone%.st%.(%x+)%.(%d+)%.0%.tmp$")
        assert.are.equal(16, #host)
        local other_host = ("gone.st.%s.%s.0.tmp"):format(("0"):rep(16), pid)
        local other_target = ("other.st.%s.%s.0.tmp"):format(host, pid)
        local no_temporary = ("gone.st.%s.%s.0.tmp.txt"):format(host, pid)
        for _, name in ipairs {other_host, other_target, no_temporary} do write(name, "") end
        assert(os.execute(("ln -s gone.st %s/gone.st.%s.1.1.tmp && mkfifo %s/gone.st.%s.1.2.tmp"):format(folder, host, folder, host)))
        flow.save(path("gone.st"), {x = 1})
        local kept, want = temporaries(), {other_host, ("gone.st.%s.1.1.tmp"):format(host), ("gone.st.%s.1.2.tmp"):format(host)}
        table.sort(want)
        assert.are.same(want, kept)
        assert.truthy(io.open(path(no_temporary)))
        for _, name in ipairs(kept) do os.remove(path(name)) end
        os.remove(path(no_temporary))
        assert.are.equal(1, flow.load(path("gone.st")).x)
    end)

    it("leaves the temporary file of a live process alone", function()
        leave_temporary(path("alive.st"))
        local name = assert(temporaries()[1])
        local holder = io.popen(("exec 9<%s && flock -n 9 && echo $$ && exec sleep 60"):format(path(name)))
        local pid = holder:read("n")
        flow.save(path("alive.st"), {x = 1})
        assert.are.same({name}, temporaries())
        os.execute(("kill %d"):format(pid))
        holder:close()
        flow.save(path("alive.st"), {x = 2})
        assert.are.same({}, temporaries())
    end)

    for _, case in ipairs {{"255 bytes", ("n"):rep(255)}, {"255 bytes of two each", "n" .. ("é"):rep(127)}, {"192 bytes", ("m"):rep(192)}} do
        it("takes a name of " .. case[1], function()
            flow.save(path(case[2]), {x = flow.arange(3)})
            assert.are.same({0, 1, 2}, flow.load(path(case[2])).x:totable())
            assert.are.same({}, temporaries())
            os.remove(path(case[2]))
        end)
    end

    it("of a dry world is an error that says so", function()
        flow._testing.set_world(2, 0)
        local ok, message = pcall(flow.save, path("dry.st"), {x = 1})
        flow._testing.set_world(1, 0)
        assert.is_false(ok)
        assert.are.equal("save: this is a dry world (FLOW_WORLD): nothing can be communicated", (message:gsub("^.-:%d+: ", "")))
        assert.is_nil(io.open(path("dry.st")))
    end)

    it("keeps the mode of a file that may not be written", function()
        flow.save(path("locked.st"), {x = 1})
        assert(os.execute("chmod 400 " .. path("locked.st")))
        flow.save(path("locked.st"), {x = 2})
        assert.are.equal("400\n", (process.output("stat -c %a " .. path("locked.st"))))
    end)

    it("on a full disk is an error, and the old file is as it was", function()
        flow.save(path("old.st"), {x = "kept"})
        local script = write("full.lua", ([[
            local flow = require "flow"
            local ok, message = pcall(flow.save, "%s", {big = flow.zeros(1000, 1000)})
            assert(not ok and message:find("File too large"), message)
            print("refused")]]):format(path("old.st")))
        assert.are.equal("refused\n", (process.output(("ulimit -f 100; %s %s 2>&1"):format(flowlua, script))))
        assert.are.equal("kept", flow.load(path("old.st")).x)
        assert.are.equal("0\n", (process.output("ls " .. folder .. " | grep -c tmp")))
    end)
end)

describe("loading", function()
    local function tensor(dtype, shape, first, last)
        return ('{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}'):format(dtype, shape, first, last)
    end
    local ok4 = tensor("F32", "1", 0, 4)
    local deep = ("["):rep(100000)

    for _, case in ipairs {
        {"an empty file", "", "0 bytes are too few for a safetensors file"},
        {"seven bytes", "1234567", "7 bytes are too few for a safetensors file"},
        {"a header longer than the file", ("<I8"):pack(100) .. "{}", "the header of 100 bytes is cut off (is this a safetensors file?)"},
        {"a header length of 2^63", ("<I8"):pack(1 << 63), "a header of 9223372036854775808 bytes is longer than 100000000 (is this a safetensors file?)"},
        {"a header length of 2^64 - 1", ("<I8"):pack(-1), "a header of 18446744073709551615 bytes is longer than 100000000 (is this a safetensors file?)"},
        {"text", ("hello world, this is text\n"):rep(20), nil},
        {"no JSON", file_of("hello"), "bad header: invalid token near 'hello' at byte 5 (line 1)"},
        {"a list", file_of("[]"), "the header is not a JSON object"},
        {"text after the JSON", file_of("{} x"), "bad header: text after the value at byte 4 (line 1)"},
        {"deep nesting", file_of('{"a":' .. deep .. "}"), "bad header: too many nested lists and objects at byte 205 (line 1)"},
        {"a NUL", file_of('{"a\0b":' .. ok4 .. "}", "1234"), "bad header: control character 0x0 near '\"a' at byte 4 (line 1)"},
        {"an escaped NUL in a name", file_of('{"a\\u0000b":' .. ok4 .. "}", "1234"), "bad header: a NUL in a key at byte 11 (line 1)"},
        {"an escaped NUL in metadata", file_of('{"__metadata__":{"a":"\\u0000"}}'), "bad header: a NUL in a string at byte 29 (line 1)"},
        {"a name twice", file_of('{"a":' .. ok4 .. ',"a":' .. tensor("F32", "1", 4, 8) .. "}", "12345678"),
            'bad header: the key "a" occurs twice at byte 57 (line 1)'},
        {"a size that float64 does not hold", file_of('{"a":' .. tensor("U8", "9007199254740993", 0, 4) .. "}", "1234"),
            'tensor "a", uint8[9007199254740993], has 4 bytes'},
        {"a size of 2^63", file_of('{"a":' .. tensor("U8", "9223372036854775808", 0, 4) .. "}", "1234"),
            "bad header: too big integer near '9223372036854775808' at byte 47 (line 1)"},
        {"metadata twice", file_of('{"__metadata__":{},"__metadata__":{}}'), 'bad header: the key "__metadata__" occurs twice at byte 33 (line 1)'},
        {"metadata that is no object", file_of('{"__metadata__":3}'), "__metadata__ is not an object"},
        {"metadata that is no text", file_of('{"__metadata__":{"a":1}}'), '"a" of __metadata__ is not a string'},
        {"a tensor that is no object", file_of('{"a":3}'), 'tensor "a" is not described by an object'},
        {"an unknown dtype", file_of('{"a":' .. tensor("F8", "1", 0, 1) .. "}", "1"), 'tensor "a" has the unknown dtype "F8"'},
        {"no dtype", file_of('{"a":{"shape":[1],"data_offsets":[0,4]}}', "1234"), 'tensor "a" has no dtype'},
        {"no shape", file_of('{"a":{"dtype":"F32","data_offsets":[0,4]}}', "1234"), 'tensor "a" has no shape'},
        {"no offsets", file_of('{"a":{"dtype":"F32","shape":[1]}}', "1234"),
            'the data_offsets of tensor "a" are not two whole numbers'},
        {"three offsets", file_of('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', "1234"), nil},
        {"a negative size", file_of('{"a":' .. tensor("F32", "-1", 0, 4) .. "}", "1234"),
            'a size of tensor "a" is not a whole number'},
        {"a fraction of a size", file_of('{"a":' .. tensor("F32", "0.5", 0, 4) .. "}", "1234"), nil},
        {"sizes whose product overflows",
            file_of('{"a":' .. tensor("F32", "4294967296,4294967296,4294967296", 0, 4) .. "}", "1234"), nil},
        {"sizes whose product is 2^64", file_of('{"a":' .. tensor("U8", "4294967296,4294967296", 0, 0) .. "}"), nil},
        {"a size of 1e300", file_of('{"a":' .. tensor("F32", "1e300", 0, 4) .. "}", "1234"), nil},
        {"nine axes", file_of('{"a":' .. tensor("F32", "1,1,1,1,1,1,1,1,1", 0, 4) .. "}", "1234"),
            'tensor "a" has more than 8 axes'},
        {"too few bytes for the shape", file_of('{"a":' .. tensor("F32", "2", 0, 4) .. "}", "1234"),
            'tensor "a", float32[2], has 4 bytes'},
        {"bytes beyond the end", file_of('{"a":' .. tensor("F32", "2", 0, 8) .. "}", "1234"),
            'the bytes of tensor "a", 0 to 8, are outside the 4 bytes of data'},
        {"offsets that go back", file_of('{"a":' .. tensor("F32", "1", 4, 0) .. "}", "1234"), nil},
        {"offsets of 2^60", file_of('{"a":' .. tensor("F32", "1", "1152921504606846976", "1152921504606846980") .. "}", "1234"),
            'the bytes of tensor "a", 1152921504606846976 to 1152921504606846980, are outside the 4 bytes of data'},
        {"overlapping tensors", file_of('{"a":' .. ok4 .. ',"b":' .. tensor("F32", "1", 2, 6) .. "}", "123456"),
            'the bytes of tensor "b" overlap another tensor\'s'},
        {"the same bytes twice", file_of('{"a":' .. ok4 .. ',"b":' .. ok4 .. "}", "1234"),
            'the bytes of tensor "b" overlap another tensor\'s'},
        {"a hole", file_of('{"a":' .. ok4 .. ',"b":' .. tensor("F32", "1", 8, 12) .. "}", "123456789012"),
            'the bytes of tensor "b" leave a hole before them'},
        {"bytes at the end", file_of('{"a":' .. ok4 .. "}", "12345678"), "4 bytes belong to no tensor"},
        {"damaged metadata", file_of('{"__metadata__":{"flow":"{"}}'), "its metadata is damaged"},
        {"metadata of a tensor that is missing", file_of('{"__metadata__":{"flow":"{\\"a\\":{\\"$tensor\\":\\"b\\"}}"}}'),
            "its metadata holds a bad $tensor"},
        {"the first of several mistakes in metadata", file_of('{"__metadata__":{"flow":"{' .. ('\\"%s\\":{\\"$map\\":3},'):rep(7)
            :format("b", "c", "d", "e", "f", "g", "h") .. '\\"a\\":{\\"$float\\":3}}"}}'), "its metadata holds a bad $float"},
        {"metadata with bad bytes", file_of('{"__metadata__":{"flow":"{\\"a\\":{\\"$bytes\\":\\"0x\\"}}"}}'),
            "its metadata holds a bad $bytes"},
    } do
        it("refuses " .. case[1], function()
            local name = write("hostile.st", case[2])
            local ok, message = pcall(flow.load, name)
            assert.is_false(ok)
            assert.matches("load: ", message)
            if case[3] then
                local start = "load: " .. name .. ": "
                assert.are.equal(start .. case[3], (message:gsub("^.-:%d+: ", "", 1)))
            end
        end)
    end

    -- Text of a file cannot fill the screen or change the terminal.
    local escape, long = "\27]0;title\7\27[31m\127\194\155", ("é"):rep(1200000)
    for _, case in ipairs {
        {"a name of 2.4 MB", file_of('{"' .. long .. '":3}'), 'tensor "' .. ("é"):rep(78) .. '..." is not described by an object'},
        {"a dtype of 2.4 MB", file_of('{"a":{"dtype":"' .. long .. '"}}'), 'tensor "a" has the unknown dtype "' .. ("é"):rep(16) .. '"'},
        {"control characters in a name", file_of('{"\\u001b[31mred\\n\\u0007":3}'), 'tensor "\\x1b[31mred\\x0a\\x07" is not described by an object'},
        {"control characters in a name that JSON allows", file_of('{"\127\194\155":3}'), 'tensor "\\x7f\\xc2\\x9b" is not described by an object'},
        {"raw control characters in a name", file_of('{"a' .. escape .. '":3}'),
            "bad header: control character 0x1b near '\"a' at byte 4 (line 1)"},
        {"a name that is not UTF-8", file_of('{"\255\128a":3}'), "bad header: not UTF-8 at byte 3 (line 1)"},
        {"a name twice, with quotes and control characters", file_of('{"a\\"\194\155":1,"a\\"\194\155":1}'),
            'bad header: the key "a\\"\\xc2\\x9b" occurs twice at byte 18 (line 1)'},
        {"a name of 2.4 MB twice", file_of('{"' .. long .. '":3,"' .. long .. '":3}'),
            'bad header: the key "' .. ("é"):rep(78) .. '..." occurs twice at byte 4800008 (line 1)'},
        {"control characters in metadata", file_of('{"__metadata__":{"\\u001b[2J":1}}'), '"\\x1b[2J" of __metadata__ is not a string'},
    } do
        it("says in short what is wrong with " .. case[1], function()
            local name = write("hostile.st", case[2])
            local ok, message = pcall(flow.load, name)
            assert.is_false(ok)
            assert.are.equal("load: " .. name .. ": " .. case[3], (message:gsub("^.-:%d+: ", "", 1)))
        end)
    end

    it("shows names of a file without control characters", function()
        flow.save(path("names.st"), {["a\27[31m\nb"] = flow.ones(1)})
        local loaded = flow.load(path("names.st"), {lazy = true})
        assert.are.equal("stored tensor 'a\\x1b[31m\\x0ab', float32[1]", tostring(loaded["a\27[31m\nb"]))
        assert.are.same({1}, flow.load(path("names.st"))["a\27[31m\nb"]:totable())
        local net, state = nn.Linear(1, 1), {}
        for i = 1, 20000 do state[("\27[31m%d"):format(i)] = flow.ones(1) end
        local ok, message = pcall(net.load_state_dict, net, state)
        assert.is_false(ok)
        assert.is_nil(message:find("\27", 1, true))
        assert.is_true(#message < 1200, #message)
    end)

    it("refuses what is no regular file", function()
        for _, target in ipairs {"/dev/zero", folder, path("nowhere")} do assert.is_false(pcall(flow.load, target)) end
        assert.matches("No such file", select(2, pcall(flow.load, path("nowhere"))))
        assert.matches("not a regular file", select(2, pcall(flow.load, "/dev/zero")))
        assert.is_false(pcall(flow.load))
        assert.matches("did you mean 'device'", select(2, pcall(flow.load, path("t.st"), {devise = "cpu"})))
    end)

    local p = flow.placement.all("cpu")
    for _, case in ipairs {
        {"an sbp alone", {sbp = "B"}, "load: placement and sbp must be given together"},
        {"a device beside a placement", {placement = p, sbp = "B", device = "cpu"},
            "load: device applies to local tensors; a placement has its own"},
        {"a place for what stays in the file", {placement = p, sbp = "B", lazy = true},
            'load: with lazy, each tensor gets its place when it is read: t:read{placement = p, sbp = "S(0)"}'},
        {"an sbp for a name that is not there", {placement = p, sbp = {weigth = "S(0)"}},
            "load: sbp names 'weigth', which is not in the file; did you mean 'weight'?"},
        {"an axis that a tensor does not have", {placement = p, sbp = {bias = "S(1)"}}, nil},
        {"what is no sbp", {placement = p, sbp = function() return 3 end}, nil},
    } do
        it("refuses " .. case[1], function()
            flow.save(path("place.st"), {weight = flow.ones(2, 2), bias = flow.ones(2)})
            local ok, message = pcall(flow.load, path("place.st"), case[2])
            assert.is_false(ok)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
        end)
    end

    it("names the tensor that an sbp does not fit", function()
        flow.save(path("place.st"), {weight = flow.ones(2, 2), bias = flow.ones(2)})
        local message = select(2, pcall(flow.load, path("place.st"), {placement = p, sbp = "S(1)"}))
        assert.matches("save_spec.lua:%d+: load: tensor 'bias': ", message)
    end)

    it("survives every cut and every changed byte of the header", function()
        flow.save(path("t.st"), {a = flow.ones(3), b = {c = flow.zeros(2, 2):to("int8")}, n = 5})
        local bytes = read("t.st")
        for length = 0, #bytes - 1 do
            assert.is_false(pcall(flow.load, write("cut.st", bytes:sub(1, length))))
        end
        local state = 1
        for i = 1, #bytes do
            state = (state * 1103515245 + 12345) % 2147483648
            write("changed.st", bytes:sub(1, i - 1) .. string.char(state >> 16 & 0xff) .. bytes:sub(i + 1))
            local ok, message = pcall(flow.load, path("changed.st"))
            assert.is_true(ok or type(message) == "string")
        end
    end)
end)

describe("loading what another program wrote", function()
    for _, case in ipairs {
        {"x.npy", "\x93NUMPY\1\0v\0{'descr'", "a NumPy array",
            'flow.data.npy("PATH.npy")'},
        {"x.npz", "PK\3\4\20\0\0\0", "a zip archive, as PyTorch (.pt) and NumPy (.npz) write",
            'flow.data.npz("PATH.npz")'},
        {"x.pt", "PK\3\4\20\0\0\0", "a zip archive, as PyTorch (.pt) and NumPy (.npz) write",
            'in Python: safetensors.torch.save_file(torch.load("PATH.pt"), "PATH.safetensors")'},
        {"x.pth", "\x80\2\x8a\10l\xfc\x9cF\xf9 j\xa8P\x19.", "a Python pickle",
            'in Python: safetensors.torch.save_file(torch.load("PATH.pth"), "PATH.safetensors")'},
        {"x.csv", "a,b\n1,2\n3,4\n", "text", 'flow.data.csv("PATH.csv")'},
        {"x.txt", "1 2\n3 4\n", "text", 'flow.data.csv("PATH.txt") for a table, flow.data.read("PATH.txt") for its text'},
        {"x.jsonl", '{"a": 1}\n{"a": 2}\n', "JSON", 'flow.data.jsonl("PATH.jsonl")'},
        {"x.csv.gz", "\31\139\8\0\0\0\0\0\0\3", "compressed with gzip", 'flow.data.csv("PATH.csv.gz")'},
        {"x.json", '{"a": [1, 2, 3]}\n', "JSON", 'flow.json.decode(flow.data.read("PATH.json"))'},
        {"x.gz", "\31\139\8\0\0\0\0\0\0\3", "compressed with gzip", 'flow.data.idx("PATH.gz") for an IDX file'},
        {"x.png", "\x89PNG\r\n\26\n\0\0\0\rIHDR", "a PNG image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.png"))}, "PATH.safetensors")'},
        {"x.jpg", "\xff\xd8\xff\xe0\0\16JFIF\0", "a JPEG image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.jpg"))}, "PATH.safetensors")'},
        {"x.gif", "GIF89a\1\0", "a GIF image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.gif"))}, "PATH.safetensors")'},
        {"x.bmp", "BM\70\0\1\0\0\0\0\0\54\0", "a BMP image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.bmp"))}, "PATH.safetensors")'},
        {"x.webp", "RIFF\1\2\3\4WEBPVP8 ", "a WebP image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.webp"))}, "PATH.safetensors")'},
        {"x.tif", "II*\0\8\0\0\0", "a TIFF image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.tif"))}, "PATH.safetensors")'},
        {"x.tiff", "MM\0*\0\0\0\8", "a TIFF image",
            'in Python: safetensors.numpy.save_file({"x": numpy.array(PIL.Image.open("PATH.tiff"))}, "PATH.safetensors")'},
        {"x.wav", "RIFF\1\2\3\4WAVEfmt ", "a WAV sound",
            'in Python: safetensors.numpy.save_file({"x": scipy.io.wavfile.read("PATH.wav")[1]}, "PATH.safetensors")'},
        {"x.mat", "MATLAB 5.0 MAT-file, Platform", "a MATLAB file",
            'in Python: safetensors.numpy.save_file(scipy.io.loadmat("PATH.mat"), "PATH.safetensors")'},
        {"x.so", "\x7fELF\2\1\1\0\0\0\0", "an ELF file, a program or library"},
        {"x.tar", "file" .. ("\0"):rep(253) .. "ustar\0" .. ("0"):rep(250), "a tar archive"},
        {"x.pdf", "%PDF-1.7\n%\xe2", "a PDF document"}, {"x.gguf", "GGUF\3\0\0\0\1", "a GGUF file"},
        {"x.parquet", "PAR1\21\4\21\34", "a Parquet file"}, {"x.db", "SQLite format 3\0\16", "a SQLite database"},
        {"x.bz2", "BZh91AY&SY\1\2", "compressed with bzip2"}, {"x.xz", "\xfd7zXZ\0\0\4", "compressed with xz"},
        {"x.zst", "\x28\xb5\x2f\xfd\4\0", "compressed with zstd"}, {"x.7z", "7z\xbc\xaf\x27\x1c\0\4", "a 7z archive"},
        {"x-ubyte", "\0\0\8\1\0\0\0\2ab", "an IDX file", 'flow.data.idx("PATH-ubyte")'},
    } do
        it("says what " .. case[1] .. " is and what to write", function()
            write(case[1], case[2])
            local want = ("load: %s is %s, not a safetensors file%s"):format(path(case[1]), case[3],
                case[4] and "; write " .. case[4]:gsub("PATH", path("x")) or "")
            assert.are.equal(want, support.message_of(flow.load, path(case[1])))
        end)
    end
end)

describe("json", function()
    local function nested(depth, value, key)
        for _ = 1, depth do value = {[key] = value} end
        return value
    end

    for _, case in ipairs {
        {"[1, -2, 3.5, 1e2, -0.0]", {1, -2, 3.5, 100.0, -0.0}}, {'{"a": {"b": [true, false]}}', {a = {b = {true, false}}}},
        {'"\\u00e9\\ud83d\\ude00\\n\\/"', "é😀\n/"}, {"9223372036854775807", math.maxinteger}, {"  {}  ", {}},
        {'"\127"', "\127"}, {"-9223372036854775808", math.mininteger}, {"9007199254740993", 9007199254740993},
        {"1e-400", 0.0}, {'"\\u0000a"', "\0a"}, {" null ", json.null}, {'"\244\143\191\191"', "\u{10ffff}"},
        {('{"a":'):rep(199) .. "[]" .. ("}"):rep(199), nested(199, {}, "a")}, {("["):rep(200) .. "7" .. ("]"):rep(200), nested(200, 7, 1)},
    } do
        it("reads " .. case[1]:sub(1, 40), function()
            local value = json.decode(case[1])
            assert.are.same(case[2], value)
            assert.are.equal(math.type(case[2]), math.type(value))
        end)
    end
    for _, text in ipairs {
        "", "{", "[1,]", '{"a":1,}', '{"a":1,"a":2}', "01", "1.", "+1", ".5", "nan", "tru", '"\\x"', '"\\ud800"', '"a', "[1 2]",
        "{1:2}", "[1] 2", "\"\n\"", ("["):rep(1000), "-", "1e", "[1", "//", "/**/1", "NaN", "Infinity", "'a'", "\239\187\1911", "[1]\0",
        '"\\udc00\\ud800"', '"\237\160\128"', '"\192\128"', ("["):rep(3000000), ('{"a":'):rep(1000000),
    } do
        it("refuses " .. ("%q"):format(text:sub(1, 12)), function() assert.is_false(pcall(json.decode, text)) end)
    end
    for _, case in ipairs {
        {"", "the text ends early at byte 0 (line 1)"}, {'[1,\n"a', "the text ends early at byte 6 (line 2)"},
        {'{"a" 5}', "':' expected near '5' at byte 6 (line 1)"}, {"[1,\n2,\n]", "unexpected token near ']' at byte 8 (line 3)"},
        {'"a\tb"', "control character 0x9 near '\"a' at byte 3 (line 1)"}, {'"\\x"', "invalid escape near '\"\\x' at byte 3 (line 1)"},
        {"[1]\n2", "text after the value at byte 5 (line 2)"}, {'["\255"]', "not UTF-8 at byte 3 (line 1)"},
        {'{"a":1,\n"a":2}', 'the key "a" occurs twice at byte 11 (line 2)'},
        {'{"\\\\":1,"\\\\":2}', 'the key "\\\\" occurs twice at byte 12 (line 1)'},
        {'{"":1,"":2}', 'the key "" occurs twice at byte 8 (line 1)'},
        {'{"a\\u0000b":1}', "a NUL in a key at byte 11 (line 1)"},
        {"9223372036854775808", "too big integer near '9223372036854775808' at byte 19 (line 1)"},
        {"[-9223372036854775809]", "too big negative integer near '-9223372036854775809' at byte 21 (line 1)"},
        {"[1e400]", "real number overflow near '1e400' at byte 6 (line 1)"},
        {("["):rep(201) .. ("]"):rep(201), "too many nested lists and objects at byte 201 (line 1)"},
    } do
        it("says what is wrong with " .. ("%q"):format(case[1]:sub(1, 24)), function()
            assert.are.equal("json: " .. case[2], (support.message_of(json.decode, case[1]):gsub("^.-:%d+: ", "", 1)))
        end)
    end
    it("writes nothing that it does not read", function()
        for _, value in ipairs {nested(199, {}, "a"), nested(199, {7}, 1), {math.mininteger, math.maxinteger, -0.0, 5e-324, 1.7976931348623157e308},
            {["\127\194\155\""] = "\0\1\127\\/"}} do
            local text = json.encode(value)
            assert.are.equal(text, json.encode(json.decode(text)))
        end
        assert.are.equal("json: a key contains a NUL, which no reader takes", (support.message_of(json.encode, {["a\0"] = 1}):gsub("^.-:%d+: ", "", 1)))
        assert.is_false(pcall(json.encode, nested(200, {}, "a")))
    end)
    it("takes a text and nothing else", function()
        assert.are.equal("decode: text must be a string, got nil", (support.message_of(json.decode, nil):gsub("^.-:%d+: ", "", 1)))
    end)
    it("writes sorted keys and every number exactly", function()
        assert.are.equal('{"a":[1,2.0,0.10000000000000001],"b":"\\"\\\\\\u0001"}', json.encode {b = '"\\\1', a = {1, 2.0, 0.1}})
        assert.are.equal("null", json.encode(json.null))
        assert.is_false(pcall(json.encode, "\255"))
        assert.is_false(pcall(json.encode, {[1.5] = 1}))
    end)
end)
