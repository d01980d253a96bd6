/*
** losses.c -- losses that are expressions in other ops, of what elementwise.def has of one element.
*/
#include "composite.h"
#include "expr.h"
#include "op/loss.h"

#define WIDE_SAMPLES(...) SAMPLES(__VA_ARGS__), .flags = FL_OP_WIDE

#define REDUCTION "reduction: mean|sum|none = mean"

/* ---- the common part ---- */

/* input itself, where it is of floats and has the shape of target. */
static fl_status body_loss_input(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char ti[FL_META_TEXT], tt[FL_META_TEXT];
    const fl_meta *input = in[FL_LOSS_INPUT].tensor->meta, *target = in[FL_LOSS_TARGET].tensor->meta;
    if (!fl_dtype_is_float(input->dtype))
        return fl_fail(FL_ERR_DTYPE, "takes a float tensor, input is %s; write input:to(\"float32\")",
                       fl_meta_text(ti, input));
    if (!fl_shape_equal(&input->shape, &target->shape))
        return fl_fail(FL_ERR_SHAPE, "input %s and target %s differ in shape", fl_meta_text(ti, input),
                       fl_meta_text(tt, target));
    *out = fl_tensor_ref(in[FL_LOSS_INPUT].tensor);
    return FL_OK;
}

FL_OP(loss_input) = {
    .name = "loss_input",
    .sig = "loss_input(input, target)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_VIEW,
    .doc = "input, which must be of floats and of the shape of target.",
    .body = body_loss_input,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 4)"),
};

enum { EACH_LOSS, EACH_WEIGHT }; /* of reduced and weighted */
enum { EACH_REDUCTION };

static fl_status body_reduced(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *loss = in[EACH_LOSS].tensor;
    switch (attrs->at[EACH_REDUCTION].integer) {
    case FL_LOSS_MEAN: return FL_CALL(out, mean, fl_of(loss));
    case FL_LOSS_SUM: return FL_CALL(out, sum, fl_of(loss));
    default: *out = fl_tensor_ref(loss); return FL_OK;
    }
}

FL_OP(reduced) = {
    .name = "reduced",
    .sig = "reduced(loss, " REDUCTION ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_VIEW,
    .doc = "Mean or sum of a loss per element, or itself.",
    .body = body_reduced,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 'sum'", "flow.randn(3, 4), 'none'"),
};

/* The mean of a weighted loss is divided by the sum of the weights. */
static fl_status body_weighted(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char tl[FL_META_TEXT], tw[FL_META_TEXT];
    int64_t reduction = attrs->at[EACH_REDUCTION].integer;
    fl_tensor *loss = in[EACH_LOSS].tensor;
    if (in[EACH_WEIGHT].kind != FL_TENSOR) return body_reduced(out, in, 1, attrs);
    if (!fl_shape_equal(&loss->meta->shape, &in[EACH_WEIGHT].tensor->meta->shape))
        return fl_fail(FL_ERR_SHAPE, "input %s and weight %s differ in shape", fl_meta_text(tl, loss->meta),
                       fl_meta_text(tw, in[EACH_WEIGHT].tensor->meta));
    fl_tensor *product = expr_mul(&c, loss, in[EACH_WEIGHT].tensor);
    if (reduction != FL_LOSS_NONE) product = EXPR_CALL(&c, NULL, sum, fl_of(product));
    if (reduction == FL_LOSS_MEAN)
        product = expr_div(&c, product, expr_whole(&c, EXPR_CALL(&c, NULL, sum, in[EACH_WEIGHT])));
    *out = fl_expr_take(&c, product);
    return fl_expr_end(&c);
}

FL_OP(weighted) = {
    .name = "weighted",
    .sig = "weighted(loss, weight?, " REDUCTION ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_VIEW,
    .doc = "Mean or sum of a loss per element with weights, or their product.",
    .body = body_weighted,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), flow.rand(3, 4) + 0.5", "flow.randn(3), flow.rand(3), 'none'"),
};

/* ---- differences ---- */

#define PAIR "flow.randn(3, 4), flow.randn(3, 4)"
#define PAIR_OF_3 "flow.randn(3), flow.randn(3)"

FL_COMPOSITE(l1_loss, "l1_loss(input, target, " REDUCTION ", weight?)",
             "weighted(abs(loss_input(input, target) - target), weight, reduction)",
             WIDE_SAMPLES(PAIR, PAIR_OF_3 ", 'sum'", PAIR ", 'none'", PAIR ", 'mean', flow.rand(3, 4) + 0.5"),
             "Absolute difference of input and target.");

