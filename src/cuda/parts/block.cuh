/*
** block.cuh -- what the threads of a warp or a block do together: joining values, moving whole vectors.
**
** A group is 1, 2, 4, ... 32 neighbouring lanes of a warp, or a whole block of more than one warp. Every thread of the
** block takes part in every join, with a neutral value if it has nothing to bring. The order of joining depends on the
** size of the group alone, and all its threads get the same bits.
*/
#ifndef FL_BLOCK_CUH
#define FL_BLOCK_CUH

#include "convert.h"

/* Elements of 16 bytes. */
template<typename T>
struct fl_vector {
    enum { WIDTH = 16 / sizeof(T) };
};

template<typename T, int N>
__device__ static inline bool fl_is_aligned(const T *p)
{
    return (uintptr_t)p % (sizeof(T) * N) == 0;
}

/* ---- joining ---- */

/* The value of the lane whose number differs in `bits`: values of any size, in words. */
template<typename S>
__device__ static inline S fl_lane_exchange(const S &value, int bits)
{
    enum { WORDS = sizeof(S) / sizeof(int) };
    static_assert(sizeof(S) % sizeof(int) == 0, "lanes exchange words");
    int words[WORDS];
    S other;
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < WORDS; i++) words[i] = __shfl_xor_sync(0xffffffffu, words[i], bits);
    memcpy(&other, words, sizeof other);
    return other;
}

/* Over 1 to 32 lanes. join(a, b): a is of the lower lanes. */
template<typename S, typename F>
__device__ static inline S fl_lanes_join(S value, int lanes, const F &join)
{
    [[maybe_unused]] constexpr int AT_ONCE = sizeof(S) > 8 ? 1 : 5; /* large values take much code to join */
#pragma unroll AT_ONCE
    for (int bits = lanes / 2; bits > 0; bits /= 2) {
        S other = fl_lane_exchange(value, bits);
        value = threadIdx.x & bits ? join(other, value) : join(value, other);
    }
    return value;
}

/* Over a group; `shared` has room for 32 values and may be used by one join after the other. */
template<typename S, typename F>
__device__ static inline S fl_group_join(S value, int group, const S &neutral, S *shared, const F &join)
{
    if (group <= 32) return fl_lanes_join(value, group, join);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = group / 32;
    value = fl_lanes_join(value, 32, join);
    __syncthreads(); /* the join before has read its values */
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : neutral;
    return fl_lanes_join(value, 32, join);
}

/* ---- groups ---- */

/* The smallest power of two that is not below n, at most `most` (a power of two). */
static inline int fl_power_above(int64_t n, int most)
{
    int p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

/* Position in the group, and number of the group in the grid. */
__device__ static inline int fl_group_lane(int group)
{
    return group <= 32 ? (int)(threadIdx.x & (unsigned)(group - 1)) : (int)threadIdx.x;
}
__device__ static inline int64_t fl_group_number(int group)
{
    if (group > 32) return blockIdx.x;
    int shift = 31 - __clz(group);
    return (int64_t)blockIdx.x * (blockDim.x >> shift) + (threadIdx.x >> shift);
}

/* ---- vectors of a row ---- */

/* A row of n elements is cut where memory is aligned: `shift` is how far its first element lies behind such a place.
** Vector v begins at element v * WIDTH - shift, which may be before the row, and may end behind it. */
template<typename T>
__device__ static inline int fl_row_shift(const T *row)
{
    return (int)((uintptr_t)row / sizeof(T) % fl_vector<T>::WIDTH);
}

/* Vectors begin at elements e, e + apart, ... of a row of n; apart is a multiple of WIDTH, so all of them are aligned
** or none is. I: int, or int64_t for long rows. */

/* True if the whole vector at e is inside the row. */
template<typename T, typename I>
__device__ static inline bool fl_row_holds(bool aligned, I e, I n)
{
    return aligned && e >= 0 && e + fl_vector<T>::WIDTH <= n;
}

/* Issues the loads of whole vectors. They stay words: taking elements out would wait for them, so threads fetch all
** they need before they convert any. */
template<int PACKS, typename T, typename I>
__device__ static inline void fl_row_fetch(uint4 *raw, const T *row, I e, I apart, I n)
{
    const uint4 zero = {0, 0, 0, 0};
    bool aligned = fl_is_aligned<T, fl_vector<T>::WIDTH>(row + e);
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        raw[k] = fl_row_holds<T>(aligned, e + k * apart, n) ? *(const uint4 *)(row + e + k * apart) : zero;
}

/* The elements of one vector; if it is not whole they are loaded here. Those outside the row are `fill`. */
template<typename W, typename T, typename I>
__device__ static inline void fl_row_convert(W *out, const uint4 &raw, const T *row, bool aligned, I e, I n, W fill)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    fl_pack<T, WIDTH> pack;
    memcpy(&pack, &raw, sizeof pack);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) out[j] = (W)fl_load(pack.at[j]);
    if (fl_row_holds<T>(aligned, e, n)) return;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) out[j] = e + j >= 0 && e + j < n ? (W)fl_load(row[e + j]) : fill;
}

