-- readme_spec.lua -- what the README says is true: its scripts print what it shows, its commands exist.
local function read(path)
    local file = assert(io.open(path))
    local text = file:read "a"
    file:close()
    return text
end

local readme = read "README.md"
local flowlua = os.getenv "FLOWLUA" or "build/flowlua"

-- Output of a command, standard error included.
local function output(command)
    local pipe = assert(io.popen(command .. " 2>&1"))
    local text = pipe:read "a"
    return text, pipe:close()
end

describe("the README", function()
    local count = 0
    for code, shown in readme:gmatch("```lua\n(.-)```\n\n```text\n(.-)```") do
        count = count + 1
        it("prints what script " .. count .. " prints", function()
            local path = os.tmpname()
            local file = assert(io.open(path, "w"))
            file:write(code)
            file:close()
            local options = code:match("^%-%- flowlua (%-%-ranks %d+) script.lua\n") or ""
            local text = output(flowlua .. " " .. options .. " " .. path)
            os.remove(path)
            assert.are.equal(shown, (text:gsub(path:gsub("%p", "%%%0"), "script.lua")))
        end)
    end

    it("shows every script's output", function()
        assert.are.equal(select(2, readme:gsub("```lua\n", "")), count)
        assert.is_true(count > 0)
    end)

    it("names make targets that exist", function()
        local makefile = read "Makefile"
        for target in readme:gmatch("make ([%a-]+)") do
            assert.is_truthy(("\n" .. makefile):find("\n" .. target:gsub("%-", "%%-") .. ":"), "make " .. target)
        end
    end)

    it("names files that exist", function()
        local folders = {"", "scripts/", "tests/"}
        local tree = io.popen "find src -type d"
        for folder in tree:lines() do folders[#folders + 1] = folder .. "/" end
        tree:close()
        for path in readme:gmatch("`([%w_/]+%.%a+)`") do
            local found = false
            for _, folder in ipairs(folders) do
                local file = io.open(folder .. path)
                if file then
                    found = true
                    file:close()
                end
            end
            assert.is_true(found or path == "script.lua" or path:find("^FLOW") ~= nil or path:find("%.so$") ~= nil, path)
        end
    end)

    it("lists the packages of the Makefile", function()
        local makefile = read "Makefile"
        for list in makefile:gmatch("PACKAGES_%u+ = ([^\n]+)") do
            for package in list:gmatch("%S+") do
                local base = package == "gcc" or package == "make" or package == "pkg-config" or package == "libc6-dev"
                assert.is_truthy(base or readme:find(package, 1, true), package .. " is not justified in the README")
            end
        end
    end)
end)
