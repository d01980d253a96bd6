/*
** load_ops.c -- ops in shared objects (ops/library.h) as functions of Lua; see own_op.lua.
*/
#include "arguments.h"
#include "instance.h"
#include "op_call.h"
#include "own_op_parts.h"

#include <string.h>

/* load(path, check) -> {{name, function, method or nil, x:name_ or nil}, ...}: the ops of a shared object. check(name)
** raises where the name is taken. */
int fl_own_load(lua_State *L)
{
    const fl_ops_library *library;
    bool known;
    fl_lua_enter(L);
    lua_settop(L, 2);
    fl_status status = fl_ops_open(&library, &known, fl_lua_check_path(L, 1, "load_ops"));
    if (status != FL_OK) fl_lua_error(L, fl_fail_prefix(status, "load_ops: "));
    for (const fl_op *const *op = library->first; op < library->last; op++) {
        lua_pushvalue(L, 2);
        lua_pushstring(L, (*op)->name);
        lua_call(L, 1, 0);
    }
    if (!known && (status = fl_ops_register(library)) != FL_OK) fl_lua_error(L, fl_fail_prefix(status, "load_ops: "));
    lua_newtable(L);
    int n = 0;
    for (const fl_op *const *op = library->first; op < library->last; op++) {
        lua_createtable(L, 4, 0);
        lua_pushstring(L, (*op)->name);
        lua_rawseti(L, -2, 1);
        fl_lua_push_op(L, *op, (*op)->name, false);
        lua_rawseti(L, -2, 2);
        lua_pushboolean(L, fl_lua_tensor_first(*op) && !((*op)->flags & (FL_OP_FUNCTION_ONLY | FL_OP_HIDDEN)));
        lua_rawseti(L, -2, 3);
        if (fl_op_in_place(*op)) {
            fl_lua_push_op(L, *op, fl_own_in_place_name(L, (*op)->name), true);
            lua_rawseti(L, -2, 4);
        }
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}
