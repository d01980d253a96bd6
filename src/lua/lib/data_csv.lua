-- data_csv.lua -- tables of text with a delimiter: columns by name.

local flow = require "flow"
local check = require "flow.check"
local ordered = require "flow.ordered"

local io_ = flow._io

local tables = {}

-- Cells that hold nothing, where the script gives no list of its own.
local MISSING = {"NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None"}

local types = {"bool", "int64", "float32", "float64", "time", "text", "category"}

local function check_character(name, c)
    if #c ~= 1 or c:find "[%w\n\r%z]" then
        check.fail("csv: %s must be one character, no letter or digit, got %s", name, check.got(c))
    end
end

local function check_characters(opts)
    for _, name in ipairs {"delimiter", "quote", "comment", "decimal"} do
        if opts[name] and not (opts[name] == "" and (name == "quote" or name == "comment")) then
            check_character(name, opts[name])
        end
    end
    for _, pair in ipairs {{"delimiter", "quote"}, {"delimiter", "decimal"}, {"delimiter", "comment"}} do
        if opts[pair[1]] and opts[pair[1]] == opts[pair[2]] then
            check.fail("csv: %s and %s are both '%s'", pair[1], pair[2], opts[pair[1]])
        end
    end
end

-- The names of the columns: given, or of the header, or by their place; no name twice.
local function name_columns(path, count, header, given)
    local names, taken = {}, {}
    if given and #given ~= count then
        check.fail("csv: %s has %d columns, names has %d", path, count, #given)
    end
    for i = 1, count do
        local base = given and given[i] or header and header[i] or ""
        if type(base) ~= "string" then check.fail("csv: names must be strings, got %s", check.got(base)) end
        if base == "" then base = "c" .. i - 1 end
        local name, again = base, 0
        while taken[name] do
            again = again + 1
            name = base .. "." .. again
        end
        names[i], taken[name] = name, i
    end
    return names, taken
end

local function unknown(path, what, name, names)
    check.fail("csv: %s has no column %s, which %s names%s", path, check.got(name), what, check.suggest(name, names))
end

local function check_names(path, what, given, names, places)
    for _, name in ipairs(check.sorted_keys(given)) do
        if not places[name] then unknown(path, what, name, names) end
    end
end

-- The type of a column as _io.csv_read takes it: its name, and the names of categories.
local function type_of(name, given)
    if type(given) == "table" then
        local seen = {}
        for _, word in ipairs(given) do
            if type(word) ~= "string" or seen[word] then
                check.fail("csv: the categories of '%s' must be strings, none twice, got %s", name, check.got(word))
            end
            seen[word] = true
        end
        return "category", given
    end
    for _, known in ipairs(types) do
        if given == known then return known end
    end
    check.fail("csv: the type of '%s' must be one of %s, or a list of categories, got %s%s", name,
        table.concat(types, "|"), check.got(given), check.suggest(given, types))
end

local function fill_of(name, fill, kind)
    local value = fill
    if type(fill) == "table" then value = fill[name] end
    if value == nil then return nil end
    if type(value) == "boolean" then value = value and 1 or 0 end
    if type(value) ~= "number" then
        check.fail("csv: the fill of '%s' must be a number, got %s", name, check.got(value))
    end
    if kind == "int64" and not math.tointeger(value) then
        check.fail("csv: the fill of '%s' must be a whole number, as the column is int64, got %s", name,
            check.got(value))
    end
    return value
end

local function describe(path, o, names, places)
    local list = {}
    check_names(path, "types", o.types or {}, names, places)
    if type(o.fill) == "table" then check_names(path, "fill", o.fill, names, places) end
    for i, name in ipairs(o.columns or names) do
        if not places[name] then unknown(path, "columns", name, names) end
        local kind, categories = "guess", nil
        if o.types and o.types[name] ~= nil then kind, categories = type_of(name, o.types[name]) end
        list[i] = {
            index = places[name], name = name, type = kind, names = categories, fill = fill_of(name, o.fill, kind),
            single = kind == "float32" or kind == "guess" and o.floats == "float32",
        }
    end
    return list
end

---The columns of a table of text by name, in the order of the file. Plain or compressed with gzip.
---
---Numbers are int64 tensors where all of a column are whole, else float64; true and false are bool; all else is a
---list of strings. `types` says otherwise: {zip = "text", price = "float32", city = "category"}; a category column is
---{codes = int64 tensor, names = sorted list}, with -1 for what is missing; a list of names in place of "category"
---fixes the codes; "time" reads 2024-01-31T23:59:59Z as seconds since 1970. A cell that is empty or one of `missing`
---("NA", "nan", "null", ...) becomes nan, and makes an int64 column float64; with `fill`, a number or a table of
---them by column, it becomes that.
---
---The delimiter (one of , tab ; |, or blanks between numbers; " ": any number of blanks) and whether there is a header
---are found out; without one the columns are c0, c1, ... `comment` begins lines that are left out; `skip`: lines before
---anything else; `limit`: rows at most; decimal = ",": 1,5 is a number.
---@param path string
---@param opts table?
---@return table
function tables.csv(path, opts)
    check_characters(opts)
    local missing = opts.missing or MISSING
    for _, word in ipairs(missing) do
        if type(word) ~= "string" then check.fail("csv: missing must hold strings, got %s", check.got(word)) end
    end
    local file <close>, count, _, header = io_.csv(path, {
        delimiter = opts.delimiter, quote = opts.quote, comment = opts.comment, decimal = opts.decimal,
        header = opts.header, skip = opts.skip, limit = opts.limit, missing = missing,
    })
    local names, places = name_columns(path, count, header, opts.names)
    local list = describe(path, opts, names, places)
    local columns, result = io_.csv_read(file, list), ordered.new()
    for i, one in ipairs(list) do result[one.name] = columns[i] end
    return result
end

-- A column as numbers.
local function numbers_of(name, column)
    if type(name) ~= "string" then check.fail("matrix: columns have names, got the key %s", check.got(name)) end
    if check.is_tensor(column) then return column end
    if type(column) == "table" and check.is_tensor(rawget(column, "codes")) then return column.codes end
    check.fail("matrix: column '%s' is text; leave it out, data.matrix(columns, {\"a\", \"b\"}), or read it as " ..
        "numbers, types = {%s = \"category\"}", name, name:find("^[%a_][%w_]*$") and name or ("[%q]"):format(name))
end

---Columns of a table as one tensor [rows, columns]; of categories the codes.
---@param columns table as data.csv gives them
---@param names string[]? which of them, in this order; default all
---@param opts {dtype: string}? default float32
function tables.matrix(columns, names, opts)
    local list = {}
    if getmetatable(columns) and not ordered.is(columns) then
        check.fail("matrix: columns must be a table of columns, as data.csv gives them, got %s", check.got(columns))
    end
    if not names then
        names = {}
        if ordered.is(columns) then
            for name in columns do names[#names + 1] = name end
        else
            names = check.sorted_keys(columns)
        end
    end
    for i, name in ipairs(names) do
        if columns[name] == nil then
            local known = {}
            for key in pairs(columns) do known[#known + 1] = tostring(key) end
            check.fail("matrix: there is no column %s%s", check.got(name), check.suggest(name, known))
        end
        list[i] = numbers_of(name, columns[name]):to(opts.dtype)
    end
    if #list == 0 then check.fail("matrix: there are no columns") end
    return flow.stack(list, 1)
end

check.takes(tables, {
    [[csv(path: string, {columns: list?, types: list?, header: boolean?, names: list?, delimiter: string?,
        quote: string = ", comment: string?, decimal: string = ., skip: integer >= 0 = 0, limit: integer?,
        missing: list?, fill: number or boolean or list?, floats: float32|float64 = float64})]],
    "matrix(columns: table, names: list?, {dtype: string = float32})",
})
return tables
