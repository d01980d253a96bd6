/*
** scan.h -- running sums on the CPU.
**
** Elements are added in the type they are converted through (copy.h: int64, float, double), integers into int64, floats
** into double. Lines are cut by size alone, so a result depends neither on threads nor on the level of the CPU.
*/
#ifndef FL_SCAN_H
#define FL_SCAN_H

#include "copy.h"

enum { FL_SCAN_TILE = 512 }; /* elements of a line, or columns, done at once */

/* in and out may be the same; totals are int64 or double. */
typedef struct fl_scan_loops {
    /* out[i] = *total += in[i], 0 <= i < n */
    void (*line)(void *total, void *out, const void *in, int64_t n);
    /* out[j] = totals[j] += in[j], 0 <= j < n, row by row; strides from row to row in bytes */
    void (*rows)(void *totals, void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t rows,
                 int64_t n);
} fl_scan_loops;

typedef struct fl_scan_table {
    fl_scan_loops sum[FL_THROUGH_COUNT];
} fl_scan_table;

FL_DECLARE_LEVELS(const fl_scan_table, fl_scan_table);

/* out = the sums of `in` along the axis from its first element to each; backwards: from its last one. out is
** contiguous; `who` is the op, for messages. */
fl_status fl_cpu_scan(const char *who, const fl_view *out, const fl_view *in, int axis, bool backwards);

#endif
