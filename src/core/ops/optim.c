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

/* `groups` lists of equal length, their tensors of equal shapes, all floats. */
static fl_status infer_lists(fl_infer *infer, int groups, int nin)
{
    if (nin == 0 || infer->nin % groups)
        return fl_infer_fail(infer, FL_ERR_VALUE, "takes %d lists of equally many tensors, got %d tensors", groups,
                             infer->nin);
    int members = infer->nin / groups;
    for (int i = 0; i < nin; i++) {
        FL_TRY(fl_require_float(infer, i));
        const fl_shape *first = &infer->in[i % members].shape, *other = &infer->in[i].shape;
        if (fl_shape_equal(first, other)) continue;
        char x[FL_SHAPE_TEXT], y[FL_SHAPE_TEXT];
        return fl_infer_fail(infer, FL_ERR_SHAPE, "parameter %d is %s, list %d has %s there", i % members + 1,
                             fl_shape_text(x, first), i / members + 1, fl_shape_text(y, other));
    }
    return FL_OK;
}

static fl_status infer_step(fl_infer *infer) { return infer_lists(infer, infer->op->groups, infer->nin); }

/* The last list: two sums of squares for each parameter. */
static fl_status infer_trusted(fl_infer *infer)
{
    int rest = infer->nin / infer->op->groups;
    FL_TRY(infer_lists(infer, infer->op->groups, infer->nin - rest));
    for (int i = infer->nin - rest; i < infer->nin; i++) {
        const fl_spec *s = &infer->in[i];
        if (s->shape.ndim != 1 || s->shape.dims[0] != 2 || (s->dtype != FL_FLOAT32 && s->dtype != FL_FLOAT64))
            return fl_infer_fail(infer, FL_ERR_SHAPE, "the sums of squares must be two in float32 or float64");
    }
    return FL_OK;
}

/* A step is elementwise over the tensors of all lists, so a group may be split along one axis alike; `rest` operands at
** the end are whole. Sums of squares over parts are partial sums. */
static void split_alike(fl_sigs *sigs, int rest)
{
    fl_sbp sig[sigs->nin + sigs->nout];
    for (int axis = 0; axis < FL_MAX_NDIM; axis++) {
        bool fits = true;
        for (int i = 0; i < sigs->nin; i++) {
            bool whole = i >= sigs->nin - rest;
            fits = fits && (whole || axis < sigs->in_logical[i].ndim);
            sig[i] = whole ? FL_B : FL_S(axis);
        }
        for (int i = 0; i < sigs->nout; i++) sig[sigs->nin + i] = FL_PSUM;
        if (fits) fl_sig_add(sigs, NULL, sig);
    }
}

static void sbp_alike(fl_sigs *sigs) { split_alike(sigs, 0); }
static void sbp_trusted(fl_sigs *sigs) { split_alike(sigs, sigs->nin / sigs->op->groups); }

static fl_status kernel_step(fl_kernel *kernel)
{
    fl_step_rule rule = (fl_step_rule)kernel->variant;
    fl_step numbers = fl_step_of(rule, kernel->attrs->at);
    return fl_cpu_step(kernel, rule, &numbers);
}

static fl_status check_count(const char *name, const fl_attr *step)
{
    if (step->integer >= 1) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: step %lld must count from 1", name, (long long)step->integer);
}

static fl_status check_moments(const char *name, const fl_attr *attr)
{
    for (int i = FL_ADAM_BETA1; i <= FL_ADAM_BETA2; i++)
        if (!(attr[i].number >= 0 && attr[i].number < 1))
            return fl_fail(FL_ERR_VALUE, "%s: beta%d %g is not in [0, 1)", name, i - FL_ADAM_LR, attr[i].number);
    return check_count(name, &attr[FL_ADAM_STEP]);
}

enum { STEP = FL_OP_HIDDEN | FL_OP_NO_GRAD };

/* Parts of samples: two parameters; kept tensors, which are at least 0; the arguments of an op with moments. */
#define PAIR "flow.randn(3, 2), flow.randn(5), "
#define KEPT "flow.rand(3, 2), flow.rand(5), "
#define LISTS_2 "{" PAIR PAIR "}, "
#define LISTS_3 "{" PAIR PAIR KEPT "}, "
#define LISTS_4 "{" PAIR PAIR KEPT KEPT "}, "
#define LISTS_5 "{" PAIR PAIR KEPT KEPT KEPT "}, "
#define SUMS "flow.tensor {4.0, 2.0}, flow.tensor {3.0, 0.0}"
#define MOMENTS "~lr: float, ~beta1: float, ~beta2: float, ~eps: float, ~weight_decay: float, ~step: int"
#define DECOUPLED MOMENTS ", ~decoupled: bool = true, ~maximize: bool = false"

