/*
** pool.c -- pooling of images [n, channels, height, width] or of one [channels, height, width]: max_pool2d and
** avg_pool2d.
**
** The maximum is taken together with the tap of every window that it lies at. Gathering the elements at these taps and
** scattering elements to them are each other's gradients, and so are average and spread.
*/
#include "cpu/pool.h"
#include "cpu/stage.h"
#include "dispatch/record.h"
#include "memory/scratch.h"
#include "expr.h"
#include "pool.h"

enum { TAPS_SCRATCH = 2 };
enum { POOL_VALUES, POOL_TAPS }; /* results of max_pool2d_taps, operands of its gradients */

/* ---- inference ---- */

static fl_status read_window(fl_window_geometry *geometry, const fl_infer *infer, bool dilated)
{
    FL_TRY(fl_window_geometry_sizes(geometry->size, infer, FL_POOL_KERNEL, "kernel_size", 1, 2));
    if (infer->attrs->at[FL_POOL_STRIDE].given)
        FL_TRY(fl_window_geometry_sizes(geometry->stride, infer, FL_POOL_STRIDE, "stride", 1, 2));
    FL_TRY(fl_window_geometry_sizes(geometry->padding, infer, FL_POOL_PADDING, "padding", 0, 2));
    if (dilated) FL_TRY(fl_window_geometry_sizes(geometry->dilation, infer, FL_POOL_DILATION, "dilation", 1, 2));
    fl_pool_window(geometry, infer->attrs, dilated);
    if (geometry->size[0] * geometry->size[1] > INT32_MAX)
        return fl_infer_fail(infer, FL_ERR_VALUE, "kernel_size %lld x %lld holds more than %d elements",
                             (long long)geometry->size[0], (long long)geometry->size[1], INT32_MAX);
    for (int d = 0; d < 2; d++)
        if (2 * geometry->padding[d] > geometry->size[d])
            return fl_infer_fail(
                infer, FL_ERR_VALUE,
                "padding must be at most half of the kernel size, got padding %lld and kernel size %lld",
                (long long)geometry->padding[d], (long long)geometry->size[d]);
    return FL_OK;
}

static fl_status require_image(const fl_infer *infer, const char *name, const fl_shape *x)
{
    char tx[FL_SHAPE_TEXT];
    if (x->ndim == 4 || x->ndim == 3) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE,
                         "takes %s [n, channels, height, width] or [channels, height, width], got %s", name,
                         fl_shape_text(tx, x));
}

/* The planes of x in another size. */
static fl_status resized(fl_shape *out, const fl_infer *infer, const fl_shape *x, const int64_t size[2])
{
    fl_shape y = *x;
    for (int d = 0; d < 2; d++) y.dims[y.ndim - 2 + d] = size[d];
    return fl_shape_make(out, infer->name, y.dims, y.ndim);
}

/* The shape that x is pooled to. */
static fl_status pooled_shape(fl_shape *y, const fl_infer *infer, const fl_shape *x, bool dilated, bool ceil)
{
    char tx[FL_SHAPE_TEXT];
    int64_t size[2];
    fl_window_geometry w;
    FL_TRY(require_image(infer, "x", x));
    FL_TRY(read_window(&w, infer, dilated));
    for (int d = 0; d < 2; d++) {
        int axis = x->ndim - 2 + d;
        size[d] = fl_window_geometry_count(&w, d, x->dims[axis], ceil);
        if (x->dims[axis] == 0 || size[d] <= 0)
            return fl_infer_fail(
                infer, FL_ERR_SHAPE,
                "a window of %lld, spread by dilation %lld, is larger than axis %d of x %s with padding %lld",
                (long long)w.size[d], (long long)w.dilation[d], axis, fl_shape_text(tx, x), (long long)w.padding[d]);
    }
    return resized(y, infer, x, size);
}

