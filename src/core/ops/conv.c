/*
** conv.c -- 2-D convolutions of images: x [n, in, height, width] with weight [out, in / groups, height, width]. One
** image [in, height, width] gives one image.
**
** The gradients are ops of the same kind: of conv2d, conv2d_input_grad and conv2d_weight_grad each is, up to the order
** of operands, the gradient of the others.
*/
#include "cpu/conv.h"
#include "cpu/stage.h"
#include "expr.h"

enum { CONV_FORWARD, CONV_INPUT_GRAD, CONV_WEIGHT_GRAD }; /* op->variant */

/* ---- inference ---- */

/* Everything but the size, and what follows from it. */
static fl_status read_window(fl_window_geometry *geometry, const fl_infer *infer)
{
    int64_t groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    FL_TRY(fl_window_geometry_pair(geometry->stride, infer, FL_CONV_STRIDE, "stride", 1));
    if (infer->attrs->at[FL_CONV_PADDING].kind != FL_WORD)
        FL_TRY(fl_window_geometry_pair(geometry->padding, infer, FL_CONV_PADDING, "padding", 0));
    FL_TRY(fl_window_geometry_pair(geometry->dilation, infer, FL_CONV_DILATION, "dilation", 1));
    for (int d = 0; d < 2; d++)
        if (fl_conv_keeps_size(infer->attrs) && geometry->stride[d] != 1)
            return fl_infer_fail(infer, FL_ERR_VALUE, "padding \"same\" needs stride 1, got stride %lld",
                                 (long long)geometry->stride[d]);
    if (groups >= 1 && groups <= INT32_MAX) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_VALUE, "groups must be between 1 and %d, got %lld", INT32_MAX,
                         (long long)groups);
}

static fl_status check_weight(const fl_infer *infer, const fl_shape *shape)
{
    char tw[FL_SHAPE_TEXT];
    int64_t groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    if (fl_shape_numel(shape) == 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "weight %s has an axis of size 0", fl_shape_text(tw, shape));
    if (shape->dims[2] > INT32_MAX || shape->dims[3] > INT32_MAX)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "weight %s has a window of more than %d rows or columns",
                             fl_shape_text(tw, shape), INT32_MAX);
    if (shape->dims[0] % groups != 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "weight %s has %lld output channels, which is not a multiple of %lld groups",
                             fl_shape_text(tw, shape), (long long)shape->dims[0], (long long)groups);
    return FL_OK;
}

/* Images, or one. */
static bool is_image(const fl_shape *x) { return x->ndim == 4 || x->ndim == 3; }

/* Images as many as `like` has, or one. */
static fl_status image_shape(fl_shape *out, const fl_infer *infer, const fl_shape *like, int64_t channels,
                             const int64_t size[2])
{
    const int64_t dims[4] = {like->dims[0], channels, size[0], size[1]};
    return fl_shape_make(out, infer->name, dims + 4 - like->ndim, like->ndim);
}

/* The shape of conv2d's result. */
static fl_status output_shape(fl_shape *out, const fl_infer *infer, const fl_shape *x, const fl_shape *weight)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    int64_t groups = infer->attrs->at[FL_CONV_GROUPS].integer, size[2];
    int channels = fl_conv_channels(x->ndim);
    fl_window_geometry window;
    if (!is_image(x) || weight->ndim != 4)
        return fl_infer_fail(
            infer, FL_ERR_SHAPE,
            "takes x [n, in, height, width] or [in, height, width] and weight [out, in / groups, height, width], "
            "got %s and %s",
            fl_shape_text(tx, x), fl_shape_text(tw, weight));
    FL_TRY(read_window(&window, infer));
    FL_TRY(check_weight(infer, weight));
    if (x->dims[channels] % groups != 0 || x->dims[channels] / groups != weight->dims[1])
        return fl_infer_fail(infer, FL_ERR_SHAPE, "x %s has %lld channels, weight %s takes %lld in each of %lld groups",
                             fl_shape_text(tx, x), (long long)x->dims[channels], fl_shape_text(tw, weight),
                             (long long)weight->dims[1], (long long)groups);
    memcpy(window.size, weight->dims + 2, sizeof window.size);
    fl_conv_pad(&window, infer->attrs);
    for (int d = 0; d < 2; d++) {
        int axis = channels + 1 + d;
        size[d] = fl_conv_keeps_size(infer->attrs) ? x->dims[axis]
                                                   : fl_window_geometry_count(&window, d, x->dims[axis], false);
        if (size[d] <= 0)
            return fl_infer_fail(
                infer, FL_ERR_SHAPE,
                "the window of weight %s, spread by dilation %lld, is larger than axis %d of x %s with padding %lld",
                fl_shape_text(tw, weight), (long long)window.dilation[d], axis, fl_shape_text(tx, x),
                (long long)window.padding[d]);
    }
    return image_shape(out, infer, x, weight->dims[0], size);
}

