-- sketch.lua -- a program while it is drawn: its local tensors by name, and the names that lines may take.
local flow = require "flow"
local count = require("tests.reference").count
local parts = require "tests.programs.parts"
local elementwise_arity = require("tests.programs.catalog").elementwise_arity

local random = math.random
local queued = os.getenv "FLOW_ENGINE" == "queued"
local pick, chance, plain, random_sbp, whole_value, names_in = parts.pick, parts.chance, parts.plain, parts.random_sbp, parts.whole_value, parts.names_in
local call_line, floats, all_dtypes = parts.call_line, parts.floats, parts.all_dtypes

local Draw = {}
Draw.__index = Draw

function Draw:new_name()
    self.names = self.names + 1
    return "t" .. self.names
end

function Draw:add_node(name, place, roots)
    self.pool[#self.pool + 1] = name
    self.place[name], self.roots[name] = place, roots
end

function Draw:tensor(name) return self.env[name] end

function Draw:input(spec)
    local name = self:new_name()
    spec.seed = random(1 << 40)
    spec.layout = pick {false, false, "transposed", "strided", "offset"} or nil
    spec.place = spec.place or random(#self.list)
    spec.sbp = random_sbp(self.list[spec.place], #spec.shape, spec.dtype, spec.kind ~= "odd")
    spec.exchanged = chance(15) or nil
    spec.grad = self.gradients and floats[spec.dtype] and chance(85) or nil
    local t = whole_value(spec)
    if spec.grad then t = t:clone():requires_grad_() end
    self.env[name] = t
    self.program.inputs[#self.program.inputs + 1] = {name = name, spec = spec}
    self:add_node(name, spec.place, {[name] = true})
    return name
end

-- Errors of some elements alone.
local function of_an_element(message)
    for _, text in ipairs {"division by zero", "negative integer powers", " is %-?%d+, but ", "probability %S+ is not between",
        "^[^:]*:%d+: binomial: a count must", "^[^:]*:%d+: poisson: a rate must", "^[^:]*:%d+: standard_gamma: ", "^[^:]*:%d+: multinomial: ",
        "matrix %d+ of the batch ", ": the matrix [dhi]%l+ ",
        "%(element %d+ of the index%) is out of range", ": position %-?%d+ is out of range for axis %d of size "} do
        if message:find(text) then return true end
    end
    return false
end

-- Ends the program with a line that an element makes fail. An op that goes on after that, as a loss does, leaves the other
-- ranks in a collective: it is given whole tensors, that all ranks of its placement fail together.
function Draw:fail(line)
    if self.broken or not chance(25) then return end
    line.results[1] = self:new_name()
    if not elementwise_arity[line.op] then
        for _, name in ipairs(names_in(line.text)) do
            local all = {}
            for k = 1, #self.list[line.place].hierarchy do all[k] = "B" end
            local moved = self:emit(("move(%s, %d, %s)"):format(name, line.place, plain(all)), line.place, {op = "to_global"})
            if not moved then return end
            line.text = line.text:gsub("%f[%w_]" .. name .. "%f[^%w_]", moved[1])
        end
        line.chunk = nil
    end
    self.broken, line.of_an_element = true, true
    self.program.lines[#self.program.lines + 1] = line
end

-- Adds a line if it runs, sometimes if it does not. Returns the names of its results.
-- `known`: op = name for the coverage, statement, writes = names that it changes and that are compared after it, touched =
-- names that it may change, fresh = its results share no memory.
function Draw:emit(text, place, known)
    if self.broken or #self.program.lines >= 28 then return end
    local line = {text = text, op = known.op, statement = known.statement, writes = known.writes, touched = known.touched,
        seed = random(1 << 40), results = {}, place = place}
    local ok, results = call_line(line, self.env, true)
    if not ok then
        if known.statement or queued then return end
        if of_an_element(results) then return self:fail(line) end
        if not chance(12) then return end
        line.results[1] = self:new_name()
        self.program.lines[#self.program.lines + 1] = line
        return
    end
    for _, t in ipairs(results) do
        if flow.is_tensor(t) and (t:numel() > 3000 or t.ndim > 6) then return end
        if self.gradients and flow.is_tensor(t) and floats[t.dtype] and t:numel() > 0 then
            local largest = t:detach():abs():max():item()
            if largest ~= largest or largest >= 200 then return end
        end
    end
    local roots = {}
    if not known.fresh then
        for _, name in ipairs(names_in(text)) do
            for root in pairs(self.roots[name] or {}) do roots[root] = true end
        end
    end
    if not known.statement then
        for i, t in ipairs(results) do
            local name = self:new_name()
            line.results[i] = name
            if flow.is_tensor(t) then
                self.env[name] = t
                if known.fresh then roots = {[name] = true} end
                self:add_node(name, place, roots)
            end
        end
    end
    self.program.lines[#self.program.lines + 1] = line
    return line.results
end

-- One of the tensors there are that fits, as a name.
function Draw:any(fits)
    for _ = 1, 6 do
        -- recent ones more often
        local i = chance(50) and #self.pool or random(#self.pool)
        local name = self.pool[i]
        if not fits or fits(self.env[name]) then return name end
    end
end

-- The same tensor on another placement.
function Draw:on(name, place)
    if not name or self.place[name] == place then return name end
    local t = self.env[name]
    local results = self:emit(("move(%s, %d, %s)"):format(name, place, plain(random_sbp(self.list[place], t.ndim, t.dtype, true))), place, {op = "to_global"})
    return results and results[1]
end

-- A tensor of the program in this shape and dtype, or nil.
function Draw:shaped(shape, dtype, place)
    local n = count(shape)
    local name = self:any(function(t) return t:numel() >= n and (floats[t.dtype] ~= nil) == (floats[dtype] ~= nil) and t.dtype ~= "bool" end)
    if not name or n == 0 then return end
    name = self:on(name, place)
    local t = name and self.env[name]
    if not t then return end
    if table.concat(t.shape, ",") ~= table.concat(shape, ",") then
        local text = name
        if t:numel() > n then text = ("%s:reshape(-1):narrow(0, %d, %d)"):format(name, random(0, t:numel() - n), n) end
        local results = self:emit(("%s:reshape(%s)"):format(text, plain(shape)), place, {op = "reshape"})
        if not results then return end
        name = results[1]
    end
    if self.env[name].dtype ~= dtype then
        local results = self:emit(("%s:to(%q)"):format(name, dtype), place, {op = "cast"})
        name = results and results[1]
    end
    return name
end

local small_sizes = {0, 1, 1, 2, 2, 3, 4, 5, 6, 7}

function Draw:random_shape(limit)
    local shape = {}
    for i = 1, random(0, limit or 3) do shape[i] = chance(8) and 0 or pick(small_sizes) end
    if self.gradients then for i, size in ipairs(shape) do shape[i] = math.max(size, 1) end end
    return shape
end

function Draw:fresh_input(shape, dtype, place)
    if not dtype then dtype = self.gradients and pick {"float64", "float64", "float64", "float32", "int64"} or pick(all_dtypes) end
    local kind = self.gradients and floats[dtype] and "normal" or chance(10) and "odd" or "grid"
    return self:input {shape = shape or self:random_shape(), dtype = dtype, kind = kind, place = place}
end

-- Indices into an axis of so many positions; a few are counted from the end where `negative`.
function Draw:indices(shape, size, place, negative)
    local low = negative and chance(30) and -size or 0
    return self:input {shape = shape, dtype = negative and "int64" or pick {"int64", "int64", "int32"}, kind = "index", low = low, high = size, place = place}
end

-- A key for x[key]: numbers, ranges, tensors of indices or a mask.
function Draw:key(name)
    local t, place, list = self.env[name], self.place[name], {}
    for axis = 0, random(t.ndim) - 1 do
        local size, kind = t:size(axis), random(6)
        if kind == 1 and size > 0 then list[#list + 1] = tostring(random(-size, size - 1))
        elseif kind <= 3 then
            local from = random(0, size)
            list[#list + 1] = ("{%d, %d}"):format(from, random(from, size))
        elseif kind == 4 then list[#list + 1] = ("{%d, %d, %d}"):format(0, size, random(3))
        elseif kind == 5 and size > 0 then list[#list + 1] = self:indices(chance(70) and {random(0, 4)} or {2, random(3)}, size, place, true)
        else list[#list + 1] = "{}" end
    end
    return "{" .. table.concat(list, ", ") .. "}"
end

-- The names of tensors that may share memory with this one.
function Draw:sharing(written)
    local list = {}
    for name, roots in pairs(self.roots) do
        for root in pairs(roots) do
            if self.roots[written][root] then
                list[#list + 1] = name
                break
            end
        end
    end
    table.sort(list)
    return list
end

-- Takes those away from the lines to come.
function Draw:forget(names, kept)
    local gone, pool = {}, {}
    for _, name in ipairs(names) do gone[name] = name ~= kept end
    for _, name in ipairs(self.pool) do
        if not gone[name] then pool[#pool + 1] = name end
    end
    self.pool = pool
end

return Draw
