/*
** scan.c -- the driver of running sums.
**
** Where neighbours in memory belong to different lines, a tile of lines is summed row by row; else lines are summed one
** by one. Few but long lines are cut into segments of a fixed size: their totals are found first, then every segment
** begins with what the segments before it add up to.
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
typedef struct scan_job {
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
} scan_job;

/* ---- one segment of one task ---- */

typedef struct piece {
    char *out;
    const char *in;
    int64_t n, lines, out_stride, in_stride; /* elements along the lines; lines, and bytes between them */
} piece;

static piece piece_at(const scan_job *j, int64_t task, int64_t segment)
{
    const fl_layout *l = &j->lines;
    const fl_axis *last = &l->axes[l->count - 1];
    int64_t from = segment * j->segment, outer = task / j->tiles, first = task % j->tiles * j->count;
    piece p = {.n = j->n - from < j->segment ? j->n - from : j->segment,
               .lines = last->size - first < j->count ? last->size - first : j->count,
               .out_stride = last->stride[0],
               .in_stride = last->stride[1]};
    p.out = j->out + from * j->out_step + first * p.out_stride;
    p.in = j->in + from * j->in_step + first * p.in_stride;
    for (int a = l->count - 2; a >= 0; a--) {
        int64_t at = outer % l->axes[a].size;
        outer /= l->axes[a].size;
        p.out += at * l->axes[a].stride[0];
        p.in += at * l->axes[a].stride[1];
    }
    return p;
}

/* True if elements are of the type that is added, and contiguous. */
static bool is_plain(const scan_job *j, fl_dtype dtype, int64_t stride)
{
    static const fl_dtype plain[FL_THROUGH_COUNT] = {
        [FL_THROUGH_INT64] = FL_INT64, [FL_THROUGH_FLOAT] = FL_FLOAT32, [FL_THROUGH_DOUBLE] = FL_FLOAT64};
    return dtype == plain[j->through] && stride == (int64_t)fl_dtype_size(dtype);
}

static void scan_line(const scan_job *j, int64_t *total, char *out, const char *in, int64_t n)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (is_plain(j, j->in_dtype, j->in_step) && is_plain(j, j->out_dtype, j->out_step)) {
        j->loops->line(total, out, in, n);
        return;
    }
    for (int64_t i = 0; i < n; i += FL_SCAN_TILE) {
        int64_t m = n - i < FL_SCAN_TILE ? n - i : FL_SCAN_TILE;
        j->copy->load[j->in_dtype](buffer, in + i * j->in_step, j->in_step, m);
        j->loops->line(total, buffer, buffer, m);
        j->copy->store[j->through][j->out_dtype](out + i * j->out_step, j->out_step, buffer, m);
    }
}

static void scan_rows(const scan_job *j, const piece *p, int64_t *totals)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (is_plain(j, j->in_dtype, p->in_stride) && is_plain(j, j->out_dtype, p->out_stride)) {
        j->loops->rows(totals, p->out, j->out_step, p->in, j->in_step, p->n, p->lines);
        return;
    }
    for (int64_t i = 0; i < p->n; i++) {
        j->copy->load[j->in_dtype](buffer, p->in + i * j->in_step, p->in_stride, p->lines);
        j->loops->rows(totals, buffer, 0, buffer, 0, 1, p->lines);
        j->copy->store[j->through][j->out_dtype](p->out + i * j->out_step, p->out_stride, buffer, p->lines);
    }
}

static void scan_piece(const scan_job *j, const piece *p, int64_t *totals)
{
    if (j->rows) scan_rows(j, p, totals);
    else
        for (int64_t i = 0; i < p->lines; i++)
            scan_line(j, &totals[i], p->out + i * p->out_stride, p->in + i * p->in_stride, p->n);
}

/* totals += the sums of the lines of a piece, whose elements are converted a tile at a time */
static void sum_piece(const scan_job *j, const piece *p, int64_t *totals)
{
    _Alignas(64) int64_t buffer[FL_SCAN_TILE];
    if (j->rows && is_plain(j, j->in_dtype, p->in_stride) && j->in_step % j->in_size == 0) {
        j->fold->columns(totals, p->in, j->in_step / j->in_size, p->n, p->lines, NULL, 0);
        return;
    }
    int64_t runs = j->rows ? p->n : p->lines, run_stride = j->rows ? j->in_step : p->in_stride;
    int64_t length = j->rows ? p->lines : p->n, stride = j->rows ? p->in_stride : j->in_step;
    for (int64_t r = 0; r < runs; r++)
        for (int64_t i = 0; i < length; i += FL_SCAN_TILE) {
            int64_t n = length - i < FL_SCAN_TILE ? length - i : FL_SCAN_TILE;
            j->copy->load[j->in_dtype](buffer, p->in + r * run_stride + i * stride, stride, n);
            if (j->rows) j->fold->columns(totals, buffer, 0, 1, n, NULL, 0);
            else j->fold->run(&totals[r], buffer, n, 0, 0);
        }
}

