-- capture_spec.lua -- flow.capture: replays give the bits of the function; functions that cannot be captured raise an error.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"

local capture, error_of, same_bits = flow.capture, support.error_of, support.same_bits

describe("every op", function()
    local tensors_of, fill, copies = support.tensors_of, support.fill, support.copies

    -- Arguments of ops whose results depend on values in a way that no list of kernels can.
    local refused = {}
    for name in ("nonzero index index_put masked_select unique unique_consecutive bincount repeat_interleave"):gmatch "%S+" do refused[name] = true end

    local function of_list(op, args)
        return function(...)
            local filled = fill(args, {...})
            return op.call(table.unpack(filled, 1, args.n))
        end
    end

    -- Other values of the same kind: those of positions and truth values stay within range by being moved round.
    local function others(list)
        local result = {}
        for i, t in ipairs(list) do
            result[i] = t.dtype:find "float" and t * 0.5 + 0.125 or t:numel() > 1 and t:flip {0}:contiguous() or t:clone()
            if t:dim() == 0 then result[i] = t:clone() end
        end
        return result
    end

    for _, op in ipairs(support.ops()) do
        for number, sample in ipairs(op.samples) do
            it(op.name .. " sample " .. number .. " gives the same bits in a replay", function()
                if support.has_no_kernel(op, sample) then return pending "no kernel on this device" end
                local args = support.arguments(op, sample)
                local list = tensors_of(args)
                if #list > 32 then return end
                local step = capture(of_list(op, args))
                flow.manual_seed(11)
                local before = copies(list)
                local ok, first = pcall(function() return table.pack(step(table.unpack(before))) end)
                if not ok then
                    assert.is_truthy(refused[op.name:gsub("_$", "")], tostring(first))
                    assert.is_truthy(tostring(first):find("capture:", 1, true), tostring(first))
                    return
                end
                for _, values in ipairs {list, others(list)} do
                    local want_in, got_in = copies(values), copies(values)
                    flow.manual_seed(12)
                    local works, want = pcall(function() return table.pack(of_list(op, args)(table.unpack(want_in))) end)
                    flow.manual_seed(12)
                    local worked, got = pcall(function() return table.pack(step(table.unpack(got_in))) end)
                    assert.are.equal(works, worked, tostring(works and got or want))
                    if works then
                        assert.are.equal(want.n, got.n)
                        for i = 1, want.n do
                            if not op.name:find "^empty" then same_bits(want[i], got[i], op.name) end
                        end
                        for i, t in ipairs(want_in) do same_bits(t, got_in[i], op.name .. ", operand " .. i) end
                    end
                end
                assert.is_truthy(first.n)
            end)
        end
    end
end)

