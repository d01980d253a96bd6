/*
** index_add.cu -- sums at positions: the gradients of embedding, index_select and gather; products and extremes at
** positions.
**
** No sum depends on the order of threads. The positions are sorted (stable), so what one row of the result receives is
** a run of neighbours; a thread adds it up in the order of the indices, as the CPU does, and writes each element of the
** result once, zeros included. Runs longer than CHUNK are first added up in chunks, counted from the beginning of the
** run. gather_backward goes through its lines instead when there are many: a thread adds one line, no other touches its
** elements.
*/
#include "core/op/indexing.h"
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"
#include "permute.h"
#include "cuda/parts/positions.h"
#include "sort.h"

enum { THREADS = 256, CHUNK = 128, ENOUGH_LINES = 8192, SHORT_LINE = 32 };

/* The range of a row's positions among the sorted ones. */
struct run {
    uint32_t begin, end;
};

/* ---- rows ---- */

/* Row numbers of this part; `rows` for positions that it does not hold. */
__global__ void __launch_bounds__(THREADS)
    row_keys(uint32_t *keys, const int64_t *positions, uint32_t count, int64_t first, uint32_t rows)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t at = positions[i] - first;
    keys[i] = (uint64_t)at < rows ? (uint32_t)at : rows;
}

__global__ void __launch_bounds__(THREADS) find_runs(run *runs, const uint32_t *keys, uint32_t count, uint32_t rows)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count || keys[i] >= rows) return;
    if (i == 0 || keys[i - 1] != keys[i]) runs[keys[i]].begin = i;
    if (i == count - 1 || keys[i + 1] != keys[i]) runs[keys[i]].end = i + 1;
}

/* sum[0..N) += the rows of dy that order[begin..end) names; a row is `slice` bytes */
template<typename T, int N, typename W>
__device__ static void add_rows(W (&sum)[N], const char *dy, int64_t slice, const uint32_t *order, uint32_t begin,
                                uint32_t end)
{
#pragma unroll 4
    for (uint32_t i = begin; i < end; i++) {
        fl_pack<T, N> x = *(const fl_pack<T, N> *)(dy + order[i] * slice);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += fl_load(x.at[j]);
    }
}

/* Each window of CHUNK sorted positions has two slots for chunks that begin in it: 0 the first one of a run, 1 a later
** one. There cannot be more, since a run that has chunks is longer than a window. */
__device__ static bool find_chunk(uint32_t *begin, uint32_t *end, uint32_t slot, const run *runs, const uint32_t *keys,
                                  uint32_t count, uint32_t rows)
{
    uint32_t window = slot / 2 * CHUNK, next = window + CHUNK;
    bool later = slot % 2;
    if (!later && next >= count) return false;
    uint32_t row = keys[later ? window : next];
    if (row >= rows) return false;
    run r = runs[row];
    if (r.end - r.begin <= CHUNK) return false;
    *begin = later ? r.begin + (window - r.begin + CHUNK - 1) / CHUNK * CHUNK : r.begin;
    *end = *begin + CHUNK < r.end ? *begin + CHUNK : r.end;
    return *begin >= window && *begin < next && *begin < r.end && (!later || *begin > r.begin);
}

struct sums {
    const uint32_t *keys, *order;
    const run *runs;
    uint32_t count, rows;
    int64_t slice; /* bytes of a row of dy */
    char *partial; /* one row per slot */
    int64_t partial_slice;
};

typedef fl_walk<3, 3> slot_walk;
typedef fl_walk<4, 3> row_walk;

/* Operands: partial, dy, slot. */
template<typename T, int N>
__global__ void __launch_bounds__(THREADS) sum_chunks(sums s, char *partial, const char *dy, uint32_t first_slot,
                                                      uint32_t total, const __grid_constant__ slot_walk walk)
{
    typedef typename fl_wide<T>::type W;
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x}, begin, end;
    int64_t offset[1][3];
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    if (!find_chunk(&begin, &end, first_slot + (uint32_t)offset[0][2], s.runs, s.keys, s.count, s.rows)) return;
    fl_pack<W, N> sum = {};
    add_rows<T, N, W>(sum.at, dy + offset[0][1], s.slice, s.order, begin, end);
    *(fl_pack<W, N> *)(partial + offset[0][0]) = sum;
}

