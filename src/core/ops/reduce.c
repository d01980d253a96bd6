/*
** reduce.c -- sums, products, extremes, statistics and norms over axes.
**
** Over a split axis sums become P(sum) and extremes P(max) or P(min); what is not linear in such a partial (var, std,
** norm, logsumexp) has a body in other ops there. A mean divides by the logical count, so its parts add up.
*/
#include "expr.h"
#include "cpu/reduce.h"

#include <math.h>

/* ---- what the ops of this file share ---- */

/* Where an op keeps its attributes. */
typedef struct slots {
    int axis, keepdim;
} slots;

static const slots usual = {0, 1}, after_p = {1, 2}, around_correction = {0, 2};

/* Users call max_all and max_axis "max". */
static const char *shown_name(const fl_op *op)
{
    if (!(op->flags & FL_OP_HIDDEN)) return op->name;
    return op == FL_OP_REF(max_all) || op == FL_OP_REF(max_axis) ? "max" : "min";
}

static fl_status infer_reduced(fl_infer *infer, slots at, fl_dtype dtype)
{
    uint32_t mask;
    FL_TRY(fl_reduce_axes(&mask, infer->name, &infer->attrs->at[at.axis], &infer->in[0].shape));
    fl_reduce_shape(&infer->out[0].shape, &infer->in[0].shape, mask, infer->attrs->at[at.keepdim].integer != 0);
    infer->out[0].dtype = dtype;
    return FL_OK;
}

/* An extreme of nothing does not exist. */
static fl_status require_elements(const fl_infer *infer, uint32_t mask)
{
    const fl_shape *shape = &infer->in[0].shape;
    char text[FL_SHAPE_TEXT];
    for (int i = 0; i < shape->ndim; i++)
        if (mask >> i & 1u && shape->dims[i] == 0)
            return fl_fail(FL_ERR_SHAPE, "%s: axis %d of %s is empty, so there is no result", shown_name(infer->op), i,
                           fl_shape_text(text, shape));
    return FL_OK;
}

/* The logical shape of a kernel's operand. */
static fl_shape logical_shape(const fl_view *view)
{
    fl_shape shape = {.ndim = view->ndim};
    for (int i = 0; i < view->ndim; i++) shape.dims[i] = view->logical[i];
    return shape;
}

static int64_t count_of(const fl_shape *shape, uint32_t mask)
{
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++)
        if (mask >> i & 1u) count *= shape->dims[i];
    return count;
}

static fl_status run_reduce(fl_kernel *kernel, slots at, fl_reduce_job job)
{
    uint32_t mask;
    fl_shape shape = logical_shape(&kernel->in[0]);
    FL_TRY(fl_reduce_axes(&mask, kernel->op->name, &kernel->attrs->at[at.axis], &shape));
    job.name = kernel->op->name;
    job.logical_count = count_of(&shape, mask);
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], mask, &job);
}

/* ---- SBP ---- */

/* Input axis as an output axis. */
static int axis_after(int axis, uint32_t mask, bool keepdim)
{
    return keepdim ? axis : axis - __builtin_popcount(mask & ((1u << axis) - 1));
}

/* Kept axes stay split; over a split reduced axis every output becomes `partial` (B: not allowed, unless by the body).
** Where there is nothing to reduce the kernel gives every rank the value of nothing. */
static void reduced_sigs(fl_sigs *sigs, uint32_t mask, bool keepdim, fl_sbp partial, fl_body body)
{
    fl_sbp sig[1 + FL_MAX_OUT];
    bool nothing = body && count_of(&sigs->in_logical[0], mask) == 0;
    if (nothing) partial = FL_B;
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        bool reduced = mask >> axis & 1u;
        if (reduced && partial == FL_B && !body) continue;
        sig[0] = FL_S(axis);
        for (int i = 0; i < sigs->nout; i++) sig[1 + i] = reduced ? partial : FL_S(axis_after(axis, mask, keepdim));
        fl_sig_add(sigs, reduced && !nothing ? body : NULL, sig);
    }
}

