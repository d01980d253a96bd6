/*
** sums.c -- sum, nansum, mean, prod, any and all over axes.
**
** Over a split axis sums become P(sum); any is a maximum of bools and all a minimum. A mean divides by the logical
** count, so its parts add up. A product has no partial.
*/
#include "reduce.h"

/* ---- sum, mean, prod ---- */

/* Sums of parts are partial sums, and sums commute with sums. Also for mean: the kernel divides by the logical
** count, so the results of the parts add up to the mean. */
static void sbp_sum(fl_sigs *sigs)
{
    fl_reduce_sbp(sigs, fl_reduce_usual, FL_PSUM, NULL);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

/* For prod: the products of parts would have to be multiplied, and there is no such partial. */
static void sbp_kept_only(fl_sigs *sigs) { fl_reduce_sbp(sigs, fl_reduce_usual, FL_B, NULL); }

static fl_dtype sum_dtype(fl_dtype dtype) { return fl_dtype_is_float(dtype) ? dtype : FL_INT64; }

static fl_status infer_sum(fl_infer *infer)
{
    return fl_reduce_infer(infer, fl_reduce_usual, sum_dtype(infer->in[0].dtype));
}

static fl_status cpu_sum(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_SUM});
}

FL_OP(sum) = {
    .name = "sum",
    .sig = "sum(x, axis: axes = nil, keepdim: bool = false)",
    .wider = "sum_as",
    .doc = "Sum over axes, or over everything; integers and bool give int64.",
    .nout = 1,
    .flags = FL_OP_WIDE | FL_OP_FOLDS,
    .infer = infer_sum,
    .sbp = sbp_sum,
    .cpu = cpu_sum,
    FL_VJP("unreduce(g, axis, keepdim, x)"),
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

/* Integers have no NaN. */
static fl_status cpu_nansum(fl_kernel *kernel)
{
    bool floats = fl_dtype_is_float(kernel->in[0].dtype);
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = floats ? FL_FOLD_NUMBERS : FL_FOLD_SUM});
}

/* As a sum, but not of partial sums: parts may be NaN where their sum is, and the other way round. */
static void sbp_nansum(fl_sigs *sigs) { fl_reduce_sbp(sigs, fl_reduce_usual, FL_PSUM, NULL); }

FL_OP(nansum) = {
    .name = "nansum",
    .sig = "nansum(x, axis: axes = nil, keepdim: bool = false)",
    .wider = "nansum_as",
    .doc = "Sum over axes, or over everything, of what is not NaN.",
    .nout = 1,
    .flags = FL_OP_WIDE | FL_OP_FOLDS,
    .infer = infer_sum,
    .sbp = sbp_nansum,
    .cpu = cpu_nansum,
    FL_VJP("where(eq(x, x), unreduce(g, axis, keepdim, x), 0)"),
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, true", "flow.randint(0, 9, {3, 4}), 0"),
};

static void finish_mean(fl_total *total, double center, const fl_reduce_job *job)
{
    total->number /= (double)job->logical_count;
}

static fl_status cpu_mean(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_SUM, .finish = finish_mean});
}

/* Every element has the share 1 / count. */
static fl_status grad_mean(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    const fl_shape *shape = &g->in_meta[0]->shape;
    FL_TRY(fl_reduce_grad_axes(&mask, g, fl_reduce_usual));
    return fl_reduce_end_grad(
        g, &c,
        expr_unreduce(&c, expr_mul_number(&c, g->gout[0], 1.0 / (double)fl_reduce_count(shape, mask)), shape, mask));
}

FL_OP(mean) = {
    .name = "mean",
    .sig = "mean(x, axis: axes = nil, keepdim: bool = false)",
    .wider = "mean_as",
    .doc = "Mean over axes, or over everything; the mean of no elements is NaN.",
    .nout = 1,
    .flags = FL_OP_FOLDS,
    .infer = fl_reduce_infer_float,
    .sbp = sbp_sum,
    .cpu = cpu_mean,
    .grad = grad_mean,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0", "flow.randn(2, 3, 4), {1, 2}, true"),
};

static fl_status cpu_prod(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_PRODUCT});
}

/* The product of the other elements: 0 where one of them is 0, else the product over non-zero ones without x. */
static fl_status grad_prod(fl_grad *g)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    FL_TRY(fl_reduce_grad_axes(&mask, g, fl_reduce_usual));
    fl_tensor *zero = EXPR_CALL(&c, NULL, eq, fl_of(x), fl_of_integer(0));
    fl_tensor *other_zeros = expr_sub(&c, expr_sum(&c, zero, mask, true), zero);
    fl_tensor *factors = EXPR_CALL(&c, NULL, where, fl_of(zero), fl_of_integer(1), fl_of(x));
    fl_shape kept;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *product = expr_reduce(&c, FL_OP_REF(prod), factors, mask, true);
    fl_tensor *scaled = expr_div(&c, expr_mul(&c, expr_reshape(&c, g->gout[0], &kept), product), factors);
    fl_tensor *no_other = EXPR_CALL(&c, NULL, eq, fl_of(other_zeros), fl_of_integer(0));
    return fl_reduce_end_grad(g, &c, EXPR_CALL(&c, NULL, where, fl_of(no_other), fl_of(scaled), fl_of_integer(0)));
}

FL_OP(prod) = {
    .name = "prod",
    .flags = FL_OP_WIDE,
    .sig = "prod(x, axis: axes = nil, keepdim: bool = false)",
    .wider = "prod_as",
    .doc = "Product over axes, or over everything; integers and bool give int64.",
    .nout = 1,
    .infer = infer_sum,
    .sbp = sbp_kept_only,
    .cpu = cpu_prod,
    .grad = grad_prod,
    .saves_in = SAVES_X,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, true"),
};

/* ---- any, all ---- */

static fl_status infer_bool(fl_infer *infer) { return fl_reduce_infer(infer, fl_reduce_usual, FL_BOOL); }

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
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_COUNT, .finish = finish_any});
}
static fl_status cpu_all(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_COUNT, .finish = finish_all});
}

FL_OP(any) = {
    .name = "any",
    .sig = "any(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "True where any element is nonzero, over axes or over everything.",
    .nout = 1,
    .flags = FL_OP_NO_GRAD | FL_OP_FOLDS,
    .infer = infer_bool,
    .sbp = fl_reduce_sbp_largest,
    .cpu = cpu_any,
    FL_SAMPLES("flow.randn(3, 4):gt(1)", "flow.randn(3, 4):gt(1), 1"),
};

FL_OP(all) = {
    .name = "all",
    .sig = "all(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "True where all elements are nonzero, over axes or over everything.",
    .nout = 1,
    .flags = FL_OP_NO_GRAD | FL_OP_FOLDS,
    .infer = infer_bool,
    .sbp = fl_reduce_sbp_smallest,
    .cpu = cpu_all,
    FL_SAMPLES("flow.randn(3, 4):gt(-1)", "flow.randn(3, 4):gt(-1), 1"),
};
