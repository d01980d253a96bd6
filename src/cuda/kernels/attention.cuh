/*
** attention.cuh -- what the kernels of attention are made of: heads, masks, tiles in shared memory and their products.
**
** A block of four warps has rows of one side (queries, or keys) and walks over tiles of columns of the other side. A
** lane owns the same elements of a tile of scores in every type, those of an mma fragment: lane = 4 * g + t has rows g
** and g + 8 of each 16 of its warp and columns 8 j + 2 t, 8 j + 2 t + 1. float16 and bfloat16 are multiplied by tensor
** cores, float32 and float64 by plain arithmetic from shared memory.
**
** Rows wider than a tile are cut into chunks: scores are summed over all chunks, and each chunk of a result is a block
** of its own that makes the scores again.
*/
#ifndef FL_ATTENTION_CUH
#define FL_ATTENTION_CUH

#include "attention.h"
#include "cuda/parts/block.cuh"
#include "cuda/parts/mma.cuh"
#include "cuda/parts/philox.h"

/* ---- plans ---- */

/* TILES: times 16 rows per warp. STAGES: number of tiles of columns in shared memory. */
template<typename T_, int WIDTH_, int TILES_, int COLS_, int STAGES_>
struct plan {
    typedef T_ T;
    typedef typename fl_wide<T>::type W;
    enum {
        WIDTH = WIDTH_,
        TILES = TILES_,
        COLS = COLS_,
        STAGES = STAGES_,
        THREADS = 128,
        ROWS = 64 * TILES,
        UNIT = 16 / sizeof(T),
        PITCH = WIDTH + UNIT,
        HALVES = sizeof(T) == 2,
        P_PITCH = COLS + UNIT,
        P_SIZE = HALVES ? 0 : ROWS * P_PITCH
    };
};

/* ---- heads ---- */

/* One head: its first elements. */
template<typename P>
struct head {
    typedef typename P::T T;
    const T *q, *k, *v, *g;
    const void *mask;
    int64_t local, logical; /* position among this part's heads, among all */
    uint64_t seed, counter;
};

template<typename P>
__device__ static inline void head_at(head<P> *h, const attention &a, int64_t local)
{
    int64_t rest = local, factor = 1, q = 0, k = 0, v = 0, g = 0, mask = 0, logical = 0;
    for (int i = a.batch - 1; i >= 0; i--) {
        int64_t at = rest % a.size[i];
        rest /= a.size[i];
        logical += (a.start[i] + at) * factor;
        factor *= a.logical[i];
        q += at * a.q.stride[i];
        k += at * a.k.stride[i];
        v += at * a.v.stride[i];
        g += at * a.g.stride[i];
        mask += at * a.mask.stride[i];
    }
    typedef typename P::T T;
    size_t item = a.masked == MASK_BOOL ? 1 : a.masked == MASK_OWN ? sizeof(T) : sizeof(typename P::W);
    h->q = (const T *)a.q.data + q;
    h->k = (const T *)a.k.data + k;
    h->v = (const T *)a.v.data + v;
    h->g = (const T *)a.g.data + g;
    h->mask = a.mask.data + mask * (int64_t)item;
    h->local = local;
    h->logical = logical;
    h->seed = a.threshold ? (uint64_t)a.key[0] : 0;
    h->counter = a.threshold ? (uint64_t)a.key[1] : 0;
}

/* ---- masks ---- */

/* A scaled score with the mask: -inf where the key takes no part. */
template<typename P>
__device__ static inline typename P::W seen_score(const attention &a, const head<P> &h, typename P::W s, int64_t query,
                                                  int64_t key)
{
    typedef typename P::W W;
    if (query >= a.queries || key >= a.keys || (a.causal && key > a.first_query + query)) return -(W)INFINITY;
    int64_t at = query * a.mask.row + key * a.mask_col;
    switch (a.masked) {
    case MASK_BOOL: return ((const uint8_t *)h.mask)[at] ? s : -(W)INFINITY;
    case MASK_OWN: return s + (W)fl_load(((const typename P::T *)h.mask)[at]);
    case MASK_WIDE: return s + ((const W *)h.mask)[at];
    default: return s;
    }
}

