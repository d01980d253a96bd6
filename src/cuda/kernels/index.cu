/*
** index.cu -- elements and slices picked by position, and written by position.
**
** Picking is one kernel for slices and for single elements: axes are those of the result, the indexed axis takes no
** part in the offset, the position times its stride is added. Neighbours in memory are moved up to 16 bytes at a time.
** Positions out of range are reported by the kernel that meets them and read as zeros. Sums at positions are in
** index_add.cu.
*/
#include "core/op/indexing.h"
#include "core/op/slicing.h"
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"
#include "permute.h"
#include "cuda/parts/positions.h"

#include <stdio.h>

enum { THREADS = 256, EACH = 4, AXES = FL_LAYOUT_AXES };

typedef fl_walk<3, AXES> index_walk;

/* ---- positions out of range ---- */

/* The data of a message about operand `param`. */
struct range_context {
    const char *who, *param, *owner, *noun;
    int64_t limit;
    int ndim;
    int64_t size[FL_MAX_NDIM], start[FL_MAX_NDIM];
};
static_assert(sizeof(range_context) <= FL_CUDA_FAULT_CONTEXT, "the context of a fault");

/* "embedding: indices[2, 0] is 9, but weight has 7 rows (0 to 6)", as cpu/indices.c has it. */
static void word_range(char *text, size_t size, const void *context, long long element, long long value)
{
    const range_context *c = (const range_context *)context;
    char position[FL_SHAPE_TEXT] = "";
    long long at[FL_MAX_NDIM];
    size_t used = 0;
    for (int a = c->ndim - 1; a >= 0; a--) {
        at[a] = c->start[a] + element % c->size[a];
        element /= c->size[a];
    }
    for (int a = 0; a < c->ndim; a++)
        used += (size_t)snprintf(position + used, sizeof position - used, "%s%lld%s", a ? ", " : "[", at[a],
                                 a + 1 == c->ndim ? "]" : "");
    if (c->limit == 0)
        snprintf(text, size, "%s: %s%s is %lld, but %s has no %s", c->who, c->param, position, value, c->owner,
                 c->noun);
    else
        snprintf(text, size, "%s: %s%s is %lld, but %s has %lld %s (0 to %lld)", c->who, c->param, position, value,
                 c->owner, (long long)c->limit, c->noun, (long long)c->limit - 1);
}

/* Checks positions where nothing is picked by them: slices without elements. */
__global__ void __launch_bounds__(THREADS)
    check_positions(const int64_t *values, int64_t count, int64_t limit, fl_cuda_fault *fault)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count && (uint64_t)values[i] >= (uint64_t)limit) fl_cuda_report(fault, i, values[i]);
}

struct pick_words {
    const char *who, *param, *owner, *noun;
};

static range_context range_of(const pick_words &words, const fl_view *index, int64_t limit)
{
    range_context context = {words.who, words.param, words.owner, words.noun, limit, index->ndim, {0}, {0}};
    memcpy(context.size, index->size, sizeof *context.size * (size_t)index->ndim);
    memcpy(context.start, index->start, sizeof *context.start * (size_t)index->ndim);
    return context;
}

fl_status fl_cuda_check_positions(const char *who, const fl_view *index, const int64_t *values, int64_t limit)
{
    range_context context = range_of({who, "index", "this axis of x", "positions"}, index, limit);
    fl_cuda_fault *fault;
    if (index->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fault_new(&fault, word_range, &context, sizeof context));
    FL_LAUNCH(check_positions, fl_blocks(index->numel, THREADS), THREADS, 0, values, index->numel, limit, fault);
    return FL_OK;
}

/* ---- picking ---- */

/* The axis that is picked from: `held` positions from `first` on are here, `limit` there are in all; bytes from one to
** the next. */
struct picked_axis {
    int64_t first, held, limit, stride;
};

