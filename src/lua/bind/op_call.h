/*
** op_call.h -- ops as functions and operators of Lua.
*/
#ifndef FL_LUA_OP_CALL_H
#define FL_LUA_OP_CALL_H

#include "core/script.h"

#include <lua.h>

/* An op as Lua calls it. */
typedef struct fl_lua_call {
    const fl_op *op;
    const char *name;              /* "add", "add_" */
    bool in_place;                 /* x:add_(y) */
    uint32_t greedy;               /* parameters that take all the numbers that follow */
    const fl_signature *signature; /* NULL until the first call */
    fl_attrs *defaults;            /* owned */
    struct fl_lua_call *wider;     /* of op->wider, from the first call on; or NULL */
} fl_lua_call;

/* Fills the flow table (index flow), flow._op and the method table with all registered ops. */
void fl_lua_open_ops(lua_State *L, int flow, int methods);
/* Operators of the metatable at index. */
void fl_lua_open_operators(lua_State *L, int metatable);

/* Pushes the function that calls the op; `name` is kept. unary: the metamethod of an op of one operand. */
void fl_lua_push_op(lua_State *L, const fl_op *op, const char *name, bool in_place);
void fl_lua_push_unary(lua_State *L, const fl_op *op);
/* True if the first parameter is a tensor: then the op is a method. */
bool fl_lua_tensor_first(const fl_op *op);
/* What a function on the stack calls; NULL when it is no op. */
const fl_lua_call *fl_lua_call_of(lua_State *L, int index);
/* Pushes the op's signature as users read it: "where(cond, x|number, y|number)", without the marks of attributes. */
const char *fl_lua_push_usage(lua_State *L, const fl_lua_call *call);
/* Messages of the op's function at index call it `name` (a literal) from now on. */
void fl_lua_call_rename(lua_State *L, int index, const char *name);

/* Fills attrs, which are those of an earlier call of the op, with the options in the table at index. */
void fl_lua_read_attrs(lua_State *L, fl_attrs *attrs, const fl_lua_call *call, int index);

/* Reads the arguments on the stack as a call of the op and reports the op's signatures over a hierarchy. */
fl_status fl_lua_signatures(lua_State *L, const fl_lua_call *call, const int *hierarchy, int ndim,
                            fl_signature_fn report, void *context);

#endif
