/*
** loss.c -- cross_entropy, nll_loss, binary_cross_entropy_with_logits.
**
** The public losses are bodies: a hidden op gives one number per row, then comes the reduction. The mean over rows is
** sum(loss) / sum(count), so that ranks which hold different rows, weights or ignored labels agree. Over a split class
** axis every rank adds what its classes contribute (P), given the log-sum-exp over all of them.
*/
#include "cpu/indices.h"
#include "cpu/rows.h"
#include "cpu/stage.h"
#include "expr.h"
#include "op/loss.h"

enum { REDUCE_MEAN, REDUCE_SUM, REDUCE_NONE }; /* words of `reduction` */

/* Attributes of the public losses. */
enum { LOSS_REDUCTION, PUBLIC_IGNORE, PUBLIC_SMOOTHING };
enum { SOFTPLUS_THRESHOLD = 1 };               /* of softplus, after beta */
enum { LOGITS_POSITIVE = FL_LOSS_WEIGHT + 1 }; /* operand of binary_cross_entropy_with_logits */

/* ---- labels ---- */

static int class_axis(const fl_shape *input) { return input->ndim > 1; }

/* input [n, classes, d...] or [classes]; target [n, d...] */
static fl_status check_labels(fl_infer *infer, const fl_shape *input, int target)
{
    char ti[FL_SHAPE_TEXT], tt[FL_SHAPE_TEXT];
    const fl_shape *t = &infer->in[target].shape;
    if (!fl_dtype_is_integer(infer->in[target].dtype))
        return fl_infer_fail(infer, FL_ERR_DTYPE, "target must be integers (class labels), got %s%s",
                             fl_dtype_name(infer->in[target].dtype), fl_shape_text(tt, t));
    if (input->ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "input has no axis of classes");
    fl_shape want;
    fl_reduce_shape(&want, input, 1u << class_axis(input), false);
    if (!fl_shape_equal(&want, t))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "input %s and target %s do not fit; target must be %s",
                             fl_shape_text(ti, input), fl_shape_text(tt, t),
                             fl_shape_text((char[FL_SHAPE_TEXT]){0}, &want));
    return FL_OK;
}

static fl_status check_weight(fl_infer *infer, const fl_shape *input, int weight)
{
    char ti[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    const fl_shape *w = &infer->in[weight].shape;
    if (infer->in[weight].kind == FL_NONE) return FL_OK;
    FL_TRY(fl_require_float(infer, weight));
    if (w->ndim == 1 && w->dims[0] == input->dims[class_axis(input)]) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "weight must have one number for each class of input %s, got %s",
                         fl_shape_text(ti, input), fl_shape_text(tw, w));
}

/* The name users know. */
static const char *public_name(const fl_op *op) { return fl_loss_name(op->variant, false); }

/* Operands (input, target, weight?): outputs of one number per row. */
static fl_status infer_rows(fl_infer *infer)
{
    const fl_shape *input = &infer->in[FL_LOSS_INPUT].shape;
    infer->name = public_name(infer->op);
    FL_TRY(fl_require_float(infer, FL_LOSS_INPUT));
    FL_TRY(check_labels(infer, input, FL_LOSS_TARGET));
    FL_TRY(check_weight(infer, input, FL_LOSS_WEIGHT));
    for (int i = 0; i < infer->nout; i++) {
        infer->out[i].dtype = infer->in[FL_LOSS_INPUT].dtype;
        infer->out[i].shape = infer->in[FL_LOSS_TARGET].shape;
    }
    return FL_OK;
}

/* ---- kernels ---- */

/* What forward and backward have in common; classes and window come from `view`, which has the class axis. who: the
** loss that messages name. */
static fl_status nll_open(fl_nll *nll, const fl_stage *stage, const fl_view *view, int target, int weight,
                          const char *who)
{
    const fl_kernel *kernel = stage->k;
    int axis = view->ndim > 1;
    *nll = (fl_nll){.n = view->size[axis],
                    .first = view->start[axis],
                    .classes = view->logical[axis],
                    .target = stage->in[target],
                    .weight = stage->in[weight],
                    .ignore = kernel->attrs->at[FL_LOSS_IGNORE].integer,
                    .smoothing = kernel->attrs->at[FL_LOSS_SMOOTHING].number};
    nll->weight_sum = fl_cpu_nll_weights(stage->dtype, nll->weight, nll->classes);
    fl_index_rule rule = {.who = who,
                          .param = "target",
                          .owner = "input",
                          .noun = "classes",
                          .limit = nll->classes,
                          .skip = nll->ignore,
                          .has_skip = true};
    return fl_indices_check(stage->in[target], &kernel->in[target], &rule);
}

