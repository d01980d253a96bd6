-- coroutine_spec.lua -- what flow.no_grad and the like set holds in the coroutine that set it, and coroutine's functions.
local flow = require "flow"

local function leaf(data) return flow.tensor(data, {dtype = "float64", requires_grad = true}) end

describe("settings in coroutines", function()
    local recording = flow.is_grad_enabled
    local function off_until_resumed(f)
        return coroutine.create(function()
            flow.no_grad(function() coroutine.yield(recording()) f(recording()) end)
            return recording()
        end)
    end

    it("hold in the coroutine that set them, before and after it was suspended", function()
        local inside
        local co = off_until_resumed(function(now) inside = now end)
        assert.are.same({true, false}, {coroutine.resume(co)})
        assert.is_true(recording())
        assert.is_true((leaf {1} * 2).requires_grad)
        assert.are.same({true, true}, {coroutine.resume(co)})
        assert.is_false(inside)
        assert.is_true(recording())
    end)

    for _, case in ipairs {
        {"no_grad", function() return flow.no_grad() end, recording, true, false},
        {"enable_grad inside no_grad", function() return flow.enable_grad() end, recording, false, true},
    } do
        it("of " .. case[1] .. " for <close> end with the coroutine that is closed, dropped or failed", function()
            local open, get, outside, inside = table.unpack(case, 2)
            local function make(fail)
                return function()
                    local _ <close> = open()
                    coroutine.yield(get())
                    if fail then error("stop", 0) end
                end
            end
            local function check()
                local closed, failed = coroutine.create(make()), coroutine.create(make(true))
                assert.are.same({true, inside}, {coroutine.resume(closed)})
                assert.are.equal(inside, coroutine.wrap(make())()) -- and dropped
                assert.are.same({true, inside}, {coroutine.resume(failed)})
                assert.are.equal(outside, get())
                collectgarbage()
                assert.are.equal(outside, get())
                assert.is_true(coroutine.close(closed))
                assert.are.equal(outside, get())
                assert.is_false((coroutine.resume(failed)))
                assert.are.equal(outside, get())
                assert.are.same({false, "stop"}, {coroutine.close(failed)})
                assert.are.equal(outside, get())
                local wrapped = coroutine.wrap(make(true))
                wrapped()
                assert.is_false(pcall(wrapped))
                assert.are.equal(outside, get())
            end
            if outside then check() else flow.no_grad(check) end
        end)
    end

    it("are the resumer's where the coroutine has set none", function()
        local co = coroutine.wrap(function() while true do coroutine.yield(recording()) end end)
        assert.is_false(flow.no_grad(co))
        assert.is_true(co())
        flow.no_grad(function() assert.is_true(flow.enable_grad(co)) assert.is_false(co()) end)
        assert.is_true(co())
    end)

    it("are the resumer's again when a scope ends that was opened before", function()
        local co = coroutine.wrap(function()
            flow.no_grad(coroutine.yield)
            coroutine.yield(recording())
            flow.enable_grad(function() coroutine.yield() end)
            return recording()
        end)
        flow.no_grad(co)
        assert.is_true(co())
        co()
        assert.is_false(flow.no_grad(co))
        assert.is_true(recording())
    end)

    it("nest, in one coroutine and in coroutines inside coroutines", function()
        local inner = coroutine.wrap(function()
            local _ <close> = flow.enable_grad()
            coroutine.yield(recording())
            return recording()
        end)
        local outer = coroutine.wrap(function()
            return flow.no_grad(function()
                coroutine.yield(inner(), recording())
                return flow.enable_grad(function()
                    coroutine.yield(recording())
                    return flow.no_grad(function() coroutine.yield(recording()) return inner(), recording() end)
                end)
            end)
        end)
        assert.are.same({true, false}, {outer()})
        assert.is_true(recording())
        assert.is_true(outer())
        assert.is_false(outer())
        assert.is_true(recording())
        assert.are.same({true, false}, {outer()})
        assert.is_true(recording())
    end)

    it("survive an error that the coroutine catches", function()
        local co = coroutine.wrap(function()
            local _ <close> = flow.no_grad()
            pcall(flow.enable_grad, function() coroutine.yield() error("stop") end)
            coroutine.yield(recording())
        end)
        co()
        assert.is_false(co())
        assert.is_true(recording())
    end)

    it("are those of a gradient hook in what it resumes", function()
        local x, seen = leaf {1, 2}, {}
        local co = coroutine.wrap(function()
            while true do seen[#seen + 1] = recording() coroutine.yield() end
        end)
        x:register_hook(function()
            co()
            flow.enable_grad(co)
            co()
            seen[#seen + 1] = recording()
        end);
        (x * x):sum():backward()
        assert.are.same({false, true, false, false}, seen)
        assert.is_true(recording())
    end)

    it("are no_sync's and with_generator's too", function()
        local g = flow.generator(5)
        local function draw() return flow.rand(2):totable() end
        flow.manual_seed(1)
        local default = {draw(), draw()}
        local own = {flow.with_generator(g, draw), flow.with_generator(g, draw), flow.with_generator(g, draw)}
        g:manual_seed(5)
        flow.manual_seed(1)
        local function by_function() return flow.with_generator(g, function() coroutine.yield(draw()) return draw() end) end
        local function by_value() local _ <close> = flow.with_generator(g) coroutine.yield(draw()) return draw() end
        local a, b = coroutine.wrap(by_function), coroutine.wrap(by_value)
        assert.are.same(own[1], a())
        assert.are.same(default[1], draw())
        assert.are.same(own[2], b())
        assert.are.same(own[3], a())
        assert.are.same(default[2], draw())
        b()
        local dropped = coroutine.wrap(function() flow.with_generator(flow.generator(3)) coroutine.yield() return draw() end)
        dropped()
        collectgarbage()
        assert.are.same(flow.with_generator(flow.generator(3), draw), dropped())
        flow.with_generator(g, draw)
    end)

    it("are those of the innermost scope around, in random programs", function()
        local suspended, steps                      -- coroutines: {own = its scopes, outermost first, resumer =, co =}
        local function expected(frame)
            while frame do
                if #frame.own > 0 then return frame.own[#frame.own] end
                frame = frame.resumer
            end
            return true
        end
        local function drop(frame)
            for i, other in ipairs(suspended) do
                if other == frame then return table.remove(suspended, i) end
            end
        end
        local play
        local function play_inside(frame, depth, on)
            local count = #frame.own
            local function inside()
                frame.own[count + 1] = on
                play(frame, depth + 1)
                if math.random() < 0.1 then error("stop", 0) end
            end
            local function by_value()
                local _ <close> = on and flow.enable_grad() or flow.no_grad()
                inside()
            end
            local ok, e
            if math.random() < 0.5 then ok, e = pcall(by_value)
            else ok, e = pcall(on and flow.enable_grad or flow.no_grad, inside) end
            if not ok and e ~= "stop" then error(e, 0) end
            for i = #frame.own, count + 1, -1 do frame.own[i] = nil end
        end
        local function play_resumed(frame, other)
            other.resumer = frame
            local ok, e = coroutine.resume(other.co)
            other.resumer = nil
            if not ok and e ~= "stop" then error(e, 0) end
            if coroutine.status(other.co) ~= "dead" then return end
            drop(other)
            if math.random() < 0.5 then coroutine.close(other.co) end
        end
        function play(frame, depth)
            for _ = 1, math.random(5) do
                steps = steps + 1
                if steps > 400 then return end
                local choice, other = math.random(9), suspended[math.random(#suspended + 1)]
                if other and coroutine.status(other.co) ~= "suspended" then other = nil end
                if choice <= 3 and depth < 6 then
                    play_inside(frame, depth, math.random() < 0.5)
                elseif choice == 4 then
                    local new = {own = {}}
                    new.co = coroutine.create(function()
                        play(new, depth)
                        if math.random() < 0.2 then error("stop", 0) end
                    end)
                    suspended[#suspended + 1] = new
                elseif choice <= 7 and other then
                    play_resumed(frame, other)
                elseif choice == 8 and coroutine.isyieldable() then
                    coroutine.yield()
                elseif choice == 9 and other then
                    if math.random() < 0.5 then coroutine.close(drop(other).co) else drop(other) end
                end
                assert.are.equal(expected(frame), recording())
            end
        end
        math.randomseed(7)
        for _ = 1, 10 do
            suspended, steps = {}, 0
            for _ = 1, 20 do play({own = {}}, 0) end
            assert.is_true(recording())
        end
    end)

    it("cannot be left by yielding where a function may not wait", function()
        local message = "attempt to yield across a C-call boundary"
        local function run(f) return coroutine.wrap(function() return f(coroutine.yield) end)() end
        assert.are.equal(message, run(flow.explain).error)
        local _, e = pcall(run, function(f) return flow.on_rank(0, f) end)
        assert.are.equal(message, (e:gsub("^.-:%d+: ", "")))
        assert.are.equal(0, #flow.explain(function() end))
    end)
end)

describe("coroutine's functions", function()
    it("do what Lua's do", function()
        local co = coroutine.create(function(a, ...) local b = coroutine.yield(a, select("#", ...)) error({b}) end)
        assert.are.same({true, 1, 2}, {coroutine.resume(co, 1, nil, nil)})
        local ok, e = coroutine.resume(co, 7)
        assert.are.same({false, {7}}, {ok, e})
        assert.are.same({false, "cannot resume dead coroutine"}, {coroutine.resume(co)})
        assert.are.same({false, "cannot resume non-suspended coroutine"}, {coroutine.resume(coroutine.running())})
        assert.are.equal("dead", coroutine.status(co))
        local f = coroutine.wrap(function() error "x" end)
        local line = debug.getinfo(1, "l").currentline
        ok, e = pcall(function() return f() end)
        assert.is_false(ok)
        assert.are.equal(("%s:%d: %s:%d: x"):format("tests/coroutine_spec.lua", line + 1, "tests/coroutine_spec.lua", line - 1), e)
        ok, e = pcall(function() return (f()) end)
        assert.are.same({false, ("tests/coroutine_spec.lua:%d: cannot resume dead coroutine"):format(line + 4)}, {ok, e})
    end)
    for _, case in ipairs {
        {function() coroutine.resume(1) end, "bad argument #1 to 'resume' (thread expected, got number)"},
        {function() coroutine.wrap(1) end, "bad argument #1 to 'wrap' (function expected, got number)"},
        {function() coroutine.close() end, "bad argument #1 to 'close' (thread expected, got no value)"},
        {function() coroutine.close(coroutine.running()) end, "cannot close a running coroutine"},
        {function()
            local outer = coroutine.running()
            coroutine.wrap(function() coroutine.close(outer) end)()
        end, "cannot close a normal coroutine"},
    } do
        it("refuse: " .. case[2], function()
            local ok, e = coroutine.resume(coroutine.create(case[1]))
            assert.is_false(ok)
            assert.are.equal(case[2], (e:gsub("^.*:%d+: ", "")))
        end)
    end
end)
