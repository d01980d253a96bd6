/*
** ops.c -- the functions, methods and operators that tensors have: all registered ops, by their flags.
*/
#include "errors.h"
#include "members.h"
#include "modules.h"
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

/* x:name_() where there is x:op_(). */
static void alias_in_place(lua_State *L, int methods, const char *op, const char *name)
{
    lua_pushfstring(L, "%s_", op);
    if (lua_rawget(L, methods) == LUA_TFUNCTION) {
        lua_pushfstring(L, "%s_", name);
        lua_insert(L, -2);
        lua_rawset(L, methods);
    } else lua_pop(L, 1);
}

/* Second names that PyTorch has too, as functions and methods: of ops of flow.linalg beside linalg, and of others. */
static void open_aliases(lua_State *L, int all, int flow, int methods)
{
    static const struct {
        const char *op, *name;
    } aliases[] = {
        {"clamp", "clip"},
        {"nonzero", "argwhere"},
        {"linalg.det", "det"},
        {"linalg.slogdet", "slogdet"},
        {"linalg.inv", "inverse"},
        {"linalg.cholesky", "cholesky"},
        {"linalg.matrix_exp", "matrix_exp"},
        {"linalg.matrix_power", "matrix_power"},
        {"outer", "ger"},
        {"transpose", "swapaxes"},
        {"transpose", "swapdims"},
        {"movedim", "moveaxis"},
        {"permute", "permute_dims"},
        {"unsqueeze", "expand_dims"},
        {"expand", "broadcast_to"},
        {"flatten", "ravel"},
        {"matrix_transpose", "adjoint"},
        {"take_along_axis", "take_along_dim"},
        {"neg", "negative"},
        {"mul", "multiply"},
        {"div", "divide"},
        {"div", "true_divide"},
        {"sub", "subtract"},
        {"gt", "greater"},
        {"ge", "greater_equal"},
        {"lt", "less"},
        {"le", "less_equal"},
        {"ne", "not_equal"},
        {"bitwise_not", "bitwise_invert"},
        {"linalg.vecdot", "vecdot"},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        lua_getfield(L, all, aliases[i].op);
        lua_pushvalue(L, -1);
        lua_setfield(L, flow, aliases[i].name);
        lua_setfield(L, methods, aliases[i].name);
        alias_in_place(L, methods, aliases[i].op, aliases[i].name);
    }
    for (int i = 0; i < 2; i++) {
        lua_getfield(L, flow, "cat");
        lua_setfield(L, flow, i ? "concatenate" : "concat");
    }
    fl_lua_push_op(L, FL_OP_REF(polygamma_of), "polygamma", false); /* x:polygamma(n) beside flow.polygamma(n, x) */
    lua_setfield(L, methods, "polygamma");
}

void fl_lua_open_ops(lua_State *L, int flow, int methods)
{
    lua_createtable(L, 0, 1024);
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

/* pairs(x): positions from 0 and the parts of x along axis 0 */
static int tensor_pairs(lua_State *L)
{
    fl_lua_push_module(L, "shaping");
    lua_getfield(L, -1, "pairs");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 3);
    return 3;
}

/* & | ~ << >>: of bools the logical operations, of integers those on bits. */
static void open_bits(lua_State *L, int metatable)
{
    static const struct {
        const char *event, *op;
    } events[] = {
        {"__band", "bitwise_and"}, {"__bor", "bitwise_or"},         {"__bxor", "bitwise_xor"},
        {"__bnot", "bitwise_not"}, {"__shl", "bitwise_left_shift"}, {"__shr", "bitwise_right_shift"},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        const fl_op *op = fl_op_find(events[i].op);
        if (strcmp(events[i].event, "__bnot") == 0) fl_lua_push_unary(L, op);
        else fl_lua_push_op(L, op, op->name, false);
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
    static const luaL_Reg errors[] = {{"__lt", compare_error}, {"__le", compare_error},   {"__concat", concat_error},
                                      {"__call", call_error},  {"__pairs", tensor_pairs}, {NULL, NULL}};
    lua_pushvalue(L, metatable);
    luaL_setfuncs(L, errors, 0);
    lua_pop(L, 1);
    open_bits(L, metatable);
}
