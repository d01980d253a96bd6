-- kvstore_spec.lua -- stores of several workers: sums of what all push, values in parts, compression, the losses of
-- data-parallel training.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim

local rank, world = ranks.rank, ranks.world
local triangle = world * (world + 1) // 2       -- the sum of rank + 1
local all = flow.placement.all "cpu"

local function full(shape, x, dtype) return flow.full(shape, x, {dtype = dtype or "float32"}) end

-- The value of a key, which is the same number everywhere; `nothing` if there are no elements.
local function value_of(kv, key, shape, dtype, nothing)
    local out = full(shape, -77, dtype)
    kv:pull(key, out)
    if out:numel() == 0 then return nothing end
    local lowest, highest = out:min():item(), out:max():item()
    assert.are.equal(lowest, highest)
    return lowest
end

local function add(_, pushed, stored) stored:add_(pushed) end

local shapes = {{2, 3}, {7, 3}, {1, 9}, {5}, {}, {0, 3}, {121, 33}, {4, 2, 3}}

describe("a dist_sync store", function()
    local kv
    before_each(function() kv = flow.kvstore.create "dist_sync" end)

    it("knows its workers", function()
        assert.are.same({"dist_sync", rank, world}, {kv.type, kv.rank, kv.num_workers})
        kv:barrier()
    end)

    for _, dtype in ipairs {"float32", "float16", "bfloat16", "float64", "int32"} do
        it("begins with the values of worker 0 and sums what all push, in " .. dtype, function()
            local keys, values = {}, {}
            for i, shape in ipairs(shapes) do keys[i], values[i] = i, full(shape, 10 + rank, dtype) end
            kv:init(keys, values)
            for i, shape in ipairs(shapes) do
                assert.are.equal(10, value_of(kv, i, shape, dtype, 10))
                kv:push(i, full(shape, rank + 1, dtype))
                assert.are.equal(triangle, value_of(kv, i, shape, dtype, triangle))
            end
            kv:set_updater(add)
            for number = 1, 3 do
                for i, shape in ipairs(shapes) do
                    kv:push(i, {full(shape, rank + 1, dtype), full(shape, 1, dtype)})
                    local want = triangle + number * (triangle + world)
                    assert.are.equal(want, value_of(kv, i, shape, dtype, want))
                end
            end
        end)
    end

    it("keeps the parts of a value on the ranks, and gives them to the updater", function()
        kv:init({"long", "short"}, {full({2 * world + 1, 3}, 0), full({}, 0)})
        local seen = {}
        kv:set_updater(function(key, pushed, stored)
            seen[key] = ("%s %s"):format(pushed.sbp, stored.sbp)
            assert.are.same({key == "long" and 2 * world + 1 or nil, key == "long" and 3 or nil}, stored.shape)
        end)
        kv:push({"long", "short"}, {full({2 * world + 1, 3}, 1), full({}, 1)})
        assert.are.same({long = "S(0) S(0)", short = "B B"}, seen)
    end)

    it("gives each worker the rows it asks for", function()
        local rows = 8 * world
        kv:init("e", flow.arange(rows * 2, {dtype = "float32"}):view(rows, 2) + 1)
        local out = full({rows, 2}, 9)
        local function check(index)
            kv:row_sparse_pull("e", flow.tensor(index, {dtype = "int64"}), out)
            local want = full({rows, 2}, 0)
            for _, i in ipairs(index) do want[i] = flow.tensor {2 * i + 1.0, 2 * i + 2.0} end
            assert.are.same(want:totable(), out:totable())
        end
        check {rank, rows - 1 - rank, rank}
        check(rank == 0 and {3} or {})
        check {}
        local many = {}
        for i = 1, rows do many[i] = i - 1 end
        check(many)
    end)

    it("compresses to 2 bits, and keeps what is left", function()
        kv:set_compression {type = "2bit", threshold = 0.5}
        kv:set_updater(add)
        for i, shape in ipairs(shapes) do
            for _, dtype in ipairs {"float32", "float16"} do
                local key = i .. dtype
                kv:init(key, full(shape, 1, dtype))
                local function check(x, want)
                    kv:push(key, full(shape, x, dtype))
                    want = 1 + want * world
                    assert.are.equal(want, value_of(kv, key, shape, dtype, want))
                end
                check(0, 0)
                check(0.375, 0)
                check(0.125, 0.5)   -- just the threshold
                check(0.25, 0.5)
                check(0.25, 1)
                check(0.5, 1.5)
                check(2, 2)         -- 1.5 are left
                check(0, 2.5)
                check(-2, 2)        -- of which 1 is taken back
                check(0, 1.5)
            end
        end
    end)

    it("compresses what each worker has left, alone", function()
        kv:set_compression {threshold = 0.25}
        kv:init("w", full({9, 5}, 0))
        kv:set_updater(add)
        local total, left = flow.zeros(9, 5), {}
        for r = 0, world - 1 do left[r] = flow.zeros(9, 5) end
        for number = 1, 4 do
            for r = 0, world - 1 do
                flow.manual_seed(10 * number + r)
                local g = flow.randn(9, 5) * 0.3
                if r == rank then kv:push("w", g) end
                left[r]:add_(g)
                local sent = (left[r]:ge(0.25):to "float32" - left[r]:le(-0.25):to "float32") * 0.25
                left[r]:sub_(sent)
                total:add_(sent)
            end
        end
        local out = flow.zeros(9, 5)
        kv:pull("w", out)
        assert.are.same(total:totable(), out:totable())
    end)

    it("keeps the optimizer's state in a file", function()
        local path = ranks.path and ranks.path "kv.st" or (os.getenv "RANKS_FOLDER" or "/tmp") .. "/kv.st"
        local function make(values)
            local new = flow.kvstore.create "dist_sync"
            new:init({"w", 3}, values)
            new:set_optimizer("AdamW", {lr = 0.1})
            return new
        end
        kv = make {full({7, 3}, 1), full({1}, 2)}
        local w, b = full({7, 3}, 0), full({1}, 0)
        kv:pushpull({"w", 3}, {flow.ones(7, 3), flow.ones(1)}, {w, b})
        kv:save(path)
        local other = make {w, b}
        other:load(path)
        for _, one in ipairs {kv, other} do one:push({"w", 3}, {-flow.ones(7, 3), flow.ones(1)}) end
        assert.are.equal(value_of(kv, "w", {7, 3}), value_of(other, "w", {7, 3}))
        assert.are.equal(value_of(kv, 3, {1}), value_of(other, 3, {1}))
        flow.barrier()
        if rank == 0 then os.remove(path) end
    end)

    it("refuses values that differ, and global tensors", function()
        if world > 1 then
            assert.are.equal("init: rank 0 makes key 'w' as float32[2], rank 1 makes key 'w' as float32[3]",
                support.message_of(function() kv:init("w", full({2 + (rank > 0 and 1 or 0)}, 0)) end))
            assert.are.equal("init: rank 0 makes key 0 as float32[2], rank 1 makes key 1 as float32[2]",
                support.message_of(function() kv:init(rank, full({2}, 0)) end))
        end
        kv:init("w", full({2}, 0))
        local g = flow.ones({2}, {placement = all, sbp = "B"})
        assert.are.equal("push: value is a global tensor; a worker gives a local one of its own: x:to_local()",
            support.message_of(function() kv:push("w", g) end))
        assert.are.equal("pull: out is a global tensor; a worker gives a local one of its own: x:to_local()",
            support.message_of(function() kv:pull("w", g) end))
    end)
end)

