/*
** ops.c -- the functions, methods and operators of tensors that are ops.
**
** A program uses few of the ops, so a function is made when its name is read for the first time. flow._op has one for
** each op, which the flow table and the methods share.
*/
#include "errors.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "overloads.h"
#include "tensors.h"

#include <string.h>

/* ---- names of ops ---- */

/* Second names: of ops of flow.linalg beside linalg, and of others that PyTorch and the array API have twice. */
static const struct alias {
    const char *op, *name;
    enum { BOTH, FUNCTION, METHOD } kind;
} aliases[] = {
    {"clamp", "clip", BOTH},
    {"nonzero", "argwhere", BOTH},
    {"linalg.det", "det", BOTH},
    {"linalg.slogdet", "slogdet", BOTH},
    {"linalg.inv", "inverse", BOTH},
    {"linalg.cholesky", "cholesky", BOTH},
    {"linalg.matrix_exp", "matrix_exp", BOTH},
    {"linalg.matrix_power", "matrix_power", BOTH},
    {"outer", "ger", BOTH},
    {"transpose", "swapaxes", BOTH},
    {"transpose", "swapdims", BOTH},
    {"movedim", "moveaxis", BOTH},
    {"permute", "permute_dims", BOTH},
    {"unsqueeze", "expand_dims", BOTH},
    {"expand", "broadcast_to", BOTH},
    {"flatten", "ravel", BOTH},
    {"matrix_transpose", "adjoint", BOTH},
    {"take_along_axis", "take_along_dim", BOTH},
    {"neg", "negative", BOTH},
    {"mul", "multiply", BOTH},
    {"div", "divide", BOTH},
    {"div", "true_divide", BOTH},
    {"sub", "subtract", BOTH},
    {"gt", "greater", BOTH},
    {"ge", "greater_equal", BOTH},
    {"lt", "less", BOTH},
    {"le", "less_equal", BOTH},
    {"ne", "not_equal", BOTH},
    {"bitwise_not", "bitwise_invert", BOTH},
    {"linalg.vecdot", "vecdot", BOTH},
    {"cat", "concat", FUNCTION},
    {"cat", "concatenate", FUNCTION},
    {"rep", "repeat", FUNCTION},           /* a keyword: flow["repeat"] */
    {"polygamma_of", "polygamma", METHOD}, /* x:polygamma(n) beside flow.polygamma(n, x) */
};
enum { ALIASES = sizeof aliases / sizeof *aliases };

static const struct alias *alias_of(const char *name, bool method)
{
    for (int i = 0; i < ALIASES; i++)
        if (aliases[i].kind != (method ? FUNCTION : METHOD) && strcmp(aliases[i].name, name) == 0) return &aliases[i];
    return NULL;
}

/* False: it is recorded on the tape, never dispatched. */
static bool is_called(const fl_op *op) { return op && (op->infer || op->body); }

/* "linalg.det" is shown by its module. */
static bool is_shown(const fl_op *op) { return is_called(op) && !(op->flags & FL_OP_HIDDEN) && !strchr(op->name, '.'); }

static bool is_function(const fl_op *op) { return is_shown(op) && !(op->flags & FL_OP_METHOD_ONLY); }
static bool is_method(const fl_op *op)
{
    return is_shown(op) && !(op->flags & FL_OP_FUNCTION_ONLY) && fl_lua_tensor_first(op);
}

/* True if there is x:name_(). */
static bool works_in_place(const fl_op *op) { return is_shown(op) && fl_op_in_place(op); }

/* The op that is the function or method of that name; NULL: there is none. */
static const fl_op *op_of(const char *name, bool method)
{
    const struct alias *alias = alias_of(name, method);
    const fl_op *op = fl_op_find_own(alias ? alias->op : name);
    return alias || (method ? is_method(op) : is_function(op)) ? op : NULL;
}

