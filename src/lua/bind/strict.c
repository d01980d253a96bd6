/*
** strict.c -- tables and objects that refuse unknown names instead of answering nil.
*/
#include "errors.h"

#include <string.h>

/* Pushes "; it has a, b" of the public names of the table at 1 in the order of their letters; "" where there are
** none. */
static const char *push_names(lua_State *L)
{
    const char *names[16];
    int n = 0;
    lua_pushnil(L);
    while (n < 16 && lua_next(L, 1)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING || lua_tostring(L, -1)[0] == '_') continue;
        int at = n++;
        for (; at > 0 && strcmp(names[at - 1], lua_tostring(L, -1)) > 0; at--) names[at] = names[at - 1];
        names[at] = lua_tostring(L, -1); /* kept alive by the table */
    }
    lua_pushstring(L, n > 0 ? "; it has " : "");
    for (int i = 0; i < n; i++) {
        lua_pushfstring(L, "%s%s", i > 0 ? ", " : "", names[i]);
        lua_concat(L, 2);
    }
    return lua_tostring(L, -1);
}

/* __index; upvalue 1 is what the table is called. */
static int unknown_field(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *key = luaL_tolstring(L, 2, NULL);
    fl_suggestion s = {.word = key};
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING && lua_tostring(L, -2)[0] != '_') fl_suggest_offer(&s, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    char hint[FL_SUGGEST_TEXT];
    fl_suggest_text(hint, &s);
    FL_RAISE(L, "%s has no '%s'%s", lua_tostring(L, lua_upvalueindex(1)), key, *hint ? hint : push_names(L));
}

void fl_lua_set_strict(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    lua_pushcclosure(L, unknown_field, 1);
    lua_setfield(L, -2, "__index");
}

static int refuse_field(lua_State *L)
{
    FL_RAISE(L, "%s has no assignable field, got '%s'", lua_tostring(L, lua_upvalueindex(1)),
             luaL_tolstring(L, 2, NULL));
}

void fl_lua_set_constant(lua_State *L, const char *what)
{
    lua_pushstring(L, what);
    lua_pushcclosure(L, refuse_field, 1);
    lua_setfield(L, -2, "__newindex");
}

void fl_lua_set_object(lua_State *L, const char *what)
{
    fl_lua_set_constant(L, what);
    if (lua_getfield(L, -1, "__index") == LUA_TNIL) {
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, -4, "__index");
        lua_replace(L, -2);
    }
    lua_createtable(L, 0, 1);
    fl_lua_set_strict(L, what);
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}
