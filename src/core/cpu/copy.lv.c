/*
** copy.lv.c -- moves, register transposes and dtype conversions of one CPU level.
**
** Transposes are written with the compiler's vectors: the same text gives 16 x 16 blocks of floats
** on AVX-512, 8 x 8 on AVX2 and 4 x 4 elsewhere.
*/
#include "copy.h"
#include "float16.h"
#include "shuffle.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Bytes. A vector is a register: gcc carries wider ones through the stack. */
#if defined(FL_LEVEL_avx512)
enum { VECTOR = 64 };
#elif defined(FL_LEVEL_avx2)
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif
enum { LONG_BLOCK = 2048 };
typedef uint8_t bytes_of_vector __attribute__((vector_size(VECTOR)));

static inline __attribute__((always_inline)) void copy_vectors(char *out, const char *in, int count)
{
    bytes_of_vector x[4];
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) memcpy(&x[i], in + i * VECTOR, VECTOR);
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) memcpy(out + i * VECTOR, &x[i], VECTOR);
}

static void block(char *out, const char *in, int64_t bytes)
{
    if (bytes < LONG_BLOCK) {
        memcpy(out, in, (size_t)bytes);
        return;
    }
    int64_t i = VECTOR - (int64_t)((uintptr_t)out & (VECTOR - 1)); /* stores are aligned but for the ends */
    copy_vectors(out, in, 1);
    for (; i + 4 * VECTOR <= bytes; i += 4 * VECTOR) copy_vectors(out + i, in + i, 4);
    for (; i + VECTOR <= bytes; i += VECTOR) copy_vectors(out + i, in + i, 1);
    copy_vectors(out + bytes - VECTOR, in + bytes - VECTOR, 1);
}

#define IOTA_2 \
    {          \
        0, 1   \
    }
#define IOTA_4     \
    {              \
        0, 1, 2, 3 \
    }
#define IOTA_8                 \
    {                          \
        0, 1, 2, 3, 4, 5, 6, 7 \
    }
#define IOTA_16                                              \
    {                                                        \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 \
    }

#if defined(FL_LEVEL_avx512)
#define LANES_4 16
#define LANES_8 8
#define IOTA_OF_4 IOTA_16
#define IOTA_OF_8 IOTA_8
#elif defined(FL_LEVEL_avx2)
#define LANES_4 8
#define LANES_8 4
#define IOTA_OF_4 IOTA_8
#define IOTA_OF_8 IOTA_4
#else
#define LANES_4 4
#define LANES_8 2
#define IOTA_OF_4 IOTA_4
#define IOTA_OF_8 IOTA_2
#endif

#define WORD uint8_t
#define NAME 1
#define LANES 16
#define IOTA IOTA_16
#include "copy_width.inc"

#define WORD uint16_t
#define NAME 2
#define LANES 8
#define IOTA IOTA_8
#include "copy_width.inc"

#define WORD uint32_t
#define NAME 4
#define LANES LANES_4
#define IOTA IOTA_OF_4
#include "copy_width.inc"

#define WORD uint64_t
#define NAME 8
#define LANES LANES_8
#define IOTA IOTA_OF_8
#include "copy_width.inc"

/* Sixteen bytes: one move is a vector already. */
static void move_16(char *out, int64_t out_stride, const char *in, int64_t in_stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) memcpy(out + i * out_stride, in + i * in_stride, 16);
}

static void transpose_16(char *out, int64_t out_row, const char *in, int64_t in_row, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) memcpy(out + r * out_row + c * 16, in + c * in_row + r * 16, 16);
}

static void stream(char *out, const char *in, int64_t bytes)
{
#if defined(FL_LEVEL_avx512)
    for (int64_t i = 0; i < bytes; i += 64) _mm512_stream_si512((void *)(out + i), _mm512_loadu_si512(in + i));
#elif defined(__x86_64__)
    for (int64_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(out + i), _mm_loadu_si128((const __m128i *)(in + i)));
#else
    memcpy(out, in, (size_t)bytes);
#endif
}

static void fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#define LOAD_EACH(to, from, n)                                    \
    do {                                                          \
        const TYPE *elements = from;                              \
        for (int64_t i = 0; i < n; i++) to[i] = GET(elements[i]); \
    } while (0)