/* Two spellings of one size: with windows that reach over the end or without. */
static bool is_pooled(const fl_infer *infer, const fl_shape *y, const fl_shape *x, bool dilated)
{
    fl_shape floor, ceil;
    return pooled_shape(&ceil, infer, x, dilated, true) == FL_OK
        && (fl_shape_equal(y, &ceil)
            || (pooled_shape(&floor, infer, x, dilated, false) == FL_OK && fl_shape_equal(y, &floor)));
}

/* y is what x may be pooled to. */
static fl_status check_pooled(const fl_infer *infer, const fl_shape *y, const fl_shape *x, bool dilated)
{
    char ty[FL_SHAPE_TEXT], tx[FL_SHAPE_TEXT];
    fl_shape ceil;
    FL_TRY(pooled_shape(&ceil, infer, x, dilated, true));
    if (is_pooled(infer, y, x, dilated)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "%s is not a pooled shape of %s", fl_shape_text(ty, y),
                         fl_shape_text(tx, x));
}

static fl_status check_taps(const fl_infer *infer, const fl_shape *want)
{
    char tt[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    if (infer->in[FL_POOL_TAPS].dtype == FL_INT32 && fl_shape_equal(&infer->in[FL_POOL_TAPS].shape, want)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "taps must be int32%s, got %s%s", fl_shape_text(tw, want),
                         fl_dtype_name(infer->in[FL_POOL_TAPS].dtype),
                         fl_shape_text(tt, &infer->in[FL_POOL_TAPS].shape));
}

/* Images with the planes of in[0] and the size that an attribute gives. */
static fl_status unpooled_shape(fl_shape *x, const fl_infer *infer, int slot)
{
    int64_t size[2];
    FL_TRY(require_image(infer, "g", &infer->in[0].shape));
    FL_TRY(fl_window_geometry_sizes(size, infer, slot, "size", 1, 2));
    return resized(x, infer, &infer->in[0].shape, size);
}

static fl_status infer_values(fl_infer *infer)
{
    infer->name = "max_pool2d";
    FL_TRY(fl_require_float(infer, 0));
    infer->out[0].dtype = infer->in[0].dtype;
    return pooled_shape(&infer->out[0].shape, infer, &infer->in[0].shape, true,
                        infer->attrs->at[FL_POOL_MAX_CEIL].integer != 0);
}

static fl_status infer_max(fl_infer *infer)
{
    FL_TRY(infer_values(infer));
    infer->out[FL_POOL_TAPS].dtype = FL_INT32;
    infer->out[FL_POOL_TAPS].shape = infer->out[0].shape;
    return FL_OK;
}

static fl_status infer_gather(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(check_pooled(infer, &infer->in[FL_POOL_TAPS].shape, &infer->in[0].shape, true));
    FL_TRY(check_taps(infer, &infer->in[FL_POOL_TAPS].shape));
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = infer->in[FL_POOL_TAPS].shape;
    return FL_OK;
}

static fl_status infer_scatter(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(unpooled_shape(&infer->out[0].shape, infer, FL_POOL_MAX_SIZE));
    FL_TRY(check_pooled(infer, &infer->in[0].shape, &infer->out[0].shape, true));
    FL_TRY(check_taps(infer, &infer->in[0].shape));
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

static fl_status check_divisor(const fl_infer *infer)
{
    const fl_attr *a = &infer->attrs->at[FL_POOL_DIVISOR];
    if (!a->given || a->integer != 0) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_VALUE, "divisor_override must not be 0");
}

static fl_status infer_average(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(check_divisor(infer));
    FL_TRY(pooled_shape(&infer->out[0].shape, infer, &infer->in[0].shape, false,
                        infer->attrs->at[FL_POOL_AVERAGE_CEIL].integer != 0));
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

static fl_status infer_spread(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(check_divisor(infer));
    FL_TRY(unpooled_shape(&infer->out[0].shape, infer, FL_POOL_AVERAGE_SIZE));
    FL_TRY(check_pooled(infer, &infer->in[0].shape, &infer->out[0].shape, false));
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

/* ---- SBP: planes are pooled each for itself ---- */

/* Images and channels are independent; windows overlap along rows and columns. The maximum of a sum is no sum of
** maxima. Serves ops of three tensors: one input with two results, or two with one. */
static void sbp_max(fl_sigs *sigs)
{
    for (int i = 0; i < sigs->in[0].shape.ndim - 2; i++) FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_S(i));
}

/* Also of gathering, which has two inputs in place of two results: linear in the first. */
static void sbp_taps(fl_sigs *sigs)
{
    sbp_max(sigs);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static void sbp_values(fl_sigs *sigs)
{
    for (int i = 0; i < sigs->in[0].shape.ndim - 2; i++) FL_SIG(sigs, NULL, FL_S(i), FL_S(i));
}

/* As sbp_max, and a mean is linear. */
static void sbp_average(fl_sigs *sigs)
{
    sbp_values(sigs);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

/* ---- kernels ---- */

static fl_status kernel_max(fl_kernel *kernel)
{
    fl_kernel values = *kernel; /* without the taps, which are written where they lie */
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    values.nout = 1;
    FL_TRY(fl_stage_open(&s, &values, 0));
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    fl_cpu_pool_max(s.dtype, &p, s.out[0], kernel->nout > 1 ? kernel->out[FL_POOL_TAPS].data : NULL, s.in[0]);
    return fl_stage_close(&s);
}

/* Taps as a row-major array. */
static fl_status open_taps(const int32_t **taps, const fl_kernel *kernel)
{
    const fl_view *v = &kernel->in[FL_POOL_TAPS];
    int64_t strides[FL_MAX_NDIM];
    fl_view array = *v;
    *taps = v->data;
    if (v->contiguous) return FL_OK;
    *taps = array.data = fl_scratch(TAPS_SCRATCH, sizeof **taps * (size_t)v->numel);
    if (!array.data)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld taps", kernel->name, (long long)v->numel);
    fl_shape_strides(strides, v->size, v->ndim);
    array.stride = strides;
    array.contiguous = true;
    return fl_cpu_copy(&array, v);
}

static fl_status kernel_gather(fl_kernel *kernel)
{
    fl_stage s;
    const int32_t *taps;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << 1));
    FL_TRY(open_taps(&taps, kernel));
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], true);
    FL_TRY(fl_cpu_pool_gather(s.dtype, &p, s.out[0], s.in[0], taps));
    return fl_stage_close(&s);
}

