/*
** sort.c -- sorting rows: the copy that this machine runs.
*/
#include "sort.h"

fl_status fl_cpu_sort_rows(const char *who, const fl_sort_rows *s)
{
    fl_sort_rows_fn *const levels[FL_LEVEL_COUNT] = {fl_sort_rows_of_base,
#ifdef __x86_64__
                                                     fl_sort_rows_of_avx2, fl_sort_rows_of_avx512
#endif
    };
    return levels[fl_cpu_level()](who, s);
}
