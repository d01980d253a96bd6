/*
** scan.cu -- running sums along an axis.
**
** Lines are cut into chunks of a fixed length, so a result does not depend on the order of threads: the chunks' totals
** are found first, then summed along the line, and each chunk begins with what is before it. Lines along the last axis
** are summed by warps, others by threads, whose neighbours have the neighbouring line.
*/
#include "core/op/scan.h"
#include "arrays.h"
#include "cuda/parts/block.cuh"
#include "index.h"

enum { THREADS = 256, WARPS = THREADS / 32, EACH = 4, LINE_CHUNK = 4096, COLUMN_CHUNK = 256, MANY_COLUMNS = 1 << 16 };

/* x [outer, n, inner], both arrays without gaps. */
typedef struct scan_shape {
    int64_t outer, n, inner, chunk, chunks; /* elements of a chunk, chunks of a line */
    bool backwards;
} scan_shape;

/* Sums of floats are doubles, as on the CPU. */
template<typename X>
struct scan_types {
    typedef int64_t sum, out;
};
template<>
struct scan_types<__half> {
    typedef double sum;
    typedef __half out;
};
template<>
struct scan_types<__nv_bfloat16> {
    typedef double sum;
    typedef __nv_bfloat16 out;
};
template<>
struct scan_types<float> {
    typedef double sum;
    typedef float out;
};
template<>
struct scan_types<double> {
    typedef double sum, out;
};

/* Integers wrap. */
__device__ static inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
__device__ static inline double plus(double a, double b) { return a + b; }

/* The lane's value and those of all lanes before it. */
template<typename W>
__device__ static inline W scan_warp(W value)
{
    int lane = threadIdx.x % 32;
    for (int distance = 1; distance < 32; distance *= 2) {
        W before = __shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance) value = plus(before, value);
    }
    return value;
}

/* Element i of a line as it is gone through. */
__device__ static inline int64_t place(const scan_shape &s, int64_t i) { return s.backwards ? s.n - 1 - i : i; }

/* inner is 1, a warp sums a chunk. before: [outer, chunks] inclusive sums of the chunks' totals, or NULL; out NULL:
** only the totals are computed. */
template<typename X, typename Y, typename W>
__global__ void __launch_bounds__(THREADS)
    scan_lines(Y *out, W *totals, const X *in, const W *before, const __grid_constant__ scan_shape s)
{
    int64_t number = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (number >= s.outer * s.chunks) return;
    int64_t line = number / s.chunks * s.n, chunk = number % s.chunks, end = (chunk + 1) * s.chunk;
    if (end > s.n) end = s.n;
    W sum = before && chunk > 0 ? before[number - 1] : (W)0;
    for (int64_t i = chunk * s.chunk; i < end; i += 32 * EACH) {
        W x[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64_t at = i + 32 * k + lane;
            x[k] = at < end ? (W)fl_load(in[line + place(s, at)]) : (W)0;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64_t at = i + 32 * k + lane;
            W y = plus(sum, scan_warp(x[k]));
            if (out && at < end) out[line + place(s, at)] = fl_store<Y>(y);
            sum = __shfl_sync(0xffffffffu, y, 31);
        }
    }
    if (totals && lane == 0) totals[number] = sum;
}

/* A thread sums a chunk of one column. totals, before: [outer, chunks, inner]. */
template<typename X, typename Y, typename W>
__global__ void __launch_bounds__(THREADS)
    scan_columns(Y *out, W *totals, const X *in, const W *before, const __grid_constant__ scan_shape s)
{
    int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (number >= s.outer * s.chunks * s.inner) return;
    int64_t column = number % s.inner, chunk = number / s.inner % s.chunks, outer = number / s.inner / s.chunks,
            end = (chunk + 1) * s.chunk;
    if (end > s.n) end = s.n;
    W sum = before && chunk > 0 ? before[number - s.inner] : (W)0;
#pragma unroll 4
    for (int64_t i = chunk * s.chunk; i < end; i++) {
        int64_t at = (outer * s.n + place(s, i)) * s.inner + column;
        sum = plus(sum, (W)fl_load(in[at]));
        if (out) out[at] = fl_store<Y>(sum);
    }
    if (totals) totals[number] = sum;
}

template<typename X, typename Y, typename W>
static void launch_scan(Y *out, W *totals, const X *in, const W *before, const scan_shape &s)
{
    int64_t count = s.outer * s.chunks * s.inner;
    if (s.inner == 1) FL_LAUNCH((scan_lines<X, Y, W>), fl_blocks(count, WARPS), THREADS, 0, out, totals, in, before, s);
    else FL_LAUNCH((scan_columns<X, Y, W>), fl_blocks(count, THREADS), THREADS, 0, out, totals, in, before, s);
}

template<typename X>
static fl_status scan_typed(void *out, const void *in, const scan_shape &s)
{
    typedef typename scan_types<X>::sum W;
    typedef typename scan_types<X>::out Y;
    void *totals = NULL;
    if (s.chunks > 1) {
        scan_shape along = {s.outer, s.chunks, s.inner, s.chunks, 1, false};
        FL_TRY(fl_cuda_malloc(&totals, (size_t)(s.outer * s.chunks * s.inner) * sizeof(W)));
        launch_scan<X, Y, W>(NULL, (W *)totals, (const X *)in, NULL, s);
        launch_scan<W, W, W>((W *)totals, NULL, (const W *)totals, NULL, along);
    }
    launch_scan<X, Y, W>((Y *)out, NULL, (const X *)in, (const W *)totals, s);
    if (totals) fl_cuda_free(totals);
    return FL_OK;
}

static scan_shape shape_of(const fl_view *x, int axis, bool backwards)
{
    scan_shape s = {1, x->ndim ? x->size[axis] : 1, 1, 0, 1, backwards};
    for (int a = 0; a < axis; a++) s.outer *= x->size[a];
    for (int a = axis + 1; a < x->ndim; a++) s.inner *= x->size[a];
    bool many = s.inner > 1 && s.outer * s.inner >= MANY_COLUMNS;
    s.chunk = s.inner == 1 ? LINE_CHUNK : COLUMN_CHUNK;
    if (many) s.chunk = s.n;
    s.chunks = (s.n + s.chunk - 1) / s.chunk;
    return s;
}

static fl_status launch(fl_kernel *kernel, bool backwards)
{
    const fl_view *x = &kernel->in[0], *out = &kernel->out[0];
    fl_cuda_array array;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&array, x, x->dtype));
    scan_shape s = shape_of(x, fl_cuda_axis(&kernel->attrs->at[FL_SCAN_AXIS], x->ndim), backwards);
    fl_status status = fl_cuda_by_dtype(x->dtype, [&](auto like) {
        return scan_typed<decltype(like)>(out->data, array.view.data, s);
    });
    fl_cuda_array_close(&array);
    FL_TRY(status);
    return fl_cuda_check(kernel->op->name);
}

static fl_status launch_cumsum(fl_kernel *kernel) { return launch(kernel, false); }
static fl_status launch_cumsum_backward(fl_kernel *kernel) { return launch(kernel, true); }

FL_CUDA_OP(cumsum, launch_cumsum);
FL_CUDA_OP(cumsum_backward, launch_cumsum_backward);
