/*
** conv.c -- convolutions as matrix products of columns, in pieces that stay in the cache.
**
** A piece of an image is unfolded into columns [depth, positions], where depth counts channels and taps: then
**
**     y = weight columns            dcolumns = weight^T dy, folded back            dweight^T = columns dy^T
**
** Pieces are cut by size alone, and sums over images are cut into a fixed number of parts that are added up in order,
** so a result does not depend on the number of threads.
*/
#include "conv.h"
#include "memory/scratch.h"
#include "gemm.h"
#include "stage.h"

/* Columns that one thread works on at a time: half of a level 2 cache. */
static const int64_t COLUMN_BYTES = 512 << 10;
/* Sums over images: at most so many parts, and so many bytes of them. */
enum { PARTS = 16, UNITS = 16 };
static const int64_t PART_BYTES = 16 << 20;
static const double NS_PER_MULTIPLICATION = 0.012;
enum { PARTS_SCRATCH = 2 };

/* One call, as its pieces see it. */
struct job {
    const fl_conv *c;
    fl_dtype dtype;
    int type;     /* of fl_conv_kernels */
    int64_t item; /* bytes of an element */
    const char *x, *dy, *weight, *bias;
    char *out;
    int64_t rows, pieces;  /* rows of y in a piece of an image, pieces of an image */
    int64_t parts, blocks; /* weight gradient: of the images, of the channels */
    bool failed;           /* a thread had no memory */
};

static struct job job_of(fl_dtype dtype, const fl_conv *conv, int64_t depth)
{
    struct job j = {.c = conv, .dtype = dtype, .type = dtype == FL_FLOAT64, .item = (int64_t)fl_dtype_size(dtype)};
    int64_t row_bytes = depth * conv->y_size[1] * j.item;
    j.rows = row_bytes > 0 ? COLUMN_BYTES / row_bytes : conv->y_size[0];
    if (j.rows < 1) j.rows = 1;
    if (j.rows > conv->y_size[0]) j.rows = conv->y_size[0];
    j.pieces = (conv->y_size[0] + j.rows - 1) / j.rows;
    return j;
}

static void *columns_new(struct job *job, int64_t depth)
{
    void *columns = fl_scratch(FL_KERNEL_SCRATCH, (size_t)(depth * job->rows * job->c->y_size[1] * job->item));
    if (!columns) __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    return columns;
}

static fl_status run(struct job *job, int64_t count, double multiplications, fl_team_body body)
{
    fl_team_for(count, multiplications * NS_PER_MULTIPLICATION, body, job);
    return job->failed ? fl_fail(FL_ERR_MEMORY, "conv2d: out of memory for the columns of an image") : FL_OK;
}

/* Where the columns of rows [begin, end) of an image's group lie, and how far apart; false without memory. */
static bool columns_of(const char **out, int64_t *row, struct job *job, const char *x, int64_t channels, int64_t begin,
                       int64_t end)
{
    const fl_conv *c = job->c;
    if (fl_conv_is_pointwise(c)) {
        *row = fl_conv_x_plane(c);
        *out = x + begin * c->y_size[1] * job->item;
        return true;
    }
    void *columns = columns_new(job, channels * fl_conv_taps(c));
    if (columns) FL_BY_LEVEL(fl_conv_kernels)->unfold[job->type](columns, x, c, channels, begin, end);
    *row = (end - begin) * c->y_size[1];
    *out = columns;
    return columns != NULL;
}

static int64_t piece_end(const struct job *job, int64_t begin)
{
    int64_t end = begin + job->rows;
    return end < job->c->y_size[0] ? end : job->c->y_size[0];
}

/* ---- forward ---- */

static void forward_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    const fl_conv *c = j->c;
    int64_t depth = fl_conv_depth(c), plane = fl_conv_y_plane(c);
    for (int64_t i = from; i < to; i++) {
        int64_t at = i / j->pieces, group = at % c->groups, begin = i % j->pieces * j->rows, end = piece_end(j, begin),
                row;
        const char *columns;
        if (!columns_of(&columns, &row, j, j->x + at * c->in * fl_conv_x_plane(c) * j->item, c->in, begin, end)) return;
        fl_gemm g = {.m = c->out,
                     .n = (end - begin) * c->y_size[1],
                     .k = depth,
                     .a = j->weight + group * c->out * depth * j->item,
                     .b = columns,
                     .c = j->out + (at * c->out * plane + begin * c->y_size[1]) * j->item,
                     .a_row = depth,
                     .a_col = 1,
                     .b_row = row,
                     .b_col = 1,
                     .c_row = plane,
                     .alpha = 1,
                     .beta = j->bias ? 1 : 0};
        for (int64_t o = 0; j->bias && o < c->out; o++)
            FL_BY_LEVEL(fl_conv_kernels)
                ->fill[j->type]((char *)g.c + o * plane * j->item, j->bias + (group * c->out + o) * j->item, g.n);
        fl_gemm_kernel(j->dtype)(&g);
    }
}

fl_status fl_cpu_conv(fl_dtype dtype, const fl_conv *conv, void *y, const void *x, const void *weight, const void *bias)
{
    struct job j = job_of(dtype, conv, fl_conv_depth(conv));
    j.x = x;
    j.weight = weight;
    j.bias = bias;
    j.out = y;
    double multiplications = (double)conv->out * (double)fl_conv_depth(conv) * (double)(j.rows * conv->y_size[1]);
    return run(&j, conv->images * conv->groups * j.pieces, multiplications, forward_part);
}

/* ---- gradient of the input ---- */

