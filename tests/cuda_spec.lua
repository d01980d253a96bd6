-- cuda_spec.lua -- the CUDA device on machines of every kind: all kernels are there, and without a GPU, or without the
-- plug-in, the messages say so. Specs that need a GPU, real or emulated, are in tests/cuda.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local testing = flow._testing

local function exists(plugin) return process.exists(process.build .. "/" .. plugin) end

local built = exists "flowlua-cuda.so"

-- The output of a program that runs with this environment.
local function run(environment, code)
    return (process.output(("%s %s -e '%s' 2>&1"):format(environment, process.flowlua, code)))
end

describe("the CUDA plug-in", function()
    it("has a kernel for every op that has one on the CPU", function()
        if not built and (os.getenv "FLOW_CUDA_EMULATED" or "") == "" then pending "flowlua-cuda.so was not built: there is no nvcc here" end
        local missing = {}
        for _, op in ipairs(testing.ops()) do
            if testing.has_kernel(op.name, "cpu") and not op.host_only and not testing.has_kernel(op.name, "cuda") then missing[#missing + 1] = op.name end
        end
        table.sort(missing)
        assert.are.equal("", table.concat(missing, " "))
    end)

    it("says of every kernel how many threads it may have", function()   -- or ptxas may give it more registers than they can have
        local without = {}
        for _, path in ipairs(process.lines(process.output "find src/cuda -name '*.cu' -o -name '*.cuh'")) do
            for line in io.lines(path) do
                if line:find("__global__ ", 1, true) and not line:find("__launch_bounds__", 1, true) then
                    without[#without + 1] = path .. ": " .. line
                end
            end
        end
        assert.are.equal("", table.concat(without, "\n"))
    end)

    it("has no kernel of an op that there is not", function()
        assert.is_false(pcall(testing.has_kernel, "no such op", "cpu"))
        assert.is_true(testing.has_kernel("add", "cpu"))
    end)

    it("is not opened where no GPU is used", function()
        local log = run("LD_DEBUG=files", "print(flow.ones(3):sum():item())")
        assert.is_truthy(log:find("3.0\n", 1, true))
        assert.is_nil(log:find("flowlua-cuda", 1, true))
        assert.is_nil(log:find("libcuda", 1, true))
    end)

    it("says that there is no GPU", function()
        local text = run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=", "flow.zeros(2, {device = \"cuda\"})")
        local line = text:match "[^\n]*cuda: [^\n]*" or text
        if not built then
            assert.is_truthy(line:find("cuda: flowlua-cuda.so is neither beside the program nor in ../lib/flowlua; install the package", 1, true), text)
        elseif line:find("no NVIDIA driver", 1, true) then
            assert.is_truthy(line:find("cuda: no NVIDIA driver found (libcuda.so.1); install the driver of the GPU, or use device \"cpu\"", 1, true), text)
        else
            assert.is_truthy(line:find("cuda: no GPU: CUDA_VISIBLE_DEVICES= hides them, or there is none; use device \"cpu\"", 1, true), text)
        end
        assert.are.equal("false\t0\tfalse\n", run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=",
            "local c = flow.cuda c.synchronize() c.manual_seed_all(1) print(c.is_available(), c.device_count(), c.is_bf16_supported())"))
        local same = [[local function why(f, ...) return (select(2, pcall(f, ...)):gsub("^[^ ]* ", "")) end
            local x, net = flow.ones(2), flow.nn.Linear(2, 2)
            print(why(x.to, x, "cuda") == why(x.cuda, x), why(x.to, x, "cuda:1") == why(x.cuda, x, 1), why(net.to, net, "cuda") == why(net.cuda, net))]]
        assert.are.equal("true\ttrue\ttrue\n", run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=", same))
        assert.are.equal("3\n", run("CUDA_VISIBLE_DEVICES=", "pcall(flow.zeros, 2, {device = \"cuda\"}) print(flow.tensor({1, 2}):sum():item())"))
    end)

    it("counts the GPUs that a script can use", function()
        local count = "print(flow.device_count(\"cuda\"))"
        assert.are.equal("0\n", run("CUDA_VISIBLE_DEVICES= FLOW_CUDA_EMULATED=", count))
        assert.are.equal(1, flow.device_count "cpu")
        local message = support.message_of(flow.device_count, "gpu")
        assert.is_truthy(message:find("device_count: unknown device 'gpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", 1, true), message)
        message = support.message_of(flow.device_count, "cuda:1")
        assert.is_truthy(message:find("device_count: takes \"cpu\" or \"cuda\", got 'cuda:1'", 1, true), message)
        message = support.message_of(flow.device_count)
        assert.is_truthy(message:find("device_count: device must be a string, got nothing", 1, true), message)
        local emulated = exists "emulated/flowlua-cuda.so"
        for devices = 0, 3 do
            local environment = ("FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=%d"):format(devices)
            assert.are.equal(("%d\n"):format(emulated and devices or 0), run(environment, count))
        end
    end)

    it("says that the emulated GPU is not built", function()
        if exists "emulated/flowlua-cuda.so" then pending "it is built" end
        local text = run("FLOW_CUDA_EMULATED=1", "flow.zeros(2, {device = \"cuda\"})")
        assert.is_truthy(text:find("FLOW_CUDA_EMULATED=1: the emulated GPU is not built; run make emulated", 1, true), text)
    end)
end)
