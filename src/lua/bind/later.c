/*
** later.c -- methods of tensors that live in Lua modules: loaded when one of them is read for the first time, so that a
** script pays for what it uses.
*/
#include "members.h"
#include "modules.h"

#include <string.h>

static const struct {
    const char *module, *names;
} later[] = {
    {"shaping", "unbind tensor_split hsplit vsplit dsplit iter"},
    {"dtypes", "astype type_as is_floating_point is_complex new_zeros new_ones new_empty new_full new_tensor"},
    {"compare", "equal allclose isclose"},
    {"indexing", "index_put index_put_"},
};
enum { MODULES = sizeof later / sizeof *later };

/* Calls of `each` with the words of a list, until it returns true. */
static bool is_in(const char *names, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0) return true;
        at += length;
    }
    return false;
}

bool fl_lua_push_later_method(lua_State *L, int methods, const char *name)
{
    for (int i = 0; i < MODULES; i++) {
        if (!is_in(later[i].names, name)) continue;
        methods = lua_absindex(L, methods);
        fl_lua_push_module(L, later[i].module);
        lua_getfield(L, -1, name);
        lua_remove(L, -2);
        lua_pushstring(L, name);
        lua_pushvalue(L, -2);
        lua_rawset(L, methods);
        return true;
    }
    return false;
}

static int methods_index(lua_State *L)
{
    return lua_type(L, 2) == LUA_TSTRING && fl_lua_push_later_method(L, 1, lua_tostring(L, 2));
}

/* The names, for help, has and completion: the metatable's __names. */
static void push_names(lua_State *L)
{
    int n = 0;
    lua_newtable(L);
    for (int i = 0; i < MODULES; i++) {
        for (const char *at = later[i].names; *at; at += strspn(at, " ")) {
            size_t length = strcspn(at, " ");
            lua_pushlstring(L, at, length);
            lua_rawseti(L, -2, ++n);
            at += length;
        }
    }
}

void fl_lua_open_later_methods(lua_State *L, int methods)
{
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, methods_index);
    lua_setfield(L, -2, "__index");
    push_names(L);
    lua_setfield(L, -2, "__names");
    lua_setmetatable(L, methods);
}
