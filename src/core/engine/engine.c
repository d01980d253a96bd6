/*
** engine.c -- dependencies as stamps: push, waits, modes, stop, fork.
**
** Everything here runs on the pusher. A push looks at the stamps of its variables; when all are complete
** and the task may run here, it runs at once. Otherwise the pending stamps, at most one per lane, go with
** the task into its lane, and the variables get the stamp of the new op.
*/
#define _GNU_SOURCE
#include "engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STOP_MS = 800 };

void (*fl_engine_where)(char *buffer, size_t size);
bool (*fl_engine_interrupted)(void);

bool fl_engine_direct;
static bool watched;
int64_t fl_engine_direct_ops;
static fl_engine_mode mode;
static bool mode_known;  /* FLOW_ENGINE has been read */
static bool forked;      /* a child: no lanes, everything naive */
static bool prepared;    /* handlers of exit and fork are registered */
static pthread_t pusher; /* valid when prepared */
static fl_engine_stats stats;

/* ---- stamps ---- */

/* The pending stamps a task depends on, at most one per lane. */
struct needs {
    int count;
    fl_stamp at[FL_MAX_LANES];
};

/* True if nothing has to be waited for. A stream's own ops and those of another stream count as complete: it follows
** them without the host. */
static bool is_free(fl_stamp stamp, int lane)
{
    if (!fl_lanes[lane].stream || stamp == 0) return fl_stamp_done(stamp);
    const fl_lane *other = &fl_lanes[fl_stamp_lane(stamp)];
    if (other == &fl_lanes[lane]) return true;
    return other->stream ? other->seen >= fl_stamp_seq(stamp) : fl_stamp_done(stamp);
}

static void need(struct needs *needs, fl_stamp stamp, int lane)
{
    if (is_free(stamp, lane)) return;
    for (int i = 0; i < needs->count; i++)
        if (fl_stamp_lane(needs->at[i]) == fl_stamp_lane(stamp)) {
            if (stamp > needs->at[i]) needs->at[i] = stamp;
            return;
        }
    needs->at[needs->count++] = stamp;
}

static void collect_needs(struct needs *needs, const fl_task *task)
{
    needs->count = 0;
    for (int i = 0; i < task->read_count; i++) need(needs, task->reads[i]->write, task->lane);
    for (int i = 0; i < task->write_count; i++) {
        const fl_var *v = task->writes[i];
        need(needs, v->write, task->lane);
        for (uint32_t j = 0; j < v->reader_count; j++) need(needs, v->reads[j], task->lane);
    }
}

/* The slot for a read on this lane: FL_VAR_READERS when every slot is taken by another lane. */
static uint32_t reader_slot(const fl_var *var, int lane)
{
    for (uint32_t i = 0; i < var->reader_count; i++)
        if (fl_stamp_lane(var->reads[i]) == lane || fl_stamp_done(var->reads[i])) return i;
    return var->reader_count;
}

/* ---- deferred values ---- */

void (*fl_var_computer)(fl_stamp stamp);
void (*fl_var_before_write)(fl_var *var);

bool fl_var_mark_deferred_read(fl_var *var)
{
    uint32_t slot = reader_slot(var, FL_LANE_DEFERRED);
    if (slot == FL_VAR_READERS) return false;
    if (slot == var->reader_count) var->reader_count++;
    var->reads[slot] = FL_STAMP_ALL;
    return true;
}

void fl_var_unmark_deferred_read(fl_var *var)
{
    for (uint32_t i = 0; i < var->reader_count; i++)
        if (fl_stamp_is_deferred(var->reads[i])) var->reads[i--] = var->reads[--var->reader_count];
}

static bool has_deferred_read(const fl_var *var)
{
    for (uint32_t i = 0; i < var->reader_count; i++)
        if (fl_stamp_is_deferred(var->reads[i])) return true;
    return false;
}

/* Computes the deferred values that the task reads, and those that are computed from its targets. */
static void compute_deferred(const fl_task *task)
{
    for (int i = 0; i < task->read_count; i++)
        if (fl_var_is_deferred(task->reads[i])) fl_var_computer(task->reads[i]->write);
    for (int i = 0; i < task->write_count; i++) {
        fl_var *var = task->writes[i];
        if (fl_var_is_deferred(var)) fl_var_computer(var->write);
        if (has_deferred_read(var)) fl_var_before_write(var);
    }
}

void fl_engine_compute_deferred(void)
{
    if (fl_var_computer) fl_var_computer(FL_STAMP_ALL);
}

