/*
** recurrent.c -- one layer of an LSTM, a GRU or an RNN over a whole sequence, in one direction.
**
** The products of the inputs, all at once, are an operand: x. recurrent_rows takes the steps in one kernel and keeps
** the gates; recurrent_states, where no gradient is asked for, does not. recurrent_backward takes the steps back. The
** gradient of the weight is one product over all steps. On a device without a kernel, and for gradients of gradients,
** recurrent_steps.c does both in other ops.
*/
#include "recurrent.h"
#include "cpu/recurrent.h"
#include "cpu/stage.h"
#include "dispatch/record.h"
#include "expr.h"

static fl_recurrent_kind kind_of(const fl_attrs *attrs)
{
    return (fl_recurrent_kind)attrs->at[FL_RECURRENT_KIND].integer;
}

static bool keeps_cells(const fl_attrs *attrs) { return kind_of(attrs) <= FL_GRU; }

/* ---- inference ---- */

static const char *const kind_names[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

/* steps, batch and hidden units of a call. */
struct sizes {
    int64_t steps, batch, width;
    int gates;
};

static fl_status require_lengths(const fl_infer *infer, int operand, int64_t batch)
{
    const fl_spec *lengths = &infer->in[operand];
    if (lengths->kind == FL_TENSOR && lengths->dtype != FL_INT64)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "lengths must be int64, got %s", fl_dtype_name(lengths->dtype));
    return fl_require_shape(infer, operand, "lengths", &(fl_shape){1, {batch}});
}

/* sizes from the sequence `x` [steps, batch, gates * width] and the weight */
static fl_status require_sequence(struct sizes *sizes, const fl_infer *infer, int x_operand, int weight_operand,
                                  int gates)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[x_operand].shape, *weight = &infer->in[weight_operand].shape;
    int of = fl_recurrent_gates(kind_of(infer->attrs));
    FL_TRY(fl_require_float(infer, x_operand));
    FL_TRY(fl_require_float(infer, weight_operand));
    if (x->ndim != 3 || weight->ndim != 2 || weight->dims[0] != of * weight->dims[1]
        || x->dims[2] != gates * weight->dims[1])
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "takes [steps, batch, %d hidden] and a weight [%d hidden, hidden], got "
                             "%s and %s",
                             gates, of, fl_shape_text(tx, x), fl_shape_text(tw, weight));
    if (x->dims[0] == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "takes sequences of at least one step, got none");
    *sizes = (struct sizes){x->dims[0], x->dims[1], weight->dims[1], of};
    return FL_OK;
}

static fl_status infer_rows(fl_infer *infer)
{
    struct sizes n;
    fl_recurrent_kind kind = kind_of(infer->attrs);
    infer->name = kind_names[kind];
    FL_TRY(require_sequence(&n, infer, FL_RECURRENT_X, FL_RECURRENT_WEIGHT, fl_recurrent_gates(kind)));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BIAS, "bias", &(fl_shape){1, {n.width}}));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_H0, "h0", &(fl_shape){2, {n.batch, n.width}}));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_C0, "c0", &(fl_shape){2, {n.batch, n.width}}));
    FL_TRY(require_lengths(infer, FL_RECURRENT_LENGTHS, n.batch));
    for (int i = FL_RECURRENT_BIAS; i <= FL_RECURRENT_C0; i++)
        if (infer->in[i].kind == FL_TENSOR) FL_TRY(fl_require_float(infer, i));
    fl_shape whole = {3, {n.steps, n.batch, n.width}}, nothing = {1, {0}};
    for (int i = 0; i < infer->nout; i++) {
        infer->out[i].dtype = infer->in[FL_RECURRENT_X].dtype;
        infer->out[i].shape = i == FL_RECURRENT_Y || kind <= FL_GRU ? whole : nothing;
    }
    if (kind <= FL_GRU && infer->nout > FL_RECURRENT_GATES) infer->out[FL_RECURRENT_GATES].shape.dims[2] *= n.gates;
    return FL_OK;
}

