-- module_more_spec.lua -- copies, containers, lazy layers, buffers without state, summaries, utilities, initialisers.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"
local message = support.message_of

describe("states with hooks", function()
    it("are changed on their way out and in", function()
        local net, seen = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1))), {}
        local inner = net[2]
        inner:register_state_dict_pre_hook(function(_, prefix) seen[#seen + 1] = "save " .. prefix end)
        local out = inner:register_state_dict_post_hook(function(module, state, prefix)
            seen[#seen + 1] = rawequal(module, inner) and "saved " .. prefix
            state[prefix .. "weight"], state[prefix .. "1.weight"] = state[prefix .. "1.weight"], nil
        end)
        net:register_state_dict_post_hook(function(_, state, prefix)
            seen[#seen + 1] = "all " .. prefix
            state.version = flow.tensor(3)
        end)
        local state = net:state_dict()
        assert.are.same({"save 2.", "saved 2.", "all "}, seen)
        assert.is_nil(state["2.1.weight"])
        assert.are.equal("1 2", table.concat(state["2.weight"].shape, " "))
        assert.are.equal(3, state.version:item())

        local other, keys = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1))), nil
        other:register_load_state_dict_pre_hook(function(_, given) given.version = nil end)
        other[2]:register_load_state_dict_pre_hook(function(_, given, prefix)
            given[prefix .. "1.weight"], given[prefix .. "weight"] = given[prefix .. "weight"], nil
        end)
        other:register_load_state_dict_post_hook(function(_, found) keys = found end)
        other:load_state_dict(state)
        assert.are.same({missing_keys = {}, unexpected_keys = {}}, keys)
        assert.is_true(flow.equal(other[2][1].weight, inner[1].weight))
        assert.are.equal(3, state.version:item())       -- the hooks have changed a copy

        out:remove()
        assert.is_not_nil(net:clone():state_dict()["2.1.weight"])
        assert.are.equal(3, net:clone():state_dict().version:item())
    end)

    it("parts are put at a path", function()
        local net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1)))
        net:set_submodule("2.1", nn.Tanh())
        net:set_submodule("2.gate", nn.Sigmoid())
        assert.are.equal("Tanh() Sigmoid()", tostring(net[2][1]) .. " " .. tostring(net[2].gate))
        assert.is_false(pcall(net.set_submodule, net, "3.x", nn.Tanh()))
    end)
end)

