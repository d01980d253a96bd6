/*
** conv.c -- convolutions of images: x [n, in, size] with weight [out, in / groups, window], where size and window have
** one axis (conv1d) to three (conv3d). One image [in, size] gives one image.
**
** The gradients are ops of the same kind: of conv2d, conv2d_input_grad and conv2d_weight_grad each is, up to the order
** of operands, the gradient of the others. A transposed convolution is the gradient of the input under another name.
*/
#include "cpu/conv.h"
#include "cpu/stage.h"
#include "expr.h"

/* op->variant: which sum of products, and how many axes the window has */
enum { CONV_FORWARD, CONV_INPUT_GRAD, CONV_WEIGHT_GRAD, CONV_SUMS };
#define CONV_VARIANT(sum, axes) ((axes)*CONV_SUMS + (sum))

static int axes_of(const fl_op *op) { return op->variant / CONV_SUMS; }
static int sum_of(const fl_op *op) { return op->variant % CONV_SUMS; }

static const char *const SIZES[] = {"", "length", "height, width", "depth, height, width"};

/* ---- inference ---- */

/* Everything but the size, and what follows from it. */
static fl_status read_window(fl_window_geometry *geometry, const fl_infer *infer)
{
    int64_t groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    int axes = axes_of(infer->op), before = FL_WINDOW_AXES - axes;
    *geometry = fl_conv_no_window();
    FL_TRY(fl_window_geometry_sizes(geometry->stride + before, infer, FL_CONV_STRIDE, "stride", 1, axes));
    if (infer->attrs->at[FL_CONV_PADDING].kind != FL_WORD)
        FL_TRY(fl_window_geometry_sizes(geometry->padding + before, infer, FL_CONV_PADDING, "padding", 0, axes));
    FL_TRY(fl_window_geometry_sizes(geometry->dilation + before, infer, FL_CONV_DILATION, "dilation", 1, axes));
    for (int d = before; d < FL_WINDOW_AXES; d++)
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
    for (int i = 2; i < shape->ndim; i++)
        if (shape->dims[i] > INT32_MAX)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "weight %s has a window of more than %d rows or columns",
                                 fl_shape_text(tw, shape), INT32_MAX);
    if (shape->dims[0] % groups != 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "weight %s has %lld output channels, which is not a multiple of %lld groups",
                             fl_shape_text(tw, shape), (long long)shape->dims[0], (long long)groups);
    return FL_OK;
}

/* Images, or one. */
static bool is_image(const fl_shape *x, int axes) { return x->ndim == axes + 2 || x->ndim == axes + 1; }

/* Images as many as `like` has, or one. */
static fl_status image_shape(fl_shape *out, const fl_infer *infer, const fl_shape *like, int64_t channels,
                             const int64_t *size)
{
    int axes = axes_of(infer->op), first = like->ndim - axes - 1;
    int64_t dims[FL_MAX_NDIM] = {like->dims[0]};
    dims[first] = channels;
    memcpy(dims + first + 1, size, sizeof *size * (size_t)axes);
    return fl_shape_make(out, infer->name, dims, like->ndim);
}

static fl_status check_channels(const fl_infer *infer, const fl_shape *x, const fl_shape *weight)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    int64_t groups = infer->attrs->at[FL_CONV_GROUPS].integer,
            channels = x->dims[fl_conv_channels(x->ndim, axes_of(infer->op))];
    if (channels % groups == 0 && channels / groups == weight->dims[1]) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "x %s has %lld channels, weight %s takes %lld in each of %lld groups",
                         fl_shape_text(tx, x), (long long)channels, fl_shape_text(tw, weight),
                         (long long)weight->dims[1], (long long)groups);
}

