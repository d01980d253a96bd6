/*
** linalg_pinv.c -- pseudoinverses, ranks and least squares.
*/
#include "autograd/autograd.h"
#include "linalg.h"
#include "op/pinv.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static fl_status infer_pinv(fl_infer *infer)
{
    infer->name = "linalg.pinv";
    FL_TRY(fl_linalg_require(infer, 0));
    const fl_shape *a = &infer->in[0].shape;
    fl_shape batch = fl_linalg_batch(a);
    infer->out[0] = infer->in[0];
    infer->out[0].shape = fl_linalg_shape(&batch, fl_linalg_columns(a), fl_linalg_rows(a));
    return FL_OK;
}

static fl_status kernel_pinv(fl_kernel *kernel)
{
    const fl_view *a = &kernel->in[0];
    fl_matrices job = fl_linalg_job(kernel, "linalg.pinv", 0);
    fl_pinv_tolerances(&job.atol, &job.rtol, kernel->attrs, kernel->out[0].dtype, a->size[a->ndim - 2],
                       a->size[a->ndim - 1]);
    return fl_linalg_run(kernel, &job, &fl_matrix_pinv, FL_MATRIX_NO_DECOMPOSITION);
}

/* The differential of the pseudoinverse X of A, transposed (G. Golub and V. Pereyra, 1973), for a gradient G of X:
** -X^T G X^T + (I - A X) G^T X X^T + X^T X G^T (I - X A). */
static fl_tensor *pinv_gradient(fl_expr *expr, fl_tensor *a, fl_tensor *x, fl_tensor *dx)
{
    fl_tensor *inner = expr_gemm(expr, expr_gemm(expr, x, dx, true, false), x, false, true);
    fl_tensor *left = expr_gemm(expr, expr_gemm(expr, dx, x, true, false), x, false, true);
    fl_tensor *right = expr_gemm(expr, x, expr_gemm(expr, x, dx, false, true), true, false);
    fl_tensor *left_in = expr_gemm(expr, a, expr_gemm(expr, x, left, false, false), false, false);
    fl_tensor *right_in = expr_gemm(expr, expr_gemm(expr, right, x, false, false), a, false, false);
    fl_tensor *outside = expr_add(expr, expr_sub(expr, left, left_in), expr_sub(expr, right, right_in));
    return expr_sub(expr, outside, inner);
}

static fl_status grad_pinv(fl_grad *g)
{
    fl_expr c = {0};
    g->gin[0] = fl_expr_take(&c, pinv_gradient(&c, g->in[0].tensor, g->out[0], g->gout[0]));
    return fl_expr_end(&c);
}

FL_OP(linalg_pseudoinverse) = {
    .name = "linalg_pseudoinverse",
    .sig = "linalg_pseudoinverse(A, ~atol: float = nil, ~rtol: float = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Pseudoinverse of matrices.",
    .saves_in = 1,
    .saves_out = 1,
    .infer = infer_pinv,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_pinv,
    .grad = grad_pinv,
    FL_SAMPLES("flow.randn(2, 3, 4)", "flow.randn(4, 2), 1e-5, 1e-6"),
};

enum { PINV_HERMITIAN = 2 };

/* The symmetric matrix whose lower half is that of x. */
static fl_tensor *from_lower_half(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *below = expr_transposed(expr, expr_triangle(expr, x, true, -1));
    return expr_add(expr, expr_triangle(expr, x, true, 0), below);
}

static fl_tensor *pseudoinverse(fl_expr *expr, fl_tensor *a, const fl_attrs *tolerance)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(linalg_pseudoinverse));
    for (int i = FL_PINV_ATOL; tolerance && i <= FL_PINV_RTOL; i++) attrs.at[i] = tolerance->at[i];
    return EXPR_CALL(expr, &attrs, linalg_pseudoinverse, fl_of(a));
}

