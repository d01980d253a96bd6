/*
** linear_cross_entropy.c -- cross_entropy of linear, by chunks of rows: the scores of all rows at once, of which there
** are often a hundred times more than inputs, are never in memory.
**
** The gradient of a sum of losses is known up to a factor before backward begins: that of each chunk is computed while
** its scores are there, and backward multiplies. So the products are those of linear and its gradients, none twice.
** That of the losses of rows is not known: backward computes the scores of each chunk again. A gradient that is to be
** differentiated again is computed of all rows at once.
*/
#include "expr.h"
#include "loss_rows.h"
#include "op/loss.h"

#include "dispatch/autocast.h"
#include "dispatch/record.h"

/* Operands of all ops here; those of the last two that linear_cross_entropy_backward has besides. */
enum {
    LINEAR_CE_INPUT,
    LINEAR_CE_MATRIX,
    LINEAR_CE_TARGET,
    LINEAR_CE_BIAS,
    LINEAR_CE_WEIGHT,
    BACKWARD_DY,
    BACKWARD_LSE
};

/* Results of linear_cross_entropy_sums: the sums of losses and of their weights, [2]; gradients of the first. */
enum { SUMS_TOTALS, SUMS_GRADIENT };
/* Results of linear_cross_entropy_rows. */
enum { ROWS_LOSS, ROWS_LSE };

/* Gradients as results, and what each is one of. */
enum { OF_INPUT, OF_MATRIX, OF_BIAS, GRADIENTS };
static const int operand_of[GRADIENTS] = {LINEAR_CE_INPUT, LINEAR_CE_MATRIX, LINEAR_CE_BIAS};

/* Attributes of the hidden ops, after those that all losses of rows have: the rows of a chunk; a bit for each operand
** that needs a gradient. */
enum { CHUNKS_ROWS = FL_LOSS_SMOOTHING + 1, CHUNKS_GRADIENTS };

static bool wants(const fl_attrs *attrs, int operand) { return attrs->at[CHUNKS_GRADIENTS].integer >> operand & 1; }

/* ---- inference ---- */