/* Operands of the walk: out, x without the axis, positions. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    pick(char *out, const char *x, const char *positions, const int64_t *all, picked_axis axis, uint32_t total,
         fl_cuda_fault *fault, const __grid_constant__ index_walk walk)
{
    uint32_t index[EACH], first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    int64_t offset[EACH][3], at[EACH];
    T value[EACH];
    for (int k = 0; k < EACH; k++) index[k] = first + k * THREADS;
    fl_walk_locate(offset, walk, index);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) at[k] = *(const int64_t *)(positions + offset[k][2]);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (index[k] >= total) continue;
        int64_t local = at[k] - axis.first;
        if ((uint64_t)at[k] < (uint64_t)axis.limit && (uint64_t)local < (uint64_t)axis.held)
            value[k] = *(const T *)(x + offset[k][1] + local * axis.stride);
        else value[k] = T();
        if ((uint64_t)at[k] >= (uint64_t)axis.limit)
            fl_cuda_report(fault, (const int64_t *)(positions + offset[k][2]) - all, at[k]);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) *(T *)(out + offset[k][0]) = value[k];
}

/* The widest unit, up to 16 bytes, in which the first `moved` operands can be moved; the others must not advance along
** the last axis, which then counts units. bits: whatever else must be a multiple of the unit, or-ed. */
static int widen(fl_layout *layout, int moved, int64_t bits, int width)
{
    if (layout->count == 0) return width;
    fl_axis *last = &layout->axes[layout->count - 1];
    for (int o = 0; o < layout->operands; o++)
        if (last->stride[o] != (o < moved ? width : 0)) return width;
    for (int o = 0; o < moved; o++)
        for (int i = 0; i < layout->count - 1; i++) bits |= layout->axes[i].stride[o];
    bits |= last->size * width;
    int unit = 16;
    while (unit > width && bits % unit != 0) unit /= 2;
    last->size /= unit / width;
    for (int o = 0; o < moved; o++) last->stride[o] = unit;
    return unit;
}

static int64_t bits_of(const void *data) { return (int64_t)(uintptr_t)data; }

/* l: out, x, positions (bytes). */
static void launch_pick(fl_layout *layout, char *out, const char *x, const int64_t *values, const picked_axis &axis,
                        fl_cuda_fault *fault, int width)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_layout_simplify(layout);
    int unit = widen(layout, 2, bits_of(out) | bits_of(x) | axis.stride, width);
    fl_cuda_by_unit(unit, [&](auto like) {
        fl_each_piece(layout, zero, [&](const fl_layout *piece, const int64_t *offset) {
            index_walk walk;
            uint32_t total = (uint32_t)fl_layout_numel(piece);
            fl_walk_init(&walk, piece);
            FL_LAUNCH((pick<decltype(like)>), fl_blocks(total, THREADS, EACH), THREADS, 0, out + offset[0],
                      x + offset[1], (const char *)values + offset[2], values, axis, total, fault, walk);
        });
    });
}

/* Picks by operand `index_at` from operand `x_at`. The result has the axes of `layout`, whose third operand counts
** positions in elements; it is completed here. */
static fl_status pick_into(fl_kernel *kernel, fl_layout *layout, int x_at, int index_at, int axis, int64_t base,
                           const pick_words &words)
{
    const fl_view *x = &kernel->in[x_at], *index = &kernel->in[index_at], *out = &kernel->out[0];
    int64_t width = (int64_t)fl_dtype_size(x->dtype);
    picked_axis along = {0, 1, 1, 0};
    if (x->ndim) along = {x->start[axis], x->size[axis], x->logical[axis], x->stride[axis] * width};
    range_context context = range_of(words, index, along.limit);
    fl_cuda_array p;
    fl_cuda_fault *fault;
    if (index->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fault_new(&fault, word_range, &context, sizeof context));
    FL_TRY(fl_cuda_array_open(&p, index, FL_INT64));
    if (out->numel)
        launch_pick(layout, (char *)out->data, (const char *)x->data + base * width, (const int64_t *)p.view.data,
                    along, fault, (int)width);
    else
        FL_LAUNCH(check_positions, fl_blocks(index->numel, THREADS), THREADS, 0, (const int64_t *)p.view.data,
                  index->numel, along.limit, fault);
    fl_cuda_array_close(&p);
    return fl_cuda_check(kernel->name);
}

