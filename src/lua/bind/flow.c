/*
** flow.c -- the module: one table of functions; an unknown name in it is an error with "did you mean".
**
** flow.nn is what require "flow.nn" gives (modules.c); save, load and the like are functions of such modules.
*/
#define _GNU_SOURCE /* on_exit */
#include "core/process.h"
#include "errors.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "own_op.h"
#include "scope.h"
#include "tensors.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Functions of the flow table that live in a Lua module. */
static const struct {
    const char *name, *module;
} borrowed[] = {{"save", "checkpoint"},
                {"load", "checkpoint"},
                {"explain", "explain"},
                {"show", "show"},
                {"has", "has"},
                {"trace", "program"},
                {"program", "program_file"},
                {"equal", "compare"},
                {"allclose", "compare"},
                {"tensordot", "linalg"},
                {"gradcheck", "gradcheck"},
                {"autograd_function", "function"},
                {"GradScaler", "grad_scaler"},
                {"op", "own_op"},
                {"load_ops", "own_op"},
                {"normal", "sampling"},
                {"stft", "signal"},
                {"istft", "signal"},
                {"hann_window", "signal"},
                {"hamming_window", "signal"},
                {"blackman_window", "signal"},
                {"bartlett_window", "signal"},
                {"kaiser_window", "signal"},
                {"atleast_1d", "shaping"},
                {"atleast_2d", "shaping"},
                {"atleast_3d", "shaping"},
                {"hstack", "shaping"},
                {"vstack", "shaping"},
                {"row_stack", "shaping"},
                {"dstack", "shaping"},
                {"column_stack", "shaping"},
                {"block_diag", "shaping"},
                {"unbind", "shaping"},
                {"unstack", "shaping"},
                {"broadcast_arrays", "shaping"},
                {"positive", "array_api"},
                {"conj", "array_api"},
                {"real", "array_api"},
                {"cumulative_sum", "array_api"},
                {"cumulative_prod", "array_api"},
                {"unique_values", "array_api"},
                {"unique_inverse", "array_api"},
                {"unique_counts", "array_api"},
                {"unique_all", "array_api"},
                {"tensor_split", "shaping"},
                {"hsplit", "shaping"},
                {"vsplit", "shaping"},
                {"dsplit", "shaping"},
                {"broadcast_shapes", "shaping"},
                {"broadcast_tensors", "shaping"},
                {"meshgrid", "shaping"},
                {"cartesian_prod", "shaping"},
                {"combinations", "shaping"},
                {"tril_indices", "shaping"},
                {"triu_indices", "shaping"},
                {"one_hot", "shaping"},
                {"promote_types", "dtypes"},
                {"result_type", "dtypes"},
                {"can_cast", "dtypes"},
                {"isdtype", "dtypes"},
                {"is_floating_point", "dtypes"},
                {"is_complex", "dtypes"},
                {"numel", "dtypes"},
                {"finfo", "dtypes"},
                {"iinfo", "dtypes"},
                {"astype", "dtypes"},
                {"as_tensor", "dtypes"},
                {"asarray", "dtypes"},
                {"isclose", "compare"},
                {"absolute", "torch_names"},
                {"arccos", "torch_names"},
                {"arccosh", "torch_names"},
                {"arcsin", "torch_names"},
                {"arcsinh", "torch_names"},
                {"arctan", "torch_names"},
                {"arctan2", "torch_names"},
                {"arctanh", "torch_names"},
                {"fix", "torch_names"},
                {"sgn", "torch_names"},
                {"trapz", "torch_names"},
                {"constant_pad_nd", "torch_names"},
                {"mvlgamma", "torch_names"},
                {"pinverse", "torch_names"},
                {"vmap", "func"},
                {"lu", "linalg_names"},
                {"lu_solve", "linalg_names"},
                {"lu_unpack", "linalg_names"},
                {"geqrf", "linalg_names"},
                {"orgqr", "linalg_names"},
                {"ormqr", "linalg_names"},
                {"lobpcg", "linalg_lobpcg"},
                {"svd_lowrank", "linalg_names"},
                {"pca_lowrank", "linalg_names"},
                {"split_with_sizes", "torch_names"},
                {"conj_physical", "torch_names"},
                {"isreal", "torch_names"},
                {"chain_matmul", "torch_names"},
                {"clamp_min", "torch_names"},
                {"clamp_max", "torch_names"},
                {"frexp", "torch_names"},
                {"dist", "torch_names"},
                {"logspace", "torch_names"},
                {"vander", "torch_names"},
                {"pdist", "torch_names"},
                {"unravel_index", "torch_names"},
                {"histogram", "torch_names"},
                {"histogramdd", "torch_names"},
                {"gradient", "torch_names"},
                {"is_signed", "torch_names"},
                {"is_same_size", "torch_names"},
                {"is_nonzero", "torch_names"},
                {"get_rng_state", "torch_names"},
                {"set_rng_state", "torch_names"},
                {"set_printoptions", "print_options"},
                {"get_printoptions", "print_options"},
                {"index_put", "indexing"}};

