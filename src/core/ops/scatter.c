/*
** scatter.c -- elements written or added at places that an index names along an axis: the other direction of gather.
**
** What is written goes through scatter_write_, line by line in the order of the index, so the last of equal places
** stays. What is added up is the gradient of gather, then added to x.
*/
#include "op/indexing.h"
#include "op/slicing.h"
#include "cpu/scatter.h"
#include "expr.h"

/* ---- writing ---- */

static int axis_of(const fl_attrs *attrs, int ndim) { return ndim ? fl_axis_of(&attrs->at[FL_INDEXED_AXIS], ndim) : 0; }

/* Sizes have been checked by who calls it. */
static fl_status infer_write(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_WRITE_X].shape, *index = &infer->in[FL_WRITE_INDEX].shape;
    int axis;
    infer->name = "scatter_";
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_INDEXED_AXIS].integer, x));
    bool fits = fl_dtype_is_integer(infer->in[FL_WRITE_INDEX].dtype) && index->ndim == x->ndim;
    for (int a = 0; fits && a < x->ndim; a++) fits = a == axis || index->dims[a] <= x->dims[a];
    if (fits && infer->nin == 3 && infer->in[FL_WRITE_VALUE].kind == FL_TENSOR)
        fits = infer->in[FL_WRITE_VALUE].dtype == infer->in[FL_WRITE_X].dtype
            && fl_shape_equal(&infer->in[FL_WRITE_VALUE].shape, index);
    if (!fits) return fl_infer_fail(infer, FL_ERR_SHAPE, "operands do not fit");
    return fl_infer_same(infer);
}

/* Each part of x takes what belongs to it, from an index that is whole or split alike. */
static void sbp_write(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_WRITE_X], *index = &sigs->in_logical[FL_WRITE_INDEX];
    int axis = axis_of(sigs->attrs, x->ndim);
    for (int a = 0; a < x->ndim; a++) {
        bool alike = a != axis && index->dims[a] == x->dims[a];
        fl_sbp part = FL_S(a),
               src = sigs->nin == 3 && sigs->in[FL_WRITE_VALUE].kind == FL_TENSOR && alike ? part : FL_B;
        if (sigs->nin == 3) FL_SIG(sigs, NULL, part, alike ? part : FL_B, src, part);
        else FL_SIG(sigs, NULL, part, alike ? part : FL_B, part);
    }
    if (sigs->in[0].dtype == FL_BOOL) return;
    if (sigs->nin == 2) FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_PSUM);
    else if (sigs->in[FL_WRITE_VALUE].kind == FL_TENSOR) FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_PSUM, FL_PSUM);
}

static const int64_t none[FL_MAX_NDIM]; /* strides of one number for all */

static fl_status kernel_write(fl_kernel *kernel)
{
    const fl_view *src = &kernel->in[FL_WRITE_VALUE];
    int64_t number[1] = {0};
    if (src->data != src->scalar)
        return fl_cpu_scatter(kernel, axis_of(kernel->attrs, kernel->out[0].ndim), src->data, src->stride);
    fl_view value = {.data = number, .dtype = kernel->out[0].dtype, .contiguous = true, .numel = 1};
    FL_TRY(fl_cpu_copy(&value, src));
    return fl_cpu_scatter(kernel, axis_of(kernel->attrs, kernel->out[0].ndim), number, none);
}

static fl_status kernel_zero(fl_kernel *kernel)
{
    const int64_t zero = 0;
    FL_TRY(fl_cpu_copy(&kernel->out[0], &kernel->in[0]));
    return fl_cpu_scatter(kernel, axis_of(kernel->attrs, kernel->out[0].ndim), &zero, none);
}

/* What is overwritten has no gradient; each element of src has that of its position. */
static const char *const write_vjp[] = {"scatter_zero(g, axis, index)", NULL, "gather(g, axis, index)"};
static const char *const write_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, flow.randn(3, 2)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}, flow.randn(2, 2)",
    "flow.randn(3, 4), -1, flow.tensor{{2}, {1}, {0}}, 1.5", "flow.randn(5), 0, flow.tensor{4, 1}, flow.randn(2)",
    NULL};