/* The class axis of a view as rows. */
static fl_row_shape class_rows(const fl_view *view) { return fl_row_shape_of(view->size, view->ndim, view->ndim > 1); }

static fl_status kernel_rows(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    const fl_view *input = &kernel->in[FL_LOSS_INPUT];
    bool of_scores = kernel->op->variant == FL_LOSS_OF_SCORES;
    bool named = !of_scores && kernel->attrs->at[FL_NLL_NAMED_CROSS_ENTROPY].integer;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(nll_open(&a, &s, input, FL_LOSS_TARGET, FL_LOSS_WEIGHT, fl_loss_name(kernel->op->variant, named)));
    a.with_lse = of_scores;
    a.loss = s.out[FL_LOSS_ROWS];
    a.count = s.out[of_scores ? FL_SCORES_ROWS_COUNT : FL_LOGS_ROWS_COUNT];
    a.lse = of_scores ? s.out[FL_SCORES_ROWS_LSE] : NULL;
    FL_TRY(fl_cpu_nll(s.dtype, &a, s.in[FL_LOSS_INPUT], class_rows(input)));
    return fl_stage_close(&s);
}

static fl_status kernel_cross_entropy_backward(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(nll_open(&a, &s, &kernel->out[0], FL_SCORES_TARGET, FL_SCORES_WEIGHT, public_name(kernel->op)));
    a.with_lse = true;
    a.targets = kernel->attrs->at[FL_SCORES_TARGETS].integer;
    a.lse = s.in[FL_SCORES_LSE];
    a.g = s.in[FL_SCORES_DY];
    FL_TRY(fl_cpu_nll_backward(s.dtype, &a, s.out[0], s.in[FL_SCORES_INPUT], class_rows(&kernel->out[0])));
    return fl_stage_close(&s);
}

static fl_status kernel_nll_backward(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(nll_open(&a, &s, &kernel->out[0], FL_LOGS_TARGET, FL_LOGS_WEIGHT, public_name(kernel->op)));
    a.targets = true;
    a.g = s.in[FL_LOGS_DY];
    FL_TRY(fl_cpu_nll_backward(s.dtype, &a, s.out[0], NULL, class_rows(&kernel->out[0])));
    return fl_stage_close(&s);
}

/* ---- SBP ---- */

/* Axes of the result that are not classes, and the same axis of the target. */
static int target_axis(int axis) { return axis > 1 ? axis - 1 : axis; }

/* The class axis split: lse over all ranks, then every rank's own share of the loss. */
static fl_status body_cross_entropy_rows(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[FL_LOSS_INPUT].tensor;
    int axis = class_axis(&x->meta->shape);
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(nll_rows));
    a.at[FL_LOSS_IGNORE] = attrs->at[FL_LOSS_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = attrs->at[FL_LOSS_SMOOTHING];
    fl_attr_set(&a, FL_NLL_NAMED_CROSS_ENTROPY, true);
    fl_tensor *top = expr_whole(&c, expr_amax(&c, x, 1u << axis, true));
    fl_tensor *sum = expr_whole(&c, expr_sum(&c, expr_exp(&c, expr_sub(&c, x, top)), 1u << axis, true));
    fl_tensor *lse = expr_add(&c, expr_log(&c, sum), top);
    fl_tensor *loss = EXPR_CALL(&c, &a, nll_rows, fl_of(expr_sub(&c, x, lse)), in[FL_LOSS_TARGET], in[FL_LOSS_WEIGHT]);
    fl_tensor *count = c.status == FL_OK ? c.owned[c.count - 1] : NULL;
    fl_tensor *lse_rows = expr_reshape(&c, lse, &in[FL_LOSS_TARGET].tensor->meta->shape);
    out[FL_LOSS_ROWS] = fl_expr_take(&c, loss);
    out[FL_SCORES_ROWS_LSE] = fl_expr_take(&c, lse_rows);
    out[FL_SCORES_ROWS_COUNT] = fl_expr_take(&c, count);
    return fl_expr_end(&c);
}

