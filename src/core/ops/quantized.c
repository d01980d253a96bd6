/*
** quantized.c -- linear_quantized: x W^T + b for a weight of 8 or 4 bits per number with a scale for each group.
**
** A kernel reads the weight as it is. In float64 the weight becomes floats first, which is also what the gradient of x
** multiplies by; the weight itself has none.
*/
#include "composite.h"
#include "cpu/quantized.h"
#include "cpu/stage.h"
#include "cpu/copy.h"
#include "expr.h"
#include "memory/scratch.h"
#include "op/quantized.h"

static bool is_int4(const fl_attrs *attrs) { return attrs->at[FL_QUANTIZED_BITS].integer == 4; }

/* weight and scales belong together; *columns of the matrix. Operands from `weight` on. */
static fl_status check_matrix(fl_infer *infer, int weight, int64_t *columns)
{
    char tw[FL_SHAPE_TEXT], ts[FL_SHAPE_TEXT];
    const fl_spec *w = &infer->in[weight], *scales = &infer->in[weight + 1];
    int64_t bits = infer->attrs->at[FL_QUANTIZED_BITS].integer;
    if (bits != 8 && bits != 4)
        return fl_infer_fail(infer, FL_ERR_VALUE, "bits must be 8 or 4, got %lld", (long long)bits);
    fl_dtype dtype = bits == 8 ? FL_INT8 : FL_UINT8;
    if (w->dtype != dtype)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "a weight of %d bits is %s, got %s", (int)bits, fl_dtype_name(dtype),
                             fl_dtype_name(w->dtype));
    FL_TRY(fl_require_float(infer, weight + 1));
    bool fits = w->shape.ndim == 2 && scales->shape.ndim == 2 && w->shape.dims[0] == scales->shape.dims[0];
    *columns = fits ? w->shape.dims[1] * (bits == 4 ? 2 : 1) : 0;
    int64_t groups = fits ? scales->shape.dims[1] : 0;
    if (fits && groups > 0 && *columns % groups == 0 && (bits == 8 || *columns / groups % 2 == 0)) return FL_OK;
    return fl_infer_fail(
        infer, FL_ERR_SHAPE,
        "weight [out, in] and scales [out, groups] must have equal rows and groups of equal%s size, got "
        "%s and %s",
        bits == 4 ? ", even" : "", fl_shape_text(tw, &w->shape), fl_shape_text(ts, &scales->shape));
}

static fl_status infer_product(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT];
    int64_t columns = 0, rows;
    const fl_shape *x = &infer->in[FL_QUANTIZED_X].shape, *bias = &infer->in[FL_QUANTIZED_BIAS].shape;
    infer->name = "linear_quantized";
    FL_TRY(fl_require_float(infer, FL_QUANTIZED_X));
    if (infer->in[FL_QUANTIZED_X].dtype == FL_FLOAT64)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "the kernel takes no float64");
    FL_TRY(check_matrix(infer, FL_QUANTIZED_WEIGHT, &columns));
    rows = infer->in[FL_QUANTIZED_WEIGHT].shape.dims[0];
    if (x->ndim == 0 || x->dims[x->ndim - 1] != columns)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "x must be [..., %lld], got %s", (long long)columns,
                             fl_shape_text(tx, x));
    if (infer->in[FL_QUANTIZED_BIAS].kind != FL_NONE && (bias->ndim != 1 || bias->dims[0] != rows))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "bias must be [%lld], got %s", (long long)rows,
                             fl_shape_text(tx, bias));
    infer->out[0].shape = *x;
    infer->out[0].shape.dims[x->ndim - 1] = rows;
    infer->out[0].dtype = infer->in[FL_QUANTIZED_X].dtype;
    return FL_OK;
}

/* Rows of x give rows, rows of the weight columns. */
static void sbp_product(fl_sigs *sigs)
{
    int last = sigs->in[FL_QUANTIZED_X].shape.ndim - 1;
    for (int i = 0; i < last; i++) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_B, FL_B, FL_S(i));
    fl_sbp bias = sigs->in[FL_QUANTIZED_BIAS].kind == FL_NONE ? FL_B : FL_S(0);
    FL_SIG(sigs, NULL, FL_B, FL_S(0), FL_S(0), bias, FL_S(last));
}

static fl_status kernel_product(fl_kernel *kernel)
{
    fl_stage s;
    const fl_view *x = &kernel->in[FL_QUANTIZED_X], *w = &kernel->in[FL_QUANTIZED_WEIGHT];
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << FL_QUANTIZED_WEIGHT));
    const void *numbers = w->data;
    if (!w->contiguous) {
        int64_t strides[FL_MAX_NDIM];
        void *copy = fl_scratch(FL_KERNEL_SCRATCH + 1, (size_t)w->numel);
        if (!copy) return fl_fail(FL_ERR_MEMORY, "linear_quantized: out of memory for a copy of the weight");
        fl_view array = fl_view_array(w, copy, w->dtype, strides);
        FL_TRY(fl_cpu_copy(&array, w));
        numbers = copy;
    }
    fl_quantized matrix = {.rows = w->size[0],
                           .columns = x->size[x->ndim - 1],
                           .is_int4 = is_int4(kernel->attrs),
                           .matrix = numbers,
                           .scales = s.in[FL_QUANTIZED_SCALES]};
    matrix.group = matrix.columns / kernel->in[FL_QUANTIZED_SCALES].size[1];
    if (matrix.group == 0) matrix.group = 1; /* no columns */
    FL_TRY(fl_cpu_quantized(s.out[0], s.in[FL_QUANTIZED_X], s.in[FL_QUANTIZED_BIAS], kernel->out[0].numel / matrix.rows,
                            &matrix));
    return fl_stage_close(&s);
}