static fl_status check_chunks(const fl_infer *infer)
{
    const fl_spec *in = infer->in;
    const fl_shape *rows = &in[LINEAR_CE_INPUT].shape, *matrix = &in[LINEAR_CE_MATRIX].shape;
    FL_TRY(fl_require_float(infer, LINEAR_CE_INPUT));
    FL_TRY(fl_require_float(infer, LINEAR_CE_MATRIX));
    if (rows->ndim != 2 || matrix->ndim != 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes an input [n, in] and a linear_weight [classes, in]");
    FL_TRY(
        fl_require_shape(infer, LINEAR_CE_MATRIX, "linear_weight", &(fl_shape){2, {matrix->dims[0], rows->dims[1]}}));
    FL_TRY(fl_require_shape(infer, LINEAR_CE_TARGET, "target", &(fl_shape){1, {rows->dims[0]}}));
    FL_TRY(fl_require_shape(infer, LINEAR_CE_BIAS, "linear_bias", &(fl_shape){1, {matrix->dims[0]}}));
    return fl_require_shape(infer, LINEAR_CE_WEIGHT, "weight", &(fl_shape){1, {matrix->dims[0]}});
}

/* A gradient that is not needed is an empty vector. */
static void infer_gradients(fl_infer *infer, int first)
{
    for (int i = 0; i < GRADIENTS; i++) {
        fl_spec *out = &infer->out[first + i];
        if (wants(infer->attrs, operand_of[i])) {
            *out = infer->in[operand_of[i]];
            continue;
        }
        out->shape = (fl_shape){1, {0}};
        out->dtype = fl_dtype_compute(infer->in[LINEAR_CE_INPUT].dtype);
    }
}

static fl_status infer_sums(fl_infer *infer)
{
    FL_TRY(check_chunks(infer));
    infer->out[SUMS_TOTALS].shape = (fl_shape){1, {2}};
    infer->out[SUMS_TOTALS].dtype = fl_dtype_compute(infer->in[LINEAR_CE_INPUT].dtype);
    infer_gradients(infer, SUMS_GRADIENT);
    return FL_OK;
}

static fl_status infer_loss_rows(fl_infer *infer)
{
    FL_TRY(check_chunks(infer));
    for (int i = ROWS_LOSS; i <= ROWS_LSE; i++) {
        infer->out[i].shape = infer->in[LINEAR_CE_TARGET].shape;
        infer->out[i].dtype = fl_dtype_compute(infer->in[LINEAR_CE_INPUT].dtype);
    }
    return FL_OK;
}

static fl_status infer_backward(fl_infer *infer)
{
    FL_TRY(check_chunks(infer));
    FL_TRY(fl_require_shape(infer, BACKWARD_DY, "dy", &infer->in[LINEAR_CE_TARGET].shape));
    FL_TRY(fl_require_shape(infer, BACKWARD_LSE, "lse", &infer->in[LINEAR_CE_TARGET].shape));
    infer_gradients(infer, 0);
    return FL_OK;
}

/* Rows are independent; the gradients of what all rows share are sums over them. */
static fl_sbp gradient_sbp(const fl_sigs *sigs, int i)
{
    if (!wants(sigs->attrs, operand_of[i])) return FL_B;
    return i == OF_INPUT ? FL_S(0) : FL_PSUM;
}

static void sbp_sums(fl_sigs *sigs)
{
    FL_SIG(sigs, NULL, FL_S(0), FL_B, FL_S(0), FL_B, FL_B, FL_PSUM, gradient_sbp(sigs, OF_INPUT),
           gradient_sbp(sigs, OF_MATRIX), gradient_sbp(sigs, OF_BIAS));
}

static void sbp_loss_rows(fl_sigs *sigs) { FL_SIG(sigs, NULL, FL_S(0), FL_B, FL_S(0), FL_B, FL_B, FL_S(0), FL_S(0)); }

static void sbp_backward(fl_sigs *sigs)
{
    FL_SIG(sigs, NULL, FL_S(0), FL_B, FL_S(0), FL_B, FL_B, FL_S(0), FL_S(0), gradient_sbp(sigs, OF_INPUT),
           gradient_sbp(sigs, OF_MATRIX), gradient_sbp(sigs, OF_BIAS));
}

/* ---- chunks of rows ---- */

/* The sums so far; owned. */
struct sums {
    fl_tensor *loss, *count, *of[GRADIENTS];
};

static void sums_free(struct sums *sums)
{
    fl_tensor_unref(sums->loss);
    fl_tensor_unref(sums->count);
    for (int i = 0; i < GRADIENTS; i++) fl_tensor_unref(sums->of[i]);
}

/* Sums of nothing, where they are wanted, in the dtypes that sums are kept in. */
static fl_status sums_begin(struct sums *sums, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[LINEAR_CE_INPUT].tensor, *none = expr_widen(&c, expr_zeros_of(&c, x, &(fl_shape){1, {0}}));
    bool matrix = wants(attrs, LINEAR_CE_MATRIX), bias = wants(attrs, LINEAR_CE_BIAS);
    fl_tensor *zero = expr_widen(&c, expr_zeros_of(&c, x, &(fl_shape){0}));
    fl_tensor *rows = wants(attrs, LINEAR_CE_INPUT) ? EXPR_CALL(&c, NULL, empty_like, fl_of(x)) : none;
    fl_tensor *of_matrix = matrix ? expr_zeros(&c, expr_widen(&c, in[LINEAR_CE_MATRIX].tensor)) : none;
    fl_tensor *of_bias = bias ? expr_zeros(&c, expr_widen(&c, in[LINEAR_CE_BIAS].tensor)) : none;
    *sums = (struct sums){fl_expr_take(&c, zero),
                          fl_expr_take(&c, zero),
                          {fl_expr_take(&c, rows), fl_expr_take(&c, of_matrix), fl_expr_take(&c, of_bias)}};
    return fl_expr_end(&c);
}

/* *sum += part */
static void add_part(fl_tensor **sum, fl_expr *expr, fl_tensor *part)
{
    fl_tensor *total = fl_expr_take(expr, expr_add(expr, *sum, part));
    if (!total) return;
    fl_tensor_unref(*sum);
    *sum = total;
}

/* The same of the product of a chunk's gradient of scores and its inputs, which the CPU adds as it computes it. */
static void add_product(fl_tensor **sum, fl_expr *expr, fl_tensor *scores, fl_tensor *x)
{
    bool adds = x && x->meta->dtype == (*sum)->meta->dtype && x->meta->placement->type == FL_CPU;
    if (adds) EXPR_CALL(expr, NULL, contract_rows_add, fl_of(*sum), fl_of(scores), fl_of(x));
    else add_part(sum, expr, expr_widen(expr, EXPR_CALL(expr, NULL, contract_rows, fl_of(scores), fl_of(x))));
}

/* The scores of some rows, and results of cross_entropy_rows for them. */
struct scored {
    fl_tensor *scores, *loss, *lse, *count;
};

static struct scored score(fl_expr *expr, const fl_operand *in, fl_tensor *x, fl_operand target, const fl_attrs *attrs)
{
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(cross_entropy_rows), attrs);
    struct scored s = {0};
    s.scores = expr_widen(expr, EXPR_CALL(expr, NULL, linear, fl_of(x), in[LINEAR_CE_MATRIX], in[LINEAR_CE_BIAS]));
    int first = expr->count;
    s.loss = EXPR_CALL(expr, &a, cross_entropy_rows, fl_of(s.scores), target, in[LINEAR_CE_WEIGHT]);
    if (!s.loss) return s;
    s.lse = expr->owned[first + FL_SCORES_ROWS_LSE];
    s.count = expr->owned[first + FL_SCORES_ROWS_COUNT];
    return s;
}

