/*
** conv.c -- convolutions as matrix products of columns, in pieces that stay in the cache.
**
** A piece of an image is unfolded into columns [depth, positions], where depth counts channels and taps: then
**
**     y = weight columns            dcolumns = weight^T dy, folded back            dweight^T = columns dy^T
**
** If rows are short, some images are taken together, side by side in each element: as `lanes` of it. Windows of one
** channel each are no products, and have loops of their own (conv_depthwise.c).
**
** Convolutions that oneDNN computes faster go through it, if it is installed (conv_onednn.c).
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
/* Rows up to this length are short; so many images together, in columns of so many bytes. */
enum { SHORT_ROW = 8, LANES = 32, LEAST_LANES = 4 };
static const int64_t LANE_BYTES = 1 << 20;

/* One call, as its pieces see it. */
struct job {
    const fl_conv *c;
    fl_dtype dtype;
    int type;     /* of fl_conv_kernels */
    int64_t item; /* bytes of an element */
    const char *x, *dy, *weight, *bias;
    char *out;
    int64_t lanes, blocks; /* images taken together, and how often */
    int64_t rows, pieces;  /* rows of y in a piece of an image, pieces of an image */
    int64_t parts, shares; /* weight gradient: of the images, of the channels */
    bool failed;           /* a thread had no memory */
};

static int64_t lanes_of(const fl_conv *conv, int64_t item)
{
    int64_t bytes = fl_conv_depth(conv) * fl_conv_y_plane(conv) * item;
    if (conv->y_size[2] > SHORT_ROW || bytes == 0) return 1;
    int64_t lanes = LANE_BYTES / bytes;
    if (lanes > LANES) lanes = LANES;
    if (lanes > conv->images) lanes = conv->images;
    if (lanes < LEAST_LANES) return 1;
    int64_t blocks = (conv->images + lanes - 1) / lanes;
    return (conv->images + blocks - 1) / blocks; /* of equal size */
}

static struct job job_of(fl_dtype dtype, const fl_conv *conv)
{
    struct job j = {.c = conv, .dtype = dtype, .type = dtype == FL_FLOAT64, .item = (int64_t)fl_dtype_size(dtype)};
    int64_t row_bytes = fl_conv_depth(conv) * conv->y_size[2] * j.item, rows = fl_conv_rows(conv);
    j.lanes = lanes_of(conv, j.item);
    j.blocks = (conv->images + j.lanes - 1) / j.lanes;
    j.rows = row_bytes > 0 && j.lanes == 1 ? COLUMN_BYTES / row_bytes : rows;
    if (j.rows < 1) j.rows = 1;
    if (j.rows > rows) j.rows = rows;
    j.pieces = j.rows ? (rows + j.rows - 1) / j.rows : 0;
    return j;
}

static const fl_conv_kernels *loops(void) { return FL_BY_LEVEL(fl_conv_kernels); }

static fl_status run(struct job *job, int64_t count, double multiplications, fl_team_body body)
{
    fl_team_for(count, multiplications * NS_PER_MULTIPLICATION, body, job);
    return job->failed ? fl_fail(FL_ERR_MEMORY, "conv: out of memory for the columns of an image") : FL_OK;
}

/* The scratch memory of a thread: columns, and images of x and of y side by side. */
struct room {
    char *columns, *x, *y;
};

static bool room_open(struct room *room, struct job *job)
{
    const fl_conv *c = job->c;
    int64_t columns = fl_conv_is_pointwise(c) ? 0 : fl_conv_depth(c) * job->rows * c->y_size[2] * job->lanes,
            x = job->lanes > 1 ? c->in * fl_conv_x_plane(c) * job->lanes : 0,
            y = job->lanes > 1 ? c->out * fl_conv_y_plane(c) * job->lanes : 0;
    room->columns = fl_scratch(FL_KERNEL_SCRATCH, (size_t)((columns + x + y) * job->item + 64));
    if (!room->columns) {
        __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
        return false;
    }
    room->x = room->columns + columns * job->item;
    room->y = room->x + x * job->item;
    return true;
}