static int64_t flops_product(const fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_QUANTIZED_X];
    return 2 * kernel->out[0].numel * x->size[x->ndim - 1];
}

FL_OP(quantized_product) = {
    .name = "quantized_product",
    .sig = "quantized_product(x, weight, scales, bias?, bits: int = 8)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "linear_quantized by a kernel that reads the weight as it is; float32 and narrower.",
    .infer = infer_product,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .flops = flops_product,
    FL_VJP("matmul(g, cast_like(dequantize(weight, scales, bits), g))", NULL, NULL, "sum_to(g, bias)"),
};

/* x in the dtype of another tensor */
static fl_status body_cast_like(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    *out = fl_expr_take(&c, expr_cast(&c, in[0].tensor, in[1].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(cast_like) = {
    .name = "cast_like",
    .sig = "cast_like(x, y)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_VIEW,
    .doc = "x in the dtype of y.",
    .body = body_cast_like,
    FL_SAMPLES("flow.randn(3), flow.randn(2)"),
};

/* ---- the weight as floats ---- */

static fl_tensor *halves(fl_expr *expr, fl_tensor *bytes, int64_t groups)
{
    const fl_shape *shape = &bytes->meta->shape;
    fl_shape cut = {.ndim = 3, .dims = {shape->dims[0], groups, shape->dims[1] / groups}};
    fl_tensor *low = EXPR_CALL(expr, NULL, bitwise_and, fl_of(bytes), fl_of_integer(15));
    fl_tensor *high = EXPR_CALL(expr, NULL, floor_divide, fl_of(bytes), fl_of_integer(16));
    return expr_concatenated(expr, expr_reshape(expr, low, &cut), expr_reshape(expr, high, &cut), 2);
}

static fl_status body_dequantize(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_shape *w = &in[0].tensor->meta->shape, *scales = &in[1].tensor->meta->shape;
    if (w->ndim != 2 || scales->ndim != 2 || scales->dims[1] == 0 || w->dims[1] % scales->dims[1])
        return fl_fail(FL_ERR_SHAPE, "dequantize: weight [out, in] and scales [out, groups] do not fit");
    int64_t groups = scales->dims[1], columns = w->dims[1] * (is_int4(attrs) ? 2 : 1);
    fl_shape cut = {.ndim = 3, .dims = {w->dims[0], groups, columns / groups}};
    fl_shape whole = {.ndim = 2, .dims = {w->dims[0], columns}};
    fl_tensor *numbers = is_int4(attrs) ? halves(&c, in[0].tensor, groups) : expr_reshape(&c, in[0].tensor, &cut);
    numbers = expr_cast(&c, numbers, in[1].tensor->meta->dtype);
    if (is_int4(attrs)) numbers = expr_add_number(&c, numbers, -8);
    *out = fl_expr_take(&c, expr_reshape(&c, expr_mul(&c, numbers, expr_unsqueeze(&c, in[1].tensor, 2)), &whole));
    return fl_expr_end(&c);
}

FL_OP(dequantize) = {
    .name = "dequantize",
    .sig = "dequantize(weight, scales, bits: int = 8)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "A weight of 8 or 4 bits as floats of the dtype of scales.",
    .body = body_dequantize,
    FL_SAMPLES("flow.randint(-9, 9, {4, 6}):to('int8'), flow.rand(4, 2)",
               "flow.randint(0, 255, {4, 4}):to('uint8'), flow.rand(4, 2), 4"),
};

/* ---- linear_quantized ---- */

static fl_status body_linear_quantized(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_meta *x = in[FL_QUANTIZED_X].tensor->meta, *scales = in[FL_QUANTIZED_SCALES].tensor->meta;
    if (fl_dtype_compute(x->dtype) == FL_FLOAT32) {
        return FL_CALL_WITH(out, attrs, quantized_product, in[FL_QUANTIZED_X], in[FL_QUANTIZED_WEIGHT],
                            in[FL_QUANTIZED_SCALES], in[FL_QUANTIZED_BIAS]);
    }
    fl_tensor *weight = EXPR_CALL(&c, attrs, dequantize, in[FL_QUANTIZED_WEIGHT], in[FL_QUANTIZED_SCALES]);
    if (scales->dtype != x->dtype) weight = expr_cast(&c, weight, x->dtype);
    *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, linear, in[FL_QUANTIZED_X], fl_of(weight), in[FL_QUANTIZED_BIAS]));
    return fl_expr_end(&c);
}

FL_OP(linear_quantized) = {
    .name = "linear_quantized",
    .sig = "linear_quantized(x, weight, scales, bias?, bits: int = 8)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc =
        "x W^T + b for a weight of small integers with a scale for each group of columns: int8 [out, in], or two to a "
        "byte [out, in / 2].",
    .body = body_linear_quantized,
    FL_SAMPLES("flow.randn(3, 6), flow.randint(-9, 9, {4, 6}):to('int8'), flow.rand(4, 2) + 0.5, flow.randn(4)",
               "flow.randn(2, 9, 8), flow.randint(0, 255, {4, 4}):to('uint8'), flow.rand(4, 2) + 0.5, nil, 4"),
};
