-- hostile_spec.lua -- errors name the script's line and lose nothing; huge numbers and random calls end in results or errors.
local flow = require "flow"
local process = require "tests.process"
local nn = flow.nn
local message_of = require("tests.support").placed_message_of

local inf = 1 / 0

describe("a message", function()
    it("of a deep call names the user's line", function()
        local chunk = assert(load("local flow = ...\nlocal x = flow.ones(2)\n\nreturn x + flow.ones(3)\n", "=script.lua"))
        assert.are.equal("script.lua:4: add: shapes [2] and [3] do not broadcast", select(2, pcall(chunk, flow)))
    end)

    it("of a function that is made of others is reported in its own name", function()
        local global = flow.ones(2, {placement = flow.placement("cpu", {0}), sbp = "B"})
        for name, f in pairs {
            mse_loss = function() flow.mse_loss(flow.ones(2), global) end,
            scaled_dot_product_attention = function()
                local q = flow.ones(2, 3, 4)
                flow.scaled_dot_product_attention(q, q, q:to_global {placement = global.placement, sbp = "B"})
            end,
            cross_entropy = function() flow.cross_entropy(flow.ones(2, 3), flow.tensor {0, 1}:to_global {placement = global.placement, sbp = "B"}) end,
            backward = function() flow.ones(2, {requires_grad = true}):sum():backward(global:sum()) end,
        } do
            local message = message_of(f)
            assert.is_truthy(message:find(name, 1, true) == 1, message)
        end
    end)

    it("about a tensor with odd values says nan and inf", function()
        assert.are.equal("Linear: inputs must be a whole number >= 1, got inf", message_of(nn.Linear, inf, 3))
    end)
end)

describe("nothing is lost:", function()
    it("an op that fails leaves its operands as they were", function()
        local y = flow.tensor {1.0, 2.0}
        pcall(function() y:add_(flow.ones(2, 2)) end)
        pcall(function() y:copy_(flow.ones(3)) end)
        pcall(function() y[flow.tensor {0, 5}] = 7 end)
        pcall(function() y[{{0, 9}, 3}] = 7 end)
        pcall(function() y:masked_fill_(flow.ones(2), 1) end)
        assert.are.same({1, 2}, y:totable())
    end)

    it("a backward that fails can be done again", function()
        local w = flow.ones(2, {requires_grad = true})
        local y = (w * 3):sum()
        local remove = y:register_hook(function() error("no") end)
        assert.is_false(pcall(y.backward, y))
        assert.is_nil(w.grad)
        if type(remove) == "function" then remove() end
        local z = (w * 3):sum()
        z:backward()
        assert.are.same({3, 3}, w.grad:totable())
    end)

    it("recording is on again after an error inside no_grad", function()
        pcall(flow.no_grad, function() error("stop") end)
        assert.is_true(flow.is_grad_enabled())
        pcall(function()
            local _ <close> = flow.no_grad()
            error("stop")
        end)
        assert.is_true(flow.is_grad_enabled())
    end)

    it("errors from coroutines name the line there", function()
        local co = coroutine.create(function() return flow.ones(2) + flow.ones(3) end)
        local ok, message = coroutine.resume(co)
        assert.is_false(ok)
        assert.matches("hostile_spec.lua:%d+: add: shapes %[2%] and %[3%] do not broadcast$", message)
    end)

    it("a stack overflow inside calls of ops is an error", function()
        local function forever(t) return forever(t + 1) + 1 end
        local ok, message = pcall(forever, flow.ones(1))
        assert.is_false(ok)
        assert.matches("stack overflow", message)
        assert.are.equal(1, flow.ones(1):item())
    end)
end)

