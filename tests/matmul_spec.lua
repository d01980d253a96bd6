-- matmul_spec.lua -- products against plain loops: layouts, sizes around the register tiles, batches, dtypes, errors.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

-- A 2-D product by the schoolbook, from nested lists.
local function multiply(a, b)
    local out = {}
    for i = 1, #a do
        out[i] = {}
        for j = 1, #b[1] do
            local sum = 0
            for p = 1, #b do sum = sum + a[i][p] * b[p][j] end
            out[i][j] = sum
        end
    end
    return out
end

local function largest_error(want, got)
    local worst = 0
    for i = 1, #want do
        for j = 1, #want[1] do worst = math.max(worst, math.abs(want[i][j] - got[i][j])) end
    end
    return worst
end

local layouts = {
    plain = function(m, n, dtype) return flow.randn(m, n):to(dtype) end,
    transposed = function(m, n, dtype) return flow.randn(n, m):to(dtype):t() end,
    ["with gaps"] = function(m, n, dtype) return flow.stack({flow.randn(m, n), flow.zeros(m, n)}, 2):to(dtype):select(-1, 0) end,
    ["rows apart"] = function(m, n, dtype) return flow.randn(m, n + 3):to(dtype):narrow(1, 2, n) end,
}

describe("matmul", function()
    for x_name, x_layout in pairs(layouts) do
        for y_name, y_layout in pairs(layouts) do
            it("multiplies x " .. x_name .. " by y " .. y_name, function()
                flow.manual_seed(1)
                for dtype, eps in pairs {float32 = 2e-5, float64 = 1e-12} do
                    for _, size in ipairs {{1, 1, 1}, {5, 33, 7}, {13, 17, 64}, {37, 3, 2}, {64, 31, 100}} do
                        local x, y = x_layout(size[1], size[3], dtype), y_layout(size[3], size[2], dtype)
                        local want = multiply(x:totable(), y:totable())
                        assert.is_true(largest_error(want, x:matmul(y):totable()) < eps * size[3], dtype)
                    end
                end
            end)
        end
    end

    it("agrees above and below the size where the library takes over", function()
        flow.manual_seed(2)
        local x, y = flow.randn(520, 513), flow.randn(513, 530)
        local z = x:matmul(y)
        for _, at in ipairs {{0, 0}, {519, 529}, {17, 300}} do
            local want = (x[at[1]]:to("float64") * y[{{}, at[2]}]:to("float64")):sum():item()
            assert.is_true(math.abs(z[at]:item() - want) < 1e-3)
        end
        local t = x:t():contiguous():t():matmul(y:t():contiguous():t())
        assert.is_true((t - z):abs():amax():item() < 1e-3)
    end)

    it("does not depend on how many rows are multiplied together", function()
        if support.on_gpu then return pending "cuBLASLt chooses its kernel by the sizes" end
        flow.manual_seed(3)
        local x, y = flow.randn(50, 70), flow.randn(70, 40)
        local whole = x:matmul(y)
        for _, rows in ipairs {1, 3, 13, 49} do
            assert.are.same(whole[{{0, rows}}]:totable(), x[{{0, rows}}]:matmul(y):totable())
        end
    end)

    it("multiplies rows, columns and matrices of 16 bits as they lie", function()
        flow.manual_seed(5)
        for _, dtype in ipairs {"bfloat16", "float16"} do
            for _, size in ipairs {{1, 768, 300}, {1, 33, 7}, {300, 768, 1}, {70, 80, 90}, {1, 1, 1}} do
                local m, k, n = table.unpack(size)
                for _, x in ipairs {flow.randn(m, k):to(dtype), flow.randn(k, m):to(dtype):t()} do
                    for _, y in ipairs {flow.randn(k, n):to(dtype), flow.randn(n, k):to(dtype):t()} do
                        local want = x:to("float32"):matmul(y:to("float32"))
                        local limit = 0.01 * (1 + want:abs():amax():item())
                        assert.is_true((x:matmul(y):to("float32") - want):abs():amax():item() < limit)
                    end
                end
            end
        end
    end)

    it("multiplies a row by long columns, the same wherever the row and the columns lie", function()
        if support.on_gpu then return pending "cuBLASLt chooses its kernel by the sizes" end
        flow.manual_seed(7)
        local columns = flow.randn(70, 5000)
        for _, k in ipairs {1, 70, 1027, 4096, 5000} do
            local apart, y = flow.randn(k, 3)[{{}, {1, 2}}]:t(), columns[{{}, {0, k}}]:t()
            local z = apart:matmul(y)
            assert.are.same(z:totable(), apart:contiguous():matmul(y):totable())
            for _, n in ipairs {1, 6, 33} do
                assert.are.same(z[{{}, {0, n}}]:totable(), apart:matmul(y[{{}, {0, n}}]):totable())
            end
            local exact = apart:to("float64"):matmul(y:to("float64"))
            assert.is_true((z:to("float64") - exact):abs():amax():item() < 1e-5 * k ^ 0.5)
        end
    end)

    it("multiplies integers exactly, and wraps around", function()
        flow.manual_seed(6)
        for _, dtype in ipairs {"int64", "int32", "int8", "uint8"} do
            local x, y = flow.randint(0, 100, {37, 45}):to(dtype), flow.randint(0, 100, {29, 45}):to(dtype):t()
            local want = (x:to("int64"):unsqueeze(2) * y:to("int64"):unsqueeze(0)):sum(1):to(dtype)
            assert.are.same(want:totable(), x:matmul(y):totable())
            assert.are.same(want[{{}, 3}]:totable(), x:matmul(y[{{}, 3}]):totable())
        end
        local x = flow.tensor {{math.maxinteger, 2}, {3, 4}}
        assert.are.same({{7, 6}, {math.maxinteger * 3 + 12, 22}}, x:matmul(x):totable())
    end)

    it("multiplies every matrix of a batch, broadcast or strided", function()
        flow.manual_seed(4)
        local x, y = flow.randn(3, 1, 4, 6), flow.randn(2, 6, 5)
        local z = x:matmul(y)
        assert.are.same({3, 2, 4, 5}, {table.unpack(z.shape)})
        for i = 0, 2 do
            for j = 0, 1 do assert.is_true((z[{i, j}] - x[{i, 0}]:matmul(y[j])):abs():amax():item() < 1e-5) end
        end
        local heads = flow.randn(2, 7, 3, 4):transpose(1, 2) -- [2, 3, 7, 4] as attention has it
        local scores = heads:matmul(heads:transpose(2, 3))
        assert.is_true((scores[{1, 2}] - heads[{1, 2}]:matmul(heads[{1, 2}]:t())):abs():amax():item() < 1e-5)
        local w = flow.randn(4, 2)
        assert.is_true((heads:matmul(w) - heads:contiguous():view(-1, 4):matmul(w):view(2, 3, 7, 2)):abs():amax():item() < 1e-5)
    end)

    it("multiplies integers exactly and wraps around", function()
        assert.are.same({{19, 22}, {43, 50}}, flow.tensor{{1, 2}, {3, 4}}:matmul(flow.tensor{{5, 6}, {7, 8}}):totable())
        assert.are.same({{144}}, flow.tensor{{20, 20}}:to("uint8"):matmul(flow.tensor{{10}, {10}}:to("uint8")):totable())
    end)

    it("gives zeros where there is nothing to add, and nothing for no rows", function()
        assert.are.same({{0, 0}, {0, 0}}, flow.zeros(2, 0):matmul(flow.zeros(0, 2)):totable())
        assert.are.same({0, 5}, {table.unpack(flow.zeros(0, 3):matmul(flow.zeros(3, 5)).shape)})
    end)

    it("says what does not fit", function()
        local cases = {
            {flow.zeros(2, 3), flow.zeros(4, 5), "matmul: [2, 3] and [4, 5] do not fit: axis 1 of x has size 3, axis 0 of y has size 4"},
            {flow.zeros(2, 3, 4), flow.zeros(3, 4, 5), "matmul: batch axes of [2, 3, 4] and [3, 4, 5] do not broadcast"},
            {flow.tensor(1.5), flow.zeros(2), "matmul: takes tensors with axes, got [] and [2]"},
            {flow.zeros(2):eq(0), flow.zeros(2):eq(0), "matmul: does not take bool tensors; convert them first"},
            {flow.zeros(2), flow.tensor{1, 2}, "matmul: cannot multiply float32 by int64; convert one of them"},
        }
        for _, case in ipairs(cases) do
            local ok, message = pcall(flow.matmul, case[1], case[2])
            assert.is_false(ok)
            assert.is_truthy(message:find(case[3], 1, true), message)
        end
    end)
end)

