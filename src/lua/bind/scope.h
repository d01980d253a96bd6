/*
** scope.h -- settings that hold while a function runs or until a <close> variable ends, in one coroutine.
*/
#ifndef FL_SCOPE_H
#define FL_SCOPE_H

#include "instance.h"

/* Sets one and pushes the value for <close> that puts it back. anchor: index of what keeps the value alive, 0: none. */
void fl_lua_scope_open(lua_State *L, int which, uintptr_t value, int anchor);

/* Calls the function at index 2 with the arguments above it and then closes the scope at index 1; returns the number of
** results. The function may yield. */
int fl_lua_scope_call(lua_State *L);

/* Once in a state whose libraries are open, before a script can keep functions of coroutine. */
void fl_lua_open_scopes(lua_State *L);

#endif
