/*
** running.c -- running products, extremes and log-sums of exponentials along an axis: cumprod, cummax, cummin,
** logcumsumexp.
**
** A line is gone through as a whole, so its own axis is not split. The gradient of a running product is made of two
** linear recurrences, which divide by nothing and so are right where elements are 0.
*/
#include "op/create.h"
#include "op/running.h"
#include "cpu/running.h"
#include "cpu/stage.h"
#include "op/indexing.h"
#include "op/views.h"
#include "expr.h"

static int axis_of(const fl_attrs *attrs, int ndim) { return fl_axis_of(&attrs->at[FL_RUNNING_AXIS], ndim); }

/* ---- the kernel of all ---- */

static fl_status infer_running(fl_infer *infer)
{
    int axis;
    fl_dtype dtype = infer->in[0].dtype;
    bool integers = dtype == FL_INT64 && infer->op->variant != FL_RUNNING_LOGSUMEXP;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_RUNNING_AXIS].integer, &infer->in[0].shape));
    if (!integers) FL_TRY(fl_require_float(infer, 0));
    FL_TRY(fl_infer_same(infer));
    if (infer->nout == 2) {
        infer->out[1].shape = infer->in[0].shape;
        infer->out[1].dtype = FL_INT64;
    }
    if (infer->op->variant != FL_RUNNING_LINEAR) return FL_OK;
    if (infer->in[FL_LINEAR_FACTOR].dtype == dtype
        && fl_shape_equal(&infer->in[FL_LINEAR_FACTOR].shape, &infer->in[FL_LINEAR_ADDED].shape))
        return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "both operands must have one shape and dtype");
}

/* A line is computed as a whole; lines are independent. A recurrence is linear in what is added, not in its factors. */
static void sbp_running(fl_sigs *sigs)
{
    int ndim = sigs->in[0].shape.ndim;
    fl_sbp_except(sigs, ndim ? 1u << axis_of(sigs->attrs, ndim) : 0);
    if (sigs->op->variant == FL_RUNNING_LINEAR) fl_sbp_partial(sigs, 1u << FL_LINEAR_ADDED, FL_PSUM);
}

static fl_status kernel_running(fl_kernel *kernel)
{
    fl_stage s;
    const fl_view *x = &kernel->in[0];
    int axis = axis_of(kernel->attrs, x->ndim);
    if (x->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_running_job job = {.kind = (fl_running)kernel->variant,
                          .dtype = fl_dtype_is_float(x->dtype) ? s.dtype : FL_INT64,
                          .outer = 1,
                          .n = x->ndim ? x->size[axis] : 1,
                          .inner = 1,
                          .out = s.out[0],
                          .positions = kernel->nout == 2 ? s.out[1] : NULL,
                          .in = s.in[0],
                          .factor = kernel->nin == 2 ? s.in[FL_LINEAR_FACTOR] : NULL};
    if (kernel->attrs->count > FL_RUNNING_BACKWARDS)
        job.backwards = kernel->attrs->at[FL_RUNNING_BACKWARDS].integer != 0;
    for (int a = 0; a < axis; a++) job.outer *= x->size[a];
    for (int a = axis + 1; a < x->ndim; a++) job.inner *= x->size[a];
    fl_cpu_running(&job);
    return fl_stage_close(&s);
}

/* ---- linear recurrences ---- */

/* x one position later along the axis, with `value` at the first one; NULL: the first element stays there. */
static fl_tensor *expr_later(fl_expr *expr, fl_tensor *x, int axis, const double *value)
{
    if (!x || expr->status != FL_OK) return NULL;
    const fl_shape *shape = &x->meta->shape;
    int64_t n = shape->ndim ? shape->dims[axis] : 1;
    fl_attrs a;
    if (n == 0 || (n == 1 && !value)) return x;
    fl_attrs_init(&a, FL_OP_REF(full_like));
    if (value) fl_attr_set_number(&a, FL_FILL_VALUE, *value);
    if (n == 1) return EXPR_CALL(expr, &a, full_like, fl_of(x));
    fl_tensor *first = expr_narrowed(expr, x, axis, 0, 1);
    if (value) first = EXPR_CALL(expr, &a, full_like, fl_of(first));
    return expr_concatenated(expr, first, expr_narrowed(expr, x, axis, 0, n - 1), axis);
}

static fl_tensor *expr_recurrence(fl_expr *expr, fl_tensor *added, fl_tensor *factor, int axis, bool backwards)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(linear_recurrence));
    fl_attr_set(&a, FL_RUNNING_AXIS, axis);
    fl_attr_set(&a, FL_RUNNING_BACKWARDS, backwards);
    return EXPR_CALL(expr, &a, linear_recurrence, fl_of(added), fl_of(factor));
}