describe("arguments", function()
    it("of another shape or dtype are captured anew, and what was captured stays", function()
        local runs = 0
        local f = capture(function(x) runs = runs + 1 return x * 2 + 1 end)
        for _ = 1, 2 do
            for _, x in ipairs {flow.randn(3), flow.randn(2, 2), flow.arange(4)} do same_bits(x * 2 + 1, f(x), "f") end
        end
        assert.are.equal(3, runs)
    end)

    it("that are numbers are values, not constants", function()
        local runs = 0
        local f = capture(function(x, rate) runs = runs + 1 return x * rate + rate * 2 end)
        local x = flow.randn(5)
        for _, rate in ipairs {0.5, 0.25, -3.0} do support.same(x * rate + rate * 2, f(x, rate), "a float") end
        assert.are.equal(1, runs)
        for _, n in ipairs {1, 300, -7} do support.same(x * n + n * 2, f(x, n), "a whole number") end
        assert.are.equal(2, runs)
    end)

    it("that are other values are part of the key", function()
        local f = capture(function(x, how, twice) return how == "sum" and x:sum() * (twice and 2 or 1) or x:mean() end)
        local x = flow.randn(4)
        for _ = 1, 2 do
            same_bits(x:sum(), f(x, "sum"), "sum")
            same_bits(x:sum() * 2, f(x, "sum", true), "twice")
            same_bits(x:mean(), f(x, "mean", false), "mean")
        end
    end)

    it("may be views at other places of a larger tensor, with gaps, and twice the same", function()
        local data = flow.randn(40, 6)
        local f = capture(function(x, y) return (x - y * 2):exp() end)
        for from = 0, 30, 10 do
            local x = data:narrow(0, from, 4)
            same_bits((x - x * 2):exp(), f(x, x), "twice")
            local y = data:narrow(1, 2, 4):narrow(0, from, 6):t()
            same_bits((x:t():clone():view(4, 6) - y * 2):exp(), f(x:t():clone():view(4, 6), y), "gaps")
        end
    end)

    it("are written in place", function()
        local f = capture(function(x, y)
            x:add_(y)
            x[1] = 7
            return x:sum()
        end)
        for _ = 1, 3 do
            local x, y = flow.randn(3), flow.randn(3)
            local want = x + y
            want[1] = 7
            same_bits(want:sum(), f(x, y), "sum")
            same_bits(want, x, "x")
        end
        f(flow.randn(3), flow.randn(3))
        f(flow.randn(3, 2):select(1, 0), flow.randn(3))
        support.fails("the function writes into argument 1, so it must be contiguous", f, flow.randn(3, 2):select(1, 0),
            flow.randn(3))
    end)

    it("are viewed where eager code views them", function()
        local function line(x) return x:view(12) * 2 end
        local f, x = capture(line), flow.randn(4, 3)
        for _ = 1, 3 do
            same_bits(line(x), f(x), "contiguous")
            assert.are.equal("view: [3, 4] with strides [1, 3] cannot be viewed as [12]; use reshape",
                (error_of(f, x:t()):gsub("^[^:]*:%d+: ", "")))
        end
        local function cut(t) return t:view(2, 2, 2) + 1, t:t():sum(1) end
        local g = capture(cut)
        for _, y in ipairs {flow.randn(4, 2), flow.randn(2, 4):t(), flow.randn(4, 6):narrow(1, 1, 2), flow.randn(4, 3, 2):select(1, 1)} do
            for i = 1, 3 do
                local ok, a, b = pcall(cut, y)
                local mine, c, d = pcall(g, y)
                assert.are.equal(ok, mine)
                if ok then
                    same_bits(a, c, "view " .. i)
                    same_bits(b, d, "sum " .. i)
                end
                y:mul_(2)
            end
        end
        local expanded = capture(function(t) return t + 1 end)
        for _ = 1, 3 do same_bits(flow.ones(3, 4) + 1, expanded(flow.ones(3, 1):expand(3, 4)), "expanded") end
    end)

    it("are written in place by a first call that is not captured", function()
        local state
        local keeps = capture(function(x)
            state = state or flow.zeros(3)
            return x:add_(1) + state
        end)
        local reads = capture(function(x) return x:add_(1), x:sum():item() end, {strict = false})
        for _, f in ipairs {keeps, reads} do
            for _ = 1, 3 do
                local x = flow.ones(3)
                local y = f(x)
                same_bits(flow.full({3}, 2.0), x, "x")
                same_bits(x, y, "y")
            end
        end
    end)

    it("are refused once they require grad", function()
        local f = capture(function(x) return x * 2 end)
        f(flow.ones(3))
        support.fails("capture: argument 1 requires grad", f, nn.Parameter(flow.ones(3)))
    end)

    it("that are numbers keep their digits beside float64", function()
        local f = capture(function(x, rate) return x * rate end)
        for _, rate in ipairs {0.1, 1 / 3} do
            local x = flow.randn(5, {dtype = "float64"})
            same_bits(x * rate, f(x, rate), "product")
        end
    end)

    it("that cannot be recorded are errors", function()
        local f = capture(function(x) return x end)
        support.fails("capture: argument 1 must be a tensor, a number, a boolean, a string or nil, got table", f, {})
        support.fails("capture: argument 2 requires grad", f, flow.ones(2), nn.Parameter(flow.ones(2)))
        support.fails("capture: takes a function, got nothing", capture)
        support.fails("capture: takes a function, got number", capture, 3)
        support.fails("capture: unknown option 'stric'", capture, print, {stric = true})
    end)
end)

describe("results", function()
    it("that are kept never change", function()
        local f = capture(function(x) return x + 1, x * 2 end)
        local kept, want = {}, {}
        for i = 1, 10 do
            local x = flow.randn(50)
            kept[i], want[i] = {f(x)}, {x + 1, x * 2}
        end
        for i = 1, 10 do for k = 1, 2 do same_bits(want[i][k], kept[i][k], "result") end end
    end)

    it("may be arguments, views of them, bound tensors, one tensor twice, tables and other values", function()
        local bound = flow.randn(4)
        local f = capture(function(x)
            local y = x * 2
            return x, x:narrow(0, 1, 2), bound, y, y, {sum = y:sum(), list = {y:view(2, 2)}}, 7, nil, "text"
        end)
        for _ = 1, 3 do
            local x = flow.randn(4)
            local r = table.pack(f(x))
            assert.are.equal(9, r.n)
            same_bits(x, r[1], "x")
            same_bits(x:narrow(0, 1, 2), r[2], "a view")
            same_bits(bound, r[3], "bound")
            same_bits(x * 2, r[5], "y")
            same_bits((x * 2):sum(), r[6].sum, "sum")
            same_bits((x * 2):view(2, 2), r[6].list[1], "a view of y")
            assert.are.same({7, nil, "text"}, {r[7], r[8], r[9]})
            r[2]:zero_()
            assert.are.equal(0, x[1]:item())
        end
    end)

    it("have no graph", function()
        local w = nn.Parameter(flow.randn(3))
        local f = capture(function(x) return (w * x):sum() end)
        for _ = 1, 3 do assert.is_false(f(flow.ones(3)).requires_grad) end
    end)
end)

