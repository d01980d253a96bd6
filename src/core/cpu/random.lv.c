/*
** random.lv.c -- Philox4x32-10 on vectors: words, uniforms, normals and dropout of one CPU level.
**
** A group is as many blocks as a vector has lanes. Words are the same on every level, and so are
** floats, bit for bit: only correctly rounded operations are used, and fused multiply-adds are exact
** everywhere (in software where the machine has none).
**
** Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11).
**
** Normals are Box and Muller's: of a block's words w0 w1 w2 w3, elements 0 and 1 are sqrt(-2 ln u(w0)) times the cosine
** and the sine of 2 pi w1 / 2^32, elements 2 and 3 the same of w2 and w3, with u(w) = ((w >> 8) + 1) * 2^-24 in (0, 1]
** and the angle from the word's highest 24 bits.
*/
#include "random.h"
#include "shuffle.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(FL_LEVEL_avx512)
#define LANES 16
#define IOTA                                                 \
    {                                                        \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 \
    }
#elif defined(FL_LEVEL_avx2)
#define LANES 8
#define IOTA                   \
    {                          \
        0, 1, 2, 3, 4, 5, 6, 7 \
    }
#else
#define LANES 4
#define IOTA       \
    {              \
        0, 1, 2, 3 \
    }
#endif
#define GROUP (4 * LANES)

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint64_t longs __attribute__((vector_size(4 * LANES)));
typedef float floats __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

/* ---- operations that the vector extension lacks ---- */

/* Products of the even lanes, 64 bits each. */
INLINE longs multiply_even(words a, uint32_t b)
{
#if defined(FL_LEVEL_avx512)
    return (longs)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(FL_LEVEL_avx2)
    return (longs)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__x86_64__)
    return (longs)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return ((longs)a & 0xffffffffu) * b;
#endif
}

INLINE floats fused(floats a, floats b, floats c)
{
#if defined(FL_LEVEL_avx512)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(FL_LEVEL_avx2)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    floats r;
    for (int i = 0; i < LANES; i++) r[i] = fmaf(a[i], b[i], c[i]);
    return r;
#endif
}

INLINE floats square_root(floats a)
{
#if defined(FL_LEVEL_avx512)
    return (floats)_mm512_sqrt_ps((__m512)a);
#elif defined(FL_LEVEL_avx2)
    return (floats)_mm256_sqrt_ps((__m256)a);
#else
    floats r;
    for (int i = 0; i < LANES; i++) r[i] = sqrtf(a[i]);
    return r;
#endif
}

INLINE floats all(float v) { return (floats){0} + v; }
INLINE floats to_floats(words w) { return __builtin_convertvector((ints)w, floats); }
INLINE floats choose(ints mask, floats a, floats b) { return (floats)((mask & (ints)a) | (~mask & (ints)b)); }

/* a0 b0 a1 b1 ..., of the lower or upper halves */
INLINE words zip(words a, words b, bool upper)
{
    const words iota = IOTA;
    return FL_SHUFFLE(a, b, (iota >> 1) + (iota & 1) * LANES + (upper ? LANES / 2 : 0), LANES);
}

/* ---- Philox ---- */

struct group {
    words at[4];
};

/* The words of half a group's blocks, each in the lower half of a lane of 64 bits: products need no shuffles. The upper
** halves are anything. */
struct half {
    longs c0, c1, c2, c3;
};

/* The state that all groups of a call share: the keys of the rounds are computed once. */
struct stream {
    uint64_t counter, keys[10][2];
};

INLINE void stream_open(struct stream *stream, const fl_random_key *key)
{
    uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);
    stream->counter = key->counter;
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        stream->keys[round][0] = k0;
        stream->keys[round][1] = k1;
    }
    __asm__("" : "+m"(*stream)); /* else the compiler computes them in each group again */
}

INLINE void philox_round(struct half *x, const uint64_t *keys)
{
    longs a = multiply_even((words)x->c0, 0xD2511F53u), b = multiply_even((words)x->c2, 0xCD9E8D57u);
    *x = (struct half){(b >> 32) ^ x->c1 ^ keys[0], b, (a >> 32) ^ x->c3 ^ keys[1], a};
}

