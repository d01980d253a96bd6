-- meta_spec.lua -- the device "meta": tensors that have a meta and no bytes. That every op infers there as on the CPU is
-- proved by meta_registry_spec.lua.
local flow = require "flow"
local support = require "tests.support"
local layers = require "tests.layers"
local testing = flow._testing
local nn, optim = flow.nn, flow.optim

local NOT_READ = " has no values to read: on the meta device shapes are inferred and nothing is computed; " ..
    'run this with device "cpu" or "cuda"'

local function four() return flow.placement("meta", {0, 1, 2, 3}) end
local function meta_memory() return flow.memory {device = "meta"} end

describe("tensors on meta", function()
    it("print their meta", function()
        for _, case in ipairs {
            {"float32[3, 4] on meta, no values", flow.zeros(3, 4, {device = "meta"})},
            {"float32[] on meta, no values", flow.tensor(3.5, {device = "meta"})},
            {"int64[2, 2] on meta, no values", flow.tensor({{1, 2}, {3, 4}}, {device = "meta"})},
            {"bool[0] on meta, no values", flow.zeros(0, {device = "meta", dtype = "bool"})},
            {"float16[2] on meta, no values, requires_grad", flow.randn(2, {device = "meta", dtype = "float16", requires_grad = true})},
            {"float32[2] on meta, no values, gradient through mul", flow.randn(2, {device = "meta", requires_grad = true}) * 2},
            {'float32[8, 2] on placement("meta", {0, 1, 2, 3}) as S(0), no values', flow.ones(8, 2, {placement = four(), sbp = "S(0)"})},
        } do
            assert.are.equal(case[1], tostring(case[2]))
        end
    end)

    it("say where they are", function()
        local x = flow.rand(3, 4, {device = "meta"})
        assert.are.equal("meta", x.device)
        assert.are.equal(x.placement, flow.ones(1, {device = "meta"}).placement)
        assert.are.equal("meta", flow.placement.all("meta").type)
        assert.are.equal('placement("meta", {{0, 5}, {1, 7}})', tostring(flow.placement("meta", {{0, 5}, {1, 7}})))
        assert.are.equal(1, flow.device_count "meta")
        assert.are.same({4, 1}, {x:stride(0), x:stride(1)})
    end)

    it("cost nothing, and their bytes are counted apart", function()
        local live, before = support.settled_memory().live_bytes, meta_memory()
        local x = flow.empty(1e6, 1e5, {device = "meta"})
        local y = (x * 2 + 1):relu()
        assert.are.equal(1e11, y:numel())
        assert.are.equal(live, flow.memory().live_bytes)
        assert.is_true(meta_memory().live_bytes - before.live_bytes >= 2 * 4e11)
        assert.is_true(meta_memory().peak_bytes >= meta_memory().live_bytes)
        x, y = nil, nil -- luacheck: ignore
        local after = support.settled_memory "meta"
        assert.are.equal(before.live_bytes, after.live_bytes)
        assert.are.equal(before.live_blocks, after.live_blocks)
        assert.are.equal(meta_memory().live_bytes, (flow.memory {device = "meta", reset_peak = true} and meta_memory().peak_bytes))
    end)

    it("without elements are freed as others are", function()
        local all, blocks = support.settled_memory().live_blocks, meta_memory().live_blocks
        local x = flow.zeros(0, 3, {device = "meta"}) -- luacheck: ignore
        assert.are.equal(blocks + 1, meta_memory().live_blocks)
        x = nil -- luacheck: ignore
        assert.are.equal(blocks, support.settled_memory("meta").live_blocks)
        assert.are.equal(all, flow.memory().live_blocks)
    end)

    it("have views, which share their storage", function()
        local x = flow.randn(4, 6, {device = "meta"})
        local live = meta_memory().live_bytes
        local views = {x:t(), x:narrow(1, 2, 3), x[0], x:view(24), x:expand(2, 4, 6), x:unsqueeze(0), x:detach()}
        assert.are.equal(live, meta_memory().live_bytes)
        assert.are.same({1, 6}, {views[1]:stride(0), views[1]:stride(1)})
        support.fails("view: [6, 4] with strides [1, 6] cannot be viewed as [24]; use reshape", function() views[1]:view(24) end)
        assert.are.equal("float32[24] on meta, no values", tostring(views[1]:reshape(24)))
        support.fails("add_: this tensor is expanded", function() views[5]:add_(1) end)
    end)

    it("are written in place as others are", function()
        local x = flow.zeros(2, 3, {device = "meta"})
        assert.is_true(rawequal(x, x:add_(1)))
        x[0] = 5
        x[{1, 2}] = flow.ones(2):to("meta")[0]
        x[1] = {1, 2, 3}
        x:fill_(2):normal_():copy_(flow.ones(3))
        support.fails("add_: x is float32[2, 3] and the result has shape [2, 2, 3]; write x = x:add(...)", function()
            x:add_(flow.zeros(2, 2, 3, {device = "meta"}))
        end)
        local leaf = flow.zeros(2, {device = "meta", requires_grad = true})
        support.fails("a leaf that requires grad", function() leaf:add_(1) end)
        local saved = flow.ones(2, {device = "meta", requires_grad = true}) * 1
        local y = (saved * saved):sum()
        saved:add_(1)
        support.fails("was changed in place", function() y:backward() end)
    end)

    it("take copies of others, and give none", function()
        assert.are.equal("float32[2] on meta, no values", tostring(flow.ones(2):to "meta"))
        assert.are.equal("float64[2] on meta, no values", tostring(flow.ones(2):to {device = "meta", dtype = "float64"}))
        local x = flow.ones(2, {device = "meta"})
        assert.is_true(rawequal(x, x:to "meta"))
        assert.are.equal("int32[2] on meta, no values", tostring(x:to "int32"))
        assert.are.equal("float32[2] on meta, no values", tostring(flow.ones(2):to(x)))
        for _, case in ipairs {
            {'to: float32[2] on meta has no values to copy to cpu; make a tensor there: flow.empty_like(x, {device = "cpu"})',
             function() x:to "cpu" end},
            {'copy_: float32[2] on meta has no values to copy to cpu; make a tensor there: flow.empty_like(x, {device = "cpu"})',
             function() flow.ones(2):copy_(x) end},
            {'to_global: float32[4] on placement("meta", {0, 1, 2, 3}) as B has no values to copy to placement("cpu", {0}); ' ..
             'make a tensor there: flow.empty_like(x, {placement = p, sbp = s})',
             function() flow.ones(4, {placement = four(), sbp = "B"}):to_global {placement = flow.placement.all "cpu", sbp = "B"} end},
            {"to: unknown dtype or device 'mate'", function() x:to "mate" end},
            {"to: unknown device 'meta:0'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", function() x:to "meta:0" end},
            {"ones: options go in a table: {device = \"meta\"}", function() flow.ones(2, "meta") end},
        } do
            support.fails(case[1], case[2])
        end
        assert.are.equal("float32[2] on cpu", tostring(flow.zeros_like(x, {device = "cpu"})):match "float32.*")
    end)

    it("are not mixed with tensors of other devices", function()
        local x, y = flow.ones(2, 2), flow.ones(2, 2, {device = "meta"})
        assert.are.equal("add: x is on cpu and y on meta; write x:to(y.device)", support.error_of(function() return x + y end))
        assert.are.equal("add: x is on meta and y on cpu; write y:to(x.device)", support.error_of(function() return y + x end))
        assert.are.equal("mul_: x is on cpu and y on meta; write y:to(x.device)", support.error_of(function() x:mul_(y) end))
        assert.are.equal("matmul: x is on meta and y on cpu; write y:to(x.device)", support.error_of(function() y:matmul(x) end))
        local global = flow.ones(2, 2, {placement = four(), sbp = "B"})
        support.fails("is a local tensor", function() return y + global end)
        support.fails('write y:to_global{placement = x.placement', function()
            return global + flow.ones(2, 2, {placement = flow.placement("meta", {0, 1}), sbp = "B"})
        end)
    end)
end)