/* The descriptor of a rule. checks: NULL or a function of (operands, their number, attributes). */
#define STEP_OP_BY(ident, attributes, help, checks, sample, inferring, splitting) \
    static const char *const samples_##ident[] = {sample, NULL};                  \
    FL_OP(ident) = {                                                              \
        .name = #ident,                                                           \
        .groups = FL_GROUPS_##ident,                                              \
        .mutates = FL_WRITES_##ident,                                             \
        .variant = FL_RULE_##ident,                                               \
        .flags = STEP,                                                            \
        .sig = #ident "(xs..., " attributes ")",                                  \
        .doc = help,                                                              \
        .infer = inferring,                                                       \
        .check = checks,                                                          \
        .sbp = splitting,                                                         \
        .cpu = kernel_step,                                                       \
        .samples = samples_##ident,                                               \
    }
#define STEP_OP(ident, attributes, help, checks, sample) \
    STEP_OP_BY(ident, attributes, help, checks, sample, infer_step, sbp_alike)
#define TRUSTED_OP(ident, attributes, help, checks, sample) \
    STEP_OP_BY(ident, attributes, help, checks, sample, infer_trusted, sbp_trusted)

/* The check of an op whose attributes are those of moments. */
#define MOMENTS_CHECK(ident)                                                             \
    static fl_status check_##ident(const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                    \
        return check_moments(#ident, attrs->at);                                         \
    }
MOMENTS_CHECK(adamw_step)
MOMENTS_CHECK(amsgrad_step)
MOMENTS_CHECK(adamax_step)
MOMENTS_CHECK(nadam_step)
MOMENTS_CHECK(radam_step)
MOMENTS_CHECK(lion_step)
MOMENTS_CHECK(lamb_moments_step)
MOMENTS_CHECK(lamb_norms)
MOMENTS_CHECK(lamb_step)

static fl_status check_adagrad(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_count("adagrad_step", &attrs->at[FL_GRAD_STEP]);
}
static fl_status check_asgd(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_count("asgd_step", &attrs->at[FL_ASGD_STEP]);
}

STEP_OP(sgd_plain_step, "~lr: float, ~weight_decay: float = 0, ~maximize: bool = false",
        "One step of gradient descent over parameters and gradients.", NULL, LISTS_2 "0.1, 0.01");
STEP_OP(sgd_step,
        "~lr: float, ~momentum: float, ~dampening: float = 0, ~weight_decay: float = 0, ~nesterov: bool = false, "
        "~first: bool = false, ~maximize: bool = false",
        "One step of gradient descent with momentum over parameters, gradients and momentum buffers.", NULL,
        LISTS_3 "0.1, 0.9, 0, 0.01, true, true");
STEP_OP(adamw_step, DECOUPLED,
        "One step of AdamW (Adam if not decoupled) over parameters, gradients, first and second moments.",
        check_adamw_step, LISTS_4 "0.1, 0.9, 0.99, 1e-8, 0.1, 1");
STEP_OP(amsgrad_step, DECOUPLED, "One step of AdamW with the largest second moments so far as the last list.",
        check_amsgrad_step, LISTS_5 "0.1, 0.9, 0.99, 1e-8, 0.1, 2");
STEP_OP(adamax_step, DECOUPLED, "One step of Adamax over parameters, gradients, first moments and infinity norms.",
        check_adamax_step, LISTS_4 "0.1, 0.9, 0.99, 1e-8, 0.1, 2, false");
STEP_OP(nadam_step, DECOUPLED ", ~momentum_decay: float = 0.004",
        "One step of NAdam over parameters, gradients, first and second moments.", check_nadam_step,
        LISTS_4 "0.1, 0.9, 0.99, 1e-8, 0.1, 3");
STEP_OP(radam_step, DECOUPLED, "One step of RAdam over parameters, gradients, first and second moments.",
        check_radam_step, LISTS_4 "0.1, 0.9, 0.99, 1e-8, 0.1, 7");
STEP_OP(lion_step, DECOUPLED, "One step of Lion over parameters, gradients and averages of gradients.", check_lion_step,
        LISTS_3 "0.1, 0.9, 0.99, 0, 0.1, 1");

#define RMS "~lr: float, ~alpha: float, ~eps: float, ~weight_decay: float, ~momentum: float, ~maximize: bool = false"
STEP_OP(rmsprop_step, RMS, "One step of RMSprop over parameters, gradients and averages of squares.", NULL,
        LISTS_3 "0.1, 0.9, 1e-8, 0.1, 0");
STEP_OP(rmsprop_momentum_step, RMS, "One step of RMSprop with momentum: its buffers are the last list.", NULL,
        LISTS_4 "0.1, 0.9, 1e-8, 0.1, 0.9");
STEP_OP(rmsprop_centered_step, RMS, "One step of centered RMSprop: averages of gradients are the last list.", NULL,
        "{" PAIR PAIR "flow.ones(3, 2), flow.ones(5), " KEPT "}, 0.1, 0.9, 1e-8, 0.1, 0");
STEP_OP(rmsprop_both_step, RMS, "One step of centered RMSprop with momentum: buffers, then averages of gradients.",
        NULL, "{" PAIR PAIR "flow.ones(3, 2), flow.ones(5), " KEPT KEPT "}, 0.1, 0.9, 1e-8, 0.1, 0.9");
