/*
** lane.c -- lanes: bounded rings of queued ops, run by a thread each or by the pusher.
**
** The pusher publishes slots by advancing `tail`; the thread that runs the lane advances `done`. A slot belongs to
** the pusher before its number is published and after it is done, so nothing is locked. Sleepers announce
** themselves, look once more and then sleep; wakers publish and then look for sleepers: with sequentially
** consistent operations at least one of the two finds the other.
**
** The pusher sleeps until one of the numbers in `wake_at` is reached: the one it waits for, and those the
** first ops of driven lanes wait for, because only the pusher can run these.
*/
#define _GNU_SOURCE
#include "engine_internal.h"
#include "base/owner.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEFAULT_RING = 1024, PUSHER_WAIT_MS = 50 };

fl_lane fl_lanes[FL_MAX_LANES] = {
    [FL_LANE_CPU] = {.name = "cpu", .wake_at = UINT64_MAX},
    [FL_LANE_IO] = {.name = "io", .wake_at = UINT64_MAX, .threaded = true},
    [FL_LANE_COMM] = {.name = "comm", .wake_at = UINT64_MAX, .threaded = true},
};
int fl_lane_count = FL_LANE_FIRST_FREE;
int64_t fl_driven_pending;
bool fl_engine_cancelling;

static fl_wakeup pusher_wakeup;
static fl_wakeup any_completed; /* threads of several lanes wait here for what their first ops need */

/* ---- sleeping ---- */

#define LOAD(place) __atomic_load_n((place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n((place), (value), __ATOMIC_SEQ_CST)

static uint32_t wakeup_ticket(fl_wakeup *wakeup)
{
    __atomic_add_fetch(&wakeup->sleepers, 1, __ATOMIC_SEQ_CST);
    return LOAD(&wakeup->rings);
}

/* Until the next ring after the ticket; milliseconds 0: without a limit. */
static void wakeup_sleep(fl_wakeup *wakeup, uint32_t ticket, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    syscall(SYS_futex, &wakeup->rings, FUTEX_WAIT_PRIVATE, ticket, milliseconds ? &limit : NULL, NULL, 0);
}

static void wakeup_leave(fl_wakeup *wakeup) { __atomic_sub_fetch(&wakeup->sleepers, 1, __ATOMIC_SEQ_CST); }

