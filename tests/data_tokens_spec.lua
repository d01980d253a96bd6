-- data_tokens_spec.lua -- tokenizers of byte pairs: the ids that Hugging Face's `tokenizers` gives, any bytes, long pieces,
-- files that are wrong. tests/tokens holds small tokenizers with texts and their ids, made by `tokenizers` 0.23.
local flow = require "flow"
local json = require "flow.json"
local process = require "tests.process"
local data = flow.data

local here = "tests/tokens/"
local fixture = json.decode(process.read(here .. "expected.json"))
local folder, write

setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local pair = {vocab = here .. "vocab.json", merges = here .. "merges.txt"}
local sources = {
    bytes = here .. "bytes.json",       -- as LLaMA 3: Split, ByteLevel, NFC, a template; pieces that are tokens stay whole
    spaces = here .. "spaces.json",     -- as LLaMA 2: "▁" for spaces, byte fallback
    words = here .. "words.json",       -- Whitespace, Digits, Split, Punctuation; a suffix ends words
    pair = pair,                        -- GPT-2's files
}
local function open(name) return data.tokenizer(sources[name]) end
local function ids(tokenizer, text, options) return tokenizer:encode(text, options):totable() end

-- The message of a tokenizer.json: "bytes" after `change` has had it, or a text.
local function refused(change)
    local text = change
    if type(change) == "function" then
        local root = json.decode(process.read(here .. "bytes.json"))
        root = change(root) or root
        text = json.encode(root)
    end
    local ok, message = pcall(data.tokenizer, write("t.json", text))
    assert.is_false(ok)
    return (message:gsub("^.-tokenizer: ", "", 1):gsub(folder:gsub("%p", "%%%0"), "DIR"))
end

