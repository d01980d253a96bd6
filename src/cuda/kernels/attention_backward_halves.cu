/*
** attention_backward_halves.cu -- gradients of attention of float16 and bfloat16 where there is neither a mask of the
** caller's nor dropout: what training does most of the time.
**
** Two kernels, as in attention_backward.cu: one sums dq over the keys, the other dk and dv over the queries, in an
** order that does not depend on the schedule. A warp keeps its rows of both operands in registers: what it reads
** of shared memory is B of mma.m16n8k16 alone. It goes over the other side in chunks of 16 columns; those that the
** diagonal cuts are checked element by element, those beyond it are left out. Sums and rows take most registers of a
** thread: a change here is followed by a look at ptxas's report.
*/
#include "attention.h"
#include "attention.cuh"

#include <limits.h>

/* ROWS of this block; tiles of COLS columns, two of them in shared memory. */
template<typename T_, int WIDTH_>
struct half_plan {
    typedef T_ T;
    typedef float W;
    enum {
        WIDTH = WIDTH_,
        TILES = WIDTH <= 64 ? 2 : 1,
        RUN = 16 * TILES, /* rows of a warp */
        ROWS = 128,
        THREADS = ROWS / RUN * 32,
        COLS = 64,
        CHUNK = 16,
        UNIT = 8,
        PITCH = WIDTH + UNIT
    };
};

/* ---- heads ---- */

/* The operands of one head. */
template<typename P>
struct half_head {
    const typename P::T *q, *k, *v, *g;
};

/* head_at of what is needed here: there are fewer than 2^31 heads. */
template<typename P>
__device__ static inline half_head<P> half_head_at(const attention &a, unsigned local)
{
    typedef typename P::T T;
    half_head<P> h = {(const T *)a.q.data, (const T *)a.k.data, (const T *)a.v.data, (const T *)a.g.data};
    for (int i = a.batch - 1; i >= 0; i--) {
        unsigned size = (unsigned)a.size[i], at = local % size;
        local /= size;
        h.q += at * a.q.stride[i];
        h.k += at * a.k.stride[i];
        h.v += at * a.v.stride[i];
        h.g += at * a.g.stride[i];
    }
    return h;
}

/* ---- tiles ---- */

/* A thread's share of the copy of one operand of a head: 16 bytes of every EVERY-th row. */
template<typename P>
struct copier {
    typedef typename P::T T;
    enum { ACROSS = P::WIDTH / P::UNIT, EVERY = P::THREADS / ACROSS };
    const T *from;
    int stride, limit; /* elements from row to row; rows */
};

template<typename P>
__device__ static inline copier<P> copier_of(const typename P::T *data, const rows &layout, int64_t limit,
                                             int64_t width)
{
    int col = (int)threadIdx.x % copier<P>::ACROSS * P::UNIT;
    bool inside = col < (int)width;
    return {data + (inside ? col : 0), (int)layout.row, inside ? (int)limit : 0};
}

/* COUNT rows from `first`; zeros beyond the operand. */
template<typename P, int COUNT>
__device__ static inline void copy_rows(typename P::T *tile, const copier<P> &c, int first)
{
    typedef copier<P> C;
    static_assert(COUNT % C::EVERY == 0, "every thread copies as many rows");
    int at = (int)threadIdx.x / C::ACROSS, col = (int)threadIdx.x % C::ACROSS * P::UNIT;
    const typename P::T *from = c.from + (int64_t)(first + at) * c.stride;
    typename P::T *to = tile + at * P::PITCH + col;
#pragma unroll
    for (int n = 0; n < COUNT; n += C::EVERY, from += (int64_t)C::EVERY * c.stride) {
        bool exists = first + at + n < c.limit;
        fl_copy16(to + n * P::PITCH, exists ? from : c.from, exists);
    }
}

/* ---- products ---- */

/* A warp's rows of an operand, as A. */
template<typename P>
struct fragments {
    uint32_t at[P::TILES][P::WIDTH / 16][4];
};

/* Scores of a warp's rows and a chunk of columns, as C; the same packed, as A. */
template<typename P>
struct chunk {
    float at[P::TILES][P::CHUNK / 8][4];
};
template<typename P>
struct packed {
    uint32_t at[P::TILES][P::CHUNK / 16][4];
};

template<typename P>
__device__ static inline void load_fragments(fragments<P> &x, const typename P::T *tile)
{
    int lane = (int)threadIdx.x % 32;
    const typename P::T *from = tile + ((int)threadIdx.x / 32 * P::RUN + lane % 16) * P::PITCH + lane / 16 * 8;
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int k = 0; k < P::WIDTH / 16; k++) fl_matrices_load<false>(x.at[i][k], from + 16 * i * P::PITCH + 16 * k);
}