/* Operands: out, dy, row, partial. */
template<typename T, int N>
__global__ void __launch_bounds__(THREADS)
    sum_rows(sums s, char *out, const char *dy, uint32_t first_row, const char *partial, uint32_t total,
             const __grid_constant__ row_walk walk)
{
    typedef typename fl_wide<T>::type W;
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][4];
    W sum[N] = {};
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    run r = s.runs[first_row + (uint32_t)offset[0][2]];
    if (r.end - r.begin <= CHUNK) add_rows<T, N, W>(sum, dy + offset[0][1], s.slice, s.order, r.begin, r.end);
    else
        for (uint32_t at = r.begin; at < r.end; at += CHUNK) {
            uint32_t slot = at / CHUNK * 2 + (at != r.begin);
            fl_pack<W, N> x = *(const fl_pack<W, N> *)(partial + offset[0][3] + slot * s.partial_slice);
            for (int j = 0; j < N; j++) sum[j] += x.at[j];
        }
    fl_pack<T, N> y;
    for (int j = 0; j < N; j++) y.at[j] = fl_store<T>(sum[j]);
    *(fl_pack<T, N> *)(out + offset[0][0]) = y;
}

/* out [outer, rows, inner] from dy [outer, count, inner], both contiguous */
struct add_job {
    char *out;
    const char *dy;
    int64_t outer, rows, inner, count;
};

static void add_axis(fl_layout *layout, int64_t size, int64_t a, int64_t b, int64_t c, int64_t d)
{
    fl_axis *axis = &layout->axes[layout->count++];
    axis->size = size;
    axis->stride[0] = a;
    axis->stride[1] = b;
    axis->stride[2] = c;
    axis->stride[3] = d;
}

template<typename T, int N>
static void launch_chunks(const add_job &job, const sums &sums)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    int64_t wide = (int64_t)sizeof(typename fl_wide<T>::type), slots = 2 * ((job.count + CHUNK - 1) / CHUNK);
    fl_layout l;
    l.count = 0;
    l.operands = 3;
    add_axis(&l, slots, sums.partial_slice, 0, 1, 0);
    add_axis(&l, job.outer, job.inner * wide, job.count * sums.slice, 0, 0);
    add_axis(&l, job.inner / N, N * wide, N * (int64_t)sizeof(T), 0, 0);
    fl_layout_simplify(&l);
    fl_each_piece(&l, zero, [&](const fl_layout *piece, const int64_t *offset) {
        slot_walk walk;
        uint32_t total = (uint32_t)fl_layout_numel(piece);
        fl_walk_init(&walk, piece);
        FL_LAUNCH((sum_chunks<T, N>), fl_blocks(total, THREADS), THREADS, 0, sums, sums.partial + offset[0],
                  job.dy + offset[1], (uint32_t)offset[2], total, walk);
    });
}

template<typename T, int N>
static void launch_rows(const add_job &job, const sums &sums)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    int64_t width = (int64_t)sizeof(T), wide = (int64_t)sizeof(typename fl_wide<T>::type);
    fl_layout l;
    l.count = 0;
    l.operands = 4;
    add_axis(&l, job.outer, job.rows * job.inner * width, job.count * sums.slice, 0, job.inner * wide);
    add_axis(&l, job.rows, job.inner * width, 0, 1, 0);
    add_axis(&l, job.inner / N, N * width, N * width, 0, N * wide);
    fl_layout_simplify(&l);
    fl_each_piece(&l, zero, [&](const fl_layout *piece, const int64_t *offset) {
        row_walk walk;
        uint32_t total = (uint32_t)fl_layout_numel(piece);
        fl_walk_init(&walk, piece);
        FL_LAUNCH((sum_rows<T, N>), fl_blocks(total, THREADS), THREADS, 0, sums, job.out + offset[0],
                  job.dy + offset[1], (uint32_t)offset[2], sums.partial + offset[3], total, walk);
    });
}

