-- nn.lua -- parts of networks, forward and backward.

local flow = require "flow"

local M = {}

local function leaf(...)
    return flow.randn({...}, {requires_grad = true})
end

function M.softmax()
    local x = flow.randn(3072, 64)
    return function(count)
        for _ = 1, count do local _ = x:softmax(-1) end
    end
end

function M.cross_entropy()
    local x, y = leaf(3072, 64), flow.randint(0, 64, {3072})
    return function(count)
        for _ = 1, count do
            flow.cross_entropy(x, y):backward()
            x.grad = nil
        end
    end
end

function M.layer_norm()
    local x, g = leaf(768, 65), flow.randn(768, 65)
    local weight, bias = leaf(65), leaf(65)
    local sizes = {65}
    return function(count)
        for _ = 1, count do
            flow.layer_norm(x, sizes, weight, bias):backward(g)
            x.grad, weight.grad, bias.grad = nil, nil, nil
        end
    end
end

function M.linear_gelu()
    local net = flow.nn.Sequential(flow.nn.Linear(128, 512), flow.nn.GELU())
    local x, g, linear = leaf(768, 128), flow.randn(768, 512), net[1]
    return function(count)
        for _ = 1, count do
            net(x):backward(g)
            x.grad, linear.weight.grad, linear.bias.grad = nil, nil, nil
        end
    end
end

function M.attention()
    local q, k, v = flow.randn(1, 8, 1024, 64), flow.randn(1, 8, 1024, 64), flow.randn(1, 8, 1024, 64)
    local causal = {is_causal = true}
    return function(count)
        for _ = 1, count do local _ = flow.scaled_dot_product_attention(q, k, v, causal) end
    end
end

function M.attention_train()
    local q, k, v = leaf(12, 4, 64, 32), leaf(12, 4, 64, 32), leaf(12, 4, 64, 32)
    local g, causal = flow.randn(12, 4, 64, 32), {is_causal = true}
    return function(count)
        for _ = 1, count do
            flow.scaled_dot_product_attention(q, k, v, causal):backward(g)
            q.grad, k.grad, v.grad = nil, nil, nil
        end
    end
end

function M.embedding()
    local indices, weight = flow.randint(0, 65, {768}), flow.randn(65, 128)
    return function(count)
        for _ = 1, count do local _ = flow.embedding(indices, weight) end
    end
end

function M.conv2d()
    local x, weight, bias = flow.randn(64, 16, 14, 14), flow.randn(32, 16, 3, 3), flow.randn(32)
    return function(count)
        for _ = 1, count do local _ = flow.conv2d(x, weight, bias, 1, 1) end
    end
end

function M.conv2d_train()
    local x, weight, bias = leaf(8, 64, 56, 56), leaf(64, 64, 3, 3), leaf(64)
    local g = flow.randn(8, 64, 56, 56)
    return function(count)
        for _ = 1, count do
            flow.conv2d(x, weight, bias, 1, 1):backward(g)
            x.grad, weight.grad, bias.grad = nil, nil, nil
        end
    end
end

function M.max_pool2d()
    local x, g = leaf(64, 16, 28, 28), flow.randn(64, 16, 14, 14)
    return function(count)
        for _ = 1, count do
            flow.max_pool2d(x, 2):backward(g)
            x.grad = nil
        end
    end
end

return M
