/*
** linear_cross_entropy.c -- cross_entropy of linear, by chunks of rows: the scores of all rows at once, of which there
** are often a hundred times more than inputs, are never in memory.
**
** The gradient of a sum of losses is known up to a factor before backward begins: that of each chunk is computed while
** its scores are there, and backward multiplies. So the products are those of linear and its gradients, none twice. A
** gradient that is to be differentiated again is computed anew, of all rows at once.
*/
#include "expr.h"
#include "op/loss.h"

#include "dispatch/autocast.h"
#include "dispatch/record.h"

enum { LINEAR_CE_INPUT, LINEAR_CE_MATRIX, LINEAR_CE_TARGET, LINEAR_CE_BIAS, LINEAR_CE_WEIGHT };

/* Results of linear_cross_entropy_sums: the sums of losses and of their weights, [2]; gradients of the first. */
enum { SUMS_TOTALS, SUMS_INPUT, SUMS_MATRIX, SUMS_BIAS, SUMS_RESULTS };

/* Attributes of it, after those that all losses of rows have; gradients: a bit for each operand that wants one. */
enum { SUMS_ROWS = FL_LOSS_SMOOTHING + 1, SUMS_GRADIENTS };

static bool wants(const fl_attrs *attrs, int operand) { return attrs->at[SUMS_GRADIENTS].integer >> operand & 1; }

/* ---- inference ---- */

static fl_status check_sums(const fl_infer *infer)
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

static fl_status infer_sums(fl_infer *infer)
{
    const fl_spec *in = infer->in;
    FL_TRY(check_sums(infer));
    const int of[SUMS_RESULTS] = {-1, LINEAR_CE_INPUT, LINEAR_CE_MATRIX, LINEAR_CE_BIAS};
    for (int i = 0; i < SUMS_RESULTS; i++) {
        if (of[i] >= 0 && wants(infer->attrs, of[i])) infer->out[i] = in[of[i]];
        else {
            infer->out[i].shape = (fl_shape){1, {i == SUMS_TOTALS ? 2 : 0}};
            infer->out[i].dtype = fl_dtype_compute(in[LINEAR_CE_INPUT].dtype);
        }
    }
    return FL_OK;
}

/* Rows are independent; the gradients of what all rows share are sums over them. */
static void sbp_sums(fl_sigs *sigs)
{
    fl_sbp rows = wants(sigs->attrs, LINEAR_CE_INPUT) ? FL_S(0) : FL_B;
    fl_sbp matrix = wants(sigs->attrs, LINEAR_CE_MATRIX) ? FL_PSUM : FL_B;
    fl_sbp bias = wants(sigs->attrs, LINEAR_CE_BIAS) ? FL_PSUM : FL_B;
    FL_SIG(sigs, NULL, FL_S(0), FL_B, FL_S(0), FL_B, FL_B, FL_PSUM, rows, matrix, bias);
}

/* ---- chunks of rows ---- */

/* What has been summed up so far; owned. */
struct sums {
    fl_tensor *loss, *count, *input, *matrix, *bias;
};

