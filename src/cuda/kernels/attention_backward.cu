/*
** attention_backward.cu -- gradients of attention: the weights are made again from the log-sum-exp of every query.
**
** Two kernels of one form: a block has rows of queries and sums dq over the keys, or has rows of keys and sums dk and
** dv over the queries. Scores are made twice, but nothing is added by atomics: results do not depend on the schedule.
*/
#include "attention.h"
#include "attention.cuh"

/* Threads of a block of sum_delta, and its queries. */
enum { DELTA_THREADS = 256, DELTA_ROWS = 64 };

/* delta = sum(dy out) - dlse for every query: `lanes` for each, 4 to 32. A head has `blocks`. */
template<typename T>
__global__ void __launch_bounds__(DELTA_THREADS)
    sum_delta(const __grid_constant__ attention a, const T *out, const typename fl_wide<T>::type *dlse, unsigned blocks,
              int lanes)
{
    typedef typename fl_wide<T>::type W;
    typedef plan<T, 32, 1, 32, 1> P;
    int lane = (int)threadIdx.x & (lanes - 1), apart = DELTA_THREADS / lanes;
    int64_t first = (int64_t)(blockIdx.x % blocks) * DELTA_ROWS + (int)threadIdx.x / lanes;
    head<P> h;
    head_at<P>(&h, a, blockIdx.x / blocks);
    for (int n = 0; n < DELTA_ROWS; n += apart) {
        bool exists = first + n < a.queries;
        int64_t query = exists ? first + n : 0, at = h.local * a.queries + query;
        W sum = 0;
        for (int64_t e = lane * P::UNIT; e < a.value_width; e += lanes * P::UNIT) {
            W x[P::UNIT], y[P::UNIT];
            fl_row_load_both<1>(x, h.g + query * a.g.row, (W)0, y, out + at * a.value_width, (W)0, e, (int64_t)0,
                                a.value_width);
#pragma unroll
            for (int i = 0; i < P::UNIT; i++) sum += x[i] * y[i];
        }
        sum = fl_lanes_join(sum, lanes, [](W x, W y) { return x + y; });
        if (lane == 0 && exists) ((W *)a.delta)[at] = dlse ? sum - dlse[at] : sum;
    }
}

/* lse and delta of one query; none beyond the last: weights are 0. */
template<typename W>
struct query_facts {
    W lse, delta;
};

template<typename P>
__device__ static inline query_facts<typename P::W> facts_of(const attention &a, const head<P> &h, int64_t query)
{
    typedef typename P::W W;
    int64_t at = h.local * a.queries + query;
    query_facts<W> f = {(W)INFINITY, 0};
    if (query < a.queries) f = {((const W *)a.lse)[at], ((const W *)a.delta)[at]};
    return f;
}

/* Applies dropout to the gradient of the weights; the bits of elements that are dropped are returned. */
template<typename P, bool KEYS>
__device__ static inline uint32_t drop_gradient(scores<P> &d, const attention &a, const head<P> &h, int64_t row,
                                                int64_t col)
{
    typedef typename P::W W;
    dropout_words words = {~(uint64_t)0, {0, 0, 0, 0}};
    uint32_t dropped = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                int e = 2 * half + c;
                int64_t own = row + owned_row<P>(0, e), other = col + owned_col(j, e);
                bool kept = is_kept(&words, a, h.seed, h.counter, h.logical, KEYS ? other : own, KEYS ? own : other);
                d.at[0][j][e] *= kept ? (W)a.keep : (W)0;
                dropped |= (uint32_t)!kept << (4 * j + e);
            }
    return dropped;
}

