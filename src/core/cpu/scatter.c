/*
** scatter.c -- elements and slices that go where an index names places along an axis: see scatter.h.
*/
#include "scatter.h"
#include "base/axes.h"
#include "copy.h"
#include "indices.h"
#include "stage.h"

enum { BESIDE = 64, BESIDE_SLICES = 2048 }; /* lines beside each other that are one unit of work */

/* Lines along the axis; strides in bytes: out, src, positions. */
struct write_job {
    char *out;
    const char *src, *positions;
    fl_layout lines;       /* without the axis */
    fl_axis along;         /* the axis of the index; the stride of out is per position */
    int64_t first, held;   /* positions that this part of x holds */
    int64_t place;         /* bytes from one to the next */
    int64_t beside, tiles; /* lines of a unit, units of one row of lines */
    bool by_line;          /* a unit is done line by line, not position by position */
    size_t item;
    fl_scatter_mode mode;
    fl_dtype dtype;
};

#define T float
#define U float
#define IS_NAN(x) ((x) != (x))
#define FL_T(name) name##_f32
#include "scatter.inc"
#define T double
#define U double
#define IS_NAN(x) ((x) != (x))
#define FL_T(name) name##_f64
#include "scatter.inc"
#define T int64_t
#define U uint64_t
#define IS_NAN(x) false
#define FL_T(name) name##_i64
#include "scatter.inc"
#define T int32_t
#define U uint32_t
#define IS_NAN(x) false
#define FL_T(name) name##_i32
#include "scatter.inc"
#define T int8_t
#define U uint32_t
#define IS_NAN(x) false
#define FL_T(name) name##_i8
#include "scatter.inc"
#define T uint8_t
#define U uint32_t
#define IS_NAN(x) false
#define FL_T(name) name##_u8
#include "scatter.inc"

static void fold_lines(const struct write_job *job, const int64_t *offset, const fl_axis *outer, const fl_axis *inner)
{
    switch (job->dtype) {
    case FL_FLOAT32: fold_f32(job, offset, outer, inner); break;
    case FL_FLOAT64: fold_f64(job, offset, outer, inner); break;
    case FL_INT64: fold_i64(job, offset, outer, inner); break;
    case FL_INT32: fold_i32(job, offset, outer, inner); break;
    case FL_INT8: fold_i8(job, offset, outer, inner); break;
    default: fold_u8(job, offset, outer, inner);
    }
}

/* A line along the axis whose positions, places and elements of src lie side by side. */
static inline __attribute__((always_inline)) void write_line(char *out, const char *src, const char *positions,
                                                             const struct write_job *job, int64_t n, size_t item)
{
    const int64_t first = job->first, held = job->held, *at = (const int64_t *)positions;
    for (int64_t c = 0; c < n; c++) {
        int64_t place = at[c] - first;
        if (FL_LIKELY((uint64_t)place < (uint64_t)held))
            memcpy(out + place * (int64_t)item, src + c * (int64_t)item, item);
    }
}

/* Goes through a unit, `inner` for each step of `outer`. `item` is a constant where it is called. */
static inline __attribute__((always_inline)) void write_lines(const struct write_job *job, const int64_t *offset,
                                                              const fl_axis *outer, const fl_axis *inner, size_t item)
{
    const int64_t first = job->first, held = job->held, place = job->place, n = inner->size;
    const int64_t out_step = inner->stride[0], src_step = inner->stride[1], position_step = inner->stride[2];
    const bool row = position_step == 0 && out_step == (int64_t)item, whole = src_step == (int64_t)item;
    const bool dense = out_step == 0 && place == (int64_t)item && whole && position_step == (int64_t)sizeof(int64_t);
    const fl_copy_kernels *copy = FL_BY_LEVEL(fl_copy_kernels);
    for (int64_t i = 0; i < outer->size; i++) {
        char *out = job->out + offset[0] + i * outer->stride[0];
        const char *src = job->src + offset[1] + i * outer->stride[1],
                   *positions = job->positions + offset[2] + i * outer->stride[2];
        if (dense) {
            write_line(out, src, positions, job, n, item);
            continue;
        }
        if (row) { /* of src, or all of it one value */
            int64_t at = *(const int64_t *)positions - first;
            if ((uint64_t)at >= (uint64_t)held) continue;
            if (whole) memcpy(out + at * place, src, (size_t)n * item);
            else copy->move[__builtin_ctz((unsigned)item)](out + at * place, (int64_t)item, src, src_step, n);
            continue;
        }
        for (int64_t c = 0; c < n; c++) {
            int64_t at = *(const int64_t *)positions - first;
            if ((uint64_t)at < (uint64_t)held) memcpy(out + at * place, src, item);
            out += out_step;
            src += src_step;
            positions += position_step;
        }
    }
}

