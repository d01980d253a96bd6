/*
** own_call.c -- the hooks of an op that a script defines, which call functions of Lua: infer, sbp, forward, backward.
**
** A call enters the state that defined the op. An error of Lua's becomes one of the core. Inference calls Lua once per
** kind of operands, as the plan is kept.
*/
#include "arguments.h"
#include "instance.h"
#include "own_op.h"
#include "own_op_parts.h"
#include "tensors.h"
#include "trace.h"

#include <string.h>

/* ---- calling Lua from the core ---- */

/* Calls f(job) in the op's state, where an error of Lua's becomes one of the core. */
static fl_status enter(const fl_op *op, lua_CFunction f, void *job)
{
    return fl_lua_call_below(fl_own(op)->instance, op->name, f, job);
}

/* Pushes a function of the op by its name; false: it has none. */
static bool push_function(lua_State *L, const fl_op *op, const char *name)
{
    luaL_checkstack(L, FL_MAX_PARAMS + 16, op->name);
    lua_rawgeti(L, LUA_REGISTRYINDEX, fl_own(op)->functions);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    return lua_toboolean(L, -1);
}

/* Pushes the arguments in the order of the signature. push: an operand; with_values: ~attributes as well. */
static int push_arguments(lua_State *L, const fl_op *op, const void *in, int nin, const fl_attrs *attrs,
                          void (*push)(lua_State *, const void *, int), bool with_values)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (p->is_list) {
            lua_createtable(L, nin - p->slot, 0);
            for (int k = p->slot; k < nin; k++) {
                push(L, in, k);
                lua_rawseti(L, -2, k - p->slot + 1);
            }
        } else if (p->is_tensor) push(L, in, p->slot);
        else if (!attrs->at[p->slot].given || (p->is_value && !with_values)) lua_pushnil(L);
        else fl_lua_push_attr(L, p, &attrs->at[p->slot]);
    }
    return s->param_count;
}

/* ---- inference ---- */

