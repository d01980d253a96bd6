/*
** loss.c -- cross_entropy, nll_loss, binary_cross_entropy_with_logits.
**
** They are bodies: a hidden op (loss_rows.c) gives one number per row, then comes the reduction. The mean over rows is
** sum(loss) / sum(count), so that ranks which hold different rows, weights or ignored labels agree.
*/
#include "op/softmax.h"
#include "expr.h"
#include "op/loss.h"

/* Attributes of the public losses. */
enum { LOSS_REDUCTION, PUBLIC_IGNORE, PUBLIC_SMOOTHING };
enum { SOFTPLUS_THRESHOLD = 1 };               /* of softplus, after beta */
enum { LOGITS_POSITIVE = FL_LOSS_WEIGHT + 1 }; /* operand of binary_cross_entropy_with_logits */

static fl_tensor *sum_all(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, sum, fl_of(x)); }
static fl_tensor *mean_all(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, mean, fl_of(x)); }

/* loss per element, reduced as the word says */
static fl_tensor *reduced(fl_expr *expr, fl_tensor *loss, int64_t reduction)
{
    if (expr->status != FL_OK || reduction == FL_LOSS_NONE) return loss;
    return reduction == FL_LOSS_SUM ? sum_all(expr, loss) : mean_all(expr, loss);
}

/* loss per row, the mean over what counts */
static fl_tensor *reduced_rows(fl_expr *expr, fl_tensor *loss, fl_tensor *count, int64_t reduction)
{
    if (expr->status != FL_OK || reduction != FL_LOSS_MEAN) return reduced(expr, loss, reduction);
    fl_tensor *plain;
    expr->status = fl_tensor_detach(&plain, count);
    if (expr->status != FL_OK) return NULL;
    fl_tensor *mean = expr_div(expr, sum_all(expr, loss), expr_whole(expr, sum_all(expr, plain)));
    fl_tensor_unref(plain);
    return mean;
}

static fl_status check_smoothing(double smoothing)
{
    if (smoothing >= 0 && smoothing <= 1) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "cross_entropy: label_smoothing must be between 0 and 1, got %g", smoothing);
}

/* target - label_smoothing (target - 1 / classes), times weight */
static fl_tensor *share_weights(fl_expr *expr, const fl_operand *in, int axis, double smoothing)
{
    const fl_shape *shape = &in[FL_LOSS_INPUT].tensor->meta->shape;
    fl_tensor *shares = in[FL_LOSS_TARGET].tensor;
    if (smoothing > 0)
        shares = expr_add_number(expr, expr_mul_number(expr, shares, 1 - smoothing),
                                 smoothing / (double)shape->dims[axis]);
    if (in[FL_LOSS_WEIGHT].kind != FL_TENSOR) return shares;
    fl_shape wide = {.ndim = shape->ndim - axis, .dims = {shape->dims[axis]}};
    for (int i = 1; i < wide.ndim; i++) wide.dims[i] = 1;
    return expr_mul(expr, shares, expr_reshape(expr, in[FL_LOSS_WEIGHT].tensor, &wide));
}

/* Probabilities of classes, as many as there are scores. */
static bool holds_shares(const fl_operand *in)
{
    const fl_meta *input = in[FL_LOSS_INPUT].tensor->meta, *target = in[FL_LOSS_TARGET].tensor->meta;
    return fl_dtype_is_float(target->dtype) && fl_dtype_is_float(input->dtype) && input->shape.ndim > 0
        && fl_shape_equal(&input->shape, &target->shape);
}

