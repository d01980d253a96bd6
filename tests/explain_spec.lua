-- flow.explain: the real dispatch, in a dry world of two ranks.
local flow = require "flow"

describe("explain", function()
    local function in_world(size, rank, f, pretend)
        flow._testing.set_world(size, rank, pretend)
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

    it("names the hierarchy axis of a step where there are several", function()
        in_world(4, 0, function()
            local p = flow.placement("cpu", {{0, 1}, {2, 3}})
            local x = flow.zeros({8, 6}, {placement = p, sbp = {"S(0)", "S(1)"}})
            local list = flow.explain(function() return x:to_global {sbp = {"B", "S(1)"}}:to_global {sbp = {"B", "B"}} end)
            assert.are.equal("all-gather along axis 0", list[1].inputs[1].steps)
            assert.are.equal("all-gather along axis 1", list[2].inputs[1].steps)
        end, true)
    end)

    it("shows what the script itself boxes, and the gradients of leaves", function()
        in_world(2, 0, function()
            local p = flow.placement("cpu", {0, 1})
            local x = flow.ones({4, 3}, {placement = p, sbp = "S(0)"})
            local w = flow.ones({3}, {placement = p, sbp = "B", requires_grad = true})
            local list = flow.explain(function() (x * w):to_global {sbp = "B"}:sum():backward() end)
            local boxed = {}
            for _, entry in ipairs(list) do
                for _, input in ipairs(entry.inputs) do
                    if input.boxed_to then boxed[#boxed + 1] = ("%s %s: %s"):format(entry.op, input.boxed_to, input.steps) end
                end
            end
            assert.are.same({"to_global B: all-gather", "to_global S(0): slice", "to_global B: all-reduce"}, boxed)
            assert.are.same({"float32[3] on placement(\"cpu\", {0, 1}) as P"}, {list[#list].inputs[1].text})
            assert.truthy(list[#list].line:find("explain_spec.lua:%d+$"))
            assert.are.same({}, list[#list].ways)
        end, true)
    end)

    it("tells a boxing once, by the op that asked for it", function()
        in_world(2, 0, function()
            local p = flow.placement("cpu", {0, 1})
            local x = flow.zeros({4, 4}, {placement = p, sbp = "S(0)"})
            local list = flow.explain(function() return x:sum():exp(), x:sum():exp() end)
            local names, moves = {}, 0
            for i, entry in ipairs(list) do
                names[i] = entry.op
                if entry.bytes > 0 then moves = moves + 1 end
            end
            assert.are.same({"sum", "exp", "sum", "exp"}, names)
            assert.are.equal(2, moves)
        end, true)
    end)

    it("takes a function, one at a time", function()
        assert.has_error(function() flow.explain(3) end)
        local list = flow.explain(function() flow.explain(function() end) end)
        assert.truthy(list.error:find("explain: is running already", 1, true))
        assert.are.equal(1, #flow.explain(function() return flow.ones(1) end))
    end)
end)