/* The words of one place of the random sequence after the other. */
struct dropout_words {
    uint64_t block;
    uint32_t words[4];
};

__device__ static inline bool is_kept(dropout_words *d, const attention &a, uint64_t seed, uint64_t counter,
                                      int64_t head, int64_t query, int64_t key)
{
    uint64_t place = (uint64_t)((head * a.logical_queries + a.first_query + query) * a.keys + key);
    if (d->block != place / 4) {
        d->block = place / 4;
        fl_philox_block(d->words, seed, counter, d->block);
    }
    uint32_t low = place & 1 ? d->words[1] : d->words[0], high = place & 1 ? d->words[3] : d->words[2];
    return (place & 2 ? high : low) >> 8 >= a.threshold;
}

/* ---- tiles ---- */

/* One operand of a head. */
template<typename P>
struct side {
    const typename P::T *data;
    const rows *layout;
    int64_t limit, width; /* rows, columns */
};

/* COUNT rows from `first`, a tile's width of columns from `column`; zeros beyond the operand. */
template<typename P, int COUNT>
__device__ static inline void load_tile(typename P::T *tile, const side<P> &s, int64_t first, int64_t column)
{
    enum { ACROSS = P::WIDTH / P::UNIT };
    for (int i = (int)threadIdx.x; i < COUNT * ACROSS; i += P::THREADS) {
        int row = i / ACROSS, col = i % ACROSS * P::UNIT;
        int64_t left = first + row < s.limit ? s.width - column - col : 0;
        const typename P::T *from = s.data + (first + row) * s.layout->row + column + col;
        typename P::T *to = tile + row * P::PITCH + col;
        if (s.layout->vectors) {
            fl_copy16(to, left > 0 ? from : s.data, left > 0);
            continue;
        }
        for (int e = 0; e < P::UNIT; e++) to[e] = e < left ? from[e] : fl_store<typename P::T>((typename P::W)0);
    }
}

/* Elements of tiles that a lane owns. */
template<typename P>
struct scores {
    typename P::W at[P::TILES][P::COLS / 8][4];
};
template<typename P>
struct sums {
    typename P::W at[P::TILES][P::WIDTH / 8][4];
};

template<typename W, int A, int B>
__device__ static inline void clear(W (&x)[A][B][4])
{
#pragma unroll
    for (int i = 0; i < A; i++)
#pragma unroll
        for (int j = 0; j < B; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) x[i][j][e] = 0;
}

/* Row and column of element e in its tile. */
template<typename P>
__device__ static inline int owned_row(int tile, int e)
{
    return ((int)threadIdx.x / 32 * P::TILES + tile) * 16 + (int)threadIdx.x % 32 / 4 + 8 * (e / 2);
}
__device__ static inline int owned_col(int j, int e) { return 8 * j + 2 * ((int)threadIdx.x % 4) + e % 2; }

/* ---- s += x z^T: rows of x, columns are rows of z ---- */

