/*
** instance.c -- which lua_State runs, and what ends with it.
**
** The core belongs to one thread of the system (base/owner.h). fl_lua_current is a variable of each thread, so the one
** comparison of fl_lua_enter also finds a call from a wrong one.
*/
#include "core/process.h"
#include "errors.h"
#include "instance.h"
#include "members.h"
#include "state.h"
#include "tensors.h"

#include <stdlib.h>

_Thread_local lua_State *fl_lua_current;
fl_lua_instance *fl_lua_running;
bool fl_lua_own_process;

static fl_lua_instance *instances;          /* whose states are open */
static bool took_thread;                    /* this one is the core's owner because of the states */
static const char instance_key, thread_key; /* registry: the instance's userdata; the thread that arrived last */

/* ---- whose settings are in force ---- */

void fl_lua_change(fl_lua_instance *to)
{
    static const uintptr_t usual[FL_SETTINGS] = {
        [FL_SETTING_RECORDING] = true, [FL_SETTING_SYNCING] = true, [FL_SETTING_DTYPE] = FL_FLOAT32};
    for (int i = 0; i < FL_SETTINGS; i++) {
        if (fl_lua_running) fl_lua_running->settings[i] = fl_lua_setting(i);
        fl_lua_setting_set(i, to ? to->settings[i] : usual[i]);
    }
    fl_lua_running = to;
}

/* The name of the running state's recording, which would take in ops of another state; NULL: none. */
static const char *records(void)
{
    if (fl_program_is_recording() || fl_pieces_is_running()) return "flow.capture";
    if (fl_tracer_now) return "flow.trace";
    if (fl_recompute_is_running()) return "flow.checkpoint";
    return fl_infer_observer ? "flow.explain" : NULL;
}

/* Raised without the core, which may not be called. */
static int refuse(lua_State *L, const char *message)
{
    lua_Debug ar;
    if (fl_lua_find_line(L, &ar) && !fl_lua_is_own(&ar)) lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
    else lua_pushliteral(L, "");
    lua_pushstring(L, message);
    lua_concat(L, 2);
    return lua_error(L);
}

static void check_thread(lua_State *L)
{
    if (fl_owner_is_known() && !fl_owner_is_here())
        refuse(L,
               "flow: called on another thread than the one that required it first; all lua_States of a process "
               "that use flow run on one thread");
}

static fl_lua_instance *instance_of(lua_State *L)
{
    luaL_checkstack(L, 4, "flow");
    fl_lua_instance **handle = lua_rawgetp(L, LUA_REGISTRYINDEX, &instance_key) == LUA_TUSERDATA ? lua_touserdata(L, -1)
                                                                                                 : NULL;
    lua_pop(L, 1);
    return handle ? *handle : NULL;
}

/* A thread that ended must not be taken for another one that lies where it lay: the registry keeps it. */
void fl_lua_hold(lua_State *L)
{
    if (lua_pushthread(L)) lua_pop(L, 1);
    else lua_rawsetp(L, LUA_REGISTRYINDEX, &thread_key);
    fl_lua_current = L;
}

void fl_lua_arrive(lua_State *L)
{
    check_thread(L);
    if (fl_tensors_released) fl_tensors_reclaim();
    fl_lua_instance *instance = instance_of(L);
    if (!instance) refuse(L, "flow: this lua_State is being closed");
    if (instance != fl_lua_running) {
        const char *what = fl_lua_running ? records() : NULL;
        if (what)
            refuse(L,
                   lua_pushfstring(L,
                                   "flow: another lua_State is inside %s, which would record what this one "
                                   "computes; call it before or after",
                                   what));
        fl_lua_change(instance);
    }
    fl_lua_turn_to(L);
    fl_lua_hold(L);
}

lua_State *fl_lua_thread_of(fl_lua_instance *instance)
{
    return instance == fl_lua_running && fl_lua_current ? fl_lua_current : instance->main;
}

/* ---- values to drop when Lua may be called again ---- */

int fl_lua_late;
static struct late {
    fl_lua_instance *instance; /* a reference */
    int ref;
} * late;
static int late_capacity;

void fl_lua_unref_later(fl_lua_instance *instance, int ref)
{
    if (fl_lua_late == late_capacity) {
        int capacity = late_capacity ? 2 * late_capacity : 16;
        struct late *grown = realloc(late, sizeof *grown * (size_t)capacity);
        if (!grown) { /* the value stays alive: no harm */
            fl_lua_instance_unref(instance);
            return;
        }
        late = grown;
        late_capacity = capacity;
    }
    late[fl_lua_late++] = (struct late){instance, ref};
}

