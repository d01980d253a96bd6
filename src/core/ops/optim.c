/*
** optim.c -- optimizer steps fused over all parameters at once, and gradient clipping.
**
** The operands are groups of equally many tensors, one after the other (all parameters, all gradients, all states).
** Parameters of one call may have different SBPs; those at one position of the lists are split alike.
*/
#include "cpu/optim.h"
#include "op/optim.h"
#include "ops.h"

#include <math.h>

/* ---- steps ---- */

/* Groups of equal length, their tensors of equal shapes, all floats. */
static fl_status infer_groups(fl_infer *infer)
{
    int groups = infer->op->groups;
    if (infer->nin == 0 || infer->nin % groups)
        return fl_infer_fail(infer, FL_ERR_VALUE, "takes %d lists of equally many tensors, got %d tensors", groups,
                             infer->nin);
    int members = infer->nin / groups;
    for (int i = 0; i < infer->nin; i++) {
        FL_TRY(fl_require_float(infer, i));
        const fl_shape *first = &infer->in[i % members].shape, *other = &infer->in[i].shape;
        if (fl_shape_equal(first, other)) continue;
        char x[FL_SHAPE_TEXT], y[FL_SHAPE_TEXT];
        return fl_infer_fail(infer, FL_ERR_SHAPE, "parameter %d is %s, list %d has %s there", i % members + 1,
                             fl_shape_text(x, first), i / members + 1, fl_shape_text(y, other));
    }
    return FL_OK;
}

/* A step is elementwise over the tensors of all lists, so a group may be split along one axis alike. The sum of
** squares over parts is a partial sum. */
static void sbp_alike(fl_sigs *sigs)
{
    fl_sbp sig[sigs->nin + sigs->nout];
    for (int axis = 0; axis < FL_MAX_NDIM; axis++) {
        bool fits = true;
        for (int i = 0; i < sigs->nin; i++) {
            fits = fits && axis < sigs->in_logical[i].ndim;
            sig[i] = FL_S(axis);
        }
        for (int i = 0; i < sigs->nout; i++) sig[sigs->nin + i] = FL_PSUM;
        if (fits) fl_sig_add(sigs, NULL, sig);
    }
}

static fl_status kernel_adamw(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    double lr = a[FL_ADAM_LR].number, beta1 = a[FL_ADAM_BETA1].number, beta2 = a[FL_ADAM_BETA2].number;
    double decay = a[FL_ADAM_DECAY].number, step = (double)a[FL_ADAM_STEP].integer;
    bool decoupled = a[FL_ADAM_DECOUPLED].integer;
    fl_step s = {.gradient_scale = a[FL_ADAM_MAXIMIZE].integer ? -1 : 1,
                 .decay = decoupled ? 0 : decay,
                 .shrink = decoupled ? 1 - lr * decay : 1,
                 .beta1 = beta1,
                 .beta2 = beta2,
                 .eps = a[FL_ADAM_EPS].number,
                 .rate = lr / (1 - pow(beta1, step)),
                 .root_correction = 1 / sqrt(1 - pow(beta2, step))};
    return fl_cpu_step(kernel, kernel->op->groups, kernel->op->mutates, FL_STEP_ADAM, &s);
}

static fl_status check_adamw(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *a = attrs->at;
    for (int i = FL_ADAM_BETA1; i <= FL_ADAM_BETA2; i++)
        if (!(a[i].number >= 0 && a[i].number < 1))
            return fl_fail(FL_ERR_VALUE, "adamw_step: beta%d %g is not in [0, 1)", i - FL_ADAM_LR, a[i].number);
    if (a[FL_ADAM_STEP].integer < 1)
        return fl_fail(FL_ERR_VALUE, "adamw_step: step %lld must count from 1", (long long)a[FL_ADAM_STEP].integer);
    return FL_OK;
}

enum { STEP = FL_OP_HIDDEN | FL_OP_NO_GRAD };

