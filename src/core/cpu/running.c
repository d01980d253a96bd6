/*
** running.c -- see running.h: lines side by side are gone through row by row, a tile of them at once, and lines that
** lie one after the other four at once.
*/
#include "running.h"
#include "engine/team.h"

#include <math.h>

enum { TILE = 256, FOUR = 4 };

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

/* A task is a tile of lines that lie beside each other, of one outer position; where inner is 1, it is FOUR lines that
** lie one after the other. */
struct tasks {
    const fl_running_job *job;
    int64_t tiles; /* of one outer position */
};

static void run_task(const fl_running_job *job, int64_t first, int64_t count)
{
    if (job->dtype == FL_FLOAT32) piece_f32(job, first, count);
    else if (job->dtype == FL_FLOAT64) piece_f64(job, first, count);
    else piece_i64(job, first, count);
}

static inline int64_t at_most(int64_t limit, int64_t value) { return value < limit ? value : limit; }

static void run_tiles(void *context, int64_t begin, int64_t end)
{
    const struct tasks *t = context;
    const fl_running_job *job = t->job;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / t->tiles, first = i % t->tiles * TILE;
        run_task(job, outer * job->n * job->inner + first, at_most(TILE, job->inner - first));
    }
}

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const struct tasks *t = context;
    for (int64_t i = begin; i < end; i++)
        run_task(t->job, i * FOUR * t->job->n, at_most(FOUR, t->job->outer - i * FOUR));
}

void fl_cpu_running(const fl_running_job *job)
{
    struct tasks t = {job, (job->inner + TILE - 1) / TILE};
    double cost = (job->kind == FL_RUNNING_LOGSUMEXP ? 30 : 1.5) * (double)job->n;
    if (job->outer * job->n * job->inner == 0) return;
    if (job->inner > 1) fl_team_for(job->outer * t.tiles, cost * (double)at_most(TILE, job->inner), run_tiles, &t);
    else fl_team_for((job->outer + FOUR - 1) / FOUR, cost * FOUR, run_rows, &t);
}
