/*
** test_stream.c -- queues of a device as lanes: random work over streams, the host and a thread, against a serial
** oracle.
**
** The device is a thread per stream that takes its time. Events are tickets: recording one puts a job into the queue
** that writes it down, following one puts a job that waits for it.
*/
#define _GNU_SOURCE
#include "check.h"
#include "core/engine/control.h"
#include "core/engine/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { STREAMS = 3, VALUES = 12, OPS = 3000, QUEUE = 1 << 14 };

/* ---- a device ---- */

typedef struct stream stream;
typedef struct job {
    int64_t *out; /* NULL: an event, or waiting for one */
    const int64_t *in[2];
    int64_t factor;
    stream *other;
    int event;
    int64_t ticket;
    int back_off; /* microseconds */
} job;

struct stream {
    pthread_t thread;
    job jobs[QUEUE];
    int64_t issued, finished;          /* atomic */
    int64_t tickets[FL_STREAM_EVENTS]; /* given out, by the pusher */
    int64_t done[FL_STREAM_EVENTS];    /* atomic */
    int64_t recorded, followed;
    bool quit; /* atomic */
    int lane;
};
static stream streams[STREAMS];

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

/* Wraps. */
static int64_t combined(int64_t x, int64_t factor, int64_t y)
{
    return (int64_t)((uint64_t)x * (uint64_t)factor + (uint64_t)y);
}

static void run_job(stream *s, const job *j)
{
    if (j->back_off) usleep((useconds_t)j->back_off);
    if (j->out) *j->out = combined(j->in[0][0], j->factor, j->in[1][0]);
    else if (j->other)
        while (LOAD(j->other->done[j->event]) < j->ticket) usleep(1);
    else STORE(s->done[j->event], j->ticket);
}

static void *stream_main(void *argument)
{
    stream *s = argument;
    for (int64_t n = 0;; n++) {
        while (LOAD(s->issued) == n) {
            if (LOAD(s->quit)) return NULL;
            usleep(5);
        }
        run_job(s, &s->jobs[n % QUEUE]);
        STORE(s->finished, n + 1);
    }
}

static void issue(stream *s, job j)
{
    while (s->issued - LOAD(s->finished) >= QUEUE) usleep(10);
    s->jobs[s->issued % QUEUE] = j;
    STORE(s->issued, s->issued + 1);
}

static fl_status record(void *handle, int event)
{
    stream *s = handle;
    s->recorded++;
    issue(s, (job){.event = event, .ticket = ++s->tickets[event]});
    return FL_OK;
}

static bool reached(void *handle, int event)
{
    stream *s = handle;
    return LOAD(s->done[event]) >= LOAD(s->tickets[event]);
}

static fl_status errors(void *handle) { return FL_OK; }

static fl_status follow(void *handle, void *other, int event)
{
    stream *s = handle, *o = other;
    s->followed++;
    issue(s, (job){.other = o, .event = event, .ticket = o->tickets[event]});
    return FL_OK;
}

static const fl_stream_ops ops = {.record = record, .reached = reached, .errors = errors, .follow = follow};

/* ---- work ---- */

static int64_t values[VALUES], oracle[VALUES];
static fl_var vars[VALUES];
static int threaded;

typedef struct work {
    int out, in[2];
    int64_t factor;
    int back_off;
    stream *where; /* NULL: the host */
} work;

static fl_status run_work(void *payload)
{
    const work *w = payload;
    job j = {.out = &values[w->out],
             .in = {&values[w->in[0]], &values[w->in[1]]},
             .factor = w->factor,
             .back_off = w->back_off};
    if (w->where) issue(w->where, j);
    else run_job(NULL, &j);
    return FL_OK;
}

static uint64_t seed = 88172645463325252u;
static int below(int n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int)(seed % (uint64_t)n);
}

/* One op on a random lane: 0 .. STREAMS - 1 streams, then the host and a thread. */
static void push_random(int lanes)
{
    int lane = below(lanes);
    work w = {.out = below(VALUES),
              .factor = below(7) - 3,
              .back_off = below(60) ? 0 : below(60),
              .where = lane < STREAMS ? &streams[lane] : NULL};
    do w.in[0] = below(VALUES);
    while (w.in[0] == w.out);
    do w.in[1] = below(VALUES);
    while (w.in[1] == w.out || w.in[1] == w.in[0]);
    fl_var *reads[] = {&vars[w.in[0]], &vars[w.in[1]]}, *writes[] = {&vars[w.out]};
    fl_task t = {.name = "work",
                 .run = run_work,
                 .payload = &w,
                 .payload_size = sizeof w,
                 .reads = reads,
                 .writes = writes,
                 .read_count = 2,
                 .write_count = 1,
                 .lane = lane < STREAMS ? streams[lane].lane
                     : lane == STREAMS  ? FL_LANE_CPU
                                        : threaded};
    oracle[w.out] = combined(oracle[w.in[0]], w.factor, oracle[w.in[1]]);
    CHECK(fl_engine_push(&t) == FL_OK);
}

static void compare(void)
{
    CHECK(fl_engine_wait_all() == FL_OK);
    for (int i = 0; i < VALUES; i++) CHECK(values[i] == oracle[i]);
}

