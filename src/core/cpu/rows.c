/*
** rows.c -- row kernels with the team, and strided rows brought together.
**
** The elements of rows along an axis that is not the last lie `inner` apart: tiles of neighbouring rows are gathered
** into scratch memory, run through the contiguous kernel and scattered back. Softmax takes them as columns where there
** are enough for vectors. Rows of 16-bit floats become float32 in scratch memory, a few at a time.
*/
#include "rows.h"
#include "convert.h"
#include "stage.h"
#include "memory/scratch.h"

enum {
    TILE_LANES = 16,
    COLUMNS = 64,
    WIDENED = 2048,  /* elements that become float32 at a time: with those of all operands they stay in the L1 */
    WIDE_SCRATCH = 2 /* slot of fl_scratch; the caller has operands and sums in the others */
};
static const double NS_PER_ELEMENT = 0.2;

const fl_row_kernels *fl_row_kernels_of(fl_dtype dtype)
{
    return dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_row_kernels_f64) : FL_BY_LEVEL(fl_row_kernels_f32);
}

fl_row_shape fl_row_shape_of(const int64_t *size, int ndim, int axis)
{
    fl_row_shape s = {1, ndim ? size[axis] : 1, 1};
    for (int i = 0; i < axis; i++) s.outer *= size[i];
    for (int i = axis + 1; i < ndim; i++) s.inner *= size[i];
    return s;
}

/* ---- rows over the team ---- */

enum { ROW_INPUTS = 2 };

/* Computes `rows` contiguous rows from `row` on. */
typedef void (*row_body)(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                         const void *const *in);

struct row_job {
    const fl_row_kernels *kernels;
    fl_row_shape shape;
    fl_dtype dtype; /* of out and in */
    size_t item;
    row_body body;
    const void *context;
    void *out;                  /* NULL: no result of the array's shape */
    const void *in[ROW_INPUTS]; /* NULL: absent */
    int failed;
};

static void plain_rows(const struct row_job *job, int64_t row, int64_t rows)
{
    int64_t skip = row * job->shape.n * (int64_t)job->item;
    const void *in[ROW_INPUTS];
    for (int i = 0; i < ROW_INPUTS; i++) in[i] = job->in[i] ? (const char *)job->in[i] + skip : NULL;
    job->body(job->context, job->kernels, row, rows, job->out ? (char *)job->out + skip : NULL, in);
}

/* The same of 16-bit floats; wide: room for the elements of all operands in float32. */
static void narrow_rows(const struct row_job *job, int64_t row, int64_t rows, float *wide)
{
    int64_t n = rows * job->shape.n, skip = row * job->shape.n * (int64_t)job->item;
    const fl_convert_table *loops = FL_BY_LEVEL(fl_convert_loops);
    fl_convert_loop widen = (*loops)[job->dtype][FL_FLOAT32], narrow = (*loops)[FL_FLOAT32][job->dtype];
    const void *in[ROW_INPUTS];
    for (int i = 0; i < ROW_INPUTS; i++) {
        in[i] = job->in[i] ? wide + (i + 1) * n : NULL;
        if (job->in[i]) widen(wide + (i + 1) * n, (const char *)job->in[i] + skip, n);
    }
    job->body(job->context, job->kernels, row, rows, job->out ? wide : NULL, in);
    if (job->out) narrow((char *)job->out + skip, wide, n);
}

static void contiguous_rows(void *context, int64_t begin, int64_t end)
{
    struct row_job *j = context;
    int64_t n = j->shape.n, block = n < WIDENED && n > 0 ? WIDENED / n : 1;
    if (j->dtype == FL_FLOAT32 || j->dtype == FL_FLOAT64) {
        plain_rows(j, begin, end - begin);
        return;
    }
    float *wide = fl_scratch(WIDE_SCRATCH, (ROW_INPUTS + 1) * (size_t)(block * n) * sizeof(float) + 64);
    if (!wide) __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end && wide; row += block)
        narrow_rows(j, row, end - row < block ? end - row : block, wide);
}

/* One tile of neighbouring rows. */
static void tile_rows(struct row_job *job, int64_t outer, int64_t i, char *scratch)
{
    const fl_row_shape *s = &job->shape;
    int64_t lanes = s->inner - i < TILE_LANES ? s->inner - i : TILE_LANES,
            skip = (outer * s->n * s->inner + i) * (int64_t)job->item;
    size_t tile = (size_t)(TILE_LANES * s->n) * job->item;
    const void *in[ROW_INPUTS];
    for (int p = 0; p < ROW_INPUTS; p++) {
        in[p] = job->in[p] ? scratch + (size_t)p * tile : NULL;
        if (job->in[p])
            job->kernels->gather(scratch + (size_t)p * tile, (const char *)job->in[p] + skip, lanes, s->n, s->inner);
    }
    void *out = job->out ? scratch + ROW_INPUTS * tile : NULL;
    job->body(job->context, job->kernels, outer * s->inner + i, lanes, out, in);
    if (job->out) job->kernels->scatter((char *)job->out + skip, out, lanes, s->n, s->inner);
}