/* The adjoint of a recurrence is the one from the other end, s. A factor has met the result before its own. */
static fl_status grad_recurrence(fl_grad *g)
{
    fl_expr c = {0};
    int axis = axis_of(g->attrs, g->in_meta[0]->shape.ndim);
    bool backwards = g->attrs->at[FL_RUNNING_BACKWARDS].integer != 0;
    fl_tensor *factor = g->in[FL_LINEAR_FACTOR].tensor;
    fl_tensor *s = expr_recurrence(&c, g->gout[0], factor, axis, !backwards);
    g->gin[FL_LINEAR_ADDED] = fl_expr_take(&c, s);
    if (g->need[FL_LINEAR_FACTOR])
        g->gin[FL_LINEAR_FACTOR] = fl_expr_take(&c,
                                                backwards
                                                    ? expr_mul(&c, expr_later(&c, s, axis, &(double){0}), g->out[0])
                                                    : expr_mul(&c, s, expr_later(&c, g->out[0], axis, &(double){0})));
    return fl_expr_end(&c);
}

FL_OP(linear_recurrence) = {
    .name = "linear_recurrence",
    .sig = "linear_recurrence(h, x, axis: axis, backwards: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .variant = FL_RUNNING_LINEAR,
    .doc = "y[i] = h[i] + x[i] y[i - 1] along the axis; backwards: y[i] = h[i] + x[i + 1] y[i + 1].",
    .infer = infer_running,
    .sbp = sbp_running,
    .cpu = kernel_running,
    .grad = grad_recurrence,
    .saves_in = 1u << FL_LINEAR_FACTOR,
    .saves_out = 1u << 0,
    FL_SAMPLES("flow.randn(3, 5), flow.randn(3, 5), 1", "flow.randn(4, 3), flow.randn(4, 3), 0, true"),
};

/* ---- cumprod ---- */

/* The product before element k, times what all results from k on make of it without x[k]. */
static fl_status grad_cumprod(fl_grad *g)
{
    fl_expr c = {0};
    int axis = axis_of(g->attrs, g->in_meta[0]->shape.ndim);
    fl_tensor *rest = expr_recurrence(&c, g->gout[0], g->in[0].tensor, axis, true);
    g->gin[0] = fl_expr_take(&c, expr_mul(&c, expr_later(&c, g->out[0], axis, &(double){1}), rest));
    return fl_expr_end(&c);
}

FL_OP(cumprod_of) = {
    .name = "cumprod_of",
    .sig = "cumprod_of(x, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .variant = FL_RUNNING_PRODUCT,
    .doc = "Running products of floats or int64.",
    .infer = infer_running,
    .sbp = sbp_running,
    .cpu = kernel_running,
    .grad = grad_cumprod,
    .saves_in = 1u << 0,
    .saves_out = 1u << 0,
    FL_SAMPLES("flow.randn(3, 5), 1", "flow.randn(4, 3):round(), 0", "flow.randint(-3, 4, {4, 3}), 0",
               "flow.tensor(1.5), 0"),
};

enum { CUMPROD_AXIS, CUMPROD_DTYPE };

static fl_dtype sum_dtype(fl_dtype dtype) { return fl_dtype_is_float(dtype) ? dtype : FL_INT64; }

/* Products are computed in float or int64, and have the dtype that is asked for. */
static fl_status body_cumprod(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_tensor *x = in[0].tensor;
    const fl_attr *wanted = &attrs->at[CUMPROD_DTYPE];
    fl_dtype dtype = wanted->given ? (fl_dtype)wanted->integer : sum_dtype(x->meta->dtype);
    fl_attrs_init(&a, FL_OP_REF(cumprod_of));
    a.at[FL_RUNNING_AXIS] = attrs->at[CUMPROD_AXIS];
    x = expr_cast(&c, expr_cast(&c, x, dtype), sum_dtype(dtype));
    *out = fl_expr_take(&c, expr_cast(&c, EXPR_CALL(&c, &a, cumprod_of, fl_of(x)), dtype));
    return fl_expr_end(&c);
}

FL_OP(cumprod) = {
    .name = "cumprod",
    .sig = "cumprod(x, axis: axis, dtype: dtype = nil)",
    .nout = 1,
    .doc = "Running products along an axis, from its first element; integers and bool give int64, or what dtype says.",
    .body = body_cumprod,
    FL_SAMPLES("flow.randn(3, 5), 1", "flow.randint(-3, 4, {4, 3}), 0", "flow.randn(4, 3), 0, \"float64\""),
};

/* ---- cummax, cummin ---- */

enum { EXTREME_VALUES, EXTREME_POSITIONS }; /* results */

