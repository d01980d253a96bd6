-- data_files.lua -- files as they are: bytes, folders, IDX.

local check = require "flow.check"

local io_ = require "flow"._io

local files = {}

---@param path string
---@return string
local function read_file(path)
    local file <close> = io_.reader("read", path)
    local text, message = file:read("a")
    if not text then check.fail("read: %s: %s", path, message) end
    return text
end

---The bytes of one or several regular files, concatenated.
---@param paths string|string[]
---@return string
function files.read(paths)
    if type(paths) == "string" then return read_file(paths) end
    local parts = {}
    for i = 1, #paths do
        local path = paths[i]
        if type(path) ~= "string" then check.fail("read: path %d must be a string, got %s", i, check.got(path)) end
        parts[i] = read_file(path)
    end
    if #parts == 0 then check.fail("read: takes a path or a list of them, got a table without a list") end
    return table.concat(parts)
end

local function collect_files(who, result, folder, relative)
    local here, folders = io_.entries(who, relative == "" and folder or folder .. "/" .. relative)
    if not here then check.fail("%s: %s", who, folders) end
    local names = {}
    for _, name in ipairs(here) do names[#names + 1] = name end
    for _, name in ipairs(folders) do names[#names + 1] = name .. "/" end
    table.sort(names)
    for _, name in ipairs(names) do
        if name:sub(-1) == "/" then
            collect_files(who, result, folder, relative .. name)
        else
            result[#result + 1] = relative .. name
        end
    end
end

-- As files; errors begin with `who`.
function files._below(who, folder)
    local result = {}
    collect_files(who, result, folder, "")
    return result
end

---Paths, relative to the folder and sorted, of the files in it and below it; hidden ones and links are left out.
---@param folder string
---@return string[]
function files.files(folder)
    return files._below("files", folder)
end

---A hash of a text, as text.
---@param text string
---@return string
function files.hash(text)
    return io_.hash(text)
end

---A tensor from an IDX file (MNIST's format), plain or compressed with gzip.
---@param path string
function files.idx(path)
    return io_.idx(path)
end

local function find_idx(folder, name)
    for _, path in ipairs {name, name .. ".gz", (name:gsub("%-idx", ".idx")), (name:gsub("%-idx", ".idx")) .. ".gz"} do
        if io_.exists("mnist", folder .. "/" .. path) then return folder .. "/" .. path end
    end
    check.fail("mnist: neither %s nor %s.gz is in %s", name, name, folder)
end

local function read_split(folder, name)
    local images = files.idx(find_idx(folder, name .. "-images-idx3-ubyte"))
    local labels = files.idx(find_idx(folder, name .. "-labels-idx1-ubyte"))
    if images:dim() ~= 3 or labels:dim() ~= 1 or images:size(0) ~= labels:size(0) then
        check.fail("mnist: the %s images and labels in %s do not match: %s and %s", name, folder,
            check.shape(images), check.shape(labels))
    end
    return {images = images, labels = labels:to("int64")}
end

---The four files of MNIST: {train = {images =, labels =}, test = ...}; images uint8 [n, rows, columns].
---@param folder string
function files.mnist(folder)
    local here, problem = io_.entries("mnist", folder)
    if not here then check.fail("mnist: %s", problem) end
    return {train = read_split(folder, "train"), test = read_split(folder, "t10k")}
end

check.takes(files, {
    "read(paths: string or list)", "files(folder: string)", "hash(text: string)", "idx(path: string)",
    "mnist(folder: string)",
})
return files
