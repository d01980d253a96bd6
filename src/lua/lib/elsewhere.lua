-- elsewhere.lua -- where a name lies that a script looked for in another table: nn.cross_entropy is flow.cross_entropy.

local has = require("flow.has").has

-- Tables of names, in the order in which they are asked.
local places = {
    "flow", "nn", "optim", "data", "nn.functional", "nn.attention", "nn.utils", "nn.init", "optim.lr_scheduler",
    "linalg", "fft", "special", "signal", "distributions", "func", "autograd", "nn.utils.parametrizations",
    "nn.utils.parametrize",
}
local is_place = {}
for _, place in ipairs(places) do is_place[place] = true end

---The path of exactly this name in another of these tables, as scripts write it; nil where there is none, or where
---`place` is no such table but a class.
---@param word string
---@param place string
---@return string?
local function find(word, place)
    if not is_place[place] or not word:find "^%a[%w_]*$" then return nil end
    for _, other in ipairs(places) do
        local path = (other == "flow" and "" or other .. ".") .. word
        if other ~= place and has(path) then return "flow." .. path end
    end
end

return {find = find}
