/*
** simd.h -- one vector of floats and one of doubles, as wide as the level allows.
**
** Included by .lv.c files only. vf_* work on VF_W floats, vd_* on VD_W doubles, with equal names, so a .inc
** file can be included once per type (FL_V(load) is vf_load or vd_load). `part` variants touch only
** the first n lanes and read zeros for the rest: tails go through the same arithmetic as full vectors.
*/
#ifndef FL_SIMD_H
#define FL_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined __SSE2__
#include <immintrin.h>
#endif

#define FL_INLINE static inline __attribute__((always_inline))

#if defined FL_LEVEL_avx512

enum { VF_W = 16, VD_W = 8 };
typedef __m512 vf;
typedef __m512d vd;

FL_INLINE __mmask16 vf_first(int n) { return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u); }
FL_INLINE __mmask8 vd_first(int n) { return (__mmask8)(n >= 8 ? 0xffu : (1u << n) - 1u); }

FL_INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
FL_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
FL_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
FL_INLINE vf vf_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps(vf_first(n), p); }
FL_INLINE void vf_store_part(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, vf_first(n), x); }
FL_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
FL_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
FL_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
FL_INLINE vf vf_abs(vf x) { return _mm512_abs_ps(x); }
FL_INLINE vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
FL_INLINE float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
FL_INLINE float vf_top(vf x) { return _mm512_reduce_max_ps(x); }
/* Not 0 where a lane of a or of b is NaN. */
FL_INLINE unsigned vf_nans(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
/* The lanes from n on become `fill`. */
FL_INLINE vf vf_keep(vf x, int n, float fill) { return _mm512_mask_mov_ps(_mm512_set1_ps(fill), vf_first(n), x); }
FL_INLINE vf vf_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FL_INLINE vf vf_scale2(vf x, vf k) { return _mm512_scalef_ps(x, k); }

/* Lanes [from, to) of memory, 0 in the others, which are not read. */
FL_INLINE vf vf_load_between(const float *p, int from, int to)
{
    return _mm512_maskz_loadu_ps((__mmask16)(vf_first(to) & ~vf_first(from)), p);
}
FL_INLINE vd vd_load_between(const double *p, int from, int to)
{
    return _mm512_maskz_loadu_pd((__mmask8)(vd_first(to) & ~vd_first(from)), p);
}

FL_INLINE vd vd_set(double x) { return _mm512_set1_pd(x); }
FL_INLINE vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
FL_INLINE void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }
FL_INLINE vd vd_load_part(const double *p, int n) { return _mm512_maskz_loadu_pd(vd_first(n), p); }
FL_INLINE void vd_store_part(double *p, vd x, int n) { _mm512_mask_storeu_pd(p, vd_first(n), x); }
FL_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
FL_INLINE vd vd_max(vd a, vd b) { return _mm512_max_pd(a, b); }
FL_INLINE vd vd_min(vd a, vd b) { return _mm512_min_pd(a, b); }
FL_INLINE vd vd_abs(vd x) { return _mm512_abs_pd(x); }
FL_INLINE vd vd_sqrt(vd x) { return _mm512_sqrt_pd(x); }
FL_INLINE double vd_sum(vd x) { return _mm512_reduce_add_pd(x); }
FL_INLINE double vd_top(vd x) { return _mm512_reduce_max_pd(x); }
FL_INLINE unsigned vd_nans(vd a, vd b) { return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q); }
FL_INLINE vd vd_keep(vd x, int n, double fill) { return _mm512_mask_mov_pd(_mm512_set1_pd(fill), vd_first(n), x); }

#elif defined FL_LEVEL_avx2

enum { VF_W = 8, VD_W = 4 };
typedef __m256 vf;
typedef __m256d vd;

FL_INLINE __m256i vf_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FL_INLINE __m256i vd_first(int n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }

FL_INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
FL_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
FL_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
FL_INLINE vf vf_load_part(const float *p, int n) { return _mm256_maskload_ps(p, vf_first(n)); }
FL_INLINE void vf_store_part(float *p, vf x, int n) { _mm256_maskstore_ps(p, vf_first(n), x); }
FL_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
FL_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
FL_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
FL_INLINE vf vf_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
FL_INLINE vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
FL_INLINE float vf_sum(vf x)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
FL_INLINE float vf_top(vf x)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
FL_INLINE unsigned vf_nans(vf a, vf b) { return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)); }
FL_INLINE vf vf_keep(vf x, int n, float fill)
{
    return _mm256_blendv_ps(_mm256_set1_ps(fill), x, _mm256_castsi256_ps(vf_first(n)));
}
FL_INLINE vf vf_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2^k for whole k in [-252, 254]: two steps, so that subnormal results come out right. */
FL_INLINE vf vf_scale2(vf x, vf k)
{
    __m256i n = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half),
            bias = _mm256_set1_epi32(127);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