/* The gradient of the scores, dy being that of each row's loss. */
static fl_tensor *scores_gradient(fl_expr *expr, const fl_operand *in, const struct scored *scored, fl_tensor *dy,
                                  fl_operand target, const fl_attrs *attrs)
{
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(cross_entropy_backward), attrs);
    return EXPR_CALL(expr, &a, cross_entropy_backward, fl_of(dy), fl_of(scored->scores), target, fl_of(scored->lse),
                     in[LINEAR_CE_WEIGHT]);
}

/* Writes the rows of a chunk into those of all. */
static void set_rows(fl_expr *expr, fl_tensor *all, int64_t start, fl_tensor *rows)
{
    if (!rows) return;
    fl_tensor *place = expr_narrowed(expr, all, 0, start, rows->meta->shape.dims[0]);
    EXPR_CALL(expr, NULL, copy_, fl_of(place), fl_of(rows));
}

static void add_gradients(struct sums *sums, fl_expr *expr, const fl_operand *in, const fl_attrs *attrs, fl_tensor *x,
                          fl_tensor *g, int64_t start)
{
    fl_tensor *matrix = in[LINEAR_CE_MATRIX].tensor;
    if (wants(attrs, LINEAR_CE_BIAS)) add_part(&sums->of[OF_BIAS], expr, expr_sum(expr, g, 1, false));
    if (g) g = expr_cast(expr, g, matrix->meta->dtype);
    if (wants(attrs, LINEAR_CE_MATRIX)) add_product(&sums->of[OF_MATRIX], expr, g, x);
    if (wants(attrs, LINEAR_CE_INPUT))
        set_rows(expr, sums->of[OF_INPUT], start, expr_gemm(expr, g, matrix, false, false));
}

/* The gradients as results, in the dtypes of their operands. */
static void take_gradients(fl_tensor **out, fl_expr *expr, const struct sums *sums, const fl_operand *in,
                           const fl_attrs *attrs)
{
    for (int i = 0; i < GRADIENTS; i++) {
        int operand = operand_of[i];
        fl_tensor *of = sums->of[i];
        out[i] = fl_expr_take(expr, wants(attrs, operand) ? expr_cast(expr, of, in[operand].tensor->meta->dtype) : of);
    }
}

/* The operands of an op's chunks, and the sums that each adds to. */
struct chunks {
    const fl_operand *in;
    const fl_attrs *attrs;
    struct sums sums;
    fl_tensor *loss, *lse; /* owned; of all rows, where they are results */
};

/* Of rows from `start` on: x and the labels are theirs. */
typedef void (*chunk_fn)(struct chunks *chunks, fl_expr *expr, fl_tensor *x, fl_operand target, int64_t start);

