/*
** own_op.h -- ops that a script defines.
*/
#ifndef FL_LUA_OWN_OP_H
#define FL_LUA_OWN_OP_H

#include "core/script.h"

#include <lua.h>

/* flow._own. */
void fl_lua_open_own_ops(lua_State *L, int flow);

/* Takes the value at index as a gradient of a tensor of this meta: nil, or a tensor that fits it; else an error that
** begins with "it". */
void fl_lua_take_gradient(lua_State *L, int index, fl_tensor **out, const fl_meta *meta, bool need);

#endif
