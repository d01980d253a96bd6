/*
** comm.c -- control messages between ranks, and the transport of this process.
*/
#include "comm.h"
#include "engine/control.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const fl_comm *transport;
const char *fl_comm_refusal;

const fl_comm *fl_comm_get(void) { return transport; }

void fl_comm_register(const fl_comm *comm) { transport = comm; }

void fl_comm_abort(int code)
{
    if (transport) transport->abort(code);
    _exit(code);
}

/* A member that no longer takes part in collectives; -1: there is none. */
static int member_aside(const fl_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->ranks[i] >= fl_world_get()->size) return group->ranks[i];
    return -1;
}

fl_status fl_comm_allowed(const fl_collective *collective, const fl_group *group)
{
    char text[FL_COLLECTIVE_TEXT];
    int aside = FL_UNLIKELY(fl_world_get()->size < fl_world_get()->started) ? member_aside(group) : -1;
    if (aside >= 0)
        return fl_fail(
            FL_ERR_COMM,
            "%s: rank %d serves a key-value store and takes part in no collective; tensors of the workers lie "
            "on placements of ranks 0 to %d",
            fl_collective_text(text, collective), aside, fl_world_get()->size - 1);
    if (FL_LIKELY(!fl_comm_refusal)) return FL_OK;
    return fl_fail(FL_ERR_COMM, "%s: only one rank runs inside %s, so ranks cannot communicate there",
                   fl_collective_text(text, collective), fl_comm_refusal);
}

/* ---- control messages ---- */

/* The mark of a group in the history of its own ranks. */
static fl_status find_mark(fl_group *group)
{
    fl_history *h;
    if (group->mark) return FL_OK;
    FL_TRY(fl_history_get(&h, group->ranks, group->count));
    return fl_history_mark(&group->mark, h, group->ranks, group->count);
}

struct run_job {
    fl_status (*call)(void *context);
    void *context;
    fl_status status;
    char message[1024];
};

static fl_status run_job_here(void *payload)
{
    struct run_job *job = *(struct run_job **)payload;
    job->status = job->call(job->context);
    if (job->status != FL_OK) snprintf(job->message, sizeof job->message, "%s", fl_message());
    return FL_OK;
}

fl_status fl_comm_run(const char *name, fl_status (*call)(void *context), void *context)
{
    struct run_job job = {.call = call, .context = context}, *pointer = &job;
    fl_var done = {0}, *writes[] = {&done};
    fl_task task = {.name = name,
                    .run = run_job_here,
                    .payload = &pointer,
                    .payload_size = sizeof pointer,
                    .writes = writes,
                    .write_count = 1,
                    .lane = FL_LANE_COMM,
                    .flags = FL_TASK_SHORT};
    FL_TRY(fl_engine_push(&task));
    fl_engine_wait_idle(&done);
    return job.status == FL_OK ? FL_OK : fl_fail(job.status, "%s", job.message);
}

struct share_job {
    fl_group *group;
    fl_entry entry;
    char *all;
    const char *mine;
    size_t bytes;
    unsigned flags;
};

/* In as many meetings as the bytes need, at least one. */
static fl_status share_here(void *context)
{
    struct share_job *j = context;
    size_t at = 0;
    do {
        size_t n = j->bytes - at < FL_EAGER_BYTES ? j->bytes - at : FL_EAGER_BYTES;
        FL_TRY(fl_group_meet(j->group, &j->entry, j->mine + at, n, j->flags));
        for (int i = 0; i < j->group->count; i++)
            memcpy(j->all + (size_t)i * j->bytes + at, fl_group_entry_data(j->group, i), n);
        at += n;
    } while (at < j->bytes);
    return FL_OK;
}

fl_status fl_comm_share(fl_group *group, const char *what, void *all, const void *mine, size_t bytes, unsigned flags)
{
    struct share_job j = {
        .group = group, .all = all, .mine = mine, .bytes = bytes, .flags = flags, .entry = {.tag = bytes}};
    j.entry.collective.shape.ndim = -1;
    snprintf(j.entry.collective.name, FL_COLLECTIVE_NAME, "%s", what);
    j.entry.fingerprint = fl_fingerprint(&j.entry.collective, bytes);
    FL_TRY(fl_comm_allowed(&j.entry.collective, group));
    FL_TRY(find_mark(group));
    fl_trail trail = fl_history_meet(group->mark);
    if (!(flags & FL_WAIT_IDLE)) fl_entry_look_back(&j.entry, trail); /* a session resets its groups at every line */
    if (fl_engine_where) fl_engine_where(j.entry.collective.where, FL_WHERE_TEXT);
    return fl_comm_run(what, share_here, &j);
}

fl_status fl_comm_barrier(fl_group *group)
{
    char all[1] = {0};
    return fl_comm_share(group, "barrier", all, all, 0, 0);
}