static fl_status kernel_scatter(fl_kernel *kernel)
{
    fl_stage s;
    const int32_t *taps;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << 1));
    FL_TRY(open_taps(&taps, kernel));
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], true);
    FL_TRY(fl_cpu_pool_scatter(s.dtype, &p, s.out[0], s.in[0], taps));
    return fl_stage_close(&s);
}

static fl_status kernel_average(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->in[0], &kernel->out[0], false);
    fl_cpu_pool_average(s.dtype, &p, fl_pool_mean_of(kernel->attrs), s.out[0], s.in[0]);
    return fl_stage_close(&s);
}

static fl_status kernel_spread(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_pool p = fl_pool_of(kernel->attrs, &kernel->out[0], &kernel->in[0], false);
    fl_cpu_pool_spread(s.dtype, &p, fl_pool_mean_of(kernel->attrs), s.out[0], s.in[0]);
    return fl_stage_close(&s);
}

/* ---- gradients ---- */

/* Attributes of an op that begin as those of the op whose gradient this is; `size` is that of the images x. */
static fl_attrs like(const fl_op *op, const fl_grad *g, int count, int size, const fl_meta *meta)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    for (int i = 0; i < count; i++) a.at[i] = g->attrs->at[i];
    if (meta) fl_attr_set_list(&a, size, meta->shape.dims + meta->shape.ndim - 2, 2);
    return a;
}

static fl_status scatter(fl_grad *g, fl_operand taps)
{
    fl_attrs a = like(FL_OP_REF(max_pool2d_scatter), g, FL_POOL_DILATION + 1, FL_POOL_MAX_SIZE, g->in_meta[0]);
    return FL_CALL_WITH(&g->gin[0], &a, max_pool2d_scatter, fl_of(g->gout[0]), taps);
}