/* The shape of a convolution's result. */
static fl_status output_shape(fl_shape *out, const fl_infer *infer, const fl_shape *x, const fl_shape *weight)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    int64_t size[FL_WINDOW_AXES];
    int axes = axes_of(infer->op), before = FL_WINDOW_AXES - axes;
    fl_window_geometry window;
    if (!is_image(x, axes) || weight->ndim != axes + 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "takes x [n, in, %s] or [in, %s] and weight [out, in / groups, %s], got %s and %s",
                             SIZES[axes], SIZES[axes], SIZES[axes], fl_shape_text(tx, x), fl_shape_text(tw, weight));
    FL_TRY(read_window(&window, infer));
    FL_TRY(check_weight(infer, weight));
    FL_TRY(check_channels(infer, x, weight));
    memcpy(window.size + before, weight->dims + 2, sizeof *window.size * (size_t)axes);
    fl_conv_pad(&window, infer->attrs, axes);
    for (int d = 0; d < axes; d++) {
        int axis = fl_conv_channels(x->ndim, axes) + 1 + d;
        size[d] = fl_conv_keeps_size(infer->attrs)
            ? x->dims[axis]
            : fl_window_geometry_count(&window, before + d, x->dims[axis], false);
        if (size[d] <= 0)
            return fl_infer_fail(
                infer, FL_ERR_SHAPE,
                "the window of weight %s, spread by dilation %lld, is larger than axis %d of x %s with padding %lld",
                fl_shape_text(tw, weight), (long long)window.dilation[before + d], axis, fl_shape_text(tx, x),
                (long long)window.padding[before + d]);
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
    int axes = axes_of(infer->op);
    int64_t size[FL_WINDOW_AXES], groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    const fl_shape *g = &infer->in[FL_CONV_GRAD_G].shape, *w = &infer->in[FL_CONV_GRAD_OTHER].shape;
    FL_TRY(infer_dtypes(infer));
    FL_TRY(check_operands(infer, is_image(g, axes) && w->ndim == axes + 2));
    FL_TRY(fl_window_geometry_sizes(size, infer, FL_CONV_SIZE, "size", 0, axes));
    int64_t channels = w->dims[1] * (groups > 0 && groups <= INT32_MAX ? groups : 1);
    FL_TRY(image_shape(&infer->out[0].shape, infer, g, channels, size));
    return check_gradient(infer, g, &infer->out[0].shape, w);
}

static fl_status infer_weight_grad(fl_infer *infer)
{
    int axes = axes_of(infer->op);
    int64_t dims[FL_WINDOW_AXES + 2], groups = infer->attrs->at[FL_CONV_GROUPS].integer;
    const fl_shape *g = &infer->in[FL_CONV_GRAD_G].shape, *x = &infer->in[FL_CONV_GRAD_OTHER].shape;
    FL_TRY(infer_dtypes(infer));
    FL_TRY(check_operands(infer, is_image(g, axes) && x->ndim == g->ndim));
    FL_TRY(fl_window_geometry_sizes(dims + 2, infer, FL_CONV_SIZE, "size", 1, axes));
    int channels = fl_conv_channels(x->ndim, axes);
    dims[0] = g->dims[channels];
    dims[1] = x->dims[channels] / (groups > 0 ? groups : 1);
    FL_TRY(fl_shape_make(&infer->out[0].shape, infer->name, dims, axes + 2));
    return check_gradient(infer, g, x, &infer->out[0].shape);
}

/* Specs of x, weight and result among operands and results of any of the three ops. */
struct roles {
    const fl_spec *x, *weight, *y;
};

static struct roles roles_of(const fl_op *op, const fl_spec *in, const fl_spec *out)
{
    if (sum_of(op) == CONV_INPUT_GRAD) return (struct roles){out, &in[FL_CONV_GRAD_OTHER], &in[FL_CONV_GRAD_G]};
    if (sum_of(op) == CONV_WEIGHT_GRAD) return (struct roles){&in[FL_CONV_GRAD_OTHER], out, &in[FL_CONV_GRAD_G]};
    return (struct roles){&in[FL_CONV_X], &in[FL_CONV_WEIGHT], out};
}

/* ---- SBP ---- */

/* Adds a signature given as those of x, weight, bias and y. */
static void add(fl_sigs *sigs, fl_sbp x, fl_sbp weight, fl_sbp bias, fl_sbp y)
{
    if (sum_of(sigs->op) == CONV_INPUT_GRAD) FL_SIG(sigs, NULL, y, weight, x);
    else if (sum_of(sigs->op) == CONV_WEIGHT_GRAD) FL_SIG(sigs, NULL, y, x, weight);
    else FL_SIG(sigs, NULL, x, weight, bias, y);
}

