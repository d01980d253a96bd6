/*
** bilinear.c -- bilinear forms of two inputs: x1^T W x2 for every output, as one product and a sum.
*/
#include "op/views.h"
#include "composite.h"
#include "expr.h"

/* x1 [..., a] W [out, a, b] -> [..., out, b] times x2 [..., 1, b], summed over b */
static fl_status body_bilinear(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char t1[FL_SHAPE_TEXT], t2[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    const fl_shape *x1 = &in[0].tensor->meta->shape, *x2 = &in[1].tensor->meta->shape;
    const fl_shape *w = &in[2].tensor->meta->shape;
    bool fits = w->ndim == 3 && x1->ndim >= 1 && x1->ndim == x2->ndim && x1->dims[x1->ndim - 1] == w->dims[1]
        && x2->dims[x2->ndim - 1] == w->dims[2];
    for (int i = 0; fits && i < x1->ndim - 1; i++) fits = x1->dims[i] == x2->dims[i];
    if (!fits || x1->ndim + 1 > FL_MAX_NDIM)
        return fl_fail(FL_ERR_SHAPE,
                       "bilinear: weight [out, a, b] takes inputs [..., a] and [..., b], got %s, %s and %s",
                       fl_shape_text(tw, w), fl_shape_text(t1, x1), fl_shape_text(t2, x2));
    fl_shape columns = {.ndim = 2, .dims = {w->dims[1], w->dims[0] * w->dims[2]}}, products = *x1;
    products.dims[products.ndim - 1] = w->dims[0];
    products.dims[products.ndim++] = w->dims[2];
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(transpose));
    fl_attr_set(&a, FL_TRANSPOSE_AXIS0, 0);
    fl_attr_set(&a, FL_TRANSPOSE_AXIS1, 1);
    fl_tensor *table = expr_reshape(&c, EXPR_CALL(&c, &a, transpose, in[2]), &columns);
    fl_tensor *half = expr_reshape(&c, EXPR_CALL(&c, NULL, matmul, in[0], fl_of(table)), &products);
    fl_tensor *whole = expr_mul(&c, half, expr_unsqueeze(&c, in[1].tensor, x2->ndim - 1));
    fl_tensor *y = expr_sum(&c, whole, 1u << x1->ndim, false);
    if (in[3].kind == FL_TENSOR) y = expr_add(&c, y, in[3].tensor);
    *out = fl_expr_take(&c, y);
    return fl_expr_end(&c);
}

FL_OP(bilinear) = {
    .name = "bilinear",
    .sig = "bilinear(input1, input2, weight, bias?)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "x1^T W x2 + b for the matrix W of every output: weight [out, a, b], inputs [..., a] and [..., b].",
    .body = body_bilinear,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 5), flow.randn(2, 4, 5), flow.randn(2)",
               "flow.randn(2, 3, 4), flow.randn(2, 3, 2), flow.randn(3, 4, 2)"),
};
