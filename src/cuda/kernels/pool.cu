/*
** pool.cu -- pooling: a thread makes one element of a result.
**
** Kernels that write images gather from all windows that hold an element, taps in order, so nothing is added by two
** threads.
*/
#include "operand.h"
#include "quotient.h"

extern "C" {
#include "core/op/pool.h"
}

enum { THREADS = 256 };

/* ---- sizes ---- */

/* A pooling; rows, then columns. */
template<typename I>
struct pooling {
    typedef I number;
    I size[2], stride[2], padding[2], dilation[2], x_size[2], y_size[2];
    typename fl_divisor<I>::type by_stride[2], by_x[2], by_y[2];
};

template<typename I>
static pooling<I> pooling_of(const fl_pool *pool)
{
    pooling<I> p;
    const fl_window_geometry *w = &pool->window;
    for (int d = 0; d < 2; d++) {
        p.size[d] = (I)w->size[d];
        p.stride[d] = (I)w->stride[d];
        p.padding[d] = (I)w->padding[d];
        p.dilation[d] = (I)w->dilation[d];
        p.x_size[d] = (I)pool->x_size[d];
        p.y_size[d] = (I)pool->y_size[d];
        fl_divisor_set(&p.by_stride[d], w->stride[d]);
        fl_divisor_set(&p.by_x[d], pool->x_size[d]);
        fl_divisor_set(&p.by_y[d], pool->y_size[d]);
    }
    return p;
}

/* Every number that a kernel makes of the sizes has 32 bits. */
static bool is_narrow(const fl_pool *pool)
{
    if (pool->planes * fl_pool_x_plane(pool) > INT32_MAX || pool->planes * fl_pool_y_plane(pool) > INT32_MAX)
        return false;
    for (int d = 0; d < 2; d++) {
        int64_t reach = pool->x_size[d] + 2 * pool->window.padding[d] + fl_window_geometry_span(&pool->window, d);
        if (reach + pool->window.stride[d] > INT32_MAX) return false;
    }
    return true;
}

/* ---- the place of an element ---- */

template<typename I>
struct place {
    I plane, row, column;
};

/* Element i of planes of these sizes. */
template<typename I>
__device__ static inline place<I> place_of(I i, const I *size, const typename fl_divisor<I>::type *by)
{
    I line = fl_quotient(i, by[1]), plane = fl_quotient(line, by[0]);
    return {plane, line - plane * size[0], i - line * size[1]};
}

/* Element of x at tap (ky, kx) of the window at `at`, by its position; -1: in the padding. */
template<typename I>
__device__ static inline I seen_from(const pooling<I> &pooling, const place<I> &at, I ky, I kx)
{
    I row = at.row * pooling.stride[0] - pooling.padding[0] + ky * pooling.dilation[0],
      column = at.column * pooling.stride[1] - pooling.padding[1] + kx * pooling.dilation[1];
    bool inside = row >= 0 && row < pooling.x_size[0] && column >= 0 && column < pooling.x_size[1];
    return inside ? (at.plane * pooling.x_size[0] + row) * pooling.x_size[1] + column : -1;
}

/* The position along axis d of the window that holds element i at tap t; -1: there is none. */
template<typename I>
__device__ static inline I seen_at(const pooling<I> &pooling, int d, I i, I t)
{
    return fl_window_at(i, t, pooling.stride[d], pooling.padding[d], pooling.dilation[d], pooling.y_size[d],
                        pooling.by_stride[d]);
}

/* As fl_pool_reach, on the device. */
template<typename I>
__device__ static inline I reach(const pooling<I> &pooling, int d, I position, bool padding)
{
    I begin = position * pooling.stride[d] - pooling.padding[d], end = begin + pooling.size[d];
    I last = pooling.x_size[d] + (padding ? pooling.padding[d] : 0);
    return (end > last ? last : end) - (!padding && begin < 0 ? 0 : begin);
}