describe("data that is not there", function()
    local x = flow.ones(2, 3, {device = "meta"})
    local one = flow.ones(1, {device = "meta"})
    for name, case in pairs {
        item = {"item: float32[1] on meta", function() one:item() end},
        totable = {"totable: float32[2, 3] on meta", function() x:totable() end},
        nonzero = {"nonzero: float32[2, 3] on meta", function() x:nonzero() end},
        masked_select = {"masked_select: bool[2, 3] on meta", function() x:masked_select(x:gt(0)) end},
        ["a mask as an index"] = {"index: bool[2, 3] on meta", function() return x[x:gt(0)] end},
        ["values for a mask"] = {"index: bool[2, 3] on meta", function() x[x:gt(0)] = flow.ones(4, {device = "meta"}) end},
        ["a condition"] = {"item: bool[] on meta", function() if x:gt(0):all():item() then return end end},
        save = {"save: 'x': float32[2, 3] on meta", function() flow.save(os.tmpname(), {x = x}) end},
        ["a global tensor"] = {'totable: float32[4] on placement("meta", {0, 1, 2, 3}) as S(0)', function()
            flow.ones(4, {placement = four(), sbp = "S(0)"}):totable()
        end},
    } do
        it(name .. " is an error that says so", function()
            local ok, message = pcall(case[2])
            assert.is_false(ok)
            assert.are.equal(case[1] .. NOT_READ, (message:gsub("^.-:%d+: ", "")))
            assert.is_truthy(message:find("^tests/meta_spec.lua:%d+: "), message)
        end)
    end

    it("is not looked at by one value for a mask, nor by positions", function()
        local y = x * 1
        y[x:gt(0)] = 3
        local positions = flow.tensor({5, 9}, {device = "meta"}) -- out of range, but who knows
        assert.are.equal("float32[2, 3] on meta, no values", tostring(y[positions]))
        assert.are.equal("float32[2, 3] on meta, no values", tostring(flow.embedding(positions, y)))
    end)
end)

