-- locale_spec.lua -- numbers are read and written with a point where a script or a host has set a locale with a comma.
local process = require "tests.process"

local folder = process.folder()
local has_locale = process.has "localedef"
    and select(2, process.output(("localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>&1"):format(folder))) == 0
local environment = "LOCPATH=" .. folder .. " "

local function with_comma(name, usable, f)
    if has_locale and usable then it(name, f) else it(name, function() pending "needs localedef, with de_DE, and a build" end) end
end

local body = [[
    local flow = require "flow"
    local x = flow.tensor({0.5, -1.25}, {requires_grad = true})
    print(x, x:detach() * 1e9)
    print(x:leaky_relu(), flow.layer_norm(x, {2}), pcall(flow.dropout, x, 1.5))
    flow.op{name = "swish2", formula = "x * sigmoid(beta * x) + 0.5", attrs = "beta: float = 1.5"}
    flow.op{
        name = "quarter", sig = "quarter(x, ~by: float = 0.25)", doc = "A part of every element.",
        infer = function(x) return {shape = x.shape, dtype = x.dtype} end,
        forward = function(x, by) return x * by end, backward = {"g * by * 1.0"}, samples = {"flow.randn(3)"},
    }
    print(x:swish2(), x:quarter(), flow.testing.check_op "swish2", flow.testing.check_op "quarter")
    local path = FOLDER .. "/p.safetensors"
    local p = flow.trace(function(x) return (x * 0.75):leaky_relu(0.125):clamp(-0.5, 2.5) end, {flow.spec({2})})
    p:save(path)
    p:svg(FOLDER .. "/p.svg")
    print(p, io.open(FOLDER .. "/p.svg"):read "a", flow.program(path)(x:detach()))
    flow.save(path, {x = x, half = 0.5})
    print(flow.load(path).half == 1 / 2)
    local opt = flow.optim.AdamW({x}, {lr = 0.1})
    local schedule = flow.optim.lr_scheduler.LinearLR(opt)
    x:sum():backward()
    opt:step()
    schedule:step()
    print(x, flow.explain(function() return x * 0.25 end))
]]

describe("a locale with a comma", function()
    teardown(function() os.execute("rm -rf " .. folder) end)

    with_comma("changes no number of a script", true, function()
        local function run(first)
            local script = process.write(folder .. "/script.lua", ("%s %s"):format(first, (body:gsub("FOLDER", ("%q"):format(folder)))))
            return process.output(environment .. process.flowlua .. " " .. script .. " 2>&1")
        end
        local expected, code = run ""
        assert.are.equal(0, code, expected)
        assert.are.equal(expected, (run "os.setlocale 'de_DE.UTF-8' assert((0.5 .. '') == '0,5')"))
    end)

    with_comma("leaves the times of a trace JSON", true, function()
        local script = process.write(folder .. "/script.lua",
            "os.setlocale 'de_DE.UTF-8' local flow = require 'flow' print(flow.ones(9).shape)")
        assert.are.equal(0, select(2, process.output(("%s%s --trace %s/t.json %s"):format(environment, process.flowlua, folder, script))))
        local text = process.read(folder .. "/t.json")
        assert.is_truthy(text:find '"ts":%d+%.%d+,"dur"')
        assert.is_nil(text:find '"ts":%d+,%d+,"dur"')
    end)

    with_comma("changes no number of a C program", process.build == "build" and process.exists "build/libflow.so", function()
        local program = folder .. "/program"
        local output, code = process.output(("cc -std=c99 -Wall -Wextra -Werror -Isrc/core/api -o %s tests/host/locale.c -Lbuild " ..
            "-lflow -Wl,-rpath,$PWD/build 2>&1"):format(program))
        assert.are.equal(0, code, output)
        assert.are.equal("0,375 -3,505\nSGD: options are written \"lr=1e-3, weight_decay=0.1\", got '5'\n" ..
            "flow_set_lr: lr must be at least 0, got -0.5\n", (process.output(environment .. program .. " 2>&1")))
    end)
end)