/* s: scores -> weights with dropout; d: gradient of these -> gradient of the scaled scores. */
template<typename P, bool KEYS>
__device__ static inline void backward_scores(scores<P> &s, scores<P> &d, const attention &a, const head<P> &h,
                                              int64_t row, int64_t col,
                                              const query_facts<typename P::W> (&own_facts)[2])
{
    typedef typename P::W W;
    static_assert(P::TILES * P::COLS <= 64, "a bit for every element of a lane");
    int64_t query = KEYS ? col : row, key = KEYS ? row : col;
    bool check = a.masked != MASK_NONE || key + (KEYS ? P::ROWS : P::COLS) > a.keys
        || (a.causal && key + (KEYS ? P::ROWS : P::COLS) - 1 > a.first_query + query);
    uint32_t dropped = a.threshold ? drop_gradient<P, KEYS>(d, a, h, row, col) : 0;
#pragma unroll
    for (int j = 0; j < P::COLS / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            query_facts<W> f;
            if (KEYS) f = facts_of<P>(a, h, col + owned_col(j, c));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int e = 2 * half + c;
                int64_t own = row + owned_row<P>(0, e), other = col + owned_col(j, e);
                W x = s.at[0][j][e] * (W)a.scale;
                if (!KEYS) f = own_facts[half];
                if (check) x = seen_score<P>(a, h, x, KEYS ? other : own, KEYS ? own : other);
                W p = fl_exp_for<typename P::T>::of(x - f.lse);
                d.at[0][j][e] = p * (d.at[0][j][e] - f.delta);
                s.at[0][j][e] = p * (dropped >> (4 * j + e) & 1 ? (W)0 : (W)a.keep);
            }
        }
}

/* x, y: this block's rows of q and dy, or of k and v; z, u: the columns', the other way round. ds z is the gradient of
** x, and for keys p u that of y. */
template<typename P, bool KEYS>
__global__ void __launch_bounds__(P::THREADS) backward(const __grid_constant__ attention a)
{
    typedef typename P::T T;
    FL_DYNAMIC_SHARED(T, x_tile);
    T *y_tile = x_tile + P::ROWS * P::PITCH, *z_tiles = y_tile + P::ROWS * P::PITCH,
      *u_tiles = z_tiles + P::STAGES * P::COLS * P::PITCH;
    typename P::W *shared_p = (typename P::W *)(u_tiles + P::STAGES * P::COLS * P::PITCH);
    int64_t tile = blockIdx.x % a.tiles, row = (KEYS ? tile : a.tiles - 1 - tile) * P::ROWS; /* the longest first */
    head<P> h;
    head_at<P>(&h, a, blockIdx.x / a.tiles);
    side<P> q = {h.q, &a.q, a.queries, a.width}, g = {h.g, &a.g, a.queries, a.value_width},
            k = {h.k, &a.k, a.seen_keys, a.width}, v = {h.v, &a.v, a.seen_keys, a.value_width}, x = KEYS ? k : q,
            y = KEYS ? v : g;
    int64_t first = KEYS && a.causal && row > a.first_query ? row - a.first_query : 0,
            seen = a.first_query + row + P::ROWS;
    columns<P> c = {KEYS ? q : k,
                    KEYS ? g : v,
                    KEYS                                 ? a.queries
                        : a.causal && seen < a.seen_keys ? seen
                                                         : a.seen_keys,
                    (int64_t)blockIdx.y * P::WIDTH,
                    z_tiles,
                    u_tiles};
    query_facts<typename P::W> own_facts[2];
    for (int half = 0; !KEYS && half < 2; half++) own_facts[half] = facts_of<P>(a, h, row + owned_row<P>(0, 2 * half));
    sums<P> dx, dy;
    clear(dx.at);
    clear(dy.at);
    if (!a.wide) {
        load_tile<P, P::ROWS>(x_tile, x, row, 0);
        load_tile<P, P::ROWS>(y_tile, y, row, 0);
    }
    fetch_first<P>(c, first, a.wide);
    for (int n = 0; first < c.end; first += P::COLS, n++) {
        scores<P> s, d;
        int at = fetch_next<P>(c, first, n, a.wide) * P::COLS * P::PITCH;
        sum_scores<P>(s, a.wide, x_tile, x, row, z_tiles + at, c.z, first);
        sum_scores<P>(d, a.wide, y_tile, y, row, u_tiles + at, c.u, first);
        backward_scores<P, KEYS>(s, d, a, h, row, first, own_facts);
        fetch_chunk<P>(c, first, a.wide);
        multiply<P>(dx, d, z_tiles + at, shared_p);
        if (KEYS) multiply<P>(dy, s, u_tiles + at, shared_p);
        __syncthreads(); /* the tile has been read */
    }
    if (KEYS && row + P::ROWS > a.seen_keys) {
        clear_unseen<P>(dx, a, row);
        clear_unseen<P>(dy, a, row);
    }
    typename P::W scale = (typename P::W)a.scale;
    int64_t count = KEYS ? a.keys : a.queries;
    store_rows<P>((T *)(KEYS ? a.dk : a.dq) + h.local * count * x.width, dx, row, count, c.chunk, x.width,
                  [&](int) { return scale; });
    if (KEYS)
        store_rows<P>((T *)a.dv + h.local * count * y.width, dy, row, count, c.chunk, y.width,
                      [](int) { return (typename P::W)1; });
}

