-- inference_spec.lua -- the SBP of results on real ranks, the collectives it costs, and that values and gradients are those
-- of one rank: first by name, then for every signature of every registered op.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local support = require "tests.support"
local testing = flow._testing

local world = ranks.world
local list = {}
for r = 0, world - 1 do list[r + 1] = r end
local p = flow.placement("cpu", list)

local function as(t, sbp) return t:to_global {placement = p, sbp = "B"}:to_global {sbp = sbp}:detach() end

local function whole_on(grid, t) return t:to_global {placement = grid, sbp = {"B", "B"}}:to_local() end

local function whole(t) return t.is_global and t:to_global {placement = p, sbp = "B"}:to_local() or t end

describe("the SBP of results", function()
    local x, y = flow.arange(144):to "float32":reshape(12, 12), flow.arange(144):to "float32":reshape(12, 12) * 2

    for _, case in ipairs {
        {"S(0)", "S(1)", "S(0)"}, {"S(0)", "B", "S(0)"}, {"B", "S(1)", "S(1)"}, {"P", "P", "P"}, {"B", "B", "B"},
    } do
        it(("%s + %s -> %s"):format(table.unpack(case)), function()
            local z = as(x, case[1]) + as(y, case[2])
            if world > 1 then assert.are.equal(case[3], tostring(z.sbp)) end
            support.same(x + y, whole(z), "values")
        end)
    end

    it("all of smallest values is not the smallest of all, nor any of largest values: -1 is true and 0 is not", function()
        local signed = flow.tensor({{-1, 0, 2, -3}, {0, -2, 1, -1}}):to "int32":rep(6, 1)
        for _, dtype in ipairs {"int32", "float32", "uint8", "bool"} do
            local values = dtype == "uint8" and signed:abs():to "uint8" or signed:to(dtype)
            local split = as(values, "S(0)")
            support.same(values:amin(0):all(), whole(split:amin(0):all()), "all of " .. dtype)
            support.same(values:amax(0):any(), whole(split:amax(0):any()), "any of " .. dtype)
            support.same(values:amax(0, true):any(0), whole(split:amax(0, true):any(0)), "any along an axis of " .. dtype)
        end
        local nan = as(flow.tensor {0 / 0, 1, 2, 3}, "S(0)")
        support.same(flow.tensor(0.0), whole(nan:amax():sign()), "the sign of NaN")
    end)

    it("nothing along a split axis is what it is on a local tensor", function()
        for _, case in ipairs {
            {"softmax", 1}, {"log_softmax", 1}, {"logsumexp", 1}, {"logsumexp", {0, 1}}, {"norm", math.huge, 1}, {"norm", 2, 1}, {"var", 1}, {"std", 1},
            {"mean", 1}, {"sum", 1}, {"prod", 1}, {"any", 1}, {"all", 1}, {"cumsum", 1},
        } do
            local empty = flow.zeros(3, 0)
            local method = empty[case[1]]
            local want = method(empty, table.unpack(case, 2))
            support.same(want, whole(method(as(empty, "S(1)"), table.unpack(case, 2))), case[1])
        end
    end)

    if world == 2 then
        it("expand is a view of the part", function()
            local base = flow.arange(24):to "float32":reshape(4, 3, 1, 2)
            local z = as(base, "S(3)"):expand(2, 4, 3, 4, 2)
            assert.are.equal("S(4)", tostring(z.sbp))
            assert.are.same({2, 4, 3, 4, 1}, z:to_local().shape)
            assert.are.same({0, 3, 1, 0, 1}, z:to_local():stride())
            support.same(base:expand(2, 4, 3, 4, 2), whole(z), "values")
        end)
    end

    if world == 4 then
        it("a hierarchy is asked axis by axis", function()
            local grid = flow.placement("cpu", {{0, 1}, {2, 3}})
            assert.are.same({2, 2}, grid.hierarchy)
            local a = x:to_global {placement = grid, sbp = {"B", "B"}}:to_global {sbp = {"S(0)", "B"}}
            local b = flow.arange(48):to "float32":reshape(12, 4)
            local w = b:to_global {placement = grid, sbp = {"B", "B"}}:to_global {sbp = {"B", "S(1)"}}
            local z = a:matmul(w)
            assert.are.equal("(S(0), S(1))", tostring(z.sbp))
            support.same(x:matmul(b), z:to_global {sbp = {"B", "B"}}:to_local(), "values")
        end)

        it("an index that is split where x is whole is not taken for one that is split alike", function()
            local grid = flow.placement("cpu", {{0, 1}, {2, 3}})
            local function on_grid(t, sbp) return t:to_global {placement = grid, sbp = {"B", "B"}}:to_global {sbp = sbp} end
            local values, index = flow.tensor {{1.0, 2.0}}, flow.tensor({{0, 0}}, {dtype = "int64"})
            local got = on_grid(values, {"B", "S(1)"}):gather(0, on_grid(index, {"S(1)", "B"}))
            support.same(values, whole_on(grid, got), "gather")
            local leaf = on_grid(values, {"B", "S(1)"}):detach():requires_grad_()
            leaf:gather(0, on_grid(index, {"S(1)", "B"})):square():sum():backward()
            support.same(values * 2, whole_on(grid, leaf.grad), "gradient")
        end)

        it("a partial input is added up once for an op that is written in others", function()
            local grid = flow.placement("cpu", {{0, 1}, {2, 3}})
            local function on_grid(t, sbp) return t:to_global {placement = grid, sbp = {"B", "B"}}:to_global {sbp = sbp} end
            local logits, target = flow.randn(8, 4), flow.randint(0, 4, {8})
            local partial, labels = on_grid(logits, {"S(0)", "P"}), on_grid(target, {"S(0)", "B"})
            local got
            local report = flow.explain(function() got = flow.cross_entropy(partial, labels) end)
            local scatters = 0
            for _, step in ipairs(report.collectives) do
                if step.kind == "reduce-scatter" then scatters = scatters + 1 end
            end
            assert.are.equal(1, scatters, tostring(report))
            support.close(flow.cross_entropy(logits, target), got:to_global {sbp = {"B", "B"}}:to_local(), 1e-6, "loss")
            local leaf, shared = logits:clone():requires_grad_(), partial:detach():requires_grad_()
            flow.cross_entropy(leaf, target):backward()
            flow.cross_entropy(shared, labels):backward()
            support.close(leaf.grad, shared.grad:to_global {sbp = {"B", "B"}}:to_local(), 1e-6, "gradient")
        end)
    end
end)

