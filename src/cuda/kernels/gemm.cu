/*
** gemm.cu -- matrix products by our own kernel: integers, and what cuBLASLt is not there for.
**
** A block makes a tile of C, a thread 4 x 4 of its elements, from tiles of A and B in shared memory; the next tiles are
** read into registers meanwhile. Operands may have any strides: threads read along the axis whose elements are nearer.
*/
#include "cuda/parts/convert.h"
#include "elementwise_math.h"
#include "gemm.h"

#include <type_traits>

enum {
    TILE = 64,
    DEPTH = 16,
    EACH = 4,
    SIDE = TILE / EACH,
    THREADS = SIDE * SIDE,
    PITCH = TILE + 4,
    LOADS = TILE * DEPTH / THREADS
};

/* The type of sums of products: integers without signs, so that they wrap around. */
template<typename T>
struct gemm_wide {
    typedef typename std::conditional<std::is_integral<T>::value,
                                      typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type,
                                      typename fl_wide<T>::type>::type type;
};

/* The rows relu and gelu of elementwise.def. */
template<typename W>
__device__ static inline W activated(W x, fl_cuda_activation by)
{
    if constexpr (std::is_floating_point<W>::value) switch (by) {
        case FL_CUDA_RELU: return x < 0 ? 0 : x;
        case FL_CUDA_GELU: return row_gelu_erf(x);
        case FL_CUDA_GELU_TANH: return row_gelu_tanh(x);
        case FL_CUDA_NONE: break;
        }
    return x;
}

/* One operand of one product: element (i, p) of A, (j, p) of B, at i * row + p * depth. */
struct side {
    int64_t rows, row, depth;
};

template<typename T, typename W>
__device__ static inline void read_tile(W (&value)[LOADS], const T *data, const side &side, int64_t first, int64_t p,
                                        int64_t k)
{
    bool along_depth = side.depth == 1;
#pragma unroll
    for (int l = 0; l < LOADS; l++) {
        int at = l * THREADS + (int)threadIdx.x;
        int64_t i = first + (along_depth ? at / DEPTH : at % TILE), q = p + (along_depth ? at % DEPTH : at / TILE);
        value[l] = i < side.rows && q < k ? (W)fl_load(data[i * side.row + q * side.depth]) : (W)0;
    }
}

template<typename W>
__device__ static inline void keep_tile(W (*tile)[PITCH], const W (&value)[LOADS], bool along_depth)
{
#pragma unroll
    for (int l = 0; l < LOADS; l++) {
        int at = l * THREADS + (int)threadIdx.x;
        if (along_depth) tile[at % DEPTH][at / DEPTH] = value[l];
        else tile[at / TILE][at % TILE] = value[l];
    }
}

template<typename W>
__device__ static inline void multiply_tile(W (&sum)[EACH][EACH], W (*a)[PITCH], W (*b)[PITCH], int y, int x)
{
#pragma unroll
    for (int p = 0; p < DEPTH; p++) {
        W u[EACH], v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u[i] = a[p][y * EACH + i];
            v[i] = b[p][x * EACH + i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i][j] += u[i] * v[j];
    }
}

/* First elements of the matrices of a batch. */
template<typename T>
__device__ static inline void locate(const T **a, const T **b, const fl_cuda_gemm &gemm, int64_t index)
{
    int64_t x = 0, y = 0;
    for (int i = gemm.batch - 1; i >= 0; i--) {
        int64_t at = index % gemm.size[i];
        index /= gemm.size[i];
        x += at * gemm.a_step[i];
        y += at * gemm.b_step[i];
    }
    *a = (const T *)gemm.a + x;
    *b = (const T *)gemm.b + y;
}

/* c, before: of this product. */
template<typename T, typename W>
__device__ static inline void store_tile(T *c, T *before, const fl_cuda_gemm &gemm, const W (&sum)[EACH][EACH],
                                         int64_t row, int64_t col)
{
    typedef typename fl_wide<T>::type wide;
    const T *bias = (const T *)gemm.bias;
    for (int i = 0; i < EACH && row + i < gemm.m; i++)
        for (int j = 0; j < EACH && col + j < gemm.n; j++) {
            W value = sum[i][j];
            int64_t at = (row + i) * gemm.n + col + j;
            if (bias) value += (W)fl_load(bias[col + j]);
            if (before) before[at] = fl_store<T>((wide)value);
            c[at] = fl_store<T>((wide)activated(value, gemm.activation));
        }
}