static void wakeup_signal(fl_wakeup *wakeup)
{
    if (!LOAD(&wakeup->sleepers)) return;
    __atomic_add_fetch(&wakeup->rings, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &wakeup->rings, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Pauses (some 40 ns each) worth spending before sleeping: few where a spinner would take the core of another. */
static int spin_limit(void)
{
    static int limit = -1; /* a race would compute the same value */
    int n = __atomic_load_n(&limit, __ATOMIC_RELAXED);
    if (FL_LIKELY(n >= 0)) return n;
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    n = cores == 1 ? 0 : cores < 4 ? 100 : 500;
    __atomic_store_n(&limit, n, __ATOMIC_RELAXED);
    return n;
}

/* ---- completing ---- */

static void complete(fl_lane *lane, uint64_t seq)
{
    STORE(&lane->done, seq);
    wakeup_signal(&lane->completed);
    wakeup_signal(&any_completed);
    if (seq >= LOAD(&lane->wake_at)) wakeup_signal(&pusher_wakeup);
}

static fl_slot *slot_at(const fl_lane *lane, uint64_t seq) { return &lane->ring[(seq - 1) & (lane->size - 1)]; }

static void run_slot(fl_lane *lane, fl_slot *slot)
{
    uint64_t started = slot->pushed ? fl_now() : 0;
    if (FL_UNLIKELY(LOAD(&fl_engine_cancelling))) fl_task_cancel(&slot->task, slot->line);
    else fl_task_run_queued(&slot->task, slot->line);
    if (slot->pushed)
        fl_profile_add(slot->task.name, slot->line, (int)(lane - fl_lanes), slot->pushed, started, fl_now());
    free(slot->block);
    slot->block = NULL;
}

/* ---- the thread of a lane ---- */

/* A lane's thread waits for an op of another lane. */
static void await_need(const fl_need *need)
{
    fl_lane *other = &fl_lanes[fl_stamp_lane(need->stamp)];
    uint64_t seq = fl_stamp_seq(need->stamp);
    if (other->stream) {
        while (!other->stream->ops->reached(other->stream->handle, need->event)) sched_yield();
        return;
    }
    for (int i = spin_limit(); i > 0; i--) {
        if (LOAD(&other->done) >= seq) return;
        fl_pause();
    }
    while (LOAD(&other->done) < seq) {
        uint32_t ticket = wakeup_ticket(&other->completed);
        if (LOAD(&other->done) < seq) wakeup_sleep(&other->completed, ticket, 0);
        wakeup_leave(&other->completed);
    }
}

/* Waits for op number seq to be published; false: the thread shall end. */
static bool await_work(fl_lane *lane, uint64_t seq)
{
    for (int i = spin_limit(); i > 0; i--) {
        if (LOAD(&lane->tail) >= seq) return true;
        fl_pause();
    }
    while (LOAD(&lane->tail) < seq) {
        if (LOAD(&lane->quit)) return false;
        uint32_t ticket = wakeup_ticket(&lane->work);
        if (LOAD(&lane->tail) < seq && !LOAD(&lane->quit)) wakeup_sleep(&lane->work, ticket, 0);
        wakeup_leave(&lane->work);
    }
    return true;
}

static void *lane_main(void *argument)
{
    fl_lane *lane = argument;
    fl_owner_never(); /* functions of the host interface are refused on this thread */
    for (uint64_t seq = LOAD(&lane->done) + 1; await_work(lane, seq); seq++) {
        fl_slot *slot = slot_at(lane, seq);
        for (int i = 0; i < slot->need_count; i++) await_need(&slot->needs[i]);
        run_slot(lane, slot);
        complete(lane, seq);
    }
    STORE(&lane->exited, true);
    wakeup_signal(&pusher_wakeup);
    return NULL;
}

/* ---- the thread of several lanes ---- */

static bool is_met(const fl_need *need)
{
    fl_lane *other = &fl_lanes[fl_stamp_lane(need->stamp)];
    return other->stream ? other->stream->ops->reached(other->stream->handle, need->event)
                         : LOAD(&other->done) >= fl_stamp_seq(need->stamp);
}

/* NULL: nothing. */
static const fl_need *unmet(const fl_slot *slot)
{
    for (int i = 0; i < slot->need_count; i++)
        if (!is_met(&slot->needs[i])) return &slot->needs[i];
    return NULL;
}

/* The work that the lanes of a thread offer it. */
struct offer {
    fl_lane *ready;         /* whose first op can run; NULL: none */
    fl_slot *op;            /* that op */
    bool waits, for_device; /* else: some first op waits, for a device too */
};

static struct offer look_for_work(fl_lane *first)
{
    struct offer offer = {NULL, NULL, false, false};
    for (fl_lane *lane = first; lane; lane = lane->next) {
        uint64_t seq = LOAD(&lane->done) + 1;
        if (LOAD(&lane->tail) < seq) continue;
        fl_slot *op = slot_at(lane, seq);
        const fl_need *need = unmet(op);
        if (!need) return (struct offer){lane, op, false, false};
        offer.waits = true;
        offer.for_device |= fl_lanes[fl_stamp_lane(need->stamp)].stream != NULL;
    }
    return offer;
}

/* Until something may have changed: an op was queued or, where some wait, one of any lane is complete. */
static void sleep_for_work(fl_lane *first, bool waits)
{
    fl_wakeup *wakeup = waits ? &any_completed : &first->work;
    uint32_t ticket = wakeup_ticket(wakeup);
    struct offer offer = look_for_work(first);
    bool same = !offer.ready && !offer.for_device && offer.waits == waits && (waits || !LOAD(&first->quit));
    if (same) wakeup_sleep(wakeup, ticket, 0);
    wakeup_leave(wakeup);
}

static void *lanes_main(void *argument)
{
    fl_lane *first = argument;
    int spins = 0;
    fl_owner_never();
    for (;;) {
        struct offer offer = look_for_work(first);
        if (offer.ready) {
            run_slot(offer.ready, offer.op);
            complete(offer.ready, LOAD(&offer.ready->done) + 1);
            spins = 0;
        } else if (!offer.waits && LOAD(&first->quit)) break;
        else if (spins++ < spin_limit()) fl_pause();
        else if (offer.for_device) sched_yield(); /* nobody rings for a device */
        else sleep_for_work(first, offer.waits);
    }
    STORE(&first->exited, true);
    wakeup_signal(&pusher_wakeup);
    return NULL;
}

/* ---- starting and ending a thread ---- */

/* Signals are the script's: the thread blocks them all. */
static bool start_thread(fl_lane *lane)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* its own: of a mapped file that has become shorter (file/mapping.h) */
    lane->quit = lane->exited = false;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&lane->thread, NULL, lane->next ? lanes_main : lane_main, lane) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started) return false;
    char name[16];
    snprintf(name, sizeof name, "lane-%.10s", lane->name);
    pthread_setname_np(lane->thread, name);
    return true;
}

