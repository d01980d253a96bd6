/*
** running.c -- see running.h: lines side by side are gone through row by row, a tile of them at once.
*/
#include "running.h"
#include "engine/team.h"

#include <math.h>

enum { TILE = 256, BATCH = 4096 };

static inline double log_of_sum(double a, double b)
{
    double high = a > b || a != a ? a : b, apart = fabs(a - b);
    return a == b && isinf(a) ? a : high + log1p(exp(-apart));
}

#define T float
#define FN(name) name##_f32
#define IS_NAN(x) ((x) != (x))
#define W double
#include "running.inc"

#define T double
#define FN(name) name##_f64
#define IS_NAN(x) ((x) != (x))
#define W double
#include "running.inc"

#define T int64_t
#define FN(name) name##_i64
#define IS_NAN(x) false
#define W int64_t
#define IS_INTEGER
#include "running.inc"

/* A task is a tile of neighbouring lines, or a batch of lines that lie one after the other. */
struct tasks {
    const fl_running_job *job;
    int64_t tiles, lines; /* of one outer position; lines of a tile */
};

static void run_tasks(void *context, int64_t begin, int64_t end)
{
    const struct tasks *t = context;
    const fl_running_job *job = t->job;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / t->tiles, first = i % t->tiles * t->lines, left = job->inner - first;
        int64_t count = left < t->lines ? left : t->lines, at = outer * job->n * job->inner + first;
        if (job->dtype == FL_FLOAT32) piece_f32(job, at, count);
        else if (job->dtype == FL_FLOAT64) piece_f64(job, at, count);
        else piece_i64(job, at, count);
    }
}

void fl_cpu_running(const fl_running_job *job)
{
    struct tasks t = {job, (job->inner + TILE - 1) / TILE, job->inner < TILE ? job->inner : TILE};
    double cost = job->kind == FL_RUNNING_LOGSUMEXP ? 30 : 1.5;
    if (job->outer * job->n * job->inner == 0) return;
    fl_team_for(job->outer * t.tiles, cost * (double)(job->n * t.lines), run_tasks, &t);
}
