/*
** function.c -- flow._function: the tape's side of flow.autograd_function (function.lua).
**
** Values that backward needs lie in the node, not in a table of Lua's: a result kept there would hold its own node, and
** neither would ever be freed.
*/
#include "arguments.h"
#include "members.h"
#include "own_op.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- backward ---- */

static void push_tensors(lua_State *L, fl_tensor *const *list, int count)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        fl_lua_push_tensor(L, list[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

/* Backward sums a gradient over the axes that broadcasting added or stretched. */
static bool sums_to(const fl_shape *have, const fl_shape *want)
{
    int lead = have->ndim - want->ndim;
    for (int i = 0; i < want->ndim && lead >= 0; i++)
        if (want->dims[i] != have->dims[lead + i] && want->dims[i] != 1) return false;
    return lead >= 0;
}

void fl_lua_take_gradient(lua_State *L, int index, fl_tensor **out, const fl_meta *meta, bool need)
{
    char is[FL_META_TEXT], want[FL_META_TEXT];
    fl_tensor *t = fl_lua_to_tensor(L, index);
    if (!t && !lua_isnil(L, index))
        FL_RAISE(L, "it must return tensors or nil as gradients, got %s", fl_lua_type_name(L, index));
    if (!t || !need) return;
    if (!sums_to(&t->meta->shape, &meta->shape) || t->meta->is_local != meta->is_local
        || !fl_dtype_is_float(t->meta->dtype))
        fl_lua_error(L,
                     fl_fail(FL_ERR_SHAPE, "it returned %s (%s) as the gradient of %s (%s)", fl_meta_text(is, t->meta),
                             t->meta->is_local ? "local" : "global", fl_meta_text(want, meta),
                             meta->is_local ? "local" : "global"));
    *out = fl_tensor_ref(t);
}

struct backward {
    fl_lua_instance *instance; /* a reference */
    int function;              /* in its registry */
    char name[32];
};

/* A call of backward. */
struct call {
    const struct backward *backward;
    fl_function_grad *g;
};

static int call_backward(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 1);
    fl_function_grad *g = call->g;
    luaL_checkstack(L, 8, "backward");
    lua_rawgeti(L, LUA_REGISTRYINDEX, call->backward->function);
    push_tensors(L, g->gout, g->nout);
    push_tensors(L, g->saved, g->saved_count);
    lua_createtable(L, g->nin, 0);
    for (int i = 0; i < g->nin; i++) {
        lua_pushboolean(L, g->need[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_call(L, 3, 1);
    for (int i = 0; i < g->nin; i++) {
        lua_rawgeti(L, -1, i + 1);
        fl_lua_take_gradient(L, -1, &g->gin[i], g->in_meta[i], g->need[i]);
        lua_pop(L, 1);
    }
    return 0;
}

static fl_status run_backward(fl_function_grad *g, void *context)
{
    const struct backward *b = context;
    struct call call = {b, g};
    fl_status status = fl_lua_call_below(b->instance, b->name, call_backward, &call);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "error in the backward of %s: ", b->name);
}

static void release_backward(void *context)
{
    struct backward *b = context;
    fl_lua_unref_later(b->instance, b->function);
    free(b);
}

/* ---- recording ---- */

/* The tensors of the list at index, in a userdata that is pushed. */
static fl_tensor **tensors_at(lua_State *L, int index, int *count)
{
    luaL_checktype(L, index, LUA_TTABLE);
    *count = (int)lua_rawlen(L, index);
    fl_tensor **list = lua_newuserdatauv(L, sizeof *list * (size_t)(*count + 1), 0);
    for (int i = 0; i < *count; i++) {
        lua_rawgeti(L, index, i + 1);
        list[i] = fl_lua_check_tensor(L, -1, "_function", "entry");
        lua_pop(L, 1);
    }
    return list;
}

/* A result as a tensor of its own: forward may have returned what others hold, too, or an input. */
static fl_status own_result(fl_tensor **out, fl_tensor *result, fl_tensor *const *in, int nin)
{
    for (int i = 0; i < nin; i++)
        if (result->storage == in[i]->storage) return FL_CALL_UNRECORDED(out, clone, fl_of(result));
    return fl_tensor_detach(out, result);
}

/* _function(name, inputs, results, saved, backward) -> the results, connected with the inputs */
static int record(lua_State *L)
{
    enum { NAME = 1, INPUTS, RESULTS, SAVED, BACKWARD };
    lua_settop(L, BACKWARD);
    int nin, nout, saved_count;
    fl_tensor **in = tensors_at(L, INPUTS, &nin), **results = tensors_at(L, RESULTS, &nout),
              **saved = tensors_at(L, SAVED, &saved_count);
    fl_tensor *out[FL_MAX_OUT];
    if (nout > FL_MAX_OUT) FL_RAISE(L, "function: at most %d results, got %d", FL_MAX_OUT, nout);
    luaL_checkstack(L, FL_MAX_OUT + 4, "function");
    for (int i = 0; i < nout; i++) {
        fl_box *box = fl_lua_new_box(L);
        FL_CHECK(L, own_result(&box->tensor, results[i], in, nin));
        out[i] = box->tensor;
        for (int k = 0; k < saved_count; k++)
            if (saved[k] == results[i]) saved[k] = out[i];
    }
    struct backward *b = malloc(sizeof *b);
    if (!b) fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "autograd_function: out of memory"));
    fl_function function = {.backward = run_backward, .release = release_backward, .context = b};
    snprintf(function.name, sizeof function.name, "%s", lua_tostring(L, NAME));
    memcpy(b->name, function.name, sizeof b->name);
    lua_pushvalue(L, BACKWARD);
    b->instance = fl_lua_instance_ref(fl_lua_running);
    b->function = luaL_ref(L, LUA_REGISTRYINDEX);
    FL_CHECK(L, fl_autograd_function(out, nout, in, nin, saved, saved_count, &function));
    return nout;
}

/* _version(x): the number of writes to x, to see if a function wrote it */
static int version(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "_version", "x");
    lua_pushinteger(L, x->storage ? (lua_Integer)x->storage->var.version : 0);
    return 1;
}

/* _reaches_others(ys, xs) -> true if ys depend on a leaf that requires grad and is none of xs */
static int reaches_others(lua_State *L)
{
    bool found;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    int count = (int)luaL_len(L, 1), xcount = (int)luaL_len(L, 2);
    fl_tensor **list = lua_newuserdatauv(L, sizeof *list * (size_t)(count + xcount + 1), 0);
    for (int i = 0; i < count + xcount; i++) {
        lua_rawgeti(L, i < count ? 1 : 2, i < count ? i + 1 : i - count + 1);
        list[i] = fl_lua_check_tensor(L, -1, "_function", "entry");
        lua_pop(L, 1);
    }
    FL_CHECK(L, fl_autograd_reaches_others(&found, list, count, list + count, xcount));
    lua_pushboolean(L, found);
    return 1;
}

static int is_traced(lua_State *L)
{
    lua_pushboolean(L, fl_tracer_now != NULL);
    return 1;
}

void fl_lua_open_function(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"record", record},
                                         {"version", version},
                                         {"is_traced", is_traced},
                                         {"reaches_others", reaches_others},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_setfield(L, flow, "_function");
}