static void strided_rows(void *context, int64_t begin, int64_t end)
{
    struct row_job *j = context;
    int64_t tiles = (j->shape.inner + TILE_LANES - 1) / TILE_LANES;
    char *scratch = fl_scratch(FL_KERNEL_SCRATCH, (ROW_INPUTS + 1) * (size_t)(TILE_LANES * j->shape.n) * j->item + 64);
    if (!scratch) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t t = begin; t < end; t++) tile_rows(j, t / tiles, t % tiles * TILE_LANES, scratch);
}

static void row_job_open(struct row_job *job, fl_dtype dtype)
{
    job->dtype = dtype;
    job->kernels = fl_row_kernels_of(dtype);
    job->item = fl_dtype_size(dtype);
}

static fl_status row_job_close(const struct row_job *job)
{
    return job->failed
        ? fl_fail(FL_ERR_MEMORY, "out of memory for scratch space of rows of %lld", (long long)job->shape.n)
        : FL_OK;
}

static fl_status run_rows(struct row_job *job, fl_dtype dtype)
{
    const fl_row_shape *s = &job->shape;
    row_job_open(job, dtype);
    double row_ns = (double)s->n * NS_PER_ELEMENT;
    if (s->inner == 1) fl_team_for(s->outer, row_ns, contiguous_rows, job);
    else fl_team_for(s->outer * ((s->inner + TILE_LANES - 1) / TILE_LANES), 3 * row_ns * TILE_LANES, strided_rows, job);
    return row_job_close(job);
}

/* ---- softmax ---- */

struct softmax_kind {
    int64_t n;
    bool logs;
};

static void softmax_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                         const void *const *in)
{
    const struct softmax_kind *kind = context;
    (void)row;
    kernels->softmax(out, in[0], rows, kind->n, kind->logs);
}

static void softmax_backward_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows,
                                  void *out, const void *const *in)
{
    const struct softmax_kind *kind = context;
    (void)row;
    kernels->softmax_backward(out, in[0], in[1], rows, kind->n, kind->logs);
}

struct column_job {
    const fl_row_kernels *kernels;
    fl_row_shape shape;
    size_t item;
    bool logs;
    char *out;
    const char *in, *y; /* y: of the backward pass, where `in` is the gradient; NULL: forward */
};

/* Units of COLUMNS columns. */
static void column_body(void *context, int64_t begin, int64_t end)
{
    const struct column_job *j = context;
    const fl_row_shape *s = &j->shape;
    int64_t units = (s->inner + COLUMNS - 1) / COLUMNS;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t from = unit % units * COLUMNS, columns = s->inner - from < COLUMNS ? s->inner - from : COLUMNS;
        size_t skip = (size_t)(unit / units * s->n * s->inner + from) * j->item;
        if (j->y)
            j->kernels->softmax_backward_columns(j->out + skip, j->in + skip, j->y + skip, s->n, s->inner, columns,
                                                 j->logs);
        else j->kernels->softmax_columns(j->out + skip, j->in + skip, s->n, s->inner, columns, j->logs);
    }
}

/* false: there are too few columns side by side */
static bool run_columns(struct column_job *job, fl_dtype dtype)
{
    const fl_row_shape *s = &job->shape;
    if (s->inner < TILE_LANES / 2) return false;
    job->kernels = fl_row_kernels_of(dtype);
    job->item = fl_dtype_size(dtype);
    fl_team_for(s->outer * ((s->inner + COLUMNS - 1) / COLUMNS), 2 * NS_PER_ELEMENT * (double)(s->n * COLUMNS),
                column_body, job);
    return true;
}

fl_status fl_cpu_softmax(fl_dtype dtype, void *y, const void *x, fl_row_shape shape, bool logs)
{
    struct column_job columns = {.shape = shape, .logs = logs, .out = y, .in = x};
    struct softmax_kind kind = {shape.n, logs};
    struct row_job j = {.shape = shape, .body = softmax_body, .context = &kind, .out = y, .in = {x}};
    return run_columns(&columns, dtype) ? FL_OK : run_rows(&j, dtype);
}

fl_status fl_cpu_softmax_backward(fl_dtype dtype, void *dx, const void *g, const void *y, fl_row_shape shape, bool logs)
{
    struct column_job columns = {.shape = shape, .logs = logs, .out = dx, .in = g, .y = y};
    struct softmax_kind kind = {shape.n, logs};
    struct row_job j = {.shape = shape, .body = softmax_backward_body, .context = &kind, .out = dx, .in = {g, y}};
    return run_columns(&columns, dtype) ? FL_OK : run_rows(&j, dtype);
}

/* ---- negative log-likelihood ---- */

static void nll_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                     const void *const *in)
{
    (void)out;
    kernels->nll(context, row, rows, in[0]);
}

static void nll_backward_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                              const void *const *in)
{
    kernels->nll_backward(context, row, rows, out, in[0]);
}

