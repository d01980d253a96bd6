/*
** linalg_eigen.c -- eigenvalues and eigenvectors.
**
** Vectors have length 1 and are given up to their signs; gradients hold for losses that do not depend on the choice,
** and become infinite where values are equal, if vectors are used.
*/
#include "autograd/autograd.h"
#include "linalg.h"

enum { EIGEN_VALUES, EIGEN_VECTORS };
enum { EIGEN_UPLO }; /* of symmetric matrices: which half is read */

static fl_status infer_eigen(fl_infer *infer)
{
    FL_TRY(fl_linalg_require_square(infer, 0));
    fl_shape batch = fl_linalg_batch(&infer->in[0].shape);
    for (int i = 0; i < infer->nout; i++) infer->out[i] = infer->in[0];
    infer->out[EIGEN_VALUES].shape = fl_linalg_shape(&batch, fl_linalg_rows(&infer->in[0].shape), -1);
    return FL_OK;
}

static fl_status kernel_eigh(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, kernel->name, 0);
    job.choice = (int)kernel->attrs->at[EIGEN_UPLO].integer;
    return fl_linalg_run(kernel, &job, &fl_matrix_eigh, FL_MATRIX_NO_EIGENVALUES);
}

static fl_status kernel_eig(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, kernel->name, 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_eig, FL_MATRIX_NO_EIGENVALUES);
}

/* ---- gradients ---- */

/* values[j] - values[i] at [..., i, j], and 1 where i = j. */
static fl_tensor *differences(fl_expr *expr, fl_tensor *values)
{
    fl_tensor *all = expr_sub(expr, expr_row(expr, values), expr_column(expr, values));
    return expr_add(expr, all, expr_diagonal(expr, expr_ones(expr, values)));
}

/* x with zeros on the diagonal. */
static fl_tensor *off_diagonal(fl_expr *expr, fl_tensor *x)
{
    return expr_add(expr, expr_triangle(expr, x, true, -1), expr_triangle(expr, x, false, 1));
}

static fl_tensor *plus(fl_expr *expr, fl_tensor *x, fl_tensor *y) { return x ? expr_add(expr, x, y) : y; }

/* dA = V (skew(V^T dV) / E + diag(dL)) V^T with E[i, j] = L[j] - L[i] and skew(X) = (X - X^T) / 2: symmetric, as A. */
static fl_status grad_eigh(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *values = g->out[EIGEN_VALUES], *v = g->out[EIGEN_VECTORS], *core = NULL;
    if (!g->gout[EIGEN_VALUES] && !g->gout[EIGEN_VECTORS]) return FL_OK;
    if (g->gout[EIGEN_VECTORS]) {
        fl_tensor *along = expr_gemm(&c, v, g->gout[EIGEN_VECTORS], true, false);
        fl_tensor *turn = expr_mul_number(&c, expr_sub(&c, along, expr_transposed(&c, along)), 0.5);
        core = expr_div(&c, turn, differences(&c, values));
    }
    if (g->gout[EIGEN_VALUES]) core = plus(&c, core, expr_diagonal(&c, g->gout[EIGEN_VALUES]));
    g->gin[0] = fl_expr_take(&c, expr_gemm(&c, expr_gemm(&c, v, core, false, false), v, false, true));
    return fl_expr_end(&c);
}

/* dA = V^-T ((V^T dV - V^T V diag(V^T dV)) / E + diag(dL)) V^T: vectors keep their length. */
static fl_tensor *eig_gradient(fl_expr *expr, fl_tensor *values, fl_tensor *v, fl_tensor *dvalues, fl_tensor *dv)
{
    fl_tensor *core = NULL;
    if (dv) {
        fl_tensor *along = expr_gemm(expr, v, dv, true, false), *gram = expr_gemm(expr, v, v, true, false);
        fl_tensor *length = expr_mul(expr, gram, expr_row(expr, expr_diagonal_of(expr, along)));
        core = expr_div(expr, off_diagonal(expr, expr_sub(expr, along, length)), differences(expr, values));
    }
    if (dvalues) core = plus(expr, core, expr_diagonal(expr, dvalues));
    return expr_solve(expr, v, expr_gemm(expr, core, v, false, true), true);
}

