-- data_text.lua -- the characters of a text as numbers.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io

local text_ = {}

---Numbers of the distinct characters of a text (bytes if it is not UTF-8), from 0 in the order of their codes.
---@class flow.data.Text
---@field characters string[]
---@field tokens any tensor of uint8 or int32
local Text = {}
Text.__index = Text

---@param text string
---@return flow.data.Text
function text_.text(text)
    local characters, tokens = io_.characters(text)
    local numbers = {}
    for i, character in ipairs(characters) do numbers[character] = i - 1 end
    return setmetatable({characters = characters, tokens = tokens, numbers = numbers}, Text)
end

---The numbers of a string, int64; a character that is not in the text is an error.
---@param s string
function Text:encode(s)
    local list = {}
    local pattern = utf8.len(s) and utf8.charpattern or "."
    for character in s:gmatch(pattern) do
        local number = self.numbers[character]
        if not number then check.fail("encode: the text has no character %q", character) end
        list[#list + 1] = number
    end
    return #list > 0 and flow.tensor(list, {dtype = "int64"}) or flow.zeros(0, {dtype = "int64"})
end

---The string for a tensor or list of numbers.
---@return string
function Text:decode(numbers)
    if check.is_tensor(numbers) and numbers:dim() ~= 1 then
        check.fail("decode: numbers must have one axis, got shape %s", check.shape(numbers))
    end
    local list = check.is_tensor(numbers) and numbers:totable() or numbers
    local parts = {}
    for i, number in ipairs(list) do
        if type(number) ~= "number" then
            check.fail("decode: entry %d of numbers must be a number, got %s", i, check.got(number))
        end
        parts[i] = self.characters[number + 1] or check.fail("decode: there is no character %s", check.got(number))
    end
    return table.concat(parts)
end

check.takes(text_, {"text(text: string)"})
check.methods(Text, "text", {"encode(s: string)", "decode(numbers: tensor or list)"})
check.strict("Text", Text)
return text_
