-- global_spec.lua -- global tensors: placements, SBPs, what ranks hold, mixing, training, random programs. World size 1, and
-- dry worlds, in which one process is any rank of many but nothing can be communicated.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local testing = flow._testing
local nn, optim = flow.nn, flow.optim

local function world(size, rank) testing.set_world(size, rank or 0) end

local message_of = support.error_of

local function refuses(cases)
    for _, case in ipairs(cases) do
        it("say: " .. case[1], function() assert.are.equal(case[1], message_of(case[2])) end)
    end
end

-- Ranks 0 to n - 1.
local function line(n)
    local ranks = {}
    for r = 0, n - 1 do ranks[r + 1] = r end
    return flow.placement("cpu", ranks)
end

describe("placements", function()
    setup(function() world(8, 3) end)
    teardown(function() world(1) end)

    it("keep the user's order", function()
        local p = flow.placement("cpu", {5, 2, 7})
        assert.are.equal('placement("cpu", {5, 2, 7})', tostring(p))
        assert.are.equal("cpu", p.type)
        assert.are.same({5, 2, 7}, p.ranks)
        assert.are.same({3}, p.hierarchy)
        assert.is_false(p == flow.placement("cpu", {2, 5, 7}))
    end)

    it("nest", function()
        local p = flow.placement("cpu", {{{6, 1}, {2, 3}}, {{4, 5}, {0, 7}}})
        assert.are.same({2, 2, 2}, p.hierarchy)
        assert.are.equal('placement("cpu", {{{6, 1}, {2, 3}}, {{4, 5}, {0, 7}}})', tostring(p))
        assert.is_true(p == flow.placement("cpu", {{{6, 1}, {2, 3}}, {{4, 5}, {0, 7}}}))
        assert.is_false(p == flow.placement("cpu", {6, 1, 2, 3, 4, 5, 0, 7}))
        assert.are.same({8}, flow.placement.all("cpu").hierarchy)
    end)

    it("give back what they were made of", function()
        local p = flow.placement("cpu", {{6, 1}, {2, 3}})
        assert.is_true(p == flow.placement(p.type, p.ranks))
    end)

    local cycle = {}
    cycle[1] = cycle
    refuses {
        {'placement: rank 8 does not exist: the world has 8 ranks (0 to 7); start flowlua with --ranks 9, or write ' ..
            'flow.placement.all("cpu")', function() flow.placement("cpu", {0, 8}) end},
        {"placement: there is no rank -1: ranks count from 0", function() flow.placement("cpu", {-1}) end},
        {"placement: rank 1 is named twice", function() flow.placement("cpu", {1, 0, 1}) end},
        {"placement: rank 1 is named twice", function() flow.placement("cpu", {{1, 0}, {2, 1}}) end},
        {'placement: every rank uses a GPU of its own; write "cuda", not "cuda:1"', function() flow.placement("cuda:1", {0, 1}) end},
        {'placement.all: every rank uses a GPU of its own; write "cuda", not "cuda:0"', function() flow.placement.all "cuda:0" end},
        {"placement: no rank is named", function() flow.placement("cpu", {}) end},
        {"placement: ranks must form a regular grid; one list holds 2, another 1", function() flow.placement("cpu", {{0, 1}, {2}}) end},
        {"placement: ranks must form a regular grid", function() flow.placement("cpu", {{0, 1}, 2}) end},
        {"placement: ranks must form a regular grid", function() flow.placement("cpu", {2, {0, 1}}) end},
        {"placement: a rank must be a whole number, got 0.5", function() flow.placement("cpu", {0.5}) end},
        {"placement: a rank must be a whole number, got string", function() flow.placement("cpu", {"0"}) end},
        {"placement: ranks must be a list, got number", function() flow.placement("cpu", 0) end},
        {"placement: ranks are nested deeper than 7", function() flow.placement("cpu", cycle) end},
        {'placement: unknown device \'gpu\'; a device is "cpu", "cuda", "cuda:1" or "meta"', function() flow.placement("gpu", {0}) end},
        {"a placement has no field 'rank'; did you mean 'ranks'?", function() return line(2).rank end},
    }
end)

