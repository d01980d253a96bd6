-- data_folder.lua -- folders of images: a class for each folder in them.

local files = require "flow.data_files"

local M = {}

---The files below a folder, those of each folder in it apart, in sorted order. Folders without files of these
---extensions are no classes; `left_out` files have others.
---@param who string what errors begin with
---@param folder string
---@param extensions string[]
---@return table<string, string[]> by_class paths below `folder`
---@return string[] classes sorted
---@return string[] plain files in the folder itself
---@return integer left_out
function M.sort(who, folder, extensions)
    local known, by_class, classes, plain, left_out = {}, {}, {}, {}, 0
    for _, extension in ipairs(extensions) do known[extension:lower():gsub("^%.", "")] = true end
    for _, path in ipairs(files._below(who, folder)) do
        local class = path:match("^([^/]+)/")
        if not known[(path:match("%.([^./]+)$") or ""):lower()] then
            left_out = left_out + 1
        elseif class then
            if not by_class[class] then by_class[class], classes[#classes + 1] = {}, class end
            table.insert(by_class[class], path)
        else
            plain[#plain + 1] = path
        end
    end
    table.sort(classes)
    return by_class, classes, plain, left_out
end

return M
