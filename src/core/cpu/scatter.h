/*
** scatter.h -- elements written where an index names places along an axis: the other direction of gather.
*/
#ifndef FL_CPU_SCATTER_H
#define FL_CPU_SCATTER_H

#include "cpu.h"

/* Writes src, which has the shape of the index in[1] and these strides (in elements of out[0]'s dtype; 0 everywhere:
** one value), to the places of out[0] along the axis. Line by line in the order of the index: the last of equal places
** stays. Places that the part does not hold are left out. Checks the index. */
fl_status fl_cpu_scatter(fl_kernel *kernel, int axis, const void *src, const int64_t *src_strides);

#endif
