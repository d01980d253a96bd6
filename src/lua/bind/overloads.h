/*
** overloads.h -- names that mean one of several ops, which the arguments choose: max, min, median, nanmedian, where,
** nonzero; and those of which arguments in front may be left out: randint, randint_like.
*/
#ifndef FL_LUA_OVERLOADS_H
#define FL_LUA_OVERLOADS_H

#include "core/script.h"

#include <lua.h>
#include <stdbool.h>

/* Pushes flow.name or x:name; false, and nothing pushed: it is no such name. */
bool fl_lua_push_overload(lua_State *L, const char *name, bool method);
/* The i-th such name; NULL after the last. */
const char *fl_lua_overload_name(int i);
/* True if overload i is of that kind: all are functions, some are methods too. */
bool fl_lua_overload_has(int i, bool method);
bool fl_lua_is_overload(const char *name);
/* The name by which scripts call a hidden op; NULL: by none of these. */
const char *fl_lua_overload_of(const fl_op *op);

#endif
