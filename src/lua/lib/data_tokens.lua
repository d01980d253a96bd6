-- data_tokens.lua -- text as the tokens of a byte-pair tokenizer.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io
local tokens = io_.tokens

local data_tokens = {}

---A tokenizer from files. Ids count from 0; `#tokenizer` is the largest id + 1, the rows that an embedding needs.
---@class flow.data.Tokenizer
local Tokenizer = {}
Tokenizer.__index = Tokenizer

-- The files of a folder: tokenizer.json, else vocab.json and merges.txt.
local function find_files(folder)
    if not io_.entries("tokenizer", folder) then return folder end
    local whole, vocab, merges = folder .. "/tokenizer.json", folder .. "/vocab.json", folder .. "/merges.txt"
    if io_.exists("tokenizer", whole) then return whole end
    if io_.exists("tokenizer", vocab) and io_.exists("tokenizer", merges) then return vocab, merges end
    check.fail("tokenizer: %s holds neither tokenizer.json nor vocab.json with merges.txt", folder)
end

-- {vocab =, merges =}
local function read_pair(files)
    for _, key in ipairs(check.sorted_keys(files)) do
        if key ~= "vocab" and key ~= "merges" then
            check.fail("tokenizer: unknown key %s%s", check.quote(tostring(key)),
                check.suggest(tostring(key), {"vocab", "merges"}))
        end
    end
    for _, key in ipairs {"vocab", "merges"} do
        if type(files[key]) ~= "string" then
            check.fail("tokenizer: %s must be a path, got %s", key, check.got(files[key]))
        end
    end
    return files.vocab, files.merges
end

---A byte-pair tokenizer from a tokenizer.json (Hugging Face), a folder that holds one or GPT-2's vocab.json with
---merges.txt, or {vocab = path, merges = path}. A feature of the file that is not supported is an error that names it.
---@param path string|table
---@return flow.data.Tokenizer
function data_tokens.tokenizer(path)
    local first, second
    if type(path) == "string" then first, second = find_files(path) else first, second = read_pair(path) end
    return setmetatable({_handle = tokens.open(first, second), _path = first}, Tokenizer)
end

---The ids of a text, a tensor of one axis; of a list of texts, which threads share, a list of them. Options:
---add_special_tokens (true): those that the tokenizer's template puts around a text; dtype: "int64" or "int32".
---@param text string|string[]
---@param options table?
function Tokenizer:encode(text, options)
    if type(text) == "string" then
        return tokens.encode(self._handle, text, options.add_special_tokens, options.dtype)
    end
    for i = 1, #text do
        local one = text[i]
        if type(one) ~= "string" then check.fail("encode: text %d must be a string, got %s", i, check.got(one)) end
    end
    if #text == 0 and next(text) ~= nil then check.fail("encode: takes a text or a list of texts") end
    return tokens.encode_list(self._handle, text, options.add_special_tokens, options.dtype)
end

---The ids of a large file: those of its text, read in blocks that threads share. Options: add_special_tokens (false),
---dtype, workers (threads, default one per core).
---@param path string
---@param options table?
function Tokenizer:encode_file(path, options)
    return tokens.encode_file(self._handle, path, options.add_special_tokens, options.dtype, options.workers)
end

local function ids_of(list)
    for i, id in ipairs(list) do
        if math.type(id) == nil or not math.tointeger(id) then
            check.fail("decode: entry %d of ids must be a whole number, got %s", i, check.got(id))
        end
    end
    return #list > 0 and flow.tensor(list, {dtype = "int64"}) or flow.zeros(0, {dtype = "int64"})
end

---The text of a tensor or list of ids. Bytes that are not UTF-8 come back as they were. Options: skip_special_tokens
---(false).
---@param ids any
---@param options table?
---@return string
function Tokenizer:decode(ids, options)
    if not check.is_tensor(ids) then
        ids = ids_of(ids)
    elseif ids:dim() > 1 then
        check.fail("decode: ids must have one axis, got shape %s", check.shape(ids))
    elseif ids.dtype:find "float" or ids.dtype == "bool" then
        check.fail("decode: ids must be integers, got %s", ids.dtype)
    end
    return tokens.decode(self._handle, ids:to("int64"):contiguous(), options.skip_special_tokens)
end

---The id of a token as the file writes it; nil: there is none.
---@param token string
---@return integer?
function Tokenizer:id(token)
    return tokens.id(self._handle, token)
end

---The token of an id as the file writes it; nil: there is none.
---@param id integer
---@return string?
function Tokenizer:token(id)
    return tokens.token(self._handle, id)
end

function Tokenizer:__len() return tokens.size(self._handle) end

function Tokenizer:__tostring()
    return ("tokenizer of %s: %s"):format(io_.clean(self._path), tokens.describe(self._handle))
end

check.takes(data_tokens, {"tokenizer(path: string or table)"})
check.methods(Tokenizer, "tokenizer", {
    "encode(text: string or list, {add_special_tokens: boolean = true, dtype: int64|int32 = int64})",
    [[encode_file(path: string, {add_special_tokens: boolean = false, dtype: int64|int32 = int64,
        workers: integer 1..256?})]],
    "decode(ids: tensor or list, {skip_special_tokens: boolean = false})",
    "id(token: string)", "token(id: integer)",
})
check.strict("Tokenizer", Tokenizer)
return data_tokens
