/*
** linalg_sums.c -- traces, products with something added, powers of matrices and distances.
*/
#include "linalg.h"
#include "op/slicing.h"
#include "reduce.h"

static const fl_shape *shape_of(const fl_operand *operand) { return &operand->tensor->meta->shape; }

/* ---- trace ---- */

static fl_status infer_trace(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    fl_dtype dtype = infer->in[0].dtype;
    if (infer->in[0].shape.ndim != 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes a matrix, x is %s", fl_shape_text(text, &infer->in[0].shape));
    infer->out[0].dtype = fl_dtype_is_float(dtype) ? dtype : FL_INT64;
    return FL_OK;
}

/* The diagonal of some rows (columns) is a part of the diagonal, and its sum a part of the sum. */
static void sbp_trace(fl_sigs *sigs)
{
    FL_SIG(sigs, NULL, FL_S(0), FL_PSUM);
    FL_SIG(sigs, NULL, FL_S(1), FL_PSUM);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static fl_status kernel_trace(fl_kernel *kernel)
{
    int64_t size, stride;
    fl_view diagonal = fl_view_diagonal(&kernel->in[0], &size, &stride);
    fl_reduce_job job = {.name = "trace", .fold = FL_FOLD_SUM, .logical_count = size};
    return fl_cpu_reduce(&kernel->out[0], &diagonal, 1, &job);
}

/* The gradient lies on the diagonal; elsewhere it is 0. */
static fl_status grad_trace(fl_grad *g)
{
    fl_expr c = {0};
    fl_attrs a;
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_shape length = {1, {x->dims[0] < x->dims[1] ? x->dims[0] : x->dims[1]}};
    fl_attrs_init(&a, FL_OP_REF(diagonal_backward));
    fl_attr_set(&a, FL_DIAGONAL_OFFSET, 0);
    fl_attr_set(&a, FL_DIAGONAL_AXIS0, 0);
    fl_attr_set(&a, FL_DIAGONAL_AXIS1, 1);
    fl_attr_set_list(&a, FL_DIAGONAL_SIZES, x->dims, 2);
    fl_tensor *diagonal = expr_expanded(&c, expr_unsqueeze(&c, g->gout[0], 0), &length);
    g->gin[0] = fl_expr_take(&c, EXPR_CALL(&c, &a, diagonal_backward, fl_of(diagonal)));
    return fl_expr_end(&c);
}

FL_OP(trace) = {
    .name = "trace",
    .sig = "trace(x)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY, /* flow.trace is that of programs */
    .doc = "Sum of a matrix's diagonal; integers and bool give int64.",
    .infer = infer_trace,
    .sbp = sbp_trace,
    .cpu = kernel_trace,
    .grad = grad_trace,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randint(-5, 5, {4, 3})"),
};

/* ---- beta * input + alpha * product ---- */

enum { ADDED_INPUT, ADDED_X, ADDED_Y };
enum { ADDED_BETA, ADDED_ALPHA };

/* The product's share; `input` counts for nothing where beta is 0, not even its NaN. */
static fl_status add_product(fl_tensor **out, fl_expr *expr, fl_tensor *product, fl_tensor *input,
                             const fl_attrs *attrs)
{
    double beta = fl_attr_number(&attrs->at[ADDED_BETA]), alpha = fl_attr_number(&attrs->at[ADDED_ALPHA]);
    bool integer = attrs->at[ADDED_ALPHA].kind != FL_NUM_FLOAT && attrs->at[ADDED_BETA].kind != FL_NUM_FLOAT;
    fl_operand by = integer ? fl_of_integer((int64_t)alpha) : fl_of_number(alpha),
               input_by = integer ? fl_of_integer((int64_t)beta) : fl_of_number(beta);
    if (alpha != 1) product = EXPR_CALL(expr, NULL, mul, fl_of(product), by);
    if (beta != 1 && beta != 0) input = EXPR_CALL(expr, NULL, mul, fl_of(input), input_by);
    if (expr->status == FL_OK && beta == 0) {
        fl_shape shape;
        expr->status = fl_shape_broadcast(&shape, "beta = 0", &product->meta->shape, &input->meta->shape);
        if (expr->status == FL_OK) product = expr_expanded(expr, product, &shape);
    } else product = expr_add(expr, input, product);
    *out = fl_expr_take(expr, product);
    return fl_expr_end(expr);
}

struct added {
    const char *who, *takes;
    int x_ndim, y_ndim;
};

static fl_status check_added(const struct added *kind, const fl_operand *in)
{
    char ti[FL_SHAPE_TEXT], tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = shape_of(&in[ADDED_X]), *y = shape_of(&in[ADDED_Y]), *input = shape_of(&in[ADDED_INPUT]);
    bool outer = kind->x_ndim == 1, batch = kind->x_ndim == 3;
    bool fits = x->ndim == kind->x_ndim && y->ndim == kind->y_ndim && input->ndim <= (batch ? 3 : 2);
    if (fits && !outer) fits = x->dims[x->ndim - 1] == y->dims[batch ? 1 : 0] && (!batch || x->dims[0] == y->dims[0]);
    if (fits) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: takes %s, got %s, %s and %s", kind->who, kind->takes, fl_shape_text(ti, input),
                   fl_shape_text(tx, x), fl_shape_text(ty, y));
}

static fl_status add_matmul(fl_tensor **out, const struct added *kind, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(check_added(kind, in));
    fl_tensor *product = EXPR_CALL(&c, NULL, matmul, in[ADDED_X], in[ADDED_Y]);
    return add_product(out, &c, product, in[ADDED_INPUT].tensor, attrs);
}

static fl_status body_addmm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return add_matmul(out, &(struct added){"addmm", "input, [m, k] and [k, n]", 2, 2}, in, attrs);
}
static fl_status body_addmv(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return add_matmul(out, &(struct added){"addmv", "input, [m, n] and [n]", 2, 1}, in, attrs);
}
static fl_status body_baddbmm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return add_matmul(out, &(struct added){"baddbmm", "input, [b, m, k] and [b, k, n]", 3, 3}, in, attrs);
}

