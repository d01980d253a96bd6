/*
** convert.lv.c -- the loops of one CPU level that convert contiguous elements, without a buffer between the two.
**
** A value becomes what copy.lv.c makes of it: integers wrap, floats are cut towards zero, anything not 0 is true.
** float16 goes through float32.
*/
#include "convert.h"
#include "float16.h"

enum { RUN = 512 }; /* elements that go through float32 at a time */

typedef uint8_t type_boolean, type_uint8;
typedef int8_t type_int8;
typedef int32_t type_int32;
typedef int64_t type_int64;
typedef fl_bfloat16 type_bfloat16;
typedef float type_float32;
typedef double type_float64;

#define GET_boolean(x) ((x) != 0)
#define GET_uint8(x) ((int32_t)(x))
#define GET_int8(x) ((int32_t)(x))
#define GET_int32(x) (x)
#define GET_int64(x) (x)
#define GET_bfloat16(x) fl_bfloat16_to_float(x)
#define GET_float32(x) (x)
#define GET_float64(x) (x)

#define PUT_boolean(v) ((v) != 0)
#define PUT_uint8(v) ((uint8_t)(int64_t)(v))
#define PUT_int8(v) ((int8_t)(int64_t)(v))
#define PUT_int32(v) ((int32_t)(int64_t)(v))
#define PUT_int64(v) ((int64_t)(v))
#define PUT_bfloat16(v) fl_bfloat16_from_float((float)(v))
#define PUT_float32(v) ((float)(v))
#define PUT_float64(v) ((double)(v))

#define PAIR(from, to)                                                     \
    static void from##_##to(void *out, const void *in, int64_t n)          \
    {                                                                      \
        type_##to *restrict y = out;                                       \
        const type_##from *restrict x = in;                                \
        for (int64_t i = 0; i < n; i++) y[i] = PUT_##to(GET_##from(x[i])); \
    }

/* Every dtype but float16. */
#define EACH(X, from) \
    X(from, boolean)  \
    X(from, uint8) X(from, int8) X(from, int32) X(from, int64) X(from, bfloat16) X(from, float32) X(from, float64)

EACH(PAIR, boolean)
EACH(PAIR, uint8)
EACH(PAIR, int8)
EACH(PAIR, int32)
EACH(PAIR, int64)
EACH(PAIR, bfloat16)
EACH(PAIR, float32)
EACH(PAIR, float64)

/* ---- float16 ---- */

static void float32_float16(void *out, const void *in, int64_t n) { fl_float16_narrow(out, in, n); }
static void float16_float32(void *out, const void *in, int64_t n) { fl_float16_widen(out, in, n); }
static void float16_float16(void *out, const void *in, int64_t n) { memcpy(out, in, (size_t)n * sizeof(fl_float16)); }

#define TO_FLOAT16(from)                                             \
    static void from##_float16(void *out, const void *in, int64_t n) \
    {                                                                \
        float run[RUN];                                              \
        for (int64_t i = 0; i < n; i += RUN) {                       \
            int64_t some = n - i < RUN ? n - i : RUN;                \
            from##_float32(run, (const type_##from *)in + i, some);  \
            fl_float16_narrow((fl_float16 *)out + i, run, some);     \
        }                                                            \
    }
#define OF_FLOAT16(to)                                               \
    static void float16_##to(void *out, const void *in, int64_t n)   \
    {                                                                \
        float run[RUN];                                              \
        for (int64_t i = 0; i < n; i += RUN) {                       \
            int64_t some = n - i < RUN ? n - i : RUN;                \
            fl_float16_widen(run, (const fl_float16 *)in + i, some); \
            float32_##to((type_##to *)out + i, run, some);           \
        }                                                            \
    }
#define THROUGH_FLOAT32(dtype) TO_FLOAT16(dtype) OF_FLOAT16(dtype)
THROUGH_FLOAT32(boolean)
THROUGH_FLOAT32(uint8)
THROUGH_FLOAT32(int8)
THROUGH_FLOAT32(int32)
THROUGH_FLOAT32(int64)
THROUGH_FLOAT32(bfloat16)
THROUGH_FLOAT32(float64)

/* ---- the table ---- */

#define TO_ALL(from)                                                                                               \
    {                                                                                                              \
        [FL_BOOL] = from##_boolean, [FL_UINT8] = from##_uint8, [FL_INT8] = from##_int8, [FL_INT32] = from##_int32, \
        [FL_INT64] = from##_int64, [FL_FLOAT16] = from##_float16, [FL_BFLOAT16] = from##_bfloat16,                 \
        [FL_FLOAT32] = from##_float32, [FL_FLOAT64] = from##_float64                                               \
    }

const fl_convert_loop FL_LV(fl_convert_loops)[FL_DTYPE_COUNT][FL_DTYPE_COUNT] = {
    [FL_BOOL] = TO_ALL(boolean),      [FL_UINT8] = TO_ALL(uint8),     [FL_INT8] = TO_ALL(int8),
    [FL_INT32] = TO_ALL(int32),       [FL_INT64] = TO_ALL(int64),     [FL_FLOAT16] = TO_ALL(float16),
    [FL_BFLOAT16] = TO_ALL(bfloat16), [FL_FLOAT32] = TO_ALL(float32), [FL_FLOAT64] = TO_ALL(float64),
};
