/*
** op_call.c -- ops as functions of Lua.
**
** One C closure serves flow.name(x, ...) and x:name(...); its upvalues are the boxes' metatable and
** the fl_lua_call. Ops whose parameters are all tensors (a + b, x:add_(y)) take a shorter way.
*/
#include "members.h"
#include "op_binding.h"

#include <stdlib.h>

/* ---- calling ---- */

/* The calls of one state, freed with its instance. Not in Lua's heap, whose size decides how often tensors are
** collected. */
struct fl_lua_calls {
    struct fl_lua_calls *next;
    int count;
    fl_lua_call at[64];
};

static fl_lua_call *call_new(lua_State *L, fl_lua_call call)
{
    fl_lua_calls *block = fl_lua_running->calls;
    if (!block || block->count == sizeof block->at / sizeof *block->at) {
        block = malloc(sizeof *block);
        if (!block) fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "%s: out of memory", call.name));
        block->next = fl_lua_running->calls;
        block->count = 0;
        fl_lua_running->calls = block;
    }
    block->at[block->count] = call;
    return &block->at[block->count++];
}

/* First call of this op: parses the signature. */
static void prepare(lua_State *L, fl_lua_call *call)
{
    const fl_signature *s = fl_op_signature(call->op);
    call->defaults = malloc(sizeof *call->defaults);
    if (!call->defaults) fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "%s: out of memory", call->name));
    fl_attrs_init(call->defaults, call->op);
    bool number_follows = false;
    for (int i = s->param_count - 1; i >= 0; i--) {
        const fl_param *p = &s->params[i];
        if (p->is_tensor && !p->optional) call->needed_operands |= 1u << i;
        if (p->is_tensor || p->type == FL_ATTR_OPTIONS) continue;
        if (p->required) call->needed_attrs |= 1u << i;
        if (fl_lua_is_list_type(p->type) && !number_follows) call->greedy |= 1u << i;
        number_follows |= fl_lua_takes_numbers(p->type);
    }
    if (call->op->wider) {
        call->wider = call_new(
            L, (fl_lua_call){.op = fl_op_find(call->op->wider), .name = call->name, .in_place = call->in_place});
        prepare(L, call->wider);
        for (int i = 0; i < s->param_count; i++)
            if (!s->params[i].is_tensor && call->wider->signature->params[i].is_tensor) call->widened |= 1u << i;
    }
    call->signature = s;
}

static inline fl_lua_call *running_call(lua_State *L)
{
    fl_lua_call *c = lua_touserdata(L, lua_upvalueindex(2));
    fl_lua_enter(L);
    if (FL_UNLIKELY(!c->signature)) prepare(L, c);
    return c;
}

/* Calls an op that writes its first operand; the result is that operand. */
static int run_mutating(lua_State *L, const fl_lua_call *call, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *out[FL_MAX_OUT] = {NULL};
    if (call->in_place) FL_CHECK_OF(L, call->name, fl_dispatch_inplace(out, call->op, in, nin, attrs));
    else FL_CHECK_OF(L, call->name, fl_dispatch(out, call->op, in, nin, attrs));
    if (!call->in_place && call->op->nout == 0) return 0;
    fl_tensor_unref(out[0]); /* the operand holds it */
    lua_settop(L, 1);
    return 1;
}

static int run_many(lua_State *L, const fl_lua_call *call, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *out[FL_MAX_OUT] = {NULL};
    fl_box *boxes[FL_MAX_OUT];
    luaL_checkstack(L, FL_MAX_OUT + 2, call->name);
    for (int i = 0; i < call->op->nout; i++) boxes[i] = fl_lua_new_box_fast(L);
    FL_CHECK_OF(L, call->name, fl_dispatch(out, call->op, in, nin, attrs));
    int count = 0; /* without results that a body has left out, as unique does */
    for (int i = 0; i < call->op->nout; i++)
        if (out[i]) boxes[count++]->tensor = out[i];
    lua_pop(L, call->op->nout - count);
    fl_lua_account(L);
    return count;
}

static int run(lua_State *L, const fl_lua_call *call, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (call->in_place || call->op->mutates) return run_mutating(L, call, in, nin, attrs);
    if (FL_UNLIKELY(call->op->nout != 1)) return run_many(L, call, in, nin, attrs);
    fl_box *box = fl_lua_new_box_fast(L);
    FL_CHECK_OF(L, call->name, fl_dispatch(&box->tensor, call->op, in, nin, attrs));
    if (FL_UNLIKELY(attrs->requires_grad)) FL_CHECK(L, fl_autograd_set_requires_grad(box->tensor, true));
    fl_lua_account(L);
    return 1;
}