/* s = x z^T with a chunk of rows of z */
template<typename P>
__device__ static inline void multiply_rows(chunk<P> &s, const fragments<P> &x, const typename P::T *z)
{
    int lane = (int)threadIdx.x % 32;
    const typename P::T *from = z + (lane / 16 * 8 + lane % 8) * P::PITCH + lane / 8 % 2 * 8;
    clear(s.at);
#pragma unroll
    for (int k = 0; k < P::WIDTH / 16; k++)
#pragma unroll
        for (int j = 0; j < P::CHUNK / 8; j += 2) {
            uint32_t b[4];
            fl_matrices_load<false>(b, from + 8 * j * P::PITCH + 16 * k);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<typename P::T>(s.at[i][j], x.at[i][k], b[0], b[1]);
                fl_mma<typename P::T>(s.at[i][j + 1], x.at[i][k], b[2], b[3]);
            }
        }
}

template<typename P>
__device__ static inline void pack(packed<P> &p, const chunk<P> &s)
{
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int k = 0; k < P::CHUNK / 16; k++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                p.at[i][k][w] = fl_pair<typename P::T>(s.at[i][2 * k + w / 2][2 * (w % 2)],
                                                       s.at[i][2 * k + w / 2][2 * (w % 2) + 1]);
}

/* o += p u with a chunk of rows of u */
template<typename P>
__device__ static inline void add_product(sums<P> &o, const packed<P> &p, const typename P::T *u)
{
    int lane = (int)threadIdx.x % 32;
    const typename P::T *from = u + lane % 16 * P::PITCH + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < P::CHUNK / 16; k++)
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j += 2) {
            uint32_t b[4];
            fl_matrices_load<true>(b, from + 16 * k * P::PITCH + 8 * j);
#pragma unroll
            for (int i = 0; i < P::TILES; i++) {
                fl_mma<typename P::T>(o.at[i][j], p.at[i][k], b[0], b[1]);
                fl_mma<typename P::T>(o.at[i][j + 1], p.at[i][k], b[2], b[3]);
            }
        }
}

/* ---- weights ---- */

static constexpr float LOG2_E = 1.4426950408889634f;

/* lse in units of log(2), and delta: of this lane's rows if these are queries, else of a tile's columns. */
template<typename P>
struct own_queries {
    float lse[2 * P::TILES], delta[2 * P::TILES];
};
template<typename P>
struct tile_queries {
    float lse[P::COLS], delta[P::COLS];
};

/* The position of a chunk: `ahead` is the position of its first query less that of its first key, large if nothing is
** causal; `left` the number of keys from its first one, counted where columns are keys. */
struct chunk_place {
    int ahead, left;
};

/* No query of the chunk sees a key of it. */
template<typename P, bool KEYS>
__device__ static inline bool is_unseen(const chunk_place &c)
{
    return c.ahead + (KEYS ? P::CHUNK : P::RUN) <= 0;
}

/* Takes out the weights of keys that a query does not see. */
template<typename P, bool KEYS>
__device__ static inline void clear_hidden(chunk<P> &p, const chunk_place &c)
{
    if ((KEYS ? P::RUN : P::CHUNK) - 1 <= c.ahead && (KEYS || P::CHUNK <= c.left)) return;
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int own = 16 * i + (int)threadIdx.x % 32 / 4 + 8 * (e / 2);
#pragma unroll
            for (int j = 0; j < P::CHUNK / 8; j++) {
                int other = owned_col(j, e), query = KEYS ? other : own, key = KEYS ? own : other;
                if (key > c.ahead + query || (!KEYS && key >= c.left)) p.at[i][j][e] = 0;
            }
        }
}

/* Scores become weights. */
template<typename P>
__device__ static inline void weigh(chunk<P> &s, float scale, const own_queries<P> &q, int)
{
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::CHUNK / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.at[i][j][e] = fl_two_to(fmaf(s.at[i][j][e], scale, -q.lse[2 * i + e / 2]));
}
template<typename P>
__device__ static inline void weigh(chunk<P> &s, float scale, const tile_queries<P> &q, int col)
{
#pragma unroll
    for (int j = 0; j < P::CHUNK / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float lse = q.lse[col + owned_col(j, c)];
#pragma unroll
            for (int i = 0; i < P::TILES; i++)
#pragma unroll
                for (int e = c; e < 4; e += 2) s.at[i][j][e] = fl_two_to(fmaf(s.at[i][j][e], scale, -lse));
        }
}

