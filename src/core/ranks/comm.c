/*
** comm.c -- groups, meetings and waits: what all transports have in common.
**
** The rules of a meeting (what must be equal on all members, how a time-out is worded) are here and nowhere else;
** shared memory and the transport only carry the entries.
*/
#define _GNU_SOURCE
#include "comm.h"
#include "base/clock.h"
#include "deadlock.h"
#include "engine/engine.h"
#include "channel.h"
#include "journal.h"
#include "shared.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const fl_comm *transport;
const char *fl_comm_refusal;
int fl_comm_host_ranks = 1;
bool (*fl_comm_stopping)(void);
bool fl_comm_peer_gone;

const fl_comm *fl_comm_get(void) { return transport; }

void fl_comm_register(const fl_comm *comm) { transport = comm; }

void fl_comm_abort(int code)
{
    if (transport) transport->abort(code);
    _exit(code);
}

/* ---- groups ---- */

enum { BUCKETS = 256 };
static fl_group *groups[BUCKETS];
static uint64_t begun; /* what groups count from */

static fl_group *group_new(const int *ranks, int count, uint64_t hash)
{
    fl_group *g = calloc(1, sizeof *g + (size_t)count * sizeof *ranks);
    if (!g) return NULL;
    g->count = count;
    g->hash = hash;
    g->sequence = g->begun = begun;
    g->me = -1;
    g->local = true;
    memcpy(g->ranks, ranks, (size_t)count * sizeof *ranks);
    for (int i = 0; i < count; i++) {
        if (ranks[i] == fl_world_get()->rank) g->me = i;
        g->local = g->local && fl_shared_has(ranks[i]);
    }
    return g;
}

fl_status fl_group_get(fl_group **out, const int *ranks, int count)
{
    if (!transport)
        return fl_fail(FL_ERR_COMM, "%s: nothing can be communicated",
                       fl_world_get()->dry ? "this is a dry world (FLOW_WORLD)" : "this process has no transport");
    uint64_t hash = fl_hash_words((uint64_t)count, ranks, (size_t)count * sizeof *ranks);
    fl_group **bucket = &groups[hash % BUCKETS];
    for (fl_group *g = *bucket; g; g = g->next)
        if (g->hash == hash && g->count == count && memcmp(g->ranks, ranks, (size_t)count * sizeof *ranks) == 0) {
            *out = g;
            return FL_OK;
        }
    fl_group *g = group_new(ranks, count, hash);
    if (!g) return fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", count);
    g->next = *bucket;
    *out = *bucket = g;
    return FL_OK;
}

fl_status fl_group_world(fl_group **out)
{
    const fl_placement *all = fl_placement_all(FL_CPU);
    if (!all) return fl_fail(FL_ERR_MEMORY, "out of memory");
    return fl_group_get(out, all->ranks, all->count);
}

fl_status fl_group_session(fl_group **out)
{
    static fl_group *session;
    fl_group *world;
    FL_TRY(fl_group_world(&world));
    if (!session) session = group_new(world->ranks, world->count, fl_hash_mix(world->hash, 1));
    *out = session;
    return session ? FL_OK : fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", world->count);
}

/* The mark of a group in the history of its own ranks. */
static fl_status find_mark(fl_group *group)
{
    fl_history *h;
    if (group->mark) return FL_OK;
    FL_TRY(fl_history_get(&h, group->ranks, group->count));
    return fl_history_mark(&group->mark, h, group->ranks, group->count);
}

/* ---- reset ---- */

uint64_t fl_comm_counted(void)
{
    uint64_t most = begun;
    for (int b = 0; b < BUCKETS; b++)
        for (const fl_group *g = groups[b]; g; g = g->next) {
            uint64_t left = g->channel ? fl_channel_counted(g->channel) : 0;
            if (g->sequence > most) most = g->sequence;
            if (left > most) most = left;
        }
    return most;
}

void fl_comm_reset(uint64_t number)
{
    begun = number;
    fl_history_reset();
    for (int b = 0; b < BUCKETS; b++)
        for (fl_group *g = groups[b]; g; g = g->next) {
            g->sequence = g->begun = number;
            g->broken = false;
            if (g->channel) fl_channel_reset(g->channel, number);
            if (transport->reset) transport->reset(g);
        }
}

/* ---- words ---- */