/* ---- launching ---- */

/* Columns of a tile: of doubles as many as fit into the 64 KiB of compute capability 7.5. */
static constexpr int columns_of(int item, int width) { return item == 8 ? 16 : item == 2 && width <= 64 ? 64 : 32; }

template<typename T, int WIDTH>
struct backward_plan {
    typedef plan<T, WIDTH, 1, columns_of(sizeof(T), WIDTH), sizeof(T) == 2 ? 2 : 1> type;
};

template<typename P>
static size_t shared_bytes(void)
{
    return ((size_t)(2 * P::ROWS + 2 * P::STAGES * P::COLS) * P::PITCH + P::P_SIZE) * sizeof(typename P::T);
}

template<typename P, bool KEYS>
static void launch_side(attention a, int64_t heads, int64_t count, int64_t width)
{
    int64_t chunks = (width + P::WIDTH - 1) / P::WIDTH;
    a.tiles = (count + P::ROWS - 1) / P::ROWS;
    dim3 grid((unsigned)(heads * a.tiles), (unsigned)chunks);
    if (grid.x && grid.y) FL_LAUNCH((backward<P, KEYS>), grid, P::THREADS, shared_bytes<P>(), a);
}

template<typename P>
static bool launch(attention a, int64_t heads)
{
    if (shared_bytes<P>() > fl_cuda_current()->shared_bytes) return false;
    a.wide = a.width > P::WIDTH || a.value_width > P::WIDTH;
    launch_side<P, false>(a, heads, a.queries, a.width);
    launch_side<P, true>(a, heads, a.keys, a.width > a.value_width ? a.width : a.value_width);
    return true;
}

template<typename T>
static void launch_delta(const attention *a, int64_t heads, const void *out, const void *dlse)
{
    int64_t vectors = (a->value_width + fl_vector<T>::WIDTH - 1) / fl_vector<T>::WIDTH,
            blocks = (a->queries + DELTA_ROWS - 1) / DELTA_ROWS;
    int lanes = fl_power_above(vectors, 32);
    if (lanes < 4) lanes = 4;
    if (heads && blocks)
        FL_LAUNCH((sum_delta<T>), (unsigned)(heads * blocks), DELTA_THREADS, 0, *a, (const T *)out,
                  (const typename fl_wide<T>::type *)dlse, (unsigned)blocks, lanes);
}

fl_status fl_cuda_attention_backward(fl_dtype dtype, const attention *a, int64_t heads, const void *out,
                                     const void *dlse)
{
    if (fl_cuda_attention_backward_halves(dtype, a, heads, out, dlse))
        return fl_cuda_check("scaled_dot_product_attention");
    fl_cuda_by_float(dtype, [&](auto like) {
        launch_delta<decltype(like)>(a, heads, out, dlse);
        return FL_OK;
    });
    attention_by_width(dtype, a, [&](auto like, auto width) {
        return launch<typename backward_plan<decltype(like), decltype(width)::value>::type>(*a, heads);
    });
    return fl_cuda_check("scaled_dot_product_attention");
}