static const char *const adamw_samples[] = {
    "{flow.randn(3, 2), flow.randn(5), flow.randn(3, 2), flow.randn(5), flow.zeros(3, 2), flow.zeros(5), flow.zeros(3, "
    "2), flow.zeros(5)}, 0.1, 0.9, 0.99, 1e-8, 0.1, 1",
    NULL};
FL_OP(adamw_step) = {
    .name = "adamw_step",
    .groups = FL_ADAM_GROUPS,
    .mutates = 1u << FL_STEP_PARAMETERS | 1u << FL_ADAM_FIRST_MOMENTS | 1u << FL_ADAM_SECOND_MOMENTS,
    .flags = STEP,
    .sig = "adamw_step(xs..., ~lr: float, ~beta1: float, ~beta2: float, ~eps: float, ~weight_decay: float, ~step: int, "
           "~decoupled: bool = true, ~maximize: bool = false)",
    .doc = "One step of AdamW (Adam if not decoupled) over parameters, gradients, first and second moments.",
    .infer = infer_groups,
    .check = check_adamw,
    .sbp = sbp_alike,
    .cpu = kernel_adamw,
    .samples = adamw_samples,
};

static fl_status kernel_sgd(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    fl_step s = {.rate = a[FL_PLAIN_LR].number,
                 .decay = a[FL_PLAIN_DECAY].number,
                 .gradient_scale = a[FL_PLAIN_MAXIMIZE].integer ? -1 : 1};
    return fl_cpu_step(kernel, kernel->op->groups, kernel->op->mutates, FL_STEP_SGD, &s);
}

static const char *const sgd_plain_samples[] = {
    "{flow.randn(3, 2), flow.randn(5), flow.randn(3, 2), flow.randn(5)}, 0.1, 0.01", NULL};
FL_OP(sgd_plain_step) = {
    .name = "sgd_plain_step",
    .groups = FL_PLAIN_GROUPS,
    .mutates = 1u << FL_STEP_PARAMETERS,
    .flags = STEP,
    .sig = "sgd_plain_step(xs..., ~lr: float, ~weight_decay: float = 0, ~maximize: bool = false)",
    .doc = "One step of gradient descent over parameters and gradients.",
    .infer = infer_groups,
    .sbp = sbp_alike,
    .cpu = kernel_sgd,
    .samples = sgd_plain_samples,
};

static fl_status kernel_sgd_momentum(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    bool first = a[FL_SGD_FIRST].integer; /* the buffers' contents do not count yet: they become the gradients */
    fl_step s = {.rate = a[FL_SGD_LR].number,
                 .momentum = a[FL_SGD_MOMENTUM].number,
                 .damping = first ? 1 : 1 - a[FL_SGD_DAMPENING].number,
                 .decay = a[FL_SGD_DECAY].number,
                 .nesterov = a[FL_SGD_NESTEROV].integer,
                 .gradient_scale = a[FL_SGD_MAXIMIZE].integer ? -1 : 1};
    for (int i = FL_SGD_BUFFERS * kernel->nin / FL_SGD_GROUPS; i < kernel->nin && first; i++) {
        const int64_t zero = 0;
        FL_TRY(fl_cpu_fill(&kernel->in[i], &zero));
    }
    return fl_cpu_step(kernel, kernel->op->groups, kernel->op->mutates, FL_STEP_SGD_MOMENTUM, &s);
}

static const char *const sgd_samples[] = {"{flow.randn(3, 2), flow.randn(5), flow.randn(3, 2), flow.randn(5), "
                                          "flow.zeros(3, 2), flow.zeros(5)}, 0.1, 0.9, 0, 0.01, true, true",
                                          NULL};
FL_OP(sgd_step) = {
    .name = "sgd_step",
    .groups = FL_SGD_GROUPS,
    .mutates = 1u << FL_STEP_PARAMETERS | 1u << FL_SGD_BUFFERS,
    .flags = STEP,
    .sig = "sgd_step(xs..., ~lr: float, ~momentum: float, ~dampening: float = 0, ~weight_decay: float = 0, ~nesterov: "
           "bool = false, ~first: bool = false, ~maximize: bool = false)",
    .doc = "One step of gradient descent with momentum over parameters, gradients and momentum buffers.",
    .infer = infer_groups,
    .sbp = sbp_alike,
    .cpu = kernel_sgd_momentum,
    .samples = sgd_samples,
};