const char *fl_collective_text(char *buffer, const fl_collective *collective)
{
    if (collective->shape.ndim < 0) {
        snprintf(buffer, FL_COLLECTIVE_TEXT, "%s", collective->name);
        return buffer;
    }
    char shape[FL_SHAPE_TEXT], from[FL_ND_SBP_TEXT], to[FL_ND_SBP_TEXT];
    snprintf(buffer, FL_COLLECTIVE_TEXT, "%s of %s%s, %s -> %s", collective->name, fl_dtype_name(collective->dtype),
             fl_shape_text(shape, &collective->shape), fl_nd_sbp_text(from, collective->from),
             fl_nd_sbp_text(to, collective->to));
    return buffer;
}

/* "all-reduce of float32[8, 6], P -> B (train.lua:41)" */
static const char *collective_at(char *buffer, const fl_collective *collective)
{
    fl_collective_text(buffer, collective);
    size_t n = strlen(buffer);
    if (collective->where[0]) snprintf(buffer + n, FL_COLLECTIVE_TEXT - n, " (%s)", collective->where);
    return buffer;
}

/* "rank 0 train.lua:41 all-reduce of float32[8, 6], P -> B" */
static const char *rank_at(char *buffer, size_t size, int rank, const fl_collective *collective)
{
    char text[FL_COLLECTIVE_TEXT];
    snprintf(buffer, size, "rank %d %s%s%s", rank, collective->where, collective->where[0] ? " " : "",
             fl_collective_text(text, collective));
    return buffer;
}

/* ---- waiting ---- */

enum { SPINS = 4000, YIELDS = 20000, LOOK_EVERY = 64, GRACE_SECONDS = 3, LOOK_NS = 5000000, IDLE_LOOK_NS = 200000000 };

double fl_comm_timeout(void)
{
    static double seconds;
    if (seconds > 0) return seconds;
    const char *text = getenv("FLOW_TIMEOUT");
    char *end;
    double given = text && *text ? strtod(text, &end) : 0;
    if (text && *text && (*end || !(given > 0))) {
        if (fl_world_get()->rank == 0)
            fprintf(stderr, "flowlua: FLOW_TIMEOUT=%s is no number of seconds above 0; using 300\n", text);
        given = 0;
    }
    return seconds = given > 0 ? given : 300;
}

static bool oversubscribed(void)
{
    static int answer = -1;
    if (answer < 0) answer = fl_comm_host_ranks > sysconf(_SC_NPROCESSORS_ONLN);
    return answer;
}

const char *fl_rank_place_text(char *buffer, const fl_journal *journal)
{
    char collective[FL_COLLECTIVE_TEXT];
    const char *op = fl_journal_op(journal);
    int n = 0;
    buffer[0] = '\0';
    if (journal->collective.name[0])
        n = snprintf(buffer, FL_RANK_PLACE_TEXT, ", %s %s", journal->meeting ? "in" : "past",
                     collective_at(collective, &journal->collective));
    if (op && n < FL_RANK_PLACE_TEXT)
        snprintf(buffer + n, (size_t)(FL_RANK_PLACE_TEXT - n), "%s its last op is %s", n ? ";" : ",", op);
    return buffer;
}

static bool is_stopping(void) { return fl_comm_stopping && fl_comm_stopping(); }

static const char *waiting_at(char *buffer, const fl_wait *wait)
{
    return collective_at(buffer, wait->collective ? wait->collective : &fl_journal_own->collective);
}

/* What has become of a member that is missing: FL_OK when it may still come. */
static fl_status look_at(const fl_wait *wait, int rank)
{
    const fl_journal *j = fl_journal_of(rank);
    char mine[FL_COLLECTIVE_TEXT], where[FL_RANK_PLACE_TEXT];
    if (!j || rank == fl_world_get()->rank) return FL_OK;
    int state = __atomic_load_n(&j->state, __ATOMIC_ACQUIRE);
    waiting_at(mine, wait);
    if (state == FL_RANK_FAILED)
        return fl_fail(FL_ERR_COMM, "%s: rank %d%s%s", mine, rank, j->message[0] == ':' ? " failed" : "", j->message);
    bool ended = state == FL_RANK_ENDED;
    if (ended && wait->flags & FL_WAIT_DEVICE) return FL_OK;
    if (!ended && (state == FL_RANK_STOPPED || !fl_rank_is_dead(rank))) return FL_OK;
    fl_rank_place_text(where, j);
    if (!ended) return fl_fail(FL_ERR_COMM, "%s: rank %d has died%s", mine, rank, where);
    return fl_fail(FL_ERR_COMM, "%s: rank %d has ended%s; all ranks must call it", mine, rank, where);
}

