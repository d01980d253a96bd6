/*
** elementwise.c -- descriptors of the elementwise ops, made from the rows of elementwise.def.
*/
#include "autograd/autograd.h"
#include "op/product.h"
#include "cpu/elementwise.h"
#include "ops.h"

#include <math.h>

enum { CLAMP_MIN, CLAMP_MAX };                /* attributes of clamp */
enum { MASKED_X, MASKED_MASK, MASKED_VALUE }; /* operands of masked_fill */

/* ---- inference ---- */

/* masked_fill keeps the dtype of x, which must be able to hold the value. */
static fl_status check_fill(const fl_infer *infer)
{
    const fl_spec *x = &infer->in[MASKED_X], *value = &infer->in[MASKED_VALUE];
    if (fl_dtype_categories[value->dtype] <= fl_dtype_categories[x->dtype]) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_DTYPE, "x is %s and cannot hold a value of %s", fl_dtype_name(x->dtype),
                         fl_dtype_name(value->dtype));
}

static fl_status infer_row(fl_infer *infer)
{
    const fl_ew_row *row = &fl_ew_rows[infer->op->row];
    if (infer->op->row == FL_EW_clamp_between) infer->name = "clamp";
    FL_TRY(fl_infer_broadcast_shape(infer));
    if (row->mask >= 0 && infer->in[row->mask].dtype != FL_BOOL)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "the condition must be bool, it is %s",
                             fl_dtype_name(infer->in[row->mask].dtype));
    if (row->rule == FL_EW_FILL) FL_TRY(check_fill(infer));
    fl_dtype dtype = row->rule == FL_EW_FILL
        ? infer->in[0].dtype
        : fl_infer_promote_some(infer, row->mask < 0 ? UINT32_MAX : ~(1u << row->mask));
    if (row->rule == FL_EW_FLOAT) dtype = fl_dtype_to_float(dtype);
    if (row->rule != FL_EW_LOGIC && !(row->categories >> fl_dtype_categories[dtype] & 1))
        return fl_infer_fail(infer, FL_ERR_DTYPE, "takes no %s tensors", fl_dtype_name(dtype));
    infer->out[0].dtype = fl_ew_is_predicate(row->rule) ? FL_BOOL : dtype;
    return FL_OK;
}

/* Bounds of an integer tensor are whole or infinite: there is no other value to bring an element to. */
static fl_status check_bound(const char *name, const fl_attr *bound, fl_dtype dtype)
{
    if (!bound->given || bound->kind != FL_NUM_FLOAT || bound->number == floor(bound->number)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "clamp: %s = %g is not an integer, but x is %s; convert x to a float first", name,
                   bound->number, fl_dtype_name(dtype));
}

static fl_status check_clamp(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_dtype dtype = in[0].tensor->meta->dtype;
    if (!fl_dtype_is_integer(dtype)) return FL_OK;
    FL_TRY(check_bound("min", &attrs->at[CLAMP_MIN], dtype));
    return check_bound("max", &attrs->at[CLAMP_MAX], dtype);
}

/* An integer tensor takes whole multiples. */
static fl_status check_value(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *value = &attrs->at[0];
    for (int i = 0; i < nin; i++)
        if (fl_dtype_is_float(in[i].tensor->meta->dtype)) return FL_OK;
    if (value->kind != FL_NUM_FLOAT || value->number == floor(value->number)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "addcmul: value = %g is not an integer, but x is %s; convert x to a float first",
                   value->number, fl_dtype_name(in[0].tensor->meta->dtype));
}

/* Neighbours of 16-bit floats are none of float32, in which they would be computed. */
static fl_status check_nextafter(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    for (int i = 0; i < nin; i++)
        if (fl_dtype_size(in[i].tensor->meta->dtype) == 2)
            return fl_fail(FL_ERR_DTYPE, "nextafter: takes float32 or float64, got %s",
                           fl_dtype_name(in[i].tensor->meta->dtype));
    return FL_OK;
}

