/*
** scan.c -- running sums along an axis.
**
** The gradient of a running sum is the running sum from the other end, so there are two ops, each the other's gradient.
*/
#include "op/scan.h"
#include "cpu/scan.h"
#include "ops.h"

enum { FROM_FIRST, FROM_LAST }; /* op->variant: the element a running sum begins with */

static fl_status infer_cumsum(fl_infer *infer)
{
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_SCAN_AXIS].integer, &infer->in[0].shape));
    FL_TRY(fl_infer_same(infer));
    if (!fl_dtype_is_float(infer->in[0].dtype)) infer->out[0].dtype = FL_INT64;
    return FL_OK;
}

static int axis_of(const fl_attrs *attrs, int ndim) { return fl_axis_of(&attrs->at[FL_SCAN_AXIS], ndim); }

/* A split of the axis itself is not among them: each part would need the sums of all parts before it. */
static void sbp_cumsum(fl_sigs *sigs)
{
    int ndim = sigs->in[0].shape.ndim;
    fl_sbp_except(sigs, ndim ? 1u << axis_of(sigs->attrs, ndim) : 0);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static fl_status kernel_cumsum(fl_kernel *kernel)
{
    return fl_cpu_scan("cumsum", &kernel->out[0], &kernel->in[0], axis_of(kernel->attrs, kernel->in[0].ndim),
                       kernel->variant == FROM_LAST);
}

static const char *const samples[] = {
    "flow.randn(3, 5), 1", "flow.randn(40, 2), 0",           "flow.randn(2, 7, 9), -2",
    "flow.tensor(1.5), 0", "flow.randint(-5, 6, {4, 3}), 0", NULL};

static const char *const cumsum_vjp[] = {"cumsum_backward(g, axis)"};
FL_OP(cumsum) = {
    .name = "cumsum",
    .flags = FL_OP_WIDE,
    .sig = "cumsum(x, axis: axis)",
    .wider = "cumsum_as",
    .nout = 1,
    .doc = "Running sums along an axis, from its first element; integers and bool give int64.",
    .variant = FROM_FIRST,
    .infer = infer_cumsum,
    .sbp = sbp_cumsum,
    .cpu = kernel_cumsum,
    .vjp = cumsum_vjp,
    .samples = samples,
};

static const char *const cumsum_backward_vjp[] = {"cumsum(g, axis)"};
FL_OP(cumsum_backward) = {
    .name = "cumsum_backward",
    .sig = "cumsum_backward(dy, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of cumsum: running sums along the axis, from its last element.",
    .variant = FROM_LAST,
    .infer = infer_cumsum,
    .sbp = sbp_cumsum,
    .cpu = kernel_cumsum,
    .vjp = cumsum_backward_vjp,
    .samples = samples,
};