describe("random numbers", function()
    it("are not drawn on meta", function()
        local function draw(device)
            flow.manual_seed(5)
            local x = flow.randn(10, {device = device})
            flow.dropout(x, 0.5)
            x:uniform_()
            return flow.rand(3):totable(), flow.default_generator():state().counter
        end
        flow.manual_seed(5)
        local want = flow.rand(3):totable()
        local got, counter = draw "meta"
        assert.are.same(want, got)
        assert.are.equal(flow.default_generator():state().counter, counter)
        assert.are_not.same(want, (draw "cpu"))
    end)
end)

describe("gradients on meta", function()
    it("have the metas of their leaves", function()
        local x = flow.randn(4, 3, {device = "meta", requires_grad = true})
        local w = flow.randn(3, 2, {device = "meta", requires_grad = true})
        local b = flow.zeros(2, {device = "meta", requires_grad = true})
        local y = (x:matmul(w) + b):tanh()
        y:sum():backward()
        y = (x:matmul(w) + b):relu():mean()
        y:backward()
        assert.are.equal("float32[4, 3] on meta, no values", tostring(x.grad))
        assert.are.equal("float32[3, 2] on meta, no values", tostring(w.grad))
        assert.are.equal("float32[2] on meta, no values", tostring(b.grad))
        local g = flow.grad((x * x):sum(), x, {create_graph = true})
        assert.are.equal("float32[4, 3] on meta, no values", tostring(flow.grad(g:sum(), x)))
        support.fails("backward", function() x:matmul(w):backward() end)
    end)

    it("do not come back to a device with memory", function()
        local x = flow.ones(2, {requires_grad = true})
        support.fails("to: float32[2] on meta has no values to copy to cpu", function() x:to("meta"):sum():backward() end)
    end)
end)

local function is_class(x) return type(x) == "table" and type(rawget(x, "__name")) == "string" and rawget(x, "__call") ~= nil end

