/*
** item_random.h -- the random numbers of an item as a Lua value, in the script's state and in others.
*/
#ifndef FL_LUA_ITEM_RANDOM_H
#define FL_LUA_ITEM_RANDOM_H

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

/* Makes the class. */
void fl_lua_open_item_random(lua_State *L);

/* Pushes a fresh one (base/item_random.h). */
void fl_lua_push_item_random(lua_State *L, uint64_t seed, uint64_t epoch, uint64_t position, uint64_t stream);

#endif
