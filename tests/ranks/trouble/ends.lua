-- Read by run_ranks_spec.lua: ends the last rank in the way that TROUBLE names.
local flow = require "flow"
local last = flow.rank() == flow.world_size() - 1
local all = flow.placement.all "cpu"

describe("a rank", function()
    it("passes", function() flow.barrier() end)
    it("is in trouble", function()
        if os.getenv "TROUBLE" == "all hang" then while true do end end -- luacheck: ignore
        if last then
            local way = os.getenv "TROUBLE"
            if way == "exit" then os.exit(3) end
            if way == "hang" then while true do end end -- luacheck: ignore
            if way == "kill" then os.execute "kill -9 $PPID" end
            if way == "sleep" then os.execute "sleep 60" end
            if way == "error" then error "only here" end
        end
        -- the others wait for a rank that does not come
        if flow.world_size() > 2 and not last then
            local pair = flow.placement("cpu", {0, flow.world_size() - 1})
            flow.ones(1):to_global {placement = all, sbp = "P"}:to_global {placement = pair, sbp = "B"}:to_local()
        end
        flow.barrier()
    end)
    it("comes after that", function() flow.barrier() end)
end)
