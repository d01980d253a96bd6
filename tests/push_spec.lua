-- push_spec.lua -- flow.engine.push: Lua functions among the ops, in a state and on a thread of their own.
local flow = require "flow"

local push = flow.engine.push

local function fails(message, f, ...)
    local ok, got = pcall(f, ...)
    assert.is_false(ok)
    assert.are.equal(message, (got:gsub("^[^ ]*:%d+: ", "")))
end

-- The same for an error of the function, whose place stands in brackets and before it.
local function job_fails(message, options)
    local job = push(options)
    local ok, got = pcall(job.wait, job)
    assert.is_false(ok)
    got = got:gsub("^[^ ]*:%d+: ", ""):gsub("%([^ ]*_spec.lua:%d+%)", "(LINE)"):gsub(" [^ ]*_spec.lua:%d+:", " LINE:")
    assert.are.equal(message, got)
end

describe("engine.push", function()
    it("calls a function with arrays and arguments, and gives what it returns", function()
        local x, y = flow.arange(4, {dtype = "float32"}), flow.zeros(4)
        local job = push{
            run = function(reads, writes, factor, text, flag, nothing)
                local from, to = reads[1], writes[1]
                for i = 0, #from - 1 do to[i] = from[i] * factor end
                return from.dtype, #from.shape, text .. "!", flag, nothing, 1 << 40, 0.5
            end,
            reads = {x}, writes = {y}, args = {3, "done", true},
        }
        assert.are.same({"float32", 1, "done!", true, nil, 1 << 40, 0.5}, {job:wait()})
        assert.are.same({"float32", 1, "done!", true, nil, 1 << 40, 0.5}, {job:wait()})
        assert.are.same({0, 3, 6, 9}, y:totable())
        assert.is_true(job:done())
        assert.are.equal("job (done)", tostring(job))
    end)

    it("takes the text of a chunk, and long functions", function()
        local reads, writes, a, b = push{run = "return type((...)), select('#', ...), select(3, ...)", args = {"x", "y"}}:wait()
        assert.are.same({"table", 4, "x", "y"}, {reads, writes, a, b})
        local long = {"local n = 0"}
        for i = 1, 2000 do long[#long + 1] = ("n = n + %d.5"):format(i) end
        long[#long + 1] = "return n"
        assert.are.equal(2002000, push{run = load(table.concat(long, "\n"))}:wait())
    end)

    it("comes in its turn among the ops", function()
        local x, y = flow.ones(1 << 16), flow.zeros(1 << 16)
        local slow = function(reads, writes)
            local start = os.clock()
            while os.clock() - start < 0.05 do end
            writes[1]:frombytes(reads[1]:tobytes())
        end
        local z = x * 2 + 1
        local job = push{run = slow, reads = {z}, writes = {y}}
        local after = y + 1
        z:zero_()
        assert.are.equal(4, after[0]:item())
        assert.are.equal(4, after[(1 << 16) - 1]:item())
        job:wait()
        assert.are.equal(0, z:sum():item())
    end)

    it("runs many, in order", function()
        local counter = flow.zeros(1, {dtype = "int64"})
        for i = 1, 2000 do
            push{run = function(_, writes, want)
                if writes[1][0] ~= want - 1 then error("out of order") end
                writes[1][0] = want
                return ("x"):rep(100)
            end, writes = {counter}, args = {i}}
        end
        collectgarbage()
        assert.are.equal(2000, counter:item())
    end)

    it("begins what could begin by priority, in each in order", function()
        local gate = os.tmpname()
        assert(os.remove(gate))
        push{run = function(_, _, path) -- keeps the thread until all are pushed
            turns = ""          -- luacheck: ignore 111
            local file
            repeat file = io.open(path) until file
            file:close()
        end, args = {gate}, priority = 1}
        local x = flow.zeros(1)
        local function add(name, priority, reads, writes)
            return push{run = "local _, _, name = ... turns = turns .. name return turns", args = {name}, priority = priority,
                reads = reads, writes = writes}
        end
        local jobs = {add("a", -1, nil, {x}), add("b", nil), add("c", 1), add("d", -1), add("e", 0), add("f", 1),
            add("g", 1, {x})} -- after a, which writes what it reads
        assert(io.open(gate, "w")):close()
        for _, job in ipairs(jobs) do job:wait() end
        os.remove(gate)
        assert.are.equal("cfbeagd", jobs[4]:wait())
    end)

    it("reads and writes elements of every dtype", function()
        for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"} do
            local x, y = flow.tensor({{1, 0}, {1, 1}}, {dtype = dtype}), flow.zeros(2, 2, {dtype = dtype})
            push{run = function(reads, writes)
                for i = 0, 3 do writes[1][i] = reads[1][i] end
            end, reads = {x:t()}, writes = {y}}
            assert.are.same(x:t():totable(), y:totable(), dtype)
        end
    end)

    it("writes into views", function()
        local x = flow.zeros(2, 3)
        push{run = function(_, writes) for i = 0, #writes[1] - 1 do writes[1][i] = 7 end end, writes = {x[1]}}
        assert.are.same({{0, 0, 0}, {7, 7, 7}}, x:totable())
    end)

    it("is seen by gradients", function()
        local w, x = flow.ones(2, {requires_grad = true}), flow.ones(2)
        local loss = (w * x):sum()
        push{run = function(_, writes) writes[1][0] = 5 end, writes = {x}}
        assert.is_false((pcall(loss.backward, loss)))
    end)

    it("passes errors on to the handle, and to what uses the tensors written", function()
        local x, y = flow.ones(1), flow.ones(1)
        job_fails("push (LINE): LINE: boom", {run = function() error "boom" end, writes = {x}})
        assert.is_false((pcall(x.item, x)))
        job_fails("push (LINE): LINE: boom", {run = function() return 1 end, reads = {x}, writes = {y}})
        x:zero_()
        assert.are.equal(0, x:item())
        assert.are.equal(1, push{run = function() return 1 end, reads = {x}}:wait())
        job_fails("push (LINE): LINE: os.exit: a function of engine.push cannot end the process", {run = function() os.exit(1) end})
        job_fails("push (LINE): LINE: os.execute: a function of engine.push cannot run it, as Ctrl-C would be lost meanwhile; " ..
            "run the command before, or with io.popen(command):close()", {run = function() os.execute("true") end})
        job_fails("push (LINE): result 2 is a table; results are numbers, strings, booleans and nil",
            {run = function() return 1, {} end})
        job_fails("push (LINE): push:1: unexpected symbol near <eof>", {run = "return ("})
        local ok, message = pcall(function() push{run = "require 'flow'"}:wait() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("flow cannot be required here: a function of engine.push runs beside it", 1, true), message)
    end)

    it("says what is wrong with the use of an array", function()
        local x = flow.ones(2, {dtype = "uint8"})
        for message, code in pairs {
            ["position 2 is outside 0 to 1"] = "return reads[1][2]",
            ["position -1 is outside 0 to 1"] = "return reads[1][-1]",
            ["this array is one of `reads`; name its tensor in `writes`"] = "reads[1][0] = 1",
            ["300 does not fit into uint8"] = "writes[1][0] = 300",
            ["an element must be a number or a boolean, got string"] = "writes[1][0] = 'a'",
            ["the array takes 2 bytes, got 3"] = "writes[1]:frombytes 'abc'",
            ["an array has no 'size'; it has positions from 0, dtype, shape, tobytes, frombytes, reshape, permute, narrow, flip, " ..
                "to, copy, fill, add, mul and map"] = "return reads[1].size",
        } do
            job_fails("push (LINE): push:1: " .. message, {run = "local reads, writes = ... " .. code, reads = {x}, writes = {flow.ones(2, {dtype = "uint8"})}})
        end
        push{run = function(reads) kept = reads[1]:reshape(2, 1) reads[1] = 3 end, reads = {x}}:wait() -- luacheck: ignore 111
        local ok, message = pcall(function() push{run = "return kept[0]"}:wait() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("the task of this array is over", 1, true), message)
    end)

    local x = flow.ones(2)
    local leaf, wide = flow.ones(2, {requires_grad = true}), flow.ones(2, 3)
    local run = "return 1"
    for _, case in ipairs {
        {"push: takes a table, engine.push{run =, reads =, writes =, args =, priority =}, got function", print},
        {"push: run must be a Lua function or the text of one, got nil", {}},
        {"push: run must be a Lua function or the text of one, got a function of C", {run = print}},
        {"push: run uses the local variable 'x' of the code around it, which stays behind; pass it in args",
            {run = function() return x end}},
        {"push: run is a text or a function, got bytecode", {run = string.dump(function() end)}},
        {"push: unknown option 'read'; did you mean 'reads'?", {run = run, read = {}}},
        {"push: reads must be a list of tensors, got tensor", {run = run, reads = x}},
        {"push: entry 2 of writes must be a tensor, got number", {run = run, writes = {x, 1}}},
        {"push: entry 1 of writes requires grad, which a function has none for; pass x:detach()", {run = run, writes = {leaf}}},
        {"push: entry 1 of writes must be contiguous", {run = run, writes = {wide:t()}}},
        {"push: entry 1 of reads must be a local tensor on the CPU", {run = run, reads = {flow.ones(2, {device = "meta"})}}},
        {"push: args must be a list, got number", {run = run, args = 3}},
        {"push: priority must be 1, 0 or -1, got 2", {run = run, priority = 2}},
        {"push: priority must be 1, 0 or -1, got \"high\"", {run = run, priority = "high"}},
        {"push: entry 1 of args is a tensor; args are numbers, strings and booleans, tensors go in reads and writes",
            {run = run, args = {x}}},
    } do
        it("refuses: " .. case[1], function() fails(case[1], push, case[2]) end)
    end

    it("gives an error that is no text as one", function()
        for _, case in ipairs {
            {"error(setmetatable({}, {__tostring = function() return 'what it says' end}))", "what it says"},
            {"error(setmetatable({}, {__tostring = error}))", "an error whose __tostring fails"},
            {"error {code = 7}", "an error that is a table"},
            {"error()", "an error that is nil"},
            {"error(42)", "42"},
            {"error(false)", "false"},
            {"error('', 0)", "an error without a text"},
            {"error('disk: full', 0)", "disk: full"},
        } do
            job_fails("push (LINE): " .. case[2], {run = case[1]})
        end
    end)

    it("has no place in a capture or a trace", function()
        assert.is_false((pcall(flow.capture(function() push{run = run} end))))
        assert.is_false((pcall(flow.trace, function(a) push{run = run} return a * 2 end, {flow.spec{2}})))
        fails("wait: a method is called with a colon, job:wait(); got nothing as the job", push{run = run}.wait)
    end)
end)