/* d: gradient of the weights p -> of the scaled scores. */
template<typename P>
__device__ static inline void score_gradient(chunk<P> &d, const chunk<P> &p, const own_queries<P> &q, int)
{
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::CHUNK / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) d.at[i][j][e] = p.at[i][j][e] * (d.at[i][j][e] - q.delta[2 * i + e / 2]);
}
template<typename P>
__device__ static inline void score_gradient(chunk<P> &d, const chunk<P> &p, const tile_queries<P> &q, int col)
{
#pragma unroll
    for (int j = 0; j < P::CHUNK / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float delta = q.delta[col + owned_col(j, c)];
#pragma unroll
            for (int i = 0; i < P::TILES; i++)
#pragma unroll
                for (int e = c; e < 4; e += 2) d.at[i][j][e] = p.at[i][j][e] * (d.at[i][j][e] - delta);
        }
}

/* ---- lse and delta ---- */

/* sum(dy out) of two neighbours */
template<typename T>
__device__ static inline float pair_product(uint32_t x, uint32_t y)
{
    T a[2], b[2];
    memcpy((void *)a, &x, sizeof a);
    memcpy((void *)b, &y, sizeof b);
    return fl_load(a[0]) * fl_load(b[0]) + fl_load(a[1]) * fl_load(b[1]);
}

/* Of this lane's rows: delta = sum(dy out) - dlse, which is kept for the other kernel too. Queries beyond the last have
** weights of 0. */
template<typename P>
__device__ static inline void facts_of(own_queries<P> &q, const attention &a, int64_t local, int row,
                                       const fragments<P> &dy, const typename P::T *out, const float *dlse)
{
    int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        int query = row + owned_row<P>(i / 2, 2 * (i % 2));
        bool exists = query < (int)a.queries;
        int64_t at = exists ? local * a.queries + query : 0;
        const typename P::T *from = out + at * a.value_width + 2 * t;
        float sum = 0;
#pragma unroll
        for (int k = 0; k < P::WIDTH / 8; k++)
            if (exists && 8 * k < (int)a.value_width)
                sum += pair_product<typename P::T>(dy.at[i / 2][k / 2][2 * (k % 2) + i % 2],
                                                   *(const uint32_t *)(from + 8 * k));
        for (int bits = 1; bits < 4; bits *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
        if (dlse && exists) sum -= dlse[at];
        q.delta[i] = sum;
        q.lse[i] = exists ? ((const float *)a.lse)[at] * LOG2_E : INFINITY;
        if (exists && t == 0) ((float *)a.delta)[at] = sum;
    }
}

/* The value of a tile's query that this thread loads: lse in one half of the threads, delta in the other. */
template<typename P>
__device__ static inline float fact_of(const attention &a, int64_t local, int first)
{
    int i = (int)threadIdx.x % P::COLS, query = first + i;
    bool is_delta = (int)threadIdx.x >= P::COLS;
    if (query >= (int)a.queries) return is_delta ? 0.0f : INFINITY;
    int64_t at = local * a.queries + query;
    return is_delta ? ((const float *)a.delta)[at] : ((const float *)a.lse)[at] * LOG2_E;
}

template<typename P>
__device__ static inline void keep_fact(tile_queries<P> *q, float fact)
{
    static_assert(sizeof *q == 2 * P::COLS * sizeof(float) && 2 * P::COLS <= P::THREADS, "a fact for a thread");
    if ((int)threadIdx.x < 2 * P::COLS) ((float *)q)[threadIdx.x] = fact;
}

/* ---- results ---- */

/* A warp's rows of a result [limit, width], times a factor: by way of the warp's own rows of `tile`, which nobody reads
** any more, so that 16 bytes are stored at once. */
template<typename P>
__device__ static inline void store_run(typename P::T *out, typename P::T *tile, const sums<P> &o, int row, int limit,
                                        int width, float factor)
{
    enum { ACROSS = P::WIDTH / P::UNIT };
    int run = (int)threadIdx.x / 32 * P::RUN;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++)
            *(uint32_t *)(tile + owned_row<P>(i / 2, 2 * (i % 2)) * P::PITCH + owned_col(j, 0)) =
                fl_pair<typename P::T>(o.at[i / 2][j][2 * (i % 2)] * factor, o.at[i / 2][j][2 * (i % 2) + 1] * factor);
    __syncwarp();
#pragma unroll
    for (int n = (int)threadIdx.x % 32; n < P::RUN * ACROSS; n += 32) {
        int at = run + n / ACROSS, col = n % ACROSS * P::UNIT;
        if (row + at < limit && col < width)
            *(uint4 *)(out + (int64_t)(row + at) * width + col) = *(const uint4 *)(tile + at * P::PITCH + col);
    }
}