static fl_status run_chunks(struct chunks *chunks, chunk_fn run)
{
    int64_t n = chunks->in[LINEAR_CE_INPUT].tensor->meta->shape.dims[0], rows = chunks->attrs->at[CHUNKS_ROWS].integer;
    for (int64_t start = 0; start < n; start += rows) {
        fl_expr c = {0};
        int64_t count = rows < n - start ? rows : n - start;
        fl_tensor *x = expr_narrowed(&c, chunks->in[LINEAR_CE_INPUT].tensor, 0, start, count);
        fl_tensor *target = expr_narrowed(&c, chunks->in[LINEAR_CE_TARGET].tensor, 0, start, count);
        run(chunks, &c, x, fl_of(target), start);
        fl_status status = fl_expr_end(&c);
        if (status == FL_OK) continue;
        if (status == FL_ERR_INTERRUPTED || start == 0) return status;
        return fl_fail_prefix(status, "counted from row %lld: ", (long long)start); /* in case it names a label */
    }
    return FL_OK;
}

static void add_chunk(struct chunks *chunks, fl_expr *expr, fl_tensor *x, fl_operand target, int64_t start)
{
    const fl_operand *in = chunks->in;
    struct scored s = score(expr, in, x, target, chunks->attrs);
    add_part(&chunks->sums.loss, expr, expr_sum(expr, s.loss, 1, false));
    add_part(&chunks->sums.count, expr, expr_sum(expr, s.count, 1, false));
    if (!chunks->attrs->at[CHUNKS_GRADIENTS].integer) return;
    fl_tensor *g = scores_gradient(expr, in, &s, expr_ones(expr, s.loss), target, chunks->attrs);
    add_gradients(&chunks->sums, expr, in, chunks->attrs, x, g, start);
}

static fl_status compute_sums(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct chunks chunks = {.in = in, .attrs = attrs};
    FL_TRY(sums_begin(&chunks.sums, in, attrs));
    c.status = run_chunks(&chunks, add_chunk);
    fl_tensor *loss = expr_unsqueeze(&c, chunks.sums.loss, 0), *count = expr_unsqueeze(&c, chunks.sums.count, 0);
    out[SUMS_TOTALS] = fl_expr_take(&c, expr_concatenated(&c, loss, count, 0));
    take_gradients(out + SUMS_GRADIENT, &c, &chunks.sums, in, attrs);
    sums_free(&chunks.sums);
    return fl_expr_end(&c);
}

static void set_chunk(struct chunks *chunks, fl_expr *expr, fl_tensor *x, fl_operand target, int64_t start)
{
    struct scored s = score(expr, chunks->in, x, target, chunks->attrs);
    set_rows(expr, chunks->loss, start, s.loss);
    set_rows(expr, chunks->lse, start, s.lse);
}

static fl_status compute_loss_rows(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin,
                                   const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *x = in[LINEAR_CE_INPUT].tensor;
    const fl_shape rows = {1, {x->meta->shape.dims[0]}};
    struct chunks chunks = {.in = in, .attrs = attrs};
    chunks.loss = expr_widen(&c, expr_zeros_of(&c, x, &rows));
    chunks.lse = expr_widen(&c, expr_zeros_of(&c, x, &rows));
    if (c.status == FL_OK) c.status = run_chunks(&chunks, set_chunk);
    out[ROWS_LOSS] = fl_expr_take(&c, chunks.loss);
    out[ROWS_LSE] = fl_expr_take(&c, chunks.lse);
    return fl_expr_end(&c);
}

static void add_backward(struct chunks *chunks, fl_expr *expr, fl_tensor *x, fl_operand target, int64_t start)
{
    const fl_operand *in = chunks->in;
    if (!x) return;
    int64_t rows = x->meta->shape.dims[0];
    fl_tensor *dy = expr_narrowed(expr, in[BACKWARD_DY].tensor, 0, start, rows);
    struct scored s = {.lse = expr_narrowed(expr, in[BACKWARD_LSE].tensor, 0, start, rows)};
    s.scores = expr_widen(expr, EXPR_CALL(expr, NULL, linear, fl_of(x), in[LINEAR_CE_MATRIX], in[LINEAR_CE_BIAS]));
    add_gradients(&chunks->sums, expr, in, chunks->attrs, x, scores_gradient(expr, in, &s, dy, target, chunks->attrs),
                  start);
}

