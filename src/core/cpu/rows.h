/*
** rows.h -- kernels over rows: softmax, cross-entropy and layer_norm, forward and backward.
**
** The level functions (rows.lv.c) work on whole contiguous rows of one type and are serial; rows.c cuts the work over
** the team and brings strided rows together.
*/
#ifndef FL_ROWS_H
#define FL_ROWS_H

#include "cpu.h"

/* An array seen as rows: element c of row (o, i) is at (o * n + c) * inner + i. */
typedef struct fl_row_shape {
    int64_t outer, n, inner;
} fl_row_shape;

/* The axis of a local shape as rows. */
fl_row_shape fl_row_shape_of(const int64_t *size, int ndim, int axis);

/* Negative log-likelihood of class labels, per row, over the classes [first, first + n) of `classes`:
**
**     loss = (1 - smoothing) w[t] (lse - x[t]) + smoothing / classes * sum_c w[c] (lse - x[c])
**
** where terms of classes outside the part are left out (so parts add up), and 0 for ignored rows. */
typedef struct fl_nll {
    int64_t n, first, classes;
    const int64_t *target; /* [rows] */
    const void *weight;    /* [classes] or NULL: ones */
    double weight_sum;     /* of all classes */
    int64_t ignore;
    double smoothing;
    bool with_lse;      /* cross-entropy: x are logits; else x are log-probabilities and lse counts as 0 */
    bool targets;       /* backward: subtract the target distribution; false: the softmax part alone */
    void *lse;          /* [rows]: forward out (cross-entropy), backward in */
    void *loss, *count; /* [rows], forward out; count is w[t], 0 for ignored rows */
    const void *g;      /* [rows], backward in */
    int64_t g_step;     /* 1; 0: one value for all rows */
} fl_nll;

typedef struct fl_layer_norm {
    int64_t n;
    double eps;
    const void *weight, *bias;     /* [n] or NULL */
    void *mean, *rstd;             /* [rows]: forward out */
    const void *mean_in, *rstd_in; /* [rows]: backward in */
} fl_layer_norm;

/* Of one level and type; `row` is the first of `rows` rows, arrays of one value per row are whole. */
typedef struct fl_row_kernels {
    void (*softmax)(void *y, const void *x, int64_t rows, int64_t n, bool logs);
    void (*softmax_backward)(void *dx, const void *g, const void *y, int64_t rows, int64_t n, bool logs);
    /* of `columns` neighbouring columns, whose elements lie `inner` apart */
    void (*softmax_columns)(void *y, const void *x, int64_t n, int64_t inner, int64_t columns, bool logs);
    void (*softmax_backward_columns)(void *dx, const void *g, const void *y, int64_t n, int64_t inner, int64_t columns,
                                     bool logs);
    void (*nll)(const fl_nll *nll, int64_t row, int64_t rows, const void *x);
    void (*nll_backward)(const fl_nll *nll, int64_t row, int64_t rows, void *dx, const void *x);
    void (*layer_norm)(const fl_layer_norm *norm, int64_t row, int64_t rows, void *y, const void *x);
    /* dweight and dbias [n] are added to */
    void (*layer_norm_backward)(const fl_layer_norm *norm, int64_t row, int64_t rows, void *dx, const void *g,
                                const void *x, void *dweight, void *dbias);
    void (*sum_rows)(void *out, const void *x, int64_t rows, int64_t stride, int64_t n);
    void (*add)(void *y, const void *x, int64_t n); /* y[0..n) += x[0..n) */
    /* rows [lane][n] from or to `lanes` neighbouring strided rows */
    void (*gather)(void *tile, const void *x, int64_t lanes, int64_t n, int64_t inner);
    void (*scatter)(void *x, const void *tile, int64_t lanes, int64_t n, int64_t inner);
} fl_row_kernels;

FL_DECLARE_LEVELS(const fl_row_kernels, fl_row_kernels_f32);
FL_DECLARE_LEVELS(const fl_row_kernels, fl_row_kernels_f64);

/* dtype, of x, y, g and dx: float32 or float64; float16 and bfloat16, which are converted a few rows at a time, where
** inner is 1. Values per row, column or class are then float32. */
const fl_row_kernels *fl_row_kernels_of(fl_dtype dtype);
fl_status fl_cpu_softmax(fl_dtype dtype, void *y, const void *x, fl_row_shape shape, bool logs);
fl_status fl_cpu_softmax_backward(fl_dtype dtype, void *dx, const void *g, const void *y, fl_row_shape shape,
                                  bool logs);
/* The sum of the weights of `classes` classes; weight NULL: ones. */
double fl_cpu_nll_weights(fl_dtype dtype, const void *weight, int64_t classes);
fl_status fl_cpu_nll(fl_dtype dtype, const fl_nll *nll, const void *x, fl_row_shape shape);
/* x is NULL without lse. */
fl_status fl_cpu_nll_backward(fl_dtype dtype, const fl_nll *nll, void *dx, const void *x, fl_row_shape shape);
fl_status fl_cpu_layer_norm(fl_dtype dtype, const fl_layer_norm *norm, int64_t rows, void *y, const void *x);
/* dweight and dbias are summed over blocks of rows whose size depends on `rows` alone. */
fl_status fl_cpu_layer_norm_backward(fl_dtype dtype, const fl_layer_norm *norm, int64_t rows, void *dx, const void *g,
                                     const void *x, void *dweight, void *dbias);

#endif
