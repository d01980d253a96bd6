-- catalog.lua -- the ops of the registry that lines of programs are made of.
local flow = require "flow"
local parts = require "tests.programs.parts"

local ops, sample_arguments = parts.ops, parts.sample_arguments

-- writes.lua draws the others: empty tensors and steps of optimizers.
local function is_usable(op) return not op.name:find "^empty" and not op.name:find "_step$" and #op.samples > 0 end

local usable, elementwise = {}, {}
local elementwise_arity = {}

for _, op in ipairs(ops) do
    if is_usable(op) then
        usable[#usable + 1] = op
        if op.elementwise and not op.hidden and not op.mutates then
            elementwise[#elementwise + 1] = op
            elementwise_arity[op.name] = #sample_arguments(op.name, 1).tensors
        end
    end
end

local function callee(op)
    if op.name:find(".", 1, true) then return "flow." .. op.name end
    if not op.hidden and flow.has(op.name) and type(flow[op.name]) == "function" then return "flow." .. op.name end
    return "op." .. op.name
end

return {
    usable = usable,                       -- ops with samples
    elementwise = elementwise,             -- of these, elementwise ones that only read
    elementwise_arity = elementwise_arity, -- number of tensors that one takes, by its name
    callee = callee,                       -- the text that names an op in a line
}
