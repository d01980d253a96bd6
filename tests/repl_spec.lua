-- The interactive session: plain input here, keys on a terminal below.
local flow = require "flow"
local process = require "tests.process"

local flowlua = process.flowlua

-- The output of a session without a terminal for these lines: prompts, the lines themselves, errors.
local function session(lines)
    local name = process.temporary(lines)
    local text = process.output(("%s -i <%s 2>&1"):format(flowlua, name))
    os.remove(name)
    return (text:gsub("^flowlua[^\n]*\n", ""))
end

-- The input of a session: the lines behind its prompts.
local function typed(transcript)
    local lines = {}
    for line in transcript:gmatch "[^\n]*\n" do lines[#lines + 1] = line:match "^>>? (.*)$" end
    return table.concat(lines)
end

describe("the session", function()
    -- transcripts
    local cases = {
        "> 1 + 1\n2\n",
        "> x = 5\n> x\n5\n",
        "> = 3\n3\n",
        "> 1, nil, 'a'\n1\tnil\ta\n",
        "> for i = 1, 2 do\n>> print(i)\n>> end\n1\n2\n",
        "> function f(a)\n>>   return a * 2\n>> end\n> f(4)\n8\n",
        "> 2 +\n>> 3\n5\n",
        "> 7\n7\n> _ * 2\n14\n",
        "> {1, 2, a = {b = 'c'}}\n{1, 2, a = {b = \"c\"}}\n",
        "> {}\n{}\n",
        "> \n> 1\n1\n",
        "> flow.ones(2)\n[1.0, 1.0]  float32[2] on cpu\n",
        "> nil\nnil\n",
        "> local y = 3\n> y\nnil\n",
        "> print(arg[0] ~= nil)\ntrue\n",
        "> x = flow.ones(2)\n> x:mean\nx:mean is a method without its call: write x:mean()\n> 7\n7\n",
        "> y = 1 + f(x)[1]:mean \nf(x)[1]:mean is a method without its call: write f(x)[1]:mean()\n",
        "> (1 + 2):mean\n(1 + 2):mean is a method without its call: write (1 + 2):mean()\n",
        "> x = 2; if x:mean\nx:mean is a method without its call: write x:mean()\n",
        "> flow.exp\nexp(x)\n    e to the power x.\n    has a gradient; in place: x:exp_()\n",
        "> flow.ones(2).exp\nexp(x)\n    e to the power x.\n    has a gradient; in place: x:exp_()\n",
        "> nn.ReLU\nReLU(inplace: boolean = false)\n",
        "> nn == flow.nn, optim == flow.optim, data == flow.data\ntrue\ttrue\ttrue\n",
        "> nn = 3\n> nn\n3\n",
        "> exit = 5\n> exit\n5\n",
        "> quitter\nnil\n",
        "> print = nil\n> 7\nerror calling 'print' (attempt to call a nil value)\n",
    }
    it("prints values and reads on until a statement is complete", function()
        for _, case in ipairs(cases) do assert.are.equal(case .. "> \n", session(typed(case)), case) end
        assert.are.equal("> _PROMPT = 'flow: '\nflow: 1\n1\nflow: \n", session "_PROMPT = 'flow: '\n1\n")
        assert.are.equal("> 1\n1\n> \n", session "1")
    end)

    it("ends at quit and exit", function()
        for _, line in ipairs {"quit", "exit", " exit() ;", "quit()", "quit;"} do
            assert.are.equal("> " .. line .. "\n\n", session(line .. "\n7\n"))
        end
    end)

    it("shows the help of a class", function()
        local text = session "nn.Linear\n"
        assert.truthy(text:find "^> nn.Linear\nLinear%(inputs: integer >= 1, outputs: [^\n]*%)\n    y = x W%^T %+ b\n", text)
    end)

    it("shows the names in a module", function()
        local names = session "data\nflow\nprint(flow.optim)\n"
        assert.truthy(names:find("^> data\n    [^{}]* csv [^{}]* tokenizer[^{}]*\n> flow\ncreation:\n    arange "), names)
        assert.truthy(names:find("\n> print%(flow.optim%)\ntable: 0x%x+\n"), names)
    end)

    it("leaves what a script before it has set", function()
        local name = process.temporary "data, quit = 1, 2"
        local text = process.output(("printf 'data\\nquit\\nnn == flow.nn\\n' | %s -i %s"):format(flowlua, name))
        os.remove(name)
        assert.are.equal("> data\n1\n> quit\n2\n> nn == flow.nn\ntrue\n> \n", (text:gsub("^flowlua[^\n]*\n", "")))
    end)

    it("gives scripts no globals", function()
        assert.are.equal("nil\tnil\tnil\tnil\tnil\n", (process.output(("echo 'print(nn, optim, data, quit, exit)' | %s -"):format(flowlua))))
    end)

    it("ends with the status that quit is given", function()
        local _, status = process.output(("echo 'if true then quit(3) end' | %s -i >/dev/null"):format(flowlua))
        assert.are.equal(3, status)
    end)

    it("goes on after an error", function()
        local output = session("error('boom')\n'alive'\n")
        assert.truthy(output:find("stdin:1: boom\nstack traceback:", 1, true))
        assert.truthy(output:find("alive\n", 1, true))
    end)

    it("says of a value that is missing why, and nothing about itself", function()
        local lines = "flow._testing.engine 'queued'\nflow.embedding(flow.tensor{9}, flow.ones(3, 2))\n'alive'\n"
        local want = "auto\nembedding (stdin:1): indices[0] is 9, but weight has 3 rows (0 to 2)\nalive\n\n"
        assert.are.equal(want, (session(lines):gsub("> [^\n]*\n", "", 3):gsub("> ", "")))
    end)

    it("shows cycles, deep and long tables in short", function()
        local inspect = require "flow.inspect"
        local cycle = {1}
        cycle[2] = cycle
        assert.are.equal("{1, {...}}", inspect.text(cycle))
        local long = {}
        for i = 1, 100 do long[i] = i end
        assert.truthy(inspect.text(long):find("... 76 more", 1, true))
        assert.truthy(inspect.text({{{{1}}}}):find("^{{{table: "))
        assert.are.equal('{[1.5] = true, ["a b"] = 1, z = "\\n"}', inspect.text({[1.5] = true, ["a b"] = 1, z = "\n"}))
    end)
end)

describe("completion", function()
    local complete = require "flow.complete"
    -- {line, all the words that are offered}; with `some`: words among them
    local cases = {
        {"str", {"string"}},
        {"x = string.fo", {"string.format"}},
        {"flow.zer", {"flow.zeros", "flow.zeros_like"}},
        {"flow.nn.Lin", {"flow.nn.Linear"}, some = true},
        {"flow.sav", {"flow.save"}},
        {"sample:resha", {"sample:reshape", "sample:reshape_as"}},
        {"sample.sha", {"sample.shape"}},
        {"f(sample:resh", {"sample:reshape", "sample:reshape_as"}},
        {"retu", {"return"}},
        {"flow.placement.", {"flow.placement.all"}},
        {"word:up", {"word:upper"}},
        {"nothing.at.all.", {}},
        {"flow._", {"flow._op"}, some = true},
        -- after any expression
        {"x = sample:sum(0, {keepdim = true}):resh", {"sample:sum(0, {keepdim = true}):reshape", "sample:sum(0, {keepdim = true}):reshape_as"}},
        {"(sample + 1):resh", {"(sample + 1):reshape", "(sample + 1):reshape_as"}},
        {"(2 * (sample)):resh", {"(2 * (sample)):reshape", "(2 * (sample)):reshape_as"}},
        {"(sample:sum() - flow.ones(2) / 3):resh", {"(sample:sum() - flow.ones(2) / 3):reshape", "(sample:sum() - flow.ones(2) / 3):reshape_as"}},
        {"(-sample):resh", {"(-sample):reshape", "(-sample):reshape_as"}},
        {"(sample == 1):resh", {}},
        {"(sample or 1):resh", {}},
        {"return (sample):resh", {"(sample):reshape", "(sample):reshape_as"}},
        {"sample[0][{1, 2}]:resh", {"sample[0][{1, 2}]:reshape", "sample[0][{1, 2}]:reshape_as"}},
        {"flow.ones(2, 3):mean():resh", {"flow.ones(2, 3):mean():reshape", "flow.ones(2, 3):mean():reshape_as"}},
        {"flow.tensor{1, 2}:resh", {"flow.tensor{1, 2}:reshape", "flow.tensor{1, 2}:reshape_as"}},
        {"flow.tensor{1}:to 'float64':resh", {"flow.tensor{1}:to 'float64':reshape", "flow.tensor{1}:to 'float64':reshape_as"}},
        {"flow.ones(2).grad:resh", {"flow.ones(2).grad:reshape", "flow.ones(2).grad:reshape_as"}},
        {"sample.dtype:upp", {"sample.dtype:upper"}},
        {"sample:item():resh", {}},
        {'"abc":upp', {'"abc":upper'}},
        {"('abc'):rep(2):upp", {"('abc'):rep(2):upper"}},
        {"net[1].wei", {"net[1].weight"}},
        {"net[1]:paramet", {"net[1]:parameters"}},
        {"net(sample):resh", {"net(sample):reshape", "net(sample):reshape_as"}},
        {"flow.nn.Linear(2, 3):paramet", {"flow.nn.Linear(2, 3):parameters"}},
        {"flow.optim.SGD(net:parameters(), {lr = 1}):zero", {"flow.optim.SGD(net:parameters(), {lr = 1}):zero_grad"}},
        {"list.inner['na me'].dee", {"list.inner['na me'].deep"}},
        {"list[-1].dee", {}},
        {"unknown(2):", {}},
        {"f(", {"sample", "word", "while"}, some = true},
        -- keys
        {"list[", {"list[1]", "list[2]", 'list["inner"]', 'list["name"]'}},
        {'list["na', {'list["name"]'}},
        {"list['na", {"list['name']"}},
        {'list.inner["', {'list.inner["na me"]'}},
        {"net[", {"net[1]", "net[2]"}},
        {"word[", {}},
        -- no names
        {"x = 'sample:resh", {}},
        {"-- sample:resh", {}},
        {"x = [[sample:resh", {}},
        {"goto ::sam", {"sample"}},
        {")", {"sample"}, some = true},
        {"):", {}},
        {"].", {}},
        {"sample:.resh", {}},
    }
    local function with_globals(values, body)
        for name, value in pairs(values) do _G[name] = value end
        local ok, message = pcall(body)
        for name in pairs(values) do _G[name] = nil end
        assert(ok, message)
    end
    local values = {
        sample = flow.zeros(2), word = "text", flow = flow, net = flow.nn.Sequential(flow.nn.Linear(2, 2), flow.nn.ReLU()),
        list = {1, 2, name = 3, inner = {["na me"] = {deep = 1}}},
    }

    it("follows names, fields, keys, calls and operators", function()
        with_globals(values, function()
            for _, case in ipairs(cases) do
                local found = complete(case[1])
                if not case.some then assert.are.same(case[2], found, case[1]) end
                for _, name in ipairs(case[2]) do
                    assert.truthy((" " .. table.concat(found, " ") .. " "):find(" " .. name .. " ", 1, true), case[1])
                end
            end
        end)
    end)

    it("says where a word begins, and what of it need not be shown", function()
        with_globals(values, function()
            -- {line, start, hidden part}
            for _, case in ipairs {{"x = sam", 5, ""}, {"f(sample:res", 3, "sample:"}, {"list[", 1, "list"}, {"", 1, ""}, {"x = ", 5, ""}} do
                local words, start, hidden = complete(case[1])
                assert.are.equal(case[2], start, case[1])
                assert.are.equal(case[3], words[1]:sub(1, hidden), case[1])
            end
        end)
    end)

    it("shows the forms of indexing a tensor, all of which work", function()
        local names = {sample = flow.arange(24):view(4, 6), mask = flow.arange(4):gt(1), positions = flow.tensor{0, 2}}
        with_globals(names, function()
            local words, _, _, notes = complete "x = sample["
            assert.are.equal(#words, #notes)
            assert.is_true(#words >= 6)
            for _, word in ipairs(words) do
                assert.is_true(flow.is_tensor(assert(load("return " .. word))()), word)
            end
            assert.are.same({'sample["0, 1:3"]', 'sample["..., -1"]'}, (complete 'sample["'))
        end)
    end)

    it("calls no code of the user's", function()
        local called = false
        local function call() called = true end
        local meta = {}
        for name in ("index pairs call add len eq lt concat tostring name close gc metatable"):gmatch "%a+" do meta["__" .. name] = call end
        local trap = setmetatable({}, meta)
        with_globals({trap = trap, act = call}, function()
            for _, line in ipairs {"trap.a.b", "trap:a", "trap[1].b", "trap['", "trap().b", "(trap + 1).b", "(trap .. 1):b", "trap:a():b",
                "act():b", "act'x'.b", "trap["} do
                complete(line)
            end
        end)
        assert.is_false(called)
    end)

    it("takes any text", function()
        local pieces = {"x", ".", ":", "(", ")", "[", "]", "{", "}", "'", '"', "[[", "]]", "--", " ", "1", "+", "and", "flow", "sample", "\n", "\\", "==", ","}
        local state = 12345
        local function draw(n)
            state = (state * 1103515245 + 12345) % 2147483648
            return state // 65536 % n + 1
        end
        with_globals(values, function()
            for _ = 1, 3000 do
                local parts = {}
                for i = 1, draw(10) do parts[i] = pieces[draw(#pieces)] end
                local line = table.concat(parts)
                local ok, words, start = pcall(complete, line)
                assert.is_true(ok, line .. ": " .. tostring(words))
                for _, word in ipairs(words) do
                    assert.are.equal(line:sub(start), word:sub(1, #line - start + 1), line)
                end
            end
        end)
    end)
end)

describe("help", function()
    local function help(...)
        local lines, real = {}, print
        _G.print = function(text) lines[#lines + 1] = text end
        local ok, message = pcall(flow._help, ...)
        _G.print = real
        assert(ok, message)
        return table.concat(lines, "\n")
    end
    it("shows an op's signature and sentence", function()
        assert.are.equal("exp(x)\n    e to the power x.\n    has a gradient; in place: x:exp_()", help(flow.exp))
        assert.are.equal(help(flow.exp), help("exp"))
        assert.are.equal(help(flow.exp), help(flow.zeros(1).exp))
    end)
    it("shows the comment above a function of a module", function()
        local text = help(require("flow.inspect").text)
        assert.are.equal("text(value)", text:match("^[^\n]*"))
        assert.truthy(text:find("The text of one value", 1, true))
    end)
    it("knows every function that is not an op", function()
        local holders = {flow, flow._methods, flow.engine, flow.infer_cache, {split = flow.sbp.split, all = flow.placement.all}}
        for _, holder in ipairs(holders) do
            for name, f in pairs(holder) do
                if type(f) == "function" and name:sub(1, 1) ~= "_" then
                    assert.truthy(help(f):find("^[%w_.:]+%(.-%)\n    %S"), name .. ": " .. help(f))
                end
            end
        end
    end)
    it("says how a module, an optimizer and a placement are made", function()
        local want = "^Linear%(inputs: integer >= 1, outputs: integer >= 1, [^\n]*%)\n    y = x W%^T %+ b\n    @param inputs integer\n"
        assert.truthy(help(flow.nn.Linear):find(want), help(flow.nn.Linear))
        assert.are.equal(help(flow.nn.Linear), help(flow.nn.Linear(1, 1)))
        assert.are.equal("Tanh()", help(flow.nn.Tanh))
        assert.truthy(help(flow.optim.SGD):find("^SGD%(parameters, options%)\n.*lr = 0.001"))
        assert.truthy(help(flow.placement):find("^placement%(type, ranks%)\n"))
        local Own = flow.nn.Module:extend("Own")
        function Own:init(n) self.n = n end
        assert.are.equal("Own(...)", help(Own))
    end)
    it("searches names first, then descriptions", function()
        local text = help "soft"
        local named, mentioned = text:match "^(.-)\nfunctions that mention 'soft':\n(.*)$"
        for _, name in ipairs {"flow.softmax", "flow.log_softmax", "nn.Softmax"} do
            assert.truthy((named .. "\n"):find("    " .. name .. "[ \n]"), named)
        end
        assert.truthy(mentioned:find("    flow.cross_entropy ", 1, true), text)
        assert.falsy(named:find("cross_entropy", 1, true), named)
        assert.truthy(help "adamw":find("^    optim.AdamW "), help "adamw")
        assert.truthy(help "sigm":find("    flow.sigmoid ", 1, true))
        assert.truthy(help "SAVE":find("^    flow.save "), help "SAVE")
        assert.are.equal(help(flow.nn.Linear), help "Linear")
        assert.are.equal(help(flow.nn.Linear), help "nn.Linear")
        assert.are.equal(help(flow.exp), help "x:exp")
    end)
    it("lists modules and tensors", function()
        assert.are.equal("nothing about 'qqq'", help("qqq"))
        assert.are.equal("nothing about 'matmull'; did you mean 'matmul'?", help("matmull"))
        assert.truthy(help(flow.zeros(1)):find " reshape%s")
        assert.are.equal(help(flow.linalg.svd), help "linalg.svd")
        assert.are.equal(help(flow.det), help "linalg.det")
        assert.truthy(help(flow):find("%szeros%s"))
        assert.truthy(help(flow):find("^creation:\n    arange "))
        assert.is_nil(help(flow):find("_[%w]*testing"))
        for _, word in ipairs {"check", "builtins", "indexing", "ordered", "inspect", "program_trace"} do
            assert.is_nil(help(flow):find("%f[%w_]" .. word .. "%f[^%w_]"), word)
        end
        for _, f in ipairs {flow.eq, flow.zeros(1)} do
            assert.truthy(help(f):find("x == 1 is always false", 1, true))
        end
    end)
end)

-- Keys typed on a pseudo terminal: strings with a short pause after each, numbers are longer pauses in seconds. Returns
-- the output of the terminal, without and with its control sequences.
local function terminal(home, keys, environment)
    local parts = {}
    for _, key in ipairs(keys) do
        parts[#parts + 1] = type(key) == "number" and "sleep " .. key or ("printf '%s'; sleep 0.1"):format(key)
    end
    local command = "{ %s; } | HOME=%s TERM=xterm NO_COLOR= %s timeout 20 script -qec '%s' /dev/null"
    local text = process.output(command:format(table.concat(parts, "; "), home, environment or "", flowlua)):gsub("\r", "")
    return text:gsub("\27%[[%d;?]*%a", ""), text
end

local function paste(text) return "\\033[200~" .. text:gsub("\n", "\\r"):gsub("\t", "\\t") .. "\\033[201~" end

describe("a terminal", function()
    local has_script = process.has "script"
    local has_editor = os.execute("ldconfig -p 2>/dev/null | grep -q libedit.so.2")
    local home
    setup(function() home = process.folder() end)
    teardown(function() os.execute("rm -r " .. home) end)

    it("completes, cancels lines, stops a loop and remembers", function()
        if not (has_script and has_editor) then pending("needs script and libedit") return end
        local text = terminal(home, {
            0.7, "x = flow.ones_\\t(flow.zeros(2))\\n", "x.sh\\t\\n", "garbage that is cancelled\\003", "40 + 2\\n",
            "while true do end\\n", 0.7, "\\003", "\"still\" .. \" here\"\\n", "\\004",
        })
        assert.truthy(text:find("\n[2]\n", 1, true), text)
        assert.truthy(text:find("\n42\n", 1, true), text)
        assert.truthy(text:find("interrupted!", 1, true), text)
        assert.truthy(text:find("\nstill here\n", 1, true), text)
        assert.falsy(text:find("syntax error", 1, true), text)
        local history = process.read(home .. "/.flowlua_history")
        assert.truthy(history:find("40", 1, true))
    end)

    it("stops what catches errors at one Ctrl-C", function()
        if not (has_script and has_editor) then pending("needs script and libedit") return end
        local text = terminal(home, {
            0.7, "while true do pcall(function() while true do end end) end\\n", 0.7, "\\003", 0.3, "\"still\" .. \" here\"\\n",
            "while true do pcall(function() local _ <close> = flow.no_grad() while true do end end) end\\n", 0.7, "\\003", 0.3,
            "(flow.ones(2, {requires_grad = true}) * 2).requires_grad\\n",
            "flow.explain(function() while true do end end)\\n", 0.7, "\\003", 0.3,
            "#flow.explain(function() return flow.ones(2) + 1 end)\\n", "\\004",
        })
        assert.truthy(text:find("interrupted!", 1, true), text)
        assert.truthy(text:find("\nstill here\n", 1, true), text)
        assert.truthy(text:find("\ntrue\n", 1, true), text)
        assert.truthy(text:find("\n2\n", 1, true), text)
    end)

    local function on_terminal(name, body)
        it(name, function()
            if not (has_script and has_editor) then pending("needs script and libedit") return end
            os.remove(home .. "/.flowlua_history")
            body()
        end)
    end

    local function count(text, piece)
        local n, at = 0, 1
        while true do
            local first, last = text:find(piece, at, true)
            if not first then return n end
            n, at = n + 1, last + 1
        end
    end

    on_terminal("takes a pasted block as one chunk, tabs and all", function()
        local block = "local sum = 0\nfor i = 1, 3 do\n\tsum = sum + i\n\tflow.on\tend\nsum * 7"
        block = block:gsub("flow%.on\t", "-- flow.on\t-- no word\n")
        local text = terminal(home, {0.7, paste(block), "\\n", "\"next\" .. \" one\"\\n", "\\004"})
        assert.truthy(text:find("\n42\n", 1, true), text)
        assert.truthy(text:find("\nnext one\n", 1, true), text)
        assert.falsy(text:find("on_rank", 1, true), text)
        assert.falsy(text:find(">>", 1, true), text)
    end)

    on_terminal("edits what was pasted before it runs", function()
        local text = terminal(home, {0.7, paste "y = {\n  1,\n", "2", paste ",\n3}\n#y", " + 10\\n", "\\004"})
        assert.truthy(text:find("\n13\n", 1, true), text)
        -- Up and Down move in it: a = 1|50, then b = 20|1
        text = terminal(home, {0.7, paste "a = 10\nb = 20\na + b", "\\033[A\\033[A5", "\\033[B1\\n", "\\004"})
        assert.truthy(text:find("\n351\n", 1, true), text)
    end)

    on_terminal("clears a pasted block at Ctrl-C, and one whose end does not come", function()
        local text = terminal(home, {
            0.7, paste "print(\"not\" .. \"this\")\nprint(1)", "\\033[A", "\\003", "\"still\" .. \" here\"\\n",
            "\\033[200~half a block", "\\003", "\\003", "\"and\" .. \" here\"\\n", "\\004",
        })
        assert.falsy(text:find("notthis", 1, true), text)
        assert.truthy(text:find("\nstill here\n", 1, true), text)
        assert.truthy(text:find("\nand here\n", 1, true), text)
    end)

    on_terminal("brings an input of several lines back as one", function()
        local text = terminal(home, {
            0.7, "function double(x)\\n", "return 2 * x\\n", "end\\n", paste "for i = 1, 2 do\n\tprint(double(i) + 100)\nend", "\\n", "\\004",
        })
        assert.are.equal(1, count(text, "\n102\n104\n"), text)
        -- in the next session Up goes through the lines of the last block, and then to the one before it
        local up = "\\033[A"
        text = terminal(home, {0.7, up:rep(4) .. "\\n", "double(21)\\n", up:rep(5) .. "\\n", "\\004"})
        assert.truthy(text:find("\n42\n", 1, true), text)
        assert.are.equal(1, count(text, "\n102\n104\n"), text)
        assert.falsy(text:find(">>", 1, true), text)
    end)

    on_terminal("remembers when os.exit or quit ends it", function()
        terminal(home, {0.7, "first_line = 1\\n", "os.exit(0)\\n", 0.3})
        local text = terminal(home, {0.7, "\\033[A\\033[A\\n", "first_line\\n", "quit\\n", 0.3})
        assert.truthy(text:find("\n1\n", 1, true), text)
        local history = process.read(home .. "/.flowlua_history")
        assert.truthy(history:find("os.exit", 1, true), history)
        assert.truthy(history:find("quit", 1, true), history)
    end)

    on_terminal("completes after an expression, and shows the forms of indexing", function()
        local text = terminal(home, {
            0.7, "x = flow.ones(2, 3)\\n", "(x + 1):sum():unsq\\t(0).shape\\n", "x[\\t\\003", "t = {alpha = \"found\"}\\n", "t[\"al\\t\\n", "\\004",
        })
        assert.truthy(text:find("(x + 1):sum():unsqueeze(0).shape\n[1]\n", 1, true), text)
        assert.truthy(text:find("\n[0]            position 0 of axis 0; -1 is the last\n", 1, true), text)
        assert.truthy(text:find("\nfound\n", 1, true), text)
    end)

    on_terminal("has colours and times where the terminal has them", function()
        local keys = {0.7, "flow.ones(2)\\n", "error(\"bad\", 0)\\n", "1 +* 2\\n", "_ = io.popen(\"sleep 0.2\"):close()\\n", 0.5, "quit\\n", 0.3}
        local plain, text = terminal(home, keys)
        assert.truthy(text:find("\27[1m>\27[0m ", 1, true), text)
        assert.truthy(text:find("[1.0, 1.0]  \27[2mfloat32[2] on cpu\27[0m\n", 1, true), text)
        assert.truthy(text:find("\27[31mbad\27[0m\27[2m\nstack traceback:", 1, true), text)
        assert.truthy(text:find("\27[31mstdin:1: unexpected symbol near '1'\27[0m\n", 1, true), text)
        assert.truthy(text:find("\27%[2m%d%.%d%d s\27%[0m\n"), text)
        assert.truthy(plain:find("\n%d%.%d%d s\n"), plain)
        assert.truthy(text:find("\27[?2004h", 1, true), text)
        for _, environment in ipairs {"NO_COLOR=1", "TERM=dumb"} do
            plain, text = terminal(home, keys, environment)
            assert.falsy(text:find("\27%[[%d;]*m"), environment .. text)
            assert.are.equal(environment == "NO_COLOR=1", text:find("\27[?2004h", 1, true) ~= nil, environment)
            assert.truthy(plain:find("\n%d%.%d%d s\n"), environment .. plain)
        end
    end)

    it("takes letters beyond ASCII, whatever the locale", function()
        if not (has_script and has_editor) then pending("needs script and libedit") return end
        local text = terminal(home, {0.7, "\"añ→日\", #\"añ→日\"\\n", "\\004"}, "LC_ALL=C")
        assert.truthy(text:find("\nañ→日\t9\n", 1, true), text)
    end)
end)
