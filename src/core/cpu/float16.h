/*
** float16.h -- runs of float16 as floats and back, by the processor's own instructions where the level has them.
**
** Included by .lv.c files only. Values are those of base/dtype.h, but for the payload of a NaN; an element has the same
** bits wherever it falls in a run.
*/
#ifndef FL_CPU_FLOAT16_H
#define FL_CPU_FLOAT16_H

#include "base/dtype.h"

#if defined FL_LEVEL_avx512 || defined FL_LEVEL_avx2
#include <immintrin.h>
#endif

#if defined FL_LEVEL_avx512

static inline __mmask16 fl_float16_rest(int64_t n) { return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u); }

static inline void fl_float16_widen(float *restrict to, const fl_float16 *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 some = fl_float16_rest(n - i);
        _mm512_mask_storeu_ps(to + i, some, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from + i)));
    }
}

static inline void fl_float16_narrow(fl_float16 *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 some = fl_float16_rest(n - i);
        __m512 x = _mm512_maskz_loadu_ps(some, from + i);
        _mm256_mask_storeu_epi16(to + i, some, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
}

#elif defined FL_LEVEL_avx2

static inline void fl_float16_widen(float *restrict to, const fl_float16 *restrict from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    for (; i < n; i++) to[i] = _cvtsh_ss(from[i]);
}

static inline void fl_float16_narrow(fl_float16 *restrict to, const float *restrict from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

#else

static inline void fl_float16_widen(float *restrict to, const fl_float16 *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = fl_float16_to_float(from[i]);
}

static inline void fl_float16_narrow(fl_float16 *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = fl_float16_from_float(from[i]);
}

#endif

#endif
