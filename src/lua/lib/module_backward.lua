-- module_backward.lua -- hooks of modules that see gradients: they lie around forward as two functions of the tape that
-- compute nothing.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- A function that gives tensors back as they are, and in backward calls `seen` with the list of their gradients (nil
-- where there is none); its result replaces them.
local function watched(seen)
    return flow.autograd_function(function(_, ...)
        local out = table.pack(...)
        for i = 1, out.n do out[i] = out[i]:view(out[i].shape) end
        return table.unpack(out, 1, out.n)
    end, function(_, ...)
        local gradients = table.pack(...)
        local instead = seen(gradients)
        gradients = instead or gradients
        return table.unpack(gradients, 1, instead and #instead or gradients.n)
    end, {name = "backward hook"})
end

-- The values with their float tensors as the function gives them.
local function through(f, values)
    local tensors, places = {}, {}
    for i = 1, values.n do
        if check.is_tensor(values[i]) and values[i].dtype:find "float" then
            tensors[#tensors + 1], places[#places + 1] = values[i], i
        end
    end
    if #tensors == 0 then return values end
    local found = table.pack(f(table.unpack(tensors)))
    local out = table.move(values, 1, values.n, 1, {n = values.n})
    for i, place in ipairs(places) do out[place] = found[i] end
    return out
end

-- The list of gradients after hooks have changed it, in turn.
local function replaced(hooks, module, gradients, others)
    local instead
    for _, hook in ipairs({table.unpack(hooks)}) do
        local given = hook.call(module, instead or gradients, others)
        if given ~= nil then instead = check.is_tensor(given) and {given} or given end
    end
    return instead
end

---Calls run with the arguments, and the hooks of `hooks` in backward: those of backward_pre with the gradients of the
---results, those of backward with the gradients of the arguments and of the results.
---@param module flow.nn.Module
---@param hooks {backward: table, backward_pre: table}
---@param args table packed
---@param run fun(...): any
---@return table results packed
function M.around(module, hooks, args, run)
    local of_results
    local any = false
    for i = 1, args.n do any = any or check.is_tensor(args[i]) and args[i].requires_grad end
    if any and #hooks.backward > 0 then
        args = through(watched(function(gradients)
            return replaced(hooks.backward, module, gradients, of_results or {})
        end), args)
    end
    local results = table.pack(run(table.unpack(args, 1, args.n)))
    return through(watched(function(gradients)
        local instead = replaced(hooks.backward_pre, module, gradients)
        of_results = instead or gradients
        if not any then replaced(hooks.backward, module, {n = 0}, of_results) end
        return instead
    end), results)
end

return M