describe("encoding and decoding", function()
    for name in pairs(sources) do
        it("give what `tokenizers` gives: " .. name, function()
            local tokenizer = open(name)
            for i, text in ipairs(fixture.texts) do
                local expected = fixture.expected[name][i]
                assert.are.same(expected.ids, ids(tokenizer, text), text)
                assert.are.equal(expected.whole, tokenizer:decode(expected.ids), text)
                assert.are.equal(expected.text, tokenizer:decode(flow.tensor(expected.ids, {dtype = "int32"}), {skip_special_tokens = true}))
            end
        end)
    end

    it("leave the template out when asked", function()
        local bytes, spaces = open "bytes", open "spaces"
        assert.are.same({"<|bos|>", "h", "i"}, {bytes:token(ids(bytes, "hi")[1]), bytes:token(ids(bytes, "hi")[2]), "i"})
        local with, without = ids(spaces, "hello"), ids(spaces, "hello", {add_special_tokens = false})
        assert.are.same({1, 2}, {with[1], with[#with]})
        assert.are.same(without, {table.unpack(with, 2, #with - 1)})
    end)

    it("give int64 or int32, and lists for lists", function()
        local tokenizer = open "pair"
        assert.are.equal("int64", tokenizer:encode("a").dtype)
        local t = tokenizer:encode("a b", {dtype = "int32"})
        assert.are.equal("int32", t.dtype)
        local list = tokenizer:encode {"a b", "", "c"}
        assert.are.equal(3, #list)
        assert.are.same(t:totable(), list[1]:totable())
        assert.are.equal(0, list[2]:numel())
        assert.are.same({}, tokenizer:encode {})
        assert.are.equal("", tokenizer:decode {})
        assert.are.equal("a b", tokenizer:decode(list[1]))
        local columns = flow.stack({list[1], tokenizer:encode "c d"}, 1)      -- ids that do not lie side by side
        assert.are.equal("c d", tokenizer:decode(columns:select(1, 1)))
    end)

    it("of many texts give what each gives", function()
        for name in pairs(sources) do
            local tokenizer, texts = open(name), {}
            for i = 1, 800 do texts[i] = fixture.texts[1 + i % #fixture.texts] .. i end
            for i, t in ipairs(tokenizer:encode(texts, {dtype = "int32"})) do
                if i % 7 == 0 then assert.are.same(ids(tokenizer, texts[i]), t:totable()) end
            end
        end
    end)

    it("know ids and tokens", function()
        local tokenizer = open "pair"
        assert.are.equal(500, #tokenizer)
        assert.are.equal(0, tokenizer:id "<|endoftext|>")
        assert.are.equal("<|endoftext|>", tokenizer:token(0))
        assert.is_nil(tokenizer:id "no such token")
        assert.is_nil(tokenizer:token(500))
        assert.is_nil(tokenizer:token(-1))
        assert.are.equal("tokenizer of tests/tokens/vocab.json: byte-level BPE, 500 tokens, 243 merges, 1 added", tostring(tokenizer))
        assert.matches("^tokenizer of tests/tokens/spaces.json: BPE with byte fallback, 600 tokens", tostring(open "spaces"))
    end)
end)

describe("any bytes", function()
    local strange = {"\255", "a\255b", "\192\128", "\237\160\128", "é\xc3", "\xc3\xc3\xa9", "\0\1\2\127\128\255", "x \xf0\x9f\x98 y", ("\128"):rep(100)}

    it("come back from byte level and byte fallback", function()
        math.randomseed(1)
        local texts = {table.unpack(strange)}
        for _ = 1, 200 do
            local bytes = {}
            for j = 1, math.random(30) do bytes[j] = string.char(math.random(0, 255)) end
            texts[#texts + 1] = table.concat(bytes)
        end
        local level, back = open "pair", open "spaces"
        for _, text in ipairs(texts) do
            assert.are.equal(text, level:decode(level:encode(text)))
            assert.are.equal(text, back:decode(back:encode(text), {skip_special_tokens = true}))
        end
    end)

    it("that are not UTF-8 are a piece of their own", function()
        local tokenizer = open "pair"
        local function joined(...)
            local all = {}
            for _, text in ipairs {...} do table.move(ids(tokenizer, text), 1, #ids(tokenizer, text), #all + 1, all) end
            return all
        end
        assert.are.same(joined("the data", "\255\254", " and"), ids(tokenizer, "the data\255\254 and"))
    end)
end)

describe("a long piece", function()
    it("takes time in proportion to its length", function()
        for _, name in ipairs {"pair", "bytes", "spaces"} do
            local tokenizer = open(name)
            for _, text in ipairs {("a"):rep(1 << 19), (" "):rep(1 << 19), ("ab"):rep(1 << 17)} do
                local function seconds(part)
                    local started = os.clock()
                    tokenizer:encode(part)
                    return os.clock() - started
                end
                local quarter, fits = text:sub(1, #text // 4), false
                for _ = 1, 3 do fits = fits or seconds(text) < 8 * seconds(quarter) + 0.5 end -- other programs run, too
                assert.is_true(fits)
                local t = tokenizer:encode(text)
                assert.are.equal(text, tokenizer:decode(t, {skip_special_tokens = true}))
            end
        end
    end)

    it("has the tokens of short ones", function()
        local tokenizer = open "pair"
        for n = 40, 60 do           -- around the length where the way of merging changes
            local text = ("tokenizer"):rep(n):sub(1, n)
            local long = ids(tokenizer, text .. ("\n"):rep(3))
            local short = ids(tokenizer, text)
            assert.are.same(short, {table.unpack(long, 1, #short)})
        end
    end)
end)

describe("a file", function()
    local function text_of(count)
        local lines = {}
        for i = 1, count do lines[i] = fixture.texts[5 + i % 12] .. " line " .. i .. "\n" end
        return table.concat(lines)
    end

    it("has the ids of its text, whatever the threads", function()
        local text = text_of(6000)
        local path = write("long.txt", text)
        for name in pairs(sources) do
            local tokenizer = open(name)
            local expected = tokenizer:encode(text, {add_special_tokens = false})
            for _, workers in ipairs {1, 3} do
                local t = tokenizer:encode_file(path, {workers = workers})
                assert.are.equal("int64", t.dtype)
                assert.is_true(flow.equal(expected, t), name)
            end
            assert.is_true(flow.equal(tokenizer:encode(text), tokenizer:encode_file(path, {add_special_tokens = true})))
        end
        assert.are.equal("int32", open("pair"):encode_file(path, {dtype = "int32"}).dtype)
    end)

    it("may be empty, or have no place to cut", function()
        local tokenizer = open "pair"
        assert.are.equal(0, tokenizer:encode_file(write("empty.txt", "")):numel())
        local text = ("-"):rep(5 << 18)
        assert.is_true(flow.equal(tokenizer:encode(text), tokenizer:encode_file(write("dashes.txt", text))))
    end)

    it("that cannot be read is named", function()
        local tokenizer = open "pair"
        assert.error_matches(function() tokenizer:encode_file "/none" end, "encode_file: /none: No such file or directory$")
        assert.error_matches(function() tokenizer:encode_file "/dev/zero" end, "encode_file: /dev/zero: not a regular file$")
        assert.error_matches(function() tokenizer:encode_file "" end, "encode_file: the path is empty$")
    end)
end)

describe("a tokenizer's files", function()
    it("may be named by their folder", function()
        assert.are.equal(500, #data.tokenizer "tests/tokens")           -- vocab.json and merges.txt
        local whole = folder .. "/whole"
        assert(os.execute(("mkdir %s && cp tests/tokens/bytes.json %s/tokenizer.json"):format(whole, whole)))
        assert.are.equal(#open "bytes", #data.tokenizer(whole))
        assert.error_matches(function() data.tokenizer "tests/c" end,
            "tokenizer: tests/c holds neither tokenizer.json nor vocab.json with merges.txt$")
        assert.error_matches(function() data.tokenizer {vocab = "x"} end, "tokenizer: merges must be a path, got nil$")
        assert.error_matches(function() data.tokenizer {vocab = "x", merge = "y"} end, "tokenizer: unknown key 'merge'; did you mean 'merges'%?$")
        assert.error_matches(function() data.tokenizer "/none.json" end, "tokenizer: /none.json: No such file or directory$")
        assert.error_matches(function() data.tokenizer(3) end, "tokenizer: path must be a string or a table, got 3$")
    end)

    -- A change of a good tokenizer.json, and the message.
    local cases = {
        {"no JSON", "{", "the text ends early at byte 1 (line 1)"},
        {"a list", "[]", "not a JSON object"},
        {"nothing in it", "{}", "there is no model"},
        {"another model", function(t) t.model.type = "Unigram" end, "a model of type Unigram is not supported"},
        {"no vocabulary", function(t) t.model.vocab = nil end, "model.vocab must be an object of tokens and ids"},
        {"an empty vocabulary", function(t) t.model.vocab, t.model.merges = json.decode "{}", {} end, nil},
        {"no merges", function(t) t.model.merges = nil end, "model.merges must be a list of merges"},
        {"a merge of an unknown token", function(t) t.model.merges[3] = {"nope", "x"} end,
            'model.merges: entry 3: the token "nope" is not in the vocabulary'},
        {"a merge whose result is unknown", function(t) t.model.merges[1] = "! !" end,
            'model.merges: entry 1: what they make, "!!" is not in the vocabulary'},
        {"a merge of three", function(t) t.model.merges[2] = "a b c" end, "model.merges: entry 2: a merge is two tokens with a space between them"},
        {"a merge that is a number", function(t) t.model.merges[2] = 7 end, "model.merges: entry 2: a merge is a text or a pair of tokens"},
        {"ids twice", function(t) t.model.vocab = {a = 1, b = 1} end, 'have the same id 1'},
        {"an id that is no number", function(t) t.model.vocab.a = "x" end, 'the token "a" has an id that is no whole number >= 0'},
        {"a negative id", function(t) t.model.vocab.a = -1 end, 'the token "a" has an id that is no whole number >= 0'},
        {"a fraction", function(t) t.model.vocab.a = 1.5 end, 'the token "a" has an id that is no whole number >= 0'},
        {"a huge id", function(t) t.model.vocab.a = 1 << 40 end, 'the token "a" has an id beyond 4194303, the largest one supported'},
        {"dropout", function(t) t.model.dropout = 0.1 end, "model.dropout, which makes tokens random, is not supported"},
        {"an unknown token that is unknown", function(t) t.model.unk_token = "<none>" end, "model.unk_token is not in the vocabulary"},
        {"truncation", function(t) t.truncation = {max_length = 5} end, "truncation is not supported; write null in its place"},
        {"padding", function(t) t.padding = {pad_id = 0} end, "padding is not supported; write null in its place"},
        {"another normalizer", function(t) t.normalizer = {type = "Nmt"} end, "a normalizer of type Nmt is not supported"},
        {"a normalizer without a type", function(t) t.normalizer = {x = 1} end, "normalizer must be an object with a type"},
        {"another pre-tokenizer", function(t) t.pre_tokenizer = {type = "UnicodeScripts"} end, "a pre_tokenizer of type UnicodeScripts is not supported"},
        {"a step behind the bytes", function(t) table.insert(t.pre_tokenizer.pretokenizers, {type = "Digits"}) end,
            "a pre_tokenizer of type Digits behind one of type ByteLevel is not supported"},
        {"another decoder", function(t) t.decoder = {type = "CTC"} end, "a decoder of type CTC is not supported"},
        {"another post-processor", function(t) t.post_processor = {type = "X\27[31m"} end, "a post_processor of type X\\x1b[31m is not supported"},
        {"a wrong pattern", function(t) t.pre_tokenizer.pretokenizers[1].pattern.Regex = "a(b" end,
            "pre_tokenizer: the pattern is wrong: missing closing parenthesis (at byte 3 of it)"},
        {"sets within sets", function(t) t.pre_tokenizer.pretokenizers[1].pattern.Regex = "[a[bc]]" end,
            "pre_tokenizer: the pattern is not supported: a set within a set at byte 3"},
        {"intersections", function(t) t.pre_tokenizer.pretokenizers[1].pattern.Regex = "[\\w&&b]" end,
            "pre_tokenizer: the pattern is not supported: an intersection of sets at byte 4"},
        {"intervals with +", function(t) t.pre_tokenizer.pretokenizers[1].pattern.Regex = "a{1,3}+" end,
            "pre_tokenizer: the pattern is not supported: an interval followed by + at byte 7"},
        {"another behavior", function(t) t.pre_tokenizer.pretokenizers[1].behavior = "Dropped" end,
            "pre_tokenizer.behavior must be one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"},
        {"a flag that is a number", function(t) t.model.ignore_merges = 1 end, "model.ignore_merges must be true or false"},
        {"an added token without an id", function(t) t.added_tokens[1].id = nil end,
            'added_tokens: entry 1: the token "<|bos|>" has an id that is no whole number >= 0'},
        {"an added token with another id", function(t) t.added_tokens[1].id = 5 end, "added_tokens: entry 1: its id is 5, and 0 in what comes before"},
        {"two added tokens with an id", function(t) t.added_tokens[5].id = t.added_tokens[4].id end, nil},
        {"a template with an unknown id", function(t) t.post_processor.processors[2].special_tokens["<|bos|>"].ids[1] = 9999 end,
            "post_processor: the id of a special token is not that of a token"},
        {"a template without the text", function(t) t.post_processor.processors[2].single = {t.post_processor.processors[2].single[1]} end,
            "post_processor.single does not hold the text"},
        {"40 steps", function(t)
            t.normalizer = {type = "Sequence", normalizers = {}}
            for i = 1, 40 do t.normalizer.normalizers[i] = {type = "NFC"} end
        end, "normalizer has more than 32 steps"},
    }
    for _, case in ipairs(cases) do
        it("with " .. case[1] .. " are refused", function()
            local message = refused(case[2])
            assert.matches("^DIR/t.json: ", message)
            if case[3] then assert.is_truthy(message:find(case[3], 1, true), message) end
        end)
    end

    it("of GPT-2 are refused with the line", function()
        local function message(vocab, merges)
            return (select(2, pcall(data.tokenizer, {vocab = write("vocab.json", vocab), merges = write("merges.txt", merges)})):gsub(".*/", ""))
        end
        assert.are.equal('merges.txt: line 2: the token "c" is not in the vocabulary', message('{"a": 0, "b": 1, "ab": 2}', "#version: 0.2\na c\n"))
        assert.are.equal("merges.txt: line 1: a merge is two tokens with a space between them", message('{"a": 0}', "a\n"))
        assert.are.equal("vocab.json: the vocabulary is empty", message("{}", ""))
    end)
end)

describe("ids with holes", function()
    it("are kept; a hole is no token", function()
        local path = write("holes.json", json.encode {model = {type = "BPE", vocab = {a = 0, b = 7, ab = 100}, merges = {"a b"}}})
        local tokenizer = data.tokenizer(path)
        assert.are.equal(101, #tokenizer)
        assert.are.same({100, 0}, ids(tokenizer, "aba"))
        assert.is_nil(tokenizer:token(50))
        assert.error_matches(function() tokenizer:decode {0, 50} end, "decode: entry 2 is 50, which is no token %(ids are 0 to 100%)$")
        assert.error_matches(function() tokenizer:decode {math.mininteger} end, "entry 1 is %-9223372036854775808, which is no token")
    end)
end)

describe("a pattern", function()
    local function with(pattern)
        local root = json.decode(process.read(here .. "bytes.json"))
        root.pre_tokenizer.pretokenizers[1].pattern.Regex = pattern
        return data.tokenizer(write("pattern.json", json.encode(root)))
    end

    it("that backtracks for ever is an error", function()
        local tokenizer = with("(a+)+$")
        assert.error_matches(function() tokenizer:encode(("a"):rep(60) .. "b") end, "encode: the pattern backtracks too much on this text, at byte 1$")
    end)

    it("of another model cuts as the known ones do", function()
        -- The same pattern, in a form that is not known: PCRE2 matches it.
        local known = json.decode(process.read(here .. "bytes.json")).pre_tokenizer.pretokenizers[1].pattern.Regex
        local own, library = open "bytes", with("(?:" .. known .. ")")
        for _, text in ipairs(fixture.texts) do assert.are.same(ids(own, text), ids(library, text), text) end
    end)

    it("has Oniguruma's word characters, and single words end by those of Unicode", function()
        local function left(step)           -- the characters of ², a joiner, é and a comma that remain
            local root = json.decode(process.read(here .. "bytes.json"))
            root.pre_tokenizer.pretokenizers[1] = step
            local tokenizer = data.tokenizer(write("class.json", json.encode(root)))
            return tokenizer:decode(tokenizer:encode("²\u{200d}é,", {add_special_tokens = false}))
        end
        assert.are.equal("\u{200d},", left {type = "Split", pattern = {Regex = "\\w"}, behavior = "Removed"})
        assert.are.equal("²,", left {type = "Split", pattern = {Regex = "[\\p{L}\\x{200d}]"}, behavior = "Removed"})
        assert.are.equal("²é", left {type = "Split", pattern = {Regex = "[\\x{200d},]"}, behavior = "Removed"})
        local tokenizer = open "bytes"      -- "word" is found as a single word only
        assert.are.equal(tokenizer:id "word", ids(tokenizer, "word²")[2])
        assert.are_not.equal(tokenizer:id "word", ids(tokenizer, "word\u{200d}")[2])
    end)

    it("has Oniguruma's meaning of its letters", function()
        local tokenizer = with("\\h+|[\\s\\w]")
        assert.are.equal("BEEF \u{85}z", tokenizer:decode(tokenizer:encode("BEEF \u{85}z"), {skip_special_tokens = true}))
    end)
end)

describe("wrong calls", function()
    it("say what is expected", function()
        local tokenizer = open "pair"
        for _, case in ipairs {
            {function() tokenizer:encode() end, "encode: missing argument 'text'$"},
            {function() tokenizer:encode_file("x", {workers = 0}) end,
                "encode_file: workers must be a whole number in %[1, 256%], got 0$"},
            {function() tokenizer:encode(3) end, "encode: text must be a string or a table, got 3$"},
            {function() tokenizer:encode {"a", 3} end, "encode: text 2 must be a string, got 3$"},
            {function() tokenizer:encode {"a", nil, "b"} end, "encode: text 2 must be a string, got nil$"},
            {function() tokenizer:encode("a", {special = true}) end, "encode: unknown option 'special'"},
            {function() tokenizer:encode("a", {dtype = "float32"}) end, "encode: dtype must be one of int64|int32, got"},
            {function() tokenizer.encode("a") end, "encode: a method is called with a colon"},
            {function() tokenizer:decode("a") end, "decode: ids must be a tensor or a table, got"},
            {function() tokenizer:decode {1.5} end, "decode: entry 1 of ids must be a whole number, got 1.5$"},
            {function() tokenizer:decode(flow.zeros(2, 2):to "int64") end, "decode: ids must have one axis, got shape %[2, 2%]$"},
            {function() tokenizer:decode(flow.zeros(2)) end, "decode: ids must be integers, got float32$"},
            {function() tokenizer:token "a" end, "token: id must be a whole number, got"},
            {function() tokenizer:id(1) end, "id: token must be a string, got 1$"},
            {function() return tokenizer.vocabulary end, "Tokenizer has no 'vocabulary'"},
        } do
            assert.error_matches(case[1], case[2])
        end
    end)
end)
