/*
** priority.c -- see priority.h.
*/
#include "priority.h"

#include <stdio.h>

fl_status fl_priority_check(const char *who, int64_t value)
{
    char text[24];
    if (fl_priority_is(value)) return FL_OK;
    snprintf(text, sizeof text, "%lld", (long long)value);
    return fl_priority_fail(who, text);
}
