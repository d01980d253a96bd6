-- recurrent_spec.lua -- recurrent layers against their cells written out, and packed sequences; PyTorch's values are
-- compared by tests/peer/cases_recurrent.py.
local flow = require "flow"
local support = require "tests.support"
local nn = flow.nn
local rnn = nn.utils.rnn

local function close(want, got, what) support.close(want, got, 1e-5, what) end

-- One step of each kind in plain ops; s: {h} or {h, c}.
local steps = {
    LSTM = function(net, x, s)
        local sums = flow.linear(x, net.weight_ih_l0, net.bias_ih_l0) + flow.linear(s[1], net.weight_hh_l0, net.bias_hh_l0)
        local i, f, g, o = sums:chunk(4, 1)
        local c = f:sigmoid() * s[2] + i:sigmoid() * g:tanh()
        return {o:sigmoid() * c:tanh(), c}
    end,
    GRU = function(net, x, s)
        local xr, xz, xn = flow.linear(x, net.weight_ih_l0, net.bias_ih_l0):chunk(3, 1)
        local hr, hz, hn = flow.linear(s[1], net.weight_hh_l0, net.bias_hh_l0):chunk(3, 1)
        local z, new = (xz + hz):sigmoid(), (xn + (xr + hr):sigmoid() * hn):tanh()
        return {new * (1 - z) + z * s[1]}
    end,
    RNN = function(net, x, s)
        return {(flow.linear(x, net.weight_ih_l0, net.bias_ih_l0) + flow.linear(s[1], net.weight_hh_l0, net.bias_hh_l0)):tanh()}
    end,
}

