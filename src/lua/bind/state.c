/*
** state.c -- the Lua state: its collector driven by tensor bytes, interrupts, the core's hooks.
**
** Lua's collector does not see the bytes of tensors, so it is told: generational mode, a young
** collection for every 64 MiB allocated, and a full one when the live bytes exceed twice what the last
** full one left (young ones alone leak what outlives two of them).
*/
#include "binding.h"
#include "core/process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { FULL_MINIMUM = 64 << 20 };

/* ---- values to drop when Lua may be called again ---- */

int fl_lua_late;
static int *late_refs;
static int late_capacity;

void fl_lua_unref_later(int ref)
{
    if (fl_lua_late == late_capacity) {
        int capacity = late_capacity ? 2 * late_capacity : 16;
        int *grown = realloc(late_refs, sizeof *grown * (size_t)capacity);
        if (!grown) return; /* the value stays alive: no harm */
        late_refs = grown;
        late_capacity = capacity;
    }
    late_refs[fl_lua_late++] = ref;
}

void fl_lua_drop_late(lua_State *L)
{
    while (fl_lua_late > 0) luaL_unref(L, LUA_REGISTRYINDEX, late_refs[--fl_lua_late]);
}

/* ---- the collector ---- */

static int64_t live_after_full;

static void collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT);
    live_after_full = fl_storage_live > FULL_MINIMUM ? fl_storage_live : FULL_MINIMUM;
    fl_storage_unaccounted = 0;
}

void fl_lua_collect_step(lua_State *L)
{
    if (live_after_full == 0) live_after_full = FULL_MINIMUM;
    if (fl_storage_live > 2 * live_after_full) collect_all(L);
    else {
        lua_gc(L, LUA_GCSTEP, 0);
        fl_storage_unaccounted = 0;
    }
}

/* ---- hooks of the core ---- */

static void collect_hook(void)
{
    if (fl_lua_current) collect_all(fl_lua_current);
}

static void where_hook(char *buffer, size_t size) { fl_lua_where(fl_lua_current, buffer, size); }

/* ---- interrupts ---- */

bool fl_lua_in_session;
void (*fl_lua_pass_interrupt)(void);
static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t in_call;
static volatile int64_t pressed; /* milliseconds: when Ctrl-C came first; 0: not in this call */
static bool raised;              /* during the call that runs */
static lua_State *interrupt_state;

/* Among several ranks: how long Lua code goes on after Ctrl-C, to stop in a collective with all others, and after how
** long a second Ctrl-C ends a program that does not stop. */
enum { AGREE_MS = 300, PATIENCE_MS = 3000 };

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
}

bool fl_lua_interrupt_asked(void) { return interrupted != 0; }

bool fl_lua_interrupted(void) { return interrupted && (!fl_lua_pass_interrupt || milliseconds() - pressed > AGREE_MS); }

static void stop_hook(lua_State *L, lua_Debug *ar)
{
    lua_getinfo(L, "S", ar);
    if (raised && fl_lua_is_own(ar)) return; /* our modules put right what an error left behind */
    if (!raised && !fl_lua_interrupted()) return;
    fl_lua_interrupt_raised();
    lua_pushliteral(L, "interrupted!"); /* as lua says it: no line, the traceback tells */
    lua_error(L);
}