describe("SBPs", function()
    setup(function() world(4, 1) end)
    teardown(function() world(1) end)

    it("are read and printed", function()
        local x = flow.zeros(4, 6, {placement = line(4), sbp = "B"})
        for _, case in ipairs {
            {"S(0)", "S(0)"}, {"S(1)", "S(1)"}, {"S(-1)", "S(1)"}, {"B", "B"}, {{"S(-2)"}, "S(0)"}, {flow.sbp.split(1), "S(1)"},
            {flow.sbp.broadcast, "B"}, {"P", "P"}, {"P(sum)", "P"}, {"P(max)", "P(max)"}, {"P(min)", "P(min)"},
            {flow.sbp.partial_sum, "P"}, {flow.sbp.partial_max, "P(max)"}, {flow.sbp.partial_min, "P(min)"},
        } do
            local y = x:to_global {sbp = case[1]}
            assert.are.equal(case[2], tostring(y.sbp))
            assert.are.equal(case[2], tostring(y:to_global {sbp = y.sbp}.sbp))
        end
        local grid = flow.placement("cpu", {{0, 1}, {2, 3}})
        local y = flow.zeros(4, 6, {placement = grid, sbp = {"S(0)", flow.sbp.broadcast}})
        assert.are.equal("(S(0), B)", tostring(y.sbp))
        assert.are.equal("S(0)", tostring(y.sbp[1]))
        assert.are.equal("B", tostring(y.sbp[2]))
        assert.are.same({2, 6}, y:to_local().shape)
    end)

    it("split the same axis twice, the second within the first", function()
        local grid = flow.placement("cpu", {{0, 1}, {2, 3}})
        local starts = {}
        for rank = 0, 3 do
            world(4, rank)
            local part = flow.arange(10, {placement = grid, sbp = {"S(0)", "S(0)"}}):to_local()
            starts[rank + 1] = part:totable()
        end
        world(4, 1)
        assert.are.same({{0, 1, 2}, {3, 4}, {5, 6, 7}, {8, 9}}, starts)
    end)

    local function made_with(sbp, placement) return function() flow.ones(4, 6, {placement = placement or line(4), sbp = sbp}) end end
    refuses {
        {'ones: \'S\' is not an sbp; an sbp is "S(0)", "B", "P", "P(max)" or "P(min)"', made_with "S"},
        {'ones: \'s(0)\' is not an sbp; an sbp is "S(0)", "B", "P", "P(max)" or "P(min)"', made_with "s(0)"},
        {'ones: \'S(9999999999)\' is not an sbp; an sbp is "S(0)", "B", "P", "P(max)" or "P(min)"', made_with "S(9999999999)"},
        {"ones: sbp must be an sbp, a string or a list of them, got number", made_with(0)},
        {'ones: sbp (S(0), B): placement("cpu", {0, 1, 2, 3}) has 1 hierarchy axis, and each needs one sbp; write sbp = "S(0)"', made_with {"S(0)", "B"}},
        {"ones: sbp must have 1 to 7 entries, got 0", made_with {}},
        {'ones: sbp S(5) on placement("cpu", {0, 1, 2, 3}): float32[4, 6] has axes 0 to 1; write "S(0)" or "S(1)"', made_with "S(5)"},
        {'ones: a new tensor must be S or B, not P; use x:to_global{sbp = "P"}', made_with "P"},
        {'ones: placement and sbp go together; sbp is missing: write sbp = "B" (whole on every rank) or "S(0)" (split)', made_with(nil)},
        {'ones: placement and sbp go together; placement is missing: write placement = flow.placement.all("cpu")', function() flow.ones(2, {sbp = "B"}) end},
        {"ones: give a device (a local tensor) or a placement and an sbp (a global one), not both",
            function() flow.ones(2, {placement = line(4), sbp = "B", device = "cpu"}) end},
        {"to_global: sbp P: a bool tensor cannot be a partial sum; use P(max) or P(min), or convert it to a number",
            function() flow.zeros(2, {dtype = "bool", placement = line(4), sbp = "B"}):to_global {sbp = "P"} end},
        {'sbp.split: axis must be 0 to 7, got 8; "S(-1)" as text counts from the end', function() flow.sbp.split(8) end},
        {'sbp.split: axis must be 0 to 7, got -1; "S(-1)" as text counts from the end', function() flow.sbp.split(-1) end},
    }
end)