local function on_meta(...)
    local list = table.pack(...)
    for i = 1, list.n do list[i] = list[i]:to "meta" end
    return table.unpack(list, 1, list.n)
end

local function metas(map)
    local list = {}
    for name, t in map do list[#list + 1] = ("%s %s%s"):format(name, t.dtype, support.shape_text(t.shape)) end
    return list
end

describe("modules on meta:", function()
    for name, class in pairs(nn) do
        if is_class(class) then
            it(name, function()
                local how = assert(layers[name], name .. " has no example here")
                if not how[1] then return end
                local net = class(table.unpack(how[1]))
                flow.manual_seed(1)
                local before = flow.default_generator():state()
                local made = flow.with_device("meta", class, table.unpack(how[1]))
                assert.are.same(before, flow.default_generator():state())
                local moved = class(table.unpack(how[1])):to "meta"
                for _, meta in ipairs {made, moved} do
                    assert.are.equal(tostring(net), tostring(meta))
                    assert.are.same(metas(net:named_buffers()), metas(meta:named_buffers()))
                    if not name:find "^Lazy" then       -- it has no parameters yet
                        assert.are.same(metas(net:named_parameters()), metas(meta:named_parameters()))
                        assert.are.equal(net:count_parameters(), meta:count_parameters())
                    end
                    for _, t in meta:state_dict() do assert.are.equal("meta", t.device) end
                    if how[2] and name ~= "AdaptiveLogSoftmaxWithLoss" then    -- it looks at the labels
                        local want, got = net(how[2]()), meta(on_meta(how[2]()))
                        assert.are.equal("meta", got.device)
                        assert.are.equal(want.dtype .. support.shape_text(want.shape), got.dtype .. support.shape_text(got.shape))
                        if got.requires_grad then
                            got:sum():backward()
                            for _, p in meta:named_parameters() do assert.are.equal(tostring(p.shape), tostring(p.grad.shape)) end
                        end
                    end
                end
            end)
        end
    end

    local function net() return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)) end

    it("to_empty gives them memory", function()
        local meta, real = flow.with_device("meta", net), net()
        meta[1].weight.requires_grad = false
        assert.is_true(rawequal(meta, meta:to_empty "cpu"))
        assert.are.equal("cpu", meta[1].weight.device)
        assert.is_false(meta[1].weight.requires_grad)
        assert.is_true(meta[3].weight.requires_grad)
        meta:load_state_dict(real:state_dict())
        local x = flow.randn(5, 4)
        support.same(real(x), meta(x), "loaded")
        support.fails("to_empty: missing argument 'where'", function() meta:to_empty() end)
        support.fails("to_empty: unknown device 'gpu'; a device is", function() meta:to_empty "gpu" end)
    end)

    it("a model that was split on meta becomes real on its ranks", function()
        local meta = flow.with_device("meta", net):to_global {placement = flow.placement("meta", {0}), sbp = "B", rules = {{"3.weight", "S(0)"}}}
        meta:to_empty "cpu"
        assert.are.equal('float32[2, 3] on placement("cpu", {0}) as S(0), requires_grad', tostring(meta[3].weight):match "float32.*")
    end)

    it("keep no values", function()
        local meta, real = flow.with_device("meta", net), net()
        for _, case in ipairs {
            {"to: '1.weight' is on the meta device and has no values; write module:to_empty(\"cpu\"), then initialise or load the parameters",
             function() meta:to "cpu" end},
            {"'1.weight' is on the meta device in the module, which keeps no values; write module:to_empty(\"cpu\") first",
             function() meta:load_state_dict(real:state_dict()) end},
            {"'1.weight' is on the meta device and has no values", function() real:load_state_dict(meta:state_dict()) end},
        } do
            support.fails(case[1], case[2])
        end
        assert.is_true(rawequal(meta, meta:to "meta"))
        meta:load_state_dict(flow.with_device("meta", net):state_dict())
        assert.are.equal("float64[3, 4] on meta, no values, requires_grad", tostring(meta:to("float64")[1].weight))
    end)
end)

