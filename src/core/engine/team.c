/*
** team.c -- parallel loops on a team of our own: fork and join in well under a microsecond.
**
** A loop is one shared job, cut into a share for each thread: the same part of the elements each time, so that
** one loop wrote lies in the cache of the core that reads it in the next. A thread that has done its own share takes
** pieces of the others'. The caller never waits for a worker that has not begun, so on a busy machine it does the
** work alone. Waiting is spinning, then yielding, then sleeping. One loop runs on the team at a time; a loop that
** finds it taken (inside another loop, or on another thread) runs serially.
*/
#define _GNU_SOURCE
#include "team.h"
#include "base/clock.h"
#include "base/status.h"
#include "control.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_THREADS = 256, SERIAL_NS = 6000, SPINS = 3000, YIELDS = 60 };

/* The loop that runs now. `state`: generation << 32 | open bit | workers in it. Workers join while it is open and of
** the generation they were called for; only then may they look at the rest. */
static struct {
    _Alignas(64) uint64_t state;
    uint32_t awaited;             /* the caller sleeps on the lower half of state */
    _Alignas(64) int open_shares; /* those of which something is left */
    _Alignas(64) fl_team_body body;
    void *context;
    int64_t count;
    int threads;
} job;

/* First index of a thread's share that is not taken. */
static struct {
    _Alignas(64) int64_t next;
} shares[MAX_THREADS];

#define OPEN ((uint64_t)1 << 31)

struct worker {
    _Alignas(64) uint32_t call; /* generation of the job it is called for */
    uint32_t asleep;            /* it sleeps on `call` */
    pthread_t thread;
};

static struct worker workers[MAX_THREADS]; /* 0 is the caller and unused */
static int started = 1;                    /* threads that exist, the caller included */
static int team_size;                      /* 0: not read yet */
static bool taken;                         /* a loop is running on the team */
static bool stopping;                      /* a worker that is called ends */
static uint32_t generation;

/* ---- waiting ---- */

/* Returns when *word is no longer `old`. `sleeping`: the other side must wake this one. */
static void wait_change(uint32_t *word, uint32_t old, uint32_t *sleeping)
{
    for (int i = 0; i < SPINS; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
        fl_pause();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
        sched_yield();
    }
    __atomic_store_n(sleeping, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    __atomic_store_n(sleeping, 0, __ATOMIC_SEQ_CST);
}

static void change(uint32_t *word, uint32_t value, uint32_t *sleeping)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleeping, __ATOMIC_SEQ_CST)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- workers ---- */

static int64_t share_begin(int thread) { return job.count * thread / job.threads; }

/* Takes pieces of a share until none is left: the owner three quarters of the rest each time, others half of it. */
static void take_share(int owner, bool is_own)
{
    int64_t end = share_begin(owner + 1), at = __atomic_load_n(&shares[owner].next, __ATOMIC_RELAXED);
    while (at < end) {
        int64_t left = end - at, piece = left - left / (is_own ? 4 : 2);
        if (!__atomic_compare_exchange_n(&shares[owner].next, &at, at + piece, true, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED))
            continue;
        if (piece == left) __atomic_fetch_sub(&job.open_shares, 1, __ATOMIC_RELAXED);
        job.body(job.context, at, at + piece);
        at = __atomic_load_n(&shares[owner].next, __ATOMIC_RELAXED);
    }
}

static void take_shares(int thread)
{
    take_share(thread, true);
    for (int i = 1; i < job.threads && __atomic_load_n(&job.open_shares, __ATOMIC_RELAXED) > 0; i++)
        take_share((thread + i) % job.threads, false);
}

