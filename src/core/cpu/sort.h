/*
** sort.h -- sorting rows: values and positions in order, or the first k of them.
*/
#ifndef FL_CPU_SORT_H
#define FL_CPU_SORT_H

#include "cpu.h"

/* Rows [rows, n], contiguous; the first k of each in order go to values and positions [rows, k]. Equal elements come by
** position, in descending order too. */
typedef struct fl_sort_rows {
    const char *x;
    char *values;
    int64_t *positions;
    fl_dtype dtype;
    int64_t rows, n, k;
    bool descending;
} fl_sort_rows;

/* who: the op's name, for messages. */
typedef fl_status fl_sort_rows_fn(const char *who, const fl_sort_rows *s);
fl_sort_rows_fn fl_cpu_sort_rows;

FL_DECLARE_LEVELS(fl_sort_rows_fn *const, fl_sort_rows_of);

#endif