static fl_status compute_backward(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin,
                                  const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct chunks chunks = {.in = in, .attrs = attrs};
    FL_TRY(sums_begin(&chunks.sums, in, attrs));
    c.status = run_chunks(&chunks, add_backward);
    take_gradients(out, &c, &chunks.sums, in, attrs);
    sums_free(&chunks.sums);
    return fl_expr_end(&c);
}

/* ---- gradients ---- */

/* The gradients in ops that can be differentiated again, of all rows; dy: of each, or of all (no axes). */
static fl_status differentiable_gradients(fl_grad *g, fl_expr *expr, fl_tensor *dy)
{
    fl_tensor *x = g->in[LINEAR_CE_INPUT].tensor, *matrix = g->in[LINEAR_CE_MATRIX].tensor;
    fl_operand target = g->in[LINEAR_CE_TARGET];
    struct scored s = score(expr, g->in, x, target, g->attrs);
    if (s.loss && dy && dy->meta->shape.ndim == 0)
        dy = expr_expanded(expr, expr_unsqueeze(expr, dy, 0), &s.loss->meta->shape);
    fl_tensor *scores = scores_gradient(expr, g->in, &s, dy, target, g->attrs);
    if (g->need[LINEAR_CE_BIAS]) g->gin[LINEAR_CE_BIAS] = fl_expr_take(expr, expr_sum(expr, scores, 1, false));
    if (scores) scores = expr_cast(expr, scores, matrix->meta->dtype);
    if (g->need[LINEAR_CE_INPUT])
        g->gin[LINEAR_CE_INPUT] = fl_expr_take(expr, expr_gemm(expr, scores, matrix, false, false));
    if (g->need[LINEAR_CE_MATRIX])
        g->gin[LINEAR_CE_MATRIX] = fl_expr_take(expr, EXPR_CALL(expr, NULL, contract_rows, fl_of(scores), fl_of(x)));
    return fl_expr_end(expr);
}

static fl_status no_weight_gradient(const fl_grad *g)
{
    if (!g->need[LINEAR_CE_WEIGHT]) return FL_OK;
    return fl_fail(FL_ERR_STATE, "linear_cross_entropy: has no gradient with respect to weight; detach() it");
}

static fl_status grad_sums(fl_grad *g)
{
    fl_expr c = {0};
    FL_TRY(no_weight_gradient(g));
    if (!g->gout[SUMS_TOTALS]) return FL_OK;
    fl_tensor *scale = expr_selected(&c, g->gout[SUMS_TOTALS], 0, 0);
    bool known = !fl_grad_enabled;
    for (int i = 0; i < GRADIENTS; i++) known &= !g->need[operand_of[i]] || wants(g->attrs, operand_of[i]);
    if (!known) return differentiable_gradients(g, &c, scale);
    for (int i = 0; i < GRADIENTS; i++)
        if (g->need[operand_of[i]])
            g->gin[operand_of[i]] = fl_expr_take(&c, expr_mul(&c, g->out[SUMS_GRADIENT + i], scale));
    return fl_expr_end(&c);
}

/* The log-sum-exp is kept for this alone. */
static fl_status grad_loss_rows(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *dy = g->gout[ROWS_LOSS];
    int64_t gradients = 0;
    FL_TRY(no_weight_gradient(g));
    if (!dy) return FL_OK;
    if (fl_grad_enabled) return differentiable_gradients(g, &c, dy);
    for (int i = 0; i < GRADIENTS; i++) gradients |= (int64_t)g->need[operand_of[i]] << operand_of[i];
    fl_attrs a = fl_loss_rows_attrs(FL_OP_REF(linear_cross_entropy_backward), g->attrs);
    a.at[CHUNKS_ROWS] = g->attrs->at[CHUNKS_ROWS];
    fl_attr_set(&a, CHUNKS_GRADIENTS, gradients);
    const fl_operand *in = g->in;
    EXPR_CALL(&c, &a, linear_cross_entropy_backward, in[LINEAR_CE_INPUT], in[LINEAR_CE_MATRIX], in[LINEAR_CE_TARGET],
              in[LINEAR_CE_BIAS], in[LINEAR_CE_WEIGHT], fl_of(dy), fl_of(g->out[ROWS_LSE]));
    for (int i = 0; i < GRADIENTS && c.status == FL_OK; i++)
        if (g->need[operand_of[i]]) g->gin[operand_of[i]] = fl_expr_take(&c, c.owned[i]);
    return fl_expr_end(&c);
}

