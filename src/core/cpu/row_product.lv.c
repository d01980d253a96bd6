/*
** row_product.lv.c -- one row by a matrix, of one CPU level: see row_product.h.
**
** Rows of B: some columns of C are summed at once, eight rows at a time, in the order of fl_gemm_fn. Columns of B: each
** element is a dot product, summed in lanes, GROUP of them at a time.
*/
#include "row_product.h"
#include "simd.h"

enum { DEPTH = 512, COLUMNS = 1024 };               /* DEPTH: as in gemm.lv.c, where sums begin anew */
enum { COLUMN_DEPTH = 4096, GROUP = 4, AHEAD = 8 }; /* of columns of B: the same; number read at a time */
enum { FETCHED_FROM = 256 << 10 };                  /* bytes of a matrix that does not stay in the L2 */

#define T float
#define VEC vf
#define WIDTH VF_W
#define FL_V(name) vf_##name
#define B float
#define LOAD(p) vf_load(p)
#define LOAD_PART(p, n) vf_load_part(p, n)
#define FMA fmaf
#define NAME(name) name##_f32
#include "row_product.inc"

#define T double
#define VEC vd
#define WIDTH VD_W
#define FL_V(name) vd_##name
#define B double
#define LOAD(p) vd_load(p)
#define LOAD_PART(p, n) vd_load_part(p, n)
#define FMA fma
#define NAME(name) name##_f64
#include "row_product.inc"

/* ---- matrices of 16 bits ---- */

#define PART_OF_16(load)                               \
    FL_INLINE vf load##_part(const uint16_t *p, int n) \
    {                                                  \
        uint16_t all[VF_W] = {0};                      \
        if (n == VF_W) return load(p);                 \
        memcpy(all, p, sizeof(uint16_t) * (size_t)n);  \
        return load(all);                              \
    }

#if defined FL_LEVEL_avx512
FL_INLINE vf load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
FL_INLINE vf load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
#elif defined FL_LEVEL_avx2
FL_INLINE vf load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
FL_INLINE vf load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
#else
#define LOAD_16(load, convert)                                 \
    FL_INLINE vf load(const uint16_t *p)                       \
    {                                                          \
        float all[VF_W];                                       \
        for (int i = 0; i < VF_W; i++) all[i] = convert(p[i]); \
        return vf_load(all);                                   \
    }
LOAD_16(load_bf16, fl_bfloat16_to_float)
LOAD_16(load_f16, fl_float16_to_float)
#undef LOAD_16
#endif

PART_OF_16(load_bf16)
PART_OF_16(load_f16)
#undef PART_OF_16

#define T float
#define VEC vf
#define WIDTH VF_W
#define FL_V(name) vf_##name
#define B uint16_t
#define LOAD(p) load_bf16(p)
#define LOAD_PART(p, n) load_bf16_part(p, n)
#define FMA fmaf
#define NAME(name) name##_bf16
#include "row_product.inc"

#define T float
#define VEC vf
#define WIDTH VF_W
#define FL_V(name) vf_##name
#define B uint16_t
#define LOAD(p) load_f16(p)
#define LOAD_PART(p, n) load_f16_part(p, n)
#define FMA fmaf
#define NAME(name) name##_f16
#include "row_product.inc"