-- The losses of some steps of a small net. Each rank learns from its rows of a batch.
local function train(kv, options, captured)
    flow.manual_seed(5)
    local net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    local x, y = flow.randn(8 * world, 6), flow.randint(0, 3, {8 * world})
    local losses, names = {}, {}
    if kv then
        x, y = x:narrow(0, 8 * rank, 8), y:narrow(0, 8 * rank, 8)
        for name, p in net:named_parameters() do
            kv:init(name, p)
            names[#names + 1] = {name, p}
        end
        kv:set_optimizer("AdamW", options)
    else
        net:to_global{placement = all, sbp = "B"}
        x = flow._testing.from_part(x, x.shape, all, {"B"}):to_global{sbp = "S(0)"}
        y = flow._testing.from_part(y, y.shape, all, {"B"}):to_global{sbp = "S(0)"}
    end
    local opt = not kv and optim.AdamW(net:parameters(), options)
    local function learn(inputs, labels)
        local loss = flow.cross_entropy(net(inputs), labels)
        for _, p in ipairs(net:parameters()) do p.grad = nil end
        loss:backward()
        if kv then
            local keys, grads, params = {}, {}, {}
            for i, entry in ipairs(names) do keys[i], grads[i], params[i] = entry[1], entry[2].grad / world, entry[2] end
            kv:pushpull(keys, grads, params)
            loss = loss:detach():to_global{placement = all, sbp = "P", check = false} / world
        else
            opt:step()
        end
        return loss
    end
    if captured then learn = flow.capture(learn) end
    for step = 1, 6 do losses[step] = learn(x, y):item() end
    return losses
end

describe("training with a dist_sync store", function()
    it("has the losses of global tensors", function()
        local want = train(nil, {lr = 0.02, weight_decay = 0.1})
        local got = train(flow.kvstore.create "dist_sync", {lr = 0.02, weight_decay = 0.1})
        assert.is_true(want[6] < want[1])
        for step, loss in ipairs(want) do assert.is_true(math.abs(loss - got[step]) < 1e-6 * step, ("%.9g %.9g"):format(loss, got[step])) end
        assert.are.same(got, train(flow.kvstore.create "dist_sync", {lr = 0.02, weight_decay = 0.1}, true))
    end)

    it("falls with compressed gradients", function()
        local kv = flow.kvstore.create "dist_sync"
        kv:set_compression {threshold = 0.02}
        local losses = train(kv, {lr = 0.02})
        assert.is_true(losses[6] < losses[1])
    end)
end)