describe("without gathering:", function()
    local rows, classes = 6, 1000
    flow.manual_seed(5)
    local logits = flow.randn(rows, classes) * 3
    local target = flow.randint(0, classes, {rows})
    local weight = flow.randn(classes, 4)
    local ids = flow.randint(0, classes, {5, 3})

    -- The bytes moved: "all-reduce 24, all-to-all 48", and the sum.
    local function moved(report)
        local texts, bytes, gathers = {}, 0, 0
        for i, step in ipairs(report.collectives) do
            texts[i] = ("%s of %s by %s, %d bytes"):format(step.kind, step.tensor, step.op, step.bytes)
            bytes = bytes + step.bytes
            if step.kind == "all-gather" then gathers = gathers + 1 end
        end
        return table.concat(texts, "\n"), bytes, gathers
    end

    local function check_moved(report, most_bytes, what)
        assert.is_nil(report.error, report.error)
        local text, bytes, gathers = moved(report)
        assert.is_true(bytes <= most_bytes and gathers == 0, ("%s moves %d bytes:\n%s"):format(what, bytes, text))
    end

    -- f on local tensors and on global ones: values, gradients, and how many bytes a rank moves in each direction.
    local function compare(f, inputs, most_bytes, most_backward)
        local function forward(tensors)
            local leaves = {}
            for _, t in ipairs(tensors) do
                if t.dtype == "float32" then leaves[#leaves + 1] = t:requires_grad_() end
            end
            return f(table.unpack(tensors)), leaves
        end
        local function backward(value)
            local options = value.is_global and {dtype = "float32", placement = p, sbp = "B"} or {dtype = "float32"}
            value:backward(flow.arange(value:numel(), options):reshape(value.shape):cos())
        end
        local locals, globals = {}, {}
        for i, input in ipairs(inputs) do
            locals[i], globals[i] = input[1]:clone():detach(), as(input[1], input[2])
        end
        local want, want_leaves = forward(locals)
        backward(want)
        local got, leaves
        check_moved(flow.explain(function() got, leaves = forward(globals) end), most_bytes, "forward")
        local report = flow.explain(function() backward(got) end)
        if most_backward then check_moved(report, most_backward, "backward") end
        assert.is_nil(report.error, report.error)
        support.close(want, whole(got), 1e-5, "values")
        for i, leaf in ipairs(leaves) do
            assert.are.equal(tostring(leaf.sbp), tostring(leaf.grad.sbp), "SBP of gradient " .. i)
            support.close(want_leaves[i].grad, whole(leaf.grad), 1e-5, "gradient " .. i)
        end
    end

    -- a row of statistics per collective, 4 bytes each, in an all-reduce; few of them
    local statistics = 8 * rows * 4

    it("softmax over a split class axis", function()
        compare(function(x) return x:softmax(1) end, {{logits, "S(1)"}}, statistics, statistics)
    end)
    it("log_softmax over a split class axis", function()
        compare(function(x) return x:log_softmax(1) end, {{logits, "S(1)"}}, statistics, statistics)
    end)
    it("logsumexp over a split class axis", function()
        compare(function(x) return x:logsumexp(1) end, {{logits, "S(1)"}}, statistics, statistics)
    end)
    it("cross_entropy over a split class axis", function()
        for _, options in ipairs {{}, {reduction = "none"}, {reduction = "sum", label_smoothing = 0.1}} do
            compare(function(x, t) return flow.cross_entropy(x, t, options) end, {{logits, "S(1)"}, {target, "B"}}, statistics, statistics)
        end
    end)
    it("embedding over a split vocabulary", function()
        compare(function(w, i) return flow.embedding(i, w) end, {{weight, "S(0)"}, {ids, "B"}}, 0, 0)
    end)
    it("sums, means, maxima and minima over a split axis", function()
        for _, name in ipairs {"sum", "mean", "amax", "amin"} do
            compare(function(x) return x[name](x, 1) end, {{logits, "S(1)"}}, 0, name:find "^a" and statistics or 0)
        end
        compare(function(x) return x:max() end, {{logits, "S(1)"}}, 0, statistics)
        compare(function(x) return x:var(1) end, {{logits, "S(1)"}}, statistics)
    end)
    it("max and min with positions over a split axis, ties to the lowest", function()
        local ties = logits:floor()
        for _, name in ipairs {"max", "min"} do
            compare(function(x) return (x[name](x, 1)) end, {{logits, "S(1)"}}, statistics)
            for _, t in ipairs {logits, ties} do
                local _, want = t[name](t, 1)
                local x, got = as(t, "S(1)"), nil
                check_moved(flow.explain(function() _, got = x[name](x, 1) end), statistics, name)
                support.same(want, whole(got), name .. ": positions")
                want = t["arg" .. name](t, 1)
                check_moved(flow.explain(function() got = x["arg" .. name](x, 1) end), statistics, "arg" .. name)
                support.same(want, whole(got), "arg" .. name)
            end
        end
    end)
    it("positions of NaN, of integers, over all axes and over fewer elements than ranks", function()
        local nan = logits:clone()
        nan["2, 700"], nan["2, 650"], nan["4, 1"] = 0 / 0, 0 / 0, 0 / 0
        local integers = flow.randint(-3, 4, {rows, classes})
        local few = flow.tensor({{2.0, 2.0}, {-1.0, -0.0}, {-0.0, 0.0}})
        for _, t in ipairs {nan, integers, few, flow.full({2, 5}, math.mininteger)} do
            for _, name in ipairs {"argmax", "argmin"} do
                for _, sbp in ipairs {"S(0)", "S(1)"} do
                    local x = as(t, sbp)
                    for axis = 0, 1 do support.same(t[name](t, axis), whole(x[name](x, axis)), name) end
                    support.same(t[name](t), whole(x[name](x)), name .. " of all")
                    support.same(t[name](t, 1, true), whole(x[name](x, 1, true)), name .. ", keepdim")
                end
            end
        end
    end)
    it("matmul over a split inner axis", function()
        local a, b = flow.randn(6, 32), flow.randn(32, 5)
        compare(function(x, y) return x:matmul(y) end, {{a, "S(1)"}, {b, "S(0)"}}, 0, 0)
    end)
end)

---- every registered op ----

local ops = support.ops()

local function arguments(op, sample)
    flow.manual_seed(support.seed(op.name .. sample))
    local args = table.pack(assert(load("local flow = ... return " .. sample, "=sample of " .. op.name))(flow))
    return args
end

-- A deep copy of an argument list with f applied to every tensor.
local function map_tensors(value, f)
    if flow.is_tensor(value) then return f(value) end
    if type(value) ~= "table" then return value end
    local copy = {n = value.n}
    for i = 1, value.n or #value do copy[i] = map_tensors(value[i], f) end
    for k, v in pairs(value) do
        -- tensors under names would have no order that all ranks agree on
        if type(k) ~= "number" and k ~= "n" then copy[k] = flow.is_tensor(v) and f(v) or v end
    end
    return copy
end

-- Calls op with every operand as `sbps` gives it on a placement, and compares with the call on whole tensors. body: the op
-- must run written in other ops.
local function check_case(op, args, want, placement, sbps, label, body)
    local at = 0
    local mine = map_tensors(args, function(t)
        at = at + 1
        return sbps(t, at)
    end)
    flow.manual_seed(7)
    local got
    local report = flow.explain(function() got = table.pack(op.call(table.unpack(mine, 1, args.n))) end)
    if report.error then error(label .. ": " .. report.error, 0) end
    if body and #report == 1 then error(label .. " did not run its body", 0) end
    local everywhere = {}
    for k = 1, #placement.hierarchy do everywhere[k] = "B" end
    for j = 1, want.n do
        local result = got[j]
        local what = ("%s -> %s: result %d"):format(label, tostring(result.sbp), j)
        support.close(want[j], result:to_global {sbp = everywhere}:to_local(), 1e-9, what)
    end
end

describe("every signature on real ranks:", function()
    if world == 1 then return end
    local grid = world == 4 and flow.placement("cpu", {{2, 0}, {1, 3}})

    for _, op in ipairs(ops) do
        for i, sample in ipairs(op.samples) do
            if not op.source then
                it(op.name .. " sample " .. i, function()
                    if support.has_no_kernel(op, sample) then return pending "no kernel on this device" end
                    if support.on_gpu and (op.name:find "svd$" or op.name:find "eigh$") then return pending "cuSOLVER's routines differ in the vectors' signs" end
                    local args = arguments(op, sample)
                    local n = args.n
                    args = map_tensors(args, function(t) return t.dtype == "float32" and t:to "float64" or t end)
                    args.n = n
                    local function fresh(t) return t:clone():detach() end
                    local reference = map_tensors(args, fresh)
                    flow.manual_seed(7)
                    local want = table.pack(op.call(table.unpack(reference, 1, n)))
                    for _, case in ipairs(support.signatures(op, {world}, args)) do
                        local label = ("%s (%s) over %d ranks"):format(op.name, table.concat(case.inputs, ", "), world)
                        check_case(op, args, want, p, function(t, at)
                            flow.manual_seed(11 + at)
                            return testing.from_part(support.cut(t, case.inputs[at], world)[ranks.rank + 1], t.shape, p, case.inputs[at])
                        end, label, case.body)
                    end
                    if not grid then return end
                    local cases = support.signatures(op, {2, 2}, args)
                    for _, case in ipairs(support.some(cases, ranks.all and #cases or 12, op.name .. sample)) do
                        local label = ("%s (%s) on 2 x 2 ranks"):format(op.name, table.concat(case.inputs, "; "))
                        check_case(op, args, want, grid, function(t, at)
                            flow.manual_seed(11 + at)
                            local position = ({[2] = 0, [0] = 1, [1] = 2, [3] = 3})[ranks.rank]
                            return testing.from_part(support.cut_over(t, case.inputs[at], {2, 2})[position + 1], t.shape, grid, support.sbp_list(case.inputs[at]))
                        end, label)
                    end
                end)
            end
        end
    end
end)