static void add_axis(fl_layout *layout, int64_t size, int64_t first, int64_t second, int64_t third)
{
    fl_axis *a = &layout->axes[layout->count++];
    a->size = size;
    a->stride[0] = first;
    a->stride[1] = second;
    a->stride[2] = third;
}

static fl_status launch_embedding(fl_kernel *kernel)
{
    const fl_view *index = &kernel->in[FL_EMBEDDING_INDICES], *weight = &kernel->in[FL_EMBEDDING_WEIGHT],
                  *out = &kernel->out[0];
    int64_t width = (int64_t)fl_dtype_size(weight->dtype);
    fl_layout l;
    l.count = 0;
    l.operands = 3;
    add_axis(&l, index->numel, weight->size[1] * width, 0, sizeof(int64_t));
    add_axis(&l, weight->size[1], out->stride[out->ndim - 1] * width, weight->stride[1] * width, 0);
    return pick_into(kernel, &l, FL_EMBEDDING_WEIGHT, FL_EMBEDDING_INDICES, 0, 0,
                     {"embedding", "indices", "weight", "rows"});
}

static fl_status launch_index_select(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0], *out = &kernel->out[0];
    int axis = fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], x->ndim);
    int64_t width = (int64_t)fl_dtype_size(x->dtype);
    fl_layout l;
    l.count = 0;
    l.operands = 3;
    for (int a = 0; a < out->ndim; a++)
        add_axis(&l, out->size[a], out->stride[a] * width, a == axis ? 0 : x->stride[a] * width,
                 a == axis ? sizeof(int64_t) : 0);
    return pick_into(kernel, &l, FL_TAKEN_X, FL_TAKEN_INDEX, axis, 0,
                     {"index_select", "index", "this axis of x", "positions"});
}

static fl_status launch_gather(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0], *index = &kernel->in[FL_TAKEN_INDEX], *out = &kernel->out[0];
    int axis = x->ndim ? fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], x->ndim) : 0;
    int64_t width = (int64_t)fl_dtype_size(x->dtype), base = 0, strides[FL_MAX_NDIM];
    fl_layout l;
    l.count = 0;
    l.operands = 3;
    fl_cuda_strides(strides, index->size, index->ndim);
    for (int a = 0; a < out->ndim; a++) {
        add_axis(&l, out->size[a], out->stride[a] * width, a == axis ? 0 : x->stride[a] * width,
                 strides[a] * (int64_t)sizeof(int64_t));
        if (a != axis) base += (index->start[a] - x->start[a]) * x->stride[a];
    }
    return pick_into(kernel, &l, FL_TAKEN_X, FL_TAKEN_INDEX, axis, base,
                     {"gather", "index", "this axis of x", "positions"});
}

FL_CUDA_OP(embedding, launch_embedding);
FL_CUDA_OP(index_select, launch_index_select);
FL_CUDA_OP(gather, launch_gather);

/* ---- negative positions ---- */

static void word_wrap(char *text, size_t size, const void *context, long long element, long long value)
{
    snprintf(text, size, "index: position %lld (element %lld of the index) is out of range for an axis of size %lld",
             value, element, (long long)*(const int64_t *)context);
}

__global__ void __launch_bounds__(THREADS)
    wrap(int64_t *out, const int64_t *values, int64_t count, int64_t size, fl_cuda_fault *fault)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t at = values[i];
    if (at < -size || at >= size) fl_cuda_report(fault, i, at);
    out[i] = at < 0 ? at + size : at;
}

static fl_status launch_wrap(fl_kernel *kernel)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    int64_t size = kernel->attrs->at[FL_WRAP_SIZE].integer, *at = (int64_t *)out->data;
    bool plain = in->contiguous && in->dtype == FL_INT64;
    fl_cuda_fault *fault;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fault_new(&fault, word_wrap, &size, sizeof size));
    if (!plain) FL_TRY(fl_cuda_copy_view(out, in));
    FL_LAUNCH(wrap, fl_blocks(out->numel, THREADS), THREADS, 0, at, plain ? (const int64_t *)in->data : at, out->numel,
              size, fault);
    return fl_cuda_check(kernel->name);
}