FL_COMPOSITE(mse_loss, "mse_loss(input, target, " REDUCTION ", weight?)",
             "weighted(square(loss_input(input, target) - target), weight, reduction)",
             WIDE_SAMPLES(PAIR, PAIR_OF_3 ", 'sum'", PAIR ", 'none'", PAIR ", 'mean', flow.rand(3, 4) + 0.5"),
             "Squared difference of input and target.");

FL_COMPOSITE(smooth_l1_loss, "smooth_l1_loss(input, target, " REDUCTION ", ~beta: float = 1)",
             "reduced(smooth_l1_of(loss_input(input, target) - target, beta), reduction)",
             WIDE_SAMPLES(PAIR, PAIR_OF_3 ", 'sum', 0.5", PAIR ", 'none'"),
             "Absolute difference of input and target, less beta / 2; below beta half of the square, divided by beta.");

FL_COMPOSITE(huber_loss, "huber_loss(input, target, " REDUCTION ", ~delta: float = 1, weight?)",
             "loss = huber_of(loss_input(input, target) - target, delta);"
             "choose(weight, reduced(weighted(loss, weight, 2), reduction), reduced(loss, reduction))",
             WIDE_SAMPLES(PAIR, PAIR_OF_3 ", 'sum', 0.5", PAIR ", 'none', 1, flow.rand(3, 4) + 0.5"),
             "Half of the squared difference of input and target; from delta on a line of slope delta.");

/* ---- likelihoods ---- */

FL_COMPOSITE(binary_cross_entropy, "binary_cross_entropy(input, target, weight?, " REDUCTION ")",
             "loss = bce_of(loss_input(input, target), target);"
             "reduced(choose(weight, loss * weight, loss), reduction)",
             WIDE_SAMPLES("flow.rand(3, 4) * 0.8 + 0.1, flow.rand(3, 4)",
                          "flow.rand(3, 4) * 0.8 + 0.1, flow.rand(3, 4), flow.rand(4), 'sum'"),
             "Cross-entropy of probabilities `target` under the probabilities `input`, times weight; NaN for an input "
             "that is no probability.");

/* t log(t) is 0 at 0, and so is its gradient. */
FL_COMPOSITE(kl_div, "kl_div(input, target, reduction: mean|sum|none|batchmean = mean, log_target: bool = false)",
             "loss = choose(log_target, exp(target) * (target - input),"
             "              target * (log(where(eq(target, 0), 1, target)) - input));"
             "choose(eq(reduction, 3), sum(loss) / size(loss, 0), reduced(loss, reduction))",
             WIDE_SAMPLES("flow.randn(3, 4), flow.rand(3, 4) + 0.1", "flow.randn(3, 4), flow.randn(3, 4), 'sum', true",
                          "flow.randn(3, 4), flow.rand(3, 4) + 0.1, 'batchmean'"),
             "Divergence of the probabilities `target` from those whose logarithms are `input`; batchmean: the sum "
             "divided by the size of axis 0.");

FL_COMPOSITE(gaussian_nll_loss,
             "gaussian_nll_loss(input, target, var|n, full: bool = false, ~eps: float = 1e-6, " REDUCTION ")",
             "variance = raised(gaussian_variance(input, var), eps);"
             "loss = (log(variance) + square(input - target) / variance) * 0.5;"
             "reduced(choose(full, loss + 0.9189385332046727, loss), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), flow.rand(3, 4) + 0.5",
                          "flow.randn(3, 4), flow.randn(3, 4), flow.rand(3) + 0.5, true, 1e-6, 'sum'",
                          "flow.randn(3, 4), flow.randn(3, 4), 0.5, false, 1e-6, 'none'"),
             "Negative log-likelihood of target under normal distributions of mean input and variance var, which is at "
             "least eps.");

enum { GAUSSIAN_INPUT, GAUSSIAN_VARIANCE };

