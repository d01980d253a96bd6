/*
** pool.cu -- pooling: a thread makes one element of a result.
**
** What writes images gathers from all windows that hold an element, taps in order, so nothing is added by two threads.
*/
#include "index.h"
#include "operand.h"

extern "C" {
#include "core/op/pool.h"
}

enum { THREADS = 256 };

/* ---- where an element lies ---- */

typedef struct place {
    int64_t plane, row, column;
} place;

__device__ static inline place place_of(int64_t i, const int64_t *size)
{
    return {i / (size[0] * size[1]), i / size[1] % size[0], i % size[1]};
}

/* Element of x at tap (ky, kx) of the window at `at`, by its position; -1: in the padding. */
__device__ static inline int64_t seen_from(const fl_pool &pool, const place &at, int64_t ky, int64_t kx)
{
    const fl_window_geometry &w = pool.window;
    int64_t row = at.row * w.stride[0] - w.padding[0] + ky * w.dilation[0],
            column = at.column * w.stride[1] - w.padding[1] + kx * w.dilation[1];
    bool inside = row >= 0 && row < pool.x_size[0] && column >= 0 && column < pool.x_size[1];
    return inside ? (at.plane * pool.x_size[0] + row) * pool.x_size[1] + column : -1;
}

/* The position along axis d of the window that holds element i at tap t; -1: there is none. */
__device__ static inline int64_t seen_at(const fl_pool &pool, int d, int64_t i, int64_t t)
{
    const fl_window_geometry &w = pool.window;
    int64_t from = i + w.padding[d] - t * w.dilation[d], position = from / w.stride[d];
    return from < 0 || from % w.stride[d] != 0 || position >= pool.y_size[d] ? -1 : position;
}

/* As fl_pool_reach, on the device. */
__device__ static inline int64_t reach(const fl_pool &pool, int d, int64_t position, bool padding)
{
    int64_t begin = position * pool.window.stride[d] - pool.window.padding[d], end = begin + pool.window.size[d];
    int64_t last = pool.x_size[d] + (padding ? pool.window.padding[d] : 0);
    return (end > last ? last : end) - (!padding && begin < 0 ? 0 : begin);
}

/* What the sum of the window at (row, column) is divided by. */
__device__ static inline int64_t divisor_of(const fl_pool &pool, const fl_pool_mean &mean, int64_t row, int64_t column)
{
    return mean.divisor ? mean.divisor : reach(pool, 0, row, mean.padding) * reach(pool, 1, column, mean.padding);
}

/* ---- kernels ---- */