/* The result goes into the tensor given as out, in the table that came last. */
static int run_into(lua_State *L, const fl_lua_binding *binding)
{
    FL_CHECK_OF(L, binding->call->name,
                fl_dispatch_into(binding->out, binding->call->op, binding->in, binding->nin, &binding->attrs));
    lua_getfield(L, binding->options_index, "out");
    fl_lua_account(L);
    return 1;
}

/* True if the named argument at the top of the stack is one that only the wider op takes. */
static bool widens(lua_State *L, const fl_lua_call *call, const char *key)
{
    int i = fl_lua_param_at(call->signature, key);
    if (i < 0) return fl_lua_param_at(call->wider->signature, key) >= 0;
    return (call->widened >> i & 1u) && fl_lua_box(L, -1);
}

/* True if there are arguments that only the wider op takes. */
static bool wants_wider(lua_State *L, const fl_lua_call *call)
{
    int top = lua_gettop(L);
    bool named = top > 0 && fl_lua_is_options(L, top), wants = false;
    for (int i = 0; call->widened >> i && i < top - named; i++)
        if ((call->widened >> i & 1u) && fl_lua_box(L, i + 1)) return true;
    if (!call->greedy && top - named > call->signature->param_count)
        return top - named <= call->wider->signature->param_count;
    if (!named) return false;
    lua_pushnil(L);
    while (lua_next(L, top)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        wants = wants || widens(L, call, key);
        lua_pop(L, 1);
    }
    return wants;
}

/* The function of an op with attributes, options or lists. */
static int call_op(lua_State *L)
{
    const fl_lua_call *c = running_call(L);
    if (c->wider && wants_wider(L, c)) c = c->wider;
    fl_lua_binding b;
    fl_lua_read_call(L, &b, c);
    if (FL_UNLIKELY(b.out != NULL)) return run_into(L, &b);
    return run(L, c, b.in, b.nin, &b.attrs);
}

fl_status fl_lua_signatures(lua_State *L, const fl_lua_call *call, const int *hierarchy, int ndim,
                            fl_signature_fn report, void *context)
{
    fl_lua_binding b;
    fl_lua_read_call(L, &b, call);
    return fl_infer_signatures(call->op, b.in, b.nin, &b.attrs, hierarchy, ndim, report, context);
}

/* The function of an op whose parameters are all single tensors. */
static int call_tensors(lua_State *L)
{
    const fl_lua_call *c = running_call(L);
    const fl_signature *s = c->signature;
    fl_operand in[FL_MAX_PARAMS];
    int top = lua_gettop(L);
    if (FL_UNLIKELY(top > s->param_count)) return call_op(L);
    for (int i = 0; i < s->param_count; i++) {
        fl_box *box = fl_lua_box(L, i + 1);
        if (FL_LIKELY(box != NULL)) in[i] = fl_of(box->tensor);
        else if (i > 0 && i == top - 1 && fl_lua_is_options(L, top)) return call_op(L);
        else fl_lua_read_non_tensor(L, &in[i], c, &s->params[i], i + 1);
    }
    return run(L, c, in, s->param_count, c->defaults);
}

/* Metamethods: Lua calls __unm with the operand twice. */
static int call_unary(lua_State *L)
{
    lua_settop(L, 1);
    return call_tensors(L);
}

/* ---- functions ---- */

void fl_lua_calls_free(fl_lua_calls *calls)
{
    for (fl_lua_calls *next; calls; calls = next) {
        next = calls->next;
        for (int i = 0; i < calls->count; i++) free(calls->at[i].defaults);
        free(calls);
    }
}

static bool only_tensors(const fl_op *op)
{
    return !strpbrk(op->sig, ":") && !strstr(op->sig, "...") && !strstr(op->sig, "options");
}

static void push_call(lua_State *L, fl_lua_call call, lua_CFunction function)
{
    fl_lua_push_metatable(L);
    lua_pushlightuserdata(L, call_new(L, call));
    lua_pushcclosure(L, function, 2);
}

void fl_lua_push_op(lua_State *L, const fl_op *op, const char *name, bool in_place)
{
    push_call(L, (fl_lua_call){.op = op, .name = name, .in_place = in_place},
              only_tensors(op) ? call_tensors : call_op);
}

void fl_lua_push_unary(lua_State *L, const fl_op *op)
{
    push_call(L, (fl_lua_call){.op = op, .name = op->name}, call_unary);
}

const fl_lua_call *fl_lua_call_of(lua_State *L, int index)
{
    lua_CFunction f = lua_tocfunction(L, index);
    if ((f != call_op && f != call_tensors && f != call_unary) || !lua_getupvalue(L, index, 2)) return NULL;
    fl_lua_call *c = lua_touserdata(L, -1);
    lua_pop(L, 1);
    fl_lua_enter(L);
    if (!c->signature) prepare(L, c);
    return c;
}