static void sbp_reduced(fl_sigs *sigs, slots at, fl_sbp partial, fl_body body)
{
    uint32_t mask;
    if (fl_reduce_axes(&mask, sigs->op->name, &sigs->attrs->at[at.axis], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted them */
    reduced_sigs(sigs, mask, sigs->attrs->at[at.keepdim].integer != 0, partial, body);
}

/* Sums of parts are partial sums, and sums commute with sums. Also for mean: the kernel divides by the logical
** count, so the results of the parts add up to the mean. */
static void sbp_sum(fl_sigs *sigs)
{
    sbp_reduced(sigs, usual, FL_PSUM, NULL);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

/* The maximum over the parts' maxima; any of bools is a maximum too. */
static void sbp_largest(fl_sigs *sigs)
{
    sbp_reduced(sigs, usual, FL_PMAX, NULL);
    fl_sbp_partial(sigs, 1, FL_PMAX);
}

/* The minimum over the parts' minima; all of bools is a minimum too. */
static void sbp_smallest(fl_sigs *sigs)
{
    sbp_reduced(sigs, usual, FL_PMIN, NULL);
    fl_sbp_partial(sigs, 1, FL_PMIN);
}

/* For prod: the products of parts would have to be multiplied, and there is no such partial. */
static void sbp_kept_only(fl_sigs *sigs) { sbp_reduced(sigs, usual, FL_B, NULL); }

/* ---- gradients ---- */

/* The tensor with the reduced axes put back, stretched to `shape`. */
static fl_tensor *unreduce(fl_expr *expr, fl_tensor *tensor, const fl_shape *shape, uint32_t mask)
{
    fl_shape kept;
    fl_attrs sizes;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *whole = expr_reshape(expr, tensor, &kept);
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&sizes, FL_OP_REF(expand));
    fl_attr_set_list(&sizes, 0, shape->dims, shape->ndim);
    return EXPR_CALL(expr, &sizes, expand, fl_of(whole));
}

/* Axes of a call whose gradient is wanted. */
static fl_status grad_axes(uint32_t *mask, const fl_grad *g, slots at)
{
    return fl_reduce_axes(mask, g->op->name, &g->attrs->at[at.axis], &g->in_meta[0]->shape);
}

static fl_status finish_grad(fl_grad *g, fl_expr *expr, fl_tensor *result)
{
    g->gin[0] = fl_expr_take(expr, result);
    return fl_expr_end(expr);
}

/* t, but 0 where `divisor` is 0 */
static fl_tensor *zero_where(fl_expr *expr, fl_tensor *divisor, fl_tensor *t)
{
    fl_tensor *hit = EXPR_CALL(expr, NULL, eq, fl_of(divisor), fl_of_integer(0));
    return EXPR_CALL(expr, NULL, where, fl_of(hit), fl_of_integer(0), fl_of(t));
}

/* ---- sum, mean, prod ---- */

static fl_dtype sum_dtype(fl_dtype dtype) { return fl_dtype_is_float(dtype) ? dtype : FL_INT64; }

static fl_status infer_sum(fl_infer *infer) { return infer_reduced(infer, usual, sum_dtype(infer->in[0].dtype)); }

static fl_status cpu_sum(fl_kernel *kernel) { return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_SUM}); }

FL_OP(sum) = {
    .name = "sum",
    .sig = "sum(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Sum over axes, or over everything; integers and bool give int64.",
    .nout = 1,
    .infer = infer_sum,
    .sbp = sbp_sum,
    .cpu = cpu_sum,
    FL_VJP("unreduce(g, axis, keepdim, x)"),
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

static fl_status infer_float_reduction(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return infer_reduced(infer, usual, infer->in[0].dtype);
}

static void finish_mean(fl_total *total, double center, const fl_reduce_job *job)
{
    total->number /= (double)job->logical_count;
}

static fl_status cpu_mean(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_SUM, .finish = finish_mean});
}

/* Every element has the share 1 / count. */
static fl_status grad_mean(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    const fl_shape *shape = &g->in_meta[0]->shape;
    FL_TRY(grad_axes(&mask, g, usual));
    return finish_grad(g, &c,
                       unreduce(&c, expr_mul_number(&c, g->gout[0], 1.0 / (double)count_of(shape, mask)), shape, mask));
}

FL_OP(mean) = {
    .name = "mean",
    .sig = "mean(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Mean over axes, or over everything; the mean of no elements is NaN.",
    .nout = 1,
    .infer = infer_float_reduction,
    .sbp = sbp_sum,
    .cpu = cpu_mean,
    .grad = grad_mean,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0", "flow.randn(2, 3, 4), {1, 2}, true"),
};

static fl_status cpu_prod(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_PRODUCT});
}