describe("states with more than tensors", function()
    local Counter = nn.Module:extend("Counter")
    function Counter:init(steps)
        self.scale = nn.Parameter(flow.ones(1))
        self.steps, self.names, self.sum = steps or 0, {}, flow.zeros(2)
    end
    function Counter:get_extra_state() return {steps = self.steps, names = self.names, sum = self.sum, 2.5} end
    function Counter:set_extra_state(extra) self.steps, self.names, self.sum = extra.steps, extra.names, extra.sum end

    local function filled()
        local net = nn.Sequential(Counter(7), nn.Linear(2, 1))
        net[1].names, net[1].sum = {"a", b = true}, flow.tensor {1.0, 2}
        return net
    end

    it("are kept, in a file too, and loaded", function()
        local net, names = filled(), {}
        for name in net:state_dict() do names[#names + 1] = name end
        assert.are.same({"1.scale", "1._extra_state", "2.weight", "2.bias"}, names)
        local path = os.tmpname()
        flow.save(path, net:state_dict())
        for _, state in ipairs {net:state_dict(), flow.load(path), flow.load(path, {lazy = true})} do
            local other = nn.Sequential(Counter(), nn.Linear(2, 1))
            other:load_state_dict(state)
            assert.are.equal(7, other[1].steps)
            assert.are.same({"a", b = true}, other[1].names)
            assert.are.same({1, 2}, other[1].sum:totable())
            assert.is_true(flow.equal(net[2].weight, other[2].weight))
        end
        os.remove(path)
        assert.are.equal(7, net:clone()[1].steps)
    end)

    it("are found by names that count from 0", function()
        local state = {}
        for name, value in filled():state_dict() do state[name:gsub("^%d", function(n) return ("%d"):format(n - 1) end)] = value end
        local other = nn.Sequential(Counter(), nn.Linear(2, 1))
        other:load_state_dict(state)
        assert.are.equal(7, other[1].steps)
    end)

    it("are strict where the class has the method of that direction", function()
        local net, state = filled(), filled():state_dict()
        state["1._extra_state"], state["2._extra_state"] = nil, 3
        assert.are.equal("load_state_dict: Sequential: 2 problems\n    '1._extra_state' is missing; did you mean '2._extra_state'?" ..
            "\n    '2._extra_state' is unexpected; did you mean '1._extra_state'?", message(function() net:load_state_dict(state) end))
        assert.are.same({{"1._extra_state"}, {"2._extra_state"}}, {net:load_state_dict(state, {strict = false})})
        assert.are.equal(7, net[1].steps)
        local Half = nn.Module:extend("Half")
        function Half.get_extra_state() return 1 end
        assert.are.equal("load_state_dict: Half: '_extra_state' is unexpected", message(function() Half():load_state_dict(Half():state_dict()) end))
    end)

    it("say what cannot be kept", function()
        local net = filled()
        net[1].names = print
        assert.are.equal("save: '1._extra_state.names' is a function; tensors, numbers, strings, booleans and tables can be saved",
            message(function() flow.save(os.tmpname(), net:state_dict()) end))
        function Counter.get_extra_state() end
        assert.are.equal("get_extra_state: Counter must return a value, got nil", message(function() net:state_dict() end))
        assert.are.equal("get_extra_state: Linear has no state beside its tensors", message(function() net[2]:get_extra_state() end))
        assert.are.equal("set_extra_state: Linear takes no state beside its tensors", message(function() net[2]:set_extra_state(1) end))
    end)
end)

describe("modules", function()
    it("are copied with all that they hold", function()
        local net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        local calls = 0
        net[1]:register_forward_hook(function() calls = calls + 1 end)
        local copy = net:clone()
        local x = flow.randn(5, 3)
        support.same(net(x), copy(x), "copy", 0)
        assert.are.equal(2, calls)
        local _ = (function() local _ <close> = flow.no_grad() copy[1].weight:zero_() end)()
        assert.is_true(net[1].weight:abs():sum():item() > 0)
        assert.is_true(copy[1].weight.requires_grad and copy[1].weight.is_leaf)
        local tied = nn.ModuleList(nn.Linear(2, 2), nn.Linear(2, 2))
        tied[2].weight = tied[1].weight
        local both = tied:clone()
        assert.is_true(rawequal(both[1].weight, both[2].weight))
    end)

    it("have buffers that no state has", function()
        local Net = nn.Module:extend("Net")
        function Net:init()
            self:register_buffer("kept", flow.zeros(2))
            self:register_buffer("cache", flow.zeros(3), false)
        end
        local net, names = Net(), {}
        for name in net:state_dict() do names[#names + 1] = name end
        assert.are.same({"kept"}, names)
        assert.are.equal(2, #net:buffers())
        net:load_state_dict({kept = flow.ones(2)})
        assert.are.equal(2, net.kept:sum():item())
        assert.are.equal(2, #net:clone():buffers())
    end)

    it("are printed with what extra or extra_repr says", function()
        local One, Two = nn.Module:extend("One"), nn.Module:extend("Two")
        function One.extra() return "one" end
        function Two.extra_repr() return "two" end
        assert.are.equal("One(one) Two(two)", tostring(One()) .. " " .. tostring(Two()))
    end)

    it("have the buffers that nn.Buffer gave them", function()
        local net, source = nn.Linear(2, 2), flow.ones(3):requires_grad_()
        net.kept = nn.Buffer(source)
        net.cache = nn.Buffer(flow.zeros(2), {persistent = false})
        local function names(map)
            local list = {}
            for name in map do list[#list + 1] = name end
            return table.concat(list, " ")
        end
        assert.are.equal("kept cache", names(net:named_buffers()))
        assert.are.equal("weight bias kept", names(net:state_dict()))
        assert.are.equal("weight bias", names(net:named_parameters()))
        assert.is_false(net.kept.requires_grad)
        net.cache = flow.ones(2)
        assert.are.equal("weight bias kept", names(net:state_dict()))
        net.cache = nn.Buffer(flow.ones(2))
        assert.are.equal("weight bias kept cache", names(net:state_dict()))
        net:double()
        assert.are.equal("float64", net.cache.dtype)
        local copy = net:clone()
        assert.are.equal("kept cache", names(copy:named_buffers()))
        net.note = flow.ones(1)
        for want, key in pairs {
            ["Linear: 'weight' is already a parameter of Linear; drop it first: module.weight = nil"] = "weight",
            ["Linear: 'note' is already a field of Linear; drop it first: module.note = nil"] = "note",
        } do assert.are.equal(want, message(function() net[key] = nn.Buffer(flow.ones(1)) end)) end
        assert.are.equal("Buffer: missing argument 't'", message(function() nn.Buffer() end))
    end)

    it("take a state that counts from 0", function()
        local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        local state = {["0.weight"] = flow.ones(3, 2), ["0.bias"] = flow.ones(3), ["2.weight"] = flow.ones(1, 3), ["2.bias"] = flow.zeros(1)}
        net:load_state_dict(state)
        assert.are.equal(6, net[1].weight:sum():item())
        assert.are.equal(3, net[3].weight:sum():item())
        state["2.bias"] = nil
        assert.is_false(pcall(net.load_state_dict, net, state))
    end)

    it("are found by path, with their tensors", function()
        local net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)))
        assert.is_true(rawequal(net[2][1], net:get_submodule "2.1"))
        assert.is_true(rawequal(net[2][1].bias, net:get_parameter "2.1.bias"))
        assert.are.equal("get_submodule: Sequential has no module '2.3'; did you mean '2.1'?", message(function() net:get_submodule "2.3" end))
        assert.are.equal("get_buffer: Sequential has no buffer 'x'", message(function() net:get_buffer "x" end))
    end)

    it("have a summary", function()
        local net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        assert.are.equal(table.concat({
            "module       result  parameters  bytes", "Sequential   [5, 4]           0      0",
            "  1: Linear  [5, 4]          16     64", "  2: ReLU    [5, 4]           0      0",
            "total                        16     64"}, "\n"), net:summary(flow.randn(5, 3)))
        assert.is_true(net.training)
    end)

    it("change dtype by name, and clear gradients to zeros", function()
        local net = nn.Linear(2, 2)
        assert.are.equal("float64", net:double().weight.dtype)
        assert.are.equal("bfloat16", net:bfloat16().weight.dtype)
        net:float()
        net(flow.ones(1, 2)):sum():backward()
        net:zero_grad(false)
        assert.are.equal(0, net.weight.grad:abs():sum():item())
        net:zero_grad()
        assert.is_nil(net.weight.grad)
    end)
end)

describe("containers", function()
    it("take functions and insert modules", function()
        local net = nn.Sequential(nn.Linear(2, 2), flow.tanh)
        local x = flow.randn(3, 2)
        support.same(net[1](x):tanh(), net(x), "function", 0)
        net:insert(2, nn.ReLU())
        support.same(net[1](x):relu():tanh(), net(x), "insert", 0)
        assert.are.equal("ReLU()", tostring(net:pop(2)))
        assert.are.equal(2, #net)
    end)

    it("take parts with names in a Sequential", function()
        local net = nn.Sequential {{"up", nn.Linear(2, 3)}, {"act", nn.ReLU()}, {"round", flow.tanh}, {"down", nn.Linear(3, 1)}}
        local plain = nn.Sequential(net.up, net.act, net.round, net.down)
        local x = flow.randn(4, 2)
        support.same(plain(x), net(x), "forward", 0)
        assert.are.same({4, true, true}, {#net, net[1] == net.up, net[4] == net.down})
        local keys, walked = {}, 0
        for name in net:state_dict() do keys[#keys + 1] = name end
        for _ in ipairs(net) do walked = walked + 1 end
        assert.are.same({"up.weight", "up.bias", "down.weight", "down.bias"}, keys)
        assert.are.equal(4, walked)
        support.same(plain(x), net:clone()(x), "clone", 0)
        net.act = nn.Tanh()
        support.same(net.down(net.up(x):tanh():tanh()), net(x), "replaced", 0)
        for _, case in ipairs {
            {function() return net[5] end, "Sequential has modules 1 to 4; Lua lists count from 1, got [5]"},
            {function() net:append(nn.ReLU()) end, "Sequential: [5] cannot be assigned; its parts have names: module.up = ..."},
            {function() net[2] = nn.ReLU() end, "Sequential: [2] cannot be assigned; its parts have names: module.act = ..."},
            {function() nn.Sequential {{"a", nn.ReLU()}, {"a", nn.ReLU()}} end, "Sequential: 'a' is the name of two parts"},
            {function() nn.Sequential {{"a", nn.ReLU()}, nn.ReLU()} end, "Sequential: entry 2 must be {name, module}"},
            {function() nn.Sequential {{"a", nn.ReLU}} end, "Sequential: 'a' must be a module, got class ReLU; write nn.ReLU()"},
            {function() nn.Sequential {{"append", nn.ReLU()}} end,
                "Sequential: 'append' is a method of Sequential; a part needs another name"},
        } do assert.are.equal(case[2], support.message_of(case[1])) end
    end)

    it("by name keep an order", function()
        local dict = nn.ModuleDict {{"b", nn.Linear(1, 1)}, {"a", nn.ReLU()}}
        assert.are.same({"b", "a"}, dict:keys())
        assert.is_true(dict:has "a" and not dict:has "c")
        local names = {}
        for name, part in pairs(dict) do names[#names + 1] = name .. tostring(part):match "%a+" end
        assert.are.same({2, {"bLinear", "aReLU"}}, {#dict, names})
        assert.are.equal(1, #nn.ModuleDict:extend("Named") {a = nn.ReLU()})
        assert.is_true(rawequal(dict.b, dict:get "b"))
        dict:set("c", nn.Tanh()):pop "b"
        assert.are.same({"a", "c"}, dict:keys())
        local weights = nn.ParameterDict {x = flow.ones(2), y = flow.zeros(3)}
        assert.are.same({2, 2}, {#weights, #weights:parameters()})
        local list = nn.ParameterList {flow.ones(2), flow.zeros(3)}
        list:append(flow.ones(1))
        assert.are.equal(3, #list)
        assert.is_true(list[1].requires_grad)
        assert.are.equal(3, #list:parameters())
    end)

    it("by name refuse what is no entry and names that would hide a method", function()
        local dict, weights, list = nn.ModuleDict {}, nn.ParameterDict {}, nn.ParameterList {}
        for _, case in ipairs {
            {function() dict:set("a", 3) end, "ModuleDict:set: 'a' must be a module, got 3"},
            {function() dict:update {a = nn.ReLU} end, "ModuleDict:update: 'a' must be a module, got class ReLU; write nn.ReLU()"},
            {function() nn.ModuleDict {a = {bias = 1}} end, "ModuleDict: 'a' must be a module, got table"},
            {function() nn.ModuleDict(nn.ReLU()) end, "ModuleDict: takes a table by names, got ReLU; write {name = ...}"},
            {function() dict:set("keys", nn.ReLU()) end, "ModuleDict:set: 'keys' is a method of dictionaries; an entry needs another name"},
            {function() weights:set("get", flow.ones(2)) end, "ParameterDict:set: 'get' is a method of dictionaries; an entry needs another name"},
            {function() weights:set("train", flow.ones(2)) end, "set: register_parameter: 'train' is a method of modules; a field needs another name"},
            {function() weights:set("a", 3) end, "ParameterDict:set: takes tensors, got 3"},
            {function() weights:pop "a" end, "ParameterDict:pop: there is no 'a'"},
            {function() list:append(flow.tensor {1}) end, "append: Parameter: t must be a tensor of floats, got int64 tensor"},
        } do assert.are.equal(case[2], (support.message_of(case[1]):gsub("^.-:%d+: ", ""))) end
        assert.are.same({{}, {}, 0}, {dict:keys(), weights:keys(), #list})
    end)

    it("lazy layers become what they stand for", function()
        local net = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
        for _, case in ipairs {
            {"parameters", net, "parameters: '1' (LazyLinear) has no weights yet; run the net once on a batch first"},
            {"named_parameters", net[1], "named_parameters: LazyLinear has no weights yet; run the net once on a batch first"},
            {"requires_grad_", net, "requires_grad_: parameters: '1' (LazyLinear) has no weights yet; run the net once on a batch first"},
        } do assert.are.equal(case[3], support.message_of(case[2][case[1]], case[2])) end
        net:zero_grad()
        assert.are.equal("[5, 4]", support.shape_text(net(flow.randn(5, 3)).shape))
        assert.are.equal("Linear(in=3, out=4, bias=true)", tostring(net[1]))
        assert.are.equal(2, #net:parameters())
        local conv = nn.LazyConv2d(4, 3, {padding = 1})
        assert.are.equal("[2, 4, 8, 8]", support.shape_text(conv(flow.randn(2, 3, 8, 8)).shape))
        assert.is_true(conv:is(nn.Conv2d))
    end)

    it("lazy layers take the weights of a state", function()
        local function make(lazy)
            if not lazy then
                return nn.Sequential(nn.Conv2d(4, 6, 3, {groups = 2}), nn.BatchNorm2d(6), nn.ConvTranspose2d(6, 2, 2),
                    nn.InstanceNorm2d(2), nn.Linear(5, 3), nn.Linear(3, 2))
            end
            return nn.Sequential(nn.LazyConv2d(6, 3, {groups = 2}), nn.LazyBatchNorm2d(), nn.LazyConvTranspose2d(2, 2),
                nn.LazyInstanceNorm2d(), nn.LazyLinear(3), nn.LazyLinear(2))
        end
        local from, x = make(false), flow.randn(2, 4, 6, 6)
        local state, theirs = from:state_dict(), {}
        for name, t in state do theirs[name:gsub("^%d+", function(n) return ("%d"):format(n - 1) end)] = t end
        for _, given in ipairs {state, theirs} do
            local net = make(true):eval()
            net[4] = nn.InstanceNorm2d(2):eval()        -- no state has its number of channels
            net:load_state_dict(given)
            support.same(from:eval()(x), net(x), "loaded", 0)
            assert.are.equal(#from:parameters(), #net:parameters())
        end
        assert.are.equal("load_state_dict: LazyLinear: 'weight' is unexpected",
            support.message_of(function() nn.LazyLinear(2):load_state_dict {weight = flow.ones(2)} end))
    end)
end)

describe("utilities", function()
    it("limit gradients and join parameters", function()
        local net = nn.Linear(3, 2)
        local loss = (net(flow.ones(4, 3)) * 5):sum()
        loss:backward()
        nn.utils.clip_grad_value_(net:parameters(), 1)
        assert.are.equal(1, net.weight.grad:max():item())
        local norm = nn.utils.clip_grad_norm_(net:parameters(), 1, 1)
        assert.are.equal(8, norm:item())
        local vector = nn.utils.parameters_to_vector(net:parameters())
        nn.utils.vector_to_parameters(vector * 2, net:parameters())
        support.same(vector * 2, nn.utils.parameters_to_vector(net:parameters()), "vector", 0)
    end)

    it("take weights apart", function()
        local net, x = nn.Linear(3, 2), flow.randn(4, 3)
        local before = net(x)
        nn.utils.weight_norm(net)
        support.close(before, net(x), 1e-5, "weight_norm")
        net(x):sum():backward()
        assert.is_true(net.weight_g.grad ~= nil and net.weight_v.grad ~= nil)
        nn.utils.remove_weight_norm(net)
        support.close(before, net(x), 1e-5, "removed")
        nn.utils.spectral_norm(net)
        for _ = 1, 30 do net(x) end
        local weight = net.weight:detach()
        support.close(flow.tensor(1.0), flow.linalg.svdvals(weight):max(), 1e-3, "spectral")
        assert.are.equal(2, #nn.utils.remove_spectral_norm(net):parameters())
    end)
end)

describe("initialisers", function()
    it("have PyTorch's names", function()
        local init, w = nn.init, flow.empty(6, 4)
        support.close(flow.eye(4), init.orthogonal_(w):t():matmul(w), 1e-5, "orthogonal")
        local wide = init.orthogonal_(flow.empty(4, 6), 2)
        support.close(flow.eye(4) * 4, wide:matmul(wide:t()), 1e-4, "wide")
        support.same(flow.eye(6, 4), init.eye_(w), "eye", 0)
        local x = flow.randn(2, 4, 5, 5)
        support.same(x, flow.conv2d(x, init.dirac_(flow.empty(4, 4, 3, 3)), nil, 1, 1), "dirac", 0)
        local sparse = init.sparse_(flow.empty(10, 4), 0.3)
        assert.are.equal(12, sparse:eq(0):sum():item())
        local cut = init.trunc_normal_(flow.empty(20000), 1, 0.5, 0.5, 2)
        assert.is_true(cut:min():item() >= 0.5 and cut:max():item() <= 2)
        -- mean of a normal of mean 1 and deviation 0.5 within [-1, 2] deviations
        assert.is_true(math.abs(cut:mean():item() - (1 + 0.5 * (0.24197 - 0.05399) / 0.81859)) < 0.02)
        local t = init.kaiming_normal_(flow.empty(400, 100), 0, "fan_out", "relu")
        assert.is_true(math.abs(t:std():item() - math.sqrt(2 / 400)) < 0.003)
    end)
end)

describe("quantized layers", function()
    for _, case in ipairs {{8, nil, 0.02}, {8, 16, 0.02}, {4, nil, 0.25}, {4, 16, 0.25}} do
        local bits, group, bound = table.unpack(case, 1, 3)
        it(("of %d bits in groups of %s are close to floats"):format(bits, group or "their own"), function()
            local net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))
            for _, rows in ipairs {1, 3, 50} do
                local x = flow.randn(rows, 64)
                local want = net(x):detach()
                local got = nn.quantize(net:clone(), bits, group)(x)
                assert.is_true((got - want):abs():max():item() < bound * math.max(want:abs():max():item(), 1))
            end
        end)
        it(("of %d bits in groups of %s multiply by the weight that they have"):format(bits, group or "their own"), function()
            local layer = nn.QuantizedLinear(nn.Linear(64, 40), bits, group)
            local weight = flow._op.dequantize(layer.weight, layer.scales, bits)
            for _, rows in ipairs {1, 4, 5, 33} do
                local x = flow.randn(rows, 64):requires_grad_()
                local want, y = flow.linear(x, weight, layer.bias), layer(x)
                support.close(want, y, 1e-4, "rows")
                support.close(flow.ones(rows, 40):matmul(weight), flow.grad(y:sum(), {x})[1], 1e-4, "gradient")
                support.close(want:to("float64"), layer:clone():to("float64")(x:detach():to("float64")), 1e-4, "float64")
            end
        end)
    end
end)