/* Modules that scripts use; the others serve these, and are neither listed nor offered. */
#define PUBLIC(X)    \
    X(autograd)      \
    X(cli)           \
    X(cuda)          \
    X(data)          \
    X(distributions) \
    X(fft) X(func) X(json) X(kvstore) X(linalg) X(nn) X(optim) X(progress) X(signal) X(special) X(testing)
#define NAME(name) #name,
static const char *const public_modules[] = {PUBLIC(NAME)};
enum { BORROWED = sizeof borrowed / sizeof *borrowed, PUBLIC_MODULES = sizeof public_modules / sizeof *public_modules };

static const char *module_of(const char *name)
{
    for (int i = 0; i < BORROWED; i++)
        if (strcmp(borrowed[i].name, name) == 0) return borrowed[i].module;
    return NULL;
}

static int unknown_name(lua_State *L, const char *key)
{
    fl_suggestion s = {.word = key, .place = "flow"};
    fl_lua_make_members(L, 1, FL_LUA_FLOW);
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING && lua_tostring(L, -2)[0] != '_') fl_suggest_offer(&s, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    for (int i = 0; i < PUBLIC_MODULES; i++) fl_suggest_offer(&s, public_modules[i]);
    for (int i = 0; i < BORROWED; i++) fl_suggest_offer(&s, borrowed[i].name);
    fl_lua_push_module(L, "elsewhere");
    lua_getfield(L, -1, "find");
    lua_pushstring(L, key);
    lua_pushstring(L, s.place);
    lua_call(L, 2, 1);
    s.elsewhere = lua_tostring(L, -1);
    char hint[FL_SUGGEST_TEXT];
    FL_RAISE(L, "flow has no '%s'%s", key, fl_suggest_text(hint, &s));
}

/* Tables of functions that Lua modules and tests alone use are opened by the first that reads them. */
static int open_part(lua_State *L, const char *key)
{
    static const struct {
        const char *name;
        void (*open)(lua_State *L, int flow);
    } parts[] = {{"_io", fl_lua_open_io}, {"_testing", fl_lua_open_testing}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, key) != 0) continue;
        parts[i].open(L, 1);
        return lua_rawget(L, 1) != LUA_TNIL;
    }
    return 0;
}

/* flow.relu_ is the method that works in place: PyTorch has such functions. */
static bool push_in_place(lua_State *L, const char *key)
{
    size_t length = strlen(key);
    if (length < 2 || key[length - 1] != '_') return false;
    lua_pushliteral(L, "_methods");
    lua_rawget(L, 1);
    int methods = lua_gettop(L);
    lua_pushstring(L, key);
    bool found = lua_rawget(L, methods) == LUA_TFUNCTION;
    if (!found) lua_settop(L, methods);
    return found || fl_lua_push_later_method(L, methods, key);
}

/* flow[key] for a key that is not there: an op's function, a submodule or a function of one, kept for the next time. */
static int flow_index(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_type(L, 2) != LUA_TSTRING) return 0;
    const char *key = lua_tostring(L, 2), *home = module_of(key);
    if (key[0] == '_') return open_part(L, key);
    if (!fl_lua_push_op_function(L, key) && !push_in_place(L, key)) {
        if (!home && !fl_lua_module_find(key)) return unknown_name(L, key);
        fl_lua_push_module(L, home ? home : key);
        if (home) lua_getfield(L, -1, key);
    }
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

/* The names that flow_index finds. */
static int flow_names(lua_State *L)
{
    lua_newtable(L);
    fl_lua_append_op_names(L, FL_LUA_FLOW);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    for (int i = 0; i < PUBLIC_MODULES; i++) {
        lua_pushstring(L, public_modules[i]);
        lua_rawseti(L, -2, ++n);
    }
    for (int i = 0; i < BORROWED; i++) {
        lua_pushstring(L, borrowed[i].name);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* __index and __newindex of tensors, with the metatable and the methods at hand. */
static void set_indexing(lua_State *L, int metatable, int methods)
{
    static const luaL_Reg functions[] = {{"__index", fl_lua_index}, {"__newindex", fl_lua_newindex}, {NULL, NULL}};
    lua_pushvalue(L, metatable);
    lua_pushvalue(L, metatable);
    lua_pushvalue(L, methods);
    luaL_setfuncs(L, functions, 2);
    lua_pop(L, 1);
    lua_pushcfunction(L, fl_lua_tostring);
    lua_setfield(L, metatable, "__tostring");
}

static const char instance; /* its address: the flow table's key in the registry */

bool fl_lua_push_flow(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &instance) == LUA_TTABLE) return true;
    lua_pop(L, 1);
    return false;
}

