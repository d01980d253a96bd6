/*
** scatter_reduce.c -- what elements of src at one place make together with x there: sum, product, mean, largest and
** smallest.
**
** Sums are scatter_add. The others are scatter_fold, whose gradient shares among equals as PyTorch's does. Without
** include_self the places that the index names are first set to what changes nothing.
*/
#include "cpu/scatter.h"
#include "dispatch/record.h"
#include "scatter.h"

#include <math.h>

/* Attributes of scatter_reduce after the axis; its words. */
enum { REDUCE_HOW = FL_FOLD_REDUCE, REDUCE_INCLUDES };
enum { REDUCE_SUM, REDUCE_PROD, REDUCE_MEAN, REDUCE_AMAX, REDUCE_AMIN };

/* ---- the fold ---- */

static fl_status kernel_fold(fl_kernel *kernel)
{
    static const fl_scatter_mode modes[] = {FL_SCATTER_MUL, FL_SCATTER_MAX, FL_SCATTER_MIN};
    const fl_view *src = &kernel->in[FL_WRITE_VALUE];
    FL_TRY(fl_cpu_copy(&kernel->out[0], &kernel->in[FL_WRITE_X]));
    return fl_cpu_scatter(kernel, fl_scatter_axis(kernel->attrs, kernel->out[0].ndim), src->data, src->stride,
                          modes[kernel->attrs->at[FL_FOLD_REDUCE].integer]);
}

/* Each part of x takes what belongs to it. The largest of several maxima is one of them. */
static void sbp_fold(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_WRITE_X], *index = &sigs->in_logical[FL_WRITE_INDEX];
    int axis = fl_scatter_axis(sigs->attrs, x->ndim);
    int64_t reduce = sigs->attrs->at[FL_FOLD_REDUCE].integer;
    for (int a = 0; a < x->ndim; a++) {
        fl_sbp other = a != axis && index->dims[a] == x->dims[a] ? FL_S(a) : FL_B;
        FL_SIG(sigs, NULL, FL_S(a), other, other, FL_S(a));
    }
    if (reduce == FL_FOLD_PROD) return;
    fl_sbp most = reduce == FL_FOLD_AMAX ? FL_PMAX : FL_PMIN;
    FL_SIG(sigs, NULL, most, FL_B, most, most);
    for (int a = 0; a < index->ndim; a++) FL_SIG(sigs, NULL, most, FL_S(a), FL_S(a), most);
}

static fl_tensor *folded(fl_expr *expr, const fl_attrs *attrs, fl_tensor *x, fl_tensor *index, fl_tensor *src)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(scatter_fold));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    a.at[FL_FOLD_REDUCE] = attrs->at[FL_FOLD_REDUCE];
    return EXPR_CALL(expr, &a, scatter_fold, fl_of(x), fl_of(index), fl_of(src));
}

static fl_tensor *gathered(fl_expr *expr, const fl_attrs *attrs, fl_tensor *x, fl_tensor *index)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gather));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    return EXPR_CALL(expr, &a, gather, fl_of(x), fl_of(index));
}

static fl_tensor *added(fl_expr *expr, const fl_attrs *attrs, fl_tensor *x, fl_tensor *index, fl_tensor *src)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(scatter_add));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    return EXPR_CALL(expr, &a, scatter_add, fl_of(x), fl_of(index), fl_of(src));
}

/* 1 where the elements are equal, in the dtype of x. */
static fl_tensor *equal_as(fl_expr *expr, fl_tensor *x, fl_operand y)
{
    return expr_cast(expr, EXPR_CALL(expr, NULL, eq, fl_of(x), y), x->meta->dtype);
}

/* The gradient of the largest and smallest is shared by all that are equal to it. */
static void grad_extreme(fl_expr *expr, fl_grad *g, fl_tensor *x, fl_tensor *index, fl_tensor *src)
{
    fl_tensor *result = g->out[0];
    fl_tensor *own = equal_as(expr, x, fl_of(result));
    fl_tensor *theirs = expr->status == FL_OK ? gathered(expr, g->attrs, result, index) : NULL;
    theirs = theirs ? equal_as(expr, src, fl_of(theirs)) : NULL;
    fl_tensor *share = expr_div(expr, g->gout[0], added(expr, g->attrs, own, index, theirs));
    if (g->need[FL_WRITE_X]) g->gin[FL_WRITE_X] = fl_expr_take(expr, expr_mul(expr, share, own));
    if (g->need[FL_WRITE_VALUE])
        g->gin[FL_WRITE_VALUE] = fl_expr_take(expr, expr_mul(expr, gathered(expr, g->attrs, share, index), theirs));
}

