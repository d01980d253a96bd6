-- layers_spec.lua -- layers of flow.nn against what they are made of, and initialisers.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"

local function shape(t) return support.shape_text(t.shape) end

local function names(map)
    local list = {}
    for name in map do list[#list + 1] = name end
    return table.concat(list, " ")
end

describe("layers", function()
    it("say what they are, copy themselves and go from training to evaluation", function()
        for name, how in pairs(require "tests.layers") do
            if how[1] and name ~= "Module" then
                local net = nn[name](table.unpack(how[1]))
                assert.are.equal(name, tostring(net):match "^%w+", name)
                local copy = net:clone():eval()
                assert.are.equal(tostring(net), tostring(copy), name)
                assert.are.same({net.training, copy.training}, {true, false}, name)
            end
        end
    end)

    it("Linear is x W^T + b, initialised as PyTorch does", function()
        local net = nn.Linear(100, 50)
        local x = flow.randn(3, 100)
        support.close(x:matmul(net.weight:t()) + net.bias, net(x), 1e-5, "linear")
        assert.is_true(net.weight:abs():max():item() <= 0.1 and net.weight:abs():max():item() > 0.09)
        assert.is_true(net.bias:abs():max():item() <= 0.1)
        assert.are.equal("[2, 4, 50]", shape(net(flow.ones(2, 4, 100))))
    end)

    it("LayerNorm normalises and learns scale and shift", function()
        local net = nn.LayerNorm(8)
        local x = flow.randn(5, 8) * 3 + 2
        local y = net(x)
        support.close(flow.zeros(5), y:mean(-1), 1e-5, "mean")
        assert.are.equal("weight bias", names(net:named_parameters()))
        assert.are.equal("weight", names(nn.LayerNorm(8, {bias = false}):named_parameters()))
        assert.are.equal("", names(nn.LayerNorm(8, {affine = false}):named_parameters()))
    end)

    it("layers that normalise have weight and bias in this order", function()
        for name, net in pairs {BatchNorm = nn.BatchNorm2d(4), InstanceNorm = nn.InstanceNorm1d(4, {affine = true}),
                GroupNorm = nn.GroupNorm(2, 4)} do
            assert.are.equal("weight bias", names(net:named_parameters()), name)
        end
    end)

    it("Linear applies its activation", function()
        local x = flow.randn(6, 5)
        local activations = {
            relu = flow.relu, gelu = flow.gelu, gelu_tanh = function(y) return flow.gelu(y, "tanh") end,
        }
        for name, f in pairs(activations) do
            local net = nn.Linear(5, 3, {activation = name})
            assert.are.equal(("Linear(in=5, out=3, bias=true, activation=%s)"):format(name), tostring(net))
            support.same(f(flow.linear(x, net.weight, net.bias)), net(x), name, 0)
        end
        assert.are.equal("Linear: activation must be one of relu|gelu|gelu_tanh, got 'swish'", support.error_of(nn.Linear, 5, 3, {activation = "swish"}))
    end)

    it("Sequential computes a Linear and the activation after it as one", function()
        local x = flow.randn(4, 3)
        for _, case in ipairs {
            {nn.ReLU(), "linear_relu"}, {nn.GELU(), "linear_gelu"}, {nn.GELU({approximate = "tanh"}), "linear_gelu"},
        } do
            local linear, after = nn.Linear(3, 4), case[1]
            local net = nn.Sequential(linear, after)
            assert.is_truthy(tostring(net(x)):find("gradient through " .. case[2], 1, true), tostring(net(x)))
            support.same(after(linear(x)), net(x), case[2], 0)
            support.same(after(linear(after(x))), nn.Sequential(after, linear, after)(x), case[2], 0)
            support.same(after(after(linear(x))), nn.Sequential(linear, after, after)(x), case[2], 0)
        end
    end)

    it("Sequential leaves alone what is not those two", function()
        local x = flow.randn(4, 3)
        local Doubled = nn.Linear:extend("Doubled")
        function Doubled:forward(y) return nn.Linear.forward(self, y) * 2 end
        local Shifted = nn.ReLU:extend("Shifted")
        function Shifted:forward(y) return nn.ReLU.forward(self, y) + 1 end
        local relu_first = nn.Linear(3, 3, {activation = "relu"})
        for _, pair in ipairs {
            {Doubled(3, 3), nn.ReLU()}, {nn.Linear(3, 3), Shifted()}, {nn.Linear(3, 3), nn.Tanh()}, {relu_first, nn.GELU()},
        } do
            support.same(pair[2](pair[1](x)), nn.Sequential(pair[1], pair[2])(x), tostring(pair[2]), 0)
        end
        local whole = nn.Linear(3, 3):requires_grad_(false):to("int64")
        local integers = flow.tensor({{1, 2, 3}})
        support.same(whole(integers):relu(), nn.Sequential(whole, nn.ReLU())(integers), "integers", 0)
    end)

    it("Embedding picks rows", function()
        local net = nn.Embedding(10, 4)
        local y = net(flow.tensor({{1, 9}, {0, 1}}))
        assert.are.equal("[2, 2, 4]", shape(y))
        assert.are.same(net.weight[9]:totable(), y[{0, 1}]:totable())
    end)

    it("Dropout drops only while training", function()
        local net, x = nn.Dropout(0.5), flow.ones(1000)
        local kept = net(x):gt(0):sum():item()
        assert.is_true(kept > 400 and kept < 600)
        net:eval()
        assert.are.same(x:totable(), net(x):totable())
    end)

    it("attention looks back and never ahead", function()
        local net = nn.CausalSelfAttention(8, 2)
        local x = flow.randn(1, 5, 8)
        local y = net(x)
        local z = x:clone()
        z[{0, 4}] = 100.0
        support.close(y:narrow(1, 0, 4), net(z):narrow(1, 0, 4), 1e-6, "past")
        assert.are_not.same(y[{0, 4}]:totable(), net(z)[{0, 4}]:totable())
    end)

    it("attention equals its definition", function()
        local net = nn.CausalSelfAttention(6, 2):to("float64")
        local x = flow.randn({2, 4, 6}, {dtype = "float64"})
        local qkv = net.qkv(x):view(2, 4, 2, 3, 3)      -- [batch, time, head, q k v, width]
        local q, k, v = qkv:select(3, 0):transpose(1, 2), qkv:select(3, 1):transpose(1, 2), qkv:select(3, 2):transpose(1, 2)
        local scores = q:matmul(k:transpose(2, 3)) / math.sqrt(3)
        local mask = flow.ones(4, 4):triu(1):to("bool")
        local weights = scores:masked_fill(mask, -math.huge):softmax(-1)
        local want = net.projection(weights:matmul(v):transpose(1, 2):reshape(2, 4, 6))
        support.close(want, net(x), 1e-9, "attention")
    end)

    for _, case in ipairs {
        {"ReLU", {0, 0, 2}}, {"Tanh", {-0.76159416, 0, 0.96402758}},
        {"Sigmoid", {0.26894142, 0.5, 0.88079708}}, {"SiLU", {-0.26894142, 0, 1.76159416}},
        {"GELU", {-0.15865525, 0, 1.95449974}}, {"Identity", {-1, 0, 2}},
    } do
        it(case[1] .. " is its function", function()
            support.close(flow.tensor(case[2], {dtype = "float32"}), nn[case[1]]()(flow.tensor({-1.0, 0, 2})), 1e-6, case[1])
        end)
    end

    it("Softmax and Flatten", function()
        support.close(flow.ones(2), nn.Softmax()(flow.randn(2, 5)):sum(-1), 1e-6, "softmax")
        local x = flow.ones(2, 3, 4, 5)
        for _, case in ipairs {
            {nn.Flatten(), "[2, 60]", "Flatten()"},
            {nn.Flatten(0), "[120]", "Flatten(start_axis=0, end_axis=-1)"},
            {nn.Flatten(1, 2), "[2, 12, 5]", "Flatten(start_axis=1, end_axis=2)"},
            {nn.Flatten {end_axis = -2}, "[2, 12, 5]", "Flatten(start_axis=1, end_axis=-2)"},
            {nn.Unflatten(1, {3, 1}), "[2, 3, 1, 4, 5]", "Unflatten(axis=1, sizes=[3, 1])"},
            {nn.Unflatten {axis = -1, sizes = {5, -1}}, "[2, 3, 4, 5, 1]", "Unflatten(axis=-1, sizes=[5, -1])"},
        } do assert.are.same({case[2], case[3]}, {shape(case[1](x)), tostring(case[1])}) end
        for _, case in ipairs {
            {function() nn.Flatten {start_dim = 0} end, "Flatten: unknown option 'start_dim'; it is called 'start_axis' here"},
            {function() nn.Flatten {end_dim = 0} end, "Flatten: unknown option 'end_dim'; it is called 'end_axis' here"},
            {function() x:flatten {start_dim = 0} end, "flatten: unknown option 'start_dim'; it is called 'start_axis' here"},
            {function() nn.Unflatten {dim = 1} end, "Unflatten: unknown option 'dim'; it is called 'axis' here"},
        } do assert.are.equal(case[2], support.message_of(case[1])) end
    end)

    it("embeddings begin with a tensor's rows", function()
        local w, i = flow.randn(4, 3), flow.tensor({3, 0})
        for _, case in ipairs {
            {nn.Embedding.from_pretrained(w), false}, {nn.Embedding.from_pretrained(w, false), true},
            {nn.Embedding.from_pretrained(w, {freeze = false, padding_idx = 3, max_norm = 100}), true},
            {nn.Embedding(4, 3, {weight = w}), true},
        } do
            support.same(w:index_select(0, i), case[1](i), "rows", 0)
            assert.are.same({case[2], 1, "weight"}, {case[1].weight.requires_grad, #case[1]:parameters(), names(case[1]:state_dict())})
        end
        local bag = nn.EmbeddingBag.from_pretrained(w, {freeze = true, mode = "sum"})
        support.close(w:index_select(0, i):sum(0, {keepdim = true}), bag(i:reshape(1, 2)), 1e-6, "bag")
        assert.is_false(bag.weight.requires_grad)
        for _, case in ipairs {
            {function() nn.Embedding.from_pretrained(w[0]) end, "Embedding.from_pretrained: embeddings must be [count, width], got [3]"},
            {function() nn.Embedding.from_pretrained(i) end,
                "Embedding.from_pretrained: embeddings must be a tensor of floats, got int64 tensor"},
            {function() nn.EmbeddingBag.from_pretrained(w[0]) end,
                "EmbeddingBag.from_pretrained: embeddings must be [count, width], got [3]"},
            {function() nn.Embedding(3, 4, {weight = w}) end, "Embedding: weight must be [3, 4], got [4, 3]"},
            {function() nn.EmbeddingBag(3, 4, {weight = w}) end, "EmbeddingBag: weight must be [3, 4], got [4, 3]"},
        } do assert.are.equal(case[2], support.message_of(case[1])) end
    end)

    it("normalisations may have a weight without a bias", function()
        local x = flow.randn(2, 4, 5)
        for _, case in ipairs {
            {nn.BatchNorm1d(4, {bias = false}), nn.BatchNorm1d(4)}, {nn.GroupNorm(2, 4, {bias = false}), nn.GroupNorm(2, 4)},
            {nn.InstanceNorm1d(4, {affine = true, bias = false}), nn.InstanceNorm1d(4, {affine = true})},
        } do
            local net, like = case[1], case[2]
            assert.is_nil(net.bias)
            assert.are.same({1, 2}, {#net:parameters(), #like:parameters()})
            assert.is_truthy(tostring(net):find(", bias=false)", 1, true))
            support.same(like(x), net(x), tostring(net), 0)
            support.same(like:eval()(x), net:eval()(x), tostring(net), 0)
            net(x):sum():backward()
        end
    end)

    it("refuse a dtype and a device by what to write", function()
        for _, case in ipairs {
            {function() nn.Linear(2, 2, {dtype = "float64"}) end, 'Linear: unknown option \'dtype\'; write Linear(...):to "float64"'},
            {function() nn.ReLU {device = "cuda"} end, 'ReLU: unknown option \'device\'; write ReLU(...):to "cuda"'},
            {function() nn.LSTM(2, 2, {device = "cpu"}) end, 'LSTM: unknown option \'device\'; write LSTM(...):to "cpu"'},
        } do assert.are.equal(case[2], support.message_of(case[1])) end
    end)

    it("losses are the functions of their name", function()
        local x, y = flow.randn(4, 3), flow.tensor({0, 2, 1, 1})
        assert.are.equal(flow.cross_entropy(x, y):item(), nn.CrossEntropyLoss()(x, y):item())
        assert.are.equal("[4]", shape(nn.CrossEntropyLoss({reduction = "none"})(x, y)))
        assert.are.equal(flow.mse_loss(x, x + 1):item(), nn.MSELoss()(x, x + 1):item())
    end)

    it("losses keep the weights of classes as a buffer, which moves with them", function()
        local x, y, w = flow.randn(4, 3), flow.tensor({0, 2, 1, 1}), flow.tensor({1.0, 2, 3})
        for _, name in ipairs {"CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "MultiLabelSoftMarginLoss", "BCELoss"} do
            local loss = nn[name] {weight = w}
            assert.are.equal("weight", names(loss:state_dict()), name)
            assert.are.equal("float64", loss:to("float64").weight.dtype, name)
            assert.is_nil(nn[name]().weight, name)
            assert.are.equal("", names(nn[name]():state_dict()), name)
        end
        assert.are.equal("weight pos_weight", names(nn.BCEWithLogitsLoss {weight = w, pos_weight = w}:state_dict()))
        local loss = nn.CrossEntropyLoss {weight = w, label_smoothing = 0.1}
        assert.are.equal(flow.cross_entropy(x, y, w, {label_smoothing = 0.1}):item(), loss(x, y):item())
        loss:load_state_dict {weight = flow.ones(3)}
        assert.are.equal(flow.cross_entropy(x, y, {label_smoothing = 0.1}):item(), loss(x, y):item())
    end)
end)

describe("initialisers", function()
    local function spread(t) return t:abs():max():item() end
    for _, case in ipairs {
        {"kaiming_uniform", math.sqrt(2) * math.sqrt(3 / 200)}, {"xavier_uniform", math.sqrt(6 / 300)},
    } do
        it(case[1] .. " keeps its bound", function()
            local t = nn.init[case[1]](flow.empty(100, 200))
            assert.is_true(spread(t) <= case[2] * (1 + 1e-7) and spread(t) > 0.98 * case[2])    -- rounded to float32
        end)
    end
    for _, case in ipairs {{"kaiming_normal", math.sqrt(2 / 200)}, {"xavier_normal", math.sqrt(2 / 300)}} do
        it(case[1] .. " has its deviation", function()
            local std = nn.init[case[1]](flow.empty(100, 200)):std():item()
            assert.is_true(math.abs(std / case[2] - 1) < 0.05)
        end)
    end
    it("leave a weight without elements as it is", function()
        for _, name in ipairs {"kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal"} do
            for _, gain in ipairs {0, 1} do
                assert.are.equal(0, nn.init[name](flow.empty(2, 0), gain):numel())
                assert.are.equal(0, nn.init[name](flow.empty(1, 2, 0, 5), gain):numel())
            end
        end
    end)
    it("fill in place, also what requires grad", function()
        local p = nn.Parameter(flow.empty(3))
        assert.are.same({2, 2, 2}, nn.init.constant(p, 2):totable())
        assert.are.same({0, 0, 0}, nn.init.zeros(p):totable())
        assert.are.same({1, 1, 1}, nn.init.ones(p):totable())
        assert.is_true(p.is_leaf and p.requires_grad)
    end)
    it("draw the same numbers from the same seed", function()
        flow.manual_seed(3)
        local a = nn.Linear(5, 5).weight:totable()
        flow.manual_seed(3)
        assert.are.same(a, nn.Linear(5, 5).weight:totable())
    end)
end)