INLINE struct half philox_begin(const struct stream *stream, uint64_t block)
{
    longs at = (longs){0} + block;
    for (int i = 0; i < LANES / 2; i++) at[i] += (uint64_t)i;
    return (struct half){at, at >> 32, (longs){0} + stream->counter, (longs){0} + (stream->counter >> 32)};
}

/* Lane i of at[j]: word j of block + i. */
INLINE struct group philox(const struct stream *stream, uint64_t block)
{
    const words iota = IOTA, low = 2 * iota;
    struct half x = philox_begin(stream, block), y = philox_begin(stream, block + LANES / 2);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        philox_round(&x, stream->keys[round]);
        philox_round(&y, stream->keys[round]);
    }
    return (struct group){
        {FL_SHUFFLE((words)x.c0, (words)y.c0, low, LANES), FL_SHUFFLE((words)x.c1, (words)y.c1, low, LANES),
         FL_SHUFFLE((words)x.c2, (words)y.c2, low, LANES), FL_SHUFFLE((words)x.c3, (words)y.c3, low, LANES)}};
}

/* Element order: the words of block 0, then of block 1, ... */
INLINE struct group in_order(struct group group)
{
    words low_even = zip(group.at[0], group.at[2], false), low_odd = zip(group.at[1], group.at[3], false);
    words high_even = zip(group.at[0], group.at[2], true), high_odd = zip(group.at[1], group.at[3], true);
    return (struct group){{zip(low_even, low_odd, false), zip(low_even, low_odd, true), zip(high_even, high_odd, false),
                           zip(high_even, high_odd, true)}};
}

/* ---- normals ---- */

