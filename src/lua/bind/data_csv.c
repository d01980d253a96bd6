/*
** data_csv.c -- flow._io's reader of tables of text (data_csv.lua documents it).
*/
#include "arguments.h"
#include "members.h"
#include "state.h"
#include "tensors.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char table_name[] = "flow.csv", columns_name[] = "flow.csv_columns";

static int table_close(lua_State *L)
{
    fl_csv **csv = luaL_checkudata(L, 1, table_name);
    fl_csv_close(*csv);
    *csv = NULL;
    return 0;
}

/* The character of an option; 0: it is nil or "". */
static char character(lua_State *L, int options, const char *key)
{
    lua_getfield(L, options, key);
    char c = *luaL_optstring(L, -1, "");
    lua_pop(L, 1);
    return c;
}

static int64_t integer(lua_State *L, int options, const char *key, int64_t otherwise)
{
    lua_getfield(L, options, key);
    int64_t value = luaL_optinteger(L, -1, otherwise);
    lua_pop(L, 1);
    return value;
}

/* The strings of the list on top of the stack, which keeps them, in memory that is pushed. */
static fl_csv_word *push_words(lua_State *L, int64_t *count)
{
    int list = lua_gettop(L);
    *count = (int64_t)lua_rawlen(L, list);
    fl_csv_word *words = lua_newuserdatauv(L, sizeof *words * ((size_t)*count + 1), 0);
    for (int64_t i = 0; i < *count; i++) {
        size_t size;
        lua_rawgeti(L, list, i + 1);
        words[i].text = luaL_checklstring(L, -1, &size);
        words[i].size = (int64_t)size;
        lua_pop(L, 1);
    }
    return words;
}

