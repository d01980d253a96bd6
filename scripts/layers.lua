-- layers.lua [BUILD] -- prints the layers of src/ and fails on an include or a symbol that points up.
-- A folder may include, and its objects may need, what lies in its own folder or in a lower one: earlier in `floors`.
-- Some folders see less than that (`sees`), and some headers are for few (`readers`). The objects of BUILD (default
-- build) are read with nm, where they exist.
local build = arg[1] or "build"

-- Lowest first; folders of one floor do not see each other.
local floors = {
    {"core/base"}, {"core/value"}, {"core/op"}, {"core/engine"}, {"core/memory"}, {"core/cpu", "core/file"},
    {"core/data"}, {"core/tokens"}, {"core/ranks"}, {"core/boxing"}, {"core/infer"}, {"core/dispatch"},
    {"core/autograd"}, {"core/program"}, {"core/ops"}, {"core"},
    {"core/api"}, {"core/ranks/mpi", "cuda/parts", "lua/bind"}, {"cuda/runtime", "lua/shell"}, {"cuda/kernels"},
    {"cuda"},
}

-- The files that a folder may include of a lower one, if not all. Kernels include views and geometry only.
local sees = {
    ["core/cpu"] = {
        ["core/engine"] = {"team.h"},
        ["core/memory"] = {"scratch.h"},
        ["core/op"] = {"view.h", "elementwise.def", "elementwise_classes.h", "elementwise_formulas.inc", "promote.h",
            "draw.h", "attention.h", "compress.h", "conv.h", "fft.h", "pool.h", "product.h", "recurrent.h", "running.h",
            "resample.h", "matrix_trouble.h",
            "line_view.h", "optim.h", "optim_rules.inc", "samplers.h", "special.h", "window_geometry.h"},
    },
}

-- The layers above the core that see of it nothing but the headers of its door.
local through_door = {"lua/bind", "lua/shell"}
local door = {"script.h", "process.h", "tasks.h"}

-- Headers that few units may see, directly or through others: the most units, and the folders whose units must not.
local readers = {
    ["src/core/engine/engine.h"] = {most = 45},
    ["src/core/op/op.h"] = {not_in = {["core/cpu"] = true, ["cuda/kernels"] = true}},
}

-- Symbols that the layers below may name: descriptors that the linker collects, listed in one header.
local function is_descriptor(symbol) return symbol:find "^fl_op_[%w_]+$" ~= nil end

local floor_of = {}
for i, floor in ipairs(floors) do
    for _, folder in ipairs(floor) do floor_of[folder] = i end
end

for _, folder in ipairs(through_door) do
    sees[folder] = {}
    for _, floor in ipairs(floors) do
        for _, low in ipairs(floor) do
            if low:find "^core" then sees[folder][low] = low == "core" and door or {} end
        end
    end
end

sees["lua/bind"]["core/api"] = {"flow.h"}

