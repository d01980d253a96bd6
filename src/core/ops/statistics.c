/*
** statistics.c -- reductions and differences that are written in others: means without NaN, pairs of results, weighted
** covariances, integrals.
*/
#include "op/reduce.h"
#include "op/scan.h"
#include "composite.h"
#include "expr.h"

#include <math.h>

FL_COMPOSITE(nanmean, "nanmean(x, axis: axes = nil, keepdim: bool = false)",
             "nansum(x, axis, keepdim) / sum(eq(x, x), axis, keepdim)",
             SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, true"),
             "Mean over axes, or over everything, of what is not NaN.");

FL_COMPOSITE(count_nonzero, "count_nonzero(x, axis: axes = nil)", "sum(ne(x, 0), axis)",
             SAMPLES("flow.randint(0, 3, {3, 4})", "flow.randn(3, 4):round(), 1"),
             "How many elements are not 0, over axes or over everything.");

FL_COMPOSITE(msort, "msort(x)", "sort(x, 0)", SAMPLES("flow.randn(4, 3)"), "Values along axis 0 in order.");

/* ---- dtype of sums ---- */

#define HIDDEN_SAMPLES(...) SAMPLES(__VA_ARGS__), .flags = FL_OP_HIDDEN

FL_COMPOSITE(sum_as, "sum_as(x, axis: axes = nil, keepdim: bool = false, dtype: dtype)",
             "cast(sum(cast(x, dtype), axis, keepdim), dtype)",
             HIDDEN_SAMPLES("flow.randint(0, 9, {3, 4}), 1, false, \"float32\"",
                            "flow.randn(3, 4), nil, false, \"float64\""),
             "Sum in another dtype.");
FL_COMPOSITE(nansum_as, "nansum_as(x, axis: axes = nil, keepdim: bool = false, dtype: dtype)",
             "cast(nansum(cast(x, dtype), axis, keepdim), dtype)",
             HIDDEN_SAMPLES("flow.randint(0, 9, {3, 4}), 1, false, \"float32\"",
                            "flow.randn(3, 4), nil, false, \"float64\""),
             "Sum of what is not NaN in another dtype.");
FL_COMPOSITE(prod_as, "prod_as(x, axis: axes = nil, keepdim: bool = false, dtype: dtype)",
             "cast(prod(cast(x, dtype), axis, keepdim), dtype)",
             HIDDEN_SAMPLES("flow.randint(0, 9, {3, 4}), 1, false, \"float32\""), "Product in another dtype.");
FL_COMPOSITE(mean_as, "mean_as(x, axis: axes = nil, keepdim: bool = false, dtype: dtype)",
             "mean(cast(x, dtype), axis, keepdim)", HIDDEN_SAMPLES("flow.randint(0, 9, {3, 4}), 1, false, \"float32\""),
             "Mean in another dtype.");
FL_COMPOSITE(cumsum_as, "cumsum_as(x, axis: axis, dtype: dtype)", "cast(cumsum(cast(x, dtype), axis), dtype)",
             HIDDEN_SAMPLES("flow.randint(0, 9, {3, 4}), 1, \"float32\""), "Running sums in another dtype.");

/* ---- pairs ---- */

enum { PAIR_AXIS, PAIR_KEEPDIM };

static fl_status body_aminmax(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_op *const ops[] = {FL_OP_REF(amin), FL_OP_REF(amax)};
    for (int i = 0; i < 2; i++) {
        fl_attrs a;
        fl_attrs_init(&a, ops[i]);
        if (attrs->at[PAIR_AXIS].given) fl_attr_set_list(&a, FL_REDUCE_AXIS, &attrs->at[PAIR_AXIS].integer, 1);
        a.at[FL_REDUCE_KEEPDIM] = attrs->at[PAIR_KEEPDIM];
        out[i] = fl_expr_take(&c, fl_expr_call(&c, ops[i], in, 1, &a));
    }
    return fl_expr_end(&c);
}