static fl_status body_addbmm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(check_added(&(struct added){"addbmm", "input, [b, m, k] and [b, k, n]", 3, 3}, in));
    fl_tensor *product = expr_sum(&c, EXPR_CALL(&c, NULL, matmul, in[ADDED_X], in[ADDED_Y]), 1, false);
    return add_product(out, &c, product, in[ADDED_INPUT].tensor, attrs);
}

static fl_status body_addr(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(check_added(&(struct added){"addr", "input and two vectors", 1, 1}, in));
    fl_tensor *product = EXPR_CALL(&c, NULL, outer, in[ADDED_X], in[ADDED_Y]);
    return add_product(out, &c, product, in[ADDED_INPUT].tensor, attrs);
}

#define ADDED(name_, samples_, doc_)                                        \
    FL_OP(name_) = {                                                        \
        .name = #name_,                                                     \
        .sig = #name_ "(input, x, y, beta: scalar = 1, alpha: scalar = 1)", \
        .nout = 1,                                                          \
        .flags = FL_OP_LOW,                                                 \
        .doc = doc_,                                                        \
        .body = body_##name_,                                               \
        FL_SAMPLES(samples_),                                               \
    }

ADDED(addmm, "flow.randn(2), flow.randn(3, 4), flow.randn(4, 2), 0.5, 2", "beta * input + alpha * x y of matrices.");
ADDED(addmv, "flow.randn(3), flow.randn(3, 4), flow.randn(4)", "beta * input + alpha * x y of a matrix and a vector.");
ADDED(addr, "flow.randn(3, 2), flow.randn(3), flow.randn(2)", "beta * input + alpha * the outer product of x and y.");
ADDED(baddbmm, "flow.randn(2, 3, 2), flow.randn(2, 3, 4), flow.randn(2, 4, 2)",
      "beta * input + alpha * x y of batches of matrices.");
ADDED(addbmm, "flow.randn(3, 2), flow.randn(2, 3, 4), flow.randn(2, 4, 2)",
      "beta * input + alpha * the sum of x y over a batch of matrices.");

/* ---- matrix_power ---- */

enum { POWER_N };

static fl_status check_power(const fl_operand *in, int64_t power)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *x = shape_of(&in[0]);
    if (x->ndim < 2 || fl_linalg_rows(x) != fl_linalg_columns(x))
        return fl_fail(FL_ERR_SHAPE, "linalg.matrix_power: takes square matrices [..., n, n], A is %s",
                       fl_shape_text(text, x));
    return power < 0 ? fl_linalg_check("linalg.matrix_power", "A", in[0].tensor, true) : FL_OK;
}

/* By squares: as many products as the power has digits and ones in base 2. */
static fl_status body_matrix_power(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    int64_t power = attrs->at[POWER_N].integer;
    fl_tensor *square = in[0].tensor, *result = NULL;
    FL_TRY(check_power(in, power));
    if (power == 0) {
        fl_tensor *identity = expr_diagonal(&c, expr_ones(&c, expr_diagonal_of(&c, square)));
        *out = fl_expr_take(&c, identity);
        return fl_expr_end(&c);
    }
    if (power < 0) square = EXPR_CALL(&c, NULL, linalg_inv, fl_of(square));
    for (uint64_t left = power < 0 ? -(uint64_t)power : (uint64_t)power; left; left >>= 1) {
        if (left & 1u) result = result ? EXPR_CALL(&c, NULL, matmul, fl_of(result), fl_of(square)) : square;
        if (left > 1) square = EXPR_CALL(&c, NULL, matmul, fl_of(square), fl_of(square));
        if (c.count > FL_EXPR_LENGTH - 4 && c.status == FL_OK)
            c.status = fl_fail(FL_ERR_VALUE, "linalg.matrix_power: n = %lld is too large", (long long)power);
    }
    if (power == 1) result = EXPR_CALL(&c, NULL, clone, fl_of(result));
    *out = fl_expr_take(&c, result);
    return fl_expr_end(&c);
}

