-- dlpack_spec.lua -- memory of a GPU shared by DLPack, within this program.
local flow = require "flow"
local it = require "tests.cuda.support".it

describe("DLPack on a GPU", function()
    it("shares memory both ways, with the device of this rank", function()
        local x = flow.arange(6, {dtype = "float32", device = "cuda"}):view(2, 3)
        local y = flow.from_dlpack(x)
        y:mul_(2)
        assert.are.equal("cuda", y.device)
        assert.are.same({{0, 2, 4}, {6, 8, 10}}, x:totable())
        assert.are.equal(60, (x + y):sum():item())
    end)

    it("keeps the memory until both are gone, also while ops still run", function()
        flow.sync()
        collectgarbage()
        local before = flow.memory({device = "cuda"}).live_bytes
        local x = flow.ones({1 << 16}, {device = "cuda"})
        local y = flow.from_dlpack(x)
        local z = y * 2
        x, y = nil, nil -- luacheck: ignore
        collectgarbage()
        assert.are.equal(2 << 16, z:sum():item())
        z = nil -- luacheck: ignore
        collectgarbage()
        collectgarbage()
        flow.sync()
        local _ = flow.zeros(1) -- memory that waited for the ops is freed at the next allocation
        assert.is_true(flow.memory({device = "cuda"}).live_bytes <= before)
    end)
end)
