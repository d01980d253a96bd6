/*
** lanes.h -- what the tests of the engine share: lanes of each kind, and ops that wait, count or fail.
**
** Ops are functions over small payloads. Lanes are made once: four threaded, two driven, one of each kind
** with a ring of 4, three that share a thread.
*/
#ifndef LANES_H
#define LANES_H

#include "check.h"
#include "core/engine/control.h"
#include "core/engine/engine.h"

#include <unistd.h>

enum { THREADED = 4, DRIVEN = 2, SHARED = 3 };
static int threaded[THREADED], driven[DRIVEN], short_threaded, short_driven;
static int shared[SHARED]; /* by priority, the highest first */

typedef struct vars {
    int count;
    fl_var *at[20];
} vars;
#define VARS(...) ((vars){(int)(sizeof((fl_var *[]){__VA_ARGS__}) / sizeof(fl_var *)), {__VA_ARGS__}})
#define NO_VARS ((vars){0, {NULL}})

static inline fl_status push(const char *name, int lane, unsigned flags, fl_exec run, const void *payload, size_t size,
                             vars reads, vars writes)
{
    fl_task t = {.name = name,
                 .run = run,
                 .payload = payload,
                 .payload_size = size,
                 .reads = reads.at,
                 .writes = writes.at,
                 .read_count = reads.count,
                 .write_count = writes.count,
                 .lane = lane,
                 .flags = flags};
    return fl_engine_push(&t);
}

static inline void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }
static inline int get(int *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
static inline void set(int *place, int value) { __atomic_store_n(place, value, __ATOMIC_SEQ_CST); }

static inline fl_status op_nothing(void *payload) { return FL_OK; }
static inline fl_status op_boom(void *payload) { return fl_fail(FL_ERR_VALUE, "matmul: boom"); }
static inline fl_status op_sleep(void *payload)
{
    sleep_ms(*(int *)payload);
    return FL_OK;
}
static inline fl_status op_count(void *payload)
{
    __atomic_add_fetch(*(int **)payload, 1, __ATOMIC_SEQ_CST);
    return FL_OK;
}

/* Waits until *gate is 1, at most 10 s. */
static inline fl_status op_gate(void *payload)
{
    int *gate = *(int **)payload;
    for (int i = 0; i < 10000 && !get(gate); i++) sleep_ms(1);
    return FL_OK;
}

static inline fl_status push_nothing(int lane, unsigned flags, vars reads, vars writes)
{
    return push("nothing", lane, flags, op_nothing, NULL, 0, reads, writes);
}
static inline fl_status push_gate(int lane, int *gate, vars reads, vars writes)
{
    return push("gate", lane, 0, op_gate, &gate, sizeof gate, reads, writes);
}
static inline fl_status push_boom(int lane, vars writes)
{
    return push("matmul", lane, 0, op_boom, NULL, 0, NO_VARS, writes);
}

static inline void make_lanes(void)
{
    for (int i = 0; i < THREADED; i++) CHECK(fl_engine_lane_new(&threaded[i], "threaded", 0, true) == FL_OK);
    for (int i = 0; i < DRIVEN; i++) CHECK(fl_engine_lane_new(&driven[i], "driven", 0, false) == FL_OK);
    CHECK(fl_engine_lane_new(&short_threaded, "short", 4, true) == FL_OK);
    CHECK(fl_engine_lane_new(&short_driven, "short", 4, false) == FL_OK);
    CHECK(fl_engine_lanes_new(shared, (const char *[]){"first", "middle", "last"}, SHARED, 16) == FL_OK);
}

#endif
