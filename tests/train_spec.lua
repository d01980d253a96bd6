-- train_spec.lua -- scripts/train.lua: options, log, checkpoints that continue bit for bit, the last line.
local flow = require "flow"
local process = require "tests.process"
local training = require "tests.training"

local small = " --layers 1 --width 16 --heads 2 --context 8 --batch 4 --data %s/text "
local folder, write

-- Runs the script: output (both streams), true when it ended with status 0.
local function run(arguments)
    local output, status = process.output(("%s scripts/train.lua %s 2>&1"):format(process.flowlua, (arguments:gsub("@", folder))))
    return output, status == 0
end

local function train(arguments) return run(small:format(folder) .. arguments) end

-- Rows of a log as lists of words.
local function log(name)
    local rows = {}
    for line in io.lines(folder .. "/" .. name) do
        local row = {}
        for word in (line .. ","):gmatch("([^,]*),") do row[#row + 1] = word end
        rows[#rows + 1] = row
    end
    return rows
end

-- step, train loss and rate of the rows from step `first` on, as text.
local function losses(name, first)
    local list = {}
    for _, row in ipairs(log(name)) do
        if tonumber(row[1]) and tonumber(row[1]) >= first then list[#list + 1] = row[1] .. " " .. row[2] .. " " .. row[4] end
    end
    return table.concat(list, "\n")
end

setup(function()
    folder, write = process.folder()
    write("text", training.text())
end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("train.lua", function()
    it("logs every step and ends with its figures", function()
        local output, ok = train("--steps 12 --log @/log")
        assert.is_true(ok, output)
        assert.matches("\nvalidation loss %d+%.%d%d%d nats/char, %d+%.%d steps/s, %d+ s\n$", output)
        assert.matches("sample:\n", output)
        assert.is_nil(output:find("\r"))
        local rows = log("log")
        assert.are.same({"step", "train_loss", "val_loss", "lr", "seconds"}, rows[1])
        assert.are.equal(13, #rows)
        for step = 1, 12 do
            assert.are.equal(tostring(step), rows[step + 1][1])
            assert.are.equal(step == 12, rows[step + 1][3] ~= "")
            for _, column in ipairs {2, 4, 5} do assert.is_truthy(tonumber(rows[step + 1][column])) end
        end
    end)

    it("trains with products of 16 bits", function()
        for _, dtype in ipairs {"bfloat16", "float16"} do
            local output, ok = train("--steps 3 --sample 0 --autocast " .. dtype)
            assert.is_true(ok, output)
            assert.matches("\nvalidation loss %d+%.%d%d%d nats/char", output)
        end
        local output, ok = train "--steps 3 --autocast int8"
        assert.is_false(ok)
        assert.are.equal("train.lua: --autocast takes bfloat16 or float16, got 'int8'\n", output)
    end)

    it("has the same losses when the optimizer runs on a store of the process", function()
        local output, ok = train("--steps 6 --sample 0 --log @/plain")
        assert.is_true(ok, output)
        for _, more in ipairs {"", " --capture"} do
            output, ok = train("--steps 6 --sample 0 --log @/store --kvstore local" .. more)
            assert.is_true(ok, output)
            assert.are.equal(losses("plain", 1), losses("store", 1))
        end
    end)

    for _, kind in ipairs {"dist_sync", "dist_async"} do
        process.it_with_ranks("learns with " .. kind .. " on 3 ranks", function()
            local output, status = process.output(("%s %s --ranks 3 scripts/train.lua %s --batch 12 --steps 30 --sample 0 --log %s/%s --kvstore %s 2>&1")
                :format(process.no_leaks, process.flowlua, small:format(folder), folder, kind, kind))
            assert.are.equal(0, status, output)
            local rows = log(kind)
            assert.is_true(tonumber(rows[31][2]) < tonumber(rows[2][2]) - 0.3, rows[2][2] .. " -> " .. rows[31][2])
            assert.matches("validation loss %d+%.%d%d%d nats/char", output)
        end)
    end

    it("makes up nothing where that is asked", function()
        local output, ok = train("--steps 1 --sample 0")
        assert.is_true(ok, output)
        assert.is_nil(output:find("sample", 1, true), output)
        assert.matches("validation loss %d+%.%d%d%d nats/char", output)
    end)

    it("learns", function()
        local output = train("--steps 250 --lr 1e-2 --dropout 0 --log @/log")
        local rows = log("log")
        assert.is_true(tonumber(rows[2][2]) > 3, output)
        assert.is_true(tonumber(rows[#rows][3]) < 2.2, output)
    end)

    it("gives the same losses with captured steps and blocks that are computed again, also resumed", function()
        train("--steps 9 --log @/a")
        for _, options in ipairs {"--capture", "--recompute", "--capture --recompute"} do
            local output, ok = train("--steps 9 --log @/b " .. options)
            assert.is_true(ok, output)
            assert.are.equal(losses("a", 1), losses("b", 1), options)
        end
        train("--steps 5 --schedule-steps 9 --capture --checkpoint @/at5")
        local output, ok = train("--steps 9 --capture --resume @/at5 --log @/b")
        assert.is_true(ok, output)
        assert.are.equal(losses("a", 6), losses("b", 6))
    end)

    it("gives the same losses in every process", function()
        train("--steps 6 --log @/a")
        train("--steps 6 --log @/b")
        assert.are.equal(losses("a", 1), losses("b", 1))
        train("--steps 6 --seed 2 --log @/c")
        assert.are_not.equal(losses("a", 1), losses("c", 1))
    end)

    it("goes on from a checkpoint bit for bit", function()
        train("--steps 20 --log @/whole --checkpoint @/whole.st")
        train("--steps 9 --schedule-steps 20 --log @/first --checkpoint @/p.st")
        local output, ok = run("--resume @/p.st --steps 20 --log @/second --checkpoint @/q.st")
        assert.is_true(ok, output)
        assert.are.equal(losses("whole", 1), losses("first", 1) .. "\n" .. losses("second", 10))
        assert.are.equal(12, #log("second"))
        local whole, resumed = flow.load(folder .. "/whole.st"), flow.load(folder .. "/q.st")
        assert.are.equal(20, resumed.step)
        for name, t in pairs(whole.model) do assert.are.same(t:totable(), resumed.model[name]:totable(), name) end
        assert.are.same(whole.random, resumed.random)
        assert.are.same(whole.train, resumed.train)
        for i, entry in ipairs(whole.optimizer.state) do
            assert.are.same(entry.exp_avg_sq:totable(), resumed.optimizer.state[i].exp_avg_sq:totable())
        end
    end)

    it("keeps the schedule that it began with", function()
        train("--steps 12 --schedule-steps 6 --log @/whole")
        train("--steps 6 --checkpoint @/p.st --log @/first")
        run("--resume @/p.st --steps 12 --log @/second")
        assert.are.equal(losses("whole", 7), losses("second", 7))
    end)

    it("goes on with a log of its own, or with the old one", function()
        train("--steps 8 --log @/old --checkpoint @/p.st")
        run("--resume @/p.st --steps 10 --log @/old")
        local rows = log("old")
        assert.are.equal(11, #rows)
        for step = 1, 10 do assert.are.equal(tostring(step), rows[step + 1][1]) end
        run("--resume @/p.st --steps 10 --log @/new")
        assert.are.equal(3, #log("new"))
        assert.are.equal(losses("old", 9), losses("new", 9))
    end)

    it("does nothing more when all steps are done", function()
        train("--steps 3 --checkpoint @/p.st")
        local output, ok = run("--resume @/p.st")
        assert.is_true(ok, output)
        assert.matches("validation loss %d+%.%d%d%d nats/char, 0.0 steps/s, 0 s\n$", output)
    end)

    it("is the same with --zero on one rank, and makes up as much text as it is told to", function()
        local output = train("--steps 4 --sample 3 --log @/plain")
        assert.matches("\nsample:\n...\n\nvalidation", output)
        train("--steps 4 --dp 1 --tp 1 --zero --log @/zero")
        assert.are.equal(losses("plain", 1), losses("zero", 1))
    end)

    it("learns from several files, one after the other", function()
        write("more", ("More text.\n"):rep(50))
        local _, ok = train("--data @/more @/text --steps 2 --log @/log")
        assert.is_true(ok)
        assert.matches("^%d+ characters", (train("--data @/more @/text --steps 1")))
    end)

    it("learns the tokens of a tokenizer, and goes on with the same one", function()
        local output, ok = train("--steps 3 --tokenizer tests/tokens --sample 5 --checkpoint @/tokens.st")
        assert.is_true(ok, output)
        assert.matches("%d+ tokens of text %(500 different%)", output)
        assert.matches("nats/token", output)
        output, ok = run("--resume @/tokens.st --steps 4 --sample 0")
        assert.is_true(ok, output)
        output, ok = run("--resume @/tokens.st --tokenizer tests/tokens/bytes.json")
        assert.is_false(ok)
        assert.are.equal("train.lua: the text is not the one that the checkpoint has learnt from\n", output)
    end)

    it("takes the last of a repeated option", function()
        local output = train("--steps 500 --steps 2 --log @/log")
        assert.are.equal(3, #log("log"), output)
    end)

    it("prints its options", function()
        local output, ok = run("--help")
        assert.is_true(ok)
        for _, name in ipairs {"layers", "width", "heads", "context", "batch", "dropout", "lr", "steps", "schedule-steps",
            "seed", "data", "tokenizer", "checkpoint", "resume", "log", "sample", "device", "dp", "tp", "zero", "help"} do
            assert.is_truthy(output:find("--" .. name, 1, true), name)
        end
    end)

    for _, case in ipairs {
        {"--widht 64", "train.lua: unknown option '--widht'; did you mean '--width'? (see --help)\n"},
        {"--steps", "train.lua: --steps N needs a value (see --help)\n"},
        {"--steps -3", "train.lua: --steps takes a whole number >= 1, got '-3' (see --help)\n"},
        {"--lr fast", "train.lua: --lr takes a number >= 0, got 'fast' (see --help)\n"},
        {"--log x y", "train.lua: unexpected 'y' (see --help)\n"},
        {"--data /nowhere/text", nil, "No such file"},
        {"--heads 3", nil, "width 16 is not a multiple of 3 heads"},
        {"--dropout 2", nil, "p must be a number in %[0, 1%], got 2"},
        {"--tp 2", "train.lua: --dp 1 --tp 2 needs 2 ranks, and there is 1; start the script with flowlua --ranks 2\n"},
        {"--dp 4 --tp 2", "train.lua: --dp 4 --tp 2 needs 8 ranks, and there is 1; start the script with flowlua --ranks 8\n"},
        {"--kvstore dist_syn", "train.lua: --kvstore: create: type must be one of dist_async|dist_sync|local, got 'dist_syn'\n"},
        {"--kvstore local --zero", "train.lua: --zero and --kvstore local do not go together\n"},
        {"--kvstore local --resume @/p", "train.lua: --resume and --kvstore local do not go together\n"},
        {"--kvstore dist_async --capture", "train.lua: --capture and --kvstore dist_async do not go together\n"},
        {"--kvstore dist_async", nil, "dist_async with 1 server needs 2 ranks or more, there is 1: start the script with flowlua %-%-ranks 2\n$"},
        {"--dp 0", "train.lua: --dp takes a whole number >= 1, got '0' (see --help)\n"},
        {"--tokenizer /nowhere", "train.lua: tokenizer: /nowhere: No such file or directory\n"},
        {"--context 4000", nil, "characters of text are too few"},
        {"--device tpu", nil, "tpu"},
        {"--resume /nowhere/p.st", nil, "No such file"},
        {"--steps 1 --checkpoint /dev/full", nil, "/dev/full exists and is not a regular file"},
        {"--steps 1 --log /nowhere/log", nil, "No such file"},
    } do
        it("refuses " .. case[1], function()
            local output, ok = train(case[1])
            assert.is_false(ok)
            if case[2] then assert.are.equal(case[2], output) else assert.matches(case[3], output) end
        end)
    end

    it("refuses to go on with another model, another text or another file", function()
        train("--steps 2 --checkpoint @/p.st")
        local output, ok = run("--resume @/p.st --width 32")
        assert.is_false(ok)
        assert.are.equal("train.lua: --width was 16 and cannot change on the way\n", output)
        output, ok = run("--resume @/p.st --data README.md")
        assert.is_false(ok)
        assert.are.equal("train.lua: the text is not the one that the checkpoint has learnt from\n", output)
        flow.save(folder .. "/other.st", {x = 1})
        output, ok = run("--resume @/other.st")
        assert.is_false(ok)
        assert.matches("other.st is not a checkpoint of this script\n$", output)
    end)

    -- {a change of a checkpoint's table, the last line of the script}: values of a file are checked.
    it("refuses a checkpoint of another form, in one line", function()
        train("--steps 2 --checkpoint @/p.st")
        local bad = folder .. "/bad.st"
        for _, case in ipairs {
            {function(t) t.random = "x" end, "@: random must be a table"},
            {function(t) t.random = nil end, "@: random must be a table"},
            {function(t) t.random.seed = "x" end, "@: random.seed must be a whole number"},
            {function(t) t.random.counter = 0.5 end, "@: random.counter must be a whole number"},
            {function(t) t.train.epoch = -1 end, "@: train.epoch must be a whole number from 0 to 9007199254740992"},
            {function(t) t.train = {} end, "@: train.epoch must be a whole number from 0 to 9007199254740992"},
            {function(t) t.step = 0 / 0 end, "@: step must be a whole number from 1 to 9007199254740992"},
            {function(t) t.step = math.maxinteger end, "@: step must be a whole number from 1 to 9007199254740992"},
            {function(t) t.seconds = "3" end, "@: seconds must be a number from 0 to 1e+15"},
            {function(t) t.hash = flow.ones(1) end, "@: hash must be a string"},
            {function(t) t.options = flow.ones(1) end, nil},
            {function(t) t.options.seed = "\27[31m" end, "@: options.seed must be a whole number"},
            {function(t) t.options.layers = 1 << 40 end, "@: options.layers must be a whole number from 1 to 2147483647"},
            {function(t) t.options.layers = 1 << 30 end,
                "@: its options do not fit its model: there is no 'blocks.2.mlp.1.weight' of [64, 16]"},
            {function(t) t.options.width = 1 << 30 end,
                "@: its options do not fit its model: there is no 'characters.weight' of [characters, 1073741824]"},
            {function(t) t.options.context = 9 end, "@: its options do not fit its model: there is no 'positions.weight' of [9, 16]"},
            {function(t) t.model["positions.weight"] = {shape = {8, 16}} end,
                "@: its options do not fit its model: there is no 'positions.weight' of [8, 16]"},
            {function(t) t.options.heads = 3 end, "@: its options do not fit: width must be a multiple of heads"},
            {function(t) t.options.dropout = 2 end, "@: options.dropout must be a number from 0 to 1"},
            {function(t) t.options.lr = -1 end, "@: options.lr must be a number from 0 to 1e+15"},
            {function(t) t.options.data = "text" end, "@: options.data must be a list of paths"},
            {function(t) t.options.data = {3} end, "@: options.data must be a list of paths"},
            {function(t) t.options.data = {"/dev/zero"} end, "read: /dev/zero: not a regular file"},
            {function(t) t.options.data = {"a\0b"} end, "read: the path 'a' continues after a NUL; a path cannot contain one"},
            {function(t) t.model["norm.bias"] = nil end, nil}, {function(t) t.model["norm.bias"] = "x" end, nil},
            {function(t) t.model["norm.bias"] = flow.ones(3) end, nil}, {function(t) t.model.extra = flow.ones(3) end, nil},
            {function(t) t.optimizer = {} end, nil}, {function(t) t.optimizer.state[1] = 3 end, nil},
            {function(t) t.optimizer.groups[1].betas = 3 end, nil}, {function(t) t.optimizer.state[2].exp_avg = flow.ones(1) end, nil},
        } do
            local saved = flow.load(folder .. "/p.st")
            case[1](saved)
            flow.save(bad, saved)
            local output, ok = run("--resume @/bad.st")
            assert.is_false(ok)
            assert.matches("^train.lua: [^\n]+\n$", output)
            assert.is_nil(output:find("\27", 1, true))
            if case[2] then assert.are.equal("train.lua: " .. case[2]:gsub("^@", bad) .. "\n", output) end
        end
    end)

    it("lets no checkpoint name a file to write", function()
        train("--steps 2 --checkpoint @/p.st")
        local saved = flow.load(folder .. "/p.st")
        saved.options.log, saved.options.checkpoint, saved.options.sample = folder .. "/evil.csv", folder .. "/evil.st", 0
        flow.save(folder .. "/bad.st", saved)
        local output, ok = run("--resume @/bad.st --steps 3")
        assert.is_true(ok, output)
        assert.matches("sample:", output)
        assert.is_nil(io.open(folder .. "/evil.csv"))
        assert.is_nil(io.open(folder .. "/evil.st"))
    end)

    it("refuses a damaged checkpoint in one line", function()
        train("--steps 2 --checkpoint @/p.st")
        assert(os.execute(("head -c 1000 %s/p.st > %s/cut.st"):format(folder, folder)))
        local output, ok = run("--resume @/cut.st")
        assert.is_false(ok)
        assert.matches("^train.lua: load: [^\n]+\n$", output)
    end)

    it("keeps the old checkpoint when the disk is full", function()
        train("--steps 2 --checkpoint @/p.st")
        local before = flow.load(folder .. "/p.st").step
        local command = "ulimit -f 20; %s scripts/train.lua --resume %s/p.st --steps 4 --checkpoint %s/p.st > /dev/null 2>&1"
        local ok = os.execute(command:format(process.flowlua, folder, folder))
        assert.is_falsy(ok)
        assert.are.equal(before, flow.load(folder .. "/p.st").step)
    end)
end)
