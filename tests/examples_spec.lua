-- examples_spec.lua -- every script in examples/lua is short and prints the lines that its comments `-->` show.
local process = require "tests.process"

describe("examples/lua", function()
    for _, path in ipairs(process.lines(process.output "ls examples/lua/*.lua")) do
        it(path:match "[^/]*$", function()
            local text, shown, lines = process.read(path), {}, select(2, process.read(path):gsub("\n", ""))
            for line in text:gmatch "\n%-%-> ([^\n]*)" do shown[#shown + 1] = line .. "\n" end
            assert.is_true(lines <= 60, lines .. " lines")
            assert.is_true(#shown > 0, "prints nothing")
            assert.are.equal(table.concat(shown), (process.output(("%s %s 2>&1"):format(process.flowlua, path))))
        end)
    end
end)
