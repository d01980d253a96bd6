-- small.lua -- ops on so few elements that calling them is what costs.

local flow = require "flow"

local M = {}

function M.add()
    local a, b = flow.randn(16), flow.randn(16)
    return function(count)
        for _ = 1, count do local _ = a + b end
    end
end

function M.add_()
    local a, b = flow.zeros(16), flow.full({16}, 1e-6)
    return function(count)
        for _ = 1, count do a:add_(b) end
    end
end

function M.view()
    local a = flow.randn(16)
    return function(count)
        for _ = 1, count do local _ = a:view(4, 4) end
    end
end

function M.transpose()
    local m = flow.randn(4, 4)
    return function(count)
        for _ = 1, count do local _ = m:transpose(0, 1) end
    end
end

function M.add_number()
    local a = flow.randn(16)
    return function(count)
        for _ = 1, count do local _ = a + 1.5 end
    end
end

function M.mul_number_()
    local a = flow.ones(16)
    return function(count)
        for _ = 1, count do a:mul_(1.0000001) end
    end
end

local function global(value)
    local placement = flow.placement("cpu", {0})
    return flow.full({16}, value, {placement = placement, sbp = "S(0)"})
end

function M.global_add()
    local a, b = global(1.0), global(2.0)
    return function(count)
        for _ = 1, count do local _ = a + b end
    end
end

function M.global_add_()
    local a, b = global(0.0), global(1e-6)
    return function(count)
        for _ = 1, count do a:add_(b) end
    end
end

function M.select()
    local a = flow.randn(16)
    return function(count)
        for _ = 1, count do local _ = a[3] end
    end
end

function M.range()
    local a, range = flow.randn(16), {{1, 3}}
    return function(count)
        for _ = 1, count do local _ = a[range] end
    end
end

function M.item()
    local x = flow.randn({})
    return function(count)
        for _ = 1, count do local _ = x:item() end
    end
end

function M.empty()
    local empty = flow.empty
    return function(count)
        for _ = 1, count do local _ = empty(16) end
    end
end

function M.sum()
    local a = flow.randn(16)
    return function(count)
        for _ = 1, count do local _ = a:sum() end
    end
end

function M.softmax()
    local x = flow.randn(8, 16)
    return function(count)
        for _ = 1, count do local _ = x:softmax(-1) end
    end
end

function M.matmul()
    local a, b = flow.randn(4, 4), flow.randn(4, 4)
    return function(count)
        for _ = 1, count do local _ = a:matmul(b) end
    end
end

function M.linear()
    local linear, x = flow.nn.Linear(16, 32), flow.randn(8, 16)
    return function(count)
        local _ <close> = flow.no_grad()
        for _ = 1, count do local _ = linear(x) end
    end
end

return M