/* ---- kernels ---- */

/* One tile of columns: KEYS: rows are keys. z, u: its rows of the operands that scores and their gradients are made of
** with x and y. place: of its first chunk. */
template<typename P, bool KEYS, typename Q>
__device__ static inline void add_tile(sums<P> &dx, sums<P> &dy, const fragments<P> &x, const fragments<P> &y,
                                       const typename P::T *z, const typename P::T *u, const Q &queries,
                                       chunk_place place, int cols, float scale)
{
#pragma unroll 1
    for (int col = 0; col < cols; col += P::CHUNK) {
        if (!is_unseen<P, KEYS>(place)) {
            chunk<P> s, d;
            packed<P> p;
            multiply_rows<P>(s, x, z + col * P::PITCH);
            multiply_rows<P>(d, y, u + col * P::PITCH);
            weigh<P>(s, scale, queries, col);
            clear_hidden<P, KEYS>(s, place);
            if (KEYS) {
                pack<P>(p, s);
                add_product<P>(dy, p, u + col * P::PITCH);
            }
            score_gradient<P>(d, s, queries, col);
            pack<P>(p, d);
            add_product<P>(dx, p, z + col * P::PITCH);
        }
        place.ahead += KEYS ? P::CHUNK : -P::CHUNK;
        place.left -= P::CHUNK;
    }
}

/* The operands on both sides of a head: rows of q and dy, or of k and v. */
template<typename P>
struct operands {
    copier<P> scored, weighted;
};

template<typename P>
__device__ static inline operands<P> operands_of(const attention &a, const half_head<P> &h, bool keys)
{
    int count = (int)(keys ? a.seen_keys : a.queries);
    return {copier_of<P>(keys ? h.k : h.q, keys ? a.k : a.q, count, a.width),
            copier_of<P>(keys ? h.v : h.g, keys ? a.v : a.g, count, a.value_width)};
}

/* Begins to copy so many rows of both. */
template<typename P, int ROWS>
__device__ static inline void fetch_rows(typename P::T *scored, typename P::T *weighted, const operands<P> &o,
                                         int first)
{
    copy_rows<P, ROWS>(scored, o.scored, first);
    copy_rows<P, ROWS>(weighted, o.weighted, first);
    fl_copy_commit();
}