describe("bound tensors", function()
    it("are read as they are at each call, and written", function()
        local w, count = flow.randn(3), flow.zeros(1)
        local f = capture(function(x)
            count:add_(1)
            return x * w
        end)
        for i = 1, 4 do
            local x = flow.randn(3)
            same_bits(x * w, f(x), "product")
            w:mul_(2)
            assert.are.equal(i, count:item())
        end
    end)

    it("may be an argument's memory", function()
        local data = flow.randn(8)
        local f = capture(function(x) return x + data:sum() end)
        for from = 0, 4, 2 do
            local x = data:narrow(0, from, 2)
            same_bits(x + data:sum(), f(x), "sum")
            x:fill_(from)
        end
    end)

    it("that wait to be computed are computed", function()
        local a, b = flow.randn(70000), flow.randn(70000)
        local waiting = a * b + 1
        local f = capture(function(x) return (waiting * x):sum() end)
        for _ = 1, 3 do
            local later, want = a * 3, a[5]:item()
            same_bits((waiting * b):sum(), f(b), "sum")
            a:add_(1)
            same_bits(flow.tensor(want) * 3, later[5], "what was computed from the old value")
        end
    end)
end)

describe("what cannot be captured", function()
    local x = flow.randn(4)
    local cases = {
        ["reading a value"] = function(t) return t:sum():item() end,
        ["a list of values"] = function(t) return t:totable()[1] end,
        ["printing"] = function(t) return tostring(t) end,
        ["a branch"] = function(t) if t:sum():item() > 0 then return t end return -t end,
        ["a shape that depends on values"] = function(t) return t[t:gt(0)] end,
        ["a tensor of Lua values"] = function(t) return t + flow.tensor {1, 2, 3, 4} end,
        ["another seed"] = function(t)
            flow.manual_seed(1)
            return flow.rand_like(t)
        end,
        ["another generator"] = function(t)
            return flow.with_generator(flow.generator(3), function() return flow.rand_like(t) end)
        end,
    }
    for name, f in pairs(cases) do
        it("is an error that names the line: " .. name, function()
            local ok, message = pcall(capture(f), x)
            assert.is_false(ok)
            assert.matches("^[^:]*%.lua:%d+: ", message)
            assert.is_truthy(message:find("capture", 1, true), message)
            assert.is_false(flow._program.recording)
        end)

        it("runs as it is where that is allowed: " .. name, function()
            local g = capture(f, {strict = false})
            for _ = 1, 3 do
                local t = flow.randn(4)
                local want, got = f(t), g(t)
                if flow.is_tensor(want) then same_bits(want, got, name) else assert.are.equal(want, got) end
            end
        end)
    end

    it("includes what the function keeps elsewhere, from the second call on", function()
        local state = flow.zeros(4)
        local f = capture(function(t)
            state = state * 0.5 + t
            return state
        end)
        f(x)
        local message = error_of(f, x)
        assert.is_truthy(message:find("a tensor that the function made (float32[4] by add, ", 1, true), message)
        assert.is_truthy(message:find("capture_spec.lua:", 1, true), message)
    end)

    it("does not include what the first call makes for later ones", function()
        local table_of_sines
        local f = capture(function(t)
            table_of_sines = table_of_sines or flow.arange(4):sin()
            return t * table_of_sines
        end)
        for _ = 1, 4 do same_bits(x * flow.arange(4):sin(), f(x), "product") end
    end)

    it("includes more than 1024 results and tables that are nested too deep", function()
        local deep = {}
        for _ = 1, 20 do deep = {deep} end
        support.fails("capture: the tables that are returned are nested too deep", capture(function() return deep end))
        local many = capture(function(t)
            local list = {}
            for i = 1, 1025 do list[i] = t + i end
            return list
        end)
        support.fails("capture: at most 1024 tensors can be returned", many, x)
        assert.is_false(flow._program.recording)
        same_bits(x + 1, capture(function(t) return t + 1 end)(x), "after it")
    end)

    it("leaves everything as it was after an error of the function itself", function()
        local f = capture(function(t, fails)
            if fails then error "of the function" end
            return t + 1
        end)
        assert.is_truthy(error_of(f, x, true):find "of the function")
        assert.is_false(flow._program.recording)
        for _ = 1, 3 do same_bits(x + 1, f(x), "after it") end
    end)

    it("is told of in a replay with the line of the op", function()
        local rows = flow.randn(5, 2)
        local f = capture(function(i) return flow.embedding(i, rows) end)
        f(flow.tensor {1, 2})
        f(flow.tensor {3, 4})
        local message = error_of(function()
            f(flow.tensor {1, 9})
            flow.sync()
        end)
        assert.matches("capture_spec.lua:%d+", message)
        assert.is_truthy(message:find("embedding", 1, true), message)
        same_bits(flow.embedding(flow.tensor {0, 1}, rows), f(flow.tensor {0, 1}), "after it")
    end)
end)
