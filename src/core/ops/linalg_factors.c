/*
** linalg_factors.c -- QR and LU factors, and the exponential of a matrix.
*/
#include "autograd/autograd.h"
#include "linalg.h"

/* ---- qr ---- */

enum { QR_Q, QR_R };
enum { QR_MODE };
enum { MODE_REDUCED, MODE_COMPLETE, MODE_R };

static int64_t columns_of_q(const fl_shape *a, int64_t mode)
{
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a);
    return mode == MODE_COMPLETE || m < n ? m : n;
}

static fl_status infer_qr(fl_infer *infer)
{
    FL_TRY(fl_linalg_require(infer, 0));
    const fl_shape *a = &infer->in[0].shape;
    int64_t mode = infer->attrs->at[QR_MODE].integer, k = columns_of_q(a, mode);
    fl_shape batch = fl_linalg_batch(a);
    infer->out[QR_Q] = infer->out[QR_R] = infer->in[0];
    infer->out[QR_Q].shape = mode == MODE_R ? (fl_shape){1, {0}} : fl_linalg_shape(&batch, fl_linalg_rows(a), k);
    infer->out[QR_R].shape = fl_linalg_shape(&batch, k, fl_linalg_columns(a));
    return FL_OK;
}

/* Without Q its empty tensor is whole everywhere. */
static void sbp_qr(fl_sigs *sigs)
{
    bool with_q = sigs->attrs->at[QR_MODE].integer != MODE_R;
    for (int axis = 0; axis < sigs->in[0].shape.ndim - 2; axis++)
        FL_SIG(sigs, NULL, FL_S(axis), with_q ? FL_S(axis) : FL_B, FL_S(axis));
}

static fl_status kernel_qr(fl_kernel *kernel)
{
    const fl_view *r = &kernel->out[QR_R];
    fl_matrices job = fl_linalg_job(kernel, "linalg.qr", r->size[r->ndim - 2]);
    job.choice = kernel->attrs->at[QR_MODE].integer == MODE_R;
    return fl_linalg_run(kernel, &job, &fl_matrix_qr, "");
}

static fl_tensor *plus(fl_expr *expr, fl_tensor *x, fl_tensor *y) { return !x ? y : y ? expr_add(expr, x, y) : x; }

/* Of as many columns as R has rows, or fewer: (dQ + Q sym(triu(dR R^T - Q^T dQ))) R^-T, where sym takes a triangle to
** the symmetric matrix. dq or dr may be NULL. */
static fl_tensor *tall_gradient(fl_expr *expr, fl_tensor *q, fl_tensor *r, fl_tensor *dq, fl_tensor *dr)
{
    fl_tensor *inner = dr ? expr_gemm(expr, dr, r, false, true) : NULL;
    if (dq) inner = plus(expr, inner, expr_neg(expr, expr_gemm(expr, q, dq, true, false)));
    fl_tensor *above = expr_transposed(expr, expr_triangle(expr, inner, false, 1));
    fl_tensor *symmetric = expr_add(expr, expr_triangle(expr, inner, false, 0), above);
    fl_tensor *all = plus(expr, dq, expr_gemm(expr, q, symmetric, false, false));
    return expr_solve_triangular(expr, expr_transposed(expr, r), all, false, false, false);
}

/* A = [A1 A2] with square A1 = Q R1 and R2 = Q^T A2: dA2 = Q dR2, and dQ gets A2 dR2^T. */
static fl_tensor *wide_gradient(fl_expr *expr, fl_tensor *q, fl_tensor *r, fl_tensor *dq, fl_tensor *dr)
{
    int last = r->meta->shape.ndim - 1;
    int64_t m = fl_linalg_rows(&r->meta->shape), n = fl_linalg_columns(&r->meta->shape);
    if (!dr) dr = expr_zeros(expr, r);
    fl_tensor *r1 = expr_narrowed(expr, r, last, 0, m), *r2 = expr_narrowed(expr, r, last, m, n - m);
    fl_tensor *dr1 = expr_narrowed(expr, dr, last, 0, m), *dr2 = expr_narrowed(expr, dr, last, m, n - m);
    dq = plus(expr, dq, expr_gemm(expr, q, expr_gemm(expr, r2, dr2, false, true), false, false));
    return expr_concatenated(expr, tall_gradient(expr, q, r1, dq, dr1), expr_gemm(expr, q, dr2, false, false), last);
}

static fl_status grad_qr(fl_grad *g)
{
    fl_expr c = {0};
    const fl_shape *a = &g->in_meta[0]->shape;
    int64_t mode = g->attrs->at[QR_MODE].integer, m = fl_linalg_rows(a), n = fl_linalg_columns(a);
    fl_tensor *dq = g->gout[QR_Q], *dr = g->gout[QR_R];
    if (mode == MODE_R)
        return fl_fail(FL_ERR_VALUE, "linalg.qr: its gradient needs Q, which mode \"r\" does not compute");
    if (mode == MODE_COMPLETE && m > n)
        return fl_fail(FL_ERR_VALUE,
                       "linalg.qr: mode \"complete\" has no gradient for more rows than columns; write "
                       "mode = \"reduced\"");
    if (!dq && !dr) return FL_OK;
    fl_tensor *da = m >= n ? tall_gradient(&c, g->out[QR_Q], g->out[QR_R], dq, dr)
                           : wide_gradient(&c, g->out[QR_Q], g->out[QR_R], dq, dr);
    g->gin[0] = fl_expr_take(&c, da);
    return fl_expr_end(&c);
}