template<typename T, int N>
static fl_status launch_sums(const add_job &job, sums s)
{
    int64_t columns = job.outer * job.inner, wide = (int64_t)sizeof(typename fl_wide<T>::type);
    void *partial = NULL;
    s.slice = job.inner * (int64_t)sizeof(T);
    s.partial_slice = columns * wide;
    if (job.count > CHUNK) {
        FL_TRY(fl_cuda_malloc(&partial, (size_t)(2 * ((job.count + CHUNK - 1) / CHUNK) * s.partial_slice)));
        s.partial = (char *)partial;
        launch_chunks<T, N>(job, s);
    }
    launch_rows<T, N>(job, s);
    if (partial) fl_cuda_free(partial);
    return FL_OK;
}

/* The type that elements of a dtype are added in: integers wrap, so their sign is of no interest. */
template<typename F>
static fl_status by_number(fl_dtype dtype, F &&f)
{
    if (fl_dtype_is_float(dtype)) return fl_cuda_by_float(dtype, f);
    switch (fl_dtype_size(dtype)) {
    case 1: return f((uint8_t)0);
    case 4: return f((uint32_t)0);
    default: return f((uint64_t)0);
    }
}

/* keys: the rows, j.rows for none; sorted here. */
static fl_status add_sorted(const add_job &job, fl_cuda_sort *sort, fl_dtype dtype)
{
    void *runs;
    uint32_t count = (uint32_t)job.count, rows = (uint32_t)job.rows;
    FL_TRY(fl_cuda_sort_run(sort, fl_cuda_bits(job.rows)));
    FL_TRY(fl_cuda_malloc(&runs, (size_t)job.rows * sizeof(run)));
    cudaMemsetAsync(runs, 0, (size_t)job.rows * sizeof(run), fl_cuda_stream());
    if (count) FL_LAUNCH(find_runs, fl_blocks(count, THREADS), THREADS, 0, (run *)runs, sort->keys, count, rows);
    sums s = {sort->keys, sort->order, (const run *)runs, count, rows, 0, NULL, 0};
    fl_status status = by_number(dtype, [&](auto like) {
        typedef decltype(like) T;
        const int most = 16 / sizeof(T);
        bool vectors = job.inner % most == 0 && ((uintptr_t)job.out | (uintptr_t)job.dy) % 16 == 0;
        return vectors ? launch_sums<T, most>(job, s) : launch_sums<T, 1>(job, s);
    });
    fl_cuda_free(runs);
    return status;
}

static fl_status too_large(const fl_kernel *kernel)
{
    return fl_fail(FL_ERR_VALUE,
                   "%s: a GPU takes axes and indices of fewer than 2^31 elements here; use device \"cpu\"",
                   kernel->name);
}

/* dy and positions are contiguous here. */
static fl_status add_slices(fl_kernel *kernel, const fl_view *dy, const fl_view *positions, int axis)
{
    const fl_view *out = &kernel->out[0];
    add_job j = {(char *)out->data, (const char *)dy->data, 1, out->size[axis], 1, positions->numel};
    fl_cuda_sort sort;
    for (int a = axis + 1; a < out->ndim; a++) j.inner *= out->size[a];
    for (int a = 0; a < axis; a++) j.outer *= out->size[a];
    if (j.rows >= FL_CUDA_SORT_MOST) return too_large(kernel);
    FL_TRY(fl_cuda_sort_open(&sort, kernel->name, j.count));
    if (j.count)
        FL_LAUNCH(row_keys, fl_blocks(j.count, THREADS), THREADS, 0, sort.keys, (const int64_t *)positions->data,
                  (uint32_t)j.count, out->start[axis], (uint32_t)j.rows);
    fl_status status = add_sorted(j, &sort, out->dtype);
    fl_cuda_sort_close(&sort);
    return status;
}

/* Calls add(dy, positions) with both operands as arrays. */
template<typename F>
static fl_status with_arrays(fl_kernel *kernel, F &&add)
{
    fl_cuda_array dy, positions;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&dy, &kernel->in[FL_TAKEN_DY], kernel->out[0].dtype));
    fl_status status = fl_cuda_array_open(&positions, &kernel->in[FL_TAKEN_INDEX], FL_INT64);
    if (status == FL_OK) {
        status = add(&dy.view, &positions.view);
        fl_cuda_array_close(&positions);
    }
    fl_cuda_array_close(&dy);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

