-- program_spec.lua -- flow.trace: programs give the bits of what was traced, also after they were saved and read again,
-- differentiated or inferred for other shapes; errors of functions and files that cannot be traced or read.
local flow = require "flow"
local json = require "flow.json"
local nn = flow.nn
local support = require "tests.support"
local process = require "tests.process"
local layers = require "tests.layers"
local testing = flow._testing

local error_of, same_bits = support.error_of, support.same_bits
local tensors_of, fill, copies = support.tensors_of, support.fill, support.copies

local path = os.tmpname()
teardown(function() os.remove(path) end)

local function same_results(want, got, what)
    assert.are.equal(want.n, got.n, what)
    for i = 1, want.n do same_bits(want[i], got[i], ("%s, result %d"):format(what, i)) end
end

local function spec_of(t, requires_grad)
    return flow.spec(t.shape, {dtype = t.dtype, requires_grad = requires_grad or nil})
end

local function specs_of(list)
    local specs = {}
    for i, t in ipairs(list) do specs[i] = spec_of(t) end
    return specs
end

local function saved(p)
    p:save(path)
    return flow.program(path)
end

local function seeded(f, ...)
    flow.manual_seed(12)
    return table.pack(f(...))
end

describe("every op", function()
    -- Those whose results depend on data.
    local readers = {}
    for name in ("nonzero index index_put masked_select unique unique_consecutive bincount repeat_interleave"):gmatch "%S+" do readers[name] = true end

    for _, op in ipairs(support.ops()) do
        for number, sample in ipairs(op.samples) do
            it(op.name .. " sample " .. number .. " gives the same bits as a program", function()
                if support.has_no_kernel(op, sample) then return pending "no kernel on this device" end
                local args = support.arguments(op, sample)
                local list = tensors_of(args)
                local function f(...)
                    local filled = fill(args, {...})
                    return op.call(table.unpack(filled, 1, args.n))
                end
                local live = flow.memory().allocations
                local ok, p = pcall(flow.trace, f, specs_of(list))
                if not ok then
                    assert.is_truthy(readers[op.name:gsub("_$", "")], tostring(p))
                    assert.is_truthy(tostring(p):find("on meta", 1, true), tostring(p))
                    return
                end
                assert.are.equal(live, flow.memory().allocations)
                local kept, q = number == 1, nil -- a file that is on the disk takes a while
                if kept then kept, q = pcall(saved, p) end
                if number > 1 then assert.is_nil(q)
                elseif kept then assert.are.equal(tostring(p), tostring(q))
                else
                    assert.is_true(op.hidden, tostring(q))
                    assert.is_truthy(tostring(q):find(", is an op that only gradients and optimizers call", 1, true), tostring(q))
                end
                for _, program in ipairs {p, kept and q or nil} do
                    for _ = 1, 2 do
                        local want_in, got_in = copies(list), copies(list)
                        local want, got = seeded(f, table.unpack(want_in)), seeded(program, table.unpack(got_in))
                        if not op.name:find "^empty" then same_results(want, got, op.name) end
                        for i, t in ipairs(want_in) do same_bits(t, got_in[i], op.name .. ", operand " .. i) end
                    end
                end
            end)
        end
    end
end)

-- ---- modules ----

local function is_class(x)
    return type(x) == "table" and type(rawget(x, "__name")) == "string" and rawget(x, "__call") ~= nil
end

local function names_of(list)
    local names = {}
    for i, entry in ipairs(list) do names[i] = entry.name end
    return names
end

