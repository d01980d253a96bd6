/*
** grad.c -- backward, gradients, no_grad and hooks.
*/
#include "arguments.h"
#include "members.h"
#include "scope.h"
#include "tensors.h"

#include <stdlib.h>

/* ---- lists of tensors ---- */

/* Tensors of one value or a list, in memory of a userdata on the Lua stack. */
struct tensor_list {
    fl_tensor **at;
    int count;
    bool single;
};

/* While a program is traced a tensor with values has a stand-in, which is what the tape knows. */
static void replace_traced(lua_State *L, struct tensor_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->at[i]->meta->placement->type != FL_META)
            FL_CHECK(L, fl_tracer_now->stand_in(&list->at[i], list->at[i]));
}

static struct tensor_list check_tensors(lua_State *L, int index, const char *who, const char *name)
{
    struct tensor_list list = {.count = 1};
    list.single = fl_lua_to_tensor(L, index) != NULL;
    if (!list.single && !lua_istable(L, index))
        FL_RAISE(L, "%s: %s must be a tensor or a list of tensors, got %s", who, name, fl_lua_type_name(L, index));
    if (!list.single) list.count = (int)lua_rawlen(L, index);
    if (list.count == 0) FL_RAISE(L, "%s: %s is an empty list", who, name);
    list.at = lua_newuserdatauv(L, sizeof *list.at * (size_t)list.count, 0);
    if (list.single) list.at[0] = fl_lua_to_tensor(L, index);
    for (int i = 0; !list.single && i < list.count; i++) {
        lua_rawgeti(L, index, i + 1);
        list.at[i] = fl_lua_to_tensor(L, -1);
        if (!list.at[i])
            FL_RAISE(L, "%s: entry %d of %s must be a tensor, got %s", who, i + 1, name, fl_lua_type_name(L, -1));
        lua_pop(L, 1);
    }
    if (FL_UNLIKELY(fl_tracer_now != NULL)) replace_traced(L, &list);
    return list;
}

