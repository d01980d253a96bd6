/*
** trace_call.c -- a step of a program calls its op: operands, attributes and options out of tables.
**
** The tables may come from a file, so all that the op takes for granted is checked here by its signature: how many
** operands there are and of which kind, that attributes are known and none is missing, and that the place of the result
** is one.
*/
#include "arguments.h"
#include "op_call.h"
#include "tensors.h"
#include "trace.h"

static void check_operand(lua_State *L, fl_operand *out, const fl_lua_call *call, const fl_param *param, int index)
{
    int type = lua_type(L, index);
    fl_tensor *t = fl_lua_to_tensor(L, index);
    if (t) *out = fl_of(t);
    else if (type == LUA_TNUMBER && param->number_allowed)
        *out = lua_isinteger(L, index) ? fl_of_integer(lua_tointeger(L, index)) : fl_of_number(lua_tonumber(L, index));
    else if (type == LUA_TBOOLEAN && param->number_allowed) {
        *out = fl_of_integer(lua_toboolean(L, index));
        out->kind = FL_NUM_BOOL;
    } else if (type == LUA_TNIL && param->optional) out->kind = FL_NONE;
    else
        FL_RAISE(L, "%s: %s must be %s, got %s", call->name, param->name,
                 param->number_allowed ? "a tensor or a number" : "a tensor", fl_lua_type_name(L, index));
}

/* The operands in the list at index, checked against the signature; they lie in a userdata on the stack. */
static fl_operand *check_operands(lua_State *L, const fl_lua_call *call, int index, int count)
{
    const fl_signature *s = call->signature;
    const fl_param *params[FL_MAX_PARAMS], *list = NULL;
    int fixed = 0;
    for (int i = 0; i < s->param_count; i++) {
        if (!s->params[i].is_tensor) continue;
        if (s->params[i].is_list) list = &s->params[i];
        else params[fixed++] = &s->params[i];
    }
    int groups = call->op->groups;
    if (count < fixed || (count > fixed && !list) || (groups && (count == 0 || count % groups)))
        FL_RAISE(L, "%s: %d operands do not fit %s", call->name, count, fl_lua_push_usage(L, call));
    fl_operand *in = lua_newuserdatauv(L, sizeof *in * (size_t)(count + 1), 0);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, index, i + 1);
        check_operand(L, &in[i], call, i < fixed ? params[i] : list, lua_gettop(L));
        lua_pop(L, 1);
    }
    return in;
}

static const fl_param *attribute(const fl_signature *signature, const char *name)
{
    for (int i = 0; i < signature->param_count; i++)
        if (!signature->params[i].is_tensor && signature->params[i].type != FL_ATTR_OPTIONS
            && strcmp(signature->params[i].name, name) == 0)
            return &signature->params[i];
    return NULL;
}

/* The first name, in the order of the alphabet, that is no attribute; NULL: all are. */
static const char *stray_attr(lua_State *L, const fl_signature *signature, int index)
{
    const char *first = NULL;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool known = attribute(signature, name) && strcmp(name, "grad_sbp") != 0;
        if (!known && (!first || strcmp(name, first) < 0)) first = name;
    }
    return first;
}

/* The attributes in the table at index: only those, and all that are required. seed: an index, of the seed and the
** counter of what is drawn again, or nil. */
static void check_attrs(lua_State *L, fl_attrs *attrs, const fl_lua_call *call, int index, int seed)
{
    const fl_signature *s = call->signature;
    fl_attrs_init(attrs, call->op);
    const char *stray = stray_attr(L, s, index);
    if (stray) FL_RAISE(L, "%s: has no attribute '%.40s'", call->name, stray);
    for (int i = 0; i < s->param_count; i++) { /* not in the table's order, which is another on each rank */
        lua_newtable(L);
        lua_getfield(L, index, s->params[i].name);
        lua_setfield(L, -2, s->params[i].name);
        fl_lua_read_attrs(L, attrs, call, lua_gettop(L), true);
    }
    if (!lua_isnil(L, seed)) {
        int slot = call->op->seed_slot;
        if (!slot) FL_RAISE(L, "%s: draws nothing again", call->name);
        fl_attr_set(attrs, slot, luaL_checkinteger(L, seed));
        fl_attr_set(attrs, slot + 1, luaL_checkinteger(L, seed + 1));
    }
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor && p->type != FL_ATTR_OPTIONS && p->required && !attrs->at[p->slot].given)
            FL_RAISE(L, "%s: the attribute '%s' is missing", call->name, p->name);
    }
}

static void check_grad_sbp(lua_State *L, fl_attrs *attrs, const fl_op *op, const fl_meta *x, int index)
{
    if (lua_getfield(L, index, "grad_sbp") != LUA_TNIL) {
        fl_nd_sbp sbp = fl_lua_check_sbp(L, lua_gettop(L), x->shape.ndim, op->name);
        FL_CHECK(L, fl_place_set_grad_sbp(attrs, op, x, sbp, op->name));
    }
    lua_pushnil(L);
    lua_setfield(L, index, "grad_sbp");
    lua_pop(L, 1);
}

