-- matmul.lua -- matrix products in float32.

local flow = require "flow"

local M = {}

-- a @ b with the shapes given; turned: b is a transposed view, as a Linear layer's weight is.
local function product(a_shape, b_shape, turned)
    return function()
        local a, b = flow.randn(a_shape), flow.randn(b_shape)
        if turned then b = b:t() end
        return function(count)
            for _ = 1, count do local _ = a:matmul(b) end
        end
    end
end

M.m64 = product({64, 64}, {64, 64})
M.m256 = product({256, 256}, {256, 256})
M.m1024 = product({1024, 1024}, {1024, 1024})
M.mlp = product({768, 128}, {128, 384})
M.linear = product({768, 128}, {512, 128}, true)
M.batch = product({48, 64, 32}, {48, 32, 64})

return M