static void input_grad_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    const fl_conv *c = j->c;
    int64_t depth = fl_conv_depth(c), y_plane = fl_conv_y_plane(c), x_bytes = c->in * fl_conv_x_plane(c) * j->item;
    bool direct = fl_conv_is_pointwise(c);
    for (int64_t i = from; i < to; i++) {
        char *dx = j->out + i * x_bytes, *columns = direct ? NULL : columns_new(j, depth);
        if (!direct && !columns) return;
        if (!direct) memset(dx, 0, (size_t)x_bytes);
        for (int64_t begin = 0, end; begin < c->y_size[0]; begin = end) {
            end = piece_end(j, begin);
            int64_t at = begin * c->y_size[1], n = (end - begin) * c->y_size[1];
            fl_gemm g = {.m = depth,
                         .n = n,
                         .k = c->out,
                         .a = j->weight + i % c->groups * c->out * depth * j->item,
                         .b = j->dy + (i * c->out * y_plane + at) * j->item,
                         .c = direct ? dx + at * j->item : columns,
                         .a_row = 1,
                         .a_col = depth,
                         .b_row = y_plane,
                         .b_col = 1,
                         .c_row = direct ? y_plane : n,
                         .alpha = 1};
            fl_gemm_kernel(j->dtype)(&g);
            if (!direct) FL_BY_LEVEL(fl_conv_kernels)->fold[j->type](dx, columns, c, c->in, begin, end);
        }
    }
}

fl_status fl_cpu_conv_input_grad(fl_dtype dtype, const fl_conv *conv, void *dx, const void *dy, const void *weight)
{
    struct job j = job_of(dtype, conv, fl_conv_depth(conv));
    j.dy = dy;
    j.weight = weight;
    j.out = dx;
    double multiplications = (double)conv->out * (double)fl_conv_depth(conv) * (double)fl_conv_y_plane(conv);
    return run(&j, conv->images * conv->groups, multiplications, input_grad_part);
}

/* ---- gradient of the weight ---- */

/* Channels of a block of a weight gradient: [*begin, *end). */
static void block_of(int64_t *begin, int64_t *end, const struct job *job, int64_t block)
{
    *begin = job->c->in * block / job->blocks;
    *end = job->c->in * (block + 1) / job->blocks;
}

/* Adds the images of one part to its sums [groups, depth, out], for one block of channels. */
static void sum_images(struct job *job, char *sums, int64_t part, int64_t group, int64_t block)
{
    const fl_conv *c = job->c;
    int64_t first, last, plane = fl_conv_y_plane(c), taps = fl_conv_taps(c);
    block_of(&first, &last, job, block);
    int64_t image = c->images * part / job->parts, end_image = c->images * (part + 1) / job->parts, row;
    char *out = sums + ((part * c->groups + group) * fl_conv_depth(c) + first * taps) * c->out * job->item;
    if (image == end_image || plane == 0) memset(out, 0, (size_t)((last - first) * taps * c->out * job->item));
    for (bool started = false; image < end_image; image++)
        for (int64_t begin = 0, end; begin < c->y_size[0]; begin = end, started = true) {
            end = piece_end(job, begin);
            int64_t at = image * c->groups + group;
            const char *x = job->x + (at * c->in + first) * fl_conv_x_plane(c) * job->item, *columns;
            if (!columns_of(&columns, &row, job, x, last - first, begin, end)) return;
            fl_gemm g = {.m = (last - first) * taps,
                         .n = c->out,
                         .k = (end - begin) * c->y_size[1],
                         .a = columns,
                         .b = job->dy + (at * c->out * plane + begin * c->y_size[1]) * job->item,
                         .c = out,
                         .a_row = row,
                         .a_col = 1,
                         .b_row = 1,
                         .b_col = plane,
                         .c_row = c->out,
                         .alpha = 1,
                         .beta = started ? 1 : 0};
            fl_gemm_kernel(job->dtype)(&g);
        }
}

static void weight_grad_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    for (int64_t i = from; i < to; i++)
        sum_images(j, j->out, i / j->blocks / j->c->groups, i / j->blocks % j->c->groups, i % j->blocks);
}

fl_status fl_cpu_conv_weight_grad(fl_dtype dtype, const fl_conv *conv, void *dweight, const void *dy, const void *x)
{
    struct job j = job_of(dtype, conv, fl_conv_depth(conv));
    int64_t depth = fl_conv_depth(conv), numel = conv->groups * conv->out * depth;
    j.parts = PART_BYTES / (numel * j.item);
    if (j.parts > PARTS) j.parts = PARTS;
    if (j.parts > conv->images) j.parts = conv->images;
    if (j.parts < 1) j.parts = 1;
    j.blocks = (UNITS + j.parts * conv->groups - 1) / (j.parts * conv->groups);
    if (j.blocks > conv->in) j.blocks = conv->in;
    j.x = x;
    j.dy = dy;
    j.out = fl_scratch(PARTS_SCRATCH, (size_t)(j.parts * numel * j.item));
    if (!j.out) return fl_fail(FL_ERR_MEMORY, "conv2d_weight_grad: out of memory for the sums over images");
    int64_t units = j.parts * conv->groups * j.blocks;
    double multiplications = (double)numel * (double)conv->images * (double)fl_conv_y_plane(conv) / (double)units;
    FL_TRY(run(&j, units, multiplications, weight_grad_part));
    for (int64_t o = 0; o < conv->groups * conv->out; o++) {
        int64_t at = o / conv->out * depth * conv->out + o % conv->out;
        FL_BY_LEVEL(fl_conv_kernels)
            ->sum[j.type]((char *)dweight + o * depth * j.item, j.out + at * j.item, depth, j.parts, numel, conv->out);
    }
    return FL_OK;
}
