-- data_tokens.lua -- a text as the tokens of a byte-pair tokenizer: the first step of training a language model.
--
--   flowlua examples/lua/data_tokens.lua                           makes a small tokenizer of its own
--   flowlua examples/lua/data_tokens.lua FOLDER TEXT               one of GPT-2's, LLaMA's or Qwen's kind, and a file

local flow = require "flow"
local json = require "flow.json"

-- A tokenizer.json as Hugging Face writes it: 256 bytes, as characters, and pairs of them, the most frequent first.
local function small_tokenizer(pairs_of_tokens)
    local vocab, id = {}, 0
    local function add(token) vocab[token], id = id, id + 1 end
    local odd = 256
    for byte = 0, 255 do
        local plain = byte > 32 and byte < 127 or byte > 160 and byte ~= 173
        add(utf8.char(plain and byte or odd))
        if not plain then odd = odd + 1 end
    end
    for _, pair in ipairs(pairs_of_tokens) do add((pair:gsub(" ", ""))) end
    return json.encode {
        added_tokens = {{id = id, content = "<|endoftext|>", special = true}},
        pre_tokenizer = {type = "ByteLevel", add_prefix_space = false}, decoder = {type = "ByteLevel"},
        model = {type = "BPE", vocab = vocab, merges = pairs_of_tokens},
    }
end

local function write(text)
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "wb"))
    file:write(text)
    return path
end

local own = not arg[1] and write(small_tokenizer {"t h", "Ġ th", "Ġth e", "a t", "i n", "Ġ c"})
local tokenizer = flow.data.tokenizer(own or arg[1])
print(#tokenizer, tokenizer:token(258))
--> 263	Ġthe

local ids = tokenizer:encode "the cat sat in the hat"
print(ids:numel(), tokenizer:decode(ids))
--> 13	the cat sat in the hat

-- Texts one behind the other, with a token between them.
local stories = tokenizer:encode {"one", "two"}
local stop = flow.tensor {tokenizer:id "<|endoftext|>"}
print(tokenizer:decode(flow.cat {stories[1], stop, stories[2]}))
--> one<|endoftext|>two

-- A file of any size; next tokens are what a model learns to say.
local book = arg[2] or write(("the cat in the hat\n"):rep(1000))
local tokens = tokenizer:encode_file(book)
local x, y = tokens:narrow(0, 0, 8), tokens:narrow(0, 1, 8)
print(tokens.shape, x:numel(), y[7]:item() == tokens[8]:item())
--> [11000]	8	true

if own then os.remove(own) end
if not arg[2] then os.remove(book) end
