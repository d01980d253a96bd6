/*
** failure.c -- the end of a job of several ranks, reported once.
**
** A rank that fails first claims to be the reporter, then writes into its journal that it has failed; so a rank that
** fails because of that (its collective ends with an error) finds the claim taken and is silent. The reporter gives the
** others a moment: ranks that fail with the same words are reported together, and a rank that was killed is the better
** report. Then it ends the job, before anything that could wait for other ranks.
**
** The launcher ends the other ranks by SIGTERM. A rank that gets it looks for one that died without a report, and
** reports that if no other rank has.
**
** Code in a signal handler touches journals and the stack alone: read, write, and snprintf of texts and whole numbers,
** which in the usual C libraries takes no lock and no memory.
*/
#define _GNU_SOURCE
#include "comm.h"
#include "engine/control.h"
#include "failure.h"
#include "journal.h"
#include "shared.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    GRACE_MS = 500,      /* for the others to fail with the same words */
    HEAD_START_MS = 300, /* of each rank before the next, without journals of each other: both may report the same */
    HEAD_START_MOST_MS = 1500,
    PATIENCE_MS = 3000 /* until a reporter must have reported, and the launcher have ended this rank */
};

enum { UNREPORTED, REPORTING, REPORTED }; /* journal->reported */

static struct {
    bool on;
    const char *program; /* borrowed */
    pthread_t script;    /* the script's thread */
    int pid;
} watch = {.program = "flowlua"};

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000l}, NULL); }

static int my_rank(void) { return fl_world_get()->rank; }

static int state_of(const fl_journal *journal) { return __atomic_load_n(&journal->state, __ATOMIC_ACQUIRE); }

/* ---- the reporter ---- */

static int reported(void) { return __atomic_load_n(&fl_journal_first()->reported, __ATOMIC_ACQUIRE); }

