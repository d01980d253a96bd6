/*
** trace.c -- flow._trace: ops as lists of Lua, as flow.trace notes them (trace_call.c calls them again).
**
** Each noted op is passed to one Lua function, in a protected call: the core runs below it. A tensor with values that a
** traced op reads gets a stand-in on the meta device, one for the whole trace.
*/
#include "arguments.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "tensors.h"
#include "trace.h"

static const char on_op_key, stand_ins_key; /* registry, while a program is traced */

/* ---- attributes and options as tables ---- */

static void push_word(lua_State *L, const char *words, int64_t position)
{
    for (; position > 0 && strchr(words, '|'); position--) words = strchr(words, '|') + 1;
    lua_pushlstring(L, words, strcspn(words, "|"));
}

static void push_number(lua_State *L, fl_kind kind, int64_t integer, double number)
{
    if (kind == FL_NUM_FLOAT) lua_pushnumber(L, number);
    else if (kind == FL_NUM_BOOL) lua_pushboolean(L, integer != 0);
    else lua_pushinteger(L, integer);
}

static void push_integers(lua_State *L, const fl_attr *attr)
{
    lua_createtable(L, attr->count, 0);
    for (int i = 0; i < attr->count; i++) {
        lua_pushinteger(L, attr->list[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

void fl_lua_push_attr(lua_State *L, const fl_param *param, const fl_attr *attr)
{
    switch (param->type) {
    case FL_ATTR_BOOL: lua_pushboolean(L, attr->integer != 0); break;
    case FL_ATTR_FLOAT: push_number(L, FL_NUM_FLOAT, 0, fl_attr_number(attr)); break;
    case FL_ATTR_SCALAR: push_number(L, attr->kind, attr->integer, attr->number); break;
    case FL_ATTR_DTYPE: lua_pushstring(L, fl_dtype_name((fl_dtype)attr->integer)); break;
    case FL_ATTR_WORD: push_word(L, param->words, attr->integer); break;
    case FL_ATTR_TEXT: lua_pushstring(L, attr->text); break;
    case FL_ATTR_AXES:
    case FL_ATTR_INTS:
    case FL_ATTR_SIZES:
        if (attr->kind == FL_WORD) push_word(L, param->words, attr->integer);
        else push_integers(L, attr);
        break;
    default: lua_pushinteger(L, attr->integer);
    }
}

/* The seed and the counter of what the op draws again; NULL: it does not, or not what a traced op drew. */
static const fl_attr *redrawn(const fl_op *op, const fl_attrs *attrs)
{
    const fl_attr *seed = op->seed_slot ? &attrs->at[op->seed_slot] : NULL;
    return seed && seed->integer == FL_TRACED_SEED ? seed : NULL;
}

/* Pushes a table of the attributes that are given; of an SBP for gradients options are made. */
static void push_attrs(lua_State *L, const fl_op *op, const fl_attrs *attrs)
{
    const fl_signature *s = fl_op_signature(op);
    const fl_attr *seed = redrawn(op, attrs);
    lua_newtable(L);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        const fl_attr *a = p->is_tensor || p->type == FL_ATTR_OPTIONS ? NULL : &attrs->at[p->slot];
        if (!a || !a->given || strcmp(p->name, "grad_sbp") == 0 || (seed && (a == seed || a == seed + 1))) continue;
        fl_lua_push_attr(L, p, a);
        lua_setfield(L, -2, p->name);
    }
}

static void push_device(lua_State *L, const fl_placement *placement)
{
    const char *type = fl_device_type_name(placement->type);
    if (placement->device_index >= 0) lua_pushfstring(L, "%s:%d", type, placement->device_index);
    else lua_pushstring(L, type);
}

static void push_options(lua_State *L, const fl_op *op, const fl_attrs *attrs)
{
    const fl_attr *grad_sbp = fl_op_is_placed(op) || op == FL_OP_REF(to_local) ? &attrs->at[FL_BOX_GRAD_SBP] : NULL;
    lua_newtable(L);
    if (attrs->has_dtype) {
        lua_pushstring(L, fl_dtype_name(attrs->option_dtype));
        lua_setfield(L, -2, "dtype");
    }
    if (attrs->requires_grad) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, "requires_grad");
    }
    if (grad_sbp && grad_sbp->given) {
        fl_nd_sbp sbp;
        memcpy(&sbp, &grad_sbp->integer, sizeof sbp);
        fl_lua_push_sbp(L, sbp);
        lua_setfield(L, -2, "grad_sbp");
    }
    if (!attrs->has_placement || op == FL_OP_REF(to_local)) return;
    if (attrs->is_local || op == FL_OP_REF(to_device)) {
        push_device(L, attrs->placement);
        lua_setfield(L, -2, "device");
        return;
    }
    fl_lua_push_placement(L, attrs->placement);
    lua_setfield(L, -2, "placement");
    fl_lua_push_sbp(L, attrs->nd_sbp);
    lua_setfield(L, -2, "sbp");
}

/* ---- telling Lua ---- */

static void push_operand(lua_State *L, const fl_operand *operand)
{
    if (operand->kind == FL_TENSOR) fl_lua_push_tensor(L, operand->tensor);
    else if (operand->kind == FL_NONE) lua_pushnil(L);
    else push_number(L, operand->kind, operand->integer, operand->number);
}

static void push_tensors(lua_State *L, fl_tensor *const *tensors, int count)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        fl_lua_push_tensor(L, tensors[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static void set_integer(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

/* Flops of the call where the op has a count of its own. */
static void set_flops(lua_State *L, const fl_traced *traced)
{
    fl_tensor *tensors[FL_MAX_PARAMS] = {NULL};
    fl_cost cost;
    fl_call call = {.op = traced->op,
                    .attrs = traced->attrs,
                    .in = traced->in,
                    .nin = traced->nin,
                    .nout = traced->nout,
                    .tensors = tensors,
                    .out = (fl_tensor **)traced->out};
    if (!traced->op->flops || traced->nin > FL_MAX_PARAMS) return;
    for (int i = 0; i < traced->nin; i++) tensors[i] = traced->in[i].kind == FL_TENSOR ? traced->in[i].tensor : NULL;
    if (fl_cost_of(&cost, &call) == FL_OK) set_integer(L, "flops", cost.flops);
}

/* on_op{op, in_place, writes, overwrites, elementwise, no_grad, operands, n, attrs, options, outputs, draws, redraws,
** line, flops} */
static int report(lua_State *L)
{
    const fl_traced *t = lua_touserdata(L, 1);
    const fl_attr *seed = redrawn(t->op, t->attrs);
    char line[128];
    lua_rawgetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_createtable(L, 0, 12);
    lua_pushstring(L, t->op->name);
    lua_setfield(L, -2, "op");
    lua_pushboolean(L, t->in_place);
    lua_setfield(L, -2, "in_place");
    const struct {
        const char *name;
        bool value;
    } facts[] = {{"writes", t->in_place || t->op->mutates},
                 {"overwrites", t->op->flags & FL_OP_OVERWRITES},
                 {"elementwise", t->op->flags & FL_OP_ELEMENTWISE},
                 {"no_grad", !fl_grad_enabled}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        lua_pushboolean(L, facts[i].value);
        lua_setfield(L, -2, facts[i].name);
    }
    lua_createtable(L, t->nin, 0);
    for (int i = 0; i < t->nin; i++) {
        push_operand(L, &t->in[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "operands");
    set_integer(L, "n", t->nin);
    set_flops(L, t);
    push_attrs(L, t->op, t->attrs);
    lua_setfield(L, -2, "attrs");
    push_options(L, t->op, t->attrs);
    lua_setfield(L, -2, "options");
    push_tensors(L, t->out, t->nout);
    lua_setfield(L, -2, "outputs");
    lua_newtable(L);
    for (int i = 0; i < t->draws->count; i++) {
        lua_pushinteger(L, i < FL_DRAWS_NOTED ? (lua_Integer)t->draws->at[i].counter : 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "draws");
    if (seed) set_integer(L, "redraws", seed[1].integer);
    fl_lua_where(L, line, sizeof line);
    lua_pushstring(L, line);
    lua_setfield(L, -2, "line");
    lua_call(L, 1, 0);
    return 0;
}

/* Calls f(context) of Lua's API where an error of Lua's becomes one of the core. */
static fl_status protect(lua_CFunction function, const void *context, int results)
{
    lua_State *L = fl_lua_current;
    if (!lua_checkstack(L, 16)) return fl_fail(FL_ERR_MEMORY, "trace: the Lua stack is full");
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, (void *)context);
    int code = lua_pcall(L, 1, results, 0);
    fl_lua_enter(L);
    if (code == LUA_OK) return FL_OK;
    fl_status status = fl_lua_caught(L, FL_ERR_VALUE);
    lua_pop(L, 1);
    return status;
}

static fl_status called(const fl_traced *call) { return protect(report, call, 0); }

/* on_op{undraws = true} */
static int report_undrew(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_createtable(L, 0, 1);
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "undraws");
    lua_call(L, 1, 0);
    return 0;
}

static void undrew(void) { protect(report_undrew, NULL, 0); }

static int report_detached(lua_State *L)
{
    fl_tensor *const *pair = lua_touserdata(L, 1);
    char line[128];
    lua_rawgetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_createtable(L, 0, 12);
    lua_pushliteral(L, "detach");
    lua_setfield(L, -2, "op");
    push_tensors(L, &pair[1], 1);
    lua_setfield(L, -2, "operands");
    set_integer(L, "n", 1);
    push_tensors(L, pair, 1);
    lua_setfield(L, -2, "outputs");
    static const char *const empty[] = {"attrs", "options", "draws"};
    for (int i = 0; i < 3; i++) {
        lua_newtable(L);
        lua_setfield(L, -2, empty[i]);
    }
    fl_lua_where(L, line, sizeof line);
    lua_pushstring(L, line);
    lua_setfield(L, -2, "line");
    lua_call(L, 1, 0);
    return 0;
}

/* A tensor with values stays one: its detached twin has the same. */
static fl_status detached(fl_tensor *out, fl_tensor *x)
{
    fl_tensor *const pair[] = {out, x};
    return x->meta->placement->type == FL_META ? protect(report_detached, pair, 0) : FL_OK;
}

/* ---- stand-ins ---- */

/* A tensor on FL_META laid out as this one. */
static fl_status like(fl_tensor **out, const fl_tensor *tensor)
{
    const fl_meta *meta = tensor->meta, *there;
    const fl_placement *p = fl_placement_local(FL_META, -1);
    if (!meta->is_local)
        FL_TRY(fl_placement_get(&p, FL_META, meta->placement->ranks, meta->placement->count, meta->placement->hierarchy,
                                meta->placement->ndim));
    FL_TRY(fl_meta_get(&there, meta->dtype, &meta->shape, p, meta->nd_sbp, meta->is_local));
    fl_tensor *whole;
    fl_status status = fl_tensor_empty(&whole, there);
    if (status == FL_OK && !tensor->contiguous) {
        status = fl_tensor_view(out, whole, there, tensor->strides, 0);
        fl_tensor_unref(whole);
    } else if (status == FL_OK) *out = whole;
    fl_meta_unref(there);
    return status;
}

/* stand_in(tensor): leaves its box on the stack */
static int make_stand_in(lua_State *L)
{
    fl_tensor *tensor = lua_touserdata(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &stand_ins_key);
    if (lua_rawgetp(L, -1, tensor) != LUA_TNIL) {
        lua_rawgeti(L, -1, 1);
        return 1;
    }
    lua_pop(L, 1);
    lua_createtable(L, 2, 0);
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, like(&box->tensor, tensor));
    if (fl_requires_grad(tensor)) FL_CHECK(L, fl_autograd_set_requires_grad(box->tensor, true));
    lua_rawseti(L, -2, 1);
    fl_lua_push_tensor(L, tensor);
    lua_rawseti(L, -2, 2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, -3, tensor);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_createtable(L, 0, 2);
    lua_rawgeti(L, -3, 2);
    lua_setfield(L, -2, "weight");
    lua_rawgeti(L, -3, 1);
    lua_setfield(L, -2, "stand_in");
    lua_call(L, 1, 0);
    lua_rawgeti(L, -1, 1);
    return 1;
}

static fl_status stand_in(fl_tensor **out, fl_tensor *tensor)
{
    FL_TRY(protect(make_stand_in, tensor, 1));
    *out = fl_lua_to_tensor(fl_lua_current, -1);
    lua_pop(fl_lua_current, 1);
    return FL_OK;
}

static const fl_tracer tracer = {stand_in, called, undrew, detached};

/* ---- the functions ---- */

/* A field of flow._program becomes the value at the top, which is popped; the old one is pushed. */
static void exchange(lua_State *L, const char *field)
{
    fl_lua_push_flow(L);
    lua_getfield(L, -1, "_program");
    lua_getfield(L, -1, field);
    lua_pushvalue(L, -4);
    lua_setfield(L, -3, field);
    lua_replace(L, -4);
    lua_pop(L, 2);
}

/* listen(on_op, on_module, flat, f, ...): f(...), while on_op is called with each op (see report and make_stand_in),
** and on_module with the modules that f calls; flat: see tracer.h -> true if it must be done again, flat; then what
** pcall gives. No interrupt can leave the trace open. */
static int trace_listen(lua_State *L)
{
    enum { ON_OP = 1, ON_MODULE, FLAT, F };
    luaL_checktype(L, ON_OP, LUA_TFUNCTION);
    FL_CHECK(L, fl_answer_stop());
    FL_CHECK(L, fl_program_refuse("a program is traced"));
    const bool flat = lua_toboolean(L, FLAT);
    lua_pushvalue(L, ON_OP);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &stand_ins_key);
    lua_pushboolean(L, 1);
    exchange(L, "recording");
    lua_replace(L, FLAT);
    lua_pushvalue(L, ON_MODULE);
    exchange(L, "called");
    lua_replace(L, ON_MODULE);
    fl_trace(&tracer, flat);
    bool good = lua_pcall(L, lua_gettop(L) - F, LUA_MULTRET, 0) == LUA_OK;
    bool again = fl_trace_lacked_flat;
    fl_trace(NULL, false);
    lua_pushvalue(L, ON_MODULE);
    exchange(L, "called");
    lua_pushvalue(L, FLAT);
    exchange(L, "recording");
    lua_pop(L, 2);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &on_op_key);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &stand_ins_key);
    lua_pushboolean(L, again);
    lua_replace(L, ON_MODULE);
    lua_pushboolean(L, good);
    lua_replace(L, FLAT);
    return lua_gettop(L) - ON_OP;
}

static int trace_active(lua_State *L)
{
    lua_pushboolean(L, fl_tracer_now != NULL);
    return 1;
}

/* stand_in(tensor): the tensor on the meta device that stands for it in the trace */
static int trace_stand_in(lua_State *L)
{
    fl_tensor *tensor = fl_lua_check_tensor(L, 1, "trace", "x"), *out;
    if (tensor->meta->placement->type == FL_META) lua_settop(L, 1);
    else {
        FL_CHECK(L, fl_tracer_now ? fl_tracer_now->stand_in(&out, tensor) : FL_OK);
        fl_lua_push_tensor(L, fl_tracer_now ? out : tensor);
    }
    return 1;
}

/* identity(tensor) -> the tensor itself, the place of its elements, and its storage, as keys */
static int trace_identity(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "trace", "x");
    char place[512];
    size_t n = 0;
    const uint64_t words[] = {(uintptr_t)t->storage, (uintptr_t)t->meta, (uint64_t)t->offset};
    memcpy(place, words, sizeof words);
    n = sizeof words;
    memcpy(place + n, t->strides, sizeof(int64_t) * (size_t)t->meta->shape.ndim);
    n += sizeof(int64_t) * (size_t)t->meta->shape.ndim;
    lua_pushlightuserdata(L, t);
    lua_pushlstring(L, place, n);
    lua_pushlightuserdata(L, t->storage);
    return 3;
}

/* bytes(tensor): of this rank's part */
static int trace_bytes(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "trace", "x");
    lua_pushinteger(L, t->meta->local_numel * (lua_Integer)fl_dtype_size(t->meta->dtype));
    return 1;
}

/* signature(op) -> as its descriptor has it, nil where there is no such op; is it hidden */
static int trace_signature(lua_State *L)
{
    const fl_op *op = fl_op_find(luaL_checkstring(L, 1));
    if (op && (op->infer || op->body)) lua_pushstring(L, op->sig);
    else lua_pushnil(L);
    lua_pushboolean(L, op && op->flags & FL_OP_HIDDEN);
    return 2;
}

void fl_lua_open_trace(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"listen", trace_listen},
                                         {"active", trace_active},
                                         {"stand_in", trace_stand_in},
                                         {"identity", trace_identity},
                                         {"bytes", trace_bytes},
                                         {"signature", trace_signature},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_getfield(L, flow, "_op");
    lua_pushcclosure(L, fl_lua_call_step, 1);
    lua_setfield(L, -2, "call");
    lua_setfield(L, flow, "_trace");
}
