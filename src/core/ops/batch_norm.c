/*
** batch_norm.c -- normalisation of channels: batch_norm, instance_norm, group_norm, and rms_norm of rows.
**
** x [n, channels, ...]: elements normalised together have mean 0 and variance 1. The statistics are reductions, which
** are right however x is split over ranks; everything is computed in float32 where x has 16 bits.
*/
#include "reduce.h"

#include <float.h>

enum { NORM_X, NORM_RUNNING_MEAN, NORM_RUNNING_VAR, NORM_WEIGHT, NORM_BIAS };
enum { NORM_TRAINING, NORM_MOMENTUM, NORM_EPS };

/* ---- parts ---- */

/* [1, channels, 1, ...], to broadcast over x. */
static fl_tensor *expr_per_channel(fl_expr *expr, fl_tensor *value, int ndim)
{
    if (expr->status != FL_OK || !value) return NULL;
    fl_shape shape = {ndim, {0}};
    for (int i = 0; i < ndim; i++) shape.dims[i] = i == 1 ? fl_shape_numel(&value->meta->shape) : 1;
    return expr_reshape(expr, value, &shape);
}

/* The biased variance over the axes of the mask, which stay as axes of size 1. */
static fl_tensor *expr_variance(fl_expr *expr, fl_tensor *x, uint32_t axes)
{
    enum { VAR_CORRECTION = 1, VAR_KEEPDIM };
    int64_t list[FL_MAX_NDIM];
    int count = 0;
    fl_attrs a;
    for (int i = 0; i < FL_MAX_NDIM; i++)
        if (axes >> i & 1u) list[count++] = i;
    fl_attrs_init(&a, FL_OP_REF(var));
    fl_attr_set_list(&a, FL_REDUCE_AXIS, list, count);
    fl_attr_set(&a, VAR_CORRECTION, 0);
    fl_attr_set(&a, VAR_KEEPDIM, true);
    return EXPR_CALL(expr, &a, var, fl_of(x));
}

static fl_tensor *expr_inverse_deviation(fl_expr *expr, fl_tensor *variance, double eps)
{
    return EXPR_CALL(expr, NULL, rsqrt, fl_of(expr_add_number(expr, variance, eps)));
}

/* (x - mean) * scale + shift; scale and shift may be absent. */
static fl_tensor *expr_scaled(fl_expr *expr, fl_tensor *x, fl_tensor *mean, fl_tensor *scale, fl_tensor *shift)
{
    fl_tensor *y = expr_mul(expr, expr_sub(expr, x, mean), scale);
    return shift ? expr_add(expr, y, shift) : y;
}

/* The same as x * scale + (shift - mean * scale), which passes over x once less; less exact where the mean is much
** larger than the deviation. */
static fl_tensor *expr_scaled_once(fl_expr *expr, fl_tensor *x, fl_tensor *mean, fl_tensor *scale, fl_tensor *shift)
{
    fl_tensor *away = expr_neg(expr, expr_mul(expr, mean, scale));
    return expr_add(expr, expr_mul(expr, x, scale), shift ? expr_add(expr, shift, away) : away);
}

static fl_status check_values(const char *who, const char *name, const fl_operand *value, int64_t count)
{
    char text[FL_META_TEXT];
    if (value->kind != FL_TENSOR) return FL_OK;
    const fl_meta *m = value->tensor->meta;
    if (m->shape.ndim == 1 && m->shape.dims[0] == count && fl_dtype_is_float(m->dtype)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: %s must be a float tensor [%lld], got %s", who, name, (long long)count,
                   fl_meta_text(text, m));
}

/* x is a float tensor with channels; least: axes that it has at least. */
static fl_status check_x(const char *who, const fl_tensor *x, int least)
{
    char text[FL_META_TEXT];
    FL_TRY(fl_require_float_tensor(who, "x", x));
    if (x->meta->shape.ndim >= least) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: takes x [n, channels%s], got %s", who, least > 2 ? ", size" : ", ...",
                   fl_meta_text(text, x->meta));
}