static bool option_flag(lua_State *L, int index, const char *who, const char *name, bool otherwise)
{
    if (!lua_istable(L, index) || lua_getfield(L, index, name) == LUA_TNIL) return otherwise;
    if (!lua_isboolean(L, -1)) FL_RAISE(L, "%s: %s must be true or false, got %s", who, name, fl_lua_type_name(L, -1));
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static void check_option_table(lua_State *L, int index, const char *who, const char *const *names)
{
    if (lua_isnoneornil(L, index)) return;
    if (!lua_istable(L, index)) FL_RAISE(L, "%s: options must be a table, got %s", who, fl_lua_type_name(L, index));
    fl_lua_check_keys(L, index, who, names);
}

/* ---- backward ---- */

/* x:backward(grad, {retain_graph =, create_graph =}) */
static int tensor_backward(lua_State *L)
{
    static const char *const names[] = {"gradient", "retain_graph", "create_graph", NULL};
    fl_tensor *x = fl_lua_check_tensor(L, 1, "backward", "x");
    fl_lua_check_count(L, 3, "backward", "x:backward(gradient, {retain_graph =, create_graph =})");
    if (fl_tracer_now)
        FL_RAISE(L,
                 "backward: a program that is traced has no place for x.grad; return flow.grad(loss, xs), or trace "
                 "the loss alone and take its program's p:backward()");
    if (lua_istable(L, 2) && lua_isnoneornil(L, 3)) { /* options alone */
        lua_settop(L, 2);
        lua_pushnil(L);
        lua_insert(L, 2);
    }
    lua_settop(L, 3);
    check_option_table(L, 3, "backward", names);
    if (lua_istable(L, 3) && lua_getfield(L, 3, "gradient") != LUA_TNIL) lua_replace(L, 2);
    fl_tensor *grad = lua_isnil(L, 2) ? NULL : fl_lua_check_tensor(L, 2, "backward", "grad");
    bool create = option_flag(L, 3, "backward", "create_graph", false);
    bool retain = option_flag(L, 3, "backward", "retain_graph", create);
    FL_CHECK(L, fl_autograd_backward(&x, grad ? &grad : NULL, 1, retain, create));
    fl_lua_account(L);
    return 0;
}

/* Pushes the gradients: one tensor when xs was one, else a list (false where there is none). */
static void push_gradients(lua_State *L, fl_box *const *boxes, const struct tensor_list *xs, int first)
{
    if (xs->single) {
        if (boxes[0]->tensor) lua_pushvalue(L, first);
        else lua_pushnil(L);
        return;
    }
    lua_createtable(L, xs->count, 0);
    for (int i = 0; i < xs->count; i++) {
        lua_rawgeti(L, first, i + 1);
        if (!boxes[i]->tensor) {
            lua_pop(L, 1);
            lua_pushboolean(L, 0);
        }
        lua_rawseti(L, -2, i + 1);
    }
}

/* flow.grad(y, xs, {grad_outputs =, create_graph =, retain_graph =, allow_unused =}) */
static int flow_grad(lua_State *L)
{
    static const char *const names[] = {"grad_outputs", "create_graph", "retain_graph", "allow_unused", NULL};
    fl_lua_check_count(L, 3, "grad", "grad(y, xs, {grad_outputs =, create_graph =, retain_graph =, allow_unused =})");
    lua_settop(L, 3);
    check_option_table(L, 3, "grad", names);
    if (!fl_trace_may_differentiate()) FL_RAISE(L, "grad: the trace begins anew, with the ops that gradients need");
    struct tensor_list ys = check_tensors(L, 1, "grad", "y"), xs = check_tensors(L, 2, "grad", "xs"), seeds = {0};
    if (lua_istable(L, 3) && lua_getfield(L, 3, "grad_outputs") != LUA_TNIL)
        seeds = check_tensors(L, lua_gettop(L), "grad", "grad_outputs");
    if (seeds.at && seeds.count != ys.count)
        FL_RAISE(L, "grad: grad_outputs holds %d tensors, y %d", seeds.count, ys.count);
    bool create = option_flag(L, 3, "grad", "create_graph", false);
    bool retain = option_flag(L, 3, "grad", "retain_graph", create);
    bool unused = option_flag(L, 3, "grad", "allow_unused", false);
    fl_box **boxes = lua_newuserdatauv(L, sizeof *boxes * (size_t)xs.count, 0);
    fl_tensor **out = lua_newuserdatauv(L, sizeof *out * (size_t)xs.count, 0);
    if (!xs.single) lua_createtable(L, xs.count, 0);
    int first = lua_gettop(L) + xs.single;
    for (int i = 0; i < xs.count; i++) {
        boxes[i] = fl_lua_new_box(L);
        if (!xs.single) lua_rawseti(L, first, i + 1);
    }
    memset(out, 0, sizeof *out * (size_t)xs.count);
    FL_CHECK(L, fl_autograd_grad(out, ys.at, seeds.at, ys.count, xs.at, xs.count, retain, create, unused));
    for (int i = 0; i < xs.count; i++) boxes[i]->tensor = out[i];
    push_gradients(L, boxes, &xs, first);
    fl_lua_account(L);
    return 1;
}

static int tensor_detach(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "detach", "x");
    fl_lua_check_count(L, 1, "detach", "x:detach()");
    fl_box *box = fl_lua_new_box_fast(L);
    if (FL_UNLIKELY(fl_answerer_now != NULL)) {
        FL_CHECK(L, fl_answerer_now->detach(&box->tensor, x));
        return 1;
    }
    FL_CHECK(L, fl_tensor_detach(&box->tensor, x));
    if (FL_UNLIKELY(fl_tracer_now != NULL)) FL_CHECK(L, fl_tracer_now->detached(box->tensor, x));
    return 1;
}

static int tensor_detach_in_place(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "detach_", "x");
    fl_lua_check_count(L, 1, "detach_", "x:detach_()");
    FL_CHECK(L, fl_autograd_forget(x));
    return 1;
}

static int tensor_requires_grad(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "requires_grad_", "x");
    fl_lua_check_count(L, 2, "requires_grad_", "x:requires_grad_(on)");
    if (!lua_isnoneornil(L, 2) && !lua_isboolean(L, 2))
        FL_RAISE(L, "requires_grad_: takes true or false, got %s", fl_lua_type_name(L, 2));
    FL_CHECK(L, fl_autograd_set_requires_grad(x, lua_isnoneornil(L, 2) || lua_toboolean(L, 2)));
    lua_settop(L, 1);
    return 1;
}

static int tensor_retain_grad(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "retain_grad", "x");
    fl_lua_check_count(L, 1, "retain_grad", "x:retain_grad()");
    FL_CHECK(L, fl_autograd_retain(x));
    return 0;
}

