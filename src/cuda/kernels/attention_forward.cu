/*
** attention_forward.cu -- attention without storing the scores: a block has rows of queries and walks over the keys
** with the running maximum and sum of every row (FlashAttention-2's scheme). For every type, width, mask and dropout;
** attention_forward_halves.cu has the common case of halves.
*/
#include "attention.h"
#include "attention.cuh"

/* The sums so far of the rows of a block, by row of this lane. */
template<typename P>
struct running {
    typename P::W top[2 * P::TILES], sum[2 * P::TILES]; /* sum: of this lane's columns */
};

template<typename P>
__device__ static inline typename P::W quad_max(typename P::W x)
{
    for (int bits = 1; bits < 4; bits *= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, bits));
    return x;
}

template<typename P>
__device__ static inline typename P::W quad_sum(typename P::W x)
{
    for (int bits = 1; bits < 4; bits *= 2) x += __shfl_xor_sync(0xffffffffu, x, bits);
    return x;
}

/* Scales the scores and takes out the masked ones. */
template<typename P>
__device__ static inline void finish_scores(scores<P> &s, const attention &a, const head<P> &h, int64_t row,
                                            int64_t key)
{
    typedef typename P::W W;
    bool check = a.masked != MASK_NONE || key + P::COLS > a.keys
        || (a.causal && key + P::COLS - 1 > a.first_query + row);
#pragma unroll
    for (int i = 0; i < P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s.at[i][j][e] *= (W)a.scale;
                if (check)
                    s.at[i][j][e] = seen_score<P>(a, h, s.at[i][j][e], row + owned_row<P>(i, e), key + owned_col(j, e));
            }
}

/* Scores become weights e^(s - top); the sums so far are scaled to the new top. */
template<typename P>
__device__ static inline void weigh(scores<P> &s, sums<P> &o, running<P> &r)
{
    typedef typename P::W W;
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        W most = r.top[i], total = 0;
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
            most = max(most, max(s.at[i / 2][j][2 * (i % 2)], s.at[i / 2][j][2 * (i % 2) + 1]));
        most = quad_max<P>(most);
        W shift = most == -(W)INFINITY ? (W)0 : most; /* all masked so far: all weights are 0 */
        W shrink = fl_exp_for<typename P::T>::of(r.top[i] - shift);
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                W weight = fl_exp_for<typename P::T>::of(s.at[i / 2][j][2 * (i % 2) + c] - shift);
                s.at[i / 2][j][2 * (i % 2) + c] = weight;
                total += weight;
            }
#pragma unroll
        for (int j = 0; j < P::WIDTH / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) o.at[i / 2][j][2 * (i % 2) + c] *= shrink;
        r.sum[i] = r.sum[i] * shrink + total;
        r.top[i] = most;
    }
}

template<typename P>
__device__ static inline void drop(scores<P> &s, const attention &a, const head<P> &h, int64_t row, int64_t key)
{
    typedef typename P::W W;
    dropout_words d = {~(uint64_t)0, {0, 0, 0, 0}};
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++)
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                bool kept = is_kept(&d, a, h.seed, h.counter, h.logical, row + owned_row<P>(i / 2, 2 * (i % 2)),
                                    key + owned_col(j, c));
                s.at[i / 2][j][2 * (i % 2) + c] *= kept ? (W)a.keep : (W)0;
            }
}

/* A row that is masked whole gives zeros, and its weights in backward are zeros too: e^(s - inf). */
template<typename P>
__device__ static inline void store_forward(const attention &a, const head<P> &h, const sums<P> &o, running<P> &r,
                                            int64_t row, int64_t chunk)
{
    typedef typename P::W W;
    W factor[2 * P::TILES];
#pragma unroll
    for (int i = 0; i < 2 * P::TILES; i++) {
        W sum = quad_sum<P>(r.sum[i]);
        bool blind = !(sum != 0);
        int64_t query = row + owned_row<P>(i / 2, 2 * (i % 2));
        factor[i] = blind ? (W)0 : 1 / sum;
        if (threadIdx.x % 4 == 0 && chunk == 0 && query < a.queries)
            ((W *)a.lse)[h.local * a.queries + query] = blind ? (W)INFINITY : r.top[i] + fl_log(sum);
    }
    store_rows<P>((typename P::T *)a.out + h.local * a.queries * a.value_width, o, row, a.queries, chunk, a.value_width,
                  [&](int i) { return factor[i]; });
}

