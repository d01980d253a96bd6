-- ordered.lua -- a table that keeps the order of assignment.
--
-- Lua's own order differs from process to process, and what is saved or summed in another order is not the same to the
-- last bit. Both `for name, t in pairs(map)` and `for name, t in map` walk it in order; #map counts its entries.

local KEYS, PLACES, VALUES = {}, {}, {}

local Ordered = {__name = "ordered table"}

function Ordered:__index(key)
    return rawget(self, VALUES)[key]
end

function Ordered:__newindex(key, value)
    local keys, places = rawget(self, KEYS), rawget(self, PLACES)
    if places[key] == nil and value ~= nil then
        keys[#keys + 1] = key
        places[key] = #keys
    elseif places[key] ~= nil and value == nil then
        table.remove(keys, places[key])
        for i = places[key], #keys do places[keys[i]] = i end
        places[key] = nil
    end
    rawget(self, VALUES)[key] = value
end

function Ordered:__len()
    return #rawget(self, KEYS)
end

-- Called by a generic `for`: the entry after `key`.
function Ordered:__call(_, key)
    local place = key == nil and 0 or rawget(self, PLACES)[key]
    local following = rawget(self, KEYS)[place + 1]
    if following ~= nil then return following, rawget(self, VALUES)[following] end
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
    return setmetatable({[KEYS] = {}, [PLACES] = {}, [VALUES] = {}}, Ordered)
end

---@return boolean
function M.is(value)
    return getmetatable(value) == Ordered
end

return M