/* The product of the other elements: 0 where one of them is 0, else the product over non-zero ones without x. */
static fl_status grad_prod(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    FL_TRY(grad_axes(&mask, g, usual));
    fl_tensor *zero = EXPR_CALL(&c, NULL, eq, fl_of(x), fl_of_integer(0));
    fl_tensor *other_zeros = expr_sub(&c, expr_sum(&c, zero, mask, true), zero);
    fl_tensor *factors = EXPR_CALL(&c, NULL, where, fl_of(zero), fl_of_integer(1), fl_of(x));
    fl_shape kept;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *product = expr_reduce(&c, FL_OP_REF(prod), factors, mask, true);
    fl_tensor *scaled = expr_div(&c, expr_mul(&c, expr_reshape(&c, g->gout[0], &kept), product), factors);
    fl_tensor *no_other = EXPR_CALL(&c, NULL, eq, fl_of(other_zeros), fl_of_integer(0));
    return finish_grad(g, &c, EXPR_CALL(&c, NULL, where, fl_of(no_other), fl_of(scaled), fl_of_integer(0)));
}

FL_OP(prod) = {
    .name = "prod",
    .sig = "prod(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Product over axes, or over everything; integers and bool give int64.",
    .nout = 1,
    .infer = infer_sum,
    .sbp = sbp_kept_only,
    .cpu = cpu_prod,
    .grad = grad_prod,
    .saves_in = 1,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, true"),
};

/* ---- any, all ---- */

static fl_status infer_bool(fl_infer *infer) { return infer_reduced(infer, usual, FL_BOOL); }

static void finish_any(fl_total *total, double center, const fl_reduce_job *job)
{
    if (job->integer) total->integer = total->integer > 0;
    else total->number = total->number > 0;
}

static void finish_all(fl_total *total, double center, const fl_reduce_job *job)
{
    if (job->integer) total->integer = total->integer == job->local_count;
    else total->number = total->number == (double)job->local_count;
}

static fl_status cpu_any(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_COUNT, .finish = finish_any});
}
static fl_status cpu_all(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_COUNT, .finish = finish_all});
}

FL_OP(any) = {
    .name = "any",
    .sig = "any(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "True where any element is nonzero, over axes or over everything.",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .infer = infer_bool,
    .sbp = sbp_largest,
    .cpu = cpu_any,
    FL_SAMPLES("flow.randn(3, 4):gt(1)", "flow.randn(3, 4):gt(1), 1"),
};

FL_OP(all) = {
    .name = "all",
    .sig = "all(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "True where all elements are nonzero, over axes or over everything.",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .infer = infer_bool,
    .sbp = sbp_smallest,
    .cpu = cpu_all,
    FL_SAMPLES("flow.randn(3, 4):gt(-1)", "flow.randn(3, 4):gt(-1), 1"),
};

/* ---- extremes: values ---- */

static fl_status infer_extreme(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(infer_reduced(infer, usual, infer->in[0].dtype));
    FL_TRY(fl_reduce_axes(&mask, infer->name, &infer->attrs->at[0], &infer->in[0].shape));
    return require_elements(infer, mask);
}

static fl_status cpu_amax(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_LARGEST});
}
static fl_status cpu_amin(fl_kernel *kernel)
{
    return run_reduce(kernel, usual, (fl_reduce_job){.fold = FL_FOLD_SMALLEST});
}

/* Equal extremes share the gradient. What there is one of per line is added up before it is stretched. */
static fl_status share_gradient(fl_grad *g, uint32_t mask)
{
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    fl_shape kept;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *hit = EXPR_CALL(&c, NULL, eq, fl_of(x), fl_of(unreduce(&c, expr_whole(&c, g->out[0]), shape, mask)));
    fl_tensor *count = expr_whole(&c, expr_reduce(&c, FL_OP_REF(sum), hit, mask, true));
    fl_tensor *share = expr_div(&c, expr_reshape(&c, g->gout[0], &kept), count);
    return finish_grad(
        g, &c, EXPR_CALL(&c, NULL, where, fl_of(hit), fl_of(unreduce(&c, share, shape, mask)), fl_of_integer(0)));
}

static fl_status grad_extreme(fl_grad *g)
{
    uint32_t mask;
    FL_TRY(grad_axes(&mask, g, usual));
    return share_gradient(g, mask);
}

