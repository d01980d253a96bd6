/*
** layer_norm.cu -- layer normalisation over the last axes, forward and backward.
**
** Backward reads x and dy once: a thread keeps the same columns for all the rows of its block, so the sums for weight
** and bias grow in its registers beside the gradient of x. The blocks' sums are added by a second kernel, in order; how
** many blocks there are depends on the sizes and on the GPU.
*/
#include "core/op/layer_norm.h"
#include "rows.cuh"

template<typename T>
using wide = typename fl_wide<T>::type;

enum {
    ROW_BYTES = 128,     /* of a row in one thread's registers, forward */
    BACKWARD_BYTES = 32, /* of each of five arrays, backward */
    WIDE_THREADS = 512   /* per row that does not fit into registers */
};

/* A value per column, of T or of the type it is computed in. */
template<typename T>
struct columns {
    const void *data; /* NULL: absent */
    bool is_wide;
    enum { WIDTH = fl_vector<T>::WIDTH, PART = fl_vector<wide<T>>::WIDTH, PARTS = WIDTH / PART };

    /* Those of one vector of T, fetched (PARTS) and converted as rows are; `absent` where there are none. */
    __device__ void fetch(uint4 *raw, int64_t e, int64_t n) const
    {
        if (data && is_wide) fl_row_fetch<PARTS>(raw, (const wide<T> *)data, e, (int64_t)PART, n);
        else if (data) fl_row_fetch<1>(raw, (const T *)data, e, (int64_t)0, n);
    }
    __device__ void convert(wide<T> *out, const uint4 *raw, int64_t e, int64_t n, wide<T> absent) const
    {
        if (!data) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) out[j] = absent;
        } else if (is_wide) fl_row_convert_all<PARTS>(out, raw, (const wide<T> *)data, e, (int64_t)PART, n, absent);
        else fl_row_convert_all<1>(out, raw, (const T *)data, e, (int64_t)0, n, absent);
    }
    __device__ void load(wide<T> *out, int64_t e, int64_t n, wide<T> absent) const
    {
        uint4 raw[PARTS];
        fetch(raw, e, n);
        convert(out, raw, e, n, absent);
    }
    __device__ wide<T> at(int64_t e, wide<T> absent) const
    {
        if (!data) return absent;
        return is_wide ? ((const wide<T> *)data)[e] : fl_load(((const T *)data)[e]);
    }
};

/* The operand as it is if it has the dtype of x, else in the type of arithmetic. */
static fl_status open_columns(fl_rows_of *rows, const fl_view *view, fl_dtype dtype)
{
    return fl_rows_open(rows, view, 0, view->dtype == dtype ? dtype : fl_dtype_compute(dtype));
}

template<typename T>
static columns<T> columns_of(const fl_rows_of *rows, const fl_view *view, fl_dtype dtype)
{
    columns<T> c = {rows->data, view->dtype != dtype};
    return c;
}

static int64_t row_length(const fl_view *view, int leading)
{
    int64_t n = 1;
    for (int i = leading; i < view->ndim; i++) n *= view->size[i];
    return n;
}

/* ---- forward ---- */

template<typename T>
struct norm_job {
    T *y, *mean, *rstd;
    const T *x;
    int64_t x_stride, rows, n;
    wide<T> eps;
    columns<T> weight, bias;
};

