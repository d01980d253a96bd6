/*
** modules.c -- the embedded Lua modules: in package.preload by name, each loaded at first use.
*/
#include "modules.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

bool fl_lua_takes_code;

const fl_lua_module *fl_lua_module_find(const char *name)
{
    for (const fl_lua_module *m = fl_lua_modules; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

void fl_lua_push_source(lua_State *L, const fl_lua_module *m)
{
    luaL_Buffer b;
    uLongf size = (uLongf)m->source_size;
    unsigned char *text = (unsigned char *)luaL_buffinitsize(L, &b, m->source_size);
    if (uncompress(text, &size, m->packed, (uLong)m->packed_size) != Z_OK) luaL_error(L, "out of memory");
    luaL_pushresultsize(&b, size);
}

static int load_chunk(lua_State *L, const fl_lua_module *m)
{
    char chunk[64];
    size_t size;
    snprintf(chunk, sizeof chunk, "=flow.%s", m->name);
    if (fl_lua_takes_code && m->code_size) return luaL_loadbufferx(L, (const char *)m->code, m->code_size, chunk, "b");
    fl_lua_push_source(L, m);
    const char *text = lua_tolstring(L, -1, &size);
    int status = luaL_loadbufferx(L, text, size, chunk, "t");
    lua_remove(L, -2);
    return status;
}

/* package.preload's loader of the embedded module whose entry is upvalue 1. There is one instance of each module in a
** state, even for programs that empty package.loaded (busted does between files). */
static int load_module(lua_State *L)
{
    const fl_lua_module *m = lua_touserdata(L, lua_upvalueindex(1));
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, m) != LUA_TNIL) return 1;
    if (load_chunk(L, m) != LUA_OK) return lua_error(L);
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