static fl_status check_polygamma(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double n = attrs->at[0].number;
    if (n >= 0 && n == floor(n)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "polygamma: n must be an integer from 0 on, got %g", n);
}

static fl_status check_masked_fill(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return fl_require_fits("masked_fill", in[MASKED_X].tensor->meta->dtype, &in[MASKED_VALUE]);
}

/* ---- SBP of one hierarchy axis, beyond the splits ---- */

/* Partial sums may be added part by part. A whole operand or a number beside a partial one would be added once per
** rank. */
static void sbp_add(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 3, FL_PSUM);
}

/* Linear in each operand: one may be partial while the other is whole. A product of two sums is not a sum of
** products. */
static void sbp_mul(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1, FL_PSUM);
    fl_sbp_partial(sigs, 2, FL_PSUM);
}

/* x and one factor may be partial. */
static void sbp_addcmul(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1u << 0 | 1u << 1, FL_PSUM);
    fl_sbp_partial(sigs, 1u << 0 | 1u << 2, FL_PSUM);
}

/* x and the dividend may be partial. */
static void sbp_addcdiv(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1u << 0 | 1u << 1, FL_PSUM);
}

/* max(max x_r, max y_r) = max of max(x_r, y_r) over the ranks r, likewise min. A whole operand may stand beside a
** partial one: taking the same value once per rank changes neither maximum nor minimum. */
static void partial_of_any(fl_sigs *sigs, fl_sbp partial)
{
    fl_sbp_elementwise(sigs);
    for (uint32_t operands = 3; operands > 0; operands--) fl_sbp_partial(sigs, operands, partial);
}

static void sbp_maximum(fl_sigs *sigs) { partial_of_any(sigs, FL_PMAX); }
static void sbp_minimum(fl_sigs *sigs) { partial_of_any(sigs, FL_PMIN); }

/* Increasing functions commute with max and min. */
static void sbp_increasing(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1, FL_PMAX);
    fl_sbp_partial(sigs, 1, FL_PMIN);
}

/* clamp_between(x, min, max) increases in each of them. Its maximum with min and minimum with max distribute over each
** other; two partial operands are joined by that of the two which has their partial's name. */
static void sbp_clamp(fl_sigs *sigs)
{
    enum { X = 1, MIN = 2, MAX = 4 };
    static const uint32_t largest[] = {X, MIN, MAX, X | MIN}, smallest[] = {X, MIN, MAX, X | MAX, MIN | MAX};
    fl_sbp_elementwise(sigs);
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) fl_sbp_partial(sigs, largest[i], FL_PMAX);
    for (size_t i = 0; i < sizeof smallest / sizeof *smallest; i++) fl_sbp_partial(sigs, smallest[i], FL_PMIN);
}

/* The sign of NaN is 0, which may lose against the sign of a number that NaN wins over. */
static void sbp_sign(fl_sigs *sigs)
{
    if (fl_dtype_is_float(sigs->in[0].dtype)) fl_sbp_elementwise(sigs);
    else sbp_increasing(sigs);
}

/* cond picks the same operand in every part, so x and y may both be partial. Alone neither may: the ranks would add
** up the whole one. */
static void sbp_where(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 6, FL_PSUM);
}

/* ---- gradients that are more than one expression ---- */

/* The row's expression, or that of the approximation. */
static fl_status grad_gelu(fl_grad *g)
{
    if (g->attrs->at[FL_GELU_APPROXIMATE].integer)
        return FL_CALL(&g->gin[0], gelu_tanh_backward, fl_of(g->gout[0]), g->in[0]);
    return fl_vjp_eval(g);
}

/* t = tanh(u), u = c (x + a x^3): t' (u' + x u'' / 2 - x t u'^2) with t' = 1 - t^2 */
#define GELU_TANH "tanh(x * (square(x) * 0.035677408136300125 + 0.7978845608028654))"
#define GELU_SLOPE "(square(x) * 0.10703222440890037 + 0.7978845608028654)"
#define GELU_TANH_SECOND                                                                            \
    "g * grad * (1 - square(" GELU_TANH ")) * (" GELU_SLOPE " + square(x) * 0.10703222440890037 - " \
    "x * " GELU_TANH " * square(" GELU_SLOPE "))"

