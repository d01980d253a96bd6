/*
** positions.h -- positions along an axis, checked on the device.
*/
#ifndef FL_CUDA_POSITIONS_H
#define FL_CUDA_POSITIONS_H

#include "cuda.h"

/* Reports the first of `values`, those of operand `index` as an array, that is not one of `limit` positions:
** "scatter: index[0, 1] is 7, but this axis of x has 5 positions (0 to 4)". */
fl_status fl_cuda_check_positions(const char *who, const fl_view *index, const int64_t *values, int64_t limit);

#endif
