-- fuse_spec.lua -- deferred results of global tensors: the bits of results that are computed at once, in any SBP; what
-- moves between ranks is computed first; random numbers do not depend on the split.
local flow = require "flow"

local everywhere = flow.placement.all "cpu"
local ROWS, COLUMNS = 32 * flow.world_size(), 2048 -- every rank's part is deferred, however it is cut

local function make(seed, sbp)
    flow.manual_seed(seed)
    return flow.randn({ROWS, COLUMNS}, {placement = everywhere, sbp = sbp})
end

local function same(want, got)
    want, got = want:to_global{sbp = "B"}:to_local(), got:to_global{sbp = "B"}:to_local()
    assert.is_true(want:eq(got):all():item())
end

-- f of tensors in this SBP with `wait` called between its ops.
local function run(f, sbp, wait) return f(make(1, sbp), make(2, sbp), wait) end

local chains = {
    elementwise = function(x, y, wait)
        local z = x * y
        wait()
        z = z:tanh() + x
        wait()
        return z * 2 - y
    end,
    dropout = function(x, y, wait)
        flow.manual_seed(7)
        local z = flow.dropout(x * 2, 0.3)
        wait()
        return z + flow.randn_like(y)
    end,
    cast = function(x, y, wait)
        local z = x:to("float64") * y:to("float64")
        wait()
        return z:to("bfloat16"):to("float32")
    end,
    boxed = function(x, y, wait)
        local z = x * y
        wait()
        local moved = z:to_global{sbp = "S(1)"}
        wait()
        return moved + 1
    end,
    norm = function(x, _, wait)
        local centered = x - x:mean(-1, true)
        wait()
        return centered / ((centered * centered):mean(-1, true) + 1e-5):sqrt()
    end,
}

describe("deferred results of global tensors", function()
    for _, name in ipairs {"elementwise", "dropout", "cast", "boxed", "norm"} do
        local f = chains[name]
        for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
            it(("have the bits of those that are computed at once: %s, %s"):format(name, sbp), function()
                same(run(f, sbp, flow.sync), run(f, sbp, function() end))
            end)
        end
    end

    it("draw the numbers of one rank in any SBP", function()
        local function draw(sbp)
            flow.manual_seed(3)
            local x = flow.rand({ROWS, COLUMNS}, {placement = everywhere, sbp = sbp})
            return flow.dropout(x + 1, 0.5)
        end
        for _, sbp in ipairs {"S(0)", "S(1)"} do same(draw("B"), draw(sbp)) end
    end)

    it("reach the gradients of parameters", function()
        local function gradient(wait)
            local w = make(4, "B"):requires_grad_()
            local x = make(5, "S(0)")
            local y = w * x
            wait()
            local loss = (y:tanh() * x):sum()
            loss:backward()
            return w.grad
        end
        same(gradient(flow.sync), gradient(function() end))
    end)

    it("are computed before a collective of another tensor is awaited in vain", function()
        local kept
        if flow.rank() == 0 then kept = flow.randn(40000) * 2 + 1 end -- this rank alone
        local total = (make(1, "S(0)") * 2):sum():to_global{sbp = "B"}
        assert.is_true(total:to_local():item() == total:to_local():item())
        if kept then assert.is_true(kept:isfinite():all():item()) end
    end)
end)
