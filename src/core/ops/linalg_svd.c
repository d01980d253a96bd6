/*
** linalg_svd.c -- singular values and vectors.
**
** Vectors are given up to their signs (of equal values, up to a rotation); gradients hold for losses that do not depend
** on the choice, and become infinite where values are equal, if vectors are used.
*/
#include "autograd/autograd.h"
#include "linalg.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Ones on the diagonal of [..., n, n], where x is [..., n]. */
static fl_tensor *identity_like(fl_expr *expr, fl_tensor *x) { return expr_diagonal(expr, expr_ones(expr, x)); }

/* x[j] - x[i] at [..., i, j], and 1 where i = j. */
static fl_tensor *differences(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *all = expr_sub(expr, expr_row(expr, x), expr_column(expr, x));
    return expr_add(expr, all, identity_like(expr, x));
}

/* ---- svd ---- */

enum { SVD_U, SVD_S, SVD_VT };
enum { SVD_FULL_MATRICES };

static fl_status infer_svd(fl_infer *infer)
{
    FL_TRY(fl_linalg_require(infer, 0));
    const fl_shape *a = &infer->in[0].shape;
    bool full = infer->attrs->at[SVD_FULL_MATRICES].integer != 0;
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a), k = smaller(m, n);
    fl_shape batch = fl_linalg_batch(a);
    for (int i = 0; i < 3; i++) infer->out[i] = infer->in[0];
    infer->out[SVD_U].shape = fl_linalg_shape(&batch, m, full ? m : k);
    infer->out[SVD_S].shape = fl_linalg_shape(&batch, k, -1);
    infer->out[SVD_VT].shape = fl_linalg_shape(&batch, full ? n : k, n);
    return FL_OK;
}

static fl_status kernel_svd(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.svd", 0);
    job.choice = kernel->attrs->at[SVD_FULL_MATRICES].integer ? 0 : 1;
    return fl_linalg_run(kernel, &job, &fl_matrix_svd, FL_MATRIX_NO_DECOMPOSITION);
}

/* The operands of the gradient: U [m, k], V^T [k, n], and their gradients or NULL. */
struct svd {
    fl_tensor *u, *s, *vt, *du, *ds, *dvt;
    int64_t m, n, k;
};

/* x - x^T */
static fl_tensor *skew(fl_expr *expr, fl_tensor *x) { return expr_sub(expr, x, expr_transposed(expr, x)); }

static fl_tensor *plus(fl_expr *expr, fl_tensor *x, fl_tensor *y) { return x ? expr_add(expr, x, y) : y; }

/* U^T dA V: (skew(U^T dU) / E) S + S (skew(V^T dV) / E) + dS with E[i, j] = S[j]^2 - S[i]^2. */
static fl_tensor *svd_core(fl_expr *expr, const struct svd *svd)
{
    fl_tensor *core = NULL;
    fl_tensor *e = svd->du || svd->dvt ? differences(expr, expr_mul(expr, svd->s, svd->s)) : NULL;
    if (svd->du) {
        fl_tensor *turn = expr_div(expr, skew(expr, expr_gemm(expr, svd->u, svd->du, true, false)), e);
        core = expr_mul(expr, turn, expr_row(expr, svd->s));
    }
    if (svd->dvt) {
        fl_tensor *turn = expr_div(expr, skew(expr, expr_gemm(expr, svd->vt, svd->dvt, false, true)), e);
        core = plus(expr, core, expr_mul(expr, expr_column(expr, svd->s), turn));
    }
    return svd->ds ? plus(expr, core, expr_diagonal(expr, svd->ds)) : core;
}

/* dA = U core V^T, and what leaves the spaces of U and V: (I - U U^T) dU S^-1 V^T, U S^-1 dV^T (I - V V^T). */
static fl_tensor *svd_gradient(fl_expr *expr, const struct svd *svd)
{
    fl_tensor *da = expr_gemm(expr, expr_gemm(expr, svd->u, svd_core(expr, svd), false, false), svd->vt, false, false);
    if (svd->m > svd->k && svd->du) {
        fl_tensor *scaled = expr_div(expr, svd->du, expr_row(expr, svd->s));
        fl_tensor *inside = expr_gemm(expr, svd->u, expr_gemm(expr, svd->u, scaled, true, false), false, false);
        da = expr_add(expr, da, expr_gemm(expr, expr_sub(expr, scaled, inside), svd->vt, false, false));
    }
    if (svd->n > svd->k && svd->dvt) {
        fl_tensor *scaled = expr_div(expr, svd->dvt, expr_column(expr, svd->s));
        fl_tensor *inside = expr_gemm(expr, expr_gemm(expr, scaled, svd->vt, false, true), svd->vt, false, false);
        da = expr_add(expr, da, expr_gemm(expr, svd->u, expr_sub(expr, scaled, inside), false, false));
    }
    return da;
}