static void start(void)
{
    for (int i = 0; i < VALUES; i++) values[i] = oracle[i] = i + 1;
    for (int i = 0; i < STREAMS; i++) {
        CHECK(fl_engine_stream_new(&streams[i].lane, "stream", &streams[i], &ops) == FL_OK);
        pthread_create(&streams[i].thread, NULL, stream_main, &streams[i]);
    }
    CHECK(fl_engine_lane_new(&threaded, "thread", 0, true) == FL_OK);
}

static void random_work_over_streams(void)
{
    for (int i = 0; i < OPS; i++) {
        push_random(STREAMS);
        if (below(1000) == 0) compare();
    }
    compare();
}

static void random_work_over_streams_and_the_host(void)
{
    for (int i = 0; i < OPS; i++) push_random(STREAMS + 2);
    compare();
}

static void waiting_for_one_value_is_enough(void)
{
    for (int i = 0; i < 300; i++) {
        push_random(STREAMS);
        int v = below(VALUES);
        CHECK(fl_engine_wait_var(&vars[v]) == FL_OK);
        CHECK(values[v] == oracle[v]);
    }
    compare();
}

static void naive_mode_waits_for_each(void)
{
    fl_engine_mode_set(FL_ENGINE_NAIVE);
    for (int i = 0; i < 200; i++) {
        push_random(STREAMS + 2);
        for (int v = 0; v < VALUES; v++) CHECK(values[v] == oracle[v]);
    }
    fl_engine_mode_set(FL_ENGINE_AUTO);
}

static void ops_of_one_stream_cost_no_event(void)
{
    int64_t before = streams[0].recorded, followed = streams[0].followed;
    compare();
    before = streams[0].recorded;
    for (int i = 0; i < 1000; i++) push_random(1);
    CHECK(streams[0].recorded == before);
    CHECK(streams[0].followed == followed);
    compare();
    CHECK(streams[0].recorded == before + 1);
}

/* Issues a slow job after waiting for what the stream was given before. */
static fl_status run_waiting(void *payload)
{
    fl_engine_wait_idle(&vars[1]);
    return run_work(payload);
}

static void waiting_while_issuing_completes_no_later_op(void)
{
    fl_var *writes[] = {&vars[0]}, *reads[] = {&vars[2], &vars[3]};
    work w = {.out = 1, .in = {2, 3}, .factor = 1, .where = &streams[0]};
    fl_task t = {.name = "work",
                 .run = run_work,
                 .payload = &w,
                 .payload_size = sizeof w,
                 .reads = reads,
                 .writes = writes,
                 .read_count = 2,
                 .write_count = 1,
                 .lane = streams[0].lane};
    compare();
    writes[0] = &vars[1];
    oracle[1] = combined(oracle[2], 1, oracle[3]);
    CHECK(fl_engine_push(&t) == FL_OK);
    w.out = 0;
    w.factor = 3;
    w.back_off = 20000;
    t.run = run_waiting;
    writes[0] = &vars[0];
    oracle[0] = combined(oracle[2], 3, oracle[3]);
    CHECK(fl_engine_push(&t) == FL_OK);
    CHECK(fl_engine_wait_var(&vars[0]) == FL_OK);
    CHECK(values[0] == oracle[0]);
    compare();
}

static void memory_is_handed_over_in_order(void)
{
    static int64_t block, copy;
    fl_var var = {0}, target = {0};
    work w = {.out = 0};
    block = 5;
    job slow = {.out = &copy, .in = {&block, &block}, .factor = 1, .back_off = 20000};
    issue(&streams[1], slow); /* reads block, later */
    fl_var *reads[] = {&var}, *writes[] = {&target};
    fl_task t = {.name = "read",
                 .run = run_work,
                 .payload = &w,
                 .payload_size = sizeof w,
                 .reads = reads,
                 .writes = writes,
                 .read_count = 1,
                 .write_count = 1,
                 .lane = streams[1].lane};
    w = (work){.out = 0, .in = {1, 2}, .factor = 1, .where = &streams[1]};
    oracle[0] = combined(oracle[1], 1, oracle[2]);
    CHECK(fl_engine_push(&t) == FL_OK);
    CHECK(fl_engine_hand_over(&var, streams[0].lane) == FL_OK);
    job overwrite = {.out = &block, .in = {&values[1], &values[1]}, .factor = 0};
    issue(&streams[0], overwrite); /* in the order of stream 0 */
    compare();
    CHECK(fl_engine_wait_var(&target) == FL_OK);
    while (LOAD(streams[0].finished) < streams[0].issued) usleep(10);
    CHECK(copy == 10);
}

static void stop(void)
{
    fl_engine_stop();
    for (int i = 0; i < STREAMS; i++) {
        STORE(streams[i].quit, true);
        pthread_join(streams[i].thread, NULL);
    }
}

int main(void)
{
    start();
    RUN(random_work_over_streams);
    RUN(random_work_over_streams_and_the_host);
    RUN(waiting_for_one_value_is_enough);
    RUN(naive_mode_waits_for_each);
    RUN(ops_of_one_stream_cost_no_event);
    RUN(waiting_while_issuing_completes_no_later_op);
    RUN(memory_is_handed_over_in_order);
    stop();
    return finish();
}