static fl_status launch_embedding_backward(fl_kernel *kernel)
{
    return with_arrays(kernel, [&](const fl_view *dy, const fl_view *positions) {
        return add_slices(kernel, dy, positions, 0);
    });
}

static fl_status launch_select_backward(fl_kernel *kernel)
{
    int axis = fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], kernel->out[0].ndim);
    return with_arrays(kernel, [&](const fl_view *dy, const fl_view *positions) {
        return add_slices(kernel, dy, positions, axis);
    });
}

FL_CUDA_OP(embedding_backward, launch_embedding_backward);
FL_CUDA_OP(index_select_backward, launch_select_backward);

/* ---- elements ---- */

/* The axis of the result: window and elements from one position to the next. */
struct line_axis {
    int64_t first, held, stride;
};

/* Keys are places in the result. Operands: the positions twice, result in elements without the axis. */
__global__ void __launch_bounds__(THREADS)
    place_keys(uint32_t *keys, const char *positions, int64_t base, line_axis axis, uint32_t none, uint32_t total,
               const __grid_constant__ fl_walk<3, FL_LAYOUT_AXES> walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][3];
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    int64_t at = *(const int64_t *)(positions + offset[0][1]) - axis.first;
    keys[offset[0][0] / (int64_t)sizeof(int64_t)] = (uint64_t)at < (uint64_t)axis.held
        ? (uint32_t)(base + offset[0][2] + at * axis.stride)
        : none;
}

/* A thread adds a line of `length` elements, `step` apart in dy and positions. Operands: dy and positions in elements,
** result in elements without the axis. */
template<typename T, typename W>
__global__ void __launch_bounds__(THREADS)
    add_lines(W *out, const T *dy, const int64_t *positions, line_axis axis, int64_t length, int64_t step,
              uint32_t total, const __grid_constant__ fl_walk<2, FL_LAYOUT_AXES> walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][2];
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    W *line = out + offset[0][1];
    for (int64_t i = 0, from = offset[0][0]; i < length; i++, from += step) {
        int64_t at = positions[from] - axis.first;
        if ((uint64_t)at < (uint64_t)axis.held) line[at * axis.stride] += fl_load(dy[from]);
    }
}

/* The part of the index that falls into this part of the result: where it begins in both, in elements, its sizes. */
struct scatter {
    const fl_view *dy, *positions, *out;
    int axis;
    line_axis along;
    int64_t base, from, sizes[FL_MAX_NDIM];
    int64_t strides[FL_MAX_NDIM], steps[FL_MAX_NDIM]; /* of out and of the index, in elements */
    int64_t length, lines;
};

/* lines is 0 where nothing of the index falls into the result. */
static void scatter_of(scatter *scatter, fl_kernel *kernel, const fl_view *dy, const fl_view *positions)
{
    const fl_view *out = &kernel->out[0];
    scatter->dy = dy;
    scatter->positions = positions;
    scatter->out = out;
    scatter->axis = out->ndim ? fl_cuda_axis(&kernel->attrs->at[FL_INDEXED_AXIS], out->ndim) : 0;
    scatter->base = scatter->from = 0;
    fl_cuda_strides(scatter->strides, out->size, out->ndim);
    fl_cuda_strides(scatter->steps, positions->size, positions->ndim);
    scatter->along = {0, 1, 0};
    scatter->length = scatter->lines = 1;
    if (out->ndim) {
        scatter->along = {out->start[scatter->axis], out->size[scatter->axis], scatter->strides[scatter->axis]};
        scatter->length = positions->size[scatter->axis];
    }
    for (int a = 0; a < out->ndim; a++) {
        if (a == scatter->axis) continue;
        int64_t index_start = positions->start[a], start = out->start[a], index_end = index_start + positions->size[a],
                end = start + out->size[a], from = index_start > start ? index_start : start,
                to = index_end < end ? index_end : end;
        scatter->sizes[a] = to > from ? to - from : 0;
        scatter->lines *= scatter->sizes[a];
        scatter->base += (from - start) * scatter->strides[a];
        scatter->from += (from - index_start) * scatter->steps[a];
    }
}