/* Natural logarithm of a normal float in (0, 1]; polynomial of Cephes' logf. */
INLINE floats logarithm(floats u)
{
    words bits = (words)u + (0x3f800000u - 0x3f3504f3u);
    floats exponent = to_floats((bits >> 23) - 127);
    floats f = (floats)((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
    floats p = all(7.0376836292e-2f);
    p = fused(p, f, all(-1.1514610310e-1f));
    p = fused(p, f, all(1.1676998740e-1f));
    p = fused(p, f, all(-1.2420140846e-1f));
    p = fused(p, f, all(1.4249322787e-1f));
    p = fused(p, f, all(-1.6668057665e-1f));
    p = fused(p, f, all(2.0000714765e-1f));
    p = fused(p, f, all(-2.4999993993e-1f));
    p = fused(p, f, all(3.3333331174e-1f));
    p = fused(z, all(-0.5f), p * z * f) + f;
    return fused(exponent, all(0.69314718056f), p);
}

/* Cosine and sine of 2 pi times the word's highest 24 bits as a fraction: the nearest quarter turn is taken off in
** integers, the rest is within an eighth of a turn; polynomials of Cephes' sinf. */
INLINE void circle(floats *cosine, floats *sine, words w)
{
    words turn = w >> 8, quarter = (turn + (1u << 21)) >> 22;
    floats x = to_floats(turn - (quarter << 22)) * 3.74507028e-7f, z = x * x; /* 2 pi / 2^24 */
    floats s = fused(fused(all(-1.9515295891e-4f), z, all(8.3321608736e-3f)), z, all(-1.6666654611e-1f));
    floats c = fused(fused(all(2.443315711809948e-5f), z, all(-1.388731625493765e-3f)), z, all(4.166664568298827e-2f));
    s = fused(s * z, x, x);
    c = fused(c * z, z, fused(z, all(-0.5f), all(1.0f)));
    ints odd = (ints)((quarter & 1) != 0);
    *sine = (floats)((words)choose(odd, c, s) ^ (quarter & 2) << 30);
    *cosine = (floats)((words)choose(odd, s, c) ^ ((quarter + 1) & 2) << 30);
}

INLINE void normal_pair(words *a, words *b)
{
    floats cosine, sine, u = to_floats((*a >> 8) + 1) * 0x1p-24f;
    floats radius = square_root(-2.0f * logarithm(u));
    circle(&cosine, &sine, *b);
    *a = (words)(radius * cosine);
    *b = (words)(radius * sine);
}

/* ---- loops ---- */

/* The conversion of a group of words to numbers, in element order. */
struct recipe {
    bool normal;
    int shift; /* -1: the words themselves */
    float scale, low, range;
};

INLINE struct group cook(struct group group, const struct recipe *recipe)
{
    if (recipe->normal) {
        normal_pair(&group.at[0], &group.at[1]);
        normal_pair(&group.at[2], &group.at[3]);
    }
    group = in_order(group);
    if (recipe->shift < 0) return group;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        floats v = recipe->normal ? (floats)group.at[j] : to_floats(group.at[j] >> recipe->shift) * recipe->scale;
        group.at[j] = (words)(v * recipe->range + recipe->low);
    }
    return group;
}

/* Whole groups go straight to `out`; the first one may begin inside a block, the last one may be cut. */
INLINE void fill_from(const struct stream *stream, uint32_t *out, uint64_t first, int64_t n,
                      const struct recipe *recipe)
{
    for (int64_t i = 0; i < n;) {
        int64_t skip = (int64_t)((first + (uint64_t)i) & 3), take = GROUP - skip < n - i ? GROUP - skip : n - i;
        struct group g = cook(philox(stream, (first + (uint64_t)i) >> 2), recipe);
        if (take == GROUP) memcpy(out + i, &g, sizeof g);
        else memcpy(out + i, (const uint32_t *)&g + skip, (size_t)take * sizeof *out);
        i += take;
    }
}

INLINE void fill(uint32_t *out, const fl_random_key *key, uint64_t first, int64_t n, const struct recipe *recipe)
{
    struct stream stream;
    stream_open(&stream, key);
    fill_from(&stream, out, first, n, recipe);
}

static void fill_rows(uint32_t *out, int64_t out_row, const fl_random_key *key, uint64_t first, int64_t row,
                      int64_t rows, int64_t n)
{
    struct stream stream;
    stream_open(&stream, key);
    for (int64_t r = 0; r < rows; r++)
        fill_from(&stream, out + r * out_row, first + (uint64_t)(r * row), n, &(struct recipe){.shift = -1});
}

static void fill_words(uint32_t *out, const fl_random_key *key, uint64_t first, int64_t n)
{
    fill(out, key, first, n, &(struct recipe){.shift = -1});
}

static void fill_uniform(float *out, const fl_random_key *key, uint64_t first, int64_t n, int bits, float low,
                         float range)
{
    fill((uint32_t *)out, key, first, n,
         &(struct recipe){.shift = 32 - bits, .scale = 1.0f / (float)(1u << bits), .low = low, .range = range});
}

static void fill_normal(float *out, const fl_random_key *key, uint64_t first, int64_t n, float mean, float std)
{
    fill((uint32_t *)out, key, first, n, &(struct recipe){.normal = true, .low = mean, .range = std});
}

static void dropout(float *out, const float *in, const fl_random_key *key, uint64_t first, int64_t n,
                    uint32_t threshold, float scale)
{
    struct stream stream;
    stream_open(&stream, key);
    for (int64_t i = 0; i < n;) {
        int64_t skip = (int64_t)((first + (uint64_t)i) & 3), take = GROUP - skip < n - i ? GROUP - skip : n - i;
        struct group g = in_order(philox(&stream, (first + (uint64_t)i) >> 2)), x = {{{0}}};
        memcpy((float *)&x + skip, in + i, (size_t)take * sizeof *in);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) x.at[j] = (words)((floats)x.at[j] * scale) & (words)((g.at[j] >> 8) >= threshold);
        if (take == GROUP) memcpy(out + i, &x, sizeof x);
        else memcpy(out + i, (const float *)&x + skip, (size_t)take * sizeof *out);
        i += take;
    }
}

const fl_random_kernels FL_LV(fl_random_kernels) = {fill_words, fill_rows, fill_uniform, fill_normal, dropout};
