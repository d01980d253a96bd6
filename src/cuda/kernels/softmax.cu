/*
** softmax.cu -- softmax and log_softmax along one axis, forward and backward.
*/
#include "core/op/softmax.h"
#include "rows.cuh"

template<typename T>
using wide = typename fl_wide<T>::type;

enum {
    ROW_BYTES = 128, /* of a row in one thread's registers */
    LONG = 4096      /* rows up to it fit into registers, backward too */
};

static int axis_of(const fl_kernel *kernel)
{
    int64_t axis = kernel->attrs->at[FL_SOFTMAX_AXIS].integer;
    return (int)(axis < 0 && kernel->out[0].ndim ? axis + kernel->out[0].ndim : axis);
}

/* ---- forward ---- */

template<typename T, int PACKS>
__global__ void __launch_bounds__(FL_ROW_MOST_THREADS)
    softmax_row(T *y, const T *x, int64_t x_stride, int64_t rows, int n, int group, bool logs)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH, COUNT = PACKS * WIDTH };
    __shared__ W shared[32];
    int64_t row = fl_group_number(group);
    int lane = fl_group_lane(group), length = row < rows ? n : 0;
    const T *from = x + (row < rows ? row : 0) * x_stride;
    int shift = fl_row_shift(from);
    W v[COUNT], top = -(W)INFINITY, sum = 0;
    fl_row_load<PACKS>(v, from, lane * WIDTH - shift, group * WIDTH, length, -(W)INFINITY);
#pragma unroll
    for (int i = 0; i < COUNT; i++) top = v[i] > top ? v[i] : top;
    top = fl_group_join(top, group, -(W)INFINITY, shared, [](W a, W b) { return b > a ? b : a; });
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        W e = fl_exp_for<T>::of(v[i] - top);
        sum += e;
        v[i] = logs ? v[i] - top : e;
    }
    sum = fl_group_join(sum, group, (W)0, shared, [](W a, W b) { return a + b; });
    W rest = logs ? fl_log(sum) : 1 / sum;
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = logs ? v[i] - rest : v[i] * rest;
    fl_row_store<PACKS>(y + row * n, v, lane * WIDTH - shift, group * WIDTH, length);
}

/* Center and scale (or logarithm of the sum) of every row. A row with an infinite maximum has no softmax: NaN. */
template<typename X>
struct statistics_fold : fl_powers_sums<X> {
    X *out;
    bool logs;
    __device__ void finish(const fl_powers &total, int64_t row, int64_t) const
    {
        out[2 * row] = (X)total.top;
        out[2 * row + 1] = isinf(total.top) ? (X)NAN : (X)(logs ? log(total.sum) : 1 / total.sum);
    }
};

template<typename T>
struct softmax_map {
    typedef wide<T> W;
    struct state {
        W top, rest;
    };
    enum { INPUTS = 1 };
    const W *statistics;
    bool logs;
    __device__ state begin(int64_t row) const { return {statistics[2 * row], statistics[2 * row + 1]}; }
    __device__ W at(const state &of_row, W x, W, int64_t) const
    {
        return logs ? x - of_row.top - of_row.rest : fl_exp_for<T>::of(x - of_row.top) * of_row.rest;
    }
};

template<typename T>
static fl_status softmax_in_two(const fl_map_operands<T> &operands, const fl_rows_of *x, bool logs)
{
    void *memory;
    FL_TRY(fl_cuda_malloc(&memory, 2 * sizeof(wide<T>) * (size_t)(operands.shape.outer * operands.shape.inner)));
    statistics_fold<wide<T>> fold;
    fold.out = (wide<T> *)memory;
    fold.logs = logs;
    fl_status status = fl_reduce_each_row<T>(x, &operands.shape, fold, false);
    softmax_map<T> map = {fold.out, logs};
    if (status == FL_OK) fl_map_rows(operands, map);
    fl_cuda_free(memory);
    return status;
}