static void on_signal(int number)
{
    signal(number, SIG_DFL); /* a second Ctrl-C ends a program that does not stop */
    interrupted = 1;
    if (interrupt_state)
        lua_sethook(interrupt_state, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

/* In a session over several ranks, also while this rank waits for the others. */
static void on_signal_together(int number)
{
    int saved = errno;
    int64_t now = milliseconds();
    if (!pressed) pressed = now;
    if (now - pressed > PATIENCE_MS) kill(getpid(), SIGTERM); /* told as Ctrl-C by failure.c */
    fl_lua_pass_interrupt();
    if (in_call) {
        interrupted = 1;
        if (interrupt_state) lua_sethook(interrupt_state, stop_hook, LUA_MASKCOUNT, 1);
    }
    errno = saved;
}

/* Handlers run on a stack of their own: oneDNN's generated products keep data further below the stack pointer than the
** 128 bytes that a signal's frame spares. */
static void use_signal_stack(void)
{
    static char stack[64 << 10];
    stack_t now;
    if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
}

void fl_lua_interrupt_arm(lua_State *L)
{
    struct sigaction action = {.sa_handler = fl_lua_pass_interrupt ? on_signal_together : on_signal,
                               .sa_flags = SA_RESTART | SA_ONSTACK};
    if (L) interrupt_state = L;
    interrupted = 0;
    in_call = 1;
    use_signal_stack();
    sigaction(SIGINT, &action, NULL);
}

void fl_lua_interrupt_disarm(void)
{
    in_call = 0;
    if (!fl_lua_pass_interrupt) signal(SIGINT, SIG_DFL);
    interrupted = 0;
    if (interrupt_state && lua_gethook(interrupt_state) == stop_hook) lua_sethook(interrupt_state, NULL, 0, 0);
}

void fl_lua_interrupt_raised(void)
{
    bool to_the_end = raised || fl_lua_in_session;
    fl_lua_interrupt_disarm();
    fl_lua_interrupt_arm(NULL);
    raised = true;
    if (to_the_end && interrupt_state) lua_sethook(interrupt_state, stop_hook, LUA_MASKCOUNT, 1);
}

/* ---- another rank asks where the script is ---- */

static void line_hook(lua_State *L, lua_Debug *ar)
{
    lua_sethook(L, NULL, 0, 0);
    fl_lua_where(L, fl_journal_own->line, sizeof fl_journal_own->line);
    __atomic_add_fetch(&fl_journal_own->answers, 1, __ATOMIC_RELEASE);
}

static void on_question(int number)
{
    if (!interrupt_state || lua_gethook(interrupt_state)) return;
    lua_sethook(interrupt_state, line_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

void fl_lua_answer_questions(void)
{
    use_signal_stack();
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_question, .sa_flags = SA_RESTART | SA_ONSTACK}, NULL);
    fl_journal_own->listens = true;
}

bool fl_lua_was_interrupted(void) { return raised; }

/* ---- calls ---- */

/* Adds the traceback to a message; an error object that has a text gives only that. */
static int traceback(lua_State *L)
{
    const char *message = lua_tostring(L, 1);
    if (!message) {
        if (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING) return 1;
        message = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    if (fl_lua_in_script(L)) luaL_traceback(L, L, message, 1); /* not of the session, printing a value */
    return 1;
}

int fl_lua_protected_call(lua_State *L, int nargs, int nresults)
{
    int base = lua_gettop(L) - nargs;
    lua_pushcfunction(L, traceback);
    lua_insert(L, base);
    fl_lua_interrupt_arm(L);
    raised = false;
    pressed = 0;
    int status = lua_pcall(L, nargs, nresults, base);
    fl_lua_interrupt_disarm();
    lua_remove(L, base);
    return status;
}

/* ---- making and closing ---- */

static int panic(lua_State *L)
{
    const char *message = lua_tostring(L, -1);
    lua_writestringerror("PANIC: unprotected error in call to Lua API (%s)\n",
                         message ? message : "error object is not a string");
    return 0;
}

/* Warnings of `warn`, switched by "@on" and "@off" as in lua.c. */
static bool warnings_on;
static void warn(void *context, const char *message, int to_continue)
{
    static bool continuing;
    if (!continuing && !to_continue && *message == '@') {
        if (strcmp(message, "@off") == 0) warnings_on = false;
        else if (strcmp(message, "@on") == 0) warnings_on = true;
        return;
    }
    if (warnings_on) {
        if (!continuing) lua_writestringerror("%s", "Lua warning: ");
        lua_writestringerror("%s", message);
        if (!to_continue) lua_writestringerror("%s", "\n");
    }
    continuing = to_continue;
}

#ifdef __SANITIZE_ADDRESS__
static void *plain_alloc(void *context, void *block, size_t old_size, size_t new_size)
{
    if (new_size) return realloc(block, new_size);
    free(block);
    return NULL;
}
#define STATE_ALLOC plain_alloc
#else
#define STATE_ALLOC fl_heap_alloc
#endif

lua_State *fl_lua_new_state(void)
{
    lua_State *L = lua_newstate(STATE_ALLOC, NULL);
    if (!L) return NULL;
    lua_atpanic(L, panic);
    lua_setwarnf(L, warn, NULL);
    fl_lua_current = L;
    fl_storage_collect = collect_hook;
    fl_engine_where = where_hook;
    fl_engine_interrupted = fl_lua_interrupted;
    fl_comm_stopping = fl_lua_interrupt_asked;
    return L;
}

void fl_lua_close_state(lua_State *L)
{
    fl_lua_drop_late(L);
    fl_storage_collect = NULL;
    fl_engine_where = NULL;
    fl_engine_interrupted = NULL;
    fl_comm_stopping = NULL;
    fl_lua_current = NULL;
    lua_close(L);
}