/* ---- all of them ---- */

static int64_t *totals_of(const scan_job *j, int64_t task, int64_t segment)
{
    return j->totals + (segment * j->tasks + task) * j->count;
}

static void sum_body(void *context, int64_t begin, int64_t end)
{
    const scan_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        piece p = piece_at(j, i % j->tasks, i / j->tasks);
        sum_piece(j, &p, totals_of(j, i % j->tasks, i / j->tasks));
    }
}

static void scan_body(void *context, int64_t begin, int64_t end)
{
    const scan_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t task = i % j->tasks, segment = i / j->tasks, own[FL_SCAN_TILE], *totals = own;
        piece p = piece_at(j, task, segment);
        if (j->totals) totals = totals_of(j, task, segment);
        else memset(own, 0, (size_t)p.lines * sizeof *own);
        scan_piece(j, &p, totals);
    }
}

/* The totals of all segments become what comes before each. */
static void carry_totals(const scan_job *j)
{
    int64_t each = j->tasks * j->count;
    for (int64_t i = 0; i < each; i++) {
        int64_t whole = 0;
        double real = 0;
        for (int64_t s = 0; s < j->segments; s++) {
            int64_t *at = j->totals + s * each + i;
            if (j->through == FL_THROUGH_INT64) {
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

static fl_status run_segments(scan_job *j, const char *who)
{
    size_t count = (size_t)(j->segments * j->tasks * j->count);
    double cost = (double)(j->segment * j->count) * 0.2;
    j->totals = calloc(count, sizeof *j->totals);
    if (!j->totals) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu totals", who, count);
    fl_team_for(j->tasks * (j->segments - 1), cost, sum_body, j);
    carry_totals(j);
    fl_team_for(j->tasks * j->segments, 3 * cost, scan_body, j);
    free(j->totals);
    return FL_OK;
}

/* ---- planning ---- */

static void choose_loops(scan_job *j)
{
    j->through = fl_copy_through_of(j->in_dtype);
    j->copy = FL_BY_LEVEL(fl_copy_kernels);
    j->loops = &FL_BY_LEVEL(fl_scan_table)->sum[j->through];
    j->fold = &FL_BY_LEVEL(fl_reduce_loops)->fold[j->through][FL_FOLD_SUM];
}

/* The axis becomes the line, the others say where lines are. */
static void arrange_axes(scan_job *j, const fl_view *out, const fl_view *in, int axis, bool backwards)
{
    fl_layout *l = &j->lines;
    l->operands = 2;
    l->count = 0;
    j->n = 1;
    j->out_step = j->in_step = 0;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {out->size[a], {out->stride[a] * j->out_size, in->stride[a] * j->in_size}};
        if (a != axis) l->axes[l->count++] = own;
        else j->n = own.size, j->out_step = own.stride[0], j->in_step = own.stride[1];
    }
    fl_layout_simplify(l);
    if (l->count == 0) l->axes[l->count++] = (fl_axis){1, {0, 0}};
    if (!backwards) return;
    j->out += (j->n - 1) * j->out_step;
    j->in += (j->n - 1) * j->in_step;
    j->out_step = -j->out_step;
    j->in_step = -j->in_step;
}

/* Cuts the work by the sizes alone. */
static void plan_tasks(scan_job *j)
{
    const fl_layout *l = &j->lines;
    const fl_axis *last = &l->axes[l->count - 1];
    int64_t most = FL_SCAN_TILE;
    j->rows = last->size >= FEW_COLUMNS && last->stride[0] < fl_layout_magnitude(j->out_step);
    if (!j->rows) most = j->n >= BATCH ? 1 : BATCH / j->n < most ? BATCH / j->n : most;
    j->count = last->size < most ? last->size : most;
    j->tiles = (last->size + j->count - 1) / j->count;
    j->tasks = fl_layout_numel(l) / last->size * j->tiles;
    j->segment = j->n;
    j->segments = 1;
    if (j->tasks >= MANY_TASKS || j->n * j->count < 2 * SEGMENT) return;
    j->segment = SEGMENT / j->count;
    j->segments = (j->n + j->segment - 1) / j->segment;
}

fl_status fl_cpu_scan(const char *who, const fl_view *out, const fl_view *in, int axis, bool backwards)
{
    scan_job j = {.out = out->data,
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