FL_CUDA_OP(wrap_index, launch_wrap);

/* ---- writing ---- */

/* The axis that is written to, and its positions. */
struct written_axis {
    int64_t first, held, limit, stride; /* as picked_axis */
    const int64_t *all;                 /* positions */
    const long long *last;              /* [held]: number of the last position that names it; NULL: all may write */
};

/* Bytes from the place of the walk, which has moved by the position's number along the axis, to the place that the
** position names; false: nothing is written. */
__device__ static bool find_place(int64_t *move, const int64_t *position, const written_axis &axis,
                                  fl_cuda_fault *fault)
{
    int64_t at = *position, local = at - axis.first, number = position - axis.all;
    if ((uint64_t)at >= (uint64_t)axis.limit) fl_cuda_report(fault, number, at);
    if ((uint64_t)at >= (uint64_t)axis.limit || (uint64_t)local >= (uint64_t)axis.held) return false;
    *move = (local - number) * axis.stride;
    return !axis.last || axis.last[local] == number;
}

/* Operands of the walk: out, value, positions. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    put(char *out, const char *value, const char *positions, written_axis axis, uint32_t total, fl_cuda_fault *fault,
        const __grid_constant__ index_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][3], move;
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    const int64_t *position = (const int64_t *)(positions + offset[0][2]);
    if (find_place(&move, position, axis, fault))
        *(T *)(out + offset[0][0] + move) = *(const T *)(value + offset[0][1]);
}

/* One value everywhere: operands out, nothing, positions. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    put_same(char *out, T value, const char *positions, written_axis axis, uint32_t total, fl_cuda_fault *fault,
             const __grid_constant__ index_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][3], move;
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    const int64_t *position = (const int64_t *)(positions + offset[0][2]);
    if (find_place(&move, position, axis, fault)) *(T *)(out + offset[0][0] + move) = value;
}

/* Of equal positions the last one stays: an integer maximum, so the order of threads does not count. */
__global__ void __launch_bounds__(THREADS)
    find_last(long long *last, const int64_t *positions, int64_t count, int64_t first, int64_t held)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t local = positions[i] - first;
    if ((uint64_t)local < (uint64_t)held) atomicMax(&last[local], (long long)i);
}

struct write_context {
    const char *who;
    int64_t size;
    int axis;
};

static void word_write(char *text, size_t size, const void *context, long long, long long value)
{
    const write_context *c = (const write_context *)context;
    snprintf(text, size, "%s: position %lld is out of range for axis %d of size %lld", c->who, value, c->axis,
             (long long)c->size);
}

/* out with `count` positions along the axis; strides of the value, in elements, may be 0. */
static void write_layout(fl_layout *layout, const fl_view *out, int axis, int64_t count, const int64_t *value_strides)
{
    int64_t width = (int64_t)fl_dtype_size(out->dtype);
    layout->count = 0;
    layout->operands = 3;
    for (int a = 0; a < out->ndim; a++)
        add_axis(layout, a == axis ? count : out->size[a], out->stride[a] * width, value_strides[a] * width,
                 a == axis ? sizeof(int64_t) : 0);
    fl_layout_simplify(layout);
}

/* value: device memory in out's dtype, or NULL: the bytes of `same` everywhere. */
static void launch_put(const fl_view *out, fl_layout *layout, const char *value, const void *same,
                       const written_axis &axis, fl_cuda_fault *fault)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    int width = (int)fl_dtype_size(out->dtype),
        unit = widen(layout, value ? 2 : 1, bits_of(out->data) | bits_of(value) | axis.stride, width);
    char repeated[16], *data = (char *)out->data;
    for (int i = 0; i < 16 && !value; i += width) memcpy(repeated + i, same, (size_t)width);
    fl_cuda_by_unit(unit, [&](auto like) {
        typedef decltype(like) T;
        memcpy(&like, repeated, sizeof like);
        fl_each_piece(layout, zero, [&](const fl_layout *piece, const int64_t *offset) {
            index_walk walk;
            uint32_t total = (uint32_t)fl_layout_numel(piece);
            const char *positions = (const char *)axis.all + offset[2];
            fl_walk_init(&walk, piece);
            if (value)
                FL_LAUNCH((put<T>), fl_blocks(total, THREADS), THREADS, 0, data + offset[0], value + offset[1],
                          positions, axis, total, fault, walk);
            else
                FL_LAUNCH((put_same<T>), fl_blocks(total, THREADS), THREADS, 0, data + offset[0], like, positions, axis,
                          total, fault, walk);
        });
    });
}

