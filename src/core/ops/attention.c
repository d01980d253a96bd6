/*
** attention.c -- scaled dot-product attention: q [..., t, d], k [..., s, d], v [..., s, e] give [..., t, e].
**
** The hidden op keeps the log-sum-exp of every query and the random key of the dropout, from which backward makes the
** weights again. Gradients are those of attention_grad.c.
*/
#include "attention.h"
#include "cpu/attention.h"
#include "cpu/stage.h"
#include "value/random.h"
#include "expr.h"

#include <math.h>

/* ---- inference ---- */

static bool same_batch(const fl_shape *a, const fl_shape *b)
{
    return a->ndim == b->ndim && a->ndim >= 2 && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)(a->ndim - 2)) == 0;
}

static fl_status check_shapes(const fl_infer *infer, const fl_shape *q, const fl_shape *k, const fl_shape *v)
{
    char tq[FL_SHAPE_TEXT], tk[FL_SHAPE_TEXT], tv[FL_SHAPE_TEXT];
    int t = q->ndim - 2, d = q->ndim - 1;
    bool fits = same_batch(q, k) && same_batch(k, v) && q->dims[d] == k->dims[d] && k->dims[t] == v->dims[t];
    if (fits) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE,
                         "q [..., t, d], k [..., s, d] and v [..., s, e] do not fit: %s, %s and %s",
                         fl_shape_text(tq, q), fl_shape_text(tk, k), fl_shape_text(tv, v));
}

/* The scores' shape, [..., t, s]. */
static fl_shape score_shape(const fl_shape *q, const fl_shape *k)
{
    fl_shape s = *q;
    s.dims[s.ndim - 1] = k->dims[k->ndim - 2];
    return s;
}

fl_status fl_attention_check_mask(const fl_infer *infer, const fl_spec *mask, const fl_shape *scores)
{
    char tm[FL_SHAPE_TEXT], ts[FL_SHAPE_TEXT];
    fl_shape both;
    if (mask->kind == FL_NONE) return FL_OK;
    if (mask->dtype != FL_BOOL && !fl_dtype_is_float(mask->dtype))
        return fl_infer_fail(infer, FL_ERR_DTYPE,
                             "mask must be bool (true takes part) or float (added to the scores), got %s",
                             fl_dtype_name(mask->dtype));
    if (fl_shape_broadcast(&both, infer->name, &mask->shape, scores) == FL_OK && fl_shape_equal(&both, scores))
        return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "mask %s does not broadcast to the scores %s",
                         fl_shape_text(tm, &mask->shape), fl_shape_text(ts, scores));
}

static fl_status infer_rows(fl_infer *infer)
{
    const fl_shape *q = &infer->in[FL_ATTENTION_Q].shape, *k = &infer->in[FL_ATTENTION_K].shape,
                   *v = &infer->in[FL_ATTENTION_V].shape;
    infer->name = "scaled_dot_product_attention";
    for (int i = FL_ATTENTION_Q; i <= FL_ATTENTION_V; i++) FL_TRY(fl_require_float(infer, i));
    FL_TRY(check_shapes(infer, q, k, v));
    fl_shape scores = score_shape(q, k);
    FL_TRY(fl_attention_check_mask(infer, &infer->in[FL_ATTENTION_MASK], &scores));
    infer->out[FL_ATTENTION_OUT].dtype =
        fl_infer_promote_some(infer, 1u << FL_ATTENTION_Q | 1u << FL_ATTENTION_K | 1u << FL_ATTENTION_V);
    infer->out[FL_ATTENTION_LSE].dtype = fl_dtype_compute(
        infer->out[FL_ATTENTION_OUT].dtype); /* weights are e^(score - lse): 16 bits would be off by percents */
    infer->out[FL_ATTENTION_OUT].shape = *q;
    infer->out[FL_ATTENTION_OUT].shape.dims[q->ndim - 1] = v->dims[v->ndim - 1];
    fl_reduce_shape(&infer->out[FL_ATTENTION_LSE].shape, q, 1u << (q->ndim - 1), false);
    infer->out[FL_ATTENTION_KEY].dtype = FL_INT64;
    infer->out[FL_ATTENTION_KEY].shape = (fl_shape){1, {2}};
    return FL_OK;
}