/* The op that x:name() computes in place, for "name" without its last "_"; NULL: there is none. */
static const fl_op *in_place_of(const char *name)
{
    char stem[64];
    size_t n = strlen(name);
    if (n < 2 || n > sizeof stem || name[n - 1] != '_') return NULL;
    memcpy(stem, name, n - 1);
    stem[n - 1] = 0;
    const struct alias *alias = alias_of(stem, true);
    const fl_op *op = fl_op_find_own(alias ? alias->op : stem);
    return works_in_place(op) ? op : NULL;
}

/* ---- functions ---- */

static const char ops_key; /* its address: flow._op in the registry */

void fl_lua_push_function_of(lua_State *L, const char *op)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &ops_key);
    lua_getfield(L, -1, op);
    lua_remove(L, -2);
}

/* Stores the value on top of the stack in the table under a name that it does not have yet; leaves the value. */
static void store(lua_State *L, int table, const char *name)
{
    lua_pushstring(L, name);
    lua_pushvalue(L, -1);
    bool is_new = lua_rawget(L, table) == LUA_TNIL;
    lua_pop(L, 1);
    lua_pushvalue(L, -2);
    if (is_new) lua_rawset(L, table);
    else lua_pop(L, 2);
}

/* The name of the op in messages. */
static const char *called_name(const fl_op *op)
{
    const char *name = fl_lua_overload_of(op);
    for (int i = 0; i < ALIASES && !name; i++)
        if (aliases[i].kind == METHOD && strcmp(aliases[i].op, op->name) == 0) name = aliases[i].name;
    return name ? name : op->name;
}

/* __index of flow._op: makes the function of the op, which the flow table shows from now on. */
static int op_index(lua_State *L)
{
    const fl_op *op = lua_type(L, 2) == LUA_TSTRING ? fl_op_find_own(lua_tostring(L, 2)) : NULL;
    if (!is_called(op)) return 0;
    bool is_open = fl_lua_push_flow(L);
    fl_lua_enter(L);
    fl_lua_push_op(L, op, called_name(op), false);
    store(L, 1, op->name);
    if (is_open && is_function(op) && !fl_lua_is_overload(op->name)) store(L, 3, op->name);
    return 1;
}

bool fl_lua_push_op_function(lua_State *L, const char *name)
{
    if (fl_lua_push_overload(L, name, false)) return true;
    const fl_op *op = op_of(name, false);
    if (op) fl_lua_push_function_of(L, op->name);
    return op != NULL;
}

/* The function of x:add_(), also for its second names. */
static void push_in_place(lua_State *L, int methods, const fl_op *op)
{
    lua_pushfstring(L, "%s_", op->name); /* kept alive as a key of the methods */
    lua_pushvalue(L, -1);
    if (lua_rawget(L, methods) == LUA_TNIL) {
        fl_lua_enter(L);
        lua_pop(L, 1);
        fl_lua_push_op(L, op, lua_tostring(L, -1), true);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, methods);
    }
    lua_remove(L, -2);
}

bool fl_lua_push_op_method(lua_State *L, int methods, const char *name)
{
    if (fl_lua_push_overload(L, name, true)) return true;
    const fl_op *op = op_of(name, true), *in_place = op ? NULL : in_place_of(name);
    if (op) fl_lua_push_function_of(L, op->name);
    else if (in_place) push_in_place(L, lua_absindex(L, methods), in_place);
    return op || in_place;
}

/* ---- all of them ---- */

