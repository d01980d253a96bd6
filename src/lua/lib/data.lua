-- data.lua -- flow.data: readers, datasets and the loader, each from a module of its own.

local check = require "flow.check"

local data = {}

for _, name in ipairs {
    "files", "readers", "images", "augment", "text", "tokens", "sets", "parts", "pack", "records", "loader",
} do
    for key, value in next, (require("flow.data_" .. name)) do data[key] = value end
end

return check.strict("data", data)