/* The divisor of the sum of the window at (row, column). */
template<typename W, typename I>
__device__ static inline W divisor_of(const pooling<I> &pooling, const fl_pool_mean &mean, I row, I column)
{
    if (mean.divisor) return (W)mean.divisor;
    return (W)(reach(pooling, 0, row, mean.padding) * reach(pooling, 1, column, mean.padding));
}

/* ---- kernels ---- */

/* taps NULL: not needed. */
template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    largest(T *y, int32_t *taps, const T *x, int64_t total, const __grid_constant__ pooling<I> p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    place<I> at = place_of((I)i, p.y_size, p.by_y);
    wide best = -INFINITY;
    I best_at = -1;
    for (I ky = 0; ky < p.size[0]; ky++)
        for (I kx = 0; kx < p.size[1]; kx++) {
            I from = seen_from(p, at, ky, kx);
            if (from < 0) continue;
            wide value = fl_load(x[from]);
            if (best_at >= 0 && !(value > best) && value == value) continue;
            best = value;
            best_at = ky * p.size[1] + kx;
        }
    y[i] = fl_store<T>(best);
    if (taps) taps[i] = (int32_t)(best_at < 0 ? 0 : best_at);
}

template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    gather(T *y, const T *x, const int32_t *taps, int64_t total, const __grid_constant__ pooling<I> p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    I tap = taps[i], from = -1;
    if (tap >= 0 && tap / p.size[1] < p.size[0])
        from = seen_from(p, place_of((I)i, p.y_size, p.by_y), tap / p.size[1], tap % p.size[1]);
    y[i] = from < 0 ? fl_store<T>(0) : x[from];
}

/* share(y's element, tap, row, column): the share of x's element in the window at (row, column) with it at this tap. */
template<typename T, typename I, typename F>
__device__ static inline void collect(T *x, int64_t i, const pooling<I> &pooling, const F &share)
{
    typename fl_wide<T>::type sum = 0;
    place<I> at = place_of((I)i, pooling.x_size, pooling.by_x);
    for (I ky = 0; ky < pooling.size[0]; ky++) {
        I row = seen_at(pooling, 0, at.row, ky);
        for (I kx = 0; row >= 0 && kx < pooling.size[1]; kx++) {
            I column = seen_at(pooling, 1, at.column, kx);
            if (column >= 0)
                sum += share((at.plane * pooling.y_size[0] + row) * pooling.y_size[1] + column,
                             ky * pooling.size[1] + kx, row, column);
        }
    }
    x[i] = fl_store<T>(sum);
}

template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    scatter(T *x, const T *y, const int32_t *taps, int64_t total, const __grid_constant__ pooling<I> p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    collect(x, i, p, [&](I from, I tap, I, I) { return taps[from] == tap ? (wide)fl_load(y[from]) : (wide)0; });
}

template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    average(T *y, const T *x, int64_t total, fl_pool_mean mean, const __grid_constant__ pooling<I> p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    place<I> at = place_of((I)i, p.y_size, p.by_y);
    wide sum = 0;
    for (I ky = 0; ky < p.size[0]; ky++)
        for (I kx = 0; kx < p.size[1]; kx++) {
            I from = seen_from(p, at, ky, kx);
            if (from >= 0) sum += fl_load(x[from]);
        }
    y[i] = fl_store<T>(sum / divisor_of<wide>(p, mean, at.row, at.column));
}

template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    spread(T *x, const T *y, int64_t total, fl_pool_mean mean, const __grid_constant__ pooling<I> p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    collect(x, i, p, [&](I from, I, I row, I column) {
        return (wide)fl_load(y[from]) / divisor_of<wide>(p, mean, row, column);
    });
}

/* ---- ops ---- */

struct operands {
    fl_cuda_operand in, taps, out;
};

static fl_status open_operands(operands *operands, const fl_kernel *kernel)
{
    FL_TRY(fl_cuda_operand_in(&operands->in, &kernel->in[0], kernel->out[0].dtype, false));
    if (kernel->nin == 2) FL_TRY(fl_cuda_operand_in(&operands->taps, &kernel->in[FL_POOL_TAPS], FL_INT32, false));
    return fl_cuda_operand_out(&operands->out, &kernel->out[0], kernel->out[0].dtype);
}