/* The lines, with the operands dy or src, and out; both begin at from and base. */
static fl_layout lines_of(const scatter *scatter)
{
    fl_layout l;
    l.count = 0;
    l.operands = 2;
    for (int a = 0; a < scatter->out->ndim; a++)
        if (a != scatter->axis) add_axis(&l, scatter->sizes[a], scatter->steps[a], scatter->strides[a], 0, 0);
    fl_layout_simplify(&l);
    return l;
}

static fl_status scatter_lines(const scatter *scatter, void *out)
{
    const int64_t begin[FL_LAYOUT_OPERANDS] = {scatter->from, scatter->base};
    fl_layout l = lines_of(scatter);
    return by_number(scatter->dy->dtype, [&](auto like) {
        typedef decltype(like) T;
        typedef typename fl_wide<T>::type W;
        fl_each_piece(&l, begin, [&](const fl_layout *piece, const int64_t *offset) {
            fl_walk<2, FL_LAYOUT_AXES> walk;
            uint32_t total = (uint32_t)fl_layout_numel(piece);
            fl_walk_init(&walk, piece);
            FL_LAUNCH((add_lines<T, W>), fl_blocks(total, THREADS), THREADS, 0, (W *)out + offset[1],
                      (const T *)scatter->dy->data + offset[0], (const int64_t *)scatter->positions->data + offset[0],
                      scatter->along, scatter->length,
                      scatter->axis < scatter->out->ndim ? scatter->steps[scatter->axis] : 1, total, walk);
        });
        return FL_OK;
    });
}

/* Line by line, into zeros of the type that sums have. */
static fl_status add_by_lines(const scatter *scatter)
{
    const int64_t none[2] = {0};
    fl_cuda_array sum;
    FL_TRY(fl_cuda_array_room(&sum, scatter->out, fl_dtype_compute(scatter->out->dtype)));
    fl_status status = fl_cuda_fill_view(&sum.view, none);
    if (status == FL_OK && scatter->lines > 0) status = scatter_lines(scatter, sum.view.data);
    if (status == FL_OK) status = fl_cuda_array_store(scatter->out, &sum);
    fl_cuda_array_close(&sum);
    return status;
}

/* All elements sorted by their places. */
static fl_status add_by_places(fl_kernel *kernel, const scatter *scatter)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    add_job j = {(char *)scatter->out->data, (const char *)scatter->dy->data, 1, scatter->out->numel, 1,
                 scatter->positions->numel};
    fl_cuda_sort sort;
    fl_layout l;
    l.count = 0;
    l.operands = 3;
    for (int a = 0; a < scatter->out->ndim; a++) {
        int64_t step = scatter->steps[a] * (int64_t)sizeof(int64_t);
        add_axis(&l, scatter->positions->size[a], step, step, a == scatter->axis ? 0 : scatter->strides[a], 0);
    }
    fl_layout_simplify(&l);
    FL_TRY(fl_cuda_sort_open(&sort, kernel->name, j.count));
    fl_each_piece(&l, zero, [&](const fl_layout *piece, const int64_t *offset) {
        fl_walk<3, FL_LAYOUT_AXES> walk;
        uint32_t total = (uint32_t)fl_layout_numel(piece);
        fl_walk_init(&walk, piece);
        FL_LAUNCH(place_keys, fl_blocks(total, THREADS), THREADS, 0, sort.keys + offset[0] / (int64_t)sizeof(int64_t),
                  (const char *)scatter->positions->data + offset[1], scatter->base + offset[2], scatter->along,
                  (uint32_t)j.rows, total, walk);
    });
    fl_status status = add_sorted(j, &sort, scatter->out->dtype);
    fl_cuda_sort_close(&sort);
    return status;
}

