/*
** scatter.c -- elements written or added at places that an index names along an axis: the other direction of gather.
**
** Writes go through scatter_write_, line by line in the order of the index, so the last of equal places
** stays. Additions go through scatter_into_, which adds in that order; on devices, and in 16 bits, they are the
** gradient of gather, then added to x.
*/
#include "op/slicing.h"
#include "cpu/scatter.h"
#include "scatter.h"

/* ---- writing ---- */

int fl_scatter_axis(const fl_attrs *attrs, int ndim)
{
    return ndim ? fl_axis_of(&attrs->at[FL_INDEXED_AXIS], ndim) : 0;
}

/* Sizes have been checked by who calls it. */
fl_status fl_scatter_infer(fl_infer *infer)
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
void fl_scatter_sbp(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_WRITE_X], *index = &sigs->in_logical[FL_WRITE_INDEX];
    int axis = fl_scatter_axis(sigs->attrs, x->ndim);
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
        return fl_cpu_scatter(kernel, fl_scatter_axis(kernel->attrs, kernel->out[0].ndim), src->data, src->stride,
                              FL_SCATTER_WRITE);
    fl_view value = {.data = number, .dtype = kernel->out[0].dtype, .contiguous = true, .numel = 1};
    FL_TRY(fl_cpu_copy(&value, src));
    return fl_cpu_scatter(kernel, fl_scatter_axis(kernel->attrs, kernel->out[0].ndim), number, none, FL_SCATTER_WRITE);
}

static fl_status kernel_zero(fl_kernel *kernel)
{
    const int64_t zero = 0;
    FL_TRY(fl_cpu_copy(&kernel->out[0], &kernel->in[0]));
    return fl_cpu_scatter(kernel, fl_scatter_axis(kernel->attrs, kernel->out[0].ndim), &zero, none, FL_SCATTER_WRITE);
}

/* Overwritten elements have no gradient; each element of src has that of its position. */
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
    .infer = fl_scatter_infer,
    .sbp = fl_scatter_sbp,
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
    .infer = fl_scatter_infer,
    .sbp = fl_scatter_sbp,
    .cpu = kernel_zero,
    .vjp = zero_vjp,
    .samples = zero_samples,
};

/* ---- adding ---- */

fl_status fl_require_foldable(fl_infer *infer)
{
    fl_dtype dtype = infer->in[FL_WRITE_X].dtype;
    if (dtype == FL_BOOL || dtype == FL_FLOAT16 || dtype == FL_BFLOAT16)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "takes float32 or float64 or integers, x is %s",
                             fl_dtype_name(dtype));
    return fl_infer_same(infer);
}

fl_status fl_scatter_infer_fold(fl_infer *infer)
{
    FL_TRY(fl_scatter_infer(infer));
    return fl_require_foldable(infer);
}

static fl_status kernel_into(fl_kernel *kernel)
{
    const fl_view *src = &kernel->in[FL_WRITE_VALUE];
    return fl_cpu_scatter(kernel, fl_scatter_axis(kernel->attrs, kernel->out[0].ndim), src->data, src->stride,
                          FL_SCATTER_ADD);
}

/* As writing; and each rank may add a part of the index to its partial sum. */
static void sbp_into(fl_sigs *sigs)
{
    fl_scatter_sbp(sigs);
    for (int a = 0; a < sigs->in_logical[FL_WRITE_INDEX].ndim; a++)
        FL_SIG(sigs, NULL, FL_PSUM, FL_S(a), FL_S(a), FL_PSUM);
}

static const char *const into_vjp[] = {"g", NULL, "gather(g, axis, index)"};
static const char *const into_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(2, 2)", NULL};
FL_OP(scatter_into_) = {
    .name = "scatter_into_",
    .sig = "scatter_into_(x, axis: axis, index, src)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY,
    .mutates = 1,
    .doc = "scatter_add_ with src in the shape of index.",
    .infer = fl_scatter_infer_fold,
    .sbp = sbp_into,
    .cpu = kernel_into,
    .vjp = into_vjp,
    .samples = into_samples,
};

bool fl_adds_in_place(const fl_tensor *x)
{
    fl_dtype dtype = x->meta->dtype;
    bool wide = !fl_dtype_is_float(dtype) || fl_dtype_size(dtype) > 2;
    return wide && x->meta->placement->type != FL_CUDA;
}

/* ---- operands ---- */

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

fl_tensor *expr_covered(fl_expr *expr, fl_tensor *src, const fl_shape *index)
{
    for (int a = 0; src && a < index->ndim; a++)
        if (src->meta->shape.dims[a] != index->dims[a]) src = expr_narrowed(expr, src, a, 0, index->dims[a]);
    return src;
}

