/*
** product.h -- which axis plays which part in a matrix product: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_PRODUCT_H
#define FL_PRODUCT_H

#include "view.h"

/* Operands of products and of linear; results with an activation; attributes of linear_gelu_kept;
** approximate is the first one of gelu and linear_gelu too. */
enum { FL_PRODUCT_X, FL_PRODUCT_Y };
enum { FL_LINEAR_X, FL_LINEAR_WEIGHT, FL_LINEAR_BIAS };
enum { FL_ACTIVATED, FL_GELU_KEPT };
enum { FL_GELU_APPROXIMATE, FL_GELU_KEEP };

/* Axes by their part in x[batch, m, k] y[batch, k, n]; -1: there is none (1-D operands have no rows, or no columns). */
typedef struct fl_product {
    int batch, x_batch, y_batch; /* batch axes of the result, of x, of y */
    int xm, xk, yk, yn, om, on;
} fl_product;

/* ta, tb: the last two axes of x, of y are exchanged. */
static inline fl_product fl_product_of(int x_ndim, int y_ndim, bool ta, bool tb)
{
    fl_product p;
    p.x_batch = x_ndim > 1 ? x_ndim - 2 : 0;
    p.y_batch = y_ndim > 1 ? y_ndim - 2 : 0;
    p.xm = x_ndim > 1 ? p.x_batch + ta : -1;
    p.xk = x_ndim > 1 ? p.x_batch + !ta : 0;
    p.yk = y_ndim > 1 ? p.y_batch + tb : 0;
    p.yn = y_ndim > 1 ? p.y_batch + !tb : -1;
    p.batch = p.x_batch > p.y_batch ? p.x_batch : p.y_batch;
    p.om = p.xm < 0 ? -1 : p.batch;
    p.on = p.yn < 0 ? -1 : p.batch + (p.xm >= 0);
    return p;
}

/* op->variant of the products: as the operands are; by the transposed weight; as the attributes say */
enum { FL_PRODUCT_PLAIN, FL_PRODUCT_LINEAR, FL_PRODUCT_GEMM };
enum { FL_GEMM_TRANSPOSES_X, FL_GEMM_TRANSPOSES_Y }; /* attributes of FL_PRODUCT_GEMM */

static inline fl_product fl_product_for(int variant, const fl_attrs *attrs, int x_ndim, int y_ndim)
{
    bool gemm = variant == FL_PRODUCT_GEMM, linear = variant == FL_PRODUCT_LINEAR;
    return fl_product_of(x_ndim, y_ndim, gemm && attrs->at[FL_GEMM_TRANSPOSES_X].integer,
                         linear || (gemm && attrs->at[FL_GEMM_TRANSPOSES_Y].integer));
}

/* Steps of an operand along the batch axes of the result: 0 where it is broadcast. */
static inline void fl_product_batch_steps(int64_t *steps, const fl_view *view, const int64_t *strides, int batch,
                                          int own_batch)
{
    for (int b = 0; b < batch; b++) {
        int axis = b - (batch - own_batch);
        steps[b] = axis < 0 || view->size[axis] == 1 ? 0 : strides[axis];
    }
}

/* Leading axes as rows of one matrix, *row elements apart; false when they are not equally far apart. */
static inline bool fl_product_rows(int64_t *rows, int64_t *row, const fl_view *view, const int64_t *strides)
{
    *rows = 1;
    *row = view->size[view->ndim - 1];
    for (int i = view->ndim - 2; i >= 0; i--) {
        if (view->size[i] == 1) continue;
        if (*rows != 1 && strides[i] != *rows * *row) return false;
        if (*rows == 1) *row = strides[i];
        *rows *= view->size[i];
    }
    return true;
}

#endif
