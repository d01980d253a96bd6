/*
** recompute.c -- flow.checkpoint: functions that backward calls again (core/autograd/recompute.h).
**
** The arguments of a function are kept until no node needs it any more: tensors here, the rest in a table of the
** registry. (Tensors there would lie in boxes that get old, and wait for a full collection.) A variable of the script
** that the function reads may be assigned to before it runs again: if that is a tensor, this is an error.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_VARIABLES = 255 }; /* upvalues of a function */

struct call {
    fl_lua_instance *instance; /* a reference */
    int table;                 /* in its registry: the function at 0, its arguments from 1 */
    int count;                 /* arguments */
    fl_tensor **arguments;     /* owned; those that are tensors, else NULL */
    int variable_count;        /* upvalues */
    fl_tensor **variables;     /* owned; those that are tensors, else NULL */
};

static void call_release(void *context)
{
    struct call *call = context;
    fl_lua_unref_later(call->instance, call->table);
    for (int i = 0; i < call->count; i++) fl_tensor_unref(call->arguments[i]);
    for (int i = 0; i < call->variable_count; i++) fl_tensor_unref(call->variables[i]);
    free(call);
}

static struct call *call_new(int table, int count, int variable_count)
{
    size_t tensors = (size_t)(count + variable_count);
    struct call *call = calloc(1, sizeof *call + tensors * sizeof(fl_tensor *));
    if (!call) return NULL;
    call->instance = fl_lua_instance_ref(fl_lua_running);
    call->table = table;
    call->count = count;
    call->arguments = (fl_tensor **)(call + 1);
    call->variable_count = variable_count;
    call->variables = call->arguments + count;
    return call;
}

/* ---- variables ---- */

static int count_variables(lua_State *L, int f)
{
    int count = 0;
    if (lua_type(L, f) != LUA_TFUNCTION || lua_iscfunction(L, f)) return 0;
    while (count < MOST_VARIABLES && lua_getupvalue(L, f, count + 1)) {
        lua_pop(L, 1);
        count++;
    }
    return count;
}

/* The tensor (borrowed) in the function's variable i, from 0, or NULL. */
static fl_tensor *variable(lua_State *L, int f, int i, const char **name)
{
    *name = lua_getupvalue(L, f, i + 1);
    fl_tensor *t = fl_lua_to_tensor(L, -1); /* the variable keeps it */
    lua_pop(L, 1);
    return t;
}

/* A variable that the function itself has assigned to is its own matter. */
static void forget_assigned(lua_State *L, int f, struct call *call)
{
    const char *name;
    for (int i = 0; i < call->variable_count; i++) {
        if (!call->variables[i] || variable(L, f, i, &name) == call->variables[i]) continue;
        fl_tensor_unref(call->variables[i]);
        call->variables[i] = NULL;
    }
}

static fl_status check_variables(lua_State *L, int f, const struct call *call)
{
    const char *name;
    for (int i = 0; i < call->variable_count; i++)
        if (call->variables[i] && variable(L, f, i, &name) != call->variables[i])
            return fl_fail(FL_ERR_STATE,
                           "backward: variable '%.40s' was assigned to after flow.checkpoint had called the function "
                           "that reads it; pass it as an argument, or use a local variable that stays as it is",
                           name);
    return FL_OK;
}

/* ---- running again ---- */

/* In a protected call: calls the function (2) as it was called, with what the table (1) has of its arguments. */
static int call_again(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 3);
    luaL_checkstack(L, call->count + 8, "checkpoint");
    lua_pushvalue(L, 2);
    for (int i = 0; i < call->count; i++) {
        if (call->arguments[i]) fl_lua_push_tensor(L, call->arguments[i]);
        else lua_rawgeti(L, 1, i + 1);
    }
    lua_call(L, call->count, 0);
    return 0;
}

static fl_status call_run(void *context)
{
    struct call *call = context;
    lua_State *L = fl_lua_thread_of(call->instance);
    if (!L) return fl_fail(FL_ERR_STATE, "checkpoint: the lua_State of the function is closed");
    if (!lua_checkstack(L, 8)) return fl_fail(FL_ERR_MEMORY, "checkpoint: the Lua stack is full");
    int top = lua_gettop(L);
    lua_pushcfunction(L, call_again);
    lua_rawgeti(L, LUA_REGISTRYINDEX, call->table);
    lua_rawgeti(L, -1, 0);
    lua_pushlightuserdata(L, call);
    fl_lua_begin_temporaries(L);
    fl_status status = check_variables(L, top + 3, call);
    if (status == FL_OK && lua_pcall(L, 3, 0, 0) != LUA_OK)
        status = fl_fail_prefix(fl_lua_caught(L, FL_ERR_STATE),
                                "error in a function that flow.checkpoint computes again: ");
    lua_settop(L, top);
    fl_lua_end_temporaries(L, true);
    fl_lua_enter(L);
    return status;
}