/* The first k columns or rows of a factor, NULL of none; those that full_matrices adds have no gradient. */
static fl_tensor *first_of(fl_expr *expr, fl_tensor *x, bool columns, int64_t k)
{
    if (!x || expr->status != FL_OK) return NULL;
    int axis = x->meta->shape.ndim - (columns ? 1 : 2);
    return x->meta->shape.dims[axis] == k ? x : expr_narrowed(expr, x, axis, 0, k);
}

static fl_status grad_svd(fl_grad *g)
{
    fl_expr c = {0};
    const fl_shape *a = &g->in_meta[0]->shape;
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a), k = smaller(m, n);
    struct svd d = {.m = m, .n = n, .k = k, .s = g->out[SVD_S], .ds = g->gout[SVD_S]};
    d.u = first_of(&c, g->out[SVD_U], true, k);
    d.du = first_of(&c, g->gout[SVD_U], true, k);
    d.vt = first_of(&c, g->out[SVD_VT], false, k);
    d.dvt = first_of(&c, g->gout[SVD_VT], false, k);
    if (d.du || d.ds || d.dvt) g->gin[0] = fl_expr_take(&c, svd_gradient(&c, &d));
    return fl_expr_end(&c);
}

FL_OP(linalg_svd) = {
    .name = "linalg.svd",
    .sig = "linalg.svd(A, full_matrices: bool = true)",
    .nout = 3,
    .doc = "U, S and V^T with A = U diag(S) V^T, singular values from the largest down; full_matrices = false: only "
           "the min(m, n) columns of U and rows of V^T that have one.",
    .saves_out = 1u << SVD_U | 1u << SVD_S | 1u << SVD_VT,
    .infer = infer_svd,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_svd,
    .grad = grad_svd,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.randn(4, 2), false", "flow.randn(2, 4), false"),
};

static fl_status infer_svdvals(fl_infer *infer)
{
    FL_TRY(fl_linalg_require(infer, 0));
    fl_shape batch = fl_linalg_batch(&infer->in[0].shape);
    infer->out[0] = infer->in[0];
    infer->out[0].shape = fl_linalg_shape(
        &batch, smaller(fl_linalg_rows(&infer->in[0].shape), fl_linalg_columns(&infer->in[0].shape)), -1);
    return FL_OK;
}

static fl_status kernel_svdvals(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.svdvals", 0);
    job.choice = 2;
    return fl_linalg_run(kernel, &job, &fl_matrix_svd, FL_MATRIX_NO_DECOMPOSITION);
}

fl_tensor *expr_values_gradient(fl_expr *expr, fl_tensor *a, fl_tensor *ds)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(linalg_svd));
    fl_attr_set(&attrs, SVD_FULL_MATRICES, false);
    int first = expr->count;
    fl_tensor *u = EXPR_CALL(expr, &attrs, linalg_svd, fl_of(a));
    if (expr->status != FL_OK) return NULL;
    return expr_gemm(expr, expr_mul(expr, u, expr_row(expr, ds)), expr->owned[first + SVD_VT], false, false);
}

/* dA = U diag(dS) V^T, with vectors that are made now. */
static fl_status grad_svdvals(fl_grad *g)
{
    fl_expr c = {0};
    g->gin[0] = fl_expr_take(&c, expr_values_gradient(&c, g->in[0].tensor, g->gout[0]));
    return fl_expr_end(&c);
}

FL_OP(linalg_svdvals) = {
    .name = "linalg.svdvals",
    .sig = "linalg.svdvals(A)",
    .nout = 1,
    .doc = "Singular values of matrices, from the largest down.",
    .saves_in = 1,
    .infer = infer_svdvals,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_svdvals,
    .grad = grad_svdvals,
    FL_SAMPLES("flow.randn(2, 3, 4)"),
};

/* As PyTorch's older function: V itself, reduced by default. */
enum { OLD_SVD_SOME };

static fl_status body_svd(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    FL_TRY(fl_linalg_check("svd", "A", in[0].tensor, false));
    fl_attrs_init(&a, FL_OP_REF(linalg_svd));
    fl_attr_set(&a, SVD_FULL_MATRICES, !attrs->at[OLD_SVD_SOME].integer);
    fl_tensor *u = EXPR_CALL(&c, &a, linalg_svd, in[0]);
    fl_tensor *v = c.status == FL_OK ? expr_transposed(&c, c.owned[SVD_VT]) : NULL;
    for (int i = 0; i < 3; i++)
        out[i] = fl_expr_take(&c, i == SVD_U ? u : i == SVD_S && c.status == FL_OK ? c.owned[SVD_S] : v);
    return fl_expr_end(&c);
}

FL_OP(svd) = {
    .name = "svd",
    .sig = "svd(A, some: bool = true)",
    .nout = 3,
    .doc = "U, S and V with A = U diag(S) V^T; some = false: with square U and V. linalg.svd gives V^T.",
    .body = body_svd,
    FL_SAMPLES("flow.randn(3, 2)"),
};
