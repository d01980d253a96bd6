-- plan_spec.lua -- flowlua --plan N: flops, bytes and memory of a step that nobody runs, and what stops a plan.
local process = require "tests.process"

-- "1,234" -> 1234
local function number(text) return math.tointeger((text:gsub(",", ""))) end

-- The rows of a report's first kind of rank: ops by "name dtype", collectives by "name axis", memory by its name.
local function read_report(text)
    local report = {ops = {}, moves = {}, memory = {}, text = text}
    for line in text:gmatch "[^\n]+" do
        local name, dtype, calls, flops, bytes = line:match "^    (%S+) +(%a+%d+) +([%d,]+) +([%d,]+) +([%d,]+)  "
        if name and not report.ops[name] then
            report.ops[name] = {dtype = dtype, calls = number(calls), flops = number(flops), bytes = number(bytes)}
        end
        local all_calls, all_flops, all_bytes = line:match "^    all +([%d,]+) +([%d,]+) +([%d,]+)  "
        if all_calls and not report.all then
            report.all = {calls = number(all_calls), flops = number(all_flops), bytes = number(all_bytes)}
        end
        local kind, axis, ranks, link, count, moved = line:match "^    (%a[%a-]+) +(%w+) +(%d+)  +(%a+) +([%d,]+) +([%d,]+)  "
        if kind and not report.moves[kind .. " " .. axis] then
            report.moves[kind .. " " .. axis] = {ranks = number(ranks), link = link, calls = number(count), bytes = number(moved)}
        end
        local tag, size = line:match "^    (%a[%a ]*%a) +([%d,]+)  +%d+%%$"
        if tag and not report.memory[tag] then report.memory[tag] = number(size) end
        local peak = line:match "^    all +([%d,]+)$"
        report.memory.peak = report.memory.peak or peak and number(peak)
    end
    return report
end

-- The plan of a script, its status and the text, in which the script's own output is not.
local function plan(ranks, code, options)
    local path = process.temporary(code)
    local text, status = process.output(("%s --plan %d %s %s 2>/dev/null"):format(process.flowlua, ranks, options or "", path))
    os.remove(path)
    return read_report((text:gsub(path:gsub("%p", "%%%0"), "script.lua"))), status
end

-- The message for a wrong plan: its first line, without the program's name.
local function complaint(options, code)
    local text, status = process.run("", code or "", options)
    assert.are.equal(1, status)
    return (text:match("^[^\n]*"):gsub("^[^:]*flowlua: ", "", 1))
end

local MLP = [[
local flow = require "flow"
local nn, optim = flow.nn, flow.optim
local p = flow.placement.all("cpu")
local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)):to_global{placement = p, sbp = "B"}
local opt = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local function step()
    local x = flow.randn({60, 784}, {placement = p, sbp = "S(0)"})
    local y = flow.randint(0, 10, {60}, {placement = p, sbp = "S(0)"})
    local loss = flow.cross_entropy(net(x), y)
    opt:zero_grad(); loss:backward(); opt:step()
    return loss
end
]]