describe("tensors made in parts", function()
    after_each(function() world(1) end)

    local makers = {
        {"zeros", function(o) return flow.zeros({5, 3}, o) end}, {"ones", function(o) return flow.ones(5, 3, o) end},
        {"full", function(o) return flow.full({5, 3}, 2.5, o) end}, {"rand", function(o) return flow.rand({5, 3}, o) end},
        {"randn", function(o) return flow.randn({5, 3}, o) end}, {"randint", function(o) return flow.randint(0, 99, {5, 3}, o) end},
        {"eye", function(o) return flow.eye(5, 3, o) end}, {"tensor", function(o) return flow.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {0, 1, 0}, {2, 2, 2}}, o) end},
        {"arange", function(o) return flow.arange(5, o) end}, {"linspace", function(o) return flow.linspace(0, 1, 5, o) end},
        {"randperm", function(o) return flow.randperm(5, o) end},
    }
    for _, maker in ipairs(makers) do
        it("are parts of the whole: " .. maker[1], function()
            flow.manual_seed(9)
            local whole = maker[2] {}
            for _, sbp in ipairs {"B", "S(0)", "S(1)"} do
                local axis = tonumber(sbp:match("%d"))
                for size = 1, 4 do
                    if not axis or axis < whole.ndim then
                        local list = {}
                        for rank = 0, size - 1 do
                            world(size, rank)
                            flow.manual_seed(9)
                            local x = maker[2] {placement = line(size), sbp = sbp}
                            assert.is_true(x.is_global)
                            assert.are.same(whole.shape, x.shape)
                            list[rank + 1] = x:to_local()
                        end
                        world(1)
                        support.same(whole, support.join(list, sbp), maker[1] .. " as " .. sbp)
                    end
                end
            end
        end)
    end

    it("of a rank outside the placement are empty", function()
        world(4, 2)
        local x = flow.ones(5, 3, {placement = flow.placement("cpu", {0, 1}), sbp = "S(0)"})
        assert.are.same({5, 3}, x.shape)
        assert.are.equal(0, x:to_local():numel())
        assert.are.same({0}, x:sum():to_local().shape)
        assert.are.same({5, 3}, (x + 1):relu().shape)
        assert.matches("rank 2 holds no part of it", tostring(x))
    end)

    it("may be fewer than the ranks", function()
        for rank = 0, 3 do
            world(4, rank)
            local x = flow.arange(2, {placement = line(4), sbp = "S(0)", dtype = "float32"})
            local y = (x * 2 + 1):exp():to_local()
            assert.are.equal(rank < 2 and 1 or 0, y:numel())
        end
    end)
end)