/* taps NULL: not needed. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    largest(T *y, int32_t *taps, const T *x, int64_t total, const __grid_constant__ fl_pool p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, best_at = -1;
    if (i >= total) return;
    place at = place_of(i, p.y_size);
    wide best = -INFINITY;
    for (int64_t ky = 0; ky < p.window.size[0]; ky++)
        for (int64_t kx = 0; kx < p.window.size[1]; kx++) {
            int64_t from = seen_from(p, at, ky, kx);
            if (from < 0) continue;
            wide value = fl_load(x[from]);
            if (best_at >= 0 && !(value > best) && value == value) continue;
            best = value;
            best_at = ky * p.window.size[1] + kx;
        }
    y[i] = fl_store<T>(best);
    if (taps) taps[i] = (int32_t)(best_at < 0 ? 0 : best_at);
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    gather(T *y, const T *x, const int32_t *taps, int64_t total, const __grid_constant__ fl_pool p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, columns = p.window.size[1], from = -1;
    if (i >= total) return;
    int64_t tap = taps[i];
    if (tap >= 0 && tap < p.window.size[0] * columns)
        from = seen_from(p, place_of(i, p.y_size), tap / columns, tap % columns);
    y[i] = from < 0 ? fl_store<T>(0) : x[from];
}

/* share(y's element, tap, row, column): what x's element gets of the window at (row, column) with it at this tap. */
template<typename T, typename F>
__device__ static inline void collect(T *x, int64_t i, const fl_pool &pool, const F &share)
{
    typename fl_wide<T>::type sum = 0;
    place at = place_of(i, pool.x_size);
    for (int64_t ky = 0; ky < pool.window.size[0]; ky++) {
        int64_t row = seen_at(pool, 0, at.row, ky);
        for (int64_t kx = 0; row >= 0 && kx < pool.window.size[1]; kx++) {
            int64_t column = seen_at(pool, 1, at.column, kx);
            if (column >= 0)
                sum += share((at.plane * pool.y_size[0] + row) * pool.y_size[1] + column, ky * pool.window.size[1] + kx,
                             row, column);
        }
    }
    x[i] = fl_store<T>(sum);
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    scatter(T *x, const T *y, const int32_t *taps, int64_t total, const __grid_constant__ fl_pool p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    collect(x, i, p, [&](int64_t from, int64_t tap, int64_t, int64_t) {
        return taps[from] == tap ? (wide)fl_load(y[from]) : (wide)0;
    });
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    average(T *y, const T *x, int64_t total, fl_pool_mean mean, const __grid_constant__ fl_pool p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    place at = place_of(i, p.y_size);
    wide sum = 0;
    for (int64_t ky = 0; ky < p.window.size[0]; ky++)
        for (int64_t kx = 0; kx < p.window.size[1]; kx++) {
            int64_t from = seen_from(p, at, ky, kx);
            if (from >= 0) sum += fl_load(x[from]);
        }
    y[i] = fl_store<T>(sum / (wide)divisor_of(p, mean, at.row, at.column));
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    spread(T *x, const T *y, int64_t total, fl_pool_mean mean, const __grid_constant__ fl_pool p)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    collect(x, i, p, [&](int64_t from, int64_t, int64_t row, int64_t column) {
        return (wide)fl_load(y[from]) / (wide)divisor_of(p, mean, row, column);
    });
}

/* ---- ops ---- */

typedef struct operands {
    fl_cuda_operand in, taps, out;
} operands;

static fl_status open_operands(operands *o, const fl_kernel *kernel)
{
    FL_TRY(fl_cuda_operand_in(&o->in, &kernel->in[0], kernel->out[0].dtype, false));
    if (kernel->nin == 2) FL_TRY(fl_cuda_operand_in(&o->taps, &kernel->in[FL_POOL_TAPS], FL_INT32, false));
    return fl_cuda_operand_out(&o->out, &kernel->out[0], kernel->out[0].dtype);
}

static fl_status close_operands(operands *o, const fl_kernel *kernel, fl_status status)
{
    if (status == FL_OK) status = fl_cuda_operand_store(&o->out, &kernel->out[0], kernel->out[0].dtype);
    fl_cuda_operand_close(&o->out);
    fl_cuda_operand_close(&o->taps);
    fl_cuda_operand_close(&o->in);
    return status == FL_OK ? fl_cuda_check(kernel->op->name) : status;
}

/* issue(an element of the op's dtype, operands, blocks, elements of the result) */
template<typename F>
static fl_status launch(fl_kernel *kernel, const F &issue)
{
    operands o = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = open_operands(&o, kernel);
    if (status == FL_OK)
        status = fl_cuda_by_float(kernel->out[0].dtype, [&](auto like) {
            issue(like, o, dim3(fl_blocks(kernel->out[0].numel, THREADS)), kernel->out[0].numel);
            return FL_OK;
        });
    return close_operands(&o, kernel, status);
}

static fl_status launch_max(fl_kernel *kernel)
{
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    return launch(kernel, [&](auto like, operands &o, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        int32_t *taps = kernel->nout > 1 ? (int32_t *)kernel->out[FL_POOL_TAPS].data : NULL;
        FL_LAUNCH((largest<T>), grid, dim3(THREADS), 0, (T *)o.out.data, taps, (const T *)o.in.data, total, p);
    });
}

static fl_status launch_gather(fl_kernel *kernel)
{
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    return launch(kernel, [&](auto like, operands &o, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        FL_LAUNCH((gather<T>), grid, dim3(THREADS), 0, (T *)o.out.data, (const T *)o.in.data,
                  (const int32_t *)o.taps.data, total, p);
    });
}

static fl_status launch_scatter(fl_kernel *kernel)
{
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], true);
    return launch(kernel, [&](auto like, operands &o, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        FL_LAUNCH((scatter<T>), grid, dim3(THREADS), 0, (T *)o.out.data, (const T *)o.in.data,
                  (const int32_t *)o.taps.data, total, p);
    });
}

static fl_status launch_average(fl_kernel *kernel)
{
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], false);
    fl_pool_mean mean = fl_pool_mean_of(kernel->attrs);
    return launch(kernel, [&](auto like, operands &o, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        FL_LAUNCH((average<T>), grid, dim3(THREADS), 0, (T *)o.out.data, (const T *)o.in.data, total, mean, p);
    });
}

static fl_status launch_spread(fl_kernel *kernel)
{
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], false);
    fl_pool_mean mean = fl_pool_mean_of(kernel->attrs);
    return launch(kernel, [&](auto like, operands &o, dim3 grid, int64_t total) {
        typedef decltype(like) T;
        FL_LAUNCH((spread<T>), grid, dim3(THREADS), 0, (T *)o.out.data, (const T *)o.in.data, total, mean, p);
    });
}

FL_CUDA_OP(max_pool2d_taps, launch_max);
FL_CUDA_OP(max_pool2d_values, launch_max);
FL_CUDA_OP(max_pool2d_gather, launch_gather);
FL_CUDA_OP(max_pool2d_scatter, launch_scatter);
FL_CUDA_OP(avg_pool2d, launch_average);
FL_CUDA_OP(avg_pool2d_spread, launch_spread);
