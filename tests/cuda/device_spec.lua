-- device_spec.lua -- tensors on the GPU as scripts meet them: how they get there, what they say of themselves, values,
-- files, modules and optimizers, mixed devices, indexing, data, placements.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local support = require "tests.support"

local nn, optim = flow.nn, flow.optim
local G = {device = "cuda"}

local function message_of(...) return support.message_of(...) end

describe("a tensor on the GPU", function()
    cuda.it("says where it is", function()
        local x = flow.randn(2, 3, G)
        assert.are.equal("cuda", x.device)
        assert.are.equal("cuda:0", flow.zeros(2, {device = "cuda:0"}).device)
        assert.are.equal("cuda", (x + 1).device)
        assert.are.equal("cuda", x:sum().device)
        assert.are.equal("cuda", x:t().device)
        assert.are.equal("cpu", x:to("cpu").device)
        assert.are.same({2, 3}, x.shape)
        assert.is_false(x.is_global)
        assert.is_true(x.is_leaf)
        assert.are.equal("cuda", flow.zeros_like(x).device)
        assert.are.equal("cuda", x:clone().device)
        assert.are.equal("cuda", x:detach().device)
    end)

    cuda.it("is named with its device by explain, which leaves out the CPU", function()
        local report = flow.explain(function() return flow.ones(2, {device = "cuda:0"}) + 1, flow.ones(3):to("cuda") end)
        assert.are.same({"float32[2] on cuda:0"}, report[1].outputs)
        assert.are.equal("float32[2] on cuda:0", report[2].inputs[1].text)
        assert.are.same({"float32[2] on cuda:0"}, report[2].outputs)
        assert.is_truthy(tostring(report):find("add(float32[2] on cuda:0, 1) -> float32[2] on cuda:0", 1, true))
        assert.are.same({"float32[3]"}, report[3].outputs)
    end)

    cuda.it("goes there and back", function()
        for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
            local x = flow.arange(6):fmod(2):to(dtype):view(2, 3)
            local y = x:to("cuda")
            assert.are.equal(dtype, y.dtype)
            assert.are.same(x:totable(), y:totable(), dtype)
            assert.are.same(x:totable(), y:to("cpu"):totable(), dtype)
            assert.are.equal(y, y:to("cuda"))
            assert.are.same(x:t():totable(), y:t():totable(), dtype)
            assert.are.same(x:t():totable(), y:t():to("cpu"):totable(), dtype)
            assert.are.same(x:t():totable(), x:t():to("cuda"):totable(), dtype)
        end
        for _, y in ipairs {flow.ones(2):cuda(), flow.ones(2):cuda(0), flow.ones(2):cuda(nil, {non_blocking = true})} do
            assert.matches("^cuda", y.device)
            assert.are.equal(y, y:cuda())
            assert.are.same({1, 1}, y:cpu():totable())
        end
        local net = flow.nn.Linear(2, 2):cuda(0)
        assert.matches("^cuda", net.weight.device)
        assert.are.equal("cpu", net:cpu().weight.device)
        local both = flow.ones(3):to{dtype = "float64", device = "cuda"}
        assert.are.equal("float64", both.dtype)
        assert.are.equal("cuda", both.device)
        local like = flow.ones(2):to(both)
        assert.are.equal("cuda", like.device)
        assert.are.same({}, flow.zeros(0, G):totable())
        assert.are.same({{}, {}}, flow.zeros(2, 0, G):totable())
        assert.are.equal(3.5, flow.tensor(3.5, G):item())
    end)

    cuda.it("is printed as on the CPU", function()
        for _, x in ipairs {flow.arange(6):view(2, 3), flow.tensor({1.5, 0 / 0, 1e9}), flow.tensor(true), flow.zeros(0), flow.arange(3000):view(30, 100):t(),
            flow.ones(2, {requires_grad = true})} do
            assert.are.equal((tostring(x):gsub(" on cpu", " on cuda")), tostring(flow.no_grad(function() return x:to("cuda") end):requires_grad_(x.requires_grad)))
        end
        assert.are.equal("[1]  int64[1] on cuda:0", tostring(flow.tensor({1}, {device = "cuda:0"})))
    end)

    cuda.it("is made by every function that makes tensors", function()
        for _, text in ipairs {"zeros(2, 3, %s)", "ones({2, 3}, %s)", "full({2}, 1.5, %s)", "eye(3, %s)", "arange(1, 7, 2, %s)", "linspace(0, 1, 5, %s)",
            "rand(5, %s)", "randn(4, 4, %s)", "randint(0, 9, {7}, %s)", "randperm(12, %s)", "tensor({{1, 2}, {3, 4}}, %s)"} do
            local function make(device)
                flow.manual_seed(3)
                return load("local flow = ... return flow." .. text:format(("{device = %q}"):format(device)))(flow)
            end
            local here, there = make "cpu", make "cuda"
            assert.are.equal("cuda", there.device, text)
            support.same(here, there, text, 1e-6)
        end
    end)

    cuda.it("cannot be on a device that is not there", function()
        local message = message_of(flow.zeros, 2, {device = "cuda:17"})
        assert.matches("cuda:17: this process sees", message)
        assert.are.equal([[to: unknown device 'cuda:x'; a device is "cpu", "cuda", "cuda:1" or "meta"]], message_of(flow.zeros(2).to, flow.zeros(2), "cuda:x"))
    end)
end)

