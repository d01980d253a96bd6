/*
** softmax.c -- softmax and log_softmax along one axis, with fused gradients.
**
** Over a split axis they are written in other ops: the maximum and the sum are then combined over the ranks.
*/
#include "cpu/rows.h"
#include "cpu/stage.h"
#include "expr.h"
#include "op/softmax.h"

/* The axis is the first attribute of all four. */
static int axis_of(const fl_attrs *attrs, int ndim) { return fl_axis_of(&attrs->at[FL_SOFTMAX_AXIS], ndim); }

static fl_status infer_softmax(fl_infer *infer)
{
    int axis;
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_SOFTMAX_AXIS].integer, &infer->in[0].shape));
    return fl_infer_same(infer);
}

static fl_status infer_backward(fl_infer *infer)
{
    if (!fl_shape_equal(&infer->in[FL_SOFTMAX_DY].shape, &infer->in[FL_SOFTMAX_Y].shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "gradient and result differ in shape");
    return infer_softmax(infer);
}

/* ---- kernels ---- */

static fl_row_shape rows_of(const fl_kernel *kernel)
{
    return fl_row_shape_of(kernel->out[0].size, kernel->out[0].ndim, axis_of(kernel->attrs, kernel->out[0].ndim));
}

static fl_status kernel_softmax(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_row_shape rows = rows_of(kernel);
    uint32_t narrow = rows.inner == 1 ? fl_stage_narrow(kernel, 1u << 0 | FL_STAGE_RESULT(0)) : 0;
    FL_TRY(fl_stage_open(&s, kernel, narrow));
    FL_TRY(fl_cpu_softmax(narrow ? kernel->out[0].dtype : s.dtype, s.out[0], s.in[0], rows,
                          kernel->variant == FL_SOFTMAX_LOGS));
    return fl_stage_close(&s);
}

static fl_status kernel_backward(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_row_shape rows = rows_of(kernel);
    uint32_t all = 1u << FL_SOFTMAX_DY | 1u << FL_SOFTMAX_Y | FL_STAGE_RESULT(0);
    uint32_t narrow = rows.inner == 1 ? fl_stage_narrow(kernel, all) : 0;
    FL_TRY(fl_stage_open(&s, kernel, narrow));
    FL_TRY(fl_cpu_softmax_backward(narrow ? kernel->out[0].dtype : s.dtype, s.out[0], s.in[FL_SOFTMAX_DY],
                                   s.in[FL_SOFTMAX_Y], rows, kernel->variant == FL_SOFTMAX_LOGS));
    return fl_stage_close(&s);
}

/* ---- in other ops, for a split axis ---- */

static uint32_t axis_mask(const fl_operand *operand, const fl_attrs *attrs)
{
    return 1u << axis_of(attrs, operand->tensor->meta->shape.ndim);
}

static fl_status body_softmax(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    uint32_t axis = axis_mask(in, attrs);
    fl_tensor *e = expr_exp(&c, expr_sub(&c, x, expr_whole(&c, expr_amax(&c, x, axis, true))));
    fl_tensor *result = expr_div(&c, e, expr_whole(&c, expr_sum(&c, e, axis, true)));
    out[0] = fl_expr_take(&c, expr_cast(&c, result, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

static fl_status body_log_softmax(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    uint32_t axis = axis_mask(in, attrs);
    fl_tensor *shifted = expr_sub(&c, x, expr_whole(&c, expr_amax(&c, x, axis, true)));
    fl_tensor *sum = expr_whole(&c, expr_sum(&c, expr_exp(&c, shifted), axis, true));
    out[0] = fl_expr_take(&c, expr_cast(&c, expr_sub(&c, shifted, expr_log(&c, sum)), in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

static fl_status body_softmax_backward(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *g = in[FL_SOFTMAX_DY].tensor, *y = in[FL_SOFTMAX_Y].tensor;
    fl_tensor *total = expr_whole(&c, expr_sum(&c, expr_mul(&c, g, y), axis_mask(in, attrs), true));
    out[0] = fl_expr_take(&c, expr_mul(&c, y, expr_sub(&c, g, total)));
    return fl_expr_end(&c);
}

static fl_status body_log_softmax_backward(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *g = in[FL_SOFTMAX_DY].tensor, *y = in[FL_SOFTMAX_Y].tensor;
    fl_tensor *total = expr_whole(&c, expr_sum(&c, g, axis_mask(in, attrs), true));
    out[0] = fl_expr_take(&c, expr_sub(&c, g, expr_mul(&c, expr_exp(&c, y), total)));
    return fl_expr_end(&c);
}

/* A line along the axis is normalised as a whole; the other axes may be split. With the axis split the body combines
** the maximum and the sum over the ranks. Softmax is not linear, so x is never partial. */
static void sbp_with(fl_sigs *sigs, fl_body body)
{
    int ndim = sigs->in[0].shape.ndim, axis = axis_of(sigs->attrs, ndim);
    if (ndim == 0) return;
    if (sigs->in_logical[0].dims[axis] == 0) body = NULL; /* every part is empty, and nothing has no largest element */
    fl_sbp_except(sigs, 1u << axis);
    if (sigs->nin == 2) FL_SIG(sigs, body, FL_S(axis), FL_S(axis), FL_S(axis));
    else FL_SIG(sigs, body, FL_S(axis), FL_S(axis));
}

static void sbp_softmax(fl_sigs *sigs) { sbp_with(sigs, body_softmax); }
static void sbp_log_softmax(fl_sigs *sigs) { sbp_with(sigs, body_log_softmax); }
static void sbp_softmax_backward(fl_sigs *sigs) { sbp_with(sigs, body_softmax_backward); }
static void sbp_log_softmax_backward(fl_sigs *sigs) { sbp_with(sigs, body_log_softmax_backward); }

/* ---- descriptors ---- */

static const char *const softmax_samples[] = {"flow.randn(3, 5), 1", "flow.randn(2, 7, 3), 1", "flow.randn(4), -1",
                                              "flow.randn(20, 2), 0", NULL};

/* dx = y (g - sum(g y)): each score moves the whole line through the sum. */
static const char *const softmax_vjp[] = {"softmax_backward(g, out, axis)"};
FL_OP(softmax) = {
    .name = "softmax",
    .flags = FL_OP_WIDE,
    .sig = "softmax(x, axis: axis)",
    .nout = 1,
    .doc = "e^x divided by its sum along the axis: positive numbers that add up to 1.",
    .variant = FL_SOFTMAX_PLAIN,
    .infer = infer_softmax,
    .sbp = sbp_softmax,
    .cpu = kernel_softmax,
    .vjp = softmax_vjp,
    .samples = softmax_samples,
};

/* dx = g - e^y sum(g) */
static const char *const log_softmax_vjp[] = {"log_softmax_backward(g, out, axis)"};
FL_OP(log_softmax) = {
    .name = "log_softmax",
    .flags = FL_OP_WIDE,
    .sig = "log_softmax(x, axis: axis)",
    .nout = 1,
    .doc = "Logarithm of softmax along the axis, computed without overflow.",
    .variant = FL_SOFTMAX_LOGS,
    .infer = infer_softmax,
    .sbp = sbp_log_softmax,
    .cpu = kernel_softmax,
    .vjp = log_softmax_vjp,
    .samples = softmax_samples,
};

static const char *const backward_samples[] = {"flow.randn(3, 5), flow.randn(3, 5), 1",
                                               "flow.randn(4, 2), flow.randn(4, 2), 0", NULL};

/* Linear in dy, so its own gradient there; y stands in both factors of y (dy - sum(dy y)). */
static const char *const softmax_backward_vjp[] = {"softmax_backward(g, y, axis)",
                                                   "g * (dy - sum(dy * y, axis, true)) - dy * sum(g * y, axis, true)"};
FL_OP(softmax_backward) = {
    .name = "softmax_backward",
    .sig = "softmax_backward(dy, y, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of softmax from its result: y (dy - sum(dy y)).",
    .variant = FL_SOFTMAX_PLAIN,
    .infer = infer_backward,
    .sbp = sbp_softmax_backward,
    .cpu = kernel_backward,
    .vjp = softmax_backward_vjp,
    .samples = backward_samples,
};

/* dy - e^y sum(dy): linear in dy; y stands in e^y alone. */
static const char *const log_softmax_backward_vjp[] = {"g - sum(g * exp(y), axis, true)",
                                                       "-(g * exp(y) * sum(dy, axis, true))"};
FL_OP(log_softmax_backward) = {
    .name = "log_softmax_backward",
    .sig = "log_softmax_backward(dy, y, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of log_softmax from its result: dy - e^y sum(dy).",
    .variant = FL_SOFTMAX_LOGS,
    .infer = infer_backward,
    .sbp = sbp_log_softmax_backward,
    .cpu = kernel_backward,
    .vjp = log_softmax_backward_vjp,
    .samples = backward_samples,
};
