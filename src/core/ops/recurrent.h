/*
** recurrent.h -- what recurrent.c and recurrent_steps.c have of each other: recurrent layers in other ops, step by
** step.
*/
#ifndef FL_OPS_RECURRENT_H
#define FL_OPS_RECURRENT_H

#include "op/op.h"
#include "op/recurrent.h"

/* Gates of a kind, and hidden units, from the operands of recurrent_rows. */
static inline int64_t fl_recurrent_width(const fl_shape *weight) { return weight->dims[weight->ndim - 1]; }

/* y and cells of recurrent_rows. */
fl_status fl_recurrent_as_ops(fl_tensor **out, const fl_operand *in, const fl_attrs *attrs);

/* The results of recurrent_backward for the call g of recurrent_rows. */
fl_status fl_recurrent_backward_as_ops(fl_tensor **out, const fl_grad *g);

#endif
