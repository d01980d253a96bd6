-- autograd_spec.lua -- the tape: leaves, accumulation, views, in-place rules, hooks, higher order, freed graphs.
local flow = require "flow"
local message_of = require("tests.support").message_of

local function leaf(data) return flow.tensor(data, {dtype = "float64", requires_grad = true}) end
local function list(t) return t:totable() end

describe("backward", function()
    it("gives the gradient of a chain", function()
        local x = leaf {1, 2, 3}
        local y = (x * x * 2):sum()
        y:backward()
        assert.are.same({4, 8, 12}, list(x.grad))
    end)

    it("adds to what .grad holds", function()
        local x = leaf {1, 2};
        (x * 3):sum():backward();
        (x * x):sum():backward()
        assert.are.same({5, 7}, list(x.grad))
        x.grad = nil
        assert.is_nil(x.grad);
        (x * 2):sum():backward()
        assert.are.same({2, 2}, list(x.grad))
    end)

    it("sums over the axes that broadcasting stretched", function()
        local x, b = leaf {{1, 2, 3}, {4, 5, 6}}, leaf {10, 20, 30}
        local c = leaf {{2}, {3}};
        ((x + b) * c):sum():backward()
        assert.are.same({5, 5, 5}, list(b.grad))
        assert.are.same({{2, 2, 2}, {3, 3, 3}}, list(x.grad))
        assert.are.same({{66}, {75}}, list(c.grad))
    end)

    it("takes a gradient for a tensor that is no scalar, and asks for one", function()
        local x = leaf {1, 2}
        local y = x * 2
        local ok, message = pcall(y.backward, y)
        assert.is_false(ok)
        assert.is_truthy(message:find("float64[2] needs a gradient", 1, true), message)
        y:backward(flow.tensor({1, 10}, {dtype = "float64"}))
        assert.are.same({2, 20}, list(x.grad))
    end)

    it("gives the gradient the tensor's dtype", function()
        local x = leaf {1, 2}
        x:backward(flow.ones({2}, {dtype = "float32"}))
        assert.are.equal("float64", x.grad.dtype)
    end)

    it("adds to the gradient that a non-leaf retains", function()
        local x = leaf {1, 2}
        local y = x * 2
        y:retain_grad()
        local z, seed = y * 1, flow.ones(2)
        z:backward(seed, {retain_graph = true})
        y.grad:add_(0)
        z:backward(seed)
        assert.are.same({2, 2}, list(y.grad))
        assert.are.same({1, 1}, list(seed))
    end)

    it("leaves out a leaf that no longer requires grad", function()
        local x = leaf {1, 2}
        local y = (x * 2):sum()
        x.requires_grad = false
        y:backward()
        assert.is_nil(x.grad)
    end)

    it("needs something that requires grad", function()
        local ok, message = pcall(function() flow.ones(1):sum():backward() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("does not require grad", 1, true), message)
    end)

    it("frees the graph, and keeps it on request", function()
        local x = leaf {1, 2}
        local y = (x * x):sum()
        y:backward({retain_graph = true})
        y:backward()
        assert.are.same({4, 8}, list(x.grad))
        local ok, message = pcall(y.backward, y)
        assert.is_false(ok)
        assert.is_truthy(message:find("has been freed by an earlier backward; use {retain_graph = true}", 1, true), message)
    end)

    it("survives a chain of 200,000 ops", function()
        local x = leaf {1}
        local y = x
        for _ = 1, 200000 do y = y * 1.0 end
        y:sum():backward()
        assert.are.same({1}, list(x.grad))
    end)
end)

