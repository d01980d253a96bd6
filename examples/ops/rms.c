/*
** rms.c -- an op of one's own in C: x / sqrt(mean(x^2) + eps) * weight along the last axis.
**
** See CONTRIBUTING.md, "Add an op with kernels": an op here is the same, but for FL_OPS_LIBRARY. Gradients are ops, so
** they run on every device and can be differentiated again.
*/
#include "ops/own_ops.h"

#include <math.h>

enum { X, WEIGHT };
enum { EPS };

static fl_status infer_rms(fl_infer *infer)
{
    const fl_shape *x = &infer->in[X].shape, *weight = &infer->in[WEIGHT].shape;
    FL_TRY(fl_require_float(infer, X));
    FL_TRY(fl_require_float(infer, WEIGHT));
    if (x->ndim == 0 || weight->ndim != 1 || weight->dims[0] != x->dims[x->ndim - 1])
        return fl_infer_fail(infer, FL_ERR_SHAPE, "weight must have as many elements as the last axis of x");
    infer->out[0].shape = *x;
    infer->out[0].dtype = fl_infer_promote(infer);
    return FL_OK;
}

/* Rows may lie on several ranks. */
static void sbp_rms(fl_sigs *sigs)
{
    for (int axis = 0; axis < sigs->in[X].shape.ndim - 1; axis++) FL_SIG(sigs, NULL, FL_S(axis), FL_B, FL_S(axis));
}

/* Rows of n elements, for float and double. */
#define ROWS(T)                                                                                    \
    static void rows_##T(T *out, const T *x, const T *weight, int64_t rows, int64_t n, double eps) \
    {                                                                                              \
        for (int64_t row = 0; row < rows; row++, x += n, out += n) {                               \
            double squares = 0;                                                                    \
            for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];                \
            T scale = (T)(1 / sqrt(squares / (double)n + eps));                                    \
            for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];                     \
        }                                                                                          \
    }
ROWS(float)
ROWS(double)

static fl_status kernel_rms(fl_kernel *kernel)
{
    fl_stage s; /* operands as contiguous arrays of float or double */
    int64_t n = kernel->in[WEIGHT].numel;
    double eps = fl_attr_number(&kernel->attrs->at[EPS]);
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    if (s.dtype == FL_FLOAT64) rows_double(s.out[0], s.in[X], s.in[WEIGHT], kernel->out[0].numel / n, n, eps);
    else rows_float(s.out[0], s.in[X], s.in[WEIGHT], kernel->out[0].numel / n, n, eps);
    return fl_stage_close(&s);
}

#ifdef WITH_CUDA
fl_status rms_on_device(fl_kernel *kernel); /* rms.cu */
#else
#define rms_on_device NULL
#endif

#define SQUARES "(mean(square(x), -1, true) + eps)"

FL_OP(rms) = {
    .name = "rms",
    .sig = "rms(x, weight, ~eps: float = 1e-6)",
    .nout = 1,
    .doc = "x / sqrt(mean(x^2) + eps) * weight, along the last axis.",
    .infer = infer_rms,
    .sbp = sbp_rms,
    .cpu = kernel_rms,
    .on_device = rms_on_device,
    FL_VJP("rsqrt" SQUARES " * (g * weight - x * mean(g * weight * x, -1, true) / " SQUARES ")",
           "g * x * rsqrt" SQUARES),
    FL_SAMPLES("flow.randn(4, 6), flow.randn(6)", "flow.randn(2, 3, 5), flow.randn(5), 0.1"),
};

FL_OPS_LIBRARY;