/* Of a process that ends well: the other ranks are waited for. One that does not is ended by its launcher with the
** whole job. */
static void leave_ranks(int code, void *context)
{
    if (code == EXIT_SUCCESS) fl_launch_leave_host();
}

/* The world that the environment describes. A process of another program joins the ranks that its launcher started. */
static fl_status enter_world(void)
{
    static bool entered;
    FL_TRY(fl_world_init());
    FL_TRY(fl_fault_init());
    if (entered || fl_lua_own_process || fl_world_get()->size > 1 || fl_tensor_count()) return FL_OK;
    FL_TRY(fl_launch_join_module());
    fl_world_changed();
    entered = true;
    if (fl_comm_get()) on_exit(leave_ranks, NULL);
    return FL_OK;
}

enum { MANY = 256 }; /* functions, and methods: no table grows while they are stored */

static const struct {
    const char *name;
    double value;
} constants[] = {{"pi", M_PI}, {"e", M_E}, {"inf", HUGE_VAL}, {"nan", NAN}};

int luaopen_flow(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &instance) != LUA_TNIL) return 1;
    lua_settop(L, 0);
    luaL_checkversion(L);
    luaL_checkstack(L, 32, "flow");
    fl_lua_instance_open(L);
    FL_CHECK(L, enter_world());
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is an error of the write, not the end of the process */
    fl_lua_embed_modules(L);
    bool collects = lua_gc(L, LUA_GCISRUNNING);
    lua_gc(L, LUA_GCSTOP); /* all that is made here stays */
    lua_createtable(L, 0, MANY);
    lua_createtable(L, 0, MANY);
    fl_lua_open_scopes(L);
    fl_lua_open_box(L);
    int flow = 1, methods = 2, metatable = 3;
    fl_lua_open_ops(L, flow);
    fl_lua_open_operators(L, metatable);
    fl_lua_open_fields(L, methods);
    fl_lua_open_values(L, flow, methods);
    fl_lua_open_bytes(L, flow, methods);
    fl_lua_open_dlpack(L, flow, methods);
    fl_lua_open_methods(L, flow, methods);
    fl_lua_open_grad(L, flow, methods);
    fl_lua_open_function(L, flow);
    fl_lua_open_recompute(L, flow);
    fl_lua_open_runtime(L, flow);
    fl_lua_open_push(L, flow);
    fl_lua_open_placement(L, flow);
    fl_lua_open_generator(L, flow);
    fl_lua_open_device(L, flow);
    fl_lua_open_help(L, flow);
    fl_lua_open_explain(L, flow);
    fl_lua_open_capture(L, flow);
    fl_lua_open_trace(L, flow);
    fl_lua_open_plan(L, flow);
    fl_lua_open_own_ops(L, flow);
    fl_lua_open_messages(L, flow);
    set_indexing(L, metatable, methods);
    lua_pushliteral(L, FL_VERSION);
    lua_setfield(L, flow, "version");
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        lua_pushnumber(L, constants[i].value);
        lua_setfield(L, flow, constants[i].name);
    }
    lua_pushliteral(L, "newaxis"); /* in an index: an axis of size 1 */
    lua_setfield(L, flow, "newaxis");
    fl_lua_open_later_methods(L, methods);
    lua_pushvalue(L, methods);
    lua_setfield(L, flow, "_methods");
    lua_settop(L, flow);
    fl_lua_set_op_members(L, flow_index, flow_names, FL_LUA_FLOW);
    lua_pushvalue(L, flow);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &instance);
    if (collects) lua_gc(L, LUA_GCRESTART);
    return 1;
}

/* require "flow.nn" in another program than flowlua, before flow itself was required: found in flow.so by this name. */
#define OPEN(name)                                   \
    FL_EXPORT int luaopen_flow_##name(lua_State *L); \
    int luaopen_flow_##name(lua_State *L)            \
    {                                                \
        luaL_requiref(L, "flow", luaopen_flow, 0);   \
        fl_lua_push_module(L, #name);                \
        return 1;                                    \
    }
PUBLIC(OPEN)
