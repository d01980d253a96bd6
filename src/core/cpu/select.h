/*
** select.h -- elements of rows by rank: those at some places of the sorted row.
*/
#ifndef FL_CPU_SELECT_H
#define FL_CPU_SELECT_H

#include "cpu.h"

enum { FL_SELECT_RANKS = 16 }; /* of a row: beyond, a sort costs less */

/* Of each row of [rows, n], contiguous, the elements at `k` ranks go to values and positions [rows, k]. Ranks count
** from 0, in the order in which sort_rows puts elements; those of row r begin at ranks + r * rank_step. */
typedef struct fl_select_rows {
    const char *x;
    char *values;
    int64_t *positions;
    const int64_t *ranks;
    int64_t rank_step;
    fl_dtype dtype;
    int64_t rows, n, k;
} fl_select_rows;

/* who: the op's name, for messages. The copies of a level take up to FL_SELECT_RANKS ranks. */
typedef fl_status fl_select_rows_fn(const char *who, const fl_select_rows *s);
fl_select_rows_fn fl_cpu_select_rows;

FL_DECLARE_LEVELS(fl_select_rows_fn *const, fl_select_rows_of);

#endif
