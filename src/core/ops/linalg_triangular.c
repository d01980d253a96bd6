/*
** linalg_triangular.c -- Cholesky factors, and systems with triangular matrices.
*/
#include "autograd/autograd.h"
#include "linalg.h"

/* ---- Cholesky ---- */

enum { CHOLESKY_UPPER };

static fl_status kernel_cholesky(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, kernel->name, 0);
    job.choice = kernel->attrs->at[CHOLESKY_UPPER].integer != 0;
    job.unchecked = kernel->nout == 2;
    return fl_linalg_run(kernel, &job, &fl_matrix_cholesky, FL_MATRIX_NOT_POSITIVE);
}

/* With A = L L^T: dA = L^-T F L^-1, made symmetric, where F is the lower triangle of L^T dL with half its diagonal.
** (I. Murray, "Differentiation of the Cholesky decomposition", arXiv 1602.07527) */
static fl_status grad_cholesky(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *l = g->out[0], *dl = g->gout[0];
    if (!dl) return FL_OK;
    if (g->attrs->at[CHOLESKY_UPPER].integer) {
        l = expr_transposed(&c, l);
        dl = expr_transposed(&c, dl);
    }
    fl_tensor *product = expr_gemm(&c, l, dl, true, false);
    fl_tensor *twice = expr_add(&c, expr_triangle(&c, product, true, 0), expr_triangle(&c, product, true, -1));
    fl_tensor *half = expr_solve_triangular(&c, expr_transposed(&c, l), twice, true, true, false);
    fl_tensor *whole = expr_solve_triangular(&c, l, half, false, false, false);
    g->gin[0] = fl_expr_take(&c, expr_mul_number(&c, expr_add(&c, whole, expr_transposed(&c, whole)), 0.25));
    return fl_expr_end(&c);
}

#define POSITIVE "flow.eye(3) * 3 + flow.full({2, 3, 3}, 0.5)"

FL_OP(linalg_cholesky) = {
    .name = "linalg.cholesky",
    .sig = "linalg.cholesky(A, upper: bool = false)",
    .nout = 1,
    .doc = "L with A = L L^T of symmetric positive-definite A, lower triangular; upper = true: its transpose.",
    .saves_out = 1,
    .infer = fl_linalg_infer_square,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_cholesky,
    .grad = grad_cholesky,
    FL_SAMPLES(POSITIVE, POSITIVE ", true"),
};

FL_OP(linalg_cholesky_ex) = {
    .name = "linalg.cholesky_ex",
    .sig = "linalg.cholesky_ex(A, upper: bool = false)",
    .nout = 2,
    .doc = "As linalg.cholesky without its error: the second result is the order of the first leading minor that is "
           "not positive, or 0.",
    .saves_out = 1,
    .infer = fl_linalg_infer_square,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_cholesky,
    .grad = grad_cholesky,
    FL_SAMPLES(POSITIVE),
};

/* ---- triangular systems ---- */

enum { TRIANGLE_A, TRIANGLE_B };

static fl_status infer_triangles(fl_infer *infer)
{
    infer->name = "linalg.solve_triangular";
    FL_TRY(fl_linalg_require_square(infer, TRIANGLE_A));
    FL_TRY(fl_linalg_require(infer, TRIANGLE_B));
    infer->out[0] = infer->in[TRIANGLE_B];
    return FL_OK;
}

/* Columns of B (rows, of X A = B) are solutions of their own, and linear in B. */
static void sbp_triangles(fl_sigs *sigs)
{
    int own = sigs->in[TRIANGLE_B].shape.ndim - (sigs->attrs->at[FL_TRIANGLE_LEFT].integer ? 1 : 2);
    fl_linalg_sbp(sigs);
    FL_SIG(sigs, NULL, FL_B, FL_S(own), FL_S(own));
    fl_sbp_partial(sigs, 1u << TRIANGLE_B, FL_PSUM);
}

static fl_status kernel_triangles(fl_kernel *kernel)
{
    const fl_view *b = &kernel->in[TRIANGLE_B];
    bool left = kernel->attrs->at[FL_TRIANGLE_LEFT].integer != 0;
    int64_t others = b->size[b->ndim - (left ? 1 : 2)];
    fl_matrices job = fl_linalg_job(kernel, "linalg.solve_triangular", others);
    job.m = job.k; /* routine's name for it */
    job.choice = kernel->attrs->at[FL_TRIANGLE_UPPER].integer != 0;
    job.left = left;
    job.unit = kernel->attrs->at[FL_TRIANGLE_UNIT].integer != 0;
    return fl_linalg_run(kernel, &job, &fl_matrix_triangular, "");
}