bool fl_var_settle(fl_var *var)
{
    uint32_t kept = 0;
    if (fl_stamp_done(var->write)) var->write = 0;
    for (uint32_t i = 0; i < var->reader_count; i++)
        if (!fl_stamp_done(var->reads[i])) var->reads[kept++] = var->reads[i];
    var->reader_count = kept;
    return var->write == 0 && kept == 0;
}

/* ---- waiting ---- */

fl_status fl_engine_wait_stamp(fl_stamp stamp, bool interruptible)
{
    fl_lane *lane = &fl_lanes[fl_stamp_lane(stamp)];
    int spins = 0;
    if (FL_UNLIKELY(fl_stamp_is_deferred(stamp))) {
        fl_var_computer(stamp);
        return FL_OK;
    }
    if (!fl_stamp_done(stamp)) {
        stats.waits++;
        while (!fl_lane_wait_step(lane, fl_stamp_seq(stamp), &spins))
            if (interruptible && fl_engine_interrupted && fl_engine_interrupted())
                return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    }
    return interruptible && stamp && lane->stream ? lane->stream->ops->errors(lane->stream->handle) : FL_OK;
}

static fl_stamp newest_stamp(int lane) { return (fl_stamp)lane << 56 | fl_lanes[lane].pushed; }

static fl_status wait_lanes(bool interruptible)
{
    for (int i = 0; i < fl_lane_count; i++) FL_TRY(fl_engine_wait_stamp(newest_stamp(i), interruptible));
    return FL_OK;
}

fl_status fl_engine_wait_lanes(void) { return wait_lanes(true); }

fl_status fl_engine_wait_var(fl_var *var)
{
    if (FL_UNLIKELY(var->write)) {
        FL_TRY(fl_engine_wait_stamp(var->write, true));
        var->write = 0;
    }
    if (FL_UNLIKELY(fl_is_pending(var))) FL_TRY(fl_pending_settle(var));
    if (FL_UNLIKELY(var->poison != NULL)) return fl_poison_raise(var->poison);
    return FL_UNLIKELY(fl_poison_lost != NULL) ? fl_poison_raise_lost() : FL_OK;
}

void fl_engine_wait_idle(fl_var *var)
{
    fl_engine_wait_stamp(var->write, false);
    for (uint32_t i = 0; i < var->reader_count; i++) fl_engine_wait_stamp(var->reads[i], false);
    var->write = 0;
    var->reader_count = 0;
}

fl_status fl_engine_wait_all(void)
{
    fl_engine_compute_deferred();
    FL_TRY(wait_lanes(true));
    fl_pending_run_all();
    return fl_poison_raise_filed(true);
}

fl_status fl_engine_end(bool wait)
{
    if (wait) FL_TRY(wait_lanes(true));
    fl_pending_run_done();
    return fl_poison_raise_filed(false);
}

/* ---- running on the caller ---- */

static fl_status run_here(const fl_task *task)
{
    stats.inline_ops++;
    for (int i = 0; i < task->write_count; i++) {
        fl_var *v = task->writes[i];
        fl_var_bump(v);
        v->write = 0;
        v->reader_count = 0;
    }
    if (FL_LIKELY(!fl_engine_profiling)) return fl_task_run_here(task);
    char line[FL_LINE_TEXT];
    fl_line_now(line);
    uint64_t started = fl_now();
    fl_status status = fl_task_run_here(task);
    /* an op that overtakes a lane's thread is shown among the caller's other ops */
    int lane = fl_lane_server(&fl_lanes[task->lane])->running ? FL_LANE_CPU : task->lane;
    fl_profile_add(task->name, line, lane, started, started, fl_now());
    return status;
}

/* True if a task that waits for nothing may run on the caller. Driven lanes keep the order of what is not cheap. */
static bool may_run_here(const fl_task *task)
{
    if (mode == FL_ENGINE_QUEUED) return false;
    if (task->flags & FL_TASK_CHEAP) return true;
    fl_lane *lane = &fl_lanes[task->lane];
    bool empty = fl_lane_reached(lane, lane->pushed);
    return empty && (!lane->threaded || task->flags & FL_TASK_SHORT);
}

/* ---- issuing to a stream ---- */

static void stamp_vars(const fl_task *task);

static fl_status follow_needs(fl_lane *lane, const struct needs *needs)
{
    for (int i = 0; i < needs->count; i++) {
        fl_lane *other = &fl_lanes[fl_stamp_lane(needs->at[i])];
        if (other->stream) FL_TRY(fl_stream_follow(lane, other, fl_stamp_seq(needs->at[i])));
        else FL_TRY(fl_engine_wait_stamp(needs->at[i], true));
    }
    return FL_OK;
}