/* The target holds probabilities: the mean is one over rows. */
static fl_status cross_entropy_of_shares(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char ti[FL_META_TEXT], tt[FL_META_TEXT];
    const fl_meta *input = in[FL_LOSS_INPUT].tensor->meta;
    const fl_operand *weight = &in[FL_LOSS_WEIGHT];
    int axis = fl_loss_class_axis(input->shape.ndim);
    int64_t classes = input->shape.dims[axis];
    if (weight->kind == FL_TENSOR && fl_shape_numel(&weight->tensor->meta->shape) != classes)
        return fl_fail(FL_ERR_SHAPE, "cross_entropy: weight must have one number for each class of input %s, got %s",
                       fl_meta_text(ti, input), fl_meta_text(tt, weight->tensor->meta));
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(log_softmax));
    fl_attr_set(&a, FL_SOFTMAX_AXIS, axis);
    fl_tensor *logs = EXPR_CALL(&c, &a, log_softmax, in[FL_LOSS_INPUT]);
    fl_tensor *shares = share_weights(&c, in, axis, attrs->at[PUBLIC_SMOOTHING].number);
    fl_tensor *loss = expr_neg(&c, expr_sum(&c, expr_mul(&c, logs, shares), 1u << axis, false));
    out[0] = fl_expr_take(&c, reduced(&c, loss, attrs->at[LOSS_REDUCTION].integer));
    return fl_expr_end(&c);
}

/* (input, target, weight?, reduction, ignore_index, label_smoothing) */
static fl_status body_cross_entropy(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cross_entropy_rows));
    a.at[FL_LOSS_IGNORE] = attrs->at[PUBLIC_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = attrs->at[PUBLIC_SMOOTHING];
    FL_TRY(check_smoothing(attrs->at[PUBLIC_SMOOTHING].number));
    if (holds_shares(in)) return cross_entropy_of_shares(out, in, attrs);
    fl_tensor *loss = EXPR_CALL(&c, &a, cross_entropy_rows, in[FL_LOSS_INPUT], in[FL_LOSS_TARGET], in[FL_LOSS_WEIGHT]);
    fl_tensor *count = loss ? c.owned[FL_SCORES_ROWS_COUNT] : NULL;
    out[0] = fl_expr_take(&c, reduced_rows(&c, loss, count, attrs->at[LOSS_REDUCTION].integer));
    return fl_expr_end(&c);
}

static fl_status body_nll_loss(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(nll_rows));
    a.at[FL_LOSS_IGNORE] = attrs->at[PUBLIC_IGNORE];
    fl_tensor *loss = EXPR_CALL(&c, &a, nll_rows, in[FL_LOSS_INPUT], in[FL_LOSS_TARGET], in[FL_LOSS_WEIGHT]);
    fl_tensor *count = loss ? c.owned[FL_LOGS_ROWS_COUNT] : NULL;
    out[0] = fl_expr_take(&c, reduced_rows(&c, loss, count, attrs->at[LOSS_REDUCTION].integer));
    return fl_expr_end(&c);
}

static fl_status same_shapes(const char *who, const fl_operand *in)
{
    char input[FL_META_TEXT], target[FL_META_TEXT];
    if (fl_shape_equal(&in[FL_LOSS_INPUT].tensor->meta->shape, &in[FL_LOSS_TARGET].tensor->meta->shape)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: input %s and target %s differ in shape", who,
                   fl_meta_text(input, in[FL_LOSS_INPUT].tensor->meta),
                   fl_meta_text(target, in[FL_LOSS_TARGET].tensor->meta));
}

/* log(1 + e^x) - x y, per element. If positive ones have a weight p: (1 - y) x + (1 + (p - 1) y) log(1 + e^-x) */
static fl_tensor *logits_loss(fl_expr *expr, fl_tensor *x, fl_tensor *y, fl_tensor *positive)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(softplus));
    fl_attr_set_number(&a, SOFTPLUS_THRESHOLD, 40); /* from there on softplus is x in float64 too */
    if (!positive) return expr_sub(expr, EXPR_CALL(expr, &a, softplus, fl_of(x)), expr_mul(expr, x, y));
    fl_tensor *weight = expr_add_number(expr, expr_mul(expr, y, expr_add_number(expr, positive, -1)), 1);
    fl_tensor *soft = EXPR_CALL(expr, &a, softplus, fl_of(expr_neg(expr, x)));
    return expr_add(expr, expr_sub(expr, x, expr_mul(expr, x, y)), expr_mul(expr, weight, soft));
}

