/*
** expr.c -- several ops as one C expression: see expr.h.
*/
#include "op/product.h"
#include "op/reduce.h"
#include "op/views.h"
#include "expr.h"
#include "dispatch/to_global.h"

#include <assert.h>

fl_tensor *fl_expr_call(fl_expr *expr, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    if (expr->status != FL_OK) return NULL;
    expr->status = fl_dispatch(results, op, in, nin, attrs);
    if (expr->status != FL_OK) return NULL;
    assert(expr->count + op->nout <= FL_EXPR_LENGTH);
    for (int i = 0; i < op->nout; i++) expr->owned[expr->count++] = results[i];
    return results[0];
}

fl_tensor *fl_expr_take(fl_expr *expr, fl_tensor *tensor)
{
    return expr->status == FL_OK ? fl_tensor_ref(tensor) : NULL;
}

fl_status fl_expr_end(fl_expr *expr)
{
    for (int i = 0; i < expr->count; i++) fl_tensor_unref(expr->owned[i]);
    expr->count = 0;
    return expr->status;
}

fl_tensor *expr_add(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, add, fl_of(x), fl_of(y));
}
fl_tensor *expr_sub(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, sub, fl_of(x), fl_of(y));
}
fl_tensor *expr_mul(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, mul, fl_of(x), fl_of(y));
}
fl_tensor *expr_div(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, div, fl_of(x), fl_of(y));
}

fl_tensor *expr_add_number(fl_expr *expr, fl_tensor *x, double y)
{
    return EXPR_CALL(expr, NULL, add, fl_of(x), fl_of_number(y));
}

fl_tensor *expr_mul_number(fl_expr *expr, fl_tensor *x, double y)
{
    return EXPR_CALL(expr, NULL, mul, fl_of(x), fl_of_number(y));
}

fl_tensor *expr_neg(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, neg, fl_of(x)); }
fl_tensor *expr_exp(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, exp, fl_of(x)); }
fl_tensor *expr_log(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, log, fl_of(x)); }

fl_tensor *expr_reduce(fl_expr *expr, const fl_op *op, fl_tensor *x, uint32_t axes, bool keepdim)
{
    int64_t list[FL_MAX_NDIM];
    int count = 0;
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    for (int i = 0; i < FL_MAX_NDIM; i++)
        if (axes >> i & 1u) list[count++] = i;
    fl_attrs_init(&a, op);
    fl_attr_set_list(&a, FL_REDUCE_AXIS, list, count);
    fl_attr_set(&a, FL_REDUCE_KEEPDIM, keepdim);
    return fl_expr_call(expr, op, (const fl_operand[]){fl_of(x)}, 1, &a);
}

fl_tensor *expr_sum(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim)
{
    return expr_reduce(expr, FL_OP_REF(sum), x, axes, keepdim);
}

fl_tensor *expr_mean(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim)
{
    return expr_reduce(expr, FL_OP_REF(mean), x, axes, keepdim);
}

fl_tensor *expr_amax(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim)
{
    return expr_reduce(expr, FL_OP_REF(amax), x, axes, keepdim);
}

fl_tensor *expr_reshape(fl_expr *expr, fl_tensor *x, const fl_shape *shape)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(reshape));
    fl_attr_set_list(&a, FL_VIEW_SIZE, shape->dims, shape->ndim);
    return EXPR_CALL(expr, &a, reshape, fl_of(x));
}

fl_tensor *expr_unsqueeze(fl_expr *expr, fl_tensor *x, int axis)
{
    if (expr->status != FL_OK) return NULL;
    fl_shape shape = x->meta->shape;
    for (int i = shape.ndim++; i > axis; i--) shape.dims[i] = shape.dims[i - 1];
    shape.dims[axis] = 1;
    return expr_reshape(expr, x, &shape);
}

fl_tensor *expr_cast(fl_expr *expr, fl_tensor *x, fl_dtype dtype)
{
    if (!x || x->meta->dtype == dtype) return x;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cast));
    fl_attr_set(&a, FL_CAST_DTYPE, dtype);
    return EXPR_CALL(expr, &a, cast, fl_of(x));
}

fl_tensor *expr_widen(fl_expr *expr, fl_tensor *x)
{
    return x && fl_dtype_is_float(x->meta->dtype) && fl_dtype_size(x->meta->dtype) == 2 ? expr_cast(expr, x, FL_FLOAT32)
                                                                                        : x;
}

fl_tensor *expr_whole(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *whole = NULL;
    if (expr->status != FL_OK) return NULL;
    fl_nd_sbp s = fl_nd_sbp_reduced(x->meta->nd_sbp);
    if (x->meta->is_local || fl_nd_sbp_equal(s, x->meta->nd_sbp)) return x;
    expr->status = fl_to_global(&whole, x, x->meta->placement, s, NULL);
    if (expr->status != FL_OK) return NULL;
    assert(expr->count < FL_EXPR_LENGTH);
    return expr->owned[expr->count++] = whole;
}

fl_tensor *expr_gemm(fl_expr *expr, fl_tensor *x, fl_tensor *y, bool ta, bool tb)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(gemm));
    fl_attr_set(&a, FL_GEMM_TRANSPOSES_X, ta);
    fl_attr_set(&a, FL_GEMM_TRANSPOSES_Y, tb);
    return EXPR_CALL(expr, &a, gemm, fl_of(x), fl_of(y));
}