void fl_lua_drop_late(void)
{
    while (fl_lua_late > 0) {
        struct late l = late[--fl_lua_late];
        lua_State *L = fl_lua_thread_of(l.instance);
        if (L && lua_checkstack(L, 4)) luaL_unref(L, LUA_REGISTRYINDEX, l.ref);
        fl_lua_instance_unref(l.instance);
    }
    if (instances) return;
    free(late);
    late = NULL;
    late_capacity = 0;
}

/* ---- hooks of the core ---- */

/* Collects in every state. */
static void collect_states(void)
{
    lua_State *L = fl_lua_current;
    fl_lua_instance *running = fl_lua_running;
    for (fl_lua_instance *i = instances; i; i = i->next)
        if (i != running) lua_gc(i->main, LUA_GCCOLLECT); /* a finalizer there may compute */
    fl_lua_enter(L);
    fl_lua_collect_all(L);
}

static void collect_hook(void)
{
    if (fl_lua_current) collect_states();
}

enum {
    FULL_FROM = 16
}; /* a full collection takes less than a tenth of computing so many times the bytes of Lua's heap */

/* Collects deferred results without references, which need not be computed. A young collection leaves those that
** outlived two of them. */
static void collect_deferred_hook(int64_t bytes)
{
    lua_State *L = fl_lua_current;
    if (!L || !lua_gc(L, LUA_GCISRUNNING)) return;
    if (bytes == 0) fl_lua_collect_step(L);
    else if (bytes / FULL_FROM > (int64_t)lua_gc(L, LUA_GCCOUNT) << 10) fl_lua_collect_all(L);
}

static void where_hook(char *buffer, size_t size) { fl_lua_where(fl_lua_current, buffer, size); }

static void set_hooks(bool on)
{
    fl_storage_collect = on ? collect_hook : NULL;
    fl_chain_collect = on ? collect_deferred_hook : NULL;
    fl_engine_where = on ? where_hook : NULL;
}

/* ---- opening and closing ---- */

fl_lua_instance *fl_lua_instance_ref(fl_lua_instance *instance)
{
    instance->owners++;
    return instance;
}

void fl_lua_instance_unref(fl_lua_instance *instance)
{
    if (instance && --instance->owners == 0) free(instance);
}

/* Of a process that is not flowlua's: it may go on without any state. An error that no state has met is reported. */
static void end_engine(void)
{
    if (fl_engine_end(false) != FL_OK) fl_warn("an error that nobody has met: %s", fl_message());
    if (fl_engine_stop()) {
        fl_lua_worker_close();
        fl_pool_stop();
        fl_team_stop();
    }
    fl_engine_end(false); /* cancelled work is no error of the next state */
}

/* The state is being closed. Its tensors may go later, its hooks are never called again. */
static int instance_gc(lua_State *L)
{
    fl_lua_instance **handle = lua_touserdata(L, 1), *instance = *handle;
    if (!instance) return 0;
    *handle = NULL;
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &instance_key);
    if (instance == fl_lua_running) {
        fl_lua_change(NULL);
        fl_lua_current = NULL;
    }
    instance->main = NULL;
    fl_lua_calls_free(instance->calls);
    instance->calls = NULL;
    fl_lua_instance **at = &instances;
    while (*at != instance) at = &(*at)->next;
    *at = instance->next;
    fl_heap_states(instance->own_heap, -1);
    if (!instances) {
        set_hooks(false);
        if (!fl_lua_own_process) end_engine();
        if (took_thread) fl_owner_drop();
        took_thread = false;
    }
    fl_lua_drop_late();
    fl_lua_instance_unref(instance);
    return 0;
}

void fl_lua_instance_open(lua_State *L)
{
    void *context;
    check_thread(L);
    if (instance_of(L)) {
        fl_lua_enter(L);
        return;
    }
    fl_lua_instance **handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = NULL;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, instance_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    fl_lua_instance *instance = calloc(1, sizeof *instance);
    if (!instance) luaL_error(L, "flow: out of memory");
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    *instance = (fl_lua_instance){
        .main = lua_tothread(L, -1),
        .owners = 1,
        .next = instances,
        .own_heap = lua_getallocf(L, &context) == fl_heap_alloc,
        .settings = {[FL_SETTING_RECORDING] = true, [FL_SETTING_SYNCING] = true, [FL_SETTING_DTYPE] = FL_FLOAT32}};
    lua_pop(L, 1);
    *handle = instance;
    lua_rawsetp(L, LUA_REGISTRYINDEX, &instance_key);
    fl_heap_states(instance->own_heap, 1);
    if (!instances) set_hooks(true);
    instances = instance;
    if (!fl_owner_is_known()) {
        fl_owner_take();
        took_thread = true;
    }
    fl_lua_enter(L);
}