/* dB solves the transposed system; dA is the triangle of -dB X^T, of X A = B that of -X^T dB. */
static fl_status grad_triangles(fl_grad *g)
{
    fl_expr c = {0};
    bool upper = g->attrs->at[FL_TRIANGLE_UPPER].integer != 0, left = g->attrs->at[FL_TRIANGLE_LEFT].integer != 0,
         unit = g->attrs->at[FL_TRIANGLE_UNIT].integer != 0;
    fl_tensor *a = g->in[TRIANGLE_A].tensor, *x = g->out[0], *da = NULL;
    fl_tensor *db = expr_solve_triangular(&c, expr_transposed(&c, a), g->gout[0], !upper, left, unit);
    if (g->need[TRIANGLE_A]) {
        fl_tensor *product = left ? expr_gemm(&c, db, x, false, true) : expr_gemm(&c, x, db, true, false);
        da = expr_neg(&c, expr_triangle(&c, product, !upper, unit ? (upper ? 1 : -1) : 0));
    }
    if (da) g->gin[TRIANGLE_A] = fl_expr_take(&c, da);
    if (g->need[TRIANGLE_B]) g->gin[TRIANGLE_B] = fl_expr_take(&c, db);
    return fl_expr_end(&c);
}

#define TRIANGLES "flow.eye(3) * 2 + flow.full({2, 3, 3}, 0.5)"

FL_OP(linalg_triangles) = {
    .name = "linalg_triangles",
    .sig = "linalg_triangles(A, B, upper: bool, left: bool = true, unitriangular: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "X with A X = B, or X A = B, for triangular matrices of the same batch.",
    .saves_in = 1u << TRIANGLE_A,
    .saves_out = 1,
    .infer = infer_triangles,
    .sbp = sbp_triangles,
    .cpu = kernel_triangles,
    .grad = grad_triangles,
    FL_SAMPLES(TRIANGLES ", flow.randn(2, 3, 2), true", TRIANGLES ", flow.randn(2, 2, 3), false, false, true"),
};