describe("optimizers on meta:", function()
    for name, class in pairs(optim) do
        local kind = type(class) == "table" and getmetatable(class)
        if kind and kind.__call and rawget(class, "step") == nil and name ~= "Scheduler" then
            for _, options in ipairs(name == "SGD" and {{lr = 0.1}, {lr = 0.1, momentum = 0.9}} or {{lr = 0.1}}) do
                it(name .. " steps", function()
                    local function train(device)
                        local net = flow.with_device(device, function() return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)) end)
                        -- Muon's parameters are matrices
                        local opt = class(name == "Muon" and {net[1].weight, net[2].weight} or net:parameters(), options)
                        for _ = 1, 3 do
                            opt:zero_grad()
                            net(flow.ones(5, 4, {device = device})):sum():backward()
                            local norm = optim.clip_grad_norm(net:parameters(), 1)
                            assert.are.equal(device, norm.device)
                            opt:step()
                        end
                        local list = metas(net:named_parameters())
                        for _, entry in ipairs(opt:state_dict().state) do
                            list[#list + 1] = tostring(entry.step)
                            for _, t in ipairs(entry.tensors or {}) do list[#list + 1] = t.dtype .. support.shape_text(t.shape) end
                        end
                        return list
                    end
                    local live = support.settled_memory().live_bytes
                    local got = train "meta"
                    assert.is_true(flow.memory().live_bytes - live < 1024)
                    assert.are.same(train "cpu", got)
                end)
            end
        end
    end
end)

