-- mnist_spec.lua -- scripts/mnist.lua learns from IDX files that digits.lua draws.
local digits = require "tests.digits"
local process = require "tests.process"

local folder

local function run(arguments)
    local output, status = process.output(("%s scripts/mnist.lua %s 2>&1"):format(process.flowlua, arguments))
    return output, status == 0
end

setup(function() folder = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

describe("mnist.lua", function()
    for _, compress in ipairs {false, true} do
        it("learns digits from " .. (compress and "compressed" or "plain") .. " files", function()
            os.execute("rm -f " .. folder .. "/*")
            digits.write(folder, 1500, 300, compress)
            local output, ok = run(folder .. " --epochs 6 --lr 5e-3 --checkpoint " .. folder .. "/net.st")
            assert.is_true(ok, output)
            local accuracy = tonumber(output:match("test accuracy ([%d.]+) %%, [%d.]+ steps/s, [^\n]*\n$"))
            assert.is_true(accuracy and accuracy > 90, output)
            local flow = require "flow"
            assert.are.same({128, 64}, flow.load(folder .. "/net.st")["2.weight"].shape)
        end)
    end

    it("learns them by convolutions", function()
        os.execute("rm -f " .. folder .. "/*")
        digits.write(folder, 1500, 300)
        local output, ok = run(folder .. " --net cnn --epochs 3 --lr 1e-2")
        assert.is_true(ok, output)
        local accuracy = tonumber(output:match("test accuracy ([%d.]+) %%, [%d.]+ steps/s, [^\n]*\n$"))
        assert.is_true(accuracy and accuracy > 90, output)
    end)

    it("says what is missing", function()
        local output, ok = run("")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: needs the folder of the IDX files (see --help)\n", output)
        output, ok = run("/nowhere")
        assert.is_false(ok)
        assert.matches("mnist: /nowhere: No such file or directory", output)
        output, ok = run(folder .. " --epoch 3")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: unknown option '--epoch'; did you mean '--epochs'? (see --help)\n", output)
        output, ok = run(folder .. " --device tpu")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: --device: unknown device 'tpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\" (see --help)\n", output)
    end)

    it("refuses a net that it does not have", function()
        digits.write(folder, 20, 10)
        local output, ok = run(folder .. " --net rnn")
        assert.is_false(ok)
        assert.are.equal("mnist.lua: --net is mlp or cnn, not 'rnn'\n", output)
    end)

    it("refuses files that do not belong together", function()
        os.execute("rm -f " .. folder .. "/*")
        digits.write(folder, 20, 10)
        assert(os.execute(("cp %s/t10k-labels-idx1-ubyte %s/train-labels-idx1-ubyte"):format(folder, folder)))
        local output, ok = run(folder)
        assert.is_false(ok)
        assert.matches("the train images and labels in .* do not match: %[20, 8, 8%] and %[10%]", output)
    end)
end)
