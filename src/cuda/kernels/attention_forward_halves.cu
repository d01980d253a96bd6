/*
** attention_forward_halves.cu -- attention of float16 and bfloat16 where there is neither a mask of the caller's nor
** dropout: FlashAttention-2's forward pass (Dao 2023) by mma.m16n8k16.
**
** A block of four warps has 64 or 128 queries of a head and walks over tiles of 64 keys while the next tile is copied
** to shared memory; one barrier per tile. Scores and weights stay in registers: the fragments of C that hold scores of
** 16 keys are, as halves, the fragment of A that multiplies their values. A lane = 4 g + t owns rows g and g + 8 of
** each 16 of its warp.
**
** Rows in shared memory have no padding. Their units of 16 bytes change places within 64 or 128 bytes, by row, so that
** the eight rows of a matrix that ldmatrix reads lie in different banks.
*/
#include "attention.h"
#include "cuda/parts/mma.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, KEYS = 64, UNIT = 8 }; /* UNIT: halves in 16 bytes */

/* TILES: times 16 queries per warp. BLOCKS: number that share a multiprocessor. */
template<typename T_, int WIDTH_, int TILES_>
struct shape {
    typedef T_ T;
    enum {
        WIDTH = WIDTH_,
        TILES = TILES_,
        OWN = 16 * TILES,
        ROWS = WARPS * OWN,
        TURNED = WIDTH % 64 ? 4 : 8, /* units that change places with each other */
        BLOCKS = (TILES == 1 ? 3 : 2) + (WIDTH <= 64)
    };
};

__device__ static inline int lane_of(void) { return (int)threadIdx.x % 32; }
__device__ static inline int warp_of(void) { return (int)threadIdx.x / 32; }

/* ---- tiles in shared memory ---- */

template<typename P>
__device__ static inline int turn_of(int row)
{
    return P::TURNED == 8 ? row % 8 : row / 2 % 4;
}

/* Place of a row's unit in a tile. */
template<typename P>
__device__ static inline int unit_at(int row, int unit)
{
    return row * P::WIDTH + (unit ^ turn_of<P>(row)) * UNIT;
}

/* The place of unit 2 k + half, from that of unit `half` (0 or 1) of the same row. k is a constant of the compiler, and
** most places differ by a constant. */
template<typename P>
__device__ static inline int step_at(int base, int k)
{
    enum { STEPS = P::TURNED / 2 };
    return (base ^ (k % STEPS * 2 * UNIT)) + k / STEPS * P::TURNED * UNIT;
}

/* Rows of an operand, as a thread copies them: its unit of every STEP-th row. */
template<typename P>
struct source {
    const typename P::T *from; /* the thread's unit of its first row in the next tile */
    int64_t stride;
    int width, left; /* elements of a row; rows from the next tile's first on */
};

template<typename P>
__device__ static inline source<P> source_of(const rows &r, int64_t start, int64_t width, int64_t first, int64_t limit)
{
    int64_t row = first + (int)threadIdx.x / P::TURNED, column = (int)threadIdx.x % P::TURNED * UNIT;
    return {(const typename P::T *)r.data + start + row * r.row + column, r.row, (int)width, (int)(limit - first)};
}

/* The next COUNT rows, on their way to a tile: zeros beyond the operand, which is not read there. */
template<typename P, int COUNT>
__device__ static inline void fetch(typename P::T *tile, source<P> &s)
{
    enum { STEP = THREADS / P::TURNED };
    int row = (int)threadIdx.x / P::TURNED, unit = (int)threadIdx.x % P::TURNED;
    typename P::T *to = tile + unit_at<P>(row, unit);
#pragma unroll
    for (int c = 0; c < P::WIDTH; c += P::TURNED * UNIT) {
        int left = c + unit * UNIT < s.width ? s.left - row : 0;
#pragma unroll
        for (int r = 0; r < COUNT; r += STEP) fl_copy16(to + r * P::WIDTH + c, s.from + r * s.stride + c, r < left);
    }
    s.from += COUNT * s.stride;
    s.left -= COUNT;
}

/* ---- a head ---- */

/* The offsets of a head in q, k and v. */
struct head {
    int64_t q, k, v;
};

