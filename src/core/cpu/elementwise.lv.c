/*
** elementwise.lv.c -- the loops of all elementwise rows, once per level.
**
** Loops rely on the compiler's vectoriser: rows are branch-free expressions, and "ivdep" says what in-place use
** guarantees, that out is one of the inputs exactly or apart from them all.
*/
#include "elementwise.h"
#include "float16.h"
#include "op/elementwise_classes.h"
#include "vmath.h"
#ifdef FL_LEVEL_avx512
#include "vmath_vectors.h"
#endif

#define FL_FORMULA FL_VMATH
/* Processors have no vectors of integer quotients; a quotient of integers below 2^53 that is no integer is far enough
** from the next one to be on the right side of it as a double. */
#define FL_QUOTIENT(x, y) ((T)(sizeof(T) <= sizeof(int32_t) ? (int32_t)((double)(x) / (double)(y)) : (x) / (y)))
#define INDEPENDENT _Pragma("GCC ivdep")

enum { POWERS_AT_ONCE = 64 };

/* Gradients of powers: _LESS is subtracted from the exponent; _SPECIALISED: the usual ones have loops, as for x^2. */
enum { pow_backward_LESS = 1, pow_backward_exponent_LESS = 0 };
enum { pow_backward_SPECIALISED = 1, pow_backward_exponent_SPECIALISED = 0 };

#define T float
#define S float
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#ifdef FL_LEVEL_avx512
#define HAS_VECTORS
#endif
#define U uint32_t
#define FN(name) FL_PASTE(name, f32)
#define M(name) fl_##name##_f32
#define FAR(id) id##f
#define CLASS F
#define IS_FLOAT 1
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"
#undef FAR

#ifdef FL_LEVEL_base

#define NARROW_LOOPS(id, cost) [FL_BFLOAT16] = NULL

#else

/* Beside a function the conversions to float and back cost nothing: rows from half a nanosecond on go without. */
#define NARROW_LOOPS(id, cost)                                 \
    [FL_FLOAT16] = (cost) < 0.5 ? (fl_ew_loop)id##_f16 : NULL, \
    [FL_BFLOAT16] = (cost) < 0.5 ? (fl_ew_loop)id##_bf16 : NULL

#define T float
#define S fl_bfloat16
#define GET(x) fl_bfloat16_to_float(x)
#define PUT(v) fl_bfloat16_from_float(v)
#define IS_NARROW 1
#define IS_BLOCKED 0
#define U uint32_t
#define FN(name) FL_PASTE(name, bf16)
#define M(name) fl_##name##_f32
#define CLASS F
#define IS_FLOAT 1
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"

enum { BLOCK = 32 };

static inline void float16_widen(float *to, const fl_float16 *from)
{
    for (int i = 0; i < BLOCK; i += FL_FLOAT16_RUN) fl_float16_widen_run(to + i, from + i);
}

static inline void float16_narrow(fl_float16 *to, const float *from)
{
    for (int i = 0; i < BLOCK; i += FL_FLOAT16_RUN) fl_float16_narrow_run(to + i, from + i);
}

#define T float
#define S fl_float16
#define WIDEN(to, from) float16_widen(to, from)
#define NARROW(to, from) float16_narrow(to, from)
#define IS_NARROW 1
#define IS_BLOCKED 1
#define U uint32_t
#define FN(name) FL_PASTE(name, f16)
#define M(name) fl_##name##_f32
#define CLASS F
#define IS_FLOAT 1
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"
#undef WIDEN
#undef NARROW

#endif

#define T double
#define S double
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint64_t
#define FN(name) FL_PASTE(name, f64)
#define M(name) fl_##name##_f64
#define FAR(id) id
#define CLASS F
#define IS_FLOAT 1
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"
#undef FAR

#define T uint8_t
#define S uint8_t
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint32_t
#define FN(name) FL_PASTE(name, u8)
#define CLASS I
#define IS_FLOAT 0
#define IS_INTEGER 1
#define EXPRESSION(f, i, b) i
#include "elementwise.inc"

#define T int8_t
#define S int8_t
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint32_t
#define FN(name) FL_PASTE(name, i8)
#define CLASS I
#define IS_FLOAT 0
#define IS_INTEGER 1
#define EXPRESSION(f, i, b) i
#include "elementwise.inc"

#define T int32_t
#define S int32_t
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint32_t
#define FN(name) FL_PASTE(name, i32)
#define CLASS I
#define IS_FLOAT 0
#define IS_INTEGER 1
#define EXPRESSION(f, i, b) i
#include "elementwise.inc"

#define T int64_t
#define S int64_t
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint64_t
#define FN(name) FL_PASTE(name, i64)
#define CLASS I
#define IS_FLOAT 0
#define IS_INTEGER 1
#define EXPRESSION(f, i, b) i
#include "elementwise.inc"

#define T uint8_t
#define S uint8_t
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
#define IS_BLOCKED 0
#define U uint32_t
#define FN(name) FL_PASTE(name, b8)
#define CLASS B
#define IS_FLOAT 0
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) b
#include "elementwise.inc"

/* ---- floats of 16 bits whose sign alone changes ---- */

enum { SIGN_16 = 0x8000 };

#define SIGN_LOOP(id, e)                                                                 \
    static int id##_16(void *out, const void *const *in, int64_t n, const fl_ew_attr *a) \
    {                                                                                    \
        uint16_t *to = out;                                                              \
        const uint16_t *x = in[0];                                                       \
        (void)a;                                                                         \
        INDEPENDENT                                                                      \
        for (int64_t i = 0; i < n; i++) to[i] = (uint16_t)(e);                           \
        return 0;                                                                        \
    }
SIGN_LOOP(neg, x[i] ^ SIGN_16)
SIGN_LOOP(abs, x[i] & ~SIGN_16)
SIGN_LOOP(copysign, (x[i] & ~SIGN_16) | (((const uint16_t *)in[1])[i] & SIGN_16))

#define SIGN_LOOPS(id) [FL_EW_##id][FL_FLOAT16] = id##_16, [FL_EW_##id][FL_BFLOAT16] = id##_16

/* ---- the table ---- */

#define LOOPS_F(id, cost) NARROW_LOOPS(id, cost), [FL_FLOAT32] = id##_f32, [FL_FLOAT64] = id##_f64
#define LOOPS_I(id, cost) [FL_UINT8] = id##_u8, [FL_INT8] = id##_i8, [FL_INT32] = id##_i32, [FL_INT64] = id##_i64
#define LOOPS_B(id, cost) [FL_BOOL] = id##_b8
#define LOOPS_FI(id, cost) LOOPS_F(id, cost), LOOPS_I(id, cost)
#define LOOPS_IB(id, cost) LOOPS_I(id, cost), LOOPS_B(id, cost)
#define LOOPS_FIB(id, cost) LOOPS_F(id, cost), LOOPS_I(id, cost), LOOPS_B(id, cost)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
const fl_ew_loop FL_LV(fl_ew_loops)[FL_EW_COUNT][FL_DTYPE_COUNT] = {
#define EW(id, sig, shape, types, rule, cost, ...) [FL_EW_##id] = {LOOPS_##types(id, cost)},
#include "op/elementwise.def"
#undef EW
    SIGN_LOOPS(neg), SIGN_LOOPS(abs), SIGN_LOOPS(copysign), /* in the place of those above */
};
#pragma GCC diagnostic pop
