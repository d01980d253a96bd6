-- bytes_spec.lua -- global tensors as strings of bytes and back: the whole tensor, equal on all ranks.
local flow = require "flow"

local everywhere = flow.placement.all "cpu"
local bytes = string.pack("<i4i4i4i4i4i4", 0, 1, 2, 3, 4, 5)

describe("bytes of a global tensor", function()
    for _, sbp in ipairs {"S(0)", "S(1)", "B", "P"} do
        it("are all of its elements, of " .. sbp, function()
            local x = flow.frombytes(bytes, "int32", {2, 3}, {placement = everywhere, sbp = "B"})
            x = x:to_global{sbp = sbp}
            assert.are.equal(bytes, x:tobytes())
            assert.are.equal(string.pack("<i4i4i4i4i4i4", 0, 3, 1, 4, 2, 5), x:t():tobytes())
        end)
    end

    it("make one in any sbp", function()
        local x = flow.frombytes(bytes, "int32", {3, 2}, {placement = everywhere, sbp = "S(0)"})
        assert.are.same({{0, 1}, {2, 3}, {4, 5}}, x:totable())
        assert.are.equal("S(0)", tostring(x.sbp))
    end)
end)
