/*
** ops.c -- the functions, methods and operators that tensors have: all registered ops, by their flags.
*/
#include "errors.h"
#include "members.h"
#include "op_call.h"
#include "tensors.h"

#include <string.h>

static void open_in_place(lua_State *L, int methods, const fl_op *op)
{
    lua_pushfstring(L, "%s_", op->name); /* kept alive as a key of the methods */
    const char *name = lua_tostring(L, -1);
    fl_lua_push_op(L, op, name, true);
    lua_rawset(L, methods);
}

/* Ops of flow.linalg that PyTorch also has beside linalg, as functions and methods of these names. */
static void open_aliases(lua_State *L, int all, int flow, int methods)
{
    static const struct {
        const char *op, *name;
    } aliases[] = {
        {"linalg.det", "det"},
        {"linalg.slogdet", "slogdet"},
        {"linalg.inv", "inverse"},
        {"linalg.cholesky", "cholesky"},
        {"linalg.matrix_exp", "matrix_exp"},
        {"linalg.matrix_power", "matrix_power"},
        {"outer", "ger"},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        lua_getfield(L, all, aliases[i].op);
        lua_pushvalue(L, -1);
        lua_setfield(L, flow, aliases[i].name);
        lua_setfield(L, methods, aliases[i].name);
    }
}

void fl_lua_open_ops(lua_State *L, int flow, int methods)
{
    lua_createtable(L, 0, 128);
    int all = lua_gettop(L);
    FL_FOR_EACH_OP(each)
    {
        const fl_op *op = *each;
        if (!op->infer && !op->body) continue; /* recorded on the tape, never dispatched */
        fl_lua_push_op(L, op, op->name, false);
        lua_pushvalue(L, -1);
        lua_setfield(L, all, op->name);
        bool shown = !(op->flags & FL_OP_HIDDEN) && !strchr(op->name, '.'); /* "linalg.det": its module has it */
        if (shown && !(op->flags & FL_OP_METHOD_ONLY)) {
            lua_pushvalue(L, -1);
            lua_setfield(L, flow, op->name);
        }
        if (shown && !(op->flags & FL_OP_FUNCTION_ONLY) && fl_lua_tensor_first(op)) {
            lua_pushvalue(L, -1);
            lua_setfield(L, methods, op->name);
        }
        lua_pop(L, 1);
        if (shown && fl_op_in_place(op)) open_in_place(L, methods, op);
    }
    open_aliases(L, all, flow, methods);
    lua_setfield(L, flow, "_op");
}

/* ---- operators ---- */

static int compare_error(lua_State *L)
{
    FL_RAISE(L, "tensors are compared elementwise with x:lt(y), x:le(y), x:gt(y), x:ge(y), x:eq(y), x:ne(y)");
}

static int call_error(lua_State *L)
{
    FL_RAISE(L, "a tensor cannot be called; index it with x[i]; to iterate write " FL_ITERATION);
}

static int pairs_error(lua_State *L)
{
    FL_RAISE(L, "pairs: a tensor is not a table; write " FL_ITERATION ", or pairs(x:totable())");
}

/* The operators on bits: upvalue 1 says what to write. */
static int bits_error(lua_State *L) { FL_RAISE(L, "%s", lua_tostring(L, lua_upvalueindex(1))); }

static void open_bits(lua_State *L, int metatable)
{
    static const struct {
        const char *event, *text;
    } events[] = {
        {"__band",
         "tensors have no operator &; write x:logical_and(y) for conditions, x:bitwise_and(y) for the bits of "
         "integers"},
        {"__bor",
         "tensors have no operator |; write x:logical_or(y) for conditions, x:bitwise_or(y) for the bits of integers"},
        {"__bxor",
         "tensors have no operator ~; write x:logical_xor(y) for conditions, x:bitwise_xor(y) for the bits of "
         "integers"},
        {"__bnot",
         "tensors have no operator ~; write x:logical_not() for conditions, x:bitwise_not() for the bits of integers"},
        {"__shl", "tensors have no operator <<; write x * (1 << n)"},
        {"__shr", "tensors have no operator >>; write x // (1 << n)"},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        lua_pushstring(L, events[i].text);
        lua_pushcclosure(L, bits_error, 1);
        lua_setfield(L, metatable, events[i].event);
    }
}

static int concat_error(lua_State *L)
{
    FL_RAISE(L, "a tensor cannot be concatenated with ..; use tostring(x), x:item() or flow.cat");
}

void fl_lua_open_operators(lua_State *L, int metatable)
{
    static const struct {
        const char *event, *op;
    } binary[] = {
        {"__add", "add"},       {"__sub", "sub"}, {"__mul", "mul"},           {"__div", "div"},
        {"__mod", "remainder"}, {"__pow", "pow"}, {"__idiv", "floor_divide"},
    };
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
        const fl_op *op = fl_op_find(binary[i].op);
        if (!op) continue;
        fl_lua_push_op(L, op, op->name, false);
        lua_setfield(L, metatable, binary[i].event);
    }
    const fl_op *negate = fl_op_find("neg");
    if (negate) {
        fl_lua_push_unary(L, negate);
        lua_setfield(L, metatable, "__unm");
    }
    static const luaL_Reg errors[] = {{"__lt", compare_error}, {"__le", compare_error},  {"__concat", concat_error},
                                      {"__call", call_error},  {"__pairs", pairs_error}, {NULL, NULL}};
    lua_pushvalue(L, metatable);
    luaL_setfuncs(L, errors, 0);
    lua_pop(L, 1);
    open_bits(L, metatable);
}