static fl_status body_pinv(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    bool symmetric = attrs->at[PINV_HERMITIAN].integer != 0;
    FL_TRY(fl_linalg_check("linalg.pinv", "A", in[0].tensor, symmetric));
    fl_tensor *a = symmetric ? from_lower_half(&c, in[0].tensor) : in[0].tensor;
    *out = fl_expr_take(&c, pseudoinverse(&c, a, attrs));
    return fl_expr_end(&c);
}

FL_OP(linalg_pinv) = {
    .name = "linalg.pinv",
    .sig = "linalg.pinv(A, ~atol: float = nil, ~rtol: float = nil, hermitian: bool = false)",
    .nout = 1,
    .doc = "Pseudoinverse (Moore-Penrose): singular values up to max(atol, rtol times the largest) count as 0; "
           "hermitian: A is symmetric, its lower half is read.",
    .body = body_pinv,
    FL_SAMPLES("flow.randn(2, 3, 4)", "flow.eye(3) * 2 + 0.5, {hermitian = true}"),
};

/* ---- rank ---- */

/* Counts the singular values (absolute eigenvalues of symmetric matrices) above the tolerance. */
static fl_status body_matrix_rank(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    double atol, rtol;
    bool symmetric = attrs->at[PINV_HERMITIAN].integer != 0;
    fl_tensor *a = in[0].tensor;
    FL_TRY(fl_linalg_check("linalg.matrix_rank", "A", a, symmetric));
    fl_pinv_tolerances(&atol, &rtol, attrs, a->meta->dtype, fl_linalg_rows(&a->meta->shape),
                       fl_linalg_columns(&a->meta->shape));
    fl_tensor *s = symmetric ? EXPR_CALL(&c, NULL, abs, fl_of(EXPR_CALL(&c, NULL, linalg_eigvalsh, fl_of(a))))
                             : EXPR_CALL(&c, NULL, linalg_svdvals, fl_of(a));
    if (c.status != FL_OK) return fl_expr_end(&c);
    int last = s->meta->shape.ndim - 1;
    fl_tensor *above = s;
    if (s->meta->shape.dims[last]) {
        fl_tensor *limit = expr_mul_number(&c, expr_amax(&c, s, 1u << last, true), rtol);
        limit = EXPR_CALL(&c, NULL, maximum, fl_of(limit), fl_of_number(atol));
        above = EXPR_CALL(&c, NULL, gt, fl_of(s), fl_of(limit));
    }
    fl_tensor *count = expr_sum(&c, expr_cast(&c, above, FL_INT64), 1u << last, false);
    *out = fl_expr_take(&c, count);
    return fl_expr_end(&c);
}

FL_OP(linalg_matrix_rank) = {
    .name = "linalg.matrix_rank",
    .sig = "linalg.matrix_rank(A, ~atol: float = nil, ~rtol: float = nil, hermitian: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "How many singular values are above max(atol, rtol times the largest); hermitian: of symmetric A.",
    .body = body_matrix_rank,
    FL_SAMPLES("flow.randn(2, 3, 4)", "flow.ones(3, 3), {hermitian = true}"),
};

/* ---- least squares ---- */

enum { LSTSQ_A, LSTSQ_B };
enum { LSTSQ_X, LSTSQ_RESIDUALS, LSTSQ_RANK, LSTSQ_VALUES };
enum { LSTSQ_RCOND, LSTSQ_DRIVER };

static fl_status infer_lstsq(fl_infer *infer)
{
    infer->name = "linalg.lstsq";
    FL_TRY(fl_linalg_require(infer, LSTSQ_A));
    FL_TRY(fl_linalg_require(infer, LSTSQ_B));
    const fl_shape *a = &infer->in[LSTSQ_A].shape, *b = &infer->in[LSTSQ_B].shape;
    fl_shape batch = fl_linalg_batch(a);
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a), k = fl_linalg_columns(b);
    for (int i = 0; i < 4; i++) infer->out[i] = infer->in[LSTSQ_A];
    infer->out[LSTSQ_X].shape = fl_linalg_shape(&batch, n, k);
    infer->out[LSTSQ_RESIDUALS].shape = fl_linalg_shape(&batch, k, -1);
    infer->out[LSTSQ_RANK] = (fl_spec){FL_TENSOR, FL_INT64, batch};
    infer->out[LSTSQ_VALUES].shape = fl_linalg_shape(&batch, smaller(m, n), -1);
    return FL_OK;
}

