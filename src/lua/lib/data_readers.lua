-- data_readers.lua -- files of other programs: NumPy's arrays, and what data_csv.lua and data_jsonl.lua read.

local flow = require "flow"
local check = require "flow.check"
local ordered = require "flow.ordered"

local io_ = flow._io

local readers = {}

-- The array as Python has it: of one in Fortran's order the axes were read in reverse.
local function in_order(tensor, columns_first, mapped)
    if not columns_first then return tensor end
    local axes = {}
    for i = 1, tensor.ndim do axes[i] = tensor.ndim - i end
    local turned = tensor:permute(axes)
    return mapped and turned or turned:contiguous()
end

---The array in a .npy file of NumPy, also compressed with gzip. int16 and uint16 become int32, uint32 and uint64
---int64. With `map` the elements stay in the file until they are used, for arrays larger than memory; if the file is
---made shorter while the tensor lives, reading values is an error. Writes to the tensor do not change the file.
---@param path string
---@param opts {map: boolean}?
function readers.npy(path, opts)
    local t, columns_first = io_.npy(path, opts.map)
    return in_order(t, columns_first, opts.map)
end

local function without_end(name)
    return name:match("^(.+)%.npy$")
end

-- The members to read, as {name, place}: all, or those of the list `wanted`.
local function choose(path, members, wanted)
    local places, known, chosen = {}, {}, {}
    for i, member in ipairs(members) do
        local name = without_end(member)
        if name and not places[name] then
            places[name], known[#known + 1] = i, name
        end
    end
    if #known == 0 and #members > 0 then
        check.fail("npz: %s holds no arrays, but '%s'; it is not an archive of NumPy", path, members[1])
    end
    for i, name in ipairs(wanted or known) do
        if not places[name] then
            check.fail("npz: %s has no array %s%s", path, check.got(name), check.suggest(name, known))
        end
        chosen[i] = {name, places[name]}
    end
    return chosen
end

---The arrays of a .npz file of NumPy by name, in the order of the file: a table of tensors.
---@param path string
---@param opts {names: string[]}? which of them, default all
---@return table
function readers.npz(path, opts)
    local archive <close>, members = io_.zip("npz", path)
    local result = ordered.new()
    for _, one in ipairs(choose(path, members, opts.names)) do
        result[one[1]] = in_order(io_.zip_npy(archive, one[2]))
    end
    return result
end

-- A tensor as it can be written.
local function writable(who, name, tensor)
    if not check.is_tensor(tensor) then check.fail("%s: %s must be a tensor, got %s", who, name, check.got(tensor)) end
    if tensor.is_global then
        check.fail("%s: %s is global; write its parts, x:to_local(), or the whole on one rank: " ..
            "x:to_global{sbp = \"B\"}:to_local()", who, name)
    end
    return tensor:detach():contiguous()
end

---Writes a tensor as a .npy file, which numpy.load reads. A file that is there is replaced when all is written.
---@param path string
---@param x any
function readers.save_npy(path, x)
    io_.save_npy(path, writable("save_npy", "x", x))
end

---Writes a table of tensors as a .npz file, which numpy.load reads.
---@param path string
---@param tensors table<string, any>
---@param opts {compress: boolean}?
function readers.save_npz(path, tensors, opts)
    local names, list = {}, {}
    if ordered.is(tensors) then
        for name in tensors do names[#names + 1] = name end
    else
        names = check.sorted_keys(tensors)
    end
    for i, name in ipairs(names) do
        if type(name) ~= "string" or name == "" or name:find("\0", 1, true) then
            check.fail("save_npz: takes a table of tensors by name, {x = x}, got the key %s", check.got(name))
        end
        list[i] = writable("save_npz", "'" .. name .. "'", tensors[name])
    end
    io_.save_npz(path, names, list, opts.compress)
end

check.takes(readers, {
    "npy(path: string, {map: boolean = false})", "npz(path: string, {names: list?})",
    "save_npy(path: string, x: tensor)", "save_npz(path: string, tensors: table, {compress: boolean = false})",
})

for _, name in ipairs {"csv", "jsonl"} do
    for key, value in next, (require("flow.data_" .. name)) do readers[key] = value end
end

return readers
