-- gradient_spec.lua -- gradients of leaves: in the leaf's SBP when backward returns, equal to one rank's, equal bits on all
-- ranks; small ones travel together; flow.no_sync keeps them back.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn = flow.nn

local everywhere = flow.placement.all "cpu"

local function make(sbp)
    flow.manual_seed(3)
    local net = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 7), nn.LayerNorm(7)):to_global{
        placement = everywhere, sbp = sbp or "B"}
    local x = flow.randn({10, 20}, {placement = everywhere, sbp = "B"})
    local t = flow.randint(0, 7, {10}, {placement = everywhere, sbp = "B"})
    return net, x, t
end

local function loss(net, x, t, sbp)
    return flow.cross_entropy(net(x:to_global{sbp = sbp}), t:to_global{sbp = sbp})
end

local function far(a, b) return (a - b):abs():max():item() end

-- The gradients when nothing is split.
local function expected(net, x, t)
    net:zero_grad()
    loss(net, x, t, "B"):backward()
    local list = {}
    for i, p in ipairs(net:parameters()) do list[i] = p.grad:to_global{sbp = "B"}:clone() end
    net:zero_grad()
    return list
end

local function check(net, want, factor)
    for i, p in ipairs(net:parameters()) do
        assert.are.equal(tostring(p.sbp), tostring(p.grad.sbp))
        assert.is_true(far(p.grad:to_global{sbp = "B"}, want[i] * factor) < 1e-5, "parameter " .. i)
    end
end

