/*
** recurrent_steps.c -- recurrent layers step by step in other ops: where there is no kernel, and for gradients of
** gradients.
**
** Backward is written with the gates and cells that forward gave, which count as variables of their own: what it
** computes can be differentiated again, through them and through recurrent_rows.
*/
#include "op/views.h"
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

static int64_t step_at(const struct steps *steps, int64_t count)
{
    return steps->reverse ? steps->count - 1 - count : count;
}

static fl_status steps_open(struct steps *steps, const char *who)
{
    for (int i = 0; i < 2; i++)
        if (!(steps->results[i] = calloc((size_t)steps->count, sizeof **steps->results)))
            return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld steps", who, (long long)steps->count);
    return FL_OK;
}

static void steps_close(struct steps *steps)
{
    for (int i = 0; i < 2; i++) {
        for (int64_t t = 0; steps->results[i] && t < steps->count; t++) fl_tensor_unref(steps->results[i][t]);
        free(steps->results[i]);
        fl_tensor_unref(steps->state[i]);
    }
}

static void set_state(struct steps *steps, fl_expr *expr, int i, fl_tensor *value)
{
    fl_tensor *before = steps->state[i];
    steps->state[i] = fl_expr_take(expr, value);
    fl_tensor_unref(before);
}

/* The results of all steps along a new axis 0, in the dtype of the whole. */
static fl_status stack_results(fl_tensor **out, const struct steps *steps, int i)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_operand *list = malloc(sizeof *list * (size_t)steps->count);
    if (!list) return fl_fail(FL_ERR_MEMORY, "stack: out of memory for %lld steps", (long long)steps->count);
    for (int64_t t = 0; t < steps->count; t++) list[t] = fl_of(steps->results[i][t]);
    fl_attrs_init(&a, FL_OP_REF(stack));
    fl_attr_set(&a, FL_JOINED_AXIS, 0);
    fl_tensor *stacked = fl_expr_call(&c, FL_OP_REF(stack), list, (int)steps->count, &a);
    free(list);
    out[0] = fl_expr_take(&c, expr_cast(&c, stacked, steps->dtype));
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
static fl_tensor *gate(fl_expr *expr, const struct steps *steps, fl_tensor *gates, int g)
{
    return gates ? expr_narrowed(expr, gates, 1, g * steps->width, steps->width) : NULL;
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
static fl_tensor *running(fl_expr *expr, const struct steps *steps, int64_t step)
{
    if (!steps->lengths) return NULL;
    return expr_unsqueeze(expr, EXPR_CALL(expr, NULL, gt, fl_of(steps->lengths), fl_of_integer(step)), 1);
}

/* x in the rows that run, y in the others; y NULL: zeros. */
static fl_tensor *where_running(fl_expr *expr, fl_tensor *rows, fl_tensor *x, fl_tensor *y)
{
    if (!rows) return x;
    return EXPR_CALL(expr, NULL, where, fl_of(rows), fl_of(x), y ? fl_of(y) : fl_of_integer(0));
}

/* ---- forward ---- */

/* h (and c) after a step; *cell: the cells, as of recurrent_rows. */
static fl_tensor *cell(fl_expr *expr, const struct steps *steps, fl_tensor *x, fl_tensor **cell)
{
    fl_tensor *h = steps->state[0], *c = steps->state[1],
              *sum = h ? expr_gemm(expr, h, steps->weight, false, true) : NULL;
    if (steps->kind == FL_GRU) {
        fl_tensor *r = expr_sigmoid(expr, add_maybe(expr, gate(expr, steps, x, 0), gate(expr, steps, sum, 0)));
        fl_tensor *z = expr_sigmoid(expr, add_maybe(expr, gate(expr, steps, x, 1), gate(expr, steps, sum, 1)));
        fl_tensor *q = gate(expr, steps, sum, 2);
        if (!q) q = expr_zeros(expr, r);
        if (steps->bias) q = expr_add(expr, q, steps->bias);
        fl_tensor *new = expr_tanh(expr, expr_add(expr, gate(expr, steps, x, 2), expr_mul(expr, r, q)));
        *cell = q;
        return expr_add(expr, new, expr_mul(expr, z, h ? expr_sub(expr, h, new) : expr_neg(expr, new)));
    }
    fl_tensor *all = add_maybe(expr, x, sum);
    *cell = NULL;
    if (steps->kind == FL_RNN_TANH) return expr_tanh(expr, all);
    if (steps->kind == FL_RNN_RELU) return EXPR_CALL(expr, NULL, relu, fl_of(all));
    fl_tensor *i = expr_sigmoid(expr, gate(expr, steps, all, 0)), *f = expr_sigmoid(expr, gate(expr, steps, all, 1));
    fl_tensor *g = expr_tanh(expr, gate(expr, steps, all, 2)), *o = expr_sigmoid(expr, gate(expr, steps, all, 3));
    *cell = add_maybe(expr, expr_mul(expr, i, g), c ? expr_mul(expr, f, c) : NULL);
    return expr_mul(expr, o, expr_tanh(expr, *cell));
}

static fl_status forward_step(struct steps *steps, fl_tensor *x, int64_t step)
{
    fl_expr c = {0};
    fl_tensor *cells, *y = cell(&c, steps, at_step(&c, x, step), &cells), *rows = running(&c, steps, step);
    y = where_running(&c, rows, y, steps->state[0]);
    if (cells) cells = where_running(&c, rows, cells, steps->kind == FL_LSTM ? steps->state[1] : NULL);
    set_state(steps, &c, 0, y);
    steps->results[0][step] = fl_expr_take(&c, y);
    if (cells) steps->results[1][step] = fl_expr_take(&c, cells);
    if (steps->kind == FL_LSTM) set_state(steps, &c, 1, cells);
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

/* The value before a step: `all` a step earlier, or `first`. */
static fl_tensor *before(fl_expr *expr, const struct steps *steps, int64_t count, fl_tensor *all, fl_tensor *first)
{
    return count ? at_step(expr, all, step_at(steps, count - 1)) : first ? expr_widen(expr, first) : NULL;
}

/* Gradients of a step, given that of its h (all of it) and c (from the step after it). */
struct slopes {
    fl_tensor *dx, *dq, *dh, *dc; /* dq: GRU; dc: LSTM, before the step */
};

static struct slopes lstm_slopes(fl_expr *expr, const struct steps *steps, const struct call *call, int64_t count,
                                 fl_tensor *dh)
{
    int64_t step = step_at(steps, count);
    fl_tensor *all = at_step(expr, call->gates, step), *more = at_step(expr, call->dgates, step);
    fl_tensor *i = gate(expr, steps, all, 0), *f = gate(expr, steps, all, 1), *g = gate(expr, steps, all, 2),
              *o = gate(expr, steps, all, 3);
    fl_tensor *c = expr_tanh(expr, at_step(expr, call->cells, step)),
              *c0 = before(expr, steps, count, call->cells, call->first);
    fl_tensor *dc = add_maybe(expr, tanh_slope(expr, expr_mul(expr, dh, o), c),
                              add_maybe(expr, steps->state[1], at_step(expr, call->dcells, step)));
    fl_tensor *di = add_maybe(expr, expr_mul(expr, dc, g), gate(expr, steps, more, 0));
    fl_tensor *df = add_maybe(expr, c0 ? expr_mul(expr, dc, c0) : expr_zeros(expr, dc), gate(expr, steps, more, 1));
    fl_tensor *dg = add_maybe(expr, expr_mul(expr, dc, i), gate(expr, steps, more, 2));
    fl_tensor *d_o = add_maybe(expr, expr_mul(expr, dh, c), gate(expr, steps, more, 3));
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cat));
    fl_attr_set(&a, FL_JOINED_AXIS, 1);
    fl_tensor *dx = EXPR_CALL(expr, &a, cat, fl_of(sigmoid_slope(expr, di, i)), fl_of(sigmoid_slope(expr, df, f)),
                              fl_of(tanh_slope(expr, dg, g)), fl_of(sigmoid_slope(expr, d_o, o)));
    return (struct slopes){dx, NULL, expr_gemm(expr, dx, steps->weight, false, false), expr_mul(expr, dc, f)};
}