double fl_cpu_nll_weights(fl_dtype dtype, const void *weight, int64_t classes)
{
    double sum = 0;
    if (!weight) return (double)classes;
    for (int64_t i = 0; i < classes; i++)
        sum += dtype == FL_FLOAT64 ? ((const double *)weight)[i] : ((const float *)weight)[i];
    return sum;
}

fl_status fl_cpu_nll(fl_dtype dtype, const fl_nll *nll, const void *x, fl_row_shape shape)
{
    struct row_job j = {.shape = shape, .body = nll_body, .context = nll, .in = {x}};
    return run_rows(&j, dtype);
}

fl_status fl_cpu_nll_backward(fl_dtype dtype, const fl_nll *nll, void *dx, const void *x, fl_row_shape shape)
{
    struct row_job j = {.shape = shape, .body = nll_backward_body, .context = nll, .out = dx, .in = {x}};
    return run_rows(&j, dtype);
}

/* ---- layer_norm ---- */

static void norm_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                      const void *const *in)
{
    kernels->layer_norm(context, row, rows, out, in[0]);
}

fl_status fl_cpu_layer_norm(fl_dtype dtype, const fl_layer_norm *norm, int64_t rows, void *y, const void *x)
{
    struct row_job j = {.shape = {rows, norm->n, 1}, .body = norm_body, .context = norm, .out = y, .in = {x}};
    return run_rows(&j, dtype);
}

struct norm_job {
    struct row_job rows; /* g and x to dx */
    const fl_layer_norm *norm;
    size_t item;                  /* of a sum */
    int64_t count, block, blocks; /* of rows; rows of a block; number of blocks */
    char *partial;                /* [blocks][2][n]: sums for dweight and dbias */
    char *sums;                   /* [2][n] */
};

struct norm_block {
    const fl_layer_norm *norm;
    char *dweight, *dbias;
};

static void norm_backward_body(const void *context, const fl_row_kernels *kernels, int64_t row, int64_t rows, void *out,
                               const void *const *in)
{
    const struct norm_block *block = context;
    kernels->layer_norm_backward(block->norm, row, rows, out, in[0], in[1], block->dweight, block->dbias);
}

static void norm_blocks(void *context, int64_t begin, int64_t end)
{
    struct norm_job *j = context;
    size_t row_bytes = (size_t)j->norm->n * j->item;
    for (int64_t b = begin; b < end; b++) {
        char *sums = j->partial + (size_t)b * 2 * row_bytes;
        int64_t first = b * j->block, last = first + j->block < j->count ? first + j->block : j->count;
        struct norm_block block = {j->norm, sums, sums + row_bytes};
        struct row_job rows = j->rows;
        rows.context = &block;
        memset(sums, 0, 2 * row_bytes);
        contiguous_rows(&rows, first, last);
        if (rows.failed) __atomic_store_n(&j->rows.failed, 1, __ATOMIC_RELAXED);
    }
}

enum { SUM_COLUMNS = 64 };

/* Columns [begin, end) * SUM_COLUMNS of the two sums side by side. */
static void norm_sums(void *context, int64_t begin, int64_t end)
{
    struct norm_job *j = context;
    int64_t columns = 2 * j->norm->n, from = begin * SUM_COLUMNS,
            to = end * SUM_COLUMNS < columns ? end * SUM_COLUMNS : columns;
    size_t skip = (size_t)from * j->item;
    j->rows.kernels->sum_rows(j->sums + skip, j->partial + skip, j->blocks, columns, to - from);
}

fl_status fl_cpu_layer_norm_backward(fl_dtype dtype, const fl_layer_norm *norm, int64_t rows, void *dx, const void *g,
                                     const void *x, void *dweight, void *dbias)
{
    struct norm_job j = {
        .rows = {.shape = {rows, norm->n, 1}, .body = norm_backward_body, .out = dx, .in = {g, x}},
        .norm = norm,
        .item = fl_dtype_size(fl_dtype_compute(dtype)),
        .count = rows,
        .block = (rows + 63) / 64 < 32 ? 32 : (rows + 63) / 64,
    };
    j.blocks = (rows + j.block - 1) / j.block;
    size_t row_bytes = (size_t)norm->n * j.item;
    if (row_bytes == 0) return FL_OK;
    j.sums = fl_scratch(FL_KERNEL_SCRATCH, (size_t)(j.blocks + 1) * 2 * row_bytes + 64);
    if (!j.sums) return fl_fail(FL_ERR_MEMORY, "layer_norm: out of memory for scratch space");
    j.partial = j.sums + 2 * row_bytes;
    row_job_open(&j.rows, dtype);
    fl_team_for(j.blocks, (double)(j.block * norm->n) * NS_PER_ELEMENT, norm_blocks, &j);
    fl_team_for((2 * norm->n + SUM_COLUMNS - 1) / SUM_COLUMNS, (double)(j.blocks * SUM_COLUMNS) * 0.1, norm_sums, &j);
    memcpy(dweight, j.sums, row_bytes);
    memcpy(dbias, j.sums + row_bytes, row_bytes);
    return row_job_close(&j.rows);
}