describe("two devices", function()
    cuda.it("do not mix by accident", function()
        local x, y = flow.ones(2), flow.ones(2, G)
        for _, case in ipairs {
            {"add: x is on cpu and y on cuda; write x:to(y.device)", function() return x + y end},
            {"mul: x is on cuda and y on cpu; write y:to(x.device)", function() return y * x end},
            {"add_: x is on cuda and y on cpu; write y:to(x.device)", function() return y:add_(x) end},
            {"add_: x is on cpu and y on cuda; write y:to(x.device)", function() return x:add_(y) end},
            {"cat: xs[1] is on cpu and xs[2] on cuda; write xs[1]:to(xs[2].device)", function() return flow.cat({x, y}) end},
            {"where: cond is on cuda and x on cpu; write x:to(cond.device)", function() return flow.where(y:gt(0), x, y) end},
            {"matmul: x is on cpu and y on cuda; write x:to(y.device)", function() return flow.matmul(x, y) end},
            {"grad: the gradient of float32[2] on cuda must be of the same kind, this is float32[2] on cpu", function() y.grad = x end},
        } do assert.are.equal(case[1], message_of(case[2])) end
    end)

    cuda.it("do not mix with the meta device, which takes copies and gives none", function()
        local x, y = flow.ones(2, 2, G), flow.ones(2, 2, {device = "meta"})
        for _, case in ipairs {
            {"add: x is on cuda and y on meta; write x:to(y.device)", function() return x + y end},
            {"add: x is on meta and y on cuda; write y:to(x.device)", function() return y + x end},
            {'to: float32[2, 2] on meta has no values to copy to cuda; make a tensor there: flow.empty_like(x, {device = "cuda"})',
             function() return y:to "cuda" end},
            {'copy_: float32[2, 2] on meta has no values to copy to cuda; make a tensor there: flow.empty_like(x, {device = "cuda"})',
             function() return x:copy_(y) end},
        } do assert.are.equal(case[1], message_of(case[2])) end
        assert.are.equal("float32[2, 2] on meta, no values", tostring(y:copy_(x)))
        assert.are.equal("float32[2, 2] on meta, no values", tostring(x:to "meta"))
        local here = x:to_global {placement = flow.placement("cuda", {0}), sbp = "B"}
        assert.are.equal('float32[2, 2] on placement("meta", {0, 1}) as S(0), no values',
            tostring(here:to_global {placement = flow.placement("meta", {0, 1}), sbp = "S(0)"}))
        assert.are.equal("cuda", flow.with_device("cuda", flow.ones, 2).device)
    end)

    cuda.it("mix with numbers", function()
        local x = flow.ones(2, G)
        assert.are.same({3, 3}, (x * 2 + 1):totable())
        assert.are.same({0.5, 0.5}, (1 / (x + 1)):totable())
    end)

    cuda.it("copy into one another", function()
        local x, y = flow.arange(6):view(2, 3), flow.zeros(2, 3, {dtype = "int64", device = "cuda"})
        y:copy_(x)
        assert.are.same({{0, 1, 2}, {3, 4, 5}}, y:totable())
        x:copy_(y * 2)
        assert.are.same({{0, 2, 4}, {6, 8, 10}}, x:totable())
        y:t():copy_(flow.arange(6):view(3, 2))                  -- strided target
        assert.are.same({{0, 2, 4}, {1, 3, 5}}, y:totable())
        y:copy_(x:t():reshape(2, 3):to("float64"))              -- another dtype
        assert.are.same({{0, 6, 2}, {8, 4, 10}}, y:totable())
        y:copy_(flow.tensor({7, 8, 9}))                         -- broadcast
        assert.are.same({{7, 8, 9}, {7, 8, 9}}, y:totable())
        x:narrow(1, 0, 2):copy_(y:narrow(1, 1, 2))
        assert.are.same({{8, 9, 4}, {8, 9, 10}}, x:totable())
    end)

    cuda.it("pass gradients on", function()
        local x = flow.randn(3, 4)
        x.requires_grad = true
        local y = (x:to("cuda") * 3):to("cpu")
        y:mul(y):sum():backward()
        assert.are.equal("cpu", x.grad.device)
        support.close(x:detach() * 18, x.grad, 1e-5, "gradient over two devices")
        local g = flow.randn(3, 4, G)
        g.requires_grad = true
        g:exp():sum():backward()
        assert.are.equal("cuda", g.grad.device)
        support.close(g:detach():to("cpu"):exp(), g.grad, 1e-5, "gradient on the GPU")
        assert.is_false(pcall(function() g.grad = flow.zeros(3, 4) end))
    end)
end)

