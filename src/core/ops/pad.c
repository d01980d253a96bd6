/*
** pad.c -- pad: elements put around x along any of its last axes, all axes at once; on devices those that are not a
** constant axis by axis.
*/
#include "op/views.h"
#include "cpu/pad.h"
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

/* ---- a constant around x ---- */

enum { CONSTANT_SIZES, CONSTANT_VALUE };

static fl_status infer_constant(fl_infer *infer)
{
    const fl_attr *pad = &infer->attrs->at[CONSTANT_SIZES];
    fl_shape shape = infer->in[0].shape;
    if (pad->count % 2 != 0 || pad->count / 2 > shape.ndim)
        return fl_infer_fail(infer, FL_ERR_VALUE, "takes two numbers for each axis, got %d for %d axes", pad->count,
                             shape.ndim);
    for (int i = 0; i < pad->count; i++) {
        int64_t *size = &shape.dims[shape.ndim - 1 - i / 2];
        if (pad->list[i] < 0 || __builtin_add_overflow(*size, pad->list[i], size))
            return fl_infer_fail(infer, FL_ERR_VALUE, "cannot add %lld positions to an axis", (long long)pad->list[i]);
    }
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, shape.dims, shape.ndim);
}

/* Axes that do not grow may be split. Zeros around the values are neutral for a sum. */
static void sbp_constant(fl_sigs *sigs)
{
    const fl_attr *pad = &sigs->attrs->at[CONSTANT_SIZES];
    uint32_t grown = 0;
    for (int i = 0; i < pad->count; i++)
        if (pad->list[i]) grown |= 1u << (sigs->in_logical[0].ndim - 1 - i / 2);
    fl_sbp_except(sigs, grown);
    if (fl_attr_number(&sigs->attrs->at[CONSTANT_VALUE]) == 0) fl_sbp_moves(sigs, true);
}

/* The value in positions from .. from + count - 1 of an axis of the part. */
static fl_status fill_beside(const fl_view *out, const int64_t *begin, const int64_t *sizes, int axis, int64_t from,
                             int64_t count, const void *value, const fl_mover *mover)
{
    int64_t first[FL_MAX_NDIM], own[FL_MAX_NDIM];
    memcpy(first, begin, sizeof first);
    memcpy(own, sizes, sizeof own);
    first[axis] = from;
    own[axis] = count;
    fl_view part = fl_view_part(out, first, own);
    return part.numel ? mover->fill(&part, value) : FL_OK;
}

/* Nothing is written twice: the rest of `out` shrinks axis by axis to the place of x. */
fl_status fl_move_pad(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    const fl_attr *pad = &kernel->attrs->at[CONSTANT_SIZES];
    int64_t begin[FL_MAX_NDIM] = {0}, sizes[FL_MAX_NDIM] = {0}, value[1];
    fl_attr_bytes(value, out->dtype, &kernel->attrs->at[CONSTANT_VALUE]);
    memcpy(sizes, out->size, sizeof *sizes * (size_t)out->ndim);
    for (int i = pad->count / 2 - 1; i >= 0; i--) {
        int axis = out->ndim - 1 - i;
        int64_t before = pad->list[2 * i], end = before + in->size[axis];
        FL_TRY(fill_beside(out, begin, sizes, axis, 0, before, value, mover));
        FL_TRY(fill_beside(out, begin, sizes, axis, end, out->size[axis] - end, value, mover));
        begin[axis] = before;
        sizes[axis] = in->size[axis];
    }
    fl_view inside = fl_view_part(out, begin, sizes);
    return in->numel ? mover->copy(&inside, in) : FL_OK;
}

/* before[a]: of axis a. */
static void padding_before(int64_t *before, const fl_attr *pad, int ndim)
{
    memset(before, 0, sizeof *before * FL_MAX_NDIM);
    for (int i = 0; i < pad->count / 2; i++) before[ndim - 1 - i] = pad->list[2 * i];
}