/* The variance as one that broadcasts to the input: a number, one for each element, or one for each row. */
static fl_status body_gaussian_variance(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char ti[FL_META_TEXT], tv[FL_META_TEXT];
    const fl_meta *input = in[GAUSSIAN_INPUT].tensor->meta;
    if (in[GAUSSIAN_VARIANCE].kind != FL_TENSOR) {
        fl_tensor *ones = EXPR_CALL(&c, NULL, ones_like, in[GAUSSIAN_INPUT]);
        *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, mul, fl_of(ones), in[GAUSSIAN_VARIANCE]));
        return fl_expr_end(&c);
    }
    const fl_meta *variance = in[GAUSSIAN_VARIANCE].tensor->meta;
    fl_shape rows = input->shape, one = input->shape;
    if (rows.ndim) {
        rows.ndim--;
        one.dims[one.ndim - 1] = 1;
    }
    fl_tensor *each = in[GAUSSIAN_VARIANCE].tensor;
    if (rows.ndim < input->shape.ndim && fl_shape_equal(&variance->shape, &rows))
        each = expr_unsqueeze(&c, each, rows.ndim);
    else if (!fl_shape_equal(&variance->shape, &input->shape) && !fl_shape_equal(&variance->shape, &one))
        return fl_fail(FL_ERR_SHAPE, "var must have the shape of input %s, or one number for each of its rows, got %s",
                       fl_meta_text(ti, input), fl_meta_text(tv, variance));
    *out = fl_expr_take(&c, each);
    return fl_expr_end(&c);
}

FL_OP(gaussian_variance) = {
    .name = "gaussian_variance",
    .sig = "gaussian_variance(input, var|n)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "A variance that broadcasts against input.",
    .body = body_gaussian_variance,
    FL_SAMPLES("flow.randn(3, 4), flow.rand(3)", "flow.randn(3, 4), 2"),
};

FL_COMPOSITE(
    poisson_nll_loss,
    "poisson_nll_loss(input, target, log_input: bool = true, full: bool = false, ~eps: float = 1e-8, " REDUCTION ")",
    "plain = choose(log_input, exp(input) - target * input, input - target * log(input + eps));"
    "many = where(gt(target, 1), target, 1);"
    "rest = many * log(many) - many + log(many * 6.283185307179586) * 0.5;"
    "reduced(choose(full, plain + where(gt(target, 1), rest, 0), plain), reduction)",
    WIDE_SAMPLES("flow.randn(3, 4), flow.rand(3, 4) * 4", "flow.rand(3, 4) + 0.5, flow.rand(3, 4) * 4, false, true",
                 "flow.randn(3), flow.rand(3), true, false, 1e-8, 'sum'"),
    "Negative log-likelihood of counts `target` under Poisson distributions of mean input, or e^input; full adds "
    "Stirling's term.");

FL_COMPOSITE(soft_margin_loss, "soft_margin_loss(input, target, " REDUCTION ")",
             "reduced(softplus(-(loss_input(input, target) * target), 1, 40), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4):sign()", "flow.randn(3), flow.randn(3):sign(), 'none'"),
             "log(1 + exp(-target * input)), for a target of 1 or -1.");

FL_COMPOSITE(multilabel_soft_margin_loss, "multilabel_soft_margin_loss(input, target, weight?, " REDUCTION ")",
             "loss = softplus(loss_input(input, target), 1, 40) - input * target;"
             "reduced(mean(choose(weight, loss * weight, loss), -1), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.rand(3, 4):round()",
                          "flow.randn(3, 4), flow.rand(3, 4), flow.rand(4) + 0.5, 'none'"),
             "The mean over classes of the binary cross-entropy of scores, for every row.");

/* ---- margins ---- */

FL_COMPOSITE(hinge_embedding_loss, "hinge_embedding_loss(input, target, ~margin: float = 1, " REDUCTION ")",
             "reduced(where(eq(target, -1), 0, input) + where(eq(target, 1), 0, relu(margin - input)), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4):sign()",
                          "flow.randn(3), flow.randn(3):sign(), 0.5, 'sum'"),
             "input where target is 1, the larger of 0 and margin - input where it is -1.");

FL_COMPOSITE(margin_ranking_loss, "margin_ranking_loss(input1, input2, target, ~margin: float = 0, " REDUCTION ")",
             "reduced(relu(margin - target * (input1 - input2)), reduction)",
             WIDE_SAMPLES("flow.randn(4), flow.randn(4), flow.randn(4):sign()",
                          "flow.randn(3, 4), flow.randn(3, 4), flow.randn(3, 4):sign(), 0.5, 'none'"),
             "The larger of 0 and margin - target * (input1 - input2).");

FL_COMPOSITE(pairwise_distance, "pairwise_distance(x1, x2, p: float = 2, ~eps: float = 1e-6, keepdim: bool = false)",
             "norm(x1 - x2 + eps, p, -1, keepdim)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4)", "flow.randn(2, 3, 4), flow.randn(4), 1, 1e-6, true"),
             "The p-norm of x1 - x2 + eps along the last axis.");