describe("inference", function()
    setup(function() world(4, 0) end)
    teardown(function() world(1) end)

    local function given(shape, sbp, placement) return flow.empty(shape, {placement = placement or line(4), sbp = sbp}) end
    local grid = nil

    -- The choice that explain reports for the op that f calls last.
    local function chosen(f)
        local list = flow.explain(f)
        for _, way in ipairs(list[#list].ways) do if way.chosen then return way.inputs .. " -> " .. way.outputs end end
    end

    for _, case in ipairs {
        {"S(0) + S(1) keeps S(0)", "S(0) x S(0) -> S(0)", function() return given({8, 8}, "S(0)") + given({8, 8}, "S(1)") end},
        {"S(0) + B slices", "S(0) x S(0) -> S(0)", function() return given({8, 8}, "S(0)") + given({8, 8}, "B") end},
        {"S(1) + bias slices the bias", "S(1) x S(0) -> S(1)", function() return given({8, 8}, "S(1)") + given({8}, "B") end},
        {"S(0) + bias keeps it whole", "S(0) x B -> S(0)", function() return given({8, 8}, "S(0)") + given({8}, "B") end},
        {"B + B", "B x B -> B", function() return given({8}, "B") + given({8}, "B") end},
        {"P * number", "P -> P", function() return given({8}, "B"):to_global {sbp = "P"} * 2 end},
        {"a tensor without elements keeps its SBP", "S(1) -> S(1)", function() return flow.zeros_like(given({0, 2}, "S(1)")) end},
        {"rows of a product", "S(0) x B -> S(0)", function() return given({8, 8}, "S(0)"):matmul(given({8, 8}, "B")) end},
        {"columns of a product", "B x S(1) -> S(1)", function() return given({8, 8}, "B"):matmul(given({8, 8}, "S(1)")) end},
        {"the inner axis of a product", "S(1) x S(0) -> P", function() return given({8, 8}, "S(1)"):matmul(given({8, 8}, "S(0)")) end},
        {"sum along a split axis", "S(0) -> P", function() return given({8, 8}, "S(0)"):sum(0) end},
        {"sum along another axis", "S(0) -> S(0)", function() return given({8, 8}, "S(0)"):sum(1) end},
        {"max along a split axis", "S(0) -> P(max)", function() return given({8, 8}, "S(0)"):amax(0) end},
        {"a transposed view", "S(0) -> S(1)", function() return given({8, 8}, "S(0)"):t() end},
        {"an embedding of split indices", "S(0) x B -> S(0)", function()
            return flow.embedding(flow.zeros(8, {dtype = "int64", placement = line(4), sbp = "S(0)"}), given({10, 3}, "B"))
        end},
    } do
        it(case[1], function() assert.are.equal(case[2], chosen(case[3])) end)
    end

    it("of two axes asks one after the other", function()
        grid = flow.placement("cpu", {{0, 1}, {2, 3}})
        local x = given({8, 8}, {"S(0)", "S(1)"}, grid)
        assert.are.equal("(S(0), S(1))", tostring((x * 2):relu().sbp))
        local y = given({8, 8}, {"S(0)", "B"}, grid):matmul(given({8, 8}, {"B", "S(1)"}, grid))
        assert.are.equal("(S(0), S(1))", tostring(y.sbp))
        assert.are.same({4, 4}, y:to_local().shape)
    end)

    it("of a mutated tensor keeps its SBP", function()
        local x = given({8, 8}, "S(0)")
        x:add_(given({8, 8}, "B"))
        assert.are.equal("S(0)", tostring(x.sbp))
        assert.matches("^add_: boxing S%(1%) %-> S%(0%) ", message_of(function() x:add_(given({8, 8}, "S(1)")) end))
    end)

    it("expands parts", function()
        world(2, 0)
        local x = flow.empty(4, 3, 1, 2, {placement = line(2), sbp = "S(3)"}):expand(2, 4, 3, 4, 2)
        assert.are.same({2, 4, 3, 4, 2}, x.shape)
        assert.are.equal("S(4)", tostring(x.sbp))
        assert.are.same({2, 4, 3, 4, 1}, x:to_local().shape)
        assert.are.same({0, 3, 1, 0, 1}, x:to_local():stride())
        world(4, 0)
    end)

    refuses {
        {'add: y is a local tensor (float32[8]) and x is global (float32[8] on placement("cpu", {0, 1, 2, 3}) as B); '
            .. 'write y:to_global{placement = x.placement, sbp = "B"}',
            function() return given({8}, "B") + flow.ones(8) end},
        {'mul: x is a local tensor (float32[8]) and y is global (float32[8] on placement("cpu", {0, 1, 2, 3}) as S(0)); '
            .. 'write x:to_global{placement = y.placement, sbp = "B"}',
            function() return flow.ones(8) * given({8}, "S(0)") end},
        {'cat: xs[2] is a local tensor (float32[8]) and xs[1] is global (float32[8] on placement("cpu", {0, 1, 2, 3}) as B); '
            .. 'write xs[2]:to_global{placement = xs[1].placement, sbp = "B"}',
            function() flow.cat {given({8}, "B"), flow.ones(8)} end},
        {'add: y is float32[8] on placement("cpu", {0, 1}) as S(0) and x is float32[8] on placement("cpu", {0, 1, 2, 3}) as B; '
            .. 'write y:to_global{placement = x.placement}',
            function() return given({8}, "B") + given({8}, "S(0)", flow.placement("cpu", {0, 1})) end},
        {'add: y is float32[8] on placement("cpu", {1, 0, 2, 3}) as B and x is float32[8] on placement("cpu", {0, 1, 2, 3}) as B; '
            .. 'write y:to_global{placement = x.placement}',
            function() return given({8}, "B") + given({8}, "B", flow.placement("cpu", {1, 0, 2, 3})) end},
        {'mul: y is float32[8] on placement("cpu", {{0, 1}, {2, 3}}) as (S(0), B) and x is float32[8] on placement("cpu", {0, 1, 2, 3}) as B; '
            .. 'write y:to_global{placement = x.placement, sbp = "S(0)"}',
            function() return given({8}, "B") * given({8}, {"S(0)", "B"}, flow.placement("cpu", {{0, 1}, {2, 3}})) end},
        {'mul: y is float32[8] on placement("cpu", {0, 1, 2, 3}) as S(0) and x is float32[8] on placement("cpu", {{0, 1}, {2, 3}}) as (B, B); '
            .. 'write y:to_global{placement = x.placement, sbp = {"S(0)", "B"}}',
            function() return given({8}, {"B", "B"}, flow.placement("cpu", {{0, 1}, {2, 3}})) * given({8}, "S(0)") end},
        {'to_global: sbp S(0): placement("cpu", {{0, 1}, {2, 3}}) has 2 hierarchy axes, and each needs one sbp; write sbp = {"S(0)", "B"}',
            function() given({8}, "S(0)"):to_global{placement = flow.placement("cpu", {{0, 1}, {2, 3}})} end},
        {'to_global: sbp S(1) on placement("cpu", {0, 1, 2, 3}): float32[8] has axis 0 alone; write "S(0)"',
            function() given({8}, "S(0)"):to_global{sbp = "S(1)"} end},
        {'to_global: sbp S(0) on placement("cpu", {0, 1, 2, 3}): float32[] has no axis; write "B"',
            function() given({}, "B"):to_global{sbp = "S(0)"} end},
        {'to_global: sbp S(-3): the tensor has 2 axes; write "S(-2)" to "S(1)"',
            function() given({8, 2}, "S(0)"):to_global{sbp = "S(-3)"} end},
        {"add: boxing S(0) -> S(1) of float32[2, 8] needs an all-to-all, and this is a dry world (FLOW_WORLD): nothing can be communicated",
            function() return given({2, 8}, "S(0)") + given({8}, "S(0)") end},
        {"item: boxing P -> B of float32[] needs an all-reduce, and this is a dry world (FLOW_WORLD): nothing can be communicated",
            function() given({8}, "S(0)"):sum():item() end},
        {"to_local: the tensor is already local (float32[2])", function() flow.ones(2):to_local() end},
        {'to_global: a local tensor needs placement and sbp: x:to_global{placement = p, sbp = "B"}', function() flow.ones(2):to_global {sbp = "B"} end},
        {"to_global: unknown option 'spb'; did you mean 'sbp'?", function() flow.ones(2):to_global {spb = "B"} end},
        {"to_global: takes {placement =, sbp =}, got nil", function() flow.ones(2):to_global() end},
    }
end)

describe("assignment in parts", function()
    it("writes every rank's part of it", function()
        local whole = flow.zeros(5, 4)
        whole[3] = 2
        whole[{{1, 5, 2}, 0}] = 3
        for _, sbp in ipairs {"S(0)", "S(1)"} do
            local list = {}
            for rank = 0, 2 do
                world(3, rank)
                local x = flow.zeros(5, 4, {placement = line(3), sbp = sbp})
                x[3] = 2
                x[{{1, 5, 2}, 0}] = 3
                list[rank + 1] = x:to_local()
            end
            world(1)
            support.same(whole, support.join(list, sbp), sbp)
        end
    end)
end)

describe("a view of a split axis that moved", function()
    it("refuses to be written", function()
        world(2, 0)
        local x = flow.zeros(4, 6, {placement = line(2), sbp = "S(0)"})
        local message = message_of(function() x:narrow(0, 0, 2):add_(1) end)
        world(1)
        assert.is_truthy(message:find("needs", 1, true) or message:find("had to move data", 1, true), message)
    end)
end)

describe("at world size 1", function()
    local p = flow.placement("cpu", {0})

    it("every SBP is the whole", function()
        local x = flow.randn(3, 4)
        for _, sbp in ipairs {"S(0)", "S(1)", "B", "P", "P(max)", "P(min)"} do
            for _, other in ipairs {"S(0)", "S(1)", "B", "P", "P(max)", "P(min)"} do
                local y = x:to_global {placement = p, sbp = sbp}:to_global {sbp = other}
                support.same(x, y:to_local(), sbp .. " to " .. other)
                assert.are.same(x:totable(), y:totable())
                assert.are.equal(x:sum():item(), y:sum():item())
            end
        end
    end)

    it("assignment reaches split axes", function()
        for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
            local x = flow.zeros(3, 4, {placement = p, sbp = sbp})
            x[1] = 5
            x["0, 1:3"] = flow.tensor({7, 8}, {dtype = "float32", placement = p, sbp = "B"})
            x[{{}, 3}] = 9
            x[{2, {0, 4, 2}}] = 1
            assert.are.equal(sbp, tostring(x.sbp))
            assert.are.same({{0, 7, 8, 9}, {5, 5, 5, 9}, {1, 0, 1, 9}}, x:totable())
        end
    end)

    it("a slice of a broadcast tensor is a copy, a local part a view", function()
        local x = flow.zeros(4, {placement = p, sbp = "B"})
        x:to_local():fill_(3)
        assert.are.same({3, 3, 3, 3}, x:totable())
        x:to_global {sbp = "S(0)"}:fill_(5)
        assert.are.same({3, 3, 3, 3}, x:totable())
    end)

    it("gradients go through to_global and to_local", function()
        for _, sbp in ipairs {"S(0)", "B", "P"} do
            local x = flow.randn(3, 2, {requires_grad = true})
            local g = x:to_global {placement = p, sbp = sbp}
            local y = (g * g):to_local()
            assert.is_false(y.is_global)
            y:sum():backward()
            assert.is_false(x.grad.is_global)
            support.close(x:detach() * 2, x.grad, 1e-6, "gradient through " .. sbp)
        end
        local x = flow.randn(3, 2, {placement = p, sbp = "S(0)", requires_grad = true})
        local y = x:to_global {sbp = "B", grad_sbp = "P"} * 3
        y:sum():backward()
        assert.is_true(x.grad.is_global)
        assert.are.equal("S(0)", tostring(x.grad.sbp))
        assert.are.same({{3, 3}, {3, 3}, {3, 3}}, x.grad:totable())
    end)

    it("a model trains as a local one does", function()
        local function losses(option)
            flow.manual_seed(4)
            local net = nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 11))
            if option.weights then net:to_global {placement = p, sbp = option.weights} end
            local opt = optim.AdamW(net:parameters(), {lr = 1e-2})
            local list = {}
            for step = 1, 10 do
                local x = flow.randint(0, 11, {4, 6})
                local target = x:view(-1)
                if option.data then
                    x = x:to_global {placement = p, sbp = option.data}
                    target = x:view(-1)
                end
                opt:zero_grad()
                local loss = flow.cross_entropy(net(x):view(-1, 11), target)
                loss:backward()
                optim.clip_grad_norm(net:parameters(), 1)
                opt:step()
                list[step] = loss:item()
            end
            return list
        end
        local want = losses {}
        for _, option in ipairs {{weights = "B", data = "S(0)"}, {weights = "B", data = "B"}, {weights = "S(0)", data = "B"}} do
            for step, loss in ipairs(losses(option)) do
                assert.is_true(math.abs(loss - want[step]) <= 2e-6, ("step %d: %.9g, local %.9g"):format(step, loss, want[step]))
            end
        end
    end)
end)

