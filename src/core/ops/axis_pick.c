/*
** axis_pick.c -- one element per line along an axis: taking it, and putting it back among zeros.
**
** The gradient of max and min along an axis. Each of the two ops is the other's gradient.
*/
#include "op/reduce.h"
#include "cpu/pick.h"
#include "ops.h"

/* Both ops: the shape of the lines of x, which `index` must have: the axis away, or
** of size 1. */
static fl_status line_shape(fl_shape *out, const fl_infer *infer, const fl_shape *x)
{
    int axis;
    char ti[FL_SHAPE_TEXT], tl[FL_SHAPE_TEXT];
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_PICK_AXIS].integer, x));
    fl_reduce_shape(out, x, x->ndim ? 1u << axis : 0, infer->attrs->at[FL_PICK_KEEPDIM].integer != 0);
    if (infer->in[FL_PICK_INDEX].dtype == FL_INT64 && fl_shape_equal(&infer->in[FL_PICK_INDEX].shape, out))
        return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "index must be int64%s, got %s%s", fl_shape_text(tl, out),
                         fl_dtype_name(infer->in[FL_PICK_INDEX].dtype),
                         fl_shape_text(ti, &infer->in[FL_PICK_INDEX].shape));
}

/* ---- axis_gather ---- */

static fl_status infer_axis_gather(fl_infer *infer)
{
    infer->out[0].dtype = infer->in[0].dtype;
    return line_shape(&infer->out[0].shape, infer, &infer->in[0].shape);
}

/* Signatures of (x, index) -> line, or (line, index) -> x: every axis but the picked one, and P(sum) of the values. */
static void sbp_lines(fl_sigs *sigs, const fl_shape *x, bool gathers)
{
    int axis = fl_axis_of(&sigs->attrs->at[FL_PICK_AXIS], x->ndim);
    bool keepdim = sigs->attrs->at[FL_PICK_KEEPDIM].integer != 0;
    for (int a = 0; a < x->ndim; a++) {
        if (a == axis) continue;
        fl_sbp line = FL_S(keepdim || a < axis ? a : a - 1);
        if (gathers) FL_SIG(sigs, NULL, FL_S(a), line, line);
        else FL_SIG(sigs, NULL, line, line, FL_S(a));
    }
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static void sbp_axis_gather(fl_sigs *sigs) { sbp_lines(sigs, &sigs->in_logical[0], true); }

static fl_status kernel_axis_gather(fl_kernel *kernel)
{
    return fl_cpu_axis_gather(&kernel->out[0], &kernel->in[0], &kernel->in[FL_PICK_INDEX],
                              fl_axis_of(&kernel->attrs->at[FL_PICK_AXIS], kernel->in[0].ndim));
}

/* Linear in x: the gradient goes where the element was taken. */
static fl_status grad_axis_gather(fl_grad *g)
{
    fl_attrs a;
    const fl_shape *shape = &g->in_meta[0]->shape;
    fl_attrs_init(&a, FL_OP_REF(axis_scatter));
    a.at[FL_PICK_AXIS] = g->attrs->at[FL_PICK_AXIS];
    a.at[FL_PICK_KEEPDIM] = g->attrs->at[FL_PICK_KEEPDIM];
    fl_attr_set_list(&a, FL_PICK_SIZES, shape->dims, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &a, axis_scatter, fl_of(g->gout[0]), g->in[FL_PICK_INDEX]);
}

FL_OP(axis_gather) = {
    .name = "axis_gather",
    .sig = "axis_gather(x, index, axis: axis, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "The element of every line along the axis at the line's index.",
    .infer = infer_axis_gather,
    .sbp = sbp_axis_gather,
    .cpu = kernel_axis_gather,
    .grad = grad_axis_gather,
    .saves_in = 1u << FL_PICK_INDEX,
    FL_SAMPLES("flow.randn(3, 4), flow.tensor({1, 0, 3}), 1", "flow.randn(3, 4), flow.tensor({{1, 0, 2, 1}}), 0, true"),
};

/* ---- axis_scatter ---- */

static fl_status infer_axis_scatter(fl_infer *infer)
{
    const fl_attr *sizes = &infer->attrs->at[FL_PICK_SIZES];
    fl_shape want;
    FL_TRY(fl_shape_make(&infer->out[0].shape, infer->name, sizes->list, sizes->count));
    FL_TRY(line_shape(&want, infer, &infer->out[0].shape));
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_require_shape(infer, 0, "line", &want);
}

static void sbp_axis_scatter(fl_sigs *sigs) { sbp_lines(sigs, &sigs->out_logical[0], false); }

static fl_status kernel_axis_scatter(fl_kernel *kernel)
{
    return fl_cpu_axis_scatter(&kernel->out[0], &kernel->in[0], &kernel->in[FL_PICK_INDEX],
                               fl_axis_of(&kernel->attrs->at[FL_PICK_AXIS], kernel->out[0].ndim));
}

/* Linear in the line, with axis_gather as its transpose. */
static fl_status grad_axis_scatter(fl_grad *g)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(axis_gather));
    a.at[FL_PICK_AXIS] = g->attrs->at[FL_PICK_AXIS];
    a.at[FL_PICK_KEEPDIM] = g->attrs->at[FL_PICK_KEEPDIM];
    return FL_CALL_WITH(&g->gin[0], &a, axis_gather, fl_of(g->gout[0]), g->in[FL_PICK_INDEX]);
}

FL_OP(axis_scatter) = {
    .name = "axis_scatter",
    .sig = "axis_scatter(line, index, axis: axis, keepdim: bool, sizes: sizes)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros of the given sizes, with the value of every line at its index along the axis.",
    .infer = infer_axis_scatter,
    .sbp = sbp_axis_scatter,
    .cpu = kernel_axis_scatter,
    .grad = grad_axis_scatter,
    .saves_in = 1u << FL_PICK_INDEX,
    FL_SAMPLES("flow.randn(3), flow.tensor({1, 0, 3}), 1, false, {3, 4}"),
};