enum { ANSWER_MS = 300 };

/* Asks the members that are missing for the line their scripts are at. Who runs a kernel or waits does not answer. */
static void ask_for_lines(const fl_wait *wait, uint32_t *answers)
{
    bool open = true;
    for (int i = 0; i < wait->group->count && wait->missing; i++) {
        const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
        if (!j || !j->listens) continue;
        answers[i] = __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE);
        kill(j->pid, SIGUSR2);
    }
    for (int ms = 0; ms < ANSWER_MS && open; ms++) {
        open = false;
        usleep(1000);
        for (int i = 0; i < wait->group->count && wait->missing; i++) {
            const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
            open = open || (j && j->listens && __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE) == answers[i]);
        }
    }
}

static fl_status time_out(const fl_wait *wait)
{
    char mine[FL_COLLECTIVE_TEXT], where[FL_RANK_PLACE_TEXT], text[1024] = "";
    uint32_t answers[wait->group->count];
    size_t n = 0;
    waiting_at(mine, wait);
    ask_for_lines(wait, answers);
    for (int i = 0; i < wait->group->count && wait->missing && n < sizeof text; i++) {
        if (!wait->missing(wait->group, i)) continue;
        const fl_journal *j = fl_journal_of(wait->group->ranks[i]);
        bool answered = j && j->listens && __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE) != answers[i];
        n += (size_t)snprintf(text + n, sizeof text - n, "%srank %d%s%s%s", n ? "; " : "", wait->group->ranks[i],
                              answered ? ", at " : "", answered ? j->line : "", j ? fl_rank_place_text(where, j) : "");
    }
    if (n && wait->flags & FL_WAIT_DEVICE)
        return fl_fail(FL_ERR_COMM,
                       "%s: after %g s the devices have not moved their data; this one waits for %s (FLOW_TIMEOUT sets "
                       "the seconds)",
                       mine, fl_comm_timeout(), text);
    if (!n)
        return fl_fail(FL_ERR_COMM,
                       "%s: after %g s the data of some rank is still missing (FLOW_TIMEOUT sets the seconds)", mine,
                       fl_comm_timeout());
    return fl_fail(FL_ERR_COMM,
                   "%s: after %g s still missing: %s. All ranks must call it: is it inside `if rank == 0`? "
                   "(FLOW_TIMEOUT sets the seconds)",
                   mine, fl_comm_timeout(), text);
}

/* FL_OK when missing member i may still come: not when its rank has ended, nor when it is through with the line of a
** session that this rank still evaluates. */
static fl_status look_at_missing(const fl_wait *wait, int i)
{
    char mine[FL_COLLECTIVE_TEXT];
    int rank = wait->group->ranks[i];
    const fl_journal *j = fl_journal_of(rank);
    bool gone_on = j && !(wait->flags & FL_WAIT_DEVICE)
        && __atomic_load_n(&j->evaluations, __ATOMIC_ACQUIRE) > fl_journal_own->evaluations;
    fl_status status = FL_OK;
    if (!gone_on) status = look_at(wait, rank);
    else if (is_stopping()) status = fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    else
        status = fl_fail(FL_ERR_COMM, "%s: rank %d has finished this line; all ranks must call it",
                         waiting_at(mine, wait), rank);
    if (status == FL_OK || !wait->missing(wait->group, i)) return FL_OK; /* it came before that */
    fl_comm_peer_gone |= gone_on;
    return status;
}

/* True if the missing members make progress elsewhere: then they are not timed out. */
static uint64_t progress_of_missing(const fl_wait *wait)
{
    uint64_t sum = 0;
    for (int i = 0; i < wait->group->count && wait->missing; i++) {
        const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
        if (j) sum += j->ops + j->meetings;
    }
    return sum;
}

