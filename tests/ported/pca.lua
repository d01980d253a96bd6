-- pca.lua -- principal components by the singular value decomposition, by the covariance's eigenvectors, and by
-- power iteration.
local flow = require "flow"
local fill = require "tests.ported.fill"

-- Columns with a sign that does not depend on the method: the largest number of each is positive.
local function signed(columns)
    local largest = columns:gather(0, columns:abs():argmax(0, true))
    return columns * largest:sign()
end

return function()
    local x = fill.values({50, 3}, 1, 4):matmul(fill.values({3, 5}, 2)) + fill.values({50, 5}, 3, 0.2)
    local centered = x - x:mean(0)

    local _, S, Vh = flow.linalg.svd(centered, false)
    local components = signed(Vh:t()[{{}, {0, 3}}])
    local variance = S:square() / (x:size(0) - 1)
    local ratio = variance / variance:sum()

    local values, vectors = flow.linalg.eigh(centered:t():matmul(centered) / (x:size(0) - 1))
    local order = values:argsort(-1, true)
    local by_eigh = signed(vectors:index_select(1, order)[{{}, {0, 3}}])

    local v = flow.ones(5, {dtype = "float64"})
    for _ = 1, 60 do
        v = centered:t():matmul(centered:matmul(v))
        v = v / v:norm()
    end

    local scores = centered:matmul(components)
    local again = scores:matmul(components:t()) + x:mean(0)
    return {
        components = components, variance = variance, ratio = ratio:cumsum(0), by_eigh = by_eigh,
        eigenvalues = values:flip(0), power = signed(v:unsqueeze(1)):squeeze(1), scores = scores[{{0, 4}}],
        error = (again - x):square():mean():sqrt(),
    }
end
