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
        if t:dim() == 0 then check.fail("tensors: argument %d has no axis of rows, its shape is []", i) end
        if t:size(0) ~= self.tensors[1]:size(0) then
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

-- Tensors of which item i is row i, for who reads them in place; nil: `batch` is another one.
function Tensors:_columns() return self.batch == Tensors.batch and self.tensors or nil end

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

-- ---- items that a function makes ----

---@class flow.data.Generated
local Generated = {}
Generated.__index = Generated

---A dataset of `count` items that a function makes: f(position, random, ...) gives an item, a table of arrays
---(require "flow.array"), numbers, strings and booleans. A loader runs it in its workers. Random numbers from `random`
---depend on the loader's seed, the epoch and the position alone. args: further arguments after `random`.
---@param count integer
---@param f fun(position: integer, random: any, ...): table
---@param opts {args: list}?
function sets.generate(count, f, opts)
    if type(f) ~= "function" then check.fail("generate: f must be a Lua function, got %s", check.got(f)) end
    local crew = flow._io.crew {generate = f, generate_args = opts.args, workers = 0}
    return setmetatable({count = count, crew = crew, _generated = {f, opts.args}}, Generated)
end

function Generated:__len() return self.count end

---One item, its arrays as tensors.
function Generated:get(position, pass)
    if position >= self.count then check.fail("get: there is no item %d; the dataset has %d", position, self.count) end
    local job = flow._io.make(self.crew, {position}, {}, nil, pass or {seed = 0, epoch = 0}, false, false)
    local errors, _, items = job:take()
    if errors[1] then error(errors[1].message, 0) end
    return items[1]
end

---Random numbers of one item, for datasets: they depend on pass.seed, pass.epoch and the position alone. random(),
---random(n) and random(a, b) are those of math.random; random:uniform(a, b), random:normal(mean, std).
---@param pass {seed: integer, epoch: integer}
---@param position integer
function sets.random(pass, position)
    local seed = check.integer("random", "pass.seed", pass.seed, math.mininteger)
    return flow._io.random(seed, check.integer("random", "pass.epoch", pass.epoch, 0), position)
end

check.takes(sets, {
    "tensors(...: tensor)", "windows(tokens: tensor, length: integer >= 1, {stride: integer >= 1 = 1})",
    "generate(count: integer >= 0, f: function, {args: list?})", "random(pass: list, position: integer >= 0)",
})
check.methods(Tensors, "dataset", {"batch(positions: positions, pass: table?)"})
check.methods(Windows, "dataset", {"batch(positions: positions, pass: table?)"})
check.methods(Generated, "dataset", {"get(position: integer >= 0, pass: list?)"})
check.strict("Generated", Generated, "; write dataset:get(position)")
check.strict("Tensors", Tensors, "; write dataset:batch(positions)")
check.strict("Windows", Windows, "; write dataset:batch(positions)")
return sets
