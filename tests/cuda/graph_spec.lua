-- graph_spec.lua -- captured functions on the GPU: errors that kernels find in their data are told after a replay.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local nn, optim = require "flow.nn", require "flow.optim"

local it, device = cuda.it, cuda.device

local function tensor(values) return flow.tensor(values):to(device) end

describe("an index out of range in a replay", function()
    local function net_of(captures)
        flow.manual_seed(2)
        local net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 5)):to(device)
        local optimizer = optim.AdamW(net:parameters(), {lr = 0.01})
        local function step(x, y)
            optimizer:zero_grad()
            local loss = flow.cross_entropy(net(x), y)
            loss:backward()
            optimizer:step()
            return loss
        end
        return captures and flow.capture(step) or step, net
    end

    it("is an error where a result is read, and only there", function()
        local w = flow.randn(10, 4):to(device)
        local f = flow.capture(function(x) return (flow.embedding(x, w) * 2):softmax(1):tanh():sum() end)
        local x, want = tensor {1, 2, 3}, nil
        for _ = 1, 6 do want = f(x):item() end
        local bad = f(tensor {1, 2, 30})
        local ok, message = pcall(bad.item, bad)
        assert.is_false(ok)
        assert.is_truthy(message:find("indices[2] is 30, but weight has 10 rows", 1, true), message)
        assert.are.equal(want, f(x):item())
        flow.sync()
    end)

    it("leaves parameters as an eager one does", function()
        local eager, want = net_of(false)
        local step, net = net_of(true)
        local x, y = tensor {1, 2, 3}, tensor {4, 0, 1}
        for i = 1, 12 do
            for _, f in ipairs {eager, step} do
                f(x, y)
                if i % 6 == 0 then assert.is_false(pcall(f, tensor {1, 2, 30}, y)) end
            end
        end
        for i, p in ipairs(net:parameters()) do
            assert.is_true(p:to("cpu"):eq(want:parameters()[i]:to "cpu"):all():item(), "parameter " .. i)
        end
    end)
end)