describe("random programs", function()
    local p, square = flow.placement("cpu", {0}), flow.placement("cpu", {{0}})

    local function any_sbp(ndim, partial)
        local list = {"B"}
        if partial then list[2] = "P" end
        for axis = 0, ndim - 1 do list[#list + 1] = ("S(%d)"):format(axis) end
        return list[math.random(#list)]
    end
    local function globalize(t, placement, partial)
        local sbp = any_sbp(t.ndim, partial)
        if placement == square then sbp = {sbp, any_sbp(t.ndim, partial)} end
        return t:to_global {placement = placement, sbp = sbp}
    end

    local steps = {
        function(x, c) return x + c.other end, function(x, c) return x * c.other end, function(x, c) return c.other - x end, function(x) return x * 0.5 + 1 end,
        function(x) return x:tanh() end, function(x) return x:relu() - x:sigmoid() end, function(x, c) return x:matmul(c.matrix) end,
        function(x, c) return flow.linear(x, c.matrix, c.bias) end, function(x) return x:t():contiguous():t() end, function(x) return x:softmax(1) end,
        function(x) return x - x:mean(0, true) end, function(x) return x:sum(1, true) * 0.1 + x end, function(x) return x:amax(0, true) + x end,
        function(x) return x:reshape(2, 2, 4):permute(1, 0, 2):reshape(4, 4) end, function(x) return flow.cat({x:narrow(0, 0, 2), x:narrow(0, 2, 2)}, 0) end,
        function(x) return x:layer_norm {4} end, function(x, c) return flow.where(c.other:gt(0), x, x * 2) end, function(x) return x:tril() end,
        function(x) return flow.stack({x, x * 2}, 0):sum(0) end, function(x) return x:unsqueeze(0):expand(3, 4, 4):mean(0) end,
        function(x, c) return x:index_select(0, c.index) end, function(x) return x:clamp(-2, 2) end, function(x) return x:square():sqrt() end,
        function(x) local y = x + 1 y:mul_(2) y[1] = 0 return y end, function(x) return x:dropout(0.3) end,
    }

    for seed = 1, 30 do
        it("give what they give on local tensors, seed " .. seed, function()
            math.randomseed(seed)
            flow.manual_seed(seed)
            local start, other, matrix, bias = flow.randn(4, 4), flow.randn(4, 4), flow.randn(4, 4), flow.randn(4)
            local index = flow.randint(0, 4, {4})
            local program = {}
            for i = 1, 12 do program[i] = math.random(#steps) end
            local function run(map)
                flow.manual_seed(seed)
                local x = map(start):detach():requires_grad_()
                local context = {other = map(other), matrix = map(matrix), bias = map(bias), index = map(index)}
                local y = x
                for _, i in ipairs(program) do y = steps[i](y, context) end
                local loss = (y * y):sum()
                loss:backward()
                return y, loss:item(), x.grad
            end
            local want, loss, grad = run(function(t) return t end)
            for _, placement in ipairs {p, square} do
                for _ = 1, 4 do
                    local got, global_loss, global_grad = run(function(t) return globalize(t, placement, t.dtype ~= "int64") end)
                    local what = "program " .. table.concat(program, " ")
                    assert.is_true(got.is_global)
                    support.close(want, got:to_local(), 1e-5, what)
                    support.close(grad, global_grad:to_global {sbp = placement == p and "B" or {"B", "B"}}:to_local(), 1e-4, what .. ": gradient")
                    assert.is_true(math.abs(loss - global_loss) <= 1e-5 * math.max(1, math.abs(loss)), what)
                end
            end
        end)
    end
end)

describe("the infer cache", function()
    it("is not missed when scalars, positions and rates change", function()
        local x, w = flow.randn(16, 8), nn.Parameter(flow.randn(8, 8))
        local opt = optim.AdamW({w}, {lr = 1e-3})
        local function step(i)
            opt.groups[1].lr = 1e-3 / i
            local y = (x * i + i / 3):matmul(w):clamp(-i, i):masked_fill(x:gt(i), i)
            local row = y[i % 16]
            local part = y:narrow(0, i % 8, 4):slice(1, i % 3, 6)
            row = row:pow(1 + i % 3):sum() + part:mean() + flow.full({3}, i):sum() + y:dropout((i % 5) / 10):sum()
            local copy = y:clone()
            copy[i % 16] = i
            row:backward()
            optim.clip_grad_norm({w}, i)
            opt:step()
            opt:zero_grad()
            return (row + copy:sum() + flow.rand(4):sum() + flow.randint(0, 100 + i, {2}):sum()):item()
        end
        for i = 1, 20 do step(i) end
        local before = flow.infer_cache.stats()
        for i = 21, 200 do step(i) end
        local after = flow.infer_cache.stats()
        assert.are.equal(before.misses, after.misses)
        assert.is_true(after.hits > before.hits)
    end)

    it("and global tensors: nor there", function()
        local p = flow.placement("cpu", {0})
        local x, b = flow.randn(8, 8, {placement = p, sbp = "S(0)"}), flow.randn(8, {placement = p, sbp = "B"})
        local function step(i) return ((x + b) * i)[i % 8]:sum():item() end
        for i = 1, 10 do step(i) end
        local before = flow.infer_cache.stats().misses
        for i = 11, 100 do step(i) end
        assert.are.equal(before, flow.infer_cache.stats().misses)
    end)

    it("keeps the metas of its keys, also of inputs that are boxed", function()
        world(2, 1)
        local p = flow.placement("cpu", {0, 1})
        local shapes = {{4, 4}, {4}, {1, 4}, {4, 1}, {1, 1}, {}}
        local s = flow.zeros({4, 4}, {placement = p, sbp = "S(0)"})
        for i = 1, 60 do
            local shape = shapes[i % #shapes + 1]
            local x = testing.from_part(flow.full(shape, i), shape, p, "B")
            assert.are.same({{i, i, i, i}, {i, i, i, i}}, (x + s):to_local():totable())
            x = nil -- luacheck: ignore
            collectgarbage()
        end
        world(1)
    end)

    it("stays small whatever shapes come", function()
        local limit = 20000
        for i = 1, limit do local _ = flow.empty(i, 0) + 1 end
        local s = flow.infer_cache.stats()
        assert.is_true(s.size <= 16384, s.size .. " plans")
        flow.infer_cache.clear()
        assert.are.equal(0, flow.infer_cache.stats().size)
        assert.are.equal(2, (flow.ones(1) + 1):item())
    end)
end)

describe("a world from outside", function()
    local function run(environment, text)
        return (process.output(("%s %s -e '%s' 2>&1"):format(environment, process.flowlua, text)))
    end

    it("is that of FLOW_WORLD and FLOW_RANK", function()
        for rank = 0, 3 do
            local output = run("FLOW_WORLD=4 FLOW_RANK=" .. rank, [[
                local x = flow.arange(10, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
                print(flow.rank(), flow.world_size(), table.concat((x * 2):to_local():totable(), " "))
                flow.print("from rank 0")
                flow.on_rank(3, function() print("on rank 3") end)]])
            local parts = {[0] = "0 2 4", "6 8 10", "12 14", "16 18"}
            local want = ("%d\t4\t%s\n"):format(rank, parts[rank]) .. (rank == 0 and "from rank 0\n" or "") .. (rank == 3 and "on rank 3\n" or "")
            assert.are.equal(want, output)
        end
    end)

    for _, case in ipairs {
        {"FLOW_WORLD=2 FLOW_RANK=5", "rank 5 does not exist in a world of 2 (0 to 1)"}, {"FLOW_WORLD=0 FLOW_RANK=0", nil}, {"FLOW_WORLD=x FLOW_RANK=0", nil},
        {"FLOW_WORLD=99999999999999999999 FLOW_RANK=0", nil}, {"FLOW_WORLD=2 FLOW_RANK=-1", nil},
    } do
        it("is refused: " .. case[1], function()
            local output = run(case[1], "print(flow.rank())")
            assert.matches("^[^\n]*FLOW_", output:gsub("world", "FLOW_"))
            if case[2] then assert.is_truthy(output:find(case[2], 1, true), output) end
        end)
    end
end)