describe("linear", function()
    it("is x times the transposed weight plus bias", function()
        flow.manual_seed(5)
        local x, w, b = flow.randn(2, 3, 40), flow.randn(50, 40), flow.randn(50)
        assert.is_true((flow.linear(x, w, b) - (x:matmul(w:t()) + b)):abs():amax():item() < 1e-4)
        local strided = flow.randn(40, 3, 2):permute(2, 1, 0)
        assert.is_true((flow.linear(strided, w) - strided:contiguous():matmul(w:t())):abs():amax():item() < 1e-4)
    end)

    it("adds the bias once over a split inner axis", function()
        local testing = flow._testing
        local x, w, b = flow.randn(2, 5), flow.randn(3, 5), flow.randn(3)
        local want = flow.linear(x, w, b)
        local sum = flow.zeros(2, 3)
        for r = 0, 1 do
            testing.set_world(2, r)
            local p = flow.placement("cpu", {0, 1})
            local first, size = r * 3, 3 - r
            local xs = testing.from_part(x:narrow(1, first, size):clone(), x.shape, p, "S(1)")
            local ws = testing.from_part(w:narrow(1, first, size):clone(), w.shape, p, "S(1)")
            local y = flow.linear(xs, ws, testing.from_part(b:clone(), b.shape, p, "B"))
            assert.are.equal("P", tostring(y.sbp))
            sum = sum + y:to_local()
        end
        testing.set_world(1, 0)
        assert.is_true((sum - want):abs():amax():item() < 1e-5)
    end)

    it("names the shapes that do not fit", function()
        local ok, message = pcall(flow.linear, flow.zeros(2, 3), flow.zeros(4, 5))
        assert.is_false(ok)
        assert.is_truthy(message:find("linear: takes x [..., in] and weight [out, in], got [2, 3] and [4, 5]", 1, true), message)
        ok, message = pcall(flow.linear, flow.zeros(2, 3), flow.zeros(4, 3), flow.zeros(3))
        assert.is_false(ok)
        assert.is_truthy(message:find("linear: bias must be [4] for weight [4, 3], got [3]", 1, true), message)
    end)
end)