FL_OP(aminmax) = {
    .name = "aminmax",
    .sig = "aminmax(x, axis: axis = nil, keepdim: bool = false)",
    .nout = 2,
    .doc = "The smallest and the largest values along an axis, or of everything; equal ones share the gradient.",
    .body = body_aminmax,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

/* The spread and the mean; attributes are those of var. */
static fl_status spread_and_mean(fl_tensor **out, const fl_op *op, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(mean));
    a.at[FL_REDUCE_AXIS] = attrs->at[FL_VAR_AXIS];
    a.at[FL_REDUCE_KEEPDIM] = attrs->at[FL_VAR_KEEPDIM];
    out[0] = fl_expr_take(&c, fl_expr_call(&c, op, in, 1, attrs));
    out[1] = fl_expr_take(&c, fl_expr_call(&c, FL_OP_REF(mean), in, 1, &a));
    return fl_expr_end(&c);
}

static fl_status body_var_mean(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return spread_and_mean(out, FL_OP_REF(var), in, attrs);
}
static fl_status body_std_mean(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return spread_and_mean(out, FL_OP_REF(std), in, attrs);
}

FL_OP(var_mean) = {
    .name = "var_mean",
    .sig = "var_mean(x, axis: axes = nil, correction: float = 1, keepdim: bool = false)",
    .nout = 2,
    .doc = "Variance and mean over axes, or over everything.",
    .body = body_var_mean,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

FL_OP(std_mean) = {
    .name = "std_mean",
    .sig = "std_mean(x, axis: axes = nil, correction: float = 1, keepdim: bool = false)",
    .nout = 2,
    .doc = "Standard deviation and mean over axes, or over everything.",
    .body = body_std_mean,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, 0, true"),
};

/* ---- diff ---- */

/* Axis of an operand that must have one. */
static fl_status own_axis(int *axis, const char *who, const fl_attr *attr, const fl_tensor *x)
{
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x must have at least one axis", who);
    return fl_shape_axis(axis, who, attr->integer, &x->meta->shape);
}

enum { DIFF_X, DIFF_BEFORE, DIFF_AFTER };
enum { DIFF_N, DIFF_AXIS };

/* Neighbours that differ, of bools. */
static fl_tensor *expr_diff(fl_expr *expr, fl_tensor *x, int axis)
{
    if (!x || expr->status != FL_OK) return NULL;
    int64_t n = x->meta->shape.dims[axis], left = n > 0 ? n - 1 : 0;
    fl_tensor *high = expr_narrowed(expr, x, axis, n > 0, left), *low = expr_narrowed(expr, x, axis, 0, left);
    if (x->meta->dtype == FL_BOOL) return EXPR_CALL(expr, NULL, ne, fl_of(high), fl_of(low));
    return expr_sub(expr, high, low);
}

static fl_status body_diff(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[DIFF_X].tensor;
    int64_t n = attrs->at[DIFF_N].integer;
    int axis;
    FL_TRY(own_axis(&axis, "diff", &attrs->at[DIFF_AXIS], x));
    if (n < 0) return fl_fail(FL_ERR_VALUE, "diff: n must be 0 or more, got %lld", (long long)n);
    if (n == 0) return FL_CALL(out, clone, in[DIFF_X]);
    if (in[DIFF_BEFORE].kind == FL_TENSOR) x = expr_concatenated(&c, in[DIFF_BEFORE].tensor, x, axis);
    if (in[DIFF_AFTER].kind == FL_TENSOR) x = expr_concatenated(&c, x, in[DIFF_AFTER].tensor, axis);
    for (; n > 0 && c.status == FL_OK; n--) {
        if (c.count > FL_EXPR_LENGTH - 4) {
            c.status = fl_fail(FL_ERR_VALUE, "diff: n is too large; take differences of differences");
            break;
        }
        x = expr_diff(&c, x, axis);
    }
    *out = fl_expr_take(&c, x);
    return fl_expr_end(&c);
}

FL_OP(diff) = {
    .name = "diff",
    .sig = "diff(x, n: int = 1, axis: axis = -1, prepend?, append?)",
    .nout = 1,
    .doc = "Differences of neighbours along an axis, n times; prepend and append are put before and after x.",
    .body = body_diff,
    FL_SAMPLES("flow.randn(3, 5)", "flow.randn(5, 3), 2, 0", "flow.randn(3, 4), 1, -1, flow.randn(3, 1)",
               "flow.randn(3, 4):gt(0)"),
};

/* ---- integrals ---- */

enum { AREA_Y, AREA_X };
enum { AREA_DX, AREA_AXIS };

/* The areas between neighbours, as [..., n - 1, ...]. */
static fl_tensor *expr_areas(fl_expr *expr, const fl_operand *in, const fl_attrs *attrs, int axis)
{
    fl_tensor *y = in[AREA_Y].tensor, *x = in[AREA_X].kind == FL_TENSOR ? in[AREA_X].tensor : NULL;
    const fl_shape *shape = &y->meta->shape;
    int64_t n = shape->dims[axis], left = n > 0 ? n - 1 : 0;
    fl_tensor *sums = expr_add(expr, expr_narrowed(expr, y, axis, n > 0, left), expr_narrowed(expr, y, axis, 0, left));
    if (!x) return expr_mul_number(expr, sums, fl_attr_number(&attrs->at[AREA_DX]) / 2);
    if (x->meta->shape.ndim == 1 && shape->ndim > 1) { /* one list of positions for all lines */
        fl_shape wide = {.ndim = shape->ndim, .dims = {0}};
        for (int i = 0; i < wide.ndim; i++) wide.dims[i] = i == axis ? x->meta->shape.dims[0] : 1;
        x = expr_reshape(expr, x, &wide);
    }
    fl_tensor *widths = x ? expr_diff(expr, x, x->meta->shape.ndim - (shape->ndim - axis)) : NULL;
    return expr_mul_number(expr, expr_mul(expr, sums, widths), 0.5);
}

static fl_status check_areas(int *axis, const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    FL_TRY(own_axis(axis, who, &attrs->at[AREA_AXIS], in[AREA_Y].tensor));
    if (in[AREA_X].kind != FL_TENSOR) return FL_OK;
    const fl_shape *x = &in[AREA_X].tensor->meta->shape, *y = &in[AREA_Y].tensor->meta->shape;
    int own = x->ndim == 1 ? 0 : x->ndim - (y->ndim - *axis);
    if (own >= 0 && own < x->ndim && x->ndim <= y->ndim && x->dims[own] == y->dims[*axis]) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: x must have as many positions along axis %d as y, x is %s and y is %s", who,
                   *axis, fl_shape_text(tx, x), fl_shape_text(ty, y));
}

