/*
** interrupt.c -- Ctrl-C stops the Lua code that runs, and another rank can have its line written.
**
** A signal handler may not call Lua but may set a hook: the hook then runs at the next instruction, where raising and
** reading the line are safe.
*/
#include "core/process.h"
#include "errors.h"
#include "state.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

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

static int64_t milliseconds(void) { return (int64_t)(fl_now() / 1000000) + 1; }

bool fl_lua_interrupt_asked(void) { return interrupted != 0; }

bool fl_lua_interrupted(void) { return interrupted && (!fl_lua_pass_interrupt || milliseconds() - pressed > AGREE_MS); }

/* Events that run the hook: a new line, a jump back; an instruction, for code that has no lines. */
enum { MOMENTS = LUA_MASKLINE | LUA_MASKCOUNT };

/* Nothing is raised within a line, or as a C function is called: `local _ <close> = flow.no_grad()` is done as a whole,
** and its scope is closed. */
static void stop_hook(lua_State *L, lua_Debug *ar)
{
    lua_getinfo(L, "Sl", ar);
    if (ar->event == LUA_HOOKCOUNT && ar->currentline >= 0) return;
    if (raised && fl_lua_is_own(ar)) return; /* our modules put right what an error left behind */
    if (!raised && !fl_lua_interrupted()) return;
    fl_lua_interrupt_raised();
    lua_pushliteral(L, "interrupted!"); /* as in lua: no line, the traceback has it */
    lua_error(L);
}

static void on_signal(int number)
{
    signal(number, SIG_DFL); /* a second Ctrl-C ends a program that does not stop */
    interrupted = 1;
    if (interrupt_state) lua_sethook(interrupt_state, stop_hook, MOMENTS, 1);
}

/* In a session over several ranks, also while this rank waits for the others. */
static void on_signal_together(int number)
{
    int saved = errno;
    int64_t now = milliseconds();
    if (!pressed) pressed = now;
    if (now - pressed > PATIENCE_MS) kill(getpid(), SIGTERM); /* reported as Ctrl-C by failure.c */
    fl_lua_pass_interrupt();
    if (in_call) {
        interrupted = 1;
        if (interrupt_state) lua_sethook(interrupt_state, stop_hook, MOMENTS, 1);
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

void fl_lua_interrupt_begin(lua_State *L)
{
    fl_lua_interrupt_arm(L);
    raised = false;
    pressed = 0;
}

void fl_lua_interrupt_raised(void)
{
    bool to_the_end = raised || fl_lua_in_session;
    fl_lua_interrupt_disarm();
    fl_lua_interrupt_arm(NULL);
    raised = true;
    if (to_the_end && interrupt_state) lua_sethook(interrupt_state, stop_hook, MOMENTS, 1);
}

bool fl_lua_was_interrupted(void) { return raised; }

/* ---- the script's line, queried by another rank ---- */

static void line_hook(lua_State *L, lua_Debug *ar)
{
    lua_sethook(L, NULL, 0, 0);
    fl_lua_where(L, fl_journal_own->line, sizeof fl_journal_own->line);
    __atomic_add_fetch(&fl_journal_own->answers, 1, __ATOMIC_RELEASE);
}

static void on_question(int number)
{
    if (!interrupt_state || lua_gethook(interrupt_state)) return;
    lua_sethook(interrupt_state, line_hook, MOMENTS, 1);
}

void fl_lua_answer_questions(void)
{
    use_signal_stack();
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_question, .sa_flags = SA_RESTART | SA_ONSTACK}, NULL);
    fl_journal_own->listens = true;
}