static void sums_free(struct sums *sums)
{
    fl_tensor_unref(sums->loss);
    fl_tensor_unref(sums->count);
    fl_tensor_unref(sums->input);
    fl_tensor_unref(sums->matrix);
    fl_tensor_unref(sums->bias);
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
    *sums = (struct sums){fl_expr_take(&c, zero), fl_expr_take(&c, zero), fl_expr_take(&c, rows),
                          fl_expr_take(&c, of_matrix), fl_expr_take(&c, of_bias)};
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

static fl_attrs rows_attrs(const fl_op *op, const fl_attrs *from)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    a.at[FL_LOSS_IGNORE] = from->at[FL_LOSS_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = from->at[FL_LOSS_SMOOTHING];
    return a;
}

/* The scores of some rows, and results of cross_entropy_rows for them. */
struct scored {
    fl_tensor *scores, *loss, *lse, *count;
};

static struct scored score(fl_expr *expr, const fl_operand *in, fl_tensor *x, fl_operand target, const fl_attrs *attrs)
{
    fl_attrs a = rows_attrs(FL_OP_REF(cross_entropy_rows), attrs);
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
static fl_tensor *scores_gradient(fl_expr *expr, const fl_operand *in, const struct scored *s, fl_tensor *dy,
                                  fl_operand target, const fl_attrs *attrs)
{
    fl_attrs a = rows_attrs(FL_OP_REF(cross_entropy_backward), attrs);
    return EXPR_CALL(expr, &a, cross_entropy_backward, fl_of(dy), fl_of(s->scores), target, fl_of(s->lse),
                     in[LINEAR_CE_WEIGHT]);
}

static void add_gradients(struct sums *sums, fl_expr *expr, const fl_operand *in, const fl_attrs *attrs, fl_tensor *x,
                          fl_tensor *g, int64_t start)
{
    fl_tensor *matrix = in[LINEAR_CE_MATRIX].tensor;
    if (wants(attrs, LINEAR_CE_BIAS)) add_part(&sums->bias, expr, expr_sum(expr, g, 1, false));
    if (g) g = expr_cast(expr, g, matrix->meta->dtype);
    if (wants(attrs, LINEAR_CE_MATRIX)) add_product(&sums->matrix, expr, g, x);
    if (!wants(attrs, LINEAR_CE_INPUT) || !g) return;
    fl_tensor *place = expr_narrowed(expr, sums->input, 0, start, g->meta->shape.dims[0]);
    fl_tensor *part = expr_gemm(expr, g, matrix, false, false);
    EXPR_CALL(expr, NULL, copy_, fl_of(place), fl_of(part));
}

static fl_status add_chunk(struct sums *sums, const fl_operand *in, const fl_attrs *attrs, int64_t start, int64_t rows)
{
    fl_expr c = {0};
    fl_tensor *x = expr_narrowed(&c, in[LINEAR_CE_INPUT].tensor, 0, start, rows);
    fl_operand target = fl_of(expr_narrowed(&c, in[LINEAR_CE_TARGET].tensor, 0, start, rows));
    struct scored s = score(&c, in, x, target, attrs);
    add_part(&sums->loss, &c, expr_sum(&c, s.loss, 1, false));
    add_part(&sums->count, &c, expr_sum(&c, s.count, 1, false));
    if (attrs->at[SUMS_GRADIENTS].integer)
        add_gradients(sums, &c, in, attrs, x, scores_gradient(&c, in, &s, expr_ones(&c, s.loss), target, attrs), start);
    fl_status status = fl_expr_end(&c);
    if (status == FL_OK || status == FL_ERR_INTERRUPTED || start == 0) return status;
    return fl_fail_prefix(status, "counted from row %lld: ", (long long)start); /* where the message names a label */
}

static fl_status compute_sums(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    struct sums sums;
    fl_expr c = {0};
    int64_t n = in[LINEAR_CE_INPUT].tensor->meta->shape.dims[0], rows = attrs->at[SUMS_ROWS].integer;
    FL_TRY(sums_begin(&sums, in, attrs));
    for (int64_t start = 0; start < n && c.status == FL_OK; start += rows)
        c.status = add_chunk(&sums, in, attrs, start, rows < n - start ? rows : n - start);
    fl_tensor *loss = expr_unsqueeze(&c, sums.loss, 0), *count = expr_unsqueeze(&c, sums.count, 0);
    fl_tensor *matrix = sums.matrix, *bias = sums.bias;
    if (wants(attrs, LINEAR_CE_MATRIX)) matrix = expr_cast(&c, matrix, in[LINEAR_CE_MATRIX].tensor->meta->dtype);
    if (wants(attrs, LINEAR_CE_BIAS)) bias = expr_cast(&c, bias, in[LINEAR_CE_BIAS].tensor->meta->dtype);
    out[SUMS_TOTALS] = fl_expr_take(&c, expr_concatenated(&c, loss, count, 0));
    out[SUMS_INPUT] = fl_expr_take(&c, sums.input);
    out[SUMS_MATRIX] = fl_expr_take(&c, matrix);
    out[SUMS_BIAS] = fl_expr_take(&c, bias);
    sums_free(&sums);
    return fl_expr_end(&c);
}

/* ---- gradients ---- */

/* The gradients in ops that can be differentiated again, of all rows. */
static fl_status differentiable_gradients(fl_grad *g, fl_expr *expr, fl_tensor *scale)
{
    fl_tensor *x = g->in[LINEAR_CE_INPUT].tensor, *matrix = g->in[LINEAR_CE_MATRIX].tensor;
    fl_operand target = g->in[LINEAR_CE_TARGET];
    struct scored s = score(expr, g->in, x, target, g->attrs);
    fl_tensor *dy = s.loss ? expr_expanded(expr, expr_unsqueeze(expr, scale, 0), &s.loss->meta->shape) : NULL;
    fl_tensor *scores = scores_gradient(expr, g->in, &s, dy, target, g->attrs);
    if (g->need[LINEAR_CE_BIAS]) g->gin[LINEAR_CE_BIAS] = fl_expr_take(expr, expr_sum(expr, scores, 1, false));
    if (scores) scores = expr_cast(expr, scores, matrix->meta->dtype);
    if (g->need[LINEAR_CE_INPUT])
        g->gin[LINEAR_CE_INPUT] = fl_expr_take(expr, expr_gemm(expr, scores, matrix, false, false));
    if (g->need[LINEAR_CE_MATRIX])
        g->gin[LINEAR_CE_MATRIX] = fl_expr_take(expr, EXPR_CALL(expr, NULL, contract_rows, fl_of(scores), fl_of(x)));
    return fl_expr_end(expr);
}

static fl_status grad_sums(fl_grad *g)
{
    const int results[] = {
        [LINEAR_CE_INPUT] = SUMS_INPUT, [LINEAR_CE_MATRIX] = SUMS_MATRIX, [LINEAR_CE_BIAS] = SUMS_BIAS};
    fl_expr c = {0};
    if (g->need[LINEAR_CE_WEIGHT])
        return fl_fail(FL_ERR_STATE, "linear_cross_entropy: has no gradient with respect to weight; detach() it");
    if (!g->gout[SUMS_TOTALS]) return FL_OK;
    fl_tensor *scale = expr_selected(&c, g->gout[SUMS_TOTALS], 0, 0);
    bool known = !fl_grad_enabled;
    for (int i = LINEAR_CE_INPUT; i <= LINEAR_CE_BIAS; i++) known &= !g->need[i] || wants(g->attrs, i);
    if (!known) return differentiable_gradients(g, &c, scale);
    for (int i = LINEAR_CE_INPUT; i <= LINEAR_CE_BIAS; i++)
        if (g->need[i]) g->gin[i] = fl_expr_take(&c, expr_mul(&c, g->out[results[i]], scale));
    return fl_expr_end(&c);
}

FL_OP(linear_cross_entropy_sums) = {
    .name = "linear_cross_entropy_sums",
    .sig = "linear_cross_entropy_sums(input, linear_weight, target, linear_bias?, weight?, ~ignore_index: int = -100, "
           "~label_smoothing: float = 0, rows: int, gradients: int)",
    .nout = SUMS_RESULTS,
    .flags = FL_OP_HIDDEN | FL_OP_LOW,
    .doc = "The sums of cross_entropy(linear(x)) over rows and of the rows' weights, and gradients of the first.",
    .saves_in = (1u << (LINEAR_CE_WEIGHT + 1)) - 1,
    .saves_out = 1u << SUMS_INPUT | 1u << SUMS_MATRIX | 1u << SUMS_BIAS,
    .infer = infer_sums,
    .sbp = sbp_sums,
    .compute = compute_sums,
    .grad = grad_sums,
    FL_SAMPLES("flow.randn(7, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, -100, 2, 2, 3}, flow.randn(5), nil, -100, "
               "0.1, 3, 11",
               "flow.randn(4, 3), flow.randn(5, 3), flow.tensor {0, 4, 1, 2}, nil, flow.rand(5) + 0.5, -100, 0, 8, 0"),
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

/* The rows of a chunk; 0: the loss is that of all scores at once, since they are few, or not sums over rows. */
static int64_t rows_of_chunk(const fl_operand *in, const fl_attrs *attrs)
{
    const fl_shape *rows = &in[LINEAR_CE_INPUT].tensor->meta->shape,
                   *matrix = &in[LINEAR_CE_MATRIX].tensor->meta->shape;
    const fl_meta *target = in[LINEAR_CE_TARGET].tensor->meta;
    if (rows->ndim != 2 || matrix->ndim != 2 || !fl_dtype_is_integer(target->dtype)
        || !fl_shape_equal(&target->shape, &(fl_shape){1, {rows->dims[0]}})
        || attrs->at[LINEAR_CE_REDUCTION].integer == FL_LOSS_NONE || has_split_classes(in))
        return 0;
    int64_t chunk = matrix->dims[0] ? CHUNK_SCORES / matrix->dims[0] / CHUNK_ROWS * CHUNK_ROWS : CHUNK_SCORES;
    if (chunk < CHUNK_ROWS) chunk = CHUNK_ROWS;
    if (attrs->at[LINEAR_CE_ROWS].given) return attrs->at[LINEAR_CE_ROWS].integer;
    return rows->dims[0] > chunk ? chunk : 0;
}

static fl_status body_linear_cross_entropy(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    const fl_attr *given = &attrs->at[LINEAR_CE_ROWS];
    if (given->given && given->integer < 1)
        return fl_fail(FL_ERR_VALUE, "batch_chunk_size must be at least 1, got %lld", (long long)given->integer);
    FL_TRY(check_operands(in));
    int64_t rows = rows_of_chunk(in, attrs), gradients = 0;
    if (!rows) return whole(out, in, attrs);
    for (int i = LINEAR_CE_INPUT; i <= LINEAR_CE_BIAS && fl_grad_enabled; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor)) gradients |= 1 << i;
    fl_attrs_init(&a, FL_OP_REF(linear_cross_entropy_sums));
    a.at[FL_LOSS_IGNORE] = attrs->at[LINEAR_CE_IGNORE];
    a.at[FL_LOSS_SMOOTHING] = attrs->at[LINEAR_CE_SMOOTHING];
    fl_attr_set(&a, SUMS_ROWS, rows);
    fl_attr_set(&a, SUMS_GRADIENTS, gradients);
    fl_tensor *totals = fl_expr_call(&c, FL_OP_REF(linear_cross_entropy_sums), in, nin, &a);
    fl_tensor *loss = expr_selected(&c, totals, 0, 0);
    if (loss && attrs->at[LINEAR_CE_REDUCTION].integer == FL_LOSS_MEAN) {
        fl_tensor *plain = NULL;
        c.status = fl_tensor_detach(&plain, totals);
        loss = expr_div(&c, loss, expr_whole(&c, expr_selected(&c, plain, 0, 1)));
        fl_tensor_unref(plain);
    }
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
        "mean or sum of labels is computed by chunks of rows, so that not all scores are in memory at once.",
    .body = body_linear_cross_entropy,
    FL_SAMPLES(
        "flow.randn(7, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, -100, 2, 2, 3}, flow.randn(5), nil, 'mean', -100, "
        "0.1, 3",
        "flow.randn(6, 4), flow.randn(5, 4), flow.tensor {0, 4, 1, 3, 2, 2}, nil, nil, 'sum', -100, 0, "
        "4",
        "flow.randn(3, 4), flow.randn(5, 4), flow.tensor {0, 4, 1}, nil, nil, 'none'",
        "flow.randn(3, 4), flow.randn(5, 2, 4), flow.randn(3, 5, 2):softmax(1), flow.randn(5, 2)"),
};
