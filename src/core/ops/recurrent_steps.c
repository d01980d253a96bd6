/*
** recurrent_steps.c -- recurrent layers step by step in other ops: where there is no kernel, and for gradients of
** gradients.
**
** Backward is written with the gates and cells that forward gave, which count as variables of their own: what it
** computes can be differentiated again, through them and through recurrent_rows.
*/
#include "recurrent.h"
#include "expr.h"

#include <stdlib.h>

/* One layer in one direction while its steps are taken. */
struct steps {
    fl_recurrent_kind kind;
    bool reverse;
    int64_t count, width;
    fl_tensor *weight, *bias, *lengths; /* borrowed */
    fl_tensor *state[2];                /* owned; h and c, or their gradients; NULL: zeros */
    fl_tensor **results[2];             /* owned lists of owned tensors, `count` each */
    fl_dtype dtype;                     /* of the results; steps of 16 bits are taken in float32 */
};

static int64_t step_at(const struct steps *s, int64_t count) { return s->reverse ? s->count - 1 - count : count; }

static fl_status steps_open(struct steps *s, const char *who)
{
    for (int i = 0; i < 2; i++)
        if (!(s->results[i] = calloc((size_t)s->count, sizeof **s->results)))
            return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld steps", who, (long long)s->count);
    return FL_OK;
}

static void steps_close(struct steps *s)
{
    for (int i = 0; i < 2; i++) {
        for (int64_t t = 0; s->results[i] && t < s->count; t++) fl_tensor_unref(s->results[i][t]);
        free(s->results[i]);
        fl_tensor_unref(s->state[i]);
    }
}

static void set_state(struct steps *s, fl_expr *expr, int i, fl_tensor *value)
{
    fl_tensor *before = s->state[i];
    s->state[i] = fl_expr_take(expr, value);
    fl_tensor_unref(before);
}

/* The results of all steps along a new axis 0, in the dtype of the whole. */
static fl_status stack_results(fl_tensor **out, const struct steps *s, int i)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_operand *list = malloc(sizeof *list * (size_t)s->count);
    if (!list) return fl_fail(FL_ERR_MEMORY, "stack: out of memory for %lld steps", (long long)s->count);
    for (int64_t t = 0; t < s->count; t++) list[t] = fl_of(s->results[i][t]);
    fl_attrs_init(&a, FL_OP_REF(stack));
    fl_attr_set(&a, 0, 0);
    fl_tensor *stacked = fl_expr_call(&c, FL_OP_REF(stack), list, (int)s->count, &a);
    free(list);
    out[0] = fl_expr_take(&c, expr_cast(&c, stacked, s->dtype));
    return fl_expr_end(&c);
}

/* ---- pieces of a step ---- */

static fl_tensor *add_maybe(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return !x ? y : !y ? x : expr_add(expr, x, y);
}

static fl_tensor *at_step(fl_expr *expr, fl_tensor *x, int64_t step)
{
    return x ? expr_widen(expr, expr_selected(expr, x, 0, step)) : NULL;
}

/* Part g of the gates of a step; NULL of none. */
static fl_tensor *gate(fl_expr *expr, const struct steps *s, fl_tensor *gates, int g)
{
    return gates ? expr_narrowed(expr, gates, 1, g * s->width, s->width) : NULL;
}

static fl_tensor *expr_tanh(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, tanh, fl_of(x)); }
static fl_tensor *expr_sigmoid(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, sigmoid, fl_of(x)); }
static fl_tensor *tanh_slope(fl_expr *expr, fl_tensor *grad, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, tanh_backward, fl_of(grad), fl_of(y));
}
static fl_tensor *sigmoid_slope(fl_expr *expr, fl_tensor *grad, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, sigmoid_backward, fl_of(grad), fl_of(y));
}

/* Rows [batch, 1] whose sequence has not ended at a step; NULL: all. */
static fl_tensor *running(fl_expr *expr, const struct steps *s, int64_t step)
{
    if (!s->lengths) return NULL;
    return expr_unsqueeze(expr, EXPR_CALL(expr, NULL, gt, fl_of(s->lengths), fl_of_integer(step)), 1);
}

/* x in the rows that run, y in the others; y NULL: zeros. */
static fl_tensor *where_running(fl_expr *expr, fl_tensor *rows, fl_tensor *x, fl_tensor *y)
{
    if (!rows) return x;
    return EXPR_CALL(expr, NULL, where, fl_of(rows), fl_of(x), y ? fl_of(y) : fl_of_integer(0));
}

