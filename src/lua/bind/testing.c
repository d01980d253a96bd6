/*
** testing.c -- flow._testing: functions for specs: the registry, and parts of other ranks.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "op_call.h"
#include "own_op_parts.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* Pushes one op's description: name, sig, doc, samples, call and flags. */
static void push_op(lua_State *L, const fl_op *op)
{
    lua_createtable(L, 0, 10);
    lua_pushstring(L, op->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, op->sig);
    lua_setfield(L, -2, "sig");
    lua_pushstring(L, op->doc ? op->doc : "");
    lua_setfield(L, -2, "doc");
    lua_newtable(L);
    for (int i = 0; op->samples && op->samples[i]; i++) {
        lua_pushstring(L, op->samples[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "samples");
    lua_getfield(L, lua_upvalueindex(1), "_op");
    lua_getfield(L, -1, op->name);
    lua_setfield(L, -3, "call");
    lua_pop(L, 1);
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"hidden", op->flags & FL_OP_HIDDEN},
        {"random", op->flags & FL_OP_RANDOM},
        {"mutates", op->mutates != 0},
        {"source", op->flags & FL_OP_SOURCE},
        {"elementwise", op->flags & FL_OP_ELEMENTWISE},
        {"differentiable", !(op->flags & FL_OP_NO_GRAD) && (op->grad || op->vjp || op->body || op->compute)},
        {"body", op->body != NULL},
        {"host_only", op->flags & FL_OP_HOST_ONLY},
        {"composite", op->body != NULL},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        lua_pushboolean(L, flags[i].value);
        lua_setfield(L, -2, flags[i].name);
    }
}

/* op(function) -> the description of the op that it calls, nil where it calls none */
static int testing_op(lua_State *L)
{
    const fl_lua_call *call = fl_lua_call_of(L, 1);
    if (!call) return 0;
    push_op(L, call->op);
    return 1;
}

/* unmet_row(function) -> the first row of an own op's sbp that no tensors have met since the last call; nil: none */
static int testing_unmet_row(lua_State *L)
{
    const fl_lua_call *call = fl_lua_call_of(L, 1);
    int row = call ? fl_own_unmet_row(call->op) : 0;
    if (!row) return 0;
    lua_pushinteger(L, row);
    return 1;
}

