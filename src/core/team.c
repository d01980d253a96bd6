/*
** team.c -- parallel loops on a team of our own: fork and join in well under a microsecond.
**
** Each worker has a mailbox: a ticket that the caller raises and an answer that the worker raises after
** its range. Both sides wait by spinning, then yielding, then sleeping on the ticket, so a busy machine
** gets its cores back and an idle one answers at once. One loop runs on the team at a time; a loop that
** finds it taken (inside another loop, or on another thread) runs serially.
*/
#define _GNU_SOURCE
#include "team.h"

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

typedef struct worker {
    _Alignas(64) uint32_t ticket;   /* raised by the caller: there is a range to run */
    uint32_t asleep;                /* the worker sleeps on ticket */
    _Alignas(64) uint32_t answer;   /* = ticket when the range is done */
    uint32_t awaited;               /* the caller sleeps on answer */
    fl_team_body body;
    void *context;
    int64_t begin, end;
} worker;

static worker workers[MAX_THREADS]; /* 0 is the caller and unused */
static int started = 1;             /* threads that exist, the caller included */
static int team_size;               /* 0: not read yet */
static bool taken;                  /* a loop is running on the team */

/* ---- waiting ---- */

static inline void pause_cpu(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

/* Returns when *word is no longer `old`. `sleeping` tells the other side that a wake-up is needed. */
static void wait_change(uint32_t *word, uint32_t old, uint32_t *sleeping)
{
    for (int i = 0; i < SPINS; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
        pause_cpu();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
        sched_yield();
    }
    __atomic_store_n(sleeping, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == old) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    __atomic_store_n(sleeping, 0, __ATOMIC_SEQ_CST);
}

static void change(uint32_t *word, uint32_t value, uint32_t *sleeping)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleeping, __ATOMIC_SEQ_CST)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- workers ---- */

static void *work(void *argument)
{
    worker *w = argument;
    for (uint32_t done = 0;; done++) {
        wait_change(&w->ticket, done, &w->asleep);
        w->body(w->context, w->begin, w->end);
        change(&w->answer, done + 1, &w->awaited);
    }
    return NULL;
}

/* Starts threads until there are `wanted`; fewer when the system refuses. */
static void start(int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the script's: Ctrl-C goes to the thread that runs Lua */
    while (started < wanted) {
        pthread_t thread;
        workers[started] = (worker){.ticket = 0};
        if (pthread_create(&thread, NULL, work, &workers[started]) != 0) break;
        pthread_detach(thread);
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A forked child has none of the threads: it works alone. */
static void after_fork(void)
{
    started = 1;
    team_size = 1;
    taken = false;
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
    fprintf(stderr, "flowlua: FLOW_THREADS=%s is not a number from 1 to %d; using %d\n", text, MAX_THREADS, cores);
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

/* Range i of n of [0, count). */
static void range(int64_t *begin, int64_t *end, int64_t count, int n, int i)
{
    int64_t share = count / n, extra = count % n;
    *begin = share * i + (i < extra ? i : extra);
    *end = *begin + share + (i < extra);
}

static void run_on_team(int threads, int64_t count, fl_team_body body, void *context)
{
    int64_t begin, end;
    for (int i = 1; i < threads; i++) {
        worker *w = &workers[i];
        w->body = body;
        w->context = context;
        range(&w->begin, &w->end, count, threads, i);
        change(&w->ticket, w->ticket + 1, &w->asleep);
    }
    range(&begin, &end, count, threads, 0);
    body(context, begin, end);
    for (int i = 1; i < threads; i++) wait_change(&workers[i].answer, workers[i].ticket - 1, &workers[i].awaited);
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
    run_on_team(threads, count, body, context);
    __atomic_clear(&taken, __ATOMIC_RELEASE);
}
