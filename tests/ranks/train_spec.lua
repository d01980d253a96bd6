-- train_spec.lua -- scripts/train.lua on several ranks: every scheme has the losses of one rank and communicates what textbooks
-- say; checkpoints go on with other schemes and on one rank.
local flow = require "flow"
local training = require "tests.training"
local ranks = require "tests.ranks.support"

local folder = os.getenv "RANKS_FOLDER"
local model = "--layers 2 --width 16 --heads 4 --context 8 --batch 7 --sample 2 --data " .. folder .. "/train.text"
local device = " --device " .. (os.getenv "FLOW_TEST_DEVICE" or "cpu")

-- Schemes that so many ranks can run: --dp, --tp, --zero.
local schemes = ({
    {{1, 1}},
    {{2, 1}, {1, 2}, {2, 1, true}},
    {{3, 1}, {3, 1, true}},
    {{4, 1}, {1, 4}, {2, 2}, {4, 1, true}, {2, 2, true}},
})[ranks.world]

local function options(scheme)
    return (" --dp %d --tp %d%s "):format(scheme[1], scheme[2], scheme[3] and " --zero" or "")
end

local function path(name) return folder .. "/train." .. name end

-- Runs the script on all ranks; the others wait for rank 0's log.
local function together(arguments)
    training.run(arguments .. device)
    flow.barrier()
end

local function check_losses(want, got, first, last, tolerance)
    for step = first, last do
        local near = math.abs(want[step] - (got[step] or 0 / 0)) <= tolerance      -- NaN is near nothing
        if not near then
            error(("step %d: %s, expected %.9g"):format(step, got[step] and ("%.9g"):format(got[step]) or "nothing", want[step]), 0)
        end
    end
end

describe("train.lua on ranks", function()
    setup(function()
        if ranks.rank == 0 then training.write_text(path "text") end
        training.run_alone(model .. device .. " --steps 10 --log " .. path "one")
    end)

    for i, scheme in ipairs(schemes) do
        it("has the losses of one rank:" .. options(scheme), function()
            local log = path("scheme" .. i)
            together(model .. options(scheme) .. "--steps 10 --log " .. log)
            local tolerance = ranks.world == 1 and 0 or 1e-4
            check_losses(training.column(path "one", 2), training.column(log, 2), 1, 10, tolerance)
            check_losses(training.column(path "one", 3), training.column(log, 3), 10, 10, tolerance)
        end)

        it("communicates what textbooks say:" .. options(scheme), function()
            local report = training.explain(model .. device .. options(scheme) .. "--steps 1")
            assert.is_nil(report.error)
            training.check_collectives(report, scheme[1], scheme[2], scheme[3], 7)
        end)

        it("goes on from a checkpoint, on the same ranks bit for bit:" .. options(scheme), function()
            local first, second, file = path("first" .. i), path("second" .. i), path("checkpoint" .. i)
            together(model .. options(scheme) .. "--steps 5 --schedule-steps 10 --checkpoint " .. file .. " --log " .. first)
            together("--resume " .. file .. options(scheme) .. "--sample 2 --steps 10 --log " .. second)
            check_losses(training.column(path("scheme" .. i), 2), training.column(second, 2), 6, 10, 0)
            training.run_alone("--resume " .. file .. device .. " --sample 2 --steps 10 --log " .. second)
            check_losses(training.column(path "one", 2), training.column(second, 2), 6, 10, 1e-4)
            local other = schemes[i % #schemes + 1]
            together("--resume " .. file .. options(other) .. "--sample 2 --steps 10 --log " .. second)
            check_losses(training.column(path "one", 2), training.column(second, 2), 6, 10, 1e-4)
        end)
    end

    it("says which --dp and --tp the ranks allow", function()
        local said
        local env = setmetatable({arg = {[0] = "train.lua", "--dp", "5"}}, {__index = _G})
        local stop = flow.cli.stop
        rawset(flow.cli, "stop", function(_, message)
            said = message
            error("stopped", 0)
        end)
        local ok = pcall(assert(loadfile("scripts/train.lua", "t", env)))
        rawset(flow.cli, "stop", stop)
        assert.is_false(ok)
        local there = ({
            "and there is 1; start the script with flowlua --ranks 5",
            "and there are 2; what fits: --dp 2 --tp 1, --dp 1 --tp 2",
            "and there are 3; what fits: --dp 3 --tp 1, --dp 1 --tp 3",
            "and there are 4; what fits: --dp 4 --tp 1, --dp 2 --tp 2, --dp 1 --tp 4",
        })[ranks.world]
        assert.are.equal("--dp 5 --tp 1 needs 5 ranks, " .. there, said)
    end)
end)