template<int PACKS, typename W, typename T, typename I>
__device__ static inline void fl_row_convert_all(W *out, const uint4 *raw, const T *row, I e, I apart, I n, W fill)
{
    bool aligned = fl_is_aligned<T, fl_vector<T>::WIDTH>(row + e);
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        fl_row_convert(out + k * fl_vector<T>::WIDTH, raw[k], row, aligned, e + k * apart, n, fill);
}

template<int PACKS, typename W, typename T, typename I>
__device__ static inline void fl_row_load(W *out, const T *row, I e, I apart, I n, W fill)
{
    uint4 raw[PACKS];
    fl_row_fetch<PACKS>(raw, row, e, apart, n);
    fl_row_convert_all<PACKS>(out, raw, row, e, apart, n, fill);
}

/* The same of two rows. */
template<int PACKS, typename W, typename T, typename I>
__device__ static inline void fl_row_load_both(W *a, const T *row_a, W fill_a, W *b, const T *row_b, W fill_b, I e,
                                               I apart, I n)
{
    uint4 raw_a[PACKS], raw_b[PACKS];
    fl_row_fetch<PACKS>(raw_a, row_a, e, apart, n);
    fl_row_fetch<PACKS>(raw_b, row_b, e, apart, n);
    fl_row_convert_all<PACKS>(a, raw_a, row_a, e, apart, n, fill_a);
    fl_row_convert_all<PACKS>(b, raw_b, row_b, e, apart, n, fill_b);
}

/* Stores what lies inside the row. */
template<int PACKS, typename W, typename T, typename I>
__device__ static inline void fl_row_store(T *row, const W *in, I e, I apart, I n)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    bool aligned = fl_is_aligned<T, WIDTH>(row + e);
#pragma unroll
    for (int k = 0; k < PACKS; k++, e += apart, in += WIDTH) {
        fl_pack<T, WIDTH> pack;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) pack.at[j] = fl_store<T>(in[j]);
        if (fl_row_holds<T>(aligned, e, n)) fl_pack_store(row + e, pack);
        else
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (e + j >= 0 && e + j < n) row[e + j] = pack.at[j];
    }
}

/* ---- arithmetic in the wide types ---- */

__device__ static inline float fl_exp(float x) { return expf(x); }
__device__ static inline double fl_exp(double x) { return exp(x); }
__device__ static inline float fl_log(float x) { return logf(x); }
__device__ static inline double fl_log(double x) { return log(x); }
__device__ static inline float fl_abs(float x) { return fabsf(x); }
__device__ static inline double fl_abs(double x) { return fabs(x); }
__device__ inline __attribute__((noinline)) float fl_power(float x, float p)
{
    return powf(x, p);
} /* much code, and rare */
__device__ inline __attribute__((noinline)) double fl_power(double x, double p) { return pow(x, p); }
__device__ static inline float fl_root(float x) { return sqrtf(x); }
__device__ static inline double fl_root(double x) { return sqrt(x); }

/* e^x for results of type T: those of 16 bits are coarser than the error of the fast one. */
template<typename T>
struct fl_exp_for {
    __device__ static inline float of(float x) { return __expf(x); }
};
template<>
struct fl_exp_for<float> {
    __device__ static inline float of(float x) { return expf(x); }
};
template<>
struct fl_exp_for<double> {
    __device__ static inline double of(double x) { return exp(x); }
};

#endif
