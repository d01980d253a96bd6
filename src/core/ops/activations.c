/*
** activations.c -- activations that are expressions in other ops; those of one element are rows of elementwise.def.
*/
#include "composite.h"
#include "expr.h"

FL_COMPOSITE(softmin, "softmin(x, axis: axis)", "softmax(-x, axis)", SAMPLES("flow.randn(3, 4), 1"),
             "softmax of -x along the axis.");

/* ---- prelu ---- */

/* weight [1] or [channels], the size of axis 1 of x */
static fl_status body_prelu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    const fl_shape *x = &in[0].tensor->meta->shape, *w = &in[1].tensor->meta->shape;
    int64_t channels = x->ndim > 1 ? x->dims[1] : 1, count = fl_shape_numel(w);
    if (w->ndim > 1 || (count != 1 && count != channels))
        return fl_fail(FL_ERR_SHAPE, "prelu: weight must have 1 element or %lld, the channels of x %s, got %s",
                       (long long)channels, fl_shape_text(tx, x), fl_shape_text(tw, w));
    fl_shape wide = {.ndim = count > 1 ? x->ndim - 1 : 0, .dims = {0}};
    for (int i = 0; i < wide.ndim; i++) wide.dims[i] = i ? 1 : count;
    fl_tensor *weight = expr_reshape(&c, in[1].tensor, &wide);
    *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, prelu_of, in[0], fl_of(weight)));
    return fl_expr_end(&c);
}

FL_OP(prelu) = {
    .name = "prelu",
    .sig = "prelu(x, weight)",
    .nout = 1,
    .doc = "x where positive, else weight * x; weight has one element, or one for each channel (axis 1).",
    .body = body_prelu,
    FL_SAMPLES("flow.randn(3, 4), flow.rand(4)", "flow.randn(2, 3, 4), flow.rand(1)",
               "flow.randn(2, 3, 4), flow.rand(3)"),
};

FL_COMPOSITE(
    rrelu, "rrelu(x, ~lower: float = 0.125, ~upper: float = 0.3333333333333333, training: bool = false)",
    "choose(training, prelu_of(x, rand_like(x) * (upper - lower) + lower), leaky_relu(x, (lower + upper) / 2))",
    SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0.25, 0.25, true"),
    "leaky_relu; in training with a random slope between lower and upper for each element.");

/* ---- glu ---- */

static fl_status body_glu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_META_TEXT];
    const fl_meta *x = in[0].tensor->meta;
    int64_t axis = attrs->at[0].integer;
    if (x->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "glu: x %s has no axis to halve", fl_meta_text(text, x));
    if (axis >= x->shape.ndim || axis < -x->shape.ndim)
        return fl_fail(FL_ERR_SHAPE, "glu: axis %lld is out of range for x %s", (long long)axis, fl_meta_text(text, x));
    int at = fl_axis_of(&attrs->at[0], x->shape.ndim);
    if (x->shape.dims[at] % 2)
        return fl_fail(FL_ERR_SHAPE, "glu: axis %d of x %s must have an even size", at, fl_meta_text(text, x));
    int64_t half = x->shape.dims[at] / 2;
    fl_tensor *first = expr_narrowed(&c, in[0].tensor, at, 0, half);
    fl_tensor *gate = expr_narrowed(&c, in[0].tensor, at, half, half);
    *out = fl_expr_take(&c, expr_mul(&c, first, EXPR_CALL(&c, NULL, sigmoid, fl_of(gate))));
    return fl_expr_end(&c);
}

FL_OP(glu) = {
    .name = "glu",
    .sig = "glu(x, axis: axis = -1)",
    .nout = 1,
    .doc = "The first half of x along the axis times the sigmoid of the second half.",
    .body = body_glu,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(4, 3), 0"),
};

/* ---- dropout of whole channels ---- */

/* Ones of the shape of x with `kept` axes, 1 along the others. */
static fl_tensor *ones_beside(fl_expr *expr, fl_tensor *x, int kept)
{
    for (int axis = kept; x && axis < x->meta->shape.ndim; axis++)
        if (x->meta->shape.dims[axis] > 1) x = expr_narrowed(expr, x, axis, 0, 1);
    return expr_ones(expr, x);
}

static fl_status check_probability(const char *who, double probability)
{
    if (probability >= 0 && probability <= 1) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: p %g is not between 0 and 1", who, probability);
}

enum { DROPOUT_P, DROPOUT_TRAINING }; /* attributes */

/* dropout(ones) with the axes of a mask that has one element per channel */
static fl_tensor *channel_noise(fl_expr *expr, fl_tensor *x, int kept, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(dropout));
    a.at[DROPOUT_P] = attrs->at[DROPOUT_P];
    return EXPR_CALL(expr, &a, dropout, fl_of(ones_beside(expr, x, kept)));
}

