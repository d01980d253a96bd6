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
