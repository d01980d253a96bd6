/*
** scatter.h -- elements and slices written, added or folded into places that an index names along an axis: the other
** direction of gather and index_select.
**
** Lines are gone through in the order of the index: the last of equal places stays, sums have one order. Places that
** the part does not hold are left out. Both functions check the index, and need src in the dtype of out[0].
*/
#ifndef FL_CPU_SCATTER_H
#define FL_CPU_SCATTER_H

#include "cpu.h"

typedef enum fl_scatter_mode {
    FL_SCATTER_WRITE,
    FL_SCATTER_ADD,
    FL_SCATTER_MUL,
    FL_SCATTER_MAX,
    FL_SCATTER_MIN
} fl_scatter_mode;

/* Into out[0]: src, which has the shape of the index in[1] and these strides (in elements; 0 everywhere: one value).
** All modes but writing take float32, float64 and integers. */
fl_status fl_cpu_scatter(fl_kernel *kernel, int axis, const void *src, const int64_t *src_strides,
                         fl_scatter_mode mode);

/* out[0] = the sums of in[0]'s elements, each at the place along the axis that in[1] names. */
fl_status fl_cpu_gather_add(fl_kernel *kernel, int axis);

/* Into out[0]: the slices of in[2] along the axis, each at the position that in[1], with one axis or none, names. */
fl_status fl_cpu_scatter_slices(fl_kernel *kernel, int axis, fl_scatter_mode mode);

/* Into out[0]: `value` of its dtype, broadcast to the slices, at the positions along the axis that in[1] names. */
fl_status fl_cpu_write_slices(fl_kernel *kernel, int axis, const fl_view *value, const char *who);

#endif