/* ---- the hidden ops ---- */

#define OPERANDS "input, linear_weight, target, linear_bias?, weight?"
#define VALUES "~ignore_index: int = -100, ~label_smoothing: float = 0"
#define ALL_OPERANDS ((1u << (LINEAR_CE_WEIGHT + 1)) - 1)
#define SEVEN "flow.randn(7, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, -100, 2, 2, 3}, flow.randn(5), nil, "
#define FOUR "flow.randn(4, 3), flow.randn(5, 3), flow.tensor {0, 4, 1, 2}, nil, flow.rand(5) + 0.5, "

FL_OP(linear_cross_entropy_sums) = {
    .name = "linear_cross_entropy_sums",
    .sig = "linear_cross_entropy_sums(" OPERANDS ", " VALUES ", rows: int, gradients: int)",
    .nout = SUMS_GRADIENT + GRADIENTS,
    .flags = FL_OP_HIDDEN | FL_OP_LOW,
    .doc = "The sums of cross_entropy(linear(x)) over rows and of the rows' weights, and gradients of the first.",
    .saves_in = ALL_OPERANDS,
    .saves_out = ((1u << GRADIENTS) - 1) << SUMS_GRADIENT,
    .infer = infer_sums,
    .sbp = sbp_sums,
    .compute = compute_sums,
    .grad = grad_sums,
    FL_SAMPLES(SEVEN "-100, 0.1, 3, 11", FOUR "-100, 0, 8, 0"),
};

FL_OP(linear_cross_entropy_rows) = {
    .name = "linear_cross_entropy_rows",
    .sig = "linear_cross_entropy_rows(" OPERANDS ", " VALUES ", rows: int)",
    .nout = ROWS_LSE + 1,
    .flags = FL_OP_HIDDEN | FL_OP_LOW,
    .doc = "cross_entropy(linear(x)) of each row, and the log-sum-exp of its scores.",
    .saves_in = ALL_OPERANDS,
    .saves_out = 1u << ROWS_LSE,
    .infer = infer_loss_rows,
    .sbp = sbp_loss_rows,
    .compute = compute_loss_rows,
    .grad = grad_loss_rows,
    FL_SAMPLES(SEVEN "-100, 0.1, 3", FOUR "-100, 0, 8"),
};

FL_OP(linear_cross_entropy_backward) = {
    .name = "linear_cross_entropy_backward",
    .sig = "linear_cross_entropy_backward(" OPERANDS ", dy, lse, " VALUES ", rows: int, gradients: int)",
    .nout = GRADIENTS,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "Gradients of linear_cross_entropy_rows, dy being that of the losses.",
    .infer = infer_backward,
    .sbp = sbp_backward,
    .compute = compute_backward,
    FL_SAMPLES(SEVEN "flow.randn(7), flow.randn(7) + 3, -100, 0.1, 3, 11",
               FOUR "flow.randn(4), flow.randn(4) + 3, -100, 0, 8, 2"),
};

/* ---- the loss ---- */

/* Attributes of linear_cross_entropy. */
enum { LINEAR_CE_REDUCTION, LINEAR_CE_IGNORE, LINEAR_CE_SMOOTHING, LINEAR_CE_ROWS };

enum { CHUNK_SCORES = 8 << 20, CHUNK_ROWS = 32 }; /* by default: scores of a chunk, and rows that it has at least */

