-- readme_spec.lua -- what the README and docs/ say is true: their scripts print what they show, their commands exist.
local process = require "tests.process"

local read = process.read
local readme = read "README.md"
local manuals = process.lines(process.output "ls README.md docs/*.md")

for _, document in ipairs(manuals) do
    describe(document, function()
        local text, count = read(document), 0
        for code, shown in text:gmatch("```lua\n(.-)```\n\n```text\n(.-)```") do
            count = count + 1
            it("prints what script " .. count .. " prints", function()
                local options = code:match "^%-%- flowlua (%-%-%a+ %d+) script.lua\n"
                assert.are.equal(shown, (process.run("", code, options)))
            end)
        end

        it("shows every script's output", function()
            assert.are.equal(select(2, text:gsub("```lua\n", "")), count)
            assert.is_true(count > 0)
        end)
    end)
end

describe("the documents", function()

    -- CONTRIBUTING.md adds an op and a module as examples: their files are not there.
    local function is_example(path)
        return path == "script.lua" or path:find "^outer" ~= nil or path:find "/outer" ~= nil or path:find "/name.lua$" ~= nil
    end

    for _, document in ipairs {"CONTRIBUTING.md", table.unpack(manuals)} do
        it("names make targets that exist, in " .. document, function()
            local makefile = read "Makefile"
            for target in read(document):gmatch("[`\n]make ([%l-]+)%f[%s`]") do
                local found = ("\n" .. makefile):find("\n" .. target:gsub("%-", "%%-") .. ":")
                assert.is_truthy(found, "make " .. target)
            end
        end)

        it("names files and folders that exist, in " .. document, function()
            local folders = {"", "scripts/", "scripts/bench/", "tests/", "tests/cuda/"}
            for _, folder in ipairs(process.lines(process.output "find src -type d")) do folders[#folders + 1] = folder .. "/" end
            local function exists(path)
                for _, folder in ipairs(folders) do
                    if process.exists(folder .. path) then return true end
                end
            end
            local text = read(document)
            for path in text:gmatch("`([%w_/]+%.%a+)`") do
                local other = is_example(path) or path:find "^FLOW" or path:find "^flow%."
                    or path:find "%.so$" or path:find "%.a$"
                assert.is_truthy(other or exists(path), path)
            end
            for path in text:gmatch("`(src/[%w_/]+)`") do assert.is_truthy(exists(path), path) end
        end)
    end

    for _, map in ipairs {{"README.md", "`src/core/(%w+)`"}, {"CONTRIBUTING.md", "\n| `(%w+)` |"}} do
        local document, row = table.unpack(map)
        it("have a row for every folder of src/core, in " .. document, function()
            local rows = {}
            for folder in read(document):gmatch(row) do rows[folder] = true end
            rows.api = true     -- CONTRIBUTING.md has it in a table of its own
            for _, path in ipairs(process.lines(process.output "ls -d src/core/*/")) do
                local folder = path:match "([^/]+)/$"
                assert.is_truthy(rows[folder], folder)
            end
        end)
    end

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
