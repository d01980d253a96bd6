-- function.lua -- flow.autograd_function: a forward and a backward in Lua as one function with a gradient.

local flow = require "flow"
local check = require "flow.check"

local tape, is_tensor = flow._function, flow.is_tensor

local M = {}

local MOST_RESULTS = 4

-- ---- contexts ----

---Carries values from forward to backward: tensors by ctx:save(...), anything else as fields.
---@class flow.Context
local Context = {__name = "a ctx"}
Context.__index = Context

-- The tensors that forward saves, false once it has ended: no field, so that a script's fields may have any name.
local kept = setmetatable({}, {__mode = "k"})

---Keeps tensors for backward, which finds them in ctx.saved. One call, with all of them.
function Context:save(...)
    local list = kept[self]
    if list == nil then check.fail("save: a method is called with a colon, ctx:save(...)") end
    if not list then check.fail("save: forward saves; backward finds it in ctx.saved") end
    if list.n then check.fail("save: called before; write one ctx:save(...) with all tensors") end
    list.n = select("#", ...)
    for i = 1, list.n do
        list[i] = check.tensor("save", "argument " .. i, (select(i, ...)))
    end
end

-- A tensor in a field would be kept alive by what keeps itself alive; some fields are ours.
local function check_fields(who, ctx)
    for _, key in ipairs {"save", "saved", "needs"} do
        if rawget(ctx, key) ~= nil then
            check.fail("%s: ctx.%s is not for forward to set; keep tensors with ctx:save(...)", who, key)
        end
    end
    for key, value in pairs(ctx) do
        if is_tensor(value) then
            check.fail("%s: ctx.%s is a tensor; keep it with ctx:save(...), for backward in ctx.saved", who,
                tostring(key))
        end
    end
end

-- ---- calls ----

-- Tensors among the arguments that may have a gradient, their positions, and how often each was written.
local function differentiable(args)
    local inputs, places, versions, any = {}, {}, {}, false
    for i = 1, args.n do
        local x = args[i]
        if is_tensor(x) and x.dtype:find "float" then
            inputs[#inputs + 1], places[#places + 1] = x, i
            versions[#versions + 1] = tape.version(x)
            any = any or x.requires_grad
        end
    end
    return inputs, places, versions, any
end

local function check_results(who, results)
    if results.n == 0 or results.n > MOST_RESULTS then
        check.fail("%s: forward must return 1 to %d tensors, got %d values", who, MOST_RESULTS, results.n)
    end
    for i = 1, results.n do
        if not is_tensor(results[i]) then
            check.fail("%s: forward must return tensors, result %d is %s", who, i, check.got(results[i]))
        end
    end
end

local function check_inputs(who, inputs, places, versions)
    for i, x in ipairs(inputs) do
        if tape.version(x) ~= versions[i] then
            check.fail("%s: forward changed argument %d in place; let it work on a clone()", who, places[i])
        end
    end
end

-- Arguments after the last gradient that backward returned must not need one: a gradient that is forgotten is no nil.
local function check_count(given, wanted)
    local count = #wanted
    if given == 0 then
        check.fail("it returned nothing; it must return a gradient for each argument of forward, nil for none")
    elseif given > count then
        check.fail("it must return a gradient for each of the %d argument%s of forward, got %d", count,
            count == 1 and "" or "s", given)
    end
    for i = given + 1, count do
        if wanted[i] then
            check.fail("it must return a gradient for each argument of forward, nil for none; it returned %d, argument "
                .. "%d needs one", given, i)
        end
    end
end

-- The function that the tape calls with the gradients of the results; it returns those of the tensor arguments.
local function backward_of(def, ctx, count, places)
    return function(gradients, saved, needs)
        rawset(ctx, "saved", saved)
        local wanted = {}
        for i = 1, count do wanted[i] = false end
        for i, place in ipairs(places) do wanted[place] = needs[i] end
        rawset(ctx, "needs", wanted)
        local given = table.pack(def.backward(ctx, table.unpack(gradients)))
        ctx.saved = nil
        check_count(given.n, wanted)
        local list = {}
        for i, place in ipairs(places) do list[i] = given[place] end
        return list
    end
end

local function call(def, ...)
    local args, ctx = table.pack(...), setmetatable({}, Context)
    local saved = {}
    kept[ctx] = saved
    local recording = flow.is_grad_enabled()
    if recording and tape.is_traced() then
        check.fail("%s: a program keeps ops, and no backward in Lua; call it inside flow.no_grad(), or make an op " ..
            "of it with flow.op", def.name)
    end
    local inputs, places, versions, any = differentiable(args)
    local results = table.pack(flow.no_grad(def.forward, ctx, ...))
    check_results(def.name, results)
    check_inputs(def.name, inputs, places, versions)
    if not (recording and any) then return table.unpack(results, 1, results.n) end
    check_fields(def.name, ctx)
    kept[ctx] = false
    return tape.record(def.name, inputs, results, saved, backward_of(def, ctx, args.n, places))
end

---A function of tensors with a gradient of its own: flow.autograd_function{forward = f, backward = b}.
---forward(ctx, ...) returns its results and is not recorded; backward(ctx, gradients of the results...) returns the
---gradient of each argument of forward, nil for none. ctx:save(x, y) in forward keeps tensors, ctx.saved holds them in
---backward, where ctx.needs[i] is true if argument i needs a gradient; other fields of ctx are the script's.
---Gradients of gradients flow through backward where that is made of ops.
---@param forward function
---@param backward function
---@param opts {name: string}? what messages call it
---@return function
function M.autograd_function(forward, backward, opts)
    local def = {forward = forward, backward = backward, name = opts.name}
    return function(...) return call(def, ...) end
end

check.takes(M, {
    "autograd_function(forward: function, backward: function, {name: string = autograd_function})",
})

return M
