-- ordered.lua -- a table that keeps the order of assignment.
--
-- Lua's own order differs from process to process, and what is saved or summed in another order is not the same to the
-- last bit. Both `for name, t in pairs(map)` and `for name, t in map` walk it in order; #map counts its entries. As in
-- Lua's tables, entries may be removed while it is walked: a removed key keeps its place until others are added.

local KEYS, PLACES, VALUES, COUNT = {}, {}, {}, {}
local HOLE = {}         -- in KEYS: was here, was removed and came again

local Ordered = {__name = "ordered table"}

function Ordered:__index(key)
    return rawget(self, VALUES)[key]
end

-- Drops the places of keys that were removed.
local function compact(self)
    local values, keys, places = rawget(self, VALUES), {}, {}
    for _, key in ipairs(rawget(self, KEYS)) do
        if values[key] ~= nil then
            keys[#keys + 1] = key
            places[key] = #keys
        end
    end
    rawset(self, KEYS, keys)
    rawset(self, PLACES, places)
    return keys, places
end

local function append(self, key)
    local keys, places, count = rawget(self, KEYS), rawget(self, PLACES), rawget(self, COUNT)
    local old = places[key]
    if old then keys[old] = HOLE end
    if #keys > 2 * count + 8 then keys, places = compact(self) end
    local place = #keys + 1
    keys[place], places[key] = key, place
    rawset(self, COUNT, count + 1)
end

function Ordered:__newindex(key, value)
    if key == nil or key ~= key then require("flow.check").fail("ordered table: a key is nil or nan") end
    local values = rawget(self, VALUES)
    if value ~= nil and values[key] == nil then
        append(self, key)
    elseif value == nil and values[key] ~= nil then
        rawset(self, COUNT, rawget(self, COUNT) - 1)
    end
    values[key] = value
end

function Ordered:__len()
    return rawget(self, COUNT)
end

-- Called by a generic `for`: the entry after `key`.
function Ordered:__call(_, key)
    local keys, values = rawget(self, KEYS), rawget(self, VALUES)
    local place = key == nil and 0 or rawget(self, PLACES)[key]
    if not place then
        require("flow.check").fail("ordered table: walked from a key it does not have, or while entries were added")
    end
    for i = place + 1, #keys do
        local value = values[keys[i]]
        if value ~= nil then return keys[i], value end
    end
end

local function step(self, key)
    return Ordered.__call(self, nil, key)
end

function Ordered:__pairs()
    return step, self, nil
end

local M = {}

---@return table
function M.new()
    return setmetatable({[KEYS] = {}, [PLACES] = {}, [VALUES] = {}, [COUNT] = 0}, Ordered)
end

---@return boolean
function M.is(value)
    return getmetatable(value) == Ordered
end

return M