/* The gradient goes to the tap that was the maximum. */
static fl_status grad_max(fl_grad *g) { return g->gout[0] ? scatter(g, fl_of(g->out[FL_POOL_TAPS])) : FL_OK; }
static fl_status grad_gather(fl_grad *g) { return scatter(g, g->in[FL_POOL_TAPS]); }

/* Scattering and gathering at the taps are transposes of each other. */
static fl_status grad_scatter(fl_grad *g)
{
    fl_attrs a = like(FL_OP_REF(max_pool2d_gather), g, FL_POOL_DILATION + 1, 0, NULL);
    return FL_CALL_WITH(&g->gin[0], &a, max_pool2d_gather, fl_of(g->gout[0]), g->in[FL_POOL_TAPS]);
}

/* The transpose of averaging spreads every element evenly over its window. */
static fl_status grad_average(fl_grad *g)
{
    fl_attrs a = like(FL_OP_REF(avg_pool2d_spread), g, FL_POOL_DIVISOR + 1, FL_POOL_AVERAGE_SIZE, g->in_meta[0]);
    return FL_CALL_WITH(&g->gin[0], &a, avg_pool2d_spread, fl_of(g->gout[0]));
}

/* Averaging is the transpose of spreading. */
static fl_status grad_spread(fl_grad *g)
{
    fl_attrs a = like(FL_OP_REF(avg_pool2d), g, FL_POOL_DIVISOR + 1, 0, NULL);
    return FL_CALL_WITH(&g->gin[0], &a, avg_pool2d, fl_of(g->gout[0]));
}

/* ---- descriptors ---- */

#define MAX_ATTRS "kernel_size: ints, stride: ints = nil, padding: ints = 0, dilation: ints = 1"

static const char *const max_samples[] = {"flow.randn(3, 2, 5, 6), 2", "flow.randn(2, 3, 6, 5), {3, 2}, {2, 1}, {1, 0}",
                                          "flow.randn(1, 2, 7, 8), 3, 2, 1, {1, 2}, true", "flow.randn(3, 5, 6), 2, 1",
                                          NULL};

const fl_op *fl_max_pool2d_op(const fl_tensor *x, bool taps)
{
    bool recorded = fl_grad_enabled && fl_requires_grad(x);
    return taps || recorded ? FL_OP_REF(max_pool2d_taps) : FL_OP_REF(max_pool2d_values);
}

static fl_status body_max(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *results[2] = {NULL, NULL};
    const fl_op *op = fl_max_pool2d_op(in[0].tensor, false);
    fl_attrs_init(&a, op);
    memcpy(a.at, attrs->at, sizeof a.at);
    FL_TRY(fl_dispatch(results, op, in, nin, &a));
    fl_tensor_unref(results[POOL_TAPS]);
    out[0] = results[POOL_VALUES];
    return FL_OK;
}

FL_OP(max_pool2d) = {
    .name = "max_pool2d",
    .sig = "max_pool2d(x, " MAX_ATTRS ", ceil_mode: bool = false)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "The largest element of every window of images x [n, channels, height, width], or of one image without n.",
    .body = body_max,
    .samples = max_samples,
};

FL_OP(max_pool2d_taps) = {
    .name = "max_pool2d_taps",
    .sig = "max_pool2d_taps(x, " MAX_ATTRS ", ceil_mode: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "max_pool2d, and the position of each maximum in its window, counted by rows.",
    .saves_out = 1u << POOL_TAPS,
    .infer = infer_max,
    .sbp = sbp_max,
    .cpu = kernel_max,
    .grad = grad_max,
    .samples = max_samples,
};

FL_OP(max_pool2d_values) = {
    .name = "max_pool2d_values",
    .sig = "max_pool2d_values(x, " MAX_ATTRS ", ceil_mode: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "max_pool2d where no gradient is wanted.",
    .infer = infer_values,
    .sbp = sbp_values,
    .cpu = kernel_max,
    .samples = max_samples,
};