/* THREADS: of a block, at most. Rows that more than FL_ROW_THREADS share leave each of these fewer registers. */
template<typename T, int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS) norm_row(norm_job<T> j, int group)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH, COUNT = PACKS * WIDTH };
    __shared__ W shared[32];
    int64_t row = fl_group_number(group);
    bool active = row < j.rows;
    int lane = fl_group_lane(group), n = active ? (int)j.n : 0;
    const T *from = j.x + (active ? row : 0) * j.x_stride;
    int shift = fl_row_shift(from);
    auto add = [](W a, W b) { return a + b; };
    W v[COUNT], sum = 0, squares = 0;
    fl_row_load<PACKS>(v, from, lane * WIDTH - shift, group * WIDTH, n, (W)0);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum += v[i];
    W mean = fl_group_join(sum, group, (W)0, shared, add) / (W)j.n;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int e = (lane + i / WIDTH * group) * WIDTH - shift + i % WIDTH;
        W d = v[i] - mean;
        squares += e >= 0 && e < n ? d * d : (W)0;
    }
    W rstd = 1 / fl_root(fl_group_join(squares, group, (W)0, shared, add) / (W)j.n + j.eps);
    if (active && lane == 0) j.mean[row] = fl_store<T>(mean), j.rstd[row] = fl_store<T>(rstd);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int e = (lane + k * group) * WIDTH - shift;
        W w[WIDTH], b[WIDTH];
        uint4 raw_w[columns<T>::PARTS], raw_b[columns<T>::PARTS];
        j.weight.fetch(raw_w, e, n);
        j.bias.fetch(raw_b, e, n);
        j.weight.convert(w, raw_w, e, n, (W)1);
        j.bias.convert(b, raw_b, e, n, (W)0);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) v[k * WIDTH + i] = (v[k * WIDTH + i] - mean) * rstd * w[i] + b[i];
        fl_row_store<1>(j.y + row * j.n, v + k * WIDTH, e, 0, n);
    }
}

/* Mean and 1 / deviation of every row: as results, and in the type of arithmetic. */
template<typename T>
struct norm_fold : fl_moments_sums<wide<T>> {
    T *mean, *rstd;
    wide<T> *statistics;
    double n, eps;
    __device__ void finish(const fl_moments &total, int64_t row, int64_t) const
    {
        wide<T> m = (wide<T>)total.mean, r = (wide<T>)(1 / sqrt(total.squares / n + eps));
        mean[row] = fl_store<T>(m);
        rstd[row] = fl_store<T>(r);
        statistics[2 * row] = m;
        statistics[2 * row + 1] = r;
    }
};

template<typename T>
struct norm_map {
    typedef wide<T> W;
    enum { INPUTS = 1 };
    struct state {
        W mean, rstd;
    };
    const W *statistics;
    columns<T> weight, bias;
    int64_t n;
    __device__ state begin(int64_t row) const { return {statistics[2 * row], statistics[2 * row + 1]}; }
    __device__ W at(const state &of_row, W x, W, int64_t c) const
    {
        if (c < 0 || c >= n) return 0;
        return (x - of_row.mean) * of_row.rstd * weight.at(c, (W)1) + bias.at(c, (W)0);
    }
};

template<typename T>
static fl_status norm_in_two(const norm_job<T> &job, const fl_rows_of *x)
{
    void *memory;
    fl_row_shape shape = {job.rows, job.n, 1};
    FL_TRY(fl_cuda_malloc(&memory, 2 * sizeof(wide<T>) * (size_t)job.rows));
    norm_fold<T> fold;
    fold.mean = job.mean, fold.rstd = job.rstd, fold.statistics = (wide<T> *)memory;
    fold.n = (double)job.n, fold.eps = (double)job.eps;
    fl_status status = fl_reduce_each_row<T>(x, &shape, fold, false);
    fl_map_operands<T> m = {job.y, job.x, NULL, job.x_stride, 0, shape};
    norm_map<T> map = {fold.statistics, job.weight, job.bias, job.n};
    if (status == FL_OK) fl_map_last_rows(m, map);
    fl_cuda_free(memory);
    return status;
}

