-- Read by run_ranks_spec.lua: specs that fail, as they fail in life.
local flow = require "flow"
local me, last = flow.rank(), flow.world_size() - 1
local all = flow.placement.all "cpu"

describe("a rank", function()
    it("passes", function() assert.are.equal(flow.world_size(), flow.ones(1):to_global {placement = all, sbp = "P"}:item()) end)
    it("fails alone after the collectives", function() assert.are.equal(0, me == last and 1 or 0) end)
    it("leaves the others together", function() assert.are.equal(flow.world_size(), flow.ones(1):to_global {placement = all, sbp = "P"}:item()) end)
    it("errs before a collective of the others", function()
        if me == last then error "no tensor for you" end
        flow.barrier()
    end)
    it("can meet the others after that", function() flow.barrier() end)
    it("has nothing to do", function() pending "no GPU" end)
end)