/* True if the tensors of the list at 1 that have a gradient are those of the list at 2. */
static bool are_with_grad(lua_State *L)
{
    lua_Integer count = 0;
    bool same = lua_istable(L, 2);
    for (lua_Integer i = 1; same && lua_rawgeti(L, 1, i) != LUA_TNIL; i++) {
        const fl_box *box = fl_lua_box(L, -1);
        if (box && fl_autograd_grad_of(box->tensor)) {
            lua_rawgeti(L, 2, ++count);
            same = lua_touserdata(L, -1) == box;
        }
        lua_settop(L, 2);
    }
    return same && (lua_Integer)lua_rawlen(L, 2) == count;
}

/* _with_grad(xs, known): the list of the tensors that have a gradient; `known` if it is that list. Gradients that were
** read as x.grad would live until the next collection. */
static int flow_with_grad(lua_State *L)
{
    lua_Integer count = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    bool same = are_with_grad(L);
    lua_settop(L, 2);
    if (same) return 1;
    lua_newtable(L);
    for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; i++) {
        const fl_box *box = fl_lua_box(L, -1);
        if (box && fl_autograd_grad_of(box->tensor)) lua_rawseti(L, 3, ++count);
        else lua_pop(L, 1);
    }
    lua_settop(L, 3);
    return 1;
}

/* ---- no_grad, no_sync ---- */

/* Runs f (argument 1, with the arguments after it) while a setting has the value; without f returns one to be closed.
** */
static int with_setting(lua_State *L, int which, uintptr_t value, const char *who)
{
    int given = lua_gettop(L);
    if (given > 0 && !fl_lua_is_callable(L, 1))
        FL_RAISE(L, "%s: takes a function, or nothing: local _ <close> = flow.%s()", who, who);
    fl_lua_scope_open(L, which, value, 0);
    if (given == 0) return 1;
    lua_insert(L, 1);
    return fl_lua_scope_call(L);
}

static int flow_no_grad(lua_State *L) { return with_setting(L, FL_SETTING_RECORDING, false, "no_grad"); }
static int flow_inference_mode(lua_State *L) { return with_setting(L, FL_SETTING_RECORDING, false, "inference_mode"); }
static int flow_enable_grad(lua_State *L) { return with_setting(L, FL_SETTING_RECORDING, true, "enable_grad"); }
static int flow_no_sync(lua_State *L) { return with_setting(L, FL_SETTING_SYNCING, false, "no_sync"); }

static int flow_detect_anomaly(lua_State *L) { return with_setting(L, FL_SETTING_ANOMALY, true, "detect_anomaly"); }

/* Takes {enabled = flag} at index 2 off the arguments -> flag, or true. */
static bool take_enabled(lua_State *L)
{
    if (!lua_istable(L, 2) || fl_lua_is_callable(L, 2)) return true;
    if (lua_getfield(L, 2, "enabled") != LUA_TBOOLEAN)
        FL_RAISE(L, "autocast: the options are {enabled = true} or {enabled = false}");
    bool enabled = lua_toboolean(L, -1);
    lua_pop(L, 1);
    lua_remove(L, 2);
    return enabled;
}

/* autocast(dtype [, {enabled = flag}] [, f, ...]), autocast(false [, f, ...]) */
static int flow_autocast(lua_State *L)
{
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    fl_dtype dtype = name ? fl_dtype_parse(name) : FL_DTYPE_COUNT;
    bool off = lua_isboolean(L, 1) && !lua_toboolean(L, 1);
    if (!off && dtype != FL_FLOAT16 && dtype != FL_BFLOAT16)
        FL_RAISE(L, "autocast: takes 'bfloat16', 'float16', or false for a region without casts; got %s",
                 name ? name : fl_lua_type_name(L, 1));
    off = !take_enabled(L) || off;
    lua_remove(L, 1);
    return with_setting(L, FL_SETTING_AUTOCAST, off ? FL_AUTOCAST_OFF : fl_autocast_to(dtype), "autocast");
}