FL_OP(linalg_matrix_power) = {
    .name = "linalg.matrix_power",
    .sig = "linalg.matrix_power(A, n: int)",
    .nout = 1,
    .doc = "Product of n square matrices A; n < 0: of their inverses, 0: the identity.",
    .body = body_matrix_power,
    FL_SAMPLES("flow.randn(2, 3, 3), 3", "flow.eye(3) * 2 + 0.5, -2", "flow.randn(2, 2), 0"),
};

/* ---- cdist ---- */

enum { CDIST_X, CDIST_Y };
enum { CDIST_P, CDIST_MODE };
enum { MODE_IF_NECESSARY, MODE_USE, MODE_DONT_USE };
enum { MM_FROM = 26 }; /* rows from which "if necessary" multiplies, as in PyTorch */

static fl_status check_cdist(const fl_operand *in, double p)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = shape_of(&in[CDIST_X]), *y = shape_of(&in[CDIST_Y]);
    if (!(p >= 0)) return fl_fail(FL_ERR_VALUE, "cdist: p must be 0 or more, got %g", p);
    for (int i = 0; i < 2; i++)
        if (!fl_dtype_is_float(in[i].tensor->meta->dtype))
            return fl_fail(FL_ERR_DTYPE, "cdist: takes float tensors, %s is %s; write %s:to(\"float32\")",
                           i ? "y" : "x", fl_dtype_name(in[i].tensor->meta->dtype), i ? "y" : "x");
    if (x->ndim >= 2 && y->ndim >= 2 && fl_linalg_columns(x) == fl_linalg_columns(y)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "cdist: takes [..., p, m] and [..., r, m], got %s and %s", fl_shape_text(tx, x),
                   fl_shape_text(ty, y));
}

/* Of squared lengths and products: |x|^2 + |y|^2 - 2 x y. The root of 0 has the gradient 0. */
static fl_tensor *distances_by_product(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    int x_last = x->meta->shape.ndim - 1, y_last = y->meta->shape.ndim - 1;
    fl_tensor *xx = expr_sum(expr, expr_mul(expr, x, x), 1u << x_last, true);
    fl_tensor *yy = expr_transposed(expr, expr_sum(expr, expr_mul(expr, y, y), 1u << y_last, true));
    fl_tensor *xy = expr_mul_number(expr, EXPR_CALL(expr, NULL, matmul, fl_of(x), fl_of(expr_transposed(expr, y))), 2);
    fl_tensor *squares = expr_sub(expr, expr_add(expr, xx, yy), xy);
    fl_tensor *some = EXPR_CALL(expr, NULL, gt, fl_of(squares), fl_of_integer(0));
    fl_tensor *safe = EXPR_CALL(expr, NULL, where, fl_of(some), fl_of(squares), fl_of_integer(1));
    return EXPR_CALL(expr, NULL, where, fl_of(some), fl_of(EXPR_CALL(expr, NULL, sqrt, fl_of(safe))), fl_of_integer(0));
}

static fl_tensor *distances(fl_expr *expr, fl_tensor *x, fl_tensor *y, double p)
{
    fl_attrs a;
    fl_tensor *d = expr_sub(expr, expr_unsqueeze(expr, x, x->meta->shape.ndim - 1),
                            expr_unsqueeze(expr, y, y->meta->shape.ndim - 2));
    int64_t last = -1;
    fl_attrs_init(&a, FL_OP_REF(norm));
    fl_attr_set_number(&a, FL_NORM_P, p);
    fl_attr_set_list(&a, FL_NORM_AXIS, &last, 1);
    return EXPR_CALL(expr, &a, norm, fl_of(d));
}

static fl_status body_cdist(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    double p = attrs->at[CDIST_P].number;
    FL_TRY(check_cdist(in, p));
    fl_tensor *x = in[CDIST_X].tensor, *y = in[CDIST_Y].tensor;
    bool many = fl_linalg_rows(&x->meta->shape) >= MM_FROM || fl_linalg_rows(&y->meta->shape) >= MM_FROM;
    int64_t mode = attrs->at[CDIST_MODE].integer;
    bool multiplies = p == 2 && (mode == MODE_USE || (mode == MODE_IF_NECESSARY && many));
    *out = fl_expr_take(&c, multiplies ? distances_by_product(&c, x, y) : distances(&c, x, y, p));
    return fl_expr_end(&c);
}

FL_OP(cdist) = {
    .name = "cdist",
    .sig = "cdist(x, y, p: float = 2, compute_mode: use_mm_for_euclid_dist_if_necessary|use_mm_for_euclid_dist|"
           "donot_use_mm_for_euclid_dist = use_mm_for_euclid_dist_if_necessary)",
    .nout = 1,
    .flags = FL_OP_WIDE,
    .doc = "Distances (p-norms) of every row of x and every row of y, in batches that broadcast; compute_mode: whether "
           "those of p = 2 are made of a matrix product, which is faster and less exact.",
    .body = body_cdist,
    FL_SAMPLES("flow.randn(2, 3, 4), flow.randn(5, 4)", "flow.randn(3, 2), flow.randn(4, 2), 1",
               "flow.randn(3, 2), flow.randn(4, 2), {compute_mode = 'use_mm_for_euclid_dist'}"),
};
