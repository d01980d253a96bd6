-- scatter_spec.lua -- scatter and scatter_add on the GPU: equal to the CPU bit for bit, in sizes that take every way of the
-- kernels; the last of equal places, windows, positions out of range.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local equal = cuda.equal

-- {shape of x, axis, shape of the index}
local cases = {{{40}, 0, {300}}, {{7, 50}, 1, {7, 90}}, {{7, 50}, 0, {20, 31}}, {{30, 9}, 1, {30, 1}}, {{3, 8, 20}, 1, {2, 30, 20}}, {{9000, 3}, 1, {9000, 5}}}

describe("on the GPU scatter", function()
    cuda.it("writes as the CPU does, the last of equal places too", function()
        flow.manual_seed(1)
        for _, dtype in ipairs {"bool", "int8", "float16", "float32", "int64"} do
            for _, case in ipairs(cases) do
                local shape, axis, at = table.unpack(case)
                local what = ("%s [%s] along %d"):format(dtype, table.concat(shape, ", "), axis)
                local x, src = flow.randint(0, 100, shape):to(dtype), flow.randint(0, 100, at):to(dtype)
                local index = flow.randint(0, shape[axis + 1], at)
                equal(what, flow.scatter, x, axis, index, src)
                equal(what .. ", strided", flow.scatter, support.strided(x), axis, support.strided(index:to("int32")), support.strided(src))
                equal(what .. ", a number", flow.scatter, x, axis, index, 1)
                equal(what .. ", in place", function(y, i, v)
                    local wide = flow.stack({y, y}, -1)
                    wide:select(-1, 1):scatter_(axis, i, v)
                    return wide
                end, x, index, src)
                if dtype ~= "bool" then equal(what .. ", added", flow.scatter_add, x, axis, index, src) end
            end
        end
    end)

    cuda.it("has the gradients of the CPU", function()
        flow.manual_seed(2)
        for _, name in ipairs {"scatter", "scatter_add"} do
            cuda.agree(name, function(list)      -- elements of one place are added up in another order
                local x, index, src = table.unpack(list)
                local a, b = x:detach():requires_grad_(true), src:detach():requires_grad_(true)
                local y = a[name](a, 1, index, b)
                local grads = flow.grad((y * y):sum(), {a, b})
                return flow.cat({grads[1], grads[2]}, 1)
            end, {flow.randn(20, 30), flow.randint(0, 30, {20, 40}), flow.randn(20, 40), n = 3})
        end
    end)

    cuda.it("names the position that is out of range, as the CPU does", function()
        local x = flow.zeros(7, 3, {device = "cuda"})
        local function on(list) return flow.tensor(list, {device = "cuda"}) end
        for _, case in ipairs {
            {"scatter: index[1, 0] is 9, but this axis of x has 7 positions (0 to 6)", function() x:scatter(0, on{{1, 2}, {9, 8}}, 1) end},
            {"scatter: index[0, 0] is -1, but this axis of x has 3 positions (0 to 2)", function() x:scatter_(1, on{{-1}}, on{{1.5}}) end},
            {"scatter_add: index[0, 1] is 3, but this axis of x has 3 positions (0 to 2)", function() x:scatter_add(1, on{{0, 3}}, on{{1.5, 1}}) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("parts of global tensors on the GPU", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    for _, name in ipairs {"scatter", "scatter_add"} do
        cuda.it(name .. " is what it is on the CPU", function()
            for rank = 0, 2 do
                for axis = 0, 1 do
                    for split = 0, 1 do
                        flow._testing.set_world(3, rank)
                        local function part(device)
                            local p = flow.placement(device, {0, 1, 2})
                            flow.manual_seed(3)
                            local function whole(high, ...) return flow.randint(0, high, {...}, {placement = p, sbp = "B"}) end
                            local x = whole(50, 8, 7):to_global{sbp = ("S(%d)"):format(split)}
                            local y = x[name](x, axis, whole(7, 5, 6), whole(90, 5, 6))
                            return tostring(y.sbp), y:to_local()
                        end
                        local sbp, want = part "cpu"
                        local sbp_there, got = part "cuda"
                        assert.are.equal(sbp, sbp_there)
                        support.same(want, got:to("cpu"), ("along %d, S(%d), rank %d"):format(axis, split, rank), 0)
                    end
                end
            end
        end)
    end
end)
