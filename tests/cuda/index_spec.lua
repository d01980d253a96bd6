-- index_spec.lua -- what is picked and written by position on the GPU: equal to the CPU bit for bit, sums at positions too, in
-- sizes that take every way of the kernels; windows; positions out of range.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local FLOATS = {"float32", "float64", "float16", "bfloat16"}
local hidden = flow._op

local equal = cuda.equal

local function randn(dtype, ...) return flow.randn(...):to(dtype) end

describe("on the GPU picking", function()
    cuda.it("takes slices and elements of every width, layout and kind of index", function()
        flow.manual_seed(1)
        for _, dtype in ipairs {"bool", "int8", "float16", "float32", "float64"} do
            for _, inner in ipairs {1, 3, 8, 40} do
                local x = flow.randint(-3, 4, {7, 5, inner}):to(dtype)
                local index = flow.randint(0, 5, {11})
                for _, kind in ipairs {"int64", "int32", "uint8"} do
                    local at = index:to(kind)
                    equal(("index_select %s %d %s"):format(dtype, inner, kind), flow.index_select, x, 1, at)
                    equal("strided", flow.index_select, support.strided(x), 1, support.strided(at))
                    equal("transposed", flow.index_select, x:transpose(0, 2), 1, at)
                end
                equal("gather", flow.gather, x, 1, flow.randint(0, 5, {6, 9, inner}))
                equal("gather, transposed", flow.gather, x:transpose(0, 1), 0, flow.randint(0, 5, {12, 7, inner}))
            end
            equal("embedding", flow.embedding, flow.randint(0, 13, {4, 6}), flow.randint(0, 2, {13, 10}):to(dtype))
        end
    end)

    cuda.it("names the position that is out of range, as the CPU does", function()
        local x = flow.zeros(7, 3, {device = "cuda"})
        local function on(list) return flow.tensor(list, {device = "cuda"}) end
        for _, case in ipairs {
            {"embedding: indices[1, 0] is 9, but weight has 7 rows (0 to 6)", function() flow.embedding(on{{1, 2}, {9, 0}}, x) end},
            {"embedding: indices is -1, but weight has 7 rows (0 to 6)", function() flow.embedding(on(-1), x) end},
            {"embedding: indices[0] is 0, but weight has no rows", function() flow.embedding(on{0}, x:narrow(0, 0, 0)) end},
            {"embedding: indices[0] is 8, but weight has 7 rows (0 to 6)", function() flow.embedding(on{8}, x:narrow(1, 0, 0)) end},
            {"index_select: index[2] is 3, but this axis of x has 3 positions (0 to 2)", function() flow.index_select(x, 1, on{0, 2, 3}) end},
            {"gather: index[0, 1] is -2, but this axis of x has 7 positions (0 to 6)", function() flow.gather(x, 0, on{{0, -2}}) end},
            {"index: position 7 (element 1 of the index) is out of range for an axis of size 7", function() return x[on{0, 7}] end},
            {"index_put_: position 5 is out of range for axis 1 of size 3", function() hidden.index_write_(x:clone(), on{5}, 1, 1) end},
            {"index_zero: position -1 is out of range for axis 0 of size 7", function() hidden.index_zero(x, on{-1}, 0) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
        local many = flow.arange(3000):fmod(7)
        for _, at in ipairs {2800, 1500, 700, 699, 650, 512} do many[at] = 100 + at end
        assert.are.equal("index_select: index[512] is 612, but this axis of x has 7 positions (0 to 6)", support.message_of(function()
            flow.index_select(x, 0, many:to("cuda"))
        end))
    end)
end)

describe("on the GPU sums at positions", function()
    -- Short rows are added in the order of the indices, as on the CPU: the same bits.
    cuda.it("equal the CPU's bit for bit", function()
        flow.manual_seed(2)
        for _, dtype in ipairs(FLOATS) do
            for _, width in ipairs {1, 5, 16} do
                local index = flow.randint(0, 40, {90, 3})
                equal(("embedding_backward %s %d"):format(dtype, width), hidden.embedding_backward, randn(dtype, 90, 3, width), index, 60)
                equal("index_select_backward", hidden.index_select_backward, randn(dtype, 3, 100, width), 1, flow.randint(0, 9, {100}):to("int32"), 9)
            end
            equal("strided", hidden.index_select_backward, support.strided(randn(dtype, 20, 4)), 0, flow.randint(0, 9, {20}), 300)
            equal("none", hidden.index_select_backward, randn(dtype, 0, 4), 0, flow.zeros(0, {dtype = "int64"}), 5)
        end
    end)

    cuda.it("add long rows in chunks, the same way each time", function()
        flow.manual_seed(3)
        local index = flow.cat{flow.zeros(700, {dtype = "int64"}), flow.randint(0, 4, {900}), flow.full({128}, 3), flow.full({129}, 5), flow.full({1}, 6)}
        for _, width in ipairs {1, 3, 8} do
            local dy = flow.randint(-8, 9, {index:numel(), width}):to("float32")   -- sums are exact in any order
            equal("embedding_backward " .. width, hidden.embedding_backward, dy, index, 8)
            local noise = flow.randn(index:numel(), width):to("cuda")
            local first = hidden.embedding_backward(noise, index:to("cuda"), 8)
            support.same(first, hidden.embedding_backward(noise, index:to("cuda"), 8), "again", 0)
            support.close(hidden.embedding_backward(noise:to("cpu"), index, 8), first:to("cpu"), 1e-4, "noise")
        end
    end)

    cuda.it("go by lines or by places", function()
        flow.manual_seed(4)
        for _, dtype in ipairs(FLOATS) do
            equal("short lines " .. dtype, hidden.gather_backward, randn(dtype, 30, 5), 1, flow.randint(0, 9, {30, 5}), {30, 9})
            equal("long lines " .. dtype, hidden.gather_backward, randn(dtype, 3, 100), 1, flow.randint(0, 9, {3, 100}), {3, 9})
            equal("along the first axis " .. dtype, hidden.gather_backward, randn(dtype, 70, 4), 0, flow.randint(0, 9, {70, 4}), {12, 6})
        end
        local n = cuda.emulated and 9000 or 90000
        equal("many lines", hidden.gather_backward, flow.randn(40, n):narrow(0, 0, 33), 0, flow.randint(0, 3, {33, n}), {3, n})
        equal("many places", hidden.gather_backward, flow.randint(-5, 6, {n}):to("float32"), 0, flow.randint(0, n, {n}), {n})
    end)

    cuda.it("are the gradients of picking", function()
        flow.manual_seed(5)
        local function gradient(pick)
            return function(x, index)
                local leaf = x:detach():requires_grad_(true)
                local y = pick(leaf, index)
                return flow.grad((y * y):sum(), {leaf})[1]
            end
        end
        local index = flow.randint(0, 6, {50})
        equal("embedding", gradient(function(w, i) return flow.embedding(i, w) end), flow.randn(6, 8), index)
        equal("index", gradient(function(x, i) return x[i] end), flow.randn(6, 8), index)
        equal("gather", gradient(function(x, i) return flow.gather(x, 0, i:view(-1, 1)) end), flow.randn(6, 8), index)
    end)
end)

describe("on the GPU writing", function()
    -- Rows of 16 bytes, 24 bytes apart: whole vectors would not be aligned.
    cuda.it("takes one row of a view whose rows lie apart", function()
        flow.manual_seed(7)
        for _, at in ipairs {0, 1, 7} do
            equal("row " .. at, function(x, index, value)
                local y = x:clone()
                hidden.index_write_(y:narrow(1, 0, 4), index, value, 0)
                return y
            end, flow.randn(8, 6), flow.tensor({at}), flow.randn(1, 4))
        end
    end)

    cuda.it("lets the last of equal positions stay", function()
        flow.manual_seed(6)
        for _, dtype in ipairs {"float32", "int8", "float16"} do
            local function write(axis)
                return function(x, index, value)
                    local y = x:clone()
                    hidden.index_write_(y, index, value, axis)
                    return y
                end
            end
            local x, index = flow.zeros(9, 12):to(dtype), flow.randint(0, 9, {300})
            equal("rows " .. dtype, write(0), x, index, flow.randint(-50, 50, {300, 12}))
            equal("columns " .. dtype, write(1), x, index, flow.randint(-50, 50, {9, 300}):to(dtype))
            equal("broadcast " .. dtype, write(0), x, index, flow.randint(-50, 50, {12}))
            equal("a number " .. dtype, write(1), x, index, 7)
            equal("zeros " .. dtype, function(y, i) return hidden.index_zero(y, i, 1) end, x + 1, index:narrow(0, 0, 5))
        end
    end)

    cuda.it("goes through views to what they are views of", function()
        local function write(x, index, value)
            local y = x:clone()
            y:t():narrow(0, 2, 5)[index] = value
            y:select(1, 0)[index] = 3
            return y
        end
        equal("a view", write, flow.randn(6, 8), flow.tensor{4, 0, 4, -3}, flow.randn(4, 6))
    end)
end)

describe("on the GPU counting", function()
    cuda.it("is exact in every dtype", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
            for _, make in ipairs {
                function(o) return flow.arange(-5, 1100, 3, o) end,
                function(o) return flow.arange(0.1, 100, 0.07, o) end,
                function(o) return flow.linspace(-3, 100, 1031, o) end,
                function(o) return flow.eye(9, 20, o) end,
            } do support.same(make{dtype = dtype}, make{dtype = dtype, device = "cuda"}:to("cpu"), dtype, 0) end
        end
    end)

    cuda.it("keeps triangles of every width and layout", function()
        for _, dtype in ipairs {"bool", "float16", "float32", "float64"} do
            for _, sizes in ipairs {{5, 7}, {3, 16, 32}, {2, 33, 8}, {40, 1}, {1, 40}} do
                local x = flow.randint(1, 9, sizes):to(dtype)
                for _, diagonal in ipairs {0, 3, -2, 100} do
                    equal("tril", flow.tril, x, diagonal)
                    equal("triu", flow.triu, x:transpose(-1, -2), diagonal)
                end
            end
        end
    end)
end)

describe("parts of global tensors on the GPU", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    -- A tensor of small numbers, the same on every rank, split as `sbp` says.
    local function given(o, sbp, ...)
        flow.manual_seed(12)
        local x = flow.randint(0, 6, {...}, {placement = o.placement, sbp = "B"})
        return x:to_global{sbp = sbp}
    end

    local cases = {
        {"embedding of rows", function(o) return flow.embedding(given(o, "B", 9, 2), given(o, "S(0)", 7, 4)) end},
        {"embedding of columns", function(o) return flow.embedding(given(o, "B", 9, 2), given(o, "S(1)", 7, 4)) end},
        {"index_select", function(o) return flow.index_select(given(o, "S(1)", 3, 8), 1, given(o, "B", 20)) end},
        {"gather", function(o) return flow.gather(given(o, "S(0)", 8, 5), 0, given(o, "B", 4, 5)) end},
        {"gather of positions split", function(o) return flow.gather(given(o, "B", 8, 5), 0, given(o, "S(1)", 4, 5)) end},
        {"embedding_backward", function(o)
            return hidden.embedding_backward(given(o, "S(0)", 20, 4):to("float32"), given(o, "S(0)", 20), 7)
        end},
        {"index_select_backward", function(o) return hidden.index_select_backward(given(o, "S(1)", 20, 4):to("float32"), 0, given(o, "B", 20), 7) end},
        {"gather_backward", function(o) return hidden.gather_backward(given(o, "S(1)", 4, 50):to("float32"), 1, given(o, "S(1)", 4, 50), {4, 9}) end},
        {"gather_backward of lines split", function(o)
            return hidden.gather_backward(given(o, "S(0)", 4, 50):to("float32"), 1, given(o, "S(0)", 4, 50), {4, 9})
        end},
        {"index_write_", function(o)
            local x = given(o, "S(0)", 8, 3)
            hidden.index_write_(x, given(o, "B", 5), given(o, "B", 5, 3), 0)
            return x
        end},
        {"index_zero", function(o) return hidden.index_zero(given(o, "S(0)", 8, 3), given(o, "B", 2), 0) end},
        {"eye", function(o) return flow.eye(8, 11, {placement = o.placement, sbp = "S(1)"}) end},
        {"tril", function(o) return given(o, "S(0)", 8, 11):tril(1) end},
        {"triu", function(o) return given(o, "S(1)", 2, 8, 11):triu(-1) end},
        {"arange", function(o) return flow.arange(3, 100, 7, {placement = o.placement, sbp = "S(0)"}) end},
        {"linspace", function(o) return flow.linspace(3, 100, 17, {placement = o.placement, sbp = "S(0)"}) end},
    }
    for _, case in ipairs(cases) do
        cuda.it(case[1] .. " is what it is on the CPU", function()
            for rank = 0, 2 do
                flow._testing.set_world(3, rank)
                local function part(device)
                    local y = case[2]{placement = flow.placement(device, {0, 1, 2})}
                    return tostring(y.sbp), y:to_local()
                end
                local sbp, want = part "cpu"
                local sbp_there, got = part "cuda"
                assert.are.equal(sbp, sbp_there)
                support.same(want, got:to("cpu"), "rank " .. rank, 0)
            end
        end)
    end
end)