/* Pushes {shape =, dtype =, ndim =} of operand i; nil for one that is absent. */
static void push_spec(lua_State *L, const void *in, int i)
{
    const fl_spec *spec = (const fl_spec *)in + i;
    if (spec->kind == FL_NONE) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 4);
    lua_createtable(L, spec->shape.ndim, 0);
    for (int k = 0; k < spec->shape.ndim; k++) {
        lua_pushinteger(L, spec->shape.dims[k]);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "shape");
    lua_pushstring(L, fl_dtype_name(spec->dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushinteger(L, spec->shape.ndim);
    lua_setfield(L, -2, "ndim");
    lua_pushboolean(L, spec->kind != FL_TENSOR);
    lua_setfield(L, -2, "is_number");
}

/* The result at index: a table with a shape and perhaps a dtype. */
static void take_spec(lua_State *L, fl_infer *infer, int result, int index)
{
    fl_spec *out = &infer->out[result];
    if (!lua_istable(L, index))
        FL_RAISE(L, "%s: infer must return {shape =, dtype =} for each result, result %d is %s", infer->name,
                 result + 1, fl_lua_type_name(L, index));
    if (lua_getfield(L, index, "shape") != LUA_TTABLE)
        FL_RAISE(L, "%s: infer must return {shape =, dtype =}, the shape of result %d is %s", infer->name, result + 1,
                 fl_lua_type_name(L, -1));
    int64_t dims[FL_MAX_NDIM];
    int ndim = fl_lua_check_list(L, lua_gettop(L), dims, FL_MAX_NDIM, infer->name, "the shape of a result");
    FL_CHECK(L, fl_shape_make(&out->shape, infer->name, dims, ndim));
    if (lua_getfield(L, index, "dtype") != LUA_TNIL) out->dtype = fl_lua_check_dtype(L, lua_gettop(L), infer->name);
    else out->dtype = fl_infer_promote(infer);
    if ((unsigned)out->dtype >= FL_DTYPE_COUNT)
        FL_RAISE(L, "%s: infer must return a dtype where no tensor has one, result %d has none", infer->name,
                 result + 1);
    lua_pop(L, 2);
}

/* The inference of ops without infer: the operands broadcast. */
static fl_status infer_broadcast(fl_infer *infer)
{
    fl_shape shape = {0, {0}};
    for (int i = 0; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR)
            FL_TRY(fl_shape_broadcast(&shape, infer->name, &shape, &infer->in[i].shape));
    for (int i = 0; i < infer->nout; i++) {
        infer->out[i].shape = shape;
        infer->out[i].dtype = fl_infer_promote(infer);
    }
    return FL_OK;
}

static void run_infer(lua_State *L, fl_infer *infer)
{
    if (!push_function(L, infer->op, "infer")) {
        lua_pop(L, 1);
        FL_CHECK(L, infer_broadcast(infer));
        return;
    }
    int n = push_arguments(L, infer->op, infer->in, infer->nin, infer->attrs, push_spec, false);
    int first = lua_gettop(L) - n;
    lua_call(L, n, LUA_MULTRET);
    int given = lua_gettop(L) - first + 1;
    if (given > infer->nout)
        FL_RAISE(L, "%s: infer must return {shape =, dtype =} for each result, %d in all, got %d values", infer->name,
                 infer->nout, given);
    lua_settop(L, first + infer->nout - 1);
    for (int i = 0; i < infer->nout; i++) take_spec(L, infer, i, first + i);
}

static int infer_in_lua(lua_State *L)
{
    fl_infer *infer = lua_touserdata(L, 1);
    fl_own_op *op = (fl_own_op *)infer->op;
    run_infer(L, infer);
    if (push_function(L, infer->op, "sbp") && !lua_istable(L, -1)) {
        int n = push_arguments(L, infer->op, infer->in, infer->nin, infer->attrs, push_spec, false);
        lua_call(L, n, 1);
        fl_own_read_rows(L, op, fl_op_signature(&op->op));
    }
    return 0;
}

fl_status fl_own_infer(fl_infer *infer)
{
    fl_status status = enter(infer->op, infer_in_lua, infer);
    size_t n = strlen(infer->name);
    if (status == FL_OK || strncmp(fl_message(), infer->name, n) == 0) return status;
    return fl_fail_prefix(status, "%s: ", infer->name);
}

/* ---- forward ---- */

enum { LAST_MADE = 16 };

/* A call of forward. */
struct forward {
    const fl_op *op;
    const fl_operand *in;
    int nin;
    const fl_attrs *attrs;
    fl_tensor **out;
    bool recorded;
    /* storages of the tensors that it made last */
    const fl_storage *made[LAST_MADE];
    unsigned made_count;
    void (*made_before)(fl_tensor *); /* fl_tensor_made */
    struct forward *outer;
};

static struct forward *forward_now;

static void note_made(fl_tensor *tensor)
{
    for (struct forward *call = forward_now; call; call = call->outer) {
        call->made[call->made_count++ % LAST_MADE] = tensor->storage;
        if (call->made_before && call->made_before != note_made) call->made_before(tensor);
    }
}

static void begin_forward(struct forward *call)
{
    call->outer = forward_now;
    call->made_before = fl_tensor_made;
    forward_now = call;
    fl_tensor_made = note_made;
}

/* Another listener may replace note_made for a time: tensors made then are not known, and are copied. */
static void end_forward(struct forward *call)
{
    if (fl_tensor_made == note_made) fl_tensor_made = call->made_before;
    forward_now = call->outer;
}

static void push_operand(lua_State *L, const void *in, int i)
{
    const fl_operand *o = (const fl_operand *)in + i;
    switch (o->kind) {
    case FL_TENSOR: fl_lua_push_tensor(L, o->tensor); break;
    case FL_NUM_BOOL: lua_pushboolean(L, o->integer != 0); break;
    case FL_NUM_INT: lua_pushinteger(L, o->integer); break;
    case FL_NUM_FLOAT: lua_pushnumber(L, o->number); break;
    default: lua_pushnil(L);
    }
}

static bool is_made(const struct forward *call, const fl_storage *storage)
{
    for (unsigned i = 0; i < call->made_count && i < LAST_MADE; i++)
        if (call->made[i] == storage) return true;
    return false;
}

/* True if the memory of result i may be that of an operand, of another result or of a tensor that the script keeps.
** Recorded tensors are held by the tape, too, so there the count of references says nothing. */
static bool is_shared(const struct forward *call, const fl_tensor *tensor, int i)
{
    if (!tensor->storage) return false;
    for (int k = 0; k < call->nin; k++)
        if (call->in[k].kind == FL_TENSOR && call->in[k].tensor->storage == tensor->storage) return true;
    for (int k = 0; k < i; k++)
        if (call->out[k]->storage == tensor->storage) return true;
    if (!call->recorded && tensor->storage->refs > 1 + fl_storage_watchers) return true;
    return !is_made(call, tensor->storage);
}

/* A result that shares memory becomes a tensor of its own. (Not found is one that this call has made and keeps.) */
static fl_status own_result(fl_tensor **out, fl_tensor *tensor, const struct forward *call, int i)
{
    if (is_shared(call, tensor, i)) return FL_CALL(out, clone, fl_of(tensor));
    *out = fl_tensor_ref(tensor);
    return FL_OK;
}

static uint32_t version_of(const fl_operand *operand)
{
    return operand->kind == FL_TENSOR && operand->tensor->storage ? operand->tensor->storage->var.version : 0;
}

static int forward_in_lua(lua_State *L)
{
    enum { FIRST = 3 }; /* result, behind the job and the versions */
    struct forward *call = lua_touserdata(L, 1);
    const fl_op *op = call->op;
    push_function(L, op, "forward");
    uint32_t *versions = lua_newuserdatauv(L, sizeof *versions * (size_t)call->nin, 0);
    lua_insert(L, 2);
    for (int i = 0; i < call->nin; i++) versions[i] = version_of(&call->in[i]);
    int n = push_arguments(L, op, call->in, call->nin, call->attrs, push_operand, true);
    lua_call(L, n, LUA_MULTRET);
    for (int i = 0; i < call->nin; i++)
        if (version_of(&call->in[i]) != versions[i])
            FL_RAISE(L, "%s: forward changed %s in place; let it work on a clone()", op->name,
                     fl_op_operand_name(op, i));
    int count = lua_gettop(L) - FIRST + 1;
    if (count != op->nout)
        FL_RAISE(L, "%s: forward must return %d tensor%s, got %d value%s", op->name, op->nout, fl_own_plural(op->nout),
                 count, fl_own_plural(count));
    for (int i = 0; i < op->nout; i++)
        if (!fl_lua_to_tensor(L, FIRST + i))
            FL_RAISE(L, "%s: forward must return tensors, result %d is %s", op->name, i + 1,
                     fl_lua_type_name(L, FIRST + i));
    for (int i = 0; i < op->nout; i++) FL_CHECK(L, own_result(&call->out[i], fl_lua_to_tensor(L, FIRST + i), call, i));
    return 0;
}

fl_status fl_own_compute(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    struct forward call = {
        .op = op, .in = in, .nin = nin, .attrs = attrs, .out = out, .recorded = fl_record_wanted(op, in, nin)};
    for (int i = 0; i < op->nout; i++) out[i] = NULL;
    begin_forward(&call);
    fl_status status = enter(op, forward_in_lua, &call);
    end_forward(&call);
    for (int i = 0; i < op->nout && status != FL_OK; i++) {
        fl_tensor_unref(out[i]);
        out[i] = NULL;
    }
    return status;
}

/* ---- backward ---- */

/* Pushes what backward gets as ctx: operands, attributes and results by name, and which gradients are needed. */
static void push_context(lua_State *L, const fl_grad *g)
{
    const fl_signature *s = fl_op_signature(g->op);
    int n = push_arguments(L, g->op, g->in, g->nin, g->attrs, push_operand, true), first = lua_gettop(L) - n + 1;
    lua_createtable(L, 0, n + 2);
    int context = lua_gettop(L);
    lua_createtable(L, 0, s->tensor_count);
    for (int i = 0; i < n; i++) {
        const fl_param *p = &s->params[i];
        lua_pushvalue(L, first + i);
        lua_setfield(L, context, p->name);
        bool need = false;
        for (int k = p->slot; p->is_tensor && k < (p->is_list ? g->nin : p->slot + 1); k++) need |= g->need[k];
        lua_pushboolean(L, need);
        lua_setfield(L, -2, p->name);
    }
    lua_setfield(L, context, "needs");
    if (g->nout == 1) fl_lua_push_tensor(L, g->out[0]);
    else {
        lua_createtable(L, g->nout, 0);
        for (int i = 0; i < g->nout; i++) {
            fl_lua_push_tensor(L, g->out[i]);
            lua_rawseti(L, -2, i + 1);
        }
    }
    lua_setfield(L, context, "out");
    lua_replace(L, first);
    lua_settop(L, first);
}

/* Operands after the last of `given` gradients must not need one: a gradient that is forgotten is no nil. */
static void check_gradient_count(lua_State *L, const fl_grad *g, int given)
{
    const fl_signature *s = fl_op_signature(g->op);
    if (given == 0)
        FL_RAISE(L, "it returned nothing; it must return a gradient for each of the %d operand%s, nil for none",
                 s->tensor_count, fl_own_plural(s->tensor_count));
    if (given > s->tensor_count)
        FL_RAISE(L, "it must return a gradient for each of the %d operand%s, got %d", s->tensor_count,
                 fl_own_plural(s->tensor_count), given);
    for (int i = 0, at = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor || at++ < given) continue;
        for (int k = p->slot; k < g->nin && (p->is_list || k == p->slot); k++)
            if (g->need[k])
                FL_RAISE(L, "it must return a gradient for each operand, nil for none; it returned %d, '%s' needs one",
                         given, p->name);
    }
}

