-- recurrent_spec.lua -- recurrent layers, attention and the transformer on several ranks: a split batch stays split, and
-- gradients are those of one rank.
local flow = require "flow"
local nn = flow.nn

local everywhere = flow.placement.all "cpu"
local whole = {placement = everywhere, sbp = "B"}

local function split(x, axis) return x:to_global(whole):to_global {sbp = ("S(%d)"):format(axis)} end

local function close(want, got, what)
    local difference = (want - got:to_global {sbp = "B"}:to_local()):abs():max():item()
    assert.is_true(difference < 1e-4, what .. ": " .. difference)
end

-- The results of a net and its global copy on inputs of which axis `axis` is split, and their gradients.
local function compare(name, net, axis, inputs, forward)
    local copy = net:clone():to_global(whole)
    local split_inputs = {}
    for i, x in ipairs(inputs) do split_inputs[i] = split(x, axis) end
    local y, z = forward(net, table.unpack(inputs)), forward(copy, table.unpack(split_inputs))
    assert.are.equal(("S(%d)"):format(axis), tostring(z.sbp), name)
    close(y, z, name)
    y:square():sum():backward()
    z:square():sum():backward()
    local grads = {}
    for key, p in copy:named_parameters() do grads[key] = p.grad end
    for key, p in net:named_parameters() do close(p.grad, grads[key], name .. "." .. key) end
end

local function first(net, ...) return (net(...)) end

describe("on several ranks", function()
    it("a split batch goes through recurrent layers", function()
        flow.manual_seed(1)
        for _, kind in ipairs {"LSTM", "GRU", "RNN"} do
            compare(kind, nn[kind](3, 4, 2, {bidirectional = true}), 1, {flow.randn(4, 5, 3)}, first)
            compare(kind .. " batch first", nn[kind](3, 4, {batch_first = true}), 0, {flow.randn(5, 4, 3)}, first)
            compare(kind .. "Cell", nn[kind .. "Cell"](3, 4), 0, {flow.randn(5, 3)}, first)
        end
    end)

    it("a split batch goes through attention and the transformer", function()
        flow.manual_seed(2)
        local options = {dim_feedforward = 8, dropout = 0, batch_first = true}
        local x, memory = flow.randn(5, 4, 6), flow.randn(5, 3, 6)
        compare("MultiheadAttention", nn.MultiheadAttention(6, 2, {batch_first = true}), 0, {x, memory, memory}, first)
        compare("without weights", nn.MultiheadAttention(6, 2, {batch_first = true}), 0, {x}, function(net, y)
            return (net(y, y, y, {need_weights = false}))
        end)
        compare("TransformerEncoderLayer", nn.TransformerEncoderLayer(6, 2, options), 0, {x}, first)
        compare("TransformerDecoderLayer", nn.TransformerDecoderLayer(6, 2, options), 0, {x, memory}, first)
        compare("Transformer", nn.Transformer(6, 2, 1, 1, options), 0, {memory, x}, first)
    end)

    it("heads are split, shared ones too", function()
        flow.manual_seed(3)
        local q, k, v = flow.randn(2, 6, 5, 4), flow.randn(2, 6, 7, 4), flow.randn(2, 6, 7, 3)
        local y = flow.scaled_dot_product_attention(split(q, 1), split(k, 1), split(v, 1))
        assert.are.equal("S(1)", tostring(y.sbp))
        close(flow.scaled_dot_product_attention(q, k, v), y, "heads")
        k, v = k:narrow(1, 0, 3), v:narrow(1, 0, 3)
        y = flow.scaled_dot_product_attention(split(q, 0), split(k, 0), split(v, 0), {enable_gqa = true})
        close(flow.scaled_dot_product_attention(q, k, v, {enable_gqa = true}), y, "shared heads")
    end)

    it("positions are added to split steps", function()
        flow.manual_seed(4)
        local x = flow.randn(5, 4, 6)
        for _, layer in ipairs {nn.RotaryEmbedding(6), nn.RotaryEmbedding(6, {interleaved = true}), nn.SinusoidalPositions(6)} do
            close(layer(x), layer(split(x, 1)), tostring(layer))
        end
    end)

    it("packed sequences are taken whole", function()
        flow.manual_seed(5)
        local net, rnn = nn.LSTM(3, 4), nn.utils.rnn
        local x, lengths = flow.randn(4, 3, 3), {2, 4, 1}
        local want = rnn.pad_packed_sequence((net(rnn.pack_padded_sequence(x, lengths, {enforce_sorted = false}))))
        local copy = net:clone():to_global(whole)
        local packed = rnn.pack_padded_sequence(x:to_global(whole), lengths, {enforce_sorted = false})
        close(want, (rnn.pad_packed_sequence((copy(packed)))), "packed")
    end)
end)
