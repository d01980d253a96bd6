/*
** pad.h -- an array with elements around it: a value, or elements of its own.
*/
#ifndef FL_CPU_PAD_H
#define FL_CPU_PAD_H

#include "cpu.h"

typedef enum fl_pad_rule {
    FL_PAD_VALUE,
    FL_PAD_REFLECT,   /* mirrored at the first and last element, which are not repeated */
    FL_PAD_REPLICATE, /* the first and last element */
    FL_PAD_CIRCULAR   /* those of the other end */
} fl_pad_rule;

/* out = x from position before[a] of each axis a on, with elements by the rule around it. value: of the dtype, for
** FL_PAD_VALUE alone; the other rules have enough elements. FL_ERR_MEMORY. */
fl_status fl_cpu_pad(const fl_view *out, const fl_view *x, const int64_t *before, fl_pad_rule rule, const void *value);

#endif
