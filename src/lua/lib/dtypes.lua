-- dtypes.lua -- what dtypes there are, what they hold and promote to; tensors made like another one.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- Each dtype: its kind, from which kinds promote to it, and its place among its kind.
local kinds = {bool = 0, uint8 = 1, int8 = 1, int32 = 1, int64 = 1, float16 = 2, bfloat16 = 2, float32 = 2, float64 = 2}
local place = {bool = 0, uint8 = 1, int8 = 1, int32 = 3, int64 = 4, float16 = 1, bfloat16 = 1, float32 = 2, float64 = 3}

local function check_dtype(who, dtype)
    if not kinds[dtype] then
        check.fail("%s: unknown dtype %s%s", who, check.got(dtype),
            type(dtype) == "string" and check.suggest(dtype, check.sorted_keys(kinds)) or "")
    end
    return dtype
end

-- The dtype of one operand: a tensor's, a dtype itself.
local function dtype_of(who, value)
    return check_dtype(who, flow.is_tensor(value) and value.dtype or value)
end

local function promote(a, b)
    if a == b then return a end
    if kinds[a] ~= kinds[b] then return kinds[a] > kinds[b] and a or b end
    if place[a] ~= place[b] then return place[a] > place[b] and a or b end
    return kinds[a] == 1 and "int32" or "float32"      -- uint8 and int8 (there is no int16); the two of 16 bits
end

---The dtype of a result of tensors of two dtypes.
function M.promote_types(a, b)
    return promote(check_dtype("promote_types", a), check_dtype("promote_types", b))
end

local function is_number(value) return type(value) == "number" or type(value) == "boolean" end
local function weakest(value) return math.type(value) == "integer" and "int64" or flow.get_default_dtype() end

-- The rank of an operand: of equal kinds tensors with axes decide, then those without, then numbers.
local function rank(value)
    if is_number(value) then return 3 end
    return flow.is_tensor(value) and value.ndim == 0 and 2 or 1
end

---The dtype of a result of these tensors, numbers and dtypes: numbers and tensors without axes count where they are of
---a higher kind (bool, integer, float) than the tensors.
function M.result_type(...)
    local found, args = {}, table.pack(...)
    if args.n == 0 then check.fail("result_type: needs at least one argument") end
    for i = 1, args.n do
        local value = args[i]
        local dtype = type(value) == "boolean" and "bool" or type(value) == "number" and weakest(value)
            or dtype_of("result_type", value)
        local r = rank(value)
        found[r] = found[r] and promote(found[r], dtype) or dtype
    end
    local result
    for r = 1, 3 do
        local dtype = found[r]
        if dtype and (not result or kinds[dtype] > kinds[result]) then result = dtype end
    end
    return result
end

---True if values of one dtype (or tensor) may become another without a change of kind: not from float to integer, nor
---from a number to bool.
function M.can_cast(from, to)
    return kinds[dtype_of("can_cast", from)] <= kinds[dtype_of("can_cast", to)]
end

local numeric = {
    bool = {bool = true}, ["signed integer"] = {int8 = true, int32 = true, int64 = true},
    ["unsigned integer"] = {uint8 = true}, ["real floating"] = {float16 = true, bfloat16 = true, float32 = true,
    float64 = true}, ["complex floating"] = {},
}

local function is_kind(dtype, kind)
    if kind == "integral" then return kinds[dtype] == 1 end
    if kind == "numeric" then return kinds[dtype] > 0 end
    if numeric[kind] then return numeric[kind][dtype] == true end
    return dtype == check_dtype("isdtype", kind)
end

---True if a dtype is of a kind: another dtype, "bool", "signed integer", "unsigned integer", "integral",
---"real floating", "complex floating", "numeric", or one of a list of them.
function M.isdtype(dtype, kind)
    check_dtype("isdtype", dtype)
    for _, one in ipairs(type(kind) == "table" and kind or {kind}) do
        if is_kind(dtype, one) then return true end
    end
    return false
end

---True if the dtype of x is a float.
function M.is_floating_point(x) return kinds[dtype_of("is_floating_point", x)] == 2 end
---False: there are no complex tensors.
function M.is_complex() return false end
---The number of elements.
function M.numel(x) return x:numel() end

-- bits, of the exponent, of the fraction
local floats = {float16 = {16, 5, 10}, bfloat16 = {16, 8, 7}, float32 = {32, 8, 23}, float64 = {64, 11, 52}}

