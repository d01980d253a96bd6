/*
** target.h -- tensors that an op writes: which ones it may write, and what overlaps them.
*/
#ifndef FL_TARGET_H
#define FL_TARGET_H

#include "memory/tensor.h"
#include "op/op.h"

/* Two tensors of one storage that share bytes but not the same elements at the same positions. */
bool fl_overlaps_askew(const fl_tensor *a, const fl_tensor *b);

/* True if no two positions share an element; if an axis has stride 0. */
bool fl_is_nested(const fl_tensor *tensor);
bool fl_is_expanded(const fl_tensor *tensor);

/* An error where elements would be written several times, and for a copy that a view had to be. */
fl_status fl_target_check_strides(const fl_op *op, const fl_tensor *target);
static inline fl_status fl_target_check(const fl_op *op, const fl_tensor *target)
{
    return FL_LIKELY(target->contiguous && !target->moved_view) ? FL_OK : fl_target_check_strides(op, target);
}

#endif