/* Rows are independent. With the classes split the body completes the log-sum-exp over the ranks; the rest of the loss
** is a sum over classes, so it is a partial sum. The weight of a row is known to all. */
static void sbp_cross_entropy_rows(fl_sigs *sigs)
{
    int classes = class_axis(&sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++) {
        fl_sbp t = FL_S(target_axis(i));
        if (i != classes) FL_SIG(sigs, NULL, FL_S(i), t, FL_B, t, t, t);
    }
    if (sigs->in_logical[0].dims[classes] > 0)
        FL_SIG(sigs, body_cross_entropy_rows, FL_S(classes), FL_B, FL_B, FL_PSUM, FL_B, FL_B);
}

/* As sbp_cross_entropy_rows, without a log-sum-exp: each rank adds the terms of its own classes. */
static void sbp_nll_rows(fl_sigs *sigs)
{
    int classes = class_axis(&sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++) {
        fl_sbp t = FL_S(target_axis(i));
        if (i != classes) FL_SIG(sigs, NULL, FL_S(i), t, FL_B, t, t);
    }
    FL_SIG(sigs, NULL, FL_S(classes), FL_B, FL_B, FL_PSUM, FL_B);
}

/* Rows are independent, and so are classes, given the log-sum-exp of the whole row. Linear in dy. */
static void sbp_cross_entropy_backward(fl_sigs *sigs)
{
    int classes = class_axis(&sigs->out[0].shape);
    for (int i = 0; i < sigs->out[0].shape.ndim; i++) {
        fl_sbp t = FL_S(target_axis(i));
        if (i != classes) FL_SIG(sigs, NULL, t, FL_S(i), t, t, FL_B, FL_S(i));
    }
    FL_SIG(sigs, NULL, FL_B, FL_S(classes), FL_B, FL_B, FL_B, FL_S(classes));
    FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_B, FL_B, FL_B, FL_PSUM);
}

/* Every element of the gradient depends on the label of its row alone, so classes may be split where the input was.
** Linear in dy. */
static void sbp_nll_backward(fl_sigs *sigs)
{
    int classes = class_axis(&sigs->out[0].shape);
    for (int i = 0; i < sigs->out[0].shape.ndim; i++) {
        fl_sbp t = FL_S(target_axis(i));
        if (i != classes) FL_SIG(sigs, NULL, t, t, FL_B, FL_S(i));
    }
    if (fl_sbp_is_like(sigs, 3, FL_S(classes))) FL_SIG(sigs, NULL, FL_B, FL_B, FL_B, FL_S(classes));
    FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_B, FL_PSUM);
}

/* ---- gradients ---- */

static fl_status no_weight_gradient(const fl_grad *g, int weight)
{
    if (!g->need[weight]) return FL_OK;
    return fl_fail(FL_ERR_STATE, "%s: has no gradient with respect to weight; detach() it", public_name(g->op));
}

static fl_attrs with_rows_attrs(const fl_op *op, const fl_attrs *from)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    a.at[FL_LOSS_IGNORE] = from->at[FL_LOSS_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = from->at[FL_LOSS_SMOOTHING];
    return a;
}

/* dy per row -> gradient of the input; targets false: of the log-sum-exp alone, counted as often as the loss does */
static fl_tensor *rows_backward(fl_expr *expr, const fl_attrs *attrs, fl_tensor *dy, fl_operand input,
                                fl_operand target, fl_operand lse, fl_operand weight, bool targets)
{
    fl_attrs a = with_rows_attrs(FL_OP_REF(cross_entropy_backward), attrs);
    fl_attr_set(&a, FL_SCORES_TARGETS, targets);
    return EXPR_CALL(expr, &a, cross_entropy_backward, fl_of(dy), input, target, lse, weight);
}

