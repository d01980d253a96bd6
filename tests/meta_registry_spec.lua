-- meta_registry_spec.lua -- every registered op on the meta device, by its own samples: results, gradients and SBPs are
-- those of the CPU, or the op looks at data and says so. A new op is tested by being registered.
local flow = require "flow"
local support = require "tests.support"
local testing = flow._testing

local ops = support.ops()
for _, op in ipairs(ops) do op.mutates = op.mutates or op.name:sub(-1) == "_" end

local function has_mask(args)
    for i = 2, args.n do
        if flow.is_tensor(args[i]) and args[i].dtype == "bool" then return true end
        for _, t in ipairs(type(args[i]) == "table" and args[i] or {}) do
            if flow.is_tensor(t) and t.dtype == "bool" then return true end
        end
    end
    return false
end

-- The ops whose results depend on data: an error is all that the meta device has of them. One value for all elements
-- of a mask depends on none.
local function always() return true end
local readers = {
    nonzero = always, masked_select = always, index = has_mask, bincount = always,
    unique = function(args) return args[1]:numel() > 0 end, unique_consecutive = always,
    repeat_interleave = function(args) return flow.is_tensor(args[2]) and args[4] == nil end,
    index_put_ = function(args) return has_mask(args) and flow.is_tensor(args[3]) end,
}
local function looks_at_data(op, args) return readers[op.name] and readers[op.name](args) end

local map_tensors = support.map_tensors

local function each_sample(f)
    for _, op in ipairs(ops) do
        for i, sample in ipairs(op.samples) do f(op, sample, i) end
    end
end

-- The arguments on the meta device; of an op without tensors its options say so.
local function on_meta(op, args)
    local list = map_tensors(args, function(t) return t:to "meta" end)
    local n = args.n
    list.n = n
    if not op.source then return list end
    local options = type(args[n]) == "table" and #args[n] == 0 and next(args[n]) ~= nil
    list.n = options and n or n + 1
    list[list.n] = {device = "meta"}
    for k, v in pairs(options and args[n] or {}) do list[list.n][k] = v end
    return list
end

local function outcome(op, args)
    flow.manual_seed(7)
    return table.pack(pcall(op.call, table.unpack(args, 1, args.n)))
end

local function shape_of(t)
    return ("%s%s%s"):format(t.dtype, support.shape_text(t.shape), t.is_global and " " .. tostring(t.sbp) or "")
end

