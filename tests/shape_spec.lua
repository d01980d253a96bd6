-- shape_spec.lua -- views, copies, joins, indexing and creation: values, messages, parts in the dry world.
local flow = require "flow"
local support = require "tests.support"
local testing = flow._testing

describe("x.shape", function()
    it("is a list for all that Lua does with lists", function()
        local shape = flow.ones(2, 3).shape
        assert.are.equal(2, #shape)
        assert.are.same({2, 3}, shape)
        assert.are.same(shape, {2, 3})
        assert.are.same({2, 3}, {table.unpack(shape)})
        local sizes = {}
        for i, size in ipairs(shape) do sizes[i] = size end
        assert.are.same({2, 3}, sizes)
        assert.is_nil(shape[3])
        assert.is_true(shape == flow.zeros(2, 3).shape)
        shape[1] = 7
        assert.are.equal("[7, 3]", tostring(shape))
        assert.are.equal(21, flow.zeros(shape):numel())
    end)

    for _, key in ipairs {0, -1} do
        it(("counts from 1: [%d] says so"):format(key), function()
            assert.are.equal("x.shape is a Lua list: x.shape[1] is the size of axis 0, or x:size(0); x:size(-1) is the size of the last axis",
                support.message_of(function() return flow.ones(2, 3).shape[key] end))
        end)
    end
end)

describe("x == y", function()
    local nan = 0 / 0
    local p = flow.placement.all("cpu")
    for _, case in ipairs {
        {"equal elements", flow.tensor({1, 2}), flow.tensor({1, 2}), true}, {"other elements", flow.tensor({1, 2}), flow.tensor({1, 3}), false},
        {"another dtype", flow.ones(2), flow.ones(2, {dtype = "float64"}), false}, {"another shape", flow.ones(2, 1), flow.ones(2), false},
        {"what would broadcast", flow.ones(1), flow.ones(2), false}, {"no elements", flow.ones(0, 3), flow.zeros(0, 3), true},
        {"nan", flow.tensor({nan}), flow.tensor({nan}), false}, {"views", flow.arange(6):view(2, 3):t(), flow.tensor({{0, 3}, {1, 4}, {2, 5}}), true},
        {"a global and a local tensor", flow.ones(2), flow.ones(2, {placement = p, sbp = "B"}), false},
        {"global tensors, whatever their SBP", flow.ones(2, {placement = p, sbp = "S(0)"}), flow.ones(2, {placement = p, sbp = "B"}), true},
        {"a number", flow.ones(1), 1, false}, {"a placement", flow.ones(1), p, false},
    } do
        it(("compares by value: %s"):format(case[1]), function()
            assert.are.equal(case[4], case[2] == case[3])
            assert.are.equal(case[4], case[3] == case[2])
            assert.are.equal(not case[4], case[2] ~= case[3])
        end)
    end

    it("serves assert.same, also deep in tables", function()
        assert.are.same(flow.ones(2), flow.ones(2))
        assert.are.same({a = {flow.ones(2), 3}}, {a = {flow.ones(2), 3}})
        assert.are_not.same({a = {flow.ones(2), 3}}, {a = {flow.zeros(2), 3}})
        local ok, message = pcall(assert.are.same, flow.ones(2), flow.zeros(2))
        assert.is_false(ok)
        local device = flow.ones(2).device
        assert.matches("[1.0, 1.0]  float32[2] on " .. device, tostring(message), 1, true)
        assert.matches("[0.0, 0.0]  float32[2] on " .. device, tostring(message), 1, true)
    end)

    it("is no op of the graph, and finds a gradient equal to itself", function()
        local x = flow.ones(2)
        x.requires_grad = true
        (x * 2):sum():backward()
        assert.is_true(x.grad == x.grad)
        assert.is_true(x * 1 == flow.ones(2))
        assert.is_false(rawequal(flow.ones(2), flow.ones(2)))
    end)
end)

local function show(value)
    if flow.is_tensor(value) then value = value:totable() end
    if type(value) ~= "table" then
        return math.type(value) == "float" and ("%.6g"):format(value) or tostring(value)
    end
    local list = {}
    for i = 1, #value do list[i] = show(value[i]) end
    return "{" .. table.concat(list, ",") .. "}"
end

local function cases(list)
    for _, case in ipairs(list) do
        it(case[1], function() assert.are.equal(case[3], show(case[2]())) end)
    end
end

local function count() return flow.arange(24):reshape(2, 3, 4) end

describe("views", function()
    cases {
        {"reshape", function() return count():reshape(4, -1).shape end, "{4,6}"},
        {"reshape of a permuted tensor", function() return flow.arange(6):reshape(2, 3):t():reshape(-1) end, "{0,3,1,4,2,5}"},
        {"permute", function() return count():permute(2, 0, 1)[1] end, "{{1,5,9},{13,17,21}}"},
        {"transpose", function() return count():transpose(0, -1).shape end, "{4,3,2}"},
        {"t", function() return count()[0]:t() end, "{{0,4,8},{1,5,9},{2,6,10},{3,7,11}}"},
        {"expand", function() return flow.arange(3):unsqueeze(1):expand(-1, 2) end, "{{0,0},{1,1},{2,2}}"},
        {"narrow, then select", function() return count():narrow(2, 1, 2):select(0, 1) end, "{{13,14},{17,18},{21,22}}"},
        {"narrow from the end", function() return flow.arange(5):narrow(0, -2, 2) end, "{3,4}"},
        {"slice with a step", function() return flow.arange(10):slice(0, 1, 9, 3) end, "{1,4,7}"},
        {"slice beyond the end", function() return flow.arange(4):slice(0, -2, 100) end, "{2,3}"},
        {"select from the end", function() return count():select(1, -1) end, "{{8,9,10,11},{20,21,22,23}}"},
        {"diagonal above", function() return flow.arange(12):reshape(3, 4):diagonal(1) end, "{1,6,11}"},
        {"diagonal below", function() return flow.arange(12):reshape(3, 4):diagonal(-1) end, "{4,9}"},
        {"flatten", function() return count():flatten(1).shape end, "{2,12}"},
        {"squeeze", function() return flow.zeros(1, 3, 1):squeeze().shape end, "{3}"},
        {"squeeze one", function() return flow.zeros(1, 3, 1):squeeze(0).shape end, "{3,1}"},
        {"squeeze no axis", function() return flow.zeros(1, 3, 1):squeeze({}).shape end, "{1,3,1}"},
        {"unsqueeze", function() return flow.zeros(2, 3):unsqueeze(-1).shape end, "{2,3,1}"},
    }

    it("share storage", function()
        local x = flow.zeros(2, 3)
        x:t():narrow(0, 1, 2):select(1, 0):fill_(5)
        assert.are.equal("{{0,5,5},{0,0,0}}", show(x))
    end)
end)

describe("copies", function()
    cases {
        {"rep", function() return flow.arange(3):rep(2, 2) end, "{{0,1,2,0,1,2},{0,1,2,0,1,2}}"},
        {"rep of a matrix", function() return flow.tensor {{1, 2}}:rep(2, 2) end, "{{1,2,1,2},{1,2,1,2}}"},
        {"tile", function() return flow.tensor {{1, 2}, {3, 4}}:tile(2) end, "{{1,2,1,2},{3,4,3,4}}"},
        {"cat", function() return flow.cat({flow.tensor {{1, 2}}, flow.tensor {{3, 4}, {5, 6}}}) end, "{{1,2},{3,4},{5,6}}"},
        {"cat along axis 1", function() return flow.cat({flow.tensor {{1}, {2}}, flow.tensor {{3, 4}, {5, 6}}}, 1) end, "{{1,3,4},{2,5,6}}"},
        {"cat promotes", function() return flow.cat({flow.tensor {1}, flow.tensor {2.5}}) end, "{1,2.5}"},
        {"stack", function() return flow.stack({flow.tensor {1, 2}, flow.tensor {3, 4}}, -1) end, "{{1,3},{2,4}}"},
        {"tril", function() return flow.ones(3, 3):tril() end, "{{1,0,0},{1,1,0},{1,1,1}}"},
        {"triu", function() return flow.ones(2, 3):triu(1) end, "{{0,1,1},{0,0,1}}"},
        {"copy_ broadcasts and converts", function() return flow.zeros(2, 3):copy_(flow.tensor {1, 2, 3}) end, "{{1,2,3},{1,2,3}}"},
        {"copy_ of itself turned", function()
            local x = flow.arange(4):reshape(2, 2)
            return x:copy_(x:t())
        end, "{{0,2},{1,3}}"},
    }
end)

describe("creation", function()
    cases {
        {"arange", function() return flow.arange(5) end, "{0,1,2,3,4}"},
        {"arange down", function() return flow.arange(5, 1, -2) end, "{5,3}"},
        {"arange of floats", function() return flow.arange(0, 1, 0.25) end, "{0,0.25,0.5,0.75}"},
        {"arange at the limits", function() return flow.arange(math.mininteger, math.maxinteger, 1 << 62) end,
            "{-9223372036854775808,-4611686018427387904,0,4611686018427387904}"},
        {"linspace", function() return flow.linspace(0, 1, 5) end, "{0,0.25,0.5,0.75,1}"},
        {"eye", function() return flow.eye(2, 3) end, "{{1,0,0},{0,1,0}}"},
        {"full of an integer", function() return flow.full({2}, 7).dtype end, "int64"},
        {"full of a boolean", function() return flow.full({2}, true) end, "{true,true}"},
        {"full in float16", function() return flow.full({2}, 1.5, {dtype = "float16"}) end, "{1.5,1.5}"},
        {"like", function() return flow.ones_like(flow.arange(2), {dtype = "float32"}) end, "{1,1}"},
    }
end)

describe("indexing", function()
    local function written(f)
        local x = flow.zeros(4, 2)
        f(x)
        return x
    end
    cases {
        {"masked_select", function() return flow.arange(6):masked_select(flow.arange(6):gt(3)) end, "{4,5}"},
        {"masked_select broadcasts", function() return flow.arange(6):reshape(2, 3):masked_select(flow.tensor {true, false, true}) end, "{0,2,3,5}"},
        {"nonzero", function() return flow.tensor {{0, 2}, {3, 0}}:nonzero() end, "{{0,1},{1,0}}"},
        {"nonzero without axes", function() return flow.tensor(3.0):nonzero().shape end, "{1,0}"},
        {"positions", function() return flow.arange(6):index(flow.tensor {{1, -1}, {0, 0}}) end, "{{1,5},{0,0}}"},
        {"positions of another axis", function() return count():index(flow.tensor {1, -1}, 1)[1] end, "{{16,17,18,19},{20,21,22,23}}"},
        {"mask of rows", function() return flow.arange(6):reshape(3, 2):index(flow.tensor {true, false, true}) end, "{{0,1},{4,5}}"},
        {"mask of two axes", function() return flow.arange(8):reshape(2, 2, 2):index(flow.tensor {{true, false}, {false, true}}) end, "{{0,1},{6,7}}"},
        {"writing rows", function() return written(function(x) x:index_put_(flow.tensor {1, -1}, flow.tensor {{1, 2}, {3, 4}}) end) end, "{{0,0},{1,2},{0,0},{3,4}}"},
        {"writing a number", function() return written(function(x) x[{{}, flow.tensor {0}}] = 5 end) end, "{{5,0},{5,0},{5,0},{5,0}}"},
        {"writing by a mask", function() return written(function(x) x:index_put_(flow.tensor {true, false, false, true}, flow.tensor {{7, 8}, {9, 10}}) end) end,
            "{{7,8},{0,0},{0,0},{9,10}}"},
        {"writing through a mask of two axes that is no view", function()
            local x = flow.zeros(2, 2, 2):transpose(0, 1)
            return x:index_put_(flow.tensor {{true, true}, {false, true}}, flow.tensor {{1, 2}, {3, 4}, {5, 6}})
        end, "{{{1,2},{3,4}},{{0,0},{5,6}}}"},
        {"the last of equal positions stays", function() return written(function(x) x:index_put_(flow.tensor {2, 2}, flow.tensor {{1, 2}, {3, 4}}) end) end,
            "{{0,0},{0,0},{3,4},{0,0}}"},
    }
end)

describe("messages", function()
    for _, case in ipairs {
        {"view: [4, 3, 2] with strides [1, 4, 12] cannot be viewed as [24]; use reshape", function() count():permute(2, 1, 0):view(24) end},
        {"reshape: [2, 3, 4] with 24 elements cannot become [5, 5]", function() count():reshape(5, 5) end},
        {"reshape: only one size can be -1, not [-1, -1]", function() count():reshape(-1, -1) end},
        {"permute: 2 axes given for [2, 3, 4], which has 3", function() count():permute(0, 1) end},
        {"permute: axis 1 is named twice", function() count():permute(0, 1, 1) end},
        {"expand: [2, 3, 4] cannot be expanded to [2, 5, 4]: axis 1 has size 3", function() count():expand(2, 5, 4) end},
        {"narrow: start 2 and length 2 exceed size 3 of axis 1 of [2, 3, 4]", function() count():narrow(1, 2, 2) end},
        {"select: position 3 is out of range for axis 1 of [2, 3, 4]", function() count():select(1, 3) end},
        {"slice: step 0 must be at least 1", function() count():slice(0, 0, 1, 0) end},
        {"cat: xs[1] is [2, 3] and xs[2] is [3, 2]: only axis 0 may differ", function() flow.cat({flow.zeros(2, 3), flow.zeros(3, 2)}) end},
        {"cat: needs at least one tensor", function() flow.cat({}) end},
        {"arange: from 0 to 1 with step -1 never ends", function() flow.arange(0, 1, -1) end},
        {"arange: step must not be 0", function() flow.arange(0, 1, 0) end},
        {"index: position 7 (element 0 of the index) is out of range for an axis of size 2", function() count():index(flow.tensor {7}) end},
        {"index: mask [1] does not fit x [2, 3, 4] from axis 0 on", function() count():index(flow.tensor {true}) end},
        {"index: positions must be integers, a mask bool; this is float32", function() count():index(flow.zeros(2)) end},
        {"copy_: src [3] does not broadcast to x [2]", function() flow.zeros(2):copy_(flow.zeros(3)) end},
        {"rep: got 1 repeats for [2, 3, 4]; one for each axis is needed", function() count():rep(2) end},
    } do
        it(case[1], function()
            assert.are.equal(case[1], support.message_of(case[2]))
        end)
    end
end)

describe("parts", function()
    after_each(function() testing.set_world(1, 0) end)

    local function global(sizes, sbp, count_of_ranks)
        local ranks = {}
        for r = 1, count_of_ranks or 2 do ranks[r] = r - 1 end
        return flow.zeros(sizes, {placement = flow.placement("cpu", ranks), sbp = sbp})
    end

    it("expand keeps the stretched axes apart from split ones of size 1", function()
        testing.set_world(2, 0)
        local y = global({4, 3, 1, 2}, "S(3)"):expand(2, 4, 3, 4, 2)
        assert.are.equal("S(4)", tostring(y.sbp))
        assert.are.same({2, 4, 3, 4, 1}, y:to_local().shape)
        assert.are.same({0, 3, 1, 0, 1}, y:to_local():stride())
    end)

    it("reshape keeps a split only where all boundaries line up", function()
        testing.set_world(2, 1)
        assert.are.equal("S(0)", tostring(global({4, 6}, "S(0)"):reshape(2, 2, 6).sbp))
        assert.are.equal("S(1)", tostring(global({4, 6}, "S(1)"):reshape(4, 2, 3).sbp))
        assert.has_error(function() return global({3, 6}, "S(0)"):reshape(6, 3) end)
    end)

    -- Every rank makes its part; together they are what one rank makes.
    for _, case in ipairs {
        {"arange", {0}, function(o) return flow.arange(3, 20, 2, o) end},
        {"linspace", {0}, function(o) return flow.linspace(0, 1, 7, o) end},
        {"eye", {0, 1}, function(o) return flow.eye(4, 7, o) end},
        {"tril", {0, 1}, function(o) return flow.ones({6, 7}, o):tril(1) end},
        {"triu", {0, 1}, function(o) return flow.ones({6, 7}, o):triu(-1) end},
        {"randperm", {0}, function(o) return flow.randperm(7, o) end},
        {"rand", {0, 1, 2}, function(o) return flow.rand({3, 5, 6}, o) end},
        {"randn", {0, 1}, function(o) return flow.randn({33, 7}, o) end},
        {"randint", {0, 1}, function(o) return flow.randint(-3, 9, {33, 7}, o) end},
        {"wide randint", {0, 1}, function(o) return flow.randint(-3000000000, 9000000000, {33, 7}, o) end},
        {"dropout", {0, 1}, function(o) return flow.ones({33, 7}, o):dropout(0.3) end},
        {"bernoulli", {0, 1}, function(o) return flow.bernoulli(flow.full({33, 7}, 0.4, o)) end},
        {"uniform_", {0, 1}, function(o) return flow.zeros({33, 7}, o):uniform_(-1, 2) end},
        {"normal_", {0, 1}, function(o) return flow.zeros({33, 7}, o):normal_(-1, 2) end},
    } do
        local name, axes, make = table.unpack(case)
        for _, axis in ipairs(axes) do
            for parts = 2, 5 do
                it(("%s S(%d) over %d"):format(name, axis, parts), function()
                    flow.manual_seed(9)
                    local whole, pieces, ranks = make {}, {}, {}
                    for r = 1, parts do ranks[r] = r - 1 end
                    for r = 0, parts - 1 do
                        testing.set_world(parts, r)
                        flow.manual_seed(9)
                        pieces[r + 1] = make {placement = flow.placement("cpu", ranks), sbp = "S(" .. axis .. ")"}:to_local():clone()
                    end
                    testing.set_world(1, 0)
                    assert.are.equal(show(whole), show(flow.cat(pieces, axis)))
                end)
            end
        end
    end
end)