/* Of the loss: softmax - targets, times the weight. Of the log-sum-exp, kept for the gradient: softmax. */
static fl_status grad_cross_entropy_rows(fl_grad *g)
{
    fl_expr c = {0};
    FL_TRY(no_weight_gradient(g, FL_LOSS_WEIGHT));
    if (!g->need[FL_LOSS_INPUT]) return FL_OK;
    fl_tensor *x = g->in[FL_LOSS_INPUT].tensor, *lse = g->out[FL_SCORES_ROWS_LSE], *dx = NULL;
    int axis = class_axis(&x->meta->shape);
    if (g->gout[FL_LOSS_ROWS])
        dx = rows_backward(&c, g->attrs, g->gout[FL_LOSS_ROWS], g->in[FL_LOSS_INPUT], g->in[FL_LOSS_TARGET], fl_of(lse),
                           g->in[FL_LOSS_WEIGHT], true);
    if (g->gout[FL_SCORES_ROWS_LSE]) { /* of the log-sum-exp: softmax */
        fl_tensor *softmax = expr_exp(&c, expr_sub(&c, x, expr_unsqueeze(&c, lse, axis)));
        fl_tensor *more = expr_mul(&c, softmax, expr_unsqueeze(&c, g->gout[FL_SCORES_ROWS_LSE], axis));
        dx = dx ? expr_add(&c, dx, more) : more;
    }
    if (dx) g->gin[FL_LOSS_INPUT] = fl_expr_take(&c, dx);
    return fl_expr_end(&c);
}

/* dx = dy (total softmax - targets), softmax = e^(input - lse): lse counts as an input of its own. */
static fl_status grad_cross_entropy_backward(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *h = g->gout[0], *dy = g->in[FL_SCORES_DY].tensor, *d_input = NULL, *d_lse = NULL, *d_dy = NULL;
    uint32_t axis = 1u << class_axis(&g->in[FL_SCORES_INPUT].tensor->meta->shape);
    bool targets = g->attrs->at[FL_SCORES_TARGETS].integer;
    FL_TRY(no_weight_gradient(g, FL_SCORES_WEIGHT));
    if (g->need[FL_SCORES_INPUT] || g->need[FL_SCORES_LSE])
        d_input = expr_mul(&c, h,
                           rows_backward(&c, g->attrs, dy, g->in[FL_SCORES_INPUT], g->in[FL_SCORES_TARGET],
                                         g->in[FL_SCORES_LSE], g->in[FL_SCORES_WEIGHT], false));
    if (g->need[FL_SCORES_LSE]) d_lse = expr_neg(&c, expr_sum(&c, d_input, axis, false));
    if (g->need[FL_SCORES_DY]) {
        fl_tensor *ones = expr_add_number(&c, expr_mul_number(&c, dy, 0), 1);
        d_dy = expr_sum(&c,
                        expr_mul(&c, h,
                                 rows_backward(&c, g->attrs, ones, g->in[FL_SCORES_INPUT], g->in[FL_SCORES_TARGET],
                                               g->in[FL_SCORES_LSE], g->in[FL_SCORES_WEIGHT], targets)),
                        axis, false);
    }
    if (d_dy) g->gin[FL_SCORES_DY] = fl_expr_take(&c, d_dy);
    if (g->need[FL_SCORES_INPUT]) g->gin[FL_SCORES_INPUT] = fl_expr_take(&c, d_input);
    if (d_lse) g->gin[FL_SCORES_LSE] = fl_expr_take(&c, d_lse);
    return fl_expr_end(&c);
}

/* Each row's gradient goes to the class of its label. */
static fl_status grad_nll_rows(fl_grad *g)
{
    const fl_shape *input = &g->in_meta[FL_LOSS_INPUT]->shape;
    FL_TRY(no_weight_gradient(g, FL_LOSS_WEIGHT));
    if (!g->need[FL_LOSS_INPUT] || !g->gout[FL_LOSS_ROWS]) return FL_OK;
    fl_attrs a = with_rows_attrs(FL_OP_REF(nll_backward), g->attrs);
    fl_attr_set_list(&a, FL_LOGS_SIZES, input->dims, input->ndim);
    fl_attr_set_like(&a, FL_LOGS_LIKE, g->in_meta[FL_LOSS_INPUT]);
    return FL_CALL_WITH(&g->gin[FL_LOSS_INPUT], &a, nll_backward, fl_of(g->gout[FL_LOSS_ROWS]), g->in[FL_LOSS_TARGET],
                        g->in[FL_LOSS_WEIGHT]);
}

