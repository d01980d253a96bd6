-- The interactive session: plain input here, keys on a terminal below.
local flow = require "flow"
local flowlua = os.getenv("FLOWLUA") or "build/flowlua"

-- What a session without a terminal prints for these lines, prompts and errors included.
local function session(lines)
    local name = os.tmpname()
    local file = io.open(name, "w")
    file:write(lines)
    file:close()
    local pipe = io.popen(("%s -i <%s 2>&1"):format(flowlua, name))
    local text = pipe:read("a")
    pipe:close()
    os.remove(name)
    return (text:gsub("^flowlua[^\n]*\n", ""):gsub("> $", ""))
end

describe("the session", function()
    -- {lines, output}
    local cases = {
        {"1 + 1\n", "> 2\n"},
        {"x = 5\nx\n", "> > 5\n"},
        {"= 3\n", "> 3\n"},
        {"1, nil, 'a'\n", "> 1\tnil\ta\n"},
        {"for i = 1, 2 do\nprint(i)\nend\n", "> >> >> 1\n2\n"},
        {"function f(a)\n  return a * 2\nend\nf(4)\n", "> >> >> > 8\n"},
        {"2 +\n3\n", "> >> 5\n"},
        {"7\n_ * 2\n", "> 7\n> 14\n"},
        {"{1, 2, a = {b = 'c'}}\n", "> {1, 2, a = {b = \"c\"}}\n"},
        {"{}\n", "> {}\n"},
        {"flow.ones(2)\n", "> [1.0, 1.0]  float32[2] on cpu\n"},
        {"nil\n", "> nil\n"},
        {"local y = 3\ny\n", "> > nil\n"},
        {"print(arg[0] ~= nil)\n", "> true\n"},
        {"_PROMPT = 'flow: '\n1\n", "> flow: 1\nflow: "},
    }
    it("prints values and reads on until a statement is complete", function()
        for _, case in ipairs(cases) do
            local output = session(case[1]):gsub("\n$", "", 1)
            assert.are.equal((case[2]:gsub("\n$", "", 1)), (output:gsub("\n> $", ""):gsub("\n$", "")), case[1])
        end
    end)

    it("goes on after an error", function()
        local output = session("error('boom')\n'alive'\n")
        assert.truthy(output:find("stdin:1: boom\nstack traceback:", 1, true))
        assert.truthy(output:find("alive\n", 1, true))
    end)

    it("says of a value that is missing why, and nothing about itself", function()
        local lines = "flow._testing.engine 'queued'\nflow.embedding(flow.tensor{9}, flow.ones(3, 2))\n'alive'\n"
        assert.are.equal("> auto\n> embedding (stdin:1): indices[0] is 9, but weight has 3 rows (0 to 2)\n> alive\n> \n", session(lines))
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
    -- {line, candidates that must be there, or the whole list when `only`}
    local cases = {
        {"str", {"string"}, only = true},
        {"x = string.fo", {"string.format"}, only = true},
        {"flow.zer", {"flow.zeros", "flow.zeros_like"}, only = true},
        {"flow.nn.Lin", {"flow.nn.Linear"}},
        {"sample:res", {"sample:reshape"}, only = true},
        {"sample.sha", {"sample.shape"}, only = true},
        {"f(sample:resh", {"sample:reshape"}, only = true},
        {"retu", {"return"}, only = true},
        {"flow.placement.", {"flow.placement.all"}, only = true},
        {"word:up", {"word:upper"}, only = true},
        {"nothing.at.all.", {}, only = true},
        {"flow._", {"flow._op"}},
    }
    it("follows globals, fields, modules and methods", function()
        _G.sample, _G.word, _G.flow = flow.zeros(2), "text", flow
        for _, case in ipairs(cases) do
            local found = flow._complete(case[1])
            if case.only then assert.are.same(case[2], found, case[1]) end
            for _, name in ipairs(case[2]) do
                assert.truthy((" " .. table.concat(found, " ") .. " "):find(" " .. name .. " ", 1, true), case[1])
            end
        end
        _G.sample, _G.word, _G.flow = nil, nil, nil
    end)

    it("calls no code of the user's", function()
        local called = false
        _G.trap = setmetatable({}, {__index = function() called = true end, __pairs = function() called = true end})
        flow._complete("trap.a.b")
        _G.trap = nil
        assert.is_false(called)
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
        local want = "Linear(inputs, outputs, opts)\n    y = x W^T + b\n    @param inputs integer\n"
        assert.are.equal(want, help(flow.nn.Linear):sub(1, #want))
        assert.are.equal(help(flow.nn.Linear), help(flow.nn.Linear(1, 1)))
        assert.are.equal("ReLU()", help(flow.nn.ReLU))
        assert.truthy(help(flow.optim.SGD):find("^SGD%(parameters, options%)\n.*lr = 0.001"))
        assert.truthy(help(flow.placement):find("^placement%(type, ranks%)\n"))
        local Own = flow.nn.Module:extend("Own")
        function Own:init(n) self.n = n end
        assert.are.equal("Own(...)", help(Own))
    end)
    it("searches for a word and lists modules and tensors", function()
        assert.truthy(help("sigm"):find("flow.sigmoid", 1, true))
        assert.are.equal("nothing about 'qqq'", help("qqq"))
        assert.are.equal("nothing about 'matmull'; did you mean 'matmul'?", help("matmull"))
        assert.truthy(help(flow.zeros(1)):find(" reshape ", 1, true))
        assert.truthy(help(flow):find(" zeros ", 1, true))
    end)
end)

-- Keys typed on a pseudo terminal: strings with a short pause after each, numbers are longer pauses in seconds.
local function terminal(home, keys, environment)
    local parts = {}
    for _, key in ipairs(keys) do
        parts[#parts + 1] = type(key) == "number" and "sleep " .. key or ("printf '%s'; sleep 0.1"):format(key)
    end
    local command = "{ %s; } | HOME=%s TERM=xterm %s timeout 20 script -qec '%s' /dev/null"
    local pipe = io.popen(command:format(table.concat(parts, "; "), home, environment or "", flowlua))
    local text = pipe:read("a")
    pipe:close()
    return (text:gsub("\r", ""))
end

describe("a terminal", function()
    local has_script = os.execute("command -v script >/dev/null 2>&1")
    local has_editor = os.execute("ldconfig -p 2>/dev/null | grep -q libedit.so.2")
    local home
    setup(function()
        home = os.tmpname()
        os.remove(home)
        os.execute("mkdir " .. home)
    end)
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
        local history = io.open(home .. "/.flowlua_history"):read("a")
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

    it("takes letters beyond ASCII, whatever the locale", function()
        if not (has_script and has_editor) then pending("needs script and libedit") return end
        local text = terminal(home, {0.7, "\"añ→日\", #\"añ→日\"\\n", "\\004"}, "LC_ALL=C")
        assert.truthy(text:find("\nañ→日\t9\n", 1, true), text)
    end)
end)