-- Equal gradients of the parameters, by the program and by the tape.
local function same_gradients(net, p, inputs)
    local q = p:backward()
    local given, seeds = {table.unpack(inputs)}, {}
    for i, y in ipairs(seeded(net, table.unpack(inputs))) do
        if #p.values[p.outputs[i].value].shape > 0 then
            seeds[i] = y:detach() * 0.5
            given[#given + 1] = seeds[i]
        end
    end
    for _, program in ipairs {q, saved(q)} do
        for _ = 1, 2 do
            net:zero_grad()
            seeded(function(...)
                local results = {net(...)}
                if #results == 1 then return results[1]:backward(seeds[1]) end
                local total = 0
                for i, y in ipairs(results) do total = total + (y * seeds[i]):sum() end
                total:backward()
            end, table.unpack(inputs))
            local got = seeded(program, table.unpack(given))
            local by_name = {}
            for i, output in ipairs(program.outputs) do by_name[output.name] = got[i] end
            for name, parameter in net:named_parameters() do
                same_bits(parameter.grad, by_name[name], "gradient of " .. name)
            end
        end
    end
end

local on_gpu = os.getenv "FLOW_TEST_DEVICE" ~= nil

describe("every module as a program:", function()
    for name, class in pairs(nn) do
        if is_class(class) then
            it(name, function()
                local how = assert(layers[name], name .. " has no example in tests/layers.lua")
                if not how[2] or name == "AdaptiveLogSoftmaxWithLoss" then return end -- it looks at the labels
                local net, inputs = class(table.unpack(how[1])), {how[2]()}
                -- traced on the meta device, their programs are those of the CPU
                local of_cpu = name:find "RNN" or name:find "LSTM" or name:find "GRU" or name == "CTCLoss" or name == "EmbeddingBag"
                if on_gpu and of_cpu then return pending "no kernel" end
                for _, training in ipairs {true, false} do
                    net:train(training)
                    local p = flow.trace(net, specs_of(inputs))
                    local want = {}
                    for key in net:named_parameters() do want[key] = true end
                    for key in net:named_buffers() do want[key] = true end
                    for _, weight in ipairs(p.weights) do assert.is_true(want[weight.name], weight.name) end
                    for _, program in ipairs {p, saved(p)} do
                        for _ = 1, 2 do
                            same_results(seeded(net, table.unpack(inputs)), seeded(program, table.unpack(inputs)), name)
                        end
                    end
                    if #net:parameters() > 0 then same_gradients(net, p, inputs) end
                end
            end)
        end
    end
end)

-- ---- the parts of a program ----

local function mlp() return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)) end