template<typename P>
__global__ void __launch_bounds__(P::THREADS) forward(const __grid_constant__ attention a)
{
    typedef typename P::T T;
    FL_DYNAMIC_SHARED(T, x_tile);
    T *z_tiles = x_tile + P::ROWS * P::PITCH, *u_tiles = z_tiles + P::STAGES * P::COLS * P::PITCH;
    typename P::W *shared_p = (typename P::W *)(u_tiles + P::STAGES * P::COLS * P::PITCH);
    int64_t tile = blockIdx.x % a.tiles, row = (a.tiles - 1 - tile) * P::ROWS,
            seen = a.first_query + row + P::ROWS; /* the longest first */
    head<P> h;
    head_at<P>(&h, a, blockIdx.x / a.tiles);
    side<P> x = {h.q, &a.q, a.queries, a.width};
    columns<P> c = {{h.k, &a.k, a.seen_keys, a.width},
                    {h.v, &a.v, a.seen_keys, a.value_width},
                    a.causal && seen < a.seen_keys ? seen : a.seen_keys,
                    (int64_t)blockIdx.y * P::WIDTH,
                    z_tiles,
                    u_tiles};
    sums<P> o;
    running<P> r;
    clear(o.at);
    for (int i = 0; i < 2 * P::TILES; i++) {
        r.top[i] = -(typename P::W)INFINITY;
        r.sum[i] = 0;
    }
    if (!a.wide) load_tile<P, P::ROWS>(x_tile, x, row, 0);
    fetch_first<P>(c, 0, a.wide);
    for (int64_t key = 0, n = 0; key < c.end; key += P::COLS, n++) {
        scores<P> s;
        int at = fetch_next<P>(c, key, (int)n, a.wide) * P::COLS * P::PITCH;
        sum_scores<P>(s, a.wide, x_tile, x, row, z_tiles + at, c.z, key);
        finish_scores<P>(s, a, h, row, key);
        weigh<P>(s, o, r);
        if (a.threshold) drop<P>(s, a, h, row, key);
        fetch_chunk<P>(c, key, a.wide);
        multiply<P>(o, s, u_tiles + at, shared_p);
        __syncthreads(); /* the tile has been read */
    }
    store_forward<P>(a, h, o, r, row, c.chunk);
}

/* ---- launching ---- */

/* 16 rows more per warp if registers allow it: keys that were read serve twice as many queries. Wide rows
** have shorter tiles, so that three blocks share a multiprocessor of 164 KiB. */
template<typename T, int WIDTH>
struct forward_plan {
    enum { HALVES = sizeof(T) == 2, NARROW = HALVES && WIDTH <= 64 };
    typedef plan<T, WIDTH, NARROW ? 2 : 1, NARROW ? 64 : 32, HALVES ? 2 : 1> type;
};

template<typename P>
static size_t shared_bytes(void)
{
    return ((size_t)(P::ROWS + 2 * P::STAGES * P::COLS) * P::PITCH + P::P_SIZE) * sizeof(typename P::T);
}

template<typename P>
static bool launch(attention a, int64_t heads)
{
    size_t bytes = shared_bytes<P>();
    int64_t chunks = (a.value_width + P::WIDTH - 1) / P::WIDTH;
    if (bytes > fl_cuda_current()->shared_bytes) return false;
    a.tiles = (a.queries + P::ROWS - 1) / P::ROWS;
    a.wide = a.width > P::WIDTH || a.value_width > P::WIDTH;
    dim3 grid((unsigned)(heads * a.tiles), (unsigned)(chunks > 0 ? chunks : 1));
    if (grid.x) FL_LAUNCH((forward<P>), grid, P::THREADS, bytes, a);
    return true;
}

fl_status fl_cuda_attention_forward(fl_dtype dtype, const attention *a, int64_t heads)
{
    if (fl_cuda_attention_forward_halves(dtype, a, heads)) return fl_cuda_check("scaled_dot_product_attention");
    attention_by_width(dtype, a, [&](auto like, auto width) {
        return launch<typename forward_plan<decltype(like), decltype(width)::value>::type>(*a, heads);
    });
    return fl_cuda_check("scaled_dot_product_attention");
}
