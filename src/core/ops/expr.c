/*
** expr.c -- several ops as one C expression: see expr.h.
*/
#include "op/create.h"
#include "op/product.h"
#include "op/reduce.h"
#include "op/slicing.h"
#include "op/views.h"
#include "expr.h"
#include "dispatch/to_global.h"

/* Takes the reference over. The length of an expression may depend on its operands, so an overflow is an error and no
** assertion. */
static void keep(fl_expr *expr, fl_tensor *tensor, const char *who)
{
    if (expr->count < FL_EXPR_LENGTH) {
        expr->owned[expr->count++] = tensor;
        return;
    }
    fl_tensor_unref(tensor);
    expr->status = fl_fail(FL_ERR_STATE, "%s: an expression of more than %d tensors", who, FL_EXPR_LENGTH);
}

fl_tensor *fl_expr_call(fl_expr *expr, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    if (expr->status != FL_OK) return NULL;
    expr->status = fl_dispatch(results, op, in, nin, attrs);
    if (expr->status != FL_OK) return NULL;
    for (int i = 0; i < op->nout; i++) keep(expr, results[i], op->name);
    return expr->status == FL_OK ? results[0] : NULL;
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

fl_tensor *expr_selected(fl_expr *expr, fl_tensor *x, int axis, int64_t position)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(select));
    fl_attr_set(&a, FL_SLICE_AXIS, axis);
    fl_attr_set(&a, FL_SLICE_POSITION, position);
    return EXPR_CALL(expr, &a, select, fl_of(x));
}

fl_tensor *expr_ones(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, ones_like, fl_of(x)); }
fl_tensor *expr_zeros(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, zeros_like, fl_of(x)); }

fl_tensor *expr_expanded(fl_expr *expr, fl_tensor *x, const fl_shape *shape)
{
    fl_attrs a;
    if (expr->status != FL_OK || fl_shape_equal(&x->meta->shape, shape)) return x;
    fl_attrs_init(&a, FL_OP_REF(expand));
    fl_attr_set_list(&a, FL_VIEW_SIZE, shape->dims, shape->ndim);
    return EXPR_CALL(expr, &a, expand, fl_of(x));
}

fl_tensor *expr_concatenated(fl_expr *expr, fl_tensor *x, fl_tensor *y, int axis)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cat));
    fl_attr_set(&a, FL_JOINED_AXIS, axis);
    return EXPR_CALL(expr, &a, cat, fl_of(x), fl_of(y));
}

fl_tensor *expr_without_axis(fl_expr *expr, fl_tensor *x, int axis)
{
    fl_shape shape;
    if (expr->status != FL_OK) return NULL;
    fl_reduce_shape(&shape, &x->meta->shape, 1u << axis, false);
    return expr_reshape(expr, x, &shape);
}

fl_tensor *expr_narrowed(fl_expr *expr, fl_tensor *x, int axis, int64_t start, int64_t length)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(narrow));
    fl_attr_set(&a, FL_SLICE_AXIS, axis);
    fl_attr_set(&a, FL_SLICE_START, start);
    fl_attr_set(&a, FL_SLICE_LENGTH, length);
    return EXPR_CALL(expr, &a, narrow, fl_of(x));
}

fl_tensor *expr_set_in_zeros(fl_expr *expr, fl_tensor *x, int axis, int64_t start, int64_t size)
{
    fl_attrs a;
    if (expr->status != FL_OK || x->meta->shape.dims[axis] == size) return x;
    fl_attrs_init(&a, FL_OP_REF(narrow_backward));
    fl_attr_set(&a, FL_SLICE_AXIS, axis);
    fl_attr_set(&a, FL_SLICE_START, start);
    fl_attr_set(&a, FL_SLICE_SIZE, size);
    fl_attr_set(&a, FL_SLICE_STEP, 1);
    return EXPR_CALL(expr, &a, narrow_backward, fl_of(x));
}

fl_tensor *expr_permuted(fl_expr *expr, fl_tensor *x, const int64_t *order)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(permute));
    fl_attr_set_list(&a, FL_PERMUTE_AXES, order, x->meta->shape.ndim);
    return EXPR_CALL(expr, &a, permute, fl_of(x));
}

/* Options: where x is, whole on every rank. */
static void place_like(fl_attrs *attrs, const fl_tensor *x, fl_dtype dtype)
{
    const fl_meta *m = x->meta;
    attrs->has_dtype = attrs->has_placement = true;
    attrs->option_dtype = dtype;
    attrs->is_local = m->is_local;
    attrs->placement = m->placement;
    attrs->nd_sbp = fl_nd_sbp_fill(FL_B, m->nd_sbp.n);
}

fl_tensor *expr_zeros_of(fl_expr *expr, fl_tensor *x, const fl_shape *shape)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(zeros));
    fl_attr_set_list(&a, FL_SOURCE_SIZE, shape->dims, shape->ndim);
    place_like(&a, x, x->meta->dtype);
    return fl_expr_call(expr, FL_OP_REF(zeros), NULL, 0, &a);
}

fl_tensor *expr_range(fl_expr *expr, fl_tensor *x, int64_t start, int64_t count, int64_t step)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(arange));
    fl_attr_set(&a, FL_ARANGE_START, start);
    fl_attr_set(&a, FL_ARANGE_STOP, start + count * step);
    fl_attr_set(&a, FL_ARANGE_STEP, step);
    place_like(&a, x, FL_INT64);
    return fl_expr_call(expr, FL_OP_REF(arange), NULL, 0, &a);
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
    keep(expr, whole, "to_global");
    return expr->status == FL_OK ? whole : NULL;
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
