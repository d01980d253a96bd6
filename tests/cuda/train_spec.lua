-- train_spec.lua -- scripts/train.lua --device cuda: the losses of the CPU, checkpoints that go from one to the other.
local cuda = require "tests.cuda.support"
local flow = require "flow"
local process = require "tests.process"
local training = require "tests.training"

local flowlua = process.flowlua
local folder, write
local small = "--layers 2 --width 32 --heads 2 --context 16 --batch 4 --sample 5"

-- Runs the script and returns what it printed.
local function train(arguments)
    local output, status = process.output(("%s scripts/train.lua %s 2>&1"):format(flowlua, (arguments:gsub("@", folder))))
    assert.are.equal(0, status, output)
    return output
end

-- The numbers of a column of a log, by step.
local function column(name, number)
    local list = {}
    for line in io.lines(folder .. "/" .. name) do
        local row = {}
        for word in (line .. ","):gmatch "([^,]*)," do row[#row + 1] = word end
        if tonumber(row[1]) then list[tonumber(row[1])] = tonumber(row[number]) end
    end
    return list
end

local function near(want, got, eps, what)
    for step, loss in pairs(want) do
        local difference = math.abs(loss - (got[step] or 1 / 0))
        assert.is_true(difference <= eps * loss, ("%s: step %d has loss %s, expected %.9g"):format(what, step, got[step], loss))
    end
end

setup(function()
    folder, write = process.folder()
    write("text", training.text())
end)
teardown(function() os.execute("rm -r " .. folder) end)

describe("train.lua --device cuda", function()
    cuda.it("has the losses of the CPU", function()
        train(small .. " --data @/text --steps 8 --log @/cpu")
        local output = train(small .. " --data @/text --steps 8 --device cuda --log @/cuda")
        assert.is_truthy(output:find("validation loss", 1, true), output)
        near(column("cpu", 2), column("cuda", 2), 1e-4, "training")
        near(column("cpu", 3), column("cuda", 3), 1e-4, "validation")
    end)

    cuda.it("goes on from a checkpoint of its own, bit for bit, and of the CPU", function()
        train(small .. " --data @/text --steps 6 --device cuda --log @/whole")
        train(small .. " --data @/text --steps 3 --schedule-steps 6 --device cuda --log @/first --checkpoint @/gpu.st")
        train("--resume @/gpu.st --steps 6 --device cuda --sample 5 --log @/second")
        local whole, second = column("whole", 2), column("second", 2)
        for step = 4, 6 do assert.are.equal(whole[step], second[step]) end

        train(small .. " --data @/text --steps 3 --schedule-steps 6 --checkpoint @/cpu.st")
        train("--resume @/cpu.st --steps 6 --device cuda --sample 5 --log @/mixed")
        near({[4] = whole[4], [5] = whole[5], [6] = whole[6]}, column("mixed", 2), 1e-4, "on from the CPU")
        train("--resume @/gpu.st --steps 6 --sample 5 --log @/back")
        near({[4] = whole[4], [5] = whole[5], [6] = whole[6]}, column("back", 2), 1e-4, "back on the CPU")
    end)

    cuda.it("gives the same losses again", function()
        train(small .. " --data @/text --steps 5 --device cuda --log @/one")
        train(small .. " --data @/text --steps 5 --device cuda --log @/two")
        assert.are.same(column("one", 2), column("two", 2))
    end)

    cuda.it_real("learns with the default model", function()
        train("--steps 300 --device cuda --sample 5 --log @/log")
        local losses = column("log", 2)
        assert.is_true(losses[300] < 3.2, "the loss after 300 steps is " .. losses[300])
    end)

    cuda.it("says that one GPU is not for several ranks", function()
        local obstacle = process.obstacle()
        if obstacle then pending(obstacle) end
        local output, status = process.output(("%s %s --ranks 2 scripts/train.lua --device cuda:0 --steps 1 2>&1"):format(process.no_leaks, flowlua))
        assert.are.equal("train.lua: --device cuda:0 is one GPU, and each of the 2 ranks drives its own: --device cuda\n", output)
        assert.are_not.equal(0, status)
    end)

    it("says what is missing where there is no GPU", function()
        if not cuda.obstacle then pending "there is one" end
        local text, status = process.output(("%s scripts/train.lua --device cuda --steps 1 2>&1"):format(flowlua))
        assert.are_not.equal(0, status)
        assert.is_truthy(text:find("cuda: ", 1, true), text)
        assert.are.equal(0, select(2, text:gsub("stack traceback", "")), text)
        assert.is_number(flow.world_size())
    end)
end)