template<typename T>
static fl_status norm(fl_kernel *kernel, const fl_rows_of *x, const fl_rows_of *weight, const fl_rows_of *bias,
                      int64_t n)
{
    enum { WIDTH = fl_vector<T>::WIDTH, MOST = fl_row_most<T, ROW_BYTES>::PACKS };
    fl_dtype dtype = kernel->in[FL_LAYER_NORM_X].dtype;
    bool aligned = (uintptr_t)x->data % 16 == 0 && x->stride % WIDTH == 0;
    norm_job<T> j = {(T *)kernel->out[FL_LAYER_NORM_Y].data,
                     (T *)kernel->out[FL_LAYER_NORM_MEAN].data,
                     (T *)kernel->out[FL_LAYER_NORM_RSTD].data,
                     (const T *)x->data,
                     x->stride,
                     kernel->out[FL_LAYER_NORM_MEAN].numel,
                     n,
                     (wide<T>)kernel->attrs->at[FL_LAYER_NORM_EPS].number,
                     columns_of<T>(weight, &kernel->in[FL_LAYER_NORM_WEIGHT], dtype),
                     columns_of<T>(bias, &kernel->in[FL_LAYER_NORM_BIAS], dtype)};
    fl_row_plan p = fl_row_plan_of(j.rows, n, WIDTH, MOST, aligned);
    if (p.packs == 0) return norm_in_two(j, x);
    if (p.threads > FL_ROW_THREADS)
        FL_LAUNCH((norm_row<T, MOST, FL_ROW_MOST_THREADS>), fl_row_grid(j.rows, p), dim3((unsigned)p.threads), 0, j,
                  p.group);
    else
        fl_by_packs<MOST>(p.packs, [&](auto packs) {
            FL_LAUNCH((norm_row<T, decltype(packs)::value, FL_ROW_THREADS>), fl_row_grid(j.rows, p),
                      dim3((unsigned)p.threads), 0, j, p.group);
        });
    return FL_OK;
}

static fl_status launch_norm(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_LAYER_NORM_X];
    int leading = x->ndim - (int)kernel->attrs->at[FL_LAYER_NORM_AXES].integer;
    fl_rows_of rows, weight = {}, bias = {};
    if (kernel->out[FL_LAYER_NORM_MEAN].numel == 0) return FL_OK;
    fl_status status = fl_rows_open(&rows, x, leading, x->dtype);
    if (status == FL_OK) status = open_columns(&weight, &kernel->in[FL_LAYER_NORM_WEIGHT], x->dtype);
    if (status == FL_OK) status = open_columns(&bias, &kernel->in[FL_LAYER_NORM_BIAS], x->dtype);
    if (status == FL_OK)
        status = fl_cuda_by_float(x->dtype, [&](auto like) {
            return norm<decltype(like)>(kernel, &rows, &weight, &bias, row_length(x, leading));
        });
    fl_rows_close(&rows);
    fl_rows_close(&weight);
    fl_rows_close(&bias);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

FL_CUDA_OP(layer_norm_rows, launch_norm);

/* ---- backward ---- */

template<typename T>
struct gradient_job {
    T *dx;
    const T *g, *x, *mean, *rstd;
    int64_t g_stride, x_stride, mean_stride, rstd_stride, rows, n;
    columns<T> weight;
    wide<T> *partials; /* [blocks][2][n]: sums for weight and bias */
};

/* The sums of a row for the gradient of x: of g w and of g w z. */
template<typename W>
struct row_sums {
    W g, gz;
};

template<typename W>
__device__ static inline row_sums<W> add_sums(const row_sums<W> &a, const row_sums<W> &b)
{
    return {a.g + b.g, a.gz + b.gz};
}

/* dx of one row, whose columns `e` this thread has; adds to its sums for weight and bias. All threads of the block call
** it. */
template<typename T, int PACKS>
__device__ static inline void gradient_of_row(const gradient_job<T> &job, int64_t row, int group,
                                              row_sums<wide<T>> *shared, const wide<T> *w, wide<T> *weight_sum,
                                              wide<T> *bias_sum)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH, COUNT = PACKS * WIDTH };
    bool active = row < job.rows;
    int lane = fl_group_lane(group), n = active ? (int)job.n : 0;
    int64_t there = active ? row : 0;
    W g[COUNT], z[COUNT], mean = fl_load(job.mean[there * job.mean_stride]),
                          rstd = fl_load(job.rstd[there * job.rstd_stride]);
    row_sums<W> sums = {0, 0};
    fl_row_load_both<PACKS>(g, job.g + there * job.g_stride, (W)0, z, job.x + there * job.x_stride, mean, lane * WIDTH,
                            group * WIDTH, n);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        z[i] = (z[i] - mean) * rstd;
        weight_sum[i] += n > 0 ? g[i] * z[i] : (W)0;
        bias_sum[i] += g[i];
        g[i] *= w[i];
        sums.g += g[i];
        sums.gz += g[i] * z[i];
    }
    sums = fl_group_join(sums, group, row_sums<W>{0, 0}, shared,
                         [](const row_sums<W> &a, const row_sums<W> &b) { return add_sums(a, b); });
    W mean_g = sums.g / (W)job.n, mean_gz = sums.gz / (W)job.n;
