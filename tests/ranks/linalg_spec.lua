-- linalg_spec.lua -- flow.linalg on several ranks: a split batch stays split, errors name the matrix of the whole batch.
local flow = require "flow"

local everywhere = flow.placement.all "cpu"
local linalg = flow.linalg

local function close(want, got)
    assert.is_true((want - got:to_global {sbp = "B"}:to_local()):abs():max():item() < 1e-9)
end

describe("linear algebra on several ranks", function()
    it("computes the parts of a split batch", function()
        flow.manual_seed(5)
        local a = flow.randn({5, 3, 3}, {dtype = "float64"}) + 3 * flow.eye(3, {dtype = "float64"})
        local b = flow.randn({5, 3, 2}, {dtype = "float64"})
        local whole = {placement = everywhere, sbp = "B"}
        local ga, gb = a:to_global(whole):to_global {sbp = "S(0)"}, b:to_global(whole):to_global {sbp = "S(0)"}
        for _, f in ipairs {linalg.det, linalg.inv, linalg.pinv, linalg.svdvals, linalg.matrix_exp} do
            local y = f(ga)
            assert.are.equal("S(0)", tostring(y.sbp))
            close(f(a), y)
        end
        close(linalg.solve(a, b), linalg.solve(ga, gb))
        local leaf, global = a:clone():requires_grad_(), ga:clone():requires_grad_()
        select(2, linalg.slogdet(leaf)):sum():backward()
        select(2, linalg.slogdet(global)):sum():backward()
        close(leaf.grad, global.grad)
        local m = a[0]
        local rows = m:to_global(whole):to_global {sbp = "S(0)"}
        assert.are.equal("P", tostring(rows:trace().sbp))
        assert.is_true(math.abs(m:trace():item() - rows:trace():item()) < 1e-9)
    end)
end)