/* The slow part of a step: clock, deaths, Ctrl-C. */
static fl_status poll_peers(fl_wait *wait)
{
    uint64_t t = fl_now();
    if (!wait->started) wait->started = wait->looked = t;
    if (t - wait->looked < (wait->flags & FL_WAIT_IDLE ? IDLE_LOOK_NS : LOOK_NS)) return FL_OK;
    wait->looked = t;
    if (wait->missing && !(wait->flags & (FL_WAIT_IDLE | FL_WAIT_DATA)))
        FL_TRY(fl_deadlock_look()); /* first: a rank that found the deadlock earlier has ended by now */
    for (int i = 0; i < wait->group->count && wait->missing; i++)
        if (wait->missing(wait->group, i)) FL_TRY(look_at_missing(wait, i));
    uint64_t progress = progress_of_missing(wait);
    if (progress != wait->progress) wait->started = t;
    wait->progress = progress;
    double seconds = (double)(t - wait->started) * 1e-9;
    if (!(wait->flags & (FL_WAIT_IDLE | FL_WAIT_DATA)) && is_stopping()) {
        if (!wait->interrupted) wait->interrupted = t;
        if (t - wait->interrupted > GRACE_SECONDS * 1000000000ull) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    }
    return !(wait->flags & FL_WAIT_IDLE) && seconds > fl_comm_timeout() ? time_out(wait) : FL_OK;
}

fl_status fl_wait_poll(fl_wait *wait) { return poll_peers(wait); }

/* Microseconds to sleep: ever longer at a prompt, short in the middle of work. */
static void back_off(const fl_wait *wait)
{
    int most = wait->flags & FL_WAIT_IDLE ? 10000 : 200, want = (wait->spins - YIELDS) / 4 + 50;
    usleep((useconds_t)(want < most ? want : most));
}

fl_status fl_wait_step(fl_wait *wait)
{
    int n = wait->spins++;
    if (n < SPINS && !oversubscribed()) {
        fl_pause();
        return FL_OK;
    }
    if (n < YIELDS) sched_yield();
    else {
        back_off(wait);
        return poll_peers(wait);
    }
    return n % LOOK_EVERY ? FL_OK : poll_peers(wait);
}

/* ---- meetings ---- */

const fl_entry *fl_group_entry(const fl_group *group, int i)
{
    return group->channel ? fl_channel_entry(group->channel, i) : &group->entries[i];
}

const void *fl_group_entry_data(const fl_group *group, int i)
{
    return group->channel ? fl_channel_data(group->channel, i) : group->data + (size_t)i * FL_EAGER_BYTES;
}

void fl_entry_poison(fl_entry *entry, const char *error)
{
    entry->flags |= FL_ENTRY_POISONED;
    snprintf(entry->error, sizeof entry->error, "%s", error);
}

void fl_entry_look_back(fl_entry *entry, fl_trail trail)
{
    entry->trail = trail;
    entry->past = trail.hash;
}

uint64_t fl_fingerprint(const fl_collective *collective, uint64_t tag)
{
    uint64_t h = fl_hash_words(tag, collective->name, strlen(collective->name));
    if (collective->shape.ndim < 0) return h;
    h = fl_hash_words(fl_hash_mix(h, (uint64_t)collective->dtype), collective->shape.dims,
                      sizeof(int64_t) * (size_t)collective->shape.ndim);
    return fl_hash_mix(fl_hash_mix(h, fl_nd_sbp_bits(collective->from)), fl_nd_sbp_bits(collective->to));
}

/* FL_OK if member i runs the same program as the first one. */
static fl_status compare_entries(fl_group *group, int i, const fl_entry *mine)
{
    const fl_entry *first = fl_group_entry(group, 0), *e = fl_group_entry(group, i);
    char a[FL_COLLECTIVE_TEXT], b[FL_COLLECTIVE_TEXT];
    bool same = e->fingerprint == first->fingerprint && e->sequence == first->sequence;
    if (FL_LIKELY(same && e->past == first->past && e->drawn == first->drawn)) return FL_OK;
    if (same && e->drawn == first->drawn) return fl_group_differs(group, i, mine);
    rank_at(a, sizeof a, group->ranks[0], &first->collective);
    rank_at(b, sizeof b, group->ranks[i], &e->collective);
    if (!same)
        return fl_fail(FL_ERR_COMM, "the ranks run different programs: %s, %s; is one of them inside `if rank == 0`?",
                       a, b);
    return fl_fail(
        FL_ERR_COMM,
        "the ranks have drawn different random numbers for global tensors: %s, %s; one of them may have drawn or "
        "seeded alone, or continued after an error (flow.manual_seed on all ranks makes them agree again)",
        a, b);
}

/* All members compare the same entries, so all of them fail or none. */
static fl_status check_entries(fl_group *group, const fl_entry *mine)
{
    for (int i = 0; i < group->count; i++)
        if (fl_group_entry(group, i)->flags & FL_ENTRY_INTERRUPTED) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    for (int i = 1; i < group->count; i++) FL_TRY(compare_entries(group, i, mine));
    return FL_OK;
}