/* Positions dx apart: the sum of all but half of either end. */
static fl_tensor *expr_even_integral(fl_expr *expr, fl_tensor *y, double dx, int axis)
{
    int64_t n = y->meta->shape.dims[axis];
    fl_tensor *ends = expr_add(expr, expr_narrowed(expr, y, axis, 0, 1), expr_narrowed(expr, y, axis, n - 1, 1));
    fl_tensor *all = expr_sum(expr, y, 1u << axis, true);
    fl_tensor *inside = expr_sub(expr, all, expr_mul_number(expr, ends, 0.5));
    return expr_sum(expr, expr_mul_number(expr, inside, dx), 1u << axis, false);
}

/* One list of n > 0 positions for all lines: each element times half of the distance between its neighbours. */
static fl_tensor *expr_weighed_integral(fl_expr *expr, fl_tensor *y, fl_tensor *x, int axis)
{
    int64_t n = x->meta->shape.dims[0];
    fl_shape wide = {.ndim = y->meta->shape.ndim, .dims = {0}};
    for (int i = 0; i < wide.ndim; i++) wide.dims[i] = i == axis ? n : 1;
    fl_tensor *next = expr_concatenated(expr, expr_narrowed(expr, x, 0, 1, n - 1), expr_narrowed(expr, x, 0, n - 1, 1),
                                        0);
    fl_tensor *last = expr_concatenated(expr, expr_narrowed(expr, x, 0, 0, 1), expr_narrowed(expr, x, 0, 0, n - 1), 0);
    fl_tensor *weights = expr_reshape(expr, expr_mul_number(expr, expr_sub(expr, next, last), 0.5), &wide);
    return expr_sum(expr, expr_mul(expr, y, weights), 1u << axis, false);
}

