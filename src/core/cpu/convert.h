/*
** convert.h -- contiguous elements of one dtype as those of another: a loop per pair of dtypes.
*/
#ifndef FL_CONVERT_H
#define FL_CONVERT_H

#include "cpu.h"

/* n elements; `to` and `from` lie apart. */
typedef void (*fl_convert_loop)(void *to, const void *from, int64_t n);

/* [dtype of `from`][dtype of `to`]. */
typedef fl_convert_loop fl_convert_table[FL_DTYPE_COUNT][FL_DTYPE_COUNT];
FL_DECLARE_LEVELS(const fl_convert_table, fl_convert_loops);

#endif
