-- optim_average_spec.lua -- flow.optim.AveragedModel, and groups that are added to an optimizer.
local flow = require "flow"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim

local function net_of(value)
    local net = nn.Linear(2, 1)
    flow.no_grad(function()
        net.weight:fill_(value)
        net.bias:fill_(-value)
    end)
    return net
end

-- The average after the weights 1, 2, 4.
local function average(opts)
    local net = net_of(1)
    local averaged = optim.AveragedModel(net, opts)
    for _, value in ipairs {1.0, 2.0, 4.0} do
        flow.no_grad(function() net.weight:fill_(value) end)
        averaged:update_parameters()
    end
    return averaged, net
end

describe("averages of a net", function()
    for _, case in ipairs {{"of all alike", {}, 7 / 3}, {"that forget", {decay = 0.75}, (0.75 + 0.5) * 0.75 + 1}} do
        it(case[1], function()
            local averaged, net = average(case[2])
            assert.are.equal(3, averaged.n_averaged)
            averaged:swap()
            assert.is_true(math.abs(net.weight:totable()[1][1] - case[3]) < 1e-6)
            assert.are.equal(-1, net.bias:item())
            averaged:swap()
            assert.are.equal(4, net.weight:totable()[1][1])
        end)
    end

    it("are taken in a captured step, and go on from their state", function()
        local function train(captures, opts, resumes)
            flow.manual_seed(4)
            local net = nn.Linear(3, 2)
            local opt, averaged = optim.SGD(net:parameters(), {lr = 0.1}), optim.AveragedModel(net, opts)
            local function f(x)
                opt:zero_grad()
                net(x):square():mean():backward()
                opt:step()
                averaged:update_parameters()
            end
            if captures then f = flow.capture(f) end
            for t = 1, 8 do
                f(flow.randn(4, 3))
                if t == 5 and resumes then
                    local path = os.tmpname()
                    flow.save(path, averaged:state_dict())
                    averaged = optim.AveragedModel(net, opts)
                    averaged:load_state_dict(flow.load(path))
                    os.remove(path)
                end
            end
            averaged:swap()
            return net.weight:detach()
        end
        for _, opts in ipairs {{}, {decay = 0.9}} do
            local want = train(false, opts)
            support.same_bits(want, train(true, opts), "captured")
            support.same_bits(want, train(false, opts, true), "resumed")
        end
    end)

    it("take the net that is averaged, by PyTorch's call, and no other", function()
        local net = nn.Linear(1, 1)
        local averaged = optim.AveragedModel(net)
        averaged:update_parameters(net)
        assert.are.equal(1, averaged.n_averaged)
        assert.are.equal("update_parameters: net must be the module that was given to AveragedModel, got another Linear",
            support.message_of(averaged.update_parameters, averaged, nn.Linear(1, 1)))
        assert.are.equal("AveragedModel: it has no forward; swap() puts the averages into the net for net(x), and back again",
            support.message_of(function() averaged(flow.ones(1, 1)) end))
    end)

    for _, case in ipairs {
        {"no net", function() optim.AveragedModel({}) end, "AveragedModel: takes a module, got table"},
        {"a decay above 1", function() optim.AveragedModel(nn.Linear(1, 1), {decay = 2}) end,
            "AveragedModel: decay must be a number in [0, 1], got 2"},
        {"swap before an update", function() optim.AveragedModel(nn.Linear(1, 1)):swap() end,
            "swap: there are no averages before update_parameters()"},
        {"an update of averages", function()
            local averaged = average {}
            averaged:swap()
            averaged:update_parameters()
        end, "update_parameters: the net has its averages; call swap() before training on"},
        {"the state of another net", function()
            average {}:load_state_dict(optim.AveragedModel(nn.Linear(3, 3)):state_dict())
        end, "AveragedModel:load_state_dict: bias must have shape [1], got [3]"},
        {"what is no state", function() average {}:load_state_dict({}) end,
            "AveragedModel:load_state_dict: takes a table from state_dict"},
        {"a group that is none", function() optim.SGD(net_of(1):parameters()):add_param_group({}) end,
            "SGD:add_param_group: takes {params = ...}, got table"},
        {"a parameter twice", function()
            local p = nn.Parameter(flow.ones(1))
            optim.SGD({p}):add_param_group({params = p})
        end, "SGD: a parameter occurs twice"},
    } do
        it("refuse " .. case[1], function()
            assert.are.equal(case[3], support.error_of(case[2]))
        end)
    end
end)

describe("a group that is added", function()
    it("is stepped with options of its own or the optimizer's, in a captured step too", function()
        local function run(captures)
            local a, b = nn.Parameter(flow.ones(2)), nn.Parameter(flow.ones(2))
            local opt = optim.SGD({a}, {lr = 0.5, momentum = 0.9})
            local function f(x)
                opt:zero_grad()
                b.grad = nil
                ;(a * x + b * x):sum():backward()
                opt:step()
            end
            if captures then f = flow.capture(f) end
            for t = 1, 6 do
                if t == 4 then
                    opt:add_param_group({params = b, lr = 0.25})
                    assert.are.equal(0.9, opt.groups[2].momentum)
                end
                f(flow.ones(2))
            end
            return a:totable(), b:totable()
        end
        local a, b = run(false)
        assert.is_true(math.abs(b[1] - (1 - 0.25 * (1 + 1.9 + 2.71))) < 1e-6)
        local mine, other = run(true)
        assert.are.same(a, mine)
        assert.are.same(b, other)
    end)
end)