describe("gradients", function()
    it("of data parallel parameters are one rank's, with the same bits on all ranks", function()
        local net, x, t = make()
        local want = expected(net, x, t)
        loss(net, x, t, "S(0)"):backward()
        check(net, want, 1)
        for _, p in ipairs(net:parameters()) do
            p.grad:to_local():to_global{placement = everywhere, sbp = "B", check = true}
        end
    end)

    it("of split parameters are split", function()
        local net, x, t = make "S(0)"
        local want = expected(net, x, t)
        loss(net, x, t, "S(0)"):backward()
        check(net, want, 1)
    end)

    it("accumulate over passes", function()
        local net, x, t = make()
        local want = expected(net, x, t)
        for _ = 1, 3 do loss(net, x, t, "S(0)"):backward() end
        check(net, want, 3)
    end)

    it("stay where they are under no_sync and join the next pass", function()
        local net, x, t = make()
        local want = expected(net, x, t)
        local report = flow.explain(function()
            flow.no_sync(function()
                loss(net, x, t, "S(0)"):backward()
                loss(net, x, t, "S(0)"):backward()
            end)
        end)
        if ranks.world > 1 then
            for _, p in ipairs(net:parameters()) do assert.is_nil(p.grad) end
            for _, record in ipairs(report.collectives or {}) do
                assert.is_true(record.bytes <= 16, tostring(report))
            end
        end
        loss(net, x, t, "S(0)"):backward()
        check(net, want, 3)
    end)

    it("of no_sync are dropped by zero_grad", function()
        local net, x, t = make()
        local want = expected(net, x, t)
        flow.no_sync(function() loss(net, x, t, "S(0)"):backward() end)
        net:zero_grad()
        loss(net, x, t, "S(0)"):backward()
        check(net, want, 1)
    end)

    it("of no_sync end with it, also by an error", function()
        pcall(flow.no_sync, error)
        local net, x, t = make()
        loss(net, x, t, "S(0)"):backward()
        for _, p in ipairs(net:parameters()) do assert.is_not_nil(p.grad) end
        assert.has_error(function() flow.no_sync(1) end,
            "no_sync: takes a function, or nothing: local _ <close> = flow.no_sync()")
    end)

    it("are whole when hooks after accumulation see them, which no_sync puts off", function()
        local net, x, t = make()
        local want, seen, index, passes = expected(net, x, t), 0, {}, ranks.world > 1 and 2 or 1
        for i, p in ipairs(net:parameters()) do
            index[p] = i
            p:register_post_accumulate_grad_hook(function(q)
                seen = seen + 1
                assert(tostring(q.grad.sbp) == tostring(q.sbp))
                assert(far(q.grad:to_global{sbp = "B"}, want[index[q]] * passes) < 1e-5)
                q.grad = nil
            end)
        end
        if passes == 2 then flow.no_sync(function() loss(net, x, t, "S(0)"):backward() end) end
        assert.are.equal(0, seen)
        loss(net, x, t, "S(0)"):backward()
        assert.are.equal(#net:parameters(), seen)
        for _, p in ipairs(net:parameters()) do assert.is_nil(p.grad) end
    end)

    it("are boxed to grad_sbp", function()
        local w = flow.ones({4, 6}, {placement = everywhere, sbp = "B", requires_grad = true})
        local y = w:to_global{sbp = "S(0)", grad_sbp = "S(1)"} * 2
        local seen
        w:register_hook(function(g) seen = tostring(g.sbp) end)
        y:sum():backward()
        assert.are.equal("S(1)", seen)
        assert.are.equal("B", tostring(w.grad.sbp))
        assert.are.equal(48, w.grad:sum():item())
    end)
end)

describe("linear_cross_entropy in chunks", function()
    -- The loss and the gradients of input and matrix, whole, of operands in these SBPs.
    local function outcome(rows, matrix, chunk, reduction)
        flow.manual_seed(8)
        local function operand(size, sbp)
            local whole = flow.randn(size, {placement = everywhere, sbp = "B"})
            return flow.no_grad(function() return whole:to_global{sbp = sbp}:detach() end):requires_grad_()
        end
        local x, w = operand({23, 5}, rows), operand({9, 5}, matrix)
        local t = flow.randint(0, 9, {23}, {placement = everywhere, sbp = "B"}):to_global{sbp = rows}
        local options = {batch_chunk_size = chunk, label_smoothing = 0.1, reduction = reduction}
        local one = (flow.linear_cross_entropy(x, w, t, options) * 2):sum()
        one:backward()
        return one:item(), x.grad:to_global{sbp = "B"}, w.grad:to_global{sbp = "B"}
    end

    it("is that of one rank, whatever is split", function()
        for _, reduction in ipairs {"mean", "none"} do
            local want, of_x, of_w = outcome("B", "B", 100, reduction)
            for _, sbps in ipairs {{"B", "B"}, {"S(0)", "B"}, {"B", "S(0)"}, {"S(0)", "S(0)"}, {"B", "S(1)"}} do
                local value, dx, dw = outcome(sbps[1], sbps[2], 4, reduction)
                assert.is_true(math.abs(value - want) < 1e-4)
                assert.is_true(far(dx, of_x) < 1e-5 and far(dw, of_w) < 2e-5, table.concat(sbps, " "))
            end
        end
    end)
end)

describe("gradients at ties and corners", function()
    local values = {{2, 2, 1}, {2, 0, 2}, {0, 2, 0}, {1, 1, 1}, {2, -2, -2}, {0, 0, 0}, {2, 2, 1}}

    -- The gradient of x from f's result, weighted: in this SBP, and as a local tensor.
    local function gradient(f, x)
        x.requires_grad = true
        local y = f(x)
        local count = y:numel()
        local weights = flow.arange(1, count + 1, {dtype = "float64"})
        if x.is_global then weights = weights:to_global{placement = everywhere, sbp = "B"} end
        return flow.grad((y:flatten() * weights):sum(), x)
    end

    for _, case in ipairs {
        {"amax()", function(x) return x:amax() end}, {"max()", function(x) return x:max() end},
        {"amin(0)", function(x) return x:amin(0) end}, {"amax(1)", function(x) return x:amax(1) end},
        {"max(0)", function(x) return (x:max(0)) end}, {"min(0)", function(x) return (x:min(0)) end},
        {"max(1)", function(x) return (x:max(1)) end}, {"sort(0)", function(x) return (x:sort(0)) end},
        {"topk(4, 0)", function(x) return (x:topk(4, 0)) end}, {"prod(0)", function(x) return x:prod(0) end},
        {"prod(1)", function(x) return x:prod(1) end}, {"prod()", function(x) return x:prod() end},
        {"norm(inf, 0)", function(x) return x:norm(math.huge, 0) end}, {"norm(2, 1)", function(x) return x:norm(2, 1) end},
        {"norm(1)", function(x) return x:norm(1) end}, {"std(1)", function(x) return x:std(1) end},
        {"clamp(0, 2)", function(x) return x:clamp(0, 2) end}, {"abs()", function(x) return x:abs() end},
        {"maximum(x, 2)", function(x) return x:maximum(2) end}, {"relu()", function(x) return x:relu() end},
        {"maximum of rows", function(x) return x:maximum(x:flip(0)) end}, {"x ^ 2", function(x) return x ^ 2 end},
    } do
        it("are one rank's in every SBP: " .. case[1], function()
            local f = case[2]
            local want = gradient(f, flow.tensor(values, {dtype = "float64"}))
            for _, sbp in ipairs {"B", "S(0)", "S(1)", "P", "P(max)", "P(min)"} do
                local x = flow.tensor(values, {dtype = "float64", placement = everywhere, sbp = "B"}):to_global{sbp = sbp}
                local got = gradient(f, x):to_global{sbp = "B"}:to_local()
                assert.is_true(far(got, want) < 1e-12, ("%s: %s, not %s"):format(sbp, got, want))
            end
        end)
    end

    -- The first rank has two rows of x, the others one each.
    local function transposed()
        local shape = {4, flow.world_size() + 1}
        local whole = flow.arange(shape[1] * shape[2], {dtype = "float64"}):reshape(shape) / 7
        return whole:t(), whole:to_global{placement = everywhere, sbp = "B"}:to_global{sbp = "S(1)"}:t()
    end

    it("are one rank's where contiguous() finds only some parts in order", function()
        local function gradients(x)
            local w = (x * 2):detach():requires_grad_()
            x = x:detach():requires_grad_()
            local y, u = x:contiguous(), w:exp()
            local total = x:sin():sum() + y:cos():sum() + u:sum()
            if total.is_global then total = total:to_global{sbp = "B"} end
            return flow.grad(total, {x, w})
        end
        local here, there = transposed()
        local want, got = gradients(here), gradients(there)
        for i = 1, 2 do assert.is_true(far(got[i]:to_global{sbp = "B"}:to_local(), want[i]) < 1e-12) end
    end)

    -- The last rank has none of the rows.
    for _, case in ipairs {
        {"a reshaped copy", function(x) return x:permute(2, 1, 0):reshape(-1, 6) end},
        {"a reshaped view", function(x) return x:permute(2, 0, 1):clone():reshape(-1, 6) end},
    } do
        it("through what is written to " .. case[1] .. ", of which a rank has none, are the same on all", function()
            local rows = math.max(1, flow.world_size() - 1)
            local function gradients(x)
                local w = x:permute(2, 1, 0):reshape(rows, 6):clone():requires_grad_()
                x = x:detach():requires_grad_()
                local doubled = x * 2
                local y = case[2](doubled)
                y:mul_(w)
                local total = y:sin():sum() + doubled:cos():sum()
                if total.is_global then total = total:to_global{sbp = "B"} end
                return flow.grad(total, {x, w})
            end
            local whole = flow.arange(6 * rows, {dtype = "float64"}):reshape(2, 3, rows) / 7
            local there = whole:to_global{placement = everywhere, sbp = "B"}:to_global{sbp = "S(2)"}
            local got = gradients(there)
            local want = gradients(whole:to_global{placement = flow.placement("cpu", {0}), sbp = "B"})
            for i = 1, 2 do
                local one = want[i]:to_global{placement = everywhere, sbp = "B"}:to_local()
                assert.is_true(far(got[i]:to_global{sbp = "B"}:to_local(), one) < 1e-12)
            end
        end)
    end

    it("contiguous() of several parts shares none with its argument", function()
        local here, there = transposed()
        there:contiguous():zero_()
        assert.are.equal(0, far(there:to_global{sbp = "B"}:to_local(), here))
    end)

    for _, name in ipairs {"fmod", "remainder"} do
        it(("of %s(x, x) is 0 when x is a sum of parts"):format(name), function()
            local part = flow.arange(1, 201, {dtype = "float64"}) / (flow.rank() + 3)
            local x = part:to_global{placement = everywhere, sbp = "P"}:requires_grad_()
            local g = flow.grad(flow[name](x, x):sum(), x):to_global{sbp = "B"}:to_local()
            assert.are.equal(0, g:abs():max():item())
        end)
    end
end)