/* Long rows are copied and filled as blocks. */
static fl_status kernel_constant(fl_kernel *kernel)
{
    enum { LONG_ROW = 2048 }; /* bytes */
    const fl_view *out = &kernel->out[0];
    int64_t before[FL_MAX_NDIM], value[1];
    bool is_long = out->ndim == 0 || out->size[out->ndim - 1] * (int64_t)fl_dtype_size(out->dtype) >= LONG_ROW;
    if (is_long || !out->contiguous) return fl_move_pad(kernel, &fl_cpu_mover);
    padding_before(before, &kernel->attrs->at[CONSTANT_SIZES], out->ndim);
    fl_attr_bytes(value, out->dtype, &kernel->attrs->at[CONSTANT_VALUE]);
    return fl_cpu_pad(out, &kernel->in[0], before, FL_PAD_VALUE, value);
}

/* The part of the gradient that lies where x does. */
static fl_status grad_constant(fl_grad *g)
{
    fl_expr c = {0};
    const fl_attr *pad = &g->attrs->at[CONSTANT_SIZES];
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_tensor *inside = g->gout[0];
    for (int i = 0; i < pad->count / 2; i++) {
        int axis = x->ndim - 1 - i;
        if (pad->list[2 * i] || pad->list[2 * i + 1])
            inside = expr_narrowed(&c, inside, axis, pad->list[2 * i], x->dims[axis]);
    }
    g->gin[0] = fl_expr_take(&c, inside);
    return fl_expr_end(&c);
}

FL_OP(pad_constant) = {
    .name = "pad_constant",
    .sig = "pad_constant(x, pad: ints, value: scalar = 0)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "x with a value before and after it, two numbers for each axis, the last axis first.",
    .infer = infer_constant,
    .sbp = sbp_constant,
    .cpu = kernel_constant,
    .grad = grad_constant,
    FL_SAMPLES("flow.randn(3, 4), {1, 2}", "flow.randn(2, 3, 4), {2, 1, 0, 2}, -1.5",
               "flow.randn(2, 3, 4), {0, 0, 1, 1}", "flow.randn(2, 0), {0, 1, 1, 0}"),
};

/* ---- elements of x around it, on the host: all axes at once ---- */

enum { EDGES_SIZES, EDGES_MODE };

static fl_status infer_edges(fl_infer *infer)
{
    const fl_attr *pad = &infer->attrs->at[EDGES_SIZES];
    int64_t mode = infer->attrs->at[EDGES_MODE].integer;
    FL_TRY(infer_constant(infer));
    if (mode < MODE_REFLECT || mode > MODE_CIRCULAR)
        return fl_infer_fail(infer, FL_ERR_VALUE, "there is no mode %lld", (long long)mode);
    for (int i = 0; i < pad->count / 2; i++)
        FL_TRY(check_axis(&infer->in[0].shape, infer->in[0].shape.ndim - 1 - i, pad->list[2 * i], pad->list[2 * i + 1],
                          mode));
    return FL_OK;
}

/* Axes that do not grow may be split; values are only moved. */
static void sbp_edges(fl_sigs *sigs)
{
    const fl_attr *pad = &sigs->attrs->at[EDGES_SIZES];
    uint32_t grown = 0;
    for (int i = 0; i < pad->count; i++)
        if (pad->list[i]) grown |= 1u << (sigs->in_logical[0].ndim - 1 - i / 2);
    fl_sbp_except(sigs, grown);
    fl_sbp_moves(sigs, false);
}

static fl_status kernel_edges(fl_kernel *kernel)
{
    static const fl_pad_rule rules[] = {FL_PAD_VALUE, FL_PAD_REFLECT, FL_PAD_REPLICATE, FL_PAD_CIRCULAR};
    int64_t before[FL_MAX_NDIM];
    padding_before(before, &kernel->attrs->at[EDGES_SIZES], kernel->out[0].ndim);
    return fl_cpu_pad(&kernel->out[0], &kernel->in[0], before, rules[kernel->attrs->at[EDGES_MODE].integer], NULL);
}