/* Linear in dy, with the loss itself as its transpose. */
static fl_status grad_nll_backward(fl_grad *g)
{
    fl_tensor *results[2];
    FL_TRY(no_weight_gradient(g, FL_LOGS_WEIGHT));
    if (!g->need[FL_LOGS_DY]) return FL_OK;
    fl_attrs a = with_rows_attrs(FL_OP_REF(nll_rows), g->attrs);
    FL_TRY(FL_CALL_WITH(results, &a, nll_rows, fl_of(g->gout[0]), g->in[FL_LOGS_TARGET], g->in[FL_LOGS_WEIGHT]));
    fl_tensor_unref(results[FL_LOGS_ROWS_COUNT]);
    g->gin[FL_LOGS_DY] = results[FL_LOSS_ROWS];
    return FL_OK;
}

/* A value per row has the shape of the labels. */
static fl_status check_per_row(const fl_infer *infer, int operand, int target)
{
    char to[FL_SHAPE_TEXT], tt[FL_SHAPE_TEXT];
    const fl_shape *shape = &infer->in[operand].shape, *want = &infer->in[target].shape;
    if (fl_shape_equal(shape, want)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "operand %d must be %s as target, got %s", operand,
                         fl_shape_text(tt, want), fl_shape_text(to, shape));
}

static fl_status infer_cross_entropy_backward(fl_infer *infer)
{
    infer->name = public_name(infer->op);
    FL_TRY(fl_require_float(infer, FL_SCORES_INPUT));
    FL_TRY(check_per_row(infer, FL_SCORES_DY, FL_SCORES_TARGET));
    FL_TRY(check_per_row(infer, FL_SCORES_LSE, FL_SCORES_TARGET));
    FL_TRY(check_weight(infer, &infer->in[FL_SCORES_INPUT].shape, FL_SCORES_WEIGHT));
    infer->out[0].dtype = infer->in[FL_SCORES_INPUT].dtype;
    infer->out[0].shape = infer->in[FL_SCORES_INPUT].shape;
    return check_labels(infer, &infer->in[FL_SCORES_INPUT].shape, FL_SCORES_TARGET);
}

static fl_status infer_nll_backward(fl_infer *infer)
{
    infer->name = public_name(infer->op);
    infer->out[0].dtype = infer->in[FL_LOGS_DY].dtype;
    FL_TRY(fl_require_float(infer, FL_LOGS_DY));
    FL_TRY(check_per_row(infer, FL_LOGS_DY, FL_LOGS_TARGET));
    const fl_attr *sizes = &infer->attrs->at[FL_LOGS_SIZES];
    FL_TRY(fl_shape_make(&infer->out[0].shape, infer->name, sizes->list, sizes->count));
    FL_TRY(check_labels(infer, &infer->out[0].shape, FL_LOGS_TARGET));
    return check_weight(infer, &infer->out[0].shape, FL_LOGS_WEIGHT);
}

/* ---- row ops ---- */

static const char *const rows_samples[] = {"flow.randn(6, 5), flow.tensor{0, 4, -100, 2, 2, 1}, nil, -100, 0",
                                           "flow.randn(3, 4, 2), flow.randint(0, 4, {3, 2}), nil, -100, 0.1",
                                           "flow.randn(5), flow.tensor(3), nil, -100, 0", NULL};
FL_OP(cross_entropy_rows) = {
    .name = "cross_entropy_rows",
    .sig = "cross_entropy_rows(input, target, weight?, ~ignore_index: int = -100, ~label_smoothing: float = 0)",
    .nout = 3,
    .flags = FL_OP_HIDDEN,
    .doc = "The loss of every row, the log-sum-exp of its scores and its weight in the mean.",
    .variant = FL_LOSS_OF_SCORES,
    .saves_in = 1u << FL_LOSS_INPUT | 1u << FL_LOSS_TARGET | 1u << FL_LOSS_WEIGHT,
    .saves_out = 1u << FL_SCORES_ROWS_LSE,
    .infer = infer_rows,
    .sbp = sbp_cross_entropy_rows,
    .cpu = kernel_rows,
    .grad = grad_cross_entropy_rows,
    .samples = rows_samples,
};

