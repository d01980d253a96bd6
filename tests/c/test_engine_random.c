/*
** test_engine_random.c -- random workloads through the engine against the same ones in order.
*/
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

enum { WORK_VARS = 100, WORK_OPS = 10000, WORK_READS = 19 };
typedef struct work {
    double *data;
    int write, update, delay, count, reads[WORK_READS];
} work;

static fl_status op_work(void *payload)
{
    const work *w = payload;
    double sum = w->update ? w->data[w->write] : 1;
    for (int i = 0; i < w->count; i++) sum += w->data[w->reads[i]] * (i + 1);
    for (volatile int i = 0; i < w->delay; i++) continue;
    w->data[w->write] = sum / (1 + w->count * w->count);
    return FL_OK;
}

static unsigned random_state;
static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (unsigned)n);
}

static void random_work(work *w, double *data)
{
    *w = (work){.data = data, .write = random_below(WORK_VARS), .update = random_below(2)};
    w->delay = random_below(8) ? 0 : random_below(3000);
    int reads = 2 + random_below(18);
    for (int i = 0; i < reads; i++) {
        int r = random_below(WORK_VARS), fresh = r != w->write;
        for (int j = 0; j < w->count; j++) fresh &= w->reads[j] != r;
        if (fresh) w->reads[w->count++] = r;
    }
}

static void push_work(const work *w, fl_var *v, const int *lanes, int lane_count)
{
    vars reads = {.count = w->count}, writes = VARS(&v[w->write]);
    for (int i = 0; i < w->count; i++) reads.at[i] = &v[w->reads[i]];
    unsigned flags = (random_below(2) ? FL_TASK_CHEAP : 0) | (w->update ? FL_TASK_UPDATES : 0);
    CHECK(push("work", lanes[random_below(lane_count)], flags, op_work, w, sizeof *w, reads, writes) == FL_OK);
    if (!random_below(50)) CHECK(fl_engine_wait_var(&v[random_below(WORK_VARS)]) == FL_OK);
}

/* The same program serially and through the engine, on these lanes. */
static void compare_workload(unsigned seed, const int *lanes, int lane_count)
{
    static double data[WORK_VARS], oracle[WORK_VARS];
    static work program_of[WORK_OPS];
    static fl_var v[WORK_VARS];
    random_state = seed;
    memset(v, 0, sizeof v);
    for (int i = 0; i < WORK_VARS; i++) data[i] = oracle[i] = 1;
    for (int i = 0; i < WORK_OPS; i++) {
        random_work(&program_of[i], oracle);
        op_work(&program_of[i]);
        program_of[i].data = data;
    }
    for (int i = 0; i < WORK_OPS; i++) push_work(&program_of[i], v, lanes, lane_count);
    CHECK(fl_engine_wait_all() == FL_OK);
    CHECK(!memcmp(data, oracle, sizeof data));
    for (int i = 0; i < WORK_VARS; i++) CHECK(fl_var_settle(&v[i]) && !v[i].poison);
}

static void random_on_one_lane(void) { compare_workload(1, threaded, 1); }
static void random_on_two_lanes(void) { compare_workload(2, threaded, 2); }
static void random_on_four_lanes(void) { compare_workload(3, threaded, 4); }

static void random_with_driven_lanes(void)
{
    int lanes[] = {threaded[0], driven[0], threaded[1], driven[1], FL_LANE_CPU, FL_LANE_IO};
    compare_workload(4, lanes, 2);
    compare_workload(5, lanes, 4);
    compare_workload(6, lanes, 6);
}

static void random_with_short_rings(void)
{
    int lanes[] = {short_threaded, short_driven, threaded[0], FL_LANE_CPU};
    compare_workload(7, lanes, 4);
}

static void random_with_priorities(void)
{
    int lanes[] = {shared[2], shared[0], shared[1], threaded[0], driven[0], FL_LANE_CPU};
    compare_workload(11, lanes, 2);
    compare_workload(12, lanes, 3);
    compare_workload(13, lanes, 6);
}

static void random_in_other_modes(void)
{
    int lanes[] = {FL_LANE_CPU, threaded[0], driven[0], FL_LANE_COMM, shared[0], shared[2]};
    fl_engine_mode_set(FL_ENGINE_QUEUED);
    compare_workload(8, lanes, 1);
    compare_workload(9, lanes, 6);
    fl_engine_mode_set(FL_ENGINE_NAIVE);
    compare_workload(10, lanes, 6);
    fl_engine_mode_set(FL_ENGINE_AUTO);
}

int main(void)
{
    alarm(300);
    fl_engine_mode_set(FL_ENGINE_AUTO);
    make_lanes();
    RUN(random_on_one_lane);
    RUN(random_on_two_lanes);
    RUN(random_on_four_lanes);
    RUN(random_with_driven_lanes);
    RUN(random_with_short_rings);
    RUN(random_with_priorities);
    RUN(random_in_other_modes);
    fl_engine_stop();
    return finish();
}
