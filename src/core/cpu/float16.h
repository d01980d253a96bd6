/*
** float16.h -- arrays of float16 as floats and back, by the processor's own instructions where the level has them.
**
** Included by .lv.c files only. Values are those of base/dtype.h, but for the payload of a NaN; an element has the same
** bits wherever it falls.
*/
#ifndef FL_CPU_FLOAT16_H
#define FL_CPU_FLOAT16_H

#include "base/dtype.h"

#if defined FL_LEVEL_avx512 || defined FL_LEVEL_avx2
#include <immintrin.h>
#endif

#if defined FL_LEVEL_avx512

enum { FL_FLOAT16_RUN = 16 };

static inline __m256i fl_float16_of(__m512 x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline void fl_float16_widen_run(float *to, const fl_float16 *from)
{
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)));
}

static inline void fl_float16_narrow_run(fl_float16 *to, const float *from)
{
    _mm256_storeu_si256((__m256i *)to, fl_float16_of(_mm512_loadu_ps(from)));
}

/* Only what is less than a run is masked: the processor does not forward a masked store to the load that follows. */
static inline void fl_float16_widen_some(float *to, const fl_float16 *from, int64_t n)
{
    __mmask16 some = (__mmask16)((1u << n) - 1u);
    _mm512_mask_storeu_ps(to, some, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from)));
}

static inline void fl_float16_narrow_some(fl_float16 *to, const float *from, int64_t n)
{
    __mmask16 some = (__mmask16)((1u << n) - 1u);
    _mm256_mask_storeu_epi16(to, some, fl_float16_of(_mm512_maskz_loadu_ps(some, from)));
}

#elif defined FL_LEVEL_avx2

enum { FL_FLOAT16_RUN = 8 };

static inline void fl_float16_widen_run(float *to, const fl_float16 *from)
{
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
}

static inline void fl_float16_narrow_run(fl_float16 *to, const float *from)
{
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}

static inline void fl_float16_widen_some(float *to, const fl_float16 *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = _cvtsh_ss(from[i]);
}

static inline void fl_float16_narrow_some(fl_float16 *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

#else

enum { FL_FLOAT16_RUN = 1 };

static inline void fl_float16_widen_run(float *to, const fl_float16 *from) { *to = fl_float16_to_float(*from); }
static inline void fl_float16_narrow_run(fl_float16 *to, const float *from) { *to = fl_float16_from_float(*from); }
static inline void fl_float16_widen_some(float *to, const fl_float16 *from, int64_t n) {}
static inline void fl_float16_narrow_some(fl_float16 *to, const float *from, int64_t n) {}

#endif

static inline void fl_float16_widen(float *restrict to, const fl_float16 *restrict from, int64_t n)
{
    int64_t i = 0;
    for (; i + FL_FLOAT16_RUN <= n; i += FL_FLOAT16_RUN) fl_float16_widen_run(to + i, from + i);
    if (i < n) fl_float16_widen_some(to + i, from + i, n - i);
}

static inline void fl_float16_narrow(fl_float16 *restrict to, const float *restrict from, int64_t n)
{
    int64_t i = 0;
    for (; i + FL_FLOAT16_RUN <= n; i += FL_FLOAT16_RUN) fl_float16_narrow_run(to + i, from + i);
    if (i < n) fl_float16_narrow_some(to + i, from + i, n - i);
}

#endif