-- The results of a call, as far as the meta device knows them.
local function facts(results)
    local list = {}
    for j = 2, results.n do
        local r = results[j]
        list[#list + 1] = flow.is_tensor(r) and shape_of(r) or tostring(r)
        if flow.is_tensor(r) and r.is_global then list[#list + 1] = shape_of(r:to_local()) end
    end
    return table.concat(list, "; ")
end

local function reason(message)
    return (tostring(message):gsub("^.-:%d+: ", ""):gsub('"meta"', '"cpu"'):gsub("on meta", "on cpu"))
end

-- True if the message is about values of a matrix, or of weights, which only the CPU sees.
local function is_about_data(op, message)
    if op.name == "multinomial" and message:find("weights", 1, true) then return true end
    local of_matrices = op.host_only or support.solved[op.name] or op.name == "linalg.matrix_power"
    return of_matrices and (message:find("the matrix ", 1, true) or message:find "matrix %d+ of the batch ") ~= nil
end

-- The call on the meta device gives what the one on the CPU gave.
local function agrees(op, args, want, got, what)
    if not want[1] and got[1] and is_about_data(op, want[2]) then return end
    if looks_at_data(op, args) then
        assert.is_false(got[1], what)
        assert.is_truthy(got[2]:find(op.name .. ": [%w]+%[.*%] on .*meta.* has no values to read: "), got[2])
        return
    end
    if not want[1] then
        assert.are.equal(reason(want[2]), got[1] and what .. " is no error" or reason(got[2]), what)
        return
    end
    assert(got[1], what .. ": " .. tostring(got[2]))
    assert.are.equal(facts(want), facts(got), what)
    for j = 2, got.n do
        if flow.is_tensor(got[j]) then
            assert.are.equal("meta", got[j].is_global and got[j].placement.type or got[j].device, what)
        end
    end
end

describe("on the meta device", function()
    each_sample(function(op, sample, i)
        it(op.name .. " sample " .. i .. " gives what the CPU gives", function()
            local args = support.arguments(op, sample)
            local got = outcome(op, on_meta(op, args))
            agrees(op, args, outcome(op, args), got, op.name)
        end)

        if op.source or op.mutates then return end
        it(op.name .. " sample " .. i .. " takes strided operands", function()
            local args = support.arguments(op, sample)
            local n = args.n
            local meta = map_tensors(args, function(t) return support.strided(t:to "meta") end)
            args = map_tensors(args, support.strided)
            args.n, meta.n = n, n
            agrees(op, args, outcome(op, args), outcome(op, meta), op.name)
        end)
    end)

    it("nothing is allocated and no random number is drawn", function()
        local args = {}
        each_sample(function(op, sample) args[#args + 1] = {op, on_meta(op, support.arguments(op, sample))} end)
        collectgarbage()
        flow.manual_seed(3)
        local before, state = flow.memory().allocations, flow.default_generator():state()
        for _, case in ipairs(args) do
            if not looks_at_data(table.unpack(case)) then case[1].call(table.unpack(case[2], 1, case[2].n)) end
        end
        assert.are.equal(before, flow.memory().allocations)
        assert.are.same(state, flow.default_generator():state())
    end)
end)

describe("in place on the meta device", function()
    each_sample(function(op, sample, i)
        local method = flow._methods[op.name .. "_"]
        if not op.elementwise or op.hidden or not method then return end
        it(op.name .. "_ sample " .. i, function()
            local args = support.arguments(op, sample)
            if not flow.is_tensor(args[1]) then return end
            local meta = on_meta(op, args)
            local x = meta[1]
            local in_place = {name = op.name, call = method}
            agrees(in_place, args, outcome(in_place, args), outcome(in_place, meta), op.name .. "_")
            assert.are.equal(shape_of(args[1]), shape_of(x))
        end)
    end)
end)

local function leaves(args)
    local list = {}
    local result = map_tensors(args, function(t)
        if not t.dtype:match "float" then return t end
        local leaf = t:detach()
        leaf.requires_grad = true
        list[#list + 1] = leaf
        return leaf
    end)
    result.n = args.n
    return result, list
end

-- Metas of the gradients of first and second order, or the error.
local function gradients(op, args)
    local list
    args, list = leaves(args)
    if op.mutates then
        local n = args.n
        args = map_tensors(args, function(t) return t.requires_grad and t:clone() or t end)
        args.n = n
    end
    return table.pack(pcall(function()
        flow.manual_seed(7)
        local results = table.pack(op.call(table.unpack(args, 1, args.n)))
        local loss
        for j = 1, results.n do
            local r = results[j]
            if flow.is_tensor(r) and r.requires_grad then loss = loss and loss + (r * r):sum() or (r * r):sum() end
        end
        if not loss then return "none" end
        local all = {}
        local first = flow.grad(loss, list, {create_graph = true, allow_unused = true})
        local second
        for k = 1, #list do
            local g = first[k]
            all[#all + 1] = g and shape_of(g) or "nil"
            if g and g.requires_grad then second = second and second + (g * g):sum() or (g * g):sum() end
        end
        if second then
            for _, g in pairs(flow.grad(second, list, {allow_unused = true})) do all[#all + 1] = g and shape_of(g) or "nil" end
        end
        table.sort(all)
        return table.concat(all, "; ")
    end))
end

-- The gradients on the meta device have the metas of those on the CPU.
local function gradients_agree(op, args, meta, what)
    local want, got = gradients(op, args), gradients(op, meta)
    if not want[1] and got[1] and is_about_data(op, want[2]) then return end
    if want[1] then assert.are.same(want, got, what) else assert.are.equal(reason(want[2]), reason(got[2]), what) end
end

describe("gradients on the meta device", function()
    each_sample(function(op, sample, i)
        if not op.differentiable or op.source or looks_at_data(op, support.arguments(op, sample)) then return end
        it(op.name .. " sample " .. i, function()
            local args = support.arguments(op, sample)
            gradients_agree(op, args, on_meta(op, args), op.name)
        end)
    end)
end)

describe("SBPs on the meta device", function()
    after_each(function() testing.set_world(1, 0) end)

    local function entries(word, hierarchy)
        local list = {}
        for k = 1, #hierarchy do list[k] = word end
        return list
    end

    -- sbp_of(position, tensor) on a grid; the same call on the CPUs of a dry world and on the meta device.
    local function compare(op, sample, hierarchy, rank, sbp_of)
        testing.set_world(1, 0)
        local args, ranks, at = support.arguments(op, sample), 1, 0
        local n = args.n
        for _, size in ipairs(hierarchy) do ranks = ranks * size end
        testing.set_world(ranks, rank, true)
        local cpu = support.grid(hierarchy)
        local meta_grid = flow.placement("meta", cpu.ranks)
        local function placed(placement)
            at = 0
            local list = map_tensors(args, function(t)
                at = at + 1
                local word = sbp_of(at, t)
                return flow.zeros(t.shape, {dtype = t.dtype, placement = placement, sbp = entries(word, hierarchy)})
            end)
            list.n = n
            return list
        end
        local want = outcome(op, placed(cpu))
        agrees(op, args, want, outcome(op, placed(meta_grid)), op.name)
        local method = op.elementwise and not op.hidden and flow._methods[op.name .. "_"]
        if method and flow.is_tensor(args[1]) then
            local in_place = {name = op.name, call = method}
            want = outcome(in_place, placed(cpu))
            agrees(in_place, args, want, outcome(in_place, placed(meta_grid)), op.name .. "_")
        end
        if op.differentiable and not looks_at_data(op, args) then
            gradients_agree(op, placed(cpu), placed(meta_grid), op.name)
        end
    end

    local function split_of(axis) return function(_, t) return axis < t.ndim and ("S(%d)"):format(axis) or "B" end end
    local ways = {
        ["S(0)"] = split_of(0), ["S(1)"] = split_of(1), B = function() return "B" end,
        ["the first one S(0)"] = function(i, t) return i == 1 and t.ndim > 0 and "S(0)" or "B" end,
        ["the first one P"] = function(i, t) return i == 1 and t.dtype ~= "bool" and "P" or "B" end,
        ["P"] = function(_, t) return t.dtype ~= "bool" and "P" or "B" end,
    }

    each_sample(function(op, sample, i)
        if op.source then return end
        for name, way in pairs(ways) do
            it(op.name .. " sample " .. i .. " with " .. name, function()
                compare(op, sample, {2}, 0, way)
                compare(op, sample, {2, 2}, 3, way)
            end)
        end
    end)
end)
