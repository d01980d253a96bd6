-- data_sets.lua -- datasets of tensors.
--
-- A dataset has a size (`#dataset`) and gives a list of tensors for a tensor of positions (`dataset:batch(positions)`).
-- These here compute it at once, and draw nothing at random (`_at_once`).

local flow = require "flow"
local check = require "flow.check"

local sets = {}

---@class flow.data.Tensors
local Tensors = {}
Tensors.__index = Tensors
Tensors._at_once = true

---Rows of tensors of equal length: data.tensors(images, labels).
function sets.tensors(...)
    local self = setmetatable({tensors = {...}}, Tensors)
    if #self.tensors == 0 then check.fail("tensors: takes one tensor or more") end
    for i, t in ipairs(self.tensors) do
        if t:dim() == 0 or t:size(0) ~= self.tensors[1]:size(0) then
            check.fail("tensors: argument %d has shape %s, the first one %s", i, check.shape(t),
                check.shape(self.tensors[1]))
        end
    end
    return self
end

function Tensors:__len() return self.tensors[1]:size(0) end

function Tensors:batch(positions)
    local result = {}
    for i, t in ipairs(self.tensors) do result[i] = t:index_select(0, positions:to(t.device)) end
    return result
end

---@class flow.data.Windows
local Windows = {}
Windows.__index = Windows
Windows._at_once = true

---All pieces of `length` numbers of a 1-d tensor, each with the piece shifted by one: batches are
---{inputs [batch, length], targets [batch, length]}, int64.
---@param tokens any
---@param length integer
---@param opts {stride: integer}? distance between the beginnings of pieces, default 1
function sets.windows(tokens, length, opts)
    if tokens:dim() ~= 1 or tokens:size(0) <= length then
        check.fail("windows: tokens of shape %s are too few for a window of %d and the number after it",
            check.shape(tokens), length)
    end
    local offsets = flow.arange(length + 1, {device = tokens.device})
    return setmetatable({tokens = tokens, length = length, stride = opts.stride, offsets = offsets}, Windows)
end

function Windows:__len() return (self.tokens:size(0) - self.length - 1) // self.stride + 1 end

function Windows:batch(positions)
    local places = (positions:to(self.tokens.device) * self.stride):unsqueeze(1) + self.offsets
    local pieces = self.tokens:index_select(0, places:flatten()):to("int64"):view(-1, self.length + 1)
    return {pieces:narrow(1, 0, self.length), pieces:narrow(1, 1, self.length)}
end

check.define_type("positions", "a 1-D local tensor of whole numbers", function(value)
    return check.is_tensor(value) and value.ndim == 1 and not value.is_global and value.dtype:find("int") ~= nil
end)
check.takes(sets, {
    "tensors(...: tensor)", "windows(tokens: tensor, length: integer >= 1, {stride: integer >= 1 = 1})",
})
check.methods(Tensors, "dataset", {"batch(positions: positions, pass: table?)"})
check.methods(Windows, "dataset", {"batch(positions: positions, pass: table?)"})
check.strict("Tensors", Tensors, "; write dataset:batch(positions)")
check.strict("Windows", Windows, "; write dataset:batch(positions)")
return sets