#pragma unroll
    for (int i = 0; i < COUNT; i++) g[i] = (g[i] - mean_g - z[i] * mean_gz) * rstd;
    fl_row_store<PACKS>(job.dx + row * job.n, g, lane * WIDTH, group * WIDTH, n);
}

/* The sums of the groups of a block, column by column: out[n]. `shared` has a place for each element of each thread. */
template<int PACKS, int WIDTH, typename W>
__device__ static inline void store_block_sums(W *out, const W *sums, int64_t n, int group, W *shared)
{
    enum { COUNT = PACKS * WIDTH };
    int lane = fl_group_lane(group), columns_here = group * COUNT;
    W *mine = shared + (int)threadIdx.x / group * columns_here;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; i++) mine[(lane + i / WIDTH * group) * WIDTH + i % WIDTH] = sums[i];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < n; c += (int)blockDim.x) {
        W sum = 0;
        for (int i = c; i < (int)blockDim.x * COUNT; i += columns_here) sum += shared[i];
        out[c] = sum;
    }
}

template<typename T, int PACKS>
__global__ void __launch_bounds__(FL_ROW_MOST_THREADS) gradient_rows(gradient_job<T> j, int group)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH, COUNT = PACKS * WIDTH };
    __shared__ row_sums<W> shared[32];
    FL_DYNAMIC_SHARED(W, block_sums);
    int lane = fl_group_lane(group);
    int64_t groups = group <= 32 ? (int)blockDim.x / group : 1, begin = blockIdx.x * groups;
    W w[COUNT], weight_sum[COUNT], bias_sum[COUNT];
#pragma unroll
    for (int k = 0; k < PACKS; k++) j.weight.load(w + k * WIDTH, (lane + k * group) * WIDTH, j.n, (W)1);
#pragma unroll
    for (int i = 0; i < COUNT; i++) weight_sum[i] = bias_sum[i] = 0;
    for (int64_t row = begin; row < j.rows; row += gridDim.x * groups)
        gradient_of_row<T, PACKS>(j, row + fl_group_number(group) - begin, group, shared, w, weight_sum, bias_sum);
    W *out = j.partials + (int64_t)blockIdx.x * 2 * j.n;
    store_block_sums<PACKS, WIDTH>(out, weight_sum, j.n, group, block_sums);
    store_block_sums<PACKS, WIDTH>(out + j.n, bias_sum, j.n, group, block_sums);
}

/* A block per long row: sums, then dx, from x and dy read again. */
template<typename T>
__global__ void __launch_bounds__(WIDE_THREADS) gradient_long_row(gradient_job<T> j)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH };
    __shared__ row_sums<W> shared[32];
    int64_t row = blockIdx.x;
    const T *from_g = j.g + row * j.g_stride, *from_x = j.x + row * j.x_stride;
    W g[WIDTH], x[WIDTH], w[WIDTH], mean = fl_load(j.mean[row * j.mean_stride]),
                                    rstd = fl_load(j.rstd[row * j.rstd_stride]);
    row_sums<W> sums = {0, 0};
    for (int64_t e = (int64_t)threadIdx.x * WIDTH; e < j.n; e += WIDE_THREADS * WIDTH) {
        uint4 raw_w[columns<T>::PARTS];
        j.weight.fetch(raw_w, e, j.n);
        fl_row_load_both<1>(g, from_g, (W)0, x, from_x, mean, e, (int64_t)0, j.n);
        j.weight.convert(w, raw_w, e, j.n, (W)1);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            sums = add_sums(sums, row_sums<W>{g[i] * w[i], g[i] * w[i] * ((x[i] - mean) * rstd)});
    }
    sums = fl_group_join(sums, WIDE_THREADS, row_sums<W>{0, 0}, shared,
                         [](const row_sums<W> &a, const row_sums<W> &b) { return add_sums(a, b); });
    W mean_g = sums.g / (W)j.n, mean_gz = sums.gz / (W)j.n;
    for (int64_t e = (int64_t)threadIdx.x * WIDTH; e < j.n; e += WIDE_THREADS * WIDTH) {
        uint4 raw_w[columns<T>::PARTS];
        j.weight.fetch(raw_w, e, j.n);
        fl_row_load_both<1>(g, from_g, (W)0, x, from_x, mean, e, (int64_t)0, j.n);
        j.weight.convert(w, raw_w, e, j.n, (W)1);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) g[i] = (g[i] * w[i] - mean_g - (x[i] - mean) * rstd * mean_gz) * rstd;
        fl_row_store<1>(j.dx + row * j.n, g, e, (int64_t)0, j.n);
    }
}

