-- kvstore_spec.lua -- stores of one process: values after init and push, updaters and optimizers, files, messages.
-- tests/ranks/kvstore_spec.lua has stores of several workers.
local flow = require "flow"
local support = require "tests.support"
local optim = flow.optim

local function all(x, shape) return flow.full(shape or {4, 4}, x, {dtype = "float32"}) end

-- The value of a key, which is the same number everywhere.
local function value_of(kv, key, shape, dtype)
    local out = flow.full(shape or {4, 4}, -77, {dtype = dtype or "float32"})
    kv:pull(key, out)
    local lowest, highest = out:min():item(), out:max():item()
    assert.are.equal(lowest, highest)
    return lowest
end

local function add(_, pushed, stored) stored:add_(pushed) end

for _, keys in ipairs {{3, 5, 7, 11}, {"a", "b", "c", "d"}, {3, "3", "b", -1}} do
    describe(("a local store with the keys %s, %s, ..."):format(keys[1], keys[2]), function()
        local kv
        before_each(function()
            kv = flow.kvstore.create "local"
            kv:init(keys[1], all(4))
            kv:init({keys[2], keys[3], keys[4]}, {all(0), all(1), all(2)})
        end)

        it("holds what keys were made with", function()
            for i, x in ipairs {4, 0, 1, 2} do assert.are.equal(x, value_of(kv, keys[i])) end
        end)

        it("replaces a value by what is pushed", function()
            kv:push(keys[1], all(9))
            assert.are.equal(9, value_of(kv, keys[1]))
            kv:push({keys[1], keys[2]}, {all(5), all(6)})
            for i, x in ipairs {5, 6, 1, 2} do assert.are.equal(x, value_of(kv, keys[i])) end
        end)

        it("sums lists of tensors", function()
            kv:push(keys[1], {all(1), all(2), all(3), all(4)})
            assert.are.equal(10, value_of(kv, keys[1]))
            kv:push({keys[2], keys[3]}, {{all(1), all(2)}, all(7)})
            assert.are.equal(3, value_of(kv, keys[2]))
            assert.are.equal(7, value_of(kv, keys[3]))
        end)

        it("sums the tensors of a key that occurs twice", function()
            kv:push({keys[1], keys[2], keys[1]}, {all(1), all(2), {all(3), all(4)}})
            assert.are.equal(8, value_of(kv, keys[1]))
        end)

        it("is pulled into several tensors", function()
            local outs = {all(0), all(0), all(0)}
            kv:pull(keys[1], outs)
            for _, out in ipairs(outs) do assert.are.same(all(4):totable(), out:totable()) end
            kv:pull({keys[1], keys[3]}, {{outs[1], outs[2]}, outs[3]})
            assert.are.same({4, 4, 1}, {outs[1][{0, 0}]:item(), outs[2][{0, 0}]:item(), outs[3][{0, 0}]:item()})
        end)

        it("pushes and pulls in one call", function()
            local out = all(0)
            kv:pushpull(keys[1], {all(1), all(2)}, out)
            assert.are.same(all(3):totable(), out:totable())
        end)

        it("calls the updater with the key, the sum and the value", function()
            local seen = {}
            kv:set_updater(function(key, pushed, stored)
                seen[#seen + 1] = key
                return stored:add_(pushed)
            end)
            for _ = 1, 3 do kv:push({keys[2], keys[3]}, {{all(1), all(1)}, all(2)}) end
            assert.are.same({keys[2], keys[3], keys[2], keys[3], keys[2], keys[3]}, seen)
            assert.are.equal(6, value_of(kv, keys[2]))
            assert.are.equal(7, value_of(kv, keys[3]))
        end)
    end)
end

describe("a local store", function()
    local kv
    before_each(function() kv = flow.kvstore.create "local" end)

    it("says what it is", function()
        kv:init({1, "x"}, {all(0), all(0)})
        assert.are.same({"local", 0, 1}, {kv.type, kv.rank, kv.num_workers})
        assert.are.equal('kvstore("local", 2 keys, worker 0 of 1)', tostring(kv))
        kv:barrier()
    end)

    it("keeps copies, and gives them", function()
        local x, out = all(1), all(0)
        kv:init("x", x)
        x:fill_(2)
        kv:pull("x", out)
        out:fill_(3)
        assert.are.equal(1, value_of(kv, "x"))
        kv:push("x", x)
        x:fill_(4)
        assert.are.equal(2, value_of(kv, "x"))
        kv:set_updater(function(_, pushed, stored) stored:add_(pushed:mul_(10)) end)
        kv:push("x", x)
        assert.are.equal(4, x[{0, 0}]:item())
        assert.are.equal(42, value_of(kv, "x"))
    end)

    for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"} do
        it("holds " .. dtype .. ", any shape, any layout", function()
            for _, shape in ipairs {{}, {0, 3}, {1}, {3, 5}, {2, 3, 4}} do
                local key = table.concat(shape, "x")
                kv:init(key, flow.full(shape, 3, {dtype = dtype}))
                kv:set_updater(add)
                kv:push(key, support.strided(flow.full(shape, 2, {dtype = dtype})))
                local out = flow.zeros(shape, {dtype = dtype})
                kv:pull(key, out)
                assert.are.same(flow.full(shape, 5, {dtype = dtype}):totable(), out:totable())
            end
        end)
    end

    it("takes gradients, and writes to parameters", function()
        local w = flow.ones(3, {requires_grad = true})
        kv:init("w", w)
        kv:push("w", w * 2)
        kv:pull("w", w)
        assert.is_true(w.requires_grad and w.is_leaf)
        assert.are.same({2, 2, 2}, w:totable())
    end)

    it("gives rows, and zeros in place of the others", function()
        local table_ = flow.arange(12, {dtype = "float32"}):view(4, 3)
        kv:init("e", table_ + 1)
        local out, other = all(9, {4, 3}), all(9, {4, 3})
        kv:row_sparse_pull("e", flow.tensor {2, 0, 2}, out)
        assert.are.same({{1, 2, 3}, {0, 0, 0}, {7, 8, 9}, {0, 0, 0}}, out:totable())
        kv:row_sparse_pull("e", flow.tensor({{3}, {3}}, {dtype = "int32"}), {out, other})
        for _, t in ipairs {out, other} do
            assert.are.same({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {10, 11, 12}}, t:totable())
        end
        kv:row_sparse_pull("e", {flow.tensor {1}, flow.zeros(0, {dtype = "int64"})}, {out, other})
        assert.are.same({{0, 0, 0}, {4, 5, 6}, {0, 0, 0}, {0, 0, 0}}, out:totable())
        assert.are.same(flow.zeros(4, 3):totable(), other:totable())
        kv:init("f", -table_)
        kv:row_sparse_pull({"e", "f"}, {flow.tensor {0}, {flow.tensor {1}}}, {out, {other}})
        assert.are.same({{1, 2, 3}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, out:totable())
        assert.are.same({{0, 0, 0}, {-3, -4, -5}, {0, 0, 0}, {0, 0, 0}}, other:totable())
    end)
end)

describe("an optimizer on the store", function()
    local options = {
        SGD = {lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01}, Adam = {lr = 0.01}, AdamW = {lr = 0.01},
    }
    local shapes = {w = {3, 4}, b = {4}, [7] = {}}

    -- Values after some steps: of tensors by themselves, and of a store whose optimizer is set by `set`.
    local function check(kind, set)
        local kv, params, list = flow.kvstore.create "local", {}, {}
        for key, shape in pairs(shapes) do
            params[key] = flow.randn(shape)
            list[#list + 1] = params[key]
            kv:init(key, params[key])
        end
        local opt = optim[kind](list, options[kind])
        set(kv)
        for number = 1, 5 do
            for key, shape in pairs(shapes) do
                local g = flow.randn(shape)
                if number ~= 3 or key ~= "b" then -- states count alone
                    params[key].grad = g
                    kv:push(key, {g * 0.5, g * 0.5})
                end
            end
            opt:step()
            opt:zero_grad()
        end
        for key, shape in pairs(shapes) do
            local out = flow.zeros(shape)
            kv:pull(key, out)
            assert.are.same(params[key]:totable(), out:totable())
        end
    end

    for kind in pairs(options) do
        it(kind .. " by name and options makes the steps of " .. kind, function()
            check(kind, function(kv) kv:set_optimizer(kind, options[kind]) end)
        end)
        it(kind .. " as an object does", function()
            check(kind, function(kv) kv:set_optimizer(optim[kind]({flow.zeros(1)}, options[kind])) end)
        end)
        it(kind .. " from a function does", function()
            check(kind, function(kv)
                kv:set_optimizer(function(key, stored)
                    assert.is_truthy(shapes[key])
                    return optim[kind]({stored}, options[kind])
                end)
            end)
        end)
    end

    it("steps once for a list of keys, and takes a new rate", function()
        local kv = flow.kvstore.create "local"
        kv:init({1, 2}, {all(1), all(2)})
        kv:set_optimizer("SGD", {lr = 0.5})
        kv:push({1, 2}, {all(1), all(2)})
        assert.are.same({0.5, 1}, {value_of(kv, 1), value_of(kv, 2)})
        kv:set_lr(0.25)
        kv:push({1, 2}, {all(1), all(2)})
        assert.are.same({0.25, 0.5}, {value_of(kv, 1), value_of(kv, 2)})
        kv:init(3, all(1))
        kv:push(3, all(2))
        assert.are.equal(0.5, value_of(kv, 3))
        kv:set_updater(add)
        kv:push(3, all(2))
        assert.are.equal(2.5, value_of(kv, 3))
    end)

    it("makes the same steps when they are captured", function()
        local seen = {}
        for i, wrap in ipairs {function(f) return f end, flow.capture} do
            local kv, w = flow.kvstore.create "local", all(1)
            kv:init("w", w)
            kv:set_optimizer("AdamW", {lr = 0.1})
            kv:set_compression {threshold = 0.2}
            local step = wrap(function(x)
                kv:pushpull("w", x * 2, w)
                return w:sum()
            end)
            seen[i] = {}
            for number = 1, 6 do
                kv:set_lr(0.1 / number)
                seen[i][number] = step(all(0.03 * number)):item()
            end
        end
        assert.are.same(seen[1], seen[2])
    end)

    it("keeps its state in a file", function()
        local path = os.tmpname()
        for _, each in ipairs {false, true} do
            local function make(values)
                local kv = flow.kvstore.create "local"
                kv:init({"a", 2}, values)
                if each then
                    kv:set_optimizer(function(key, stored)
                        return optim.SGD({stored}, {lr = key == 2 and 0.5 or 0.25, momentum = 0.5})
                    end)
                else
                    kv:set_optimizer("SGD", {lr = 0.5, momentum = 0.5})
                end
                return kv
            end
            local kv, values = make {all(0), all(0)}, {all(0), all(0)}
            kv:pushpull({"a", 2}, {all(-1), all(-2)}, values)
            kv:set_lr(1)
            kv:save(path)
            local other = make(values)
            other:load(path)
            for _, one in ipairs {kv, other} do one:push({"a", 2}, {all(0), all(-1)}) end
            for _, key in ipairs {"a", 2} do assert.are.equal(value_of(kv, key), value_of(other, key)) end
        end
        os.remove(path)
    end)
end)

describe("compression", function()
    local kv
    before_each(function()
        kv = flow.kvstore.create "local"
        kv:set_updater(add)
        kv:set_compression {type = "2bit", threshold = 0.5}
    end)

    for _, shape in ipairs {{}, {1}, {16}, {17}, {5, 7}, {70, 33}} do
        for _, dtype in ipairs {"float32", "float16", "bfloat16", "float64"} do
            it(("of %s [%s] gives the threshold or nothing, and keeps the rest"):format(dtype, table.concat(shape, ", ")), function()
                local function check(x, want)
                    kv:push("w", flow.full(shape, x, {dtype = dtype}))
                    assert.are.equal(want, value_of(kv, "w", shape, dtype))
                end
                kv:init("w", flow.full(shape, 3, {dtype = dtype}))
                assert.are.equal(3, value_of(kv, "w", shape, dtype))
                for _, case in ipairs {{0, 3}, {0.375, 3}, {0.125, 3.5}, {0.25, 3.5}, {2.25, 4}, {0, 4.5}, {-2, 4}, {-0.5, 3.5}} do
                    check(case[1], case[2])
                end
            end)
        end
    end

    it("is that of each place in a list, and ends", function()
        kv:init("w", all(0))
        kv:push("w", {all(0.25), all(0.25)})
        assert.are.equal(0, value_of(kv, "w"))
        kv:push("w", {all(0.25), all(0.125)})
        assert.are.equal(0.5, value_of(kv, "w"))
        kv:push("w", {all(0), all(0.125)})
        assert.are.equal(1, value_of(kv, "w"))
        kv:set_compression {type = "none"}
        kv:push("w", {all(0.125), all(0.125)})
        assert.are.equal(1.25, value_of(kv, "w"))
    end)

    it("gives each element its own code, and NaN as it is", function()
        local x, out = flow.randn(50, 3), flow.zeros(50, 3)
        x[{7, 1}] = 0 / 0
        kv:init("w", out)
        kv:push("w", x)
        kv:pull("w", out)
        for i, row in ipairs(x:totable()) do
            for j, v in ipairs(row) do
                local got = out[{i - 1, j - 1}]:item()
                if v ~= v then assert.is_true(got ~= got) else assert.are.equal(v >= 0.5 and 0.5 or v <= -0.5 and -0.5 or 0, got) end
            end
        end
    end)
end)

describe("stores refuse", function()
    local kv, a, path
    before_each(function()
        kv, a = flow.kvstore.create "local", all(1)
        kv:init({3, "w"}, {a, flow.zeros(2)})
        path = path or os.tmpname()
    end)
    teardown(function() os.remove(path) end)

    local g2 = "set_optimizer: the optimizer has 2 groups; for options of each key, give a function of key and tensor that " ..
        "returns an optimizer"
    for _, case in ipairs {
        {"create: missing argument 'type'", function() flow.kvstore.create() end},
        {"create: type must be a string, got 3", function() flow.kvstore.create(3) end},
        {"create: type must be one of dist_async|dist_sync|local, got 'locl'", function() flow.kvstore.create "locl" end},
        {"kvstore has no 'crate'; did you mean 'create'?", function() flow.kvstore.crate "local" end},
        {"kvstore has no 'pul'; did you mean 'pull'?", function() kv:pul(3, a) end},
        {"push: a method is called with a colon, store:push(); got 3 as the store", function() kv.push(3, a) end},

        {"init: key 3 exists already", function() kv:init(3, a) end},
        {"init: key 'x' exists already", function() kv:init({"x", "x"}, {a, a}) end},
        {"init: key 'x' is bool[2], and a store adds up numbers", function() kv:init("x", flow.tensor {true, false}) end},
        {"init: value has 2 tensors; a key begins with one", function() kv:init("x", {a, a}) end},
        {"init: missing argument 'value'", function() kv:init "x" end},
        {"init: value must be a tensor or a list of tensors, got nil", function() kv:init("x", nil) end},
        {"init: value must be a tensor or a list of tensors, got 5", function() kv:init("x", 5) end},
        {"init: key must be a whole number or a string, got 3.5", function() kv:init(3.5, a) end},
        {"init: key must be a whole number or a string, got true", function() kv:init(true, a) end},
        {"init: key must be a whole number or a string, got float32 tensor", function() kv:init(a, a) end},
        {"init: key[2] must be a whole number or a string, got nan", function() kv:init({1, 0 / 0}, {a, a}) end},

        {"push: there is no key 9: make it with init(key, value)", function() kv:push(9, a) end},
        {"push: there is no key 'v': make it with init(key, value)", function() kv:push("v", a) end},
        {"push: value must be a tensor or a list of tensors, got nil", function() kv:push(3, nil) end},
        {"push: value is an empty list", function() kv:push({3, "w"}, {nil}) end},
        {"push: there are 2 keys, but value has length 1", function() kv:push({3, "w"}, {a, nil}) end},
        {"push: value[1] is nil", function() kv:push({3, "w"}, {nil, a}) end},
        {"push: value[2][1] must be a tensor, got 1", function() kv:push({3, "w"}, {a, {1}}) end},
        {"push: value[2] is an empty list", function() kv:push({3, "w"}, {a, {}}) end},
        {"push: with a list of keys, value must be a list too, got float32 tensor", function() kv:push({3, "w"}, a) end},
        {"push: value must be a list, got the key 'g'", function() kv:push(3, {a, g = a}) end},
        {"push: key must be a list, got the key 'w'", function() kv:push({w = 1}, {a}) end},
        {"push: key is an empty list", function() kv:push({}, {a}) end},
        {"push: key[1] is nil", function() kv:push({[2] = 3}, {a}) end},
        {"push: key 3 is float32[4, 4], but value is float32[4]", function() kv:push(3, flow.ones(4)) end},
        {"push: key 3 is float32[4, 4], but value[2] is int64[4, 4]", function() kv:push(3, {a, a:to "int64"}) end},
        {"push: key 'w' is float32[2], but value[2] is float32[4, 4]", function() kv:push({3, "w"}, {a, a}) end},
        {"push: too many arguments: push(key: any, value: any)", function() kv:push(3, a, a) end},

        {"pull: out must be a tensor or a list of tensors, got nil", function() kv:pull(3, nil) end},
        {"pull: key 3 is float32[4, 4], but out is float64[4, 4]", function() kv:pull(3, a:to "float64") end},
        {"pull: key 3 is float32[4, 4], but out[2] is float32[2]", function() kv:pull(3, {a, flow.zeros(2)}) end},
        {"pull: out was computed from tensors that require grad; write to a leaf, or to out:detach()",
            function() kv:pull(3, flow.ones(4, 4, {requires_grad = true}) * 2) end},
        {"pushpull: key 3 is float32[4, 4], but value is float32[2]", function() kv:pushpull(3, flow.zeros(2), a) end},
        {"pushpull: key 3 is float32[4, 4], but out is float32[2]", function() kv:pushpull(3, a, flow.zeros(2)) end},

        {"row_sparse_pull: rows must be int64 or int32, got float32", function() kv:row_sparse_pull(3, a, a) end},
        {"row_sparse_pull: rows must be a tensor or a list of tensors, got table", function() kv:row_sparse_pull(3, setmetatable({}, {}), a) end},
        {"row_sparse_pull: rows has 2 tensors, out has 1",
            function() kv:row_sparse_pull(3, {flow.tensor {1}, flow.tensor {2}}, a) end},
        {"row_sparse_pull: key 's' is float32[], which has no rows", function()
            kv:init("s", flow.tensor(1.0))
            kv:row_sparse_pull("s", flow.tensor {0}, flow.tensor(1.0))
        end},
        {"row_sparse_pull: index_select: index[1] is 4, but this axis of x has 4 positions (0 to 3)",
            function() kv:row_sparse_pull(3, flow.tensor {0, 4}, a) end},

        {"set_updater: f must be a function, got 3", function() kv:set_updater(3) end},
        {"push: the updater returned float32 tensor; it must change `stored` in place, as stored:add_(pushed) does", function()
            kv:set_updater(function(_, pushed, stored) return stored + pushed end)
            kv:push(3, a)
        end},
        {"set_optimizer: there is no optimizer 'Sgd'; did you mean 'SGD'?", function() kv:set_optimizer "Sgd" end},
        {"set_optimizer: SGD: unknown option 'rate'", function() kv:set_optimizer("SGD", {rate = 1}) end},
        {"set_optimizer: optimizer must be a string or a function or an optimizer, got 3", function() kv:set_optimizer(3) end},
        {"set_optimizer: options come with a name: set_optimizer(\"SGD\", {lr = 0.1})",
            function() kv:set_optimizer(optim.SGD({a}), {lr = 1}) end},
        {g2, function() kv:set_optimizer(optim.SGD {{params = {a}}, {params = {flow.zeros(2)}}}) end},
        {"set_optimizer: the function must return an optimizer, got nil", function()
            kv:set_optimizer(function() end)
            kv:push(3, a)
        end},
        {"set_optimizer: the function must return an optimizer of the one tensor that it is given", function()
            kv:set_optimizer(function() return optim.SGD({a}, {lr = 1}) end)
            kv:push(3, a)
        end},
        {"set_optimizer: key 'n' is int64[3], and an optimizer updates only floats", function()
            kv:init("n", flow.arange(3))
            kv:set_optimizer "SGD"
        end},
        {"init: key 'n' is int64[3], and an optimizer updates only floats", function()
            kv:set_optimizer "SGD"
            kv:init("n", flow.arange(3))
        end},
        {"set_compression: type must be one of 2bit|none, got '1bit'", function() kv:set_compression {type = "1bit"} end},
        {"set_compression: threshold must be above 0", function() kv:set_compression {threshold = 0} end},
        {"set_compression: threshold must be a number >= 0, got -1", function() kv:set_compression {threshold = -1} end},
        {"set_compression: key 'n' is int64[3], and compression takes only floats", function()
            kv:init("n", flow.arange(3))
            kv:set_compression {}
        end},
        {"set_lr: the store has no optimizer", function() kv:set_lr(1) end},
        {"set_lr: lr must be a number >= 0, got -1", function() kv:set_lr(-1) end},
        {"save: the store has no optimizer", function() kv:save(path) end},
        {"load: the store has no optimizer", function() kv:load(path) end},
    } do
        it(case[1], function() assert.are.equal(case[1], support.message_of(case[2])) end)
    end

    it("files of others", function()
        kv:set_optimizer("SGD", {momentum = 0.5})
        local function load_error() return (support.message_of(function() kv:load(path) end):gsub(path, "FILE", nil, true)) end
        flow.save(path, {a = a})
        assert.are.equal("load: FILE was not saved by a store", load_error())
        flow.save(path, {kind = "kvstore", keys = {1}})
        assert.are.equal("load: FILE was not saved by a store", load_error())
        local other = flow.kvstore.create "local"
        other:init(3, a)
        other:set_optimizer "AdamW"
        other:save(path)
        assert.are.equal("load: FILE has no state of key 'w'", load_error())
        other:init({"w", "z"}, {flow.zeros(2), a})
        other:save(path)
        assert.are.equal("load: FILE has a state of key 'z', which the store does not have", load_error())
        kv:init("z", a)
        assert.are.equal("load: the state of key 3 is that of 'AdamW', the store has SGD", load_error())
    end)
end)