static fl_status kernel_lstsq(fl_kernel *kernel)
{
    const fl_view *a = &kernel->in[LSTSQ_A], *b = &kernel->in[LSTSQ_B];
    int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
    double epsilon = kernel->out[0].dtype == FL_FLOAT64 ? 0x1p-52 : 0x1p-23;
    fl_matrices job = fl_linalg_job(kernel, "linalg.lstsq", b->size[b->ndim - 1]);
    job.choice = (int)kernel->attrs->at[LSTSQ_DRIVER].integer;
    job.rtol = kernel->attrs->at[LSTSQ_RCOND].given ? kernel->attrs->at[LSTSQ_RCOND].number
                                                    : epsilon * (double)(m > n ? m : n);
    return fl_linalg_run(kernel, &job, &fl_matrix_lstsq, FL_MATRIX_NOT_FULL_RANK);
}

static fl_tensor *plus(fl_expr *expr, fl_tensor *x, fl_tensor *y) { return !x ? y : y ? expr_add(expr, x, y) : x; }

/* X = A^+ B; the residuals |A X - B|^2 have no part through X, which makes them least. */
static fl_status grad_lstsq(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *a = g->in[LSTSQ_A].tensor, *b = g->in[LSTSQ_B].tensor, *x = g->out[LSTSQ_X], *dx = g->gout[LSTSQ_X],
              *dr = g->gout[LSTSQ_RESIDUALS], *ds = g->gout[LSTSQ_VALUES], *da = NULL, *db = NULL;
    if (dx) {
        fl_tensor *inverse = pseudoinverse(&c, a, NULL);
        if (g->need[LSTSQ_A]) da = pinv_gradient(&c, a, inverse, expr_gemm(&c, dx, b, false, true));
        if (g->need[LSTSQ_B]) db = expr_gemm(&c, inverse, dx, true, false);
    }
    if (dr) {
        fl_tensor *left = expr_sub(&c, expr_gemm(&c, a, x, false, false), b);
        left = expr_mul(&c, left, expr_row(&c, expr_mul_number(&c, dr, 2)));
        if (g->need[LSTSQ_A]) da = plus(&c, da, expr_gemm(&c, left, x, false, true));
        if (g->need[LSTSQ_B]) db = plus(&c, db, expr_neg(&c, left));
    }
    if (ds && g->need[LSTSQ_A]) da = plus(&c, da, expr_values_gradient(&c, a, ds));
    if (da) g->gin[LSTSQ_A] = fl_expr_take(&c, da);
    if (db) g->gin[LSTSQ_B] = fl_expr_take(&c, db);
    return fl_expr_end(&c);
}

FL_OP(linalg_least_squares) = {
    .name = "linalg_least_squares",
    .sig = "linalg_least_squares(A, B, ~rcond: float = nil, driver: gels|gelsy|gelsd|gelss = gelsy)",
    .nout = 4,
    .flags = FL_OP_HIDDEN,
    .doc = "Least squares for matrices of the same batch: solution, squared residuals, ranks, singular values.",
    .saves_in = 1u << LSTSQ_A | 1u << LSTSQ_B,
    .saves_out = 1u << LSTSQ_X,
    .infer = infer_lstsq,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_lstsq,
    .grad = grad_lstsq,
    FL_SAMPLES("flow.randn(2, 4, 2), flow.randn(2, 4, 3), nil, 'gelsd'"),
};