static void write_unit(const struct write_job *job, int64_t unit)
{
    const fl_axis *last = &job->lines.axes[job->lines.count - 1];
    int64_t from = unit % job->tiles * job->beside,
            lines = last->size - from < job->beside ? last->size - from : job->beside, row = unit / job->tiles;
    int64_t offset[3];
    for (int o = 0; o < 3; o++) offset[o] = from * last->stride[o];
    for (int a = job->lines.count - 2; a >= 0; a--) {
        const fl_axis *axis = &job->lines.axes[a];
        for (int o = 0; o < 3; o++) offset[o] += row % axis->size * axis->stride[o];
        row /= axis->size;
    }
    fl_axis beside = *last;
    beside.size = lines;
    bool by_line = job->by_line || lines == 1;
    const fl_axis *outer = by_line ? &beside : &job->along, *inner = by_line ? &job->along : &beside;
    if (job->mode != FL_SCATTER_WRITE) {
        fold_lines(job, offset, outer, inner);
        return;
    }
    switch (job->item) {
    case 1: write_lines(job, offset, outer, inner, 1); break;
    case 2: write_lines(job, offset, outer, inner, 2); break;
    case 4: write_lines(job, offset, outer, inner, 4); break;
    default: write_lines(job, offset, outer, inner, 8);
    }
}

static void write_units(void *context, int64_t begin, int64_t end)
{
    for (int64_t unit = begin; unit < end; unit++) write_unit(context, unit);
}

/* The part of the index that falls into this part of out: where it begins in both, and its size. */
static int64_t overlap(int64_t *in_index, int64_t *in_out, const fl_view *index, const fl_view *out, int axis)
{
    int64_t from = index->start[axis] > out->start[axis] ? index->start[axis] : out->start[axis];
    int64_t index_end = index->start[axis] + index->size[axis], out_end = out->start[axis] + out->size[axis],
            end = index_end < out_end ? index_end : out_end;
    *in_index = from - index->start[axis];
    *in_out = from - out->start[axis];
    return end > from ? end - from : 0;
}

/* The layout of src and of the positions: sizes and starts are those of `from`, strides in elements of each. */
struct origin {
    const fl_view *from;
    const int64_t *src_strides, *position_strides;
};

/* false: nothing is written here. */
static bool arrange(struct write_job *job, const fl_view *out, const struct origin *origin, int axis)
{
    int64_t item = (int64_t)job->item, word = (int64_t)sizeof(int64_t), in_index, in_out;
    job->lines.operands = 3;
    job->along = (fl_axis){1, {0}};
    job->held = 1;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {origin->from->size[a],
                       {out->stride[a] * item, origin->src_strides[a] * item, origin->position_strides[a] * word}};
        if (a == axis) {
            job->place = own.stride[0];
            own.stride[0] = 0;
            job->along = own;
            job->first = out->start[a];
            job->held = out->size[a];
            continue;
        }
        own.size = overlap(&in_index, &in_out, origin->from, out, a);
        if (own.size == 0) return false;
        job->out += in_out * own.stride[0];
        job->src += in_index * own.stride[1];
        job->positions += in_index * own.stride[2];
        job->lines.axes[job->lines.count++] = own;
    }
    fl_layout_simplify(&job->lines);
    if (job->lines.count == 0) job->lines.axes[job->lines.count++] = (fl_axis){1, {0}};
    return out->numel > 0 && origin->from->numel > 0;
}

static void run(struct write_job *job)
{
    const fl_axis *last = &job->lines.axes[job->lines.count - 1];
    int64_t row = last->size, most = last->stride[2] == 0 ? BESIDE_SLICES : BESIDE;
    bool together = fl_layout_magnitude(job->along.stride[2]) < last->stride[2]; /* a line's positions */
    bool shared = last->stride[2] == 0 && fl_layout_magnitude(job->place) < fl_layout_magnitude(last->stride[0]);
    job->by_line = together || shared;
    job->beside = row < most ? row : most;
    if (job->by_line && job->along.size >= BESIDE) job->beside = 1;
    job->tiles = (row + job->beside - 1) / job->beside;
    fl_team_for(fl_layout_numel(&job->lines) / row * job->tiles, 10 + 2.0 * (double)(job->along.size * job->beside),
                write_units, job);
}

/* Positions that repeat along an axis (its stride is 0) are read and checked once. strides: over all of the index. */
static fl_status open_positions(const int64_t **positions, int64_t *strides, const fl_view *index,
                                const fl_index_rule *rule)
{
    fl_view once = *index;
    int64_t sizes[FL_MAX_NDIM];
    once.size = sizes;
    for (int a = 0; a < index->ndim; a++) {
        bool repeats = index->stride[a] == 0 && index->size[a] > 1;
        sizes[a] = repeats ? 1 : index->size[a];
        if (repeats) once.numel /= index->size[a];
    }
    FL_TRY(fl_indices_array(positions, &once, rule->who, FL_KERNEL_SCRATCH));
    FL_TRY(fl_indices_check(*positions, &once, rule));
    fl_shape_strides(strides, sizes, index->ndim);
    for (int a = 0; a < index->ndim; a++)
        if (sizes[a] != index->size[a]) strides[a] = 0;
    return FL_OK;
}

