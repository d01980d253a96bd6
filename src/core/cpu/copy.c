/*
** copy.c -- copies between any two layouts and dtypes; permute-to-contiguous lives here.
**
** Axes are sorted by the output's strides and merged where both sides allow, and a short run that is contiguous on
** both sides becomes one wider element. The remainder is one of: rows to be moved whole, a batch of
** transposes (in tiles; large ones through a buffer that fits the L2 cache, written past the caches so that
** power-of-two strides do no harm), or lines with any strides.
*/
#include "copy.h"
#include "convert.h"
#include "base/axes.h"
#include "memory/scratch.h"

enum {
    LINE = 16384,          /* elements of a long line that one unit of work takes */
    CONVERT = 512,         /* elements converted through a buffer at a time */
    STREAM_FROM = 8 << 20, /* bytes from which the caches are bypassed */
    SMALL_TILE = 64,       /* transposes in the caches: tile side */
    LARGE_TILE = 256       /* transposes in memory: tile side, 256 KiB of floats */
};

struct axis {
    int64_t size, in, out; /* strides in bytes */
};

struct job {
    const fl_copy_kernels *kernels;
    char *out;
    const char *in;
    int count; /* axes, outermost first in the output */
    struct axis axes[2 * FL_MAX_NDIM + 1];
    int width; /* log2 of the bytes of an element; -1: dtypes differ */
    fl_dtype in_dtype, out_dtype;
    bool rows;   /* the innermost axis is contiguous on both sides */
    bool stream; /* bypass the caches */
    int tile;    /* of transposes: side, and tiles along both axes */
    int64_t row_tiles, column_tiles;
};

/* The axes of both sides, simplified. */
static void collect_axes(struct job *job, const fl_view *out, const fl_view *in)
{
    int64_t out_width = (int64_t)fl_dtype_size(out->dtype), in_width = (int64_t)fl_dtype_size(in->dtype);
    fl_layout l;
    l.operands = 2;
    l.count = out->ndim;
    for (int i = 0; i < out->ndim; i++)
        l.axes[i] = (fl_axis){out->size[i], {out->stride[i] * out_width, in->stride[i] * in_width}};
    fl_layout_simplify(&l);
    for (int i = 0; i < l.count; i++)
        job->axes[i] = (struct axis){l.axes[i].size, l.axes[i].stride[1], l.axes[i].stride[0]};
    job->count = l.count;
}

/* A run that is contiguous on both sides and 2, 4, 8 or 16 bytes long becomes the element. */
static void widen(struct job *job)
{
    while (job->count > 0) {
        const struct axis *last = &job->axes[job->count - 1];
        int64_t width = (int64_t)1 << job->width;
        if (last->in != width || last->out != width) return;
        int64_t run = last->size * width;
        if (run > 16 || (run & (run - 1))) return;
        job->width = __builtin_ctzll((unsigned long long)run);
        job->count--;
    }
}

/* Adds the offsets of position `index` over the first `count` axes, in bytes. */
static void locate(const struct job *job, int count, int64_t index, char **out, const char **in)
{
    for (int i = count - 1; i >= 0; i--) {
        int64_t at = index % job->axes[i].size;
        index /= job->axes[i].size;
        *out += at * job->axes[i].out;
        *in += at * job->axes[i].in;
    }
}

static int64_t positions(const struct job *job, int count)
{
    int64_t n = 1;
    for (int i = 0; i < count; i++) n *= job->axes[i].size;
    return n;
}

/* ---- lines: the innermost axis, element by element or as one block ---- */

static void convert_line(const struct job *job, char *out, const char *in, const struct axis *axis)
{
    int64_t buffer[CONVERT];
    const fl_copy_kernels *k = job->kernels;
    if (axis->in == (int64_t)fl_dtype_size(job->in_dtype) && axis->out == (int64_t)fl_dtype_size(job->out_dtype)) {
        (*FL_BY_LEVEL(fl_convert_loops))[job->in_dtype][job->out_dtype](out, in, axis->size);
        return;
    }
    fl_copy_through middle = fl_copy_through_of(job->in_dtype);
    for (int64_t i = 0; i < axis->size; i += CONVERT) {
        int64_t n = axis->size - i < CONVERT ? axis->size - i : CONVERT;
        k->load[job->in_dtype](buffer, in + i * axis->in, axis->in, n);
        k->store[middle][job->out_dtype](out + i * axis->out, axis->out, buffer, n);
    }
}