static fl_tensor *filled(fl_expr *expr, fl_tensor *x, fl_tensor *mask, double value)
{
    return EXPR_CALL(expr, NULL, masked_fill, fl_of(x), fl_of(mask), fl_of_number(value));
}

/* The product of the others: the whole by one's own, or where that is 0, the product with it replaced by 1. */
static fl_tensor *grad_own_factor(fl_expr *expr, fl_grad *g, fl_tensor *x, fl_tensor *index, fl_tensor *src)
{
    fl_tensor *zero = EXPR_CALL(expr, NULL, eq, fl_of(x), fl_of_number(0));
    fl_tensor *safe = filled(expr, x, zero, 1);
    fl_tensor *others = expr_div(expr, folded(expr, g->attrs, safe, index, src), safe);
    return expr_mul(expr, g->gout[0], others);
}

static fl_tensor *grad_factors(fl_expr *expr, fl_grad *g, fl_tensor *x, fl_tensor *index, fl_tensor *src)
{
    fl_tensor *zero = EXPR_CALL(expr, NULL, eq, fl_of(src), fl_of_number(0));
    fl_tensor *ones = zero ? expr_cast(expr, zero, src->meta->dtype) : NULL;
    fl_tensor *counts = gathered(expr, g->attrs, added(expr, g->attrs, expr_zeros(expr, x), index, ones), index);
    fl_tensor *alone = EXPR_CALL(expr, NULL, logical_and, fl_of(zero),
                                 fl_of(EXPR_CALL(expr, NULL, eq, fl_of(counts), fl_of_number(1))));
    fl_tensor *without = folded(expr, g->attrs, x, index, filled(expr, src, alone, 1));
    fl_tensor *at_zero = gathered(expr, g->attrs, expr_mul(expr, g->gout[0], without), index);
    fl_tensor *whole = gathered(expr, g->attrs, expr_mul(expr, g->gout[0], g->out[0]), index);
    fl_tensor *elsewhere = expr_div(expr, whole, filled(expr, src, zero, 1));
    return EXPR_CALL(expr, NULL, where, fl_of(alone), fl_of(at_zero), fl_of(elsewhere));
}

static fl_status grad_fold(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *x = g->in[FL_WRITE_X].tensor, *index = g->in[FL_WRITE_INDEX].tensor, *src = g->in[FL_WRITE_VALUE].tensor;
    if (g->attrs->at[FL_FOLD_REDUCE].integer != FL_FOLD_PROD) grad_extreme(&c, g, x, index, src);
    else {
        if (g->need[FL_WRITE_X]) g->gin[FL_WRITE_X] = fl_expr_take(&c, grad_own_factor(&c, g, x, index, src));
        if (g->need[FL_WRITE_VALUE]) g->gin[FL_WRITE_VALUE] = fl_expr_take(&c, grad_factors(&c, g, x, index, src));
    }
    return fl_expr_end(&c);
}

FL_OP(scatter_fold) = {
    .name = "scatter_fold",
    .sig = "scatter_fold(x, axis: axis, index, src, reduce: prod|amax|amin)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "scatter_reduce of products and extremes, with src in the shape of index.",
    .infer = fl_scatter_infer_fold,
    .sbp = sbp_fold,
    .cpu = kernel_fold,
    .grad = grad_fold,
    .saves_in = 1u << FL_WRITE_X | 1u << FL_WRITE_INDEX | 1u << FL_WRITE_VALUE,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3), 'amax'",
               "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2), 'amin'",
               "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}, {0, 2}}, flow.randn(3, 2), 'prod'"),
};

/* ---- scatter_reduce ---- */

/* The operand that leaves the other one unchanged. */
static fl_operand neutral(int64_t reduce, fl_dtype dtype)
{
    bool is_float = fl_dtype_is_float(dtype);
    if (reduce == REDUCE_SUM || reduce == REDUCE_MEAN) return fl_of_integer(0);
    if (reduce == REDUCE_PROD) return fl_of_integer(1);
    if (is_float) return fl_of_number(reduce == REDUCE_AMAX ? -INFINITY : INFINITY);
    return fl_of_integer(reduce == REDUCE_AMAX ? fl_dtype_ranges[dtype].lowest : fl_dtype_ranges[dtype].highest);
}