fl_status fl_lane_open(fl_lane *lane, const char *op)
{
    if (!lane->ring) {
        uint64_t size = lane->size ? lane->size : DEFAULT_RING;
        lane->ring = aligned_alloc(64, size * sizeof *lane->ring);
        if (!lane->ring) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the queue of lane '%s'", op, lane->name);
        lane->size = size;
        for (uint64_t i = 0; i < size; i++) lane->ring[i].block = NULL;
    }
    fl_lane *server = fl_lane_server(lane);
    if (!lane->threaded || server->running) return FL_OK;
    server->running = start_thread(server);
    for (fl_lane *served = server; served; served = served->next) served->threaded = server->running;
    return FL_OK;
}

bool fl_lane_join(fl_lane *lane, uint64_t deadline)
{
    if (!lane->running) return true;
    STORE(&lane->quit, true);
    wakeup_signal(&lane->work);
    while (!LOAD(&lane->exited)) {
        if (fl_now() >= deadline) return false;
        uint32_t ticket = wakeup_ticket(&pusher_wakeup);
        if (!LOAD(&lane->exited)) wakeup_sleep(&pusher_wakeup, ticket, PUSHER_WAIT_MS);
        wakeup_leave(&pusher_wakeup);
    }
    pthread_join(lane->thread, NULL);
    lane->running = false;
    return true;
}

void fl_lane_close(fl_lane *lane)
{
    free(lane->ring);
    lane->ring = NULL;
}

/* ---- queueing ---- */

/* Copies payload and lists behind each other into the slot, or into a block of its own when they are large; leaves room
** for the needs. */
static fl_status copy_task(fl_slot *slot, const fl_task *task, int need_count)
{
    size_t payload = (task->payload_size + 15) & ~(size_t)15, needs = (size_t)need_count * sizeof *slot->needs;
    size_t reads = (size_t)task->read_count * sizeof(fl_var *), writes = (size_t)task->write_count * sizeof(fl_var *);
    unsigned char *bytes = slot->bytes;
    if (payload + needs + reads + writes > FL_SLOT_BYTES) {
        bytes = slot->block = malloc(payload + needs + reads + writes);
        if (!bytes) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while queueing", task->name);
    }
    slot->task = *task;
    slot->task.payload = bytes;
    if (task->payload_size) memcpy(bytes, task->payload, task->payload_size);
    slot->needs = (fl_need *)(bytes += payload);
    slot->need_count = need_count;
    slot->task.reads = (fl_var *const *)(bytes += needs);
    if (reads) memcpy(bytes, task->reads, reads);
    slot->task.writes = (fl_var *const *)(bytes += reads);
    if (writes) memcpy(bytes, task->writes, writes);
    return FL_OK;
}

fl_status fl_lane_put(fl_lane *lane, const fl_task *task, const fl_stamp *needs, int need_count)
{
    fl_slot *slot = slot_at(lane, lane->pushed + 1);
    FL_TRY(copy_task(slot, task, need_count));
    for (int i = 0; i < need_count; i++) {
        fl_lane *other = &fl_lanes[fl_stamp_lane(needs[i])];
        slot->needs[i] = (fl_need){needs[i], 0};
        if (other->stream && lane->threaded)
            FL_TRY(fl_stream_event(&slot->needs[i].event, other, fl_stamp_seq(needs[i])));
    }
    slot->pushed = fl_engine_profiling ? fl_now() : 0;
    fl_line_now(slot->line);
    lane->pushed++;
    if (lane->threaded) {
        STORE(&lane->tail, lane->pushed);
        wakeup_signal(&fl_lane_server(lane)->work);
        if (lane->server || lane->next) wakeup_signal(&any_completed); /* its thread may wait there */
    } else {
        lane->tail = lane->pushed;
        fl_driven_pending++;
    }
    return FL_OK;
}

/* ---- the pusher drives and waits ---- */

