/*
** scatter.cu -- elements written at places that an index names along an axis.
**
** Of equal places the last one in the order of the index stays, as on the CPU: where there can be equal ones, an
** integer maximum finds for every place the number of the last position that names it, and only that one writes.
*/
#include "core/op/indexing.h"
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"
#include "index.h"
#include "permute.h"
#include "cuda/parts/positions.h"

enum { THREADS = 256, AXES = FL_LAYOUT_AXES };

/* Operands: out without the axis, src, positions (bytes), place without the axis (elements of a row-major array like
** out). */
typedef fl_walk<4, AXES> scatter_walk;

struct scatter_axis {
    int64_t first, held;   /* positions that this part of x holds */
    int64_t stride, place; /* from one to the next: bytes of out, elements of the places */
    const int64_t *all;    /* positions */
    long long *last;       /* for each place; NULL: no two positions name the same */
};

/* The position's place along the axis; false: not here. */
__device__ static inline bool find_place(int64_t *local, const int64_t *position, const scatter_axis &axis)
{
    *local = *position - axis.first;
    return (uint64_t)*local < (uint64_t)axis.held;
}

__global__ void __launch_bounds__(THREADS) mark_last(const char *positions, int64_t places, scatter_axis axis,
                                                     uint32_t total, const __grid_constant__ scatter_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][4], local;
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    const int64_t *position = (const int64_t *)(positions + offset[0][2]);
    if (find_place(&local, position, axis))
        atomicMax(&axis.last[places + offset[0][3] + local * axis.place], (long long)(position - axis.all));
}

/* src NULL: `same` everywhere. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    write_places(char *out, const char *src, T same, const char *positions, int64_t places, scatter_axis axis,
                 uint32_t total, const __grid_constant__ scatter_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][4], local;
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    const int64_t *position = (const int64_t *)(positions + offset[0][2]);
    if (!find_place(&local, position, axis)) return;
    if (axis.last && axis.last[places + offset[0][3] + local * axis.place] != position - axis.all) return;
    *(T *)(out + offset[0][0] + local * axis.stride) = src ? *(const T *)(src + offset[0][1]) : same;
}

/* The source and the places of a scatter. */
struct scatter_job {
    char *out;
    const char *src, *positions;
    int64_t places; /* of the first element */
    fl_layout layout;
    scatter_axis axis;
};

/* The part of the index that falls into this part of out. src_strides in elements; false: there is none. */
static bool scatter_layout(scatter_job *job, const fl_view *out, const fl_view *positions, const int64_t *src_strides,
                           int axis)
{
    int64_t width = (int64_t)fl_dtype_size(out->dtype), steps[FL_MAX_NDIM], places[FL_MAX_NDIM];
    fl_cuda_strides(steps, positions->size, positions->ndim);
    fl_cuda_strides(places, out->size, out->ndim);
    job->layout.operands = 4;
    job->layout.count = out->ndim;
    job->axis.held = 1;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {positions->size[a],
                       {out->stride[a] * width, src_strides[a] * width, steps[a] * (int64_t)sizeof(int64_t),
                        places[a]}};
        int64_t index_start = positions->start[a], start = out->start[a],
                from = index_start > start ? index_start : start;
        if (a == axis) {
            job->axis.first = start;
            job->axis.held = out->size[a];
            job->axis.stride = own.stride[0];
            job->axis.place = own.stride[3];
            own.stride[0] = own.stride[3] = 0;
        } else {
            int64_t index_end = index_start + positions->size[a], end = start + out->size[a];
            own.size = (index_end < end ? index_end : end) - from;
            if (own.size <= 0) return false;
            job->out += (from - start) * own.stride[0];
            job->src += job->src ? (from - index_start) * own.stride[1] : 0;
            job->positions += (from - index_start) * own.stride[2];
            job->places += (from - start) * own.stride[3];
        }
        job->layout.axes[a] = own;
    }
    fl_layout_simplify(&job->layout);
    return out->numel > 0 && positions->numel > 0;
}

