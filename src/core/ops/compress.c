/*
** compress.c -- gradients in 2 bits per element, and their residuals: for stores that send them (kvstore.lua).
**
** An element at or above the threshold gives plus the threshold, one at or below its negative gives minus the
** threshold, others nothing. The given value is taken from the residual, to which the next gradient is added (1-bit
** SGD, Seide et al. 2014). A NaN is given as it is and leaves 0.
*/
#include "op/compress.h"
#include "cpu/compress.h"
#include "ops.h"

/* Codes: int32 [parts, words], enough words for the largest part. */
static fl_status check_codes(const fl_infer *infer, int operand)
{
    const fl_spec *codes = &infer->in[operand];
    if (codes->dtype == FL_INT32 && codes->shape.ndim == 2) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "takes codes of dtype int32 with 2 axes, got %s with %d",
                         fl_dtype_name(codes->dtype), codes->shape.ndim);
}

static fl_status infer_compress(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_COMPRESS_RESIDUAL].shape, *codes = &infer->in[FL_COMPRESS_CODES].shape;
    int64_t start, largest, rows = x->ndim ? x->dims[0] : 1, each = rows ? fl_shape_numel(x) / rows : 0;
    FL_TRY(fl_require_float(infer, FL_COMPRESS_RESIDUAL));
    FL_TRY(check_codes(infer, FL_COMPRESS_CODES));
    if (codes->dims[0] < 1 || codes->dims[0] > INT32_MAX)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes codes of one part or more, got %lld",
                             (long long)codes->dims[0]);
    fl_split(&start, &largest, rows, (int)codes->dims[0], 0);
    if (codes->dims[1] < (largest * each + FL_2BIT_ELEMENTS - 1) / FL_2BIT_ELEMENTS)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "%lld words per part are too few for %lld elements",
                             (long long)codes->dims[1], (long long)(largest * each));
    infer->out[0] = infer->in[FL_COMPRESS_RESIDUAL];
    return FL_OK;
}

static fl_status check_threshold(const char *who, double threshold)
{
    return threshold > 0 ? FL_OK : fl_fail(FL_ERR_VALUE, "%s: threshold %g must be above 0", who, threshold);
}

static fl_status check_compress(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_threshold("compress_2bit_", attrs->at[FL_COMPRESS_THRESHOLD].number);
}

/* As many parts as ranks: each has the rows and the codes of its own part. On one rank every split is the whole. */
static void sbp_compress(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_COMPRESS_RESIDUAL], *codes = &sigs->in_logical[FL_COMPRESS_CODES];
    if (x->ndim > 0 && sigs->in[FL_COMPRESS_CODES].shape.dims[0] == sigs->parts)
        FL_SIG(sigs, NULL, FL_S(0), FL_S(0), FL_S(0));
    for (int i = 0; i <= x->ndim && sigs->parts == 1; i++)
        for (int k = 0; k <= codes->ndim; k++) {
            fl_sbp residual = i < x->ndim ? FL_S(i) : FL_B;
            FL_SIG(sigs, NULL, residual, k < codes->ndim ? FL_S(k) : FL_B, residual);
        }
}

FL_OP(compress_2bit_) = {
    .name = "compress_2bit_",
    .sig = "compress_2bit_(residual, codes, ~threshold: float)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_PER_PART,
    .mutates = 1u << FL_COMPRESS_RESIDUAL | 1u << FL_COMPRESS_CODES,
    .doc = "Writes 2-bit codes of a residual, part by part of its rows, and takes from it what they stand for.",
    .infer = infer_compress,
    .check = check_compress,
    .sbp = sbp_compress,
    .cpu = fl_cpu_compress,
    FL_SAMPLES("flow.randn(7, 5), flow.zeros({2, 2}, {dtype = \"int32\"}), 0.5",
               "flow.randn(40), flow.zeros({1, 3}, {dtype = \"int32\"}), 1"),
};

static fl_status infer_expand(fl_infer *infer)
{
    int64_t count = infer->attrs->at[FL_EXPAND_COUNT].integer;
    const fl_attr *dtype = &infer->attrs->at[FL_EXPAND_DTYPE];
    FL_TRY(check_codes(infer, 0));
    if (count < 0 || count > infer->in[0].shape.dims[1] * FL_2BIT_ELEMENTS)
        return fl_infer_fail(infer, FL_ERR_VALUE, "%lld words do not hold %lld elements",
                             (long long)infer->in[0].shape.dims[1], (long long)count);
    infer->out[0].shape.ndim = 1;
    infer->out[0].shape.dims[0] = count;
    infer->out[0].dtype = dtype->given ? (fl_dtype)dtype->integer : FL_FLOAT32;
    if (!fl_dtype_is_float(infer->out[0].dtype))
        return fl_infer_fail(infer, FL_ERR_DTYPE, "gives floats, not %s", fl_dtype_name(infer->out[0].dtype));
    return FL_OK;
}

static fl_status check_expand(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_threshold("expand_2bit", attrs->at[FL_EXPAND_THRESHOLD].number);
}

FL_OP(expand_2bit) = {
    .name = "expand_2bit",
    .sig = "expand_2bit(codes, count: int, ~threshold: float, dtype: dtype = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "The sum over the rows of codes of what they stand for: `count` elements.",
    .infer = infer_expand,
    .check = check_expand,
    .cpu = fl_cpu_expand,
    FL_SAMPLES("flow.randint(-1000, 1000, {3, 2}):to(\"int32\"), 20, 0.5",
               "flow.zeros({1, 0}, {dtype = \"int32\"}), 0, 1"),
};