describe("huge numbers", function()
    it("that an op may take are harmless", function()
        local y = flow.ones(2, 3, 4)
        for _, n in ipairs {1 << 31, 1 << 59, (1 << 62) - 1, -(1 << 61)} do
            assert.are.same({4, 0}, y:diagonal(n).shape)
            assert.are.equal(n < 0 and 24 or 0, y:triu(n):sum():item())
            assert.are.equal(n < 0 and 0 or 24, y:tril(n):sum():item())
            assert.are.equal(n < 0 and 12 or 0, y:slice(0, n, 1):sum():item())
            assert.are.equal(24 * (n + 0.0), (y:to("float64") * n):sum():item())
        end
    end)

    local wide = flow.zeros(1):expand(1 << 40)
    local cases = {
        {"add: shape [1099511627776, 1099511627776] has too many elements (2^59 or more)", function() return wide:unsqueeze(0) + wide:unsqueeze(1) end},
        {"matmul: shape [1099511627776, 1099511627776] has too many elements (2^59 or more)", function() return wide:unsqueeze(1):matmul(wide:unsqueeze(0)) end},
        {"rand: shape [2305843009213693952] has too many elements (2^59 or more)", function() flow.rand(1 << 61, {dtype = "float64"}) end},
        {"randperm: shape [2305843009213693952] has too many elements (2^59 or more)", function() flow.randperm(1 << 61) end},
        {"arange: too many elements", function() flow.arange(1 << 61) end},
        {"stack: shape [3, 288230376151711744] has too many elements (2^59 or more)", function()
            local w = flow.zeros(1):expand(1 << 58)
            flow.stack {w, w, w}
        end},
        {"index_select: shape [1099511627776, 1099511627776] has too many elements (2^59 or more)", function()
            wide:unsqueeze(0):index_select(0, flow.zeros(1, {dtype = "int64"}):expand(1 << 40))
        end},
    }
    for _, case in ipairs(cases) do it("say: " .. case[1], function() assert.are.equal(case[1], message_of(case[2])) end) end

    it("of elements that are not there print at once", function()
        assert.are.equal("[]  float32[576460752303423487, 0] on cpu", tostring(flow.zeros((1 << 59) - 1, 0)))
        assert.matches("float32%[262144, 1099511627776%] on cpu$", tostring(wide:expand(1 << 18, 1 << 40)))
    end)
end)

describe("random calls", function()
    -- The output of a script of tests/, run in an empty folder; a setting of the environment or an option of the program may come before it.
    local function fuzz(script, ...)
        local words, option, setting = {...}, "", ""
        if script:find "=" then setting, script = script, table.remove(words, 1) end
        if script:sub(1, 2) == "--" then option, script = script, table.remove(words, 1) end
        local folder, pwd = process.folder(), process.output("pwd"):match "[^\n]*"
        local limit = (os.getenv("ASAN_OPTIONS") or option ~= "") and "" or "ulimit -v 4000000; "
        limit = limit .. "ulimit -t 120; "      -- of the processor: the clock of a busy machine says little
        local output = process.output(("cd %s && (%sexec env %s timeout 600 %s %s %s/tests/%s %s) 2>&1")
            :format(folder, limit, setting, process.absolute(), option, pwd, script, table.concat(words, " ")))
        os.execute("rm -rf " .. folder)
        return output
    end

    -- A program that ends without a finding, after all calls.
    local function check_calls(script, seed, count, setting)
        local output = fuzz(setting or "FUZZ_DEVICE=cpu", script, seed, 1, count)
        local bad = output:match("BAD [^\n]*")
        assert.is_nil(bad, ("%s, seed %d: %s"):format(script, seed, tostring(bad)))
        local last = output:match("(%d+)\n[^%d]*$")
        assert.matches("\nend\n$", output, ("died or hung at call %s; see it with: flowlua tests/%s %d %s %s -v"):format(last, script, seed, last, last))
        return output
    end

    for seed = 1, 4 do
        it(("of all functions with junk for arguments end in results or errors that say what, seed %d"):format(seed), function()
            check_calls("fuzz.lua", seed, 5000)
        end)
    end

    for seed = 1, 2 do
        it(("of all functions with tensors on meta, seed %d"):format(seed), function()
            check_calls("fuzz.lua", seed, 5000, "FUZZ_DEVICE=meta")
        end)
    end

    for seed = 1, 2 do
        it(("of all objects end in results or errors that say what and leave them as they were, seed %d"):format(seed), function()
            local output = check_calls("fuzz_objects.lua", seed, 8000)
            local reached, total = output:match("(%d+) of (%d+) functions and methods reached")
            assert.is_true(reached / total > 0.45, ("%s of %s reached"):format(reached, total))     -- one call for each would give 0.63
        end)
    end

    it("of readers with damaged files", function()
        local output = fuzz("fuzz_files.lua", 1, 1, 1500)
        assert.is_nil(output:match("BAD [^\n]*"))
        assert.matches("\nend\n$", output)
        for reader in pairs {["load, bytes"] = 1, ["load, drawn"] = 1, resume = 1, idx = 1, ["idx, gzip"] = 1, text = 1, json = 1, records = 1, ["records, skip"] = 1} do
            assert.matches("\n" .. reader .. " +[1-9]%d* read, +[1-9]%d* refused in %d+ ways\n", "\n" .. output)
        end
    end)

    for _, case in ipairs {{"readers", "fuzz_files.lua", 2, 300}, {"objects", "fuzz_objects.lua", 3, 600}} do
        it(("of %s on two ranks, which come to the same end"):format(case[1]), function()
            local plugin = process.flowlua .. "-mpi.so"
            if not process.has "mpirun" or not process.exists(plugin) then
                pending("needs mpirun and " .. plugin)
                return
            end
            local output = fuzz("--ranks 2", case[2], case[3], 1, case[4])
            assert.is_nil(output:match("BAD [^\n]*"))
            assert.matches("\nend\n$", output)
        end)
    end
end)
