/*
** source.h -- sources of items as Lua values: a dataset in Lua passes them to a binding that makes batches.
*/
#ifndef FL_LUA_SOURCE_H
#define FL_LUA_SOURCE_H

#include "core/script.h"

#include <lauxlib.h>
#include <lua.h>

/* A full userdata. Tasks of the engine that use the source read `var`: when Lua collects the userdata, it waits for
** them. */
typedef struct fl_lua_source {
    fl_item_source *source; /* owned; NULL until it is set */
    fl_var var;
} fl_lua_source;

/* Pushes one without a source; the caller sets it. */
fl_lua_source *fl_lua_new_source(lua_State *L);

/* The one at index, or an error. */
fl_lua_source *fl_lua_check_source(lua_State *L, int index);

#endif