/* A convolution and its two gradients are one sum of products over x, weight and y with another operand as its result;
** the result is a partial sum where an axis is split that it does not have. Images and channels may be split; not rows
** and columns, whose windows overlap. Of several groups a part holds whole ones. Linear in each operand, but a bias
** beside a partial operand would be added once per rank. */
static void sbp_conv(fl_sigs *sigs)
{
    struct roles r = roles_of(sigs->op, sigs->in, sigs->out);
    bool gives_x = r.x == sigs->out, gives_weight = r.weight == sigs->out,
         bias = sigs->nin == 3 && sigs->in[FL_CONV_BIAS].kind == FL_TENSOR;
    fl_sbp shared = bias ? FL_S(0) : FL_B;
    int64_t groups = sigs->attrs->at[FL_CONV_GROUPS].integer;
    int channels = fl_conv_channels(r.x->shape.ndim, axes_of(sigs->op));
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

/* A convolution and its gradients are the same products; without bias. Products of padding are counted. */
static int64_t flops_of(const fl_view *weight, const fl_view *y)
{
    return weight->size[0] ? 2 * y->numel * (weight->numel / weight->size[0]) : 0;
}

static int64_t flops_conv(const fl_kernel *kernel) { return flops_of(&kernel->in[FL_CONV_WEIGHT], &kernel->out[0]); }

static int64_t flops_input_grad(const fl_kernel *kernel)
{
    return flops_of(&kernel->in[FL_CONV_GRAD_OTHER], &kernel->in[FL_CONV_GRAD_G]);
}

static int64_t flops_weight_grad(const fl_kernel *kernel)
{
    return flops_of(&kernel->out[0], &kernel->in[FL_CONV_GRAD_G]);
}

/* ---- gradients ---- */

/* The op of this sum of products over windows of so many axes. */
static const fl_op *op_of(int sum, int axes)
{
    static const fl_op *ops[FL_WINDOW_AXES][CONV_SUMS];
    if (!ops[0][0]) {
        const fl_op *const all[FL_WINDOW_AXES][CONV_SUMS] = {
            {FL_OP_REF(conv1d), FL_OP_REF(conv1d_input_grad), FL_OP_REF(conv1d_weight_grad)},
            {FL_OP_REF(conv2d), FL_OP_REF(conv2d_input_grad), FL_OP_REF(conv2d_weight_grad)},
            {FL_OP_REF(conv3d), FL_OP_REF(conv3d_input_grad), FL_OP_REF(conv3d_weight_grad)},
        };
        memcpy(ops, all, sizeof ops);
    }
    return ops[axes - 1][sum];
}

/* A call of one of the three ops with the attributes of another. size: of the result, if the op has that attribute. */
static fl_tensor *expr_conv(fl_expr *expr, int sum, const fl_grad *g, fl_operand first, fl_operand second,
                            const fl_meta *size)
{
    fl_attrs attrs;
    int axes = axes_of(g->op);
    const fl_op *op = op_of(sum, axes);
    fl_attrs_init(&attrs, op);
    for (int i = FL_CONV_STRIDE; i <= FL_CONV_GROUPS; i++) attrs.at[i] = g->attrs->at[i];
    if (size) fl_attr_set_list(&attrs, FL_CONV_SIZE, size->shape.dims + size->shape.ndim - axes, axes);
    const fl_operand in[3] = {first, second};
    return fl_expr_call(expr, op, in, size ? 2 : 3, &attrs);
}

static uint32_t all_but_channels(int ndim, int axes)
{
    return ((1u << ndim) - 1) & ~(1u << fl_conv_channels(ndim, axes));
}

/* Each operand's gradient is the same sum of products with that operand as its result; the bias is added at all
** positions, so it gets the sum over them. */
static fl_status grad_conv(fl_grad *g)
{
    fl_expr c = {0};
    fl_operand dy = fl_of(g->gout[0]);
    fl_tensor *dx = NULL, *dw = NULL, *db = NULL;
    if (g->need[FL_CONV_X]) dx = expr_conv(&c, CONV_INPUT_GRAD, g, dy, g->in[FL_CONV_WEIGHT], g->in_meta[FL_CONV_X]);
    if (g->need[FL_CONV_WEIGHT])
        dw = expr_conv(&c, CONV_WEIGHT_GRAD, g, dy, g->in[FL_CONV_X], g->in_meta[FL_CONV_WEIGHT]);
    if (g->need[FL_CONV_BIAS])
        db = expr_sum(&c, g->gout[0], all_but_channels(g->out_meta[0]->shape.ndim, axes_of(g->op)), false);
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
    if (g->need[FL_CONV_GRAD_G]) dg = expr_conv(&c, CONV_FORWARD, g, dx, g->in[FL_CONV_GRAD_OTHER], NULL);
    if (g->need[FL_CONV_GRAD_OTHER])
        dw = expr_conv(&c, CONV_WEIGHT_GRAD, g, g->in[FL_CONV_GRAD_G], dx, g->in_meta[FL_CONV_GRAD_OTHER]);
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
    if (g->need[FL_CONV_GRAD_G]) dg = expr_conv(&c, CONV_FORWARD, g, g->in[FL_CONV_GRAD_OTHER], dw, NULL);
    if (g->need[FL_CONV_GRAD_OTHER])
        dx = expr_conv(&c, CONV_INPUT_GRAD, g, g->in[FL_CONV_GRAD_G], dw, g->in_meta[FL_CONV_GRAD_OTHER]);
    if (dg) g->gin[FL_CONV_GRAD_G] = fl_expr_take(&c, dg);
    if (dx) g->gin[FL_CONV_GRAD_OTHER] = fl_expr_take(&c, dx);
    return fl_expr_end(&c);
}

/* ---- descriptors ---- */

#define CONV_ATTRS "stride: ints = 1, padding: ints|same|valid = 0, dilation: ints = 1, groups: int = 1"
#define GRAD_ATTRS "stride: ints, padding: ints|same|valid, dilation: ints, groups: int, size: ints"

#define CONV(name_, axes_, doc_, ...)                       \
    FL_OP(name_) = {                                        \
        .name = #name_,                                     \
        .sig = #name_ "(x, weight, bias?, " CONV_ATTRS ")", \
        .nout = 1,                                          \
        .flags = FL_OP_FUNCTION_ONLY | FL_OP_LOW,           \
        .doc = doc_,                                        \
        .saves_in = 1u << FL_CONV_X | 1u << FL_CONV_WEIGHT, \
        .variant = CONV_VARIANT(CONV_FORWARD, axes_),       \
        .infer = infer_conv,                                \
        .sbp = sbp_conv,                                    \
        .cpu = kernel_conv,                                 \
        .flops = flops_conv,                                \
        .grad = grad_conv,                                  \
        FL_SAMPLES(__VA_ARGS__),                            \
    }

#define CONV_GRADIENT(name_, operand_, sum_, axes_, hook_, doc_, ...) \
    FL_OP(name_) = {                                                  \
        .name = #name_,                                               \
        .sig = #name_ "(g, " operand_ ", " GRAD_ATTRS ")",            \
        .nout = 1,                                                    \
        .flags = FL_OP_HIDDEN,                                        \
        .doc = doc_,                                                  \
        .saves_in = 1u << FL_CONV_GRAD_G | 1u << FL_CONV_GRAD_OTHER,  \
        .variant = CONV_VARIANT(sum_, axes_),                         \
        .infer = infer_##hook_,                                       \
        .sbp = sbp_conv,                                              \
        .cpu = kernel_##hook_,                                        \
        .flops = flops_##hook_,                                       \
        .grad = grad_##hook_,                                         \
        FL_SAMPLES(__VA_ARGS__),                                      \
    }

CONV(conv1d, 1,
     "Convolution of series x [n, in, length] (or one without n) with weight [out, in / groups, length], plus "
     "bias [out].",
     "flow.randn(3, 2, 7), flow.randn(4, 2, 3), flow.randn(4)",
     "flow.randn(2, 3, 8), flow.randn(2, 3, 3), nil, 2, 1, 2",
     "flow.randn(4, 6), flow.randn(4, 1, 2), flow.randn(4), {groups = 4}",
     "flow.randn(2, 2, 6), flow.randn(3, 2, 4), {padding = 'same'}");
CONV(conv2d, 2,
     "Convolution of images x [n, in, height, width] (or one image without n) with weight [out, in / groups, "
     "height, width], plus bias [out].",
     "flow.randn(3, 2, 5, 6), flow.randn(4, 2, 3, 2), flow.randn(4)",
     "flow.randn(2, 3, 6, 5), flow.randn(2, 3, 3, 3), nil, {2, 1}, {1, 2}",
     "flow.randn(2, 6, 5, 7), flow.randn(6, 1, 2, 3), flow.randn(6), 2, 1, {2, 1}, 6",
     "flow.randn(2, 4, 4, 4), flow.randn(6, 2, 1, 1), flow.randn(6), {groups = 2}",
     "flow.randn(3, 2, 4, 2), flow.randn(5, 2, 1, 1)",
     "flow.randn(2, 5, 6), flow.randn(4, 2, 3, 2), flow.randn(4), {2, 1}, {1, 2}",
     "flow.randn(4, 4, 5), flow.randn(6, 2, 2, 3), {groups = 2}",
     "flow.randn(2, 3, 5, 6), flow.randn(4, 3, 2, 4), flow.randn(4), {padding = 'same', dilation = {3, 1}}");
CONV(conv3d, 3,
     "Convolution of volumes x [n, in, depth, height, width] (or one without n) with weight [out, in / groups, "
     "depth, height, width], plus bias [out].",
     "flow.randn(3, 2, 3, 4, 5), flow.randn(4, 2, 2, 3, 2), flow.randn(4)",
     "flow.randn(2, 2, 5, 4, 3), flow.randn(2, 2, 3, 2, 1), nil, {2, 1, 1}, {1, 1, 0}, {2, 1, 1}",
     "flow.randn(4, 3, 3, 2), flow.randn(4, 2, 2, 2, 2), {groups = 2}",
     "flow.randn(2, 2, 3, 3, 3), flow.randn(2, 1, 2, 2, 2), flow.randn(2), {padding = 'same', groups = 2}");

CONV_GRADIENT(conv1d_input_grad, "weight", CONV_INPUT_GRAD, 1, input_grad,
              "Gradient of conv1d with respect to series of `size`.",
              "flow.randn(3, 4, 5), flow.randn(4, 2, 3), 1, 0, 1, 1, 7",
              "flow.randn(4, 3), flow.randn(4, 1, 2), 2, 1, 2, 4, 6");
CONV_GRADIENT(conv2d_input_grad, "weight", CONV_INPUT_GRAD, 2, input_grad,
              "Gradient of conv2d with respect to images of `size` (height, width).",
              "flow.randn(3, 4, 3, 5), flow.randn(4, 2, 3, 2), 1, 0, 1, 1, {5, 6}",
              "flow.randn(2, 2, 3, 7), flow.randn(2, 3, 3, 3), {2, 1}, {1, 2}, 1, 1, {6, 5}",
              "flow.randn(2, 6, 3, 4), flow.randn(6, 1, 2, 3), 2, 1, {2, 1}, 6, {5, 7}",
              "flow.randn(2, 6, 4, 4), flow.randn(6, 2, 1, 1), 1, 0, 1, 2, 4",
              "flow.randn(4, 3, 5), flow.randn(4, 2, 3, 2), 1, 0, 1, 1, {5, 6}",
              "flow.randn(2, 4, 5, 6), flow.randn(4, 3, 2, 4), 1, 'same', {3, 1}, 1, {5, 6}");
CONV_GRADIENT(conv3d_input_grad, "weight", CONV_INPUT_GRAD, 3, input_grad,
              "Gradient of conv3d with respect to volumes of `size` (depth, height, width).",
              "flow.randn(2, 4, 2, 2, 4), flow.randn(4, 2, 2, 3, 2), 1, 0, 1, 1, {3, 4, 5}",
              "flow.randn(4, 2, 2, 1), flow.randn(4, 2, 2, 2, 2), 1, 0, 1, 2, {3, 3, 2}");

CONV_GRADIENT(conv1d_weight_grad, "x", CONV_WEIGHT_GRAD, 1, weight_grad,
              "Gradient of conv1d with respect to a weight whose window has `size`.",
              "flow.randn(3, 4, 5), flow.randn(3, 2, 7), 1, 0, 1, 1, 3",
              "flow.randn(4, 3), flow.randn(4, 6), 2, 1, 2, 4, 2");
CONV_GRADIENT(conv2d_weight_grad, "x", CONV_WEIGHT_GRAD, 2, weight_grad,
              "Gradient of conv2d with respect to a weight whose window has `size` (height, width).",
              "flow.randn(3, 4, 3, 5), flow.randn(3, 2, 5, 6), 1, 0, 1, 1, {3, 2}",
              "flow.randn(2, 2, 3, 7), flow.randn(2, 3, 6, 5), {2, 1}, {1, 2}, 1, 1, 3",
              "flow.randn(2, 6, 3, 4), flow.randn(2, 6, 5, 7), 2, 1, {2, 1}, 6, {2, 3}",
              "flow.randn(2, 6, 4, 4), flow.randn(2, 4, 4, 4), 1, 0, 1, 2, 1",
              "flow.randn(4, 3, 5), flow.randn(2, 5, 6), 1, 0, 1, 1, {3, 2}",
              "flow.randn(2, 4, 5, 6), flow.randn(2, 3, 5, 6), 1, 'same', {3, 1}, 1, {2, 4}");
CONV_GRADIENT(conv3d_weight_grad, "x", CONV_WEIGHT_GRAD, 3, weight_grad,
              "Gradient of conv3d with respect to a weight whose window has `size` (depth, height, width).",
              "flow.randn(2, 4, 2, 2, 4), flow.randn(2, 2, 3, 4, 5), 1, 0, 1, 1, {2, 3, 2}",
              "flow.randn(4, 2, 2, 1), flow.randn(4, 3, 3, 2), 1, 0, 1, 2, 2");

/* ---- transposed convolutions ---- */

enum { TRANSPOSE_STRIDE, TRANSPOSE_PADDING, TRANSPOSE_OUTPUT_PADDING, TRANSPOSE_GROUPS, TRANSPOSE_DILATION };

/* One number for every axis of an attribute; fewer than `least` is an error. */
static fl_status read_sizes(int64_t *sizes, const fl_op *op, const fl_attr *attr, const char *name, int64_t least,
                            int axes)
{
    if (attr->count != 1 && attr->count != axes)
        return fl_fail(FL_ERR_VALUE, "%s: %s must be one number or %d, got %d", op->name, name, axes, attr->count);
    fl_window_geometry_read(sizes, attr, axes);
    for (int d = 0; d < axes; d++)
        if (sizes[d] < least || sizes[d] > INT32_MAX)
            return fl_fail(FL_ERR_VALUE, "%s: %s must be between %lld and %d, got %lld", op->name, name,
                           (long long)least, INT32_MAX, (long long)sizes[d]);
    return FL_OK;
}

/* The attributes and the operands of a transposed convolution. */
struct transposed {
    int axes;
    int64_t stride[FL_WINDOW_AXES], padding[FL_WINDOW_AXES], more[FL_WINDOW_AXES], dilation[FL_WINDOW_AXES], groups;
    int64_t size[FL_WINDOW_AXES]; /* of the result */
};

static fl_status check_transposed(const fl_op *op, int axes, const fl_operand *in, int64_t groups)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_shape *x = &in[FL_CONV_X].tensor->meta->shape, *w = &in[FL_CONV_WEIGHT].tensor->meta->shape;
    if (groups < 1 || groups > INT32_MAX)
        return fl_fail(FL_ERR_VALUE, "%s: groups must be between 1 and %d, got %lld", op->name, INT32_MAX,
                       (long long)groups);
    if (!is_image(x, axes) || w->ndim != axes + 2)
        return fl_fail(FL_ERR_SHAPE,
                       "%s: takes x [n, in, %s] or [in, %s] and weight [in, out / groups, %s], got %s "
                       "and %s",
                       op->name, SIZES[axes], SIZES[axes], SIZES[axes], fl_shape_text(tx, x), fl_shape_text(tw, w));
    int64_t channels = x->dims[fl_conv_channels(x->ndim, axes)];
    if (channels != w->dims[0] || channels % groups != 0)
        return fl_fail(FL_ERR_SHAPE, "%s: x %s has %lld channels, weight %s takes %lld in %lld groups", op->name,
                       fl_shape_text(tx, x), (long long)channels, fl_shape_text(tw, w), (long long)w->dims[0],
                       (long long)groups);
    if (in[FL_CONV_BIAS].kind != FL_TENSOR) return FL_OK;
    const fl_shape *b = &in[FL_CONV_BIAS].tensor->meta->shape;
    if (b->ndim == 1 && b->dims[0] == w->dims[1] * groups) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: bias must be [%lld] for weight %s in %lld groups, got %s", op->name,
                   (long long)(w->dims[1] * groups), fl_shape_text(tw, w), (long long)groups, fl_shape_text(tb, b));
}

