/*
** index.h -- what index.c and index_put.c have of each other: positions and masks that read and write alike. Tensors
** are new references; `who` begins messages.
*/
#ifndef FL_INDEX_H
#define FL_INDEX_H

#include "ops.h"

/* The axis that `given` names. Error: x has no axes, or not this one. */
fl_status fl_index_axis(int *axis, const char *who, const fl_tensor *x, int64_t given);

/* `shape` with `count` axes from `axis` on replaced by the axes of `middle`. Error: too many axes. */
fl_status fl_index_shape(fl_shape *out, const char *who, const fl_shape *shape, int axis, int count,
                         const fl_shape *middle);

/* Positions along an axis of `size`, from integers or a mask, as one list of plain ones. */
fl_status fl_index_positions(fl_tensor **out, fl_tensor *index, int64_t size, const char *who);

/* Positions of the true elements of a mask, where the mask is: [count] in memory order, or [count, ndim] with one
** column per axis. */
fl_status fl_index_true(fl_tensor **out, fl_tensor *x, bool columns, const char *who);

/* x with these sizes, along which it broadcasts. */
fl_status fl_index_expand(fl_tensor **out, fl_tensor *x, const int64_t *sizes, int ndim);

/* Error: the mask does not cover the axes of x from `axis` on. */
fl_status fl_index_check_mask(const char *who, const fl_tensor *x, const fl_tensor *mask, int axis);

/* A mask without axes: it gets one, and x a new one for it before `axis`. */
fl_status fl_index_mask_axis(fl_tensor **x, fl_tensor **mask, int axis, const char *who);

/* x with the `count` axes that a mask covers as one. */
fl_status fl_index_merge(fl_tensor **out, fl_tensor *x, int axis, int count, const char *who);

#endif
