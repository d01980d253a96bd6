/*
** caught.c -- errors of Lua functions that the core calls: they become errors of the core, which fl_lua_error raises.
**
** A status carries a text and no value. A raised value that is no text lies in the registry of its state until the
** failure made of it is raised, and reaches the script's pcall unchanged.
*/
#include "errors.h"
#include "instance.h"

#include <string.h>

static const char kept_key; /* registry: the value */

/* The failure that it has become. */
static struct {
    lua_State *main; /* of its state; NULL: nothing is kept */
    uint64_t failure;
} kept;

/* ---- texts ---- */

static int describe(lua_State *L)
{
    bool speaks = luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL;
    if (lua_isnil(L, 1)) lua_pushliteral(L, "an error that is nil");
    else if (speaks || lua_type(L, 1) == LUA_TNUMBER || lua_isboolean(L, 1)) luaL_tolstring(L, 1, NULL);
    else lua_pushfstring(L, "an error that is a %s", luaL_typename(L, 1));
    return 1;
}

const char *fl_lua_error_text(lua_State *L)
{
    bool known = lua_type(L, -1) == LUA_TSTRING;
    if (!known) {
        lua_pushcfunction(L, describe);
        lua_pushvalue(L, -2);
        known = lua_pcall(L, 1, 1, 0) == LUA_OK;
        if (known) lua_replace(L, -2);
        else lua_pop(L, 1);
    }
    if (!known) return "an error whose __tostring fails";
    const char *text = lua_tostring(L, -1);
    return *text ? text : "an error without a text";
}

/* ---- values ---- */

static int keep(lua_State *L)
{
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kept_key);
    return 0;
}

static lua_State *main_of(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    lua_State *main = lua_tothread(L, -1);
    lua_pop(L, 1);
    return main;
}

fl_status fl_lua_caught(lua_State *L, fl_status status)
{
    bool keeps = lua_type(L, -1) != LUA_TSTRING;
    if (keeps) {
        lua_pushcfunction(L, keep);
        lua_pushvalue(L, -2);
        keeps = lua_pcall(L, 1, 0, 0) == LUA_OK;
        if (!keeps) lua_pop(L, 1);
    }
    fl_fail(status, "%s", fl_lua_error_text(L));
    if (keeps) kept.main = main_of(L), kept.failure = fl_failures();
    return status;
}

bool fl_lua_push_caught(lua_State *L)
{
    if (!kept.main || kept.main != main_of(L)) return false;
    bool same = kept.failure == fl_failures();
    kept.main = NULL;
    if (same) lua_rawgetp(L, LUA_REGISTRYINDEX, &kept_key);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kept_key);
    return same;
}

/* ---- calls ---- */

/* The text of the error without the line that it will be raised at once more. */
static const char *bare_text(lua_State *L)
{
    char line[256];
    const char *text = fl_lua_error_text(L);
    fl_lua_where(L, line, sizeof line);
    size_t n = strlen(line);
    return n && strncmp(text, line, n) == 0 && text[n] == ':' && text[n + 1] == ' ' ? text + n + 2 : text;
}

fl_status fl_lua_call_below(fl_lua_instance *instance, const char *who, lua_CFunction f, void *context)
{
    lua_State *caller = fl_lua_current, *L = fl_lua_thread_of(instance);
    if (!L) return fl_fail(FL_ERR_STATE, "%s: the lua_State that defined it is closed", who);
    if (!lua_checkstack(L, 8)) return fl_fail(FL_ERR_MEMORY, "%s: the Lua stack is full", who);
    int top = lua_gettop(L);
    lua_pushcfunction(L, f);
    lua_pushlightuserdata(L, context);
    fl_status status = FL_OK;
    if (lua_pcall(L, 1, 0, 0) != LUA_OK)
        status = lua_type(L, -1) == LUA_TSTRING ? fl_fail(FL_ERR_VALUE, "%s", bare_text(L))
                                                : fl_lua_caught(L, FL_ERR_VALUE);
    lua_settop(L, top);
    fl_lua_enter(caller ? caller : L);
    return status;
}
