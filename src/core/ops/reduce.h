/*
** reduce.h -- what the reductions of sums.c, extremes.c and norms.c share: attributes `axis` and `keepdim`, kept axes
** that stay split, gradients that are stretched back.
*/
#ifndef FL_OPS_REDUCE_H
#define FL_OPS_REDUCE_H

#include "op/reduce.h"
#include "expr.h"
#include "cpu/reduce.h"

/* saves_in, saves_out: the one operand, the one result */
enum { SAVES_X = 1u << 0, SAVES_RESULT = 1u << 0 };

/* The indices of an op's attributes. */
typedef struct fl_reduce_slots {
    int axis, keepdim;
} fl_reduce_slots;

static const fl_reduce_slots fl_reduce_usual = {FL_REDUCE_AXIS, FL_REDUCE_KEEPDIM};

/* ---- inference and kernels ---- */

/* out[0]: the shape of in[0] without the reduced axes, in `dtype`. */
fl_status fl_reduce_infer(fl_infer *infer, fl_reduce_slots at, fl_dtype dtype);
/* The same in the dtype of in[0], which must be a float; usual slots. */
fl_status fl_reduce_infer_float(fl_infer *infer);

/* The logical shape of a kernel's operand. */
fl_shape fl_reduce_logical_shape(const fl_view *view);
/* Elements per result. */
int64_t fl_reduce_count(const fl_shape *shape, uint32_t mask);

/* A kernel: `job` over the axes of the call; name and logical count are filled in. */
fl_status fl_reduce_run(fl_kernel *kernel, fl_reduce_slots at, fl_reduce_job job);

/* ---- SBP ---- */

/* Input axis as an output axis. */
int fl_reduce_axis_after(int axis, uint32_t mask, bool keepdim);

/* Kept axes stay split; over a split reduced axis every output becomes `partial` (B: not allowed, unless by the body).
** If there is nothing to reduce the kernel gives every rank the value of nothing. */
void fl_reduce_sigs(fl_sigs *sigs, uint32_t mask, bool keepdim, fl_sbp partial, fl_body body);
/* The same for the axes of the call. */
void fl_reduce_sbp(fl_sigs *sigs, fl_reduce_slots at, fl_sbp partial, fl_body body);

/* The maximum over the parts' maxima; any of bools is a maximum too. */
void fl_reduce_sbp_largest(fl_sigs *sigs);
/* The minimum over the parts' minima; all of bools is a minimum too. */
void fl_reduce_sbp_smallest(fl_sigs *sigs);

/* ---- gradients ---- */

/* Axes of the call whose gradient is computed. */
fl_status fl_reduce_grad_axes(uint32_t *mask, const fl_grad *g, fl_reduce_slots at);
/* gin[0] = result; ends the expression. */
fl_status fl_reduce_end_grad(fl_grad *g, fl_expr *expr, fl_tensor *result);

/* The tensor with the reduced axes put back, stretched to `shape`. */
fl_tensor *expr_unreduce(fl_expr *expr, fl_tensor *tensor, const fl_shape *shape, uint32_t mask);
/* t, but 0 where `divisor` is 0 */
fl_tensor *expr_zero_where(fl_expr *expr, fl_tensor *divisor, fl_tensor *tensor);

#endif
