/*
** unfold.c -- windows of images as columns (im2col), and columns added back into images (col2im): each other's
** gradients.
**
** x [n, channels, height, width] gives [n, channels * taps, windows]; col2im turns that round. They
** are unfold and fold of torch.nn.functional.
*/
#include "cpu/conv.h"
#include "cpu/stage.h"
#include "op/unfold.h"
#include "expr.h"

enum { KIND_UNFOLD, KIND_FOLD };

static fl_status read_window(fl_window_geometry *window, const fl_infer *infer)
{
    int first = infer->op->variant == KIND_FOLD ? FL_FOLD_WINDOW : 0;
    *window = fl_conv_no_window();
    FL_TRY(fl_window_geometry_sizes(window->size + 1, infer, first + FL_UNFOLD_KERNEL, "kernel_size", 1, 2));
    FL_TRY(fl_window_geometry_sizes(window->dilation + 1, infer, first + FL_UNFOLD_DILATION, "dilation", 1, 2));
    FL_TRY(fl_window_geometry_sizes(window->padding + 1, infer, first + FL_UNFOLD_PADDING, "padding", 0, 2));
    return fl_window_geometry_sizes(window->stride + 1, infer, first + FL_UNFOLD_STRIDE, "stride", 1, 2);
}

/* Windows on an image of this size. */
static fl_status windows_of(int64_t *count, const fl_infer *infer, const fl_window_geometry *window,
                            const int64_t *size)
{
    *count = 1;
    for (int axis = 1; axis < FL_WINDOW_AXES; axis++) {
        int64_t along = fl_window_geometry_count(window, axis, size[axis - 1], false);
        if (along <= 0)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "a window of %lld x %lld does not fit an image of %lld x %lld",
                                 (long long)window->size[1], (long long)window->size[2], (long long)size[0],
                                 (long long)size[1]);
        *count *= along;
    }
    return FL_OK;
}

static fl_status infer_unfold(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    fl_window_geometry w;
    int64_t count;
    const fl_shape *x = &infer->in[0].shape;
    FL_TRY(fl_require_float(infer, 0));
    if (x->ndim != 3 && x->ndim != 4)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "takes x [n, channels, height, width] or [channels, height, width], got %s",
                             fl_shape_text(text, x));
    FL_TRY(read_window(&w, infer));
    FL_TRY(windows_of(&count, infer, &w, x->dims + x->ndim - 2));
    int64_t dims[3] = {x->dims[0], x->dims[x->ndim - 3] * w.size[1] * w.size[2], count};
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, dims + 4 - x->ndim, x->ndim - 1);
}

static fl_status infer_fold(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    fl_window_geometry w;
    int64_t count, size[2];
    const fl_shape *x = &infer->in[0].shape;
    FL_TRY(fl_require_float(infer, 0));
    if (x->ndim != 2 && x->ndim != 3)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "takes x [n, channels * taps, windows] or [channels * taps, windows], got %s",
                             fl_shape_text(text, x));
    FL_TRY(fl_window_geometry_sizes(size, infer, FL_FOLD_SIZE, "output_size", 1, 2));
    FL_TRY(read_window(&w, infer));
    FL_TRY(windows_of(&count, infer, &w, size));
    int64_t taps = w.size[1] * w.size[2], rows = x->dims[x->ndim - 2];
    if (rows % taps != 0 || x->dims[x->ndim - 1] != count)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "x must have a multiple of %lld rows and %lld windows, got %s",
                             (long long)taps, (long long)count, fl_shape_text(text, x));
    int64_t dims[4] = {x->dims[0], rows / taps, size[0], size[1]};
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, dims + 3 - x->ndim, x->ndim + 1);
}

/* Images are independent, and a part of the channels is a part of the rows; linear. */
static void sbp_unfold(fl_sigs *sigs)
{
    bool folds = sigs->op->variant == KIND_FOLD;
    const fl_shape *image = folds ? &sigs->out[0].shape : &sigs->in[0].shape;
    int channels = image->ndim - 3;
    if (channels) FL_SIG(sigs, NULL, FL_S(0), FL_S(0));
    if (image->dims[channels] % sigs->parts == 0) FL_SIG(sigs, NULL, FL_S(channels), FL_S(channels));
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static fl_status kernel_unfold(fl_kernel *kernel)
{
    fl_stage s;
    bool folds = kernel->variant == KIND_FOLD;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_conv c = fl_unfold_of(kernel->attrs, folds ? &kernel->out[0] : &kernel->in[0], folds);
    if (folds) fl_cpu_fold(s.dtype, &c, s.out[0], s.in[0]);
    else fl_cpu_unfold(s.dtype, &c, s.out[0], s.in[0]);
    return fl_stage_close(&s);
}

/* Copies of elements: their gradients are added up where they come from. */
static fl_status grad_unfold(fl_grad *g)
{
    fl_attrs a;
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_attrs_init(&a, FL_OP_REF(col2im));
    for (int i = 0; i < FL_UNFOLD_ATTRS; i++) a.at[FL_FOLD_WINDOW + i] = g->attrs->at[i];
    fl_attr_set_list(&a, FL_FOLD_SIZE, x->dims + x->ndim - 2, 2);
    return FL_CALL_WITH(&g->gin[0], &a, col2im, fl_of(g->gout[0]));
}

/* A sum of columns: each gets the gradient of the place it is added to. */
static fl_status grad_fold(fl_grad *g)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(im2col));
    for (int i = 0; i < FL_UNFOLD_ATTRS; i++) a.at[i] = g->attrs->at[FL_FOLD_WINDOW + i];
    return FL_CALL_WITH(&g->gin[0], &a, im2col, fl_of(g->gout[0]));
}

#define WINDOW "kernel_size: ints, dilation: ints = 1, padding: ints = 0, stride: ints = 1"

FL_OP(im2col) = {
    .name = "im2col",
    .sig = "im2col(x, " WINDOW ")",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc =
        "The elements under every window of x [n, channels, height, width] as columns [n, channels * taps, windows].",
    .variant = KIND_UNFOLD,
    .infer = infer_unfold,
    .sbp = sbp_unfold,
    .cpu = kernel_unfold,
    .grad = grad_unfold,
    FL_SAMPLES("flow.randn(2, 4, 5, 4), {2, 3}", "flow.randn(3, 6, 5), 2, 2, 1, {2, 1}"),
};

FL_OP(col2im) = {
    .name = "col2im",
    .sig = "col2im(x, output_size: ints, " WINDOW ")",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Columns [n, channels * taps, windows] added to the elements of images that they come from in im2col.",
    .variant = KIND_FOLD,
    .infer = infer_fold,
    .sbp = sbp_unfold,
    .cpu = kernel_unfold,
    .grad = grad_fold,
    FL_SAMPLES("flow.randn(2, 24, 8), {5, 4}, {2, 3}", "flow.randn(12, 15), {6, 5}, 2, 2, 1, {2, 1}"),
};