FL_COMPOSITE(triplet_margin_loss,
             "triplet_margin_loss(anchor, positive, negative, ~margin: float = 1, p: float = 2, ~eps: float = 1e-6, "
             "swap: bool = false, " REDUCTION ")",
             "near = pairwise_distance(anchor, positive, p, eps);"
             "away = pairwise_distance(anchor, negative, p, eps);"
             "least = choose(swap, minimum(away, pairwise_distance(positive, negative, p, eps)), away);"
             "reduced(relu(near - least + margin), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), flow.randn(3, 4)",
                          "flow.randn(3, 4), flow.randn(3, 4), flow.randn(3, 4), 0.5, 1, 1e-6, true, 'none'"),
             "The larger of 0 and margin + |anchor - positive| - |anchor - negative|.");

/* Norms below eps count as eps, which the gradient does not see. */
FL_COMPOSITE(cosine_similarity, "cosine_similarity(x1, x2, axis: axis = 1, ~eps: float = 1e-8)",
             "n1 = raised(norm(x1, 2, axis, true), eps); n2 = raised(norm(x2, 2, axis, true), eps);"
             "sum(x1 / n1 * (x2 / n2), axis)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4)", "flow.randn(2, 3, 4), flow.randn(2, 3, 4), -1"),
             "The cosine of the angle between x1 and x2 along the axis.");

FL_COMPOSITE(
    cosine_embedding_loss, "cosine_embedding_loss(input1, input2, target, ~margin: float = 0, " REDUCTION ")",
    "squares = (sum(square(input1), -1) + 1e-12) * (sum(square(input2), -1) + 1e-12);"
    "cosine = sum(input1 * input2, -1) / sqrt(squares);"
    "reduced(where(eq(target, 1), 1 - cosine, 0) + where(eq(target, -1), relu(cosine - margin), 0), reduction)",
    WIDE_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), flow.tensor{1, -1, 1}",
                 "flow.randn(4), flow.randn(4), flow.tensor(-1), 0.1, 'sum'"),
    "1 - cosine of the angle between the inputs where target is 1, the larger of 0 and cosine - margin where it "
    "is -1.");

FL_COMPOSITE(multi_margin_loss,
             "multi_margin_loss(input, target, p: int = 1, ~margin: float = 1, weight?, " REDUCTION ")",
             "at = unsqueeze(target, -1);"
             "place = cumsum(ones_like(input), -1) - 1;"
             "over = where(eq(place, at), 0, relu(input - gather(input, -1, at) + margin));"
             "power = choose(eq(p, 1), over, square(over));"
             "reduced(mean(choose(weight, power * gather(ones_like(input) * weight, -1, at), power), -1), reduction)",
             WIDE_SAMPLES("flow.randn(3, 4), flow.tensor{1, 0, 3}",
                          "flow.randn(3, 4), flow.tensor{1, 0, 3}, 2, 0.5, flow.rand(4) + 0.5, 'none'",
                          "flow.randn(4), flow.tensor(2), 1, 1, nil, 'sum'"),
             "The mean over classes of the larger of 0 and margin - input at target + input, to the power p, for every "
             "row.");

/* Labels end at the first -1. Each of them is compared with each class that is none. */
FL_COMPOSITE(multilabel_margin_loss, "multilabel_margin_loss(input, target, " REDUCTION ")",
             "valid = eq(cumsum(lt(target, 0), -1), 0);"
             "label = where(valid, target, 0);"
             "place = cumsum(ones_like(target), -1) - 1;"
             "is_label = any(logical_and(eq(unsqueeze(label, -1), unsqueeze(place, -2)), unsqueeze(valid, -1)), -2);"
             "over = relu(unsqueeze(loss_input(input, target), -2) - unsqueeze(gather(input, -1, label), -1) + 1);"
             "counts = logical_and(unsqueeze(valid, -1), logical_not(unsqueeze(is_label, -2)));"
             "reduced(sum(sum(where(counts, over, 0), -1), -1) / size(input, -1), reduction)",
             WIDE_SAMPLES("flow.randn(2, 4), flow.tensor{{3, 0, -1, 1}, {1, -1, 0, 2}}",
                          "flow.randn(4), flow.tensor{3, 0, -1, 1}, 'sum'"),
             "The mean over classes of the larger of 0 and 1 - input at each label + input at each class that is none; "
             "the labels of a row end at the first -1.");

/* ---- distances ---- */

FL_COMPOSITE(normalize, "normalize(x, p: float = 2, axis: axes = 1, ~eps: float = 1e-12)",
             "x / clamp(norm(x, p, axis, true), eps)", WIDE_SAMPLES("flow.randn(3, 4)", "flow.randn(2, 3, 4), 1, -1"),
             "x divided by its p-norm along the axis, which is at least eps.");
