/*
** scatter.c -- elements written where an index names places along an axis: see scatter.h.
*/
#include "scatter.h"
#include "base/axes.h"
#include "indices.h"

enum { BESIDE = 64 }; /* lines beside each other that are one unit of work */

/* Lines along the axis; strides in bytes: out, src, positions. */
struct write_job {
    char *out;
    const char *src, *positions;
    fl_layout lines;       /* without the axis */
    fl_axis along;         /* the axis of the index; its position says how far out moves */
    int64_t first, held;   /* positions that this part of x holds */
    int64_t place;         /* bytes from one to the next */
    int64_t beside, tiles; /* lines of a unit, units of one row of lines */
    size_t item;
};

/* Goes through a unit, `inner` for each step of `outer`. `item` is a constant where it is called. */
static inline __attribute__((always_inline)) void write_lines(const struct write_job *j, const int64_t *offset,
                                                              const fl_axis *outer, const fl_axis *inner, size_t item)
{
    const int64_t first = j->first, held = j->held, place = j->place;
    for (int64_t i = 0; i < outer->size; i++) {
        char *out = j->out + offset[0] + i * outer->stride[0];
        const char *src = j->src + offset[1] + i * outer->stride[1],
                   *positions = j->positions + offset[2] + i * outer->stride[2];
        for (int64_t c = 0; c < inner->size; c++) {
            int64_t at = *(const int64_t *)positions - first;
            if ((uint64_t)at < (uint64_t)held) memcpy(out + at * place, src, item);
            out += inner->stride[0];
            src += inner->stride[1];
            positions += inner->stride[2];
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
    const fl_axis *outer = lines > 1 ? &job->along : &beside, *inner = lines > 1 ? &beside : &job->along;
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

/* src_strides in elements. false: nothing is written here. */
static bool arrange(struct write_job *job, const fl_view *out, const fl_view *index, const int64_t *src_strides,
                    int axis)
{
    int64_t item = (int64_t)job->item, word = (int64_t)sizeof(int64_t), strides[FL_MAX_NDIM], in_index, in_out;
    fl_shape_strides(strides, index->size, index->ndim);
    job->lines.operands = 3;
    job->along = (fl_axis){1, {0}};
    job->held = 1;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {index->size[a], {out->stride[a] * item, src_strides[a] * item, strides[a] * word}};
        if (a == axis) {
            job->place = own.stride[0];
            own.stride[0] = 0;
            job->along = own;
            job->first = out->start[a];
            job->held = out->size[a];
            continue;
        }
        own.size = overlap(&in_index, &in_out, index, out, a);
        if (own.size == 0) return false;
        job->out += in_out * own.stride[0];
        job->src += in_index * own.stride[1];
        job->positions += in_index * own.stride[2];
        job->lines.axes[job->lines.count++] = own;
    }
    fl_layout_simplify(&job->lines);
    if (job->lines.count == 0) job->lines.axes[job->lines.count++] = (fl_axis){1, {0}};
    return out->numel > 0 && index->numel > 0;
}

fl_status fl_cpu_scatter(fl_kernel *kernel, int axis, const void *src, const int64_t *src_strides)
{
    const fl_view *out = &kernel->out[0], *index = &kernel->in[1];
    const int64_t *positions;
    FL_TRY(fl_indices_open(&positions, kernel, 1));
    fl_index_rule rule = {.who = "scatter",
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = out->ndim ? out->logical[axis] : 1};
    FL_TRY(fl_indices_check(positions, index, &rule));
    struct write_job j = {
        .out = out->data, .src = src, .positions = (const char *)positions, .item = fl_dtype_size(out->dtype)};
    if (!arrange(&j, out, index, src_strides, axis)) return FL_OK;
    int64_t row = j.lines.axes[j.lines.count - 1].size;
    bool dense = fl_layout_magnitude(j.along.stride[2]) < j.lines.axes[j.lines.count - 1].stride[2];
    j.beside = row < BESIDE ? row : BESIDE;
    if (dense && j.along.size >= BESIDE) j.beside = 1; /* a line's positions lie together */
    j.tiles = (row + j.beside - 1) / j.beside;
    fl_team_for(fl_layout_numel(&j.lines) / row * j.tiles, 10 + 2.0 * (double)(j.along.size * j.beside), write_units,
                &j);
    return FL_OK;
}