local function lines_of(command)
    local pipe = assert(io.popen(command))
    local list = {}
    for line in pipe:lines() do list[#list + 1] = line end
    pipe:close()
    return list
end

local function folder_of(path) return path:match "^src/(.*)/[^/]*$" end
local function name_of(path) return path:match "[^/]*$" end
local function is_door(path)
    for _, header in ipairs(door) do
        if name_of(path) == header then return true end
    end
    return false
end

local files, known = lines_of "find src -type f | sort", {}
for _, file in ipairs(files) do known[file] = true end

local problems = {}
local function problem(...) problems[#problems + 1] = string.format(...) end

-- Arrows between folders: arrows[from][to] = how many includes.
local arrows, size = {}, {}

local function may_see(from, to, file)
    if from == to then return true end
    if not floor_of[from] or not floor_of[to] then return true end
    if floor_of[to] >= floor_of[from] then return false end
    local only = sees[from] and sees[from][to]
    if not only then return true end
    for _, name in ipairs(only) do
        if name == file then return true end
    end
    return false
end

-- The file that an #include names: beside the including file, below src/core, below src.
local function included(file, name)
    for _, root in ipairs {file:match "^(.*)/", "src/core", "src"} do
        local path = root .. "/" .. name
        if known[path] then return path end
    end
end

local includes = {}     -- of each file: the files

local function read_includes(file)
    local from, count = folder_of(file), 0
    includes[file] = {}
    for line in io.lines(file) do
        count = count + 1
        local name = line:match '^%s*#%s*include%s+"([^"]+)"'
        local target = name and included(file, name)
        if target then
            local to = folder_of(target)
            table.insert(includes[file], target)
            arrows[from] = arrows[from] or {}
            arrows[from][to] = (arrows[from][to] or 0) + 1
            if not may_see(from, to, name_of(target)) then problem("%s:%d includes %s", file, count, target) end
        end
    end
    size[from] = size[from] or {files = 0, lines = 0}
    size[from].files, size[from].lines = size[from].files + 1, size[from].lines + count
end

for _, file in ipairs(files) do
    if not floor_of[folder_of(file)] and not file:find "%.lua$" then problem("%s lies in no layer", file) end
    if folder_of(file) == "core" and not is_door(file) then problem("%s lies beside the door of core", file) end
    read_includes(file)
end

-- True if `file` includes `header`, directly or through others.
local function sees_header(file, header, seen)
    if file == header then return true end
    if seen[file] then return false end
    seen[file] = true
    for _, next_file in ipairs(includes[file] or {}) do
        if sees_header(next_file, header, seen) then return true end
    end
    return false
end

local function is_unit(file) return file:find "%.c$" or file:find "%.cu$" end

local counts = {}       -- "engine.h 80 of 200"
for header, rule in pairs(readers) do
    local count, units = 0, 0
    for _, file in ipairs(files) do
        if is_unit(file) then
            units = units + 1
            if sees_header(file, header, {}) then
                count = count + 1
                if rule.not_in and rule.not_in[folder_of(file)] then problem("%s sees %s", file, header) end
            end
        end
    end
    if rule.most and count > rule.most then
        problem("%s is seen by %d units, more than %d", header, count, rule.most)
    end
    counts[#counts + 1] = ("%s %d of %d"):format(name_of(header), count, units)
end

-- Objects of sources that are gone may lie about.
local function has_source(object)
    local path = object:sub(#build + 2):gsub("%.o$", ""):gsub("%.[%w]+$", ""):gsub("%.d$", "")
    return known[path .. ".c"] or known[path .. ".lv.c"] or known[path .. ".cu"]
end

-- Symbols: those that each folder's objects define, then those that each needs from another folder.
local home, needs = {}, {}
local objects = ("$(find %s/src -name '*.o' 2>/dev/null)"):format(build)
for _, line in ipairs(lines_of(("nm -A -g %s 2>/dev/null"):format(objects))) do
    local object, kind, symbol = line:match "^(.-):%s*%x*%s+(%a)%s+([%w_.]+)"
    if object then
        local folder = folder_of(object:sub(#build + 2))
        if not has_source(object) then folder = nil end
        if folder and kind == "U" then needs[#needs + 1] = {object, folder, symbol} end
        if folder and kind ~= "U" and symbol:find "^fl" then home[symbol] = folder end
    end
end

-- The words in the headers that a folder with `sees` may include, and in those behind them.
local words_of = {}
local function words_seen(from)
    if words_of[from] then return words_of[from] end
    local words, seen = {}, {}
    local function add(file)
        if seen[file] then return end
        seen[file] = true
        for line in io.lines(file) do
            for word in line:gmatch "[%a_][%w_]*" do words[word] = true end
        end
        for _, behind in ipairs(includes[file] or {}) do add(behind) end
    end
    for to, names in pairs(sees[from]) do
        for _, name in ipairs(names) do add(("src/%s/%s"):format(to, name)) end
    end
    words_of[from] = words
    return words
end

-- A declaration by hand gets round the rule for includes.
local function is_unseen(from, to, symbol)
    return sees[from] and sees[from][to] and not is_descriptor(symbol) and not words_seen(from)[symbol]
end

local reported = {}
for _, need in ipairs(needs) do
    local object, from, symbol = table.unpack(need)
    local to = home[symbol]
    if to and to ~= from and is_unseen(from, to, symbol) and not reported[object .. symbol] then
        reported[object .. symbol] = true
        problem("%s needs %s of %s, which no header that it may see declares", object:sub(#build + 2), symbol, to)
    end
    local above = to and to ~= from and floor_of[to] and floor_of[from] and floor_of[to] >= floor_of[from]
    if above and not is_descriptor(symbol) and not reported[object .. symbol] then
        reported[object .. symbol] = true
        problem("%s needs %s of %s", object:sub(#build + 2), symbol, to)
    end
end

-- The house, from the top.
for i = #floors, 1, -1 do
    for _, folder in ipairs(floors[i]) do
        local list = {}
        for to, count in pairs(arrows[folder] or {}) do
            if to ~= folder then list[#list + 1] = ("%s %d"):format(to:gsub("^core/", ""), count) end
        end
        table.sort(list)
        local s = size[folder] or {files = 0, lines = 0}
        print(("%-16s %3d files %6d lines  %s"):format(folder, s.files, s.lines, table.concat(list, ", ")))
    end
end
for _, text in ipairs(problems) do print(text) end
table.sort(counts)
print("units that see " .. table.concat(counts, ", "))
print(("%d violations"):format(#problems))
os.exit(#problems == 0)
