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
        assert.truthy(tostring(list):find("\n2 ops, no communication$"))
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

    it("names the boxing, and goes on in a dry world, where values are zeros and cannot be read", function()
        in_world(2, 0, function()
            local p = flow.placement("cpu", {0, 1})
            local x = flow.ones({8, 6}, {placement = p, sbp = "S(0)"})
            local b = flow.ones({6}, {placement = p, sbp = "S(0)"})
            local part
            local list = flow.explain(function()
                part = b:to_global{sbp = "B"}:to_local()
                return x + b
            end)
            assert.is_nil(list.error)
            assert.are.same({0, 0, 0, 0, 0, 0}, part:totable())
            assert.are.equal("B", list[2].inputs[2].boxed_to)
            assert.are.equal("all-gather", list[2].inputs[2].steps)
            assert.are.equal(12, list[2].inputs[2].bytes)
            assert.truthy(tostring(list):find("input 2 boxed to B: all-gather S(0) -> B over ranks 0 1, 12 bytes", 1, true))
            list = flow.explain(function() return x:sum():item() end)
            assert.truthy(list.error:find("item: the values of a global tensor are unknown inside flow.explain in a dry world, where ranks do not communicate", 1, true))
            assert.truthy(tostring(list):find("\nstopped by an error: .+$"))
            assert.has_error(function() return x + b end)
        end)
    end)

    it("prints as a report", function()
        in_world(4, 0, function()
            local p = flow.placement("cpu", {{0, 1}, {2, 3}})
            local x = flow.ones({8, 4}, {placement = p, sbp = {"S(0)", "S(1)"}})
            local w = flow.ones({4, 6}, {placement = p, sbp = {"B", "S(0)"}, requires_grad = true})
            local text = tostring(flow.explain(function()
                local y = x:matmul(w):to_global{sbp = {"S(0)", "B"}}
                y:backward(flow.ones_like(y))
                return y:to_global{placement = flow.placement("cpu", {1, 2}), sbp = "B"}
            end)):gsub("[^\n]*explain_spec.lua:%d+  ", "")
            local lines = {}
            for line in text:gmatch("[^\n]+") do
                if not line:find("^     ") then lines[#lines + 1] = line end
            end
            assert.are.same({
                'on placement("cpu", {{0, 1}, {2, 3}})',
                "matmul(float32[8, 4] (S(0), S(1)), float32[4, 6] (B, S(0))) -> float32[8, 6] (S(0), P)",
                "    * (S(0), S(1)) x (B, S(0)) -> (S(0), P)  0 bytes",
                "to_global(float32[8, 6] (S(0), P)) -> float32[8, 6] (S(0), B)",
                "    all-reduce along axis 1 P -> B over ranks 0 1 | 2 3, 96 bytes",
                "ones_like(float32[8, 6] (S(0), B)) -> float32[8, 6] (S(0), B)",
                "    * (S(0), B) -> (S(0), B)  0 bytes",
                "gemm(float32[8, 4] (S(0), S(1)), float32[8, 6] (S(0), B)) -> float32[4, 6] (P, S(0))",
                "    * (S(0), S(1)) x (S(0), B) -> (P, S(0))  0 bytes",
                "to_global(float32[4, 6] (P, S(0))) -> float32[4, 6] (B, S(0)), by backward",
                "    all-reduce along axis 0 P -> B over ranks 0 2 | 1 3, 48 bytes",
                'to_global(float32[8, 6] on placement("cpu", {{0, 1}, {2, 3}}) as (S(0), B)) -> ' ..
                    'float32[8, 6] on placement("cpu", {1, 2}) as B',
                "    exchange (S(0), B) -> B over ranks 0 1 2 3, 96 bytes",
                "3 ops, 3 collectives (2 all-reduce, 1 exchange), 240 bytes moved",
            }, lines)
        end)
    end)

    it("lists the collectives as data", function()
        in_world(4, 3, function()
            local p = flow.placement("cpu", {{3, 1}, {2, 0}})
            local x = flow.ones({4, 6}, {placement = p, sbp = {"S(0)", "S(1)"}})
            local report = flow.explain(function() return x:to_global{sbp = {"B", "S(0)"}} end)
            local line = report[1].line
            local gather = {kind = "all-gather", text = "all-gather along axis 0", communicates = true, axis = 0, from = "S(0)", to = "B",
                bytes = 24, tensor = "float32[4, 6]", groups = {{3, 2}, {1, 0}}, op = "to_global", by = "to_global", line = line}
            local swap = {kind = "all-to-all", text = "all-to-all along axis 1", communicates = true, axis = 1, from = "S(1)", to = "S(0)",
                bytes = 24, tensor = "float32[4, 6]", groups = {{3, 1}, {2, 0}}, op = "to_global", by = "to_global", line = line}
            assert.are.same({gather, swap}, report.collectives)
            assert.are.same(report.collectives, report[1].collectives)
            assert.are.same({{from = "(S(0), S(1))", to = "(B, S(0))", bytes = 48, steps = {gather, swap}}}, report[1].boxing)
            assert.are.equal(48, report.bytes)
            report = flow.explain(function() return x:to_global{sbp = {"P", "S(1)"}}, x + 1 end)
            assert.are.same({}, report.collectives)
            assert.are.equal("zero fill", report[1].boxing[1].steps[1].kind)
            assert.is_false(report[1].boxing[1].steps[1].communicates)
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

    it("gives a boxing once, under the op that needed it", function()
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
