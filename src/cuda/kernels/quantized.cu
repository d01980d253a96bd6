/*
** quantized.cu -- products with a matrix of 8 or 4 bits per number (its layout: core/cpu/quantized.h).
**
** A few rows of x read the matrix as it is, a warp for each of its rows, since reading it is what takes the time. For
** more rows the matrix becomes floats of x's dtype, and the product is one of floats.
*/
#include "arrays.h"
#include "cuda/parts/block.cuh"
#include "gemm.h"
#include "index.h"

extern "C" {
#include "core/op/quantized.h"
}

enum { THREADS = 256, WARPS = THREADS / 32 };
enum { AT_ONCE = 8, FEW = 32 }; /* rows of x: that a warp has sums for; that are multiplied without floats */
enum { BYTES = 16 };            /* of the matrix that a thread loads, if all addresses allow it */

/* y [count, rows] = x [count, columns] W^T + bias, W [rows, columns] in groups of columns that share a scale. */
struct quantized {
    int64_t count, rows, columns, group;
    const void *x, *matrix;
    const float *scales, *bias; /* bias NULL: none */
    void *y;
};

/* N elements, loaded at once. */
template<typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
    T at[N];
};

/* Divisions of 64 bits take as long as all else that is done with 16 bytes. */
__device__ static inline int64_t quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* The place of a thread's bytes in a row of the matrix: their group, and the first column; the columns of high halves
** are half a group further. */
template<int BITS>
struct place {
    int64_t group, column, half;
    __device__ place(const quantized &quantized, int64_t byte)
    {
        half = quantized.group / 2;
        group = quotient(byte, BITS == 8 ? quantized.group : half);
        column = BITS == 8 ? byte : byte + group * half;
    }
};

template<int BITS>
__host__ __device__ static inline int64_t row_bytes(const quantized &quantized)
{
    return BITS == 8 ? quantized.columns : quantized.columns / 2;
}

/* The numbers of N bytes: those of their low halves or of all of them, and those of the high halves. */
template<int BITS, int N>
struct numbers {
    float low[N], high[BITS == 8 ? 1 : N];

    __device__ numbers(const uint8_t *from, float scale)
    {
        pack<uint8_t, N> bytes = *(const pack<uint8_t, N> *)from;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if constexpr (BITS == 8) low[j] = (float)(int8_t)bytes.at[j] * scale;
            else {
                low[j] = (float)((int)(bytes.at[j] & 15) - 8) * scale;
                high[j] = (float)((int)(bytes.at[j] >> 4) - 8) * scale;
            }
        }
    }
};

template<int N, typename X>
__device__ static inline float dot(const X *x, const float *y)
{
    pack<X, N> elements = *(const pack<X, N> *)x;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++) sum += fl_load(elements.at[j]) * y[j];
    return sum;
}

template<int N, typename X>
__device__ static inline void store(X *to, const float *y)
{
    pack<X, N> elements;
#pragma unroll
    for (int j = 0; j < N; j++) elements.at[j] = fl_store<X>(y[j]);
    *(pack<X, N> *)to = elements;
}

/* COUNT rows of x, at most, with a row of the matrix for each warp. */
template<typename X, int BITS, int N, int COUNT>
__global__ void __launch_bounds__(THREADS) few_rows(const __grid_constant__ quantized q)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, first = (int64_t)blockIdx.y * COUNT;
    if (row >= q.rows) return;
    int lane = threadIdx.x % 32, count = q.count - first < COUNT ? (int)(q.count - first) : COUNT;
    int64_t width = row_bytes<BITS>(q);
    const uint8_t *matrix = (const uint8_t *)q.matrix + row * width;
    const float *scales = q.scales + row * (q.columns / q.group);
    const X *x = (const X *)q.x + first * q.columns;
    float sums[COUNT] = {};
    for (int64_t byte = lane * N; byte < width; byte += 32 * N) {
        place<BITS> at(q, byte);
        numbers<BITS, N> y(matrix + byte, scales[at.group]);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i >= count) break;
            const X *line = x + i * q.columns + at.column;
            sums[i] += dot<N>(line, y.low);
            if constexpr (BITS == 4) sums[i] += dot<N>(line + at.half, y.high);
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (i >= count) break;
        float sum = fl_lanes_join(sums[i], 32, [](float a, float b) { return a + b; });
        if (lane == 0) ((X *)q.y)[(first + i) * q.rows + row] = fl_store<X>(sum + (q.bias ? q.bias[row] : 0));
    }
}

/* The matrix as floats, a thread for N bytes. */
template<typename X, int BITS, int N>
__global__ void __launch_bounds__(THREADS) unpack(X *out, const __grid_constant__ quantized q)
{
    int64_t width = row_bytes<BITS>(q), byte = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (byte >= q.rows * width) return;
    int64_t row = byte / width;
    place<BITS> at(q, byte % width);
    numbers<BITS, N> y((const uint8_t *)q.matrix + byte, q.scales[row * (q.columns / q.group) + at.group]);
    X *to = out + row * q.columns + at.column;
    store<N>(to, y.low);
    if constexpr (BITS == 4) store<N>(to + at.half, y.high);
}

/* ---- launching ---- */

static bool is_multiple(const void *address, int64_t of) { return (int64_t)((uintptr_t)address % (uintptr_t)of) == 0; }

/* True if threads may load BYTES bytes, which have one scale, and as many elements of x. */
static bool is_wide(const quantized &quantized, int bits)
{
    return quantized.group * bits / 8 % BYTES == 0 && is_multiple(quantized.matrix, BYTES)
        && is_multiple(quantized.x, BYTES);
}