fl_status fl_attention_check_key(const fl_infer *infer, int i)
{
    fl_shape pair = {1, {2}};
    if (infer->in[i].dtype != FL_INT64)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "key must be int64, got %s", fl_dtype_name(infer->in[i].dtype));
    return fl_require_shape(infer, i, "key", &pair);
}

static fl_status infer_backward(fl_infer *infer)
{
    const fl_shape *q = &infer->in[FL_ATTENTION_BACK_Q].shape, *k = &infer->in[FL_ATTENTION_BACK_K].shape,
                   *v = &infer->in[FL_ATTENTION_BACK_V].shape;
    for (int i = FL_ATTENTION_BACK_DY; i <= FL_ATTENTION_BACK_DLSE; i++)
        if (i != FL_ATTENTION_BACK_MASK && i != FL_ATTENTION_BACK_KEY && infer->in[i].kind != FL_NONE)
            FL_TRY(fl_require_float(infer, i));
    FL_TRY(check_shapes(infer, q, k, v));
    fl_shape scores = score_shape(q, k), out = *q, lse;
    out.dims[q->ndim - 1] = v->dims[v->ndim - 1];
    fl_reduce_shape(&lse, q, 1u << (q->ndim - 1), false);
    FL_TRY(fl_attention_check_mask(infer, &infer->in[FL_ATTENTION_BACK_MASK], &scores));
    FL_TRY(fl_require_shape(infer, FL_ATTENTION_BACK_DY, "dy", &out));
    FL_TRY(fl_require_shape(infer, FL_ATTENTION_BACK_OUT, "out", &out));
    FL_TRY(fl_require_shape(infer, FL_ATTENTION_BACK_LSE, "lse", &lse));
    FL_TRY(fl_require_shape(infer, FL_ATTENTION_BACK_DLSE, "dlse", &lse));
    FL_TRY(fl_attention_check_key(infer, FL_ATTENTION_BACK_KEY));
    for (int i = 0; i < 3; i++) {
        infer->out[i].dtype = infer->in[FL_ATTENTION_BACK_OUT].dtype;
        infer->out[i].shape = infer->in[FL_ATTENTION_BACK_Q + i].shape;
    }
    return FL_OK;
}

/* ---- SBP ---- */

fl_sbp fl_attention_mask_split(const fl_sigs *sigs, int mask, const fl_shape *scores, int i)
{
    const fl_shape *m = &sigs->in_logical[mask];
    int own = i - (scores->ndim - m->ndim);
    if (sigs->in[mask].kind == FL_NONE || own < 0 || m->dims[own] != scores->dims[i] || m->dims[own] == 1) return FL_B;
    return FL_S(own);
}

/* Batches and heads are independent, and so are queries: each needs all keys and values. Keys are not split, because
** softmax needs whole rows of scores. The random key of the dropout is the same on all ranks. */
static void sbp_rows(fl_sigs *sigs)
{
    fl_shape scores = score_shape(&sigs->in_logical[FL_ATTENTION_Q], &sigs->in_logical[FL_ATTENTION_K]);
    int t = scores.ndim - 2;
    for (int i = 0; i < t; i++)
        FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_S(i), fl_attention_mask_split(sigs, FL_ATTENTION_MASK, &scores, i),
               FL_S(i), FL_S(i), FL_B);
    FL_SIG(sigs, NULL, FL_S(t), FL_B, FL_B, fl_attention_mask_split(sigs, FL_ATTENTION_MASK, &scores, t), FL_S(t),
           FL_S(t), FL_B);
}