/* _io.csv(path, options) -> table, columns, rows, list of names or nil. options: delimiter, quote, comment, decimal
** ("" or nil: none), header (nil: found out), skip, limit, missing. */
static int io_csv(lua_State *L)
{
    int64_t count;
    const char *path = fl_lua_check_path(L, 1, "csv");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    fl_csv **csv = lua_newuserdatauv(L, sizeof *csv, 2);
    *csv = NULL;
    luaL_setmetatable(L, table_name);
    lua_getfield(L, 2, "missing");
    fl_csv_word *words = push_words(L, &count);
    lua_setiuservalue(L, 3, 1);
    lua_setiuservalue(L, 3, 2);
    lua_getfield(L, 2, "header");
    fl_csv_options options = {
        .delimiter = character(L, 2, "delimiter"),
        .quote = character(L, 2, "quote"),
        .comment = character(L, 2, "comment"),
        .decimal = character(L, 2, "decimal"),
        .header = lua_isnil(L, -1) ? -1 : lua_toboolean(L, -1),
        .skip = integer(L, 2, "skip", 0),
        .limit = integer(L, 2, "limit", -1),
        .missing = words,
        .missing_count = (int)count,
    };
    FL_CHECK(L, fl_csv_open(csv, path, &options));
    lua_settop(L, 3);
    lua_pushinteger(L, (*csv)->columns);
    lua_pushinteger(L, (*csv)->rows);
    if (!(*csv)->names) return 3;
    lua_createtable(L, (*csv)->columns, 0);
    for (int i = 0; i < (*csv)->columns; i++) {
        lua_pushstring(L, (*csv)->names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 4;
}

/* ---- columns ---- */

/* Columns while they are read, and until they are Lua's. */
struct columns {
    const fl_csv *csv;  /* the table lies in the user value */
    fl_csv_word *names; /* of categories; owned */
    int count;
    fl_csv_column list[];
};

static int columns_close(lua_State *L)
{
    struct columns *columns = luaL_checkudata(L, 1, columns_name);
    for (int i = 0; i < columns->count; i++) fl_csv_column_clear(&columns->list[i]);
    free(columns->names);
    columns->names = NULL;
    return 0;
}

static fl_csv_type type_named(const char *name)
{
    static const struct {
        const char *name;
        fl_csv_type type;
    } types[] = {{"guess", FL_CSV_GUESS},   {"bool", FL_CSV_BOOL},     {"int64", FL_CSV_INT},
                 {"float32", FL_CSV_FLOAT}, {"float64", FL_CSV_FLOAT}, {"time", FL_CSV_TIME}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    return FL_CSV_TEXT;
}

/* {index =, name =, type =, single =, fill =} on top of the stack, which stays there. */
static void column_take(lua_State *L, fl_csv_column *column)
{
    int at = lua_gettop(L);
    column->index = (int)integer(L, at, "index", 1) - 1;
    lua_getfield(L, at, "name");
    column->name = luaL_checkstring(L, -1);
    lua_getfield(L, at, "type");
    column->type = type_named(luaL_checkstring(L, -1));
    lua_getfield(L, at, "single");
    column->single = lua_toboolean(L, -1);
    lua_getfield(L, at, "fill");
    column->has_fill = !lua_isnil(L, -1);
    column->fill = lua_tonumber(L, -1);
    int whole;
    column->fill_integer = lua_tointegerx(L, -1, &whole);
    column->fill_is_integer = whole;
    lua_settop(L, at);
}

static void push_texts(lua_State *L, const fl_csv *csv, const fl_csv_column *column)
{
    lua_Integer row = 0;
    if (csv->rows > INT_MAX)
        FL_RAISE(L, "csv: %lld rows are too many for a list; use categories", (long long)csv->rows);
    lua_createtable(L, (int)csv->rows, 0);
    for (int64_t p = 0; p < csv->piece_count; p++) {
        const fl_csv_cells *cells = &column->cells[p];
        for (int64_t i = 0, start = 0; i < csv->pieces[p].rows; start = cells->ends[i++]) {
            lua_pushlstring(L, cells->bytes + start, (size_t)(cells->ends[i] - start));
            lua_rawseti(L, -2, ++row);
        }
    }
}

/* Categories, {codes =, names =}: `names` of the description on top of the stack, or all texts of the column. */
static void push_categories(lua_State *L, struct columns *columns, const fl_csv_column *column)
{
    int64_t count = 0;
    int description = lua_gettop(L);
    bool given = lua_getfield(L, description, "names") == LUA_TTABLE;
    fl_csv_word *names = given ? push_words(L, &count) : NULL;
    lua_settop(L, description + 1);
    lua_createtable(L, 0, 2);
    fl_box *box = fl_lua_new_box(L);
    fl_status status = fl_csv_codes(&box->tensor, &names, &count, columns->csv, column);
    if (!given && status == FL_OK) columns->names = names;
    FL_CHECK(L, status);
    lua_setfield(L, -2, "codes");
    if (given) lua_pushvalue(L, description + 1);
    else lua_createtable(L, (int)count, 0);
    for (int64_t i = 0; i < count && !given; i++) {
        lua_pushlstring(L, names[i].text, (size_t)names[i].size);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "names");
    lua_replace(L, description + 1);
    lua_settop(L, description + 1);
    free(columns->names);
    columns->names = NULL;
}

/* _io.csv_read(table, descriptions) -> list of columns: tensors, lists of strings (type "text") or {codes =, names =}
** ("category"). A description is {index =, name =, type =, single =, fill =, names =}; index counts from 1. */
static int io_csv_read(lua_State *L)
{
    fl_csv *csv = *(fl_csv **)luaL_checkudata(L, 1, table_name);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_argcheck(L, csv, 1, "closed");
    lua_settop(L, 2);
    int count = (int)lua_rawlen(L, 2);
    struct columns *columns = lua_newuserdatauv(L, sizeof *columns + sizeof columns->list[0] * (size_t)count, 0);
    memset(columns, 0, sizeof *columns + sizeof columns->list[0] * (size_t)count);
    columns->csv = csv;
    columns->count = count;
    luaL_setmetatable(L, columns_name);
    for (int i = 0; i < count; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, 2, i + 1);
        column_take(L, &columns->list[i]);
        luaL_argcheck(L, columns->list[i].index >= 0 && columns->list[i].index < csv->columns, 2, "no such column");
    }
    FL_CHECK(L, fl_csv_read(csv, columns->list, count, fl_lua_interrupted));
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        fl_csv_column *column = &columns->list[i];
        lua_rawgeti(L, 2, i + 1);
        lua_getfield(L, -1, "type");
        bool categories = strcmp(lua_tostring(L, -1), "category") == 0;
        lua_pop(L, 1);
        if (column->tensor) {
            fl_box *box = fl_lua_new_box(L);
            box->tensor = column->tensor;
            column->tensor = NULL;
        } else if (categories) push_categories(L, columns, column);
        else push_texts(L, csv, column);
        lua_rawseti(L, 4, i + 1);
        lua_settop(L, 4);
        fl_csv_column_clear(column);
    }
    fl_lua_account(L);
    return 1;
}

void fl_lua_open_csv(lua_State *L, int io)
{
    static const struct {
        const char *name;
        lua_CFunction close;
    } classes[] = {{table_name, table_close}, {columns_name, columns_close}};
    for (int i = 0; i < 2; i++) {
        luaL_newmetatable(L, classes[i].name);
        lua_pushcfunction(L, classes[i].close);
        lua_setfield(L, -2, "__gc");
        lua_pushcfunction(L, classes[i].close);
        lua_setfield(L, -2, "__close");
        lua_pop(L, 1);
    }
    lua_pushcfunction(L, io_csv);
    lua_setfield(L, io, "csv");
    lua_pushcfunction(L, io_csv_read);
    lua_setfield(L, io, "csv_read");
}
