-- ported_spec.lua -- known programs, ported as a user would write them (tests/ported), have PyTorch's numbers, which
-- tests/peer/ported.py wrote; steps that a program captures are also run as they are.
local flow = require "flow"
local json = require "flow.json"

local file <close> = assert(io.open "tests/ported/expected.json")
local expected = json.decode(file:read "a")

-- The programs that compute in float32; the others in float64.
local tolerance = {mnist_cnn = 1e-4, gpt2_weights = 1e-4, autoencoder = 1e-4}

local function compare(want, got, most, where)
    if type(want) ~= "table" then
        local apart = math.abs(want - got)
        if apart ~= apart or apart > most * (1 + math.abs(want)) then
            error(("%s is %.12g, PyTorch's is %.12g"):format(where, got, want), 0)
        end
        return
    end
    assert.are.equal(#want, #got, where .. ": how many")
    for key, value in pairs(want) do
        if got[key] == nil then error(("%s has no %s"):format(where, key), 0) end
        compare(value, got[key], most, ("%s[%s]"):format(where, key))
    end
end

-- A tensor's numbers.
local function plain(value)
    if flow.is_tensor(value) then return value:totable() end
    if type(value) ~= "table" then return value end
    local copy = {}
    for key, v in pairs(value) do copy[key] = plain(v) end
    return copy
end

local function run(name, capture)
    local result = plain(dofile("tests/ported/" .. name .. ".lua")(capture))
    compare(expected[name], result, tolerance[name] or 1e-8, name)
end

local names = {}
for name in pairs(expected) do names[#names + 1] = name end
table.sort(names)

describe("ported programs", function()
    for _, name in ipairs(names) do
        local captures = false
        it(name, function()
            run(name, function(f)
                captures = true
                return f
            end)
        end)
        it(name .. ", with captured steps", function()
            if captures then run(name, flow.capture) end
        end)
    end
end)