static fl_status check_operands(const char *who, const fl_operand *in, int least)
{
    static const char *const names[] = {"x", "running_mean", "running_var", "weight", "bias"};
    FL_TRY(check_x(who, in[NORM_X].tensor, least));
    for (int i = NORM_RUNNING_MEAN; i <= NORM_BIAS; i++)
        FL_TRY(check_values(who, names[i], &in[i], in[NORM_X].tensor->meta->shape.dims[1]));
    return FL_OK;
}

/* ---- running statistics ---- */

/* running = running + momentum * (now - running), without a record. */
static fl_status update(fl_tensor *running, fl_tensor *now, double momentum)
{
    fl_tensor *mixed, *same;
    const fl_operand in[] = {fl_of(running), fl_of(now), fl_of_number(momentum)};
    FL_TRY(fl_dispatch_unrecorded(&mixed, FL_OP_REF(lerp), in, 3));
    const fl_operand copy[] = {fl_of(running), fl_of(mixed)};
    fl_status status = fl_dispatch_unrecorded(&same, FL_OP_REF(copy_), copy, 2);
    if (status == FL_OK) fl_tensor_unref(same);
    fl_tensor_unref(mixed);
    return status;
}

/* mean and variance: [1, channels, 1, ...] or one for each instance; count: elements of each. */
static void update_running(fl_expr *expr, const fl_operand *in, fl_tensor *mean, fl_tensor *variance, double count,
                           double momentum)
{
    fl_tensor *of[] = {mean, variance};
    for (int i = 0; i < 2 && expr->status == FL_OK; i++) {
        if (in[NORM_RUNNING_MEAN + i].kind != FL_TENSOR) continue;
        fl_tensor *running = in[NORM_RUNNING_MEAN + i].tensor, *now = of[i];
        if (now->meta->shape.dims[0] != 1) now = expr_mean(expr, now, 1u, true);
        if (i == 1) now = expr_mul_number(expr, now, count / (count - 1));
        now = expr_cast(expr, expr_reshape(expr, now, &running->meta->shape), running->meta->dtype);
        if (expr->status == FL_OK) expr->status = update(running, now, momentum);
    }
}

/* ---- batch_norm, instance_norm ---- */

/* With statistics over the axes of the mask; 0: with the running ones. */
static fl_status normalise(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs, uint32_t axes)
{
    fl_expr c = {0};
    fl_tensor *x = expr_widen(&c, in[NORM_X].tensor), *mean, *variance;
    int ndim = in[NORM_X].tensor->meta->shape.ndim;
    fl_tensor *weight = in[NORM_WEIGHT].kind == FL_TENSOR ? in[NORM_WEIGHT].tensor : NULL,
              *bias = in[NORM_BIAS].kind == FL_TENSOR ? in[NORM_BIAS].tensor : NULL;
    if (axes) {
        mean = expr_mean(&c, x, axes, true);
        variance = expr_variance(&c, x, axes);
        double count = (double)fl_reduce_count(&in[NORM_X].tensor->meta->shape, axes);
        update_running(&c, in, mean, variance, count, attrs->at[NORM_MOMENTUM].number);
    } else {
        mean = expr_per_channel(&c, in[NORM_RUNNING_MEAN].tensor, ndim);
        variance = expr_per_channel(&c, in[NORM_RUNNING_VAR].tensor, ndim);
    }
    fl_tensor *scale = expr_inverse_deviation(&c, variance, attrs->at[NORM_EPS].number);
    if (weight) scale = expr_mul(&c, scale, expr_per_channel(&c, weight, ndim));
    fl_tensor *shift = expr_per_channel(&c, bias, ndim);
    fl_tensor *y = axes ? expr_scaled(&c, x, mean, scale, shift) : expr_scaled_once(&c, x, mean, scale, shift);
    *out = fl_expr_take(&c, expr_cast(&c, y, in[NORM_X].tensor->meta->dtype));
    return fl_expr_end(&c);
}

static fl_status check_running(const char *who, const fl_operand *in)
{
    if (in[NORM_RUNNING_MEAN].kind == FL_TENSOR && in[NORM_RUNNING_VAR].kind == FL_TENSOR) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: without statistics of x it needs running_mean and running_var", who);
}

