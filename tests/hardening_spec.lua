-- hardening_spec.lua -- the options of linker and compiler, as the release's ELF files show it: read here from their
-- headers, so that no tool is needed.
local process = require "tests.process"

-- Numbers of the ELF specification (https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html) and of GNU.
local ET_DYN, PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 3, 1, 2, 0x6474e551, 0x6474e552
local DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 5, 6, 10, 24, 30, 0x6ffffffb
local DF_BIND_NOW, DF_1_NOW, DF_1_PIE, PF_X, PF_W = 8, 1, 0x08000000, 1, 2

-- {type, segments = {{kind, flags, offset, address, size, memory}}, dynamic = {[tag] = value}, imports = {[name] = true}}
local function elf_of(bytes)
    assert(bytes:sub(1, 6) == "\127ELF\2\1", "a 64-bit little-endian ELF file")
    local elf = {segments = {}, dynamic = {}, imports = {}}
    elf.type = ("<I2"):unpack(bytes, 17)
    local table_at = ("<I8"):unpack(bytes, 33)
    local each, count = ("<I2I2"):unpack(bytes, 55)
    for i = 0, count - 1 do
        local kind, flags, offset, address, _, size, memory = ("<I4I4I8I8I8I8I8"):unpack(bytes, table_at + i * each + 1)
        elf.segments[i + 1] = {kind = kind, flags = flags, offset = offset, address = address, size = size, memory = memory}
    end
    local function at(address)
        for _, s in ipairs(elf.segments) do
            if s.kind == PT_LOAD and address >= s.address and address < s.address + s.size then return address - s.address + s.offset + 1 end
        end
    end
    for _, s in ipairs(elf.segments) do
        for i = s.offset + 1, s.kind == PT_DYNAMIC and s.offset + s.size - 15 or 0, 16 do
            local tag, value = ("<I8I8"):unpack(bytes, i)
            if tag == 0 then break end
            elf.dynamic[tag] = value
        end
    end
    -- Symbols lie in front of their names; an import has no section.
    local names, symbols = at(elf.dynamic[DT_STRTAB]), at(elf.dynamic[DT_SYMTAB])
    assert(names and symbols and names > symbols and elf.dynamic[DT_STRSZ])
    for i = symbols, names - 24, 24 do
        local name, _, _, section = ("<I4BBI2"):unpack(bytes, i)
        if section == 0 and name > 0 and name < elf.dynamic[DT_STRSZ] then elf.imports[("z"):unpack(bytes, names + name)] = true end
    end
    return elf
end

local function segment(elf, kind)
    for _, s in ipairs(elf.segments) do
        if s.kind == kind then return s end
    end
end

-- The files of a release build: those that are here.
local files = {process.flowlua}
for _, name in ipairs {"flowlua-mpi.so", "flowlua-cuda.so", "libflow.so", "flow.so"} do
    local path = process.flowlua:gsub("[^/]*$", name)
    if process.exists(path) then files[#files + 1] = path end
end

describe("a release build", function()
    if os.getenv("ASAN_OPTIONS") or not process.flowlua:find("build/flowlua$") then
        pending("is not what runs here")
        return
    end
    for _, path in ipairs(files) do
        local elf = elf_of(process.read(path))
        local name = path:match("[^/]*$")

        it("loads " .. name .. " at any address", function()
            assert.are.equal(ET_DYN, elf.type)
            if path == process.flowlua then assert.are_not.equal(0, (elf.dynamic[DT_FLAGS_1] or 0) & DF_1_PIE) end
        end)

        it("binds all of " .. name .. "'s imports at the start and makes their table read-only", function()
            local now = (elf.dynamic[DT_FLAGS] or 0) & DF_BIND_NOW | (elf.dynamic[DT_FLAGS_1] or 0) & DF_1_NOW
            assert.is_true(now ~= 0 or elf.dynamic[DT_BIND_NOW] ~= nil)
            assert.is_true(segment(elf, PT_GNU_RELRO).memory > 0)
        end)

        it("has neither a stack that can be executed nor memory that can be written and executed in " .. name, function()
            assert.are.equal(0, segment(elf, PT_GNU_STACK).flags & PF_X)
            for _, s in ipairs(elf.segments) do
                if s.kind == PT_LOAD then assert.are_not.equal(PF_X | PF_W, s.flags & (PF_X | PF_W)) end
            end
        end)

        it("guards the stack of " .. name, function() assert.is_true(elf.imports.__stack_chk_fail) end)

        -- a call whose bounds the compiler sees to be kept is not checked: the MPI plug-in has no others
        if not name:find("mpi", 1, true) then it("checks the bounds of what the C library writes for " .. name, function()
            local checked = false
            for import in pairs(elf.imports) do checked = checked or import:find("_chk$") ~= nil end
            assert.is_true(checked)
        end) end
    end
end)
