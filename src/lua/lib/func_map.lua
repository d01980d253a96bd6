-- func_map.lua -- flow.func.vmap: a function of one item as a function of a batch of them; and the parameters of
-- several modules as one batch.
--
-- Ops have no rules for batches of other ops: the function is called once for each item, and its results are stacked.
-- So it may do whatever Lua can, and a batch takes as long as its items one after the other.

local flow = require "flow"
local check = require "flow.check"
local nested = require "flow.nested"

local M = {}

local function is_list(value) return check.is("list", value) end

-- An axis of x for items, from an entry of in_dims.
local function item_axis(who, x, axis)
    if math.type(axis) ~= "integer" or axis < -x.ndim or axis >= x.ndim then
        check.fail("%s: in_dims has axis %s for a tensor %s", who, tostring(axis), check.shape(x))
    end
    return axis % x.ndim
end

-- The argument's entry of in_dims for each tensor in it: list of {x, axis or nil}, in the order of `replaced`.
local function collect(who, value, dims, list, level)
    if check.is_tensor(value) then
        list[#list + 1] = {value, dims and item_axis(who, value, dims) or nil}
    elseif type(value) == "table" then
        local next_level = nested.deeper(level)
        for _, key in ipairs(check.sorted_keys(value)) do
            local entry = dims
            if type(dims) == "table" then entry = dims[key] end
            collect(who, value[key], entry, list, next_level)
        end
    end
    return list
end

local function size_of_batch(entries)
    local size
    for _, entry in ipairs(entries) do
        local x, axis = entry[1], entry[2]
        local here = axis and x:size(axis)
        if here and size and here ~= size then
            check.fail("vmap: the axes of the items have sizes %d and %d", size, here)
        end
        size = size or here
    end
    if not size then check.fail "vmap: in_dims names no axis of a tensor" end
    if size == 0 then check.fail "vmap: the batch is empty" end
    return size
end

-- Results of all items, of one structure, as one: tensors and numbers stacked along an axis.
local function stacked(results, axis, level)
    local first = results[1]
    if type(first) == "table" and not check.is_tensor(first) then
        local out, next_level = {}, nested.deeper(level)
        for _, key in ipairs(check.sorted_keys(first)) do
            local column, entry = {}, axis
            for i, result in ipairs(results) do column[i] = result[key] end
            if type(axis) == "table" then entry = axis[key] end
            out[key] = stacked(column, entry, next_level)
        end
        return out
    end
    local list = {}
    for i, y in ipairs(results) do
        if not check.is_tensor(y) and type(y) ~= "number" and type(y) ~= "boolean" then
            check.fail("vmap: the function must return tensors, numbers or tables of them, got %s", check.got(y))
        end
        list[i] = check.is_tensor(y) and y or flow.tensor(y)
    end
    return flow.stack(list, axis or 0)
end

-- Calls f for each item in turn; randomness: the relation of the items' random numbers.
local function each_item(size, randomness, run)
    local generator = flow.default_generator()
    local before = generator:state()
    for i = 0, size - 1 do
        if randomness == "same" then generator:load_state(before) end
        run(i)
        if i == 0 and randomness == "error" then
            local after = generator:state()
            for key, value in pairs(before) do
                if after[key] ~= value then
                    check.fail('vmap: the function draws random numbers; write randomness = "different" or "same"')
                end
            end
        end
    end
end

---A function that calls f for each item of a batch, one after the other, and stacks the results. An argument whose
---entry of in_dims is false is the same for all items.
---@param f function
---@param opts {in_dims: any, out_dims: any, randomness: string, chunk_size: integer} in_dims: the axis of the items, or
---a list of an axis or false for each argument, which may be a table of them; out_dims: the axis of the batch in the
---result, a list for several; randomness: "error", or random numbers "different" or "same" for all items
---@return function
function M.vmap(f, opts)
    local in_dims, out_dims = opts.in_dims, opts.out_dims
    return function(...)
        local args = table.pack(...)
        if is_list(in_dims) and #in_dims ~= args.n then
            check.fail("vmap: in_dims has %d entries for %d arguments", #in_dims, args.n)
        end
        local entries = {}
        for i = 1, args.n do
            local dims = in_dims
            if is_list(in_dims) then dims = in_dims[i] end
            collect("vmap", args[i], dims, entries, 0)
        end
        local results = {}
        each_item(size_of_batch(entries), opts.randomness, function(item)
            local at, own = 0, {n = args.n}
            local function next_item()
                at = at + 1
                local x, axis = entries[at][1], entries[at][2]
                return axis and x:select(axis, item) or x
            end
            for i = 1, args.n do own[i] = nested.replaced(args[i], next_item) end
            local found = table.pack(f(table.unpack(own, 1, args.n)))
            for i = 1, found.n do
                results[i] = results[i] or {}
                results[i][item + 1] = found[i]
            end
        end)
        for i, list in ipairs(results) do
            local axis = out_dims
            if is_list(out_dims) then axis = out_dims[i] end
            results[i] = stacked(list, axis, 0)
        end
        return table.unpack(results)
    end
end

---The parameters and the buffers of modules of one kind, by name, each stacked to one tensor whose first axis counts
---the modules: two tables, for vmap over functional_call.
---@param nets flow.nn.Module[]
---@return table<string, any>, table<string, any>
function M.stack_module_state(nets)
    if #nets == 0 then check.fail "func.stack_module_state: takes at least one module" end
    for i, net in ipairs(nets) do
        if not check.is("module", net) then
            check.fail("func.stack_module_state: entry %d must be a module, got %s", i, check.got(net))
        end
    end
    local function stacks(method, requires_grad)
        local names, columns, out = {}, {}, {}
        for i, net in ipairs(nets) do
            for name, t in net[method](net) do
                if not columns[name] then names[#names + 1], columns[name] = name, {} end
                columns[name][i] = t:detach()
            end
        end
        for _, name in ipairs(names) do        -- in the modules' order, on every rank
            local list = columns[name]
            if #list ~= #nets then check.fail("func.stack_module_state: not all modules have %s", check.quote(name)) end
            out[name] = flow.stack(list, 0)
            if requires_grad then out[name]:requires_grad_() end
        end
        return out
    end
    return stacks("named_parameters", true), stacks("named_buffers", false)
end

check.takes(M, {
    [[vmap(f: function, {in_dims: integer or table = 0, out_dims: integer or table = 0,
        randomness: error|different|same = error, chunk_size: integer >= 1?})]],
    "func.stack_module_state(nets: list)",
})

return M
