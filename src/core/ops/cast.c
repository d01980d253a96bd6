/*
** cast.c -- conversion to another dtype.
**
** The tape converts every gradient to its input's dtype, so the gradient of a cast is the one that arrives.
*/
#include "op/views.h"
#include "ops.h"

static fl_status infer_cast(fl_infer *infer)
{
    FL_TRY(fl_infer_same(infer));
    infer->out[0].dtype = (fl_dtype)infer->attrs->at[FL_CAST_DTYPE].integer;
    return FL_OK;
}

/* Sums survive a wider float, maxima and minima any conversion that keeps the order. */
static void sbp_cast(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1, FL_PSUM);
    if (fl_sbp_sum_exact(sigs->in[0].dtype, sigs->out[0].dtype)) {
        fl_sbp_partial(sigs, 1, FL_PMAX);
        fl_sbp_partial(sigs, 1, FL_PMIN);
    }
}

FL_OP(cast) = {
    .name = "cast",
    .sig = "cast(x, dtype: dtype)",
    .nout = 1,
    .flags = FL_OP_CASTS,
    .doc = "The values in another dtype; integers wrap, floats are truncated towards 0.",
    .infer = infer_cast,
    .sbp = sbp_cast,
    .cpu = fl_kernel_copy,
    .vjp = (const char *const[]){"g"},
    .samples = (const char *const[]){"flow.randn(3, 4), \"float64\"", "flow.randn(3, 4), \"int32\"", NULL},
};