static struct slopes gru_slopes(fl_expr *expr, const struct steps *steps, const struct call *call, int64_t count,
                                fl_tensor *dh)
{
    int64_t step = step_at(steps, count);
    fl_tensor *all = at_step(expr, call->gates, step), *more = at_step(expr, call->dgates, step);
    fl_tensor *r = gate(expr, steps, all, 0), *z = gate(expr, steps, all, 1), *new = gate(expr, steps, all, 2);
    fl_tensor *q = at_step(expr, call->cells, step), *h0 = before(expr, steps, count, call->y, call->first);
    fl_tensor *dn = add_maybe(expr, expr_sub(expr, dh, expr_mul(expr, dh, z)), gate(expr, steps, more, 2));
    fl_tensor *dn_sum = tanh_slope(expr, dn, new);
    fl_tensor *dq = add_maybe(expr, expr_mul(expr, dn_sum, r), at_step(expr, call->dcells, step));
    fl_tensor *dr = add_maybe(expr, expr_mul(expr, dn_sum, q), gate(expr, steps, more, 0));
    fl_tensor *dz = add_maybe(expr, expr_mul(expr, dh, h0 ? expr_sub(expr, h0, new) : expr_neg(expr, new)),
                              gate(expr, steps, more, 1));
    fl_tensor *drz = expr_concatenated(expr, sigmoid_slope(expr, dr, r), sigmoid_slope(expr, dz, z), 1);
    fl_tensor *through = expr_gemm(expr, expr_concatenated(expr, drz, dq, 1), steps->weight, false, false);
    return (struct slopes){expr_concatenated(expr, drz, dn_sum, 1), dq, expr_add(expr, expr_mul(expr, dh, z), through),
                           NULL};
}

