-- hooks.lua -- functions that modules and optimizers call at certain times: lists of them, and the handles that take
-- them away again.

local check = require "flow.check"

local M = {}

-- The result of register_forward_hook and its kin.
local Handle = {}

---The hook is called no more.
function Handle:remove()
    local list = self.list
    for i = list and #list or 0, 1, -1 do
        if list[i] == self then table.remove(list, i) end
    end
    if list and self.changed then self.changed() end
    self.list = false
end

local handle_meta = {__name = "a hook's handle", __index = check.strict("a hook's handle", Handle)}
handle_meta.__close = Handle.remove -- local _ <close> = net:register_forward_hook(f)
check.methods(Handle, "handle", {"remove()"}, function(value) return getmetatable(value) == handle_meta end)

---Adds f to a list and returns its handle, which is the list's entry, with f in `call`.
---@param list table[]
---@param f function
---@param changed function? called when the hook is removed
---@param first boolean? before the hooks that the list has
---@return table handle
function M.add(list, f, changed, first)
    local handle = setmetatable({call = f, list = list, changed = changed or false}, handle_meta)
    table.insert(list, first and 1 or #list + 1, handle)
    return handle
end

local none = {}

---The hooks of a list, as they are now: one may remove itself or others while they are called.
---@param list table[]?
---@return table[]
function M.each(list) return list and #list > 0 and {table.unpack(list)} or none end

return M