/* Calls launch(piece, its first place, out, src, positions, walk, total). */
template<typename F>
static void each_walk(const scatter_job *job, F &&launch)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_each_piece(&job->layout, zero, [&](const fl_layout *piece, const int64_t *offset) {
        scatter_walk walk;
        fl_walk_init(&walk, piece);
        launch(offset, (uint32_t)fl_layout_numel(piece), walk);
    });
}

/* same: the bytes of a number, where there is no src. */
static void launch_write(const scatter_job *job, const void *same, int width)
{
    fl_cuda_by_unit(width, [&](auto value) {
        typedef decltype(value) T;
        memcpy(&value, same, (size_t)width);
        each_walk(job, [&](const int64_t *offset, uint32_t total, const scatter_walk &walk) {
            const char *src = job->src ? job->src + offset[1] : NULL;
            FL_LAUNCH((write_places<T>), fl_blocks(total, THREADS), THREADS, 0, job->out + offset[0], src, value,
                      job->positions + offset[2], job->places + offset[3], job->axis, total, walk);
        });
    });
}

/* For every place of out the number of the last position that names it. */
static fl_status find_last(scatter_job *job, int64_t numel)
{
    void *last;
    FL_TRY(fl_cuda_malloc(&last, (size_t)numel * sizeof(long long)));
    cudaMemsetAsync(last, 0xff, (size_t)numel * sizeof(long long), fl_cuda_stream());
    job->axis.last = (long long *)last;
    each_walk(job, [&](const int64_t *offset, uint32_t total, const scatter_walk &walk) {
        FL_LAUNCH(mark_last, fl_blocks(total, THREADS), THREADS, 0, job->positions + offset[2], job->places + offset[3],
                  job->axis, total, walk);
    });
    return FL_OK;
}

/* src NULL: `same` everywhere. */
static fl_status write_values(fl_kernel *kernel, const fl_view *src, const int64_t *same)
{
    const int64_t none[FL_MAX_NDIM] = {0};
    const fl_view *out = &kernel->out[0], *index = &kernel->in[FL_WRITE_INDEX];
    int axis = out->ndim ? fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], out->ndim) : 0;
    fl_cuda_array positions;
    FL_TRY(fl_cuda_array_open(&positions, index, FL_INT64));
    const int64_t *values = (const int64_t *)positions.view.data;
    scatter_job j = {(char *)out->data, src ? (const char *)src->data : NULL, (const char *)values, 0, {}, {}};
    j.axis.all = values;
    fl_status status = fl_cuda_check_positions("scatter", index, values, out->ndim ? out->logical[axis] : 1);
    if (status == FL_OK && scatter_layout(&j, out, &positions.view, src ? src->stride : none, axis)) {
        bool repeats = src && out->ndim && index->size[axis] > 1;
        if (repeats) status = find_last(&j, out->numel);
        if (status == FL_OK) launch_write(&j, same, (int)fl_dtype_size(out->dtype));
        if (j.axis.last) fl_cuda_free(j.axis.last);
    }
    fl_cuda_array_close(&positions);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

static fl_status launch_scatter_write(fl_kernel *kernel)
{
    const fl_view *src = &kernel->in[FL_WRITE_VALUE];
    int64_t number[2] = {0};
    if (src->data != src->scalar) return write_values(kernel, src, number);
    fl_cuda_number_bytes(number, kernel->out[0].dtype, src);
    return write_values(kernel, NULL, number);
}

static fl_status launch_scatter_zero(fl_kernel *kernel)
{
    const int64_t zero[2] = {0};
    FL_TRY(fl_cuda_copy_view(&kernel->out[0], &kernel->in[0]));
    return write_values(kernel, NULL, zero);
}

FL_CUDA_OP(scatter_write_, launch_scatter_write);
FL_CUDA_OP(scatter_zero, launch_scatter_zero);
