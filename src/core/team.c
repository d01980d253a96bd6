/*
** team.c -- parallel loops on libgomp's threads, the only `omp parallel` of the project.
**
** libgomp gives every thread that enters a region a team of its own, so one thread of the process does:
** the one that runs Lua, or the CPU lane's when it has a thread (engine.c passes the right on). All
** others run their loops serially. ThreadSanitizer cannot see into libgomp: its builds are serial.
*/
#define _GNU_SOURCE
#include "team.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 1024, SERIAL_NS = 10000 };

static int team_size;                           /* 0: not read yet */
static _Thread_local bool outsider;             /* may not enter parallel regions */

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return omp_get_num_procs();
}

/* FLOW_THREADS when it is a number in range, else the cores. */
static int wanted_size(void)
{
    const char *text = getenv("FLOW_THREADS");
    if (!text || !*text) return usable_cores();
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (!*end && !errno && n >= 1 && n <= MAX_THREADS) return (int)n;
    int cores = usable_cores();
    fprintf(stderr, "flowlua: FLOW_THREADS=%s is not a number from 1 to %d; using %d\n", text, MAX_THREADS, cores);
    return cores;
}

/* A forked child has none of the team's threads and would wait for them: they end before the fork. */
static void before_fork(void)
{
    if (!omp_in_parallel()) omp_pause_resource_all(omp_pause_soft);
}

static void team_start(void)
{
    pthread_atfork(before_fork, NULL, NULL);
    fl_team_set_size(wanted_size());
}

int fl_team_size(void)
{
    if (__builtin_expect(__atomic_load_n(&team_size, __ATOMIC_ACQUIRE) == 0, 0)) {
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, team_start);
    }
    return __atomic_load_n(&team_size, __ATOMIC_ACQUIRE);
}

void fl_team_set_size(int threads)
{
    if (threads < 1) threads = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    __atomic_store_n(&team_size, threads, __ATOMIC_RELEASE);
    omp_set_num_threads(outsider ? 1 : threads);
}

void fl_team_allow(bool parallel)
{
    int threads = fl_team_size();
    if (!parallel && !outsider) omp_pause_resource_all(omp_pause_soft);
    outsider = !parallel;
    omp_set_num_threads(outsider ? 1 : threads);
}

static int threads_for(int64_t count, double cost_ns)
{
#ifdef __SANITIZE_THREAD__
    (void)count, (void)cost_ns;
    return 1;
#else
    if (outsider || count < 2 || (double)count * cost_ns < SERIAL_NS) return 1;
    int threads = fl_team_size();
    if (threads == 1 || omp_in_parallel()) return 1;
    return count < threads ? (int)count : threads;
#endif
}

void fl_team_for(int64_t count, double cost_ns, fl_team_body body, void *context)
{
    if (count <= 0) return;
    int threads = threads_for(count, cost_ns);
    if (threads == 1) {
        body(context, 0, count);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
        int64_t share = count / n, extra = count % n;
        int64_t begin = share * i + (i < extra ? i : extra), end = begin + share + (i < extra);
        if (begin < end) body(context, begin, end);
    }
}