static fl_status body_bce_with_logits(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(fl_require_float_tensor("binary_cross_entropy_with_logits", "input", in[FL_LOSS_INPUT].tensor));
    FL_TRY(same_shapes("binary_cross_entropy_with_logits", in));
    fl_tensor *positive = in[LOGITS_POSITIVE].kind == FL_TENSOR ? in[LOGITS_POSITIVE].tensor : NULL;
    fl_tensor *loss = logits_loss(&c, in[FL_LOSS_INPUT].tensor, in[FL_LOSS_TARGET].tensor, positive);
    if (in[FL_LOSS_WEIGHT].kind == FL_TENSOR) loss = expr_mul(&c, loss, in[FL_LOSS_WEIGHT].tensor);
    out[0] = fl_expr_take(&c, reduced(&c, loss, attrs->at[LOSS_REDUCTION].integer));
    return fl_expr_end(&c);
}

static const char *const cross_entropy_samples[] = {
    "flow.randn(6, 5), flow.tensor{0, 4, 1, 2, 2, 1}",
    "flow.randn(6, 5), flow.tensor{0, -100, 1, 2, 2, 1}, nil, 'sum', -100, 0.2",
    "flow.randn(3, 4, 2), flow.randint(0, 4, {3, 2}), nil, 'none'",
    "flow.randn(3, 4), flow.randn(3, 4):softmax(1), flow.rand(4) + 0.5, 'mean', -100, 0.1", NULL};
FL_OP(cross_entropy) = {
    .name = "cross_entropy",
    .flags = FL_OP_WIDE,
    .sig = "cross_entropy(input, target, weight?, reduction: mean|sum|none = mean, ~ignore_index: int = -100, "
           "~label_smoothing: float = 0)",
    .nout = 1,
    .doc = "Negative log-likelihood of class labels under the softmax of scores: input [n, classes, ...], target [n, "
           "...], or probabilities of the shape of input.",
    .body = body_cross_entropy,
    .samples = cross_entropy_samples,
};

static const char *const nll_samples[] = {"flow.randn(6, 5), flow.tensor{0, 4, 1, -100, 2, 1}",
                                          "flow.randn(3, 4, 2), flow.randint(0, 4, {3, 2}), nil, 'sum'", NULL};
FL_OP(nll_loss) = {
    .name = "nll_loss",
    .flags = FL_OP_WIDE,
    .sig = "nll_loss(input, target, weight?, reduction: mean|sum|none = mean, ~ignore_index: int = -100)",
    .nout = 1,
    .doc = "Negative log-likelihood of class labels: input holds log-probabilities [n, classes, ...], target [n, ...].",
    .body = body_nll_loss,
    .samples = nll_samples,
};

static const char *const bce_samples[] = {"flow.randn(3, 4) * 3, flow.rand(3, 4)",
                                          "flow.randn(4), flow.tensor{0, 1, 1, 0}:to('float32'), nil, 'sum'",
                                          "flow.randn(3, 4), flow.rand(3, 4), nil, 'mean', flow.rand(4) + 0.5", NULL};
FL_OP(binary_cross_entropy_with_logits) = {
    .name = "binary_cross_entropy_with_logits",
    .flags = FL_OP_WIDE,
    .sig = "binary_cross_entropy_with_logits(input, target, weight?, reduction: mean|sum|none = mean, pos_weight?)",
    .nout = 1,
    .doc = "Cross-entropy of probabilities `target` under the sigmoid of scores `input`, times weight; pos_weight "
           "multiplies the "
           "part of the probability.",
    .body = body_bce_with_logits,
    .samples = bce_samples,
};
