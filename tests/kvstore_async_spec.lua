-- kvstore_async_spec.lua -- stores on servers: jobs whose last ranks serve. kvstore_spec.lua has what all stores do.
local process = require "tests.process"

local with_ranks = process.it_with_ranks

-- The output of a job, with its lines sorted, and its exit status.
local function job(ranks, code, before)
    local settings = ("%s FLOW_TIMEOUT=20 %s timeout -k 1 60"):format(process.no_leaks, before or "")
    local text, status = process.run(settings, code, "--ranks " .. ranks)
    local lines = process.lines(text)
    table.sort(lines)
    return lines, status, text
end

-- The job ends well, and each of its workers has printed "ok" and nothing else.
local function succeeds(ranks, workers, code, before)
    local lines, status = job(ranks, code .. "\nprint 'ok'\n", before)
    local want = {}
    for i = 1, workers do want[i] = "ok" end
    assert.are.same(want, lines)
    assert.are.equal(0, status)
end

-- The first line of the job's error has this in it.
local function fails(want, ranks, code)
    local _, status, text = job(ranks, code)
    assert.is_truthy(text:find(want, 1, true), text)
    assert.are_not.equal(0, status)
end

local basics = [[
    local flow = require "flow"
    local kv = flow.kvstore.create("dist_async", {servers = SERVERS, bound = 100})
    local rank, workers = kv.rank, kv.num_workers
    assert(kv.type == "dist_async" and rank == flow.rank() and workers == flow.world_size())
    local triangle = workers * (workers + 1) // 2
    local shapes = {{7, 3}, {}, {1}, {2}, {0, 3}, {90, 20}}
    local function full(shape, x, dtype) return flow.full(shape, x, {dtype = dtype}) end
    local function check(key, shape, dtype, want)
        local out = full(shape, -7, dtype)
        kv:barrier()
        kv:pull(key, out)
        if out:numel() > 0 then assert(out:min():item() == want and out:max():item() == want, tostring(out)) end
        kv:barrier()
    end
    local function each(f)
        for i, shape in ipairs(shapes) do
            for _, dtype in ipairs {"float32", "float16", "float64"} do f(dtype == "float64" and i or i .. dtype, shape, dtype) end
        end
    end

    each(function(key, shape, dtype)                            -- worker 0's values; the last push counts
        kv:init(key, full(shape, rank + 5, dtype))
        check(key, shape, dtype, 5)
        kv:push(key, {full(shape, 1, dtype), full(shape, 2, dtype)})
        check(key, shape, dtype, 3)
    end)
    local twice = 2
    kv:set_updater(function(key, pushed, stored) return stored:add_(pushed * twice) end)
    for number = 1, 2 do
        each(function(key, shape, dtype)
            kv:push(key, full(shape, rank + 1, dtype))
            check(key, shape, dtype, 3 + 2 * triangle * number)
        end)
    end

    kv:init("rows", flow.arange(160, {dtype = "float32"}):view(80, 2) + 1)
    local out = flow.zeros(80, 2)
    kv:row_sparse_pull("rows", flow.tensor {rank, 79, rank}, out)
    assert(out:sum():item() == 4 * rank + 3 + 319 and out[79]:sum():item() == 319)
    kv:row_sparse_pull("rows", flow.zeros(0, {dtype = "int64"}), out)
    assert(out:abs():sum():item() == 0)

    local g = flow.ones(80, 2)                                  -- pushes read a tensor before it is written again
    kv:init("sum", flow.zeros(80, 2))
    for i = 1, 100 do
        kv:push("sum", g)
        g:add_(1)
    end
    check("sum", {80, 2}, "float32", 2 * 5050 * workers)

    kv:set_compression {threshold = 0.5}
    assert(not pcall(kv.init, kv, "whole", flow.arange(3)))
    for i, shape in ipairs(shapes) do
        for _, dtype in ipairs {"float32", "float16"} do
            local key = "compressed" .. i .. dtype
            kv:init(key, full(shape, 1, dtype))
            for _, case in ipairs {{0.375, 0}, {0.125, 1}, {2, 2}, {-2, 1}, {0, 1}} do
                kv:push(key, full(shape, case[1], dtype))
                check(key, shape, dtype, 1 + case[2] * workers)
            end
        end
    end
]]

