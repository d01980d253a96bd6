/*
** modules.h -- the module flow and the Lua modules embedded in the binary (the table is made by scripts/embed.c).
*/
#ifndef FL_LUA_MODULES_H
#define FL_LUA_MODULES_H

#include "core/script.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- the flow table (flow.c) ---- */

/* Pushes the module itself; called by require in flow.so. */
FL_EXPORT int luaopen_flow(lua_State *L);
/* Pushes the flow table; false, and nothing pushed: it is not there yet. */
bool fl_lua_push_flow(lua_State *L);

/* ---- embedded modules (modules.c) ---- */

typedef struct fl_lua_module {
    const char *name;            /* "nn": found by require "flow.nn"; NULL ends the table */
    const unsigned char *packed; /* its source, by zlib */
    size_t packed_size, source_size;
    const unsigned char *code; /* compiled by the Lua of the program */
    size_t code_size;          /* 0: it is not */
} fl_lua_module;

extern const fl_lua_module fl_lua_modules[];

/* The embedded module of that name; NULL: there is none. */
const fl_lua_module *fl_lua_module_find(const char *name);
/* Pushes the source of an embedded module. */
void fl_lua_push_source(lua_State *L, const fl_lua_module *module);
/* From now on require finds "flow", in package.preload, and "flow.*", by a searcher of its own. */
void fl_lua_embed_modules(lua_State *L);
/* Modules are loaded as they were compiled: said by the program, which holds the Lua that did it. Another program's may
** be of another release, which reads the source. */
extern bool fl_lua_takes_code;
/* Runs the embedded module `name` once and pushes what it returned. */
void fl_lua_push_module(lua_State *L, const char *name);

#endif
