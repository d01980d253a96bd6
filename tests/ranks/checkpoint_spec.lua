-- checkpoint_spec.lua -- files that all ranks write and read together: every SBP, dtype and placement, bit for bit; what
-- one rank's failure does to the others; files that are cut off by kill -9; other numbers of ranks.
local flow = require "flow"
local process = require "tests.process"
local ranks = require "tests.ranks.support"
local nn, optim = flow.nn, flow.optim

local folder = os.getenv "RANKS_FOLDER"
local flowlua = process.flowlua
local last = ranks.world - 1
local everywhere = flow.placement.all "cpu"

local function path(name) return folder .. "/" .. name end

-- Temporary files that are left.
local function litter() return process.output(("ls %s | grep -c '[.]tmp$'"):format(folder)):match "%d+" end

-- The message of f(...), without the position.
local function message_of(f, ...)
    local ok, message = pcall(f, ...)
    assert.is_false(ok)
    return (message:gsub("^.-:%d+: ", "", 1))
end

local shapes = {{8, 6}, {5, 3}, {1, 7}, {7}, {2}, {}, {3, 2, 5}, {4, 4, 4}, {0, 4}, {13, 9}, {2, 1, 3, 2}}

-- True if y holds, on this rank, its part of the whole.
local function holds(whole, place, nd_sbp, y)
    local position = place.position[ranks.rank]
    if not position then return true end
    local part = ranks.part(whole, place, nd_sbp, position)
    return ranks.same_numbers(part.values, ranks.values(y))
end

local function without_partials(nd_sbp)
    local list = {}
    for k, sbp in ipairs(nd_sbp) do list[k] = sbp:find "^P" and "B" or sbp end
    return list
end

local places = ranks.placements()

-- Sums of small integers wrap around, and then the oracle's maxima of them are not those of the numbers.
local function is_exact(nd_sbp, dtype)
    local text = table.concat(nd_sbp, " ") .. " "
    return not (text:find "P%(" and text:find "P " and dtype:find "int8$")
end