FL_OP(nll_rows) = {
    .name = "nll_rows",
    .sig = "nll_rows(input, target, weight?, ~ignore_index: int = -100, ~label_smoothing: float = 0, "
           "~named_cross_entropy: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "The loss of every row of log-probabilities and its weight in the mean.",
    .variant = FL_LOSS_OF_LOGS,
    .saves_in = 1u << FL_LOSS_TARGET | 1u << FL_LOSS_WEIGHT,
    .infer = infer_rows,
    .sbp = sbp_nll_rows,
    .cpu = kernel_rows,
    .grad = grad_nll_rows,
    .samples = rows_samples,
};

static const char *const cross_entropy_backward_samples[] = {
    "flow.randn(4), flow.randn(4, 5), flow.tensor{0, 4, -100, 2}, flow.rand(4) + 2, nil, -100, 0, true",
    "flow.randn(3, 2), flow.randn(3, 4, 2), flow.randint(0, 4, {3, 2}), flow.rand(3, 2) + 2, nil, -100, 0.1, true",
    NULL};
FL_OP(cross_entropy_backward) = {
    .name = "cross_entropy_backward",
    .sig = "cross_entropy_backward(dy, input, target, lse, weight?, ~ignore_index: int = -100, "
           "~label_smoothing: float = 0, ~targets: bool = true)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of cross_entropy_rows: softmax minus targets, times dy of the row.",
    .variant = FL_LOSS_OF_SCORES,
    .saves_in = (1u << (FL_SCORES_WEIGHT + 1)) - 1, /* all */
    .infer = infer_cross_entropy_backward,
    .sbp = sbp_cross_entropy_backward,
    .cpu = kernel_cross_entropy_backward,
    .grad = grad_cross_entropy_backward,
    .samples = cross_entropy_backward_samples,
};

static const char *const nll_backward_samples[] = {"flow.randn(4), flow.tensor{0, 4, -100, 2}, nil, -100, 0, {4, 5}",
                                                   NULL};
FL_OP(nll_backward) = {
    .name = "nll_backward",
    .sig = "nll_backward(dy, target, weight?, ~ignore_index: int = -100, ~label_smoothing: float = 0, sizes: sizes, "
           "like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of nll_rows with respect to the log-probabilities.",
    .variant = FL_LOSS_OF_LOGS,
    .saves_in = 1u << FL_LOGS_TARGET | 1u << FL_LOGS_WEIGHT,
    .infer = infer_nll_backward,
    .sbp = sbp_nll_backward,
    .cpu = kernel_nll_backward,
    .grad = grad_nll_backward,
    .samples = nll_backward_samples,
};

/* ---- public losses ---- */

static fl_tensor *sum_all(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, sum, fl_of(x)); }
static fl_tensor *mean_all(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, mean, fl_of(x)); }

/* loss per element, reduced as the word says */
static fl_tensor *reduced(fl_expr *expr, fl_tensor *loss, int64_t reduction)
{
    if (expr->status != FL_OK || reduction == REDUCE_NONE) return loss;
    return reduction == REDUCE_SUM ? sum_all(expr, loss) : mean_all(expr, loss);
}

/* loss per row, the mean over what counts */
static fl_tensor *reduced_rows(fl_expr *expr, fl_tensor *loss, fl_tensor *count, int64_t reduction)
{
    if (expr->status != FL_OK || reduction != REDUCE_MEAN) return reduced(expr, loss, reduction);
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
    int axis = class_axis(&input->shape);
    int64_t classes = input->shape.dims[axis];
    if (weight->kind == FL_TENSOR && fl_shape_numel(&weight->tensor->meta->shape) != classes)
        return fl_fail(FL_ERR_SHAPE, "cross_entropy: weight must have one number for each class of input %s, got %s",
                       fl_meta_text(ti, input), fl_meta_text(tt, weight->tensor->meta));
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(log_softmax));
    fl_attr_set(&a, 0, axis);
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

static fl_status float_input(const char *who, const fl_operand *in)
{
    char text[FL_META_TEXT];
    if (fl_dtype_is_float(in[FL_LOSS_INPUT].tensor->meta->dtype)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "%s: takes a float tensor, input is %s; write input:to(\"float32\")", who,
                   fl_meta_text(text, in[FL_LOSS_INPUT].tensor->meta));
}

/* log(1 + e^x) - x y, per element. Where positive ones have a weight p: (1 - y) x + (1 + (p - 1) y) log(1 + e^-x) */
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
    FL_TRY(float_input("binary_cross_entropy_with_logits", in));
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