static bool join_job(uint32_t wanted)
{
    uint64_t state = __atomic_load_n(&job.state, __ATOMIC_RELAXED);
    while (state >> 32 == wanted && (state & OPEN))
        if (__atomic_compare_exchange_n(&job.state, &state, state + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
    return false;
}

/* The last one out of a closed job wakes the caller. */
static void leave_job(void)
{
    uint64_t left = __atomic_sub_fetch(&job.state, 1, __ATOMIC_SEQ_CST);
    if ((uint32_t)left == 0 && __atomic_load_n(&job.awaited, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, (uint32_t *)&job.state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    for (uint32_t seen = 0;;) {
        wait_change(&w->call, seen, &w->asleep);
        seen = __atomic_load_n(&w->call, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&stopping, __ATOMIC_RELAXED)) return NULL;
        if (!join_job(seen)) continue;
        take_shares((int)(w - workers));
        leave_job();
    }
}

/* Starts threads until there are `wanted`; fewer when the system refuses. */
static void start(int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* their own: of a mapped file that has become shorter (file/mapping.h) */
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the script's: Ctrl-C goes to the thread that runs Lua */
    while (started < wanted) {
        struct worker *w = &workers[started];
        *w = (struct worker){.call = 0};
        if (pthread_create(&w->thread, NULL, work, w) != 0) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void fl_team_stop(void)
{
    while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) sched_yield();
    __atomic_store_n(&stopping, true, __ATOMIC_RELAXED);
    if (++generation == 0) generation = 1;
    for (int i = 1; i < started; i++) change(&workers[i].call, generation, &workers[i].asleep);
    for (int i = 1; i < started; i++) pthread_join(workers[i].thread, NULL);
    started = 1;
    __atomic_store_n(&stopping, false, __ATOMIC_RELAXED);
    __atomic_clear(&taken, __ATOMIC_RELEASE);
}

/* A forked child has none of the threads: it works alone. */
static void after_fork(void)
{
    started = 1;
    team_size = 1;
    taken = false;
    stopping = false;
}

/* ---- size ---- */

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* FLOW_THREADS when it is a number in range, else the cores. */
static int wanted_size(void)
{
    const char *text = getenv("FLOW_THREADS");
    int cores = usable_cores();
    if (cores > MAX_THREADS) cores = MAX_THREADS;
    if (!text || !*text) return cores;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (!*end && !errno && n >= 1 && n <= MAX_THREADS) return (int)n;
    fl_warn("FLOW_THREADS=%s is not a number from 1 to %d; using %d", text, MAX_THREADS, cores);
    return cores;
}

static void read_size(void)
{
    pthread_atfork(NULL, NULL, after_fork);
    fl_team_set_size(wanted_size());
}

int fl_team_size(void)
{
    if (__builtin_expect(__atomic_load_n(&team_size, __ATOMIC_ACQUIRE) == 0, 0)) {
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, read_size);
    }
    return __atomic_load_n(&team_size, __ATOMIC_ACQUIRE);
}

void fl_team_set_size(int threads)
{
    if (threads < 1) threads = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    __atomic_store_n(&team_size, threads, __ATOMIC_RELEASE);
}

/* ---- loops ---- */

static void call_workers(int threads)
{
    if (++generation == 0) generation = 1; /* 0 is what a new worker has seen */
    __atomic_store_n(&job.state, (uint64_t)generation << 32 | OPEN, __ATOMIC_RELEASE);
    for (int i = 1; i < threads; i++) change(&workers[i].call, generation, &workers[i].asleep);
}

/* Closes the loop to further threads; returns when none is in it. */
static void close_job(void)
{
    uint64_t state = __atomic_and_fetch(&job.state, ~OPEN, __ATOMIC_SEQ_CST);
    uint32_t *inside = (uint32_t *)&job.state; /* little-endian: the lower half */
    for (uint32_t n; (uint32_t)state != 0 && (n = __atomic_load_n(inside, __ATOMIC_ACQUIRE)) != 0;)
        wait_change(inside, n, &job.awaited);
}

void fl_team_for(int64_t count, double cost_ns, fl_team_body body, void *context)
{
    if (count <= 0) return;
    int threads = count < 2 || (double)count * cost_ns < SERIAL_NS ? 1 : fl_team_size();
    if (threads > count) threads = (int)count;
    if (threads == 1 || __atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) {
        body(context, 0, count);
        return;
    }
    if (threads > started) start(threads);
    if (threads > started) threads = started;
    job.body = body;
    job.context = context;
    job.count = count;
    job.threads = threads;
    job.open_shares = threads;
    for (int i = 0; i < threads; i++) shares[i].next = share_begin(i);
    call_workers(threads);
    take_shares(0);
    close_job();
    __atomic_clear(&taken, __ATOMIC_RELEASE);
}