/* Each result is one of the elements before it: its gradient returns there. */
static fl_status grad_extremes(fl_grad *g)
{
    if (!g->gout[EXTREME_VALUES]) return FL_OK;
    return fl_gather_gradient(&g->gin[0], g->gout[EXTREME_VALUES], fl_of(g->out[EXTREME_POSITIONS]),
                              axis_of(g->attrs, g->in_meta[0]->shape.ndim), g->in_meta[0]);
}

#define EXTREME(ident, variant_, doc_)                                                               \
    FL_OP(ident##_of) = {                                                                            \
        .name = #ident "_of",                                                                        \
        .sig = #ident "_of(x, axis: axis)",                                                          \
        .nout = 2,                                                                                   \
        .flags = FL_OP_HIDDEN,                                                                       \
        .variant = variant_,                                                                         \
        .doc = doc_,                                                                                 \
        .infer = infer_running,                                                                      \
        .sbp = sbp_running,                                                                          \
        .cpu = kernel_running,                                                                       \
        .grad = grad_extremes,                                                                       \
        .saves_out = 1u << 1,                                                                        \
        FL_SAMPLES("flow.randn(3, 5), 1", "flow.randn(4, 3), 0", "flow.randint(-3, 4, {6, 3}), 0"),  \
    };                                                                                               \
    static fl_status body_##ident(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *a) \
    {                                                                                                \
        return extremes_of(out, FL_OP_REF(ident##_of), in[0].tensor, a);                             \
    }                                                                                                \
    FL_OP(ident) = {                                                                                 \
        .name = #ident,                                                                              \
        .sig = #ident "(x, axis: axis)",                                                             \
        .nout = 2,                                                                                   \
        .doc = doc_,                                                                                 \
        .body = body_##ident,                                                                        \
        FL_SAMPLES("flow.randn(3, 5), 1", "flow.randint(-3, 4, {6, 3}):to(\"int8\"), 0"),            \
    }

static fl_status extremes_of(fl_tensor **out, const fl_op *op, fl_tensor *x, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_dtype dtype = x->meta->dtype;
    fl_tensor *positions,
        *values = fl_expr_call(&c, op, (const fl_operand[]){fl_of(expr_cast(&c, x, sum_dtype(dtype)))}, 1, attrs);
    if (c.status != FL_OK) return fl_expr_end(&c);
    positions = c.owned[c.count - 1];
    values = expr_cast(&c, values, dtype);
    out[0] = fl_expr_take(&c, values);
    out[1] = fl_expr_take(&c, positions);
    return fl_expr_end(&c);
}

EXTREME(cummax, FL_RUNNING_LARGEST,
        "The largest values up to each element along an axis, and their positions, the last of equal ones; NaN counts "
        "as the largest.");
EXTREME(cummin, FL_RUNNING_SMALLEST,
        "The smallest values up to each element along an axis, and their positions, the last of equal ones; NaN counts "
        "as the smallest.");

/* ---- logcumsumexp ---- */

/* exp(x - y), 1 where both are the same infinity */
static fl_tensor *expr_quotient(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    fl_tensor *same = EXPR_CALL(expr, NULL, eq, fl_of(x), fl_of(y));
    return expr_exp(expr, EXPR_CALL(expr, NULL, where, fl_of(same), fl_of_integer(0), fl_of(expr_sub(expr, x, y))));
}

/* The sum over j >= i of g[j] exp(x[i] - out[j]). Relative to exp(out[i]) it is a recurrence whose factors, quotients
** of neighbouring results, are at most 1. */
static fl_status grad_logcumsumexp(fl_grad *g)
{
    fl_expr c = {0};
    int axis = axis_of(g->attrs, g->in_meta[0]->shape.ndim);
    fl_tensor *out = g->out[0];
    fl_tensor *factor = expr_quotient(&c, expr_later(&c, out, axis, NULL), out);
    fl_tensor *sums = expr_recurrence(&c, g->gout[0], factor, axis, true);
    g->gin[0] = fl_expr_take(&c, expr_mul(&c, expr_quotient(&c, g->in[0].tensor, out), sums));
    return fl_expr_end(&c);
}

FL_OP(logcumsumexp) = {
    .name = "logcumsumexp",
    .sig = "logcumsumexp(x, axis: axis)",
    .nout = 1,
    .variant = FL_RUNNING_LOGSUMEXP,
    .doc = "Logarithms of the running sums of exp(x) along an axis, without overflow.",
    .infer = infer_running,
    .sbp = sbp_running,
    .cpu = kernel_running,
    .grad = grad_logcumsumexp,
    .saves_in = 1u << 0,
    .saves_out = 1u << 0,
    FL_SAMPLES("flow.randn(3, 5), 1", "flow.randn(4, 3), 0"),
};
