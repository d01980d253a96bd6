/*
** resample.h -- the ops that are made of lines resampled along an axis share it.
*/
#ifndef FL_OPS_RESAMPLE_H
#define FL_OPS_RESAMPLE_H

#include "op/resample.h"
#include "expr.h"

/* x with `size` elements along an axis, by a rule of op/resample.h. */
fl_tensor *expr_resample(fl_expr *expr, fl_tensor *x, int axis, int64_t size, int rule, double scale, int64_t before);

#endif