FL_OP(amax) = {
    .name = "amax",
    .sig = "amax(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Largest values over axes, or over everything; NaN counts as the largest. Equal ones share the gradient "
           "evenly.",
    .nout = 1,
    .infer = infer_extreme,
    .sbp = sbp_largest,
    .cpu = cpu_amax,
    .grad = grad_extreme,
    .saves_in = 1,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

FL_OP(amin) = {
    .name = "amin",
    .sig = "amin(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Smallest values over axes, or over everything; NaN counts as the smallest. Equal ones share the gradient "
           "evenly.",
    .nout = 1,
    .infer = infer_extreme,
    .sbp = sbp_smallest,
    .cpu = cpu_amin,
    .grad = grad_extreme,
    .saves_in = 1,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

static uint32_t all_axes(int ndim) { return (1u << ndim) - 1; }

static fl_status infer_extreme_of_all(fl_infer *infer)
{
    infer->out[0].shape = (fl_shape){0};
    infer->out[0].dtype = infer->in[0].dtype;
    return require_elements(infer, all_axes(infer->in[0].shape.ndim));
}

static fl_status cpu_max_all(fl_kernel *kernel)
{
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], all_axes(kernel->in[0].ndim),
                         &(fl_reduce_job){.name = "max", .fold = FL_FOLD_LARGEST});
}

static fl_status cpu_min_all(fl_kernel *kernel)
{
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], all_axes(kernel->in[0].ndim),
                         &(fl_reduce_job){.name = "min", .fold = FL_FOLD_SMALLEST});
}

/* As sbp_largest, over all axes. */
static void sbp_max_all(fl_sigs *sigs)
{
    reduced_sigs(sigs, all_axes(sigs->in_logical[0].ndim), false, FL_PMAX, NULL);
    fl_sbp_partial(sigs, 1, FL_PMAX);
}

static void sbp_min_all(fl_sigs *sigs)
{
    reduced_sigs(sigs, all_axes(sigs->in_logical[0].ndim), false, FL_PMIN, NULL);
    fl_sbp_partial(sigs, 1, FL_PMIN);
}

static fl_status grad_extreme_of_all(fl_grad *g) { return share_gradient(g, all_axes(g->in_meta[0]->shape.ndim)); }

FL_OP(max_all) = {
    .name = "max_all",
    .sig = "max_all(x)",
    .doc = "The largest value; NaN counts as the largest. Equal ones share the gradient evenly.",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .infer = infer_extreme_of_all,
    .sbp = sbp_max_all,
    .cpu = cpu_max_all,
    .grad = grad_extreme_of_all,
    .saves_in = 1,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4)"),
};

FL_OP(min_all) = {
    .name = "min_all",
    .sig = "min_all(x)",
    .doc = "The smallest value; NaN counts as the smallest. Equal ones share the gradient evenly.",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .infer = infer_extreme_of_all,
    .sbp = sbp_min_all,
    .cpu = cpu_min_all,
    .grad = grad_extreme_of_all,
    .saves_in = 1,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4)"),
};

/* ---- extremes: positions ---- */

/* Axes of an optional `axis` attribute in slot 0. */
static fl_status axis_mask(uint32_t *mask, const char *who, const fl_attr *axis, const fl_shape *shape)
{
    int at;
    *mask = all_axes(shape->ndim);
    if (!axis->given) return FL_OK;
    FL_TRY(fl_shape_axis(&at, who, axis->integer, shape));
    if (shape->ndim) *mask = 1u << at;
    return FL_OK;
}

static fl_status infer_arg(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(axis_mask(&mask, shown_name(infer->op), &infer->attrs->at[0], &infer->in[0].shape));
    FL_TRY(require_elements(infer, mask));
    for (int i = 0; i < infer->nout; i++)
        fl_reduce_shape(&infer->out[i].shape, &infer->in[0].shape, mask, infer->attrs->at[1].integer != 0);
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[infer->nout - 1].dtype = FL_INT64;
    return FL_OK;
}

