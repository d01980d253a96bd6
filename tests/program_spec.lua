-- program_spec.lua -- flow.trace: programs give the bits of what was traced, also after they were saved and read again,
-- differentiated or inferred for other shapes; what cannot be traced or read says so.
local flow = require "flow"
local support = require "tests.support"
local testing = flow._testing


local path = os.tmpname()
teardown(function() os.remove(path) end)

-- Equal values, dtypes and shapes; NaN equals NaN.
local function same_bits(want, got, what)
    if not flow.is_tensor(want) then return assert.are.equal(want, got, what) end
    assert.are.equal(want.dtype, got.dtype, what)
    assert.are.same(support.shape_text(want.shape), support.shape_text(got.shape), what)
    local a, b = support.values(want), support.values(got)
    for i = 1, #a do
        if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then
            assert.are.equal(a[i], b[i], ("%s: element %d"):format(what, i))
        end
    end
end

local function same_results(want, got, what)
    assert.are.equal(want.n, got.n, what)
    for i = 1, want.n do same_bits(want[i], got[i], ("%s, result %d"):format(what, i)) end
end

local function spec_of(t, requires_grad)
    return flow.spec(t.shape, {dtype = t.dtype, requires_grad = requires_grad or nil})
end

local function specs_of(list)
    local specs = {}
    for i, t in ipairs(list) do specs[i] = spec_of(t) end
    return specs
end

local function saved(p)
    p:save(path)
    return flow.program(path)
end

local function seeded(f, ...)
    flow.manual_seed(12)
    return table.pack(f(...))
end

describe("every op", function()
    -- Those whose results depend on data.
    local readers = {}
    for name in ("nonzero index index_put masked_select"):gmatch "%S+" do readers[name] = true end

    -- The tensors of an argument list are replaced by those of `list`, in order.
    local function fill(value, list)
        if flow.is_tensor(value) then return table.remove(list, 1) end
        if type(value) ~= "table" then return value end
        local copy = {}
        for k, v in pairs(value) do copy[k] = v end
        for k = 1, value.n or #value do copy[k] = fill(value[k], list) end
        for k, v in pairs(value) do
            if flow.is_tensor(v) and type(k) == "string" then copy[k] = table.remove(list, 1) end
        end
        return copy
    end

    local function tensors_of(value, list)
        list = list or {}
        if flow.is_tensor(value) then list[#list + 1] = value
        elseif type(value) == "table" then
            for i = 1, value.n or #value do tensors_of(value[i], list) end
            for k, v in pairs(value) do if type(k) == "string" then tensors_of(v, list) end end
        end
        return list
    end

    local function copies(list)
        local result = {}
        for i, t in ipairs(list) do result[i] = t:contiguous():clone() end
        return result
    end

    for _, op in ipairs(testing.ops()) do
        for number, sample in ipairs(op.samples) do
            it(op.name .. " sample " .. number .. " gives the same bits as a program", function()
                local args = support.arguments(op, sample)
                local list = tensors_of(args)
                local function f(...)
                    local filled = fill(args, {...})
                    return op.call(table.unpack(filled, 1, args.n))
                end
                local live = flow.memory().allocations
                local ok, p = pcall(flow.trace, f, specs_of(list))
                if not ok then
                    assert.is_truthy(readers[op.name:gsub("_$", "")], tostring(p))
                    assert.is_truthy(tostring(p):find("on meta", 1, true), tostring(p))
                    return
                end
                assert.are.equal(live, flow.memory().allocations)
                local q = saved(p)
                assert.are.equal(tostring(p), tostring(q))
                for _, program in ipairs {p, q} do
                    for _ = 1, 2 do
                        local want_in, got_in = copies(list), copies(list)
                        local want, got = seeded(f, table.unpack(want_in)), seeded(program, table.unpack(got_in))
                        if not op.name:find "^empty" then same_results(want, got, op.name) end
                        for i, t in ipairs(want_in) do same_bits(t, got_in[i], op.name .. ", operand " .. i) end
                    end
                end
            end)
        end
    end
end)
