/*
** linear_activated.c -- linear with an activation in one pass: it is applied to what the product has just written.
**
** Gradients are those of product_grad.c.
*/
#include "products.h"
#include "cpu/elementwise.h"
#include "dispatch/record.h"
#include "expr.h"

/* ---- inference ---- */

static fl_status infer_activated(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_linear_infer(infer);
}

/* The product before the activation, or nothing. */
static fl_status infer_gelu_kept(fl_infer *infer)
{
    FL_TRY(infer_activated(infer));
    infer->out[FL_GELU_KEPT] = infer->out[FL_ACTIVATED];
    if (!fl_gelu_keeps_product(infer->attrs)) infer->out[FL_GELU_KEPT].shape = (fl_shape){1, {0}};
    return FL_OK;
}

/* ---- SBP ---- */

/* An activation is not linear: partial sums are added up before it. */
static void sbp_activated(fl_sigs *sigs, fl_body body)
{
    fl_product p = fl_product_for(sigs->op->variant, sigs->attrs, sigs->in[FL_PRODUCT_X].shape.ndim,
                                  sigs->in[FL_PRODUCT_Y].shape.ndim);
    fl_product_split(sigs, &p);
    if (sigs->in_logical[0].dims[p.xk] > 0) fl_product_sig(sigs, body, FL_S(p.xk), FL_S(p.yk), FL_B, FL_B);
}

static fl_status body_relu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *sum = expr_whole(&c,
                                EXPR_CALL(&c, NULL, linear, in[FL_LINEAR_X], in[FL_LINEAR_WEIGHT], in[FL_LINEAR_BIAS]));
    out[0] = fl_expr_take(&c, EXPR_CALL(&c, NULL, relu, fl_of(sum)));
    return fl_expr_end(&c);
}

static fl_tensor *nothing_of(fl_expr *expr, fl_tensor *x)
{
    return expr_narrowed(expr, EXPR_CALL(expr, NULL, flatten, fl_of(x)), 0, 0, 0);
}

static fl_tensor *expr_gelu(fl_expr *expr, fl_tensor *x, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gelu));
    a.at[FL_GELU_APPROXIMATE] = attrs->at[FL_GELU_APPROXIMATE];
    return EXPR_CALL(expr, &a, gelu, fl_of(x));
}

static fl_status body_gelu_kept(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *sum = expr_whole(&c,
                                EXPR_CALL(&c, NULL, linear, in[FL_LINEAR_X], in[FL_LINEAR_WEIGHT], in[FL_LINEAR_BIAS]));
    fl_tensor *y = expr_gelu(&c, sum, attrs), *kept = fl_gelu_keeps_product(attrs) ? sum : nothing_of(&c, sum);
    out[FL_ACTIVATED] = fl_expr_take(&c, y);
    out[FL_GELU_KEPT] = fl_expr_take(&c, kept);
    return fl_expr_end(&c);
}

static void sbp_relu(fl_sigs *sigs) { sbp_activated(sigs, body_relu); }
static void sbp_gelu_kept(fl_sigs *sigs) { sbp_activated(sigs, body_gelu_kept); }

/* ---- kernels ---- */

/* activation: an elementwise op. `kept`: the result that holds the product before it, -1: none. */
static fl_status run_activated(fl_kernel *kernel, const fl_op *activation, const fl_ew_attr *attributes, int kept)
{
    fl_stage s;
    fl_gemm_axes axes;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, fl_product_readable(kernel)));
    fl_product_of_kernel(&axes, &s, s.out[kept < 0 ? 0 : kept]);
    axes.one.activation = fl_cpu_elementwise_flat(activation->row, s.dtype);
    axes.one.attributes = attributes;
    axes.one.activated = s.out[0];
    FL_TRY(fl_gemm_run_axes(&axes, s.dtype, kernel->name));
    return fl_stage_close(&s);
}

static fl_status kernel_relu(fl_kernel *kernel) { return run_activated(kernel, FL_OP_REF(relu), NULL, -1); }

static fl_status kernel_gelu_kept(fl_kernel *kernel)
{
    fl_ew_attr form[FL_EW_ATTRS] = {
        {(double)kernel->attrs->at[FL_GELU_APPROXIMATE].integer, kernel->attrs->at[FL_GELU_APPROXIMATE].integer}};
    return run_activated(kernel, FL_OP_REF(gelu), form, fl_gelu_keeps_product(kernel->attrs) ? FL_GELU_KEPT : -1);
}

/* ---- descriptors ---- */

FL_OP(linear_relu) = {
    .name = "linear_relu",
    .sig = "linear_relu(x, weight, bias?)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN | FL_OP_BY_STEP,
    .doc = "relu of linear, in one pass.",
    .saves_in = 1u << FL_LINEAR_X | 1u << FL_LINEAR_WEIGHT,
    .saves_out = 1u << FL_ACTIVATED,
    .variant = FL_PRODUCT_LINEAR,
    .infer = infer_activated,
    .sbp = sbp_relu,
    .cpu = kernel_relu,
    .flops = fl_product_flops,
    .grad = fl_linear_relu_grad,
    .samples = fl_linear_samples,
};

static const char *const gelu_samples[] = {"flow.randn(3, 4), flow.randn(5, 4), flow.randn(5), 'tanh'",
                                           "flow.randn(2, 3, 4), flow.randn(5, 4)",
                                           "flow.randn(4), flow.randn(3, 4), flow.randn(3), 'none', false", NULL};
FL_OP(linear_gelu_kept) = {
    .name = "linear_gelu_kept",
    .nout = 2,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .sig = "linear_gelu_kept(x, weight, bias?, approximate: none|tanh = none, keep: bool = true)",
    .doc = "gelu of linear, in one pass, and the result of linear for the gradient (empty without `keep`).",
    .saves_in = 1u << FL_LINEAR_X | 1u << FL_LINEAR_WEIGHT | 1u << FL_LINEAR_BIAS,
    .saves_out = 1u << FL_GELU_KEPT,
    .variant = FL_PRODUCT_LINEAR,
    .infer = infer_gelu_kept,
    .sbp = sbp_gelu_kept,
    .cpu = kernel_gelu_kept,
    .flops = fl_product_flops,
    .grad = fl_linear_gelu_grad,
    .samples = gelu_samples,
};

static fl_status body_linear_gelu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *results[2];
    const fl_op *op = FL_OP_REF(linear_gelu_kept);
    fl_attrs_init(&a, op);
    a.at[FL_GELU_APPROXIMATE] = attrs->at[FL_GELU_APPROXIMATE];
    fl_attr_set(&a, FL_GELU_KEEP, fl_record_wanted(op, in, nin));
    FL_TRY(fl_dispatch(results, op, in, nin, &a));
    fl_tensor_unref(results[FL_GELU_KEPT]);
    out[0] = results[FL_ACTIVATED];
    return FL_OK;
}

FL_OP(linear_gelu) = {
    .name = "linear_gelu",
    .sig = "linear_gelu(x, weight, bias?, approximate: none|tanh = none)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN | FL_OP_BY_STEP,
    .doc = "gelu of linear, in one pass.",
    .body = body_linear_gelu,
    .samples = fl_linear_samples,
};