/* Over a split axis the extreme comes first, then the lowest position that any rank has for it. */
static fl_status arg_in_parts(fl_tensor **out, int nout, fl_tensor *x, const fl_attrs *attrs, bool largest)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_attrs a;
    FL_TRY(axis_mask(&mask, "arg_find", &attrs->at[0], &x->meta->shape));
    fl_tensor *extreme = expr_whole(
        &c, expr_reduce(&c, largest ? FL_OP_REF(amax) : FL_OP_REF(amin), x, mask, attrs->at[1].integer != 0));
    fl_attrs_init(&a, FL_OP_REF(arg_find));
    a.at[0] = attrs->at[0];
    a.at[1] = attrs->at[1];
    fl_attr_set(&a, 2, largest);
    out[nout - 1] = fl_expr_take(&c, EXPR_CALL(&c, &a, arg_find, fl_of(x), fl_of(extreme)));
    if (nout == 2) out[0] = fl_expr_take(&c, extreme);
    return fl_expr_end(&c);
}

static fl_status body_argmax(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 1, in[0].tensor, attrs, true);
}

static fl_status body_argmin(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 1, in[0].tensor, attrs, false);
}

static fl_status body_max_axis(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 2, in[0].tensor, attrs, true);
}

static fl_status body_min_axis(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 2, in[0].tensor, attrs, false);
}