/* Sums for weight and bias of long rows: a thread has one vector of columns, a block (y) every gridDim.y-th row. */
template<typename T>
__global__ void __launch_bounds__(FL_MAP_THREADS) gradient_columns(gradient_job<T> j)
{
    typedef wide<T> W;
    enum { WIDTH = fl_vector<T>::WIDTH };
    int64_t e = ((int64_t)blockIdx.x * FL_MAP_THREADS + threadIdx.x) * WIDTH;
    W g[WIDTH], x[WIDTH], weight_sum[WIDTH] = {}, bias_sum[WIDTH] = {};
    if (e >= j.n) return;
    for (int64_t row = blockIdx.y; row < j.rows; row += gridDim.y) {
        W mean = fl_load(j.mean[row * j.mean_stride]), rstd = fl_load(j.rstd[row * j.rstd_stride]);
        fl_row_load_both<1>(g, j.g + row * j.g_stride, (W)0, x, j.x + row * j.x_stride, mean, e, (int64_t)0, j.n);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) weight_sum[i] += g[i] * ((x[i] - mean) * rstd), bias_sum[i] += g[i];
    }
    W *out = j.partials + (int64_t)blockIdx.y * 2 * j.n;
    for (int i = 0; i < WIDTH && e + i < j.n; i++) out[e + i] = weight_sum[i], out[j.n + e + i] = bias_sum[i];
}

enum { JOIN_WIDE = 32, JOIN_HIGH = 32 }; /* few columns, many blocks: the loads of a column are spread over threads */

/* partials [blocks][2 n] -> dweight[n], dbias[n] */
template<typename T>
__global__ void __launch_bounds__(JOIN_WIDE *JOIN_HIGH)
    join_sums(T *dweight, T *dbias, const wide<T> *partials, int blocks, int64_t n)
{
    __shared__ wide<T> shared[JOIN_HIGH][JOIN_WIDE];
    int64_t c = (int64_t)blockIdx.x * JOIN_WIDE + threadIdx.x;
    wide<T> sum = 0;
#pragma unroll 8
    for (int b = (int)threadIdx.y; c < 2 * n && b < blocks; b += JOIN_HIGH) sum += partials[b * 2 * n + c];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= 2 * n) return;
    for (int y = 1; y < JOIN_HIGH; y++) sum += shared[y][threadIdx.x];
    if (c < n) dweight[c] = fl_store<T>(sum);
    else dbias[c - n] = fl_store<T>(sum);
}

/* Enough blocks to fill the GPU, few enough that their sums are little beside the rows. */
static int gradient_blocks(int64_t rows, const fl_row_plan &plan)
{
    int64_t groups = plan.group <= 32 ? plan.threads / plan.group : 1, most = (rows + 8 * groups - 1) / (8 * groups);
    int64_t full = (int64_t)fl_cuda_current()->processors
        * (plan.threads < FL_ROW_MOST_THREADS ? FL_ROW_MOST_THREADS / plan.threads : 1);
    return (int)(most > full ? full : most > 0 ? most : 1);
}

/* Blocks of rows that long rows are cut into. */
static int gradient_segments(int64_t rows, int64_t n, int width)
{
    int64_t wanted = FL_REDUCE_BUSY / ((n + width - 1) / width) + 1, most = (rows + 7) / 8;
    return (int)(wanted < most ? wanted : most > 0 ? most : 1);
}

