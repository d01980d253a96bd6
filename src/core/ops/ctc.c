/*
** ctc.c -- ctc_loss: the loss of sequences whose labels have no known times.
**
** A hidden op gives the loss of each sequence and its gradient at once, since both are sums over the same paths;
** backward scales the gradient. Its own derivative is another kernel, so there are two orders and no third.
*/
#include "cpu/ctc.h"
#include "cpu/indices.h"
#include "cpu/stage.h"
#include "expr.h"
#include "memory/scratch.h"
#include "op/ctc.h"
#include "op/loss.h"

/* Attributes of ctc_loss. */
enum { CTC_BLANK, CTC_REDUCTION, CTC_ZERO_INFINITY };

/* ---- inference ---- */

static fl_status require_integers(const fl_infer *infer, int operand, const char *name, int least, int most)
{
    char text[FL_SHAPE_TEXT];
    const fl_spec *s = &infer->in[operand];
    if (fl_dtype_is_integer(s->dtype) && s->shape.ndim >= least && s->shape.ndim <= most) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "%s must be integers of %s, got %s%s", name,
                         most == 1 ? "one axis" : "shape [batch, length], or all labels in one axis",
                         fl_dtype_name(s->dtype), fl_shape_text(text, &s->shape));
}

static fl_status infer_ctc(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], tt[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_CTC_LOG_PROBS].shape, *targets = &infer->in[FL_CTC_TARGETS].shape;
    infer->name = "ctc_loss";
    FL_TRY(fl_require_float(infer, FL_CTC_LOG_PROBS));
    FL_TRY(require_integers(infer, FL_CTC_TARGETS, "targets", 1, 2));
    FL_TRY(require_integers(infer, FL_CTC_INPUT_LENGTHS, "input_lengths", 1, 1));
    FL_TRY(require_integers(infer, FL_CTC_TARGET_LENGTHS, "target_lengths", 1, 1));
    int64_t n = x->ndim == 3 ? x->dims[1] : 0;
    bool fits = x->ndim == 3 && (targets->ndim == 1 || targets->dims[0] == n);
    fits = fits && infer->in[FL_CTC_INPUT_LENGTHS].shape.dims[0] == n
        && infer->in[FL_CTC_TARGET_LENGTHS].shape.dims[0] == n;
    if (!fits)
        return fl_infer_fail(
            infer, FL_ERR_SHAPE,
            "log_probs must be [time, batch, classes], with targets and lengths for each of the batch; "
            "got log_probs %s, targets %s, %lld and %lld lengths",
            fl_shape_text(tx, x), fl_shape_text(tt, targets), (long long)infer->in[FL_CTC_INPUT_LENGTHS].shape.dims[0],
            (long long)infer->in[FL_CTC_TARGET_LENGTHS].shape.dims[0]);
    int64_t blank = infer->attrs->at[FL_CTC_BLANK].integer;
    if (blank < 0 || blank >= x->dims[2])
        return fl_infer_fail(infer, FL_ERR_VALUE, "blank must be one of the %lld classes, got %lld",
                             (long long)x->dims[2], (long long)blank);
    infer->out[infer->nout - 1].shape = *x;
    if (infer->nout == 2) infer->out[FL_CTC_LOSSES].shape = (fl_shape){.ndim = 1, .dims = {n}};
    for (int i = 0; i < infer->nout; i++) infer->out[i].dtype = infer->in[FL_CTC_LOG_PROBS].dtype;
    return FL_OK;
}

/* Sequences are independent; labels that lie one behind the other cannot be cut by sequences. */
static void sbp_ctc(fl_sigs *sigs)
{
    if (sigs->in[FL_CTC_TARGETS].shape.ndim == 1) return;
    if (sigs->nout == 2) FL_SIG(sigs, NULL, FL_S(1), FL_S(0), FL_S(0), FL_S(0), FL_S(0), FL_S(1));
    else FL_SIG(sigs, NULL, FL_S(1), FL_S(0), FL_S(0), FL_S(0), FL_S(1), FL_S(1));
}

/* ---- kernels ---- */

/* The lengths and labels of sequence i, whose labels begin at `start`; `room` labels may be read from there. */
static fl_status check_sequence(const fl_ctc *ctc, int64_t i, int64_t start, int64_t room)
{
    int64_t time = ctc->input_lengths[i], count = ctc->target_lengths[i];
    if (time < 0 || time > ctc->time)
        return fl_fail(FL_ERR_VALUE, FL_CTC_BAD_TIME, (long long)i, (long long)time, (long long)ctc->time);
    if (count < 0 || count > room)
        return fl_fail(FL_ERR_VALUE, FL_CTC_BAD_LENGTH, (long long)i, (long long)count,
                       (long long)(room < 0 ? 0 : room));
    for (int64_t k = 0; k < count; k++) {
        int64_t label = ctc->targets[start + k];
        if (label < 0 || label >= ctc->classes)
            return fl_fail(FL_ERR_VALUE, FL_CTC_BAD_LABEL, (long long)k, (long long)i, (long long)label,
                           (long long)ctc->classes);
    }
    return FL_OK;
}