describe("global tensors on meta", function()
    it("need no ranks, and no values move", function()
        local x = flow.ones(8, 4, {placement = four(), sbp = "S(0)"})
        assert.are.equal("float32[2, 4] on meta, no values", tostring(x:to_local()))
        local y = x:matmul(flow.ones(4, 6, {placement = four(), sbp = "B"}))
        assert.are.equal("S(0)", tostring(y.sbp))
        assert.are.equal("P", tostring(x:sum().sbp))
        for _, sbp in ipairs {"B", "S(1)", "S(0)", "P"} do
            assert.are.equal(sbp, tostring(x:to_global {sbp = sbp}.sbp))
            assert.are.equal(sbp, tostring(y:sum(0):unsqueeze(0):expand(8, 6):to_global {sbp = sbp}.sbp))
        end
        local grid = flow.placement("meta", {{0, 1, 2, 3}, {4, 5, 6, 7}})
        local z = x:to_global {placement = grid, sbp = {"S(0)", "S(1)"}}
        assert.are.equal("float32[4, 1] on meta, no values", tostring(z:to_local()))
        assert.are.equal("float32[8, 4] on placement(\"meta\", {0}) as B, no values",
            tostring(z:to_global {placement = flow.placement("meta", {0}), sbp = "B"}))
    end)

    it("are made of local ones: each part is taken to be like this one", function()
        local x = flow.ones(2, 3, {device = "meta"})
        assert.are.same({8, 3}, {table.unpack(x:to_global {placement = four(), sbp = "S(0)"}.shape)})
        assert.are.same({2, 3}, {table.unpack(x:to_global {placement = four(), sbp = "B"}.shape)})
        assert.are.same({2, 12}, {table.unpack(flow.ones(2, 3):to_global {placement = four(), sbp = "S(1)"}.shape)})
        local leaf = flow.ones(2, 3, {device = "meta", requires_grad = true})
        leaf:to_global({placement = four(), sbp = "S(0)"}):sum():backward()
        assert.are.equal("float32[2, 3] on meta, no values", tostring(leaf.grad))
        for _, count in ipairs {4, 1024} do -- 2^60 elements, and 2^68
            local ranks = {}
            for r = 0, count - 1 do ranks[r + 1] = r end
            support.fails("has too many elements (2^59 or more)", function()
                flow.empty(1 << 58, {device = "meta"}):to_global {placement = flow.placement("meta", ranks), sbp = "S(0)"}
            end)
        end
        support.fails("sbp S(2) on placement", function() x:to_global {placement = four(), sbp = "S(2)"} end)
    end)

    it("may lie on ranks that the world does not have", function()
        local ranks = {}
        for r = 0, 1023 do ranks[r + 1] = r end
        local p = flow.placement("meta", ranks)
        assert.are.equal("float32[4, 1024] on meta, no values", tostring(flow.ones(4096, 1024, {placement = p, sbp = "S(0)"}):to_local()))
        local away = flow.ones(4, {placement = flow.placement("meta", {3, 4}), sbp = "S(0)"}) -- not on this rank
        assert.are.equal("float32[0] on meta, no values", tostring((away * 2):to_local()))
        for _, case in ipairs {
            {"placement: rank 2 is named twice", function() flow.placement("meta", {2, 2}) end},
            {"placement: there is no rank -1: ranks count from 0", function() flow.placement("meta", {-1}) end},
            {"placement: no rank is named", function() flow.placement("meta", {}) end},
            {"placement: ranks must form a regular grid", function() flow.placement("meta", {{0, 1}, {2}}) end},
            {"placement: ranks must form a regular grid", function() flow.placement("meta", {{0}, {1, 2}}) end},
            {"placement: ranks must form a regular grid", function() flow.placement("meta", {0, {1, 2}}) end},
            {"placement: more ranks than the world has (1)", function() flow.placement("cpu", {0, 1, 2}) end},
            {"placement: rank 1 does not exist: the world has one rank (0)", function() flow.placement("cpu", {0, 1}) end},
        } do
            support.fails(case[1], case[2])
        end
    end)

    it("train split parameters, with a step on none of the ranks", function()
        local p = flow.placement("meta", {{0, 1}, {2, 3}})
        local net = flow.with_device("meta", function() return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)) end)
        net:to_global {placement = p, sbp = "B", zero = 0,
                       rules = {{"1.weight", {"B", "S(0)"}}, {"1.bias", {"B", "S(0)"}}, {"3.weight", {"B", "S(1)"}}}}
        local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
        local x = flow.spec({16, 4}, {placement = p, sbp = {"S(0)", "B"}})
        local loss = nn.CrossEntropyLoss()(net(x), flow.spec({16}, {dtype = "int64", placement = p, sbp = {"S(0)", "B"}}))
        loss:backward()
        optim.clip_grad_norm(net:parameters(), 1)
        opt:step()
        for _, param in net:named_parameters() do assert.are.equal(tostring(param.sbp), tostring(param.grad.sbp)) end
    end)

    it("leave the history of the ranks alone", function()
        testing.set_world(4, 1)
        local x = flow.ones(8, {placement = flow.placement.all "meta", sbp = "S(0)"})
        assert.are.equal("float32[8] on placement(\"meta\", {0, 1, 2, 3}) as B, no values", tostring(x:to_global {sbp = "B"}))
        assert.are.equal("P", tostring(x:sum().sbp))
        support.fails("has no values to read", function() x:sum():item() end)
        testing.set_world(1, 0)
    end)
end)

