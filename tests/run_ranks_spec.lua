-- run_ranks_spec.lua -- the runner of the multi-rank specs: its report, and that it always ends, when ranks fail, hang or
-- die. The specs that do so are in ranks/trouble/.
local process = require "tests.process"

-- Output and seconds of the runner.
local function run(environment, spec, folder)
    local start = os.time()
    local text = process.output(("RANKS=3 RANKS_APART= RANKS_QUEUED= RANKS_DEFERRED= %s sh tests/run-ranks.sh %s %s 2>&1")
        :format(environment, folder or process.build, spec))
    return text, os.time() - start
end

local function says(text, ...)
    for _, line in ipairs {...} do assert.is_truthy(text:find(line, 1, true), ("%q is not in\n%s"):format(line, text)) end
end

describe("run-ranks.sh", function()
    it("counts what cannot run as skipped, and says why", function()
        local text = run("", "tests/ranks/trouble/fails.lua", "no-such-build")
        says(text, "skipped: fails, 3 ranks: no-such-build/flowlua-mpi.so is missing: this build has no transport\n",
            "0 passed, 0 failed, 1 skipped\n")
    end)

    if not process.exists(process.build .. "/flowlua-mpi.so") or not process.has "mpirun" then return pending "needs mpirun and the transport" end

    it("names the rank that failed, and the ranks go on together", function()
        local text, seconds = run("", "tests/ranks/trouble/fails.lua")
        says(text, "failed: fails, 3 ranks: a rank fails alone after the collectives\n    rank 2: tests/ranks/trouble/fails.lua:8: ",
            "failed: fails, 3 ranks: a rank errs before a collective of the others\n    ranks 0, 1: tests/ranks/trouble/fails.lua:12: ",
            "\n    rank 2: tests/ranks/trouble/fails.lua:11: no tensor for you\n",
            "skipped: fails, 3 ranks: a rank has nothing to do\n", "no GPU\n", "\n3 passed, 2 failed, 1 skipped\n")
        assert.is_true(seconds < process.limit(10), seconds .. " s")
    end)

    for _, case in ipairs {
        {"exit", "    rank 2: did not finish it\n"}, {"kill", "    rank 2: did not finish it\n"},
        {"hang", "still missing: rank 2"}, {"sleep", "still missing: rank 2"},
    } do
        it("ends when a rank does not come: " .. case[1], function()
            local text, seconds = run(("TROUBLE=%s FLOW_TIMEOUT=2"):format(case[1]), "tests/ranks/trouble/ends.lua")
            says(text, "failed: ends, 3 ranks: a rank is in trouble\n", case[2], "\n1 passed, 1 failed, 0 skipped\n")
            assert.is_true(seconds < process.limit(10), seconds .. " s")
        end)
    end

    it("ends when all ranks hang", function()
        local text, seconds = run("TROUBLE='all hang' RANKS_LIMIT=2", "tests/ranks/trouble/ends.lua")
        says(text, "    all ranks: did not finish it within 2 s\n", "\n1 passed, 1 failed, 0 skipped\n")
        assert.is_true(seconds < process.limit(12), seconds .. " s")
    end)

    it("goes on with the next file, and counts one that cannot be read", function()
        local text = run("TROUBLE=exit", "tests/ranks/trouble/ends.lua tests/ranks/trouble/unreadable.lua")
        says(text, "failed: ends, 3 ranks: a rank is in trouble\n", "failed: unreadable, 3 ranks: the whole file\n", "\n1 passed, 2 failed, 0 skipped\n")
    end)
end)
