/*
** scan.cu -- running sums along an axis.
**
** Lines are cut into chunks of a fixed length, so a result does not depend on the order of threads: the chunks' totals
** are found first, then summed along the line, and each chunk begins with what is before it. Lines along the last axis
** are summed by warps, whose lanes have some neighbouring elements each; others by threads, whose neighbours have the
** neighbouring line.
*/
#include "core/op/scan.h"
#include "arrays.h"
#include "cuda/parts/block.cuh"
#include "index.h"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    LINE_CHUNK = 4096,
    COLUMN_CHUNK = 256,
    MANY_COLUMNS = 1 << 16,
    TOTALS_THREADS = 1024,
    TOTALS_EACH = 8,
    FEW_TOTALS = 128 /* of a line: summed by a warp, more by a block */
};

/* x [outer, n, inner], both arrays without gaps. */
struct scan_shape {
    int64_t outer, n, inner, chunk, chunks; /* elements of a chunk, chunks of a line */
    bool backwards;
};

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

/* The first of the WIDTH elements that are number i and following in the order of the scan. */
template<int WIDTH = 1>
__device__ static inline int64_t place(const scan_shape &shape, int64_t i)
{
    return shape.backwards ? shape.n - WIDTH - i : i;
}

/* Packs of neighbouring elements that a lane loads before it sums any. */
template<int WIDTH>
struct scan_packs {
    enum { COUNT = WIDTH > 4 ? 2 : 4, ALL = 32 * WIDTH * COUNT };
};

/* The chunk of a line that a warp has, and where the lane begins in it. */
struct scan_part {
    int64_t line, begin, end, number;
    bool there;
};

template<int WIDTH>
__device__ static inline scan_part part_of(const scan_shape &shape)
{
    int64_t number = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32,
            line = shape.chunks == 1 ? number : number / shape.chunks, chunk = number - line * shape.chunks,
            end = (chunk + 1) * shape.chunk;
    scan_part p = {line * shape.n, chunk * shape.chunk, end < shape.n ? end : shape.n, number, line < shape.outer};
    return p;
}

/* Packs at elements at, at + 32 * WIDTH and so on; 0 behind the chunk. */
template<int WIDTH, int COUNT, typename X, typename W>
__device__ static inline void fetch(W (&x)[COUNT][WIDTH], const X *in, const scan_shape &shape, const scan_part &part,
                                    int64_t at)
{
    fl_pack<X, WIDTH> packs[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        int64_t from = at + k * 32 * WIDTH;
        if (from < part.end) packs[k] = *(const fl_pack<X, WIDTH> *)(in + part.line + place<WIDTH>(shape, from));
        else packs[k] = fl_pack<X, WIDTH>{};
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
            x[k][j] = (W)fl_load(shape.backwards ? packs[k].at[WIDTH - 1 - j] : packs[k].at[j]);
}

/* inner is 1, a warp sums a chunk. before: [outer, chunks] inclusive sums of the chunks' totals, or NULL. */
template<int WIDTH, typename X, typename Y, typename W>
__global__ void __launch_bounds__(THREADS)
    scan_lines(Y *out, const X *in, const W *before, const __grid_constant__ scan_shape s)
{
    enum { COUNT = scan_packs<WIDTH>::COUNT };
    scan_part p = part_of<WIDTH>(s);
    int lane = threadIdx.x % 32;
    if (!p.there) return;
    W sum = before && p.begin > 0 ? before[p.number - 1] : (W)0;
    for (int64_t i = p.begin; i < p.end; i += scan_packs<WIDTH>::ALL) {
        W x[COUNT][WIDTH], upto[COUNT];
        fetch(x, in, s, p, i + lane * WIDTH);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
#pragma unroll
            for (int j = 1; j < WIDTH; j++) x[k][j] = plus(x[k][j - 1], x[k][j]);
            upto[k] = scan_warp(x[k][WIDTH - 1]);
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            int64_t at = i + (k * 32 + lane) * WIDTH;
            fl_pack<Y, WIDTH> y;
            if constexpr (WIDTH == 1) y.at[0] = fl_store<Y>(plus(sum, upto[k]));
            else {
                W start = __shfl_up_sync(0xffffffffu, upto[k], 1);
                start = lane > 0 ? plus(sum, start) : sum;
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    y.at[j] = fl_store<Y>(plus(start, s.backwards ? x[k][WIDTH - 1 - j] : x[k][j]));
            }
            if (at < p.end) fl_pack_store(out + p.line + place<WIDTH>(s, at), y);
            sum = plus(sum, __shfl_sync(0xffffffffu, upto[k], 31));
        }
    }
}

