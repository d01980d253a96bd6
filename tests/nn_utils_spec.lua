-- nn_utils_spec.lua -- parameters that are computed or pruned, hooks in backward, functions of functions, an adaptive
-- softmax. tests/peer/cases_func.py has the numbers beside PyTorch.
local flow = require "flow"
local support = require "tests.support"

local nn, message = flow.nn, support.message_of
local prune, parametrize, parametrizations = nn.utils.prune, nn.utils.parametrize, nn.utils.parametrizations

local function names(net)
    local list = {}
    for name in net:named_parameters() do list[#list + 1] = name end
    return list
end

local function linear(weight)
    local net = nn.Linear(#weight[1], #weight, {bias = false})
    flow.no_grad(function() net.weight:copy_(flow.tensor(weight)) end)
    return net
end

describe("prune", function()
    it("takes the least, and of what is left the next time", function()
        local net = linear {{1, -2, 3}, {-4, 5, -6}}
        prune.l1_unstructured(net, "weight", 2)
        assert.are.same({{0, 0, 3}, {-4, 5, -6}}, net.weight:totable())
        prune.l1_unstructured(net, "weight", 0.5)
        assert.are.same({{0, 0, 0}, {0, 5, -6}}, net.weight:totable())
        assert.are.same({"weight_orig"}, names(net))
        assert.is_true(prune.is_pruned(nn.Sequential(net)))
        net(flow.ones(1, 3)):sum():backward()
        assert.are.same({{0, 0, 0}, {0, 1, 1}}, net.weight_orig.grad:totable())
        prune.remove(net, "weight")
        assert.are.same({"weight"}, names(net))
        assert.are.same({{0, 0, 0}, {0, 5, -6}}, net.weight:totable())
        assert.is_false(prune.is_pruned(net))
    end)

    it("takes rows and columns, several parameters together, at random", function()
        local net = linear {{1, -2, 3}, {-4, 5, -6}}
        prune.ln_structured(net, "weight", 1, 2, 1)
        assert.are.same({{0, -2, 3}, {0, 5, -6}}, net.weight:totable())
        local one, two = linear {{1, 9}}, linear {{2, 3}}
        prune.global_unstructured({{one, "weight"}, {two, "weight"}}, 2)
        assert.are.same({{{0, 9}}, {{0, 3}}}, {one.weight:totable(), two.weight:totable()})
        local drawn = prune.random_unstructured(linear {{1, 2, 3, 4}}, "weight", 0.25)
        assert.are.equal(3, drawn.weight_mask:sum():item())
        assert.are.equal(2, prune.random_structured(linear {{1, 2}, {3, 4}}, "weight", 1, 0).weight_mask:sum():item())
    end)

    it("asks a script's own methods about what is left", function()
        local EverySecond = prune.BasePruningMethod:extend "EverySecond"
        function EverySecond:compute_mask(_, default_mask) -- luacheck: ignore self
            local kept = flow.arange(default_mask:numel()):remainder(2):reshape(default_mask.shape)
            return default_mask * kept
        end
        local net = linear {{1, 2, 3}, {4, 5, 6}}
        EverySecond:apply(net, "weight")
        assert.are.same({{0, 2, 0}, {4, 0, 6}}, net.weight:totable())
        EverySecond():apply(net, "weight")
        assert.are.same({{0, 0, 0}, {4, 0, 0}}, net.weight:totable())
        local Columns = prune.BasePruningMethod:extend "Columns"
        Columns.PRUNING_TYPE, Columns.axis = "structured", 1
        function Columns:init(count) self.count = count end
        function Columns:compute_mask(t, default_mask)
            assert.are.equal(self.count, t:size(1))
            return default_mask * flow.arange(t:size(1)):ne(0):to "float32"
        end
        local other = linear {{1, 2, 3}, {4, 5, 6}}
        Columns:apply(other, "weight", 3)
        Columns:apply(other, "weight", 2)
        assert.are.same({{0, 0, 3}, {0, 0, 6}}, other.weight:totable())
    end)

    it("has methods as classes, one after the other and with scores", function()
        assert.are.same({3, 0, 0}, prune.L1Unstructured(2):prune(flow.tensor {3.0, 1, 2}):totable())
        local both = prune.PruningContainer(prune.L1Unstructured(1), prune.LnStructured(1, 1, 1))
        assert.are.same({{0, 0, 2}, {0, 5, 6}}, both:prune(flow.tensor {{3.0, 1, 2}, {1, 5, 6}}):totable())
        local net = linear {{1, -2, 3}, {-4, 5, -6}, {7, 8, 9}}
        prune.l1_unstructured(net, "weight", 2)
        prune.ln_structured(net, "weight", 1, 2, 1)
        prune.l1_unstructured(net, "weight", 0.5)
        assert.are.same({{0, 0, 0}, {0, 0, -6}, {0, 8, 9}}, net.weight:totable())
        local scored = linear {{1, 2, 3}, {4, 5, 6}}
        prune.ln_structured(scored, "weight", 1, 2, 0, {importance_scores = flow.tensor {{1, 1, 1}, {0, 0, 0}}:float()})
        assert.are.same({{1, 2, 3}, {0, 0, 0}}, scored.weight:totable())
        local one, two = linear {{1, 9}}, linear {{2, 3}}
        local list = {{one, "weight"}, {two, "weight"}}
        prune.global_unstructured(list, prune.L1Unstructured, {amount = 2})
        prune.global_unstructured(list, 1, {importance_scores = {false, flow.tensor {{0.0, 0.5}}}})
        assert.are.same({{{0, 9}}, {{0, 0}}}, {one.weight:totable(), two.weight:totable()})
    end)

    it("checks what is no method", function()
        local one = linear {{1, 2}}
        local Wrong = prune.BasePruningMethod:extend "Wrong"
        function Wrong:compute_mask() return flow.ones(3) end -- luacheck: ignore self
        for want, f in pairs {
            ["apply: Wrong: compute_mask must give a mask of shape [1, 2], got [3]"] = function() Wrong:apply(one, "weight") end,
            ["X has no compute_mask(t, default_mask)"] = function() prune.BasePruningMethod:extend("X"):apply(one, "weight") end,
            ["apply: net must be a module, got 'weight'"] = function() Wrong:apply("weight") end,
            ["add_pruning_method: method must be an object of a pruning method, got class identity"] = function()
                prune.PruningContainer():add_pruning_method(prune.Identity)
            end,
            ["global_unstructured: method must be a class of unstructured methods, got class ln_structured"] = function()
                prune.global_unstructured({{one, "weight"}}, prune.LnStructured, {amount = 1})
            end,
            ["global_unstructured: the amount is missing"] = function() prune.global_unstructured({{one, "weight"}}) end,
            ["l1_unstructured: 'weight' is [1, 2], the importance scores [2]"] = function()
                prune.l1_unstructured(one, "weight", 1, {importance_scores = flow.ones(2)})
            end,
        } do assert.are.equal(want, message(f)) end
    end)

    it("checks the amount, the mask and the name", function()
        assert.are.equal("l1_unstructured: amount 9 is more than the 2 there are",
            message(function() prune.l1_unstructured(linear {{1, 2}}, "weight", 9) end))
        assert.are.equal("l1_unstructured: amount must be a share from 0 to 1 or a whole number, got 1.5",
            message(function() prune.l1_unstructured(linear {{1, 2}}, "weight", 1.5) end))
        assert.are.equal("custom_from_mask: 'weight' is [1, 2], the mask [2]",
            message(function() prune.custom_from_mask(linear {{1, 2}}, "weight", flow.ones(2)) end))
        assert.are.equal("remove: 'weight' is not pruned", message(function() prune.remove(linear {{1}}, "weight") end))
    end)
end)

describe("parametrize", function()
    local Symmetric = nn.Module:extend "Symmetric"
    function Symmetric:forward(x) return x:triu() + x:triu(1):t() end -- luacheck: ignore self

    it("computes a parameter before each forward, and removes it", function()
        local net = linear {{1, 2}, {3, 4}}
        parametrize.register_parametrization(net, "weight", Symmetric())
        assert.are.same({{1, 2}, {2, 4}}, net.weight:totable())
        assert.are.same({"parametrizations.weight.original"}, names(net))
        assert.is_true(parametrize.is_parametrized(net, "weight"))
        net(flow.tensor {{1.0, 0.0}}):sum():backward()
        assert.are.same({{1, 1}, {0, 0}}, net.parametrizations.weight.original.grad:totable())
        local copy = net:clone()
        flow.no_grad(function() copy.parametrizations.weight.original:mul_(2) end)
        assert.are.same({{3, 6}}, net(flow.ones(1, 2)):totable())
        assert.are.same({{6, 12}}, copy(flow.ones(1, 2)):totable())
        parametrize.remove_parametrizations(net, "weight", false)
        assert.are.same({{1, 2}, {3, 4}}, net.weight:totable())
        assert.is_false(parametrize.is_parametrized(net))
    end)

    it("computes a parameter once where it is cached", function()
        local calls = 0
        local Counted = nn.Module:extend "Counted"
        function Counted:forward(x) -- luacheck: ignore self
            calls = calls + 1
            return x * 2
        end
        local net = parametrize.register_parametrization(linear {{1, 2}}, "weight", Counted())
        local x = flow.ones(1, 2)
        local function twice() return (net(x) + net(x)):item() end
        calls = 0
        assert.are.same({12, 2}, {twice(), calls})
        assert.are.same({12, 3}, {parametrize.cached(twice), calls})
        do
            local _ <close> = parametrize.cached()
            parametrize.cached(twice)
            assert.are.same({12, 4}, {twice(), calls})
        end
        assert.are.same({12, 6}, {twice(), calls})
    end)

    it("works in captured and in traced functions", function()
        local net = parametrize.register_parametrization(linear {{1, 2}, {3, 4}}, "weight", Symmetric())
        local opt = flow.optim.SGD(net:parameters(), 0.5)
        local x = flow.tensor {{1.0, 0.0}}
        local step = flow.capture(function()
            opt:zero_grad()
            local loss = net(x):sum()
            loss:backward()
            opt:step()
            return loss
        end)
        local losses = {}
        for i = 1, 4 do losses[i] = step():item() end
        assert.are.same({3, 2, 1, 0}, losses)
        assert.are.equal(0, flow.trace(function(y) return net(y):sum() end, {flow.spec {1, 2}})(x):item() + 1)
        assert.are.equal("cpu", net.weight.device)
        local copy = net:clone()
        parametrize.remove_parametrizations(copy, "weight", true)
        assert.are.equal(-1, copy(x):sum():item())
    end)

    it("has weight_norm and spectral_norm", function()
        local net = linear {{3, 4}, {0, 2}}
        parametrizations.weight_norm(net)
        assert.are.same({{5}, {2}}, net.parametrizations.weight.original0:totable())
        assert.are.same({{7, 2}}, net(flow.ones(1, 2)):totable())
        assert.are.equal("remove_parametrizations: 'weight' has 2 originals; leave_parametrized must be true",
            message(function() parametrize.remove_parametrizations(net, "weight", false) end))
        local other = parametrizations.spectral_norm(linear {{3, 4}, {0, 2}}, "weight", 30)
        other(flow.ones(1, 2))
        flow.testing.assert_close(flow.linalg.svdvals(other.weight:detach()):amax(), flow.tensor(1.0))
    end)

    it("trains orthogonal matrices", function()
        flow.manual_seed(2)
        for _, size in ipairs {{3, 3}, {4, 2}, {2, 4}} do
            local net = parametrizations.orthogonal(nn.Linear(size[2], size[1], false))
            local opt = flow.optim.SGD(net:parameters(), {lr = 0.5})
            local first = net.weight:detach()
            for _ = 1, 3 do
                opt:zero_grad()
                net(flow.ones(1, size[2])):square():sum():backward()
                opt:step()
            end
            net(flow.ones(1, size[2]))
            local w = net.weight:detach()
            assert.is_false(flow.allclose(first, w) and size[1] ~= size[2])
            local product = size[1] < size[2] and w:matmul(w:t()) or w:t():matmul(w)
            flow.testing.assert_close(product, flow.eye(math.min(size[1], size[2])), {rtol = 1e-4, atol = 1e-5})
        end
        assert.are.equal("orthogonal: orthogonal_map must be one of matrix_exp|cayley|householder, got 'qr'",
            message(function() parametrizations.orthogonal(nn.Linear(2, 2), "weight", "qr") end))
    end)

    it("refuses a parametrization of another shape", function()
        local Flat = nn.Module:extend "Flat"
        function Flat:forward(x) return x:flatten() end -- luacheck: ignore self
        assert.are.equal("register_parametrization: 'weight' is [1, 2], the parametrization makes [2] of it",
            message(function() parametrize.register_parametrization(linear {{1, 2}}, "weight", Flat()) end))
    end)
end)

describe("fused layers", function()
    it("compute what a layer and the normalisation behind it do", function()
        flow.manual_seed(3)
        for _, case in ipairs {
            {nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), {2, 3, 5, 5}, "fuse_conv_bn_eval"},
            {nn.Conv2d(3, 4, 3, {bias = false}), nn.BatchNorm2d(4, {affine = false}), {2, 3, 5, 5}, "fuse_conv_bn_eval"},
            {nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), {2, 3, 5, 5}, "fuse_conv_bn_eval", true},
            {nn.Linear(3, 4), nn.BatchNorm1d(4), {5, 3}, "fuse_linear_bn_eval"},
        } do
            local net, x = nn.Sequential(case[1], case[2]), flow.randn(case[3])
            net(x)
            net:eval()
            local one = nn.utils[case[4]](table.unpack({case[1], case[2], case[5]}))
            flow.testing.assert_close(one(x), net(x), {rtol = 1e-4, atol = 1e-5})
        end
        assert.are.equal("fuse_linear_bn_eval: both modules must be in eval mode; write net:eval()",
            message(function() nn.utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2)) end))
    end)

    it("gradients are limited in lists of tensors alone", function()
        local net, utils = nn.Linear(1, 1), nn.utils
        for name, arguments in pairs {
            clip_grad_norm_ = {1, 3}, clip_grad_value_ = {1}, clip_grads_with_norm_ = {1, flow.tensor(2.0)}, get_total_norm = {3},
        } do
            assert.are.equal(name .. ": takes a list of parameters, got Linear; write net:parameters()",
                message(function() utils[name](net, table.unpack(arguments)) end))
            assert.are.equal(name .. ": parameter 2 must be a tensor, got 3",
                message(function() utils[name]({net.bias, 3}, table.unpack(arguments)) end))
        end
        assert.are.equal("clip_grad_norm_: takes a list of parameters, got Linear; write net:parameters()",
            message(function() utils.clip_grad_norm_(net, 1) end))
        assert.are.equal("clip_grad_norm_: max_norm must be a number >= 0, got -1",
            message(function() utils.clip_grad_norm_(net:parameters(), -1) end))
    end)

    it("gradients are scaled by a norm that was computed", function()
        local p = nn.Parameter(flow.zeros(2))
        p.grad = flow.tensor {3.0, 4}
        local total = nn.utils.get_total_norm {p.grad}
        nn.utils.clip_grads_with_norm_({p}, 1, total)
        flow.testing.assert_close(p.grad, flow.tensor {0.6, 0.8})
    end)