__device__ static inline head head_at(const attention &a, unsigned number)
{
    head h = {0, 0, 0};
    for (int i = a.batch - 1; i >= 0; i--) {
        unsigned size = (unsigned)a.size[i], at = number % size;
        number /= size;
        h.q += at * a.q.stride[i];
        h.k += at * a.k.stride[i];
        h.v += at * a.v.stride[i];
    }
    return h;
}

/* The number of keys that a query sees. */
__device__ static inline int seen_by(const attention &a, int query)
{
    int keys = (int)a.seen_keys;
    return a.causal ? min(keys, (int)a.first_query + query + 1) : keys;
}

/* ---- scores of a warp's queries and a tile of keys ---- */

template<typename P>
struct scores {
    float at[P::TILES][KEYS / 8][4];
};

/* The sums of a warp: values times weights, and by row of a lane the largest score and the weights of the lane's
** own columns. Weights are relative to the largest score. */
template<typename P>
struct sums {
    float at[P::TILES][P::WIDTH / 8][4];
    float top[2 * P::TILES], weight[2 * P::TILES];
};

/* s = q k^T with the keys of the tile at `at`. It is added before units change places, or each of their places would
** keep a register all the time. */
template<typename P>
__device__ static inline void multiply_keys(scores<P> &s, const typename P::T *q_tile, const typename P::T *k_tiles,
                                            int at)
{
    int lane = lane_of(), q_base = unit_at<P>(warp_of() * P::OWN + lane % 16, lane / 16),
        k_base = at + unit_at<P>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.at[i][j][e] = 0;
#pragma unroll
    for (int k = 0; k < P::WIDTH / 16; k++) {
        uint32_t a[P::TILES][4], b[4];
#pragma unroll
        for (int i = 0; i < P::TILES; i++)
            fl_matrices_load<false>(a[i], q_tile + step_at<P>(q_base, k) + 16 * i * P::WIDTH);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j += 2) {
            fl_matrices_load<false>(b, k_tiles + step_at<P>(k_base, k) + 8 * j * P::WIDTH);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<typename P::T>(s.at[i][j], a[i], b[0], b[1]);
                fl_mma<typename P::T>(s.at[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* Takes out what a query doesn't see. query: the warp's first one. */
template<typename P>
__device__ static inline void hide_unseen(scores<P> &s, const attention &a, int query, int key)
{
    int lane = lane_of();
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        int limit = seen_by(a, query + 8 * i + lane / 4) - key - 2 * (lane % 4);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (8 * j + c >= limit) s.at[i / 2][j][2 * (i % 2) + c] = -INFINITY;
    }
}

/* Raises the tops to those of the tile. A weight will be 2^(scale s - shift). */
template<typename P>
__device__ static inline void raise(float (&shift)[2 * P::TILES], scores<P> &s, sums<P> &o, float scale)
{
    float base[2 * P::TILES];
    bool far = false;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        float top = o.top[i];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            top = fmaxf(top, fmaxf(s.at[i / 2][j][2 * (i % 2)], s.at[i / 2][j][2 * (i % 2) + 1]));
        for (int bits = 1; bits < 4; bits *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, bits));
        base[i] = top == -INFINITY ? 0.0f : top; /* no key so far: all weights are 0 */
        float shrink = fl_two_to((o.top[i] - base[i]) * scale);
        o.top[i] = top;
        o.weight[i] *= shrink;
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) o.at[i / 2][j][2 * (i % 2) + c] *= shrink;
        shift[i] = base[i] * scale;
        far |= fabsf(shift[i]) > 4096.0f;
    }
    /* The rounding of so large a shift would be seen in the weights: scores are shifted before they are scaled. */
    if (!__any_sync(0xffffffffu, far)) return;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        shift[i] = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) s.at[i / 2][j][2 * (i % 2) + c] -= base[i];
    }
}

/* The weights of 16 keys as a fragment of A; sums them too. */
template<typename P>
__device__ static inline void weigh(uint32_t (&a)[P::TILES][4], const scores<P> &s, sums<P> &o,
                                    const float (&shift)[2 * P::TILES], float scale, int k)
{
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float *pair = &s.at[i][2 * k + w / 2][2 * (w % 2)];
            int row = 2 * i + w % 2;
            float x = fl_two_to(fmaf(pair[0], scale, -shift[row])), y = fl_two_to(fmaf(pair[1], scale, -shift[row]));
            o.weight[row] += x + y;
            a[i][w] = fl_pair<typename P::T>(x, y);
        }
}

