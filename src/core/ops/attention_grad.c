/*
** attention_grad.c -- gradients of attention: of the fused op by its fused gradient, of that one in plain ops.
**
** In plain ops the weights become a matrix. Two hidden ops make it: attention_mask and attention_dropout repeat what
** the fused kernel does to the scores.
*/
#include "attention.h"
#include "cpu/attention.h"
#include "cpu/stage.h"
#include "expr.h"

#include <math.h>

/* ---- the weights as a matrix: gradients of second order, and of the mask ---- */

static double scale_of(const fl_attrs *attrs, const fl_tensor *tensor)
{
    const fl_attr *scale = &attrs->at[FL_ATTENTION_SCALE];
    return scale->given ? scale->number : 1 / sqrt((double)tensor->meta->shape.dims[tensor->meta->shape.ndim - 1]);
}

/* The terms of attention_backward's formulas; see fl_attention_backward_grad. */
struct weights {
    fl_tensor *p, *keep;   /* e^(scores - lse); dropout factors or NULL */
    fl_tensor *dp, *delta; /* gradient of p; sum(dy out) - dlse per query */
};

/* x with the dropout factors applied */
static fl_tensor *dropped(fl_expr *expr, const struct weights *weights, fl_tensor *x)
{
    return weights->keep ? expr_mul(expr, x, weights->keep) : x;
}

/* p, and what is needed to repeat the dropout; from (q, k, mask, lse, key). */
static void weights_of(struct weights *weights, fl_expr *expr, const fl_attrs *attrs, fl_tensor *q, fl_tensor *k,
                       fl_operand mask, fl_tensor *lse, fl_operand key)
{
    fl_attrs a = fl_attention_attrs(FL_OP_REF(attention_mask), attrs);
    fl_tensor *scores = expr_mul_number(expr, expr_gemm(expr, q, k, false, true), scale_of(attrs, q));
    fl_tensor *masked = EXPR_CALL(expr, &a, attention_mask, fl_of(scores), mask);
    weights->p = expr_exp(expr, expr_sub(expr, masked, expr_unsqueeze(expr, lse, lse->meta->shape.ndim)));
    weights->keep = attrs->at[FL_ATTENTION_DROPOUT].number > 0
        ? EXPR_CALL(expr, &a, attention_dropout, fl_of(scores), key)
        : NULL;
}

static void weights_backward(struct weights *weights, fl_expr *expr, fl_tensor *dy, fl_tensor *v, fl_tensor *out,
                             fl_tensor *dlse)
{
    int last = dy->meta->shape.ndim - 1;
    weights->dp = dropped(expr, weights, expr_gemm(expr, dy, v, false, true));
    weights->delta = expr_sum(expr, expr_mul(expr, dy, out), 1u << last, true);
    if (dlse) weights->delta = expr_sub(expr, weights->delta, expr_unsqueeze(expr, dlse, last));
}

/* Gradient of the scores (and so of a float mask). */
static fl_tensor *score_gradient(fl_expr *expr, const struct weights *weights)
{
    return expr_mul(expr, weights->p, expr_sub(expr, weights->dp, weights->delta));
}

static fl_tensor *zeros_like(fl_expr *expr, fl_tensor *like)
{
    fl_tensor *zeros;
    if (expr->status == FL_OK) expr->status = fl_tensor_empty(&zeros, like->meta);
    if (expr->status != FL_OK) return NULL;
    fl_tensor *same = EXPR_CALL(expr, NULL, zero_, fl_of(zeros));
    fl_tensor_unref(zeros);
    return same;
}

/* q, k and v get theirs from the fused op; the mask, being added to the scores, gets the gradient of the scores
** summed to its shape by the tape. */
fl_status fl_attention_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_attrs a = fl_attention_attrs(FL_OP_REF(attention_backward), g->attrs);
    fl_tensor *out = g->out[FL_ATTENTION_OUT], *lse = g->out[FL_ATTENTION_LSE], *dlse = g->gout[FL_ATTENTION_LSE];
    fl_tensor *dy = g->gout[FL_ATTENTION_OUT] ? g->gout[FL_ATTENTION_OUT] : zeros_like(&c, out), *dmask = NULL;
    fl_operand key = fl_of(g->out[FL_ATTENTION_KEY]);
    fl_tensor *dq = NULL;
    if (g->need[FL_ATTENTION_Q] || g->need[FL_ATTENTION_K] || g->need[FL_ATTENTION_V])
        dq = EXPR_CALL(&c, &a, attention_backward, fl_of(dy), g->in[FL_ATTENTION_Q], g->in[FL_ATTENTION_K],
                       g->in[FL_ATTENTION_V], g->in[FL_ATTENTION_MASK], fl_of(out), fl_of(lse), key, fl_of(dlse));
    if (g->need[FL_ATTENTION_MASK]) {
        fl_expr d = {0};
        struct weights w;
        weights_of(&w, &d, g->attrs, g->in[FL_ATTENTION_Q].tensor, g->in[FL_ATTENTION_K].tensor,
                   g->in[FL_ATTENTION_MASK], lse, key);
        weights_backward(&w, &d, dy, g->in[FL_ATTENTION_V].tensor, out, dlse);
        dmask = fl_expr_take(&d, score_gradient(&d, &w));
        fl_status status = fl_expr_end(&d);
        if (c.status == FL_OK) c.status = status;
    }
    for (int i = FL_ATTENTION_Q; dq && i <= FL_ATTENTION_V; i++)
        if (g->need[i]) g->gin[i] = fl_expr_take(&c, c.owned[c.count - 3 + i]);
    g->gin[FL_ATTENTION_MASK] = dmask;
    return fl_expr_end(&c);
}

