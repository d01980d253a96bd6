/*
** runtime.c -- the runtime for scripts: seeds, waiting, memory, statistics, ranks.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "tensors.h"

/* ---- seeds, waiting, statistics ---- */

static int flow_manual_seed(lua_State *L)
{
    fl_lua_check_count(L, 1, "manual_seed", "manual_seed(seed)");
    FL_CHECK(L, fl_program_refuse("the generator of random numbers is changed"));
    fl_manual_seed((uint64_t)fl_lua_check_integer(L, 1, "manual_seed", "seed"));
    return 0;
}

static int flow_sync(lua_State *L)
{
    fl_lua_check_count(L, 0, "sync", "sync()");
    fl_lua_enter(L);
    FL_CHECK(L, fl_engine_wait_all());
    return 0;
}

static void set_integer(lua_State *L, const char *name, int64_t value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

/* The figures of the device that the option names; of this process's tensors wherever they are without one. */
static void read_memory(lua_State *L, fl_memory_stats *out)
{
    static const char *const names[] = {"reset_peak", "device", NULL};
    const fl_device *d = NULL;
    const fl_placement *p = NULL;
    bool reset = false;
    if (!lua_isnoneornil(L, 1)) {
        fl_lua_check_keys(L, 1, "memory", names);
        if (lua_getfield(L, 1, "reset_peak") != LUA_TNIL && !lua_isboolean(L, -1))
            FL_RAISE(L, "memory: reset_peak must be true or false, got %s", fl_lua_type_name(L, -1));
        reset = lua_toboolean(L, -1);
        if (lua_getfield(L, 1, "device") != LUA_TNIL) p = fl_lua_check_device(L, -1, "memory");
    }
    if (p && p->type == FL_META) {
        fl_storage_meta_stats(out, reset);
        return;
    }
    if (p) FL_CHECK(L, fl_device_get(&d, p->type));
    if (d) {
        int index = fl_device_index(d, p);
        if (index >= d->count) FL_RAISE(L, "memory: there is no cuda:%d", index);
        d->memory(out, index, reset);
        return;
    }
    fl_storage_stats(out);
    if (reset) fl_storage_reset_peak();
}

/* flow.memory() -> a table of bytes; flow.memory{reset_peak = true} resets the peak after reading it;
** flow.memory{device = "cuda"}: of that device; of "meta" what its tensors would take */
static int flow_memory(lua_State *L)
{
    fl_lua_check_count(L, 1, "memory", "memory{reset_peak =, device =}");
    fl_memory_stats m;
    read_memory(L, &m);
    lua_createtable(L, 0, 9);
    set_integer(L, "live_bytes", m.live_bytes);
    set_integer(L, "peak_bytes", m.peak_bytes);
    set_integer(L, "cached_bytes", m.cached_bytes);
    set_integer(L, "limbo_bytes", m.limbo_bytes);
    set_integer(L, "live_blocks", m.live_blocks);
    set_integer(L, "allocations", m.allocations);
    set_integer(L, "system_allocations", m.system_allocations);
    set_integer(L, "tensors", fl_tensor_count());
    return 1;
}

static int engine_stats(lua_State *L)
{
    fl_lua_check_count(L, 0, "stats", "engine.stats()");
    fl_engine_stats s;
    fl_program_counts replayed;
    fl_engine_stats_get(&s);
    fl_program_counts_get(&replayed);
    lua_createtable(L, 0, 12);
    set_integer(L, "inline_ops", s.inline_ops);
    set_integer(L, "queued_ops", s.queued_ops);
    set_integer(L, "waits", s.waits);
    set_integer(L, "follows", s.follows);
    set_integer(L, "failed_ops", s.failed_ops);
    set_integer(L, "lanes", s.lanes);
    set_integer(L, "threads", s.threads);
    set_integer(L, "replayed_steps", replayed.steps);
    set_integer(L, "graphs", replayed.graphs);
    set_integer(L, "graph_recordings", replayed.recordings);
    set_integer(L, "device_collectives", fl_move_counted.direct);
    set_integer(L, "staged_collectives", fl_move_counted.staged);
    return 1;
}

static int infer_stats(lua_State *L)
{
    fl_lua_check_count(L, 0, "stats", "infer_cache.stats()");
    fl_infer_stats s;
    fl_infer_stats_get(&s);
    lua_createtable(L, 0, 3);
    set_integer(L, "hits", s.hits);
    set_integer(L, "misses", s.misses);
    set_integer(L, "size", s.size);
    return 1;
}

static int infer_clear(lua_State *L)
{
    fl_lua_check_count(L, 0, "clear", "infer_cache.clear()");
    fl_infer_clear();
    return 0;
}

static int flow_set_num_threads(lua_State *L)
{
    fl_lua_check_count(L, 1, "set_num_threads", "set_num_threads(n)");
    int64_t n = fl_lua_check_integer(L, 1, "set_num_threads", "n");
    if (n < 1 || n > 4096) FL_RAISE(L, "set_num_threads: n must be 1 to 4096, got %lld", (long long)n);
    fl_team_set_size((int)n);
    return 0;
}

static int flow_get_num_threads(lua_State *L)
{
    fl_lua_check_count(L, 0, "get_num_threads", "get_num_threads()");
    lua_pushinteger(L, fl_team_size());
    return 1;
}

static int flow_set_float32_matmul_precision(lua_State *L)
{
    fl_lua_check_count(L, 1, "set_float32_matmul_precision", "set_float32_matmul_precision(name)");
    static const char who[] = "set_float32_matmul_precision";
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    if (!name) FL_RAISE(L, "%s: takes highest, high or medium, got %s", who, fl_lua_type_name(L, 1));
    int i = 0;
    while (i < FL_PRECISION_COUNT && strcmp(name, fl_precision_names[i]) != 0) i++;
    if (i == FL_PRECISION_COUNT) FL_RAISE(L, "%s: takes highest, high or medium, got '%s'", who, name);
    fl_lua_enter(L);
    FL_CHECK(L, fl_precision_set((fl_precision)i));
    return 0;
}

static int flow_get_float32_matmul_precision(lua_State *L)
{
    fl_lua_check_count(L, 0, "get_float32_matmul_precision", "get_float32_matmul_precision()");
    lua_pushstring(L, fl_precision_names[fl_precision_get()]);
    return 1;
}

static int flow_is_tensor(lua_State *L)
{
    fl_lua_check_count(L, 1, "is_tensor", "is_tensor(value)");
    lua_pushboolean(L, fl_lua_box(L, 1) != NULL);
    return 1;
}

/* True if there is one argument, a tensor. Called by every call of a module. */
static int flow_is_one_tensor(lua_State *L)
{
    lua_pushboolean(L, lua_gettop(L) == 1 && fl_lua_box(L, 1) != NULL);
    return 1;
}

/* ---- ranks ---- */

static int flow_rank(lua_State *L)
{
    fl_lua_check_count(L, 0, "rank", "rank()");
    lua_pushinteger(L, fl_world_get()->rank);
    return 1;
}

static int flow_world_size(lua_State *L)
{
    fl_lua_check_count(L, 0, "world_size", "world_size()");
    lua_pushinteger(L, fl_world_get()->size);
    return 1;
}

static int flow_barrier(lua_State *L)
{
    fl_lua_check_count(L, 0, "barrier", "barrier()");
    if (fl_world_get()->planned) return 0; /* there are no other ranks */
    if (fl_world_get()->size == 1) return 0;
    fl_group *world;
    fl_lua_enter(L);
    fl_status status = fl_group_world(&world);
    if (status != FL_OK) fl_fail_prefix(status, "barrier: ");
    else status = fl_comm_barrier(world);
    FL_CHECK(L, status);
    return 0;
}

/* flow.on_rank(r, f, ...): the results of f on that rank, nothing on the others; f may not communicate, and its random
** numbers are not missing in the ranks' common sequence. */
static int flow_on_rank(lua_State *L)
{
    int64_t rank = fl_lua_check_integer(L, 1, "on_rank", "rank");
    int size = fl_world_get()->size;
    if (rank < 0 || rank >= size)
        FL_RAISE(L, "on_rank: there is no rank %lld, the world has %d", (long long)rank, size);
    if (!fl_lua_is_callable(L, 2)) FL_RAISE(L, "on_rank: takes a function, got %s", fl_lua_type_name(L, 2));
    if (rank != fl_world_get()->rank) return 0;
    fl_alone alone;
    fl_alone_begin(&alone, "flow.on_rank");
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
    fl_alone_end(&alone);
    if (status != LUA_OK) return lua_error(L);
    return lua_gettop(L) - 1;
}

/* print, on rank 0 alone; on the rank that runs alone, where one does. Every rank makes the texts: all of them put
** together that of a global tensor. */
static int flow_print(lua_State *L)
{
    fl_lua_refuse_colon(L);
    for (int i = 1, n = lua_gettop(L); i <= n; i++) {
        luaL_tolstring(L, i, NULL);
        lua_replace(L, i);
    }
    if (fl_agree_rank() != 0) return 0;
    lua_getglobal(L, "print");
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

void fl_lua_open_runtime(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"manual_seed", flow_manual_seed},
                                         {"sync", flow_sync},
                                         {"memory", flow_memory},
                                         {"set_num_threads", flow_set_num_threads},
                                         {"get_num_threads", flow_get_num_threads},
                                         {"set_float32_matmul_precision", flow_set_float32_matmul_precision},
                                         {"get_float32_matmul_precision", flow_get_float32_matmul_precision},
                                         {"is_tensor", flow_is_tensor},
                                         {"_is_one_tensor", flow_is_one_tensor},
                                         {"rank", flow_rank},
                                         {"world_size", flow_world_size},
                                         {"barrier", flow_barrier},
                                         {"on_rank", flow_on_rank},
                                         {"print", flow_print},
                                         {NULL, NULL}};
    static const luaL_Reg engine[] = {{"stats", engine_stats}, {NULL, NULL}};
    static const luaL_Reg cache[] = {{"stats", infer_stats}, {"clear", infer_clear}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    luaL_newlib(L, engine);
    lua_createtable(L, 0, 1);
    fl_lua_set_strict(L, "engine");
    lua_setmetatable(L, -2);
    lua_setfield(L, flow, "engine");
    luaL_newlib(L, cache);
    lua_createtable(L, 0, 1);
    fl_lua_set_strict(L, "infer_cache");
    lua_setmetatable(L, -2);
    lua_setfield(L, flow, "infer_cache");
}