describe("a trace", function()
    it("names inputs by the parameters of f and weights by their modules", function()
        local net = mlp()
        local function loss(images, labels) return net(images):cross_entropy(labels) end
        for _, specs in ipairs {{flow.spec({4, 6}), flow.spec({4}, "int64")},
            {labels = flow.spec({4}, "int64"), images = flow.spec({4, 6})}} do
            local p = flow.trace(loss, specs)
            assert.are.same({"images", "labels"}, names_of(p.inputs))
            assert.are.same({"1.weight", "1.bias", "4.weight", "4.bias"}, names_of(p.weights))
        end
    end)

    it("puts the variable's name before those of two modules", function()
        local a, b = nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false})
        local p = flow.trace(function(x) return b(a(x)) end, {flow.spec {1, 2}})
        assert.are.same({"a.weight", "b.weight"}, names_of(p.weights))
    end)

    it("takes tensors from outside and constants as weights, each once", function()
        local w, v = flow.randn(3, {requires_grad = true}), flow.arange(3)
        local function f(x) return x * w + v * w + flow.tensor {1, 2, 3} end
        local p = flow.trace(f, {flow.spec {3}})
        assert.are.same({"w1", "w2", "w3"}, names_of(p.weights))
        local x = flow.randn(3)
        same_bits(f(x), p(x), "f")
        flow.no_grad(function() w:add_(1) end)
        same_bits(f(x), p(x), "f after its weight has changed")
    end)

    it("keeps inputs that are not used and results that are inputs", function()
        local p = saved(flow.trace(function(x, _, z) return z, x + 1, x end,
            {flow.spec {2}, flow.spec({3}, "int64"), flow.spec {4}}))
        local x, y, z = flow.randn(2), flow.arange(3), flow.randn(4)
        local a, b, c = p(x, y, z)
        same_bits(z, a)
        same_bits(x + 1, b)
        same_bits(x, c)
    end)

    it("writes in place what the function writes", function()
        local counter = flow.zeros(3)
        local function f(x)
            counter:add_(1)
            x:mul_(2)
            local v = x:view(2, 2)[0]
            v:zero_()
            return x + 0, counter * 1
        end
        local p = saved(flow.trace(f, {flow.spec {4}}))
        local x = flow.ones(4)
        for i = 1, 3 do
            x:fill_(1)
            local a, b = p(x)
            same_bits(flow.tensor {0.0, 0.0, 2.0, 2.0}, a)
            same_bits(flow.tensor {0.0, 0.0, 2.0, 2.0}, x)
            same_bits(flow.full({3}, i + 0.0), b)
        end
        assert.are.equal(0, counter:sum():item())
    end)

    it("draws random numbers as the function does", function()
        local function f(x)
            local y = x:dropout(0.5) + flow.randn(4, 4)
            return y:dropout(0.25), flow.rand_like(x), flow.randint(0, 9, {3})
        end
        local p = flow.trace(f, {flow.spec {4, 4}})
        local x = flow.randn(4, 4)
        for _ = 1, 3 do same_results(seeded(f, x), seeded(p, x), "random") end
    end)

    it("keeps detach and no_grad for the gradients", function()
        local w = flow.randn(3, {requires_grad = true})
        local function f(x)
            local a = (x * w):detach() * w
            local b = flow.no_grad(function() return w * 2 end)
            return (a * b + flow.checkpoint(function(y) return y:exp() * w end, x)):sum()
        end
        local p = saved(flow.trace(f, {flow.spec {3}}))
        local x = flow.randn(3)
        same_bits(flow.grad(f(x), w), p:backward()(x), "gradient")
    end)

    it("holds gradients that the function asks for", function()
        local w = flow.randn(3, {requires_grad = true})
        local function f(x) return flow.grad((x * w):tanh():sum(), {x, w}) end
        local function both(x)
            local g = f(x)
            return g[1], g[2]
        end
        local p = flow.trace(both, {flow.spec({3}, {requires_grad = true})})
        assert.are.equal("save: step 7, tanh_backward, is an op that only gradients and optimizers call; save the program of " ..
            "the loss, and take p:backward() of it when it is read", error_of(p.save, p, path))
        local x = flow.randn(3)
        local a, b = both(x:clone():requires_grad_())
        local c, d = p(x)
        same_bits(a, c, "by x")
        same_bits(b, d, "by w")
    end)

    it("computes nothing and allocates nothing, however large", function()
        local net = flow.with_device("meta", nn.Linear, 100000, 100000)
        local before = flow.memory()
        local p = flow.trace(net, {flow.spec {1000000, 100000}})
        assert.are.equal(before.allocations, flow.memory().allocations)
        assert.are.same({"weight", "bias"}, names_of(p.weights))
        assert.are.equal(400000000000, p.values[p.outputs[1].value].bytes)
        assert.are.equal(400000000000, p:memory().own)
    end)

    it("says what it does not take", function()
        local x = flow.spec {3}
        local cases = {
            {"trace: takes a function and its specs: flow.trace(f, {flow.spec({64, 784})})", 3, {x}},
            {"trace: takes a function and its specs: flow.trace(f, {flow.spec({64, 784})})", math.abs},
            {"trace: the spec of y must be flow.spec(shape, dtype), got 'float32'", function(y) return y end, {"float32"}},
            {"trace: the spec of y must be flow.spec(shape, dtype), got a tensor with values; a tensor that f reaches " ..
                "from outside is a weight of the program", function(y) return y end, {flow.ones(3)}},
            {"trace: the spec 'z' is none of the first parameters of f (y)", function(y) return y end, {z = x}},
            {"trace: f must return tensors, result 1 is 5", function() return 5 end, {x}},
            {"item: float32[] on meta has no values to read: on the meta device shapes are inferred and nothing is " ..
                "computed; run this with device \"cpu\" or \"cuda\"", function(y) return y:sum():item() end, {x}},
            {"backward: a program that is traced has no place for x.grad; return flow.grad(loss, xs), or trace the loss " ..
                "alone and take its program's p:backward()", function(y) return y:sum():backward() end, {x}},
            {"trace: add (tests/program_spec.lua:LINE) reads a tensor on the meta device that is neither an input of the " ..
                "program nor a weight of a module that f calls", function(y) return y + x end, {x}},
            {"trace: inside of flow.trace; a program that is called there becomes part of it", function(y)
                return flow.trace(function(z) return z end, {x})(y)
            end, {x}},
        }
        for _, case in ipairs(cases) do
            assert.are.equal(case[1], (error_of(flow.trace, case[2], case[3]):gsub("spec%.lua:%d+%)", "spec.lua:LINE)")))
        end
        assert.are.equal("trace: a function that flow.capture records cannot trace; trace before it",
            error_of(flow.capture(function(y) return flow.trace(function(z) return z end, {x})(y) end), flow.ones(3)))
        assert.are.equal(6, (flow.ones(3) * 2):sum():item())    -- nothing is traced any more
    end)