/* set_grad_enabled(enabled [, f, ...]); without f it holds until the value is closed, or for good */
static int flow_set_grad_enabled(lua_State *L)
{
    if (!lua_isboolean(L, 1))
        FL_RAISE(L, "set_grad_enabled: enabled must be true or false, got %s", fl_lua_type_name(L, 1));
    bool enabled = lua_toboolean(L, 1);
    lua_remove(L, 1);
    return with_setting(L, FL_SETTING_RECORDING, enabled, "set_grad_enabled");
}

/* set_detect_anomaly(mode [, f, ...]): as set_grad_enabled */
static int flow_set_detect_anomaly(lua_State *L)
{
    if (!lua_isboolean(L, 1))
        FL_RAISE(L, "set_detect_anomaly: mode must be true or false, got %s", fl_lua_type_name(L, 1));
    bool mode = lua_toboolean(L, 1);
    lua_remove(L, 1);
    return with_setting(L, FL_SETTING_ANOMALY, mode, "set_detect_anomaly");
}

static int flow_autocast_dtype(lua_State *L)
{
    fl_lua_check_count(L, 0, "autocast_dtype", "autocast_dtype()");
    if (fl_autocast_now < FL_AUTOCAST_DTYPES) return 0;
    lua_pushstring(L, fl_dtype_name((fl_dtype)(fl_autocast_now - FL_AUTOCAST_DTYPES)));
    return 1;
}

static int flow_is_grad_enabled(lua_State *L)
{
    fl_lua_check_count(L, 0, "is_grad_enabled", "is_grad_enabled()");
    lua_pushboolean(L, fl_grad_enabled);
    return 1;
}

/* ---- hooks ---- */

static const char handle_type[] = "flow.hook";

/* A Lua function called with a gradient, or with the leaf that has it now. Shared by the core (until the tensor dies)
** and the handle. */
struct lua_hook {
    int function; /* registry reference; LUA_NOREF after remove */
    bool of_leaf;
    int owners;
    fl_lua_instance *instance; /* a reference */
};

static void hook_release(void *context)
{
    struct lua_hook *hook = context;
    if (--hook->owners > 0) return;
    if (hook->function != LUA_NOREF) fl_lua_unref_later(hook->instance, hook->function);
    else fl_lua_instance_unref(hook->instance);
    free(hook);
}

/* In a protected call, because the core is below us: function and gradient are on the stack. */
static fl_status hook_result(lua_State *L, fl_tensor **out, bool of_leaf)
{
    if (lua_pcall(L, 1, 1, 0) != LUA_OK)
        return fl_fail_prefix(fl_lua_caught(L, FL_ERR_STATE), "error in a gradient hook: ");
    if (of_leaf) return FL_OK;
    fl_tensor *t = fl_lua_to_tensor(L, -1);
    if (t) *out = fl_tensor_ref(t);
    else if (!lua_isnil(L, -1))
        return fl_fail(FL_ERR_VALUE, "a gradient hook must return a tensor or nothing, got %s",
                       fl_lua_type_name(L, -1));
    return FL_OK;
}

static int hook_prepare(lua_State *L)
{
    fl_tensor *grad = lua_touserdata(L, 1);
    fl_lua_push_tensor(L, grad);
    return 1;
}

static fl_status hook_call(fl_tensor **out, fl_tensor *grad, void *context)
{
    struct lua_hook *hook = context;
    lua_State *L = fl_lua_thread_of(hook->instance);
    *out = NULL;
    if (hook->function == LUA_NOREF || !L) return FL_OK;
    fl_answer_hooked = true;
    if (!lua_checkstack(L, 8)) return fl_fail(FL_ERR_MEMORY, "gradient hook: the Lua stack is full");
    int top = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, hook->function);
    lua_pushcfunction(L, hook_prepare);
    lua_pushlightuserdata(L, grad);
    fl_status status;
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) status = fl_fail(FL_ERR_MEMORY, "gradient hook: out of memory");
    else status = hook_result(L, out, hook->of_leaf);
    lua_settop(L, top);
    fl_lua_enter(L);
    return status;
}

static int handle_remove(lua_State *L)
{
    struct lua_hook **handle = luaL_testudata(L, 1, handle_type);
    if (!handle)
        FL_RAISE(L, "remove: a method is called with a colon, handle:remove(); got %s as the handle",
                 fl_lua_type_name(L, 1));
    fl_lua_check_count(L, 1, "remove", "handle:remove()");
    if (*handle && (*handle)->function != LUA_NOREF) {
        luaL_unref(L, LUA_REGISTRYINDEX, (*handle)->function);
        (*handle)->function = LUA_NOREF;
    }
    return 0;
}