/* B holds a vector per matrix of A: A's shape without its last axis. */
static bool is_vector(const fl_shape *a, const fl_shape *b)
{
    return b->ndim == a->ndim - 1 && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)b->ndim) == 0;
}

static fl_status check_lstsq(const fl_tensor *a, const fl_tensor *b, bool vector)
{
    char ta[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_shape *as = &a->meta->shape, *bs = &b->meta->shape;
    FL_TRY(fl_linalg_check("linalg.lstsq", "A", a, false));
    FL_TRY(fl_linalg_same_dtype("linalg.lstsq", a, b));
    if (!vector) FL_TRY(fl_linalg_check("linalg.lstsq", "B", b, false));
    if (vector || fl_linalg_rows(bs) == fl_linalg_rows(as)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "linalg.lstsq: A is %s and B is %s: rows of B must be %lld", fl_shape_text(ta, as),
                   fl_shape_text(tb, bs), (long long)fl_linalg_rows(as));
}

/* A result that the driver does not have: no elements. */
static fl_tensor *without_elements(fl_expr *expr, fl_tensor *x)
{
    fl_shape shape = {1, {0}};
    if (expr->status != FL_OK) return NULL;
    shape.dims[0] = x->meta->numel;
    return expr_narrowed(expr, expr_reshape(expr, x, &shape), 0, 0, 0);
}

static fl_status body_lstsq(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_shape batch;
    fl_tensor *a = in[LSTSQ_A].tensor, *b = in[LSTSQ_B].tensor;
    int64_t driver = attrs->at[LSTSQ_DRIVER].integer;
    bool vector = is_vector(&a->meta->shape, &b->meta->shape);
    FL_TRY(check_lstsq(a, b, vector));
    if (vector) b = expr_column(&c, b);
    if (c.status == FL_OK) c.status = fl_linalg_batches(&batch, "linalg.lstsq", &a->meta->shape, &b->meta->shape);
    if (c.status != FL_OK) return fl_expr_end(&c);
    bool overdetermined = fl_linalg_rows(&a->meta->shape) > fl_linalg_columns(&a->meta->shape);
    fl_tensor *x = EXPR_CALL(&c, attrs, linalg_least_squares, fl_of(expr_batched(&c, a, &batch)),
                             fl_of(expr_batched(&c, b, &batch)));
    if (c.status != FL_OK) return fl_expr_end(&c);
    fl_tensor *const *results = &c.owned[c.count - 4], *residuals = results[LSTSQ_RESIDUALS],
                     *rank = results[LSTSQ_RANK], *values = results[LSTSQ_VALUES];
    if (vector) x = expr_without_axis(&c, x, x->meta->shape.ndim - 1);
    if (!overdetermined || driver == FL_LSTSQ_GELSY) residuals = without_elements(&c, residuals);
    if (driver == FL_LSTSQ_GELS) rank = without_elements(&c, rank);
    if (driver == FL_LSTSQ_GELS || driver == FL_LSTSQ_GELSY) values = without_elements(&c, values);
    fl_tensor *all[] = {x, residuals, rank, values};
    for (int i = 0; i < 4; i++) out[i] = fl_expr_take(&c, all[i]);
    return fl_expr_end(&c);
}

FL_OP(linalg_lstsq) = {
    .name = "linalg.lstsq",
    .sig = "linalg.lstsq(A, B, ~rcond: float = nil, driver: gels|gelsy|gelsd|gelss = gelsy)",
    .nout = 4,
    .doc = "X that makes A X - B least, its squared residuals (gels, gelsd, gelss with more rows than columns; NaN "
           "without full rank), the rank of A (not gels) and its singular values (gelsd, gelss).",
    .body = body_lstsq,
    FL_SAMPLES("flow.randn(2, 4, 2), flow.randn(2, 4, 3), nil, 'gelsd'", "flow.randn(4, 2), flow.randn(4)",
               "flow.randn(4, 2), flow.randn(3, 4, 1), {driver = 'gels'}"),
};