static fl_status body_trapezoid(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    int axis;
    FL_TRY(check_areas(&axis, "trapezoid", in, attrs));
    fl_tensor *y = in[AREA_Y].tensor, *x = in[AREA_X].kind == FL_TENSOR ? in[AREA_X].tensor : NULL, *integral;
    int64_t n = y->meta->shape.dims[axis];
    bool has_range = y->meta->dtype == FL_FLOAT32 || y->meta->dtype == FL_FLOAT64; /* sums of others may not fit */
    if (!x && n > 1 && has_range) integral = expr_even_integral(&c, y, fl_attr_number(&attrs->at[AREA_DX]), axis);
    else if (x && n > 0 && x->meta->shape.ndim == 1 && fl_dtype_is_float(x->meta->dtype))
        integral = expr_weighed_integral(&c, y, x, axis);
    else integral = expr_sum(&c, expr_areas(&c, in, attrs, axis), 1u << axis, false);
    *out = fl_expr_take(&c, integral);
    return fl_expr_end(&c);
}

static fl_status body_cumulative_trapezoid(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    int axis;
    FL_TRY(check_areas(&axis, "cumulative_trapezoid", in, attrs));
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, axis);
    *out = fl_expr_take(&c, EXPR_CALL(&c, &a, cumsum, fl_of(expr_areas(&c, in, attrs, axis))));
    return fl_expr_end(&c);
}

FL_OP(trapezoid) = {
    .name = "trapezoid",
    .sig = "trapezoid(y, x?, dx: float = 1, axis: axis = -1)",
    .nout = 1,
    .doc = "The integral of y along an axis by trapezoids, at positions x or dx apart.",
    .body = body_trapezoid,
    FL_SAMPLES("flow.randn(3, 5)", "flow.randn(3, 5), flow.randn(5)", "flow.randn(5, 3), {dx = 0.5, axis = 0}"),
};

FL_OP(cumulative_trapezoid) = {
    .name = "cumulative_trapezoid",
    .sig = "cumulative_trapezoid(y, x?, dx: float = 1, axis: axis = -1)",
    .nout = 1,
    .doc = "The integral of y up to each position but the first, by trapezoids.",
    .body = body_cumulative_trapezoid,
    FL_SAMPLES("flow.randn(3, 5)", "flow.randn(3, 5), flow.randn(3, 5)", "flow.randn(5, 3), {dx = 0.5, axis = 0}"),
};

/* ---- covariance ---- */

enum { COV_X, COV_FWEIGHTS, COV_AWEIGHTS };

static fl_tensor *as_rows(fl_expr *expr, fl_tensor *x)
{
    fl_shape rows = {2, {1, x->meta->numel}};
    return x->meta->shape.ndim < 2 ? expr_reshape(expr, x, &rows) : x;
}

static fl_status check_weights(const char *name, const fl_operand *weights, int64_t columns)
{
    char text[FL_SHAPE_TEXT];
    if (weights->kind != FL_TENSOR) return FL_OK;
    const fl_shape *shape = &weights->tensor->meta->shape;
    if (shape->ndim == 1 && shape->dims[0] == columns) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "cov: %s must have one element for each of %lld columns, it is %s", name,
                   (long long)columns, fl_shape_text(text, shape));
}

