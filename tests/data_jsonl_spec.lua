-- data_jsonl_spec.lua -- lines of JSON as a dataset.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local data = flow.data

local folder, write
setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local message_of = support.message_of

describe("data.jsonl", function()
    local text = '{"text": "a", "label": 1, "ids": [1, 2]}\r\n\n  \n{"text": "b", "label": 0, "ids": [3, 4]}\n[1, {"x": null}]'

    it("gives the items of the lines in any order", function()
        local dataset = data.jsonl(write("a.jsonl", text))
        assert.are.equal(3, #dataset)
        assert.are.same({text = "b", label = 0, ids = {3, 4}}, dataset:get(1))
        assert.are.equal("a", dataset:get(0).text)
        assert.are.equal(flow.json.null, dataset:get(2)[2].x)
        local seen = {}
        for position, item in dataset:items() do seen[#seen + 1] = position .. (item.text or "") end
        assert.are.same({"0a", "1b", "2"}, seen)
        assert.are.equal(("dataset of 3 items in %s/a.jsonl"):format(folder), tostring(dataset))
        assert.are.equal(0, #data.jsonl(write("empty.jsonl", "\n \n")))
    end)

    it("reads what gzip has compressed, and lines longer than a piece", function()
        local long = ('{"n": %d, "s": "%s"}\n'):format(1, ("x"):rep(3 << 20)) .. '{"n": 2}\n'
        local path = write("long.jsonl", "\xef\xbb\xbf" .. long)
        assert(os.execute("gzip -kf " .. path))
        for _, name in ipairs {path, path .. ".gz"} do
            local dataset = data.jsonl(name)
            assert.are.equal(2, dataset:get(1).n)
            assert.are.equal(3 << 20, #dataset:get(0).s)
        end
    end)

    it("gives the loader fields it can stack", function()
        local lines = {}
        for i = 0, 9 do lines[i + 1] = ('{"text": "t%d", "label": %d, "ids": [%d, 0.5], "extra": {"a": []}, "ok": true}'):format(i, i, i) end
        local dataset = data.jsonl(write("l.jsonl", table.concat(lines, "\n")), {fields = {"text", "label", "ids", "ok"}})
        local loader = data.loader(dataset, {batch_size = 4})
        local batch = loader:next()
        assert.are.same({"t0", "t1", "t2", "t3"}, batch.text)
        assert.are.same({0, 1, 2, 3}, batch.label:totable())
        assert.are.equal("int64", batch.label.dtype)
        assert.are.same({4, 2}, {table.unpack(batch.ids.shape)})
        assert.are.equal("bool", batch.ok.dtype)
        assert.is_nil(batch.extra)
    end)

    for _, case in ipairs {
        {'{"a": 1}\n\n{"a" 5}\n', 1, "3: ':' expected near '5' at byte 6"}, {'{"a": 1}\n{"a": 2\n', 1, "2: the text ends early at byte 8"},
        {"3\n", 0, "1: an item is an object or a list, not 3"}, {"null\n", 0, "1: an item is an object or a list, not null"},
        {'{"a": 1, "a": 2}', 0, '1: the key "a" occurs twice at byte 12'},
        {'{"label": 1}', 0, "1: there is no field 'lable'; did you mean 'label'?", {"lable"}}, {'{"a": null}', 0, "1: field 'a' is null", {"a"}},
        {'\n{"a": [[1], [2, 3]]}', 0, "2: field 'a' is no tensor: tensor: data[2] has 2 values, the lists before it have 1", {"a"}},
        {'{"a": 1}', 1, nil},
    } do
        it(("says what is wrong in %q"):format(case[1]), function()
            local path = write("bad.jsonl", case[1])
            local dataset = data.jsonl(path, {fields = case[4]})
            local want = case[3] and ("jsonl: %s:%s"):format(path, case[3]) or "get: position 1 is beyond the last of 1 items, 0"
            assert.are.equal(want, message_of(dataset.get, dataset, case[2]))
        end)
    end

    it("checks its arguments", function()
        local dataset = data.jsonl(write("a.jsonl", text))
        assert.are.equal("get: position must be a whole number >= 0, got -1", message_of(dataset.get, dataset, -1))
        assert.are.equal("Jsonl has no [1]; write dataset:get(position)", message_of(function() return dataset[1] end))
        assert.are.equal("jsonl: fields must be strings, got 1", message_of(data.jsonl, folder .. "/a.jsonl", {fields = {1}}))
        assert.are.equal(("jsonl: %s/none: No such file or directory"):format(folder), message_of(data.jsonl, folder .. "/none"))
        assert.matches("bytes of 0$", message_of(data.jsonl, write("zero.jsonl", "\0\1")))
    end)
end)