static void copy_block(const struct job *job, char *out, const char *in, int64_t bytes)
{
    if (!job->stream) {
        job->kernels->block(out, in, bytes);
        return;
    }
    int64_t head = (int64_t)(-(uintptr_t)out & 63);
    if (head > bytes) head = bytes;
    memcpy(out, in, (size_t)head);
    int64_t middle = (bytes - head) & ~(int64_t)63;
    if (middle) job->kernels->stream(out + head, in + head, middle);
    memcpy(out + head + middle, in + head + middle, (size_t)(bytes - head - middle));
}

static void copy_line(const struct job *job, char *out, const char *in, const struct axis *axis)
{
    if (job->width < 0) convert_line(job, out, in, axis);
    else if (job->rows) copy_block(job, out, in, axis->size << job->width);
    else job->kernels->move[job->width](out, axis->out, in, axis->in, axis->size);
}

static void lines_body(void *context, int64_t begin, int64_t end)
{
    const struct job *j = context;
    const struct axis *row = &j->axes[j->count - 2], *line = &j->axes[j->count - 1];
    while (begin < end) {
        int64_t at = begin % row->size, rows = row->size - at < end - begin ? row->size - at : end - begin;
        char *out = j->out + at * row->out;
        const char *in = j->in + at * row->in;
        locate(j, j->count - 2, begin / row->size, &out, &in);
        for (int64_t r = 0; r < rows; r++) copy_line(j, out + r * row->out, in + r * row->in, line);
        begin += rows;
    }
    if (j->stream) j->kernels->fence();
}

/* At least two axes; the longer of the two innermost ones is the line, unless whole rows can be moved. */
static void arrange_lines(struct job *job)
{
    if (job->count < 2) {
        for (int i = job->count; i > 0; i--) job->axes[2 - job->count + i - 1] = job->axes[i - 1];
        for (int i = 0; i < 2 - job->count; i++) job->axes[i] = (struct axis){1, 0, 0};
        job->count = 2;
    }
    struct axis *row = &job->axes[job->count - 2], *line = &job->axes[job->count - 1];
    int64_t width = job->width < 0 ? 0 : (int64_t)1 << job->width;
    job->rows = width && line->in == width && line->out == width;
    if (!job->rows && line->size < 16 && row->size > line->size) {
        struct axis swap = *row;
        *row = *line;
        *line = swap;
    }
}

static void run_lines(struct job *job)
{
    arrange_lines(job);
    struct axis *line = &job->axes[job->count - 1];
    int64_t rows = positions(job, job->count - 1), n = line->size;
    if (rows == 1 && n > LINE) { /* one long line: cut it into rows, the rest by itself */
        int64_t whole = n / LINE;
        struct axis tail = {n - whole * LINE, line->in, line->out};
        job->axes[job->count - 2] = (struct axis){whole, line->in * LINE, line->out * LINE};
        line->size = LINE;
        if (tail.size) copy_line(job, job->out + whole * LINE * line->out, job->in + whole * LINE * line->in, &tail);
        rows = whole;
    }
    double bytes = job->width < 0 ? 8 : (double)((int64_t)1 << job->width);
    double cost = 5 + (double)line->size * (job->rows ? bytes * 0.1 : job->width < 0 || line->out != bytes ? 1.0 : 0.5);
    fl_team_for(rows, cost, lines_body, job);
}

/* ---- transposes: out [row, column] <- in [column, row], both contiguous along their last axis ---- */

/* Through a buffer that holds the transposed tile, so that whole rows are written at once. */
static void buffered_tile(const struct job *job, char *buffer, char *out, int64_t out_row, const char *in,
                          int64_t in_row, int64_t rows, int64_t columns)
{
    int64_t bytes = columns << job->width, pitch = ((int64_t)job->tile << job->width) + 64;
    job->kernels->transpose[job->width](buffer, pitch, in, in_row, rows, columns);
    for (int64_t r = 0; r < rows; r++) copy_block(job, out + r * out_row, buffer + r * pitch, bytes);
}

static void tiles_body(void *context, int64_t begin, int64_t end)
{
    const struct job *j = context;
    const struct axis *row = &j->axes[j->count - 2], *column = &j->axes[j->count - 1];
    int64_t width = (int64_t)1 << j->width, per_batch = j->row_tiles * j->column_tiles;
    char *buffer = j->stream ? fl_scratch(3, (size_t)j->tile * (size_t)((j->tile << j->width) + 64)) : NULL;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t in_batch = unit % per_batch;
        int64_t r = in_batch / j->column_tiles * j->tile, c = in_batch % j->column_tiles * j->tile;
        int64_t rows = row->size - r < j->tile ? row->size - r : j->tile;
        int64_t columns = column->size - c < j->tile ? column->size - c : j->tile;
        char *out = j->out + r * row->out + c * width;
        const char *in = j->in + c * column->in + r * width;
        locate(j, j->count - 2, unit / per_batch, &out, &in);
        if (buffer) buffered_tile(j, buffer, out, row->out, in, column->in, rows, columns);
        else j->kernels->transpose[j->width](out, row->out, in, column->in, rows, columns);
    }
    if (buffer) j->kernels->fence();
}

