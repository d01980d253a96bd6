/*
** linalg_inverse.c -- determinants, inverses and solutions of square systems, all through LU factors.
*/
#include "autograd/autograd.h"
#include "linalg.h"

#include <math.h>

/* ---- determinants ---- */

static fl_status infer_det(fl_infer *infer)
{
    FL_TRY(fl_linalg_require_square(infer, 0));
    for (int i = 0; i < infer->nout; i++)
        infer->out[i] = (fl_spec){FL_TENSOR, infer->in[0].dtype, fl_linalg_batch(&infer->in[0].shape)};
    return FL_OK;
}

static fl_status kernel_det(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.det", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_det, FL_MATRIX_SINGULAR);
}

/* x [...] beside matrices [..., n, n] */
static fl_tensor *as_matrix(fl_expr *expr, fl_tensor *x) { return expr_column(expr, expr_column(expr, x)); }

/* The cofactors are the derivative of a determinant. */
static fl_status grad_det(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *cofactor = EXPR_CALL(&c, NULL, linalg_cofactor, g->in[0]);
    g->gin[0] = fl_expr_take(&c, expr_mul(&c, as_matrix(&c, g->gout[0]), cofactor));
    return fl_expr_end(&c);
}

FL_OP(linalg_det) = {
    .name = "linalg.det",
    .sig = "linalg.det(A)",
    .nout = 1,
    .doc = "Determinant of square matrices.",
    .saves_in = 1,
    .infer = infer_det,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_det,
    .grad = grad_det,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.randn(4, 4)"),
};

static fl_status kernel_cofactor(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.det", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_cofactor, FL_MATRIX_SINGULAR);
}

/* C = det(A) A^-T: dC = (<C, dA> C - C dA^T C) / det(A). */
static fl_status grad_cofactor(fl_grad *g)
{
    fl_expr e = {0};
    fl_tensor *c = g->out[0], *dc = g->gout[0];
    uint32_t last = 3u << (c->meta->shape.ndim - 2);
    fl_tensor *along = expr_mul(&e, expr_sum(&e, expr_mul(&e, c, dc), last, true), c);
    fl_tensor *across = expr_gemm(&e, expr_gemm(&e, c, dc, false, true), c, false, false);
    fl_tensor *det = EXPR_CALL(&e, NULL, linalg_det, g->in[0]);
    g->gin[0] = fl_expr_take(&e, expr_div(&e, expr_sub(&e, along, across), as_matrix(&e, det)));
    return fl_expr_end(&e);
}

FL_OP(linalg_cofactor) = {
    .name = "linalg_cofactor",
    .sig = "linalg_cofactor(A)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "The derivative of the determinant: the determinant times the transposed inverse.",
    .saves_in = 1,
    .saves_out = 1,
    .infer = fl_linalg_infer_square,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_cofactor,
    .grad = grad_cofactor,
    FL_SAMPLES("flow.randn(2, 3, 3)"),
};

enum { SLOGDET_SIGN, SLOGDET_LOG };

static fl_status kernel_slogdet(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.slogdet", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_slogdet, FL_MATRIX_SINGULAR);
}

/* The logarithm's derivative is the transposed inverse, of a singular matrix NaN; the sign has none. */
static fl_status grad_slogdet(fl_grad *g)
{
    fl_expr c = {0};
    if (!g->gout[SLOGDET_LOG]) return FL_OK;
    fl_tensor *inverse = EXPR_CALL(&c, NULL, linalg_inv_ex, g->in[0]);
    g->gin[0] = fl_expr_take(&c, expr_mul(&c, as_matrix(&c, g->gout[SLOGDET_LOG]), expr_transposed(&c, inverse)));
    return fl_expr_end(&c);
}

FL_OP(linalg_slogdet) = {
    .name = "linalg.slogdet",
    .sig = "linalg.slogdet(A)",
    .nout = 2,
    .doc = "Sign of the determinant (0 of a singular matrix), and the logarithm of its absolute value.",
    .saves_in = 1,
    .infer = infer_det,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_slogdet,
    .grad = grad_slogdet,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.randn(4, 4)"),
};