/* Blocks of a multiprocessor: sums of 8 bytes do not fit into the registers that two leave to each other. */
template<typename T>
struct resident {
    enum { BLOCKS = sizeof(typename gemm_wide<T>::type) == 8 ? 1 : 2 };
};

template<typename T>
__global__ void __launch_bounds__(THREADS, resident<T>::BLOCKS)
    tiles(const __grid_constant__ fl_cuda_gemm g, int64_t across, int64_t products)
{
    typedef typename gemm_wide<T>::type W;
    __shared__ W a_tile[DEPTH][PITCH], b_tile[DEPTH][PITCH];
    int64_t row = (int64_t)blockIdx.x / across * TILE, col = (int64_t)blockIdx.x % across * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    side a_side = {g.m, g.a_row, g.a_col}, b_side = {g.n, g.b_col, g.b_row};
    for (int64_t index = blockIdx.y; index < products; index += gridDim.y) {
        const T *a, *b;
        W sum[EACH][EACH] = {}, u[LOADS], v[LOADS];
        locate(&a, &b, g, index);
        read_tile(u, a, a_side, row, 0, g.k);
        read_tile(v, b, b_side, col, 0, g.k);
        for (int64_t p = 0; p < g.k; p += DEPTH) {
            __syncthreads(); /* the tiles before have been read */
            keep_tile(a_tile, u, a_side.depth == 1);
            keep_tile(b_tile, v, b_side.depth == 1);
            __syncthreads();
            if (p + DEPTH < g.k) {
                read_tile(u, a, a_side, row, p + DEPTH, g.k);
                read_tile(v, b, b_side, col, p + DEPTH, g.k);
            }
            multiply_tile(sum, a_tile, b_tile, y, x);
        }
        int64_t first = index * g.m * g.n;
        store_tile((T *)g.c + first, g.before ? (T *)g.before + first : NULL, g, sum, row + y * EACH, col + x * EACH);
    }
}

static int64_t product_count(const fl_cuda_gemm *gemm)
{
    int64_t products = 1;
    for (int i = 0; i < gemm->batch; i++) products *= gemm->size[i];
    return products;
}

fl_status fl_cuda_gemm_own(const fl_cuda_gemm *gemm)
{
    int64_t across = (gemm->n + TILE - 1) / TILE, down = (gemm->m + TILE - 1) / TILE, products = product_count(gemm);
    dim3 grid((unsigned)(across * down), (unsigned)(products < 65535 ? products : 65535));
    return fl_cuda_by_dtype(gemm->dtype, [&](auto like) {
        FL_LAUNCH((tiles<decltype(like)>), grid, THREADS, 0, *gemm, across, products);
        return fl_cuda_check("matmul");
    });
}

/* ---- an activation on its own ---- */

/* G elements at once; G divides n. */
template<typename T, int G>
__global__ void __launch_bounds__(THREADS) activate(T *out, const T *in, int64_t n, fl_cuda_activation by)
{
    typedef fl_pack<T, G> pack;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n / G; i += (int64_t)gridDim.x * THREADS) {
        pack x = ((const pack *)in)[i];
#pragma unroll
        for (int j = 0; j < G; j++) x.at[j] = fl_store<T>(activated(fl_load(x.at[j]), by));
        ((pack *)out)[i] = x;
    }
}

template<typename T, int G>
static void launch_activate(const fl_cuda_gemm *gemm, const char *from, int64_t n)
{
    int64_t blocks = (n / G + THREADS - 1) / THREADS, most = 16 * (int64_t)fl_cuda_current()->processors;
    FL_LAUNCH((activate<T, G>), dim3((unsigned)(blocks < most ? blocks : most)), THREADS, 0, (T *)gemm->c,
              (const T *)from, n, gemm->activation);
}

fl_status fl_cuda_gemm_activate(const fl_cuda_gemm *gemm, const char *from)
{
    int64_t n = gemm->m * gemm->n * product_count(gemm);
    return fl_cuda_by_float(gemm->dtype, [&](auto like) {
        typedef decltype(like) T;
        enum { G = 16 / sizeof(T) };
        bool packs = n % G == 0 && ((uintptr_t)gemm->c | (uintptr_t)from) % 16 == 0;
        if (packs) launch_activate<T, G>(gemm, from, n);
        else launch_activate<T, 1>(gemm, from, n);
        return fl_cuda_check("matmul");
    });
}