/* The first rank of this host to call this is the reporter; another one once that has died before it reported. */
static bool claim(void)
{
    int32_t me = my_rank() + 1, *reporter = &fl_journal_first()->reporter,
            was = __atomic_load_n(reporter, __ATOMIC_ACQUIRE);
    if (was == me) return true;
    if (was && (reported() != UNREPORTED || !fl_rank_is_dead(was - 1))) return false;
    return __atomic_compare_exchange_n(reporter, &was, me, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* ---- stories ---- */

enum { HEAD_BYTES = 256, LINE_BYTES = HEAD_BYTES + FL_RANK_PLACE_TEXT + 1024 };

static void write_all(const char *text)
{
    size_t length = strlen(text);
    for (ssize_t n; length > 0 && (n = write(STDERR_FILENO, text, length)) > 0; length -= (size_t)n) text += n;
}

/* "flowlua: rank 2: train.lua:31: attempt to ...", and what follows it. Only the first is reported. */
static void tell(const char *head, const char *message, const char *details)
{
    char line[LINE_BYTES];
    int32_t unreported = UNREPORTED, *state = &fl_journal_first()->reported;
    if (!__atomic_compare_exchange_n(state, &unreported, REPORTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    const char *pieces[] = {watch.program, ": ", head, message, "\n"};
    bool fits = (size_t)snprintf(line, sizeof line, "%s: %s%s\n", watch.program, head, message) < sizeof line;
    if (fits) write_all(line); /* in one piece */
    for (size_t i = 0; !fits && i < sizeof pieces / sizeof *pieces; i++) write_all(pieces[i]);
    if (details) write_all(details);
    __atomic_store_n(state, REPORTED, __ATOMIC_RELEASE);
}

enum { KILLED_CODE = 128 + SIGKILL };

/* A rank of this host that ended without a word: -1 when there is none. */
static int find_killed(void)
{
    for (int r = 0; r < fl_world_get()->started; r++) {
        const fl_journal *j = fl_journal_of(r);
        /* in this order: a rank that is about to stop writes that before it dies */
        if (j && r != my_rank() && fl_rank_is_dead(r) && state_of(j) == FL_RANK_RUNNING) return r;
    }
    return -1;
}

static void tell_killed(int rank)
{
    char where[FL_RANK_PLACE_TEXT], head[HEAD_BYTES];
    snprintf(head, sizeof head, "rank %d was killed (SIGKILL? out of memory?)", rank);
    tell(head, fl_rank_place_text(where, fl_journal_of(rank)), NULL);
}

static bool says_the_same(int rank)
{
    const fl_journal *j = fl_journal_of(rank);
    return j && state_of(j) == FL_RANK_FAILED && strcmp(j->message, fl_journal_own->message) == 0;
}

/* "all ranks", "ranks 0, 2", "rank 2": those that fail with this rank's message. */
static void name_ranks(char *head)
{
    int size = fl_world_get()->started, count = 1, added = 0, n;
    for (int r = 0; r < size; r++) count += r != my_rank() && says_the_same(r);
    n = snprintf(head, HEAD_BYTES, count == size ? "all ranks" : count > 1 ? "ranks " : "rank ");
    for (int r = 0; r < size && count < size && n < HEAD_BYTES; r++)
        if (r == my_rank() || says_the_same(r))
            n += snprintf(head + n, (size_t)(HEAD_BYTES - n), added++ ? ", %d" : "%d", r);
}

/* Reports this rank's failure: the text of its journal, or in full. */
static void tell_own(const char *message, const char *details)
{
    char head[HEAD_BYTES];
    name_ranks(head);
    tell(head, message, details);
}

/* ---- failing ---- */

/* From here on this rank's journal shows the others that it has failed. */
static void note_failure(void) { __atomic_store_n(&fl_journal_own->state, FL_RANK_FAILED, __ATOMIC_RELEASE); }

/* True if the rank may still fail, or report more. */
static bool is_open(int rank)
{
    const fl_journal *j = fl_journal_of(rank);
    if (!j || rank == my_rank()) return false;
    int state = state_of(j);
    return state == FL_RANK_STARTING || (state == FL_RANK_RUNNING && !fl_rank_is_dead(rank));
}

static bool some_are_open(void)
{
    for (int r = 0; r < fl_world_get()->started; r++)
        if (is_open(r)) return true;
    return false;
}

static void give_grace(void)
{
    int first = fl_journal_first()->rank, head_start = first * HEAD_START_MS;
    if (head_start > HEAD_START_MOST_MS) head_start = HEAD_START_MOST_MS;
    for (int ms = 0; ms < head_start || (ms < GRACE_MS && some_are_open()); ms += 2) pause_ms(2);
}

static _Noreturn void leave(int code)
{
    fl_comm_abort(code);
    _exit(code);
}

/* Another rank reports, and ends this one; if it cannot, this rank does. */
static void await_reporter(void)
{
    for (int ms = 0; ms < PATIENCE_MS && reported() != REPORTED; ms += 2) pause_ms(2);
    for (int ms = 0; ms < PATIENCE_MS && reported() == REPORTED; ms += 2) pause_ms(2);
}

static bool all_say_the_same(void)
{
    for (int r = 0; r < fl_world_get()->started; r++)
        if (r != my_rank() && !says_the_same(r)) return false;
    return true;
}

/* Ends the job; the journal's message is written. */
static _Noreturn void end(int code, const char *message, const char *details, bool quiet_when_all)
{
    bool reporter = claim();
    note_failure();
    fflush(stdout);
    if (reporter) give_grace();
    else await_reporter();
    int killed = find_killed();
    if (killed >= 0) {
        tell_killed(killed);
        code = KILLED_CODE; /* as mpirun gives it, which finds the killed rank first */
    } else if (quiet_when_all && all_say_the_same())
        __atomic_store_n(&fl_journal_first()->reported, REPORTED, __ATOMIC_RELEASE);
    else tell_own(message, details);
    leave(code);
}

_Noreturn void fl_failure_end(int code, const char *message, const char *details)
{
    char *whole = malloc(strlen(message) + 3);
    snprintf(fl_journal_own->message, sizeof fl_journal_own->message, ": %s", message);
    if (whole) sprintf(whole, ": %s", message);
    end(code, whole ? whole : fl_journal_own->message, details, false);
}

/* "called os.exit(3) at train.lua:44" */
static void word_exit(const char *what)
{
    char where[FL_WHERE_TEXT] = "";
    if (fl_engine_where) fl_engine_where(where, sizeof where);
    snprintf(fl_journal_own->message, sizeof fl_journal_own->message, " %s%s%s", what, where[0] ? " at " : "", where);
}

_Noreturn void fl_failure_exit(int code)
{
    char what[32];
    snprintf(what, sizeof what, "called os.exit(%d)", code);
    word_exit(what);
    end(code, fl_journal_own->message, NULL, true);
}

void fl_failure_none(void) { __atomic_store_n(&fl_journal_own->state, FL_RANK_ENDED, __ATOMIC_RELEASE); }

/* Some library ends the process. */
static void on_exit_call(void)
{
    if (!watch.on || getpid() != watch.pid || state_of(fl_journal_own) != FL_RANK_RUNNING) return;
    word_exit("called exit");
    end(EXIT_FAILURE, fl_journal_own->message, NULL, false);
}

/* ---- signals ---- */

static const struct crash {
    int number;
    const char *name;
} crashes[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}};
enum { CRASHES = sizeof crashes / sizeof *crashes };

/* Ends the process as the signal does by default: core file, exit status. */
static void die_of(int number)
{
    sigset_t set;
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(128 + number);
}

/* This rank ends by a signal: "crashed (SIGSEGV) at train.lua:44, past ...; its last op is matmul". The line is that of
** the script's thread, and found by walking Lua's stack: whatever broke may have broken that too (`line` false). */
static void word_signal(const char *how, bool line)
{
    char where[FL_WHERE_TEXT] = "", around[FL_RANK_PLACE_TEXT];
    if (line && fl_engine_where && pthread_equal(pthread_self(), watch.script)) fl_engine_where(where, sizeof where);
    snprintf(fl_journal_own->message, sizeof fl_journal_own->message, " %s%s%s%s", how, where[0] ? " at " : "", where,
             fl_rank_place_text(around, fl_journal_own));
}

static void on_crash(int number)
{
    static volatile sig_atomic_t depth;
    char how[64];
    const char *name = "";
    int level = depth++;
    if (level > 1 || getpid() != watch.pid) die_of(number);
    for (int i = 0; i < CRASHES; i++)
        if (crashes[i].number == number) name = crashes[i].name;
    snprintf(how, sizeof how, "crashed (%s)", name);
    word_signal(how, level == 0);
    bool reporter = claim();
    note_failure();
    if (reporter) tell_own(fl_journal_own->message, NULL);
    die_of(number);
}

/* True if another thread of this process has begun to report: then it may finish. */
static void let_tell(void)
{
    for (int ms = 0; ms < 100 && reported() == REPORTING; ms += 2) pause_ms(2);
}

/* From the launcher: the job ends, because another rank has failed or at the user's request. From another process: this
** rank was chosen. From itself: Ctrl-C did not stop it and came again. */
static void on_terminate(int number, siginfo_t *info, void *context)
{
    if (getpid() != watch.pid) die_of(number);
    bool failed = state_of(fl_journal_own) == FL_RANK_FAILED, chosen = info->si_pid != getppid();
    bool first = fl_journal_first()->rank == 0; /* otherwise one of another host has reported */
    int killed = find_killed();
    if (((failed && first) || chosen || killed >= 0) && reported() == UNREPORTED && claim()) {
        if (chosen && !failed) {
            word_signal(info->si_pid == watch.pid ? "was ended by a second Ctrl-C" : "was ended by SIGTERM", false);
            note_failure();
        }
        if (killed >= 0) tell_killed(killed);
        else tell_own(fl_journal_own->message, NULL);
    } else if (!failed) __atomic_store_n(&fl_journal_own->state, FL_RANK_STOPPED, __ATOMIC_RELEASE);
    let_tell();
    die_of(number);
}

/* The handlers run on the stack that the host program gives signals (a stack that has run over its end has no room). */
void fl_failure_watch(const char *program)
{
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};
    struct sigaction terminate = {.sa_sigaction = on_terminate, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    watch.on = true;
    watch.program = program;
    watch.script = pthread_self();
    watch.pid = (int)getpid();
    fl_journal_own->rank = my_rank();
    fl_journal_own->pid = watch.pid;
    __atomic_store_n(&fl_journal_own->state, FL_RANK_RUNNING, __ATOMIC_RELEASE);
    for (int i = 0; i < CRASHES; i++) sigaction(crashes[i].number, &crash, NULL);
    sigaction(SIGTERM, &terminate, NULL);
    atexit(on_exit_call);
}
