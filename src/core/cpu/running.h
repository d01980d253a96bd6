/*
** running.h -- running products, extremes, sums of exponentials and linear recurrences on the CPU.
**
** Floats are carried in double, integers in int64, and each line by one thread: a result depends on nothing else.
*/
#ifndef FL_CPU_RUNNING_H
#define FL_CPU_RUNNING_H

#include "cpu.h"
#include "op/running.h"

/* Arrays [outer, n, inner] of dtype, which is float32, float64 or int64. */
typedef struct fl_running_job {
    fl_running kind;
    fl_dtype dtype;
    bool backwards;
    int64_t outer, n, inner;
    void *out;
    int64_t *positions; /* of extremes */
    const void *in, *factor;
} fl_running_job;

void fl_cpu_running(const fl_running_job *job);

#endif
