/*
** modules.h -- the Lua modules embedded in the binary (the table is made by scripts/embed.sh).
*/
#ifndef FL_LUA_MODULES_H
#define FL_LUA_MODULES_H

#include <stddef.h>

typedef struct fl_lua_module {
    const char *name; /* "nn": what require "flow.nn" finds; NULL ends the table */
    const char *source;
    size_t size;
} fl_lua_module;

extern const fl_lua_module fl_lua_modules[];

#endif