FL_OP(scatter_write_) = {
    .name = "scatter_write_",
    .sig = "scatter_write_(x, axis: axis, index, src|n)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .mutates = 1,
    .doc = "scatter_ with src in the shape of index.",
    .infer = infer_write,
    .sbp = sbp_write,
    .cpu = kernel_write,
    .vjp = write_vjp,
    .samples = write_samples,
};

/* A mask of positions is its own transpose. */
static const char *const zero_vjp[] = {"scatter_zero(g, axis, index)", NULL};
static const char *const zero_samples[] = {"flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 3}}",
                                           "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}", NULL};
FL_OP(scatter_zero) = {
    .name = "scatter_zero",
    .sig = "scatter_zero(x, axis: axis, index)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "x with zeros at the positions of index along the axis.",
    .infer = infer_write,
    .sbp = sbp_write,
    .cpu = kernel_zero,
    .vjp = zero_vjp,
    .samples = zero_samples,
};

/* ---- what scripts call ---- */

static fl_status check_index(const char *who, const fl_tensor *x, const fl_tensor *index, const fl_attrs *attrs)
{
    const fl_shape *xs = &x->meta->shape, *is = &index->meta->shape;
    char tx[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    int axis;
    if (!fl_dtype_is_integer(index->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "%s: index must be integers, got %s%s", who, fl_dtype_name(index->meta->dtype),
                       fl_shape_text(ti, is));
    FL_TRY(fl_shape_axis(&axis, who, attrs->at[FL_INDEXED_AXIS].integer, xs));
    bool fits = xs->ndim == is->ndim;
    for (int a = 0; fits && a < xs->ndim; a++) fits = a == axis || is->dims[a] <= xs->dims[a];
    if (!fits)
        return fl_fail(FL_ERR_SHAPE,
                       "%s: index %s must have as many axes as x %s and, except along axis %d, at most the sizes of x",
                       who, fl_shape_text(ti, is), fl_shape_text(tx, xs), axis);
    if (xs->ndim && xs->dims[axis] == 0 && fl_shape_numel(is) > 0) /* no kernel runs for an empty x */
        return fl_fail(FL_ERR_SHAPE, "%s: axis %d of x %s is empty, but index %s is not", who, axis,
                       fl_shape_text(tx, xs), fl_shape_text(ti, is));
    return FL_OK;
}

static fl_status check_src(const char *who, const fl_tensor *x, const fl_tensor *index, const fl_operand *src)
{
    if (src->kind != FL_TENSOR) return fl_require_fits(who, x->meta->dtype, src);
    const fl_meta *meta = src->tensor->meta;
    const fl_shape *is = &index->meta->shape;
    char ts[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    if (meta->dtype != x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: src is %s and x %s: dtypes must be equal", who, fl_dtype_name(meta->dtype),
                       fl_dtype_name(x->meta->dtype));
    bool fits = meta->shape.ndim == is->ndim;
    for (int a = 0; fits && a < is->ndim; a++) fits = is->dims[a] <= meta->shape.dims[a];
    if (fits) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: src %s must have as many axes as index %s and at least its sizes", who,
                   fl_shape_text(ts, &meta->shape), fl_shape_text(ti, is));
}

/* The corner of src that index covers. */
static fl_status covered(fl_tensor **out, fl_tensor *src, const fl_shape *index)
{
    fl_tensor *part = fl_tensor_ref(src);
    for (int a = 0; a < index->ndim; a++) {
        fl_tensor *next;
        fl_attrs attrs;
        if (part->meta->shape.dims[a] == index->dims[a]) continue;
        fl_attrs_init(&attrs, FL_OP_REF(narrow));
        fl_attr_set(&attrs, FL_SLICE_AXIS, a);
        fl_attr_set(&attrs, FL_SLICE_START, 0);
        fl_attr_set(&attrs, FL_SLICE_LENGTH, index->dims[a]);
        fl_status status = FL_CALL_WITH(&next, &attrs, narrow, fl_of(part));
        fl_tensor_unref(part);
        FL_TRY(status);
        part = next;
    }
    *out = part;
    return FL_OK;
}

static fl_status checked(const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    FL_TRY(check_index(who, in[FL_WRITE_X].tensor, in[FL_WRITE_INDEX].tensor, attrs));
    return check_src(who, in[FL_WRITE_X].tensor, in[FL_WRITE_INDEX].tensor, &in[FL_WRITE_VALUE]);
}

/* x is written; operands have been checked. */
static fl_status write_into(fl_tensor **out, fl_tensor *x, const fl_operand *in, const fl_attrs *attrs)
{
    fl_operand src = in[FL_WRITE_VALUE];
    fl_tensor *part = NULL;
    if (src.kind == FL_TENSOR) {
        FL_TRY(covered(&part, src.tensor, &in[FL_WRITE_INDEX].tensor->meta->shape));
        src = fl_of(part);
    }
    fl_status status = FL_CALL_WITH(out, attrs, scatter_write_, fl_of(x), in[FL_WRITE_INDEX], src);
    fl_tensor_unref(part);
    return status;
}

static fl_status body_scatter_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    FL_TRY(checked("scatter_", in, attrs));
    return write_into(out, in[FL_WRITE_X].tensor, in, attrs);
}

static fl_status body_scatter(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(checked("scatter", in, attrs));
    fl_tensor *copy = EXPR_CALL(&c, NULL, clone, fl_of(expr_whole(&c, in[FL_WRITE_X].tensor)));
    if (copy) c.status = write_into(out, copy, in, attrs);
    return fl_expr_end(&c);
}

/* What is added to x, in its shape. */
static fl_status additions(fl_tensor **out, const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    const fl_meta *x = in[FL_WRITE_X].tensor->meta;
    fl_tensor *part;
    fl_attrs a;
    FL_TRY(checked(who, in, attrs));
    if (x->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    FL_TRY(covered(&part, in[FL_WRITE_VALUE].tensor, &in[FL_WRITE_INDEX].tensor->meta->shape));
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    fl_attr_set_list(&a, FL_GATHER_BACKWARD_SIZES, x->shape.dims, x->shape.ndim);
    fl_attr_set_like(&a, FL_GATHER_BACKWARD_LIKE, x);
    fl_status status = FL_CALL_WITH(out, &a, gather_backward, fl_of(part), in[FL_WRITE_INDEX]);
    fl_tensor_unref(part);
    return status;
}

static fl_status body_scatter_add(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *sum;
    FL_TRY(additions(&sum, "scatter_add", in, attrs));
    fl_status status = FL_CALL(out, add, in[0], fl_of(sum));
    fl_tensor_unref(sum);
    return status;
}

static fl_status body_scatter_add_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *sum;
    FL_TRY(additions(&sum, "scatter_add_", in, attrs));
    fl_status status = fl_dispatch_inplace(out, FL_OP_REF(add), (const fl_operand[]){in[0], fl_of(sum)}, 2, NULL);
    fl_tensor_unref(sum);
    return status;
}

static const char *const scatter_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, flow.randn(3, 2)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}, flow.randn(3, 4)",
    "flow.randn(3, 4), -1, flow.tensor{{2}, {1}, {0}}, 1.5", NULL};