/* Rows [begin, end) of some images of a group, `lanes` of them from `image` on. */
struct piece {
    int64_t image, lanes, group, begin, end;
};

static int64_t piece_length(const struct job *job, const struct piece *piece)
{
    return (piece->end - piece->begin) * job->c->y_size[2] * piece->lanes;
}

static void piece_rows(struct piece *piece, const struct job *job, int64_t begin)
{
    int64_t end = begin + job->rows, rows = fl_conv_rows(job->c);
    piece->begin = begin;
    piece->end = end < rows ? end : rows;
}

static struct piece block_of_images(const struct job *job, int64_t block, int64_t group)
{
    int64_t first = block * job->lanes, left = job->c->images - first;
    return (struct piece){.image = first, .lanes = left < job->lanes ? left : job->lanes, .group = group};
}

/* The columns of `channels` channels of a piece, and how far apart their rows lie. */
static const char *columns_of(int64_t *row, struct job *job, struct room *room, const struct piece *piece,
                              int64_t channel, int64_t channels)
{
    const fl_conv *c = job->c;
    int64_t plane = fl_conv_x_plane(c);
    const char *x = job->x + ((piece->image * c->groups + piece->group) * c->in + channel) * plane * job->item;
    bool direct = fl_conv_is_pointwise(c);
    if (piece->lanes > 1) {
        loops()->interleave[job->type](room->x, x, channels * plane, piece->lanes, c->groups * c->in * plane);
        x = room->x;
    }
    *row = direct ? plane * piece->lanes : piece_length(job, piece);
    if (direct) return x + piece->begin * c->y_size[2] * piece->lanes * job->item;
    loops()->unfold[job->type](room->columns, *row, x, c, channels, piece->begin, piece->end, piece->lanes);
    return room->columns;
}

/* dy of a piece [out, positions], and how far apart its rows lie. */
static const char *dy_of(int64_t *row, struct job *job, struct room *room, const struct piece *piece)
{
    const fl_conv *c = job->c;
    int64_t plane = fl_conv_y_plane(c);
    const char *dy = job->dy + (piece->image * c->groups + piece->group) * c->out * plane * job->item;
    *row = plane * piece->lanes;
    if (piece->lanes == 1) return dy + piece->begin * c->y_size[2] * job->item;
    loops()->interleave[job->type](room->y, dy, c->out * plane, piece->lanes, c->groups * c->out * plane);
    return room->y;
}

/* ---- forward ---- */

static void forward_piece(struct job *job, struct room *room, const struct piece *piece)
{
    const fl_conv *c = job->c;
    int64_t depth = fl_conv_depth(c), plane = fl_conv_y_plane(c), row;
    char *y = job->out + (piece->image * c->groups + piece->group) * c->out * plane * job->item;
    char *to = piece->lanes > 1 ? room->y : y + piece->begin * c->y_size[2] * job->item;
    fl_gemm g = {.m = c->out,
                 .n = piece_length(job, piece),
                 .k = depth,
                 .a = job->weight + piece->group * c->out * depth * job->item,
                 .b = columns_of(&row, job, room, piece, 0, c->in),
                 .c = to,
                 .a_row = depth,
                 .a_col = 1,
                 .b_row = row,
                 .b_col = 1,
                 .c_row = plane * piece->lanes,
                 .alpha = 1,
                 .beta = job->bias ? 1 : 0};
    for (int64_t o = 0; job->bias && o < c->out; o++)
        loops()->fill[job->type](to + o * g.c_row * job->item, job->bias + (piece->group * c->out + o) * job->item,
                                 g.n);
    fl_gemm_kernel(job->dtype)(&g);
    if (piece->lanes > 1) loops()->separate[job->type](y, to, c->out * plane, piece->lanes, c->groups * c->out * plane);
}

static void forward_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    struct room room;
    if (!room_open(&room, j)) return;
    for (int64_t i = from; i < to; i++) {
        int64_t at = i / j->pieces;
        struct piece piece = block_of_images(j, at / j->c->groups, at % j->c->groups);
        piece_rows(&piece, j, i % j->pieces * j->rows);
        forward_piece(j, &room, &piece);
    }
}