/* totals [outer, chunks]: of each chunk. */
template<int WIDTH, typename X, typename W>
__global__ void __launch_bounds__(THREADS) sum_lines(W *totals, const X *in, const __grid_constant__ scan_shape s)
{
    enum { COUNT = scan_packs<WIDTH>::COUNT };
    scan_part p = part_of<WIDTH>(s);
    int lane = threadIdx.x % 32;
    if (!p.there) return;
    W sum = 0;
#pragma unroll 2
    for (int64_t i = p.begin; i < p.end; i += scan_packs<WIDTH>::ALL) {
        W x[COUNT][WIDTH];
        fetch(x, in, s, p, i + lane * WIDTH);
#pragma unroll
        for (int k = 0; k < COUNT; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum = plus(sum, x[k][j]);
    }
    sum = fl_lanes_join(sum, 32, [](W a, W b) { return plus(a, b); });
    if (lane == 0) totals[p.number] = sum;
}

/* A block sums one line of n totals in place. */
template<typename W>
__global__ void __launch_bounds__(TOTALS_THREADS) scan_totals(W *totals, int64_t n)
{
    __shared__ W warps[TOTALS_THREADS / 32];
    W *line = totals + blockIdx.x * n, sum = 0;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t first = 0; first < n; first += TOTALS_THREADS * TOTALS_EACH) {
        W x[TOTALS_EACH], below = 0, all = 0;
        int64_t at = first + threadIdx.x * TOTALS_EACH;
#pragma unroll
        for (int k = 0; k < TOTALS_EACH; k++) x[k] = at + k < n ? line[at + k] : (W)0;
#pragma unroll
        for (int k = 1; k < TOTALS_EACH; k++) x[k] = plus(x[k - 1], x[k]);
        W upto = scan_warp(x[TOTALS_EACH - 1]), start = __shfl_up_sync(0xffffffffu, upto, 1);
        __syncthreads();
        if (lane == 31) warps[warp] = upto;
        __syncthreads();
        for (int w = 0; w < TOTALS_THREADS / 32; w++) {
            if (w < warp) below = plus(below, warps[w]);
            all = plus(all, warps[w]);
        }
        if (lane > 0) below = plus(below, start);
#pragma unroll
        for (int k = 0; k < TOTALS_EACH; k++)
            if (at + k < n) line[at + k] = plus(sum, plus(below, x[k]));
        sum = plus(sum, all);
    }
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
static void launch_columns(Y *out, W *totals, const X *in, const W *before, const scan_shape &shape)
{
    int64_t count = shape.outer * shape.chunks * shape.inner;
    FL_LAUNCH((scan_columns<X, Y, W>), fl_blocks(count, THREADS), THREADS, 0, out, totals, in, before, shape);
}

/* totals NULL: there is one chunk. */
template<typename X, typename Y, typename W>
static void scan_columns_of(Y *out, W *totals, const X *in, const scan_shape &shape)
{
    if (totals) {
        scan_shape along = {shape.outer, shape.chunks, shape.inner, shape.chunks, 1, false};
        launch_columns<X, Y, W>(NULL, totals, in, NULL, shape);
        launch_columns<W, W, W>(totals, NULL, totals, NULL, along);
    }
    launch_columns<X, Y, W>(out, NULL, in, totals, shape);
}

template<int WIDTH, typename X, typename Y, typename W>
static void scan_lines_of(Y *out, W *totals, const X *in, const scan_shape &shape)
{
    unsigned blocks = fl_blocks(shape.outer * shape.chunks, WARPS);
    if (totals) {
        scan_shape along = {shape.outer, shape.chunks, 1, shape.chunks, 1, false};
        FL_LAUNCH((sum_lines<WIDTH, X, W>), blocks, THREADS, 0, totals, in, shape);
        if (shape.chunks > FEW_TOTALS)
            FL_LAUNCH((scan_totals<W>), (unsigned)shape.outer, TOTALS_THREADS, 0, totals, shape.chunks);
        else
            FL_LAUNCH((scan_lines<1, W, W, W>), fl_blocks(shape.outer, WARPS), THREADS, 0, totals, (const W *)totals,
                      (const W *)NULL, along);
    }
    FL_LAUNCH((scan_lines<WIDTH, X, Y, W>), blocks, THREADS, 0, out, in, (const W *)totals, shape);
}

/* By vectors where all of a line are aligned and results are as large as elements. */
template<typename X, typename Y, typename W>
static void scan_lines_by(Y *out, W *totals, const X *in, const scan_shape &shape)
{
    if constexpr (sizeof(X) == sizeof(Y)) {
        enum { WIDTH = fl_vector<X>::WIDTH };
        bool aligned = shape.n % WIDTH == 0 && ((uintptr_t)in | (uintptr_t)out) % 16 == 0;
        if (aligned) return scan_lines_of<WIDTH>(out, totals, in, shape);
    }
    scan_lines_of<1>(out, totals, in, shape);
}

template<typename X>
static fl_status scan_typed(void *out, const void *in, const scan_shape &shape)
{
    typedef typename scan_types<X>::sum W;
    typedef typename scan_types<X>::out Y;
    void *totals = NULL;
    if (shape.chunks > 1)
        FL_TRY(fl_cuda_malloc(&totals, (size_t)(shape.outer * shape.chunks * shape.inner) * sizeof(W)));
    if (shape.inner == 1) scan_lines_by((Y *)out, (W *)totals, (const X *)in, shape);
    else scan_columns_of((Y *)out, (W *)totals, (const X *)in, shape);
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
    return fl_cuda_check(kernel->name);
}

static fl_status launch_cumsum(fl_kernel *kernel) { return launch(kernel, false); }
static fl_status launch_cumsum_backward(fl_kernel *kernel) { return launch(kernel, true); }

FL_CUDA_OP(cumsum, launch_cumsum);
FL_CUDA_OP(cumsum_backward, launch_cumsum_backward);