describe("two GPUs of one process", function()
    local there = pcall(flow.zeros, 1, {device = "cuda:1"})

    local function two(name, body)
        if there or cuda.emulated then cuda.it(name, body)
        else pending(name .. ": needs a second GPU") end
    end

    two("compute and copy in turns", function()
        local big = flow.full({1 << 20}, 2, {dtype = "float64"})        -- 8 MiB: many copies wait for what was computed before
        local x, y = flow.zeros(4, {device = "cuda:0"}), flow.zeros(4, {device = "cuda:1"})
        local here = {0, 0}
        for i = 1, 24 do
            x, y = x + big:to("cuda:0"):narrow(0, i, 4):to("float32"), y + big:to("cuda:1"):narrow(0, i, 4):to("float32") * 3
            x = (x + y:to("cuda:0")) * 0.25
            here[2] = here[2] + 6
            here[1] = (here[1] + 2 + here[2]) * 0.25
        end
        assert.are.same({here[2], here[2], here[2], here[2]}, y:totable())
        support.close(flow.full({4}, here[1]), x:to("cpu"), 1e-5, "sum over both")
    end)

    two("look for bad indices in turns", function()
        local x, y = flow.arange(8):to("cuda:0"), flow.arange(8):to("cuda:1")
        local i, j = flow.tensor({1, 7}):to("cuda:0"), flow.tensor({2, 6}):to("cuda:1")
        local a, b
        for _ = 1, 600 do       -- more than may have a pending check at once
            a, b = x:index_select(0, i), y:index_select(0, j)
        end
        assert.are.same({1, 7}, a:totable())
        assert.are.same({2, 6}, b:totable())
        local bad = y:index_select(0, flow.tensor({2, 8}):to("cuda:1"))
        assert.are.same({1, 7}, x:index_select(0, i):totable())
        assert.matches("index", message_of(bad.totable, bad))
        assert.are.same({2, 6}, y:index_select(0, j):totable())
    end)
end)