fl_status fl_scatter_check(const char *who, fl_tensor *x, const fl_operand *in, const fl_attrs *attrs)
{
    FL_TRY(check_index(who, x, in[FL_WRITE_INDEX].tensor, attrs));
    return check_src(who, x, in[FL_WRITE_INDEX].tensor, &in[FL_WRITE_VALUE]);
}

fl_status fl_scatter_write(fl_tensor **out, fl_tensor *x, fl_operand index, fl_operand src, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(scatter_write_));
    a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
    return FL_CALL_WITH(out, &a, scatter_write_, fl_of(x), index, src);
}

fl_status fl_scatter_add(fl_tensor **out, fl_tensor *x, fl_tensor *index, fl_tensor *src, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *sum;
    if (fl_adds_in_place(x)) {
        fl_attrs_init(&a, FL_OP_REF(scatter_into_));
        a.at[FL_INDEXED_AXIS] = attrs->at[FL_INDEXED_AXIS];
        return FL_CALL_WITH(out, &a, scatter_into_, fl_of(x), fl_of(index), fl_of(src));
    }
    FL_TRY(fl_gather_gradient(&sum, src, fl_of(index), attrs->at[FL_INDEXED_AXIS].integer, x->meta));
    fl_status status = fl_dispatch_inplace(out, FL_OP_REF(add), (const fl_operand[]){fl_of(x), fl_of(sum)}, 2, NULL);
    fl_tensor_unref(sum);
    return status;
}

/* ---- functions that scripts call ---- */

enum { SCATTER_REDUCE = FL_INDEXED_AXIS + 1 };
enum { REDUCE_ADD, REDUCE_MULTIPLY };

static fl_status add_elements(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                              const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(fl_scatter_check(who, x, in, attrs));
    if (x->meta->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    fl_tensor *index = in[FL_WRITE_INDEX].tensor,
              *part = expr_covered(&c, in[FL_WRITE_VALUE].tensor, &index->meta->shape);
    if (part) c.status = fl_scatter_add(out, x, index, part, attrs);
    return fl_expr_end(&c);
}

/* A number as a tensor in the shape of the index and the dtype of x. */
static fl_tensor *spread_number(fl_expr *expr, const fl_tensor *x, fl_tensor *index, const fl_operand *number)
{
    fl_tensor *ones = expr_cast(expr, expr_ones(expr, index), x->meta->dtype);
    return EXPR_CALL(expr, NULL, mul, fl_of(ones), *number);
}

/* scatter with `reduce`: calls scatter_add or scatter_reduce. */
static fl_status combine_elements(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                                  const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_operand operands[] = {fl_of(x), in[FL_WRITE_INDEX], in[FL_WRITE_VALUE]};
    FL_TRY(fl_scatter_check(who, x, in, attrs));
    if (in[FL_WRITE_VALUE].kind != FL_TENSOR)
        operands[FL_WRITE_VALUE] = fl_of(spread_number(&c, x, in[FL_WRITE_INDEX].tensor, &in[FL_WRITE_VALUE]));
    if (c.status == FL_OK && attrs->at[SCATTER_REDUCE].integer == REDUCE_ADD)
        c.status = add_elements(out, who, x, operands, attrs);
    else if (c.status == FL_OK) c.status = fl_scatter_multiply(out, who, x, operands, attrs);
    return fl_expr_end(&c);
}

static fl_status write_elements(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                                const fl_attrs *attrs)
{
    fl_operand src = in[FL_WRITE_VALUE];
    fl_expr c = {0};
    if (attrs->at[SCATTER_REDUCE].given) return combine_elements(out, who, x, in, attrs);
    FL_TRY(fl_scatter_check(who, x, in, attrs));
    if (src.kind == FL_TENSOR) src = fl_of(expr_covered(&c, src.tensor, &in[FL_WRITE_INDEX].tensor->meta->shape));
    if (c.status == FL_OK) c.status = fl_scatter_write(out, x, in[FL_WRITE_INDEX], src, attrs);
    return fl_expr_end(&c);
}

static const char *const scatter_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, flow.randn(3, 2)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}, flow.randn(3, 4)",
    "flow.randn(3, 4), -1, flow.tensor{{2}, {1}, {0}}, 1.5",
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 1}, {3, 2}}, flow.randn(3, 2), 'add'",
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, 1.5, 'multiply'",
    NULL};
FL_IN_PLACE_PAIR(scatter, "x, axis: axis, index, src|n, reduce: add|multiply = nil",
                 "x with every element of src (or a number) written at its position, with the position along the axis "
                 "replaced by its index; of equal positions the last is kept. With reduce they are added or multiplied "
                 "to what is there.",
                 write_elements, scatter_samples);

static const char *const scatter_add_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(3, 4)", NULL};
FL_IN_PLACE_PAIR(scatter_add, "x, axis: axis, index, src",
                 "x with every element of src added at its position, with the position along the axis replaced by its "
                 "index; added in the order of the index.",
                 add_elements, scatter_add_samples);
