-- nccl_spec.lua -- collectives of tensors that lie on GPUs, each rank with one of its own: NCCL moves them (with FLOW_CUDA_EMULATED
-- a stand-in), and every rank then holds what it would hold on CPUs.
local flow = require "flow"
local boxing = require "tests.ranks.boxing_cases"
local ranks = require "tests.ranks.support"

local places = ranks.placements()
local all = places[1]

-- Collectives that f made: by the GPUs, and by way of the CPUs.
local function counted(f)
    local before = flow.engine.stats()
    f()
    local after = flow.engine.stats()
    return after.device_collectives - before.device_collectives, after.staged_collectives - before.staged_collectives
end

-- f made collectives, and none of them went by way of the CPUs.
local function check_direct(f)
    local direct, staged = counted(f)
    assert.are.equal(0, staged)
    assert.is_true(direct > 0, "no collective at all")
end

describe("NCCL", function()
    if ranks.world == 1 then
        it("is not needed by one rank", function()
            assert.are.same({0, 0}, {counted(function()
                flow.ones({4}, {placement = all.value, sbp = "S(0)"}):to_global {sbp = "B"}
            end)})
        end)
        return
    end

    it("moves between any two SBPs of one placement", function()
        check_direct(function()
            for i, place in ipairs(places) do boxing.check(boxing.sample(12, 300 + i, {from = {place}, same = true})) end
        end)
    end)

    it("moves between placements", function()
        check_direct(function() boxing.check(boxing.sample(80, 400, {from = places, to = places})) end)
    end)

    it("moves every dtype", function()
        check_direct(function()
            for i, dtype in ipairs(ranks.dtypes) do boxing.check(boxing.sample(16, 500 + i, {from = {all}, same = true, dtypes = {dtype}})) end
        end)
    end)

    -- Thousands of elements, not a multiple of anything; small whole numbers, exact in every dtype.
    it("moves large parts", function()
        for _, dtype in ipairs {"float32", "bfloat16", "int8"} do
            local shape = {1003, 37}
            local function pattern(k) return ((flow.arange(1003 * 37) * 7 + k * 3) % 5):to(dtype):reshape(shape) end
            local total, highest = pattern(0), pattern(0)
            for r = 1, ranks.world - 1 do total, highest = total + pattern(r), flow.maximum(highest, pattern(r)) end
            for _, way in ipairs {{"P", total}, {"P(max)", highest}, {"B", pattern(0)}} do
                local mine = way[1] == "B" and pattern(0) or pattern(ranks.rank)
                local x = flow._testing.from_part(mine, shape, all.value, way[1])
                for _, between in ipairs {"B", "S(0)", "S(1)"} do
                    local y = x:to_global {sbp = between}:to_global {sbp = "S(0)"}:to_global {sbp = "S(1)"}:to_global {sbp = "B"}
                    assert.is_true(way[2]:eq(y:to_local()):all():item(), ("%s %s -> %s"):format(dtype, way[1], between))
                end
            end
        end
    end)

    it("keeps a NaN in maxima and minima", function()
        for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
            for _, sbp in ipairs {"P(max)", "P(min)"} do
                local x = flow.zeros(20, {dtype = dtype}) + ranks.rank
                x[ranks.rank] = 0 / 0
                local whole = flow._testing.from_part(x, {20}, all.value, sbp)
                for _, to in ipairs {"B", "S(0)"} do
                    local got = ranks.values(whole:to_global {sbp = to}:to_global {sbp = "B"})
                    for i = 1, 20 do assert.are.equal(i <= ranks.world, got[i] ~= got[i], ("%s %s -> %s"):format(dtype, sbp, to)) end
                end
            end
        end
    end)

    it("adds 16-bit parts of an exchange up as the CPUs do", function()
        local half = flow.placement("cpu", {{0}, {1}})
        if ranks.rank > 1 then return end
        for _, dtype in ipairs {"float16", "bfloat16"} do
            local function part(r) return ((flow.arange(600, {dtype = "float32"}) + r) * 0.37):sin():to(dtype):reshape(20, 30) end
            local x = flow._testing.from_part(part(ranks.rank), {20, 30}, half, {"P", "B"})
            local want = (part(0):to "float32" + part(1):to "float32"):to(dtype)
            local got = x:to_global {placement = flow.placement("cpu", {1, 0}), sbp = "B"}
            assert.is_true(want:eq(got:to_local()):all():item(), dtype)
        end
    end)

    it("brings several gradients at once", function()
        local xs = {}
        local weights = flow.nn.Sequential(flow.nn.Linear(6, 5), flow.nn.Linear(5, 4)):to_global {placement = all.value, sbp = "B"}
        local x = flow.ones({2 * ranks.world, 6}, {placement = all.value, sbp = "S(0)"})
        check_direct(function()
            weights(x):sum():backward()
            for i, p in ipairs(weights:parameters()) do xs[i] = ranks.values(p.grad:to_global {sbp = "B"}) end
        end)
        -- the last bias: every row adds 1
        assert.are.same({2 * ranks.world, 2 * ranks.world, 2 * ranks.world, 2 * ranks.world}, xs[4])
    end)

    it("keeps one order with collectives of CPU tensors", function()
        local cpus = getmetatable(flow.placement).__index.all "cpu"
        for i = 1, 20 do
            local here = flow._testing.from_part(flow.full({70000}, i, {device = "cpu"}), {70000}, cpus, "P")
            local there = flow._testing.from_part(flow.full({100}, i / ranks.world), {100}, all.value, "P")
            local far, near = there:to_global {sbp = "B"}, here:to_global {sbp = "B"}
            far = far:to_global {sbp = "S(0)"}:to_global {sbp = "B"}
            assert.are.equal(i * ranks.world, near:to_local()[69999]:item())
            assert.is_true(math.abs(far:to_local()[99]:item() - i) < 1e-5)
        end
    end)
end)