---The properties of a float dtype: {bits, eps, max, min, tiny, smallest_normal, resolution, dtype}.
function M.finfo(dtype)
    dtype = dtype_of("finfo", dtype)
    local f = floats[dtype]
    if not f then check.fail("finfo: takes a float dtype, got %s; write flow.iinfo", dtype) end
    local bits, exponent, fraction = table.unpack(f)
    local bias = 2 ^ (exponent - 1) - 1
    local largest, smallest = (2 - 2.0 ^ -fraction) * 2.0 ^ bias, 2.0 ^ (1 - bias)
    local digits = math.floor(fraction * math.log(2, 10))
    return {bits = bits, eps = 2.0 ^ -fraction, max = largest, min = -largest, tiny = smallest,
        smallest_normal = smallest, resolution = tonumber("1e-" .. digits), dtype = dtype}
end

local integers = {uint8 = {8, 0, 255}, int8 = {8, -128, 127}, int32 = {32, -2147483648, 2147483647},
    int64 = {64, math.mininteger, math.maxinteger}}

---The properties of an integer dtype: {bits, min, max, dtype}.
function M.iinfo(dtype)
    dtype = dtype_of("iinfo", dtype)
    local i = integers[dtype]
    if not i then check.fail("iinfo: takes an integer dtype, got %s; write flow.finfo", dtype) end
    return {bits = i[1], min = i[2], max = i[3], dtype = dtype}
end

-- ---- conversions ----

---x in another dtype, as a copy; {copy = false}: x itself where it has that dtype.
function M.astype(x, dtype, opts)
    local result = x:to(check_dtype("astype", dtype))
    return opts.copy and rawequal(result, x) and x:clone() or result
end

---x in the dtype of other.
function M.type_as(x, other) return x:to(other.dtype) end

-- A tensor from anything; a tensor whose dtype and device fit is returned itself.
local function as_tensor(data, opts)
    if not flow.is_tensor(data) then return flow.tensor(data, opts) end
    return next(opts) and data:to(opts) or data
end

---A tensor of numbers, lists or a tensor, which stays itself where dtype and device fit.
function M.as_tensor(data, opts) return as_tensor(data, opts) end

---As as_tensor; {copy = true}: always a tensor of its own.
function M.asarray(data, opts)
    local result = as_tensor(data, {dtype = opts.dtype, device = opts.device})
    return opts.copy and rawequal(result, data) and data:clone() or result
end

-- ---- like another tensor ----

-- The options of a new tensor with the dtype and place of x; a global one is whole on every rank.
local function options_like(x, given)
    local options = {dtype = x.dtype}
    if x.is_global and not given.device then
        options.placement, options.sbp = x.placement, {}
        for i = 1, #x.placement.hierarchy do options.sbp[i] = "B" end
    elseif not given.placement then options.device = x.device end
    for key, value in pairs(given) do options[key] = value end
    return options
end

-- The sizes and the options of x:new_zeros(2, 3, {dtype = d}) or x:new_zeros({2, 3}).
local function split_arguments(x, ...)
    local args, given = table.pack(...), {}
    local last = args[args.n]
    if type(last) == "table" and #last == 0 and next(last) ~= nil then given, args.n = last, args.n - 1 end
    local sizes = args.n == 1 and type(args[1]) == "table" and args[1] or table.move(args, 1, args.n, 1, {})
    return sizes, options_like(x, given)
end

---Zeros with the dtype and place of x: x:new_zeros(2, 3).
function M.new_zeros(x, ...) return flow.zeros(split_arguments(x, ...)) end
---Ones with the dtype and place of x.
function M.new_ones(x, ...) return flow.ones(split_arguments(x, ...)) end
---A tensor of undefined values with the dtype and place of x.
function M.new_empty(x, ...) return flow.empty(split_arguments(x, ...)) end
---A tensor filled with a number, with the dtype and place of x.
function M.new_full(x, size, value, options) return flow.full(size, value, options_like(x, options or {})) end
---A copy of data, a tensor or lists of numbers, with the dtype and place of x.
function M.new_tensor(x, data, options)
    if flow.is_tensor(data) then
        options = options_like(x, options or {})
        return data:detach():clone():to {dtype = options.dtype, device = options.device}
    end
    options = options_like(x, options or {})
    return flow.tensor(data, options)
end

check.takes(M, {
    "promote_types(a: string, b: string)", "result_type(...: any)", "can_cast(from: any, to: any)",
    "isdtype(dtype: string, kind: any)", "is_floating_point(x: any)", "is_complex(x: any)", "numel(x: tensor)",
    "finfo(dtype: any = float32)", "iinfo(dtype: any)", "astype(x: tensor, dtype: string, {copy: boolean = true})",
    "type_as(x: tensor, other: tensor)", "as_tensor(data: any, {dtype: string?, device: string?})",
    "asarray(data: any, {dtype: string?, device: string?, copy: boolean = false})", "new_zeros(x: tensor, ...: any)",
    "new_ones(x: tensor, ...: any)", "new_empty(x: tensor, ...: any)",
    "new_full(x: tensor, size: any, value: any, options: list?)", "new_tensor(x: tensor, data: any, options: list?)",
})

return M