FL_INLINE vf vf_load_between(const float *p, int from, int to)
{
    return _mm256_maskload_ps(p, _mm256_andnot_si256(vf_first(from), vf_first(to)));
}
FL_INLINE vd vd_load_between(const double *p, int from, int to)
{
    return _mm256_maskload_pd(p, _mm256_andnot_si256(vd_first(from), vd_first(to)));
}

FL_INLINE vd vd_set(double x) { return _mm256_set1_pd(x); }
FL_INLINE vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
FL_INLINE void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }
FL_INLINE vd vd_load_part(const double *p, int n) { return _mm256_maskload_pd(p, vd_first(n)); }
FL_INLINE void vd_store_part(double *p, vd x, int n) { _mm256_maskstore_pd(p, vd_first(n), x); }
FL_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
FL_INLINE vd vd_max(vd a, vd b) { return _mm256_max_pd(a, b); }
FL_INLINE vd vd_min(vd a, vd b) { return _mm256_min_pd(a, b); }
FL_INLINE vd vd_abs(vd x) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x); }
FL_INLINE vd vd_sqrt(vd x) { return _mm256_sqrt_pd(x); }
FL_INLINE double vd_sum(vd x)
{
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}
FL_INLINE double vd_top(vd x)
{
    __m128d h = _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_max_sd(h, _mm_unpackhi_pd(h, h)));
}
FL_INLINE unsigned vd_nans(vd a, vd b) { return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_UNORD_Q)); }
FL_INLINE vd vd_keep(vd x, int n, double fill)
{
    return _mm256_blendv_pd(_mm256_set1_pd(fill), x, _mm256_castsi256_pd(vd_first(n)));
}

#else

enum { VF_W = 4, VD_W = 2 };
typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));