/* NaN of a negative determinant, without a gradient there; -inf of 0. */
static fl_status body_logdet(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(fl_linalg_check("logdet", "A", in[0].tensor, true));
    fl_tensor *sign = EXPR_CALL(&c, NULL, linalg_slogdet, in[0]), *log = c.status == FL_OK ? c.owned[1] : NULL;
    fl_tensor *negative = EXPR_CALL(&c, NULL, lt, fl_of(sign), fl_of_integer(0));
    *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, where, fl_of(negative), fl_of_number(NAN), fl_of(log)));
    return fl_expr_end(&c);
}

FL_OP(logdet) = {
    .name = "logdet",
    .sig = "logdet(A)",
    .nout = 1,
    .doc = "Logarithm of the determinant of square matrices; NaN where that is negative.",
    .body = body_logdet,
    FL_SAMPLES("flow.eye(3) * 2 + flow.full({2, 3, 3}, 0.1)"),
};

/* ---- inverses ---- */

static fl_status kernel_inverse(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, kernel->name, 0);
    job.unchecked = kernel->nout == 2;
    return fl_linalg_run(kernel, &job, &fl_matrix_inverse, FL_MATRIX_SINGULAR);
}

/* d(A^-1) = -A^-1 dA A^-1 */
static const char *const inverse_vjp[] = {"neg(gemm(gemm(out, g, true, false), out, false, true))"};

FL_OP(linalg_inv) = {
    .name = "linalg.inv",
    .sig = "linalg.inv(A)",
    .nout = 1,
    .doc = "Inverse of square matrices; a singular one is an error. To solve A X = B write linalg.solve(A, B).",
    .infer = fl_linalg_infer_square,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_inverse,
    .vjp = inverse_vjp,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.randn(4, 4)"),
};

FL_OP(linalg_inv_ex) = {
    .name = "linalg.inv_ex",
    .sig = "linalg.inv_ex(A)",
    .nout = 2,
    .doc = "As linalg.inv without its error: a singular matrix gives NaN, and the pivot that is 0 as second result.",
    .infer = fl_linalg_infer_square,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_inverse,
    .vjp = inverse_vjp,
    FL_SAMPLES("flow.randn(2, 3, 3)"),
};

/* ---- A X = B ---- */

enum { SYSTEM_A, SYSTEM_B };
enum { SOLVE_LEFT }; /* of linalg.solve */

/* Matrices of one batch shape, which bodies see to. */
static fl_status infer_solve(fl_infer *infer)
{
    infer->name = "linalg.solve";
    FL_TRY(fl_linalg_require_square(infer, SYSTEM_A));
    FL_TRY(fl_linalg_require(infer, SYSTEM_B));
    infer->out[0] = infer->in[SYSTEM_B];
    return FL_OK;
}

/* Columns of B are solutions of their own, and linear in B. */
static void sbp_solve(fl_sigs *sigs)
{
    int last = sigs->in[SYSTEM_B].shape.ndim - 1;
    fl_linalg_sbp(sigs);
    FL_SIG(sigs, NULL, FL_B, FL_S(last), FL_S(last));
    fl_sbp_partial(sigs, 1u << SYSTEM_B, FL_PSUM);
}

static fl_status kernel_solve(fl_kernel *kernel)
{
    const fl_view *b = &kernel->in[SYSTEM_B];
    fl_matrices job = fl_linalg_job(kernel, "linalg.solve", b->size[b->ndim - 1]);
    job.choice = kernel->attrs->at[FL_SQUARE_TRANSPOSED].integer != 0;
    return fl_linalg_run(kernel, &job, &fl_matrix_solve, FL_MATRIX_SINGULAR);
}

/* dB = A^-T dX; dA = -dB X^T, of A^T X = B its transpose. */
static fl_status grad_solve(fl_grad *g)
{
    fl_expr c = {0};
    bool transposed = g->attrs->at[FL_SQUARE_TRANSPOSED].integer != 0;
    fl_tensor *db = expr_solve(&c, g->in[SYSTEM_A].tensor, g->gout[0], !transposed), *x = g->out[0], *da = NULL;
    if (g->need[SYSTEM_A])
        da = expr_neg(&c, transposed ? expr_gemm(&c, x, db, false, true) : expr_gemm(&c, db, x, false, true));
    if (da) g->gin[SYSTEM_A] = fl_expr_take(&c, da);
    if (g->need[SYSTEM_B]) g->gin[SYSTEM_B] = fl_expr_take(&c, db);
    return fl_expr_end(&c);
}

