-- transport.lua SIZE... -- every kind of collective, dtype and reduction over all ranks, against the same computed here.
-- Run by tests/launch_spec.lua, through MPI and in shared memory; an error names the difference.
local flow = require "flow"
local all = flow.placement.all "cpu"
local me, world = flow.rank(), flow.world_size()

local sizes = {}
for i, text in ipairs(arg) do sizes[i] = math.tointeger(text) end

-- Small whole numbers, so that every dtype adds them up exactly.
local function part(rank, n, dtype)
    local x = ((flow.arange(n) * 7 + rank * 3) % 5)
    return (dtype == "bool" and x:gt(2) or x):to(dtype)
end

local function whole(n, dtype, f)
    local x = part(0, n, dtype)
    for rank = 1, world - 1 do x = f(x, part(rank, n, dtype)) end
    return x
end

local function same(want, got, what)
    if not want:eq(got):all():item() or want.dtype ~= got.dtype then error(("rank %d: %s differs"):format(me, what)) end
end

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
for _, dtype in ipairs(dtypes) do
    for _, n in ipairs(sizes) do
        local what = ("%s of %s[%d]"):format("%s", dtype, n)
        local sums = {["P"] = function(a, b) return a + b end, ["P(max)"] = dtype == "bool" and flow.logical_or or flow.maximum,
            ["P(min)"] = dtype == "bool" and flow.logical_and or flow.minimum}
        for _, sbp in ipairs {"P", "P(max)", "P(min)"} do
            if dtype ~= "bool" or sbp ~= "P" then
                local x = part(me, n, dtype):to_global{placement = all, sbp = sbp}
                local want = whole(n, dtype, sums[sbp])
                same(want, x:to_global{sbp = "B"}:to_local(), what:format("all-reduce " .. sbp))
                local shares = x:to_global{sbp = "S(0)"}
                same(want, shares:to_global{sbp = "B"}:to_local(), what:format("reduce-scatter and all-gather " .. sbp))
            end
        end
        if n % 4 == 0 then
            local want = part(0, n, dtype):view(n // 4, 4)
            local x = want:to_global{placement = all, sbp = "B"}:to_global{sbp = "S(0)"}
            same(want, x:to_global{sbp = "S(1)"}:to_global{sbp = "B"}:to_local(), what:format("all-to-all"))
        end
    end
end
for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
    for _, sbp in ipairs {"P(max)", "P(min)"} do
        local x = flow.zeros(20, {dtype = dtype}) + me
        x[me] = 0 / 0
        local got = x:to_global{placement = all, sbp = sbp}:to_global{sbp = "B"}:to_local()
        for i = 0, 19 do
            local value = got[i]:item()
            assert((value ~= value) == (i < world), ("%s %s: element %d is %g"):format(dtype, sbp, i, value))
        end
    end
end