describe("recurrent layers", function()
    for kind, step in pairs(steps) do
        it(kind .. " is its step again and again, at sizes around the panels", function()
            flow.manual_seed(1)
            for _, size in ipairs {{1, 1, 1, 1}, {3, 2, 4, 31}, {5, 13, 3, 32}, {4, 49, 5, 33}, {2, 100, 3, 70}} do
                local time, batch, inputs, width = table.unpack(size)
                local net, x = nn[kind](inputs, width), flow.randn(time, batch, inputs, {requires_grad = true})
                local s, ys = {flow.randn(1, batch, width), flow.randn(1, batch, width)}, {}
                local y, last = net(x, kind == "LSTM" and s or s[1])
                s = {s[1][0], s[2][0]}
                for t = 0, time - 1 do
                    s = step(net, x[t], s)
                    ys[#ys + 1] = s[1]
                end
                local want, g = flow.stack(ys, 0), flow.randn(time, batch, width)
                close(want, y, kind)
                close(s[1], (kind == "LSTM" and last[1] or last)[0], "last state")
                local leaves = {x}
                for _, p in ipairs(net:parameters()) do leaves[#leaves + 1] = p end
                local found = flow.grad(y, leaves, {grad_outputs = g})
                for i, slope in ipairs(flow.grad(want, leaves, {grad_outputs = g})) do
                    support.close(slope, found[i], 1e-3, "gradient " .. i)
                end
            end
        end)
    end

    it("the op passes gradcheck with lengths, to second order", function()
        local lengths = flow.tensor {3, 1}
        for kind, gates in pairs {lstm = 4, gru = 3, rnn_tanh = 1} do
            for _, reverse in ipairs {false, true} do
                local function leaf(...) return flow.randn({...}, {dtype = "float64", requires_grad = true}) end
                local h = leaf(2, 2)
                local inputs = {leaf(3, 2, gates * 2), leaf(gates * 2, 2), h}
                assert.is_true(flow.gradcheck(function(x, w, h0)
                    local y, c = flow._op.recurrent(x, w, nil, h0, kind == "lstm" and h0 or nil, lengths, kind, reverse)
                    return kind == "lstm" and y + c or y
                end, inputs, {order = 2}))
            end
        end
    end)

    -- Many rows are shared by the threads; of few rows every step is, if it is long enough: that of 520 units.
    it("rows give the same bits alone and in a batch, on any number of threads", function()
        flow.manual_seed(6)
        local before = flow.get_num_threads()
        for kind, gates in pairs {lstm = 4, gru = 3, rnn_tanh = 1, rnn_relu = 1} do
            for _, width in ipairs {40, 520} do
                local x, g = flow.randn(3, 61, gates * width), flow.randn(3, 61, width)
                local w, h = flow.randn(gates * width, width) * 0.05, flow.randn(61, width)
                local function run(threads, first, rows)
                    flow.set_num_threads(threads)
                    local xs = x:narrow(1, first, rows):contiguous():requires_grad_()
                    local hs = h:narrow(0, first, rows):contiguous():requires_grad_()
                    local y = flow._op.recurrent(xs, w, nil, hs, kind == "lstm" and hs or nil, nil, kind, false)
                    local dx, dh = table.unpack(flow.grad(y, {xs, hs}, {grad_outputs = g:narrow(1, first, rows)}))
                    return {y:detach(), dx, dh:unsqueeze(0)}
                end
                local all = run(1, 0, 61)
                for _, part in ipairs {{2, 0, 61}, {3, 0, 61}, {1, 7, 1}, {2, 7, 1}, {2, 30, 5}, {3, 11, 50}} do
                    for i, found in ipairs(run(table.unpack(part))) do
                        local same = all[i]:narrow(1, part[2], part[3]):eq(found):all():item()
                        assert.is_true(same, ("%s of %d, result %d, %d threads"):format(kind, width, i, part[1]))
                    end
                end
            end
        end
        flow.set_num_threads(before)
    end)

    it("a packed batch gives what its sequences give alone", function()
        flow.manual_seed(2)
        for kind in pairs(steps) do
            local net = nn[kind](3, 5, 2, {bidirectional = true})
            local list = {flow.randn(2, 3), flow.randn(6, 3), flow.randn(4, 3)}
            local packed, last = net(rnn.pack_sequence(list, false))
            local y, lengths = rnn.pad_packed_sequence(packed, true)
            assert.are.same({2, 6, 4}, lengths:totable())
            for i, x in ipairs(list) do
                local want, state = net(x)
                close(want, y[i - 1]:narrow(0, 0, #x), kind)
                if kind == "LSTM" then
                    close(state[1], last[1]:select(1, i - 1), "h")
                    close(state[2], last[2]:select(1, i - 1), "c")
                else
                    close(state, last:select(1, i - 1), "h")
                end
                assert.are.equal(0, y[i - 1]:narrow(0, #x, 6 - #x):abs():sum():item())
            end
        end
    end)

    it("drop elements between layers only, and only in training", function()
        local net, x = nn.GRU(3, 4, 2, {dropout = 0.5}), flow.randn(5, 2, 3)
        local function run()
            flow.manual_seed(3)
            return (net(x))
        end
        assert.is_true((run() - net:eval()(x)):abs():max():item() > 1e-4)
        close(net(x), run(), "eval")
        net = nn.GRU(3, 4, 1, {dropout = 0.5})
        close(net(x), run(), "one layer")
    end)

    it("of a mode that there is not are refused", function()
        assert.are.equal("RNNBase: mode must be one of LSTM|GRU|RNN_TANH|RNN_RELU, got 'P'",
            (support.message_of(function() nn.RNNBase("P", 3, 4) end):gsub("^.-:%d+: ", "")))
        assert.are.equal("GRU", nn.RNNBase("GRU", 3, 4).kind:upper())
    end)

    it("train when captured", function()
        flow.manual_seed(4)
        local net, head = nn.LSTM(3, 8), nn.Linear(8, 2)
        local list = net:parameters()
        for _, p in ipairs(head:parameters()) do list[#list + 1] = p end
        local opt = flow.optim.SGD(list, {lr = 0.1})
        local x, y = flow.randn(6, 4, 3), flow.randint(0, 2, {24})
        local step = flow.capture(function(a, b)
            opt:zero_grad()
            local loss = flow.cross_entropy(head((net(a))):view(-1, 2), b)
            loss:backward()
            opt:step()
            return loss
        end)
        local first = step(x, y):item()
        for _ = 1, 30 do step(x, y) end
        assert.is_true(step(x, y):item() < first)
    end)
end)