/* Naive: the op's own error is raised here. */
static fl_status wait_for_issued(const fl_task *task)
{
    fl_status status = fl_engine_wait_stamp(newest_stamp(task->lane), true);
    for (int i = 0; status == FL_OK && i < task->write_count; i++) status = fl_engine_wait_var(task->writes[i]);
    return status;
}

static fl_status run_issuing(const fl_task *task)
{
    fl_lane *lane = &fl_lanes[task->lane];
    bool timed = fl_engine_profiling;
    fl_issuing = task;
    lane->stream->issuing = lane->pushed;
    fl_status status = FL_UNLIKELY(timed) ? fl_stream_time_begin(lane, task->name) : FL_OK;
    if (FL_LIKELY(status == FL_OK)) status = fl_task_run_here(task);
    fl_issuing = NULL;
    lane->stream->issuing = 0;
    return status == FL_OK && FL_UNLIKELY(timed) ? fl_stream_time_end(lane) : status;
}

/* The task is issued now, from the caller's payload, and completes later. */
static fl_status issue(const fl_task *task, const struct needs *needs)
{
    fl_lane *lane = &fl_lanes[task->lane];
    FL_TRY(fl_pending_before(task));
    FL_TRY(follow_needs(lane, needs));
    for (int i = 0; i < task->read_count; i++)
        if (reader_slot(task->reads[i], task->lane) == FL_VAR_READERS)
            FL_TRY(fl_engine_wait_stamp(task->reads[i]->reads[0], true));
    lane->pushed++;
    stamp_vars(task);
    stats.queued_ops++;
    FL_TRY(run_issuing(task));
    FL_TRY(fl_pending_after(task));
    return FL_UNLIKELY(mode == FL_ENGINE_NAIVE) ? wait_for_issued(task) : FL_OK;
}

fl_stamp fl_engine_issued(int lane)
{
    fl_lanes[lane].pushed++;
    return newest_stamp(lane);
}

fl_status fl_engine_hand_over(fl_var *var, int lane)
{
    fl_var *writes[] = {var};
    fl_task end = {.writes = writes, .write_count = 1, .lane = lane};
    struct needs n;
    collect_needs(&n, &end);
    FL_TRY(follow_needs(&fl_lanes[lane], &n));
    var->write = 0;
    var->reader_count = 0;
    return FL_OK;
}

static fl_status run_naive(const fl_task *task, const struct needs *needs)
{
    for (int i = 0; i < needs->count; i++) FL_TRY(fl_engine_wait_stamp(needs->at[i], true));
    return run_here(task);
}

/* ---- queueing ---- */

static fl_status make_room(fl_lane *lane, const fl_task *task)
{
    FL_TRY(fl_lane_open(lane, task->name));
    if (lane->pushed >= lane->size)
        FL_TRY(fl_engine_wait_stamp((fl_stamp)task->lane << 56 | (lane->pushed + 1 - lane->size), true));
    for (int i = 0; i < task->read_count; i++)
        if (reader_slot(task->reads[i], task->lane) == FL_VAR_READERS)
            FL_TRY(fl_engine_wait_stamp(task->reads[i]->reads[0], true));
    return FL_OK;
}

/* Stamps the variables with the op just queued. */
static void stamp_vars(const fl_task *task)
{
    fl_stamp stamp = newest_stamp(task->lane);
    for (int i = 0; i < task->read_count; i++) {
        fl_var *v = task->reads[i];
        uint32_t slot = reader_slot(v, task->lane);
        if (slot == v->reader_count) v->reader_count++;
        v->reads[slot] = stamp;
    }
    for (int i = 0; i < task->write_count; i++) {
        fl_var *v = task->writes[i];
        fl_var_bump(v);
        v->write = stamp;
        v->reader_count = 0;
    }
}

static void prepare_process(void);

static fl_status enqueue(const fl_task *task, struct needs *needs)
{
    fl_lane *lane = &fl_lanes[task->lane];
    if (FL_UNLIKELY(!prepared)) prepare_process();
    FL_TRY(make_room(lane, task));
    int kept = 0; /* order within a lane is free */
    for (int i = 0; i < needs->count; i++)
        if (fl_stamp_lane(needs->at[i]) != task->lane) needs->at[kept++] = needs->at[i];
    FL_TRY(fl_lane_put(lane, task, needs->at, kept));
    stamp_vars(task);
    stats.queued_ops++;
    return FL_OK;
}

