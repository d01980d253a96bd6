-- engine_spec.lua -- the engine as scripts meet it: the same results in every mode, errors of queued ops, traces, the end
-- of the program, child processes. Its queues are tested in C (tests/c/test_engine.c).
local json = require "flow.json"
local process = require "tests.process"

local program, lines = process.absolute(), process.lines
local folder, write

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

-- Runs a script of that text, called test.lua in messages; its output and how it ended.
local function run(text, environment, options)
    write("test.lua", text)
    return process.output(("cd %s && %s %s %s test.lua 2>&1"):format(folder, environment or "", program, options or ""))
end

describe("a training", function()
    local script = [[
        local flow = require "flow"
        local nn, optim = flow.nn, flow.optim
        flow.manual_seed(5)
        local net = nn.Sequential(nn.Embedding(11, 12), nn.LayerNorm(12), nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 11))
        local opt = optim.AdamW(net:parameters(), {lr = 1e-2, weight_decay = 0.1})
        local digest = 0
        local function note(t) -- exact: the bits of the float64 sums
            local sum = t:detach():to("float64"):sum():item()
            digest = (digest * 31 + ("<I8"):unpack(("<d"):pack(sum))) & 0x7fffffffffffffff
        end
        for step = 1, 40 do
            local x = flow.randint(0, 11, {16, 9})
            opt:zero_grad()
            local out = net(x):view(-1, 11)
            local loss = flow.cross_entropy(out, x:view(-1), {label_smoothing = 0.1})
            loss:backward()
            optim.clip_grad_norm(net:parameters(), 0.5)
            opt:step()
            note(loss)
        end
        local attention = nn.CausalSelfAttention(12, 3, {dropout = 0.1})
        for _, p in ipairs(net:parameters()) do note(p) end
        local a = attention(flow.randn(2, 40, 12, {requires_grad = true}))
        a:square():sum():backward()
        for _, p in ipairs(attention:parameters()) do note(p.grad) end
        flow.sync()
        print(digest)]]

    it("is the same bit for bit in every mode of the engine", function()
        local want, code = run(script)
        assert.are.equal(0, code, want)
        assert.matches("^%d+\n$", want)
        for _, environment in ipairs {"FLOW_ENGINE=naive", "FLOW_ENGINE=queued", "FLOW_ENGINE=auto", "FLOW_ENGINE=queued FLOW_THREADS=3"} do
            assert.are.equal(want, (run(script, environment)), environment)
        end
    end)

    it("queues and does not, as the mode says", function()
        local count = [[
            local flow = require "flow"
            local x = flow.ones(3)
            for _ = 1, 100 do x = x * 2 end
            flow.sync()
            local s = flow.engine.stats()
            print(s.queued_ops >= 100, s.threads, s.inline_ops >= 100)]]
        assert.are.equal("true\t1\tfalse\n", (run(count, "FLOW_ENGINE=queued")))
        assert.are.equal("false\t0\ttrue\n", (run(count, "FLOW_ENGINE=auto")))
        assert.are.equal("false\t0\ttrue\n", (run(count, "FLOW_ENGINE=naive")))
    end)

    it("in a mode that does not exist says so and goes on", function()
        local output, code = run("print(require('flow').ones(2):sum():item())", "FLOW_ENGINE=fast")
        assert.are.equal("flowlua: FLOW_ENGINE=fast is none of naive, queued, auto; using auto\n2.0\n", output)
        assert.are.equal(0, code)
    end)

    it("on a level of the CPU that does not exist says so and takes the best", function()
        local output, code = run("print(require('flow').ones(2):sum():item())", "FLOW_CPU=avx9")
        assert.matches("^flowlua: FLOW_CPU=avx9 is none of base, avx2, avx512; using %w+\n2.0\n$", output)
        assert.are.equal(0, code)
    end)
end)

