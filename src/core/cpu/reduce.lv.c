/*
** reduce.lv.c -- the loops of all reductions, once per level.
*/
#include "reduce.h"
#include "simd.h"
#include "vmath.h"

#define FL_FORMULA FL_VMATH

enum {
    LANES = 64, /* four of the widest vectors of floats: additions overlap */
    FEW_LANES = 16,
    FEW = 256 /* short runs: joining the lanes would take longer than filling them */
};

#define T int64_t
#define WRAPPING uint64_t
#define ELEMENT int64_t
#define GET(x) (x)
#define TOTAL int64_t
#define FN(name) FL_PASTE(name, i64)
#define IS_FLOAT 0
#define PRODUCTS 1
#define OTHERS 1
#define POSITIONS 1
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#include "reduce.inc"

#define T double
#define WRAPPING double
#define ELEMENT double
#define GET(x) (x)
#define TOTAL double
#define FN(name) FL_PASTE(name, f64)
#define M(name) fl_##name##_f64
#define VECTOR vd
#define FL_V(name) vd_##name
#define IS_FLOAT 1
#define PRODUCTS 1
#define OTHERS 1
#define POSITIONS 1
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "reduce.inc"

#define T float
#define WRAPPING float
#define ELEMENT float
#define GET(x) (x)
#define TOTAL double
#define FN(name) FL_PASTE(name, f32)
#define M(name) fl_##name##_f32
#define VECTOR vf
#define FL_V(name) vf_##name
#define IS_FLOAT 1
#define PRODUCTS 0
#define OTHERS 1
#define POSITIONS 1
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "reduce.inc"

/* Partial products of floats overflow where the whole does not: multiplied as doubles. */
#define T double
#define WRAPPING double
#define ELEMENT float
#define GET(x) ((double)(x))
#define TOTAL double
#define FN(name) FL_PASTE(name, f32_wide)
#define IS_FLOAT 1
#define PRODUCTS 1
#define OTHERS 0
#define POSITIONS 0
#include "reduce.inc"

#define T double
#define WRAPPING double
#define ELEMENT fl_bfloat16
#define GET(x) ((double)fl_bfloat16_to_float(x))
#define TOTAL double
#define FN(name) FL_PASTE(name, bf16_wide)
#define IS_FLOAT 1
#define PRODUCTS 1
#define OTHERS 0
#define POSITIONS 0
#include "reduce.inc"

/* bfloat16 is folded where it lies, as floats. */
#define T float
#define WRAPPING float
#define ELEMENT fl_bfloat16
#define GET(x) fl_bfloat16_to_float(x)
#define TOTAL double
#define FN(name) FL_PASTE(name, bf16)
#define M(name) fl_##name##_f32
#define IS_FLOAT 1
#define PRODUCTS 0
#define OTHERS 1
#define POSITIONS 0
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "reduce.inc"

#define LOOPS(name, type)                        \
    {                                            \
        name##_run_##type, name##_columns_##type \
    }
#define FOLDS(type, wide)                                                                                             \
    [FL_FOLD_SUM] = LOOPS(sum, type), [FL_FOLD_COUNT] = LOOPS(count, type), [FL_FOLD_PRODUCT] = LOOPS(product, wide), \
    [FL_FOLD_LARGEST] = LOOPS(largest, type), [FL_FOLD_SMALLEST] = LOOPS(smallest, type)
#define FLOAT_FOLDS(type, wide)                                                                                \
    FOLDS(type, wide), [FL_FOLD_ABS_SUM] = LOOPS(abs_sum, type), [FL_FOLD_SQUARES] = LOOPS(squares, type),     \
                       [FL_FOLD_POWERS] = LOOPS(powers, type), [FL_FOLD_DEVIATIONS] = LOOPS(deviations, type), \
                       [FL_FOLD_EXPS] = LOOPS(exps, type), [FL_FOLD_LARGEST_ABS] = LOOPS(largest_abs, type),   \
                       [FL_FOLD_SMALLEST_ABS] = LOOPS(smallest_abs, type)
#define ARG_LOOPS(name, type)                \
    {                                        \
        name##_run_##type, name##_row_##type \
    }
#define ARGS(name)                                                                            \
    {                                                                                         \
        [FL_THROUGH_INT64] = ARG_LOOPS(name, i64), [FL_THROUGH_FLOAT] = ARG_LOOPS(name, f32), \
        [FL_THROUGH_DOUBLE] = ARG_LOOPS(name, f64)                                            \
    }

const fl_reduce_loops FL_LV(fl_reduce_loops) = {
    .fold = {[FL_THROUGH_INT64] = {FOLDS(i64, i64)},
             [FL_THROUGH_FLOAT] = {FLOAT_FOLDS(f32, f32_wide), [FL_FOLD_NUMBERS] = LOOPS(numbers, f32)},
             [FL_THROUGH_DOUBLE] = {FLOAT_FOLDS(f64, f64), [FL_FOLD_NUMBERS] = LOOPS(numbers, f64)}},
    .bfloat16 = {FLOAT_FOLDS(bf16, bf16_wide)},
    .largest = ARGS(arg_largest),
    .smallest = ARGS(arg_smallest),
};