/* The first op of a driven lane, NULL when there is none that the pusher could start. */
static fl_slot *driven_head(fl_lane *lane)
{
    if (lane->threaded || lane->stream || lane->busy || lane->done == lane->pushed) return NULL;
    return slot_at(lane, lane->done + 1);
}

/* A stamp that the op still waits for; 0: none. */
static fl_stamp unmet_need(const fl_slot *slot)
{
    for (int i = 0; i < slot->need_count; i++)
        if (!fl_stamp_done(slot->needs[i].stamp)) return slot->needs[i].stamp;
    return 0;
}

bool fl_lanes_drive(void)
{
    if (!fl_driven_pending) return false;
    for (int i = 0; i < fl_lane_count; i++) {
        fl_lane *lane = &fl_lanes[i];
        fl_slot *head = driven_head(lane);
        if (!head || unmet_need(head)) continue;
        lane->busy = true;
        run_slot(lane, head);
        lane->busy = false;
        fl_driven_pending--;
        complete(lane, lane->done + 1);
        return true;
    }
    return false;
}

/* Registers to be woken when op `seq` of `lane` is complete; false when it is already. */
static bool want(fl_lane *lane, uint64_t seq)
{
    if (lane->threaded && seq < lane->wake_at) STORE(&lane->wake_at, seq);
    return LOAD(&lane->done) < seq;
}

/* Sleeps until op seq of lane is complete or a driven lane can go on. */
static void pusher_sleep(fl_lane *lane, uint64_t seq)
{
    uint32_t ticket = wakeup_ticket(&pusher_wakeup);
    bool idle = want(lane, seq);
    for (int i = 0; i < fl_lane_count && fl_driven_pending; i++) {
        fl_slot *head = driven_head(&fl_lanes[i]);
        if (!head) continue;
        fl_stamp need = unmet_need(head);
        idle = need && want(&fl_lanes[fl_stamp_lane(need)], fl_stamp_seq(need)) && idle;
    }
    if (idle) wakeup_sleep(&pusher_wakeup, ticket, PUSHER_WAIT_MS);
    wakeup_leave(&pusher_wakeup);
    for (int i = 0; i < fl_lane_count; i++) STORE(&fl_lanes[i].wake_at, UINT64_MAX);
}

bool fl_lane_wait_step(fl_lane *lane, uint64_t seq, int *spins)
{
    if (fl_lane_reached(lane, seq)) return true;
    if (fl_lanes_drive()) *spins = 0;
    else if ((*spins)++ < spin_limit()) fl_pause();
    else if (lane->stream) sched_yield(); /* nobody rings for a device */
    else pusher_sleep(lane, seq);
    return fl_lane_reached(lane, seq);
}

/* ---- more lanes ---- */

fl_status fl_engine_lane_new(int *lane, const char *name, int ring_size, bool threaded)
{
    if (fl_lane_count == FL_LANE_DEFERRED)
        return fl_fail(FL_ERR_STATE, "engine: there are %d lanes already, no room for '%s'", FL_LANE_DEFERRED, name);
    if (ring_size < 0 || ring_size > 1 << 20)
        return fl_fail(FL_ERR_VALUE, "engine: a ring of %d slots for lane '%s' (1 to 1048576)", ring_size, name);
    fl_lane *l = &fl_lanes[fl_lane_count];
    snprintf(l->name, sizeof l->name, "%s", name);
    l->wake_at = UINT64_MAX;
    l->threaded = threaded;
    l->size = DEFAULT_RING;
    if (ring_size)
        for (l->size = 1; l->size < (uint64_t)ring_size; l->size *= 2) continue;
    *lane = fl_lane_count++;
    return FL_OK;
}

fl_status fl_engine_lanes_new(int *lanes, const char *const *names, int count, int ring_size)
{
    if (fl_lane_count + count > FL_LANE_DEFERRED)
        return fl_fail(FL_ERR_STATE, "engine: there are %d lanes already, no room for %d as '%s'", fl_lane_count, count,
                       names[0]);
    for (int i = 0; i < count; i++) {
        FL_TRY(fl_engine_lane_new(&lanes[i], names[i], ring_size, true));
        if (i == 0) continue;
        fl_lanes[lanes[i]].server = &fl_lanes[lanes[0]];
        fl_lanes[lanes[i - 1]].next = &fl_lanes[lanes[i]];
    }
    return FL_OK;
}

void fl_engine_lane_drive(int lane) { fl_lanes[lane].threaded = false; }

bool fl_engine_lane_is_driven(int lane) { return !fl_lanes[lane].threaded; }
