/*
** own_formula.c -- formulas of a script's ops: the list of rows from formula.lua, and the gradients derived from it.
*/
#include "arguments.h"
#include "op_call.h"
#include "own_op_parts.h"

#include <stdlib.h>
#include <string.h>

/* The node in the table on top: {kind =, index =, number =, row =, in1 =, ..., attr1 =, ...}; positions from 1, 0:
** none. */
static void read_node(lua_State *L, fl_formula_node *node)
{
    static const char *const in[] = {"in1", "in2", "in3"}, *const attrs[] = {"attr1", "attr2"};
    int at = lua_gettop(L);
    node->kind = (fl_formula_kind)fl_own_integer(L, at, "kind");
    node->index = (int)fl_own_integer(L, at, "index");
    if (node->kind == FL_FORMULA_ROW) {
        lua_getfield(L, at, "row");
        node->op = fl_formula_row(lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    lua_getfield(L, at, "number");
    node->number = lua_tonumber(L, -1);
    node->is_integer = lua_isinteger(L, -1);
    lua_pop(L, 1);
    for (int i = 0; i < FL_FORMULA_IN; i++) {
        node->in[i] = (int)fl_own_integer(L, at, in[i]) - 1;
        if (node->in[i] >= 0) node->nin = i + 1;
    }
    for (int i = 0; i < FL_FORMULA_ATTRS; i++) {
        node->attrs[i] = (int)fl_own_integer(L, at, attrs[i]) - 1;
        node->absent[i] = node->op ? fl_formula_absent(node->op, i) : 0;
    }
}

void fl_own_read_formula(lua_State *L, fl_formula **out, const char *name, int index)
{
    int n = (int)lua_rawlen(L, index);
    if (n > FL_FORMULA_NODES) FL_RAISE(L, "%s: the formula is too long", name);
    fl_formula *formula = *out = fl_own_allocate(L, sizeof *formula + sizeof *formula->nodes * (size_t)n);
    formula->count = n;
    formula->linear = fl_lua_flag(L, 1, "linear");
    formula->as_ops = fl_lua_flag(L, 1, "as_ops");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, index, i + 1);
        read_node(L, &formula->nodes[i]);
        lua_pop(L, 1);
    }
    fl_formula_settle(formula);
}

void fl_own_drop_gradients(fl_formula *formula)
{
    free(formula->gradients);
    free(formula->from_saved);
    formula->gradients = formula->from_saved = NULL;
}

void fl_own_free_formula(fl_formula *formula)
{
    if (!formula) return;
    fl_own_drop_gradients(formula);
    free(formula->saving);
    free(formula);
}

bool fl_own_same_formula(const fl_formula *x, const fl_formula *y)
{
    return x->count == y->count && x->as_ops == y->as_ops && x->linear == y->linear
        && memcmp(x->nodes, y->nodes, sizeof *x->nodes * (size_t)x->count) == 0;
}

/* row(name) -> {id =, cost = ns, sig =, hidden =, vjp = {expressions or false}, absent = {what attributes are where
** they are left out}}: a row that formulas may use, nil where there is none */
int fl_own_row(lua_State *L)
{
    const fl_op *op = fl_formula_row(luaL_checkstring(L, 1));
    if (!op) return 0;
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, op->row);
    lua_setfield(L, -2, "id");
    lua_pushnumber(L, fl_formula_cost(op));
    lua_setfield(L, -2, "cost");
    lua_pushstring(L, op->sig);
    lua_setfield(L, -2, "sig");
    lua_pushboolean(L, op->flags & FL_OP_HIDDEN);
    lua_setfield(L, -2, "hidden");
    lua_newtable(L);
    for (int i = 0; op->vjp && i < fl_op_signature(op)->tensor_count; i++) {
        if (op->vjp[i]) lua_pushstring(L, op->vjp[i]);
        else lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "vjp");
    lua_newtable(L);
    for (int i = 0; i < FL_FORMULA_ATTRS; i++) {
        lua_pushnumber(L, fl_formula_absent(op, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "absent");
    return 1;
}

/* The list of whole numbers in a field of the table on top; their count. */
static int read_positions(lua_State *L, int *out, int limit, const char *name)
{
    lua_getfield(L, -1, name);
    int n = (int)lua_rawlen(L, -1);
    for (int i = 0; i < n && i < limit; i++) {
        lua_rawgeti(L, -1, i + 1);
        out[i] = (int)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n < limit ? n : limit;
}

/* The list at index: {{op = function or nil, given = bool, operands = {positions}, attrs = {positions}}, ...}, where an
** operand is a position, -1 the gradient, -2 - i result i. */
static fl_formula_gradient *read_gradients(lua_State *L, int index)
{
    int n = (int)lua_rawlen(L, index);
    fl_formula_gradient *list = fl_own_allocate(L, sizeof *list * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, index, i + 1);
        lua_getfield(L, -1, "op");
        const fl_lua_call *call = fl_lua_call_of(L, -1);
        lua_pop(L, 1);
        list[i].op = call ? call->op : NULL;
        list[i].is_given = fl_lua_flag(L, lua_gettop(L), "given");
        list[i].nin = read_positions(L, list[i].in, FL_MAX_PARAMS, "operands");
        list[i].nattrs = read_positions(L, list[i].attrs, FL_MAX_ATTRS, "attrs");
        lua_pop(L, 1);
    }
    return list;
}

/* The op that is recorded in the place of `op`, with values that are kept as further results. */
static void make_saving(lua_State *L, fl_formula *formula, const fl_op *op, int index)
{
    if (!formula->saving) formula->saving = fl_own_allocate(L, sizeof *formula->saving);
    lua_pushvalue(L, index);
    formula->kept_count = read_positions(L, formula->kept, FL_FORMULA_KEPT, "nodes");
    lua_pop(L, 1);
    *formula->saving = *op;
    formula->saving->nout = 1 + formula->kept_count;
    formula->saving->saves_out = (uint32_t)fl_own_integer(L, index, "saves_out");
    formula->saving->grad = fl_formula_grad;
}

/* set_gradients(f, list, kept): the gradients of a formula's operands, from formulas (read_gradients). kept: nil, or
** {nodes = {positions of values that are kept}, saves_out = bits of results, list = the gradients from them} */
int fl_own_set_gradients(lua_State *L)
{
    const fl_lua_call *call = fl_lua_call_of(L, 1);
    const fl_op *op = call ? call->op : NULL;
    if (!op || !op->formula) FL_RAISE(L, "op: an op of a formula is expected, got %s", fl_lua_type_name(L, 1));
    fl_formula *formula = (fl_formula *)op->formula; /* allocated by own_op.c */
    lua_settop(L, 3);
    luaL_checktype(L, 2, LUA_TTABLE);
    fl_own_drop_gradients(formula);
    formula->gradients = read_gradients(L, 2);
    if (lua_isnil(L, 3)) return 0;
    lua_getfield(L, 3, "list");
    formula->from_saved = read_gradients(L, 4);
    make_saving(L, formula, op, 3);
    return 0;
}