describe("a queued op that fails", function()
    local function queued(text)
        local output = run(text, "FLOW_ENGINE=queued")
        return lines(output)
    end

    local failures = {
        {"embedding", "flow.embedding(flow.tensor {1, 9}, flow.ones(5, 3))", "embedding (test.lua:2): indices[1] is 9, but weight has 5 rows (0 to 4)"},
        {"cross_entropy", "flow.cross_entropy(flow.ones(3, 4), flow.tensor {0, 4, 1})", "cross_entropy (test.lua:2): target[1] is 4, but input has 4 classes (0 to 3)"},
        {"floor_divide", "flow.tensor {1, 2} // flow.tensor {1, 0}", "floor_divide (test.lua:2): division by zero"},
        {"remainder", "flow.tensor {1, 2} % flow.tensor {1, 0}", "remainder (test.lua:2): division by zero"},
        {"pow", "flow.tensor {1, 2} ^ flow.tensor {1, -1}", "pow (test.lua:2): integers to negative integer powers are not allowed; write x:to(\"float32\") first"},
        {"linalg.inv", "flow.linalg.inv(flow.zeros(2, 2))", "linalg.inv (test.lua:2): the matrix is singular: pivot 1 of its LU factors is 0"},
        {"gather", "flow.ones(2, 2):gather(0, flow.tensor {{0, 2}})", nil},
        {"index_select", "flow.ones(2, 2):index_select(0, flow.tensor {0, -3})", nil},
    }
    local ways = {
        {"item", "y:sum():item()"}, {"print", "print(y)"}, {"totable", "y:totable()"}, {"save", "flow.save('x.st', {y = y})"}, {"sync", "flow.sync()"},
        {"the last of ten ops that read it", "for _ = 1, 10 do y = y * 2 end y:sum():item()"},
    }
    for _, failure in ipairs(failures) do
        for _, way in ipairs(ways) do
            it(failure[1] .. " is reported at " .. way[1], function()
                local output = queued(("local flow = require 'flow'\nlocal y = %s\nprint 'made'\nlocal function use() %s end\nprint(select(2, pcall(use)))")
                    :format(failure[2], way[2]))
                assert.are.equal("made", output[1])
                if failure[3] then assert.are.equal("test.lua:4: " .. failure[3], output[2])
                else assert.matches("^test.lua:4: " .. failure[1] .. " %(test.lua:2%): ", output[2]) end
                assert.is_nil(output[3])
            end)
        end
    end

    it("is reported once at sync", function()
        assert.are.same({"false\ttest.lua:3: floor_divide (test.lua:2): division by zero", "true"}, queued [[
            local flow = require 'flow'
            local y = flow.tensor {1} // 0
            print(pcall(function() flow.sync() end))
            print(pcall(function() flow.sync() end))]])
    end)

    it("spares what reads and writes", function()
        assert.are.same({"1\t2", "test.lua:5: floor_divide (test.lua:2): division by zero", "2\t3"}, queued [[
            local flow = require 'flow'
            local x, y = flow.tensor {1, 2}, flow.tensor {1} // 0
            x:add_(y)
            print(table.unpack(x:totable()))
            print(select(2, pcall(function() flow.sync() end)))
            x:add_(1)
            print(table.unpack(x:totable()))]])
    end)

    it("that writes in place poisons its target until all of it is overwritten", function()
        for _, overwrite in ipairs {"x:zero_()", "x:fill_(0)", "x:copy_(flow.tensor {0, 0})", "x:copy_(0 * flow.tensor {0})"} do
            assert.are.same({"false", "false", "0\t0", "true"}, queued([[
                local flow = require 'flow'
                local x = flow.tensor {1, 2}
                x:floor_divide_(0)
                print((pcall(function() return x:totable() end)))
                x[0] = 1
                print((pcall(function() return x:totable() end)))
                ]] .. overwrite .. [[

                print(table.unpack(x:totable()))
                print((pcall(flow.sync)))]]), overwrite)
        end
    end)

    it("leaves a tensor that has no values yet without them", function()
        local made = {"flow.empty(2, 2)", "flow.empty_like(flow.ones(2, 2))", "flow.ones(2, 2):new_empty(2, 2)"}
        local writes = {"x:copy_(bad)", "x[1] = bad[1]", "x[0] = 1 x[1] = bad[1]", "x[0]:fill_(1) x[1]:copy_(bad[1]) x[1]:fill_(1)"}
        for _, make in ipairs(made) do
            for _, writing in ipairs(writes) do
                assert.are.same({"test.lua:5: floor_divide (test.lua:2): division by zero", "true", "7"}, queued([[
                    local flow = require 'flow'
                    local x = ]] .. make .. [[ local bad = flow.tensor {{1, 1}, {1, 1}} // 0
                    ]] .. writing .. [[

                    print((tostring(select(2, pcall(function() return x:totable() end))):gsub("test.lua:%d: ", "test.lua:5: ", 1)))
                    print(pcall(flow.sync))
                    x:fill_(7)
                    print((x:max():to "int32":item()))]]), writing)
            end
        end
    end)

    it("spares a tensor that was filled once, in parts or not", function()
        for _, writing in ipairs {"x:fill_(1)", "x:copy_(flow.ones(2, 2))", "x:uniform_(1, 1)", "x[0] = 1 x[1] = 1 x:mul_(1)",
            "flow.from_dlpack(x):fill_(1)"} do
            assert.are.same({"4", "false", "true"}, queued([[
                local flow = require 'flow'
                local x = flow.empty(2, 2)
                ]] .. writing .. [[

                x:copy_(flow.tensor {{1, 1}, {1, 1}} // 0) x[0] = flow.tensor {1, 1} // 0
                print(x:sum():to "int32":item())
                print((pcall(flow.sync)))
                print((pcall(flow.sync)))]]), writing)
        end
    end)

    it("that draws random numbers is followed by others", function()
        assert.are.same({"false", "true"}, queued [[
            local flow = require 'flow'
            local x = flow.ones(2)
            x:copy_(flow.ones(2) * (flow.tensor {1, 1} // 0))
            x:mul_(flow.tensor {1, 1} // 0)
            print((pcall(flow.sync)))
            x:uniform_() x:normal_()
            print((pcall(flow.sync)))]])
    end)

    it("leaves an index assignment undone", function()
        assert.are.same({"1.0\t1.0", "test.lua:5: index (test.lua:3): position 2 (element 1 of the index) is out of range for an axis of size 2"}, queued [[
            local flow = require 'flow'
            local x = flow.ones(2)
            x[flow.tensor {0, 2}] = 5
            print(table.unpack(x:totable()))
            print(select(2, pcall(function() flow.sync() end)))]])
    end)

    for _, optimizer in ipairs {"SGD(net:parameters(), {lr = 0.1})", "SGD(net:parameters(), {lr = 0.1, momentum = 0.9})", "Adam(net:parameters(), {lr = 0.1})",
        "AdamW(net:parameters(), {lr = 0.1})"} do
        for _, mode in ipairs {"queued", "auto", "naive"} do
            it("does not destroy a model: " .. optimizer:match("^%w+") .. " " .. mode, function()
                local output = lines((run([[
                    local flow = require "flow"
                    local nn, optim = flow.nn, flow.optim
                    flow.manual_seed(1)
                    local net = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(8, 3))
                    local opt = optim.]] .. optimizer .. [[

                    local function digest()
                        local all = {}
                        for i, p in ipairs(net:parameters()) do all[i] = table.concat(p:view(-1):totable(), " ") end
                        return table.concat(all, " ")
                    end
                    local function step(x, y, clip)
                        opt:zero_grad()
                        local loss = flow.cross_entropy(net(flow.tensor(x)), flow.tensor(y))
                        loss:backward()
                        if clip then optim.clip_grad_norm(net:parameters(), 1) end
                        opt:step()
                        return loss
                    end
                    local function bad(x, y, clip)
                        local ok, message = pcall(step, x, y, clip)
                        if ok then ok, message = pcall(function() flow.sync() end) end
                        print((message:gsub("^[^ ]* ", ""):gsub(" %(test.lua:%d+%)", "", 1)))
                    end
                    step({{0, 1}, {2, 3}}, {0, 1})
                    local before = digest()
                    bad({{0, 1}, {2, 3}}, {0, 3})
                    print(digest() == before)
                    bad({{0, 1}, {2, 9}}, {0, 2}, true)
                    print(digest() == before)
                    print(pcall(step, {{0, 1}, {2, 3}}, {2, 1}))
                    print(pcall(flow.sync))
                    print(digest() ~= before)
                    for _, p in ipairs(net:parameters()) do p.grad:sum():item() end]], "FLOW_ENGINE=" .. mode)))
                assert.are.equal("cross_entropy: target[1] is 3, but input has 3 classes (0 to 2)", output[1])
                assert.are.equal("true", output[2])
                assert.matches("embedding: indices%[1, 1%] is 9, but weight has 6 rows %(0 to 5%)$", output[3])
                assert.are.equal("true", output[4])
                assert.matches("^true\t", output[5])
                assert.are.equal("true", output[#output - 1])
                assert.are.equal("true", output[#output])
            end)
        end
    end

    it("in a gradient is cleared by zero_grad", function()
        assert.are.same({"false", "true\t3.0"}, queued [[
            local flow = require "flow"
            local p = flow.nn.Parameter(flow.ones(3))
            local opt = flow.optim.SGD({p}, {lr = 0.1})
            local bad = (flow.tensor {1, 1, 1} // flow.tensor {1, 0, 1}):to("float32")
            local loss = (p * bad):sum()
            loss:backward()
            print((pcall(function() return p.grad:totable() end)))
            opt:zero_grad()
            p:sum():backward()
            print(pcall(function() return p.grad:sum():item() end))]])
    end)

end)

describe("--trace", function()
    local script = [[
        local flow = require "flow"
        local x = flow.ones(64, 64, {requires_grad = true})
        local y = x:matmul(x):sum()
        y:backward()
        flow.save("out.st", {x = x})]]

    it("shows ops that were computed in one pass as one, with their lines", function()
        local output, code = run([[
            local flow = require "flow"
            local x = flow.ones(300, 300)
            local y = x * x
            local z = y + 1
            print(z:sum():item())]], "FLOW_ENGINE=auto", "--trace trace.json")
        assert.are.equal(0, code, output)
        local found
        for _, event in ipairs(json.decode(process.read(folder .. "/trace.json")).traceEvents) do
            if event.name == "fused(mul, add, sum)" then found = event end
        end
        assert.are.equal("mul test.lua:3, add test.lua:4, sum test.lua:5", found.args.steps)
        assert.are.equal("test.lua:5", found.args.line)
    end)

    for _, mode in ipairs {"auto", "queued", "naive"} do
        it("writes the ops and the script's lines as a Chrome trace, " .. mode, function()
            local output, code = run(script, "FLOW_ENGINE=" .. mode, "--trace trace.json")
            assert.are.equal(0, code, output)
            local trace = json.decode(process.read(folder .. "/trace.json"))
            local found, threads = {}, {}
            for _, event in ipairs(trace.traceEvents) do
                if event.ph == "X" then
                    assert.is_true(event.ts >= 0 and event.dur >= 0)
                    assert.is_number(event.pid)
                    assert.is_truthy(threads[event.tid], "tid " .. tostring(event.tid) .. " has no name")
                    found[event.name .. " " .. event.args.line] = true
                elseif event.name == "thread_name" then threads[event.tid] = event.args.name end
            end
            for _, want in ipairs {"ones test.lua:2", "matmul test.lua:3", "sum test.lua:3"} do assert.is_true(found[want], want) end
            local backward = false
            for name in pairs(found) do backward = backward or name:find("test.lua:4", 1, true) ~= nil end
            assert.is_true(backward)
        end)
    end

    it("is written by a script that fails or calls os.exit", function()
        for _, ending in ipairs {"error 'stop'", "os.exit(0)", "os.exit(0, true)"} do
            os.remove(folder .. "/trace.json")
            run("local flow = require 'flow'\nflow.ones(3):sum()\n" .. ending, "", "--trace trace.json")
            assert.is_truthy(json.decode(process.read(folder .. "/trace.json")).traceEvents[5], ending)
        end
    end)

    it("to a place that cannot be written is an error before the script runs", function()
        local output, code = run("print 'ran'", "", "--trace /nowhere/trace.json")
        assert.are.equal(1, code)
        assert.are.equal(program .. ": --trace: cannot write '/nowhere/trace.json': No such file or directory\n", output)
    end)
end)

describe("the end of a program", function()
    it("does not wait for what is queued", function()
        for _, ending in ipairs {"", "os.exit(0)", "os.exit(0, true)", "error 'stop'"} do
            local output = run([[
                local flow = require "flow"
                local x = flow.ones(4096, 4096)
                local y = x:narrow(0, 0, 512)
                local kept = {}     -- memory of garbage would be waited for
                for i = 1, 50 do
                    y = y:matmul(x)     -- 860 GFLOP in all: some 9 s
                    kept[i] = y
                end
                print(flow.engine.stats().queued_ops >= 50)
                local file = io.open("end", "w") file:write(os.time()) file:close()
                ]] .. ending, "FLOW_ENGINE=queued FLOW_THREADS=1")
            assert.matches("^true", output, ending)
            local ended = tonumber(process.read(folder .. "/end"))
            assert.is_true(os.time() - ended <= process.limit(3), ("took %d s to end: %s"):format(os.time() - ended, ending))
        end
    end)

    local bad = "local flow = require 'flow'\nlocal y = flow.ones(3):index_select(0, flow.tensor{9})\n"

    it("reports an error that was found and that no wait has raised", function()
        local output, code = run(bad .. "while flow.engine.stats().failed_ops == 0 do end", "FLOW_ENGINE=queued")
        assert.matches(": index_select %(test%.lua:2%): index%[0%] is 9, [^\n]*\n$", output)
        assert.are.equal(1, code)
    end)

    it("does not report one again that was raised", function()
        for _, ending in ipairs {"pcall(y.totable, y)", "pcall(flow.sync)", "local w = flow.ones(1) pcall(w.add_, w, y) pcall(y.totable, y)"} do
            assert.are.same({"", 0}, {run(bad .. ending, "FLOW_ENGINE=queued")})
        end
    end)
end)

describe("a child process", function()
    for _, mode in ipairs {"auto", "queued"} do
        it("started while ops are queued leaves them alone, " .. mode, function()
            local output = run([[
                local flow = require "flow"
                local x = flow.ones(300, 300)
                for _ = 1, 50 do x = x:matmul(flow.eye(300)) end
                print(os.execute("exit 3"))
                local pipe = io.popen("echo from the child")
                print(pipe:read("l"))
                pipe:close()
                for _ = 1, 50 do x = x:matmul(flow.eye(300)) end
                print(x:sum():item())
                flow.sync()]], "FLOW_ENGINE=" .. mode)
            assert.are.equal("nil\texit\t3\nfrom the child\n90000.0\n", output)
        end)
    end
end)

describe("the end of the program while products are queued", function()
    local script = [[
        local flow = require "flow"
        local way = "%s"
        local x = flow.ones(600, 600)
        for _ = 1, 30 do x = x:matmul(x) * 1e-6 end
        if way == "finalizer" then setmetatable({}, {__gc = function() error "late" end}) end
        if way == "exit" then os.exit() end
        if way == "code" then os.exit(3) end
        if way == "close" then os.exit(true, true) end
        if way == "coroutine" then coroutine.wrap(function() os.exit(4, true) end)() end
        if way == "error" then error "enough" end
    ]]

    -- the end, the exit code, options
    for _, case in ipairs {{"return", 0}, {"exit", 0}, {"code", 3}, {"close", 0}, {"coroutine", 4}, {"error", 1}, {"finalizer", 0}, {"exit", 0, "--trace trace.json"}} do
        local way, want, options = table.unpack(case, 1, 3)
        it(("by %s%s is an orderly one"):format(way, options and ", with a trace," or ""), function()
            for _ = 1, 4 do
                local output, code = run(script:format(way), "FLOW_ENGINE=queued", options)
                assert.are.equal(want, code, output)
            end
        end)
    end
end)
