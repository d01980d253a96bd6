/*
** pad.c -- pad: elements put around x along any of its last axes.
*/
#include "op/views.h"
#include "resample.h"

enum { PAD_SIZES, PAD_MODE, PAD_VALUE };
enum { MODE_CONSTANT, MODE_REFLECT, MODE_REPLICATE, MODE_CIRCULAR };

/* ---- checks ---- */

static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};

static fl_status check_axis(const fl_shape *x, int axis, int64_t before, int64_t after, int64_t mode)
{
    char text[FL_SHAPE_TEXT];
    int64_t n = x->dims[axis], size;
    if (__builtin_add_overflow(n, before, &size) || __builtin_add_overflow(size, after, &size) || size < 0)
        return fl_fail(FL_ERR_VALUE, "pad: padding %lld and %lld leaves nothing of axis %d of x %s", (long long)before,
                       (long long)after, axis, fl_shape_text(text, x));
    int64_t most = before > after ? before : after;
    if ((mode == MODE_REFLECT && most >= n && most > 0) || (mode == MODE_CIRCULAR && most > n)
        || (mode == MODE_REPLICATE && n == 0 && most > 0))
        return fl_fail(FL_ERR_VALUE, "pad: %s padding must be %s size %lld of axis %d of x %s, got %lld and %lld",
                       modes[mode], mode == MODE_REFLECT ? "less than" : "at most", (long long)n, axis,
                       fl_shape_text(text, x), (long long)before, (long long)after);
    return FL_OK;
}

static fl_status check_pad(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_SHAPE_TEXT];
    const fl_attr *pad = &attrs->at[PAD_SIZES];
    const fl_shape *x = &in[0].tensor->meta->shape;
    if (pad->count % 2 != 0 || pad->count / 2 > x->ndim)
        return fl_fail(FL_ERR_VALUE,
                       "pad: takes two numbers for each axis, the last axis first, at most %d for x %s, got %d",
                       2 * x->ndim, fl_shape_text(text, x), pad->count);
    for (int i = 0; i < pad->count / 2; i++)
        FL_TRY(check_axis(x, x->ndim - 1 - i, pad->list[2 * i], pad->list[2 * i + 1], attrs->at[PAD_MODE].integer));
    if (attrs->at[PAD_MODE].integer == MODE_CONSTANT)
        return fl_require_attr_fits("pad", in[0].tensor->meta->dtype, &attrs->at[PAD_VALUE]);
    fl_dtype dtype = in[0].tensor->meta->dtype;
    if (attrs->at[PAD_MODE].integer == MODE_CIRCULAR || fl_dtype_is_float(dtype)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "pad: takes a float tensor with mode %s, x is %s; write x:to(\"float32\")",
                   modes[attrs->at[PAD_MODE].integer], fl_dtype_name(dtype));
}

/* ---- one axis ---- */

/* x and its last elements before, its first ones after it. */
static fl_tensor *expr_circular(fl_expr *expr, fl_tensor *x, int axis, int64_t before, int64_t after)
{
    enum { CAT_AXIS };
    fl_attrs a;
    int count = 0;
    fl_operand parts[3];
    int64_t n = x->meta->shape.dims[axis];
    if (before > 0) parts[count++] = fl_of(expr_narrowed(expr, x, axis, n - before, before));
    parts[count++] = fl_of(x);
    if (after > 0) parts[count++] = fl_of(expr_narrowed(expr, x, axis, 0, after));
    if (expr->status != FL_OK || count == 1) return x;
    fl_attrs_init(&a, FL_OP_REF(cat));
    fl_attr_set(&a, CAT_AXIS, axis);
    return fl_expr_call(expr, FL_OP_REF(cat), parts, count, &a);
}

static fl_tensor *expr_padded_axis(fl_expr *expr, fl_tensor *x, int axis, int64_t before, int64_t after, int64_t mode)
{
    if (expr->status != FL_OK || (before == 0 && after == 0)) return x;
    int64_t n = x->meta->shape.dims[axis], cut = before < 0 ? -before : 0, end = after < 0 ? n + after : n;
    if (cut > 0 || end < n) x = expr_narrowed(expr, x, axis, cut, end > cut ? end - cut : 0);
    if (before < 0) before = 0;
    if (after < 0) after = 0;
    if (expr->status != FL_OK || (before == 0 && after == 0)) return x;
    int64_t size = x->meta->shape.dims[axis] + before + after;
    if (mode == MODE_CONSTANT) return expr_set_in_zeros(expr, x, axis, before, size);
    if (mode == MODE_CIRCULAR) return expr_circular(expr, x, axis, before, after);
    return expr_resample(expr, x, axis, size, mode == MODE_REFLECT ? FL_RESAMPLE_REFLECT : FL_RESAMPLE_REPLICATE, 1,
                         before);
}

static fl_tensor *expr_padded(fl_expr *expr, fl_tensor *x, const fl_attr *pad, int64_t mode)
{
    for (int i = 0; i < pad->count / 2; i++) {
        int axis = expr->status == FL_OK ? x->meta->shape.ndim - 1 - i : 0;
        x = expr_padded_axis(expr, x, axis, pad->list[2 * i], pad->list[2 * i + 1], mode);
    }
    return x;
}

/* The zeros around x become another value. */
static fl_tensor *expr_filled(fl_expr *expr, fl_tensor *padded, fl_tensor *x, const fl_attr *pad, const fl_attr *value)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(ones_like));
    a.has_dtype = true;
    a.option_dtype = FL_BOOL;
    fl_tensor *ones = EXPR_CALL(expr, &a, ones_like, fl_of(x));
    fl_tensor *inside = expr_padded(expr, ones, pad, MODE_CONSTANT);
    fl_operand number = value->kind == FL_NUM_FLOAT ? fl_of_number(value->number) : fl_of_integer(value->integer);
    fl_tensor *outside = EXPR_CALL(expr, NULL, logical_not, fl_of(inside));
    return EXPR_CALL(expr, NULL, masked_fill, fl_of(padded), fl_of(outside), number);
}

static fl_status body_pad(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_attr *pad = &attrs->at[PAD_SIZES], *value = &attrs->at[PAD_VALUE];
    int64_t mode = attrs->at[PAD_MODE].integer;
    FL_TRY(check_pad(in, nin, attrs));
    fl_tensor *x = in[0].tensor, *y = expr_padded(&c, x, pad, mode);
    if (mode == MODE_CONSTANT && fl_attr_number(value) != 0 && y && y->meta->numel > 0)
        y = expr_filled(&c, y, x, pad, value);
    if (y == x) y = EXPR_CALL(&c, NULL, clone, fl_of(x));
    *out = fl_expr_take(&c, y);
    return fl_expr_end(&c);
}

FL_OP(pad) = {
    .name = "pad",
    .sig = "pad(x, pad: ints, mode: constant|reflect|replicate|circular = constant, value: scalar = 0)",
    .nout = 1,
    .doc = "x with elements before and after it, two numbers for each axis, the last axis first: a value, elements "
           "mirrored at the edge, the edge itself, or elements from the other end; negative numbers cut.",
    .body = body_pad,
    FL_SAMPLES("flow.randn(3, 4), {1, 2}", "flow.randn(2, 3, 4), {2, 1, 0, 2}, 'reflect'",
               "flow.randn(3, 4), {1, 2, 3, 1}, 'replicate'", "flow.randn(3, 4), {1, 2, -1, 0}, 'circular'",
               "flow.randn(3, 4), {-1, 2}, {value = 2.5}", "flow.randn(3), {-1, -1}"),
};
