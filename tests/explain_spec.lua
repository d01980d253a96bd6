-- flow.explain: the real dispatch, in a dry world of two ranks.
local flow = require "flow"

describe("explain", function()
    local function in_world(size, rank, f)
        flow._testing.set_world(size, rank)
        local ok, message = pcall(f)
        flow._testing.set_world(1, 0)
        assert(ok, message)
    end

    it("lists ops, what they take and give, and the script's line", function()
        local list = flow.explain(function(n) return flow.ones(3):add_(n) end, 1)
        assert.are.equal(2, #list)
        assert.are.equal("ones", list[1].op)
        assert.are.equal("add_", list[2].op)
        assert.truthy(list[2].line:find("explain_spec.lua:%d+$"))
        assert.are.same({{text = "float32[3]", bytes = 0}, {text = "1", bytes = 0}}, list[2].inputs)
        assert.are.same({"float32[3]"}, list[2].outputs)
        assert.truthy(tostring(list):find("\n2 ops, 0 bytes moved$"))
    end)

    it("shows the choice, its cost and the alternatives", function()
        in_world(2, 0, function()
            local p = flow.placement("cpu", {0, 1})
            local x = flow.zeros({8, 6}, {placement = p, sbp = "S(0)"})
            local b = flow.zeros({6}, {placement = p, sbp = "B"})
            local list = flow.explain(function() return x + b end)
            assert.are.equal(0, list[1].bytes)
            local chosen
            for _, way in ipairs(list[1].ways) do
                if way.chosen then chosen = way end
            end
            assert.are.same({chosen = true, bytes = 0, inputs = "S(0) x B", outputs = "S(0)"}, chosen)
            assert.is_true(#list[1].ways >= 3)
        end)
    end)

    it("names the boxing, and the error that stopped it", function()
        in_world(2, 0, function()
            local p = flow.placement("cpu", {0, 1})
            local x = flow.zeros({8, 6}, {placement = p, sbp = "S(0)"})
            local b = flow.zeros({6}, {placement = p, sbp = "S(0)"})
            local list = flow.explain(function() return x + b end)
            assert.are.equal("B", list[1].inputs[2].boxed_to)
            assert.are.equal("all-gather", list[1].inputs[2].steps)
            assert.are.equal(12, list[1].inputs[2].bytes)
            assert.truthy(list.error:find("needs an all-gather", 1, true))
            assert.truthy(tostring(list):find("input 2 boxed to B: all-gather, 12 bytes", 1, true))
        end)
    end)

    it("takes a function, one at a time", function()
        assert.has_error(function() flow.explain(3) end)
        local list = flow.explain(function() flow.explain(function() end) end)
        assert.truthy(list.error:find("explain: is running already", 1, true))
        assert.are.equal(1, #flow.explain(function() return flow.ones(1) end))
    end)
end)