/* The gradients at first.., one for each tensor parameter, of a list a list. */
static void take_gradients(lua_State *L, fl_grad *g, int first)
{
    const fl_signature *s = fl_op_signature(g->op);
    int at = 0;
    check_gradient_count(L, g, lua_gettop(L) - first + 1);
    lua_settop(L, first + s->tensor_count - 1);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor) continue;
        int index = first + at++;
        if (!p->is_list) {
            fl_lua_take_gradient(L, index, &g->gin[p->slot], g->in_meta[p->slot], g->need[p->slot]);
            continue;
        }
        if (!lua_istable(L, index)) FL_RAISE(L, "it must return a list of gradients for '%s'", p->name);
        for (int k = p->slot; k < g->nin; k++) {
            lua_rawgeti(L, index, k - p->slot + 1);
            fl_lua_take_gradient(L, -1, &g->gin[k], g->in_meta[k], g->need[k]);
            lua_pop(L, 1);
        }
    }
}

static int backward_in_lua(lua_State *L)
{
    fl_grad *g = lua_touserdata(L, 1);
    push_function(L, g->op, "backward");
    push_context(L, g);
    for (int i = 0; i < g->nout; i++) {
        fl_box *box = fl_lua_new_box(L);
        if (g->gout[i]) box->tensor = fl_tensor_ref(g->gout[i]);
        else FL_CHECK(L, fl_vjp_zeros(&box->tensor, g->out_meta[i]));
    }
    lua_call(L, 1 + g->nout, LUA_MULTRET);
    take_gradients(L, g, 2);
    return 0;
}

fl_status fl_own_grad(fl_grad *g)
{
    if (g->op->formula && g->op->formula->gradients) return fl_formula_grad(g);
    fl_status status = enter(g->op, backward_in_lua, g);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "error in the backward of %s: ", g->op->name);
}
