/*
** norms.c -- var, std, norm and logsumexp over axes: roots, powers and logarithms of sums.
**
** None of them is linear in a partial sum, so over a split axis they are bodies in other ops, which complete the sums
** over all parts first.
*/
#include "reduce.h"

#include <math.h>

static const fl_reduce_slots after_p = {FL_NORM_AXIS, FL_NORM_KEEPDIM},
                             around_correction = {FL_VAR_AXIS, FL_VAR_KEEPDIM};

/* ---- var, std ---- */

static double divisor(const fl_attrs *attrs, int64_t count)
{
    double left = (double)count - attrs->at[FL_VAR_CORRECTION].number;
    return left > 0 ? left : 0;
}

static fl_status infer_var(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_reduce_infer(infer, around_correction, infer->in[0].dtype);
}

static void center_mean(double *center, const fl_reduce_job *job) { *center /= (double)job->local_count; }
static void finish_var(fl_total *total, double center, const fl_reduce_job *job)
{
    double left = (double)job->local_count - job->correction;
    total->number /= left > 0 ? left : 0;
}
static void finish_std(fl_total *total, double center, const fl_reduce_job *job)
{
    finish_var(total, center, job);
    total->number = sqrt(total->number);
}

static fl_reduce_job deviations(const fl_kernel *kernel)
{
    return (fl_reduce_job){.first = FL_FOLD_SUM,
                           .fold = FL_FOLD_DEVIATIONS,
                           .centered = true,
                           .center = center_mean,
                           .correction = kernel->attrs->at[FL_VAR_CORRECTION].number};
}

static fl_status cpu_var(fl_kernel *kernel)
{
    fl_reduce_job job = deviations(kernel);
    job.finish = finish_var;
    return fl_reduce_run(kernel, around_correction, job);
}

static fl_status cpu_std(fl_kernel *kernel)
{
    fl_reduce_job job = deviations(kernel);
    job.finish = finish_std;
    return fl_reduce_run(kernel, around_correction, job);
}

/* The variance in other ops, for a split axis; that of 16-bit floats in float32. */
static fl_tensor *expr_var(fl_expr *expr, fl_tensor *x, const fl_attrs *attrs)
{
    uint32_t mask;
    const fl_shape *shape = &x->meta->shape;
    expr->status = fl_reduce_axes(&mask, "var", &attrs->at[FL_VAR_AXIS], shape);
    x = expr_widen(expr, x);
    fl_tensor *d = expr_sub(expr, x, expr_mean(expr, x, mask, true));
    fl_tensor *squares = EXPR_CALL(expr, NULL, square, fl_of(d));
    return expr_mul_number(expr, expr_sum(expr, squares, mask, attrs->at[FL_VAR_KEEPDIM].integer != 0),
                           1.0 / divisor(attrs, fl_reduce_count(shape, mask)));
}

