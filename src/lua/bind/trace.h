/*
** trace.h -- what the files behind flow._trace share.
*/
#ifndef FL_LUA_TRACE_H
#define FL_LUA_TRACE_H

#include "core/script.h"

#include <lua.h>

/* call(step, operands, options, seed, counter) -> list of results, draws. step: op, n, attrs, in_place, no_grad,
** undraws. options: a table that may be changed. */
int fl_lua_call_step(lua_State *L);

/* Pushes the value of an attribute that is given, as a script writes it. */
void fl_lua_push_attr(lua_State *L, const fl_param *param, const fl_attr *attr);

#endif