/* For every position of this part of the axis the number of the last index that names it, -1 where none does. */
static fl_status last_of(void **last, const fl_view *out, int axis, const fl_view *positions)
{
    size_t bytes = (size_t)out->size[axis] * sizeof(long long);
    FL_TRY(fl_cuda_malloc(last, bytes));
    cudaMemsetAsync(*last, 0xff, bytes, fl_cuda_stream());
    FL_LAUNCH(find_last, fl_blocks(positions->numel, THREADS), THREADS, 0, (long long *)*last,
              (const int64_t *)positions->data, positions->numel, out->start[axis], out->size[axis]);
    return FL_OK;
}

/* Writes rows at the positions: value_strides in elements along out's axes; value NULL: `same` everywhere. */
static fl_status write_at(const fl_view *out, const fl_view *positions, const char *value, const int64_t *value_strides,
                          const void *same, int axis, fl_cuda_fault *fault)
{
    const int64_t *values = (const int64_t *)positions->data;
    fl_layout l;
    void *last = NULL;
    if (out->numel == 0) {
        FL_LAUNCH(check_positions, fl_blocks(positions->numel, THREADS), THREADS, 0, values, positions->numel,
                  out->logical[axis], fault);
        return FL_OK;
    }
    if (value && value_strides[axis] != 0 && positions->numel > 1) FL_TRY(last_of(&last, out, axis, positions));
    written_axis along = {out->start[axis],
                          out->size[axis],
                          out->logical[axis],
                          out->stride[axis] * (int64_t)fl_dtype_size(out->dtype),
                          values,
                          (const long long *)last};
    write_layout(&l, out, axis, positions->numel, value_strides);
    launch_put(out, &l, value, same, along, fault);
    if (last) fl_cuda_free(last);
    return FL_OK;
}

static fl_status write_rows(fl_kernel *kernel, const char *value, const int64_t *value_strides, const void *same,
                            int axis, const char *who)
{
    const fl_view *out = &kernel->out[0], *index = &kernel->in[FL_WRITE_INDEX];
    write_context context = {who, out->logical[axis], axis};
    fl_cuda_array positions;
    fl_cuda_fault *fault;
    if (index->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fault_new(&fault, word_write, &context, sizeof context));
    FL_TRY(fl_cuda_array_open(&positions, index, FL_INT64));
    fl_status status = write_at(out, &positions.view, value, value_strides, same, axis, fault);
    fl_cuda_array_close(&positions);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

static fl_status launch_index_write(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0], *value = &kernel->in[FL_WRITE_VALUE];
    int axis = fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], out->ndim), pad = out->ndim - value->ndim;
    int64_t along[FL_MAX_NDIM] = {0}, number[2] = {0};
    if (value->data == value->scalar) {
        fl_cuda_number_bytes(number, out->dtype, value);
        return write_rows(kernel, NULL, along, number, axis, "index_put_");
    }
    fl_cuda_array converted;
    if (value->dtype != out->dtype) {
        FL_TRY(fl_cuda_array_open(&converted, value, out->dtype));
        value = &converted.view;
    }
    for (int a = pad; a < out->ndim; a++)
        if (value->logical[a - pad] != 1) along[a] = value->stride[a - pad];
    fl_status status = write_rows(kernel, (const char *)value->data, along, NULL, axis, "index_put_");
    if (value == &converted.view) fl_cuda_array_close(&converted);
    return status;
}

