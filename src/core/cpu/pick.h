/*
** pick.h -- slices and elements picked by index along an axis, and the sums that are their gradients.
**
** Views are parts of larger tensors. Positions that a part does not hold give zeros, or are left out of sums.
*/
#ifndef FL_CPU_PICK_H
#define FL_CPU_PICK_H

#include "cpu.h"

/* out = the slices of x along the axis at the `count` indices, which have been checked. */
fl_status fl_cpu_pick_along(const fl_view *out, const fl_view *x, int axis, const int64_t *index, int64_t count);

/* out[0] = the sums of in[0]'s slices along the axis, each at the position that in[1], `count` indices, names. */
fl_status fl_cpu_add_along(fl_kernel *kernel, int axis, int64_t count);

/* out[0] = the elements of in[0] that in[1] names along the axis. Checks the index. */
fl_status fl_cpu_gather(fl_kernel *kernel, int axis);

/* out = from every line of x along the axis the element at the line's index, 0 where that is not on the line. index has
** x's shape without the axis, or with size 1 there. */
fl_status fl_cpu_axis_gather(const fl_view *out, const fl_view *x, const fl_view *index, int axis);

/* The other way: out = zeros but for the elements of `line` at the index of their line. out is contiguous. */
fl_status fl_cpu_axis_scatter(const fl_view *out, const fl_view *line, const fl_view *index, int axis);

/* Writes `value`, broadcast to rows (NULL: zeros), at the positions of the axis that the index names; of equal ones the
** last stays. Positions that the part does not hold are left out, others out of range are errors. */
fl_status fl_cpu_write_rows(const fl_view *out, const fl_view *index, const fl_view *value, int axis, const char *who);

#endif