/* A job that writes into out at positions, strides: over all of the index, which have been checked. */
static fl_status open_job(struct write_job *job, int64_t *strides, const fl_view *out, const fl_view *index, int axis,
                          const char *who, const void *src, fl_scatter_mode mode)
{
    const int64_t *positions;
    fl_index_rule rule = {.who = who,
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = out->ndim ? out->logical[axis] : 1};
    FL_TRY(open_positions(&positions, strides, index, &rule));
    *job = (struct write_job){.out = out->data,
                              .src = src,
                              .positions = (const char *)positions,
                              .item = fl_dtype_size(out->dtype),
                              .mode = mode,
                              .dtype = out->dtype};
    return FL_OK;
}

static fl_status scatter(const fl_view *out, const fl_view *index, int axis, const char *who, const void *src,
                         const int64_t *src_strides, fl_scatter_mode mode)
{
    struct write_job job;
    int64_t strides[FL_MAX_NDIM];
    FL_TRY(open_job(&job, strides, out, index, axis, who, src, mode));
    if (arrange(&job, out, &(struct origin){index, src_strides, strides}, axis)) run(&job);
    return FL_OK;
}

fl_status fl_cpu_scatter(fl_kernel *kernel, int axis, const void *src, const int64_t *src_strides, fl_scatter_mode mode)
{
    static const char *const names[] = {"scatter", "scatter_add", "scatter_reduce", "scatter_reduce", "scatter_reduce"};
    return scatter(&kernel->out[0], &kernel->in[1], axis, names[mode], src, src_strides, mode);
}

fl_status fl_cpu_gather_add(fl_kernel *kernel, int axis)
{
    enum { SRC = 1 << 0, INDEX = 1 << 1 };
    fl_stage s;
    int64_t strides[FL_MAX_NDIM], src_strides[FL_MAX_NDIM];
    const fl_view *out = &kernel->out[0], *src = &kernel->in[0];
    if (out->numel == 0) return FL_OK;
    fl_dtype dtype = fl_dtype_is_float(out->dtype) ? fl_dtype_compute(out->dtype) : FL_INT64;
    FL_TRY(fl_stage_open(&s, kernel, INDEX | (src->dtype == dtype ? SRC : 0)));
    fl_view sums = fl_view_array(out, s.out[0], dtype, strides);
    memset(s.out[0], 0, (size_t)out->numel * fl_dtype_size(dtype));
    fl_stage_strides(src_strides, &s, 0);
    FL_TRY(scatter(&sums, &kernel->in[1], axis, "scatter_add", s.in[0], src_strides, FL_SCATTER_ADD));
    return fl_stage_close(&s);
}

fl_status fl_cpu_scatter_slices(fl_kernel *kernel, int axis, fl_scatter_mode mode)
{
    const fl_view *src = &kernel->in[2];
    struct write_job job;
    int64_t own[FL_MAX_NDIM], strides[FL_MAX_NDIM] = {0};
    FL_TRY(open_job(&job, own, &kernel->out[0], &kernel->in[1], axis, "index_add", src->data, mode));
    strides[axis] = kernel->in[1].ndim ? own[0] : 0;
    if (arrange(&job, &kernel->out[0], &(struct origin){src, src->stride, strides}, axis)) run(&job);
    return FL_OK;
}

/* Positions that the script wrote are checked in words of their own. */
static fl_status check_rows(const int64_t *positions, int64_t n, int axis, int64_t size, const char *who)
{
    for (int64_t i = 0; i < n; i++)
        if (FL_UNLIKELY((uint64_t)positions[i] >= (uint64_t)size))
            return fl_fail(FL_ERR_VALUE, "%s: position %lld is out of range for axis %d of size %lld", who,
                           (long long)positions[i], axis, (long long)size);
    return FL_OK;
}

fl_status fl_cpu_write_slices(fl_kernel *kernel, int axis, const fl_view *value, const char *who)
{
    const fl_view *out = &kernel->out[0];
    const int64_t *positions;
    int64_t sizes[FL_MAX_NDIM], strides[FL_MAX_NDIM] = {0}, src_strides[FL_MAX_NDIM], numel = 1;
    int pad = out->ndim - value->ndim;
    FL_TRY(fl_indices_open(&positions, kernel, 1));
    FL_TRY(check_rows(positions, kernel->in[1].numel, axis, out->logical[axis], who));
    for (int a = 0; a < out->ndim; a++) {
        bool own = a >= pad && value->logical[a - pad] != 1;
        src_strides[a] = own ? value->stride[a - pad] : 0;
        sizes[a] = a == axis ? kernel->in[1].numel : out->size[a];
        numel *= sizes[a];
    }
    strides[axis] = 1;
    fl_view from = {.ndim = out->ndim, .size = sizes, .start = out->start, .numel = numel};
    struct write_job job = {.out = out->data,
                            .src = value->data,
                            .positions = (const char *)positions,
                            .item = fl_dtype_size(out->dtype),
                            .mode = FL_SCATTER_WRITE,
                            .dtype = out->dtype};
    if (arrange(&job, out, &(struct origin){&from, src_strides, strides}, axis)) run(&job);
    return FL_OK;
}
