-- data_order_spec.lua -- the order of the loader's batches and its resumption.
local flow = require "flow"
local support = require "tests.support"
local data = flow.data

describe("the loader", function()
    local set = data.tensors(flow.arange(10))

    local function epoch(loader)
        local list = {}
        for batch in loader do list[#list + 1] = table.concat(batch[1]:totable(), " ") end
        return table.concat(list, " | ")
    end

    it("walks an epoch in order", function()
        local loader = data.loader(set, {batch_size = 4})
        assert.are.equal(3, #loader)
        assert.are.equal("0 1 2 3 | 4 5 6 7 | 8 9", epoch(loader))
        assert.are.equal("0 1 2 3 | 4 5 6 7", epoch(data.loader(set, {batch_size = 4, drop_last = true})))
    end)

    it("shuffles each epoch anew, the same in every run and whatever else is drawn", function()
        local function make(seed) return data.loader(set, {batch_size = 4, shuffle = true, seed = seed}) end
        local a, b = make(5), make(5)
        local first = epoch(a)
        flow.manual_seed(99)
        flow.randn(7)
        assert.are.equal(first, epoch(b))
        local second = epoch(a)
        assert.are_not.equal(first, second)
        assert.are.equal(second, epoch(b))
        local numbers = {}
        for n in second:gmatch("%d+") do numbers[#numbers + 1] = tonumber(n) end
        table.sort(numbers)
        assert.are.same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, numbers)
        assert.are_not.equal(first, epoch(make(6)))
    end)

    it("shuffles every number of items fairly", function()
        for count = 1, 40 do
            local seen = {}
            for batch in data.loader(data.tensors(flow.arange(count)), {shuffle = true, seed = count, batch_size = 7}) do
                for _, i in ipairs(batch[1]:totable()) do seen[#seen + 1] = i end
            end
            table.sort(seen)
            for i = 1, count do assert.are.equal(i - 1, seen[i]) end
            assert.are.equal(count, #seen)
        end
        local times = {}                    -- the first among five, over 2000 seeds: 400 each, deviation 18
        local five = data.tensors(flow.arange(5))
        for seed = 1, 2000 do
            local first = data.loader(five, {shuffle = true, seed = seed}):next()[1]:item()
            times[first] = (times[first] or 0) + 1
        end
        for i = 0, 4 do assert.is_true(times[i] > 320 and times[i] < 480) end
    end)

    it("draws nothing from the default generator", function()
        flow.manual_seed(7)
        local want = flow.rand(3):totable()
        flow.manual_seed(7)
        epoch(data.loader(set, {shuffle = true}))
        assert.are.same(want, flow.rand(3):totable())
    end)

    it("goes on from every state as if it had never stopped", function()
        local function make() return data.loader(set, {batch_size = 3, shuffle = true, seed = 2}) end
        local whole, reference = make(), {}
        for i = 1, 12 do reference[i] = table.concat(whole:next()[1]:totable(), " ") end
        for stop = 0, 11 do
            local loader = make()
            for _ = 1, stop do loader:next() end
            local again = make()
            again:load_state(loader:state())
            for i = stop + 1, 12 do assert.are.equal(reference[i], table.concat(again:next()[1]:totable(), " ")) end
        end
    end)

    it("takes up a loaded state in a for, and begins a new epoch after one that was left", function()
        local loader = data.loader(set, {batch_size = 4})
        loader:next()
        assert.are.equal("0 1 2 3 | 4 5 6 7 | 8 9", epoch(loader))
        loader:load_state({epoch = 3, position = 1, seed = 0})
        assert.are.equal("4 5 6 7 | 8 9", epoch(loader))
        assert.are.equal("0 1 2 3 | 4 5 6 7 | 8 9", epoch(loader))
    end)

    it("makes a pass of its own for each loop, also for one inside another over the same loader", function()
        local loader, seen = data.loader(set, {batch_size = 4}), {}
        for outer in loader do
            for inner in loader do
                if inner[1][0]:item() == 8 then break end
                for _ in loader do
                    seen[#seen + 1] = outer[1][0]:item() * 100 + inner[1][0]:item() * 10
                    if #seen > 100 then error "the loops do not end" end
                end
            end
        end
        assert.are.same({0, 0, 0, 40, 40, 40, 400, 400, 400, 440, 440, 440, 800, 800, 800, 840, 840, 840}, seen)
    end)

    it("gives nested loops epochs of their own, in the order in which they begin", function()
        local function order(seed, number)      -- of that epoch
            local loader = data.loader(set, {batch_size = 4, shuffle = true, seed = seed})
            for _ = 1, number do epoch(loader) end
            return epoch(loader)
        end
        local loader, outer, inner = data.loader(set, {batch_size = 4, shuffle = true, seed = 8}), {}, {}
        for batch in loader do
            outer[#outer + 1] = table.concat(batch[1]:totable(), " ")
            inner[#inner + 1] = epoch(loader)
        end
        assert.are.equal(order(8, 0), table.concat(outer, " | "))
        assert.are.same({order(8, 1), order(8, 2), order(8, 3)}, inner)
        assert.are.equal(order(8, 4), epoch(loader))
    end)

    it("stands where the pass does that gave a batch last", function()
        local loader = data.loader(set, {batch_size = 4})
        local function at() return {loader.epoch, loader.position, loader.begun} end
        assert.are.same({0, 0, 0}, at())
        for outer in loader do
            if outer[1][0]:item() > 0 then break end
            assert.are.same({0, 1, 1}, at())
            for inner in loader do
                if inner then break end
            end
            assert.are.same({1, 1, 2}, at())
            loader:next()
            assert.are.same({1, 2, 2}, at())
        end
        assert.are.same({0, 2, 2}, at())
        assert.are.equal("0 1 2 3 | 4 5 6 7 | 8 9", epoch(loader))
        assert.are.same({3, 0, 3}, at())
        for batch in loader do
            assert.are.equal(3, loader.epoch)
            if batch[1][0]:item() == 8 then break end
        end
        assert.are.same({3, 3, 4}, at())
        assert.are.same({0, 1, 2, 3}, loader:next()[1]:totable())
        assert.are.same({4, 1, 5}, at())
    end)

    it("takes up the outer of two loops, and the inner ones begin the epochs that they would have", function()
        local function make() return data.loader(set, {batch_size = 4, shuffle = true, seed = 3}) end
        local function run(loader, stop)
            local list, state = {}, nil
            for batch in loader do
                state = loader:state()
                list[#list + 1] = table.concat(batch[1]:totable(), " ") .. ": " .. epoch(loader)
                if #list == stop then break end
            end
            return list, state
        end
        local whole = run(make())
        for stop = 1, 2 do
            local first, state = run(make(), stop)
            local again = make()
            again:load_state(state)
            state.begun = state.begun + 1           -- the inner loop came after
            again:load_state(state)
            assert.are.same(state, again:state())
            local rest = run(again)
            assert.are.same(whole, table.move(rest, 1, #rest, stop + 1, first))
        end
    end)

    it("keeps loops apart over a dataset that gives the same table each time", function()
        local rows = setmetatable({kind = "rows"}, {__name = "rows"})
        local dataset = setmetatable({batch = function(_, positions) rows[1] = positions return rows end},
            {__len = function() return 4 end})
        local loader, seen = data.loader(dataset, {batch_size = 2}), {}
        for outer in loader do
            local first = outer[1][0]:item()
            for inner in loader do
                assert.are.equal("rows", inner.kind)
                assert.are.equal("rows", getmetatable(inner).__name)
                seen[#seen + 1] = first * 10 + inner[1][0]:item()
            end
        end
        assert.are.same({0, 2, 20, 22}, seen)
    end)

    it("keeps no batch alive", function()
        local loader, alive = data.loader(set, {batch_size = 2}), setmetatable({}, {__mode = "k"})
        for batch in loader do
            alive[batch] = true
            if loader.position == 3 then break end
        end
        collectgarbage()
        assert.is_nil(next(alive))
        assert.is_nil(next(loader.passes))
    end)

    it("shuffles as flow.manual_seed says where it has no seed", function()
        local function make() return data.loader(set, {batch_size = 4, shuffle = true}) end
        flow.manual_seed(5)
        local loader = make()
        local first, second = epoch(loader), epoch(loader)
        assert.are_not.equal(first, second)
        flow.manual_seed(5)
        flow.randn(3)
        loader = make()
        assert.are.equal(first, epoch(loader))
        local state = loader:state()
        flow.manual_seed(6)
        assert.are.equal(second, epoch(loader))             -- the seed of its first pass
        local early = make()
        assert.are_not.equal(first, epoch(make()))
        flow.manual_seed(5)
        assert.are.equal(first, epoch(early))               -- made before the seed was
        flow.manual_seed(7)
        loader = make()
        loader:load_state(state)
        assert.are.equal(second, epoch(loader))
        loader = data.loader(set, {batch_size = 4, shuffle = true, seed = 5})
        assert.are.equal(first, epoch(loader))
        assert.are.equal(0, data.loader(set):state().seed)
    end)

    it("gives global batches, of which each rank asks for its own rows alone", function()
        local asked
        local set_of_pairs = setmetatable({
            batch = function(_, positions)
                asked = positions:totable()
                return {positions * 10, positions:unsqueeze(1):expand(-1, 2):to("float32")}
            end,
        }, {__len = function() return 11 end})
        for _, case in ipairs {{{0, 1, 2, 3}, "S(0)"}, {{3, 1}, "S(0)"}, {{{0, 1}, {2, 3}}, {"S(0)", "B"}}, {{{0, 1}, {2, 3}}, {"S(0)", "S(0)"}},
            {{2}, "B"}} do
            for rank = 0, 3 do
                local options = {batch_size = 4, shuffle = true, seed = 3, prefetch = 0}
                local plain = data.loader(set_of_pairs, options)
                flow._testing.set_world(4, rank)
                local p = flow.placement("cpu", case[1])
                options.placement, options.sbp = p, case[2]
                local loader = data.loader(set_of_pairs, options)
                for batch in loader do
                    local mine = asked
                    local want = plain:next()
                    local own
                    for _, w in ipairs(flow._windows(batch[2])) do if w.rank == rank then own = w end end
                    assert.are.same(want[2].shape, batch[2].shape)
                    assert.are.equal(tostring(flow.zeros({4}, {placement = p, sbp = case[2]}).sbp), tostring(batch[1].sbp))
                    assert.are.equal(own and own.size[1] or 0, #mine)
                    if own then
                        assert.are.same(want[1]:narrow(0, own.start[1], own.size[1]):totable(), batch[1]:to_local():totable())
                        assert.are.same(want[2]:narrow(0, own.start[1], own.size[1]):totable(), batch[2]:to_local():totable())
                    end
                end
                flow._testing.set_world(1, 0)
            end
        end
    end)

    local everywhere = flow.placement.all("cpu")
    for _, case in ipairs {
        {"a placement alone", function() data.loader(set, {placement = everywhere}) end, "loader: placement and sbp must be given together"},
        {"a split of columns", function() data.loader(set, {placement = everywhere, sbp = "S(1)"}) end,
            "loader: sbp must be S(0), rows, or B for each of the 1 axes of the placement's hierarchy"},
        {"partial batches", function() data.loader(set, {placement = everywhere, sbp = "P"}) end,
            "loader: sbp must be S(0), rows, or B for each of the 1 axes of the placement's hierarchy"},
        {"an unknown option", function() data.loader(set, {batchsize = 3}) end,
            "loader: unknown option 'batchsize'; did you mean 'batch_size'?"},
        {"a batch of nothing", function() data.loader(set, {batch_size = 0}) end,
            "loader: batch_size must be a whole number >= 1, got 0"},
        {"no dataset", function() data.loader(flow.ones(3)) end,
            "loader: takes a dataset, as data.tensors(x, y) gives (#dataset and dataset:batch(positions)), got float32 tensor"},
        {"too few items", function() data.loader(set, {batch_size = 11, drop_last = true}) end,
            "loader: 10 items are too few for a batch of 11; leave out drop_last"},
        {"a state of nothing", function() data.loader(set):load_state({}) end,
            "load_state: epoch must be a whole number >= 0, got nil"},
        {"a state that is none", function() data.loader(set):load_state("x") end,
            "load_state: state must be a table, got 'x'"},
        {"a state with other names", function() data.loader(set):load_state({epoch = 0, position = 0, sed = 1}) end,
            "load_state: unknown option 'sed'; did you mean 'seed'?"},
        {"a state whose epoch has not begun", function()
            data.loader(set):load_state({epoch = 2, position = 1, seed = 0, begun = 2})
        end, "load_state: begun must be a whole number >= 3, got 2"},
        {"a text for a dataset", function() data.loader(data.text "abc") end,
            "loader: takes a dataset, as data.tensors(x, y) gives (#dataset and dataset:batch(positions)), got Text"},
        {"a call by hand", function() data.loader(set)() end,
            "loader: not a function; write for batch in loader do, or loader:next()"},
        {"a call with something else", function() data.loader(set)(nil, {}) end,
            "loader: not a function; write for batch in loader do, or loader:next()"},
        {"batches that are no tables", function()
            data.loader(setmetatable({batch = function() end}, {__len = function() return 3 end})):next()
        end, "loader: a dataset's batch must be a table, got nil"},
    } do
        it("refuses " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end
end)