describe("what describes tensors:", function()
    it("flow.spec", function()
        for _, case in ipairs {
            {"float32[64, 784] on meta, no values", flow.spec {64, 784}},
            {"int64[64] on meta, no values", flow.spec({64}, "int64")},
            {"float32[] on meta, no values", flow.spec {}},
            {"float16[2] on meta, no values, requires_grad", flow.spec({2}, {dtype = "float16", requires_grad = true})},
            {'float32[4] on placement("meta", {0}) as S(0), no values', flow.spec({4}, {placement = flow.placement.all "cpu", sbp = "S(0)"})},
            {'bool[4] on placement("meta", {{0, 1}, {2, 3}}) as (S(0), B), no values',
             flow.spec({4}, {dtype = "bool", placement = flow.placement("meta", {{0, 1}, {2, 3}}), sbp = {"S(0)", "B"}})},
        } do
            assert.are.equal(case[1], tostring(case[2]))
        end
        for _, case in ipairs {
            {"spec: shape must be a list of whole numbers, got number", function() flow.spec(2) end},
            {"spec: size -1 in shape [2, -1] is negative", function() flow.spec {2, -1} end},
            {"spec: unknown dtype 'float23'; did you mean 'float32'?", function() flow.spec({2}, "float23") end},
            {'spec: the device of a spec is "meta"; a placement says which ranks', function() flow.spec({2}, {device = "cpu"}) end},
            {"spec: placement and sbp go together; sbp is missing", function() flow.spec({2}, {placement = four()}) end},
            {"spec: sbp S(1) on placement", function() flow.spec({2}, {placement = four(), sbp = "S(1)"}) end},
            {"spec: sbp P: a bool tensor cannot be a partial sum", function() flow.spec({2}, {dtype = "bool", placement = four(), sbp = "P"}) end},
            {"spec: too many arguments", function() flow.spec({2}, "int64", 3) end},
        } do
            support.fails(case[1], case[2])
        end
    end)

    it("flow.with_device", function()
        assert.are.equal("meta", flow.with_device("meta", function() return flow.zeros(2) end).device)
        do
            local _ <close> = flow.with_device "meta"
            assert.are.equal("meta", flow.arange(3).device)
            assert.are.equal("meta", flow.tensor({1, 2}).device)
            assert.are.equal("cpu", flow.zeros(2, {device = "cpu"}).device)
            assert.are.equal("cpu", flow.with_device("cpu", flow.ones, 2).device)
            assert.are.equal("cpu", flow.zeros_like(flow.zeros(2, {device = "cpu"})).device)
            assert.are.equal("cpu", flow.tensor(flow.zeros(2, {device = "cpu"})).device)
            assert.is_true(flow.zeros(2, {placement = flow.placement.all "cpu", sbp = "B"}).is_global)
            local inside = coroutine.wrap(function()
                local _ <close> = flow.with_device "cpu"
                coroutine.yield(flow.ones(1).device)
                return flow.ones(1).device
            end)
            assert.are.equal("cpu", inside())
            assert.are.equal("meta", flow.ones(1).device)
            assert.are.equal("cpu", inside())
        end
        assert.are.equal("cpu", flow.zeros(2).device)
        assert.is_false(pcall(flow.with_device, "meta", function() error "x" end))
        assert.are.equal("cpu", flow.zeros(2).device)
        support.fails("with_device: f must be a function or a class, got number", function() flow.with_device("meta", 3) end)
        support.fails("with_device: unknown device 'metal'", function() flow.with_device "metal" end)
    end)

    it("flow.explain", function()
        local p = flow.placement("meta", {0, 1})
        local x, w = flow.spec({8, 4}, {placement = p, sbp = "S(0)"}), flow.spec({4, 6}, {placement = p, sbp = "S(1)"})
        local text = tostring(flow.explain(function() return x:matmul(w) end))
        assert.is_truthy(text:find("matmul(", 1, true), text)
        assert.is_truthy(text:find('placement("meta", {0, 1})', 1, true), text)
        assert.is_truthy(text:find("all-gather", 1, true), text)
    end)

    it("flow.show", function()
        local lines = {}
        local print = _G.print
        _G.print = function(s) lines[#lines + 1] = s end -- luacheck: ignore
        flow.show(flow.with_device("meta", nn.Linear, 1e5, 1e6))
        _G.print = print -- luacheck: ignore
        assert.is_truthy(lines[1]:find("Linear: 2 parameters, 100,001,000,000 elements, 400.0 GB in all, on meta", 1, true), lines[1])
    end)

    it("flow.load", function()
        local path = os.tmpname()
        flow.save(path, {a = flow.ones(4, 2), b = flow.arange(3)})
        local state = flow.load(path, {device = "meta"})
        assert.are.equal("float32[4, 2] on meta, no values", tostring(state.a))
        assert.are.equal("int64[3] on meta, no values", tostring(state.b))
        state = flow.load(path, {placement = four(), sbp = "B"})
        assert.are.equal('float32[4, 2] on placement("meta", {0, 1, 2, 3}) as B, no values', tostring(state.a))
        os.remove(path)
    end)
end)