static fl_status launch_gather_backward(fl_kernel *kernel)
{
    return with_arrays(kernel, [&](const fl_view *dy, const fl_view *positions) {
        const int64_t none[2] = {0};
        scatter s;
        if (positions->numel == 0) return fl_cuda_fill_view(&kernel->out[0], none);
        scatter_of(&s, kernel, dy, positions);
        FL_TRY(fl_cuda_check_positions("scatter_add", &kernel->in[FL_TAKEN_INDEX], (const int64_t *)positions->data,
                                       s.out->ndim ? s.out->logical[s.axis] : 1));
        bool sortable = s.out->numel < FL_CUDA_SORT_MOST && positions->numel < FL_CUDA_SORT_MOST
            && s.lines * s.length == positions->numel;
        if (s.lines >= ENOUGH_LINES || s.length <= SHORT_LINE || !sortable) return add_by_lines(&s);
        return add_by_places(kernel, &s);
    });
}

FL_CUDA_OP(gather_backward, launch_gather_backward);

/* ---- products and extremes, line by line ---- */

template<typename T>
__device__ static inline T fold_two(T own, T other, int reduce)
{
    if (reduce == FL_FOLD_PROD) return (T)(own * other);
    if (other != other) return other; /* NaN stays, also in `own`, which then is neither less nor more */
    return (reduce == FL_FOLD_AMAX ? other > own : other < own) ? other : own;
}

/* A thread folds a line. Operands: src and positions in elements, result in elements without the axis. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    fold_lines(T *out, const T *src, const int64_t *positions, line_axis axis, int64_t length, int64_t step, int reduce,
               uint32_t total, const __grid_constant__ fl_walk<2, FL_LAYOUT_AXES> walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][2];
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    T *line = out + offset[0][1];
    for (int64_t i = 0, from = offset[0][0]; i < length; i++, from += step) {
        int64_t at = positions[from] - axis.first;
        if ((uint64_t)at < (uint64_t)axis.held)
            line[at * axis.stride] = fold_two(line[at * axis.stride], src[from], reduce);
    }
}

template<typename F>
static fl_status by_foldable(fl_dtype dtype, F &&call)
{
    switch (dtype) {
    case FL_FLOAT32: return call(float());
    case FL_FLOAT64: return call(double());
    case FL_INT64: return call(int64_t());
    case FL_INT32: return call(int32_t());
    case FL_INT8: return call(int8_t());
    default: return call(uint8_t());
    }
}

static fl_status launch_fold_lines(const scatter *scatter, int reduce)
{
    const int64_t begin[FL_LAYOUT_OPERANDS] = {scatter->from, scatter->base};
    fl_layout l = lines_of(scatter);
    return by_foldable(scatter->dy->dtype, [&](auto like) {
        typedef decltype(like) T;
        fl_each_piece(&l, begin, [&](const fl_layout *piece, const int64_t *offset) {
            fl_walk<2, FL_LAYOUT_AXES> walk;
            uint32_t total = (uint32_t)fl_layout_numel(piece);
            fl_walk_init(&walk, piece);
            FL_LAUNCH((fold_lines<T>), fl_blocks(total, THREADS), THREADS, 0, (T *)scatter->out->data + offset[1],
                      (const T *)scatter->dy->data + offset[0], (const int64_t *)scatter->positions->data + offset[0],
                      scatter->along, scatter->length,
                      scatter->axis < scatter->out->ndim ? scatter->steps[scatter->axis] : 1, reduce, total, walk);
        });
        return FL_OK;
    });
}

static fl_status launch_scatter_fold(fl_kernel *kernel)
{
    const fl_view *index = &kernel->in[FL_WRITE_INDEX], *out = &kernel->out[0];
    fl_cuda_array src, positions;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_copy_view(out, &kernel->in[FL_WRITE_X]));
    if (index->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&src, &kernel->in[FL_WRITE_VALUE], out->dtype));
    fl_status status = fl_cuda_array_open(&positions, index, FL_INT64);
    if (status == FL_OK) {
        scatter s;
        scatter_of(&s, kernel, &src.view, &positions.view);
        status = fl_cuda_check_positions("scatter_reduce", index, (const int64_t *)positions.view.data,
                                         out->ndim ? out->logical[s.axis] : 1);
        if (status == FL_OK && s.lines > 0)
            status = launch_fold_lines(&s, (int)kernel->attrs->at[FL_FOLD_REDUCE].integer);
        fl_cuda_array_close(&positions);
    }
    fl_cuda_array_close(&src);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

FL_CUDA_OP(scatter_fold, launch_scatter_fold);