template<typename P>
__device__ static inline void multiply_transposed_halves(scores<P> &s, const typename P::T *x, const typename P::T *z)
{
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * P::TILES * 16 + lane % 16,
        col = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < P::WIDTH; k += 16) {
        uint32_t a[P::TILES][4], b[4];
#pragma unroll
        for (int i = 0; i < P::TILES; i++)
            fl_matrices_load<false>(a[i], x + (row + 16 * i) * P::PITCH + k + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j += 2) {
            fl_matrices_load<false>(b, z + (8 * j + col) * P::PITCH + k + lane / 8 % 2 * 8);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<typename P::T>(s.at[i][j], a[i], b[0], b[1]);
                fl_mma<typename P::T>(s.at[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

template<typename P>
__device__ static inline void multiply_transposed_plain(scores<P> &s, const typename P::T *x, const typename P::T *z)
{
    typedef fl_pack<typename P::T, P::UNIT> pack;
#pragma unroll 1
    for (int k = 0; k < P::WIDTH; k += P::UNIT) {
        pack a[P::TILES][2];
#pragma unroll
        for (int i = 0; i < 2 * P::TILES; i++)
            a[i / 2][i % 2] = *(const pack *)(x + owned_row<P>(i / 2, 2 * (i % 2)) * P::PITCH + k);
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                pack b = *(const pack *)(z + owned_col(j, c) * P::PITCH + k);
#pragma unroll
                for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
                    for (int u = 0; u < P::UNIT; u++)
                        s.at[i / 2][j][2 * (i % 2) + c] += a[i / 2][i % 2].at[u] * b.at[u];
            }
    }
}

template<typename P>
__device__ static inline void multiply_transposed(scores<P> &s, const typename P::T *x, const typename P::T *z)
{
    if constexpr (P::HALVES) multiply_transposed_halves<P>(s, x, z);
    else multiply_transposed_plain<P>(s, x, z);
}

/* s = x z^T over all columns. x_tile and z_tile hold what they shall, unless there are chunks: these are brought
** here. */
template<typename P>
__device__ static inline void sum_scores(scores<P> &s, bool wide, typename P::T *x_tile, const side<P> &x,
                                         int64_t x_first, typename P::T *z_tile, const side<P> &z, int64_t z_first)
{
    int64_t column = 0;
    clear(s.at);
#pragma unroll 1
    do {
        if (wide) {
            __syncthreads(); /* the tiles before have been read */
            load_tile<P, P::ROWS>(x_tile, x, x_first, column);
            load_tile<P, P::COLS>(z_tile, z, z_first, column);
            fl_copy_commit();
            fl_copy_wait<0>();
            __syncthreads();
        }
        multiply_transposed<P>(s, x_tile, z_tile);
        column += P::WIDTH;
    } while (wide && column < x.width);
}

/* ---- o += p u: rows of p, which the lanes own ---- */

template<typename P>
__device__ static inline void multiply_halves(sums<P> &o, const scores<P> &p, const typename P::T *u)
{
    typedef typename P::T T;
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < P::COLS; k += 16) {
        uint32_t a[P::TILES][4], b[4];
#pragma unroll
        for (int i = 0; i < P::TILES; i++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                a[i][w] = fl_pair<T>(p.at[i][k / 8 + w / 2][2 * (w % 2)], p.at[i][k / 8 + w / 2][2 * (w % 2) + 1]);
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j += 2) {
            fl_matrices_load<true>(b, u + (k + lane % 16) * P::PITCH + 8 * j + lane / 16 * 8);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<T>(o.at[i][j], a[i], b[0], b[1]);
                fl_mma<T>(o.at[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* By way of shared memory, where a warp reads its rows of p. */
template<typename P>
__device__ static inline void multiply_plain(sums<P> &o, const scores<P> &p, const typename P::T *u,
                                             typename P::W *shared_p)
{
    typedef fl_pack<typename P::T, 2> two;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++) {
            two pair = {{p.at[i / 2][j][2 * (i % 2)], p.at[i / 2][j][2 * (i % 2) + 1]}};
            *(two *)(shared_p + owned_row<P>(i / 2, 2 * (i % 2)) * P::P_PITCH + owned_col(j, 0)) = pair;
        }
    __syncwarp();
#pragma unroll 2
    for (int k = 0; k < P::COLS; k++) {
        typename P::W a[2 * P::TILES];
#pragma unroll
        for (int i = 0; i < 2 * P::TILES; i++) a[i] = shared_p[owned_row<P>(i / 2, 2 * (i % 2)) * P::P_PITCH + k];
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++) {
            two b = *(const two *)(u + k * P::PITCH + owned_col(j, 0));
#pragma unroll
            for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
                for (int c = 0; c < 2; c++) o.at[i / 2][j][2 * (i % 2) + c] += a[i] * b.at[c];
        }
    }
}

/* shared_p: room for P_SIZE elements. */
template<typename P>
__device__ static inline void multiply(sums<P> &o, const scores<P> &p, const typename P::T *u, typename P::W *shared_p)
{
    if constexpr (P::HALVES) multiply_halves<P>(o, p, u);
    else multiply_plain<P>(o, p, u, shared_p);
}

/* ---- the other side, tile after tile ---- */

template<typename P>
struct columns {
    side<P> z, u;
    int64_t end, chunk; /* rows of z and u up to `end`; first column of this block's results */
    typename P::T *z_tiles, *u_tiles;
};

template<typename P>
__device__ static inline void fetch(const columns<P> &c, int64_t first, int stage)
{
    if (first < c.end) {
        load_tile<P, P::COLS>(c.z_tiles + stage * P::COLS * P::PITCH, c.z, first, c.chunk);
        load_tile<P, P::COLS>(c.u_tiles + stage * P::COLS * P::PITCH, c.u, first, c.chunk);
    }
    fl_copy_commit();
}

/* Before the loop, when the tiles of this block's own rows are on their way. */
template<typename P>
__device__ static inline void fetch_first(const columns<P> &c, int64_t first, bool wide)
{
    if (!wide && P::STAGES > 1) fetch<P>(c, first, 0);
}

/* Waits for tile number n, which begins at row `first`, and requests the one after it. Returns its stage. */
template<typename P>
__device__ static inline int fetch_next(const columns<P> &c, int64_t first, int n, bool wide)
{
    if (wide) return 0;
    fetch<P>(c, first + (P::STAGES - 1) * P::COLS, (n + P::STAGES - 1) % P::STAGES);
    fl_copy_wait<P::STAGES - 1>();
    __syncthreads();
    return n % P::STAGES;
}

/* With chunks: the tiles that results are made from. */
template<typename P>
__device__ static inline void fetch_chunk(const columns<P> &c, int64_t first, bool wide)
{
    if (!wide) return;
    __syncthreads();
    fetch<P>(c, first, 0);
    fl_copy_wait<0>();
    __syncthreads();
}

/* ---- results ---- */

/* Keys that are masked for every query have no gradient, not even of a query that is NaN. */
template<typename P>
__device__ static inline void clear_unseen(sums<P> &o, const attention &a, int64_t row)
{
#pragma unroll
    for (int j = 0; j < P::WIDTH / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (row + owned_row<P>(0, e) >= a.seen_keys) o.at[0][j][e] = 0;
}

/* Two neighbours, halves in one store: as a pack they would be stored one by one, for the compiler merges them with the
** stores of single elements at the edge. */
template<typename T>
__device__ static inline void store_two(T *to, const fl_pack<T, 2> &two)
{
    if constexpr (sizeof two == sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, &two, sizeof word);
        *(uint32_t *)to = word;
    } else *(fl_pack<T, 2> *)to = two;
}

/* The rows from `first` of a result [rows, width], in this chunk of it. */
template<typename P, typename F>
__device__ static inline void store_rows(typename P::T *out, const sums<P> &o, int64_t first, int64_t limit,
                                         int64_t column, int64_t width, const F &factor)
{
    typedef typename P::T T;
    typedef fl_pack<T, 2> two;
    bool pairs = width % 2 == 0 && fl_is_aligned<T, 2>(out);
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        int64_t row = first + owned_row<P>(i / 2, 2 * (i % 2));
        if (row >= limit) continue;
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++) {
            int64_t col = column + owned_col(j, 0);
            two value = {{fl_store<T>(o.at[i / 2][j][2 * (i % 2)] * factor(i)),
                          fl_store<T>(o.at[i / 2][j][2 * (i % 2) + 1] * factor(i))}};
            T *to = out + row * width + col;
            if (col + 1 < width && pairs) store_two(to, value);
            else
                for (int c = 0; c < 2 && col + c < width; c++) to[c] = value.at[c];
        }
    }
}

#endif
