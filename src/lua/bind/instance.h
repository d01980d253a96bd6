/*
** instance.h -- the module in one lua_State: data that belong to the state and end with it.
**
** A process has any number of states, one after the other and several at once, all on one thread of the system. The
** core's settings (gradients recorded, the generator, ...) are those of the state whose code runs. Every function that
** calls the core begins with fl_lua_enter, which compares one pointer; only another thread of Lua, or of the system,
** goes on to fl_lua_arrive.
*/
#ifndef FL_LUA_INSTANCE_H
#define FL_LUA_INSTANCE_H

#include "core/script.h"

#include <lua.h>
#include <stdint.h>

/* fl_grad_enabled, fl_grad_sync, fl_generator_use, fl_lua_device, fl_anomaly_watched, fl_autocast_now,
** fl_dtype_default */
enum {
    FL_SETTING_RECORDING,
    FL_SETTING_SYNCING,
    FL_SETTING_GENERATOR,
    FL_SETTING_DEVICE,
    FL_SETTING_ANOMALY,
    FL_SETTING_AUTOCAST,
    FL_SETTING_DTYPE,
    FL_SETTINGS
};

/* Those that a coroutine's scopes set. A userdata whose user value is the innermost scope with a generator, which it
** keeps alive. */
typedef struct fl_lua_settings {
    unsigned own; /* a bit each */
    uintptr_t value[FL_SETTINGS];
} fl_lua_settings;

/* The running coroutine since it was resumed. */
typedef struct fl_lua_turn {
    uint64_t number;
    lua_State *coroutine;         /* NULL: the main program */
    fl_lua_settings *settings;    /* NULL: it has opened no scope yet */
    uintptr_t outer[FL_SETTINGS]; /* in force where it was resumed */
} fl_lua_turn;

/* The state of a coroutine that waits while another one runs. */
typedef struct fl_lua_waiting {
    fl_lua_turn turn;
    fl_lua_settings settings;     /* as they were */
    uintptr_t value[FL_SETTINGS]; /* in force */
} fl_lua_waiting;

/* op_call.c: the calls of functions of ops. */
typedef struct fl_lua_calls fl_lua_calls;
void fl_lua_calls_free(fl_lua_calls *calls);

typedef struct fl_lua_instance {
    lua_State *main;                 /* NULL: the state is closed */
    int owners;                      /* the state, and owners of references to values in its registry */
    bool own_heap;                   /* its memory is from fl_heap_alloc */
    uintptr_t settings[FL_SETTINGS]; /* in force in it, while code of another state runs */
    fl_lua_turn now;
    uint64_t turns;
    bool any_coroutine; /* one has opened a scope */
    bool visited;       /* now: of a thread that was not resumed by coroutine.resume; `below` waits for its end */
    fl_lua_waiting below;
    fl_lua_calls *calls; /* owned */
    struct fl_lua_instance *next;
} fl_lua_instance;

/* The thread of Lua that called into the core last: hooks of the core look at its stack. NULL on other threads of the
** system. It cannot be collected. */
FL_OWN extern _Thread_local lua_State *fl_lua_current;

/* The instance whose settings are in force; NULL: no state is open. */
FL_OWN extern fl_lua_instance *fl_lua_running;

/* The state of L becomes the one that runs. Raises on a wrong thread of the system, and where another state is inside a
** function that is recorded. */
void fl_lua_arrive(lua_State *L);
static inline void fl_lua_enter(lua_State *L)
{
    if (FL_UNLIKELY(fl_lua_current != L)) fl_lua_arrive(L);
}

/* The instance of L's state, made when there is none. */
void fl_lua_instance_open(lua_State *L);

/* The thread to call functions of the instance in; NULL: its state is closed. */
lua_State *fl_lua_thread_of(fl_lua_instance *instance);
fl_lua_instance *fl_lua_instance_ref(fl_lua_instance *instance);
void fl_lua_instance_unref(fl_lua_instance *instance);

/* For hooks of the core: calls f(context) in the instance's state, where an error of Lua's becomes one of the core
** (fl_lua_caught), FL_ERR_VALUE. The state that ran before runs again afterwards. who: for messages. */
fl_status fl_lua_call_below(fl_lua_instance *instance, const char *who, lua_CFunction f, void *context);

/* Unrefs a value of the instance's registry later, at a moment when Lua may be called (inside a collection it may
** not), and gives the reference to the instance back. */
void fl_lua_unref_later(fl_lua_instance *instance, int ref);
void fl_lua_drop_late(void);
FL_OWN extern int fl_lua_late; /* values waiting for that */

/* The settings in force become those of this instance. */
void fl_lua_change(fl_lua_instance *to);
/* True in the program flowlua. False: another program, which ends its own process, has embedded Lua. */
extern bool fl_lua_own_process;

/* L, of the state that runs, becomes fl_lua_current. */
void fl_lua_hold(lua_State *L);
/* scope.c: L, of the state that runs, is the thread whose code runs. */
void fl_lua_turn_to(lua_State *L);
/* The core's settings, read and set. */
uintptr_t fl_lua_setting(int which);
void fl_lua_setting_set(int which, uintptr_t value);

#endif
