-- draw.lua -- draws a random program by running it on local tensors, so that most of its lines fit the tensors there are.
--
-- Lines come from the registry (reads.lua): the samples of every op, with other sizes, dtypes, layouts and tensors of the
-- program in place of the sample's own, and elementwise ops of what there is; views, indexing, boxing and writing (writes.lua)
-- are drawn there.
local parts = require "tests.programs.parts"
local Draw = require "tests.programs.sketch"
local reads = require "tests.programs.reads"
local writes = require "tests.programs.writes"

local random = math.random
local pick, chance, places, local_environment = parts.pick, parts.chance, parts.places, parts.local_environment

local weights = {sample = 30, elementwise = 15, view = 16, reduce = 12, index = 12, write = 10, move = 14, cast = 4, join = 5, product = 5, step = 4, empty = 2}
local wheel = {}
for _, name in ipairs {"sample", "elementwise", "view", "reduce", "index", "write", "move", "cast", "join", "product", "step", "empty"} do
    for _ = 1, weights[name] do wheel[#wheel + 1] = reads[name] or writes[name] end
end

-- Program `number` of a seed.
local function draw_program(seed, number)
    local list = places(seed)
    math.randomseed(seed, number)
    local program = {seed = seed, number = number, inputs = {}, lines = {}, list = list}
    local d = setmetatable({program = program, list = list, env = local_environment(), pool = {}, place = {}, roots = {}, names = 0}, Draw)
    d.gradients = chance(35)
    program.gradients = d.gradients
    program.twice = d.gradients and chance(25)
    for _ = 1, random(2) do d:fresh_input() end
    for _ = 1, random(10) do pick(wheel)(d) end
    return program
end

return draw_program
