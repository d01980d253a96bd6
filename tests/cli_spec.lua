-- cli_spec.lua -- options of scripts, and how far a long loop is.
local flow = require "flow"
local process = require "tests.process"
local cli, progress = flow.cli, flow.progress

local folder, write

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("options of scripts", function()
    local specs = {
        {"--layers N", 4, "blocks"}, {"--lr X", 0.5, "rate"}, {"--seed I", 1, "seed"}, {"--data FILE...", nil, "files"},
        {"--log FILE", nil, "log"}, {"--schedule-steps N", nil, "length"}, {"--quiet", false, "says less"}, {"--device D", nil, "where"},
        {"--sample C", nil, "characters"},
    }
    for _, case in ipairs {
        {"", {layers = 4, lr = 0.5, seed = 1, quiet = false}},
        {"--layers 2 --lr 1e-3", {layers = 2, lr = 1e-3, seed = 1, quiet = false}},
        {"--layers 2 --layers 3", {layers = 3, lr = 0.5, seed = 1, quiet = false}},
        {"--layers=7 --seed=-3 --quiet", {layers = 7, lr = 0.5, seed = -3, quiet = true}},
        {"--data a b c --log d", {layers = 4, lr = 0.5, seed = 1, data = {"a", "b", "c"}, log = "d", quiet = false}},
        {"--data a --data b", {layers = 4, lr = 0.5, seed = 1, data = {"b"}, quiet = false}},
        {"--sample 0", {layers = 4, lr = 0.5, seed = 1, sample = 0, quiet = false}},
        {"--schedule-steps 9 --lr 2", {layers = 4, lr = 2.0, seed = 1, schedule_steps = 9, quiet = false}},
        {"--help", {layers = 4, lr = 0.5, seed = 1, quiet = false, help = true}},
    } do
        it("are read: " .. case[1], function()
            local args = {}
            for word in case[1]:gmatch("%S+") do args[#args + 1] = word end
            assert.are.same(case[2], (cli.read(args, specs)))
        end)
    end
    for _, case in ipairs {
        {"--layer 2", "unknown option '--layer'; did you mean '--layers'?"},
        {"--hlep", "unknown option '--hlep'; did you mean '--help'?"},
        {"-x", "unknown option '-x'"},
        {"--layers", "--layers N needs a value"},
        {"--layers --lr 1", "--layers N needs a value"},
        {"--layers two", "--layers takes a whole number >= 1, got 'two'"},
        {"--layers 0", "--layers takes a whole number >= 1, got '0'"},
        {"--layers 2.5", "--layers takes a whole number >= 1, got '2.5'"},
        {"--sample -1", "--sample takes a whole number >= 0, got '-1'"},
        {"--lr -1", "--lr takes a number >= 0, got '-1'"},
        {"--lr nan", "--lr takes a number >= 0, got 'nan'"},
        {"--lr 1e999", "--lr takes a number >= 0, got '1e999'"},
        {"--quiet=1", "--quiet takes no value"},
        {"--data", "--data FILE... needs a value"},
        {"--device tpu", "--device: unknown device 'tpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\""},
    } do
        it("are refused: " .. case[1], function()
            local args = {}
            for word in case[1]:gmatch("%S+") do args[#args + 1] = word end
            local values, message = cli.read(args, specs)
            assert.is_nil(values)
            assert.are.equal(case[2], message)
        end)
    end
    it("have a help text", function()
        assert.are.equal("about\n\noptions:\n  --lr X  rate (default: 0.5)\n  --help  prints this",
            cli.help("about", {specs[2]}))
        assert.are.equal("about\n\noptions:\n  --help  prints this", cli.help("about", {}))
        local long = "--" .. ("n"):rep(120)
        assert.are.equal(("about\n\noptions:\n  %s  100%%\n  --help%s  prints this"):format(long, (" "):rep(116)), cli.help("about", {{long, nil, "100%"}}))
    end)
end)

describe("progress", function()
    it("says durations", function()
        for seconds, want in pairs({[0] = "0 s", [59.4] = "59 s", [125] = "2:05", [3725] = "1:02:05"}) do
            assert.are.equal(want, progress.duration(seconds))
        end
    end)
    local function output_of(options)
        local script = write("bar.lua", ([[
            local bar = require "flow".progress.bar(40, {%s})
            for step = 1, 40 do bar:update(step, "loss 1.5") end
            bar:print("between")
            bar:clear()]]):format(options))
        return (process.output(process.flowlua .. " " .. script .. " 2>&1"))
    end
    it("prints plain lines where there is no terminal", function()
        local text = output_of("lines = 4")
        assert.are.equal(5, select(2, text:gsub("\n", "")))
        assert.matches("^step 10/40  loss 1.5  [%d.]+ steps/s  0 s left\nstep 20/40 ", text)
        assert.matches("step 40/40 [^\n]*\nbetween\n$", text)
        assert.is_nil(text:find("\r"))
    end)
    it("draws a bar of the terminal's width, wiped at the end", function()
        local text = output_of("width = 80")
        assert.matches("\r%[#+%] step 40/40  loss 1.5 ", text)
        assert.matches("\nbetween\n", "\n" .. text:gsub("\r +\r", "\n"))
        for line in text:gmatch("[^\r\n]+") do assert.is_true(#line < 80) end
    end)
    it("follows a terminal that is resized", function()
        if not process.has "script" then pending("needs script") return end
        local script = write("resize.lua", [[
            local bar = require "flow".progress.bar(2)
            os.execute("stty cols 90") bar:update(1, "one")
            os.execute("stty cols 70") bar:update(2, "two")]])
        local text = process.output(("script -qec '%s %s' /dev/null </dev/null"):format(process.flowlua, script))
        local first, second = text:match("(%[[#.]+%] step 1/2[^\r]*)\r(%[[#.]+%] step 2/2[^\r]*)")
        assert.is_truthy(second, text)
        assert.is_true(#first > 75 and #first < 90, first)
        assert.are.equal(69, #second)
    end)
    it("refuses unknown options", function()
        assert.is_false(pcall(progress.bar, 10, {strat = 3}))
        assert.is_false(pcall(progress.bar, -1))
    end)
end)
