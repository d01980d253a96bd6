-- mnist_spec.lua -- scripts/mnist.lua on several ranks learns the weights of one.
local flow = require "flow"
local digits = require "tests.digits"
local training = require "tests.training"

local folder = os.getenv "RANKS_FOLDER"

it("mnist.lua learns the same on any number of ranks", function()
    if flow.rank() == 0 then digits.write(folder, 203, 50) end
    local arguments = folder .. " --epochs 2 --batch 50 --hidden 16 --checkpoint " .. folder
    training.run_alone(arguments .. "/one.st", "scripts/mnist.lua")
    training.run(arguments .. "/all.st", "scripts/mnist.lua")
    local one, all = flow.load(folder .. "/one.st"), flow.load(folder .. "/all.st")
    local tolerance = flow.world_size() == 1 and 0 or 1e-4
    for _, name in ipairs {"2.weight", "2.bias", "4.weight", "4.bias"} do
        local difference = (one[name] - all[name]):abs():max():item()
        assert.is_true(difference <= tolerance, ("%s differs by %g"):format(name, difference))
    end
end)