static fl_status check_operands(const fl_operand *in)
{
    char tx[FL_META_TEXT], tw[FL_META_TEXT];
    const fl_tensor *x = in[LINEAR_CE_INPUT].tensor, *matrix = in[LINEAR_CE_MATRIX].tensor;
    const fl_shape *rows = &x->meta->shape, *columns = &matrix->meta->shape;
    if (rows->ndim < 1 || rows->ndim > 2)
        return fl_fail(FL_ERR_SHAPE, "input must be [n, in] or [in], got %s", fl_meta_text(tx, x->meta));
    if (columns->ndim < 2 || columns->dims[columns->ndim - 1] != rows->dims[rows->ndim - 1])
        return fl_fail(FL_ERR_SHAPE, "linear_weight must be [classes, ..., in] for input %s, got %s",
                       fl_meta_text(tx, x->meta), fl_meta_text(tw, matrix->meta));
    if (columns->ndim > 2 && rows->ndim == 1)
        return fl_fail(FL_ERR_SHAPE, "linear_weight %s of several axes needs an input [n, in], got %s",
                       fl_meta_text(tw, matrix->meta), fl_meta_text(tx, x->meta));
    if (in[LINEAR_CE_BIAS].kind != FL_TENSOR) return FL_OK;
    fl_shape want = *columns;
    want.ndim--;
    if (fl_shape_equal(&in[LINEAR_CE_BIAS].tensor->meta->shape, &want)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "linear_bias must have the axes of linear_weight %s but the last, got %s",
                   fl_meta_text(tw, matrix->meta), fl_meta_text(tx, in[LINEAR_CE_BIAS].tensor->meta));
}

/* All scores at once. */
static fl_status whole(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    const fl_shape *rows = &in[LINEAR_CE_INPUT].tensor->meta->shape,
                   *matrix = &in[LINEAR_CE_MATRIX].tensor->meta->shape;
    int64_t features = matrix->dims[matrix->ndim - 1];
    int64_t classes = 1;
    for (int i = 0; i + 1 < matrix->ndim; i++) classes *= matrix->dims[i];
    fl_shape wide = {1, {0}}, flat = {2, {classes, features}}, flat_bias = {1, {classes}};
    wide.ndim = rows->ndim - 1 + matrix->ndim - 1;
    if (rows->ndim == 2) wide.dims[0] = rows->dims[0];
    for (int i = 0; i + 1 < matrix->ndim; i++) wide.dims[rows->ndim - 1 + i] = matrix->dims[i];
    fl_operand bias = in[LINEAR_CE_BIAS];
    if (bias.kind == FL_TENSOR) bias = fl_of(expr_reshape(&c, bias.tensor, &flat_bias));
    fl_tensor *weight = expr_reshape(&c, in[LINEAR_CE_MATRIX].tensor, &flat);
    fl_tensor *scores = expr_reshape(&c, EXPR_CALL(&c, NULL, linear, in[LINEAR_CE_INPUT], fl_of(weight), bias), &wide);
    fl_attrs_init(&a, FL_OP_REF(cross_entropy));
    for (int i = LINEAR_CE_REDUCTION; i <= LINEAR_CE_SMOOTHING; i++) a.at[i] = attrs->at[i];
    *out = fl_expr_take(&c,
                        EXPR_CALL(&c, &a, cross_entropy, fl_of(scores), in[LINEAR_CE_TARGET], in[LINEAR_CE_WEIGHT]));
    return fl_expr_end(&c);
}

/* True if ranks hold parts of the classes: the scores are split then. */
static bool has_split_classes(const fl_operand *in)
{
    const fl_meta *meta = in[LINEAR_CE_MATRIX].tensor->meta;
    for (int k = 0; k < meta->nd_sbp.n && !meta->is_local; k++)
        if (meta->placement->hierarchy[k] > 1 && meta->nd_sbp.at[k] == FL_S(0)) return true;
    return false;
}

/* The rows of a chunk; 0: the loss is that of all scores at once, since they are few, or of other shapes. */
static int64_t rows_of_chunk(const fl_operand *in, const fl_attrs *attrs)
{
    const fl_shape *rows = &in[LINEAR_CE_INPUT].tensor->meta->shape,
                   *matrix = &in[LINEAR_CE_MATRIX].tensor->meta->shape;
    const fl_meta *target = in[LINEAR_CE_TARGET].tensor->meta;
    if (rows->ndim != 2 || matrix->ndim != 2 || !fl_dtype_is_integer(target->dtype)
        || !fl_shape_equal(&target->shape, &(fl_shape){1, {rows->dims[0]}}) || has_split_classes(in))
        return 0;
    int64_t chunk = matrix->dims[0] ? CHUNK_SCORES / matrix->dims[0] / CHUNK_ROWS * CHUNK_ROWS : CHUNK_SCORES;
    if (chunk < CHUNK_ROWS) chunk = CHUNK_ROWS;
    if (attrs->at[LINEAR_CE_ROWS].given) return attrs->at[LINEAR_CE_ROWS].integer;
    return rows->dims[0] > chunk ? chunk : 0;
}

