/*
** pad.c -- padding row by row: see pad.h.
**
** The source of each position of an axis is computed once, as an offset in bytes. A row is a run of x and the padding
** before and behind it, so each element is written once, in whatever dtype.
*/
#include "pad.h"
#include "memory/scratch.h"
#include "stage.h"

enum { SHORT = 64 }; /* bytes of a run that are copied here, not by a call */

static const int64_t OUTSIDE = INT64_MIN; /* of a position that has the value */

struct job {
    int rows; /* axes of rows: all but the last */
    const int64_t *sizes;
    char *out;
    const char *x;
    int64_t out_stride[FL_MAX_NDIM], x_step; /* in bytes; the last axis of x */
    const int64_t *from[FL_MAX_NDIM];        /* offsets in x of the positions of an axis; the last axis: all of it */
    int64_t before, inside, width;           /* elements of a row before the run, of the run, of the row */
    size_t item;
    const void *value;
};

/* ---- sources of positions ---- */

static int64_t source_of(int64_t at, int64_t n, fl_pad_rule rule)
{
    if (at >= 0 && at < n) return at;
    switch (rule) {
    case FL_PAD_REFLECT: return at < 0 ? -at : 2 * n - 2 - at;
    case FL_PAD_REPLICATE: return at < 0 ? 0 : n - 1;
    case FL_PAD_CIRCULAR: return at < 0 ? at + n : at - n;
    default: return -1;
    }
}

static fl_status open_offsets(struct job *job, const fl_view *out, const fl_view *x, const int64_t *before,
                              fl_pad_rule rule)
{
    int64_t total = 0;
    for (int a = 0; a < out->ndim; a++) total += out->size[a];
    int64_t *offsets = fl_scratch(FL_KERNEL_SCRATCH, sizeof *offsets * (size_t)total);
    if (!offsets)
        return fl_fail(FL_ERR_MEMORY, "pad: out of memory for the offsets of %lld positions", (long long)total);
    for (int a = 0; a < out->ndim; a++) {
        int64_t stride = x->stride[a] * (int64_t)job->item;
        job->from[a] = offsets;
        for (int64_t i = 0; i < out->size[a]; i++) {
            int64_t at = source_of(i - before[a], x->size[a], rule);
            *offsets++ = at < 0 ? OUTSIDE : at * stride;
        }
    }
    return FL_OK;
}

/* ---- one row; `item` is a constant where they are called ---- */

static inline __attribute__((always_inline)) void copy_run(char *out, const char *x, int64_t bytes)
{
    enum { CHUNK = 16 };
    if (bytes > SHORT || bytes < CHUNK) {
        memcpy(out, x, (size_t)bytes);
        return;
    }
    for (int64_t i = 0; i + CHUNK <= bytes; i += CHUNK) memcpy(out + i, x + i, CHUNK);
    memcpy(out + bytes - CHUNK, x + bytes - CHUNK, CHUNK);
}

/* Positions [from, to) of a row. x NULL: they have the value. */
static inline __attribute__((always_inline)) void fill_part(const struct job *job, char *out, const char *x,
                                                            int64_t from, int64_t to, size_t item)
{
    const int64_t *offsets = job->from[job->rows];
    for (int64_t i = from; i < to; i++) memcpy(out + i * (int64_t)item, x ? x + offsets[i] : job->value, item);
}

static inline __attribute__((always_inline)) void pad_row(const struct job *job, char *out, const char *x, size_t item)
{
    const char *around = job->value ? NULL : x;
    if (!x) {
        fill_part(job, out, NULL, 0, job->width, item);
        return;
    }
    fill_part(job, out, around, 0, job->before, item);
    char *run = out + job->before * (int64_t)item;
    if (job->x_step == (int64_t)item) copy_run(run, x, job->inside * (int64_t)item);
    else
        for (int64_t i = 0; i < job->inside; i++) memcpy(run + i * (int64_t)item, x + i * job->x_step, item);
    fill_part(job, out, around, job->before + job->inside, job->width, item);
}

/* ---- all rows ---- */

/* The rows [begin, end), neighbours along the last axis of rows. */
static inline __attribute__((always_inline)) void pad_rows(const struct job *shared, int64_t begin, int64_t end,
                                                           size_t item)
{
    const struct job own = *shared, *job = &own; /* a copy that stores to out cannot alias */
    int last = job->rows - 1;
    int64_t beside = last < 0 ? 1 : job->sizes[last];
    while (begin < end) {
        int64_t first = begin % beside, stop = first + end - begin < beside ? first + end - begin : beside,
                rest = begin / beside;
        char *out = job->out;
        const char *x = job->x;
        for (int a = last - 1; a >= 0; a--) {
            int64_t at = rest % job->sizes[a], from = job->from[a][at];
            rest /= job->sizes[a];
            out += at * job->out_stride[a];
            x = x && from != OUTSIDE ? x + from : NULL;
        }
        for (int64_t i = first; i < stop; i++) {
            int64_t from = last < 0 ? 0 : job->from[last][i];
            pad_row(job, last < 0 ? out : out + i * job->out_stride[last], x && from != OUTSIDE ? x + from : NULL,
                    item);
        }
        begin += stop - first;
    }
}

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    switch (job->item) {
    case 1: pad_rows(job, begin, end, 1); break;
    case 2: pad_rows(job, begin, end, 2); break;
    case 4: pad_rows(job, begin, end, 4); break;
    default: pad_rows(job, begin, end, 8);
    }
}

/* A row of one position stands for a tensor without axes. */
fl_status fl_cpu_pad(const fl_view *out, const fl_view *x, const int64_t *before, fl_pad_rule rule, const void *value)
{
    int last = out->ndim - 1;
    if (out->numel == 0) return FL_OK;
    if (last < 0) return fl_cpu_copy(out, x);
    if (x->numel == 0) return fl_cpu_fill(out, value);
    struct job j = {.rows = last,
                    .sizes = out->size,
                    .out = out->data,
                    .x = x->data,
                    .item = fl_dtype_size(out->dtype),
                    .before = before[last],
                    .inside = x->size[last],
                    .width = out->size[last],
                    .value = rule == FL_PAD_VALUE ? value : NULL};
    for (int a = 0; a < out->ndim; a++) j.out_stride[a] = out->stride[a] * (int64_t)j.item;
    j.x_step = x->stride[last] * (int64_t)j.item;
    FL_TRY(open_offsets(&j, out, x, before, rule));
    fl_team_for(out->numel / j.width, 5 + 0.1 * (double)(j.width * (int64_t)j.item), rows_part, &j);
    return FL_OK;
}
