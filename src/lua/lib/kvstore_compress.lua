-- kvstore_compress.lua -- pushes in 2 bits per element, and what they leave over: compress_2bit_ and expand_2bit.

local flow = require "flow"

local op = flow._op

local M = {}

local ELEMENTS = 16     -- whose codes make a word

-- Adds a gradient to a residual of the entry (the number of the one who pushes) and takes codes from it, with a row for
-- each of so many parts of its rows.
function M.compress(entry, who, gradient, parts, threshold)
    local residual = entry.residuals[who]
    if not residual then
        local dtype = gradient.dtype == "float64" and "float64" or "float32"
        residual = flow.zeros(gradient.shape, {dtype = dtype, device = entry.device})
        entry.residuals[who] = residual
    end
    residual:add_(gradient)
    local rows, numel = gradient:dim() > 0 and gradient:size(0) or 1, gradient:numel()
    local largest = numel > 0 and (rows + parts - 1) // parts * (numel // rows) or 0
    local codes = flow.empty({parts, (largest + ELEMENTS - 1) // ELEMENTS}, {dtype = "int32", device = entry.device})
    op.compress_2bit_(residual, codes, threshold)
    return codes
end

-- The sum of what the rows of codes stand for, as a tensor of this shape.
function M.expand(entry, codes, shape, threshold)
    local numel = 1
    for _, size in ipairs(shape) do numel = numel * size end
    return op.expand_2bit(codes, numel, threshold, {dtype = entry.dtype}):view(shape)
end

return M