/* Sum of w d d' over (total - correction sum(w a) / total), w = f a. */
static fl_tensor *weighted_cov(fl_expr *expr, fl_tensor *x, const fl_operand *in, double correction)
{
    fl_tensor *f = in[COV_FWEIGHTS].kind == FL_TENSOR ? expr_cast(expr, in[COV_FWEIGHTS].tensor, x->meta->dtype) : NULL;
    fl_tensor *a = in[COV_AWEIGHTS].kind == FL_TENSOR ? in[COV_AWEIGHTS].tensor : NULL;
    fl_tensor *w = f && a ? expr_mul(expr, f, a) : f ? f : a;
    fl_tensor *total = expr_sum(expr, w, 1, false), *less;
    fl_tensor *mean = expr_div(expr, expr_sum(expr, expr_mul(expr, x, w), 1u << 1, true), total);
    fl_tensor *d = expr_sub(expr, x, mean);
    if (a)
        less = expr_div(expr, expr_mul_number(expr, expr_sum(expr, expr_mul(expr, w, a), 1, false), -correction),
                        total);
    else less = expr_mul_number(expr, EXPR_CALL(expr, NULL, ones_like, fl_of(total)), -correction);
    fl_tensor *norm = EXPR_CALL(expr, NULL, relu, fl_of(expr_add(expr, total, less)));
    return expr_div(expr, expr_gemm(expr, expr_mul(expr, d, w), d, false, true), norm);
}

static fl_tensor *plain_cov(fl_expr *expr, fl_tensor *x, double correction)
{
    double left = (double)x->meta->shape.dims[1] - correction;
    fl_tensor *d = expr_sub(expr, x, expr_mean(expr, x, 1u << 1, true));
    fl_tensor *products = expr_gemm(expr, d, d, false, true);
    return EXPR_CALL(expr, NULL, div, fl_of(products), fl_of_number(left > 0 ? left : 0));
}

static fl_tensor *expr_cov(fl_expr *expr, const fl_operand *in, double correction)
{
    fl_tensor *x = in[COV_X].tensor, *result;
    if (!fl_dtype_is_float(x->meta->dtype)) x = expr_cast(expr, x, fl_dtype_default);
    fl_tensor *rows = as_rows(expr, x);
    if (expr->status != FL_OK) return NULL;
    expr->status = check_weights("fweights", &in[COV_FWEIGHTS], rows->meta->shape.dims[1]);
    if (expr->status == FL_OK) expr->status = check_weights("aweights", &in[COV_AWEIGHTS], rows->meta->shape.dims[1]);
    if (expr->status != FL_OK) return NULL;
    if (in[COV_FWEIGHTS].kind == FL_TENSOR || in[COV_AWEIGHTS].kind == FL_TENSOR)
        result = weighted_cov(expr, rows, in, correction);
    else result = plain_cov(expr, rows, correction);
    return x->meta->shape.ndim < 2 ? expr_reshape(expr, result, &(fl_shape){0}) : result;
}

static fl_status require_table(const char *who, const fl_tensor *x)
{
    char text[FL_SHAPE_TEXT];
    if (x->meta->shape.ndim <= 2) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: takes a matrix of [variables, observations] or one variable, x is %s", who,
                   fl_shape_text(text, &x->meta->shape));
}

static fl_status body_cov(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(require_table("cov", in[COV_X].tensor));
    *out = fl_expr_take(&c, expr_cov(&c, in, (double)attrs->at[0].integer));
    return fl_expr_end(&c);
}

FL_OP(cov) = {
    .name = "cov",
    .sig = "cov(x, correction: int = 1, fweights?, aweights?)",
    .nout = 1,
    .doc = "Covariances of the rows of x [variables, observations]; fweights: how often each observation was made, "
           "aweights: how much it counts.",
    .body = body_cov,
    FL_SAMPLES("flow.randn(3, 6)", "flow.randn(6), 0", "flow.randn(3, 6), 1, flow.randint(1, 4, {6}), flow.rand(6)"),
};