describe("the flops of a plan", function()
    local function flops_of(code, op, ranks)
        local report = plan(ranks or 1, 'local flow = require "flow" ' .. code)
        return report.ops[op].flops
    end

    it("are those of products", function()
        assert.are.equal(2 * 3 * 5 * 7, flops_of("flow.ones(3, 5):matmul(flow.ones(5, 7))", "matmul"))
        assert.are.equal(2 * 4 * 3 * 5 * 7, flops_of("flow.ones(4, 3, 5):bmm(flow.ones(4, 5, 7))", "bmm"))
        assert.are.equal(2 * 4 * 6 * 3 * 5 * 2,
            flops_of("flow.ones(4, 1, 3, 5):matmul(flow.ones(6, 5, 2))", "matmul"))
        assert.are.equal(2 * 8 * 6 * 5, flops_of("flow.nn.functional.linear(flow.ones(8, 6), flow.ones(5, 6))", "linear"))
    end)

    it("are those of convolutions and their gradients", function()
        local code = [[
            local w = flow.ones(16, 4, 3, 5, {requires_grad = true})
            local x = flow.ones(2, 8, 10, 12, {requires_grad = true})
            flow.conv2d(x, w, nil, {groups = 2}):sum():backward()]]
        local each = 2 * (2 * 16 * 8 * 8) * (4 * 3 * 5)
        assert.are.equal(each, flops_of(code, "conv2d"))
        assert.are.equal(each, flops_of(code, "conv2d_input_grad"))
        assert.are.equal(each, flops_of(code, "conv2d_weight_grad"))
    end)

    it("are those of attention, without what a causal mask takes out", function()
        local code = [[
            local q, k, v = flow.ones(2, 3, 7, 4, {requires_grad = true}), flow.ones(2, 3, 5, 4), flow.ones(2, 3, 5, 6)
            flow.scaled_dot_product_attention(q, k, v, nil, %s):sum():backward()]]
        local seen = 1 + 2 + 3 + 4 + 5 + 5 + 5
        assert.are.equal(2 * 6 * 7 * 5 * (4 + 6), flops_of(code:format "false", "attention_rows"))
        assert.are.equal(2 * 6 * seen * (4 + 6), flops_of(code:format "true", "attention_rows"))
        assert.are.equal(2 * 6 * seen * (3 * 4 + 2 * 6), flops_of(code:format "true", "attention_backward"))
    end)

    it("of other ops are one for each element written, or summed", function()
        assert.are.equal(35, flops_of("local x = flow.ones(5, 7) + 1", "add"))
        assert.are.equal(35, flops_of("flow.ones(5, 7):sum()", "sum"))
        assert.are.equal(35, flops_of("flow.ones(5, 7):add_(1)", "add"))
    end)

    it("of a step of a perceptron are those counted by hand, for the rank's rows", function()
        for _, ranks in ipairs {1, 3} do
            local rows = 60 // ranks
            local ops = plan(ranks, MLP .. "for i = 1, 5 do step() end").ops
            assert.are.equal(2 * rows * 784 * 128, ops.linear_relu.flops)
            assert.are.equal(2 * rows * 128 * 10, ops.linear.flops)
            assert.are.equal(2 * rows * (784 * 128 + 128 * 10), ops.contract_rows.flops)
            assert.are.equal(2 * rows * 128 * 10, ops.gemm.flops)
            assert.are.equal(2 * (784 * 128 + 128 + 128 * 10 + 10), ops.sgd_step.flops)
        end
    end)
end)

describe("the bytes of a plan", function()
    it("count operands and results once, of a table its rows that are taken", function()
        local function bytes_of(code, op) return plan(1, 'local flow = require "flow" ' .. code).ops[op].bytes end
        assert.are.equal(4 * 3 * 35, bytes_of("local x = flow.ones(5, 7) + flow.ones(5, 7)", "add"))
        assert.are.equal(4 * 2 * 35, bytes_of("local x = flow.ones(5, 7) local y = x + x", "add"))
        assert.are.equal(4 * 2 * 35, bytes_of("flow.ones(5, 7):add_(1)", "add"))
        assert.are.equal(4 * (3 * 5 + 7 * 3 + 5 * 7), bytes_of("flow.ones(3, 5):t():matmul(flow.ones(3, 7))", "matmul"))
        assert.are.equal(8 * 4 + 2 * 4 * 4 * 6, bytes_of("flow.embedding(flow.arange(4), flow.ones(1000, 6))", "embedding"))
    end)
end)