static fl_status read_transposed(struct transposed *call, const fl_op *op, int axes, const fl_operand *in,
                                 const fl_attrs *attrs)
{
    const fl_shape *x = &in[FL_CONV_X].tensor->meta->shape, *w = &in[FL_CONV_WEIGHT].tensor->meta->shape;
    call->axes = axes;
    call->groups = attrs->at[TRANSPOSE_GROUPS].integer;
    FL_TRY(check_transposed(op, axes, in, call->groups));
    FL_TRY(read_sizes(call->stride, op, &attrs->at[TRANSPOSE_STRIDE], "stride", 1, axes));
    FL_TRY(read_sizes(call->padding, op, &attrs->at[TRANSPOSE_PADDING], "padding", 0, axes));
    FL_TRY(read_sizes(call->more, op, &attrs->at[TRANSPOSE_OUTPUT_PADDING], "output_padding", 0, axes));
    FL_TRY(read_sizes(call->dilation, op, &attrs->at[TRANSPOSE_DILATION], "dilation", 1, axes));
    for (int d = 0; d < axes; d++) {
        int64_t n = x->dims[x->ndim - axes + d];
        if (call->more[d] >= call->stride[d] && call->more[d] >= call->dilation[d])
            return fl_fail(FL_ERR_VALUE,
                           "%s: output_padding must be less than stride or dilation, got %lld, %lld and "
                           "%lld",
                           op->name, (long long)call->more[d], (long long)call->stride[d],
                           (long long)call->dilation[d]);
        call->size[d] = (n - 1) * call->stride[d] - 2 * call->padding[d] + (w->dims[2 + d] - 1) * call->dilation[d]
            + call->more[d] + 1;
        if (n < 1 || call->size[d] < 1)
            return fl_fail(FL_ERR_SHAPE, "%s: axis %d of the result would have size %lld", op->name, x->ndim - axes + d,
                           (long long)call->size[d]);
    }
    return FL_OK;
}