/* As sbp_rows; dk and dv are sums over the queries, so they are partial where queries are split. */
static void sbp_backward(fl_sigs *sigs)
{
    fl_shape scores = score_shape(&sigs->in_logical[FL_ATTENTION_BACK_Q], &sigs->in_logical[FL_ATTENTION_BACK_K]);
    int t = scores.ndim - 2;
    for (int i = 0; i <= t; i++) {
        fl_sbp at = FL_S(i), keys = i < t ? at : FL_B, grads = i < t ? at : FL_PSUM;
        fl_sbp dlse = sigs->in[FL_ATTENTION_BACK_DLSE].kind == FL_TENSOR ? at : FL_B;
        FL_SIG(sigs, NULL, at, at, keys, keys, fl_attention_mask_split(sigs, FL_ATTENTION_BACK_MASK, &scores, i), at,
               at, FL_B, dlse, at, grads, grads);
    }
}

/* ---- kernels ---- */

/* Operands whose rows can be read where they lie. The mask may have any strides if the kernel reads its dtype. */
static uint32_t readable(const fl_kernel *kernel, uint32_t candidates, int mask)
{
    fl_dtype dtype = fl_dtype_compute(kernel->out[0].dtype);
    uint32_t found = 0;
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        if (!(candidates >> i & 1u) || !v->data || v->dtype != dtype) continue;
        if (v->size[v->ndim - 1] <= 1 || v->stride[v->ndim - 1] == 1) found |= 1u << i;
    }
    if (kernel->in[mask].data && (kernel->in[mask].dtype == FL_BOOL || kernel->in[mask].dtype == dtype))
        found |= 1u << mask;
    return found;
}

/* The values that all heads share, from q, k, v and the attributes. */
static fl_attention attention_of(const fl_kernel *kernel, const fl_view *q, const fl_view *key, const fl_view *v,
                                 uint64_t seed, uint64_t counter)
{
    int t = q->ndim - 2;
    const fl_attr *scale = &kernel->attrs->at[FL_ATTENTION_SCALE];
    return (fl_attention){.queries = q->size[t],
                          .keys = key->size[t],
                          .width = q->size[t + 1],
                          .value_width = v->size[t + 1],
                          .causal = kernel->attrs->at[FL_ATTENTION_CAUSAL].integer,
                          .first_query = q->start[t],
                          .logical_queries = q->logical[t],
                          .scale = scale->given ? scale->number : 1 / sqrt((double)q->logical[t + 1]),
                          .dropout = kernel->attrs->at[FL_ATTENTION_DROPOUT].number,
                          .seed = seed,
                          .counter = counter};
}

static fl_status kernel_rows(fl_kernel *kernel)
{
    fl_stage s;
    int64_t *key = kernel->out[FL_ATTENTION_KEY].data;
    key[0] = (int64_t)kernel->seed;
    key[1] = (int64_t)kernel->counter;
    if (kernel->out[FL_ATTENTION_OUT].numel == 0 && kernel->out[FL_ATTENTION_LSE].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel,
                         readable(kernel, 1u << FL_ATTENTION_Q | 1u << FL_ATTENTION_K | 1u << FL_ATTENTION_V,
                                  FL_ATTENTION_MASK)));
    fl_attention a = attention_of(kernel, &kernel->in[FL_ATTENTION_Q], &kernel->in[FL_ATTENTION_K],
                                  &kernel->in[FL_ATTENTION_V], kernel->seed, kernel->counter);
    FL_TRY(fl_cpu_attention(&s, &a));
    return fl_stage_close(&s);
}