static fl_status infer_dtypes(fl_infer *infer)
{
    for (int i = 0; i < infer->nin; i++) FL_TRY(fl_require_float(infer, i));
    infer->out[0].dtype = fl_infer_promote(infer);
    return FL_OK;
}

static fl_status infer_conv(fl_infer *infer)
{
    char tw[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_shape *w = &infer->in[FL_CONV_WEIGHT].shape, *bias = &infer->in[FL_CONV_BIAS].shape;
    FL_TRY(infer_dtypes(infer));
    FL_TRY(output_shape(&infer->out[0].shape, infer, &infer->in[FL_CONV_X].shape, w));
    if (infer->in[FL_CONV_BIAS].kind != FL_TENSOR || (bias->ndim == 1 && bias->dims[0] == w->dims[0])) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "bias must be [%lld] for weight %s, got %s", (long long)w->dims[0],
                         fl_shape_text(tw, w), fl_shape_text(tb, bias));
}

/* The gradient that x or the weight is to get belongs to these shapes. */
static fl_status check_gradient(const fl_infer *infer, const fl_shape *g, const fl_shape *x, const fl_shape *weight)
{
    char tg[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    fl_shape y;
    FL_TRY(output_shape(&y, infer, x, weight));
    if (fl_shape_equal(&y, g)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "g must be %s, got %s", fl_shape_text(ty, &y), fl_shape_text(tg, g));
}

static fl_status check_operands(const fl_infer *infer, bool fits)
{
    char tg[FL_SHAPE_TEXT], tx[FL_SHAPE_TEXT];
    const fl_shape *g = &infer->in[FL_CONV_GRAD_G].shape, *x = &infer->in[FL_CONV_GRAD_OTHER].shape;
    if (fits) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "takes images and a weight or images, got %s and %s",
                         fl_shape_text(tg, g), fl_shape_text(tx, x));
}

static fl_status infer_input_grad(fl_infer *infer)
{
    int64_t size[2], groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    const fl_shape *g = &infer->in[FL_CONV_GRAD_G].shape, *w = &infer->in[FL_CONV_GRAD_OTHER].shape;
    FL_TRY(infer_dtypes(infer));
    FL_TRY(check_operands(infer, is_image(g) && w->ndim == 4));
    FL_TRY(fl_window_geometry_pair(size, infer, FL_CONV_SIZE, "size", 0));
    int64_t channels = w->dims[1] * (groups > 0 && groups <= INT32_MAX ? groups : 1);
    FL_TRY(image_shape(&infer->out[0].shape, infer, g, channels, size));
    return check_gradient(infer, g, &infer->out[0].shape, w);
}

static fl_status infer_weight_grad(fl_infer *infer)
{
    int64_t size[2], groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    const fl_shape *g = &infer->in[FL_CONV_GRAD_G].shape, *x = &infer->in[FL_CONV_GRAD_OTHER].shape;
    FL_TRY(infer_dtypes(infer));
    FL_TRY(check_operands(infer, is_image(g) && x->ndim == g->ndim));
    FL_TRY(fl_window_geometry_pair(size, infer, FL_CONV_SIZE, "size", 1));
    int channels = fl_conv_channels(x->ndim);
    int64_t dims[4] = {g->dims[channels], x->dims[channels] / (groups > 0 ? groups : 1), size[0], size[1]};
    FL_TRY(fl_shape_make(&infer->out[0].shape, infer->name, dims, 4));
    return check_gradient(infer, g, x, &infer->out[0].shape);
}

/* Specs of x, weight and result among operands and results of any of the three ops. */
struct roles {
    const fl_spec *x, *weight, *y;
};