describe("leaves and flags", function()
    it("are told apart", function()
        local x = leaf {1}
        assert.is_true(x.is_leaf)
        local y = x * 2
        assert.is_false(y.is_leaf)
        assert.is_true(y.requires_grad)
        assert.is_true(y:detach().is_leaf)
        assert.is_false(y:detach().requires_grad)
    end)

    it("refuse integers", function()
        local x = flow.tensor {1, 2}
        local ok, message = pcall(function() x.requires_grad = true end)
        assert.is_false(ok)
        assert.is_truthy(message:find("only float tensors have gradients, this is int64", 1, true), message)
    end)

    it("no_grad stops recording, as a function and as <close>", function()
        local x = leaf {1}
        flow.no_grad(function() assert.is_false((x * 2).requires_grad) end)
        do
            local _ <close> = flow.no_grad()
            assert.is_false((x * 2).requires_grad)
        end
        assert.is_true((x * 2).requires_grad)
        pcall(flow.no_grad, function() error("inside") end)
        assert.is_true((x * 2).requires_grad)
    end)
end)

describe("in place", function()
    it("rewrites the history of a non-leaf", function()
        local x = leaf {1, 2, 3}
        local y = x * 2
        y:mul_(3)
        y:sum():backward()
        assert.are.same({6, 6, 6}, list(x.grad))
    end)

    it("on a leaf that requires grad is an error outside no_grad", function()
        local x = leaf {1}
        local ok, message = pcall(x.add_, x, 1)
        assert.is_false(ok)
        assert.is_truthy(message:find("leaf that requires grad", 1, true), message)
        local v = leaf({{1, 2}, {3, 4}})
        ok, message = pcall(function() v[0]:add_(1) end)
        assert.is_false(ok)
        assert.is_truthy(message:find("view of a leaf that requires grad", 1, true), message)
        flow.no_grad(function() x:add_(1) end)
        assert.are.same({2}, list(x))
    end)

    it("on a view rewrites the history of its base", function()
        local x, w = leaf {1, 2, 3, 4}, leaf {10, 20}
        local y = x * 1
        y["1:3"]:mul_(10)
        y["1:3"]:add_(w)
        local weights = flow.tensor({1, 2, 3, 4}, {dtype = "float64"});
        (y * weights):sum():backward()
        assert.are.same({1, 20, 30, 4}, list(x.grad))
        assert.are.same({2, 3}, list(w.grad))
    end)

    it("on a view of a base without gradient needs no gradient of the base", function()
        local w = leaf {2, 3}
        for _, both in ipairs {false, true} do
            local base = flow.tensor({10, 20, 30}, {dtype = "float64"})
            local view = base["1:3"]
            view:mul_(w)
            local loss = base:sum()
            if both then loss = loss + view:sum() end
            w.grad = nil
            loss:backward()
            assert.are.same(both and {40, 60} or {20, 30}, list(w.grad))
            local again = flow.tensor({10, 20, 30}, {dtype = "float64"})
            again["1:3"]:mul_(w)
            local g = flow.grad(again:square():sum(), w, {create_graph = true})
            w.grad = nil
            g:sum():backward()
            assert.are.same({800, 1800}, list(w.grad))
        end
    end)

    it("on a view that to_global gives cuts the base off", function()
        local p = flow.placement.all "cpu"
        for _, sbp in ipairs {"B", "S(0)", "P"} do
            local x = flow.ones({4}, {placement = p, sbp = "B", dtype = "float64"}):requires_grad_()
            local y = x:to_global {sbp = sbp}:clone()
            local z = y:to_global {sbp = sbp}
            z:zero_();
            (z:sum() + x:sum() * 3):to_global {sbp = "B"}:backward()
            assert.are.same({3, 3, 3, 3}, x.grad:totable(), sbp)
        end
    end)

    it("reaches other views of the same base", function()
        local w = leaf {5}
        local base = flow.zeros(2, 2, {dtype = "float64"})
        local first, second = base[0], base[1]
        first:copy_(w:expand(2))
        assert.is_true(base.requires_grad)
        assert.is_true(second.requires_grad)
        assert.is_false(second.is_leaf)
        assert.is_true(tostring(second):find("gradient through select", 1, true) ~= nil, tostring(second))
        assert.are.equal("requires_grad: this tensor was computed by select from tensors that require grad; use x:detach() for one that does not",
            message_of(function() second.requires_grad = false end))
        assert.is_true((second * 1).requires_grad)
        base:sum():backward()
        assert.are.same({2}, list(w.grad))
    end)

    it("assignment through an index carries gradients", function()
        local w = leaf {1, 2}
        local x = flow.zeros(3, 2, {dtype = "float64"})
        x[1] = w * 3;
        (x * x):sum():backward()
        assert.are.same({18, 36}, list(w.grad))
    end)

    it("keeps the old value where a gradient needs it", function()
        local a, w = leaf {2, 3}, leaf {5, 7}
        local x = a * 1
        x:mul_(w)
        x:pow_(2)
        x:sum():backward()
        assert.are.same({100, 294}, list(a.grad))
        assert.are.same({40, 126}, list(w.grad))
        local b = leaf {2, 3}
        local y = b * 1
        y:mul_(y)
        y:sum():backward()
        assert.are.same({4, 6}, list(b.grad))
    end)

    it("on a view can be differentiated twice", function()
        local a, w = leaf {2, 3}, leaf {5}
        local x = a * a
        x["0:1"]:mul_(w)
        local g = flow.grad((x * x):sum(), a, {create_graph = true})
        assert.are.same({800, 108}, list(g))
        assert.are.same({320}, list(flow.grad(g:sum(), w)))
        local b = leaf {0, 2}
        local y = b * 1
        y[0]:exp_()
        g = flow.grad(y:sum(), b, {create_graph = true})
        assert.are.same({1, 0}, list(flow.grad(g:sum(), b)))
    end)

    it("reaches a view that is used only afterwards", function()
        local a, w = leaf {2, 3}, leaf {5, 7}
        local x = a * 1
        local v = x[0]
        x:mul_(w)
        local y = v * 2
        y:backward()
        assert.are.same({10, 0}, list(a.grad))
        assert.are.same({4, 0}, list(w.grad))
    end)

    it("on a view of a view", function()
        local a, w = flow.tensor({{1, 2}, {3, 4}}, {dtype = "float32", requires_grad = true}), leaf {5, 6}
        local x = a * 1
        local row = x[1]
        row["0:1"]:mul_(w[0])
        row:add_(w);
        (x * x):sum():backward()
        assert.are.same({{2, 4}, {200, 20}}, list(a.grad))
        assert.are.same({160, 20}, list(w.grad))
    end)

    it("on a view made under no_grad reaches the base, which the view does not ask a gradient of", function()
        local a = leaf {2, 3}
        local x = a * 1
        local v = flow.no_grad(function() return x[0] end)
        assert.is_false((v * 2).requires_grad)
        v:mul_(3)
        x:sum():backward()
        assert.are.same({3, 1}, list(a.grad))
    end)

    it("on a leaf that is a view is an error too", function()
        local v = flow.zeros(3)["0:2"]
        v.requires_grad = true
        assert.has_error(function() v:mul_(2) end)
    end)

    it("after a value was saved is found out by its version", function()
        local x = leaf {1, 2}
        local y = x * 2
        local z = (y * y):sum()
        y:add_(1)
        local ok, message = pcall(z.backward, z)
        assert.is_false(ok)
        assert.is_truthy(message:find("was changed in place after it was used", 1, true), message)
    end)

    it("with an overlapping operand copies it first", function()
        local x = flow.arange(6)
        x["1:6"]:copy_(x["0:5"])
        assert.are.same({0, 0, 1, 2, 3, 4}, list(x))
        local y = flow.arange(4)
        y:add_(flow.flatten(y:view(2, 2):t()))
        assert.are.same({0, 3, 3, 6}, list(y))
    end)

    it("on a part of a global tensor reaches the tensor, and the other way round", function()
        local here = {placement = flow.placement("cpu", {0}), sbp = "B"}
        local p = leaf {1, 2}
        for _, cast in ipairs {
            function(x) return x:to_global(here) end,
            function(x) return x:to_global(here):to_local() end,
            function(x) return x:to_global(here):to_global {sbp = "B"}:to_local()["0:2"] end,
        } do
            p.grad = nil
            local x = p * 1
            cast(x):mul_(3)
            x:sum():backward()
            assert.are.same({3, 3}, list(p.grad))
            assert.has_error(function() cast(p):mul_(3) end)
        end
        assert.are.same({1, 2}, list(p))
    end)

    it("on an expanded tensor is an error", function()
        local ok, message = pcall(function() flow.zeros(1):expand(3):add_(1) end)
        assert.is_false(ok)
        assert.is_truthy(message:find("several positions share one element", 1, true), message)
    end)
end)