static fl_status body_var(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    *out = fl_expr_take(&c, expr_cast(&c, expr_var(&c, in[0].tensor, attrs), in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

static fl_status body_std(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *variance = expr_var(&c, in[0].tensor, attrs);
    *out = fl_expr_take(&c, expr_cast(&c, EXPR_CALL(&c, NULL, sqrt, fl_of(variance)), in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

/* Deviations are taken from the mean of all parts, which the body brings together first; their squares then add up. */
static void sbp_var(fl_sigs *sigs) { fl_reduce_sbp(sigs, around_correction, FL_PSUM, body_var); }

/* A root of a sum is no sum of roots: the body completes the variance before it takes the root. */
static void sbp_std(fl_sigs *sigs) { fl_reduce_sbp(sigs, around_correction, FL_B, body_std); }

/* The gradient g' of the sum of squared deviations, times 2 (x - mean) */
static fl_status grad_deviations(fl_grad *g, fl_expr *expr, fl_tensor *scale, uint32_t mask)
{
    fl_tensor *x = g->in[0].tensor;
    fl_tensor *d = expr_sub(expr, x, expr_mean(expr, x, mask, true));
    return fl_reduce_end_grad(g, expr, expr_mul(expr, d, expr_unreduce(expr, scale, &x->meta->shape, mask)));
}

/* d/dx of sum((x - mean)^2) is 2 (x - mean): the term through the mean vanishes, because deviations add up to 0. */
static fl_status grad_var(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    FL_TRY(fl_reduce_grad_axes(&mask, g, around_correction));
    double left = divisor(g->attrs, fl_reduce_count(&g->in_meta[0]->shape, mask));
    return grad_deviations(g, &c, expr_mul_number(&c, g->gout[0], 2.0 / left), mask);
}

/* As grad_var, through the root: d sqrt(v) = dv / (2 sqrt(v)). */
static fl_status grad_std(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    FL_TRY(fl_reduce_grad_axes(&mask, g, around_correction));
    double left = divisor(g->attrs, fl_reduce_count(&g->in_meta[0]->shape, mask));
    fl_tensor *per_deviation =
        expr_zero_where(&c, g->out[0], expr_div(&c, g->gout[0], g->out[0])); /* equal elements: as the norm at 0 */
    return grad_deviations(g, &c, expr_mul_number(&c, per_deviation, 1.0 / left), mask);
}

FL_OP(var) = {
    .name = "var",
    .sig = "var(x, axis: axes = nil, correction: float = 1, keepdim: bool = false)",
    .nout = 1,
    .doc = "Variance over axes, or over everything: the sum of squared deviations divided by count - correction.",
    .infer = infer_var,
    .sbp = sbp_var,
    .cpu = cpu_var,
    .grad = grad_var,
    .saves_in = SAVES_X,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

FL_OP(std) = {
    .name = "std",
    .sig = "std(x, axis: axes = nil, correction: float = 1, keepdim: bool = false)",
    .nout = 1,
    .doc = "Standard deviation: the square root of var; its gradient is 0 where it is 0.",
    .infer = infer_var,
    .sbp = sbp_std,
    .cpu = cpu_std,
    .grad = grad_std,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

/* ---- norm ---- */

static fl_status infer_norm(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_reduce_infer(infer, after_p, infer->in[0].dtype);
}

static void finish_root(fl_total *total, double center, const fl_reduce_job *job)
{
    total->number = job->p == 2 ? sqrt(total->number) : pow(total->number, 1 / job->p);
}

static fl_status cpu_norm(fl_kernel *kernel)
{
    double p = fl_attr_number(&kernel->attrs->at[FL_NORM_P]);
    fl_reduce_job job = {.fold = FL_FOLD_POWERS, .p = p, .finish = finish_root};
    if (p == 2) job.fold = FL_FOLD_SQUARES;
    else if (p == 1) job = (fl_reduce_job){.fold = FL_FOLD_ABS_SUM};
    else if (p == 0) job = (fl_reduce_job){.fold = FL_FOLD_COUNT};
    else if (isinf(p)) job = (fl_reduce_job){.fold = p > 0 ? FL_FOLD_LARGEST_ABS : FL_FOLD_SMALLEST_ABS};
    return fl_reduce_run(kernel, after_p, job);
}

/* The norm in other ops, for a split axis: sums of powers add up, not their roots. */
static fl_status body_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = in[0].tensor, *result;
    double p = fl_attr_number(&attrs->at[FL_NORM_P]);
    bool keepdim = attrs->at[FL_NORM_KEEPDIM].integer != 0;
    FL_TRY(fl_reduce_axes(&mask, "norm", &attrs->at[FL_NORM_AXIS], &x->meta->shape));
    fl_tensor *magnitude = EXPR_CALL(&c, NULL, abs, fl_of(expr_widen(&c, x)));
    if (isinf(p)) result = expr_reduce(&c, p > 0 ? FL_OP_REF(amax) : FL_OP_REF(amin), magnitude, mask, keepdim);
    else if (p == 0) {
        fl_tensor *nonzero = EXPR_CALL(&c, NULL, sign, fl_of(magnitude));
        result = expr_sum(&c, nonzero, mask, keepdim);
    } else if (p == 1) result = expr_sum(&c, magnitude, mask, keepdim);
    else {
        fl_tensor *powers = EXPR_CALL(&c, NULL, pow, fl_of(magnitude), fl_of_number(p));
        fl_tensor *sum = expr_sum(&c, powers, mask, keepdim);
        result = EXPR_CALL(&c, NULL, pow, fl_of(sum), fl_of_number(1 / p));
    }
    *out = fl_expr_take(&c, expr_cast(&c, result, x->meta->dtype));
    return fl_expr_end(&c);
}

/* As std: the root is taken of the sum over all parts. */
static void sbp_norm(fl_sigs *sigs) { fl_reduce_sbp(sigs, after_p, FL_B, body_norm); }

/* Of largest and smallest magnitudes: equal ones share the gradient. */
static fl_tensor *grad_norm_infinite(fl_expr *expr, fl_grad *g, uint32_t mask)
{
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    fl_tensor *magnitude = EXPR_CALL(expr, NULL, abs, fl_of(x)), *sign = EXPR_CALL(expr, NULL, sign, fl_of(x));
    fl_tensor *hit = EXPR_CALL(expr, NULL, eq, fl_of(magnitude), fl_of(expr_unreduce(expr, g->out[0], shape, mask)));
    fl_tensor *share = expr_div(expr, expr_unreduce(expr, g->gout[0], shape, mask), expr_sum(expr, hit, mask, true));
    return EXPR_CALL(expr, NULL, where, fl_of(hit), fl_of(expr_mul(expr, sign, share)), fl_of_integer(0));
}

/* sign(x) |x|^(p-1) / norm^(p-1), 0 where the norm is 0 */
static fl_tensor *grad_norm_power(fl_expr *expr, fl_grad *g, uint32_t mask, double p)
{
    fl_tensor *x = g->in[0].tensor;
    fl_tensor *magnitude = EXPR_CALL(expr, NULL, abs, fl_of(x)), *sign = EXPR_CALL(expr, NULL, sign, fl_of(x));
    fl_tensor *power = EXPR_CALL(expr, NULL, pow, fl_of(magnitude), fl_of_number(p - 1));
    fl_tensor *total = EXPR_CALL(expr, NULL, pow, fl_of(g->out[0]), fl_of_number(p - 1));
    fl_tensor *scale = expr_zero_where(expr, g->out[0], expr_div(expr, g->gout[0], total));
    if (p < 1) power = expr_zero_where(expr, x, power);
    return expr_mul(expr, expr_mul(expr, sign, power), expr_unreduce(expr, scale, &x->meta->shape, mask));
}

/* p = 1: sign(x). p = 2: x / norm; 0 where the norm is 0. */
static fl_status grad_norm(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor, *result;
    double p = fl_attr_number(&g->attrs->at[FL_NORM_P]);
    FL_TRY(fl_reduce_grad_axes(&mask, g, after_p));
    if (p == 0) return FL_OK; /* constant almost everywhere */
    if (isinf(p)) result = grad_norm_infinite(&c, g, mask);
    else if (p == 1)
        result = expr_mul(&c, EXPR_CALL(&c, NULL, sign, fl_of(x)),
                          expr_unreduce(&c, g->gout[0], &x->meta->shape, mask));
    else if (p != 2) result = grad_norm_power(&c, g, mask, p);
    else {
        fl_tensor *scale = expr_zero_where(&c, g->out[0], expr_div(&c, g->gout[0], g->out[0]));
        result = expr_mul(&c, x, expr_unreduce(&c, scale, &x->meta->shape, mask));
    }
    return fl_reduce_end_grad(g, &c, result);
}

FL_OP(norm) = {
    .name = "norm",
    .sig = "norm(x, p: float = 2, axis: axes = nil, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_WIDE | FL_OP_FOLDS,
    .doc = "The p-norm over axes, or over everything; p may be 0 or infinite. The gradient is 0 where the norm is 0.",
    .infer = infer_norm,
    .sbp = sbp_norm,
    .cpu = cpu_norm,
    .grad = grad_norm,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, 1", "flow.randn(2, 3, 4), 3, {0, 2}, true",
               "flow.randn(3, 4), math.huge, 0"),
};

/* ---- logsumexp ---- */

/* An infinite center would give inf - inf. */
static void center_finite(double *center, const fl_reduce_job *job)
{
    if (isinf(*center)) *center = 0;
}
static void finish_log(fl_total *total, double center, const fl_reduce_job *job)
{
    total->number = log(total->number) + center;
}

static fl_status cpu_logsumexp(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual,
                         (fl_reduce_job){.first = FL_FOLD_LARGEST,
                                         .fold = FL_FOLD_EXPS,
                                         .centered = true,
                                         .center = center_finite,
                                         .finish = finish_log});
}

static fl_status body_logsumexp(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_shape shape;
    FL_TRY(fl_reduce_axes(&mask, "logsumexp", &attrs->at[FL_REDUCE_AXIS], &in[0].tensor->meta->shape));
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    fl_reduce_shape(&shape, &in[0].tensor->meta->shape, mask, attrs->at[FL_REDUCE_KEEPDIM].integer != 0);
    fl_tensor *largest = expr_whole(&c, expr_amax(&c, x, mask, true));
    fl_tensor *finite = EXPR_CALL(&c, NULL, isfinite, fl_of(largest));
    fl_tensor *center = EXPR_CALL(&c, NULL, where, fl_of(finite), fl_of(largest), fl_of_integer(0));
    fl_tensor *sum = expr_whole(&c, expr_sum(&c, expr_exp(&c, expr_sub(&c, x, center)), mask, true));
    fl_tensor *result = expr_reshape(&c, expr_add(&c, expr_log(&c, sum), center), &shape);
    *out = fl_expr_take(&c, expr_cast(&c, result, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

/* As std: the logarithm is taken of the sum over all parts, shifted by the maximum over all parts. */
static void sbp_logsumexp(fl_sigs *sigs) { fl_reduce_sbp(sigs, fl_reduce_usual, FL_B, body_logsumexp); }

FL_OP(logsumexp) = {
    .name = "logsumexp",
    .flags = FL_OP_WIDE,
    .sig = "logsumexp(x, axis: axes = nil, keepdim: bool = false)",
    .nout = 1,
    .doc = "log(sum(exp(x))) over axes, or over everything, without overflow.",
    .infer = fl_reduce_infer_float,
    .sbp = sbp_logsumexp,
    .cpu = cpu_logsumexp,
    FL_VJP("exp(x - unreduce(out, axis, keepdim, x)) * unreduce(g, axis, keepdim, x)"),
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};