FL_OP(linalg_solve_square) = {
    .name = "linalg_solve_square",
    .sig = "linalg_solve_square(A, B, transposed: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "X with A X = B, or A^T X = B, for matrices of the same batch.",
    .saves_in = 1u << SYSTEM_A,
    .saves_out = 1,
    .infer = infer_solve,
    .sbp = sbp_solve,
    .cpu = kernel_solve,
    .grad = grad_solve,
    FL_SAMPLES("flow.randn(2, 3, 3), flow.randn(2, 3, 2)", "flow.randn(3, 3), flow.randn(3, 2), true"),
};

fl_status fl_linalg_same_dtype(const char *who, const fl_tensor *a, const fl_tensor *b)
{
    if (a->meta->dtype == b->meta->dtype) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "%s: A is %s and B is %s; convert one of them", who, fl_dtype_name(a->meta->dtype),
                   fl_dtype_name(b->meta->dtype));
}

fl_status fl_linalg_batches(fl_shape *batch, const char *who, const fl_shape *a, const fl_shape *b)
{
    char ta[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    fl_shape own = fl_linalg_batch(a), other = fl_linalg_batch(b);
    if (fl_shape_broadcast(batch, who, &own, &other) == FL_OK) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: batch axes of A %s and B %s do not broadcast", who, fl_shape_text(ta, a),
                   fl_shape_text(tb, b));
}

/* B is a vector per matrix of A: as PyTorch has it, one axis, or exactly A's shape without its last axis. */
static bool is_vector(const fl_shape *a, const fl_shape *b)
{
    if (b->ndim == 1) return true;
    return b->ndim == a->ndim - 1 && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)b->ndim) == 0;
}

static fl_status check_system(const char *who, const fl_tensor *a, const fl_tensor *b, bool vector, bool left)
{
    char ta[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_shape *as = &a->meta->shape, *bs = &b->meta->shape;
    FL_TRY(fl_linalg_check(who, "A", a, true));
    FL_TRY(fl_linalg_same_dtype(who, a, b));
    if (vector && !left) return fl_fail(FL_ERR_SHAPE, "%s: with left = false B is a matrix, not a vector", who);
    if (!vector) FL_TRY(fl_linalg_check(who, "B", b, false));
    int64_t size = bs->dims[bs->ndim - (vector || !left ? 1 : 2)];
    if (size == fl_linalg_rows(as)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: A is %s and B is %s: %s of B must be %lld", who, fl_shape_text(ta, as),
                   fl_shape_text(tb, bs), left ? "rows" : "columns", (long long)fl_linalg_rows(as));
}

static fl_status body_solve(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_shape batch;
    fl_tensor *a = in[SYSTEM_A].tensor, *b = in[SYSTEM_B].tensor;
    bool vector = is_vector(&a->meta->shape, &b->meta->shape), left = attrs->at[SOLVE_LEFT].integer != 0;
    FL_TRY(check_system("linalg.solve", a, b, vector, left));
    if (vector) b = expr_column(&c, b);
    if (c.status == FL_OK) c.status = fl_linalg_batches(&batch, "linalg.solve", &a->meta->shape, &b->meta->shape);
    if (c.status != FL_OK) return fl_expr_end(&c);
    a = expr_batched(&c, a, &batch);
    b = expr_batched(&c, b, &batch);
    fl_tensor *x = left ? expr_solve(&c, a, b, false)
                        : expr_transposed(&c, expr_solve(&c, a, expr_transposed(&c, b), true));
    if (vector && c.status == FL_OK) x = expr_without_axis(&c, x, x->meta->shape.ndim - 1);
    *out = fl_expr_take(&c, x);
    return fl_expr_end(&c);
}

FL_OP(linalg_solve) = {
    .name = "linalg.solve",
    .sig = "linalg.solve(A, B, left: bool = true)",
    .nout = 1,
    .doc = "X with A X = B (left = false: X A = B) of square A; B holds matrices, or a vector for each matrix of A.",
    .body = body_solve,
    FL_SAMPLES("flow.randn(2, 3, 3), flow.randn(3, 2)", "flow.randn(3, 3), flow.randn(3)",
               "flow.randn(2, 3, 3), flow.randn(2, 3)", "flow.randn(3, 3), flow.randn(2, 3), false"),
};