/* The attributes of the hidden op that computes the loss. */
static fl_attrs chunk_attrs(const fl_op *op, const fl_attrs *attrs, int64_t rows)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    a.at[FL_LOSS_IGNORE] = attrs->at[LINEAR_CE_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = attrs->at[LINEAR_CE_SMOOTHING];
    fl_attr_set(&a, CHUNKS_ROWS, rows);
    return a;
}

/* The sum or the mean of the losses of rows. */
static fl_tensor *reduced(fl_expr *expr, const fl_operand *in, int nin, const fl_attrs *attrs, int64_t rows)
{
    int64_t gradients = 0;
    fl_attrs a = chunk_attrs(FL_OP_REF(linear_cross_entropy_sums), attrs, rows);
    for (int i = 0; i < GRADIENTS && fl_grad_enabled; i++) {
        const fl_operand *of = &in[operand_of[i]];
        if (of->kind == FL_TENSOR && fl_requires_grad(of->tensor)) gradients |= 1 << operand_of[i];
    }
    fl_attr_set(&a, CHUNKS_GRADIENTS, gradients);
    fl_tensor *totals = fl_expr_call(expr, FL_OP_REF(linear_cross_entropy_sums), in, nin, &a), *plain = NULL;
    fl_tensor *loss = expr_selected(expr, totals, 0, 0);
    if (!loss || attrs->at[LINEAR_CE_REDUCTION].integer == FL_LOSS_SUM) return loss;
    expr->status = fl_tensor_detach(&plain, totals);
    loss = expr_div(expr, loss, expr_whole(expr, expr_selected(expr, plain, 0, 1)));
    fl_tensor_unref(plain);
    return loss;
}

static fl_status body_linear_cross_entropy(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *loss;
    const fl_attr *given = &attrs->at[LINEAR_CE_ROWS];
    if (given->given && given->integer < 1)
        return fl_fail(FL_ERR_VALUE, "batch_chunk_size must be at least 1, got %lld", (long long)given->integer);
    FL_TRY(check_operands(in));
    int64_t rows = rows_of_chunk(in, attrs);
    if (!rows) return whole(out, in, attrs);
    if (attrs->at[LINEAR_CE_REDUCTION].integer == FL_LOSS_NONE) {
        fl_attrs a = chunk_attrs(FL_OP_REF(linear_cross_entropy_rows), attrs, rows);
        loss = fl_expr_call(&c, FL_OP_REF(linear_cross_entropy_rows), in, nin, &a);
    } else loss = reduced(&c, in, nin, attrs, rows);
    if (loss && fl_autocast_now < FL_AUTOCAST_DTYPES)
        loss = expr_cast(&c, loss, in[LINEAR_CE_INPUT].tensor->meta->dtype);
    *out = fl_expr_take(&c, loss);
    return fl_expr_end(&c);
}

FL_OP(linear_cross_entropy) = {
    .name = "linear_cross_entropy",
    .sig = "linear_cross_entropy(input, linear_weight, target, linear_bias?, weight?, reduction: mean|sum|none = mean, "
           "~ignore_index: int = -100, ~label_smoothing: float = 0, batch_chunk_size: int = nil)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc =
        "cross_entropy of linear(input, linear_weight, linear_bias): input [n, in], linear_weight [classes, in]. The "
        "loss of labels is computed by chunks of rows, so that not all scores are in memory at once.",
    .body = body_linear_cross_entropy,
    FL_SAMPLES(
        "flow.randn(7, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, -100, 2, 2, 3}, flow.randn(5), nil, 'mean', -100, "
        "0.1, 3",
        "flow.randn(6, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, 3, 2, 2}, nil, nil, 'sum', -100, 0, "
        "4",
        "flow.randn(3, 4), flow.randn(5, 4), flow.tensor {0, 4, 1}, nil, nil, 'none', -100, 0.1, 2",
        "flow.randn(3, 4), flow.randn(5, 2, 4), flow.randn(3, 5, 2):softmax(1), flow.randn(5, 2)"),
};
