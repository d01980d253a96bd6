/*
** fft.c -- Fourier transforms along one axis: the ops of flow.fft.
**
** A complex tensor has a trailing axis of size 2: real and imaginary parts. `axis` and `length` count complex numbers.
** A transform is linear. The gradient of one that cuts its lines is one that fills them up, so three ops are closed
** under gradients: complex to complex, and real to the half spectrum and back, each the other's.
*/
#include "autograd/autograd.h"
#include "cpu/fft.h"
#include "cpu/stage.h"
#include "expr.h"

static bool complex_in(const fl_op *op) { return op->variant != FL_FFT_REAL_TO_HALF; }
static bool complex_out(const fl_op *op) { return op->variant != FL_FFT_HALF_TO_REAL; }

/* Signal axes of operand 0. */
static int axes_of(const fl_op *op, const fl_shape *shape) { return shape->ndim - (complex_in(op) ? 1 : 0); }

static fl_status infer_fft(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[0].shape;
    const fl_attr *at = infer->attrs->at;
    FL_TRY(fl_require_float(infer, 0));
    fl_shape_text(text, x);
    if (complex_in(infer->op) && (x->ndim < 2 || x->dims[x->ndim - 1] != 2))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes complex numbers [..., n, 2], x is %s", text);
    if (!complex_in(infer->op) && x->ndim < 1)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes a tensor with at least one axis, x is %s", text);
    if (x->ndim - complex_in(infer->op) + complex_out(infer->op) > FL_MAX_NDIM)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "has room for %d axes, x is %s", FL_MAX_NDIM, text);
    int64_t axis = at[FL_FFT_AXIS].integer;
    int ndim = axes_of(infer->op, x);
    if (axis < 0 || axis >= ndim)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "axis %lld is not one of the %d signal axes of %s", (long long)axis,
                             ndim, text);
    if (at[FL_FFT_LENGTH].integer < 1 || at[FL_FFT_SIZE].integer < 0)
        return fl_infer_fail(infer, FL_ERR_VALUE, "the length %lld must be at least 1",
                             (long long)at[FL_FFT_LENGTH].integer);
    FL_TRY(fl_infer_same(infer));
    fl_shape *out = &infer->out[0].shape;
    out->ndim = ndim;
    out->dims[axis] = at[FL_FFT_SIZE].integer;
    if (complex_out(infer->op)) out->dims[out->ndim++] = 2;
    for (int i = out->ndim; i < FL_MAX_NDIM; i++) out->dims[i] = 0;
    return FL_OK;
}

/* Other axes may be split. Sums of lines have sums of spectra. */
static void sbp_fft(fl_sigs *sigs)
{
    int ndim = axes_of(sigs->op, &sigs->in[0].shape), axis = (int)sigs->attrs->at[FL_FFT_AXIS].integer;
    for (int i = 0; i < ndim; i++)
        if (i != axis) FL_SIG(sigs, NULL, FL_S(i), FL_S(i));
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static fl_status kernel_fft(fl_kernel *kernel)
{
    fl_stage s;
    fl_fft job;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_fft_fill(&job, kernel->name, (fl_fft_kind)kernel->variant, kernel->attrs->at, &kernel->in[0], &kernel->out[0]);
    job.dtype = s.dtype;
    job.in = s.in[0];
    job.out = s.out[0];
    FL_TRY(fl_cpu_fft(&job));
    return fl_stage_close(&s);
}

/* The adjoint: the other sign of the exponent, results of the operand's size. A number inside a half spectrum counts
** twice on the way back, and arrives once. */
static fl_status grad_fft(fl_grad *g)
{
    const fl_op *const adjoint[] = {[FL_FFT_COMPLEX] = FL_OP_REF(fft_complex),
                                    [FL_FFT_REAL_TO_HALF] = FL_OP_REF(fft_from_half),
                                    [FL_FFT_HALF_TO_REAL] = FL_OP_REF(fft_to_half)};
    const fl_op *op = adjoint[g->op->variant];
    const fl_attr *at = g->attrs->at;
    fl_attrs attrs;
    if (!g->gout[0]) return FL_OK;
    fl_attrs_init(&attrs, op);
    fl_attr_set(&attrs, FL_FFT_AXIS, at[FL_FFT_AXIS].integer);
    fl_attr_set(&attrs, FL_FFT_LENGTH, at[FL_FFT_LENGTH].integer);
    fl_attr_set(&attrs, FL_FFT_SIZE, g->in_meta[0]->shape.dims[at[FL_FFT_AXIS].integer]);
    fl_attr_set(&attrs, FL_FFT_INVERSE, !at[FL_FFT_INVERSE].integer);
    fl_attr_set_number(&attrs, FL_FFT_SCALE, at[FL_FFT_SCALE].number);
    if (op->variant != FL_FFT_COMPLEX)
        fl_attr_set_number(&attrs, FL_FFT_INSIDE,
                           at[FL_FFT_INSIDE].number * (op->variant == FL_FFT_HALF_TO_REAL ? 0.5 : 2));
    return fl_dispatch(&g->gin[0], op, (const fl_operand[]){fl_of(g->gout[0])}, 1, &attrs);
}

static const char *const complex_samples[] = {
    "flow.randn(3, 8, 2), 1, 8, 8, false, 1",  "flow.randn(4, 6, 2), 0, 4, 4, true, 0.25",
    "flow.randn(2, 10, 2), 1, 7, 7, false, 1", "flow.randn(2, 3, 5, 2), 1, 4, 4, true, 0.5",
    "flow.randn(5, 2), 0, 9, 6, false, 1",     NULL};
FL_OP(fft_complex) = {
    .name = "fft_complex",
    .sig = "fft_complex(x, axis: int, length: int, size: int, inverse: bool, ~scale: float)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Fourier transforms along a signal axis of complex numbers [..., 2].",
    .variant = FL_FFT_COMPLEX,
    .infer = infer_fft,
    .sbp = sbp_fft,
    .cpu = kernel_fft,
    .grad = grad_fft,
    .samples = complex_samples,
};

static const char *const to_half_samples[] = {"flow.randn(3, 8), 1, 8, 5, false, 1, 1",
                                              "flow.randn(4, 7), 0, 6, 4, true, 0.5, 2",
                                              "flow.randn(2, 9), 1, 9, 5, false, 1, 1", NULL};
FL_OP(fft_to_half) = {
    .name = "fft_to_half",
    .sig = "fft_to_half(x, axis: int, length: int, size: int, inverse: bool, ~scale: float, ~inside: float)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Spectra of real lines along an axis: their first halves, complex numbers [..., 2].",
    .variant = FL_FFT_REAL_TO_HALF,
    .infer = infer_fft,
    .sbp = sbp_fft,
    .cpu = kernel_fft,
    .grad = grad_fft,
    .samples = to_half_samples,
};

static const char *const from_half_samples[] = {"flow.randn(3, 5, 2), 1, 8, 8, true, 0.125, 1",
                                                "flow.randn(4, 6, 2), 0, 6, 5, false, 0.5, 0.5",
                                                "flow.randn(2, 5, 2), 1, 9, 9, true, 1, 1", NULL};
FL_OP(fft_from_half) = {
    .name = "fft_from_half",
    .sig = "fft_from_half(x, axis: int, length: int, size: int, inverse: bool, ~scale: float, ~inside: float)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Real lines along an axis from the first halves of their spectra, complex numbers [..., 2].",
    .variant = FL_FFT_HALF_TO_REAL,
    .infer = infer_fft,
    .sbp = sbp_fft,
    .cpu = kernel_fft,
    .grad = grad_fft,
    .samples = from_half_samples,
};