static struct roles roles_of(const fl_op *op, const fl_spec *in, const fl_spec *out)
{
    if (op->variant == CONV_INPUT_GRAD) return (struct roles){out, &in[FL_CONV_GRAD_OTHER], &in[FL_CONV_GRAD_G]};
    if (op->variant == CONV_WEIGHT_GRAD) return (struct roles){&in[FL_CONV_GRAD_OTHER], out, &in[FL_CONV_GRAD_G]};
    return (struct roles){&in[FL_CONV_X], &in[FL_CONV_WEIGHT], out};
}

/* ---- SBP ---- */

/* Adds a signature given as those of x, weight, bias and y. */
static void add(fl_sigs *sigs, fl_sbp x, fl_sbp weight, fl_sbp bias, fl_sbp y)
{
    if (sigs->op->variant == CONV_INPUT_GRAD) FL_SIG(sigs, NULL, y, weight, x);
    else if (sigs->op->variant == CONV_WEIGHT_GRAD) FL_SIG(sigs, NULL, y, x, weight);
    else FL_SIG(sigs, NULL, x, weight, bias, y);
}

/* conv2d and its two gradients are one sum of products over x, weight and y with another operand as its result; the
** result is a partial sum where an axis is split that it does not have. Images and channels may be split; not rows
** and columns, whose windows overlap. Of several groups a part holds whole ones. Linear in each operand, but a bias
** beside a partial operand would be added once per rank. */
static void sbp_conv(fl_sigs *sigs)
{
    struct roles r = roles_of(sigs->op, sigs->in, sigs->out);
    bool gives_x = r.x == sigs->out, gives_weight = r.weight == sigs->out,
         bias = sigs->nin == 3 && sigs->in[FL_CONV_BIAS].kind == FL_TENSOR;
    fl_sbp shared = bias ? FL_S(0) : FL_B;
    int64_t groups = sigs->attrs->at[FL_CONV_GROUPS].integer;
    int channels = fl_conv_channels(r.x->shape.ndim);
    if (channels) add(sigs, FL_S(0), gives_weight ? FL_PSUM : FL_B, FL_B, FL_S(0));
    if (groups == 1) {
        add(sigs, gives_x ? FL_PSUM : FL_B, FL_S(0), shared, FL_S(channels));
        add(sigs, FL_S(channels), FL_S(1), FL_B, gives_x || gives_weight ? FL_B : FL_PSUM);
    } else if (r.x->shape.dims[channels] / r.weight->shape.dims[1] % sigs->parts == 0) {
        add(sigs, FL_S(channels), FL_S(0), shared, FL_S(channels)); /* whole groups */
    }
    if (bias) return;
    fl_sbp_partial(sigs, 1, FL_PSUM);
    fl_sbp_partial(sigs, 2, FL_PSUM);
}

/* ---- kernels ---- */

/* The rank that holds the first channels of the weight adds the bias. */
static fl_status kernel_conv(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->in[FL_CONV_X], &kernel->in[FL_CONV_WEIGHT], &kernel->out[0]);
    const void *bias = kernel->in[FL_CONV_WEIGHT].start[1] == 0 ? s.in[FL_CONV_BIAS] : NULL;
    FL_TRY(fl_cpu_conv(s.dtype, &c, s.out[0], s.in[FL_CONV_X], s.in[FL_CONV_WEIGHT], bias));
    return fl_stage_close(&s);
}

static fl_status kernel_input_grad(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->out[0], &kernel->in[FL_CONV_GRAD_OTHER],
                           &kernel->in[FL_CONV_GRAD_G]);
    FL_TRY(fl_cpu_conv_input_grad(s.dtype, &c, s.out[0], s.in[FL_CONV_GRAD_G], s.in[FL_CONV_GRAD_OTHER]));
    return fl_stage_close(&s);
}

static fl_status kernel_weight_grad(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->in[FL_CONV_GRAD_OTHER], &kernel->out[0],
                           &kernel->in[FL_CONV_GRAD_G]);
    FL_TRY(fl_cpu_conv_weight_grad(s.dtype, &c, s.out[0], s.in[FL_CONV_GRAD_G], s.in[FL_CONV_GRAD_OTHER]));
    return fl_stage_close(&s);
}

/* ---- gradients ---- */