static fl_status infer_backward(fl_infer *infer)
{
    struct sizes n;
    fl_recurrent_kind kind = kind_of(infer->attrs);
    FL_TRY(require_sequence(&n, infer, FL_RECURRENT_BACK_Y, FL_RECURRENT_BACK_WEIGHT, 1));
    fl_shape whole = {3, {n.steps, n.batch, n.width}}, gates = {3, {n.steps, n.batch, n.gates * n.width}},
             row = {2, {n.batch, n.width}}, nothing = {1, {0}};
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_DY, "dy", &whole));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_DCELLS, "dcells", &whole));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_DGATES, "dgates", &gates));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_CELLS, "cells", kind <= FL_GRU ? &whole : &nothing));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_GATES, "gates", kind <= FL_GRU ? &gates : &nothing));
    FL_TRY(fl_require_shape(infer, FL_RECURRENT_BACK_FIRST, "first", &row));
    FL_TRY(require_lengths(infer, FL_RECURRENT_BACK_LENGTHS, n.batch));
    for (int i = 0; i < infer->nout; i++) infer->out[i].dtype = infer->in[FL_RECURRENT_BACK_Y].dtype;
    infer->out[FL_RECURRENT_BACK_DX].shape = gates;
    infer->out[FL_RECURRENT_BACK_DH0].shape = row;
    infer->out[FL_RECURRENT_BACK_MORE].shape = kind == FL_LSTM ? row : kind == FL_GRU ? whole : nothing;
    return FL_OK;
}

/* ---- SBP ---- */

static fl_sbp if_given(const fl_sigs *sigs, int operand, fl_sbp sbp)
{
    return sigs->in[operand].kind == FL_TENSOR ? sbp : FL_B;
}

/* Rows of the batch are independent; every step needs the whole state of its row. */
static void sbp_rows(fl_sigs *sigs)
{
    fl_sbp kept = keeps_cells(sigs->attrs) ? FL_S(1) : FL_B;
    FL_SIG(sigs, NULL, FL_S(1), FL_B, FL_B, if_given(sigs, FL_RECURRENT_H0, FL_S(0)),
           if_given(sigs, FL_RECURRENT_C0, FL_S(0)), if_given(sigs, FL_RECURRENT_LENGTHS, FL_S(0)), FL_S(1), kept,
           kept);
}

/* As sbp_rows. It is linear in the gradients, but parts of a sum would lose digits from step to step. */
static void sbp_backward(fl_sigs *sigs)
{
    fl_recurrent_kind kind = kind_of(sigs->attrs);
    fl_sbp rows = FL_S(1), kept = kind <= FL_GRU ? rows : FL_B, more = kind == FL_LSTM ? FL_S(0) : kept;
    FL_SIG(sigs, NULL, if_given(sigs, FL_RECURRENT_BACK_DY, rows), if_given(sigs, FL_RECURRENT_BACK_DCELLS, rows),
           if_given(sigs, FL_RECURRENT_BACK_DGATES, rows), rows, kept, kept, FL_B,
           if_given(sigs, FL_RECURRENT_BACK_FIRST, FL_S(0)), if_given(sigs, FL_RECURRENT_BACK_LENGTHS, FL_S(0)), rows,
           FL_S(0), more);
}

/* ---- kernels ---- */

/* The common part of forward and backward. y: the states, [steps, batch, width]. */
static fl_recurrent layer_of(const fl_kernel *kernel, const fl_view *y, const void *weight, const void *lengths)
{
    return (fl_recurrent){.kind = kind_of(kernel->attrs),
                          .reverse = kernel->attrs->at[FL_RECURRENT_REVERSE].integer,
                          .steps = y->size[0],
                          .batch = y->size[1],
                          .width = y->size[2],
                          .lengths = lengths,
                          .weight = weight};
}