/* dlse enters through delta: the gradient of a score is p (dp - sum(dy out) + dlse). */
static fl_status kernel_backward(fl_kernel *kernel)
{
    fl_stage s;
    FL_TRY(fl_stage_open(&s, kernel,
                         readable(kernel,
                                  1u << FL_ATTENTION_BACK_DY | 1u << FL_ATTENTION_BACK_Q | 1u << FL_ATTENTION_BACK_K
                                      | 1u << FL_ATTENTION_BACK_V,
                                  FL_ATTENTION_BACK_MASK)));
    const int64_t *key = s.in[FL_ATTENTION_BACK_KEY];
    fl_attention a = attention_of(kernel, &kernel->in[FL_ATTENTION_BACK_Q], &kernel->in[FL_ATTENTION_BACK_K],
                                  &kernel->in[FL_ATTENTION_BACK_V], (uint64_t)key[0], (uint64_t)key[1]);
    FL_TRY(fl_cpu_attention_backward(&s, &a));
    return fl_stage_close(&s);
}

/* ---- operations ---- */

/* Queries with the keys that each of them sees, in all batches and heads of this part. */
static int64_t pairs(const fl_kernel *kernel, const fl_view *q, const fl_view *key)
{
    int t = q->ndim - 2;
    int64_t keys = key->size[t], first = q->start[t] + 1, seen = 0, heads = 1;
    for (int i = 0; i < t; i++) heads *= q->size[i];
    if (!kernel->attrs->at[FL_ATTENTION_CAUSAL].integer) return heads * q->size[t] * keys;
    int64_t growing = keys - first; /* queries that see one key more than the one before, and not all */
    growing = growing < 0 ? 0 : growing > q->size[t] ? q->size[t] : growing;
    seen = growing * first + growing * (growing - 1) / 2 + (q->size[t] - growing) * keys;
    return heads * seen;
}

/* Scores and their sums of values: two products. */
static int64_t flops_rows(const fl_kernel *kernel)
{
    const fl_view *q = &kernel->in[FL_ATTENTION_Q], *v = &kernel->in[FL_ATTENTION_V];
    int64_t widths = q->size[q->ndim - 1] + v->size[v->ndim - 1];
    return 2 * pairs(kernel, q, &kernel->in[FL_ATTENTION_K]) * widths;
}

/* The scores once more, dq and dk; the gradient of the weights and dv. */
static int64_t flops_backward(const fl_kernel *kernel)
{
    const fl_view *q = &kernel->in[FL_ATTENTION_BACK_Q], *v = &kernel->in[FL_ATTENTION_BACK_V];
    int64_t widths = 3 * q->size[q->ndim - 1] + 2 * v->size[v->ndim - 1];
    return 2 * pairs(kernel, q, &kernel->in[FL_ATTENTION_BACK_K]) * widths;
}

/* ---- the public op ---- */

enum { PUBLIC_GQA = FL_ATTENTION_SCALE + 1 }; /* behind the attributes that all have */

/* x [..., heads, t, d] with every head `times` times, one after the other. */
static fl_tensor *repeat_heads(fl_expr *expr, fl_tensor *x, int64_t times)
{
    if (expr->status != FL_OK || times == 1) return x;
    fl_shape whole = x->meta->shape, apart = whole;
    int heads = whole.ndim - 3;
    memmove(apart.dims + heads + 2, apart.dims + heads + 1, 2 * sizeof(int64_t));
    apart.dims[heads + 1] = times;
    apart.ndim++;
    whole.dims[heads] *= times;
    return expr_reshape(expr, expr_expanded(expr, expr_unsqueeze(expr, x, heads + 1), &apart), &whole);
}