/* The transpose along an axis that has n elements without its padding. */
static fl_tensor *expr_circular_back(fl_expr *expr, fl_tensor *g, int axis, int64_t n, int64_t before, int64_t after)
{
    fl_tensor *sum = expr_narrowed(expr, g, axis, before, n);
    if (before)
        sum = expr_add(expr, sum,
                       expr_set_in_zeros(expr, expr_narrowed(expr, g, axis, 0, before), axis, n - before, n));
    if (after)
        sum = expr_add(expr, sum, expr_set_in_zeros(expr, expr_narrowed(expr, g, axis, before + n, after), axis, 0, n));
    return sum;
}

static fl_tensor *expr_mirrored_back(fl_expr *expr, fl_tensor *g, int axis, int64_t n, int64_t before, int64_t mode)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(resample_back));
    fl_attr_set(&a, FL_RESAMPLE_AXIS, axis);
    fl_attr_set(&a, FL_RESAMPLE_SIZE, g->meta->shape.dims[axis]);
    fl_attr_set(&a, FL_RESAMPLE_RULE, mode == MODE_REFLECT ? FL_RESAMPLE_REFLECT : FL_RESAMPLE_REPLICATE);
    fl_attr_set_number(&a, FL_RESAMPLE_SCALE, 1);
    fl_attr_set(&a, FL_RESAMPLE_BEFORE, before);
    fl_attr_set(&a, FL_RESAMPLE_LENGTH, n);
    return EXPR_CALL(expr, &a, resample_back, fl_of(g));
}

/* Every element has the sum of the gradients of its copies, axis by axis. */
static fl_status grad_edges(fl_grad *g)
{
    fl_expr c = {0};
    const fl_attr *pad = &g->attrs->at[EDGES_SIZES];
    const fl_shape *x = &g->in_meta[0]->shape;
    int64_t mode = g->attrs->at[EDGES_MODE].integer;
    fl_tensor *sum = g->gout[0];
    for (int i = 0; i < pad->count / 2; i++) {
        int axis = x->ndim - 1 - i;
        int64_t before = pad->list[2 * i], after = pad->list[2 * i + 1], n = x->dims[axis];
        if (before == 0 && after == 0) continue;
        sum = mode == MODE_CIRCULAR ? expr_circular_back(&c, sum, axis, n, before, after)
                                    : expr_mirrored_back(&c, sum, axis, n, before, mode);
    }
    g->gin[0] = fl_expr_take(&c, sum);
    return fl_expr_end(&c);
}

FL_OP(pad_edges) = {
    .name = "pad_edges",
    .sig = "pad_edges(x, pad: ints, mode: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY,
    .doc = "x with elements of its own before and after it, two numbers for each axis, the last axis first.",
    .infer = infer_edges,
    .sbp = sbp_edges,
    .cpu = kernel_edges,
    .grad = grad_edges,
    FL_SAMPLES("flow.randn(3, 4), {1, 2}, 1", "flow.randn(2, 3, 4), {2, 1, 0, 2}, 2",
               "flow.randn(2, 3, 4), {4, 1, 1, 3}, 3", "flow.randn(2, 3, 4), {0, 0, 2, 1}, 1"),
};

/* ---- the same on devices: one axis ---- */

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

/* The part of the axis that negative padding keeps. */
static fl_tensor *expr_cut(fl_expr *expr, fl_tensor *x, int axis, int64_t before, int64_t after)
{
    if (expr->status != FL_OK || (before >= 0 && after >= 0)) return x;
    int64_t n = x->meta->shape.dims[axis], cut = before < 0 ? -before : 0, end = after < 0 ? n + after : n;
    return expr_narrowed(expr, x, axis, cut, end > cut ? end - cut : 0);
}

