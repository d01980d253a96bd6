-- views.lua -- the arguments of views and copies that change shapes: views[op](t) is a text that fits the tensor, or nil.
local parts = require "tests.programs.parts"

local random = math.random
local chance, plain = parts.chance, parts.plain

local function axis_of(t) return random(-t.ndim, t.ndim - 1) end
local function has_elements(t) return t.ndim > 0 and t:numel() > 0 end

-- Sizes with the same product.
local function refactored(t)
    local n, list = t:numel(), {}
    if n == 0 then return {0, random(3)} end
    while n > 1 and #list < 3 do
        local d = random(n)
        while n % d ~= 0 do d = d - 1 end
        list[#list + 1], n = d, n // d
    end
    if n > 1 or #list == 0 then list[#list + 1] = n end
    return list
end

local function permutation(n)
    local list = {}
    for i = 1, n do
        local j = random(i)
        list[i], list[j] = list[j], i - 1
    end
    for i = 1, n do list[i] = list[i] or i - 1 end
    return list
end

local views = {
    reshape = function(t) return plain(refactored(t)) end,
    view = function(t) return plain(refactored(t)) end,
    permute = function(t) return t.ndim > 0 and plain(permutation(t.ndim)) or "{}" end,
    transpose = function(t) return t.ndim > 0 and ("%d, %d"):format(axis_of(t), axis_of(t)) end,
    flatten = function(t) return t.ndim > 1 and tostring(random(0, t.ndim - 1)) or "" end,
    unsqueeze = function(t) return t.ndim < 5 and tostring(random(0, t.ndim)) end,
    squeeze = function() return "" end,
    expand = function(t)
        local shape = {}
        for i, size in ipairs(t.shape) do shape[i] = size == 1 and random(0, 4) or -1 end
        if chance(40) then table.insert(shape, 1, random(3)) end
        return plain(shape)
    end,
    narrow = function(t)
        if t.ndim == 0 then return end
        local axis = axis_of(t)
        local size = t:size(axis)
        local start = random(0, size)
        return ("%d, %d, %d"):format(axis, start, random(0, size - start))
    end,
    select = function(t)
        if not has_elements(t) then return end
        local axis = axis_of(t)
        return ("%d, %d"):format(axis, random(-t:size(axis), t:size(axis) - 1))
    end,
    slice = function(t)
        if t.ndim == 0 then return end
        return ("%d, %d, %d, %d"):format(axis_of(t), random(0, 3), random(0, 7), random(3))
    end,
    chunk = function(t) return t.ndim > 0 and ("%d, %d"):format(random(4), axis_of(t)) end,
    split = function(t) return t.ndim > 0 and ("%d, %d"):format(random(3), axis_of(t)) end,
    diagonal = function(t)
        if t.ndim < 2 then return end
        local axes = permutation(t.ndim)
        return ("%d, %d, %d"):format(random(-2, 2), axes[1], axes[2])
    end,
    flip = function(t) return t.ndim > 0 and tostring(axis_of(t)) end,
    roll = function(t) return t.ndim > 0 and ("%d, %d"):format(random(-4, 9), axis_of(t)) end,
    tile = function() return plain(({{2}, {1, 2}, {3, 1}, {2, 1, 2}})[random(4)]) end,
    rep = function(t)
        local list = {}
        for i = 1, t.ndim do list[i] = random(0, 2) end
        return t.ndim > 0 and plain(list)
    end,
    contiguous = function() return "" end,
    clone = function() return "" end,
    tril = function(t) return t.ndim > 1 and tostring(random(-2, 2)) end,
    triu = function(t) return t.ndim > 1 and tostring(random(-2, 2)) end,
}
local view_names = {}
for name in pairs(views) do view_names[#view_names + 1] = name end
table.sort(view_names)

return {views = views, names = view_names, axis_of = axis_of, permutation = permutation}