/* ---- clipping by the total norm ---- */

static fl_status infer_squares(fl_infer *infer)
{
    if (infer->nin == 0) return fl_infer_fail(infer, FL_ERR_VALUE, "needs at least one tensor");
    infer->out[0].dtype = FL_FLOAT32;
    infer->out[0].shape = (fl_shape){0};
    for (int i = 0; i < infer->nin; i++) {
        FL_TRY(fl_require_float(infer, i));
        if (infer->in[i].dtype == FL_FLOAT64) infer->out[0].dtype = FL_FLOAT64;
    }
    return FL_OK;
}

static const char *const squares_samples[] = {"{flow.randn(3, 2), flow.randn(5), flow.randn(2, 3):t()}",
                                              "{flow.zeros(0)}", NULL};
FL_OP(grad_norm_squares) = {
    .name = "grad_norm_squares",
    .sig = "grad_norm_squares(xs...)",
    .nout = 1,
    .flags = STEP,
    .doc = "The sum of the squares of all elements of all tensors.",
    .infer = infer_squares,
    .sbp = sbp_alike,
    .cpu = fl_cpu_squares,
    .samples = squares_samples,
};

/* xs: the gradients, then for each of them the same 0-d norm. */
static fl_status kernel_clip(fl_kernel *kernel)
{
    int members = kernel->nin / FL_CLIP_GROUPS;
    const fl_view *norm = &kernel->in[members];
    double length = norm->dtype == FL_FLOAT64 ? *(const double *)norm->data : *(const float *)norm->data;
    double factor = kernel->attrs->at[FL_CLIP_MAX_NORM].number / (length + 1e-6);
    return factor < 1 ? fl_cpu_scale(kernel, members, factor) : FL_OK;
}

static fl_status infer_clip(fl_infer *infer)
{
    if (infer->nin == 0 || infer->nin % 2)
        return fl_infer_fail(infer, FL_ERR_VALUE, "takes the gradients, then the norm once for each");
    for (int i = 0; i < infer->nin; i++) {
        FL_TRY(fl_require_float(infer, i));
        bool norm = i >= infer->nin / 2;
        if (norm && (infer->in[i].shape.ndim || (infer->in[i].dtype != FL_FLOAT32 && infer->in[i].dtype != FL_FLOAT64)))
            return fl_infer_fail(infer, FL_ERR_SHAPE, "the norm must be a float32 or float64 tensor without axes");
    }
    return FL_OK;
}

/* One factor for all: gradients may be split, or be partial sums, since scaling is linear. The norm is whole. */
static void sbp_clip(fl_sigs *sigs)
{
    fl_sbp sig[sigs->nin];
    int members = sigs->nin / 2;
    for (int axis = 0; axis <= FL_MAX_NDIM; axis++) {
        bool fits = true, sum = axis == FL_MAX_NDIM;
        for (int i = 0; i < sigs->nin; i++) {
            fits = fits && (sum || i >= members || axis < sigs->in_logical[i].ndim);
            sig[i] = i >= members ? FL_B : sum ? FL_PSUM : FL_S(axis);
        }
        if (fits) fl_sig_add(sigs, NULL, sig);
    }
}

static const char *const clip_samples[] = {"{flow.randn(3, 2), flow.randn(5), flow.tensor(5.0), flow.tensor(5.0)}, 1",
                                           NULL};
FL_OP(clip_scale_) = {
    .name = "clip_scale_",
    .sig = "clip_scale_(xs..., ~max_norm: float)",
    .groups = FL_CLIP_GROUPS,
    .mutates = 1u << FL_CLIP_GRADIENTS,
    .flags = STEP,
    .doc = "Multiplies all gradients by max_norm / norm if that is below 1.",
    .infer = infer_clip,
    .sbp = sbp_clip,
    .cpu = kernel_clip,
    .samples = clip_samples,
};