/* Keys and values for as many heads as queries have. */
static fl_status share_heads(fl_tensor **k, fl_tensor **v, fl_expr *expr, const fl_shape *q)
{
    char tq[FL_SHAPE_TEXT], tk[FL_SHAPE_TEXT], tv[FL_SHAPE_TEXT];
    const fl_shape *sk = &(*k)->meta->shape, *sv = &(*v)->meta->shape;
    bool fits = q->ndim >= 3 && q->ndim < FL_MAX_NDIM && sk->ndim == q->ndim && sv->ndim == q->ndim;
    int64_t heads = fits ? q->dims[q->ndim - 3] : 0, of_k = fits ? sk->dims[q->ndim - 3] : 0,
            of_v = fits ? sv->dims[q->ndim - 3] : 0;
    if (!fits || of_k == 0 || of_v == 0 || heads % of_k || heads % of_v)
        return fl_fail(FL_ERR_SHAPE,
                       "scaled_dot_product_attention: enable_gqa takes [..., heads, t, d] with a multiple of the heads "
                       "of k and v in q; got %s, %s and %s",
                       fl_shape_text(tq, q), fl_shape_text(tk, sk), fl_shape_text(tv, sv));
    *k = repeat_heads(expr, *k, heads / of_k);
    *v = repeat_heads(expr, *v, heads / of_v);
    return FL_OK;
}

/* Batch axes of q, k and v broadcast; the op refuses those that do not. */
static void broadcast_batches(fl_tensor **x, fl_expr *expr)
{
    fl_shape batch = {0, {0}}, both;
    if (expr->status != FL_OK
        || (same_batch(&x[0]->meta->shape, &x[1]->meta->shape) && same_batch(&x[1]->meta->shape, &x[2]->meta->shape)))
        return;
    for (int i = 0; i < 3; i++) {
        fl_shape own = x[i]->meta->shape;
        if ((own.ndim -= 2) < 0) return;
        for (int a = 0; a < own.ndim || a < batch.ndim; a++) {
            int64_t m = a < own.ndim ? own.dims[own.ndim - 1 - a] : 1,
                    n = a < batch.ndim ? batch.dims[batch.ndim - 1 - a] : 1;
            if (m != n && m != 1 && n != 1) return;
        }
        if (fl_shape_broadcast(&both, "scaled_dot_product_attention", &batch, &own) != FL_OK) return;
        batch = both;
    }
    for (int i = 0; i < 3; i++) {
        const fl_shape *own = &x[i]->meta->shape;
        fl_shape whole = batch;
        memcpy(whole.dims + batch.ndim, own->dims + own->ndim - 2, 2 * sizeof(int64_t));
        whole.ndim += 2;
        x[i] = expr_expanded(expr, x[i], &whole);
        if (!x[i]) return;
    }
}

static fl_status attend(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs)
{
    fl_tensor *results[3];
    double dropout = attrs->at[FL_ATTENTION_DROPOUT].number;
    if (!(dropout >= 0 && dropout <= 1))
        return fl_fail(FL_ERR_VALUE, "scaled_dot_product_attention: dropout must be between 0 and 1, got %g", dropout);
    fl_attrs a = fl_attention_attrs(FL_OP_REF(attention_rows), attrs);
    fl_generator before = *fl_generator_current();
    FL_TRY(FL_CALL_WITH(results, &a, attention_rows, in[FL_ATTENTION_Q], in[FL_ATTENTION_K], in[FL_ATTENTION_V],
                        in[FL_ATTENTION_MASK]));
    if (dropout == 0) fl_dispatch_undraw(&before);
    fl_tensor_unref(results[FL_ATTENTION_LSE]);
    fl_tensor_unref(results[FL_ATTENTION_KEY]);
    out[0] = results[FL_ATTENTION_OUT];
    return FL_OK;
}

static fl_status body_attention(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x[3] = {in[FL_ATTENTION_Q].tensor, in[FL_ATTENTION_K].tensor, in[FL_ATTENTION_V].tensor};
    if (attrs->at[PUBLIC_GQA].integer) c.status = share_heads(&x[1], &x[2], &c, &x[0]->meta->shape);
    broadcast_batches(x, &c);
    if (c.status == FL_OK)
        c.status = attend(out, (const fl_operand[]){fl_of(x[0]), fl_of(x[1]), fl_of(x[2]), in[FL_ATTENTION_MASK]},
                          attrs);
    return fl_expr_end(&c);
}