static fl_status body_batch_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_SHAPE_TEXT];
    FL_TRY(check_operands("batch_norm", in, 2));
    const fl_shape *shape = &in[NORM_X].tensor->meta->shape;
    uint32_t axes = ((1u << shape->ndim) - 1) & ~2u;
    if (!attrs->at[NORM_TRAINING].integer) {
        FL_TRY(check_running("batch_norm", in));
        return normalise(out, in, attrs, 0);
    }
    if (fl_reduce_count(shape, axes) <= 1)
        return fl_fail(FL_ERR_SHAPE, "batch_norm: in training each channel of x needs more than one value, x is %s",
                       fl_shape_text(text, shape));
    return normalise(out, in, attrs, axes);
}

static fl_status body_instance_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_SHAPE_TEXT];
    FL_TRY(check_operands("instance_norm", in, 3));
    const fl_shape *shape = &in[NORM_X].tensor->meta->shape;
    uint32_t axes = ((1u << shape->ndim) - 1) & ~3u;
    if (!attrs->at[NORM_TRAINING].integer) {
        FL_TRY(check_running("instance_norm", in));
        return normalise(out, in, attrs, 0);
    }
    if (fl_reduce_count(shape, axes) <= 1)
        return fl_fail(FL_ERR_SHAPE, "instance_norm: each channel of x needs more than one value, x is %s",
                       fl_shape_text(text, shape));
    return normalise(out, in, attrs, axes);
}

#define NORM_OPERANDS "x, running_mean?, running_var?, weight?, bias?"

FL_OP(batch_norm) = {
    .name = "batch_norm",
    .sig = "batch_norm(" NORM_OPERANDS ", training: bool = false, momentum: float = 0.1, eps: float = 1e-5)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Each channel of x [n, channels, ...] normalised: in training by its own mean and variance, which move the "
           "running ones by momentum, else by those; then times weight, plus bias.",
    .body = body_batch_norm,
    FL_SAMPLES("flow.randn(4, 3), nil, nil, flow.randn(3), flow.randn(3), true",
               "flow.randn(2, 3, 4, 2), nil, nil, flow.randn(3), nil, true",
               "flow.randn(2, 3, 4), flow.randn(3), flow.rand(3) + 0.5, flow.randn(3), flow.randn(3)"),
};

FL_OP(instance_norm) = {
    .name = "instance_norm",
    .sig = "instance_norm(" NORM_OPERANDS ", use_input_stats: bool = true, momentum: float = 0.1, eps: float = 1e-5)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Each channel of each instance of x [n, channels, ...] normalised by its own mean and variance (or by the "
           "running ones), times weight, plus bias.",
    .body = body_instance_norm,
    FL_SAMPLES("flow.randn(2, 3, 5), nil, nil, flow.randn(3), flow.randn(3)", "flow.randn(2, 3, 4, 2)",
               "flow.randn(2, 3, 4), flow.randn(3), flow.rand(3) + 0.5, flow.randn(3), flow.randn(3), false"),
};

/* ---- group_norm ---- */

enum { GROUP_X, GROUP_WEIGHT, GROUP_BIAS };
enum { GROUP_COUNT, GROUP_EPS };

static fl_status check_groups(const fl_operand *in, int64_t groups)
{
    char text[FL_SHAPE_TEXT];
    FL_TRY(check_x("group_norm", in[GROUP_X].tensor, 2));
    const fl_shape *shape = &in[GROUP_X].tensor->meta->shape;
    if (groups < 1 || shape->dims[1] % groups != 0)
        return fl_fail(FL_ERR_SHAPE, "group_norm: the channels of x %s cannot be divided into %lld groups",
                       fl_shape_text(text, shape), (long long)groups);
    FL_TRY(check_values("group_norm", "weight", &in[GROUP_WEIGHT], shape->dims[1]));
    return check_values("group_norm", "bias", &in[GROUP_BIAS], shape->dims[1]);
}

