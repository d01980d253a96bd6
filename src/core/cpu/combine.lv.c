/*
** combine.lv.c -- the arithmetic of collectives for one CPU level.
*/
#include "combine.h"
#include "simd.h"

/* Elements at a time. Past the caches few, so that reading and writing alternate without a pause (64 MiB on two cores
** in
** 2.4 ms, with 2048 in 3.5); into the caches many, because memcpy then takes over lines of other cores without reading
** them first (1 MiB in 30 us, with 512 in 90). */
enum { TILE = 2048, STREAM_TILE = 512 };

/* A tile to where it belongs. */
static inline void put(void *out, const void *tile, size_t bytes, bool stream)
{
#if defined FL_LEVEL_avx512
    if (stream && ((uintptr_t)out & 63) == 0 && (bytes & 63) == 0) {
        for (size_t i = 0; i < bytes; i += 64)
            _mm512_stream_si512((__m512i *)((char *)out + i),
                                _mm512_load_si512((const __m512i *)((const char *)tile + i)));
        return;
    }
#elif defined FL_LEVEL_avx2
    if (stream && ((uintptr_t)out & 31) == 0 && (bytes & 31) == 0) {
        for (size_t i = 0; i < bytes; i += 32)
            _mm256_stream_si256((__m256i *)((char *)out + i),
                                _mm256_load_si256((const __m256i *)((const char *)tile + i)));
        return;
    }
#endif
    memcpy(out, tile, bytes);
}

/* Stores that bypass the caches are visible before any later store. */
static inline void fence(void)
{
#if defined FL_LEVEL_avx512 || defined FL_LEVEL_avx2
    _mm_sfence();
#endif
}

#define SAME(x) (x)
/* whole numbers wrap, as in the kernels: computed without sign */
#define WRAP(type, a, op, b) ((type)((uint64_t)(a)op(uint64_t)(b)))
#define WHOLE_MAX(a, b) ((a) > (b) ? (a) : (b))
#define WHOLE_MIN(a, b) ((a) < (b) ? (a) : (b))
/* a NaN compares false with everything: the one that is no number stays */
#define REAL_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define REAL_MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define NAME truth
#define TYPE uint8_t
#define WIDE uint8_t
#define LOAD SAME
#define STORE(w) ((w) != 0)
#define ADD(a, b) WRAP(uint8_t, a, +, b)
#define MUL(a, b) WRAP(uint8_t, a, *, b)
#define MAX WHOLE_MAX
#define MIN WHOLE_MIN
#include "combine.inc"

#define NAME uint8
#define TYPE uint8_t
#define WIDE uint8_t
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) WRAP(uint8_t, a, +, b)
#define MUL(a, b) WRAP(uint8_t, a, *, b)
#define MAX WHOLE_MAX
#define MIN WHOLE_MIN
#include "combine.inc"

#define NAME int8
#define TYPE int8_t
#define WIDE int8_t
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) WRAP(int8_t, a, +, b)
#define MUL(a, b) WRAP(int8_t, a, *, b)
#define MAX WHOLE_MAX
#define MIN WHOLE_MIN
#include "combine.inc"

#define NAME int32
#define TYPE int32_t
#define WIDE int32_t
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) WRAP(int32_t, a, +, b)
#define MUL(a, b) WRAP(int32_t, a, *, b)
#define MAX WHOLE_MAX
#define MIN WHOLE_MIN
#include "combine.inc"

#define NAME int64
#define TYPE int64_t
#define WIDE int64_t
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) WRAP(int64_t, a, +, b)
#define MUL(a, b) WRAP(int64_t, a, *, b)
#define MAX WHOLE_MAX
#define MIN WHOLE_MIN
#include "combine.inc"

#define NAME float16
#define TYPE fl_float16
#define WIDE float
#define LOAD fl_float16_to_float
#define STORE fl_float16_from_float
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX REAL_MAX
#define MIN REAL_MIN
#include "combine.inc"

#define NAME bfloat16
#define TYPE fl_bfloat16
#define WIDE float
#define LOAD fl_bfloat16_to_float
#define STORE fl_bfloat16_from_float
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX REAL_MAX
#define MIN REAL_MIN
#include "combine.inc"

#define NAME float32
#define TYPE float
#define WIDE float
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX REAL_MAX
#define MIN REAL_MIN
#include "combine.inc"

#define NAME float64
#define TYPE double
#define WIDE double
#define LOAD SAME
#define STORE SAME
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX REAL_MAX
#define MIN REAL_MIN
#include "combine.inc"

const fl_combine_kernels FL_LV(fl_combine_kernels) = {{
    [FL_BOOL] = combine_truth,
    [FL_UINT8] = combine_uint8,
    [FL_INT8] = combine_int8,
    [FL_INT32] = combine_int32,
    [FL_INT64] = combine_int64,
    [FL_FLOAT16] = combine_float16,
    [FL_BFLOAT16] = combine_bfloat16,
    [FL_FLOAT32] = combine_float32,
    [FL_FLOAT64] = combine_float64,
}};