/* ---- descriptors ---- */

static const char *const attention_samples[] = {
    "flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), nil, true",
    "flow.randn(2, 4, 3), flow.randn(2, 6, 3), flow.randn(2, 6, 5)",
    "flow.randn(2, 4, 3), flow.randn(2, 6, 3), flow.randn(2, 6, 5), flow.randn(4, 6)",
    "flow.randn(2, 3, 4, 3), flow.randn(2, 3, 4, 3), flow.randn(2, 3, 4, 3), "
    "flow.randn(2, 1, 4, 4):gt(-1), false, 0, 0.3",
    "flow.randn(2, 4, 3, 2), flow.randn(2, 2, 5, 2), flow.randn(2, 1, 5, 3), nil, false, 0, nil, true",
    "flow.randn(2, 2, 3, 2), flow.randn(2, 1, 5, 2), flow.randn(2, 5, 3)",
    NULL};
FL_OP(scaled_dot_product_attention) = {
    .name = "scaled_dot_product_attention",
    .sig = "scaled_dot_product_attention(q, k, v, mask?, " ATTENTION_ATTRS ", enable_gqa: bool = false)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_FUNCTION_ONLY,
    .doc =
        "softmax(q k^T scale + mask) v without storing the scores; scale is 1 / sqrt of q's last size when not given.",
    .body = body_attention,
    .samples = attention_samples,
};

static const char *const rows_samples[] = {
    "flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), nil, true",
    "flow.randn(2, 4, 3), flow.randn(2, 6, 3), flow.randn(2, 6, 5), flow.randn(4, 6), false, 0.3, 0.7",
    "flow.randn(2, 3, 4, 3), flow.randn(2, 3, 4, 3), flow.randn(2, 3, 4, 3), flow.randn(2, 1, 4, 4):gt(-1), true, 0.2",
    NULL};
FL_OP(attention_rows) = {
    .name = "attention_rows",
    .sig = "attention_rows(q, k, v, mask?, " ATTENTION_ATTRS ")",
    .nout = 3,
    .flags = FL_OP_HIDDEN | FL_OP_RANDOM,
    .doc = "Attention, the log-sum-exp of every query's scores, and the random key of its dropout.",
    .saves_in = 1u << FL_ATTENTION_Q | 1u << FL_ATTENTION_K | 1u << FL_ATTENTION_V | 1u << FL_ATTENTION_MASK,
    .saves_out = 1u << FL_ATTENTION_OUT | 1u << FL_ATTENTION_LSE | 1u << FL_ATTENTION_KEY,
    .infer = infer_rows,
    .sbp = sbp_rows,
    .cpu = kernel_rows,
    .flops = flops_rows,
    .grad = fl_attention_grad,
    .samples = rows_samples,
};

static const char *const backward_samples[] = {
    "flow.randn(2, 4, 5), flow.randn(2, 4, 3), flow.randn(2, 6, 3), flow.randn(2, 6, 5), flow.randn(4, 6), "
    "flow.randn(2, 4, 5), flow.randn(2, 4) + 2, flow.tensor{5, 9}, flow.randn(2, 4), true, 0.3",
    "flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5, 4), nil, "
    "flow.randn(2, 3, 5, 4), flow.randn(2, 3, 5) + 2, flow.tensor{5, 9}",
    NULL};
FL_OP(attention_backward) = {
    .name = "attention_backward",
    .sig = "attention_backward(dy, q, k, v, mask?, out, lse, key, dlse?, " ATTENTION_ATTRS ")",
    .nout = 3,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradients of attention_rows with respect to q, k and v.",
    .saves_in = (1u << FL_ATTENTION_BACK_OPERANDS) - 1,
    .infer = infer_backward,
    .sbp = sbp_backward,
    .cpu = kernel_backward,
    .flops = flops_backward,
    .grad = fl_attention_backward_grad,
    .samples = backward_samples,
};