/* t = tanh(softplus(x)), s = sigmoid(x): s (1 - t^2) (2 + x (1 - s - 2 s t)) */
#define MISH_TANH "tanh(softplus(x, 1, 40))"
#define MISH_SECOND                                          \
    "g * grad * sigmoid(x) * (1 - square(" MISH_TANH ")) * " \
    "(x * (1 - sigmoid(x) - sigmoid(x) * " MISH_TANH " * 2) + 2)"

/* The gradient in the first operand has no closed form. In place it would be the first that is overwritten. */
static fl_status grad_second_only(fl_grad *g)
{
    if (g->need[0]) return fl_fail(FL_ERR_VALUE, "%s: there is no gradient in x; write x:detach()", g->op->name);
    return fl_vjp_eval(g);
}

/* ---- descriptors ---- */

#define VJP(...) FL_VJP(__VA_ARGS__)
#define NO_VJP .vjp = NULL
#define GELU_GRADIENT VJP("gelu_backward(g, x)"), .grad = grad_gelu
#define FILL_GRADIENT VJP("masked_fill(g, mask, 0)", NULL, "where(mask, g, 0)"), .check = check_masked_fill
#define CLAMP_GRADIENT VJP("clamp_backward(g, x, min, max)"), .check = check_clamp, .wider = "clamp_to"
#define ADD_GRADIENT VJP("g", "g"), .wider = "add_scaled"
#define SUB_GRADIENT VJP("g", "-g"), .wider = "sub_scaled"
#define ROUND_GRADIENT VJP("zeros_like(g)"), .wider = "round_decimals"
#define SECOND_ONLY(...) VJP(NULL, __VA_ARGS__), .grad = grad_second_only
#define POLYGAMMA_GRADIENT VJP("g * polygamma_of(x, n + 1)"), .check = check_polygamma
#define ADDCMUL_GRADIENT VJP("g", "g * tensor2 * value", "g * tensor1 * value"), .check = check_value
#define NEXTAFTER_CHECK NO_VJP, .check = check_nextafter
#define SAMPLES(...) \
    (const char *const[]) { __VA_ARGS__, NULL }
#define REAL "flow.randn(3, 4)"
#define UNIT "flow.rand(3, 4) * 1.6 - 0.8"
#define POSITIVE "flow.rand(3, 4) + 0.5"
#define PAIR "flow.randn(3, 4), flow.randn(3, 4)"
#define TRIPLE "flow.randn(3, 4), flow.randn(3, 4), flow.randn(3, 4)"
#define SPREAD "flow.randn(2, 1, 4), flow.randn(3, 1)"
#define NUMBER "flow.randn(3, 4), 1.5"
#define OVER "flow.randn(3, 4), flow.rand(4) + 0.5"
#define WHOLE "flow.randint(-9, 9, {3, 4}), flow.randint(0, 9, {4})"

#define EW(id, signature, shape, types, rule_, cost_ns_, flags_, sbp_, f, i, b, gradient, samples_, doc_) \
    FL_OP(id) = {.name = #id,                                                                             \
                 .sig = signature,                                                                        \
                 .doc = doc_,                                                                             \
                 .nout = 1,                                                                               \
                 .flags = FL_OP_ELEMENTWISE | (flags_),                                                   \
                 .infer = infer_row,                                                                      \
                 .sbp = sbp_,                                                                             \
                 .cpu = fl_cpu_elementwise,                                                               \
                 gradient,                                                                                \
                 .flat = fl_cpu_elementwise_flat,                                                         \
                 .samples = samples_,                                                                     \
                 .row = FL_EW_##id};
#include "op/elementwise.def"
#undef EW
