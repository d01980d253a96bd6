/*
** elementwise.lv.c -- the loops of all elementwise rows, once per level.
**
** Loops rely on the compiler's vectoriser: rows are branch-free expressions, and "ivdep" says what in-place use
** guarantees, that out is one of the inputs exactly or apart from them all.
*/
#include "elementwise.h"
#include "op/elementwise_classes.h"
#include "vmath.h"

#define FL_FORMULA FL_VMATH
#define INDEPENDENT _Pragma("GCC ivdep")

#define T float
#define S float
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
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

#define T float
#define S fl_bfloat16
#define GET(x) fl_bfloat16_to_float(x)
#define PUT(v) fl_bfloat16_from_float(v)
#define IS_NARROW 1
#define U uint32_t
#define FN(name) FL_PASTE(name, bf16)
#define M(name) fl_##name##_f32
#define CLASS F
#define IS_FLOAT 1
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"

#define T double
#define S double
#define GET(x) (x)
#define PUT(v) (v)
#define IS_NARROW 0
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
#define U uint32_t
#define FN(name) FL_PASTE(name, b8)
#define CLASS B
#define IS_FLOAT 0
#define IS_INTEGER 0
#define EXPRESSION(f, i, b) b
#include "elementwise.inc"

#define LOOPS_F(id) [FL_BFLOAT16] = id##_bf16, [FL_FLOAT32] = id##_f32, [FL_FLOAT64] = id##_f64
#define LOOPS_I(id) [FL_UINT8] = id##_u8, [FL_INT8] = id##_i8, [FL_INT32] = id##_i32, [FL_INT64] = id##_i64
#define LOOPS_B(id) [FL_BOOL] = id##_b8
#define LOOPS_FI(id) LOOPS_F(id), LOOPS_I(id)
#define LOOPS_IB(id) LOOPS_I(id), LOOPS_B(id)
#define LOOPS_FIB(id) LOOPS_F(id), LOOPS_I(id), LOOPS_B(id)

const fl_ew_loop FL_LV(fl_ew_loops)[FL_EW_COUNT][FL_DTYPE_COUNT] = {
#define EW(id, sig, shape, types, ...) [FL_EW_##id] = {LOOPS_##types(id)},
#include "op/elementwise.def"
#undef EW
};
