/*
** search.h -- places of values in sorted lines, with the team.
*/
#ifndef FL_CPU_SEARCH_H
#define FL_CPU_SEARCH_H

#include "cpu.h"

typedef struct fl_search {
    const void *sorted, *values; /* of one dtype: float32, float64 or int64 */
    int64_t *out;                /* for every value the first position of its line whose element is not below it */
    int64_t n, per_line;         /* elements of a line; values that it is searched for, 0: there is one line for all */
    bool right;                  /* in its place the first position whose element is above */
} fl_search;

/* NaN is above all numbers. count: of values. */
void fl_cpu_search(fl_dtype dtype, const fl_search *search, int64_t count);

#endif