/* The options in the table at index, which is changed. */
static void check_options(lua_State *L, fl_attrs *attrs, const fl_lua_call *call, const fl_operand *in, int nin,
                          int index)
{
    const fl_op *op = call->op;
    const fl_meta *x = nin > 0 && in[0].kind == FL_TENSOR ? in[0].tensor->meta : NULL;
    fl_lua_options options = {0};
    if (fl_op_is_placed(op) || op == FL_OP_REF(to_local)) check_grad_sbp(L, attrs, op, x, index);
    lua_pushnil(L);
    bool any = lua_next(L, index);
    if (any) lua_pop(L, 2);
    if (any && !call->signature->has_options && !fl_op_is_placed(op)) FL_RAISE(L, "%s: takes no options", call->name);
    if (any) {
        fl_lua_read_options(L, &options, index, x ? x->shape.ndim : FL_MAX_NDIM, call->name);
        fl_lua_apply_options(L, attrs, &options, call->name);
    }
    if (fl_op_is_placed(op)) FL_CHECK(L, fl_place_check(attrs, op, call->name));
}

/* The mode of a step's call. */
struct mode {
    bool in_place, no_grad, undraws; /* undraws: its draws are put back */
};

static fl_status dispatch(fl_tensor **out, fl_draw_note *note, const fl_lua_call *call, struct mode mode,
                          const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_draw_note *before = fl_draws_noted;
    fl_generator generator = *fl_generator_current();
    bool enabled = fl_grad_enabled;
    fl_draws_noted = note;
    if (mode.no_grad) fl_grad_enabled = false;
    fl_status status = mode.in_place ? fl_dispatch_inplace(out, call->op, in, nin, attrs)
                                     : fl_dispatch(out, call->op, in, nin, attrs);
    fl_grad_enabled = enabled;
    fl_draws_noted = before;
    if (status == FL_OK && mode.undraws) fl_dispatch_undraw(&generator);
    return status;
}

/* Pushes seeds and counters in turn. */
static void push_draws(lua_State *L, const fl_draw_note *note)
{
    lua_newtable(L);
    for (int i = 0; i < note->count && i < FL_DRAWS_NOTED; i++) {
        lua_pushinteger(L, (lua_Integer)note->at[i].seed);
        lua_rawseti(L, -2, 2 * i + 1);
        lua_pushinteger(L, (lua_Integer)note->at[i].counter);
        lua_rawseti(L, -2, 2 * i + 2);
    }
}

int fl_lua_call_step(lua_State *L)
{
    enum { STEP = 1, OPERANDS, OPTIONS, SEED, COUNTER, NAME, ATTRS };
    for (int i = STEP; i <= OPTIONS; i++) luaL_checktype(L, i, LUA_TTABLE);
    lua_settop(L, COUNTER);
    luaL_checkstack(L, FL_MAX_PARAMS + 24, "trace");
    lua_getfield(L, STEP, "op");
    const char *name = luaL_checkstring(L, NAME);
    lua_getfield(L, STEP, "attrs");
    luaL_checktype(L, ATTRS, LUA_TTABLE);
    lua_getfield(L, STEP, "n");
    int count = (int)luaL_checkinteger(L, -1);
    const struct mode mode = {fl_lua_flag(L, STEP, "in_place"), fl_lua_flag(L, STEP, "no_grad"),
                              fl_lua_flag(L, STEP, "undraws")};
    if (lua_getfield(L, STEP, "f") == LUA_TNIL) { /* the op that the program was made with, which may be replaced */
        lua_pushvalue(L, NAME);
        lua_rawget(L, lua_upvalueindex(1));
    }
    const fl_lua_call *call = fl_lua_call_of(L, -1);
    if (!call) FL_RAISE(L, "there is no op '%.40s'", name);
    const fl_op *op = call->op;
    if (mode.in_place && !fl_op_in_place(op)) FL_RAISE(L, "%s: cannot be done in place", name);
    fl_operand *in = check_operands(L, call, OPERANDS, count);
    fl_attrs attrs;
    check_attrs(L, &attrs, call, ATTRS, SEED);
    check_options(L, &attrs, call, in, count, OPTIONS);
    fl_tensor *out[FL_MAX_OUT] = {NULL};
    fl_box *boxes[FL_MAX_OUT];
    int nout = mode.in_place ? 1 : op->nout;
    lua_createtable(L, nout, 0);
    for (int i = 0; i < nout; i++) {
        boxes[i] = fl_lua_new_box(L);
        lua_rawseti(L, -2, i + 1);
    }
    fl_draw_note note = {.count = 0};
    fl_lua_enter(L);
    FL_CHECK(L, dispatch(out, &note, call, mode, in, count, &attrs));
    for (int i = 0; i < nout; i++) boxes[i]->tensor = out[i];
    if (attrs.requires_grad && nout) FL_CHECK(L, fl_autograd_set_requires_grad(out[0], true));
    push_draws(L, &note);
    fl_lua_account(L);
    return 2;
}
