-- tokens.lua -- the README as tokens, by the small tokenizers of tests/tokens. The peer is Hugging Face's `tokenizers`.

local flow = require "flow"

local M = {}

local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../../"

local function case(name)
    return function()
        local tokenizer = flow.data.tokenizer(root .. "tests/tokens/" .. name .. ".json")
        local text = flow.data.read(root .. "README.md")
        return function(count)
            for _ = 1, count do tokenizer:encode(text) end
        end
    end
end

for _, name in ipairs {"bytes", "spaces", "words"} do M[name] = case(name) end

-- The tokens back to the text.
function M.decode()
    local tokenizer = flow.data.tokenizer(root .. "tests/tokens/bytes.json")
    local tokens = tokenizer:encode(flow.data.read(root .. "README.md"))
    return function(count)
        for _ = 1, count do tokenizer:decode(tokens) end
    end
end

return M
