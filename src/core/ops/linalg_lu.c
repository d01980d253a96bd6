/*
** linalg_lu.c -- LU factors with exchanged rows, as one packed matrix; linalg_lu.lua makes the functions of it.
*/
#include "autograd/autograd.h"
#include "linalg.h"
#include "op/indexing.h"

enum { LU_FACTORS, LU_ORDER, LU_PIVOTS, LU_INFO };

static fl_status infer_lu(fl_infer *infer)
{
    infer->name = "linalg.lu_factor";
    FL_TRY(fl_linalg_require(infer, 0));
    const fl_shape *a = &infer->in[0].shape;
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a);
    fl_shape batch = fl_linalg_batch(a);
    infer->out[LU_FACTORS] = infer->in[0];
    infer->out[LU_ORDER] = (fl_spec){FL_TENSOR, FL_INT64, fl_linalg_shape(&batch, m, -1)};
    infer->out[LU_PIVOTS] = (fl_spec){FL_TENSOR, FL_INT32, fl_linalg_shape(&batch, m < n ? m : n, -1)};
    infer->out[LU_INFO] = (fl_spec){FL_TENSOR, FL_INT32, batch};
    return FL_OK;
}

static void sbp_lu(fl_sigs *sigs)
{
    for (int axis = 0; axis < sigs->in[0].shape.ndim - 2; axis++)
        FL_SIG(sigs, NULL, FL_S(axis), FL_S(axis), FL_S(axis), FL_S(axis), FL_S(axis));
}

static fl_status kernel_lu(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.lu_factor", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_lu, "");
}

/* X with L^T X = x, where L has ones on its diagonal and the packed matrix below. */
static fl_tensor *solve_lower(fl_expr *expr, fl_tensor *packed, fl_tensor *x)
{
    return expr_solve_triangular(expr, expr_transposed(expr, expr_triangle(expr, packed, true, -1)), x, true, true,
                                 true);
}

/* X with X U^T = x. */
static fl_tensor *solve_upper(fl_expr *expr, fl_tensor *packed, fl_tensor *x)
{
    return expr_solve_triangular(expr, expr_transposed(expr, expr_triangle(expr, packed, false, 0)), x, false, false,
                                 false);
}

/* Of square A = L U: L^-T (lower(L^T dL) + upper(dU U^T)) U^-T, with dL below the diagonal. */
static fl_tensor *square_gradient(fl_expr *expr, fl_tensor *packed, fl_tensor *dl, fl_tensor *du)
{
    fl_tensor *below = expr_triangle(expr, packed, true, -1), *above = expr_triangle(expr, packed, false, 0);
    fl_tensor *lower = expr_add(expr, dl, expr_gemm(expr, below, dl, true, false));
    fl_tensor *upper = expr_gemm(expr, du, above, false, true);
    fl_tensor *inner = expr_add(expr, expr_triangle(expr, lower, true, -1), expr_triangle(expr, upper, false, 0));
    return solve_upper(expr, packed, solve_lower(expr, packed, inner));
}

static fl_tensor *strictly_lower(fl_expr *expr, fl_tensor *x) { return expr_triangle(expr, x, true, -1); }
static fl_tensor *upper_of(fl_expr *expr, fl_tensor *x) { return expr_triangle(expr, x, false, 0); }

/* More rows than columns, A = [L1; L2] U: dA2 = dL2 U^-T, and dU loses L2^T dA2. */
static fl_tensor *tall_gradient(fl_expr *expr, fl_tensor *packed, fl_tensor *g, int axis, int64_t m, int64_t n)
{
    fl_tensor *square = expr_narrowed(expr, packed, axis, 0, n), *dsquare = expr_narrowed(expr, g, axis, 0, n);
    fl_tensor *rest = expr_narrowed(expr, packed, axis, n, m - n), *drest = expr_narrowed(expr, g, axis, n, m - n);
    fl_tensor *da = solve_upper(expr, square, drest);
    fl_tensor *du = expr_sub(expr, dsquare, expr_gemm(expr, rest, da, true, false));
    fl_tensor *first = square_gradient(expr, square, strictly_lower(expr, dsquare), upper_of(expr, du));
    return expr_concatenated(expr, first, da, axis);
}

/* More columns, A = L [U1 U2]: dA2 = L^-T dU2, and dL loses dA2 U2^T. */
static fl_tensor *wide_gradient(fl_expr *expr, fl_tensor *packed, fl_tensor *g, int axis, int64_t m, int64_t n)
{
    fl_tensor *square = expr_narrowed(expr, packed, axis, 0, m), *dsquare = expr_narrowed(expr, g, axis, 0, m);
    fl_tensor *rest = expr_narrowed(expr, packed, axis, m, n - m), *drest = expr_narrowed(expr, g, axis, m, n - m);
    fl_tensor *da = solve_lower(expr, square, drest);
    fl_tensor *dl = expr_sub(expr, dsquare, expr_gemm(expr, da, rest, false, true));
    fl_tensor *first = square_gradient(expr, square, strictly_lower(expr, dl), upper_of(expr, dsquare));
    return expr_concatenated(expr, first, da, axis);
}

/* The gradient of A from that of its rows in another order. */
static fl_tensor *in_old_order(fl_expr *expr, fl_tensor *g, fl_tensor *order)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    const fl_shape *shape = &g->meta->shape;
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, shape->ndim - 2);
    fl_attr_set_list(&a, FL_GATHER_BACKWARD_SIZES, shape->dims, shape->ndim);
    fl_tensor *index = expr_expanded(expr, expr_column(expr, order), shape);
    return EXPR_CALL(expr, &a, gather_backward, fl_of(g), fl_of(index));
}

static fl_status grad_lu(fl_grad *grad)
{
    fl_expr c = {0};
    fl_tensor *packed = grad->out[LU_FACTORS], *g = grad->gout[LU_FACTORS];
    if (!g) return FL_OK;
    const fl_shape *a = &packed->meta->shape;
    int64_t m = fl_linalg_rows(a), n = fl_linalg_columns(a);
    fl_tensor *da = m > n ? tall_gradient(&c, packed, g, a->ndim - 2, m, n)
        : m < n           ? wide_gradient(&c, packed, g, a->ndim - 1, m, n)
                          : square_gradient(&c, packed, strictly_lower(&c, g), upper_of(&c, g));
    grad->gin[0] = fl_expr_take(&c, in_old_order(&c, da, grad->out[LU_ORDER]));
    return fl_expr_end(&c);
}

FL_OP(linalg_lu) = {
    .name = "linalg_lu",
    .sig = "linalg_lu(A)",
    .nout = 4,
    .flags = FL_OP_HIDDEN,
    .doc =
        "L below the diagonal and U of L U = A in another order of rows; that order; LAPACK's exchanges; a pivot of 0.",
    .saves_out = 1u << LU_FACTORS | 1u << LU_ORDER,
    .infer = infer_lu,
    .sbp = sbp_lu,
    .cpu = kernel_lu,
    .grad = grad_lu,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.randn(5, 3)", "flow.randn(2, 3, 4)"),
};