template<typename X, int BITS>
static void launch_few(const quantized &quantized)
{
    bool one = quantized.count == 1;
    dim3 grid((unsigned)((quantized.rows + WARPS - 1) / WARPS),
              (unsigned)(one ? 1 : (quantized.count + AT_ONCE - 1) / AT_ONCE));
    if (!is_wide(quantized, BITS)) FL_LAUNCH((few_rows<X, BITS, 1, AT_ONCE>), grid, THREADS, 0, quantized);
    else if (one) FL_LAUNCH((few_rows<X, BITS, BYTES, 1>), grid, THREADS, 0, quantized);
    else FL_LAUNCH((few_rows<X, BITS, BYTES, AT_ONCE>), grid, THREADS, 0, quantized);
}

template<typename X, int BITS>
static void launch_unpack(X *out, const quantized &quantized)
{
    int64_t bytes = quantized.rows * row_bytes<BITS>(quantized);
    if (is_wide(quantized, BITS))
        FL_LAUNCH((unpack<X, BITS, BYTES>), fl_blocks(bytes, THREADS * BYTES), THREADS, 0, out, quantized);
    else FL_LAUNCH((unpack<X, BITS, 1>), fl_blocks(bytes, THREADS), THREADS, 0, out, quantized);
}

/* Of more rows than FEW; bias of x's dtype. */
static fl_status multiply_floats(const quantized &quantized, fl_dtype dtype, void *matrix, void *bias)
{
    fl_cuda_gemm g = {};
    g.dtype = dtype;
    g.m = quantized.count;
    g.n = quantized.rows;
    g.k = quantized.columns;
    g.a = (char *)quantized.x;
    g.b = (char *)matrix;
    g.c = (char *)quantized.y;
    g.bias = (char *)bias;
    g.a_row = g.b_col = quantized.columns;
    g.a_col = g.b_row = 1;
    return fl_cuda_gemm_run(&g);
}

template<typename X, int BITS>
static fl_status launch_typed(quantized q, fl_dtype dtype, void *bias)
{
    void *matrix = NULL;
    size_t bytes = (size_t)(q.rows * q.columns) * sizeof(X);
    if (q.count <= FEW) {
        q.bias = (const float *)bias;
        launch_few<X, BITS>(q);
        return FL_OK;
    }
    if (bytes > 0) {
        FL_TRY(fl_cuda_malloc(&matrix, bytes));
        launch_unpack<X, BITS>((X *)matrix, q);
    }
    fl_status status = multiply_floats(q, dtype, matrix, bias);
    if (matrix) fl_cuda_free(matrix);
    return status;
}

/* Operands and result while the op is issued. */
struct quantized_arrays {
    fl_cuda_array in[FL_QUANTIZED_BIAS + 1], y;
    int open; /* of in */
    bool has_y;
};

/* A product of floats adds a bias of their dtype. */
static fl_status open_arrays(quantized_arrays *arrays, fl_kernel *kernel, bool is_few)
{
    fl_dtype dtype = kernel->out[0].dtype;
    const fl_dtype dtypes[] = {dtype, kernel->in[FL_QUANTIZED_WEIGHT].dtype, FL_FLOAT32, is_few ? FL_FLOAT32 : dtype};
    for (int i = 0; i < kernel->nin && (i < FL_QUANTIZED_BIAS || kernel->in[i].data); i++, arrays->open++)
        FL_TRY(fl_cuda_array_open(&arrays->in[i], &kernel->in[i], dtypes[i]));
    FL_TRY(fl_cuda_array_room(&arrays->y, &kernel->out[0], dtype));
    arrays->has_y = true;
    return FL_OK;
}

static void close_arrays(quantized_arrays *arrays)
{
    if (arrays->has_y) fl_cuda_array_close(&arrays->y);
    while (arrays->open > 0) fl_cuda_array_close(&arrays->in[--arrays->open]);
}

static fl_status launch_arrays(quantized q, const quantized_arrays *arrays, const fl_kernel *kernel)
{
    fl_dtype dtype = kernel->out[0].dtype;
    bool is_int4 = kernel->attrs->at[FL_QUANTIZED_BITS].integer == 4;
    void *bias = arrays->open > FL_QUANTIZED_BIAS ? arrays->in[FL_QUANTIZED_BIAS].view.data : NULL;
    q.x = arrays->in[FL_QUANTIZED_X].view.data;
    q.matrix = arrays->in[FL_QUANTIZED_WEIGHT].view.data;
    q.scales = (const float *)arrays->in[FL_QUANTIZED_SCALES].view.data;
    q.y = arrays->y.view.data;
    auto launch = [&](auto like) {
        typedef decltype(like) X;
        return is_int4 ? launch_typed<X, 4>(q, dtype, bias) : launch_typed<X, 8>(q, dtype, bias);
    };
    switch (dtype) {
    case FL_FLOAT16: return launch(__half());
    case FL_BFLOAT16: return launch(__nv_bfloat16());
    default: return launch(0.0f); /* float64 is refused before */
    }
}

static fl_status launch_quantized(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_QUANTIZED_X];
    quantized_arrays a = {};
    quantized q = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    q.rows = kernel->in[FL_QUANTIZED_WEIGHT].size[0];
    q.columns = x->size[x->ndim - 1];
    q.count = kernel->out[0].numel / q.rows;
    q.group = q.columns ? q.columns / kernel->in[FL_QUANTIZED_SCALES].size[1] : 1;
    fl_status status = open_arrays(&a, kernel, q.count <= FEW);
    if (status == FL_OK) status = launch_arrays(q, &a, kernel);
    if (status == FL_OK) status = fl_cuda_check(kernel->name);
    if (status == FL_OK) status = fl_cuda_array_store(&kernel->out[0], &a.y);
    close_arrays(&a);
    return status;
}

FL_CUDA_OP(quantized_product, launch_quantized);