static void append(lua_State *L, const char *name, const char *after)
{
    lua_pushfstring(L, "%s%s", name, after);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

static bool is_member(const fl_op *op, fl_lua_holder holder)
{
    return holder == FL_LUA_OPS ? is_called(op) : holder == FL_LUA_FLOW ? is_function(op) : is_method(op);
}

void fl_lua_append_op_names(lua_State *L, fl_lua_holder holder)
{
    bool methods = holder == FL_LUA_METHODS;
    FL_FOR_EACH_OP(each)
    {
        if (is_member(*each, holder)) append(L, (*each)->name, "");
        if (methods && works_in_place(*each)) append(L, (*each)->name, "_");
    }
    if (holder == FL_LUA_OPS) return;
    for (int i = 0; i < ALIASES; i++) {
        if (aliases[i].kind == (methods ? FUNCTION : METHOD)) continue;
        append(L, aliases[i].name, "");
        if (methods && works_in_place(fl_op_find_own(aliases[i].op))) append(L, aliases[i].name, "_");
    }
    for (int i = 0; fl_lua_overload_name(i); i++) {
        const fl_op *same = fl_op_find_own(fl_lua_overload_name(i));
        if (fl_lua_overload_has(i, methods) && !(same && is_member(same, holder)))
            append(L, fl_lua_overload_name(i), "");
    }
}

void fl_lua_make_members(lua_State *L, int table, fl_lua_holder holder)
{
    lua_newtable(L);
    fl_lua_append_op_names(L, holder);
    for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        lua_gettable(L, table);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
}

static int next_member(lua_State *L)
{
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

/* __pairs. Upvalue: which of the tables it is. */
static int all_members(lua_State *L)
{
    fl_lua_make_members(L, 1, (fl_lua_holder)lua_tointeger(L, lua_upvalueindex(1)));
    lua_pushcfunction(L, next_member);
    lua_pushvalue(L, 1);
    return 2;
}

void fl_lua_set_op_members(lua_State *L, lua_CFunction index, lua_CFunction names, fl_lua_holder holder)
{
    lua_createtable(L, 0, 3);
    lua_pushcfunction(L, index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, names);
    lua_setfield(L, -2, "__names");
    lua_pushinteger(L, holder);
    lua_pushcclosure(L, all_members, 1);
    lua_setfield(L, -2, "__pairs");
    lua_setmetatable(L, -2);
}

static int op_names(lua_State *L)
{
    lua_newtable(L);
    fl_lua_append_op_names(L, FL_LUA_OPS);
    return 1;
}

void fl_lua_open_ops(lua_State *L, int flow)
{
    lua_newtable(L);
    fl_lua_set_op_members(L, op_index, op_names, FL_LUA_OPS);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &ops_key);
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

static int concat_error(lua_State *L)
{
    FL_RAISE(L, "a tensor cannot be concatenated with ..; use tostring(x), x:item() or flow.cat");
}

static void open_operator(lua_State *L, int metatable, const char *event, const fl_op *op)
{
    fl_lua_push_op(L, op, op->name, false);
    lua_setfield(L, metatable, event);
}

static void open_unary(lua_State *L, int metatable, const char *event, const fl_op *op)
{
    fl_lua_push_unary(L, op);
    lua_setfield(L, metatable, event);
}

void fl_lua_open_operators(lua_State *L, int metatable)
{
    open_operator(L, metatable, "__add", FL_OP_REF(add));
    open_operator(L, metatable, "__sub", FL_OP_REF(sub));
    open_operator(L, metatable, "__mul", FL_OP_REF(mul));
    open_operator(L, metatable, "__div", FL_OP_REF(div));
    open_operator(L, metatable, "__mod", FL_OP_REF(remainder));
    open_operator(L, metatable, "__pow", FL_OP_REF(pow));
    open_operator(L, metatable, "__idiv", FL_OP_REF(floor_divide));
    open_unary(L, metatable, "__unm", FL_OP_REF(neg));
    /* of bools the logical operations, of integers those on bits */
    open_operator(L, metatable, "__band", FL_OP_REF(bitwise_and));
    open_operator(L, metatable, "__bor", FL_OP_REF(bitwise_or));
    open_operator(L, metatable, "__bxor", FL_OP_REF(bitwise_xor));
    open_unary(L, metatable, "__bnot", FL_OP_REF(bitwise_not));
    open_operator(L, metatable, "__shl", FL_OP_REF(bitwise_left_shift));
    open_operator(L, metatable, "__shr", FL_OP_REF(bitwise_right_shift));
    static const luaL_Reg functions[] = {{"__lt", compare_error}, {"__le", compare_error},   {"__concat", concat_error},
                                         {"__call", call_error},  {"__pairs", tensor_pairs}, {NULL, NULL}};
    lua_pushvalue(L, metatable);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
