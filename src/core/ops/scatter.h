/*
** scatter.h -- what the ops share that write, add or fold elements at places that an index names along an axis.
*/
#ifndef FL_SCATTER_H
#define FL_SCATTER_H

#include "op/indexing.h"
#include "in_place_pair.h"

/* The index and src (a tensor or a number) fit x; else an error that names them. */
fl_status fl_scatter_check(const char *who, fl_tensor *x, const fl_operand *in, const fl_attrs *attrs);
/* The corner of src that the index covers. */
fl_tensor *expr_covered(fl_expr *expr, fl_tensor *src, const fl_shape *index);

/* Hooks of ops on (x, axis, index, src) whose src has the shape of the index. */
fl_status fl_scatter_infer(fl_infer *infer);
fl_status fl_scatter_infer_fold(fl_infer *infer);
/* The result is like x, which fl_cpu_scatter can fold into. */
fl_status fl_require_foldable(fl_infer *infer);
void fl_scatter_sbp(fl_sigs *sigs);
int fl_scatter_axis(const fl_attrs *attrs, int ndim);

/* scatter_ and scatter_add_ of a src that has the shape of the index and the dtype of x; operands have been checked. */
fl_status fl_scatter_write(fl_tensor **out, fl_tensor *x, fl_operand index, fl_operand src, const fl_attrs *attrs);
fl_status fl_scatter_add(fl_tensor **out, fl_tensor *x, fl_tensor *index, fl_tensor *src, const fl_attrs *attrs);
/* scatter_ with reduce = "multiply". */
fl_status fl_scatter_multiply(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                              const fl_attrs *attrs);

/* x is of a dtype that a kernel adds to in place, and not on a device. */
bool fl_adds_in_place(const fl_tensor *x);

#endif