static fl_tensor *add_maybe(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return !x ? y : !y ? x : expr_add(expr, x, y);
}

/* Adjoint of attention_backward, for the gradients hq, hk, hv of its results. With ds = p (dp - delta) it computes dq =
** scale ds k, dk = scale ds^T q, dv = (p keep)^T dy; dp = (dy v^T) keep, delta = sum(dy out) - dlse, p = e^(scores -
** lse); out, lse and dlse count as inputs of their own. A bar (b_) is the gradient of what it stands before. */
fl_status fl_attention_backward_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *dy = g->in[FL_ATTENTION_BACK_DY].tensor, *q = g->in[FL_ATTENTION_BACK_Q].tensor,
              *k = g->in[FL_ATTENTION_BACK_K].tensor, *v = g->in[FL_ATTENTION_BACK_V].tensor,
              *out = g->in[FL_ATTENTION_BACK_OUT].tensor;
    fl_tensor *lse = g->in[FL_ATTENTION_BACK_LSE].tensor,
              *dlse = g->in[FL_ATTENTION_BACK_DLSE].kind == FL_TENSOR ? g->in[FL_ATTENTION_BACK_DLSE].tensor : NULL;
    fl_tensor *hq = g->gout[FL_ATTENTION_BACK_DQ], *hk = g->gout[FL_ATTENTION_BACK_DK],
              *hv = g->gout[FL_ATTENTION_BACK_DV];
    double scale = scale_of(g->attrs, q);
    int last = q->meta->shape.ndim - 1;
    struct weights w;
    weights_of(&w, &c, g->attrs, q, k, g->in[FL_ATTENTION_BACK_MASK], lse, g->in[FL_ATTENTION_BACK_KEY]);
    weights_backward(&w, &c, dy, v, out, dlse);
    fl_tensor *ds = expr_mul_number(&c, score_gradient(&c, &w), scale);

    fl_tensor *b_ds = add_maybe(&c, hq ? expr_gemm(&c, hq, k, false, true) : NULL,
                                hk ? expr_gemm(&c, q, hk, false, true) : NULL);
    if (!b_ds) b_ds = zeros_like(&c, w.p);
    b_ds = expr_mul_number(&c, b_ds, scale);
    fl_tensor *b_dp = expr_mul(&c, b_ds, w.p), *b_delta = expr_neg(&c, expr_sum(&c, b_dp, 1u << last, true));
    fl_tensor *b_p = expr_mul(&c, b_ds, expr_sub(&c, w.dp, w.delta));
    if (hv) b_p = expr_add(&c, b_p, dropped(&c, &w, expr_gemm(&c, dy, hv, false, true)));
    fl_tensor *b_scores = expr_mul(&c, w.p, b_p), *b_scaled = expr_mul_number(&c, b_scores, scale),
              *b_da = dropped(&c, &w, b_dp);

    fl_tensor *b_dy = expr_add(&c, expr_gemm(&c, b_da, v, false, false), expr_mul(&c, b_delta, out));
    if (hv) b_dy = expr_add(&c, b_dy, expr_gemm(&c, dropped(&c, &w, w.p), hv, false, false));
    fl_tensor *b_q = add_maybe(&c, expr_gemm(&c, b_scaled, k, false, false),
                               hk ? expr_gemm(&c, ds, hk, false, false) : NULL);
    fl_tensor *b_k = add_maybe(&c, expr_gemm(&c, b_scaled, q, true, false),
                               hq ? expr_gemm(&c, ds, hq, true, false) : NULL);
    fl_tensor *b_v = expr_gemm(&c, b_da, dy, true, false), *b_out = expr_mul(&c, b_delta, dy);
    fl_tensor *b_lse = c.status == FL_OK
        ? expr_reshape(&c, expr_neg(&c, expr_sum(&c, b_scores, 1u << last, true)), &lse->meta->shape)
        : NULL;
    fl_tensor *b_dlse = dlse ? expr_reshape(&c, expr_neg(&c, b_delta), &dlse->meta->shape) : NULL;

    fl_tensor *results[] = {b_dy, b_q, b_k, b_v, b_scores, b_out, b_lse, NULL, b_dlse};
    for (int i = FL_ATTENTION_BACK_DY; i <= FL_ATTENTION_BACK_DLSE; i++)
        if (g->need[i] && results[i]) g->gin[i] = fl_expr_take(&c, results[i]);
    return fl_expr_end(&c);
}