describe("indexing on the GPU", function()
    local function each(x, f)
        local want, got = f(x:clone()), f(x:to("cuda"))
        assert.are.equal("cuda", got.device)
        assert.are.same(want.shape, got.shape)
        assert.are.same(want:totable(), got:totable())
    end

    cuda.it("reads", function()
        local x = flow.arange(24):view(4, 6)
        for _, key in ipairs {1, -1, "1:3", "::2, 1", "..., -1", ":, 2:5:2", {{1, 3}, {}}, {2, 3}, "0, 0"} do
            each(x, function(t) return t[key] end)
        end
        each(x, function(t) return t[flow.tensor({3, 0, -1}, {device = t.device})] end)
        each(x, function(t) return t[flow.tensor({{1, 2}, {0, 3}}, {device = t.device})] end)
        each(x, function(t) return t[t:gt(10)] end)
        each(x, function(t) return t[t[{{}, 0}]:gt(10)] end)
        each(x, function(t) return t:masked_select(t:fmod(2):eq(0)) end)
        each(x, function(t) return t:gt(10):nonzero() end)
        each(x, function(t) return t:lt(0):nonzero() end)
        each(x, function(t) return t:t():gt(10):nonzero() end)
        each(flow.tensor(3), function(t) return t:nonzero() end)
        each(x, function(t) return t:index_select(1, flow.tensor({5, 5, 0}, {device = t.device})) end)
        each(x, function(t) return t:gather(1, flow.tensor({{0}, {5}, {2}, {1}}, {device = t.device})) end)
    end)

    cuda.it("takes a list where it takes a tensor", function()
        local x = flow.zeros(4, {device = cuda.device})
        x[x:eq(0)] = {1, 2, 3, 4}
        x[{{1, 3}}] = {7, 8}
        x[flow.tensor({3}, {device = cuda.device})] = {9}
        assert.are.same({1, 7, 8, 9}, x:totable())
    end)

    cuda.it("writes", function()
        local x = flow.arange(24):view(4, 6)
        local function writes(f) each(x, function(t) f(t) return t end) end
        writes(function(t) t[1] = 7 end)
        writes(function(t) t["1:3, ::2"] = -1 end)
        writes(function(t) t[{{}, 2}] = flow.tensor({1, 2, 3, 4}, {device = t.device}) end)
        writes(function(t) t[flow.tensor({0, -1}, {device = t.device})] = 5 end)
        writes(function(t) t[t:gt(10)] = 0 end)
        writes(function(t) t[t:gt(20)] = flow.tensor({1, 2, 3}, {device = t.device}) end)
        writes(function(t) t[t[{{}, 0}]:gt(10)] = flow.arange(6, {device = t.device}) end)
        writes(function(t) t:masked_fill_(t:eq(3), 100) end)
        writes(function(t) t:t()[2] = flow.tensor({9, 8, 7, 6}, {device = t.device}) end)
        writes(function(t) t:fill_(3) end)
    end)

    cuda.it("names the position that is out of range", function()
        for _, case in ipairs {
            function(x, d) return x[flow.tensor({0, 4}, {device = d})] end,
            function(x, d) return x:index_select(0, flow.tensor({0, 7}, {device = d})) end,
            function(x, d) return x:gather(1, flow.tensor({{9}, {0}, {0}, {0}}, {device = d})) end,
            function(x, d) return flow.embedding(flow.tensor({1, -2}, {device = d}), x) end,
            function(x, d) return flow.cross_entropy(x, flow.tensor({0, 1, 2, 6}, {device = d})) end,
        } do
            local x = flow.randn(4, 6)
            -- found out later, so the op that did it is named too
            assert.are.equal(message_of(case, x, "cpu"), (message_of(case, x:to("cuda"), "cuda"):gsub("^([%w_]+): [%w_]+ %([^()]+%): ", "%1: ")))
        end
    end)
end)

