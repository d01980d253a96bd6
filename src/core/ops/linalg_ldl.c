/*
** linalg_ldl.c -- L D L^T factors of symmetric matrices as one packed matrix, and systems with them;
** linalg_factors.lua makes the functions of them.
*/
#include "autograd/autograd.h"
#include "linalg.h"

/* ---- factors ---- */

enum { LDL_FACTORS, LDL_PIVOTS, LDL_INFO };

static fl_status infer_ldl(fl_infer *infer)
{
    infer->name = "linalg.ldl_factor";
    FL_TRY(fl_linalg_require_square(infer, 0));
    fl_shape batch = fl_linalg_batch(&infer->in[0].shape);
    infer->out[LDL_FACTORS] = infer->in[0];
    infer->out[LDL_PIVOTS] = (fl_spec){FL_TENSOR, FL_INT32,
                                       fl_linalg_shape(&batch, fl_linalg_rows(&infer->in[0].shape), -1)};
    infer->out[LDL_INFO] = (fl_spec){FL_TENSOR, FL_INT32, batch};
    return FL_OK;
}

static void sbp_ldl(fl_sigs *sigs)
{
    for (int axis = 0; axis < sigs->in[0].shape.ndim - 2; axis++)
        FL_SIG(sigs, NULL, FL_S(axis), FL_S(axis), FL_S(axis), FL_S(axis));
}

static fl_status kernel_ldl(fl_kernel *kernel)
{
    fl_matrices job = fl_linalg_job(kernel, "linalg.ldl_factor", 0);
    return fl_linalg_run(kernel, &job, &fl_matrix_ldl, "");
}

FL_OP(linalg_ldl) = {
    .name = "linalg_ldl",
    .sig = "linalg_ldl(A)",
    .nout = 3,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY | FL_OP_NO_GRAD,
    .doc =
        "L and D of P L D L^T P^T = A, of which the lower half is read, as LAPACK's sytrf packs them; its exchanges; "
        "the first block of D that is 0.",
    .infer = infer_ldl,
    .sbp = sbp_ldl,
    .cpu = kernel_ldl,
    FL_SAMPLES("flow.randn(2, 3, 3)", "flow.eye(4)"),
};

/* ---- systems ---- */

enum { SOLVE_LD, SOLVE_PIVOTS, SOLVE_B };

static fl_status infer_solve(fl_infer *infer)
{
    char ta[FL_SHAPE_TEXT], tp[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
    const fl_spec *in = infer->in;
    infer->name = "linalg.ldl_solve";
    FL_TRY(fl_linalg_require_square(infer, SOLVE_LD));
    FL_TRY(fl_linalg_require(infer, SOLVE_B));
    fl_dtype pivot = in[SOLVE_PIVOTS].dtype;
    if (fl_dtype_is_float(pivot) || pivot == FL_BOOL || in[SOLVE_LD].dtype != in[SOLVE_B].dtype)
        return fl_infer_fail(infer, FL_ERR_DTYPE,
                             "LD and B must have one dtype and pivots be integers, they are %s, %s and %s",
                             fl_dtype_name(in[SOLVE_LD].dtype), fl_dtype_name(in[SOLVE_B].dtype), fl_dtype_name(pivot));
    fl_shape batch = fl_linalg_batch(&in[SOLVE_LD].shape), others = fl_linalg_batch(&in[SOLVE_B].shape);
    int64_t n = fl_linalg_rows(&in[SOLVE_LD].shape);
    fl_shape pivots = fl_linalg_shape(&batch, n, -1);
    if (!fl_shape_equal(&batch, &others) || !fl_shape_equal(&pivots, &in[SOLVE_PIVOTS].shape)
        || fl_linalg_rows(&in[SOLVE_B].shape) != n)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "LD %s, pivots %s and B %s do not fit",
                             fl_shape_text(ta, &in[SOLVE_LD].shape), fl_shape_text(tp, &in[SOLVE_PIVOTS].shape),
                             fl_shape_text(tb, &in[SOLVE_B].shape));
    infer->out[0] = in[SOLVE_B];
    return FL_OK;
}

/* Columns of B are systems of their own, and solutions are linear in B. */
static void sbp_solve(fl_sigs *sigs)
{
    int last = sigs->in[SOLVE_B].shape.ndim - 1;
    for (int axis = 0; axis < last - 1; axis++) FL_SIG(sigs, NULL, FL_S(axis), FL_S(axis), FL_S(axis), FL_S(axis));
    FL_SIG(sigs, NULL, FL_B, FL_B, FL_S(last), FL_S(last));
    fl_sbp_partial(sigs, 1u << SOLVE_B, FL_PSUM);
}

static fl_status kernel_solve(fl_kernel *kernel)
{
    const fl_view *b = &kernel->in[SOLVE_B];
    fl_matrices job = fl_linalg_job(kernel, "linalg.ldl_solve", b->size[b->ndim - 1]);
    return fl_linalg_run(kernel, &job, &fl_matrix_ldl_solve,
                         "has pivots that linalg.ldl_factor does not give (entry %d)");
}

/* The matrix is symmetric: dB solves the same system. The factors count as constants. */
FL_OP(linalg_ldl_solve) = {
    .name = "linalg_ldl_solve",
    .sig = "linalg_ldl_solve(LD, pivots, B)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY,
    .doc = "X with A X = B, from the factors and exchanges of linalg_ldl(A), in batches that are alike.",
    .infer = infer_solve,
    .sbp = sbp_solve,
    .cpu = kernel_solve,
    FL_VJP(NULL, NULL, "linalg_ldl_solve(LD, pivots, g)"),
    FL_SAMPLES("flow.eye(3) * 2, flow.tensor({1, 2, 3}), flow.randn(3, 2)"),
};