fl_status fl_cpu_conv(fl_dtype dtype, const fl_conv *conv, void *y, const void *x, const void *weight, const void *bias)
{
    bool done = false;
    if (dtype == FL_FLOAT32) FL_TRY(fl_cpu_conv_onednn(&done, FL_CONV_FORWARD, conv, x, weight, y, bias));
    if (done) return FL_OK;
    if (fl_conv_is_depthwise(conv)) return fl_cpu_conv_depthwise(dtype, conv, y, x, weight, bias);
    struct job j = job_of(dtype, conv);
    j.x = x;
    j.weight = weight;
    j.bias = bias;
    j.out = y;
    double multiplications = (double)conv->out * (double)fl_conv_depth(conv)
        * (double)(j.rows * conv->y_size[2] * j.lanes);
    return run(&j, j.blocks * conv->groups * j.pieces, multiplications, forward_part);
}

/* ---- gradient of the input ---- */

/* dx of one block of images of a group: where it is computed, [in, ...] with as many lanes. */
static void input_grad_block(struct job *job, struct room *room, struct piece *piece)
{
    const fl_conv *c = job->c;
    int64_t depth = fl_conv_depth(c), x_numel = c->in * fl_conv_x_plane(c), row;
    bool direct = fl_conv_is_pointwise(c);
    char *out = job->out + (piece->image * c->groups + piece->group) * x_numel * job->item,
         *dx = piece->lanes > 1 ? room->x : out;
    if (!direct) memset(dx, 0, (size_t)(x_numel * piece->lanes * job->item));
    for (int64_t begin = 0; begin < fl_conv_rows(c); begin = piece->end) {
        piece_rows(piece, job, begin);
        int64_t n = piece_length(job, piece), at = begin * c->y_size[2] * piece->lanes;
        const char *dy = dy_of(&row, job, room, piece);
        fl_gemm g = {.m = depth,
                     .n = n,
                     .k = c->out,
                     .a = job->weight + piece->group * c->out * depth * job->item,
                     .b = dy,
                     .c = direct ? dx + at * job->item : room->columns,
                     .a_row = 1,
                     .a_col = depth,
                     .b_row = row,
                     .b_col = 1,
                     .c_row = direct ? row : n,
                     .alpha = 1};
        fl_gemm_kernel(job->dtype)(&g);
        if (!direct) loops()->fold[job->type](dx, room->columns, n, c, c->in, piece->begin, piece->end, piece->lanes);
    }
    if (piece->lanes > 1) loops()->separate[job->type](out, dx, x_numel, piece->lanes, c->groups * x_numel);
}

static void input_grad_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    struct room room;
    if (!room_open(&room, j)) return;
    for (int64_t i = from; i < to; i++) {
        struct piece piece = block_of_images(j, i / j->c->groups, i % j->c->groups);
        input_grad_block(j, &room, &piece);
    }
}

/* Zeros between the elements of dy cost less than columns. */
static bool suits_depthwise_grad(const fl_conv *conv)
{
    const fl_window_geometry *w = &conv->window;
    for (int d = 0; d < FL_WINDOW_AXES; d++)
        if (w->padding[d] >= fl_window_geometry_span(w, d) || w->stride[d] > 2) return false;
    return fl_conv_is_depthwise(conv);
}

fl_status fl_cpu_conv_input_grad(fl_dtype dtype, const fl_conv *conv, void *dx, const void *dy, const void *weight)
{
    bool done = false;
    if (dtype == FL_FLOAT32) FL_TRY(fl_cpu_conv_onednn(&done, FL_CONV_INPUT_GRAD, conv, dx, weight, dy, NULL));
    if (done) return FL_OK;
    if (suits_depthwise_grad(conv)) return fl_cpu_conv_depthwise_input_grad(dtype, conv, dx, dy, weight);
    struct job j = job_of(dtype, conv);
    j.dy = dy;
    j.weight = weight;
    j.out = dx;
    double multiplications = (double)conv->out * (double)fl_conv_depth(conv)
        * (double)(fl_conv_y_plane(conv) * j.lanes);
    return run(&j, j.blocks * conv->groups, multiplications, input_grad_part);
}

