-- dlpack_spec.lua -- memory shared by DLPack, from Lua: both ways within this program, and what is refused.
local flow = require "flow"
local support = require "tests.support"

describe("DLPack", function()
    it("shares memory both ways", function()
        local x = flow.arange(6, {dtype = "float32"}):view(2, 3)
        local y = flow.from_dlpack(x)
        y:mul_(2)
        assert.are.same({{0, 2, 4}, {6, 8, 10}}, x:totable())
        x[{0, 1}] = 7
        assert.are.equal(7, y[{0, 1}]:item())
    end)

    for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
        it("keeps " .. dtype, function()
            local x = flow.tensor({1, 0, 1}, {dtype = dtype})
            local y = flow.from_dlpack(x:__dlpack())
            assert.are.equal(dtype, y.dtype)
            assert.are.same(x:totable(), y:totable())
        end)
    end

    it("writes nothing in place where positions share elements", function()
        local y = flow.from_dlpack(flow.zeros(2, 1):expand(2, 3))
        support.fails("add_: this tensor is expanded (several positions share one element), so it cannot be written in " ..
            "place; use clone() first", function() y:add_(1) end)
    end)

    it("keeps strides, sizes of 0 and 1, and no axes", function()
        local x = flow.arange(24):view(2, 3, 4):permute({2, 0, 1})
        assert.are.same(x:totable(), flow.from_dlpack(x):totable())
        assert.are.same({0, 3}, {table.unpack(flow.from_dlpack(flow.zeros(0, 3)).shape)})
        assert.are.equal(5, flow.from_dlpack(flow.tensor(5)):item())
    end)

    it("waits for the value, also of one that is computed later", function()
        local x = flow.ones(100000) + 1
        assert.are.equal(200000, flow.from_dlpack(x):sum():item())
    end)

    it("gives a part of a global tensor", function()
        local x = flow.ones({2, 2}, {placement = flow.placement.all("cpu"), sbp = "S(0)"})
        assert.is_false(flow.from_dlpack(x).is_global)
    end)

    it("lets memory go when nobody uses it any more", function()
        collectgarbage()
        local before = flow.memory().live_bytes
        local x = flow.zeros(1 << 16)
        local y = flow.from_dlpack(x)
        x = nil -- luacheck: ignore
        collectgarbage()
        assert.are.equal(0, y:sum():item())
        y = nil -- luacheck: ignore
        local dropped = flow.ones(1 << 16):__dlpack() -- luacheck: ignore
        dropped = nil -- luacheck: ignore
        collectgarbage()
        collectgarbage()
        assert.is_true(flow.memory().live_bytes <= before)
    end)

    it("takes pointers, and objects with the method", function()
        assert.are.equal(3, flow.from_dlpack(flow.ones(3):__dlpack():take()):sum():item())
        local array = {__dlpack = function() return flow.ones(4):__dlpack() end}
        assert.are.equal(4, flow.from_dlpack(array):sum():item())
    end)

    local capsule = flow.ones(2):__dlpack()
    flow.from_dlpack(capsule:take())
    for _, case in ipairs {
        {"from_dlpack: the capsule was taken already", flow.from_dlpack, capsule},
        {"take: the capsule was taken already", capsule.take, capsule},
        {"take: a method is called with a colon, capsule:take(); got nothing as the capsule", function() capsule.take() end},
        {"take: a method is called with a colon, capsule:take(); got tensor as the capsule", capsule.take, flow.ones(2)},
        {"take: too many arguments", function() flow.ones(2):__dlpack():take(1) end},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got number", flow.from_dlpack, 3},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got nil", flow.from_dlpack, nil},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got table", flow.from_dlpack, {}},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got ReLU", flow.from_dlpack, flow.nn.ReLU()},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got table", flow.from_dlpack, {__dlpack = 3}},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got userdata", flow.from_dlpack, flow.sbp.broadcast},
        {"from_dlpack: takes what x:__dlpack() gives, or a pointer, got userdata", flow.from_dlpack, flow.generator(1)},
        {"__dlpack: float32[2] on meta has no values to read", flow.zeros(2).__dlpack,
            flow.zeros(2, {device = "meta"})},
    } do
        it("refuses: " .. case[1], function()
            local ok, message = pcall(case[2], case[3])
            assert.is_false(ok)
            assert.is_truthy(tostring(message):find(case[1], 1, true), message)
        end)
    end
end)