describe("detach_", function()
    it("makes a result a leaf, and leaves what was computed from it as it was", function()
        local w = leaf {1, 2}
        local h = w * 2
        local y = (h * h):sum()
        assert.is_true(rawequal(h, h:detach_()))
        assert.is_true(h.is_leaf and not h.requires_grad)
        y:backward()
        assert.are.same({8, 16}, list(w.grad))
        h.requires_grad = true;
        (h * 3):sum():backward()
        assert.are.same({3, 3}, list(h.grad))
        assert.is_false(w:detach_().requires_grad)
        assert.are.equal("detach_: this is a view, which stays what its base is; write x = x:detach()",
            message_of(function() (leaf {1} * 2):view(1, 1):detach_() end))
    end)
end)

describe("hooks", function()
    it("see the gradient and may replace it", function()
        local x = leaf {1, 2}
        local seen
        x:register_hook(function(g) seen = list(g); return g * 10 end);
        (x * 2):sum():backward()
        assert.are.same({2, 2}, seen)
        assert.are.same({20, 20}, list(x.grad))
    end)

    it("run for non-leaves", function()
        local x = leaf {1}
        local y = x * 2
        y:register_hook(function(g) return g * 100 end);
        (y * 3):sum():backward()
        assert.are.same({600}, list(x.grad))
    end)

    it("may not change the shape or the dtype", function()
        local x = leaf {1, 2}
        local y = x * 2
        y:register_hook(function() return flow.ones({3}, {dtype = "float64"}) end)
        local ok, message = pcall(function() y:sum():backward() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("a hook returned float64[3] (local) for a gradient that is float64[2] (local)", 1, true), message)
        x:register_hook(function() return flow.ones({2}, {dtype = "float32"}) end)
        assert.has_error(function() (x * 2):sum():backward() end)
    end)

    it("may run a backward over the same leaves", function()
        local x = leaf {1, 2}
        local y, inner = x * 2, nil
        y:register_hook(function()
            local _ <close> = flow.enable_grad()
            inner = flow.grad((x * x):sum(), x);
            (x * x):sum():backward()
        end)
        y:sum():backward()
        assert.are.same({2, 4}, list(inner))
        assert.are.same({4, 6}, list(x.grad))
    end)

    it("that fail stop the backward with their message", function()
        local x = leaf {1}
        x:register_hook(function() error("from the hook") end)
        local ok, message = pcall(function() (x * 2):sum():backward() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("from the hook", 1, true), message)
    end)
end)

