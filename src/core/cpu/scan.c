/*
** scan.c -- the driver of running sums.
**
** If neighbours in memory belong to different lines, a tile of lines is summed row by row; else lines are summed one
** by one. Few but long lines are cut into segments of a fixed size: their totals are found first, then every segment
** begins with the sum of the segments before it.
*/
#include "scan.h"
#include "reduce.h"
#include "base/axes.h"

#include <stdlib.h>

enum {
    SEGMENT = 32768, /* elements of a segment of one line, or of a tile of lines */
    MANY_TASKS = 16, /* enough lines to keep every thread busy: not cut */
    FEW_COLUMNS = 8, /* fewer neighbours are not worth going by rows */
    BATCH = 4096     /* elements of short lines that are one task */
};

/* A task is `count` lines, one beside the other along the last of the other axes. */
struct scan_job {
    const fl_copy_kernels *copy;
    const fl_scan_loops *loops;
    const fl_fold_loops *fold;
    fl_copy_through through;
    fl_dtype in_dtype, out_dtype;
    int64_t in_size, out_size; /* bytes of an element */
    char *out;
    const char *in;
    int64_t n, out_step, in_step; /* along a line, in bytes */
    fl_layout lines;              /* the other axes: out, in */
    bool rows;                    /* the lines of a task are summed row by row */
    int64_t count, tiles, tasks;  /* lines of a task (the last of an axis has fewer), tasks of an axis, tasks in all */
    int64_t segment, segments;    /* elements along a line; segments of one */
    int64_t *totals;              /* [segments][tasks][count]; doubles for floats */
};

/* ---- one segment of one task ---- */

struct piece {
    char *out;
    const char *in;
    int64_t n, lines, out_stride, in_stride; /* elements along the lines; lines, and bytes between them */
};

static struct piece piece_at(const struct scan_job *job, int64_t task, int64_t segment)
{
    const fl_layout *l = &job->lines;
    const fl_axis *last = &l->axes[l->count - 1];
    int64_t from = segment * job->segment, outer = task / job->tiles, first = task % job->tiles * job->count;
    struct piece p = {.n = job->n - from < job->segment ? job->n - from : job->segment,
                      .lines = last->size - first < job->count ? last->size - first : job->count,
                      .out_stride = last->stride[0],
                      .in_stride = last->stride[1]};
    p.out = job->out + from * job->out_step + first * p.out_stride;
    p.in = job->in + from * job->in_step + first * p.in_stride;
    for (int a = l->count - 2; a >= 0; a--) {
        int64_t at = outer % l->axes[a].size;
        outer /= l->axes[a].size;
        p.out += at * l->axes[a].stride[0];
        p.in += at * l->axes[a].stride[1];
    }
    return p;
}

/* True if elements are of the type that is added, and contiguous. */
static bool is_plain(const struct scan_job *job, fl_dtype dtype, int64_t stride)
{
    static const fl_dtype plain[FL_THROUGH_COUNT] = {
        [FL_THROUGH_INT64] = FL_INT64, [FL_THROUGH_FLOAT] = FL_FLOAT32, [FL_THROUGH_DOUBLE] = FL_FLOAT64};
    return dtype == plain[job->through] && stride == (int64_t)fl_dtype_size(dtype);
}

static void scan_line(const struct scan_job *job, int64_t *total, char *out, const char *in, int64_t n)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (is_plain(job, job->in_dtype, job->in_step) && is_plain(job, job->out_dtype, job->out_step)) {
        job->loops->line(total, out, in, n);
        return;
    }
    for (int64_t i = 0; i < n; i += FL_SCAN_TILE) {
        int64_t m = n - i < FL_SCAN_TILE ? n - i : FL_SCAN_TILE;
        job->copy->load[job->in_dtype](buffer, in + i * job->in_step, job->in_step, m);
        job->loops->line(total, buffer, buffer, m);
        job->copy->store[job->through][job->out_dtype](out + i * job->out_step, job->out_step, buffer, m);
    }
}

static void scan_rows(const struct scan_job *job, const struct piece *piece, int64_t *totals)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (is_plain(job, job->in_dtype, piece->in_stride) && is_plain(job, job->out_dtype, piece->out_stride)) {
        job->loops->rows(totals, piece->out, job->out_step, piece->in, job->in_step, piece->n, piece->lines);
        return;
    }
    for (int64_t i = 0; i < piece->n; i++) {
        job->copy->load[job->in_dtype](buffer, piece->in + i * job->in_step, piece->in_stride, piece->lines);
        job->loops->rows(totals, buffer, 0, buffer, 0, 1, piece->lines);
        job->copy->store[job->through][job->out_dtype](piece->out + i * job->out_step, piece->out_stride, buffer,
                                                       piece->lines);
    }
}

static void scan_piece(const struct scan_job *job, const struct piece *piece, int64_t *totals)
{
    if (job->rows) scan_rows(job, piece, totals);
    else
        for (int64_t i = 0; i < piece->lines; i++)
            scan_line(job, &totals[i], piece->out + i * piece->out_stride, piece->in + i * piece->in_stride, piece->n);
}

/* totals += the sums of the lines of a piece, whose elements are converted a tile at a time */
static void sum_piece(const struct scan_job *job, const struct piece *piece, int64_t *totals)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (job->rows && is_plain(job, job->in_dtype, piece->in_stride) && job->in_step % job->in_size == 0) {
        job->fold->columns(totals, piece->in, job->in_step / job->in_size, piece->n, piece->lines, NULL, 0);
        return;
    }
    int64_t runs = job->rows ? piece->n : piece->lines, run_stride = job->rows ? job->in_step : piece->in_stride;
    int64_t length = job->rows ? piece->lines : piece->n, stride = job->rows ? piece->in_stride : job->in_step;
    for (int64_t r = 0; r < runs; r++)
        for (int64_t i = 0; i < length; i += FL_SCAN_TILE) {
            int64_t n = length - i < FL_SCAN_TILE ? length - i : FL_SCAN_TILE;
            job->copy->load[job->in_dtype](buffer, piece->in + r * run_stride + i * stride, stride, n);
            if (job->rows) job->fold->columns(totals, buffer, 0, 1, n, NULL, 0);
            else job->fold->run(&totals[r], buffer, n, 0, 0);
        }
}

