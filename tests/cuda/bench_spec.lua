-- bench_spec.lua -- the benchmarks on a GPU run without one: every case on the emulation, and PyTorch's on the CPU where it is
-- installed. The figures mean nothing there; each case must have one. And a side that fails costs one case only.
local json = require "flow.json"
local process = require "tests.process"

-- Answers well, with a note, with an error, not at all; dies; tells which process it is.
local WORKER = [[while read -r group case seconds; do
    [ "$group" != end ] || exit
    case $case in
        fine) echo 0.5 ;;
        noted) echo "0.25 slowly" ;;
        fails) echo "error: it was $group" ;;
        hangs) sleep 100 ;;
        dies) echo "last words" >&2; exit 3 ;;
        pid) echo $$ ;;
    esac
done]]

local ASKS = [[
    package.path = "scripts/bench/?.lua;" .. package.path
    local sides = require "side"
    local side = sides.new("it", "sh " .. arg[1], {ranks = 1, limit = 1, start_limit = 5, fresh = arg[2] == "fresh",
        launch = function(command) return command end})
    for i = 3, #arg do
        local value, words = side:measure("me", arg[i], 0.5)
        print(arg[i], value, words)
    end
    sides.stop()
]]

describe("a side of the benchmarks", function()
    local folder, worker, asks

    setup(function()
        folder = process.folder()
        worker, asks = process.temporary(WORKER), process.temporary(ASKS)
    end)
    teardown(function()
        os.execute("rm -r " .. folder)
        os.remove(worker)
        os.remove(asks)
    end)

    local function ask(fresh, ...)
        return (process.output(("BENCH_FOLDER=%s %s %s %s %s %s 2>&1")
            :format(folder, process.flowlua, asks, worker, fresh, table.concat({...}, " "))))
    end

    it("answers, and goes on after an error", function()
        assert.are.equal("fine\t0.5\t\nnoted\t0.25\tslowly\nfails\tnil\terror: it was me\nfine\t0.5\t\n", ask("kept", "fine", "noted", "fails", "fine"))
    end)

    it("is started again after it died or did not answer in time", function()
        assert.are.equal("dies\tnil\tit crashed: last words\nfine\t0.5\t\nhangs\tnil\tit: no answer in 1 s\nfine\t0.5\t\n",
            ask("kept", "dies", "fine", "hangs", "fine"))
    end)

    it("is another process after an error where that may have spoilt it", function()
        local first, second = ask("kept", "pid", "fails", "pid"):match "^pid\t(%d+).*pid\t(%d+)"
        assert.are.equal(first, second)
        first, second = ask("fresh", "pid", "fails", "pid"):match "^pid\t(%d+).*pid\t(%d+)"
        assert.is_truthy(first and second)
        assert.are_not.equal(first, second)
    end)
end)

describe("the benchmarks on a GPU", function()
    if not process.exists(process.build .. "/emulated/flowlua-cuda.so") then
        pending("have a figure of every case: the emulation is not built (make emulated)")
        return
    end

    it("have a figure of every case", function()
        local text = process.output(("GPU_DRY=1 BENCH_LIMIT=600 OUT_LOGS= sh scripts/bench/gpu.sh %s 2>&1"):format(process.build))
        local has_peer = not text:find("PyTorch is not installed", 1, true)
        local units = {["GB/s"] = true, ["TF/s"] = true, ["steps/s"] = true, ["kop/s"] = true, us = true, ms = true, MiB = true}
        local seen = {}
        for line in io.lines(process.build .. "/bench-gpu-dry.jsonl") do
            local row = json.decode(line)
            local what = ("%s, %s"):format(row.group, row.case)
            seen[row.group] = (seen[row.group] or 0) + 1
            assert.is_nil(row.problem, what)
            assert.is_nil(row.peer_problem, what)
            assert.is_true(units[row.unit], what)
            assert.is_true(row.value > 0 and row.value < 1 / 0, what)
            if has_peer then assert.is_true(row.peer > 0 and row.peer < 1 / 0, what) end
        end
        package.path = "scripts/bench/?.lua;" .. package.path
        for _, group in ipairs(require "figures_gpu") do
            if group.ranks == nil then assert.are.equal(#group.figures, seen[group.name], group.name) end
        end
        assert.is_truthy(text:find("goals are met", 1, true), text)
        assert.is_truthy(text:find("GPU: emulated, no driver; CUDA ", 1, true), text)
    end)
end)
