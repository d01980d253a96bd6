/*
** pool.c -- threads that share the items of a batch.
**
** A job lies on the stack of its caller, who works on it as well: it is done even where no thread can be started.
** Threads that sleep are called, look for the first job with a free seat and items left, and work until it has no more.
*/
#define _GNU_SOURCE /* pthread_setname_np */
#include "pool.h"
#include "testing.h"
#include "base/owner.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "engine/team.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct job {
    fl_pool_body body;
    void *context;              /* borrowed */
    int64_t next;               /* atomic: first item that is not begun */
    int64_t limit;              /* atomic: no item from here on is begun; written with the lock held */
    int workers, seats, inside; /* with the lock held, as what follows: seats that were given, threads at work */
    fl_status status;
    int64_t failed; /* the first item that failed */
    struct job *following;
    char message[1024];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, left; /* there is a job; a thread has left one */
    struct job *jobs;          /* that may have items left, oldest first */
    pthread_t each[FL_POOL_MOST];
    int threads;
    bool stopping, watches_forks;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

/* ---- items ---- */

static void note_failure(struct job *job, int64_t item, fl_status status)
{
    pthread_mutex_lock(&pool.lock);
    if (item < job->failed) {
        job->failed = item;
        job->status = status;
        snprintf(job->message, sizeof job->message, "%s", fl_message());
    }
    if (item < __atomic_load_n(&job->limit, __ATOMIC_RELAXED)) __atomic_store_n(&job->limit, item, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&pool.lock);
}

static bool has_items(const struct job *job)
{
    return __atomic_load_n(&job->next, __ATOMIC_RELAXED) < __atomic_load_n(&job->limit, __ATOMIC_RELAXED);
}

/* Items are taken in order, so those before one that failed have all been begun. */
static void work_on(struct job *job, int seat)
{
    while (has_items(job)) {
        int64_t item = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (item >= __atomic_load_n(&job->limit, __ATOMIC_RELAXED)) return;
        fl_status status = fl_engine_is_stopping() ? fl_fail(FL_ERR_STATE, "cancelled") : FL_OK;
        if (status == FL_OK) status = job->body(job->context, item, seat);
        if (status != FL_OK) note_failure(job, item, status);
    }
}

/* ---- threads ---- */

/* With the lock held. */
static struct job *find_job(void)
{
    for (struct job *job = pool.jobs; job; job = job->following)
        if (job->seats < job->workers && has_items(job)) return job;
    return NULL;
}

static void *thread_main(void *unused)
{
    fl_owner_never();
    pthread_mutex_lock(&pool.lock);
    while (!pool.stopping) {
        struct job *job = find_job();
        if (!job) {
            pthread_cond_wait(&pool.work, &pool.lock);
            continue;
        }
        int seat = job->seats++;
        job->inside++;
        pthread_mutex_unlock(&pool.lock);
        work_on(job, seat);
        pthread_mutex_lock(&pool.lock);
        if (--job->inside == 0) pthread_cond_broadcast(&pool.left);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* A forked child has none of the threads, and the lock may have been held by one of them. */
static void after_fork(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.left, NULL);
    pool.jobs = NULL;
    pool.threads = 0;
    pool.stopping = false;
}

/* With the lock held: starts threads until there are `wanted`; fewer when the system refuses. Signals are the
** script's: the threads block them all. */
static void start_threads(int wanted)
{
    sigset_t all, before;
    if (pool.threads >= wanted) return;
    if (!pool.watches_forks) pthread_atfork(NULL, NULL, after_fork);
    pool.watches_forks = true;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* their own: of a mapped file that has become shorter (file/mapping.h) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.threads < wanted) {
        pthread_t *thread = &pool.each[pool.threads];
        if (pthread_create(thread, NULL, thread_main, NULL) != 0) break;
        pthread_setname_np(*thread, "pool");
        pool.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void fl_pool_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    int threads = pool.threads;
    pool.stopping = true;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < threads; i++) pthread_join(pool.each[i], NULL);
    pool.threads = 0;
    pool.stopping = false;
}

int fl_pool_threads(void)
{
    pthread_mutex_lock(&pool.lock);
    int threads = pool.threads;
    pthread_mutex_unlock(&pool.lock);
    return threads;
}

fl_status fl_pool_lane(int *lane)
{
    static int made = -1;
    if (made < 0) FL_TRY(fl_engine_lane_new(&made, "data", 0, true));
    *lane = made;
    return FL_OK;
}

fl_status fl_pool_push(const fl_pool_task *task)
{
    int lane;
    FL_TRY(fl_pool_lane(&lane));
    return fl_engine_push(&(fl_task){.name = task->name,
                                     .run = task->run,
                                     .payload = task->payload,
                                     .payload_size = task->payload_size,
                                     .reads = task->reads,
                                     .writes = task->writes,
                                     .read_count = task->read_count,
                                     .write_count = task->write_count,
                                     .lane = lane,
                                     .flags = FL_TASK_QUIET});
}

/* ---- jobs ---- */

int fl_pool_workers(int wanted)
{
    int workers = wanted > 0 ? wanted : fl_team_size();
    return workers < FL_POOL_MOST ? workers : FL_POOL_MOST;
}

static void open_job(struct job *job)
{
    struct job **end = &pool.jobs;
    pthread_mutex_lock(&pool.lock);
    start_threads(job->workers - 1);
    while (*end) end = &(*end)->following;
    *end = job;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

/* Returns when no thread is in it. */
static void close_job(struct job *job)
{
    pthread_mutex_lock(&pool.lock);
    struct job **place = &pool.jobs;
    while (*place != job) place = &(*place)->following;
    *place = job->following;
    while (job->inside) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

fl_status fl_pool_run(int64_t count, int workers, fl_pool_body body, void *context)
{
    struct job job = {.body = body, .context = context, .limit = count, .seats = 1, .failed = INT64_MAX};
    job.workers = workers < 1 ? 1 : workers > FL_POOL_MOST ? FL_POOL_MOST : workers;
    if (job.workers > count) job.workers = (int)count;
    bool shared = job.workers > 1;
    if (shared) open_job(&job);
    work_on(&job, 0);
    if (shared) close_job(&job);
    return job.status == FL_OK ? FL_OK : fl_fail(job.status, "%s", job.message);
}