template<typename T>
static fl_status softmax(fl_kernel *kernel, const fl_rows_of *x, fl_row_shape shape)
{
    enum { WIDTH = fl_vector<T>::WIDTH, MOST = fl_row_most<T, ROW_BYTES>::PACKS };
    bool logs = kernel->variant == FL_SOFTMAX_LOGS, aligned = (uintptr_t)x->data % 16 == 0 && x->stride % WIDTH == 0;
    fl_map_operands<T> m = {(T *)kernel->out[0].data, (const T *)x->data, NULL, x->stride, 0, shape};
    fl_row_plan p = fl_row_plan_of(shape.outer, shape.n, WIDTH, MOST, aligned);
    if (shape.inner > 1 || p.packs == 0) return softmax_in_two(m, x, logs);
    fl_by_packs<MOST>(p.packs, [&](auto packs) {
        FL_LAUNCH((softmax_row<T, decltype(packs)::value>), fl_row_grid(shape.outer, p), dim3((unsigned)p.threads), 0,
                  m.out, m.a, m.a_stride, shape.outer, (int)shape.n, p.group, logs);
    });
    return FL_OK;
}

static fl_status launch_softmax(fl_kernel *kernel)
{
    fl_rows_of x;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_row_shape shape = fl_row_shape_of(&kernel->out[0], axis_of(kernel));
    FL_TRY(fl_rows_open_along(&x, &kernel->in[0], axis_of(kernel), &shape, true, kernel->out[0].dtype));
    fl_status status = fl_cuda_by_float(kernel->out[0].dtype,
                                        [&](auto like) { return softmax<decltype(like)>(kernel, &x, shape); });
    fl_rows_close(&x);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

/* ---- backward ---- */

/* softmax: dx = y (g - sum(g y)); log_softmax: dx = g - e^y sum(g) */
template<typename T, int PACKS>
__global__ void __launch_bounds__(FL_ROW_MOST_THREADS) backward_row(fl_map_operands<T> m, int group, bool logs)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH, COUNT = PACKS * WIDTH };
    __shared__ W shared[32];
    int64_t row = fl_group_number(group), there = row < m.shape.outer ? row : 0;
    int lane = fl_group_lane(group), length = row < m.shape.outer ? (int)m.shape.n : 0;
    const T *from = m.b + there * m.b_stride;
    int shift = fl_row_shift(from);
    W g[COUNT], y[COUNT], sum = 0;
    fl_row_load_both<PACKS>(g, m.a + there * m.a_stride, (W)0, y, from, (W)0, lane * WIDTH - shift, group * WIDTH,
                            length);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum += logs ? g[i] : g[i] * y[i];
    sum = fl_group_join(sum, group, (W)0, shared, [](W a, W b) { return a + b; });
#pragma unroll
    for (int i = 0; i < COUNT; i++) g[i] = logs ? g[i] - fl_exp_for<T>::of(y[i]) * sum : y[i] * (g[i] - sum);
    fl_row_store<PACKS>(m.out + row * m.shape.n, g, lane * WIDTH - shift, group * WIDTH, length);
}

/* sum(g y), or sum(g), of every row. The elements folded are those of g; y lies like g. */
template<typename T>
struct product_fold {
    typedef wide<T> X;
    typedef double Total;
    enum { VECTORS = 1 };
    X *out;
    const T *y; /* NULL: sum(g) */

