-- meta_spec.lua -- global tensors on the device "meta" among several ranks: nothing is communicated, so a rank may use them
-- alone, and every rank infers what the same program has on the CPUs.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn, optim = flow.nn, flow.optim

local function meta() return flow.placement.all "meta" end

describe("tensors on meta", function()
    it("are used by one rank alone", function()
        if flow.rank() == 0 then
            local x = flow.randn(8, 4, {placement = meta(), sbp = "S(0)"})
            local y = x:matmul(flow.ones(4, 4, {placement = meta(), sbp = "B", requires_grad = true}))
            y:to_global({sbp = "B"}):sum():backward()
            assert.are.equal("P", tostring(x:sum().sbp))
            assert.are.equal(2 * flow.world_size(), flow.ones(2, {device = "meta"}):to_global({placement = meta(), sbp = "S(0)"}):size(0))
        end
        -- the ranks have drawn the same numbers and agree on what they ran
        local z = flow.rand(8, {placement = flow.placement.all "cpu", sbp = "S(0)"})
        local want = flow.rand(8, {placement = flow.placement.all "cpu", sbp = "B"}):sum():item()
        assert.is_true(z:sum():item() > 0 and want > 0)
    end)

    it("take global tensors of the CPUs without a collective", function()
        local x = flow.rand(8, 2, {placement = flow.placement.all "cpu", sbp = "S(0)"}):sum(0)
        if flow.rank() == 0 then assert.are.equal("B", tostring(x:to_global({placement = meta(), sbp = "B"}).sbp)) end
        assert.are.equal(flow.world_size(), #x.placement.ranks)
    end)

    it("infer the SBPs and parts that the CPUs have", function()
        local function facts(type)
            local p = flow.placement.all(type)
            flow.manual_seed(3)
            local net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5))
            net:to_global {placement = p, sbp = "B", rules = {{"1", "S(0)"}, {"3.weight", "S(1)"}}}
            local opt = optim.AdamW(net:parameters(), {lr = 1e-2})
            local x = flow.ones(7, 6, {placement = p, sbp = "B"})
            local y = net(x)
            local loss = (y * y):mean()
            loss:backward()
            optim.clip_grad_norm(net:parameters(), 1)
            opt:step()
            local list = {tostring(y.sbp), tostring(loss.sbp), ranks.shape_text(y:to_local().shape)}
            for name, param in net:named_parameters() do
                list[#list + 1] = ("%s %s %s %s"):format(name, tostring(param.sbp), tostring(param.grad.sbp),
                    ranks.shape_text(param.grad:to_local().shape))
            end
            return list
        end
        assert.are.same(facts "cpu", facts "meta")
    end)

    it("refuse on every rank to be read or saved, if on one rank they are", function()
        local y = flow.ones(4, {placement = meta(), sbp = "S(0)"})
        local ok, message = pcall(function() return y:sum():item() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("item: float32[] on placement(\"meta\"", 1, true), message)
        local last = flow.world_size() - 1
        ok, message = pcall(flow.save, os.tmpname(), {x = flow.rank() == last and flow.spec {3} or flow.ones(3)})
        assert.is_false(ok)
        local place = last > 0 and ("rank %d: "):format(last) or ""
        assert.is_truthy(message:find(place .. "save: 'x': float32[3] on meta has no values to read", 1, true), message)
    end)
end)
