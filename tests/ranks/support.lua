-- support.lua -- what the multi-rank specs share: placements, an oracle in plain Lua for what each rank holds, and a way to
-- show the other ranks something that does not go through the transport.
--
-- The oracle: a `whole` is a tensor as a list of integers; a `part` is what one rank holds of it under an nd-SBP. Partial
-- parts are made of numbers that depend on the rank's coordinates on the partial axes and on the element, differ in sign
-- and give the value when they are put together; every number is small enough to be exact in every dtype.
local flow = require "flow"
local hash = require("tests.reference").hash
local support = require "tests.support"
local testing = flow._testing

local M = {}

M.rank, M.world = flow.rank(), flow.world_size()
M.all = support.all

---- numbers ----

-- The same sequence on every rank: below(n) gives 0 to n - 1, pick(list) one of a list.
function M.random(seed)
    local state = hash(seed, 77)
    local r = {}
    function r.below(n)
        state = hash(state, n)
        return state % n
    end
    function r.pick(list) return list[r.below(#list) + 1] end
    return r
end

---- placements ----

-- A placement of nested lists of ranks, with what the oracle needs: its ranks in order and its hierarchy.
function M.place(ranks)
    local place = {value = flow.placement("cpu", ranks), hierarchy = {}, order = {}}
    place.hierarchy = place.value.hierarchy
    local function walk(list)
        for _, entry in ipairs(list) do
            if type(entry) == "table" then walk(entry) else place.order[#place.order + 1] = entry end
        end
    end
    walk(ranks)
    place.position = {}
    for i, rank in ipairs(place.order) do place.position[rank] = i - 1 end
    return place
end

-- Coordinates of a position in the hierarchy, from 0.
function M.coords(place, position)
    local list = {}
    for k = #place.hierarchy, 1, -1 do
        list[k] = position % place.hierarchy[k]
        position = position // place.hierarchy[k]
    end
    return list
end

local rank_lists = {
    {{0}, {{0}}, {{{0}}}},
    {{0, 1}, {1, 0}, {0}, {1}, {{0, 1}}, {{1}, {0}}, {{{0}}, {{1}}}, {{1}}},
    {{0, 1, 2}, {2, 0, 1}, {0, 2}, {1}, {2, 1}, {{0, 1, 2}}, {{2}, {0}, {1}}, {{{1}, {0}, {2}}}, {{2, 0}}},
    {{0, 1, 2, 3}, {3, 1, 0, 2}, {{0, 1}, {2, 3}}, {{2, 0}, {3, 1}}, {{0, 1, 2, 3}}, {{3}, {1}, {0}, {2}},
        {{{0, 1}, {2, 3}}}, {{{0}, {1}}, {{3}, {2}}}, {{{0, 1}}, {{2, 3}}}, {0, 2}, {1, 3}, {1, 2, 3}, {3, 0, 1}, {2},
        {{1}, {3}}, {{0, 3}}, {{3, 0, 1}}},
}

-- The same of worlds that have no list of their own: all, backwards, two rows, every second one.
local function general_lists()
    local all, backwards, rows, some = {}, {}, {{}, {}}, {}
    for r = 0, M.world - 1 do
        all[r + 1], backwards[M.world - r] = r, r
        if r < M.world // 2 * 2 then table.insert(rows[r % 2 + 1], r) end
        if r % 2 == 0 then table.insert(some, r) end
    end
    return {all, backwards, rows, some}
end

-- Placements of a world of so many ranks: orders, hierarchies, some of the ranks.
function M.placements()
    local list = {}
    for i, ranks in ipairs(rank_lists[M.world] or general_lists()) do list[i] = M.place(ranks) end
    return list
end

-- Every nd-SBP (lists of texts) of a tensor of so many axes on a placement.
function M.nd_sbps(place, ndim, dtype)
    local kinds = {"B", "P(max)", "P(min)"}
    if dtype ~= "bool" then kinds[#kinds + 1] = "P" end
    for axis = 0, ndim - 1 do kinds[#kinds + 1] = ("S(%d)"):format(axis) end
    local list = {{}}
    for _ = 1, #place.hierarchy do
        local longer = {}
        for _, prefix in ipairs(list) do
            for _, kind in ipairs(kinds) do
                local nd_sbp = {table.unpack(prefix)}
                nd_sbp[#nd_sbp + 1] = kind
                longer[#longer + 1] = nd_sbp
            end
        end
        list = longer
    end
    return list
end

function M.has_partial(nd_sbp) return table.concat(nd_sbp):find("P", 1, true) ~= nil end

---- the oracle ----

local lowest = {bool = 0, uint8 = 0, int8 = -128}
local highest = {bool = 1, uint8 = 255, int8 = 127}

M.dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

local function wrap(v, dtype)
    if dtype == "uint8" then return v & 255 end
    if dtype == "int8" then return ((v + 128) & 255) - 128 end
    return v
end

local function clamp(v, dtype)
    return math.max(lowest[dtype] or v, math.min(highest[dtype] or v, v))
end

-- A tensor of small integers: {shape, dtype, values, seed}.
function M.whole(shape, dtype, seed)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    local low = lowest[dtype] or -20
    local span = (highest[dtype] or 20) - low + 1
    local values = {}
    for i = 1, n do values[i] = low + hash(seed, i, 5) % span end
    return {shape = shape, dtype = dtype, values = values, seed = seed}
end

M.split = support.split

-- One rank's number of a partial element with value v; `path`: the coordinates of the partial axes so far.
local function partial(kind, v, dtype, coord, parts, path, element)
    if kind == "P" then
        if coord < parts - 1 then return hash(path, element, coord) % 19 - 9 end
        for c = 0, parts - 2 do v = v - (hash(path, element, c) % 19 - 9) end
        return v
    end
    if hash(path, element, 91) % parts == coord then return v end
    local distance = hash(path, element, coord, 92) % 9 + 1
    return clamp(kind == "P(max)" and v - distance or v + distance, dtype)
end

-- The part of the rank at `position`: {start, size, ids, values}; ids count the elements of the whole.
function M.part(whole, place, nd_sbp, position)
    local coords = M.coords(place, position)
    local ndim = #whole.shape
    local start, size = {}, {}
    for i = 1, ndim do start[i], size[i] = 0, whole.shape[i] end
    for k, sbp in ipairs(nd_sbp) do
        local axis = sbp:match "^S%((%d+)%)$"
        if axis then
            local i = tonumber(axis) + 1
            local from, n = M.split(size[i], place.hierarchy[k], coords[k])
            start[i], size[i] = start[i] + from, n
        end
    end
    local part = {start = start, size = size, ids = {}, values = {}}
    local function walk(i, id)
        if i > ndim then
            local v, path = whole.values[id + 1], whole.seed
            for k, sbp in ipairs(nd_sbp) do
                if sbp:sub(1, 1) == "P" and place.hierarchy[k] > 1 then
                    v = wrap(partial(sbp, v, whole.dtype, coords[k], place.hierarchy[k], hash(path, k), id), whole.dtype)
                    path = hash(path, k, coords[k])
                end
            end
            part.ids[#part.ids + 1], part.values[#part.values + 1] = id, v
            return
        end
        for x = start[i], start[i] + size[i] - 1 do walk(i + 1, id * whole.shape[i] + x) end
    end
    walk(1, 0)
    return part
end

-- A part as a local tensor.
function M.local_tensor(part, dtype)
    if #part.values == 0 then return flow.zeros(part.size, {dtype = dtype}) end
    return flow.tensor(part.values, {dtype = "float64"}):to(dtype):reshape(part.size)
end

-- The whole as a global tensor, of which every rank makes its own part: nothing is communicated.
function M.global(whole, place, nd_sbp, strided)
    local position = place.position[M.rank]
    local mine = position and M.local_tensor(M.part(whole, place, nd_sbp, position), whole.dtype)
        or flow.zeros(0, {dtype = whole.dtype})
    if strided and mine.ndim > 0 then mine = flow.stack({mine, mine}, mine.ndim):select(-1, 1) end
    return testing.from_part(mine, whole.shape, place.value, nd_sbp)
end

-- Flat list of numbers of this rank's part; booleans as 0 and 1.
function M.values(t)
    if t.is_global then t = t:to_local() end
    return t:to("float64"):contiguous():view(-1):totable()
end

local function combine(kind, a, b, dtype)
    if kind == "P(max)" then return math.max(a, b) end
    if kind == "P(min)" then return math.min(a, b) end
    return wrap(a + b, dtype)
end

-- The whole's values from the numbers that all ranks hold (lists by position); nil and a message where replicas differ.
function M.join(whole, place, nd_sbp, held)
    local trouble
    local function joined(k, position)
        if k > #place.hierarchy then
            local map, part = {}, M.part(whole, place, nd_sbp, position)
            for i, id in ipairs(part.ids) do map[id] = held[position + 1][i] end
            return map
        end
        local kind, result = nd_sbp[k], nil
        for c = 0, place.hierarchy[k] - 1 do
            local map = joined(k + 1, position * place.hierarchy[k] + c)
            if not result then result = map
            else
                for id, v in pairs(map) do
                    if result[id] == nil or kind:find "^S" then result[id] = v
                    elseif kind == "B" then
                        if result[id] ~= v then trouble = ("replicas of element %d differ: %s and %s"):format(id, result[id], v) end
                    else result[id] = combine(kind, result[id], v, whole.dtype) end
                end
            end
        end
        return result
    end
    local map, values = joined(1, 0), {}
    for i = 1, #whole.values do values[i] = map[i - 1] end
    return values, trouble
end

---- the other ranks ----

local folder, shared = os.getenv "RANKS_FOLDER", 0

local function number_text(v)
    if v ~= v then return "0/0" end
    if v == math.huge or v == -math.huge then return v > 0 and "1e999" or "-1e999" end
    return ("%.17g"):format(v)
end

-- Lists of numbers of every rank, by rank from 1: through files, so that what is tested is not what tells.
function M.share(lists)
    shared = shared + 1
    local name = ("%s/share.%d."):format(folder, shared)
    local file = assert(io.open(name .. M.rank, "w"))
    for _, list in ipairs(lists) do
        for i, v in ipairs(list) do file:write(i > 1 and "," or "", number_text(v)) end
        file:write "\n"
    end
    file:close()
    flow.barrier()
    local all = {}
    for r = 0, M.world - 1 do
        all[r + 1] = {}
        for line in io.lines(name .. r) do table.insert(all[r + 1], assert(load("return {" .. line .. "}"))()) end
    end
    return all
end

---- comparing ----

function M.same_numbers(want, got)
    if #want ~= #got then return false end
    for i = 1, #want do
        if want[i] ~= got[i] and (want[i] == want[i] or got[i] == got[i]) then return false end
    end
    return true
end

function M.list_text(list) return "{" .. table.concat(list, ", ") .. "}" end

M.shape_text = support.shape_text

-- Complaints of many cases, raised together: add(text) and check() at the end, so that one wrong value on one rank does not
-- leave the others alone.
function M.complaints()
    local list = {}
    local c = {}
    function c.add(...) list[#list + 1] = string.format(...) end
    function c.check(total)
        if #list == 0 then return end
        local shown = table.concat(list, "\n", 1, math.min(#list, 4))
        error(("%d of %d cases are wrong:\n%s"):format(#list, total, shown), 0)
    end
    return c
end

return M