/* Finds the first label of each sequence, and checks all labels. */
static fl_status find_starts(int64_t *starts, const fl_ctc *ctc, const fl_view *targets)
{
    bool joined = targets->ndim == 1;
    int64_t at = 0, width = targets->size[targets->ndim - 1];
    for (int64_t i = 0; i < ctc->batch; i++) {
        starts[i] = joined ? at : i * width;
        FL_TRY(check_sequence(ctc, i, starts[i], joined ? width - at : width));
        at += ctc->target_lengths[i];
    }
    return FL_OK;
}

static fl_status kernel_ctc(fl_kernel *kernel)
{
    fl_stage s;
    const fl_view *x = &kernel->in[FL_CTC_LOG_PROBS];
    FL_TRY(fl_stage_open(&s, kernel, 0));
    int64_t *starts = fl_scratch(FL_KERNEL_SCRATCH + 1, (size_t)(x->size[1] + 1) * sizeof *starts);
    if (!starts) return fl_fail(FL_ERR_MEMORY, "ctc_loss: out of memory");
    fl_ctc c = {.time = x->size[0],
                .batch = x->size[1],
                .classes = x->size[2],
                .blank = kernel->attrs->at[FL_CTC_BLANK].integer,
                .targets = s.in[FL_CTC_TARGETS],
                .starts = starts,
                .input_lengths = s.in[FL_CTC_INPUT_LENGTHS],
                .target_lengths = s.in[FL_CTC_TARGET_LENGTHS],
                .zero_infinity = kernel->attrs->at[FL_CTC_ZERO_INFINITY].integer};
    FL_TRY(find_starts(starts, &c, &kernel->in[FL_CTC_TARGETS]));
    bool derived = kernel->nin > FL_CTC_DIRECTION;
    FL_TRY(fl_cpu_ctc(s.dtype, derived ? NULL : s.out[FL_CTC_LOSSES], s.out[derived ? 0 : FL_CTC_GRADIENT],
                      s.in[FL_CTC_LOG_PROBS], derived ? s.in[FL_CTC_DIRECTION] : NULL, &c));
    return fl_stage_close(&s);
}

/* ---- gradients ---- */

/* Of the losses: each scales its sequence's gradient. Of the gradient: its derivative along what arrives. */
static fl_status grad_ctc_rows(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *dx = NULL;
    if (!g->need[FL_CTC_LOG_PROBS]) return FL_OK;
    if (g->gout[FL_CTC_LOSSES])
        dx = expr_mul(&c, g->out[FL_CTC_GRADIENT], expr_unsqueeze(&c, g->gout[FL_CTC_LOSSES], 1));
    if (g->gout[FL_CTC_GRADIENT]) {
        fl_tensor *more = EXPR_CALL(&c, g->attrs, ctc_curvature, g->in[FL_CTC_LOG_PROBS], g->in[FL_CTC_TARGETS],
                                    g->in[FL_CTC_INPUT_LENGTHS], g->in[FL_CTC_TARGET_LENGTHS],
                                    fl_of(g->gout[FL_CTC_GRADIENT]));
        dx = dx ? expr_add(&c, dx, more) : more;
    }
    if (dx) g->gin[FL_CTC_LOG_PROBS] = fl_expr_take(&c, dx);
    return fl_expr_end(&c);
}

/* Linear in the direction, and its own transpose. */
static fl_status grad_ctc_curvature(fl_grad *g)
{
    if (g->need[FL_CTC_LOG_PROBS]) return fl_fail(FL_ERR_STATE, "ctc_loss: has no third derivative");
    if (!g->need[FL_CTC_DIRECTION]) return FL_OK;
    fl_attrs a;
    fl_attrs_init(&a, g->op);
    for (int i = 0; i < g->attrs->count; i++) a.at[i] = g->attrs->at[i];
    return FL_CALL_WITH(&g->gin[FL_CTC_DIRECTION], &a, ctc_curvature, g->in[FL_CTC_LOG_PROBS], g->in[FL_CTC_TARGETS],
                        g->in[FL_CTC_INPUT_LENGTHS], g->in[FL_CTC_TARGET_LENGTHS], fl_of(g->gout[0]));
}