static struct slopes rnn_slopes(fl_expr *expr, const struct steps *steps, const struct call *call, int64_t count,
                                fl_tensor *dh)
{
    fl_tensor *y = at_step(expr, call->y, step_at(steps, count));
    fl_tensor *dx = steps->kind == FL_RNN_TANH ? tanh_slope(expr, dh, y)
                                               : EXPR_CALL(expr, NULL, relu_backward, fl_of(dh), fl_of(y));
    return (struct slopes){dx, NULL, expr_gemm(expr, dx, steps->weight, false, false), NULL};
}

static fl_status backward_step(struct steps *steps, const struct call *call, int64_t count)
{
    fl_expr c = {0};
    int64_t step = step_at(steps, count);
    fl_tensor *dh = add_maybe(&c, at_step(&c, call->dy, step), steps->state[0]), *rows = running(&c, steps, step);
    if (!dh) dh = expr_zeros(&c, at_step(&c, call->y, step));
    struct slopes found = steps->kind == FL_LSTM ? lstm_slopes(&c, steps, call, count, dh)
        : steps->kind == FL_GRU                  ? gru_slopes(&c, steps, call, count, dh)
                                                 : rnn_slopes(&c, steps, call, count, dh);
    if (found.dc && rows) {
        fl_tensor *resting = add_maybe(&c, steps->state[1], at_step(&c, call->dcells, step));
        found.dc = where_running(&c, rows, found.dc, resting);
    }
    set_state(steps, &c, 0, where_running(&c, rows, found.dh, dh));
    if (found.dc) set_state(steps, &c, 1, found.dc);
    steps->results[0][step] = fl_expr_take(&c, where_running(&c, rows, found.dx, NULL));
    if (found.dq) steps->results[1][step] = fl_expr_take(&c, where_running(&c, rows, found.dq, NULL));
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