/* ops() -> list of descriptions of every op that can be called */
static int testing_ops(lua_State *L)
{
    lua_newtable(L);
    int n = 0;
    FL_FOR_EACH_OP(op)
    {
        if (!(*op)->infer && !(*op)->body) continue; /* recorded on the tape, never called */
        push_op(L, *op);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* set_world(size, rank, pretend): a dry world; set_world(1, 0) leaves it. pretend: an op that needs a peer is no error
** but gives numbers of no meaning, so that explain gets through whole programs */
static int testing_set_world(lua_State *L)
{
    fl_boxing_pretend = lua_toboolean(L, 3);
    FL_CHECK(L, fl_world_set_dry((int)luaL_checkinteger(L, 1), (int)luaL_checkinteger(L, 2)));
    return 0;
}

/* from_part(part, logical shape, placement, sbp): a global tensor of which `part` is this rank's share */
static int testing_from_part(lua_State *L)
{
    fl_tensor *part = fl_lua_check_tensor(L, 1, "from_part", "part");
    fl_shape shape = {0, {0}};
    shape.ndim = fl_lua_check_list(L, 2, shape.dims, FL_MAX_NDIM, "from_part", "shape");
    const fl_placement *placement = fl_lua_check_placement(L, 3, "from_part");
    fl_nd_sbp nd_sbp = fl_lua_check_sbp(L, 4, shape.ndim, "from_part");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_global_from_part(&box->tensor, part, &shape, placement, nd_sbp));
    return 1;
}

/* engine(mode) -> the mode before: ops are executed so from now on, "naive", "queued" or "auto" */
static int testing_engine(lua_State *L)
{
    static const char *const names[] = {
        [FL_ENGINE_AUTO] = "auto", [FL_ENGINE_NAIVE] = "naive", [FL_ENGINE_QUEUED] = "queued", NULL};
    fl_engine_mode before = fl_engine_mode_get();
    fl_engine_mode_set((fl_engine_mode)luaL_checkoption(L, 1, NULL, names));
    lua_pushstring(L, names[before]);
    return 1;
}

/* has_kernel(op, device) -> true if the device's plug-in has a kernel of that op; no device is needed */
static int testing_has_kernel(lua_State *L)
{
    const fl_op *op = fl_op_find(luaL_checkstring(L, 1));
    luaL_argcheck(L, op, 1, "there is no such op");
    fl_kernel_fn kernel;
    FL_CHECK(L, fl_device_kernel_of(&kernel, fl_lua_check_device(L, 2, "has_kernel")->type, op));
    lua_pushboolean(L, kernel != NULL);
    return 1;
}

/* Collects the signatures of one call: encoded as text, since Lua may not be entered while the core runs. */
struct collected {
    char *text;
    size_t used, size;
    bool failed;
};

static void collect(void *context, const fl_nd_sbp *in_out, int nin, int nout, bool has_body)
{
    struct collected *c = context;
    char sbp[FL_SBP_TEXT];
    size_t most = (size_t)(nin + nout + 1) * FL_SBP_TEXT * FL_MAX_HIERARCHY;
    if (c->size - c->used < most) {
        char *text = realloc(c->text, 2 * (c->size + most));
        c->failed = c->failed || !text;
        if (!text) return;
        c->text = text;
        c->size = 2 * (c->size + most);
    }
    c->used += (size_t)sprintf(c->text + c->used, "%s", has_body ? "body" : "kernel");
    for (int i = 0; i < nin + nout; i++)
        for (int k = 0; k < in_out[i].n; k++)
            c->used += (size_t)sprintf(c->text + c->used, "%s%s",
                                       k              ? ","
                                           : i == nin ? ">"
                                                      : " ",
                                       fl_sbp_text(sbp, in_out[i].at[k]));
    c->used += (size_t)sprintf(c->text + c->used, "\n");
}

/* signatures(op, hierarchy, arguments...) -> text, a line "kernel S(0),B B,B>S(0),B" each: SBPs of the tensor operands,
** then of the results */
static int testing_signatures(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    int64_t list[FL_MAX_NDIM];
    int hierarchy[FL_MAX_HIERARCHY], ndim = fl_lua_check_list(L, 2, list, FL_MAX_HIERARCHY, "signatures", "hierarchy");
    for (int k = 0; k < ndim; k++) hierarchy[k] = (int)list[k];
    lua_getfield(L, lua_upvalueindex(1), "_op");
    lua_getfield(L, -1, name);
    const fl_lua_call *call = fl_lua_call_of(L, -1);
    if (!call) FL_RAISE(L, "signatures: there is no op '%s'", name);
    lua_settop(L, lua_gettop(L) - 2);
    lua_remove(L, 1);
    lua_remove(L, 1);
    struct collected c = {.used = 0};
    fl_status status = call->op->infer ? fl_lua_signatures(L, call, hierarchy, ndim, collect, &c) : FL_OK;
    if (!c.failed) lua_pushlstring(L, c.text ? c.text : "", c.used);
    free(c.text);
    FL_CHECK(L, status);
    if (c.failed) FL_RAISE(L, "signatures: out of memory");
    return 1;
}

void fl_lua_open_testing(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"ops", testing_ops},
                                         {"op", testing_op},
                                         {"unmet_row", testing_unmet_row},
                                         {"set_world", testing_set_world},
                                         {"from_part", testing_from_part},
                                         {"signatures", testing_signatures},
                                         {"engine", testing_engine},
                                         {"has_kernel", testing_has_kernel},
                                         {"ported", fl_lua_push_ported},
                                         {NULL, NULL}};
    lua_newtable(L);
    lua_pushvalue(L, flow);
    luaL_setfuncs(L, functions, 1);
    lua_setfield(L, flow, "_testing");
}
