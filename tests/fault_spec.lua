-- fault_spec.lua -- FLOW_FAULT on the only rank there is: the op that it hits, the effect of each kind. The reports of
-- other ranks are tested with several ranks.
local process = require "tests.process"

local script = [[
local flow = require "flow"
local x = flow.arange(4, {dtype = "float32"})   -- op 1
local y = x + 1                                 -- op 2
print("two")
io.stdout:flush()
local z = y * 2                                 -- op 3
z:add_(1)                                       -- op 4
print(z.shape[1], z.dtype, z[0]:item() == 3)    -- op 5 is the index
flow.zeros(4):softmax(0)
print "done"
]]

-- Output of the script under a fault, and how it ended: "exit" or "signal", and the code.
local function run(fault, code, before)
    return process.run(("export ASAN_OPTIONS=\"$ASAN_OPTIONS:handle_segv=0\"; FLOW_FAULT='%s' %s"):format(fault, before or ""), code or script)
end

describe("FLOW_FAULT", function()
    local good = "two\n4\tfloat32\ttrue\ndone\n"

    it("leaves other ranks, other ops and empty texts alone", function()
        for _, fault in ipairs {"", "1:1:exit", "0:1000:kill", "7:3:error"} do
            local output, status = run(fault)
            assert.are.equal(good, output)
            assert.are.equal(0, status)
        end
    end)

    it("exit ends the process before the op", function()
        assert.are.same({"two\n", 1}, {run "0:3:exit"})
        assert.are.same({"", 1}, {run "0:2:exit"})
    end)

    it("kill and segv are signals", function()
        local output, status = run "0:3:kill"
        assert.are.equal(137, status)
        assert.is_nil(output:find("float32", 1, true))
        output, status = run "0:3:segv"
        assert.is_true(status ~= 0 and status ~= 1)
        assert.is_nil(output:find("float32", 1, true))
    end)

    it("sleep stops there", function()
        local output, status = run("0:3:sleep", nil, "timeout 3")
        assert.are.same({"two\n", 124}, {output, status})
    end)

    it("error is an ordinary error", function()
        local output, status = run("0:3:error", [[
            local flow = require "flow"
            local x = flow.zeros(2) + 1
            print(pcall(function() return x * 2 end))
            print((x * 2)[0]:item())
        ]])
        assert.are.equal("false\tscript.lua:3: mul: made to fail by FLOW_FAULT\n2.0\n", output)
        assert.are.equal(0, status)
    end)

    it("skip leaves the op out: its result has no value, but a shape and a dtype", function()
        local output, status = run "0:3:skip"
        assert.are.equal(0, status)
        assert.matches("^two\n4\tfloat32\t%a+\ndone\n$", output)
        assert.are.equal("two\n4\tfloat32\tfalse\ndone\n", (run "0:4:skip"))
    end)

    it("counts boxing by to_global, and the ops that others are made of", function()
        local code = [[
            local flow = require "flow"
            local x = flow.zeros(2, {placement = flow.placement.all "cpu", sbp = "B"})
            print(pcall(x.to_global, x, {sbp = "S(0)"}))
        ]]
        assert.are.equal("false\tscript.lua:3: to_global: made to fail by FLOW_FAULT\n", (run("0:2:error", code)))
        code = [[
            local flow = require "flow"
            local x = flow.zeros(2)
            x:add_(1)
            print(x[0]:item())
        ]]
        assert.are.equal("1.0\n", (run("0:9:error", code)))
        assert.matches("add_?: made to fail by FLOW_FAULT", (run("0:2:error", code)))
    end)

    it("says what is wrong with its text", function()
        local rule = ": must be rank:op_number:kind, ops counted from 1, kind one of exit, kill, segv, sleep, skip, error (FLOW_FAULT=1:20:exit)"
        for _, fault in ipairs {"x", "1", "1:2", "1:2:", "1:2:die", "-1:2:exit", "0:0:exit", "1:2:exit ", "a:2:exit", "1:b:exit", "1::exit"} do
            local output, status = run(fault)
            assert.is_truthy(output:find("FLOW_FAULT=" .. fault .. rule, 1, true), output)
            assert.are.equal(1, status)
        end
    end)
end)
