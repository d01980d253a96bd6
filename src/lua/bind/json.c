/*
** json.c -- flow._io.json: a text of JSON as Lua values (json.lua documents it and has the writer).
*/
#include "members.h"
#include "errors.h"

#include <jansson.h>

/* The tree belongs to a userdata, because making tables may raise an error. */
static const char tree_name[] = "flow.json";

static int tree_free(lua_State *L)
{
    json_t **tree = luaL_checkudata(L, 1, tree_name);
    json_decref(*tree);
    *tree = NULL;
    return 0;
}

static void push_value(lua_State *L, json_t *value, int null);

static void push_list(lua_State *L, json_t *list, int null)
{
    size_t i;
    json_t *value;
    lua_createtable(L, (int)json_array_size(list), 0);
    json_array_foreach(list, i, value)
    {
        push_value(L, value, null);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_object(lua_State *L, json_t *object, int null)
{
    const char *key;
    json_t *value;
    lua_createtable(L, 0, (int)json_object_size(object));
    json_object_foreach(object, key, value)
    {
        push_value(L, value, null);
        lua_setfield(L, -2, key);
    }
}

/* null: the stack index of what null becomes. */
static void push_value(lua_State *L, json_t *value, int null)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: push_object(L, value, null); break;
    case JSON_ARRAY: push_list(L, value, null); break;
    case JSON_STRING: lua_pushlstring(L, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(value)); break;
    case JSON_REAL: lua_pushnumber(L, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(L, json_is_true(value)); break;
    case JSON_NULL: lua_pushvalue(L, null); break;
    }
}

/* _io.json(text, null) -> value */
static int io_json(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    lua_settop(L, 2);
    luaL_checkstack(L, FL_JSON_DEPTH + 4, "json");
    json_t **tree = lua_newuserdatauv(L, sizeof *tree, 0);
    *tree = NULL;
    luaL_setmetatable(L, tree_name);
    fl_status status = fl_json_read(tree, text, size, (fl_json_limits){0});
    FL_CHECK(L, status == FL_OK ? FL_OK : fl_fail_prefix(status, "json: "));
    push_value(L, *tree, 2);
    json_decref(*tree);
    *tree = NULL;
    return 1;
}

void fl_lua_open_json(lua_State *L, int io)
{
    luaL_newmetatable(L, tree_name);
    lua_pushcfunction(L, tree_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_pushcfunction(L, io_json);
    lua_setfield(L, io, "json");
}