/* ---- all of them ---- */

static int64_t *totals_of(const struct scan_job *job, int64_t task, int64_t segment)
{
    return job->totals + (segment * job->tasks + task) * job->count;
}

static void sum_body(void *context, int64_t begin, int64_t end)
{
    const struct scan_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        struct piece p = piece_at(j, i % j->tasks, i / j->tasks);
        sum_piece(j, &p, totals_of(j, i % j->tasks, i / j->tasks));
    }
}

static void scan_body(void *context, int64_t begin, int64_t end)
{
    const struct scan_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t task = i % j->tasks, segment = i / j->tasks, own[FL_SCAN_TILE], *totals = own;
        struct piece p = piece_at(j, task, segment);
        if (j->totals) totals = totals_of(j, task, segment);
        else memset(own, 0, (size_t)p.lines * sizeof *own);
        scan_piece(j, &p, totals);
    }
}

/* The totals of all segments become what comes before each. */
static void carry_totals(const struct scan_job *job)
{
    int64_t each = job->tasks * job->count;
    for (int64_t i = 0; i < each; i++) {
        int64_t whole = 0;
        double real = 0;
        for (int64_t s = 0; s < job->segments; s++) {
            int64_t *at = job->totals + s * each + i;
            if (job->through == FL_THROUGH_INT64) {
                int64_t own = *at;
                *at = whole;
                whole = (int64_t)((uint64_t)whole + (uint64_t)own);
            } else {
                double own = *(double *)at;
                *(double *)at = real;
                real += own;
            }
        }
    }
}

static fl_status run_segments(struct scan_job *job, const char *who)
{
    size_t count = (size_t)(job->segments * job->tasks * job->count);
    double cost = (double)(job->segment * job->count) * 0.2;
    job->totals = calloc(count, sizeof *job->totals);
    if (!job->totals) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu totals", who, count);
    fl_team_for(job->tasks * (job->segments - 1), cost, sum_body, job);
    carry_totals(job);
    fl_team_for(job->tasks * job->segments, 3 * cost, scan_body, job);
    free(job->totals);
    return FL_OK;
}

/* ---- planning ---- */

static void choose_loops(struct scan_job *job)
{
    job->through = fl_copy_through_of(job->in_dtype);
    job->copy = FL_BY_LEVEL(fl_copy_kernels);
    job->loops = &FL_BY_LEVEL(fl_scan_table)->sum[job->through];
    job->fold = &FL_BY_LEVEL(fl_reduce_loops)->fold[job->through][FL_FOLD_SUM];
}

/* The axis becomes the line, the others the positions of lines. */
static void arrange_axes(struct scan_job *job, const fl_view *out, const fl_view *in, int axis, bool backwards)
{
    fl_layout *l = &job->lines;
    l->operands = 2;
    l->count = 0;
    job->n = 1;
    job->out_step = job->in_step = 0;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {out->size[a], {out->stride[a] * job->out_size, in->stride[a] * job->in_size}};
        if (a != axis) l->axes[l->count++] = own;
        else job->n = own.size, job->out_step = own.stride[0], job->in_step = own.stride[1];
    }
    fl_layout_simplify(l);
    if (l->count == 0) l->axes[l->count++] = (fl_axis){1, {0, 0}};
    if (!backwards) return;
    job->out += (job->n - 1) * job->out_step;
    job->in += (job->n - 1) * job->in_step;
    job->out_step = -job->out_step;
    job->in_step = -job->in_step;
}

/* Cuts the work by the sizes alone. */
static void plan_tasks(struct scan_job *job)
{
    const fl_layout *l = &job->lines;
    const fl_axis *last = &l->axes[l->count - 1];
    int64_t most = FL_SCAN_TILE;
    job->rows = last->size >= FEW_COLUMNS && last->stride[0] < fl_layout_magnitude(job->out_step);
    if (!job->rows) most = job->n >= BATCH ? 1 : BATCH / job->n < most ? BATCH / job->n : most;
    job->count = last->size < most ? last->size : most;
    job->tiles = (last->size + job->count - 1) / job->count;
    job->tasks = fl_layout_numel(l) / last->size * job->tiles;
    job->segment = job->n;
    job->segments = 1;
    if (job->tasks >= MANY_TASKS || job->n * job->count < 2 * SEGMENT) return;
    job->segment = SEGMENT / job->count;
    job->segments = (job->n + job->segment - 1) / job->segment;
}

fl_status fl_cpu_scan(const char *who, const fl_view *out, const fl_view *in, int axis, bool backwards)
{
    struct scan_job j = {.out = out->data,
                         .in = in->data,
                         .in_dtype = in->dtype,
                         .out_dtype = out->dtype,
                         .in_size = (int64_t)fl_dtype_size(in->dtype),
                         .out_size = (int64_t)fl_dtype_size(out->dtype)};
    if (out->numel == 0) return FL_OK;
    choose_loops(&j);
    arrange_axes(&j, out, in, axis, backwards);
    plan_tasks(&j);
    if (j.segments > 1) return run_segments(&j, who);
    fl_team_for(j.tasks, 10 + (double)(j.n * j.count) * 0.6, scan_body, &j);
    return FL_OK;
}
