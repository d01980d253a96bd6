-- recurrent.lua -- recurrent layers, a layer of the transformer, and products of single rows.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local M = {}

-- Training steps of characters: an embedding, the layer, and a head.
local function steps(kind, width, time, batch)
    return function()
        local embedding, layer, head = nn.Embedding(65, width), nn[kind](width, width), nn.Linear(width, 65)
        local list = {}
        for _, net in ipairs {embedding, layer, head} do
            for _, p in ipairs(net:parameters()) do list[#list + 1] = p end
        end
        local opt = optim.AdamW(list, {lr = 1e-3})
        local x, y = flow.randint(0, 65, {time, batch}), flow.randint(0, 65, {time * batch})
        return function(count)
            for _ = 1, count do
                opt:zero_grad()
                flow.cross_entropy(head((layer(embedding(x)))):view(-1, 65), y):backward()
                opt:step()
            end
            flow.sync()
        end
    end
end

M.lstm_128 = steps("LSTM", 128, 50, 32)
M.lstm_256 = steps("LSTM", 256, 100, 64)
M.lstm_512 = steps("LSTM", 512, 32, 32)
M.gru_128 = steps("GRU", 128, 50, 32)
M.gru_256 = steps("GRU", 256, 100, 64)
M.rnn_256 = steps("RNN", 256, 100, 64)

local function calls(f, ...)
    local args = table.pack(...)
    return function(count)
        return flow.no_grad(function()
            for _ = 1, count do f(table.unpack(args, 1, args.n)) end
        end)
    end
end

function M.lstm_cell()
    return calls(nn.LSTMCell(128, 128), flow.randn(32, 128), {flow.randn(32, 128), flow.randn(32, 128)})
end

-- Sequences without a gradient.
local function inference(kind, width, time, batch)
    return function() return calls(nn[kind](width, width), flow.randn(time, batch, width)) end
end

M.lstm_forward = inference("LSTM", 256, 64, 32)
M.lstm_one = inference("LSTM", 256, 64, 1)
M.gru_one = inference("GRU", 256, 64, 1)

function M.row() return calls(flow.matmul, flow.randn(1, 768), flow.randn(768, 16384)) end
function M.row_linear() return calls(flow.linear, flow.randn(1, 768), flow.randn(16384, 768)) end

function M.few_rows() return calls(flow.linear, flow.randn(32, 768), flow.randn(3072, 768)) end

function M.row_bfloat16()
    return calls(flow.linear, flow.randn(1, 768):to "bfloat16", flow.randn(16384, 768):to "bfloat16")
end

function M.bfloat16()
    return calls(flow.linear, flow.randn(64, 768):to "bfloat16", flow.randn(768, 768):to "bfloat16")
end

function M.int64()
    return calls(flow.matmul, flow.randint(-9, 9, {256, 256}), flow.randint(-9, 9, {256, 256}))
end

function M.encoder_layer()
    local layer, x = nn.TransformerEncoderLayer(128, 4, {dim_feedforward = 512, dropout = 0}), flow.randn(64, 12, 128)
    local g = flow.randn(64, 12, 128)
    return function(count)
        for _ = 1, count do
            layer(x):backward(g)
            layer:zero_grad()
        end
        flow.sync()
    end
end

return M
