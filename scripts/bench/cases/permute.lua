-- permute.lua -- permuted views made contiguous, into memory that the allocator has at hand.

local flow = require "flow"

local M = {}

local function permuted(shape, axes)
    return function()
        local view = flow.randn(shape):permute(axes)
        return function(count)
            for _ = 1, count do local _ = view:contiguous() end
        end
    end
end

M.matrices = permuted({64, 1024, 1024}, {0, 2, 1})
M.nhwc = permuted({32, 64, 56, 56}, {0, 2, 3, 1})
M.square = permuted({4096, 4096}, {1, 0})
M.attention = permuted({12, 4, 64, 32}, {0, 1, 3, 2})

return M