/* ---- the two masks as ops ---- */

static fl_status check_scores(const fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT];
    FL_TRY(fl_require_float(infer, 0));
    if (infer->in[0].shape.ndim >= 2) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "takes scores [..., t, s], got %s",
                         fl_shape_text(tx, &infer->in[0].shape));
}

static fl_status infer_masked(fl_infer *infer)
{
    infer->name = "scaled_dot_product_attention";
    FL_TRY(check_scores(infer));
    FL_TRY(
        fl_attention_check_mask(infer, &infer->in[FL_ATTENTION_MASK_MASK], &infer->in[FL_ATTENTION_MASK_SCORES].shape));
    return fl_infer_same(infer);
}

static fl_status infer_factors(fl_infer *infer)
{
    infer->name = "scaled_dot_product_attention";
    FL_TRY(check_scores(infer));
    FL_TRY(fl_attention_check_key(infer, FL_ATTENTION_DROPOUT_KEY));
    return fl_infer_same(infer);
}

/* Element by element; the mask is split where it has the axis. */
static void sbp_mask(fl_sigs *sigs)
{
    const fl_shape *scores = &sigs->out_logical[0];
    for (int i = 0; i < scores->ndim; i++)
        FL_SIG(sigs, NULL, FL_S(i), fl_attention_mask_split(sigs, FL_ATTENTION_MASK_MASK, scores, i), FL_S(i));
}

/* A factor is drawn by its query and key; the kernel counts keys from 0, so they are not split. */
static void sbp_dropout(fl_sigs *sigs)
{
    for (int i = 0; i + 1 < sigs->out[0].shape.ndim; i++) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_S(i));
}

static fl_status kernel_mask(fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    fl_cpu_attention_mask(&s, kernel->attrs->at[FL_ATTENTION_CAUSAL].integer);
    return fl_stage_close(&s);
}

static fl_status kernel_dropout(fl_kernel *kernel)
{
    const fl_view *x = &kernel->out[0];
    int t = x->ndim - 2;
    fl_stage s;
    FL_TRY(fl_stage_open(&s, kernel, 1u << FL_ATTENTION_DROPOUT_SCORES));
    const int64_t *key = s.in[FL_ATTENTION_DROPOUT_KEY];
    fl_attention a = {.queries = x->size[t],
                      .keys = x->size[t + 1],
                      .first_query = x->start[t],
                      .logical_queries = x->logical[t],
                      .dropout = kernel->attrs->at[FL_ATTENTION_DROPOUT].number,
                      .seed = (uint64_t)key[0],
                      .counter = (uint64_t)key[1]};
    fl_cpu_attention_dropout(&s, &a);
    return fl_stage_close(&s);
}

static const char *const mask_vjp[] = {"g", "sum_to(g, mask)"};
static const char *const mask_samples[] = {"flow.randn(2, 3, 4), flow.randn(3, 4)", NULL};
FL_OP(attention_mask) = {
    .name = "attention_mask",
    .sig = "attention_mask(scores, mask?, " ATTENTION_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Scores plus the mask; scores that are masked out become -inf.",
    .infer = infer_masked,
    .sbp = sbp_mask,
    .cpu = kernel_mask,
    .vjp = mask_vjp,
    .samples = mask_samples,
};

static const char *const dropout_samples[] = {"flow.randn(2, 3, 4), flow.tensor{5, 9}, false, 0.4", NULL};
FL_OP(attention_dropout) = {
    .name = "attention_dropout",
    .sig = "attention_dropout(scores, key, " ATTENTION_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "The factors by which attention's dropout multiplies the weights: 0 or 1 / (1 - dropout).",
    .infer = infer_factors,
    .sbp = sbp_dropout,
    .cpu = kernel_dropout,
    .samples = dropout_samples,
};