/* o += weights v. Weights are made 16 keys at a time, while the tensor cores multiply the ones before. */
template<typename P>
__device__ static inline void multiply_values(sums<P> &o, const scores<P> &s, const float (&shift)[2 * P::TILES],
                                              float scale, const typename P::T *v_tiles, int at)
{
    int lane = lane_of(), base = at + unit_at<P>(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t a[P::TILES][4], b[4];
        weigh<P>(a, s, o, shift, scale, k);
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j += 2) {
            fl_matrices_load<true>(b, v_tiles + step_at<P>(base, j / 2) + 16 * k * P::WIDTH);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<typename P::T>(o.at[i][j], a[i], b[0], b[1]);
                fl_mma<typename P::T>(o.at[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* ---- results ---- */

/* Divides by the sums of weights and stores log-sum-exp. A row without keys gives zeros, and its weights in backward
** are zeros too: e^(s - inf). */
template<typename P>
__device__ static inline void divide(sums<P> &o, const attention &a, int64_t head, int query)
{
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        float sum = o.weight[i];
        for (int bits = 1; bits < 4; bits *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
        bool blind = !(sum != 0);
        float factor = blind ? 0.0f : 1 / sum;
        int row = query + 8 * i + lane_of() / 4;
        if (lane_of() % 4 == 0 && row < a.queries)
            ((float *)a.lse)[head * a.queries + row] = blind ? INFINITY : o.top[i] * (float)a.scale + logf(sum);
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) o.at[i / 2][j][2 * (i % 2) + c] *= factor;
    }
}

/* Stores a warp's rows by way of `own`, its rows of the tile of queries, so that whole units are written. */
template<typename P>
__device__ static inline void store_rows(typename P::T *out, typename P::T *own, const sums<P> &o, int width, int left)
{
    enum { STEP = 32 / P::TURNED };
    int lane = lane_of(), row = lane / P::TURNED, unit = lane % P::TURNED;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++) {
            const float *pair = &o.at[i / 2][j][2 * (i % 2)];
            *(uint32_t *)(own + unit_at<P>(8 * i + lane / 4, j) + lane % 4 * 2) = fl_pair<typename P::T>(pair[0],
                                                                                                         pair[1]);
        }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < P::OWN; r += STEP)
#pragma unroll
        for (int c = 0; c < P::WIDTH / UNIT; c += P::TURNED)
            if (row + r < left && (c + unit) * UNIT < width)
                *(uint4 *)(out + (int64_t)(row + r) * width
                           + (c + unit) * UNIT) = *(const uint4 *)(own + unit_at<P>(row + r, c + unit));
}

/* ---- the kernel ---- */

/* The blocks of `group` heads follow each other, the ones with most keys first. */
template<typename P>
__global__ void __launch_bounds__(THREADS, P::BLOCKS)
    forward_halves(const __grid_constant__ attention a, unsigned heads, unsigned group)
{
    typedef typename P::T T;
    enum { TILE = KEYS * P::WIDTH };
    FL_DYNAMIC_SHARED(T, q_tile);
    T *k_tiles = q_tile + P::ROWS * P::WIDTH, *v_tiles = k_tiles + 2 * TILE;
    unsigned tiles = (unsigned)a.tiles, first = blockIdx.x / (group * tiles) * group, rest = blockIdx.x - first * tiles;
    unsigned together = min(group, heads - first), number = first + rest % together;
    int row = (int)(tiles - 1 - rest / together) * P::ROWS, query = row + warp_of() * P::OWN;
    int end = seen_by(a, row + P::ROWS - 1), own_end = seen_by(a, query + P::OWN - 1), all_see = seen_by(a, query);
    float scale = (float)(a.scale * 1.4426950408889634); /* 1 / log 2 */
    head h = head_at(a, number);
    source<P> q = source_of<P>(a.q, h.q, a.width, row, a.queries), k = source_of<P>(a.k, h.k, a.width, 0, a.seen_keys),
              v = source_of<P>(a.v, h.v, a.value_width, 0, a.seen_keys);
    sums<P> o = {};
    for (int i = 0; i < 2 * P::TILES; i++) o.top[i] = -INFINITY;
    fetch<P, P::ROWS>(q_tile, q);
    fetch<P, KEYS>(k_tiles, k);
    fetch<P, KEYS>(v_tiles, v);
    fl_copy_commit();
    fl_copy_wait<0>();
    __syncthreads();
    for (int key = 0, at = 0; key < end; key += KEYS, at ^= TILE) {
        int next = key + KEYS;
        if (next < end) {
            fetch<P, KEYS>(k_tiles + (at ^ TILE), k);
            fetch<P, KEYS>(v_tiles + (at ^ TILE), v);
        }
        fl_copy_commit();
        if (key < own_end) {
            scores<P> s;
            float shift[2 * P::TILES];
            multiply_keys<P>(s, q_tile, k_tiles, at);
            if (next > all_see) hide_unseen<P>(s, a, query, key);
            raise<P>(shift, s, o, scale);
            multiply_values<P>(o, s, shift, scale, v_tiles, at);
        }
        fl_copy_wait<0>();
        __syncthreads();
    }
    divide<P>(o, a, number, query);
    store_rows<P>((T *)a.out + ((int64_t)number * a.queries + query) * a.value_width,
                  q_tile + warp_of() * P::OWN * P::WIDTH, o, (int)a.value_width, (int)a.queries - query);
}

/* ---- launching ---- */

/* Heads in a group: as many as have their keys and values in the L2 together, if their blocks differ in length. */
static unsigned group_of(const attention *a, int64_t heads)
{
    int64_t bytes = a->seen_keys * (a->width + a->value_width) * 2, most = (32 << 20) / (bytes ? bytes : 1);
    if (!a->causal || most < 1) return 1;
    int64_t groups = (heads + most - 1) / most;
    return (unsigned)((heads + groups - 1) / groups);
}

template<typename P>
static bool launch(attention a, int64_t heads)
{
    size_t bytes = (size_t)(P::ROWS + 4 * KEYS) * P::WIDTH * sizeof(typename P::T);
    if (bytes > fl_cuda_current()->shared_bytes) return false;
    a.tiles = (a.queries + P::ROWS - 1) / P::ROWS;
    if (heads > 0 && a.tiles > 0)
        FL_LAUNCH((forward_halves<P>), (unsigned)(heads * a.tiles), THREADS, bytes, a, (unsigned)heads,
                  group_of(&a, heads));
    return true;
}

/* 128 queries in a block make the most of what is read of the keys; 64 where there would be too few blocks. */
template<typename T, int WIDTH>
static bool launch_wide(const attention *a, int64_t heads)
{
    bool few = heads * ((a->queries + 127) / 128) < fl_cuda_current()->processors;
    return few ? launch<shape<T, WIDTH, 1>>(*a, heads) : launch<shape<T, WIDTH, 2>>(*a, heads);
}

template<typename T>
static bool launch_of(const attention *a, int64_t heads)
{
    int64_t width = a->width > a->value_width ? a->width : a->value_width;
    if (width <= 32) return launch_wide<T, 32>(a, heads);
    if (width <= 64) return launch_wide<T, 64>(a, heads);
    if (width <= 96) return launch_wide<T, 96>(a, heads);
    return launch_wide<T, 128>(a, heads);
}

static bool is_handled(const attention *a)
{
    enum { MOST = 1 << 30 }; /* positions are ints */
    return a->masked == MASK_NONE && !a->threshold && a->q.vectors && a->k.vectors && a->v.vectors
        && (uintptr_t)a->out % 16 == 0 && a->width > 0 && a->width <= 128 && a->value_width > 0 && a->value_width <= 128
        && a->keys < MOST && a->first_query + a->queries < MOST && a->scale >= 1e-30 && a->scale <= 1e30;
}

bool fl_cuda_attention_forward_halves(fl_dtype dtype, const attention *a, int64_t heads)
{
    if (!is_handled(a)) return false;
    if (dtype == FL_FLOAT16) return launch_of<__half>(a, heads);
    if (dtype == FL_BFLOAT16) return launch_of<__nv_bfloat16>(a, heads);
    return false;
}