/* x, y: this block's rows of q and dy, or of k and v; z, u: the columns', the other way round. ds z is the gradient of
** x, and for keys p u that of y. Blocks of the longest rows come first. */
template<typename P, bool KEYS>
__global__ void __launch_bounds__(P::THREADS)
    backward_halves(const __grid_constant__ attention a, const typename P::T *out, const float *dlse)
{
    typedef typename P::T T;
    FL_DYNAMIC_SHARED(T, x_tile);
    T *y_tile = x_tile + P::ROWS * P::PITCH, *z_tiles = y_tile + P::ROWS * P::PITCH,
      *u_tiles = z_tiles + 2 * P::COLS * P::PITCH;
    tile_queries<P> *tile_facts = (tile_queries<P> *)(u_tiles + 2 * P::COLS * P::PITCH);
    int row = (int)(KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * P::ROWS, queries = (int)a.queries,
        seen_keys = (int)a.seen_keys, first_query = (int)a.first_query,
        first = KEYS && a.causal ? max(row - first_query, 0) : 0,
        end = KEYS ? queries
        : a.causal ? min(seen_keys, first_query + row + P::ROWS)
                   : seen_keys;
    half_head<P> h = half_head_at<P>(a, blockIdx.x);
    operands<P> columns = operands_of<P>(a, h, !KEYS);
    fetch_rows<P, P::ROWS>(x_tile, y_tile, operands_of<P>(a, h, KEYS), row);
    fetch_rows<P, P::COLS>(z_tiles, u_tiles, columns, first);
    if (KEYS) keep_fact<P>(tile_facts, fact_of<P>(a, blockIdx.x, first));
    fl_copy_wait<1>();
    __syncthreads();
    fragments<P> x, y;
    load_fragments<P>(x, x_tile);
    load_fragments<P>(y, y_tile);
    own_queries<P> own;
    if (!KEYS) facts_of<P>(own, a, blockIdx.x, row, y, out, dlse);
    sums<P> dx, dy;
    clear(dx.at);
    clear(dy.at);
    float scale2 = (float)a.scale * LOG2_E;
    int run = row + (int)threadIdx.x / 32 * P::RUN;
    for (int stage = 0; first < end; first += P::COLS, stage ^= 1) {
        float fact = 0;
        fl_copy_wait<0>();
        __syncthreads(); /* this tile is there, the one before has been read */
        if (first + P::COLS < end) {
            int next = (stage ^ 1) * P::COLS * P::PITCH;
            fetch_rows<P, P::COLS>(z_tiles + next, u_tiles + next, columns, first + P::COLS);
            if (KEYS) fact = fact_of<P>(a, blockIdx.x, first + P::COLS);
        }
        chunk_place place = {!a.causal ? INT_MAX / 2 : first_query + (KEYS ? first - run : run - first),
                             seen_keys - first};
        const T *z_tile = z_tiles + stage * P::COLS * P::PITCH, *u_tile = u_tiles + stage * P::COLS * P::PITCH;
        int cols = min((int)P::COLS, end - first);
        if constexpr (KEYS) {
            add_tile<P, true>(dx, dy, x, y, z_tile, u_tile, tile_facts[stage], place, cols, scale2);
            keep_fact<P>(&tile_facts[stage ^ 1], fact);
        } else add_tile<P, false>(dx, dy, x, y, z_tile, u_tile, own, place, cols, scale2);
    }
    fl_copy_wait<0>();
    if (KEYS && row + P::ROWS > seen_keys) {
        clear_unseen<P>(dx, a, row);
        clear_unseen<P>(dy, a, row);
    }
    int count = (int)(KEYS ? a.keys : a.queries);
    int64_t before = (int64_t)blockIdx.x * count;
    store_run<P>((T *)(KEYS ? a.dk : a.dq) + before * a.width, x_tile, dx, row, count, (int)a.width, (float)a.scale);
    if (KEYS) store_run<P>((T *)a.dv + before * a.value_width, y_tile, dy, row, count, (int)a.value_width, 1);
}

/* ---- launching ---- */

template<typename P, bool KEYS>
static void launch_side(const attention &a, int64_t heads, int64_t count, const void *out, const void *dlse)
{
    size_t bytes = (size_t)(2 * P::ROWS + 4 * P::COLS) * P::PITCH * sizeof(typename P::T)
        + (KEYS ? 2 * sizeof(tile_queries<P>) : 0);
    dim3 grid((unsigned)heads, (unsigned)((count + P::ROWS - 1) / P::ROWS));
    if (grid.x && grid.y)
        FL_LAUNCH((backward_halves<P, KEYS>), grid, P::THREADS, bytes, a, (const typename P::T *)out,
                  (const float *)dlse);
}

template<typename P>
static bool launch(const attention &a, int64_t heads, const void *out, const void *dlse)
{
    size_t bytes = (size_t)(2 * P::ROWS + 4 * P::COLS) * P::PITCH * sizeof(typename P::T) + 2 * sizeof(tile_queries<P>);
    if (bytes > fl_cuda_current()->shared_bytes) return false;
    launch_side<P, false>(a, heads, a.queries, out, dlse);
    launch_side<P, true>(a, heads, a.keys, out, dlse);
    return true;
}

template<typename T>
static bool launch_by_width(const attention &a, int64_t heads, const void *out, const void *dlse)
{
    int64_t width = a.width > a.value_width ? a.width : a.value_width;
    if (width <= 32) return launch<half_plan<T, 32>>(a, heads, out, dlse);
    if (width <= 64) return launch<half_plan<T, 64>>(a, heads, out, dlse);
    return launch<half_plan<T, 128>>(a, heads, out, dlse);
}

/* Copies of 16 bytes, positions and strides of 32 bits. */
static bool is_short(const rows *r) { return r->vectors && r->row < INT_MAX; }
static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

bool fl_cuda_attention_backward_halves(fl_dtype dtype, const attention *a, int64_t heads, const void *out,
                                       const void *dlse)
{
    const int64_t most = 65535 * 128;
    if (a->masked != MASK_NONE || a->threshold || a->width > 128 || a->value_width > 128) return false;
    if (a->keys > most || a->queries > most || a->first_query > INT_MAX / 4 || heads > INT_MAX) return false;
    if (!is_aligned(out) || !is_aligned(a->dq) || !is_aligned(a->dk) || !is_aligned(a->dv)) return false;
    if (!is_short(&a->q) || !is_short(&a->k) || !is_short(&a->v) || !is_short(&a->g)) return false;
    if (dtype == FL_FLOAT16) return launch_by_width<__half>(*a, heads, out, dlse);
    if (dtype == FL_BFLOAT16) return launch_by_width<__nv_bfloat16>(*a, heads, out, dlse);
    return false;
}