/* Folds src into the places of x; 16 bits are folded in 32. */
static fl_status fold_into(fl_tensor **out, fl_tensor *x, fl_tensor *index, fl_tensor *src, const fl_attrs *attrs,
                           int fold)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(scatter_fold));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    fl_attr_set(&a, FL_FOLD_REDUCE, fold);
    fl_tensor *before = expr_widen(&c, x);
    bool recorded = fl_grad_enabled && (fl_requires_grad(x) || fl_requires_grad(src));
    if (before == x && recorded) before = EXPR_CALL(&c, NULL, clone, fl_of(x)); /* the gradient needs what x was */
    fl_tensor *result = folded(&c, &a, before, index, expr_widen(&c, src));
    if (result) c.status = FL_CALL(out, copy_, fl_of(x), fl_of(result));
    return fl_expr_end(&c);
}

/* Sums are divided by how many went into each: 1 where none did. */
static fl_status divide_by_counts(fl_tensor *x, fl_tensor *index, fl_tensor *src, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *same;
    bool includes = attrs->at[REDUCE_INCLUDES].integer != 0;
    fl_tensor *start = includes ? expr_ones(&c, x) : expr_zeros(&c, x);
    fl_tensor *counts = added(&c, attrs, start, index, expr_ones(&c, src));
    if (!includes) counts = EXPR_CALL(&c, NULL, maximum, fl_of(counts), fl_of_integer(1));
    const fl_op *divide = fl_dtype_is_float(x->meta->dtype) ? FL_OP_REF(div) : FL_OP_REF(floor_divide);
    if (counts) c.status = fl_dispatch_inplace(&same, divide, (const fl_operand[]){fl_of(x), fl_of(counts)}, 2, NULL);
    if (counts && c.status == FL_OK) fl_tensor_unref(same);
    return fl_expr_end(&c);
}

/* Operands have been checked; src has the shape of the index. */
static fl_status reduce_into(fl_tensor **out, fl_tensor *x, fl_tensor *index, fl_tensor *src, const fl_attrs *attrs)
{
    int64_t reduce = attrs->at[REDUCE_HOW].integer;
    fl_tensor *same;
    if (!attrs->at[REDUCE_INCLUDES].integer) {
        FL_TRY(fl_scatter_write(&same, x, fl_of(index), neutral(reduce, x->meta->dtype), attrs));
        fl_tensor_unref(same);
    }
    if (reduce == REDUCE_PROD) return fold_into(out, x, index, src, attrs, FL_FOLD_PROD);
    if (reduce == REDUCE_AMAX) return fold_into(out, x, index, src, attrs, FL_FOLD_AMAX);
    if (reduce == REDUCE_AMIN) return fold_into(out, x, index, src, attrs, FL_FOLD_AMIN);
    FL_TRY(fl_scatter_add(out, x, index, src, attrs));
    fl_status status = reduce == REDUCE_MEAN ? divide_by_counts(x, index, src, attrs) : FL_OK;
    if (status != FL_OK) fl_tensor_unref(*out);
    return status;
}

static fl_status reduce_elements(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                                 const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(fl_scatter_check(who, x, in, attrs));
    if (x->meta->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    fl_tensor *index = in[FL_WRITE_INDEX].tensor,
              *src = expr_covered(&c, in[FL_WRITE_VALUE].tensor, &index->meta->shape);
    if (src) c.status = reduce_into(out, x, index, src, attrs);
    return fl_expr_end(&c);
}

fl_status fl_scatter_multiply(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                              const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(scatter_reduce));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    fl_attr_set(&a, REDUCE_HOW, REDUCE_PROD);
    return reduce_elements(out, who, x, in, &a);
}

static const char *const reduce_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3), 'sum'",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(3, 4), 'mean'",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2), 'amax'",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2), 'amin', false",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2), 'prod'",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2), 'mean', false",
    NULL};
FL_IN_PLACE_PAIR(scatter_reduce,
                 "x, axis: axis, index, src, reduce: sum|prod|mean|amax|amin, include_self: bool = true",
                 "What the elements of src make together at their positions, with the position along the axis replaced "
                 "by its index: sum, product, mean, largest or smallest; include_self: with the element of x there.",
                 reduce_elements, reduce_samples);