fl_status fl_engine_push(const fl_task *task)
{
    struct needs n;
    if (FL_UNLIKELY(!mode_known)) fl_engine_mode_get();
    while (FL_UNLIKELY(fl_driven_pending) && fl_lanes_drive()) continue;
    if (FL_UNLIKELY(fl_var_computer != NULL)) compute_deferred(task);
    collect_needs(&n, task);
    if (FL_UNLIKELY(fl_lanes[task->lane].stream != NULL)) return issue(task, &n);
    FL_TRY(fl_pending_settle_task(task));
    if (FL_UNLIKELY(mode == FL_ENGINE_NAIVE)) return run_naive(task, &n);
    if (FL_LIKELY(n.count == 0 && may_run_here(task))) return run_here(task);
    return enqueue(task, &n);
}

/* ---- modes and statistics ---- */

static fl_engine_mode mode_from_environment(void)
{
    const char *text = getenv("FLOW_ENGINE");
    if (!text || !*text || !strcmp(text, "auto")) return FL_ENGINE_AUTO;
    if (!strcmp(text, "naive")) return FL_ENGINE_NAIVE;
    if (!strcmp(text, "queued")) return FL_ENGINE_QUEUED;
    fl_warn("FLOW_ENGINE=%s is none of naive, queued, auto; using auto", text);
    return FL_ENGINE_AUTO;
}

void fl_engine_update_direct(void)
{
    fl_engine_direct = mode_known && mode != FL_ENGINE_QUEUED && !fl_engine_profiling && !watched;
}

void fl_engine_watch(bool on)
{
    watched = on;
    fl_engine_update_direct();
}

static void set_mode(fl_engine_mode new_mode)
{
    mode = forked ? FL_ENGINE_NAIVE : new_mode;
    mode_known = true;
    fl_lanes[FL_LANE_CPU].threaded = mode == FL_ENGINE_QUEUED;
    fl_engine_update_direct();
}

fl_engine_mode fl_engine_mode_get(void)
{
    if (FL_UNLIKELY(!mode_known)) set_mode(mode_from_environment());
    return mode;
}

void fl_engine_mode_set(fl_engine_mode new_mode)
{
    fl_engine_compute_deferred();
    wait_lanes(false);
    if (new_mode != FL_ENGINE_QUEUED) fl_lane_join(&fl_lanes[FL_LANE_CPU], UINT64_MAX);
    set_mode(new_mode);
}

void fl_engine_stats_get(fl_engine_stats *out)
{
    *out = stats;
    out->inline_ops += fl_engine_direct_ops;
    out->failed_ops = fl_poison_failures();
    out->follows = fl_stream_follows;
    out->lanes = fl_lane_count;
    for (int i = 0; i < fl_lane_count; i++) out->threads += fl_lanes[i].running;
}

/* ---- the end, and forks ---- */

/* A lane that is stuck in an op is left alone: the process is about to end. */
bool fl_engine_stop(void)
{
    uint64_t deadline = fl_now() + STOP_MS * 1000000ull;
    bool drained = true;
    __atomic_store_n(&fl_engine_cancelling, true, __ATOMIC_SEQ_CST);
    for (int i = 0; i < fl_lane_count; i++) {
        int spins = 0;
        while (drained && !fl_lane_wait_step(&fl_lanes[i], fl_lanes[i].pushed, &spins)) drained = fl_now() < deadline;
    }
    for (int i = 0; i < fl_lane_count; i++) {
        drained = fl_lane_join(&fl_lanes[i], deadline) && drained;
        if (drained) fl_lane_close(&fl_lanes[i]);
    }
    if (drained) __atomic_store_n(&fl_engine_cancelling, false, __ATOMIC_SEQ_CST);
    return drained;
}

bool fl_engine_is_stopping(void) { return __atomic_load_n(&fl_engine_cancelling, __ATOMIC_RELAXED); }

static void stop_at_exit(void) { fl_engine_stop(); }

static void before_fork(void)
{
    if (!pthread_equal(pthread_self(), pusher)) return;
    fl_engine_compute_deferred();
    wait_lanes(false);
}

/* The child has no lane threads: queued tasks are dropped, those that it pushes run on the caller. */
static void in_child(void)
{
    for (int i = 0; i < fl_lane_count; i++) {
        fl_lanes[i].seen = fl_lanes[i].done = fl_lanes[i].tail = fl_lanes[i].pushed;
        fl_lanes[i].running = fl_lanes[i].threaded = false;
    }
    fl_driven_pending = 0;
    forked = true;
    set_mode(FL_ENGINE_NAIVE);
}

static void prepare_process(void)
{
    prepared = true;
    pusher = pthread_self();
    pthread_atfork(before_fork, NULL, in_child);
    atexit(stop_at_exit);
}
