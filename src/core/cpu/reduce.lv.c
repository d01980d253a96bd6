/*
** reduce.lv.c -- the loops of all reductions, once per level.
*/
#include "reduce.h"
#include "vmath.h"

#define FL_FORMULA FL_VMATH

enum {
    LANES = 64, /* four of the widest vectors of floats: additions overlap */
    FEW_LANES = 16,
    FEW = 256 /* short runs: joining the lanes would take longer than filling them */
};

#define T int64_t
#define TOTAL int64_t
#define FN(name) FL_PASTE(name, i64)
#define IS_FLOAT 0
#define NARROW 0
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#include "reduce.inc"

#define T double
#define TOTAL double
#define FN(name) FL_PASTE(name, f64)
#define M(name) fl_##name##_f64
#define IS_FLOAT 1
#define NARROW 0
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "reduce.inc"

#define T float
#define TOTAL double
#define FN(name) FL_PASTE(name, f32)
#define M(name) fl_##name##_f32
#define IS_FLOAT 1
#define NARROW 1
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "reduce.inc"

/* Partial products of floats overflow where the whole does not: multiplied as doubles. */
static void product_run_f32(void *total, const void *x, int64_t n, double center, double p)
{
    double wide[FL_REDUCE_TILE];
    for (int64_t i = 0; i < n; i += FL_REDUCE_TILE) {
        int64_t m = n - i < FL_REDUCE_TILE ? n - i : FL_REDUCE_TILE;
        for (int64_t j = 0; j < m; j++) wide[j] = ((const float *)x)[i + j];
        product_run_f64(total, wide, m, center, p);
    }
}

static void product_columns_f32(void *totals, const void *x, int64_t stride, int64_t rows, int64_t columns,
                                const double *centers, double p)
{
    double wide[FL_REDUCE_TILE];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < columns; j++) wide[j] = ((const float *)x)[r * stride + j];
        product_columns_f64(totals, wide, columns, 1, columns, centers, p);
    }
}

#define LOOPS(name, type)                        \
    {                                            \
        name##_run_##type, name##_columns_##type \
    }
#define FOLDS(type)                                                                                                   \
    [FL_FOLD_SUM] = LOOPS(sum, type), [FL_FOLD_COUNT] = LOOPS(count, type), [FL_FOLD_PRODUCT] = LOOPS(product, type), \
    [FL_FOLD_LARGEST] = LOOPS(largest, type), [FL_FOLD_SMALLEST] = LOOPS(smallest, type)
#define FLOAT_FOLDS(type)                                                                                \
    FOLDS(type), [FL_FOLD_ABS_SUM] = LOOPS(abs_sum, type), [FL_FOLD_SQUARES] = LOOPS(squares, type),     \
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
    .fold = {[FL_THROUGH_INT64] = {FOLDS(i64)},
             [FL_THROUGH_FLOAT] = {FLOAT_FOLDS(f32)},
             [FL_THROUGH_DOUBLE] = {FLOAT_FOLDS(f64)}},
    .largest = ARGS(arg_largest),
    .smallest = ARGS(arg_smallest),
};