/* ---- the first run ---- */

/* Puts what the registry keeps of a call of the function at 1 there. */
static int keep_call(lua_State *L, int count)
{
    lua_createtable(L, count, 1);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 0);
    for (int i = 1; i <= count; i++) {
        if (fl_lua_to_tensor(L, i + 1)) continue;
        lua_pushvalue(L, i + 1);
        lua_rawseti(L, -2, i);
    }
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

static fl_status note_input(fl_recompute *recompute, fl_tensor **kept, fl_tensor *tensor, const char *name)
{
    if (!tensor) return FL_OK;
    *kept = fl_tensor_ref(tensor);
    return fl_recompute_input(recompute, tensor, name);
}

static fl_status note_inputs(lua_State *L, struct call *call, fl_recompute *recompute)
{
    char text[64];
    const char *name;
    for (int i = 0; i < call->count; i++) {
        snprintf(text, sizeof text, "argument %d", i + 1);
        FL_TRY(note_input(recompute, &call->arguments[i], fl_lua_to_tensor(L, i + 2), text));
    }
    for (int i = 0; i < call->variable_count; i++) {
        fl_tensor *t = variable(L, 1, i, &name);
        snprintf(text, sizeof text, "variable '%.40s'", name);
        FL_TRY(note_input(recompute, &call->variables[i], t, text));
    }
    return FL_OK;
}

/* Calls the function at 1, with the arguments after it, for the first time: its results are pushed. In a protected
** call: where a coroutine ends by an error nothing else would end the run. */
static void call_first(lua_State *L, struct call *call)
{
    fl_recompute *recompute;
    int result = LUA_OK;
    FL_CHECK(L, fl_recompute_begin(&recompute, (fl_recompute_calls){call_run, call_release}, call));
    fl_lua_begin_temporaries(L);
    fl_status status = note_inputs(L, call, recompute);
    if (status == FL_OK) {
        for (int i = 1; i <= call->count + 1; i++) lua_pushvalue(L, i);
        result = lua_pcall(L, call->count, LUA_MULTRET, 0);
        forget_assigned(L, 1, call);
    }
    fl_lua_end_temporaries(L, false);
    fl_status ended = fl_recompute_end(recompute, status == FL_OK && result == LUA_OK);
    fl_recompute_unref(recompute);
    if (result != LUA_OK) lua_error(L);
    FL_CHECK(L, status);
    FL_CHECK(L, ended);
}

/* PyTorch's options of checkpoint, which f would get as an argument. */
static void refuse_options(lua_State *L)
{
    int last = lua_gettop(L);
    if (last < 2 || !lua_istable(L, last) || lua_getmetatable(L, last)) return;
    lua_pushstring(L, "use_reentrant");
    if (lua_rawget(L, last) != LUA_TNIL) FL_RAISE(L, "checkpoint: has no options; leave out use_reentrant");
    lua_settop(L, last);
}

/* flow.checkpoint(f, ...): the results of f */
static int flow_checkpoint(lua_State *L)
{
    int count = lua_gettop(L) - 1;
    fl_lua_enter(L);
    fl_lua_refuse_colon(L);
    if (count < 0 || !fl_lua_is_callable(L, 1))
        FL_RAISE(L, "checkpoint: f must be a function or a module, got %s", fl_lua_type_name(L, 1));
    refuse_options(L);
    luaL_checkstack(L, count + 16, "checkpoint");
    if (!fl_recompute_wanted() || fl_tracer_now || fl_answerer_now) {
        lua_call(L, count, LUA_MULTRET);
        return lua_gettop(L);
    }
    int table = keep_call(L, count);
    struct call *call = call_new(table, count, count_variables(L, 1));
    if (!call) {
        luaL_unref(L, LUA_REGISTRYINDEX, table);
        fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "checkpoint: out of memory"));
    }
    call_first(L, call);
    return lua_gettop(L) - count - 1;
}

void fl_lua_open_recompute(lua_State *L, int flow)
{
    lua_pushcfunction(L, flow_checkpoint);
    lua_setfield(L, flow, "checkpoint");
}