describe("files", function()
    local path
    before_each(function() path = os.tmpname() end)
    after_each(function() os.remove(path) end)

    cuda.it("of tensors of the GPU", function()
        local x = flow.randn(5, 7, G)
        flow.save(path, {x = x, t = x:t(), list = {flow.tensor(3, G), "text"}, half = x:to("bfloat16")})
        local here, there = flow.load(path), flow.load(path, {device = "cuda"})
        assert.are.equal("cpu", here.x.device)
        assert.are.equal("cuda", there.x.device)
        for _, loaded in ipairs {here, there} do
            assert.are.same(x:totable(), loaded.x:totable())
            assert.are.same(x:t():totable(), loaded.t:totable())
            assert.are.same(x:to("bfloat16"):totable(), loaded.half:totable())
            assert.are.equal(3, loaded.list[1]:item())
        end
        local lazy = flow.load(path, {lazy = true})
        assert.are.equal("cuda", lazy.x:read(G).device)
        assert.are.same(x:totable(), lazy.x:read(G):totable())
    end)
end)

describe("a model", function()
    local function model()
        flow.manual_seed(4)
        return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 4))
    end

    cuda.it("moves with its parameters and buffers", function()
        local net = model():to("cuda")
        for name, p in net:named_parameters() do assert.are.equal("cuda", p.device, name) end
        local state = net:state_dict()
        local back = model()
        back:load_state_dict(state)
        assert.are.equal("cpu", back:parameters()[1].device)
        local again = model():to("cuda")
        again:load_state_dict(back:state_dict())
        assert.are.same(net[1].weight:totable(), again[1].weight:totable())
        local counter = nn.Sequential()
        counter:register_buffer("seen", flow.zeros(3))
        assert.are.equal("cuda", counter:to("cuda").seen.device)
    end)

    for _, make in ipairs {
        {"SGD", function(p) return optim.SGD(p, {lr = 0.1, momentum = 0.9}) end},
        {"Adam", function(p) return optim.Adam(p, {lr = 0.01}) end},
        {"AdamW", function(p) return optim.AdamW(p, {lr = 0.01, weight_decay = 0.1}) end},
    } do
        cuda.it("learns with " .. make[1] .. " as on the CPU, and its state goes both ways", function()
            local function start(device)
                local net = model():to(device)
                return {net = net, optimizer = make[2](net:parameters()), device = device, losses = {}}
            end
            local function steps(run, n)
                for _ = 1, n do
                    flow.manual_seed(#run.losses)
                    local x, y = flow.randn(8, 6), flow.randint(0, 4, {8})
                    local loss = flow.cross_entropy(run.net(x:to(run.device)), y:to(run.device))
                    run.optimizer:zero_grad()
                    loss:backward()
                    optim.clip_grad_norm(run.net:parameters(), 1)
                    run.optimizer:step()
                    run.losses[#run.losses + 1] = loss:item()
                end
            end
            local function continue(from, device)
                local run = start(device)
                run.net:load_state_dict(from.net:state_dict())
                run.optimizer:load_state_dict(from.optimizer:state_dict())
                table.move(from.losses, 1, #from.losses, 1, run.losses)
                return run
            end
            local here, there = start "cpu", start "cuda"
            steps(here, 4)
            steps(there, 4)
            local crossed, back = continue(here, "cuda"), continue(there, "cpu")
            for _, run in ipairs {here, there, crossed, back} do steps(run, 3) end
            for i, loss in ipairs(here.losses) do
                for _, run in ipairs {there, crossed, back} do
                    assert.is_true(math.abs(loss - run.losses[i]) < 1e-4, ("step %d: %g, expected %g"):format(i, run.losses[i], loss))
                end
            end
        end)
    end
end)

describe("data", function()
    cuda.it("of a loader goes to the GPU", function()
        local x, y = flow.arange(40):view(10, 4), flow.arange(10)
        local loader = flow.data.loader(flow.data.tensors(x, y), {batch_size = 4, shuffle = true, seed = 3})
        local sum, n = 0, 0
        for batch in loader do
            local a, b = batch[1]:to("cuda"), batch[2]:to("cuda")
            assert.are.equal("cuda", a.device)
            sum, n = sum + (a:sum(1) - b * 16):sum():item(), n + b:numel()
        end
        assert.are.equal(10, n)
        assert.are.equal(10 * 6, sum)
    end)

    cuda.it("on the GPU is loaded there", function()
        local x, y = flow.arange(40):view(10, 4), flow.arange(10)
        local function list(device)
            local batches = {}
            for batch in flow.data.loader(flow.data.tensors(x:to(device), y:to(device)), {batch_size = 4, shuffle = true, seed = 3}) do
                assert.are.equal(device, batch[1].device)
                batches[#batches + 1] = {batch[1]:totable(), batch[2]:totable()}
            end
            return batches
        end
        assert.are.same(list "cpu", list "cuda")
    end)

    cuda.it("of windows over text on the GPU", function()
        local tokens = flow.arange(100):to("uint8")
        local function list(device)
            local batches = {}
            for batch in flow.data.loader(flow.data.windows(tokens:to(device), 8), {batch_size = 5, shuffle = true, seed = 1}) do
                batches[#batches + 1] = {batch[1]:totable(), batch[2]:totable()}
            end
            return batches
        end
        assert.are.same(list "cpu", list "cuda")
    end)
end)

describe("random numbers", function()
    cuda.it("are those of the CPU", function()
        for _, text in ipairs {"flow.rand(1001, o)", "flow.randint(-5, 100, {1001}, o)", "flow.randperm(257, o)", "flow.zeros(999, o):uniform_(-1, 1)",
            "flow.ones(1000, o):dropout(0.3)", "flow.zeros(64, o):bernoulli_(0.5)"} do
            local f = load("local flow, o = ... return " .. text)
            local function draw(device)
                flow.manual_seed(11)
                return pcall(f, flow, {device = device})
            end
            local ok, want = draw "cpu"
            local ok_there, got = draw "cuda"
            assert.are.equal(ok, ok_there, text .. ": " .. tostring(got))
            if ok then assert.are.same(want:totable(), got:totable(), text) end
        end
        flow.manual_seed(11)
        local want = flow.randn(1001)
        flow.manual_seed(11)
        support.close(want, flow.randn(1001, G), 1e-6, "randn")
    end)

    cuda.it("go on alike after the state was saved", function()
        flow.manual_seed(5)
        flow.randn(10, G)
        local state = flow.default_generator():state()
        local want = flow.rand(5, G):totable()
        flow.default_generator():load_state(state)
        assert.are.same(want, flow.rand(5):totable())
    end)
end)

describe("placements", function()
    cuda.it("of the GPU hold global tensors", function()
        local p, q = flow.placement("cuda", {0}), flow.placement("cpu", {0})
        local x = flow.randn({4, 6}, {placement = p, sbp = "S(0)"})
        assert.are.equal("cuda", x.placement.type)
        assert.are.equal("cuda", x:to_local().device)
        local y = x:to_global{placement = q, sbp = "B"}
        assert.are.equal("cpu", y.placement.type)
        assert.are.same(x:totable(), y:totable())
        local z = y:to_global{placement = p, sbp = "S(1)"}
        assert.are.same(x:totable(), z:totable())
        assert.are.same((x + z):totable(), (y + y):totable())
        local l = flow.ones(2, 2):to_global{placement = p, sbp = "S(0)"}
        assert.are.equal("cuda", l.placement.type)
        assert.is_truthy(tostring(x):find("cuda", 1, true))
        local ok, message = pcall(function() return x + y end)
        assert.is_false(ok)
        assert.is_truthy(message:find("placement", 1, true), message)
    end)

    cuda.it("pass gradients between devices", function()
        local p, q = flow.placement("cuda", {0}), flow.placement("cpu", {0})
        local x = flow.randn({4, 6}, {placement = q, sbp = "B", requires_grad = true})
        local y = x:to_global{placement = p, sbp = "S(0)"}
        y:mul(y):sum():backward()
        assert.are.equal("cpu", x.grad.placement.type)
        support.close((x:detach() * 2):to_local(), x.grad:to_local(), 1e-6, "gradient")
    end)
end)