-- Tensors of many kinds on one placement; `wanted(nd_sbp)` chooses.
local function sample(place, seed, count, wanted)
    local random, cases, values = ranks.random(seed), {}, {}
    for i = 1, count do
        local shape, dtype = random.pick(shapes), ranks.dtypes[i % #ranks.dtypes + 1]
        local nd_sbp
        repeat nd_sbp = random.pick(ranks.nd_sbps(place, #shape, dtype)) until wanted(nd_sbp) and is_exact(nd_sbp, dtype)
        local whole = ranks.whole(shape, dtype, seed * 1000 + i)
        cases[i] = {whole = whole, name = ("t.%d"):format(i), sbp = nd_sbp}
        values[i] = ranks.global(whole, place, nd_sbp, i % 4 == 0)
    end
    return cases, values
end

-- Saves and reads back, first whole on every rank, then in other SBPs on every placement.
local function round_trip(place, seed, count, wanted)
    local wrong = ranks.complaints()
    local cases, values = sample(place, seed, count, wanted)
    flow.save(path "all.st", {t = values})
    local whole = flow.load(path "all.st").t
    for i, case in ipairs(cases) do
        local shape, dtype = ranks.shape_text(case.whole.shape), case.whole.dtype
        if whole[i].dtype ~= dtype or ranks.shape_text(whole[i].shape) ~= shape
            or not ranks.same_numbers(case.whole.values, ranks.values(whole[i])) then
            wrong.add("%s%s saved as (%s) on %s", dtype, shape, table.concat(case.sbp, ", "), tostring(place.value))
        end
    end
    for _, to in ipairs(places) do
        local chosen, random = {}, ranks.random(seed + 7)
        for _, case in ipairs(cases) do
            chosen[case.name] = without_partials(random.pick(ranks.nd_sbps(to, #case.whole.shape, "float32")))
        end
        local loaded = flow.load(path "all.st", {placement = to.value, sbp = chosen}).t
        for i, case in ipairs(cases) do
            local sbp = chosen[case.name]
            if loaded[i].dtype ~= case.whole.dtype or not holds(case.whole, to, sbp, loaded[i]) then
                wrong.add("%s%s saved as (%s) on %s, read as (%s) on %s", case.whole.dtype, ranks.shape_text(case.whole.shape),
                    table.concat(case.sbp, ", "), tostring(place.value), table.concat(sbp, ", "), tostring(to.value))
            end
        end
    end
    flow.barrier()
    wrong.check(count * (#places + 1))
end

describe("a checkpoint", function()
    for i, place in ipairs(places) do
        it("brings back what " .. tostring(place.value) .. " held, S and B, in any SBP on any placement", function()
            round_trip(place, i, 36, function(sbp) return not ranks.has_partial(sbp) end)
        end)
        it("adds up what " .. tostring(place.value) .. " held as P", function()
            round_trip(place, 50 + i, 27, ranks.has_partial)
        end)
    end

    it("is the same file whatever the SBPs", function()
        local files = {}
        for i, sbp in ipairs {"B", "S(0)", "S(1)"} do
            local values = {}
            for k, dtype in ipairs(ranks.dtypes) do
                values[k] = ranks.global(ranks.whole({5, 7}, dtype, k), {
                    value = everywhere, hierarchy = {ranks.world}, position = setmetatable({}, {__index = function(_, r) return r end}),
                }, {sbp})
            end
            flow.save(path("same" .. i), {values = values, n = 1})
            files[i] = process.read(path("same" .. i))
        end
        assert.are.equal(files[1], files[2])
        assert.are.equal(files[1], files[3])
    end)

    it("has rank 0's local tensors", function()
        flow.save(path "mine.st", {rank = 0, t = flow.full({2}, ranks.rank + 0.5), g = flow.ones({3}, {placement = everywhere, sbp = "S(0)"})})
        local loaded = flow.load(path "mine.st")
        assert.are.equal(0, loaded.rank)
        assert.are.same({0.5, 0.5}, loaded.t:totable())
        assert.are.same({1, 1, 1}, loaded.g:totable())
        flow.barrier()
    end)

    it("can be one rank's own", function()
        local name = path("own." .. ranks.rank)
        flow.on_rank(last, function()
            flow.save(name, {t = flow.full({2}, ranks.rank + 0.5)})
            local loaded = flow.load(name, {lazy = true})
            assert.are.same({last + 0.5, last + 0.5}, loaded.t:read():totable())
        end)
        if ranks.world > 1 then
            local g = flow.zeros({4}, {placement = everywhere, sbp = "B"})
            flow.on_rank(last, function()
                assert.are.equal("save: 'g' is a global tensor, but only one rank runs here; " ..
                    "save its part, x:to_local(), or save on all ranks", message_of(flow.save, name, {g = g}))
            end)
        end
        flow.barrier()
    end)

    -- Bytes that this process has read ("rchar") or written ("wchar") so far.
    local function traffic(what) return tonumber(io.open "/proc/self/io":read "a":match(what .. ": (%d+)")) end

    it("is written once: by each rank its part, copies by the first", function()
        local rows, bytes = 64 * ranks.world, 64 * ranks.world * 1024 * 4
        for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
            local share = sbp ~= "B" and bytes // ranks.world or ranks.rank == 0 and bytes or 0
            local w = flow.ones({rows, 1024}, {placement = everywhere, sbp = sbp})
            local before = traffic "wchar"
            flow.save(path "once.st", {w = w})
            local written = traffic "wchar" - before
            assert.is_true(math.abs(written - share) < 20000, ("%s: wrote %d bytes, not %d"):format(sbp, written, share))
        end
        flow.barrier()
    end)

    it("adds up partials by one reduce-scatter", function()
        local w = flow.ones({8, 3}, {placement = everywhere, sbp = "B"}):to_global{sbp = "P"}
        local report = flow.explain(function() flow.save(path "sum.st", {w = w}) end)
        local kinds = {}
        for i, step in ipairs(report.collectives) do kinds[i] = step.kind end
        assert.are.same(ranks.world > 1 and {"reduce-scatter"} or {}, kinds)
        assert.are.equal(24, flow.load(path "sum.st").w:sum():item())
        flow.barrier()
    end)

    it("moves columns into rows before it writes them", function()
        local grid = ranks.world == 4 and {{0, 1}, {3, 2}} or ranks.world == 1 and {{0}} or {{last}, {0}}
        for _, case in ipairs {{everywhere, "S(1)", {40000, 8}}, {flow.placement("cpu", grid), {"S(1)", "S(0)"}, {40000, 8}},
            {flow.placement("cpu", grid), {"S(2)", "S(1)"}, {60, 900, 6}}, {everywhere, "S(1)", {1, 200000}}} do
            local n = 1
            for _, size in ipairs(case[3]) do n = n * size end
            local want = flow.arange(n):view(case[3])
            local w = flow.arange(n, {placement = case[1], sbp = type(case[2]) == "table" and {"B", "B"} or "B"}):view(case[3])
                :to_global{sbp = case[2]}
            flow.save(path "thin.st", {w = w})
            assert.is_true(flow.load(path "thin.st").w:eq(want):all():item())
            local again = flow.load(path "thin.st", {placement = case[1], sbp = case[2]}).w
            assert.is_true(again:eq(w):to_local():all():item())
        end
        local w = flow.zeros({40000, 8}, {placement = everywhere, sbp = "S(1)"})
        local report = flow.explain(function() flow.save(path "thin.st", {w = w}) end)
        assert.are.equal(ranks.world > 1 and 1 or 0, #report.collectives)
        flow.barrier()
    end)

    it("is read by each rank for its own part alone", function()
        local rows = 64 * ranks.world
        flow.save(path "big.st", {w = flow.randn({rows, 1024}, {placement = everywhere, sbp = "S(0)"})})
        local before = traffic "rchar"
        local w = flow.load(path "big.st", {placement = everywhere, sbp = "S(0)"}).w
        local all = rows * 1024 * 4
        assert.are.same({64, 1024}, w:to_local().shape)
        local got = traffic "rchar" - before
        assert.is_true(got < all // ranks.world + 20000, ("read %d of %d bytes"):format(got, all))
        flow.barrier()
    end)
end)

describe("where the tensors of a file go", function()
    it("is one sbp, a table by name or a function", function()
        flow.save(path "where.st", {a = flow.arange(12):view(4, 3), b = flow.ones(5), n = 3})
        local p = everywhere
        local all = flow.load(path "where.st", {placement = p, sbp = "S(0)"})
        assert.are.same({"S(0)", "S(0)", 3}, {tostring(all.a.sbp), tostring(all.b.sbp), all.n})
        local named = flow.load(path "where.st", {placement = p, sbp = {a = "S(1)"}})
        assert.are.same({"S(1)", "B"}, {tostring(named.a.sbp), tostring(named.b.sbp)})
        local chosen = flow.load(path "where.st", {placement = p, sbp = function(name, shape, dtype)
            return dtype == "int64" and #shape == 2 and name == "a" and "S(-1)" or nil
        end})
        assert.are.same({"S(1)", "B"}, {tostring(chosen.a.sbp), tostring(chosen.b.sbp)})
        assert.are.same({{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}, chosen.a:totable())
        assert.are.same({0, 3, 6, 9}, flow.load(path "where.st", {placement = p, sbp = "P"}).a:to_global{sbp = "B"}:to_local()[{{}, 0}]:totable())
        flow.barrier()
    end)

    it("can be left open: a model and its optimizer take their parts of it", function()
        local function make(sbp, seed)
            flow.manual_seed(seed)
            local net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4))
            if sbp then net:to_global{placement = everywhere, sbp = sbp} end
            return net, optim.AdamW(net:parameters(), {lr = 0.1})
        end
        local function step(net, optimizer, sbp)
            flow.manual_seed(5)
            local x = flow.randn({8, 6}, sbp and {placement = everywhere, sbp = "B"} or {})
            optimizer:zero_grad()
            net(x):square():mean():backward()
            optimizer:step()
            local list = {}
            for _, p in net:named_parameters() do
                for _, v in ipairs(p:detach():view(-1):totable()) do list[#list + 1] = v end
            end
            return list
        end
        local net, optimizer = make("B", 1)
        step(net, optimizer, "B")
        flow.save(path "net.st", {model = net:state_dict(), optimizer = optimizer:state_dict(), step = 1})
        local want = step(net, optimizer, "B")
        for _, sbp in ipairs {"B", "S(0)", false} do
            local other, its = make(sbp, 2)
            local state = flow.load(path "net.st", {lazy = true})
            assert.are.equal(1, state.step)
            assert.is_false(flow.is_tensor(state.model["1.weight"]))
            assert.are.equal("stored tensor 'model.1.weight', float32[10, 6]", tostring(state.model["1.weight"]))
            other:load_state_dict(state.model)
            its:load_state_dict(state.optimizer)
            local got = step(other, its, sbp)
            for i, v in ipairs(want) do assert.is_true(math.abs(v - got[i]) < 1e-5, ("%s: %g is not %g"):format(sbp, got[i], v)) end
        end
        flow.barrier()
    end)
end)

-- Tests for several ranks; tests that start jobs of their own, which no job may run around.
local function several(name, f) if ranks.world > 1 then it(name, f) end end
local function alone(name, f) if ranks.world == 1 then it(name, f) end end
local function alone_with_mpirun(name, f)
    if ranks.world > 1 then return end
    if process.has "mpirun" and process.exists(flowlua .. "-mpi.so") then it(name, f) else pending(name, f) end
end

describe("when one rank fails", function()
    before_each(function()
        flow.save(path "old.st", {x = "kept", t = flow.zeros(3)})
    end)
    after_each(function()
        flow.barrier()
        assert.are.equal("kept", flow.load(path "old.st").x)
        assert.are.equal("0", litter())
        flow.barrier()
    end)
    local prefix = ("rank %d: "):format(last)
    local function big() return {w = flow.ones({64 * ranks.world, 256}, {placement = everywhere, sbp = "S(0)"})} end

    -- the arguments of rank 0, those of the last rank, the words for both
    local x = flow.ones(2)
    local different = {
        {{x = x, note = "a"}, {x = x, note = "b"}, [['note' = "a"]], [['note' = "b"]]},
        {{note = 1}, {note = 1.0}, "'note' = 1", "'note' = 1.0"},
        {{x = x, note = "a"}, {x = x, remark = "a"}, [['note' = "a"]], [['remark' = "a"]]},
        {{x = x, a = 1, z = 2}, {x = x, a = 1}, "'z' = 2", "nothing more"},
        {{a = {b = {1, 2, 3}}}, {a = {b = {1, 7, 3}}}, "'a.b.2' = 2", "'a.b.2' = 7"},
        {{a = {b = true}}, {a = false}, "'a' = a table", "'a' = false"},
        {{[1] = "x", ["1"] = "y"}, {[1] = "x", ["1"] = "z"}, [['1' = "y"]], [['1' = "z"]]},
        {{a = ("x"):rep(300) .. "1"}, {a = ("x"):rep(300) .. "2"}, [['a' = "]] .. ("x"):rep(248), [['a' = "]] .. ("x"):rep(248)},
        {{lr = 0.1}, {lr = 0.1 + 2 ^ -54}, "'lr' = 0.10000000000000001", "'lr' = 0.10000000000000006"},
    }
    several("to have the same keys and values, all fail", function()
        for _, case in ipairs(different) do
            local message = message_of(flow.save, path "old.st", case[ranks.rank == last and 2 or 1])
            assert.are.equal(("save: every rank must save the same keys and values; rank 0 has %s and rank %d has %s"):format(
                case[3], last, case[4]), message)
        end
    end)

    several("to give the same options, all fail", function()
        local odd = ranks.rank == last
        local alone_at = flow.placement("cpu", {last})
        local cases = {
            {odd and {lazy = true} or {placement = everywhere, sbp = "B"}, "give the same options",
                "placement = " .. tostring(everywhere), "lazy = true"},
            {{placement = odd and alone_at or everywhere, sbp = "B"}, "give the same options", "placement = " .. tostring(everywhere),
                "placement = " .. tostring(alone_at)},
            {{placement = everywhere, sbp = odd and "S(0)" or "B"}, "read a tensor in the same sbp", "'t' as B", "'t' as S(0)"},
        }
        for _, case in ipairs(cases) do
            assert.are.equal(("load: every rank must %s; rank 0 has %s and rank %d has %s"):format(case[2], case[3], last, case[4]),
                message_of(flow.load, path "old.st", case[1]))
        end
    end)

    several("to pack its values, all fail", function()
        local message = message_of(flow.save, path "old.st", {x = ranks.rank == last and print or 1})
        assert.are.equal(prefix .. "save: 'x' is a function; tensors, numbers, strings, booleans and tables can be saved", message)
    end)

    several("to see the folder, all fail", function()
        local mine = ranks.rank == last and path "elsewhere/old.st" or path "old.st"
        local message = message_of(flow.save, mine, big())
        assert.matches("^" .. prefix .. "save: .*/elsewhere/old.st.%x+.%d+.0.tmp: " ..
            "No such file or directory; every rank writes its own part, so all ranks need the same folder$", message)
    end)

    several("because its disk is full, all fail", function()
        local limited = ranks.rank == last
        local function limit(bytes) return not limited or os.execute("prlimit --pid $PPID --fsize=" .. bytes .. ": 2>/dev/null") end
        local values = big()
        assert(limit(4096))
        local ok, message = pcall(flow.save, path "old.st", values)
        assert(limit "unlimited")
        assert.is_false(ok)
        assert.are.equal(prefix .. "save: " .. path "old.st" .. ": File too large", (message:gsub("^.-:%d+: ", "", 1)))
    end)

    several("to make the file, all fail", function()
        assert.are.equal("rank 0: save: /dev/null exists and is not a regular file", message_of(flow.save, "/dev/null", big()))
        assert.are.equal("rank 0: save: " .. folder .. " exists and is not a regular file", message_of(flow.save, folder, big()))
    end)

    several("to open a file, all fail", function()
        local message = message_of(flow.load, ranks.rank == last and path "nowhere.st" or path "old.st", {lazy = true})
        assert.are.equal(prefix .. "load: " .. path "nowhere.st" .. ": No such file or directory", message)
    end)

    several("to read the same file, all fail", function()
        flow.save(path "other.st", {x = "other"})
        local name = ranks.rank == last and path "other.st" or path "old.st"
        local message = message_of(flow.load, name, {lazy = true})
        assert.are.equal(("load: %s is not the same file on rank %d as on rank 0; " ..
            "every rank reads its own part, so all ranks need the same file"):format(name, ranks.world > 2 and last or 1), message)
    end)

    several("in choosing an sbp, all fail", function()
        local message = message_of(flow.load, path "old.st", {placement = everywhere, sbp = ranks.rank == last and "S(1)" or "S(0)"})
        assert.matches("^" .. prefix .. "load: tensor 't': ", message)
    end)
end)

describe("ranks that save different tables", function()
    local odd = ranks.rank == last
    for _, case in ipairs {
        {"by another shape", function() return {a = flow.zeros(2), b = flow.zeros(odd and 3 or 4)} end,
            "tensor 2 is 'b', float32[4] on rank 0 and 'b', float32[3] on rank %d"},
        {"by another name", function() return {[odd and "c" or "b"] = flow.zeros(4)} end,
            "tensor 1 is 'b', float32[4] on rank 0 and 'c', float32[4] on rank %d"},
        {"by one more", function() return {a = flow.zeros(2), b = odd and flow.zeros(2) or nil} end,
            "tensor 2 is missing on rank 0 and 'b', float32[2] on rank %d"},
        {"by one less", function() return {a = flow.zeros(2), b = not odd and flow.zeros(2) or nil} end,
            "tensor 2 is 'b', float32[2] on rank 0 and missing on rank %d"},
    } do
        several(case[1] .. " get an error that shows the first difference", function()
            assert.are.equal("save: every rank must save the same tensors; " .. case[3]:format(last), message_of(flow.save, path "d.st", case[2]()))
            flow.barrier()
            assert.is_nil(io.open(path "d.st"))
            assert.are.equal("0", litter())
            flow.barrier()
        end)
    end
end)

local mpirun = "mpirun --allow-run-as-root --oversubscribe"

local function script(name, text)
    return process.write(path(name), 'local flow = require "flow"\n' .. text)
end

describe("a checkpoint of other ranks", function()
    alone_with_mpirun("is read on any number of them", function()
        local save = script("save.lua", ([[
            flow.manual_seed(3)
            local p = flow.placement.all "cpu"
            local function make(shape, sbp) return flow.randn(shape, {placement = p, sbp = sbp}) end
            local wide = make({7, 9}, "S(1)")
            flow.save("%s", {a = make({10, 3}, "S(0)"), b = wide, c = make({5}, "B"), d = make({6, 6}, "S(0)"):matmul(make({6, 5}, "B")),
                e = make({4, 8}, "S(1)"):matmul(make({8, 3}, "S(0)")), n = 4})]]):format(path "four.st"))
        local load = script("load.lua", ([[
            local p = flow.placement.all "cpu"
            local want = flow.load "%s"
            for _, sbp in ipairs {"S(0)", "B", "P"} do
                local got = flow.load("%s", {placement = p, sbp = sbp})
                assert(got.n == 4)
                for _, name in ipairs {"a", "b", "c", "d", "e"} do
                    local t = got[name]:to_global{sbp = "B"}:to_local()
                    assert(t:eq(want[name]):all():item(), name)
                end
            end
            flow.print("equal on", flow.world_size())]]):format(path "four.st", path "four.st"))
        local function run(n, file)
            return (process.output((("timeout 60 %s -n %d %s %s 2>&1"):format(n > 1 and mpirun or "env", n, flowlua, file):gsub("env %-n 1", "env"))))
        end
        for _, writers in ipairs {4, 1} do
            assert.are.equal("", run(writers, save))
            for _, readers in ipairs {1, 2, 3, 5} do
                assert.are.equal("equal on\t" .. readers .. "\n", run(readers, load))
            end
        end
    end)
end)

describe("a process killed while it saves", function()
    local body = [[
        local p = flow.placement.all "cpu"
        local t = flow.zeros({512 * 1024}, {placement = p, sbp = "S(0)"})
        for i = 1, 100000 do
            flow.save("%s", {t = t + i, u = t:to_global{sbp = "B"} + i, i = i})
            if i == 1 and flow.rank() == 0 then io.open("%s", "w"):close() end
        end]]

    -- Whole and of one moment, old or new.
    local function check(name)
        local loaded = flow.load(name)
        assert.are.equal(0, (loaded.t - loaded.i):abs():max():item())
        assert.are.equal(0, (loaded.u - loaded.i):abs():max():item())
        return loaded.i
    end

    alone("leaves the old file or the new one", function()
        local file = script("loop.lua", body:format(path "loop.st", path "begun"))
        local seen = {}
        for try = 1, 12 do
            os.remove(path "begun")
            os.execute(([[%s %s & child=$!; while [ ! -e %s ] && kill -0 $child; do sleep 0.01; done; sleep 0.0%d; kill -9 $child; wait $child 2>/dev/null]])
                :format(flowlua, file, path "begun", try * 7 % 10))
            seen[#seen + 1] = check(path "loop.st")
        end
        os.execute("rm -f " .. folder .. "/*.tmp")
        assert.are.equal(12, #seen)
    end)

    alone_with_mpirun("of several ranks leaves the old file or the new one", function()
        local file = script("ranks.lua", ([[
            io.open("%s/pid." .. flow.rank(), "w"):write((io.open "/proc/self/stat":read "n")):close()
        ]]):format(folder) .. body:format(path "ranks.st", path "begun"))
        for try = 1, 3 do
            os.remove(path "begun")
            os.execute(([[timeout 60 %s -n 3 %s %s >/dev/null 2>&1 & child=$!; while [ ! -e %s ] && kill -0 $child; do sleep 0.01; done;
                sleep 0.0%d; kill -9 $(cat %s/pid.%d); wait $child 2>/dev/null]]):format(mpirun, flowlua, file, path "begun", try * 3, folder, 3 - try))
            check(path "ranks.st")
        end
        os.execute("rm -f " .. folder .. "/*.tmp")
    end)
end)