static const char *const gather_samples[] = {
    "flow.randn(3, 2, 5, 6), flow.randint(0, 4, {3, 2, 2, 3}, {dtype = 'int32'}), 2",
    "flow.randn(2, 3, 6, 5), flow.randint(-1, 8, {2, 3, 3, 4}, {dtype = 'int32'}), {3, 2}, {2, 1}, {1, 0}",
    "flow.randn(3, 5, 6), flow.randint(0, 4, {3, 2, 3}, {dtype = 'int32'}), 2", NULL};
FL_OP(max_pool2d_gather) = {
    .name = "max_pool2d_gather",
    .sig = "max_pool2d_gather(x, taps, " MAX_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "The element of every window of the images x at the window's tap; 0 outside x.",
    .saves_in = 1u << POOL_TAPS,
    .infer = infer_gather,
    .sbp = sbp_taps,
    .cpu = kernel_gather,
    .grad = grad_gather,
    .samples = gather_samples,
};

static const char *const scatter_samples[] = {
    "flow.randn(3, 2, 2, 3), flow.randint(0, 4, {3, 2, 2, 3}, {dtype = 'int32'}), 2, nil, 0, 1, {5, 6}",
    "flow.randn(2, 3, 3, 4), flow.randint(-1, 8, {2, 3, 3, 4}, {dtype = 'int32'}), {3, 2}, {2, 1}, {1, 0}, 1, {6, 5}",
    "flow.randn(3, 2, 3), flow.randint(0, 4, {3, 2, 3}, {dtype = 'int32'}), 2, nil, 0, 1, {5, 6}", NULL};
FL_OP(max_pool2d_scatter) = {
    .name = "max_pool2d_scatter",
    .sig = "max_pool2d_scatter(g, taps, " MAX_ATTRS ", size: ints)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Images of `size` (height, width): every element of g is added at its window's tap.",
    .saves_in = 1u << POOL_TAPS,
    .infer = infer_scatter,
    .sbp = sbp_taps,
    .cpu = kernel_scatter,
    .grad = grad_scatter,
    .samples = scatter_samples,
};

#define AVERAGE_ATTRS                                                                     \
    "kernel_size: ints, stride: ints = nil, padding: ints = 0, ceil_mode: bool = false, " \
    "count_include_pad: bool = true, divisor_override: int = nil"

static const char *const average_samples[] = {
    "flow.randn(3, 2, 5, 6), 2",
    "flow.randn(2, 3, 6, 5), {3, 2}, {2, 1}, {1, 0}",
    "flow.randn(1, 2, 7, 8), 3, 2, 1, true, false",
    "flow.randn(1, 2, 4, 8), {2, 3}, {divisor_override = 5, ceil_mode = true, padding = {0, 1}}",
    "flow.randn(3, 5, 6), 2",
    NULL};
FL_OP(avg_pool2d) = {
    .name = "avg_pool2d",
    .sig = "avg_pool2d(x, " AVERAGE_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "The mean of every window of images x [n, channels, height, width], or of one image without n.",
    .infer = infer_average,
    .sbp = sbp_average,
    .cpu = kernel_average,
    .grad = grad_average,
    .samples = average_samples,
};

static const char *const spread_samples[] = {
    "flow.randn(3, 2, 2, 3), 2, nil, 0, false, true, nil, {5, 6}",
    "flow.randn(2, 3, 3, 4), {3, 2}, {2, 1}, {1, 0}, false, false, nil, {6, 5}",
    "flow.randn(3, 2, 3), 2, nil, 0, false, true, nil, {5, 6}", NULL};
FL_OP(avg_pool2d_spread) = {
    .name = "avg_pool2d_spread",
    .sig = "avg_pool2d_spread(g, " AVERAGE_ATTRS ", size: ints)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of avg_pool2d: every element of g is divided evenly over its window of images of `size` (height, "
           "width).",
    .infer = infer_spread,
    .sbp = sbp_average,
    .cpu = kernel_spread,
    .grad = grad_spread,
    .samples = spread_samples,
};
