/*
** sort.c -- sorting rows: the copy that this machine runs.
*/
#include "sort.h"

fl_status fl_cpu_sort_rows(const char *who, const fl_sort_rows *job)
{
    return (*FL_BY_LEVEL(fl_sort_rows_of))(who, job);
}