/* local _ <close> = x:register_hook(f) */
static int handle_close(lua_State *L)
{
    lua_settop(L, 1); /* no error */
    return handle_remove(L);
}

static int handle_gc(lua_State *L)
{
    struct lua_hook **handle = luaL_checkudata(L, 1, handle_type);
    if (*handle) hook_release(*handle);
    *handle = NULL;
    return 0;
}

/* f(leaf) with the object that the script registered, as long as it has it: what it is the key of is found then. The
** upvalues are f and a table that holds the object weakly. */
static int call_with_registered(lua_State *L)
{
    lua_settop(L, 1);
    if (lua_rawgeti(L, lua_upvalueindex(2), 1) == LUA_TNIL) lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, -2);
    lua_call(L, 1, 0);
    return 0;
}

/* Pushes the function that is called for f (at 2) of the leaf at 1. */
static void push_call_with_registered(lua_State *L)
{
    lua_pushvalue(L, 2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushcclosure(L, call_with_registered, 2);
}

static int register_hook(lua_State *L, const char *who, const char *usage, bool of_leaf)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, who, "x");
    fl_lua_check_count(L, 2, who, usage);
    if (lua_type(L, 2) != LUA_TFUNCTION) FL_RAISE(L, "%s: takes a function, got %s", who, fl_lua_type_name(L, 2));
    struct lua_hook **handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = NULL;
    luaL_setmetatable(L, handle_type);
    struct lua_hook *hook = malloc(sizeof *hook);
    if (!hook) fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "%s: out of memory", who));
    *hook = (struct lua_hook){LUA_NOREF, of_leaf, 1, fl_lua_instance_ref(fl_lua_running)};
    *handle = hook;
    if (of_leaf) push_call_with_registered(L);
    else lua_pushvalue(L, 2);
    hook->function = luaL_ref(L, LUA_REGISTRYINDEX);
    hook->owners++;
    fl_status status = (of_leaf ? fl_autograd_add_after : fl_autograd_add_hook)(x, hook_call, hook, hook_release);
    if (status != FL_OK) {
        hook->owners--;
        fl_lua_error(L, status);
    }
    return 1;
}

/* x:register_hook(f) -> handle with handle:remove() */
static int tensor_register_hook(lua_State *L) { return register_hook(L, "register_hook", "x:register_hook(f)", false); }

/* x:register_post_accumulate_grad_hook(f) -> handle */
static int tensor_register_after(lua_State *L)
{
    return register_hook(L, "register_post_accumulate_grad_hook", "x:register_post_accumulate_grad_hook(f)", true);
}

/* ---- opening ---- */

void fl_lua_open_grad(lua_State *L, int flow, int methods)
{
    static const luaL_Reg functions[] = {{"grad", flow_grad},
                                         {"no_grad", flow_no_grad},
                                         {"inference_mode", flow_inference_mode},
                                         {"enable_grad", flow_enable_grad},
                                         {"autocast", flow_autocast},
                                         {"autocast_dtype", flow_autocast_dtype},
                                         {"no_sync", flow_no_sync},
                                         {"is_grad_enabled", flow_is_grad_enabled},
                                         {"set_grad_enabled", flow_set_grad_enabled},
                                         {"detect_anomaly", flow_detect_anomaly},
                                         {"set_detect_anomaly", flow_set_detect_anomaly},
                                         {"_with_grad", flow_with_grad},
                                         {NULL, NULL}};
    static const luaL_Reg method_functions[] = {{"backward", tensor_backward},
                                                {"detach", tensor_detach},
                                                {"detach_", tensor_detach_in_place},
                                                {"requires_grad_", tensor_requires_grad},
                                                {"retain_grad", tensor_retain_grad},
                                                {"register_hook", tensor_register_hook},
                                                {"register_post_accumulate_grad_hook", tensor_register_after},
                                                {NULL, NULL}};
    static const luaL_Reg handle[] = {
        {"remove", handle_remove}, {"__close", handle_close}, {"__gc", handle_gc}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    fl_lua_set_functions(L, methods, method_functions);
    luaL_newmetatable(L, handle_type);
    luaL_setfuncs(L, handle, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    fl_lua_set_object(L, "a hook's handle");
    lua_pop(L, 1);
}