/* An error that another collective has passed on names its rank already. */
static bool names_rank(const char *error) { return strncmp(error, "rank ", 5) == 0; }

fl_status fl_group_poison(const fl_group *group)
{
    for (int i = 0; i < group->count; i++) {
        const fl_entry *e = fl_group_entry(group, i);
        if (!(e->flags & FL_ENTRY_POISONED)) continue;
        return names_rank(e->error) ? fl_fail(FL_ERR_STATE, "%s", e->error)
                                    : fl_fail(FL_ERR_STATE, "rank %d: %s", group->ranks[i], e->error);
    }
    return FL_OK;
}

static void note_in_journal(const fl_entry *entry)
{
    fl_journal *j = fl_journal_own;
    j->collective = entry->collective;
    j->sequence = entry->sequence;
    __atomic_store_n(&j->meetings, j->meetings + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&j->meeting, j->meetings, __ATOMIC_RELEASE);
}

/* Before anything else is noted. */
static void note_end_in_journal(void)
{
    __atomic_store_n(&fl_journal_own->meeting, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fl_journal_own->channel, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* First meeting of a group: what its members need to meet at all. */
static fl_status prepare(fl_group *group)
{
    if (group->local && !group->channel) return fl_channel_open(&group->channel, group);
    if (group->local || group->data) return FL_OK;
    if (!group->entries) group->entries = calloc((size_t)group->count, sizeof *group->entries);
    if (group->entries) group->data = malloc((size_t)group->count * FL_EAGER_BYTES);
    return group->entries && group->data
        ? FL_OK
        : fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", group->count);
}

static fl_status enter(fl_group *group, const fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    FL_TRY(prepare(group));
    if (group->local) return fl_channel_enter(group->channel, mine, data, bytes, flags);
    FL_TRY(transport->meet(group, mine, data, bytes, flags));
    return group->opened ? FL_OK : transport->open(group);
}

fl_status fl_comm_allowed(const fl_collective *collective)
{
    char text[FL_COLLECTIVE_TEXT];
    if (FL_LIKELY(!fl_comm_refusal)) return FL_OK;
    return fl_fail(FL_ERR_COMM, "%s: only one rank runs inside %s, so ranks cannot communicate there",
                   fl_collective_text(text, collective), fl_comm_refusal);
}

fl_status fl_group_meet(fl_group *group, fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    char text[FL_COLLECTIVE_TEXT];
    if (group->broken)
        return fl_fail(FL_ERR_COMM,
                       "%s: an earlier collective of these ranks failed before its end; they can no longer communicate",
                       collective_at(text, &mine->collective));
    mine->sequence = ++group->sequence;
    mine->bytes = (uint32_t)bytes;
    if (!(flags & FL_WAIT_IDLE) && is_stopping()) mine->flags |= FL_ENTRY_INTERRUPTED;
    note_in_journal(mine);
    fl_status status = enter(group, mine, data, bytes, flags);
    note_end_in_journal();
    if (status != FL_OK) {
        group->broken = true;
        return status;
    }
    group->opened = true;
    return check_entries(group, mine);
}

/* ---- control messages ---- */

typedef struct run_job {
    fl_status (*call)(void *context);
    void *context;
    fl_status status;
    char message[1024];
} run_job;

static fl_status run_job_here(void *payload)
{
    run_job *job = *(run_job **)payload;
    job->status = job->call(job->context);
    if (job->status != FL_OK) snprintf(job->message, sizeof job->message, "%s", fl_message());
    return FL_OK;
}

fl_status fl_comm_run(const char *name, fl_status (*call)(void *context), void *context)
{
    run_job job = {.call = call, .context = context}, *pointer = &job;
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

typedef struct share_job {
    fl_group *group;
    fl_entry entry;
    char *all;
    const char *mine;
    size_t bytes;
    unsigned flags;
} share_job;

/* In as many meetings as the bytes need, at least one. */
static fl_status share_here(void *context)
{
    share_job *j = context;
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
    share_job j = {.group = group, .all = all, .mine = mine, .bytes = bytes, .flags = flags, .entry = {.tag = bytes}};
    j.entry.collective.shape.ndim = -1;
    snprintf(j.entry.collective.name, FL_COLLECTIVE_NAME, "%s", what);
    j.entry.fingerprint = fl_fingerprint(&j.entry.collective, bytes);
    FL_TRY(fl_comm_allowed(&j.entry.collective));
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