static fl_status launch_index_zero(fl_kernel *kernel)
{
    const int64_t none[FL_MAX_NDIM] = {0}, zero[2] = {0};
    FL_TRY(fl_cuda_copy_view(&kernel->out[0], &kernel->in[0]));
    if (kernel->out[0].numel == 0) return FL_OK;
    return write_rows(kernel, NULL, none, zero, fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], kernel->out[0].ndim),
                      "index_zero");
}

FL_CUDA_OP(index_write_, launch_index_write);
FL_CUDA_OP(index_zero, launch_index_zero);

/* ---- gradients of views: zeros with g in its place ---- */

static fl_status zero_view(const fl_view *out)
{
    const int64_t zero[2] = {0};
    return fl_cuda_fill_view(out, zero);
}

/* Zeros where positions from .. to - 1 of the axis are. */
static fl_status zero_between(const fl_view *out, int axis, int64_t from, int64_t to)
{
    int64_t sizes[FL_MAX_NDIM];
    fl_view part = *out;
    if (from >= to) return FL_OK;
    memcpy(sizes, out->size, sizeof *sizes * (size_t)out->ndim);
    sizes[axis] = to - from;
    part.size = sizes;
    part.data = (char *)out->data + from * out->stride[axis] * (int64_t)fl_dtype_size(out->dtype);
    part.numel = out->numel / out->size[axis] * (to - from);
    part.contiguous = false;
    return fl_cuda_fill_view(&part, (const int64_t[2]){0});
}

/* g into out, from an offset on with strides of its own (in elements). */
static fl_status put_in_place(const fl_view *out, const fl_view *g, int64_t offset, const int64_t *strides)
{
    fl_view part = *g;
    part.data = (char *)out->data + offset * (int64_t)fl_dtype_size(out->dtype);
    part.stride = strides;
    part.contiguous = out->contiguous && g->numel == out->numel;
    return fl_cuda_copy_view(&part, g);
}

static fl_status launch_narrow_backward(fl_kernel *kernel)
{
    const fl_view *g = &kernel->in[0], *out = &kernel->out[0];
    int axis = fl_cuda_axis(&kernel->attrs->at[FL_SLICE_AXIS], g->ndim);
    int64_t strides[FL_MAX_NDIM], start = kernel->attrs->at[FL_SLICE_START].integer,
                                  step = kernel->attrs->at[FL_SLICE_STEP].integer;
    if (out->numel == 0) return FL_OK;
    if (g->numel == 0) return zero_view(out);
    if (step == 1) { /* zeros before and behind: nothing is written twice */
        FL_TRY(zero_between(out, axis, 0, start));
        FL_TRY(zero_between(out, axis, start + g->size[axis], out->size[axis]));
    } else if (g->numel < out->numel) FL_TRY(zero_view(out));
    memcpy(strides, out->stride, sizeof *strides * (size_t)out->ndim);
    strides[axis] *= step;
    return put_in_place(out, g, start * out->stride[axis], strides);
}

static fl_status launch_diagonal_backward(fl_kernel *kernel)
{
    const fl_view *g = &kernel->in[0], *out = &kernel->out[0];
    int axis0 = fl_cuda_axis(&kernel->attrs->at[FL_DIAGONAL_AXIS0], out->ndim),
        axis1 = fl_cuda_axis(&kernel->attrs->at[FL_DIAGONAL_AXIS1], out->ndim), n = 0;
    int64_t strides[FL_MAX_NDIM], shift = kernel->attrs->at[FL_DIAGONAL_OFFSET].integer;
    FL_TRY(zero_view(out));
    if (g->numel == 0) return FL_OK;
    for (int a = 0; a < out->ndim; a++)
        if (a != axis0 && a != axis1) strides[n++] = out->stride[a];
    strides[n] = out->stride[axis0] + out->stride[axis1];
    return put_in_place(out, g, shift >= 0 ? shift * out->stride[axis1] : -shift * out->stride[axis0], strides);
}

FL_CUDA_OP(narrow_backward, launch_narrow_backward);
FL_CUDA_OP(diagonal_backward, launch_diagonal_backward);