FL_OP(scatter) = {
    .name = "scatter",
    .sig = "scatter(x, axis: axis, index, src|n)",
    .nout = 1,
    .doc = "x with every element of src (or a number) written at its position, with the position along the axis "
           "replaced by its index; of equal positions the last is kept.",
    .body = body_scatter,
    .samples = scatter_samples,
};
FL_OP(scatter_) = {
    .name = "scatter_",
    .sig = "scatter_(x, axis: axis, index, src|n)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .mutates = 1,
    .doc = "scatter, in place.",
    .body = body_scatter_,
    .samples = scatter_samples,
};

static const char *const scatter_add_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(3, 4)", NULL};
FL_OP(scatter_add) = {
    .name = "scatter_add",
    .sig = "scatter_add(x, axis: axis, index, src)",
    .nout = 1,
    .doc = "x with every element of src added at its position, with the position along the axis replaced by its index; "
           "added in the order of the index.",
    .body = body_scatter_add,
    .samples = scatter_add_samples,
};
FL_OP(scatter_add_) = {
    .name = "scatter_add_",
    .sig = "scatter_add_(x, axis: axis, index, src)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .mutates = 1,
    .doc = "scatter_add, in place.",
    .body = body_scatter_add_,
    .samples = scatter_add_samples,
};
