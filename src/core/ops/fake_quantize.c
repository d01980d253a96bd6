/*
** fake_quantize.c -- floats rounded to what a small integer with a scale can hold, for networks that are to be
** quantized when they are trained: the gradient passes as if nothing were rounded, and is 0 where an element is out of
** range.
**
** As PyTorch has it: x is multiplied by the reciprocal of scale, ties are rounded to even numbers, NaN becomes
** quant_min, floats of 16 bits are computed in float32, and a zero_point of floats is added before rounding.
*/
#include "composite.h"
#include "expr.h"

#define HIDDEN_SAMPLES(...) SAMPLES(__VA_ARGS__), .flags = FL_OP_HIDDEN
#define WITH_GRADIENT(of_x, ...) HIDDEN_SAMPLES(__VA_ARGS__), FL_VJP(of_x, NULL, NULL, NULL)

FL_COMPOSITE(quantized_steps, "quantized_steps(x, inverse|n, zero_point|n, shifted: bool)",
             "choose(shifted, round(x * inverse + zero_point), round(x * inverse) + zero_point)",
             HIDDEN_SAMPLES("flow.randn(3, 4), 4, 1, false", "flow.randn(3, 4), 4, flow.rand(4), true"),
             "The whole number, not yet limited, that stands for each element.");

FL_COMPOSITE(quantized_in_range,
             "quantized_in_range(x, inverse|n, zero_point|n, quant_min: int, quant_max: int, shifted: bool)",
             "steps = quantized_steps(x, inverse, zero_point, shifted);"
             "logical_and(ge(steps, quant_min), le(steps, quant_max))",
             HIDDEN_SAMPLES("flow.randn(3, 4), 4, 1, -2, 3, false"), "Is that number from quant_min to quant_max.");

FL_COMPOSITE(fake_quantized,
             "fake_quantized(x, scale|n, inverse|n, zero_point|n, quant_min: int, quant_max: int, shifted: bool)",
             "steps = nan_as(quantized_steps(x, inverse, zero_point, shifted), quant_min);"
             "(clamp(steps, quant_min, quant_max) - zero_point) * scale",
             WITH_GRADIENT("where(quantized_in_range(x, inverse, zero_point, quant_min, quant_max, shifted), g, 0)",
                           "flow.randn(3, 4), 0.25, 4, 1, -2, 3, false",
                           "flow.randn(3, 4), flow.full({4}, 0.25), flow.full({4}, 4.0), 0, -2, 3, false"),
             "x rounded to numbers of steps of `scale`; inverse: its reciprocal.");

enum { FAKE_LEAST, FAKE_MOST, FAKE_SHIFTED }; /* attributes of fake_quantized */

/* The arguments of both ops: scale and zero_point broadcast to x. */
struct request {
    fl_tensor *x;
    fl_operand scale, zero_point;
    int64_t least, most;
};