static fl_status kernel_rows(fl_kernel *kernel)
{
    fl_stage s;
    const fl_view *y = &kernel->out[FL_RECURRENT_Y];
    if (y->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    bool cells = keeps_cells(kernel->attrs);
    fl_recurrent r = layer_of(kernel, y, s.in[FL_RECURRENT_WEIGHT], s.in[FL_RECURRENT_LENGTHS]);
    r.x = s.in[FL_RECURRENT_X];
    r.bias = s.in[FL_RECURRENT_BIAS];
    r.h0 = s.in[FL_RECURRENT_H0];
    r.c0 = s.in[FL_RECURRENT_C0];
    r.y = s.out[FL_RECURRENT_Y];
    r.cells = cells ? s.out[FL_RECURRENT_CELLS] : NULL;
    r.gates = cells && kernel->nout > FL_RECURRENT_GATES ? s.out[FL_RECURRENT_GATES] : NULL;
    FL_TRY(fl_cpu_recurrent(s.dtype, &r, false, kernel->name));
    return fl_stage_close(&s);
}

static fl_status kernel_backward(fl_kernel *kernel)
{
    fl_stage s;
    const fl_view *y = &kernel->in[FL_RECURRENT_BACK_Y];
    if (y->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    bool cells = keeps_cells(kernel->attrs);
    fl_recurrent r = layer_of(kernel, y, s.in[FL_RECURRENT_BACK_WEIGHT], s.in[FL_RECURRENT_BACK_LENGTHS]);
    r.dy = s.in[FL_RECURRENT_BACK_DY];
    r.dcells = s.in[FL_RECURRENT_BACK_DCELLS];
    r.dgates = s.in[FL_RECURRENT_BACK_DGATES];
    r.y_in = s.in[FL_RECURRENT_BACK_Y];
    r.cells_in = cells ? s.in[FL_RECURRENT_BACK_CELLS] : NULL;
    r.gates_in = cells ? s.in[FL_RECURRENT_BACK_GATES] : NULL;
    r.first = s.in[FL_RECURRENT_BACK_FIRST];
    r.dx = s.out[FL_RECURRENT_BACK_DX];
    r.dh0 = s.out[FL_RECURRENT_BACK_DH0];
    r.more = cells ? s.out[FL_RECURRENT_BACK_MORE] : NULL;
    FL_TRY(fl_cpu_recurrent(s.dtype, &r, true, kernel->name));
    return fl_stage_close(&s);
}

/* ---- gradients ---- */

static fl_tensor *contract(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    return EXPR_CALL(expr, NULL, contract_rows, fl_of(x), fl_of(y));
}

/* Gradient of the weight's rows that `slopes` [steps, batch, rows] belong to: with the state before each step. */
static fl_tensor *weight_rows(fl_expr *expr, const fl_grad *g, fl_tensor *slopes)
{
    if (expr->status != FL_OK) return NULL;
    int64_t steps = slopes->meta->shape.dims[0];
    bool reverse = g->attrs->at[FL_RECURRENT_REVERSE].integer;
    fl_tensor *y = g->out[FL_RECURRENT_Y];
    fl_tensor *sum = contract(expr, expr_narrowed(expr, slopes, 0, !reverse, steps - 1),
                              expr_narrowed(expr, y, 0, reverse, steps - 1));
    if (g->in[FL_RECURRENT_H0].kind != FL_TENSOR) return sum;
    fl_tensor *first = expr_selected(expr, slopes, 0, reverse ? steps - 1 : 0);
    return expr_add(expr, sum, contract(expr, first, g->in[FL_RECURRENT_H0].tensor));
}

static fl_tensor *weight_gradient(fl_expr *expr, const fl_grad *g, fl_tensor *dx, fl_tensor *dq)
{
    if (!dq || expr->status != FL_OK) return weight_rows(expr, g, dx);
    int64_t width = dq->meta->shape.dims[2];
    fl_tensor *two = weight_rows(expr, g, expr_narrowed(expr, dx, 2, 0, 2 * width));
    return expr_concatenated(expr, two, weight_rows(expr, g, dq), 0);
}

/* dx, dh0 and what there is more, by the kernel. */
static fl_status backward_by_kernel(fl_tensor **out, const fl_grad *g)
{
    fl_attrs a;
    const fl_operand *in = g->in;
    fl_recurrent_kind kind = kind_of(g->attrs);
    fl_operand first = kind == FL_LSTM ? in[FL_RECURRENT_C0] : kind == FL_GRU ? in[FL_RECURRENT_H0] : fl_of(NULL);
    fl_attrs_init(&a, FL_OP_REF(recurrent_backward));
    for (int i = FL_RECURRENT_KIND; i <= FL_RECURRENT_REVERSE; i++) a.at[i] = g->attrs->at[i];
    return FL_CALL_WITH(out, &a, recurrent_backward, fl_of(g->gout[FL_RECURRENT_Y]),
                        fl_of(keeps_cells(g->attrs) ? g->gout[FL_RECURRENT_CELLS] : NULL),
                        fl_of(keeps_cells(g->attrs) ? g->gout[FL_RECURRENT_GATES] : NULL),
                        fl_of(g->out[FL_RECURRENT_Y]), fl_of(g->out[FL_RECURRENT_CELLS]),
                        fl_of(g->out[FL_RECURRENT_GATES]), in[FL_RECURRENT_WEIGHT], first, in[FL_RECURRENT_LENGTHS]);
}

/* By the kernel, or in ops where these gradients are recorded. The weight's gradient is one product over all steps;
** that of a bias inside a gate is the sum over steps and rows of what the gate got. */
static fl_status grad_rows(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *found[3] = {NULL};
    fl_recurrent_kind kind = kind_of(g->attrs);
    FL_TRY(fl_grad_enabled ? fl_recurrent_backward_as_ops(found, g) : backward_by_kernel(found, g));
    fl_tensor *dx = found[FL_RECURRENT_BACK_DX], *more = found[FL_RECURRENT_BACK_MORE];
    fl_tensor *dq = kind == FL_GRU ? more : NULL;
    if (g->need[FL_RECURRENT_X]) g->gin[FL_RECURRENT_X] = fl_tensor_ref(dx);
    if (g->need[FL_RECURRENT_WEIGHT]) g->gin[FL_RECURRENT_WEIGHT] = fl_expr_take(&c, weight_gradient(&c, g, dx, dq));
    if (g->need[FL_RECURRENT_BIAS] && dq)
        g->gin[FL_RECURRENT_BIAS] = fl_expr_take(&c, expr_sum(&c, dq, 1u << 0 | 1u << 1, false));
    if (g->need[FL_RECURRENT_H0]) g->gin[FL_RECURRENT_H0] = fl_tensor_ref(found[FL_RECURRENT_BACK_DH0]);
    if (g->need[FL_RECURRENT_C0] && kind == FL_LSTM) g->gin[FL_RECURRENT_C0] = fl_tensor_ref(more);
    for (int i = 0; i < 3; i++) fl_tensor_unref(found[i]);
    return fl_expr_end(&c);
}

/* ---- the op that layers call ---- */

static fl_status body_recurrent(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *results[3];
    const fl_meta *x = in[FL_RECURRENT_X].tensor->meta, *weight = in[FL_RECURRENT_WEIGHT].tensor->meta;
    if (x->placement->type == FL_CUDA && fl_dtype_is_float(x->dtype) && x->shape.ndim == 3 && x->shape.dims[0] > 0
        && weight->shape.ndim == 2)
        return fl_recurrent_as_ops(out, in, attrs);
    bool kept = fl_record_wanted(FL_OP_REF(recurrent_rows), in, nin); /* the gates, for the gradient */
    const fl_op *op = kept ? FL_OP_REF(recurrent_rows) : FL_OP_REF(recurrent_states);
    fl_attrs_init(&a, op);
    for (int i = FL_RECURRENT_KIND; i <= FL_RECURRENT_REVERSE; i++) a.at[i] = attrs->at[i];
    FL_TRY(fl_dispatch(results, op, in, nin, &a));
    if (kept) fl_tensor_unref(results[FL_RECURRENT_GATES]);
    out[FL_RECURRENT_Y] = results[FL_RECURRENT_Y];
    out[FL_RECURRENT_CELLS] = results[FL_RECURRENT_CELLS];
    return FL_OK;
}

/* ---- descriptors ---- */

#define RECURRENT_ATTRS "kind: lstm|gru|rnn_tanh|rnn_relu, reverse: bool = false"

/* The products of the states; those of the inputs are ops of their own. */
static int64_t flops_rows(const fl_kernel *kernel)
{
    return 2 * kernel->in[FL_RECURRENT_X].numel * kernel->in[FL_RECURRENT_WEIGHT].size[1];
}

static int64_t flops_backward(const fl_kernel *kernel)
{
    return 2 * kernel->out[FL_RECURRENT_BACK_DX].numel * kernel->in[FL_RECURRENT_BACK_WEIGHT].size[1];
}

static const char *const recurrent_samples[] = {
    "flow.randn(3, 2, 16), flow.randn(16, 4), nil, flow.randn(2, 4), flow.randn(2, 4), nil, 'lstm'",
    "flow.randn(3, 2, 12), flow.randn(12, 3), nil, nil, nil, nil, 'lstm', true",
    "flow.randn(4, 3, 8), flow.randn(8, 2), nil, flow.randn(3, 2), flow.randn(3, 2), flow.tensor{4, 1, 2}, 'lstm', "
    "true",
    "flow.randn(3, 2, 12), flow.randn(12, 4), flow.randn(4), flow.randn(2, 4), nil, nil, 'gru'",
    "flow.randn(4, 3, 6), flow.randn(6, 2), nil, nil, nil, flow.tensor{4, 1, 2}, 'gru'",
    "flow.randn(3, 2, 4), flow.randn(4, 4), nil, flow.randn(2, 4), nil, nil, 'rnn_tanh', true",
    "flow.randn(4, 3, 2), flow.randn(2, 2), nil, nil, nil, flow.tensor{4, 1, 2}, 'rnn_tanh'",
    "flow.randn(3, 2, 4), flow.randn(4, 4), nil, flow.randn(2, 4), nil, nil, 'rnn_relu'",
    NULL};
FL_OP(recurrent) = {
    .name = "recurrent",
    .sig = "recurrent(x, weight, bias?, h0?, c0?, lengths?, " RECURRENT_ATTRS ")",
    .nout = 2,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .doc =
        "The states of a recurrent layer after every step, and the cells of an LSTM, from the products of its inputs.",
    .body = body_recurrent,
    .samples = recurrent_samples,
};

FL_OP(recurrent_rows) = {
    .name = "recurrent_rows",
    .sig = "recurrent_rows(x, weight, bias?, h0?, c0?, lengths?, " RECURRENT_ATTRS ")",
    .nout = 3,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY,
    .doc = "recurrent in one kernel, and the gates of every step.",
    .saves_in = 1u << FL_RECURRENT_WEIGHT | 1u << FL_RECURRENT_H0 | 1u << FL_RECURRENT_C0 | 1u << FL_RECURRENT_LENGTHS,
    .saves_out = 1u << FL_RECURRENT_Y | 1u << FL_RECURRENT_CELLS | 1u << FL_RECURRENT_GATES,
    .infer = infer_rows,
    .sbp = sbp_rows,
    .cpu = kernel_rows,
    .flops = flops_rows,
    .grad = grad_rows,
    .samples = recurrent_samples,
};

FL_OP(recurrent_states) = {
    .name = "recurrent_states",
    .sig = "recurrent_states(x, weight, bias?, h0?, c0?, lengths?, " RECURRENT_ATTRS ")",
    .nout = 2,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_HOST_ONLY,
    .doc = "recurrent in one kernel, without the gates.",
    .infer = infer_rows,
    .sbp = sbp_rows,
    .cpu = kernel_rows,
    .samples = recurrent_samples,
};

static const char *const backward_samples[] = {
    "flow.randn(3, 2, 4), flow.randn(3, 2, 4), flow.randn(3, 2, 16), flow.randn(3, 2, 4), flow.randn(3, 2, 4), "
    "flow.rand(3, 2, 16), flow.randn(16, 4), flow.randn(2, 4), nil, 'lstm'",
    "flow.randn(3, 2, 4), nil, nil, flow.randn(3, 2, 4), flow.randn(3, 2, 4), flow.rand(3, 2, 12), flow.randn(12, 4), "
    "nil, flow.tensor{3, 1}, 'gru', true",
    "flow.randn(3, 2, 4), nil, nil, flow.randn(3, 2, 4), flow.zeros(0), flow.zeros(0), flow.randn(4, 4), nil, nil, "
    "'rnn_tanh'",
    NULL};
FL_OP(recurrent_backward) = {
    .name = "recurrent_backward",
    .sig = "recurrent_backward(dy?, dcells?, dgates?, y, cells, gates, weight, first?, lengths?, " RECURRENT_ATTRS ")",
    .nout = 3,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_HOST_ONLY,
    .doc = "Gradients of recurrent_rows with respect to x, h0, and c0 of an LSTM or the cells of a GRU.",
    .infer = infer_backward,
    .sbp = sbp_backward,
    .cpu = kernel_backward,
    .flops = flops_backward,
    .samples = backward_samples,
};