/* A transposed convolution is a convolution's gradient by its input. If output_padding is not below the stride, that
** convolution would give more than x has: the result is then cut out of one without padding, with zeros after it. */
static fl_tensor *expr_transposed_conv(fl_expr *expr, const struct transposed *call, fl_tensor *x, fl_tensor *weight)
{
    fl_attrs a;
    const fl_op *op = op_of(CONV_INPUT_GRAD, call->axes);
    int64_t whole[FL_WINDOW_AXES], none[FL_WINDOW_AXES] = {0};
    bool fits = true;
    if (expr->status != FL_OK) return NULL;
    for (int d = 0; d < call->axes; d++) {
        fits = fits && call->more[d] < call->stride[d];
        whole[d] = call->size[d] + 2 * call->padding[d] - call->more[d];
    }
    fl_attrs_init(&a, op);
    fl_attr_set_list(&a, FL_CONV_STRIDE, call->stride, call->axes);
    fl_attr_set_list(&a, FL_CONV_PADDING, fits ? call->padding : none, call->axes);
    fl_attr_set_list(&a, FL_CONV_DILATION, call->dilation, call->axes);
    fl_attr_set(&a, FL_CONV_GROUPS, call->groups);
    fl_attr_set_list(&a, FL_CONV_SIZE, fits ? call->size : whole, call->axes);
    fl_tensor *y = fl_expr_call(expr, op, (const fl_operand[]){fl_of(x), fl_of(weight)}, 2, &a);
    for (int d = 0; d < call->axes && !fits && y; d++) {
        int axis = y->meta->shape.ndim - call->axes + d;
        y = expr_set_in_zeros(expr, y, axis, 0, whole[d] + call->more[d]);
        y = expr_narrowed(expr, y, axis, call->padding[d], call->size[d]);
    }
    return y;
}