template<typename T>
static fl_status gradient(fl_kernel *kernel, gradient_job<T> j)
{
    enum { WIDTH = fl_vector<T>::WIDTH, MOST = fl_row_most<T, BACKWARD_BYTES>::PACKS };
    fl_row_plan p = fl_row_plan_of(j.rows, (j.n + WIDTH - 1) / WIDTH * WIDTH, WIDTH, MOST, true);
    int blocks = p.packs ? gradient_blocks(j.rows, p) : gradient_segments(j.rows, j.n, WIDTH);
    void *memory;
    FL_TRY(fl_cuda_malloc(&memory, (size_t)blocks * 2 * (size_t)j.n * sizeof(wide<T>)));
    j.partials = (wide<T> *)memory;
    if (p.packs == 0) {
        if (j.rows > 0) FL_LAUNCH((gradient_long_row<T>), dim3((unsigned)j.rows), dim3(WIDE_THREADS), 0, j);
        FL_LAUNCH((gradient_columns<T>), dim3(fl_blocks(j.n, FL_MAP_THREADS, WIDTH), (unsigned)blocks),
                  dim3(FL_MAP_THREADS), 0, j);
    } else
        fl_by_packs<MOST>(p.packs, [&](auto packs) {
            size_t shared = sizeof(wide<T>) * (size_t)p.threads * WIDTH * (size_t)p.packs;
            FL_LAUNCH((gradient_rows<T, decltype(packs)::value>), dim3((unsigned)blocks), dim3((unsigned)p.threads),
                      shared, j, p.group);
        });
    FL_LAUNCH((join_sums<T>), dim3(fl_blocks(2 * j.n, JOIN_WIDE)), dim3(JOIN_WIDE, JOIN_HIGH), 0,
              (T *)kernel->out[FL_LAYER_NORM_BACK_DWEIGHT].data, (T *)kernel->out[FL_LAYER_NORM_BACK_DBIAS].data,
              (const wide<T> *)memory, blocks, j.n);
    fl_cuda_free(memory);
    return FL_OK;
}

/* (dy, x, mean, rstd, weight?) */
static fl_status launch_gradient(fl_kernel *kernel)
{
    enum { OPERANDS = FL_LAYER_NORM_BACK_WEIGHT }; /* those with rows: all before the weight */
    const fl_view *x = &kernel->in[FL_LAYER_NORM_BACK_X];
    int leading = x->ndim - (int)kernel->attrs->at[FL_LAYER_NORM_AXES].integer;
    int64_t n = row_length(x, leading), rows = kernel->in[FL_LAYER_NORM_BACK_MEAN].numel;
    fl_rows_of r[OPERANDS] = {}, weight = {};
    fl_status status = open_columns(&weight, &kernel->in[FL_LAYER_NORM_BACK_WEIGHT], x->dtype);
    for (int i = 0; i < OPERANDS && status == FL_OK; i++)
        status = fl_rows_open(&r[i], &kernel->in[i], leading, x->dtype);
    if (status == FL_OK && n > 0)
        status = fl_cuda_by_float(x->dtype, [&](auto like) {
            typedef decltype(like) T;
            gradient_job<T> j = {(T *)kernel->out[FL_LAYER_NORM_BACK_DX].data,
                                 (const T *)r[FL_LAYER_NORM_BACK_DY].data,
                                 (const T *)r[FL_LAYER_NORM_BACK_X].data,
                                 (const T *)r[FL_LAYER_NORM_BACK_MEAN].data,
                                 (const T *)r[FL_LAYER_NORM_BACK_RSTD].data,
                                 r[FL_LAYER_NORM_BACK_DY].stride,
                                 r[FL_LAYER_NORM_BACK_X].stride,
                                 r[FL_LAYER_NORM_BACK_MEAN].stride,
                                 r[FL_LAYER_NORM_BACK_RSTD].stride,
                                 rows,
                                 n,
                                 columns_of<T>(&weight, &kernel->in[FL_LAYER_NORM_BACK_WEIGHT], x->dtype),
                                 NULL};
            return gradient<T>(kernel, j);
        });
    for (int i = 0; i < OPERANDS; i++) fl_rows_close(&r[i]);
    fl_rows_close(&weight);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

FL_CUDA_OP(layer_norm_backward, launch_gradient);