static fl_status check_request(const struct request *request)
{
    char text[FL_META_TEXT];
    const fl_operand *zero = &request->zero_point;
    if (!fl_dtype_is_float(request->x->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "takes a float tensor, x is %s; write x:to(\"float32\")",
                       fl_meta_text(text, request->x->meta));
    if (request->least > request->most)
        return fl_fail(FL_ERR_VALUE, "quant_min must be at most quant_max, got %lld and %lld",
                       (long long)request->least, (long long)request->most);
    if (zero->kind == FL_NUM_FLOAT || zero->kind == FL_NUM_BOOL)
        return fl_fail(FL_ERR_DTYPE, "zero_point must be a whole number or a tensor");
    if (zero->kind == FL_NUM_INT && (zero->integer < request->least || zero->integer > request->most))
        return fl_fail(FL_ERR_VALUE, "zero_point must be in [quant_min, quant_max] = [%lld, %lld], got %lld",
                       (long long)request->least, (long long)request->most, (long long)zero->integer);
    if (fl_grad_enabled && request->scale.kind == FL_TENSOR && fl_requires_grad(request->scale.tensor))
        return fl_fail(FL_ERR_STATE, "there is no gradient in scale; write scale:detach()");
    return FL_OK;
}

static fl_status run_request(fl_tensor **out, const struct request *request)
{
    FL_TRY(check_request(request));
    fl_expr c = {0};
    fl_attrs attrs;
    fl_operand scale = request->scale, inverse;
    fl_dtype dtype = request->x->meta->dtype;
    if (scale.kind == FL_TENSOR) {
        scale = fl_of(expr_widen(&c, scale.tensor));
        inverse = fl_of(EXPR_CALL(&c, NULL, reciprocal, scale));
    } else {
        double number = scale.kind == FL_NUM_FLOAT ? scale.number : (double)scale.integer;
        inverse = fl_of_number(dtype == FL_FLOAT64 ? 1 / number : 1 / (float)number);
    }
    const fl_operand *zero = &request->zero_point;
    fl_attrs_init(&attrs, FL_OP_REF(fake_quantized));
    fl_attr_set(&attrs, FAKE_LEAST, request->least);
    fl_attr_set(&attrs, FAKE_MOST, request->most);
    fl_attr_set(&attrs, FAKE_SHIFTED, zero->kind == FL_TENSOR && fl_dtype_is_float(zero->tensor->meta->dtype));
    fl_tensor *x = expr_widen(&c, request->x);
    x = EXPR_CALL(&c, &attrs, fake_quantized, fl_of(x), scale, inverse, *zero);
    *out = fl_expr_take(&c, expr_cast(&c, x, dtype));
    return fl_expr_end(&c);
}

enum { FAKE_X, FAKE_SCALE, FAKE_ZERO_POINT };

/* ---- one scale ---- */

/* A number, or the only element of a tensor without axes. */
static fl_status as_number(fl_operand *number, fl_expr *expr, const fl_operand *given, const char *name)
{
    char text[FL_META_TEXT];
    *number = *given;
    if (given->kind != FL_TENSOR) return FL_OK;
    if (given->tensor->meta->numel != 1)
        return fl_fail(FL_ERR_SHAPE, "%s must have one element, got %s", name, fl_meta_text(text, given->tensor->meta));
    *number = fl_of(expr_reshape(expr, given->tensor, &(fl_shape){0}));
    return expr->status;
}

static fl_status body_per_tensor(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct request request = {.x = in[FAKE_X].tensor, .least = attrs->at[0].integer, .most = attrs->at[1].integer};
    fl_status status = as_number(&request.scale, &c, &in[FAKE_SCALE], "scale");
    if (status == FL_OK) status = as_number(&request.zero_point, &c, &in[FAKE_ZERO_POINT], "zero_point");
    if (status == FL_OK) status = run_request(out, &request);
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

FL_OP(fake_quantize_per_tensor_affine) = {
    .name = "fake_quantize_per_tensor_affine",
    .sig = "fake_quantize_per_tensor_affine(x, scale|n, zero_point|n, quant_min: int, quant_max: int)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "x rounded to the numbers (q - zero_point) * scale with a whole q from quant_min to quant_max; the gradient "
           "passes where q is in range.",
    .body = body_per_tensor,
    FL_SAMPLES("flow.randn(3, 4), 0.25, 1, -2, 3",
               "flow.randn(3, 4), flow.tensor(0.25), flow.tensor(1):to('int32'), 0, 7"),
};

/* ---- a scale for each channel ---- */

enum { CHANNEL_AXIS, CHANNEL_LEAST, CHANNEL_MOST };

/* A vector with an element for each position of the axis, of the same number of axes as x. */
static fl_status along_axis(fl_operand *aligned, fl_expr *expr, const fl_operand *given, const char *name,
                            const fl_meta *x, int axis)
{
    char tx[FL_META_TEXT], tv[FL_META_TEXT];
    const fl_meta *meta = given->tensor->meta;
    fl_shape shape = {.ndim = x->shape.ndim};
    if (meta->shape.ndim != 1 || meta->numel != x->shape.dims[axis])
        return fl_fail(FL_ERR_SHAPE, "%s must be a vector with an element for each position of axis %d of x %s, got %s",
                       name, axis, fl_meta_text(tx, x), fl_meta_text(tv, meta));
    for (int i = 0; i < shape.ndim; i++) shape.dims[i] = i == axis ? meta->numel : 1;
    *aligned = fl_of(expr_reshape(expr, given->tensor, &shape));
    return expr->status;
}

static fl_status body_per_channel(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_META_TEXT];
    struct request request = {.x = in[FAKE_X].tensor,
                              .least = attrs->at[CHANNEL_LEAST].integer,
                              .most = attrs->at[CHANNEL_MOST].integer};
    const fl_meta *x = request.x->meta;
    int64_t axis = attrs->at[CHANNEL_AXIS].integer;
    if (axis >= x->shape.ndim || axis < -x->shape.ndim)
        return fl_fail(FL_ERR_SHAPE, "axis %lld is out of range for x %s", (long long)axis, fl_meta_text(text, x));
    int at = fl_axis_of(&attrs->at[CHANNEL_AXIS], x->shape.ndim);
    fl_status status = along_axis(&request.scale, &c, &in[FAKE_SCALE], "scale", x, at);
    if (status == FL_OK) status = along_axis(&request.zero_point, &c, &in[FAKE_ZERO_POINT], "zero_point", x, at);
    if (status == FL_OK) status = run_request(out, &request);
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

FL_OP(fake_quantize_per_channel_affine) = {
    .name = "fake_quantize_per_channel_affine",
    .sig = "fake_quantize_per_channel_affine(x, scale, zero_point, axis: axis, quant_min: int, quant_max: int)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "fake_quantize_per_tensor_affine with a scale and a zero_point for each position of an axis.",
    .body = body_per_channel,
    FL_SAMPLES("flow.randn(3, 4), flow.tensor {0.25, 0.5, 0.125, 1}, flow.tensor({0, 1, -1, 0}):to('int32'), 1, -2, 3",
               "flow.randn(3, 4), flow.tensor {0.25, 0.5, 0.125}, flow.zeros(3), 0, -8, 7"),
};
