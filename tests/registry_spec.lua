-- registry_spec.lua -- every registered op, by its own samples: documentation, layouts, dtypes, gradients of
-- first and second order, every SBP signature, bad arguments. A new op is tested by being registered.
local flow = require "flow"
local reference = require "tests.reference"
local support = require "tests.support"
local testing = flow._testing

local ops = support.ops()
for _, op in ipairs(ops) do op.mutates = op.mutates or op.name:sub(-1) == "_" end

local arguments = support.arguments

local function call(op, args)
    flow.manual_seed(7)
    return table.pack(op.call(table.unpack(args, 1, args.n)))
end

local map_tensors, tensors_of = support.map_tensors, support.tensors_of

local function each_sample(f)
    for _, op in ipairs(ops) do
        if not support.left_out(op) then
            for i, sample in ipairs(op.samples) do f(op, sample, i) end
        end
    end
end

describe("every op", function()
    it("has a name of its own, a sentence of documentation and a sample", function()
        local seen = {}
        for _, op in ipairs(ops) do
            assert.is_nil(seen[op.name], op.name .. " is registered twice")
            seen[op.name] = true
            assert.is_true(#op.doc > 4, op.name .. " has no documentation")
            -- the elements of empty tensors are undefined, so there is nothing to compare
            assert.is_true(op.hidden or #op.samples > 0 or op.name:find("^empty") ~= nil, op.name .. " has no sample")
        end
    end)

    it("answers bad arguments with an error that names it", function()
        local bad = {{}, {"text"}, {{}}, {true, true}, {print}, {0 / 0, 2 ^ 63}, {flow.zeros(2, 3), "x"}, {flow.zeros(2), {}, {}}}
        local spoken = {max_all = "max", max_axis = "max", min_all = "min", min_axis = "min", median_all = "median", median_axis = "median",
            nanmedian_all = "nanmedian", nanmedian_axis = "nanmedian", max_pool2d_taps = "max_pool2d", max_pool2d_values = "max_pool2d", polygamma_of = "polygamma"}
        for _, op in ipairs(ops) do
            for _, args in ipairs(bad) do
                local ok, message = pcall(op.call, table.unpack(args))
                if not ok then
                    assert.is_string(message, op.name)
                    assert.is_truthy(message:find(spoken[op.name] or op.name, 1, true) or message:find("flow", 1, true), op.name .. ": " .. message)
                end
            end
            local ok = pcall(op.call, table.unpack({}, 1, 0))
            assert.is_true(not ok or op.name == "tensor", op.name .. " takes no arguments at all")
        end
    end)
end)

describe("in place:", function()
    -- The ops whose x:name_() there is, with a sample whose result has the dtype and shape of its first operand.
    local function fitting_sample(op)
        for _, sample in ipairs(op.samples) do
            local args = arguments(op, sample)
            local want = call(op, args)[1]
            local x = args[1]
            if flow.is_tensor(x) and x.dtype == want.dtype and tostring(x.shape) == tostring(want.shape) then return args, want end
        end
    end

    for _, op in ipairs(ops) do
        local method = flow._methods[op.name .. "_"]
        if op.elementwise and not op.hidden and method then
            it(op.name .. "_ writes what " .. op.name .. " gives into its operand", function()
                local args, want = fitting_sample(op)
                if not args then -- logic: bool of numbers, but also of bools
                    args = map_tensors(arguments(op, op.samples[1]), function(t) return t:gt(0) end)
                    want = op.call(table.unpack(args))
                end
                local x = args[1]
                assert.is_true(rawequal(x, method(table.unpack(args))))
                support.same(want, x, op.name)
            end)
        end
    end

    it("there is none of an op whose result is of another kind", function()
        for _, name in ipairs {"where", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "sum", "matmul"} do
            assert.is_nil(flow._methods[name .. "_"], name)
        end
    end)
end)

describe("layouts:", function()
    each_sample(function(op, sample, i)
        it(op.name .. " sample " .. i .. " takes strided inputs", function()
            local args = arguments(op, sample)
            if op.mutates then return end
            local want = call(op, args)
            local strided = map_tensors(args, support.strided)
            strided.n = args.n
            local got = call(op, strided)
            for j = 1, want.n do support.same(want[j], got[j], op.name, 1e-5) end
        end)
    end)
end)

describe("dtypes:", function()
    local tolerance = {float16 = 2e-2, bfloat16 = 1e-1, float32 = 1e-4}
    each_sample(function(op, sample, i)
        if op.random or op.mutates then return end
        it(op.name .. " sample " .. i .. " agrees over float dtypes", function()
            local args = arguments(op, sample)
            local any = false
            for _, t in ipairs(tensors_of(args)) do any = any or t.dtype == "float32" end
            if not any then return end
            -- inputs that every dtype can hold, so that the results differ by their own rounding only
            local function in_dtype(dtype)
                local cast = map_tensors(args, function(t)
                    return t.dtype == "float32" and t:to("bfloat16"):to("float16"):to(dtype) or t
                end)
                cast.n = args.n
                return cast
            end
            local want = call(op, in_dtype "float64")
            for dtype, eps in pairs(tolerance) do
                local ok, got = pcall(call, op, in_dtype(dtype))
                -- factorisations have no kernels for 16 bits, as in PyTorch
                if not ok and dtype:find "16" and tostring(got):find("takes float32 or float64", 1, true) then return end
                assert.is_true(ok, op.name .. " in " .. dtype .. ": " .. tostring(got))
                for j = 1, want.n do support.close(want[j], got[j], eps, op.name .. " in " .. dtype) end
            end
        end)
    end)
end)

describe("gradients:", function()
    -- These read one half of a symmetric matrix, but their gradients are those of both: of A and its transpose together.
    local symmetric = {["linalg.cholesky"] = true, ["linalg.cholesky_ex"] = true, ["linalg.eigh"] = true, ["linalg.eigvalsh"] = true}
    local constant = {linalg_ldl_solve = 1}     -- the operand that has no gradient
    -- Their gradients are not their slopes, but those of what they round (tests/torch_names_spec.lua); or some of their
    -- results are gradients, which have none.
    local straight = {fake_quantized = true, fake_quantize_per_tensor_affine = true, fake_quantize_per_channel_affine = true,
        linear_cross_entropy_sums = true, linear_cross_entropy_rows = true}
    each_sample(function(op, sample, i)
        if straight[op.name] then return end
        if not op.differentiable or op.random then return end -- random numbers have the gradients of their quantiles
        it(op.name .. " sample " .. i .. " against finite differences", function()
            local args = arguments(op, sample)
            local n = args.n
            args = map_tensors(args, function(t) return t.dtype == "float32" and t:to("float64") or t end)
            args.n = n
            support.gradcheck(function(replaced)
                if op.mutates then -- a leaf must not be written; the op also gives the written tensor back
                    local copies = map_tensors(replaced, function(t) return t.requires_grad and t:clone() or t end)
                    copies.n = replaced.n
                    replaced = copies
                end
                local fixed = constant[op.name]
                if fixed then replaced[fixed] = args[fixed] end
                if symmetric[op.name] then replaced[1] = (replaced[1] + replaced[1]:transpose(-1, -2)) / 2 end
                return call(op, replaced)
            end, args, op.name)
        end)
    end)
end)

describe("SBP signatures:", function()
    local grids = {{2}, {3}, {2, 2}, {3, 2}}
    after_each(function() testing.set_world(1, 0) end)

    local function in_float64(args)
        local list = map_tensors(args, function(t) return t.dtype == "float32" and t:to "float64" or t end)
        list.n = args.n
        return list
    end

    -- Of the many signatures of a grid a few.
    local function some(cases, grid, count, text)
        if support.all or #grid == 1 then return cases end
        return support.some(cases, count, text .. table.concat(grid, " x "))
    end

    each_sample(function(op, sample, i)
        for _, grid in ipairs(grids) do
            local shape = table.concat(grid, " x ")
            if not op.source then
                it(op.name .. " sample " .. i .. " over " .. shape .. " parts", function()
                    support.check_signatures(op, in_float64(arguments(op, sample)), grid, map_tensors, 1e-9, function(cases)
                        return some(cases, grid, 20, op.name .. sample)
                    end)
                end)
            elseif #grid == 1 then
                it(op.name .. " sample " .. i .. " over " .. shape .. " parts", function() support.check_source(op, arguments(op, sample), grid[1]) end)
            end
        end
    end)

    -- Small whole numbers, so that there are zeros, negative numbers and ties, and sums are exact in every dtype; with
    -- `special` NaN and infinities among them.
    local function plain(t, dtype, special)
        local x = t:to "float64"
        x = t.dtype == "bool" and x * flow.randint(-2, 3, x.shape) or (x * 2):round()
        if dtype == "uint8" then x = x:relu() end
        if special then
            local which = flow.arange(x:numel()):reshape(x.shape):remainder(7)
            for k, v in pairs {[0] = 0 / 0, [2] = math.huge, [5] = -math.huge} do x = flow.where(which:eq(k), v, x) end
        end
        return x:to(dtype)
    end

    -- Those in which a word occurs: "P", or "P(" for P(max) and P(min).
    local function with(cases, word)
        local list = {}
        for _, case in ipairs(cases) do
            local text = table.concat(case.inputs, " ") .. " " .. table.concat(case.outputs, " ")
            if text:find(word, 1, true) then list[#list + 1] = case end
        end
        return list
    end

    local tolerance = {float16 = 0.05, bfloat16 = 0.2, float32 = 1e-3}

    -- Nothing may exceed the value that arg_find is given: NaN does, and as bool any number exceeds 0. Nor may scores
    -- exceed their log-sum-exp: their exponentials would be infinite, and infinities cancel in one order alone.
    local function keeps_contract(op, to, special)
        if op.name == "linear_cross_entropy_backward" then return false end
        return op.name ~= "arg_find" or not (special or to == "bool")
    end

    -- One dtype of the sample's tensors as another: only what the op takes counts.
    local function check_dtype(op, sample, from, to, grid, special, seed)
        local args = arguments(op, sample)
        flow.manual_seed(seed)
        local n = args.n
        args = map_tensors(args, function(t) return t.dtype == from and plain(t, to, special) or t end)
        args.n = n
        local copies = map_tensors(args, function(t) return t:clone() end)
        copies.n = n
        if not keeps_contract(op, to, special) or not support.settled(call, op, copies) then return end
        support.check_signatures(op, args, grid, map_tensors, tolerance[to] or 1e-6, function(cases)
            return some(with(cases, special and "P(" or "P"), grid, 5, op.name .. sample .. to)
        end)
    end

    each_sample(function(op, sample, i)
        if op.source then return end
        it(op.name .. " sample " .. i .. " in every dtype", function()
            local seen = {}
            for _, t in ipairs(tensors_of(arguments(op, sample))) do seen[t.dtype] = true end
            for _, from in ipairs(reference.dtypes) do
                for _, to in ipairs(seen[from] and reference.dtypes or {}) do
                    for seed = 1, support.all and 20 or 2 do
                        for _, grid in ipairs {{2}, seed == 1 and {2, 2} or nil} do
                            check_dtype(op, sample, from, to, grid, false, seed)
                            if reference.is_float(to) then check_dtype(op, sample, from, to, grid, true, seed) end
                        end
                    end
                end
            end
        end)
    end)
end)

-- On a world of one rank every body and every box runs, and whatever is given or refused must not depend on the SBP.
describe("axes without elements, or with one:", function()
    local everywhere = {placement = flow.placement("cpu", {0}), sbp = "B"}

    -- Every axis of some size gets another.
    local function resized(t, size, to)
        for axis = 0, t.ndim - 1 do
            if t:size(axis) == size then t = t:narrow(axis, 0, math.min(to, size)):clone() end
        end
        return t
    end

    local function outcome(op, sample, f)
        local args = arguments(op, sample)
        local n = args.n
        args = map_tensors(args, f)
        flow.manual_seed(7)
        return table.pack(support.settled(op.call, table.unpack(args, 1, n)))
    end

    -- Without positions, and without the name of the op whose body failed.
    local function reason(message)
        return (tostring(message):gsub("^.-:%d+: ", ""):gsub("^[%w_.]+: ([%w_.]+ %()", "%1"):gsub(" on placement.-as %S+", ""))
    end

    -- The call on global tensors, split along an axis where they have it (-1: nowhere), gives what it gives on local ones.
    local function compare(op, sample, want, shrink, axis, what)
        local got = outcome(op, sample, function(t)
            local whole = shrink(t):to_global(everywhere)
            return axis >= 0 and axis < t.ndim and whole:to_global {sbp = ("S(%d)"):format(axis)} or whole
        end)
        what = what .. (axis < 0 and " as B" or (" as S(%d)"):format(axis))
        if not want[1] then
            assert.are.equal(reason(want[2]), got[1] and what .. " is no error" or reason(got[2]), what)
            return
        end
        assert(got[1], what .. ": " .. tostring(got[2]))
        for j = 2, want.n do
            local result = flow.is_tensor(got[j]) and got[j]:to_global {sbp = "B"}:to_local() or got[j]
            support.same(want[j], result, what, 1e-5)
        end
    end

    each_sample(function(op, sample, i)
        if op.source then return end
        it(op.name .. " sample " .. i .. " is the same on local and global tensors", function()
            local sizes, most = {}, 0
            for _, t in ipairs(tensors_of(arguments(op, sample))) do
                for _, size in ipairs(t.shape) do sizes[size] = true end
                most = math.max(most, t.ndim)
            end
            for size = 1, 20 do
                for to = 0, sizes[size] and 1 or -1 do
                    local function shrink(t) return resized(t, size, to) end
                    local want = outcome(op, sample, shrink)
                    for axis = -1, most - 1 do compare(op, sample, want, shrink, axis, ("%s, size %d -> %d"):format(op.name, size, to)) end
                end
            end
        end)
    end)
end)
