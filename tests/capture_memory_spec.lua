-- capture_memory_spec.lua -- arguments of a captured function that lie in the memory of one another, or of a tensor that it
-- reaches by itself: values are those of the function, or an error names the argument to pass.
local flow = require "flow"
local support = require "tests.support"

describe("arguments of a captured function", function()
    -- Small ones run step by step, large ones in one pass with others.
    for _, n in ipairs {4, 1 << 17} do
        local function like(f, what, make)
            local g = flow.capture(f)
            for call = 1, 4 do
                local want, got = {make()}, {make()}
                local a, b = f(table.unpack(want)), g(table.unpack(got))
                support.same_bits(a, b, what .. ", call " .. call)
                for i = 1, #want do support.same_bits(want[i], got[i], what .. ", argument " .. i) end
            end
            for call = 1, 3 do -- other memory, by the program; then again the same
                local want, got = {}, {}
                for i, t in ipairs {make()} do want[i], got[i] = t:clone(), t:clone() end
                support.same_bits(f(table.unpack(want)), g(table.unpack(got)), what .. ", memory of their own " .. call)
                local x, y = {make()}, {make()}
                support.same_bits(f(table.unpack(x)), g(table.unpack(y)), what .. ", after those " .. call)
            end
        end

        it("may be the same tensor, " .. n, function()
            local function twice() local x = flow.arange(n):to "float32" return x, x end
            like(function(x, y) x:mul_(2) return y + 1 end, "written, then read", twice)
            like(function(x, y) local a = y + 1 x:mul_(2) return a end, "read, then written", twice)
            like(function(x, y) x:add_(1) y:mul_(10) return x + y end, "both written", twice)
            like(function(x, y) return x * y + x end, "read", twice)
        end)

        it("may overlap, " .. n, function()
            local function parts(shift)
                return function()
                    local all = flow.arange(2 * n):to "float32"
                    return all[{{0, n}}], all[{{shift, shift + n}}]
                end
            end
            for _, shift in ipairs {0, 1, n // 2, n} do
                like(function(x, y) local a = y * 2 x:mul_(3) return a + y end, "shifted by " .. shift, parts(shift))
            end
            like(function(x, y) x:mul_(3) return y + 1 end, "a view", function()
                local x = flow.arange(n):to "float32"
                return x, x:view(2, n // 2):transpose(0, 1)
            end)
        end)

        it("in memory that it reaches by itself run as the function does, " .. n, function()
            local w = flow.ones(n)
            local g = flow.capture(function(x) local a = w + 1 x:mul_(2) return a + w end)
            for _ = 1, 3 do assert.are.equal(3, g(flow.ones(n))[0]:item()) end
            assert.are.equal(4, g(w)[0]:item())
            assert.are.equal(5, g(flow.ones(n))[0]:item())
            local h = flow.capture(function(x) w:add_(1) return x + 1 end)
            for _ = 1, 2 do h(flow.ones(n)) end
            w:fill_(1)
            assert.are.equal(3, h(w)[0]:item())
            assert.are.equal(2, h(flow.ones(n))[0]:item())
        end)

        it("are recorded in no such memory, " .. n, function()
            local w = flow.ones(2 * n)
            local message = support.message_of(flow.capture(function(x) x:mul_(2) return w + 1 end), w)
            assert.is_truthy(message:find("capture: argument 1 lies in memory that the function also gets in another way, and writes", 1, true), message)
            message = support.message_of(flow.capture(function(_, x) w:mul_(2) return x + 1 end), 3, w[{{0, n}}])
            assert.is_truthy(message:find("capture: argument 2 lies in memory", 1, true), message)
            local g = flow.capture(function(x) x:mul_(2) return w[{{n, 2 * n}}] + 1 end) -- another part of it
            for _ = 1, 2 do
                w:fill_(1)
                assert.are.equal(2, g(w[{{0, n}}])[0]:item())
                assert.are.equal(2, w[0]:item())
            end
        end)
    end
end)