/* A call of one of the three ops with the attributes of another. size: rows and columns of the result, if the op has
** that attribute. */
static fl_tensor *expr_conv(fl_expr *expr, const fl_op *op, const fl_grad *g, fl_operand first, fl_operand second,
                            const fl_meta *size)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, op);
    for (int i = FL_CONV_STRIDE; i <= FL_CONV_GROUPS; i++) attrs.at[i] = g->attrs->at[i];
    if (size) fl_attr_set_list(&attrs, FL_CONV_SIZE, size->shape.dims + size->shape.ndim - 2, 2);
    const fl_operand in[3] = {first, second};
    return fl_expr_call(expr, op, in, size ? 2 : 3, &attrs);
}

static uint32_t all_but_channels(int ndim) { return ((1u << ndim) - 1) & ~(1u << fl_conv_channels(ndim)); }

/* Each operand's gradient is the same sum of products with that operand as its result; the bias is added at all
** positions, so it gets the sum over them. */
static fl_status grad_conv(fl_grad *g)
{
    fl_expr c = {0};
    fl_operand dy = fl_of(g->gout[0]);
    fl_tensor *dx = NULL, *dw = NULL, *db = NULL;
    if (g->need[FL_CONV_X])
        dx = expr_conv(&c, FL_OP_REF(conv2d_input_grad), g, dy, g->in[FL_CONV_WEIGHT], g->in_meta[FL_CONV_X]);
    if (g->need[FL_CONV_WEIGHT])
        dw = expr_conv(&c, FL_OP_REF(conv2d_weight_grad), g, dy, g->in[FL_CONV_X], g->in_meta[FL_CONV_WEIGHT]);
    if (g->need[FL_CONV_BIAS]) db = expr_sum(&c, g->gout[0], all_but_channels(g->out_meta[0]->shape.ndim), false);
    if (dx) g->gin[FL_CONV_X] = fl_expr_take(&c, dx);
    if (dw) g->gin[FL_CONV_WEIGHT] = fl_expr_take(&c, dw);
    if (db) g->gin[FL_CONV_BIAS] = fl_expr_take(&c, db);
    return fl_expr_end(&c);
}

/* The op is linear in g and in weight: the same sum of products again. */
static fl_status grad_input_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_operand dx = fl_of(g->gout[0]);
    fl_tensor *dg = NULL, *dw = NULL;
    if (g->need[FL_CONV_GRAD_G]) dg = expr_conv(&c, FL_OP_REF(conv2d), g, dx, g->in[FL_CONV_GRAD_OTHER], NULL);
    if (g->need[FL_CONV_GRAD_OTHER])
        dw = expr_conv(&c, FL_OP_REF(conv2d_weight_grad), g, g->in[FL_CONV_GRAD_G], dx, g->in_meta[FL_CONV_GRAD_OTHER]);
    if (dg) g->gin[FL_CONV_GRAD_G] = fl_expr_take(&c, dg);
    if (dw) g->gin[FL_CONV_GRAD_OTHER] = fl_expr_take(&c, dw);
    return fl_expr_end(&c);
}

/* The op is linear in g and in x: the same sum of products again. */
static fl_status grad_weight_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_operand dw = fl_of(g->gout[0]);
    fl_tensor *dg = NULL, *dx = NULL;
    if (g->need[FL_CONV_GRAD_G]) dg = expr_conv(&c, FL_OP_REF(conv2d), g, g->in[FL_CONV_GRAD_OTHER], dw, NULL);
    if (g->need[FL_CONV_GRAD_OTHER])
        dx = expr_conv(&c, FL_OP_REF(conv2d_input_grad), g, g->in[FL_CONV_GRAD_G], dw, g->in_meta[FL_CONV_GRAD_OTHER]);
    if (dg) g->gin[FL_CONV_GRAD_G] = fl_expr_take(&c, dg);
    if (dx) g->gin[FL_CONV_GRAD_OTHER] = fl_expr_take(&c, dx);
    return fl_expr_end(&c);
}

/* ---- descriptors ---- */

#define CONV_ATTRS "stride: ints = 1, padding: ints|same|valid = 0, dilation: ints = 1, groups: int = 1"

