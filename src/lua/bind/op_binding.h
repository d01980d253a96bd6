/*
** op_binding.h -- the arguments of a call of an op, while they are read.
*/
#ifndef FL_LUA_OP_BINDING_H
#define FL_LUA_OP_BINDING_H

#include "arguments.h"
#include "op_call.h"
#include "tensors.h"

/* One call while its arguments are read. */
typedef struct fl_lua_binding {
    const fl_lua_call *call;
    const fl_signature *signature;
    fl_operand *in; /* `fixed`, or a userdata on the Lua stack */
    int nin;
    uint32_t given;    /* parameters seen, a bit each */
    int options_index; /* of the table that came last */
    fl_tensor *out;    /* borrowed: where the result goes, or NULL */
    fl_lua_options options;
    fl_attrs attrs;
    fl_operand fixed[FL_MAX_PARAMS];
} fl_lua_binding;

/* op_attr.c: reads `numbers` values from index on (1, unless a greedy list takes more) into the attribute. */
void fl_lua_read_attr(lua_State *L, fl_lua_binding *binding, const fl_param *param, int index, int numbers);
bool fl_lua_is_list_type(fl_attr_type type);
bool fl_lua_takes_numbers(fl_attr_type type);

/* op_arguments.c: reads all arguments on the stack. */
void fl_lua_read_call(lua_State *L, fl_lua_binding *binding, const fl_lua_call *call);

/* The position of a parameter; -1: there is none of that name. */
int fl_lua_param_at(const fl_signature *signature, const char *name);

/* A tensor, a number where the parameter takes one, or nil where it may be absent. */
void fl_lua_read_non_tensor(lua_State *L, fl_operand *operand, const fl_lua_call *call, const fl_param *param,
                            int index);
static inline void fl_lua_read_operand(lua_State *L, fl_operand *operand, const fl_lua_call *call,
                                       const fl_param *param, int index)
{
    fl_box *box = fl_lua_box(L, index);
    if (FL_LIKELY(box != NULL)) {
        operand->kind = FL_TENSOR;
        operand->tensor = box->tensor;
    } else fl_lua_read_non_tensor(L, operand, call, param, index);
}

/* A table of named values (a list has no string key). */
bool fl_lua_is_named(lua_State *L, int index);
static inline bool fl_lua_is_options(lua_State *L, int index)
{
    return lua_istable(L, index) && fl_lua_is_named(L, index);
}

#endif