describe("hooks after accumulation", function()
    it("are called with the leaf, whose gradient is complete", function()
        local x, seen = leaf {1, 2}, {}
        local name_of = {[x] = "x"}
        local handle = x:register_post_accumulate_grad_hook(function(p)
            seen[#seen + 1] = {name_of[p], list(p.grad), flow.is_grad_enabled()}
        end)
        for _ = 1, 2 do (x * x + x):sum():backward() end
        flow.grad((x * x):sum(), x)
        handle:remove();
        (x * x):sum():backward()
        assert.are.same({{"x", {3, 5}, false}, {"x", {6, 10}, false}}, seen)
    end)

    it("see gradients that products add in place", function()
        local w, sums = leaf {{1, 2}, {3, 4}}, {}
        w:register_post_accumulate_grad_hook(function(p) sums[#sums + 1] = p.grad:sum():item() end)
        local x = flow.ones(3, 2, {dtype = "float64"})
        for _ = 1, 2 do x:matmul(w):sum():backward() end
        (x:matmul(w) + x:matmul(w)):sum():backward()
        assert.are.same({12, 24, 48}, sums)
    end)

    it("see the gradient that other hooks have replaced, and may drop it", function()
        local x, seen = leaf {1}, nil
        x:register_post_accumulate_grad_hook(function(p)
            seen = list(p.grad)
            p.grad = nil
        end)
        x:register_hook(function(g) return g * 10 end);
        (x * 2):sum():backward()
        assert.are.same({20}, seen)
        assert.is_nil(x.grad)
    end)

    it("step an optimizer in backward", function()
        local function trained(inside, capture)
            flow.manual_seed(1)
            local net = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.Tanh(), flow.nn.Linear(8, 1))
            local x, all, one = flow.randn(16, 4), nil, {}
            for _, p in ipairs(inside and net:parameters() or {}) do
                one[p] = flow.optim.AdamW({p}, {lr = 0.1})
                p:register_post_accumulate_grad_hook(function(q)
                    one[q]:step()
                    one[q]:zero_grad()
                end)
            end
            if not inside then all = flow.optim.AdamW(net:parameters(), {lr = 0.1}) end
            local step = capture(function(z)
                local loss = net(z):square():mean()
                loss:backward()
                if all then
                    all:step()
                    all:zero_grad()
                end
                return loss
            end)
            local losses = {}
            for i = 1, 6 do losses[i] = step(x):item() end
            return losses
        end
        local function plain(f) return f end
        assert.are.same(trained(false, plain), trained(true, plain))
        assert.are.same(trained(false, plain), trained(true, flow.capture))
    end)

    it("stop the backward when they fail", function()
        local x = leaf {1}
        x:register_post_accumulate_grad_hook(function() error("from the hook") end)
        local ok, message = pcall(function() (x * 2):sum():backward() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("from the hook", 1, true), message)
    end)

    it("are for leaves that require grad", function()
        assert.are.equal("register_post_accumulate_grad_hook: this tensor does not require grad",
            message_of(function() flow.ones(1):register_post_accumulate_grad_hook(print) end))
        assert.are.equal("register_post_accumulate_grad_hook: only leaves accumulate gradients, and this tensor was computed by mul; " ..
            "x:register_hook(f) sees its gradient",
            message_of(function() (leaf {1} * 2):register_post_accumulate_grad_hook(print) end))
    end)
end)

describe("flow.grad", function()
    it("returns gradients and leaves .grad alone", function()
        local x, y = leaf {3}, leaf {4}
        local z = x * x * y
        local gx, gy = table.unpack(flow.grad(z, {x, y}))
        assert.are.same({24}, list(gx))
        assert.are.same({9}, list(gy))
        assert.is_nil(x.grad)
    end)

    it("differentiates again", function()
        local x = leaf {2}
        local y = x * x * x
        local first = flow.grad(y, {x}, {create_graph = true})[1]
        local second = flow.grad(first, {x}, {create_graph = true})[1]
        local third = flow.grad(second, {x})[1]
        assert.are.same({12}, list(first))
        assert.are.same({12}, list(second))
        assert.are.same({6}, list(third))
    end)

    it("of a non-leaf", function()
        local x = leaf {2}
        local y = x * 5
        local z = y * y
        assert.are.same({20}, list(flow.grad(z, {y})[1]))
    end)

    it("frees only the part of the graph it went through", function()
        local a = leaf {2, 3}
        local x = a * a
        local g = flow.grad((x * x):sum(), x)
        assert.are.same({8, 18}, list(g))
        assert.are.same({32, 108}, list(flow.grad(x, a, {grad_outputs = g})))
        assert.are.same({8, 18}, list(flow.grad((x * x):sum(), x)))
    end)

    it("of the same leaf twice", function()
        local a = leaf {1, 2}
        local g = flow.grad((a * 2):sum(), {a, a})
        assert.are.same({2, 2}, list(g[1]))
        assert.are.same({2, 2}, list(g[2]))
    end)

    it("names a tensor that was not used", function()
        local x, y = leaf {1}, leaf {1}
        local ok, message = pcall(flow.grad, x * 2, {x, y})
        assert.is_false(ok)
        assert.is_truthy(message:find("tensor 2 of xs was not used to compute y", 1, true), message)
    end)
end)

describe("memory", function()
    it("of a graph goes with its last tensor", function()
        local x = leaf {1, 2, 3}
        local function live()
            collectgarbage()
            collectgarbage()
            return flow.memory().tensors
        end
        local before = live()
        for _ = 1, 50 do
            local y = x:exp():tanh() * x
            y:add_(1)
            y[0]:mul_(2)
            y:mul_(y)
            y[1]:exp_()
            y:sum():backward()
            x.grad = nil
        end
        assert.is_true(live() <= before)
    end)
end)

describe("the gradient of what is cut out", function()
    local function gradients(order)
        flow.manual_seed(4)
        local x = flow.randn(4, 9):requires_grad_(true)
        local w = flow.randn(4, 9)
        local y = x * 2
        local parts = {y:narrow(1, 0, 3), y:narrow(1, 3, 3), y:narrow(1, 6, 3), y:narrow(0, 1, 2):narrow(1, 2, 5)}
        local loss = flow.zeros(1):sum()
        for _, i in ipairs(order) do loss = loss + (parts[i] * parts[i] * w:narrow(0, 0, parts[i]:size(0)):narrow(1, 0, parts[i]:size(1))):sum() end
        return x, y, loss
    end

    it("is added to its part of the sum, and to nothing else", function()
        local x, y, loss = gradients {1, 2, 3, 4}
        y:retain_grad()
        local report = flow.explain(function() loss:backward() end)
        local counts = {}
        for _, step in ipairs(report) do counts[step.op] = (counts[step.op] or 0) + 1 end
        assert.are.equal(5, counts.narrow_backward)
        for _, order in ipairs {{4, 3, 2, 1}, {2, 4, 1, 3}} do
            local other, _, again = gradients(order)
            again:backward()
            flow.testing.assert_close(other.grad, x.grad, {rtol = 1e-6, atol = 1e-6})
        end
        assert.are.same(y.grad:mul(2):totable(), x.grad:totable())
    end)

    it("of a leaf adds to .grad over passes, and can be differentiated again", function()
        local p = flow.ones(6):requires_grad_(true)
        for _ = 1, 2 do (p:narrow(0, 0, 2):sum() * 3 + p:narrow(0, 1, 4):sum() + p:sum()):backward() end
        assert.are.same({8, 10, 4, 4, 4, 2}, p.grad:totable())
        local x = flow.tensor {1, 2, 3}:to("float64"):requires_grad_(true)
        local y = x * x
        local z = (y:narrow(0, 0, 2) * y:narrow(0, 1, 2)):sum()
        local g = flow.grad(z, {x}, {create_graph = true})[1]
        assert.are.same({2 * 1 * 4, 2 * 2 * (1 + 9), 2 * 3 * 4}, g:totable())
        assert.are.same({8 + 8, 8 + 20 + 24, 24 + 8}, flow.grad(g:sum(), {x})[1]:totable()) -- rows of the Hessian, added up
    end)
end)