/* Moves the axis along which the input is contiguous next to the innermost one. False: not a transpose. */
static bool arrange_transpose(struct job *job)
{
    if (job->width < 0 || job->count < 2) return false;
    int64_t width = (int64_t)1 << job->width;
    int last = job->count - 1, found = -1;
    if (job->axes[last].out != width || job->axes[last].size < 4) return false;
    for (int i = 0; i < last; i++)
        if (job->axes[i].in == width && job->axes[i].size >= 4) found = i;
    if (found < 0) return false;
    struct axis row = job->axes[found];
    for (int i = found; i < last - 1; i++) job->axes[i] = job->axes[i + 1];
    job->axes[last - 1] = row;
    return true;
}

static void run_tiles(struct job *job)
{
    const struct axis *row = &job->axes[job->count - 2], *column = &job->axes[job->count - 1];
    job->tile = job->stream ? LARGE_TILE : SMALL_TILE;
    while (job->stream && (job->tile * job->tile) << job->width > (LARGE_TILE * LARGE_TILE) << 2) job->tile /= 2;
    job->row_tiles = (row->size + job->tile - 1) / job->tile;
    job->column_tiles = (column->size + job->tile - 1) / job->tile;
    int64_t units = positions(job, job->count - 2) * job->row_tiles * job->column_tiles;
    double tile_bytes = (double)(row->size * column->size << job->width) / (double)(job->row_tiles * job->column_tiles);
    fl_team_for(units, 10 + tile_bytes * 0.1, tiles_body, job);
}

fl_status fl_cpu_copy(const fl_view *out, const fl_view *in)
{
    size_t width = fl_dtype_size(out->dtype);
    if (out->numel == 0) return FL_OK;
    if (out->dtype == in->dtype && out->contiguous && in->contiguous && out->numel * (int64_t)width <= 4096) {
        memcpy(out->data, in->data, (size_t)out->numel * width);
        return FL_OK;
    }
    struct job j = {.kernels = FL_BY_LEVEL(fl_copy_kernels),
                    .out = out->data,
                    .in = in->data,
                    .in_dtype = in->dtype,
                    .out_dtype = out->dtype};
    collect_axes(&j, out, in);
    j.width = out->dtype == in->dtype ? __builtin_ctz((unsigned)width) : -1;
    j.stream = out->numel * (int64_t)width >= STREAM_FROM;
    if (j.width >= 0) widen(&j);
    if (arrange_transpose(&j)) run_tiles(&j);
    else run_lines(&j);
    return FL_OK;
}

fl_status fl_cpu_fill(const fl_view *out, const void *value)
{
    static const int64_t none[FL_MAX_NDIM];
    fl_view in = *out;
    if (out->numel == 1) {
        memcpy(out->data, value, fl_dtype_size(out->dtype));
        return FL_OK;
    }
    in.data = (void *)value;
    in.stride = none;
    in.contiguous = false;
    return fl_cpu_copy(out, &in);
}

/* ---- triangles ---- */

struct triangle {
    char *data;
    int64_t rows, columns, width; /* of the local part; bytes of an element */
    int64_t shift;                /* local column minus local row of the diagonal's elements */
    bool lower;
};

/* Zeroes what lies on the other side of the diagonal; rows of all matrices counted on. */
static void triangle_body(void *context, int64_t begin, int64_t end)
{
    const struct triangle *t = context;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row % t->rows + t->shift, from = t->lower ? at + 1 : 0, to = t->lower ? t->columns : at;
        if (from < 0) from = 0;
        if (to > t->columns) to = t->columns;
        if (from < to) memset(t->data + (row * t->columns + from) * t->width, 0, (size_t)((to - from) * t->width));
    }
}

void fl_cpu_zero_triangle(const fl_view *out, int64_t diagonal, bool lower)
{
    int row = out->ndim - 2, column = out->ndim - 1;
    struct triangle t = {.data = out->data,
                         .rows = out->size[row],
                         .columns = out->size[column],
                         .width = (int64_t)fl_dtype_size(out->dtype),
                         .shift = out->start[row] - out->start[column] + diagonal,
                         .lower = lower};
    fl_team_for(out->numel / t.columns, 5 + 0.05 * (double)(t.columns * t.width), triangle_body, &t);
}
