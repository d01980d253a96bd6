-- nn_spec.lua -- modules: order, names, state, printing, errors.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"

local function shape(t) return support.shape_text(t.shape) end

local Pair = nn.Module:extend("Pair")
function Pair:init()
    self.zeta = nn.Linear(3, 2)
    self.alpha = nn.Linear(2, 4, {bias = false})
    self.scale = nn.Parameter(flow.ones(4))
    self.count = 7
    self:register_buffer("mean", flow.zeros(4))
end
function Pair:forward(x) return self.alpha(self.zeta(x)) * self.scale + self.mean end

local function names(map)
    local list = {}
    for name in map do list[#list + 1] = name end
    return table.concat(list, " ")
end

describe("modules", function()
    it("keep the order of assignment", function()
        local net = Pair()
        assert.are.equal("scale zeta.weight zeta.bias alpha.weight", names(net:named_parameters()))
        assert.are.equal("mean", names(net:named_buffers()))
        assert.are.equal("zeta alpha", names(net:named_children()))
        assert.are.equal("scale mean zeta.weight zeta.bias alpha.weight", names(net:state_dict()))
        assert.are.equal(4, #net:parameters())
        assert.are.equal(3 * 2 + 2 + 2 * 4 + 4, net:count_parameters())
        local again = {}
        for name in pairs(net:named_parameters()) do again[#again + 1] = name end
        assert.are.equal("scale zeta.weight zeta.bias alpha.weight", table.concat(again, " "))
    end)

    it("count a shared parameter once", function()
        local net = nn.Module:extend("Tied")()
        net.a = nn.Linear(3, 3, {bias = false})
        net.b = nn.Linear(3, 3, {bias = false})
        net.b.weight = net.a.weight
        assert.are.equal("a.weight", names(net:named_parameters()))
        assert.are.equal("a.weight b.weight", names(net:state_dict()))
        net:to("float64")
        assert.are.equal("float64", net.a.weight.dtype)
        assert.is_true(rawequal(net.a.weight, net.b.weight))
    end)

    it("find modules in plain lists", function()
        local net = nn.Module:extend("Plain")()
        net.layers = {nn.Linear(1, 2), nn.Linear(2, 1)}
        assert.are.equal("layers.1.weight layers.1.bias layers.2.weight layers.2.bias", names(net:named_parameters()))
    end)

    it("keep a frozen parameter a parameter", function()
        local net = nn.Linear(2, 2)
        net:requires_grad_(false)
        assert.is_false(net.weight.requires_grad)
        assert.are.equal("weight bias", names(net:named_parameters()))
        net.bias = nil
        assert.are.equal("weight", names(net:named_parameters()))
        net.note = flow.ones(2)
        assert.are.equal("weight", names(net:state_dict()))
    end)

    it("apply, train and eval reach everything below", function()
        local net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout(0.5), nn.ReLU()))
        local seen = {}
        net:apply(function(m) seen[#seen + 1] = getmetatable(m).__name end)
        assert.are.equal("Linear Dropout ReLU Sequential Sequential", table.concat(seen, " "))
        net:eval()
        assert.is_false(net[2][1].training)
        net:train()
        assert.is_true(net[2][1].training)
        assert.is_true(net:is(nn.Sequential) and net:is(nn.ModuleList) and net:is(nn.Module) and not net:is(nn.Linear))
    end)

    it("drop gradients", function()
        local net = nn.Linear(2, 1)
        net(flow.ones(1, 2)):sum():backward()
        assert.is_truthy(net.weight.grad)
        net:zero_grad()
        assert.is_nil(net.weight.grad)
    end)

    it("print as a tree", function()
        local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Sequential(nn.LayerNorm(128), nn.Dropout(0.1)))
        assert.are.equal([[
Sequential(
  (1): Linear(in=784, out=128, bias=true)
  (2): ReLU()
  (3): Sequential(
    (1): LayerNorm([128], eps=1e-05)
    (2): Dropout(p=0.1)
  )
)]], tostring(net))
    end)

    it("make images smaller", function()
        local net = nn.Sequential(nn.Conv2d(3, 8, 3, {stride = {2, 1}, padding = 1, groups = 1}), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(8, 4, {1, 2}, {groups = 4, dilation = 2, bias = false}),
            nn.AvgPool2d(3, {stride = 1, padding = 1, count_include_pad = false}), nn.Flatten(), nn.Linear(4 * 3 * 4, 5))
        assert.are.equal([[
Sequential(
  (1): Conv2d(in=3, out=8, kernel=3, stride=2x1, padding=1, bias=true)
  (2): ReLU()
  (3): MaxPool2d(kernel=2, stride=2, padding=0)
  (4): Conv2d(in=8, out=4, kernel=1x2, stride=1, padding=0, dilation=2, groups=4, bias=false)
  (5): AvgPool2d(kernel=3, stride=1, padding=1, count_include_pad=false)
  (6): Flatten()
  (7): Linear(in=48, out=5, bias=true)
)]], tostring(net))
        local x = flow.randn(2, 3, 11, 12)
        local y = net(x)
        assert.are.equal("[2, 5]", shape(y))
        local h = flow.conv2d(x, net[1].weight, net[1].bias, {stride = {2, 1}, padding = 1}):relu()
        h = flow.conv2d(flow.max_pool2d(h, 2), net[4].weight, nil, {groups = 4, dilation = 2})
        h = flow.avg_pool2d(h, 3, 1, 1, {count_include_pad = false})
        assert.is_true((net[7](h:flatten(1)) - y):abs():amax():item() == 0)
        local same = nn.Conv2d(3, 4, {2, 3}, {padding = "same"})
        assert.are.equal("Conv2d(in=3, out=4, kernel=2x3, stride=1, padding=same, bias=true)", tostring(same))
        assert.are.equal("[2, 4, 11, 12]", shape(same(x)))
        local one = x[0]
        for i = 1, 5 do one = net[i](one) end
        assert.is_true((one - h[0]):abs():amax():item() < 1e-5)
        y:sum():backward()
        for _, p in ipairs(net:parameters()) do assert.is_truthy(p.grad:abs():amax():item() > 0) end
        local bound = 1 / math.sqrt(3 * 3 * 3)
        local weight = net[1].weight:detach():abs():amax():item()
        assert.is_true(weight <= bound and weight > 0.9 * bound)
    end)

    it("say where an error was", function()
        local GPT = nn.Module:extend("GPT")
        function GPT:init()
            self.blocks = nn.ModuleList {nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 4))}
        end
        function GPT:forward(x)
            for _, block in ipairs(self.blocks) do x = block(x) end
            return x
        end
        local ok, message = pcall(GPT(), flow.ones(2, 4))
        assert.is_false(ok)
        assert.matches("nn_spec.lua:%d+: in GPT.blocks%[2%]%[2%]: linear: ", message)
        ok, message = pcall(nn.Linear(4, 4), flow.ones(2, 3))
        assert.is_false(ok)
        assert.matches("nn_spec.lua:%d+: in Linear: linear: ", message)
    end)

    it("in a list are given one by one or as a list, and end where the list ends", function()
        local a, b = nn.ReLU(), nn.Tanh()
        for _, list in ipairs {nn.ModuleList(a, b), nn.ModuleList {a, b}, nn.Sequential(a, b), nn.Sequential {a, b}} do
            assert.are.equal(2, #list)
            assert.is_true(rawequal(list[1], a) and rawequal(list[2], b))
            local count = 0
            for i, part in ipairs(list) do
                assert.is_true(rawequal(part, list[i]))
                count = count + 1
            end
            assert.are.equal(2, count)
            assert.are.equal(2, select("#", table.unpack(list)))
            list[2] = a
            list[3.0] = b
            assert.is_true(rawequal(list:named_children()["3"], b))
            list[3] = nil
            assert.are.equal(2, #list)
            assert.is_true(rawequal(list[2], a))
        end
        assert.are.same({0, 0}, {#nn.ModuleList(), #nn.ModuleList {}})
    end)

    it("take their arguments by name as well", function()
        assert.are.equal("Linear(in=2, out=3, bias=false)", tostring(nn.Linear {inputs = 2, outputs = 3, bias = false}))
        assert.are.equal("Dropout(p=0.25)", tostring(nn.Dropout {p = 0.25}))
        assert.are.equal("Dropout(p=0.5)", tostring(nn.Dropout {}))
        assert.are.equal(3, math.type(nn.Linear(3.0, 2.0).inputs) == "integer" and nn.Linear(3.0, 2.0).inputs)
    end)

    it("have nil for a part that init assigned nil", function()
        local Block = nn.Module:extend("Block")
        function Block:init(down)
            self.down = nil
            if down then self.down = nn.ReLU() end
        end
        assert.is_nil(Block().down)
        assert.is_truthy(Block(true).down)
        assert.are.equal("down", names(Block(true):named_children()))
    end)

    it("work after an error in the middle", function()
        local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        assert.is_false(pcall(net, flow.ones(1, 3)))
        assert.are.equal("[1, 2]", shape(net(flow.ones(1, 2))))
    end)

    it("pass on errors that are no text", function()
        local Bad = nn.Module:extend("Bad")
        local token = {}
        function Bad.forward() error(token) end
        local ok, value = pcall(Bad())
        assert.is_false(ok)
        assert.is_true(rawequal(token, value))
    end)

    for _, case in ipairs {
        {"a misspelt method", function() return Pair().paramters end,
            "Pair has no field or method 'paramters'; did you mean 'parameters'?"},
        {"a field never assigned", function() return Pair().weights_of_everything end,
            "Pair has no field or method 'weights_of_everything'; a field that may be absent is assigned in init: "
                .. "self.weights_of_everything = nil"},
        {"an unknown option", function() nn.Linear(2, 3, {bais = false}) end,
            "Linear: unknown option 'bais'; did you mean 'bias'?"},
        {"an option of a wrong type", function() nn.Linear(2, 3, {bias = 1}) end,
            "Linear: bias must be true or false, got 1"},
        {"a size that is no whole number", function() nn.Linear(2.5, 3) end,
            "Linear: inputs must be a whole number >= 1, got 2.5"},
        {"a negative size", function() nn.Embedding(10, -1) end, "Embedding: width must be a whole number >= 1, got -1"},
        {"a kernel of three numbers", function() nn.Conv2d(1, 2, {3, 3, 3}) end,
            "Conv2d: kernel must be one number or {rows, columns}, got 3 numbers"},
        {"groups that do not divide", function() nn.Conv2d(4, 6, 3, {groups = 4}) end,
            "Conv2d: 4 inputs and 6 outputs cannot be divided into 4 groups"},
        {"padding of an unknown sort", function() nn.Conv2d(1, 2, 3, {padding = "sane"}) end,
            "Conv2d: padding must be numbers, \"same\" or \"valid\", got 'sane'; did you mean 'same'?"},
        {"the same size in steps", function() nn.Conv2d(1, 2, 3, {padding = "same", stride = 2}) end,
            "Conv2d: padding \"same\" needs stride 1, got stride 2"},
        {"a window of nothing", function() nn.MaxPool2d(0) end,
            "MaxPool2d: kernel must be a whole number >= 1, got 0"},
        {"an option of another pooling", function() nn.AvgPool2d(2, {dilation = 2}) end,
            "AvgPool2d: unknown option 'dilation'"},
        {"no size", function() nn.LayerNorm() end, "LayerNorm: missing argument 'sizes'"},
        {"an object for sizes", function() nn.LayerNorm(flow.data.tensors(flow.ones(4))) end,
            "LayerNorm: sizes must be a whole number >= 1 or a table, got Tensors"},
        {"an object for an sbp", function() nn.pin(flow.ones(4), flow.data.tensors(flow.ones(4))) end,
            'pin: sbp must be an sbp, as "S(0)", "B" or a list of them, got Tensors'},
        {"a width whose triple is no integer", function() nn.CausalSelfAttention(1 << 62, 1) end,
            "CausalSelfAttention: width 4611686018427387904 is too large"},
        {"a probability of NaN", function() nn.Dropout(0 / 0) end, nil},
        {"heads that do not divide", function() nn.CausalSelfAttention(10, 3) end,
            "CausalSelfAttention: width 10 is not a multiple of 3 heads"},
        {"no forward", function() nn.Module:extend("Empty")()(1) end, nil},
        {"a list item that is no module", function() nn.Sequential(nn.ReLU(), 3) end,
            "Sequential: item 2 must be a module, got 3"},
        {"no argument", function() nn.Linear() end, "Linear: missing argument 'inputs'"},
        {"an argument too many", function() nn.ZeroPad2d(1, 2) end, "ZeroPad2d: too many arguments: ZeroPad2d(padding: sides)"},
        {"an option too many", function() nn.Linear(2, 3, true, "relu", 1) end,
            "Linear: too many arguments: Linear(inputs: integer >= 1, outputs: integer >= 1, " ..
            "{bias: boolean = true, activation: relu|gelu|gelu_tanh?})"},
        {"an option of another type", function() nn.Conv2d(3, 8, 3, "same") end,
            "Conv2d: stride must be a whole number or {rows, columns}, got 'same'"},
        {"an option twice", function() nn.Conv2d(3, 8, 3, 1, {stride = 2}) end, "Conv2d: 'stride' is given twice"},
        {"a list for options", function() nn.Linear(2, 3, {false}) end, "Linear: bias must be true or false, got table"},
        {"PyTorch's names of arguments", function() nn.Conv2d(3, 8, {kernel_size = 3}) end,
            "Conv2d: unknown option 'kernel_size'; it is called 'kernel' here"},
        {"a key that is no name", function() nn.Linear(2, 3, {bias = true, [true] = 1}) end,
            "Linear: options must have names, got a key of type boolean"},
        {"an argument given twice", function() nn.Linear(2, 3, {outputs = 3}) end, "Linear: 'outputs' is given twice"},
        {"a word that is none of them", function() nn.GELU({approximate = "tahn"}) end,
            "GELU: approximate must be one of none|tanh, got 'tahn'; did you mean 'tanh'?"},
        {"an option of another function", function() nn.init.kaiming_normal(flow.ones(2, 2), {mode = "fan_out"}) end,
            "kaiming_normal: unknown option 'mode'"},
        {"a constructor without its object", function() nn.Linear.init(3, 4) end,
            "Linear: a method is called with a colon, module:init(); got 3 as the module"},
        {"a method called with a dot", function() nn.ReLU().forward(flow.ones(2)) end,
            "forward: a method is called with a colon, layer:forward(); got float32 tensor as the layer"},
        {"a method of another layer", function() nn.GELU.extra(nn.ReLU()) end,
            "extra: a method is called with a colon, layer:extra(); got ReLU as the layer"},
        {"what a layer does not take", function() nn.ReLU()(flow.ones(2), true) end,
            "in ReLU: forward: too many arguments: forward(x: tensor)"},
        {"an input that is no tensor", function() nn.CausalSelfAttention(4, 2)(nil) end,
            "in CausalSelfAttention: forward: x must be a tensor, got nil"},
        {"a nonlinearity that there is not", function() nn.init.gain("rellu") end,
            "gain: nonlinearity must be one of linear|conv1d|conv2d|conv3d|sigmoid|tanh|relu|leaky_relu|selu, "
                .. "got 'rellu'; did you mean 'relu'?"},
        {"module 0", function() return nn.Sequential(nn.ReLU(), nn.ReLU())[0] end,
            "Sequential has modules 1 to 2; Lua lists count from 1, got [0]"},
        {"the last module as -1", function() return nn.Sequential(nn.ReLU(), nn.ReLU())[-1] end,
            "Sequential has modules 1 to 2; Lua lists count from 1, got [-1]; the last is l[#l]"},
        {"the module after the last", function() return nn.Sequential(nn.ReLU(), nn.ReLU())[3] end,
            "Sequential has modules 1 to 2; Lua lists count from 1, got [3]"},
        {"a module of an empty list", function() return nn.ModuleList()[1] end,
            "ModuleList has no modules; Lua lists count from 1, got [1]"},
        {"a part by number of what has none", function() return nn.Linear(2, 2)[1] end,
            "Linear is not a list of modules, got [1]; its parts are in linear:children()"},
        {"ipairs over what is no list", function() for _ in ipairs(nn.Linear(2, 2)) do end end,
            "Linear is not a list of modules, got [1]; its parts are in linear:children()"},
        {"a list with a gap", function() nn.ModuleList(nn.ReLU())[3] = nn.ReLU() end,
            "ModuleList: [3] cannot be assigned; it has 1 modules, the next one is [2]"},
        {"a class for a module", function() nn.Sequential(nn.ReLU) end,
            "Sequential: item 1 must be a module, got class ReLU; write nn.ReLU()"},
        {"a class that takes arguments for a module", function() nn.ModuleList {nn.ReLU(), nn.Linear} end,
            "ModuleList: item 2 must be a module, got class Linear; write nn.Linear(...)"},
        {"an own class for a module", function() nn.Sequential(nn.Module:extend("Own")) end,
            "Sequential: item 1 must be a module, got class Own; write Own()"},
        {"a class that is appended", function() nn.ModuleList():append(nn.GELU) end,
            "append: item must be a module, got class GELU; write nn.GELU()"},
        {"modules by name", function() nn.ModuleList {x = nn.ReLU()} end,
            "ModuleList: takes a list of modules without names, got 'x'; write nn.ModuleList {a, b}"},
        {"some modules by name", function() nn.Sequential {nn.ReLU(), x = nn.ReLU()} end,
            "Sequential: takes a list of modules without names, got 'x'; write nn.Sequential {a, b}"},
        {"an ordered table of modules", function() nn.Sequential(nn.Sequential(nn.ReLU()):named_children()) end,
            "Sequential: takes a list of modules without names, got '1'; write nn.Sequential {a, b}"},
        {"a list that counts from 0", function() nn.Sequential {[0] = nn.ReLU(), nn.ReLU()} end,
            "Sequential: takes a list of modules without gaps, got the key 0"},
        {"a number in text", function() return nn.Sequential(nn.ReLU())["1"] end,
            "Sequential has no field or method '1'; index it by the number: [1]"},
        {"assigning to a number in text", function() nn.Sequential(nn.ReLU())["1"] = nn.ReLU() end,
            "Sequential: '1' cannot be assigned; index it by the number: [1]"},
        {"a number in text of what is no list", function() return nn.Linear(2, 2)["1"] end,
            "Linear has no field or method '1'"},
        {"a module between two", function() nn.Sequential(nn.ReLU())[1.5] = nn.ReLU() end,
            "Sequential: a field's key must be a name or a whole number, got 1.5"},
        {"a part 0 of what is no list", function() nn.Linear(2, 2)[0] = 3 end,
            "Linear: [0] cannot be assigned; it has 0 modules, the next one is [1]"},
        {"a field called true", function() nn.Linear(2, 2)[true] = 3 end,
            "Linear: a field's key must be a name or a whole number, got true"},
        {"nil in a list", function() nn.Sequential(nn.ReLU(), nil) end, "Sequential: item 2 must be a module, got nil"},
        {"a parameter that is no tensor", function() nn.Parameter(3) end,
            "Parameter: t must be a tensor of floats, got 3"},
    } do
        it("refuse " .. case[1], function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            assert.matches("^[^\n]*nn_spec.lua:%d+: ", message)
            if case[3] then assert.are.equal(case[3], (message:gsub("^.-:%d+: ", ""))) end
        end)
    end
end)

describe("options of modules", function()
    it("may be given in PyTorch's order, and by name behind it", function()
        local conv = nn.Conv2d(3, 8, 3, 2, 1, {bias = false})
        assert.are.same({"2 2", "1 1"}, {table.concat(conv.stride, " "), table.concat(conv.padding, " ")})
        assert.is_nil(conv.bias)
        assert.are.equal("1 1", table.concat(nn.Conv2d(3, 8, 3, nil, 1).padding, " "))
        assert.is_nil(nn.Linear(2, 3, false).bias)
        local pool, at = nn.MaxPool2d(2, 2, 0, 1, true)(flow.ones(1, 1, 4, 4))
        assert.are.equal("1 1 2 2", table.concat(pool.shape, " "))
        assert.are.equal("int64", at.dtype)
        assert.are.equal(16, nn.TransformerEncoderLayer(8, 2, 16, 0.0).linear1.outputs)
    end)

    it("let activations and dropouts write into their input", function()
        for _, layer in ipairs {nn.ReLU(true), nn.ReLU {inplace = true}, nn.SiLU(true), nn.Dropout(0.5, true)} do
            local x = flow.full({64}, -1.0)
            local y = layer(x)
            assert.is_true(flow.equal(x, y), tostring(layer))
            assert.is_false(flow.equal(x, flow.full({64}, -1.0)), tostring(layer))
        end
        assert.are.equal("ReLU(inplace=true) ReLU()", tostring(nn.ReLU(true)) .. " " .. tostring(nn.ReLU()))
    end)
end)

describe("state dicts", function()
    it("move values to another module", function()
        local a, b = Pair(), Pair()
        local x = flow.randn(2, 3)
        b:load_state_dict(a:state_dict())
        assert.are.same(a(x):totable(), b(x):totable())
        assert.is_true(b.scale.requires_grad and b.scale.is_leaf)
    end)

    for _, case in ipairs {
        {"a missing tensor", function(s) s["zeta.bias"] = nil end, "Pair: 'zeta.bias' is missing"},
        {"an unexpected tensor", function(s) s["zeta.bios"] = flow.zeros(2) end,
            "Pair: 'zeta.bios' is unexpected"}, -- zeta.bias is there
        {"a misspelt tensor", function(s) s["zeta.bais"] = s["zeta.bias"]; s["zeta.bias"] = nil end,
            "Pair: 2 problems\n    'zeta.bias' is missing; did you mean 'zeta.bais'?"
                .. "\n    'zeta.bais' is unexpected; did you mean 'zeta.bias'?"},
        {"the tensors of another model", function(s)
            for _, name in ipairs {"scale", "mean", "zeta.weight", "zeta.bias"} do s[name] = nil end
            for i = 1, 5 do s["encoder.layer" .. i] = flow.ones(1) end
        end, "Pair: 9 problems\n    'scale' is missing\n    'mean' is missing\n    'zeta.weight' is missing"
                .. "\n    'zeta.bias' is missing\n    'encoder.layer1' is unexpected\n    'encoder.layer2' is unexpected"
                .. "\n    'encoder.layer3' is unexpected\n    and 2 more"},
        {"another shape", function(s) s["zeta.bias"] = flow.zeros(3) end, "Pair: 'zeta.bias' is [3], the module's is [2]"},
        {"no tensor", function(s) s.scale = 4 end, "Pair: 'scale' is a number, not a tensor"},
    } do
        it("with " .. case[1] .. " change nothing", function()
            local net = Pair()
            local state = net:state_dict()
            local copy = {}
            for name, t in state do copy[name] = t + 1 end
            case[2](copy)
            local before = net.zeta.weight:totable()
            assert.are.equal("load_state_dict: " .. case[3], support.error_of(net.load_state_dict, net, copy))
            assert.are.same(before, net.zeta.weight:totable())
        end)
    end
end)

describe("state dicts that are not strict", function()
    it("leave alone what only one of the two has, and say what that is", function()
        local net, state = Pair(), {}
        for name, t in Pair():state_dict() do state[name] = t + 1 end
        state.scale, state["zeta.bias"], state.old = nil, nil, flow.ones(1)
        local scale, weight = net.scale:totable(), state["zeta.weight"]:totable()
        local lacking, unexpected = net:load_state_dict(state, {strict = false})
        assert.are.same({{"scale", "zeta.bias"}, {"old"}}, {lacking, unexpected})
        assert.are.same({scale, weight}, {net.scale:totable(), net.zeta.weight:totable()})
        lacking, unexpected = net:load_state_dict(Pair():state_dict())
        assert.are.same({{}, {}}, {lacking, unexpected})
    end)

    for _, case in ipairs {
        {"another shape", {scale = flow.zeros(3)}, {strict = false}, "Pair: 'scale' is [3], the module's is [4]"},
        {"an unknown option", {}, {strikt = false}, "unknown option 'strikt'; did you mean 'strict'?"},
        {"an option of a wrong type", {}, {strict = 0}, "strict must be true or false, got 0"},
        {"no options", {}, false, "options must be a table with names, got false"},
    } do
        it("refuse " .. case[1], function()
            assert.are.equal("load_state_dict: " .. case[4], support.error_of(Pair().load_state_dict, Pair(), case[2], case[3]))
        end)
    end
end)

describe("modules that go wrong", function()
    for _, case in ipairs {
        {"a method without its module", function() nn.ReLU().parameters() end,
            "parameters: a method is called with a colon, net:parameters(); got nil as the net"},
        {"an argument of what has none", function() nn.ReLU():parameters(true) end,
            "parameters: too many arguments: parameters()"},
        {"a field called like a method", function() nn.ReLU().modules = {} end,
            "ReLU: 'modules' is a method of modules; a field needs another name"},
        {"a module that contains itself", function()
            local net = nn.Sequential(nn.ReLU())
            net[2] = net
            return tostring(net)
        end, "Sequential contains itself, as '2'"},
        {"a buffer with a dot", function() nn.ReLU():register_buffer("a.b", flow.ones(1)) end,
            "register_buffer: a name must not be empty or contain a dot, got 'a.b'"},
        {"a number as a parameter", function() nn.Linear(2, 3).weight = 3 end,
            "Linear: 'weight' is a parameter: it takes a tensor (or nil, to drop it), got 3"},
        {"a tensor in the place of a module", function() nn.Sequential(nn.ReLU())[1] = flow.ones(2) end,
            "Sequential: item 1 must be a module, got float32 tensor"},
        {"a module's class in its place", function()
            local net = nn.Module:extend("Net")()
            net.act = nn.ReLU()
            net.act = nn.GELU
        end, "Net: 'act' is a module: it takes a module (or nil, to drop it), got class GELU; write nn.GELU()"},
        {"a buffer called like a parameter", function() nn.Linear(2, 3):register_buffer("weight", flow.ones(2)) end,
            "register_buffer: 'weight' is already a parameter of Linear; drop it first: module.weight = nil"},
        {"a parameter called like a field", function() nn.Dropout():register_parameter("p", flow.ones(2)) end,
            "register_parameter: 'p' is already a field of Dropout; drop it first: module.p = nil"},
        {"a number as a name in a list", function() nn.ModuleList {nn.ReLU()}:register_buffer("2", flow.ones(2)) end,
            "register_buffer: a name must not be a number, got '2'; assign by the number: module[2] = ..."},
        {"a dtype, also without parameters", function() nn.ReLU():to("flaot32") end,
            "to: unknown dtype or device 'flaot32'; did you mean 'float32'?"},
        {"arguments of a class without init", function() nn.Module:extend("Net")(3) end,
            "init: too many arguments: init()"},
        {"a class made with a dot", function() nn.Module.extend("Net") end,
            "extend: a method is called with a colon, nn.Module:extend(); got 'Net' as the nn.Module"},
    } do
        it("refuse " .. case[1], function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            assert.matches("^[^\n]*nn_spec.lua:%d+: ", message)
            assert.are.equal(case[3], (message:gsub("^.-:%d+: ", "")))
        end)
    end
end)

describe("conversions", function()
    it("to a dtype leave whole numbers alone", function()
        local net = Pair()
        net:register_buffer("steps", flow.zeros(1, {dtype = "int64"}))
        net:to("float64")
        assert.are.equal("float64", net.zeta.weight.dtype)
        assert.are.equal("int64", net.steps.dtype)
        assert.is_true(net.zeta.weight.is_leaf and net.zeta.weight.requires_grad)
        assert.are.equal("scale zeta.weight zeta.bias alpha.weight", names(net:named_parameters()))
    end)

    it("to global tensors compute the same", function()
        local net, x = Pair(), flow.randn(4, 3)
        local y = net(x)
        local p = flow.placement.all("cpu")
        net:to_global {placement = p, sbp = "B"}
        assert.is_true(net.zeta.weight.is_global)
        local z = net(x:to_global {placement = p, sbp = "S(0)"})
        assert.are.equal("S(0)", tostring(z.sbp))
        support.close(y, z:to_local(), 1e-6, "global")
    end)
end)

describe("ordered tables", function()
    local function walked(t)
        local list = {}
        for name, v in pairs(t) do list[#list + 1] = name .. v end
        return table.concat(list, " ")
    end

    it("may lose entries while they are walked, as Lua's tables may", function()
        local state = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)):state_dict()
        for name in pairs(state) do
            if name:find "bias" then state[name] = nil end
        end
        assert.are.equal(2, #state)
        local left = {}
        for name in state do
            left[#left + 1] = name
            state[name] = nil
        end
        assert.are.same({"1.weight", "3.weight"}, left)
        assert.are.equal(0, #state)
        assert.is_nil(pairs(state)(state))
    end)

    it("put a key that comes again at the end, however often", function()
        local t = require "flow.ordered".new()
        for i, name in ipairs {"a", "b", "c"} do t[name] = i end
        for i = 1, 100 do
            t.a = nil
            t.a = i
            assert.are.equal("b2 c3 a" .. i, walked(t))
            t.c = 3
            assert.are.equal(3, #t)
        end
        t.b = nil
        t.none = nil
        assert.are.equal("c3 a100", walked(t))
        assert.is_nil(t.b)
    end)

    it("are walked by loops inside loops", function()
        local t, seen = require "flow.ordered".new(), {}
        t.x = 1
        t.y = 2
        for a in pairs(t) do
            for b in t do seen[#seen + 1] = a .. b end
        end
        assert.are.same({"xx", "xy", "yx", "yy"}, seen)
    end)
end)