static fl_tensor *expr_padded_axis(fl_expr *expr, fl_tensor *x, int axis, int64_t before, int64_t after, int64_t mode)
{
    x = expr_cut(expr, x, axis, before, after);
    if (before < 0) before = 0;
    if (after < 0) after = 0;
    if (expr->status != FL_OK || (before == 0 && after == 0)) return x;
    if (mode == MODE_CIRCULAR) return expr_circular(expr, x, axis, before, after);
    int64_t size = x->meta->shape.dims[axis] + before + after;
    return expr_resample(expr, x, axis, size, mode == MODE_REFLECT ? FL_RESAMPLE_REFLECT : FL_RESAMPLE_REPLICATE, 1,
                         before);
}

static fl_tensor *expr_padded_axes(fl_expr *expr, fl_tensor *x, const fl_attr *pad, int64_t mode)
{
    for (int i = 0; i < pad->count / 2; i++) {
        int axis = expr->status == FL_OK ? x->meta->shape.ndim - 1 - i : 0;
        x = expr_padded_axis(expr, x, axis, pad->list[2 * i], pad->list[2 * i + 1], mode);
    }
    return x;
}

/* ---- pad ---- */

/* Cuts x where padding is negative. sizes: the padding left to be added; *any: true if that is not 0. */
static fl_tensor *expr_cut_axes(fl_expr *expr, int64_t *sizes, bool *any, fl_tensor *x, const fl_attr *pad)
{
    *any = false;
    for (int i = 0; i < pad->count / 2 && expr->status == FL_OK; i++)
        x = expr_cut(expr, x, x->meta->shape.ndim - 1 - i, pad->list[2 * i], pad->list[2 * i + 1]);
    for (int i = 0; i < pad->count; i++) {
        sizes[i] = pad->list[i] > 0 ? pad->list[i] : 0;
        *any |= sizes[i] > 0;
    }
    return x;
}

static fl_tensor *expr_edges(fl_expr *expr, fl_tensor *x, const fl_attr *pad, int64_t mode)
{
    int64_t sizes[2 * FL_MAX_NDIM];
    bool any;
    fl_attrs a;
    fl_device_type device = x->meta->placement->type;
    /* local tensors without values are those of a program that is traced, for any device */
    if (device == FL_CUDA || (device == FL_META && x->meta->is_local)) return expr_padded_axes(expr, x, pad, mode);
    x = expr_cut_axes(expr, sizes, &any, x, pad);
    if (expr->status != FL_OK || !any) return x;
    fl_attrs_init(&a, FL_OP_REF(pad_edges));
    fl_attr_set_list(&a, EDGES_SIZES, sizes, pad->count);
    fl_attr_set(&a, EDGES_MODE, mode);
    return EXPR_CALL(expr, &a, pad_edges, fl_of(x));
}

static fl_tensor *expr_constant(fl_expr *expr, fl_tensor *x, const fl_attr *pad, const fl_attr *value)
{
    int64_t sizes[2 * FL_MAX_NDIM];
    bool any;
    fl_attrs a;
    x = expr_cut_axes(expr, sizes, &any, x, pad);
    if (expr->status != FL_OK || !any) return x;
    fl_attrs_init(&a, FL_OP_REF(pad_constant));
    fl_attr_set_list(&a, CONSTANT_SIZES, sizes, pad->count);
    a.at[CONSTANT_VALUE] = *value;
    return EXPR_CALL(expr, &a, pad_constant, fl_of(x));
}

static fl_status body_pad(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_attr *pad = &attrs->at[PAD_SIZES];
    int64_t mode = attrs->at[PAD_MODE].integer;
    FL_TRY(check_pad(in, nin, attrs));
    fl_tensor *x = in[0].tensor,
              *y = mode == MODE_CONSTANT ? expr_constant(&c, x, pad, &attrs->at[PAD_VALUE])
                                         : expr_edges(&c, x, pad, mode);
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
