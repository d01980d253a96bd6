-- parallel_spec.lua -- models over several ranks: modules whose parameters are split, pins, loaders that read a rank's rows,
-- and what scripts/train.lua communicates under each scheme. Dry worlds: one process is any rank of several.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local training = require "tests.training"
local nn, data = flow.nn, flow.data
local set_world = flow._testing.set_world

local message_of = support.error_of

-- Ranks as a grid of dp x tp.
local function grid(dp, tp)
    local ranks = {}
    for i = 1, dp do
        ranks[i] = {}
        for j = 1, tp do ranks[i][j] = (i - 1) * tp + j - 1 end
    end
    return flow.placement("cpu", ranks)
end

local Net = nn.Module:extend("Net")
function Net:init()
    self.up = nn.Linear(6, 8)
    self.down = nn.Linear(8, 6, {bias = false})
    self.norm = nn.LayerNorm(6)
    self:register_buffer("steps", flow.zeros({}))
end
function Net:forward(x) return self.norm(nn.pin(self.down(self.up(nn.pin(x, "B", 1)):relu()), "B", 1)) end

local function sbps(net)
    local list = {}
    for name, p in net:named_parameters() do list[#list + 1] = name .. " " .. tostring(p.sbp) end
    for name, p in net:named_buffers() do list[#list + 1] = name .. " " .. tostring(p.sbp) end
    return list
end

local rules = {{"up", {"B", "S(0)"}}, {"down%.weight", {"B", "S(1)"}}}

describe("a module over ranks", function()
    before_each(function() set_world(4, 3) end)
    after_each(function() set_world(1, 0) end)

    it("is whole on every rank unless a rule says otherwise", function()
        assert.are.same({"up.weight (B, B)", "up.bias (B, B)", "down.weight (B, B)", "norm.weight (B, B)", "norm.bias (B, B)",
            "steps (B, B)"}, sbps(Net():to_global {placement = grid(2, 2)}))
        local net = Net():to_global {placement = grid(2, 2), rules = rules}
        assert.are.same({"up.weight (B, S(0))", "up.bias (B, S(0))", "down.weight (B, S(1))", "norm.weight (B, B)",
            "norm.bias (B, B)", "steps (B, B)"}, sbps(net))
        assert.are.same({4, 6}, net.up.weight:to_local().shape)
        for _, p in net:named_parameters() do assert.is_true(p.requires_grad and p.is_leaf) end
    end)

    it("takes the first rule that fits, and another sbp for the rest", function()
        local net = nn.Linear(4, 4):to_global {
            placement = grid(4, 1), sbp = {"S(0)", "B"}, rules = {{"bias", {"B", "B"}}, {"b", {"P", "B"}}, {"weight", {"S(1)", "B"}}},
        }
        assert.are.same({"weight (S(1), B)", "bias (B, B)"}, sbps(net))
    end)

    it("keeps the values of one rank", function()
        flow.manual_seed(3)
        local whole = nn.Linear(6, 8)
        flow.manual_seed(3)
        local net = nn.Linear(6, 8):to_global {placement = grid(2, 2), rules = {{"weight", {"S(1)", "S(0)"}}}}
        assert.are.same(whole.weight["4:8, 3:6"]:totable(), net.weight:to_local():totable())
    end)

    it("stores parameters in parts with zero, along an axis that nothing else splits", function()
        local net = Net():to_global {placement = grid(2, 2), rules = rules, zero = 0}
        assert.are.same({"up.weight (S(1), S(0))", "up.bias (B, S(0))", "down.weight (S(0), S(1))", "norm.weight (S(0), B)",
            "norm.bias (S(0), B)", "steps (B, B)"}, sbps(net))
        net = nn.Linear(4, 4):to_global {placement = grid(2, 2), rules = {{"weight", {"S(0)", "B"}}}, zero = 0}
        assert.are.same({"weight (S(0), B)", "bias (S(0), B)"}, sbps(net))
    end)

    it("gathers them while forward runs, and scatters the sums of their gradients", function()
        local net = Net():to_global {placement = grid(2, 2), rules = rules, zero = 0}
        local x = flow.ones({4, 6}, {placement = grid(2, 2), sbp = {"S(0)", "B"}})
        local stored, seen = net.up.weight, nil
        function net.up:forward(y)
            seen = {tostring(self.weight.sbp), tostring(self.bias.sbp)}
            assert.is_true(rawequal(self.weight, self.weight))
            return nn.Linear.forward(self, y)
        end
        local report = flow.explain(function()
            local y = net(x)
            y:backward(flow.ones_like(y))
        end)
        assert.is_nil(report.error)
        assert.are.same({"(B, S(0))", "(B, S(0))"}, seen)
        assert.is_true(rawequal(stored, net.up.weight))
        local list = {}
        for i, step in ipairs(report.collectives) do list[i] = step.text .. " " .. step.tensor end
        table.sort(list)
        assert.are.same({
            "all-gather along axis 0 float32[6, 8]", "all-gather along axis 0 float32[6]", "all-gather along axis 0 float32[6]",
            "all-gather along axis 0 float32[8, 6]", "all-reduce along axis 0 float32[8]", "all-reduce along axis 1 float32[4, 6]",
            "reduce-scatter along axis 0 float32[6, 8]", "reduce-scatter along axis 0 float32[6]",
            "reduce-scatter along axis 0 float32[6]", "reduce-scatter along axis 0 float32[8, 6]",
        }, list)
        for _, p in net:named_parameters() do assert.are.equal(tostring(p.sbp), tostring(p.grad.sbp)) end
    end)

    it("has its parts back after an error in forward, and whole parameters when it is placed anew", function()
        local net = nn.Linear(4, 4):to_global {placement = grid(4, 1), zero = 0}
        local stored = net.weight
        local x = flow.ones({2, 3}, {placement = grid(4, 1), sbp = {"B", "B"}})
        local report = flow.explain(function() return net(x) end)
        assert.truthy(report.error:find("in Linear: linear: ", 1, true), report.error)
        assert.is_true(rawequal(stored, net.weight))
        report = flow.explain(function() net:to_global {placement = grid(4, 1)} end)
        assert.are.same({"weight (B, B)", "bias (B, B)"}, sbps(net))
        assert.are.equal(2, #report.collectives)
        assert.are.equal(0, #flow.explain(function() return net(flow.ones({2, 4}, nn.like(x))) end).collectives)
    end)

    it("may not yield from forward, where others would find the parameters whole", function()
        local Waiting = nn.Linear:extend "Waiting"
        function Waiting.forward(_, x)
            coroutine.yield(x)
            return x
        end
        local net = Waiting(4, 4):to_global {placement = grid(4, 1), zero = 0}
        local stored, ok, message = net.weight, nil, nil
        flow.explain(function()
            ok, message = coroutine.resume(coroutine.create(function() return net(flow.ones({2, 4}, nn.like(stored))) end))
        end)
        assert.is_false(ok)
        assert.are.equal("in Waiting: attempt to yield across a C-call boundary", message)
        assert.is_true(rawequal(stored, net.weight))
    end)

    it("keeps a tensor that is used twice one tensor", function()
        local net = nn.ModuleList {nn.Linear(4, 4, {bias = false}), nn.Linear(4, 4, {bias = false})}
        net[2].weight = net[1].weight
        net:to_global {placement = grid(4, 1), zero = 0}
        assert.is_true(rawequal(net[1].weight, net[2].weight))
        local x = flow.ones({4, 4}, {placement = grid(4, 1), sbp = {"S(0)", "B"}})
        local report = flow.explain(function() return net[2](net[1](x)) end)
        assert.are.equal(2, #report.collectives)
    end)

    it("refuses heads that the ranks cannot share", function()
        local attention = nn.CausalSelfAttention(12, 3):to_global {
            placement = grid(2, 2), rules = {{"qkv", {"B", "S(0)"}}, {"projection%.weight", {"B", "S(1)"}}},
        }
        local x = flow.ones({2, 4, 12}, {placement = grid(2, 2), sbp = {"S(0)", "B"}})
        assert.are.equal("in CausalSelfAttention: CausalSelfAttention: 3 heads cannot be split over the 2 ranks of hierarchy axis 1",
            message_of(attention, x))
    end)

    for _, case in ipairs {
        {'to_global: a module needs a placement: net:to_global{placement = p, sbp = "B"}', {}},
        {"to_global: unknown option 'rule'; did you mean 'rules'?", {rule = {}}},
        {'to_global: rule 2 must be {pattern, sbp}, as {"up%.weight", "S(0)"}', {rules = {{"up", {"B", "B"}}, {"down"}}}},
        {"to_global: rule 1: no name matches 'dwon.weight'; did you mean 'down.weight'?", {rules = {{"dwon.weight", {"B", "B"}}}}},
        {"to_global: zero must be a hierarchy axis (0 to 1), got 2", {zero = 2}},
        {"to_global: zero must be a hierarchy axis (0 to 1), got true", {zero = true}},
        {'to_global: steps: sbp S(0): placement("cpu", {{0, 1}, {2, 3}}) has 2 hierarchy axes, and each needs one sbp; ' ..
            'write sbp = {"S(0)", "B"}', {sbp = "S(0)"}},
        {'to_global: up.weight: sbp S(2) on placement("cpu", {{0, 1}, {2, 3}}): float32[8, 6] has axes 0 to 1; ' ..
            'write "S(0)" or "S(1)"', {rules = {{"up", {"B", "S(2)"}}}}},
    } do
        it("says: " .. case[1], function()
            local options = case[2]
            if case[1]:find("needs a placement") == nil then options.placement = grid(2, 2) end
            assert.are.equal(case[1], message_of(Net().to_global, Net(), options))
        end)
    end

    it("says the script's line once where there is no GPU", function()
        local text = process.run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=", 'local flow = require "flow"\n' ..
            'flow.nn.Linear(2, 2):to_global{placement = flow.placement("cuda", {0}), sbp = "B"}\n')
        local line = text:match "[^\n]*"
        assert.is_truthy(line:find("script.lua:2: to_global: weight: cuda: ", 1, true), line)
    end)
end)

describe("pin", function()
    before_each(function() set_world(4, 0) end)
    after_each(function() set_world(1, 0) end)

    it("returns local tensors as they are", function()
        local x = flow.ones(3)
        assert.is_true(rawequal(x, nn.pin(x, "B", 1)))
    end)

    it("sets all hierarchy axes, or one", function()
        local x = flow.ones({4, 6}, {placement = grid(2, 2), sbp = {"B", "B"}})
        assert.are.equal("(S(0), S(1))", tostring(nn.pin(x, {"S(0)", "S(1)"}).sbp))
        assert.are.equal("(B, S(1))", tostring(nn.pin(x, "S(1)", 1).sbp))
        assert.are.equal("(S(0), S(1))", tostring(nn.pin(nn.pin(x, "S(1)", 1), "S(0)", 0).sbp))
        assert.are.equal("pin: x has hierarchy axes 0 to 1, got 2", message_of(nn.pin, x, "B", 2))
        assert.are.equal("pin: missing argument 'x'", message_of(nn.pin))
    end)

    it("to B adds up in forward behind a partial product, in backward before a split weight", function()
        local p = grid(1, 4)
        local x = flow.ones({2, 8}, {placement = p, sbp = {"B", "B"}, requires_grad = true})
        local up = flow.ones({8, 8}, {placement = p, sbp = {"B", "S(1)"}})
        local down = flow.ones({8, 8}, {placement = p, sbp = {"B", "S(0)"}})
        local report = flow.explain(function()
            local y = nn.pin(nn.pin(x * 2, "B", 1):matmul(up):matmul(down), "B", 1)
            y = y * 3
            y:backward(flow.ones_like(y))
        end)
        local list = {}
        for i, step in ipairs(report.collectives) do list[i] = step.by .. " " .. step.text .. " " .. step.tensor end
        assert.are.same({"to_global all-reduce along axis 1 float32[2, 8]", "backward all-reduce along axis 1 float32[2, 8]"}, list)
    end)
end)

describe("like", function()
    after_each(function() set_world(1, 0) end)

    it("puts new tensors where another is", function()
        assert.are.same({device = "cpu", dtype = "int64"}, nn.like(flow.ones(2), {dtype = "int64"}))
        set_world(4, 0)
        local x = flow.ones({4}, {placement = grid(2, 2), sbp = {"S(0)", "B"}})
        local t = flow.arange(3, nn.like(x))
        assert.are.equal("(B, B)", tostring(t.sbp))
        assert.is_true(t.placement == x.placement)
        assert.are.equal("float64", flow.zeros(2, nn.like(x, {dtype = "float64"})).dtype)
    end)
end)

describe("a loader with a placement", function()
    after_each(function() set_world(1, 0) end)

    -- Batches of one epoch, this rank's part of each as a table.
    local function epoch(dataset, options)
        local list = {}
        for batch in data.loader(dataset, options) do
            local parts = {}
            for i, t in ipairs(batch) do parts[i] = (t.is_global and t:to_local() or t):totable() end
            list[#list + 1] = {batch = batch, parts = parts}
        end
        return list
    end

    local function options(placement, sbp)
        return {batch_size = 5, shuffle = true, seed = 4, placement = placement, sbp = sbp}
    end

    for _, case in ipairs {{3, 1}, {2, 2}, {1, 4}, {7, 1}} do
        local dp, tp = case[1], case[2]
        it(("gives %d x %d ranks the rows of one rank's batches, uneven and empty parts too"):format(dp, tp), function()
            local function datasets()
                return {data.tensors(flow.arange(13), flow.arange(26):view(13, 2)), data.windows(flow.arange(17), 4)}
            end
            for which = 1, 2 do
                set_world(1, 0)
                local want = epoch(datasets()[which], options())
                for rank = 0, dp * tp - 1 do
                    set_world(dp * tp, rank)
                    local got = epoch(datasets()[which], options(grid(dp, tp), {"S(0)", "B"}))
                    assert.are.equal(#want, #got)
                    for i, item in ipairs(got) do
                        for j, t in ipairs(item.batch) do
                            assert.are.same(want[i].batch[j].shape, t.shape)
                            local count, place = t:size(0), rank // tp
                            local base, more = count // dp, count % dp
                            local first = base * place + math.min(place, more)
                            local rows = table.move(want[i].parts[j], first + 1, first + base + (place < more and 1 or 0), 1, {})
                            assert.are.same(rows, item.parts[j])
                            assert.are.equal("(S(0), B)", tostring(t.sbp))
                        end
                    end
                end
            end
        end)
    end

    it("needs an sbp with it", function()
        set_world(2, 0)
        assert.are.equal("loader: placement and sbp must be given together",
            message_of(data.loader, data.tensors(flow.arange(3)), {placement = grid(2, 1)}))
    end)
end)

describe("train.lua", function()
    local text

    setup(function()
        text = os.tmpname()
        training.write_text(text)
    end)
    teardown(function() os.remove(text) end)
    after_each(function() set_world(1, 0) end)

    for _, case in ipairs {
        {2, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}, {2, 1, true}, {4, 1, true}, {2, 2, true}, {1, 2, true},
        {3, 1, false, 7}, {3, 1, true, 2}, {4, 2, true, 6}, {2, 4, false, 3},
    } do
        local dp, tp, zero, batch = case[1], case[2], case[3], case[4] or 8
        local title = ("communicates what textbooks say: --dp %d --tp %d%s, batches of %d"):format(dp, tp, zero and " --zero" or "", batch)
        it(title, function()
            for _, rank in ipairs {0, dp * tp - 1} do
                set_world(dp * tp, rank)
                local report = training.explain(("%s --data %s --batch %d --dp %d --tp %d%s"):format(training.model, text, batch, dp, tp,
                    zero and " --zero" or ""))
                assert.truthy(report.error:find("item: ", 1, true), report.error)     -- the loss, which a dry world has not
                training.check_collectives(report, dp, tp, zero, batch)
            end
        end)
    end
end)