#define STORE_EACH(to, from, n)                                           \
    do {                                                                  \
        TYPE *elements = to;                                              \
        for (int64_t i = 0; i < n; i++) elements[i] = PUT_FLOAT(from[i]); \
    } while (0)
#define LOAD_RUN LOAD_EACH
#define STORE_RUN STORE_EACH

#define TYPE uint8_t
#define NAME boolean
#define THROUGH int64_t
#define GET(x) ((x) != 0)
#define PUT_INT64(v) ((v) != 0)
#define PUT_FLOAT(v) ((v) != 0)
#define PUT_DOUBLE(v) ((v) != 0)
#include "copy_dtype.inc"

#define TYPE uint8_t
#define NAME uint8
#define THROUGH int64_t
#define GET(x) (x)
#define PUT_INT64(v) ((uint8_t)(v))
#define PUT_FLOAT(v) ((uint8_t)(int64_t)(v))
#define PUT_DOUBLE(v) ((uint8_t)(int64_t)(v))
#include "copy_dtype.inc"

#define TYPE int8_t
#define NAME int8
#define THROUGH int64_t
#define GET(x) (x)
#define PUT_INT64(v) ((int8_t)(v))
#define PUT_FLOAT(v) ((int8_t)(int64_t)(v))
#define PUT_DOUBLE(v) ((int8_t)(int64_t)(v))
#include "copy_dtype.inc"

#define TYPE int32_t
#define NAME int32
#define THROUGH int64_t
#define GET(x) (x)
#define PUT_INT64(v) ((int32_t)(v))
#define PUT_FLOAT(v) ((int32_t)(int64_t)(v))
#define PUT_DOUBLE(v) ((int32_t)(int64_t)(v))
#include "copy_dtype.inc"

#define TYPE int64_t
#define NAME int64
#define THROUGH int64_t
#define GET(x) (x)
#define PUT_INT64(v) (v)
#define PUT_FLOAT(v) ((int64_t)(v))
#define PUT_DOUBLE(v) ((int64_t)(v))
#include "copy_dtype.inc"

#undef LOAD_RUN
#undef STORE_RUN
#define LOAD_RUN fl_float16_widen
#define STORE_RUN fl_float16_narrow
#define TYPE fl_float16
#define NAME float16
#define THROUGH float
#define GET(x) fl_float16_to_float(x)
#define PUT_INT64(v) fl_float16_from_float((float)(v))
#define PUT_FLOAT(v) fl_float16_from_float(v)
#define PUT_DOUBLE(v) fl_float16_from_float((float)(v))
#include "copy_dtype.inc"
#undef LOAD_RUN
#undef STORE_RUN
#define LOAD_RUN LOAD_EACH
#define STORE_RUN STORE_EACH

#define TYPE fl_bfloat16
#define NAME bfloat16
#define THROUGH float
#define GET(x) fl_bfloat16_to_float(x)
#define PUT_INT64(v) fl_bfloat16_from_float((float)(v))
#define PUT_FLOAT(v) fl_bfloat16_from_float(v)
#define PUT_DOUBLE(v) fl_bfloat16_from_float((float)(v))
#include "copy_dtype.inc"

#define TYPE float
#define NAME float32
#define THROUGH float
#define GET(x) (x)
#define PUT_INT64(v) ((float)(v))
#define PUT_FLOAT(v) (v)
#define PUT_DOUBLE(v) ((float)(v))
#include "copy_dtype.inc"

#define TYPE double
#define NAME float64
#define THROUGH double
#define GET(x) (x)
#define PUT_INT64(v) ((double)(v))
#define PUT_FLOAT(v) ((double)(v))
#define PUT_DOUBLE(v) (v)
#include "copy_dtype.inc"

#define ALL_DTYPES(name)                                                                                        \
    {                                                                                                           \
        name##_boolean, name##_uint8, name##_int8, name##_int32, name##_int64, name##_float16, name##_bfloat16, \
            name##_float32, name##_float64                                                                      \
    }

const fl_copy_kernels FL_LV(fl_copy_kernels) = {
    .move = {move_1, move_2, move_4, move_8, move_16},
    .transpose = {transpose_1, transpose_2, transpose_4, transpose_8, transpose_16},
    .block = block,
    .stream = stream,
    .fence = fence,
    .load = ALL_DTYPES(load),
    .store = {ALL_DTYPES(store_int64), ALL_DTYPES(store_float), ALL_DTYPES(store_double)},
};
