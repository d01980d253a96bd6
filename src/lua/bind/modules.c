/*
** modules.c -- the embedded Lua modules: found by a searcher of require, each loaded at first use.
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

void fl_lua_push_source(lua_State *L, const fl_lua_module *module)
{
    luaL_Buffer b;
    uLongf size = (uLongf)module->source_size;
    unsigned char *text = (unsigned char *)luaL_buffinitsize(L, &b, module->source_size);
    if (uncompress(text, &size, module->packed, (uLong)module->packed_size) != Z_OK) luaL_error(L, "out of memory");
    luaL_pushresultsize(&b, size);
}

static int load_chunk(lua_State *L, const fl_lua_module *module)
{
    char chunk[64];
    size_t size;
    snprintf(chunk, sizeof chunk, "=flow.%s", module->name);
    if (fl_lua_takes_code && module->code_size)
        return luaL_loadbufferx(L, (const char *)module->code, module->code_size, chunk, "b");
    fl_lua_push_source(L, module);
    const char *text = lua_tolstring(L, -1, &size);
    int status = luaL_loadbufferx(L, text, size, chunk, "t");
    lua_remove(L, -2);
    return status;
}

/* The module of "flow.nn"; NULL: there is none. */
static const fl_lua_module *module_of(const char *name)
{
    return strncmp(name, "flow.", 5) == 0 ? fl_lua_module_find(name + 5) : NULL;
}

/* The loader of embedded modules for require. There is one instance of each in a state, even for programs that empty
** package.loaded (busted does between files). */
static int load_module(lua_State *L)
{
    const fl_lua_module *m = module_of(luaL_checkstring(L, 1));
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, m) != LUA_TNIL) return 1;
    if (load_chunk(L, m) != LUA_OK) return lua_error(L);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, m);
    return 1;
}

static int search_module(lua_State *L)
{
    if (!module_of(luaL_checkstring(L, 1))) return 0;
    lua_pushcfunction(L, load_module);
    lua_pushliteral(L, ":embedded:");
    return 2;
}

void fl_lua_embed_modules(lua_State *L)
{
    enum { AFTER_PRELOAD = 2 };
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_flow);
    lua_setfield(L, -2, "flow");
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchers");
    bool is_there = false;
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        is_there = is_there || lua_tocfunction(L, -1) == search_module;
        lua_pop(L, 1);
    }
    for (lua_Integer i = count; i >= AFTER_PRELOAD && !is_there; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    if (!is_there) {
        lua_pushcfunction(L, search_module);
        lua_rawseti(L, -2, AFTER_PRELOAD);
    }
    lua_pop(L, 3);
}

void fl_lua_push_module(lua_State *L, const char *name)
{
    lua_getglobal(L, "require");
    lua_pushfstring(L, "flow.%s", name);
    lua_call(L, 1, 1);
}