end)

describe("hooks in backward", function()
    it("see and replace gradients", function()
        local net, seen = linear {{2, 3}}, {}
        local x = flow.tensor {{1.0, 1.0}}:requires_grad_()
        local before = net:register_full_backward_pre_hook(function(_, outputs) return {outputs[1] * 10} end)
        local after = net:register_full_backward_hook(function(module, inputs, outputs)
            seen = {rawequal(module, net), inputs[1]:totable(), outputs[1]:totable()}
            return {inputs[1] + 1}
        end)
        net(x):sum():backward()
        assert.are.same({true, {{20, 30}}, {{10}}}, seen)
        assert.are.same({{21, 31}}, x.grad:totable())
        assert.are.same({{10, 10}}, net.weight.grad:totable())
        before:remove()
        after:remove()
        seen = nil
        net(x):sum():backward()
        assert.is_nil(seen)
    end)

    it("are called where no argument has a gradient", function()
        local net, count = linear {{2, 3}}, nil
        net:register_full_backward_hook(function(_, inputs, outputs) count = {#inputs, #outputs} end)
        net(flow.ones(1, 2)):sum():backward()
        assert.are.same({0, 1}, count)
    end)
end)

describe("flow.func", function()
    local x = flow.tensor({1, 2, 3}, {dtype = "float64"})
    it("differentiates, nested and by structures", function()
        local function cube(t) return (t ^ 3):sum() end
        assert.are.same({3, 12, 27}, flow.func.grad(cube)(x):totable())
        local value, g = flow.func.value_and_grad(cube)(x)
        assert.are.same({36, {3, 12, 27}}, {value:item(), g:totable()})
        assert.are.same({{6, 0, 0}, {0, 12, 0}, {0, 0, 18}}, flow.func.hessian(cube)(x):totable())
        local by = flow.func.grad(function(p) return (p.a * p.b):sum() end) {a = x, b = x * 2}
        assert.are.same({{2, 4, 6}, {1, 2, 3}}, {by.a:totable(), by.b:totable()})
        assert.is_false(x.requires_grad)
        assert.is_nil(x.grad)
    end)

    it("words what it refuses", function()
        assert.are.equal("grad: the function must return a tensor with one element, got [3]",
            message(function() flow.func.grad(function(t) return t end)(x) end))
        assert.are.equal("grad: argnums must be positions of arguments from 0 to 0, got 1",
            message(function() flow.func.grad(function(t) return t:sum() end, {argnums = 1})(x) end))
        assert.are.equal("functional_call: the module has no 'weigth'; did you mean 'weight'?",
            message(function() flow.func.functional_call(linear {{1, 2}}, {weigth = x}, x) end))
        local endless = {x}
        endless[2] = endless
        assert.are.equal("func.vjp: a value is nested deeper than 60 tables, or contains itself",
            message(function() flow.func.vjp(function(t) return t[1] end, endless) end))
        assert.are.equal("a value is nested deeper than 60 tables, or contains itself",
            message(function() flow.func.vmap(function(t) return t[1] end)(endless) end))
        assert.are.equal("a value is nested deeper than 60 tables, or contains itself",
            message(function() flow.func.vmap(function() return endless end)(x) end))
        assert.are.equal("func.vjp: in Flatten: forward: missing argument 'x'",
            message(function() flow.func.vjp(flow.nn.Flatten()) end))
        assert.are.equal("func.functional_call: in Flatten: forward: missing argument 'x'",
            message(function() flow.func.functional_call(flow.nn.Flatten(), {}) end))
    end)
end)

describe("AdaptiveLogSoftmaxWithLoss", function()
    it("is a distribution whose targets it scores", function()
        local net = nn.AdaptiveLogSoftmaxWithLoss(4, 9, {3, 6}, {div_value = 2})
        local input, target = flow.randn(5, 4), flow.tensor {0, 8, 4, 2, 5}
        local all = net:log_prob(input)
        flow.testing.assert_close(all:exp():sum(1), flow.ones(5))
        local output, loss = net(input, target)
        flow.testing.assert_close(output, all:gather(1, target:unsqueeze(1)):squeeze(1))
        flow.testing.assert_close(loss, -output:mean())
        assert.are.same({5}, net:predict(input).shape)
        assert.are.equal("log_prob: in Linear: linear: takes x [..., in] and weight [out, in], got [2, 3] and [5, 4]",
            support.error_of(function() net:log_prob(flow.ones(2, 3)) end))
        assert.are.equal("in AdaptiveLogSoftmaxWithLoss: target must be from 0 to 8",
            message(function() net(input, flow.tensor {0, 9, 0, 0, 0}) end))
    end)
end)

describe("grouped_mm", function()
    local F = nn.functional

    it("multiplies each group by its own matrix", function()
        flow.manual_seed(2)
        local options = {dtype = "float64"}
        local a, b = flow.randn({6, 4}, options):requires_grad_(), flow.randn({3, 4, 5}, options):requires_grad_()
        local offs = flow.tensor {2, 2, 5}
        local want = flow.cat({a:narrow(0, 0, 2):matmul(b[0]), a:narrow(0, 2, 3):matmul(b[2]), flow.zeros({1, 5}, options)}, 0)
        assert.are.same(want:detach():totable(), F.grouped_mm(a, b, {offs = offs}):detach():totable())
        assert.is_true(flow.gradcheck(function(x, w) return F.grouped_mm(x, w, {offs = offs}) end, {a, b}, {order = 2}))
        local columns = F.grouped_mm(b.mT, a:t(), {offs = offs})
        assert.are.same(want:t():detach():totable(), columns:detach():totable())
    end)

    it("says what does not fit", function()
        local a, b = flow.ones(6, 4), flow.ones(3, 4, 5)
        for want, f in pairs {
            ["grouped_mm: [6, 4] and [3, 5, 4] are no groups of matrices that fit"] = function() F.grouped_mm(a, b.mT) end,
            ["grouped_mm: offs are missing"] = function() F.grouped_mm(a, b) end,
            ["grouped_mm: offs are of a matrix, and both operands have groups"] = function() F.grouped_mm(b.mT, b, {offs = flow.tensor {1, 2, 3}}) end,
            ["grouped_mm: offs have 2 entries for 3 groups"] = function() F.grouped_mm(a, b, {offs = flow.tensor {1, 6}}) end,
            ["grouped_mm: offs must rise to 6 at most, entry 2 is 1 after 3"] = function() F.grouped_mm(a, b, {offs = flow.tensor {3, 1, 6}}) end,
            ["grouped_mm: offs must be a vector of whole numbers, got float32[3]"] = function() F.grouped_mm(a, b, {offs = flow.ones(3)}) end,
        } do assert.are.equal(want, message(f)) end
    end)
end)