static const char *const conv_samples[] = {
    "flow.randn(3, 2, 5, 6), flow.randn(4, 2, 3, 2), flow.randn(4)",
    "flow.randn(2, 3, 6, 5), flow.randn(2, 3, 3, 3), nil, {2, 1}, {1, 2}",
    "flow.randn(2, 6, 5, 7), flow.randn(6, 1, 2, 3), flow.randn(6), 2, 1, {2, 1}, 6",
    "flow.randn(2, 4, 4, 4), flow.randn(6, 2, 1, 1), flow.randn(6), {groups = 2}",
    "flow.randn(3, 2, 4, 2), flow.randn(5, 2, 1, 1)",
    "flow.randn(2, 5, 6), flow.randn(4, 2, 3, 2), flow.randn(4), {2, 1}, {1, 2}",
    "flow.randn(4, 4, 5), flow.randn(6, 2, 2, 3), {groups = 2}",
    "flow.randn(2, 3, 5, 6), flow.randn(4, 3, 2, 4), flow.randn(4), {padding = 'same', dilation = {3, 1}}",
    NULL};
FL_OP(conv2d) = {
    .name = "conv2d",
    .sig = "conv2d(x, weight, bias?, " CONV_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Convolution of images x [n, in, height, width] (or one image without n) with weight [out, in / groups, "
           "height, width], plus bias [out].",
    .saves_in = 1u << FL_CONV_X | 1u << FL_CONV_WEIGHT,
    .variant = CONV_FORWARD,
    .infer = infer_conv,
    .sbp = sbp_conv,
    .cpu = kernel_conv,
    .grad = grad_conv,
    .samples = conv_samples,
};

#define GRAD_ATTRS "stride: ints, padding: ints|same|valid, dilation: ints, groups: int, size: ints"

static const char *const input_grad_samples[] = {
    "flow.randn(3, 4, 3, 5), flow.randn(4, 2, 3, 2), 1, 0, 1, 1, {5, 6}",
    "flow.randn(2, 2, 3, 7), flow.randn(2, 3, 3, 3), {2, 1}, {1, 2}, 1, 1, {6, 5}",
    "flow.randn(2, 6, 3, 4), flow.randn(6, 1, 2, 3), 2, 1, {2, 1}, 6, {5, 7}",
    "flow.randn(2, 6, 4, 4), flow.randn(6, 2, 1, 1), 1, 0, 1, 2, 4",
    "flow.randn(4, 3, 5), flow.randn(4, 2, 3, 2), 1, 0, 1, 1, {5, 6}",
    "flow.randn(2, 4, 5, 6), flow.randn(4, 3, 2, 4), 1, 'same', {3, 1}, 1, {5, 6}",
    NULL};
FL_OP(conv2d_input_grad) = {
    .name = "conv2d_input_grad",
    .sig = "conv2d_input_grad(g, weight, " GRAD_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of conv2d with respect to images of `size` (height, width).",
    .saves_in = 1u << FL_CONV_GRAD_G | 1u << FL_CONV_GRAD_OTHER,
    .variant = CONV_INPUT_GRAD,
    .infer = infer_input_grad,
    .sbp = sbp_conv,
    .cpu = kernel_input_grad,
    .grad = grad_input_grad,
    .samples = input_grad_samples,
};

static const char *const weight_grad_samples[] = {
    "flow.randn(3, 4, 3, 5), flow.randn(3, 2, 5, 6), 1, 0, 1, 1, {3, 2}",
    "flow.randn(2, 2, 3, 7), flow.randn(2, 3, 6, 5), {2, 1}, {1, 2}, 1, 1, 3",
    "flow.randn(2, 6, 3, 4), flow.randn(2, 6, 5, 7), 2, 1, {2, 1}, 6, {2, 3}",
    "flow.randn(2, 6, 4, 4), flow.randn(2, 4, 4, 4), 1, 0, 1, 2, 1",
    "flow.randn(4, 3, 5), flow.randn(2, 5, 6), 1, 0, 1, 1, {3, 2}",
    "flow.randn(2, 4, 5, 6), flow.randn(2, 3, 5, 6), 1, 'same', {3, 1}, 1, {2, 4}",
    NULL};
FL_OP(conv2d_weight_grad) = {
    .name = "conv2d_weight_grad",
    .sig = "conv2d_weight_grad(g, x, " GRAD_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of conv2d with respect to a weight whose window has `size` (height, width).",
    .saves_in = 1u << FL_CONV_GRAD_G | 1u << FL_CONV_GRAD_OTHER,
    .variant = CONV_WEIGHT_GRAD,
    .infer = infer_weight_grad,
    .sbp = sbp_conv,
    .cpu = kernel_weight_grad,
    .grad = grad_weight_grad,
    .samples = weight_grad_samples,
};