end)

describe("a program", function()
    it("is part of a capture that calls it, gradients and all", function()
        local net, other = mlp(), mlp()
        other:load_state_dict(net:state_dict())
        local p = flow.trace(function(x, y) return net(x):cross_entropy(y) end, {flow.spec {4, 6}, flow.spec({4}, "int64")})
        local function trainer(model, loss)
            local optimizer = flow.optim.SGD(model:parameters(), {lr = 0.1})
            return function(x, y)
                optimizer:zero_grad()
                local l = loss(x, y)
                l:backward()
                optimizer:step()
                return l
            end
        end
        local eager = trainer(other, function(x, y) return other(x):cross_entropy(y) end)
        local step = flow.capture(trainer(net, p))
        local x, y = flow.randn(4, 6), flow.tensor {0, 1, 2, 1}
        for i = 1, 4 do same_results(seeded(eager, x, y), seeded(step, x, y), "step " .. i) end
        for i, w in ipairs(other:parameters()) do same_bits(w, net:parameters()[i], "parameter " .. i) end
    end)

    it("is part of a trace that calls it", function()
        local net = mlp():eval()
        local p = flow.trace(net, {flow.spec {4, 6}})
        local q = flow.trace(function(x) return p(x):softmax(-1) end, {flow.spec {4, 6}})
        assert.are.same({"1.weight", "1.bias", "4.weight", "4.bias"}, names_of(q.weights))
        local x = flow.randn(4, 6)
        same_bits(net(x):softmax(-1), q(x))
    end)

    it("has as many inputs and results as it needs", function()
        local specs, list = {}, {}
        for i = 1, 40 do specs[i], list[i] = flow.spec {2}, flow.full({2}, i + 0.5) end
        local function f(...)
            local results = {...}
            for i = 1, 80 do results[i] = (results[i] or results[1]) * i end
            return table.unpack(results)
        end
        local p = flow.trace(f, specs)
        for _ = 1, 2 do same_results(table.pack(f(table.unpack(list))), table.pack(p(table.unpack(list))), "list") end
        local q = flow.trace(function(x) return f(x) end, {flow.spec {2}})
        for _ = 1, 2 do same_results(table.pack(f(list[1])), table.pack(q(list[1])), "one") end
    end)

    it("says which inputs it takes", function()
        local p = flow.trace(function(x, y) return x + y end, {flow.spec {2, 3}, flow.spec {3}})
        assert.are.equal("a program of 2 inputs was called with 1 argument", error_of(p, flow.ones(2, 3)))
        assert.are.equal("the input 'y' must be a tensor, got 3", error_of(p, flow.ones(2, 3), 3))
        assert.are.equal("the input 'x' is float32[4, 3], the program was made for float32[2, 3]; p:infer{...} gives it " ..
            "for other shapes", error_of(p, flow.ones(4, 3), flow.ones(3)))
        assert.are.equal("a program has no 'weihgts'; did you mean 'weights'?", error_of(function() return p.weihgts end))
    end)

    it("is inferred for other shapes", function()
        local net = mlp():eval()
        local p = flow.trace(function(x) return net(x:reshape(-1, 6)):reshape(4, 3) end, {x = flow.spec {2, 2, 6}})
        local q = p:infer {x = {4, 1, 6}}
        local x = flow.randn(4, 1, 6)
        same_bits(net(x:reshape(-1, 6)), q(x))
        assert.are.equal(tostring(p):gsub("%[2, 2, 6%]", "[4, 1, 6]"), tostring(q))
        assert.are.equal("infer: step 4, reshape (tests/program_spec.lua:LINE): reshape: [5, 3] with 15 elements cannot become " ..
            "[4, 3]", (error_of(p.infer, p, {{5, 6}}):gsub("spec%.lua:%d+%)", "spec.lua:LINE)")))
        assert.are.equal("infer: the program has no input 'z'", error_of(p.infer, p, {z = {1}}))
        assert.are.equal("infer: the shape of 'x' must be a list, got 3", error_of(p.infer, p, {x = 3}))
    end)

    it("gives gradients of what is asked for", function()
        local w = flow.randn(3, {requires_grad = true})
        local p = flow.trace(function(x, y) return x * w, y * 2 end, {flow.spec {3}, flow.spec {3}})
        local x, g = flow.randn(3), flow.randn(3)
        assert.are.same({"x", "y", "grad1", "grad2"}, names_of(p:backward().inputs))
        same_bits(x * g, p:backward()(x, x, g, g), "w")
        local a, b = p:backward {"x", "y"}(x, x, g, g)
        same_bits(g * w, a, "x")
        same_bits(g * 2, b, "y")
        assert.are.equal("backward: the program has no input or weight 'v'", error_of(p.backward, p, {"v"}))
        local q = flow.trace(function(z, _) return z:floor():argmax() end, {flow.spec {3}, flow.spec {3}})
        assert.are.equal("backward: no result of the program depends on x1, x2 by ops with gradients",
            (error_of(q.backward, q):gsub("[z_], [z_]", "x1, x2"):gsub("_, z", "x1, x2")))
    end)

    it("prints in columns, and the same after it was read", function()
        local net = mlp()
        local p = flow.trace(net, {flow.spec {4, 6}})
        local line = debug.getinfo(1, "l").currentline - 1
        assert.are.equal(([[
program(x: float32[4, 6])
weights: 4, 332 bytes
    1.weight: float32[8, 6]
    1.bias: float32[8]
    4.weight: float32[3, 8]
    4.bias: float32[3]
value  op                                shape   dtype    bytes      line
%%1     linear_relu(x, 1.weight, 1.bias)  [4, 8]  float32  128 bytes  tests/program_spec.lua:LINE
%%2     dropout(%%1)                       [4, 8]  float32  128 bytes  tests/program_spec.lua:LINE
%%3     linear(%%2, 4.weight, 4.bias)      [4, 3]  float32  48 bytes   tests/program_spec.lua:LINE
returns %%3]]):gsub("%%%%", "%%"):gsub("LINE", line), tostring(p))
        assert.are.equal(tostring(p), tostring(saved(p)))
    end)

    it("plans memory by the lives of its values", function()
        local p = flow.trace(function(x)
            local a = x:exp()
            local b = a:sin()
            return b:matmul(b):view(-1), x:view(-1)
        end, {flow.spec {64, 64}})
        local bytes = 64 * 64 * 4
        assert.are.same({steps = 5, none = 2 * bytes, in_place = bytes, shared = bytes, own = bytes, weights = 0}, p:memory())
        local q = flow.trace(function(x)
            local a = x:sum(0)
            local b = a:cumsum(0)
            local c = b:cumsum(0)
            return c:cumsum(0)
        end, {flow.spec {8, 64}})
        assert.are.same({steps = 4, none = 768, in_place = 768, shared = 512, own = 256, weights = 0}, q:memory())
    end)

    it("measures its steps", function()
        local net = mlp()
        local p = flow.trace(net, {flow.spec {4, 6}})
        local profile = p:profile(2)
        assert.are.equal(3, #profile.steps)
        assert.are.equal(2 * 4 * 8 * 6, profile.steps[1].flops)
        assert.are.equal(4 * (4 * 6 + 8 * 6 + 8 + 4 * 8), profile.steps[1].bytes)
        local total = 0
        for _, step in ipairs(profile.steps) do
            assert.is_true(step.seconds > 0)
            total = total + step.seconds
        end
        assert.are.equal(profile.seconds, total)
        assert.is_truthy(tostring(profile):find("^value  op +us +time +GB/s  GFLOP/s  of limit  line\n"))
        assert.are.equal("profile: n must be a whole number >= 1, got 0", error_of(p.profile, p, 0))
    end)
end)

-- ---- pictures ----

describe("the picture of a program", function()
    local function residual(x, w)
        for _ = 1, 4 do x = x + (x:matmul(w)):relu() * x end
        local q, k, v = x:split(2, 1)
        return q * k + v, x
    end
    local p = flow.trace(residual, {flow.spec {4, 6}, flow.spec {6, 6}})

    it("is Graphviz text with a line for every node and edge", function()
        local text = p:dot()
        local _, nodes = text:gsub("%[label=", "")
        assert.are.equal(#p.inputs + #p.steps + #p.outputs, nodes)
        assert.is_truthy(text:find("^digraph program {\n") and text:find "\n}\n$")
        assert.is_truthy(text:find('n3 [label="%1 matmul\\nfloat32[4, 6]", fillcolor="#ffdfb8"];\n', 1, true))
        assert.is_truthy(text:find("    n1 -> n3;\n", 1, true))
    end)

    it("is an SVG whose boxes do not overlap", function()
        p:svg(path)
        local text = process.read(path)
        local boxes = {}
        for x, y, w, h in text:gmatch '<rect x="([-%d.]+)" y="([-%d.]+)" width="([%d.]+)" height="([%d.]+)" rx' do
            boxes[#boxes + 1] = {tonumber(x), tonumber(y), x + w, y + h}
        end
        assert.are.equal(#p.inputs + #p.steps + #p.outputs, #boxes)
        for i, a in ipairs(boxes) do
            for k = i + 1, #boxes do
                local b = boxes[k]
                assert.is_true(a[3] <= b[1] or b[3] <= a[1] or a[4] <= b[2] or b[4] <= a[2], i .. " and " .. k)
            end
        end
        for name, problem in pairs {
            ["/nowhere/x.svg"] = "/nowhere/x.svg: No such file or directory",
            ["/dev/null"] = "/dev/null exists and is not a regular file",
            ["x\0.svg"] = "the path 'x' continues after a NUL; a path cannot contain one",
        } do assert.are.equal("svg: " .. problem, error_of(p.svg, p, name)) end
    end)
end)

-- ---- files ----

describe("a file of a program", function()
    local net = mlp()
    local function loss(x, y)
        local h = net[1](x) * math.huge
        return net(x):cross_entropy(y) + (h:clamp(0, 1e30) + flow.zeros(4, 8)):sum() * 0 + x:reshape({-1}):mean({0})
    end
    local forward = flow.trace(loss, {flow.spec {4, 6}, flow.spec({4}, "int64")})
    local good, weights, tree

    setup(function()
        forward:backward():save(path)
        local metadata
        weights, metadata = flow.load(path)
        good = metadata["flow.program"]
    end)

    local function write(text)
        local names, tensors = {}, {}
        for name, t in pairs(weights) do names[#names + 1], tensors[#tensors + 1] = name, t end
        flow._io.save(path, names, tensors, {"flow.program", text})
    end

    -- The message about the file after `change` of its list.
    local function said(change)
        tree = json.decode(good)
        change(tree)
        write(json.encode(tree))
        return (error_of(flow.program, path):gsub(path, "FILE", 1))
    end

    local function step_of(name)
        for i, step in ipairs(tree.steps) do if step.op == name then return step, i end end
    end

    it("brings back numbers that JSON lacks", function()
        local p = saved(forward)
        local x, y = flow.randn(4, 6), flow.tensor {0, 1, 2, 1}
        same_results(seeded(loss, x, y), seeded(p, x, y))
    end)

    it("is told apart from other files", function()
        flow.save(path, {x = flow.ones(2)})
        assert.are.equal(("program: %s holds no program: p:save(path) writes one; flow.load reads tensors"):format(path),
            error_of(flow.program, path))
        assert.are.equal("program: /nowhere: No such file or directory", error_of(flow.program, "/nowhere"))
        write "[1, 2"
        assert.are.equal(("program: %s: its list of steps is not JSON"):format(path), error_of(flow.program, path))
    end)

    it("is an error that names the step", function()
        local cases = {
            {"its version is 2, this flowlua reads 1", function(t) t.version = 2 end},
            {"'steps' is not a list", function(t) t.steps = 3 end},
            {"the list: has a key 'more' that is not known", function(t) t.more = 1 end},
            {"value 3: 'shape' is not a list of whole numbers", function(t) t.values[3].shape = {-1, 2} end},
            {"value 3: 'dtype' is not a name", function(t) t.values[3].dtype = 7 end},
            {"input 2: has the name of another one, 'x'", function(t) t.inputs[2].name = "x" end},
            {"input 2: value 1 is made twice", function(t) t.inputs[2].value = 1 end},
            {"input 1: there is no value 4000", function(t) t.inputs[1].value = 4000 end},
            {"input 1 (x): spec: unknown dtype 'float33'; did you mean 'float32'?",
                function(t) t.values[1].dtype = "float33" end},
            {"weight 1 (none): is not in the file", function(t) t.weights[1].name = "none" end},
            {"weight 1 (1.weight): is float32[8, 6] in the file, and float32[8, 7] in the list",
                function(t) t.values[t.weights[1].value].shape = {8, 7} end},
            {"step 2 (mull): there is no such op", function(t) t.steps[2].op = "mull" end},
            {"step 2 (mul): there is no value 600", function(t) t.steps[2]["in"][1] = {value = 600} end},
            {"step 2 (mul): value 15 is used before it is made", function(t) t.steps[2]["in"][1] = {value = 15} end},
            {"step 2 (mul): an operand is not a number", function(t) t.steps[2]["in"][2] = "x" end},
            {"step 2, mul (LINE): mul: 1 operands do not fit mul(x|number, y|number)",
                function(t) t.steps[2]["in"][2] = nil end},
            {"step 2, mul (LINE): mul: x must be a tensor or a number, got nil",
                function(t) t.steps[2]["in"][1] = json.null end},
            {"step 2, mul (LINE): mul: has no attribute 'axis'", function(t) t.steps[2].attrs = {axis = 0} end},
            {"step 2, mul (LINE): mul: takes no options", function(t) t.steps[2].options = {device = "cpu"} end},
            {"step 2 (mul): 'device' is not a string", function(t) t.steps[2].options = {device = 1} end},
            {"step 2 (mul): 'in_place' is neither true nor false", function(t) t.steps[2].in_place = 1 end},
            {"step 2 (mul): makes float32[4, 8], and float32[4, 9] is written",
                function(t) t.values[t.steps[2].out[1]].shape[2] = 9 end},
            {"step 2 (mul): has fewer results than are written", function(t) t.steps[2].out[2] = t.steps[2].out[1] + 1 end},
            {"step 2 (mul): no step before it makes the draw that it repeats", function(t) t.steps[2].redraws = 9 end},
            {"step 2 (gelu_backward): is an op that only gradients and optimizers call",
                function(t) t.steps[2].op = "gelu_backward" end},
            {"step N, reshape (LINE): reshape: the attribute 'size' is missing",
                function() step_of "reshape".attrs = nil end},
            {"backward 1: the program has no input or weight 'z'", function(t) t.backward = {{"z"}} end},
            {"step N, clamp (LINE): clamp: min must be a number, got string", function() step_of "clamp".attrs.min = "0" end},
            {"output 1: value 500 is used before it is made", function(t)
                for i = #t.values + 1, 500 do t.values[i] = {name = "x" .. i, shape = {}, dtype = "float32"} end
                t.outputs[1].value = 500
            end},
        }
        for _, case in ipairs(cases) do
            local text = said(case[2]):gsub("%([^()]+%.lua:%d+%)", "(LINE)")
            if case[1]:find "step N" then text = text:gsub("step %d+", "step N") end
            assert.are.equal("program: FILE: " .. case[1], text)
        end
    end)

    -- Damages the list of steps in a seeded way: each file is read, or is an error of one line that begins with `program:`.
    it("is read or is an error, whatever is in it", function()
        local random = math.random
        math.randomseed(5)
        local extremes = {"0", "-1", "1", "2", "7", "255", "4096", "65536", "1e300", "0.5", "9223372036854775807", "null",
            "true", "[]", "{}", "[[1]]", '"x"', '{"value":1}', '{"float":"nan"}', "[1,2,3,4,5,6,7,8,9,10]"}
        local words = {}
        for _, op in ipairs(testing.ops()) do words[#words + 1] = op.name end
        for word in ("float64 int64 bool uint8 float16 cpu meta cuda op in attrs out sizes axis S(0) B"):gmatch "%S+" do
            words[#words + 1] = word
        end
        local function damaged()
            local rate = ({2, 5, 20})[random(3)]
            local text = good:gsub("%-?%d+%.?%d*", function(n)
                return random(1000) <= rate and extremes[random(#extremes)] or n
            end)
            return (text:gsub('"[%w_.%%]+"', function(s)
                return random(1000) <= rate and ('"%s"'):format(words[random(#words)]) or s
            end))
        end
        local read = 0
        for i = 1, 150 do
            local text = damaged()
            write(text)
            local ok, message = pcall(flow.program, path)
            if ok then
                read = read + 1
            else
                local said_what = tostring(message):match "^[^\n:]+:%d+: (program: [^\n%c]+)$"
                assert.is_truthy(said_what, i .. ": " .. tostring(message))
            end
        end
        assert.is_true(read > 5 and read < 145, read)
    end)
end)
