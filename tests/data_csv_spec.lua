-- data_csv_spec.lua -- tables of text: their notations, the types of columns, errors.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local data = flow.data

local folder, write
setup(function() folder, write = process.folder() end)
teardown(function() os.execute("rm -rf " .. folder) end)

local message_of = support.message_of

local function csv(text, options) return data.csv(write("a.csv", text), options) end

-- Columns as plain Lua values, with their dtypes: {{"a", "int64", {1, 2}}, ...}
local function plain(columns)
    local list = {}
    for name, column in columns do
        if flow.is_tensor(column) then list[#list + 1] = {name, column.dtype, column:totable()}
        elseif column.codes then list[#list + 1] = {name, "category", column.codes:totable(), column.names}
        else list[#list + 1] = {name, "text", column} end
    end
    return list
end

-- nan as a word, since it is not equal to itself.
local function with_words(list)
    for _, column in ipairs(list) do
        for i, value in ipairs(column[3]) do
            if value ~= value then column[3][i] = "nan" end
        end
    end
    return list
end

describe("data.csv", function()
    for _, case in ipairs {
        {"infers types", "i,f,b,s\n1,0.5,true,x\n-2,1e3,False,2y\n",
            {{"i", "int64", {1, -2}}, {"f", "float64", {0.5, 1000}}, {"b", "bool", {true, false}}, {"s", "text", {"x", "2y"}}}},
        {"makes integers beyond int64 floats", "a,b\n9223372036854775807,9223372036854775808\n",
            {{"a", "int64", {math.maxinteger}}, {"b", "float64", {2.0 ^ 63}}}},
        {"keeps text as it is where a cell is no number", "a,b\n007,0\n1e5x,NA\n", {{"a", "text", {"007", "1e5x"}}, {"b", "float64", {0, "nan"}}}},
        {"makes columns of numbers and booleans text", "a\n1\ntrue\n", {{"a", "text", {"1", "true"}}}},
        {"makes missing cells nan", "a,b,c,d\n1,1.5,true,x\n,NA,null,\n",
            {{"a", "float64", {1, "nan"}}, {"b", "float64", {1.5, "nan"}}, {"c", "float64", {1, "nan"}}, {"d", "text", {"x", ""}}}},
        {"reads columns without any value", "a,b\n1,\n2,\n", {{"a", "int64", {1, 2}}, {"b", "float64", {"nan", "nan"}}}},
        {"reads inf and nan", "a\ninf\n-Infinity\nNaN\n+INF\n", {{"a", "float64", {math.huge, -math.huge, "nan", math.huge}}}},
        {"takes other words for missing", "a,b\n?,NA\n1,x\n", {{"a", "float64", {"nan", 1}}, {"b", "text", {"NA", "x"}}}, {missing = {"?"}}},
        {"fills", "a,b,c,d\n1,,true,x\n,2.5,,\n",
            {{"a", "int64", {1, 7}}, {"b", "float64", {7, 2.5}}, {"c", "bool", {true, true}}, {"d", "text", {"x", ""}}}, {fill = 7}},
        {"fills by name", "a,b\n1,\n,2\n", {{"a", "int64", {1, -1}}, {"b", "float64", {"nan", 2}}}, {fill = {a = -1}}},
        {"makes integers filled with a fraction floats", "a\n1\n \n2\n,\n", nil, {fill = 0.5}, "a.csv:5: 2 cells; line 1, the header, has 1"},
        {"fills integers with a fraction", "a,b\n1,1\n,1\n", {{"a", "float64", {1, 0.5}}, {"b", "int64", {1, 1}}}, {fill = 0.5}},
        {"unquotes", 'a,b\n"x, ""y""\nz",1\n"","2"\n', {{"a", "text", {'x, "y"\nz', ""}}, {"b", "int64", {1, 2}}}},
        {"takes a quote within a cell as it is", 'a,b\n5" pipe,1\nx"y",2\n', {{"a", "text", {'5" pipe', 'x"y"'}}, {"b", "int64", {1, 2}}}},
        {"takes blanks around cells away", 'a , b\n 1 ,  x y \n2, " z "\n', {{"a", "int64", {1, 2}}, {"b", "text", {"x y", " z "}}}},
        {"takes another quote, and none", "a,b\n'x,y',\"\n", {{"a", "text", {"x,y"}}, {"b", "text", {'"'}}}, {quote = "'"}},
        {"reads without quotes", 'a,b\n"x,1\n', {{"a", "text", {'"x'}}, {"b", "int64", {1}}}, {quote = ""}},
        {"reads lines that end in CR LF", "a,b\r\n1,x\r\n\r\n2,y\r\n", {{"a", "int64", {1, 2}}, {"b", "text", {"x", "y"}}}},
        {"reads a mark of UTF-8 and a last line without an end", "\xef\xbb\xbfa,b\n1,x", {{"a", "int64", {1}}, {"b", "text", {"x"}}}},
        {"leaves out comments and empty lines", "# one\n\na,b\n1,2\n  \n#3,\"4\n5,6\n", {{"a", "int64", {1, 5}}, {"b", "int64", {2, 6}}}, {comment = "#"}},
        {"skips lines", "made by \"x\na,b\n1,2\n", {{"a", "int64", {1}}, {"b", "int64", {2}}}, {skip = 1}},
        {"reads some rows", "a\n1\n2\nx\n", {{"a", "int64", {1, 2}}}, {limit = 2}},
        {"reads no rows", "a,b\n1,2\n", {{"a", "float64", {}}, {"b", "float64", {}}}, {limit = 0}},
        {"reads a header alone", "a,b\n", {{"a", "float64", {}}, {"b", "float64", {}}}},
        {"reads some columns in the order of the script", "a,b,c\n1,x,2\n3,\"y,z\",4\n", {{"c", "int64", {2, 4}}, {"a", "int64", {1, 3}}}, {columns = {"c", "a"}}},
        {"finds tabs", "a\tb\n1,5\tx y\n\t\n", {{"a", "text", {"1,5", ""}}, {"b", "text", {"x y", ""}}}},
        {"finds semicolons", "a;b, c;d\n1;2;3\n", {{"a", "int64", {1}}, {"b, c", "int64", {2}}, {"d", "int64", {3}}}},
        {"finds bars", "a|b\n1|2\n", {{"a", "int64", {1}}, {"b", "int64", {2}}}},
        {"finds blanks between numbers", "  1   2.5\n 3\t-4 \n", {{"c0", "int64", {1, 3}}, {"c1", "float64", {2.5, -4}}}},
        {"finds blanks in a line without an end", "1 2.5", {{"c0", "int64", {1}}, {"c1", "float64", {2.5}}}},
        {"takes an open quote behind a blank for a character", '1 "2\n3 4\n', {{'1 "2', "text", {"3 4"}}}, {header = true}},
        {"takes blanks as the delimiter", 'a  b\n x   "y z" \n', {{"a", "text", {"x"}}, {"b", "text", {"y z"}}}, {delimiter = " "}},
        {"takes lines of text as one column", "text\nhello world\nno comma here\n", {{"text", "text", {"hello world", "no comma here"}}}},
        {"takes a comma for the point", "a;b\n1,5;-2,25e1\n", {{"a", "float64", {1.5}}, {"b", "float64", {-22.5}}}, {decimal = ",", delimiter = ";"}},
        {"sees that there is no header", "1,x\n2,y\n", {{"c0", "int64", {1, 2}}, {"c1", "text", {"x", "y"}}}},
        {"takes the first line for a header if told to", "1,2\n3,4\n", {{"1", "int64", {3}}, {"2", "int64", {4}}}, {header = true}},
        {"takes it for a record if told to", "a,b\n1,x\n", {{"c0", "text", {"a", "1"}}, {"c1", "text", {"b", "x"}}}, {header = false}},
        {"takes names from the script", "1,2\n", {{"x", "int64", {1}}, {"y", "int64", {2}}}, {names = {"x", "y"}}},
        {"names each column once", "a,a,,a\n1,2,3,4\n", {{"a", "int64", {1}}, {"a.1", "int64", {2}}, {"c2", "int64", {3}}, {"a.2", "int64", {4}}}},
        {"takes types from the script", "a,b,c,d,e\n007,1,2,1,0.1\n,,3,0,2\n",
            {{"a", "text", {"007", ""}}, {"b", "float64", {1, "nan"}}, {"c", "float32", {2, 3}}, {"d", "bool", {true, false}},
                {"e", "float32", {flow.tensor {0.1}:item(), 2}}},
            {types = {a = "text", b = "float64", c = "float32", d = "bool", e = "float32"}}},
        {"reads floats as float32", "a,b\n1,0.5\n", {{"a", "int64", {1}}, {"b", "float32", {0.5}}}, {floats = "float32"}},
        {"numbers categories", "s\nb\na\nNA\nb\n\nc\n", {{"s", "category", {1, 0, -1, 1, 2}, {"a", "b", "c"}}}, {types = {s = "category"}}},
        {"numbers categories that are given", "s\nb\na\nz\n", {{"s", "category", {0, 1, -1}, {"b", "a"}}}, {types = {s = {"b", "a"}}}},
        {"reads times", "t\n1970-01-01\n2000-03-01 12:30\n2024-02-29T23:59:59.5Z\n1969-12-31T23:00:00-01:30\n\n",
            {{"t", "float64", {0, 951913800, 1709251199.5, 1800}}}, {types = {t = "time"}}},
    } do
        it(case[1], function()
            if case[5] then return assert.matches(case[5], message_of(csv, case[2], case[4]), 1, true) end
            assert.are.same(case[3], with_words(plain(csv(case[2], case[4]))))
        end)
    end

    it("reads numbers to the nearest double", function()
        local texts, state = {}, 1
        local function random(n)
            state = state * 6364136223846793005 + 1442695040888963407
            return (state >> 33) % n
        end
        for i = 1, 3000 do
            local digits = {}
            for k = 1, random(25) + 1 do digits[k] = random(10) end
            local text = table.concat(digits)
            local point = random(#text + 1)
            text = text:sub(1, point) .. "." .. text:sub(point + 1)
            if random(2) == 0 then text = text .. "e" .. random(61) - 30 end
            texts[i] = (random(2) == 0 and "-" or "") .. text
        end
        for _, text in ipairs {"0.1", "1e22", "1e23", "123456789012345678", "9007199254740993.0", "9007199254740992.99", "1.7976931348623157e308", "1e309", "5e-324",
            "2.2250738585072011e-308", "0." .. ("0"):rep(400) .. "1e400", ("1"):rep(500) .. "e-499", "1e-400", "000001.5", "-0.0", ".5", "5."} do
            texts[#texts + 1] = text
        end
        local column = csv("x\n" .. table.concat(texts, "\n") .. "\n").x
        assert.are.equal("float64", column.dtype)
        for i, value in ipairs(column:totable()) do
            if value ~= tonumber(texts[i]) + 0.0 then assert.are.equal(("%s %.17g"):format(texts[i], tonumber(texts[i])), ("%s %.17g"):format(texts[i], value)) end
        end
    end)

    it("reads files of several pieces, whatever a late row brings", function()
        local rows = {}
        for i = 1, 120000 do rows[i] = ('%d,%d,"line\n%d",%s,%d'):format(i, i % 7, i, i % 2 == 0 and "true" or "false", i) end
        rows[110000] = '110000,0.5,"line\n110000",,x'
        local text = "a,b,c,d,e\n" .. table.concat(rows, "\n") .. "\n"
        assert.is_true(#text > 3 << 20)
        local columns = csv(text)
        assert.are.equal("int64", columns.a.dtype)
        assert.are.equal(120000 * 120001 // 2, columns.a:sum():item())
        assert.are.equal("float64", columns.b.dtype)
        assert.are.equal(0.5, columns.b[109999]:item())
        assert.are.equal(6, columns.b[5]:item())
        assert.are.equal("line\n119999", columns.c[119999])
        assert.are.equal("float64", columns.d.dtype)
        assert.are.equal("x", columns.e[110000])
        assert.are.equal("1", columns.e[1])
        for _, threads in ipairs {1, 3} do
            local before = flow.get_num_threads()
            flow.set_num_threads(threads)
            assert.are.equal(120000, columns.a:eq(csv(text, {columns = {"a"}}).a):to("int64"):sum():item())
            flow.set_num_threads(before)
        end
        rows[100000], rows[115000] = "1,2,x", "1,2,3,4,5,6"
        assert.are.equal(("csv: %s/a.csv:%d: 3 cells; line 1, the header, has 5"):format(folder, 2 * 99999 + 2),
            message_of(csv, "a,b,c,d,e\n" .. table.concat(rows, "\n")))
    end)

    it("reads what gzip has compressed", function()
        local path = write("z.csv", "a,b\n1,x\n2,y\n")
        assert(os.execute("gzip -kf " .. path))
        assert.are.same(plain(data.csv(path)), plain(data.csv(path .. ".gz")))
    end)

    for _, case in ipairs {
        {"", "holds no records"}, {"\n\n", "holds no records"}, {"# x\n", "holds no records", {comment = "#"}},
        {"a,b\n1,2\n3\n", "3: 1 cells; line 1, the header, has 2"}, {"1,2\n3,4,5\n", "2: 3 cells; line 1 has 2"},
        {'a,b\n1,2\n3,"4\n5,6\n', '3: the quote that opens here is not closed; without quotes in the file: quote = ""'},
        {'a,b\n1,"x"y\n', "2:6: text after the closing quote of a cell; a quote within one is written twice"},
        {'a,"b"c\n1,2\n', "1:6: text after the closing quote of a cell; a quote within one is written twice"},
        {"a\n1\nx\27\n", "3:1: column 'a' holds 'x\\x1b', not a whole number", {types = {a = "int64"}}},
        {"a,b\n1,\"2\n\"\n", "2:4: column 'b' holds '2\\x0a', not a number", {types = {b = "float32"}}},
        {"a\n1.5\n", "2:1: column 'a' holds '1.5', not a whole number", {types = {a = "int64"}}},
        {"a\n-9223372036854775809\n", "2:1: column 'a' holds '-9223372036854775809', not a whole number of 64 bits",
            {types = {a = "int64"}}},
        {"a\nyes\n", "2:1: column 'a' holds 'yes', not true or false", {types = {a = "bool"}}},
        {"t\n2023-02-29\n", "2:1: column 't' holds '2023-02-29', not a time, as 2024-01-31 or 2024-01-31T23:59:59Z", {types = {t = "time"}}},
        {"a,b\n1,NA\n", "2:3: column 'b' holds nothing here; give it a fill, or no type", {types = {b = "int64"}}},
        {"\xff\xfea\0", "its text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8 old > new"},
        {"PK\3\4xxxx", "a zip archive, as spreadsheets (.xlsx) and others are, not text; unpack or export it"},
        {"a,b\r1,2\r", "its lines end in CR alone; convert it: tr '\\r' '\\n' < old > new"},
        {"a\0b", "not a file of text: it has bytes of 0"},
    } do
        it(("says what is wrong in %q"):format(case[1]), function()
            local message = message_of(csv, case[1], case[3])
            assert.are.equal(("csv: %s/a.csv:%s%s"):format(folder, case[2]:find "^%d" and "" or " ", case[2]), message)
        end)
    end

    for _, case in ipairs {
        {{columns = {"d"}}, "csv: PATH has no column 'd', which columns names"},
        {{columns = {"alpha"}}, "csv: PATH has no column 'alpha', which columns names; did you mean 'alpa'?"},
        {{types = {beta1 = "text"}}, "csv: PATH has no column 'beta1', which types names; did you mean 'beta'?"},
        {{fill = {gamma = 1}}, "csv: PATH has no column 'gamma', which fill names"},
        {{types = {beta = "float"}},
            "csv: the type of 'beta' must be one of bool|int64|float32|float64|time|text|category, or a list of categories, got 'float'; it is called 'float32' here"},
        {{types = {beta = {"x", "x"}}}, "csv: the categories of 'beta' must be strings, none twice, got 'x'"},
        {{types = {beta = "int64"}, fill = 0.5}, "csv: the fill of 'beta' must be a whole number, as the column is int64, got 0.5"},
        {{fill = {beta = "x"}}, "csv: the fill of 'beta' must be a number, got 'x'"},
        {{delimiter = ", "}, "csv: delimiter must be one character, no letter or digit, got ', '"},
        {{delimiter = ";", quote = ";"}, "csv: delimiter and quote are both ';'"},
        {{delimiter = ",", decimal = ","}, "csv: delimiter and decimal are both ','"},
        {{names = {"x"}}, "csv: PATH has 2 columns, names has 1"},
        {{missing = {1}}, "csv: missing must hold strings, got 1"},
        {{sep = ";"}, "csv: unknown option 'sep'; it is called 'delimiter' here"}, {{usecols = {1}}, "csv: unknown option 'usecols'; it is called 'columns' here"},
        {{headers = true}, "csv: unknown option 'headers'; did you mean 'header'?"},
    } do
        it("says what is wrong in its options: " .. case[2], function()
            assert.are.equal((case[2]:gsub("PATH", folder .. "/a.csv")), message_of(csv, "alpa,beta\n1,2\n", case[1]))
        end)
    end

    it("says that a file is not there", function()
        assert.are.equal(("csv: %s/none: No such file or directory"):format(folder), message_of(data.csv, folder .. "/none"))
    end)
end)

describe("data.matrix", function()
    local columns

    before_each(function() columns = csv("a,s,b,t\n1,x,0.5,u\n2,y,1.5,v\n", {types = {s = "category"}}) end)

    it("puts columns side by side", function()
        local m = data.matrix(columns, {"b", "s", "a"})
        assert.are.equal("float32", m.dtype)
        assert.are.same({{0.5, 0, 1}, {1.5, 1, 2}}, m:totable())
        assert.are.equal("int64", data.matrix(columns, {"a"}, {dtype = "int64"}).dtype)
        columns.t = nil
        assert.are.same({{1, 0, 0.5}, {2, 1, 1.5}}, data.matrix(columns):totable())
        assert.are.same({{3, 4}}, data.matrix({x = flow.tensor {3}, y = flow.tensor {4}}):totable())
    end)

    it("says what it cannot", function()
        assert.are.equal([[matrix: column 't' is text; leave it out, data.matrix(columns, {"a", "b"}), or read it as numbers, types = {t = "category"}]],
            message_of(data.matrix, columns))
        assert.are.equal("matrix: there is no column 'bb'; did you mean 'b'?", message_of(data.matrix, columns, {"bb"}))
        assert.are.equal("matrix: there are no columns", message_of(data.matrix, {}))
        assert.are.equal("matrix: columns have names, got the key 1", message_of(data.matrix, {3}))
    end)
end)
