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
fl_status fl_cpu_add_along(fl_kernel *k, int axis, int64_t count);

/* out[0] = the elements of in[0] that in[1] names along the axis. Checks the index. */
fl_status fl_cpu_gather(fl_kernel *k, int axis);

/* out[0] = the sums of in[0]'s elements, each at the place along the axis that in[1] names. Checks the index. */
fl_status fl_cpu_gather_add(fl_kernel *k, int axis);

#endif