static fl_status transpose(fl_tensor **out, const fl_op *op, int axes, const fl_operand *in, const fl_attrs *attrs)
{
    struct transposed t;
    fl_expr c = {0};
    FL_TRY(read_transposed(&t, op, axes, in, attrs));
    fl_tensor *y = expr_transposed_conv(&c, &t, in[FL_CONV_X].tensor, in[FL_CONV_WEIGHT].tensor);
    if (in[FL_CONV_BIAS].kind == FL_TENSOR) {
        fl_shape shape = {axes + 1, {in[FL_CONV_BIAS].tensor->meta->shape.dims[0]}};
        for (int d = 0; d < axes; d++) shape.dims[1 + d] = 1;
        y = expr_add(&c, y, expr_reshape(&c, in[FL_CONV_BIAS].tensor, &shape));
    }
    *out = fl_expr_take(&c, y);
    return fl_expr_end(&c);
}

#define CONV_TRANSPOSE(name_, axes_, doc_, ...)                                                            \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)   \
    {                                                                                                      \
        return transpose(out, FL_OP_REF(name_), axes_, in, attrs);                                         \
    }                                                                                                      \
    FL_OP(name_) = {                                                                                       \
        .name = #name_,                                                                                    \
        .sig = #name_ "(x, weight, bias?, stride: ints = 1, padding: ints = 0, output_padding: ints = 0, " \
                      "groups: int = 1, dilation: ints = 1)",                                              \
        .nout = 1,                                                                                         \
        .flags = FL_OP_FUNCTION_ONLY | FL_OP_LOW,                                                          \
        .doc = doc_,                                                                                       \
        .body = body_##name_,                                                                              \
        FL_SAMPLES(__VA_ARGS__),                                                                           \
    }