/* Kept axes stay split; over a split reduced axis the positions are the lowest of all ranks. */
static void sbp_arg_with(fl_sigs *sigs, fl_body body)
{
    uint32_t mask;
    bool keepdim = sigs->attrs->at[1].integer != 0;
    if (axis_mask(&mask, sigs->op->name, &sigs->attrs->at[0], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted it */
    reduced_sigs(sigs, mask, keepdim, FL_B, NULL);
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        if (!(mask >> axis & 1u)) continue;
        if (sigs->nout == 2) FL_SIG(sigs, body, FL_S(axis), FL_B, FL_PMIN);
        else FL_SIG(sigs, body, FL_S(axis), FL_PMIN);
    }
}

static void sbp_argmax(fl_sigs *sigs) { sbp_arg_with(sigs, body_argmax); }
static void sbp_argmin(fl_sigs *sigs) { sbp_arg_with(sigs, body_argmin); }
static void sbp_max_axis(fl_sigs *sigs) { sbp_arg_with(sigs, body_max_axis); }
static void sbp_min_axis(fl_sigs *sigs) { sbp_arg_with(sigs, body_min_axis); }

static fl_status run_arg(fl_kernel *kernel, bool largest)
{
    uint32_t mask;
    fl_shape shape = logical_shape(&kernel->in[0]);
    FL_TRY(axis_mask(&mask, kernel->op->name, &kernel->attrs->at[0], &shape));
    return fl_cpu_arg_reduce(kernel->nout == 2 ? &kernel->out[0] : NULL, &kernel->out[kernel->nout - 1], &kernel->in[0],
                             mask, largest);
}

static fl_status cpu_arg_largest(fl_kernel *kernel) { return run_arg(kernel, true); }
static fl_status cpu_arg_smallest(fl_kernel *kernel) { return run_arg(kernel, false); }

FL_OP(argmax) = {
    .name = "argmax",
    .sig = "argmax(x, axis: axis = nil, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "Positions of the largest values, the lowest of equal ones; NaN counts as the largest.",
    .infer = infer_arg,
    .sbp = sbp_argmax,
    .cpu = cpu_arg_largest,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

FL_OP(argmin) = {
    .name = "argmin",
    .sig = "argmin(x, axis: axis = nil, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "Positions of the smallest values, the lowest of equal ones; NaN counts as the smallest.",
    .infer = infer_arg,
    .sbp = sbp_argmin,
    .cpu = cpu_arg_smallest,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

/* The gradient goes to the element at the position that was returned; equal ones get none. */
static fl_status grad_extreme_axis(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(axis_scatter));
    if (!g->gout[0]) return FL_OK;
    fl_attr_set(&a, 0, fl_axis_of(&g->attrs->at[0], shape->ndim));
    fl_attr_set(&a, 1, g->attrs->at[1].integer);
    fl_attr_set_list(&a, 2, shape->dims, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &a, axis_scatter, fl_of(g->gout[0]), fl_of(g->out[1]));
}

FL_OP(max_axis) = {
    .name = "max_axis",
    .sig = "max_axis(x, axis: axis, keepdim: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "Largest values along an axis and their positions, the lowest of equal ones; NaN counts as the largest.",
    .infer = infer_arg,
    .sbp = sbp_max_axis,
    .cpu = cpu_arg_largest,
    .grad = grad_extreme_axis,
    .saves_out = 2,
    FL_SAMPLES("flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

FL_OP(min_axis) = {
    .name = "min_axis",
    .sig = "min_axis(x, axis: axis, keepdim: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "Smallest values along an axis and their positions, the lowest of equal ones; NaN counts as the smallest.",
    .infer = infer_arg,
    .sbp = sbp_min_axis,
    .cpu = cpu_arg_smallest,
    .grad = grad_extreme_axis,
    .saves_out = 2,
    FL_SAMPLES("flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

/* ---- extremes: positions of a value that is known ---- */

static fl_status infer_arg_find(fl_infer *infer)
{
    FL_TRY(infer_arg(infer));
    if (infer->in[1].dtype != infer->in[0].dtype || !fl_shape_equal(&infer->in[1].shape, &infer->out[0].shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "value must have the dtype of x and the shape of the result");
    return FL_OK;
}

/* A rank without the value along its part gives the highest integer, so the lowest position over the ranks is the
** result. */
static void sbp_arg_find(fl_sigs *sigs)
{
    uint32_t mask;
    bool keepdim = sigs->attrs->at[1].integer != 0;
    if (axis_mask(&mask, sigs->op->name, &sigs->attrs->at[0], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted it */
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        fl_sbp line = FL_S(axis_after(axis, mask, keepdim));
        if (mask >> axis & 1u) FL_SIG(sigs, NULL, FL_S(axis), FL_B, FL_PMIN);
        else FL_SIG(sigs, NULL, FL_S(axis), line, line);
    }
}

static fl_status cpu_arg_find(fl_kernel *kernel)
{
    uint32_t mask;
    fl_shape shape = logical_shape(&kernel->in[0]);
    FL_TRY(axis_mask(&mask, kernel->op->name, &kernel->attrs->at[0], &shape));
    return fl_cpu_arg_find(kernel, mask, kernel->attrs->at[2].integer != 0);
}

FL_OP(arg_find) = {
    .name = "arg_find",
    .sig = "arg_find(x, value, axis: axis = nil, keepdim: bool = false, largest: bool = true)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "Positions of the largest (smallest) values where they equal `value`, the largest (smallest) of all; "
           "elsewhere the highest integer.",
    .infer = infer_arg_find,
    .sbp = sbp_arg_find,
    .cpu = cpu_arg_find,
    FL_SAMPLES("flow.randn(3, 4):clamp(-1, 0.25), flow.full({3}, 0.25), 1",
               "flow.randn(3, 4):clamp(-0.5, 1), flow.full({1, 4}, -0.5), 0, true, false",
               "flow.randn(3, 4):clamp(-1, 0.25), flow.full({}, 0.25)"),
};

/* ---- var, std ---- */

static double divisor(const fl_attrs *attrs, int64_t count)
{
    double left = (double)count - (double)attrs->at[1].integer;
    return left > 0 ? left : 0;
}

static fl_status infer_var(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return infer_reduced(infer, around_correction, infer->in[0].dtype);
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
                           .correction = (double)kernel->attrs->at[1].integer};
}

static fl_status cpu_var(fl_kernel *kernel)
{
    fl_reduce_job job = deviations(kernel);
    job.finish = finish_var;
    return run_reduce(kernel, around_correction, job);
}

static fl_status cpu_std(fl_kernel *kernel)
{
    fl_reduce_job job = deviations(kernel);
    job.finish = finish_std;
    return run_reduce(kernel, around_correction, job);
}

/* The variance in other ops, for a split axis; that of 16-bit floats in float32. */
static fl_tensor *expr_var(fl_expr *expr, fl_tensor *x, const fl_attrs *attrs)
{
    uint32_t mask;
    const fl_shape *shape = &x->meta->shape;
    expr->status = fl_reduce_axes(&mask, "var", &attrs->at[0], shape);
    x = expr_widen(expr, x);
    fl_tensor *d = expr_sub(expr, x, expr_mean(expr, x, mask, true));
    fl_tensor *squares = EXPR_CALL(expr, NULL, square, fl_of(d));
    return expr_mul_number(expr, expr_sum(expr, squares, mask, attrs->at[2].integer != 0),
                           1.0 / divisor(attrs, count_of(shape, mask)));
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
static void sbp_var(fl_sigs *sigs) { sbp_reduced(sigs, around_correction, FL_PSUM, body_var); }

/* A root of a sum is no sum of roots: the body completes the variance before it takes the root. */
static void sbp_std(fl_sigs *sigs) { sbp_reduced(sigs, around_correction, FL_B, body_std); }

/* The gradient g' of the sum of squared deviations, times 2 (x - mean) */
static fl_status grad_deviations(fl_grad *g, fl_expr *expr, fl_tensor *scale, uint32_t mask)
{
    fl_tensor *x = g->in[0].tensor;
    fl_tensor *d = expr_sub(expr, x, expr_mean(expr, x, mask, true));
    return finish_grad(g, expr, expr_mul(expr, d, unreduce(expr, scale, &x->meta->shape, mask)));
}

/* d/dx of sum((x - mean)^2) is 2 (x - mean): the term through the mean vanishes, because deviations add up to 0. */
static fl_status grad_var(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    FL_TRY(grad_axes(&mask, g, around_correction));
    double left = divisor(g->attrs, count_of(&g->in_meta[0]->shape, mask));
    return grad_deviations(g, &c, expr_mul_number(&c, g->gout[0], 2.0 / left), mask);
}

/* As grad_var, through the root: d sqrt(v) = dv / (2 sqrt(v)). */
static fl_status grad_std(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    FL_TRY(grad_axes(&mask, g, around_correction));
    double left = divisor(g->attrs, count_of(&g->in_meta[0]->shape, mask));
    fl_tensor *per_deviation = zero_where(&c, g->out[0],
                                          expr_div(&c, g->gout[0], g->out[0])); /* equal elements: as the norm at 0 */
    return grad_deviations(g, &c, expr_mul_number(&c, per_deviation, 1.0 / left), mask);
}

FL_OP(var) = {
    .name = "var",
    .sig = "var(x, axis: axes = nil, correction: int = 1, keepdim: bool = false)",
    .nout = 1,
    .doc = "Variance over axes, or over everything: the sum of squared deviations divided by count - correction.",
    .infer = infer_var,
    .sbp = sbp_var,
    .cpu = cpu_var,
    .grad = grad_var,
    .saves_in = 1,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

FL_OP(std) = {
    .name = "std",
    .sig = "std(x, axis: axes = nil, correction: int = 1, keepdim: bool = false)",
    .nout = 1,
    .doc = "Standard deviation: the square root of var; its gradient is 0 where it is 0.",
    .infer = infer_var,
    .sbp = sbp_std,
    .cpu = cpu_std,
    .grad = grad_std,
    .saves_in = 1,
    .saves_out = 1,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

/* ---- norm ---- */

static fl_status infer_norm(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return infer_reduced(infer, after_p, infer->in[0].dtype);
}

static void finish_root(fl_total *total, double center, const fl_reduce_job *job)
{
    total->number = job->p == 2 ? sqrt(total->number) : pow(total->number, 1 / job->p);
}

static fl_status cpu_norm(fl_kernel *kernel)
{
    double p = fl_attr_number(&kernel->attrs->at[0]);
    fl_reduce_job job = {.fold = FL_FOLD_POWERS, .p = p, .finish = finish_root};
    if (p == 2) job.fold = FL_FOLD_SQUARES;
    else if (p == 1) job = (fl_reduce_job){.fold = FL_FOLD_ABS_SUM};
    else if (p == 0) job = (fl_reduce_job){.fold = FL_FOLD_COUNT};
    else if (isinf(p)) job = (fl_reduce_job){.fold = p > 0 ? FL_FOLD_LARGEST_ABS : FL_FOLD_SMALLEST_ABS};
    return run_reduce(kernel, after_p, job);
}

/* The norm in other ops, for a split axis: sums of powers add up, not their roots. */
static fl_status body_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = in[0].tensor, *result;
    double p = fl_attr_number(&attrs->at[0]);
    bool keepdim = attrs->at[2].integer != 0;
    FL_TRY(fl_reduce_axes(&mask, "norm", &attrs->at[1], &x->meta->shape));
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
static void sbp_norm(fl_sigs *sigs) { sbp_reduced(sigs, after_p, FL_B, body_norm); }

/* Of largest and smallest magnitudes: equal ones share the gradient. */
static fl_tensor *grad_norm_infinite(fl_expr *expr, fl_grad *g, uint32_t mask)
{
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    fl_tensor *magnitude = EXPR_CALL(expr, NULL, abs, fl_of(x)), *sign = EXPR_CALL(expr, NULL, sign, fl_of(x));
    fl_tensor *hit = EXPR_CALL(expr, NULL, eq, fl_of(magnitude), fl_of(unreduce(expr, g->out[0], shape, mask)));
    fl_tensor *share = expr_div(expr, unreduce(expr, g->gout[0], shape, mask), expr_sum(expr, hit, mask, true));
    return EXPR_CALL(expr, NULL, where, fl_of(hit), fl_of(expr_mul(expr, sign, share)), fl_of_integer(0));
}

/* sign(x) |x|^(p-1) / norm^(p-1), 0 where the norm is 0 */
static fl_tensor *grad_norm_power(fl_expr *expr, fl_grad *g, uint32_t mask, double p)
{
    fl_tensor *x = g->in[0].tensor;
    fl_tensor *magnitude = EXPR_CALL(expr, NULL, abs, fl_of(x)), *sign = EXPR_CALL(expr, NULL, sign, fl_of(x));
    fl_tensor *power = EXPR_CALL(expr, NULL, pow, fl_of(magnitude), fl_of_number(p - 1));
    fl_tensor *total = EXPR_CALL(expr, NULL, pow, fl_of(g->out[0]), fl_of_number(p - 1));
    fl_tensor *scale = zero_where(expr, g->out[0], expr_div(expr, g->gout[0], total));
    if (p < 1) power = zero_where(expr, x, power);
    return expr_mul(expr, expr_mul(expr, sign, power), unreduce(expr, scale, &x->meta->shape, mask));
}

/* p = 2: x / norm; 0 where the norm is 0. */
static fl_status grad_norm(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor, *result;
    double p = fl_attr_number(&g->attrs->at[0]);
    FL_TRY(grad_axes(&mask, g, after_p));
    if (p == 0) return FL_OK; /* constant almost everywhere */
    if (isinf(p)) result = grad_norm_infinite(&c, g, mask);
    else if (p != 2) result = grad_norm_power(&c, g, mask, p);
    else {
        fl_tensor *scale = zero_where(&c, g->out[0], expr_div(&c, g->gout[0], g->out[0]));
        result = expr_mul(&c, x, unreduce(&c, scale, &x->meta->shape, mask));
    }
    return finish_grad(g, &c, result);
}

FL_OP(norm) = {
    .name = "norm",
    .sig = "norm(x, p: float = 2, axis: axes = nil, keepdim: bool = false)",
    .nout = 1,
    .doc = "The p-norm over axes, or over everything; p may be 0 or infinite. The gradient is 0 where the norm is 0.",
    .infer = infer_norm,
    .sbp = sbp_norm,
    .cpu = cpu_norm,
    .grad = grad_norm,
    .saves_in = 1,
    .saves_out = 1,
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
    return run_reduce(kernel, usual,
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
    FL_TRY(fl_reduce_axes(&mask, "logsumexp", &attrs->at[0], &in[0].tensor->meta->shape));
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    fl_reduce_shape(&shape, &in[0].tensor->meta->shape, mask, attrs->at[1].integer != 0);
    fl_tensor *largest = expr_whole(&c, expr_amax(&c, x, mask, true));
    fl_tensor *finite = EXPR_CALL(&c, NULL, isfinite, fl_of(largest));
    fl_tensor *center = EXPR_CALL(&c, NULL, where, fl_of(finite), fl_of(largest), fl_of_integer(0));
    fl_tensor *sum = expr_whole(&c, expr_sum(&c, expr_exp(&c, expr_sub(&c, x, center)), mask, true));
    fl_tensor *result = expr_reshape(&c, expr_add(&c, expr_log(&c, sum), center), &shape);
    *out = fl_expr_take(&c, expr_cast(&c, result, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

/* As std: the logarithm is taken of the sum over all parts, shifted by the maximum over all parts. */
static void sbp_logsumexp(fl_sigs *sigs) { sbp_reduced(sigs, usual, FL_B, body_logsumexp); }

FL_OP(logsumexp) = {
    .name = "logsumexp",
    .sig = "logsumexp(x, axis: axes = nil, keepdim: bool = false)",
    .nout = 1,
    .doc = "log(sum(exp(x))) over axes, or over everything, without overflow.",
    .infer = infer_float_reduction,
    .sbp = sbp_logsumexp,
    .cpu = cpu_logsumexp,
    FL_VJP("exp(x - unreduce(out, axis, keepdim, x)) * unreduce(g, axis, keepdim, x)"),
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};