/* x [n, channels, d...] or, with `spatial` axes behind them, [channels, d...] */
static fl_status drop_channels(fl_tensor **out, const char *who, int spatial, const fl_operand *in,
                               const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_META_TEXT];
    fl_tensor *x = in[0].tensor;
    int ndim = x->meta->shape.ndim;
    FL_TRY(fl_require_float_tensor(who, "x", x));
    FL_TRY(check_probability(who, attrs->at[DROPOUT_P].number));
    if (ndim != spatial + 1 && ndim != spatial + 2)
        return fl_fail(FL_ERR_SHAPE, "%s: x must have %d or %d axes, got %s", who, spatial + 1, spatial + 2,
                       fl_meta_text(text, x->meta));
    if (!attrs->at[DROPOUT_TRAINING].integer || attrs->at[DROPOUT_P].number == 0) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    *out = fl_expr_take(&c, expr_mul(&c, x, channel_noise(&c, x, ndim - spatial, attrs)));
    return fl_expr_end(&c);
}

#define DROPOUT(name_, spatial, first, second)                                                           \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return drop_channels(out, #name_, spatial, in, attrs);                                           \
    }                                                                                                    \
    FL_OP(name_) = {.name = #name_,                                                                      \
                    .sig = #name_ "(x, ~p: float = 0.5, training: bool = true)",                         \
                    .nout = 1,                                                                           \
                    .doc = "dropout of whole channels: x [n, channels, ...], or one example without n.", \
                    .body = body_##name_,                                                                \
                    FL_SAMPLES(first, second)}

DROPOUT(dropout1d, 1, "flow.randn(2, 3, 4)", "flow.randn(3, 4), 0.25");
DROPOUT(dropout2d, 2, "flow.randn(2, 3, 4, 2)", "flow.randn(3, 4, 2), 0.5, false");
DROPOUT(dropout3d, 3, "flow.randn(2, 3, 2, 2, 2)", "flow.randn(3, 2, 2, 2), 0.25");

/* Dropped elements become selu's lower limit, then everything is scaled so that mean and variance stay. */
static fl_status drop_alpha(fl_tensor **out, const char *who, bool channels, const fl_operand *in,
                            const fl_attrs *attrs)
{
    const double limit = 1.7580993408473766;
    double p = attrs->at[DROPOUT_P].number;
    fl_expr c = {0};
    fl_tensor *x = in[0].tensor;
    FL_TRY(fl_require_float_tensor(who, "x", x));
    FL_TRY(check_probability(who, p));
    if (!attrs->at[DROPOUT_TRAINING].integer || p == 0) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    if (p == 1) *out = fl_expr_take(&c, expr_mul_number(&c, x, 0));
    else {
        double scale = 1 / __builtin_sqrt((limit * limit * p + 1) * (1 - p));
        fl_tensor *noise = channel_noise(&c, x, channels ? 2 : x->meta->shape.ndim, attrs);
        fl_tensor *kept = expr_mul_number(&c, noise, 1 - p); /* 0 or 1 */
        fl_tensor *shift = expr_mul_number(&c, expr_add_number(&c, kept, p - 1), limit * scale);
        *out = fl_expr_take(&c, expr_add(&c, expr_mul(&c, x, expr_mul_number(&c, kept, scale)), shift));
    }
    return fl_expr_end(&c);
}

#define ALPHA_DROPOUT(name_, channels, doc_)                                                             \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return drop_alpha(out, #name_, channels, in, attrs);                                             \
    }                                                                                                    \
    FL_OP(name_) = {.name = #name_,                                                                      \
                    .sig = #name_ "(x, ~p: float = 0.5, training: bool = false)",                        \
                    .nout = 1,                                                                           \
                    .doc = doc_,                                                                         \
                    .body = body_##name_,                                                                \
                    FL_SAMPLES("flow.randn(2, 3, 4)", "flow.randn(2, 3, 4), 0.25, true")}

ALPHA_DROPOUT(alpha_dropout, false, "Dropout that keeps the mean and the variance of what selu gives.");
ALPHA_DROPOUT(feature_alpha_dropout, true, "alpha_dropout of whole channels, axis 1.");

/* ---- gumbel_softmax ---- */

FL_COMPOSITE(
    gumbel_softmax, "gumbel_softmax(logits, ~tau: float = 1, hard: bool = false, axis: axis = -1)",
    "noise = -log(-log(raised(rand_like(logits), 1e-30)));"
    "soft = softmax((logits + noise) / tau, axis);"
    "place = cumsum(ones_like(logits), axis) - 1;"
    "choose(hard, soft + straight(eq(place, argmax(soft, axis, true)), soft), soft)",
    SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0.5, false, 0"),
    "A sample of the categorical distribution of the logits, relaxed by a softmax of temperature tau; hard: one 1 "
    "per line, with the gradient of the relaxed one.");

/* hit - soft as a constant: added to soft it gives hit, with the gradient of soft. */
static fl_status body_straight(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *plain;
    FL_TRY(fl_tensor_detach(&plain, in[1].tensor));
    *out = fl_expr_take(&c, expr_sub(&c, expr_cast(&c, in[0].tensor, plain->meta->dtype), plain));
    fl_tensor_unref(plain);
    return fl_expr_end(&c);
}

FL_OP(straight) = {
    .name = "straight",
    .sig = "straight(hit, soft)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "hit - soft, which has no gradient.",
    .body = body_straight,
    FL_SAMPLES("flow.randn(3):gt(0), flow.rand(3)"),
};