static fl_status grad_eig(fl_grad *g)
{
    fl_expr c = {0};
    if (!g->gout[EIGEN_VALUES] && !g->gout[EIGEN_VECTORS]) return FL_OK;
    g->gin[0] = fl_expr_take(&c,
                             eig_gradient(&c, g->out[EIGEN_VALUES], g->out[EIGEN_VECTORS], g->gout[EIGEN_VALUES],
                                          g->gout[EIGEN_VECTORS]));
    return fl_expr_end(&c);
}

/* Of values alone: through vectors made now. */
static fl_status grad_eigvalsh(fl_grad *g)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(linalg_eigh));
    a.at[EIGEN_UPLO] = g->attrs->at[EIGEN_UPLO];
    EXPR_CALL(&c, &a, linalg_eigh, g->in[0]);
    fl_tensor *v = c.status == FL_OK ? c.owned[EIGEN_VECTORS] : NULL;
    fl_tensor *scaled = expr_mul(&c, v, c.status == FL_OK ? expr_row(&c, g->gout[0]) : NULL);
    g->gin[0] = fl_expr_take(&c, expr_gemm(&c, scaled, v, false, true));
    return fl_expr_end(&c);
}

/* As of eig, whose vectors are made now. */
static fl_status grad_eigvals(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *values = EXPR_CALL(&c, NULL, linalg_eig, g->in[0]);
    fl_tensor *v = c.status == FL_OK ? c.owned[EIGEN_VECTORS] : NULL;
    g->gin[0] = fl_expr_take(&c, eig_gradient(&c, values, v, g->gout[0], NULL));
    return fl_expr_end(&c);
}

/* ---- descriptors ---- */

#define SYMMETRIC "flow.eye(3) * flow.tensor({1.0, 2, 4}) + flow.full({2, 3, 3}, 0.3)"
/* not symmetric, of real eigenvalues */
#define REAL "flow.tensor {{2.0, 1}, {0.5, -1}}"

FL_OP(linalg_eigh) = {
    .name = "linalg.eigh",
    .sig = "linalg.eigh(A, UPLO: L|U = L)",
    .nout = 2,
    .doc = "Eigenvalues of symmetric matrices from the lowest up, and their vectors as columns; UPLO: the half of A "
           "that is read.",
    .saves_out = 1u << EIGEN_VALUES | 1u << EIGEN_VECTORS,
    .infer = infer_eigen,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_eigh,
    .grad = grad_eigh,
    FL_SAMPLES(SYMMETRIC, SYMMETRIC ", 'U'"),
};

FL_OP(linalg_eigvalsh) = {
    .name = "linalg.eigvalsh",
    .sig = "linalg.eigvalsh(A, UPLO: L|U = L)",
    .nout = 1,
    .doc = "Eigenvalues of symmetric matrices, from the lowest up; UPLO: the half of A that is read.",
    .saves_in = 1,
    .infer = infer_eigen,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_eigh,
    .grad = grad_eigvalsh,
    FL_SAMPLES(SYMMETRIC),
};

FL_OP(linalg_eig) = {
    .name = "linalg.eig",
    .sig = "linalg.eig(A)",
    .nout = 2,
    .flags = FL_OP_HOST_ONLY,
    .doc = "Eigenvalues of square matrices, in no order, and their vectors as columns; complex ones are an error.",
    .saves_out = 1u << EIGEN_VALUES | 1u << EIGEN_VECTORS,
    .infer = infer_eigen,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_eig,
    .grad = grad_eig,
    FL_SAMPLES(REAL),
};

FL_OP(linalg_eigvals) = {
    .name = "linalg.eigvals",
    .sig = "linalg.eigvals(A)",
    .nout = 1,
    .flags = FL_OP_HOST_ONLY,
    .doc = "Eigenvalues of square matrices, in no order; complex ones are an error.",
    .saves_in = 1,
    .infer = infer_eigen,
    .sbp = fl_linalg_sbp,
    .cpu = kernel_eig,
    .grad = grad_eigvals,
    FL_SAMPLES(REAL),
};