describe("a dist_async store", function()
    for _, case in ipairs {{3, 1, ""}, {4, 2, "FLOW_ENGINE=queued FLOW_SHARED=0"}} do
        with_ranks(("of %d ranks with %d servers %s holds what workers push"):format(table.unpack(case)), function()
            succeeds(case[1], case[1] - case[2], (basics:gsub("SERVERS", case[2])), case[3])
        end)
    end

    with_ranks("updates by an optimizer, whose state goes into a file and back", function()
        local path = os.tmpname()
        succeeds(4, 2, (([[
            local flow = require "flow"
            local kv = flow.kvstore.create("dist_async", {servers = 2, bound = 10})
            local w, b = flow.randn(7, 3), flow.randn(3)
            local want, got = {w:clone(), b:clone()}, {w:clone(), b:clone()}
            kv:init({"w", 4}, {w, b})
            local function check()
                kv:barrier()
                kv:pull({"w", 4}, got)
                for i = 1, 2 do assert((want[i] - got[i]):abs():max():item() < 1e-6) end
                kv:barrier()
            end
            local options = {lr = 0.1, weight_decay = 0.01}
            local opt = flow.optim.AdamW(want, options)
            local function step()
                local grads = {flow.randn(7, 3), flow.randn(3)} -- the same on all ranks; one of them pushes
                for i = 1, 2 do want[i].grad = grads[i] end
                opt:step()
                if kv.rank == 1 then kv:push({"w", 4}, grads) end
                check()
            end
            kv:set_optimizer("AdamW", options)
            for _ = 1, 3 do step() end
            kv:save "PATH"
            local state = opt:state_dict()
            opt = flow.optim.AdamW(want, options)
            opt:load_state_dict(state)
            kv:set_optimizer(flow.optim.AdamW({flow.zeros(1)}, options))
            kv:load "PATH"
            for _ = 1, 2 do step() end
            opt:set_lr(0.01)
            kv:set_lr(0.01)
            kv:barrier()
            step()
            local optim = flow.optim                            -- a module goes along with the function
            kv:set_optimizer(function(key, stored) return optim.SGD({stored}, {lr = key == "w" and 0.5 or 0.25}) end)
            kv:barrier()
            if kv.rank == 0 then kv:push({"w", 4}, {w, b}) end
            want[1]:sub_(w * 0.5)
            want[2]:sub_(b * 0.25)
            check()
        ]]):gsub("PATH", path)))
        os.remove(path)
    end)

    local slow = [[
        local flow = require "flow"
        local kv = flow.kvstore.create("dist_async", {staleness = STALENESS})
        local one, out = flow.ones(8), flow.zeros(8)
        kv:set_updater(function(_, pushed, stored) stored:add_(pushed) end)
        kv:init("w", flow.zeros(8))
        if kv.rank == 1 then os.execute "sleep 0.5" end
        for _ = 1, 200 do kv:push("w", one) end
        kv:pull("w", out)
        local seen = out[0]:item()
        kv:barrier()
        kv:pull("w", out)
        assert(out[0]:item() == 400)
        kv:barrier()
    ]]

    with_ranks("does not let a slow worker slow the others", function()
        -- Worker 0 has made all of its pushes and its pull while worker 1 sleeps.
        succeeds(3, 2, slow:gsub("STALENESS", "nil") .. "assert(kv.rank == 1 or seen == 200, seen)")
    end)

    with_ranks("holds up who is too far ahead, where staleness is bounded", function()
        -- At worker 0's pull worker 1 has made all but 10 of as many pushes, or more.
        succeeds(3, 2, slow:gsub("STALENESS", "10") .. "assert(kv.rank == 1 or seen >= 390, seen)")
    end)

    with_ranks("names a worker that others wait for in vain", function()
        local code = [[
            local flow = require "flow"
            local kv = flow.kvstore.create("dist_async", {staleness = STALENESS})
            kv:init("w", flow.zeros(4))
            if kv.rank == 1 then END end
            for _ = 1, 50 do kv:push("w", flow.ones(4)) end
            kv:barrier()
        ]]
        local kill = "os.execute('kill -9 ' .. io.open '/proc/self/stat':read 'n')"
        fails("rank 1 was killed", 3, (code:gsub("STALENESS", "3"):gsub("END", kill)))
        fails("rank 0: script.lua:6: kvstore barrier: rank 1 has ended; all workers must call it", 3,
            (code:gsub("STALENESS", "nil"):gsub("END", "return")))
    end)

    with_ranks("lets workers close at different times, and leaves them the world", function()
        succeeds(3, 2, [[
            local flow = require "flow"
            local before = flow.ones({6}, {placement = flow.placement.all "cpu", sbp = "S(0)"})
            local kv = flow.kvstore.create("dist_async", {staleness = 2})
            kv:init("w", flow.zeros(4))
            if kv.rank == 0 then for _ = 1, 2 do kv:push("w", flow.ones(4)) end end
            if kv.rank == 1 then kv:close() else for _ = 1, 20 do kv:push("w", flow.ones(4)) end end
            assert(flow.world_size() == 2 and tostring(flow.placement.all "cpu") == 'placement("cpu", {0, 1})')
            assert(flow.ones({6}, {placement = flow.placement.all "cpu", sbp = "S(0)"}):sum():item() == 6)
            local done, message = pcall(function() return before:to_global{sbp = "B"}:to_local():sum():item() end)
            assert(not done and message:find("rank 2 serves a key-value store and takes part in no collective", 1, true), message)
            kv:close()
            kv:close()
            done, message = pcall(kv.pull, kv, "w", flow.zeros(4))
            assert(not done and message:find("kvstore pull: the store is closed", 1, true), message)
        ]])
    end)

    with_ranks("is not sent what a file has lost", function()
        succeeds(2, 1, [[
            local flow = require "flow"
            local kv = flow.kvstore.create "dist_async"
            local path = os.tmpname()
            flow.data.save_npy(path, flow.ones(60000))
            local gone = flow.data.npy(path, {map = true})
            os.execute("truncate -s 4096 " .. path)
            kv:init("w", flow.zeros(60000))
            local done, message = pcall(function() kv:push("w", gone) flow.sync() end)
            assert(not done and message:find("the file has become shorter", 1, true), message)
            flow.sync()
            local out = flow.ones(60000)
            kv:pull("w", out)
            assert(out:abs():max():item() == 0)
            os.remove(path)
        ]])
    end)

    with_ranks("reports an error of the updater with its line, and ends", function()
        fails("rank 2: script.lua:4: mul: y must be a tensor or a number, got nil", 3, [[
            local flow = require "flow"
            local kv = flow.kvstore.create "dist_async"
            kv:set_updater(function(_, pushed, stored)
                stored:add_(pushed * nothing)
            end)
            kv:init("w", flow.zeros(4))
            kv:push("w", flow.ones(4))
            kv:barrier()
        ]])
    end)

    with_ranks("refuses what cannot be", function()
        local _, status, text = job(1, [[require "flow".kvstore.create("dist_async", {servers = 2})]])
        assert.are.equal(1, status)
        assert.is_truthy(text:find("create: dist_async with 2 servers needs 3 ranks or more, there is 1: start the script with flowlua --ranks 3", 1, true), text)
        succeeds(2, 1, [[
            local flow = require "flow"
            local function fails(want, f, ...)
                local done, message = pcall(f, ...)
                assert(not done and message:find(want, 1, true), message)
            end
            if flow.rank() == 0 then fails("create: staleness must be a whole number >= 0, got -1", flow.kvstore.create, "dist_async", {staleness = -1}) end
            local kv = flow.kvstore.create "dist_async"
            fails("create: this job has a dist_async store already", flow.kvstore.create, "dist_async")
            fails("create: servers is an option of dist_async, not of local", flow.kvstore.create, "local", {servers = 1})
            local t, u = flow.zeros(2), flow.zeros(2)
            kv:init("w", t)
            fails("set_updater: the function uses 't', a float32 tensor; the servers have none of your tensors and objects",
                kv.set_updater, kv, function() t:zero_() end)
            local list = {}
            list.self = list
            fails("set_updater: the function uses 'list', which leads to itself", kv.set_updater, kv, function() return list end)
            fails("set_updater: a function that is not written in Lua cannot be sent", kv.set_updater, kv, coroutine.wrap(print))
            fails("push: there is no key 'v'", kv.push, kv, "v", t)
            fails("push: key 'w' is float32[2], but value is float32[3]", kv.push, kv, "w", flow.zeros(3))
            fails("row_sparse_pull: row 1 is 2, but key 'w' has 2 rows", kv.row_sparse_pull, kv, "w", flow.tensor {0, 2}, u)
            fails("row_sparse_pull: row 0 is -1, but key 'w' has 2 rows", kv.row_sparse_pull, kv, "w", flow.tensor {-1}, u)
            kv:init("parts", flow.zeros(8, 3))
            fails("row_sparse_pull: row 0 is -1, but key 'parts' has 8 rows", kv.row_sparse_pull, kv, "parts", flow.tensor {-1}, flow.zeros(8, 3))
            fails("init: key 'flags' is bool[1], and a store adds up numbers", kv.init, kv, "flags", flow.tensor {true})
            fails("save: the store has no optimizer", kv.save, kv, "/tmp/x")
        ]])
        fails("create: the ranks give different options of dist_async", 2, [[
            local flow = require "flow"
            flow.kvstore.create("dist_async", {bound = flow.rank() + 1})
        ]])
        fails("kvstore: rank 0 calls init of key 'w' as float32[2], rank 1 calls init of key 'w' as float32[3]", 3, [[
            local flow = require "flow"
            local kv = flow.kvstore.create "dist_async"
            kv:init("w", flow.zeros(kv.rank + 2))
        ]])
        fails("kvstore: rank 0 calls barrier, rank 1 calls set_updater", 3, [[
            local flow = require "flow"
            local kv = flow.kvstore.create "dist_async"
            if kv.rank == 0 then kv:barrier() else kv:set_updater(function() end) end
        ]])
    end)
end)