FL_OP(linalg_qr) = {
    .name = "linalg.qr",
    .sig = "linalg.qr(A, mode: reduced|complete|r = reduced)",
    .nout = 2,
    .doc = "Q with orthonormal columns and upper triangular R with A = Q R; complete: square Q; r: only R, Q is empty.",
    .saves_out = 1u << QR_Q | 1u << QR_R,
    .infer = infer_qr,
    .sbp = sbp_qr,
    .cpu = kernel_qr,
    .grad = grad_qr,
    FL_SAMPLES("flow.randn(2, 4, 3)", "flow.randn(2, 3), 'complete'"),
};

enum { OLD_QR_SOME };

static fl_status body_qr(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(linalg_qr));
    fl_attr_set(&a, QR_MODE, attrs->at[OLD_QR_SOME].integer ? MODE_REDUCED : MODE_COMPLETE);
    FL_TRY(fl_linalg_check("qr", "A", in[0].tensor, false));
    return fl_dispatch(out, FL_OP_REF(linalg_qr), in, nin, &a);
}

FL_OP(qr) = {
    .name = "qr",
    .sig = "qr(A, some: bool = true)",
    .nout = 2,
    .doc = "Q and R with A = Q R; some = false: with square Q. linalg.qr has more modes.",
    .body = body_qr,
    FL_SAMPLES("flow.randn(4, 3)"),
};

/* ---- geqrf ---- */

enum { REFLECTIONS_A, REFLECTIONS_TAU };

static fl_status infer_reflections(fl_infer *infer)
{
    infer->name = "geqrf";
    FL_TRY(fl_linalg_require(infer, 0));
    const fl_shape *a = &infer->in[0].shape;
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a);
    fl_shape batch = fl_linalg_batch(a);
    infer->out[REFLECTIONS_A] = infer->out[REFLECTIONS_TAU] = infer->in[0];
    infer->out[REFLECTIONS_TAU].shape = fl_linalg_shape(&batch, m < n ? m : n, -1);
    return FL_OK;
}

static void sbp_reflections(fl_sigs *sigs)
{
    for (int axis = 0; axis < sigs->in[0].shape.ndim - 2; axis++)
        FL_SIG(sigs, NULL, FL_S(axis), FL_S(axis), FL_S(axis));
}

static fl_status kernel_reflections(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "geqrf", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_reflections, "");
}

FL_OP(linalg_geqrf) = {
    .name = "linalg_geqrf",
    .sig = "linalg_geqrf(A)",
    .nout = 2,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "QR factors as LAPACK leaves them: R in the upper triangle, below it the vectors of reflections, and their "
           "tau. "
           "linalg_factors.lua makes the function of it.",
    .infer = infer_reflections,
    .sbp = sbp_reflections,
    .cpu = kernel_reflections,
    FL_SAMPLES("flow.randn(2, 4, 3)", "flow.randn(2, 3)"),
};

/* ---- matrix_exp ---- */

static fl_status infer_exponential(fl_infer *infer)
{
    FL_TRY(fl_linalg_require_square(infer, 0));
    return fl_infer_same(infer);
}

static fl_status kernel_exponential(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.matrix_exp", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_exponential, "");
}

/* The upper right block of exp([[A^T, G], [0, A^T]]) (R. Mathias, "A chain rule for matrix functions", 1996). */
static fl_status grad_exponential(fl_grad *g)
{
    fl_expr c = {0};
    int last = g->in_meta[0]->shape.ndim - 1;
    int64_t n = fl_linalg_rows(&g->in_meta[0]->shape);
    fl_tensor *a = expr_transposed(&c, g->in[0].tensor);
    fl_tensor *upper = expr_concatenated(&c, a, g->gout[0], last);
    fl_tensor *lower = expr_concatenated(&c, expr_zeros(&c, a), a, last);
    fl_tensor *whole = EXPR_CALL(&c, NULL, linalg_matrix_exp, fl_of(expr_concatenated(&c, upper, lower, last - 1)));
    g->gin[0] = fl_expr_take(&c, expr_narrowed(&c, expr_narrowed(&c, whole, last - 1, 0, n), last, n, n));
    return fl_expr_end(&c);
}

FL_OP(linalg_matrix_exp) = {
    .name = "linalg.matrix_exp",
    .sig = "linalg.matrix_exp(A)",
    .nout = 1,
    .flags = FL_OP_HOST_ONLY,
    .doc = "Exponential of square matrices: I + A + A^2 / 2 + A^3 / 6 + ...",
    .saves_in = 1,
    .infer = infer_exponential,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_exponential,
    .grad = grad_exponential,
    FL_SAMPLES("flow.randn(2, 3, 3)"),
};