CONV_TRANSPOSE(conv_transpose1d, 1,
               "Transposed convolution of series x [n, in, length] with weight [in, out / groups, "
               "length], plus bias [out].",
               "flow.randn(2, 3, 4), flow.randn(3, 2, 3), flow.randn(2), 2, 1, 1",
               "flow.randn(4, 3), flow.randn(4, 1, 2), nil, 1, 0, 0, 2, 2");
CONV_TRANSPOSE(conv_transpose2d, 2,
               "Transposed convolution of images x [n, in, height, width] with weight [in, out / "
               "groups, height, width], plus bias [out].",
               "flow.randn(2, 4, 3, 3), flow.randn(4, 2, 3, 2), flow.randn(2), {2, 1}, 1, {1, 0}",
               "flow.randn(2, 4, 3, 2), flow.randn(4, 1, 2, 2), flow.randn(2), 1, 0, 0, 2, 2",
               "flow.randn(2, 2, 3, 3), flow.randn(2, 2, 2, 2), nil, 1, 1, 1, 1, 2");
CONV_TRANSPOSE(conv_transpose3d, 3,
               "Transposed convolution of volumes x [n, in, depth, height, width] with weight [in, "
               "out / groups, depth, height, width], plus bias [out].",
               "flow.randn(2, 4, 2, 3, 2), flow.randn(4, 2, 2, 3, 2), flow.randn(2), {1, 2, 1}, {0, 1, 0}, {0, 1, 0}");
