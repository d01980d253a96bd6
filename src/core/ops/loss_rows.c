/*
** loss_rows.c -- the hidden ops of losses with class labels: one number per row, and their gradients.
**
** cross_entropy_rows takes scores, nll_rows log-probabilities. Over a split class axis every rank adds what its classes
** contribute (P), given the log-sum-exp over all of them.
*/
#include "cpu/indices.h"
#include "cpu/rows.h"
#include "cpu/stage.h"
#include "expr.h"
#include "loss_rows.h"
#include "op/loss.h"

/* ---- labels ---- */

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
    fl_reduce_shape(&want, input, 1u << fl_loss_class_axis(input->ndim), false);
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
    if (w->ndim == 1 && w->dims[0] == input->dims[fl_loss_class_axis(input->ndim)]) return FL_OK;
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

/* The common part of forward and backward; classes and window come from `view`, which has the class axis. who: the
** loss that messages name. */
static fl_status nll_open(fl_nll *nll, const fl_stage *stage, const fl_view *view, int target, int weight,
                          const char *who)
{
    const fl_kernel *kernel = stage->k;
    int axis = fl_loss_class_axis(view->ndim);
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
static fl_row_shape class_rows(const fl_view *view)
{
    return fl_row_shape_of(view->size, view->ndim, fl_loss_class_axis(view->ndim));
}

static fl_status kernel_rows(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    const fl_view *input = &kernel->in[FL_LOSS_INPUT];
    bool of_scores = kernel->variant == FL_LOSS_OF_SCORES;
    bool named = !of_scores && kernel->attrs->at[FL_NLL_NAMED_CROSS_ENTROPY].integer;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(nll_open(&a, &s, input, FL_LOSS_TARGET, FL_LOSS_WEIGHT, fl_loss_name(kernel->variant, named)));
    a.with_lse = of_scores;
    a.loss = s.out[FL_LOSS_ROWS];
    a.count = s.out[of_scores ? FL_SCORES_ROWS_COUNT : FL_LOGS_ROWS_COUNT];
    a.lse = of_scores ? s.out[FL_SCORES_ROWS_LSE] : NULL;
    FL_TRY(fl_cpu_nll(s.dtype, &a, s.in[FL_LOSS_INPUT], class_rows(input)));
    return fl_stage_close(&s);
}

/* Opens the stage of a backward kernel. A sum or mean of the losses gives all rows one gradient, which is read where it
** lies. */
static fl_status open_backward(fl_stage *stage, int64_t *g_step, fl_kernel *kernel, int dy)
{
    const fl_view *v = &kernel->in[dy];
    bool is_one = v->dtype == fl_dtype_compute(kernel->out[0].dtype);
    for (int i = 0; i < v->ndim; i++) is_one &= v->stride[i] == 0;
    *g_step = is_one ? 0 : 1;
    return fl_stage_open(stage, kernel, is_one ? 1u << dy : 0);
}

static fl_status kernel_cross_entropy_backward(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    int64_t g_step;
    FL_TRY(open_backward(&s, &g_step, kernel, FL_SCORES_DY));
    FL_TRY(nll_open(&a, &s, &kernel->out[0], FL_SCORES_TARGET, FL_SCORES_WEIGHT, public_name(kernel->op)));
    a.with_lse = true;
    a.targets = kernel->attrs->at[FL_SCORES_TARGETS].integer;
    a.lse = s.in[FL_SCORES_LSE];
    a.g = s.in[FL_SCORES_DY];
    a.g_step = g_step;
    FL_TRY(fl_cpu_nll_backward(s.dtype, &a, s.out[0], s.in[FL_SCORES_INPUT], class_rows(&kernel->out[0])));
    return fl_stage_close(&s);
}

static fl_status kernel_nll_backward(fl_kernel *kernel)
{
    fl_stage s;
    fl_nll a;
    int64_t g_step;
    FL_TRY(open_backward(&s, &g_step, kernel, FL_LOGS_DY));
    FL_TRY(nll_open(&a, &s, &kernel->out[0], FL_LOGS_TARGET, FL_LOGS_WEIGHT, public_name(kernel->op)));
    a.targets = true;
    a.g = s.in[FL_LOGS_DY];
    a.g_step = g_step;
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
    int axis = fl_loss_class_axis(x->meta->shape.ndim);
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
    int classes = fl_loss_class_axis(sigs->in[0].shape.ndim);
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
    int classes = fl_loss_class_axis(sigs->in[0].shape.ndim);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++) {
        fl_sbp t = FL_S(target_axis(i));
        if (i != classes) FL_SIG(sigs, NULL, FL_S(i), t, FL_B, t, t);
    }
    FL_SIG(sigs, NULL, FL_S(classes), FL_B, FL_B, FL_PSUM, FL_B);
}

/* Rows are independent, and so are classes, given the log-sum-exp of the whole row. Linear in dy. */
static void sbp_cross_entropy_backward(fl_sigs *sigs)
{
    int classes = fl_loss_class_axis(sigs->out[0].shape.ndim);
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
    int classes = fl_loss_class_axis(sigs->out[0].shape.ndim);
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

fl_attrs fl_loss_rows_attrs(const fl_op *op, const fl_attrs *from)
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
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(cross_entropy_backward), attrs);
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
    int axis = fl_loss_class_axis(x->meta->shape.ndim);
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
    uint32_t axis = 1u << fl_loss_class_axis(g->in[FL_SCORES_INPUT].tensor->meta->shape.ndim);
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
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(nll_backward), g->attrs);
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
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(nll_rows), g->attrs);
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