enum { CLAMP_MIN, CLAMP_MAX };

/* Covariances by the roots of variances, which rounding may leave beyond 1. */
static fl_status body_corrcoef(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    FL_TRY(require_table("corrcoef", in[0].tensor));
    const fl_operand all[] = {in[0], {FL_NONE, {0}}, {FL_NONE, {0}}};
    fl_tensor *cov = expr_cov(&c, all, 1);
    if (cov && cov->meta->shape.ndim == 0) cov = expr_div(&c, cov, cov);
    else if (cov) {
        fl_tensor *spread = EXPR_CALL(&c, NULL, sqrt, fl_of(EXPR_CALL(&c, NULL, diagonal, fl_of(cov))));
        cov = expr_div(&c, expr_div(&c, cov, expr_unsqueeze(&c, spread, 1)), expr_unsqueeze(&c, spread, 0));
        fl_attrs_init(&a, FL_OP_REF(clamp));
        fl_attr_set_number(&a, CLAMP_MIN, -1);
        fl_attr_set_number(&a, CLAMP_MAX, 1);
        cov = EXPR_CALL(&c, &a, clamp, fl_of(cov));
    }
    *out = fl_expr_take(&c, cov);
    return fl_expr_end(&c);
}

FL_OP(corrcoef) = {
    .name = "corrcoef",
    .sig = "corrcoef(x)",
    .nout = 1,
    .doc = "Correlation coefficients of the rows of x [variables, observations].",
    .body = body_corrcoef,
    FL_SAMPLES("flow.randn(3, 6)", "flow.randn(6)"),
};

/* ---- renorm ---- */

enum { RENORM_P, RENORM_AXIS, RENORM_MOST };

static fl_status body_renorm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[0].tensor;
    double most = attrs->at[RENORM_MOST].number;
    int axis, ndim = x->meta->shape.ndim;
    FL_TRY(own_axis(&axis, "renorm", &attrs->at[RENORM_AXIS], x));
    if (ndim < 2) return fl_fail(FL_ERR_SHAPE, "renorm: x must have at least two axes");
    if (most < 0) return fl_fail(FL_ERR_VALUE, "renorm: maxnorm must be 0 or more, got %g", most);
    fl_attrs a;
    int64_t others[FL_MAX_NDIM];
    int count = 0;
    for (int i = 0; i < ndim; i++)
        if (i != axis) others[count++] = i;
    fl_attrs_init(&a, FL_OP_REF(norm));
    fl_attr_set_number(&a, FL_NORM_P, attrs->at[RENORM_P].number);
    fl_attr_set_list(&a, FL_NORM_AXIS, others, count);
    fl_attr_set(&a, FL_NORM_KEEPDIM, true);
    fl_tensor *norm = EXPR_CALL(&c, &a, norm, fl_of(expr_widen(&c, x)));
    fl_tensor *over = EXPR_CALL(&c, NULL, gt, fl_of(norm), fl_of_number(most));
    fl_tensor *share = EXPR_CALL(&c, NULL, div, fl_of_number(most), fl_of(expr_add_number(&c, norm, 1e-7)));
    fl_tensor *scale = EXPR_CALL(&c, NULL, where, fl_of(over), fl_of(share), fl_of_number(1));
    *out = fl_expr_take(&c, expr_cast(&c, expr_mul(&c, x, scale), x->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(renorm) = {
    .name = "renorm",
    .sig = "renorm(x, p: float, axis: axis, maxnorm: float)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE,
    .doc = "x with each of its slices along an axis made shorter, where its p-norm is above maxnorm.",
    .body = body_renorm,
    FL_SAMPLES("flow.randn(3, 4), 2, 0, 1", "flow.randn(2, 3, 4), 1, -1, 5"),
};
