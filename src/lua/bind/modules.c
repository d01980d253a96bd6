/*
** modules.c -- the embedded Lua modules: in package.preload by name, each compiled at first use.
*/
#include "modules.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

const fl_lua_module *fl_lua_module_find(const char *name)
{
    for (const fl_lua_module *m = fl_lua_modules; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

/* package.preload's loader of the embedded module whose entry is upvalue 1. There is one instance of each module in a
** state, even for programs that empty package.loaded (busted does between files). */
static int load_module(lua_State *L)
{
    const fl_lua_module *m = lua_touserdata(L, lua_upvalueindex(1));
    char chunk[64];
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, m) != LUA_TNIL) return 1;
    snprintf(chunk, sizeof chunk, "=flow.%s", m->name);
    if (luaL_loadbufferx(L, m->source, m->size, chunk, "t") != LUA_OK) return lua_error(L);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, m);
    return 1;
}

void fl_lua_preload(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_flow);
    lua_setfield(L, -2, "flow");
    for (const fl_lua_module *m = fl_lua_modules; m->name; m++) {
        lua_pushfstring(L, "flow.%s", m->name);
        lua_pushlightuserdata(L, (void *)m);
        lua_pushcclosure(L, load_module, 1);
        lua_rawset(L, -3);
    }
    lua_pop(L, 1);
}

void fl_lua_push_module(lua_State *L, const char *name)
{
    lua_getglobal(L, "require");
    lua_pushfstring(L, "flow.%s", name);
    lua_call(L, 1, 1);
}