describe("the moves of a plan", function()
    it("are the all-reduces of a data-parallel step", function()
        local report = plan(4, MLP .. "for i = 1, 5 do step() end")
        local bytes = 0
        for _, size in ipairs {784 * 128, 128, 128 * 10, 10, 1} do -- the gradients, and the loss
            bytes = bytes + 2 * (size - size // 4) * 4
        end
        assert.are.same({["all-reduce 0"] = {ranks = 4, link = "host", calls = 5, bytes = bytes}}, report.moves)
    end)

    -- The collectives that flow.explain counts in the second step, and their axes.
    local EXPLAINED = MLP .. [[
step()
local sums, keys = {}, {}
for _, c in ipairs(flow.explain(step).collectives) do
    local key = ("%s %s %d"):format(c.kind, c.axis or "all", #c.groups[1])
    if not sums[key] then sums[key] = {0, 0} keys[#keys + 1] = key end
    sums[key] = {sums[key][1] + 1, sums[key][2] + c.bytes}
end
table.sort(keys)
for _, key in ipairs(keys) do flow.print("MOVED", key, sums[key][1], sums[key][2]) end
]]

    local function moved_by_ranks(ranks, code)
        local moves, text, status = {}, process.run("", code, "--ranks " .. ranks)
        assert.are.equal(0, status, text)
        for kind, axis, size, calls, bytes in text:gmatch "MOVED\t(%S+) (%w+) (%d+)\t(%d+)\t(%d+)" do
            moves[kind .. " " .. axis] = {ranks = tonumber(size), link = "host", calls = tonumber(calls), bytes = tonumber(bytes)}
        end
        return moves
    end

    for _, ranks in ipairs {2, 3, 4} do
        process.it_with_ranks("are those of " .. ranks .. " real ranks", function()
            local moves = moved_by_ranks(ranks, EXPLAINED)
            assert.is_truthy(next(moves))
            assert.are.same(moves, plan(ranks, EXPLAINED).moves)
        end)
    end

    process.it_with_ranks("are those of a grid of real ranks, by axis", function()
        local code = EXPLAINED:gsub("placement.all%(\"cpu\"%)", 'placement("cpu", {{0, 1}, {2, 3}})')
            :gsub('sbp = "S%(0%)"', 'sbp = {"S(0)", "B"}'):gsub('sbp = "B"}', [[sbp = "B",
                rules = {{"1", {"B", "S(0)"}}, {"3.weight", {"B", "S(1)"}}}}]])
        local moves = moved_by_ranks(4, code)
        assert.is_truthy(moves["all-reduce 0"] and moves["all-reduce 1"])
        assert.are.same(moves, plan(4, code).moves)
    end)

    it("go by the network where ranks are on several hosts", function()
        local machine = process.temporary "return {ranks_per_host = 2}"
        local report = plan(4, [[
            local flow = require "flow"
            local p = flow.placement("cpu", {{0, 1}, {2, 3}})
            local x = flow.ones({8, 8}, {placement = p, sbp = {"S(0)", "S(1)"}})
            x:to_global{sbp = {"B", "B"}}]], "--machine " .. machine)
        os.remove(machine)
        assert.are.same({["all-gather 0"] = {ranks = 2, link = "network", calls = 1, bytes = 4 * 4 * 4},
            ["all-gather 1"] = {ranks = 2, link = "host", calls = 1, bytes = 8 * 4 * 4}}, report.moves)
    end)
end)

describe("the memory of a plan", function()
    local NET = [[
local flow = require "flow"
local nn, optim = flow.nn, flow.optim
%s
local opt = optim.%s
for i = 1, 3 do
    local loss = flow.cross_entropy(net(flow.randn(%s)), flow.randint(0, 10, {64}))
    opt:zero_grad(); loss:backward(); opt:step()
    local peak = flow.memory{reset_peak = true}.peak_bytes
    if i == 2 then print("PEAK", peak) end
end
]]
    local nets = {
        {"perceptron", "local net = nn.Sequential(nn.Linear(784, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))",
            "AdamW(net:parameters(), {lr = 1e-3})", "64, 784"},
        {"CNN", [[local net = nn.Sequential(nn.Conv2d(1, 16, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, {padding = 1}), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10))]],
            "SGD(net:parameters(), {lr = 1e-3, momentum = 0.9})", "64, 1, 28, 28"},
    }
    for _, net in ipairs(nets) do
        it("is that of the allocator within 5 percent: " .. net[1], function()
            local code = NET:format(table.unpack(net, 2))
            local real = tonumber(process.run("", code):match "PEAK\t(%d+)")
            local planned = plan(1, code).memory.peak
            assert.is_true(math.abs(planned - real) <= 0.05 * real, ("planned %d, real %d"):format(planned, real))
        end)
    end

    process.it_with_ranks("is that of two ranks' allocators within 5 percent, joined gradients and all", function()
        local code = MLP .. [[
            for i = 1, 3 do
                step()
                local peak = flow.memory{reset_peak = true}.peak_bytes
                if i == 2 then flow.print("PEAK", peak) end
            end]]
        local real = tonumber(process.run("", code, "--ranks 2"):match "PEAK\t(%d+)")
        local planned = plan(2, code).memory.peak
        assert.is_true(math.abs(planned - real) <= 0.05 * real, ("planned %d, real %d"):format(planned, real))
    end)

    it("is told apart by what it is for", function()
        local memory = plan(1, NET:format(table.unpack(nets[1], 2))).memory
        local size = 4 * (784 * 512 + 512 + 2 * 512 + 512 * 10 + 10)
        assert.are.equal(size, memory.parameters)
        assert.are.equal(2 * size, memory["optimizer state"])
        assert.is_true(memory.gradients >= size // 2 and memory.gradients <= 2 * size)
        local sum = 0
        for tag, bytes in pairs(memory) do sum = sum + (tag == "peak" and 0 or bytes) end
        assert.are.equal(memory.peak, sum)
    end)

    it("ends where garbage must be collected, as a rank's does", function()
        local code = [[
            local flow = require "flow"
            for round = 1, 20 do
                local held = {}
                for i = 1, 20 do held[i] = flow.zeros(250000) end
            end]]
        local machine = process.temporary "return {memory_per_rank = 32e6}"
        local large, small = plan(1, code).memory.peak, plan(1, code, "--machine " .. machine).memory.peak
        os.remove(machine)
        assert.is_true(large > 34e6, large)
        assert.is_true(small >= 20e6 and small <= 33e6, small)
    end)

    it("may be more than there is", function()
        local text = plan(2, [[
            local flow, nn = require "flow", require "flow.nn"
            local p = flow.placement.all("cpu")
            local w = flow.randn({400000, 100000}, {placement = p, sbp = "S(0)", requires_grad = true})
            print(w:sum():item())]]).text
        assert.is_truthy(text:find("does not fit: a rank has 80.0 GB, the peak is 80.0 GB", 1, true), text)
    end)
end)

describe("a planned script", function()
    it("is planned for each kind of rank", function()
        local text = plan(5, [[
            local flow = require "flow"
            local p = flow.placement.all("cpu")
            local x = flow.ones({12, 4}, {placement = p, sbp = "S(0)"}) * 2]]).text
        assert.is_truthy(text:find "\nranks 0 to 1, each:\n")
        assert.is_truthy(text:find "\nranks 2 to 4, each:\n")
        assert.are.equal(2, select(2, text:gsub("    mul ", "")))
    end)

    it("is planned for four kinds of ranks at most, with the largest parts", function()
        local text = plan(8, [[
            local flow = require "flow"
            local p = flow.placement.all("cpu")
            for size = 9, 14 do local x = flow.ones({size}, {placement = p, sbp = "S(0)"}) * 2 end]]).text
        assert.are.equal("rank 0: rank 1: rank 2: rank 3: ", (text:gsub("[^\n]*\n?", function(line)
            return line:match "^ranks? .*:" and line:gsub("\n", " ") or ""
        end)))
        assert.is_truthy(text:find "\n3 more kinds of ranks, with smaller parts")
    end)

    it("computes with data, and gets NaN, 0 and false for what was not computed", function()
        local text = process.run("", [[
            local flow = require "flow"
            local data = flow.tensor{1.5, 2, 3}
            local x = flow.randn(3)
            print((data * 2):sum():item(), flow.arange(3):totable()[3], data:to("cuda").device)
            print((x + data):sum():item(), x:gt(0):all():item(), x:argmax():item(), x:totable()[2])
            print(x:to("cpu").device, flow.ones(2, {requires_grad = true}).requires_grad)
            os.exit(0)]], "--plan 1")
        assert.are.equal("13.0\t2\tmeta\nnan\tfalse\t0\tnan\nmeta\ttrue\n", text:match "^(.-\n.-\n.-\n)")
    end)

    it("may be a pipeline: ranks that have other parts of the model are another kind", function()
        local text = process.run("", [[
            local flow = require "flow"
            local nn, optim = flow.nn, flow.optim
            local a, b = flow.placement("cpu", {0, 1}), flow.placement("cpu", {2, 3})
            local one = nn.Linear(64, 128):to_global{placement = a, sbp = "B"}
            local two = nn.Linear(128, 8):to_global{placement = b, sbp = "B"}
            local opt = optim.SGD({one.weight, one.bias, two.weight, two.bias}, {lr = 0.1})
            flow.barrier()
            for i = 1, 3 do
                local h = one(flow.randn({32, 64}, {placement = a, sbp = "S(0)"})):to_global{placement = b, sbp = "S(0)"}
                opt:zero_grad(); two(h):square():mean():backward(); opt:step()
            end]], "--plan 4")
        local first, second = text:match "\nranks 0 to 1, each:\n(.*)\nranks 2 to 3, each:\n(.*)"
        for _, kind in ipairs {first, second} do
            assert.is_truthy(kind:find "    exchange     all      2  host      2  16,384  ", kind)
        end
        assert.are.equal(2 * 16 * 64 * 128, number(first:match "    linear +float32 +1 +([%d,]+)"))
        assert.are.equal(2 * 16 * 128 * 8, number(second:match "    linear +float32 +1 +([%d,]+)"))
    end)

    it("takes batches of a loader, on every rank", function()
        for _, ranks in ipairs {1, 3} do
            local report, status = plan(ranks, [[
                local flow = require "flow"
                local nn, optim, data = flow.nn, flow.optim, flow.data
                local p = flow.placement.all("cpu")
                local net = nn.Linear(4, 2):to_global{placement = p, sbp = "B"}
                local opt = optim.AdamW(net:parameters(), {lr = 0.1})
                local set = data.tensors(flow.randn(50, 4), flow.randint(0, 2, {50}))
                for batch in data.loader(set, {batch_size = 6, shuffle = true, placement = p, sbp = "S(0)"}) do
                    local loss = flow.cross_entropy(net(batch[1]), batch[2])
                    opt:zero_grad(); loss:backward(); opt:step()
                end]])
            assert.are.equal(0, status)
            assert.are.equal(2 * (6 // ranks) * 4 * 2, report.ops.linear.flops)
        end
    end)

    it("may be captured, recomputed, explained or traced in part, and saves nothing", function()
        local path = os.tmpname()
        os.remove(path)
        local text, status = process.run("", MLP .. ([[
            flow.capture(step)()
            local h = flow.checkpoint(net, flow.randn({60, 784}, {placement = p, sbp = "S(0)"}))
            flow.explain(function() return h:sum():to_global{sbp = "B"} end)
            flow.save(%q, net:state_dict())
            step()
            error "the script goes on after a step"]]):format(path), "--plan 2")
        assert.are.equal(0, status, text)
        assert.is_false(process.exists(path))
        assert.is_truthy(text:find "a step, from one step%(%) of the optimizer to the next")
    end)

    it("may have a key-value store, but none with servers", function()
        local script = process.flowlua .. " --plan 4 scripts/train.lua --data README.md --kvstore "
        local moves = read_report((process.output(script .. "dist_sync 2>/dev/null"))).moves
        assert.are.equal(54, moves["reduce-scatter 0"].calls)
        assert.are.equal(moves["reduce-scatter 0"].bytes, moves["all-gather 0"].bytes)
        local text, status = process.output(script .. "dist_async 2>&1")
        assert.are.equal(1, status)
        assert.is_truthy(text:find("a dist_async store cannot be planned: when its servers are asked depends on their speed; "
            .. "plan dist_sync, or leave the store out", 1, true), text)
    end)

    it("is scripts/train.lua, split in two ways", function()
        local text, status = process.output(process.flowlua .. " --plan 1024 scripts/train.lua --tp 2 --heads 4 --batch 512 "
            .. "--zero --data README.md 2>/dev/null")
        assert.are.equal(0, status)
        local report = read_report(text)
        assert.is_truthy(report.moves["all-reduce 1"].bytes > 0 and report.moves["reduce-scatter 0"].bytes > 0)
        assert.is_truthy(text:find "\nranks 0[^\n]+, each:\n")
        assert.is_truthy(text:find "    float32%[[%d, ]+%] %(.-  scripts/train.lua:%d+")
    end)
end)

describe("a plan", function()
    it("refuses what it cannot take", function()
        assert.are.equal("--plan takes a whole number from 1 to 1024, got '0'", complaint "--plan 0")
        assert.are.equal("--plan takes a whole number from 1 to 1024, got '2000'", complaint "--plan 2000")
        assert.are.equal("--plan takes a whole number from 1 to 1024, got 'x'", complaint "--plan=x")
        assert.are.equal("--plan is given twice", complaint "--plan 2 --plan 3")
        assert.are.equal("--plan and --ranks do not go together: a plan starts no ranks", complaint "--plan 2 --ranks 2")
        assert.are.equal("--plan and -i do not go together", complaint "--plan 2 -i")
        assert.are.equal("--plan and --trace do not go together: nothing runs", complaint "--plan 2 --trace t.json")
        assert.are.equal("--machine goes with --plan N", complaint "--machine m.lua")
        local text, status = process.output(process.flowlua .. " --plan 2 2>&1")
        assert.are.equal(1, status)
        assert.is_truthy(text:find("--plan needs a script: it is read once for each kind of rank", 1, true))
        assert.is_truthy(process.output(process.flowlua .. " --plan 2 nowhere.lua 2>&1")
            :find("cannot open nowhere.lua: No such file or directory", 1, true))
    end)

    it("ends with the script's error, and its status", function()
        assert.are.equal("script.lua:2: tobytes: float32[3] on meta has no values to read: --plan computes nothing "
            .. "(x:item() and x:totable() give NaN, 0 or false in their place)",
            complaint("--plan 2", 'local flow = require "flow"\nlocal s = flow.randn(3):tobytes()'))
        assert.are.equal("script.lua:2: save_png: uint8[5, 3, 4] on meta has no values to read: --plan computes nothing "
            .. "(x:item() and x:totable() give NaN, 0 or false in their place)",
            complaint("--plan 2", 'local flow = require "flow"\nflow.data.save_png("x.png", flow.rand(4, 5, 3):mul(255):to "uint8")'))
        assert.are.equal("script.lua:3: copy_: x, float32[3], has values, and what is written to it has none while the "
            .. "script is planned; make x with flow.empty_like, or leave this out",
            complaint("--plan 2", 'local flow = require "flow"\nlocal x = flow.tensor{1.0, 2, 3}\nx:copy_(flow.randn(3))'))
        assert.are.equal("script.lua:2: placement: rank 4 does not exist: the world has 4 ranks (0 to 3); start flowlua with "
            .. "--plan 5, or write flow.placement.all(\"cpu\")",
            complaint("--plan 4", 'local flow = require "flow"\nflow.placement("cuda", {0, 4})'))
        local _, status = process.run("", "os.exit(7)", "--plan 2")
        assert.are.equal(7, status)
    end)

    it("refuses a machine that is none", function()
        local path = os.tmpname()
        local function refused(text)
            process.write(path, text)
            return complaint("--plan 2 --machine " .. path):gsub(path:gsub("%p", "%%%0"), "m.lua")
        end
        local cases = {
            {"return 3", "what it returns must be a table, got 3"},
            {"return {memry = 3}", "unknown field 'memry'; did you mean 'memory'?"},
            {"return {links = {host = {latncy = 1}}}", "unknown field 'links.host.latncy'; did you mean 'latency'?"},
            {"return {memory = -1}", "memory must be a number > 0, got -1"},
            {"return {ranks_per_host = 1.5}", "ranks_per_host must be a whole number, got 1.5"},
            {"return {flops = 1e12}", "flops must be a table, got 1000000000000.0"},
            {"return {", "m.lua:1: unexpected symbol near <eof>"},
            {"return os.time()", "m.lua:1: attempt to index a nil value (global 'os')"},
        }
        for _, case in ipairs(cases) do assert.are.equal("--machine m.lua: " .. case[2], refused(case[1])) end
        os.remove(path)
        assert.are.equal("--machine m.lua: cannot open m.lua: No such file or directory",
            complaint "--plan 2 --machine m.lua")
    end)

    it("takes its times from the machine", function()
        local path = process.temporary [[return {name = "slow", flops = {float32 = 1e3}, memory = 1e6, memory_per_rank = 100,
            links = {host = {bandwidth = 1e3, latency = 0.5}}}]]
        local text = plan(2, [[
            local flow = require "flow"
            local p = flow.placement.all("cpu")
            local x = flow.empty({8, 5}, {placement = p, sbp = "S(1)"}):matmul(flow.empty({5, 10}, {placement = p, sbp = "S(0)"}))
            x:to_global{sbp = "B"}]], "--machine " .. path).text
        os.remove(path)
        -- 2 * 8 * 3 * 10 flops of 1000 a second; 2 * 160 bytes of 1000 a second, and twice 0.5 s
        assert.is_truthy(text:find("machine: slow\n", 1, true))
        assert.is_truthy(text:find("time 1.80 s: compute 480.00 ms, memory 216.00 us, communication 1.32 s; "
            .. "communication dominates", 1, true), text)
        assert.is_truthy(text:find("does not fit: a rank has 100 bytes, the peak is ", 1, true), text)
    end)
end)