#define OPERANDS "log_probs, targets, input_lengths, target_lengths"
#define ATTRIBUTES "~zero_infinity: bool = false"

FL_OP(ctc_rows) = {
    .name = "ctc_rows",
    .sig = "ctc_rows(" OPERANDS ", blank: int = 0, " ATTRIBUTES ")",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "The loss of each sequence and its gradient.",
    .saves_in = (1u << FL_CTC_DIRECTION) - 1, /* all */
    .saves_out = 1u << FL_CTC_GRADIENT,
    .infer = infer_ctc,
    .sbp = sbp_ctc,
    .cpu = kernel_ctc,
    .grad = grad_ctc_rows,
};

FL_OP(ctc_curvature) = {
    .name = "ctc_curvature",
    .sig = "ctc_curvature(" OPERANDS ", direction, blank: int = 0, " ATTRIBUTES ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "The derivative of ctc_rows' gradient along a direction.",
    .saves_in = (1u << (FL_CTC_DIRECTION + 1)) - 1, /* all */
    .infer = infer_ctc,
    .sbp = sbp_ctc,
    .cpu = kernel_ctc,
    .grad = grad_ctc_curvature,
};

/* ---- ctc_loss ---- */

/* A sequence by itself, [time, classes], as a batch of one. */
static void open_batch(fl_expr *expr, fl_operand batch[FL_CTC_DIRECTION], const fl_operand *in)
{
    for (int i = 0; i < FL_CTC_DIRECTION; i++) batch[i] = in[i];
    if (in[FL_CTC_LOG_PROBS].tensor->meta->shape.ndim != 2) return;
    batch[FL_CTC_LOG_PROBS] = fl_of(expr_unsqueeze(expr, in[FL_CTC_LOG_PROBS].tensor, 1));
    for (int i = FL_CTC_INPUT_LENGTHS; i <= FL_CTC_TARGET_LENGTHS; i++)
        if (in[i].tensor->meta->shape.ndim == 0) batch[i] = fl_of(expr_unsqueeze(expr, in[i].tensor, 0));
}

static fl_status body_ctc_loss(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_operand batch[FL_CTC_DIRECTION];
    fl_attrs a;
    open_batch(&c, batch, in);
    fl_attrs_init(&a, FL_OP_REF(ctc_rows));
    a.at[FL_CTC_BLANK] = attrs->at[CTC_BLANK];
    a.at[FL_CTC_ZERO_INFINITY] = attrs->at[CTC_ZERO_INFINITY];
    fl_tensor *loss = EXPR_CALL(&c, &a, ctc_rows, batch[FL_CTC_LOG_PROBS], batch[FL_CTC_TARGETS],
                                batch[FL_CTC_INPUT_LENGTHS], batch[FL_CTC_TARGET_LENGTHS]);
    int64_t reduction = attrs->at[CTC_REDUCTION].integer;
    if (reduction == FL_LOSS_MEAN && c.status == FL_OK) {
        fl_tensor *counts = EXPR_CALL(&c, NULL, maximum, batch[FL_CTC_TARGET_LENGTHS], fl_of_integer(1));
        fl_tensor *share = expr_div(&c, loss, expr_cast(&c, counts, loss->meta->dtype));
        loss = EXPR_CALL(&c, NULL, mean, fl_of(share));
    } else if (reduction == FL_LOSS_SUM) loss = EXPR_CALL(&c, NULL, sum, fl_of(loss));
    else if (in[FL_CTC_LOG_PROBS].tensor->meta->shape.ndim == 2)
        loss = expr_reshape(&c, loss, &(fl_shape){.ndim = 0, .dims = {0}});
    *out = fl_expr_take(&c, loss);
    return fl_expr_end(&c);
}

FL_OP(ctc_loss) = {
    .name = "ctc_loss",
    .sig = "ctc_loss(" OPERANDS ", blank: int = 0, reduction: mean|sum|none = mean, " ATTRIBUTES ")",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc =
        "Negative log-probability of label sequences without times: log_probs [time, batch, classes], targets [batch, "
        "length] or the labels of all one behind the other; the mean is over loss / target length. zero_infinity: 0 "
        "where a target is impossible.",
    .body = body_ctc_loss,
    FL_SAMPLES(
        "flow.randn(4, 2, 3):log_softmax(-1), flow.tensor{{1, 2}, {2, 2}}, flow.tensor{4, 3}, flow.tensor{2, 1}",
        "flow.randn(5, 2, 3):log_softmax(-1), flow.tensor{1, 1, 0}, flow.tensor{5, 3}, flow.tensor{2, 1}, 2, 'sum'"),
};