/* [1, groups, channels of one, 1], to broadcast over x [n, groups, channels of one, size]. */
static fl_tensor *expr_per_member(fl_expr *expr, const fl_operand *value, const fl_shape *grouped)
{
    fl_shape shape = {4, {1, grouped->dims[1], grouped->dims[2], 1}};
    return value->kind == FL_TENSOR ? expr_reshape(expr, value->tensor, &shape) : NULL;
}

static fl_status body_group_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    int64_t groups = attrs->at[GROUP_COUNT].integer;
    const uint32_t axes = 1u << 2 | 1u << 3;
    FL_TRY(check_groups(in, groups));
    const fl_shape *shape = &in[GROUP_X].tensor->meta->shape;
    fl_shape grouped = {4, {shape->dims[0], groups, shape->dims[1] / groups, 1}};
    for (int i = 2; i < shape->ndim; i++) grouped.dims[3] *= shape->dims[i];
    fl_tensor *x = expr_reshape(&c, expr_widen(&c, in[GROUP_X].tensor), &grouped);
    fl_tensor *mean = expr_mean(&c, x, axes, true);
    fl_tensor *scale = expr_inverse_deviation(&c, expr_variance(&c, x, axes), attrs->at[GROUP_EPS].number);
    fl_tensor *weight = expr_per_member(&c, &in[GROUP_WEIGHT], &grouped),
              *bias = expr_per_member(&c, &in[GROUP_BIAS], &grouped);
    if (weight) scale = expr_mul(&c, scale, weight);
    fl_tensor *shift = expr_neg(&c, expr_mul(&c, mean, scale)); /* small, so that x is passed over once less */
    if (bias) shift = expr_add(&c, shift, bias);
    fl_tensor *y = expr_reshape(&c, expr_add(&c, expr_mul(&c, x, scale), shift), shape);
    *out = fl_expr_take(&c, expr_cast(&c, y, in[GROUP_X].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(group_norm) = {
    .name = "group_norm",
    .sig = "group_norm(x, num_groups: int, weight?, bias?, eps: float = 1e-5)",
    .nout = 1,
    .flags = FL_OP_WIDE | FL_OP_FUNCTION_ONLY,
    .doc = "The channels of x [n, channels, ...] in groups, each group normalised by its own mean and variance; times "
           "weight, plus bias of each channel.",
    .body = body_group_norm,
    FL_SAMPLES("flow.randn(2, 4, 3), 2, flow.randn(4), flow.randn(4)", "flow.randn(2, 6, 2, 3), 3",
               "flow.randn(3, 4), 2, flow.randn(4)"),
};

/* ---- rms_norm ---- */

enum { RMS_X, RMS_WEIGHT };
enum { RMS_SIZES, RMS_EPS };

static fl_status check_rows(const fl_operand *in, const fl_attr *sizes)
{
    char text[FL_SHAPE_TEXT], want[FL_SHAPE_TEXT];
    const fl_shape *x = &in[RMS_X].tensor->meta->shape;
    fl_shape row = {sizes->count, {0}};
    for (int i = 0; i < sizes->count; i++) row.dims[i] = sizes->list[i];
    FL_TRY(check_x("rms_norm", in[RMS_X].tensor, 0));
    int leading = x->ndim - row.ndim;
    if (row.ndim == 0 || leading < 0 || memcmp(x->dims + leading, row.dims, sizeof(int64_t) * (size_t)row.ndim) != 0)
        return fl_fail(FL_ERR_SHAPE, "rms_norm: the last sizes of x must be %s, x is %s", fl_shape_text(want, &row),
                       fl_shape_text(text, x));
    if (in[RMS_WEIGHT].kind != FL_TENSOR || fl_shape_equal(&in[RMS_WEIGHT].tensor->meta->shape, &row)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "rms_norm: weight must be %s, got %s", fl_shape_text(want, &row),
                   fl_shape_text(text, &in[RMS_WEIGHT].tensor->meta->shape));
}

/* Without eps: the distance from 1 to the next number of the dtype that is computed in. */
static fl_status body_rms_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(check_rows(in, &attrs->at[RMS_SIZES]));
    int ndim = in[RMS_X].tensor->meta->shape.ndim, leading = ndim - attrs->at[RMS_SIZES].count;
    fl_tensor *x = expr_widen(&c, in[RMS_X].tensor);
    double least = in[RMS_X].tensor->meta->dtype == FL_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
    double eps = attrs->at[RMS_EPS].given ? attrs->at[RMS_EPS].number : least;
    fl_tensor *squares = expr_mean(&c, expr_mul(&c, x, x), (1u << ndim) - (1u << leading), true);
    fl_tensor *y = expr_mul(&c, x, expr_inverse_deviation(&c, squares, eps));
    if (in[RMS_WEIGHT].kind == FL_TENSOR) y = expr_mul(&c, y, in[RMS_WEIGHT].tensor);
    *out = fl_expr_take(&c, expr_cast(&c, y, in[RMS_X].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(rms_norm) = {
    .name = "rms_norm",
    .sig = "rms_norm(x, sizes: sizes, weight?, eps: float = nil)",
    .nout = 1,
    .flags = FL_OP_WIDE,
    .doc = "x divided by the root of the mean square over its last axes (of these sizes), times weight.",
    .body = body_rms_norm,
    FL_SAMPLES("flow.randn(3, 5), 5, flow.randn(5)", "flow.randn(2, 3, 4), {3, 4}", "flow.randn(6), {6}, nil, 0.1"),
};

/* ---- local_response_norm ---- */

enum { RESPONSE_SIZE, RESPONSE_ALPHA, RESPONSE_BETA, RESPONSE_K };

/* The mean square over `size` neighbouring channels, with zeros around them. */
static fl_tensor *expr_neighbours(fl_expr *expr, fl_tensor *x, int64_t size)
{
    enum { POOL_KERNEL, POOL_STRIDE };
    const fl_shape *shape = &x->meta->shape;
    const int64_t window[] = {size, 1}, step[] = {1, 1};
    fl_shape lines = {4, {shape->dims[0], 1, shape->dims[1], 1}};
    fl_attrs a;
    for (int i = 2; i < shape->ndim; i++) lines.dims[3] *= shape->dims[i];
    fl_tensor *squares = expr_reshape(expr, expr_mul(expr, x, x), &lines);
    squares = expr_set_in_zeros(expr, squares, 2, size / 2, shape->dims[1] + size - 1);
    fl_attrs_init(&a, FL_OP_REF(avg_pool2d));
    fl_attr_set_list(&a, POOL_KERNEL, window, 2);
    fl_attr_set_list(&a, POOL_STRIDE, step, 2);
    return expr_reshape(expr, EXPR_CALL(expr, &a, avg_pool2d, fl_of(squares)), shape);
}

static fl_status body_local_response_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    int64_t size = attrs->at[RESPONSE_SIZE].integer;
    double alpha = attrs->at[RESPONSE_ALPHA].number, beta = attrs->at[RESPONSE_BETA].number,
           k = attrs->at[RESPONSE_K].number;
    FL_TRY(check_x("local_response_norm", in[0].tensor, 3));
    if (size < 1 || size > INT32_MAX)
        return fl_fail(FL_ERR_VALUE, "local_response_norm: size must be 1 or more, got %lld", (long long)size);
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    if (in[0].tensor->meta->numel == 0) {
        *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, clone, in[0]));
        return fl_expr_end(&c);
    }
    fl_tensor *base = expr_add_number(&c, expr_mul_number(&c, expr_neighbours(&c, x, size), alpha), k);
    fl_tensor *y = expr_div(&c, x, EXPR_CALL(&c, NULL, pow, fl_of(base), fl_of_number(beta)));
    *out = fl_expr_take(&c, expr_cast(&c, y, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(local_response_norm) = {
    .name = "local_response_norm",
    .sig = "local_response_norm(x, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "x / (k + alpha * m)^beta, where m is the mean square over `size` neighbouring channels, with zeros around.",
    .body = body_local_response_norm,
    FL_SAMPLES("flow.randn(2, 4, 3), 3, 0.5", "flow.randn(2, 3, 2, 2), 2"),
};
