/*
** pool.c -- pooling with the team: see pool.h. Loops that write y are cut by rows of y, those that write x by planes.
*/
#include "pool.h"
#include "memory/scratch.h"
#include "stage.h"

static const double NS_PER_TAP = 0.3, NS_PER_POSITION = 1.5;

/* One call, as its rows see it. x and y: whichever of them is read is not written. */
struct job {
    const fl_pool *p;
    int type;    /* of fl_pool_kernels */
    size_t item; /* bytes of an element */
    char *x, *y;
    int32_t *taps;
    fl_pool_taps where;
    fl_pool_mean mean;
    void (*row)(const struct job *job, char *x, char *y, int32_t *taps, int64_t row);
};

static struct job job_of(fl_dtype dtype, const fl_pool *pool, const void *x, const void *y, const int32_t *taps)
{
    return (struct job){.p = pool,
                        .type = dtype == FL_FLOAT64,
                        .item = fl_dtype_size(dtype),
                        .x = (char *)x,
                        .y = (char *)y,
                        .taps = (int32_t *)taps};
}

/* ---- one row ---- */

static void max_row(const struct job *job, char *x, char *y, int32_t *taps, int64_t row)
{
    FL_BY_LEVEL(fl_pool_kernels)->max[job->type](y, taps, x, job->p, row);
}

static void gather_row(const struct job *job, char *x, char *y, int32_t *taps, int64_t row)
{
    FL_BY_LEVEL(fl_pool_kernels)->gather[job->type](y, x, taps, job->p, &job->where, row);
}

static void scatter_row(const struct job *job, char *x, char *y, int32_t *taps, int64_t row)
{
    FL_BY_LEVEL(fl_pool_kernels)->scatter[job->type](x, y, taps, job->p, &job->where, row);
}

static void average_row(const struct job *job, char *x, char *y, int32_t *taps, int64_t row)
{
    FL_BY_LEVEL(fl_pool_kernels)->average[job->type](y, x, job->p, job->mean, row);
}
static void spread_row(const struct job *job, char *x, char *y, int32_t *taps, int64_t row)
{
    FL_BY_LEVEL(fl_pool_kernels)->spread[job->type](x, y, job->p, job->mean, row);
}

/* ---- all rows ---- */

static void rows_part(void *context, int64_t from, int64_t to)
{
    const struct job *j = context;
    int64_t rows = j->p->y_size[0], wide = j->p->y_size[1], plane = fl_pool_x_plane(j->p);
    for (int64_t i = from; i < to; i++)
        j->row(j, j->x + (size_t)(i / rows * plane) * j->item, j->y + (size_t)(i * wide) * j->item,
               j->taps ? j->taps + i * wide : NULL, i % rows);
}

static void planes_part(void *context, int64_t from, int64_t to)
{
    const struct job *j = context;
    int64_t plane = fl_pool_x_plane(j->p), rows = j->p->y_size[0];
    memset(j->x + (size_t)(from * plane) * j->item, 0, (size_t)((to - from) * plane) * j->item);
    rows_part(context, from * rows, to * rows);
}

static void run_rows(struct job *job, double ns_per_window)
{
    fl_team_for(job->p->planes * job->p->y_size[0], ns_per_window * (double)job->p->y_size[1], rows_part, job);
}

static void run_planes(struct job *job, double ns_per_window)
{
    double ns = ns_per_window * (double)fl_pool_y_plane(job->p) + 0.1 * (double)fl_pool_x_plane(job->p);
    fl_team_for(job->p->planes, ns, planes_part, job);
}

static double ns_of_taps(const fl_pool *pool)
{
    return NS_PER_TAP * (double)pool->window.size[0] * (double)pool->window.size[1];
}

/* The taps of a window, in scratch memory. */
static fl_status taps_open(fl_pool_taps *where, const fl_pool *pool)
{
    const fl_window_geometry *w = &pool->window;
    where->count = w->size[0] * w->size[1];
    where->row = fl_scratch(FL_KERNEL_SCRATCH, 2 * sizeof(int32_t) * (size_t)where->count);
    if (!where->row) return fl_fail(FL_ERR_MEMORY, "max_pool2d: out of memory for %lld taps", (long long)where->count);
    where->column = where->row + where->count;
    for (int64_t i = 0; i < where->count; i++) {
        where->row[i] = (int32_t)(i / w->size[1] * w->dilation[0]);
        where->column[i] = (int32_t)(i % w->size[1] * w->dilation[1]);
    }
    return FL_OK;
}

void fl_cpu_pool_max(fl_dtype dtype, const fl_pool *pool, void *y, int32_t *taps, const void *x)
{
    struct job j = job_of(dtype, pool, x, y, taps);
    j.row = max_row;
    run_rows(&j, ns_of_taps(pool));
}

fl_status fl_cpu_pool_gather(fl_dtype dtype, const fl_pool *pool, void *y, const void *x, const int32_t *taps)
{
    struct job j = job_of(dtype, pool, x, y, taps);
    j.row = gather_row;
    FL_TRY(taps_open(&j.where, pool));
    run_rows(&j, NS_PER_POSITION);
    return FL_OK;
}

fl_status fl_cpu_pool_scatter(fl_dtype dtype, const fl_pool *pool, void *x, const void *y, const int32_t *taps)
{
    struct job j = job_of(dtype, pool, x, y, taps);
    j.row = scatter_row;
    FL_TRY(taps_open(&j.where, pool));
    run_planes(&j, NS_PER_POSITION);
    return FL_OK;
}

void fl_cpu_pool_average(fl_dtype dtype, const fl_pool *pool, fl_pool_mean mean, void *y, const void *x)
{
    struct job j = job_of(dtype, pool, x, y, NULL);
    j.row = average_row;
    j.mean = mean;
    run_rows(&j, ns_of_taps(pool));
}

void fl_cpu_pool_spread(fl_dtype dtype, const fl_pool *pool, fl_pool_mean mean, void *x, const void *y)
{
    struct job j = job_of(dtype, pool, x, y, NULL);
    j.row = spread_row;
    j.mean = mean;
    run_planes(&j, ns_of_taps(pool));
}