static fl_status check_triangular(const char *who, const fl_tensor *a, const fl_tensor *b, bool left)
{
    char ta[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_shape *as = &a->meta->shape, *bs = &b->meta->shape;
    FL_TRY(fl_linalg_check(who, "A", a, true));
    FL_TRY(fl_linalg_check(who, "B", b, false));
    FL_TRY(fl_linalg_same_dtype(who, a, b));
    if ((left ? fl_linalg_rows(bs) : fl_linalg_columns(bs)) == fl_linalg_rows(as)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: A is %s and B is %s: %s of B must be %lld", who, fl_shape_text(ta, as),
                   fl_shape_text(tb, bs), left ? "rows" : "columns", (long long)fl_linalg_rows(as));
}

/* The solution with batches that broadcast; transposed: with A^T. */
static fl_tensor *solve_broadcast(fl_expr *expr, const char *who, fl_tensor *a, fl_tensor *b, const bool upper,
                                  bool left, bool unit, bool transposed)
{
    fl_shape batch;
    if (expr->status == FL_OK) expr->status = fl_linalg_batches(&batch, who, &a->meta->shape, &b->meta->shape);
    if (expr->status != FL_OK) return NULL;
    if (transposed) a = expr_transposed(expr, a);
    return expr_solve_triangular(expr, expr_batched(expr, a, &batch), expr_batched(expr, b, &batch),
                                 transposed ? !upper : upper, left, unit);
}

static fl_status body_solve_triangular(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    static const char who[] = "linalg.solve_triangular";
    fl_expr c = {0};
    fl_tensor *a = in[TRIANGLE_A].tensor, *b = in[TRIANGLE_B].tensor;
    bool left = attrs->at[FL_TRIANGLE_LEFT].integer != 0;
    FL_TRY(check_triangular(who, a, b, left));
    *out = fl_expr_take(&c,
                        solve_broadcast(&c, who, a, b, attrs->at[FL_TRIANGLE_UPPER].integer != 0, left,
                                        attrs->at[FL_TRIANGLE_UNIT].integer != 0, false));
    return fl_expr_end(&c);
}

FL_OP(linalg_solve_triangular) = {
    .name = "linalg.solve_triangular",
    .sig = "linalg.solve_triangular(A, B, upper: bool, left: bool = true, unitriangular: bool = false)",
    .nout = 1,
    .doc = "X with A X = B (left = false: X A = B) of triangular A, whose other triangle is not read.",
    .body = body_solve_triangular,
    FL_SAMPLES(TRIANGLES ", flow.randn(3, 2), true", TRIANGLES ", flow.randn(2, 3), {upper = false, left = false}"),
};

enum { OLD_UPPER, OLD_TRANSPOSE, OLD_UNIT }; /* of triangular_solve */

static fl_status body_triangular_solve(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    static const char who[] = "triangular_solve";
    fl_expr c = {0};
    fl_tensor *b = in[0].tensor, *a = in[1].tensor;
    FL_TRY(check_triangular(who, a, b, true));
    fl_tensor *x = solve_broadcast(&c, who, a, b, attrs->at[OLD_UPPER].integer != 0, true,
                                   attrs->at[OLD_UNIT].integer != 0, attrs->at[OLD_TRANSPOSE].integer != 0);
    fl_shape batch = {0};
    if (c.status == FL_OK) batch = fl_linalg_batch(&x->meta->shape);
    fl_tensor *copy = EXPR_CALL(&c, NULL, clone, fl_of(expr_batched(&c, a, &batch)));
    out[0] = fl_expr_take(&c, x);
    out[1] = fl_expr_take(&c, copy);
    return fl_expr_end(&c);
}

FL_OP(triangular_solve) = {
    .name = "triangular_solve",
    .sig = "triangular_solve(b, A, upper: bool = true, transpose: bool = false, unitriangular: bool = false)",
    .nout = 2,
    .doc = "X with A X = b of triangular A, and a copy of A; transpose: of A^T X = b. See linalg.solve_triangular.",
    .body = body_triangular_solve,
    FL_SAMPLES("flow.randn(3, 2), " TRIANGLES, "flow.randn(2, 3, 2), " TRIANGLES ", false, true"),
};

/* ---- solving with Cholesky factors ---- */

enum { FACTORED_UPPER };

static fl_status body_cholesky_solve(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    static const char who[] = "cholesky_solve";
    fl_expr c = {0};
    bool upper = attrs->at[FACTORED_UPPER].integer != 0;
    fl_tensor *b = in[0].tensor, *l = in[1].tensor;
    FL_TRY(check_triangular(who, l, b, true));
    fl_tensor *y = solve_broadcast(&c, who, l, b, upper, true, false, upper);
    *out = fl_expr_take(&c, solve_broadcast(&c, who, l, y, upper, true, false, !upper));
    return fl_expr_end(&c);
}

FL_OP(cholesky_solve) = {
    .name = "cholesky_solve",
    .sig = "cholesky_solve(B, L, upper: bool = false)",
    .nout = 1,
    .doc = "X with L L^T X = B of a Cholesky factor L; upper = true: the factor is the upper one.",
    .body = body_cholesky_solve,
    FL_SAMPLES("flow.randn(3, 2), " TRIANGLES, "flow.randn(2, 3, 2), " TRIANGLES ", true"),
};

static fl_status body_cholesky_inverse(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    static const char who[] = "cholesky_inverse";
    fl_expr c = {0};
    bool upper = attrs->at[FACTORED_UPPER].integer != 0;
    fl_tensor *l = in[0].tensor;
    FL_TRY(fl_linalg_check(who, "L", l, true));
    fl_tensor *identity = expr_diagonal(&c, expr_ones(&c, expr_diagonal_of(&c, l)));
    fl_tensor *y = solve_broadcast(&c, who, l, identity, upper, true, false, upper);
    *out = fl_expr_take(&c, solve_broadcast(&c, who, l, y, upper, true, false, !upper));
    return fl_expr_end(&c);
}

FL_OP(cholesky_inverse) = {
    .name = "cholesky_inverse",
    .sig = "cholesky_inverse(L, upper: bool = false)",
    .nout = 1,
    .doc = "The inverse of A from its Cholesky factor.",
    .body = body_cholesky_inverse,
    FL_SAMPLES(TRIANGLES),
};