STEP_OP(adagrad_step,
        "~lr: float, ~lr_decay: float, ~weight_decay: float, ~eps: float, ~step: int, ~maximize: bool = false",
        "One step of Adagrad over parameters, gradients and sums of squares.", check_adagrad,
        LISTS_3 "0.1, 0.1, 0.1, 1e-10, 3");
STEP_OP(adadelta_step, "~lr: float, ~rho: float, ~eps: float, ~weight_decay: float, ~maximize: bool = false",
        "One step of Adadelta over parameters, gradients, averages of squares and of squared updates.", NULL,
        LISTS_4 "0.5, 0.9, 1e-6, 0.1");
STEP_OP(rprop_step, "~shrink: float, ~grow: float, ~least: float, ~most: float, ~maximize: bool = false",
        "One step of Rprop over parameters, gradients, the gradients before and sizes of steps.", NULL,
        "{" PAIR PAIR PAIR KEPT "}, 0.5, 1.2, 1e-6, 50");
STEP_OP(asgd_step,
        "~lr: float, ~lambd: float, ~alpha: float, ~t0: float, ~weight_decay: float, ~step: int, ~maximize: bool = "
        "false",
        "One step of averaged gradient descent over parameters, gradients and averages.", check_asgd,
        LISTS_3 "0.1, 0.01, 0.75, 1, 0.1, 4");

/* Scaling is linear: partial sums are scaled too. */
static void sbp_scale(fl_sigs *sigs)
{
    fl_sbp sums[sigs->nin + sigs->nout];
    memset(sums, FL_PSUM, sizeof sums);
    sbp_alike(sigs);
    fl_sig_add(sigs, NULL, sums);
}
STEP_OP_BY(scale_step, "~factor: float", "Multiplies all tensors by one number.", NULL, "{" PAIR "}, 0.5", infer_step,
           sbp_scale);

/* ---- rates by norms: LAMB takes moments, norms and a step, LARS norms and a step ---- */

STEP_OP(lamb_moments_step, DECOUPLED,
        "The moments of LAMB's step over parameters, gradients, first and second moments.", check_lamb_moments_step,
        LISTS_4 "0.1, 0.9, 0.99, 1e-6, 0.1, 2, false");
TRUSTED_OP(lamb_step, DECOUPLED,
           "LAMB's change of the parameters by the moments of this step; last come the sums of lamb_norms.",
           check_lamb_step, "{" PAIR PAIR KEPT KEPT SUMS "}, 0.1, 0.9, 0.99, 1e-6, 0.1, 2, false");
#define LARS                                                                                                  \
    "~lr: float, ~momentum: float, ~weight_decay: float, ~trust_coefficient: float, ~eps: float, ~maximize: " \
    "bool = false"
TRUSTED_OP(lars_step, LARS,
           "One step of LARS over parameters, gradients and buffers; last come the sums of lars_norms.", NULL,
           "{" PAIR PAIR KEPT SUMS "}, 0.1, 0.9, 0.1, 0.001, 1e-8");

static fl_status infer_norms(fl_infer *infer)
{
    FL_TRY(infer_step(infer));
    infer->out[0].dtype = FL_FLOAT32;
    infer->out[0].shape = (fl_shape){2, {infer->nin / infer->op->groups, 2}};
    for (int i = 0; i < infer->nin; i++)
        if (infer->in[i].dtype == FL_FLOAT64) infer->out[0].dtype = FL_FLOAT64;
    return FL_OK;
}

static fl_status kernel_norms(fl_kernel *kernel)
{
    fl_step_norm norm = (fl_step_norm)kernel->variant;
    fl_step numbers = fl_step_of_norm(norm, kernel->attrs->at);
    return fl_cpu_step_norms(kernel, norm, &numbers);
}

#define NORMS_OP(ident, lists, attributes, help, checks, sample) \
    static const char *const samples_##ident[] = {sample, NULL}; \
    FL_OP(ident) = {                                             \
        .name = #ident,                                          \
        .groups = lists,                                         \
        .nout = 1,                                               \
        .variant = FL_NORM_##ident,                              \
        .flags = STEP,                                           \
        .sig = #ident "(xs..., " attributes ")",                 \
        .doc = help,                                             \
        .infer = infer_norms,                                    \
        .check = checks,                                         \
        .sbp = sbp_alike,                                        \
        .cpu = kernel_norms,                                     \
        .samples = samples_##ident,                              \
    }
NORMS_OP(lamb_norms, 4, DECOUPLED, "Squares of each parameter and of its update by LAMB, summed: [parameters, 2].",
         check_lamb_norms, LISTS_4 "0.1, 0.9, 0.99, 1e-6, 0.1, 2, false");
NORMS_OP(lars_norms, 2, LARS, "Squares of each parameter and of its gradient, summed: [parameters, 2].", NULL,
         LISTS_2 "0.1, 0.9, 0.1, 0.001, 1e-8");

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

FL_OP(grad_nonfinite) = {
    .name = "grad_nonfinite",
    .sig = "grad_nonfinite(xs...)",
    .nout = 1,
    .flags = STEP,
    .doc = "How many elements of all tensors are infinite or NaN.",
    .infer = infer_squares,
    .sbp = sbp_alike,
    .cpu = fl_cpu_nonfinite,
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