static fl_status close_operands(operands *operands, const fl_kernel *kernel, fl_status status)
{
    if (status == FL_OK) status = fl_cuda_operand_store(&operands->out, &kernel->out[0], kernel->out[0].dtype);
    fl_cuda_operand_close(&operands->out);
    fl_cuda_operand_close(&operands->taps);
    fl_cuda_operand_close(&operands->in);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

/* issue(an element of the op's dtype, the pooling, operands, blocks, elements of the result) */
template<typename F>
static fl_status launch(fl_kernel *kernel, const fl_pool *pool, const F &issue)
{
    operands o = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = open_operands(&o, kernel);
    if (status == FL_OK)
        status = fl_cuda_by_float(kernel->out[0].dtype, [&](auto like) {
            dim3 grid(fl_blocks(kernel->out[0].numel, THREADS));
            if (is_narrow(pool)) issue(like, pooling_of<int32_t>(pool), o, grid, kernel->out[0].numel);
            else issue(like, pooling_of<int64_t>(pool), o, grid, kernel->out[0].numel);
            return FL_OK;
        });
    return close_operands(&o, kernel, status);
}

static fl_status launch_max(fl_kernel *kernel)
{
    fl_pool pool = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    return launch(kernel, &pool, [&](auto like, auto p, operands &operands, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        typedef typename decltype(p)::number I;
        int32_t *taps = kernel->nout > 1 ? (int32_t *)kernel->out[FL_POOL_TAPS].data : NULL;
        FL_LAUNCH((largest<T, I>), grid, dim3(THREADS), 0, (T *)operands.out.data, taps, (const T *)operands.in.data,
                  total, p);
    });
}

static fl_status launch_gather(fl_kernel *kernel)
{
    fl_pool pool = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    return launch(kernel, &pool, [&](auto like, auto p, operands &operands, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        typedef typename decltype(p)::number I;
        FL_LAUNCH((gather<T, I>), grid, dim3(THREADS), 0, (T *)operands.out.data, (const T *)operands.in.data,
                  (const int32_t *)operands.taps.data, total, p);
    });
}

static fl_status launch_scatter(fl_kernel *kernel)
{
    fl_pool pool = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], true);
    return launch(kernel, &pool, [&](auto like, auto p, operands &operands, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        typedef typename decltype(p)::number I;
        FL_LAUNCH((scatter<T, I>), grid, dim3(THREADS), 0, (T *)operands.out.data, (const T *)operands.in.data,
                  (const int32_t *)operands.taps.data, total, p);
    });
}

static fl_status launch_average(fl_kernel *kernel)
{
    fl_pool pool = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], false);
    fl_pool_mean mean = fl_pool_mean_of(kernel->attrs);
    return launch(kernel, &pool, [&](auto like, auto p, operands &operands, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        typedef typename decltype(p)::number I;
        FL_LAUNCH((average<T, I>), grid, dim3(THREADS), 0, (T *)operands.out.data, (const T *)operands.in.data, total,
                  mean, p);
    });
}

static fl_status launch_spread(fl_kernel *kernel)
{
    fl_pool pool = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], false);
    fl_pool_mean mean = fl_pool_mean_of(kernel->attrs);
    return launch(kernel, &pool, [&](auto like, auto p, operands &operands, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        typedef typename decltype(p)::number I;
        FL_LAUNCH((spread<T, I>), grid, dim3(THREADS), 0, (T *)operands.out.data, (const T *)operands.in.data, total,
                  mean, p);
    });
}

FL_CUDA_OP(max_pool2d_taps, launch_max);
FL_CUDA_OP(max_pool2d_values, launch_max);
FL_CUDA_OP(max_pool2d_gather, launch_gather);
FL_CUDA_OP(max_pool2d_scatter, launch_scatter);
FL_CUDA_OP(avg_pool2d, launch_average);
FL_CUDA_OP(avg_pool2d_spread, launch_spread);
