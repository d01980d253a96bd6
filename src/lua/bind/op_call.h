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
    uint32_t needed_operands;      /* parameters that must be given: tensors, */
    uint32_t needed_attrs;         /* and others */
    const fl_signature *signature; /* NULL until the first call */
    fl_attrs *defaults;            /* owned */
    struct fl_lua_call *wider;     /* of op->wider, from the first call on; or NULL */
    uint32_t widened;              /* parameters that are tensors only there */
} fl_lua_call;

/* ---- names of ops (ops.c) ---- */

/* A table with functions of ops, each of which is made when its name is read for the first time. FL_LUA_OPS: flow._op,
** with one for each op by its own name, which the other two share. */
typedef enum fl_lua_holder { FL_LUA_FLOW, FL_LUA_METHODS, FL_LUA_OPS } fl_lua_holder;

/* Makes flow._op; flow is an index. */
void fl_lua_open_ops(lua_State *L, int flow);
/* Operators of the metatable at index. */
void fl_lua_open_operators(lua_State *L, int metatable);
/* Pushes flow._op[op]. */
void fl_lua_push_function_of(lua_State *L, const char *op);
/* Push the function of ops that is flow.name or x:name; false, and nothing pushed: there is none. */
bool fl_lua_push_op_function(lua_State *L, const char *name);
bool fl_lua_push_op_method(lua_State *L, int methods, const char *name);
/* Gives the table on top of the stack the metatable of such a table: `index` reads a name that it does not have yet,
** `names` returns the list of them (metatable.__names, for lazy_names.lua), pairs makes all functions before. */
void fl_lua_set_op_members(lua_State *L, lua_CFunction index, lua_CFunction names, fl_lua_holder holder);
/* Appends those names to the list on top of the stack. */
void fl_lua_append_op_names(lua_State *L, fl_lua_holder holder);
/* The table at index has all functions of ops from now on. */
void fl_lua_make_members(lua_State *L, int table, fl_lua_holder holder);

/* ---- functions of ops (op_call.c) ---- */

/* Pushes the function that calls the op; `name` is kept. unary: the metamethod of an op of one operand. */
void fl_lua_push_op(lua_State *L, const fl_op *op, const char *name, bool in_place);
void fl_lua_push_unary(lua_State *L, const fl_op *op);
/* True if the first parameter is a tensor: then the op is a method. */
bool fl_lua_tensor_first(const fl_op *op);
/* The op that a function on the stack calls; NULL when it is no op. */
const fl_lua_call *fl_lua_call_of(lua_State *L, int index);
/* Pushes the op's signature as users read it: "where(cond, x|number, y|number)", without the marks of attributes. */
const char *fl_lua_push_usage(lua_State *L, const fl_lua_call *call);

/* Fills attrs, which are those of an earlier call of the op, with the options in the table at index. Those that it does
** not name stay, or else are what a call without them has: their defaults, or an error. */
void fl_lua_read_attrs(lua_State *L, fl_attrs *attrs, const fl_lua_call *call, int index, bool others_stay);

/* Reads the arguments on the stack as a call of the op and reports the op's signatures over a hierarchy. */
fl_status fl_lua_signatures(lua_State *L, const fl_lua_call *call, const int *hierarchy, int ndim,
                            fl_signature_fn report, void *context);

#endif