describe("linear with an activation", function()
    local op = flow._op
    local forms = {
        {"relu", op.linear_relu, flow.relu},
        {"gelu", op.linear_gelu, flow.gelu},
        {"gelu (tanh)", function(x, w, b) return op.linear_gelu(x, w, b, "tanh") end, function(y) return flow.gelu(y, "tanh") end},
    }
    -- rows and columns shared by the team, the library's products, matrices that lie apart, nothing at all
    local shapes = {
        {{3, 7}, 5}, {{7}, 5}, {{300, 40}, 17}, {{40, 70}, 300}, {{600, 512}, 520}, {{2, 3, 6}, 9}, {{0, 4}, 3}, {{4, 0}, 3}, {{4, 3}, 0},
    }

    local function cases(f)
        for _, form in ipairs(forms) do
            for _, case in ipairs(shapes) do
                for _, dtype in ipairs {"float32", "float64"} do
                    local x, w, b = flow.randn(case[1]):to(dtype), flow.randn(case[2], case[1][#case[1]]):to(dtype), flow.randn(case[2]):to(dtype)
                    f(("%s, %s, [%s] to %d"):format(form[1], dtype, table.concat(case[1], ", "), case[2]), form, x, w, b)
                end
            end
        end
    end

    local function equal(want, got, what) support.same(want, got, what, support.on_gpu and 1e-5 or 0) end

    it("is the activation of linear, bit for bit", function()
        flow.manual_seed(8)
        cases(function(what, form, x, w, b)
            equal(form[3](flow.linear(x, w, b)), form[2](x, w, b), what)
            equal(form[3](flow.linear(x, w)), form[2](x, w), what .. ", no bias")
            if x:dim() == 3 then
                local apart = x:transpose(0, 1):contiguous():transpose(0, 1)
                equal(form[3](flow.linear(x, w, b)), form[2](apart, w, b), what .. ", matrices apart")
            end
        end)
    end)

    it("has the gradients of the two", function()
        flow.manual_seed(9)
        local function gradients(f, x, w, b)
            local leaves = {}
            for i, t in ipairs {x, w, b} do leaves[i] = t:detach():requires_grad_() end
            local y = f(table.unpack(leaves))
            y:backward(flow.arange(y:numel()):view(y.shape):to(y.dtype):cos())
            return leaves[1].grad, leaves[2].grad, leaves[3].grad
        end
        cases(function(what, form, x, w, b)
            local want = {gradients(function(...) return form[3](flow.linear(...)) end, x, w, b)}
            for i, got in ipairs {gradients(form[2], x, w, b)} do equal(want[i], got, what .. ", operand " .. i) end
        end)
    end)

    it("keeps nothing where no gradient is wanted", function()
        local x, w = flow.randn(64, 64), flow.randn(64, 64)
        local function bytes_of(f)
            local before = support.settled_memory().live_bytes
            local y = f()
            return flow.memory().live_bytes - before, y
        end
        assert.are.equal(4 * 64 * 64, (bytes_of(function() return op.linear_gelu(x, w) end)))
        w:requires_grad_()
        assert.are.equal(2 * 4 * 64 * 64, (bytes_of(function() return op.linear_gelu(x, w) end)))
    end)

    it("takes 16-bit floats, and no integers", function()
        flow.manual_seed(10)
        for _, form in ipairs(forms) do
            local x, w, b = flow.randn(6, 5), flow.randn(4, 5), flow.randn(4)
            for dtype, eps in pairs {float16 = 1e-2, bfloat16 = 1e-1} do
                local y = form[2](x:to(dtype), w:to(dtype), b:to(dtype))
                assert.are.equal(dtype, y.dtype)
                assert.is_true((y:to("float32") - form[3](flow.linear(x, w, b))):abs():amax():item() < eps)
            end
            local ok, message = pcall(form[2], x:to("int64"), w:to("int64"))
            assert.is_false(ok)
            assert.is_truthy(message:find("takes a float tensor, x is int64", 1, true), message)
        end
    end)
end)

describe("the precision of products", function()
    after_each(function() flow.set_float32_matmul_precision("highest") end)

    it("is highest until it is set, and the CPU computes alike in all", function()
        flow.manual_seed(12)
        local x, y = flow.randn(130, 130), flow.randn(130, 130)
        local want = x:matmul(y)
        assert.are.equal("highest", flow.get_float32_matmul_precision())
        for _, name in ipairs {"high", "medium", "highest"} do
            flow.set_float32_matmul_precision(name)
            assert.are.equal(name, flow.get_float32_matmul_precision())
            support.same(want, x:matmul(y), name, support.on_gpu and name ~= "highest" and 5e-2 or 0)
        end
    end)

    it("has three names", function()
        for _, case in ipairs {{"low", "'low'"}, {1, "number"}, {true, "boolean"}} do
            assert.are.equal("set_float32_matmul_precision: takes highest, high or medium, got " .. case[2], support.error_of(flow.set_float32_matmul_precision, case[1]))
            assert.are.equal("highest", flow.get_float32_matmul_precision())
        end
    end)
end)

describe("products against plain Lua", function()
    local function numbers(dtype, shape, seed)
        local random = ref.generator(seed)
        return ref.array(shape, function()
            local r = random()
            if ref.is_float(dtype) then return ref.round(dtype, r) end
            return ref.round(dtype, math.floor(r * 100))
        end)
    end

    for _, shapes in ipairs {
        {{3}, {3}}, {{1}, {1}}, {{65}, {65}}, {{3}, {3, 4}}, {{2, 3}, {3}}, {{2, 3, 4}, {4}}, {{4}, {2, 4, 5}}, {{1, 1}, {1, 1}}, {{5, 7}, {7, 3}}, {{17, 33}, {33, 16}},
        {{1, 65}, {65, 1}}, {{31, 2}, {2, 31}}, {{33, 100}, {100, 17}}, {{64, 64}, {64, 64}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {3, 4, 2}}, {{3, 4}, {2, 4, 5}},
        {{2, 3, 4}, {4, 5}}, {{1, 2, 3}, {5, 3, 2}}, {{0, 3}, {3, 4}}, {{2, 0}, {0, 3}}, {{0}, {0}}, {{2, 3, 0}, {0, 2}}, {{0, 2, 3}, {3, 4}}, {{2, 1, 2, 3}, {0, 3, 4}},
    } do
        it(("[%s] by [%s]"):format(table.concat(shapes[1], ", "), table.concat(shapes[2], ", ")), function()
            for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
                local x, y = numbers(dtype, shapes[1], 1), numbers(dtype, shapes[2], 2)
                local want = ref.matmul(x, y)
                local inner = shapes[1][#shapes[1]]
                local slack = ref.is_float(dtype) and inner * ref.epsilon(dtype == "float64" and dtype or "float32") or nil
                for _, a in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                    for _, b in ipairs(ref.layouts(ref.tensor(y, dtype))) do
                        ref.check(a[2]:matmul(b[2]), want, dtype, ref.is_float(dtype) and 1 or 0, ("%s, %s by %s"):format(dtype, a[1], b[1]), slack)
                    end
                end
                if #shapes[1] == 3 and #shapes[2] == 3 and shapes[1][1] == shapes[2][1] then
                    ref.check(flow.bmm(ref.tensor(x, dtype), ref.tensor(y, dtype)), want, dtype, 1, "bmm " .. dtype, slack)
                end
            end
        end)
    end

    it("stretched operands", function()
        local x, y = numbers("float32", {3, 1}, 1), numbers("float32", {1, 4}, 2)
        local wide, tall = ref.broadcast(x, {3, 20}), ref.broadcast(y, {20, 4})
        local got = ref.tensor(x, "float32"):expand(3, 20):matmul(ref.tensor(y, "float32"):expand(20, 4))
        ref.check(got, ref.matmul(wide, tall), "float32", 1, "stretched", 1e-5)
    end)

    it("NaN and infinities", function()
        local inf, nan = math.huge, 0 / 0
        for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
            for _, n in ipairs {1, 7, 40, 130} do
                local x, y = flow.zeros({n, n}, {dtype = dtype}), flow.ones({n, n}, {dtype = dtype})
                x[{0, n - 1}] = nan
                y[{n - 1, 0}] = inf
                local z = x:matmul(y)
                assert.is_true(z[0]:isnan():all():item(), dtype .. " " .. n)
                if n > 1 then
                    assert.is_true(z[{1, 0}]:isnan():item(), "0 times infinity")
                    assert.are.equal(0, z[{1, 1}]:item())
                end
            end
        end
        assert.are.equal(inf, flow.full({2, 2}, 300, {dtype = "float16"}):matmul(flow.full({2, 2}, 300, {dtype = "float16"}))[{0, 0}]:item())
        assert.are.equal(4096, flow.ones({1, 4096}, {dtype = "float16"}):matmul(flow.ones({4096, 1}, {dtype = "float16"})):item()) -- sums in float32
    end)
end)

describe("messages of products", function()
    for _, case in ipairs {
        {"bmm: takes [b, m, k] and [b, k, n], got [2, 3, 4] and [3, 4, 5]", function() flow.bmm(flow.zeros(2, 3, 4), flow.zeros(3, 4, 5)) end},
        {"bmm: takes [b, m, k] and [b, k, n], got [3, 4] and [4, 5]", function() flow.bmm(flow.zeros(3, 4), flow.zeros(4, 5)) end},
        {"matmul: [3] and [4, 2] do not fit: axis 0 of x has size 3, axis 0 of y has size 4", function() flow.zeros(3):matmul(flow.zeros(4, 2)) end},
        {"matmul: y must be a tensor, got number", function() flow.zeros(3):matmul(2) end},
        {"matmul: missing argument 'y'", function() flow.zeros(3):matmul() end},
    } do
        it(case[1], function()
            assert.are.equal(case[1], support.error_of(case[2]))
        end)
    end
end)