#define FL_SIMD_BASE(T, V, W)                                                                      \
    FL_INLINE V V##_set(T x)                                                                       \
    {                                                                                              \
        V r;                                                                                       \
        for (int i = 0; i < W; i++) r[i] = x;                                                      \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_load(const T *p)                                                               \
    {                                                                                              \
        V r;                                                                                       \
        memcpy(&r, p, sizeof r);                                                                   \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE void V##_store(T *p, V x) { memcpy(p, &x, sizeof x); }                               \
    FL_INLINE V V##_load_part(const T *p, int n)                                                   \
    {                                                                                              \
        V r = {0};                                                                                 \
        for (int i = 0; i < W; i++)                                                                \
            if (i < n) r[i] = p[i];                                                                \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_load_between(const T *p, int from, int to)                                     \
    {                                                                                              \
        V r = {0};                                                                                 \
        for (int i = 0; i < W; i++)                                                                \
            if (i >= from && i < to) r[i] = p[i];                                                  \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE void V##_store_part(T *p, V x, int n)                                                \
    {                                                                                              \
        for (int i = 0; i < W; i++)                                                                \
            if (i < n) p[i] = x[i];                                                                \
    }                                                                                              \
    FL_INLINE V V##_fma(V a, V b, V c) { return a * b + c; }                                       \
    FL_INLINE V V##_max(V a, V b)                                                                  \
    {                                                                                              \
        V r;                                                                                       \
        for (int i = 0; i < W; i++) r[i] = a[i] > b[i] ? a[i] : b[i];                              \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_min(V a, V b)                                                                  \
    {                                                                                              \
        V r;                                                                                       \
        for (int i = 0; i < W; i++) r[i] = a[i] < b[i] ? a[i] : b[i];                              \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_abs(V x)                                                                       \
    {                                                                                              \
        for (int i = 0; i < W; i++) x[i] = (T)fabs(x[i]);                                          \
        return x;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_sqrt(V x)                                                                      \
    {                                                                                              \
        for (int i = 0; i < W; i++) x[i] = sizeof(T) == 4 ? (T)sqrtf((float)x[i]) : (T)sqrt(x[i]); \
        return x;                                                                                  \
    }                                                                                              \
    FL_INLINE unsigned V##_nans(V a, V b)                                                          \
    {                                                                                              \
        unsigned r = 0;                                                                            \
        for (int i = 0; i < W; i++) r |= (unsigned)((a[i] != a[i]) | (b[i] != b[i]));              \
        return r;                                                                                  \
    }                                                                                              \
    FL_INLINE V V##_keep(V x, int n, T fill)                                                       \
    {                                                                                              \
        V r;                                                                                       \
        for (int i = 0; i < W; i++) r[i] = i < n ? x[i] : fill;                                    \
        return r;                                                                                  \
    }

FL_SIMD_BASE(float, vf, VF_W)
FL_SIMD_BASE(double, vd, VD_W)
#undef FL_SIMD_BASE

FL_INLINE float vf_sum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
FL_INLINE float vf_top(vf x)
{
    float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
    return a > b ? a : b;
}
FL_INLINE double vd_sum(vd x) { return x[0] + x[1]; }
FL_INLINE double vd_top(vd x) { return x[0] > x[1] ? x[0] : x[1]; }

#endif

/* As many 64-bit integers as doubles; sums and products wrap around. */
typedef uint64_t vi __attribute__((vector_size(8 * VD_W)));

FL_INLINE vi vi_load(const uint64_t *p)
{
    vi r;
    memcpy(&r, p, sizeof r);
    return r;
}
FL_INLINE void vi_store(uint64_t *p, vi x) { memcpy(p, &x, sizeof x); }
FL_INLINE vi vi_set(uint64_t x) { return x - (vi){0}; }
FL_INLINE vi vi_load_part(const uint64_t *p, int n)
{
    vi r = {0};
    memcpy(&r, p, sizeof(uint64_t) * (size_t)n);
    return r;
}
FL_INLINE void vi_store_part(uint64_t *p, vi x, int n) { memcpy(p, &x, sizeof(uint64_t) * (size_t)n); }
FL_INLINE vi vi_fma(vi a, vi b, vi c) { return a * b + c; }

/* e^x. AVX levels: within 2 ulp (Cephes' polynomial, the argument reduced in two steps); -inf gives 0, overflow
** inf, NaN stays NaN. */
#if defined FL_LEVEL_avx512 || defined FL_LEVEL_avx2
FL_INLINE vf vf_exp(vf x)
{
#if defined FL_LEVEL_avx512
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), x));
#else
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-105.0f), x));
#endif
    vf k = vf_round(x * vf_set(1.44269504f));
    vf r = vf_fma(k, vf_set(-0.693359375f), x);
    r = vf_fma(k, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p * r, r, r + vf_set(1.0f));
    return vf_scale2(p, k);
}
#else
FL_INLINE vf vf_exp(vf x)
{
    for (int i = 0; i < VF_W; i++) x[i] = expf(x[i]);
    return x;
}
#endif

/* As vf_exp, with Taylor's polynomial; 2^k is made of the low bits of what rounded x / ln(2). */
#if defined FL_LEVEL_avx512 || defined FL_LEVEL_avx2
typedef int64_t vd_bits __attribute__((vector_size(sizeof(vd))));

FL_INLINE vd vd_exp(vd x)
{
    static const double terms[] = {1.6059043836821613e-10, 2.0876756987868099e-09, 2.5052108385441719e-08,
                                   2.7557319223985891e-07, 2.7557319223985893e-06, 2.4801587301587302e-05,
                                   1.9841269841269841e-04, 1.3888888888888889e-03, 8.3333333333333333e-03,
                                   4.1666666666666667e-02, 1.6666666666666667e-01, 0.5};
#if defined FL_LEVEL_avx512
    x = _mm512_min_pd(_mm512_set1_pd(710), _mm512_max_pd(_mm512_set1_pd(-746), x));
#else
    x = _mm256_min_pd(_mm256_set1_pd(710), _mm256_max_pd(_mm256_set1_pd(-746), x));
#endif
    vd rounder = vd_set(6755399441055744.0), shifted = x * vd_set(1.4426950408889634) + rounder, k = shifted - rounder;
    vd r = vd_fma(k, vd_set(-1.90821492927058770002e-10), vd_fma(k, vd_set(-6.93147180369123816490e-01), x));
    vd p = vd_set(terms[0]);
    for (size_t i = 1; i < sizeof terms / sizeof *terms; i++) p = vd_fma(p, r, vd_set(terms[i]));
    p = vd_fma(p, r * r, r) + vd_set(1.0);
    vd_bits whole = (vd_bits)shifted - (vd_bits)rounder, half = ((whole + 4096) >> 1) - 2048;
    return p * (vd)((half + 1023) << 52) * (vd)((whole - half + 1023) << 52);
}
#else
FL_INLINE vd vd_exp(vd x)
{
    double lane[VD_W];
    vd_store(lane, x);
    for (int i = 0; i < VD_W; i++) lane[i] = exp(lane[i]);
    return vd_load(lane);
}
#endif

#endif