/* ---- forward ---- */

/* h (and c) after a step; what recurrent_rows calls cells into *cell. */
static fl_tensor *cell(fl_expr *e, const struct steps *s, fl_tensor *x, fl_tensor **cell)
{
    fl_tensor *h = s->state[0], *c = s->state[1], *sum = h ? expr_gemm(e, h, s->weight, false, true) : NULL;
    if (s->kind == FL_GRU) {
        fl_tensor *r = expr_sigmoid(e, add_maybe(e, gate(e, s, x, 0), gate(e, s, sum, 0)));
        fl_tensor *z = expr_sigmoid(e, add_maybe(e, gate(e, s, x, 1), gate(e, s, sum, 1)));
        fl_tensor *q = gate(e, s, sum, 2);
        if (!q) q = expr_zeros(e, r);
        if (s->bias) q = expr_add(e, q, s->bias);
        fl_tensor *new = expr_tanh(e, expr_add(e, gate(e, s, x, 2), expr_mul(e, r, q)));
        *cell = q;
        return expr_add(e, new, expr_mul(e, z, h ? expr_sub(e, h, new) : expr_neg(e, new)));
    }
    fl_tensor *all = add_maybe(e, x, sum);
    *cell = NULL;
    if (s->kind == FL_RNN_TANH) return expr_tanh(e, all);
    if (s->kind == FL_RNN_RELU) return EXPR_CALL(e, NULL, relu, fl_of(all));
    fl_tensor *i = expr_sigmoid(e, gate(e, s, all, 0)), *f = expr_sigmoid(e, gate(e, s, all, 1));
    fl_tensor *g = expr_tanh(e, gate(e, s, all, 2)), *o = expr_sigmoid(e, gate(e, s, all, 3));
    *cell = add_maybe(e, expr_mul(e, i, g), c ? expr_mul(e, f, c) : NULL);
    return expr_mul(e, o, expr_tanh(e, *cell));
}

static fl_status forward_step(struct steps *s, fl_tensor *x, int64_t step)
{
    fl_expr c = {0};
    fl_tensor *cells, *y = cell(&c, s, at_step(&c, x, step), &cells), *rows = running(&c, s, step);
    y = where_running(&c, rows, y, s->state[0]);
    if (cells) cells = where_running(&c, rows, cells, s->kind == FL_LSTM ? s->state[1] : NULL);
    set_state(s, &c, 0, y);
    s->results[0][step] = fl_expr_take(&c, y);
    if (cells) s->results[1][step] = fl_expr_take(&c, cells);
    if (s->kind == FL_LSTM) set_state(s, &c, 1, cells);
    return fl_expr_end(&c);
}

static fl_tensor *tensor_of(const fl_operand *operand) { return operand->kind == FL_TENSOR ? operand->tensor : NULL; }