    __device__ Total none() const { return 0; }
    __device__ Total join(Total a, Total b) const { return a + b; }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&g)[N], const fl_place<P> &place) const
    {
        X products[N];
#pragma unroll
        for (int i = 0; i < N; i++) products[i] = g[i];
        if (y) {
#pragma unroll
            for (int p = 0; p < N / W; p++) {
                X other[W];
                load<W>(other, y + place.offset[p], place.stride);
#pragma unroll
                for (int j = 0; j < W; j++) products[p * W + j] *= other[j];
            }
        }
        total += (double)fl_sum_pairs<N>(products);
    }
    template<int W>
    __device__ static void load(X (&out)[W], const T *from, int64_t stride)
    {
        if (W > 1 && fl_is_aligned<T, W>(from)) {
            fl_pack<T, W> pack = *(const fl_pack<T, W> *)from;
#pragma unroll
            for (int j = 0; j < W; j++) out[j] = fl_load(pack.at[j]);
        } else
#pragma unroll
            for (int j = 0; j < W; j++) out[j] = fl_load(from[j * stride]);
    }
    __device__ void finish(Total total, int64_t row, int64_t) const { out[row] = (X)total; }
};

template<typename T>
struct backward_map {
    typedef wide<T> W;
    enum { INPUTS = 2 };
    const W *sums;
    bool logs;
    __device__ W begin(int64_t row) const { return sums[row]; }
    __device__ W at(W sum, W g, W y, int64_t) const { return logs ? g - fl_exp_for<T>::of(y) * sum : y * (g - sum); }
};

template<typename T>
static fl_status backward_in_two(const fl_map_operands<T> &operands, const fl_rows_of *g, bool logs)
{
    void *memory;
    FL_TRY(fl_cuda_malloc(&memory, sizeof(wide<T>) * (size_t)(operands.shape.outer * operands.shape.inner)));
    product_fold<T> fold = {(wide<T> *)memory, logs ? NULL : operands.b};
    fl_status status = fl_reduce_each_row<T>(g, &operands.shape, fold, false);
    backward_map<T> map = {fold.out, logs};
    if (status == FL_OK) fl_map_rows(operands, map);
    fl_cuda_free(memory);
    return status;
}

template<typename T>
static fl_status backward(fl_kernel *kernel, const fl_rows_of *g, const fl_rows_of *y, fl_row_shape shape)
{
    enum { WIDTH = fl_vector<T>::WIDTH, MOST = fl_row_most<T, ROW_BYTES / 2>::PACKS };
    bool logs = kernel->variant == FL_SOFTMAX_LOGS, aligned = (uintptr_t)y->data % 16 == 0 && y->stride % WIDTH == 0;
    fl_map_operands<T> m = {
        (T *)kernel->out[0].data, (const T *)g->data, (const T *)y->data, g->stride, y->stride, shape};
    fl_row_plan p = fl_row_plan_of(shape.outer, shape.n, WIDTH, MOST, aligned);
    if (shape.inner > 1 || p.packs == 0) return backward_in_two(m, g, logs);
    fl_by_packs<MOST>(p.packs, [&](auto packs) {
        FL_LAUNCH((backward_row<T, decltype(packs)::value>), fl_row_grid(shape.outer, p), dim3((unsigned)p.threads), 0,
                  m, p.group, logs);
    });
    return FL_OK;
}

static fl_status launch_backward(fl_kernel *kernel)
{
    fl_rows_of g, y = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    int axis = axis_of(kernel);
    fl_dtype dtype = kernel->out[0].dtype;
    fl_row_shape shape = fl_row_shape_of(&kernel->out[0], axis);
    bool apart = shape.n <= LONG; /* rows that are reduced and then mapped lie alike in both operands */
    fl_status status = fl_rows_open_along(&g, &kernel->in[FL_SOFTMAX_DY], axis, &shape, apart, dtype);
    if (status == FL_OK) status = fl_rows_open_along(&y, &kernel->in[FL_SOFTMAX_Y], axis, &shape, apart, dtype);
    if (status == FL_OK)
        status = fl_cuda_by_float(dtype, [&](auto like) { return backward<decltype(like)>(kernel, &g, &y, shape); });
    fl_rows_close(&g);
    fl_rows_close(&y);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

FL_CUDA_OP(softmax, launch_softmax);
FL_CUDA_OP(log_softmax, launch_softmax);
FL_CUDA_OP(softmax_backward, launch_backward);
FL_CUDA_OP(log_softmax_backward, launch_backward);