/* ---- gradient of the weight ---- */

/* Adds the images of one part to its sums [groups, depth, out], for one share of the channels. */
static void sum_images(struct job *job, struct room *room, int64_t part, int64_t group, int64_t share)
{
    const fl_conv *c = job->c;
    int64_t first = c->in * share / job->shares, last = c->in * (share + 1) / job->shares, plane = fl_conv_y_plane(c),
            taps = fl_conv_taps(c), block = job->blocks * part / job->parts,
            end_block = job->blocks * (part + 1) / job->parts, row, dy_row;
    char *out = job->out + ((part * c->groups + group) * fl_conv_depth(c) + first * taps) * c->out * job->item;
    if (block == end_block || plane == 0) memset(out, 0, (size_t)((last - first) * taps * c->out * job->item));
    for (bool started = false; block < end_block; block++) {
        struct piece piece = block_of_images(job, block, group);
        for (int64_t begin = 0; begin < fl_conv_rows(c); begin = piece.end, started = true) {
            piece_rows(&piece, job, begin);
            const char *columns = columns_of(&row, job, room, &piece, first, last - first);
            const char *dy = dy_of(&dy_row, job, room, &piece);
            fl_gemm g = {.m = (last - first) * taps,
                         .n = c->out,
                         .k = piece_length(job, &piece),
                         .a = columns,
                         .b = dy,
                         .c = out,
                         .a_row = row,
                         .a_col = 1,
                         .b_row = 1,
                         .b_col = dy_row,
                         .c_row = c->out,
                         .alpha = 1,
                         .beta = started ? 1 : 0};
            fl_gemm_kernel(job->dtype)(&g);
        }
    }
}

static void weight_grad_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    struct room room;
    if (!room_open(&room, j)) return;
    for (int64_t i = from; i < to; i++)
        sum_images(j, &room, i / j->shares / j->c->groups, i / j->shares % j->c->groups, i % j->shares);
}

fl_status fl_cpu_conv_weight_grad(fl_dtype dtype, const fl_conv *conv, void *dweight, const void *dy, const void *x)
{
    bool done = false;
    if (dtype == FL_FLOAT32) FL_TRY(fl_cpu_conv_onednn(&done, FL_CONV_WEIGHT_GRAD, conv, x, dweight, dy, NULL));
    if (done) return FL_OK;
    if (fl_conv_is_depthwise(conv)) return fl_cpu_conv_depthwise_weight_grad(dtype, conv, dweight, dy, x);
    struct job j = job_of(dtype, conv);
    int64_t depth = fl_conv_depth(conv), numel = conv->groups * conv->out * depth;
    j.parts = PART_BYTES / (numel * j.item);
    if (j.parts > PARTS) j.parts = PARTS;
    if (j.parts > j.blocks) j.parts = j.blocks;
    if (j.parts < 1) j.parts = 1;
    j.shares = (UNITS + j.parts * conv->groups - 1) / (j.parts * conv->groups);
    if (j.shares > conv->in) j.shares = conv->in;
    j.x = x;
    j.dy = dy;
    j.out = fl_scratch(PARTS_SCRATCH, (size_t)(j.parts * numel * j.item));
    if (!j.out) return fl_fail(FL_ERR_MEMORY, "conv: out of memory for the sums over images");
    int64_t units = j.parts * conv->groups * j.shares;
    double multiplications = (double)numel * (double)conv->images * (double)fl_conv_y_plane(conv) / (double)units;
    FL_TRY(run(&j, units, multiplications, weight_grad_part));
    for (int64_t o = 0; o < conv->groups * conv->out; o++) {
        int64_t at = o / conv->out * depth * conv->out + o % conv->out;
        loops()->sum[j.type]((char *)dweight + o * depth * j.item, j.out + at * j.item, depth, j.parts, numel,
                             conv->out);
    }
    return FL_OK;
}