fl_status fl_recurrent_as_ops(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[FL_RECURRENT_X].tensor, *weight = in[FL_RECURRENT_WEIGHT].tensor,
              *bias = tensor_of(&in[FL_RECURRENT_BIAS]),
              *first[2] = {tensor_of(&in[FL_RECURRENT_H0]), tensor_of(&in[FL_RECURRENT_C0])};
    struct steps s = {.kind = (fl_recurrent_kind)attrs->at[FL_RECURRENT_KIND].integer,
                      .reverse = attrs->at[FL_RECURRENT_REVERSE].integer,
                      .count = x->meta->shape.dims[0],
                      .width = fl_recurrent_width(&weight->meta->shape),
                      .weight = expr_widen(&c, weight),
                      .bias = bias ? expr_widen(&c, bias) : NULL,
                      .lengths = tensor_of(&in[FL_RECURRENT_LENGTHS]),
                      .dtype = x->meta->dtype};
    fl_status status = c.status == FL_OK ? steps_open(&s, "recurrent") : c.status;
    for (int i = 0; i < 2; i++)
        if (status == FL_OK && first[i]) set_state(&s, &c, i, expr_widen(&c, first[i]));
    for (int64_t count = 0; status == FL_OK && count < s.count; count++)
        status = forward_step(&s, x, step_at(&s, count));
    if (status == FL_OK) status = stack_results(&out[FL_RECURRENT_Y], &s, 0);
    if (status == FL_OK && (s.kind == FL_LSTM || s.kind == FL_GRU))
        status = stack_results(&out[FL_RECURRENT_CELLS], &s, 1);
    else if (status == FL_OK) {
        fl_tensor *flat = expr_reshape(&c, x, &(fl_shape){1, {x->meta->numel}});
        out[FL_RECURRENT_CELLS] = fl_expr_take(&c, expr_narrowed(&c, flat, 0, 0, 0));
        status = c.status;
    }
    if (status != FL_OK) fl_tensor_unref(out[FL_RECURRENT_Y]);
    steps_close(&s);
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

/* ---- backward ---- */

/* Tensors of the call whose gradient is asked for; NULL: absent. */
struct call {
    fl_tensor *dy, *dcells, *dgates, *y, *cells, *gates, *first;
};

/* What came before a step: `all` a step earlier, or `first`. */
static fl_tensor *before(fl_expr *e, const struct steps *s, int64_t count, fl_tensor *all, fl_tensor *first)
{
    return count ? at_step(e, all, step_at(s, count - 1)) : first ? expr_widen(e, first) : NULL;
}

/* Gradients of a step, given that of its h (all of it) and c (from the step after it). */
struct slopes {
    fl_tensor *dx, *dq, *dh, *dc; /* dq: GRU; dc: LSTM, before the step */
};

static struct slopes lstm_slopes(fl_expr *e, const struct steps *s, const struct call *call, int64_t count,
                                 fl_tensor *dh)
{
    int64_t step = step_at(s, count);
    fl_tensor *all = at_step(e, call->gates, step), *more = at_step(e, call->dgates, step);
    fl_tensor *i = gate(e, s, all, 0), *f = gate(e, s, all, 1), *g = gate(e, s, all, 2), *o = gate(e, s, all, 3);
    fl_tensor *c = expr_tanh(e, at_step(e, call->cells, step)), *c0 = before(e, s, count, call->cells, call->first);
    fl_tensor *dc = add_maybe(e, tanh_slope(e, expr_mul(e, dh, o), c),
                              add_maybe(e, s->state[1], at_step(e, call->dcells, step)));
    fl_tensor *di = add_maybe(e, expr_mul(e, dc, g), gate(e, s, more, 0));
    fl_tensor *df = add_maybe(e, c0 ? expr_mul(e, dc, c0) : expr_zeros(e, dc), gate(e, s, more, 1));
    fl_tensor *dg = add_maybe(e, expr_mul(e, dc, i), gate(e, s, more, 2));
    fl_tensor *d_o = add_maybe(e, expr_mul(e, dh, c), gate(e, s, more, 3));
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cat));
    fl_attr_set(&a, 0, 1);
    fl_tensor *dx = EXPR_CALL(e, &a, cat, fl_of(sigmoid_slope(e, di, i)), fl_of(sigmoid_slope(e, df, f)),
                              fl_of(tanh_slope(e, dg, g)), fl_of(sigmoid_slope(e, d_o, o)));
    return (struct slopes){dx, NULL, expr_gemm(e, dx, s->weight, false, false), expr_mul(e, dc, f)};
}

static struct slopes gru_slopes(fl_expr *e, const struct steps *s, const struct call *call, int64_t count,
                                fl_tensor *dh)
{
    int64_t step = step_at(s, count);
    fl_tensor *all = at_step(e, call->gates, step), *more = at_step(e, call->dgates, step);
    fl_tensor *r = gate(e, s, all, 0), *z = gate(e, s, all, 1), *new = gate(e, s, all, 2);
    fl_tensor *q = at_step(e, call->cells, step), *h0 = before(e, s, count, call->y, call->first);
    fl_tensor *dn = add_maybe(e, expr_sub(e, dh, expr_mul(e, dh, z)), gate(e, s, more, 2));
    fl_tensor *dn_sum = tanh_slope(e, dn, new);
    fl_tensor *dq = add_maybe(e, expr_mul(e, dn_sum, r), at_step(e, call->dcells, step));
    fl_tensor *dr = add_maybe(e, expr_mul(e, dn_sum, q), gate(e, s, more, 0));
    fl_tensor *dz = add_maybe(e, expr_mul(e, dh, h0 ? expr_sub(e, h0, new) : expr_neg(e, new)), gate(e, s, more, 1));
    fl_tensor *drz = expr_concatenated(e, sigmoid_slope(e, dr, r), sigmoid_slope(e, dz, z), 1);
    fl_tensor *through = expr_gemm(e, expr_concatenated(e, drz, dq, 1), s->weight, false, false);
    return (struct slopes){expr_concatenated(e, drz, dn_sum, 1), dq, expr_add(e, expr_mul(e, dh, z), through), NULL};
}

static struct slopes rnn_slopes(fl_expr *e, const struct steps *s, const struct call *call, int64_t count,
                                fl_tensor *dh)
{
    fl_tensor *y = at_step(e, call->y, step_at(s, count));
    fl_tensor *dx = s->kind == FL_RNN_TANH ? tanh_slope(e, dh, y)
                                           : EXPR_CALL(e, NULL, relu_backward, fl_of(dh), fl_of(y));
    return (struct slopes){dx, NULL, expr_gemm(e, dx, s->weight, false, false), NULL};
}

static fl_status backward_step(struct steps *s, const struct call *call, int64_t count)
{
    fl_expr c = {0};
    int64_t step = step_at(s, count);
    fl_tensor *dh = add_maybe(&c, at_step(&c, call->dy, step), s->state[0]), *rows = running(&c, s, step);
    if (!dh) dh = expr_zeros(&c, at_step(&c, call->y, step));
    struct slopes found = s->kind == FL_LSTM ? lstm_slopes(&c, s, call, count, dh)
        : s->kind == FL_GRU                  ? gru_slopes(&c, s, call, count, dh)
                                             : rnn_slopes(&c, s, call, count, dh);
    if (found.dc && rows) {
        fl_tensor *resting = add_maybe(&c, s->state[1], at_step(&c, call->dcells, step));
        found.dc = where_running(&c, rows, found.dc, resting);
    }
    set_state(s, &c, 0, where_running(&c, rows, found.dh, dh));
    if (found.dc) set_state(s, &c, 1, found.dc);
    s->results[0][step] = fl_expr_take(&c, where_running(&c, rows, found.dx, NULL));
    if (found.dq) s->results[1][step] = fl_expr_take(&c, where_running(&c, rows, found.dq, NULL));
    return fl_expr_end(&c);
}

fl_status fl_recurrent_backward_as_ops(fl_tensor **out, const fl_grad *g)
{
    fl_expr c = {0};
    fl_recurrent_kind kind = (fl_recurrent_kind)g->attrs->at[FL_RECURRENT_KIND].integer;
    fl_tensor *y = g->out[FL_RECURRENT_Y], *weight = g->in[FL_RECURRENT_WEIGHT].tensor;
    struct call call = {.dy = g->gout[FL_RECURRENT_Y],
                        .dcells = g->gout[FL_RECURRENT_CELLS],
                        .dgates = g->gout[FL_RECURRENT_GATES],
                        .y = y,
                        .cells = g->out[FL_RECURRENT_CELLS],
                        .gates = g->out[FL_RECURRENT_GATES],
                        .first = kind == FL_LSTM ? tensor_of(&g->in[FL_RECURRENT_C0])
                            : kind == FL_GRU     ? tensor_of(&g->in[FL_RECURRENT_H0])
                                                 : NULL};
    struct steps s = {.kind = kind,
                      .reverse = g->attrs->at[FL_RECURRENT_REVERSE].integer,
                      .count = y->meta->shape.dims[0],
                      .width = fl_recurrent_width(&weight->meta->shape),
                      .weight = expr_widen(&c, weight),
                      .lengths = tensor_of(&g->in[FL_RECURRENT_LENGTHS]),
                      .dtype = y->meta->dtype};
    fl_status status = c.status == FL_OK ? steps_open(&s, "recurrent_backward") : c.status;
    for (int64_t count = s.count - 1; status == FL_OK && count >= 0; count--) status = backward_step(&s, &call, count);
    if (status == FL_OK) status = stack_results(&out[FL_RECURRENT_BACK_DX], &s, 0);
    if (status == FL_OK) {
        out[FL_RECURRENT_BACK_DH0] = fl_expr_take(&c, expr_cast(&c, s.state[0], s.dtype));
        if (kind == FL_GRU) c.status = stack_results(&out[FL_RECURRENT_BACK_MORE], &s, 1);
        else if (kind == FL_LSTM) out[FL_RECURRENT_BACK_MORE] = fl_expr_take(&c, expr_cast(&c, s.state[1], s.dtype));
    }
    steps_close(&s);
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}
